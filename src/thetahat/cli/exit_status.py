"""How every verb ends: an exit code, and at most one sentence on stderr. Never a traceback.

`guarded` is entered once, around the whole program, so a verb only raises. Messages and data never
share a stream: `say` writes to stderr, `emit` to stdout.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from thetahat.errors import StorageError, ThetahatError

UNEXPECTED, STORAGE, REFUSED = 1, 6, 7
INTERRUPTED, BROKEN_PIPE = 130, 141  # 128 + signal, as a shell counts
SHOWN_WARNINGS = 12
_COLOURS = {"error": "31", "warning": "33"}


def plain(text: object) -> str:
    """Text from a file or an exception on one line, without characters that could steer a
    terminal.
    """
    return "".join(c if c.isprintable() else " " for c in str(text))


def say(text: object, label: str = "") -> None:
    """Write one line to stderr; a message that cannot be written is no reason to fail."""
    head = f"{label}: " if label else ""
    if (
        label in _COLOURS
        and sys.stderr.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") != "dumb"
    ):
        head = f"\x1b[{_COLOURS[label]}m{label}:\x1b[0m "
    with suppress(OSError):
        print(head + plain(text), file=sys.stderr, flush=True)


def emit(text: str) -> None:
    """Write data to stdout, to the end: a full disk is an error, a reader that has left (`| head`)
    is not worth a word.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # Python flushes stdout once more on its way out; give that flush somewhere to go.
        with suppress(io.UnsupportedOperation):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise SystemExit(BROKEN_PIPE) from None
        raise StorageError(
            f"the answer could not be written to stdout: {error.strerror}; check where stdout leads"
        ) from None


@contextmanager
def collect_warnings(*, quiet: bool = False) -> Iterator[list[str]]:
    """Collect the warnings raised inside as sentences, and say them on stderr afterwards unless
    `quiet`.
    """
    sentences: list[str] = []
    if quiet:
        os.environ["THETAHAT_QUIET"] = "1"  # the kernels' compiler says that it is at work
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, *_, **__: sentences.append(plain(message))
        try:
            yield sentences
        finally:
            if not quiet:
                for sentence in sentences[:SHOWN_WARNINGS]:
                    say(sentence, "warning")
                if len(sentences) > SHOWN_WARNINGS:
                    say(
                        f"{len(sentences) - SHOWN_WARNINGS} more like these (--json lists all)",
                        "warning",
                    )


@contextmanager
def guarded() -> Iterator[None]:
    """Turn whatever a verb raises into its exit code and one sentence."""
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # a terminal that cannot show θ shows ? instead of failing; in UTF-8 only the bytes of
            # strange file names fail
            unicode = (stream.encoding or "").lower().startswith("utf")
            stream.reconfigure(errors="backslashreplace" if unicode else "replace")
    warnings.showwarning = lambda message, *_, **__: say(message, "warning")
    try:
        yield
    except KeyboardInterrupt:
        say("interrupted")
        raise SystemExit(INTERRUPTED) from None
    except BrokenPipeError:
        raise SystemExit(BROKEN_PIPE) from None
    except Exception as error:
        code, sentence = verdict(error)
        if os.environ.get("THETAHAT_DEBUG"):
            traceback.print_exc()
        say(sentence, "error")
        raise SystemExit(code) from None


class _Closed(io.TextIOBase):
    """Standard output that was closed before the program began."""

    def write(self, text: str, /) -> int:
        """Refuse data, which would be lost."""
        raise OSError(errno.EBADF, "it is closed")


def _open_closed_streams() -> None:
    """Let no file that is opened later become standard output or error by its number."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number, this one
    if sys.stdout is None:
        sys.stdout = _Closed()
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115, for as long as the process lives


def verdict(error: Exception) -> tuple[int, str]:
    """The exit code and the sentence for an exception that reached the top."""
    if isinstance(error, ThetahatError):
        return error.exit_code, str(error)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        advice = "check the path, its permissions and the room on its disk"
        return STORAGE, f"{where}{error.strerror or error}; {advice}"
    if isinstance(error, MemoryError):
        return REFUSED, "out of memory; try a smaller input or a larger machine"
    what = f"unexpected {type(error).__name__}: {error}"
    return UNEXPECTED, f"{what} (a bug; set THETAHAT_DEBUG=1 for the traceback)"
