"""`--via`: the connection that a text names."""

from __future__ import annotations

from dataclasses import dataclass

from thetahat.connect.connection import Connection
from thetahat.connect.ros2 import Ros2Address, Ros2Connection
from thetahat.connect.sim_server import SimulationSetup
from thetahat.errors import RefusedForSafety, UsageError, known

VIA = ("sim", "ros2")


@dataclass(frozen=True)
class Address:
    """Which connection, and where."""

    kind: str  # one of VIA
    place: str  # "" where none is given

    @staticmethod
    def parse(text: str) -> Address:
        """Read KIND or KIND:PLACE."""
        kind, _, place = text.partition(":")
        if kind not in VIA:
            raise UsageError(f"--via is {text!r}; connections: {known(VIA)}")
        if kind == "ros2":
            Ros2Address.parse(place)
        return Address(kind, place)

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

    def open(self, setup: SimulationSetup) -> Connection:
        """Connect; setup: of a simulated robot that is started for it."""
        if self.kind == "ros2":
            return Ros2Connection(setup.robot.joint_names, Ros2Address.parse(self.place))
        from thetahat.connect.sim_process import SimulatedConnection, SimulatorProcess

        if self.place:
            return SimulatedConnection(self.place)
        return SimulatedConnection(SimulatorProcess(setup))
