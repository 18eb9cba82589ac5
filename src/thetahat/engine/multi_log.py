"""Many scanned files as one log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from thetahat.data.columns import ColumnMap
from thetahat.data.formats import Block, Table
from thetahat.data.formats.table import SkippedRows, State
from thetahat.data.log import Log, scanned_log
from thetahat.data.reading import Reading
from thetahat.data.scan import FileScan, merge_scans
from thetahat.data.types import Source
from thetahat.engine.fingerprint import fingerprint
from thetahat.engine.row_reader import FileRows
from thetahat.engine.sources import Item
from thetahat.errors import MalformedInput, ThetahatError, known
from thetahat.model.robot import Robot

Span = tuple[int, int] | None  # first row of a log and one past the last; None: all rows


@dataclass(frozen=True)
class Failure:
    """A file or a shard that was left out, and why."""

    name: str
    sentence: str
    exit_code: int

    @staticmethod
    def of(name: str, error: ThetahatError) -> Failure:
        """Return the failure of an error."""
        return Failure(name, str(error), error.exit_code)

    def error(self, sentence: str) -> ThetahatError:
        """Return an error with its exit code."""
        kinds = {kind.exit_code: kind for kind in reversed(ThetahatError.__subclasses__())}
        return kinds.get(self.exit_code, MalformedInput)(sentence)


@dataclass(frozen=True, eq=False)
class ScannedFile:
    """A file's scan, and how its rows are found again."""

    scan: FileScan  # sources with paths as the scanning worker saw them
    states: tuple[State, ...]
    notes: tuple[tuple[str, str], ...]
    divisible: bool  # whether its rows can be read from the middle
    places: np.ndarray  # of lines, in a CSV file
    left_out: np.ndarray  # rows of the file that were skipped

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return self.scan.rows

    @property
    def columns(self) -> ColumnMap:
        """The columns that are read."""
        return self.scan.columns

    @property
    def digest(self) -> str:
        """The file's SHA-256, or a hash of those of all files of a bag."""
        return joint_digest([source.sha256 for source in self.scan.sources])


def joint_digest(hashes: list[str]) -> str:
    """Return the hash of a file, or one of those of all files of a bag."""
    return hashes[0] if len(hashes) == 1 else fingerprint(hashes)


@dataclass(frozen=True, eq=False)
class Entry:
    """A scanned file and its place in the log."""

    item: Item
    file: ScannedFile
    first_row: int  # of the log

    @property
    def stop_row(self) -> int:
        """One past its last row."""
        return self.first_row + self.file.rows

    @property
    def scan(self) -> FileScan:
        """Its scan under the name its owner gave it; files of a bag keep their own names."""
        sources = self.file.scan.sources
        if len(sources) == 1:
            sources = (replace(sources[0], path=self.item.given),)
        return replace(self.file.scan, name=self.item.stem, sources=sources)


@dataclass(frozen=True, eq=False)
class MultiLog:
    """All files of a log, and the log they make together."""

    robot: Robot
    reading: Reading
    entries: tuple[Entry, ...]
    log: Log
    failures: tuple[Failure, ...]
    # places of files, and of shards (`Shard.place`), that were scanned and are used no longer
    left_out: frozenset[str] = frozenset()

    @property
    def used(self) -> tuple[Entry, ...]:
        """The files that are still used."""
        return tuple(entry for entry in self.entries if entry.item.place not in self.left_out)

    @property
    def sources(self) -> tuple[Source, ...]:
        """Of the files that are still used."""
        return tuple(source for entry in self.used for source in entry.scan.sources)

    def without(self, places: Iterable[str]) -> MultiLog:
        """Return the same log, rows counted as before, without these files and shards."""
        return replace(self, left_out=self.left_out | frozenset(places))

    def rows_of(self, entry: Entry) -> FileRows:
        """Return the reader of a file's rows."""
        return file_rows(entry.item, entry.file, self.reading, self.robot)


def file_rows(item: Item, file: ScannedFile, reading: Reading, robot: Robot) -> FileRows:
    """Return the reader of a scanned file's rows."""
    joints = robot.joint_names
    return FileRows(item, reading, file.columns, file.states, file.rows, joints, file.places)


class ScannedTable(Table):
    """A scanned file as a table: opened when its rows are asked for, held to be the same."""

    hashes_itself = True

    def __init__(self, entry: Entry, rows: FileRows) -> None:
        file = entry.file
        self._rows = rows
        self.path, self.widths, self.names = Path(entry.item.given), {}, file.columns.columns
        self.files = tuple(Path(source.path) for source in file.scan.sources)
        self.states, self.notes = file.states, file.notes
        self.skipped = SkippedRows.at(file.left_out) if len(file.left_out) else None
        self.sha256 = tuple(source.sha256 for source in file.scan.sources)

    @property
    def _table(self) -> Table:
        table = self._rows.table
        table.sha256, table.skipped = self.sha256, self.skipped
        return table

    def blocks(self, columns: Sequence[str], run_column: str | None) -> Iterator[Block]:
        """Yield its rows."""
        yield from self._table.blocks(columns, run_column)

    def read(
        self, columns: Sequence[str], run_column: str | None, *, first: bool
    ) -> Iterator[Block]:
        """Yield its rows."""
        yield from self._table.stream(columns, run_column, first=first)

    def where(self, row: int) -> str:
        """Return the place of a row as its format counts."""
        return self._table.where(row)


def merge_files(
    robot: Robot, reading: Reading, files: Sequence[tuple[Item, ScannedFile | Failure]]
) -> MultiLog:
    """Merge the scans of the files that go together into one log.

    Those that cannot be read, or bring other columns than most, are left out and named.
    """
    failures = [file for _, file in files if isinstance(file, Failure)]
    good = [(item, file) for item, file in files if isinstance(file, ScannedFile)]
    if not good:
        raise refused(failures)
    common = Counter(_columns(file) for _, file in good).most_common(1)[0][0]
    model = next(each for each in good if _columns(each[1]) == common)
    entries: list[Entry] = []
    for item, file in good:
        if _columns(file) != common:
            failures.append(
                Failure(item.name, _difference(item, file, model), MalformedInput.exit_code)
            )
            continue
        entries.append(Entry(item, file, entries[-1].stop_row if entries else 0))
    tables: list[Table] = [
        ScannedTable(each, file_rows(each.item, each.file, reading, robot)) for each in entries
    ]
    scan = merge_scans(
        robot,
        [(table, each.scan) for table, each in zip(tables, entries, strict=True)],
        reading.keep,
    )
    columns = [(table, each.file.columns) for table, each in zip(tables, entries, strict=True)]
    return MultiLog(
        robot, reading, tuple(entries), scanned_log(robot, columns, scan), tuple(failures)
    )


def _columns(file: ScannedFile) -> frozenset[tuple[str, int]]:
    return frozenset((kind, at) for kind, at, _ in file.columns.place)


def _difference(item: Item, file: ScannedFile, other: tuple[Item, ScannedFile]) -> str:
    mine, theirs = (
        {(kind, at): column for kind, at, column in each.columns.place} for each in (file, other[1])
    )
    only = sorted(mine.get(key) or theirs[key] for key in mine.keys() ^ theirs.keys())
    return (
        f"{item.name} and {other[0].name} bring different columns ({known(only)} in one alone); "
        "it seems to be of another robot or recorder, so identify from it apart"
    )


def refused(failures: Sequence[Failure]) -> ThetahatError:
    """Return the error where no file is left: that of the first."""
    first = failures[0]
    rest = f" (and {len(failures) - 1} more logs cannot be used)" if len(failures) > 1 else ""
    return first.error(first.sentence + rest)
