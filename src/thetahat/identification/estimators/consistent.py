"""Physically consistent parameters: the best fit of which every body could be built, by a
semidefinite program.

minimise f(x) (objective.py)   subject to   J(θ_i) ⪰ 0 for every body i [Wensing2018],   friction
and rotor inertia ≥ 0
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from thetahat.identification import factor
from thetahat.identification.consistency import interior_point
from thetahat.identification.consistency.constraints import Bounds, Feasible, Tie, feasible
from thetahat.identification.consistency.feasible_point import Inside, find_inside
from thetahat.identification.consistency.misfit import Objective, objective, solution_of
from thetahat.identification.estimate import Certificate, Estimate
from thetahat.identification.estimators.estimator import covariance_of_data, estimated, untouched
from thetahat.identification.information import Information
from thetahat.model import parameters
from thetahat.model.parameters import SIZE
from thetahat.model.robot import Robot

# J ⪰ MARGIN·tr(J)·1: what a file keeps of it, in 17 digits and as a sum of links, stays above 1e-9
MARGIN = 1e-8
START = 1e-2  # eigenvalues of the bodies to start from, relative to the largest
KNOWN = 1e6  # times the data's largest row: weight of what is known exactly
UNSEEN = 1e-10  # relative singular value below which the data do not see a direction
# weight of the prior in directions that nothing else decides, where no prior was asked for
FAINT = 1e-4
# of 1 + f, in noise variances: within it parameters are as near to the best as a thousandth of
# their standard deviation
CERTAIN = 1e-6
CONTRADICTED = (
    100.0  # noise variances per row that constraints may cost before they count as noise themselves
)
SOLVER = "interior point"
PHYSICAL = "physical bodies"


@dataclass(frozen=True, eq=False)
class Consistent:
    """The physically consistent parameters that fit best; what the data do not see stays at the
    nominal robot.

    prior: a robot, θ, or x = [θ; drive terms]; None: the information's own robot. weight: of the
    prior, whose standard deviation is 1/√weight times the size of each parameter (0: no prior, but
    for directions that nothing else decides). metric: "euclidean", or "entropic", the same in every
    frame. weights: "iterated" weighs each joint by its residual until that settles, "joint" once,
    None all torques alike.
    bounds: limits per body. total_mass: of all moving bodies, one number or (least, most) [kg].
    frozen: bodies that keep the prior's values. tied: pairs of bodies that are alike.
    """

    prior: np.ndarray | Robot | None = None
    weight: float = 1e-2
    metric: str = "euclidean"
    weights: str | None = "iterated"
    bounds: Mapping[str, Bounds] = field(default_factory=dict)
    total_mass: float | tuple[float, float] | None = None
    frozen: tuple[str, ...] = ()
    tied: tuple[Tie, ...] = ()

    name = "consistent"

    def estimate(self, information: Information) -> Estimate:
        """The estimate, with a certificate. A conflict of bounds is a status with advice, and
        leaves the prior's values.
        """
        f = objective(
            information,
            prior=self.prior,
            weight=self.weight,
            metric=self.metric,
            weights=self.weights,
        )
        allowed = feasible(
            f.columns,
            f.x0,
            bounds=self.bounds,
            total_mass=self.total_mass,
            frozen=self.frozen,
            tied=self.tied,
        )
        solution = solution_of(f)
        unseen = untouched(information, solution)
        x, certificate, status, advice = Program(f, allowed, unseen=unseen).solved()
        misfit = f.misfit(x)
        if misfit > CONTRADICTED and status != "infeasible":
            f = f.tempered(misfit)
            x, certificate, status, more = Program(f, allowed, unseen=unseen).solved()
            left = (
                "what is demanded of the bodies contradicts the log: the fit leaves"
                f" {np.sqrt(misfit):.2g} times the noise"
            )
            advice = (
                (
                    f"{left}, which counts as noise now; check bounds, frozen and tied links, and"
                    " the robot's geometry"
                ),
                *more,
            )
        covariance = covariance_of_data(solution, f.weights.variance)
        return estimated(
            information,
            solution,
            method=self.name,
            x=x,
            covariance=covariance,
            status=status,
            certificate=certificate,
            advice=advice,
        )


class Program:
    """The objective over the feasible set in the free variables v, x = c + E·v, and the way
    back.
    """

    def __init__(
        self, f: Objective, allowed: Feasible, *, unseen: np.ndarray, thick: bool = False
    ) -> None:
        """unseen: columns of x that the data do not touch. thick: ask for MARGIN beside the
        entropic prior, too.

        That prior alone keeps bodies from being flat, but not by how much.
        """
        self.f, self.allowed, self.unseen, self.thick = f, allowed, unseen, thick
        self.entropic = f.metric == "entropic" and f.weight > 0.0
        self.broken = False  # whether what is frozen breaks a bound
        G, low, rows = self._inequalities()
        shapes, first, gamma, blocks = self._blocks()
        self.known = self._known()
        self.names = [*rows, *blocks]
        T = factor.triangle(np.asfortranarray(self._rows()))
        self.problem = interior_point.Problem(
            np.asfortranarray(T[:-1, :-1]),
            T[:-1, -1],
            0.5 * T[-1, -1] ** 2,
            shapes,
            first,
            gamma,
            G,
            low,
        )

    def x(self, v: np.ndarray) -> np.ndarray:
        """x = c + E·v."""
        return self.allowed.x(v, self.f.scale)

    # -- the problem -------------------------------------------------------------------------------

    def _rows(self) -> np.ndarray:
        """[A | b] of all that is quadratic: what is known exactly, the data, the prior. Largest
        rows first, as [Cox1998] asks.
        """
        f, M = self.f, self.f.information.base.map
        data = _joined(f.R @ self.allowed.through(M, f.scale), f.z - f.R @ (M @ self.allowed.fixed))
        heavy = KNOWN * max(float(np.max(np.abs(data[:, :-1]), initial=0.0)), 1.0)
        return np.vstack([heavy * self.known, data, self._prior()])

    def _known(self) -> np.ndarray:
        """[F | e] of what is known exactly, F·v = e, rows of size one."""
        equal = self.allowed.low == self.allowed.high
        rows = self.allowed.rows[equal]
        F = self.allowed.through(rows, self.f.scale)
        size = np.linalg.norm(F, axis=1)
        e = self.allowed.low[equal] - rows @ self.allowed.fixed
        self.broken |= bool(
            np.any(np.abs(e[size == 0.0]) > 1e-9 * np.abs(self.allowed.low[equal][size == 0.0]))
        )
        return _joined(F, e)[size > 0.0] / size[size > 0.0, None]

    def _prior(self) -> np.ndarray:
        """Rows of ½‖B v − d‖²: the Euclidean prior; beside the entropic one of drive terms alone;
        without, of what nothing else decides.
        """
        f = self.f
        offset = (f.x0 - self.allowed.fixed) / f.scale
        if f.weight:
            mine = np.arange(f.columns.inertial if self.entropic else 0, f.columns.count)
            mine = mine[self.allowed.expand[mine] >= 0]
            B = self.allowed.through(np.eye(f.columns.count)[mine] / f.scale[mine, None], f.scale)
            return np.sqrt(f.weight) * _joined(B, offset[mine])
        A = f.R @ self.allowed.through(f.information.base.map, f.scale)
        _, s, Vt = np.linalg.svd(A)
        rank = int(np.sum(s > max(np.sqrt(FAINT), UNSEEN * s[0]))) if len(s) else 0
        hidden = Vt[
            rank:
            # orthonormal: changes of v that the data do not see, or know a hundred times worse than
            # their size
        ]
        return np.sqrt(FAINT) * _joined(hidden, hidden @ (f.x0 / f.scale)[self.allowed.free])

    def _inequalities(self) -> tuple[np.ndarray, np.ndarray, list[str]]:
        """(G, low, names) of G·v ≥ low, rows of size one: friction and rotors, then bounds."""
        f, allowed = self.f, self.allowed
        linear = np.array(allowed.names[: len(allowed.low)], dtype=object)
        lower = np.isfinite(allowed.low) & (allowed.low < allowed.high)
        upper = np.isfinite(allowed.high) & (allowed.low < allowed.high)
        G = np.vstack(
            [np.eye(f.columns.count)[f.nonnegative], allowed.rows[lower], -allowed.rows[upper]]
        )
        low = (
            np.concatenate([np.zeros(len(f.nonnegative)), allowed.low[lower], -allowed.high[upper]])
            - G @ allowed.fixed
        )
        names = [
            *(f"{f.columns.names[k]} ≥ 0" for k in f.nonnegative),
            *linear[lower],
            *linear[upper],
        ]
        rows = self.allowed.through(G, f.scale)
        size = np.linalg.norm(rows, axis=1)
        moved = (
            size > 0.0
        )  # a row that no free variable moves is met, or it is not: the solver has no say
        self.broken |= bool(np.any(low[~moved] > 1e-9))
        return (
            rows[moved] / size[moved, None],
            low[moved] / size[moved],
            [name for name, kept in zip(names, moved, strict=True) if kept],
        )

    def _blocks(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[str]]:
        """(shapes, first, γ, names) of the entropic prior, of bodies that are to be physical, of
        ellipsoids.
        """
        f, allowed, basis = self.f, self.allowed, parameters.to_pseudo_inertia(np.eye(SIZE))
        parts = []
        if self.entropic:
            W = np.linalg.inv(np.linalg.cholesky(f.references[allowed.moved]))  # W·J₀·Wᵀ = 1
            parts.append((allowed.moved, W, basis, f.weight))
        if self.thick or not self.entropic:
            mass, length = (unit[allowed.bodies] for unit in f.units)
            own = (
                1.0
                / np.sqrt(mass)[:, None]
                / np.column_stack([length, length, length, np.ones_like(length)])
            )
            kept = basis - MARGIN * np.trace(basis, axis1=1, axis2=2)[:, None, None] * np.eye(4)
            parts.append((allowed.bodies, own[:, :, None] * np.eye(4), kept, 0.0))
        shapes, first, gamma, names = [], [], [], []
        for bodies, W, matrices, weight in parts:
            places, factors = self._places(bodies)
            shapes.append(
                factors[..., None, None] * (W[:, None] @ matrices @ np.swapaxes(W, 1, 2)[:, None])
            )
            first.append(places[:, 0])
            gamma.append(np.full(len(bodies), weight))
            names += [PHYSICAL] * len(bodies)
        for cone, name in zip(allowed.cones, allowed.names[len(allowed.low) :], strict=True):
            shape, at = self._ellipsoid(cone)
            shapes.append(shape)
            first.append(at)
            gamma.append(np.zeros(len(at)))
            names += [name] * len(at)
        return np.concatenate(shapes), np.concatenate(first), np.concatenate(gamma), names

    def _places(self, bodies: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(positions in v, factors to θ) of these bodies' ten numbers."""
        span = SIZE * bodies[:, None] + np.arange(SIZE)
        places = self.allowed.expand[span]
        return places, self.allowed.sign[span] * self.f.scale[self.allowed.free[places]]

    def _ellipsoid(self, cone: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(shape, first) of ‖F x‖ ≤ m as a block [m·1, F x; (F x)ᵀ, m] ⪰ 0, which needs no kind of
        its own; empty for a frozen body.
        """
        body = int(np.flatnonzero(np.any(cone, axis=0))[0]) // SIZE
        if self.allowed.expand[SIZE * body] < 0:
            self.broken |= bool(
                np.linalg.norm(cone[1:] @ self.allowed.fixed)
                > (cone[0] @ self.allowed.fixed) * (1.0 + 1e-9)
            )
            return np.zeros((0, SIZE, 4, 4)), np.zeros(0, dtype=int)
        places, factors = self._places(np.array([body]))
        rows = cone[:, SIZE * body : SIZE * body + SIZE] * factors[0]  # (4, 10)
        shape = rows[0][:, None, None] * np.eye(4)
        shape[:, :3, 3] = shape[:, 3, :3] = rows[1:].T
        return shape[None] / np.max(np.abs(rows)), places[:, 0]

    # -- the answer --------------------------------------------------------------------------------

    def solved(self) -> tuple[np.ndarray, Certificate, str, tuple[str, ...]]:
        """(x, certificate, status, advice)."""
        inside = None if self.broken else find_inside(self.problem, self.start(), known=self.known)
        if inside is None or inside.depth <= 0.0:
            return self._infeasible(inside)
        found = interior_point.minimise(self.problem, inside.v)
        x = self.snapped(self.x(found.v))
        if (
            self.entropic
            and not self.thick
            and smallest_eigenvalue(x[: self.f.columns.inertial]) < MARGIN
        ):
            return Program(self.f, self.allowed, unseen=self.unseen, thick=True).solved()
        certificate = self._certificate(
            x,
            found.value,
            found.gap,
            float(np.max(np.abs(self._missed(found.v)), initial=0.0)),
            found.iterations,
        )
        if found.gap <= CERTAIN * (1.0 + found.value):
            return x, certificate, "solved", ()
        advice = (
            f"the fit is within {found.gap:.2g} noise variances of the best there is, and rounding"
            " let it come no nearer"
        )
        return (
            x,
            certificate,
            "almost_solved",
            (
                (
                    f"{advice}; a larger weight of the prior, or a log with more motion, makes it"
                    " sharper"
                ),
            ),
        )

    def _certificate(
        self, x: np.ndarray, value: float, gap: float, infeasibility: float, iterations: int
    ) -> Certificate:
        return Certificate(
            value,
            gap,
            infeasibility,
            smallest_eigenvalue(x[: self.f.columns.inertial]),
            iterations,
            SOLVER,
        )

    def _missed(self, v: np.ndarray) -> np.ndarray:
        """How far what is known exactly is from being met, rows of size one."""
        return self.known[:, :-1] @ v - self.known[:, -1]

    def start(self) -> np.ndarray:
        """The prior's bodies, fleshed out where they are thin, and some friction."""
        f = self.f
        own = f.x0 / f.scale
        bodies = parameters.project(own[: f.columns.inertial].reshape(-1, SIZE), START).ravel()
        return np.concatenate([bodies, np.maximum(own[f.columns.inertial :], 0.0) + 0.1])[
            self.allowed.free
        ]

    def snapped(self, x: np.ndarray) -> np.ndarray:
        """x with what the data do not see exactly at the nominal robot, wherever the body stays as
        physical as it was.
        """
        f = self.f
        unseen = self.unseen & (self.allowed.expand >= 0)
        unseen[f.nonnegative] &= f.x0[f.nonnegative] >= 0.0
        trial = np.where(unseen, f.x0, x)
        inertial = f.columns.inertial
        out = np.where(f.columns.is_inertial, x, trial)
        thin = _eigenvalues(trial[:inertial]) < MARGIN
        for b in np.flatnonzero(np.any(unseen[:inertial].reshape(-1, SIZE), axis=1) & ~thin):
            out[SIZE * b : SIZE * b + SIZE] = trial[SIZE * b : SIZE * b + SIZE]
        plain = (
            not len(self.allowed.rows)
            and not self.allowed.cones
            and len(self.allowed.bodies) == len(self.allowed.moved)
        )
        return out if plain and f.value(out) <= f.value(x) else x

    def _infeasible(
        self, inside: Inside | None
    ) -> tuple[np.ndarray, Certificate, str, tuple[str, ...]]:
        """The prior's values, and which demands conflict."""
        f = self.f
        names = list(self.allowed.names)
        if inside is not None:
            exact = [
                name
                for name, low, high in zip(names, self.allowed.low, self.allowed.high, strict=False)
                if low == high
            ]
            names = exact + [
                name
                for name, hard in zip(self.names, inside.hard, strict=True)
                if hard and name != PHYSICAL
            ]
        depth = 0.0 if inside is None else -inside.depth
        certificate = self._certificate(
            f.x0, f.data(f.x0), 0.0, depth, 0 if inside is None else inside.iterations
        )
        return (
            f.x0,
            certificate,
            "infeasible",
            (
                (
                    f"no physical robot meets all of: {'; '.join(dict.fromkeys(names))}; relax one"
                    " of them"
                ),
            ),
        )


def _joined(A: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.column_stack([np.asarray(A), b])


def _eigenvalues(theta: np.ndarray) -> np.ndarray:
    """The least eigenvalue of every body's pseudo-inertia relative to its trace, (bodies,)."""
    J = parameters.to_pseudo_inertia(theta.reshape(-1, SIZE))
    trace = np.trace(J, axis1=1, axis2=2)
    return np.linalg.eigvalsh(J)[:, 0] / np.where(trace > 0.0, trace, 1.0)


def smallest_eigenvalue(theta: np.ndarray) -> float:
    """The least of them, over all bodies of θ."""
    return float(np.min(_eigenvalues(theta), initial=1.0))
