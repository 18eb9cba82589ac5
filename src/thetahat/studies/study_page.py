"""The pages of the studies: the report's figures and sections, put in the order of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from thetahat.data.samples import Samples
from thetahat.dynamics import rigid_body
from thetahat.identification.information import Information
from thetahat.identification.verdict_reason import Data
from thetahat.report.figures import online_run
from thetahat.report.figures.base import fit, shown
from thetahat.report.figures.time_series import torque_over_time, torque_scatter
from thetahat.report.section import Block, Column, Figure, Note, Panel, Section, Table, Text
from thetahat.report.sections.torques import joined
from thetahat.report.text import format_cell
from thetahat.report.traces import Series, Traces
from thetahat.studies.study import gate_sentence
from thetahat.studies.study_record import Run

TILES = 8
SIDE_BY_SIDE = 6  # joints up to which scatters stand side by side
MOST_LINES = 12  # joints in one figure
R2 = "R² = 1 − e'e/u'u"


def double_pendulum(
    facts: dict[str, Any], run: Run, noisy: Traces, clean: Traces
) -> tuple[Section, ...]:
    """Paper: joint trajectories, measured and computed torque over time, and as scatter with R²."""
    columns = (
        Column("joint"),
        Column("R² without noise", decimals=9),
        Column("R² with friction and noise", decimals=6, limits=(0.9, 0.99)),
    )
    rows = zip(facts["joints"], facts["r2_noise_free"], facts["r2"], strict=True)
    note = f"{R2}. Without noise: over {fitted_rows(clean)}; with it: over {fitted_rows(noisy)}."
    seen = ", ".join(f"{count} of {name}" for name, count in facts["parameters_seen"].items())
    verdict = Section(
        "Result",
        "result",
        (
            Note(
                "Offline identification by the pseudo-inverse, without an initial guess.",
                "good" if min(facts["r2"]) >= 0.99 else "warning",
            ),
            Table(columns, tuple(rows), note=note),
            Text(f"In a plane the torques depend on three of a link's ten parameters: {seen}."),
        ),
    )
    return (
        verdict,
        _trajectories(run),
        _torque(noisy),
        _scatter(noisy, "scatter", facts["r2"], columns[2]),
        _scatter(clean, "clean", facts["r2_noise_free"], columns[1]),
    )


def leg(
    facts: dict[str, Any], run: Run, traces: Traces, tracked: np.ndarray
) -> tuple[Section, ...]:
    """Paper: torque as it was computed with what was known then, and R² over time."""
    t, r2 = np.array(facts["r2_over_time"]["t"]), np.array(facts["r2_over_time"]["r2"], dtype=float)
    verdict = Note(
        f"R² of the estimate, all joints together, rose to {r2[-1]:.4f}; that of the initial guess"
        f" is {facts['r2_guess']:.3f}.",
        "good" if r2[-1] >= 0.99 else "warning",
    )
    curve = online_run.unexplained_over_time({"each estimate, on the whole run": Series(t, r2)})
    caption = (
        "1 − R² of each update's estimate, with all data until then and the initial guess, on a"
        " logarithmic axis. All scores of this"
        f" page: {R2} over {fitted_rows(traces)}."
    )
    score = Column("R² of the last estimate", decimals=4, limits=(0.9, 0.99))
    joints = Table(
        (Column("joint"), score),
        tuple(zip(facts["joints"], facts["r2"], strict=True)),
    )
    panels = []
    for j, (name, joint) in enumerate(zip(facts["joints"], traces.joints, strict=True)):
        then = Series(tracked[:, 0], tracked[:, 1 + j])
        panels.append(
            Panel(name, torque_over_time(joined(joint.lines.measured), then, unit=joint.unit), name)
        )
    torque = _by_joint(
        panels,
        "Measured torque, and the torque computed at every moment with the parameters known at that"
        " moment.",
    )
    return (
        Section("Result", "result", (verdict, Figure((Panel("1 − R²", curve),), caption), joints)),
        Section("Torque tracking", "tracking", (torque,)),
        _trajectories(run),
        _scatter(traces, "scatter", facts["r2"], score),
    )


def torque_as_it_was_known(whole: Information, run: Run, samples: Samples) -> np.ndarray:
    """(t, torques computed with the parameters of the update before), (n, 1 + nv), thinned out for
    drawing.
    """
    kept = samples.subset(slice(None, None, run.step))
    out = np.full((len(kept), 1 + run.robot.nv), np.nan)
    t = np.asarray(kept.t)
    out[:, 0] = t
    known = [update for update in run.updates if update.x_base is not None]
    ends = [*(update.t for update in known[1:]), np.inf]
    base = whole.base
    for update, end in zip(known, ends, strict=True):
        rows = np.flatnonzero((t >= update.t) & (t < end))
        if len(rows):
            x = np.zeros(base.columns)
            # any x with these base parameters gives the same torques
            x[base.independent] = update.x_base
            out[rows, 1:] = rigid_body.inverse_dynamics(
                whole.robot.with_parameters(x), kept.q[rows], kept.dq[rows], kept.ddq[rows]
            )
    return out


def arm(
    facts: dict[str, Any], run: Run, scored: tuple[np.ndarray, np.ndarray], traces: Traces
) -> tuple[Section, ...]:
    """Paper: the motion, R² converging, joint errors before and after the switch, measured against
    computed torque, tiles.
    """
    score = Column("R² of the last model", decimals=4)
    return (
        _gate(facts, run, Series(*scored)),
        _errors(facts, run),
        _torque(traces),
        _scatter(traces, "scatter", facts["r2_whole"], score),
        _trajectories(run),
        _tiles(run),
    )


def valkyrie(facts: dict[str, Any], run: Run) -> tuple[Section, ...]:
    """The same loop at 44 joints, and what each part of a cycle costs."""
    columns = (Column("part"), Column("p50", "µs"), Column("p99", "µs"), Column("largest", "µs"))
    rows = tuple(
        (part, each["p50"], each["p99"], each["max"]) for part, each in facts["parts_us"].items()
    )
    cost = Table(
        columns,
        rows,
        "Processor time of this thread per control cycle; the largest are cycles with an update.",
    )
    joints = Table(
        (Column("joint"), Column("R² held out", decimals=4, limits=(0.8, 0.95))),
        tuple(zip(facts["joints"], facts["r2"] or [], strict=False)),
        note=f"{R2} over the samples of the last update that are held out of the fit.",
    )
    count = (
        f"{len(facts['joints'])} joints, {facts['base_parameters']} base parameters with friction,"
        f" {facts['rank']} of them known."
    )
    return (
        _gate(facts, run),
        Section("Cost per cycle", "cost", (Text(count), cost)),
        Section("Joints", "joints", (joints,)),
        _errors(facts, run),
        _tiles(run),
    )


def valkyrie_floating(facts: Data, run: Run, sway: dict[str, Series]) -> tuple[Section, ...]:
    """Sway and torques before and after the switch, and what the feet told of the whole body."""
    before, after = facts["before"], facts["after"]
    rows = [
        (f"{what} {axis} [{unit}]", before[key][k], after[key][k])
        for what, key, unit in (
            ("base", "base_mm", "mm"),
            ("tilt of the base about", "tilt_mrad", "mrad"),
            ("centre of mass", "com_mm", "mm"),
        )
        for k, axis in enumerate("xyz")
    ]
    rows.append(("feedback torque [N·m]", before["feedback_torque"], after["feedback_torque"]))
    rows.append(("torque in all [N·m]", before["torque"], after["torque"]))
    columns = (
        Column("RMS error of"),
        Column("by the file", decimals=2),
        Column("by the identified robot", decimals=2),
    )
    note = (
        "The same sway was played twice; the same part of each pass is compared. Feedback torque is"
        " what the drives' stiffness and damping add to the feedforward."
    )
    mass, off = facts["mass"], facts["com_error_mm"]
    body = Table(
        (
            Column("whole body"),
            Column("total mass", "kg", decimals=2),
            *(Column(f"centre of mass {axis}, error", "mm", decimals=1) for axis in "xyz"),
        ),
        (
            ("true", mass["true"], 0.0, 0.0, 0.0),
            *((name, mass[name], *off[name]) for name in ("nominal", "identified")),
        ),
        "Centre of mass in the first posture. Swaying tells little of its height.",
    )
    lines = online_run.over_time(sway, "base − wanted [mm]", identified=_identified(run))
    caption = "Where the base was beside where it was to be; on green ground the feedforward is the"
    figure = Figure((Panel("base", lines),), f"{caption} identified robot's.")
    return (
        _gate(facts, run),
        Section("Sway", "sway", (figure, Table(columns, tuple(rows), note=note), body)),
        _errors(facts, run),
        _tiles(run),
    )


# -- sections --------------------------------------------------------------------------------------


def _gate(facts: Data, run: Run, whole: Series | None = None) -> Section:
    verdict = Note(
        gate_sentence(facts["gate"]), "good" if facts["gate"]["open_at_end"] else "warning"
    )
    curves = {
        "of the fit (paper)": run.over_updates("r2_fit"),
        "on samples held out": run.over_updates("r2"),
    }
    if whole is not None:
        curves = {"of each estimate on the whole run": whole, **curves}
    curve = online_run.unexplained_over_time(
        curves, threshold=0.95, identified=_identified(run), full_at=facts["gate"].get("full_at")
    )
    caption = (
        "1 − R² of every update, all joints together, on a logarithmic axis: over the samples in"
        " its buffer (of the fit), over those held out of it"
    )
    caption += "" if whole is None else ", and over the whole run, without standstill"
    caption += ". The nominal model is used until the gate opens."
    return Section("Result", "result", (verdict, Figure((Panel("1 − R²", curve),), caption)))


def _errors(facts: Data, run: Run) -> Section:
    t, identified = run.t[run.drawn], _identified(run)
    names = run.robot.velocity_names
    lines = {name: Series(t, run.error[run.drawn, j]) for j, name in enumerate(names)}
    groups = {"errors": lines}
    if len(names) > MOST_LINES:
        groups = {name: {name: each} for name, each in lines.items()}
    panels = [
        Panel(name, online_run.over_time(group, "wanted − true [rad]", identified=identified))
        for name, group in groups.items()
    ]
    caption = "Joint errors; on green ground the controller uses the identified model."
    blocks: list[Block] = [_by_joint(panels, caption)]
    if facts["bias_before"] is not None:
        keys = ("bias_before", "bias_after", "peak_to_peak_before", "peak_to_peak_after")
        columns = (Column("joint"), *(Column(key.replace("_", " "), "rad") for key in keys))
        swing = (
            "Over whole periods of the motion. The bias goes with the wrong model; friction, where"
            " it is identified and compensated, takes the peak-to-peak with it."
        )
        rows = tuple(zip(facts["joints"], *(facts[key] for key in keys), strict=True))
        blocks.append(Table(columns, rows, swing))
    if facts["max_torque_step"] is not None:
        step = (
            f"A switch of models changed the torque by at most {facts['max_torque_step']:.3g} N·m"
            f" in one cycle (bound {facts['slew_bound']:.3g})."
        )
        blocks.append(Text(step))
    return Section("Joint errors", "errors", tuple(blocks))


def _trajectories(run: Run) -> Section:
    t = run.t[run.drawn]
    panels = [
        Panel(
            node.name,
            online_run.wanted_and_measured(
                Series(t, run.wanted[run.drawn, j]),
                Series(t, run.q[run.drawn, j]),
                f"{shown(fit(node.name))} [rad]",
                identified=_identified(run),
            ),
        )
        for j, node in enumerate(run.robot.tree.independent)
    ]
    figure = _by_joint(panels, "Where each joint was to be, and where it was.")
    return Section("Joint trajectories", "trajectories", (figure,))


def _torque(traces: Traces) -> Section:
    panels = []
    for joint in traces.joints:
        drawn = torque_over_time(
            joined(joint.lines.measured),
            joined(joint.lines.predicted),
            unit=joint.unit,
            still=joint.still,
        )
        panels.append(Panel(joint.name, drawn))
    caption = "Measured torque, and the torque computed from the identified parameters."
    return Section("Torque over time", "torque", (_by_joint(panels, caption),))


def fitted_rows(traces: Traces) -> str:
    """Say which rows were fitted and are scored."""
    low_pass = "" if traces.cutoff is None else f", torques below {traces.cutoff:.4g} Hz"
    clouds = [cloud for joint in traces.joints for cloud in joint.cloud.values()]
    if all(np.all(cloud.moving) for cloud in clouds):
        return f"all rows of the run{low_pass}"
    return f"the rows of the run that were fitted, without standstill{low_pass}"


def _scatter(
    traces: Traces, anchor: str, scores: Sequence[float | None], column: Column
) -> Section:
    """Return the rows that were fitted, with the scores of that column of the page's table."""
    panels = []
    for joint, score in zip(traces.joints, scores, strict=True):
        title = f"{shown(fit(joint.name, 18))}: R² {format_cell(score, column)}"
        moving = {part: cloud.in_motion() for part, cloud in joint.cloud.items()}
        panels.append(
            Panel(joint.name, torque_scatter(moving, unit=joint.unit, title=title, size=300))
        )
    title = "Measured against computed torque" + (", without noise" if anchor == "clean" else "")
    arrangement = "grid" if len(panels) <= SIDE_BY_SIDE else "choose"
    caption = f"Points on the dashed line are exact. R² over {fitted_rows(traces)}."
    return Section(title, anchor, (Figure(tuple(panels), caption, arrangement, "joint"),))


def _tiles(run: Run) -> Section:
    rows = np.linspace(0, min(len(run.t) - 1, int(np.searchsorted(run.t, 4.0))), TILES).astype(int)
    figure = online_run.tiles(run.robot, run.q[rows], run.t[rows])
    caption = "The robot at moments of its motion, as a stick figure."
    return Section("Tiles of the motion", "tiles", (Figure((Panel("tiles", figure),), caption),))


def _by_joint(panels: list[Panel], caption: str) -> Figure:
    return Figure(tuple(panels), caption, "choose", "joint")


def _identified(run: Run) -> list[tuple[float, float]]:
    return online_run.stretches(run.t, run.identified)
