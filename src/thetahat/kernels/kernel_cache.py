"""The cache of compiled kernels on disk: keyed by their sources alone, and each compiled once.

Numba's own cache is keyed by the path and the time of a kernel's file, so that the same sources in
another folder are compiled again; and processes that start together all compile the same kernels.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from numba.core import caching

try:
    import fcntl
except ImportError:  # no Unix: processes that start together compile side by side
    fcntl = None

LONGEST_WAIT = 120.0  # [s] for another process that compiles the same kernel; then it is compiled
PAUSE = 0.02  # [s] between looks at it


def source_digest() -> str:
    """A hash of every source file of this folder."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def cache_in(kernel, folder: str) -> None:
    """Keep a kernel's compiled code in a folder that belongs to `source_digest`."""

    class Locator(caching._CacheLocator):
        """Where the code of one function is."""

        def __init__(self, function) -> None:
            self.line = function.__code__.co_firstlineno

        def get_cache_path(self) -> str:
            """The folder."""
            return folder

        def get_source_stamp(self) -> str:
            """What the code was compiled from: the folder's name holds the digest already."""
            return Path(folder).name

        def get_disambiguator(self) -> str:
            """A function's line, as its name may occur twice in a file."""
            return str(self.line)

        @classmethod
        def from_function(cls, function, _file):
            """The locator of a function."""
            return cls(function)

    class Files(caching.CompileResultCacheImpl):
        _locator_classes = [Locator]  # noqa: RUF012

    class Cache(caching.FunctionCache):
        _impl_class = Files

    kernel._cache = Cache(kernel.py_func)
    name = f"{kernel.__module__}.{kernel.__qualname__}.lock"
    lock, compiled = Path(folder) / name, kernel.compile
    inside = []  # whether this process holds the lock already

    def compile_once(signature):
        if inside:
            return compiled(signature)
        with _locked(lock):
            inside.append(True)
            try:
                return compiled(signature)
            finally:
                inside.pop()

    kernel.compile = compile_once


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Wait until no other process holds the lock, or for `LONGEST_WAIT`, or not at all where files
    cannot be locked.
    """
    try:
        file = path.open("wb") if fcntl is not None else None
    except OSError:
        file = None
    if file is None:
        yield
        return
    with file:
        until = time.monotonic() + LONGEST_WAIT
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    break
                time.sleep(PAUSE)
            except OSError:
                break
        yield
