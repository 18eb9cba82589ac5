"""Colours, axes, lines and markers that all figures share.

Colours are of middle lightness, so that each stands out on a light and on a dark ground, and differ
for colour-blind readers; lines and markers differ in kind too. The page gives text, grids and
grounds the colours of its theme.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

Drawing = dict[str, Any]  # {data, layout} for Plotly.js
Trace = dict[str, Any]  # one of its data

GREY, BLUE, ORANGE = "#808790", "#2f7ed8", "#d0740f"
PURPLE, GREEN, RED = "#a35cc4", "#0f9470", "#d9483b"
MEASURED, PREDICTED, NOMINAL, FITTED, PLAIN, WRONG = GREY, BLUE, ORANGE, PURPLE, GREEN, RED
HELD_OUT = "rgba(47,126,216,0.09)"  # ground of what the fit has not seen
STILL = "rgba(128,135,144,0.22)"  # ground of standstill
STEPS = 20_000  # across the range of a linear axis: finer than any screen
LONGEST_NAME = 22
ENOUGH_MARKS, MOST_MARKS = 4, 12  # on a logarithmic axis


def linear(values: Iterable[float]) -> list[float | None]:
    """Return numbers rounded to what a linear axis can show; None where not finite."""
    array = np.asarray(values, dtype=float)
    finite = array[np.isfinite(array)]
    if not finite.size:
        return [None] * array.size
    span = float(np.ptp(finite)) or float(np.max(np.abs(finite))) or 1.0
    decimals = int(min(max(np.ceil(np.log10(STEPS / span)), -300), 300))
    rounded = np.round(array, decimals)
    out: list[float | None] = rounded.tolist()
    for k in np.flatnonzero(~np.isfinite(rounded)):
        out[k] = None
    return out


def relative(values: Iterable[float], digits: int = 4) -> list[float | None]:
    """Return numbers with so many significant digits; None where not finite."""
    return [
        None if not math.isfinite(value) else float(f"{value:.{digits}g}")
        for value in np.asarray(values, dtype=float).tolist()
    ]


def filled(values: Iterable[float | None]) -> np.ndarray:
    """Return numbers as an array, NaN for None."""
    return np.array([np.nan if value is None else value for value in values], dtype=float)


def fit(name: str, longest: int = LONGEST_NAME) -> str:
    """Return a name cut in its middle, where it is too long for an axis."""
    if len(name) <= longest:
        return name
    head = (longest - 1) // 2
    return f"{name[:head]}…{name[head + 1 - longest :]}"


def shown(text: str) -> str:
    """Return a name escaped for Plotly.js, which takes a few tags in texts as markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def axis(title: str = "", **more: Any) -> dict[str, Any]:
    """Return an axis; its margin grows with its labels."""
    return {"title": {"text": title, "standoff": 8}, "automargin": True, "zeroline": False, **more}


def log_axis(title: str, low: float, high: float, **more: Any) -> dict[str, Any]:
    """Return a logarithmic axis with marks at 1, 2, 5, 10 …, or at decades where those crowd."""
    low, high = (float(low), float(high)) if 0.0 < low < high < np.inf else (0.1, 10.0)
    decades = range(int(np.floor(np.log10(low))) - 1, int(np.ceil(np.log10(high))) + 1)
    marks: list[float] = []
    for steps in ((1,), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), tuple(np.arange(10, 100) / 10.0)):
        marks = [
            step * 10.0**k
            for k in decades
            for step in steps
            if low * 0.999 <= step * 10.0**k <= high * 1.001
        ]
        if len(marks) >= ENOUGH_MARKS:
            break
    marks = marks[:: 1 + len(marks) // MOST_MARKS]
    ends = relative([np.log10(low), np.log10(high)], 6)
    return axis(
        title,
        type="log",
        range=ends,
        tickmode="array",
        tickvals=relative(marks),
        ticktext=[f"{mark:g}" for mark in relative(marks)],
        **more,
    )


def figure(
    data: list[Trace], *, x: dict[str, Any], y: dict[str, Any], height: int = 340, **layout: Any
) -> Drawing:
    """Return a drawing with one pair of axes, the legend above it."""
    base = {
        "height": height,
        "margin": {"l": 56, "r": 16, "t": 16, "b": 44},
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"},
        "hovermode": "closest",
        "showlegend": True,
    }
    return {"data": data, "layout": {**base, "xaxis": x, "yaxis": y, **layout}}


def line(
    t: Sequence[float | None], y: Sequence[float | None], name: str, colour: str, **more: Any
) -> Trace:
    """Return a line with gaps where y is None."""
    style = {"color": colour, "width": more.pop("width", 1.5), "dash": more.pop("dash", "solid")}
    base = {"type": "scatter", "mode": "lines", "x": t, "y": y, "name": name}
    return {**base, "line": style, "connectgaps": False, **more}


def dots(x: Sequence[float | None], y: Sequence[Any], name: str, colour: str, **more: Any) -> Trace:
    """Return markers."""
    marker = {
        "color": colour,
        "size": more.pop("size", 6),
        "symbol": more.pop("symbol", "circle"),
        "opacity": more.pop("opacity", 1.0),
    }
    if "-open" in marker["symbol"]:
        marker["line"] = {"width": 2, "color": colour}
    base = {"type": "scatter", "mode": "markers", "x": x, "y": y, "name": name}
    return {**base, "marker": marker, **more}


def add_rule(
    drawing: Drawing, name: str, colour: str = GREY, dash: str = "dash", **at: float | None
) -> None:
    """Add lines across the figure, at x= or y= (and y2=), and an entry of the legend for them."""
    shapes = drawing["layout"].setdefault("shapes", [])
    style = {"color": colour, "width": 1, "dash": dash}
    for axis_name, value in at.items():
        along, across = ("x", "y") if axis_name[0] == "x" else ("y", "x")
        ends = {f"{along}0": value, f"{along}1": value, f"{across}0": 0, f"{across}1": 1}
        shapes.append({"type": "line", f"{across}ref": "paper", **ends, "line": style})
    drawing["data"].append(line([None], [None], name, colour, width=1, dash=dash))


def background(begin: float, end: float, colour: str) -> dict[str, Any]:
    """Return a coloured background of an interval of the x axis."""
    ends = {"xref": "x", "yref": "paper", "x0": begin, "x1": end, "y0": 0, "y1": 1}
    style = {"fillcolor": colour, "line": {"width": 0}, "layer": "below"}
    return {"type": "rect", **ends, **style}


def swatch(name: str, colour: str) -> Trace:
    """Return an entry of the legend for a background."""
    marker = {
        "symbol": "square",
        "size": 12,
        "color": colour,
        "line": {"width": 1, "color": GREY},
    }
    base = {"type": "scatter", "mode": "markers", "x": [None], "y": [None], "name": name}
    return {**base, "hoverinfo": "skip", "marker": marker}


def rows_axis(names: Sequence[str], **more: Any) -> dict[str, Any]:
    """Return a y axis with one row per name, the first on top."""
    count = len(names)
    return axis(
        tickmode="array",
        tickvals=list(range(count)),
        ticktext=[shown(fit(name)) for name in names],
        range=[count - 0.4, -0.6],
        showgrid=count <= 60,
        **more,
    )


def rows_height(count: int, *, each: int = 26) -> int:
    """Return the height of a figure with one row per name."""
    return 110 + each * max(count, 2)
