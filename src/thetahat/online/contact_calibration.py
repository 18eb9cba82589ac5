"""Learns from motion without contact what a model leaves, and thresholds for what is more.

The statistic is that of contact_detector.py. Its threshold comes from maxima over blocks of time:
the tail of their squares is taken as exponential, and no threshold is below what the motion itself
reached. As how much a spike counts is chosen by the pushes that are found in the
same motion, of five times the RMS of the observer's torque.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.optimize import nnls

from thetahat.errors import NotIdentifiable
from thetahat.online.contact_detector import (
    BLOCK,
    TICK,
    UNSURE,
    ContactModel,
    Ticks,
    features,
    unpredicted,
)
from thetahat.online.false_alarm_level import tail

MEMORY = 0.1  # [s] of residuals that predict the next
FLOOR = 0.3  # of the residual's RMS: white noise that is always reckoned with
LEAST_BLOCKS = 16
ROUNDS = 8  # of the weights
QUIETEST = 0.05  # of the mean variance: the least share that no motion adds
HOUR = 3600.0  # [s]
MOST = (np.inf, 6.0, 4.0, 3.0)  # standard deviations that a tick may count as
PUSH, PLACES = 5.0, 60  # RMS of the pushes by which it is chosen, and in how many places


def learn_contact(
    runs: Sequence[Ticks], *, rms: np.ndarray, false_alarms: float, unsure: float = UNSURE
) -> ContactModel:
    """Learn from runs without contact.

    Args:
        runs: of ticks.
        rms: (nv,) of the observer's torque in them.
        false_alarms: per hour, of all joints together.
        unsure: standard deviation of a step of the model's dry friction, as a share of it.

    """
    long = [run for run in runs if len(run.residual) > 0]
    period = float(np.mean([run.period for run in long])) if long else TICK
    p, floor = max(1, round(MEMORY / period)), FLOOR * np.maximum(rms, 1e-12)
    long = [run for run in long if len(run.residual) > 2 * p]
    size = max(1, round(BLOCK / period))
    seconds = period * sum(len(run.residual) for run in long)
    if seconds < LEAST_BLOCKS * BLOCK:
        raise NotIdentifiable(
            f"{seconds:.3g} s of motion without contact do not tell thresholds; give"
            f" {LEAST_BLOCKS * BLOCK:.3g} s or more"
        )
    a = _prediction([run.residual for run in long], p, floor)
    usual = np.array(
        [
            np.sqrt(np.mean(np.concatenate(each) ** 2, axis=0)) + 1e-9
            for each in ([run.speed for run in long], [run.acceleration for run in long])
        ]
    )
    w = np.concatenate([unpredicted(run.residual, a) for run in long])
    F = np.concatenate(
        [features(run.speed / usual[0], run.acceleration / usual[1])[p:] for run in long]
    )
    always = floor**2 * (1.0 + np.sum(a**2, axis=0))
    scale = np.stack(
        [_variance(F[:, j], w[:, j] ** 2 + always[j]) for j in range(w.shape[1])], axis=1
    )
    nv = w.shape[1]
    chance, best = false_alarms * size * period / HOUR / nv, np.full(nv, -1.0)
    chosen = ContactModel(period, a, scale, usual, np.ones(nv), np.full(nv, np.inf), unsure)
    for most in MOST:
        model = replace(chosen, most=np.full(nv, most))
        maxima = np.concatenate([block_maxima(model.statistics(run), size) for run in long])
        model = replace(model, threshold=tail(maxima, chance))
        share = _found(model, long, PUSH * rms)
        better = share > best
        best = np.where(better, share, best)
        chosen = replace(
            chosen,
            threshold=np.where(better, model.threshold, chosen.threshold),
            most=np.where(better, most, chosen.most),
        )
    return chosen


def _found(model: ContactModel, runs: Sequence[Ticks], size: np.ndarray) -> np.ndarray:
    """The share of pushes (nv,) of a size that are found on each joint."""
    before, hits = model.order + model.reach, []
    ends = np.cumsum([max(len(run.residual) - before - model.reach, 0) for run in runs])
    for place in np.linspace(0, max(ends[-1] - 1, 0), PLACES).astype(int):
        run = runs[int(np.searchsorted(ends, place, side="right"))]
        begin = len(run.residual) - before - model.reach - (ends[ends > place][0] - place)
        rows = slice(begin, begin + before + model.reach)
        for sign in (-1.0, 1.0):
            residual = run.residual[rows].copy()
            residual[before:] += sign * size
            columns = residual, run.speed[rows], run.acceleration[rows], run.dry[rows]
            seen = model.statistics(Ticks(*columns, run.period))[model.reach :]
            hits.append(np.any(seen > model.threshold, axis=0))
    return np.asarray(np.mean(hits, axis=0))


def _prediction(runs: Sequence[np.ndarray], p: int, floor: np.ndarray) -> np.ndarray:
    """Coefficients (p, nv) by least squares, as of residuals with white noise added."""
    nv, out = runs[0].shape[1], []
    for j in range(nv):
        A = np.concatenate(
            [np.stack([e[p - 1 - i : len(e) - 1 - i, j] for i in range(p)], axis=1) for e in runs]
        )
        b = np.concatenate([e[p:, j] for e in runs])
        normal = A.T @ A + floor[j] ** 2 * len(A) * np.eye(p)
        out.append(np.linalg.solve(normal, A.T @ b))
    return np.stack(out, axis=1)


def _variance(F: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """Shares (features,) of the variance, by weights that follow from it."""
    mean = float(np.mean(squares))
    spread, shares = np.full(len(squares), mean), np.zeros(F.shape[1])
    for _ in range(ROUNDS):
        shares, _ = nnls(F / spread[:, None], squares / spread)
        shares[0] = max(shares[0], QUIETEST * mean)
        spread = F @ shares
    return shares


def block_maxima(values: np.ndarray, size: int) -> np.ndarray:
    """Return maxima over whole blocks of rows, (blocks, nv)."""
    count = len(values) // size
    return np.asarray(values[: count * size].reshape(count, size, values.shape[1]).max(axis=1))
