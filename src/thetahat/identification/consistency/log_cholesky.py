"""Physically consistent parameters in log-Cholesky numbers [Rucker2022]: as `Consistent` finds
them, and sooner from a near start.

A body X = S U Uᵀ Sᵀ, as seen from where it is (S Sᵀ), has ten numbers η: the logarithms of the
diagonal of the triangle U, and what is above it. Friction and rotor inertia are y·exp(φ). Every η,
φ is physical, and log det X is linear in them, so a barrier adds no curvature. Newton's method
follows the least of

    F(η, φ) = f(x) − ρ·ℓᵀx − μ·[Σ log det X + Σ log y]        ℓ such that the start is the least F
    of ρ = 1; then ρ, μ → 0

Second derivatives of F come from f, which is quadratic in x, and from x, which is curved in η:
those of tr(Z X), Z the gradient of f − ρ·ℓᵀx. S is free up to a rotation, and the one with SᵀZ S =
diag(g), g₁ ≥ g₂ ≥ …, leaves of the latter only

    4 g_i for log U_ii,   2 g_i for U_ij, i < j

which are positive for every body, so a step is a least-squares problem: T·dx ≈ t − T x above √g·dη
≈ …, solved by QR, never by a Gram matrix. Newton's direction in η is taken straight in x, since the
valleys of f are straight there: along η it took 25 to 32 steps on the boundary, and stalled at gaps
of 1e-6. Measured, seven links: 13 to 15 steps to an optimum on the boundary, 5 to 8 from that of a
log 10 % shorter (none saved from one half as long); entropic 8 to 10, and 2 to 5; none where the
boundary holds nothing. 300 random problems of 2 to 44 joints: median 17 to 21, entropic 12 to 15,
at most 33. Z proves how far f is from its least value (`interior.gap`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from thetahat.identification.consistency.interior_point import (
    Minimum,
    Point,
    Problem,
    gap,
    solve_triangular,
    symmetric,
)

# μ to begin with: this share of what f may lose per constraint, and no less [noise variances]
COLD, LEAST = 1e-2, 1e-12
FACE, INSIDE = (
    1e-4,
    1e-2,
    # sizes of one: what a near start has below the first is held by the boundary, and begins no
    # deeper than the second
)
FAR, NEAR = (
    2e-2,
    (
        5e-3,
        1e-4,
        # of the way to the boundary, what a step leaves: far from the end, and near it (euclidean,
        # entropic)
    ),
)
# a step shorter than this is tried again without second order, with this share of μ
CRAMPED, CENTRING = 0.3, 0.5
SHORTEST = 1e-9  # a step below this goes nowhere
BLOCK = 16  # columns at a time in the QR
NAME = "log-Cholesky Newton"

_I, _J = np.triu_indices(4)
_ON = (_I == _J).astype(float)
_TWICE = 2.0 - _ON  # how often a symmetric matrix has an entry of its upper triangle
_EYE = np.eye(4)


def minimise(
    problem: Problem,
    start: np.ndarray,
    near: np.ndarray | None,
    *,
    iterations: int,
    tolerance: float,
) -> Minimum:
    """Minimise from the unconstrained optimum if feasible, a close start, or an interior one."""
    best: Minimum | None = None
    steps = 0
    for point in _starts(problem, start, near):
        try:
            minimum = _searched(
                _Frame(problem, point), iterations=iterations - steps, tolerance=tolerance
            )
        except np.linalg.LinAlgError:  # a start so near to the boundary that rounding is larger
            continue
        steps += minimum.iterations
        best = minimum if best is None or minimum.gap < best.gap else best
        if best.gap <= tolerance * (1.0 + best.value) or steps >= iterations:
            break
    if best is None:
        raise np.linalg.LinAlgError("no start is strictly inside of the cones")
    return replace(best, iterations=steps)


def _searched(frame: _Frame, *, iterations: int, tolerance: float) -> Minimum:
    """Where the steps from this point end."""
    problem, best, least, steps = frame.problem, frame.point, np.inf, 0
    while True:
        value = problem.value(frame.point.v)
        # its bound costs a factorisation
        if not np.any(problem.entropic) or frame.mu <= tolerance * (1.0 + value):
            bound = gap(problem, frame.point)
            if bound < least:
                best, least = frame.point, bound
            if bound <= tolerance * (1.0 + value):
                break
        after = frame.stepped() if steps < iterations else None
        if after is None:
            break
        frame, steps = after, steps + 1
    if not np.isfinite(least):
        best, least = frame.point, gap(problem, frame.point)
    value = float(problem.value(best.v))
    # no part of the objective is below zero
    return Minimum(best.v, value, min(float(least), value), steps)


# -- where to start --------------------------------------------------------------------------------


def _starts(problem: Problem, start: np.ndarray, near: np.ndarray | None) -> Iterator[Point]:
    if not np.any(problem.entropic):
        v = solve_triangular(problem.T, problem.t)
        if (
            np.all(np.isfinite(v))
            and np.min(np.linalg.eigvalsh(problem.X(v)), initial=1.0) > LEAST
            and np.all(problem.G @ v > LEAST)
        ):
            yield _central(problem, v, LEAST)
    if near is not None:
        yield _near(problem, near)
    yield _central(
        problem,
        start,
        max(COLD * (problem.value(start) - problem.constant) / _cones(problem), LEAST),
    )


def _central(problem: Problem, v: np.ndarray, mu: float) -> Point:
    """v, with the multipliers that make it the least F of this μ and ρ = 1."""
    Z = np.maximum(mu, problem.gamma)[:, None, None] * np.linalg.inv(problem.X(v))
    return Point(v, symmetric(Z), mu / v[problem.single[1]])


def _near(problem: Problem, v: np.ndarray) -> Point:
    """The point next to v with multipliers on the faces that v lies on, those that explain its
    gradient best; what they leave is μ.
    """
    entries, gamma = problem.single[1], problem.gamma[:, None]
    values, vectors = np.linalg.eigh(problem.X(v))
    largest = np.maximum(values[:, 3:], FACE)
    face = (values < FACE * largest) & ~problem.entropic[:, None]
    values, y = np.maximum(values, FACE * FACE * largest), np.maximum(v[entries], 0.0)
    (body, place), held = np.nonzero(face), np.flatnonzero(y < FACE)
    normals = vectors[body, :, place]
    forms = np.zeros((len(v), len(body) + len(held)))  # gradients of the distances from the faces
    forms[problem.places[body], np.arange(len(body))[:, None]] = np.einsum(
        "bjkl,bk,bl->bj", problem.shapes[body], normals, normals
    )
    forms[entries[held], len(body) + np.arange(len(held))] = 1.0
    inverse = np.swapaxes(vectors, 1, 2) / np.sqrt(values)[:, :, None]
    pull = gamma[..., None] * (_EYE - np.swapaxes(inverse, 1, 2) @ inverse)
    gradient = problem.T.T @ (problem.T @ v - problem.t) + problem.adjoint(
        pull, np.zeros(len(entries))
    )
    R = (
        _Factor(problem, np.sqrt(_TWICE * gamma)[..., None] * _slopes(problem, inverse), 0.0).R
        if np.any(problem.entropic)
        else problem.T
    )
    left = solve_triangular(R, gradient, transposed=True)
    E = solve_triangular(R, forms, transposed=True)
    multipliers = np.maximum(np.linalg.lstsq(E, left, rcond=None)[0], 0.0)
    mu = max(0.5 * float(np.sum((left - E @ multipliers) ** 2)) / _cones(problem), LEAST)
    depth = np.clip(mu / np.maximum(multipliers, mu), LEAST, INSIDE)
    values[face], y[held] = depth[: len(body)], depth[len(body) :]
    X = (vectors * values[:, None, :]) @ np.swapaxes(vectors, 1, 2)
    out = v.copy()
    out[problem.places] = np.linalg.solve(
        np.swapaxes(problem.shapes[:, :, _I, _J], 1, 2), X[:, _I, _J, None]
    )[..., 0]
    out[entries] = y
    return _central(problem, out, mu)


# -- Newton ----------------------------------------------------------------------------------------


class _Direction(NamedTuple):
    """A step dv, and what it makes of S⁻¹X S⁻ᵀ and SᵀZ S (upper triangles, (bodies, 10)), of y and
    of its gradient, relative to y.
    """

    dv: np.ndarray
    dX: np.ndarray
    dZ: np.ndarray
    dy: np.ndarray
    dm: np.ndarray


class _Frame:
    """A point as its log-Cholesky numbers see it: S with X = S Sᵀ and SᵀZ S = diag(g), largest
    first; m = y·∂/∂y.
    """

    def __init__(self, problem: Problem, point: Point) -> None:
        self.problem, self.point, self.y = problem, point, point.v[problem.single[1]]
        L = np.linalg.cholesky(problem.X(point.v))
        g, Q = np.linalg.eigh(symmetric(np.swapaxes(L, 1, 2) @ point.Z @ L))
        g, Q, self.m = g[:, ::-1], Q[:, :, ::-1], self.y * point.y
        if min(np.min(g, initial=1.0), np.min(self.m, initial=1.0)) <= 0.0:
            raise np.linalg.LinAlgError("a multiplier is not positive")
        self.inverse = np.swapaxes(Q, 1, 2) @ np.linalg.inv(L)  # S⁻¹
        S = L @ Q
        # gradient of γ tr X
        self.pull = problem.gamma[:, None] * (np.swapaxes(S, 1, 2) @ S)[:, _I, _J]
        self.g, self.curvature, self.Z = g, g[:, _I], g[:, _I] * _ON
        self.mu = self._mean(None, 0.0)

    def stepped(self) -> _Frame | None:
        """Predictor and corrector, up to the boundary; None where rounding prevents it."""
        self._factorise()
        affine = self._direction(0.0, 0.0, 0.0)
        sigma = min(self._mean(affine, min(1.0, self._reach(affine))) / self.mu, 1.0) ** 3
        product = symmetric(_full(self.Z + affine.dZ) @ _full(affine.dX))[:, _I, _J]
        leave = min(FAR, max(10.0 * self.mu, NEAR[bool(np.any(self.problem.entropic))]))
        d = self._direction(
            sigma * self.mu, product - self.curvature * affine.dX, affine.dm * affine.dy
        )
        a = min(1.0, (1.0 - leave) * self._reach(d))
        if a < CRAMPED:  # the second order points out of the cone: back to its middle first
            central = self._direction(max(sigma, CENTRING) * self.mu, 0.0, 0.0)
            other = min(1.0, (1.0 - leave) * self._reach(central))
            d, a = (central, other) if other > a else (d, a)
        while a > SHORTEST and np.all(np.isfinite(d.dv)):
            Z = np.swapaxes(self.inverse, 1, 2) @ _full(self.Z + a * d.dZ) @ self.inverse
            try:
                return _Frame(
                    self.problem,
                    Point(self.point.v + a * d.dv, symmetric(Z), (self.m + a * d.dm) / self.y),
                )
            except np.linalg.LinAlgError:  # outside by rounding
                a *= 0.5
        return None

    def _factorise(self) -> None:
        self.slopes, self.rows = (
            _slopes(self.problem, self.inverse),
            np.sqrt(_TWICE * self.curvature),
        )
        self.factor = _Factor(
            self.problem, self.rows[..., None] * self.slopes, np.sqrt(self.m) / self.y
        )
        self.top = self.problem.t - self.problem.T @ self.point.v

    def _direction(
        self, mu: float, curved: np.ndarray | float, curved_y: np.ndarray | float
    ) -> _Direction:
        """Newton's direction to the minimum of F for this μ and ρ = 0, less second-order terms."""
        wanted, wanted_y = np.maximum(mu, self.problem.gamma)[:, None] * _ON - curved, mu - curved_y
        dv = self.factor.solve(
            self.top, _TWICE * (wanted - self.pull) / self.rows, wanted_y / np.sqrt(self.m)
        )
        dX = (self.slopes @ dv[self.problem.places][..., None])[..., 0]
        dy = dv[self.problem.single[1]] / self.y
        return _Direction(
            dv, dX, wanted - self.curvature * dX - self.Z, dy, wanted_y - self.m * dy - self.m
        )

    def _reach(self, d: _Direction) -> float:
        """How far this direction keeps bodies and multipliers positive."""
        root = np.sqrt(self.g)
        both = np.concatenate([_full(d.dX), _full(d.dZ) / (root[:, :, None] * root[:, None, :])])
        steepest = min(
            np.min(np.linalg.eigvalsh(both), initial=0.0),
            np.min(d.dy, initial=0.0),
            np.min(d.dm / self.m, initial=0.0),
        )
        return -1.0 / float(steepest) if steepest < 0.0 else np.inf

    def _mean(self, d: _Direction | None, a: float) -> float:
        """How far g and m are from where they should end, per constraint, after such a step."""
        if d is None:
            products, drives = np.sum(_TWICE * _ON * self.Z, axis=1), np.sum(self.m)
        else:
            products = np.sum(_TWICE * (_ON + a * d.dX) * (self.Z + a * d.dZ), axis=1)
            drives = np.sum((1.0 + a * d.dy) * (self.m + a * d.dm))
        return float(np.sum(np.abs(products - 4.0 * self.problem.gamma)) + drives) / _cones(
            self.problem
        )


