"""`thetahat excite ROBOT --out TRAJECTORY`: a motion that reveals the robot's parameters, inside
its limits, for a driver to play.
"""

from __future__ import annotations

import json as json_format
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from thetahat.cli import arguments
from thetahat.cli.arguments import option
from thetahat.cli.exit_status import emit, heard
from thetahat.cli.progress import Progress
from thetahat.cli.settings_options import friction_terms
from thetahat.errors import UsageError
from thetahat.pipeline.settings import FRICTION

if TYPE_CHECKING:
    from thetahat.excite.design import Design
    from thetahat.excite.motion_limits import Box
    from thetahat.identification.information import Information
    from thetahat.model.robot import Robot

SCHEMA = "thetahat/excite/1"
CRITERIA = ("log-det", "condition")


def excite(
    robot: arguments.Robot,
    *,
    out: Annotated[
        str,
        option(
            "File for the motion: .csv, .parquet or .npz with t, q., dq., ddq. columns.",
            "--out",
            "-o",
            metavar="TRAJECTORY",
        ),
    ],
    json: arguments.Json = False,
    quiet: arguments.Quiet = False,
    duration: Annotated[float, option("Of the motion.", metavar="S", show_default=True)] = 10.0,
    harmonics: Annotated[
        int, option("Of the Fourier series of every joint.", metavar="N", show_default=True)
    ] = 5,
    points: Annotated[
        int | None, option("A spline through so many points instead.", metavar="N")
    ] = None,
    criterion: Annotated[
        str,
        option(
            "What to make best: log-det of the information, or its condition number.",
            show_default=True,
        ),
    ] = CRITERIA[0],
    rate: Annotated[
        float, option("Samples per second of the file.", metavar="HZ", show_default=True)
    ] = 1000.0,
    starts: Annotated[
        int, option("Random motions that a search starts from.", metavar="N", show_default=True)
    ] = 24,
    seconds: Annotated[
        float, option("Time limit of the design.", metavar="S", show_default=True)
    ] = 600.0,
    seed: Annotated[
        int, option("Of the random motions it starts from.", metavar="N", show_default=True)
    ] = 0,
    start: Annotated[
        str | None,
        option(
            "Pose to start and end in, one number per joint; default: wherever it is best.",
            metavar="Q1,Q2,…",
        ),
    ] = None,
    joints: Annotated[
        str | None, option("Move these joints only; the others stand at zero.", metavar="A,B,C")
    ] = None,
    margin: Annotated[
        float, option("Part of the file's limits to use.", metavar="PART", show_default=True)
    ] = 0.95,
    velocity: Annotated[
        float | None, option("Limit of all joints' speed, in place of the file's.", metavar="RAD/S")
    ] = None,
    acceleration: Annotated[
        float | None, option("Limit of all joints' acceleration.", metavar="RAD/S²")
    ] = None,
    torque: Annotated[
        float | None, option("Limit of all joints' torque, in place of the file's.", metavar="N·M")
    ] = None,
    inside: Annotated[
        list[str] | None,
        option("Keep a link's origin in a box; may be repeated.", metavar="LINK:X,X,Y,Y,Z,Z"),
    ] = None,
    outside: Annotated[
        list[str] | None,
        option("Keep a link's origin out of a box; may be repeated.", metavar="LINK:X,X,Y,Y,Z,Z"),
    ] = None,
    friction: Annotated[
        str,
        option("Friction that the log is to show: some of the three, or none.", show_default=True),
    ] = ",".join(FRICTION),
    armature: Annotated[bool, option("Rotor inertia, too.", "--armature")] = False,
    after: Annotated[
        list[str] | None,
        option("A log that exists already: design what adds most to it.", metavar="LOG"),
    ] = None,
    gravity: arguments.Gravity = None,
) -> None:
    """Design a motion from which the robot can be identified."""
    began = time.monotonic()
    file, vector = arguments.robot_file(robot), arguments.gravity(gravity)
    target = arguments.table_file(out, "--out", keep=[file, *map(Path, after or ())])
    if criterion not in CRITERIA:
        raise UsageError(f"--criterion is {criterion!r}; give one of {', '.join(CRITERIA)}")
    with heard(quiet=quiet) as warnings, Progress(quiet=quiet) as progress:
        progress.stage("loading the robot")
        moved, excited = _robots(file, vector, joints, friction_terms(friction), armature=armature)
        from thetahat.excite.design import design
        from thetahat.excite.motion_limits import motion_limits

        limits = motion_limits(
            excited,
            margin=margin,
            velocity=velocity,
            acceleration=acceleration,
            torque=torque,
            boxes=[
                *_boxes(inside, "--inside", inside=True),
                *_boxes(outside, "--outside", inside=False),
            ],
        )
        found = design(
            excited,
            duration=duration,
            harmonics=harmonics,
            points=points,
            start=(
                None
                if start is None
                else arguments.numbers(start, "--start", len(excited.joint_names))
            ),
            limits=limits,
            criterion=criterion,
            earlier=_earlier(after, file, vector, excited, progress),
            rate=rate,
            starts=starts,
            seconds=seconds,
            seed=seed,
            progress=progress.share("designing"),
        )
        motion = found.trajectory.sampled(rate)
        _whole(motion, moved).save(target)
    told = describe(found, rows=len(motion), rate=rate, file=target, warnings=warnings)
    emit(
        json_format.dumps(told, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
        if json
        else _text(told, time.monotonic() - began)
    )


def _robots(
    file: Path,
    gravity: tuple[float, float, float] | None,
    joints: str | None,
    terms: tuple[str, ...],
    *,
    armature: bool,
) -> tuple[Robot, Robot]:
    """(the robot, the robot with other joints than those asked for locked and the columns to be
    identified).
    """
    from thetahat.model.io.load import load
    from thetahat.model.lock_joints import lock

    whole = load(file, gravity=gravity)
    moving = whole
    if joints is not None:
        names = arguments.names(joints, "--joints", whole.joint_names)
        moving = lock(whole, [name for name in whole.joint_names if name not in names])
    columns = {term: term in terms for term in FRICTION}
    return whole, moving.with_drive(**columns, armature=armature)


def _whole(motion: Any, robot: Robot) -> Any:
    """The motion of all joints, those that were locked at zero."""
    import numpy as np

    from thetahat.excite.trajectory import Motion

    if motion.joint_names == robot.joint_names:
        return motion
    at = [robot.joint_names.index(name) for name in motion.joint_names]
    arrays = []
    for array in (motion.q, motion.dq, motion.ddq):
        full = np.zeros((len(motion), len(robot.joint_names)))
        full[:, at] = array
        arrays.append(full)
    return Motion(motion.t, *arrays, robot.joint_names)


def _boxes(texts: list[str] | None, option: str, *, inside: bool) -> list[Box]:
    from thetahat.excite.motion_limits import Box

    boxes = []
    for text in texts or ():
        link, colon, rest = text.rpartition(":")
        if not colon:
            raise UsageError(f"{option} is {text!r}; give LINK:xmin,xmax,ymin,ymax,zmin,zmax [m]")
        values = arguments.numbers(rest, option, 6)
        boxes.append(Box(link, values[0::2], values[1::2], inside=inside))
    return boxes


def _earlier(
    logs: list[str] | None, file: Path, gravity: Any, excited: Robot, progress: Progress
) -> Information | None:
    if not logs:
        return None
    from thetahat.data.log import read_log
    from thetahat.data.prepare import choose, prepare_batches
    from thetahat.identification.information import information
    from thetahat.model.io.load import load

    whole = load(file, gravity=gravity)
    if whole.joint_names != excited.joint_names:
        raise UsageError(
            "--after and --joints are both given; design for all joints, or without the earlier log"
        )
    log = read_log(list(logs), whole)
    if log.locked:
        raise UsageError(
            f"--after: the log has no columns of {', '.join(log.locked)}; give a log of all joints"
        )
    settings = choose(log, whole)
    return information(
        excited,
        progress.count(
            prepare_batches(log, whole, settings=settings), "folding the earlier log", log.rows
        ),
    )


def describe(
    found: Design, *, rows: int, rate: float, file: Path, warnings: list[str]
) -> dict[str, Any]:
    """The answer as plain data, schema thetahat/excite/1."""
    return {
        "schema": SCHEMA,
        "file": str(file),
        "rows": rows,
        "rate": rate,
        "duration": found.trajectory.duration,
        "joints": list(found.trajectory.joint_names),
        "criterion": found.criterion,
        "condition": found.condition if math.isfinite(found.condition) else None,
        "log_det": found.log_det if math.isfinite(found.log_det) else None,
        "base_parameters": len(found.information.base),
        "evaluations": found.evaluations,
        "seconds": found.seconds,
        "complete": found.complete,
        "limits": [
            {"kind": m.kind, "name": m.name, "used": m.used, "time": m.time} for m in found.margins
        ],
        "notes": list(found.notes),
        "warnings": list(warnings),
    }


def _text(told: dict[str, Any], seconds: float) -> str:
    condition = "without bound" if told["condition"] is None else f"{told['condition']:.3g}"
    lines = [
        f"A motion of {told['duration']:g} s for {len(told['joints'])} joints shows"
        f" {told['base_parameters']} base parameters; condition {condition}."
    ]
    lines += [
        f"  {m['kind']} of {m['name']}: {100.0 * m['used']:.1f} % of its limit at {m['time']:.3f} s"
        for m in told["limits"]
    ]
    lines += [f"  {note}" for note in told["notes"]]
    lines.append(
        f"Wrote {told['file']} ({told['rows']:,} rows at {told['rate']:g} Hz) in {seconds:.1f} s;"
        " play it, or: thetahat simulate."
    )
    return "\n".join(lines) + "\n"
