"""A loop at a fixed rate: read, control, write, wait for the next deadline; and what it does when
something does not come in time.

    a cycle ends after its deadline   the deadlines it missed are skipped and counted; never a
                                      burst of cycles to catch up
    late by 200 ms or more (stall)    deadlines begin anew from now; `Cycle.stalled` tells the
                                      controller, which falls back for that cycle
    1–19 samples missing in a row     the last command is written again, or what the controller's
                                      `missed` returns (held for 20 ms, then faded)
    the 20th                          the halt command is written, and the loop ends
    SIGTERM, SIGINT                   the cycle is finished, the halt command is written, and the
                                      loop ends; a second signal acts as usual
    an error in read, control, write  the halt command is written, and the error is raised
"""

from __future__ import annotations

import gc
import math
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from thetahat.control.controller import STOP_AFTER, Controller, Reference
from thetahat.control.journal import Journal
from thetahat.control.loop_timing import (
    Clock,
    Histogram,
    MonotonicClock,
    Quantiles,
    VirtualClock,
)
from thetahat.errors import check_count, check_positive

STALL = 0.2  # [s]
COLLECT_EVERY = 1.0  # [s] between collections of young garbage, made while waiting


class Cycle(NamedTuple):
    """What a controller is told of the loop."""

    number: int  # of the cycle, from 0
    t: float  # [s] since the loop began, of its own clock
    late: float  # [s] after the deadline
    stalled: bool  # time was lost before this cycle: nothing may be integrated over the gap
    missing: int  # samples missing in a row before this one


@dataclass(frozen=True)
class LoopReport:
    """How a loop went."""

    reason: str  # why it ended, in words
    cycles: int
    duration: float  # [s]
    cycle_us: Quantiles  # from reading to having written
    late_us: Quantiles  # after the deadline
    jitter_us: Quantiles  # of the period: |time between beginnings − 1/rate|
    jitter_rms_us: float
    overruns: int  # cycles that took longer than a period
    missed: int  # deadlines skipped
    stalls: int
    held: int  # cycles that repeated the last command for want of a sample
    dropped: int  # samples whose stamp did not advance
    # what somebody has to look at: records that a full disk lost, a robot that changed
    alarms: tuple[str, ...] = ()

    def __str__(self) -> str:
        alarms = "".join(f"; ALARM: {sentence}" for sentence in self.alarms)
        return (
            f"{self.cycles} cycles in {self.duration:.3f} s, ended: {self.reason}; cycle"
            f" {self.cycle_us}; late {self.late_us}; jitter {self.jitter_us}; {self.overruns}"
            f" overruns, {self.missed} deadlines missed, {self.stalls} stalls, {self.held}"
            f" held{alarms}"
        )


