"""ROS 2 messages as DDS types, from their public interface definitions: sensor_msgs/JointState,
trajectory_msgs/JointTrajectory, std_msgs/Float64MultiArray, control_msgs/DynamicJointState.

Type names are those of ROS 2 on the wire (`sensor_msgs::msg::dds_::JointState_`). Needs the extra
`ros2`; import it where it is needed.
"""

# annotations are read when the classes are made, so they are not postponed here
import struct
from dataclasses import dataclass, field

from cyclonedds.idl import IdlStruct
from cyclonedds.idl.types import float64, int32, sequence, uint32


@dataclass
class Time(IdlStruct, typename="builtin_interfaces::msg::dds_::Time_"):
    """builtin_interfaces/Time."""

    sec: int32 = 0
    nanosec: uint32 = 0


@dataclass
class Duration(IdlStruct, typename="builtin_interfaces::msg::dds_::Duration_"):
    """builtin_interfaces/Duration."""

    sec: int32 = 0
    nanosec: uint32 = 0


@dataclass
class Header(IdlStruct, typename="std_msgs::msg::dds_::Header_"):
    """std_msgs/Header."""

    stamp: Time = field(default_factory=Time)
    frame_id: str = ""


@dataclass
class JointState(IdlStruct, typename="sensor_msgs::msg::dds_::JointState_"):
    """sensor_msgs/JointState."""

    header: Header = field(default_factory=Header)
    name: sequence[str] = field(default_factory=list)
    position: sequence[float64] = field(default_factory=list)
    velocity: sequence[float64] = field(default_factory=list)
    effort: sequence[float64] = field(default_factory=list)

    @classmethod
    def deserialize(
        cls, data: bytes, has_header: bool = True, use_version_2: bool | None = None
    ) -> "JointState":
        """Read a message; twenty times as fast where its names are those of the last one."""
        known = _names.get(data[:2]) if has_header and not use_version_2 else None
        try:
            if known is not None and (message := known.message(data)) is not None:
                return message
        except (struct.error, UnicodeDecodeError):  # it tells of something else: look at all of it
            pass
        read: JointState = super().deserialize(data, has_header, use_version_2)
        if has_header and data[:2] == LITTLE_ENDIAN and not use_version_2:
            _names[LITTLE_ENDIAN] = _Names.of(data, read)
        return read


LITTLE_ENDIAN = b"\x00\x01"  # CDR, as the first bytes of a message say


@dataclass(frozen=True)
class _Names:
    """The names of a message's joints, and the bytes that they are on the wire.

    Offsets count from behind the encapsulation (4 bytes): stamp (8), length of frame_id (4),
    its characters, then, at a multiple of 4, the number of names, and them; doubles begin at a
    multiple of 8.
    """

    names: tuple[str, ...]
    wire: bytes

    @staticmethod
    def of(data: bytes, message: JointState) -> "_Names":
        """Those of a message that was read."""
        begin = _names_begin(data)
        end = begin + 4
        for name in message.name:
            end = -(-end // 4) * 4 + 5 + len(name.encode())
        return _Names(tuple(message.name), data[4 + begin : 4 + end])

    def message(self, data: bytes) -> JointState | None:
        """A message with these names; None where it has others."""
        begin = _names_begin(data)
        end = begin + len(self.wire)
        if data[4 + begin : 4 + end] != self.wire:
            return None
        sec, nanosec, length = struct.unpack_from("<iII", data, 4)
        frame = data[16 : 16 + length - 1].decode()
        channels = []
        for _ in range(3):
            at = -(-end // 4) * 4
            (count,) = struct.unpack_from("<I", data, 4 + at)
            end = at + 4
            if count:
                end = -(-end // 8) * 8
                channels.append(list(struct.unpack_from(f"<{count}d", data, 4 + end)))
                end += 8 * count
            else:
                channels.append([])
        return JointState(Header(Time(sec, nanosec), frame), list(self.names), *channels)


_names: dict[bytes, _Names] = {}  # of the last message, by its encapsulation


def _names_begin(data: bytes) -> int:
    """Where the names begin, in bytes after the encapsulation."""
    (length,) = struct.unpack_from("<I", data, 12)
    return -(-(12 + int(length)) // 4) * 4


@dataclass
class JointTrajectoryPoint(IdlStruct, typename="trajectory_msgs::msg::dds_::JointTrajectoryPoint_"):
    """trajectory_msgs/JointTrajectoryPoint."""

    positions: sequence[float64] = field(default_factory=list)
    velocities: sequence[float64] = field(default_factory=list)
    accelerations: sequence[float64] = field(default_factory=list)
    effort: sequence[float64] = field(default_factory=list)
    time_from_start: Duration = field(default_factory=Duration)


@dataclass
class JointTrajectory(IdlStruct, typename="trajectory_msgs::msg::dds_::JointTrajectory_"):
    """trajectory_msgs/JointTrajectory."""

    header: Header = field(default_factory=Header)
    joint_names: sequence[str] = field(default_factory=list)
    points: sequence[JointTrajectoryPoint] = field(default_factory=list)


@dataclass
class MultiArrayDimension(IdlStruct, typename="std_msgs::msg::dds_::MultiArrayDimension_"):
    """std_msgs/MultiArrayDimension."""

    label: str = ""
    size: uint32 = 0
    stride: uint32 = 0


@dataclass
class MultiArrayLayout(IdlStruct, typename="std_msgs::msg::dds_::MultiArrayLayout_"):
    """std_msgs/MultiArrayLayout."""

    dim: sequence[MultiArrayDimension] = field(default_factory=list)
    data_offset: uint32 = 0


@dataclass
class Float64MultiArray(IdlStruct, typename="std_msgs::msg::dds_::Float64MultiArray_"):
    """std_msgs/Float64MultiArray."""

    layout: MultiArrayLayout = field(default_factory=MultiArrayLayout)
    data: sequence[float64] = field(default_factory=list)


@dataclass
class InterfaceValue(IdlStruct, typename="control_msgs::msg::dds_::InterfaceValue_"):
    """control_msgs/InterfaceValue."""

    interface_names: sequence[str] = field(default_factory=list)
    values: sequence[float64] = field(default_factory=list)


@dataclass
class DynamicJointState(IdlStruct, typename="control_msgs::msg::dds_::DynamicJointState_"):
    """control_msgs/DynamicJointState."""

    header: Header = field(default_factory=Header)
    joint_names: sequence[str] = field(default_factory=list)
    interface_values: sequence[InterfaceValue] = field(default_factory=list)


MESSAGES = {
    "sensor_msgs/msg/JointState": JointState,
    "trajectory_msgs/msg/JointTrajectory": JointTrajectory,
    "std_msgs/msg/Float64MultiArray": Float64MultiArray,
    "control_msgs/msg/DynamicJointState": DynamicJointState,
}
