"""MuJoCo's forward dynamics for the same robot: an MjModel built in memory, number by number, from
a `Robot`.

A body per node, a joint per body, no geometry, nothing of MuJoCo that is not rigid-body dynamics:
no contacts, limits, springs, dampers, friction loss or automatic reset. Numbers go through MuJoCo's
mjSpec, not through XML, which has six digits. Bodies are compiled with inertias in no special
position and get their own afterwards: MuJoCo's compiler refuses massless frames between joints, and
takes shortcuts for bodies whose frames coincide, which would not hold once a payload is there.

Mimic joints, and rotors that tie joints together, are not MuJoCo's equality constraints, which are
springs: MuJoCo computes mass matrix and bias of the open tree, and the coordinate map G projects
them, q̈ = (GᵀDG + rotors)⁻¹(τ − Gᵀ bias).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from thetahat.errors import MissingExtra, UsageError
from thetahat.model import parameters
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind, Node
from thetahat.plant.physics_engine import (
    Engine,
    OwnEngine,
    StepArguments,
    rotation,
    rotors_alone,
    solved,
)

_OFF = (
    *("CONSTRAINT", "CONTACT", "LIMIT", "EQUALITY", "FRICTIONLOSS"),
    *("SPRING", "DAMPER", "ACTUATION", "SENSOR", "AUTORESET"),
)
ADDRESS = "_address"  # of the C structure behind an object of MuJoCo's bindings
# com, quaternion, moments: no special position
_ASKEW = ((0.31, -0.17, 0.23), (0.5, 0.1, -0.7, 0.5), (1.0, 1.1, 1.3))


def load_mujoco() -> ModuleType:
    """The module, or the sentence that says how to get it."""
    try:
        import mujoco
    except ImportError:
        raise MissingExtra(
            "the MuJoCo plant needs the extra 'mujoco': pip install 'thetahat[mujoco]'; the own"
            " plant needs nothing"
        ) from None
    module: ModuleType = mujoco
    return module


class SpecBody(Protocol):
    """The part of mjSpec's body that takes geometry."""

    def add_geom(self, **fields: object) -> object:
        """Add a shape."""


def build_model(
    robot: Robot, furnish: Callable[[SpecBody, list[SpecBody]], None] | None = None
) -> Any:
    """An MjModel of the robot's rigid bodies, joints in the order of its nodes, all independent;
    rotors on its diagonal where they fit there.

    furnish: adds geometry to the world and to bodies, one per node; nothing touches without.
    """
    mujoco = load_mujoco()
    spec = mujoco.MjSpec()
    spec.compiler.degree = False
    spec.compiler.alignfree = False
    spec.option.gravity = robot.gravity
    bodies: list[Any] = []
    for node in robot.tree.nodes:
        _require_known(robot, node)
        parent = spec.worldbody if node.parent < 0 else bodies[node.parent]
        body = parent.add_body(
            name=f"node{len(bodies)}", pos=node.translation, quat=quaternion(node.rotation)
        )
        body.explicitinertial, body.mass = True, 1.0
        body.ipos, body.iquat, body.inertia = _ASKEW
        body.add_joint(name=node.name, type=_joint_type(mujoco, node.kind), axis=node.axis)
        bodies.append(body)
    if furnish is not None:
        furnish(spec.worldbody, bodies)
    model = spec.compile()
    for name in _OFF:
        # a bit that this version has not, it need not
        model.opt.disableflags |= int(getattr(mujoco.mjtDisableBit, f"mjDSBL_{name}", 0))
    _fill_inertias(robot, model)
    mujoco.mj_setConst(model, mujoco.MjData(model))
    return model


def _require_known(robot: Robot, node: Node) -> None:
    turned = not np.array_equal(node.rotation, np.eye(3))
    moved = turned or np.any(node.translation) or node.parent >= 0
    planar = node.kind is JointKind.PLANAR
    if planar or (node.kind is JointKind.FREE and moved):
        elsewhere = "a free joint elsewhere than in the world's origin"
        what = "a planar joint" if planar else elsewhere
        raise UsageError(
            f"joint {node.name!r} of {robot.name!r} is {what}, which the MuJoCo plant does not"
            " take; use the own plant"
        )


