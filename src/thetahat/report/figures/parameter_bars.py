"""Figures of parameters: intervals beside the file's values, and how far every body is from what no
body can be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from thetahat.report.figures.base import (
    GREY,
    NOMINAL,
    PREDICTED,
    WRONG,
    axis,
    dots,
    figure,
    filled,
    linear,
    relative,
    rows_axis,
    rows_height,
    shown,
)

IMPOSSIBLE = "rgba(217,72,59,0.13)"  # ground of what no body can be


def parameter_intervals(
    names: Sequence[str],
    values: Sequence[float | None],
    std: Sequence[float | None],
    nominal: Sequence[float | None] | None = None,
    *,
    title: str,
    labels: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Values with intervals of ± 2 standard deviations, beside the file's; one row each. labels:
    short names for the axis.
    """
    x, spread, rows = filled(values), filled(std), np.arange(len(names))
    known = np.isfinite(spread)
    data = []
    if nominal is not None and any(value is not None for value in nominal):
        data.append(
            dots(
                relative(filled(nominal)),
                rows.tolist(),
                "nominal",
                NOMINAL,
                symbol="diamond-open",
                size=9,
                hovertemplate="nominal %{x}",
            )
        )
    error = {"type": "data", "array": relative(2.0 * spread[known]), "thickness": 1.5, "width": 4}
    text = [f"{shown(names[k])}<br>{values[k]:.4g} ± {std[k]:.2g}" for k in np.flatnonzero(known)]
    if known.any():
        data.append(
            dots(
                relative(x[known]),
                rows[known].tolist(),
                "identified ± 2σ",
                PREDICTED,
                size=7,
                error_x=error,
                text=text,
                hovertemplate="%{text}",
            )
        )
    if not known.all():
        hidden = ~known
        text = [f"{shown(names[k])}<br>not seen by the log" for k in np.flatnonzero(hidden)]
        data.append(
            dots(
                relative(x[hidden]),
                rows[hidden].tolist(),
                "not seen",
                GREY,
                size=7,
                symbol="circle-open",
                text=text,
                hovertemplate="%{text}",
            )
        )
    x_axis = axis(title, zeroline=True)
    return figure(
        data, x=x_axis, y=rows_axis(labels or names), height=rows_height(len(names), each=22)
    )


def consistency_margins(
    names: Sequence[str],
    identified: Sequence[float | None],
    nominal: Sequence[float | None] | None = None,
) -> dict[str, Any]:
    """(I₁ + I₂ − I₃)/(I₁ + I₂ + I₃) of every body's principal moments: 1/3 a ball, 0 a flat plate
    or a rod, below 0 no body at all.
    """
    data = []
    if nominal is not None and any(value is not None for value in nominal):
        data.append(
            dots(
                linear(filled(nominal)),
                list(range(len(names))),
                "nominal",
                NOMINAL,
                symbol="diamond-open",
                size=9,
            )
        )
    values = filled(identified)
    bad = values < 0.0
    for title, colour, which in (
        ("identified", PREDICTED, ~bad & np.isfinite(values)),
        ("impossible", WRONG, bad),
    ):
        if which.any():
            data.append(
                dots(linear(values[which]), np.flatnonzero(which).tolist(), title, colour, size=9)
            )
    finite = [value for value in (*identified, *(nominal or ())) if value is not None]
    low = min(-0.04, *(value - 0.02 for value in finite)) if finite else -0.04
    shapes = [
        {
            "type": "rect",
            "yref": "paper",
            "x0": low,
            "x1": 0,
            "y0": 0,
            "y1": 1,
            "fillcolor": IMPOSSIBLE,
            "line": {"width": 0},
            "layer": "below",
        }
    ]
    x = axis("(I₁ + I₂ − I₃) / (I₁ + I₂ + I₃)", range=[round(float(low), 4), 0.35])
    return figure(data, x=x, y=rows_axis(names), height=rows_height(len(names)), shapes=shapes)
