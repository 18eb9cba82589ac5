"""Files offered for download: estimate.json, the robot file, drive.json and a report.

They are of what the identifier remembers at that moment. Everything here is slow against a control
cycle, so it runs in a process of its own; its input travels as plain arrays (`Snapshot`).
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from thetahat.data.samples import STANDSTILL, USABLE, Samples
from thetahat.errors import NotIdentifiable, ThetahatError
from thetahat.files import as_text
from thetahat.identification.estimate import Estimate
from thetahat.identification.estimate_json import PLAIN, as_data, number
from thetahat.identification.estimators.consistent import Consistent
from thetahat.identification.estimators.least_squares import LeastSquares
from thetahat.identification.information import Information, information
from thetahat.identification.parameter_columns import Columns
from thetahat.identification.scores import validate
from thetahat.identification.solve import solve
from thetahat.identification.tuning.cross_validation import METRIC
from thetahat.identification.verdict import Verdict, with_verdict
from thetahat.live.held_body import HeldBody
from thetahat.live.viewers import encodable
from thetahat.model.io.save import save
from thetahat.model.robot import Robot
from thetahat.online.identifier import OnlineIdentifier
from thetahat.online.stacked_factor import Stack
from thetahat.pipeline import outputs
from thetahat.report.identification_report import sections
from thetahat.report.page import render
from thetahat.report.section import Block, Column, Figure, Note, Section, Table, Text
from thetahat.report.trace_collector import Collector

WEIGHTS = "iterated"
# of the prior, as the memory is too short to choose one: a weaker one leaves bodies that the robot
# cannot have, a stronger one hides what the memory knows
WEIGHT = 3.0
LONGEST_NAME = 90  # characters of a base parameter's name
SAMPLE_ARRAYS = ("q", "dq", "ddq", "tau", "valid")
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Memory of an identifier after an update, as arrays."""

    t: float  # [s]
    samples: Arrays | None  # the samples that are fitted, where they are kept,
    factors: tuple[np.ndarray, ...] | None  # or else the triangular factor of every joint,
    rows: np.ndarray | None  # and the torques in each of them
    count: int  # samples
    held: Arrays  # samples in no fit
    x: np.ndarray | None  # parameters that predict
    payload: HeldBody | None = None  # what a link was found to hold

    @staticmethod
    def of(identifier: OnlineIdentifier, t: float) -> Snapshot:
        """Copy the memory of an identifier; quick, for the loop waits."""
        model, x = identifier.model, None
        if model is not None:
            motors = list(model.drive.column_motors)
            drive = [model.drive.value(term)[motors] for term in model.drive.identified]
            x = np.concatenate([model.theta, *drive])
        held, samples = arrays(identifier.held_out), identifier.samples
        payload = HeldBody.of(identifier)
        if samples is not None:
            return Snapshot(t, arrays(samples), None, None, len(samples), held, x, payload)
        info = identifier.information
        return Snapshot(t, None, info.factors, info.rows, info.samples, held, x, payload)

    def information(self, robot: Robot) -> Information:
        """Return the information of the remembered samples."""
        if self.samples is not None and len(self.samples["q"]):
            return information(robot, _samples(self.samples), threads=1)
        if self.factors is None or self.rows is None or not self.count:
            raise NotIdentifiable("nothing identified yet: the memory is empty; move the robot")
        stack = Stack(robot)
        return Information(robot, stack.base, stack.positions, self.factors, self.rows, self.count)


@dataclass(frozen=True)
class LogInfo:
    """The log of a run, where there is one."""

    findings: tuple[str, ...] = ()  # of its audit
    locked: tuple[str, ...] = ()  # joints that it does not measure
    provenance: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class DownloadRequest:
    """All that the files need beside the robots."""

    snapshot: Snapshot
    recent: Arrays  # t, q, dq, ddq, tau of the last rows, none of them fitted
    figures: tuple[Figure, ...]
    events: tuple[dict[str, Any], ...]
    title: str
    cutoff: float | None  # [Hz] of the identifier
    min_speed: tuple[float, ...]
    log: LogInfo


