"""Base of the file formats: named columns of numbers, in blocks, with each row's place in its
file.
"""

from __future__ import annotations

import hashlib
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import BinaryIO

import numpy as np

from thetahat.errors import MalformedInput, RefusedForSafety, StorageError

# of any number in a log: stamps in nanoseconds are below, and squares of sums do not overflow
LARGEST = 1e19
MAX_COLUMNS = 4_096  # a humanoid of 60 joints has 250; each column costs memory in every block
HASH_BLOCK = 8 * 2**20
NAMED = 8  # rows that a note names
PLACED = 1_000_000  # rows left out whose places are remembered, 8 bytes each
MAX_WAIT = 3_600.0  # [s] for a block to be parsed or a file to be hashed by another thread


def label(path: Path) -> str:
    """Return a path as one line of printable text."""
    text = str(path)
    return text if text.isprintable() else repr(text)


def shown(value: object, limit: int = 60) -> str:
    """Return a value from a file, quoted and short enough for a sentence."""
    text = str(value)
    return repr(text if len(text) <= limit else text[: limit - 1] + "…")


@dataclass(frozen=True, eq=False)
class Block:
    """Consecutive rows of a table."""

    values: np.ndarray  # (rows, columns) float64, all finite, in the order of the columns asked for
    # (row of the block, run name) wherever the run's name is stated or changes
    labels: tuple[tuple[int, str], ...] = ()

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class State:
    """Size, time and inode by which a changed file is noticed."""

    size: int
    modified: int
    inode: int

    @staticmethod
    def of(path: Path) -> State:
        """Return the state of a regular file."""
        try:
            status = path.stat()
        except FileNotFoundError:
            raise StorageError(f"{label(path)} does not exist; check the path") from None
        except (OSError, ValueError) as error:
            raise StorageError(
                f"{label(path)} cannot be read ({getattr(error, 'strerror', None) or error}); check"
                " the path"
            ) from None
        if not stat.S_ISREG(status.st_mode):  # reading a pipe or a device could last for ever
            raise StorageError(f"{label(path)} is not a regular file; save the log to a file first")
        return State(status.st_size, status.st_mtime_ns, status.st_ino)


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading; any error of the file system is a `StorageError`."""
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
    """SHA-256 of a stream of bytes, computed by a thread of its own."""

    def __init__(self) -> None:
        self._hash, self._pool = hashlib.sha256(), ThreadPoolExecutor(1, "thetahat-hash")
        self._last: Future[None] | None = None

    def update(self, data: bytes) -> None:
        """Add bytes; at most two pieces wait, which bounds memory."""
        previous, self._last = self._last, self._pool.submit(self._hash.update, data)
        if previous is not None:
            previous.result(MAX_WAIT)

    def hexdigest(self) -> str:
        """Return the digest of all bytes added."""
        if self._last is not None:
            self._last.result(MAX_WAIT)
        return self._hash.hexdigest()

    def close(self) -> None:
        """Let the thread end, once it is through with what it has."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def file_digest(path: Path, stop: Event) -> str:
    """Return the SHA-256 of a file, unless stopped."""
    digest = hashlib.sha256()
    with opened(path) as file:
        while not stop.is_set() and (data := file.read(HASH_BLOCK)):
            digest.update(data)
    return digest.hexdigest()


