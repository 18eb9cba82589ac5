"""What a robot must offer to be driven: its joints, samples, a way to command torques, limits."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from thetahat.control.online_control import Measured
from thetahat.errors import UsageError, known
from thetahat.model.robot import Robot


class Connection(Protocol):
    """A robot that can be measured and commanded, real or simulated.

    Units are SI and radians; arrays are in the order of `joints`.
    """

    @property
    def joints(self) -> tuple[str, ...]:
        """Names of the joints, in the order of every array."""

    @property
    def limits(self) -> np.ndarray | None:
        """(nv,) [N·m or N] that the robot takes at most; None where it does not say."""

    @property
    def simulated(self) -> bool:
        """Whether time passes by `write` alone, and not by itself."""

    def read(self) -> Measured | None:
        """The newest sample; None where none came since the last one."""

    def write(self, tau: np.ndarray) -> None:
        """Command joint torques, (nv,) [N·m or N], until the next ones."""

    def close(self) -> None:
        """Stop commanding, and let the robot go."""


def require_joints(connection: Connection, robot: Robot) -> None:
    """Refuse a connection to another robot than the file describes."""
    if tuple(connection.joints) != robot.joint_names:
        raise UsageError(
            f"the connection has joints {known(connection.joints)}, but robot {robot.name!r} has"
            f" {known(robot.joint_names)}; give the file of the connected robot"
        )
