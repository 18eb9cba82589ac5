"""Steps in the external torque, found within 50 ms in what a model leaves without contact.

What the model leaves is no white noise: it drifts with the motion, and is larger at speed, at high
acceleration and where friction changes its sign. Both are learned from motion without contact, on
ticks of about 5 ms, joint by joint:

    w_k = e_k − Σ a_i·e_(k−i),    Var w_k = Σ c_f·φ_f(speed, acceleration, reversal)

a by least squares, with a floor of white noise, c not negative, by iterated weights. A push that
begins m ticks ago adds g_0 … g_m to w, with g_i = 1 − Σ_(l ≤ i) a_l. The statistic is the largest
of the matched filters over beginnings within 50 ms (generalized likelihood ratio [Kay1998]):

    S = max_m |Σ g·w/σ²| / √(Σ g²/σ² + (s·Σ g²/σ²)²)

Where the model's dry friction just changed by Δ, s = Δ/3 is the standard deviation of a step that
is no push: the joint's own friction turns later and more smoothly. Otherwise s = 0. Where residuals
have spikes, a w beyond some standard deviations counts as no more than these.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

TICK = 0.005  # [s] over which residuals are averaged; one sample where these are slower
CLOSED = 0.75  # of a tick, after which it ends
WITHIN = 0.05  # [s] in which a push is to be found
BLOCK = 0.25  # [s] of which one maximum counts
SLOW = 0.03  # [s] time constant of accelerations
REVERSAL, STANDSTILL = 0.2, 0.01  # of the RMS speed: friction changes its sign; nothing moves
# of a step of the model's dry friction, as a standard deviation: the joint's is smoother or later
UNSURE = 1.0 / 3.0


@dataclass(frozen=True, eq=False)
class Tick:
    """Averages over one tick, (nv,) each."""

    residual: np.ndarray  # [N·m or N]
    speed: np.ndarray
    acceleration: np.ndarray  # low-passed
    dry: np.ndarray  # [N·m or N] dry friction of the model, at its end
    length: float  # [s]


@dataclass(frozen=True, eq=False)
class Ticks:
    """Averages over ticks of one run."""

    residual: np.ndarray  # (n, nv) [N·m or N]
    speed: np.ndarray  # (n, nv)
    acceleration: np.ndarray  # (n, nv), low-passed
    dry: np.ndarray  # (n, nv) [N·m or N] dry friction of the model
    period: float  # [s] mean length of a tick

    @staticmethod
    def of(ticks: Collection[Tick], nv: int) -> Ticks:
        """Return ticks one after the other."""
        columns = (
            [each.residual for each in ticks],
            [each.speed for each in ticks],
            [each.acceleration for each in ticks],
            [each.dry for each in ticks],
        )
        arrays = [np.array(column).reshape(-1, nv) for column in columns]
        period = float(np.mean([each.length for each in ticks])) if ticks else BLOCK
        return Ticks(arrays[0], arrays[1], arrays[2], arrays[3], period)


class TickClock:
    """Averages samples over ticks."""

    def __init__(self, nv: int) -> None:
        self._sums, self._time = np.zeros((2, nv)), 0.0
        self._before: np.ndarray | None = None
        self._acceleration = np.zeros(nv)

    def add(
        self, step: float, residual: np.ndarray, speed: np.ndarray, dry: np.ndarray
    ) -> Tick | None:
        """Take a sample; return a tick that ends."""
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
        return Tick(mean[0], mean[1], self._acceleration.copy(), dry, length)


@dataclass(frozen=True, eq=False)
class ContactModel:
    """What a robot's model leaves without contact, and thresholds for what is more."""

    period: float  # [s] of a tick
    a: np.ndarray  # (p, nv) by which earlier residuals predict the next
    scale: np.ndarray  # (features, nv) shares of the variance of what is not predicted
    usual: np.ndarray  # (2, nv) RMS speed and acceleration
    threshold: np.ndarray  # (nv,) of the statistic
    # (nv,) standard deviations as which a larger one counts: of residuals with spikes
    most: np.ndarray
    unsure: float = UNSURE  # standard deviation of a step of dry friction, as a share of it

    @property
    def order(self) -> int:
        """How many earlier ticks predict the next."""
        return len(self.a)

    @property
    def response(self) -> np.ndarray:
        """What a push of size one adds to the unpredicted residuals, (K, nv)."""
        return step_response(self.a, self.reach)

    @property
    def reach(self) -> int:
        """In how many ticks a push is to be found."""
        return max(1, int(WITHIN / self.period + 1e-6))

    def spread(self, speed: np.ndarray, acceleration: np.ndarray) -> np.ndarray:
        """Return the standard deviation of unpredicted residuals, (n, nv), in such motion."""
        F = features(speed / self.usual[0], acceleration / self.usual[1])
        return np.asarray(np.sqrt(np.einsum("njf,fj->nj", F, self.scale)))

    def statistics(self, ticks: Ticks) -> np.ndarray:
        """Return the statistic of every tick of a run from the order-th on, (n − p, nv)."""
        g = self.response
        w = unpredicted(ticks.residual, self.a)
        spread = self.spread(ticks.speed, ticks.acceleration)[self.order :]
        unsure = self.unsure * turned(ticks.dry, self.reach)[self.order :]
        return matched(np.clip(w, -self.most * spread, self.most * spread), spread, g, unsure)


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


def turned(dry: np.ndarray, reach: int) -> np.ndarray:
    """Return by how much the model's dry friction went up and down in the last ticks, (n, nv)."""
    high, low = dry.copy(), dry.copy()
    for back in range(1, min(reach + 1, len(dry))):
        high[back:] = np.maximum(high[back:], dry[:-back])
        low[back:] = np.minimum(low[back:], dry[:-back])
    return np.asarray(high - low)


def matched(
    w: np.ndarray, spread: np.ndarray, response: np.ndarray, unsure: np.ndarray
) -> np.ndarray:
    """Return the largest matched filter over beginnings, (n, nv). unsure: (n, nv) standard
    deviation of steps that are none.
    """
    n, best = len(w), np.zeros_like(w)
    weight = 1.0 / spread**2
    weighted = w * weight
    for m in range(1, min(len(response), n) + 1):
        g = response[:m]
        along = sum(g[i] * weighted[i : n - m + 1 + i] for i in range(m))
        size = sum(g[i] ** 2 * weight[i : n - m + 1 + i] for i in range(m))
        size = size + (unsure[m - 1 :] * size) ** 2
        value = np.abs(along) / np.sqrt(np.maximum(size, 1e-300))
        best[m - 1 :] = np.maximum(best[m - 1 :], value)
    return best


class ContactDetector:
    """The statistic of a stream, tick by tick."""

    def __init__(self, model: ContactModel) -> None:
        self.model = model
        self._rows: deque[Tick] = deque(maxlen=model.order + model.reach)

    def reset(self) -> None:
        """Forget all ticks."""
        self._rows.clear()

    def add(self, tick: Tick) -> np.ndarray | None:
        """Take a tick, and return the statistic over its threshold, (nv,); None at first."""
        self._rows.append(tick)
        if len(self._rows) <= self.model.order:
            return None
        statistics = self.model.statistics(Ticks.of(self._rows, len(tick.residual)))
        return np.asarray(statistics[-1] / self.model.threshold)
