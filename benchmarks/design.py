"""Designed motions beside random ones, and against the limits as others compute them.

Panda, UR10, xArm 7 and the shipped arm7, 10 s and 5 harmonics, with friction columns, floor and
self-collision. For every arm: the time of the design; how much smaller the parameters' spread
(geometric mean of the standard deviations, det(information)^(−1/2p)) is than that of 60 random
motions under the same limits, all joints scaled by one factor (the plain way) and joint by joint
(which makes better random motions); and what of every limit is used at every millisecond, with
distances by Coal between hulls of the meshes as Pinocchio reads them.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path

import numpy as np

import thetahat as th
from benchmarks.mesh_distances import least_distances
from benchmarks.robots import example_folder
from thetahat import robots
from thetahat.excite.bases import FourierFamily
from thetahat.excite.design import Design, design, excitation, planned, random_motion
from thetahat.model.lock_joints import lock

ARMS = {
    "arm7": Path(robots.path("arm7")),
    "Panda": example_folder() / "panda_description/urdf/panda.urdf",
    "UR10": example_folder() / "ur_description/urdf/ur10_robot.urdf",
    "xArm7": example_folder() / "xarm_description/urdf/xarm7.urdf",
}
RANDOM = 60
SEEDS = (0, 1)
FACTOR = 1.6  # by which the best random motion's spread is to be larger


def arm(path: Path) -> th.Robot:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        robot = th.load(path)
    return lock(robot, [joint for joint in robot.joint_names if "finger" in joint]).with_drive(
        viscous=True, coulomb=True, offset=True
    )


def distances(robot: th.Robot, made: Design) -> str:
    """The least distances of meshes from each other and from the floor, by Coal."""
    watched = made.limits.collisions
    motion = made.trajectory.sampled(1000.0)
    apart, above = least_distances(robot, watched, motion.q, str(example_folder().parents[1]))
    return (
        f"every millisecond by Coal: links {1000 * apart:.1f} mm apart, {1000 * above:.1f} mm above"
        f" the floor at least (asked for: {1000 * np.min(watched.apart):.1f} and"
        f" {1000 * np.min(watched.above, initial=np.inf):.1f} mm)"
    )


def spread(values: np.ndarray) -> str:
    return " ".join(f"{x:.3g}" for x in np.quantile(values, [0.0, 0.5, 1.0]))


def one(name: str, path: Path) -> bool:
    """Print the comparison; whether the design is as much better as it is to be."""
    robot = arm(path)
    problem, _ = planned(robot, FourierFamily(robot.joint_names, 10.0, 5))
    p = len(problem.columns)
    print(f"\n{name}: {robot.nv} joints, {p} base parameters with viscous, Coulomb and offset")
    roots = {}
    for together, how in ((True, "one scale"), (False, "joint by joint")):
        rng = np.random.default_rng(1)
        shown = [
            excitation(robot, random_motion(problem, rng, together=together), problem.noise)
            for _ in range(RANDOM)
        ]
        roots[how] = np.exp(np.array([value for _, value, _ in shown]) / (2 * p))
        conditions = np.array([condition for *_, condition in shown])
        print(
            f"  {RANDOM} random, {how:14s}: root {spread(roots[how])} | condition"
            f" {spread(conditions)} (minimum, median, maximum)",
            flush=True,
        )
    enough = True
    for seed in SEEDS:
        began = time.perf_counter(), time.process_time()
        made = design(robot, seed=seed)
        took = time.perf_counter() - began[0], time.process_time() - began[1]
        root = np.exp(made.log_det / (2 * p))
        gains = {how: root / np.max(values) for how, values in roots.items()}
        enough &= min(gains.values()) >= FACTOR
        better = ", ".join(f"{how} {gain:.2f}×" for how, gain in gains.items())
        print(
            f"  seed {seed}: {took[0]:.1f} s ({took[1]:.1f} s of processor), {made.evaluations}"
            f" evaluations, condition {made.condition:.2f}; best random spread larger by: {better}"
        )
        for margin in made.margins:
            print(f"    {margin}")
        print(f"    {distances(robot, made)}", flush=True)
    return enough


def main() -> None:
    results = {name: one(name, path) for name, path in ARMS.items()}
    short = [name for name, enough in results.items() if not enough]
    print(f"\nat least {FACTOR}× in all: {'yes' if not short else 'no: ' + ', '.join(short)}")


if __name__ == "__main__":
    main()
