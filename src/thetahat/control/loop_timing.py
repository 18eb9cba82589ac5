"""Statistics of times in memory that does not grow: counts in bins 2 % apart, and the exact
largest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

LEAST_NS = 10.0
STEP = math.log(1.02)
BINS = 1 + math.ceil(math.log(1e4 * 1e9 / LEAST_NS) / STEP)  # to 10,000 s


@dataclass(frozen=True)
class Quantiles:
    """[µs]; p50 and p99 to 1 %, the largest exactly."""

    p50: float
    p99: float
    max: float

    def __str__(self) -> str:
        return f"p50 {self.p50:.1f}, p99 {self.p99:.1f}, max {self.max:.1f} µs"


class Histogram:
    """Times [ns] as they come."""

    def __init__(self) -> None:
        self._counts = [0] * (BINS + 1)
        self.count, self.largest = 0, 0
        self.square = 0.0  # Σ x²

    def add(self, ns: int) -> None:
        """Count one time."""
        self.count += 1
        self.square += float(ns) * ns
        if ns > self.largest:
            self.largest = ns
        self._counts[
            0 if ns <= LEAST_NS else min(1 + int(math.log(ns / LEAST_NS) / STEP), BINS)
        ] += 1

    def quantile(self, fraction: float) -> float:
        """[ns], the middle of its bin, by ratio."""
        wanted, seen = fraction * self.count, 0
        for k, count in enumerate(self._counts):
            seen += count
            if count and seen >= wanted:
                return (
                    0.0
                    if k == 0
                    else min(LEAST_NS * math.exp((k - 0.5) * STEP), float(self.largest))
                )
        return 0.0

    def quantiles(self) -> Quantiles:
        """What to report, [µs]."""
        return Quantiles(self.quantile(0.5) / 1e3, self.quantile(0.99) / 1e3, self.largest / 1e3)
