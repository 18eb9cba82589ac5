"""Assemble a `Robot` from the links and joints of a file, of whatever format.

Readers (`urdf.py`, `mjcf.py`) check what their format asks for and hand over a list of links and
joints; everything that is the same for both happens here: depth-first order, fixed joints merged
into their parents, anchors off the link's origin, a floating base, drive terms.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from thetahat.errors import RobotWarning
from thetahat.model import parameters
from thetahat.model.drive import Drive
from thetahat.model.friction_terms import spring
from thetahat.model.robot import STANDARD_GRAVITY, Link, Robot
from thetahat.model.tree import Joint, JointKind, Node, Tree

FLOATING_BASE = "root_joint"


@dataclass(frozen=True, eq=False)
class LinkSpec:
    """A link as its file states it."""

    name: str
    theta: np.ndarray = field(default_factory=lambda: np.zeros(10))  # in the link's frame
    has_inertia: bool = True
    placeholder: bool = False  # stands between two joints of one body, carries no parameters


class Pose(NamedTuple):
    """Rotation (3, 3) and translation (3,) [m] of one frame in another."""

    rotation: np.ndarray
    translation: np.ndarray


@dataclass(frozen=True, eq=False)
class JointSpec:
    """A joint as its file states it; kind None is a fixed joint."""

    name: str
    kind: JointKind | None
    parent: str
    child: str
    pose: Pose  # of the child link's frame in the parent link's frame at q = 0
    # child link's axes, unit
    axis: np.ndarray = field(default_factory=lambda: np.array([1.0, 0.0, 0.0]))
    # a point on the joint axis, child link's frame [m]
    anchor: np.ndarray = field(default_factory=lambda: np.zeros(3))
    joint: Joint = field(default_factory=Joint)


@dataclass(frozen=True, eq=False)
class _Frame:
    """Where a link's frame stands: in node `node` (−1 the world) at (rotation, translation)."""

    node: int
    rotation: np.ndarray
    translation: np.ndarray


def assemble(
    name: str,
    links: list[LinkSpec],
    joints: list[JointSpec],
    *,
    root: str,
    floating_base: bool = False,
    gravity: np.ndarray | tuple[float, ...] = STANDARD_GRAVITY,
    source: Path | None = None,
    notes: tuple[str, ...] = (),
) -> Robot:
    """Build the robot. The readers guarantee one tree under `root`: unique names, no loops, every
    link reached once.
    """
    nodes: list[Node] = []
    if floating_base:
        taken = {joint.name for joint in joints}
        base = FLOATING_BASE if FLOATING_BASE not in taken else f"{root}.{FLOATING_BASE}"
        up = np.array([0.0, 0.0, 1.0])
        nodes.append(Node(base, JointKind.FREE, -1, np.eye(3), np.zeros(3), up, root))
    frames = {root: _Frame(len(nodes) - 1, np.eye(3), np.zeros(3))}
    placeholders = {link.name for link in links if link.placeholder}
    for joint in _depth_first(joints, root):
        parent = frames[joint.parent]
        rotation = parent.rotation @ joint.pose.rotation
        translation = parent.translation + parent.rotation @ joint.pose.translation
        if joint.kind is None:
            frames[joint.child] = _Frame(parent.node, rotation, translation)
            continue
        frames[joint.child] = _Frame(len(nodes), np.eye(3), -joint.anchor)
        node = Node(
            name=joint.name,
            kind=joint.kind,
            parent=parent.node,
            rotation=rotation,
            translation=translation + rotation @ joint.anchor,
            axis=joint.axis,
            body=None if joint.child in placeholders else joint.child,
            joint=joint.joint,
        )
        nodes.append(node)
    tree = Tree(tuple(nodes))
    robot = Robot(
        name=name,
        tree=tree,
        theta=_body_parameters(tree, links, frames),
        drive=_drive(tree),
        gravity=np.asarray(gravity, dtype=float),
        links=_links(tree, links, frames, _parents(joints, placeholders)),
        source=source,
        notes=notes,
    )
    warn_if_unphysical(robot)
    return robot


