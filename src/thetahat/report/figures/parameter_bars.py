"""Figures of parameters: intervals beside nominal values, and margins of consistency."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from thetahat.report.figures.base import (
    GREY,
    NOMINAL,
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
    relative,
    rows_axis,
    rows_height,
    shown,
)

IMPOSSIBLE = "rgba(217,72,59,0.13)"  # background of what no body can be
DIAMOND: dict[str, Any] = {"symbol": "diamond-open", "size": 9}


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
