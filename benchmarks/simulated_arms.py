"""Random robot arms with planted truth, simulated by MuJoCo: nothing of thetahat is used here.

An arm has 4 to 7 joints (now and then a linear axis), links of uniform rods with a motor at their
root, rotor inertia, friction, sensors with noise, and a robot file that is wrong by up to 30 %.
Its log comes from a PD controller that follows sums of sines, in MuJoCo, from the truth.

The mass of a link that only turns shows in no torque by itself, and on a rail that does not tilt
it cannot be told from the motor's rotor and offset. An arm on a rail stands on a linear axis that a
first joint tilts, mounted at any angle, and ends in another, as a SCARA's quill: the log tells the
mass of all that the rail carries, and that of the last link.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import mujoco
import numpy as np

GRAVITY = 9.81  # [m/s²]
STEP = 1e-3  # [s]
HARMONICS = 5
WRONG = 0.3  # the robot file's masses, centres and inertias are off by at most this share


@dataclass(frozen=True)
class Link:
    """A rigid body, in the frame of its joint."""

    mass: float  # [kg]
    com: np.ndarray  # (3,) [m]
    inertia: np.ndarray  # (3, 3) about the centre of mass [kg·m²]


@dataclass(frozen=True)
class Arm:
    """A serial arm as it was built."""

    links: tuple[Link, ...]
    offsets: np.ndarray  # (n, 3) [m] of each joint in the frame of the one before
    turns: np.ndarray  # (n, 3) roll, pitch, yaw of its frame there
    prismatic: np.ndarray  # (n,) bool; every joint moves about or along its own z
    armature: np.ndarray  # (n,) [kg·m² or kg]
    viscous: np.ndarray
    coulomb: np.ndarray

    @property
    def count(self) -> int:
        """Joints."""
        return len(self.links)

    @property
    def masses(self) -> np.ndarray:
        """Of the links [kg]."""
        return np.array([link.mass for link in self.links])


def _rod(mass: float, radius: float, end: np.ndarray) -> Link:
    """A cylinder from the origin to `end`."""
    length = float(np.linalg.norm(end))
    axis = end / length
    across = mass * (3.0 * radius**2 + length**2) / 12.0
    along = 0.5 * mass * radius**2
    inertia = across * np.eye(3) + (along - across) * np.outer(axis, axis)
    return Link(mass, 0.5 * end, inertia)


def _joined(a: Link, b: Link) -> Link:
    mass = a.mass + b.mass
    com = (a.mass * a.com + b.mass * b.com) / mass
    inertia = np.zeros((3, 3))
    for part in (a, b):
        d = part.com - com
        inertia += part.inertia + part.mass * (d @ d * np.eye(3) - np.outer(d, d))
    return Link(mass, com, inertia)


def random_arm(seed: int, *, rail: bool = False) -> Arm:
    """An arm of 4 to 7 joints; the same seed, the same arm. rail: on a tilting rail, with a quill."""
    rng = np.random.default_rng([seed, 1])
    n = int(rng.integers(4, 8))
    reach = rng.uniform(0.6, 1.6)  # [m]
    lengths = rng.dirichlet(np.full(n, 4.0)) * reach
    payload_class = np.exp(rng.uniform(np.log(4.0), np.log(40.0)))  # [kg] of the whole arm
    share = np.exp(-rng.uniform(0.15, 0.45) * np.arange(n)) * rng.uniform(0.7, 1.3, n)
    masses = payload_class * share / share.sum()
    prismatic = np.zeros(n, dtype=bool)
    if rng.random() < 0.2:
        prismatic[int(rng.integers(0, 2))] = True
    if rail:
        prismatic[:] = False
        prismatic[[1, -1]] = True
    links, offsets, turns = [], np.zeros((n, 3)), np.zeros((n, 3))
    for i in range(n):
        # z is the joint's axis; the link leaves along it or across it
        out = np.array([0.0, 0.0, 1.0]) if i % 2 == 0 else np.array([1.0, 0.0, 0.0])
        end = lengths[i] * out + 0.02 * rng.normal(size=3)
        radius = rng.uniform(0.03, 0.07) * reach
        rod = _rod(0.6 * masses[i], radius, end)
        motor = _rod(0.4 * masses[i], radius, 0.1 * reach * np.array([0.0, 0.0, 1.0]))
        moved = replace(motor, com=motor.com + 0.03 * rng.normal(size=3))
        links.append(_joined(rod, moved))
        if i + 1 < n:
            offsets[i + 1] = end
            bend = rng.choice([-0.5, 0.5]) * np.pi
            turns[i + 1] = (bend, 0.0, rng.choice([0.0, 0.5]) * np.pi)
    if rail:
        turns[0] = rng.uniform(-np.pi, np.pi, 3)
    arm = Arm(tuple(links), offsets, turns, prismatic, *np.zeros((3, n)))
    model = mujoco.MjModel.from_xml_string(mjcf(arm))
    M, g = _typical(model, rng)
    armature = M * np.exp(rng.uniform(np.log(0.1), np.log(1.0), n))
    load = np.maximum(g, 0.3 * M * 4.0) + 0.02
    return replace(
        arm,
        armature=armature,
        coulomb=load * rng.uniform(0.03, 0.15, n),
        viscous=load * rng.uniform(0.03, 0.15, n),
    )


def _typical(model: mujoco.MjModel, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(M_jj, |g_j|) averaged over random postures."""
    data = mujoco.MjData(model)
    full, inertia, load = np.zeros((model.nv, model.nv)), [], []
    for _ in range(20):
        data.qpos[:] = rng.uniform(-1.5, 1.5, model.nv)
        data.qvel[:] = 0.0
        mujoco.mj_forward(model, data)
        mujoco.mj_fullM(model, data, full)
        inertia.append(np.diag(full).copy())
        load.append(np.abs(data.qfrc_bias))
    return np.mean(inertia, axis=0), np.mean(load, axis=0)


