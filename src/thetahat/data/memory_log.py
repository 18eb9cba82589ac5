"""Logs of data in memory: a pandas or polars frame, a mapping of arrays, a simulated recording.

They are read by the same column rules and audited in the same way as files, and can be streamed
any number of times.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cached_property
from numbers import Real
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeGuard

import numpy as np

from thetahat.data.columns import ColumnMap
from thetahat.data.finding_kinds import kept_reasons
from thetahat.data.formats import Block, Table
from thetahat.data.formats.date_stamps import seconds_of_text
from thetahat.data.formats.table import (
    State,
    check_names,
    common_length,
    label,
    labels_of,
    shown,
)
from thetahat.data.log import Log, scan_tables
from thetahat.data.reading import Reading, column_map
from thetahat.data.units import ScaledUnits
from thetahat.errors import MalformedInput, UsageError
from thetahat.model.robot import Robot


class PandasFrame(Protocol):
    """The part of a pandas DataFrame that is used here; a mapping of arrays has it too."""

    def items(self) -> Iterable[tuple[Any, Any]]:
        """Return pairs of a column's name and its values."""


class PolarsFrame(Protocol):
    """The part of a polars DataFrame that is used here."""

    def iter_columns(self) -> Iterator[Any]:
        """Return the columns as series with a name."""


TableLike = PandasFrame | PolarsFrame | Mapping[str, Any]


class ArrayTable(Table):
    """Named columns of numbers in memory, and the run each row belongs to."""

    hashes_itself = True

    def __init__(
        self,
        name: str,
        names: Sequence[str],
        values: np.ndarray,
        labels: tuple[tuple[int, str], ...] = (),
        *,
        lenient: bool = False,
    ) -> None:
        """lenient: rows that are not finite are skipped."""
        self.skip_bad_rows = lenient
        self.path, self.widths, self.names = Path(name), {}, tuple(names)
        check_names(self.path, self.names)
        self._values = self.check_finite(np.ascontiguousarray(values, dtype=float), names, 0)
        self._labels = labels
        self.files = (self.path,)
        self.states = (State(values.nbytes, 0, 0),)
        digest = hashlib.sha256(repr((self.names, labels)).encode())
        digest.update(self._values.data)
        self.sha256 = (digest.hexdigest(),)

    def blocks(self, columns: Sequence[str], run_column: str | None) -> Iterator[Block]:
        """Return all rows as one block; there is no file that could change meanwhile."""
        yield from self.stream(columns, run_column, first=False)

    def read(
        self, columns: Sequence[str], run_column: str | None, *, first: bool
    ) -> Iterator[Block]:
        """Return all rows as one block."""
        values = self._values
        if tuple(columns) != self.names:
            values = values[:, [self.names.index(column) for column in columns]]
        yield Block(values, self._labels if run_column else ())


def _where(row: int) -> str:
    return f"row {row} (counting from 0)"


# -- frames and mappings ---------------------------------------------------------------------------


def is_table(value: object) -> TypeGuard[TableLike]:
    """Return whether `log_from_table` takes this: a frame or a mapping of arrays."""
    return isinstance(value, Mapping) or _frame_library(value) is not None


def log_from_table(
    table: TableLike,
    robot: Robot,
    *,
    columns: str | Mapping[str, str] | None = None,
    units: str | Mapping[str, str] | ScaledUnits | None = None,
    skip_bad_rows: bool = False,
    name: str = "the table",
    keep: str | Sequence[str] = (),
) -> Log:
    """Make a log of a pandas or polars frame, or of a mapping of arrays by column name.

    Args:
        table: columns `t`, `q.<joint>`, `tau.<joint>` …, by the same rules as in files; a column
            `seg` tells runs apart. A two-dimensional array `q` stands for q1 … qk. Values are
            copied.
        robot: whose joints the columns are of.
        columns: names that differ from the rules, as ``"q={joint}_pos,tau={joint}_eff"``.
        units: of columns that are not in SI units, as ``"q=deg,t=ms,tau=mNm"``.
        skip_bad_rows: leave out rows with cells that are no finite numbers.
        name: what error messages and findings call the table.
        keep: what the audit would leave out but must not, as `read_log` has it.

    """
    if not isinstance(robot, Robot):
        raise UsageError(
            f"robot is {type(robot).__name__}; give a Robot, as thetahat.load returns it"
        )
    reading = Reading(columns, units=units, skip_bad_rows=skip_bad_rows)
    cells = _Cells(table, name, lenient=skip_bad_rows)
    found = column_map(cells, robot, reading, file=cells.name)
    return scan_tables(robot, [(cells.table(found), found)], kept_reasons(keep))


