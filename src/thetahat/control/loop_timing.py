"""Clocks of a control loop, and statistics of its times in constant memory."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Protocol

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
        bin_at = 0 if ns <= LEAST_NS else min(1 + int(math.log(ns / LEAST_NS) / STEP), BINS)
        self._counts[bin_at] += 1

    def quantile(self, fraction: float) -> float:
        """[ns], the middle of its bin, by ratio."""
        wanted, seen = fraction * self.count, 0
        for k, count in enumerate(self._counts):
            seen += count
            if count and seen >= wanted:
                middle = LEAST_NS * math.exp((k - 0.5) * STEP)
                return min(middle, float(self.largest)) if k else 0.0
        return 0.0

    def quantiles(self) -> Quantiles:
        """What to report, [µs]."""
        return Quantiles(self.quantile(0.5) / 1e3, self.quantile(0.99) / 1e3, self.largest / 1e3)


# a sleep is cut into pieces, so that a signal is noticed within 50 ms at any rate
SLICE_NS = 50_000_000


class Clock(Protocol):
    """Nanoseconds that never run backwards."""

    def now(self) -> int:
        """[ns] since some moment."""

    def sleep_until(self, at: int) -> None:
        """Return at that moment, or some time after; it may return early, and is then asked
        again.
        """


class MonotonicClock:
    """The machine's monotonic clock: no time server and no daylight saving moves it.

    spin: [s] before a deadline spent asking instead of sleeping, which costs a core and saves some
        50 µs of lateness.
    """

    def __init__(self, spin: float = 0.0) -> None:
        self._spin = round(spin * 1e9)

    def now(self) -> int:
        """[ns] since the machine started."""
        return time.monotonic_ns()

    def sleep_until(self, at: int) -> None:
        """Sleep, for at most 50 ms, then spin."""
        left = at - self._spin - time.monotonic_ns()
        if left > 0:
            time.sleep(min(left, SLICE_NS) * 1e-9)
        if left <= SLICE_NS:
            while self._spin and time.monotonic_ns() < at:
                pass


class VirtualClock:
    """Time that passes only in `sleep_until` and `advance`: loops in simulation and tests are
    exact, and take no time.
    """

    def __init__(self) -> None:
        self._now = 0

    def now(self) -> int:
        """[ns] since the clock was made."""
        return self._now

    def sleep_until(self, at: int) -> None:
        """Be there at once."""
        self._now = max(self._now, at)

    def advance(self, seconds: float) -> None:
        """Let time pass, as work does."""
        self._now += round(seconds * 1e9)
