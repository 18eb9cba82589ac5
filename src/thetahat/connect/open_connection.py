"""`--via`: the connection that a text names.

A kind of connection is a line of `KINDS` and a class with `open(setup, commands)` in a module of
its own, which is imported when an address asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from thetahat.errors import RefusedForSafety, UsageError, known

if TYPE_CHECKING:
    from thetahat.connect.connection import Connection
    from thetahat.connect.sim_server import SimulationSetup


class Link(Protocol):
    """Where a connection leads, as its address says; nothing is connected yet."""

    def open(self, setup: SimulationSetup, commands: str = "") -> Connection:
        """Connect. setup: the robot's file, and how it is simulated, where it is. commands: what
        will be written, "torque" or "position" (an address may settle it otherwise, see the
        connection's mode); "": nothing, the connection is for reading only.
        """


def _sim(place: str) -> Link:
    from thetahat.connect.sim_process import SimulatorLink

    return SimulatorLink(place)


def _ros2(place: str) -> Link:
    from thetahat.connect.ros2 import Ros2Address

    return Ros2Address.parse(place)


def _ur(place: str) -> Link:
    from thetahat.connect.ur import UrAddress

    return UrAddress.parse(place)


def _unitree(place: str) -> Link:
    from thetahat.connect.unitree import UnitreeAddress

    return UnitreeAddress.parse(place)


def _franka(place: str) -> Link:
    from thetahat.connect.franka import FrankaAddress

    return FrankaAddress.parse(place)


@dataclass(frozen=True)
class Kind:
    """A kind of connection."""

    form: str  # of its address
    link: Callable[[str], Link]  # from what follows "KIND:" in the address, "" where nothing does


KINDS = {
    "sim": Kind("sim[:SOCKET]", _sim),
    "ros2": Kind("ros2[:STATES][,KIND=TOPIC]", _ros2),
    "ur": Kind("ur:HOST[,constants=K/…]", _ur),
    "unitree": Kind("unitree:ROBOT[,kp=X][,kd=X]", _unitree),
    "franka": Kind("franka:HOST", _franka),
}
FORMS = ", ".join(kind.form for kind in KINDS.values())


@dataclass(frozen=True)
class Address:
    """Which connection, and where."""

    kind: str  # one of KINDS
    link: Link

    @staticmethod
    def parse(text: str) -> Address:
        """Read KIND or KIND:PLACE."""
        kind, _, place = text.partition(":")
        if kind not in KINDS:
            raise UsageError(f"--via is {text!r}; connections: {known(KINDS)}")
        return Address(kind, KINDS[kind].link(place))

    @property
    def simulated(self) -> bool:
        """Whether nothing real moves."""
        return self.kind == "sim"

    def require_allowed(self, *, motion: bool, allowed: bool) -> None:
        """Refuse to move anything real without leave."""
        if motion and not (self.simulated or allowed):
            raise RefusedForSafety(
                f"--via {self.kind} would move a real robot; look at it, keep the emergency stop at"
                " hand, and add --allow-motion"
            )

    def open(self, setup: SimulationSetup, commands: str = "") -> Connection:
        """Connect; see `Link.open`."""
        return self.link.open(setup, commands)
