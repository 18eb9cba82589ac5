"""The loop of a run: it takes the source's samples, leaves what they brought for the page, and
obeys commands between two of them.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

import numpy as np

from thetahat.errors import ThetahatError
from thetahat.live.downloads import Memory
from thetahat.live.event_log import told
from thetahat.live.playback_clock import Pace
from thetahat.live.ring_buffer import FITTED, IDENTIFIED
from thetahat.live.sample_sources import Beat, Source
from thetahat.live.shared_state import Status
from thetahat.online.gate import GateState

MOST = 256  # commands that may wait
NEWS = 0.05  # of a payload's mass: less is not worth an event
DROPPED = (
    "not finite",
    "spike",
    "duplicate",
    "out of order",
)  # events of samples that were not used


class Out(Protocol):
    """Where a loop leaves what it has to say: `Shared`, or a wire to another process. None of these
    waits.
    """

    stride: int

    def time(self, ns: int) -> None: ...  # noqa: D102
    def row(  # noqa: D102
        self,
        t: float,
        q: np.ndarray,
        error: np.ndarray | None,
        filtered: tuple[np.ndarray, ...] | None,
        flags: int,
    ) -> None: ...
    def update(self, t: float, gate: GateState, memory: Memory | None) -> None: ...  # noqa: D102
    def event(self, t: float, kind: str, sentence: str, like: str | None = None) -> None: ...  # noqa: D102
    def report(self, status: Status, gate: GateState) -> None: ...  # noqa: D102
    def end(self, failure: str) -> None: ...  # noqa: D102


class Loop:
    """`run` it in a thread or process of its own; `command` from any other."""

    def __init__(self, source: Source, out: Out, *, speed: float) -> None:
        self.source, self.identifier, self._out = source, source.identifier, out
        self.pace = Pace(speed, idle=self._idle)
        self._commands: deque[str] = deque()
        self._updates, self._event, self._mass, self._last, self._cycles = (
            self.identifier.updates,
            None,
            None,
            -np.inf,
            0,
        )
        self._declined = ""  # why the controller did not take the last model, as far as it was told

    def run(self) -> None:
        """To the source's end, or until it is stopped."""
        failure, take = "", self._take
        try:
            for beat in self.source.beats(self.pace):
                take(beat)
        except ThetahatError as error:
            failure = str(error)
        except Exception as error:  # the page must say so, and the server must live on
            failure = f"the run stopped by an unexpected {type(error).__name__}: {error} (a bug)"
        if failure:
            self._out.event(self.identifier.clock, "fault", failure)
        self._report()
        self._out.end(failure)
        self.identifier.close()

    def _take(self, beat: Beat) -> None:
        """Leave what a sample brought: the page costs the loop this and nothing else."""
        out, identifier = self._out, self.identifier
        out.time(beat.took)
        self._cycles += 1
        flags = IDENTIFIED if beat.identified else 0
        if identifier.updates != self._updates:
            self._updated()
            flags |= FITTED
        events = identifier.events
        if len(events) and events[-1] is not self._event:
            self._tell()
        if flags & FITTED or self._cycles % out.stride == 0:
            if beat.t > self._last:
                self._last = beat.t
                out.row(beat.t, beat.q, beat.error, identifier.filtered, flags)
            self._idle()

    def _updated(self) -> None:
        identifier = self.identifier
        self._updates = identifier.updates
        self._out.update(identifier.clock, identifier.gate, Memory.of(identifier, identifier.clock))
        report = identifier.payload
        mass = None if report is None else report.mass
        if mass is not None and (
            self._mass is None or abs(mass - self._mass) > NEWS * max(abs(self._mass), 0.02)
        ):
            self._mass = mass
            what = "holds since" if mass > 0.0 else "let go at"
            self._out.event(
                report.t,
                "payload",
                f"what the robot {what} {report.detected:.2f} s weighs about {abs(mass):.3g} kg",
            )

    def _tell(self) -> None:
        """Hand on the identifier's events since the last."""
        fresh = []
        for event in reversed(list(self.identifier.events)):
            if event is self._event or (self._event is not None and event.t < self._event.t):
                break
            fresh.append(event)
        for event in reversed(fresh):
            self._out.event(event.t, *told(event), event.kind)
        self._event = self.identifier.events[-1]

    def _report(self) -> None:
        identifier, counts = self.identifier, self.identifier.events.counts
        dropped = sum(counts[kind] for kind in DROPPED) + self.source.lost
        controller = self.source.controller
        forced, declined = (
            bool(getattr(controller, "forced", False)),
            getattr(controller, "declined", ""),
        )
        if declined != self._declined:
            self._declined = declined
            if declined:
                self._out.event(
                    identifier.clock,
                    "fault",
                    f"the controller keeps the nominal model: {declined}",
                    "declined",
                )
        self._out.report(
            Status(
                identifier.clock,
                identifier.updates,
                dropped,
                forced,
                self.pace.paused,
                self.pace.late,
            ),
            identifier.gate,
        )

    # -- commands ----------------------------------------------------------------------------------

    def command(self, name: str) -> None:
        """One that makes sense here: pause, resume, stop now; all others between two cycles."""
        if name == "pause":
            self.pace.pause()
        elif name == "resume":
            self.pace.resume()
        elif name == "stop":
            self.pace.stop()
        elif len(self._commands) < MOST:
            self._commands.append(name)

    def _idle(self) -> None:
        """Some fifty times a second, between two cycles or while there is nothing to do."""
        while self._commands:
            name, t = self._commands.popleft(), self.identifier.clock
            if name == "reset":
                self.identifier.reset()
                self._mass = None
                self._tell()
                self._out.update(t, self.identifier.gate, None)
            elif hasattr(self.source.controller, "forced"):
                self.source.controller.forced = name == "force_nominal"
                now = (
                    "is forced by a viewer; the gate goes on judging"
                    if name == "force_nominal"
                    else "is not forced any more"
                )
                self._out.event(t, "forced", f"the nominal model {now}")
        self._report()
