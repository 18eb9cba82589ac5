"""Write and read `posterior.npz`, schema thetahat/posterior/1: the law that robots are drawn from.

The file holds plain arrays and nothing that is executed: the mean and the factor of the Gaussian,
and the bounds at which it is cut off (`uncertainty/posterior.py` has the equations).

    schema, columns     names: of the schema; of x, as in `Columns.names`
    start, centre       (k,)
    L, identified       (k, k), how many of its columns the data determine
    shapes, first       cones of physical and plausible bodies
    G, low              half-spaces G·v ≥ low
    expand, fixed       x = fixed + expand·v
    inner               (k,) a point well inside
"""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from thetahat.errors import MalformedInput, RefusedForSafety, StorageError
from thetahat.files import write_atomically
from thetahat.identification.parameter_columns import Columns
from thetahat.identification.uncertainty.posterior import Limits, RobotLaw
from thetahat.model.robot import Robot

NAME = "posterior.npz"
SCHEMA = "thetahat/posterior/1"
LARGEST = 256 * 2**20  # bytes, unpacked; a humanoid's has less than ten megabytes
LIMITS = ("shapes", "first", "G", "low", "expand", "fixed", "inner")
LAW = ("start", "centre", "L", "identified")


def write_posterior(law: RobotLaw, path: str | os.PathLike[str]) -> Path:
    """Write the law of an estimate's robots; the same law gives the same bytes."""
    arrays = {"schema": np.array(SCHEMA), "columns": np.array(Columns(law.robot).names)}
    arrays |= {name: np.asarray(getattr(law, name)) for name in LAW}
    arrays |= {name: np.asarray(getattr(law.limits, name)) for name in LIMITS}
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        for name, array in arrays.items():
            entry = io.BytesIO()
            np.save(entry, array, allow_pickle=False)
            # an entry named by ZipInfo has the date of 1980, so the same law gives the same bytes
            file.writestr(zipfile.ZipInfo(f"{name}.npy"), entry.getvalue(), zipfile.ZIP_DEFLATED)
    return write_atomically(path, content.getvalue())


def read_posterior(path: str | os.PathLike[str], robot: Robot) -> RobotLaw:
    """Read the law of an estimate's robots.

    robot: with the estimate's values (`apply_estimate`); the file names the columns that spread.
    """
    path = Path(path)
    arrays = _arrays(path)
    if str(arrays["schema"]) != SCHEMA:
        raise MalformedInput(
            f"{path} has the schema {str(arrays['schema'])[:60]!r}, not {SCHEMA!r}; identify again"
        )
    names = tuple(str(name) for name in np.atleast_1d(arrays["columns"]))
    fitted = _with_columns(robot, names, path)
    k = len(np.atleast_1d(arrays["centre"]))
    blocks, rows = arrays["first"].size, arrays["low"].size
    shapes = {
        "start": (k,),
        "centre": (k,),
        "L": (k, k),
        "identified": (),
        "shapes": (blocks, 10, 4, 4),
        "first": (blocks,),
        "G": (rows, k),
        "low": (rows,),
        "expand": (len(names), k),
        "fixed": (len(names),),
        "inner": (k,),
    }
    for name, shape in shapes.items():
        numeric = arrays[name].dtype.kind in "fiu"
        if not numeric or arrays[name].shape != shape or not np.all(np.isfinite(arrays[name])):
            raise MalformedInput(
                f"{path}: {name} has the shape {arrays[name].shape} or a number that is not"
                f" finite; it must be {shape}, so identify again"
            )
    first = arrays["first"].astype(np.int64)
    identified = int(arrays["identified"])
    if not 0 <= identified <= k or np.any((first < 0) | (first + 10 > k)):
        raise MalformedInput(f"{path}: a position lies outside of its arrays; identify again")
    if np.linalg.slogdet(np.asarray(arrays["L"], dtype=float))[0] == 0.0:
        raise MalformedInput(f"{path}: L is singular; identify again")
    numbers = {name: np.asarray(arrays[name], dtype=float) for name in LIMITS if name != "first"}
    limits = Limits(first=first, **numbers)
    start, centre, L = (np.asarray(arrays[name], dtype=float) for name in LAW[:3])
    return RobotLaw(fitted, start, centre, L, identified, limits)


def _with_columns(robot: Robot, names: tuple[str, ...], path: Path) -> Robot:
    """Return the robot whose columns have these names."""
    drive = robot.drive
    motors = robot.velocity_names if drive.actuation is None else drive.actuation.names
    rest = names[len(robot.theta) :]
    terms = [t for t in drive.terms if any(f"{t}_{motor}" in rest for motor in motors)]
    used = [k for k, motor in enumerate(motors) if any(f"{t}_{motor}" in rest for t in terms)]
    fitted = replace(
        robot, drive=replace(drive, identified=tuple(terms), motors=tuple(used), rotors=None)
    )
    if Columns(fitted).names != names:
        raise MalformedInput(
            f"{path} is of another robot than {robot.name!r}: its columns begin with"
            f" {', '.join(names[:3])}; identify again, so that all files are of one result"
        )
    return fitted


def _arrays(path: Path) -> Mapping[str, np.ndarray]:
    """Read all arrays of the file, none of them pickled."""
    try:
        with zipfile.ZipFile(path) as file:
            size = sum(entry.file_size for entry in file.infolist())
        if size > LARGEST:
            raise RefusedForSafety(
                f"{path} would unpack to {size:,} bytes; a posterior.npz has far less, so give"
                " another result"
            )
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in ("schema", "columns", *LAW, *LIMITS)}
    except OSError as error:
        raise StorageError(
            f"{path} cannot be read: {error.strerror or error}; identify again"
        ) from None
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise MalformedInput(
            f"{path} is not a posterior.npz that thetahat identify wrote"
            f" ({str(error)[:80]}); identify again"
        ) from None
