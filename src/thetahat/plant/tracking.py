"""Following a motion: the reference at any time, and the controller a simulation uses unless it is
given another.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from thetahat.control.computed_torque import ComputedTorque
from thetahat.control.controller import Controller, Reference
from thetahat.errors import UsageError, check_positive, known
from thetahat.model.robot import Robot

__all__ = [
    "Controller",
    "Reference",
    "Tracking",
    "check_reference",
    "duration_of",
    "quintic",
    "reference",
]

# [rad/s] of the closed loop: slow against a control rate of 1 kHz, quick against motions of 1 Hz
BANDWIDTH = 50.0
DAMPING = 1.0  # critical


@dataclass(frozen=True, eq=False)
class Tracking:
    """`ComputedTorque` by its bandwidth: τ = D(q)(q̈_d + ω² e + 2ζω ė) + C q̇ + G + friction(q̇_d).

    Every joint closes its loop with the same bandwidth, however heavy it is and whatever it is
    coupled to.
    """

    robot: Robot
    bandwidth: float = BANDWIDTH  # ω [rad/s]
    damping: float = DAMPING  # ζ
    _law: ComputedTorque = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("bandwidth", "damping"):
            check_positive(name, getattr(self, name))
        w = self.bandwidth
        # Of the robot that is believed in, not of the one that is simulated: a wrong belief may be
        # no physical robot.
        object.__setattr__(
            self,
            "_law",
            ComputedTorque(
                self.robot,
                w * w,
                2.0 * self.damping * w,
                friction="wanted-sign",
                limits=False,  # a plant cuts its torques itself
                physical=False,
                max_speed=np.inf,
            ),
        )

    def __call__(self, t: float, q: np.ndarray, dq: np.ndarray, wanted: Reference) -> np.ndarray:
        """The joint torques, (nv,)."""
        return self._law(t, q, dq, wanted)


def check_reference(trajectory: Any, robot: Robot) -> None:
    """Refuse what is no motion of this robot."""
    names = getattr(trajectory, "joint_names", None)
    if names is not None and tuple(names) != robot.joint_names:
        raise UsageError(
            f"the motion is of joints {known(names)}, but robot {robot.name!r} has"
            f" {known(robot.joint_names)}; give a motion of this robot"
        )
    if not (
        callable(getattr(trajectory, "at", None))
        or all(hasattr(trajectory, name) for name in ("t", "q", "dq", "ddq"))
    ):
        raise UsageError(
            f"trajectory is {type(trajectory).__name__}; give a Trajectory (with duration and at),"
            " or a Motion (with t, q, dq, ddq)"
        )


def duration_of(trajectory: Any) -> float:
    """How long a motion lasts [s]."""
    if hasattr(trajectory, "duration"):
        return float(trajectory.duration)
    return float(trajectory.t[-1] - trajectory.t[0])


def reference(trajectory: Any, t: np.ndarray, robot: Robot) -> Reference:
    """(q, dq, ddq) wanted at every time t (n,), from the motion's beginning; a sampled motion is
    interpolated, and stands still at its ends.
    """
    if callable(getattr(trajectory, "at", None)):
        found = tuple(np.ascontiguousarray(x, dtype=float) for x in trajectory.at(t))
    else:
        names = ("t", "q", "dq", "ddq")
        found = quintic(*(np.asarray(getattr(trajectory, n), dtype=float) for n in names), at=t)
    for name, array, width in zip(
        ("q", "dq", "ddq"), found, (robot.nq, robot.nv, robot.nv), strict=True
    ):
        if array.shape != (len(t), width) or not np.all(np.isfinite(array)):
            raise UsageError(
                f"{name} of the motion has shape {array.shape}; expected {(len(t), width)}, all"
                f" finite, for robot {robot.name!r}"
            )
    return found  # type: ignore[return-value]


def quintic(
    t: np.ndarray, q: np.ndarray, dq: np.ndarray, ddq: np.ndarray, *, at: np.ndarray
) -> Reference:
    """Samples joined by polynomials of degree five that meet in position, speed and acceleration;
    `at` counts from the first sample.
    """
    if len(t) < 2 or np.any(np.diff(t) <= 0.0):
        raise UsageError(
            "the motion's times do not increase from sample to sample; give at least two samples in"
            " order"
        )
    begin, end = t[0], t[-1]
    when = np.clip(at + begin, begin, end)
    i = np.clip(np.searchsorted(t, when, side="right") - 1, 0, len(t) - 2)
    h = (t[i + 1] - t[i])[:, None]
    x = (when - t[i])[:, None] / h
    y0, v0, a0, v1, a1 = q[i], h * dq[i], h * h * ddq[i], h * dq[i + 1], h * h * ddq[i + 1]
    # What is left to the end of the interval after the beginning's parabola, as x³ (c₃ + c₄ x + c₅
    # x²).
    y, v, a = q[i + 1] - y0 - v0 - 0.5 * a0, v1 - v0 - a0, a1 - a0
    c3, c4, c5 = 10.0 * y - 4.0 * v + 0.5 * a, -15.0 * y + 7.0 * v - a, 6.0 * y - 3.0 * v + 0.5 * a
    position = y0 + x * (v0 + x * (0.5 * a0 + x * (c3 + x * (c4 + x * c5))))
    speed = (v0 + x * (a0 + x * (3.0 * c3 + x * (4.0 * c4 + x * 5.0 * c5)))) / h
    acceleration = (a0 + x * (6.0 * c3 + x * (12.0 * c4 + x * 20.0 * c5))) / (h * h)
    outside = (at + begin > end) | (at < 0.0)
    speed[outside], acceleration[outside] = 0.0, 0.0
    return position, speed, acceleration
