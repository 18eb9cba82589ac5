"""Logs of the seven-joint arm with and without payloads, their torques by Pinocchio."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
from payload_cases import Bar, path, robot, torques

import thetahat as th

LINK = "tool"
EVERY = 5  # rows: 200 Hz
GAINS = np.array([1.12, 0.9, 1.07, 0.86, 1.0, 1.14, 0.93])  # of the drives that are off
BOX, BALL = Bar(mass=0.8), Bar(mass=2.0, centre=(0.02, -0.01, 0.08))


@cache
def table(held: Bar | None, seed: int, *, gains: bool = False) -> dict[str, np.ndarray]:
    """Columns of a log: 10 s, white torque noise of 0.1 N·m."""
    arm = robot("arm7")
    q, dq, ddq = (array[::EVERY] for array in path(arm, 10.0, seed=seed))
    load = {} if held is None else {"load": held.inertia, "link": LINK}
    tau = torques(arm, (q, dq, ddq), **load)
    tau = tau + np.random.default_rng([seed, 7]).normal(0.0, 0.1, tau.shape)
    columns = {"t": np.linspace(0.0, 10.0, len(q), endpoint=False)}
    for j, name in enumerate(arm.joint_names):
        columns[f"q.{name}"], columns[f"dq.{name}"] = q[:, j], dq[:, j]
        columns[f"tau.{name}"] = tau[:, j] / (GAINS[j] if gains else 1.0)
    return columns


def write(folder: Path, name: str, held: Bar | None, seed: int, *, gains: bool = False) -> Path:
    """Write a log to a .npz file."""
    file = folder / f"{name}.npz"
    np.savez(file, **table(held, seed, gains=gains))
    return file


def quick() -> th.IdentifySettings:
    """Settings without tuning, which takes most of the time."""
    return th.IdentifySettings(tune=False, cutoff=8.0, armature=False)
