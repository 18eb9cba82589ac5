"""Legged robots that stand and sway in MuJoCo: total mass, centre of mass, torques, intervals.

    python -m benchmarks.legged                                # Solo12, seeds 0 to 9, with foot sensors
    python -m benchmarks.legged --robots solo12,g1 --first 100 --runs 20 --out build/legged.jsonl
    python -m benchmarks.legged --sensors contacts             # flags of contact in place of wrenches

Every body of the robot that stands differs from its file by up to ±25 %. Friction, encoders, delay,
jitter and torque noise are `Realism.typical`, pose, wrench and IMU errors `GroundSensors.typical`.
`identify` runs with its defaults; the last 30 % of the log are held out. Per run:

    mass       identified over true total mass
    com        error of the whole body's centre of mass in the first posture [mm]
    motor      least R² over joints of the motors' torques on held-out motion: 1 − e'e/τ'τ
    row        the same relative to the rows that are fitted, τ + Jᵀw or what is left of them
    inside     share of the base parameters' 95 % intervals that hold the truth
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

import thetahat as th
from benchmarks.robots import example_folder
from thetahat.model.floating_base import with_ground
from thetahat.model.robot import Robot
from thetahat.pipeline.identification import Identification
from thetahat.plant.ground_sensors import GroundSensors
from thetahat.plant.realism import Realism
from thetahat.plant.stance import centre_of_mass, stand, sway
from thetahat.plant.standing_plant import StandingRecording, stand_and_sway

FEET = {
    "solo12": ("FL_FOOT", "FR_FOOT", "HL_FOOT", "HR_FOOT"),
    "go2": ("FL_foot", "FR_foot", "RL_foot", "RR_foot"),
    "g1": ("left_ankle_roll_link", "right_ankle_roll_link"),
}
FILES = {
    "solo12": "solo_description/robots/solo12.urdf",
    "go2": "go2_description/urdf/go2.urdf",
    "g1": "g1_description/urdf/g1_29dof_rev_1_0.urdf",
}
SPREAD = 0.25  # by which bodies differ from their file
RATE, SECONDS = 500.0, 30.0  # [Hz] and [s] of a log
HELD_OUT = 0.3
QUICK_CUTOFF = 8.0  # [Hz] without tuning
Z95 = 1.959963984540054
MASS = {"wrenches": 0.005, "contacts": 0.03}
COM, R2 = 5.0, {"wrenches": 0.98, "contacts": 0.95}  # [mm]


@dataclass(frozen=True)
class Run:
    """What one robot's log told."""

    robot: str
    sensors: str
    seed: int
    mass: float
    file: float
    com: float
    motor: float
    row: float
    inside: float
    level: str
    processor: float


def robot_file(name: str) -> Path:
    """The robot's file in the package example-robot-data."""
    return Path(example_folder()) / FILES[name]


def simulated(name: str, seed: int, seconds: float) -> tuple[Robot, Robot, StandingRecording]:
    """The nominal robot, the one that stood, and what it logged."""
    loaded = th.load(robot_file(name), floating_base=True).without_drive()
    nominal = with_ground(loaded, (), FEET[name])
    rng = np.random.default_rng(seed)
    scale = np.repeat(1.0 + SPREAD * rng.uniform(-1.0, 1.0, len(nominal.body_names)), 10)
    true = nominal.with_parameters(scale * nominal.theta)
    motion = sway(nominal, stand(nominal), duration=seconds, rate=100.0, seed=seed)
    weight = true.mass * float(np.linalg.norm(true.gravity))
    recording = stand_and_sway(
        true,
        nominal,
        motion,
        rate=RATE,
        realism=Realism.typical(true, seed=seed),
        sensors=GroundSensors.typical(weight),
        seed=seed,
    )
    return nominal, true, recording


