"""Solving in the background: in the update itself (always the same result), in a thread, or in a
process of its own (no lock is shared).
"""

from __future__ import annotations

import functools
import multiprocessing
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from thetahat.child_process import end_with_parent, spared_interrupts
from thetahat.identification.information import Information
from thetahat.model.robot import Robot
from thetahat.online.config import SolverConfig
from thetahat.online.physical_model import Solution, Task, solve
from thetahat.online.predict import plain
from thetahat.online.sample_verdict import Events
from thetahat.online.stacked_factor import Stack

GIVE_UP = 5.0  # times its timeout, after which a solver will not answer any more
LOST = 3  # threads that may be given up: none can be ended from outside, and each takes a core
STARTING = 60.0  # [s] that a process may take to start


class BackgroundSolver:
    """Solves at most one task at a time; a new one is dropped while another is under way."""

    def __init__(self, config: SolverConfig, robot: Robot, events: Events) -> None:
        self._automatic = config.run_in == "auto"
        self._place = "update" if self._automatic else config.run_in
        self._timeout = config.timeout
        self._robot, self._events = robot, events
        self._warm: Future[Stack] | None = None  # a process that starts
        self._executor: Executor | None = self._start() if self._place == "process" else None
        self._lost = 0  # threads that were given up
        self.longest = 0.0  # [s] that a solution took which the loop waited for
        self._future: Future[Solution] | None = None
        self._since, self._late, self._dropped = 0.0, False, False
        self._solution: Solution | None = None
        self.now = 0.0  # [s] on the stream's clock, for what is put on record

    def run_beside(self) -> None:
        """A real clock drives the loop from now on: solve in a process of its own, unless a place
        was chosen.
        """
        if self._automatic and self._place == "update":
            self._place = "process"
            self._executor = self._start()

    def _start(self) -> Executor:
        if self._place == "thread":
            return ThreadPoolExecutor(max_workers=1, thread_name_prefix="thetahat-solver")
        executor = ProcessPoolExecutor(
            1,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_begin,
            initargs=(plain(self._robot),),
        )
        # an interpreter takes seconds to start, which no task should have to wait for
        with _without_main(), spared_interrupts():
            self._warm = executor.submit(_stack)
        return executor

    @property
    def busy(self) -> bool:
        """Whether a task is under way."""
        return self._future is not None and not self._future.done()

    @property
    def ready(self) -> bool:
        """Whether a solution waits; a task that takes too long is recorded once."""
        if self._solution is not None:
            return True
        if self._future is None:
            return False
        if self._future.done():
            return True
        now = time.monotonic()
        if self._warm is not None and not self._warm.done() and now - self._since <= STARTING:
            return False
        if self._warm is not None:  # what was to be solved has waited for the process to start
            self._since, self._warm = now, None
        if not self._late and now - self._since > self._timeout:
            self._late = True
            self._events.add(
                self.now,
                "solver",
                f"the solver has no answer after {self._timeout:g} s; the last valid model stays",
            )
        if now - self._since > GIVE_UP * self._timeout:
            self._give_up()
        return False

    def _give_up(self) -> None:
        """It hangs: what it would say is dropped, and the next task gets another worker."""
        sentence = (
            f"the solver hangs since {GIVE_UP * self._timeout:g} s and was given up; the last"
            " valid model stays"
        )
        self._events.add(self.now, "solver", sentence)
        self._lost += self._place == "thread"
        self.close()

    def close(self) -> None:
        """End the worker."""
        executor, self._executor, self._future, self._warm = self._executor, None, None, None
        if executor is None:
            return
        # before Python 3.14 an executor has no other way to end them
        workers = list((getattr(executor, "_processes", None) or {}).values())
        executor.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.kill()

    def submit(self, info: Information, task: Task) -> None:
        """Solve this, unless another task is under way."""
        if self._place == "update":
            begun = time.perf_counter()
            self._solution = solve(info, task)
            self.longest = max(self.longest, time.perf_counter() - begun)
            return
        if self._future is not None or self._lost >= LOST:
            return
        if self._executor is None:
            self._executor = self._start()
        self._since, self._late, self._dropped = time.monotonic(), False, False
        if self._place == "thread":
            self._future = self._executor.submit(solve, info, task)
        else:
            known = info.factors, info.rows, info.samples
            self._future = self._executor.submit(_work, *known, task)

    def take(self) -> Solution | None:
        """The solution, once `ready`; None where it came late, or was dropped meanwhile."""
        if self._solution is not None:
            solution, self._solution = self._solution, None
            return solution
        future, self._future = self._future, None
        if future is None:
            return None
        try:
            solution = future.result(0.0)
        except Exception as error:  # a worker that died must not take the loop with it
            self._executor = None
            if self._automatic:  # a robot that cannot be sent, or a place that allows no process
                self._place = "thread"
            solution = Solution(None, None, "failed", f"the solver's worker ended: {error}")
        return None if self._dropped or self._late else solution

    def drop(self) -> None:
        """What is under way is of no use any more."""
        self._solution, self._dropped = None, True


@contextmanager
def _without_main() -> Iterator[None]:
    """Let a new process import the library alone: a script without `if __name__ == "__main__"`
    would otherwise run again in it, robot and all.
    """
    main = sys.modules["__main__"]
    hidden = {name: getattr(main, name) for name in ("__file__", "__spec__") if hasattr(main, name)}
    try:
        for name in hidden:
            setattr(main, name, None)
        yield
    finally:
        for name, value in hidden.items():
            setattr(main, name, value)


# -- in the other process --------------------------------------------------------------------------


_worker: dict[str, Robot] = {}


def _begin(robot: Robot) -> None:
    end_with_parent()
    _worker["robot"] = robot


@functools.cache
def _stack() -> Stack:
    return Stack(_worker["robot"])


def _work(factors: tuple[np.ndarray, ...], rows: np.ndarray, samples: int, task: Task) -> Solution:
    """Solve a task from an information without its robot, which the worker has."""
    robot, stack = _worker["robot"], _stack()
    info = Information(robot, stack.base, stack.positions, factors, rows, samples)
    solution = solve(info, task)
    if solution.estimate is None:
        return solution
    # An estimate holds the robot, whose scratch memory does not travel.
    return replace(solution, estimate=replace(solution.estimate, robot=plain(robot)))
