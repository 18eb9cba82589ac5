"""`thetahat fleet MANIFEST`: parameter changes and outliers in a fleet of robots over time."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thetahat.cli import arguments, engine_options
from thetahat.cli.arguments import option
from thetahat.cli.exit_status import collect_warnings, emit
from thetahat.cli.progress import Progress
from thetahat.cli.settings_options import READING, with_settings
from thetahat.errors import UsageError
from thetahat.files import as_text, require_folder, written_together
from thetahat.pipeline.settings import IdentifySettings

if TYPE_CHECKING:
    from thetahat.fleet.analysis import FleetAnalysis, FleetOptions

# gains are one robot's, and a fleet has many; wrenches are not used
SETTINGS = (
    *("friction", "cutoff", "min_speed", "tune"),
    *(name for name in READING if name not in ("gains", "wrench_frame")),
)
BY = ("log", "day", "week", "month")
FILES = ("fleet.parquet", "fleet.html", "fleet.json")

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
        arguments.output(
            "Folder for fleet.parquet, fleet.html and fleet.json; created if needed.", "DIR"
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
    from thetahat.engine.open_engine import open_reducer

    with (
        collect_warnings(quiet=quiet) as warnings,
        Progress(quiet=quiet) as progress,
        open_reducer(where, progress) as reducer,
    ):
        from thetahat.fleet.analysis import analyze_fleet
        from thetahat.fleet.fleet_table import as_data
        from thetahat.fleet.manifest import read_manifest

        analysis = analyze_fleet(read_manifest(path), options, reducer)
        progress.stage("writing")
        data = {**as_data(analysis), "warnings": list(warnings)}
        files = write(analysis, data, folder)
        reducer.write(analysis.record)
    if json:
        emit(as_text(data))
    else:
        from thetahat.cli.fleet_view import draw

        draw(data, files, time.monotonic() - began)
    from thetahat.engine.sharded import completion_of

    nouns = "robot, period or log", "robots, periods or logs"
    more = " (--json lists all)"
    engine_options.say_completion(completion_of(reducer, analysis.failures, nouns, more=more))


def _options(by: str, level: float, settings: IdentifySettings, *, armature: bool) -> FleetOptions:
    """Return the options, checked."""
    from thetahat.fleet.analysis import FleetOptions

    if by not in BY:
        raise UsageError(f"--by is {by!r}; give one of {', '.join(BY)}")
    if not (math.isfinite(level) and 0.0 < level < 1.0):
        raise UsageError(f"--level is {level}; give a probability between 0 and 1, such as 0.01")
    given = {name: getattr(settings, name) for name in SETTINGS if name not in READING}
    return FleetOptions(by=by, level=level, armature=armature, reading=settings.reading, **given)


@written_together()
def write(analysis: FleetAnalysis, data: dict[str, Any], folder: Path) -> list[Path]:
    """The table, the page, and fleet.json last, so that it says that all are there."""
    from thetahat.files import make_folder, write_atomically
    from thetahat.fleet.fleet_page import sections, titles
    from thetahat.fleet.fleet_table import parquet
    from thetahat.report.page import render

    make_folder(folder)
    title, subtitle = titles(data)
    return [
        write_atomically(folder / "fleet.parquet", parquet(analysis)),
        write_atomically(
            folder / "fleet.html", render(title, sections(analysis, data), subtitle=subtitle)
        ),
        write_atomically(folder / "fleet.json", as_text(data)),
    ]
