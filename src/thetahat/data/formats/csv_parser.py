"""Parser of whole lines of a text table.

Fields are counted here (polars fills short rows) and parsed by polars as Float64, which is exact. A
block that polars refuses is parsed again line by line, to say where and why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from thetahat.data.formats.date_stamps import seconds_of_text, seconds_of_texts
from thetahat.data.formats.dialect import DECIMAL_COMMA, Dialect
from thetahat.data.formats.table import Block, label, labels_of, shown
from thetahat.errors import MalformedInput

if TYPE_CHECKING:
    import polars
    from polars.datatypes import DataTypeClass

_BLANKS = re.compile(rb"[ \t]+")
_EDGES = re.compile(rb"(?m)^ | (?=\r?$)")
_QUOTE, _NEWLINE = 34, 10


class CsvParser:
    """Parser of whole lines of one file."""

    def __init__(
        self,
        path: Path,
        names: Sequence[str],
        dialect: Dialect,
        *,
        columns: Sequence[str],
        run_column: str | None,
        header: bytes,
        line_at: Callable[[int], int],
        lenient: bool,
    ) -> None:
        """line_at: number of the line at a place of the file. lenient: cells that are no numbers
        become NaN instead of an error.
        """
        import polars

        self._polars, self._path, self._dialect = polars, path, dialect
        self._header, self._line_at, self._lenient = header, line_at, lenient
        self._columns, self._width = tuple(columns), len(names)
        self._positions = [list(names).index(name) for name in columns]
        self._run = None if run_column is None else list(names).index(run_column)
        self._dates = dialect.dates & set(self._positions)
        numbers = set(self._positions) - self._dates
        self._schema: dict[str, DataTypeClass] = {
            f"column_{i + 1}": polars.Float64 if i in numbers else polars.String
            for i in range(self._width)
        }
        wanted = set(self._positions) | ({self._run} if self._run is not None else set())
        self._wanted = [f"column_{i + 1}" for i in sorted(wanted)]

    def parse(self, data: bytes, start: int) -> Block:
        """Parse whole lines that begin at this place in the file."""
        if b"\0" in data:
            line = self._line_at(start + data.index(b"\0"))
            raise MalformedInput(
                f"{label(self._path)}, line {line} holds a NUL byte; the file was damaged, so"
                " copy or export it again"
            )
        lines = _with_single_blanks(data) if self._dialect.separator == " " else data
        # polars has no decimal commas between commas, that is, in quotes
        if not self._has_all_fields(lines) or self._dialect.separator == self._dialect.decimal:
            return self._parse_lines(data, start)
        try:
            frame = self._frame(lines, self._schema)
        except (self._polars.exceptions.PolarsError, self._polars.exceptions.PanicException):
            return self._parse_lines(data, start)
        values = self._values(frame)
        with np.errstate(over="ignore", invalid="ignore"):
            finite = np.isfinite(values.sum()) or np.isfinite(values).all()
        if not finite and not (self._lenient and len(values) == lines.count(b"\n")):
            return self._parse_lines(data, start)
        labels: tuple[tuple[int, str], ...] = ()
        if self._run is not None:
            names = frame[f"column_{self._run + 1}"]
            starts = np.flatnonzero(np.diff(names.rle_id().to_numpy(), prepend=-1))
            labels = tuple((int(row), str(names[int(row)] or "")) for row in starts)
        return Block(values, labels)

    def _frame(self, lines: bytes, schema: dict[str, DataTypeClass]) -> polars.DataFrame:
        """Return the cells; `PolarsError` where one is no number."""
        comma = self._dialect.decimal == ","
        frame = self._polars.read_csv(
            lines,
            has_header=False,
            schema=schema,
            columns=self._wanted,
            separator=self._dialect.separator,
            decimal_comma=comma,
        )
        # 1.234 beside decimal commas may be a thousand and more; polars takes it for a decimal
        if comma and b"." in lines and schema is self._schema:
            texts = self._frame(lines, dict.fromkeys(schema, self._polars.String))
            numbers = [name for name in texts.columns if schema[name] == self._polars.Float64]
            if any(texts[name].str.contains(".", literal=True).any() for name in numbers):
                raise self._polars.exceptions.ComputeError
        return frame

    def _values(self, frame: polars.DataFrame) -> np.ndarray:
        """Return the columns asked for, dates as seconds since 1970."""
        if not self._dates:
            out: np.ndarray = frame.select([f"column_{i + 1}" for i in self._positions]).to_numpy()
            return out
        columns = [frame[f"column_{i + 1}"] for i in self._positions]
        return np.column_stack(
            [
                seconds_of_texts(column) if at in self._dates else column.to_numpy()
                for at, column in zip(self._positions, columns, strict=True)
            ]
        )

    def _has_all_fields(self, data: bytes) -> bool:
        """Return whether every line has as many fields as the header."""
        text = np.frombuffer(data, dtype=np.uint8)
        separator = ord(self._dialect.separator)
        # commas (44), line ends (10) and little else: digits, minus signs and points come after
        marks = text[np.flatnonzero(text < 45)]
        if separator > 44:
            marks = text[np.flatnonzero((text < 45) | (text == separator))]
        if b'"' in data:
            quotes = marks == _QUOTE
            outside = np.bitwise_and(np.cumsum(quotes), 1) == 0
            if not outside[marks == _NEWLINE].all():
                return False
            marks = marks[outside & ~quotes]
        marks = marks[(marks == separator) | (marks == _NEWLINE)]
        if len(marks) % self._width:
            return False
        ends = marks.reshape(-1, self._width) == _NEWLINE
        return bool(ends[:, -1].all()) and int(np.count_nonzero(ends)) == len(ends)

    # -- line by line, for errors ------------------------------------------------------------------

    def _parse_lines(self, data: bytes, start: int) -> Block:
        """Parse line by line, and report the first error."""
        rows: list[list[float]] = []
        names: list[str] = []
        line = self._line_at(start)
        for number, raw in enumerate(data.split(b"\n")[:-1], start=line):
            try:
                fields = self._fields(raw, number)
                rows.append(
                    [
                        self._number(at, fields[at], name, number)
                        for at, name in zip(self._positions, self._columns, strict=True)
                    ]
                )
            except MalformedInput:
                if not self._lenient:
                    raise
                fields = []
                rows.append([np.nan] * len(self._columns))
            if self._run is not None:
                names.append(fields[self._run] if fields else names[-1] if names else "")
        return Block(
            np.array(rows, dtype=float).reshape(len(rows), len(self._columns)),
            labels_of(names) if self._run is not None else (),
        )

    def _fields(self, raw: bytes, number: int) -> list[str]:
        """Return the cells of a row, as many as the header has."""
        try:
            text = raw.decode("utf-8").rstrip("\r")
        except UnicodeDecodeError as error:
            raise self._error(
                number, f"byte {error.start + 1} is not UTF-8; save the file as UTF-8"
            ) from None
        fields = self._dialect.cells(text)
        if len(fields) != self._width:
            raise self._error(number, self._count_problem(text, fields))
        if self._dialect.header and raw.rstrip(b"\r") == self._header:
            raise self._error(
                number,
                "the header is repeated; remove the line, or give the parts as files of their own",
            )
        return fields

    def _number(self, at: int, cell: str, name: str, number: int) -> float:
        text = cell.strip()
        where = f"column {shown(name)}"
        if not text:
            raise self._error(number, f"{where} is empty; fill in a number or remove the row")
        if at in self._dates:
            seconds = seconds_of_text(text)
            if seconds is None:
                raise self._error(
                    number,
                    f"{where} is {shown(text)}, not a date; write it as 2024-01-31T12:00:00.123",
                )
            return seconds
        digits = self._dialect.number(text)
        if digits is not None:
            value = float(digits)
            if not np.isfinite(value):
                raise self._error(
                    number,
                    f"{where} is {shown(text)}, more than a double can hold; repair or remove"
                    " the row",
                )
            return value
        if text.lower().lstrip("+-") in ("inf", "infinity", "nan"):
            raise self._error(
                number,
                f"{where} is {shown(text)}; every number must be finite, so repair or remove"
                " the row",
            )
        raise self._error(number, f"{where} is {shown(cell)}, not a number{self._hint(text)}")

    def _hint(self, text: str) -> str:
        if self._dialect.decimal == "," and "." in text:
            return "; write the number with a decimal comma, as the others"
        if DECIMAL_COMMA.fullmatch(text):
            return "; write the number with a decimal point"
        return "; repair or remove the row"

    def _count_problem(self, text: str, fields: list[str]) -> str:
        count = (
            f"{len(fields)} field{'s' * (len(fields) != 1)} where"
            f" {'the header names' if self._dialect.header else 'line 1 has'} {self._width}"
        )
        if not text.strip():
            return "the line is blank; remove it"
        if text.count('"') % 2:
            return f'a quotation mark is not closed ({shown(text)}); close it, or remove the "'
        if ";" in text and self._dialect.separator != ";":
            return (
                f"{count}; semicolons ({shown(text)}) separate nothing here, so write commas, and"
                " numbers with decimal points"
            )
        if (
            self._dialect.separator == ","
            and len(fields) > self._width
            and len(fields) in (2 * self._width, 2 * self._width - 1)
        ):
            return (
                f"{count}; are these decimal commas ({shown(text)})? Write numbers with decimal"
                " points"
            )
        return (
            f"{count} ({shown(text)}); the row is"
            f" {'cut' if len(fields) < self._width else 'too long'}, so repair or remove it"
        )

    def _error(self, number: int, sentence: str) -> MalformedInput:
        return MalformedInput(f"{label(self._path)}, line {number}: {sentence}")


def _with_single_blanks(data: bytes) -> bytes:
    """Return lines with one blank between cells and none at their ends."""
    if b"  " in data or b"\t" in data:
        data = _BLANKS.sub(b" ", data)
    if data.startswith(b" ") or any(edge in data for edge in (b"\n ", b" \n", b" \r")):
        data = _EDGES.sub(b"", data)
    return data
