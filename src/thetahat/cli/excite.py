"""`thetahat excite ROBOT --out TRAJECTORY`: a motion that reveals the robot's parameters, inside
its limits, for a driver to play.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from thetahat import robots
from thetahat.cli import arguments
from thetahat.cli.exit_status import collect_warnings, emit
from thetahat.cli.progress import Progress
from thetahat.cli.settings_options import friction_terms, with_options, with_settings
from thetahat.errors import UsageError
from thetahat.files import as_text
from thetahat.pipeline.settings import FRICTION, IdentifySettings, setting

if TYPE_CHECKING:
    import numpy as np

    from thetahat.excite.design import Design
    from thetahat.excite.motion_limits import Box
    from thetahat.excite.trajectory import Motion
    from thetahat.identification.information import Information
    from thetahat.model.robot import Robot

SCHEMA = "thetahat/excite/1"
CRITERIA = ("log-det", "condition")


@dataclass(frozen=True, kw_only=True)
class ExciteOptions:
    """Options of `thetahat excite`."""

    duration: float = setting("Duration of the motion.", 10.0, "S", shown=True)
    harmonics: int = setting("Harmonics of every joint's Fourier series.", 5, "N", shown=True)
    points: int | None = setting("Use a spline through this many points instead.", None, "N")
    criterion: str = setting(
        "Optimality criterion: log-det of the information matrix, or condition number.",
        CRITERIA[0],
        shown=True,
    )
    rate: float = setting("Sample rate of the output file.", 1000.0, "HZ", shown=True)
    starts: int = setting("Number of random initial motions.", 24, "N", shown=True)
    seconds: float = setting("Time limit of the optimisation.", 600.0, "S", shown=True)
    seed: int = setting("Random seed of the initial motions.", 0, "N", shown=True)
    start: str | None = setting(
        "Start and end configuration, one number per joint; default: optimised.", None, "Q1,Q2,…"
    )
    joints: str | None = setting("Move these joints only; the others stay at zero.", None, "A,B,C")
    margin: float = setting("Fraction of the file's limits to use.", 0.95, "PART", shown=True)
    velocity: float | None = setting(
        "Velocity limit of all joints; overrides the file's.", None, "RAD/S"
    )
    acceleration: float | None = setting("Acceleration limit of all joints.", None, "RAD/S²")
    torque: float | None = setting("Torque limit of all joints; overrides the file's.", None, "N·M")
    inside: list[str] | None = setting(
        "Keep a link's origin inside a box; may be repeated.", None, "LINK:X,X,Y,Y,Z,Z"
    )
    outside: list[str] | None = setting(
        "Keep a link's origin outside a box; may be repeated.", None, "LINK:X,X,Y,Y,Z,Z"
    )
    friction: str = setting(
        "Friction terms to be identified, or none.", ",".join(FRICTION), shown=True
    )
    armature: bool = setting("Make rotor inertia identifiable as well.", False, flags="--armature")
    after: list[str] | None = setting(
        "Existing log; design the motion that adds most information to it.", None, "LOG"
    )

    def __post_init__(self) -> None:
        if self.criterion not in CRITERIA:
            raise UsageError(
                f"--criterion is {self.criterion!r}; give one of {', '.join(CRITERIA)}"
            )


@with_options(ExciteOptions)
@with_settings("gravity", "columns", "units", "format")
def excite(
    robot: arguments.Robot,
    *,
    out: Annotated[
        str,
        arguments.output(
            "Motion file to write (.csv, .parquet or .npz) with columns t, q., dq., ddq.",
            "TRAJECTORY",
        ),
    ],
    json: arguments.Json = False,
    quiet: arguments.Quiet = False,
    options: ExciteOptions,
    settings: IdentifySettings,
) -> None:
    """Design an exciting motion for identification."""
    began = time.monotonic()
    file = robots.find(robot)
    target = arguments.table_file(out, "--out", keep=[file, *map(Path, options.after or ())])
    with collect_warnings(quiet=quiet) as warnings, Progress(quiet=quiet) as progress:
        progress.stage("loading the robot")
        moved, excited = _robots(file, settings.gravity, options)
        earlier = _earlier(options.after, moved, excited, settings, progress)
        motion_design = _design(excited, earlier, options, progress)
        motion = motion_design.trajectory.sampled(options.rate)
        _whole(motion, moved).save(target)
    data = describe(
        motion_design, rows=len(motion), rate=options.rate, file=target, warnings=warnings
    )
    emit(as_text(data) if json else _text(data, time.monotonic() - began))


def _design(
    robot: Robot, earlier: Information | None, options: ExciteOptions, progress: Progress
) -> Design:
    """Search for the best motion."""
    from thetahat.excite.design import design
    from thetahat.excite.motion_limits import motion_limits

    inside = _boxes(options.inside, "--inside", inside=True)
    outside = _boxes(options.outside, "--outside", inside=False)
    limits = motion_limits(
        robot,
        margin=options.margin,
        velocity=options.velocity,
        acceleration=options.acceleration,
        torque=options.torque,
        boxes=[*inside, *outside],
    )
    return design(
        robot,
        duration=options.duration,
        harmonics=options.harmonics,
        points=options.points,
        start=_start(options.start, robot),
        limits=limits,
        criterion=options.criterion,
        earlier=earlier,
        rate=options.rate,
        starts=options.starts,
        seconds=options.seconds,
        seed=options.seed,
        progress=progress.share("designing"),
    )


def _robots(
    file: Path, gravity: tuple[float, float, float] | None, options: ExciteOptions
) -> tuple[Robot, Robot]:
    """Return the robot, and the robot to excite: other joints locked, columns to be identified."""
    from thetahat.model.io.load import load
    from thetahat.model.lock_joints import lock

    whole = load(file, gravity=gravity)
    moving, terms = whole, friction_terms(options.friction)
    if options.joints is not None:
        names = arguments.names(options.joints, "--joints", whole.joint_names)
        moving = lock(whole, [name for name in whole.joint_names if name not in names])
    columns = {term: term in terms for term in FRICTION}
    return whole, moving.with_drive(**columns, armature=options.armature)


def _whole(motion: Motion, robot: Robot) -> Motion:
    """Return the motion of all joints, those that were locked at zero."""
    import numpy as np

    from thetahat.excite.trajectory import Motion

    if motion.joint_names == robot.joint_names:
        return motion
    at = [robot.joint_names.index(name) for name in motion.joint_names]

    def widened(array: np.ndarray) -> np.ndarray:
        whole = np.zeros((len(motion), len(robot.joint_names)))
        whole[:, at] = array
        return whole

    arrays = (widened(motion.q), widened(motion.dq), widened(motion.ddq))
    return Motion(motion.t, *arrays, joint_names=robot.joint_names)


def _start(text: str | None, robot: Robot) -> np.ndarray | None:
    """Return the pose to start from."""
    import numpy as np

    if text is None:
        return None
    return np.array(arguments.numbers(text, "--start", len(robot.joint_names)))


def _boxes(texts: list[str] | None, option: str, *, inside: bool) -> list[Box]:
    import numpy as np

    from thetahat.excite.motion_limits import Box

    boxes = []
    for text in texts or ():
        link, colon, rest = text.rpartition(":")
        if not colon:
            raise UsageError(f"{option} is {text!r}; give LINK:xmin,xmax,ymin,ymax,zmin,zmax [m]")
        values = arguments.numbers(rest, option, 6)
        low, high = np.array(values[0::2]), np.array(values[1::2])
        boxes.append(Box(link, low, high, inside=inside))
    return boxes


def _earlier(
    logs: list[str] | None,
    whole: Robot,
    excited: Robot,
    settings: IdentifySettings,
    progress: Progress,
) -> Information | None:
    """Return what earlier logs tell about the parameters."""
    if not logs:
        return None
    from thetahat.data.log import read_log
    from thetahat.data.prepare import choose, prepare_batches
    from thetahat.identification.information import information

    if whole.joint_names != excited.joint_names:
        raise UsageError(
            "--after and --joints are both given; design for all joints, or without the earlier log"
        )
    log = read_log(
        list(logs),
        whole,
        columns=settings.columns,
        units=settings.units,
        format=settings.format,
    )
    if log.locked:
        raise UsageError(
            f"--after: the log has no columns of {', '.join(log.locked)}; give a log of all joints"
        )
    filtering = choose(log, whole)
    return information(
        excited,
        progress.count(
            prepare_batches(log, whole, settings=filtering), "folding the earlier log", log.rows
        ),
    )


def describe(
    motion_design: Design, *, rows: int, rate: float, file: Path, warnings: list[str]
) -> dict[str, Any]:
    """The answer as plain data, schema thetahat/excite/1."""
    return {
        "schema": SCHEMA,
        "file": str(file),
        "rows": rows,
        "rate": rate,
        "duration": motion_design.trajectory.duration,
        "joints": list(motion_design.trajectory.joint_names),
        "criterion": motion_design.criterion,
        "condition": motion_design.condition if math.isfinite(motion_design.condition) else None,
        "log_det": motion_design.log_det if math.isfinite(motion_design.log_det) else None,
        "base_parameters": len(motion_design.information.base),
        "evaluations": motion_design.evaluations,
        "seconds": motion_design.seconds,
        "complete": motion_design.complete,
        "limits": [
            {"kind": m.kind, "name": m.name, "used": m.used, "time": m.time}
            for m in motion_design.margins
        ],
        "notes": list(motion_design.notes),
        "warnings": list(warnings),
    }


def _text(data: dict[str, Any], seconds: float) -> str:
    condition = "without bound" if data["condition"] is None else f"{data['condition']:.3g}"
    lines = [
        f"A motion of {data['duration']:g} s for {len(data['joints'])} joints shows"
        f" {data['base_parameters']} base parameters; condition {condition}."
    ]
    lines += [
        f"  {m['kind']} of {m['name']}: {100.0 * m['used']:.1f} % of its limit at {m['time']:.3f} s"
        for m in data["limits"]
    ]
    lines += [f"  {note}" for note in data["notes"]]
    lines.append(
        f"Wrote {data['file']} ({data['rows']:,} rows at {data['rate']:g} Hz) in {seconds:.1f} s;"
        " play it, or: thetahat simulate."
    )
    return "\n".join(lines) + "\n"
