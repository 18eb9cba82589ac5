"""Tables, numbers and sentences for a reader at a terminal: the pieces that the verbs' views are
made of.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from thetahat.cli.exit_status import emit, plain

WIDE = 200  # columns where nobody looks at a terminal: a pipe or a file gets unbroken rows
GOOD, FAIR = 0.95, 0.8  # R² of a joint: green, plain, red below
UNKNOWN = "–"
SHOWN_FINDINGS = 12


def show(parts: Iterable[RenderableType | None], *, unbroken: bool = False) -> None:
    """Print parts to stdout with an empty line between them, in colour where stdout is a terminal
    that wants it.

    unbroken: leave sentences to the terminal to break, so that they can be searched for.
    """
    terminal = sys.stdout.isatty()
    width = None if terminal or os.environ.get("COLUMNS") else WIDE
    coloured = terminal and not os.environ.get("NO_COLOR")
    text = io.StringIO()
    console = Console(
        file=text,
        force_terminal=coloured,
        width=width,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=False,
    )
    for part in parts:
        if part is not None:
            whole = unbroken and isinstance(part, Text)
            console.print(
                part,
                "",
                sep="\n",
                crop=not whole,
                no_wrap=whole or None,
                overflow="ignore" if whole else None,
            )
    emit("\n".join(line.rstrip() for line in text.getvalue().rstrip().splitlines()) + "\n")


def table(*titles: str, numbers: bool = True) -> Table:
    """An open table; numbers: every column but the first is one of numbers, to the right."""
    out = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        padding=(0, 1, 0, 0),
        header_style="bold",
    )
    for k, title in enumerate(titles):
        right = numbers and k > 0
        out.add_column(
            Text(title, no_wrap=True, overflow="ellipsis"),
            no_wrap=True,
            justify="right" if right else "left",
            overflow="ellipsis",
        )
    return out


def short(value: float | None) -> str:
    """Three digits, or all before the point."""
    if value is None:
        return UNKNOWN
    return f"{value:.0f}" if 1e3 <= abs(value) < 1e6 else f"{value + 0.0:.3g}"


def r2(value: float | None) -> str:
    """R² to four places."""
    return UNKNOWN if value is None else f"{value:.4f}" if value > -10.0 else f"{value:.3g}"


def judged(value: float | None) -> Text:
    """R² in the colour it deserves."""
    style = "" if value is None or FAIR <= value < GOOD else "green" if value >= GOOD else "red"
    return Text(r2(value), style=style)


def vector(values: list[float | None]) -> str:
    """Three lengths [m]."""
    return UNKNOWN if values[0] is None else " ".join(f"{value + 0.0:7.4f}" for value in values)


def with_spread(value: float | None, spread: float | None) -> str:
    """A value and its standard deviation."""
    if value is None:
        return UNKNOWN
    return (
        f"{short(value)} (with others)"
        if spread is None
        else f"{short(value)} ± {float(f'{spread:.1g}'):g}"
    )


def findings(items: list[dict[str, Any]], *, skip: Iterable[str] = ()) -> list[str]:
    """What the audit saw in the log, a line each; not those kinds that are said elsewhere."""
    lines = [f"log: {plain(item['message'])}" for item in items if item["kind"] not in skip]
    more = len(lines) - SHOWN_FINDINGS
    return [
        *lines[:SHOWN_FINDINGS],
        *([f"log: {more} more findings (--json lists all)"] if more > 0 else []),
    ]


def low_pass(reason: str) -> str:
    """How the cut-off was chosen."""
    return "low-pass: as given" if reason == "given" else f"low-pass: {plain(reason)}"


def written(files: Iterable[Path], seconds: float) -> Text:
    """The files, their sizes, and how long it took."""
    names = ", ".join(f"{plain(file)} ({_size(file.stat().st_size)})" for file in files)
    return Text(f"Wrote {names} in {seconds:.1f} s.")


def _size(count: int) -> str:
    return (
        f"{count} B"
        if count < 1000
        else f"{count / 1000:.0f} kB"
        if count < 1_000_000
        else f"{count / 1e6:.1f} MB"
    )
