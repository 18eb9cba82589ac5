"""MuJoCo as an oracle: its own reading of an MJCF file beside ours, states and torques carried
over.

MuJoCo writes quaternions w first, and a free joint's velocity as (linear in world axes, angular in
body axes). `mj_inverse` holds damping and rotor inertia; constraints (contacts, limits, friction
loss, equalities), gravity compensation, tendons' springs, damping and inertia, actuators and fluid
are switched off, for the robot here has none of them; so are joint springs that are not linear, and
all of them beside joints of several degrees of freedom.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind, Node

_OFF = (
    "CONSTRAINT",
    "CONTACT",
    "LIMIT",
    "EQUALITY",
    "FRICTIONLOSS",
    "ACTUATION",
    "AUTORESET",
    "SENSOR",
)


@dataclass(frozen=True, eq=False)
class Oracle:
    """A MuJoCo model that takes and gives our coordinates."""

    robot: Robot
    model: Any
    data: Any = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", mujoco.MjData(self.model))
        assert (self.model.nq, self.model.nv) == (self.robot.nq, self.robot.nv)
        for j, node in enumerate(self.robot.tree.nodes):  # both depth first, children in file order
            assert self.model.joint(j).name in ("", node.name)

    def _joints(self) -> list[tuple[Node, int, int]]:
        return [
            (node, self.model.jnt_qposadr[j], self.model.jnt_dofadr[j])
            for j, node in enumerate(self.robot.tree.nodes)
        ]

    def state(
        self, q: np.ndarray, dq: np.ndarray, ddq: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """MuJoCo's (qpos, qvel, qacc), (samples, ·) each, from ours."""
        qpos, qvel, qacc = q.copy(), dq.copy(), ddq.copy()
        for node, at, v in self._joints():
            if node.kind in (JointKind.BALL, JointKind.FREE):
                end = at + node.kind.nq
                qpos[:, end - 4 : end] = np.roll(q[:, end - 4 : end], 1, axis=1)
            if node.kind is JointKind.FREE:
                R, w, linear = (
                    _rotations(q[:, at + 3 : at + 7]),
                    dq[:, v : v + 3],
                    dq[:, v + 3 : v + 6],
                )
                # v_world = R v, so its rate is R (v̇ + ω × v).
                qvel[:, v : v + 3], qvel[:, v + 3 : v + 6] = _times(R, linear), w
                qacc[:, v : v + 3], qacc[:, v + 3 : v + 6] = (
                    _times(R, ddq[:, v + 3 : v + 6] + np.cross(w, linear)),
                    ddq[:, v : v + 3],
                )
        return qpos, qvel, qacc

    def inverse_dynamics(self, q: np.ndarray, dq: np.ndarray, ddq: np.ndarray) -> np.ndarray:
        """τ, (samples, nv), by `mj_inverse`: rigid bodies, damping and rotor inertia."""
        force = np.empty_like(dq)
        for k, (qpos, qvel, qacc) in enumerate(zip(*self.state(q, dq, ddq), strict=True)):
            self.data.qpos[:], self.data.qvel[:], self.data.qacc[:] = qpos, qvel, qacc
            mujoco.mj_inverse(self.model, self.data)
            force[k] = self.data.qfrc_inverse
        out = force.copy()
        for node, at, v in self._joints():
            if node.kind is JointKind.FREE:
                R = _rotations(q[:, at + 3 : at + 7])
                out[:, v : v + 3], out[:, v + 3 : v + 6] = (
                    force[:, v + 3 : v + 6],
                    _times(np.swapaxes(R, 1, 2), force[:, v : v + 3]),
                )
        return out


def from_mjcf(path: Path, robot: Robot) -> Oracle:
    """MuJoCo's own model of the file, reduced to rigid bodies, damping and rotor inertia of one-DOF
    and ball joints.
    """
    model = mujoco.MjModel.from_xml_path(str(path))
    for name in _OFF:
        model.opt.disableflags |= getattr(mujoco.mjtDisableBit, f"mjDSBL_{name}")
    model.opt.density = model.opt.viscosity = 0.0
    model.opt.gravity[:] = robot.gravity
    model.body_gravcomp[:] = 0.0
    for name in (
        "tendon_stiffness",
        "tendon_damping",
        "tendon_armature",
        "dof_frictionloss",
        "jnt_stiffnesspoly",
        *(("jnt_stiffness",) if model.nv > model.njnt else ()),
    ):
        if hasattr(model, name):
            getattr(model, name)[:] = 0.0
    for j in np.flatnonzero(
        model.jnt_type == mujoco.mjtJoint.mjJNT_FREE
    ):  # a rotor that moves along world axes: see `comparable`
        model.dof_armature[model.jnt_dofadr[j] : model.jnt_dofadr[j] + 6] = 0.0
        model.dof_damping[model.jnt_dofadr[j] : model.jnt_dofadr[j] + 6] = 0.0
    return Oracle(robot, model)


def comparable(robot: Robot) -> Robot:
    """The robot without what `from_mjcf` takes away: Coulomb friction, and drive terms of free
    joints.
    """
    viscous, armature = robot.drive.viscous.copy(), robot.drive.armature.copy()
    for node in robot.tree.nodes:
        if node.kind is JointKind.FREE:
            at = slice(robot.tree.v_index[node.name], robot.tree.v_index[node.name] + 6)
            viscous[at] = armature[at] = 0.0
    return replace(
        robot,
        drive=replace(robot.drive, viscous=viscous, armature=armature, coulomb=np.zeros(robot.nv)),
    )


def _times(R: np.ndarray, a: np.ndarray) -> np.ndarray:
    return np.einsum("sij,sj->si", R, a)


def _rotations(quaternions: np.ndarray) -> np.ndarray:
    """(samples, 3, 3) by MuJoCo itself, from (x, y, z, w)."""
    out = np.empty((len(quaternions), 9))
    for row, (x, y, z, w) in zip(out, quaternions, strict=True):
        mujoco.mju_quat2Mat(row, np.array([w, x, y, z]))
    return out.reshape(-1, 3, 3)
