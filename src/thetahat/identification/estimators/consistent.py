"""Physically consistent parameters: the best fit for which every body could be built."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from thetahat.errors import UsageError
from thetahat.identification.consistency import log_cholesky
from thetahat.identification.consistency.constraints import Constraints, feasible
from thetahat.identification.consistency.curvature import local_fit
from thetahat.identification.consistency.misfit import Objective, objective, solution_of
from thetahat.identification.consistency.program import (
    MARGIN,
    Program,
    ProgramSolution,
    smallest_eigenvalue,
)
from thetahat.identification.estimate import Certificate, Estimate
from thetahat.identification.estimators.estimator import (
    covariance_of_data,
    estimated,
    guess,
    untouched,
)
from thetahat.identification.estimators.joint_weights import Weights
from thetahat.identification.information import Information
from thetahat.identification.log_statistics import LogStatistics
from thetahat.identification.uncertainty.posterior import Limits
from thetahat.model.robot import Robot

# noise variances per row that constraints may cost before the misfit itself counts as noise
CONTRADICTED = 100.0


@dataclass(frozen=True, eq=False)
class LogCholesky:
    """Options of the log-Cholesky solver of `Consistent` [Rucker2022]: quick from a close start.

    start: an `Estimate`, a robot, θ or x to begin at (None: the prior). iterations: at most.
    tolerance: of the objective, relative to 1 + f.
    """

    start: Estimate | np.ndarray | Robot | None = None
    iterations: int = 100
    tolerance: float = 1e-9

    def require_valid(self) -> None:
        """Raise `UsageError` where an option is out of range."""
        if (
            isinstance(self.iterations, bool)
            or not isinstance(self.iterations, int)
            or self.iterations < 1
        ):
            raise UsageError(
                f"iterations is {self.iterations!r}; give a whole number of at least 1"
            )
        if not (np.isfinite(self.tolerance) and self.tolerance > 0.0):
            raise UsageError(
                f"tolerance is {self.tolerance!r}; give a finite number above 0, such as 1e-9"
            )


@dataclass(frozen=True, eq=False)
class Consistent:
    """The physically consistent parameters that fit best; what the data do not determine stays at
    the prior.

    Args:
        prior: a robot, θ, or x = [θ; drive terms]; None: the information's own robot.
        weight: of the prior, whose standard deviation is 1/√weight times the size of each parameter
            (0: no prior, but for directions that nothing else determines).
        metric: "euclidean", or "entropic", which is the same in every frame.
        weights: "iterated" weights each joint by its residual until that converges, "joint" once,
            None all torques alike.
        constraints: bounds, total mass, frozen and tied bodies.
        solver: None for the interior-point method, or `LogCholesky()`, which takes no constraints.
            An entropic prior too weak to keep bodies from being flat, and a log that contradicts
            every physical robot, are left to the interior-point method.
        statistics: of the log's rows, as `tune` finds them: with them only independent rows count,
            and friction is no larger than the torque seen. None: all rows are independent.

    """

    prior: np.ndarray | Robot | None = None
    weight: float = 1e-2
    metric: str = "euclidean"
    weights: Weights | str | None = "iterated"
    constraints: Constraints = field(default_factory=Constraints)
    solver: LogCholesky | None = None
    statistics: LogStatistics | None = None

    name = "consistent"

    def joint_weights(self, information: Information) -> Weights:
        """Return the weights of the joints' rows."""
        return self._objective(information).weights

    def estimate(self, information: Information) -> Estimate:
        """Return the estimate with a certificate.

        Conflicting bounds are a status with advice, and leave the prior's values.
        """
        if self.solver is not None:
            self.solver.require_valid()
            if self.constraints:
                raise UsageError(
                    "the log-Cholesky solver takes no constraints; leave solver out, or constraints"
                )
        f = self._objective(information)
        allowed = feasible(f.columns, f.x0, self.constraints)
        solution = solution_of(f)
        unseen = untouched(information, solution)
        program = Program(f, allowed, unseen=unseen)
        best = None
        if self.solver is not None:
            best = _by_log_cholesky(
                Program(f, allowed, unseen=unseen, friction=False), program, self.solver
            )
        if best is None:
            best = program.solve()
            misfit = f.misfit(best.x)
            if misfit > CONTRADICTED and best.status != "infeasible":
                f = f.tempered(misfit)
                best = _contradicted(Program(f, allowed, unseen=program.unseen).solve(), misfit)
        variance = f.weights.variance
        estimate = estimated(
            information,
            solution,
            method=self.name,
            x=best.x,
            covariance=covariance_of_data(solution, variance),
            status=best.status,
            certificate=best.certificate,
            advice=best.advice,
        )
        if best.solved is None:
            return estimate
        fit = local_fit(*best.solved)
        return estimate.with_sensitivity(
            fit.sensitivity(solution.inverse, variance), fit.posterior(solution.inverse)
        )

    def limits(self, information: Information) -> Limits:
        """Return the set of robots that the constraints allow."""
        f = self._objective(information)
        unseen = np.zeros(f.columns.count, dtype=bool)
        return Program(f, feasible(f.columns, f.x0, self.constraints), unseen=unseen).limits()

    def _objective(self, information: Information) -> Objective:
        return objective(
            information,
            prior=self.prior,
            weight=self.weight,
            metric=self.metric,
            weights=self.weights,
            statistics=self.statistics,
        )


