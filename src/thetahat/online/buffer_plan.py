"""How many samples an identifier's buffer holds, and how often one joins it.

The paper takes one sample an update: 50 of them, at 3 Hz, fill the buffer and open the gate after
16.7 s. The number follows from the unknowns: a sample is one row per joint, and a joint brings
about ten unknowns, so 50 samples are five rows for each. The rate need not be an update's. Two
samples tell different things as soon as the filter does not let them share their noise: behind two
averages of time constant T, noise correlates by (1 + τ/T) e^(−τ/T) over τ, 2 % after 6 T, which is
three delays of the filter. So as many samples join between two updates as are that far apart.

How far back the buffer reaches is another matter: a short one holds but a part of the motion, and
its model meets what it has never seen whenever the motion goes on. It reaches back as far as the
paper's; the gate may open as soon as there are 50 samples, and what it opens with is judged on
samples held out, on those predicted ahead, and by whether each joint has moved, as ever.
"""

from __future__ import annotations

from dataclasses import dataclass

from thetahat.model.floating_base import base_dofs
from thetahat.model.robot import Robot

RATE, WINDOW = 3.0, 50  # of the paper: [Hz] of updates, samples that fill the buffer
APART = 3.0  # delays of the filter, from which two samples hardly share their noise
# samples an update of a floating robot, and times the samples that open the gate: feet that stay in
# place let joints move little, and 50 samples show Valkyrie 165 of 406 directions, 100 half of them
ON_FEET = 2
MOST = 3  # samples an update: it factors the rows of all that are kept
# degrees of freedom, above which the factor of so many rows takes longer than a cycle may wait
SMALL = 16


@dataclass(frozen=True)
class BufferPlan:
    """What an identifier's buffer holds."""

    rate: float  # [Hz] of updates
    per_update: int  # samples that join between two updates
    size: int  # samples it holds
    needed: int  # samples from which on the gate may open

    @property
    def density(self) -> float:
        """[Hz] at which samples join."""
        return self.rate * self.per_update

    @property
    def reach(self) -> float:
        """[s] that a full buffer reaches back."""
        return self.size / self.density


def buffer_plan(robot: Robot, rate: float | None, window: int | None, delay: float) -> BufferPlan:
    """Return the buffer for a robot; rate, window: as given, else None, and then they are derived.

    delay: [s] of the filter.
    """
    if rate is not None or window is not None:
        size = WINDOW if window is None else int(window)
        return BufferPlan(RATE if rate is None else float(rate), 1, size, size)
    if base_dofs(robot):
        return BufferPlan(RATE, ON_FEET, ON_FEET * WINDOW, ON_FEET * WINDOW)
    if robot.nv > SMALL:
        return BufferPlan(RATE, 1, WINDOW, WINDOW)
    apart = int(1.0 / (RATE * APART * delay)) if delay > 0.0 else MOST
    per_update = min(max(apart, 1), MOST)
    return BufferPlan(RATE, per_update, per_update * WINDOW, WINDOW)
