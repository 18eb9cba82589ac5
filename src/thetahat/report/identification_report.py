"""The report of an identification, section by section, in the order in which a robotics engineer
asks.
"""

from __future__ import annotations

from typing import Any

from thetahat.model.robot import Robot
from thetahat.report.section import Block, Column, Note, Section, Table, Text
from thetahat.report.sections import bodies, torques
from thetahat.report.text import GRAVE, short
from thetahat.report.traces import Traces
from thetahat.report.verdict_section import verdict

SETTINGS = {  # of provenance: titles, in the order shown
    "cutoff": "low-pass [Hz]",
    "min_speed": "standstill below [rad/s or m/s]",
    "friction": "friction",
    "weights": "weights",
    "prior": "prior",
    "prior_weight": "weight of the prior",
    "metric": "metric of the prior",
    "alpha": "alpha",
    "robust": "robust",
    "joints": "joints asked for",
    "actuation": "actuation map",
    "columns": "columns",
    "topic": "topic",
    "salvage": "salvage",
    "gravity": "gravity [m/s²]",
    "rows_fitted": "rows fitted",
    "rows_held_out": "rows held out",
}


def sections(
    found: dict[str, Any], *, robot: Robot, identified: Robot, traces: Traces
) -> list[Section]:
    """Every section of the report.

    found: the answer as plain data, schema thetahat/estimate/1. robot: the nominal robot as it was
    fitted, joints that the log does not measure locked. identified: the same robot with what was
    found. traces: what a `Collector` saw of the log.
    """
    return [
        verdict(found),
        torques.scores(found, traces),
        torques.torque(found, traces),
        torques.scatter(found, traces),
        torques.residuals(found, traces),
        bodies.parameters(found),
        bodies.consistency(found, robot, identified, traces.pose),
        bodies.unseen(found),
        audit(found),
        provenance(found),
    ]


def titles(found: dict[str, Any]) -> tuple[str, str]:
    """Title and subtitle of the page."""
    origin = found["provenance"]
    logs = ", ".join(_file(log["path"]) for log in origin.get("logs", []))
    return f"{origin.get('robot') or 'robot'}: identification", f"from {logs}" if logs else ""


def audit(found: dict[str, Any]) -> Section:
    """What the audit saw in the log, what was left out of the fit, and how the low-pass was
    chosen.
    """
    settings, blocks = found["provenance"]["settings"], []
    blocks += [Note(text, "warning") for text in found.get("warnings", [])]
    if found["findings"]:
        columns = (
            Column("kind"),
            Column("what, where, and what was done", wide=True),
            Column("joint"),
            Column("rows"),
            Column("log"),
        )
        order = sorted(found["findings"], key=lambda item: item["kind"] not in GRAVE)
        rows = tuple(
            (item["kind"], item["message"], item["joint"], _range(item["rows"]), item.get("log"))
            for item in order
        )
        blocks.append(Table(columns, rows, f"What the audit found ({len(rows)})"))
    else:
        blocks.append(Note("The audit found nothing to say about the log.", "good"))
    if found["dropped"]:
        columns = (Column("reason"), Column("torques left out of the fit"))
        blocks.append(
            Table(
                columns,
                tuple((reason, count) for reason, count in found["dropped"].items()),
                "A torque is one joint's in one row.",
            )
        )
    if found["locked"]:
        blocks.append(
            Text(
                "Held still, as the log has no column for them, and counted to what carries them:"
                f" {', '.join(found['locked'])}."
            )
        )
    reason = settings.get("cutoff_reason")
    if reason:
        blocks.append(Text(f"Low-pass: {'as given' if reason == 'given' else reason}."))
    return Section("Log audit", "audit", tuple(blocks))


def provenance(found: dict[str, Any]) -> Section:
    """Files with their hashes, versions and settings: what it takes to get the same answer
    again.
    """
    origin = found["provenance"]
    files = [("robot", origin.get("robot_file"), origin.get("robot_sha256"))]
    files += [("log", log["path"], log["sha256"]) for log in origin.get("logs", [])]
    files += [("test log", log["path"], log["sha256"]) for log in origin.get("test_logs", [])]
    blocks: list[Block] = [
        Table(
            (
                Column("file"),
                Column("path", wide=True, code=True),
                Column("SHA-256", wide=True, code=True),
            ),
            tuple(files),
        )
    ]
    settings = origin.get("settings", {})
    rows = [
        ("thetahat", origin.get("version")),
        ("schema", found["schema"]),
        ("method", found["method"]),
    ]
    settings = {
        name: _range(value) if name.startswith("rows_") else value
        for name, value in settings.items()
    }
    rows += [
        (title, _said(settings[name]))
        for name, title in SETTINGS.items()
        if settings.get(name) not in (None, False)
    ]
    blocks.append(Table((Column("setting", wide=True), Column("value", wide=True)), tuple(rows)))
    parity = found.get("parity")
    if parity:
        rows = [(name.replace("_", " "), _said(value)) for name, value in parity.items()]
        blocks.append(
            Table(
                (Column("robot file written", wide=True), Column("value", wide=True)), tuple(rows)
            )
        )
    return Section("Provenance", "provenance", tuple(blocks))


def _said(value: Any) -> str | None:
    """A setting as text."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return short(value)
    if isinstance(value, list | tuple):
        return ", ".join(_said(each) or "–" for each in value) or "none"
    if isinstance(value, dict):
        return "; ".join(f"{key} {_said(each) or '–'}" for key, each in value.items()) or "none"
    return str(value)


def _range(rows: list[int] | None) -> str | None:
    return (
        None
        if rows is None
        else f"{rows[0]:,} … {rows[1] - 1:,}"
        if rows[1] > rows[0] + 1
        else f"{rows[0]:,}"
    )


def _file(path: str) -> str:
    return path.replace("\\", "/").rsplit("/", 1)[-1]
