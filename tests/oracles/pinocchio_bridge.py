"""Pinocchio as an oracle: its model beside ours, with states and results carried over by joint
name.

Pinocchio sorts joints its own way, writes a continuous joint as (cos, sin), puts the linear part of
a twist first, and orders a body's ten numbers as (m, mcx, mcy, mcz, Ixx, Ixy, Iyy, Ixz, Iyz, Izz).
Nothing of this leaves this file.

Two ways to a model: `from_urdf`, Pinocchio's own reading of the file, mimic joints included; and
`from_robot`, a model built joint by joint from a `Robot` that has no file. The latter has every
joint move by itself; results are then projected to the robot's coordinates by virtual work.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pinocchio as pin

from thetahat.model import parameters
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind, Node

_ORDER = [
    ("m", "mcx", "mcy", "mcz", "Ixx", "Ixy", "Iyy", "Ixz", "Iyz", "Izz").index(name)
    for name in parameters.NAMES
]
_SWAP = np.array([3, 4, 5, 0, 1, 2])  # a free joint's twist: ours is angular first


@dataclass(frozen=True, eq=False)
class Oracle:
    """A Pinocchio model that takes and gives our coordinates; one sample per call."""

    robot: Robot
    model: Any
    moving: tuple[Node, ...]  # the joints with coordinates of their own over there
    to_moving: np.ndarray  # (degrees of freedom of `moving`, nv): their velocities from ours
    turned: dict[int, np.ndarray] = field(
        default_factory=dict
    )  # per body whose frame is turned there: θ there = this · θ here
    data: Any = field(init=False)
    velocity: np.ndarray = field(init=False)  # (model.nv, nv): Pinocchio's velocity = this · ours
    columns: np.ndarray = field(init=False)  # Pinocchio's regressor column of each of ours

    def __post_init__(self) -> None:
        order, at = np.zeros(self.model.nv, dtype=int), 0
        for node in self.moving:
            joint = self._joint(node)
            rows = np.arange(node.kind.nv)
            order[joint.idx_v + (_SWAP if node.kind is JointKind.FREE else rows)] = at + rows
            at += node.kind.nv
        assert at == self.model.nv, "the two models have different joints"
        ids = [self.model.getJointId(self.robot.tree.nodes[i].name) for i in self.robot.tree.bodies]
        columns = np.array([10 * (i - 1) + k for i in ids for k in _ORDER], dtype=int)
        for name, value in (
            ("data", self.model.createData()),
            ("velocity", self.to_moving[order]),
            ("columns", columns),
        ):
            object.__setattr__(self, name, value)

    def _project(self, rows: np.ndarray) -> np.ndarray:
        """velocityᵀ · rows, (samples, model.nv, n) → (samples, nv, n); where velocities are only
        reordered, without a product.
        """
        reordered = np.array_equal(self.velocity @ self.velocity.T, np.eye(self.model.nv))
        return rows[:, np.argmax(self.velocity, axis=0)] if reordered else self.velocity.T @ rows

    def _joint(self, node: Node) -> Any:
        return self.model.joints[self.model.getJointId(node.name)]

    def configuration(self, q: np.ndarray) -> np.ndarray:
        """Pinocchio's q, (samples, model.nq), from ours."""
        out = np.zeros((len(q), self.model.nq))
        for node in self.moving:
            joint, at = self._joint(node), self.robot.tree.q_index[node.name]
            value = q[:, at : at + node.kind.nq]
            if node.kind.nq == 1:
                ratio, offset = (
                    (node.mimic.multiplier, node.mimic.offset) if node.mimic else (1.0, 0.0)
                )
                value = ratio * value + (offset + node.joint.offset)
            if joint.nq == node.kind.nq + 1:  # (…, angle) is (…, cos, sin) over there
                value = np.concatenate(
                    [value[:, :-1], np.cos(value[:, -1:]), np.sin(value[:, -1:])], axis=1
                )
            out[:, joint.idx_q : joint.idx_q + joint.nq] = value
        return out

    def inverse_dynamics(self, q: np.ndarray, dq: np.ndarray, ddq: np.ndarray) -> np.ndarray:
        """τ, (samples, nv), by `pinocchio.rnea`."""
        states = zip(
            self.configuration(q), dq @ self.velocity.T, ddq @ self.velocity.T, strict=True
        )
        return (
            np.array([pin.rnea(self.model, self.data, *state) for state in states]) @ self.velocity
        )

    def gravity(self, q: np.ndarray) -> np.ndarray:
        """G, (samples, nv), by `pinocchio.computeGeneralizedGravity`."""
        return (
            np.array(
                [
                    pin.computeGeneralizedGravity(self.model, self.data, x)
                    for x in self.configuration(q)
                ]
            )
            @ self.velocity
        )

    def mass_matrix(self, q: np.ndarray) -> np.ndarray:
        """D, (samples, nv, nv), by `pinocchio.crba`."""
        upper = np.triu(
            np.array([pin.crba(self.model, self.data, x) for x in self.configuration(q)])
        )
        return self.velocity.T @ (upper + np.swapaxes(np.triu(upper, 1), -1, -2)) @ self.velocity

    def regressor(self, q: np.ndarray, dq: np.ndarray, ddq: np.ndarray) -> np.ndarray:
        """Y, (samples, nv, 10·bodies), by `pinocchio.computeJointTorqueRegressor`."""
        states = zip(
            self.configuration(q), dq @ self.velocity.T, ddq @ self.velocity.T, strict=True
        )
        Y = np.array(
            [pin.computeJointTorqueRegressor(self.model, self.data, *state) for state in states]
        )
        Y = self._project(
            np.take(Y.reshape(len(q), self.model.nv, -1), self.columns, axis=2)
        )  # eigenpy drops the axis of a single row
        for body, T in self.turned.items():
            Y[..., 10 * body : 10 * body + 10] = Y[..., 10 * body : 10 * body + 10] @ T
        return Y


