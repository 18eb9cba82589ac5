"""Cross-validation inside the rows that are fitted, over blocks of time cut in several ways.

Each block is predicted by a fit to all the others; a choice (a friction law, a low-pass, a delay)
is judged by the log-likelihood of those predictions, per joint, each block k with a noise of its
own:

    gain_j = Σ_k n_jk·log(rms_before / rms_after)
             n_jk independent rows, as the noise model counts them (log_statistics.py)

A block in which something happens that no model explains, a contact, thus counts for no more than
its length. Rows at standstill, where dry friction may hold any torque within its limits, are scored
apart from those in motion, and count for a fifth. The log is cut in `CUTS` ways; what counts is the
mean over them, and a choice must improve the predictions in each. Products of rows are summed once
per candidate, over pieces of time that all ways of cutting share; every fit and score follows from
these (gaussian_fit.py).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from thetahat.data.friction_direction import with_friction_direction
from thetahat.data.samples import STANDSTILL, USABLE, Samples
from thetahat.errors import NotIdentifiable
from thetahat.identification.estimators.estimator import guess
from thetahat.identification.fold_plan import fold_plan
from thetahat.identification.information import Information
from thetahat.identification.log_statistics import LogStatistics, log_statistics, time_between_rows
from thetahat.identification.time_blocks import RowPlan, base_rows, block_of, row_counts, row_plan
from thetahat.identification.tuning.gaussian_fit import (
    GaussianModel,
    Grams,
    GramStack,
    with_torque,
)
from thetahat.model.robot import Robot

FOLDS = 5
CUTS = 3  # ways of cutting the log: each begins its blocks a third of a block later
PIECES = FOLDS * CUTS  # of time, which all ways of cutting share
ROWS_PER_CYCLE = 6.0  # of the low-pass: more hold nothing new
LEAST_ROWS = 8  # of a time block
AT_ONCE = 2_000_000  # numbers of the regressor that are kept in memory
# of what a row in motion counts: the torque of a joint that stands is one number for as long as it
# stands
STILL = 0.2
EXACT = 1e-4  # of the RMS torque: better predictions gain nothing
# of the prior by default: mass, centre and inertia about it, each relative to the body's own
METRIC = "moments"
# of the prior while friction, low-pass and rotors are chosen: robot files are wrong by a third
WEIGHT = 10.0
IMPROVES = "improves cross-validated log-likelihood"


@dataclass(frozen=True)
class Threshold:
    """How much a candidate must improve the log-likelihood before it replaces a simpler one."""

    gain: float  # at least [nats], and at least its standard error between blocks
    loss: float  # largest share of the gain that may be lost in blocks where it is worse


# In nats of independent rows. Another law has as many parameters as the one that it replaces, and
# only must be better; one more term must have very strong evidence, ten on the scale of the
# Bayesian information criterion [Kass1995].
LAW = Threshold(gain=0.5, loss=0.25)  # another friction law, low-pass or delay
TERM = Threshold(gain=5.0, loss=0.10)  # one more friction term


@dataclass(frozen=True, eq=False)
class Predictions:
    """Squared errors of held-out torques: rows in motion, then at standstill, block by block."""

    squares: np.ndarray  # (parts, nv), two parts a block
    rows: np.ndarray  # (parts, nv)
    independent: np.ndarray  # (parts, nv) rows that count as independent
    floor: np.ndarray  # (nv,) [N·m or N] errors below which nothing is gained

    def part(self, rows: slice) -> Predictions:
        """Return those of some blocks."""
        return replace(
            self,
            squares=self.squares[rows],
            rows=self.rows[rows],
            independent=self.independent[rows],
        )

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
class Scores:
    """Predictions of held-out torques over every way of cutting the log."""

    cuts: tuple[Predictions, ...]

    @property
    def rms(self) -> np.ndarray:
        """(nv,) [N·m or N] mean over the ways of cutting."""
        return np.asarray(np.mean([each.rms for each in self.cuts], axis=0))

    def gain(self, before: Scores, joints: list[int] | None = None) -> tuple[float, float]:
        """Return the mean gain in log-likelihood, and its mean standard error between blocks."""
        pairs = [
            mine.gain(theirs, joints) for mine, theirs in zip(self.cuts, before.cuts, strict=True)
        ]
        gain, error = np.mean(pairs, axis=0)
        return float(gain), float(error)

    def improves(
        self, before: Scores, threshold: Threshold, joints: list[int] | None = None
    ) -> bool:
        """Whether these joints, or all, gain by more than chance, nowhere lose much, and gain
        whichever way the log is cut.
        """
        pairs = list(zip(self.cuts, before.cuts, strict=True))
        gain, error = self.gain(before, joints)
        lost = float(np.mean([mine.lost(theirs, joints) for mine, theirs in pairs]))
        return (
            gain > max(threshold.gain, error)
            and lost <= threshold.loss * (gain + lost)
            and all(mine.gain(theirs, joints)[0] > 0.0 for mine, theirs in pairs)
        )

    def relative_square(self, before: Scores) -> float:
        """Return the mean square error relative to before, by independent rows."""
        pairs = zip(self.cuts, before.cuts, strict=True)
        return float(np.mean([mine.relative_square(theirs) for mine, theirs in pairs]))


@dataclass(frozen=True, eq=False)
class Blocks:
    """Blocks of time, each some pieces of the log."""

    pieces: tuple[tuple[int, ...], ...]
    count: int  # pieces of the log

    @functools.cached_property
    def used(self) -> np.ndarray:
        """Which pieces belong to each, (blocks, pieces), 1.0 or 0.0."""
        out = np.zeros((len(self.pieces), self.count))
        for k, block in enumerate(self.pieces):
            out[k, list(block)] = 1.0
        return out

    @functools.cached_property
    def ends(self) -> np.ndarray:
        """(block, piece, 0 at its beginning or 1 at its end) wherever a block is cut from rows that
        are fitted to predict it, (ends, 3).
        """
        out = [
            (b, k, side)
            for b, block in enumerate(self.pieces)
            for k in block
            for side, beside in ((0, k - 1), (1, k + 1))
            if 0 <= beside < self.count and beside not in block
        ]
        return np.array(out, dtype=int).reshape(-1, 3)


@dataclass(frozen=True, eq=False)
class EndRows:
    """Rows within the low-pass's reach of the beginning and the end of each piece of time.

    They hold some of what the low-pass took from the next piece, and are not scored where a cut is
    made there.
    """

    rows: tuple[np.ndarray, ...]  # (pieces, 2, p_v + 1, reach) per joint: [y, u]
    used: np.ndarray  # (pieces, 2, nv, reach) 1.0 or 0.0
    counts: np.ndarray  # (pieces, 2, nv) rows of each joint


@dataclass(frozen=True, eq=False)
class PieceSums:
    """Sums over pieces of time: of some of their rows, and those of them at the ends apart."""

    whole: GramStack
    ends: EndRows

    def scored(
        self,
        blocks: Blocks,
        sums: GramStack,
        x_base: np.ndarray,
        positions: tuple[np.ndarray, ...],
    ) -> tuple[np.ndarray, np.ndarray]:
        """(‖u_j − Y_j x‖², rows) of every block and joint, (blocks, nv), without the rows at cuts.

        sums: over the blocks; x_base: (blocks, p).
        """
        block, piece, side = blocks.ends.T
        squares, rows = sums.squares(x_base, positions), sums.rows.copy()
        np.subtract.at(rows, block, self.ends.counts[piece, side])
        for v, (z, at) in enumerate(zip(self.ends.rows, positions, strict=True)):
            used = self.ends.used[piece, side, v]
            if not np.any(used):
                continue
            x, parts = with_torque(x_base[block][:, at]), z[piece, side]
            left = (x[:, None, :] @ parts)[:, 0]
            np.subtract.at(squares[:, v], block, np.sum(left**2 * used, axis=1))
        return np.maximum(squares, 0.0), rows


@dataclass(frozen=True, eq=False)
class FitRows:
    """Sums over the rows that are fitted, of each piece of time, and the model that counts them."""

    model: GaussianModel
    sums: GramStack

    @functools.cached_property
    def whole(self) -> Grams:
        """All of them."""
        return self.sums.whole


@dataclass(frozen=True, eq=False)
class Pieces:
    """A log in pieces of time, by the columns of one robot."""

    model: GaussianModel
    moving: PieceSums
    still: PieceSums
    other: FitRows | None = None  # to fit in place of the rows in motion, which are scored

    @functools.cached_property
    def fitted(self) -> FitRows:
        """The rows that are fitted."""
        return self.other or FitRows(self.model, self.moving.whole)

    @property
    def whole(self) -> Grams:
        """All rows that are fitted."""
        return self.fitted.whole

    def noise(self, weight: float) -> np.ndarray:
        """σ_j of every joint, (nv,)."""
        return self.fitted.model.noise(self.whole, weight)

    def cuts(self, ways: int = CUTS) -> list[Blocks]:
        """Return ways of making blocks of the pieces.

        A block begins one piece later in every further way, its last pieces go with its first.
        """
        count = len(self.moving.whole.rows)
        size = max(count // FOLDS, 1)
        out = []
        for shift in range(min(ways, size)):
            starts = list(range(shift, count, size))
            if 2 * (count + shift - starts[-1]) < size:
                starts.pop()
            starts.append(count + shift)
            pairs = itertools.pairwise(starts)
            blocks = tuple(tuple(k % count for k in range(a, b)) for a, b in pairs)
            out.append(Blocks(blocks, count))
        return out

    def predict(self, weight: float, *, ways: int = CUTS) -> Scores:
        """Predict every block of every way of cutting from the others."""
        cuts = self.cuts(ways)
        blocks = Blocks(tuple(block for cut in cuts for block in cut.pieces), cuts[0].count)
        whole = self._predict(blocks, self.noise(weight), weight)
        ends = np.cumsum([2 * len(cut.pieces) for cut in cuts])
        return Scores(tuple(whole.part(slice(a, b)) for a, b in itertools.pairwise([0, *ends])))

    def _predict(self, blocks: Blocks, sigma: np.ndarray, weight: float) -> Predictions:
        model, whole, fitted = self.model, self.whole, self.fitted
        moving, still = (each.whole.summed(blocks.used) for each in (self.moving, self.still))
        own = self.other is None
        left = self.moving.whole.complement(moving) if own else fitted.sums.without(blocks.used)
        x_base = fitted.model.base_fits(left, sigma, weight)
        shape = 2 * len(x_base), len(sigma)
        squares, rows, independent = np.empty(shape), np.empty(shape), np.empty(shape)
        kinds = (self.moving, moving, 1.0), (self.still, still, STILL)
        for kind, (pieces, sums, worth) in enumerate(kinds):
            held, count = pieces.scored(blocks, sums, x_base, model.positions)
            squares[kind::2], rows[kind::2] = held, count
            independent[kind::2] = worth * model.statistics.independent * count
        count = np.maximum(whole.rows, 1.0)
        torque = np.sqrt(whole.torque_squares / count)
        floor = EXACT * np.where(torque > 0.0, torque, 1.0)
        return Predictions(squares, rows, independent, floor)


@dataclass(frozen=True, eq=False)
class CrossValidation:
    """Predictions of held-out blocks by fits with one prior, rows counted as independent ones."""

    prior: np.ndarray | Robot | None
    metric: str = METRIC
    statistics: LogStatistics | None = None  # None: two independent rows per cycle of the low-pass

    def predict(self, robot: Robot, samples: Samples, weight: float = WEIGHT) -> Scores:
        """Predict held-out blocks with this robot's columns, and a prior of medium weight."""
        return self.pieces(robot, samples).predict(weight)

    def pieces(self, robot: Robot, samples: Samples, count: int = PIECES) -> Pieces:
        """Return the log in pieces by this robot's columns."""
        samples = thinned(with_friction_direction(samples, robot))
        edges = block_edges(samples, count)
        if len(samples) < FOLDS * LEAST_ROWS or len(edges) < FOLDS + 1:
            raise NotIdentifiable(
                f"{len(samples)} rows are too few to choose from; record longer, or state the"
                " cut-off, the friction and the prior"
            )
        statistics = (
            log_statistics(robot, samples)
            if self.statistics is None
            else self.statistics.at(time_between_rows(samples))
        )
        empty = _empty(robot)
        x0 = self.x0(empty)
        model = GaussianModel.of(empty, x0, statistics, metric=self.metric)
        moving, still = _sums(empty, samples, edges)
        return Pieces(model.with_drive_sizes(moving.whole.whole), moving, still)

    def x0(self, information: Information) -> np.ndarray:
        """Return the prior's values of these columns, bodies made physical; terms that it does not
        have are zero.
        """
        prior = self.prior
        if isinstance(prior, np.ndarray):
            x0 = np.zeros(information.base.columns)
            x0[: min(len(prior), len(x0))] = prior[: len(x0)]
            prior = x0
        out = guess(information, prior).copy()
        inertial = len(information.robot.theta)
        out[:inertial] = information.robot.with_parameters(out[:inertial]).projected().theta
        return out


