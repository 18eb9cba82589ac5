"""`thetahat export RESULT --to TARGET`: a result as others ask for it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from thetahat.cli import arguments
from thetahat.cli.arguments import option
from thetahat.cli.exit_status import emit
from thetahat.errors import UsageError
from thetahat.files import write_atomically

LOADS = ("urscript", "franka", "kuka", "abb")  # of a payload or tool
ROBOTS = ("mjcf", "urdf", "isaaclab", "mjlab", "bam")  # of identify or actuators
ANY = ("json",)
Result = Annotated[
    str,
    typer.Argument(
        metavar="RESULT",
        help=(
            "The answer of payload, tool, identify or actuators: its JSON file, or the folder it"
            " is in."
        ),
        show_default=False,
    ),
]


def export(
    result: Result,
    *,
    to: Annotated[
        str,
        option(
            f"Target: {', '.join(LOADS)} of a payload or tool; {', '.join(ROBOTS)} of a robot;"
            " json of any.",
            metavar="TARGET",
        ),
    ],
    out: Annotated[
        str | None, arguments.output("File to write; default: print it.", "PATH")
    ] = None,
    in_flange: Annotated[
        str | None,
        option(
            "Pose of the result's frame (its link or sensor) in the flange's: X,Y,Z [m], or with"
            " ROLL,PITCH,YAW [rad]; default: they coincide.",
            metavar="POSE",
        ),
    ] = None,
    robot: Annotated[
        str | None,
        option("Robot file, where the result does not lead to it.", metavar="ROBOT"),
    ] = None,
    force: Annotated[bool, option("Export a result that is not usable, too.")] = False,
) -> None:
    """Write a result as a robot's settings or a simulator ask for it."""
    if to not in (*LOADS, *ROBOTS, *ANY):
        raise UsageError(f"--to is {to!r}; targets: {', '.join((*LOADS, *ROBOTS, *ANY))}")
    source = Path(result)
    target = None
    if out is not None:
        target = arguments.writeable_file(Path(out), "--out", keep=[source])
    if to in ROBOTS or (to in ANY and _of_robot(source)):
        if in_flange is not None:
            raise UsageError(f"--in-flange is for payloads and tools; leave it out of --to {to}")
        text = _robot_text(source, to, robot, force=force)
    else:
        text = _load_text(source, to, in_flange, force=force)
    if target is None:
        emit(text)
    else:
        write_atomically(target, text)


def _of_robot(source: Path) -> bool:
    """Whether a result is of a robot and not of a load."""
    from thetahat.export.simulator_model import ACTUATORS, FILES, read_json
    from thetahat.identification.estimate_json import SCHEMA as ESTIMATE

    if source.is_dir():
        return any((source / name).is_file() for name in FILES)
    return read_json(source).get("schema") in (ESTIMATE, ACTUATORS)


def _robot_text(source: Path, to: str, robot: str | None, *, force: bool) -> str:
    from thetahat.export.simulator_model import read_simulator_model
    from thetahat.export.simulator_targets import TARGETS

    return TARGETS[to](read_simulator_model(source, robot=robot, force=force))


def _load_text(source: Path, to: str, in_flange: str | None, *, force: bool) -> str:
    from thetahat.export.load_data import pose, read_load
    from thetahat.export.vendor_blocks import TARGETS

    return TARGETS[to](read_load(source, force=force).moved(pose(in_flange)))
