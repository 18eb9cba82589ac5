"""Keep the last words of compiled libraries off the terminal.

A damaged Parquet file makes polars panic in a thread of its own, which prints a stack to the
process's stderr before the error reaches us as an exception with a sentence of ours.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock

STDERR = 2
PANIC = b"\nthread '"  # how Rust begins
_REDIRECTED = Lock()  # the descriptor is the whole process's


@contextmanager
def quiet_panics() -> Iterator[None]:
    """Hold back what is written to file descriptor 2 inside; write it afterwards, but for panics of
    a call that failed.
    """
    if not _REDIRECTED.acquire(blocking=False):
        yield
        return
    try:
        with _redirected() as failed:
            try:
                yield
            except BaseException:
                failed.append(True)
                raise
    finally:
        _REDIRECTED.release()


@contextmanager
def _redirected() -> Iterator[list[bool]]:
    failed: list[bool] = []
    try:
        kept = os.dup(STDERR)
    except OSError:  # there is no stderr
        yield failed
        return
    try:
        with tempfile.TemporaryFile(buffering=0) as file:
            os.dup2(file.fileno(), STDERR)
            try:
                yield failed
            finally:
                os.dup2(kept, STDERR)
                file.seek(0)
                said = file.read()
                said = said.partition(PANIC)[0] if failed else said
                with suppress(OSError):
                    os.write(STDERR, said)
    finally:
        os.close(kept)
