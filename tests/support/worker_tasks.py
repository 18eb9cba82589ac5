"""Tasks for workers, in a module that a worker imports quickly."""

from __future__ import annotations

import os
import signal
import time

from thetahat.errors import StorageError


def odd(context: int, task: int) -> int:
    """Fail at every second task."""
    if task % 2:
        raise StorageError(f"task {task} of {context}")
    return task


def deadly(context: int, task: int) -> int:
    """Kill the worker at one task."""
    if task == context:
        os.kill(os.getpid(), signal.SIGKILL)
    return task


def slow(context: float, task: int) -> int:
    """Take `context` seconds."""
    time.sleep(context)
    return task
