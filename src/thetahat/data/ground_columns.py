"""Columns of a floating robot's log: pose and twist of its base, wrenches on links, contacts.

`base.x … base.qw` and `base.wx … base.vz` are coordinates and velocities of the free joint under
the root. `wrench.<link>.fx … tz` are forces of the world on a link, and enter the rows of all
degrees of freedom as known torques Jᵀ·w, beside those of the motors. `contact.<link>` is 1 where a
link touches ground whose force is not measured.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from thetahat.dynamics.link_forces import generalised_forces
from thetahat.errors import MalformedInput
from thetahat.model.floating_base import floating_joint, ground_of
from thetahat.model.robot import Robot
from thetahat.model.wrench_sensors import CHANNELS

WRENCH, CONTACT = "wrench", "contact"  # kinds of columns beside q, dq, ddq and tau
_CONTACT = re.compile(r"contact\.(.+)")


def base_columns(robot: Robot) -> dict[str, tuple[str, int]]:
    """Return kind and position of every column `base.*`; none where the base is fixed."""
    node = floating_joint(robot)
    if node is None:
        return {}
    q, v = robot.tree.q_index[node.name], robot.tree.v_index[node.name]
    turns = {f"base.{name}": ("q", q + k) for k, name in enumerate(node.kind.coordinates)}
    return turns | {f"base.{name}": ("dq", v + k) for k, name in enumerate(node.kind.directions)}


def contact_links(names: Sequence[str]) -> tuple[str, ...]:
    """Return the links whose contact flags a table has."""
    found = (_CONTACT.fullmatch(name) for name in names)
    return tuple(match[1] for match in found if match and "." not in match[1])


def ground_columns(robot: Robot, names: Sequence[str], file: str) -> Iterator[tuple[str, int, str]]:
    """Return (kind, position, column) of wrenches and contact flags."""
    ground = ground_of(robot)
    if ground is None:
        return
    wanted = [
        (WRENCH, 6 * k + at, f"wrench.{link}.{channel}")
        for k, link in enumerate(ground.measured)
        for at, channel in enumerate(CHANNELS)
    ] + [(CONTACT, k, f"contact.{foot.link}") for k, foot in enumerate(ground.feet)]
    for kind, at, column in wanted:
        if column not in names:
            raise MalformedInput(
                f"{file} has no column {column!r}, which other files of the log have; give files"
                " with the same columns"
            )
        yield kind, at, column


def require_base(robot: Robot, have: set[tuple[str, int]], file: str) -> None:
    """Refuse a log of a floating robot without the pose of its base."""
    if ground_of(robot) is None:
        return
    missing = [name for name, at in base_columns(robot).items() if at[0] == "q" and at not in have]
    if missing:
        raise MalformedInput(
            f"{file} has no column {missing[0]!r}: with a floating base the pose of the root link"
            " in the world is needed, base.x base.y base.z [m] and base.qx base.qy base.qz base.qw;"
            " log it (motion capture, or the state estimator's), or leave out --floating-base"
        )


def world_torques(
    robot: Robot,
    q: np.ndarray,
    columns: dict[int, int],
    column: Callable[[int], np.ndarray],
    *,
    world: bool,
) -> np.ndarray:
    """Return Σ Jᵀ·w of the measured wrenches, (rows, nv). columns: of a table by position."""
    ground = ground_of(robot)
    assert ground is not None
    wrenches = {
        link: np.column_stack([column(columns[6 * k + c]) for c in range(6)])
        for k, link in enumerate(ground.measured)
    }
    return generalised_forces(robot, np.ascontiguousarray(q), wrenches, world=world)
