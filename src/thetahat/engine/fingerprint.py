"""Names by content: the same robot, settings and rows have the same fingerprint on every machine,
and no others do.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import PurePath
from typing import Any

import numpy as np

from thetahat.errors import UsageError
from thetahat.model.robot import Robot

# raise it when preparing or folding yields other numbers for the same log: what is stored is then
# computed anew
DATA_FORMAT = 2
PROBES = 16  # states at which a function of q or of speeds is looked at to tell it from another


def fingerprint(*values: Any) -> str:
    """Return 64 hexadecimal digits of plain values: numbers, texts, arrays, frozen objects and any
    nesting of them.
    """
    digest = hashlib.sha256()
    _add(digest, values)
    return digest.hexdigest()


def _add(digest: Any, value: Any) -> None:
    """Every value with its kind and length, so that no two nestings run into the same bytes."""
    if value is None or isinstance(value, bool | np.bool_):
        digest.update(b"N" if value is None else b"T" if value else b"F")
    elif isinstance(value, Enum):
        _add(digest, ("enum", type(value).__name__, value.name))
    elif isinstance(value, int | np.integer):
        _text(digest, b"i", str(int(value)))
    elif isinstance(value, float | np.floating):
        digest.update(b"f" + struct.pack("<d", float(value)))
    elif isinstance(value, str | PurePath):
        _text(digest, b"s", str(value))
    elif isinstance(value, bytes):
        digest.update(b"b" + struct.pack("<q", len(value)) + value)
    elif isinstance(value, np.ndarray):
        _add(digest, ("array", value.dtype.str, value.shape))
        digest.update(np.ascontiguousarray(value).tobytes())
    elif is_dataclass(value) and not isinstance(value, type):
        content = [(field.name, getattr(value, field.name)) for field in fields(value)]
        _add(digest, ("object", type(value).__name__, content))
    elif isinstance(value, Mapping):
        pairs = sorted(((str(key), each) for key, each in value.items()), key=lambda pair: pair[0])
        _add(digest, ("map", pairs))
    elif isinstance(value, set | frozenset):
        _add(digest, ("set", sorted(fingerprint(each) for each in value)))
    elif isinstance(value, Sequence):
        digest.update(b"l" + struct.pack("<q", len(value)))
        for each in value:
            _add(digest, each)
    else:
        raise UsageError(
            f"{type(value).__name__} has no fingerprint, so it cannot be kept in a store; describe"
            " it by numbers and texts"
        )


def _text(digest: Any, kind: bytes, text: str) -> None:
    data = text.encode("utf-8", "surrogateescape")
    digest.update(kind + struct.pack("<q", len(data)) + data)


def robot_fingerprint(robot: Robot, *, values: bool = False) -> str:
    """Of what decides the columns of a fold: geometry, names, gravity, drive terms and the
    actuation map; with `values`, of the parameters too.

    Functions (a B that depends on q, the shape of a friction term) are told apart by what they
    return at some states.
    """
    rng = np.random.default_rng(20240229)
    drive, actuation = robot.drive, robot.drive.actuation
    mapped: Any = None
    if actuation is not None:
        B = (
            actuation.B
            if actuation.constant
            else actuation.matrix_at(rng.uniform(-1.0, 1.0, (PROBES, robot.nq)))
        )
        mapped = (actuation.names, actuation.constant, np.asarray(B))
    speeds, accelerations, loads = rng.normal(size=(3, PROBES, len(drive.viscous)))
    # what tells one Stribeck speed from another lies near zero
    speeds *= np.logspace(-4.0, 1.0, PROBES)[:, None]
    terms = drive.terms if values else drive.identified
    shapes = [drive.term(term) for term in terms]
    laws = [
        (shape.term, shape.along, np.asarray(shape.column(speeds, accelerations, loads)))
        for shape in shapes
    ]
    numbers: Any = None
    if values or drive.needs_load:  # a column that reads the load depends on the robot's own values
        numbers = robot.theta, [drive.value(term) for term in terms] if values else None
    geometry = (
        [np.asarray(array) for array in robot.tree.arrays],
        robot.joint_names,
        robot.body_names,
        robot.gravity,
    )
    motors: object = drive.motors if drive.rotors is None else (drive.motors, drive.rotors)
    return fingerprint(
        DATA_FORMAT, geometry, laws, drive.dry, drive.identified, motors, mapped, numbers
    )
