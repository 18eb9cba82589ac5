"""ROS 2 messages as DDS types, from their public interface definitions: sensor_msgs/JointState,
trajectory_msgs/JointTrajectory, std_msgs/Float64MultiArray, control_msgs/DynamicJointState.

Type names are those of ROS 2 on the wire (`sensor_msgs::msg::dds_::JointState_`). Needs the extra
`ros2`; import it where it is needed.
"""

# annotations are read when the classes are made, so they are not postponed here
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
