"""Cross-validation inside the rows that are fitted, over blocks of time.

Each block is predicted by a fit to all the others; a choice (a friction law, a low-pass, the weight
of a prior) is judged by the log-likelihood of those predictions, per joint, each block k with a
noise of its own:

    gain_j = Σ_k n_jk·log(rms_before / rms_after)        n_jk independent rows, two per cycle of the
    low-pass

A block in which something happens that no model explains, a contact, thus counts for no more than
its length. Rows at standstill, where dry friction may hold any torque within its limits, are scored
apart from those in motion, and count for a fifth. Blocks are folded once per candidate; every fit
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
from thetahat.identification.estimators.consistent import Consistent
from thetahat.identification.estimators.estimator import guess
from thetahat.identification.information import Information, information
from thetahat.model.robot import Robot

FOLDS = 5
ROWS_PER_CYCLE = 6.0  # of the low-pass: more hold nothing new
LEAST_ROWS = 8  # of a time block
# of what a row in motion counts: the torque of a joint that stands is one number for as long as it
# stands
STILL = 0.2
EXACT = 1e-4  # of the RMS torque: better predictions gain nothing
# of the prior by default: the same in every frame, keeps bodies from being flat
METRIC = "entropic"
WEIGHT = 10.0  # of the prior while friction and low-pass are chosen
IMPROVES = "improves cross-validated log-likelihood"


@dataclass(frozen=True)
class Threshold:
    """How much a candidate must improve the log-likelihood before it replaces a simpler one."""

    gain: float  # at least [nats], and at least its standard error between blocks
    loss: float  # largest share of the gain that may be lost in blocks where it is worse


LAW = Threshold(gain=10.0, loss=0.25)  # another friction law, low-pass or delay
TERM = Threshold(gain=20.0, loss=0.05)  # one more friction term


@dataclass(frozen=True, eq=False)
class Predictions:
    """Squared errors of held-out torques: rows in motion, then at standstill, block by block."""

    squares: np.ndarray  # (parts, nv), two parts a block
    rows: np.ndarray  # (parts, nv)
    independent: np.ndarray  # (parts, nv) rows that count as independent
    floor: np.ndarray  # (nv,) [N·m or N] errors below which nothing is gained

    @property
    def rms(self) -> np.ndarray:
        """(nv,) [N·m or N] over all rows; NaN where a joint has none."""
        with np.errstate(invalid="ignore", divide="ignore"):
            rms: np.ndarray = np.sqrt(self.squares.sum(axis=0) / self.rows.sum(axis=0))
        return rms

    def _mean(self) -> np.ndarray:
        mean: np.ndarray = np.maximum(self.squares / np.maximum(self.rows, 1), self.floor**2)
        return mean

    def _gains(self, before: Predictions, joints: list[int] | None) -> np.ndarray:
        """Gain in log-likelihood, block by block, summed over these joints or all, (folds,)."""
        seen = (self.rows >= LEAST_ROWS) & (before.rows >= LEAST_ROWS)
        parts = np.where(
            seen, before.independent * 0.5 * np.log(before._mean() / self._mean()), 0.0
        )
        blocks = parts[0::2] + parts[1::2]
        total: np.ndarray = np.sum(blocks if joints is None else blocks[:, joints], axis=1)
        return total

    def gain(self, before: Predictions, joints: list[int] | None = None) -> tuple[float, float]:
        """Return the gain in log-likelihood, and its standard error between blocks."""
        each = self._gains(before, joints)
        return float(np.sum(each)), float(np.std(each, ddof=1) * np.sqrt(len(each)))

    def lost(self, before: Predictions, joints: list[int] | None = None) -> float:
        """Return the log-likelihood lost in the blocks that are predicted worse than before."""
        each = self._gains(before, joints)
        return -float(np.sum(each[each < 0.0]))

    def improves(
        self, before: Predictions, threshold: Threshold, joints: list[int] | None = None
    ) -> bool:
        """Whether these joints, or all, gain by more than chance, and nowhere lose much."""
        (gain, error), lost = self.gain(before, joints), self.lost(before, joints)
        return gain > max(threshold.gain, error) and lost <= threshold.loss * (gain + lost)

    def relative_square(self, before: Predictions) -> float:
        """Return the mean square error relative to before, by independent rows."""
        seen = (self.rows >= LEAST_ROWS) & (before.rows >= LEAST_ROWS)
        weight = np.where(seen, before.independent, 0.0)
        return float(
            np.sum(weight * self._mean() / before._mean()) / max(float(np.sum(weight)), 1e-300)
        )


@dataclass(frozen=True, eq=False)
class Fold:
    """A time block: the information of all others, and of its own rows."""

    others: Information
    moving: Information
    still: Information


@dataclass(frozen=True, eq=False)
class Folds:
    """The time blocks of a log."""

    parts: tuple[Fold, ...]
    share: float  # of the rows, that are independent

    def predict(self, solve: Callable[[Information], np.ndarray]) -> Predictions:
        """Predict every block from the others by this fit, which returns x_base."""
        squares, rows, independent = [], [], []
        for fold in self.parts:
            x = solve(fold.others)
            for held, worth in ((fold.moving, 1.0), (fold.still, STILL)):
                squares.append(held.residual_norms(x) ** 2)
                rows.append(held.rows)
                independent.append(worth * self.share * held.rows)
        torque = np.sqrt(np.sum([fold.moving.torque_norms() ** 2 for fold in self.parts], axis=0))
        count = np.sqrt(np.maximum(np.sum([fold.moving.rows for fold in self.parts], axis=0), 1))
        return Predictions(
            np.array(squares),
            np.array(rows),
            np.array(independent),
            EXACT * np.where(torque > 0.0, torque / count, 1.0),
        )


@dataclass(frozen=True, eq=False)
class CrossValidation:
    """Predictions by physically consistent fits with one prior and one weighting of joints."""

    prior: np.ndarray | Robot | None
    weights: str | None  # of the joints' rows, as `Consistent` takes them

    def predict(self, robot: Robot, samples: Samples) -> Predictions:
        """Predict held-out blocks with this robot's columns, and a prior of medium weight."""
        weights = self.weights and "joint"
        return folds(robot, samples).predict(
            lambda information: self._solve(information, Consistent(None, WEIGHT, METRIC, weights))
        )

    def predict_with(self, parts: Folds, weight: float, metric: str) -> Predictions:
        """Predict these blocks with a prior of this weight."""
        return parts.predict(
            lambda information: self._solve(
                information, Consistent(None, weight, metric, self.weights)
            )
        )

    def _solve(self, information: Information, estimator: Consistent) -> np.ndarray:
        """x_base; the prior's value of terms that it does not have is zero."""
        prior = self.prior
        if isinstance(prior, np.ndarray):
            x0 = np.zeros(information.base.columns)
            x0[: min(len(prior), len(x0))] = prior[: len(x0)]
            prior = guess(information, x0)
        estimate = replace(estimator, prior=prior).estimate(information)
        x_base: np.ndarray = information.base.map @ estimate.x
        return x_base


