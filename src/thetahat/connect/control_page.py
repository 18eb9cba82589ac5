"""What came of a control run: as plain data, and as the sections of a page."""

from __future__ import annotations

import numpy as np

from thetahat.connect.control_run import ControlResult
from thetahat.model import parameters
from thetahat.model.joint_units import joint_units
from thetahat.report.figures import online_run
from thetahat.report.section import Block, Column, Figure, Note, Panel, Section, Table, Text
from thetahat.report.text import Data
from thetahat.report.traces import Series

SCHEMA = "thetahat/control/1"
DRAWN = 100.0  # [Hz]
MOST_EVENTS = 200  # listed
MOST_LINES = 12  # joints in one figure


def describe(result: ControlResult, *, via: str, rate: float, seed: int) -> dict[str, object]:
    """Return `summary.json`, schema thetahat/control/1."""
    before, after = result.tracking.before_and_after()
    names = result.robot.joint_names
    report, units = result.report, _position_units(result)
    return {
        "schema": SCHEMA,
        "via": via,
        "robot": result.robot.name,
        "seed": seed,
        "rate": rate,
        "duration": float(result.tracking.t[-1]) if len(result.tracking.t) else 0.0,
        "joints": [
            {
                "name": name,
                "unit": units[j],
                "tracking_before": _number(before[j]),
                "tracking_after": None if after is None else _number(after[j]),
            }
            for j, name in enumerate(names)
        ],
        "gate": {
            "opened_at": result.stream.opened_at,
            "open_at_end": result.stream.open_at_end,
            "reason": result.stream.reason,
            "closings": [
                {"t": t, "reason": why} for t, is_open, why in result.stream.gate if not is_open
            ],
        },
        "events": [
            {"t": event.t, "kind": event.kind, "joint": event.joint, "sentence": event.sentence}
            for event in result.stream.events[:MOST_EVENTS]
        ],
        "counts": result.stream.counts,
        "max_torque_step": result.max_torque_step,
        "ended": "the page drove it" if report is None else report.reason,
        "cycle_us": {"p50": result.cycle_us.p50, "p99": result.cycle_us.p99},
        "links": _links(result),
        "assumed": list(result.notes),
        "files": {},
        "warnings": [],
    }


def _position_units(result: ControlResult) -> list[str]:
    return ["rad" if torque == "N·m" else "m" for torque, _ in joint_units(result.nominal)]


def _links(result: ControlResult) -> list[dict[str, object]] | None:
    """Mass and centre of mass of every link, file and identified; None where none was."""
    if not result.tracking.identified.any():
        return None
    file, identified = (
        parameters.to_mass_com_inertia(robot.theta.reshape(-1, parameters.SIZE))
        for robot in (result.nominal, result.robot)
    )
    return [
        {
            "name": name,
            "mass_file": float(file[0][i]),
            "mass": float(identified[0][i]),
            "com_file": file[1][i].tolist(),
            "com": identified[1][i].tolist(),
        }
        for i, name in enumerate(result.nominal.body_names)
    ]


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def story(data: Data) -> str:
    """The run in two sentences."""
    gate = data["gate"]
    if gate["opened_at"] is None:
        return f"The gate stayed closed: {gate['reason']}."
    times = len(gate["closings"])
    closed = "" if not times else f" It closed {times} time{'s' if times > 1 else ''}."
    return f"The gate opened at {gate['opened_at']:.1f} s.{closed}{_worst(data)}"


def _worst(data: Data) -> str:
    """Tracking of the joint that was worst before, of each unit."""
    sentences = []
    for unit in ("rad", "m"):
        known = [
            joint
            for joint in data["joints"]
            if joint["unit"] == unit
            and None not in (joint["tracking_before"], joint["tracking_after"])
        ]
        if known:
            worst = max(known, key=lambda joint: float(joint["tracking_before"]))
            before, after = ((1e3 * worst[f"tracking_{when}"]) for when in ("before", "after"))
            sentences.append(
                f" RMS tracking error of {worst['name']}, the worst before: {before:.3g} →"
                f" {after:.3g} m{unit}."
            )
    return "".join(sentences)


