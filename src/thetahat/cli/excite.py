"""`thetahat excite ROBOT --out TRAJECTORY`: a motion that reveals the robot's parameters, inside
its limits, for a driver to play.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from thetahat import robots
from thetahat.cli import arguments
from thetahat.cli.excite_answer import (
    as_words,
    describe,
    held_words,
    motion_format,
    poses_data,
)
from thetahat.cli.exit_status import collect_warnings, emit
from thetahat.cli.progress import Progress
from thetahat.cli.settings_options import friction_terms, with_options, with_settings
from thetahat.cli.standing import (
    FloatingOptions,
    excite_standing,
    floating_robot,
    standing_data,
    standing_words,
)
from thetahat.errors import UsageError
from thetahat.files import as_text, written_together
from thetahat.pipeline.settings import FRICTION, IdentifySettings, setting

if TYPE_CHECKING:
    import numpy as np

    from thetahat.excite.design import Design
    from thetahat.excite.motion_limits import Box, MotionLimits
    from thetahat.excite.stated_limits import PerJoint
    from thetahat.excite.trajectory import Motion
    from thetahat.identification.information import Information
    from thetahat.model.robot import Robot

CRITERIA = ("log-det", "condition")
PURPOSES = ("robot", "payload")
FORMATS = ("csv", "parquet", "npz", "ros2-yaml", "ros2-json", "urscript")
TABLE_RATE = 1000.0  # [Hz]
STANDING_RATE = 200.0  # [Hz] of motions with the feet in place


@dataclass(frozen=True, kw_only=True)
class ExciteOptions:
    """Options of `thetahat excite`."""

    purpose: str = setting(
        "What the motion is to show: robot, or payload (what --link holds, of a robot that is known"
        " or logged without it).",
        PURPOSES[0],
        "WHAT",
        "--for",
        shown=True,
    )
    link: str | None = setting("Link that holds the payload.", None, "NAME")
    poses: int | None = setting(
        "Write so many poses to hold instead of a motion, for robots that report held torques only;"
        " with --for payload, CSV.",
        None,
        "N",
    )
    duration: float = setting("Duration of the motion.", 10.0, "S", shown=True)
    harmonics: int = setting("Harmonics of every joint's Fourier series.", 5, "N", shown=True)
    points: int | None = setting("Use a spline through this many points instead.", None, "N")
    criterion: str = setting(
        "Optimality criterion: log-det of the information matrix, or condition number.",
        CRITERIA[0],
        shown=True,
    )
    rate: float | None = setting(
        "Sample rate of the output file; default: 1000, JointTrajectory 100, URScript 125.",
        None,
        "HZ",
    )
    to: str | None = setting(
        f"Output format: {', '.join(FORMATS)}; default: by the ending.",
        None,
        "FORMAT",
    )
    preview: str | None = setting(
        "HTML page to write, in which the robot moves.", None, "FILE.html"
    )
    starts: int = setting("Number of random initial motions.", 24, "N", shown=True)
    seconds: float = setting("Time limit of the optimisation.", 600.0, "S", shown=True)
    seed: int = setting("Random seed of the initial motions.", 0, "N", shown=True)
    start: str | None = setting(
        "Start and end configuration, one number per joint; default: optimised.", None, "Q1,Q2,…"
    )
    joints: str | None = setting("Move these joints only; the others stay at zero.", None, "A,B,C")
    margin: float = setting("Fraction of the file's limits to use.", 0.95, "PART", shown=True)
    velocity: str | None = setting(
        "Velocity limit, for all joints or V1,V2,… or JOINT=V,…; overrides the file's.",
        None,
        "RAD/S",
        "--max-velocity --velocity",
    )
    acceleration: str | None = setting(
        "Acceleration limit, likewise; default: 0.3 s to top speed.",
        None,
        "RAD/S²",
        "--max-acceleration --acceleration",
    )
    jerk: str | None = setting(
        "Jerk limit, likewise; default: 0.1 s to full acceleration.", None, "RAD/S³", "--max-jerk"
    )
    torque: str | None = setting(
        "Torque limit, likewise; overrides the file's.", None, "N·M", "--max-torque --torque"
    )
    floor: str = setting(
        "Height of the floor that all links keep above, or none; auto: the ground that the robot"
        " stands on.",
        "auto",
        "Z|none|auto",
        shown=True,
    )
    self_collision: bool = setting(
        "Keep links apart from each other; default: yes.",
        True,
        flags="--self-collision/--no-self-collision",
    )
    clearance: float = setting(
        "Least distance of links from the floor and each other.", 0.02, "M", shown=True
    )
    inside: list[str] | None = setting(
        "Keep a link's origin inside a box; may be repeated.", None, "LINK:X,X,Y,Y,Z,Z"
    )
    outside: list[str] | None = setting(
        "Keep a link's origin outside a box; may be repeated.", None, "LINK:X,X,Y,Y,Z,Z"
    )
    torque_noise: str | None = setting(
        "Standard deviation of measured torques; default: 1 % of their limits.", None, "N·M"
    )
    encoder_noise: str | None = setting(
        "Standard deviation of measured positions, from which accelerations are derived; default:"
        " 0.0001.",
        None,
        "RAD",
    )
    prior_spread: float | None = setting(
        "Relative uncertainty of the file's inertia, such as 0.3: weigh what it leaves open.",
        None,
        "PART",
    )
    friction: str = setting(
        "Friction terms to be identified, or none.", ",".join(FRICTION), shown=True
    )
    armature: bool = setting("Make rotor inertia identifiable as well.", False, flags="--armature")
    after: list[str] | None = setting(
        "Existing log; design the motion that adds most information to it.", None, "LOG"
    )

    def __post_init__(self) -> None:
        if self.purpose not in PURPOSES:
            raise UsageError(f"--for is {self.purpose!r}; give one of {', '.join(PURPOSES)}")
        if (self.purpose == "payload") != (self.link is not None):
            raise UsageError("--for payload and --link NAME belong together; give both or neither")
        if self.poses is not None and (self.link is None or self.poses < 4):
            raise UsageError(
                f"--poses is {self.poses}; give at least 4 poses, with --for payload --link NAME"
            )
        if self.criterion not in CRITERIA:
            raise UsageError(
                f"--criterion is {self.criterion!r}; give one of {', '.join(CRITERIA)}"
            )


@with_options(ExciteOptions)
@with_options(FloatingOptions, "floating")
@with_settings("gravity", "columns", "units", "gains", "format")
def excite(
    robot: arguments.Robot,
    *,
    out: Annotated[
        str,
        arguments.output(
            "Motion file to write: .csv, .parquet or .npz with columns t, q., dq., ddq.; .yaml or"
            " .json for a ROS 2 JointTrajectory; .script for URScript.",
            "TRAJECTORY",
        ),
    ],
    json: arguments.Json = False,
    quiet: arguments.Quiet = False,
    options: ExciteOptions,
    floating: FloatingOptions,
    settings: IdentifySettings,
) -> None:
    """Design an exciting motion for identification."""
    from thetahat.excite.trajectory_files import check_playable, default_rate, save_motion

    began = time.monotonic()
    file, gravity = robots.find(robot), settings.gravity
    read = [file, *map(Path, options.after or ())]
    kind = motion_format(out, options.to)
    target = arguments.writeable_file(Path(out), "--out", keep=read)
    preview = None
    if options.preview is not None:
        preview = arguments.writeable_file(Path(options.preview), "--preview", keep=read)
    rate = default_rate(kind) if options.rate is None else options.rate
    if floating.floating_base:
        _sway(file, target, options, floating, settings, json=json, quiet=quiet)
        return
    with collect_warnings(quiet=quiet) as warnings, Progress(quiet=quiet) as progress:
        progress.stage("loading the robot")
        moved, excited = _robots(file, gravity, options)
        check_playable(moved, kind, rate)
        earlier = _earlier(options.after, moved, excited, settings, progress)
        if options.poses is not None:
            poses = _held_poses(excited, options, target)
            emit(as_text(poses) if json else held_words(poses))
            return
        motion_design = _design(excited, earlier, options, progress)
        motion = motion_design.trajectory.sampled(rate)
        with written_together():
            if preview is not None:
                from thetahat.live.motion_preview import write_preview

                write_preview(motion_design, excited, preview)
            save_motion(_whole(motion, moved), target, moved, kind)
    data = describe(motion_design, rows=len(motion), rate=rate, file=target, warnings=warnings)
    data |= {"format": kind, "preview": None if preview is None else str(preview)}
    emit(as_text(data) if json else as_words(data, time.monotonic() - began))


def _design(
    robot: Robot, earlier: Information | None, options: ExciteOptions, progress: Progress
) -> Design:
    """Search for the best motion."""
    from thetahat.excite.design import design

    return design(
        robot,
        duration=options.duration,
        harmonics=options.harmonics,
        points=options.points,
        start=_start(options.start, robot),
        limits=_limits(robot, options),
        criterion=options.criterion,
        noise=_noise(options.torque_noise, "--torque-noise", robot),
        encoder_noise=_noise(options.encoder_noise, "--encoder-noise", robot),
        prior_spread=options.prior_spread,
        earlier=earlier,
        rate=TABLE_RATE if options.rate is None else options.rate,
        starts=options.starts,
        seconds=options.seconds,
        seed=options.seed,
        payload_link=options.link,
        progress=progress.share("designing"),
    )


def _sway(
    file: Path,
    target: Path,
    options: ExciteOptions,
    floating: FloatingOptions,
    settings: IdentifySettings,
    *,
    json: bool,
    quiet: bool,
) -> None:
    """Design a motion of a robot that stands on its feet, and write it."""
    from thetahat.plant.standing_files import save_standing

    began = time.monotonic()
    if options.link is not None or options.after is not None or options.joints is not None:
        raise UsageError(
            "--floating-base designs a sway of all joints for the robot itself; leave out --for"
            " payload, --after and --joints"
        )
    arguments.table_file(str(target), "--out", keep=[file])
    rate = STANDING_RATE if options.rate is None else options.rate
    with collect_warnings(quiet=quiet) as warnings, Progress(quiet=quiet) as progress:
        progress.stage("loading the robot")
        robot = floating_robot(file, settings.gravity, floating.contacts)
        progress.stage("designing a sway")
        found = excite_standing(robot, duration=options.duration, rate=rate, seed=options.seed)
        save_standing(found.motion, robot, target)
    data = standing_data(found, robot, file=target, rate=rate, warnings=warnings)
    words = standing_words(found, target, time.monotonic() - began)
    emit(as_text(data) if json else words)


def _held_poses(excited: Robot, options: ExciteOptions, target: Path) -> dict[str, object]:
    """Choose poses to hold, write them, and return the answer, schema thetahat/poses/1."""
    from thetahat.excite.payload_objective import held_poses
    from thetahat.files import write_atomically

    if target.suffix != ".csv":
        raise UsageError(f"--out is {str(target)!r}; poses are written to a .csv file")
    q = held_poses(
        excited, options.link or "", options.poses or 4, _limits(excited, options), options.seed
    )
    names = [f"q.{name}" for name in excited.joint_names]
    lines = [",".join(names), *(",".join(f"{value:.6f}" for value in row) for row in q)]
    write_atomically(target, "\n".join(lines) + "\n")
    return poses_data(target, excited.joint_names, len(q), options.link or "")


def _limits(robot: Robot, options: ExciteOptions) -> MotionLimits:
    """Return the limits of the robot file and of the options."""
    from thetahat.excite.motion_limits import motion_limits

    inside = _boxes(options.inside, "--inside", inside=True)
    outside = _boxes(options.outside, "--outside", inside=False)

    def per_joint(text: str | None, option: str) -> PerJoint | None:
        return arguments.per_joint(text, option, robot.joint_names)

    return motion_limits(
        robot,
        margin=options.margin,
        velocity=per_joint(options.velocity, "--max-velocity"),
        acceleration=per_joint(options.acceleration, "--max-acceleration"),
        jerk=per_joint(options.jerk, "--max-jerk"),
        torque=per_joint(options.torque, "--max-torque"),
        boxes=[*inside, *outside],
        floor=arguments.floor(options.floor),
        self_collision=options.self_collision,
        clearance=options.clearance,
    )


def _noise(text: str | None, option: str, robot: Robot) -> float | list[float] | None:
    """Return standard deviations: one, or one per joint."""
    given = arguments.per_joint(text, option, robot.joint_names)
    if isinstance(given, dict):
        raise UsageError(f"{option} is {text!r}; give one number, or one per joint with commas")
    return given


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
    from thetahat.data.log import read_files
    from thetahat.data.prepare import choose, prepare_batches
    from thetahat.identification.information import information

    if whole.joint_names != excited.joint_names:
        raise UsageError(
            "--after and --joints are both given; design for all joints, or without the earlier log"
        )
    log = read_files(list(logs), whole, settings.reading)
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
