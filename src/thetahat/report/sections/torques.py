"""Sections on how well torques are predicted: scores, torque over time, scatter, and what
is left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from thetahat.report import figures
from thetahat.report.section import Block, Column, Figure, Note, Panel, Section, Table, Text
from thetahat.report.text import FAIR, GOOD, asked, drawn, labels, r2, score, worst
from thetahat.report.traces import JointTraces, Series, Traces

GRID = 12  # joints up to which all scatters stand side by side
KINDS = ("train", "test", "nominal", "pseudo_inverse")

Joint = tuple[dict[str, Any], JointTraces]


def scores(found: dict[str, Any], traces: Traces) -> Section:
    """R² and RMS per joint: fitted, held out, nominal, pseudo-inverse."""
    joints = asked(found)
    unit = _unit(found, traces)
    kinds = [
        kind
        for kind in KINDS
        if any(
            joint.get(f"r2_{kind}") is not None or joint.get(f"rms_{kind}") is not None
            for joint in joints
        )
    ]
    titles = {
        "train": "fitted",
        "test": "held out",
        "nominal": "nominal",
        "pseudo_inverse": "pseudo-inv.",
    }
    extra = [
        name
        for name in ("r2_test_moving", "r2_test_raw")
        if any(joint.get(name) is not None for joint in joints)
    ]
    columns = [Column("joint")]
    columns += [
        Column(f"R² {titles[kind]}", decimals=4, good=GOOD if kind == "test" else None, fair=FAIR)
        for kind in kinds
    ]
    columns += [
        Column({"r2_test_moving": "R² moving", "r2_test_raw": "R² raw"}[name], decimals=4)
        for name in extra
    ]
    columns += [Column(f"RMS {titles[kind]}", unit) for kind in kinds]
    columns += [
        Column("rows fitted"),
        *([Column("rows held out")] if any(joint["rows_test"] for joint in joints) else []),
    ]
    rows = []
    for joint in joints:
        cells = [
            joint["name"],
            *(joint.get(f"r2_{kind}") for kind in kinds),
            *(joint.get(name) for name in extra),
        ]
        cells += [*(joint.get(f"rms_{kind}") for kind in kinds), joint["rows_train"]]
        rows.append((*cells, joint["rows_test"]) if len(columns) > len(cells) else tuple(cells))
    names = labels([joint["name"] for joint in joints])
    panels = (
        Panel(
            "R²",
            figures.r2_by_joint(
                names, {kind: [joint.get(f"r2_{kind}") for joint in joints] for kind in kinds}
            ),
        ),
        Panel(
            "RMS",
            figures.rms_by_joint(
                names,
                {kind: [joint.get(f"rms_{kind}") for joint in joints] for kind in kinds},
                unit=unit,
            ),
        ),
    )
    caption = (
        "R² and RMS of every joint. The axis of R² spreads out what is near one: 0.9, 0.99 and"
        " 0.999 are equally far apart."
    )
    blocks: list[Block] = [
        Figure(panels, caption, arrangement="grid"),
        Table(tuple(columns), tuple(rows)),
        Text(_explained(found, extra)),
    ]
    return Section("R² and RMS by joint", "scores", tuple(blocks))


def _explained(found: dict[str, Any], extra: list[str]) -> str:
    cutoff, used = found.get("score_cutoff"), found["provenance"]["settings"].get("cutoff")
    text = "R² = 1 − e'e/u'u, with e what is left of the torque u."
    if used is not None:
        text += f" Motion and torque of the fit pass a low-pass of {used:.4g} Hz"
        text += (
            "."
            if cutoff is None or cutoff == used
            else f", torques that are scored one of {cutoff:.4g} Hz."
        )
    if "r2_test_moving" in extra:
        text += " Moving: without rows at standstill."
    if "r2_test_raw" in extra:
        text += " Raw: torques as logged, so their noise counts as error."
    return text


def torque(found: dict[str, Any], traces: Traces) -> Section:
    """Measured against predicted torque over time, and the stretch that is predicted worst."""
    joints = drawn(found, traces)
    if not joints:
        return Section(
            "Torque over time", "torque", (Note("No joint has torques that can be drawn."),)
        )
    held_out = traces.spans.get("test")

    def over_time(traced: JointTraces) -> dict[str, Any]:
        lines = [joined(each) for each in (traced.measured, traced.predicted, traced.nominal)]
        return figures.torque_over_time(
            *lines, unit=traced.unit, clock=traces.clock, held_out=held_out, still=traced.still
        )

    caption = (
        "Measured and predicted torque. A click on “nominal” in the legend shows the robot as its"
        " file states it; drag to zoom, double click to go back."
    )
    rows = max(traces.decimation.values(), default=1)
    if rows > 1:
        caption += (
            f" A line passes through the least and the largest of every {rows:,} rows, so no peak"
            " is lost."
        )
    blocks: list[Block] = [_chosen(joints, over_time, caption)]
    stretches = [(joint, traced) for joint, traced in joints if traced.worst is not None]
    if rows > 1 and stretches:
        part = {"train": "fitted", "test": "held-out"}[stretches[0][1].worst.part]
        blocks.append(
            _chosen(
                stretches,
                _stretch(traces),
                f"The {part} stretch that is predicted worst, every row of it.",
            )
        )
    return Section("Torque over time", "torque", tuple(blocks))


def _stretch(traces: Traces) -> Callable[[JointTraces], dict[str, Any]]:
    def draw(traced: JointTraces) -> dict[str, Any]:
        part = traced.worst
        lines = [
            None if y is None else Series(part.t, y)
            for y in (part.measured, part.predicted, part.nominal)
        ]
        return figures.torque_over_time(*lines, unit=traced.unit, clock=traces.clock)

    return draw


def scatter(found: dict[str, Any], traces: Traces) -> Section:
    """Predicted over measured torque with R² (the paper's figure)."""
    joints = drawn(found, traces)
    if not joints:
        return Section(
            "Measured against predicted",
            "scatter",
            (Note("No joint has torques that can be drawn."),),
        )
    names = labels([joint["name"] for joint, _ in joints])
    grid = len(joints) <= GRID
    panels = []
    for name, (joint, traced) in zip(names, joints, strict=True):
        title = f"{figures.shown(figures.fit(name, 20))}<br>R² {r2(score(joint, traced))}"
        drawing = figures.torque_scatter(
            traced.cloud, unit=traced.unit, title=title, size=300 if grid else 420
        )
        panels.append(Panel(joint["name"], drawing, _noted(joint)))
    chosen = worst([joint for joint, _ in joints])
    colours, scored = (
        ("blue held out, purple fitted", "held-out")
        if "test" in traces.spans
        else ("purple fitted", "fitted")
    )
    caption = (
        f"Predicted over measured torque, {colours}; points on the dashed line are exact. R² is"
        f" that of {scored} rows."
    )
    figure = (
        Figure(tuple(panels), caption, "grid")
        if grid
        else Figure(tuple(panels), caption, "choose", "joint", chosen)
    )
    return Section("Measured against predicted", "scatter", (figure,))


def residuals(found: dict[str, Any], traces: Traces) -> Section:
    """What is left of the torque: over time, its spectrum, and against velocity with the friction
    that was found.
    """
    joints = drawn(found, traces)
    if not joints:
        return Section("Residuals", "residuals", (Note("No joint has torques that can be drawn."),))
    held_out = traces.spans.get("test")

    def over_time(traced: JointTraces) -> dict[str, Any]:
        rms = next(each.rms for each in reversed(traced.summary.values()))
        return figures.residual_over_time(
            joined(traced.residual),
            unit=traced.unit,
            clock=traces.clock,
            rms=rms,
            held_out=held_out,
            still=traced.still,
        )

    blocks: list[Block] = [
        _summary(joints, held_out is not None),
        _chosen(joints, over_time, "Measured − predicted torque over time."),
    ]
    heard = [(joint, traced) for joint, traced in joints if traced.spectrum]
    if heard:
        caption = (
            "Amplitude spectral density (Welch). A residual that follows the torque is an error of"
            " the model, a flat one is noise; peaks beyond the motion are gears, elasticity or the"
            " controller."
        )
        blocks.append(
            _chosen(
                heard,
                lambda traced: figures.residual_spectrum(
                    traced.spectrum, unit=traced.unit, cutoff=traces.cutoff
                ),
                caption,
            )
        )
    else:
        blocks.append(Note("The runs are too short for a spectrum."))
    moving = [
        (joint, traced)
        for joint, traced in joints
        if any(len(bins.centre) for bins in traced.against_velocity.values())
    ]
    if moving:
        caption = (
            "Residual against velocity, standstill left out. A median that leaves zero is friction"
            " that the model has not."
        )
        blocks.append(
            _chosen(
                moving,
                lambda t: figures.residual_against_velocity(
                    t.cloud, t.against_velocity, unit=t.unit, rate=t.rate
                ),
                caption,
            )
        )
        caption = (
            "Friction and offset: the curve that was identified, and medians with 5 … 95 % of what"
            " the measured torque leaves for them beside the rigid bodies and rotors."
        )
        blocks.append(
            _chosen(
                moving,
                lambda t: figures.friction_curve(t.curve, t.friction, unit=t.unit, rate=t.rate),
                caption,
            )
        )
    return Section("Residuals", "residuals", tuple(blocks))


def _summary(joints: list[Joint], held_out: bool) -> Table:
    """Mean, RMS and the largest error of every joint."""
    part = "test" if held_out else "train"
    titles = ("joint", "unit", "mean", "RMS", "95 % of |e| below", "largest |e|")
    columns = (*map(Column, titles), Column("at", "s"), Column("rows"))
    rows = []
    for joint, traced in joints:
        each = traced.summary.get(part)
        if each is not None:
            below = float(np.quantile(np.abs(traced.cloud[part].residual), 0.95))
            rows.append(
                (
                    joint["name"],
                    traced.unit,
                    each.mean,
                    each.rms,
                    below,
                    each.largest,
                    each.at,
                    each.rows,
                )
            )
    return Table(
        columns,
        tuple(rows),
        f"What is left of the torque, {'held-out' if held_out else 'fitted'} rows, standstill"
        " included.",
    )


# -- pieces ----------------------------------------------------------------------------------------


def joined(parts: dict[str, Series]) -> Series | None:
    """The parts one after another, with a gap between them; None where there are none."""
    if not parts:
        return None
    gap = np.array([np.nan])
    t = [piece for series in parts.values() for piece in (series.t, series.t[-1:])]
    y = [piece for series in parts.values() for piece in (series.y, gap)]
    return Series(np.concatenate(t)[:-1], np.concatenate(y)[:-1])


def _chosen(
    joints: list[Joint], draw: Callable[[JointTraces], dict[str, Any]], caption: str
) -> Figure:
    """A figure per joint, of which the reader chooses; the joint that is predicted worst is shown
    first.
    """
    panels = tuple(Panel(joint["name"], draw(traced), _noted(joint)) for joint, traced in joints)
    return Figure(panels, caption, "choose", "joint", worst([joint for joint, _ in joints]))


def _noted(joint: dict[str, Any]) -> str:
    value = score(joint)
    return joint["name"] if value is None else f"{joint['name']} · R² {r2(value)}"


def _unit(found: dict[str, Any], traces: Traces) -> str:
    """Of the fitted joints' torques."""
    names = {joint["name"] for joint in asked(found)}
    units = sorted({joint.unit for joint in traces.joints if joint.name in names}, reverse=True)
    return " or ".join(units) or "N·m"
