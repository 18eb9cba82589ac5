"""Clocks of a loop: the machine's, which only runs forwards, and one that runs when it is
told to.
"""

from __future__ import annotations

import time
from typing import Protocol

SLICE_NS = (
    50_000_000  # a sleep is cut into pieces, so that a signal is noticed within 50 ms at any rate
)


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
