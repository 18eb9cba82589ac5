"""Figures of a motion: torque over time and as scatter, what is left of it over time, frequency and
velocity.
"""

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
    axis,
    dots,
    figure,
    ground,
    line,
    linear,
    log_axis,
    relative,
    swatch,
)
from thetahat.report.traces import Bins, Cloud, Series, Spectrum

PART_NAMES = {"train": "fitted", "test": "held out"}
PART_COLOURS = {"train": FITTED, "test": PREDICTED}
CLOUD = 500  # points of a cloud that are drawn
DECADES = 5.0  # of a spectrum below its peak
BEYOND = 3.0  # times the cut-off a spectrum reaches
MOST_GROUNDS = 60  # stretches of standstill drawn, longest first

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
) -> dict[str, Any]:
    """Measured and predicted torque, the nominal robot's behind a click on the legend; held-out
    time and standstill on grounds of their own.
    """
    data = [
        _series(measured, "measured", MEASURED, width=2.6),
        _series(predicted, "predicted", PREDICTED, width=1.4),
    ]
    if nominal is not None:
        data.append(
            _series(nominal, "nominal", NOMINAL, width=1.2, dash="dot", visible="legendonly")
        )
    return _over_time(data, axis(f"torque [{unit}]"), clock=clock, held_out=held_out, still=still)


def residual_over_time(
    residual: Series,
    *,
    unit: str = "N·m",
    clock: str = "time [s]",
    rms: float | None = None,
    held_out: Span | None = None,
    still: Iterable[Span] = (),
) -> dict[str, Any]:
    """Measured − predicted torque, between lines at twice its RMS."""
    data = [_series(residual, "measured − predicted", PREDICTED, width=1.2)]
    found = _over_time(
        data, axis(f"residual [{unit}]", zeroline=True), clock=clock, held_out=held_out, still=still
    )
    if rms is not None:
        found["layout"]["shapes"] += [
            {
                "type": "line",
                "xref": "paper",
                "x0": 0,
                "x1": 1,
                "y0": y,
                "y1": y,
                "line": {"color": GREY, "width": 1, "dash": "dash"},
            }
            for y in relative([-2.0 * rms, 2.0 * rms])
        ]
        data.append(line([None], [None], "± 2 RMS", GREY, width=1, dash="dash"))
    return found


def _series(series: Series, name: str, colour: str, **style: Any) -> dict[str, Any]:
    return line(linear(series.t), linear(series.y), name, colour, **style)


def _over_time(
    data: list[dict[str, Any]],
    y: dict[str, Any],
    *,
    clock: str,
    held_out: Span | None,
    still: Iterable[Span],
) -> dict[str, Any]:
    still = sorted(still, key=lambda span: span[0] - span[1])[:MOST_GROUNDS]
    shapes = [ground(begin, end, STILL) for begin, end in still]
    if held_out is not None:
        shapes.insert(0, ground(*held_out, HELD_OUT))
        data.append(swatch("held out", HELD_OUT))
    if still:
        data.append(swatch("standstill", STILL))
    return figure(data, x=axis(clock), y=y, shapes=shapes, hovermode="x unified")


def torque_scatter(
    clouds: Mapping[str, Cloud], *, unit: str = "N·m", title: str = "", size: int = 320
) -> dict[str, Any]:
    """Predicted over measured torque, with the line on which they agree (paper's figure)."""
    data, least, most = [], np.inf, -np.inf
    for part, cloud in clouds.items():
        x, y = cloud.measured[:CLOUD], cloud.predicted[:CLOUD]
        least, most = (
            min(least, float(np.min(x)), float(np.min(y))),
            max(most, float(np.max(x)), float(np.max(y))),
        )
        data.append(
            dots(
                linear(x),
                linear(y),
                PART_NAMES.get(part, part),
                PART_COLOURS.get(part, GREY),
                size=4,
                opacity=0.45,
            )
        )
    if not clouds:
        least, most = 0.0, 1.0
    room = 0.05 * (most - least or 1.0)
    ends = linear([least - room, most + room])
    data.append(line(ends, ends, "equal", GREY, width=1, dash="dash", hoverinfo="skip"))
    found = figure(
        data,
        x=axis(f"measured [{unit}]", range=ends, nticks=5, tickangle=0),
        y=axis(f"predicted [{unit}]", range=ends, nticks=5, scaleanchor="x", constrain="domain"),
        height=size,
    )
    found["layout"]["xaxis"]["constrain"] = "domain"
    if title:
        above = {
            "xref": "paper",
            "yref": "paper",
            "x": 0.5,
            "y": 1.0,
            "xanchor": "center",
            "yanchor": "bottom",
            "showarrow": False,
        }
        found["layout"]["annotations"] = [{"text": title, **above}]
        found["layout"]["margin"]["t"] = 44
        found["layout"]["showlegend"] = False
    return found


