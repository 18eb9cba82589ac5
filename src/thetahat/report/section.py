"""Blocks of a report as data: text, notes, tables and figures, drawn as HTML or on a terminal."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from thetahat.errors import UsageError

LEVELS = ("info", "good", "warning", "bad")
ARRANGEMENTS = ("choose", "grid")
_SIMPLE = frozenset({float, int, str, bool, type(None)})
Cell = str | float | int | bool | None


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Note:
    """A highlighted sentence."""

    text: str
    level: str = "info"  # one of LEVELS

    def __post_init__(self) -> None:
        _among("level", self.level, LEVELS)


@dataclass(frozen=True)
class Code:
    """Lines to copy: commands, or a few lines of Python."""

    text: str
    caption: str = ""


@dataclass(frozen=True)
class Column:
    """A column of a table. Numbers get three significant digits, or as many decimals as given."""

    title: str
    unit: str = ""
    decimals: int | None = None
    wide: bool = False  # text that may break into lines
    code: bool = False  # a hash, a path, an option
    numeric: bool = False  # its strings are numbers, and stand to the right
    limits: tuple[float, float] | None = None  # numbers are bad below, good from
    brief: str | None = None  # heading on a terminal; "": the column is left out there

    def level(self, cell: Cell) -> str:
        """Return "good", "bad" or "" of a cell."""
        if self.limits is None or not isinstance(cell, float | bool):
            return ""
        bad, good = self.limits
        return "good" if cell >= good else "bad" if cell < bad else ""


@dataclass(frozen=True)
class Table:
    """Rows of cells; None is shown as a dash. A folded table opens on demand, under its caption."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    folded: bool = False
    note: str = ""  # sentences under the table

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise UsageError(
                    f"table {self.caption!r} has a row of {len(row)} cells for {len(self.columns)}"
                    " columns; give one per column"
                )

    def is_numeric(self, k: int) -> bool:
        """Whether a column stands to the right."""
        column = self.columns[k]
        texts = any(isinstance(row[k], str) for row in self.rows)
        return not column.wide and (column.numeric or not texts)


@dataclass(frozen=True)
class Panel:
    """A drawing for Plotly.js, {data, layout}, and its label."""

    label: str
    figure: Mapping[str, Any]
    note: str = ""  # text of the choice, where that is more than the label


@dataclass(frozen=True)
class Figure:
    """Panels to choose from, or side by side. Choices of the same group change together."""

    panels: tuple[Panel, ...]
    caption: str = ""
    arrangement: str = "choose"  # one of ARRANGEMENTS
    group: str = ""  # what the panels are of, such as "joint"
    selected: int = 0

    def __post_init__(self) -> None:
        _among("arrangement", self.arrangement, ARRANGEMENTS)
        if not self.panels:
            raise UsageError(f"figure {self.caption!r} has no panels; leave it out instead")
        if not 0 <= self.selected < len(self.panels):
            raise UsageError(
                f"figure {self.caption!r} selects panel {self.selected} of {len(self.panels)};"
                " count from 0"
            )


Block = Text | Note | Code | Table | Figure


@dataclass(frozen=True)
class Section:
    """A section of a page."""

    title: str
    anchor: str  # its address in the page: letters, digits and hyphens
    blocks: tuple[Block, ...]

    def __post_init__(self) -> None:
        valid = all(c.isascii() and (c.isalnum() or c == "-") for c in self.anchor)
        if not self.anchor or not valid:
            raise UsageError(
                f"anchor {self.anchor!r} of section {self.title!r} must be of letters, digits and"
                " hyphens"
            )


def plain(value: Any) -> Any:
    """Return anything that a figure or a table holds as JSON knows it: no NaN, no arrays."""
    if isinstance(value, list | tuple) and _SIMPLE.issuperset(map(type, value)):
        return [  # most of a page is long lists of numbers
            None if type(each) is float and not math.isfinite(each) else each for each in value
        ]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = (field.name for field in dataclasses.fields(value))
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | bool | int):
        return value
    raise UsageError(
        f"{type(value).__name__} cannot be put on a page; give numbers, texts, lists and mappings"
    )


def _among(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise UsageError(f"{name} is {value!r}; give one of {', '.join(choices)}")
