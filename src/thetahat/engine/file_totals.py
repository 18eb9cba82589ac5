"""What each file of a log comes to by itself: so that a file can be judged, and left out, without
reading the others again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from thetahat.engine.foreign_logs import FilePart
from thetahat.engine.shards import Shard

R = TypeVar("R")
BYTES = 1e9  # that the factors of all files may take here
WAITING = 64  # results of one file that wait to be merged: it may have many more shards


class ByFile(Generic[R]):
    """Merged as the shards of a file are done; given up where all files together would take too
    much memory.
    """

    def __init__(self, shards: Sequence[Shard], merge: Callable[[Sequence[R]], R]) -> None:
        self._shards, self._merge = shards, merge
        self._missing = Counter(shard.item.place for shard in shards)
        self._parts: dict[str, dict[int, R]] = {}
        self.files = len(self._missing)
        self.given_up = False

    def add(self, number: int, result: R | None) -> None:
        """A shard is done; None: it failed."""
        place = self._shards[number].item.place
        self._missing[place] -= 1
        if result is None or self.given_up or self.files < 2:  # a single file is all or nothing
            return
        if not self._parts and _bytes(result) * self.files > BYTES:
            self.given_up = True
            return
        parts = self._parts.setdefault(place, {})
        parts[number] = result
        if not self._missing[place] or len(parts) > WAITING:
            self._parts[place] = {min(parts): self._merge([parts[k] for k in sorted(parts)])}

    def parts(self) -> list[FilePart[R]]:
        """In the order of the log."""
        firsts = sorted((min(parts), place) for place, parts in self._parts.items())
        return [
            FilePart(place, self._shards[at].item.name, self._of(place)) for at, place in firsts
        ]

    def without(self, places: Iterable[str]) -> R | None:
        """All others merged; None where that is not known, or nothing is left."""
        gone = set(places)
        left = (
            []
            if self.given_up
            else [part.result for part in self.parts() if part.place not in gone]
        )
        return self._merge(left) if left else None

    def _of(self, place: str) -> R:
        parts = self._parts[place]
        return self._merge([parts[k] for k in sorted(parts)])


def _bytes(result: object) -> int:
    return sum(factor.nbytes for factor in getattr(result, "factors", ()))
