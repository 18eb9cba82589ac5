"""Payloads of simulated arms: how far off their masses and centres are, and whether intervals hold.

    python -m benchmarks.payloads                       # three arms, 200 runs in all
    python -m benchmarks.payloads --arms ur5e --runs 10 --seed 3

MuJoCo computes the torques (mj_inverse) of arms from other people's packages, from their own files,
with a payload as one more body at the last link. Added to them: Coulomb, viscous and Stribeck
friction, torque noise that is white and a slow part beside, encoder noise, and in the second
experiment drives whose gains are off by up to 15 %. The robot file that identification gets has
masses that are off by 10 %. Each run draws motion, payload and noise anew.

    known gains      a log with and one without the payload
    unknown gains    the same, and a log with another payload of known mass
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import thetahat as th
from benchmarks.worlds import ARMS, Arm, load_arm
from thetahat.identification.payload.payload_result import UPPER
from thetahat.model.robot import Robot
from thetahat.pipeline.payload_identification import PayloadIdentification
from thetahat.pipeline.settings import IdentifySettings
from thetahat.plant.mujoco_engine import load_mujoco

NAMES = ("panda", "ur5e", "xarm7")
RUNS = 67  # of each arm
SECONDS, PERIOD = 20.0, 0.004  # [s] of each log
HARMONICS = 5
MASSES = (0.2, 0.5, 1.0, 2.0, 5.0)  # [kg]
KNOWN = 1.5  # [kg] of the payload that was weighed
GAINS = 0.15  # by which drives are off, at most
CUTOFF = 6.0  # [Hz]
ENCODER = 2e-5  # [rad] standard deviation
Z95 = 1.959963984540054
# what tuning would choose costs 20 times the fit
QUICK = IdentifySettings(tune=False, cutoff=CUTOFF, armature=True)


@dataclass(frozen=True)
class Held:
    """A payload as it truly is."""

    mass: float  # [kg]
    com: tuple[float, float, float]  # [m]
    inertia: tuple[float, float, float]  # [kg·m²] about the centre of mass, along the axes

    @staticmethod
    def drawn(rng: np.random.Generator, mass: float) -> Held:
        """A box of 6 to 20 cm, somewhere on the flange."""
        sides = rng.uniform(0.06, 0.2, 3)
        square = sides**2 / 12.0
        com = (*rng.uniform(-0.03, 0.03, 2), rng.uniform(0.03, 0.12))
        inertia = mass * (np.sum(square) - square)
        return Held(mass, tuple(map(float, com)), tuple(map(float, inertia)))


class PayloadWorld:
    """MuJoCo on the package's own file, with a payload at the last link."""

    def __init__(self, arm: Arm, robot: Robot, link: str, held: Held | None) -> None:
        mujoco = self._mujoco = load_mujoco()
        spec = mujoco.MjSpec.from_file(str(arm.path))
        for part in (*spec.actuators, *spec.equalities):
            spec.delete(part)
        for joint in list(spec.joints):
            if joint.name not in robot.joint_names:
                spec.delete(joint)
        if held is not None:
            body = spec.body(link).add_body(name="payload")
            body.mass, body.ipos, body.inertia = held.mass, held.com, held.inertia
            body.explicitinertial = True
        flags = mujoco.mjtDisableBit
        spec.option.disableflags |= flags.mjDSBL_CONTACT | flags.mjDSBL_LIMIT
        self.model = model = spec.compile()
        model.dof_damping[:] = 0.0
        model.dof_frictionloss[:] = 0.0
        self.data = mujoco.MjData(model)
        self.q_at = [model.joint(name).qposadr[0] for name in robot.joint_names]
        self.v_at = [model.joint(name).dofadr[0] for name in robot.joint_names]

    def torques(self, q: np.ndarray, dq: np.ndarray, ddq: np.ndarray) -> np.ndarray:
        """Return the torques of a motion, (n, joints) [N·m]."""
        data, out = self.data, np.empty_like(q)
        for k in range(len(q)):
            data.qpos[self.q_at], data.qvel[self.v_at] = q[k], dq[k]
            data.qacc[self.v_at] = ddq[k]
            self._mujoco.mj_inverse(self.model, data)
            out[k] = data.qfrc_inverse[self.v_at]
        return out


