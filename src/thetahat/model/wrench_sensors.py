"""Wrist force/torque sensors: a robot that is cut where a sensor sits.

A sensor on a link measures the wrench that the rest of the robot exerts on that link, through the
joint, fixed or not, that the link hangs on, in the link's axes about its origin. At rest it is the
force that holds the link and all it carries: it points up. (Sensors that state the opposite, the
force on themselves, are read with the factor −1.)

The sensor is six joints that never move, three sliding and three turning, between what carries the
link and the link itself. Their forces are the wrench, so its six rows per sample, with the sensor's
bias as offsets, are rows of the regressor like any joint's, and nothing else need know of sensors.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from thetahat.errors import UsageError, known
from thetahat.model import parameters
from thetahat.model.drive import TERMS, Drive
from thetahat.model.lock_joints import lock
from thetahat.model.robot import Link, Robot
from thetahat.model.tree import Forces, Joint, JointKind, Node, Tree

CHANNELS = ("fx", "fy", "fz", "tx", "ty", "tz")
PREFIX = "wrench."


def sensor_joint(link: str, channel: str) -> str:
    """Return the name of a sensor's joint, which is that of its column in a log."""
    return f"{PREFIX}{link}.{channel}"


def sensed_link(joint: str) -> str | None:
    """Return the link whose wrench a joint of this name measures; None: it is no sensor's."""
    head, _, channel = joint.rpartition(".")
    return head[len(PREFIX) :] if head.startswith(PREFIX) and channel in CHANNELS else None


def sensor_links(robot: Robot) -> tuple[str, ...]:
    """Return the links whose wrenches a robot measures."""
    return tuple(dict.fromkeys(node.sensor for node in robot.tree.independent if node.sensor))


def sensor_below(robot: Robot, link: str) -> str | None:
    """Return the link of the sensor that feels what a link carries: the nearest; None: none."""
    node = robot.tree.bodies[robot.body_index(link)]
    while node >= 0:
        if robot.tree.nodes[node].sensor:
            return robot.tree.nodes[node].sensor
        node = robot.tree.nodes[node].parent
    return None


def without_wrench_sensors(robot: Robot) -> Robot:
    """Return the robot as it is without its sensors: what they cut is welded together again."""
    return lock(robot, [node.name for node in robot.tree.independent if node.sensor])


def with_wrench_sensors(robot: Robot, links: Iterable[str]) -> Robot:
    """Return the robot with a force/torque sensor where each of these links hangs on the rest.

    What is beyond a sensor is a body of its own, named as the link.
    """
    for link in links:
        if link not in sensor_links(robot):
            robot = _with_sensor(robot, link)
    return robot


def _with_sensor(robot: Robot, name: str) -> Robot:
    link = _require_link(robot, name)
    if robot.drive.actuation is not None:
        raise UsageError(
            f"robot {robot.name!r} has an actuation map; add the sensor on {name!r} first, then"
            " give the map"
        )
    host = robot.tree.bodies[link.body]
    beyond = _beyond(robot, name)
    carried = [each for each in robot.links if each.body == link.body and each.name in beyond]
    own = np.sum(
        [parameters.transform(each.theta, each.rotation, each.translation) for each in carried],
        axis=0,
    )
    whole = robot.tree.nodes[host].body == name
    theta = robot.theta.reshape(-1, parameters.SIZE)
    own = theta[link.body] if whole else own
    by_node = {node: theta[body] for body, node in enumerate(robot.tree.bodies)}
    by_node[host] = by_node[host] - own
    nodes, origin = _nodes(robot, link, host=host, beyond=beyond, whole=whole)
    tree = Tree(tuple(nodes))
    last = tree.index_of[sensor_joint(name, CHANNELS[-1])]
    body_of = {node: body for body, node in enumerate(tree.bodies)}
    new = np.zeros((len(tree.bodies), parameters.SIZE))
    for body, node in enumerate(tree.bodies):
        if node == last:
            new[body] = _in_link(own, link)
        elif (before := origin[node]) is not None:
            new[body] = by_node[before]
    place = {old: node for node, old in enumerate(origin) if old is not None}
    links = []
    for each in robot.links:
        if each.body < 0:
            links.append(each)
        elif each.body == link.body and each.name in beyond:
            R = link.rotation.T
            moved = R @ (each.translation - link.translation)
            links.append(
                replace(each, body=body_of[last], rotation=R @ each.rotation, translation=moved)
            )
        else:
            links.append(replace(each, body=body_of[place[robot.tree.bodies[each.body]]]))
    return replace(
        robot,
        tree=tree,
        theta=new.ravel(),
        drive=_drive(robot, tree, place),
        links=tuple(links),
    )


