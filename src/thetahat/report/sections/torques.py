"""Sections on torque prediction: scores, torque over time, scatter and residuals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from thetahat.report.figures import bars, time_series
from thetahat.report.figures.base import Drawing, fit, shown
from thetahat.report.section import Block, Column, Figure, Note, Panel, Section, Table
from thetahat.report.text import (
    FAIR,
    GOOD,
    Data,
    TracedJoint,
    fitted_joints,
    labels,
    r2,
    rows_of,
    score,
    traced_joints,
    worst,
)
from thetahat.report.traces import Series, Traces

GRID = 12  # joints up to which all scatters stand side by side
KINDS = ("train", "test", "nominal", "pseudo_inverse")  # of scores
NOTHING = Note("No joint has torques that can be drawn.")
SCORES = {  # columns of a table of scores, by their names in the data
    "name": Column("joint"),
    "r2_train": Column("R² fit", decimals=4),
    "r2_test": Column("R² test", decimals=4, limits=(FAIR, GOOD)),
    "r2_nominal": Column("R² nominal", decimals=4, brief=""),
    "r2_pseudo_inverse": Column("R² pinv", decimals=4, brief=""),
    "r2_test_moving": Column("R² moving", decimals=4, brief="moving"),
    "r2_test_raw": Column("R² raw", decimals=4, brief="raw"),
    "rms_train": Column("RMS fit", brief=""),
    "rms_test": Column("RMS test", brief="RMS"),
    "rms_pseudo_inverse": Column("RMS pinv", brief="pinv"),
    "rms_nominal": Column("RMS nominal", brief="nominal"),
    "rows_train": Column("rows fit", brief=""),
    "rows_test": Column("rows test", brief=""),
}


def table_of(
    records: Sequence[Data], columns: Mapping[str, Column], *, caption: str = "", note: str = ""
) -> Table:
    """Return a table of records, without the columns of which nothing is known."""
    shown = {
        key: column
        for key, column in columns.items()
        if any(record.get(key) is not None for record in records)
    }
    rows = tuple(tuple(record.get(key) for key in shown) for record in records)
    return Table(tuple(shown.values()), rows, caption, note=note)


# -- scores ----------------------------------------------------------------------------------------


def score_table(estimate: Data, unit: str = "N·m or N") -> Table:
    """Return R² and RMS per joint: fitted, held out, nominal and pseudo-inverse."""
    joints, settings = fitted_joints(estimate), estimate["provenance"]["settings"]
    columns = {
        key: replace(column, unit=unit) if key.startswith("rms_") else column
        for key, column in SCORES.items()
    }
    notes = [f"R² = 1 − e'e/u'u, e: residual, u: torque. Fit: {_fitted_rows(estimate)}."]
    if any(joint.get("r2_test") is not None for joint in joints):
        notes.append("All others: held-out rows, standstill included.")
    if any(joint.get("r2_test_moving") is not None for joint in joints):
        notes.append("Moving: without standstill.")
    if any(joint.get("r2_test_raw") is not None for joint in joints):
        notes.append("Raw: unfiltered torques.")
    pinv = any(joint.get("rms_pseudo_inverse") is not None for joint in joints)
    other = "; pinv: of the pseudo-inverse solution" if pinv else ""
    notes.append(f"RMS of the residual [{unit}]{other}; nominal: of the robot file.")
    fitted, scored = settings.get("cutoff"), estimate.get("score_cutoff")
    if fitted is not None:
        differs = "" if scored in (None, fitted) else f", scored torques {scored:.4g} Hz"
        notes.append(f"Low-pass {fitted:.4g} Hz{differs}.")
    return table_of(joints, columns, note=" ".join(notes))


def _fitted_rows(estimate: Data) -> str:
    """Say which rows the scores of the fit are of."""
    form = estimate["provenance"]["settings"].get("form") or "torque"
    if form == "torque":
        return "fitted rows, without standstill"
    return f"fitted rows of the {form} form, each of several samples in motion"


BRIEF = ("name", "r2_train", "r2_test", "rms_test", "noise", "rms_nominal")


def brief_score_table(estimate: Data) -> Table:
    """Return held-out R² and RMS per joint beside its noise and the nominal robot's RMS."""
    joints = fitted_joints(estimate)
    records = [{**joint, "noise": (joint.get("noise") or {}).get("std")} for joint in joints]
    columns = {**SCORES, "noise": Column("noise")}
    note = (
        "RMS of held-out residuals, noise of the fitted ones, RMS of the robot file's own values"
        " (nominal), in N·m or N."
    )
    return table_of(records, {key: columns[key] for key in BRIEF}, note=note)


