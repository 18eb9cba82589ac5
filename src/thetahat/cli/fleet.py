"""`thetahat fleet MANIFEST`: parameter changes and outliers in a fleet of robots over time."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thetahat.cli import arguments, engine_options
from thetahat.cli.arguments import option
from thetahat.cli.exit_status import collect_warnings, emit, say
from thetahat.cli.progress import Progress
from thetahat.cli.settings_options import READING, with_settings
from thetahat.errors import StorageError, ThetahatError, UsageError
from thetahat.files import as_text, require_folder
from thetahat.pipeline.settings import IdentifySettings

if TYPE_CHECKING:
    from thetahat.engine.multi_log import Failure
    from thetahat.fleet.analysis import FleetAnalysis, FleetOptions

SETTINGS = ("friction", "cutoff", "min_speed", "tune", *READING)
BY = ("log", "day", "week", "month")
FILES = ("fleet.parquet", "fleet.html", "fleet.json")
SHOWN = 12  # things left out that are named; the others are counted


Manifest = Annotated[
    str,
    typer.Argument(
        metavar="MANIFEST",
        help="TOML or CSV file that lists the robot file and the logs of every robot.",
        show_default=False,
    ),
]


@with_settings(*SETTINGS)
def fleet(
    manifest: Manifest,
    *,
    out: Annotated[
        str,
        option(
            "Folder for fleet.parquet, fleet.html and fleet.json; created if needed.",
            "--out",
            "-o",
            metavar="DIR",
        ),
    ],
    by: Annotated[
        str, option(f"Period unit: {', '.join(BY)}.", metavar="PERIOD", show_default=True)
    ] = BY[0],
    level: Annotated[
        float,
        option(
            "Family-wise false-alarm probability over the whole fleet.",
            metavar="P",
            show_default=True,
        ),
    ] = 0.01,
    armature: Annotated[bool, option("Also identify rotor inertia.", "--armature")] = False,
    workers: engine_options.Workers = None,
    scheduler: engine_options.Scheduler = None,
    store: engine_options.Store = None,
    json: arguments.Json = False,
    quiet: arguments.Quiet = False,
    settings: IdentifySettings,
) -> None:
    """Identify every robot of a fleet period by period; detect payloads, wear and outliers."""
    began = time.monotonic()
    options = _options(by, level, settings, armature=armature)
    where, folder = engine_options.engine_options(workers, scheduler, store), Path(out)
    path = arguments.input_file(manifest, "MANIFEST")
    require_folder(folder, [folder / name for name in FILES], [path])
    with (
        collect_warnings(quiet=quiet) as warnings,
        Progress(quiet=quiet) as progress,
        engine_options.reducer(where, progress) as reducer,
    ):
        from thetahat.fleet.analysis import analyze_fleet
        from thetahat.fleet.manifest import read_manifest

        analysis = analyze_fleet(read_manifest(path), options, reducer)
        progress.stage("writing")
        data = _data(analysis, warnings)
        files = write(analysis, data, folder)
        reducer.write(analysis.record)
    if json:
        emit(as_text(data))
    else:
        from thetahat.cli.fleet_view import draw

        draw(data, files, time.monotonic() - began)
    damaged = () if reducer.store is None else tuple(reducer.store.damaged)
    conclude(analysis.failures, reducer.store_failures, damaged)


def _options(by: str, level: float, settings: IdentifySettings, *, armature: bool) -> FleetOptions:
    """Return the options, checked."""
    from thetahat.fleet.analysis import FleetOptions

    if by not in BY:
        raise UsageError(f"--by is {by!r}; give one of {', '.join(BY)}")
    if not (math.isfinite(level) and 0.0 < level < 1.0):
        raise UsageError(f"--level is {level}; give a probability between 0 and 1, such as 0.01")
    given = {name: getattr(settings, name) for name in SETTINGS}
    return FleetOptions(by=by, level=level, armature=armature, **given)


def _data(analysis: FleetAnalysis, warnings: list[str]) -> dict[str, Any]:
    from thetahat.fleet.fleet_table import as_data

    return {**as_data(analysis), "warnings": list(warnings)}


def write(analysis: FleetAnalysis, data: dict[str, Any], folder: Path) -> list[Path]:
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
        write_atomically(folder / "fleet.parquet", parquet(analysis)),
        write_atomically(
            folder / "fleet.html", render(title, sections(analysis, data), subtitle=subtitle)
        ),
        write_atomically(folder / "fleet.json", as_text(data)),
    ]


def conclude(
    left_out: tuple[Failure, ...], trouble: list[Failure], damaged: tuple[str, ...]
) -> None:
    """Say what was left out, and raise with the exit code of the first."""
    for key in damaged:
        say(f"entry {key[:12]}… of the store was damaged and is computed anew", "warning")
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
