"""Figures of scores by joint: R² spread out near one, and RMS."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from thetahat.report.figures.base import (
    FITTED,
    NOMINAL,
    PLAIN,
    PREDICTED,
    axis,
    dots,
    figure,
    filled,
    log_axis,
    relative,
    rows_axis,
    rows_height,
)

# What is scored: title, colour, marker and its size, in the order of drawing; what matters most
# comes last, on top.
KINDS = {
    "nominal": ("nominal", NOMINAL, "diamond-open", 9),
    "pseudo_inverse": ("pseudo-inverse", PLAIN, "x-thin-open", 9),
    "train": ("fitted", FITTED, "circle-open", 9),
    "test": ("held out", PREDICTED, "circle", 9),
}
FLOOR = 1e-6  # of 1 − R²: a fit better than that is at the axis' end


def r2_by_joint(
    names: Sequence[str], scores: Mapping[str, Sequence[float | None]]
) -> dict[str, Any]:
    """R² of every joint on an axis that spreads out what is near one: 0.9, 0.99, 0.999 are equally
    far apart. scores: by KINDS.
    """
    data, ends = [], [0.1, 1e-2]
    for kind, (title, colour, symbol, size) in KINDS.items():
        if kind not in scores or all(value is None for value in scores[kind]):
            continue
        left = np.maximum(1.0 - filled(scores[kind]), FLOOR)
        text = ["–" if value is None else f"{value:.4f}" for value in scores[kind]]
        data.append(
            dots(
                relative(left),
                list(range(len(names))),
                title,
                colour,
                symbol=symbol,
                size=size,
                text=text,
                hovertemplate="R² %{text}",
            )
        )
        ends += [float(np.nanmin(left)), float(np.nanmax(left))]
    low, high = np.floor(np.log10(min(ends)) * 2.0) / 2.0, np.ceil(np.log10(max(ends)) * 2.0) / 2.0
    marks = 10.0 ** np.arange(np.ceil(low), np.floor(high) + 1.0)
    marks = np.sort(np.concatenate([marks, 0.5 * marks])) if len(marks) < 3 else marks
    labels = [f"{1.0 - mark:.6g}".replace("-", "−") for mark in marks]
    scale = {
        "type": "log",
        "range": [high + 0.1, low - 0.1],
        "tickmode": "array",
        "tickvals": relative(marks),
        "ticktext": labels,
        "tickangle": 0,
    }
    x = axis("R² (right is better)", **scale)
    return figure(data, x=x, y=rows_axis(names), height=rows_height(len(names)))


def rms_by_joint(
    names: Sequence[str], scores: Mapping[str, Sequence[float | None]], *, unit: str = "N·m"
) -> dict[str, Any]:
    """RMS of what is left of every joint's torque, on a logarithmic axis. scores: by KINDS."""
    data, ends = [], []
    for kind, (title, colour, symbol, size) in KINDS.items():
        if kind not in scores or all(value is None for value in scores[kind]):
            continue
        values = filled(scores[kind])
        values[values <= 0.0] = np.nan
        hover = f"%{{x:.3g}} {unit}"
        data.append(
            dots(
                relative(values),
                list(range(len(names))),
                title,
                colour,
                symbol=symbol,
                size=size,
                hovertemplate=hover,
            )
        )
        ends += values[np.isfinite(values)].tolist()
    low, high = (min(ends) / 1.25, max(ends) * 1.25) if ends else (0.1, 1.0)
    x = log_axis(f"RMS [{unit}] (left is better)", low, high)
    return figure(data, x=x, y=rows_axis(names), height=rows_height(len(names)))
