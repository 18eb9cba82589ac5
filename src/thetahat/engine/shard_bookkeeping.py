"""Shards while they are reduced: kept in the store as they are done, merged file by file so that a
file can be left out without reading the others again, counted for a progress bar.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Generic, TypeVar

from thetahat.engine.cache import Store
from thetahat.engine.fingerprint import fingerprint
from thetahat.engine.foreign_logs import FilePart
from thetahat.engine.multi_log import Failure
from thetahat.engine.shard_work import Work
from thetahat.engine.shards import Shard
from thetahat.engine.tuning_cache import Write
from thetahat.engine.workers import Part
from thetahat.errors import ThetahatError

R = TypeVar("R")
BYTES = 1e9  # that the factors of all files may take here
WAITING = 64  # results of one file that wait to be merged: it may have many more shards


class FileTotals(Generic[R]):
    """What each file comes to by itself, merged as its shards are done.

    Given up where all files together would take too much memory.
    """

    def __init__(self, shards: Sequence[Shard], merge: Callable[[Sequence[R]], R]) -> None:
        self._shards, self._merge = shards, merge
        self._missing = Counter(shard.item.place for shard in shards)
        self._parts: dict[str, dict[int, R]] = {}
        self.files = len(self._missing)
        self.given_up = False

    def add(self, number: int, result: R | None) -> None:
        """Add the result of a shard; None: it failed."""
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
            self._parts[place] = {min(parts): self._merged(place)}

    def parts(self) -> list[FilePart[R]]:
        """Return every file's result, in the order of the log."""
        firsts = sorted((min(parts), place) for place, parts in self._parts.items())
        return [
            FilePart(place, self._shards[at].item.name, self._merged(place)) for at, place in firsts
        ]

    def without(self, places: Iterable[str]) -> R | None:
        """Merge all other files; None where that is not known, or nothing is left."""
        gone = set(places)
        parts = [] if self.given_up else self.parts()
        left = [part.result for part in parts if part.place not in gone]
        return self._merge(left) if left else None

    def _merged(self, place: str) -> R:
        parts = self._parts[place]
        return self._merge([parts[k] for k in sorted(parts)])


def _bytes(result: object) -> int:
    return sum(factor.nbytes for factor in getattr(result, "factors", ()))


class ShardBook(Generic[R]):
    """One kind of work on some shards."""

    def __init__(
        self,
        work: Work[R],
        shards: list[Shard],
        store: Store | None,
        *,
        write: Write,
        progress: Callable[[int, int], None],
    ) -> None:
        self.shards, self.totals = shards, FileTotals(shards, work.merge)
        self._work, self._store, self._write, self._progress = work, store, write, progress
        self._keys = (
            [fingerprint(work.fingerprint, shard.content) for shard in shards] if store else []
        )
        self.root = fingerprint("root", self._keys)
        self.computed = 0  # shards that were not in the store
        self._total, self._done = sum(shard.rows for shard in shards), 0
        self._from_store: set[int] = set()
        progress(0, self._total)

    def cached_total(self) -> R | None:
        """Return the merged result of all shards, where the store has it."""
        total = None if self._store is None else self._store.get(self.root, self._work.kind)
        if total is not None:
            self._progress(self._total, self._total)
        return total

    @property
    def wants_results(self) -> bool:
        """Whether the result of every shard is needed here, not only their sum."""
        return bool(self._keys) or self.totals.files > 1

    def stored(self) -> dict[int, Callable[[], R | Failure]]:
        """Return functions that fetch the results which the store has."""
        store = self._store
        if store is None:
            return {}
        return {
            number: partial(self._fetch, store, number)
            for number, key in enumerate(self._keys)
            if store.has(key)
        }

    def _fetch(self, store: Store, number: int) -> R | Failure:
        """A shard's result from the store, or computed where that turns out to be damaged."""
        result = store.get(self._keys[number], self._work.kind)
        if result is not None:
            self._from_store.add(number)
            return result
        try:
            return self._work.run(self.shards[number])
        except ThetahatError as error:
            return Failure.of(self.shards[number].place, error)

    def done(self, number: int, part: Part[R]) -> None:
        """Take the result of a shard."""
        self._done += self.shards[number].rows
        self.totals.add(number, part.result)
        if number not in self._from_store:
            self.computed += 1
            if self._keys and part.result is not None:
                self._write(lambda store: store.put(self._keys[number], part.result))
        self._progress(self._done, self._total)

    def file_parts(self, total: R) -> list[FilePart[R]]:
        """Return what each file came to."""
        if self.totals.files > 1:
            return self.totals.parts()
        item = self.shards[0].item
        return [FilePart(item.place, item.name, total)]
