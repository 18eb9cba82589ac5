"""Drive gains in a `drive.json`: torque of each joint per unit of what its drive reports.

    {"schema": "thetahat/drive/1", …, "gains": {"values": [1.08, null], "std": [0.01, null]}}

One per entry of "joints"; null: not known, and then nothing is multiplied.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from thetahat.errors import MalformedInput, StorageError, is_number
from thetahat.files import as_text
from thetahat.model.io.drive_json import SCHEMA
from thetahat.model.robot import Robot

LARGEST = 1 << 20  # bytes


@dataclass(frozen=True)
class DriveGain:
    """Torque of a joint per unit of what its drive reports, with its standard deviation."""

    joint: str
    gain: float | None  # None: not known
    std: float | None


def read_gains(path: str | os.PathLike[str]) -> dict[str, DriveGain]:
    """Return the known gains of a drive.json by joint."""
    path = Path(path)
    try:
        if path.stat().st_size > LARGEST:
            raise MalformedInput(f"{path} has {path.stat().st_size:,} bytes; give a drive.json")
        data = json.loads(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise StorageError(
            f"{path} cannot be read: {error.strerror or error}; check the path"
        ) from None
    except (ValueError, RecursionError) as error:
        raise MalformedInput(
            f"{path} is not JSON ({error}); give a drive.json that thetahat payload wrote"
        ) from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA or "gains" not in data:
        raise MalformedInput(
            f"{path} holds no drive gains; give a drive.json that thetahat payload --known-mass"
            " wrote"
        )
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
    if gain is not None and gain == 0.0:
        raise MalformedInput(f"{path}: the gain of {joint} is 0; give a number other than zero")
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
