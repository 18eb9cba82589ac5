"""Figures of an online run: joints over time, R² over time against the gate's threshold, and the
robot's poses side by side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from thetahat.model.robot import Robot
from thetahat.report.figures.base import (
    BLUE,
    GREEN,
    GREY,
    NOMINAL,
    ORANGE,
    PURPLE,
    RED,
    axis,
    figure,
    ground,
    line,
    linear,
    shown,
    swatch,
)
from thetahat.report.figures.stick_figure import bones
from thetahat.report.traces import Series

COLOURS = (BLUE, ORANGE, GREEN, PURPLE, RED, GREY)
DASHES = ("solid", "dash", "dot", "dashdot")
IDENTIFIED = "rgba(15,148,112,0.10)"  # ground of time on an identified model
LOWEST = -0.05  # of an R² axis: what is worse than nothing is all alike
ROOM = 0.15  # between two tiles, of a tile's width


def over_time(
    lines: Mapping[str, Series],
    title: str,
    *,
    identified: Sequence[tuple[float, float]] = (),
    clock: str = "time [s]",
) -> dict[str, Any]:
    """Lines over time, such as one per joint; time on an identified model on a ground of
    its own.
    """
    data = [
        line(linear(each.t), linear(each.y), shown(name), COLOURS[k % len(COLOURS)], dash=_dash(k))
        for k, (name, each) in enumerate(lines.items())
    ]
    return _with_ground(
        figure(data, x=axis(clock), y=axis(title, zeroline=True), hovermode="x unified"), identified
    )


def wanted_and_measured(
    wanted: Series, measured: Series, title: str, *, identified: Sequence[tuple[float, float]] = ()
) -> dict[str, Any]:
    """Where a joint was to be, and where it was."""
    data = [
        line(linear(wanted.t), linear(wanted.y), "wanted", GREY, width=2.6),
        line(linear(measured.t), linear(measured.y), "measured", BLUE, width=1.4),
    ]
    return _with_ground(
        figure(data, x=axis("time [s]"), y=axis(title), hovermode="x unified"), identified
    )


def r2_over_time(
    curves: Mapping[str, Series],
    *,
    threshold: float | None = None,
    identified: Sequence[tuple[float, float]] = (),
    full_at: float | None = None,
) -> dict[str, Any]:
    """R² as it develops, the gate's threshold, and when the buffer was full."""
    data = [
        line(
            linear(each.t),
            linear(np.maximum(each.y, LOWEST)),
            shown(name),
            COLOURS[k % len(COLOURS)],
            width=2 if k == 0 else 1.3,
            dash=_dash(k),
        )
        for k, (name, each) in enumerate(curves.items())
    ]
    found = figure(
        data,
        x=axis("time [s]"),
        y=axis("R²", range=[LOWEST, 1.03]),
        hovermode="x unified",
        shapes=[],
    )
    style = {"color": NOMINAL, "width": 1, "dash": "dash"}
    if threshold is not None:
        found["layout"]["shapes"].append(
            {
                "type": "line",
                "xref": "paper",
                "x0": 0,
                "x1": 1,
                "y0": threshold,
                "y1": threshold,
                "line": style,
            }
        )
        data.append(line([None], [None], f"threshold {threshold:g}", NOMINAL, width=1, dash="dash"))
    if full_at is not None:
        dots = {**style, "dash": "dot", "color": GREY}
        found["layout"]["shapes"].append(
            {
                "type": "line",
                "yref": "paper",
                "x0": full_at,
                "x1": full_at,
                "y0": 0,
                "y1": 1,
                "line": dots,
            }
        )
        data.append(line([None], [None], "buffer full", GREY, width=1, dash="dot"))
    return _with_ground(found, identified)


def filling(
    fill: Series, rank: Series, *, window: int, structural_rank: int | None = None
) -> dict[str, Any]:
    """Draw the fill of the buffer, and the rank of the data as share of the structural rank [%]."""
    data = [
        line(linear(fill.t), linear(fill.y), f"buffer, of {window} samples", BLUE, width=2),
        line(
            linear(rank.t),
            linear(rank.y),
            "rank" if structural_rank is None else f"rank, of {structural_rank}",
            PURPLE,
            dash="dash",
        ),
    ]
    return figure(
        data, x=axis("time [s]"), y=axis("share [%]", range=[0, 103]), hovermode="x unified"
    )


def cycle_time(p50: Series, p99: Series) -> dict[str, Any]:
    """Processor time of a control cycle: its median and its 99th percentile."""
    data = [
        line(linear(p50.t), linear(p50.y), "median", BLUE, width=2),
        line(linear(p99.t), linear(p99.y), "99th percentile", ORANGE, dash="dash"),
    ]
    return figure(
        data, x=axis("time [s]"), y=axis("cycle [µs]", rangemode="tozero"), hovermode="x unified"
    )


def tiles(robot: Robot, poses: np.ndarray, times: Sequence[float]) -> dict[str, Any]:
    """The robot at several moments side by side, seen from where its motion is widest (paper's
    tiles).
    """
    drawn = [bones(robot, q) for q in poses]
    every = np.concatenate([bone for pose in drawn for bone in pose])
    sideways = int(np.argmax(np.ptp(every[:, :2], axis=0)))  # x or y; up stays up
    low, high = every.min(axis=0), every.max(axis=0)
    step = float(high[sideways] - low[sideways]) * (1.0 + ROOM) or 1.0
    data, notes = [], []
    for k, (pose, t) in enumerate(zip(drawn, times, strict=True)):
        x = np.concatenate(
            [np.append(bone[:, sideways] - low[sideways] + k * step, np.nan) for bone in pose]
        )
        z = np.concatenate([np.append(bone[:, 2], np.nan) for bone in pose])
        style = {
            "mode": "lines+markers",
            "marker": {"size": 5, "color": GREY},
            "showlegend": False,
            "hoverinfo": "skip",
        }
        data.append(line(linear(x), linear(z), f"{t:.1f} s", BLUE, width=4) | style)
        notes.append(
            {
                "x": (k + 0.45) * step,
                "y": float(low[2]),
                "yshift": -18,
                "text": f"{t:.1f} s",
                "showarrow": False,
            }
        )
    across = axis(
        "",
        showticklabels=False,
        showgrid=False,
        constrain="domain",
        range=[-0.1 * step, len(drawn) * step],
    )
    up = axis(
        "z [m]",
        scaleanchor="x",
        constrain="domain",
        nticks=4,
        range=[float(low[2]) - 0.15 * step, float(high[2]) + 0.1 * step],
    )
    return figure(data, x=across, y=up, height=320, annotations=notes)


def stretches(t: np.ndarray, flag: np.ndarray) -> list[tuple[float, float]]:
    """Begin and end of every stretch in which a flag is set."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flag, [False]]).astype(int)))
    return [
        (float(t[begin]), float(t[min(end, len(t) - 1)])) for begin, end in edges.reshape(-1, 2)
    ]


def _dash(k: int) -> str:
    """Lines beyond the colours differ in kind."""
    return DASHES[k // len(COLOURS) % len(DASHES)]


def _with_ground(
    found: dict[str, Any], identified: Sequence[tuple[float, float]]
) -> dict[str, Any]:
    if identified:
        found["layout"].setdefault("shapes", []).extend(
            ground(begin, end, IDENTIFIED) for begin, end in identified
        )
        found["data"].append(swatch("on the identified model", IDENTIFIED))
    return found
