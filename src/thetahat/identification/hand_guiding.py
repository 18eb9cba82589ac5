"""Whether an arm that is held by its identified gravity torques stays where it is put.

A joint stays where the error of its holding torque is below the friction that holds it; else it
creeps. The error is that of poses which were not fitted, friction taken out; friction is what the
poses show, that came from either side, or what the robot file states.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thetahat.dynamics import rigid_body
from thetahat.identification.identifiability.base_parameters import random_states
from thetahat.identification.verdict_reason import Fields
from thetahat.model.robot import Robot

Z = 1.96
POSES = 200  # random ones, for the rank
SMALL = 1e-9  # of the largest singular value


@dataclass(frozen=True)
class HandGuiding:
    """The holding torque of one joint."""

    joint: str
    unit: str
    error: float  # RMS at poses that were not fitted
    friction: float | None  # that holds the joint; None: unknown
    friction_std: float  # 0: stated by the robot file
    resolution: float | None  # of the logged torque; None: it is constant

    @property
    def holds(self) -> bool | None:
        """Whether the joint stays where it is put, with the least friction that the poses allow
        (95 %); None: its friction is unknown.
        """
        if self.friction is None:
            return None
        return self.error < self.friction - Z * self.friction_std

    def as_data(self) -> Fields:
        """Return it as plain data."""
        return {
            "joint": self.joint,
            "unit": self.unit,
            "error": self.error,
            "friction": self.friction,
            "friction_std": self.friction_std,
            "resolution": self.resolution,
            "holds": self.holds,
        }


def static_rank(robot: Robot) -> int:
    """Return how many combinations of a robot's columns holding torques can tell: of masses and
    centres of mass, and of friction and offsets where these are identified.
    """
    q = random_states(robot, np.random.default_rng(0), POSES)[0]
    Y = rigid_body.static_regressor(robot, q)
    rows = Y.reshape(-1, Y.shape[-1])
    values = np.linalg.svd(rows, compute_uv=False)
    drive = sum(term in robot.drive.identified for term in ("coulomb", "offset"))
    return int(np.sum(values > SMALL * values[0])) + drive * robot.nv
