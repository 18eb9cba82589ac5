"""Unitree's low-level messages as DDS types, from their public interface definitions: `unitree_go`
(Go2, B2, H1) and `unitree_hg` (G1, H1-2), with the checksum of a command.

Needs the extra `ros2`; import it where it is needed.
"""

# annotations are read when the classes are made, so they are not postponed here
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

from cyclonedds.idl import IdlStruct
from cyclonedds.idl.types import array, float32, int16, int32, uint8, uint16, uint32

GO_MOTORS, HG_MOTORS = 20, 35  # slots, whatever the robot has


def _zeros(count: int) -> list[int]:
    return [0] * count


def _several(kind: type, count: int) -> list[Any]:
    return [kind() for _ in range(count)]


@dataclass
class GoImuState(IdlStruct, typename="unitree_go::msg::dds_::IMUState_"):
    """unitree_go/IMUState."""

    quaternion: array[float32, 4] = field(default_factory=partial(_zeros, 4))
    gyroscope: array[float32, 3] = field(default_factory=partial(_zeros, 3))
    accelerometer: array[float32, 3] = field(default_factory=partial(_zeros, 3))
    rpy: array[float32, 3] = field(default_factory=partial(_zeros, 3))
    temperature: uint8 = 0


@dataclass
class GoMotorState(IdlStruct, typename="unitree_go::msg::dds_::MotorState_"):
    """unitree_go/MotorState."""

    mode: uint8 = 0
    q: float32 = 0.0
    dq: float32 = 0.0
    ddq: float32 = 0.0
    tau_est: float32 = 0.0
    q_raw: float32 = 0.0
    dq_raw: float32 = 0.0
    ddq_raw: float32 = 0.0
    temperature: uint8 = 0
    lost: uint32 = 0
    reserve: array[uint32, 2] = field(default_factory=partial(_zeros, 2))


@dataclass
class GoBmsState(IdlStruct, typename="unitree_go::msg::dds_::BmsState_"):
    """unitree_go/BmsState."""

    version_high: uint8 = 0
    version_low: uint8 = 0
    status: uint8 = 0
    soc: uint8 = 0
    current: int32 = 0
    cycle: uint16 = 0
    bq_ntc: array[uint8, 2] = field(default_factory=partial(_zeros, 2))
    mcu_ntc: array[uint8, 2] = field(default_factory=partial(_zeros, 2))
    cell_vol: array[uint16, 15] = field(default_factory=partial(_zeros, 15))


@dataclass
class GoLowState(IdlStruct, typename="unitree_go::msg::dds_::LowState_"):
    """unitree_go/LowState."""

    head: array[uint8, 2] = field(default_factory=partial(_zeros, 2))
    level_flag: uint8 = 0
    frame_reserve: uint8 = 0
    sn: array[uint32, 2] = field(default_factory=partial(_zeros, 2))
    version: array[uint32, 2] = field(default_factory=partial(_zeros, 2))
    bandwidth: uint16 = 0
    imu_state: GoImuState = field(default_factory=GoImuState)
    motor_state: array[GoMotorState, GO_MOTORS] = field(
        default_factory=partial(_several, GoMotorState, GO_MOTORS)
    )
    bms_state: GoBmsState = field(default_factory=GoBmsState)
    foot_force: array[int16, 4] = field(default_factory=partial(_zeros, 4))
    foot_force_est: array[int16, 4] = field(default_factory=partial(_zeros, 4))
    tick: uint32 = 0
    wireless_remote: array[uint8, 40] = field(default_factory=partial(_zeros, 40))
    bit_flag: uint8 = 0
    adc_reel: float32 = 0.0
    temperature_ntc1: uint8 = 0
    temperature_ntc2: uint8 = 0
    power_v: float32 = 0.0
    power_a: float32 = 0.0
    fan_frequency: array[uint16, 4] = field(default_factory=partial(_zeros, 4))
    reserve: uint32 = 0
    crc: uint32 = 0


@dataclass
class GoMotorCmd(IdlStruct, typename="unitree_go::msg::dds_::MotorCmd_"):
    """unitree_go/MotorCmd."""

    mode: uint8 = 0
    q: float32 = 0.0
    dq: float32 = 0.0
    tau: float32 = 0.0
    kp: float32 = 0.0
    kd: float32 = 0.0
    reserve: array[uint32, 3] = field(default_factory=partial(_zeros, 3))


@dataclass
class GoBmsCmd(IdlStruct, typename="unitree_go::msg::dds_::BmsCmd_"):
    """unitree_go/BmsCmd."""

    off: uint8 = 0
    reserve: array[uint8, 3] = field(default_factory=partial(_zeros, 3))


