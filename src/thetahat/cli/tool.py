"""`thetahat tool POSES`: bias of a wrist force/torque sensor, and the tool that hangs on it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from thetahat.cli import arguments
from thetahat.cli.arguments import option
from thetahat.cli.exit_status import collect_warnings, emit
from thetahat.files import as_text, write_atomically
from thetahat.identification.verdict_reason import Data

Poses = Annotated[
    str,
    typer.Argument(
        metavar="POSES",
        help=(
            "A table with the sensor's orientation in the world qx qy qz qw and its readings fx fy"
            " fz [N] tx ty tz [N·m], a row for each pose at rest; with t [s], a recording of which"
            " the standing parts are used."
        ),
        show_default=False,
    ),
]


def tool(
    poses: Poses,
    *,
    gravity: Annotated[
        str, option("Gravity in the world, in m/s².", metavar="X,Y,Z", show_default=True)
    ] = "0,0,-9.81",
    wrench_frame: Annotated[
        str,
        option(
            "Whose axes the readings are in: sensor or world.", metavar="FRAME", show_default=True
        ),
    ] = "sensor",
    out: Annotated[
        str | None, arguments.output("File for the answer, which export reads.", "FILE.json")
    ] = None,
    json: arguments.Json = False,
    quiet: arguments.Quiet = False,
) -> None:
    """Calibrate a wrist force/torque sensor: its bias, mass and centre of mass of its tool."""
    from thetahat.data.wrist_poses import read_wrist_poses
    from thetahat.identification.payload.wrist_sensor import (
        calibrate,
        require_gravity,
        standing_poses,
    )
    from thetahat.identification.payload.wrist_sensor_answer import describe
    from thetahat.identification.payload.wrist_sensor_checks import check_readings

    path = Path(poses)
    target = None
    if out is not None:
        target = arguments.writeable_file(Path(out), "--out", keep=[path])
    down = require_gravity(arguments.numbers(gravity, "--gravity", 3))
    with collect_warnings(quiet=quiet):
        standing = standing_poses(read_wrist_poses(path, frame=wrench_frame))
        check_readings(standing)
        data = describe(calibrate(standing, down))
    if target is not None:
        write_atomically(target, as_text(data) + "\n")
    if json:
        emit(as_text(data))
    else:
        draw(data)


def draw(data: Data) -> None:
    """Print the verdict and a table of what was found."""
    from thetahat.cli.terminal import show
    from thetahat.report.section import Cell, Column, Table, Text
    from thetahat.report.verdict_section import verdict_lines

    rows: list[tuple[Cell, ...]] = [("mass [kg]", data["mass"], data["mass_std"])]
    for name, key, unit in (
        ("centre of mass", "com", "m"),
        ("force bias", "force_bias", "N"),
        ("torque bias", "torque_bias", "N·m"),
        ("sensor's rotation error", "sensor_rotation", "rad"),
    ):
        if data[key] is not None:
            rows += [
                (f"{name} {axis} [{unit}]", value, std)
                for axis, value, std in zip("xyz", data[key], data[f"{key}_std"], strict=True)
            ]
    left = tuple(
        (drift["channel"], rms, constant, drift["range"] if drift["significant"] else None)
        for drift, rms, constant in zip(
            data["drift"], data["rms"], data["rms_constant_bias"], strict=True
        )
    )
    note = (
        f"RMS at {'poses that were not fitted' if data['rms_rows'] == 'held out' else 'the poses'}"
        " [N, N·m]; constant bias: without the drift."
    )
    moving = data["rows_moving"]
    used = f"{data['poses']} poses" + (f", {moving:,} rows in motion left out" if moving else "")
    show(
        [
            verdict_lines(data),
            Table(
                (Column("tool and sensor"), Column("value", decimals=5), Column("std")), tuple(rows)
            ),
            Table(
                (Column("channel"), Column("RMS"), Column("constant bias"), Column("drift")),
                left,
                note=note,
            ),
            Text(f"{used}."),
        ]
    )
