"""Unitree's low-level messages as DDS types, by their definitions [UnitreeSDK]: `unitree_go`
(Go2, B2, H1) and `unitree_hg` (G1, H1-2), with the checksum of a command.

Needs the extra `ros2`; import it where it is needed.
"""

from __future__ import annotations

import struct
import sys
import types
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import accumulate

import numpy as np
from cyclonedds.idl import IdlStruct
from cyclonedds.idl.types import array, float32, int16, int32, uint8, uint16, uint32

GO_MOTORS, HG_MOTORS = 20, 35  # slots, whatever the robot has
Kind = type | tuple[type, int]  # of a field: one value, or so many
# of every message: its fields, where their numbers are, and its bytes in CDR and for a C compiler
KINDS: dict[type, Mapping[str, Kind]] = {}
PLACES: dict[type, Mapping[str, slice]] = {}
CDR: dict[type, str] = {}
PADDED: dict[type, str] = {}


CODES = {uint8: "B", uint16: "H", int16: "h", uint32: "I", int32: "i", float32: "f"}


def layout(kind: Kind, *, padded: bool = False) -> str:
    """Format of a kind for `struct`, aligned as CDR has it or, padded, as a C compiler does."""
    if isinstance(kind, tuple):
        return layout(kind[0], padded=padded) * kind[1]
    if kind in CODES:
        return CODES[kind]
    inside = "".join(layout(each, padded=padded) for each in KINDS[kind].values())
    return f"0I{inside}" if padded and set(inside) & set("Iif") else inside


def _count(kind: Kind) -> int:
    """Numbers that a kind holds."""
    if isinstance(kind, tuple):
        return kind[1] * _count(kind[0])
    return sum(map(_count, KINDS[kind].values())) if kind in KINDS else 1


def places(kind: type) -> dict[str, slice]:
    """Which of a message's numbers are those of a field."""
    counts = [_count(each) for each in KINDS[kind].values()]
    ends = list(accumulate(counts))
    return {
        name: slice(end - count, end)
        for name, count, end in zip(KINDS[kind], counts, ends, strict=True)
    }


LITTLE_ENDIAN = b"\x00\x01"  # CDR, as the first bytes of a message say


def _serialize(
    self: IdlStruct,
    buffer: object = None,
    endianness: object = None,
    use_version_2: bool | None = None,
) -> bytes:
    """Write a message, whose bytes are always in the same places, at once."""
    if buffer or endianness or use_version_2 or sys.byteorder != "little":
        written: bytes = self.__idl__.serialize(self, use_version_2, buffer, endianness)
        return written
    return LITTLE_ENDIAN + b"\0\0" + struct.pack(CDR[type(self)], *numbers(self))


def _deserialize(
    cls: type[IdlStruct], data: bytes, has_header: bool = True, use_version_2: bool | None = None
) -> IdlStruct:
    """Read a message at once; a state keeps its numbers alone, for `motors` and `number`."""
    quick = has_header and data[:2] == LITTLE_ENDIAN and not use_version_2
    if "motor_state" in KINDS[cls] and quick and sys.byteorder == "little":
        made: IdlStruct = object.__new__(cls)
        made.flat = struct.unpack_from(CDR[cls], data, 4)
        return made
    return cls.__idl__.deserialize(data, has_header, use_version_2)


def _message(package: str, name: str, **kinds: Kind) -> type[IdlStruct]:
    """A message; its fields are zero where nothing else is given."""

    def fill(space: dict[str, object]) -> None:
        space["__annotations__"] = {
            each: array[kind] if isinstance(kind, tuple) else kind for each, kind in kinds.items()
        }
        space |= {each: field(default_factory=partial(_zero, kind)) for each, kind in kinds.items()}
        space |= {"serialize": _serialize, "deserialize": classmethod(_deserialize)}

    wire = f"{package}::msg::dds_::{name}_"
    made = types.new_class(name, (IdlStruct,), {"typename": wire}, fill)
    made.__module__ = __name__
    KINDS[made] = kinds
    PLACES[made] = places(made)
    CDR[made], PADDED[made] = layout(made), layout(made, padded=True)
    return dataclass(made)


def _zero(kind: Kind) -> object:
    if isinstance(kind, tuple):
        return [_zero(kind[0]) for _ in range(kind[1])]
    return kind() if isinstance(kind, type) and issubclass(kind, IdlStruct) else 0


