"""The report of an identification, section by section."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from thetahat.errors import known
from thetahat.identification.verdict_findings import EFFECTS
from thetahat.model.robot import Robot
from thetahat.report.section import Block, Column, Note, Section, Table, Text
from thetahat.report.sections import bodies, torques
from thetahat.report.sections.carried_body import carried_bodies
from thetahat.report.sections.choices import choices
from thetahat.report.sections.correlation_section import correlations
from thetahat.report.sections.hand_guiding_section import hand_guiding
from thetahat.report.sections.motion_section import motion
from thetahat.report.sections.plausibility_section import Regions, plausibility
from thetahat.report.sections.rollout_section import rollout
from thetahat.report.sections.use import use
from thetahat.report.text import Data, low_pass, short
from thetahat.report.traces import Traces
from thetahat.report.verdict_section import verdict

SETTINGS = {  # of provenance: titles, in the order shown
    "cutoff": "low-pass [Hz]",
    "min_speed": "standstill below [rad/s or m/s]",
    "friction": "friction",
    "weights": "weights",
    "prior": "prior",
    "prior_weight": "prior weight",
    "metric": "prior metric",
    "alpha": "alpha",
    "robust": "robust",
    "joints": "joints",
    "actuation": "actuation map",
    "columns": "columns",
    "topic": "topic",
    "salvage": "salvage",
    "keep": "kept in spite of the audit",
    "units": "units",
    "format": "format",
    "skip_bad_rows": "skip bad rows",
    "gravity": "gravity [m/s²]",
    "static": "held poses alone",
    "rows_fitted": "rows fitted",
    "rows_held_out": "rows held out",
}
TWO_COLUMNS = (Column("setting", wide=True), Column("value", wide=True))


def sections(
    estimate: Data,
    *,
    robot: Robot,
    identified: Robot,
    traces: Traces,
    covariance: np.ndarray | None = None,
    regions: Regions | None = None,
) -> list[Section]:
    """Return every section of the report.

    estimate: plain data, schema thetahat/estimate/1. robot: the nominal robot as it was fitted,
    joints that the log does not measure locked. identified: the same robot with the identified
    parameters. traces: collected from the log. covariance: of the base parameters. regions: that
    links take up, by body.
    """
    return [
        verdict(estimate),
        *hand_guiding(estimate),
        *carried_bodies(estimate, robot, traces.pose),
        torques.scores(estimate, traces),
        torques.torque(estimate, traces),
        torques.scatter(estimate, traces),
        torques.residuals(estimate, traces),
        rollout(estimate),
        motion(estimate, robot, traces),
        bodies.parameters(estimate),
        plausibility(estimate, robot, identified, regions=regions),
        bodies.consistency(estimate, robot, identified, traces.pose),
        bodies.identifiability(estimate),
        correlations(estimate, covariance),
        choices(estimate),
        audit(estimate),
        use(estimate),
        provenance(estimate),
    ]


def titles(estimate: Data) -> tuple[str, str]:
    """Return title and subtitle of the page."""
    origin = estimate["provenance"]
    logs = ", ".join(_file(log["path"]) for log in origin.get("logs", []))
    return f"{origin.get('robot') or 'robot'}: identification", f"from {logs}" if logs else ""


def audit(estimate: Data) -> Section:
    """Return the findings of the log's audit and the rows excluded from the fit."""
    blocks: list[Block] = [Note(text, "warning") for text in estimate.get("warnings", [])]
    if estimate["findings"]:
        columns = (
            Column("kind"),
            Column("finding, and what was done", wide=True),
            Column("joint"),
            Column("rows"),
            Column("log"),
        )
        rows = tuple(
            (item["kind"], item["message"], item["joint"], _range(item["rows"]), item.get("log"))
            for item in sorted(estimate["findings"], key=lambda item: item["kind"] not in EFFECTS)
        )
        blocks.append(Table(columns, rows, f"Findings of the audit ({len(rows)})"))
    else:
        blocks.append(Note("The audit has no findings.", "good"))
    if estimate["locked"]:
        blocks.append(Text(_locked(estimate)))
    return Section("Log audit", "audit", tuple(blocks))


def processing(estimate: Data) -> list[str]:
    """Return what was excluded from the fit, locked joints, and how settings were chosen."""
    settings, lines = estimate["provenance"]["settings"], []
    if estimate["dropped"]:
        counts = ", ".join(f"{number:,} {reason}" for reason, number in estimate["dropped"].items())
        lines.append(f"Torques excluded from the fit (one joint in one row each): {counts}.")
    if estimate["locked"]:
        lines.append(_locked(estimate))
    if settings.get("cutoff_reason"):
        lines.append(low_pass(settings["cutoff_reason"]))
    tuned = settings.get("tuned") or ()
    dry = ("dry friction", "Coulomb")  # given beside the table of friction
    return lines + [f"Tuning: {sentence}." for sentence in tuned if not sentence.startswith(dry)]


def _locked(estimate: Data) -> str:
    return f"Locked joints, as the log has no columns for them: {known(estimate['locked'])}."


def parity(estimate: Data) -> list[str]:
    """Return how well the written robot file reproduces the torques."""
    written = estimate.get("parity")
    if not written:
        return []
    text = (
        f"{written['file']} reproduces the identified torques to {written['torque_error']:.0e} N·m"
    )
    if written["not_in_file"]:
        names = known(written["not_in_file"])
        text += f"; {names}: in {written['drive_file']}, as the file format cannot hold them"
    return [f"{text}."]


def provenance(estimate: Data) -> Section:
    """Return files with their hashes, versions and settings: what reproduces the result."""
    origin = estimate["provenance"]
    files = [("robot", origin.get("robot_file"), origin.get("robot_sha256"))]
    for kind, logs in (("log", "logs"), ("test log", "test_logs")):
        files += [(kind, log["path"], log["sha256"]) for log in origin.get(logs, [])]
    path, sha = (Column(title, wide=True, code=True) for title in ("path", "SHA-256"))
    rows: list[tuple[str, str | None]] = [
        ("thetahat", origin.get("version")),
        ("schema", estimate["schema"]),
        ("method", estimate["method"]),
    ]
    for name, title in SETTINGS.items():
        value = origin.get("settings", {}).get(name)
        if value is not None and value is not False:
            rows.append((title, _range(value) if name.startswith("rows_") else _setting(value)))
    blocks: list[Block] = [
        Table((Column("file"), path, sha), tuple(files)),
        Table(TWO_COLUMNS, tuple(rows)),
    ]
    if estimate.get("parity"):
        pairs = estimate["parity"].items()
        written = tuple((name.replace("_", " "), _setting(value)) for name, value in pairs)
        columns = (Column("robot file written", wide=True), TWO_COLUMNS[1])
        blocks += [Table(columns, written), *map(Text, parity(estimate))]
    return Section("Provenance", "provenance", tuple(blocks))


def _setting(value: object) -> str | None:
    """Return a setting as text."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float | np.floating):
        return short(float(value))
    if isinstance(value, list | tuple):
        return ", ".join(_setting(each) or "–" for each in value) or "none"
    if isinstance(value, Mapping):
        return "; ".join(f"{key} {_setting(each) or '–'}" for key, each in value.items()) or "none"
    return str(value)


def _range(rows: list[int] | None) -> str | None:
    if rows is None:
        return None
    begin, end = rows
    return f"{begin:,} … {end - 1:,}" if end > begin + 1 else f"{begin:,}"


def _file(path: str) -> str:
    return path.replace("\\", "/").rsplit("/", 1)[-1]
