"""Figures of a motion: torque over time and as scatter, residuals and friction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from thetahat.report.figures.base import (
    FITTED,
    GREY,
    HELD_OUT,
    MEASURED,
    NOMINAL,
    PREDICTED,
    STILL,
    WRONG,
    Drawing,
    Trace,
    add_rule,
    axis,
    background,
    dots,
    figure,
    line,
    linear,
    log_axis,
    relative,
    swatch,
)
from thetahat.report.traces import Band, Bins, Cloud, Series, Spectrum

PART_NAMES = {"train": "fitted", "test": "held out"}
PART_COLOURS = {"train": FITTED, "test": PREDICTED}
CLOUD = 500  # points of a cloud that are drawn
DECADES = 5.0  # of a spectrum below its peak
BEYOND = 3.0  # times the cut-off a spectrum reaches
MOST_BACKGROUNDS = 60  # intervals of standstill drawn, longest first

Span = tuple[float, float]


def torque_over_time(
    measured: Series,
    predicted: Series,
    nominal: Series | None = None,
    *,
    unit: str = "N·m",
    clock: str = "time [s]",
    held_out: Span | None = None,
    still: Iterable[Span] = (),
    band: Iterable[Band] = (),
    external: Series | None = None,
) -> Drawing:
    """Draw measured and predicted torque, the nominal robot's behind a click on the legend, and
    what pushes the robot.

    band: of robots drawn from the estimate, part by part.
    """
    data = [
        *(each for k, part in enumerate(band) for each in _drawn_robots(part, first=not k)),
        _series(measured, "measured", MEASURED, width=2.6),
        _series(predicted, "predicted", PREDICTED, width=1.4),
    ]
    if nominal is not None:
        hidden = {"dash": "dot", "visible": "legendonly"}
        data.append(_series(nominal, "nominal", NOMINAL, width=1.2, **hidden))
    if external is not None:
        data.append(_series(external, "external", WRONG, width=1.6))
    drawing = figure(data, x=axis(clock), y=axis(f"torque [{unit}]"), hovermode="x unified")
    return _with_backgrounds(drawing, held_out, still)


def residual_over_time(
    residual: Series,
    *,
    unit: str = "N·m",
    clock: str = "time [s]",
    rms: float | None = None,
    held_out: Span | None = None,
    still: Iterable[Span] = (),
) -> Drawing:
    """Draw measured − predicted torque, between lines at twice its RMS."""
    data = [_series(residual, "measured − predicted", PREDICTED, width=1.2)]
    y = axis(f"residual [{unit}]", zeroline=True)
    drawing = figure(data, x=axis(clock), y=y, hovermode="x unified")
    _with_backgrounds(drawing, held_out, still)
    if rms is not None:
        low, high = relative([-2.0 * rms, 2.0 * rms])
        add_rule(drawing, "± 2 RMS", y=low, y2=high)
    return drawing


def _drawn_robots(band: Band, *, first: bool) -> list[Trace]:
    """Return the edges of a band, filled between; the first is in the legend."""
    t, name = linear(band.t), "95 % of drawn robots"
    edge = {"width": 0, "hoverinfo": "skip"}
    fill = {"fill": "tonexty", "fillcolor": _translucent(PREDICTED)}
    return [
        line(t, linear(band.high), name, PREDICTED, **edge, showlegend=False),
        line(t, linear(band.low), name, PREDICTED, **edge, **fill, showlegend=first),
    ]


def _series(series: Series, name: str, colour: str, **style: Any) -> Trace:
    return line(linear(series.t), linear(series.y), name, colour, **style)


def _with_backgrounds(drawing: Drawing, held_out: Span | None, still: Iterable[Span]) -> Drawing:
    """Mark held-out time and standstill."""
    longest = sorted(still, key=lambda span: span[0] - span[1])[:MOST_BACKGROUNDS]
    shapes = drawing["layout"].setdefault("shapes", [])
    if held_out is not None:
        shapes.append(background(*held_out, HELD_OUT))
        drawing["data"].append(swatch("held out", HELD_OUT))
    if longest:
        shapes += [background(begin, end, STILL) for begin, end in longest]
        drawing["data"].append(swatch("standstill", STILL))
    return drawing


def torque_scatter(
    clouds: Mapping[str, Cloud], *, unit: str = "N·m", title: str = "", size: int = 320
) -> Drawing:
    """Draw predicted over measured torque, with the line of equality (paper's figure)."""
    data, values = [], []
    for part, cloud in clouds.items():
        x, y = cloud.measured[:CLOUD], cloud.predicted[:CLOUD]
        values += [x, y]
        style = {"size": 4, "opacity": 0.45}
        data.append(dots(linear(x), linear(y), _name(part), _colour(part), **style))
    points = np.concatenate(values) if values else np.array([0.0, 1.0])
    least, most = float(points.min()), float(points.max())
    room = 0.05 * (most - least or 1.0)
    ends = linear([least - room, most + room])
    data.append(line(ends, ends, "equal", GREY, width=1, dash="dash", hoverinfo="skip"))
    shared = {"range": ends, "nticks": 5, "constrain": "domain"}
    drawing = figure(
        data,
        x=axis(f"measured [{unit}]", tickangle=0, **shared),
        y=axis(f"predicted [{unit}]", scaleanchor="x", **shared),
        height=size,
    )
    if title:
        place = {"xref": "paper", "yref": "paper", "x": 0.5, "y": 1.0, "showarrow": False}
        anchor = {"xanchor": "center", "yanchor": "bottom"}
        drawing["layout"]["annotations"] = [{"text": title, **place, **anchor}]
        drawing["layout"]["margin"]["t"] = 44
        drawing["layout"]["showlegend"] = False
    return drawing


def residual_spectrum(
    spectra: Mapping[str, Spectrum], *, unit: str = "N·m", cutoff: float | None = None
) -> Drawing:
    """Draw amplitude spectral densities of the residual, under that of the torque."""
    data: list[Trace] = []
    top, lowest, fastest = 0.0, np.inf, 0.0
    for part, spectrum in reversed(list(spectra.items())):
        end = len(spectrum.frequency)
        if cutoff is not None:
            end = 1 + int(np.searchsorted(spectrum.frequency[1:], BEYOND * cutoff))
        f, residual, torque = (
            each[1:end] for each in (spectrum.frequency, spectrum.residual, spectrum.torque)
        )
        if not len(f):
            continue
        lines = [(residual, "residual", _colour(part), 1.6)]
        if not data:
            lines.insert(0, (torque, "measured torque", MEASURED, 2.6))
        for values, title, colour, width in lines:
            density = relative(np.maximum(values, 1e-300))
            data.append(line(relative(f), density, f"{title}, {_name(part)}", colour, width=width))
        top = max(top, float(torque.max()), float(residual.max()))
        lowest, fastest = min(lowest, float(f[0])), max(fastest, float(f[-1]))
    y = axis(f"density [{unit}/√Hz]", type="log", exponentformat="power", dtick=1)
    if top > 0.0:
        y["range"] = relative([np.log10(top) - DECADES, np.log10(top) + 0.3])
    drawing = figure(data, x=log_axis("frequency [Hz]", lowest, fastest), y=y)
    if cutoff is not None and fastest > cutoff:
        add_rule(drawing, f"low-pass {cutoff:.3g} Hz", x=cutoff)
    return drawing


def residual_against_velocity(
    clouds: Mapping[str, Cloud], bins: Mapping[str, Bins], *, unit: str = "N·m", rate: str = "rad/s"
) -> Drawing:
    """Draw the residual over velocity: rows, median and 5 … 95 %."""
    data = []
    for part, cloud in clouds.items():
        moving = np.flatnonzero(cloud.moving)[: CLOUD // 2]
        x, y = linear(cloud.velocity[moving]), linear(cloud.residual[moving])
        style = {"size": 3, "opacity": 0.35, "showlegend": False, "hoverinfo": "skip"}
        data.append(dots(x, y, "rows", _colour(part), **style))
    for part, each in bins.items():
        data += _band(each, _name(part), _colour(part))
    return figure(data, x=axis(f"velocity [{rate}]"), y=axis(f"residual [{unit}]", zeroline=True))


def friction_curve(
    curve: Series | None, bins: Mapping[str, Bins], *, unit: str = "N·m", rate: str = "rad/s"
) -> Drawing:
    """Draw friction and offset over velocity: the model's curve, and the measured remainder."""
    data = []
    for part, each in bins.items():
        above, below = linear(each.high - each.median), linear(each.median - each.low)
        error = {"type": "data", "symmetric": False, "array": above, "arrayminus": below}
        style = {
            "size": 7,
            "symbol": "circle-open" if part == "train" else "circle",
            "error_y": {**error, "thickness": 1, "width": 0},
        }
        x, y = linear(each.centre), linear(each.median)
        data.append(dots(x, y, _name(part), _colour(part), **style))
    if curve is not None:
        data.append(line(linear(curve.t), linear(curve.y), "identified friction", NOMINAL, width=2))
    return figure(data, x=axis(f"velocity [{rate}]"), y=axis(f"friction [{unit}]", zeroline=True))


def _band(bins: Bins, name: str, colour: str) -> list[Trace]:
    """Return a median with a band of quantiles around it."""
    x = linear(bins.centre)
    edge = {"width": 0, "hoverinfo": "skip", "showlegend": False}
    fill = {"fill": "tonexty", "fillcolor": _translucent(colour)}
    return [
        line(x, linear(bins.high), name, colour, **edge),
        line(x, linear(bins.low), name, colour, **edge, **fill),
        line(x, linear(bins.median), f"{name}: median, 5 … 95 %", colour, width=2),
    ]


def _translucent(colour: str) -> str:
    """Return a colour, "#rrggbb", as one that others show through."""
    rgb = ",".join(str(int(colour[k : k + 2], 16)) for k in (1, 3, 5))
    return f"rgba({rgb},0.16)"


def _name(part: str) -> str:
    return PART_NAMES.get(part, part)


def _colour(part: str) -> str:
    return PART_COLOURS.get(part, GREY)
