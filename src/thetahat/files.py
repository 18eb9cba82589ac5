"""Atomic writes: a kill, a full disk or a read-only folder leaves the old file or the new one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from thetahat.commit_record import (
    finish_interrupted,
    is_pending,
    rename_together,
    scratch_name,
)
from thetahat.errors import StorageError, UsageError


def write_atomically(
    path: str | os.PathLike[str], content: str | bytes, *, folders: bool = False
) -> Path:
    """Write a file (text as UTF-8) so that the old content stays until the new is on disk. folders:
    make missing parent folders.

    Names of files whose bytes are no UTF-8 are escaped as JSON has it: \\udcff.
    """
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    with replacing(path, folders=folders) as scratch, scratch.open("wb") as file:
        file.write(data)
    return Path(path)


@contextmanager
def replacing(path: str | os.PathLike[str], *, folders: bool = False) -> Iterator[Path]:
    """Yield a scratch file that replaces `path` at the end, and is removed if anything fails.

    The scratch file lies beside `path` with the same ending and a name no one else has, so two
    writers cannot mix.
    """
    import tempfile  # here, as it brings in more than a quick start has time for

    path = Path(path)
    scratch: Path | None = None
    try:
        if folders:
            path.parent.mkdir(parents=True, exist_ok=True)
        finish_interrupted(path.parent)  # or it would be finished later, over what is written now
        prefix, suffix = scratch_name(path)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=prefix, suffix=suffix)
        os.close(handle)
        scratch = Path(name)
        yield scratch
        with scratch.open("rb+") as file:
            os.fsync(file.fileno())
        # a temporary file is private; the answer need not be
        scratch.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask())
        staged = _STAGED.get()
        if staged is None:
            scratch.replace(path)
        else:
            staged.append((scratch, path))
            scratch = None
    except OSError as error:
        raise _cannot_write(path, error) from None
    finally:
        if scratch is not None:
            with suppress(OSError):
                scratch.unlink()


def _cannot_write(path: Path, error: OSError) -> StorageError:
    return StorageError(
        f"{_shown(path)} cannot be written: {error.strerror or error}; check the folder, its"
        " permissions and the room on its disk"
    )


# scratch files and their places, in the order in which they are to be renamed; no scratch file: the
# place is to be emptied
_STAGED: ContextVar[list[tuple[Path | None, Path]] | None] = ContextVar("staged", default=None)


@contextmanager
def written_together() -> Iterator[None]:
    """Let the files that are written inside take their places at the end, when all are on disk: a
    full disk, an error half-way, or a kill leaves the files that were there before, or all new
    ones.
    """
    if _STAGED.get() is not None:  # it is the outer one that ends it
        yield
        return
    staged: list[tuple[Path | None, Path]] = []
    token = _STAGED.set(staged)
    try:
        yield
        if staged:
            try:
                rename_together(staged)
            except OSError as error:
                place = error.filename2 or error.filename or staged[-1][1].parent
                raise _cannot_write(Path(place), error) from None
            staged.clear()
    finally:
        _STAGED.reset(token)
        for scratch, _ in staged:
            if scratch is not None and not is_pending(scratch, staged[-1][1].parent):
                with suppress(OSError):
                    scratch.unlink()


def remove_file(path: Path) -> None:
    """Remove a file, if it is there; inside `written_together` when all others are written."""
    staged = _STAGED.get()
    if staged is None:
        path.unlink(missing_ok=True)
    else:
        staged.append((None, path))


def as_written(path: Path) -> Path:
    """Return where the latest content of a file is: its place, or beside it until all files that
    are written together are there.
    """
    for scratch, place in reversed(_STAGED.get() or ()):
        if place == path and scratch is not None:
            return scratch
    return path


def _umask() -> int:
    value = os.umask(0o022)
    os.umask(value)
    return value


def _shown(path: Path) -> str:
    text = str(path)
    return text if text.isprintable() else repr(text)


def require_folder(
    folder: Path, targets: Iterable[Path], inputs: Iterable[str | Path] = ()
) -> None:
    """Raise where files cannot be written into a folder, or would replace an input."""
    out, inputs = str(folder), list(inputs)
    try:
        if folder.exists() and not folder.is_dir():
            raise StorageError(f"--out {out!r} is a file; give a folder")
        for target in targets:
            if target.is_dir():
                raise StorageError(
                    f"{target} is a folder, and the answer is a file of that name; give another"
                    " --out"
                )
            for name in inputs:
                if target.exists() and Path(name).exists() and target.samefile(name):
                    raise UsageError(
                        f"--out {out!r} would write over the input {name}; give another folder"
                    )
        above = next(
            (parent for parent in (folder, *folder.absolute().parents) if parent.exists()), Path()
        )
    except ValueError as error:  # a NUL byte
        raise UsageError(f"--out {out!r} cannot be a path: {error}") from None
    if not above.is_dir():
        raise StorageError(f"--out {out!r} cannot be made: {above} is a file; give another folder")
    if not os.access(above, os.W_OK | os.X_OK):
        raise StorageError(
            f"--out {out!r} cannot be written: no permission in {above}; give another folder"
        )


def make_folder(folder: Path) -> None:
    """Make the output folder of a verb where it does not exist."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"--out {str(folder)!r} cannot be made: {error.strerror or error}; give another folder"
        ) from None


def as_text(data: dict[str, Any]) -> str:
    """Return JSON as it is written and printed."""
    return json.dumps(data, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
