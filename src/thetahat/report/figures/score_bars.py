"""Figures of scores by joint: R² and RMS on logarithmic axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from thetahat.report.figures.base import (
    FITTED,
    NOMINAL,
    PLAIN,
    PREDICTED,
    Drawing,
    Trace,
    axis,
    dots,
    figure,
    filled,
    log_axis,
    relative,
    rows_axis,
    rows_height,
)

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
