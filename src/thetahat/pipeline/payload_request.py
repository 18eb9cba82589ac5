"""What `payload` is asked for: runs with their payloads, known masses, and the box of a tool."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from thetahat.data.log import Log
from thetahat.data.samples import Samples
from thetahat.errors import MalformedInput, StorageError, UsageError, known
from thetahat.identification.information import Information
from thetahat.identification.payload.payload_body import PayloadBox
from thetahat.pipeline.dataset import LogInput
from thetahat.pipeline.logged_sensors import log_names

NAME = "payload"  # of the only one
SIZES = "X,Y,Z in m, or XLOW..XHIGH/YLOW..YHIGH/ZLOW..ZHIGH, or a mesh file"
MESHES = (".stl", ".obj", ".dae", ".msh")


@dataclass(frozen=True, eq=False)
class NamedRun:
    """Logs in which one payload was held."""

    name: str
    logs: LogInput
    known_mass: float | None = None  # [kg]


def named_runs(
    loaded: LogInput, known_mass: float | Mapping[str, float] | None
) -> tuple[NamedRun, ...]:
    """Return the runs of every payload, in the order given.

    loaded: logs of one payload, or logs by the name of their payload; as text also NAME=LOG.
    """
    by_name = _by_name(loaded)
    masses = known_mass
    if masses is None:
        masses = {}
    elif not isinstance(masses, Mapping):
        masses = dict.fromkeys(by_name, masses)
    for name, mass in masses.items():
        if name not in by_name:
            raise UsageError(
                f"--known-mass names {name!r}, which no log holds; payloads: {known(by_name)}"
            )
        if not (isinstance(mass, int | float) and math.isfinite(mass) and mass > 0.0):
            raise UsageError(f"--known-mass is {mass!r}; give the payload's mass in kg, above 0")
    return tuple(NamedRun(name, logs, masses.get(name)) for name, logs in by_name.items())


def _by_name(loaded: LogInput) -> dict[str, LogInput]:
    if isinstance(loaded, Mapping) and loaded and all(map(_is_log, loaded.values())):
        return {str(name): logs for name, logs in loaded.items()}
    names = log_names(loaded)
    if names is None:
        return {NAME: loaded}
    out: dict[str, list[str]] = {}
    for text in names:
        name, equals, path = text.partition("=")
        if not equals or not name or Path(text).exists():
            name, path = NAME, text
        out.setdefault(name, []).append(path)
    return dict(out)


def _is_log(value: object) -> bool:
    """Whether this is a log and no column of one."""
    if isinstance(value, str | os.PathLike | Log | Samples | Information | Mapping):
        return True
    return log_names(value) is not None or hasattr(value, "columns")


def known_masses(texts: Sequence[str]) -> float | dict[str, float] | None:
    """Return masses from options: one number for all payloads, or NAME=KG for each."""
    if not texts:
        return None
    if len(texts) == 1 and "=" not in texts[0]:
        return _mass(texts[0], texts[0])
    out = {}
    for text in texts:
        name, equals, mass = text.partition("=")
        if not equals or not name or name in out:
            raise UsageError(
                f"--known-mass is {text!r}; give a number in kg, or NAME=KG once for each payload"
            )
        out[name] = _mass(mass, text)
    return out


def _mass(text: str, given: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(
            f"--known-mass is {given!r}; give a number in kg, or NAME=KG for each payload"
        ) from None


def payload_box(size: str | os.PathLike[str] | Sequence[float] | None) -> PayloadBox | None:
    """Return the box that holds a payload, in the frame of its link.

    X,Y,Z: centred along x and y, and from the link's origin along z, as tools stand on a flange.
    """
    if size is None:
        return None
    if not isinstance(size, str | os.PathLike):
        return _checked(np.asarray(size, dtype=float), repr(size))
    text = os.fspath(size)
    if text.lower().endswith(MESHES):
        return _mesh_box(Path(text))
    try:
        if ".." in text:
            ends = [[float(end) for end in axis.split("..")] for axis in text.split("/")]
            low, high = np.array(ends).T
            return _checked(np.stack([low, high]), text)
        return _checked(np.array([float(part) for part in text.split(",")]), text)
    except ValueError as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"--size is {text!r}; give {SIZES}") from None


def _checked(numbers: np.ndarray, given: str) -> PayloadBox:
    if numbers.shape == (3,):
        half = 0.5 * numbers
        numbers = np.array([[-half[0], -half[1], 0.0], [half[0], half[1], numbers[2]]])
    if (
        numbers.shape != (2, 3)
        or not np.all(np.isfinite(numbers))
        or np.any(numbers[1] <= numbers[0])
    ):
        raise UsageError(f"--size is {given!r}; give {SIZES}, each side above zero")
    return PayloadBox(numbers[0], numbers[1])


def _mesh_box(path: Path) -> PayloadBox:
    from thetahat.model.io.mesh_vertices import Unreadable, mesh_vertices

    if not path.is_file():
        raise StorageError(f"--size {path} is not a file; check the path")
    try:
        points = mesh_vertices(path)
    except Unreadable as error:
        raise MalformedInput(
            f"--size {path} cannot be read as a mesh: {error}; give an STL, OBJ or COLLADA file"
        ) from None
    return _checked(np.stack([np.min(points, axis=0), np.max(points, axis=0)]), str(path))
