"""Mass, centre of mass and inertia of a load at a robot's flange, read from a result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from thetahat.errors import MalformedInput, NotUsable, StorageError, UsageError, known
from thetahat.identification.verdict_reason import Data
from thetahat.json_document import check_document, read_document

SCHEMAS = ("thetahat/tool/1", "thetahat/payload/1", "thetahat/load/1")
FILES = ("payload.json", "tool.json")  # of a folder that a verb wrote
CHECKED = {"thetahat/tool/1": "tool", "thetahat/payload/1": "payload"}  # by which schema
WANTED = "the JSON of tool or payload"


@dataclass(frozen=True, eq=False)
class LoadData:
    """A rigid load in the axes and about the origin of the flange."""

    mass: float  # [kg]
    com: np.ndarray  # (3,) [m]
    inertia: np.ndarray | None  # (3, 3) [kg·m²] about the centre of mass; None: not known
    name: str = "load"

    def moved(self, pose: np.ndarray) -> LoadData:
        """Return the load in another frame. pose: (6,) of this frame in the other, x, y, z [m] and
        roll, pitch, yaw [rad] as in a URDF.
        """
        rotation = Rotation.from_euler("xyz", pose[3:])
        matrix = rotation.as_matrix()
        com = np.asarray(rotation.apply(self.com)) + pose[:3]
        inertia = None if self.inertia is None else matrix @ self.inertia @ matrix.T
        return LoadData(self.mass, com, inertia, self.name)

    def principal(self) -> tuple[np.ndarray, Rotation]:
        """Return the principal moments (3,) and the orientation of their axes in the flange: of all
        right-handed orders and signs, the one that turns least.
        """
        if self.inertia is None or not self.inertia.any():
            return np.zeros(3), Rotation.identity()
        moments, axes = np.linalg.eigh(self.inertia)
        best = Rotation.identity()
        order = np.arange(3)
        least = np.inf
        for turn in Rotation.create_group("O"):  # the 24 rotations of a cube
            axes_right = axes if np.linalg.det(axes) > 0.0 else -axes
            turned = Rotation.from_matrix(axes_right @ turn.as_matrix())
            if turned.magnitude() < least - 1e-9:
                least, best = turned.magnitude(), turned
                order = np.argmax(np.abs(turn.as_matrix()), axis=0)
        return moments[order], best


def read_load(path: Path, *, force: bool = False) -> LoadData:
    """Read the load of a result, a file or the folder that holds it.

    force: also of a result that is not usable.
    """
    if path.is_dir():
        there = [path / name for name in FILES if (path / name).is_file()]
        if not there:
            raise StorageError(
                f"{str(path)!r} holds no {' or '.join(FILES)}; give the folder that payload wrote,"
                " or the file of tool --out"
            )
        path = there[0]
    data = read_document(path, None, WANTED)
    schema = data.get("schema")
    if schema not in SCHEMAS:
        raise MalformedInput(
            f"{path}: schema is {schema!r}; load data come from results of {known(SCHEMAS)}"
        )
    if schema in CHECKED:
        check_document(data, CHECKED[schema], str(path), WANTED)
    verdict = data.get("verdict")
    if isinstance(verdict, Mapping) and verdict.get("level") == "not usable" and not force:
        reasons = verdict.get("reasons") or ["no reason is stated"]
        raise NotUsable(f"{path} is not usable: {reasons[0]}; --force exports it all the same")
    mass = _numbers(path, data, "mass", ())
    if not mass > 0.0:
        raise MalformedInput(f"{path}: mass is {float(mass):g} kg; a load has a positive mass")
    com = _numbers(path, data, "com", (3,))
    inertia = None
    if data.get("inertia_com") is not None:
        xx, xy, xz, yy, yz, zz = _numbers(path, data, "inertia_com", (6,))
        inertia = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        if np.linalg.eigvalsh(inertia)[0] < -1e-9 * max(float(np.trace(inertia)), 1e-12):
            raise MalformedInput(f"{path}: inertia_com is not that of a body; identify it again")
    return LoadData(float(mass), com, inertia, str(data.get("link") or "tool"))


def _numbers(path: Path, data: Data, key: str, shape: tuple[int, ...]) -> np.ndarray:
    try:
        values = np.array(data[key], dtype=float)
    except (KeyError, TypeError, ValueError):
        values = np.array(np.nan)
    if values.shape != shape or not np.isfinite(values).all():
        count = "a finite number" if not shape else f"{shape[0]} finite numbers"
        raise MalformedInput(
            f"{path}: {key} is {str(data.get(key))[:60]}; it must be {count}, so identify it again"
            " with a motion that tells it"
        )
    return values


def pose(text: str | None) -> np.ndarray:
    """Read X,Y,Z or X,Y,Z,ROLL,PITCH,YAW as a pose (6,) [m, rad]; zero where nothing is given."""
    if text is None:
        return np.zeros(6)
    try:
        values = np.array([float(part) for part in text.split(",")])
    except ValueError:
        values = np.zeros(0)
    if len(values) not in (3, 6) or not np.isfinite(values).all():
        raise UsageError(
            f"--in-flange is {text!r}; give X,Y,Z [m] or X,Y,Z,ROLL,PITCH,YAW [m, rad]"
        )
    return np.concatenate([values, np.zeros(6 - len(values))])
