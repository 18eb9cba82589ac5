"""Draws the blocks of a report on a terminal."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text as RichText

from thetahat.cli.exit_status import emit, plain
from thetahat.report.section import Block, Cell, Code, Column, Figure, Note, Table, Text
from thetahat.report.text import Data, format_cell

WIDE = 200  # columns where nobody looks at a terminal: a pipe or a file gets unbroken rows
SHOWN_FINDINGS = 12
STYLES = {"good": "green", "warning": "yellow", "bad": "red", "info": "bold", "": ""}
Part = Block | Sequence[Block] | None  # a sequence is drawn without empty lines between


def show(parts: Iterable[Part], *, unbroken: bool = False) -> None:
    """Print parts to stdout, an empty line between them, in colour on a terminal that wants it.

    unbroken: leave sentences to the terminal to break, so that they can be searched for.
    """
    terminal, file = sys.stdout.isatty(), io.StringIO()
    console = Console(
        file=file,
        force_terminal=terminal and not os.environ.get("NO_COLOR"),
        width=None if terminal or os.environ.get("COLUMNS") else WIDE,
        highlight=False,
        markup=False,
        emoji=False,
    )
    groups = [[part] if isinstance(part, Block) else part or () for part in parts]
    for blocks in groups:
        for block in blocks:
            drawn = _drawn(block)
            whole = unbroken and isinstance(drawn, RichText)
            if whole or isinstance(block, Code):  # a command is copied in one piece
                console.print(drawn, crop=False, no_wrap=True, overflow="ignore")
            else:
                console.print(drawn)
        if blocks:
            console.print()
    emit("\n".join(line.rstrip() for line in file.getvalue().rstrip().splitlines()) + "\n")


def _drawn(block: Block) -> RenderableType:
    match block:
        case Table():
            note = RichText(_safe(block.note), style="dim")
            return Group(_table(block), note) if block.note else _table(block)
        case Note():
            return RichText(_safe(block.text), style=STYLES[block.level])
        case Figure():
            return RichText(_safe(block.caption), style="dim")
        case Text():
            return RichText(_safe(block.text))
        case Code():
            lines = (f"  {plain(line)}" for line in block.text.splitlines())
            return RichText("\n".join(filter(None, [block.caption, *lines])))


def _safe(text: str) -> str:
    return plain(text.replace("`", ""))


def _table(table: Table) -> RichTable:
    """Return an open table of the columns that are not details."""
    out = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    shown = [k for k, column in enumerate(table.columns) if column.brief != ""]
    for k in shown:
        column = table.columns[k]
        unit = f" [{column.unit}]" if column.unit else ""
        title = column.brief or column.title + unit
        out.add_column(
            RichText(title, style="bold", no_wrap=not column.wide, overflow="ellipsis"),
            no_wrap=not (column.wide or column.numeric),  # numbers are never cut
            justify="right" if table.is_numeric(k) else "left",
            overflow="fold" if column.wide else "ellipsis",
        )
    for row in table.rows:
        out.add_row(*(_cell(row[k], table.columns[k]) for k in shown))
    return out


def _cell(cell: Cell, column: Column) -> RichText:
    text = plain(format_cell(cell, column)).replace("−", "-")  # can be copied into a program
    return RichText(text, style=STYLES[column.level(cell)])


def findings(items: Sequence[Data], *, skip: Iterable[str] = ()) -> list[Text]:
    """Return the findings of the log's audit, but those kinds that are shown elsewhere."""
    lines = [Text(f"Log: {item['message']}") for item in items if item["kind"] not in skip]
    more = len(lines) - SHOWN_FINDINGS
    rest = [Text(f"Log: {more} more findings (--json lists all)")] if more > 0 else []
    return [*lines[:SHOWN_FINDINGS], *rest]


def written(files: Iterable[Path], seconds: float) -> Text:
    """Return the files, their sizes, and how long it took."""
    names = ", ".join(f"{file} ({_size(file.stat().st_size)})" for file in files)
    return Text(f"Wrote {names} in {seconds:.1f} s.")


def _size(count: int) -> str:
    if count < 1000:
        return f"{count} B"
    return f"{count / 1000:.0f} kB" if count < 1_000_000 else f"{count / 1e6:.1f} MB"