class _Cells:
    """The columns of a frame or mapping, before they are known to be numbers."""

    headerless = False

    def __init__(self, table: TableLike, name: str, *, lenient: bool) -> None:
        path = Path(name)
        self.name, self._lenient = label(path), lenient
        items = _columns_of(table)
        check_names(path, [column for column, _ in items])
        arrays = {column: self._array(column, values) for column, values in items}
        arrays = {column: array for column, array in arrays.items() if array.ndim in (1, 2)}
        rows = common_length(path, {column: len(array) for column, array in arrays.items()})
        arrays = {column: array for column, array in arrays.items() if len(array) == rows}
        self.widths = {column: array.shape[1] for column, array in arrays.items() if array.ndim > 1}
        expanded = [
            (column if array.ndim == 1 else f"{column}{k + 1}", values)
            for column, array in arrays.items()
            for k, values in enumerate(np.atleast_2d(array.T))
        ]
        check_names(path, [column for column, _ in expanded])
        self._columns = dict(expanded)
        self.names = tuple(self._columns)

    @cached_property
    def dates(self) -> frozenset[str]:
        """Return the columns whose first cell is a date."""
        return frozenset(
            name for name, cells in self._columns.items() if len(cells) and _is_date(cells[0])
        )

    def head(self, column: str, count: int) -> np.ndarray:
        """Return the first numbers of a column."""
        return self._numbers(column, count)

    def table(self, columns: ColumnMap) -> ArrayTable:
        """Return the columns of the map as numbers, and the runs' names."""
        kept = (*columns.columns, *self._commanded(columns))
        values = [self._numbers(column) for column in kept]
        names = () if columns.run is None else self._columns[columns.run].tolist()
        labels = labels_of([_run_name(cell) for cell in names])
        return ArrayTable(self.name, kept, np.column_stack(values), labels, lenient=self._lenient)

    def _commanded(self, columns: ColumnMap) -> list[str]:
        """Return the columns of commanded positions and of what drives read, as far as they are
        finite numbers.
        """
        return [
            name
            for name in columns.ignored
            if name.startswith(("cmd", "cur.", "pwm."))
            and self._columns[name].dtype.kind in "fiu"
            and np.isfinite(self._columns[name]).all()
        ]

    def _array(self, column: str, values: Any) -> np.ndarray:
        if isinstance(values, np.ma.MaskedArray):
            return np.array(values.tolist(), dtype=object)  # masked cells are None
        try:
            return np.asarray(values)
        except BaseException as error:  # polars panics are no `Exception`
            if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
                raise
            raise MalformedInput(
                f"{self.name}: column {shown(column)} cannot be read as an array"
                f" ({shown(error, 90)}); give one number per time stamp"
            ) from None

    def _numbers(self, column: str, count: int | None = None) -> np.ndarray:
        """Return a column as floating-point numbers, or name the first cell that is none; dates as
        seconds since 1970.
        """
        cells = self._columns[column][:count]
        if cells.dtype.kind in "fiub":
            with np.errstate(over="ignore"):
                return np.asarray(cells, dtype=np.float64)
        if cells.dtype.kind in "mM":
            unit = "datetime64[ns]" if cells.dtype.kind == "M" else "timedelta64[ns]"
            ticks = cells.astype(unit).astype(np.int64)
            seconds = ticks // 10**9 + 1e-9 * (ticks % 10**9)
            if np.isnat(cells).any() and not self._lenient:
                row = int(np.argmax(np.isnat(cells)))
                self._refuse(column, row, "NaT; fill in a date or remove the row")
            return np.where(np.isnat(cells), np.nan, seconds)
        return np.array([self._cell(cell, column, row) for row, cell in enumerate(cells)])

    def _cell(self, cell: object, column: str, row: int) -> float:
        try:
            return self._number(cell, column, row)
        except MalformedInput:
            if self._lenient:
                return np.nan
            raise

    def _number(self, cell: object, column: str, row: int) -> float:
        """Return a Python object as a number: a number or a date."""
        value: object = cell
        if isinstance(cell, np.ndarray) and cell.size == 1:
            value = cell.reshape(-1)[0]
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        if isinstance(value, datetime) and value.tzinfo is None:
            value = value.replace(tzinfo=UTC)
        if isinstance(value, date | np.datetime64):
            value = str(value)
        if isinstance(value, str) and column in self.dates:
            value = seconds_of_text(value)
        if not isinstance(value, Real | Decimal):
            if cell is None or str(cell) in ("<NA>", "NaT"):
                self._refuse(column, row, f"{cell}; fill in a number or remove the row")
            self._refuse(column, row, f"{shown(cell)}, not a number; repair or remove the row")
        try:
            return float(value)
        except (OverflowError, ValueError, TypeError):
            self._refuse(
                column, row, f"{shown(cell)}, more than a double can hold; repair or remove the row"
            )

    def _refuse(self, column: str, row: int, problem: str) -> NoReturn:
        raise MalformedInput(f"{self.name}, {_where(row)}: column {shown(column)} is {problem}")