def _joint_type(mujoco: ModuleType, kind: JointKind) -> Any:
    names = {
        JointKind.REVOLUTE: "HINGE",
        JointKind.PRISMATIC: "SLIDE",
        JointKind.BALL: "BALL",
        JointKind.FREE: "FREE",
    }
    return getattr(mujoco.mjtJoint, f"mjJNT_{names[kind]}")


def _fill_inertias(robot: Robot, model: Any) -> None:
    """Mass, centre and principal moments of every body; zeros for placeholders."""
    theta = np.zeros((len(robot.tree.nodes), 10))
    theta[list(robot.tree.bodies)] = robot.theta.reshape(-1, 10)
    for i, numbers in enumerate(theta, start=1):  # body 0 is the world
        mass, com, inertia = parameters.to_mass_com_inertia(numbers)
        moments, axes = np.linalg.eigh(inertia)
        if np.linalg.det(axes) < 0.0:
            axes[:, 0] *= -1.0
        model.body_mass[i], model.body_ipos[i] = mass, com
        model.body_inertia[i], model.body_iquat[i] = moments, quaternion(axes)


def quaternion(R: np.ndarray) -> np.ndarray:
    """(w, x, y, z) of a rotation: the eigenvector of its 4×4 matrix, which is good to rounding for
    every angle.
    """
    (xx, xy, xz), (yx, yy, yz), (zx, zy, zz) = np.asarray(R, dtype=float)
    K = np.array(
        [
            [xx + yy + zz, zy - yz, xz - zx, yx - xy],
            [zy - yz, xx - yy - zz, yx + xy, xz + zx],
            [xz - zx, yx + xy, yy - xx - zz, zy + yz],
            [yx - xy, xz + zx, zy + yz, zz - xx - yy],
        ]
    )
    return np.linalg.eigh(K)[1][:, -1]


@cache
def forward_address() -> int:
    """Where mj_forward of the installed MuJoCo lies in memory; 0 where it is not found."""
    folder = Path(str(load_mujoco().__file__)).parent
    for pattern in ("libmujoco.so*", "libmujoco*.dylib", "mujoco.dll"):
        for path in sorted(folder.glob(pattern)):
            try:
                function = ctypes.CDLL(str(path)).mj_forward
            except (OSError, AttributeError):
                continue
            return ctypes.cast(function, ctypes.c_void_p).value or 0
    return 0


