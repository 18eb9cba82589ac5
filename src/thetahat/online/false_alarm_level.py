"""The level of a statistic that is exceeded once in so many hours while nothing happens.

What residuals of a model look like on a motion is seen while the gate is open. The maxima of the
statistic over blocks of half a second are kept, and their tail is taken as exponential, as that of
χ² is. With m of them beyond their median b, by e on average, the level that a further block exceeds
with probability p is the predictive quantile [Coles2001]

    b + e·m·((½/p)^(1/m) − 1)          →  b + e·ln(½/p) for many blocks,

which is the higher the less was seen. p is a block's share of the time between two false alarms.
Where residuals are better than Gaussian noise for a while, that says nothing: no level is below the
quantile of χ² at the same probability, with as many degrees of freedom as the statistic has.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np
from scipy.special import gammainccinv

TAIL = 0.5  # quantile of the maxima from which on their tail is fitted
MARGIN = 1.15  # of the largest that was reached without a cause: no level is below
BLOCK = 0.5  # [s] of which one maximum counts: errors further apart have little in common
KEPT = 240  # maxima: two minutes
EVERY = 8  # blocks: the tail is fitted anew; a larger maximum counts at once
LEAST = 16  # maxima, below which nothing is said


def tail(maxima: np.ndarray, chance: float, margin: float = 1.0) -> np.ndarray:
    """Return (n,) that a block's maximum exceeds with this probability, from maxima (blocks, n), by
    an exponential tail of its square, as Gaussian noise has it, and no less than what was reached,
    with a margin.

    The quantile is the predictive one: the fewer the blocks, the higher.
    """
    squares, most = maxima**2, np.max(maxima, axis=0)
    begin = np.quantile(squares, TAIL, axis=0)
    excess = np.maximum(squares - begin, 0.0)
    count = np.maximum(np.sum(excess > 0.0, axis=0), 1)
    scale = np.sum(excess, axis=0) / count
    often = max((1.0 - TAIL) / chance, 1.0)
    reach = np.sqrt(begin + scale * count * (often ** (1.0 / count) - 1.0))
    return np.asarray(np.maximum.reduce([reach, margin * most, np.full_like(most, 1e-9)]))


def chi_quantile(freedom: int, chance: float) -> float:
    """Square root of what χ² with so many degrees of freedom exceeds with this probability."""
    return math.sqrt(2.0 * float(gammainccinv(0.5 * freedom, chance)))


class FalseAlarmLevel:
    """Learns the level of n statistics, of the size of a Gaussian deviate each, from values that
    were seen while nothing happened.

    interval: [s] between two false alarms of all of them together. freedom: degrees of freedom of
    each one's square, and share of χ² that it is at most.
    """

    def __init__(self, n: int, interval: float, freedom: int = 1, *, share: float = 1.0) -> None:
        self._chance = BLOCK / interval / n
        self._least = math.sqrt(share) * chi_quantile(freedom, self._chance)
        self._n = n
        self.reset()

    def reset(self) -> None:
        """Forget what was seen."""
        self._maxima: deque[np.ndarray] = deque(maxlen=KEPT)
        self._most, self._seconds, self._blocks = np.zeros(self._n), 0.0, 0
        self.level = np.full(self._n, self._least)  # (n,)

    @property
    def known(self) -> bool:
        """Whether enough was seen to say anything."""
        return len(self._maxima) >= LEAST

    def add(self, values: np.ndarray, seconds: float) -> bool:
        """Take values (n,) above zero, that so many seconds of motion without a cause showed;
        return whether a block ended.
        """
        np.maximum(self._most, values, out=self._most)
        self._seconds += min(seconds, BLOCK)
        if self._seconds < BLOCK:
            return False
        self._maxima.append(self._most)
        self._blocks += 1
        if self.known:
            if self._blocks % EVERY == 0 or self._blocks <= 2 * LEAST:
                reach = tail(np.array(self._maxima), self._chance, MARGIN)
                self.level = np.maximum(self._least, reach)
            self.level = np.maximum(self.level, MARGIN * self._most)
        self._most, self._seconds = np.zeros(self._n), 0.0
        return True