def as_in_file(arm: Arm, seed: int, wrong: float = WRONG) -> Arm:
    """The arm as its robot file states it: no rotors, no friction, links wrong by up to 30 %."""
    rng = np.random.default_rng([seed, 2])
    links = []
    for link in arm.links:
        mass = link.mass * rng.uniform(1.0 - wrong, 1.0 + wrong)
        size = np.sqrt(np.trace(link.inertia) / link.mass)
        com = link.com + wrong * size * rng.uniform(-1.0, 1.0, 3)
        scale = mass / link.mass * rng.uniform(1.0 - wrong, 1.0 + wrong)
        links.append(Link(mass, com, scale * link.inertia))
    none = np.zeros(arm.count)
    return replace(arm, links=tuple(links), armature=none, viscous=none, coulomb=none)


# -- files -----------------------------------------------------------------------------------------


def joint_names(arm: Arm) -> list[str]:
    """j1, j2, …"""
    return [f"j{i + 1}" for i in range(arm.count)]


def _row(values: np.ndarray) -> str:
    return " ".join(f"{x:.17g}" for x in values)


def mjcf(arm: Arm) -> str:
    """The arm as MuJoCo's XML."""
    text = [
        '<mujoco model="arm"><compiler angle="radian" autolimits="false" eulerseq="XYZ"/>',
        f'<option timestep="{STEP}" integrator="implicitfast" gravity="0 0 -{GRAVITY}">',
        '<flag contact="disable"/></option><worldbody>',
    ]
    for i, link in enumerate(arm.links):
        I = link.inertia  # noqa: E741
        kind = "slide" if arm.prismatic[i] else "hinge"
        six = np.array([I[0, 0], I[1, 1], I[2, 2], I[0, 1], I[0, 2], I[1, 2]])
        text += [
            f'<body name="l{i + 1}" pos="{_row(arm.offsets[i])}" quat="{_row(_quaternion(arm.turns[i]))}">',
            f'<joint name="j{i + 1}" type="{kind}" axis="0 0 1" armature="{arm.armature[i]:.17g}"'
            f' damping="{arm.viscous[i]:.17g}" frictionloss="{arm.coulomb[i]:.17g}"/>',
            f'<inertial pos="{_row(link.com)}" mass="{link.mass:.17g}" fullinertia="{_row(six)}"/>',
        ]
    text += ["</body>" * arm.count, "</worldbody></mujoco>"]
    return "\n".join(text)


def _quaternion(rpy: np.ndarray) -> np.ndarray:
    """(w, x, y, z) of roll, pitch, yaw about fixed axes."""
    half = 0.5 * np.asarray(rpy)
    (cr, cp, cy), (sr, sp, sy) = np.cos(half), np.sin(half)
    return np.array(
        [
            cr * cp * cy + sr * sp * sy,
            sr * cp * cy - cr * sp * sy,
            cr * sp * cy + sr * cp * sy,
            cr * cp * sy - sr * sp * cy,
        ]
    )


def urdf(arm: Arm, speed: float = 4.0) -> str:
    """The arm as a URDF."""
    text = ['<robot name="arm"><link name="base"/>']
    for i, link in enumerate(arm.links):
        I = link.inertia  # noqa: E741
        kind = "prismatic" if arm.prismatic[i] else "revolute"
        parent = f"l{i}" if i else "base"
        text += [
            f'<link name="l{i + 1}"><inertial><origin xyz="{_row(link.com)}"/><mass value="{link.mass:.17g}"/>',
            f'<inertia ixx="{I[0, 0]:.17g}" ixy="{I[0, 1]:.17g}" ixz="{I[0, 2]:.17g}"'
            f' iyy="{I[1, 1]:.17g}" iyz="{I[1, 2]:.17g}" izz="{I[2, 2]:.17g}"/></inertial></link>',
            f'<joint name="j{i + 1}" type="{kind}"><parent link="{parent}"/><child link="l{i + 1}"/>',
            f'<origin xyz="{_row(arm.offsets[i])}" rpy="{_row(arm.turns[i])}"/><axis xyz="0 0 1"/>',
            f'<limit lower="-3" upper="3" effort="2000" velocity="{speed}"/></joint>',
        ]
    return "\n".join([*text, "</robot>"])


