"""Figures with a row per joint, body or parameter: scores, intervals, consistency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from thetahat.report.figures.base import (
    FITTED,
    GREY,
    NOMINAL,
    PLAIN,
    PREDICTED,
    WRONG,
    Drawing,
    Trace,
    axis,
    background,
    dots,
    figure,
    filled,
    linear,
    log_axis,
    relative,
    rows_axis,
    rows_height,
    shown,
)

IMPOSSIBLE = "rgba(217,72,59,0.13)"  # background of what no body can be
DIAMOND: dict[str, Any] = {"symbol": "diamond-open", "size": 9}
# What is scored: title, colour and marker, in the order of drawing; the most important comes last,
# on top.
KINDS = {
    "nominal": ("nominal", NOMINAL, "diamond-open"),
    "pseudo_inverse": ("pseudo-inverse", PLAIN, "x-thin-open"),
    "train": ("fitted", FITTED, "circle-open"),
    "test": ("held out", PREDICTED, "circle"),
}
FLOOR = 1e-6  # of 1 − R²: a fit better than that is at the axis' end
Scores = Mapping[str, Sequence[float | None]]


def _markers(kind: str, values: np.ndarray, **more: Any) -> Trace:
    """Return a marker per joint."""
    title, colour, symbol = KINDS[kind]
    rows = list(range(len(values)))
    return dots(relative(values), rows, title, colour, symbol=symbol, size=9, **more)


def _present(scores: Scores) -> dict[str, Sequence[float | None]]:
    """Return the scores that there are, in the order of drawing."""
    found = {kind: scores.get(kind, ()) for kind in KINDS}
    return {kind: each for kind, each in found.items() if any(x is not None for x in each)}


def r2_by_joint(names: Sequence[str], scores: Scores) -> Drawing:
    """Draw R² of every joint on an axis logarithmic in 1 − R². scores: by KINDS."""
    data, ends = [], [0.1, 1e-2]
    for kind, values in _present(scores).items():
        rest = np.maximum(1.0 - filled(values), FLOOR)
        text = ["–" if value is None else f"{value:.4f}" for value in values]
        data.append(_markers(kind, rest, text=text, hovertemplate="R² %{text}"))
        ends += [float(np.nanmin(rest)), float(np.nanmax(rest))]
    low, high = np.floor(np.log10(min(ends)) * 2.0) / 2.0, np.ceil(np.log10(max(ends)) * 2.0) / 2.0
    marks = 10.0 ** np.arange(np.ceil(low), np.floor(high) + 1.0)
    marks = np.sort(np.concatenate([marks, 0.5 * marks])) if len(marks) < 3 else marks
    scale = {
        "type": "log",
        "range": [high + 0.1, low - 0.1],
        "tickmode": "array",
        "tickvals": relative(marks),
        "ticktext": [f"{1.0 - mark:.6g}".replace("-", "−") for mark in marks],
        "tickangle": 0,
    }
    x = axis("R² (right is better)", **scale)
    return figure(data, x=x, y=rows_axis(names), height=rows_height(len(names)))


def rms_by_joint(names: Sequence[str], scores: Scores, *, unit: str = "N·m") -> Drawing:
    """Draw the RMS of every joint's residual on a logarithmic axis. scores: by KINDS."""
    data, ends = [], []
    for kind, each in _present(scores).items():
        values = filled(each)
        values[values <= 0.0] = np.nan
        data.append(_markers(kind, values, hovertemplate=f"%{{x:.3g}} {unit}"))
        ends += values[np.isfinite(values)].tolist()
    low, high = (min(ends) / 1.25, max(ends) * 1.25) if ends else (0.1, 1.0)
    x = log_axis(f"RMS [{unit}] (left is better)", low, high)
    return figure(data, x=x, y=rows_axis(names), height=rows_height(len(names)))


def parameter_intervals(
    names: Sequence[str],
    values: Sequence[float | None],
    std: Sequence[float | None],
    nominal: Sequence[float | None] | None = None,
    *,
    title: str,
    labels: Sequence[str] | None = None,
) -> Drawing:
    """Draw values with intervals of ± 2 standard deviations beside the nominal ones, one row each.

    labels: short names for the axis.
    """
    x, spread, rows = filled(values), filled(std), np.arange(len(names))
    known = np.isfinite(spread)
    data: list[Trace] = []
    if nominal is not None and any(value is not None for value in nominal):
        hover = {"hovertemplate": "nominal %{x}", **DIAMOND}
        data.append(dots(relative(filled(nominal)), rows.tolist(), "nominal", NOMINAL, **hover))

    def add(which: np.ndarray, label: str, colour: str, texts: list[str], **more: Any) -> None:
        if which.any():
            text = [f"{shown(names[k])}<br>{texts[k]}" for k in np.flatnonzero(which).tolist()]
            style = {"size": 7, "text": text, "hovertemplate": "%{text}", **more}
            data.append(dots(relative(x[which]), rows[which].tolist(), label, colour, **style))

    shown_values = [f"{a:.4g} ± {b:.2g}" for a, b in zip(x, spread, strict=True)]
    interval = {"type": "data", "array": relative(2.0 * spread[known]), "thickness": 1.5}
    add(known, "identified ± 2σ", PREDICTED, shown_values, error_x={**interval, "width": 4})
    unidentifiable = ["unidentifiable"] * len(names)
    add(~known, "unidentifiable", GREY, unidentifiable, symbol="circle-open")
    height = rows_height(len(names), each=22)
    y = rows_axis(labels or names)
    return figure(data, x=axis(title, zeroline=True), y=y, height=height)


def consistency_margins(
    names: Sequence[str],
    identified: Sequence[float | None],
    nominal: Sequence[float | None] | None = None,
) -> Drawing:
    """Draw (I₁ + I₂ − I₃)/(I₁ + I₂ + I₃) of every body's principal moments.

    1/3 for a ball, 0 for a flat plate or a rod, negative for no rigid body.
    """
    data = []
    if nominal is not None and any(value is not None for value in nominal):
        rows = list(range(len(names)))
        data.append(dots(linear(filled(nominal)), rows, "nominal", NOMINAL, **DIAMOND))
    values = filled(identified)
    good, bad = values >= 0.0, values < 0.0
    for title, colour, which in (("identified", PREDICTED, good), ("impossible", WRONG, bad)):
        if which.any():
            at = np.flatnonzero(which).tolist()
            data.append(dots(linear(values[which]), at, title, colour, size=9))
    finite = [value for value in (*identified, *(nominal or ())) if value is not None]
    low = float(min(-0.04, *(value - 0.02 for value in finite))) if finite else -0.04
    x = axis("(I₁ + I₂ − I₃) / (I₁ + I₂ + I₃)", range=[round(low, 4), 0.35])
    height, shapes = rows_height(len(names)), [background(low, 0.0, IMPOSSIBLE)]
    return figure(data, x=x, y=rows_axis(names), height=height, shapes=shapes)
