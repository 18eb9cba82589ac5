"""`simulate` and `excite` with a floating base: a robot that stands on its feet and sways."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from thetahat.errors import UsageError
from thetahat.pipeline.settings import setting

if TYPE_CHECKING:
    from thetahat.cli.progress import Progress
    from thetahat.model.robot import Robot
    from thetahat.plant.realism import Realism
    from thetahat.plant.standing_plant import StandingRecording
    from thetahat.plant.sway_design import StandingDesign

EXCITE_SCHEMA = "thetahat/standing-motion/1"
SWAY = 10.0  # [s] of a motion that is made up


@dataclass(frozen=True, kw_only=True)
class FloatingOptions:
    """The options that say what a floating robot stands on."""

    floating_base: bool = setting(
        "Free the root link: the robot stands on the feet of --contacts.",
        False,
        flags="--floating-base",
    )
    contacts: str | None = setting(
        "Links that touch the ground, with --floating-base; at the end of six joints or more a flat"
        " foot, else a point.",
        None,
        "LINK,LINK,…",
    )

    def __post_init__(self) -> None:
        if self.contacts is not None and not self.floating_base:
            raise UsageError("--contacts needs --floating-base: a fixed base stands on no feet")


@dataclass(frozen=True, kw_only=True)
class StandingOptions:
    """Options of `thetahat simulate --floating-base`."""

    sway: float = setting(
        "Size of the sway where no TRAJECTORY is given; 1: 4 % of the height and 0.1 rad.",
        1.0,
        "SIZE",
        shown=True,
        span=(0.0, 10.0),
    )
    duration: float = setting(
        "Duration of the sway where no TRAJECTORY is given.", SWAY, "S", shown=True
    )
    imu: str | None = setting("Link with an IMU at its origin: adds imu.wx … imu.az.", None, "LINK")
    force_sensors: bool = setting(
        "Write the wrenches of the feet; without them flags of contact alone.",
        True,
        flags="--force-sensors/--no-force-sensors",
    )


def floating_robot(
    file: Path, gravity: tuple[float, float, float] | None, feet: str | None
) -> Robot:
    """Return the robot of a file with its base free, on these feet."""
    from thetahat.model.floating_base import with_ground
    from thetahat.pipeline.dataset import load_robot

    if not feet:
        raise UsageError(
            "--floating-base needs the links that touch the ground: --contacts left_foot,right_foot"
        )
    names = [part.strip() for part in feet.split(",") if part.strip()]
    robot = load_robot(str(file), gravity, floating_base=True)
    try:
        return with_ground(robot, (), names)
    except UsageError as error:
        raise UsageError(f"--contacts: {str(error).removeprefix('contact.')}") from None


def simulate_standing(
    nominal: Robot,
    true: Robot,
    motion_file: Path | None,
    realism: Realism,
    standing: StandingOptions,
    *,
    ideal: bool,
    rate: float,
    seed: int,
    progress: Progress,
) -> StandingRecording:
    """Let the robot follow a motion file, or a sway that is made up."""
    import numpy as np

    from thetahat.model.floating_base import with_ground
    from thetahat.plant.ground_sensors import GroundSensors
    from thetahat.plant.stance import stand, sway
    from thetahat.plant.standing_files import load_standing
    from thetahat.plant.standing_plant import stand_and_sway

    if motion_file is not None:
        motion = load_standing(motion_file, with_ground(nominal, (), ()))
    else:
        if not 1.0 <= standing.duration <= 36_000.0:
            raise UsageError(f"--duration is {standing.duration:g}; give 1 to 36000 s")
        size, length = standing.sway, standing.duration
        motion = sway(nominal, stand(nominal), duration=length, rate=100.0, size=size, seed=seed)
    weight = true.mass * float(np.linalg.norm(true.gravity))
    return stand_and_sway(
        true,
        nominal,
        motion,
        rate=rate,
        realism=realism,
        sensors=GroundSensors() if ideal else GroundSensors.typical(weight),
        imu=standing.imu,
        seed=seed,
        progress=progress.rows("simulating (mujoco)"),
    )


def excite_standing(robot: Robot, *, duration: float, rate: float, seed: int) -> StandingDesign:
    """Design a motion with the feet in place, and see in MuJoCo that the robot does not fall."""
    from thetahat.plant.standing_plant import stand_and_sway
    from thetahat.plant.sway_design import design_sway

    design = design_sway(robot, duration=duration, rate=rate, seed=seed)
    try:
        stand_and_sway(robot, robot, design.motion, seed=seed)
    except UsageError as error:
        raise UsageError(f"the designed motion fails in MuJoCo: {error}") from None
    return design


def standing_data(
    design: StandingDesign, robot: Robot, *, file: Path, rate: float, warnings: list[str]
) -> dict[str, object]:
    """Return the answer of `excite --floating-base` as plain data."""
    return {
        "schema": EXCITE_SCHEMA,
        "file": str(file),
        "rows": len(design.motion.t),
        "rate": rate,
        "duration": float(design.motion.t[-1]),
        "joints": list(robot.joint_names[1:]),
        "sway": design.size,
        "condition": design.condition,
        "base_parameters": design.base_parameters,
        "tried": design.tried,
        "limits": [
            {"kind": u.kind, "name": u.name, "used": u.used, "time": u.time, "text": str(u)}
            for u in design.usage
        ],
        "warnings": list(warnings),
    }


def standing_words(design: StandingDesign, file: Path, seconds: float) -> str:
    """Return the same as people read it."""
    lines = [
        f"A sway of {design.motion.t[-1]:g} s with the feet in place (size {design.size:g}, best of"
        f" {design.tried}) shows {design.base_parameters} base parameters; condition"
        f" {design.condition:.3g}. In MuJoCo the robot does not fall."
    ]
    lines += [f"  {usage}" for usage in design.usage]
    lines.append(
        f"Wrote {file} in {seconds:.1f} s; next: thetahat simulate --floating-base, or play it."
    )
    return "\n".join(lines) + "\n"
