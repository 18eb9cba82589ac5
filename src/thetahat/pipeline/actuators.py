"""Actuators of a robot from commanded and measured positions: what `thetahat actuators` does."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from thetahat.data.log import Log
from thetahat.engine.local import LocalEngine
from thetahat.engine.protocol import NoProgress, Progress
from thetahat.errors import MalformedInput, NotIdentifiable, UsageError, known
from thetahat.identification.actuators.drive_log import DriveLog
from thetahat.identification.actuators.drive_parameters import NO_LIMIT, DriveParameters
from thetahat.identification.actuators.drive_uncertainty import UNDETERMINED
from thetahat.identification.actuators.identify_drives import KnownGains, identify_drives
from thetahat.model.actuation import LEAST_GAIN, MOST_GAIN
from thetahat.model.io.position_gains import position_gains
from thetahat.model.lock_joints import lock
from thetahat.model.robot import Robot
from thetahat.pipeline.actuator_log import drive_log, moving_joints, require_single_dofs
from thetahat.pipeline.actuator_result import (
    ActuatorIdentification,
    ActuatorScores,
    ActuatorSource,
)
from thetahat.pipeline.dataset import LogInput, load_robot, read_logs
from thetahat.pipeline.freed_links import LinkFreedom
from thetahat.pipeline.settings import IdentifySettings
from thetahat.pipeline.solvable import solvable

FILES = ("actuators.json", "report.html")
Gains = float | Sequence[float] | Mapping[str, float] | None


def actuators(
    robot: Robot | str,
    logs: LogInput,
    *,
    test: LogInput = None,
    kp: Gains = None,
    kd: Gains = None,
    free: LinkFreedom | None = None,
    settings: IdentifySettings | None = None,
    progress: Progress | None = None,
) -> ActuatorIdentification:
    """Identify position-controlled drives: gains, friction, rotor inertia, delay, encoder bias.

    Args:
        robot: whose links are taken as they are in the file, or as a prior (`free`).
        logs: with commanded (`cmd.<joint>`) and measured positions (`q.<joint>`).
        test: logs to score on; default: the end of `logs`, whole runs where there are several.
        kp: position gains that are known [N·m/rad], for all joints, each, or by joint.
        kd: velocity gains that are known [N·m·s/rad]; without them only kd + viscous is found.
        free: whether links are fitted, too, and masses that are known.
        settings: how logs are read, gravity and holdout.
        progress: is told what goes on.

    """
    settings, progress = settings or IdentifySettings(), progress or NoProgress()
    whole = load_robot(robot, settings.gravity)
    require_single_dofs(whole)
    rows = _read(whole, logs, test, settings, progress)
    locked, fitted = rows.source.logs[0].locked, rows.fitted
    model = lock(whole, locked) if locked else whole
    gains = KnownGains(
        stated_gains(kp, "--kp", model.joint_names), stated_gains(kd, "--kd", model.joint_names)
    )
    moving = moving_joints(fitted)
    links = (free or LinkFreedom()).links(model, known_gains=gains, moving=moving, locked=locked)
    with solvable(model, rows.source.logs[0]):
        identified = identify_drives(
            model,
            fitted,
            known=gains,
            file_kp=_file_kp(model),
            moving=moving,
            stage=progress.stage,
            links=links,
        )
    progress.stage("scoring the motion")
    nominal = nominal_drives(model, identified.fit.drives)
    scores = ActuatorScores.of(
        identified.robot,
        fitted,
        rows.held_out,
        drives=identified.fit.drives,
        nominal=nominal,
        file_robot=None if links is None else model,
    )
    numbers = (scores.train, identified.uncertainty.covariance)
    if not all(np.all(np.isfinite(each)) for each in numbers):
        raise NotIdentifiable(UNDETERMINED)
    found = identified.robot
    return ActuatorIdentification(found, identified, gains, scores, rows.source, settings)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Logs, and their rows to fit and to score on."""

    source: ActuatorSource
    fitted: DriveLog
    held_out: DriveLog | None


