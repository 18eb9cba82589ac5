"""Steps in the external torque, found within 50 ms in what a model leaves without contact.

What the model leaves is no white noise: it drifts with the motion, and is larger at speed, at high
acceleration and where friction changes its sign. Both are learned from motion without contact, on
ticks of about 5 ms, joint by joint:

    w_k = e_k − Σ a_i·e_(k−i),    Var w_k = Σ c_f·φ_f(speed, acceleration, reversal)

a by least squares, with a floor of white noise, c not negative, by iterated weights. A push that
begins m ticks ago adds g_0 … g_m to w, with g_i = 1 − Σ_(l ≤ i) a_l. The statistic is the largest
of the matched filters over beginnings within 50 ms (generalized likelihood ratio [Kay1998]):

    S = max_m |Σ g·w/σ²| / √(Σ g²/σ²)

Its threshold comes from maxima over blocks of time of the same motion: the tail of their squares
is taken as exponential, and no threshold is below what the motion itself reached, with a margin.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from thetahat.errors import NotIdentifiable
from thetahat.online.false_alarm_level import tail

TICK = 0.005  # [s] over which residuals are averaged; one sample where these are slower
CLOSED = 0.75  # of a tick, after which it ends
WITHIN = 0.05  # [s] in which a push is to be found
MEMORY = 0.1  # [s] of residuals that predict the next
FLOOR = 0.3  # of the residual's RMS: white noise that is always reckoned with
BLOCK = 0.25  # [s] of which one maximum counts
LEAST_BLOCKS = 16
SLOW = 0.03  # [s] time constant of accelerations
REVERSAL, STANDSTILL = 0.2, 0.01  # of the RMS speed: friction changes its sign; nothing moves
ROUNDS = 8  # of the weights
QUIETEST = 0.05  # of the mean variance: the least share that no motion adds
HOUR = 3600.0  # [s]


@dataclass(frozen=True, eq=False)
class Ticks:
    """Averages over ticks of one run."""

    residual: np.ndarray  # (n, nv) [N·m or N]
    speed: np.ndarray  # (n, nv)
    acceleration: np.ndarray  # (n, nv), low-passed
    period: float  # [s] mean length of a tick


class TickClock:
    """Averages samples over ticks."""

    def __init__(self, nv: int) -> None:
        self._sums, self._time = np.zeros((2, nv)), 0.0
        self._before: np.ndarray | None = None
        self._acceleration = np.zeros(nv)

    def add(
        self, step: float, residual: np.ndarray, speed: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, float] | None:
        """Take a sample; return residual, speed, acceleration and length of a tick that ends."""
        self._sums += step * np.array([residual, speed])
        self._time += step
        if self._time < CLOSED * TICK:
            return None
        mean, length = self._sums / self._time, self._time
        self._sums, self._time = np.zeros_like(mean), 0.0
        if self._before is not None:
            keep = math.exp(-length / SLOW)
            slope = (mean[1] - self._before) / length
            self._acceleration = keep * self._acceleration + (1.0 - keep) * slope
        self._before = mean[1]
        return mean[0], mean[1], self._acceleration.copy(), length


@dataclass(frozen=True, eq=False)
class ContactModel:
    """What a robot's model leaves without contact, and thresholds for what is more."""

    period: float  # [s] of a tick
    a: np.ndarray  # (p, nv) by which earlier residuals predict the next
    scale: np.ndarray  # (features, nv) shares of the variance of what is not predicted
    usual: np.ndarray  # (2, nv) RMS speed and acceleration
    threshold: np.ndarray  # (nv,) of the statistic

    @property
    def order(self) -> int:
        """How many earlier ticks predict the next."""
        return len(self.a)

    @property
    def response(self) -> np.ndarray:
        """What a push of size one adds to the unpredicted residuals, (K, nv)."""
        return step_response(self.a, max(1, int(WITHIN / self.period + 1e-6)))

    def spread(self, speed: np.ndarray, acceleration: np.ndarray) -> np.ndarray:
        """Return the standard deviation of unpredicted residuals, (n, nv), in such motion."""
        F = features(speed / self.usual[0], acceleration / self.usual[1])
        return np.asarray(np.sqrt(np.einsum("njf,fj->nj", F, self.scale)))

    def statistics(self, ticks: Ticks) -> np.ndarray:
        """Return the statistic of every tick of a run from the order-th on, (n − p, nv)."""
        w = unpredicted(ticks.residual, self.a)
        spread = self.spread(ticks.speed, ticks.acceleration)[self.order :]
        return matched(w, spread, self.response)


def features(speed: np.ndarray, acceleration: np.ndarray) -> np.ndarray:
    """Return what the variance may grow with, (n, nv, features), of relative speeds and
    accelerations (n, nv): the joint's own, and those of all joints.
    """
    turning = np.exp(-((speed / REVERSAL) ** 2))
    leaving = np.maximum(turning - np.exp(-((speed / STANDSTILL) ** 2)), 0.0)
    ones = np.ones_like(speed)
    all_of = (
        leaving.max(axis=1, keepdims=True),
        (speed**2).mean(axis=1, keepdims=True),
        (acceleration**2).mean(axis=1, keepdims=True),
    )
    own = (ones, turning, leaving, speed**2, acceleration**2, turning * acceleration**2)
    return np.stack([*own, *(ones * each for each in all_of)], axis=-1)


