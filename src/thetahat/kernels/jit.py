"""The project's jit decorators, their flags, and the cache folder of compiled kernels.

Numba's cache notices an edit in the file of a kernel but not in a file it calls into, so the cache
folder is keyed by a hash of all of `kernels/`. The first call of a kernel on a machine compiles it;
the user who waits is told so.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import numba
from numba.core import config, event

from thetahat.kernels.kernel_cache import cache_in, source_digest

_FLAGS = {"nogil": True, "boundscheck": False, "error_model": "numpy", "fastmath": {"contract"}}


def _cache_folder() -> str:
    """The first writable of: NUMBA_CACHE_DIR, the user's cache folder, the temporary folder of the
    machine.
    """
    name = f"thetahat-kernels-{source_digest()}"
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")  # noqa: PTH111, PTH118
    for parent in (config.CACHE_DIR, home, tempfile.gettempdir()):
        if parent:
            folder = Path(parent) / name
            try:
                folder.mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryFile(dir=folder):
                    return str(folder)
            except OSError:
                continue
    return ""


_CACHE_FOLDER = _cache_folder()


def jit(function):
    """Compile a kernel: raw arrays in and out, no interpreter lock, cached on disk."""
    kernel = numba.njit(no_cfunc_wrapper=True, **_FLAGS)(function)
    if _CACHE_FOLDER:
        cache_in(kernel, _CACHE_FOLDER)
    return kernel


def inline(function):
    """Compile a small function into whatever kernel calls it."""
    # Never called from Python or C, so it needs neither's wrapper; with them all kernels took 19 s
    # to compile, without them 14.
    return numba.njit(forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, **_FLAGS)(
        function
    )


class _Announcer(event.Listener):
    """Says on standard error that a kernel is being compiled, once per process, unless told to be
    quiet.
    """

    def __init__(self) -> None:
        self.depth, self.said, self.started, self.seconds = 0, False, 0.0, 0.0

    def _ours(self, ev: event.Event) -> bool:
        return (getattr(ev.data["dispatcher"].py_func, "__module__", None) or "").startswith(
            __package__
        )

    def on_start(self, ev: event.Event) -> None:
        if self._ours(ev):
            self.depth += 1
            if self.depth == 1:
                self.started = time.perf_counter()
                if not self.said and not os.environ.get("THETAHAT_QUIET"):
                    self.said = True
                    print(
                        "thetahat: compiling its kernels for this machine, once (a few seconds) …",
                        file=sys.stderr,
                        flush=True,
                    )

    def on_end(self, ev: event.Event) -> None:
        if self._ours(ev):
            self.depth -= 1
            if self.depth == 0:
                self.seconds += time.perf_counter() - self.started


compilation = _Announcer()
event.register("numba:compile", compilation)
