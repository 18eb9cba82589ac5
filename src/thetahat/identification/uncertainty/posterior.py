"""Draw physical robots from the law of an estimate.

The law is the Gaussian of data and prior about the minimum they have together, cut off at bounds
of physical and plausible robots. What the data determine spreads as the estimate states, all else
as the prior does:

    v = centre + L·ξ,   ξ ~ N(0, 1) where  J(θ_i) ⪰ 0,  G·v ≥ l;   x = c + E·v

Draws come from elliptical slice sampling [Murray2010], which needs no step size and, for a Gaussian
that is cut off, no more than to know whether a point is inside: ξ moves on the ellipse through
itself and a fresh Gaussian draw, by an angle that is shrunk until the point is inside. The entries
of ξ are independent before the cut, so each move may turn a few of them: those that the data
determine all at once, for bounds are seldom near, and those of the prior a few at a time, so that a
thin body does not hold up the others. Many chains run side by side, one for each draw up to
`CHAINS`. Hit-and-run moves along one direction at a time, and needs as many moves as there are
parameters for what one ellipse does; log-Cholesky coordinates have no boundary, but a law that is
cut off at one has its peak there, where these coordinates are infinite.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.linalg import solve_triangular

from thetahat.errors import NotIdentifiable, check_count
from thetahat.model.robot import Robot

CHAINS = 1024  # side by side
WARM_UP = 40  # sweeps of a chain before its first draw
BETWEEN = 10  # sweeps between two draws of a chain
TOGETHER = 6  # entries of ξ that the prior alone determines, moved at once
SHRINKS = 60  # of an angle: the ellipse passes through the point itself, which is inside
IDENTIFIED = 0.5  # share of a variance that noise makes: the data determine this direction
NUDGES = (0.0, 1e-9, 1e-6, 1e-4, 1e-2, 0.1, 0.3)  # towards the inside, from a point on a bound
_ENTRIES = np.triu_indices(4)


@dataclass(frozen=True, eq=False)
class Limits:
    """The set of physical and plausible robots, in the free variables v of x = fixed + expand·v."""

    shapes: np.ndarray  # (blocks, 10, 4, 4): Σ_j v[first_b + j]·shape_bj ⪰ 0
    first: np.ndarray  # (blocks,)
    G: np.ndarray  # (rows, k): G·v ≥ low
    low: np.ndarray  # (rows,)
    expand: np.ndarray  # (columns, k)
    fixed: np.ndarray  # (columns,)
    inner: np.ndarray  # (k,) a point well inside of the cones

    @cached_property
    def _upper(self) -> np.ndarray:
        """(blocks, 10, 10) the upper triangles of the shapes."""
        return np.ascontiguousarray(self.shapes[:, :, _ENTRIES[0], _ENTRIES[1]])

    def x(self, v: np.ndarray) -> np.ndarray:
        """Return x of these v, (…, columns)."""
        return np.asarray(self.fixed + v @ self.expand.T)

    def inside(self, v: np.ndarray) -> np.ndarray:
        """Return which v, (n, k), are inside, (n,) bool."""
        rows = np.all(v @ self.G.T >= self.low, axis=1)
        places = self.first[:, None] + np.arange(10)
        X = np.swapaxes(v[:, places], 0, 1) @ self._upper  # (blocks, n, 10)
        return np.asarray(rows & np.all(_definite(np.moveaxis(X, -1, 0)), axis=0))


def _definite(a: np.ndarray) -> np.ndarray:
    """Whether symmetric 4×4 matrices are positive definite; a: (10, …) upper triangles."""
    a00, a01, a02, a03, a11, a12, a13, a22, a23, a33 = a
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        l1, l2, l3 = a01 / a00, a02 / a00, a03 / a00
        b11, b12, b13 = a11 - l1 * a01, a12 - l1 * a02, a13 - l1 * a03
        b22, b23, b33 = a22 - l2 * a02, a23 - l2 * a03, a33 - l3 * a03
        m2, m3 = b12 / b11, b13 / b11
        c22, c23, c33 = b22 - m2 * b12, b23 - m2 * b13, b33 - m3 * b13
        last = c33 - c23 / c22 * c23
        return np.asarray((a00 > 0.0) & (b11 > 0.0) & (c22 > 0.0) & (last > 0.0))


@dataclass(frozen=True, eq=False)
class Posterior:
    """The law of an estimate's free variables v."""

    robot: Robot
    start: np.ndarray  # (k,) the estimate: a point inside, or on a bound
    centre: np.ndarray  # (k,) where data and prior together have their minimum, bounds or not
    data: np.ndarray  # (k, r) change of v per unit of each whitened combination of torques
    prior: np.ndarray  # (k, s) change of v where the prior is off, direction by direction
    limits: Limits

    def with_limits(self, limits: Limits) -> Posterior:
        """Return the same law, cut off elsewhere."""
        return replace(self, limits=limits)

    def draw(self, count: int, seed: int, noise: np.ndarray) -> RobotSamples:
        """Draw robots; noise: (r, r) covariance of the whitened combinations of torques."""
        count = check_count("n", count, least=1)
        rng = np.random.default_rng(check_count("seed", seed, least=0))
        L, identified = self._axes(noise)
        chains = min(count, CHAINS)
        walk = _Walk(self, L, identified, rng, chains)
        drawn: list[np.ndarray] = []
        while sum(map(len, drawn)) < count:
            walk.sweep(BETWEEN if drawn else WARM_UP)
            drawn.append(self.limits.x(walk.v))
        return RobotSamples(self.robot, np.concatenate(drawn)[:count])

    def _axes(self, noise: np.ndarray) -> tuple[np.ndarray, int]:
        """(L of v = centre + L·ξ, how many entries of ξ come first as the data determine them)."""
        values, vectors = np.linalg.eigh(noise)
        noisy = self.data @ (vectors * np.sqrt(np.maximum(values, 0.0)))
        R = np.linalg.qr(np.hstack([noisy, self.prior]).T, mode="r")
        shares = solve_triangular(R, noisy, trans=1)
        values, vectors = np.linalg.eigh(shares @ shares.T)
        order = np.argsort(-values)
        return R.T @ vectors[:, order], int(np.sum(values > IDENTIFIED))

    def first(self) -> np.ndarray:
        """Return a point inside, (k,): the estimate, or next to it where it sits on a bound."""
        for step in NUDGES:
            v = self.start + step * (self.limits.inner - self.start)
            if self.limits.inside(v[None])[0]:
                return v
        raise NotIdentifiable(
            "no robot can be drawn: the estimate lies outside of its own bounds; relax them"
        )


