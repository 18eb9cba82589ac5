"""Rows first … stop of a log file without reading those before: Parquet by its row groups, CSV by
the places of its lines.

Every number was checked when the file was surveyed (survey.py), and the file is held to be that one
by its state. Other formats have no such access and are read from their beginning, so they are cut
into shards file by file.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from thetahat.data.columns import ColumnMap
from thetahat.data.formats import Table
from thetahat.data.formats.csv import CsvTable
from thetahat.data.formats.parquet import ParquetTable
from thetahat.data.formats.table import label, opened
from thetahat.errors import StorageError

EVERY = 8_192  # rows between two places of a CSV file that are kept
BLOCK = 4 * 2**20  # bytes
SLICE_CELLS = 1_000_000  # numbers of a Parquet slice: 8 MB
NEWLINE = b"\n"


def divisible(table: Table) -> bool:
    """Whether rows in its middle can be read without those before."""
    return isinstance(table, ParquetTable | CsvTable)


def line_places(table: Table) -> np.ndarray:
    """Where in a CSV file the rows 0, `EVERY`, 2·`EVERY`, … begin, [bytes]; none of other
    formats.
    """
    if not isinstance(table, CsvTable):
        return np.zeros(0, dtype=np.int64)
    places, line, at = [], 0, 0  # line 0 is the header
    with opened(table.path) as file:
        while data := file.read(BLOCK):
            ends = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == NEWLINE[0])
            first = -line % EVERY  # the end of line k·EVERY is followed by row k·EVERY
            places.append(at + ends[first::EVERY] + 1)
            line, at = line + len(ends), at + len(data)
    return np.concatenate(places) if places else np.zeros(0, dtype=np.int64)


def read_rows(
    table: Table, columns: ColumnMap, first: int, stop: int, *, places: np.ndarray, origin: int = 0
) -> Iterator[np.ndarray]:
    """The rows first … stop of the map's columns, (·, columns) in pieces, in order; `places` are
    those of lines from row `origin` on.
    """
    if isinstance(table, ParquetTable):
        yield from _parquet(table, columns, first, stop)
    elif isinstance(table, CsvTable) and len(places):
        yield from _csv(table, columns, first - origin, stop - origin, places)
    else:
        at = 0
        for block in table.read(columns.columns, None, first=False):
            low, high = max(first - at, 0), min(stop - at, len(block))
            if low < high:
                yield block.values[low:high]
            at += len(block)
            if at >= stop:
                return


def _parquet(
    table: ParquetTable, columns: ColumnMap, first: int, stop: int
) -> Iterator[np.ndarray]:
    import polars

    wanted = [polars.col(name).cast(polars.Float64) for name in columns.columns]
    step = max(1, SLICE_CELLS // len(wanted))
    frame = polars.scan_parquet(table.path, glob=False)
    for start in range(first, stop, step):
        count = min(step, stop - start)
        try:
            values = frame.slice(start, count).select(wanted).collect().to_numpy()
        except (
            polars.exceptions.PolarsError,
            polars.exceptions.PanicException,
            OSError,
            ValueError,
        ):
            raise _other(table.path) from None
        if len(values) != count:
            raise _other(table.path)
        yield values


def _csv(
    table: CsvTable, columns: ColumnMap, first: int, stop: int, places: np.ndarray
) -> Iterator[np.ndarray]:
    """Rows counted from the first of `places`."""
    import polars

    positions = [table.names.index(name) for name in columns.columns]
    schema = {
        f"column_{i + 1}": polars.Float64 if i in set(positions) else polars.String
        for i in range(len(table.names))
    }
    wanted = [f"column_{i + 1}" for i in positions]
    with opened(table.path) as file:
        for mark in range(first // EVERY, -(-stop // EVERY)):
            file.seek(int(places[mark]))
            size = int(places[mark + 1] - places[mark]) if mark + 1 < len(places) else -1
            data = file.read(size).rstrip(b"\r\n") + NEWLINE
            if size < 0:  # a last line without an end was left out when the file was surveyed
                data = NEWLINE.join(data.split(NEWLINE)[: stop - mark * EVERY]) + NEWLINE
            try:
                values = polars.read_csv(
                    data,
                    has_header=False,
                    schema=schema,
                    columns=sorted(set(wanted), key=list(schema).index),
                )
                values = values.select(wanted).to_numpy()
            except polars.exceptions.PolarsError:
                values = _slowly(table, data, positions)
            low, high = max(first - mark * EVERY, 0), min(stop - mark * EVERY, EVERY)
            if len(values) < high or not np.isfinite(values).all():
                raise _other(table.path)
            yield values[low:high]


def _slowly(table: CsvTable, data: bytes, positions: list[int]) -> np.ndarray:
    """Cells that polars dislikes but a careful reader took for numbers when the file was surveyed:
    with spaces around them.
    """
    try:
        return np.array(
            [
                [float(row[at]) for at in positions]
                for row in csv.reader(data.decode("utf-8").splitlines())
            ]
        )
    except (ValueError, IndexError, csv.Error):
        raise _other(table.path) from None


def _other(path: Path) -> StorageError:
    return StorageError(
        f"{label(path)} is not the file it was when its rows were counted; wait until its recording"
        " has ended, or read a copy"
    )
