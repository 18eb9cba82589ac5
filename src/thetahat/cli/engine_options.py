"""How a verb gets through its logs: alone in this process, or with workers and a store. Both have
the same face, so a verb does not ask which.

with scale.opened(scale.asked(workers, scheduler, store), progress, logs) as crew:
    log = crew.read(logs, robot)
    settings = crew.choose(log, robot, span=span)
    whole = crew.information(Rows(log, robot, settings, span, stream), fitted)
    ...
    crew.record(found)      # the run is remembered
crew.conclude()             # what was left out is said, and is the exit code
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from thetahat.cli.arguments import option
from thetahat.cli.backends import Alone, Crew
from thetahat.cli.progress import Progress
from thetahat.errors import StorageError, UsageError

if TYPE_CHECKING:
    from thetahat.engine.cache import Store as Kept
    from thetahat.engine.multi_log import Failure

STORE = "THETAHAT_STORE"

Workers = Annotated[
    int | None,
    option("Processes on this machine that share the work (extra dask).", "--workers", metavar="N"),
]
Scheduler = Annotated[
    str | None,
    option(
        "Address of a Dask scheduler whose workers share the work.",
        "--scheduler",
        metavar="ADDRESS",
    ),
]
Store = Annotated[
    str | None,
    option(
        "Folder that keeps what was computed, and remembers every run; made if absent.",
        "--store",
        metavar="DIR",
        envvar=STORE,
    ),
]


@dataclass(frozen=True)
class Scale:
    """What the command line asks for."""

    workers: int | None = None
    scheduler: str | None = None
    store: Path | None = None

    @property
    def alone(self) -> bool:
        """Whether one pass in this process is all that is wanted."""
        return self == Scale()


def asked(workers: int | None, scheduler: str | None, store: str | None) -> Scale:
    """The options, checked."""
    if workers is not None and workers < 1:
        raise UsageError(f"--workers is {workers}; give a whole number from 1")
    if workers is not None and scheduler is not None:
        raise UsageError(
            "--workers and --scheduler are both given; start workers here, or use those of the"
            " scheduler"
        )
    if store is not None and Path(store).is_file():
        raise StorageError(f"--store {store!r} is a file; give a folder")
    return Scale(workers, scheduler, None if store is None else Path(store))


@contextmanager
def opened(scale: Scale, progress: Progress, logs: Sequence[str] = ()) -> Iterator[Alone]:
    """Who does the work on these logs; workers and store are let go at the end, and a run that
    failed is remembered as such.
    """
    if scale.alone and not any(
        "://" in name for name in logs
    ):  # what must be fetched comes file by file
        yield Alone(progress)
        return
    from thetahat.engine.workers import DaskWorkers
    from thetahat.engine.workers import Workers as Here

    local = scale.workers is None and scale.scheduler is None
    with (
        kept(scale.store) as (store, trouble),
        (
            Here() if local else DaskWorkers(workers=scale.workers, scheduler=scale.scheduler)
        ) as workers,
    ):
        crew = Crew(progress, workers, store, tell=Pace(progress), trouble=trouble)
        try:
            yield crew
        except BaseException as error:
            crew.failed(error)
            raise


@contextmanager
def kept(folder: Path | None) -> Iterator[tuple[Kept | None, list[Failure]]]:
    """The store, if one is asked for, and what is wrong with it: on a full disk the work is done
    without, and that is said at the end.
    """
    if folder is None:
        yield None, []
        return
    from thetahat.engine.cache import DiskFull
    from thetahat.engine.cache import Store as Kept
    from thetahat.engine.multi_log import Failure

    try:
        store = Kept(folder)
    except DiskFull as error:
        yield None, [Failure.of(str(folder), error)]
        return
    with store:
        yield store, []


class Pace:
    """Tells a progress bar how many samples per second, and how long it will take."""

    def __init__(self, progress: Progress) -> None:
        self._tell, self._stage = progress.told(), progress.stage
        self._what, self._began, self._first = "", 0.0, 0

    def __call__(self, what: str, done: int, total: int) -> None:
        """So many of all are done."""
        now = time.monotonic()
        if what != self._what or done < self._first:
            self._what, self._began, self._first = what, now, done
            self._stage(what, total or None)
        seconds = now - self._began
        unit = "logs" if what == "scanning" else "samples"
        if seconds > 0.0 and done > self._first:
            rate = (done - self._first) / seconds
            left = (total - done) / rate
            pace = f"{rate:,.0f} {unit}/s" if rate >= 10.0 else f"{rate:.2g} {unit}/s"
            what = f"{what}: {pace}, {_duration(left)} left"
        self._tell(what, done, total)


def _duration(seconds: float) -> str:
    if seconds < 90.0:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400.0 else f"{seconds / 3600:.1f} h"
