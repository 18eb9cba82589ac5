"""Robots that ship with the package, made of plain solids, for examples and tests."""

from __future__ import annotations

from pathlib import Path

from thetahat.errors import StorageError, UsageError

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


def find(text: str) -> Path:
    """Return the file that a user means: a path if there is one, else a robot that ships."""
    given, shipped = Path(text), text in names()
    try:
        if given.is_file() or (given.exists() and not shipped):
            return given
    except ValueError as error:  # a NUL byte
        raise UsageError(f"ROBOT {text!r} cannot be a path: {error}") from None
    if shipped:
        return path(text)
    raise StorageError(
        f"ROBOT {text!r} is neither a file nor a robot that ships with thetahat"
        f" ({', '.join(names())}); check the path"
    )
