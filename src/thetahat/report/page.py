"""One self-contained HTML page of sections: no requests, no scripts but those named by hash."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from importlib import resources
from pathlib import Path

from thetahat import __version__
from thetahat.errors import MissingExtra
from thetahat.report.section import (
    Block,
    Cell,
    Code,
    Column,
    Figure,
    Note,
    Section,
    Table,
    Text,
    plain,
)
from thetahat.report.text import format_cell

TALL = 16  # rows of a table from which on it scrolls by itself
SIDE_BY_SIDE = 3  # panels of a grid up to which they are wide


def render(title: str, sections: Iterable[Section], *, subtitle: str = "") -> str:
    """Return the page as one HTML document."""
    sections = tuple(sections)
    contents = "".join(
        f'<li><a href="#{section.anchor}">{escape(section.title)}</a></li>' for section in sections
    )
    body = "".join(_section(section, number) for number, section in enumerate(sections))
    drawn = any(isinstance(block, Figure) for section in sections for block in section.blocks)
    scripts = [*([plotly_script()] if drawn else []), asset("figures.js"), asset("page.js")]
    run = "".join(f"<script>{script}</script>" for script in scripts)
    page = f"""{head(title, scripts, asset("page.css"), images="data: blob:")}<body>
<a class="skip" href="#content">Skip to the content</a>
<div class="frame">
<header><h1>{escape(title)}</h1>{f"<p>{escape(subtitle)}</p>" if subtitle else ""}</header>
<div class="columns">
<nav aria-label="Contents">
<details open><summary>Contents</summary><ol>{contents}</ol></details></nav>
<main id="content">
<noscript><p class="note warning">Figures need JavaScript; text and tables do not.</p></noscript>
{body}</main>
</div>
<footer>thetahat {escape(__version__)}</footer>
</div>
{run}
</body>
</html>
"""
    # An unpaired surrogate in a name must not keep the page from being written.
    return page.encode("utf-8", "replace").decode("utf-8")


def head(title: str, scripts: Sequence[str], style: str, *, images: str = "data:") -> str:
    """Return the beginning of a page that runs these scripts alone and asks for nothing else."""
    allowed = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    policy = (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src {images};"
        " base-uri 'none'; form-action 'none'"
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="thetahat {escape(__version__)}">
<title>{escape(title)}</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
"""


# -- scripts ---------------------------------------------------------------------------------------


@cache
def plotly_file() -> Path:
    """Return the path of Plotly.js in the installed package, which is not imported."""
    spec = importlib.util.find_spec("plotly")
    if spec is not None and spec.origin:
        path = Path(spec.origin).parent / "package_data" / "plotly.min.js"
        if path.is_file():
            return path
    raise MissingExtra("figures need plotly, which is not installed; pip install plotly")


@cache
def plotly_script() -> str:
    """Return Plotly.js as it stands in a page."""
    return _inline(plotly_file().read_text(encoding="utf-8"))


@cache
def asset(name: str) -> str:
    """Return a style sheet or script of the report."""
    return _inline(
        resources.files("thetahat.report").joinpath("style", name).read_text(encoding="utf-8")
    )


def _inline(script: str) -> str:
    """Return a script that does not end its element, with the line ends that a browser hashes."""
    script = script.replace("\r\n", "\n").replace("\r", "\n").replace("<!--", "<\\!--")
    return re.sub(r"</(script|style)", r"<\\/\1", script, flags=re.IGNORECASE)


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")


