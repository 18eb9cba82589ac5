"""`thetahat randomize RESULT... --count N --out DIR`: robot files drawn from the posterior."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from thetahat.cli import arguments
from thetahat.cli.arguments import option
from thetahat.cli.exit_status import collect_warnings, emit
from thetahat.cli.progress import Progress
from thetahat.files import as_text
from thetahat.identification.verdict_reason import Data

Result = Annotated[
    list[str],
    typer.Argument(
        metavar="RESULT",
        help=(
            "Folder that identify wrote, or an actuators.json; several are units of one robot,"
            " drawn in turn."
        ),
        show_default=False,
    ),
]


def randomize(
    result: Result,
    *,
    count: Annotated[int, option("How many robot files.", metavar="N")],
    out: Annotated[str, arguments.output("Folder to write, new or empty.", "DIR")],
    seed: Annotated[int, option("The same seed draws the same robots.", show_default=True)] = 0,
    level: Annotated[
        float, option("Level of the ranges, such as 0.95.", metavar="SHARE", show_default=True)
    ] = 0.95,
    robot: Annotated[
        str | None,
        option("Robot file, where the result does not lead to it.", metavar="ROBOT"),
    ] = None,
    force: Annotated[bool, option("Draw from a result that is not usable, too.")] = False,
    json: arguments.Json = False,
    quiet: arguments.Quiet = False,
) -> None:
    """Draw robot files from what a log leaves open, for training in simulation."""
    from thetahat.export.randomize import RandomizeSettings
    from thetahat.export.randomize import randomize as write_draws

    settings = RandomizeSettings(count, seed, level, robot, force)
    folder = Path(out)
    with collect_warnings(quiet=quiet), Progress(quiet=quiet) as progress:
        data = write_draws(
            [Path(each) for each in result], folder, settings=settings, progress=progress
        )
    if json:
        emit(as_text(data))
    else:
        draw(data, folder)


def draw(data: Data, folder: Path) -> None:
    """Print a table of masses and drives."""
    from thetahat.cli.terminal import show
    from thetahat.report.section import Cell, Column, Table, Text

    rows: list[tuple[Cell, ...]] = [
        (f"{row['name']} of {row['of']} [{row['unit']}]", row["value"], row["low"], row["high"])
        for row in data["parameters"]
        if not row["name"].startswith(("com_", "inertia_"))
    ]
    several = len(data["units"]) > 1
    show(
        [
            Text(
                f"{len(data['files']):,} robots in {folder}, from {data['draws']:,} draws"
                + (f" of {len(data['units'])} units." if several else ".")
            ),
            Table(
                (
                    Column("parameter"),
                    Column("value"),
                    Column(f"from ({100.0 * data['level']:g} %)"),
                    Column("to"),
                ),
                tuple(rows),
                note="All parameters and their correlations: ranges.json.",
            ),
        ]
    )