@dataclass(frozen=True)
class Downloads:
    """Contents of the files."""

    estimate: bytes
    robot: bytes | None
    robot_name: str
    drive: bytes | None  # drive.json, for what the robot file cannot hold
    report: bytes
    verdict: str = ""  # whether the result can be used, in a line


@dataclass(frozen=True, eq=False)
class ParameterTable:
    """Base parameters as the page shows them."""

    t: float = 0.0  # [s]
    rows: tuple[dict[str, Any], ...] = ()
    condition: float | None = None
    theta: np.ndarray | None = None  # of the bodies, where it is physical


def arrays(samples: Samples) -> Arrays:
    """Return the arrays of samples."""
    return {name: getattr(samples, name) for name in SAMPLE_ARRAYS}


def _samples(sent: Arrays, *, t: np.ndarray | None = None, cutoff: float | None = None) -> Samples:
    reason = np.where(sent["valid"], np.uint8(USABLE), np.uint8(STANDSTILL))
    q, dq, ddq, tau = (sent[name] for name in SAMPLE_ARRAYS[:4])
    return Samples(q=q, dq=dq, ddq=ddq, tau=tau, t=t, reason=reason, cutoff=cutoff)


def parameter_table(robot: Robot, _nominal: Robot, snapshot: Snapshot) -> ParameterTable:
    """Compute base parameters with their standard deviations beside the nominal ones."""
    estimate = solve(snapshot.information(robot), LeastSquares())
    base, columns, x = estimate.base, Columns(robot), snapshot.x
    values = estimate.x_base if x is None else base.map @ x
    nominal, std = base.map @ columns.x0, estimate.base_std
    rows = tuple(
        {
            "joint_or_link": columns.pairs[column][1],
            "name": name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…",
            "unit": columns.units[column],
            "nominal": number(nominal[k]),
            "value": number(values[k]),
            "std": number(std[k]),
            "identified": number(std[k]) is not None,
        }
        for k, (name, column) in enumerate(zip(base.names, base.independent, strict=True))
    )
    physical = x is not None and all(robot.with_parameters(x).consistency)
    theta = x[: len(robot.theta)] if x is not None and physical else None
    return ParameterTable(snapshot.t, rows, number(estimate.condition), theta)


# -- files -----------------------------------------------------------------------------------------


def _fit(robot: Robot, info: Information) -> Estimate:
    """Fit consistent parameters with the nominal robot as the prior.

    The metric is that of `thetahat identify`; the memory is too short to choose the weight.
    """
    physical = robot if all(robot.consistency) else robot.projected()
    prior = Columns(physical).x0
    return solve(info, Consistent(prior=prior, weight=WEIGHT, metric=METRIC, weights=WEIGHTS))


def make_downloads(robot: Robot, nominal: Robot, request: DownloadRequest) -> Downloads:
    """Make all files from the physically consistent fit of the snapshot."""
    info = request.snapshot.information(robot)
    estimate = _fit(robot, info)
    identified = robot.with_parameters(estimate)
    beside = {PLAIN: robot.with_parameters(solve(info, LeastSquares(weights=WEIGHTS)))}
    held = _samples(request.snapshot.held, cutoff=request.cutoff)
    test = validate(identified, held, nominal=nominal, beside=beside) if len(held) else None
    data = as_data(
        estimate,
        rows=info.rows,
        robot=nominal,
        test=test,
        raw=None,
        provenance=_provenance(robot, estimate, request),
    )
    data |= {"locked": list(request.log.locked), "dropped": {}, "findings": []}
    data["warnings"] = list(request.log.findings)
    data = with_verdict(data)
    content, name, drive = _robot_file(identified, data)
    collector = Collector(identified, nominal)
    recent = held
    if len(request.recent["t"]):
        recent = _samples(request.recent, t=request.recent["t"], cutoff=request.cutoff)
    if len(recent):
        collector.add(recent, "test")
    page = sections(
        data,
        robot=nominal,
        identified=identified,
        traces=collector.result(),
        covariance=estimate.covariance,
    )
    payload, last = request.snapshot.payload, recent.q[-1] if len(recent) else robot.neutral
    carried = [] if payload is None else [payload.section(nominal, last)]
    report = render(
        f"{request.title}: live identification",
        [page[0], _section(request), *carried, *page[1:]],
        subtitle=f"after {request.snapshot.t:.1f} s, from {request.snapshot.count} samples",
    )
    text = encodable(as_text(data))
    verdict = encodable(Verdict.from_data(data["verdict"]).headline)
    return Downloads(text.encode(), content, name, drive, report.encode(), verdict)