def _read(
    robot: Robot, logs: LogInput, test: LogInput, settings: IdentifySettings, progress: Progress
) -> _Rows:
    engine = LocalEngine(progress)
    progress.stage("reading the log")
    log = read_logs(robot, logs, settings, engine)
    rows = drive_log(robot, log, settings.reading)
    if test is None:
        return _Rows(ActuatorSource((log,)), *_split(rows, settings.held_out))
    test_log = _test_log(robot, log, read_logs(robot, test, settings, engine), settings)
    held_out = drive_log(robot, test_log, settings.reading)
    return _Rows(ActuatorSource((log,), (test_log,)), rows, held_out)


def _test_log(robot: Robot, log: Log, test: Log, settings: IdentifySettings) -> Log:
    """Return the log to score on, if it fits the one that is fitted."""
    if settings.holdout is not None:
        raise UsageError(
            "--test and --holdout are both given; score on other logs or on a part of this one"
        )
    fitted = {source.sha256: source.path for source in log.sources}
    for source in test.sources:
        if source.sha256 in fitted:
            raise UsageError(
                f"--test {source.path} has the same content as {fitted[source.sha256]}, which is"
                " fitted; hold out another log"
            )
    if set(test.locked) != set(log.locked):
        only = sorted(set(test.locked) ^ set(log.locked))
        raise MalformedInput(
            f"the test log and the fitted one do not measure the same joints of {robot.name}"
            f" ({known(only)} in one alone); give logs with the same columns"
        )
    return test


def _split(log: DriveLog, share: float) -> tuple[DriveLog, DriveLog | None]:
    return (log, None) if share == 0.0 else log.split(share)


def _file_kp(robot: Robot) -> np.ndarray:
    """Return the position gains that the robot's file states, NaN where it states none."""
    stated = position_gains(robot)
    kp = [stated[name].kp if name in stated else math.nan for name in robot.joint_names]
    return np.array(kp, dtype=float)


def nominal_drives(robot: Robot, fitted: DriveParameters) -> DriveParameters:
    """Return the drives of the robot's file; gains that it does not state are the fitted ones."""
    values = fitted.values
    stated = position_gains(robot)
    kp, kd, limit = values[:, 0].copy(), values[:, 1].copy(), np.full(robot.nv, NO_LIMIT)
    for at, name in enumerate(robot.joint_names):
        if name in stated:
            kp[at], kd[at] = stated[name].kp, stated[name].kv
            limit[at] = min(stated[name].limit, NO_LIMIT)
    return DriveParameters.of(robot.nv).with_values(
        kp=kp,
        kd=kd,
        limit=limit,
        viscous=robot.drive.viscous,
        coulomb=robot.drive.coulomb,
        armature=robot.drive.armature,
    )


def stated_gains(given: Gains, option: str, joints: Sequence[str]) -> np.ndarray:
    """Return gains by joint, NaN where none is given."""
    out = np.full(len(joints), np.nan)
    if given is None:
        return out
    if isinstance(given, Mapping):
        by_joint = dict(given)
    else:
        values = np.atleast_1d(np.asarray(given, dtype=float))
        if len(values) not in (1, len(joints)):
            raise UsageError(
                f"{option} has {len(values)} numbers for {len(joints)} joints; give one, one for"
                " each joint, or JOINT=NUMBER"
            )
        by_joint = dict(zip(joints, np.broadcast_to(values, len(joints)), strict=True))
    zero = option == "--kd"
    for name, value in by_joint.items():
        if name not in joints:
            raise UsageError(
                f"{option} names {name!r}, which is no joint that the log measures; joints:"
                f" {known(joints)}"
            )
        if not (LEAST_GAIN <= value <= MOST_GAIN or (zero and value == 0.0)):
            wanted = "0, or one" if zero else "one"
            raise UsageError(
                f"{option} of {name} is {value:g}; give {wanted} from {LEAST_GAIN:g} to"
                f" {MOST_GAIN:g}" + ("" if zero else ": a drive without a gain holds no position")
            )
        out[list(joints).index(name)] = value
    return out
