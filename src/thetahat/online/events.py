"""What happened to a stream: the last events, and how many there were of each kind."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass

EVENTS = 256  # kept


@dataclass(frozen=True)
class Event:
    """Something that happened to the stream."""

    t: float  # [s], on the stream's own clock
    kind: str
    joint: str | None
    sentence: str


class Events:
    """The last events, and how many there were of each kind."""

    def __init__(self) -> None:
        self._last: deque[Event] = deque(maxlen=EVENTS)
        self.counts: Counter[str] = Counter()

    def add(self, t: float, kind: str, sentence: str, joint: str | None = None) -> None:
        """Put one on record."""
        self.counts[kind] += 1
        self.tell(Event(t, kind, joint, sentence))

    def tell(self, event: Event) -> None:
        """Put one on record that was counted before."""
        self._last.append(event)

    def __len__(self) -> int:
        return len(self._last)

    def __iter__(self) -> Iterator[Event]:
        return iter(self._last)

    def __getitem__(self, index: int) -> Event:
        return self._last[index]
