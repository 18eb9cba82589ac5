"""Who does the work: this process, a cluster of processes on this machine, or the user's own Dask
cluster.

`Workers.each` hands tasks out and yields their results as they come; `Workers.reduce` also merges
them, by a tree that depends on the number of tasks alone, so that the result is the same to the
last bit whoever computed what, in whatever order. A worker that dies loses nothing: what it held is
computed again.
"""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from thetahat.child_process import spared_interrupts
from thetahat.engine.multi_log import Failure
from thetahat.errors import MissingExtra, StorageError, ThetahatError, UsageError

FAN_IN = 8  # results that are merged at once
MEMORY = "1GB"  # of one local worker, beyond which its nanny starts it anew
PATIENCE = 10.0  # [s] to reach a scheduler, and to leave it
ANSWER = 60.0  # [s] for a scheduler that was reached to answer, on a loaded machine
CLOSING = 60.0  # [s] for the local workers to end; those that take longer are left running
STARTING = 120.0  # [s] for the local workers to be there, at first and after a death
# [s] without any worker after which a run ends. A local cluster waits as long for a worker that its
# nanny starts again; Dask's own 15 s are too short on a loaded machine: it would stop the nanny
# (`distributed.deploy.lost-worker-timeout`), and tasks would wait for a worker that never comes.
NO_WORKERS = 300.0
NO_RESULT = 3600.0  # [s] without any finished task after which a run ends
POLL = 0.02  # [s] between two looks at the tasks under way
CHECK = 5.0  # [s] between two looks at the workers
RETRIES = 2
# workers of one machine: at least two can be asked for everywhere
LEAST_MOST, PER_CORE, PER_GIGABYTE = 2, 2, 2
ONE_THREAD = {
    "POLARS_MAX_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "THETAHAT_QUIET": "1",
}
NO_DASK = "needs the extra 'dask': pip install 'thetahat[dask]'"

T = TypeVar("T")
C = TypeVar("C")
R = TypeVar("R")
P = TypeVar("P")


@dataclass(frozen=True)
class Job(Generic[C, T, R]):
    """One kind of work: what all tasks share, and what is done with each."""

    context: C
    run: Callable[[C, T], R]  # a function of a module, as it travels by name
    name: Callable[[T], str]  # of a task, for messages


@dataclass(frozen=True)
class Part(Generic[R]):
    """A result, or several merged, and what is missing in it."""

    result: R | None = None
    failures: tuple[Failure, ...] = ()


Done = Callable[[int, Part[R]], None]  # number of a task and its result, empty where not wanted
Fetch = Mapping[int, Callable[[], R | Failure]]  # gets the results of these tasks without a worker


