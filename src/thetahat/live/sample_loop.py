"""The loop of a run, in a thread or in a process of its own.

It takes the source's samples, leaves their results for the page, and obeys commands between two of
them. In a process of its own it shares no interpreter lock with the page; what it leaves travels
over a socket that never blocks it.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import connection
from typing import Any

import numpy as np

from thetahat.control.model_switch import ModelSwitch
from thetahat.errors import ThetahatError, UsageError
from thetahat.live.downloads import Snapshot
from thetahat.live.sample_sources import PlaybackClock, Source, Step
from thetahat.live.shared_state import (
    DRAWN,
    FITTED,
    IDENTIFIED,
    Row,
    RunInfo,
    SharedState,
    Status,
    describe,
)
from thetahat.online.gate import GateState
from thetahat.online.sample_verdict import Event

MOST_COMMANDS = 256  # that may wait
MASS_CHANGE = 0.05  # of a payload's mass: less is not worth an event
SURE = 2.0  # standard deviations of a mass that is told
DROPPED = ("not finite", "spike", "duplicate", "out of order")  # events of samples not used
HEAD = struct.Struct("<I")
PERIOD = 0.02  # [s] between two packets of a loop process
WAITING = 8_000_000  # bytes that may wait for a page that does not read
START_TIMEOUT = 120.0  # [s] for the loop process to be ready
SEND_BUFFER = 1 << 20  # bytes of the socket's own buffer
READ_TIMEOUT = 60.0  # [s] of silence after which the loop's process is looked at
LAST_TIMEOUT = 60.0  # [s] for the page to read the last packet


class SampleLoop:
    """`run` it in a thread or process of its own; `command` from any other.

    out: where results are left; none of its methods waits.
    """

    def __init__(self, source: Source, out: SharedState | PacketSender, *, speed: float) -> None:
        self.source, self.identifier, self._out = source, source.identifier, out
        self.clock = PlaybackClock(speed, idle=self._idle)
        self._commands: deque[str] = deque()
        self._updates, self._cycles = self.identifier.updates, 0
        self._last = -np.inf  # [s] of the last row
        self._event: Event | None = None  # the last one handed on
        self._mass: float | None = None  # [kg] last payload reported
        self._declined = ""  # why the controller did not take the last model

    def run(self) -> None:
        """Run to the source's end, or until it is stopped."""
        failure, take = "", self._take
        try:
            for step in self.source.steps(self.clock):
                take(step)
        except ThetahatError as error:
            failure = str(error)
        except Exception as error:  # the page must show it, and the server must live on
            failure = f"the run stopped by an unexpected {type(error).__name__}: {error} (a bug)"
        if failure:
            self._out.event(self.identifier.clock, "fault", failure)
        self._report()
        self._out.end(failure)
        self.identifier.close()

    def _take(self, step: Step) -> None:
        """Leave the result of a sample: the page costs the loop this and nothing else."""
        out, identifier = self._out, self.identifier
        out.time(step.took)
        self._cycles += 1
        flags = IDENTIFIED if step.identified else 0
        if identifier.updates != self._updates:
            self._updated()
            flags |= FITTED
        events = identifier.events
        if len(events) and events[-1] is not self._event:
            self._forward_events()
        if flags & FITTED or self._cycles % out.stride == 0:
            if step.t > self._last:
                self._last = step.t
                out.row(Row(step.t, step.q, step.error, identifier.filtered, flags))
            self._idle()

    def _updated(self) -> None:
        identifier = self.identifier
        self._updates = identifier.updates
        snapshot = Snapshot.of(identifier, identifier.clock)
        self._out.update(identifier.clock, identifier.gate, snapshot)
        report = identifier.payload
        if report is None or report.mass is None:
            return
        mass, last, std = report.mass, self._mass, report.payload.mass_std
        if std is None or abs(mass) < SURE * std:
            return
        if last is None or abs(mass - last) > MASS_CHANGE * max(abs(last), 0.02):
            self._mass = mass
            what = "picked up" if mass > 0.0 else "released"
            sentence = f"payload {what} at {report.detected:.2f} s: about {abs(mass):.3g} kg"
            self._out.event(report.t, "payload", sentence)

    def _forward_events(self) -> None:
        """Hand on the identifier's events since the last."""
        new: list[Event] = []
        for event in reversed(list(self.identifier.events)):
            if event is self._event or (self._event is not None and event.t < self._event.t):
                break
            new.append(event)
        for event in reversed(new):
            self._out.event(event.t, *describe(event), event.kind)
        self._event = self.identifier.events[-1]

    def _report(self) -> None:
        identifier, clock, counts = self.identifier, self.clock, self.identifier.events.counts
        dropped = sum(counts[kind] for kind in DROPPED) + self.source.lost
        controller, forced, declined = self.source.controller, False, ""
        if isinstance(controller, ModelSwitch):
            forced, declined = controller.forced, controller.declined
        if declined != self._declined:
            self._declined = declined
            if declined:
                sentence = f"the controller keeps the nominal model: {declined}"
                self._out.event(identifier.clock, "fault", sentence, "declined")
        updates, late = identifier.updates, clock.late
        status = Status(identifier.clock, updates, dropped, forced, clock.paused, late)
        self._out.report(status, identifier.gate)

    # -- commands ----------------------------------------------------------------------------------

    def command(self, name: str) -> None:
        """Obey a command: pause, resume and stop now, all others between two cycles."""
        if name in ("pause", "resume", "stop"):
            getattr(self.clock, name)()
        elif len(self._commands) < MOST_COMMANDS:
            self._commands.append(name)

    def _idle(self) -> None:
        """Obey and report, some fifty times a second, between two cycles or while waiting."""
        controller = self.source.controller
        while self._commands:
            name, t = self._commands.popleft(), self.identifier.clock
            if name == "reset":
                self.identifier.reset()
                self._mass = None
                self._forward_events()
                self._out.update(t, self.identifier.gate, None)
            elif isinstance(controller, ModelSwitch):
                controller.forced = name == "force_nominal"
                now = "forced by a viewer" if controller.forced else "no longer forced"
                self._out.event(t, "forced", f"nominal model {now}")
        self._report()


