"""Where logs are: files, folders, patterns, or URLs that fsspec opens (s3://, gs://, https://, …),
fetched once per machine when read.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from thetahat.data.formats import SUFFIXES, folder_files, is_log_folder
from thetahat.data.formats.table import label
from thetahat.data.log import log_files
from thetahat.engine.fingerprint import fingerprint
from thetahat.errors import MissingExtra, StorageError, ThetahatError, UsageError
from thetahat.files import replacing

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

# of copies of remote logs, those in use apart; the oldest go first. fsspec's own `filecache` has no
# such limit, writes a copy in place while another worker may read it, and takes a file at an HTTP
# address for unchanged whatever its ETag says.
FETCHED_BYTES = 4 * 2**30
HELD = 4  # copies that a process has in use: the last ones it asked for
IN_USE = 600.0  # [s] after its last use a copy may still be open, where a system has no locks
# what tells a file from its successor at the same address, beside what fsspec looks at
MARKS = ("size", "ETag", "Last-Modified", "Content-MD5")
PACKAGES = {
    "http": "aiohttp",
    "https": "aiohttp",
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "abfs": "adlfs",
    "az": "adlfs",
}
PIECE = 8 * 2**20


@dataclass(frozen=True)
class Item:
    """One log file (or the folder of one bag), by its absolute path or its URL, and as its owner
    named it.
    """

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

    @property
    def _path(self) -> PurePosixPath:
        return PurePosixPath(_file_name(self.place) if self.remote else self.place)

    @property
    def suffix(self) -> str:
        """How its name ends, in small letters: which format it has."""
        return self._path.suffix.lower()

    @property
    def stem(self) -> str:
        """Its name without the ending."""
        return self._path.stem

    def local(self) -> Path:
        """The file itself, or a copy of it on this machine."""
        return _fetched(self.place) if self.remote else Path(self.place)

    def files(self) -> list[Path]:
        """Return the files on this machine: itself or its copy, or those of a bag."""
        path = self.local()
        return folder_files(path) if is_log_folder(path) else [path]

    def state(self) -> str:
        """A text that changes when the content does, found without reading it; `StorageError` where
        there is nothing.
        """
        if self.remote:
            return _state(self.place)
        path = Path(self.place)
        try:
            stats = [file.stat() for file in self.files()]
        except FileNotFoundError:
            raise StorageError(f"{label(path)} does not exist; check the path") from None
        except (OSError, ValueError) as error:
            raise StorageError(
                f"{label(path)} cannot be read ({getattr(error, 'strerror', None) or error}); check"
                " the path"
            ) from None
        return ";".join(
            f"{each.st_size},{each.st_mtime_ns},{each.st_ctime_ns},{each.st_ino}" for each in stats
        )

    def changed(self) -> float:
        """When it was last written to [s since 1970]; infinite where that is not known, as of a
        remote file.
        """
        if self.remote:
            return float("inf")
        return max(max(each.st_mtime, each.st_ctime) for each in map(Path.stat, self.files()))


def items(names: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> tuple[Item, ...]:
    """Every log that paths, folders, patterns and URLs name, in order, each once."""
    given = (
        [names]
        if isinstance(names, str | os.PathLike)
        else list(names)
        if isinstance(names, Sequence)
        else None
    )
    if not given or not all(isinstance(name, str | os.PathLike) for name in given):
        raise UsageError(
            f"logs are {names!r}; give a file, a folder, a pattern, a URL or a list of these"
        )
    out: dict[Item, None] = {}
    for name in given:
        text = os.fspath(name).removeprefix("file://")
        if "://" in text:
            some = [Item(place, _shown(place)) for place in _remote_files(text)]
        else:
            some = [Item(str(path.absolute()), str(path)) for path in log_files(text)]
        out |= dict.fromkeys(some)
    return tuple(out)


def _remote_files(url: str) -> list[str]:
    """The logs behind a URL: itself, those in a folder, or those that fit a pattern."""
    from glob import has_magic

    with _filesystem(url) as (system, path):
        if has_magic(path) and not system.exists(path):
            names = sorted(system.glob(path))
        elif system.isdir(path):
            every = system.ls(path, detail=False)
            names = sorted(name for name in every if name.lower().endswith(SUFFIXES))
        else:
            return [url]
        if not names:
            raise StorageError(
                f"no log is at {_shown(url)}; logs end in {', '.join(SUFFIXES)}, so check the"
                " address"
            )
        inside = "".join(url.partition("::")[1:])  # of an archive: what it is in
        return [system.unstrip_protocol(name) + inside for name in names]


def _file_name(url: str) -> str:
    """The file's own name, without where it lies and without what is asked of a server."""
    return PurePosixPath(_shown(url).partition("::")[0]).name


