"""The law of a drive from its logged current or duty cycle: kd beside kp, and torque per reading.

A drive whose current makes its torque τ = kp (command(t − delay) − q − bias) − kd q̇ reads

    reading = a (command(t − delay) − q) − b q̇ + c     b/a = kd/kp,  a = kp / (torque per reading)

friction of the gear has no part in it, so that kd and viscous friction, one column in the motion,
are told apart. Of a duty cycle, b is the drive's own kd, and back-EMF counts as viscous friction.
All signals pass the same low-pass; errors follow from leaving out one block of time after another.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thetahat.identification.actuators.drive_log import DriveLog
from thetahat.identification.actuators.drive_parameters import (
    BACK_EMF,
    BACKLASH,
    DELAY,
    KD,
    KP,
    LIMIT,
    NO_LIMIT,
    VISCOUS,
    DriveParameters,
)

EXPLAINED = 0.8  # R² below which a reading is not this law's
BLOCKS = 20
FEWEST_ROWS = 10  # of a block
LATER = np.arange(-1.0, 1.01, 0.25)  # periods by which a reading may be late to its position
SATURATED = 0.9  # of the largest torque, from which the law may not hold


@dataclass(frozen=True, eq=False)
class EffortLaw:
    """What the readings tell of every drive, (joints,) each; NaN where nothing."""

    kd_per_kp: np.ndarray  # [s]
    kd_per_kp_std: np.ndarray
    gain: np.ndarray  # reading per position error [1/rad or 1/m]
    gain_std: np.ndarray
    r2: np.ndarray

    @property
    def told(self) -> np.ndarray:
        """Return at which joints kd/kp is known."""
        out: np.ndarray = np.isfinite(self.kd_per_kp)
        return out


def effort_law(log: DriveLog, drives: DriveParameters, moving: np.ndarray) -> EffortLaw | None:
    """Return the law of the readings of a log; None where it has none.

    drives: fitted ones, whose delay counts and whose torque limit leaves rows out.
    """
    if log.effort is None:
        return None
    out = np.full((5, log.joints), np.nan)
    for joint in np.flatnonzero(moving):
        out[:, joint] = _of_joint(log, drives, int(joint))
    return EffortLaw(*out)


def with_told_kd(drives: DriveParameters, law: EffortLaw, known: np.ndarray) -> DriveParameters:
    """Return drives whose damping is split into kd and viscous friction as the readings tell.

    known: at which joints kd is given.
    """
    values, free = drives.values.copy(), drives.free.copy()
    told = law.told & ~known & ~free[:, KD] & (values[:, BACKLASH] == 0.0)
    total = values[:, KD] + values[:, VISCOUS]
    kd = np.minimum(law.kd_per_kp * values[:, KP], 0.99 * total)
    values[told, KD] = kd[told]
    values[told, VISCOUS] = (total - kd)[told]
    fallen = told & free[:, BACK_EMF]  # until now what it is above kd
    values[fallen, BACK_EMF] += kd[fallen]
    return DriveParameters(values, free)


def _of_joint(log: DriveLog, drives: DriveParameters, joint: int) -> tuple[float, ...]:
    """Return kd/kp, the gain, each with its standard deviation, and R²."""
    nothing = (np.nan,) * 5
    delay, limit = drives.values[joint, [DELAY, LIMIT]]
    reading = log.smoothed(np.asarray(log.effort)[:, joint], joint)
    q = log.smoothed(log.q[:, joint], joint)
    dq = log.derivatives[0][:, joint]
    best: tuple[float, np.ndarray] | None = None
    for late in LATER * log.period:
        command = log.smoothed(log.delayed_command(joint, max(delay + late, 0.0)), joint)
        X = np.column_stack([command - q, -dq, np.ones(len(q))])
        rows = _unlimited(X, drives.values[joint], limit)
        if rows.sum() < BLOCKS * FEWEST_ROWS:
            return nothing
        x = np.linalg.lstsq(X[rows], reading[rows], rcond=None)[0]
        left = float(np.var(reading[rows] - X[rows] @ x) / max(np.var(reading[rows]), 1e-300))
        if best is None or left < best[0]:
            best, kept = (left, X), rows
    assert best is not None
    X, y = best[1][kept], reading[kept]
    x = np.linalg.lstsq(X, y, rcond=None)[0]
    if best[0] > 1.0 - EXPLAINED or x[0] == 0.0:
        return nothing
    left_out = [_without(X, y, part) for part in np.array_split(np.arange(len(y)), BLOCKS)]
    spread = np.sqrt((BLOCKS - 1) * np.var(np.array(left_out), axis=0))
    ratio = max(float(x[1] / x[0]), 0.0)
    return ratio, float(spread[1]), float(x[0]), float(spread[0]), 1.0 - best[0]


def _unlimited(X: np.ndarray, drive: np.ndarray, limit: float) -> np.ndarray:
    """Return the rows on which the drive's torque is well below its limit."""
    if limit >= NO_LIMIT:
        return np.ones(len(X), dtype=bool)
    torque = drive[KP] * X[:, 0] + drive[KD] * X[:, 1]
    out: np.ndarray = np.abs(torque) < SATURATED * limit
    return out


def _without(X: np.ndarray, y: np.ndarray, part: np.ndarray) -> tuple[float, float]:
    """Return the gain and kd/kp of all rows but these."""
    x = np.linalg.lstsq(np.delete(X, part, axis=0), np.delete(y, part), rcond=None)[0]
    return float(x[0]), float(x[1] / x[0])
