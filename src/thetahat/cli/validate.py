"""`thetahat validate ROBOT LOG... [--estimate FILE]`: how well a robot predicts the torques of a
log.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from thetahat import __version__, robots
from thetahat.cli import arguments
from thetahat.cli.arguments import option
from thetahat.cli.exit_status import collect_warnings, emit
from thetahat.cli.progress import Progress
from thetahat.cli.settings_options import READING, with_settings
from thetahat.errors import UsageError
from thetahat.files import as_text
from thetahat.identification.verdict import Verdict, judge_scores
from thetahat.pipeline.settings import IdentifySettings

if TYPE_CHECKING:
    from thetahat.model.robot import Robot
    from thetahat.pipeline.validate import LogScores

SCHEMA = "thetahat/validation/1"
Rollout = Annotated[
    bool,
    option(
        "Simulate logged torques (of actuators: commands) from logged states, too: error of the"
        " motion by horizon."
    ),
]

Estimate = Annotated[
    str | None,
    option(
        "estimate.json or actuators.json to score, compared with the values of ROBOT.",
        metavar="FILE",
    ),
]


@with_settings(
    *("cutoff", "score_cutoff", "gravity", "min_speed", "joints"),
    *READING,
)
def validate(
    robot: arguments.Robot,
    logs: arguments.Logs,
    *,
    estimate: Estimate = None,
    against: Annotated[
        str | None,
        option("Robot file to compare with; default with --estimate: ROBOT.", metavar="ROBOT"),
    ] = None,
    rollout: Rollout = False,
    json: arguments.Json = False,
    quiet: arguments.Quiet = False,
    settings: IdentifySettings,
) -> None:
    """Score predicted torques, or the motion of actuators, on a log: R² and RMS per joint."""
    began = time.monotonic()
    file = robots.find(robot)
    other = None if against is None else robots.find(against)
    source = None if estimate is None else arguments.input_file(estimate, "--estimate")
    if source is not None and _is_of_actuators(source):
        _require_no_torques(against, settings)
        show = {"rollout": rollout, "json": json, "quiet": quiet}
        _validate_actuators(file, list(logs), source, settings=settings, **show)
        return
    with collect_warnings(quiet=quiet) as warnings, Progress(quiet=quiet) as progress:
        from thetahat.identification.read_estimate import read_estimate
        from thetahat.model.io.load import load
        from thetahat.model.io.save import with_drive_file
        from thetahat.pipeline.validate import score_logs

        fit = None if source is None else read_estimate(source)
        gravity = settings.gravity
        if gravity is None and fit is not None:
            gravity = (fit.get("provenance") or {}).get("settings", {}).get("gravity")
        progress.stage("loading the robot")
        # a robot that was written back has terms beside its file
        loaded = with_drive_file(load(file, gravity=gravity))
        nominal = None if fit is None else loaded
        if other is not None:
            nominal = with_drive_file(load(other, gravity=gravity))
        scores = score_logs(
            loaded,
            list(logs),
            nominal,
            settings=settings,
            estimate=fit,
            rollout=rollout,
            progress=progress,
        )
    data = describe(scores, robot=loaded, estimate=source, warnings=warnings)
    stated = None if fit is None else fit.get("verdict")
    own = None if stated is None else Verdict.from_data(stated)
    data["verdict"] = judge_scores(data, own).as_data()
    if json:
        emit(as_text(data))
    else:
        from thetahat.cli.validate_view import draw

        draw(data, seconds=time.monotonic() - began)


def _is_of_actuators(source: Path) -> bool:
    from thetahat.json_document import read_document
    from thetahat.pipeline.actuator_result import SCHEMA as ACTUATORS

    wanted = "an estimate.json or actuators.json that thetahat wrote"
    return read_document(source, None, wanted).get("schema") == ACTUATORS


def _require_no_torques(against: str | None, settings: IdentifySettings) -> None:
    if against is not None or settings.joints:
        raise UsageError(
            "--against and --joints are of torques; leave them out of an actuators.json"
        )


def _validate_actuators(
    file: Path,
    logs: list[str],
    source: Path,
    *,
    rollout: bool,
    json: bool,
    quiet: bool,
    settings: IdentifySettings,
) -> None:
    """Score the motion that an actuators.json simulates, beside that of the robot's file."""
    began = time.monotonic()
    with collect_warnings(quiet=quiet) as warnings, Progress(quiet=quiet) as progress:
        from thetahat.json_document import read_document
        from thetahat.pipeline.validate_actuators import score_actuators

        answer = read_document(source, "actuators", "an actuators.json that thetahat wrote")
        if settings.gravity is None:
            gravity = answer["provenance"]["settings"].get("gravity")
            settings = replace(settings, gravity=None if gravity is None else tuple(gravity))
        data = score_actuators(
            str(file), logs, answer, source, settings=settings, rollout=rollout, progress=progress
        )
    data = {**data, "warnings": list(warnings)}
    if json:
        emit(as_text(data))
    else:
        from thetahat.cli.actuators_view import draw_scores

        draw_scores(data, seconds=time.monotonic() - began)


def describe(
    scores: LogScores, *, robot: Robot, estimate: Path | None, warnings: list[str]
) -> dict[str, Any]:
    """Return the answer as plain data, schema thetahat/validation/1; names as in estimate.json."""
    from thetahat.identification.estimate_json import findings, number

    test, raw, log, settings = scores.test, scores.raw, scores.log, scores.settings
    nominal = test.nominal
    return {
        "schema": SCHEMA,
        "robot": robot.name,
        "samples": int(test.samples),
        "r2": {
            "test": number(test.r2_total),
            "test_raw": number(raw.r2_total),
            "nominal": None if nominal is None else number(nominal.r2_total),
        },
        "cutoff": settings.cutoff,
        "cutoff_reason": settings.reasoning,
        "score_cutoff": number(test.cutoff),
        "joints": [
            {
                "name": name,
                "rows_test": int(test.rows[j]),
                "r2_test": number(test.r2[j]),
                "r2_test_moving": number(test.r2_moving[j]),
                "r2_test_raw": number(raw.r2[j]),
                "rms_test": number(test.rms[j]),
                "rms_test_moving": number(test.rms_moving[j]),
                "r2_nominal": None if nominal is None else number(nominal.r2[j]),
                "rms_nominal": None if nominal is None else number(nominal.rms[j]),
            }
            for j, name in enumerate(test.names)
        ],
        "rollout": None if scores.rollout is None else scores.rollout.as_data(),
        "locked": list(log.locked),
        "findings": findings(log.findings, "test"),
        "warnings": list(warnings),
        "provenance": {
            "robot_file": None if robot.source is None else str(robot.source),
            "estimate": None if estimate is None else str(estimate),
            "logs": [{"path": source.path, "sha256": source.sha256} for source in log.sources],
            "version": __version__,
        },
    }
