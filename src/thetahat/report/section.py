"""What a report is made of, as data: sections of text, notes, tables and figures. The page only
draws them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from thetahat.errors import UsageError

LEVELS = ("info", "good", "warning", "bad")
ARRANGEMENTS = ("choose", "grid")
Cell = str | float | int | bool | None


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Note:
    """A sentence that must not be overlooked."""

    text: str
    level: str = "info"  # one of LEVELS

    def __post_init__(self) -> None:
        _among("level", self.level, LEVELS)


@dataclass(frozen=True)
class Column:
    """A column of a table. Numbers get three significant digits, or as many decimals as given."""

    title: str
    unit: str = ""
    decimals: int | None = None
    wide: bool = False  # text that may break into lines
    code: bool = False  # a hash, a path, an option
    numeric: bool = False  # texts in it are numbers with their spread, and stand to the right
    good: float | None = None  # numbers from here on are good,
    fair: float | None = None  # and below this bad


@dataclass(frozen=True)
class Table:
    """Rows of cells; None is shown as a dash. A folded table opens on demand, under its caption."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    folded: bool = False

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise UsageError(
                    f"table {self.caption!r} has a row of {len(row)} cells for {len(self.columns)}"
                    " columns; give one per column"
                )


@dataclass(frozen=True)
class Panel:
    """A drawing for Plotly.js, {data, layout}, and what tells it from its neighbours."""

    label: str
    figure: Mapping[str, Any]
    note: str = ""  # what a reader chooses it by, where that is more than its label


@dataclass(frozen=True)
class Figure:
    """Panels, of which a reader chooses one, or which stand side by side. Choices of the same group
    change together.
    """

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


Block = Text | Note | Table | Figure


@dataclass(frozen=True)
class Section:
    """A chapter of a page."""

    title: str
    anchor: str  # its address in the page: letters, digits and hyphens
    blocks: tuple[Block, ...]

    def __post_init__(self) -> None:
        if not self.anchor or not all(
            c.isascii() and (c.isalnum() or c == "-") for c in self.anchor
        ):
            raise UsageError(
                f"anchor {self.anchor!r} of section {self.title!r} must be of letters, digits and"
                " hyphens"
            )


def as_data(sections: Iterable[Section]) -> list[dict[str, Any]]:
    """Sections as plain data, ready for JSON: every block with its kind, arrays as lists, what is
    not finite as None.
    """
    return [
        {
            "title": section.title,
            "anchor": section.anchor,
            "blocks": [
                {"kind": type(block).__name__.lower(), **plain(block)} for block in section.blocks
            ],
        }
        for section in sections
    ]


def plain(value: Any) -> Any:
    """Anything a figure or a table holds, as what JSON knows: no NaN, no arrays."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
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