def motion(robot: Robot, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Five harmonics of every joint about a pose near the middle of its range: t, q, dq, ddq."""
    t = np.arange(0.0, SECONDS, PERIOD)
    nodes = robot.tree.independent
    low = np.array([max(node.limits.lower, -np.pi) for node in nodes])
    high = np.array([min(node.limits.upper, np.pi) for node in nodes])
    middle, room = 0.5 * (low + high), 0.5 * (high - low)
    w = 2.0 * np.pi * np.arange(1, HARMONICS + 1) / (0.5 * SECONDS)
    a, b = rng.normal(size=(2, len(nodes), HARMONICS))
    size = np.minimum(1.0, 0.7 * room) / np.sum(np.hypot(a, b), axis=1)
    a, b = a * size[:, None], b * size[:, None]
    sin, cos = np.sin(np.outer(t, w)), np.cos(np.outer(t, w))
    q = middle + sin @ a.T + cos @ b.T
    dq = (cos * w) @ a.T - (sin * w) @ b.T
    ddq = -(sin * w**2) @ a.T - (cos * w**2) @ b.T
    return t, q, dq, ddq


@dataclass(frozen=True, eq=False)
class Drives:
    """Friction, noise and gains of an arm's drives."""

    coulomb: np.ndarray  # (nv,) [N·m]
    noise: np.ndarray  # (nv,) [N·m]
    gains: np.ndarray  # (nv,)

    @staticmethod
    def drawn(rng: np.random.Generator, torque: np.ndarray, *, gains: float) -> Drives:
        """Friction of 5 % and noise of 2 % of each joint's torque, with at least 0.02 N·m."""
        size = np.maximum(np.sqrt(np.mean(torque**2, axis=0)), 1.0)
        return Drives(0.05 * size, 0.02 * size, 1.0 + gains * rng.uniform(-1.0, 1.0, len(size)))

    def logged(self, rng: np.random.Generator, torque: np.ndarray, dq: np.ndarray) -> np.ndarray:
        """What the drives report: friction added, noise white and slow, over the gain."""
        dry = 1.0 + 0.1 * np.exp(-((dq / 0.05) ** 2))
        friction = self.coulomb * (dry * np.tanh(dq / 0.005) + 0.8 * dq)
        slow = np.zeros_like(torque)
        keep = np.exp(-PERIOD / 0.1)  # [s] time constant of the slow part
        steps = np.sqrt(1.0 - keep**2) * rng.normal(size=torque.shape)
        for k in range(1, len(slow)):
            slow[k] = keep * slow[k - 1] + steps[k]
        noise = self.noise * (rng.normal(size=torque.shape) + 0.3 * slow)
        return np.asarray((torque + friction + noise) / self.gains)


@dataclass(frozen=True)
class PayloadRun:
    """How far off one run's answer is."""

    arm: str
    experiment: str  # "known gains" or "unknown gains"
    seed: int
    true_mass: float  # [kg]
    mass_error: float  # [kg]
    mass_inside: bool  # of the 95 % interval
    inside_by_noise: bool  # likewise, without what the interval holds of the torques' scale
    com_error: float  # [m] length
    com_inside: tuple[bool, ...]
    inertia_inside: tuple[bool, ...]  # of the numbers that were told, of six
    gain_error: float | None  # largest, relative, of those that were told
    gain_inside: tuple[bool, ...]
    level: str
    seconds: float


class Bench:
    """One arm: worlds, and the robot file that identification gets."""

    def __init__(self, arm: Arm) -> None:
        self.arm, self.true = arm, load_arm(arm)
        self.link = self.true.body_names[-1]
        self.joints = self.true.joint_names

    def given(self, rng: np.random.Generator) -> Robot:
        """The robot with masses as files have them: off by 10 %."""
        factors = np.repeat(1.0 + 0.1 * rng.normal(size=len(self.true.body_names)), 10)
        return self.true.with_parameters(self.true.theta * np.clip(factors, 0.7, 1.3))

    def log(
        self, rng: np.random.Generator, held: Held | None, drives: Drives | None, gains: float
    ) -> tuple[dict[str, np.ndarray], Drives]:
        """Record a motion with a payload, or without."""
        t, q, dq, ddq = motion(self.true, rng)
        torque = PayloadWorld(self.arm, self.true, self.link, held).torques(q, dq, ddq)
        drives = drives or Drives.drawn(rng, torque, gains=gains)
        table = {"t": t}
        logged = drives.logged(rng, torque, dq)
        for j, name in enumerate(self.joints):
            table[f"q.{name}"] = q[:, j] + ENCODER * rng.normal(size=len(t))
            table[f"tau.{name}"] = logged[:, j]
        return table, drives

    def run(self, seed: int, *, unknown_gains: bool, tune: bool = False) -> PayloadRun:
        """Identify one payload that is drawn with this seed.

        tune: choose low-pass and friction from each log, as the command does by default.
        """
        rng = np.random.default_rng([seed, int(unknown_gains)])
        mass = float(MASSES[seed % len(MASSES)])
        held = Held.drawn(rng, mass)
        spread = GAINS if unknown_gains else 0.0
        empty, drives = self.log(rng, None, None, spread)
        loaded = {"payload": self.log(rng, held, drives, spread)[0]}
        known = None
        if unknown_gains:
            loaded["weighed"] = self.log(rng, Held.drawn(rng, KNOWN), drives, spread)[0]
            known = {"weighed": KNOWN}
        began = time.process_time()
        result = th.payload(
            self.given(rng),
            loaded,
            link=self.link,
            without=empty,
            known_mass=known,
            settings=IdentifySettings() if tune else QUICK,
        )
        return self._judged(result, held, drives, seed, time.process_time() - began)

    def _judged(
        self,
        result: PayloadIdentification,
        held: Held,
        drives: Drives,
        seed: int,
        seconds: float,
    ) -> PayloadRun:
        payload = result.payloads["payload"]
        com = payload.com - np.array(held.com)
        std = payload.com_std.filled(np.inf)
        off = np.abs(payload.inertia_com - np.diag(held.inertia))[UPPER]
        turning = off <= Z95 * payload.inertia_std[UPPER]
        gains = [
            (g.gain / true - 1.0, abs(g.gain - true) <= Z95 * g.std)
            for g, true in zip(result.gains or (), drives.gains, strict=False)
            if g.gain is not None
        ]
        error = payload.mass - held.mass
        std_mass, scale = payload.mass_std or np.inf, result.scale_error or 0.0
        return PayloadRun(
            self.arm.name,
            "known gains" if result.gains is None else "unknown gains",
            seed,
            held.mass,
            float(error),
            bool(abs(error) <= Z95 * std_mass),
            bool(abs(error) <= Z95 * np.sqrt(std_mass**2 - (scale * payload.mass) ** 2)),
            float(np.linalg.norm(com)),
            tuple(bool(inside) for inside in np.abs(com) <= Z95 * std),
            tuple(bool(inside) for inside in turning.compressed()),
            max((abs(e) for e, _ in gains), default=None),
            tuple(bool(inside) for _, inside in gains),
            result.verdict.level,
            seconds,
        )


def summary(runs: list[PayloadRun]) -> dict[str, object]:
    """Return errors and coverage of some runs of one experiment."""
    relative = np.array([abs(r.mass_error) / r.true_mass for r in runs])
    close = [abs(r.mass_error) <= max(0.01 * r.true_mass, 0.01) for r in runs]
    centres = [r.com_error for r in runs if r.true_mass == 1.0]
    gains = [inside for r in runs for inside in r.gain_inside]
    return {
        "runs": len(runs),
        "mass_error_median": float(np.median(relative)),
        "mass_error_largest": float(np.max(relative)),
        "mass_within_1_percent_or_10_g": float(np.mean(close)),
        "mass_within_2_percent": float(np.mean(relative <= 0.02)),
        "com_error_at_1_kg_largest": max(centres, default=None),
        "mass_coverage": float(np.mean([r.mass_inside for r in runs])),
        "mass_coverage_by_noise": float(np.mean([r.inside_by_noise for r in runs])),
        "com_coverage": float(np.mean([inside for r in runs for inside in r.com_inside])),
        "inertia_coverage": float(np.mean([i for r in runs for i in r.inertia_inside] or [1.0])),
        "inertia_told": float(np.mean([len(r.inertia_inside) / 6.0 for r in runs])),
        "gain_coverage": float(np.mean(gains)) if gains else None,
        "seconds": float(np.median([r.seconds for r in runs])),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--arms", default=",".join(NAMES))
    parser.add_argument("--runs", type=int, default=RUNS, help="of each arm and experiment")
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    parser.add_argument("--tune", action="store_true", help="all of the command's defaults")
    parser.add_argument("--out", type=Path, help="JSON lines, one per run")
    arguments = parser.parse_args()
    arms = {arm.name: arm for arm in ARMS}
    runs: list[PayloadRun] = []
    benches = [Bench(arms[name]) for name in arguments.arms.split(",")]
    for seed in range(arguments.seed, arguments.seed + arguments.runs):
        for bench in benches:
            for unknown_gains in (False, True):
                tune = arguments.tune
                runs.append(bench.run(seed, unknown_gains=unknown_gains, tune=tune))
                if arguments.out is not None:
                    with arguments.out.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(asdict(runs[-1])) + "\n")
    for experiment in ("known gains", "unknown gains"):
        for name in (*arguments.arms.split(","), "all"):
            own = [r for r in runs if r.experiment == experiment and name in (r.arm, "all")]
            print(name, experiment, json.dumps(summary(own)))


if __name__ == "__main__":
    main()
