"""Draw physical robots from the law of an estimate.

The law is the Gaussian of data and prior about the minimum they have together, cut off at bounds
of physical and plausible robots:

    v = centre + L·ξ,   ξ ~ N(0, 1) where  J(θ_i) ⪰ 0,  G·v ≥ l;   x = c + E·v

Entries of ξ that the data determine come first, ξ = (ξ_d, ξ_p). Off the boundary, ξ_d is drawn from
N(0, 1) wherever some ξ_p makes a physical robot of it, and then ξ_p given ξ_d: what the data
determine spreads as the estimate states, and the prior's part, much of which no body can have, does
not feed back on it (a cut model [Plummer2015]). Cut off together, ξ_d that leave the prior's part
much room would be drawn more often than the data say. An estimate is off the boundary if its centre
is physical and most draws of ξ_d have a physical robot; at the boundary all of ξ is cut off
together, which is the law of the data and of a prior that knows of the bounds.

Draws come from elliptical slice sampling [Murray2010], which needs no step size and, for a Gaussian
that is cut off, no more than to know whether a point is inside: ξ moves on the ellipse through
itself and a fresh Gaussian draw, by an angle that is shrunk until the point is inside. Entries of ξ
are independent before the cut, so each move turns a few of them only: turned all at once, they
would hardly move from a corner of several bounds, and a thin body would hold up the others. A given
ξ_d is approached on a straight line as far as the set goes, in turn with moves of ξ_p that make
way. Many chains run side by side, one for each draw up to `CHAINS`. Hit-and-run moves along one
direction at a time, and needs as many moves as there are parameters for what one ellipse does; log-
Cholesky coordinates have no boundary, but a law that is cut off at one has its peak there, where
these coordinates are infinite.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.linalg import solve_triangular

from thetahat.dynamics import batch
from thetahat.errors import NotIdentifiable, check_count
from thetahat.model.robot import Robot

CHAINS = 1024  # side by side
WARM_UP = 100  # sweeps of a chain before its first draw
BETWEEN = 20  # sweeps between two draws of a chain
TOGETHER = 3  # entries of ξ moved at once
IDENTIFIED = 0.5  # share of a variance that noise makes: the data determine this direction
ROUNDS = 100  # of moving the prior's part out of the way of a draw of the data's part
ATTEMPTS = 30  # draws of the data's part for which a physical robot is looked for
OFF_BOUNDARY = 0.5  # share of these draws that must have one
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

    def image(self, v: np.ndarray) -> np.ndarray:
        """Return the blocks' upper triangles and G·v, (…, 10·blocks + rows)."""
        places = self.first[:, None] + np.arange(10)
        X = np.einsum("...bj,bje->...be", v[..., places], self._upper)
        return np.concatenate([X.reshape(*v.shape[:-1], -1), v @ self.G.T], axis=-1)

    def inside(self, v: np.ndarray) -> bool:
        """Whether one v, (k,), is strictly inside."""
        X = np.einsum("bj,bjxy->bxy", v[self.first[:, None] + np.arange(10)], self.shapes)
        return bool(np.all(self.G @ v >= self.low)) and bool(
            np.min(np.linalg.eigvalsh(X), initial=1.0) > 0.0
        )


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
        return self.with_noise(noise).draw(count, seed)

    def with_noise(self, noise: np.ndarray) -> RobotLaw:
        """Return the law of robots where torques have this noise, (r, r) as in `draw`."""
        L, identified = self._axes(noise)
        return RobotLaw(self.robot, self.start, self.centre, L, identified, self.limits)

    def _axes(self, noise: np.ndarray) -> tuple[np.ndarray, int]:
        """(L of v = centre + L·ξ, how many entries of ξ come first as the data determine them)."""
        values, vectors = np.linalg.eigh(noise)
        noisy = self.data @ (vectors * np.sqrt(np.maximum(values, 0.0)))
        _, R = np.linalg.qr(np.hstack([noisy, self.prior]).T)
        shares = solve_triangular(R, noisy, trans=1)
        values, vectors = np.linalg.eigh(shares @ shares.T)
        order = np.argsort(-values)
        return R.T @ vectors[:, order], int(np.sum(values > IDENTIFIED))


