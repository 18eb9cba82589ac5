"""What every file format yields: named columns of numbers, in blocks, with the place of each row in
its file.
"""

from __future__ import annotations

import hashlib
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import BinaryIO

import numpy as np

from thetahat.errors import MalformedInput, RefusedForSafety, StorageError

MAX_COLUMNS = 4_096  # a humanoid of 60 joints has 250; each column costs memory in every block
HASH_BLOCK = 8 * 2**20


def label(path: Path) -> str:
    """A path as one line of printable text."""
    text = str(path)
    return text if text.isprintable() else repr(text)


def shown(value: object, limit: int = 60) -> str:
    """A value from a file, quoted and short enough for a sentence."""
    text = str(value)
    return repr(text if len(text) <= limit else text[: limit - 1] + "…")


@dataclass(frozen=True, eq=False)
class Block:
    """Consecutive rows of a table."""

    values: np.ndarray  # (rows, columns) float64, all finite, in the order of the columns asked for
    labels: tuple[
        tuple[int, str], ...
    ] = ()  # (row of the block, run name) wherever the run's name is stated or changes

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class State:
    """What tells that a file is still the one that was opened."""

    size: int
    modified: int
    inode: int

    @staticmethod
    def of(path: Path) -> State:
        """The state of a regular file, or the `StorageError` that says why there is none."""
        try:
            found = path.stat()
        except FileNotFoundError:
            raise StorageError(f"{label(path)} does not exist; check the path") from None
        except (OSError, ValueError) as error:
            raise StorageError(
                f"{label(path)} cannot be read ({getattr(error, 'strerror', None) or error}); check"
                " the path"
            ) from None
        if not stat.S_ISREG(found.st_mode):  # reading a pipe or a device could last for ever
            raise StorageError(f"{label(path)} is not a regular file; save the log to a file first")
        return State(found.st_size, found.st_mtime_ns, found.st_ino)


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading; whatever goes wrong there is a `StorageError`."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise StorageError(
            f"{label(path)} cannot be opened ({error.strerror}); check the path and its permissions"
        ) from None
    with file:
        try:
            yield file
        except OSError as error:
            if isinstance(error, StorageError):
                raise
            raise StorageError(
                f"{label(path)} cannot be read ({error.strerror or error}); check its disk"
            ) from None


class Digest:
    """SHA-256 of bytes that pass by, computed by a thread of its own, in order."""

    def __init__(self) -> None:
        self._hash, self._pool = hashlib.sha256(), ThreadPoolExecutor(1, "thetahat-hash")
        self._last: Future[None] | None = None

    def update(self, data: bytes) -> None:
        """Add bytes; at most two pieces wait, so that memory stays bounded."""
        previous, self._last = self._last, self._pool.submit(self._hash.update, data)
        if previous is not None:
            previous.result()

    def hexdigest(self) -> str:
        """The digest of all bytes added."""
        if self._last is not None:
            self._last.result()
        return self._hash.hexdigest()

    def close(self) -> None:
        """Let the thread go."""
        self._pool.shutdown()


def file_digest(path: Path, stop: Event) -> str:
    """SHA-256 of a file, unless told to stop."""
    digest = hashlib.sha256()
    with opened(path) as file:
        while not stop.is_set() and (data := file.read(HASH_BLOCK)):
            digest.update(data)
    return digest.hexdigest()


