"""Read an actuation map from CSV (`--actuation FILE.csv`)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from thetahat.errors import MalformedInput, UsageError, known
from thetahat.model.lock_joints import kept_positions
from thetahat.model.robot import Robot

LARGEST_MAP = 1_000_000  # bytes
LEAST, MOST = 1e-9, 1e9  # of an entry that is not zero, a gear's ratio


def with_map(robot: Robot, path: Path, *, whole: Robot, locked: Iterable[str]) -> Robot:
    """Return the robot driven through the map in a file, whose rows are its degrees of freedom, or
    those of the whole robot before joints were locked.
    """
    B, names = actuation_map(path)
    if len(B) == whole.nv != robot.nv:
        B = B[kept_positions(whole, locked)[1]]
        driven = np.any(B, axis=0)
        B, names = B[:, driven], None if names is None else tuple(np.array(names)[driven])
    if len(B) != robot.nv:
        raise UsageError(
            f"--actuation {path.name} has {len(B)} rows; give {robot.nv}, one for each degree of"
            f" freedom that the log measures ({known(robot.velocity_names)})"
        )
    return robot.with_actuation(B, names=names)


def actuation_map(path: Path) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """Read B, (rows, motors), and the motors' names where the file's first line holds them."""
    if path.stat().st_size > LARGEST_MAP:
        raise MalformedInput(
            f"--actuation {path.name} has {path.stat().st_size} bytes; an actuation map is a small"
            " table of numbers"
        )
    try:
        lines = [line for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    except UnicodeDecodeError:
        raise MalformedInput(
            f"--actuation {path.name} is not text in UTF-8; write a row of numbers per joint, a"
            " column per motor"
        ) from None
    rows = [[cell.strip() for cell in line.split(",")] for line in lines]
    names = None
    if rows and not all(map(_is_number, rows[0])):
        names = tuple(rows.pop(0))
    width = len(names) if names is not None else len(rows[0]) if rows else 0
    for at, row in enumerate(rows, start=1 + (names is not None)):
        if len(row) != width or not all(map(_is_number, row)):
            raise MalformedInput(
                f"--actuation {path.name}, line {at}: {','.join(row)!r} is not {width} finite"
                " numbers; write a row per joint"
            )
        for cell in row:
            if float(cell) and not LEAST <= abs(float(cell)) <= MOST:
                raise MalformedInput(
                    f"--actuation {path.name}, line {at}: {cell} is no ratio of a gear; give 0 or"
                    f" a factor from {LEAST:g} to {MOST:g}"
                )
    if not rows:
        raise MalformedInput(
            f"--actuation {path.name} holds no numbers; write a row per joint, a column per motor"
        )
    return np.array(rows, dtype=float), names


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False