class Workers:
    """This process alone."""

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of what was started."""

    @property
    def count(self) -> int:
        """How many work side by side."""
        return 1

    def each(self, job: Job[C, T, R], tasks: Sequence[T]) -> Iterator[tuple[int, R | Failure]]:
        """(number of the task, its result or why there is none), as they are done."""
        for number, task in enumerate(tasks):
            yield number, _guarded(job.run, job.name(task), job.context, task)

    def reduce(
        self,
        job: Job[C, T, R],
        tasks: Sequence[T],
        merge: Callable[[Sequence[R]], R],
        done: Done[R],
        *,
        fetch: Fetch[R] | None = None,
        results: bool = False,
    ) -> Part[R]:
        """Merge all results into one.

        Args:
            job: what is done with each task.
            tasks: in the order of the result.
            merge: merges results.
            done: called for every task that is done, with its result where `results` are wanted.
            fetch: gets the results of some tasks, which then are not computed.
            results: whether `done` needs results.
        """
        del results

        def leaf(number: int) -> Part[R]:
            task = tasks[number]
            if fetch is not None and number in fetch:
                part = _part(fetch[number]())
            else:
                part = _part(_guarded(job.run, job.name(task), job.context, task))
            done(number, part)
            return part

        def join(parts: list[Part[R]]) -> Part[R]:
            return _merged(merge, parts)

        return _tree(len(tasks), leaf, join)


def _part(result: R | Failure | Part[R]) -> Part[R]:
    if isinstance(result, Part):
        return result
    return Part(None, (result,)) if isinstance(result, Failure) else Part(result)


def _merged(merge: Callable[[Sequence[R]], R], parts: Sequence[R | Failure | Part[R]]) -> Part[R]:
    """Results, failures and merged results in one."""
    each = [_part(part) for part in parts]
    results = [part.result for part in each if part.result is not None]
    failures = tuple(failure for part in each for failure in part.failures)
    return Part(merge(results) if results else None, failures)


def _tree(count: int, leaf: Callable[[int], P], join: Callable[[list[P]], P]) -> P:
    """Leaves 0 … count joined by eights, level by level, depth first: few results wait at a time,
    and the shape depends on `count` alone.
    """
    size = 1
    while size < count:
        size *= FAN_IN

    def node(first: int, size: int) -> P:
        if size == 1:
            return leaf(first)
        step = size // FAN_IN
        return join([node(at, step) for at in range(first, min(first + size, count), step)])

    root = node(0, size)
    return root if size > 1 else join([root])


def _guarded(run: Callable[[C, T], R], name: str, context: C, task: T) -> R | Failure:
    """The result, or the failure in its place: what is wrong with one file does not stop the
    others.
    """
    try:
        return run(context, task)
    except ThetahatError as error:
        return Failure.of(name, error)


# -- Dask ------------------------------------------------------------------------------------------


def _same(value: P) -> P:
    """Make a value a result of the cluster, which a lost worker computes again; scattered data
    would be gone.
    """
    return value


def most_workers() -> int:
    """Return how many worker processes this machine has cores and memory for."""
    cores = max(LEAST_MOST, PER_CORE * (os.cpu_count() or 1))
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not every system tells
        return cores
    return max(LEAST_MOST, min(cores, int(PER_GIGABYTE * memory / 1e9)))


def check_workers(count: int) -> None:
    """Raise where a machine is asked for more worker processes than it can bear."""
    most = most_workers()
    if count > most:
        raise UsageError(
            f"--workers is {count}; this machine has cores and memory for 1 to {most}, so give"
            " fewer, or the address of a larger cluster (--scheduler)"
        )


def _temporary_credentials(distributed: Any) -> Any:
    """Return credentials of this run alone, without which nobody can talk to its workers."""
    try:
        return distributed.Security.temporary()
    except ImportError:
        raise MissingExtra(
            "worker processes whose port is shut to others need the package 'cryptography': pip"
            " install 'thetahat[dask]'"
        ) from None


class DaskWorkers(Workers):
    """A Dask client: the one handed in, that of a scheduler, or one with workers on this machine,
    started when first needed.
    """

    def __init__(
        self, *, workers: int | None = None, scheduler: str | None = None, client: Any = None
    ) -> None:
        if workers is not None and (
            isinstance(workers, bool) or not isinstance(workers, int) or workers < 1
        ):
            raise UsageError(f"workers is {workers!r}; give a whole number from 1")
        if workers is not None:
            check_workers(workers)
        if sum(choice is not None for choice in (workers, scheduler, client)) != 1:
            raise UsageError("workers, scheduler and client exclude each other; give one of them")
        self._wanted, self._address, self._client = workers, scheduler, client
        self._own: list[Any] = []  # what is to be closed, in order
        self._settings = ExitStack()  # Dask settings that hold while the local cluster lives
        _distributed()  # said at once, not after an hour of reading

    @property
    def client(self) -> Any:
        """The client, connected."""
        if self._client is None:
            self._client = self._connected() if self._address is not None else self._started()
        return self._client

    @property
    def count(self) -> int:
        """How many work side by side."""
        return self._wanted if self._client is None and self._wanted else self._alive(self.client)

    def _alive(self, client: Any) -> int:
        """Return the number of workers the scheduler knows."""
        try:
            return len(client.sync(client.scheduler.ncores, callback_timeout=ANSWER))
        except (OSError, TimeoutError) as error:
            raise _lost("the scheduler", error) from None

    def _connected(self) -> Any:
        distributed = _distributed()
        try:
            with _silence():
                client = distributed.Client(self._address, timeout=PATIENCE, set_as_default=False)
        except (OSError, TimeoutError, ValueError, ImportError, TypeError) as error:
            # a TypeError: TLS is asked for, and Dask's configuration names no credentials
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise StorageError(
                f"the Dask scheduler at {self._address} cannot be reached ({reason}); check its"
                " address, and that it runs"
            ) from None
        self._own.append(client)
        if not self._alive(client):
            self.close()
            raise StorageError(
                f"the Dask scheduler at {self._address} has no workers; start some (dask worker"
                f" {self._address})"
            )
        return client

    def _started(self) -> Any:
        distributed = _distributed()
        import dask

        quiet = {
            "distributed.worker.memory.spill": False,
            "distributed.admin.system-monitor.gil.enabled": False,
            # no dashboard, no metrics: nothing to look at from outside
            "distributed.scheduler.http.routes": [],
            "distributed.worker.http.routes": [],
        }
        self._settings.enter_context(
            dask.config.set({"distributed.deploy.lost-worker-timeout": f"{NO_WORKERS:g}s"})
        )
        with dask.config.set(quiet), _silence(), spared_interrupts():
            try:
                cluster = distributed.LocalCluster(
                    protocol="tls://",
                    security=_temporary_credentials(distributed),
                    n_workers=self._wanted,
                    threads_per_worker=1,
                    processes=True,
                    memory_limit=MEMORY,
                    host="127.0.0.1",
                    dashboard_address="127.0.0.1:0",
                    scheduler_kwargs={"dashboard": False},
                    worker_dashboard_address=None,
                    silence_logs=logging.CRITICAL,
                    death_timeout=STARTING,
                    env={
                        **ONE_THREAD,
                        **(
                            {"PYTHONPATH": os.environ["PYTHONPATH"]}
                            if "PYTHONPATH" in os.environ
                            else {}
                        ),
                    },
                )
                self._own.append(cluster)
                client = distributed.Client(cluster, timeout=STARTING, set_as_default=False)
                self._own.insert(0, client)
                client.wait_for_workers(self._wanted, timeout=STARTING)
            except (OSError, TimeoutError, RuntimeError) as error:
                self.close()
                reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                raise StorageError(
                    f"{self._wanted} workers could not be started on this machine ({reason}); ask"
                    " for fewer with --workers"
                ) from None
        return client

    def close(self) -> None:
        """Stop what was started here; a client that was handed in stays open."""
        own, self._own = self._own, []
        with _silence():
            for each in own:
                with suppress(Exception):
                    each.close(timeout=PATIENCE if self._wanted is None else CLOSING)
        self._settings.close()
        if own:
            self._client = None

    # -- work --------------------------------------------------------------------------------------

    def each(self, job: Job[C, T, R], tasks: Sequence[T]) -> Iterator[tuple[int, R | Failure]]:
        """As they are done, by any worker."""
        if not tasks:
            return
        context = self.client.submit(_same, job.context, pure=False)
        numbers = {
            self.client.submit(
                _guarded, job.run, job.name(task), context, task, pure=False, retries=RETRIES
            ): number
            for number, task in enumerate(tasks)
        }
        killed = []
        for future in self._completed(numbers):
            number = numbers.pop(future)
            try:
                yield number, _result(future, job.name(tasks[number]))
            except Killed:
                killed.append(number)
            future.release()
        for number in killed:
            result = self._alone(job, tasks[number])
            yield number, result

    def _completed(self, futures: Collection[Any]) -> Iterator[Any]:
        """Yield futures as they are done; raise `StorageError` where no worker is left to do them,
        or nothing has been done for `NO_RESULT` seconds.
        """
        client = self.client
        waiting = _distributed().as_completed(list(futures), loop=client.loop, raise_errors=False)
        result_at = checked = workers_at = time.monotonic()
        while not waiting.is_empty():
            batch = waiting.next_batch(block=False)
            yield from batch
            now = time.monotonic()
            if batch:
                result_at = checked = workers_at = now
                continue
            if now - checked > CHECK:
                checked = now
                if client.status not in ("running", "connecting"):
                    raise _lost("the scheduler", ConnectionError())
                if self._alive(client):
                    workers_at = now
            if now - workers_at > NO_WORKERS:
                raise StorageError(
                    f"the Dask cluster has had no workers for {NO_WORKERS:g} s; what was stored is"
                    " kept, so start workers with more memory, and run it again"
                )
            if now - result_at > NO_RESULT:
                raise StorageError(
                    f"the Dask cluster has finished nothing for {NO_RESULT:g} s; what was stored is"
                    " kept, so look at its workers, and run it again"
                )
            time.sleep(POLL)

    def _awaited(self, future: Any, name: str) -> Any:
        """Return what a future holds, once it is done."""
        (done,) = self._completed([future])
        return _result(done, name)

    def _alone(self, job: Job[C, T, R], task: T) -> R | Failure:
        """A task whose worker died, by itself: one that only waited beside the deadly one is not to
        blame.
        """
        with _silence():
            name = job.name(task)
            future = self.client.submit(_guarded, job.run, name, job.context, task, pure=False)
            try:
                result: R | Failure = self._awaited(future, name)
            except Killed as error:
                return Failure.of(name, error)
            return result

    def reduce(
        self,
        job: Job[C, T, R],
        tasks: Sequence[T],
        merge: Callable[[Sequence[R]], R],
        done: Done[R],
        *,
        fetch: Fetch[R] | None = None,
        results: bool = False,
    ) -> Part[R]:
        """Merge by the cluster; what is fetched is merged here where none of its neighbours in the
        tree is missing.
        """
        reported: set[int] = set()

        def once(number: int, part: Part[R]) -> None:
            if number not in reported:
                reported.add(number)
                done(number, part)

        known = dict(fetch or {})
        while len(known) < len(tasks):
            whole, killed = self._attempt(job, tasks, merge, once, fetch=known, results=results)
            if whole is not None:
                return whole
            for number in killed:  # what was merged with it is lost: once more, without it
                result = self._alone(job, tasks[number])
                once(number, _part(result))
                known[number] = partial(_same, result)
        return super().reduce(job, tasks, merge, once, fetch=known)

    def _attempt(
        self,
        job: Job[C, T, R],
        tasks: Sequence[T],
        merge: Callable[[Sequence[R]], R],
        done: Done[R],
        *,
        fetch: Fetch[R],
        results: bool,
    ) -> tuple[Part[R] | None, list[int]]:
        """Merge all results into one; or return none, and the tasks whose workers died."""
        with _silence():
            context = self.client.submit(_same, job.context, pure=False)
            names = {k: job.name(task) for k, task in enumerate(tasks) if k not in fetch}
            futures = {
                k: self.client.submit(
                    _guarded, job.run, name, context, tasks[k], pure=False, retries=RETRIES
                )
                for k, name in names.items()
            }
            is_future = _distributed().Future

            def leaf(number: int) -> Any:
                if number in futures:
                    return futures[number]
                part = _part(fetch[number]())
                done(number, part)
                return part

            def join(parts: list[Any]) -> Any:
                if any(isinstance(part, is_future) for part in parts):
                    return self.client.submit(_merged, merge, parts, pure=False, retries=RETRIES)
                return _merged(merge, parts)

            root = _tree(len(tasks), leaf, join)
            numbers = {future: number for number, future in futures.items()}
            killed: list[int] = []
            for future in self._completed(numbers):
                number = numbers.pop(future)
                wanted = results or future.status != "finished"
                try:
                    result = _result(future, names[number]) if wanted else Part()
                    done(number, _part(result))
                except Killed:
                    killed.append(number)
                future.release()
            if killed:
                return None, killed
            return self._awaited(root, "the merged result"), []


class Killed(StorageError):
    """A task whose worker died, every time."""


def _result(future: Any, name: str) -> Any:
    """What a future holds. An error that is none of a file ends the run: it would come again."""
    distributed = _distributed()
    try:
        return future.result(timeout=NO_WORKERS)
    except distributed.KilledWorker:
        raise Killed(
            f"{name}: its worker died every time it was tried; give the workers more memory, or"
            " fewer of them at a time"
        ) from None
    except ModuleNotFoundError as error:
        raise UsageError(
            f"the workers of the Dask cluster lack {error.name!r}; install thetahat there, as it is"
            " here"
        ) from None
    except RuntimeError as error:
        if "deserializ" not in str(error):
            raise
        raise UsageError(
            "the scheduler of the Dask cluster cannot read the work it is sent; install thetahat"
            " there and on its workers, as it is here"
        ) from None
    except (TimeoutError, ConnectionError, distributed.CancelledError) as error:
        raise _lost(name, error) from None


def _lost(name: str, error: Exception) -> StorageError:
    """Return the error that ends a run whose cluster is gone."""
    return StorageError(
        f"{name}: the Dask cluster was lost ({type(error).__name__}); what was stored is kept, so"
        " run it again"
    )


def _distributed() -> Any:
    try:
        import distributed
    except ImportError:
        raise MissingExtra(f"work on several processes {NO_DASK}") from None
    return distributed


@contextmanager
def _silence() -> Iterator[None]:
    """Dask's own words on stderr are not ours: a lost worker is no news here."""
    logger = logging.getLogger("distributed")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