class _Factor:
    """QR of T above square blocks of the bodies' rows and a diagonal for the drive terms."""

    def __init__(self, problem: Problem, blocks: np.ndarray, roots: np.ndarray | float) -> None:
        self._problem, k = problem, len(problem.t)
        self._Q, triangles = np.linalg.qr(blocks)
        below = np.zeros((k, k), order="F")
        below[problem.places[:, :, None], problem.places[:, None, :]] = triangles
        below[problem.single[1], problem.single[1]] = roots
        self.R, self._V, self._block, _ = lapack.dtpqrt(
            k, min(BLOCK, k), problem.T, below, overwrite_b=1
        )

    def solve(self, top: np.ndarray, bodies: np.ndarray, drives: np.ndarray) -> np.ndarray:
        """Solve for right sides of T's rows, of the bodies' (bodies, 10), and of drive terms."""
        right = np.zeros((len(top), 1), order="F")
        right[self._problem.places, 0] = (bodies[:, None, :] @ self._Q)[:, 0]
        right[self._problem.single[1], 0] = drives
        turned, *_ = lapack.dtpmqrt(
            len(top),
            self._V,
            self._block,
            np.asfortranarray(top[:, None]),
            right,
            trans="T",
            overwrite_b=1,
        )
        return solve_triangular(self.R, turned[:, 0])


def _cones(problem: Problem) -> int:
    return max(4 * len(problem.first) + len(problem.low), 1)


def _slopes(problem: Problem, inverse: np.ndarray) -> np.ndarray:
    """∂(upper triangle of S⁻¹X S⁻ᵀ)/∂v, (bodies, 10, 10): 2·∂log U_ii on the diagonal, ∂U_ij above
    it.
    """
    return np.swapaxes(
        (inverse[:, None] @ problem.shapes @ np.swapaxes(inverse, 1, 2)[:, None])[:, :, _I, _J],
        1,
        2,
    )


def _full(upper: np.ndarray) -> np.ndarray:
    """(bodies, 10) → (bodies, 4, 4), symmetric."""
    out = np.empty((len(upper), 4, 4))
    out[:, _I, _J] = out[:, _J, _I] = upper
    return out
