"""Which samples of the stream are used, and for what: `SCORES` between two updates, from time
stamps.
"""

from __future__ import annotations

import math
from enum import Enum

SCORES = 10  # samples per update that are held out and scored, or join the memory in between
EARLY = 0.25  # steps: stamps are rounded, and a sample that is due is not to wait for the next one


class Use(Enum):
    """What a sample is for."""

    NOTHING = 0
    SCORE = 1  # held out
    REMEMBER = 2  # joins the memory
    UPDATE = 3  # the same, and an estimate is made


class SamplingSchedule:
    """Updates at a rate [Hz], and per_update samples of the memory in each."""

    def __init__(self, rate: float, per_update: int) -> None:
        self._period, self._every = 1.0 / rate, -(-SCORES // per_update)
        self._scores = 0  # since the last update
        self.restart()

    def restart(self) -> None:
        """Begin anew with the next sample, after a pause."""
        self._next_update = self._next_score = -math.inf

    def use(self, now: float, h: float) -> Use:
        """What the sample of this moment is for, h seconds after the last one."""
        early = EARLY * h
        if now < self._next_score - early:
            return Use.NOTHING
        self._next_score = _next_due(self._next_score, now, self._period / SCORES)
        if now >= self._next_update - early:
            self._next_update = _next_due(self._next_update, now, self._period)
            self._scores = 0
            return Use.UPDATE
        self._scores += 1
        remembered = self._scores % self._every == 0 and self._scores < SCORES
        return Use.REMEMBER if remembered else Use.SCORE


def _next_due(due: float, now: float, period: float) -> float:
    """The next moment of a fixed rate, from time stamps; after a pause it begins anew."""
    due = now + period if due == -math.inf else due + period
    return due if due > now + 0.5 * period else now + period
