"""What the page lets one take home: the estimate, the robot's file and a report, of what the
identifier remembers at that moment.

Everything here is slow against a control cycle, so it is done in a process of its own; what it
needs travels as plain arrays (`Memory`).
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from thetahat import __version__
from thetahat.data.samples import STANDSTILL, USABLE, Samples
from thetahat.errors import NotIdentifiable, ThetahatError
from thetahat.identification.estimate import Estimate
from thetahat.identification.estimate_json import PLAIN, as_data, number
from thetahat.identification.estimators.consistent import Consistent
from thetahat.identification.estimators.least_squares import LeastSquares
from thetahat.identification.information import Information, information
from thetahat.identification.parameter_columns import Columns
from thetahat.identification.scores import validate
from thetahat.identification.solve import solve
from thetahat.live.safe_text import encodable
from thetahat.model.io.save import save
from thetahat.model.robot import Robot
from thetahat.online.identifier import OnlineIdentifier
from thetahat.online.stacked_factor import Stack
from thetahat.report.identification_report import sections
from thetahat.report.page import render
from thetahat.report.section import Block, Column, Figure, Note, Panel, Section, Table, Text
from thetahat.report.trace_collector import Collector

WEIGHT, METRIC = (
    1e-2,
    "euclidean",
)  # of the nominal robot in what the data do not show: the buffer is too short to choose by
WEIGHTS = "iterated"
LONGEST = 90  # letters of a base parameter's name
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Memory:
    """What an identifier remembered after an update, as arrays."""

    t: float  # [s]
    samples: (
        Arrays | None
    )  # q, dq, ddq, tau, valid of the samples that are fitted, where they are kept
    factors: tuple[np.ndarray, ...] | None  # or else the triangles of every joint,
    rows: np.ndarray | None  # the torques in each of them
    count: int  # samples
    held: Arrays  # samples in no fit
    x: np.ndarray | None  # parameters that predict

    @staticmethod
    def of(identifier: OnlineIdentifier, t: float) -> Memory:
        """Copy what an identifier knows; quick, for the loop waits."""
        samples, factors, rows, count = identifier.samples, None, None, 0
        if samples is None:
            info = identifier.information
            factors, rows, count = info.factors, info.rows, info.samples
        else:
            count = len(samples)
        model = identifier.model
        drive = (
            None
            if model is None
            else [
                model.drive.value(term)[list(model.drive.column_motors)]
                for term in model.drive.identified
            ]
        )
        x = None if model is None else np.concatenate([model.theta, *drive])
        return Memory(
            t,
            None if samples is None else arrays(samples),
            factors,
            rows,
            count,
            arrays(identifier.held_out),
            x,
        )


@dataclass(frozen=True, eq=False)
class Order:
    """All that a report of a live run needs beside the memory."""

    memory: Memory
    recent: Arrays  # t, q, dq, ddq, tau of the last while, none of them fitted
    figures: tuple[tuple[str, str, dict[str, Any]], ...]  # title, caption, figure
    events: tuple[dict[str, Any], ...]
    title: str
    cutoff: float | None  # [Hz] of the identifier
    min_speed: tuple[float, ...]
    provenance: Mapping[str, Any] = field(default_factory=dict)
    findings: tuple[str, ...] = ()
    locked: tuple[str, ...] = ()


@dataclass(frozen=True)
class Product:
    """Files, by what they are called in a download."""

    estimate: bytes
    robot: bytes | None
    robot_name: str
    drive: bytes | None  # beside the robot's file, for what that cannot hold
    report: bytes


def arrays(samples: Samples) -> Arrays:
    """Samples as what travels."""
    return {
        "q": samples.q,
        "dq": samples.dq,
        "ddq": samples.ddq,
        "tau": samples.tau,
        "valid": samples.valid,
    }


def _samples(found: Arrays, **more: Any) -> Samples:
    reason = np.where(found["valid"], np.uint8(USABLE), np.uint8(STANDSTILL))
    return Samples(
        **{name: found[name] for name in ("q", "dq", "ddq", "tau")}, reason=reason, **more
    )


def _information(robot: Robot, memory: Memory) -> Information:
    if memory.samples is not None and len(memory.samples["q"]):
        return information(robot, _samples(memory.samples), threads=1)
    stack = Stack(robot)
    if memory.factors is None or not memory.count:
        raise NotIdentifiable(
            "nothing has been learned yet: no sample is in the memory; let the robot move"
        )
    return Information(
        robot, stack.base, stack.positions, memory.factors, memory.rows, memory.count
    )


# -- parameters, as the page shows them ------------------------------------------------------------


def parameters(robot: Robot, memory: Memory) -> dict[str, Any]:
    """Rows of base parameters with their standard deviations beside nominal, the condition and the
    rank of the data.
    """
    estimate = solve(_information(robot, memory), LeastSquares())
    base, columns = estimate.base, Columns(robot)
    values = estimate.x_base if memory.x is None else base.map @ memory.x
    nominal, std, independent = base.map @ columns.x0, estimate.base_std, base.independent
    rows = [
        {
            "joint_or_link": columns.pairs[column][1],
            "name": _short(name),
            "unit": columns.units[column],
            "nominal": number(stated),
            "value": number(value),
            "std": number(spread),
            "identified": number(spread) is not None,
        }
        for name, column, stated, value, spread in zip(
            base.names, independent, nominal, values, std, strict=True
        )
    ]
    return {
        "t": memory.t,
        "rows": rows,
        "condition": number(estimate.condition),
        "rank": int(estimate.rank),
        "theta": _theta(robot, memory),
    }


def _theta(robot: Robot, memory: Memory) -> list[float] | None:
    """The bodies' parameters, where those that predict are physical."""
    if memory.x is None:
        return None
    theta = memory.x[: len(robot.theta)]
    return theta.tolist() if all(robot.with_parameters(memory.x).consistency) else None


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"


