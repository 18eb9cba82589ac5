"""Parquet, read in slices of rows whatever the size of its row groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from thetahat.data.formats.table import Block, Table, check_names, label, opened, shown
from thetahat.errors import MalformedInput, RefusedForSafety

if TYPE_CHECKING:
    import polars

SLICE_CELLS = 1_000_000  # numbers in a slice: 8 MB; larger ones take more memory and no less time
# numbers unpack to at most so many times the file's size; a constant column alone may do more
MAX_RATIO = 500
FREE_BYTES = 64 * 2**20  # below this nobody minds the ratio


class ParquetTable(Table):
    """A Parquet file. Its footer is read when it is opened."""

    def __init__(self, path: Path) -> None:
        import polars

        super().__init__(path)
        self._polars = polars
        with opened(path) as file:
            head = file.read(4)
            file.seek(max(0, self.states[0].size - 4))
            tail = file.read(4)
        if not head:
            raise MalformedInput(f"{label(path)} is empty; give a log with rows of numbers")
        if head != b"PAR1":
            raise MalformedInput(
                f"{label(path)} is not a Parquet file (it begins with {head!r}); check what"
                " wrote it"
            )
        if tail != b"PAR1":
            raise MalformedInput(
                f"{label(path)} has no Parquet footer at its end; it was cut off, so copy or export"
                " it again"
            )
        try:
            self._frame = polars.scan_parquet(path, glob=False)
            self._schema = dict(self._frame.collect_schema())
            self.rows = int(self._frame.select(polars.len()).collect().item())
        except (
            polars.exceptions.PolarsError,
            polars.exceptions.PanicException,
            OSError,
            ValueError,
        ) as error:
            raise self._damaged(error) from None
        self.names = tuple(self._schema)
        check_names(path, self.names)
        unpacked = 8 * self.rows * len(self.names)
        if unpacked > FREE_BYTES and unpacked > MAX_RATIO * self.states[0].size:
            raise RefusedForSafety(
                f"{label(path)} has {self.states[0].size} bytes but unpacks to {unpacked}; no log"
                " of a moving robot does, so write its numbers out"
            )

    def where(self, row: int) -> str:
        """Return the number of a row."""
        return f"row {row} (counting from 0)"

    def read(
        self, columns: Sequence[str], run_column: str | None, *, first: bool
    ) -> Iterator[Block]:
        """Return slices of `SLICE_CELLS` numbers."""
        self._check_types(columns)
        polars = self._polars
        wanted = [polars.col(name).cast(polars.Float64) for name in columns]
        if run_column is not None:
            wanted.append(polars.col(run_column).cast(polars.String).alias("\0run"))
        step = max(1, SLICE_CELLS // len(wanted))
        for start in range(0, self.rows, step):
            try:
                frame = self._frame.slice(start, step).select(wanted).collect()
            except (
                polars.exceptions.PolarsError,
                polars.exceptions.PanicException,
                OSError,
                ValueError,
            ) as error:
                raise self._damaged(error) from None
            if len(frame) != min(step, self.rows - start):
                raise MalformedInput(
                    f"{label(self.path)} holds fewer rows than its footer says ({self.rows}); it"
                    " was damaged, so export it again"
                )
            values = frame.select(columns).to_numpy()
            self._check_missing(frame, columns, start)
            labels: tuple[tuple[int, str], ...] = ()
            if run_column is not None:
                names = frame["\0run"]
                starts = np.flatnonzero(np.diff(names.rle_id().to_numpy(), prepend=-1))
                labels = tuple((int(row), str(names[int(row)] or "")) for row in starts)
            yield Block(self.check_finite(values, columns, start), labels)

    def _check_missing(self, frame: polars.DataFrame, columns: Sequence[str], start: int) -> None:
        for name in columns:
            column = frame[name]
            if column.null_count():
                row = int(np.argmax(column.is_null().to_numpy()))
                raise self.problem(
                    start + row, f"column {shown(name)} is null; fill in a number or remove the row"
                )

    def _check_types(self, columns: Sequence[str]) -> None:
        for name in columns:
            kind = self._schema[name]
            if not kind.is_numeric():
                hint = "store seconds as numbers" if kind.is_temporal() else "store numbers"
                raise MalformedInput(
                    f"{label(self.path)}: column {shown(name)} is of type {kind}, not a number;"
                    f" {hint}"
                )

    def _damaged(self, error: Exception) -> MalformedInput:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        return MalformedInput(
            f"{label(self.path)} cannot be read as Parquet ({shown(reason, 90)}); copy or export it"
            " again"
        )