class Table(ABC):
    """A log file (or the files of one bag) as named columns; subclasses read one format each."""

    path: Path
    names: tuple[str, ...]  # of all columns
    widths: dict[str, int]  # 2-D arrays of NPZ files, expanded to columns `name1 … nameN`
    notes: tuple[tuple[str, str], ...] = ()  # (kind, sentence), for the log's findings
    hashes_itself = False
    headerless = False  # whether its columns have numbers, from 1, for names
    dates: frozenset[str] = frozenset()  # columns that hold dates
    skip_bad_rows = False  # instead of refusing the file; its formats then yield NaN for bad cells
    # skip rows in which all columns but the first are empty: those of other channels
    skip_empty_rows = False
    skipped: SkippedRows | None = None  # of the last pass

    def __init__(self, path: Path, files: Sequence[Path] | None = None) -> None:
        self.path, self.widths = path, {}
        self.files = tuple(files or (path,))
        self.states = tuple(State.of(file) for file in self.files)
        self.sha256: tuple[str, ...] | None = None  # filled by the first complete pass

    @abstractmethod
    def read(
        self, columns: Sequence[str], run_column: str | None, *, first: bool
    ) -> Iterator[Block]:
        """Return the blocks of these columns; the `first` pass also checks what need be checked
        only once.
        """

    def head(self, column: str, count: int) -> np.ndarray:
        """Return the first numbers of a column, unchecked."""
        for block in self.read([column], None, first=False):
            return block.values[:count, 0]
        return np.zeros(0)

    def place(self, row: int) -> str:
        """Return how a user finds a row of the file: "line 7", or "row 5 (counting from 0)"."""
        return f"row {row} (counting from 0)"

    def where(self, row: int) -> str:
        """Return how a user finds one of the rows that are kept."""
        return self.place(row if self.skipped is None else self.skipped.row_in_file(row))

    @property
    def skips(self) -> bool:
        """Return whether rows may be left out, so that their numbers in the file are not those of
        the rows that are kept.
        """
        return self.skip_bad_rows or self.skip_empty_rows

    def stream(
        self, columns: Sequence[str], run_column: str | None, *, first: bool
    ) -> Iterator[Block]:
        """Return the blocks of these columns, the time first, without the rows to be skipped."""
        blocks = self.read(columns, run_column, first=first)
        if not self.skips:
            row = 0
            for block in blocks:
                self._check_range(block.values, columns, row)
                row += len(block)
                yield block
            return
        skipped = self.skipped = SkippedRows(bad=self.skip_bad_rows, empty=self.skip_empty_rows)
        for block in blocks:
            kept = skipped.drop(block, self, columns)
            if len(kept):
                yield kept
        others = tuple(note for note in self.notes if note[0] != SkippedRows.kind)
        self.notes = (*others, *skipped.notes(self))

    def blocks(self, columns: Sequence[str], run_column: str | None) -> Iterator[Block]:
        """Return the blocks of these columns; the file must be as it was when it was opened."""
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
                yield from self.stream(columns, run_column, first=first)
                self._require_unchanged("while it was read")
                if hashes:
                    self.sha256 = tuple(future.result(MAX_WAIT) for future in hashes)
            except (MalformedInput, StorageError):
                self._require_unchanged("while it was read")  # a growing file looks cut
                raise
            finally:
                stop.set()

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
        """Return an error about a row, counted as the rows that are kept."""
        return MalformedInput(f"{label(self.path)}, {self.where(row)}: {sentence}")

    def check_finite(
        self, values: np.ndarray, columns: Sequence[str], first_row: int
    ) -> np.ndarray:
        """Return the values; raise an error that names the first that is not finite, unless bad
        rows are skipped.
        """
        if self.skips:
            return values
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(values.sum()):  # then every term is; finite terms may overflow, though
                return values
        bad = ~np.isfinite(values)
        if bad.any():
            row = int(np.argmax(bad.any(axis=1)))
            column = int(np.argmax(bad[row]))
            raise MalformedInput(
                f"{label(self.path)}, {self.place(first_row + row)}: column"
                f" {shown(columns[column])} is {values[row, column]}; every number must be finite,"
                " so repair or remove the row"
            )
        return values

    def _check_range(self, values: np.ndarray, columns: Sequence[str], first_row: int) -> None:
        """Raise an error that names the first number whose square would be out of hand."""
        if not values.size or (values.max() <= LARGEST and values.min() >= -LARGEST):
            return
        large = ~(np.abs(values) <= LARGEST)
        row = int(np.argmax(large.any(axis=1)))
        column = int(np.argmax(large[row]))
        raise MalformedInput(
            f"{label(self.path)}, {self.place(first_row + row)}: column {shown(columns[column])} is"
            f" {values[row, column]:g}; nothing that a robot measures is beyond ±{LARGEST:g}, so"
            " repair or remove the row"
        )


