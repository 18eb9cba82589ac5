"""Processes that this one starts: Ctrl-C is for this one alone, and none outlives it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import connection, resource_tracker


@contextmanager
def spared_interrupts() -> Iterator[None]:
    """Start processes in here: a terminal sends Ctrl-C to all of a group, and they never see it.

    They inherit that the signal is blocked, from their first instruction on, before a handler of
    their own could be set.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # it is started with processes, and unblocks the signal then
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent() -> None:
    """End this process when the one that started it is gone."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch(sentinel: int) -> None:
        while not connection.wait([sentinel], timeout=60.0):
            pass
        os._exit(1)

    name, sentinel = "thetahat-orphan", parent.sentinel
    threading.Thread(target=watch, args=(sentinel,), name=name, daemon=True).start()
