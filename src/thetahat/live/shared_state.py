"""What the loop and the page share. The loop writes, the page reads, and neither waits for the
other, in one process or in two.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from thetahat.live.downloads import Memory
from thetahat.live.event_log import Journal
from thetahat.live.ring_buffer import Tap
from thetahat.live.sample_sources import Source
from thetahat.live.worker import Workshop
from thetahat.model.robot import Robot
from thetahat.online.gate import GateState
from thetahat.online.predict import plain

TOLD = 256  # updates that may wait for the publisher


@dataclass(frozen=True, eq=False)
class Facts:
    """Of a run, what does not change."""

    mode: str
    title: str
    rate: float  # [Hz] of samples
    speed: float
    wanted: bool  # whether there is a motion to follow, so that there are errors
    controlled: bool  # whether a controller of ours drives the robot,
    forcible: bool  # and can be held to the nominal model
    nominal: Robot
    robot: Robot  # with the drive terms that are identified
    threshold: float
    window: int
    min_speed: np.ndarray
    cutoff: float | None  # [Hz] of the identifier's filter
    findings: tuple[str, ...]
    locked: tuple[str, ...]
    provenance: dict[str, Any]

    @staticmethod
    def of(source: Source, speed: float) -> Facts:
        """Of a source, ready to travel to another process."""
        identifier = source.identifier
        return Facts(
            mode=source.mode,
            title=source.title,
            rate=source.rate,
            speed=speed,
            wanted=source.wanted,
            controlled=source.controller is not None,
            forcible=source.forcible,
            nominal=plain(source.nominal),
            robot=plain(identifier.nominal),
            threshold=identifier.threshold,
            window=identifier.window,
            min_speed=identifier.min_speed,
            cutoff=(
                1.0 / (2.0 * math.pi * identifier.time_constant)
                if identifier.time_constant
                else None
            ),
            findings=source.findings,
            locked=source.locked,
            provenance=source.provenance,
        )


@dataclass(frozen=True, eq=False)
class Status:
    """Of a run, as it is now."""

    clock: float  # [s]
    updates: int
    dropped: int  # samples that came and were not used
    forced: bool
    paused: bool
    late: float  # [s] lost on the wall because cycles took longer than there was time


class Shared:
    """One run: rings, events, what the identifier said and remembers. Its methods are the loop's;
    the page reads attributes.
    """

    def __init__(self, facts: Facts) -> None:
        self.facts, self.robot = facts, facts.robot
        self.tap, self.journal = Tap(facts.robot, facts.rate), Journal()
        self.workshop = Workshop(facts.robot, facts.nominal)
        self.started = datetime.now(UTC).astimezone()
        self.memory: Memory | None = None  # after the last update
        self.gate = GateState(False, "no sample has come yet")
        self.said: deque[tuple[float, GateState]] = deque(
            maxlen=TOLD
        )  # updates that the publisher has not seen
        self.status = Status(0.0, 0, 0, False, False, 0.0)
        self.ended, self.failure = False, ""
        self.resets = 0  # how often everything learned was forgotten
        for sentence in facts.findings:
            self.journal.add(0.0, "info", sentence)

    @property
    def stride(self) -> int:
        """Cycles between two rows."""
        return self.tap.stride

    def time(self, ns: int) -> None:
        """Note the processor time of a cycle [ns]."""
        self.tap.time(ns)

    def row(
        self,
        t: float,
        q: np.ndarray,
        error: np.ndarray | None,
        filtered: tuple[np.ndarray, ...] | None,
        flags: int,
    ) -> None:
        """Leave a row to be drawn."""
        self.tap.row(t, q, error, filtered, flags)

    def update(self, t: float, gate: GateState, memory: Memory | None) -> None:
        """What the identifier says and remembers after an update; None after a reset."""
        self.gate, self.memory = gate, memory
        self.said.append((t, gate))
        self.resets += memory is None

    def event(self, t: float, kind: str, sentence: str, like: str | None = None) -> None:
        """That something happened."""
        self.journal.add(t, kind, sentence, like=like)

    def report(self, status: Status, gate: GateState) -> None:
        """How it stands."""
        self.status, self.gate = status, gate

    def end(self, failure: str) -> None:
        """That it is over."""
        self.failure, self.ended = failure, True
