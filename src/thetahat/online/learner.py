"""From what is remembered to the model a controller would get: the estimate of an update, and the
physical robot that goes with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import solve_triangular

from thetahat.identification import factor as f
from thetahat.identification.estimate import Estimate
from thetahat.identification.estimators.estimator import AnyEstimator, guess
from thetahat.identification.estimators.least_squares import LeastSquares
from thetahat.identification.estimators.prior import Prior
from thetahat.identification.information import Information
from thetahat.identification.solve import solve as solve_information
from thetahat.model.robot import Robot
from thetahat.online.background_solver import BackgroundSolver
from thetahat.online.causal_filter import FilteredSample
from thetahat.online.config import Growing, SolverConfig
from thetahat.online.joint_motion import JointMotion
from thetahat.online.joint_noise import JointNoise
from thetahat.online.memory import JointSums, Memory, create_memory
from thetahat.online.physical_model import PhysicalModel, PhysicalProjection, Solution, Task
from thetahat.online.predict import Model, Predictor
from thetahat.online.sample_verdict import Events
from thetahat.online.stacked_factor import Fit, Stack, solve

UNSEEN = 1e-4  # of a column: what the memory shows of a direction counts as no less


@dataclass(frozen=True, eq=False)
class _Alike:
    """The fit that weighs all rows alike, and what it leaves."""

    fit: Fit
    sums: JointSums


class Learner:
    """Estimates from a memory. `x` are the parameters of the last physical model, None before there
    is one.

    theta0: the guess to blend with, or None. size: samples that fill the memory. least_r2: R² of
        the fit from which a model is computed at all.
    """

    def __init__(
        self,
        predictor: Predictor,
        config: SolverConfig,
        theta0: Robot | np.ndarray | None,
        *,
        size: int,
        needed: int,
        least_r2: float,
        events: Events,
        min_speed: np.ndarray,
    ) -> None:
        robot = predictor.robot
        self._predictor, self._events, self._least_r2 = predictor, events, least_r2
        self._needed = needed
        self._config = config
        self._memory = create_memory(config.memory, robot, size)
        # remembered since: they join the memory when it is asked, for a control cycle has no time
        self._waiting: list[tuple[FilteredSample, np.ndarray]] = []
        stack = self._memory.stack
        self.base = stack.base
        self._noise = JointNoise(np.array([len(own) for own in stack.positions]))
        self._spare = Stack(robot)  # of samples that are not remembered
        fading = not isinstance(config.memory, Growing)
        self._motion = JointMotion(robot, size, min_speed, fading=fading)
        self.projection = PhysicalProjection(stack, weight=config.prior_weight)
        self._blend = None
        if theta0 is not None:
            guess(self.memory.information(), theta0, "guess")  # whether it fits the robot
            self._blend = Prior(theta0, config.alpha)
        self._estimator = self._chosen()
        self.solver = BackgroundSolver(config, robot, events)
        self._now = -math.inf
        self.forget()

    def _chosen(self) -> AnyEstimator | None:
        """The estimator; None for the plain pseudo-inverse, which has a quick way of its own."""
        estimator = self._config.estimator
        if estimator is None:
            return self._blend if self._config.blend == "always" else None
        if isinstance(estimator, LeastSquares) and estimator.weights is None:
            return estimator if estimator.strict else None
        return estimator

    def forget(self) -> None:
        """Forget what was learned, which may be of another robot."""
        self._waiting.clear()
        self._memory.clear()
        self._motion.clear()
        self._noise.clear()
        self.solver.drop()
        # (nv,) joints that have not moved enough: their drive stays nominal
        self.frozen = np.ones(self._predictor.robot.nv, dtype=bool)
        self._alike: _Alike | None = None
        self._estimate: Estimate | None = None
        self._solved = -math.inf
        self.x: np.ndarray | None = None
        self.physical: bool | None = None
        # directions that the data know better than to their own size
        self.seen: float | None = None
        self.unphysical = ""  # why there is no physical model
        self.model: Model | None = None  # of x
        # to predict the next samples with: that, or the estimate where there is no model yet
        self.ahead: Model | None = None

    @property
    def memory(self) -> Memory:
        """What is remembered."""
        self._settle()
        return self._memory

    @property
    def motion(self) -> JointMotion:
        """How the joints moved in what is remembered."""
        self._settle()
        return self._motion

    @property
    def estimate(self) -> Estimate | None:
        """Of the last update, by the estimator as it is, or by the pseudo-inverse where that has no
        answer; None before the first.
        """
        if self._estimate is None and self._alike is not None:
            self._estimate = solve_information(self.memory.information(), LeastSquares())
        return self._estimate

    @property
    def r2_fit(self) -> float | None:
        """The paper's R², of the estimate on the samples it was fitted to."""
        if self._alike is None:
            return None
        sums = self._alike.sums
        if self._estimate is not None:
            sums = self.memory.sums(self._estimate.x_base)
        total = float(np.sum(sums.u2))
        return 1.0 - float(np.sum(sums.e2)) / total if total > 0.0 else None

    def warm(self, sample: FilteredSample, valid: np.ndarray) -> None:
        """Compile and load all that an update uses, and forget again."""
        with f.blas_threads().limit(limits=1, user_api="blas"):
            self.memory.add(sample, valid)
            self._nearest(self._fit_alike(), None)
        self.forget()

    def add(self, sample: FilteredSample, valid: np.ndarray, now: float) -> None:
        """Remember a sample; valid: (nv,) which torques count. Estimate, and find the model that
        goes with it.
        """
        self.remember(sample, valid)
        memory = self.memory
        self.frozen = ~self.motion.told
        self._now = self.solver.now = now
        with f.blas_threads().limit(limits=1, user_api="blas"):
            alike = self._alike = self._fit_alike()
            self._estimate = None
            full = alike.fit.rank == len(self.base)
            early = self._blend is not None and not (self.enough and full)
            estimator = self._blend if early else self._estimator
            if estimator is None:
                self._find_model(alike, None)
                return
        self._submit(Task(self._config.prior_weight, estimator, memory.samples))

    def _fit_alike(self) -> _Alike:
        fit = solve(self.memory.triangle())
        return _Alike(fit, self.memory.sums(fit.x))

    def remember(self, sample: FilteredSample, valid: np.ndarray) -> None:
        """Remember a sample without an estimate."""
        kept = FilteredSample(*(array.copy() for array in sample))
        self._waiting.append((kept, valid.copy()))

    def _settle(self) -> None:
        """What waits joins the memory, in the order it came."""
        for sample, valid in self._waiting:
            self._memory.add(sample._replace(tau=self._predictor.fitted(*sample)), valid)
            self._motion.add(sample.dq[0], valid)
        self._waiting.clear()

    @property
    def enough(self) -> bool:
        """Whether there are as many samples as the gate asks for."""
        return len(self.memory) >= self._needed

    def misfit_with(self, samples: FilteredSample, valid: np.ndarray, scale: np.ndarray) -> float:
        """By how much the least squared misfit of what is remembered grows if these samples are
        fitted, too, in units of scale² (nv,). valid: (n, nv) which torques count.
        """
        weights = np.where(np.isfinite(scale), 1.0 / scale, 0.0)
        rows = self._spare.rows(
            samples._replace(tau=self._predictor.fitted(*samples)), valid * weights
        )
        with f.blas_threads().limit(limits=1, user_api="blas"):
            old, new = self.memory.triangle(weights), self._spare.of_rows(rows)
            both = f.triangle(np.asfortranarray(np.vstack([old, new])))
        return float(both[-1, -1] ** 2 - old[-1, -1] ** 2)

    def prediction_spread(self, sample: FilteredSample, variance: np.ndarray) -> np.ndarray:
        """Covariance (nv, nv) of the torques that least squares of what is remembered predicts for
        one sample; variance: (nv,) of each remembered row, 0: not counted.
        """
        with np.errstate(divide="ignore"):
            weights = np.where(variance > 0.0, 1.0 / np.sqrt(variance), 0.0)
        rows = self._spare.single(sample)
        with f.blas_threads().limit(limits=1, user_api="blas"):
            R = self.memory.triangle(weights)[:-1, :-1]
            norms = np.linalg.norm(R, axis=0)
            norms = np.where(norms > 0.0, norms, 1.0)
            R = f.triangle(np.asfortranarray(np.vstack([R / norms, UNSEEN * np.eye(len(R))])))
            open_ = solve_triangular(R, (rows / norms).T, trans="T", check_finite=False)
        return np.asarray(open_.T @ open_)

    def poll(self, now: float) -> None:
        """Take a solution from the background, if there is one."""
        self._now = self.solver.now = now
        if self.solver.ready:
            self._use(self.solver.take())

    def _nearest(self, alike: _Alike, x_base: np.ndarray | None) -> PhysicalModel:
        """The model nearest to base parameters (None: the data's own), in closed form: the data's
        factor in units of each joint's noise.
        """
        sums, rank = alike.sums, alike.fit.rank
        self._deviations = self._noise.deviations(sums, rank)
        factor = self.memory.triangle(np.where(self.frozen, 0.0, 1.0 / self._deviations))
        R = factor[:-1, :-1]
        z = factor[:-1, -1] if x_base is None else R @ x_base
        nearest = self.projection.nearest(R, z, np.sqrt(sums.u2 / np.maximum(sums.rows, 1.0)))
        if nearest.x is not None:
            self._noise.update(self.memory.sums(self.base.map @ nearest.x), rank)
        return nearest

    def _find_model(self, alike: _Alike, x_base: np.ndarray | None) -> None:
        """Find the physical model with these base parameters (None: nearest to the data): in closed
        form if that is physical, else by a solver.
        """
        if not (self.enough and (self.r2_fit or 0.0) >= self._least_r2):
            # the gate cannot open, so no model is needed
            x = alike.fit.x if x_base is None else x_base
            self.ahead = self._predictor.from_base(self.base.independent, x)
            return
        nearest = self._nearest(alike, x_base)
        self.seen = nearest.seen
        if nearest.x is not None and nearest.physical:
            self._accept(nearest.x)
            return
        self.unphysical = nearest.sentence
        if self.x is None or self._now - self._solved >= self._config.refit_interval:
            self._solved = self._now
            self._submit(Task(self._config.prior_weight, x_base=x_base, noise=self._deviations))

    def _submit(self, task: Task) -> None:
        info = self.memory.information()
        if task.estimator is None and np.any(self.frozen):
            info = _without(info, self.frozen)
        self.solver.submit(info, task)
        if self.solver.ready:
            self._use(self.solver.take())

    def _use(self, solution: Solution | None) -> None:
        """Take what was solved in the background; where that is nothing, the last model stays."""
        if solution is None or self._alike is None:
            return
        if solution.estimate is not None:
            self._estimate = solution.estimate
            if solution.x is None and solution.status != "infeasible":
                with f.blas_threads().limit(limits=1, user_api="blas"):
                    self._find_model(self._alike, solution.estimate.x_base)
                return
            self.seen = self._nearest(self._alike, None).seen
        if solution.x is None or not self.projection.is_physical(solution.x):
            self.unphysical = solution.sentence or "the solver's answer is not physical"
            self._events.add(
                self._now,
                "solver",
                f"no model came of the last update: {self.unphysical}; the last valid one stays",
            )
            self.physical = self.x is not None
            return
        self._accept(solution.x)

    def _accept(self, x: np.ndarray) -> None:
        self.x, self.physical = x, True
        self.model = self.ahead = self._predictor.model(x)


def _without(info: Information, joints: np.ndarray) -> Information:
    """The information without the rows of these joints."""
    factors = tuple(
        np.zeros_like(R) if left_out else R
        for left_out, R in zip(joints, info.factors, strict=True)
    )
    return replace(info, factors=factors, rows=np.where(joints, 0, info.rows))
