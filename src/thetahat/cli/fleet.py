"""`thetahat fleet MANIFEST`: many robots over their lives: what changed, and who is unlike the
others.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thetahat.cli import arguments, engine_options
from thetahat.cli.arguments import option
from thetahat.cli.exit_status import emit, heard, say
from thetahat.cli.progress import Progress
from thetahat.cli.settings_options import friction_terms
from thetahat.errors import StorageError, ThetahatError, UsageError
from thetahat.files import as_text, require_folder

if TYPE_CHECKING:
    from thetahat.engine.multi_log import Failure
    from thetahat.fleet.analysis import FleetAnalysis, FleetOptions

FRICTION = ("viscous", "coulomb", "offset")
BY = ("log", "day", "week", "month")
FILES = ("fleet.parquet", "fleet.html", "fleet.json")
SHOWN = 12  # things left out that are named; the others are counted


def fleet(
    manifest: Annotated[
        str,
        typer.Argument(
            metavar="MANIFEST",
            help="TOML or CSV: robot file and logs of every robot, by its id.",
            show_default=False,
        ),
    ],
    *,
    out: Annotated[
        str,
        option(
            "Folder for fleet.parquet, fleet.html and fleet.json; made if absent.",
            "--out",
            "-o",
            metavar="DIR",
        ),
    ],
    by: Annotated[
        str, option(f"What a period is: {', '.join(BY)}.", metavar="PERIOD", show_default=True)
    ] = BY[0],
    level: Annotated[
        float,
        option(
            "Probability that any finding of the whole fleet is by chance.",
            metavar="P",
            show_default=True,
        ),
    ] = 0.01,
    friction: Annotated[
        str,
        option("Friction to fit: some of the three, or none.", metavar="TERMS", show_default=True),
    ] = ",".join(FRICTION),
    armature: Annotated[bool, option("Fit rotor inertia too.", "--armature")] = False,
    cutoff: Annotated[
        float | None,
        option(
            "Low-pass of motion and torque; default: chosen from the first periods.", metavar="HZ"
        ),
    ] = None,
    min_speed: Annotated[
        float | None,
        option(
            "Joints slower than this, in rad/s or m/s, stand still and leave the fit; default:"
            " chosen.",
            metavar="SPEED",
        ),
    ] = None,
    tune: Annotated[
        bool,
        option(
            "Choose friction laws, low-pass and prior by what predicts best.",
            "--tune/--no-tune",
            show_default=True,
        ),
    ] = True,
    columns: arguments.Columns = None,
    topic: arguments.Topic = None,
    salvage: arguments.Salvage = False,
    workers: engine_options.Workers = None,
    scheduler: engine_options.Scheduler = None,
    store: engine_options.Store = None,
    json: arguments.Json = False,
    quiet: arguments.Quiet = False,
) -> None:
    """Estimate every robot of a fleet period by period; name payloads, worn joints, and robots
    unlike the others.
    """
    began = time.monotonic()
    asked, wanted, folder = (
        _asked(locals()),
        engine_options.engine_options(workers, scheduler, store),
        Path(out),
    )
    path = arguments.input_file(manifest, "MANIFEST")
    require_folder(folder, [folder / name for name in FILES], [path])
    from thetahat.fleet.manifest import read_manifest

    listed = read_manifest(path)
    with (
        heard(quiet=quiet) as warnings,
        Progress(quiet=quiet) as progress,
        engine_options.reducer(wanted, progress) as reducer,
    ):
        from thetahat.fleet.analysis import analyze_fleet

        found = analyze_fleet(listed, asked, reducer)
        progress.stage("writing")
        data = _data(found, warnings)
        files = write(found, data, folder)
        reducer.write(found.record)
    if json:
        emit(as_text(data))
    else:
        from thetahat.cli.fleet_view import draw

        draw(data, files, time.monotonic() - began)
    for key in reducer.store.damaged if reducer.store is not None else ():
        say(
            f"entry {key[:12]}… of the store was damaged; it was thrown away and computed anew",
            "warning",
        )
    conclude(found.failures, reducer.store_failures)


def _asked(given: dict[str, Any]) -> FleetOptions:
    """The options, checked."""
    from thetahat.fleet.analysis import FleetOptions

    if given["by"] not in BY:
        raise UsageError(f"--by is {given['by']!r}; give one of {', '.join(BY)}")
    if not (math.isfinite(given["level"]) and 0.0 < given["level"] < 1.0):
        raise UsageError(
            f"--level is {given['level']}; give a probability between 0 and 1, such as 0.01"
        )
    for name in ("cutoff", "min_speed"):
        value = given[name]
        if value is not None and not (
            math.isfinite(value) and (value > 0.0 or (value == 0.0 and name == "min_speed"))
        ):
            raise UsageError(f"--{name.replace('_', '-')} is {value}; give a finite number above 0")
    taken = (
        "by",
        "level",
        "armature",
        "cutoff",
        "min_speed",
        "tune",
        "columns",
        "topic",
        "salvage",
    )
    return FleetOptions(
        **{name: given[name] for name in taken},
        friction=friction_terms(given["friction"]),
    )


def _data(found: FleetAnalysis, warnings: list[str]) -> dict[str, Any]:
    from thetahat.fleet.fleet_table import as_data

    return {**as_data(found), "warnings": list(warnings)}


def write(found: FleetAnalysis, data: dict[str, Any], folder: Path) -> list[Path]:
    """The table, the page, and fleet.json last, so that it says that all are there."""
    from thetahat.files import write_atomically
    from thetahat.fleet.fleet_page import sections, titles
    from thetahat.fleet.fleet_table import parquet
    from thetahat.report.page import render

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"--out {str(folder)!r} cannot be made: {error.strerror or error}; give another folder"
        ) from None
    title, subtitle = titles(data)
    return [
        write_atomically(folder / "fleet.parquet", parquet(found)),
        write_atomically(
            folder / "fleet.html", render(title, sections(found, data), subtitle=subtitle)
        ),
        write_atomically(folder / "fleet.json", as_text(data)),
    ]


def conclude(left_out: tuple[Failure, ...], trouble: list[Failure]) -> None:
    """One sentence for each robot, period or log that was left out, and the exit code of
    the first.
    """
    if not left_out and not trouble:
        return
    for failure in left_out[:SHOWN]:
        say(failure.sentence, "warning")
    if len(left_out) > SHOWN:
        say(f"{len(left_out) - SHOWN} more were left out (--json lists all)", "warning")
    first, kinds = (
        (*left_out, *trouble)[0],
        {each.exit_code: each for each in ThetahatError.__subclasses__()},
    )
    if not left_out:
        raise StorageError(first.sentence)
    for failure in trouble:
        say(failure.sentence, "warning")
    count = (
        "1 robot, period or log was"
        if len(left_out) == 1
        else f"{len(left_out)} robots, periods or logs were"
    )
    raise kinds.get(first.exit_code, ThetahatError)(
        f"{count} left out; the answer is of the others, so repair or remove what is named above"
    )
