"""Where a payload is: the body that carries its link, and the frame of its ten numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from thetahat.errors import UsageError, known
from thetahat.model import parameters
from thetahat.model.parameters import SIZE
from thetahat.model.robot import Robot


@dataclass(frozen=True, eq=False)
class PayloadPlace:
    """Where a payload is, and in which frame: θ of the body gains to_body · θ_p."""

    link: str
    frame: str
    span: slice  # of the body's ten numbers in θ
    to_body: np.ndarray  # (10, 10)


class _LinkPose(NamedTuple):
    """A link in the body it is welded into."""

    body: int
    rotation: np.ndarray
    translation: np.ndarray


def payload_place(robot: Robot, link: str, frame: str | None) -> PayloadPlace:
    """Return where a payload on this link is; frame: of its numbers, by default the link's."""
    body, rotation, translation = _link(robot, link, "link")
    if frame is not None and frame != link:
        other, rotation, translation = _link(robot, frame, "frame")
        if other != body:
            name = robot.body_names[body]
            raise UsageError(
                f"frame {frame!r} moves against link {link!r}; name a link that is welded to"
                f" {name!r}: {known(_welded(robot, body))}"
            )
    to_body = parameters.transform(np.eye(SIZE), rotation, translation).T
    return PayloadPlace(
        link, link if frame is None else frame, slice(SIZE * body, SIZE * body + SIZE), to_body
    )


def _welded(robot: Robot, body: int) -> list[str]:
    links = [link.name for link in robot.links if link.body == body]
    return list(dict.fromkeys([robot.body_names[body], *links]))


def _link(robot: Robot, name: str, what: str) -> _LinkPose:
    """The pose of a link in the body it is welded into."""
    for link in robot.links:
        if link.name == name:
            if link.body < 0:
                raise UsageError(
                    f"{what} {name!r} of robot {robot.name!r} is welded to the world, so no joint"
                    " feels what it carries; name a moving link"
                )
            return _LinkPose(link.body, link.rotation, link.translation)
    if name in robot.body_names:
        return _LinkPose(robot.body_names.index(name), np.eye(3), np.zeros(3))
    moving = [link.name for link in robot.links if link.body >= 0] or robot.body_names
    raise UsageError(
        f"{what} {name!r} is not in robot {robot.name!r}; moving links: {known(moving)}"
    )
