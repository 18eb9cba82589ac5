"""`thetahat identify ROBOT LOG... --out DIR`: a robot's parameters from logs of its motion."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

from thetahat.cli import arguments, engine_options
from thetahat.cli.arguments import option
from thetahat.cli.exit_status import collect_warnings, emit, say
from thetahat.cli.progress import Progress
from thetahat.cli.settings_options import with_settings
from thetahat.files import as_text
from thetahat.pipeline.settings import IdentifySettings

if TYPE_CHECKING:
    from pathlib import Path


@with_settings()
def identify(
    robot: arguments.Robot,
    logs: arguments.Logs,
    *,
    out: Annotated[
        str,
        arguments.output(
            "Folder for estimate.json, report.html and the robot file; created if needed.", "DIR"
        ),
    ],
    json: arguments.Json = False,
    quiet: arguments.Quiet = False,
    test: Annotated[
        list[str] | None,
        option("Log to score on instead of a held-out part; may be repeated.", metavar="LOG"),
    ] = None,
    workers: engine_options.Workers = None,
    scheduler: engine_options.Scheduler = None,
    store: engine_options.Store = None,
    settings: IdentifySettings,
) -> None:
    """Identify a robot's inertial and friction parameters from logs of its motion."""
    began = time.monotonic()
    where = engine_options.engine_options(workers, scheduler, store)
    with collect_warnings(quiet=quiet) as warnings, Progress(quiet=quiet) as progress:
        from thetahat.pipeline.identify import identify_into

        answer = identify_into(
            out,
            robot,
            logs,
            test or None,
            settings=settings,
            engine_options=where,
            progress=progress,
            warned=warnings,
        )
    if json:
        emit(as_text(answer.data))
        if not quiet:
            from thetahat.data.finding_kinds import GRAVE

            for finding in answer.data["findings"]:
                if finding["kind"] in GRAVE:
                    say(finding["message"], "warning")
    else:
        draw(answer.data, files=list(answer.files), seconds=time.monotonic() - began)
    engine_options.say_completion(answer.completion)


def draw(estimate: dict[str, Any], *, files: list[Path], seconds: float) -> None:
    """Print the result to stdout, from the sections of its report."""
    from thetahat.cli.terminal import findings, show, written
    from thetahat.data.finding_kinds import GRAVE
    from thetahat.report.identification_report import parity, processing
    from thetahat.report.section import Text
    from thetahat.report.sections import bodies, torques
    from thetahat.report.verdict_section import verdict

    show(
        [
            verdict(estimate).blocks,
            torques.score_table(estimate),
            bodies.drive_table(estimate),
            bodies.body_table(estimate),
            [
                *bodies.consistency_notes(estimate),
                *bodies.identifiability_notes(estimate),
                *map(Text, parity(estimate)),
            ],
            [
                *findings(estimate["findings"], skip=(*GRAVE, "locked-joints")),
                *map(Text, processing(estimate)),
            ],
            written(files, seconds),
        ]
    )