class Loop:
    """A loop at `rate` [Hz].

    Args:
        rate: cycles per second.
        clock: `MonotonicClock()` unless told; `VirtualClock()` for simulations.
        stop_after: missing samples in a row that end it.
        stall: [s] of lateness after which time counts as lost.
        quiet_gc: keep Python's garbage collector from pausing a cycle: what exists is left alone,
            young garbage is collected while waiting.
        signals: whether SIGTERM and SIGINT end the loop in order (in the main thread only;
            elsewhere they are not the loop's to catch).

    """

    def __init__(
        self,
        rate: float,
        *,
        clock: Clock | None = None,
        stop_after: int = STOP_AFTER,
        stall: float = STALL,
        quiet_gc: bool = True,
        signals: bool = True,
    ) -> None:
        for name, value in (("rate", rate), ("stall", stall)):
            check_positive(name, value)
        check_count("stop_after", stop_after)
        self.rate, self.stop_after, self.stall = float(rate), stop_after, stall
        self.period = max(1, round(1e9 / rate))  # [ns]
        self.clock: Clock = MonotonicClock() if clock is None else clock
        self._quiet_gc, self._signals = quiet_gc, signals
        self._asked: str | None = None

    def stop(self, reason: str = "stop() was called") -> None:
        """End the loop after this cycle; from any thread, or from inside it."""
        self._asked = reason

    def run(
        self,
        read: Callable[[], Any],
        control: Callable[[Cycle, Any], Any],
        write: Callable[[Any], Any],
        *,
        duration: float | None = None,
        until: Callable[[], bool] | None = None,
        halt: Callable[[], Any] | None = None,
        stamp: Callable[[Any], float] | None = None,
    ) -> LoopReport:
        """Run until `duration` [s] is over, `until()` is true, `stop()` is called, a signal comes,
        or samples stay away.

        Args:
            read: → a sample, or None where there is none.
            control: (cycle, sample) → command; see `Follow` and `OnlineControl`. Where it has
                `missed`, it is told of cycles without a sample; where it has `alarms`, they are
                reported.
            write: takes a command.
            halt: → the command to end with; by default `control.halt` where there is one.
            stamp: sample → its time: one that does not advance (repeated, out of order) is dropped,
                and counts as missing.

        """
        halt = getattr(control, "halt", None) if halt is None else halt
        beside = getattr(control, "run_beside", None)
        if callable(beside) and not isinstance(self.clock, VirtualClock):
            beside()  # before the first cycle: starting a process takes its time
        run = _Run(self, read, control, write, halt, stamp)
        self._asked = None
        with (
            _caught_signals(self) if self._signals else nullcontext(),
            _quiet_collector() if self._quiet_gc else nullcontext(),
        ):
            return run.through(None if duration is None else round(duration * 1e9), until)


class _Run:
    """One run of a loop."""

    def __init__(
        self,
        loop: Loop,
        read: Callable[[], Any],
        control: Callable[[Cycle, Any], Any],
        write: Callable[[Any], Any],
        halt: Callable[[], Any] | None,
        stamp: Callable[[Any], float] | None,
    ) -> None:
        self.loop, self.read, self.control, self.write = loop, read, control, write
        self.halt, self.stamp = halt, stamp
        told = getattr(control, "missed", None)
        self.missed_sample = told if callable(told) else None
        self.work, self.late, self.jitter = Histogram(), Histogram(), Histogram()
        self.cycles = self.overruns = self.missed = self.stalls = self.held = self.dropped = (
            self.missing
        ) = 0
        self.newest = -math.inf
        self.has_command, self.command = False, None

    def through(self, duration: int | None, until: Callable[[], bool] | None) -> LoopReport:
        loop, clock = self.loop, self.loop.clock
        begin = deadline = clock.now()
        before: int | None = None
        reason = None
        try:
            while not reason:
                reason = self._wait(deadline, None if duration is None else begin + duration, until)
                if reason:
                    break
                now = clock.now()
                late = now - deadline
                stalled = late >= loop.stall * 1e9
                if stalled:
                    self.stalls, self.missed = self.stalls + 1, self.missed + late // loop.period
                    deadline = now
                self.late.add(late)
                if before is not None and not stalled:
                    self.jitter.add(abs(now - before - loop.period))
                before = now
                reason = self._cycle(
                    Cycle(self.cycles, (now - begin) * 1e-9, late * 1e-9, stalled, self.missing)
                )
                self.cycles += 1
                done = clock.now()
                self.work.add(done - now)
                self.overruns += done - now > loop.period
                deadline = self._next(deadline, done)
        except BaseException:
            with suppress(Exception):  # the first error is the one to tell
                self._end()
            raise
        self._end()
        return self._report(reason, clock.now() - begin)

    def _wait(self, deadline: int, end: int | None, until: Callable[[], bool] | None) -> str | None:
        """Wait for the deadline; a reason to end instead."""
        loop, clock = self.loop, self.loop.clock
        if end is not None and deadline >= end:
            return "the duration is over"
        if (
            loop._quiet_gc
            and self.cycles
            and self.cycles % max(1, round(COLLECT_EVERY * loop.rate)) == 0
            and deadline > clock.now()
        ):
            gc.collect(0)
        while loop._asked is None and clock.now() < deadline:
            clock.sleep_until(deadline)
        if loop._asked is not None:
            return loop._asked
        return "until() came true" if until is not None and until() else None

    def _next(self, deadline: int, done: int) -> int:
        """The next deadline of the grid that is not a whole period ago; those before it are missed.
        A stall is left for the cycle to find.
        """
        deadline += self.loop.period
        behind = (done - deadline) // self.loop.period
        if behind > 0 and done - deadline < self.loop.stall * 1e9:
            self.missed += behind
            deadline += behind * self.loop.period
        return deadline

    def _cycle(self, cycle: Cycle) -> str | None:
        """Read, control, write; a reason to end."""
        sample = self.read()
        if sample is not None and self.stamp is not None:
            at = self.stamp(sample)
            if at > self.newest:
                self.newest = at
            else:
                sample, self.dropped = None, self.dropped + 1
        if sample is None:
            if self.missed_sample is not None:
                command = self.missed_sample(cycle)
                self.command = self.command if command is None else command
            self.missing += 1
            if self.missing >= self.loop.stop_after:
                return f"{self.missing} samples in a row are missing"
            if self.has_command:
                self.held += 1
                self.write(self.command)
            return None
        self.missing = 0
        self.command = self.control(cycle, sample)
        self.has_command = True
        self.write(self.command)
        return None

    def _end(self) -> None:
        """Write the halt command, whatever ended the loop."""
        if self.halt is not None:
            self.write(self.halt())

    def _report(self, reason: str, elapsed: int) -> LoopReport:
        rms = math.sqrt(self.jitter.square / self.jitter.count) / 1e3 if self.jitter.count else 0.0
        return LoopReport(
            reason,
            self.cycles,
            elapsed * 1e-9,
            self.work.quantiles(),
            self.late.quantiles(),
            self.jitter.quantiles(),
            rms,
            self.overruns,
            self.missed,
            self.stalls,
            self.held,
            self.dropped,
            tuple(getattr(self.control, "alarms", ())),
        )