def _is_date(cell: object) -> bool:
    """Return whether a cell is a date, or text of one; durations count as stamps, too."""
    if isinstance(cell, str):
        return seconds_of_text(cell) is not None
    return isinstance(cell, date | np.datetime64 | np.timedelta64)


def _frame_library(value: object) -> str | None:
    """Return "pandas" or "polars" for a frame of theirs, without importing either."""
    for kind in type(value).__mro__:
        library = kind.__module__.partition(".")[0]
        if library in ("pandas", "polars") and kind.__name__ == "DataFrame":
            return library
    return None


def _columns_of(table: Any) -> list[tuple[str, Any]]:
    """Return pairs of a column's name and its values."""
    if not is_table(table):
        raise UsageError(
            f"the table is a {type(table).__name__}; give a pandas or polars DataFrame, or a"
            " mapping of arrays by column name"
        )
    if hasattr(table, "iter_columns"):
        return [(column.name, column) for column in table.iter_columns()]
    return [(str(column), values) for column, values in table.items()]


def _run_name(cell: object) -> str:
    """Return a cell of `seg` as CSV writers write it."""
    if isinstance(cell, bytes):
        return cell.decode("utf-8", "replace")
    text = str(cell)
    return "" if not isinstance(cell, str) and text in ("None", "nan", "<NA>", "NaT") else text


# -- recordings ------------------------------------------------------------------------------------


def column_names(robot: Robot, kinds: Sequence[str]) -> list[str]:
    """Return t, then q.<joint>, dq.<joint> … for these kinds, with a suffix where a joint has
    several degrees of freedom.
    """
    names = ["t"]
    for kind in kinds:
        for node in robot.tree.independent:
            suffixes = node.kind.coordinates if kind == "q" else node.kind.directions
            names += [
                f"{kind}.{node.name}.{suffix}" if suffix else f"{kind}.{node.name}"
                for suffix in suffixes
            ]
    return names


def log_from_arrays(
    robot: Robot,
    t: np.ndarray,
    q: np.ndarray,
    *,
    dq: np.ndarray | None = None,
    ddq: np.ndarray | None = None,
    tau: np.ndarray | None = None,
    name: str = "recording",
) -> Log:
    """Make a log of arrays (n, ·) in the robot's order, with one row per time stamp."""
    given = {"q": q, "dq": dq, "ddq": ddq, "tau": tau}
    arrays = {kind: np.asarray(array) for kind, array in given.items() if array is not None}
    t = np.asarray(t)
    for kind, array in arrays.items():
        shape = (len(t), robot.nq if kind == "q" else robot.nv)
        if t.ndim != 1 or array.shape != shape:
            raise UsageError(
                f"{kind} has shape {array.shape}; expected {shape}, one row per time stamp"
            )
    values = [t, *(column for array in arrays.values() for column in array.T)]
    names = column_names(robot, list(arrays))
    return log_from_table(dict(zip(names, values, strict=True)), robot, name=name)
