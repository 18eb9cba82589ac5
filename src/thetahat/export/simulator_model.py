"""What a simulator needs of a result: the robot, and each joint's drive and position loop.

Read from what `thetahat identify` wrote (estimate.json and the files beside it) or from an
actuators.json, schema thetahat/actuators/1. A field that is null or missing stays None; of
identified actuators, `model` states what their motion was simulated with, and a simulator gets the
same, so that it moves the same: such numbers are `assumed`, as the log does not tell them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from thetahat import robots
from thetahat.commit_record import finish_interrupted
from thetahat.errors import MalformedInput, NotUsable, StorageError, UsageError, known
from thetahat.identification.estimate_json import SCHEMA as ESTIMATE
from thetahat.identification.read_estimate import apply_estimate
from thetahat.identification.verdict_reason import Data
from thetahat.json_document import check_document, read_document
from thetahat.model import friction_terms
from thetahat.model.drive import Drive
from thetahat.model.io.load import load
from thetahat.model.io.save import with_drive_file
from thetahat.model.robot import Robot

ACTUATORS = "thetahat/actuators/1"
FILES = ("estimate.json", "actuators.json")  # of a folder that a verb wrote
DRIVE = ("armature", "viscous", "coulomb")  # which the robot itself has
LOOP = ("kp", "kd", "delay", "bias", "effort_limit", "offset")  # of the position loop around it
# few formats hold these
SHAPES = ("stribeck", "stribeck_speed", "load", "quadratic", "deadband", "backlash", "back_emf")
UNITS = {  # of a joint that turns, and of one that slides
    "armature": ("kg·m²", "kg"),
    "viscous": ("N·m·s/rad", "N·s/m"),
    "coulomb": ("N·m", "N"),
    "kp": ("N·m/rad", "N/m"),
    "kd": ("N·m·s/rad", "N·s/m"),
    "delay": ("s", "s"),  # of the command
    "bias": ("rad", "m"),  # of the encoder: reading minus angle
    "effort_limit": ("N·m", "N"),
    "offset": ("N·m", "N"),
    "stribeck": ("N·m", "N"),
    "stribeck_speed": ("rad/s", "m/s"),
    "load": ("N·m/(N·m)", "N/N"),
    "quadratic": ("N·m·s²/rad²", "N·s²/m²"),
    "deadband": ("rad", "m"),
    "backlash": ("rad", "m"),
    "back_emf": ("N·m·s/rad", "N·s/m"),
}
NEVER_NEGATIVE = (*DRIVE, *SHAPES, "kp", "kd", "delay", "effort_limit", "damping", "limit")
NO_LIMIT = 1e8  # [N·m] from which a limit is none


@dataclass(frozen=True, eq=False)
class JointDrive:
    """Drive and position loop of one joint, by the names of `UNITS`; what is missing is unknown."""

    name: str
    values: Mapping[str, float] = field(default_factory=dict)
    std: Mapping[str, float] = field(default_factory=dict)
    assumed: frozenset[str] = frozenset()  # what the log does not tell, of the values

    def get(self, term: str) -> float | None:
        """Return a quantity; None where it is not known."""
        return self.values.get(term)


@dataclass(frozen=True, eq=False)
class SimulatorModel:
    """A result as a simulator takes it."""

    robot: Robot  # with the identified bodies and drive
    joints: tuple[JointDrive, ...]  # in the order of the robot's joints of one degree of freedom
    schema: str  # of the result
    file: Path  # that was read
    data: Data

    @property
    def has_loop(self) -> bool:
        """Whether a position gain is known, so that the simulator can have position actuators."""
        return any(joint.get("kp") is not None for joint in self.joints)

    def with_joints(self, joints: tuple[JointDrive, ...]) -> SimulatorModel:
        """Return the model with other drives, of the same joints in the same order."""
        drive = self.robot.drive
        values = {term: np.array(drive.value(term)) for term in DRIVE}
        for k, joint in enumerate(joints):
            for term in DRIVE:
                values[term][k] = joint.values.get(term, values[term][k])
        drive = _with_shapes(drive.with_values(**values), joints)
        return replace(self, robot=replace(self.robot, drive=drive), joints=joints)


def read_simulator_model(
    path: Path, *, robot: str | None = None, force: bool = False
) -> SimulatorModel:
    """Read a result, its file or the folder it is in.

    robot: file or name of the robot, where the result does not lead to it. force: also of a result
    that is not usable.
    """
    file = result_file(path)
    data = read_document(file, None, "the JSON of a result")
    schema = data.get("schema")
    if schema not in (ESTIMATE, ACTUATORS):
        raise MalformedInput(
            f"{file}: schema is {str(schema)[:60]!r}; simulators take the results of identify"
            f" ({ESTIMATE}) and actuators ({ACTUATORS})"
        )
    name = "estimate" if schema == ESTIMATE else "actuators"
    check_document(data, name, str(file), "the JSON of a result")
    require_usable(file, data, force=force)
    try:
        if schema == ESTIMATE:
            return _of_estimate(file, data, robot)
        return _of_actuators(file, data, robot)
    except (KeyError, TypeError, AttributeError) as error:
        raise MalformedInput(
            f"{file} lacks a part or has one of another kind ({error}); write it again with"
            " thetahat"
        ) from None


def result_file(path: Path) -> Path:
    """Return the file of a result, given itself or the folder that holds it."""
    if not path.is_dir():
        return path
    finish_interrupted(path)
    there = [path / name for name in FILES if (path / name).is_file()]
    if not there:
        raise StorageError(
            f"{str(path)!r} holds no {' or '.join(FILES)}; give the folder that identify or"
            " actuators wrote"
        )
    return there[0]


def read_json(path: Path) -> Data:
    """Read a JSON object whose numbers are finite."""
    return read_document(path, None, "the JSON of a result")


def require_usable(file: Path, data: Data, *, force: bool) -> None:
    """Raise where a result says of itself that it is not usable."""
    verdict = data.get("verdict")
    if isinstance(verdict, Mapping) and verdict.get("level") == "not usable" and not force:
        reasons = verdict.get("reasons") or ["no reason is stated"]
        raise NotUsable(f"{file} is not usable: {reasons[0]}; --force takes it all the same")


# -- identify --------------------------------------------------------------------------------------


def _of_estimate(file: Path, data: Data, robot: str | None) -> SimulatorModel:
    gravity = ((data.get("provenance") or {}).get("settings") or {}).get("gravity")
    base = load(_robot_file(file, data, robot), gravity=gravity)
    model = apply_estimate(dict(data), base, where=str(file))
    rows = {str(row["name"]): row for row in data["joints"]}
    if data["motors"] is not None:
        rows = {}  # friction of motors that drive several joints is no joint's
    joints = tuple(
        JointDrive(
            name,
            _values(file, rows.get(name, {}), DRIVE) | _effort(model, name),
            _std(file, rows.get(name, {})),
        )
        for name in model.velocity_names
    )
    return SimulatorModel(model, joints, ESTIMATE, file, data)


# -- actuators -------------------------------------------------------------------------------------


def _of_actuators(file: Path, data: Data, robot: str | None) -> SimulatorModel:
    base = with_drive_file(load(_robot_file(file, data, robot)))
    rows = {str(row["name"]): row for row in data["joints"]}
    strangers = [name for name in rows if name not in base.velocity_names]
    if strangers or not rows:
        raise MalformedInput(
            f"{file} names the joint {strangers[0] if strangers else None!r}, which robot"
            f" {base.name!r} does not have; joints: {known(base.velocity_names)}: give its robot"
            " with --robot"
        )
    joints = tuple(
        _actuator(file, rows.get(name, {}), name, _effort(base, name))
        for name in base.velocity_names
    )
    return SimulatorModel(base, joints, ACTUATORS, file, data).with_joints(joints)


def _actuator(file: Path, row: Data, name: str, effort: dict[str, float]) -> JointDrive:
    """Return the drive of a row of actuators.json: what it tells, and what else it simulates."""
    told = effort | _drive_row(file, row)
    if not isinstance(row.get("model"), Mapping):
        return JointDrive(name, told, _std(file, row))
    model = _drive_row(file, {**row["model"], "name": name})
    if "effort_limit" not in model:
        told.pop("effort_limit", None)  # the file's, which the simulation did not have
    if told.get("kd") is None:  # viscous friction is the sum of both there
        model["viscous"], model["kd"] = model["viscous"] + model.get("kd", 0.0), 0.0
    values = model | told
    return JointDrive(name, values, _std(file, row), frozenset(values) - frozenset(told))


def _with_shapes(drive: Drive, joints: Sequence[JointDrive]) -> Drive:
    """Return a drive with the further terms of friction that these joints have."""
    found = {
        term: np.array([joint.get(term) or 0.0 for joint in joints])
        for term in SHAPES
        if any(joint.get(term) for joint in joints)
    }
    if "stribeck" in found:
        shape = friction_terms.stribeck(found["stribeck_speed"])
        drive = drive.with_extra_term(shape, found["stribeck"])
    if "load" in found:
        drive = drive.with_extra_term(friction_terms.by_load(found["load"] > 0.0), found["load"])
    if "quadratic" in found:
        shape = friction_terms.quadratic(found["quadratic"] > 0.0)
        drive = drive.with_extra_term(shape, found["quadratic"])
    return drive


def _drive_row(file: Path, row: Data) -> dict[str, float]:
    """Return what a row of actuators.json states.

    Where it tells the sum of kd and viscous friction alone, that sum is the joint's damping: a
    simulator moves the same, whichever of them it is.
    """
    found = _values(file, row, (*DRIVE, *LOOP, *SHAPES))
    damping, limit = _number(file, row, "damping"), _number(file, row, "limit")
    if damping is not None and "viscous" not in found:
        found["viscous"] = max(damping - found.get("kd", 0.0), 0.0)
    if limit is not None and limit < NO_LIMIT:
        found["effort_limit"] = limit
    return found


# -- parts -----------------------------------------------------------------------------------------


def _robot_file(file: Path, data: Data, robot: str | None) -> Path:
    """Return the robot's file: as asked for, beside the result, or where the result says it is."""
    if robot is not None:
        return robots.find(robot)
    beside = (data.get("parity") or {}).get("file")
    places = [] if beside is None else [file.parent / Path(str(beside)).name]
    stated = (data.get("provenance") or {}).get("robot_file")
    places += [] if stated is None else [Path(str(stated))]
    for place in places:
        if place.is_file():
            return place
    raise UsageError(
        f"{file} leads to no robot file ({known(map(str, places))}); give it with --robot"
    )