GoImuState = _message(
    "unitree_go",
    "IMUState",
    quaternion=(float32, 4),
    gyroscope=(float32, 3),
    accelerometer=(float32, 3),
    rpy=(float32, 3),
    temperature=uint8,
)
GoMotorState = _message(
    "unitree_go",
    "MotorState",
    mode=uint8,
    q=float32,
    dq=float32,
    ddq=float32,
    tau_est=float32,
    q_raw=float32,
    dq_raw=float32,
    ddq_raw=float32,
    temperature=uint8,
    lost=uint32,
    reserve=(uint32, 2),
)
GoBmsState = _message(
    "unitree_go",
    "BmsState",
    version_high=uint8,
    version_low=uint8,
    status=uint8,
    soc=uint8,
    current=int32,
    cycle=uint16,
    bq_ntc=(uint8, 2),
    mcu_ntc=(uint8, 2),
    cell_vol=(uint16, 15),
)
GoLowState = _message(
    "unitree_go",
    "LowState",
    head=(uint8, 2),
    level_flag=uint8,
    frame_reserve=uint8,
    sn=(uint32, 2),
    version=(uint32, 2),
    bandwidth=uint16,
    imu_state=GoImuState,
    motor_state=(GoMotorState, GO_MOTORS),
    bms_state=GoBmsState,
    foot_force=(int16, 4),
    foot_force_est=(int16, 4),
    tick=uint32,
    wireless_remote=(uint8, 40),
    bit_flag=uint8,
    adc_reel=float32,
    temperature_ntc1=uint8,
    temperature_ntc2=uint8,
    power_v=float32,
    power_a=float32,
    fan_frequency=(uint16, 4),
    reserve=uint32,
    crc=uint32,
)
GoMotorCmd = _message(
    "unitree_go",
    "MotorCmd",
    mode=uint8,
    q=float32,
    dq=float32,
    tau=float32,
    kp=float32,
    kd=float32,
    reserve=(uint32, 3),
)
GoBmsCmd = _message(
    "unitree_go",
    "BmsCmd",
    off=uint8,
    reserve=(uint8, 3),
)
GoLowCmd = _message(
    "unitree_go",
    "LowCmd",
    head=(uint8, 2),
    level_flag=uint8,
    frame_reserve=uint8,
    sn=(uint32, 2),
    version=(uint32, 2),
    bandwidth=uint16,
    motor_cmd=(GoMotorCmd, GO_MOTORS),
    bms_cmd=GoBmsCmd,
    wireless_remote=(uint8, 40),
    led=(uint8, 12),
    fan=(uint8, 2),
    gpio=uint8,
    reserve=uint32,
    crc=uint32,
)
HgImuState = _message(
    "unitree_hg",
    "IMUState",
    quaternion=(float32, 4),
    gyroscope=(float32, 3),
    accelerometer=(float32, 3),
    rpy=(float32, 3),
    temperature=int16,
)
HgMotorState = _message(
    "unitree_hg",
    "MotorState",
    mode=uint8,
    q=float32,
    dq=float32,
    ddq=float32,
    tau_est=float32,
    temperature=(int16, 2),
    vol=float32,
    sensor=(uint32, 2),
    motorstate=uint32,
    reserve=(uint32, 4),
)
HgLowState = _message(
    "unitree_hg",
    "LowState",
    version=(uint32, 2),
    mode_pr=uint8,
    mode_machine=uint8,
    tick=uint32,
    imu_state=HgImuState,
    motor_state=(HgMotorState, HG_MOTORS),
    wireless_remote=(uint8, 40),
    reserve=(uint32, 4),
    crc=uint32,
)
HgMotorCmd = _message(
    "unitree_hg",
    "MotorCmd",
    mode=uint8,
    q=float32,
    dq=float32,
    tau=float32,
    kp=float32,
    kd=float32,
    reserve=uint32,
)
HgLowCmd = _message(
    "unitree_hg",
    "LowCmd",
    mode_pr=uint8,
    mode_machine=uint8,
    motor_cmd=(HgMotorCmd, HG_MOTORS),
    reserve=(uint32, 4),
    crc=uint32,
)


# -- as bytes --------------------------------------------------------------------------------------


def numbers(message: IdlStruct) -> Sequence[float]:
    """Every number of a message, in order."""
    return message.flat if "flat" in vars(message) else tuple(_numbers(message))


def number(message: IdlStruct, name: str) -> float:
    """The first number of a field."""
    return float(numbers(message)[PLACES[type(message)][name].start])


def motors(message: IdlStruct) -> dict[str, np.ndarray]:
    """Numbers of a state's motors by name, (slots, ·)."""
    field_kind = KINDS[type(message)]["motor_state"]
    assert isinstance(field_kind, tuple)
    kind, slots = field_kind
    values = numbers(message)[PLACES[type(message)]["motor_state"]]
    table = np.array(values, dtype=float).reshape(slots, -1)
    return {name: table[:, place] for name, place in PLACES[kind].items()}


# -- checksum --------------------------------------------------------------------------------------

REVERSED = bytes(int(f"{k:08b}"[::-1], 2) for k in range(256))  # bits of every byte


def crc32_mpeg2(data: bytes) -> int:
    """CRC-32/MPEG-2: polynomial 04C11DB7, most significant bit first, begun with all ones."""
    reflected = zlib.crc32(data.translate(REVERSED)) ^ 0xFFFFFFFF
    return int(f"{reflected:032b}"[::-1], 2)


def checksum(command: IdlStruct) -> int:
    """What `crc` of a command must be: of its 32-bit words but the last one."""
    # the fields as a C compiler lays them out, which is what the checksum is taken of
    raw = struct.pack(PADDED[type(command)], *numbers(command))
    return crc32_mpeg2(
        struct.pack(f">{len(raw) // 4 - 1}I", *struct.unpack(f"<{len(raw) // 4}I", raw)[:-1])
    )


def _numbers(value: object) -> Iterator[float]:
    """Every number of a message, in order."""
    if isinstance(value, IdlStruct):
        for one in fields(value):
            yield from _numbers(getattr(value, one.name))
    elif isinstance(value, (list, tuple, bytes)):
        for each in value:
            yield from _numbers(each)
    elif isinstance(value, (int, float)):
        yield value
