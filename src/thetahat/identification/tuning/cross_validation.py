"""Cross-validation inside the rows that are fitted: what predicts stretches it has not seen, of the
same log.

The rows are cut into stretches of time. Each is predicted by a fit to all the others; what a choice
(a law of friction, a low-pass, the strength of a prior) is worth is the likelihood of those
predictions, per joint, each stretch k with a noise of its own:

    gain_j = Σ_k n_jk·log(rms_before / rms_after)        [nats], n_jk independent rows, two per
    cycle of the low-pass

A stretch in which something happens that no model explains, a contact, thus counts for no more than
its length. Rows at standstill, where dry friction may hold any torque within its limits, are scored
apart from those in motion, and count for a fifth. Stretches are folded once per choice; every fit
and score then follows from their factors (`Information`).
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from thetahat.data.friction_direction import with_friction_direction
from thetahat.data.samples import STANDSTILL, USABLE, Samples
from thetahat.errors import NotIdentifiable
from thetahat.identification.information import Information, information
from thetahat.model.robot import Robot

FOLDS = 5
ROWS_PER_CYCLE = 6.0  # of the low-pass: more hold nothing new
LEAST_ROWS = 8  # of a stretch
# of what a row in motion counts: the torque of a joint that stands is one number for as long as it
# stands
STILL = 0.2
EXACT = 1e-4  # of the RMS torque: better predictions gain nothing

Solve = Callable[[Information], np.ndarray]  # → x_base


@dataclass(frozen=True, eq=False)
class Predictions:
    """Squares of what is left of each stretch's torques, predicted by a fit to the others: rows in
    motion, then those at standstill.
    """

    squares: np.ndarray  # (parts, nv), two parts a stretch
    rows: np.ndarray  # (parts, nv)
    independent: np.ndarray  # (parts, nv) rows that count as independent
    floor: np.ndarray  # (nv,) [N·m or N] errors below which nothing is gained

    @property
    def rms(self) -> np.ndarray:
        """(nv,) [N·m or N] over all rows; NaN where a joint has none."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.sqrt(self.squares.sum(axis=0) / self.rows.sum(axis=0))

    def _mean(self) -> np.ndarray:
        return np.maximum(self.squares / np.maximum(self.rows, 1), self.floor**2)

    def gains(self, before: Predictions) -> np.ndarray:
        """(folds, nv) [nats] by which these are more likely than those before, stretch by
        stretch.
        """
        seen = (self.rows >= LEAST_ROWS) & (before.rows >= LEAST_ROWS)
        parts = np.where(
            seen, before.independent * 0.5 * np.log(before._mean() / self._mean()), 0.0
        )
        return parts[0::2] + parts[1::2]

    def gain(self, before: Predictions, joints: list[int] | None = None) -> tuple[float, float]:
        """(gain of these joints, or all, [nats]; its standard error, from how much it differs
        between stretches).
        """
        each = np.sum(
            self.gains(before) if joints is None else self.gains(before)[:, joints], axis=1
        )
        return float(np.sum(each)), float(np.std(each, ddof=1) * np.sqrt(len(each)))

    def squared(self, before: Predictions) -> float:
        """What is left, in mean squares relative to what was left before, over all joints and
        stretches alike by their independent rows.
        """
        seen = (self.rows >= LEAST_ROWS) & (before.rows >= LEAST_ROWS)
        weight = np.where(seen, before.independent, 0.0)
        return float(
            np.sum(weight * self._mean() / before._mean()) / max(float(np.sum(weight)), 1e-300)
        )

    def lost(self, before: Predictions, joints: list[int] | None = None) -> float:
        """[nats] lost in the stretches that are predicted worse than before."""
        each = np.sum(
            self.gains(before) if joints is None else self.gains(before)[:, joints], axis=1
        )
        return -float(np.sum(each[each < 0.0]))


