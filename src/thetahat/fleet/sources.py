"""Where logs are: files, folders, patterns, or URLs that fsspec opens (s3://, gs://, https://, …), fetched once per machine when read."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from thetahat.data.formats import SUFFIXES, is_bag_folder
from thetahat.data.formats.bags import bag_files
from thetahat.data.formats.table import label
from thetahat.data.log import _files as local_files
from thetahat.errors import MissingExtra, StorageError, ThetahatError, UsageError
from thetahat.files import replacing
from thetahat.fleet.fingerprint import fingerprint

FETCHED_BYTES = 4 * 2**30  # of copies of remote logs that are kept beside each other; the oldest go first
IN_USE = 600.0  # [s] after its last use a copy may still be open
PIECE = 8 * 2**20


@dataclass(frozen=True)
class Item:
    """One log file (or the folder of one bag), by its absolute path or its URL, and as its owner named it."""

    place: str
    given: str

    @property
    def remote(self) -> bool:
        """Whether it must be fetched."""
        return "://" in self.place

    @property
    def name(self) -> str:
        """As messages call it."""
        return label(Path(self.given)) if not self.remote else self.given

    def local(self) -> Path:
        """The file itself, or a copy of it on this machine."""
        return _fetched(self.place) if self.remote else Path(self.place)

    def state(self) -> str:
        """A text that changes when the content does, found without reading it; `StorageError` where there is nothing."""
        if self.remote:
            with _filesystem(self.place) as (system, path):
                return str(system.ukey(path))
        path = Path(self.place)
        try:
            found = [file.stat() for file in (bag_files(path) if is_bag_folder(path) else [path])]
        except FileNotFoundError:
            raise StorageError(f"{label(path)} does not exist; check the path") from None
        except (OSError, ValueError) as error:
            raise StorageError(f"{label(path)} cannot be read ({getattr(error, 'strerror', None) or error}); check the path") from None
        return ";".join(f"{each.st_size},{each.st_mtime_ns},{each.st_ctime_ns},{each.st_ino}" for each in found)

    def changed(self) -> float:
        """When it was last written to [s since 1970]; infinite where that is not known, as of a remote file."""
        if self.remote:
            return float("inf")
        path = Path(self.place)
        times = [file.stat() for file in (bag_files(path) if is_bag_folder(path) else [path])]
        return max(max(each.st_mtime, each.st_ctime) for each in times)


def items(names: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> tuple[Item, ...]:
    """Every log that paths, folders, patterns and URLs name, in order, each once."""
    given = [names] if isinstance(names, str | os.PathLike) else list(names) if isinstance(names, Sequence) else None
    if not given or not all(isinstance(name, str | os.PathLike) for name in given):
        raise UsageError(f"logs are {names!r}; give a file, a folder, a pattern, a URL or a list of these")
    found: dict[Item, None] = {}
    for name in given:
        text = os.fspath(name).removeprefix("file://")
        if "://" in text:
            found.update(dict.fromkeys(Item(place, place) for place in _remote_files(text)))
        else:
            found.update(dict.fromkeys(Item(str(path.absolute()), str(path)) for path in local_files(text)))
    return tuple(found)


def _remote_files(url: str) -> list[str]:
    """The logs behind a URL: itself, those in a folder, or those that fit a pattern."""
    from glob import has_magic

    with _filesystem(url) as (system, path):
        if has_magic(path) and not system.exists(path):
            found = sorted(system.glob(path))
        elif system.isdir(path):
            found = sorted(name for name in system.ls(path, detail=False) if name.lower().endswith(SUFFIXES))
        else:
            return [url]
        if not found:
            raise StorageError(f"no log is at {url}; logs end in {', '.join(SUFFIXES)}, so check the address")
        return [system.unstrip_protocol(name) for name in found]


@contextmanager
def _filesystem(url: str) -> Iterator[tuple[Any, str]]:
    """fsspec's file system and the path in it; whatever goes wrong there is a `StorageError`."""
    try:
        import fsspec
    except ImportError:
        raise MissingExtra(f"{url} is a URL, which needs the extra 'dask' (it brings fsspec): pip install 'thetahat[dask]'") from None
    try:
        yield fsspec.core.url_to_fs(url)
    except ThetahatError:
        raise
    except Exception as error:  # every protocol has errors of its own
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise StorageError(f"{url} cannot be read ({reason}); check the address and its credentials") from None


def _fetched(url: str) -> Path:
    """A copy of a remote file, made once while it stays the same there."""
    with _filesystem(url) as (system, path):
        state = str(system.ukey(path))
        folder = Path(tempfile.gettempdir()) / f"thetahat-{os.getuid() if hasattr(os, 'getuid') else 'logs'}"
        folder.mkdir(mode=0o700, exist_ok=True)
        copy = folder / fingerprint(url, state)[:24] / PurePosixPath(path).name
        if not copy.exists():
            with replacing(copy, folders=True) as scratch, system.open(path, "rb") as source, scratch.open("wb") as target:
                while data := source.read(PIECE):
                    target.write(data)
            _evict(folder, copy)
        with suppress(OSError):
            os.utime(copy, (time.time(), copy.stat().st_mtime))  # used now; when it was written must not change under a reader's eyes
        return copy


def _evict(folder: Path, keep: Path) -> None:
    """Remove the copies that were not used for longest, until what is left is within bounds; none that may be in use."""
    copies = []
    for path in folder.glob("*/*"):
        with suppress(OSError):
            copies.append((path.stat().st_atime, path.stat().st_size, path))
    total = sum(size for _, size, _ in copies)
    for used, size, path in sorted(copies):
        if total <= FETCHED_BYTES:
            return
        if path != keep and time.time() - used > IN_USE:
            with suppress(OSError):
                path.unlink()
            total -= size
