"""`thetahat record ROBOT [MOTION] --via sim --out LOG`: screens, rehearses, plays a motion on a
robot and records it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from thetahat import robots
from thetahat.cli import arguments
from thetahat.cli.arguments import option
from thetahat.cli.control import SimulatedOptions
from thetahat.cli.exit_status import INTERRUPTED, collect_warnings, emit, say
from thetahat.cli.progress import Progress
from thetahat.cli.settings_options import friction_terms, with_options, with_settings
from thetahat.connect.open_connection import FORMS, Address
from thetahat.errors import RefusedForSafety, UsageError
from thetahat.files import as_text
from thetahat.pipeline.settings import FRICTION, IdentifySettings, setting

if TYPE_CHECKING:
    import numpy as np

    from thetahat.connect.record_run import RecordSettings
    from thetahat.connect.screening import Screen
    from thetahat.connect.sim_server import SimulationSetup
    from thetahat.excite.trajectory import Motion
    from thetahat.identification.verdict_reason import Fields
    from thetahat.model.robot import Robot

SCHEMA = "thetahat/record/1"
MotionFile = Annotated[
    str | None,
    typer.Argument(
        metavar="MOTION",
        help="Motion file, as written by `thetahat excite`; without one the robot is watched.",
        show_default=False,
    ),
]
Via = Annotated[
    str,
    option(
        f"Connection: {FORMS}.",
        metavar="NAME",
        show_default=True,
    ),
]
Salvage = Annotated[
    bool, option("Write what an interrupted recording holds to LOG; nothing moves.", "--salvage")
]


@dataclass(frozen=True, kw_only=True)
class RecordOptions:
    """Options of `thetahat record`: how the motion is played."""

    rate: float = setting("Rate of samples and commands.", 500.0, "HZ", shown=True)
    warm_up: float = setting(
        "Speed of a first, slow play, relative to the motion's own; 0: none.",
        0.5,
        "PART",
        shown=True,
    )
    seconds: float | None = setting("Duration of a recording without MOTION.", None, "S")
    resume: bool = setting("Go on with an interrupted recording.", False, flags="--resume")
    allow_motion: bool = setting(
        "Allow a robot that is not simulated to be moved.", False, flags="--allow-motion"
    )
    rehearse: bool = setting(
        "Play the motion in simulation first; planted parameters must be recovered. Default: yes.",
        True,
        flags="--rehearse/--no-rehearse",
    )
    check: bool = setting(
        "Identify the log at the end, to say whether it suffices; default: yes.",
        True,
        flags="--check/--no-check",
    )
    friction: str = setting(
        "Friction terms of rehearsal and check, or none.", ",".join(FRICTION), shown=True
    )

    def __post_init__(self) -> None:
        arguments.positive("--rate", self.rate, "Hz")
        arguments.positive("--seconds", self.seconds, "s")
        if not 0.0 <= self.warm_up < 1.0:
            raise UsageError(f"--warm-up is {self.warm_up}; give 0 (none) to less than 1")


@dataclass(frozen=True, kw_only=True)
class SafetyOptions:
    """Options of `thetahat record`: what a motion and the robot may do."""

    velocity: str | None = setting(
        "Velocity limit, for all joints or V1,V2,… or JOINT=V,…; overrides the file's.",
        None,
        "RAD/S",
        "--max-velocity",
    )
    acceleration: str | None = setting(
        "Acceleration limit, likewise; default: 0.3 s to top speed.",
        None,
        "RAD/S²",
        "--max-acceleration",
    )
    torque: str | None = setting(
        "Torque limit of the motion under the model, likewise; overrides the file's.",
        None,
        "N·M",
        "--max-torque",
    )
    floor: str = setting(
        "Height of the floor that all links keep above, or none; auto: the ground that the robot"
        " stands on.",
        "auto",
        "Z|none|auto",
        shown=True,
    )
    clearance: float = setting(
        "Least distance of links from floor, boxes and each other.", 0.02, "M", shown=True
    )
    keep_out: list[str] | None = setting(
        "Box that all links keep out of; may be repeated.", None, "X,X,Y,Y,Z,Z"
    )
    max_error: float | None = setting(
        "Distance of a joint from where it should be that ends the motion; default: 0.15 rad,"
        " 0.05 m.",
        None,
        "RAD",
    )
    max_temperature: float = setting(
        "Temperature of a motor that ends the motion.", 70.0, "°C", shown=True
    )

    def __post_init__(self) -> None:
        arguments.positive("--clearance", self.clearance, "m")
        arguments.positive("--max-error", self.max_error, "rad")
        arguments.positive("--max-temperature", self.max_temperature, "°C")

    def boxes(self) -> list[np.ndarray]:
        """Return keep-out boxes, (2, 3) each."""
        import numpy as np

        values = [arguments.numbers(text, "--keep-out", 6) for text in self.keep_out or ()]
        return [np.array([each[0::2], each[1::2]]) for each in values]

    def screen(self, robot: Robot) -> Screen:
        """Return what a motion is held against."""
        from thetahat.connect.screening import Screen

        joints = robot.joint_names
        return Screen.of(
            robot,
            velocity=arguments.per_joint(self.velocity, "--max-velocity", joints),
            acceleration=arguments.per_joint(self.acceleration, "--max-acceleration", joints),
            torque=arguments.per_joint(self.torque, "--max-torque", joints),
            floor=arguments.floor(self.floor),
            clearance=self.clearance,
            boxes=self.boxes(),
        )


@dataclass(frozen=True, kw_only=True)
class SimulatorOptions:
    """Options of `thetahat record --via sim`: how the simulated robot runs, and what breaks."""

    fault: str | None = setting(
        "Fault of the simulated robot: blocked, frozen or hot with a joint, or silent.",
        None,
        "KIND:JOINT@S",
    )
    real_time: bool = setting(
        "Let the simulated robot run by the clock.", False, flags="--real-time"
    )
    watchdog: float = setting(
        "Time without a command after which the simulated robot closes its brakes.",
        0.05,
        "S",
        shown=True,
    )

    def __post_init__(self) -> None:
        arguments.positive("--watchdog", self.watchdog, "s")

    def setup(
        self, robot: Robot, simulated: SimulatedOptions, engine: str, rate: float
    ) -> SimulationSetup:
        """Return the simulated robot of --via sim."""
        from thetahat.connect.planted_faults import PlantedFault
        from thetahat.connect.sim_server import Scene, SimulationSetup

        fault = None
        if self.fault is not None:
            fault = PlantedFault.parse(self.fault, robot.joint_names)
        return SimulationSetup(
            robot,
            simulated.differences(),
            engine=engine,
            rate=rate,
            clocked=self.real_time,
            watchdog=self.watchdog,
            scene=Scene(fault=fault),
        )


@with_options(SimulatedOptions, "simulated")
@with_options(SimulatorOptions, "simulator")
@with_options(SafetyOptions, "safety")
@with_options(RecordOptions)
@with_settings("gravity")
def record(
    robot: arguments.Robot,
    motion: MotionFile = None,
    *,
    via: Via = "sim",
    out: Annotated[
        str,
        arguments.output(
            "Log file to write: .csv, .parquet, .npz, or .mcap for Foxglove and ROS 2.",
            "LOG",
        ),
    ],
    salvage: Salvage = False,
    plant: arguments.Plant = None,
    json: arguments.Json = False,
    quiet: arguments.Quiet = False,
    options: RecordOptions,
    safety: SafetyOptions,
    simulator: SimulatorOptions,
    simulated: SimulatedOptions,
    settings: IdentifySettings,
) -> None:
    """Play a motion on a robot, or only watch it, and record a log."""
    began, address = time.monotonic(), Address.parse(via)
    file = robots.find(robot)
    motion_file = None if motion is None else arguments.input_file(motion, "MOTION")
    read = [file] if motion_file is None else [file, motion_file]
    target = arguments.table_file(out, "--out", keep=read, kinds=(*arguments.TABLES, ".mcap"))
    if target.suffix == ".mcap":
        from thetahat.data.formats.write_mcap import require_mcap

        require_mcap()
    if motion is None and options.seconds is None and not salvage:
        raise UsageError("neither MOTION nor --seconds is given; give one to play, or how long")
    address.require_allowed(motion=motion is not None, allowed=options.allow_motion)
    with collect_warnings(quiet=quiet) as warnings, Progress(quiet=quiet) as progress:
        progress.stage("loading the robot")
        from thetahat.connect.record_run import require_new
        from thetahat.excite.trajectory import Motion
        from thetahat.model.io.load import load

        nominal = load(file, gravity=settings.gravity)
        if salvage:
            data = _salvaged(nominal, target)
        else:
            require_new(target, resume=options.resume)
            played = None if motion_file is None else Motion.load(motion_file, nominal)
            setup = simulator.setup(nominal, simulated, arguments.plant(plant), options.rate)
            setup = placed(setup, played, target, resume=options.resume)
            data = _recorded(nominal, played, setup, address, options, safety, target, progress)
        data["warnings"] = list(warnings)
    emit(as_text(data) if json else _text(data, time.monotonic() - began))
    if not data["complete"]:
        _end(data, target)


def _end(data: Fields, target: Path) -> None:
    """End with the sentence and the exit code of a recording that was stopped."""
    sentence = (
        f"the motion was stopped and the robot is held: {data['ended']}. {target} holds"
        f" {data['seconds']:.1f} s; go on with --resume"
    )
    if data["ended"] == "the operator stopped it":
        say(sentence)
        raise SystemExit(INTERRUPTED)
    raise RefusedForSafety(sentence)


def placed(
    setup: SimulationSetup, motion: Motion | None, target: Path, *, resume: bool
) -> SimulationSetup:
    """Put a simulated robot where the motion begins, or where its recording ended; one that is only
    watched runs by the clock.
    """
    from thetahat.connect.recording_file import read_recording

    if motion is None:
        return replace(setup, clocked=True)
    start = read_recording(target, setup.robot).q[-1] if resume else motion.q[0]
    return replace(setup, scene=replace(setup.scene, start=start))


def _recorded(
    robot: Robot,
    motion: Motion | None,
    setup: SimulationSetup,
    address: Address,
    options: RecordOptions,
    safety: SafetyOptions,
    target: Path,
    progress: Progress,
) -> Fields:
    """Screen, rehearse, play, check; the answer as plain data, schema thetahat/record/1."""
    from thetahat.connect.record_run import RecordRun, check_log
    from thetahat.connect.rehearsal import rehearse

    terms, screen, rehearsal = friction_terms(options.friction), None, None
    margins: list[str] = []
    if motion is not None:
        progress.stage("screening the motion")
        screen = safety.screen(robot)
        margins = [str(margin) for margin in screen.check(motion)]
        if options.rehearse:
            progress.stage("rehearsing in simulation")
            rehearsal = rehearse(
                robot, motion, rate=options.rate, engine=setup.engine, friction=terms
            )
            if not rehearsal.passed:
                raise RefusedForSafety(
                    f"the motion is not played: {rehearsal}; design a richer or longer one with"
                    " `thetahat excite`, or add --no-rehearse"
                )
    progress.stage("connecting")
    connection = address.open(setup, "" if motion is None else "position")
    run = RecordRun(robot, connection, motion, screen, target, _run_settings(options, safety))
    recording = run.run(progress.rows("recording"))
    verdict = None
    if options.check and recording.complete and motion is not None:
        progress.stage("identifying the log")
        verdict = check_log(robot, target, terms)
    return {
        "schema": SCHEMA,
        "file": str(target),
        "via": address.kind,
        "rows": len(recording.recorded.t),
        "seconds": recording.recorded.seconds,
        "rate": options.rate,
        "joints": list(robot.joint_names),
        "complete": recording.complete,
        "ended": recording.ended,
        "missed": recording.missed,
        "limits": margins,
        "rehearsal": None if rehearsal is None else str(rehearsal),
        "verdict": None if verdict is None else verdict.as_data(),
        "alarms": list(recording.alarms),
        "notes": [] if screen is None else list(screen.limits.notes),
    }


def _run_settings(options: RecordOptions, safety: SafetyOptions) -> RecordSettings:
    from thetahat.connect.record_run import RecordSettings
    from thetahat.connect.safety_monitor import SafetyLimits

    return RecordSettings(
        rate=options.rate,
        warm_up=options.warm_up,
        seconds=options.seconds,
        resume=options.resume,
        safety=SafetyLimits(safety.max_error, safety.max_temperature),
    )


def _salvaged(robot: Robot, target: Path) -> Fields:
    """Write what a journal holds; the answer as plain data."""
    from thetahat.connect.recording_file import read_recording, write_recording

    recorded = read_recording(target, robot)
    write_recording(recorded, target, robot)
    return {
        "schema": SCHEMA,
        "file": str(target),
        "via": None,
        "rows": len(recorded.t),
        "seconds": recorded.seconds,
        "rate": None,
        "joints": list(robot.joint_names),
        "complete": True,
        "ended": "salvaged from an interrupted recording",
        "missed": 0,
        "limits": [],
        "rehearsal": None,
        "verdict": None,
        "alarms": [],
        "notes": [],
    }


def _text(data: Fields, seconds: float) -> str:
    lines = [f"  {text}" for text in data["limits"]]
    if data["rehearsal"]:
        lines.append(f"  {data['rehearsal']}")
    lines += [f"ALARM: {text}" for text in data["alarms"]]
    lines.append(
        f"Wrote {data['file']} ({data['rows']:,} rows, {data['seconds']:.1f} s) in"
        f" {seconds:.1f} s: {data['ended']}."
    )
    verdict = data["verdict"]
    if verdict is not None:
        enough = "does not suffice" if verdict["level"] == "not usable" else "suffices"
        lines.append(f"The log {enough}: an identification is {verdict['level']}.")
        lines += [f"  - {reason}" for reason in verdict["reasons"]]
        lines += [f"  next: {step}" for step in verdict["next_steps"]]
    return "\n".join(lines) + "\n"
