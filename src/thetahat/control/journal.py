"""The journal: what was measured and decided, appended as it happens, readable after any death of
its writer.

Acknowledged means: `append` returned True. The record was then handed to the operating system by
one write, whole, and outlives a kill -9 at any later moment. With ``sync="disk"`` it was also
forced onto the disk and outlives a power cut; that takes milliseconds, so not in a quick loop. An
append takes some 5–10 µs of CPU time and never waits for the disk (``sync="system"``), unless the
machine's write cache is full.

A write that fails (disk full) never stops the caller: `append` returns False, `failed` and `error`
are set, one attempt per second is made to go on, and the first record that succeeds is preceded by
one of kind "gap" with the number lost. Leaving the `with` block then raises the StorageError (exit
code 6). One writer at a time: a second one is refused (exit code 7). A file that is no journal is
never touched.

It is the one file of this project that is not written by thetahat.files: appending is its purpose.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thetahat.control.journal_format import (
    MAGIC,
    MAX_PAYLOAD,
    Damage,
    Decoder,
    Encoder,
    Record,
    frame,
    frames,
)
from thetahat.errors import (
    MalformedInput,
    RefusedForSafety,
    StorageError,
    UsageError,
    check_count,
)

SYNC = ("system", "disk")
RETRY = 1.0  # [s] between attempts on a disk that is full
MIN_BYTES = 4096
LOCK_TRIES = 100  # of a lock whose holders end at the same moment


@dataclass(frozen=True)
class JournalReport:
    """What a journal holds."""

    files: tuple[str, ...]
    bytes: int
    records: int
    kinds: dict[str, int]
    first_t: float | None  # [s]
    last_t: float | None
    first_number: int | None
    last_number: int | None
    torn_bytes: int  # behind the last whole record: its writer was killed, or the disk was full
    damaged_bytes: int  # between whole records
    missing: int  # frames whose number is not there
    lost: int  # records that their writer says it could not write

    def __str__(self) -> str:
        span = "no records"
        if self.records:
            span = f"{self.records} records from t = {self.first_t:.6g} to {self.last_t:.6g} s"
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.kinds.items())
        return (
            f"{span}{f' ({kinds})' if kinds else ''} in {len(self.files)} files, {self.bytes}"
            f" bytes; {self.torn_bytes} bytes torn, {self.damaged_bytes} damaged, {self.missing}"
            f" frames missing, {self.lost} records lost"
        )


class Journal:
    """An open journal, made or continued.

    Args:
        path: of the file; older parts of it are `path.000001`, `path.000002`, …
        sync: "system" or "disk", see above.
        max_bytes: of one file, from which on it is set aside and a new one begun; None: never.
        keep: how many files set aside are kept, the oldest go first; None: all.

    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        sync: str = "system",
        max_bytes: int | None = None,
        keep: int | None = None,
    ) -> None:
        if sync not in SYNC:
            raise UsageError(f"sync is {sync!r}; choose one of {', '.join(SYNC)}")
        for name, value, least in (("max_bytes", max_bytes, MIN_BYTES), ("keep", keep, 0)):
            if value is not None:
                check_count(name, value, least=least, end=", or None")
        self.path = Path(path)
        self._sync, self._max_bytes, self._keep = sync == "disk", max_bytes, keep
        self.error: StorageError | None = None
        self.lost = 0  # records that could not be written, in all
        self.records = 0  # acknowledged by this writer
        self._gap = 0  # lost since the last success
        self._retry_at = 0.0
        self._fd = self._lock = -1
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(self.path)
            self._open()
        except OSError as error:
            self._release()
            if isinstance(error, StorageError):
                raise
            raise StorageError(
                f"journal {_shown(self.path)} could not be opened: {error.strerror or error}; check"
                " the folder and its disk"
            ) from None
        except BaseException:
            self._release()
            raise

    @property
    def failed(self) -> bool:
        """Whether any record was lost."""
        return self.error is not None

    @property
    def alarms(self) -> tuple[str, ...]:
        """That records were lost, and how many so far, as a sentence; none while all were kept."""
        return () if self.error is None else (f"{self.error} ({self.lost} records so far)",)

    # -- writing -----------------------------------------------------------------------------------

    def append(self, kind: str, t: float, **values: Any) -> bool:
        """Add a record; True once it is safe. Numbers and arrays of doubles are kept exactly, all
        else as JSON.
        """
        if self._fd < 0:
            raise UsageError(f"journal {_shown(self.path)} is closed; open it again to go on")
        if self._gap and time.monotonic() < self._retry_at:
            return self._missed()
        try:
            if self._max_bytes is not None and self._size >= self._max_bytes:
                self._rotate()
            if self._gap:
                self._write(self._encoder.payloads("gap", float(t), {"lost": self._gap}))
                self._gap = 0
            self._write(self._encoder.payloads(kind, float(t), values))
        except OSError as error:
            self._fail(error)
            return self._missed()
        self.records += 1
        return True

    def _write(self, payloads: list[bytes]) -> None:
        """One write at the end of what is whole: what an earlier, cut one left there is
        overwritten.
        """
        data = b"".join([frame(self._number + k, payload) for k, payload in enumerate(payloads)])
        if len(data) > MAX_PAYLOAD:
            raise UsageError(
                f"a record of {len(data)} bytes is too large for a journal; the largest is"
                f" {MAX_PAYLOAD}"
            )
        if os.pwrite(self._fd, data, self._size) < len(data):  # the disk filled up in the middle
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self._sync:
            os.fdatasync(self._fd)
        self._size += len(data)
        self._number += len(payloads)

    def _fail(self, error: OSError) -> None:
        self._retry_at = time.monotonic() + RETRY
        self._encoder = Encoder()  # a layout may not have reached the file
        with suppress(OSError):
            os.ftruncate(self._fd, self._size)
        if self.error is None:
            self.error = StorageError(
                f"journal {_shown(self.path)} lost records from number {self._number} on:"
                f" {error.strerror or error}; make room on its disk, or write it elsewhere"
            )

    def _missed(self) -> bool:
        self._gap, self.lost = self._gap + 1, self.lost + 1
        return False

    def _rotate(self) -> None:
        """Set the file aside, begin another, drop the oldest."""
        aside = _aside(self.path)
        if self.path.exists():  # it is not, where the last attempt to begin another failed
            number = _number(aside[-1]) + 1 if aside else 1
            self.path.rename(self.path.with_name(f"{self.path.name}.{number:06d}"))
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            os.ftruncate(fd, 0)
            if os.pwrite(fd, MAGIC, 0) < len(MAGIC):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            os.close(fd)
            self.path.unlink()
            raise
        os.close(self._fd)
        self._fd, self._size, self._encoder = fd, len(MAGIC), Encoder()
        if self._keep is not None:
            for old in _aside(self.path)[: -self._keep or None]:
                old.unlink()

    # -- opening and closing -----------------------------------------------------------------------

    def _open(self) -> None:
        """Begin a file, or find the end of what is whole in one, and drop what is torn."""
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._encoder, self._number, self._size = Encoder(), 0, len(MAGIC)
        for part in [*_aside(self.path)[-1:], self.path]:
            with part.open("rb") as file:
                begins = file.read(len(MAGIC))
                # cut while it was begun, or new
                if begins != MAGIC and not (part == self.path and MAGIC.startswith(begins)):
                    raise _no_journal(part)
                for found in frames(file, len(MAGIC)) if begins == MAGIC else ():
                    if not isinstance(found, Damage):
                        self._number = found[1] + 1
                        if part == self.path:
                            self._size = found[0]
        size = os.fstat(self._fd).st_size
        self.dropped_bytes = max(0, size - self._size)  # torn by the last writer's end
        if size < len(MAGIC) and os.pwrite(self._fd, MAGIC, 0) < len(MAGIC):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if size > self._size:
            os.ftruncate(self._fd, self._size)

    def close(self) -> None:
        """Hand the file to the disk and let the next writer in."""
        if self._fd >= 0:
            try:
                os.fsync(self._fd)
            except OSError as error:
                self._fail(error)
        self._release()

    def _release(self) -> None:
        if self._lock >= 0:
            with suppress(OSError):
                _lock_file(self.path).unlink()
        for fd in (self._fd, self._lock):
            if fd >= 0:
                os.close(fd)
        self._fd = self._lock = -1

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type | None, value: object, trace: object) -> None:
        self.close()
        if self.error is not None and kind is None:
            raise self.error

    # -- reading -----------------------------------------------------------------------------------

    @staticmethod
    def read(path: str | os.PathLike[str]) -> Iterator[Record]:
        """Every whole record, in order, through all files of the journal; also while it is being
        written.
        """
        for _, found in _scan(Path(path)):
            if isinstance(found, Record):
                yield found

    @staticmethod
    def report(path: str | os.PathLike[str]) -> JournalReport:
        """What a journal holds, and what is torn or missing."""
        kinds: Counter[str] = Counter()
        times: list[float] = []
        numbers: list[int] = []
        damage: list[tuple[Path, Damage]] = []
        missing = lost = 0
        for part, entry in _scan(Path(path)):
            if isinstance(entry, Damage):
                damage.append((part, entry))
            elif isinstance(entry, Record):
                kinds[entry.kind] += 1
                times = [*times[:1], entry.t]
                lost += int(entry.values.get("lost", 0)) if entry.kind == "gap" else 0
            else:
                missing += max(0, entry - numbers[-1] - 1) if numbers else 0
                numbers = [*numbers[:1], entry]
        files = _files(Path(path))
        sizes = {part: part.stat().st_size for part in files}
        torn = sum(d.size for part, d in damage if d.offset + d.size >= sizes[part])
        return JournalReport(
            files=tuple(part.name for part in files),
            bytes=sum(sizes.values()),
            records=sum(kinds.values()),
            kinds=dict(kinds),
            first_t=times[0] if times else None,
            last_t=times[-1] if times else None,
            first_number=numbers[0] if numbers else None,
            last_number=numbers[-1] if numbers else None,
            torn_bytes=torn,
            damaged_bytes=sum(d.size for _, d in damage) - torn,
            missing=missing,
            lost=lost,
        )