# -- logs ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recording:
    """What the arm's sensors logged."""

    t: np.ndarray  # (k,) [s]
    q: np.ndarray  # (k, n)
    dq: np.ndarray
    tau: np.ndarray
    ddq: np.ndarray | None = None
    seg: np.ndarray | None = None  # (k,) run of each row

    def write(self, path: Path) -> Path:
        """Write a CSV with columns by joint name, and return its path."""
        parts = {"q": self.q, "dq": self.dq, "ddq": self.ddq, "tau": self.tau}
        head, columns = ["t"], [self.t[:, None]]
        for name, values in parts.items():
            if values is not None:
                head += [f"{name}.j{i + 1}" for i in range(values.shape[1])]
                columns.append(values)
        if self.seg is not None:
            head.append("seg")
            columns.append(self.seg[:, None])
        table = np.hstack(columns)
        np.savetxt(path, table, delimiter=",", header=",".join(head), comments="", fmt="%.10g")
        return path


@dataclass(frozen=True)
class Disturbance:
    """What acts on the arm beside its motors and gravity."""

    spring: tuple[int, float] | None = None  # joint, N·m per rad about 0.3 rad
    push: tuple[float, float, float] | None = None  # from [s], to [s], times the usual torque


def record(
    arm: Arm,
    seed: int,
    *,
    seconds: float = 20.0,
    rate: float = 250.0,
    disturbance: Disturbance = Disturbance(),
    speed: float = 1.5,
) -> Recording:
    """Play sums of sines on the arm, and log noisy positions, speeds and torques."""
    rng = np.random.default_rng([seed, 3])
    model = mujoco.MjModel.from_xml_string(mjcf(arm))
    data = mujoco.MjData(model)
    n, steps = arm.count, round(seconds / STEP)
    M, g = _typical(model, rng)
    t = STEP * np.arange(steps)
    reference, rates, accelerations = _sines(rng, t, n, speed, arm.prismatic)
    inertia = M + arm.armature
    kp, kd = inertia * 30.0**2, inertia * 2.0 * 30.0
    data.qpos[:] = reference[0]
    data.qvel[:] = rates[0]
    every = round(1.0 / (rate * STEP))
    q, dq, tau = (np.zeros((steps // every, n)) for _ in range(3))
    usual = g + M * 4.0
    for k in range(steps):
        u = kp * (reference[k] - data.qpos) + kd * (rates[k] - data.qvel)
        u += inertia * accelerations[k] + data.qfrc_bias
        if k % every == 0 and k // every < len(q):
            q[k // every], dq[k // every], tau[k // every] = data.qpos, data.qvel, u
        data.qfrc_applied[:] = u + _others(disturbance, t[k], data.qpos, usual)
        mujoco.mj_step(model, data)
    counts = 2.0 * np.pi / 2 ** rng.integers(16, 20)
    noise = 0.01 * np.sqrt(np.mean(tau**2, axis=0)) + 0.005
    return Recording(
        t=np.arange(len(q)) / rate,
        q=np.round(q / counts) * counts,
        dq=dq + 2e-3 * rng.normal(size=q.shape),
        tau=tau + noise * rng.normal(size=q.shape),
    )


def _others(
    disturbance: Disturbance, t: float, q: np.ndarray, usual: np.ndarray
) -> np.ndarray | float:
    """Torques of a spring and of a hand."""
    out = np.zeros(len(q))
    if disturbance.spring is not None:
        joint, stiffness = disturbance.spring
        out[joint] -= stiffness * (q[joint] - 0.3)
    if disturbance.push is not None:
        start, end, strength = disturbance.push
        if start <= t < end:
            phase = np.sin(np.pi * (t - start) / (end - start))
            out += strength * usual * phase
    return out


def _sines(
    rng: np.random.Generator, t: np.ndarray, n: int, speed: float, prismatic: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions, speeds and accelerations, (k, n): sums of sines over 10 s, scaled to a speed."""
    w = 2.0 * np.pi * 0.1 * np.arange(1, HARMONICS + 1)
    a, b = rng.normal(size=(2, HARMONICS, n)) / w[:, None]
    s, c = np.sin(np.outer(t, w)), np.cos(np.outer(t, w))
    q, dq = s @ a - c @ b, (c * w) @ a + (s * w) @ b
    ddq = (-s * w**2) @ a + (c * w**2) @ b
    top = np.abs(dq).max(axis=0) / (speed * rng.uniform(0.6, 1.0, n))
    top = np.maximum(top, np.abs(q).max(axis=0) / np.where(prismatic, 0.4, 2.0))
    return q / top, dq / top, ddq / top
