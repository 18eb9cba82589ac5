"""`thetahat control ROBOT --via sim`: the online loop on a robot: identify, gate, control, fall
back.
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from thetahat import robots
from thetahat.cli import arguments
from thetahat.cli.arguments import option
from thetahat.cli.exit_status import collect_warnings, emit, say
from thetahat.cli.progress import Progress
from thetahat.cli.settings_options import friction_terms, with_options, with_settings
from thetahat.cli.simulate import read_payload
from thetahat.cli.watch import PageOptions, watched
from thetahat.connect.open_connection import FORMS, Address
from thetahat.errors import RefusedForSafety, UsageError
from thetahat.files import (
    as_text,
    make_folder,
    require_folder,
    write_atomically,
    written_together,
)
from thetahat.pipeline.settings import FRICTION, IdentifySettings, setting

if TYPE_CHECKING:
    from thetahat.connect.connection import Connection
    from thetahat.connect.control_run import ControlResult, ControlRun, ControlSettings
    from thetahat.connect.sim import PlantedDifferences, SimulatedRobot
    from thetahat.excite.trajectories import Moves
    from thetahat.excite.trajectory import Motion, Trajectory
    from thetahat.model.robot import Robot
    from thetahat.report.text import Data

FIRST = 5.0  # [s] for the first sample
FILES = ("summary.json", "report.html", "run.journal")
DESIGNED, STARTS = 10.0, 2  # [s] of a motion that is designed, and initial motions tried
DESIGN_TIME = 60.0  # [s]


@dataclass(frozen=True, kw_only=True)
class ControlOptions:
    """Options of `thetahat control`: the loop and its identifier."""

    duration: float = setting("Duration of the run.", 60.0, "S", shown=True)
    rate: float = setting("Rate of the control loop.", 1000.0, "HZ", shown=True)
    updates: float | None = setting(
        "Rate of identification updates, one sample each; default: 3 Hz, three samples each.",
        None,
        "HZ",
    )
    window: int | None = setting(
        "Buffer size, in samples; default: what fills 16.7 s, of which 50 open the gate.",
        None,
        "N",
    )
    threshold: float = setting("R² at which the gate opens.", 0.95, "R2", shown=True)
    friction: str = setting(
        "Friction terms to identify, or none.", ",".join(FRICTION), "TERMS", shown=True
    )
    payload_link: str | None = setting(
        "Link that may carry a payload; its mass is reported.", None, "LINK"
    )
    allow_motion: bool = setting(
        "Allow a robot that is not simulated to be moved.", False, flags="--allow-motion"
    )

    def __post_init__(self) -> None:
        for name, unit in (("duration", "s"), ("rate", "Hz"), ("updates", "Hz")):
            if getattr(self, name) is not None:
                arguments.positive(f"--{name}", getattr(self, name), unit)
        if self.window is not None:
            arguments.whole_number("--window", self.window, 1)
        if not 0.0 <= self.threshold <= 1.0:
            raise UsageError(f"--threshold is {self.threshold}; give an R² from 0 to 1")

    def settings(self) -> ControlSettings:
        """Return the settings of the run."""
        from thetahat.connect.control_run import ControlSettings

        return ControlSettings(
            rate=self.rate,
            duration=self.duration,
            updates=self.updates,
            window=self.window,
            threshold=self.threshold,
            friction=friction_terms(self.friction),
            payload_link=self.payload_link,
        )


@dataclass(frozen=True, kw_only=True)
class SimulatedOptions:
    """Options of `thetahat control --via sim`: how the simulated robot differs from its file."""

    mass: float = setting(
        "Masses of the simulated robot, relative to the file.", 1.25, "FACTOR", shown=True
    )
    spread: float = setting(
        "Random distortion of every simulated body's mass distribution.", 0.0, "PART", shown=True
    )
    coulomb: float | None = setting(
        "Dry friction of the simulated joints; default: 4 % of their torque.", None, "N·M"
    )
    payload: str | None = setting(
        "Point mass attached to a simulated link, optionally from time S.",
        None,
        "LINK:KG,X,Y,Z[@S]",
    )
    seed: int = setting("Random seed of the simulated robot and its noise.", 0, "N", shown=True)

    def __post_init__(self) -> None:
        arguments.positive("--mass", self.mass, "1")
        arguments.whole_number("--seed", self.seed)
        if not 0.0 <= self.spread < 0.5:
            raise UsageError(f"--spread is {self.spread}; give a number from 0 to less than 0.5")

    def differences(self) -> PlantedDifferences:
        """Return how the simulated robot differs from its file."""
        from thetahat.connect.sim import PlantedDifferences

        payload = None if self.payload is None else read_payload(self.payload)
        return PlantedDifferences(self.mass, self.spread, self.coulomb, payload, self.seed)


@with_options(PageOptions, "page")
@with_options(SimulatedOptions, "simulated")
@with_options(ControlOptions)
@with_settings("gravity")
def control(
    robot: arguments.Robot,
    *,
    via: Annotated[
        str,
        option(f"Connection, which must take torques: {FORMS}.", metavar="NAME", show_default=True),
    ] = "sim",
    out: Annotated[
        str,
        arguments.output(
            "Folder for summary.json, report.html, run.journal and the identified robot file;"
            " created if needed.",
            "DIR",
        ),
    ],
    motion: Annotated[
        str | None,
        option(
            "Motion file, as written by `thetahat excite`, repeated; default: designed, 10 s.",
            metavar="TRAJECTORY",
        ),
    ] = None,
    plant: arguments.Plant = None,
    watch: Annotated[bool, option("Serve the live page during the run.", "--watch")] = False,
    json: arguments.Json = False,
    quiet: arguments.Quiet = False,
    options: ControlOptions,
    simulated: SimulatedOptions,
    page: PageOptions,
    settings: IdentifySettings,
) -> None:
    """Control a robot while it is identified: nominal model first, then the identified one."""
    began, file, folder = time.monotonic(), robots.find(robot), Path(out)
    _require_allowed(via, options, watch=watch)
    engine = arguments.plant(plant)
    motion_file = None if motion is None else arguments.input_file(motion, "--motion")
    require_folder(folder, [folder / name for name in FILES])
    with collect_warnings(quiet=quiet) as warnings, Progress(quiet=quiet) as progress:
        progress.stage("loading the robot")
        from thetahat.control.journal import Journal
        from thetahat.model.io.load import load

        nominal, wanted = load(file, gravity=settings.gravity), options.settings()
        played = _motion(nominal, motion_file, options, simulated.seed, progress)
        run = _made(via, nominal, played, wanted, simulated, engine)
        with closing(run):
            make_folder(folder)  # now that nothing is left to be refused
            with Journal(folder / "run.journal") as journal:
                run.online.write_to(journal)
                result = (
                    watched(run, page) if watch else run.run(progress.rows(f"controlling ({via})"))
                )
        progress.stage("writing")
        data = write(result, nominal, folder, via=via, rate=options.rate, seed=simulated.seed)
        data["warnings"] = list(warnings)
    emit(as_text(data) if json else _text(data, time.monotonic() - began))
    for sentence in () if quiet else data["assumed"]:
        say(sentence, "warning")
    if run.stopped:
        raise RefusedForSafety(f"the run was ended and the robot is held: {run.stopped}")


def _require_allowed(via: str, options: ControlOptions, *, watch: bool) -> None:
    """Refuse a connection that there is not, or whose robot may not be moved."""
    Address.parse(via).require_allowed(motion=True, allowed=options.allow_motion)
    if watch and via != "sim":
        raise UsageError(
            "--watch paces a robot that --via sim simulates, no other; leave it out, and watch with"
            " `thetahat watch listen --via` where the robot takes a second reader"
        )


def _made(
    via: str,
    nominal: Robot,
    motion: Motion | Trajectory,
    wanted: ControlSettings,
    simulated: SimulatedOptions,
    engine: str,
) -> ControlRun:
    """The run, on a robot that is simulated here or connected."""
    from thetahat.connect.control_run import ControlRun

    if via != "sim":
        connection, way = connected(Address.parse(via), nominal, motion, wanted.rate)
        return ControlRun(nominal, connection, motion, wanted, approach=way)
    robot = _simulated(nominal, simulated, engine, wanted.rate)
    run = ControlRun(nominal, robot, motion, wanted)
    robot.start(run.wanted(0.0)[0])
    return run


def _motion(
    robot: Robot, file: Path | None, options: ControlOptions, seed: int, progress: Progress
) -> Motion | Trajectory:
    """The motion of the file, or one that is designed."""
    if file is not None:
        from thetahat.excite.trajectory import Motion

        return Motion.load(file, robot)
    from thetahat.excite.design import design

    excited = robot.with_drive(**dict.fromkeys(friction_terms(options.friction), True))
    return design(
        excited,
        duration=DESIGNED,
        starts=STARTS,
        seconds=DESIGN_TIME,
        seed=seed,
        progress=progress.share("designing the motion"),
    ).trajectory


def _simulated(
    nominal: Robot, simulated: SimulatedOptions, engine: str, rate: float
) -> SimulatedRobot:
    from thetahat.connect.sim import SimulatedRobot

    return SimulatedRobot.of(nominal, simulated.differences(), engine=engine, rate=rate)


def connected(
    address: Address, robot: Robot, motion: Motion | Trajectory, rate: float
) -> tuple[Connection, Moves]:
    """Connect to a robot for torques; also the way to the motion, which is screened with it."""
    from thetahat.connect.connection_kit import newest
    from thetahat.connect.playback import first_position, ramp
    from thetahat.connect.record_run import RAMP_SHARE
    from thetahat.connect.screening import Screen
    from thetahat.connect.sim_server import SimulationSetup

    screen = Screen.of(robot)
    screen.check(motion)
    setup = SimulationSetup(robot, rate=rate, mode="torque", clocked=True)
    connection = address.open(setup, "torque")
    try:
        sample = newest(connection, FIRST)
        if sample is None or not sample.is_valid(robot.nv):
            raise RefusedForSafety(
                f"no sample that can be believed came within {FIRST:g} s; nothing was commanded"
            )
        to = first_position(motion, 0.0, robot)
        way = ramp(robot, sample.q, to, screen.limits.velocity, RAMP_SHARE)
        screen.check(way, "the straight way to the start (move the robot nearer to it)")
    except BaseException:
        connection.close()
        raise
    return connection, way


@written_together()
def write(
    result: ControlResult,
    nominal: Robot,
    folder: Path,
    *,
    via: str,
    rate: float,
    seed: int,
) -> dict[str, Any]:
    """Write the identified robot, the page, and summary.json last; return the summary."""
    from thetahat.connect import control_page
    from thetahat.model.io.save import save
    from thetahat.report.page import render

    data = control_page.describe(result, via=via, rate=rate, seed=seed)
    source = Path(nominal.source) if nominal.source else Path("robot.urdf")
    files = {"report": "report.html", "journal": "run.journal", "robot": None, "drive": None}
    if result.tracking.identified.any():
        saved = save(result.robot, folder / f"{source.stem}_identified{source.suffix}")
        files["robot"] = saved.path.name
        files["drive"] = None if saved.drive_file is None else saved.drive_file.name
    data |= {"files": files}
    title = f"Control of {nominal.name} via {via}, seed {seed}"
    page = render(title, control_page.sections(result, data), subtitle=control_page.story(data))
    write_atomically(folder / "report.html", page)
    write_atomically(folder / "summary.json", as_text(data))
    return data | {"folder": str(folder)}


def _text(data: Data, seconds: float) -> str:
    from thetahat.connect.control_page import story

    width = max(len(joint["name"]) for joint in data["joints"])
    lines = [story(data)]
    for joint in data["joints"]:
        before, after = joint["tracking_before"], joint["tracking_after"]
        then = "" if after is None else f", {1e3 * after:.3g} with the identified one"
        lines.append(
            f"  {joint['name']:{width}}  RMS tracking error [m{joint['unit']}]:"
            f" {'–' if before is None else f'{1e3 * before:.3g}'} with the nominal model{then}"
        )
    alarms = data["counts"].get("alarm", 0)
    lines.append(f"{alarms} alarms, {len(data['gate']['closings'])} closings.")
    names = ", ".join(name for name in data["files"].values() if name)
    lines.append(f"Wrote {names} and summary.json to {data['folder']} in {seconds:.0f} s.")
    return "\n".join(lines) + "\n"