def scores(estimate: Data, traces: Traces) -> Section:
    """Return the section of R² and RMS per joint."""
    joints, unit = fitted_joints(estimate), _unit(estimate, traces)
    names = labels([joint["name"] for joint in joints])

    def by_kind(prefix: str) -> dict[str, list[float | None]]:
        return {kind: [joint.get(f"{prefix}_{kind}") for joint in joints] for kind in KINDS}

    panels = (
        Panel("R²", bars.r2_by_joint(names, by_kind("r2"))),
        Panel("RMS", bars.rms_by_joint(names, by_kind("rms"), unit=unit)),
    )
    caption = "R² and RMS of every joint. The axis of R² is logarithmic in 1 − R²."
    blocks = (Figure(panels, caption, arrangement="grid"), score_table(estimate, unit))
    return Section("R² and RMS by joint", "scores", blocks)


# -- torques ---------------------------------------------------------------------------------------


def torque(estimate: Data, traces: Traces) -> Section:
    """Return measured and predicted torque over time, and the worst predicted interval."""
    joints = traced_joints(estimate, traces)
    if not joints:
        return Section("Torque over time", "torque", (NOTHING,))
    drawings = [
        time_series.torque_over_time(
            joined(traced.lines.measured),
            joined(traced.lines.predicted),
            joined(traced.lines.nominal) if traced.lines.nominal else None,
            unit=traced.unit,
            clock=traces.clock,
            held_out=traces.spans.get("test"),
            still=traced.still,
            band=traced.lines.band.values(),
        )
        for _, traced in joints
    ]
    caption = (
        "Measured and predicted torque. Click “nominal” in the legend to show the nominal robot;"
        " drag to zoom, double-click to reset."
    )
    if any(traced.lines.band for _, traced in joints):
        caption += " Shaded: torques of 95 % of the robots drawn from the estimate."
    rows = max(traces.decimation.values(), default=1)
    if rows > 1:
        caption += f" Lines pass through minimum and maximum of every {rows:,} rows."
    blocks: list[Block] = [choice(joints, drawings, caption)]
    intervals = [(each, traced.worst) for each in joints if (traced := each[1]).worst is not None]
    if rows > 1 and intervals:
        drawings = [
            time_series.torque_over_time(
                Series(part.t, part.measured),
                Series(part.t, part.predicted),
                None if part.nominal is None else Series(part.t, part.nominal),
                unit=each[1].unit,
                clock=traces.clock,
            )
            for each, part in intervals
            if part is not None
        ]
        held_out = "test" in traces.spans
        which = "held-out" if held_out else "fitted"
        caption = f"The worst predicted {which} interval, every row."
        blocks.append(choice([each for each, _ in intervals], drawings, caption))
    return Section("Torque over time", "torque", tuple(blocks))


def scatter(estimate: Data, traces: Traces) -> Section:
    """Return predicted over measured torque with R² (the paper's figure)."""
    joints, title = traced_joints(estimate, traces), "Measured against predicted"
    if not joints:
        return Section(title, "scatter", (NOTHING,))
    grid, drawings = len(joints) <= GRID, []
    names = labels([joint["name"] for joint, _ in joints])
    for name, (joint, traced) in zip(names, joints, strict=True):
        heading = f"{shown(fit(name, 20))}<br>R² {r2(score(joint, traced))} {rows_of(joint)}"
        size = 300 if grid else 420
        drawings.append(
            time_series.torque_scatter(traced.cloud, unit=traced.unit, title=heading, size=size)
        )
    test = "test" in traces.spans
    colours = "blue: held out, purple: fitted" if test else "purple: fitted"
    rows = "held-out rows, standstill included" if test else _fitted_rows(estimate)
    caption = f"Predicted over measured torque ({colours}). R² of the {rows}, as in the table."
    arrangement = "grid" if grid else "choose"
    return Section(title, "scatter", (choice(joints, drawings, caption, arrangement),))


# -- residuals -------------------------------------------------------------------------------------


