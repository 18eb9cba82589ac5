"""A session: the sample loop, the publisher, viewers, commands and downloads of one run."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from thetahat.child_process import end_with_parent, spared_interrupts
from thetahat.errors import NotIdentifiable, ThetahatError, UsageError, known
from thetahat.live.downloads import (
    DownloadRequest,
    Downloads,
    Snapshot,
    make_downloads,
    parameter_table,
)
from thetahat.live.publisher import Publisher
from thetahat.live.sample_loop import LoopProcess, SampleLoop
from thetahat.live.sample_sources import Source
from thetahat.live.shared_state import RunInfo, SharedState
from thetahat.live.viewers import COMMANDS
from thetahat.model.robot import Robot
from thetahat.online.predict import plain

SWITCH_INTERVAL = 5e-4  # [s] after which a thread that builds frames makes way for the loop
PATIENCE = 120.0  # [s] for the downloads to be made
NICENESS = 5  # of the worker process
NO_ROBOT = "no robot file could be written; see advice in estimate.json"
Argument = TypeVar("Argument")
Result = TypeVar("Result")
Work = Callable[[Robot, Robot, Argument], Result]  # of the robot, the nominal one, and an argument


class NotReady(ThetahatError):
    """Files that are being made, and not done yet."""


# -- the worker process ----------------------------------------------------------------------------


class Worker:
    """A process beside the loop for slow work; started on first use, and again if it died."""

    def __init__(self, robot: Robot, nominal: Robot) -> None:
        self._robots = plain(robot), plain(nominal)
        self._executor: ProcessPoolExecutor | None = None
        self._lock = threading.Lock()  # the publisher submits, and every download

    def submit(self, work: Work[Argument, Result], argument: Argument) -> Future[Result]:
        """Request the result of work on the two robots and an argument."""
        with self._lock:
            for _ in range(2):
                if self._executor is None:
                    context = multiprocessing.get_context("spawn")
                    self._executor = ProcessPoolExecutor(
                        1, mp_context=context, initializer=_start_worker, initargs=self._robots
                    )
                try:
                    with spared_interrupts():  # Ctrl-C is for the page, which then ends this
                        return self._executor.submit(_run, work, argument)
                except BrokenProcessPool:
                    self._executor = None
        failed: Future[Result] = Future()
        failed.set_exception(RuntimeError("the worker process does not start"))
        return failed

    def close(self) -> None:
        """End the process at once, whatever it is making."""
        with self._lock:
            executor, self._executor = self._executor, None
        if executor is None:
            return
        workers = list((getattr(executor, "_processes", None) or {}).values())
        executor.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.kill()


_robots: list[Robot] = []  # of the worker process


def _start_worker(robot: Robot, nominal: Robot) -> None:
    end_with_parent()
    with suppress(OSError, AttributeError):
        os.nice(NICENESS)
    _robots[:] = robot, nominal


def _run(work: Work[Argument, Result], argument: Argument) -> Result:
    robot, nominal = _robots
    return work(robot, nominal, argument)


@dataclass
class _Job:
    """Downloads that were requested."""

    snapshot: Snapshot
    resets: int  # of the run, at the request
    future: Future[Downloads]
    owed: bool = False  # whether someone was sent away before it was done

    def serves(self, snapshot: Snapshot, resets: int) -> bool:
        """Whether it also answers a request made now.

        It does if it is of this snapshot, or still on its way, as another would wait behind it;
        never after a reset.
        """
        on_its_way = self.owed or not self.future.done()
        return resets == self.resets and (snapshot is self.snapshot or on_its_way)


# -- the session -----------------------------------------------------------------------------------


class Session:
    """One run and its page: `start` it, attach `viewers`, send commands, get the files, `stop` it.

    The loop runs in a thread of this process; of `Session.apart(factory, …)` in a process of its
    own, where nothing of the page can hold it up.
    """

    def __init__(
        self, source: Source | None, *, speed: float = 1.0, process: LoopProcess | None = None
    ) -> None:
        self.source = source
        self.loop: SampleLoop | LoopProcess
        if process is not None:
            self.shared, self.loop = SharedState(process.info), process
        elif source is not None:
            self.shared = SharedState(RunInfo.of(source, speed))
            self.loop = SampleLoop(source, self.shared, speed=speed)
        else:
            raise UsageError("a session needs a source, here or in another process")
        self.worker = Worker(self.shared.robot, self.shared.info.identifier.nominal)
        self.publisher = Publisher(self.shared, partial(self.worker.submit, parameter_table))
        self.viewers = self.publisher.viewers
        self.refused = 0  # received frames that could not be used
        self._job: _Job | None = None
        self._job_lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._interval = sys.getswitchinterval()

    @classmethod
    def apart(
        cls, factory: Callable[..., Source], *arguments: Any, speed: float = 1.0, **options: Any
    ) -> Session:
        """Return a session whose source is made, and runs, in another process.

        Raises what making it raises. Factory and arguments must be picklable.
        """
        return cls(None, process=LoopProcess(partial(factory, *arguments, **options), speed=speed))

    # -- life --------------------------------------------------------------------------------------

    def start(self) -> Session:
        """Start loop and publisher."""
        if isinstance(self.loop, LoopProcess):
            self.loop.start(self.shared)
        else:
            sys.setswitchinterval(min(SWITCH_INTERVAL, self._interval))
            self._thread = threading.Thread(target=self.loop.run, name="thetahat-loop", daemon=True)
            self._thread.start()
        self.publisher.start()
        return self

    def stop(self) -> None:
        """End the loop and tell the viewers."""
        self.publisher.stopping = True
        if isinstance(self.loop, LoopProcess):
            self.loop.stop()
        else:
            self.loop.command("stop")
            if self._thread is not None:
                self._thread.join(timeout=10.0)
        self.publisher.stop()
        if self.publisher.feed is not None:
            self.publisher.feed.close()
        self.worker.close()
        sys.setswitchinterval(self._interval)

    def __enter__(self) -> Session:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- commands ----------------------------------------------------------------------------------

    def command(self, name: str) -> None:
        """Send one of `COMMANDS`; raises `UsageError` with the reason where it makes no sense."""
        info = self.shared.info
        if name not in COMMANDS:
            raise UsageError(f"command {str(name)[:40]!r} is unknown; commands: {known(COMMANDS)}")
        if self.shared.ended:
            raise UsageError(f"the run is over, so there is nothing to {name.split('_')[0]}")
        if name in ("force_nominal", "release") and not info.control.forcible:
            always = "its controller always uses the nominal model"
            why = always if info.control.controlled else "no controller of ours drives this robot"
            raise UsageError(f"the nominal model cannot be forced: {why}")
        self.loop.command(name)

    def event(self, kind: str, sentence: str, *, like: str | None = None) -> None:
        """Add an event; like: the kind of events that it may be counted with."""
        self.shared.event(self.shared.status.clock, kind, sentence, like)

    # -- downloads ---------------------------------------------------------------------------------

    def downloads(self) -> Downloads:
        """Return all files, of one moment, made in a process beside the loop.

        Raises `NotReady` where that takes too long.
        """
        snapshot, resets = self.shared.snapshot, self.shared.resets
        if snapshot is None or not snapshot.count:
            raise NotIdentifiable("nothing identified yet: the memory is empty; move the robot")
        with self._job_lock:
            job = self._job
            if job is None or not job.serves(snapshot, resets):
                future = self.worker.submit(make_downloads, self._request(snapshot))
                job = self._job = _Job(snapshot, resets, future)
            job.owed = False
        try:
            return job.future.result(timeout=PATIENCE)
        except ThetahatError:
            raise
        except Exception as error:
            if not job.future.done():
                job.owed = True
                raise NotReady(
                    f"the files are not ready after {PATIENCE:g} s; try again in a while"
                ) from None
            with self._job_lock:
                self._job = None if self._job is job else self._job
            raise NotIdentifiable(
                f"the files could not be written: {type(error).__name__} {error}".rstrip()
            ) from None

    def _request(self, snapshot: Snapshot) -> DownloadRequest:
        info = self.shared.info
        return DownloadRequest(
            snapshot=snapshot,
            recent=self.publisher.recent_rows(),
            figures=self.publisher.figures(),
            events=tuple(self.shared.events.all),
            title=info.title,
            cutoff=info.identifier.cutoff,
            min_speed=tuple(info.identifier.min_speed.tolist()),
            log=info.log,
        )

    def summary(self) -> str:
        """Return the run in a sentence or two."""
        shared, gate, status = self.shared, self.shared.gate, self.shared.status
        seconds = time.monotonic() - self.publisher.began
        r2 = "" if gate.r2 is None else f", R² {gate.r2:.4f} on held-out samples"
        return (
            f"{shared.info.title}: {shared.cycles} samples in {seconds:.0f} s"
            f" ({status.clock:.1f} s of robot time), {status.dropped} dropped; {status.updates}"
            f" updates, gate {'open' if gate.open else 'closed'} ({gate.reason}){r2}"
        )
