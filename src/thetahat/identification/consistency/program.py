"""The semidefinite program of a physically consistent fit, and its solution with a certificate.

minimise f(x) (misfit.py)   subject to   J(θ_i) ⪰ 0 for every body i [Wensing2018],
                                         friction and rotor inertia ≥ 0,
                                         friction that dissipates (friction_bounds.py),
                                         x = c + E·v and the bounds of constraints.py
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from thetahat.identification import factor
from thetahat.identification.consistency import interior_point
from thetahat.identification.consistency.constraints import Cone, Feasible
from thetahat.identification.consistency.feasible_point import FeasiblePoint, find_feasible_point
from thetahat.identification.consistency.friction_bounds import friction_bounds
from thetahat.identification.consistency.misfit import Objective
from thetahat.identification.estimate import ActiveConstraint, Certificate
from thetahat.identification.uncertainty.posterior import Limits
from thetahat.model import parameters
from thetahat.model.parameters import SIZE

# J ⪰ MARGIN·tr(J)·1: written with 17 digits, and as a sum of links, it stays above 1e-9
MARGIN = 1e-8
START = 1e-2  # eigenvalues of the bodies of the initial guess, relative to the largest
KNOWN = 1e6  # weight of equality constraints, relative to the data's largest row
UNSEEN = 1e-10  # relative singular value below which the data do not determine a direction
# weight of the prior in directions that nothing else determines, where no prior was requested
FAINT = 1e-4
# duality gap relative to 1 + f, in noise variances: parameters are then within a thousandth of
# their standard deviation of the optimum
CERTAIN = 1e-6
PHYSICAL = "physical bodies"
ON_BOUND = 5e-3  # relative slack of a bound that a fit sits on


@dataclass(frozen=True, eq=False)
class ProgramSolution:
    """Parameters at which a solver stopped, and how good they are."""

    x: np.ndarray  # (columns,)
    certificate: Certificate
    status: str
    advice: tuple[str, ...] = ()
    # the program solved, and its minimum; None where there is none
    solved: tuple[Program, interior_point.Minimum] | None = None


@dataclass(eq=False)
class _Blocks:
    """Matrix blocks of the program, as `interior_point.Problem` takes them, and their names."""

    shapes: list[np.ndarray] = field(default_factory=list)
    first: list[np.ndarray] = field(default_factory=list)
    gamma: list[np.ndarray] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def add(self, shapes: np.ndarray, first: np.ndarray, gamma: float, name: str) -> None:
        self.shapes.append(shapes)
        self.first.append(first)
        self.gamma.append(np.full(len(first), gamma))
        self.names += [name] * len(first)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Linear inequalities G·v ≥ low with rows of norm one, and their names."""

    G: np.ndarray
    low: np.ndarray
    names: list[str]
    size: np.ndarray  # (rows,) norms that they had: multipliers of the bounds themselves are y/size
    soft: list[bool | None]  # whether a bound may be given up; None: no bound of a body


