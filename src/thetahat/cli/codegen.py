"""`thetahat codegen ROBOT_OR_RESULT --out DIR`: C code of a robot's dynamics."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from thetahat.cli import arguments
from thetahat.cli.arguments import option
from thetahat.cli.exit_status import collect_warnings, emit
from thetahat.files import as_text

Source = Annotated[
    str,
    typer.Argument(
        metavar="ROBOT_OR_RESULT",
        help=(
            "A URDF or MJCF file, a robot that ships with thetahat, or what identify or actuators"
            " wrote: its JSON file or folder."
        ),
        show_default=False,
    ),
]


def codegen(
    source: Source,
    *,
    out: Annotated[str, arguments.output("Folder to write.", "DIR")],
    precision: Annotated[
        str, option("double or float.", metavar="TYPE", show_default=True)
    ] = "double",
    name: Annotated[
        str, option("First part of every name in C; default: the robot's name.", metavar="NAME")
    ] = "",
    floating_base: Annotated[bool, option("Free the root link of the robot file.")] = False,
    robot: Annotated[
        str | None,
        option("Robot file, where the result does not lead to it.", metavar="ROBOT"),
    ] = None,
    force: Annotated[bool, option("Take a result that is not usable, too.")] = False,
    json: arguments.Json = False,
    quiet: arguments.Quiet = False,
) -> None:
    """Write C99 without dependencies for a robot's own controller: dynamics, regressor, control."""
    from thetahat.export.codegen.write_code import CodegenSettings, write_code

    settings = CodegenSettings(precision, name, floating_base, robot, force)
    with collect_warnings(quiet=quiet):
        data = write_code(source, Path(out), settings)
    if json:
        emit(as_text(dict(data)))
        return
    emit(
        f"{out}: {', '.join(data['files'])}\n"
        f"{data['robot']}, {len(data['joints'])} degrees of freedom, {data['precision']}:"
        f" {', '.join(data['functions'])}\n"
        + "".join(f"left out: {why}\n" for why in data["left_out"])
        + f"build and test: cmake -S {out} -B {out}/build && cmake --build {out}/build && ctest"
        f" --test-dir {out}/build\n"
    )
