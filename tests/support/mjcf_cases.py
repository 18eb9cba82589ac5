"""MJCF texts, and a robot's kinematics and mass matrix written out plainly, beside MuJoCo's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from thetahat.model import parameters
from thetahat.model.io.mjcf import read_mjcf
from thetahat.model.io.xml_reader import read_xml
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind, Node

mujoco = pytest.importorskip("mujoco")

# Both sides are double precision; the robots are a few metres and kilograms, the chains under 10
# joints long.
TOLERANCE = 1e-9
INERTIAL = (
    '<inertial pos="0.1 -0.05 0.2" quat="0.9 0.1 -0.3 0.2" mass="1.5" diaginertia="0.02 0.03'
    ' 0.04"/>'
)


def save(text: str, name: str = "robot.xml") -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def mjcf(body: str, before: str = "", after: str = "") -> str:
    return f'<mujoco model="test">{before}<worldbody>{body}</worldbody>{after}</mujoco>'


def load(text: str, **options: object) -> Robot:
    return read_mjcf(read_xml(save(text)), **options)


# -- the robot's kinematics and mass matrix, from the definition of its nodes ----------------------


def turn(axis: np.ndarray, angle: float) -> np.ndarray:
    c = parameters.skew(axis)
    return np.eye(3) + np.sin(angle) * c + (1.0 - np.cos(angle)) * c @ c


def quaternion_matrix(x: float, y: float, z: float, w: float) -> np.ndarray:
    out = np.empty(9)
    mujoco.mju_quat2Mat(out, np.array([w, x, y, z]) / np.linalg.norm([w, x, y, z]))
    return out.reshape(3, 3)


def displaced(node: Node, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Placement of the node's frame in its parent's at q."""
    rotation, translation = node.rotation, node.translation
    match node.kind:
        case JointKind.REVOLUTE:
            return rotation @ turn(node.axis, q[0] + node.joint.offset), translation
        case JointKind.PRISMATIC:
            return rotation, translation + rotation @ node.axis * (q[0] + node.joint.offset)
        case JointKind.BALL:
            return rotation @ quaternion_matrix(*q), translation
        case JointKind.FREE:
            return rotation @ quaternion_matrix(*q[3:]), translation + rotation @ q[:3]
    raise AssertionError(node.kind)


