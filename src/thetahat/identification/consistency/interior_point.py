"""Least squares over bodies that exist: a primal-dual interior-point method in which every step is
a QR, never a Gram matrix.

    minimise     ½‖T v − t‖² + Σ_b γ_b [tr X_b − log det X_b − 4]
    subject to   X_b ⪰ 0,   G v ≥ l
                 X_b = Σ_j v[first_b + j]·shape_bj

T is the triangular factor of data and prior. Blocks with γ_b > 0 are the entropic prior's: their
barrier is part of the objective, and stays; that of the others goes to zero. With X = L Lᵀ and the
dual Z = K Kᵀ, a Newton step (HKM direction [Helmberg1996]) is

    min over dv   ‖T dv − (t − T v)‖² + Σ_b ‖Kᵀ dX_b L⁻ᵀ − K⁻¹(μ X⁻¹ − γ 1 − …)L‖² + …

a least-squares problem of two triangles, solved by LAPACK's QR for just that. So directions that
the data do not see, ten digits below those they see, come out as sharp as the others: in a Gram
matrix they would be lost, and a general solver's regularisation of 1e-8 left gaps of several noise
variances there (Clarabel on a Panda at 1 % noise, measured).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy.linalg import lapack

ENOUGH = 1e-7  # of 1 + f: a gap at which to stop
NEAR = 1e-6  # of 1 + f, per constraint: where it is worth while to ask for the gap
ITERATIONS = 80
NAME = "interior point"
SHORTEST = 1e-9  # a step below this goes nowhere
TO_BOUNDARY = 0.98
# of what there is to gain, per constraint: the first μ; a tenth saves an iteration, and lost one of
# 500 random problems
FIRST = 1.0
# a step shorter than this is tried again without second order, with this share of μ
CRAMPED, CENTRING = 0.3, 0.5
# of every direction, so that the gradient of the Lagrangian ends where it should even where Z is
# large
REFINEMENTS = 2
BLOCK = 16  # columns at a time in the QR: fastest of 8 … 64 at 50 to 600 columns
PLACES = 10  # numbers of a body


@dataclass(frozen=True, eq=False)
class Problem:
    """The data of a problem. v holds bodies first, ten entries each, then single entries."""

    T: np.ndarray  # (k, k) upper triangular; of full rank, unless every body has an entropic block
    t: np.ndarray  # (k,)
    constant: float  # ½ of what no v explains, squared
    shapes: np.ndarray  # (blocks, 10, 4, 4)
    first: np.ndarray  # (blocks,) position in v of each block's ten numbers
    gamma: np.ndarray  # (blocks,) weight of −log det; 0: a constraint
    G: np.ndarray  # (rows, k)
    low: np.ndarray  # (rows,)

    @cached_property
    def flat(self) -> np.ndarray:
        """The shapes as rows, (blocks, 10, 16)."""
        return np.ascontiguousarray(self.shapes.reshape(-1, PLACES, 16))

    @cached_property
    def entropic(self) -> np.ndarray:
        """(blocks,) which blocks belong to the objective and are no constraints."""
        return self.gamma > 0.0

    @cached_property
    def stacking(self) -> tuple[np.ndarray, np.ndarray, int]:
        """(bodies, place of each block, blocks per body): where v's bodies begin, and in which
        layer of which body a block is.
        """
        if not len(self.first):
            return np.zeros(0, dtype=int), np.zeros(0, dtype=int), 1
        bodies, member = np.unique(self.first, return_inverse=True)
        layer = np.array([int(np.sum(member[:b] == m)) for b, m in enumerate(member)], dtype=int)
        depth = int(np.max(layer, initial=0)) + 1
        return bodies, depth * member + layer, depth

    @cached_property
    def others(self) -> np.ndarray:
        """Rows of G that are not `single`."""
        return np.setdiff1d(np.arange(len(self.low)), self.single[0])

    @cached_property
    def single(self) -> tuple[np.ndarray, np.ndarray]:
        """(rows of G that bound one entry of v which is no body's, those entries)."""
        after = PLACES * len(self.stacking[0])
        rows = np.flatnonzero(
            (np.count_nonzero(self.G, axis=1) == 1) & np.any(self.G[:, after:], axis=1)
        )
        entries = np.argmax(self.G[rows] != 0.0, axis=1)
        _, once = np.unique(entries, return_index=True)
        return rows[once], entries[once]

    @cached_property
    def places(self) -> np.ndarray:
        """(blocks, 10) positions in v."""
        return self.first[:, None] + np.arange(PLACES)

    def X(self, v: np.ndarray) -> np.ndarray:
        """The blocks, (blocks, 4, 4); of a change of v, their change."""
        return np.asarray((v[self.places][:, None, :] @ self.flat).reshape(-1, 4, 4))

    def adjoint(self, Z: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Gradient of Σ tr(Z_b X_b) + y·G v."""
        out: np.ndarray = self.G.T @ y
        slopes = (self.flat @ Z.reshape(-1, 16, 1))[..., 0]
        if self.stacking[2] == 1:  # one block per body: no entry of v is met twice
            out[self.places] += slopes
        else:
            np.add.at(out, self.places, slopes)
        return out

    def value(self, v: np.ndarray) -> float:
        """The objective; infinite outside of the domain of log det."""
        smooth = self.constant + 0.5 * float(np.sum((self.T @ v - self.t) ** 2))
        entropic = self.gamma > 0.0
        if not np.any(entropic):
            return smooth
        X = self.X(v)[entropic]
        if np.min(np.linalg.eigvalsh(X)) <= 0.0:
            return float("inf")
        divergence = np.trace(X, axis1=1, axis2=2) - np.linalg.slogdet(X)[1] - 4.0
        return smooth + float(self.gamma[entropic] @ divergence)


@dataclass(frozen=True, eq=False)
class Point:
    """Where the method is: v, and the multipliers of its constraints."""

    v: np.ndarray
    Z: np.ndarray  # (blocks, 4, 4) ≻ 0
    y: np.ndarray  # (rows,) > 0
    # Cholesky factors of X and Z, where they are known already
    roots: tuple[np.ndarray, np.ndarray] | None = None


@dataclass(frozen=True, eq=False)
class Minimum:
    """Where it stopped."""

    v: np.ndarray
    value: float
    gap: float  # value − gap is a lower bound of what is possible
    iterations: int
    # (rows,) multipliers of G v ≥ l, (blocks, 4, 4) of X_b ⪰ 0; none of a method without
    y: np.ndarray = field(default_factory=lambda: np.zeros(0))
    Z: np.ndarray = field(default_factory=lambda: np.zeros((0, 4, 4)))


def minimise(problem: Problem, start: np.ndarray) -> Minimum:
    """The best v, from a start strictly inside of all constraints."""
    # best of all, were there no constraints
    free = None if np.any(problem.entropic) else solve_triangular(problem.T, problem.t)
    if free is not None and _allowed(problem, free):
        none = np.zeros(len(problem.low)), np.zeros((len(problem.first), 4, 4))
        return Minimum(free, problem.constant, 0.0, 0, *none)
    point = _begin(problem, start)
    best, least, iterations = point, np.inf, 0
    while iterations < ITERATIONS:
        value = problem.value(point.v)
        # the bound costs a factorisation with entropic blocks, and some time without
        near = ENOUGH if np.any(problem.entropic) else NEAR
        if _mean(problem, point) <= near * (1.0 + value):
            bound = gap(problem, point)
            if bound < least:
                best, least = point, bound
            if bound <= ENOUGH * (1.0 + value) or bound > 1e6 * least:
                break
        try:
            step = _step(problem, point)
        except np.linalg.LinAlgError:  # numbers beyond what a double can tell apart
            break
        if step is None:
            break
        point, iterations = step, iterations + 1
    if not np.isfinite(least):
        best, least = point, gap(problem, point)
    value = float(problem.value(best.v))
    # no part of the objective is below zero
    return Minimum(best.v, value, min(float(least), value), iterations, best.y, best.Z)


def _allowed(problem: Problem, v: np.ndarray) -> bool:
    """Whether v is inside of all constraints."""
    return bool(np.all(problem.G @ v >= problem.low)) and bool(
        np.min(np.linalg.eigvalsh(problem.X(v)), initial=1.0) > 0.0
    )


def _begin(problem: Problem, start: np.ndarray) -> Point:
    """Multipliers to start with: about as large as what is to be gained."""
    count = 4 * len(problem.first) + len(problem.low)
    mu = max(FIRST * (problem.value(start) - problem.constant) / max(count, 1), 1e-3)
    Z = np.maximum(mu, problem.gamma)[:, None, None] * np.linalg.inv(problem.X(start))
    return Point(start, symmetric(Z), mu / (problem.G @ start - problem.low))


def _mean(problem: Problem, point: Point) -> float:
    """How far complementarity is from where it should end, per constraint."""
    away = np.abs(np.sum(problem.X(point.v) * point.Z, axis=(1, 2)) - 4.0 * problem.gamma)
    total = float(np.sum(away)) + float(point.y @ (problem.G @ point.v - problem.low))
    return total / max(4 * len(away) + len(point.y), 1)


def gap(problem: Problem, point: Point) -> float:
    """f(v) less a lower bound of what is possible, from the Lagrangian φ = f − tr(Z X) − y·s, which
    is below f wherever v is feasible.

    Without entropic blocks φ is quadratic, and its least value is ½‖T⁻ᵀ∇φ‖² below φ(v). Those, over
    γ, are self-concordant [Nesterov1994]: with ∇φ = Tᵀρ + Hᵀc, H the rows of their curvature, the
    least value is at most ½‖ρ‖² + γ(−λ − log(1 − λ)) below, λ = ‖c‖/√γ < 1.
    """
    entropic = problem.entropic[:, None, None]
    Z = np.where(entropic, 0.0, point.Z)
    residual, X = problem.T @ point.v - problem.t, problem.X(point.v)
    complementary = float(np.sum(X * Z)) + float(point.y @ (problem.G @ point.v - problem.low))
    if not np.any(entropic):
        slope = residual - solve_triangular(problem.T, problem.adjoint(Z, point.y), transposed=True)
        # far from the optimum, in units of a tiny noise: no bound yet
        with np.errstate(over="ignore"):
            return complementary + 0.5 * float(slope @ slope)
    L_inverse = np.linalg.inv(np.linalg.cholesky(X))
    inverse = np.swapaxes(L_inverse, 1, 2) @ L_inverse
    gamma = problem.gamma[:, None, None]
    curved = np.sqrt(gamma)[:, None] * (
        L_inverse[:, None] @ problem.shapes @ np.swapaxes(L_inverse, 1, 2)[:, None]
    )
    gradient = problem.T.T @ residual + problem.adjoint(
        np.where(entropic, gamma * (np.eye(4) - inverse), -Z), -point.y
    )
    quadratic, rest = _Factor(problem, _as_rows(curved), np.zeros(len(point.y))).split(gradient)
    least = float(np.min(problem.gamma[problem.entropic]))
    decrement = rest / np.sqrt(least)
    return (
        complementary + 0.5 * quadratic**2 + least * (-decrement - np.log1p(-decrement))
        if decrement < 1.0
        else float("inf")
    )


# -- one step --------------------------------------------------------------------------------------


def _step(problem: Problem, point: Point) -> Point | None:
    """Predictor and corrector, as far as the boundary allows; None where rounding prevents it."""
    try:
        frame = _Frame(problem, point)
    except np.linalg.LinAlgError:
        return None
    affine = frame.direction(0.0, None)
    mu, ahead = _mean(problem, point), _mean(problem, _moved(point, affine, frame.length(affine)))
    sigma = min(ahead / mu, 1.0) ** 3 if mu > 0.0 else 0.0
    direction = frame.direction(sigma * mu, affine)
    length = min(1.0, TO_BOUNDARY * frame.length(direction, limit=1.0 / TO_BOUNDARY))
    if length < CRAMPED:  # the second order points out of the cone: back to its middle first
        central = frame.direction(max(sigma, CENTRING) * mu, affine, curved=False)
        other = min(1.0, TO_BOUNDARY * frame.length(central, limit=1.0 / TO_BOUNDARY))
        direction, length = (central, other) if other > length else (direction, length)
    while length > SHORTEST:
        new = _moved(point, direction, length)
        roots = _roots(problem, new)
        if roots is not None:
            return replace(new, roots=roots)
        length *= 0.5
    return None


@dataclass(frozen=True, eq=False)
class _Direction:
    dv: np.ndarray
    dX: np.ndarray
    dZ: np.ndarray
    ds: np.ndarray
    dy: np.ndarray


def _moved(point: Point, d: _Direction, length: float) -> Point:
    return Point(point.v + length * d.dv, point.Z + length * d.dZ, point.y + length * d.dy)


def _roots(problem: Problem, point: Point) -> tuple[np.ndarray, np.ndarray] | None:
    """Cholesky factors of X and Z; None outside of the cones."""
    if not (
        np.all(np.isfinite(point.v))
        and np.all(problem.G @ point.v > problem.low)
        and np.all(point.y > 0.0)
    ):
        return None
    try:
        return np.linalg.cholesky(problem.X(point.v)), np.linalg.cholesky(point.Z)
    except np.linalg.LinAlgError:
        return None


class _Factor:
    """QR of T above the rows of linear constraints above the triangles of the bodies' rows."""

    def __init__(self, problem: Problem, rows: np.ndarray, root: np.ndarray) -> None:
        self._problem, k = problem, len(problem.t)
        bodies, place, depth = problem.stacking
        stacked = np.zeros((depth * len(bodies), 16, PLACES))
        stacked[place] = rows
        self._Q, triangles = np.linalg.qr(stacked.reshape(len(bodies), 16 * depth, PLACES))
        single, entries = problem.single
        others, self._top = problem.others, len(problem.others)
        below = np.zeros((self._top + k, k), order="F")
        below[: self._top] = root[others, None] * problem.G[others]
        below[self._top + entries, entries] = root[single] * problem.G[single, entries]
        ten = bodies[:, None] + np.arange(PLACES)
        below[self._top + ten[:, :, None], ten[:, None, :]] = triangles
        self._ten = ten
        self.R, self._V, self._block, _ = lapack.dtpqrt(
            k, min(BLOCK, k), problem.T, below, overwrite_b=1
        )

    def solve(self, top: np.ndarray, bodies: np.ndarray, linear: np.ndarray) -> np.ndarray:
        """Solve for right sides of T's rows, the blocks' (blocks, 16), and linear constraints."""
        problem, k = self._problem, len(top)
        starts, place, depth = problem.stacking
        stacked = np.zeros((depth * len(starts), 16))
        stacked[place] = bodies
        right = np.zeros((self._top + k, 1), order="F")
        right[: self._top, 0] = linear[problem.others]
        single, entries = problem.single
        right[self._top + entries, 0] = linear[single]
        right[self._top + self._ten, 0] = (
            np.swapaxes(self._Q, 1, 2) @ stacked.reshape(len(starts), 16 * depth, 1)
        )[..., 0]
        turned, *_ = lapack.dtpmqrt(
            k,
            self._V,
            self._block,
            np.asfortranarray(top[:, None]),
            right,
            trans="T",
            overwrite_b=1,
        )
        return solve_triangular(self.R, turned[:, 0])

    def split(self, gradient: np.ndarray) -> tuple[float, float]:
        """(‖ρ‖, ‖c‖) of the shortest way to write a gradient as Tᵀρ + Hᵀc, H the rows below T."""
        k = len(gradient)
        top = np.asfortranarray(solve_triangular(self.R, gradient, transposed=True)[:, None])
        rho, c, _ = lapack.dtpmqrt(
            k, self._V, self._block, top, np.zeros((self._top + k, 1), order="F"), trans="N"
        )
        return float(np.linalg.norm(rho)), float(np.linalg.norm(c))


class _Frame:
    """The factors of one iteration, which both of its directions share."""

    def __init__(self, problem: Problem, point: Point) -> None:
        self.problem, self.point = problem, point
        self.s = problem.G @ point.v - problem.low
        roots: tuple[np.ndarray, np.ndarray] = point.roots or (
            np.linalg.cholesky(problem.X(point.v)),
            np.linalg.cholesky(point.Z),
        )
        self.L, K = roots
        self.inverses = np.linalg.inv(np.concatenate([self.L, K]))
        self.L_inverse, self.K_inverse = np.split(self.inverses, 2)
        self.X_inverse = np.swapaxes(self.L_inverse, 1, 2) @ self.L_inverse
        self.root = np.sqrt(point.y / self.s)
        rows = (
            np.swapaxes(K, 1, 2)[:, None]
            @ problem.shapes
            @ np.swapaxes(self.L_inverse, 1, 2)[:, None]
        )  # Kᵀ dX L⁻ᵀ
        self.factor = _Factor(problem, _as_rows(rows), self.root)
        self.top = problem.t - problem.T @ point.v
        self.attraction = problem.gamma[:, None, None] * np.eye(4)  # gradient of γ tr X

    def direction(self, mu: float, before: _Direction | None, *, curved: bool = True) -> _Direction:
        """Newton's direction towards X Z = max(μ, γ)·1 and s·y = μ, second order in `before`;
        without that, a first guess, not refined.
        """
        problem, point = self.problem, self.point
        # Z + dZ + sym(X⁻¹ dX Z)
        wanted = np.maximum(mu, problem.gamma)[:, None, None] * self.X_inverse
        wanted_y = mu / self.s
        if before is not None and curved:
            wanted = wanted - symmetric(self.X_inverse @ before.dX @ before.dZ)
            wanted_y = wanted_y - before.ds * before.dy / self.s
        bodies = self.K_inverse @ (wanted - self.attraction) @ self.L
        dv = self.factor.solve(self.top, bodies.reshape(-1, 16), wanted_y / self.root)
        refinements = 0 if before is None else REFINEMENTS
        for refinement in range(refinements + 1):
            dX, ds = problem.X(dv), problem.G @ dv
            dZ = symmetric(wanted - point.Z - self.X_inverse @ dX @ point.Z)
            dy = wanted_y - point.y - point.y / self.s * ds
            if refinement < refinements:
                left = problem.T.T @ (self.top - problem.T @ dv) + problem.adjoint(
                    point.Z + dZ - self.attraction, point.y + dy
                )
                dv = dv + solve_triangular(
                    self.factor.R, solve_triangular(self.factor.R, left, transposed=True)
                )
        return _Direction(dv, dX, dZ, ds, dy)

    def length(self, d: _Direction, limit: float = 1.0) -> float:
        """How far this direction stays inside, at most `limit`."""
        change = np.concatenate([d.dX, d.dZ])
        steepest = np.min(
            np.linalg.eigvalsh(self.inverses @ change @ np.swapaxes(self.inverses, 1, 2)),
            initial=0.0,
        )
        steepest = min(
            steepest, np.min(np.concatenate([d.ds / self.s, d.dy / self.point.y]), initial=0.0)
        )
        return min(limit, -1.0 / float(steepest)) if steepest < 0.0 else limit


def _as_rows(matrices: np.ndarray) -> np.ndarray:
    """(blocks, 10, 4, 4) → (blocks, 16, 10)."""
    return np.swapaxes(matrices.reshape(len(matrices), PLACES, 16), 1, 2)


def solve_triangular(R: np.ndarray, b: np.ndarray, *, transposed: bool = False) -> np.ndarray:
    """Return R⁻¹b or R⁻ᵀb, R upper triangular."""
    x: np.ndarray = lapack.dtrtrs(R, b, trans=int(transposed))[0] if b.size else b
    return x


def symmetric(matrices: np.ndarray) -> np.ndarray:
    """Return the symmetric part of every matrix."""
    return np.asarray(0.5 * (matrices + np.swapaxes(matrices, -1, -2)))
