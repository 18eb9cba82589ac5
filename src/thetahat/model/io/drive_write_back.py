"""What the joints of a file are to state of a robot's drive: damping, friction and armature, one
number each per joint.

A file states them at the joint. Several joints that share a coordinate (mimic) add up by virtual
work, `assemble`'s k² and |k|; the difference then goes to the joint that owns the coordinate, or is
shared in proportion where that would turn friction into its opposite. Motors behind an actuation
map are stated where they drive one joint alone.
"""

from __future__ import annotations

import numpy as np

from thetahat.model.drive import Drive
from thetahat.model.robot import Robot
from thetahat.model.tree import Node

STATED = {
    "viscous": ("damping", 2),
    "coulomb": ("friction", 1),
    "armature": ("armature", 2),
}  # term → field of a node, power of a ratio


def at_joints(drive: Drive, nv: int) -> dict[str, np.ndarray]:
    """Each stated term's values per degree of freedom, (nv,), as far as joints can have them:
    motors that drive several have no place there.
    """
    if drive.actuation is None:
        return {term: drive.value(term) for term in STATED}
    out = {term: np.zeros(nv) for term in STATED}
    if drive.actuation.constant:
        for motor, column in enumerate(drive.actuation.B.T):
            driven = np.flatnonzero(column)
            if len(driven) == 1:
                for term, (_, power) in STATED.items():
                    out[term][driven[0]] += (
                        abs(column[driven[0]]) ** power * drive.value(term)[motor]
                    )
    return out


def joint_changes(robot: Robot, file: Robot) -> dict[str, dict[str, float]]:
    """Joint → field of a node → its new value, where the robot's differs from that of the file as
    it was read (and locked alike).
    """
    out: dict[str, dict[str, float]] = {}
    wanted = at_joints(robot.drive, robot.nv)
    for node in file.tree.independent:
        at = slice(file.tree.v_index[node.name], file.tree.v_index[node.name] + node.kind.nv)
        followers = [
            other
            for other in file.tree.nodes
            if other.mimic is not None and other.mimic.joint == node.name
        ]
        for term, (field, power) in STATED.items():
            values, stated = wanted[term][at], file.drive.value(term)[at]
            if not np.array_equal(values, stated):
                value = (
                    float(values[0]) if np.all(values == values[0]) else float(np.mean(values))
                )  # the nearest that one number can say
                for name, own in _spread(node, followers, field, power, value).items():
                    out.setdefault(name, {})[field] = own
    return out


def _spread(
    node: Node, followers: list[Node], field: str, power: int, wanted: float
) -> dict[str, float]:
    """New values of the joints on one coordinate that add up to `wanted`."""
    weights = {other.name: abs(other.mimic.multiplier) ** power for other in followers}
    own = {other.name: float(getattr(other, field)) for other in (node, *followers)}
    rest = sum(weights[other.name] * own[other.name] for other in followers)
    first = wanted - rest
    if first < 0.0 <= wanted and rest > 0.0 and own[node.name] + rest > 0.0:
        share = wanted / (own[node.name] + rest)
        return {name: share * value for name, value in own.items() if value}
    return {node.name: first}
