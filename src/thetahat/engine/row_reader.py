"""Rows first … stop of a log file without reading those before.

Parquet is entered by its row groups, CSV by the places of its lines. Every number was checked when
the file was scanned, and the file is held to be that one by its state. Formats without such access
(bags, MCAP, NPZ) are read from their beginning; with a store, their rows are spooled to disk as
plain numbers while the file is scanned, as decoding a message takes longer than folding it. A spool
may be deleted at any time and is then made again; one that cannot be written is done without.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import numpy as np

from thetahat.data.columns import ColumnMap
from thetahat.data.formats import Block, Table
from thetahat.data.formats.columnar import ColumnarTable
from thetahat.data.formats.csv import CsvTable
from thetahat.data.formats.table import State, label, opened
from thetahat.data.reading import Reading, open_log_table
from thetahat.engine.fingerprint import fingerprint
from thetahat.engine.sources import Item, evict
from thetahat.errors import MalformedInput, StorageError, ThetahatError
from thetahat.files import replacing

SEEKABLE = (".parquet", ".pq", ".feather", ".arrow", ".ipc", ".csv", ".tsv", ".txt")
EVERY = 8_192  # rows between two places of a CSV file that are kept
BLOCK = 4 * 2**20  # bytes
NEWLINE = b"\n"
SPOOL_BYTES = 32 * 2**30  # of all spools of a store; the oldest go first
PIECE = 65_536  # rows of a spool read at once
DOUBLE = 8  # bytes of a number


@dataclass(frozen=True, eq=False)
class FileRows:
    """The rows of a scanned file, read from wherever that is quickest."""

    item: Item
    reading: Reading
    columns: ColumnMap
    states: tuple[State, ...]
    rows: int  # in all
    joints: tuple[str, ...]  # of the robot: which messages of a bag are meant
    places: np.ndarray  # of lines in a CSV file, from the one of row `origin`
    origin: int = 0

    @cached_property
    def table(self) -> Table:
        """The open file; `StorageError` where it has changed since it was scanned."""
        table = open_log_table(self.item.local(), self.joints, self.reading)
        now, before = (
            [state.size if self.item.remote else (state.size, state.modified) for state in states]
            for states in (table.states, self.states)
        )
        if now != before:
            raise StorageError(
                f"{self.item.name} changed after it was scanned; wait until its recording has"
                " ended, or read a copy"
            )
        return table

    @property
    def seekable(self) -> bool:
        """Whether its own format lets a reader begin in the middle."""
        suffix = self.item.suffix
        return suffix in SEEKABLE and divisible(self.table)

    def read(self, first: int, stop: int) -> Iterator[np.ndarray]:
        """Yield the rows first … stop of the columns, in pieces."""
        try:
            spooled = None if self.seekable else self._spooled(first, stop)
            yield from spooled or read_rows(
                self.table, self.columns, first, stop, places=self.places, origin=self.origin
            )
        except OSError as error:
            if isinstance(error, ThetahatError):
                raise
            raise StorageError(
                f"{self.item.name} cannot be read ({error.strerror or error}); check its disk"
            ) from None

    def several(self, spans: list[tuple[int, int]]) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (first row, rows) of pieces that make up these spans, in order.

        A file that cannot be entered in the middle is read once for all of them.
        """
        if self.seekable or self._spooled(0, 0) is not None:
            for first, stop in spans:
                for values in self.read(first, stop):
                    yield first, values
                    first += len(values)
            return
        row = spans[0][0]
        for values in self.read(row, spans[-1][1]):
            for first, stop in spans:
                low, high = max(first, row), min(stop, row + len(values))
                if low < high:
                    yield low, values[low - row : high - row]
            row += len(values)

    def _spooled(self, first: int, stop: int) -> Iterator[np.ndarray] | None:
        """The spooled rows; spooled again where only a part is wanted and they are gone."""
        if self.reading.spool is None:
            return None
        path = spool_file(self.reading.spool, self.item, self.columns, self.reading)
        width = len(self.columns.columns)
        if not _is_whole(path, width * self.rows) and (first, stop) != (0, self.rows):
            with spooling(self.table, path) as table:
                for _ in table.blocks(self.columns.columns, None):
                    pass
        whole = _is_whole(path, width * self.rows)
        return _spooled_rows(path, width, first, stop) if whole else None


# -- from the middle of a file ---------------------------------------------------------------------


def divisible(table: Table) -> bool:
    """Whether rows in its middle can be read without those before."""
    return isinstance(table, ColumnarTable | CsvTable) and not table.skips


def line_places(table: Table) -> np.ndarray:
    """Return where in a CSV file the rows 0, `EVERY`, 2·`EVERY`, … begin, [bytes].

    Empty for other formats.
    """
    if not isinstance(table, CsvTable):
        return np.zeros(0, dtype=np.int64)
    places, row, at = [np.array([table.start])], 0, table.start
    with opened(table.path) as file:
        file.seek(at)
        while data := file.read(BLOCK):
            ends = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == NEWLINE[0])
            first = (-1 - row) % EVERY  # the end of row k·EVERY − 1 is followed by row k·EVERY
            places.append(at + ends[first::EVERY] + 1)
            row, at = row + len(ends), at + len(data)
    return np.concatenate(places)


