"""Robots with a floating base on ground: links whose external wrench is measured, and links that
touch ground whose force is not.

No motor drives a floating base, so the generalised forces on all degrees of freedom are the motors'
torques and what the world exerts on links: τ + Σ Jᵀ·w. A measured wrench w is the force of the
world on the link (it points up under a foot), about the link's origin. A force that is not measured
is eliminated (`dynamics/contact_projection.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from thetahat.errors import UsageError, known
from thetahat.model.ground import Foot, Ground
from thetahat.model.robot import Link, Robot
from thetahat.model.tree import JointKind, Node, Tree

LEG = 6  # joints between base and foot by which the foot can lie flat on the ground


def floating_joint(robot: Robot) -> Node | None:
    """Return the free joint between the world and the robot's root; None: its base is fixed."""
    first = robot.tree.nodes[0] if robot.tree.nodes else None
    return first if first is not None and first.kind is JointKind.FREE else None


def base_dofs(robot: Robot) -> tuple[int, ...]:
    """Return the six degrees of freedom of a floating base, angular first; none of a fixed one."""
    node = floating_joint(robot)
    if node is None:
        return ()
    first = robot.tree.v_index[node.name]
    return tuple(range(first, first + node.kind.nv))


def moving_link(robot: Robot, name: str, column: str) -> Link:
    """Return a link that moves, by name. column: that names it, for the error."""
    for link in robot.links:
        if link.name == name and link.body >= 0:
            return link
    moving = [link.name for link in robot.links if link.body >= 0]
    raise UsageError(
        f"{column}: robot {robot.name!r} has no moving link {name!r}; links: {known(moving)}"
    )


def with_ground(
    robot: Robot, measured: Iterable[str], touching: Iterable[str], kind: str = "auto"
) -> Robot:
    """Return the floating robot with what acts on its links.

    measured: links whose wrenches are measured. touching: links with contact flags. kind: of
        contacts: point (a force), flat (force and couple), or auto: flat at the end of six joints
        or more, which can keep a sole on the ground.
    """
    measured, touching = tuple(measured), tuple(touching)
    if floating_joint(robot) is None:
        raise UsageError(
            f"robot {robot.name!r} has a fixed base; pass --floating-base, so that ground forces on"
            f" {known((*measured, *touching))} act on a base that moves"
        )
    for name in measured:
        moving_link(robot, name, f"wrench.{name}")
    for name in touching:
        moving_link(robot, name, f"contact.{name}")
    feet = tuple(
        Foot(name, kind == "flat" or (kind == "auto" and joints_above(robot, name) >= LEG))
        for name in touching
        if name not in measured  # a force that is measured need not be eliminated
    )
    return replace_ground(robot, Ground(measured, feet))


def ground_of(robot: Robot) -> Ground | None:
    """Return how the world acts on a floating robot; None where nothing is known of it."""
    node = floating_joint(robot)
    return None if node is None else node.joint.forces.ground


def replace_ground(robot: Robot, ground: Ground | None) -> Robot:
    """Return the floating robot on another ground."""
    first = robot.tree.nodes[0]
    forces = replace(first.joint.forces, ground=ground)
    first = replace(first, joint=replace(first.joint, forces=forces))
    return replace(robot, tree=Tree((first, *robot.tree.nodes[1:])))


def with_deviations(robot: Robot, deviations: dict[str, float]) -> Robot:
    """Return the robot whose rows have these errors where contact forces are eliminated, by name of
    the degree of freedom.
    """
    ground = ground_of(robot)
    if ground is None:
        return robot
    stated = tuple((name, deviations[name]) for name in sorted(deviations))
    return replace_ground(robot, replace(ground, deviations=stated))


def without_ground(robot: Robot) -> Robot:
    """Return the robot alone."""
    return robot if ground_of(robot) is None else replace_ground(robot, None)


def joints_above(robot: Robot, link: str) -> int:
    """Return the number of degrees of freedom between a floating base and a link."""
    node, count = robot.tree.bodies[robot.body_index(link)], 0
    while node > 0:
        count += robot.tree.nodes[node].kind.nv
        node = robot.tree.nodes[node].parent
    return count