class Follow:
    """A controller as a loop wants it: wanted motion looked up, stalls passed on, measured and
    commanded written to a journal.

    Where a model is identified meanwhile, `OnlineControl` does more.

    controller: (t, q, dq, wanted) → tau, as in `controller.py`. wanted: t → (q, dq, ddq), each
        (nv,). Samples are (q, dq), or begin with them.
    """

    def __init__(
        self,
        controller: Controller,
        wanted: Callable[[float], Reference],
        *,
        journal: Journal | None = None,
    ) -> None:
        self.controller, self.wanted, self.journal = controller, wanted, journal
        if hasattr(controller, "halt"):
            self.halt = controller.halt

    def __call__(self, cycle: Cycle, sample: Any) -> Any:
        """The command of one cycle."""
        if cycle.stalled and hasattr(self.controller, "resync"):
            self.controller.resync()
        q, dq = sample[0], sample[1]
        tau = self.controller(cycle.t, q, dq, self.wanted(cycle.t))
        if self.journal is not None:
            self.journal.append("cycle", cycle.t, q=q, dq=dq, tau=tau)  # False: `alarms` tells
        return tau

    @property
    def alarms(self) -> tuple[str, ...]:
        """Records that could not be written, as a sentence."""
        return () if self.journal is None else self.journal.alarms


# -- around a run ----------------------------------------------------------------------------------


@contextmanager
def _caught_signals(loop: Loop) -> Iterator[None]:
    """SIGTERM and SIGINT ask the loop to end; each acts as usual when it comes again."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept: dict[int, Any] = {}

    def handler(number: int, frame: object) -> None:
        loop.stop(f"signal {signal.Signals(number).name}")
        signal.signal(number, kept[number])

    for number in (signal.SIGTERM, signal.SIGINT):
        kept[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for caught, before in kept.items():
            signal.signal(caught, before)


@contextmanager
def _quiet_collector() -> Iterator[None]:
    """No collection of garbage at a moment of its own choosing."""
    enabled = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if enabled:
            gc.enable()
