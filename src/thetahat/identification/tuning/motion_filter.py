"""Choose the motion's low-pass and the delay of the torque by cross-validation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from thetahat.data.prepare import Settings
from thetahat.data.samples import Samples
from thetahat.data.subsample import Subsample
from thetahat.dynamics.contact_projection import eliminates_forces
from thetahat.identification.tuning.cross_validation import (
    IMPROVES,
    LAW,
    CrossValidation,
    Scores,
)
from thetahat.model.robot import Robot

LOWER, LOWEST = 0.7, 1.0  # ratio of one low-pass to the next lower; none is below [Hz]
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
    Where contact forces are eliminated, lower ones than given are tried as long as they improve:
    the base's pose comes from another sensor than the spectra's encoders, and its errors, twice
    differentiated, are of the rows' columns, not of torques alone. At a low-pass that lets them
    through, the bodies that predict best are far from the true ones.
    """
    first = validation.predict(robot, source.samples(cutoffs[0]))
    best, most = cutoffs[0], 0.0

    def better(value: float) -> bool:
        nonlocal best, most
        candidate = validation.predict(robot, source.samples(value))
        gain, _ = candidate.gain(first)
        if gain <= most or not candidate.improves(first, LAW):
            return False
        best, most = value, gain
        return True

    for value in cutoffs[1:]:
        better(value)
    if eliminates_forces(robot) and best == min(cutoffs):
        while best > LOWEST and better(best * LOWER):
            pass
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
    is fitted at −step, 0 and step, and once more around its lowest point.
    """
    step = largest / DELAY_STEPS

    def at(value: float) -> Scores:
        return validation.predict(robot, source.samples(cutoff, value))

    first = at(0.0)
    best = float(np.clip(_lowest(0.0, step, (at(-step), first, at(step))), -largest, largest))
    candidate = at(best)
    if not candidate.improves(first, LAW):
        return 0.0, []
    # once more around it: farther out the squares are no parabola
    near = 0.5 * step
    finer = float(
        np.clip(
            _lowest(best, near, (at(best - near), candidate, at(best + near))), -largest, largest
        )
    )
    refined = at(finer)
    if refined.gain(candidate)[0] > 0.0:
        best, candidate = finer, refined
    how = "lags behind" if best > 0.0 else "leads"
    gain, _ = candidate.gain(first)
    return best, [f"torque {how} the motion by {1e3 * abs(best):.2g} ms: {IMPROVES} by {gain:.0f}"]


def _lowest(middle: float, step: float, scores: tuple[Scores, Scores, Scores]) -> float:
    """Where the parabola through the squares at middle − step, middle, middle + step is lowest."""
    early, now, late = scores
    below, above = early.relative_square(now) - 1.0, late.relative_square(now) - 1.0
    if below + above > 0.0:
        return middle + 0.5 * step * (below - above) / (below + above)
    # where the squares fall on one side without end, the lowest is further out
    return middle + 2.0 * step * (1.0 if above < below else -1.0)
