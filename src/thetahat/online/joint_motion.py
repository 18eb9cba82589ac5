"""How every joint moved in what is remembered: whether its friction and inertia can be told.

Dry friction and an offset are told apart only by motion both ways; held by static friction a
joint's torque says nothing but that it is inside a band. Such a joint's rows leave the fit, and
with them nothing moves its drive from the nominal robot's.
"""

from __future__ import annotations

import numpy as np

from thetahat.model.robot import Robot

SHARE = 1.0 / 12.0  # of the window: rows that a joint must have each way
FEWEST = 3
CLEARLY = 2.0  # times the least speed of a moving joint, that it must have reached


class JointMotion:
    """Rows of every joint each way, and the fastest, over the last `size` samples or (None) all."""

    def __init__(self, robot: Robot, size: int, min_speed: np.ndarray, *, fading: bool) -> None:
        self._ring = np.zeros((size if fading else 1, robot.nv))
        self._fading, self._count = fading, 0
        self._ways, self._fastest = np.zeros((2, robot.nv)), np.zeros(robot.nv)
        self._least, self._min_speed = max(FEWEST, round(SHARE * size)), min_speed
        coulomb = np.zeros(robot.nv, dtype=bool)
        if robot.drive.actuation is None and "coulomb" in robot.drive.identified:
            coulomb[list(robot.drive.column_motors)] = True
        self._both = coulomb  # joints that must have moved both ways

    def add(self, dq: np.ndarray, valid: np.ndarray) -> None:
        """Take the speeds of a sample, (nv,), and which joints' torques are in the fit."""
        speeds = np.where(valid, dq, 0.0)
        if self._fading:
            self._ring[self._count % len(self._ring)] = speeds
        else:
            self._ways += speeds > 0.0, speeds < 0.0
            self._fastest = np.maximum(self._fastest, np.abs(speeds))
        self._count += 1

    def clear(self) -> None:
        """Forget everything."""
        self._ring[:], self._ways[:], self._fastest[:], self._count = 0.0, 0.0, 0.0, 0

    @property
    def fastest(self) -> np.ndarray:
        """(nv,) speed [rad/s or m/s] of the rows remembered."""
        return np.asarray(np.max(np.abs(self._ring), axis=0) if self._fading else self._fastest)

    @property
    def told(self) -> np.ndarray:
        """(nv,) whether each joint has moved enough for its friction and inertia to be told."""
        if self._fading:
            ways = np.array(
                [
                    np.count_nonzero(self._ring > 0.0, axis=0),
                    np.count_nonzero(self._ring < 0.0, axis=0),
                ]
            )
        else:
            ways = self._ways
        fewest = np.where(self._both, np.min(ways, axis=0), np.sum(ways, axis=0))
        return np.asarray((fewest >= self._least) & (self.fastest >= CLEARLY * self._min_speed))