def _depth_first(joints: list[JointSpec], root: str) -> Iterator[JointSpec]:
    """The joints from the root down, children in file order."""
    children: dict[str, list[JointSpec]] = {}
    for joint in reversed(joints):
        children.setdefault(joint.parent, []).append(joint)
    stack = children.get(root, [])
    while stack:
        joint = stack.pop()
        yield joint
        stack.extend(children.get(joint.child, []))


def _body_parameters(tree: Tree, links: list[LinkSpec], frames: dict[str, _Frame]) -> np.ndarray:
    """θ of every body: the sum of its links, each moved into the body's frame."""
    theta = np.zeros((len(tree.nodes), 10))
    for link in links:
        frame = frames[link.name]
        if frame.node >= 0 and np.any(link.theta):
            theta[frame.node] += parameters.transform(link.theta, frame.rotation, frame.translation)
    return theta[list(tree.bodies)].ravel()


def _parents(joints: list[JointSpec], placeholders: set[str]) -> dict[str, str]:
    """The link that each link hangs on; placeholders are none."""
    above = {joint.child: joint.parent for joint in joints}
    out = {}
    for child in above:
        parent = above[child]
        while parent in placeholders and parent in above:
            parent = above[parent]
        out[child] = parent
    return out


def _links(
    tree: Tree, links: list[LinkSpec], frames: dict[str, _Frame], parents: dict[str, str]
) -> tuple[Link, ...]:
    body_of_node = {node: body for body, node in enumerate(tree.bodies)}
    return tuple(
        Link(
            name=link.name,
            body=body_of_node.get(frames[link.name].node, -1),
            rotation=frames[link.name].rotation,
            translation=frames[link.name].translation,
            theta=link.theta,
            has_inertia=link.has_inertia,
            parent=parents.get(link.name),
        )
        for link in links
        if not link.placeholder
    )


def _drive(tree: Tree) -> Drive:
    """Drive terms the file states, per coordinate. A mimic joint's reach its reference by virtual
    work.

    With q_m = k q + c: viscous, armature and stiffness by k², Coulomb by |k|. Springs are stated
    where all joints have one degree of freedom.
    """
    viscous, coulomb, offset, armature, stiffness = np.zeros((5, tree.nv))
    for node in tree.nodes:
        ratio = node.mimic.multiplier if node.mimic else 1.0
        constant = node.mimic.offset if node.mimic else 0.0
        at = slice(tree.v_index[node.name], tree.v_index[node.name] + node.kind.nv)
        viscous[at] += ratio**2 * node.joint.damping
        coulomb[at] += abs(ratio) * node.joint.friction
        armature[at] += ratio**2 * node.joint.armature
        across = node.joint.spring
        stiffness[at] += ratio**2 * across.stiffness
        offset[at] += ratio * across.stiffness * (constant - across.rest)
    if not np.any(stiffness) or any(node.kind.nv > 1 for node in tree.nodes):
        return Drive(viscous, coulomb, np.zeros(tree.nv), armature)
    springs = spring((stiffness != 0.0).astype(float)), stiffness
    return Drive(viscous, coulomb, offset, armature, extra=(springs,))


def warn_if_unphysical(robot: Robot) -> None:
    """Warn, naming link and condition, about inertia no rigid body can have: such files load, as
    priors.
    """
    where = f"{robot.source.name}: " if robot.source else ""
    for link in robot.links:
        if link.body < 0:
            continue
        verdict = parameters.check(link.theta)
        if not verdict:
            warnings.warn(
                f"{where}link {link.name!r} is not physical: {verdict.condition}",
                RobotWarning,
                stacklevel=3,
            )
    theta = robot.theta.reshape(-1, 10)
    leaves = set(range(len(robot.tree.nodes))) - {node.parent for node in robot.tree.nodes}
    for body, node in enumerate(robot.tree.bodies):
        if node in leaves and theta[body, parameters.M] == 0.0:
            text = (
                f"link {robot.body_names[body]!r} moves, carries nothing and has no mass, so the"
                " mass matrix is singular"
            )
            warnings.warn(f"{where}{text}", RobotWarning, stacklevel=3)
