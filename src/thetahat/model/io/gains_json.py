"""Drive gains in a `drive.json`: torque of each joint per unit of what its drive reports.

    {"schema": "thetahat/drive/1", …, "gains": {"values": [1.08, null], "std": [0.01, null]}}

One per entry of "joints"; null: not known, and then nothing is multiplied.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from thetahat.errors import MalformedInput, is_number
from thetahat.files import as_text
from thetahat.json_document import read_document
from thetahat.model.actuation import LEAST_GAIN, MOST_GAIN
from thetahat.model.io.drive_json import SCHEMA
from thetahat.model.robot import Robot


@dataclass(frozen=True)
class DriveGain:
    """Torque of a joint per unit of what its drive reports, with its standard deviation."""

    joint: str
    gain: float | None  # None: not known
    std: float | None


def read_gains(path: str | os.PathLike[str]) -> dict[str, DriveGain]:
    """Return the known gains of a drive.json by joint."""
    path = Path(path)
    wanted = "a drive.json that thetahat payload --known-mass wrote"
    data = read_document(path, "drive", wanted)
    if data.get("gains") is None:
        raise MalformedInput(f"{path} holds no drive gains; give {wanted}")
    try:
        names, stated = list(data["joints"]), data["gains"]
        rows = list(zip(names, stated["values"], stated["std"], strict=True))
    except (KeyError, TypeError, ValueError):
        raise MalformedInput(
            f"{path}: 'gains' does not hold a value and a std per joint; run thetahat payload again"
        ) from None
    known = [_gain(path, *row) for row in rows]
    return {each.joint: each for each in known if each.gain is not None}


def _gain(path: Path, joint: str, gain: float | None, std: float | None) -> DriveGain:
    for value in (gain, std):
        if value is not None and not is_number(value):
            raise MalformedInput(f"{path}: the gain of {joint} is {value!r}; give finite numbers")
    if gain is not None and not LEAST_GAIN <= abs(gain) <= MOST_GAIN:
        raise MalformedInput(
            f"{path}: the gain of {joint} is {gain:g}; give a number from {LEAST_GAIN:g} to"
            f" {MOST_GAIN:g}, of either sign"
        )
    return DriveGain(str(joint), gain, std)


def gains_content(robot: Robot, gains: Mapping[str, DriveGain]) -> str:
    """Format a drive file that holds the gains of a robot's joints and no drive term."""
    source = robot.source
    names = list(robot.velocity_names)
    rows = [gains.get(name, DriveGain(name, None, None)) for name in names]
    return as_text(
        {
            "schema": SCHEMA,
            "robot": f"{robot.name}.urdf" if source is None else source.name,
            "sha256": None if source is None else hashlib.sha256(source.read_bytes()).hexdigest(),
            "joints": names,
            "motors": names,
            "terms": {},
            "actuation": None,
            "gains": {"values": [row.gain for row in rows], "std": [row.std for row in rows]},
        }
    )
