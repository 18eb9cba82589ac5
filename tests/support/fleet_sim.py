"""A simulated fleet: arms built a little differently, their runs as logs, and what was planted in
some of them: payloads and worn joints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import polars
from scipy.signal import lfilter
from simulated_log import motion

import thetahat as th
from thetahat import robots
from thetahat.model import parameters
from thetahat.model.robot import Robot
from thetahat.plant.perturb import perturb

RATE = 100.0  # [Hz]
WHITE, SLOW, MEMORY = (
    0.3,
    0.2,
    0.2,
)  # [N·m] of torque noise: white, and one that stays alike for so many seconds
# relative scatter of friction from run to run, as temperature makes it: no change, and not to be
# reported
DAILY = 0.03
HAND = "forearm"  # the last link


@dataclass(frozen=True)
class Planted:
    """A change in the life of a robot."""

    robot: str
    kind: str  # "payload", "viscous" or "coulomb"
    where: str  # link or joint
    run: int  # from which on; 0 for a drift over the whole life
    size: float  # [kg], or relative growth until the last run


@cache
def arm() -> Robot:
    return th.load(robots.path("arm4"))


def name_of(k: int) -> str:
    return f"arm-{k:02d}"


def planted(count: int, runs: int, *, seed: int) -> tuple[Planted, ...]:
    """On a quarter of the robots a payload, on another quarter a worn joint; the rest stay as they
    are.
    """
    rng = np.random.default_rng(seed)
    order, quarter = rng.permutation(count), max(count // 4, 1)
    out = []
    for k in order[:quarter]:
        out.append(
            Planted(
                name_of(k),
                "payload",
                HAND,
                int(rng.integers(runs // 4, 3 * runs // 4)),
                float(rng.uniform(0.5, 1.0)),
            )
        )
    for k in order[quarter : 2 * quarter]:
        kind, joint = (
            ("viscous", "coulomb")[int(rng.integers(2))],
            arm().joint_names[int(rng.integers(arm().nv))],
        )
        out.append(Planted(name_of(k), kind, joint, 0, float(rng.uniform(0.3, 0.6))))
    return tuple(out)


def run_of(
    robot: Robot,
    changes: Sequence[Planted],
    run: int,
    runs: int,
    rng: np.random.Generator,
    *,
    seconds: float,
) -> dict[str, np.ndarray]:
    """One log: the motion, its true torques with what was planted until then, and the noise of
    sensors.
    """
    theta, drive = robot.theta.copy(), robot.drive
    values = {
        term: drive.value(term) * (1.0 + DAILY * rng.standard_normal(robot.nv))
        for term in ("viscous", "coulomb")
    }
    for each in changes:
        if each.kind == "payload" and run >= each.run:
            at = 10 * robot.body_names.index(each.where)
            held = parameters.from_mass_com_inertia(
                np.array(each.size), np.array([0.02, 0.2, 0.01]), 2e-3 * each.size * np.eye(3)
            )
            theta[at : at + 10] += held
        elif each.kind != "payload":
            values[each.kind][robot.joint_names.index(each.where)] *= 1.0 + each.size * run / (
                runs - 1
            )
    loaded = replace(robot, theta=theta)
    t, q, dq, ddq = motion(robot.nv, seconds=seconds, rate=RATE, seed=int(rng.integers(1 << 31)))
    tau = (
        th.inverse_dynamics(loaded, q, dq, ddq, rigid=True)
        + values["viscous"] * dq
        + values["coulomb"] * np.sign(dq)
        + 0.3
    )
    tau += rng.normal(0.0, WHITE, tau.shape) + _slow(rng, tau.shape)
    q, dq = q + rng.normal(0.0, 2e-5, q.shape), dq + rng.normal(0.0, 2e-3, q.shape)
    out = {"t": t}
    for kind, array in (("q", q), ("dq", dq), ("tau", tau)):
        out |= {f"{kind}.{joint}": array[:, j] for j, joint in enumerate(robot.joint_names)}
    return out


def _slow(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Noise that neighbouring samples share: an autoregression."""
    a = np.exp(-1.0 / (MEMORY * RATE))
    start = rng.normal(0.0, SLOW, (1, shape[1]))
    return lfilter(
        [np.sqrt(1.0 - a * a)], [1.0, -a], rng.normal(0.0, SLOW, shape), axis=0, zi=a * start
    )[0]


def write_fleet(
    folder: Path,
    count: int,
    runs: int,
    *,
    seed: int,
    changes: Sequence[Planted] = (),
    seconds: float = 6.0,
) -> Path:
    """All logs as Parquet, and the manifest that names them."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for k in range(count):
        name = name_of(k)
        (folder / name).mkdir(exist_ok=True)
        robot, rng = (
            perturb(arm(), spread=0.05, seed=1000 * seed + k),
            np.random.default_rng([seed, k]),
        )
        mine = [each for each in changes if each.robot == name]
        for run in range(runs):
            table = run_of(robot, mine, run, runs, rng, seconds=seconds)
            polars.DataFrame(table).write_parquet(folder / name / f"run{run:03d}.parquet")
        lines += [f"[robots.{name}]", 'robot = "arm4"', f'logs = "{name}"', ""]
    (folder / "fleet.toml").write_text("\n".join(lines))
    return folder / "fleet.toml"
