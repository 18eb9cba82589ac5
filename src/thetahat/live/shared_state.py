"""State shared between the sample loop and the page, without locks in the loop's way.

The loop writes and the page reads; neither waits for the other, in one process or in two. One
thread writes a ring buffer and one reads it: a counter is raised after a row is complete, so the
reader sees complete rows only. A reader that comes too late has lost the rows that were written
over, which costs the picture some points and the loop nothing.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np

from thetahat.live.downloads import LogInfo, Snapshot
from thetahat.live.sample_sources import Source
from thetahat.model.robot import Robot
from thetahat.online.gate import GateState
from thetahat.online.predict import plain
from thetahat.online.sample_verdict import Event

DRAWN = 50.0  # [Hz] of the rows: signals are drawn after a low-pass of 10 Hz
ROWS = 1024  # of the ring: 20 s
TIMES = 4096  # cycles whose processor times are kept
UPDATES = 256  # updates that may wait for the publisher
EVENTS = 100  # events that are kept
# Flags of a row: command of an identified model; its sample was fitted; the filter had settled.
IDENTIFIED, FITTED, SETTLED = 1, 2, 4

# [s] in which events of one kind are counted instead of repeated; doubled as long as they come
QUIET, QUIETEST = 1.0, 20.0
EVENT_KINDS = {  # of the identifier: of the page
    "opened": "gate",
    "closed": "gate",
    "alarm": "drift",
    "reset": "reset",
    **dict.fromkeys(("not finite", "spike", "duplicate", "out of order"), "dropped"),
    **dict.fromkeys(("gap", "stopped"), "dropped"),
    **dict.fromkeys(("clock", "rate", "stuck", "dead torque", "solver"), "fault"),
    **dict.fromkeys(("declined", "picture"), "fault"),
}

Filtered = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # q, dq, ddq, tau


class Row(NamedTuple):
    """One sample as the loop leaves it for the page."""

    t: float  # [s]
    q: np.ndarray  # (nq,) measured
    error: np.ndarray | None  # (nv,) desired − true position
    filtered: tuple[np.ndarray, ...] | None  # q, dq, ddq, tau after the filter, (1, ·) each
    flags: int


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows that the loop wrote, in order."""

    t: np.ndarray  # (n,) [s]
    q: np.ndarray  # (n, nq) measured
    error: np.ndarray  # (n, nv) desired − true position; NaN without a desired motion
    filtered: Filtered  # (n, ·) after the identifier's filter
    flags: np.ndarray  # (n,)

    def __len__(self) -> int:
        return len(self.t)

    @property
    def settled(self) -> np.ndarray:
        """(n,) whether the filter had settled."""
        return np.asarray((self.flags & SETTLED) != 0)

    @property
    def identified(self) -> np.ndarray:
        """(n,) whether the controller ran on an identified model."""
        return np.asarray((self.flags & IDENTIFIED) != 0)