def read_rows(
    table: Table, columns: ColumnMap, first: int, stop: int, *, places: np.ndarray, origin: int = 0
) -> Iterator[np.ndarray]:
    """Yield the rows first … stop of the map's columns, (·, columns) in pieces, in order.

    places: of a CSV file's lines from row `origin` on.
    """
    if isinstance(table, ColumnarTable) and not table.skips:
        yield from _columnar(table, columns, first, stop)
    elif isinstance(table, CsvTable) and len(places) and not table.skips:
        yield from _csv(table, columns, first - origin, stop - origin, places)
    else:
        at = 0
        for block in table.stream(columns.columns, None, first=False):
            low, high = max(first - at, 0), min(stop - at, len(block))
            if low < high:
                yield block.values[low:high]
            at += len(block)
            if at >= stop:
                return


def _columnar(
    table: ColumnarTable, columns: ColumnMap, first: int, stop: int
) -> Iterator[np.ndarray]:
    if stop > table.rows:
        raise _changed(table.path)
    try:
        for block in table.slices(columns.columns, None, first, stop):
            yield block.values
    except MalformedInput:
        raise _changed(table.path) from None


def _csv(
    table: CsvTable, columns: ColumnMap, first: int, stop: int, places: np.ndarray
) -> Iterator[np.ndarray]:
    """Rows counted from the first of `places`."""
    parser = table.parser(columns.columns)
    with opened(table.path) as file:
        for mark in range(first // EVERY, -(-stop // EVERY)):
            place = int(places[mark])
            file.seek(place)
            size = int(places[mark + 1]) - place if mark + 1 < len(places) else -1
            data = file.read(size).rstrip(b"\r\n") + NEWLINE
            if size < 0:  # a last line without an end was left out when the file was scanned
                data = NEWLINE.join(data.split(NEWLINE)[: stop - mark * EVERY]) + NEWLINE
            try:
                values = parser.parse(data, place).values
            except MalformedInput:
                raise _changed(table.path) from None
            low, high = max(first - mark * EVERY, 0), min(stop - mark * EVERY, EVERY)
            if len(values) < high:
                raise _changed(table.path)
            yield values[low:high]


def _changed(path: Path) -> StorageError:
    return StorageError(
        f"{label(path)} is not the file it was when its rows were counted; wait until its recording"
        " has ended, or read a copy"
    )


# -- spools ----------------------------------------------------------------------------------------


def spool_file(folder: str, item: Item, columns: ColumnMap, reading: Reading) -> Path:
    """Return where the rows of a file are spooled while it stays as it is."""
    name = fingerprint(item.place, item.state(), columns.columns, reading.key)
    return Path(folder) / f"{name}.rows"


class SpooledTable(Table):
    """A table whose rows are spooled as they are read."""

    def __init__(self, table: Table, file: BinaryIO) -> None:
        self._table, self._file = table, file
        self.path, self.names, self.widths = table.path, table.names, table.widths
        self.files, self.states = table.files, table.states
        self.hashes_itself, self.notes = table.hashes_itself, table.notes
        self.sha256 = table.sha256
        self.failed = False

    def blocks(self, columns: Sequence[str], run_column: str | None) -> Iterator[Block]:
        """Yield the table's blocks."""
        for block in self._table.blocks(columns, run_column):
            if not self.failed:
                try:
                    self._file.write(np.ascontiguousarray(block.values, dtype="<f8").tobytes())
                except OSError:
                    self.failed = True
            yield block
        self.sha256, self.notes = self._table.sha256, self._table.notes
        self.skipped = self._table.skipped

    def read(
        self, columns: Sequence[str], run_column: str | None, *, first: bool
    ) -> Iterator[Block]:
        """Yield the table's blocks."""
        return self._table.stream(columns, run_column, first=first)

    def where(self, row: int) -> str:
        """Return the place of a row as the table counts."""
        return self._table.where(row)


@contextmanager
def spooling(table: Table, path: Path) -> Iterator[Table]:
    """``with spooling(table, path) as table: …`` read all of it inside.

    The rows are at `path` afterwards, unless the disk is full.
    """
    stack = ExitStack()
    try:
        scratch = stack.enter_context(replacing(path, folders=True))
        file = stack.enter_context(scratch.open("wb", buffering=DOUBLE * PIECE))
    except OSError:
        stack.close()
        yield table
        return
    spooled = SpooledTable(table, file)
    try:
        yield spooled
    except BaseException as error:
        stack.__exit__(type(error), error, error.__traceback__)  # nothing of it stays
        raise
    over = RuntimeError() if spooled.failed else None
    with suppress(OSError):
        stack.__exit__(type(over) if over else None, over, None)
        evict(path.parent.glob("*.rows"), SPOOL_BYTES, keep=path)


def _is_whole(path: Path, numbers: int) -> bool:
    try:
        return path.stat().st_size == DOUBLE * numbers
    except OSError:
        return False


def _spooled_rows(path: Path, width: int, first: int, stop: int) -> Iterator[np.ndarray]:
    with path.open("rb") as file:
        file.seek(DOUBLE * width * first)
        for start in range(first, stop, PIECE):
            count = min(PIECE, stop - start)
            values = np.frombuffer(file.read(DOUBLE * width * count), dtype="<f8")
            yield values.reshape(count, width)
