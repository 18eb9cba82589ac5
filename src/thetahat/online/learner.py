"""From what is remembered to the model a controller would get: the estimate of an update, and the
physical robot that goes with it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from thetahat.identification import factor as f
from thetahat.identification.estimate import Estimate
from thetahat.identification.estimators.least_squares import LeastSquares
from thetahat.identification.solve import solve as solve_information
from thetahat.online.background_solver import BackgroundSolver
from thetahat.online.memory import Memory
from thetahat.online.physical_model import Answer, PhysicalProjection, Task
from thetahat.online.predict import Model, Predictor
from thetahat.online.stacked_factor import Fit, solve
from thetahat.online.stream import Events

QUIETEST = 1e-6  # of a joint's RMS torque: noise counts as no smaller


class Learner:
    """Estimates from a memory. `x` are the parameters of the last physical model, None before there
    is one.

    estimator: None for the plain pseudo-inverse. blend: what takes its place until the memory is
    full and shows all directions. worth: R² of the fit from which a model is computed at all.
    refit: [s] between two semidefinite programs while a model is at hand.
    """

    def __init__(
        self,
        memory: Memory,
        predictor: Predictor,
        beside: BackgroundSolver,
        *,
        estimator: Any,
        blend: Any,
        weight: float,
        worth: float,
        refit: float,
        events: Events,
    ) -> None:
        self.memory, self._predictor, self._beside, self._events = memory, predictor, beside, events
        self._estimator, self._blend, self._weight, self._worth, self._refit = (
            estimator,
            blend,
            weight,
            worth,
            refit,
        )
        self.base, self.projection = (
            memory.stack.base,
            PhysicalProjection(memory.stack, weight=weight),
        )
        self._now = -math.inf
        self.forget()

    def forget(self) -> None:
        """What was learned may be of another robot."""
        self.memory.clear()
        self._beside.drop()
        self._fit: Fit | None = None
        self._estimate: Estimate | None = None
        self._solved = -math.inf
        self.x: np.ndarray | None = None
        self.physical: bool | None = None
        self.seen: float | None = (
            None  # directions that the data know better than to their own size
        )
        self.unphysical = ""  # why there is no physical model
        self.model: Model | None = None  # of x
        # to predict the next samples with: that, or the estimate where there is no model yet
        self.ahead: Model | None = None

    @property
    def estimate(self) -> Estimate | None:
        """Of the last update, by the estimator as it is, or by the pseudo-inverse where that has no
        answer; None before the first.
        """
        if self._estimate is None and self._fit is not None:
            self._estimate = solve_information(self.memory.information(), LeastSquares())
        return self._estimate

    @property
    def r2_fit(self) -> float | None:
        """The paper's R², of the estimate on the samples it was fitted to."""
        if self._fit is None:
            return None
        e2, u2, _ = self.memory.sums(
            self._fit.x if self._estimate is None else self._estimate.x_base
        )
        total = float(np.sum(u2))
        return 1.0 - float(np.sum(e2)) / total if total > 0.0 else None

    def warm(self, sample: tuple[np.ndarray, ...], valid: np.ndarray) -> None:
        """Compile and load all that an update uses, and forget again."""
        with f.blas_threads().limit(limits=1, user_api="blas"):
            self.memory.add(*sample, valid)
            self._fit = solve(self.memory.triangle())
            factor, torques = self._whitened()
            self.projection.nearest(factor[:-1, :-1], factor[:-1, -1], torques)
        self.forget()

    def update(self, now: float) -> None:
        """The memory has a new sample: estimate, and find the model that goes with it."""
        self._now = self._beside.now = now
        memory = self.memory
        with f.blas_threads().limit(limits=1, user_api="blas"):
            self._fit, self._estimate = solve(memory.triangle()), None
            early = self._blend is not None and not (
                memory.full and self._fit.rank == len(self.base)
            )
            estimator = self._blend if early else self._estimator
            if estimator is None:
                self._model_near(None)
                return
        self._ask(Task(memory.information(), estimator, memory.samples, None, self._weight))

    def poll(self, now: float) -> None:
        """Take an answer from beside the loop, if there is one."""
        self._now = self._beside.now = now
        if self._beside.ready:
            self._answered(self._beside.take())

    def _whitened(self) -> tuple[np.ndarray, np.ndarray]:
        """(the factor of the data in units of each joint's noise, which the fit leaves; the RMS of
        each joint's torque).
        """
        e2, u2, rows = self.memory.sums(self._fit.x)
        freedom = np.maximum(
            rows * (1.0 - min(self._fit.rank / max(float(np.sum(rows)), 1.0), 0.9)), 1.0
        )
        variance = np.maximum(e2 / freedom, QUIETEST**2 * u2 / np.maximum(rows, 1.0))
        return self.memory.triangle(
            1.0 / np.sqrt(np.where(variance > 0.0, variance, 1.0))
        ), np.sqrt(u2 / np.maximum(rows, 1.0))

    def _model_near(self, x_base: np.ndarray | None) -> None:
        """The physical model with these base parameters (None: nearest to the data): in closed form
        if that is physical, else by a solver.
        """
        if not (
            self.memory.full and (self.r2_fit or 0.0) >= self._worth
        ):  # the gate cannot open, so no model is needed
            self.ahead = self._predictor.from_base(
                self.base.independent, self._fit.x if x_base is None else x_base
            )
            return
        factor, torques = self._whitened()
        R = factor[:-1, :-1]
        found = self.projection.nearest(
            R, factor[:-1, -1] if x_base is None else R @ x_base, torques
        )
        self.seen = found.seen
        if found.physical:
            self._accept(found.x)
            return
        self.unphysical = found.sentence
        if self.x is None or self._now - self._solved >= self._refit:
            self._solved = self._now
            self._ask(Task(self.memory.information(), None, None, x_base, self._weight))

    def _ask(self, task: Task) -> None:
        self._beside.submit(task)
        if self._beside.ready:
            self._answered(self._beside.take())

    def _answered(self, answer: Answer | None) -> None:
        """What was solved beside the loop; where that is nothing, the last valid model stays."""
        if answer is None or self._fit is None:
            return
        if answer.estimate is not None:
            self._estimate = answer.estimate
            if answer.x is None and answer.status != "infeasible":
                with f.blas_threads().limit(limits=1, user_api="blas"):
                    self._model_near(answer.estimate.x_base)
                return
            factor, torques = self._whitened()
            self.seen = self.projection.nearest(factor[:-1, :-1], factor[:-1, -1], torques).seen
        if answer.x is None or not self.projection.is_physical(answer.x):
            self.unphysical = answer.sentence or "the solver's answer is not physical"
            self._events.add(
                self._now,
                "solver",
                f"no model came of the last update: {self.unphysical}; the last valid one stays",
            )
            self.physical = self.x is not None
            return
        self._accept(answer.x)

    def _accept(self, x: np.ndarray) -> None:
        self.x, self.physical = x, True
        self.model = self.ahead = self._predictor.model(x)
