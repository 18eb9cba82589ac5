"""`thetahat identify ROBOT LOG... --out DIR`: a robot's parameters from logs of its motion."""

from __future__ import annotations

import time
from typing import Annotated

from thetahat.cli import arguments, engine_options
from thetahat.cli.arguments import option
from thetahat.cli.exit_status import collect_warnings, emit, say
from thetahat.cli.progress import Progress
from thetahat.cli.settings_options import with_settings
from thetahat.files import as_text
from thetahat.pipeline.settings import IdentifySettings


@with_settings()
def identify(
    robot: arguments.Robot,
    logs: arguments.Logs,
    *,
    out: Annotated[
        str,
        option(
            "Folder for estimate.json, report.html and the robot file; created if needed.",
            "--out",
            "-o",
            metavar="DIR",
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
        from thetahat.cli.identify_view import draw

        draw(answer.data, files=list(answer.files), seconds=time.monotonic() - began)
    engine_options.say_completion(answer.completion)
