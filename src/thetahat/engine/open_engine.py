"""Open the engine that a run asks for: in this process, or on workers, with a store."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from thetahat.engine.cache import DiskFull, Store
from thetahat.engine.local import LocalEngine
from thetahat.engine.multi_log import Failure
from thetahat.engine.protocol import Engine, NoProgress, Progress
from thetahat.engine.reduce import ShardReducer
from thetahat.engine.sharded import ShardedEngine
from thetahat.engine.workers import DaskWorkers, Workers, check_workers
from thetahat.errors import StorageError, UsageError


@dataclass(frozen=True)
class EngineOptions:
    """Where the work is done, and where results are kept."""

    workers: int | None = None  # processes on this machine
    scheduler: str | None = None  # address of a Dask scheduler
    store: Path | None = None  # folder

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise UsageError(f"--workers is {self.workers}; give a whole number from 1")
        if self.workers is not None:
            check_workers(self.workers)
        if self.workers is not None and self.scheduler is not None:
            raise UsageError(
                "--workers and --scheduler are both given; start workers here, or use those of the"
                " scheduler"
            )
        if self.store is not None and self.store.is_file():
            raise StorageError(f"--store {str(self.store)!r} is a file; give a folder")


@contextmanager
def open_engine(
    options: EngineOptions, progress: Progress | None = None, logs: Sequence[str] = ()
) -> Iterator[Engine]:
    """Open the engine for these logs; workers and store are closed at the end.

    A run that fails is recorded as such in the store's history.
    """
    progress = progress or NoProgress()
    if options == EngineOptions() and not any("://" in name for name in logs):
        yield LocalEngine(progress)
        return
    with open_reducer(options, progress) as reducer:
        engine = ShardedEngine(reducer, progress)
        try:
            yield engine
        except BaseException as error:
            engine.record_failure(error)
            raise


@contextmanager
def open_reducer(options: EngineOptions, progress: Progress) -> Iterator[ShardReducer]:
    """Open workers and store; on a full disk the work is done without a store, and that is said."""
    here = options.workers is None and options.scheduler is None
    with (
        _open_store(options.store) as (store, trouble),
        Workers()
        if here
        else DaskWorkers(workers=options.workers, scheduler=options.scheduler) as workers,
    ):
        reducer = ShardReducer(workers, store, progress=RateReporter(progress))
        reducer.store_failures += trouble
        yield reducer


@contextmanager
def _open_store(folder: Path | None) -> Iterator[tuple[Store | None, list[Failure]]]:
    if folder is None:
        yield None, []
        return
    try:
        store = Store(folder)
    except DiskFull as error:
        yield None, [Failure.of(str(folder), error)]
        return
    with store:
        yield store, []


class RateReporter:
    """Reports samples per second and the time left to a progress bar."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._text, self._began, self._first = "", 0.0, 0

    def __call__(self, text: str, done: int, total: int) -> None:
        """Report that so many of all are done."""
        now = time.monotonic()
        if text != self._text or done < self._first:
            self._text, self._began, self._first = text, now, done
            self._progress.stage(text, total or None)
        seconds = now - self._began
        unit = "logs" if text == "scanning" else "samples"
        if seconds > 0.0 and done > self._first:
            rate = (done - self._first) / seconds
            pace = f"{rate:,.0f} {unit}/s" if rate >= 10.0 else f"{rate:.2g} {unit}/s"
            text = f"{text}: {pace}, {_duration((total - done) / rate)} left"
        self._progress.update(text, done, total)


def _duration(seconds: float) -> str:
    if seconds < 90.0:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400.0 else f"{seconds / 3600:.1f} h"