def _shown(url: str) -> str:
    """A URL for messages and answers: what follows a ? may be a signature that opens the file to
    whoever reads it.
    """
    return url.partition("?")[0] if url.startswith(("http://", "https://")) else url


def _state(url: str) -> str:
    """A text that changes when what lies at an address does."""
    with _filesystem(url) as (system, path):
        info = system.info(path)
        try:
            marks = [str(system.ukey(path))]
        except NotImplementedError:  # archives: what they are in tells
            marks = [str(info)]
        marks += [f"{name}={info[name]}" for name in MARKS if info.get(name) is not None]
    _, chained, rest = url.partition("::")
    return ";".join([*marks, *([_state(rest)] if chained else [])])


@contextmanager
def _filesystem(url: str) -> Iterator[tuple[Any, str]]:
    """fsspec's file system and the path in it; whatever goes wrong there is a `StorageError`."""
    try:
        import fsspec
    except ImportError:
        raise MissingExtra(
            f"{url} is a URL, which needs the extra 'dask' (it brings fsspec): pip install"
            " 'thetahat[dask]'"
        ) from None
    try:
        # an archive's list of files may be old
        yield fsspec.core.url_to_fs(url, **({"skip_instance_cache": True} if "::" in url else {}))
    except ThetahatError:
        raise
    except ImportError as error:
        package = PACKAGES.get(url.partition("://")[0])
        fix = f"pip install {package}" if package else str(error)
        raise MissingExtra(
            f"{_shown(url)}: fsspec needs another package to open it: {fix}"
        ) from None
    except Exception as error:  # every protocol has errors of its own
        reason = (str(error) or type(error).__name__).splitlines()[0]
        reason = reason.replace(url, _shown(url))
        raise StorageError(
            f"{_shown(url)} cannot be read ({reason}); check the address and its credentials"
        ) from None


def _fetched(url: str) -> Path:
    """A copy of a remote file, made once while it stays the same there."""
    state = _state(url)
    folder = (
        Path(tempfile.gettempdir()) / f"thetahat-{os.getuid() if hasattr(os, 'getuid') else 'logs'}"
    )
    copy = folder / fingerprint(url, state)[:24] / _file_name(url)
    with _filesystem(url) as (system, path):
        folder.mkdir(mode=0o700, exist_ok=True)
        while not _hold(copy):
            with (
                replacing(copy, folders=True) as scratch,
                system.open(path, "rb") as source,
                scratch.open("wb") as target,
            ):
                while data := source.read(PIECE):
                    target.write(data)
            evict(folder.glob("*/*"), FETCHED_BYTES, keep=copy, in_use=_in_use)
        with suppress(OSError):
            # used now; when it was written must not change under a reader's eyes
            os.utime(copy, (time.time(), copy.stat().st_mtime))
        return copy


# -- copies in use ---------------------------------------------------------------------------------

# copies this process has in use, each with a shared lock that ends with the process
_held: OrderedDict[Path, Any] = OrderedDict()


def _hold(copy: Path) -> bool:
    """Whether the copy is there, and then in use until this process has asked for some others."""
    try:
        file = copy.open("rb")
    except OSError:
        _held.pop(copy, None)
        return False
    if fcntl is not None:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if not copy.exists():  # whoever evicts was quicker
            file.close()
            return False
    _held.pop(copy, None)
    _held[copy] = file
    while len(_held) > HELD:
        _held.popitem(last=False)[1].close()
    return True


def _in_use(path: Path, used: float) -> bool:
    """Whether any process has a copy in use."""
    if fcntl is None:
        return time.time() - used < IN_USE
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    return False


def evict(
    paths: Iterable[Path],
    most: int,
    *,
    keep: Path,
    in_use: Callable[[Path, float], bool] | None = None,
) -> None:
    """Remove the files that were not used for longest until they take no more than `most` bytes.

    A file's last use is its modification time, or its access time where `in_use` (path, last use)
    says which must stay.
    """
    files = []
    for path in paths:
        with suppress(OSError):
            stat = path.stat()
            used = stat.st_mtime if in_use is None else stat.st_atime
            files.append((used, stat.st_size, path))
    total = sum(size for _, size, _ in files)
    for used, size, path in sorted(files):
        if total <= most:
            return
        if path != keep and (in_use is None or not in_use(path, used)):
            with suppress(OSError):
                path.unlink()
            total -= size
