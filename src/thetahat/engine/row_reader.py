"""The rows of a surveyed file, from wherever they are read quickest: the file itself where it can
be entered in the middle, else its spool.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from thetahat.data.columns import ColumnMap
from thetahat.data.formats import Table, open_table
from thetahat.data.formats.table import State
from thetahat.engine.file_scan import FileSurvey, Reading
from thetahat.engine.row_cache import spool_file, spooled_rows, spooling
from thetahat.engine.seek import read_rows
from thetahat.engine.sources import Item
from thetahat.errors import StorageError, ThetahatError

ENTERED = (".parquet", ".pq", ".csv", ".txt")  # endings of files that can be read from the middle


@dataclass(frozen=True, eq=False)
class FileRows:
    """A file, held to be the one that was surveyed."""

    item: Item
    reading: Reading
    columns: ColumnMap
    states: tuple[State, ...]
    rows: int  # in all
    joints: tuple[str, ...]  # of the robot: which messages of a bag are meant
    places: np.ndarray  # of lines in a CSV file, from the one of row `origin`
    origin: int = 0

    @staticmethod
    def of(item: Item, survey: FileSurvey, reading: Reading, joints: tuple[str, ...]) -> FileRows:
        """Of a file whose survey is at hand."""
        return FileRows(
            item, reading, survey.columns, survey.states, survey.rows, joints, survey.places
        )

    @cached_property
    def table(self) -> Table:
        """The file, open; `StorageError` where it has changed since."""
        table = open_table(
            self.item.local(),
            joints=self.joints,
            topic=self.reading.topic,
            salvage=self.reading.salvage,
        )
        marks = [
            [state.size if self.item.remote else (state.size, state.modified) for state in states]
            for states in (table.states, self.states)
        ]
        if marks[0] != marks[1]:
            raise StorageError(
                f"{self.item.name} changed after it was surveyed; wait until its recording has"
                " ended, or read a copy"
            )
        return table

    @property
    def entered(self) -> bool:
        """Whether its own format lets a reader begin in the middle."""
        return self.item.suffix in ENTERED

    def read(self, first: int, stop: int) -> Iterator[np.ndarray]:
        """The rows first … stop of the survey's columns, in pieces."""
        try:
            found = None if self.entered else self._spooled(first, stop)
            yield from found or read_rows(
                self.table, self.columns, first, stop, places=self.places, origin=self.origin
            )
        except OSError as error:
            if isinstance(error, ThetahatError):
                raise
            raise StorageError(
                f"{self.item.name} cannot be read ({error.strerror or error}); check its disk"
            ) from None

    def several(self, spans: list[tuple[int, int]]) -> Iterator[tuple[int, np.ndarray]]:
        """(first row, rows) of pieces that make up these spans, in order; what cannot be entered is
        read once for all of them.
        """
        if self.entered or self._spooled(0, 0) is not None:
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
        """The rows as they were set aside; where a part is asked for and they no longer are, they
        are set aside again.
        """
        if self.reading.spool is None:
            return None
        path = spool_file(self.reading.spool, self.item, self.columns, self.reading.plain)
        size = len(self.columns.columns), self.rows
        found = spooled_rows(path, *size, first, stop)
        if found is None and (first, stop) != (0, self.rows):
            with spooling(self.table, path) as table:
                for _ in table.blocks(self.columns.columns, None):
                    pass
            found = spooled_rows(path, *size, first, stop)
        return found
