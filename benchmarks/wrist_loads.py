"""Loads that a wrist sensor feels: how far off the mass is 0.1 and 0.2 s after lifting, online.

    python -m benchmarks.wrist_loads                    # three arms, 100 runs each
    python -m benchmarks.wrist_loads --arms ur5e --runs 10 --seed 3

MuJoCo computes the wrench in the last joint of arms from other people's packages (its own force and
torque sensors), along a motion of all joints, without and with a load on the last link. The load's
weight comes on within 50 ms; it is lifted when all of it hangs. Added: bias of some newtons, white
noise, slow noise, encoder and velocity noise. The robot file has masses that are off by 10 %, so
the empty tool is identified first, from a log of 10 s, as `thetahat tool --robot` does. Each run
draws motion, load, bias and noise anew.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass

import numpy as np

from benchmarks.payloads import NAMES, Held, motion
from benchmarks.worlds import ARMS, Arm, load_arm
from thetahat.model.robot import Robot
from thetahat.model.wrench_sensors import CHANNELS, sensor_joint
from thetahat.online.wrist_load import WristLoad, WristLoadEstimator
from thetahat.pipeline.wrist_tool import wrist_tool
from thetahat.plant.mujoco_engine import load_mujoco

RUNS = 100
MASSES = (0.5, 1.0, 2.0, 5.0)  # [kg]
WRONG = 0.1  # of the robot file's masses
FORCE, TORQUE = 0.3, 0.01  # [N, N·m] white noise of a sample
SLOW, CONSTANT = 0.05, 0.5  # of noise with a time constant: part of the white noise's size, [s]
BIAS = (5.0, 0.3)  # [N, N·m]
ENCODER, SPEED = 2e-5, 2e-3  # [rad, rad/s]
CALIBRATION = 10.0  # [s] of the log that tells the empty tool
EMPTY, RISE, AFTER = 1.5, 0.05, 0.3  # [s] before the lift, while weight comes on, after it
TIMES = (0.1, 0.2)  # [s] after lifting at which the mass is asked for


class SensorWorld:
    """MuJoCo on the package's own file, with a force and torque sensor at the last link."""

    def __init__(self, arm: Arm, robot: Robot, link: str, held: Held | None) -> None:
        mujoco = self._mujoco = load_mujoco()
        spec = mujoco.MjSpec.from_file(str(arm.path))
        for part in (*spec.actuators, *spec.equalities, *spec.sensors):
            spec.delete(part)
        for joint in list(spec.joints):
            if joint.name not in robot.joint_names:
                spec.delete(joint)
        body = spec.body(link)
        body.add_site(name="wrist_sensor")
        for kind, name in (("FORCE", "force"), ("TORQUE", "torque")):
            spec.add_sensor(
                name=name,
                type=getattr(mujoco.mjtSensor, f"mjSENS_{kind}"),
                objtype=mujoco.mjtObj.mjOBJ_SITE,
                objname="wrist_sensor",
            )
        if held is not None:
            load = body.add_body(name="payload")
            load.mass, load.ipos, load.inertia = held.mass, held.com, held.inertia
            load.explicitinertial = True
        flags = mujoco.mjtDisableBit
        spec.option.disableflags |= flags.mjDSBL_CONTACT | flags.mjDSBL_LIMIT
        self.model = model = spec.compile()
        self.data = mujoco.MjData(model)
        self.q_at = [model.joint(name).qposadr[0] for name in robot.joint_names]
        self.v_at = [model.joint(name).dofadr[0] for name in robot.joint_names]

    def wrenches(self, q: np.ndarray, dq: np.ndarray, ddq: np.ndarray) -> np.ndarray:
        """Return the wrench on the link, (n, 6) [N, N·m]."""
        data, out = self.data, np.empty((len(q), 6))
        for k in range(len(q)):
            data.qpos[self.q_at], data.qvel[self.v_at] = q[k], dq[k]
            data.qacc[self.v_at] = ddq[k]
            self._mujoco.mj_inverse(self.model, data)
            out[k] = data.sensordata[:6]
        return out


@dataclass(frozen=True)
class LiftRun:
    """How far off one run's mass is."""

    arm: str
    mass: float  # [kg]
    errors: tuple[float | None, ...]  # relative, at TIMES; None: no answer
    inside: tuple[bool, ...]  # whether the 95 % interval holds
    widths: tuple[float | None, ...]  # half of the interval, relative
    slowest: float  # [µs] 99th percentile of processor time a sample takes


def noisy(rng: np.random.Generator, wrench: np.ndarray, bias: np.ndarray, period: float):
    """Return what a sensor reads: bias, white noise and slow noise."""
    size = np.array([FORCE] * 3 + [TORQUE] * 3)
    keep = np.exp(-period / CONSTANT)
    slow = np.zeros_like(wrench)
    steps = np.sqrt(1.0 - keep**2) * rng.normal(size=wrench.shape)
    for k in range(1, len(slow)):
        slow[k] = keep * slow[k - 1] + steps[k]
    return wrench + bias + size * (rng.normal(size=wrench.shape) + SLOW * slow)


