"""A robot of Unitree in a process of its own, on loopback: publishes its low-level state and follows
commands whose checksum is right, by a checksum of its own.
"""

from __future__ import annotations

import ctypes
import math
import multiprocessing
import time
from dataclasses import dataclass, fields
from typing import Any

from cyclonedds.idl import IdlStruct
from cyclonedds.idl.types import uint32

from thetahat.connect.ros2 import Domain

U8, U16, U32, F32 = ctypes.c_uint8, ctypes.c_uint16, ctypes.c_uint32, ctypes.c_float


class GoMotor(ctypes.Structure):
    _fields_ = [
        ("mode", U8),
        *((n, F32) for n in ("q", "dq", "tau", "kp", "kd")),
        ("reserve", U32 * 3),
    ]


class GoCommand(ctypes.Structure):
    _fields_ = [
        ("head", U8 * 2),
        ("level_flag", U8),
        ("frame_reserve", U8),
        ("sn", U32 * 2),
        ("version", U32 * 2),
        ("bandwidth", U16),
        ("motor_cmd", GoMotor * 20),
        ("bms_off", U8),
        ("bms_reserve", U8 * 3),
        ("wireless_remote", U8 * 40),
        ("led", U8 * 12),
        ("fan", U8 * 2),
        ("gpio", U8),
        ("reserve", U32),
        ("crc", U32),
    ]


class HgMotor(ctypes.Structure):
    _fields_ = [("mode", U8), *((n, F32) for n in ("q", "dq", "tau", "kp", "kd")), ("reserve", U32)]


class HgCommand(ctypes.Structure):
    _fields_ = [
        ("mode_pr", U8),
        ("mode_machine", U8),
        ("motor_cmd", HgMotor * 35),
        ("reserve", U32 * 4),
        ("crc", U32),
    ]


@dataclass
class Short(IdlStruct, typename="unitree_go::msg::dds_::LowState_"):
    """A message with the name of another one."""

    tick: uint32 = 7


def as_c(message: Any) -> ctypes.Structure:
    """A command as a C compiler lays it out."""
    hg = len(message.motor_cmd) == 35
    out = HgCommand() if hg else GoCommand()
    for name, kind in out._fields_:
        if name == "motor_cmd":
            for motor, given in zip(out.motor_cmd, message.motor_cmd, strict=True):
                for each in fields(given):
                    value = getattr(given, each.name)
                    wide = isinstance(value, (list, tuple))
                    setattr(motor, each.name, (U32 * 3)(*value) if wide else value)
            continue
        value = (
            {"bms_off": message.bms_cmd.off, "bms_reserve": message.bms_cmd.reserve}[name]
            if name.startswith("bms")
            else getattr(message, name)
        )
        setattr(out, name, kind(*value) if issubclass(kind, ctypes.Array) else value)
    return out


def slow_checksum(message: Any) -> int:
    """What `crc` of a command must be, bit by bit: of all its words but the last one."""
    raw = bytes(as_c(message))
    crc = 0xFFFFFFFF
    words = memoryview(raw).cast("I")
    for k in range(len(words) - 1):
        for bit in range(31, -1, -1):
            top = (crc >> 31) ^ ((words[k] >> bit) & 1)
            crc = ((crc << 1) & 0xFFFFFFFF) ^ (0x04C11DB7 if top else 0)
    return crc


def be(domain: int, family: str, kind: str, rate: float, seconds: float) -> None:
    """Be the robot for some time."""
    from thetahat.connect import unitree_messages as messages

    participant = Domain(domain, loopback=True)
    state = messages.HgLowState() if family == "Hg" else messages.GoLowState()
    command = messages.HgLowCmd if family == "Hg" else messages.GoLowCmd
    writer = participant.writer("/lowstate", Short if kind == "short" else type(state))
    reader = participant.reader("/lowcmd", command, 10)
    other = participant.writer("/lowcmd", command) if kind == "driven" else None
    for k, motor in enumerate(state.motor_state):
        motor.q, motor.tau_est = 0.01 * k, 0.5 * k
        motor.temperature = [30, 31] if family == "Hg" else 31
    if family == "Hg":
        state.mode_machine = 5
    begin = due = time.monotonic()
    while time.monotonic() - begin < seconds:
        for each in reader.take(N=10):
            if hasattr(each, "motor_cmd"):
                obey(state, each, family)
        state.tick += max(1, round(1e3 / rate))
        late = time.monotonic() - begin > 1.0
        if kind == "not a number" and late:
            state.motor_state[3].q = math.nan
        if kind == "burning" and late:
            state.motor_state[3].temperature = 255
        writer.write(Short() if kind == "short" else state)
        due += 1.0 / rate
        time.sleep(max(0.0, due - time.monotonic()))
    assert other is None or other


def obey(state: Any, command: Any, family: str) -> None:
    if command.crc != slow_checksum(command):
        return
    if family == "Hg" and command.mode_machine != state.mode_machine:
        return
    if family == "Go" and (list(command.head) != [0xFE, 0xEF] or command.level_flag != 0xFF):
        return
    for motor, wanted in zip(state.motor_state, command.motor_cmd, strict=True):
        if wanted.mode and wanted.kp > 0.0:
            motor.q = wanted.q
        if wanted.mode:
            motor.tau_est = wanted.tau if wanted.tau else motor.tau_est


class UnitreeNode:
    """The robot's process: `with UnitreeNode(7, "Go")`."""

    def __init__(
        self,
        domain: int,
        family: str,
        kind: str = "",
        *,
        rate: float = 100.0,
        seconds: float = 60.0,
    ) -> None:
        self._process = multiprocessing.get_context("spawn").Process(
            target=be, args=(domain, family, kind, rate, seconds), daemon=True
        )

    def __enter__(self) -> UnitreeNode:
        self._process.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.join(30.0)
