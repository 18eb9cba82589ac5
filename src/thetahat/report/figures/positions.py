"""Figures of commanded, measured and simulated positions."""

from __future__ import annotations

from thetahat.report.figures.base import (
    GREEN,
    MEASURED,
    NOMINAL,
    PREDICTED,
    Drawing,
    axis,
    figure,
    line,
    linear,
)
from thetahat.report.traces import Series


def positions_over_time(
    measured: Series, command: Series, simulated: Series, *, unit: str = "rad"
) -> Drawing:
    """Draw the position that was measured, the command, and the simulation."""
    data = [
        line(linear(measured.t), linear(measured.y), "measured", MEASURED, width=2.6),
        line(linear(command.t), linear(command.y), "command", GREEN, width=1.2, dash="dot"),
        line(linear(simulated.t), linear(simulated.y), "simulated", PREDICTED, width=1.4),
    ]
    return figure(data, x=axis("time [s]"), y=axis(f"position [{unit}]"), hovermode="x unified")


def position_error(fitted: Series, nominal: Series, *, unit: str = "rad") -> Drawing:
    """Draw measured − simulated position, the file's actuators behind a click on the legend."""
    hidden = {"dash": "dot", "visible": "legendonly"}
    data = [
        line(linear(fitted.t), linear(fitted.y), "identified", PREDICTED, width=1.2),
        line(
            linear(nominal.t), linear(nominal.y), "file's actuators", NOMINAL, width=1.2, **hidden
        ),
    ]
    y = axis(f"error [{unit}]", zeroline=True)
    return figure(data, x=axis("time [s]"), y=y, height=220, hovermode="x unified")
