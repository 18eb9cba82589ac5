"""A process beside the loop for what is slow: its interpreter lock is its own, and it is nicer than
the loop.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import connection
from typing import Any

from thetahat.live import downloads
from thetahat.model.robot import Robot
from thetahat.online.predict import plain

NICE = 5


class Workshop:
    """`ask` for something to be made; started when it is first asked, and anew where it died."""

    def __init__(self, robot: Robot, nominal: Robot) -> None:
        self._robots = plain(robot), plain(nominal)
        self._executor: ProcessPoolExecutor | None = None
        self._lock = threading.Lock()  # the publisher asks, and every download

    def ask(self, what: str, order: Any) -> Future:
        """A future of `parameters` or `product`."""
        with self._lock:
            for _ in range(2):
                if self._executor is None:
                    context = multiprocessing.get_context("spawn")
                    self._executor = ProcessPoolExecutor(
                        1, mp_context=context, initializer=_begin, initargs=self._robots
                    )
                try:
                    return self._executor.submit(_work, what, order)
                except BrokenProcessPool:
                    self._executor = None
        failed: Future = Future()
        failed.set_exception(RuntimeError("the process beside the loop does not start"))
        return failed

    def close(self) -> None:
        """End it at once, whatever it is making."""
        with self._lock:
            executor, self._executor = self._executor, None
        if executor is None:
            return
        workers = list((getattr(executor, "_processes", None) or {}).values())
        executor.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.kill()


_robots: dict[str, Robot] = {}


def end_with_parent() -> None:
    """End this process when the one that started it is gone, however that came about: nobody is
    left to end it.
    """
    parent = multiprocessing.parent_process()

    def watch() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="thetahat-orphan", daemon=True).start()


def _begin(robot: Robot, nominal: Robot) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the page, which then ends this
    end_with_parent()
    with suppress(OSError, AttributeError):
        os.nice(NICE)
    _robots.update(robot=robot, nominal=nominal)


def _work(what: str, order: Any) -> Any:
    if what == "parameters":
        return downloads.parameters(_robots["robot"], order)
    return downloads.produce(_robots["robot"], _robots["nominal"], order)
