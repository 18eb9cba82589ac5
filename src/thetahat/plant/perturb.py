"""A robot as it was really built: near what its file says, physical, and never quite that."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from thetahat.errors import UsageError
from thetahat.model import parameters
from thetahat.model.robot import Robot


def perturb(robot: Robot, *, spread: float = 0.15, friction: float = 0.3, seed: int = 0) -> Robot:
    """The robot with every body's mass distribution distorted at random, and its friction too.

    J' = T J Tᵀ with T near one, an affine distortion of space: whatever T is, a physical body stays
    physical. Lengths are measured by the body's own radius of gyration, so `spread` is relative:
    0.15 moves masses by about 30 %, and centres of mass by a seventh of the body's size.
    """
    if not (np.isfinite(spread) and 0.0 <= spread < 0.5):
        raise UsageError(
            f"spread is {spread!r}; give a number from 0 to less than 0.5, relative to each body's"
            " size and mass"
        )
    rng = np.random.default_rng(seed)
    J = parameters.to_pseudo_inertia(robot.theta.reshape(-1, 10))
    T = np.broadcast_to(np.eye(4), J.shape).copy()
    noise = spread * np.clip(rng.standard_normal(J.shape), -2.0, 2.0)
    # radius of gyration [m]
    size = np.sqrt(np.trace(J[:, :3, :3], axis1=1, axis2=2) / np.maximum(J[:, 3, 3], 1e-12))
    noise[:, :3, 3] *= size[:, None]
    noise[:, 3, :3] = 0.0
    theta = parameters.from_pseudo_inertia((T + noise) @ J @ np.swapaxes(T + noise, 1, 2))
    drive = robot.drive
    factors = {
        term: np.exp(friction * rng.standard_normal(len(drive.viscous)))
        for term in ("viscous", "coulomb")
    }
    return replace(
        robot,
        theta=theta.ravel(),
        drive=drive.with_values(
            **{term: drive.value(term) * factor for term, factor in factors.items()}
        ),
    )