def _require_link(robot: Robot, name: str) -> Link:
    moving = [link for link in robot.links if link.body >= 0]
    for link in robot.links:
        if link.name == name:
            if link.body < 0:
                raise UsageError(
                    f"wrench.{name}: link {name!r} of robot {robot.name!r} is welded to the world"
                    " and does not move; name the moving link that the sensor carries"
                )
            return link
    raise UsageError(
        f"wrench.{name}: robot {robot.name!r} has no link {name!r}; moving links:"
        f" {known([link.name for link in moving])}"
    )


def _beyond(robot: Robot, name: str) -> set[str]:
    """The link and all links that hang on it."""
    children: dict[str, list[str]] = {}
    for link in robot.links:
        if link.parent is not None:
            children.setdefault(link.parent, []).append(link.name)
    out, stack = {name}, [name]
    while stack:
        for child in children.get(stack.pop(), []):
            if child not in out:
                out.add(child)
                stack.append(child)
    return out


def _nodes(
    robot: Robot, link: Link, *, host: int, beyond: set[str], whole: bool
) -> tuple[list[Node], list[int | None]]:
    """Nodes with the sensor's six, and the former index of each (None: the sensor's)."""
    old = robot.tree.nodes
    far = {i for i in range(len(old)) if old[i].parent == host and _first_body(old, i) in beyond}
    nodes: list[Node] = []
    origin: list[int | None] = []
    place: dict[int, int] = {}
    R, p = link.rotation, link.translation

    def add(i: int) -> None:
        node, parent = old[i], old[i].parent
        if i in far:
            at = nodes_of_sensor[-1]
            node = replace(
                node,
                parent=at,
                rotation=R.T @ node.rotation,
                translation=R.T @ (node.translation - p),
            )
        else:
            node = replace(node, parent=place[parent] if parent >= 0 else -1)
        place[i] = len(nodes)
        nodes.append(replace(node, body=None) if i == host and whole else node)
        origin.append(i)

    nodes_of_sensor: list[int] = []
    inside = _below(old, far)
    for i in range(len(old)):
        if i in inside:
            continue
        add(i)
        if i == host:
            # in depth-first order: what the sensor carries comes first
            for k, channel in enumerate(CHANNELS):
                nodes_of_sensor.append(len(nodes))
                nodes.append(
                    Node(
                        name=sensor_joint(link.name, channel),
                        kind=JointKind.PRISMATIC if k < 3 else JointKind.REVOLUTE,
                        parent=len(nodes) - 1,
                        rotation=R if k == 0 else np.eye(3),
                        translation=p if k == 0 else np.zeros(3),
                        axis=np.eye(3)[k % 3],
                        body=link.name if channel == CHANNELS[-1] else None,
                        joint=Joint(forces=Forces(sensor=link.name)),
                    )
                )
                origin.append(None)
            for j in sorted(inside):
                add(j)
    return nodes, origin


def _below(nodes: tuple[Node, ...], tops: set[int]) -> set[int]:
    """These nodes and all that they carry."""
    out = set(tops)
    for i, node in enumerate(nodes):
        if node.parent in out:
            out.add(i)
    return out


def _first_body(nodes: tuple[Node, ...], i: int) -> str | None:
    """The body of a node, or of the first below it that has one."""
    while i < len(nodes) and nodes[i].body is None:
        i += 1
    return nodes[i].body if i < len(nodes) else None


def _in_link(theta: np.ndarray, link: Link) -> np.ndarray:
    return parameters.transform(theta, link.rotation.T, -link.rotation.T @ link.translation)


def _drive(robot: Robot, tree: Tree, place: dict[int, int]) -> Drive:
    """The robot's drive with six motors more, which have bias alone."""
    old, drive = robot.tree, robot.drive
    to = np.zeros(old.nv, dtype=int)
    for i, node in enumerate(old.nodes):
        if node.mimic is None:
            first = tree.v_index[tree.nodes[place[i]].name]
            own = slice(old.v_index[node.name], old.v_index[node.name] + node.kind.nv)
            to[own] = np.arange(first, first + node.kind.nv)

    def spread(value: np.ndarray) -> np.ndarray:
        out = np.zeros(tree.nv)
        out[to] = value
        return out

    new = Drive.none(tree.nv).with_values(**{term: spread(drive.value(term)) for term in TERMS})
    if drive.extra or drive.dry is not None:
        raise UsageError(
            f"robot {robot.name!r} has friction of a fitted law or springs; add the wrench sensor"
            " to the robot as its file states it"
        )
    sensors = [int(v) for v in tree.sensor_dofs]
    motors = None
    if drive.motors is not None:
        motors = tuple(sorted([*(int(to[k]) for k in drive.motors), *sensors]))
    rotors = None if drive.rotors is None else tuple(int(to[k]) for k in drive.rotors)
    return replace(new, identified=drive.identified, motors=motors, rotors=rotors)
