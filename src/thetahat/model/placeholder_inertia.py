"""Recognise robot files whose inertias are placeholders: made up so that a simulator starts.

A file is called one if

- no moving body has mass;
- or half of the bodies (two or more) with half of the mass have an inertia that no real link has:
  the same about all axes, without products, as unit boxes and 1e-3 everywhere have;
- or all bodies, of which one carries another, have the same mass and inertia;
- or all (three or more), of which one carries another, have their centre of mass on their own
  joint's axis, the link's origin included: then no joint carries its own link.

Wheels and rotors, which carry nothing, may be alike and are balanced.

Bodies without mass between joints are how files write joints of several degrees of freedom, and
count for nothing.
"""

from __future__ import annotations

import numpy as np

from thetahat.model import parameters
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind

EQUAL = 1e-6  # relative difference of numbers that are the same
ON_AXIS = 1e-6  # [m] of a centre of mass from its joint's axis
FEW = 3  # bodies, below which their centres of mass tell nothing


def placeholder_reason(robot: Robot) -> str | None:
    """Return why the file's inertias look made up, in a few words; None where they do not."""
    mass, com, inertia = parameters.to_mass_com_inertia(robot.theta.reshape(-1, parameters.SIZE))
    solid = np.flatnonzero(mass > 0.0)
    if not len(mass):
        return None
    if not len(solid):
        return "no body has mass"
    even = [int(b) for b in solid if _isotropic(_stated_inertia(robot, int(b)))]
    many = len(even) >= 2 and 2 * len(even) >= len(solid)
    if many and 2.0 * np.sum(mass[even]) >= np.sum(mass):
        return f"{len(even)} of {len(solid)} bodies have the same inertia about all axes"
    alike = np.column_stack([mass, np.linalg.eigvalsh(inertia)])[solid]
    same = np.all(np.abs(alike - alike[0]) <= EQUAL * np.abs(alike[0]))
    if not _serial(robot, solid):
        return None
    if same:
        return f"all {len(solid)} bodies have the same mass and inertia"
    if len(solid) >= FEW and all(_on_axis(robot, int(b), com[b]) for b in solid):
        return "every centre of mass lies on its joint's axis"
    return None


def _serial(robot: Robot, bodies: np.ndarray) -> bool:
    """Whether one of these bodies carries another."""
    nodes = robot.tree.nodes
    own = {robot.tree.bodies[b] for b in bodies}
    for at in own:
        parent = nodes[at].parent
        while parent >= 0:
            if parent in own:
                return True
            parent = nodes[parent].parent
    return False


def _stated_inertia(robot: Robot, body: int) -> np.ndarray:
    """About the centre of mass, (3, 3), of the body's own link as the file states it."""
    name = robot.body_names[body]
    own = next((link.theta for link in robot.links if link.name == name), None)
    if own is None or own[parameters.M] <= 0.0:
        own = robot.theta[parameters.SIZE * body : parameters.SIZE * (body + 1)]
    return np.asarray(parameters.to_mass_com_inertia(own)[2])


def _isotropic(inertia: np.ndarray) -> bool:
    size = float(np.max(np.abs(inertia)))
    mean = float(np.trace(inertia)) / 3.0
    return bool(np.all(np.abs(inertia - mean * np.eye(3)) <= EQUAL * size))


def _on_axis(robot: Robot, body: int, com: np.ndarray) -> bool:
    node = robot.tree.nodes[robot.tree.bodies[body]]
    if node.kind is not JointKind.REVOLUTE:
        return bool(np.linalg.norm(com) <= ON_AXIS)
    return bool(np.linalg.norm(com - node.axis * (node.axis @ com)) <= ON_AXIS)
