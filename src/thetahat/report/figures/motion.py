"""The motion of a joint: position, velocity and acceleration over time, with its limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from thetahat.report.figures.base import (
    GREEN,
    HELD_OUT,
    PREDICTED,
    PURPLE,
    WRONG,
    Drawing,
    Trace,
    axis,
    background,
    line,
    linear,
    relative,
    swatch,
)
from thetahat.report.traces import Series

NEAR = 2.0  # a limit is drawn where the motion spans at least one part in so many up to it
GAP = 0.05  # of the height, between the plots


@dataclass(frozen=True)
class JointLimits:
    """Limits of a joint; infinite where its file states none."""

    lower: float = -np.inf  # [rad or m]
    upper: float = np.inf
    velocity: float = np.inf  # [rad/s or m/s]


def motion_over_time(
    position: Series | None,
    velocity: Series,
    acceleration: Series,
    *,
    rate: str = "rad/s",
    clock: str = "time [s]",
    held_out: tuple[float, float] | None = None,
    limits: JointLimits | None = None,
) -> Drawing:
    """Draw q, q̇ and q̈ over time, one above the other, with limits of position and velocity."""
    limits, unit = limits or JointLimits(), rate.removesuffix("/s")
    rows: list[tuple[str, Series, str, tuple[float, float]]] = [
        (f"q̇ [{rate}]", velocity, PREDICTED, (-limits.velocity, limits.velocity)),
        (f"q̈ [{rate}²]", acceleration, PURPLE, (-np.inf, np.inf)),
    ]
    if position is not None:
        rows.insert(0, (f"q [{unit}]", position, GREEN, (limits.lower, limits.upper)))
    data: list[Trace] = []
    layout: dict[str, Any] = {
        "height": 90 + 150 * len(rows),
        "margin": {"l": 56, "r": 16, "t": 16, "b": 44},
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"},
        "hovermode": "x unified",
        "showlegend": True,
        "xaxis": axis(clock, anchor=f"y{len(rows)}" if len(rows) > 1 else "y"),
        "shapes": [],
    }
    share = (1.0 - GAP * (len(rows) - 1)) / len(rows)
    for k, (title, series, colour, ends) in enumerate(rows):
        name = "y" if k == 0 else f"y{k + 1}"
        top = 1.0 - k * (share + GAP)
        domain = [max(0.0, round(top - share, 4)), round(top, 4)]
        layout["yaxis" + name[1:]] = axis(title, domain=domain)
        data.append(
            line(linear(series.t), linear(series.y), title.split(" ")[0], colour, yaxis=name)
        )
        data += _limit_lines(series, ends, name, title)
    if held_out is not None:
        layout["shapes"].append(background(*held_out, HELD_OUT))
        data.append(swatch("held out", HELD_OUT))
    return {"data": data, "layout": layout}


def _limit_lines(
    series: Series, ends: tuple[float, float], axis_name: str, title: str
) -> list[Trace]:
    """Return dashed lines at limits; of limits far away, their values in the legend alone."""
    known = [end for end in ends if np.isfinite(end)]
    finite = series.y[np.isfinite(series.y)]
    if not known or not finite.size:
        return []
    name = f"limits of {title.split(' ')[0]}: {' … '.join(f'{end:.3g}' for end in known)}".replace(
        "-", "−"
    )
    low, high = float(finite.min()), float(finite.max())
    span = max(high - low, 1e-9)
    near = [end for end in known if low - NEAR * span <= end <= high + NEAR * span]
    t = relative([float(series.t[0]), float(series.t[-1])], 6)
    style = {"dash": "dash", "width": 1, "yaxis": axis_name, "hoverinfo": "skip"}
    if not near:
        return [line([None], [None], name, WRONG, **style)]
    return [
        line(t, relative([end, end]), name, WRONG, showlegend=k == 0, legendgroup=name, **style)
        for k, end in enumerate(near)
    ]
