"""CSV: commas, decimal points, a header of names, one row per line.

The file is cut into blocks of whole lines, whose fields are counted here (polars fills short rows)
and parsed by polars as Float64, which is exact. A block that polars refuses is parsed again line by
line, to say where and why.
"""

from __future__ import annotations

import csv
import re
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import numpy as np

from thetahat.data.formats.table import (
    MAX_WAIT,
    Block,
    Digest,
    Table,
    check_names,
    label,
    labels_of,
    opened,
    shown,
)
from thetahat.errors import MalformedInput, RefusedForSafety

BLOCK_BYTES = 4 * 2**20
IN_FLIGHT = 4  # blocks being parsed at a time
MAX_LINE = 2**20  # bytes; 4,096 columns of 24 characters are a tenth of it

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
_BOM = b"\xef\xbb\xbf"
NEWLINE = b"\n"
_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}


class CsvTable(Table):
    """A CSV file. Its header is read when it is opened."""

    hashes_itself = True

    def __init__(self, path: Path, *, salvage: bool = False) -> None:
        super().__init__(path)
        self._salvage = salvage
        self.notes = ()
        with opened(path) as file:
            head = file.read(MAX_LINE)
        if not head.removeprefix(_BOM).strip():
            raise MalformedInput(
                f"{label(path)} is empty; give a log with a header line and rows of numbers"
            )
        self._check_encoding(head)
        line, newline, _ = head.partition(b"\n")
        if not newline and len(head) == MAX_LINE:
            raise RefusedForSafety(
                f"{label(path)}, line 1 is longer than {MAX_LINE} bytes; give a CSV file whose"
                " first line names its columns"
            )
        self._start = len(line) + len(newline)
        self.header = line.removeprefix(_BOM).rstrip(b"\r")
        self.names = self._header_names(self.header)
        check_names(path, self.names)

    def where(self, row: int) -> str:
        """Return the line of a row; line 1 is the header."""
        return f"line {row + 2}"

    # -- header ------------------------------------------------------------------------------------

    def _check_encoding(self, head: bytes) -> None:
        for magic, kind in _COMPRESSED.items():
            if head.startswith(magic):
                raise RefusedForSafety(
                    f"{label(self.path)} is compressed ({kind}), and a small file may unpack to any"
                    " size; unpack it yourself and give the CSV file"
                )
        if head.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in head[:64:2] + head[1:64:2]:
            if (
                head.startswith((b"\xff\xfe", b"\xfe\xff"))
                or head[1:64:2].count(0) > 8
                or head[:64:2].count(0) > 8
            ):
                raise MalformedInput(f"{label(self.path)} is in UTF-16; save it as UTF-8")
            raise MalformedInput(
                f"{label(self.path)}, line 1 holds a NUL byte; it is not a text file or was"
                " damaged, so export it again as CSV"
            )

    def _header_names(self, line: bytes) -> tuple[str, ...]:
        path = label(self.path)
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            byte = line[error.start : error.start + 1]
            raise MalformedInput(
                f"{path}, line 1: byte {error.start + 1} ({byte!r}) is not UTF-8, perhaps Latin-1;"
                " save the file as UTF-8"
            ) from None
        if "\0" in text:
            raise MalformedInput(
                f"{path}, line 1 holds a NUL byte; it is not a text file or was damaged, so export"
                " it again as CSV"
            )
        if "\r" in text:
            raise MalformedInput(
                f"{path}, line 1: lines end with a carriage return alone; convert the line ends"
                " to \\n"
            )
        names = tuple(name.strip() for name in _fields(text))
        if len(names) < 2:
            for mark, word in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars"), (" ", "spaces")):
                if mark in text.strip():
                    fix = "separate them by commas, and write numbers with decimal points"
                    raise MalformedInput(
                        f"{path}, line 1: columns are separated by {word} ({shown(text)}); {fix}"
                    )
            raise MalformedInput(
                f"{path}, line 1 names one column ({shown(text)}); a log needs at least t and the"
                " position of a joint"
            )
        if all(_NUMBER.fullmatch(name) for name in names):
            raise MalformedInput(
                f"{path}, line 1 holds numbers ({shown(text)}) where the columns' names belong; add"
                " a header such as t,q1,tau1"
            )
        return names

    # -- rows --------------------------------------------------------------------------------------

    def read(
        self, columns: Sequence[str], run_column: str | None, *, first: bool
    ) -> Iterator[Block]:
        """Return blocks of about `BLOCK_BYTES`, parsed ahead of their use."""
        digest = Digest() if first else None
        parser = _Parser(self, columns, run_column)
        waiting: deque[Future[Block]] = deque()
        try:
            with (
                ThreadPoolExecutor(IN_FLIGHT - 1, "thetahat-csv") as pool,
                opened(self.path) as file,
            ):
                for data, start in self._pieces(file, digest):
                    waiting.append(pool.submit(parser.parse, data, start))
                    if len(waiting) == IN_FLIGHT:
                        yield waiting.popleft().result(MAX_WAIT)
                while waiting:
                    yield waiting.popleft().result(MAX_WAIT)
            if digest is not None:
                self.sha256 = (digest.hexdigest(),)
        finally:
            if digest is not None:
                digest.close()

    def _pieces(self, file: BinaryIO, digest: Digest | None) -> Iterator[tuple[bytes, int]]:
        """Return (whole lines, where in the file they begin), without blank lines at its end."""
        head = file.read(self._start)
        if digest is not None:
            digest.update(head)
        start, rest = len(head), b""
        while fresh := file.read(BLOCK_BYTES):
            if digest is not None:
                digest.update(fresh)
            if not rest.strip(b"\r\n") or NEWLINE in fresh:
                end = fresh.rfind(NEWLINE) + 1
                # blank lines wait: more rows may follow
                while end and fresh.endswith((b"\n\n", b"\n\r\n"), 0, end):
                    end -= 2 if fresh.endswith(b"\r\n", 0, end) else 1
                piece, rest = (
                    (b"".join((rest, memoryview(fresh)[:end])), fresh[end:])
                    if end
                    else (b"", rest + fresh)
                )
            else:
                piece, rest = b"", rest + fresh
            if len(rest) > MAX_LINE + BLOCK_BYTES:
                raise RefusedForSafety(
                    f"{label(self.path)}, line {self.line_at(start + len(piece))} is longer than"
                    f" {MAX_LINE} bytes; it is no row of numbers"
                )
            if piece:
                yield piece, start
                start += len(piece)
        if rest.strip(b"\r\n"):
            self._cut_row(rest, start)

    def line_at(self, offset: int) -> int:
        """Return the number of the line at a place in the file, by counting: only errors ask."""
        line, left = 1, offset
        with opened(self.path) as file:
            while left and (data := file.read(min(left, BLOCK_BYTES))):
                line, left = line + data.count(NEWLINE), left - len(data)
        return line

    def _cut_row(self, rest: bytes, start: int) -> None:
        """Refuse or drop a last line without an end: its last number may be cut."""
        line, text = self.line_at(start + len(rest)), rest.rpartition(NEWLINE)[2]
        if not self._salvage:
            end = shown(text.decode("utf-8", "replace")[-40:])
            raise MalformedInput(
                f"{label(self.path)}, line {line}: the last row has no line end ({end}), so it may"
                " be cut off; end it with a newline if it is complete, or remove it (salvage"
                " leaves it out)"
            )
        self.notes = (("salvaged", f"line {line}, the last, has no line end and was left out"),)


