"""`thetahat validate ROBOT LOG... [--estimate FILE]`: how well a robot predicts the torques of a
log.
"""

from __future__ import annotations

import json as json_format
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from thetahat import __version__
from thetahat.cli import arguments
from thetahat.cli.arguments import option
from thetahat.cli.exit_status import emit, heard
from thetahat.cli.progress import Progress
from thetahat.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from thetahat.data.log import Log
    from thetahat.data.prepare import Settings
    from thetahat.data.samples import Samples
    from thetahat.identification.scores import Validation
    from thetahat.model.robot import Robot

SCHEMA = "thetahat/validation/1"


def validate(
    robot: arguments.Robot,
    logs: arguments.Logs,
    *,
    estimate: Annotated[
        str | None,
        option("An estimate.json whose values are scored, beside those of ROBOT.", metavar="FILE"),
    ] = None,
    against: Annotated[
        str | None,
        option(
            "Robot file to score beside; default, with --estimate: ROBOT as it is.", metavar="ROBOT"
        ),
    ] = None,
    json: arguments.Json = False,
    quiet: arguments.Quiet = False,
    cutoff: Annotated[
        float | None,
        option("Low-pass of motion and torque; default: the estimate's, or chosen.", metavar="HZ"),
    ] = None,
    score_cutoff: Annotated[
        float | None,
        option("Low-pass of the torque that is scored; default: that of the motion.", metavar="HZ"),
    ] = None,
    gravity: arguments.Gravity = None,
    min_speed: Annotated[
        float | None,
        option(
            "Joints slower than this, in rad/s or m/s, stand still; default: chosen.",
            metavar="SPEED",
        ),
    ] = None,
    columns: arguments.Columns = None,
    joints: Annotated[
        str | None, option("Only these joints' torques are scored.", metavar="A,B,C")
    ] = None,
    topic: arguments.Topic = None,
    salvage: arguments.Salvage = False,
) -> None:
    """Score a robot on a log: R² and RMS per joint of the torques it predicts."""
    began = time.monotonic()
    file, vector = arguments.robot_file(robot), arguments.gravity(gravity)
    other = None if against is None else arguments.robot_file(against)
    source = None if estimate is None else arguments.input_file(estimate, "--estimate")
    choices = {
        "cutoff": arguments.positive("--cutoff", cutoff, "Hz"),
        "min_speed": arguments.min_speed(min_speed),
    }
    score = arguments.positive("--score-cutoff", score_cutoff, "Hz")
    wanted = arguments.listed(joints, "--joints")
    with heard(quiet=quiet) as warnings, Progress(quiet=quiet) as progress:
        from thetahat.identification.read_estimate import read_estimate
        from thetahat.model.io.load import load
        from thetahat.model.io.save import with_drive_file

        found = None if source is None else read_estimate(source)
        if vector is None and found is not None:
            vector = _of_fit(found, "gravity")
        progress.stage("loading the robot")
        loaded = with_drive_file(
            load(file, gravity=vector)
        )  # a robot that was written back has terms beside its file
        beside = (
            loaded
            if found is not None and other is None
            else None
            if other is None
            else with_drive_file(load(other, gravity=vector))
        )
        scored = _scored(
            loaded,
            beside,
            found,
            list(logs),
            choices,
            score,
            wanted,
            progress,
            {"columns": columns, "topic": topic, "salvage": salvage},
        )
    told = describe(*scored, robot=loaded, estimate=source, warnings=warnings)
    if json:
        emit(json_format.dumps(told, indent=2, allow_nan=False, ensure_ascii=False) + "\n")
    else:
        from thetahat.cli.validate_view import draw

        draw(told, seconds=time.monotonic() - began)


def _of_fit(found: dict[str, Any], name: str) -> Any:
    """A setting that the fit used; None where the file does not say."""
    return (found.get("provenance") or {}).get("settings", {}).get(name)


def _scored(
    robot: Robot,
    nominal: Robot | None,
    found: dict[str, Any] | None,
    logs: list[str],
    choices: dict[str, float | None],
    score: float | None,
    joints: tuple[str, ...],
    progress: Progress,
    reading: dict[str, Any],
) -> tuple[Validation, Validation, Log, Settings]:
    """Scores with torques behind the low-pass and as logged, the log, and how it was prepared."""
    from dataclasses import replace

    from thetahat.cli.joint_selection import Stream, degrees, highest_cutoff, require_torque
    from thetahat.data.log import read_log
    from thetahat.data.prepare import choose, prepare_batches
    from thetahat.identification.read_estimate import apply_estimate
    from thetahat.identification.scores import validate as run
    from thetahat.model.lock_joints import lock

    progress.stage("reading the log")
    log = require_torque(read_log(logs, robot, **reading), "score on")
    model = robot if found is None else apply_estimate(found, robot, where="--estimate")
    unmeasured = [name for name in model.joint_names if name in log.locked]
    strangers = [
        name
        for name in robot.joint_names
        if name not in model.joint_names and name not in log.locked
    ]
    if strangers:
        raise UsageError(
            f"the log moves {', '.join(strangers)}, which the estimate holds still; score it on a"
            " log of the joints it was fitted to"
        )
    model = lock(model, unmeasured) if unmeasured else model
    if nominal is not None:
        nominal = lock(nominal, [name for name in log.locked if name in nominal.joint_names])
        if nominal.joint_names != model.joint_names:
            raise UsageError(
                f"--against {nominal.name} has other joints than {robot.name}; give a variant of"
                " the same robot"
            )
    if (
        choices["cutoff"] is None
        and found is not None
        and (fitted := _of_fit(found, "cutoff"))
        and fitted < highest_cutoff(log)
    ):
        choices = {**choices, "cutoff": fitted}
    progress.stage("choosing the low-pass")
    settings = choose(log, robot, **choices)
    if found is not None:
        settings = replace(settings, delay=_of_fit(found, "delay") or 0.0)
        own = (
            _of_fit(found, "torque_cutoff") or settings.cutoff
        )  # as the fit's held-out rows were scored
        score = score or (
            own
            if choices["cutoff"] == _of_fit(found, "cutoff") and own < highest_cutoff(log)
            else None
        )
    stream = Stream(robot, log.locked, degrees(model, joints))

    def samples(torque_cutoff: float | None) -> Iterator[Samples]:
        batches = prepare_batches(log, robot, settings=settings.scored(torque_cutoff))
        return stream(progress.count(batches, "scoring", log.rows))

    test = run(model, samples(score), nominal=nominal)
    stream.require_rows(model)
    return test, run(model, samples(highest_cutoff(log)), nominal=nominal), log, settings


def describe(
    test: Validation,
    raw: Validation,
    log: Log,
    settings: Settings,
    *,
    robot: Robot,
    estimate: Path | None,
    warnings: list[str],
) -> dict[str, Any]:
    """The answer as plain data, schema thetahat/validation/1; names are those of estimate.json."""
    from thetahat.identification.estimate_json import findings, number

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
        "locked": list(log.locked),
        "findings": findings(log, "test"),
        "warnings": list(warnings),
        "provenance": {
            "robot_file": None if robot.source is None else str(robot.source),
            "estimate": None if estimate is None else str(estimate),
            "logs": [{"path": source.path, "sha256": source.sha256} for source in log.sources],
            "version": __version__,
        },
    }
