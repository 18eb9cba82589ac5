"""CSV and its kin: separator, decimal mark and header as `dialect` detects them, one row per line.

The file is cut into blocks of whole lines, whose fields are counted here (polars fills short rows)
and parsed by polars as Float64, which is exact. A block that polars refuses is parsed again line by
line, to say where and why.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import numpy as np

from thetahat.data.formats.csv_parser import CsvParser
from thetahat.data.formats.dialect import (
    SAMPLE_LINES,
    AmbiguousDialect,
    Dialect,
    detect,
    uncommented,
)
from thetahat.data.formats.table import (
    MAX_WAIT,
    Block,
    Digest,
    Table,
    check_names,
    label,
    opened,
    shown,
)
from thetahat.errors import MalformedInput, RefusedForSafety

BLOCK_BYTES = 4 * 2**20
IN_FLIGHT = 4  # blocks being parsed at a time
MAX_LINE = 2**20  # bytes; 4,096 columns of 24 characters are a tenth of it

_BOM = b"\xef\xbb\xbf"
NEWLINE = b"\n"
_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}


class CsvTable(Table):
    """A CSV file. Its header is read when it is opened."""

    hashes_itself = True

    def __init__(self, path: Path, *, salvage: bool = False) -> None:
        super().__init__(path)
        self._salvage = salvage
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
        self.header = line.removeprefix(_BOM).rstrip(b"\r")
        self.dialect = self._dialect(head)
        bom = len(_BOM) if head.startswith(_BOM) else 0
        self.start = len(line) + len(newline) if self.dialect.header else bom
        self.headerless = not self.dialect.header
        self.names = self._header_names(self.header)
        check_names(path, self.names)
        self.dates = frozenset(self.names[at] for at in self.dialect.dates)
        if not self.dialect.plain:
            self.notes = (("dialect", f"detected {self.dialect}"),)

    def place(self, row: int) -> str:
        """Return the line of a row; line 1 is the header, if there is one."""
        return f"line {row + 1 + self.dialect.header}"

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
        cells = self.dialect.cells(uncommented(text))
        if len(cells) < 2:
            if "|" in text:
                raise MalformedInput(
                    f"{path}, line 1: columns are separated by bars ({shown(text)}); separate them"
                    " by commas, semicolons, tabs or spaces"
                )
            raise MalformedInput(
                f"{path}, line 1 names one column ({shown(text)}); a log needs at least t and the"
                " position of a joint"
            )
        if not self.dialect.header:
            return tuple(str(number) for number in range(1, len(cells) + 1))
        return tuple(name.strip() for name in cells)

    def head(self, column: str, count: int) -> np.ndarray:
        """Return the first numbers of a column, unchecked."""
        with opened(self.path) as file:
            file.seek(self.start)
            lines = file.read(MAX_LINE).split(NEWLINE)[:-1][:count]
        data = b"".join(line + NEWLINE for line in lines)
        return self.parser([column]).parse(data, self.start).values[:, 0]

    def _dialect(self, head: bytes) -> Dialect:
        """Return the dialect of its first lines."""
        lines = head.removeprefix(_BOM).split(b"\n")[: SAMPLE_LINES + 1]
        try:
            return detect([line.decode("utf-8", "replace").rstrip("\r") for line in lines])
        except AmbiguousDialect as error:
            raise MalformedInput(f"{label(self.path)}: {error}") from None

    # -- rows --------------------------------------------------------------------------------------

    def read(
        self, columns: Sequence[str], run_column: str | None, *, first: bool
    ) -> Iterator[Block]:
        """Return blocks of about `BLOCK_BYTES`, parsed ahead of their use."""
        digest = Digest() if first else None
        parser = self.parser(columns, run_column)
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

    def parser(self, columns: Sequence[str], run_column: str | None = None) -> CsvParser:
        """Return a parser of whole lines of the file."""
        return CsvParser(
            self.path,
            self.names,
            self.dialect,
            columns=columns,
            run_column=run_column,
            header=self.header,
            line_at=self.line_at,
            lenient=self.skips,
        )

    def _pieces(self, file: BinaryIO, digest: Digest | None) -> Iterator[tuple[bytes, int]]:
        """Return (whole lines, where in the file they begin), without blank lines at its end."""
        head = file.read(self.start)
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
        if not self._salvage and not self.skip_bad_rows:
            end = shown(text.decode("utf-8", "replace")[-40:])
            raise MalformedInput(
                f"{label(self.path)}, line {line}: the last row has no line end ({end}), so it may"
                " be cut off; end it with a newline if it is complete, or remove it (salvage"
                " leaves it out)"
            )
        last = ("salvaged", f"line {line}, the last, has no line end and was left out")
        self.notes = tuple(dict.fromkeys((*self.notes, last)))
