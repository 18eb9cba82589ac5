"""Backlash of the drives' gears, where it explains the motion better than chance would.

The motion has no useful slope at a backlash of zero, so a grid of widths is simulated; joints whose
error falls begin at their best width and are fitted with all else. A width is kept where the fit
with it is more likely by a threshold, rows that are correlated counted once, and where it is known
to be above zero.
"""

from __future__ import annotations

import numpy as np

from thetahat.identification.actuators.drive_fit import (
    DriveFit,
    SimulationError,
    correlation_rows,
    fit_drives,
    huber_cost,
)
from thetahat.identification.actuators.drive_log import DriveLog
from thetahat.identification.actuators.drive_parameters import (
    BACKLASH,
    KD,
    VISCOUS,
    DriveParameters,
)
from thetahat.identification.actuators.drive_rollout import rows_of
from thetahat.identification.actuators.drive_uncertainty import drive_uncertainty
from thetahat.identification.actuators.term_selection import with_free_kd

WIDTHS = tuple(0.001 * 1.6**k for k in range(8))  # of a joint's span
WORTH = 6.0  # log-likelihood that each joint's backlash must gain
LOOK = 1.0  # log-likelihood by which a width of the grid is worth a fit
SURE = 3.0  # standard deviations that a width is above zero
ROUNDS = 4  # of grid and fit


def with_earned_backlash(
    error: SimulationError, fit: DriveFit, *, kd_known: np.ndarray
) -> DriveFit:
    """Return the fit with backlash at the joints that show it; the same where none does.

    kd_known: (joints,) where kd is given; elsewhere it is fitted beside backlash.
    """
    rows = correlation_rows(error.residual(fit.drives), error.segments)
    trial = _searched(error, fit, kd_known, rows)
    while trial.drives.free[:, BACKLASH].any():
        kept = _known(error, trial)
        if kept.sum() == trial.drives.free[:, BACKLASH].sum():
            gain = _gain(fit, trial, fit.scale) / rows
            return trial if gain > WORTH * kept.sum() else fit
        trial = fit_drives(error, _only(trial.drives, kept))
    return fit


def _searched(error: SimulationError, fit: DriveFit, kd_known: np.ndarray, rows: float) -> DriveFit:
    """Return the fit after grids and fits in turn, as long as a grid finds better widths."""
    for _ in range(ROUNDS):
        start = _from_grid(error, fit, rows)
        if np.array_equal(start.values, fit.drives.values):
            break
        trial = fit_drives(error, with_free_kd(start, kd_known))
        if _gain(fit, trial, fit.scale) < LOOK * rows:
            break
        fit = trial
    return fit


def _gain(before: DriveFit, after: DriveFit, scale: np.ndarray) -> float:
    """Return by how much the cost falls, in units of this scale."""
    return float(np.sum((before.costs - after.costs) / scale**2))


def _from_grid(error: SimulationError, fit: DriveFit, rows: float) -> DriveParameters:
    """Return drives with backlash, free, of the width that simulates each joint best."""
    segments, drives = error.segments, fit.drives
    log: DriveLog = error.rollout.log
    q = log.q[rows_of(segments)]
    widths = np.vstack([drives.values[:, BACKLASH], np.outer(WIDTHS, np.ptp(q, axis=0))])
    sets = np.repeat(drives.values[None], len(widths), axis=0)
    sets[:, :, BACKLASH] = widths
    shown = error.rollout.positions(sets, segments)
    counted = ~error.settling(segments)
    errors = np.clip(np.nan_to_num(shown - q, nan=10.0), -10.0, 10.0)[:, counted]
    costs = np.sum(huber_cost(errors / fit.scale), axis=1) / rows
    best = np.argmin(costs, axis=0)
    moving: np.ndarray = np.asarray(drives.free.any(axis=1))
    asked = moving & (costs[0] - costs.min(axis=0) > LOOK)
    width = np.where(asked, widths[best, np.arange(len(best))], widths[0])
    return drives.with_values(backlash=width).with_free("backlash", width > 0.0)


def _known(error: SimulationError, fit: DriveFit) -> np.ndarray:
    """Return which joints' backlash is above zero beyond doubt."""
    uncertainty = drive_uncertainty(error, fit)
    out = fit.drives.free[:, BACKLASH].copy()
    for joint in np.flatnonzero(out):
        std = uncertainty.std(int(joint), "backlash") or 0.0
        out[joint] = fit.drives.values[joint, BACKLASH] > SURE * std
    return out


def _only(drives: DriveParameters, joints: np.ndarray) -> DriveParameters:
    """Return drives with backlash at these joints alone, kd being a part of damping elsewhere."""
    values, free = drives.values.copy(), drives.free.copy()
    merged = free[:, BACKLASH] & ~joints & free[:, KD]
    values[merged, VISCOUS] += values[merged, KD]
    values[merged, KD], free[merged, KD] = 0.0, False
    values[~joints, BACKLASH], free[:, BACKLASH] = 0.0, joints
    return DriveParameters(values, free)
