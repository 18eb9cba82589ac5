"""Robots with known position drives, moved by MuJoCo: the truth that `actuators` has to find.

MuJoCo integrates with steps of a tenth of a millisecond; PD drives and delay are computed here,
friction is MuJoCo's own (a nearly hard constraint), and backlash is a second joint between motor and
link, so nothing of the simulation under test is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

STEP = 1e-4  # [s] of MuJoCo
KINDS = ("arm", "quadruped", "hobby")
RADIANS = '<compiler angle="radian"/>'
OPTION = f'<option timestep="{STEP}" integrator="implicitfast" iterations="30"/>'


@dataclass(frozen=True, eq=False)
class PlantedDrives:
    """Drive parameters of every joint, (joints,) each."""

    kp: np.ndarray
    kd: np.ndarray
    viscous: np.ndarray
    coulomb: np.ndarray
    armature: np.ndarray
    delay: float
    bias: np.ndarray
    play: np.ndarray
    limit: float = np.inf  # [N·m] of the drives' torque
    back_emf: float = 0.0  # [N·m·s/rad] by which speed lowers the limit

    @staticmethod
    def random(size: np.ndarray, rng: np.random.Generator, *, hobby: bool = False) -> PlantedDrives:
        """Return drives of joints of these sizes, relative to one of 30 N·m/rad."""
        joints = len(size)
        dry = (0.6, 1.2) if hobby else (0.1, 0.4)
        return PlantedDrives(
            kp=size * rng.uniform(15.0, 40.0, joints),
            kd=size * rng.uniform(0.2, 0.8, joints),
            viscous=size * rng.uniform(0.1, 0.5, joints),
            coulomb=size * rng.uniform(*dry, joints),
            armature=size * rng.uniform(0.01, 0.03, joints),
            delay=STEP * round(rng.uniform(2e-3, 2e-2) / STEP),
            bias=rng.uniform(-0.03, 0.03, joints),
            play=rng.uniform(0.003, 0.015, joints) if hobby else np.zeros(joints),
        )


@dataclass(frozen=True, eq=False)
class PlantedRobot:
    """A robot's file without friction, the MJCF that truly moves, its drives, and how it logs."""

    plain: str
    truth: str
    joints: tuple[str, ...]
    drives: PlantedDrives
    rate: float  # [Hz]
    seconds: float
    encoder: float  # [rad] of a step
    noise: float  # [rad]


def _joint(name: str, axis: str, drives: PlantedDrives | None, k: int) -> str:
    if drives is None:
        return f'<joint name="{name}" type="hinge" axis="{axis}"/>'
    return (
        f'<joint name="{name}" type="hinge" axis="{axis}" damping="{drives.viscous[k]}"'
        f' frictionloss="{drives.coulomb[k]}" armature="{drives.armature[k]}"'
        ' solreffriction="0.0005 1" solimpfriction="0.999 0.9999 1e-6 0.5 2"/>'
    )


def _link(
    name: str, axis: str, place: str, inertial: str, drives: PlantedDrives | None, k: int
) -> tuple[str, str]:
    """Return the beginning and the end of a body; with backlash there is a gear between."""
    joint = _joint(name, axis, drives, k)
    if drives is None or drives.play[k] == 0.0:
        return f'<body pos="{place}">{joint}{inertial}', "</body>"
    gear = '<inertial pos="0 0 0" mass="1e-5" diaginertia="1e-8 1e-8 1e-8"/>'
    half = 0.5 * drives.play[k]
    slack = (
        f'<joint name="{name}.play" type="hinge" axis="{axis}" limited="true"'
        f' range="{-half} {half}" solreflimit="0.001 1" damping="1e-4" armature="1e-5"/>'
    )
    return f'<body pos="{place}">{joint}{gear}<body>{slack}{inertial}', "</body></body>"


def chain(
    drives: PlantedDrives | None, joints: int, rng: np.random.Generator, *, mass: float = 1.0
) -> str:
    """Return the MJCF text of an arm whose axes are horizontal, with these drives' friction."""
    body, end = "", ""
    for k in range(joints):
        weight, length = mass * rng.uniform(0.4, 1.0) * 0.75**k, rng.uniform(0.15, 0.25)
        turn = weight * length**2 / 10
        inertial = (
            f'<inertial pos="0.01 0 {-length / 2}" mass="{weight}"'
            f' diaginertia="{turn} {turn} {weight * 1e-3}"/>'
        )
        axis, place = "0 1 0" if k % 3 != 2 else "1 0 0", f"0 0 {-0.2 if k else 0}"
        begin, close = _link(f"joint{k}", axis, place, inertial, drives, k)
        body, end = body + begin, close + end
    return _document(body + end)


def quadruped(drives: PlantedDrives | None, rng: np.random.Generator) -> str:
    """Return the MJCF text of four legs of three joints that hang from a held trunk."""
    text, k = "", 0
    for x, y in ((0.19, 0.05), (0.19, -0.05), (-0.19, 0.05), (-0.19, -0.05)):
        end = ""
        for name, axis, place, mass in (
            ("hip", "1 0 0", f"{x} {y} 0", 0.68),
            ("thigh", "0 1 0", f"0 {np.sign(y) * 0.095} 0", 1.15),
            ("calf", "0 1 0", "0 0 -0.213", 0.24),
        ):
            weight, length = mass * rng.uniform(0.8, 1.2), 0.08 if name == "hip" else 0.2
            turn = weight * length**2 / 12
            centre = f"0 {np.sign(y) * 0.02} -0.005" if name == "hip" else "0 0 -0.06"
            inertial = (
                f'<inertial pos="{centre}" mass="{weight}"'
                f' diaginertia="{turn} {turn} {max(0.2 * turn, 1e-4)}"/>'
            )
            begin, close = _link(f"{name}{k // 3}", axis, place, inertial, drives, k)
            text, end, k = text + begin, close + end, k + 1
        text += end
    return _document(text)