def from_urdf(
    path: Path, robot: Robot, *, floating_base: bool = False, mimic: bool = True
) -> Oracle:
    """Pinocchio's own model of the file; with `mimic=False` followers move by themselves there and
    are projected here.
    """
    base = (pin.JointModelFreeFlyer(),) if floating_base else ()
    model = pin.buildModelFromUrdf(str(path), *base, mimic=mimic and robot.tree.has_mimic)
    model.gravity = pin.Motion(robot.gravity, np.zeros(3))
    tree = robot.tree
    return (
        Oracle(robot, model, tree.independent, np.eye(tree.nv))
        if model.nv == tree.nv
        else Oracle(robot, model, tree.nodes, _followers(robot))
    )


def from_robot(robot: Robot) -> Oracle:
    """A model built joint by joint from the tree: the meaning of every kind of joint is Pinocchio's
    own.
    """
    model = pin.Model()
    model.gravity = pin.Motion(robot.gravity, np.zeros(3))
    theta = dict(zip(robot.tree.bodies, robot.theta.reshape(-1, 10), strict=True))
    frames: list[Any] = []  # our node frame in Pinocchio's joint frame
    turned = {
        body: _turn(_into_plane(n.axis))
        for body, i in enumerate(robot.tree.bodies)
        if (n := robot.tree.nodes[i]).kind is JointKind.PLANAR
    }
    for i, node in enumerate(robot.tree.nodes):
        inside = (
            pin.SE3(_into_plane(node.axis), np.zeros(3))
            if node.kind is JointKind.PLANAR
            else pin.SE3.Identity()
        )
        parent, above = (
            (0, pin.SE3.Identity())
            if node.parent < 0
            else (model.getJointId(robot.tree.nodes[node.parent].name), frames[node.parent])
        )
        frames.append(inside)
        placement = above * pin.SE3(node.rotation, node.translation) * inside.inverse()
        index = model.addJoint(parent, _joint_model(node), placement, node.name)
        if i in theta:
            model.appendBodyToJoint(index, _inertia(theta[i][np.argsort(_ORDER)]), inside)
    return Oracle(robot, model, robot.tree.nodes, _followers(robot), turned)


def _joint_model(node: Node) -> Any:
    match node.kind:
        case JointKind.REVOLUTE:
            return pin.JointModelRevoluteUnaligned(node.axis)
        case JointKind.PRISMATIC:
            return pin.JointModelPrismaticUnaligned(node.axis)
        case JointKind.PLANAR:
            return pin.JointModelPlanar()
        case JointKind.BALL:
            return pin.JointModelSpherical()
        case _:
            return pin.JointModelFreeFlyer()


def _into_plane(normal: np.ndarray) -> np.ndarray:
    """The shortest rotation that takes the normal to z, Pinocchio's normal; about x where they are
    opposite.
    """
    if normal[2] < -1.0 + 1e-12:
        return np.diag([1.0, -1.0, -1.0])
    return pin.Quaternion.FromTwoVectors(normal, np.array([0.0, 0.0, 1.0])).toRotationMatrix()


def _turn(R: np.ndarray) -> np.ndarray:
    """(10, 10): θ of a body seen from axes turned by R, column by column: Ī → R Ī Rᵀ, m·c →
    R m·c.
    """
    out = np.empty((10, 10))
    for k in range(10):
        unit = np.zeros(10)
        unit[k] = 1.0
        mass, moment, inertia = (
            unit[parameters.M],
            parameters.first_moment(unit),
            parameters.inertia_about_origin(unit),
        )
        out[:, k] = parameters.from_origin(mass, R @ moment, R @ inertia @ R.T)
    return out


def _inertia(ten: np.ndarray) -> Any:
    return pin.Inertia.Zero() if ten[0] == 0.0 else pin.Inertia.FromDynamicParameters(ten)


def _followers(robot: Robot) -> np.ndarray:
    """Velocities of all joints from the robot's own, by what `Mimic` says."""
    tree = robot.tree
    out = np.zeros((sum(node.kind.nv for node in tree.nodes), tree.nv))
    at = 0
    for node in tree.nodes:
        first = tree.v_index[node.mimic.joint if node.mimic else node.name]
        for k in range(node.kind.nv):
            out[at + k, first + k] = node.mimic.multiplier if node.mimic else 1.0
        at += node.kind.nv
    return out
