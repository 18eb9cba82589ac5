"""Dialect of a text table: separator, decimal mark, header, columns of dates.

Decided from the first lines. A separator is believed if most lines then have as many cells as the
header, and most cells are numbers; if two are, the file is ambiguous and refused.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass

from thetahat.data.formats.date_stamps import ISO_8601
from thetahat.errors import known

SAMPLE_LINES = 64  # after the first
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", " ": "spaces"}
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
DECIMAL_COMMA = re.compile(r"[+-]?(\d+,\d*|,\d+)([eE][+-]?\d+)?", re.ASCII)
_NOT_FINITE = ("", "nan", "inf", "-inf", "+inf", "null", "na", "n/a")
_BLANKS = re.compile(r"[ \t]+")
MOST = 0.5  # of the lines, and of their cells, must fit


@dataclass(frozen=True)
class Dialect:
    """How the cells of a line are told apart and read."""

    separator: str = ","
    decimal: str = "."
    header: bool = True
    dates: frozenset[int] = frozenset()  # positions of columns of ISO 8601 dates

    @property
    def plain(self) -> bool:
        """Return whether it is the dialect of most CSV files: commas, decimal points, a header."""
        return self.separator == "," and self.decimal == "." and self.header

    def cells(self, text: str) -> list[str]:
        """Return the cells of a line."""
        if self.separator == " ":
            text = _BLANKS.sub(" ", text.strip())
        try:
            return next(csv.reader([text], delimiter=self.separator), [])
        except csv.Error:  # a cell of more than 128 kB
            return [text]

    def number(self, cell: str) -> str | None:
        """Return a cell as Python writes the number, None where it is none."""
        if self.decimal == ",":
            if not DECIMAL_COMMA.fullmatch(cell) and not NUMBER.fullmatch(cell):
                return None
            return None if "." in cell else cell.replace(",", ".")
        return cell if NUMBER.fullmatch(cell) else None

    def __str__(self) -> str:
        parts = [f"columns separated by {SEPARATORS[self.separator]}"]
        parts += ["numbers with decimal commas"] * (self.decimal == ",")
        parts += ["no header"] * (not self.header)
        return ", ".join(parts)


class AmbiguousDialect(ValueError):
    """Lines that can be read in two ways; the sentence says which."""


def uncommented(line: str) -> str:
    """Return a header without the # or % that marks it as a comment."""
    return line.lstrip("#% ") if line.startswith(("#", "%")) else line


def detect(lines: Sequence[str]) -> Dialect:
    """Return the dialect of a file's first lines, the header (if there is one) among them."""
    first = uncommented(lines[0])
    rest = [line for line in lines[1 : SAMPLE_LINES + 1] if line.strip()]
    fitting = {}
    for separator in SEPARATORS:
        dialect = _with_decimals(separator, first, rest)
        if dialect is not None:
            fitting[separator] = dialect
    if len(fitting) > 1:
        fitting.pop(" ", None)  # beside other separators, blanks are padding
    if len(fitting) > 1:
        words = known([SEPARATORS[separator] for separator in fitting])
        raise AmbiguousDialect(
            f"its columns may be separated by any of {words}; use one of them alone"
        )
    if fitting:
        return next(iter(fitting.values()))
    for separator in SEPARATORS:  # damaged, or a header alone
        dialect = Dialect(separator)
        if len(dialect.cells(first)) > 1:
            return Dialect(separator, header=not _all_values(dialect, dialect.cells(first)))
    return Dialect()


def _with_decimals(separator: str, first: str, rest: list[str]) -> Dialect | None:
    """Return the dialect of a separator; None where the lines do not fall into columns by it."""
    plain = Dialect(separator)
    head = [cell.strip() for cell in plain.cells(first)]
    rows = [[cell.strip() for cell in plain.cells(line)] for line in rest]
    whole = [row for row in rows if len(row) == len(head)]
    if len(head) < 2 or len(whole) <= MOST * len(rows):
        return None
    comma = Dialect(separator, ",")
    values = [cell for row in whole for cell in row if cell.lower() not in _NOT_FINITE]
    points = [cell for cell in values if "." in cell and plain.number(cell)]
    commas = [cell for cell in values if "," in cell and comma.number(cell)]
    both = [cell for cell in values if re.fullmatch(r"[+-]?\d+(?:\.\d{3})+,\d+", cell, re.ASCII)]
    if both or (points and commas and separator != "," and _alike(points, commas)):
        seen = both[:1] or [points[0], commas[0]]
        raise AmbiguousDialect(
            f"it writes numbers with points and with commas ({known(map(repr, seen))}), which may"
            " mean decimals or thousands; write every number with a decimal point"
        )
    dialect = comma if len(commas) > len(points) else plain
    numbers = sum(dialect.number(cell) is not None for cell in values)
    dates = frozenset(
        at
        for at in range(len(head))
        if sum(bool(ISO_8601.fullmatch(row[at])) for row in whole) > MOST * len(whole)
    )
    numbers += sum(bool(ISO_8601.fullmatch(cell)) for cell in values)
    if values and numbers <= MOST * len(values):
        return None
    return Dialect(separator, dialect.decimal, not _all_values(dialect, head), dates)


def _alike(points: list[str], commas: list[str]) -> bool:
    """Return whether neither is a rare slip in a file of the other."""
    return min(len(points), len(commas)) > 0.02 * (len(points) + len(commas))


def _all_values(dialect: Dialect, cells: list[str]) -> bool:
    """Return whether every cell of the first line is a value, so that it is no header."""
    stripped = [cell.strip() for cell in cells]
    return all(
        dialect.number(cell) is not None or ISO_8601.fullmatch(cell) is not None
        for cell in stripped
    )