def _document(bodies: str) -> str:
    return f"<mujoco>{RADIANS}{OPTION}<worldbody>{bodies}</worldbody></mujoco>"


def robot_of(kind: str, seed: int, *, joints: int | None = None) -> PlantedRobot:
    """Return a robot of a kind."""
    rng = np.random.default_rng([KINDS.index(kind), seed])
    shape = int(rng.integers(2**31))

    def same() -> np.random.Generator:
        return np.random.default_rng(shape)

    if kind == "quadruped":
        drives = PlantedDrives.random(np.tile([0.8, 1.0, 0.8], 4), rng)
        names = [f"{name}{leg}" for leg in range(4) for name in ("hip", "thigh", "calf")]
        files = quadruped(None, same()), quadruped(drives, same())
        return PlantedRobot(*files, tuple(names), drives, 200.0, 25.0, 2 * np.pi / 32768, 1e-4)
    hobby = kind == "hobby"
    count = joints or int(rng.integers(3, 7))
    size = np.linspace(1.0, 0.4, count) * (0.4 if hobby else 1.0)
    drives = PlantedDrives.random(size, rng, hobby=hobby)
    mass = 0.35 if hobby else 1.0
    files = chain(None, count, same(), mass=mass), chain(drives, count, same(), mass=mass)
    names = [f"joint{k}" for k in range(count)]
    if hobby:
        return PlantedRobot(*files, tuple(names), drives, 50.0, 60.0, 2 * np.pi / 4096, 0.0)
    rate = float(rng.choice([100.0, 200.0]))
    return PlantedRobot(*files, tuple(names), drives, rate, 25.0, 2 * np.pi / 65536, 2e-4)


def multisine(joints: int, seconds: float, rate: float, rng: np.random.Generator) -> np.ndarray:
    """Return commands, (rows, joints): five sines and steps between plateaus."""
    t = np.arange(round(seconds * rate)) / rate
    out = np.zeros((len(t), joints))
    for j in range(joints):
        for frequency in rng.uniform(0.1, 1.5, 5):
            out[:, j] += rng.uniform(0.05, 0.2) * np.sin(
                2 * np.pi * frequency * t + rng.uniform(0, 2 * np.pi)
            )
        plateau = rng.uniform(-0.3, 0.3, round(seconds / 2.0) + 2)
        out[:, j] += plateau[(t / 2.0).astype(int)]
    return out


def move(robot: PlantedRobot, command: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return what the encoders of the links show, and the drives' torque, at the command's rows."""
    import mujoco

    model = mujoco.MjModel.from_xml_string(robot.truth)
    data = mujoco.MjData(model)
    drives = robot.drives
    motor = np.array([model.joint(name).qposadr[0] for name in robot.joints])
    slack = [k for k in range(len(motor)) if drives.play[k] > 0.0]
    play = np.array([model.joint(f"{robot.joints[k]}.play").qposadr[0] for k in slack], dtype=int)
    data.qpos[motor] = command[0] - drives.bias
    per_row, late = round(1.0 / (robot.rate * STEP)), round(drives.delay / STEP)
    out, torques, torque = np.zeros_like(command), np.zeros_like(command), np.zeros(model.nv)
    for k in range(len(command) * per_row):
        q, v = data.qpos[motor], data.qvel[motor]
        if slack:
            q[slack] += data.qpos[play]
            v[slack] += data.qvel[play]
        if k % per_row == 0:
            out[k // per_row] = q + drives.bias
        asked = command[max(0, (k - late) // per_row)]
        wanted = drives.kp * (asked - q - drives.bias) - drives.kd * v
        lost = drives.back_emf * data.qvel[motor]
        torque[motor] = np.clip(wanted, -drives.limit - lost, drives.limit - lost)
        if k % per_row == 0:
            torques[k // per_row] = torque[motor]
        data.qfrc_applied[:] = torque
        mujoco.mj_step(model, data)
    return out, torques


def planted(
    folder: Path, robot: PlantedRobot, *, seed: int, torque_per_current: float | None = None
) -> tuple[Path, Path]:
    """Write the robot's file without friction and a log of its motion, with currents if asked."""
    rng = np.random.default_rng([7, seed])
    command = multisine(len(robot.joints), robot.seconds, robot.rate, rng)
    q, torque = move(robot, command)
    q = np.round(q / robot.encoder) * robot.encoder
    q += rng.normal(0.0, robot.noise, q.shape)
    columns = {"t": np.arange(len(q)) / robot.rate}
    for j, name in enumerate(robot.joints):
        columns[f"cmd.{name}"], columns[f"q.{name}"] = command[:, j], q[:, j]
        if torque_per_current is not None:
            current = torque[:, j] / torque_per_current
            columns[f"cur.{name}"] = current + rng.normal(0.0, 0.02 * np.std(current), len(q))
    file, log = folder / f"robot{seed}.xml", folder / f"robot{seed}.npz"
    file.write_text(robot.plain, encoding="utf-8")
    np.savez(log, **columns)
    return file, log
