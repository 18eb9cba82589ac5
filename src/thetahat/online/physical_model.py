"""The model a controller gets: a physical robot with the identified base parameters, and the
nominal robot's values where the data say nothing.

Base parameters are all that torques show, and many θ have the same ones; a controller needs one
that a robot can have. Taken is

    min ‖R·(M x − x̂)‖² + weight·‖(x − x₀)/s‖²   over physical x

R is the whitened factor of the data, x̂ the identified base parameters, x₀ the nominal robot, s the
size of each parameter (of the body's own mass and length). A direction that the data know better
than to its own size is theirs; one that they know worse stays at the nominal robot. Without the
word "physical" the answer is closed,

    x = x₀ + S²MᵀRᵀ (R M S² MᵀRᵀ + weight)⁻¹ R (x̂ − M x₀)

and it is the answer wherever it happens to be physical. Where it is not, a semidefinite program
(consistent.py) finds it, in the background.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import lapack

from thetahat.data.samples import Samples
from thetahat.errors import ThetahatError
from thetahat.identification import factor as f
from thetahat.identification.consistency.constraints import feasible
from thetahat.identification.consistency.misfit import (
    LIGHTEST,
    SHORTEST,
    nonnegative_columns,
    objective,
    solution_of,
)
from thetahat.identification.consistency.program import MARGIN, Program, smallest_eigenvalue
from thetahat.identification.estimate import Estimate
from thetahat.identification.estimators.consistent import Consistent
from thetahat.identification.estimators.estimator import AnyEstimator, untouched
from thetahat.identification.estimators.joint_weights import Weights
from thetahat.identification.information import Information
from thetahat.identification.parameter_columns import Columns
from thetahat.identification.solve import solve as solve_information
from thetahat.model import parameters
from thetahat.online.stacked_factor import Stack

PHYSICAL = ("consistent",)  # estimators whose parameters a controller may take as they are
# powers of a length in kg·m², kg·m and kg, in the order of θ
_LENGTHS = np.array([2, 2, 2, 1, 1, 2, 2, 1, 2, 0])


@dataclass(frozen=True, eq=False)
class PhysicalModel:
    """Parameters for the controller."""

    x: np.ndarray | None  # (columns,), None where there are none
    physical: bool
    # directions of base parameters that the data know better than to their own size (soft count)
    seen: float
    sentence: str = ""  # what is wrong


class PhysicalProjection:
    """From base parameters to the physical robot nearest to the nominal one."""

    def __init__(self, stack: Stack, *, weight: float = 1.0) -> None:
        self.robot, self._stack, self.weight = stack.robot, stack, weight
        self._columns = Columns(stack.robot)
        self._M, self.x0 = stack.base.map, self._columns.x0  # x0: the nominal robot
        # a body without any inertia is a place between joints, and stays that
        self._real = np.any(self.robot.theta.reshape(-1, parameters.SIZE), axis=1)
        self._bodies = self._body_sizes()
        self._nonnegative = nonnegative_columns(self._columns)

    def _body_sizes(self) -> np.ndarray:
        theta = self.robot.theta.reshape(-1, parameters.SIZE)
        mass = np.abs(theta[:, parameters.M])
        mass = np.maximum(mass, LIGHTEST * np.mean(mass)) if np.any(mass) else np.ones_like(mass)
        second = np.abs(np.trace(parameters.to_pseudo_inertia(theta)[:, :3, :3], axis1=1, axis2=2))
        length = np.maximum(np.sqrt(second / mass), SHORTEST)
        real = np.where(self._real, mass, 0.0)
        return np.ravel(real[:, None] * length[:, None] ** _LENGTHS)

    def sizes(self, torques: np.ndarray) -> np.ndarray:
        """s, (columns,). Of a drive term: what would make its joints' usual torques (nv,) at a
        speed of 1 rad/s, or an acceleration of 1 rad/s².
        """
        out = np.ones(self._columns.count)
        out[: self._columns.inertial] = self._bodies
        own = self._columns.touches[:, self._columns.inertial :]  # (nv, drive columns)
        out[self._columns.inertial :] = np.max(
            own * np.asarray(torques)[:, None], axis=0, initial=0.0
        )
        return out

    def nearest(self, R: np.ndarray, z: np.ndarray, torques: np.ndarray) -> PhysicalModel:
        """The closed form for the whitened factor R and its right side z = R x̂ (or the data's
        own). torques: (nv,) RMS of what is fitted.
        """
        sizes = self.sizes(torques)
        scaled = R @ (self._M * sizes)
        gram = scaled @ scaled.T
        gram[np.diag_indices_from(gram)] += self.weight
        L, failed = lapack.dpotrf(gram, lower=1)
        if failed or not np.all(np.isfinite(L)):
            return PhysicalModel(None, False, 0.0, "the data's factor is not finite")
        y, _ = lapack.dpotrs(L, z - R @ (self._M @ self.x0), lower=1)
        x = self.x0 + sizes * (scaled.T @ y)
        inverse, _ = lapack.dtrtri(L, lower=1)
        seen = len(R) - self.weight * float(np.sum(inverse**2))
        if not np.all(np.isfinite(x)):
            return PhysicalModel(None, False, seen, "the identified parameters are not finite")
        physical = self.is_physical(x)
        return PhysicalModel(x, physical, seen, "" if physical else self.unphysical(x))

    def is_physical(self, x: np.ndarray) -> bool:
        """Whether every body has mass and moments a rigid body can have, and friction takes energy
        away.
        """
        theta = x[: self._columns.inertial].reshape(-1, parameters.SIZE)[self._real].ravel()
        return bool(
            smallest_eigenvalue(theta) >= 0.5 * MARGIN
            and np.all(theta[parameters.M :: parameters.SIZE] > 0.0)
            and np.all(x[self._nonnegative] >= 0.0)
        )

    def unphysical(self, x: np.ndarray) -> str:
        """What is not physical of it, in words."""
        for name, theta in zip(
            self.robot.body_names, x[: self._columns.inertial].reshape(-1, 10), strict=True
        ):
            verdict = parameters.check(theta)
            if not verdict:
                return f"body {name!r}: {verdict.condition}"
        for k in self._nonnegative:
            if x[k] < 0.0:
                return f"{self._columns.names[k]} is negative ({x[k]:.3g})"
        return "a body is too thin to be one"


# -- in the background -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Task:
    """What is to be solved: an estimate, if an estimator is given, else the physical robot nearest
    to base parameters or to the data.
    """

    weight: float  # of the nominal robot
    estimator: AnyEstimator | None = None
    samples: Samples | None = None
    x_base: np.ndarray | None = None  # identified base parameters; None: the data's own
    # (nv,) σ of each joint's torques; None: what an unweighted fit leaves
    noise: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Solution:
    """What a task came to."""

    estimate: Estimate | None
    x: np.ndarray | None  # (columns,) of a physical robot; None where there is none
    status: str
    sentence: str = ""  # what is wrong


def solve(info: Information, task: Task) -> Solution:
    """Solve a task. An error of the library is a solution, too: the loop must not end by it."""
    try:
        with np.errstate(all="ignore"):  # what is not finite is reported below
            if task.estimator is not None:
                return _estimated(solve_information(info, task.estimator, samples=task.samples))
            with f.blas_threads().limit(limits=1, user_api="blas"):
                return _program(info, task)
    except (ThetahatError, np.linalg.LinAlgError, FloatingPointError) as error:
        return Solution(None, None, "failed", str(error))


def _estimated(estimate: Estimate) -> Solution:
    if estimate.status == "infeasible":
        why = estimate.advice[0] if estimate.advice else "the estimator's demands conflict"
        return Solution(estimate, None, "infeasible", why)
    ready = estimate.consistent and estimate.method in PHYSICAL
    return Solution(estimate, estimate.x if ready else None, estimate.status)


def _program(info: Information, task: Task) -> Solution:
    """Solve the semidefinite program: as `Consistent`, but for the right side, which is what was
    identified.
    """
    weights = "joint" if task.noise is None else Weights(1.0 / task.noise, 1.0, task.noise)
    if task.x_base is None:
        estimate = solve_information(info, Consistent(weight=task.weight, weights=weights))
        x, status, advice = estimate.x, estimate.status, estimate.advice
    else:
        problem = objective(
            info, prior=None, weight=task.weight, metric="euclidean", weights=weights
        )
        problem = replace(problem, z=problem.R @ task.x_base)
        unseen = untouched(info, solution_of(problem))
        best = Program(problem, feasible(problem.columns, problem.x0), unseen=unseen).solve()
        x, status, advice = best.x, best.status, best.advice
    usable = status != "infeasible" and bool(np.all(np.isfinite(x)))
    return Solution(None, x if usable else None, status, "; ".join(advice[:1]))
