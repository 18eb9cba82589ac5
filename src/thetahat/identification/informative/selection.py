"""Informative samples: few that say what many say (paper, "rank properties": p* samples suffice).

Offline, `informative` draws k of n samples by leverage, ℓ_i = Σ_j w_j²‖R⁻ᵀy_ij‖² in the factor of
all of them, half of the mass kept uniform, at equal steps of cumulative mass in time order; a
sample drawn with chance π_i stands for 1/π_i. These squared weights d are then moved as little as
possible (least relative entropy) so that the full fit's normal equations and residuals hold over
the k as they do over the n:

    min Σ d_i log(d_i/d_i⁰) − d_i + ‖Σ d_i g_i − g‖²/2ρ,    d_i = d_i⁰·exp(g_iᵀλ) > 0

Greedy D-optimality, the obvious choice, takes outliers first: on seven real logs it lost 17 to 150
times the R² that every twentieth sample did.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from thetahat.data.samples import Samples
from thetahat.errors import NotIdentifiable, UsageError, is_whole
from thetahat.identification import factor as f
from thetahat.identification.information import Information, information
from thetahat.identification.parameter_columns import full_regressor
from thetahat.model.robot import Robot

# R² that the estimate from the selected samples may lose on all of them, on any joint
TOLERANCE = 1e-3
# share of the mass that does not ask for leverage: draws no sample with a weight above √(2n/k), so
# no dull one can shout
UNIFORM = 0.5
# ρ: the full fit's own scatter is 1 in these units, so what is left of the constraints is a tenth
# of it or less
SOFT = 0.01
# of the weight it was drawn with: what any sample keeps, so that the one which alone shows a
# direction goes on showing it
FLOOR = 0.1
# a direction in which the selection holds less than LOST² of what all samples hold counts as lost
LOST = 1e-3
# without a count, information of every direction is kept to this factor, or a fit to these samples
# could err on others
EVEN = 2.0
NOISE = 1e-6  # of the RMS torque: residuals below are rounding, not noise to weigh joints by
TILE = 1024  # samples whose regressors exist at once
NEWTON = 50  # steps at most; 3 to 8 are usual


@dataclass(frozen=True, eq=False)
class Selection:
    """The samples chosen, their weights, and what the estimate from them is worth."""

    rows: np.ndarray  # (k,) ascending positions in the samples
    weights: np.ndarray  # (k,) factors on the rows of [Y | u]: √(how many samples each stands for)
    samples: int  # how many there were to choose from
    rank: int  # directions the selection keeps, of
    full_rank: int  # those that all samples show
    # least and greatest ratio of its information to that of all samples, over all directions
    spread: tuple[float, float]
    # (nv,) R² on all samples that its least-squares estimate loses, the worse of plain and
    # joint-weighted
    loss: np.ma.MaskedArray

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def worst_loss(self) -> float:
        """The R² lost on the joint that loses most; 0 where no joint has a torque to lose."""
        return float(np.ma.max(self.loss)) if self.loss.count() else 0.0

    def information(
        self, robot: Robot, samples: Samples, *, threads: int | None = None
    ) -> Information:
        """The information of the chosen samples, each weighted by how many it stands for."""
        if len(samples) != self.samples:
            raise UsageError(
                f"the selection was made from {self.samples} samples, not from these"
                f" {len(samples)}; hand in the same samples"
            )
        return _weighted(robot, samples, self.rows, self.weights, threads)

    def __str__(self) -> str:
        low, high = self.spread
        return (
            f"{len(self)} of {self.samples} samples: rank {self.rank} of {self.full_rank},"
            f" information {low:.2g} to {high:.2g} times that of all, R² lost {self.worst_loss:.1e}"
            " at most"
        )


def informative(
    robot: Robot,
    samples: Samples,
    count: int | None = None,
    *,
    tolerance: float = TOLERANCE,
    threads: int | None = None,
) -> Selection:
    """Choose samples whose weighted estimate is that of all of them.

    Use: ``informative(robot, samples, 500).information(robot, samples)``. Deterministic; memory is
        that of one tile and of the selection.

    Args:
        robot: whose samples they are, with the drive terms to identify.
        samples: to choose from; what they mark unusable does not count.
        count: how many to choose; None to double it from the fewest that can keep the rank until
            the tolerance is kept.
        tolerance: R² that may be lost on any joint, where count is None; `Selection.loss` says what
            is lost.
        threads: bounds the cores used.

    """
    if not (np.isreal(tolerance) and np.isfinite(tolerance) and tolerance > 0.0):
        raise UsageError(f"tolerance is {tolerance!r}; give the R² that may be lost, above 0")
    if not (count is None or is_whole(count, 1)):
        raise UsageError(
            f"count is {count!r}; give the number of samples to choose, from 1, or None"
        )
    # matrices are small: BLAS's threads cost more than they gain
    with f.blas_threads().limit(limits=1, user_api="blas"):
        source = _Source.of(robot, samples, threads)
        if count is None:
            return _as_few_as_will_do(source, tolerance)
        return _of_count(source, int(count))


def _of_count(source: _Source, count: int) -> Selection:
    selection = _choose(source, count)
    if selection.rank < selection.full_rank:
        raise NotIdentifiable(
            f"{count} samples keep rank {selection.rank} of the {selection.full_rank} that all"
            f" {selection.samples} show; choose more, or leave count out to have it chosen"
        )
    return selection


def _as_few_as_will_do(source: _Source, tolerance: float) -> Selection:
    """Twice as many again and again, from what rank needs at the least."""
    count = -(-source.rank // source.samples.nv)
    while True:
        selection = _choose(source, max(count, 1))
        low, high = selection.spread
        good = 1.0 / EVEN <= low <= high <= EVEN and selection.worst_loss <= tolerance
        if good or len(selection) >= source.usable:
            return selection
        count = 2 * len(selection)


# -- what all samples say --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Fit:
    """A weighted least-squares fit of all samples, with its whitening."""

    weights: np.ndarray  # (nv,) so that residuals are about one
    x: np.ndarray  # (p,)
    inverse: np.ndarray  # (p, rank): whitened rows are w_j·y_ij·inverse

    @staticmethod
    def of(full: Information, weights: np.ndarray) -> _Fit:
        solution = f.solve(full.stacked(weights))
        return _Fit(weights, solution.x, solution.inverse)


@dataclass(frozen=True, eq=False)
class _Source:
    """All samples, their information, the fits to reproduce, and each sample's mass."""

    samples: Samples
    full: Information
    plain: _Fit
    joint: _Fit
    mass: np.ndarray  # (n,) sums to 1, zero where nothing is usable
    threads: int | None

    @staticmethod
    def of(robot: Robot, samples: Samples, threads: int | None) -> _Source:
        full = information(robot, samples, threads=threads)
        if not np.any(full.rows):
            raise NotIdentifiable(
                f"none of the {len(samples)} samples has a usable torque ({_left_out(samples)}), so"
                " there is nothing to choose from"
            )
        plain, joint = _fits(full)
        rows = np.sum(samples.valid, axis=1).astype(float)
        leverage = _leverage(full, joint, samples)
        leverage = leverage if np.any(leverage) else rows
        mass = (1.0 - UNIFORM) * leverage / np.sum(leverage) + UNIFORM * rows / np.sum(rows)
        return _Source(samples, full, plain, joint, mass, threads)

    @property
    def rank(self) -> int:
        return int(self.joint.inverse.shape[1])

    @property
    def usable(self) -> int:
        """How many samples have any usable torque."""
        return int(np.count_nonzero(self.mass))

    def weighted(self, rows: np.ndarray, weights: np.ndarray) -> Information:
        """The information of some samples, with weights."""
        return _weighted(self.full.robot, self.samples, rows, weights, self.threads)

    def strongest(self, directions: np.ndarray) -> np.ndarray:
        """For every whitened direction (rank, m), the sample that shows it most."""
        best, where = np.full(directions.shape[1], -1.0), np.zeros(directions.shape[1], dtype=int)
        seen = self.joint.inverse @ directions
        for part, tile, Y in _tiles(self.full.robot, self.samples):
            weights = self.joint.weights * tile.valid
            Z = (Y[:, :, self.full.base.independent] @ seen) * weights[:, :, None]
            shown = np.sum(Z * Z, axis=1)
            most = np.argmax(shown, axis=0)
            better = shown[most, np.arange(len(best))] > best
            best = np.where(better, shown[most, np.arange(len(best))], best)
            where = np.where(better, part.start + most, where)
        return np.unique(where)

    def features(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What the weights must carry over from all samples: g_i of these rows (k, m), and its sum
        over all samples g (m,).

        Both fits' scores, inverseᵀ·Σ_j w_j²y_ij r_ij, which sum to zero (the normal equations), and
        every joint's residual energy, which joint weights come from; in units of the scatter that
        each sum has by chance.
        """
        full, used = self.full, np.flatnonzero(self.full.rows)
        root = np.sqrt(full.rows[used])
        ranks = np.cumsum([0, self.plain.inverse.shape[1], self.joint.inverse.shape[1]])
        out = np.empty((len(rows), ranks[-1] + len(used)))
        for part, tile, Y in _tiles(full.robot, self.samples.subset(rows)):
            Y = Y[:, :, full.base.independent]
            for fit, first, stop in zip(
                (self.plain, self.joint), ranks[:-1], ranks[1:], strict=True
            ):
                residual = (tile.tau - Y @ fit.x) * tile.valid
                out[part, first:stop] = (
                    np.matmul((fit.weights**2 * residual)[:, None, :], Y)[:, 0] @ fit.inverse
                )
                if fit is self.plain:
                    out[part, ranks[-1] :] = (residual * self.joint.weights)[:, used] ** 2 / root
        energy = (full.residual_norms(self.plain.x) * self.joint.weights)[used] ** 2 / root
        return out, np.concatenate([np.zeros(ranks[-1]), energy])


def _left_out(samples: Samples) -> str:
    return (
        ", ".join(f"{count} {name}" for name, count in samples.dropped.items()) or "they are none"
    )


def _scale(noise: np.ndarray, torque: np.ndarray) -> np.ndarray:
    """1/σ from mean squares of residual and torque, bounded; 1 where there is no torque."""
    level = np.maximum(noise, NOISE**2 * torque)
    return 1.0 / np.sqrt(np.where(level > 0.0, level, 1.0))


def _fits(full: Information) -> tuple[_Fit, _Fit]:
    """Plain least squares, and with joints weighted by its residuals."""
    count = np.maximum(full.rows, 1)
    noise, torque = full.residual_norms(full.solution.x) ** 2, full.torque_norms() ** 2
    total = np.sum(count)
    plain = np.full(len(count), _scale(np.sum(noise) / total, np.sum(torque) / total))
    by_joint = _scale(noise / count, torque / count)
    return _Fit.of(full, plain), _Fit.of(full, by_joint)


def _tiles(robot: Robot, samples: Samples) -> Iterator[tuple[slice, Samples, np.ndarray]]:
    """(place, samples, Y (tile, nv, columns) of the whole regressor), tile by tile."""
    for first in range(0, len(samples), TILE):
        part = slice(first, min(first + TILE, len(samples)))
        tile = samples.subset(part)
        yield part, tile, full_regressor(robot, tile.q, tile.dq, tile.ddq)


def _leverage(full: Information, fit: _Fit, samples: Samples) -> np.ndarray:
    """ℓ_i = Σ_j w_j²‖inverseᵀ y_ij‖² over usable rows, (n,): every sample's share in the
    information of all; they sum to the rank.
    """
    out = np.zeros(len(samples))
    # ‖y·A‖ = ‖y·Tᵀ‖ with T the triangle of Aᵀ, which is as small as the joint's columns are few
    triangles = [
        w * f.triangle(np.asfortranarray(fit.inverse[at].T))
        for w, at in zip(fit.weights, full.positions, strict=True)
    ]
    for part, tile, Y in _tiles(full.robot, samples):
        for v, (positions, T) in enumerate(zip(full.positions, triangles, strict=True)):
            Z = Y[:, v, full.base.independent[positions]] @ T.T
            out[part] += tile.valid[:, v] * np.einsum("nk,nk->n", Z, Z)
    return out


def _weighted(
    robot: Robot, samples: Samples, rows: np.ndarray, weights: np.ndarray, threads: int | None
) -> Information:
    per_joint = np.repeat(weights[:, None], robot.nv, axis=1)
    return information(robot, samples.subset(rows), weights=per_joint, threads=threads)


# -- choosing --------------------------------------------------------------------------------------


def _choose(source: _Source, count: int) -> Selection:
    """Draw, make good any direction lost, weigh, and measure what the estimate loses."""
    if count >= source.usable:
        rows = np.flatnonzero(source.mass)
        return _measured(source, rows, np.ones(len(rows)))
    forced = np.zeros(0, dtype=int)
    while True:
        rows, squared = _draw(source.mass, count, forced)
        s, Vt = _whitened(source, source.weighted(rows, np.sqrt(squared)))
        lost = Vt[s <= LOST]
        if not len(lost):
            break
        more = np.setdiff1d(source.strongest(lost.T), forced)[: count - len(forced)]
        if not len(more):  # no room left: fewer samples than directions
            break
        forced = np.union1d(forced, more)
    return _measured(source, rows, np.sqrt(_calibrated(*source.features(rows), squared)))


def _draw(mass: np.ndarray, count: int, forced: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(rows, how many samples each stands for): the forced ones for themselves, the others by equal
    steps of cumulative mass.
    """
    certain = np.zeros(len(mass), dtype=bool)
    certain[forced] = True
    while True:
        free = np.flatnonzero(~certain & (mass > 0.0))
        left = count - int(np.sum(certain))
        if left == 0:
            return np.flatnonzero(certain), np.ones(count)
        chance = left * mass[free] / np.sum(mass[free])
        if not np.any(chance >= 1.0):
            break
        certain[free[chance >= 1.0]] = True
    steps = np.cumsum(chance)
    drawn = free[np.searchsorted(steps * (left / steps[-1]), np.arange(left) + 0.5)]
    stands_for = np.ones(len(mass))
    stands_for[free] = 1.0 / chance
    rows = np.sort(np.concatenate([np.flatnonzero(certain), drawn]))
    return rows, stands_for[rows]


def _whitened(source: _Source, chosen: Information) -> tuple[np.ndarray, np.ndarray]:
    """Singular values and directions of the selection's factor, whitened by all samples'."""
    R = chosen.stacked(source.joint.weights)[:-1, :-1] @ source.joint.inverse
    _, s, Vt = np.linalg.svd(R, full_matrices=False)
    return s, Vt


def _calibrated(G: np.ndarray, total: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """d near `drawn`, never below FLOOR of it, with Σ d_i g_i near `total`.

    Newton's method on the dual, Σ d_i⁰exp(g_iᵀλ) − gᵀλ + ρ‖λ‖²/2, which is convex.
    """
    start, total = (1.0 - FLOOR) * drawn, total - FLOOR * (drawn @ G)

    def value(dual: np.ndarray) -> tuple[float, np.ndarray]:
        with np.errstate(over="ignore"):  # a step too far is infinite, and halved
            d = start * np.exp(G @ dual)
        return float(np.sum(d) - total @ dual + 0.5 * SOFT * dual @ dual), d

    dual = np.zeros(G.shape[1])
    now, d = value(dual)
    for _ in range(NEWTON):
        slope = d @ G - total + SOFT * dual
        step = np.linalg.solve(G.T @ (G * d[:, None]) + SOFT * np.eye(len(dual)), -slope)
        gain = -float(slope @ step)
        length = 1.0
        while (
            gain > 0.0
            and length > 1e-9
            and not (then := value(dual + length * step))[0] <= now - 0.1 * length * gain
        ):
            length *= 0.5
        if not gain > 1e-12 * np.sum(start) or length <= 1e-9:
            break
        dual, (now, d) = dual + length * step, then
    return d + FLOOR * drawn


def _measured(source: _Source, rows: np.ndarray, weights: np.ndarray) -> Selection:
    """The selection with its certificate."""
    full = source.full
    chosen = source.weighted(rows, weights)
    s, _ = _whitened(source, chosen)
    pairs = zip((source.plain, source.joint), _fits(chosen), strict=True)
    losses = [full.r2_per_joint(best.x) - full.r2_per_joint(mine.x) for best, mine in pairs]
    for array in (rows, weights):
        array.setflags(write=False)
    return Selection(
        rows=rows,
        weights=weights,
        samples=len(source.samples),
        rank=int(np.sum(s > LOST)),
        full_rank=source.rank,
        spread=(float(s[-1] ** 2), float(s[0] ** 2)) if len(s) else (1.0, 1.0),
        loss=np.ma.maximum(*losses),
    )
