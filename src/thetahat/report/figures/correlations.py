"""Correlations of estimated parameters as a heat map."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from thetahat.report.figures.base import BLUE, ORANGE, Drawing, fit, shown

NEUTRAL = "rgba(128,135,144,0.10)"
LABELLED = 32  # parameters up to which every row has its name


def correlation_map(
    names: Sequence[str], matrix: np.ndarray, *, labels: Sequence[str] | None = None
) -> Drawing:
    """Draw correlation coefficients from −1 to 1. labels: short names for the axes."""
    count = len(names)
    step = 1 + (count - 1) // LABELLED
    short = [shown(fit(label, 18)) for label in (labels or names)]
    ticks = {
        "tickmode": "array",
        "tickvals": list(range(0, count, step)),
        "ticktext": short[::step],
        "automargin": True,
        "showgrid": False,
        "zeroline": False,
    }
    heat = {
        "type": "heatmap",
        "z": np.round(np.asarray(matrix, dtype=float), 2).tolist(),
        "zmin": -1.0,
        "zmax": 1.0,
        "colorscale": [[0.0, ORANGE], [0.5, NEUTRAL], [1.0, BLUE]],
        "colorbar": {"thickness": 12, "len": 0.8, "tickvals": [-1, -0.5, 0, 0.5, 1]},
        "hovertemplate": "%{y}<br>%{x}<br>ρ = %{z}<extra></extra>",
    }
    height = 40 + min(640, max(240, 14 * count))
    layout = {
        "height": height,
        "margin": {"l": 60, "r": 10, "t": 16, "b": 20},
        "xaxis": {**ticks, "showticklabels": False, "ticks": ""},  # the rows' names, no room here
        "yaxis": {**ticks, "autorange": "reversed"},
        "showlegend": False,
    }
    return {"data": [heat], "layout": layout}
