"""What a robot must offer to be measured and driven, and checks of what it says.

Everything that talks to a robot implements `Connection`: five properties and three methods.
`connection_kit.check_connection` tells whether an implementation keeps its promises.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from thetahat.errors import RefusedForSafety, UsageError, known
from thetahat.model.robot import Robot

# what `write` takes: joint torques [N·m or N], joint positions [rad or m], or nothing at all
MODES = ("torque", "position", "read-only")
JUMP = 0.3  # [rad or m] from where a joint is to where it is commanded, at most


@dataclass(frozen=True, eq=False)
class RobotState:
    """One sample of a robot."""

    t: float  # [s], its own stamp, which increases
    q: np.ndarray  # (n,) [rad or m]
    dq: np.ndarray  # (n,) [rad/s or m/s]
    tau: np.ndarray  # (n,) [N·m or N] measured
    temperature: np.ndarray | None = None  # (n,) [°C] of the motors, where the robot tells
    stopped: str = ""  # why the robot does not obey commands, in words; "" where it does

    def is_valid(self, joints: int) -> bool:
        """Whether it has a finite number for each of so many joints."""
        arrays = [self.q, self.dq, self.tau]
        if self.temperature is not None:
            arrays.append(self.temperature)
        return bool(np.isfinite(self.t)) and all(
            np.shape(array) == (joints,) and bool(np.all(np.isfinite(array))) for array in arrays
        )


@runtime_checkable
class Connection(Protocol):
    """A robot that can be measured and commanded, real or simulated.

    Units are SI and radians; arrays are in the order of `joints`. Constructing one connects, and
    raises where there is no robot within a stated time. Nothing moves before the first `write`.
    """

    @property
    def joints(self) -> tuple[str, ...]:
        """Names of the joints, in the order of every array."""

    @property
    def limits(self) -> np.ndarray | None:
        """(n,) [N·m or N] that the robot takes at most; None where it does not say."""

    @property
    def mode(self) -> str:
        """What `write` takes: "torque", "position", or "read-only": nothing."""

    @property
    def simulated(self) -> bool:
        """Whether time passes by `write` alone, and not by itself."""

    def read(self) -> RobotState | None:
        """The newest sample, at once; None where none came since the last one."""

    def write(self, command: np.ndarray) -> None:
        """Command torques or positions, (n,), until the next ones; refuses what is not finite."""

    def close(self) -> None:
        """Leave the robot held, and let go of it; a second time does nothing."""


def require_joints(connection: Connection, robot: Robot) -> None:
    """Refuse a connection to another robot than the file describes."""
    if tuple(connection.joints) != robot.joint_names:
        raise UsageError(
            f"the connection has joints {known(connection.joints)}, but robot {robot.name!r} has"
            f" {known(robot.joint_names)}; give the file of the connected robot"
        )


def require_mode(connection: Connection, *modes: str) -> None:
    """Refuse a connection that takes other commands."""
    if connection.mode not in modes:
        raise UsageError(
            f"the connection takes {connection.mode} commands; this needs one for"
            f" {' or '.join(modes)} commands"
        )


def near_command(command: np.ndarray, q: np.ndarray | None) -> None:
    """Refuse positions that a robot would have to jump to. q: where it is, None: unknown."""
    away = np.inf if q is None else float(np.max(np.abs(command - q)))
    if away > JUMP:
        raise RefusedForSafety(
            f"a commanded position is {away:.3g} rad or m from where the joint is; at most {JUMP:g}"
            " are sent: begin a motion where the robot stands"
        )


def checked_command(command: np.ndarray, connection: Connection, *, closed: bool) -> np.ndarray:
    """A command as finite doubles, (n,); what a robot must not get is refused."""
    if closed:
        raise UsageError("the connection is closed; make a new one")
    if connection.mode == "read-only":
        raise RefusedForSafety(
            "the connection is read-only, so nothing is commanded; open it for commands"
            " (--allow-motion)"
        )
    array = np.array(command, dtype=float)
    if array.shape != (len(connection.joints),) or not np.all(np.isfinite(array)):
        raise RefusedForSafety(
            f"a command has shape {array.shape} or a value that is not finite; a robot of"
            f" {len(connection.joints)} joints takes as many finite numbers, so it was not sent"
        )
    return array
