"""Renaming a set of files as one step: a process that is killed between two renames leaves a record
of the rest, and whoever comes next finishes it.

The record lies in the folder of the files while they take their places, a few microseconds each. It
names scratch files and their places inside that folder alone, and counts only where this user wrote
it.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from thetahat.errors import StorageError

NAME = ".thetahat-commit"
LOCKS = os.name == "posix"  # elsewhere renames go without a record
LONGEST_WAIT = 10.0  # [s] for another process that renames files in the folder
PAUSE = 0.01  # [s]
ORPHAN = 600.0  # [s] of a scratch file that nobody has written to since: its process is gone
RANDOM = 8  # characters of a scratch file's name, beside those of its place
LARGEST = 2**22  # bytes of a record
# a scratch file and its place; no scratch file: the place is to be emptied
Move = tuple[Path | None, Path]


def rename_together(moves: Sequence[Move]) -> None:
    """Let scratch files take their places, in this order; an OSError leaves all as it was, or a
    record with which the next one who comes finishes.

    The record is kept in the folder of the last place; files elsewhere are renamed first.
    """
    folder = moves[-1][1].parent
    inside = [move for move in moves if _relative(move[1], folder) is not None]
    for move in moves:
        if move not in inside:
            _move(*move)
    if len(inside) < 2 or not LOCKS:
        for move in inside:
            _move(*move)
        return
    with _locked(folder / NAME, create=True) as record:
        if record is not None:
            _finish(record, folder)
            _write(record, inside, folder)
        for done, move in enumerate(inside):
            try:
                _move(*move)
            except OSError:
                if not done and record is not None:  # all is as it was
                    (folder / NAME).unlink(missing_ok=True)
                raise
        if record is not None:
            (folder / NAME).unlink(missing_ok=True)
    for _, place in inside:
        _remove_orphans(place)


def finish_interrupted(folder: Path) -> None:
    """Let the files of a process that was killed while it renamed them take their places."""
    path = folder / NAME
    try:
        there = LOCKS and path.lstat().st_uid == os.getuid()
    except (OSError, ValueError):
        return
    if not there:
        return
    try:
        with _locked(path, create=False) as record:
            if record is not None:
                _finish(record, folder)
                path.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(
            f"{str(folder)!r} holds files of a run that was killed while it wrote them, and they"
            f" cannot take their places: {error.strerror or error}; make the folder writeable and"
            f" try again, or remove {NAME} from it to keep what is there"
        ) from None


def is_pending(scratch: Path, folder: Path) -> bool:
    """Whether a record says that a scratch file has yet to take its place."""
    try:
        moves = _parse((folder / NAME).read_bytes(), folder)
    except OSError:
        return False
    return any(waiting == scratch for waiting, _ in moves)


def _move(scratch: Path | None, place: Path) -> None:
    if scratch is None:
        place.unlink(missing_ok=True)
    else:
        scratch.replace(place)


def _relative(path: Path, folder: Path) -> str | None:
    """Return a path beneath a folder, links followed in all but its name; None where it is not."""
    try:
        parent = path.parent.resolve().relative_to(folder.resolve())
    except (ValueError, OSError):
        return None
    return str(parent / path.name)


@contextmanager
def _locked(path: Path, *, create: bool) -> Iterator[int | None]:
    """Yield the record, which no one else has open; None where there is none, or someone else's."""
    until = time.monotonic() + LONGEST_WAIT
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
    while time.monotonic() < until:
        try:
            descriptor = os.open(path, flags, 0o600)
        except (FileNotFoundError, PermissionError):
            yield None
            return
        try:
            if _is_locked(descriptor):
                yield descriptor
                return
        finally:
            os.close(descriptor)
        time.sleep(PAUSE)
    raise StorageError(
        f"{str(path.parent)!r} is being written by another process for more than"
        f" {LONGEST_WAIT:.0f} s; try again when that has ended"
    )


def _is_locked(descriptor: int) -> bool:
    """Whether the record is this process's now, and whoever had it before has not removed it."""
    import fcntl  # of Unix alone

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return os.fstat(descriptor).st_nlink > 0


def _write(record: int, moves: Sequence[Move], folder: Path) -> None:
    names = [
        [None if scratch is None else _relative(scratch, folder), _relative(place, folder)]
        for scratch, place in moves
    ]
    data = json.dumps(names).encode()
    try:
        os.ftruncate(record, 0)
        if os.pwrite(record, data, 0) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(record)
    except OSError:
        with suppress(OSError):
            (folder / NAME).unlink()
        raise


def _finish(record: int, folder: Path) -> None:
    """Rename what a record names and is still there; one that was cut in writing names nothing."""
    for scratch, place in _parse(os.pread(record, LARGEST, 0), folder):
        with suppress(FileNotFoundError):  # it was renamed
            _move(scratch, place)


def _parse(data: bytes, folder: Path) -> list[Move]:
    """Return the moves of a record; none where it is cut, or names anything outside its folder."""
    try:
        moves: list[Move] = [
            (None if scratch is None else folder / str(scratch), folder / str(place))
            for scratch, place in json.loads(data)
        ]
    except (ValueError, TypeError, RecursionError):
        return []
    for scratch, place in moves:
        if _relative(place, folder) is None or place.name in ("", ".."):
            return []
        if scratch is not None and not _is_scratch(scratch, place):
            return []
    return moves


def _is_scratch(scratch: Path, place: Path) -> bool:
    """Whether a file has the name of a scratch file of a place, and lies beside it."""
    head, tail = scratch_name(place)
    name = scratch.name
    return (
        scratch.parent == place.parent
        and name.startswith(head)
        and name.endswith(tail)
        and len(name) == len(head) + RANDOM + len(tail)
    )


def scratch_name(place: Path) -> tuple[str, str]:
    """Return how the names of a place's scratch files begin and end."""
    return f".{place.name[:100]}.", place.suffix


def _remove_orphans(place: Path) -> None:
    """Remove scratch files of a place whose processes were killed before all were on disk."""
    with suppress(OSError):
        for entry in os.scandir(place.parent):
            old = _is_scratch(Path(entry.path), place) and entry.is_file(follow_symlinks=False)
            if old and entry.stat(follow_symlinks=False).st_mtime < time.time() - ORPHAN:
                Path(entry.path).unlink()
