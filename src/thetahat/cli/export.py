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

Result = Annotated[
    str,
    typer.Argument(
        metavar="RESULT",
        help="The answer of payload or tool: its JSON file, or the folder it is in.",
        show_default=False,
    ),
]


def export(
    result: Result,
    *,
    to: Annotated[str, option("Target: urscript, franka, kuka, abb or json.", metavar="TARGET")],
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
    force: Annotated[bool, option("Export a result that is not usable, too.")] = False,
) -> None:
    """Write a payload or tool as a robot's own settings ask for it."""
    from thetahat.export.load_data import pose, read_load
    from thetahat.export.vendor_blocks import TARGETS

    if to not in TARGETS:
        raise UsageError(f"--to is {to!r}; targets: {', '.join(TARGETS)}")
    source = Path(result)
    moved = pose(in_flange)
    target = None
    if out is not None:
        target = arguments.writeable_file(Path(out), "--out", keep=[source])
    text = TARGETS[to](read_load(source, force=force).moved(moved))
    if target is None:
        emit(text)
    else:
        write_atomically(target, text)