# -- a process of its own --------------------------------------------------------------------------


def end_with_parent() -> None:
    """End this process when the one that started it is gone."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch(sentinel: int) -> None:
        while not connection.wait([sentinel], timeout=60.0):
            pass
        os._exit(1)

    name, sentinel = "thetahat-orphan", parent.sentinel
    threading.Thread(target=watch, args=(sentinel,), name=name, daemon=True).start()


class PacketSender:
    """The loop's end of the socket: collects results and sends them some fifty times a second.

    It never waits: where there is no room, a packet is lost. command: takes the page's commands.
    """

    def __init__(self, end: socket.socket, rate: float) -> None:
        end.setblocking(False)
        self._socket, self._pending = end, bytearray()
        self.stride = max(1, round(rate / DRAWN))
        self.command: Callable[[str], None] = lambda name: None
        self._times: list[int] = []
        self._calls: list[tuple[Any, ...]] = []
        self._status: Status | None = None
        self._gate: GateState | None = None  # now,
        self._sent: GateState | None = None  # and as the other end knows it
        self._due, self.lost = 0.0, 0  # packets that there was no room for
        self._received = bytearray()

    def time(self, ns: int) -> None:
        """Note the processor time of a cycle [ns]."""
        self._times.append(ns)

    def row(self, row: Row) -> None:
        """Leave a row to be drawn."""
        error = None if row.error is None else row.error.copy()
        filtered = None if row.filtered is None else tuple(x.copy() for x in row.filtered)
        self._calls.append(("row", Row(row.t, row.q.copy(), error, filtered, row.flags)))

    def update(self, t: float, gate: GateState, snapshot: Snapshot | None) -> None:
        """Leave gate and snapshot after an update."""
        self._calls.append(("update", t, gate, snapshot))

    def event(self, t: float, kind: str, sentence: str, like: str | None = None) -> None:
        """Leave an event."""
        self._calls.append(("event", t, kind, sentence, like))

    def report(self, status: Status, gate: GateState) -> None:
        """Leave the status; send a packet where it is time."""
        self._status, self._gate = status, gate
        now = time.monotonic()
        if now >= self._due:
            self._due = now + PERIOD
            self._send()
            self._receive()

    def end(self, failure: str) -> None:
        """Send the last packet; it may wait for its reader, as nothing else is left to do."""
        self._calls.append(("end", failure))
        self._send(last=True)
        self._socket.settimeout(LAST_TIMEOUT)
        with suppress(OSError):
            self._socket.sendall(self._pending)
            self._pending.clear()

    def _send(self, *, last: bool = False) -> None:
        gate = None if self._gate is self._sent else self._gate
        packet = pickle.dumps((self._times, self._calls, self._status, gate), protocol=5)
        self._times, self._calls = [], []
        if len(self._pending) + len(packet) > WAITING and not last:
            self.lost += 1
        else:
            self._sent = self._gate
            self._pending += HEAD.pack(len(packet))
            self._pending += packet
        try:
            while self._pending:
                del self._pending[: self._socket.send(self._pending)]
        except BlockingIOError:
            pass
        except OSError:  # the page is gone, and so is the reason to run
            self.command("stop")

    def _receive(self) -> None:
        """Receive commands, one per line."""
        try:
            received = self._socket.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        if not received:
            self.command("stop")
            return
        *lines, rest = (self._received + received).split(b"\n")
        self._received = bytearray(rest)
        for line in lines:
            self.command(line.decode("ascii", "replace"))


def _run_loop(end: socket.socket, factory: Callable[[], Source], speed: float) -> None:
    """Make the source, send what it is, and run it, in the loop's process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the page, which then ends this
    end_with_parent()
    first: RunInfo | ThetahatError
    source: Source | None = None
    try:
        source = factory()
        first = RunInfo.of(source, speed)
    except ThetahatError as error:
        first = error
    except Exception as error:
        first = UsageError(f"the run cannot begin: {type(error).__name__}: {error}")
    packet = pickle.dumps(first, protocol=5)
    end.sendall(HEAD.pack(len(packet)) + packet)
    if source is None or isinstance(first, Exception):
        return
    sender = PacketSender(end, source.rate)
    loop = SampleLoop(source, sender, speed=speed)
    sender.command = loop.command
    loop.run()