# -- files -----------------------------------------------------------------------------------------


def produce(robot: Robot, nominal: Robot, order: Order) -> Product:
    """The three files, of the physically consistent fit of what is remembered."""
    info = _information(robot, order.memory)
    physical = robot if all(robot.consistency) else robot.projected()
    estimate = solve(
        info, Consistent(prior=Columns(physical).x0, weight=WEIGHT, metric=METRIC, weights=WEIGHTS)
    )
    identified = robot.with_parameters(estimate)
    beside = {PLAIN: robot.with_parameters(solve(info, LeastSquares(weights=WEIGHTS)))}
    held = _samples(order.memory.held, cutoff=order.cutoff)
    test = validate(identified, held, nominal=nominal, beside=beside) if len(held) else None
    found = as_data(
        estimate,
        rows=info.rows,
        robot=nominal,
        test=test,
        raw=None,
        provenance=_provenance(robot, estimate, order),
    )
    found |= {
        "locked": list(order.locked),
        "dropped": {},
        "findings": [],
        "warnings": list(order.findings),
    }
    with tempfile.TemporaryDirectory(prefix="thetahat-live-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        content, name, drive = _saved(identified, Path(folder), found)
    collector = Collector(identified, nominal)
    recent = (
        _samples(order.recent, t=order.recent["t"], cutoff=order.cutoff)
        if len(order.recent["t"])
        else held
    )
    if len(recent):
        collector.add(recent, "test")
    report = [
        _live(order),
        *sections(found, robot=nominal, identified=identified, traces=collector.result()),
    ]
    page = render(
        f"{order.title}: live identification",
        report,
        subtitle=f"after {order.memory.t:.1f} s, {order.memory.count} samples remembered",
    )
    told = json.dumps(found, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    return Product(encodable(told).encode(), content, name, drive, page.encode())


def _saved(
    identified: Robot, folder: Path, found: dict[str, Any]
) -> tuple[bytes | None, str, bytes | None]:
    """(the robot's file, its name, drive.json or None); what it is worth goes into `found`."""
    source = identified.source
    if source is None:
        return None, "robot.urdf", None
    name = f"{source.stem}_identified{source.suffix or '.urdf'}"
    try:
        saved = save(identified, folder / name)
    except ThetahatError as error:
        found["advice"].append(f"no robot file is written: {error}")
        return None, name, None
    found["parity"] = saved.as_data()
    return (
        saved.path.read_bytes(),
        name,
        None if saved.drive_file is None else saved.drive_file.read_bytes(),
    )


def _provenance(robot: Robot, estimate: Estimate, order: Order) -> dict[str, Any]:
    """Of a live run: the fields of an identification from a log, as far as there are any."""
    source = robot.source
    identified = robot.drive.identified
    return {
        "robot": robot.name,
        "robot_file": None if source is None else str(source),
        "robot_sha256": None if source is None else hashlib.sha256(source.read_bytes()).hexdigest(),
        "logs": list(order.provenance.get("logs", ())),
        "test_logs": [],
        "version": __version__,
        "settings": {
            "cutoff": float(order.cutoff or 0.0),
            "torque_cutoff": order.cutoff,
            "delay": 0.0,
            "cutoff_reason": "causal averages of the online identifier",
            "tuned": [],
            "min_speed": list(order.min_speed),
            "friction": [term for term in ("viscous", "coulomb", "offset") if term in identified],
            "armature": "in the model" if "armature" in identified else "not in the model",
            "weights": WEIGHTS,
            "prior": None,
            "prior_weight": WEIGHT,
            "metric": METRIC,
            "alpha": None,
            "robust": False,
            "joints": None,
            "actuation": None,
            "columns": None,
            "topic": None,
            "salvage": False,
            "gravity": [float(value) for value in robot.gravity],
            "rows_fitted": [0, int(estimate.samples)],
            "rows_held_out": [0, len(order.memory.held["q"])],
        },
    }


def _live(order: Order) -> Section:
    """What was on the page."""
    text = (
        f"The identifier's memory after {order.memory.t:.1f} s of {order.title}: fitted are the"
        f" {order.memory.count} samples that it kept."
    )
    blocks: list[Block] = [
        Text(text),
        *(Note(sentence, "warning") for sentence in order.findings[:5]),
    ]
    blocks += [Figure((Panel(title, figure),), caption) for title, caption, figure in order.figures]
    if order.events:
        columns = (Column("t", "s", decimals=2), Column("kind"), Column("what happened", wide=True))
        rows = tuple(
            (float(event["t"]), event["kind"], event["message"]) for event in reversed(order.events)
        )
        blocks.append(Table(columns, rows, f"Events ({len(rows)})"))
    return Section("Live run", "live", tuple(blocks))
