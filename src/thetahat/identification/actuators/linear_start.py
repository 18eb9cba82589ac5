"""Start of the drives' fit: the drive's law is linear in what it asks of a motion.

With the links known, rows in motion obey for every joint

    u(t − delay) − q = (Y θ + armature q̈ + damping q̇ + coulomb sgn q̇ + offset) / kp

so 1/kp, armature/kp, damping/kp, coulomb/kp and offset/kp follow from non-negative least squares,
for each delay of a grid; the delay that explains the tracking error best is kept. Noise of the
derivatives biases these numbers, which the simulation error then corrects.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from thetahat.dynamics.rigid_body import inverse_dynamics
from thetahat.identification.actuators.drive_log import DriveLog
from thetahat.model.robot import Robot

DELAYS = np.arange(0.0, 0.0801, 0.005)  # [s]
MOVING = 0.05  # of a joint's fastest speed: rows below are at rest
MOST_ROWS = 30_000
USUAL_KP = 20.0  # [N·m/rad], where neither log nor file tells
SOFTEST, STIFFEST = 0.1, 5e4  # [N·m/rad]
LIGHTEST = 1e-4  # [kg·m²] rotor inertia at least, so that small steps are stable


@dataclass(frozen=True, eq=False)
class LinearStart:
    """Drive parameters of every joint from linear least squares, (joints,) each."""

    kp: np.ndarray
    damping: np.ndarray
    coulomb: np.ndarray
    armature: np.ndarray
    offset: np.ndarray
    delay: np.ndarray


def linear_start(
    robot: Robot, log: DriveLog, *, kp: np.ndarray | None, file_kp: np.ndarray
) -> LinearStart:
    """Return where the fit begins.

    kp: known gains, NaN where they are not. file_kp: gains that the robot's file states, or NaN.
    """
    dq, ddq = log.derivatives
    every = max(1, log.rows // MOST_ROWS)
    rows = slice(None, None, every)
    rigid = inverse_dynamics(robot, log.q[rows], dq[rows], ddq[rows], rigid=True)
    errors = [(_filtered_command(log, delay) - log.q)[rows] for delay in DELAYS]
    out = np.zeros((6, log.joints))
    for j in range(log.joints):
        known = np.nan if kp is None else kp[j]
        moving = np.abs(dq[rows][:, j]) > MOVING * np.abs(dq[:, j]).max()
        columns = _columns(rigid[moving, j], dq[rows][moving, j], ddq[rows][moving, j])
        best = np.inf
        for delay, error in zip(DELAYS, errors, strict=True):
            x, misfit = _solved(columns, error[moving, j], known)
            if misfit < best:
                best = misfit
                out[:, j] = (*_physical(x, known, file_kp[j]), delay)
    return LinearStart(*out)


def _columns(rigid: np.ndarray, dq: np.ndarray, ddq: np.ndarray) -> np.ndarray:
    one = np.ones_like(dq)
    return np.stack([rigid, dq, np.sign(dq), ddq, one, -one], axis=1)


def _solved(columns: np.ndarray, error: np.ndarray, kp: float) -> tuple[np.ndarray, float]:
    """Return 1/kp, damping/kp, coulomb/kp, armature/kp, ±offset/kp and the residual."""
    if len(error) < 20:
        return np.zeros(6), np.inf
    if np.isfinite(kp):
        x, misfit = _nonnegative(columns[:, 1:], error - columns[:, 0] / kp)
        return np.concatenate([[1.0 / kp], x]), misfit
    return _nonnegative(columns, error)


def _nonnegative(A: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, float]:
    size = np.maximum(np.linalg.norm(A, axis=0), 1e-12)
    R: np.ndarray = np.asarray(np.linalg.qr(np.column_stack([A / size, b]), mode="r"))
    x, misfit = nnls(R[:, :-1], R[:, -1])
    return x / size, float(misfit)


def _physical(x: np.ndarray, known: float, from_file: float) -> tuple[float, ...]:
    """Return kp, damping, coulomb, armature, offset."""
    kp = known
    if not np.isfinite(kp):
        kp = 1.0 / x[0] if x[0] > 1.0 / STIFFEST else from_file
    if not np.isfinite(kp):
        kp = USUAL_KP
    kp = max(kp, SOFTEST)
    return (
        kp,
        max(x[1] * kp, 1e-3 * kp),
        max(x[2] * kp, 1e-4 * kp),
        max(x[3] * kp, LIGHTEST),
        (x[4] - x[5]) * kp,
    )


def _filtered_command(log: DriveLog, delay: float) -> np.ndarray:
    """Commands as they were so long ago, behind the low-pass of the derivatives."""
    joints = range(log.joints)
    return np.stack([log.smoothed(log.delayed_command(j, delay), j) for j in joints], axis=1)
