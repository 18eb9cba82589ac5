"""`drive.json`: the drive terms that a robot's file cannot hold, beside it.

    {"schema": "thetahat/drive/1", "robot": "arm.urdf", "sha256": "…",
     "joints": ["shoulder", …],    degrees of freedom, in the order of dq
     "motors": ["shoulder", …],    owners of the values; the joints without an actuation map
     "terms": {"offset": {"units": ["N·m", …], "values": [0.1, …]}},
     "actuation": null}            or {"matrix": [[…]], "gains": […]}: u_joint = matrix·u_motor

A term that is here replaces what the robot's file states of it, whole. Behind an actuation map all
terms are here. A matrix that depends on q, and the shape of a further term (Stribeck), are code:
they are null, or a name, and the robot must have them already.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from thetahat.errors import MalformedInput, RobotWarning, UsageError, known
from thetahat.json_document import check_document, parse_document
from thetahat.model.drive import Drive
from thetahat.model.friction_terms import (
    DriveTerm,
    FrictionDirection,
    expanded_to_motors,
    term_from_settings,
)
from thetahat.model.io.write_back import at_joints
from thetahat.model.io.xml_reader import label, read_bytes, shown
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind

SCHEMA = "thetahat/drive/1"
NAME = "drive.json"
WANTED = "a drive.json that th.save wrote"
SAME = 1e-12  # relative: below it what a file gives differs from what was meant by rounding


# -- writing ---------------------------------------------------------------------------------------


def missing_terms(robot: Robot, file: Robot) -> tuple[str, ...]:
    """Return the drive terms that the robot's file, read again, does not hold; "actuation" for a
    map from motors to joints.
    """
    drive, stated = robot.drive, file.drive
    law = ("direction",) if drive.dry is not None and np.any(drive.coulomb) else ()
    if drive.actuation is None:
        return law + tuple(
            term
            for term in drive.terms
            if not _same(
                drive.value(term),
                stated.value(term) if _stated_alike(stated, drive, term) else np.zeros(robot.nv),
            )
        )
    alone = (
        np.sum(drive.actuation.touches(), axis=0) == 1
        if drive.actuation.constant
        else np.zeros(drive.actuation.motors, dtype=bool)
    )
    held = [
        t
        for t in ("viscous", "coulomb", "armature")
        if not np.any(drive.value(t)[~alone]) and _same_at_joints(drive, stated, t)
    ]
    return (
        "actuation",
        *law,
        *(term for term in drive.terms if np.any(drive.value(term)) and term not in held),
    )


def _stated_alike(stated: Drive, drive: Drive, term: str) -> bool:
    """Whether a file states the term, in the same shape."""
    return term in stated.terms and stated.term(term).settings == drive.term(term).settings


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.all(np.abs(a - b) <= SAME * np.maximum(np.abs(a), np.abs(b))))


def _same_at_joints(drive: Drive, stated: Drive, term: str) -> bool:
    return _same(at_joints(drive, len(stated.viscous))[term], stated.value(term))


def drive_content(robot: Robot, terms: Iterable[str], *, file: str, sha256: str) -> str:
    """Format a drive file: these terms, or all of them behind an actuation map."""
    drive = robot.drive
    actuation = drive.actuation
    matrix = None if actuation is None else actuation.constant_matrix
    motors = robot.velocity_names if actuation is None else actuation.names
    chosen = (
        [term for term in drive.terms if term in terms]
        if actuation is None
        else [t for t in drive.terms if np.any(drive.value(t))]
    )
    turning = _turning(robot)
    data = {
        "schema": SCHEMA,
        "robot": file,
        "sha256": sha256,
        "joints": list(robot.velocity_names),
        "motors": list(motors),
        "terms": {term: _stated(drive, term, turning) for term in chosen},
        **(
            {}
            if drive.dry is None
            else {
                "direction": {"zone": drive.dry.zone.tolist(), "travel": drive.dry.travel.tolist()}
            }
        ),
        "actuation": (
            None
            if actuation is None
            else {
                "matrix": None if matrix is None else matrix.tolist(),
                "gains": None if actuation.gains is None else list(actuation.gains),
            }
        ),
    }
    return _laid_out(data)


def _stated(drive: Drive, term: str, turning: list[bool]) -> dict[str, Any]:
    """A term as the file holds it: units, values, and the settings of its shape where it
    has any.
    """
    shape = drive.term(term)
    settings = {name: list(values) for name, values in shape.settings}
    out = {
        "units": [shape.units[0 if turns else 1] for turns in turning],
        "values": drive.value(term).tolist(),
    }
    return {**out, "settings": settings} if settings else out


def _laid_out(data: dict[str, Any]) -> str:
    """JSON with a line per key, and one per term."""
    lines = []
    for key, value in data.items():
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        if key == "terms" and value:
            inner = ",\n".join(
                f"  {json.dumps(name)}: {json.dumps(term, ensure_ascii=False, allow_nan=False)}"
                for name, term in value.items()
            )
            text = f"{{\n{inner}\n }}"
        lines.append(f" {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _turning(robot: Robot) -> list[bool]:
    """Whether each motor turns; one that drives several joints does if any of them does."""
    turns = []
    for node in robot.tree.independent:
        match node.kind:
            case JointKind.PRISMATIC:
                turns += [False]
            case JointKind.PLANAR:
                turns += [False, False, True]
            case JointKind.FREE:
                turns += [True] * 3 + [False] * 3
            case _:
                turns += [True] * node.kind.nv
    actuation = robot.drive.actuation
    return (
        turns
        if actuation is None
        else [bool(np.any(np.array(turns)[column])) for column in actuation.touches().T]
    )


# -- the place -------------------------------------------------------------------------------------


def drive_place(path: Path) -> Path:
    """Return the path of a robot file's drive file: `drive.json`, or `<stem>.drive.json` where that
    belongs to another robot.
    """
    common = path.parent / NAME
    if found := drive_file_of(path):
        return found
    return (
        path.parent / f"{path.stem}.{NAME}"
        if common.exists() and _owner(common) != path.name
        else common
    )


def drive_file_of(path: Path) -> Path | None:
    """Return the drive file that belongs to a robot file, or None."""
    for place in (path.parent / f"{path.stem}.{NAME}", path.parent / NAME):
        if place.is_file() and _owner(place) == path.name:
            return place
    return None


def _owner(place: Path) -> str | None:
    """The robot file a drive file names; None where it is not one of ours."""
    try:
        data = parse_document(read_bytes(place), str(place), WANTED)
        return data["robot"] if data["schema"] == SCHEMA else None
    except (OSError, ValueError, KeyError):
        return None


# -- reading ---------------------------------------------------------------------------------------


def with_drive_file(
    robot: Robot, path: str | os.PathLike[str] | None = None, *, shapes: Iterable[DriveTerm] = ()
) -> Robot:
    """Return the robot with the drive terms of a drive file.

    path: the file; by default the one beside the robot's own file, if there is one. shapes: of the
    file's further terms, which are code. Joints that the file does not name keep what they have.
    """
    if path is None:
        place = drive_file_of(robot.source) if robot.source else None
        return robot if place is None else with_drive_file(robot, place, shapes=shapes)
    file = _DriveFile(Path(path))
    if (
        robot.source is not None
        and robot.source.name == file.robot
        and robot.source.is_file()
        and _digest(robot.source) != file.sha256
    ):
        warnings.warn(
            f"{file.label} was written for another version of {robot.source.name}; save both again",
            RobotWarning,
            stacklevel=2,
        )
    return _applied(robot, file, {shape.term: shape for shape in shapes})


def with_drive_text(robot: Robot, text: str, path: Path, shapes: Iterable[DriveTerm] = ()) -> Robot:
    """Return the robot with the drive terms of a drive file that is not on disk yet."""
    return _applied(
        robot,
        _DriveFile(path, text.encode("utf-8", "backslashreplace")),
        {shape.term: shape for shape in shapes},
    )


class _DriveFile:
    """A drive file, checked."""

    def __init__(self, path: Path, text: bytes | None = None) -> None:
        self.label = label(path)
        data = parse_document(read_bytes(path) if text is None else text, self.label, WANTED)
        check_document(data, "drive", self.label, WANTED)
        self.robot, self.sha256 = data.get("robot"), data.get("sha256")
        self.joints, self.motors = self._names(data, "joints"), self._names(data, "motors")
        terms = data.get("terms")
        if not isinstance(terms, dict):
            raise MalformedInput(
                f"{self.label}: 'terms' is missing; it holds a term's name and its values"
            )
        self.terms = {
            str(name): self._values(term, f"terms.{name}", len(self.motors))
            for name, term in terms.items()
        }
        self.shapes = self._shapes(terms)
        self.dry = self._direction(data.get("direction"))
        self.actuated = data.get("actuation") is not None
        self.matrix: np.ndarray | None = None
        self.gains: tuple[float | None, ...] | None = None
        if self.actuated:
            self._read_actuation(data["actuation"])

    def _names(self, data: dict[str, Any], key: str) -> tuple[str, ...]:
        names = data.get(key)
        if (
            not isinstance(names, list)
            or not all(isinstance(name, str) for name in names)
            or len(set(names)) < len(names)
        ):
            raise MalformedInput(
                f"{self.label}: {key!r} is not a list of different names; save the robot again"
            )
        return tuple(names)

    def _values(self, term: Any, key: str, count: int) -> np.ndarray:
        values = term.get("values") if isinstance(term, dict) else term
        if not isinstance(values, list) or len(values) != count:
            raise MalformedInput(
                f"{self.label}: {key} does not hold {count} values, one per motor; save the robot"
                " again"
            )
        for value in values:
            if (
                isinstance(value, bool)
                or not isinstance(value, int | float)
                or not abs(value) <= 1e30
            ):  # NaN fails this, too
                raise MalformedInput(
                    f"{self.label}: {key} holds {shown(str(value))}; give finite numbers"
                )
        return np.array(values, dtype=float)

    def _shapes(self, terms: dict[str, Any]) -> dict[str, DriveTerm]:
        """Of terms whose shape is one of ours."""
        found = {
            str(name): term_from_settings(
                str(name), term.get("settings"), motors=len(self.motors), where=self.label
            )
            for name, term in terms.items()
            if isinstance(term, dict)
        }
        return {name: shape for name, shape in found.items() if shape is not None}

    def _direction(self, stated: Any) -> FrictionDirection | None:
        if stated is None:
            return None
        if not isinstance(stated, dict):
            raise MalformedInput(
                f"{self.label}: 'direction' is not an object with 'zone' and 'travel'; save the"
                " robot again"
            )
        zone, travel = (
            self._values(stated.get(key), f"direction.{key}", len(self.motors))
            for key in ("zone", "travel")
        )
        if np.any(zone < 0.0) or np.any(travel < 0.0) or np.any((zone > 0.0) & (travel > 0.0)):
            raise MalformedInput(
                f"{self.label}: 'direction' has a negative number, or zone and travel of one motor;"
                " save the robot again"
            )
        return FrictionDirection(zone, travel)

    def _read_actuation(self, actuation: Any) -> None:
        if not isinstance(actuation, dict):
            raise MalformedInput(
                f"{self.label}: 'actuation' is not an object with 'matrix' and 'gains'; save the"
                " robot again"
            )
        matrix, gains = actuation.get("matrix"), actuation.get("gains")
        if matrix is not None:
            if not isinstance(matrix, list) or len(matrix) != len(self.joints):
                raise MalformedInput(
                    f"{self.label}: actuation.matrix does not hold {len(self.joints)} rows, one per"
                    " joint; save the robot again"
                )
            self.matrix = np.array(
                [self._values(row, "actuation.matrix", len(self.motors)) for row in matrix]
            )
        if gains is not None:
            known_gains = self._values(
                [g if g is not None else 1.0 for g in gains] if isinstance(gains, list) else gains,
                "gains",
                len(self.motors),
            )
            self.gains = tuple(
                None if stated is None else float(gain)
                for stated, gain in zip(gains, known_gains, strict=True)
            )


def _applied(robot: Robot, file: _DriveFile, shapes: dict[str, DriveTerm]) -> Robot:
    if file.actuated:
        robot = _actuated(robot, file)
        if robot.drive.actuation is not None and robot.drive.actuation.gains != file.gains:
            robot = replace(
                robot,
                drive=replace(
                    robot.drive, actuation=replace(robot.drive.actuation, gains=file.gains)
                ),
            )
    names = robot.velocity_names if robot.drive.actuation is None else robot.drive.actuation.names
    unknown = [name for name in file.motors if name not in names]
    if unknown:
        raise UsageError(
            f"{file.label} is for another robot: it names {shown(unknown[0])}, which {robot.name!r}"
            f" does not have; motors: {known(names)} (joints can be locked after it was applied)"
        )
    at = [names.index(name) for name in file.motors]
    drive = robot.drive
    for term, values in file.terms.items():
        if term not in drive.terms:
            if term in file.shapes and term not in shapes:
                made = expanded_to_motors(file.shapes[term], at, len(names))
                drive = replace(drive.with_extra_term(made), identified=drive.identified)
            elif term not in shapes:
                raise UsageError(
                    f"{file.label}: the shape of term {shown(term)} is code, which no file holds;"
                    " hand it in with shapes=[...]"
                )
            else:
                drive = replace(drive.with_extra_term(shapes[term]), identified=drive.identified)
        new = drive.value(term).copy()
        new[at] = values
        drive = drive.with_values(**{term: new})
    if file.dry is not None:
        zone, travel = np.zeros(len(names)), np.zeros(len(names))
        zone[at], travel[at] = file.dry.zone, file.dry.travel
        drive = drive.with_dry(FrictionDirection(zone, travel))
    return replace(robot, drive=drive)


def _actuated(robot: Robot, file: _DriveFile) -> Robot:
    """The robot with the file's actuation map and no drive values yet."""
    if file.joints != robot.velocity_names:
        raise UsageError(
            f"{file.label} maps motors to the joints {known(file.joints)}, and robot {robot.name!r}"
            f" has {known(robot.velocity_names)}; lock the joints it leaves out first"
        )
    if file.matrix is not None:
        return robot.without_drive().with_actuation(
            file.matrix, names=file.motors, gains=file.gains
        )
    actuation = robot.drive.actuation
    if actuation is None or actuation.names != file.motors:
        raise UsageError(
            f"{file.label}: the actuation map depends on q, which no file holds; give the robot its"
            " map first with with_actuation(...)"
        )
    zero = {term: np.zeros(actuation.motors) for term in robot.drive.terms}
    return replace(robot, drive=robot.drive.with_values(**zero))


def _digest(path: Path) -> str:
    return hashlib.sha256(read_bytes(path)).hexdigest()
