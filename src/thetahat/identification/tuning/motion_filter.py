"""Choose the motion's low-pass and the delay of the torque by cross-validation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from thetahat.data.prepare import Settings
from thetahat.data.samples import Samples
from thetahat.data.subsample import Subsample
from thetahat.identification.tuning.cross_validation import (
    IMPROVES,
    LAW,
    CrossValidation,
)
from thetahat.model.robot import Robot

DELAY_STEPS = 4.0  # ratio of the largest delay to the step of its search


class SampleSource(Protocol):
    """Samples to be fitted, of any cut-off and delay."""

    def samples(self, cutoff: float, delay: float = 0.0) -> Samples:
        """Return the samples of this low-pass of the motion [Hz], and delay of the torque [s]."""


@dataclass(frozen=True, eq=False)
class FixedSamples:
    """Samples that are prepared already: their cut-off and delay are what they are."""

    prepared: Samples

    def samples(self, cutoff: float, delay: float = 0.0) -> Samples:
        """Return the samples."""
        del cutoff, delay
        return self.prepared


@dataclass(frozen=True, eq=False)
class LogSamples:
    """Samples of a log, prepared once per cut-off and delay."""

    rows: Subsample
    settings: Settings  # all but cut-off and delay
    narrow: Callable[[Samples], Samples] | None = None  # to the joints of the fitted robot
    _prepared: dict[tuple[float, float], Samples] = field(default_factory=dict, init=False)

    def samples(self, cutoff: float, delay: float = 0.0) -> Samples:
        """Return the samples of this low-pass of the motion [Hz], and delay of the torque [s]."""
        if (cutoff, delay) not in self._prepared:
            samples = self.rows.prepared(replace(self.settings, cutoff=cutoff, delay=delay))
            self._prepared[cutoff, delay] = samples if self.narrow is None else self.narrow(samples)
        return self._prepared[cutoff, delay]


def choose_cutoff(
    validation: CrossValidation, robot: Robot, source: SampleSource, *, cutoffs: Sequence[float]
) -> tuple[float, str]:
    """Return the motion's cut-off that predicts best [Hz], and the reason.

    The first is used unless another improves. The torque's low-pass, which is predicted, stays.
    """
    first = validation.predict(robot, source.samples(cutoffs[0]))
    best, most = cutoffs[0], 0.0
    for value in cutoffs[1:]:
        candidate = validation.predict(robot, source.samples(value))
        gain, _ = candidate.gain(first)
        if gain > most and candidate.improves(first, LAW):
            best, most = value, gain
    if best == cutoffs[0]:
        return best, (
            f"motion low-pass {best:.3g} Hz: no other {IMPROVES} by at least {LAW.gain:g}"
        )
    return best, (
        f"motion low-pass {best:.3g} Hz instead of {cutoffs[0]:.3g} Hz: {IMPROVES} by {most:.0f}"
    )


def choose_delay(
    validation: CrossValidation,
    robot: Robot,
    source: SampleSource,
    *,
    cutoff: float,
    largest: float,
) -> tuple[float, list[str]]:
    """Return the delay of the torque behind the motion [s], zero unless it improves, and the
    reason.

    To first order a delay adds δ·τ̇ to the residuals, so their squares are a parabola of it, which
    is fitted at −step, 0 and step.
    """
    step = largest / DELAY_STEPS
    first, early, late = (
        validation.predict(robot, source.samples(cutoff, value)) for value in (0.0, -step, step)
    )
    below, above = early.relative_square(first) - 1.0, late.relative_square(first) - 1.0
    # where the squares fall on one side without end, the lowest is further out
    beyond = 2.0 * step * (1.0 if above < below else -1.0)
    lowest = 0.5 * step * (below - above) / (below + above) if below + above > 0.0 else beyond
    best = float(np.clip(lowest, -largest, largest))
    candidate = validation.predict(robot, source.samples(cutoff, best))
    if not candidate.improves(first, LAW):
        return 0.0, []
    how = "lags behind" if best > 0.0 else "leads"
    gain, _ = candidate.gain(first)
    return best, [f"torque {how} the motion by {1e3 * abs(best):.2g} ms: {IMPROVES} by {gain:.0f}"]
