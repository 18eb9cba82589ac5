"""Time stamps as a clock that never goes back: its period, late stamps, gaps, changes of rate, and
clocks that were set.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import numpy as np

MISSING = 20  # samples in a row that may not be missing: 19 are held, the 20th stops
LATE = 3  # stamps in a row from the past: the clock was set back
FARTHEST = 1e10  # [s] of a time stamp: 300 years, beyond which microseconds get lost
LEAP = 1e5  # [s] a day: a stamp that is so far ahead is a clock that was set, no pause
FIRST = 9  # steps whose median is the usual period
EVEN = 20  # steps in a row that are alike, but not as long as usual: the rate has changed
SHORT, LONG = 0.67, 1.5  # periods: a step between them is as long as usual


@dataclass(frozen=True)
class Stamp:
    """What a time stamp means."""

    now: float  # [s] on the stream's clock
    h: float  # [s] since the last sample
    kind: str = ""  # of event; "" where nothing happened
    sentence: str = ""
    dropped: bool = False  # whether the sample cannot be used; else what happened is a restart
    forget: bool = False  # whether what was learned before may be of another robot
    held: int = 0  # samples missing before this one, too few to matter


class SampleClock:
    """The stream's own clock, from the samples' stamps.

    period: [s] between samples; None: the first ones tell. reset_after: [s] a gap after which
    nothing that was learned before is trusted to be of the same robot.
    """

    def __init__(self, period: float | None, reset_after: float) -> None:
        self.period, self._reset_after = period, reset_after
        self.t = -math.inf  # [s] of the last sample taken
        self._offset = 0.0  # from stamps to that clock
        self._steps: list[float] = []  # [s] the first ones
        self._odd: deque[float] = deque(maxlen=EVEN)  # [s] in a row that are not as long as usual
        self._late: list[float] = []  # stamps in a row from the past

    @property
    def now(self) -> float:
        """[s] of the last sample taken; 0 before the first."""
        return self.t if self.t > -math.inf else 0.0

    def accept(self, now: float, h: float, *, running: bool) -> None:
        """Move on to a sample that was taken; the first steps tell the period."""
        self.t = now
        if self.period is None and running:
            self._steps.append(h)
            if len(self._steps) >= FIRST:
                self.period = float(np.median(self._steps))

    def time(self, stamp: float) -> float | None:
        """[s] of a stamp on this clock; None where it is unusual and has to be read by `read`."""
        now = stamp + self._offset
        period = self.period
        if (
            period is None
            or self._odd
            or self._late
            or not SHORT * period < now - self.t < LONG * period
            or not abs(stamp) <= FARTHEST
        ):
            return None
        return now

    def read(self, stamp: float, *, running: bool) -> Stamp:
        """Read any stamp. running: whether there are samples since the filter's start."""
        if not abs(stamp) <= FARTHEST:
            sentence = f"a time stamp is {stamp:.4g} s, which is no time; the sample was dropped"
            return Stamp(self.t, 0.0, "not finite", sentence, dropped=True)
        now = stamp + self._offset
        if now <= self.t:
            return self._from_the_past(stamp, now)
        self._late.clear()
        h = now - self.t
        if h > LEAP and self.t > -math.inf:
            return self._continued(stamp, f"the clock was set forward by {h:.4g} s")
        return self._irregular(now, h) if running else Stamp(now, h)

    def _from_the_past(self, stamp: float, now: float) -> Stamp:
        """A duplicate or late sample is dropped. Where stamps go on from the past, the clock was
        set back.
        """
        if now == self.t:
            sentence = f"two samples are stamped {stamp:.9g} s; the second was dropped"
            return Stamp(now, 0.0, "duplicate", sentence, dropped=True)
        if self._late and stamp <= self._late[-1]:
            self._late.clear()
        self._late.append(stamp)
        if len(self._late) < LATE:
            sentence = (
                f"a sample stamped {stamp:.9g} s came after one of {self.t - self._offset:.9g} s;"
                " it was dropped"
            )
            return Stamp(now, 0.0, "out of order", sentence, dropped=True)
        self._late.clear()
        return self._continued(stamp, f"the clock was set back to {stamp:.9g} s")

    def _continued(self, stamp: float, sentence: str) -> Stamp:
        """Continue a clock that was set, so that this one keeps its digits."""
        self._offset = self.t + (self.period or 1e-3) - stamp
        now = stamp + self._offset
        sentence += f"; its stamps are continued from {self.t:.9g} s, all buffers start anew"
        return Stamp(now, now - self.t, "clock", sentence, forget=True)

    def _irregular(self, now: float, h: float) -> Stamp:
        """Tell a change of rate and a gap from a step that is merely long or short."""
        period = self.period
        if period is None:
            return Stamp(now, h)
        if SHORT * period < h < LONG * period:
            self._odd.clear()
            return Stamp(now, h)
        self._odd.append(h)
        if len(self._odd) == EVEN and max(self._odd) <= 1.5 * min(self._odd):
            self.period = float(np.median(self._odd))
            self._odd.clear()
            sentence = (
                f"samples come every {self.period:.3g} s, no more every {period:.3g} s; the filter"
                " starts anew"
            )
            return Stamp(now, h, "rate", sentence)
        missing = round(h / period) - 1
        if h < (MISSING + 0.5) * period:
            return Stamp(now, h, held=missing if h > LONG * period else 0)
        sentence = (
            f"no sample came for {h:.4g} s, {missing} in a row; resynchronised at {now:.6g} s"
        )
        return Stamp(now, h, "gap", sentence, forget=h >= self._reset_after)
