"""What came of a control run: as plain data, and as the sections of a page."""

from __future__ import annotations

import numpy as np

from thetahat.connect.control_run import ControlResult
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
    before, after = result.tracking()
    names = result.robot.joint_names
    report = result.report
    return {
        "schema": SCHEMA,
        "via": via,
        "robot": result.robot.name,
        "seed": seed,
        "rate": rate,
        "duration": float(result.t[-1]) if len(result.t) else 0.0,
        "joints": [
            {
                "name": name,
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
        "cycle_us": None
        if report is None
        else {"p50": report.cycle_us.p50, "p99": report.cycle_us.p99},
        "assumed": list(result.notes),
        "files": {},
        "warnings": [],
    }


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def story(data: Data) -> str:
    """The run in two sentences."""
    gate = data["gate"]
    if gate["opened_at"] is None:
        return f"The gate stayed closed: {gate['reason']}."
    times = len(gate["closings"])
    closed = "" if not times else f" It closed {times} time{'s' if times > 1 else ''}."
    pairs = [
        (joint["tracking_before"], joint["tracking_after"])
        for joint in data["joints"]
        if joint["tracking_before"] is not None and joint["tracking_after"] is not None
    ]
    worst = [max(each) for each in zip(*pairs, strict=True)]
    tracking = f" RMS tracking error of the worst joint: {worst[0]:.3g} → {worst[1]:.3g}."
    return f"The gate opened at {gate['opened_at']:.1f} s.{closed}{tracking if pairs else ''}"


def sections(result: ControlResult, data: Data) -> tuple[Section, ...]:
    """The page: tracking before and after, gate and events."""
    open_now = data["gate"]["open_at_end"]
    note = Note(story(data), "good" if open_now else "warning")
    columns = (
        Column("joint"),
        Column("RMS error, nominal model", "rad or m"),
        Column("RMS error, identified model", "rad or m"),
    )
    rows = tuple(
        (joint["name"], joint["tracking_before"], joint["tracking_after"])
        for joint in data["joints"]
    )
    found: list[Block] = [note, *(Text(sentence) for sentence in data["assumed"])]
    return (
        Section("Result", "result", (*found, Table(columns, rows))),
        Section("Joint errors", "errors", (_errors(result),)),
        Section("Gate and events", "events", _events(result, data)),
    )


def _errors(result: ControlResult) -> Figure:
    rate = 1.0 / max(float(np.median(np.diff(result.t))), 1e-6) if len(result.t) > 1 else DRAWN
    drawn = slice(None, None, max(1, round(rate / DRAWN)))
    t, names = result.t[drawn], result.robot.joint_names
    lines = {name: Series(t, result.error[drawn, j]) for j, name in enumerate(names)}
    groups = {"errors": lines}
    if len(names) > MOST_LINES:
        groups = {name: {name: each} for name, each in lines.items()}
    marked = online_run.stretches(result.t, result.identified)
    panels = tuple(
        Panel(name, online_run.over_time(group, "wanted − measured", identified=marked))
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