def embedded(value: object) -> str:
    """Return plain data as JSON that can stand inside a script element."""
    text = json.dumps(plain(value), allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


# -- blocks ----------------------------------------------------------------------------------------


def _section(section: Section, number: int) -> str:
    blocks = "".join(
        _block(block, f"figure-{number}-{k}", lead=number == 0 and k == 0)
        for k, block in enumerate(section.blocks)
    )
    heading = f'<h2 id="{section.anchor}-title">{escape(section.title)}</h2>'
    return (
        f'<section id="{section.anchor}"'
        f' aria-labelledby="{section.anchor}-title">{heading}{blocks}</section>\n'
    )


def _block(block: Block, name: str, *, lead: bool) -> str:
    match block:
        case Text():
            return f"<p>{_prose(block.text)}</p>"
        case Note():
            level = f"{block.level} lead" if lead else block.level
            return f'<p class="note {level}">{_prose(block.text)}</p>'
        case Code():
            return _code(block)
        case Table():
            return _table(block)
        case Figure():
            return _figure(block, name)


def _code(block: Code) -> str:
    """Return lines to copy, with a button that does."""
    caption = f"<p>{_prose(block.caption)}</p>" if block.caption else ""
    return (
        f'{caption}<div class="copy"><pre class="code" tabindex="0">{escape(block.text)}</pre>'
        '<button type="button" data-copy>Copy</button></div>'
    )


def _prose(text: str) -> str:
    """Return text with `code` in it, whose lines break between words alone."""

    def code(match: re.Match[str]) -> str:
        words = " ".join(f"<span>{word}</span>" for word in match[1].split(" "))
        return f'<code class="code">{words}</code>'

    return re.sub(r"`([^`]+)`", code, escape(text))


def _table(table: Table) -> str:
    kinds = [_kind(table, k) for k in range(len(table.columns))]

    def heading(column: Column, kind: str) -> str:
        unit = f"<span class=unit>[{escape(column.unit)}]</span>" if column.unit else ""
        return f'<th scope="col" class="{kind}">{escape(column.title)}{unit}</th>'

    def cells(row: Sequence[Cell]) -> str:
        return "".join(_cell(cell, k, table.columns[k], kinds[k]) for k, cell in enumerate(row))

    head = "".join(map(heading, table.columns, kinds))
    body = "".join(f"<tr>{cells(row)}</tr>" for row in table.rows)
    tall = " tall" if len(table.rows) > TALL else ""
    label = escape(table.caption or " ".join(column.title for column in table.columns[:2]))
    shown = table.caption and not table.folded
    caption = f"<caption>{escape(table.caption)}</caption>" if shown else ""
    note = f'<p class="under">{_prose(table.note)}</p>' if table.note else ""
    drawn = (
        f'<div class="table{tall}" tabindex="0" role="region"'
        f' aria-label="{label}"><table>{caption}<thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{note}"
    )
    if not table.folded:
        return drawn
    summary = f"<summary>{escape(table.caption)}</summary>"
    return f'<details class="fold">{summary}{drawn}</details>'


def _kind(table: Table, k: int) -> str:
    """Return the class of a column: how its cells stand."""
    column = table.columns[k]
    kind = "wide" if column.wide else "number" if table.is_numeric(k) else "text"
    return f"{kind} code" if column.code else kind


def _cell(cell: Cell, k: int, column: Column, kind: str) -> str:
    text = escape(format_cell(cell, column))
    if k == 0:
        return f'<th scope="row" class="{kind}" title="{text}">{text}</th>'
    return f'<td class="{f"{kind} {column.level(cell)}".rstrip()}">{text}</td>'


def _figure(figure: Figure, name: str) -> str:
    data = "".join(
        f'<script type="application/json" id="{name}-{k}">{embedded(panel.figure)}</script>'
        for k, panel in enumerate(figure.panels)
    )
    caption = f"<figcaption>{_prose(figure.caption)}</figcaption>" if figure.caption else ""
    if figure.arrangement == "grid":
        wide = " two" if len(figure.panels) <= SIDE_BY_SIDE else ""
        plots = "".join(
            _plot(figure, name, k, f"{name}-plot-{k}") for k in range(len(figure.panels))
        )
        return f'<figure><div class="grid{wide}">{plots}</div>{caption}{data}</figure>'
    plot = _plot(figure, name, figure.selected, f"{name}-plot")
    choice = _choice(figure, name) if len(figure.panels) > 1 else ""
    return f"<figure>{choice}{plot}{caption}{data}</figure>"


def _plot(figure: Figure, name: str, panel: int, identity: str) -> str:
    label = ": ".join(text for text in (figure.panels[panel].label, figure.caption) if text)
    height = int(figure.panels[panel].figure["layout"].get("height", 340))
    return (
        f'<div><div class="plot" id="{identity}" data-figure="{name}" data-panel="{panel}"'
        f' role="img" aria-label="{escape(label)}" style="height:{height}px"></div></div>'
    )


def _choice(figure: Figure, name: str) -> str:
    marks = ["" if k != figure.selected else " selected" for k in range(len(figure.panels))]
    options = "".join(
        f'<option value="{k}"'
        f' data-name="{escape(panel.label)}"{mark}>{escape(panel.note or panel.label)}</option>'
        for k, (panel, mark) in enumerate(zip(figure.panels, marks, strict=True))
    )
    what = escape(figure.group or "panel")
    return (
        f'<div class="choice"><label for="{name}-choice">{what}</label><button type="button"'
        f' data-step="-1" aria-label="previous {what}">‹</button><select id="{name}-choice"'
        f' data-plot="{name}-plot" data-group="{escape(figure.group)}">{options}</select><button'
        f' type="button" data-step="1" aria-label="next {what}">›</button></div>'
    )
