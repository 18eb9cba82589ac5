"""Lock joints of a robot: what they carry is welded to what carries them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from thetahat.errors import UsageError, known
from thetahat.model import friction_terms, parameters
from thetahat.model.drive import TERMS, Drive
from thetahat.model.robot import Link, Robot
from thetahat.model.tree import JointKind, Node, Tree


@dataclass(frozen=True, eq=False)
class _Place:
    """Where a node's frame stands: in the kept node `node` (−1 the world) at (rotation,
    translation).
    """

    node: int
    rotation: np.ndarray
    translation: np.ndarray


def lock(robot: Robot, joints: Iterable[str]) -> Robot:
    """Return the robot with these joints held at q = 0, or unturned: fewer coordinates and bodies,
    the same motion of all others.

    Joints that mimic a locked one are locked with it.
    """
    joints = set(joints)
    for name in joints - set(robot.joint_names):
        raise UsageError(
            f"joint {name!r} cannot be locked: it is not among the movable joints of"
            f" {robot.name!r}: {known(robot.joint_names)}"
        )
    if not joints:
        return robot
    if robot.drive.actuation is not None:
        raise UsageError(
            f"robot {robot.name!r} has an actuation map; lock its joints first, then give the map"
            " of those that are left"
        )
    stays = [
        node.name not in joints and (node.mimic is None or node.mimic.joint not in joints)
        for node in robot.tree.nodes
    ]
    places = _places(robot.tree, stays)
    theta, carriers = _merged(robot, places, sum(stays))
    tree = Tree(tuple(_nodes(robot.tree, stays, places, carriers)))
    body_of = {node: body for body, node in enumerate(tree.bodies)}
    return replace(
        robot,
        tree=tree,
        theta=theta[list(tree.bodies)].ravel(),
        drive=_drive(robot.drive, kept_positions(robot, joints)[1].tolist()),
        links=tuple(_link(robot, link, places, body_of) for link in robot.links),
    )


def kept_positions(robot: Robot, locked: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions in q and in dq that are left when these joints are locked."""
    locked = set(locked)
    free = [node for node in robot.tree.independent if node.name not in locked]
    q = [robot.tree.q_index[node.name] + k for node in free for k in range(node.kind.nq)]
    v = [robot.tree.v_index[node.name] + k for node in free for k in range(node.kind.nv)]
    return np.array(q, dtype=int), np.array(v, dtype=int)


def _at_rest(node: Node) -> tuple[np.ndarray, np.ndarray]:
    """Rotation and translation of a node in its parent with its own coordinate, or that of the
    joint it mimics, at zero.
    """
    shift = node.joint.offset + (node.mimic.offset if node.mimic else 0.0)
    if node.kind is JointKind.PRISMATIC:
        return node.rotation, node.translation + node.rotation @ node.axis * shift
    if node.kind is JointKind.REVOLUTE and shift:
        x, y, z = node.axis
        cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
        turn = np.eye(3) + np.sin(shift) * cross + (1.0 - np.cos(shift)) * cross @ cross
        return node.rotation @ turn, node.translation
    return node.rotation, node.translation


def _places(tree: Tree, stays: list[bool]) -> list[_Place]:
    """For every node of the tree, the kept node it moves with and where it stands in it."""
    places: list[_Place] = []
    count = 0
    for node, stay in zip(tree.nodes, stays, strict=True):
        if stay:
            places.append(_Place(count, np.eye(3), np.zeros(3)))
            count += 1
            continue
        above = places[node.parent] if node.parent >= 0 else _Place(-1, np.eye(3), np.zeros(3))
        R, p = _at_rest(node)
        places.append(
            _Place(above.node, above.rotation @ R, above.translation + above.rotation @ p)
        )
    return places


def _merged(robot: Robot, places: list[_Place], count: int) -> tuple[np.ndarray, list[str | None]]:
    """(θ, name of its first body) of every kept node: all bodies that move with it, in its
    frame.
    """
    theta = np.zeros((count, 10))
    carriers: list[str | None] = [None] * count
    for own, at in zip(robot.theta.reshape(-1, 10), robot.tree.bodies, strict=True):
        place = places[at]
        if place.node >= 0:
            theta[place.node] += parameters.transform(own, place.rotation, place.translation)
            carriers[place.node] = carriers[place.node] or robot.tree.nodes[at].body
    return theta, carriers


def _nodes(
    tree: Tree, stays: list[bool], places: list[_Place], carriers: list[str | None]
) -> Iterable[Node]:
    for node, stay, place in zip(tree.nodes, stays, places, strict=True):
        if not stay:
            continue
        above = places[node.parent] if node.parent >= 0 else _Place(-1, np.eye(3), np.zeros(3))
        yield replace(
            node,
            parent=above.node,
            rotation=above.rotation @ node.rotation,
            translation=above.translation + above.rotation @ node.translation,
            body=carriers[place.node],
        )


def _link(robot: Robot, link: Link, places: list[_Place], body_of: dict[int, int]) -> Link:
    if link.body < 0:
        return link
    place = places[robot.tree.bodies[link.body]]
    return replace(
        link,
        body=body_of.get(place.node, -1),
        rotation=place.rotation @ link.rotation,
        translation=place.translation + place.rotation @ link.translation,
    )


def _drive(drive: Drive, kept: list[int]) -> Drive:
    motors, rotors = drive.motors, drive.rotors
    return replace(
        Drive.none(len(kept)).with_values(**{term: drive.value(term)[kept] for term in TERMS}),
        extra=tuple(
            (friction_terms.for_motors(shape, kept), value[kept]) for shape, value in drive.extra
        ),
        identified=drive.identified,
        motors=None if motors is None else tuple(kept.index(k) for k in motors if k in kept),
        dry=None if drive.dry is None else drive.dry.of(kept),
        rotors=None if rotors is None else tuple(kept.index(k) for k in rotors if k in kept),
    )