def _empty(robot: Robot) -> Information:
    """The information of no rows."""
    plan = fold_plan(robot)
    factors = tuple(np.zeros((len(p) + 1, len(p) + 1)) for p in plan.positions)
    rows = np.zeros(robot.nv, dtype=np.int64)
    return Information(robot, plan.base, plan.positions, factors, rows, 0)


def _sums(empty: Information, samples: Samples, edges: np.ndarray) -> tuple[PieceSums, PieceSums]:
    """Return the sums between these rows, of those in motion and of those at standstill."""
    plan, period = row_plan(empty), time_between_rows(samples)
    reason = np.zeros(samples.tau.shape, np.uint8) if samples.reason is None else samples.reason
    used = np.stack([reason == USABLE, reason == STANDSTILL])
    reach = round(1.0 / (samples.cutoff * period)) if samples.cutoff and period else 0
    reach = max(min(reach, (int(np.diff(edges).max()) - LEAST_ROWS) // 2), 0)
    most = max(AT_ONCE // max(int(plan.starts[-1]), 1), 1)
    pieces: list[_Piece] = []
    while len(pieces) < len(edges) - 1:
        first = len(pieces)
        stop = max(int(np.searchsorted(edges, edges[first] + most, side="right")) - 1, first + 1)
        rows = slice(edges[first], edges[stop])
        z, counts = _joint_rows(plan, samples.subset(rows), np.any(used[:, rows], axis=0))
        for a, b in itertools.pairwise(edges[first : stop + 1]):
            at = slice(a - edges[first], b - edges[first])
            pieces.append(_piece([each[:, at] for each in z], used[:, a:b], counts[at], reach))
    joints = range(samples.tau.shape[1])
    ends = tuple(np.stack([piece.ends[v] for piece in pieces]) for v in joints)
    sums = []
    for kind in range(2):
        products = tuple(np.stack([piece.products[kind][v] for piece in pieces]) for v in joints)
        whole = GramStack(products, np.stack([piece.rows[kind] for piece in pieces]))
        at_ends = (np.stack([each[kind] for each in part]) for part in _ends(pieces))
        sums.append(PieceSums(whole, EndRows(ends, *at_ends)))
    return sums[0], sums[1]


def _joint_rows(
    plan: RowPlan, samples: Samples, seen: np.ndarray
) -> tuple[list[np.ndarray], np.ndarray]:
    """Return [y, u] of every joint, (p_v + 1, rows), and how much each row counts, (rows, nv)."""
    block = block_of(samples, plan.information.robot, seen)
    rows = base_rows(plan, block)
    pairs = enumerate(itertools.pairwise(plan.starts))
    z = [np.vstack([rows[a:b], block.tau[:, v]]) for v, (a, b) in pairs]
    return z, row_counts(plan, block)


@dataclass(frozen=True, eq=False)
class _Piece:
    """Sums over one piece: rows in motion, then those at standstill."""

    products: tuple[list[np.ndarray], list[np.ndarray]]
    rows: np.ndarray  # (2, nv)
    ends: list[np.ndarray]  # (2, p_v + 1, reach) per joint
    used: np.ndarray  # (2, 2, nv, reach) of the ends
    at_ends: np.ndarray  # (2, 2, nv) rows there


def _ends(pieces: Sequence[_Piece]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return which rows at the ends of pieces are used, and how many they are."""
    return [piece.used for piece in pieces], [piece.at_ends for piece in pieces]


def _piece(joints: list[np.ndarray], used: np.ndarray, counts: np.ndarray, reach: int) -> _Piece:
    """Return the sums over a piece's rows, with its first and last ones apart. used: (2, rows, nv);
    counts: (rows, nv).
    """
    n = used.shape[1]
    end = max(min(reach, (n - LEAST_ROWS) // 2), 0)
    at_end = np.zeros((2, 2, len(joints), reach))
    at_end[:, 0, :, :end] = used[:, :end].swapaxes(1, 2)
    at_end[:, 1, :, :end] = used[:, n - end :].swapaxes(1, 2)
    ends = []
    for z in joints:
        both = np.zeros((2, len(z), reach))
        both[0, :, :end], both[1, :, :end] = z[:, :end], z[:, n - end :]
        ends.append(both)
    moving, still = ([_product(z, each[:, v]) for v, z in enumerate(joints)] for each in used)
    worth = used * counts
    at_ends = np.stack([worth[:, :end].sum(axis=1), worth[:, n - end :].sum(axis=1)], axis=1)
    return _Piece((moving, still), worth.sum(axis=1), ends, at_end, at_ends)


def _product(z: np.ndarray, used: np.ndarray) -> np.ndarray:
    """zᵀz over the rows that are used."""
    if not np.any(used):
        return np.zeros((len(z), len(z)))
    z = z if np.all(used) else np.ascontiguousarray(z[:, used])
    return np.asarray(z @ z.T)


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


def thinned(samples: Samples) -> Samples:
    """Return as few rows as hold all that the low-pass let through."""
    cutoff = max(
        samples.cutoff or 0.0,
        samples.provenance.get("settings", {}).get("torque_cutoff") or 0.0,
    )
    period = time_between_rows(samples)
    if not cutoff or not period:
        return samples
    step = max(1, int(1.0 / (ROWS_PER_CYCLE * cutoff * period)))
    return (
        samples
        if step == 1
        else replace(samples.subset(slice(None, None, step)), period=step * period)
    )