def run(name: str, sensors: str, seed: int, seconds: float, *, quick: bool = False) -> Run:
    """Identify one robot from its log. quick: without tuning."""
    _, true, recording = simulated(name, seed, seconds)
    left_out = "contact." if sensors == "wrenches" else "wrench."
    table = {key: x for key, x in recording.columns.items() if not key.startswith(left_out)}
    used = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings = th.IdentifySettings(floating_base=True, report=False, holdout=HELD_OUT)
        if quick:
            settings = replace(settings, tune=False, cutoff=QUICK_CUTOFF)
        robot = th.load(robot_file(name), floating_base=True)
        result = th.identify(robot, table, settings=settings)
    used = time.process_time() - used
    q = recording.q[0]
    off = centre_of_mass(result.robot, q) - centre_of_mass(true, q)
    first = round((1.0 - HELD_OUT) * len(recording.t))
    power = np.mean(recording.tau[first:] ** 2, axis=0)
    joints = result.data["joints"]
    motor = [1.0 - j["rms_test"] ** 2 / power[v] for v, j in enumerate(joints) if v >= 6]
    rows = [j["r2_test"] for j in joints if j["r2_test"] is not None]
    return Run(
        name,
        sensors,
        seed,
        result.robot.mass / true.mass,
        robot.mass / true.mass,
        1e3 * float(np.linalg.norm(off)),
        min(motor),
        min(rows),
        _inside(result, true),
        result.verdict.level,
        used,
    )


def _inside(result: Identification, true: Robot) -> float:
    """Share of the intervals of inertial base parameters that hold the truth."""
    estimate = result.estimate
    base = estimate.base
    inertial = len(true.theta)
    of_bodies = [k for k, row in enumerate(base.map) if not np.any(row[inertial:])]
    truth = base.map[of_bodies][:, :inertial] @ true.theta
    half = Z95 * np.ma.getdata(np.ma.filled(estimate.base_std, np.inf))[of_bodies]
    error = np.abs(np.asarray(estimate.x_base)[of_bodies] - truth)
    return float(np.mean(error <= half))


def summary(runs: list[Mapping[str, float | str]]) -> str:
    """A line per robot and kind of sensors."""
    lines = []
    for key in sorted({(str(r["robot"]), str(r["sensors"])) for r in runs}):
        mine = [r for r in runs if (r["robot"], r["sensors"]) == key]
        mass = np.array([abs(float(r["mass"]) - 1.0) for r in mine])
        com, motor, row, inside = (
            np.array([float(r[name]) for r in mine]) for name in ("com", "motor", "row", "inside")
        )
        score = motor if key[1] == "wrenches" else row
        good = (
            (mass < MASS[key[1]]) & (score >= R2[key[1]]) & ((com < COM) | (key[1] == "contacts"))
        )
        lines.append(
            f"{key[0]} {key[1]}: {len(mine)} runs, {np.count_nonzero(good)} meet all;"
            f" mass off by {100 * np.median(mass):.3f} % (worst {100 * mass.max():.3f}),"
            f" com {np.median(com):.2f} mm (worst {com.max():.2f}), least motor R²"
            f" {motor.min():.4f}, least row R² {row.min():.4f}, inside {inside.mean():.3f}"
        )
    return "\n".join(lines)


def main() -> None:
    """Run, print, and append to a file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--robots", default="solo12")
    parser.add_argument("--sensors", default="wrenches", help="wrenches, contacts or both")
    parser.add_argument("--first", type=int, default=0, help="seed")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--quick", action="store_true", help="no tuning")
    parser.add_argument("--out", type=Path, help="JSON lines to append to")
    given = parser.parse_args()
    kinds = ("wrenches", "contacts") if given.sensors == "both" else (given.sensors,)
    done: list[Mapping[str, float | str]] = []
    for name in given.robots.split(","):
        for seed in range(given.first, given.first + given.runs):
            for kind in kinds:
                one = asdict(run(name, kind, seed, given.seconds, quick=given.quick))
                done.append(one)
                print(json.dumps(one), flush=True)
                if given.out is not None:
                    with given.out.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(one) + "\n")
    print(summary(done))


if __name__ == "__main__":
    main()