def sections(result: ControlResult, data: Data) -> tuple[Section, ...]:
    """The page: tracking before and after, gate and events."""
    open_now = data["gate"]["open_at_end"]
    note = Note(story(data), "good" if open_now else "warning")
    columns = (
        Column("joint"),
        Column("RMS error, nominal model"),
        Column("RMS error, identified model"),
        Column("unit"),
    )
    rows = tuple(
        (joint["name"], joint["tracking_before"], joint["tracking_after"], joint["unit"])
        for joint in data["joints"]
    )
    blocks: list[Block] = [note, *(Text(sentence) for sentence in data["assumed"])]
    cycle = data["cycle_us"]
    time = f"A command took {cycle['p50']:.0f} µs in the median, {cycle['p99']:.0f} µs in 99 % of"
    ends = Text(f"{time} the cycles. The run ended: {data['ended']}.")
    return (
        Section("Result", "result", (*blocks, Table(columns, rows), ends)),
        Section("Joint errors", "errors", (_errors(result),)),
        *_identified(data),
        Section("Gate and events", "events", _events(result, data)),
    )


def _identified(data: Data) -> tuple[Section, ...]:
    """The links of the last model that commanded, beside the file's."""
    if data["links"] is None:
        return ()
    columns = (
        Column("link"),
        Column("mass, file", "kg"),
        Column("mass, identified", "kg"),
        Column("centre of mass, file", "m"),
        Column("centre of mass, identified", "m"),
    )
    links = data["links"]
    rows = [
        (
            link["name"],
            link["mass_file"],
            link["mass"],
            _vector(link["com_file"]),
            _vector(link["com"]),
        )
        for link in links
    ]
    total = (sum(link[key] for link in links) for key in ("mass_file", "mass"))
    caption = (
        "Of the last identified model that commanded the robot. Single links can trade mass with"
        " their neighbours: torques show only sums of them (thetahat inspect lists those); what the"
        " motion does not show stays near the file's value."
    )
    table = Table(columns, (*rows, ("total", *total, "", "")), caption)
    return (Section("Identified robot", "identified", (table,)),)


def _vector(values: list[float]) -> str:
    return ", ".join(f"{value:.3f}" for value in values)


def _errors(result: ControlResult) -> Figure:
    rate = (
        1.0 / max(float(np.median(np.diff(result.tracking.t))), 1e-6)
        if len(result.tracking.t) > 1
        else DRAWN
    )
    drawn = slice(None, None, max(1, round(rate / DRAWN)))
    t, names = result.tracking.t[drawn], result.robot.joint_names
    lines = {name: Series(t, result.tracking.error[drawn, j]) for j, name in enumerate(names)}
    groups = {"errors": lines}
    if len(names) > MOST_LINES:
        groups = {name: {name: each} for name, each in lines.items()}
    title = f"wanted − measured [{' or '.join(dict.fromkeys(_position_units(result)))}]"
    marked = online_run.stretches(result.tracking.t, result.tracking.identified)
    panels = tuple(
        Panel(name, online_run.over_time(group, title, identified=marked))
        for name, group in groups.items()
    )
    caption = "Joint errors; on green ground the controller uses the identified model."
    return Figure(panels, caption, group="joint")


def _events(result: ControlResult, data: Data) -> tuple[Block, ...]:
    gate = Table(
        (Column("time", "s", decimals=2), Column("gate"), Column("reason", wide=True)),
        tuple((t, "open" if is_open else "closed", why) for t, is_open, why in result.stream.gate),
        f"The gate at the end: {data['gate']['reason']}.",
    )
    events = Table(
        (
            Column("time", "s", decimals=2),
            Column("kind"),
            Column("joint"),
            Column("what happened", wide=True),
        ),
        tuple((e["t"], e["kind"], e["joint"], e["sentence"]) for e in data["events"]),
        "Events of the stream.",
    )
    return (gate, events)
