"""`thetahat study NAME --out DIR`: one of the paper's experiments, from the robot to its
figures.
"""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from thetahat.cli import arguments
from thetahat.cli.arguments import option
from thetahat.cli.exit_status import collect_warnings, emit, plain
from thetahat.cli.progress import Progress
from thetahat.errors import UsageError
from thetahat.files import (
    as_text,
    make_folder,
    require_folder,
    write_atomically,
    written_together,
)

if TYPE_CHECKING:
    from thetahat.studies.study import Result

FILES = ("summary.json", "report.html", "run.parquet")


def study(
    name: arguments.Study,
    *,
    out: Annotated[
        str,
        arguments.output(
            "Folder for summary.json, report.html and run.parquet; created if needed.", "DIR"
        ),
    ],
    floating: Annotated[
        bool,
        option("Valkyrie stands on its feet and sways, instead of being hung up by its pelvis."),
    ] = False,
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
    began, module = time.monotonic(), arguments.study_with_seed(name, seed)
    if floating:
        module = floating_study(name, module)
    engine, folder = arguments.plant(plant), Path(out)
    require_folder(folder, [folder / file for file in FILES])
    with collect_warnings(quiet=quiet), Progress(quiet=quiet) as progress:
        progress.stage(f"preparing {name}")
        run = importlib.import_module(f"thetahat.studies.{module}").run
        result: Result = run(engine, seed=seed, progress=progress.update)
        progress.stage("writing")
        files = write(result, folder)
    if json:
        emit(as_text(result.summary))
        return
    names, page = ", ".join(plain(file) for file in files), plain(folder / "report.html")
    wrote = f"Wrote {names} in {time.monotonic() - began:.0f} s; look at {page}."
    emit("\n".join([str(result.verdict), *result.text, wrote]) + "\n")


def floating_study(name: str, module: str) -> str:
    """Return the module of the study on the robot's own feet."""
    if name != "valkyrie":
        raise UsageError(f"--floating: study {name!r} has no robot with feet; valkyrie has")
    return f"{module}_floating"


@written_together()
def write(result: Result, folder: Path) -> list[Path]:
    """The page, the signals, and summary.json last, so that it says that all are there."""
    from thetahat.data.formats.write_log import write_table
    from thetahat.report.page import render

    make_folder(folder)
    run, step = result.run, result.run.drawn
    names = run.robot.joint_names
    columns = {"t": run.t[step], "identified": run.identified[step].astype(float)}
    arrays = {"q": run.q, "wanted": run.wanted, "tau": run.tau, "error": run.error}
    for kind, array in arrays.items():
        columns |= {f"{kind}.{joint}": array[step, j] for j, joint in enumerate(names)}
    title = f"{result.title}, seed {result.summary['seed']}, {result.summary['plant']} plant"
    return [
        write_atomically(
            folder / "report.html",
            render(
                title, result.sections, subtitle=" ".join([result.verdict.sentence, *result.text])
            ),
        ),
        write_table(folder / "run.parquet", list(columns), list(columns.values())),
        write_atomically(folder / "summary.json", as_text(result.summary)),
    ]
