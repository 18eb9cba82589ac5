"""Robots with known position drives, moved by MuJoCo: the truth that `actuators` has to find.

MuJoCo integrates with steps of half a millisecond; its PD drives, delay and torque limit are
computed here, its friction is MuJoCo's own (a nearly hard constraint), so nothing of the simulation
under test is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

STEP = 5e-4  # [s] of MuJoCo


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

    @staticmethod
    def random(joints: int, rng: np.random.Generator) -> PlantedDrives:
        """Return drives as servos and small actuators have them, weaker towards the tip."""
        size = np.linspace(1.0, 0.4, joints)
        return PlantedDrives(
            kp=size * rng.uniform(15.0, 40.0, joints),
            kd=size * rng.uniform(0.2, 0.8, joints),
            viscous=size * rng.uniform(0.1, 0.5, joints),
            coulomb=size * rng.uniform(0.1, 0.4, joints),
            armature=size * rng.uniform(0.01, 0.03, joints),
            delay=STEP * int(rng.integers(4, 41)),
            bias=rng.uniform(-0.03, 0.03, joints),
        )


def chain(drives: PlantedDrives | None, joints: int, rng: np.random.Generator) -> str:
    """Return the MJCF text of an arm whose axes are horizontal, with these drives' friction."""
    body, end = "", ""
    for k in range(joints):
        mass, length = rng.uniform(0.4, 1.0) * 0.75**k, rng.uniform(0.15, 0.25)
        axis = "0 1 0" if k % 3 != 2 else "1 0 0"
        dry = ""
        if drives is not None:
            dry = (
                f'damping="{drives.viscous[k]}" frictionloss="{drives.coulomb[k]}"'
                f' armature="{drives.armature[k]}" solreffriction="0.001 1"'
                ' solimpfriction="0.999 0.9999 1e-6 0.5 2"'
            )
        body += (
            f'<body name="link{k}" pos="0 0 {-0.2 if k else 0}">'
            f'<joint name="joint{k}" type="hinge" axis="{axis}" {dry}/>'
            f'<inertial pos="0.01 0 {-length / 2}" mass="{mass}"'
            f' diaginertia="{mass * length**2 / 10} {mass * length**2 / 10} {mass * 1e-3}"/>'
        )
        end += "</body>"
    option = f'<option timestep="{STEP}" integrator="implicitfast" iterations="50"/>'
    return f"<mujoco>{option}<worldbody>{body}{end}</worldbody></mujoco>"


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


def move(
    text: str, drives: PlantedDrives, command: np.ndarray, *, rate: float, step: float
) -> np.ndarray:
    """Return the encoders' positions, rounded to steps, at the rows of the command."""
    import mujoco

    model = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(model)
    data.qpos[:] = command[0] - drives.bias
    per_row, late = round(1.0 / (rate * STEP)), round(drives.delay / STEP)
    out = np.zeros_like(command)
    for k in range(len(command) * per_row):
        if k % per_row == 0:
            out[k // per_row] = data.qpos + drives.bias
        asked = command[max(0, (k - late) // per_row)]
        data.qfrc_applied[:] = drives.kp * (asked - data.qpos - drives.bias)
        data.qfrc_applied[:] -= drives.kd * data.qvel
        mujoco.mj_step(model, data)
    return np.round(out / step) * step if step else out


def planted(
    folder: Path, *, joints: int, seed: int, seconds: float = 20.0, rate: float = 100.0
) -> tuple[Path, Path, PlantedDrives]:
    """Return an arm's file without friction, a log of its motion, and its true drives."""
    rng = np.random.default_rng(seed)
    drives = PlantedDrives.random(joints, rng)
    shape = int(rng.integers(2**31))
    moved = chain(drives, joints, np.random.default_rng(shape))
    plain = folder / f"arm{seed}.xml"
    plain.write_text(chain(None, joints, np.random.default_rng(shape)), encoding="utf-8")
    command = multisine(joints, seconds, rate, rng)
    q = move(moved, drives, command, rate=rate, step=2 * np.pi / 65536)
    q += rng.normal(0.0, 2e-4, q.shape)
    columns = {"t": np.arange(len(q)) / rate}
    for j in range(joints):
        columns[f"cmd.joint{j}"], columns[f"q.joint{j}"] = command[:, j], q[:, j]
    log = folder / f"arm{seed}.npz"
    np.savez(log, **columns)
    return plain, log, drives
