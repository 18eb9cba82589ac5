"""Figures of an online run: joints and R² over time, buffer, cycle time, and poses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
    Drawing,
    Trace,
    add_rule,
    axis,
    background,
    figure,
    line,
    linear,
    log_axis,
    relative,
    shown,
    swatch,
)
from thetahat.report.figures.stick_figure import bones
from thetahat.report.traces import Series

COLOURS = (BLUE, ORANGE, GREEN, PURPLE, RED, GREY)
DASHES = ("solid", "dash", "dot", "dashdot")
IDENTIFIED = "rgba(15,148,112,0.10)"  # background of time on an identified model
LOWEST = -0.05  # of an R² axis: what is worse than nothing is all alike
LEAST_LEFT, MOST_LEFT = 1e-9, 1e6  # of 1 − R²: what is drawn
ROOM = 0.15  # between two tiles, of a tile's width


def over_time(
    lines: Mapping[str, Series],
    title: str,
    *,
    identified: Sequence[tuple[float, float]] = (),
    clock: str = "time [s]",
) -> Drawing:
    """Draw lines over time, such as one per joint; time on an identified model is marked."""
    y = axis(title, zeroline=True)
    drawing = figure(_lines(lines), x=axis(clock), y=y, hovermode="x unified")
    return _with_background(drawing, identified)


def _lines(curves: Mapping[str, Series], first: float = 1.5, others: float = 1.5) -> list[Trace]:
    """Return lines that differ in colour and, beyond the colours, in dash. first: width [px]."""
    return [
        line(
            linear(each.t),
            linear(each.y),
            shown(name),
            COLOURS[k % len(COLOURS)],
            width=others if k else first,
            dash=DASHES[k // len(COLOURS) % len(DASHES)],
        )
        for k, (name, each) in enumerate(curves.items())
    ]


def wanted_and_measured(
    wanted: Series, measured: Series, title: str, *, identified: Sequence[tuple[float, float]] = ()
) -> Drawing:
    """Draw desired and measured position of a joint."""
    data = [
        line(linear(wanted.t), linear(wanted.y), "desired", GREY, width=2.6),
        line(linear(measured.t), linear(measured.y), "measured", BLUE, width=1.4),
    ]
    drawing = figure(data, x=axis("time [s]"), y=axis(title), hovermode="x unified")
    return _with_background(drawing, identified)


def r2_over_time(
    curves: Mapping[str, Series],
    *,
    threshold: float | None = None,
    identified: Sequence[tuple[float, float]] = (),
    full_at: float | None = None,
) -> Drawing:
    """Draw R² over time, the gate's threshold, and when the buffer was full."""
    cut = {name: Series(each.t, np.maximum(each.y, LOWEST)) for name, each in curves.items()}
    y = axis("R²", range=[LOWEST, 1.03])
    data = _lines(cut, first=2, others=1.3)
    drawing = figure(data, x=axis("time [s]"), y=y, hovermode="x unified", shapes=[])
    if threshold is not None:
        add_rule(drawing, f"threshold {threshold:g}", NOMINAL, y=threshold)
    if full_at is not None:
        add_rule(drawing, "buffer full", dash="dot", x=full_at)
    return _with_background(drawing, identified)


def unexplained_over_time(
    curves: Mapping[str, Series],
    *,
    threshold: float | None = None,
    identified: Sequence[tuple[float, float]] = (),
    full_at: float | None = None,
) -> Drawing:
    """Draw 1 − R² over time on a logarithmic axis, where a wrong first guess shows, and so does
    what is gained close to one; the gate's threshold, and when the buffer was full.
    """
    left = {
        name: Series(each.t, np.clip(1.0 - each.y, LEAST_LEFT, MOST_LEFT))
        for name, each in curves.items()
    }
    values = np.concatenate([[], *(each.y[np.isfinite(each.y)] for each in left.values())])
    if threshold is not None and threshold < 1.0:
        values = np.append(values, 1.0 - threshold)
    low, high = (values.min(), values.max()) if len(values) else (0.01, 1.0)
    data = _lines(left, first=2, others=1.3)
    for drawn, each in zip(data, left.values(), strict=True):
        drawn["y"] = relative(each.y)  # digits that a linear axis would not show
    y = log_axis("1 − R² (lower is better)", 0.7 * low, 1.4 * high)
    drawing = figure(data, x=axis("time [s]"), y=y, hovermode="x unified", shapes=[])
    if threshold is not None and threshold < 1.0:
        add_rule(drawing, f"threshold: R² {threshold:g}", NOMINAL, y=1.0 - threshold)
    if full_at is not None:
        add_rule(drawing, "buffer full", dash="dot", x=full_at)
    return _with_background(drawing, identified)