def _fields(text: str) -> list[str]:
    """Return the cells of a line."""
    try:
        return next(csv.reader([text]), [])
    except csv.Error:  # a cell of more than 128 kB
        return [text]


class _Parser:
    """Parser of whole lines of one file."""

    def __init__(self, table: CsvTable, columns: Sequence[str], run_column: str | None) -> None:
        import polars

        self._polars, self._table = polars, table
        self._columns, self._width = tuple(columns), len(table.names)
        self._positions = [table.names.index(name) for name in columns]
        self._run = None if run_column is None else table.names.index(run_column)
        numbers = set(self._positions)
        self._schema = {
            f"column_{i + 1}": polars.Float64 if i in numbers else polars.String
            for i in range(self._width)
        }
        self._wanted = [
            f"column_{i + 1}"
            for i in sorted(numbers | ({self._run} if self._run is not None else set()))
        ]

    def parse(self, data: bytes, start: int) -> Block:
        """Parse whole lines that begin at this place in the file."""
        if b"\0" in data:
            line = self._table.line_at(start + data.index(b"\0"))
            raise MalformedInput(
                f"{label(self._table.path)}, line {line} holds a NUL byte; the file was damaged, so"
                " copy or export it again"
            )
        if not self._has_all_fields(data):
            return self._parse_lines(data, start)
        try:
            frame = self._polars.read_csv(
                data, has_header=False, schema=self._schema, columns=self._wanted
            )
        except self._polars.exceptions.PolarsError:
            return self._parse_lines(data, start)
        values = frame.select([f"column_{i + 1}" for i in self._positions]).to_numpy()
        with np.errstate(over="ignore", invalid="ignore"):
            if not np.isfinite(values.sum()) and not np.isfinite(values).all():
                return self._parse_lines(data, start)
        labels: tuple[tuple[int, str], ...] = ()
        if self._run is not None:
            names = frame[f"column_{self._run + 1}"]
            starts = np.flatnonzero(np.diff(names.rle_id().to_numpy(), prepend=-1))
            labels = tuple((int(row), str(names[int(row)] or "")) for row in starts)
        return Block(values, labels)

    def _has_all_fields(self, data: bytes) -> bool:
        """Return whether every line has as many fields as the header."""
        text = np.frombuffer(data, dtype=np.uint8)
        # commas (44), line ends (10) and little else: digits, minus signs and points come after
        marks = text[np.flatnonzero(text < 45)]
        if b'"' in data:
            quotes = marks == 34
            outside = np.bitwise_and(np.cumsum(quotes), 1) == 0
            if not outside[marks == 10].all():
                return False
            marks = marks[outside & ~quotes]
        marks = marks[(marks == 44) | (marks == 10)]
        if len(marks) % self._width:
            return False
        ends = marks.reshape(-1, self._width) == 10
        return bool(ends[:, -1].all()) and int(np.count_nonzero(ends)) == len(ends)

    # -- line by line, for errors ------------------------------------------------------------------

    def _parse_lines(self, data: bytes, start: int) -> Block:
        """Parse line by line, and report the first error."""
        rows, names, line = [], [], self._table.line_at(start)
        for number, raw in enumerate(data.split(b"\n")[:-1], start=line):
            try:
                text = raw.decode("utf-8").rstrip("\r")
            except UnicodeDecodeError as error:
                raise self._error(
                    number, f"byte {error.start + 1} is not UTF-8; save the file as UTF-8"
                ) from None
            fields = _fields(text)
            if len(fields) != self._width:
                raise self._error(number, self._count_problem(text, fields))
            if raw.rstrip(b"\r") == self._table.header:
                raise self._error(
                    number,
                    "the header is repeated; remove the line, or give the parts as files of"
                    " their own",
                )
            rows.append(
                [
                    self._number(fields[at], name, number)
                    for at, name in zip(self._positions, self._columns, strict=True)
                ]
            )
            names.append(fields[self._run] if self._run is not None else "")
        return Block(
            np.array(rows, dtype=float).reshape(len(rows), len(self._columns)),
            labels_of(names) if self._run is not None else (),
        )

    def _number(self, cell: str, name: str, number: int) -> float:
        text = cell.strip()
        where = f"column {shown(name)}"
        if not text:
            raise self._error(number, f"{where} is empty; fill in a number or remove the row")
        if _NUMBER.fullmatch(text):
            value = float(text)
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
        hint = (
            "; write the number with a decimal point"
            if _DECIMAL_COMMA.fullmatch(text)
            else "; repair or remove the row"
        )
        raise self._error(number, f"{where} is {shown(cell)}, not a number{hint}")

    def _count_problem(self, text: str, fields: list[str]) -> str:
        count = (
            f"{len(fields)} field{'s' * (len(fields) != 1)} where the header names {self._width}"
        )
        if not text.strip():
            return "the line is blank; remove it"
        if text.count('"') % 2:
            return f'a quotation mark is not closed ({shown(text)}); close it, or remove the "'
        if ";" in text:
            return (
                f"{count}; semicolons ({shown(text)}) separate nothing here, so write commas, and"
                " numbers with decimal points"
            )
        if len(fields) > self._width and len(fields) in (2 * self._width, 2 * self._width - 1):
            return (
                f"{count}; are these decimal commas ({shown(text)})? Write numbers with decimal"
                " points"
            )
        return (
            f"{count} ({shown(text)}); the row is"
            f" {'cut' if len(fields) < self._width else 'too long'}, so repair or remove it"
        )

    def _error(self, number: int, sentence: str) -> MalformedInput:
        return MalformedInput(f"{label(self._table.path)}, line {number}: {sentence}")
