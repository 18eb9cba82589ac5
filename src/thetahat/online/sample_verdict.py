"""The verdict on a sample: taken or not, the gate, the model a controller may use, and events."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass

from thetahat.model.robot import Robot
from thetahat.online.gate import GateState

EVENTS = 256  # kept


@dataclass(frozen=True)
class Event:
    """Something that happened to the stream."""

    t: float  # [s], on the stream's own clock
    kind: str
    joint: str | None
    sentence: str


class Events:
    """The last 256 events, and the number of each kind (`counts`)."""

    def __init__(self) -> None:
        self._last: deque[Event] = deque(maxlen=EVENTS)
        self._unreported: deque[Event] = deque(maxlen=EVENTS)
        self.counts: Counter[str] = Counter()

    def add(self, t: float, kind: str, sentence: str, joint: str | None = None) -> None:
        """Count and record an event."""
        self.counts[kind] += 1
        self.record(Event(t, kind, joint, sentence))

    def record(self, event: Event) -> None:
        """Record an event that was counted before."""
        self._last.append(event)
        self._unreported.append(event)

    @property
    def unreported(self) -> bool:
        """Whether there are events that no verdict has reported yet."""
        return bool(self._unreported)

    def report(self) -> tuple[Event, ...]:
        """Return the events since the last report."""
        events = tuple(self._unreported)
        self._unreported.clear()
        return events

    def __len__(self) -> int:
        return len(self._last)

    def __iter__(self) -> Iterator[Event]:
        return iter(self._last)

    def __getitem__(self, index: int) -> Event:
        return self._last[index]


@dataclass(frozen=True, eq=False)
class SampleVerdict:
    """What became of a sample, and which model may be used now. It is true if it was accepted."""

    accepted: bool  # whether the sample was used; False also where none came
    # why not; or what is special about it: the filter started anew or settles, or the torques made
    # a step; "" for an ordinary sample
    reason: str
    gate: GateState
    robot: Robot  # what a controller may use right now: identified while the gate is open
    events: tuple[Event, ...] = ()  # since the verdict before

    @property
    def ordinary(self) -> bool:
        """Whether it was accepted and nothing is special about it."""
        return self.accepted and not self.reason

    def __bool__(self) -> bool:
        return self.accepted
