"""`thetahat identify ROBOT LOG... --out DIR`: a robot's parameters from logs of its motion."""

from __future__ import annotations

import time
from typing import Annotated

from thetahat.cli import arguments, engine_options
from thetahat.cli.arguments import option
from thetahat.cli.exit_status import collect_warnings, emit, say
from thetahat.cli.progress import Progress
from thetahat.cli.settings_options import with_settings
from thetahat.errors import NotUsable
from thetahat.files import as_text
from thetahat.identification.verdict import Verdict
from thetahat.pipeline.settings import IdentifySettings


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
    verbose: Annotated[
        bool,
        option(
            "Print friction, bodies, identifiability and automatic choices, too.",
            "--verbose",
            "-v",
        ),
    ] = False,
    strict: Annotated[
        bool, option("End with exit code 8 if the result is not usable.", "--strict")
    ] = False,
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
    verdict = Verdict.from_data(answer.data["verdict"])
    if json:
        emit(as_text(answer.data))
        if not quiet:
            for reason in verdict.reasons:
                say(reason, "warning")
    else:
        from thetahat.cli.identify_view import draw

        seconds = time.monotonic() - began
        draw(answer.data, files=list(answer.files), seconds=seconds, verbose=verbose)
    engine_options.say_completion(answer.completion)
    if strict and not verdict.usable:
        raise NotUsable(f"the result is not usable (--strict): {verdict.reasons[0]}")
