"""Arguments and options that several verbs share, and how their text is read."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from thetahat import robots
from thetahat.errors import StorageError, UsageError


def _complete_robot(incomplete: str) -> list[str]:
    return [name for name in robots.names() if name.startswith(incomplete)]


Robot = Annotated[
    str,
    typer.Argument(
        metavar="ROBOT",
        help=f"A URDF or MJCF file, or a robot that ships with thetahat: {', '.join(robots.names())}.",
        autocompletion=_complete_robot,
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print a machine-readable answer.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No warnings or progress on stderr; errors are still said.")]
FloatingBase = Annotated[bool, typer.Option("--floating-base", help="Free the root link: six more degrees of freedom.")]
Gravity = Annotated[
    str | None,
    typer.Option(metavar="X,Y,Z", help="Gravity in the robot's world frame, in m/s²; default: the file's, or 0,0,-9.81.", show_default=False),
]


def robot_file(text: str) -> Path:
    """The file that ROBOT means: a path if there is one, else the name of a robot that ships with the package."""
    path, shipped = Path(text), text in robots.names()
    try:
        if path.is_file() or (path.exists() and not shipped):
            return path
    except ValueError as error:  # a NUL byte
        raise UsageError(f"ROBOT {text!r} cannot be a path: {error}") from None
    if shipped:
        return robots.path(text)
    raise StorageError(f"ROBOT {text!r} is neither a file nor a robot that ships with thetahat ({', '.join(robots.names())}); check the path")


def gravity(text: str | None) -> tuple[float, float, float] | None:
    """Three finite numbers from "X,Y,Z"; None where the option was not given."""
    if text is None:
        return None
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        values = ()
    if len(values) != 3 or not all(map(math.isfinite, values)):
        raise UsageError(f"--gravity is {text!r}; give three numbers [m/s²] with commas, for example --gravity 0,0,-9.81")
    return values