@dataclass
class GoLowCmd(IdlStruct, typename="unitree_go::msg::dds_::LowCmd_"):
    """unitree_go/LowCmd."""

    head: array[uint8, 2] = field(default_factory=partial(_zeros, 2))
    level_flag: uint8 = 0
    frame_reserve: uint8 = 0
    sn: array[uint32, 2] = field(default_factory=partial(_zeros, 2))
    version: array[uint32, 2] = field(default_factory=partial(_zeros, 2))
    bandwidth: uint16 = 0
    motor_cmd: array[GoMotorCmd, GO_MOTORS] = field(
        default_factory=partial(_several, GoMotorCmd, GO_MOTORS)
    )
    bms_cmd: GoBmsCmd = field(default_factory=GoBmsCmd)
    wireless_remote: array[uint8, 40] = field(default_factory=partial(_zeros, 40))
    led: array[uint8, 12] = field(default_factory=partial(_zeros, 12))
    fan: array[uint8, 2] = field(default_factory=partial(_zeros, 2))
    gpio: uint8 = 0
    reserve: uint32 = 0
    crc: uint32 = 0


@dataclass
class HgImuState(IdlStruct, typename="unitree_hg::msg::dds_::IMUState_"):
    """unitree_hg/IMUState."""

    quaternion: array[float32, 4] = field(default_factory=partial(_zeros, 4))
    gyroscope: array[float32, 3] = field(default_factory=partial(_zeros, 3))
    accelerometer: array[float32, 3] = field(default_factory=partial(_zeros, 3))
    rpy: array[float32, 3] = field(default_factory=partial(_zeros, 3))
    temperature: int16 = 0


@dataclass
class HgMotorState(IdlStruct, typename="unitree_hg::msg::dds_::MotorState_"):
    """unitree_hg/MotorState."""

    mode: uint8 = 0
    q: float32 = 0.0
    dq: float32 = 0.0
    ddq: float32 = 0.0
    tau_est: float32 = 0.0
    temperature: array[int16, 2] = field(default_factory=partial(_zeros, 2))
    vol: float32 = 0.0
    sensor: array[uint32, 2] = field(default_factory=partial(_zeros, 2))
    motorstate: uint32 = 0
    reserve: array[uint32, 4] = field(default_factory=partial(_zeros, 4))


@dataclass
class HgLowState(IdlStruct, typename="unitree_hg::msg::dds_::LowState_"):
    """unitree_hg/LowState."""

    version: array[uint32, 2] = field(default_factory=partial(_zeros, 2))
    mode_pr: uint8 = 0
    mode_machine: uint8 = 0
    tick: uint32 = 0
    imu_state: HgImuState = field(default_factory=HgImuState)
    motor_state: array[HgMotorState, HG_MOTORS] = field(
        default_factory=partial(_several, HgMotorState, HG_MOTORS)
    )
    wireless_remote: array[uint8, 40] = field(default_factory=partial(_zeros, 40))
    reserve: array[uint32, 4] = field(default_factory=partial(_zeros, 4))
    crc: uint32 = 0


@dataclass
class HgMotorCmd(IdlStruct, typename="unitree_hg::msg::dds_::MotorCmd_"):
    """unitree_hg/MotorCmd."""

    mode: uint8 = 0
    q: float32 = 0.0
    dq: float32 = 0.0
    tau: float32 = 0.0
    kp: float32 = 0.0
    kd: float32 = 0.0
    reserve: uint32 = 0


@dataclass
class HgLowCmd(IdlStruct, typename="unitree_hg::msg::dds_::LowCmd_"):
    """unitree_hg/LowCmd."""

    mode_pr: uint8 = 0
    mode_machine: uint8 = 0
    motor_cmd: array[HgMotorCmd, HG_MOTORS] = field(
        default_factory=partial(_several, HgMotorCmd, HG_MOTORS)
    )
    reserve: array[uint32, 4] = field(default_factory=partial(_zeros, 4))
    crc: uint32 = 0


# -- checksum --------------------------------------------------------------------------------------

# fields as a C compiler lays them out, which is what the checksum is taken of
LAYOUT = {
    GoLowCmd: "4B4IH" + GO_MOTORS * "0IB5f3I" + "59B2I",
    HgLowCmd: "2B" + HG_MOTORS * "0IB5fI" + "5I",
}
REVERSED = bytes(int(f"{k:08b}"[::-1], 2) for k in range(256))  # bits of every byte


def crc32_mpeg2(data: bytes) -> int:
    """CRC-32/MPEG-2: polynomial 04C11DB7, most significant bit first, begun with all ones."""
    reflected = zlib.crc32(data.translate(REVERSED)) ^ 0xFFFFFFFF
    return int(f"{reflected:032b}"[::-1], 2)


def checksum(command: GoLowCmd | HgLowCmd) -> int:
    """What `crc` of a command must be: of its 32-bit words but the last one."""
    raw = struct.pack(LAYOUT[type(command)], *_numbers(command))
    return crc32_mpeg2(
        struct.pack(f">{len(raw) // 4 - 1}I", *struct.unpack(f"<{len(raw) // 4}I", raw)[:-1])
    )


def _numbers(value: Any) -> Iterator[float]:
    """Every number of a message, in order."""
    if isinstance(value, IdlStruct):
        for each in fields(value):
            yield from _numbers(getattr(value, each.name))
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _numbers(each)
    else:
        yield value