class MujocoEngine(Engine):
    """MuJoCo's smooth forward dynamics in our coordinates."""

    def __init__(self, robot: Robot) -> None:
        self.robot = robot = rotors_alone(robot)
        self._mujoco = load_mujoco()
        tree = robot.tree
        self.model = build_model(robot)
        self.data = self._mujoco.MjData(self.model)
        geometry = tree.arrays.geometry
        self._scale, self._shift = geometry[:, 30].copy(), geometry[:, 31].copy()
        self._plain = all(node.kind.nq == 1 for node in tree.nodes)
        self._joints = [
            (node, tree.q_index[node.name], tree.v_index[node.name]) for node in tree.nodes
        ]
        self._source = np.array([tree.q_index[node.name] for node in tree.nodes])
        self._G = tree.coordinate_map if tree.has_mimic else None
        self._rotors = robot.drive.joint_armature()
        base = any(node.kind is JointKind.FREE for node in tree.nodes) and bool(
            np.any(self._rotors)
        )  # whose directions MuJoCo orders otherwise
        self._by_matrix = tree.has_mimic or robot.drive.couples_joints or base
        if not self._by_matrix:
            self.model.dof_armature[:] = np.diag(self._rotors)
        self._identity = self._plain and not self._by_matrix and not np.any(self._shift)
        self._full = np.empty((self.model.nv, self.model.nv))
        # before MuJoCo 4 mj_fullM took the sparse matrix itself
        self._old_full = hasattr(self.data, "qM")

    # -- acceleration ------------------------------------------------------------------------------

    def acceleration(
        self, q: np.ndarray, dq: np.ndarray, tau: np.ndarray, out: np.ndarray
    ) -> np.ndarray:
        """Fill `out` with q̈ by mj_forward."""
        data = self.data
        if self._identity:
            data.qpos[:], data.qvel[:], data.qfrc_applied[:] = q, dq, tau
            self._mujoco.mj_forward(self.model, data)
            out[:] = data.qacc
            return out
        self._place(q, dq)
        if self._by_matrix:
            data.qfrc_applied[:] = 0.0
            self._mujoco.mj_forward(self.model, data)
            turning = self._frame_rate(dq)
            bias = self._velocity_map(q).T @ data.qfrc_bias - self._rotors @ turning
            out[:] = solved(self._matrix(q), tau - bias) - turning
            return out
        # T is orthogonal here, so that T·τ does the work on qvel that τ does on dq
        T = None if self._plain else self._velocity_map(q)
        data.qfrc_applied[:] = tau if T is None else T @ tau
        self._mujoco.mj_forward(self.model, data)
        out[:] = data.qacc if T is None else T.T @ data.qacc - self._frame_rate(dq)
        return out

    def mass_matrix(self, q: np.ndarray) -> np.ndarray:
        """D(q) by mj_crb, projected where mimic joints are."""
        self._place(q, np.zeros(self.robot.nv))
        self._mujoco.mj_forward(self.model, self.data)
        return self._matrix(q)

    def _matrix(self, q: np.ndarray) -> np.ndarray:
        """D at the configuration that was placed last, with rotors."""
        if self._old_full:
            self._mujoco.mj_fullM(self.model, self._full, self.data.qM)
        else:
            self._mujoco.mj_fullM(self.model, self.data, self._full)
        if self._identity:
            return self._full
        T = self._velocity_map(q)
        D: np.ndarray = T.T @ self._full @ T
        return D + self._rotors if self._by_matrix else D

    def step_arguments(self) -> StepArguments | None:
        """mj_forward by its address, where its coordinates are ours."""
        data, model, function = self.data, self.model, forward_address()
        if not (self._identity and function and hasattr(data, "M")):
            return None
        own = OwnEngine(self.robot).step_arguments()  # not called; kernels want them all the same
        if own is None:
            return None
        where = (function, *(getattr(each, ADDRESS) for each in (model, data)))
        state = (data.qpos, data.qvel, data.qfrc_applied, data.qacc)
        matrix = (data.M, model.M_rownnz, model.M_rowadr, model.M_colind)
        return replace(own, foreign=(*where, *state, *matrix))

    # -- coordinates -------------------------------------------------------------------------------

    def _place(self, q: np.ndarray, dq: np.ndarray) -> None:
        """Our state as MuJoCo's: quaternions w first, a free joint's speed (linear in world axes,
        angular in body axes).
        """
        data = self.data
        if self._plain:
            data.qpos[:] = self._scale * q[self._source] + self._shift
            data.qvel[:] = dq if self._G is None else self._G @ dq
            return
        data.qvel[:] = self._velocity_map(q) @ dq
        for j, (node, at, _) in enumerate(self._joints):
            to = self.model.jnt_qposadr[j]
            match node.kind:
                case JointKind.BALL:
                    data.qpos[to : to + 4] = q[at + 3], *q[at : at + 3]
                case JointKind.FREE:
                    data.qpos[to : to + 7] = *q[at : at + 3], q[at + 6], *q[at + 3 : at + 6]
                case _:
                    data.qpos[to] = self._scale[j] * q[at] + self._shift[j]

    def _velocity_map(self, q: np.ndarray) -> np.ndarray:
        """T with qvel = T·dq: mimic ratios, and for a free joint [0 R; 1 0]."""
        if self._plain:
            return np.eye(self.robot.nv) if self._G is None else self._G
        T = np.zeros((self.model.nv, self.robot.nv))
        for j, (node, at, v) in enumerate(self._joints):
            to = self.model.jnt_dofadr[j]
            match node.kind:
                case JointKind.BALL:
                    T[to : to + 3, v : v + 3] = np.eye(3)
                case JointKind.FREE:
                    T[to : to + 3, v + 3 : v + 6] = rotation(q[at + 3 : at + 7])
                    T[to + 3 : to + 6, v : v + 3] = np.eye(3)
                case _:
                    T[to, v] += self._scale[j]
        return T

    def _frame_rate(self, dq: np.ndarray) -> np.ndarray:
        """A free joint's linear speed turns with its body, v̇_world = R(v̇ + ω × v): the ω × v,
        (nv,).
        """
        out = np.zeros(self.robot.nv)
        for node, _, v in self._joints:
            if node.kind is JointKind.FREE:
                out[v + 3 : v + 6] = np.cross(dq[v : v + 3], dq[v + 3 : v + 6])
        return out
