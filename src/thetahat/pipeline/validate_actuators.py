"""Identified actuators scored on other logs: what `thetahat validate` does of an actuators.json."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from thetahat.engine.local import LocalEngine
from thetahat.engine.protocol import NoProgress, Progress
from thetahat.errors import MalformedInput, known
from thetahat.identification.actuators.actuator_verdict import judge_actuators
from thetahat.identification.actuators.drive_motion import DriveMotion
from thetahat.identification.actuators.drive_parameters import NAMES, DriveParameters
from thetahat.identification.verdict_reason import Data, Fields
from thetahat.model.io.load import load
from thetahat.model.joint_units import joint_units
from thetahat.model.lock_joints import lock
from thetahat.model.robot import Robot
from thetahat.pipeline.actuator_log import drive_log, moving_joints, require_single_dofs
from thetahat.pipeline.actuator_rollout import command_rollout
from thetahat.pipeline.actuators import nominal_drives
from thetahat.pipeline.dataset import LogInput, load_robot, read_logs
from thetahat.pipeline.outputs import provenance
from thetahat.pipeline.settings import IdentifySettings

SCHEMA = "thetahat/actuator-validation/1"


def score_actuators(
    robot: Robot | str,
    logs: LogInput,
    answer: Data,
    file: Path,
    *,
    settings: IdentifySettings,
    rollout: bool = False,
    progress: Progress | None = None,
) -> Fields:
    """Simulate the commands of logs with identified drives, beside those of the robot's file.

    answer: data of an actuators.json, read from `file`. rollout: errors by horizon, too.
    """
    progress = progress or NoProgress()
    whole = load_robot(robot, settings.gravity)
    require_single_dofs(whole)
    progress.stage("reading the log")
    log = read_logs(whole, logs, settings, LocalEngine(progress))
    rows = drive_log(whole, log, settings.reading)
    nominal_robot = lock(whole, log.locked) if log.locked else whole
    fitted_robot = nominal_robot
    if answer["links"] == "free":
        freed = _freed_robot(answer, file, settings)
        fitted_robot = lock(freed, log.locked) if log.locked else freed
    drives = _drives(answer, file, fitted_robot)
    nominal = nominal_drives(nominal_robot, drives)
    progress.stage("scoring the motion")
    motion = DriveMotion.of(fitted_robot, rows, drives.values, nominal.values, nominal_robot)
    simulated = None
    if rollout:
        simulated = command_rollout(fitted_robot, rows, drives, nominal, nominal_robot)
    data: Fields = {
        "schema": SCHEMA,
        "robot": whole.name,
        "samples_test": rows.rows,
        **_errors(motion, moving_joints(rows), fitted_robot),
        "rollout": None if simulated is None else simulated.as_data(),
        "locked": list(log.locked),
        "warnings": [],
        "provenance": provenance(whole, log, None, {"actuators": str(file)}),
    }
    judged = [{**joint, "scale_known": True} for joint in data["joints"]]
    beside = {**data, "joints": judged, "rms_train": None, "converged": True}
    return {**data, "verdict": judge_actuators(beside).as_data()}


def _errors(motion: DriveMotion, moving: np.ndarray, robot: Robot) -> Fields:
    """Return errors by joint and run, and their means."""
    kinds = {"test": motion.simulated, "nominal": motion.nominal, "command": motion.command}
    errors = {kind: motion.errors(positions) for kind, positions in kinds.items()}
    return {
        "joints": [
            {
                "name": name,
                "unit": joint_units(robot)[at][0],
                "moves": bool(moving[at]),
                **{f"rms_{kind}": _mean(each[:, at]) for kind, each in errors.items()},
            }
            for at, name in enumerate(robot.joint_names)
        ],
        **{f"rms_{kind}": _mean(each) for kind, each in errors.items()},
        "runs": [
            {"name": name, "rms": [_mean(value) for value in each]}
            for (name, _, _), each in zip(motion.log.runs, errors["test"], strict=True)
        ],
    }


def _drives(answer: Data, file: Path, robot: Robot) -> DriveParameters:
    """Return the drives that an answer simulates with, of these joints."""
    rows = {row["name"]: row["model"] for row in answer["joints"]}
    missing = [name for name in robot.joint_names if name not in rows]
    if missing:
        raise MalformedInput(
            f"{file} has no drives of {known(missing)}, which the log moves; joints:"
            f" {known(list(rows))}: identify actuators on a log of these joints"
        )
    out = DriveParameters.of(robot.nv)
    values = out.values
    for at, name in enumerate(robot.joint_names):
        for parameter, term in enumerate(NAMES):
            values[at, parameter] = rows[name].get(term, 0.0)
    return out


def _freed_robot(answer: Data, file: Path, settings: IdentifySettings) -> Robot:
    name = (answer["parity"] or {}).get("file")
    path = None if name is None else file.parent / Path(str(name)).name
    if path is None or not path.is_file():
        raise MalformedInput(
            f"{file}: its links were free, and the robot file with them"
            f" ({name or 'written with --out'}) is not beside it; keep both in one folder"
        )
    return load(path, gravity=settings.gravity)


def _mean(values: np.ndarray) -> float | None:
    value = float(np.mean(values))
    return value if np.isfinite(value) else None
