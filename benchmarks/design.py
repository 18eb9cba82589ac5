"""Designed motions beside random ones: UR10 and Panda, 10 s and 5 harmonics, with friction columns.

For every arm: the time and evaluations of the design, its condition number, how near it comes to
its limits at every millisecond, and det(information)^(1/2p) as a multiple of that of 60 random
motions scaled up to the first limit they meet, all joints by one scale (the plain way), and joint
by joint (which makes better random motions).
"""

from __future__ import annotations

import time
import warnings

import numpy as np

import thetahat as th
from benchmarks.robots import example_folder
from thetahat.excite.bases import FourierFamily
from thetahat.excite.design import design, excitation, planned, random_motion
from thetahat.model.lock_joints import lock

ARMS = {"UR10": "ur_description/urdf/ur10_robot.urdf", "Panda": "panda_description/urdf/panda.urdf"}
RANDOM = 60
SEEDS = (0, 1, 2)


def arm(path: str) -> th.Robot:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        robot = th.load(example_folder() / path)
    return lock(robot, [joint for joint in robot.joint_names if "finger" in joint]).with_drive(
        viscous=True, coulomb=True, offset=True
    )


def spread(values: np.ndarray) -> str:
    return " ".join(f"{x:.3g}" for x in np.quantile(values, [0.0, 0.25, 0.5, 0.75, 1.0]))


def one(name: str, path: str) -> None:
    robot = arm(path)
    problem, _ = planned(robot, FourierFamily(robot.joint_names, 10.0, 5))
    p = len(problem.columns)
    print(
        f"\n{name}: {robot.nv} joints, {p} base parameters with viscous, Coulomb and offset;"
        f" {RANDOM} random motions: minimum, quartiles, maximum"
    )
    roots = {}
    for together, how in ((True, "one scale"), (False, "joint by joint")):
        rng = np.random.default_rng(1)
        found = [
            excitation(robot, random_motion(problem, rng, together=together), problem.noise)
            for _ in range(RANDOM)
        ]
        roots[how] = np.exp(np.array([value for _, value, _ in found]) / (2 * p))
        conditions = [
            np.array([c for *_, c in found]),
            np.array([info.condition for info, *_ in found]),
        ]
        print(
            f"  random, {how:14s}: root {spread(roots[how])} | condition {spread(conditions[0])} |"
            f" rows not weighted {spread(conditions[1])}"
        )
    for seed in SEEDS:
        began = time.perf_counter()
        made = design(robot, seed=seed)
        took = time.perf_counter() - began
        root = np.exp(made.log_det / (2 * p))
        gains = ", ".join(
            f"{how} {root / np.median(v):.2f}× the median, {root / np.max(v):.2f}× the best"
            for how, v in roots.items()
        )
        used = ", ".join(f"{margin.kind} {100 * margin.used:.2f} %" for margin in made.margins)
        print(
            f"  seed {seed}: {took:.1f} s, {made.evaluations} evaluations, complete"
            f" {made.complete}, condition {made.condition:.2f} (rows not weighted"
            f" {made.information.condition:.2f}); {gains}; limits used: {used}",
            flush=True,
        )


def main() -> None:
    for name, path in ARMS.items():
        one(name, path)


if __name__ == "__main__":
    main()