def unpredicted(residual: np.ndarray, a: np.ndarray) -> np.ndarray:
    """Return residuals less what earlier ones predict, (n − p, nv)."""
    p, n = len(a), len(residual)
    out: np.ndarray = residual[p:].copy()
    for i in range(p):
        out -= a[i] * residual[p - 1 - i : n - 1 - i]
    return out


def step_response(a: np.ndarray, count: int) -> np.ndarray:
    """Return (count, nv) that a step of size one adds to unpredicted residuals."""
    rising = np.vstack([np.zeros((1, a.shape[1])), np.cumsum(a, axis=0)])
    return np.asarray(1.0 - rising[np.minimum(np.arange(count), len(a))])


def matched(w: np.ndarray, spread: np.ndarray, response: np.ndarray) -> np.ndarray:
    """Return the largest matched filter over beginnings, (n, nv)."""
    n, best = len(w), np.zeros_like(w)
    weight = 1.0 / spread**2
    weighted = w * weight
    for m in range(1, min(len(response), n) + 1):
        g = response[:m]
        along = sum(g[i] * weighted[i : n - m + 1 + i] for i in range(m))
        size = sum(g[i] ** 2 * weight[i : n - m + 1 + i] for i in range(m))
        value = np.abs(along) / np.sqrt(np.maximum(size, 1e-300))
        best[m - 1 :] = np.maximum(best[m - 1 :], value)
    return best


def learn_contact(runs: Sequence[Ticks], *, rms: np.ndarray, false_alarms: float) -> ContactModel:
    """Learn from runs without contact.

    Args:
        runs: of ticks.
        rms: (nv,) of the observer's torque in them.
        false_alarms: per hour, of all joints together.

    """
    long = [run for run in runs if len(run.residual) > 0]
    period = float(np.mean([run.period for run in long])) if long else TICK
    p, floor = max(1, round(MEMORY / period)), FLOOR * np.maximum(rms, 1e-12)
    long = [run for run in long if len(run.residual) > 2 * p]
    size = max(1, round(BLOCK / period))
    seconds = period * sum(len(run.residual) for run in long)
    if seconds < LEAST_BLOCKS * BLOCK:
        raise NotIdentifiable(
            f"{seconds:.3g} s of motion without contact do not tell thresholds; give"
            f" {LEAST_BLOCKS * BLOCK:.3g} s or more"
        )
    a = _prediction([run.residual for run in long], p, floor)
    usual = np.array(
        [
            np.sqrt(np.mean(np.concatenate(each) ** 2, axis=0)) + 1e-9
            for each in ([run.speed for run in long], [run.acceleration for run in long])
        ]
    )
    w = np.concatenate([unpredicted(run.residual, a) for run in long])
    F = np.concatenate(
        [features(run.speed / usual[0], run.acceleration / usual[1])[p:] for run in long]
    )
    always = floor**2 * (1.0 + np.sum(a**2, axis=0))
    scale = np.stack(
        [_variance(F[:, j], w[:, j] ** 2 + always[j]) for j in range(w.shape[1])], axis=1
    )
    model = ContactModel(period, a, scale, usual, np.ones(w.shape[1]))
    maxima = np.concatenate([block_maxima(model.statistics(run), size) for run in long])
    chance = false_alarms * size * period / HOUR / w.shape[1]
    return ContactModel(period, a, scale, usual, tail(maxima, chance))


def _prediction(runs: Sequence[np.ndarray], p: int, floor: np.ndarray) -> np.ndarray:
    """Coefficients (p, nv) by least squares, as of residuals with white noise added."""
    nv, out = runs[0].shape[1], []
    for j in range(nv):
        A = np.concatenate(
            [np.stack([e[p - 1 - i : len(e) - 1 - i, j] for i in range(p)], axis=1) for e in runs]
        )
        b = np.concatenate([e[p:, j] for e in runs])
        normal = A.T @ A + floor[j] ** 2 * len(A) * np.eye(p)
        out.append(np.linalg.solve(normal, A.T @ b))
    return np.stack(out, axis=1)


def _variance(F: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """Shares (features,) of the variance, by weights that follow from it."""
    mean = float(np.mean(squares))
    spread, shares = np.full(len(squares), mean), np.zeros(F.shape[1])
    for _ in range(ROUNDS):
        shares, _ = nnls(F / spread[:, None], squares / spread)
        shares[0] = max(shares[0], QUIETEST * mean)
        spread = F @ shares
    return shares


def block_maxima(values: np.ndarray, size: int) -> np.ndarray:
    """Return maxima over whole blocks of rows, (blocks, nv)."""
    count = len(values) // size
    return np.asarray(values[: count * size].reshape(count, size, values.shape[1]).max(axis=1))


class ContactDetector:
    """The statistic of a stream, tick by tick."""

    def __init__(self, model: ContactModel) -> None:
        self.model = model
        self._response = model.response
        count = model.order + len(self._response)
        self._rows: deque[tuple[np.ndarray, np.ndarray, np.ndarray]] = deque(maxlen=count)

    def reset(self) -> None:
        """Forget all ticks."""
        self._rows.clear()

    def add(
        self, residual: np.ndarray, speed: np.ndarray, acceleration: np.ndarray
    ) -> np.ndarray | None:
        """Take a tick, and return the statistic over its threshold, (nv,); None at first."""
        self._rows.append((residual, speed, acceleration))
        p = self.model.order
        if len(self._rows) <= p:
            return None
        e, v, acc = (np.array(each) for each in zip(*self._rows, strict=True))
        w, spread = unpredicted(e, self.model.a), self.model.spread(v[p:], acc[p:])
        return np.asarray(matched(w, spread, self._response)[-1] / self.model.threshold)