class Table(ABC):
    """A log file (or the files of one bag) as named columns. Subclasses say how to read them."""

    path: Path
    names: tuple[str, ...]  # of all columns
    widths: dict[str, int]  # 2-D arrays of NPZ files, expanded to columns `name1 … nameN`
    notes: tuple[
        tuple[str, str], ...
    ] = ()  # (kind, sentence) about the file, for the log's findings

    def __init__(self, path: Path, files: Sequence[Path] | None = None) -> None:
        self.path, self.widths = path, {}
        self.files = tuple(files or (path,))
        self.states = tuple(State.of(file) for file in self.files)
        self.sha256: tuple[str, ...] | None = None  # filled by the first complete pass

    @abstractmethod
    def read(
        self, columns: Sequence[str], run_column: str | None, *, first: bool
    ) -> Iterator[Block]:
        """The blocks of these columns; the `first` pass also checks what need be checked
        only once.
        """

    @abstractmethod
    def where(self, row: int) -> str:
        """How a person finds a row of the file: "line 7", or "row 5 (counting from 0)"."""

    def blocks(self, columns: Sequence[str], run_column: str | None) -> Iterator[Block]:
        """The blocks of these columns, from a file that is and stays the one that was opened."""
        self._require_unchanged("between two readings")
        first = self.sha256 is None
        stop = Event()
        with ThreadPoolExecutor(1, "thetahat-hash") as pool:
            hashes = (
                [pool.submit(file_digest, file, stop) for file in self.files]
                if first and not self.hashes_itself
                else []
            )
            try:
                yield from self.read(columns, run_column, first=first)
                self._require_unchanged("while it was read")
                if hashes:
                    self.sha256 = tuple(future.result() for future in hashes)
            except (MalformedInput, StorageError):
                self._require_unchanged(
                    "while it was read"
                )  # a growing file looks cut: say the cause, not the symptom
                raise
            finally:
                stop.set()

    hashes_itself = False

    def _require_unchanged(self, when: str) -> None:
        for file, before in zip(self.files, self.states, strict=True):
            try:
                now = State.of(file)
            except StorageError:
                raise StorageError(
                    f"{label(file)} vanished {when}; put it back, or read a copy that stays"
                ) from None
            if now != before:
                what = (
                    f"went from {before.size} to {now.size} bytes"
                    if now.size != before.size
                    else "was written to"
                )
                raise StorageError(
                    f"{label(file)} {what} {when}; wait until its recording has ended, or read a"
                    " copy"
                )

    def problem(self, row: int, sentence: str) -> MalformedInput:
        """An error about a row."""
        return MalformedInput(f"{label(self.path)}, {self.where(row)}: {sentence}")

    def check_finite(
        self, values: np.ndarray, columns: Sequence[str], first_row: int
    ) -> np.ndarray:
        """The values, or an error that names the first that is not a finite number."""
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(
                values.sum()
                # a sum is finite only if every term is; the other way round may fail, hence the
                # second look
            ):
                return values
        bad = ~np.isfinite(values)
        if bad.any():
            row = int(np.argmax(bad.any(axis=1)))
            column = int(np.argmax(bad[row]))
            raise self.problem(
                first_row + row,
                f"column {shown(columns[column])} is {values[row, column]}; every number must be"
                " finite, so repair or remove the row",
            )
        return values


def check_names(path: Path, names: Sequence[str]) -> None:
    """Refuse too many columns, and a name that two columns share."""
    if len(names) > MAX_COLUMNS:
        raise RefusedForSafety(
            f"{label(path)} has {len(names)} columns; at most {MAX_COLUMNS} are read, so keep those"
            " of the robot's joints"
        )
    seen: set[str] = set()
    for name in names:
        if name and name in seen:
            raise MalformedInput(
                f"{label(path)}: column {shown(name)} appears twice in the header; rename or remove"
                " one of them"
            )
        seen.add(name)


def common_length(path: Path, lengths: Mapping[str, int]) -> int:
    """Return the number of rows of t, or else of the longest array.

    An array of q, dq, ddq, tau or seg with another length is an error; any other is no column.
    """
    rows = lengths.get("t", max(lengths.values(), default=0))
    for name, length in lengths.items():
        kind = name.rstrip("0123456789").split(".")[0]
        if length != rows and kind in ("q", "dq", "ddq", "tau", "seg"):
            raise MalformedInput(
                f"{label(path)}: array {shown(name)} has {length} rows but"
                f" {'t' if 't' in lengths else 'another'} has {rows}; every array needs one row per"
                " time stamp"
            )
    return rows


def labels_of(names: Sequence[object]) -> tuple[tuple[int, str], ...]:
    """(row, name) at the first row and wherever the name changes."""
    found: list[tuple[int, str]] = []
    for row, name in enumerate(names):
        if not found or found[-1][1] != name:
            found.append((row, str(name)))
    return tuple(found)
