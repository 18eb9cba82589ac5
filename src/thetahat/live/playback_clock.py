"""Time as it passes on the page: at the pace of the clock on the wall times a speed, and not while
it is paused.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

# [s] that a loop may be early before it sleeps: waking up for every cycle costs more than the cycle
AHEAD = 2e-3
SLICE = 0.05  # [s] of a sleep at most, so that a command is noticed
BEHIND = 0.25  # [s] that a loop may be late and still catch up


class Pace:
    """`wait(t)` returns when it is time for t; `idle` is called while it waits for long. speed:
    seconds of the source per second on the wall.
    """

    def __init__(self, speed: float = 1.0, *, idle: Callable[[], None] = lambda: None) -> None:
        self.speed, self.late, self.idle = (
            speed,
            0.0,
            idle,
        )  # late: [s] lost on the wall because the work took longer than there was time
        self._stopped, self._running = threading.Event(), threading.Event()
        self._running.set()
        self._zero: float | None = None  # where t = 0 is on the wall

    @property
    def paused(self) -> bool:
        """Whether time stands still."""
        return not self._running.is_set()

    @property
    def stopped(self) -> bool:
        """Whether it is over."""
        return self._stopped.is_set()

    def pause(self) -> None:
        """Stand still."""
        self._running.clear()

    def resume(self) -> None:
        """Go on."""
        self._running.set()

    def stop(self) -> None:
        """Wake up whoever waits, for good."""
        self._stopped.set()
        self._running.set()

    def rest(self, seconds: float) -> bool:
        """Do nothing for a while; whether to go on."""
        end = time.monotonic() + seconds
        while not self.stopped and (left := end - time.monotonic()) > 0.0:
            self._stopped.wait(min(left, SLICE))
            self.idle()
        return not self.stopped

    def restart(self, t: float) -> None:
        """What follows begins at t, now, however long it was silent before."""
        self._zero = time.monotonic() - t / self.speed

    def wait(self, t: float) -> bool:
        """Wait until it is time for t [s]; whether to go on."""
        if not self._running.is_set():
            while not self._running.wait(SLICE):
                self.idle()
            self._zero = None
        if self._zero is None:
            self.restart(t)
        while not self.stopped:
            early = self._zero + t / self.speed - time.monotonic()
            if early < -BEHIND:
                self.late -= early
                self._zero -= early
            if early < AHEAD:
                return True
            if early > SLICE:
                self.idle()
                if self.paused:
                    return self.wait(t)
            time.sleep(min(early, SLICE))
        return False
