"""Robots that ship with the package, made of plain solids, for examples and tests."""

from __future__ import annotations

from pathlib import Path

from thetahat.errors import UsageError

FOLDER = Path(__file__).parent


def names() -> tuple[str, ...]:
    """The names `path` takes, in alphabetical order."""
    return tuple(sorted(file.stem for file in FOLDER.glob("*.urdf")))


def path(name: str) -> Path:
    """The file of a robot that ships with the package."""
    if name not in names():
        raise UsageError(
            f"robot {name!r} does not ship with thetahat; robots: {', '.join(names())}"
        )
    return FOLDER / f"{name}.urdf"