class RingBuffer:
    """Rings of rows and of cycle times: `time` every cycle, `row` every `stride` cycles."""

    def __init__(self, robot: Robot, rate: float) -> None:
        self.stride = max(1, round(rate / DRAWN))  # cycles between two rows
        self._t, self._flags = np.empty(ROWS), np.zeros(ROWS, dtype=np.uint8)
        self._q, self._error = np.empty((ROWS, robot.nq)), np.full((ROWS, robot.nv), np.nan)
        widths = (robot.nq, robot.nv, robot.nv, robot.nv)
        self._filtered = tuple(np.zeros((ROWS, width)) for width in widths)
        self.written = self._read = 0
        self.cycles, self._ns = 0, np.zeros(TIMES, dtype=np.int64)

    # -- the loop's side ---------------------------------------------------------------------------

    def time(self, ns: int) -> None:
        """Note the processor time of a cycle [ns]."""
        self._ns[self.cycles % TIMES] = ns
        self.cycles += 1

    def row(self, row: Row) -> None:
        """Write a row."""
        k, flags = self.written % ROWS, row.flags
        self._t[k], self._q[k] = row.t, row.q
        self._error[k] = np.nan if row.error is None else row.error
        if row.filtered is not None:
            for ring, value in zip(self._filtered, row.filtered, strict=True):
                ring[k] = value[0]
            flags |= SETTLED
        self._flags[k] = flags
        self.written += 1

    # -- the publisher's side ----------------------------------------------------------------------

    def read(self) -> tuple[Rows, int]:
        """Return (rows since the last call, how many were lost)."""
        end = self.written
        begin = max(self._read, end - ROWS // 2)  # the other half may be written meanwhile
        at = np.arange(begin, end) % ROWS
        rings = (self._t, self._q, self._error, self._flags, *self._filtered)
        arrays = [ring[at] for ring in rings]
        # Rows that were written over while they were read, or are being written over now, are
        # incomplete.
        torn = min(max(self.written + 1 - ROWS - begin, 0), end - begin)
        t, q, error, flags, q_f, dq_f, ddq_f, tau_f = (array[torn:] for array in arrays)
        lost, self._read = begin + torn - self._read, end
        return Rows(t, q, error, (q_f, dq_f, ddq_f, tau_f), flags), lost

    def quantiles(self) -> tuple[float, float] | None:
        """Return median and 99th percentile of the last cycles' processor times [µs]."""
        n = min(self.cycles, TIMES)
        if n < 20:
            return None
        p50, p99 = np.percentile(self._ns[:n], (50, 99))
        return float(p50) / 1e3, float(p99) / 1e3


class RecentRows:
    """The last filtered rows that were in no fit, for a report."""

    def __init__(self, robot: Robot, rows: int) -> None:
        widths = {"t": 1, "q": robot.nq, "dq": robot.nv, "ddq": robot.nv, "tau": robot.nv}
        self._rings = {name: np.full((rows, width), np.nan) for name, width in widths.items()}
        self._rows, self._count = rows, 0

    def add(self, rows: Rows) -> None:
        """Keep those that are settled and were not fitted."""
        good = np.flatnonzero(rows.settled & ((rows.flags & FITTED) == 0))[-self._rows :]
        at = (self._count + np.arange(len(good))) % self._rows
        for name, values in zip(self._rings, (rows.t[:, None], *rows.filtered), strict=True):
            self._rings[name][at] = values[good]
        self._count += len(good)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return t (n,), q, dq, ddq, tau (n, ·) in the order of time, t strictly increasing."""
        n = min(self._count, self._rows)
        at = (self._count - n + np.arange(n)) % self._rows
        out = {name: ring[at] for name, ring in self._rings.items()}
        t = out.pop("t")[:, 0]
        later = np.concatenate([[True], np.diff(t) > 0.0])[:n]
        return {"t": t[later], **{name: rows[later] for name, rows in out.items()}}


# -- events ----------------------------------------------------------------------------------------


@dataclass
class _Repeats:
    """How often an event happened since it was last shown."""

    shown: float  # [s] when
    quiet: float = QUIET
    count: int = 0
    sentence: str = ""


class EventLog:
    """Bounded list of events; a burst of like ones is counted. Any thread adds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: deque[dict[str, Any]] = deque(maxlen=EVENTS)
        self._new: deque[dict[str, Any]] = deque(maxlen=EVENTS)
        self._repeats: dict[str, _Repeats] = {}

    def add(self, t: float, kind: str, sentence: str, *, like: str | None = None) -> None:
        """Add an event; like: the kind of events that it may be counted with."""
        with self._lock:
            if like is not None and kind != "gate":
                repeats = self._repeats.get(like)
                if repeats is not None and t - repeats.shown < repeats.quiet:
                    repeats.count, repeats.sentence = repeats.count + 1, sentence
                    return
                self._repeats[like] = _Repeats(t)
            self._append(t, kind, sentence)

    def flush(self, t: float, *, over: bool = False) -> None:
        """Show counted events that are due, or all of them at the end."""
        with self._lock:
            for like, repeats in list(self._repeats.items()):
                if t - repeats.shown < repeats.quiet and not over:
                    continue
                if repeats.count:
                    more = "" if repeats.count == 1 else f" (and {repeats.count - 1} more like it)"
                    self._append(t, EVENT_KINDS.get(like, "info"), repeats.sentence + more)
                    self._repeats[like] = _Repeats(t, min(2.0 * repeats.quiet, QUIETEST))
                else:
                    del self._repeats[like]

    def _append(self, t: float, kind: str, sentence: str) -> None:
        message = sentence[:1].upper() + sentence[1:]
        event = {"type": "event", "t": round(t, 4), "kind": kind, "message": message}
        self._events.append(event)
        self._new.append(event)

    def new(self) -> list[dict[str, Any]]:
        """Return the events since the last call."""
        with self._lock:
            out = list(self._new)
            self._new.clear()
            return out

    @property
    def all(self) -> list[dict[str, Any]]:
        """The last events."""
        with self._lock:
            return list(self._events)


def describe(event: Event) -> tuple[str, str]:
    """Return (kind, sentence) of an identifier's event, as the page has it."""
    lead = f"the gate {event.kind}: " if event.kind in ("opened", "closed") else ""
    return EVENT_KINDS.get(event.kind, "info"), lead + event.sentence


# -- the run ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ControlInfo:
    """What drives the robot."""

    tracks: bool  # whether there is a desired motion, so that there are errors
    controlled: bool  # whether a controller of ours drives the robot,
    forcible: bool  # and can be forced to the nominal model


@dataclass(frozen=True, eq=False)
class IdentifierInfo:
    """Constants of the identifier."""

    nominal: Robot
    robot: Robot  # with the drive terms that are identified
    threshold: float
    window: int
    min_speed: np.ndarray
    cutoff: float | None  # [Hz] of its filter


@dataclass(frozen=True, eq=False)
class RunInfo:
    """Constants of a run."""

    mode: str
    title: str
    rate: float  # [Hz] of samples
    speed: float
    control: ControlInfo
    identifier: IdentifierInfo
    log: LogInfo

    @staticmethod
    def of(source: Source, speed: float) -> RunInfo:
        """Return those of a source, ready to be pickled."""
        identifier, tau = source.identifier, source.identifier.time_constant
        constants = IdentifierInfo(
            nominal=plain(source.nominal),
            robot=plain(identifier.nominal),
            threshold=identifier.threshold,
            window=identifier.window,
            min_speed=identifier.min_speed,
            cutoff=1.0 / (2.0 * math.pi * tau) if tau else None,
        )
        control = ControlInfo(source.tracks, source.controller is not None, source.forcible)
        log = LogInfo(source.findings, source.locked, source.provenance)
        return RunInfo(source.mode, source.title, source.rate, speed, control, constants, log)


@dataclass(frozen=True, eq=False)
class Status:
    """Current status of a run."""

    clock: float  # [s]
    updates: int
    dropped: int  # samples that came and were not used
    forced: bool
    paused: bool
    late: float  # [s] by which the loop fell behind the wall clock


class SharedState(RingBuffer):
    """One run: ring buffer, events, last gate state and snapshot. The loop calls the methods."""

    def __init__(self, info: RunInfo) -> None:
        super().__init__(info.identifier.robot, info.rate)
        self.info, self.robot, self.events = info, info.identifier.robot, EventLog()
        self.started = datetime.now(UTC).astimezone()
        self.snapshot: Snapshot | None = None  # after the last update
        self.gate = GateState(False, "no sample has arrived yet")
        self.updates: deque[tuple[float, GateState]] = deque(maxlen=UPDATES)  # not yet published
        self.status = Status(0.0, 0, 0, False, False, 0.0)
        self.ended, self.failure = False, ""
        self.resets = 0
        for sentence in info.log.findings:
            self.events.add(0.0, "info", sentence)

    def update(self, t: float, gate: GateState, snapshot: Snapshot | None) -> None:
        """Set gate and snapshot after an update of the identifier; None after a reset."""
        self.gate, self.snapshot = gate, snapshot
        self.updates.append((t, gate))
        self.resets += snapshot is None

    def event(self, t: float, kind: str, sentence: str, like: str | None = None) -> None:
        """Add an event."""
        self.events.add(t, kind, sentence, like=like)

    def report(self, status: Status, gate: GateState) -> None:
        """Set the current status."""
        self.status, self.gate = status, gate

    def end(self, failure: str) -> None:
        """Mark the run as ended."""
        self.failure, self.ended = failure, True