@dataclass(frozen=True, eq=False)
class Folds:
    """For every stretch: the information of all others, and of its own rows in motion and at
    standstill.
    """

    parts: tuple[tuple[Information, Information, Information], ...]
    share: float  # of the rows, that are independent

    def predicted(self, solve: Solve) -> Predictions:
        """Every stretch predicted from the others by this fit."""
        squares, rows, independent = [], [], []
        for fitted, moving, still in self.parts:
            x = solve(fitted)
            for held, worth in ((moving, 1.0), (still, STILL)):
                squares.append(held.residual_norms(x) ** 2)
                rows.append(held.rows)
                independent.append(worth * self.share * held.rows)
        torque = np.sqrt(sum(moving.torque_norms() ** 2 for _, moving, _ in self.parts))
        count = np.sqrt(np.maximum(sum(moving.rows for _, moving, _ in self.parts), 1))
        return Predictions(
            np.array(squares),
            np.array(rows),
            np.array(independent),
            EXACT * np.where(torque > 0.0, torque / count, 1.0),
        )


def folds(robot: Robot, samples: Samples, count: int = FOLDS) -> Folds:
    """Cut into so many stretches of time; rows whose low-pass reaches over a cut are not scored."""
    samples = thinned(with_friction_direction(samples, robot))
    edges = _edges(samples, count)
    if np.any(np.diff(edges) < LEAST_ROWS):
        raise NotIdentifiable(
            f"{len(samples)} rows are too few to choose from; record longer, or state the cut-off,"
            " the friction and the prior"
        )
    cut = [samples.subset(slice(a, b)) for a, b in itertools.pairwise(edges)]
    fitted = [information(robot, part) for part in cut]
    parts = []
    for k, part in enumerate(cut):
        others = [info for i, info in enumerate(fitted) if i != k]
        parts.append(
            (
                functools.reduce(operator.add, others),
                *(information(robot, rows) for rows in _to_score(part)),
            )
        )
    period = period_of(samples)
    return Folds(
        tuple(parts), min(1.0, 2.0 * samples.cutoff * period) if samples.cutoff and period else 1.0
    )


def _edges(samples: Samples, count: int) -> np.ndarray:
    """First rows of the stretches, and the end: alike in length, but for cuts within half a stretch
    of the end of a run, which are made there.

    Runs are motions of their own. A stretch that held the end of one would be predicted by a fit
    that has seen the rest of it.
    """
    edges, size = np.linspace(0, len(samples), count + 1).astype(int), len(samples) // count
    ends = (
        np.empty(0, dtype=int) if samples.run is None else np.flatnonzero(np.diff(samples.run)) + 1
    )
    if not len(ends):
        return edges
    cuts = [0]
    for edge in edges[1:-1]:
        end = int(ends[np.argmin(np.abs(ends - edge))])
        cut = end if 2 * abs(end - edge) <= size else int(edge)
        if min(cut - cuts[-1], len(samples) - cut) >= size // 4:  # two cuts that meet are one
            cuts.append(cut)
    return np.array([*cuts, len(samples)])


def period_of(samples: Samples) -> float | None:
    """[s] between rows: the one all runs share, or the usual one."""
    if samples.period is not None or samples.t is None or len(samples) < 2:
        return samples.period
    return float(np.median(np.diff(samples.t)))


def thinned(samples: Samples) -> Samples:
    """As few rows as hold all that the low-pass let through."""
    cutoff, period = (
        max(
            samples.cutoff or 0.0,
            samples.provenance.get("settings", {}).get("torque_cutoff") or 0.0,
        ),
        period_of(samples),
    )
    if not cutoff or not period:
        return samples
    step = max(1, int(1.0 / (ROWS_PER_CYCLE * cutoff * period)))
    return (
        samples
        if step == 1
        else replace(samples.subset(slice(None, None, step)), period=step * period)
    )


def _to_score(part: Samples) -> tuple[Samples, Samples]:
    """(rows in motion, rows at standstill), but for those beside the cuts, which the low-pass
    reaches over.
    """
    period = period_of(part)
    rows = round(1.0 / (part.cutoff * period)) if part.cutoff and period else 0
    part = part.subset(slice(rows, len(part) - rows)) if len(part) > 2 * rows + LEAST_ROWS else part
    reason = np.zeros(part.tau.shape, dtype=np.uint8) if part.reason is None else part.reason
    still = np.where(
        reason == STANDSTILL, USABLE, np.where(reason == USABLE, STANDSTILL, reason)
    ).astype(np.uint8)
    return part, replace(part, reason=still)
