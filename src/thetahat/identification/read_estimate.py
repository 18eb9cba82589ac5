"""Read an `estimate.json`, and apply it to the robot that it belongs to."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from thetahat.errors import MalformedInput, UsageError, known
from thetahat.identification.verdict_reason import Data, Fields
from thetahat.json_document import Document, read_document
from thetahat.model.drive import TERMS, Drive
from thetahat.model.friction_terms import FrictionDirection, term_from_settings
from thetahat.model.lock_joints import lock
from thetahat.model.robot import Robot
from thetahat.model.wrench_sensors import (
    sensed_link,
    sensor_links,
    with_wrench_sensors,
    without_wrench_sensors,
)

WANTED = "an estimate.json that thetahat identify wrote"


def read_estimate(path: str | os.PathLike[str]) -> Document:
    """Read an `estimate.json`, schema thetahat/estimate/1."""
    return read_document(Path(path), "estimate", WANTED)


def apply_estimate(data: Fields, robot: Robot, *, where: str = "the estimate") -> Robot:
    """Return the robot with the values of an estimate.

    Joints that its log did not measure are locked, as they were for the fit. Wrist sensors of the
    log are left out, unless the robot has them.
    """
    links = stated_sensors(data)
    if not links or sensor_links(robot):
        return _with_values(data, robot, where)
    try:
        measured = with_wrench_sensors(robot.without_drive(), links)
    except UsageError as error:
        raise MalformedInput(f"{where} is of another robot: {error}") from None
    return without_wrench_sensors(_with_values(data, measured, where))


def stated_sensors(data: Data) -> tuple[str, ...]:
    """Return the links whose wrenches an estimate was identified with."""
    rows = data.get("joints")
    names = [str(row.get("name")) for row in rows if isinstance(row, dict)] if rows else []
    return tuple(dict.fromkeys(link for name in names if (link := sensed_link(name))))


def _with_values(data: Fields, robot: Robot, where: str) -> Robot:
    try:
        locked = list(data["locked"])
        links = list(data["links"])
        drives = list(data["joints"] if data["motors"] is None else data["motors"])
        strangers = sorted(set(map(str, locked)) - set(robot.joint_names))
        model = robot if strangers else lock(robot, locked).without_drive()
        if (
            strangers
            or [link["name"] for link in links] != list(model.body_names)
            or len(data["joints"]) != model.nv
        ):
            theirs, ours = known([str(link["name"]) for link in links]), known(robot.body_names)
            raise MalformedInput(
                f"{where} is of another robot, with bodies {theirs}; {robot.name!r} has {ours}:"
                " give the robot it was made with"
            )
        if data["motors"] is not None:
            model = _with_map(model, data.get("actuation"), where)
        theta = np.array(
            [
                [_number(value, where, f"theta of {link['name']}") for value in link["theta"]]
                for link in links
            ],
            dtype=float,
        )
        values = {
            term: [_number(row.get(term, 0.0), where, f"{term} of {row['name']}") for row in drives]
            for term in TERMS
        }
        drive = model.drive.with_values(
            **{term: np.array(numbers) for term, numbers in values.items()}
        )
        drive = _with_friction(drive, data.get("friction"), where)
    except (KeyError, TypeError, AttributeError) as error:
        raise MalformedInput(
            f"{where} lacks a part or has one of another kind ({error}); give an estimate.json that"
            " thetahat identify wrote"
        ) from None
    if theta.shape != (len(model.body_names), 10):
        raise MalformedInput(
            f"{where} has {theta.shape[-1] if theta.ndim == 2 else 'uneven'} numbers per link;"
            " there are ten"
        )
    return replace(model, drive=drive).with_parameters(theta.ravel())


def fitted_robot(data: Fields, robot: Robot, *, where: str = "the estimate") -> Robot:
    """Return the robot with the values of an estimate, and with the columns that were fitted."""
    model = apply_estimate(data, robot, where=where)
    rows = data["joints"] if data["motors"] is None else data["motors"]
    terms = {term: any(row.get(term) is not None for row in rows) for term in TERMS}
    friction = data.get("friction") or {"terms": {}}
    more = dict.fromkeys(friction["terms"], True)
    model = replace(model, drive=model.drive.with_terms(**terms, **more))
    rotors = [k for k, row in enumerate(rows) if row.get("armature") is not None]
    return model.with_rotors(rotors) if 0 < len(rotors) < len(rows) else model


def base_covariance(data: Fields, names: tuple[str, ...], *, where: str) -> np.ndarray:
    """Return the covariance of base parameters, (p, p), infinite where nothing determines them.

    names: that the parameters must have.
    """
    rows = data.get("base_covariance")
    stated = tuple(str(row["name"]) for row in data["base_parameters"])
    if (
        rows is None
        or stated != names
        or [len(row) for row in rows] != [k + 1 for k in range(len(names))]
    ):
        raise MalformedInput(
            f"{where} does not hold the covariance of this robot's {len(names)} base parameters;"
            " identify the robot without a payload again, with this version and this robot file"
        )
    out = np.zeros((len(names), len(names)))
    for k, row in enumerate(rows):
        out[k, : k + 1] = out[: k + 1, k] = [np.inf if v is None else float(v) for v in row]
    return out


def _with_friction(drive: Drive, friction: Fields | None, where: str) -> Drive:
    """The law of dry friction and the terms beyond the four."""
    if friction is None:
        return drive
    motors = len(drive.viscous)
    if friction["zone"] is not None:
        zone, travel = (
            [_number(value, where, f"{name} of dry friction") for value in friction[name]]
            for name in ("zone", "travel")
        )
        if len(zone) != motors or len(travel) != motors:
            raise MalformedInput(
                f"{where}: the law of dry friction is for {len(zone)} motors, and there are"
                f" {motors}; identify again"
            )
        drive = drive.with_dry(FrictionDirection(np.array(zone), np.array(travel)))
    for term, stated in friction["terms"].items():
        shape = term_from_settings(str(term), stated["settings"], motors=motors, where=where)
        if shape is None or len(stated["values"]) != motors:
            raise MalformedInput(
                f"{where}: the friction term {term!r} is none that thetahat knows, or not for"
                f" {motors} motors; identify again"
            )
        values = np.array([_number(value, where, f"{term} friction") for value in stated["values"]])
        drive = replace(drive.with_extra_term(shape, values), identified=drive.identified)
    return drive


def _with_map(robot: Robot, actuation: dict[str, Any] | None, where: str) -> Robot:
    if actuation is None or actuation["map"] is None:
        raise MalformedInput(
            f"{where} does not hold its map from motors to joints (it depends on q); apply the"
            " estimate in Python"
        )
    return robot.with_actuation(np.array(actuation["map"], dtype=float), names=actuation["motors"])


def _number(value: Any, where: str, what: str) -> float:
    if value is None:
        return 0.0  # not in the model that was fitted
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise MalformedInput(f"{where}: {what} is {value!r}; give a finite number")
    return float(value)