class _Walk:
    """Chains of elliptical slice sampling, side by side."""

    def __init__(
        self,
        law: Posterior,
        L: np.ndarray,
        identified: int,
        rng: np.random.Generator,
        chains: int,
    ) -> None:
        self.limits, self.L, self.rng, self.identified = law.limits, L, rng, identified
        begin = law.first()
        self.v = np.tile(begin, (chains, 1))
        self.offset = np.tile(np.linalg.solve(L, begin - law.centre), (chains, 1))  # ξ

    def sweep(self, times: int) -> None:
        """Move every entry of ξ, this many times."""
        k = self.L.shape[1]
        for _ in range(times):
            self._turn(np.arange(self.identified))
            rest = self.identified + self.rng.permutation(k - self.identified)
            for at in range(0, len(rest), TOGETHER):
                self._turn(rest[at : at + TOGETHER])

    def _turn(self, entries: np.ndarray) -> None:
        """Turn these entries of ξ towards a fresh draw, each chain by its own angle."""
        if not len(entries):
            return
        chains = len(self.v)
        fresh = self.rng.standard_normal((chains, len(entries)))
        now = self.offset[:, entries]
        along, across = now @ self.L[:, entries].T, fresh @ self.L[:, entries].T
        fixed = self.v - along
        angle = self.rng.uniform(0.0, 2.0 * np.pi, chains)
        low, high = angle - 2.0 * np.pi, angle.copy()
        left = np.arange(chains)
        for _ in range(SHRINKS):
            c, s = np.cos(angle[left])[:, None], np.sin(angle[left])[:, None]
            trial = fixed[left] + c * along[left] + s * across[left]
            inside = self.limits.inside(trial)
            done = left[inside]
            self.v[done] = trial[inside]
            self.offset[np.ix_(done, entries)] = c[inside] * now[done] + s[inside] * fresh[done]
            left = left[~inside]
            if not len(left):
                return
            below = angle[left] < 0.0
            low[left] = np.where(below, angle[left], low[left])
            high[left] = np.where(below, high[left], angle[left])
            angle[left] = self.rng.uniform(low[left], high[left])


@dataclass(frozen=True, eq=False)
class RobotSamples:
    """Physical robots drawn from the law of an estimate.

    ``samples[3]`` is the fourth robot; iterating yields all of them.
    """

    robot: Robot  # whose parameters were estimated
    x: np.ndarray  # (n, columns) θ and drive terms of every draw

    @property
    def theta(self) -> np.ndarray:
        """Inertial parameters of every draw, (n, 10·bodies), in the paper's order."""
        return self.x[:, : len(self.robot.theta)]

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Robot:
        return self.robot.with_parameters(self.x[index])

    def __iter__(self) -> Iterator[Robot]:
        return (self[index] for index in range(len(self)))