def _contradicted(best: ProgramSolution, misfit: float) -> ProgramSolution:
    """The solution, with the advice that the constraints contradict the log."""
    advice = (
        f"a constraint on the bodies contradicts the log: the fit leaves {np.sqrt(misfit):.2g}"
        " times the noise, which is treated as noise now; check bounds, frozen and tied links, and"
        " the robot's geometry"
    )
    return replace(best, advice=(advice, *best.advice))


def _by_log_cholesky(
    program: Program, bounded: Program, options: LogCholesky
) -> ProgramSolution | None:
    """The optimum in log-Cholesky coordinates; None where the interior-point method must decide.

    bounded: the program with the bounds of friction, which these coordinates do not have.
    """
    f = program.f
    minimum = log_cholesky.minimise(
        program.problem,
        program.start(),
        _near(f, options, program.allowed.free),
        iterations=options.iterations,
        tolerance=options.tolerance,
    )
    x = program.restored(program.x(minimum.v))
    eigenvalue = smallest_eigenvalue(x[: f.columns.inertial])
    friction = bounded.friction
    if friction is not None and np.any(friction.rows @ x < friction.low):
        return None
    if (program.entropic and eigenvalue < MARGIN) or f.misfit(x) > CONTRADICTED:
        return None
    certificate = Certificate(
        objective=minimum.value,
        gap=minimum.gap,
        infeasibility=0.0,
        eigenvalue=eigenvalue,
        iterations=minimum.iterations,
        solver=log_cholesky.NAME,
    )
    solved = program, minimum
    if minimum.gap <= options.tolerance * (1.0 + minimum.value):
        return ProgramSolution(x, certificate, "solved", solved=solved)
    cure = (
        "give more iterations"
        if minimum.iterations >= options.iterations
        else "give the prior more weight"
    )
    advice = (
        f"the log-Cholesky solver stopped after {minimum.iterations} iterations, and the objective"
        f" may be {minimum.gap:.2g} noise variances above its minimum; {cure}, or use the"
        " interior-point solver"
    )
    return ProgramSolution(x, certificate, "almost_solved", (advice,), solved)


def _near(f: Objective, options: LogCholesky, free: np.ndarray) -> np.ndarray | None:
    """The start in the program's free variables; None: the prior."""
    if options.start is None:
        return None
    start = options.start.x if isinstance(options.start, Estimate) else options.start
    return np.asarray((guess(f.information, start, "start") / f.scale)[free])