def residuals(estimate: Data, traces: Traces) -> Section:
    """Return the residual over time, its spectrum, and against velocity beside the friction."""
    joints = traced_joints(estimate, traces)
    if not joints:
        return Section("Residuals", "residuals", (NOTHING,))
    over_time = [
        time_series.residual_over_time(
            joined(traced.lines.residual),
            unit=traced.unit,
            clock=traces.clock,
            rms=list(traced.residuals.summary.values())[-1].rms,
            held_out=traces.spans.get("test"),
            still=traced.still,
        )
        for _, traced in joints
    ]
    blocks: list[Block] = [
        _summary(joints, "test" if "test" in traces.spans else "train"),
        choice(joints, over_time, "Residual (measured − predicted torque) over time."),
    ]
    with_spectrum = [each for each in joints if each[1].residuals.spectrum]
    if with_spectrum:
        drawings = [
            time_series.residual_spectrum(
                traced.residuals.spectrum, unit=traced.unit, cutoff=traces.cutoff
            )
            for _, traced in with_spectrum
        ]
        caption = (
            "Amplitude spectral density (Welch). A residual shaped like the torque is model error,"
            " a flat one is noise; peaks above the motion come from gears, elasticity or the"
            " controller."
        )
        blocks.append(choice(with_spectrum, drawings, caption))
    else:
        blocks.append(Note("The runs are too short for a spectrum."))
    bins = ((each, each[1].residuals.against_velocity.values()) for each in joints)
    moving = [each for each, parts in bins if any(len(part.centre) for part in parts)]
    if moving:
        blocks += _friction_figures(moving)
    return Section("Residuals", "residuals", tuple(blocks))


def _friction_figures(joints: list[TracedJoint]) -> list[Block]:
    against = [
        time_series.residual_against_velocity(
            t.cloud, t.residuals.against_velocity, unit=t.unit, rate=t.rate
        )
        for _, t in joints
    ]
    curves = [
        time_series.friction_curve(
            t.residuals.curve, t.residuals.friction, unit=t.unit, rate=t.rate
        )
        for _, t in joints
    ]
    return [
        choice(
            joints,
            against,
            "Residual against velocity, without standstill. A median away from zero is unmodelled"
            " friction.",
        ),
        choice(
            joints,
            curves,
            "Friction and offset: identified curve, and measured torque minus rigid-body and rotor"
            " torque (median, 5 … 95 %).",
        ),
    ]


def _summary(joints: list[TracedJoint], part: str) -> Table:
    """Return mean, RMS and largest residual of every joint."""
    titles = ("joint", "unit", "mean", "RMS", "95 % quantile of |e|", "max |e|")
    columns = (*map(Column, titles), Column("at", "s"), Column("rows"))
    rows = []
    for joint, traced in joints:
        each = traced.residuals.summary.get(part)
        if each is not None:
            below = float(np.quantile(np.abs(traced.cloud[part].residual), 0.95))
            errors = (each.mean, each.rms, below, each.largest, each.at, each.rows)
            rows.append((joint["name"], traced.unit, *errors))
    which = "held-out" if part == "test" else "fitted"
    return Table(columns, tuple(rows), f"Residual of the {which} rows, standstill included.")


# -- pieces ----------------------------------------------------------------------------------------


def joined(parts: Mapping[str, Series]) -> Series:
    """Return the parts one after another, with a gap between them."""
    gap = np.array([np.nan])
    t = [piece for series in parts.values() for piece in (series.t, series.t[-1:])]
    y = [piece for series in parts.values() for piece in (series.y, gap)]
    return Series(np.concatenate(t)[:-1], np.concatenate(y)[:-1])


def choice(
    joints: list[TracedJoint],
    drawings: Sequence[Drawing],
    caption: str,
    arrangement: str = "choose",
) -> Figure:
    """Return a figure with a panel per joint; the worst predicted one is shown first."""
    panels = []
    for (joint, _), drawing in zip(joints, drawings, strict=True):
        value = score(joint)
        note = joint["name"]
        if value is not None:
            note += f" · R² {r2(value)} {rows_of(joint)}"
        panels.append(Panel(joint["name"], drawing, note))
    selected = worst([joint for joint, _ in joints])
    if arrangement == "grid":
        return Figure(tuple(panels), caption, "grid")
    return Figure(tuple(panels), caption, "choose", "joint", selected)


def _unit(estimate: Data, traces: Traces) -> str:
    """Return the unit of the fitted joints' torques."""
    names = {joint["name"] for joint in fitted_joints(estimate)}
    units = sorted({joint.unit for joint in traces.joints if joint.name in names}, reverse=True)
    return " or ".join(units) or "N·m"