def folds(robot: Robot, samples: Samples, count: int = FOLDS) -> Folds:
    """Cut samples into blocks of time; rows whose low-pass reaches over a cut are not scored."""
    samples = thinned(with_friction_direction(samples, robot))
    edges = block_edges(samples, count)
    if np.any(np.diff(edges) < LEAST_ROWS):
        raise NotIdentifiable(
            f"{len(samples)} rows are too few to choose from; record longer, or state the cut-off,"
            " the friction and the prior"
        )
    blocks = [samples.subset(slice(a, b)) for a, b in itertools.pairwise(edges)]
    fitted = [information(robot, block) for block in blocks]
    parts = []
    for k, block in enumerate(blocks):
        others = functools.reduce(operator.add, [info for i, info in enumerate(fitted) if i != k])
        moving, still = _to_score(block)
        parts.append(Fold(others, information(robot, moving), information(robot, still)))
    period = period_of(samples)
    return Folds(
        tuple(parts), min(1.0, 2.0 * samples.cutoff * period) if samples.cutoff and period else 1.0
    )


def block_edges(samples: Samples, count: int) -> np.ndarray:
    """Return the first rows of the blocks, and the end.

    Blocks are alike in length, but cuts within half a block of the end of a run are made there:
    runs are motions of their own, and a block that held the end of one would be predicted by a fit
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
    """Return the time between rows [s]: the one all runs share, or the median."""
    if samples.period is not None or samples.t is None or len(samples) < 2:
        return samples.period
    return float(np.median(np.diff(samples.t)))


def thinned(samples: Samples) -> Samples:
    """Return as few rows as hold all that the low-pass let through."""
    cutoff = max(
        samples.cutoff or 0.0,
        samples.provenance.get("settings", {}).get("torque_cutoff") or 0.0,
    )
    period = period_of(samples)
    if not cutoff or not period:
        return samples
    step = max(1, int(1.0 / (ROWS_PER_CYCLE * cutoff * period)))
    return (
        samples
        if step == 1
        else replace(samples.subset(slice(None, None, step)), period=step * period)
    )


def _to_score(part: Samples) -> tuple[Samples, Samples]:
    """(rows in motion, rows at standstill) whose low-pass does not reach over a cut."""
    period = period_of(part)
    rows = round(1.0 / (part.cutoff * period)) if part.cutoff and period else 0
    part = part.subset(slice(rows, len(part) - rows)) if len(part) > 2 * rows + LEAST_ROWS else part
    reason = np.zeros(part.tau.shape, dtype=np.uint8) if part.reason is None else part.reason
    still = np.where(
        reason == STANDSTILL, USABLE, np.where(reason == USABLE, STANDSTILL, reason)
    ).astype(np.uint8)
    return part, replace(part, reason=still)
