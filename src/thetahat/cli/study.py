"""`thetahat study NAME --out DIR`: one of the paper's experiments, from the robot to its
figures.
"""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from thetahat.cli import arguments
from thetahat.cli.arguments import option
from thetahat.cli.exit_status import collect_warnings, emit, plain
from thetahat.cli.progress import Progress
from thetahat.errors import StorageError, UsageError
from thetahat.files import as_text, require_folder, write_atomically

if TYPE_CHECKING:
    from thetahat.studies.study import Result

STUDIES = {"double-pendulum": "double_pendulum", "leg": "leg", "arm": "arm", "valkyrie": "valkyrie"}
FILES = ("summary.json", "report.html", "run.parquet")


def complete_study(incomplete: str) -> list[str]:
    """Return the studies whose names begin like this."""
    return [name for name in STUDIES if name.startswith(incomplete)]


def study(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help=f"One of {', '.join(STUDIES)}.",
            autocompletion=complete_study,
            show_default=False,
        ),
    ],
    *,
    out: Annotated[
        str,
        option(
            "Folder for summary.json, report.html and run.parquet; created if needed.",
            "--out",
            "-o",
            metavar="DIR",
        ),
    ],
    plant: arguments.Plant = None,
    seed: Annotated[
        int,
        option(
            "Random seed of the simulated robot's parameters and noise.",
            metavar="N",
            show_default=True,
        ),
    ] = 0,
    json: arguments.Json = False,
    quiet: arguments.Quiet = False,
) -> None:
    """Reproduce one of the paper's experiments in simulation: online identification and control."""
    began = time.monotonic()
    if name not in STUDIES:
        raise UsageError(f"study {name!r} is unknown; studies: {', '.join(STUDIES)}")
    if seed < 0:
        raise UsageError(f"--seed is {seed}; give a whole number from 0")
    engine, folder = arguments.plant(plant), Path(out)
    require_folder(folder, [folder / file for file in FILES])
    with collect_warnings(quiet=quiet), Progress(quiet=quiet) as progress:
        progress.stage(f"preparing {name}")
        result: Result = importlib.import_module(f"thetahat.studies.{STUDIES[name]}").run(
            engine, seed=seed, progress=progress.update
        )
        progress.stage("writing")
        files = write(result, folder)
    if json:
        emit(as_text(result.summary))
        return
    names = ", ".join(plain(file) for file in files)
    emit(
        "\n".join(
            [
                *result.text,
                (
                    f"Wrote {names} in {time.monotonic() - began:.0f} s; look at"
                    f" {plain(folder / 'report.html')}."
                ),
            ]
        )
        + "\n"
    )


def write(result: Result, folder: Path) -> list[Path]:
    """The page, the signals, and summary.json last, so that it says that all are there."""
    from thetahat.data.formats.write_log import write_table
    from thetahat.report.page import render

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"--out {str(folder)!r} cannot be made: {error.strerror or error}; give another folder"
        ) from None
    run, step = result.run, result.run.drawn
    names = run.robot.joint_names
    columns = {"t": run.t[step], "identified": run.identified[step].astype(float)}
    for kind, array in (
        ("q", run.q),
        ("wanted", run.wanted),
        ("tau", run.tau),
        ("error", run.error),
    ):
        columns |= {f"{kind}.{joint}": array[step, j] for j, joint in enumerate(names)}
    title = f"{result.title}, seed {result.summary['seed']}, {result.summary['plant']} plant"
    return [
        write_atomically(
            folder / "report.html", render(title, result.sections, subtitle=" ".join(result.text))
        ),
        write_table(folder / "run.parquet", list(columns), list(columns.values())),
        write_atomically(folder / "summary.json", as_text(result.summary)),
    ]