class Program:
    """The objective over the feasible set, in the free variables v of x = c + E·v."""

    def __init__(
        self,
        f: Objective,
        allowed: Feasible,
        *,
        unseen: np.ndarray,
        thick: bool = False,
        friction: bool = True,
    ) -> None:
        """Set up the program.

        Args:
            f: objective.
            allowed: feasible set.
            unseen: (columns,) bool, columns of x that the data do not touch.
            thick: require MARGIN beside the entropic prior, too. That prior alone keeps bodies from
                being flat, but not by how much.
            friction: require friction to dissipate, and to be no larger than the torque seen.

        """
        self.f, self.allowed, self.unseen, self.thick = f, allowed, unseen, thick
        self.friction = friction_bounds(f.columns, f.statistics) if friction else None
        self.entropic = f.entropic_weight > 0.0
        self.violated = False  # whether a frozen body violates a bound
        self.rows, blocks = self._inequalities(), self._blocks()
        self.known = self._known()
        self.names = [*self.rows.names, *blocks.names]
        self.quadratic = self._rows()
        T = factor.triangle(np.asfortranarray(self.quadratic))
        self.problem = interior_point.Problem(
            T=np.asfortranarray(T[:-1, :-1]),
            t=T[:-1, -1],
            constant=0.5 * T[-1, -1] ** 2,
            shapes=np.concatenate(blocks.shapes),
            first=np.concatenate(blocks.first),
            gamma=np.concatenate(blocks.gamma),
            G=self.rows.G,
            low=self.rows.low,
        )

    def x(self, v: np.ndarray) -> np.ndarray:
        """Return x = c + E·v."""
        return self.allowed.x(v, self.f.scale)

    @cached_property
    def expand(self) -> np.ndarray:
        """E of x = c + E·v, (columns, k)."""
        return self.allowed.through(np.eye(self.f.columns.count), self.f.scale)

    def limits(self) -> Limits:
        """Return the feasible set, to draw robots from."""
        problem = self.problem
        return Limits(
            problem.shapes,
            problem.first,
            problem.G,
            problem.low,
            self.expand,
            self.allowed.fixed,
            self.start(),
        )

    # -- the problem -------------------------------------------------------------------------------

    def _rows(self) -> np.ndarray:
        """[A | b] of all quadratic terms: equality constraints, data, prior.

        Largest rows first, as [Cox1998] requires.
        """
        heavy = KNOWN * max(float(np.max(np.abs(self.data_rows[:, :-1]), initial=0.0)), 1.0)
        return np.vstack([heavy * self.known, self.data_rows, self.prior_rows])

    @cached_property
    def data_rows(self) -> np.ndarray:
        """[A | b] of ½‖A v − b‖²: the data's misfit."""
        f, M = self.f, self.f.information.base.map
        A = f.R @ self.allowed.through(M, f.scale)
        return _joined(A, f.z - f.R @ (M @ self.allowed.fixed))

    def _known(self) -> np.ndarray:
        """[F | e] of the equality constraints F·v = e, rows of norm one."""
        linear = self.allowed.linear
        equal = linear.low == linear.high
        rows = linear.rows[equal]
        F = self.allowed.through(rows, self.f.scale)
        size = np.linalg.norm(F, axis=1)
        e = linear.low[equal] - rows @ self.allowed.fixed
        self.violated |= bool(
            np.any(np.abs(e[size == 0.0]) > 1e-9 * np.abs(linear.low[equal][size == 0.0]))
        )
        moved = size > 0.0
        self.equalities = [
            (linear.names[i], linear.soft[i], float(norm))
            for i, norm in zip(np.flatnonzero(equal)[moved], size[moved], strict=True)
        ]
        return np.asarray(_joined(F, e)[moved] / size[moved, None])

    @cached_property
    def prior_rows(self) -> np.ndarray:
        """[B | d] of ½‖B v − d‖²: the Euclidean prior.

        Beside the entropic prior, of drive terms alone; without a prior, of the directions that
        nothing else determines.
        """
        f = self.f
        if f.weight:
            first = f.columns.inertial if f.metric == "entropic" else 0
            mine = np.arange(first, f.columns.count)
            K = f.whitening[mine[self.allowed.expand[mine] >= 0]]
            B = self.allowed.through(K, f.scale)
            return np.asarray(np.sqrt(f.weight) * _joined(B, K @ (f.x0 - self.allowed.fixed)))
        A = f.R @ self.allowed.through(f.information.base.map, f.scale)
        _, s, Vt = np.linalg.svd(A)
        rank = int(np.sum(s > max(np.sqrt(FAINT), UNSEEN * s[0]))) if len(s) else 0
        # orthonormal: changes of v that the data do not determine, or only a hundred times worse
        # than their size
        hidden = Vt[rank:]
        return np.asarray(
            np.sqrt(FAINT) * _joined(hidden, hidden @ (f.x0 / f.scale)[self.allowed.free])
        )

    def _inequalities(self) -> _Rows:
        """G·v ≥ low: friction and rotor inertia, then bounds."""
        f, allowed, linear = self.f, self.allowed, self.allowed.linear
        labels, soft = (np.array(each, dtype=object) for each in (linear.names, linear.soft))
        lower = np.isfinite(linear.low) & (linear.low < linear.high)
        upper = np.isfinite(linear.high) & (linear.low < linear.high)
        drive = self.friction
        empty = np.zeros((0, f.columns.count))
        G = np.vstack(
            [
                np.eye(f.columns.count)[f.nonnegative],
                empty if drive is None else drive.rows,
                linear.rows[lower],
                -linear.rows[upper],
            ]
        )
        low = (
            np.concatenate(
                [
                    np.zeros(len(f.nonnegative)),
                    empty[:, 0] if drive is None else drive.low,
                    linear.low[lower],
                    -linear.high[upper],
                ]
            )
            - G @ allowed.fixed
        )
        names = [
            *(f"{f.columns.names[k]} ≥ 0" for k in f.nonnegative),
            *(() if drive is None else drive.names),
            *labels[lower],
            *labels[upper],
        ]
        of_drive = len(f.nonnegative) + (0 if drive is None else len(drive.names))
        kinds = [*[None] * of_drive, *soft[lower], *soft[upper]]
        rows = self.allowed.through(G, f.scale)
        size = np.linalg.norm(rows, axis=1)
        moved = size > 0.0  # a row that no free variable moves is met or not, whatever v
        self.violated |= bool(np.any(low[~moved] > 1e-9))
        return _Rows(
            rows[moved] / size[moved, None],
            low[moved] / size[moved],
            [name for name, used in zip(names, moved, strict=True) if used],
            size[moved],
            [kind for kind, used in zip(kinds, moved, strict=True) if used],
        )

    def _blocks(self) -> _Blocks:
        """Blocks of the entropic prior, of physical consistency, and of ellipsoids."""
        f, allowed, basis = self.f, self.allowed, parameters.to_pseudo_inertia(np.eye(SIZE))
        blocks = _Blocks()
        self.cone_blocks: list[Cone] = []  # the last blocks are those of cones
        self.cone_sizes: list[float] = []  # that they are divided by
        if self.entropic:
            W = np.linalg.inv(np.linalg.cholesky(f.references[allowed.moved]))  # W·J₀·Wᵀ = 1
            self._add_bodies(blocks, allowed.moved, W, basis, f.entropic_weight)
        if self.thick or not self.entropic:
            mass, length = (unit[allowed.bodies] for unit in f.units)
            own = (
                1.0
                / np.sqrt(mass)[:, None]
                / np.column_stack([length, length, length, np.ones_like(length)])
            )
            shifted = basis - MARGIN * np.trace(basis, axis1=1, axis2=2)[:, None, None] * np.eye(4)
            self._add_bodies(blocks, allowed.bodies, own[:, :, None] * np.eye(4), shifted, 0.0)
        for cone in allowed.cones:
            self._add_ellipsoid(blocks, cone)
        return blocks

    def _add_bodies(
        self,
        blocks: _Blocks,
        bodies: np.ndarray,
        W: np.ndarray,
        matrices: np.ndarray,
        weight: float,
    ) -> None:
        places, factors = self._places(bodies)
        shapes = factors[..., None, None] * (W[:, None] @ matrices @ np.swapaxes(W, 1, 2)[:, None])
        blocks.add(shapes, places[:, 0], weight, PHYSICAL)

    def _places(self, bodies: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(positions in v, factors to θ) of these bodies' ten parameters."""
        span = SIZE * bodies[:, None] + np.arange(SIZE)
        places = self.allowed.expand[span]
        return places, self.allowed.sign[span] * self.f.scale[self.allowed.free[places]]

    def _add_ellipsoid(self, blocks: _Blocks, cone: Cone) -> None:
        """‖F x‖ ≤ m as a block [m·1, F x; (F x)ᵀ, m] ⪰ 0; none for a frozen body."""
        body = int(np.flatnonzero(np.any(cone.rows, axis=0))[0]) // SIZE
        if self.allowed.expand[SIZE * body] < 0:
            self.violated |= bool(
                np.linalg.norm(cone.rows[1:] @ self.allowed.fixed)
                > (cone.rows[0] @ self.allowed.fixed) * (1.0 + 1e-9)
            )
            return
        places, factors = self._places(np.array([body]))
        rows = cone.rows[:, SIZE * body : SIZE * body + SIZE] * factors[0]  # (4, 10)
        shape = rows[0][:, None, None] * np.eye(4)
        shape[:, :3, 3] = shape[:, 3, :3] = rows[1:].T
        size = float(np.max(np.abs(rows)))
        self.cone_blocks.append(cone)
        self.cone_sizes.append(size)
        blocks.add(shape[None] / size, places[:, 0], 0.0, cone.name)

    # -- the solution ------------------------------------------------------------------------------

    def solve(self) -> ProgramSolution:
        """Minimise by the interior-point method, from a strictly feasible point."""
        start = (
            None
            if self.violated
            else find_feasible_point(self.problem, self.start(), known=self.known)
        )
        if start is None or start.depth <= 0.0:
            return self._infeasible(start)
        minimum = interior_point.minimise(self.problem, start.v)
        x = self.restored(self.x(minimum.v))
        if (
            self.entropic
            and not self.thick
            and smallest_eigenvalue(x[: self.f.columns.inertial]) < MARGIN
        ):
            friction = self.friction is not None
            return Program(
                self.f, self.allowed, unseen=self.unseen, thick=True, friction=friction
            ).solve()
        missed = self.known[:, :-1] @ minimum.v - self.known[:, -1]
        certificate = Certificate(
            objective=minimum.value,
            gap=minimum.gap,
            infeasibility=float(np.max(np.abs(missed), initial=0.0)),
            eigenvalue=smallest_eigenvalue(x[: self.f.columns.inertial]),
            iterations=minimum.iterations,
            solver=interior_point.NAME,
            active=self._active(minimum),
        )
        if minimum.gap <= CERTAIN * (1.0 + minimum.value):
            return ProgramSolution(x, certificate, "solved", solved=(self, minimum))
        advice = (
            f"the objective is within {minimum.gap:.2g} noise variances of its minimum, which is as"
            " close as rounding allows; a larger weight of the prior, or a log with more motion,"
            " makes it more accurate"
        )
        return ProgramSolution(x, certificate, "almost_solved", (advice,), (self, minimum))

    def _active(self, minimum: interior_point.Minimum) -> tuple[ActiveConstraint, ...]:
        """Bounds on bodies that the minimum sits on, those that cost most first."""
        rows, v, out = self.rows, minimum.v, []
        value = rows.G @ v
        reach = np.abs(rows.G) @ np.abs(v) + np.abs(rows.low)
        for i, soft in enumerate(rows.soft):
            if soft is not None and value[i] - rows.low[i] <= ON_BOUND * reach[i]:
                y = float(minimum.y[i] / rows.size[i])
                out.append(ActiveConstraint(rows.names[i], y, bool(soft)))
        for (name, soft, size), force in zip(self.equalities, self._forces(minimum), strict=True):
            out.append(ActiveConstraint(name, abs(float(force)) / size, soft, exact=True))
        x = self.x(v)
        first = len(self.problem.first) - len(self.cone_blocks)
        for k, cone in enumerate(self.cone_blocks):
            mass, *offset = cone.rows @ x
            if mass - np.linalg.norm(offset) <= ON_BOUND * mass:
                Z = minimum.Z[first + k]  # of [m·1, F x; (F x)ᵀ, m], in units of its largest entry
                y = float(np.trace(Z)) / self.cone_sizes[k]
                out.append(ActiveConstraint(cone.name, y, cone.soft))
        return tuple(sorted(out, key=lambda each: -each.multiplier))

    def _forces(self, minimum: interior_point.Minimum) -> np.ndarray:
        """Multipliers of F·v = e: what balances the gradient of all else."""
        if not len(self.known):
            return np.zeros(0)
        problem, v = self.problem, minimum.v
        A, b = (part[len(self.known) :] for part in (self.quadratic[:, :-1], self.quadratic[:, -1]))
        gradient = A.T @ (A @ v - b)
        entropic = problem.entropic[:, None, None]
        gamma = problem.gamma[:, None, None]
        slope = np.where(entropic, gamma * (np.eye(4) - np.linalg.inv(problem.X(v))), -minimum.Z)
        gradient = gradient + problem.adjoint(slope, -minimum.y)
        return np.asarray(np.linalg.lstsq(self.known[:, :-1].T, gradient, rcond=None)[0])

    def start(self) -> np.ndarray:
        """Return the prior's bodies, made strictly physical, and some friction, (k,)."""
        f = self.f
        own = f.x0 / f.scale
        bodies = parameters.project(own[: f.columns.inertial].reshape(-1, SIZE), START).ravel()
        return np.asarray(
            np.concatenate([bodies, np.maximum(own[f.columns.inertial :], 0.0) + 0.1])[
                self.allowed.free
            ]
        )

    def restored(self, x: np.ndarray) -> np.ndarray:
        """Return x with unseen parameters at the prior, wherever the body stays physical."""
        f, allowed = self.f, self.allowed
        unseen = self.unseen & (allowed.expand >= 0)
        unseen[f.nonnegative] &= f.x0[f.nonnegative] >= 0.0
        trial = np.where(unseen, f.x0, x)
        inertial = f.columns.inertial
        drive = np.where(f.columns.is_inertial, x, trial)
        out = drive.copy()
        thin = _eigenvalues(trial[:inertial]) < MARGIN
        for b in np.flatnonzero(np.any(unseen[:inertial].reshape(-1, SIZE), axis=1) & ~thin):
            out[SIZE * b : SIZE * b + SIZE] = trial[SIZE * b : SIZE * b + SIZE]
        untied = len(allowed.bodies) == len(allowed.moved)
        # where mass and centre depend on each other in the prior, bodies are better as they are
        allowed_points = (point for point in (out, drive) if untied and allowed.met(point))
        return min((*allowed_points, x), key=f.value)

    def _infeasible(self, start: FeasiblePoint | None) -> ProgramSolution:
        """The prior's values, and which constraints conflict."""
        f, linear = self.f, self.allowed.linear
        names = [*linear.names, *(cone.name for cone in self.allowed.cones)]
        if start is not None:
            exact = [
                name
                for name, low, high in zip(linear.names, linear.low, linear.high, strict=True)
                if low == high
            ]
            names = exact + [
                name
                for name, active in zip(self.names, start.active, strict=True)
                if active and name != PHYSICAL
            ]
        certificate = Certificate(
            objective=f.data(f.x0),
            gap=0.0,
            infeasibility=0.0 if start is None else -start.depth,
            eigenvalue=smallest_eigenvalue(f.x0[: f.columns.inertial]),
            iterations=0 if start is None else start.iterations,
            solver=interior_point.NAME,
        )
        advice = (
            f"no physical robot meets all of: {'; '.join(dict.fromkeys(names))}; relax one of them"
        )
        return ProgramSolution(f.x0, certificate, "infeasible", (advice,))


def _joined(A: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.column_stack([np.asarray(A), b])


def _eigenvalues(theta: np.ndarray) -> np.ndarray:
    """Smallest eigenvalue of every body's pseudo-inertia relative to its trace, (bodies,)."""
    J = parameters.to_pseudo_inertia(theta.reshape(-1, SIZE))
    trace = np.trace(J, axis1=1, axis2=2)
    return np.linalg.eigvalsh(J)[:, 0] / np.where(trace > 0.0, trace, 1.0)


def smallest_eigenvalue(theta: np.ndarray) -> float:
    """Return the smallest eigenvalue of a pseudo-inertia relative to its trace, over all bodies."""
    return float(np.min(_eigenvalues(theta), initial=1.0))