class LoopProcess:
    """The page's end: starts the loop's process and hands its results to a `SharedState`.

    factory: makes the source; it and its result's `RunInfo` must be picklable.
    """

    def __init__(self, factory: Callable[[], Source], *, speed: float) -> None:
        self._socket, other = socket.socketpair()
        for end in (self._socket, other):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        context = multiprocessing.get_context("spawn")
        self.process = context.Process(
            target=_run_loop, args=(other, factory, speed), name="thetahat-loop", daemon=True
        )
        self.process.start()
        other.close()
        self._socket.settimeout(START_TIMEOUT)
        first = self._packet()
        if first is None:
            self.process.kill()
            raise UsageError("the process of the run did not start")
        if isinstance(first, Exception):
            self.process.join(timeout=5.0)
            raise first
        self._socket.settimeout(READ_TIMEOUT)
        self.info: RunInfo = first
        self._thread: threading.Thread | None = None

    def start(self, shared: SharedState) -> None:
        """Hand on results, from a thread."""
        self._thread = threading.Thread(
            target=self._read, args=(shared,), name="thetahat-relay", daemon=True
        )
        self._thread.start()

    def command(self, name: str) -> None:
        """Send a command."""
        with suppress(OSError):
            self._socket.sendall(name.encode("ascii") + b"\n")

    def stop(self) -> None:
        """End the loop's process."""
        self.command("stop")
        self.process.join(timeout=3.0)
        if self.process.is_alive():
            self.process.kill()
            self.process.join(timeout=5.0)
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        if self._thread is not None:
            self._thread.join(timeout=5.0)

    def _exactly(self, count: int) -> bytes | None:
        data = bytearray()
        while len(data) < count:
            try:
                piece = self._socket.recv(min(count - len(data), 1 << 16))
            except TimeoutError:
                if self._thread is None or not self.process.is_alive():
                    return None
                continue
            except OSError:
                return None
            if not piece:
                return None
            data += piece
        return bytes(data)

    def _packet(self) -> Any:
        """Return the next packet, of our own child over a socket that nobody else has."""
        head = self._exactly(HEAD.size)
        body = None if head is None else self._exactly(HEAD.unpack(head)[0])
        return None if body is None else pickle.loads(body)

    def _read(self, shared: SharedState) -> None:
        while (packet := self._packet()) is not None:
            times, calls, status, gate = packet
            for ns in times:
                shared.time(ns)
            for name, *arguments in calls:
                getattr(shared, name)(*arguments)
            if status is not None:
                shared.report(status, shared.gate if gate is None else gate)
        if not shared.ended:
            sentence = "the process of the run ended unexpectedly; its last state is shown"
            shared.event(shared.status.clock, "fault", sentence)
            shared.end(sentence)
