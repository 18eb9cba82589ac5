"""What happened, as sentences: the identifier's events and the page's own, bounded, with a storm of
like ones told as one.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Any

from thetahat.online.sample_verdict import Event

KEPT = 100
QUIET, QUIETEST = (
    1.0,
    20.0,
)  # [s] in which events of one kind are counted and not repeated; it doubles as long as they come
KINDS = {  # of the identifier: of the page
    "opened": "gate",
    "closed": "gate",
    "alarm": "drift",
    "reset": "reset",
    "not finite": "dropped",
    "spike": "dropped",
    "duplicate": "dropped",
    "out of order": "dropped",
    "gap": "dropped",
    "stopped": "dropped",
    "clock": "fault",
    "rate": "fault",
    "stuck": "fault",
    "dead torque": "fault",
    "solver": "fault",
    "declined": "fault",
    "picture": "fault",
}


@dataclass
class _Storm:
    """How often something happened since it was told last."""

    told: float
    quiet: float = QUIET
    count: int = 0
    sentence: str = ""


def told(event: Event) -> tuple[str, str]:
    """(kind, sentence) of an event of the identifier, as the page has it."""
    lead = f"the gate {event.kind}: " if event.kind in ("opened", "closed") else ""
    return KINDS.get(event.kind, "info"), lead + event.sentence


class Journal:
    """Events in the order they came. Any thread adds, the publisher takes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._fresh: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._storms: dict[str, _Storm] = {}

    def add(self, t: float, kind: str, sentence: str, *, like: str | None = None) -> None:
        """Tell something; like: what other events it may be counted with."""
        with self._lock:
            if like is not None and kind != "gate":
                storm = self._storms.get(like)
                if storm is not None and t - storm.told < storm.quiet:
                    storm.count, storm.sentence = storm.count + 1, sentence
                    return
                self._storms[like] = _Storm(t)
            self._tell(t, kind, sentence)

    def settle(self, t: float, *, over: bool = False) -> None:
        """Tell what was counted, when it is time, or when all is over."""
        with self._lock:
            for like, storm in list(self._storms.items()):
                if t - storm.told < storm.quiet and not over:
                    continue
                if storm.count:
                    more = "" if storm.count == 1 else f" (and {storm.count - 1} more like it)"
                    self._tell(t, KINDS.get(like, "info"), storm.sentence + more)
                    self._storms[like] = _Storm(t, min(2.0 * storm.quiet, QUIETEST))
                else:
                    del self._storms[like]

    def _tell(self, t: float, kind: str, sentence: str) -> None:
        message = {
            "type": "event",
            "t": round(t, 4),
            "kind": kind,
            "message": sentence[:1].upper() + sentence[1:],
        }
        self._kept.append(message)
        self._fresh.append(message)

    def fresh(self) -> list[dict[str, Any]]:
        """Events since the last call."""
        with self._lock:
            out = list(self._fresh)
            self._fresh.clear()
            return out

    @property
    def all(self) -> list[dict[str, Any]]:
        """The last ones."""
        with self._lock:
            return list(self._kept)