@dataclass(frozen=True, eq=False)
class RobotLaw:
    """The law that robots are drawn from: v = centre + L·ξ, within limits."""

    robot: Robot
    start: np.ndarray  # (k,) the estimate: a point inside, or on a bound
    centre: np.ndarray  # (k,)
    L: np.ndarray  # (k, k)
    identified: int  # entries of ξ that the data determine; they come first
    limits: Limits

    def draw(self, count: int, seed: int = 0) -> RobotSamples:
        """Draw so many robots; the same seed draws the same ones."""
        count = check_count("n", count, least=1)
        rng = np.random.default_rng(check_count("seed", seed, least=0))
        identified = self.identified
        chains = min(count, CHAINS)
        walk = _Walk(self, rng, chains)
        drawn: list[np.ndarray] = []
        physical = walk.renew() if identified and self.limits.inside(self.centre) else 0.0
        off_boundary = physical >= OFF_BOUNDARY
        while sum(map(len, drawn)) < count:
            if off_boundary and drawn:
                walk.renew()
            walk.sweep(BETWEEN if drawn else WARM_UP, first=identified if off_boundary else 0)
            drawn.append(self.limits.x(walk.v))
        share = physical if off_boundary else None
        return RobotSamples(self.robot, np.concatenate(drawn)[:count], share)

    def first(self) -> np.ndarray:
        """Return a point inside, (k,): the estimate, or next to it where it sits on a bound."""
        for step in NUDGES:
            v: np.ndarray = self.start + step * (self.limits.inner - self.start)
            if self.limits.inside(v):
                return v
        raise NotIdentifiable(
            "no robot can be drawn: the estimate lies outside of its own bounds; relax them"
        )


class _Walk:
    """Chains of elliptical slice sampling, side by side."""

    def __init__(self, law: RobotLaw, rng: np.random.Generator, chains: int) -> None:
        self._centre, self._L, self._identified = law.centre, law.L, law.identified
        self._rng = rng
        limits, L = law.limits, law.L
        self._blocks = len(limits.first)
        self._origin = limits.image(law.centre) - np.concatenate(
            [np.zeros(10 * self._blocks), limits.low]
        )
        self._images = np.ascontiguousarray(limits.image(L.T))
        self._xi = np.tile(np.linalg.solve(L, law.first() - law.centre), (chains, 1))
        self._states = rng.integers(0, 2**63, chains, dtype=np.uint64)
        self._scratch = np.zeros((batch.CORES, 5, len(self._origin)))
        self._pool = ThreadPoolExecutor(batch.CORES)

    @property
    def v(self) -> np.ndarray:
        """Where the chains are, (chains, k)."""
        return np.asarray(self._centre + self._xi @ self._L.T)

    def sweep(self, times: int, *, first: int = 0, chains: np.ndarray | None = None) -> None:
        """Move every entry of ξ from the first one on, of all chains or these, so many times."""
        from thetahat.kernels import slice_sampling

        chosen = np.arange(len(self._xi)) if chains is None else chains
        k = self._xi.shape[1]
        starts = np.concatenate([np.arange(first, k, TOGETHER), [k]]).astype(np.int64)
        for _ in range(times):
            fresh = self._rng.standard_normal((len(chosen), k))
            order = np.concatenate([np.arange(first), first + self._rng.permutation(k - first)])

            def turn(
                part: slice,
                work: np.ndarray,
                fresh: np.ndarray = fresh,
                order: np.ndarray = order,
            ) -> None:
                slice_sampling.sweep(
                    self._xi,
                    fresh[part],
                    order,
                    starts,
                    self._origin,
                    self._images,
                    self._blocks,
                    self._states,
                    chosen[part],
                    work,
                )

            self._on_cores(turn, len(chosen))

    def renew(self) -> float:
        """Draw what the data determine anew, with a physical robot for each draw.

        Returns the share of these draws that have one.
        """
        known = self._identified
        target = self._rng.standard_normal((len(self._xi), known))
        away, reached = np.arange(len(self._xi)), 0.0
        for attempt in range(ATTEMPTS):
            for _ in range(ROUNDS):
                self._approach(target, away)
                away = away[np.any(self._xi[away, :known] != target[away], axis=1)]
                if not len(away):
                    break
                self.sweep(1, first=known, chains=away)
            if not attempt:
                reached = 1.0 - len(away) / len(self._xi)
            if not len(away) or reached < OFF_BOUNDARY:
                break
            target[away] = self._rng.standard_normal((len(away), known))
        return reached

    def _approach(self, target: np.ndarray, chosen: np.ndarray) -> None:
        from thetahat.kernels import slice_sampling

        def go(part: slice, work: np.ndarray) -> None:
            slice_sampling.approach(
                self._xi, target, self._origin, self._images, self._blocks, chosen[part], work
            )

        self._on_cores(go, len(chosen))

    def _on_cores(self, work: Callable[[slice, np.ndarray], None], count: int) -> None:
        """Do the work on a part of so many chains per core, each with scratch of its own."""
        edges = np.linspace(0, count, batch.CORES + 1).astype(int)
        parts = [slice(begin, stop) for begin, stop in itertools.pairwise(edges)]
        list(self._pool.map(work, parts, self._scratch, timeout=batch.LONGEST_WAIT))


@dataclass(frozen=True, eq=False)
class RobotSamples:
    """Physical robots drawn from the law of an estimate.

    ``samples[3]`` is the fourth robot; iterating yields all of them.
    """

    robot: Robot  # whose parameters were estimated
    x: np.ndarray  # (n, columns) θ and drive terms of every draw
    # of what the data determine, drawn as the estimate states: the share that physical robots have,
    # to which draws are confined; None: the estimate is at the boundary, the whole law is cut off
    physical_share: float | None = None

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
