"""`thetahat simulate ROBOT TRAJECTORY --out LOG`: the log that a robot with friction, noise and
delay would write.
"""

from __future__ import annotations

import json as json_format
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thetahat.cli import arguments
from thetahat.cli.arguments import option
from thetahat.cli.exit_status import emit, heard
from thetahat.cli.progress import Progress
from thetahat.errors import UsageError

if TYPE_CHECKING:
    from thetahat.model.robot import Robot
    from thetahat.plant.realism import Payload, Realism

SCHEMA = "thetahat/simulate/1"
ENCODER = 6.283185307179586 / 2**19  # [rad] of a count, where nothing is said
TORQUE_NOISE, LEAST_NOISE = 0.003, 0.05  # of a joint's effort limit; [N·m or N] where there is none
DELAY = 1e-3  # [s] of a command


def simulate(
    robot: arguments.Robot,
    trajectory: Annotated[
        str,
        typer.Argument(
            metavar="TRAJECTORY",
            help="A motion as `thetahat excite` writes it.",
            show_default=False,
        ),
    ],
    *,
    out: Annotated[
        str, option("File for the log: .csv, .parquet or .npz.", "--out", "-o", metavar="LOG")
    ],
    json: arguments.Json = False,
    quiet: arguments.Quiet = False,
    plant: arguments.Plant = None,
    truth: Annotated[
        str | None,
        option(
            "Robot file of the simulated robot, where its controller believes another.",
            metavar="ROBOT",
        ),
    ] = None,
    rate: Annotated[
        float, option("Of controller and log.", metavar="HZ", show_default=True)
    ] = 1000.0,
    seed: Annotated[
        int, option("Of everything left to chance.", metavar="N", show_default=True)
    ] = 0,
    ideal: Annotated[
        bool, option("No noise, quantisation or delay unless asked for; friction stays.", "--ideal")
    ] = False,
    viscous: Annotated[
        float | None, option("Of all joints, in place of the file's.", metavar="N·M·S/RAD")
    ] = None,
    coulomb: Annotated[
        float | None, option("Of all joints, in place of the file's.", metavar="N·M")
    ] = None,
    stribeck: Annotated[
        float | None, option("What breakaway needs beside Coulomb friction.", metavar="N·M")
    ] = None,
    armature: Annotated[
        float | None,
        option("Rotor inertia of all joints, in place of the file's.", metavar="KG·M²"),
    ] = None,
    encoder: Annotated[
        float | None, option("Resolution of the encoders; default 2π/2¹⁹.", metavar="RAD")
    ] = None,
    encoder_noise: Annotated[float, option("Of positions.", metavar="RAD")] = 0.0,
    torque_noise: Annotated[
        float | None, option("Of torques; default 0.3 % of the effort limit.", metavar="N·M")
    ] = None,
    torque_bias: Annotated[float, option("Of torques.", metavar="N·M")] = 0.0,
    delay: Annotated[
        float | None, option("From a command to its torque; default 1 ms.", metavar="S")
    ] = None,
    sensor_delay: Annotated[float, option("Of measured torques.", metavar="S")] = 0.0,
    jitter: Annotated[float, option("Of the control period.", metavar="S")] = 0.0,
    saturation: Annotated[
        bool, option("Cut torques at the file's effort limits.", "--saturation")
    ] = False,
    payload: Annotated[
        str | None, option("A point mass on a link, from a time on.", metavar="LINK:KG,X,Y,Z[@S]")
    ] = None,
    gravity: arguments.Gravity = None,
) -> None:
    """Simulate a robot that plays a motion, and write its log."""
    began = time.monotonic()
    file, vector = arguments.robot_file(robot), arguments.gravity(gravity)
    true_file = None if truth is None else arguments.robot_file(truth)
    motion_file = arguments.input_file(trajectory, "TRAJECTORY")
    target = arguments.table_file(
        out, "--out", keep=[file, motion_file, *([true_file] if true_file else [])]
    )
    engine = arguments.plant(plant)
    with heard(quiet=quiet) as warnings, Progress(quiet=quiet) as progress:
        progress.stage("loading the robot")
        from thetahat.excite.trajectory import Motion
        from thetahat.model.io.load import load
        from thetahat.plant import plant as plants
        from thetahat.plant.realism import DriveModel, Realism, SensorModel
        from thetahat.plant.simulate import simulate as run
        from thetahat.plant.tracking import Tracking

        nominal = load(file, gravity=vector)
        simulated = nominal if true_file is None else load(true_file, gravity=vector)
        if simulated.joint_names != nominal.joint_names:
            raise UsageError(
                f"--truth {true_file.name} has other joints than {file.name}; give a variant of the"
                " same robot"
            )
        realism = Realism(
            DriveModel(viscous=viscous, coulomb=coulomb, stribeck=stribeck, armature=armature),
            SensorModel(
                encoder_resolution=(0.0 if ideal else ENCODER) if encoder is None else encoder,
                encoder_noise=encoder_noise,
                torque_noise=_torque_noise(simulated, torque_noise, ideal=ideal),
                torque_bias=torque_bias,
                torque_delay=sensor_delay,
            ),
            command_delay=(0.0 if ideal else DELAY) if delay is None else delay,
            jitter=jitter,
            saturation=saturation,
            payload=None if payload is None else _payload(payload),
            log_speed=False,
        )
        motion = Motion.load(motion_file, nominal)
        believed = realism.applied(
            nominal
        )  # a driver's inner loop overcomes friction, or small joints would stick and show nothing
        kind = plants.MujocoPlant if engine == "mujoco" else plants.OwnPlant
        told_rows = progress.rows(f"simulating ({engine})")
        recording = run(
            kind(simulated, realism=realism),
            motion,
            rate=rate,
            seed=seed,
            controller=Tracking(believed),
            progress=told_rows,
        )
        recording.save(target)
    told = describe(
        simulated,
        recording,
        realism,
        engine=engine,
        rate=rate,
        seed=seed,
        file=target,
        warnings=warnings,
    )
    emit(
        json_format.dumps(told, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
        if json
        else _text(told, time.monotonic() - began)
    )


def _torque_noise(robot: Robot, given: float | None, *, ideal: bool) -> float | list[float]:
    if given is not None:
        return given
    if ideal:
        return 0.0
    efforts = [node.limits.effort for node in robot.tree.independent for _ in range(node.kind.nv)]
    return [TORQUE_NOISE * effort if effort and effort < 1e6 else LEAST_NOISE for effort in efforts]


def _payload(text: str) -> Payload:
    from thetahat.plant.realism import Payload

    link, colon, rest = text.rpartition(":")
    numbers, _, moment = rest.partition("@")
    if not colon:
        raise UsageError(
            f"--payload is {text!r}; give LINK:kg,x,y,z and, where it comes later, @seconds"
        )
    mass, *com = arguments.numbers(numbers, "--payload", 4)
    (when,) = arguments.numbers(moment, "--payload", 1) if moment else (0.0,)
    return Payload(link, mass, tuple(com), time=when)


def describe(
    robot: Robot,
    recording: Any,
    realism: Realism,
    *,
    engine: str,
    rate: float,
    seed: int,
    file: Path,
    warnings: list[str],
) -> dict[str, Any]:
    """The answer as plain data, schema thetahat/simulate/1."""
    import numpy as np

    error = recording.q - recording.wanted[0]
    return {
        "schema": SCHEMA,
        "file": str(file),
        "plant": engine,
        "seed": seed,
        "rows": len(recording.t),
        "rate": rate,
        "joints": [
            {
                "name": name,
                "tracking_rms": float(np.sqrt(np.mean(e**2))),
                "torque_peak": float(np.max(np.abs(u))),
            }
            for name, e, u in zip(robot.joint_names, error.T, recording.tau.T, strict=False)
        ],
        "encoder_resolution": realism.sensors.encoder_resolution,
        "command_delay": realism.command_delay,
        "warnings": list(warnings),
    }


def _text(told: dict[str, Any], seconds: float) -> str:
    width = max(len(joint["name"]) for joint in told["joints"])
    lines = [
        f"{told['rows']:,} rows at {told['rate']:g} Hz by the {told['plant']} plant, seed"
        f" {told['seed']}."
    ]
    for joint in told["joints"]:
        lines.append(
            f"  {joint['name']:{width}}  off its course by {joint['tracking_rms']:.2g} (RMS),"
            f" torque up to {joint['torque_peak']:.3g}"
        )
    lines.append(f"Wrote {told['file']} in {seconds:.1f} s; next: thetahat identify.")
    return "\n".join(lines) + "\n"
