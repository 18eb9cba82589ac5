"""A loop in a process of its own, so that it shares no interpreter lock with the page: what it
leaves travels over a socket that never blocks it.
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from thetahat.errors import ThetahatError, UsageError
from thetahat.live.downloads import Memory
from thetahat.live.ring_buffer import DRAWN
from thetahat.live.sample_loop import Loop
from thetahat.live.sample_sources import Source
from thetahat.live.shared_state import Facts, Shared, Status
from thetahat.live.worker import end_with_parent
from thetahat.online.gate import GateState

HEAD = struct.Struct("<I")
PERIOD = 0.02  # [s] between two parcels
WAITING = 8_000_000  # bytes that may wait for a page that does not read
PATIENCE = 120.0  # [s] for the other process to be ready
ROOM = 1 << 20  # bytes of the socket's own buffer


class Wire:
    """The loop's end: gathers what the loop leaves, and sends it some fifty times a second, as far
    as there is room; it never waits.
    """

    def __init__(self, end: socket.socket, rate: float) -> None:
        end.setblocking(False)
        self._socket, self._pending = end, bytearray()
        self.stride = max(1, round(rate / DRAWN))
        self.loop: Loop | None = None
        self._times: list[int] = []
        self._calls: list[tuple[Any, ...]] = []
        self._status: Status | None = None
        self._gate: GateState | None = None  # as it is,
        self._sent: GateState | None = None  # and as the other end knows it
        self._due, self.lost = 0.0, 0  # parcels that there was no room for
        self._heard = bytearray()

    def time(self, ns: int) -> None:
        """Note the processor time of a cycle [ns]."""
        self._times.append(ns)

    def row(
        self,
        t: float,
        q: np.ndarray,
        error: np.ndarray | None,
        filtered: tuple[np.ndarray, ...] | None,
        flags: int,
    ) -> None:
        """Leave a row to be drawn."""
        kept = None if filtered is None else tuple(array.copy() for array in filtered)
        self._calls.append(
            ("row", t, q.copy(), None if error is None else error.copy(), kept, flags)
        )

    def update(self, t: float, gate: GateState, memory: Memory | None) -> None:
        """What the identifier says and remembers after an update."""
        self._calls.append(("update", t, gate, memory))

    def event(self, t: float, kind: str, sentence: str, like: str | None = None) -> None:
        """That something happened."""
        self._calls.append(("event", t, kind, sentence, like))

    def report(self, status: Status, gate: GateState) -> None:
        """How it stands; a parcel goes where it is time."""
        self._status, self._gate = status, gate
        now = time.monotonic()
        if now >= self._due:
            self._due = now + PERIOD
            self._send()
            self._hear()

    def end(self, failure: str) -> None:
        """That it is over; the last parcel may wait for its reader, as nothing else is left
        to do.
        """
        self._calls.append(("end", failure))
        self._send(last=True)
        self._socket.setblocking(True)
        with suppress(OSError):
            self._socket.sendall(self._pending)
            self._pending.clear()

    def _send(self, *, last: bool = False) -> None:
        parcel = pickle.dumps(
            (
                self._times,
                self._calls,
                self._status,
                None if self._gate is self._sent else self._gate,
            ),
            protocol=5,
        )
        self._times, self._calls = [], []
        if len(self._pending) + len(parcel) > WAITING and not last:
            self.lost += 1
        else:
            self._sent = self._gate
            self._pending += HEAD.pack(len(parcel))
            self._pending += parcel
        self._flush()

    def _flush(self) -> None:
        try:
            while self._pending:
                del self._pending[: self._socket.send(self._pending)]
        except BlockingIOError:
            pass
        except OSError:  # the page is gone, and so is the reason to run
            if self.loop is not None:
                self.loop.command("stop")

    def _hear(self) -> None:
        """Commands, one per line."""
        try:
            received = self._socket.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        if not received and self.loop is not None:
            self.loop.command("stop")
            return
        self._heard += received
        while b"\n" in self._heard:
            line, _, rest = self._heard.partition(b"\n")
            self._heard = bytearray(rest)
            self.loop.command(line.decode("ascii", "replace"))


def _live(
    end: socket.socket,
    factory: Callable[..., Source],
    arguments: tuple,
    options: dict[str, Any],
    speed: float,
) -> None:
    """In the other process: make the source, say what it is, run it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the page, which then ends this
    end_with_parent()
    try:
        source = factory(*arguments, **options)
        first: Facts | Exception = Facts.of(source, speed)
    except Exception as error:
        first = (
            error
            if isinstance(error, ThetahatError)
            else UsageError(f"the run cannot begin: {type(error).__name__}: {error}")
        )
    parcel = pickle.dumps(first, protocol=5)
    end.sendall(HEAD.pack(len(parcel)) + parcel)
    if isinstance(first, Exception):
        return
    wire = Wire(end, source.rate)
    wire.loop = Loop(source, wire, speed=speed)
    wire.loop.run()


class Remote:
    """The page's end: starts the other process, waits for its facts, and hands what comes to a
    `Shared` as if the loop were here.
    """

    def __init__(
        self,
        factory: Callable[..., Source],
        arguments: tuple,
        options: dict[str, Any],
        *,
        speed: float,
    ) -> None:
        mine, theirs = socket.socketpair()
        for end in (mine, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ROOM)
        self._socket = mine
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(
            target=_live,
            args=(theirs, factory, arguments, options, speed),
            name="thetahat-loop",
            daemon=True,
        )
        self._process.start()
        theirs.close()
        mine.settimeout(PATIENCE)
        first = self._parcel()
        if first is None:
            self._process.kill()
            raise UsageError("the process of the run did not start")
        if isinstance(first, Exception):
            self._process.join(timeout=5.0)
            raise first
        mine.settimeout(None)
        self.facts: Facts = first
        self._shared: Shared | None = None
        self._thread = threading.Thread(target=self._read, name="thetahat-relay", daemon=True)

    def start(self, shared: Shared) -> None:
        """Hand on what comes, from a thread."""
        self._shared = shared
        self._thread.start()

    def command(self, name: str) -> None:
        """Send one."""
        with suppress(OSError):
            self._socket.sendall(name.encode("ascii") + b"\n")

    def stop(self) -> None:
        """End the other process."""
        self.command("stop")
        self._process.join(timeout=3.0)
        if self._process.is_alive():
            self._process.kill()
            self._process.join(timeout=5.0)
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)

    def _exactly(self, count: int) -> bytes | None:
        data = bytearray()
        while len(data) < count:
            try:
                piece = self._socket.recv(min(count - len(data), 1 << 16))
            except OSError:
                return None
            if not piece:
                return None
            data += piece
        return bytes(data)

    def _parcel(self) -> Any:
        head = self._exactly(HEAD.size)
        body = None if head is None else self._exactly(HEAD.unpack(head)[0])
        return (
            None if body is None else pickle.loads(body)
        )  # from our own child, over a socket that nobody else has

    def _read(self) -> None:
        shared = self._shared
        while (parcel := self._parcel()) is not None:
            times, calls, status, gate = parcel
            for ns in times:
                shared.time(ns)
            for name, *arguments in calls:
                getattr(shared, name)(*arguments)
            if status is not None:
                shared.report(status, shared.gate if gate is None else gate)
        if not shared.ended:
            sentence = "the process of the run ended without a word; its last state is shown"
            shared.event(shared.status.clock, "fault", sentence)
            shared.end(sentence)
