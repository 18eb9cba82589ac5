"""A robot that speaks ROS 2, over DDS and without a ROS installation (extra `ros2`).

Joint states come as sensor_msgs/JointState or control_msgs/DynamicJointState; commands go out as
std_msgs/Float64MultiArray (positions or efforts, as ros2_control's forward command controllers take
them), trajectory_msgs/JointTrajectory (one point, a moment ahead) or control_msgs/DynamicJointState
(the interface "position" or "effort" of every joint). Topics, type names and quality
of service are ROS 2's: states by best effort, which also hears reliable publishers, commands
reliably. The domain is that of ROS_DOMAIN_ID.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from thetahat.connect.connection import RobotState, checked_command
from thetahat.errors import MissingExtra, RefusedForSafety, UsageError, known

if TYPE_CHECKING:
    from cyclonedds.domain import Domain as Settings
    from cyclonedds.domain import DomainParticipant
    from cyclonedds.idl import IdlStruct
    from cyclonedds.pub import DataWriter
    from cyclonedds.sub import DataReader

    from thetahat.connect.ros2_messages import DynamicJointState, JointState
    from thetahat.connect.sim_server import SimulationSetup

KINDS = {  # of commands, and their mode
    "position": "position",
    "effort": "torque",
    "trajectory": "position",
    "dynamic": "position",
    "dynamic-effort": "torque",
}
STATES = "/joint_states"
PATIENCE = 10.0  # [s] for the first sample
HEARD = 100  # samples taken at once
MOST_JOINTS = 10_000  # in a message: more is no robot
AHEAD = 0.02  # [s] in which a trajectory's point is to be reached
OTHER_DOMAINS = range(10)  # looked at where nothing is heard
LOOK = 1.5  # [s]
LOOPBACK = (  # nothing leaves this machine
    "<CycloneDDS><Domain><General><AllowMulticast>false</AllowMulticast><Interfaces>"
    '<NetworkInterface name="lo"/></Interfaces></General><Discovery>'
    '<ParticipantIndex>auto</ParticipantIndex><Peers><Peer address="127.0.0.1"/></Peers>'
    "</Discovery></Domain></CycloneDDS>"
)


@dataclass(frozen=True)
class Ros2Address:
    """Topics of a robot: states, and what commands it takes where."""

    states: str = STATES
    kind: str = ""  # of commands, one of KINDS; "": none are sent
    commands: str = ""

    @staticmethod
    def parse(text: str) -> Ros2Address:
        """Read [STATES][,KIND=TOPIC]."""
        states, comma, rest = text.partition(",")
        kind, equals, topic = rest.partition("=")
        if comma and (kind not in KINDS or not equals or not topic):
            raise UsageError(
                f"--via ros2:{text} is unclear; give ros2[:STATES][,KIND=TOPIC], such as"
                " ros2:/joint_states,position=/position_controller/commands; kinds:"
                f" {known(KINDS)}"
            )
        return Ros2Address(states or STATES, kind, topic)

    def open(self, setup: SimulationSetup, commands: str = "") -> Ros2Connection:
        """Connect; what commands are, the address says."""
        address = self if commands else Ros2Address(self.states)
        if commands and not self.kind:
            raise UsageError(
                f"--via ros2:{self.states} names no topic for commands; add"
                f" ,position=TOPIC; kinds: {known(KINDS)}"
            )
        return Ros2Connection(setup.robot.joint_names, address)


def load_dds() -> None:
    """Import the middleware, or say how to get it."""
    try:
        import cyclonedds.core  # noqa: F401
    except ImportError:
        raise MissingExtra(
            "ROS 2 needs the extra 'ros2': pip install 'thetahat[ros2]'; where there is no wheel"
            " for this Python, record a bag and read that"
        ) from None


def ros_domain() -> int:
    """The domain that ROS_DOMAIN_ID names, 0 where it does not."""
    text = os.environ.get("ROS_DOMAIN_ID", "").strip() or "0"
    if not text.isdigit() or int(text) > 232:
        raise UsageError(f"ROS_DOMAIN_ID is {text!r}; give a whole number from 0 to 232")
    return int(text)


_settings: dict[int, Settings] = {}  # of this process: where they go, all participants go


class Domain:
    """A participant in a DDS domain. loopback: heard on this machine alone."""

    def __init__(self, number: int, *, loopback: bool = False) -> None:
        load_dds()
        from cyclonedds.core import DDSException
        from cyclonedds.domain import Domain as Settings
        from cyclonedds.domain import DomainParticipant

        self.number = number
        if loopback and number not in _settings:
            with suppress(DDSException):  # this process has it already
                _settings[number] = Settings(number, LOOPBACK)
        self.participant: DomainParticipant | None = DomainParticipant(number)

    def reader(self, topic: str, message: type, depth: int) -> DataReader:
        """Hear a topic by best effort."""
        from cyclonedds.qos import Policy, Qos
        from cyclonedds.sub import DataReader
        from cyclonedds.topic import Topic

        qos = Qos(
            Policy.Reliability.BestEffort,
            Policy.Durability.Volatile,
            Policy.History.KeepLast(depth),
            Policy.DataRepresentation(use_cdrv0_representation=True),
        )
        return DataReader(
            self.participant, Topic(self.participant, wire_name(topic), message), qos=qos
        )

    def writer(self, topic: str, message: type) -> DataWriter:
        """Speak on a topic, reliably."""
        from cyclonedds.pub import DataWriter
        from cyclonedds.qos import Policy, Qos
        from cyclonedds.topic import Topic

        qos = Qos(
            Policy.Reliability.Reliable(100_000_000),  # [ns] that a write may wait
            Policy.Durability.Volatile,
            Policy.History.KeepLast(10),
            Policy.DataRepresentation(use_cdrv0_representation=True),
        )
        return DataWriter(
            self.participant, Topic(self.participant, wire_name(topic), message), qos=qos
        )

    def leave(self) -> None:
        """End the participant."""
        self.participant = None

    def publications(self, seconds: float) -> dict[str, str]:
        """Type names by topic of all that is published, looked at for so long."""
        from cyclonedds.builtin import BuiltinDataReader, BuiltinTopicDcpsPublication

        reader = BuiltinDataReader(self.participant, BuiltinTopicDcpsPublication)
        out: dict[str, str] = {}
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for each in reader.take(N=HEARD):
                if getattr(each, "topic_name", None):
                    out[str(each.topic_name)] = str(each.type_name)
            time.sleep(0.05)
        return out


def messages_of(reader: DataReader, most: int) -> list[IdlStruct] | None:
    """Messages that came since the last call; None where their bytes cannot be read."""
    try:
        return [each for each in reader.take(N=most) if isinstance(each, reader.topic.data_type)]
    except Exception:  # of any kind: bytes from anybody are taken apart by generated code
        return None


def wire_name(topic: str) -> str:
    """The DDS topic of a ROS 2 topic."""
    if not topic.startswith("/") or len(topic) < 2 or not topic.isprintable():
        raise UsageError(f"topic is {topic!r}; ROS 2 topics begin with /, as /joint_states does")
    return f"rt{topic}"


class Ros2Connection:
    """A `Connection` to a robot that publishes its joint states.

    Args:
        joints: of the robot's file; messages may hold more, in any order.
        address: topics.
        domain: None: that of ROS_DOMAIN_ID.
        loopback: whether only this machine is heard.
        patience: [s] for the first sample.

    """

    simulated, limits = False, None

    def __init__(
        self,
        joints: Iterable[str],
        address: Ros2Address | None = None,
        *,
        domain: int | None = None,
        loopback: bool = False,
        patience: float = PATIENCE,
    ) -> None:
        load_dds()
        from thetahat.connect import ros2_messages as messages

        address = address or Ros2Address()
        self.joints = tuple(joints)
        self.mode = KINDS.get(address.kind, "read-only")
        self._address, self._messages, self._loopback = address, messages, loopback
        self._domain = Domain(ros_domain() if domain is None else domain, loopback=loopback)
        self._readers = [
            self._domain.reader(address.states, kind, HEARD)
            for kind in (messages.JointState, messages.DynamicJointState)
        ]
        self._writer = None
        if address.kind:
            message: type = messages.Float64MultiArray
            if address.kind == "trajectory":
                message = messages.JointTrajectory
            elif address.kind.startswith("dynamic"):
                message = messages.DynamicJointState
            self._writer = self._domain.writer(address.commands, message)
        self._closed = False
        self._names: tuple[str, ...] = ()
        self._order = np.zeros(0, dtype=int)
        self._last = -np.inf  # [s] stamp of the newest
        self._newest: RobotState | None = None
        self.rejected = 0  # messages that could not be believed
        self._wait(patience)

    def _wait(self, patience: float) -> None:
        until = time.monotonic() + patience
        while time.monotonic() < until:
            self._newest = self.read()
            if self._newest is not None:
                return
            time.sleep(0.005)
        raise RefusedForSafety(self._why_silent(patience))

    def _why_silent(self, patience: float) -> str:
        """What is wrong where no sample came, in words."""
        topic, here = self._address.states, self._domain.number
        name = wire_name(topic)
        heard = self._domain.publications(LOOK)
        start = f"no joint state came on {topic} in domain {here} within {patience:g} s"
        if self.rejected:
            return f"{start}: {self.rejected} messages could not be believed; check the driver"
        ours = {str(reader.topic.typename) for reader in self._readers}
        if name in heard and heard[name] not in ours:
            return (
                f"{start}: it is published with type {heard[name]}; give the topic of a"
                " sensor_msgs/JointState or control_msgs/DynamicJointState"
            )
        if name in heard:
            return f"{start}, though it is advertised; check that its node runs"
        for number in OTHER_DOMAINS:
            if number != here:
                other = Domain(number, loopback=self._loopback)
                if name in other.publications(LOOK / len(OTHER_DOMAINS)):
                    return f"{start}: it is published in domain {number}; set ROS_DOMAIN_ID"
        topics = sorted(each.removeprefix("rt") for each in heard if each.startswith("rt/"))
        return f"{start}; topics there: {known(topics)}; check ROS_DOMAIN_ID and the network"

    # -- samples -----------------------------------------------------------------------------------

    def read(self) -> RobotState | None:
        """The newest joint state; None where none came."""
        if self._closed:
            raise UsageError("the connection is closed; make a new one")
        if self._newest is not None:
            newest, self._newest = self._newest, None
            return newest
        for reader in self._readers:
            heard = messages_of(reader, HEARD)
            self.rejected += heard is None
            for message in reversed(heard or []):
                state = self._decoded(message)
                if state is not None:
                    return state
        return None

    def _decoded(self, message: JointState | DynamicJointState) -> RobotState | None:
        """A message as a sample; None where it cannot be believed, or is old."""
        channels = self._channels(message)
        if channels is None:
            self.rejected += 1
            return None
        q, dq, tau, temperature = channels
        stamp = message.header.stamp
        t = stamp.sec + 1e-9 * stamp.nanosec
        t = time.time() if t == 0.0 else t
        state = RobotState(t, q, dq, tau, temperature)
        if not state.is_valid(len(self.joints)):
            self.rejected += 1
            return None
        if t <= self._last:
            return None
        self._last = t
        return state

    def _channels(
        self, message: JointState | DynamicJointState
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None] | None:
        """Positions, velocities, efforts and temperatures in the order of `joints`."""
        if isinstance(message, self._messages.JointState):
            names = message.name
            if not self._known(names):
                return None
            arrays = [message.position, message.velocity, message.effort]
            if any(len(array) != len(names) for array in arrays):
                return None
            q, dq, tau = (np.array(array)[self._order] for array in arrays)
            return q, dq, tau, None
        names = message.joint_names
        if not self._known(names) or len(message.interface_values) != len(names):
            return None
        rows = [message.interface_values[k] for k in self._order]
        if any(len(row.interface_names) != len(row.values) for row in rows):
            return None
        values = [dict(zip(row.interface_names, row.values, strict=True)) for row in rows]
        kinds = ("position", "velocity", "effort", "temperature")
        found = {
            kind: np.array([row[kind] for row in values])
            for kind in kinds
            if all(kind in row for row in values)
        }
        if not {"position", "velocity", "effort"} <= found.keys():
            return None
        return found["position"], found["velocity"], found["effort"], found.get("temperature")

    def _known(self, names: list[str]) -> bool:
        """Find the joints among names; refuse names that change."""
        if len(names) > MOST_JOINTS:
            return False
        given = tuple(names)
        if given == self._names:
            return True
        missing = [joint for joint in self.joints if joint not in given]
        if missing or len(set(given)) != len(given):
            if not self._names and not missing:
                return False
            raise RefusedForSafety(
                f"{self._address.states} {'now ' if self._names else ''}has joints"
                f" {known(given)}; the robot file's {known(missing)} is not among them, or one is"
                " there twice: give the file of this robot"
            )
        self._names = given
        self._order = np.array([given.index(joint) for joint in self.joints])
        return True

    # -- commands ----------------------------------------------------------------------------------

    def write(self, command: np.ndarray) -> None:
        """Publish positions or efforts."""
        values = checked_command(command, self, closed=self._closed).tolist()
        assert self._writer is not None
        self._writer.write(self._message(values))

    def _message(self, values: list[float]) -> object:
        messages, joints = self._messages, list(self.joints)
        if self._address.kind == "trajectory":
            point = messages.JointTrajectoryPoint(
                positions=values, time_from_start=messages.Duration(0, round(AHEAD * 1e9))
            )
            return messages.JointTrajectory(joint_names=joints, points=[point])
        if self._address.kind.startswith("dynamic"):
            interface = ["effort" if self.mode == "torque" else "position"]
            rows = [messages.InterfaceValue(interface, [value]) for value in values]
            return messages.DynamicJointState(joint_names=joints, interface_values=rows)
        return messages.Float64MultiArray(data=values)

    def close(self) -> None:
        """Let go. The robot holds the last commanded position; where efforts are commanded, its
        controller's own timeout acts.
        """
        if not self._closed:
            self._closed = True
            self._readers, self._writer = [], None
            self._domain.leave()