def one_run(name: str, seed: int) -> LiftRun:
    """Calibrate, lift, and compare."""
    rng = np.random.default_rng([seed, NAMES.index(name)])
    arm = next(each for each in ARMS if each.name == name)
    robot = load_arm(arm)
    link = robot.body_names[-1]
    held = Held.drawn(rng, float(rng.choice(MASSES)))
    bare, loaded = (SensorWorld(arm, robot, link, each) for each in (None, held))
    factors = np.repeat(1.0 + WRONG * rng.uniform(-1.0, 1.0, len(robot.body_names)), 10)
    known = robot.with_parameters(robot.theta * factors)
    bias = np.repeat(BIAS, 3) * rng.uniform(-1.0, 1.0, 6)
    tool = wrist_tool(known, _calibration(rng, robot, link, bare, bias))
    estimator = WristLoadEstimator(known, link, tool=tool.payload.theta)
    t, q, dq, ddq = motion(robot, rng)
    first = int(rng.integers(0, len(t) // 2))
    period = t[1] - t[0]
    rows = slice(first, first + round((EMPTY + RISE + AFTER) / period))
    t, q, dq, ddq = t[rows] - t[first], q[rows], dq[rows], ddq[rows]
    share = np.clip((t - EMPTY) / RISE, 0.0, 1.0)[:, None]
    state = (q, dq, ddq)
    wrench = (1.0 - share) * bare.wrenches(*state) + share * loaded.wrenches(*state)
    drifted = bias + np.repeat((0.2, 0.01), 3) * rng.normal(size=6)
    wrench = noisy(rng, wrench, drifted, period)
    q = q + rng.normal(0.0, ENCODER, q.shape)
    dq = dq + rng.normal(0.0, SPEED, dq.shape)
    answers: list[WristLoad | None] = []
    spent = []
    for k in range(len(t)):
        began = time.process_time()
        answers.append(estimator.push(float(t[k]), q[k], dq[k], wrench[k]))
        spent.append(time.process_time() - began)
    at = [int(np.searchsorted(t, EMPTY + RISE + each)) for each in TIMES]
    return _judged(name, held.mass, [answers[k] for k in at], float(np.percentile(spent, 99)))


def _calibration(
    rng: np.random.Generator, robot: Robot, link: str, world: SensorWorld, bias: np.ndarray
) -> dict[str, np.ndarray]:
    """A log of the empty tool in motion."""
    t, q, dq, ddq = (each[: round(CALIBRATION / 0.004)] for each in motion(robot, rng))
    wrench = noisy(rng, world.wrenches(q, dq, ddq), bias, t[1] - t[0])
    log = {"t": t}
    for j, joint in enumerate(robot.joint_names):
        log[f"q.{joint}"] = q[:, j] + rng.normal(0.0, ENCODER, len(t))
        log[f"dq.{joint}"] = dq[:, j] + rng.normal(0.0, SPEED, len(t))
    log |= {sensor_joint(link, each): wrench[:, k] for k, each in enumerate(CHANNELS)}
    return log


def _judged(name: str, mass: float, answers: list[WristLoad | None], spent: float) -> LiftRun:
    errors = [None if each is None else each.mass / mass - 1.0 for each in answers]
    inside = [each is not None and each.interval[0] <= mass <= each.interval[1] for each in answers]
    widths = [None if each is None else (each.interval[1] - each.mass) / mass for each in answers]
    return LiftRun(name, mass, tuple(errors), tuple(inside), tuple(widths), 1e6 * spent)


def summary(runs: list[LiftRun]) -> str:
    """A line per arm."""
    lines = ["arm      runs   within 2 %  at 0.2 s: worst, interval holds, half width   p99 [µs]"]
    for name in dict.fromkeys(run.arm for run in runs):
        own = [run for run in runs if run.arm == name]
        within = [
            sum(run.errors[k] is not None and abs(run.errors[k]) <= 0.02 for run in own)
            for k in range(len(TIMES))
        ]
        last = [abs(run.errors[-1]) for run in own if run.errors[-1] is not None]
        width = [run.widths[-1] for run in own if run.widths[-1] is not None]
        lines.append(
            f"{name:8} {len(own):4}   {within[0]:4}, {within[1]:4}"
            f"  {max(last, default=np.nan):.4f}, {sum(run.inside[-1] for run in own):4},"
            f" {np.median(width) if width else np.nan:.4f}"
            f"   {np.median([run.slowest for run in own]):.0f}"
        )
    return "\n".join(lines)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arms", default=",".join(NAMES))
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    runs = [
        one_run(name, given.seed + k) for name in given.arms.split(",") for k in range(given.runs)
    ]
    print(json.dumps([asdict(run) for run in runs]) if given.json else summary(runs))


if __name__ == "__main__":
    main()
