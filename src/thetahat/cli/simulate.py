"""`thetahat simulate ROBOT TRAJECTORY --out LOG`: the log that a robot with friction, noise and
delay would write.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thetahat import robots
from thetahat.cli import arguments
from thetahat.cli.arguments import option
from thetahat.cli.exit_status import collect_warnings, emit
from thetahat.cli.progress import Progress
from thetahat.cli.settings_options import with_options, with_settings
from thetahat.cli.standing import (
    FloatingOptions,
    StandingOptions,
    floating_robot,
    simulate_standing,
)
from thetahat.errors import UsageError
from thetahat.files import as_text
from thetahat.pipeline.settings import IdentifySettings, setting

if TYPE_CHECKING:
    from thetahat.model.robot import Robot
    from thetahat.plant.realism import Payload, Realism
    from thetahat.plant.simulate import Recording
    from thetahat.plant.standing_plant import StandingRecording

SCHEMA = "thetahat/simulate/1"
ENCODER = 6.283185307179586 / 2**19  # [rad] of a count, where nothing is said
TORQUE_NOISE, LEAST_NOISE = 0.003, 0.05  # of a joint's effort limit; [N·m or N] where there is none
DELAY = 1e-3  # [s] of a command


@dataclass(frozen=True, kw_only=True)
class SimulateOptions:
    """Options of `thetahat simulate`: friction, sensors and timing of the simulated robot."""

    rate: float = setting("Rate of the controller and of the log.", 1000.0, "HZ", shown=True)
    seed: int = setting("Random seed.", 0, "N", shown=True)
    ideal: bool = setting(
        "No noise, quantisation or delay unless set by an option; friction stays.",
        False,
        flags="--ideal",
    )
    viscous: float | None = setting(
        "Viscous friction of all joints; overrides the file's.", None, "N·M·S/RAD"
    )
    coulomb: float | None = setting(
        "Coulomb friction of all joints; overrides the file's.", None, "N·M"
    )
    stribeck: float | None = setting("Breakaway torque above Coulomb friction.", None, "N·M")
    armature: float | None = setting(
        "Rotor inertia of all joints; overrides the file's.", None, "KG·M²"
    )
    encoder: float | None = setting("Encoder resolution; default: 2π/2¹⁹.", None, "RAD")
    encoder_noise: float = setting("Standard deviation of position noise.", 0.0, "RAD")
    torque_noise: float | None = setting(
        "Standard deviation of torque noise; default: 0.3 % of the effort limit.", None, "N·M"
    )
    torque_bias: float = setting("Bias of measured torques.", 0.0, "N·M")
    delay: float | None = setting("Actuation delay; default: 1 ms.", None, "S", span=(0.0, 10.0))
    sensor_delay: float = setting("Delay of the torque measurement.", 0.0, "S", span=(0.0, 10.0))
    jitter: float = setting("Jitter of the control period.", 0.0, "S", span=(0.0, 10.0))
    saturation: bool = setting(
        "Saturate torques at the file's effort limits.", False, flags="--saturation"
    )
    payload: str | None = setting(
        "Point mass attached to a link, optionally from time S.", None, "LINK:KG,X,Y,Z[@S]"
    )

    def realism(self, robot: Robot) -> Realism:
        """Return the imperfections of the simulated robot."""
        from thetahat.plant.realism import DriveModel, Realism, SensorModel

        encoder, delay = (0.0, 0.0) if self.ideal else (ENCODER, DELAY)
        return Realism(
            DriveModel(
                viscous=self.viscous,
                coulomb=self.coulomb,
                stribeck=self.stribeck,
                armature=self.armature,
            ),
            SensorModel(
                encoder_resolution=encoder if self.encoder is None else self.encoder,
                encoder_noise=self.encoder_noise,
                torque_noise=_torque_noise(robot, self.torque_noise, ideal=self.ideal),
                torque_bias=self.torque_bias,
                torque_delay=self.sensor_delay,
            ),
            command_delay=delay if self.delay is None else self.delay,
            jitter=self.jitter,
            saturation=self.saturation,
            payload=None if self.payload is None else read_payload(self.payload),
            log_speed=False,
        )


@with_options(SimulateOptions)
@with_options(FloatingOptions, "floating")
@with_options(StandingOptions, "standing")
@with_settings("gravity")
def simulate(
    robot: arguments.Robot,
    trajectory: Annotated[
        str | None,
        typer.Argument(
            metavar="TRAJECTORY",
            help=(
                "Motion file, as written by `thetahat excite`; with --floating-base a sway is made"
                " up where none is given."
            ),
            show_default=False,
        ),
    ] = None,
    *,
    out: Annotated[str, arguments.output("Log file to write: .csv, .parquet or .npz.", "LOG")],
    json: arguments.Json = False,
    quiet: arguments.Quiet = False,
    plant: arguments.Plant = None,
    truth: Annotated[
        str | None,
        option("Robot file to simulate; the controller still uses ROBOT.", metavar="ROBOT"),
    ] = None,
    options: SimulateOptions,
    floating: FloatingOptions,
    standing: StandingOptions,
    settings: IdentifySettings,
) -> None:
    """Simulate a robot that tracks a motion, and write its log."""
    began = time.monotonic()
    file = robots.find(robot)
    true_file = file if truth is None else robots.find(truth)
    motion_file = _motion_file(trajectory, floating)
    read = [each for each in (file, motion_file, true_file) if each is not None]
    target = arguments.table_file(out, "--out", keep=read)
    engine = arguments.plant(plant)
    with collect_warnings(quiet=quiet) as warnings, Progress(quiet=quiet) as progress:
        progress.stage("loading the robot")
        nominal, simulated = (_loaded(each, settings, floating) for each in (file, true_file))
        if simulated.joint_names != nominal.joint_names:
            raise UsageError(
                f"--truth {true_file.name} has other joints than {file.name}; give a variant of the"
                " same robot"
            )
        if floating.floating_base:
            if engine != "mujoco":
                raise UsageError("--floating-base stands on the ground of MuJoCo: --plant mujoco")
            data = _stand(nominal, simulated, motion_file, options, standing, target, progress)
            data["warnings"] = list(warnings)
        else:
            assert motion_file is not None
            played = _simulate(nominal, simulated, motion_file, engine, options, progress)
            played.save(target)
            data = describe(
                simulated, played, options, engine=engine, file=target, warnings=warnings
            )
    emit(as_text(data) if json else _text(data, time.monotonic() - began))


def _motion_file(trajectory: str | None, floating: FloatingOptions) -> Path | None:
    """The file of the motion; none where a sway is to be made up."""
    if trajectory is not None:
        return arguments.input_file(trajectory, "TRAJECTORY")
    if not floating.floating_base:
        raise UsageError("no TRAJECTORY is given; make one with `thetahat excite`")
    return None


def _loaded(file: Path, settings: IdentifySettings, floating: FloatingOptions) -> Robot:
    """A robot, on its feet where its base floats."""
    from thetahat.model.io.load import load

    if floating.floating_base:
        return floating_robot(file, settings.gravity, floating.contacts)
    return load(file, gravity=settings.gravity)


def _stand(
    nominal: Robot,
    simulated: Robot,
    motion_file: Path | None,
    options: SimulateOptions,
    standing: StandingOptions,
    target: Path,
    progress: Progress,
) -> dict[str, Any]:
    """Let a floating robot stand and sway, write its log, and describe it."""
    recording = simulate_standing(
        nominal,
        simulated,
        motion_file,
        options.realism(simulated),
        standing,
        ideal=options.ideal,
        rate=options.rate,
        seed=options.seed,
        progress=progress,
    )
    recording.without_wrenches(not standing.force_sensors).save(target)
    return describe(simulated, recording, options, engine="mujoco", file=target, warnings=[])


def _simulate(
    nominal: Robot,
    simulated: Robot,
    motion: Path,
    engine: str,
    options: SimulateOptions,
    progress: Progress,
) -> Recording:
    """Play a motion on the simulated robot."""
    from thetahat.excite.trajectory import Motion
    from thetahat.plant import plant as plants
    from thetahat.plant.simulate import simulate as run
    from thetahat.plant.tracking import Tracking

    realism = options.realism(simulated)
    # a driver's inner loop overcomes friction, or small joints would stick and show nothing
    believed = realism.applied(nominal)
    kind = plants.MujocoPlant if engine == "mujoco" else plants.OwnPlant
    return run(
        kind(simulated, realism=realism),
        Motion.load(motion, nominal),
        rate=options.rate,
        seed=options.seed,
        controller=Tracking(believed),
        progress=progress.rows(f"simulating ({engine})"),
    )


def _torque_noise(robot: Robot, given: float | None, *, ideal: bool) -> float | list[float]:
    if given is not None:
        return given
    if ideal:
        return 0.0
    efforts = [node.limits.effort for node in robot.tree.independent for _ in range(node.kind.nv)]
    return [TORQUE_NOISE * effort if effort and effort < 1e6 else LEAST_NOISE for effort in efforts]


def read_payload(text: str) -> Payload:
    """A point mass from `LINK:KG,X,Y,Z[@S]`."""
    from thetahat.plant.realism import Payload

    link, colon, rest = text.rpartition(":")
    numbers, _, moment = rest.partition("@")
    if not colon:
        raise UsageError(
            f"--payload is {text!r}; give LINK:kg,x,y,z and, where it comes later, @seconds"
        )
    mass, x, y, z = arguments.numbers(numbers, "--payload", 4)
    (when,) = arguments.numbers(moment, "--payload", 1) if moment else (0.0,)
    return Payload(link, mass, (x, y, z), time=when)


def describe(
    robot: Robot,
    recording: Recording | StandingRecording,
    options: SimulateOptions,
    *,
    engine: str,
    file: Path,
    warnings: list[str],
) -> dict[str, Any]:
    """Return the answer as plain data, schema thetahat/simulate/1."""
    import numpy as np

    realism, tree = options.realism(robot), robot.tree
    wanted = recording.wanted[0] if isinstance(recording.wanted, tuple) else recording.wanted
    error = recording.q - wanted
    joints = [node for node in tree.independent if node.kind.nq == 1]
    return {
        "schema": SCHEMA,
        "file": str(file),
        "plant": engine,
        "seed": options.seed,
        "rows": len(recording.t),
        "rate": options.rate,
        "joints": [
            {
                "name": node.name,
                "tracking_rms": float(np.sqrt(np.mean(error[:, tree.q_index[node.name]] ** 2))),
                "torque_peak": float(np.max(np.abs(recording.tau[:, tree.v_index[node.name]]))),
            }
            for node in joints
        ],
        "encoder_resolution": realism.sensors.encoder_resolution,
        "command_delay": realism.command_delay,
        "warnings": list(warnings),
    }


def _text(data: dict[str, Any], seconds: float) -> str:
    width = max(len(joint["name"]) for joint in data["joints"])
    lines = [
        f"{data['rows']:,} rows at {data['rate']:g} Hz by the {data['plant']} plant, seed"
        f" {data['seed']}."
    ]
    for joint in data["joints"]:
        lines.append(
            f"  {joint['name']:{width}}  off its course by {joint['tracking_rms']:.2g} (RMS),"
            f" torque up to {joint['torque_peak']:.3g}"
        )
    lines.append(f"Wrote {data['file']} in {seconds:.1f} s; next: thetahat identify.")
    return "\n".join(lines) + "\n"