def residual_spectrum(
    spectra: Mapping[str, Spectrum], *, unit: str = "N·m", cutoff: float | None = None
) -> dict[str, Any]:
    """Amplitude spectral density of what is left, fitted and held out, under that of the torque."""
    data, top, lowest, fastest = [], 0.0, np.inf, 0.0
    for part, spectrum in reversed(spectra.items()):
        f = spectrum.frequency[1:]
        keep = (
            slice(1, None)
            if cutoff is None
            else slice(1, 1 + int(np.searchsorted(f, BEYOND * cutoff)))
        )
        f, e, u = (each[keep] for each in (spectrum.frequency, spectrum.residual, spectrum.torque))
        if not len(f):
            continue
        name = PART_NAMES.get(part, part)
        if not data:
            data.append(
                line(
                    relative(f),
                    relative(np.maximum(u, 1e-300)),
                    f"measured torque, {name}",
                    MEASURED,
                    width=2.6,
                )
            )
        data.append(
            line(
                relative(f),
                relative(np.maximum(e, 1e-300)),
                f"residual, {name}",
                PART_COLOURS.get(part, GREY),
                width=1.6,
            )
        )
        top, lowest, fastest = (
            max(top, float(u.max()), float(e.max())),
            min(lowest, float(f[0])),
            max(fastest, float(f[-1])),
        )
    y = axis(f"density [{unit}/√Hz]", type="log", exponentformat="power", dtick=1)
    if top > 0.0:
        y["range"] = relative([np.log10(top) - DECADES, np.log10(top) + 0.3])
    found = figure(data, x=log_axis("frequency [Hz]", lowest, fastest), y=y)
    if cutoff is not None and fastest > cutoff:
        found["layout"]["shapes"] = [
            {
                "type": "line",
                "yref": "paper",
                "x0": cutoff,
                "x1": cutoff,
                "y0": 0,
                "y1": 1,
                "line": {"color": GREY, "width": 1, "dash": "dash"},
            }
        ]
        data.append(line([None], [None], f"low-pass {cutoff:.3g} Hz", GREY, width=1, dash="dash"))
    return found


def residual_against_velocity(
    clouds: Mapping[str, Cloud], bins: Mapping[str, Bins], *, unit: str = "N·m", rate: str = "rad/s"
) -> dict[str, Any]:
    """Measured − predicted torque over velocity: median and 5 … 95 % by slices. Friction that the
    model misses shows as a curve.
    """
    data = []
    for part, cloud in clouds.items():
        moving = np.flatnonzero(cloud.moving)[: CLOUD // 2]
        x, y = linear(cloud.velocity[moving]), linear(cloud.residual[moving])
        data.append(
            dots(
                x,
                y,
                "rows",
                PART_COLOURS.get(part, GREY),
                size=3,
                opacity=0.35,
                showlegend=False,
                hoverinfo="skip",
            )
        )
    for part, each in bins.items():
        data += _band(each, PART_NAMES.get(part, part), PART_COLOURS.get(part, GREY))
    return figure(data, x=axis(f"velocity [{rate}]"), y=axis(f"residual [{unit}]", zeroline=True))


def friction_curve(
    curve: Series | None, bins: Mapping[str, Bins], *, unit: str = "N·m", rate: str = "rad/s"
) -> dict[str, Any]:
    """Friction and offset over velocity: the model's curve, and what the measured torque leaves for
    it by slices of velocity.
    """
    data = []
    for part, each in bins.items():
        error = {"type": "data", "symmetric": False, "thickness": 1, "width": 0}
        error |= {
            "array": linear(each.high - each.median),
            "arrayminus": linear(each.median - each.low),
        }
        symbol = "circle-open" if part == "train" else "circle"
        data.append(
            dots(
                linear(each.centre),
                linear(each.median),
                PART_NAMES.get(part, part),
                PART_COLOURS.get(part, GREY),
                size=7,
                symbol=symbol,
                error_y=error,
            )
        )
    if curve is not None:
        data.append(line(linear(curve.t), linear(curve.y), "identified friction", NOMINAL, width=2))
    return figure(data, x=axis(f"velocity [{rate}]"), y=axis(f"friction [{unit}]", zeroline=True))


def _band(bins: Bins, name: str, colour: str) -> list[dict[str, Any]]:
    """A median with a band of quantiles around it."""
    x = linear(bins.centre)
    edge = {"width": 0, "hoverinfo": "skip", "showlegend": False}
    return [
        line(x, linear(bins.high), name, colour, **edge),
        line(
            x,
            linear(bins.low),
            name,
            colour,
            **edge,
            fill="tonexty",
            fillcolor=f"rgba({','.join(str(int(colour[k : k + 2], 16)) for k in (1, 3, 5))},0.16)",
        ),
        line(x, linear(bins.median), f"{name}: median, 5 … 95 %", colour, width=2),
    ]