class SkippedRows:
    """Rows of a file that are left out: with cells that are no finite numbers, or with stamps that
    do not increase.
    """

    kind = "skipped-rows"

    def __init__(self, *, bad: bool, empty: bool) -> None:
        self._skip_bad, self._skip_empty = bad, empty
        self._rows = 0  # of the file, so far
        self._bad: list[int] = []  # the first ones
        self._bad_count = self._empty_count = 0
        # (row of the file) that were left out, to place those that are kept; no more than `PLACED`
        self._gone: list[np.ndarray] = []
        self._last = -np.inf  # stamp of the row kept last
        self._label = ""

    @classmethod
    def at(cls, rows: np.ndarray) -> SkippedRows:
        """Return what an earlier pass left out. rows: as `rows` has them."""
        skipped = cls(bad=True, empty=True)
        skipped._gone = [rows]
        return skipped

    @property
    def rows(self) -> np.ndarray:
        """Return the rows of the file that were left out, the first `PLACED` of them."""
        return np.concatenate([np.zeros(0, dtype=np.int64), *self._gone])

    def drop(self, block: Block, table: Table, columns: Sequence[str]) -> Block:
        """Return the block without the rows to be skipped."""
        values = block.values
        finite = np.abs(values) <= LARGEST  # NaN is not
        empty = (
            ~finite[:, 1:].any(axis=1)
            if self._skip_empty and values.shape[1] > 1
            else np.zeros(len(values), dtype=bool)
        )
        bad = ~finite.all(axis=1) & ~empty
        if bad.any() and not self._skip_bad:
            row = int(np.argmax(bad))
            column = columns[int(np.argmax(~finite[row]))]
            raise MalformedInput(
                f"{label(table.path)}, {table.place(self._rows + row)}: column {shown(column)} has"
                " no finite number while others have; repair or remove the row, or skip such rows"
                " (--skip-bad-rows)"
            )
        labels = dict(block.labels)
        if self._skip_bad:
            bad |= self._out_of_order(values[:, 0], bad | empty, labels)
        gone = np.flatnonzero(bad | empty)
        kept = np.flatnonzero(~(bad | empty))
        self._count(bad, empty, gone)
        moved = {int(np.searchsorted(kept, row)): name for row, name in labels.items()}
        return Block(
            values[kept], tuple((row, name) for row, name in moved.items() if row < len(kept))
        )

    def _out_of_order(self, t: np.ndarray, gone: np.ndarray, labels: dict[int, str]) -> np.ndarray:
        """Return which rows do not come after those kept before in their run."""
        edges = [0, *(row for row in sorted(labels) if row), len(t)]
        wrong = np.zeros(len(t), dtype=bool)
        for begin, end in pairwise(edges):
            if labels.get(begin, self._label) != self._label:
                self._label, self._last = labels[begin], -np.inf
            stamps = np.where(gone[begin:end], -np.inf, t[begin:end])
            before = np.maximum.accumulate(np.concatenate(([self._last], stamps)))
            wrong[begin:end] = (stamps <= before[:-1]) & ~gone[begin:end]
            self._last = float(before[-1])
        return wrong

    def _count(self, bad: np.ndarray, empty: np.ndarray, gone: np.ndarray) -> None:
        self._bad += (self._rows + np.flatnonzero(bad)[: max(0, NAMED - len(self._bad))]).tolist()
        self._bad_count += int(np.count_nonzero(bad))
        self._empty_count += int(np.count_nonzero(empty))
        if self._bad_count + self._empty_count <= PLACED:
            self._gone.append(self._rows + gone)
        self._rows += len(bad)

    def row_in_file(self, row: int) -> int:
        """Return the number in the file of a row that was kept."""
        gone = self.rows
        # the k-th row left out has gone[k] − k kept rows before it
        return row + int(np.searchsorted(gone - np.arange(len(gone)), row, side="right"))

    def notes(self, table: Table) -> Iterator[tuple[str, str]]:
        """Return what was left out, and refuse a file that is mostly bad."""
        told = self._rows - self._empty_count
        if 2 * self._bad_count > told:
            raise MalformedInput(
                f"{label(table.path)}, {table.place(self._bad[0])}: {self._bad_count} of {told}"
                " rows are bad from here on, too many to be skipped; repair the file"
            )
        if self._bad_count:
            more = f" and {self._bad_count - NAMED} more" if self._bad_count > NAMED else ""
            places = ", ".join(table.place(row) for row in self._bad)
            yield self.kind, f"{self._bad_count} of {told} rows are bad and skipped: {places}{more}"
        if self._empty_count:
            rows = f"{self._empty_count} of {self._rows} rows"
            yield self.kind, f"{rows} hold other channels alone and are skipped"


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
    """Return (row, name) at the first row and wherever the name changes."""
    labels: list[tuple[int, str]] = []
    for row, name in enumerate(names):
        if not labels or labels[-1][1] != name:
            labels.append((row, str(name)))
    return tuple(labels)
