"""The search for the best motion: an interior-point method whose every motion keeps every limit.

    minimise  φ(X) − μ·Σ log(1 − r²)/n
              r all ratios of limits at the n samples of the grid, for a falling row of μ

The barrier's curvature is known (its linear limits exactly, the others by their first derivatives),
that of φ is learned by damped BFGS updates; steps end before the first linear limit, and backtrack
until the sum falls.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from thetahat.excite.objective import Look, Problem, Slopes, room

TO_WALL = 0.95  # of the way to the first limit that a step may go
FALL = 1e-4  # of the predicted decrease that a step must bring
HALVINGS = 12
# predicted decrease of the sum at which a barrier is done; φ is a logarithm, so relative
SETTLED = 2e-4


@dataclass
class Budget:
    """Count of the evaluations made, and a time limit far beyond what they usually take."""

    deadline: float  # of time.monotonic()
    begun_by: float  # of time.monotonic(): when no more searches are started
    # called with the criterion φ of every motion accepted
    progress: Callable[[float], None] | None = None
    evaluations: int = 0
    best: float = field(default=np.inf)
    ended: bool = False  # whether the time limit has ended a search
    fewer: bool = False  # whether it has kept some from being started

    @property
    def over(self) -> bool:
        """Whether the time is up; a search that asks ends then."""
        self.ended = self.ended or time.monotonic() >= self.deadline
        return self.ended

    @property
    def cut(self) -> bool:
        """Whether the time limit has changed the result."""
        return self.ended or self.fewer

    @property
    def late(self) -> bool:
        """Whether there is no time to start another search."""
        self.fewer = self.fewer or time.monotonic() >= self.begun_by
        return self.fewer

    def seen(self, value: float) -> None:
        """Tell of a motion accepted."""
        self.best = min(self.best, value)
        if self.progress is not None:
            self.progress(self.best)


@dataclass
class Climb:
    """One motion under way, with what has been learned of φ's curvature."""

    look: Look
    curvature: np.ndarray | None = None  # (x, x)
    last: tuple[np.ndarray, np.ndarray] | None = None  # X and ∂φ/∂X before
    # X at the beginning and after each weight of the barrier
    history: list[np.ndarray] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.history.append(self.look.X)


def is_inside(look: Look) -> bool:
    """Whether every limit is kept at every sample of the grid, with nothing singular."""
    return bool(
        np.isfinite(look.value)
        and np.all(np.abs(look.linear) < 1.0)
        and np.all(np.abs(look.curved) < 1.0)
        and np.all(look.felt.ratio < 1.0)
    )


def barrier(look: Look) -> float:
    """−Σ log(1 − r²)/n."""
    every = (look.linear, look.curved, look.felt.ratio)
    return -float(sum(np.sum(np.log1p(-(ratio**2))) for ratio in every)) / len(look.linear)


def climb(problem: Problem, at: Climb, *, mu: float, iterations: int, budget: Budget) -> None:
    """Improve a motion for one weight of the barrier, in place."""
    for _ in range(iterations):
        if budget.over:
            break
        look = at.look
        slopes = problem.gradient(look)
        budget.evaluations += 1
        g_f = slopes.criterion.ravel()
        curvature = _learn(at, look.X.ravel(), g_f)
        g_b, H_b = _barrier_model(problem, look, slopes)
        g = g_f + mu * g_b
        H = mu * H_b + curvature
        H[np.diag_indices_from(H)] += 1e-10 * np.trace(H) / len(H)
        step = -cho_solve(cho_factor(H), g)
        predicted = -float(g @ step)
        if predicted < SETTLED:
            break
        new = _step(problem, look, step.reshape(look.X.shape), mu, predicted, budget)
        if new is None:
            break
        at.look = new
        budget.seen(new.value)
    at.history.append(at.look.X)


def _learn(at: Climb, x: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Damped BFGS update of φ's curvature [Nocedal2006, procedure 18.2], which is returned."""
    curvature = at.curvature
    if curvature is None:
        slope, size = (max(float(np.linalg.norm(each)), 1e-6) for each in (g, x))
        curvature = np.eye(len(x)) * slope / size
    if at.last is not None:
        s, y = x - at.last[0], g - at.last[1]
        Bs = curvature @ s
        sBs, sy = float(s @ Bs), float(s @ y)
        if sBs > 0.0:
            blend = 1.0 if sy >= 0.2 * sBs else 0.8 * sBs / (sBs - sy)
            r = blend * y + (1.0 - blend) * Bs
            curvature = curvature - np.outer(Bs, Bs) / sBs + np.outer(r, r) / float(s @ r)
    at.curvature, at.last = curvature, (x, g)
    return curvature


def _barrier_model(problem: Problem, look: Look, slopes: Slopes) -> tuple[np.ndarray, np.ndarray]:
    """Gradient and positive curvature of the barrier by the coefficients."""
    functions, limits = problem.base
    n, nv, size = len(look.linear), *look.X.shape
    r = look.linear.reshape(n, len(limits), nv)
    first, second = _slopes(r)
    gradient = np.einsum("sdj,dj,dsm->jm", first, 1.0 / limits, functions, optimize=True)
    H = np.zeros((nv, size, nv, size))
    for j in range(nv):
        scaled = second[:, :, j] / limits[:, j] ** 2  # (n, 4)
        H[j, :, j, :] = sum(f.T @ (scaled[:, d, None] * f) for d, f in enumerate(functions))
    curvature: np.ndarray = H.reshape(nv * size, nv * size)
    gradient = gradient.ravel()
    for ratios, jacobian in ((look.curved, slopes.curved), (look.felt.ratio, slopes.felt)):
        if not ratios.size:
            continue
        first, second = _slopes(ratios)
        rows = jacobian.reshape(-1, nv * size)
        gradient = gradient + first.ravel() @ rows
        scaled = np.sqrt(second.ravel())[:, None] * rows
        curvature = curvature + scaled.T @ scaled
    return gradient / n, curvature / n


def _slopes(r: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First and second derivative of −log(1 − r²)."""
    room = 1.0 - r * r
    return 2.0 * r / room, 2.0 * (1.0 + r * r) / room**2


def _step(
    problem: Problem, look: Look, step: np.ndarray, mu: float, predicted: float, budget: Budget
) -> Look | None:
    """The motion a part of the step ahead that makes the sum fall, or None."""
    before = look.value + mu * barrier(look)
    functions, limits = problem.base
    change = np.hstack([(f @ step.T) / limit for f, limit in zip(functions, limits, strict=True)])
    length = min(1.0, TO_WALL * float(np.min(room(look.linear, change))))
    for _ in range(HALVINGS):
        new = problem.look(look.X + length * step)
        budget.evaluations += 1
        if is_inside(new) and new.value + mu * barrier(new) <= before - FALL * length * predicted:
            return new
        length *= 0.5
        if budget.over:
            break
    return None