def node_frames(robot: Robot, q: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    frames: list[tuple[np.ndarray, np.ndarray]] = []
    for node in robot.tree.nodes:
        at = robot.tree.q_index[node.name]
        rotation, translation = displaced(node, q[at : at + node.kind.nq])
        if node.parent >= 0:
            above, origin = frames[node.parent]
            rotation, translation = above @ rotation, origin + above @ translation
        frames.append((rotation, translation))
    return frames


def screws(node: Node) -> np.ndarray:
    """Free directions of a joint in its own frame, (6, dofs), angular first."""
    match node.kind:
        case JointKind.REVOLUTE:
            return np.r_[node.axis, np.zeros(3)][:, None]
        case JointKind.PRISMATIC:
            return np.r_[np.zeros(3), node.axis][:, None]
        case JointKind.BALL:
            return np.eye(6)[:, :3]
    return np.eye(6)


def dynamics(robot: Robot, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mass matrix Σ JᵀI J and gravity torque, body by body."""
    frames = node_frames(robot, q)
    mass, gravity = np.zeros((robot.nv, robot.nv)), np.zeros(robot.nv)
    for theta, body in zip(robot.theta.reshape(-1, 10), robot.tree.bodies, strict=True):
        rotation, origin = frames[body]
        jacobian = np.zeros((6, robot.nv))  # twist of the body in its own frame
        joint = body
        while joint >= 0:
            node = robot.tree.nodes[joint]
            relative, away = rotation.T @ frames[joint][0], rotation.T @ (frames[joint][1] - origin)
            motion = np.block(
                [[relative, np.zeros((3, 3))], [parameters.skew(away) @ relative, relative]]
            )
            at = robot.tree.v_index[node.name]
            jacobian[:, at : at + node.kind.nv] = motion @ screws(node)
            joint = node.parent
        mass += jacobian.T @ parameters.to_spatial_inertia(theta) @ jacobian
        g = rotation.T @ robot.gravity
        gravity -= (
            jacobian.T @ np.r_[np.cross(parameters.first_moment(theta), g), theta[parameters.M] * g]
        )
    return mass, gravity


# -- the same, from MuJoCo -------------------------------------------------------------------------


def random_q(robot: Robot, rng: np.random.Generator) -> np.ndarray:
    q = rng.uniform(-2.0, 2.0, robot.nq)
    for node in robot.tree.nodes:
        if node.kind in (JointKind.BALL, JointKind.FREE):
            at = robot.tree.q_index[node.name] + node.kind.nq - 4
            q[at : at + 4] /= np.linalg.norm(q[at : at + 4])
    return q


def to_mujoco(robot: Robot, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """MuJoCo's qpos (w first), and T with qvel = T·dq (MuJoCo's free joint: linear in world axes,
    then angular in the body's).
    """
    qpos, velocity = q.copy(), np.eye(robot.nv)
    for node in robot.tree.nodes:
        at, dof = robot.tree.q_index[node.name] + node.kind.nq - 4, robot.tree.v_index[node.name]
        if node.kind in (JointKind.BALL, JointKind.FREE):
            qpos[at : at + 4] = q[at + 3], *q[at : at + 3]
        if node.kind is JointKind.FREE:
            block = np.zeros((6, 6))
            block[:3, 3:], block[3:, :3] = quaternion_matrix(*q[at : at + 4]), np.eye(3)
            velocity[dof : dof + 6, dof : dof + 6] = block
    return qpos, velocity


def assert_same(robot: Robot, model: mujoco.MjModel, seed: int = 0) -> None:
    """Link placements, centre of mass, mass matrix and gravity torque at random configurations."""
    assert (robot.nq, robot.nv) == (model.nq, model.nv)
    rng = np.random.default_rng(seed)
    data = mujoco.MjData(model)
    by_name = {link.name: link for link in robot.links}
    for _ in range(3):
        q = random_q(robot, rng)
        qpos, velocity = to_mujoco(robot, q)
        data.qpos[:], data.qvel[:] = qpos, 0.0
        mujoco.mj_forward(model, data)
        frames = node_frames(robot, q)
        for i in range(1, model.nbody):
            link = by_name[model.body(i).name or f"body{i}"]
            rotation, translation = link.rotation, link.translation
            if link.body >= 0:
                above, origin = frames[robot.tree.bodies[link.body]]
                rotation, translation = above @ rotation, origin + above @ translation
            np.testing.assert_allclose(translation, data.xpos[i], atol=TOLERANCE, rtol=0)
            np.testing.assert_allclose(rotation, data.xmat[i].reshape(3, 3), atol=TOLERANCE, rtol=0)
        inertia = np.zeros((model.nv, model.nv))
        mujoco.mj_fullM(model, data, inertia)
        inertia -= np.diag(model.dof_armature)
        mass, gravity = dynamics(robot, q)
        scale = max(1.0, float(np.max(np.abs(inertia), initial=0.0)))
        np.testing.assert_allclose(
            mass, velocity.T @ inertia @ velocity, atol=TOLERANCE * scale, rtol=0
        )
        np.testing.assert_allclose(
            gravity, velocity.T @ data.qfrc_bias, atol=TOLERANCE * scale, rtol=0
        )


def check(text: str, **others: str) -> Robot:
    """Read the file and compare with MuJoCo's reading of the same file."""
    for name, content in others.items():
        save(content, name.replace("__", "/") + ".xml")
    robot = load(text)
    assert_same(robot, mujoco.MjModel.from_xml_path("robot.xml"))
    return robot