def filling(
    fill: Series, rank: Series, *, window: int, structural_rank: int | None = None
) -> Drawing:
    """Draw the fill of the buffer, and the rank of the data as share of the structural rank [%]."""
    title = "rank" if structural_rank is None else f"rank, of {structural_rank}"
    data = [
        line(linear(fill.t), linear(fill.y), f"buffer, of {window} samples", BLUE, width=2),
        line(linear(rank.t), linear(rank.y), title, PURPLE, dash="dash"),
    ]
    y = axis("share [%]", range=[0, 103])
    return figure(data, x=axis("time [s]"), y=y, hovermode="x unified")


def cycle_time(p50: Series, p99: Series) -> Drawing:
    """Draw the processor time of a control cycle: its median and its 99th percentile."""
    data = [
        line(linear(p50.t), linear(p50.y), "median", BLUE, width=2),
        line(linear(p99.t), linear(p99.y), "99th percentile", ORANGE, dash="dash"),
    ]
    y = axis("cycle [µs]", rangemode="tozero")
    return figure(data, x=axis("time [s]"), y=y, hovermode="x unified")


def tiles(robot: Robot, poses: np.ndarray, times: Sequence[float]) -> Drawing:
    """Draw the robot at several times side by side, from where its motion is widest (paper)."""
    drawn = [bones(robot, q) for q in poses]
    every = np.concatenate([bone for pose in drawn for bone in pose])
    sideways = int(np.argmax(np.ptp(every[:, :2], axis=0)))  # x or y; up stays up
    low, high = every.min(axis=0), every.max(axis=0)
    step = float(high[sideways] - low[sideways]) * (1.0 + ROOM) or 1.0
    marker = {"marker": {"size": 5, "color": GREY}, "mode": "lines+markers"}
    data, notes = [], []
    for k, (pose, t) in enumerate(zip(drawn, times, strict=True)):
        shift = k * step - low[sideways]
        x = np.concatenate([np.append(bone[:, sideways] + shift, np.nan) for bone in pose])
        z = np.concatenate([np.append(bone[:, 2], np.nan) for bone in pose])
        trace = line(linear(x), linear(z), f"{t:.1f} s", BLUE, width=4)
        data.append({**trace, **marker, "showlegend": False, "hoverinfo": "skip"})
        place = {"x": (k + 0.45) * step, "y": float(low[2]), "yshift": -18}
        notes.append({**place, "text": f"{t:.1f} s", "showarrow": False})
    hidden = {"showticklabels": False, "showgrid": False, "constrain": "domain"}
    across = axis("", range=[-0.1 * step, len(drawn) * step], **hidden)
    ends = [float(low[2]) - 0.15 * step, float(high[2]) + 0.1 * step]
    up = axis("z [m]", scaleanchor="x", constrain="domain", nticks=4, range=ends)
    return figure(data, x=across, y=up, height=320, annotations=notes)


def stretches(t: np.ndarray, flag: np.ndarray) -> list[tuple[float, float]]:
    """Return begin and end of every interval in which a flag is set."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flag, [False]]).astype(int)))
    return [
        (float(t[begin]), float(t[min(end, len(t) - 1)])) for begin, end in edges.reshape(-1, 2)
    ]


def _with_background(drawing: Drawing, identified: Sequence[tuple[float, float]]) -> Drawing:
    """Mark time on an identified model."""
    if identified:
        shapes = drawing["layout"].setdefault("shapes", [])
        shapes += [background(begin, end, IDENTIFIED) for begin, end in identified]
        drawing["data"].append(swatch("identified model in use", IDENTIFIED))
    return drawing