def _number(file: Path, row: Data, term: str) -> float | None:
    value = row.get(term)
    if value is None:
        return None
    wrong = isinstance(value, bool) or not isinstance(value, int | float)
    if wrong or not math.isfinite(value) or (term in NEVER_NEGATIVE and value < 0.0):
        raise MalformedInput(
            f"{file}: {term} of joint {str(row.get('name'))!r} is {str(value)[:40]}; it must be a"
            f" finite number{' from 0' if term in NEVER_NEGATIVE else ''}, so identify again"
        )
    return float(value)


def _values(file: Path, row: Data, terms: Iterable[str]) -> dict[str, float]:
    """Return those of the terms that a row states."""
    numbers = {term: _number(file, row, term) for term in terms}
    return {term: value for term, value in numbers.items() if value is not None}


def _std(file: Path, row: Data) -> dict[str, float]:
    stated = row.get("std")
    if not isinstance(stated, Mapping):
        return {}
    spreads = _values(file, {**stated, "name": row.get("name")}, (*DRIVE, *LOOP, *SHAPES))
    return {term: abs(value) for term, value in spreads.items()}


def _effort(robot: Robot, name: str) -> dict[str, float]:
    """Return the joint's limit of torque or force as the robot's file states it, if it does."""
    for node in robot.tree.independent:
        if node.name == name and 0.0 < node.limits.effort < math.inf:
            return {"effort_limit": float(node.limits.effort)}
    return {}
