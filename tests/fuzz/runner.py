"""Run the command line in this process, with a time limit, and judge how it ended."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

from thetahat import cli

LIMIT = 20.0  # [s] of one case, on a loaded machine too; it is a hang beyond
ENDINGS = {0, 2, 3, 4, 5, 6, 7, 8}
MOST_LINES = 30  # on stderr
# an attribute that holds nan, and is no name that the input may have had
NAN = re.compile(
    r"""\s(?!(?:name|link|joint|class|mesh|file)=)\w+=["'][^"']*\bnan\b""", re.IGNORECASE
)


class Hang(BaseException):
    """A case took longer than the limit."""


@dataclass(frozen=True)
class Ended:
    """How a call of the command line ended."""

    code: int
    out: str
    err: str
    native: str  # what compiled libraries wrote to the process's own stderr
    seconds: float


@contextmanager
def native_stderr() -> Iterator[io.FileIO]:
    """Send file descriptor 2 to a file while inside, which native code writes to."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile(buffering=0) as file:
        os.dup2(file.fileno(), 2)
        try:
            yield file
        finally:
            os.dup2(kept, 2)
            os.close(kept)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `Hang` inside when the time is over, with the calls that were under way."""

    def over(_signal: int, frame: FrameType | None) -> NoReturn:
        signal.setitimer(signal.ITIMER_REAL, 1.0)  # again, should somebody catch it
        raise Hang("".join(traceback.format_stack(frame)[-12:]))

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def run(arguments: Sequence[str], *, limit: float = LIMIT) -> Ended:
    """Call `thetahat` with arguments."""
    out, err = io.StringIO(), io.StringIO()
    argv, began, code = sys.argv, time.monotonic(), 0
    sys.argv = ["thetahat", *arguments]
    native = ""
    try:
        with native_stderr() as file:
            with redirect_stdout(out), redirect_stderr(err), time_limit(limit):
                try:
                    cli.main()
                except SystemExit as ended:
                    code = ended.code if isinstance(ended.code, int) else 0 if not ended.code else 1
            file.seek(0)
            native = file.read().decode("utf-8", "replace")
    except Hang as hang:
        code = -1
        err.write(str(hang))
    finally:
        sys.argv = argv
    return Ended(code, out.getvalue(), err.getvalue(), native, time.monotonic() - began)


def faults(ended: Ended, out: Path | None = None) -> list[str]:
    """Return what is wrong with an ending; nothing, where it is one of those documented."""
    wrong = []
    if ended.code == -1:
        return [f"hang: longer than {ended.seconds:.0f} s"]
    if ended.code not in ENDINGS:
        wrong.append(f"exit {ended.code}")
    if "Traceback" in ended.out + ended.err:
        wrong.append("traceback")
    if "panicked" in ended.native or "Traceback" in ended.native:
        wrong.append(f"native stderr: {ended.native[:200]!r}")
    errors = [line for line in ended.err.splitlines() if line.startswith("error: ")]
    if ended.code in ENDINGS - {0, 2} and len(errors) != 1:  # click prints usage in its own way
        wrong.append(f"{len(errors)} errors on stderr for exit {ended.code}")
    if len(ended.err.splitlines()) > MOST_LINES:
        wrong.append(f"{len(ended.err.splitlines())} lines on stderr")
    if ended.code == 0 and ended.out.startswith("{") and not _is_finite_json(ended.out):
        wrong.append("answer is not JSON with finite numbers")
    if out is not None and out.exists():
        wrong += _files(out, ended.code, partly="the answer is of the others" in ended.err)
    return wrong


def _files(out: Path, code: int, *, partly: bool) -> Iterator[str]:
    """Yield what is wrong with the files that were written. partly: without some of the inputs, as said."""
    there = [out] if out.is_file() else sorted(path for path in out.rglob("*") if path.is_file())
    if there and code not in (0, 8) and not partly:
        yield f"exit {code} left {[path.name for path in there][:4]}"
    for path in there:
        if path.name.startswith("."):
            yield f"scratch file {path.name} is left"
        if path.suffix == ".json" and not _is_finite_json(path.read_text(encoding="utf-8")):
            yield f"{path.name} is not JSON with finite numbers"
        if path.suffix in (".urdf", ".xml") and NAN.search(path.read_text(encoding="utf-8")):
            yield f"{path.name} holds nan"


def _is_finite_json(text: str) -> bool:
    def refuse(word: str) -> NoReturn:
        raise ValueError(word)

    try:
        json.loads(text, parse_constant=refuse)
    except ValueError:
        return False
    return True