def _scan(path: Path) -> Iterator[tuple[Path, Record | Damage | int]]:
    """Frame numbers, records and damage of all files of a journal."""
    for part in _files(path):
        try:
            with part.open("rb") as file:
                begins = file.read(len(MAGIC))
                if begins != MAGIC:
                    if not MAGIC.startswith(begins):
                        raise _no_journal(part)
                    if begins:
                        yield part, Damage(0, len(begins))
                    continue
                decoder = Decoder()
                for found in frames(file, len(MAGIC)):
                    if isinstance(found, Damage):
                        yield part, found
                        continue
                    yield part, found[1]
                    record = decoder.record(found[1], found[2])
                    if record is not None:
                        yield part, record
        except OSError as error:
            raise StorageError(
                f"journal {_shown(part)} could not be read: {error.strerror or error}"
            ) from None


def _aside(path: Path) -> list[Path]:
    """The files set aside, oldest first."""
    names = re.compile(re.escape(path.name) + r"\.(\d{6,})")
    return sorted(
        (part for part in path.parent.iterdir() if names.fullmatch(part.name)), key=_number
    )


def _number(part: Path) -> int:
    return int(part.name.rpartition(".")[2])


def _files(path: Path) -> list[Path]:
    """All files of a journal, oldest first."""
    found = [*(_aside(path) if path.parent.is_dir() else []), *([path] if path.is_file() else [])]
    if not found:
        raise StorageError(f"journal {_shown(path)} is not there; check the path")
    return found


def _lock_file(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")


def _locked(path: Path) -> int:
    """A lock that ends with its process, however that ends; a descriptor to close."""
    import fcntl  # of Unix alone, and of writers alone

    for _ in range(LOCK_TRIES):
        fd = os.open(_lock_file(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(fd, 20).decode(errors="replace").strip()
            os.close(fd)
            raise RefusedForSafety(
                f"journal {_shown(path)} is being written by another"
                f" process{f' ({holder})' if holder else ''}; two writers would mix their records:"
                " end that one, or choose another file"
            ) from None
        if os.fstat(fd).st_nlink:
            os.ftruncate(fd, 0)
            os.pwrite(fd, str(os.getpid()).encode(), 0)
            return fd
        os.close(fd)  # of a writer that removed it as it ended
    raise BlockingIOError(errno.EAGAIN, "its lock changes hands all the time")


def _no_journal(path: Path) -> MalformedInput:
    return MalformedInput(
        f"{_shown(path)} is no journal (it does not begin with {MAGIC.decode().strip()!r}); it was"
        " left alone: choose another path"
    )


def _shown(path: Path) -> str:
    text = str(path)
    return text if text.isprintable() else repr(text)
