"""Forms of the equation of motion that a fit can use, with accelerations or without.

    torque     Y(q, q̇, q̈)·x = τ, row by row
    momentum   p(t₁) − p(t₀) + ∫(G − Cᵀq̇ + friction) dt = ∫τ dt over windows, p = M q̇
    filtered   the same with w = exp(−(t₁ − t)/T) under the integrals: a first-order low-pass of
               the equation of motion, its acceleration removed by parts [Slotine1987]

Both are weighted sums over steps from one row to the next, of the momentum's change and of
trapezoids of all else, so the error of sampled logs is of second order in the step. Rows are
divided by the sum of their weights, so they are mean torques [N·m or N].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from thetahat.data.form_names import FORMS
from thetahat.errors import UsageError

PER_CYCLE = 2.0  # rows per cycle of the torque's low-pass, which holds no more independent ones
LEAST_STEPS = 4  # of a window: a trapezoid needs rows enough
LEAST_CONSTANT = 2.0  # periods of a time constant, likewise
REACH = 5.0  # time constants after which a filter's weight, below 1 %, ends


@dataclass(frozen=True)
class RegressorForm:
    """A form of the equation of motion; `time` is the length of a momentum window, or the time
    constant of the low-pass [s].
    """

    name: str = "torque"
    time: float = 0.0

    def __post_init__(self) -> None:
        check_form(self.name)
        if self.name != "torque" and not (math.isfinite(self.time) and self.time > 0.0):
            what = "length of a window" if self.name == "momentum" else "time constant"
            raise UsageError(
                f"time of the {self.name} form is {self.time!r}; give the {what} in seconds, above"
                " 0"
            )

    @staticmethod
    def of(name: str, cutoff: float | None, period: float | None) -> RegressorForm:
        """Return the form for torques behind this low-pass [Hz], with rows this far apart [s]:
        two rows per cycle, or a low-pass of the same cut-off.
        """
        check_form(name)
        if name == "torque":
            return TORQUE
        if not cutoff or not period:
            raise UsageError(
                f"the {name} form needs rows at one period and the cut-off of their low-pass;"
                " prepare the samples from a log, or give a RegressorForm with its time"
            )
        if name == "momentum":
            return RegressorForm(name, max(1.0 / (PER_CYCLE * cutoff), LEAST_STEPS * period))
        return RegressorForm(name, max(0.5 / (math.pi * cutoff), LEAST_CONSTANT * period))

    @property
    def windowed(self) -> bool:
        """Whether its rows are made of several samples."""
        return self.name != "torque"

    def windows(self, period: float | None) -> Windows:
        """Return how its rows are made of samples this far apart [s]."""
        if not period:
            raise UsageError(
                f"the {self.name} form needs the time between samples; give Samples their period"
            )
        if self.name == "momentum":
            steps = max(round(self.time / period), 1)
            return Windows(period, steps, np.ones(steps))
        steps = max(math.ceil(REACH * self.time / period), 1)
        ago = period * np.arange(steps - 1, -1, -1)  # of each step's end
        stride = max(round(2.0 * math.pi * self.time / (PER_CYCLE * period)), 1)
        return Windows(period, stride, np.exp(-ago / self.time))


def check_form(name: str) -> None:
    """Raise where a form of this name does not exist."""
    if name not in FORMS:
        raise UsageError(f"form is {name!r}; give one of {', '.join(FORMS)}")


TORQUE = RegressorForm()


@dataclass(frozen=True, eq=False)
class Windows:
    """Rows made of windows of samples: weights of the steps between them, and how many samples
    later the next window begins.
    """

    period: float  # [s] between samples
    stride: int
    weights: np.ndarray  # (steps,), in any unit

    @property
    def length(self) -> int:
        """Samples of a window, both ends included."""
        return len(self.weights) + 1

    def count(self, samples: int) -> int:
        """Return how many windows fit into so many samples."""
        return max((samples - self.length) // self.stride + 1, 0)

    def samples(self, count: int) -> int:
        """Return how many samples so many windows take."""
        return (count - 1) * self.stride + self.length if count > 0 else 0

    @cached_property
    def of_momenta(self) -> np.ndarray:
        """Weights of momenta, (length,) [1/s]: Σ_i w_i (p_{i+1} − p_i)."""
        return np.asarray(-np.diff(self._steps, prepend=0.0, append=0.0))

    @cached_property
    def of_rates(self) -> np.ndarray:
        """Weights of torques and all that adds to them, (length,): trapezoids of every step."""
        steps = 0.5 * self.period * self._steps
        return np.asarray(np.append(steps, 0.0) + np.append(0.0, steps))

    @cached_property
    def _steps(self) -> np.ndarray:
        """Weights of the steps, (steps,) [1/s]; those of torques sum to one."""
        return np.asarray(self.weights / (self.period * float(np.sum(self.weights))))

    def mean(self, values: np.ndarray) -> np.ndarray:
        """Return the weighted means of samples' torques, (samples, nv) → (windows, nv)."""
        return np.asarray(self._of(values) @ self.of_rates)

    def all(self, usable: np.ndarray) -> np.ndarray:
        """Return whether all samples of a window are usable, (samples, nv) → (windows, nv) bool."""
        count = np.concatenate([np.zeros((1, usable.shape[1])), np.cumsum(usable, axis=0)])
        first = self.stride * np.arange(self.count(len(usable)))
        return np.asarray(count[first + self.length] - count[first] == self.length)

    def _of(self, values: np.ndarray) -> np.ndarray:
        """(windows, nv, length) of (samples, nv)."""
        if len(values) < self.length:
            return np.empty((0, values.shape[1], self.length))
        views = np.lib.stride_tricks.sliding_window_view(values, self.length, axis=0)
        return np.asarray(views[:: self.stride])
