"""Atomic writes: a kill, a full disk or a read-only folder leaves the old file or the new one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from thetahat.errors import StorageError


def write_atomically(
    path: str | os.PathLike[str], content: str | bytes, *, folders: bool = False
) -> Path:
    """Write a file (text as UTF-8) so that the old content stays until the new is on disk. folders:
    make missing parent folders.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
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
        handle, name = tempfile.mkstemp(
            dir=path.parent, prefix=f".{path.name[:100]}.", suffix=path.suffix
        )
        os.close(handle)
        scratch = Path(name)
        yield scratch
        with scratch.open("rb+") as file:
            os.fsync(file.fileno())
        # a temporary file is private; the answer need not be
        scratch.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask())
        scratch.replace(path)
    except OSError as error:
        raise StorageError(
            f"{_shown(path)} cannot be written: {error.strerror or error}; check the folder, its"
            " permissions and the room on its disk"
        ) from None
    finally:
        if scratch is not None:
            with suppress(OSError):
                scratch.unlink()


def _umask() -> int:
    value = os.umask(0o022)
    os.umask(value)
    return value


def _shown(path: Path) -> str:
    text = str(path)
    return text if text.isprintable() else repr(text)
