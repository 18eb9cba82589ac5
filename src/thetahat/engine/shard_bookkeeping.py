"""What becomes of shards while they are gathered: kept in the store as they are done, merged file
by file, counted for whoever watches.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, TypeVar

from thetahat.engine.file_totals import ByFile
from thetahat.engine.multi_log import Failure
from thetahat.engine.shard_fold import Work
from thetahat.engine.shards import Shard
from thetahat.engine.store import Entry, Store
from thetahat.errors import ThetahatError

R = TypeVar("R")
Write = Callable[[Callable[[], None]], None]  # does what changes the store, or leaves it
BATCH = 1.0  # [s] between two notes in the store's database of what was folded


class Notes(Generic[R]):
    """Of one kind of work on some shards."""

    def __init__(
        self,
        work: Work[R],
        shards: list[Shard],
        keys: list[str],
        *,
        store: Store | None,
        write: Write,
        tell: Callable[[int, int], None],
    ) -> None:
        self._store, self._write, self._tell, self._work, self._shards, self._keys = (
            store,
            write,
            tell,
            work,
            shards,
            keys,
        )
        self._total = sum(shard.rows for shard in shards)
        self._rows, self.computed, self._last = 0, 0, time.monotonic()
        self._waiting: list[Entry] = []
        self._fetched: set[int] = set()
        self.by_file = ByFile(shards, work.merged)
        tell(0, self._total)

    def all_known(self) -> None:
        """Nothing is left to do."""
        self._tell(self._total, self._total)

    def fetch(self, number: int) -> Callable[[], R | Failure]:
        """A function that gets a shard's result from the store, or computes it where that turns out
        to be damaged.
        """

        def call() -> R | Failure:
            key, store = self._keys[number], self._store
            found = store.get(key, lambda data: self._work.from_bytes(data, key))
            if found is not None:
                self._fetched.add(number)
                return found
            try:
                return self._work.run(self._shards[number])
            except ThetahatError as error:
                return Failure.of(self._shards[number].place, error)

        return call

    def done(self, number: int, result: R | Failure | None) -> None:
        """A shard is done."""
        shard = self._shards[number]
        self._rows += shard.rows
        self.by_file.add(number, None if isinstance(result, Failure) else result)
        if number not in self._fetched:
            self.computed += 1
            if self._keys and result is not None and not isinstance(result, Failure):
                key = self._keys[number]
                self._write(lambda: self._store.put(key, self._work.to_bytes(result, key)))
                self._waiting.append(
                    Entry(
                        key, self._work.fingerprint, shard.digest, *shard.span, int(result.samples)
                    )
                )
                if time.monotonic() - self._last > BATCH:
                    self.flush()
        self._tell(self._rows, self._total)

    def flush(self) -> None:
        """Note in the database what was computed."""
        waiting, self._waiting, self._last = self._waiting, [], time.monotonic()
        if waiting:
            self._write(lambda: self._store.remember_entries(waiting))
