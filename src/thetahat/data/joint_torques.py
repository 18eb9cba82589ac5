"""The torque of every joint beside what can explain it: bodies, gravity, rotor, friction.

Torques are linear in all of them: τ_j = inertial_j(q, q̇, q̈) + Σ g_k ∂G_j/∂g_k + (first moment of
the joint's own link) + rotor·q̈_j + viscous·q̇_j + Coulomb·sign(q̇_j) + offset. The first two are of
the robot's file.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from thetahat.data.audit_windows import Windows
from thetahat.data.columns import ColumnMap
from thetahat.model.robot import Robot

ENOUGH = 24  # windows to judge a joint by
SHARP = 0.2  # of the wider transition of Coulomb friction
NUMBERS = 2_000_000  # of a regressor that are computed at once
FIRST_MOMENT = (7, 4, 3)  # places of m·cx, m·cy, m·cz among a body's ten parameters


@dataclass(frozen=True, eq=False)
class JointTorque:
    """One degree of freedom's torques and the parts that may explain them, centred, divided by the
    torque's standard deviation.
    """

    tau: np.ndarray  # (k,)
    inertial: np.ndarray  # (k,)
    gravity: np.ndarray  # (k, 3) torque per unit of gravity along x, y, z
    friction: np.ndarray  # (k, 3) viscous, Coulomb with a soft and with a sharp transition
    rotor: np.ndarray  # (k,) q̈
    own: np.ndarray  # (k, ·) first moments of the joint's own link, those that matter
    speed: np.ndarray  # (k,) q̇ [rad/s or m/s], not centred
    unit: float  # [N·m or N] by which all were divided

    def load(self, gravity: np.ndarray) -> np.ndarray:
        """Return the rigid-body torque that the file states, gravity included."""
        return np.asarray(self.inertial + self.gravity @ gravity)

    def divided(self, factor: float) -> JointTorque:
        """Return the same joint with its torque in another unit, which is so many times larger."""
        if factor == 1.0:
            return self
        parts = ("inertial", "gravity", "friction", "rotor", "own")
        scaled = {name: getattr(self, name) * factor for name in parts}
        return replace(self, unit=self.unit / factor, **scaled)


def joint_torques(
    robot: Robot, columns: ColumnMap, windows: Windows, *, own_links: bool = True
) -> dict[int, JointTorque]:
    """Return the joints that have enough usable torques, by degree of freedom."""
    measured = {at for kind, at, _ in columns.place if kind == "tau"}
    measured -= set(robot.tree.sensor_dofs.tolist())  # wrench_audit.py
    inertial, gravity = _file_torques(robot, windows)
    torque = np.zeros_like(inertial) if windows.tau is None else windows.tau
    own = _own_links(robot, windows) if own_links else {}
    out: dict[int, JointTorque] = {}
    for v in sorted(measured):
        rows = windows.usable[:, v]
        tau = torque[rows, v]
        if len(tau) < ENOUGH or np.ptp(tau) <= 0.0:
            continue
        speed = windows.dq[rows, v]
        threshold = max(0.02, 0.1 * float(np.percentile(np.abs(speed), 95)))
        dry = [np.tanh(speed / width) for width in (threshold, SHARP * threshold)]
        friction = np.column_stack([speed, *dry])
        unit = float(np.std(tau))
        moments = own[v][rows] if v in own else np.zeros((len(tau), 0))
        parts = {
            "tau": tau,
            "inertial": inertial[rows, v],
            "gravity": gravity[rows, v],
            "friction": friction,
            "rotor": windows.ddq[rows, v],
            "own": _nonzero(moments - moments.mean(axis=0)),
        }
        centred = {name: (part - part.mean(axis=0)) / unit for name, part in parts.items()}
        out[v] = JointTorque(**centred, speed=speed, unit=unit)
    return out


def _nonzero(columns: np.ndarray) -> np.ndarray:
    length = np.linalg.norm(columns, axis=0)
    return np.asarray(columns[:, length > 1e-9 * max(float(length.max(initial=0.0)), 1e-30)])


def _file_torques(robot: Robot, windows: Windows) -> tuple[np.ndarray, np.ndarray]:
    """Return the rigid-body torque without gravity (k, nv), and the torque per unit of gravity
    along each axis (k, nv, 3).
    """
    from thetahat.dynamics.rigid_body import gravity, inverse_dynamics

    weightless = robot.with_gravity(np.zeros(3))
    inertial = inverse_dynamics(weightless, windows.q, windows.dq, windows.ddq, rigid=True)
    return inertial, np.stack(
        [gravity(robot.with_gravity(axis), windows.q) for axis in np.eye(3)], axis=-1
    )


def _own_links(robot: Robot, windows: Windows) -> dict[int, np.ndarray]:
    """Return, by degree of freedom, its torque per unit of its own link's first moment, (k, 3)."""
    from thetahat.dynamics.rigid_body import regressor

    tree, rigid = robot.tree, robot.without_drive()
    bodies = {tree.nodes[node].name: i for i, node in enumerate(tree.bodies)}
    own = {
        tree.v_index[node.name]: [10 * bodies[node.name] + k for k in FIRST_MOMENT]
        for node in tree.independent
        if node.kind.nv == 1 and node.name in bodies
    }
    size = max(1, NUMBERS // (robot.nv * 10 * max(len(tree.bodies), 1)))
    parts: dict[int, list[np.ndarray]] = {v: [] for v in own}
    for first in range(0, len(windows), size):
        rows = slice(first, first + size)
        matrix = regressor(rigid, windows.q[rows], windows.dq[rows], windows.ddq[rows])
        for v, places in own.items():
            parts[v].append(matrix[:, v, places])
    return {v: np.concatenate(each) for v, each in parts.items()}
