"""Solving beside the loop: in the update itself (always the same result), in a thread, or in a process of its own (no lock is shared)."""

from __future__ import annotations

import functools
import multiprocessing
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from thetahat.errors import UsageError
from thetahat.identify.information import Information
from thetahat.model.robot import Robot
from thetahat.online.physical import Answer, Task, solve
from thetahat.online.predict import plain
from thetahat.online.stack import Stack

PLACES = (None, "thread", "process")


class Beside:
    """At most one task at a time; a new one is turned away while another is under way. patience: [s] after which its answer is late."""

    def __init__(self, place: str | None, robot: Robot, *, patience: float, events: Any) -> None:
        if place not in PLACES:
            raise UsageError(f"beside is {place!r}; give None (in the update itself), 'thread' or 'process'")
        if not patience > 0.0:
            raise UsageError(f"patience is {patience!r}; give the seconds an answer may take, above zero")
        self._place, self._robot, self._patience, self._events = place, robot, patience, events
        self._executor: Executor | None = self._start() if place == "process" else None
        self._future: Future | None = None
        self._since, self._late, self._dropped = 0.0, False, False
        self._answer: Answer | None = None
        self.now = 0.0  # [s] on the stream's clock, for what is put on record

    def _start(self) -> Executor:
        if self._place == "thread":
            return ThreadPoolExecutor(max_workers=1, thread_name_prefix="thetahat-beside")
        executor = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), initializer=_begin, initargs=(plain(self._robot),))
        executor.submit(_stack)  # an interpreter takes seconds to start, which no task should have to wait for
        return executor

    @property
    def busy(self) -> bool:
        """Whether a task is under way."""
        return self._future is not None and not self._future.done()

    @property
    def ready(self) -> bool:
        """Whether an answer waits; a task that takes too long is put on record once."""
        if self._answer is not None:
            return True
        if self._future is None:
            return False
        if self._future.done():
            return True
        if not self._late and time.monotonic() - self._since > self._patience:
            self._late = True
            self._events.add(self.now, "solver", f"the solver has no answer after {self._patience:g} s; the last valid model stays")
        return False

    def submit(self, task: Task) -> None:
        """Solve this, unless another task is under way."""
        if self._place is None:
            self._answer = solve(task)
            return
        if self._future is not None:
            return
        if self._executor is None:
            self._executor = self._start()
        self._since, self._late, self._dropped = time.monotonic(), False, False
        if self._place == "thread":
            self._future = self._executor.submit(solve, task)
        else:
            info = task.information
            self._future = self._executor.submit(_work, _Parcel(replace(task, information=None), info.factors, info.rows, info.samples))

    def take(self) -> Answer | None:
        """The answer; None where it came late, or was dropped meanwhile."""
        if self._answer is not None:
            answer, self._answer = self._answer, None
            return answer
        future, self._future = self._future, None
        try:
            answer = future.result()
        except Exception as error:  # a worker that died must not take the loop with it
            self._executor = None
            answer = Answer(None, None, "failed", f"the solver's worker ended: {error}")
        return None if self._dropped or self._late else answer

    def drop(self) -> None:
        """What is under way is of no use any more."""
        self._answer, self._dropped = None, True

    def close(self) -> None:
        """End the worker."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = self._future = None


# -- in the other process ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Parcel:
    """A task without its robot, which the worker has."""

    task: Task
    factors: tuple[np.ndarray, ...]
    rows: np.ndarray
    samples: int


_worker: dict[str, Robot] = {}


def _begin(robot: Robot) -> None:
    _worker["robot"] = robot


@functools.cache
def _stack() -> Stack:
    return Stack(_worker["robot"])


def _work(parcel: _Parcel) -> Answer:
    robot, stack = _worker["robot"], _stack()
    info = Information(robot, stack.base, stack.positions, parcel.factors, parcel.rows, parcel.samples)
    answer = solve(replace(parcel.task, information=info))
    # An estimate holds the robot, whose scratch memory does not travel.
    return answer if answer.estimate is None else replace(answer, estimate=replace(answer.estimate, robot=plain(robot)))