def _robot_file(identified: Robot, data: dict[str, Any]) -> tuple[bytes | None, str, bytes | None]:
    """Return (robot file, its name, drive.json); sets the file's parity in `data`."""
    source = identified.source
    if source is None:
        return None, "robot.urdf", None
    name = outputs.Targets.beneath("", source).robot.name
    verdict = Verdict.from_data(data["verdict"])
    refusal = outputs.robot_file_refusal(identified, verdict, force=False)
    if refusal is not None:
        data["advice"].append(refusal)
        return None, name, None
    with tempfile.TemporaryDirectory(prefix="thetahat-live-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            saved = save(identified, Path(folder) / name)
        except ThetahatError as error:
            data["advice"].append(f"no robot file is written: {error}")
            return None, name, None
        data["parity"] = saved.as_data()
        drive = None if saved.drive_file is None else saved.drive_file.read_bytes()
        return saved.path.read_bytes(), name, drive


def _provenance(robot: Robot, estimate: Estimate, request: DownloadRequest) -> dict[str, Any]:
    """Return the fields of an identification from a log, as far as a live run has them."""
    identified = robot.drive.identified
    settings = {
        "cutoff": float(request.cutoff or 0.0),
        "torque_cutoff": request.cutoff,
        "delay": 0.0,
        "cutoff_reason": "causal filter of the online identifier",
        "tuned": [],
        "min_speed": list(request.min_speed),
        "friction": [term for term in ("viscous", "coulomb", "offset") if term in identified],
        "armature": "fitted" if "armature" in identified else "not fitted",
        "weights": WEIGHTS,
        "prior_weight": WEIGHT,
        "metric": METRIC,
        "robust": False,
        "salvage": False,
        "keep": [],
        "skip_bad_rows": False,
        "gravity": [float(value) for value in robot.gravity],
        "rows_fitted": [0, int(estimate.samples)],
        "rows_held_out": [0, len(request.snapshot.held["q"])],
        **dict.fromkeys(("prior", "alpha", "joints", "actuation", "columns", "topic")),
        **dict.fromkeys(("units", "format", "mass_range", "total_mass", "bounds", "gains")),
        "frozen": [],
        "tied": [],
    }
    logs = list(request.log.provenance.get("logs", ()))
    return {**outputs.provenance(robot, None, None, settings), "logs": logs}


def _section(request: DownloadRequest) -> Section:
    """Return the section on the run: what was on the page."""
    snapshot = request.snapshot
    text = (
        f"{request.title} after {snapshot.t:.1f} s: identified from the {snapshot.count} samples"
        " in the identifier's memory."
    )
    notes = (Note(sentence, "warning") for sentence in request.log.findings[:5])
    blocks: list[Block] = [Text(text), *notes, *request.figures]
    if request.events:
        columns = (Column("t", "s", decimals=2), Column("kind"), Column("event", wide=True))
        rows = tuple(
            (float(event["t"]), event["kind"], event["message"])
            for event in reversed(request.events)
        )
        blocks.append(Table(columns, rows, f"Events ({len(rows)})"))
    return Section("Live run", "live", tuple(blocks))
