"""Columnar files that polars scans: read in slices of rows, whatever the size of their batches.

A column of lists of k numbers `q` stands for columns q1 … qk, as a 2-D array does. Datetimes are
seconds since 1970.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from thetahat.data.formats.date_stamps import nanoseconds_to_seconds
from thetahat.data.formats.native_stderr import quiet_panics
from thetahat.data.formats.table import MAX_COLUMNS, Block, Table, check_names, label, shown
from thetahat.errors import MalformedInput, RefusedForSafety

if TYPE_CHECKING:
    import polars

SLICE_CELLS = 1_000_000  # numbers in a slice: 8 MB; larger ones take more memory and no less time
# numbers unpack to at most so many times the file's size; a constant column alone may do more
MAX_RATIO = 500
FREE_BYTES = 64 * 2**20  # below this nobody minds the ratio
_RUN = "\0run"


class ColumnarTable(Table):
    """A file that polars scans lazily. Its schema is read when it is opened."""

    kind = "columnar"  # of file, in messages

    def __init__(self, path: Path) -> None:
        import polars

        super().__init__(path)
        self._errors = (
            polars.exceptions.PolarsError,
            polars.exceptions.PanicException,
            OSError,
            ValueError,
        )
        try:
            with quiet_panics():
                self._frame = self.scan()
                self._schema = dict(self._frame.collect_schema())
                self.rows = int(self._frame.select(polars.len()).collect().item())
                self.widths = {
                    name: self._width(name, kind)
                    for name, kind in self._schema.items()
                    if isinstance(kind, polars.List | polars.Array)
                }
        except self._errors as error:
            raise self._damaged(error) from None
        # name of a column of the table → column of the file, place in its lists
        self._place: dict[str, tuple[str, int | None]] = {}
        names: list[str] = []
        for name in self._schema:
            width = self.widths.get(name, 0)
            parts = [f"{name}{k + 1}" for k in range(width)] if width != 1 else [name]
            names += parts or [name]
            if not parts:
                self._place[name] = (name, None)
            self._place |= {part: (name, k) for k, part in enumerate(parts)}
        self.names = tuple(names)
        temporal = (polars.Datetime, polars.Duration)
        self.dates = frozenset(
            name for name, kind in self._schema.items() if isinstance(kind, temporal)
        )
        check_names(path, self.names)
        unpacked = 8 * self.rows * len(self.names)
        if unpacked > FREE_BYTES and unpacked > MAX_RATIO * self.states[0].size:
            raise RefusedForSafety(
                f"{label(path)} has {self.states[0].size} bytes but unpacks to {unpacked}; no log"
                " of a moving robot does, so write its numbers out"
            )

    @abstractmethod
    def scan(self) -> polars.LazyFrame:
        """Return the file as polars scans it."""

    def _width(self, name: str, kind: polars.DataType) -> int:
        """Return how many numbers the lists of a column have, by its first row; 0 for lists of
        other things.
        """
        import polars

        inner = getattr(kind, "inner", None)
        if not self.rows or not isinstance(kind, polars.List | polars.Array):
            return 0
        if inner is None or not inner.is_numeric():
            return 0
        if isinstance(kind, polars.Array):
            return min(int(kind.size), MAX_COLUMNS + 1)
        first = self._frame.select(polars.col(name).list.len()).head(1).collect().item()
        return min(int(first or 0), MAX_COLUMNS + 1)

    # -- rows --------------------------------------------------------------------------------------

    def read(
        self, columns: Sequence[str], run_column: str | None, *, first: bool
    ) -> Iterator[Block]:
        """Return slices of `SLICE_CELLS` numbers."""
        return self.slices(columns, run_column, 0, self.rows)

    def slices(
        self, columns: Sequence[str], run_column: str | None, start: int, stop: int
    ) -> Iterator[Block]:
        """Return the rows start … stop in slices of `SLICE_CELLS` numbers."""
        import polars

        wanted = [self._expression(name).alias(name) for name in columns]
        lists = {self._place[name][0] for name in columns if self._place[name][1] is not None}
        wanted += [_length(name, self._schema[name]).alias(f"\0{name}") for name in lists]
        if run_column is not None:
            source = self._expression(run_column, numeric=False)
            wanted.append(source.cast(polars.String).alias(_RUN))
        step = max(1, SLICE_CELLS // len(wanted))
        for first in range(start, stop, step):
            count = min(step, stop - first)
            try:
                with quiet_panics():
                    frame = self._frame.slice(first, count).select(wanted).collect()
            except self._errors as error:
                raise self._damaged(error) from None
            if len(frame) != count:
                raise MalformedInput(
                    f"{label(self.path)} holds fewer rows than its footer says ({self.rows}); it"
                    " was damaged, so export it again"
                )
            self._check_lengths(frame, lists, first)
            if not self.skips:
                self._check_missing(frame, columns, first)
            labels: tuple[tuple[int, str], ...] = ()
            if run_column is not None:
                names = frame[_RUN]
                starts = np.flatnonzero(np.diff(names.rle_id().to_numpy(), prepend=-1))
                labels = tuple((int(row), str(names[int(row)] or "")) for row in starts)
            yield Block(self.check_finite(self._numbers(frame, columns), columns, first), labels)

    def _expression(self, name: str, *, numeric: bool = True) -> polars.Expr:
        """Return the expression of a column: numbers, or nanoseconds of a datetime."""
        import polars

        source, at = self._place[name]
        column, kind = polars.col(source), self._schema[source]
        if at is not None:
            array = isinstance(kind, polars.Array)
            part = column.arr.get(at) if array else column.list.get(at, null_on_oob=True)
            return part.cast(polars.Float64)
        if not numeric:
            return column
        if isinstance(kind, polars.Datetime):
            return column.dt.epoch("ns")
        if isinstance(kind, polars.Duration):
            return column.dt.total_nanoseconds()
        if not kind.is_numeric():
            hint = "store seconds as numbers" if kind.is_temporal() else "store numbers"
            raise MalformedInput(
                f"{label(self.path)}: column {shown(name)} is of type {kind}, not a number; {hint}"
            )
        return column.cast(polars.Float64)

    def _numbers(self, frame: polars.DataFrame, columns: Sequence[str]) -> np.ndarray:
        """Return the columns as numbers, datetimes in seconds."""
        dates = [name for name in columns if name in self.dates]
        if not dates:
            out: np.ndarray = frame.select(columns).to_numpy()
            return out
        return np.column_stack(
            [
                nanoseconds_to_seconds(frame[name]) if name in dates else frame[name].to_numpy()
                for name in columns
            ]
        )

    def _check_lengths(self, frame: polars.DataFrame, lists: set[str], start: int) -> None:
        for name in lists:
            lengths = frame[f"\0{name}"].fill_null(0).to_numpy()
            wrong = lengths != self.widths[name]
            if wrong.any() and not self.skips:
                row = int(np.argmax(wrong))
                raise MalformedInput(
                    f"{label(self.path)}, {self.place(start + row)}: column {shown(name)} has"
                    f" {lengths[row]} numbers where the first row has"
                    f" {self.widths[name]}; every row needs as many"
                )

    def _check_missing(self, frame: polars.DataFrame, columns: Sequence[str], start: int) -> None:
        for name in columns:
            column = frame[name]
            if column.null_count():
                row = int(np.argmax(column.is_null().to_numpy()))
                raise MalformedInput(
                    f"{label(self.path)}, {self.place(start + row)}: column {shown(name)} is null;"
                    " fill in a number or remove the row"
                )

    def _damaged(self, error: Exception) -> MalformedInput:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        return MalformedInput(
            f"{label(self.path)} cannot be read as {self.kind} ({shown(reason, 90)}); copy or"
            " export it again"
        )


def _length(name: str, kind: polars.DataType) -> polars.Expr:
    import polars

    if isinstance(kind, polars.Array):
        return polars.lit(kind.size)
    return polars.col(name).list.len()
