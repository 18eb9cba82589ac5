"""Run a verb in a process of its own, and end it, or fail its writes, at a stated moment."""

from __future__ import annotations

import errno
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

LIMIT = 120.0  # [s] of one run
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "tempfile.mkstemp")
KILLED, READ_ONLY, FULL, CUT = "killed", "read-only", "full disk", "killed in a write"
KINDS = (KILLED, READ_ONLY, FULL, CUT)


@dataclass(frozen=True)
class Moment:
    """What happens, and when."""

    kind: str
    at: int  # changes to the folder before it; for the last two kinds: bytes of a file

    def __str__(self) -> str:
        unit = "bytes" if self.kind in (FULL, CUT) else "changes"
        return f"{self.kind} after {self.at} {unit}"


@dataclass(frozen=True)
class Ended:
    """How a run ended: exit code, or minus the signal."""

    code: int
    err: str
    changes: int  # to the folder


def run(arguments: Sequence[str], folder: Path, moment: Moment | None = None) -> Ended:
    """Call `thetahat` in a copy of this process, which must have no threads yet, in a folder."""
    report, err = folder.parent / "changes", folder.parent / "stderr"
    report.write_bytes(b"")
    code = in_a_copy(lambda: _child(arguments, folder, report, err, moment))
    return Ended(code, err.read_text(errors="replace"), len(report.read_bytes()))


def in_a_copy(function: Callable[[], int]) -> int:
    """Call a function in a copy of this process, and return its exit code."""
    assert len([*Path("/proc/self/task").iterdir()]) == 1, (
        "a copy of a process has its main thread alone"
    )
    pid = os.fork()
    if not pid:
        code = 1
        try:
            code = function()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(_wait(pid))


def _wait(pid: int) -> int:
    until = time.monotonic() + LIMIT
    while time.monotonic() < until:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise TimeoutError(f"a run took longer than {LIMIT:.0f} s")


def _child(
    arguments: Sequence[str], folder: Path, report: Path, err: Path, moment: Moment | None
) -> int:
    for number, place in ((1, os.devnull), (2, str(err))):
        os.dup2(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), number)
    os.chdir(folder.parent)
    if moment is not None and moment.kind in (FULL, CUT):
        resource.setrlimit(resource.RLIMIT_FSIZE, (moment.at, moment.at))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        ending = signal.SIG_DFL if moment.kind == CUT else signal.SIG_IGN
        signal.signal(signal.SIGXFSZ, ending)
        moment = None
    _watch(folder, os.open(report, os.O_WRONLY | os.O_APPEND), moment)
    sys.argv = ["thetahat", *arguments]
    from thetahat import cli

    try:
        cli.main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    return 0


def _watch(folder: Path, report: int, moment: Moment | None) -> None:
    """Count changes to a folder, and let the moment come."""
    inside, pid, done = str(folder), os.getpid(), [0]

    def hook(event: str, given: tuple[object, ...]) -> None:
        if event == "open":
            changes = isinstance(given[2], int) and bool(given[2] & WRITING)
        else:
            changes = event in CHANGES
        if not changes or os.getpid() != pid:  # a process that this one has started
            return
        place = given[0]
        if not isinstance(place, str | bytes | os.PathLike):
            return
        if not str(Path(os.fsdecode(place)).absolute()).startswith(inside):
            return
        if moment is not None and done[0] >= moment.at:
            if moment.kind == KILLED:
                os.kill(pid, signal.SIGKILL)
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), os.fsdecode(place))
        done[0] += 1
        os.write(report, b".")

    sys.addaudithook(hook)
