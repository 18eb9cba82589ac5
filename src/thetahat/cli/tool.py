"""`thetahat tool POSES`: bias of a wrist force/torque sensor, and the tool that hangs on it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from thetahat import robots
from thetahat.cli import arguments
from thetahat.cli.arguments import option
from thetahat.cli.exit_status import collect_warnings, emit
from thetahat.cli.settings_options import with_options
from thetahat.errors import UsageError
from thetahat.files import as_text, write_atomically
from thetahat.identification.verdict_reason import Data, Fields
from thetahat.pipeline.settings import setting

Poses = Annotated[
    str,
    typer.Argument(
        metavar="POSES",
        help=(
            "A table with the sensor's orientation in the world qx qy qz qw and its readings fx fy"
            " fz [N] tx ty tz [N·m], a row for each pose at rest; with t [s], a recording of which"
            " the standing parts are used. With --robot, a log of its motion with columns"
            " wrench.<link>.fx … tz."
        ),
        show_default=False,
    ),
]


@dataclass(frozen=True)
class ToolOptions:
    """Options of logs of a moving sensor."""

    link: str | None = setting(
        "Link whose wrench is measured; default: the only one that the log has.", None, "NAME"
    )
    columns: str | None = setting("Column names of the log, as in identify.", None, "PATTERNS")
    units: str | None = setting(
        "Units of the log's columns; wrench=-1: the sensor states the force on itself.",
        None,
        "UNITS",
    )
    cutoff: float | None = setting("Low-pass cut-off; default: chosen from the log.", None, "HZ")


@with_options(ToolOptions)
def tool(
    poses: Poses,
    *,
    robot: Annotated[
        str | None,
        option("Robot that moves the sensor: POSES is a log of its motion.", metavar="FILE"),
    ] = None,
    gravity: Annotated[
        str, option("Gravity in the world, in m/s².", metavar="X,Y,Z", show_default=True)
    ] = "0,0,-9.81",
    wrench_frame: Annotated[
        str,
        option(
            "Whose axes the readings are in: sensor or world.", metavar="FRAME", show_default=True
        ),
    ] = "sensor",
    options: ToolOptions,
    out: Annotated[
        str | None, arguments.output("File for the answer, which export reads.", "FILE.json")
    ] = None,
    json: arguments.Json = False,
    quiet: arguments.Quiet = False,
) -> None:
    """Calibrate a wrist force/torque sensor: its bias, and its tool's mass and centre of mass.

    From a log of a moving robot, the tool's inertia, too.
    """
    path = Path(poses)
    target = None
    if out is not None:
        target = arguments.writeable_file(Path(out), "--out", keep=[path])
    down = arguments.numbers(gravity, "--gravity", 3)
    with collect_warnings(quiet=quiet):
        if robot is None:
            data = _at_rest(path, down, wrench_frame, options)
        else:
            frame = "link" if wrench_frame == "sensor" else wrench_frame
            data = _in_motion(robots.find(robot), poses, down, frame, options)
    if target is not None:
        write_atomically(target, as_text(data) + "\n")
    if json:
        emit(as_text(data))
    elif robot is None:
        draw(data)
    else:
        draw_motion(data)


def _at_rest(path: Path, gravity: tuple[float, ...], frame: str, options: ToolOptions) -> Fields:
    """Calibrate from a table of poses."""
    from thetahat.data.wrist_poses import read_wrist_poses
    from thetahat.identification.payload.wrist_sensor import (
        calibrate,
        require_gravity,
        standing_poses,
    )
    from thetahat.identification.payload.wrist_sensor_answer import describe
    from thetahat.identification.payload.wrist_sensor_checks import check_readings

    for name in ("link", "columns", "units", "cutoff"):
        if getattr(options, name) is not None:
            raise UsageError(
                f"--{name} is of use to a log of a moving robot alone; give --robot FILE, too"
            )
    down = require_gravity(gravity)
    standing = standing_poses(read_wrist_poses(path, frame=frame))
    check_readings(standing)
    return describe(calibrate(standing, down))


def _in_motion(
    robot: Path, log: str, gravity: tuple[float, ...], frame: str, options: ToolOptions
) -> Fields:
    """Identify from a log of a moving robot."""
    from thetahat.pipeline.settings import IdentifySettings
    from thetahat.pipeline.wrist_tool import wrist_tool

    x, y, z = gravity
    settings = IdentifySettings(
        columns=options.columns,
        units=options.units,
        cutoff=options.cutoff,
        wrench_frame=frame,
        gravity=(x, y, z),
    )
    return wrist_tool(robot, log, link=options.link, settings=settings).data


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


def draw_motion(data: Data) -> None:
    """Print what a log of a moving sensor tells."""
    from thetahat.cli.terminal import show
    from thetahat.identification.payload.payload_result import PARTS
    from thetahat.model.wrench_sensors import CHANNELS
    from thetahat.report.section import Cell, Column, Table, Text
    from thetahat.report.verdict_section import verdict_lines

    body = [data["mass"], *data["com"], *data["inertia_com"]]
    spread = [data["mass_std"], *data["com_std"], *data["inertia_com_std"]]
    units = ["kg", *["m"] * 3, *["kg·m²"] * 6]
    rows: list[tuple[Cell, ...]] = [
        (f"{part} [{unit}]", value, std)
        for part, unit, value, std in zip(PARTS, units, body, spread, strict=True)
    ]
    bias = [*data["force_bias"], *data["torque_bias"]]
    bias_std = [*data["force_bias_std"], *data["torque_bias_std"]]
    drifts = [row["range"] if row["significant"] else None for row in data["drift"]]
    channels = tuple(zip(CHANNELS, bias, bias_std, data["rms"], drifts, strict=True))
    note = "N and N·m; RMS of what is left in the fitted rows; drift of the bias over the log."
    show(
        [
            verdict_lines(data),
            Table(
                (Column(f"beyond {data['link']}"), Column("value", decimals=5), Column("std")),
                tuple(rows),
            ),
            Table(
                (
                    Column("channel"),
                    Column("bias", decimals=4),
                    *map(Column, ("std", "RMS", "drift")),
                ),
                channels,
                note=note,
            ),
            Text(f"{data['samples']:,} samples."),
        ]
    )
