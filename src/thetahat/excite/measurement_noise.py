"""Noise of what a log will hold: torques, and accelerations derived from positions.

Positions have white noise of standard deviation σ_q at `rate` samples per second. Differentiated
twice below a low-pass at f_c, its variance is [Bendat2010]

    σ_a² = ∫₀^f_c (2πf)⁴ · 2σ_q²/rate df = (2π)⁴ · 2σ_q²/rate · f_c⁵/5

and a row of the regressor that is off by it predicts a torque that is off by D(q)·a. So joint j's
row counts with the variance σ_j² + Σ_k D_jk(q)² σ_a,k².
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thetahat.dynamics import rigid_body
from thetahat.errors import UsageError, check_positive
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind

TORQUE = 0.01  # of a joint's torque limit, where no noise is given
TURN, SLIDE = 1e-4, 1e-5  # [rad], [m] of positions, where no noise is given
# times the motion's highest frequency: the low-pass that its log is taken to be prepared with
BAND = 10.0


@dataclass(frozen=True, eq=False)
class MeasurementNoise:
    """Standard deviations of what a log holds, and of accelerations derived from it."""

    torque: np.ndarray  # (nv,) [N·m or N]
    acceleration: np.ndarray  # (nv,) [rad/s² or m/s²]

    @staticmethod
    def of_encoders(
        torque: np.ndarray, position: np.ndarray, *, rate: float, cutoff: float
    ) -> MeasurementNoise:
        """Return the noise of positions (nv,) [rad or m] at a rate [Hz], below a low-pass [Hz]."""
        density = 2.0 * np.asarray(position, dtype=float) ** 2 / rate
        return MeasurementNoise(
            np.asarray(torque, dtype=float),
            np.sqrt((2.0 * np.pi) ** 4 * density * cutoff**5 / 5.0),
        )

    def variances(self, robot: Robot, q: np.ndarray) -> np.ndarray:
        """Return the variance of every row of the regressor, (n, nv) [N²·m² or N²]."""
        square = np.broadcast_to(self.torque**2, q.shape)
        if not np.any(self.acceleration):
            return square
        D = rigid_body.mass_matrix(robot, q)
        return np.asarray(square + D**2 @ self.acceleration**2)


def measurement_noise(
    robot: Robot,
    torque_limits: np.ndarray,
    *,
    torque: object = None,
    position: object = None,
    rate: float,
    highest: float,
) -> tuple[MeasurementNoise, tuple[str, ...]]:
    """Return the noise that a design counts with, and what was assumed.

    highest: frequency of the motion [Hz]; its log is taken to be low-passed at BAND times that.
    """
    check_positive("rate", rate, "samples per second of the log to come")
    notes = []
    if torque is not None:
        sigma = _given(robot, "noise", torque, "the torques' standard deviation")
    elif not np.any(stated := np.isfinite(torque_limits)):
        sigma = np.ones(robot.nv)
        notes.append(
            "neither noise nor torque limits are given, so the torques of all joints count alike"
        )
    else:
        sigma = TORQUE * np.where(stated, torque_limits, np.median(torque_limits[stated]))
        notes.append(
            f"noise is not given: each joint's torque counts with {100 * TORQUE:g} % of its limit"
            " as standard deviation"
        )
    if position is not None:
        encoder = _given(robot, "encoder_noise", position, "the positions'", zero=True)
    else:
        turns = [node.kind is JointKind.REVOLUTE for node in robot.tree.independent]
        encoder = np.where(turns, TURN, SLIDE)
        notes.append(
            f"encoder noise is not given: accelerations count as derived from positions with"
            f" {TURN:g} rad of noise below {BAND * highest:.3g} Hz"
        )
    noise = MeasurementNoise.of_encoders(sigma, encoder, rate=rate, cutoff=BAND * highest)
    return noise, tuple(notes)


def _given(robot: Robot, name: str, value: object, what: str, *, zero: bool = False) -> np.ndarray:
    """Standard deviations of all joints."""
    try:
        sigma = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        sigma = np.zeros((0, 0))
    sound = np.all(np.isfinite(sigma) & ((sigma >= 0.0) if zero else (sigma > 0.0)))
    if sigma.shape not in ((), (robot.nv,)) or not sound:
        raise UsageError(
            f"{name} is {value!r}; give {what} standard deviation, one number or {robot.nv},"
            f" finite and {'not below' if zero else 'above'} zero"
        )
    return np.broadcast_to(sigma, (robot.nv,)).copy()
