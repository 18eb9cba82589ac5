"""`thetahat inspect ROBOT`: contents and physical consistency of a robot file."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from thetahat import robots
from thetahat.cli import arguments
from thetahat.cli.exit_status import collect_warnings, emit
from thetahat.cli.progress import Progress
from thetahat.cli.settings_options import with_settings
from thetahat.files import as_text
from thetahat.pipeline.settings import IdentifySettings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from thetahat.model.robot import Robot
    from thetahat.model.tree import Node

SCHEMA = "thetahat/inspect/1"
LARGEST = 300  # degrees of freedom whose base parameters are looked for: beyond it minutes pass
# of parameters, and their names in the answer
KINDS = {"alone": "alone", "group": "in_sums", "never": "never"}


@with_settings("gravity")
def inspect(
    robot: arguments.Robot,
    *,
    json: arguments.Json = False,
    quiet: arguments.Quiet = False,
    floating_base: arguments.FloatingBase = False,
    settings: IdentifySettings,
) -> None:
    """Show a robot's tree, masses and drive terms, and check its physical consistency."""
    file = robots.find(robot)
    from thetahat.model.io.load import load

    with collect_warnings(quiet=quiet) as warnings, Progress(quiet=quiet) as progress:
        progress.stage("loading the robot")
        loaded = load(file, floating_base=floating_base, gravity=settings.gravity)
        progress.stage("finding what can be identified")
        data = {**describe(loaded), "warnings": list(warnings)}
    if json:
        emit(as_text(data))
    else:
        from thetahat.cli.inspect_view import draw

        draw(data)


def describe(robot: Robot) -> dict[str, Any]:
    """Everything `inspect` shows, as plain data: the JSON answer, schema thetahat/inspect/1."""
    bodies = _bodies(robot)
    base = _base(robot, bodies)
    return {
        "schema": SCHEMA,
        "name": robot.name,
        "source": None if robot.source is None else str(robot.source),
        "nq": robot.nq,
        "nv": robot.nv,
        "gravity": _numbers(robot.gravity),
        "mass": _number(robot.mass),
        "consistent": all(body["consistent"] and not body["unphysical_links"] for body in bodies),
        "fixed_links": [link.name for link in robot.links if link.body < 0],
        "joints": [_joint(robot, node) for node in robot.tree.nodes],
        "bodies": bodies,
        "base_parameters": base,
        "notes": list(robot.notes),
        "warnings": [],
    }


def _base(robot: Robot, bodies: list[dict[str, Any]]) -> list[str] | None:
    """The base parameters of the rigid bodies by name; each body is told which of its ten numbers
    show alone, in sums, or never.
    """
    if robot.nv > LARGEST:
        return None
    from thetahat.identification.identifiability.base_parameters import base_parameters
    from thetahat.model.parameters import NAMES

    base = base_parameters(robot, drive=False)
    for b, body in enumerate(bodies):
        for kind, title in KINDS.items():
            body[title] = [
                name
                for name, k in zip(NAMES, base.kinds[10 * b : 10 * b + 10], strict=True)
                if k == kind
            ]
    return list(base.names)


def _joint(robot: Robot, node: Node) -> dict[str, Any]:
    nodes = robot.tree.nodes
    parent = node.parent
    # a placeholder between two joints of one body
    while parent >= 0 and nodes[parent].body is None:
        parent = nodes[parent].parent
    return {
        "name": node.name,
        "kind": node.kind.name.lower(),
        "parent": nodes[parent].body if parent >= 0 else None,  # a body; null is the world
        "parent_joint": nodes[node.parent].name if node.parent >= 0 else None,
        "body": node.body,
        "axis": (
            _numbers(node.axis) if node.kind.name in ("REVOLUTE", "PRISMATIC", "PLANAR") else None
        ),
        "lower": _number(node.limits.lower),
        "upper": _number(node.limits.upper),
        "velocity": _number(node.limits.velocity),
        "effort": _number(node.limits.effort),
        "mimic": (
            None
            if node.mimic is None
            else {
                "joint": node.mimic.joint,
                "multiplier": _number(node.mimic.multiplier),
                "offset": _number(node.mimic.offset),
            }
        ),
        "damping": _number(node.joint.damping),
        "friction": _number(node.joint.friction),
        "armature": _number(node.joint.armature),
    }


def _bodies(robot: Robot) -> list[dict[str, Any]]:
    import numpy as np

    from thetahat.model import parameters

    members: list[list[Any]] = [[] for _ in robot.body_names]
    for link in robot.links:
        if link.body >= 0:
            members[link.body].append(link)
    out = []
    for name, links, theta, verdict in zip(
        robot.body_names, members, robot.theta.reshape(-1, 10), robot.consistency, strict=True
    ):
        mass, com, inertia = parameters.to_mass_com_inertia(theta)
        out.append(
            {
                "name": name,
                "links": [link.name for link in links],
                "mass": _number(float(mass)),
                "com": _numbers(com),
                "inertia_com": _numbers(inertia[np.triu_indices(3)]),
                "principal_moments": (
                    _numbers(np.linalg.eigvalsh(inertia))
                    if np.all(np.isfinite(inertia))
                    else [None] * 3
                ),
                "theta": _numbers(theta),
                "consistent": bool(verdict),
                "condition": verdict.condition or None,
                **dict.fromkeys(KINDS.values()),
                "unphysical_links": [
                    {"name": link.name, "condition": failed.condition}
                    for link in links
                    if not (failed := parameters.check(link.theta))
                ],
            }
        )
    return out


def _number(value: float) -> float | None:
    value = float(value)
    return value if math.isfinite(value) else None


def _numbers(values: Iterable[float]) -> list[float | None]:
    return [_number(value) for value in values]
