"""Terms of the drives that must earn their place: torque limit and how it falls with speed,
Stribeck, load-dependent and quadratic friction, dead zone of the loop.

A term is added to a joint where the Gauss–Newton step that includes it is predicted to improve the
log-likelihood by more than a threshold (a score test), rows that are correlated counted once. A
torque limit has no slope where it is not reached, so a grid of limits is simulated instead.
"""

from __future__ import annotations

import numpy as np

from thetahat.identification.actuators.drive_fit import (
    SimulationError,
    correlation_rows,
    huber_cost,
    robust_scale,
)
from thetahat.identification.actuators.drive_log import Segment
from thetahat.identification.actuators.drive_parameters import (
    BACK_EMF,
    BACKLASH,
    DEADBAND,
    KD,
    KP,
    LIMIT,
    LOAD,
    NAMES,
    NO_LIMIT,
    PER_KP,
    QUADRATIC,
    STEPS,
    STRIBECK,
    VISCOUS,
    DriveParameters,
)
from thetahat.identification.actuators.drive_rollout import rows_of

WORTH = 6.0  # log-likelihood that a term must be predicted to gain
CANDIDATES = (STRIBECK, LOAD, QUADRATIC, DEADBAND)
LIMITS = (0.9, 0.75, 0.6, 0.5, 0.4, 0.3)  # of the largest torque that the simulation asked for
FALLS = (0.0, 0.2, 0.5, 0.8)  # of the limit, lost at the fastest motion of the log


def with_earned_terms(error: SimulationError, drives: DriveParameters) -> DriveParameters:
    """Return drives with the terms that earn their place, free, at small values."""
    residual = error.residual(drives)
    scale = robust_scale(residual)
    rows = correlation_rows(residual, error.segments)
    moving: np.ndarray = np.asarray(drives.free.any(axis=1))
    drives = _with_limits(error, drives, scale=scale, rows=rows, moving=moving)
    trial = drives
    for parameter in CANDIDATES:
        trial = trial.with_free(NAMES[parameter], moving)
    trial = _at_small_values(trial)
    equations = error.normal_equations(trial, scale, block_rows=10**9)
    H = equations.H / rows + np.diag(1.0 / trial.prior**2)
    g = equations.gradient / rows
    chosen = np.zeros(drives.free.shape, dtype=bool)
    for joint in np.flatnonzero(moving):
        best = _best(trial, H, g, int(joint))
        if best is not None:
            chosen[joint, best] = True
    out = drives
    for parameter in CANDIDATES:
        out = out.with_free(NAMES[parameter], chosen[:, parameter])
    return _at_small_values(out)


def with_free_kd(drives: DriveParameters, known: np.ndarray) -> DriveParameters:
    """Return drives whose kd is fitted beside viscous friction where both are told apart: where the
    torque is limited, which holds kd's torque and not friction's, and where a gear has backlash,
    which friction's motor crosses and kd's encoder does not. known: at which joints kd is given.

    A limit that falls with speed hides them again: kd + viscous and back_emf + viscous are all that
    shows, so that kd stays zero there, and back_emf is what it is above kd.
    """
    values, free = drives.values.copy(), drives.free.copy()
    split = (free[:, LIMIT] & ~free[:, BACK_EMF]) | free[:, BACKLASH]
    split &= ~known & ~free[:, KD]
    half = 0.5 * values[split, VISCOUS]
    values[split, VISCOUS], values[split, KD] = half, half
    free[:, KD] |= split
    return DriveParameters(values, free)


def _best(trial: DriveParameters, H: np.ndarray, g: np.ndarray, joint: int) -> int | None:
    """Return the term of a joint that gains most, if any gains enough."""
    entries = trial.entries
    mine = np.flatnonzero(entries[:, 0] == joint)
    base = [at for at in mine if entries[at, 1] not in CANDIDATES]
    best, gain = None, WORTH
    for at in mine:
        if entries[at, 1] not in CANDIDATES:
            continue
        cross = np.linalg.solve(H[np.ix_(base, base)], H[base, at])
        slope = g[at] - cross @ g[base]
        curvature = H[at, at] - cross @ H[base, at]
        if slope < 0.0 and 0.5 * slope**2 / curvature > gain:
            best, gain = int(entries[at, 1]), 0.5 * slope**2 / curvature
    return best


def _at_small_values(drives: DriveParameters) -> DriveParameters:
    """Candidates that are free and zero begin at one step."""
    values = drives.values.copy()
    for j, k in drives.entries:
        if k in CANDIDATES and values[j, k] == 0.0:
            values[j, k] = STEPS[int(k)] * (values[j, KP] if k in PER_KP else 1.0)
    return DriveParameters(values, drives.free)


def _with_limits(
    error: SimulationError,
    drives: DriveParameters,
    *,
    scale: np.ndarray,
    rows: float,
    moving: np.ndarray,
) -> DriveParameters:
    """Return drives with a torque limit, free, at joints whose motion asks for one, and with its
    fall with speed where the motion asks for that, too.
    """
    segments: list[Segment] = error.segments
    log, rollout = error.rollout.log, error.rollout
    at = rows_of(segments)
    q = rollout.positions(drives.values[None], segments)[0]
    largest = drives.values[:, KP] * np.abs(log.command[at] - q).max(axis=0)
    fastest = np.maximum(np.abs(log.derivatives[0][at]).max(axis=0), 1e-6)
    grid = [(part, fall) for fall in FALLS for part in LIMITS]
    tried = [(part * largest + 1e-6, fall * part * largest / fastest) for part, fall in grid]
    sets = [drives.with_values(limit=limit, back_emf=lost).values for limit, lost in tried]
    errors = rollout.positions(np.array([drives.values, *sets]), segments) - log.q[at]
    costs = np.sum(huber_cost(np.nan_to_num(errors, nan=1e3) / scale), axis=1) / rows
    flat = 1 + len(LIMITS)  # of the sets whose limit does not fall, the one without limit first
    asked = moving & (costs[0] - costs.min(axis=0) > WORTH)
    falls = asked & (costs[:flat].min(axis=0) - costs.min(axis=0) > WORTH)
    best = np.where(falls, np.argmin(costs, axis=0), np.argmin(costs[:flat], axis=0))
    asked &= best > 0
    none = np.full(len(best), NO_LIMIT), np.zeros(len(best))
    limits, lost = (np.array(each) for each in zip(none, *tried, strict=True))
    joints = np.arange(len(best))
    limit = np.where(asked, limits[best, joints], drives.values[:, LIMIT])
    out = drives.with_values(limit=limit, back_emf=np.where(falls, lost[best, joints], 0.0))
    return out.with_free("limit", asked).with_free("back_emf", falls)
