"""Boxes that points of a robot's links keep inside or outside of."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from thetahat.dynamics import rigid_body
from thetahat.errors import UsageError, known
from thetahat.excite.trajectory import joint_array
from thetahat.model.robot import Robot


@dataclass(frozen=True, eq=False)
class Box:
    """A box along the world's axes which points of a link must stay inside of, or outside of."""

    link: str
    lower: np.ndarray  # (3,) [m]
    upper: np.ndarray  # (3,) [m]
    inside: bool = True
    # (k, 3) in the link's frame [m]; the frame's origin unless told
    points: np.ndarray = field(default_factory=lambda: np.zeros((1, 3)))

    def __post_init__(self) -> None:
        for name, shape in (("lower", (3,)), ("upper", (3,)), ("points", (None, 3))):
            what, value = f"{name} of the box of {self.link!r}", getattr(self, name)
            array = joint_array(what, value, shape, "three coordinates [m]")
            object.__setattr__(self, name, array)
        if np.any(self.lower >= self.upper):
            axis = int(np.argmax(self.lower >= self.upper))
            raise UsageError(
                f"the box of {self.link!r} reaches from {self.lower[axis]:g} to"
                f" {self.upper[axis]:g} m along {'xyz'[axis]}; give lower < upper"
            )

    def __str__(self) -> str:
        return (
            f"{self.link} {'inside' if self.inside else 'outside'} {self.lower.tolist()} …"
            f" {self.upper.tolist()}"
        )

    def positions(self, robot: Robot, q: np.ndarray) -> np.ndarray:
        """Where the points are in the world, (n, k, 3) [m]."""
        body, R_link, p_link = link_place(robot, self.link)
        R, p = rigid_body.body_frames(robot, q)
        return np.asarray(
            (p_link + self.points @ R_link.T) @ np.swapaxes(R[:, body], -1, -2) + p[:, body, None]
        )

    def ratios(self, robot: Robot, q: np.ndarray, *, power: float | None = None) -> np.ndarray:
        """How much of the limit is used, (n, values): |x − c|/h of every axis inside; outside 1/max
        |x − c|/h.

        power: outside, the norm of that power in place of the largest, which is smooth, and keeps a
            little more than the box free.
        """
        scaled = (self.positions(robot, q) - (self.lower + self.upper) / 2.0) / (
            (self.upper - self.lower) / 2.0
        )
        if self.inside:
            return np.asarray(scaled.reshape(len(q), -1))
        scaled = np.abs(scaled)
        if power is None:
            return np.asarray(1.0 / np.maximum(np.max(scaled, axis=2), 1e-9))
        largest = np.maximum(np.max(scaled, axis=2), 1e-9)
        return np.asarray(
            3.0 ** (1.0 / power)
            / (largest * np.sum((scaled / largest[..., None]) ** power, axis=2) ** (1.0 / power))
        )


def link_place(robot: Robot, name: str) -> tuple[int, np.ndarray, np.ndarray]:
    """(body, rotation, translation) of a link's frame in the body it is welded into."""
    for link in robot.links:
        if link.name == name:
            if link.body < 0:
                raise UsageError(
                    f"link {name!r} of {robot.name!r} is welded to the world and cannot leave or"
                    " enter a box; name a link that moves"
                )
            return link.body, link.rotation, link.translation
    if name in robot.body_names:
        return robot.body_names.index(name), np.eye(3), np.zeros(3)
    names = [link.name for link in robot.links if link.body >= 0] or robot.body_names
    raise UsageError(
        f"link {name!r} is not in robot {robot.name!r}; links that move: {known(names)}"
    )
