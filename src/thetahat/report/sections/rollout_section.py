"""Section on simulated motion: error against horizon, beside the nominal robot's."""

from __future__ import annotations

from thetahat.report.figures.base import (
    NOMINAL,
    PREDICTED,
    Drawing,
    dots,
    figure,
    line,
    log_axis,
    relative,
)
from thetahat.report.section import Column, Figure, Panel, Section, Table, Text
from thetahat.report.text import Data

NOTHING = Text(
    "No motion was simulated: it needs half a second of held-out rows with all torques, and joints"
    " of one degree of freedom."
)
LEAST = 1e-9  # of an error that is drawn


def rollout(estimate: Data) -> Section:
    """Return errors of the motion that logged torques simulate, by horizon and joint."""
    data = estimate.get("rollout")
    if not data:
        return Section("Simulated motion", "rollout", (NOTHING,))
    blocks = (Text(_words(data)), rollout_figure(data), rollout_table(data))
    return Section("Simulated motion", "rollout", blocks)


def rollout_figure(data: Data) -> Figure:
    """Return errors against the horizon, of the tip and of every joint."""
    horizons = data["horizons"]
    panels = [
        Panel(
            joint["name"],
            error_by_horizon(horizons, joint["rms"], joint["rms_nominal"], joint["unit"]),
        )
        for joint in data["joints"]
    ]
    tip = data["tip"]
    panels.insert(0, Panel("tip", error_by_horizon(horizons, tip["mm"], tip["mm_nominal"], "mm")))
    caption = (
        "RMS error of simulated positions against the time since the simulation began. Both"
        " axes are logarithmic."
    )
    return Figure(tuple(panels), caption)


def rollout_table(data: Data) -> Table:
    """Return errors by joint and horizon, the nominal robot's in brackets."""
    heads = [f"{horizon:g} s" for horizon in data["horizons"]]
    columns = (Column("joint"), *(Column(head, numeric=True) for head in heads))
    tip = data["tip"]
    rows = [(f"tip ({tip['link']}) [mm]", *_cells(tip["mm"], tip["mm_nominal"]))]
    rows += [
        (f"{joint['name']} [{joint['unit']}]", *_cells(joint["rms"], joint["rms_nominal"]))
        for joint in data["joints"]
    ]
    rows.append(("starts", *(str(count) for count in data["starts"])))
    beside = " Nominal parameters in brackets." if tip["mm_nominal"] is not None else ""
    note = (
        f"RMS error of positions that the logged {data['driven_by']}s simulate, open loop, from"
        f" states of the log.{beside}"
    )
    return Table(columns, tuple(rows), note=note)


def error_by_horizon(
    horizons: list[float], errors: list[float], nominal: list[float] | None, unit: str
) -> Drawing:
    """Draw an error against the horizon."""
    x = relative(horizons)
    traces, every = [], list(errors)
    for name, values, colour in (("nominal", nominal, NOMINAL), ("identified", errors, PREDICTED)):
        if values is not None:
            y = relative([max(value, LEAST) for value in values])
            traces += [
                line(x, y, name, colour, showlegend=False),
                dots(x, y, name, colour, size=7),
            ]
            every += values
    low, high = (max(value, LEAST) for value in (min(every), max(every)))
    return figure(
        traces,
        x=log_axis("time simulated [s]", 0.8 * horizons[0], 1.25 * horizons[-1]),
        y=log_axis(f"RMS error [{unit}]", 0.7 * low, 1.4 * high),
    )


def _cells(errors: list[float], nominal: list[float] | None) -> list[str]:
    if nominal is None:
        return [f"{value:.2g}" for value in errors]
    return [f"{a:.2g} ({b:.2g})" for a, b in zip(errors, nominal, strict=True)]


def _words(data: Data) -> str:
    text = (
        f"The logged {data['driven_by']}s move the simulated robot from states of the held-out"
        " rows, without any feedback, so that errors grow with time: an arm that is held up by"
        " torque alone is unstable, and every model loses it in the end. Short horizons tell"
        " models apart."
    )
    compared = data["compared"]
    if compared is None:
        return text
    word = "worse" if compared["worse"] else "better" if compared["ratio"] < 1.0 else "not better"
    return (
        f"{text} After {compared['horizon']:g} s the identified robot is {word} than the nominal"
        f" one: its errors are {compared['ratio']:.2g} times as large (geometric mean over"
        f" {compared['starts']} starts; {compared['tip_ratio']:.2g} at the tip)."
    )
