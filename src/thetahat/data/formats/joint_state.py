"""sensor_msgs/JointState from its bytes, in ROS 1 and CDR (ROS 2) encoding.

    header.stamp, header.frame_id, name[], position[], velocity[], effort[]

Messages of one publisher repeat their names, so everything between stamp and positions is compared
with the message before, and read again only where it differs.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

TYPES = ("sensor_msgs/msg/JointState", "sensor_msgs/JointState")
MAX_NAMES = 4_096


class BadMessage(ValueError):
    """Bytes that are not a JointState."""


@dataclass(frozen=True, eq=False)
class JointState:
    """One message."""

    stamp: int  # [ns]
    names: tuple[str, ...]
    position: np.ndarray
    velocity: np.ndarray
    effort: np.ndarray


class Decoder:
    """Decodes messages of one encoding: "cdr" or "ros1"."""

    def __init__(self, encoding: str) -> None:
        self._cdr = encoding == "cdr"
        self._lead = b""  # bytes from the frame's name to the last joint's
        self._names: tuple[str, ...] = ()
        self._end = 0  # of the names

    def decode(self, data: bytes) -> JointState:
        """Decode a message; raise `BadMessage` with the reason if it is damaged."""
        try:
            return self._decode(data)
        except (struct.error, UnicodeDecodeError, IndexError, OverflowError) as error:
            raise BadMessage(f"its bytes are damaged: {error}") from None

    def _decode(self, data: bytes) -> JointState:
        order = ">" if self._cdr and not data[1] & 1 else "<"
        # after CDR's encapsulation, or ROS 1's seq
        seconds, rest = struct.unpack_from(order + ("iI" if self._cdr else "II"), data, 4)
        start = 12
        if not (self._lead and data.startswith(self._lead, start)):
            self._read_names(data, start, order)
        at, arrays = self._end, []
        for _ in range(3):
            values, at = self._doubles(data, at, order)
            arrays.append(values)
        if len(data) - at > 8:  # CDR may pad; anything longer is not this message
            raise BadMessage(f"{len(data) - at} bytes follow its end")
        for kind, values in zip(("position", "velocity", "effort"), arrays, strict=True):
            if len(values) not in (0, len(self._names)):
                raise BadMessage(
                    f"it names {len(self._names)} joints but has {len(values)} numbers in {kind}"
                )
        if rest >= 1_000_000_000:
            raise BadMessage(f"its stamp has {rest} nanoseconds")
        return JointState(seconds * 1_000_000_000 + rest, self._names, *arrays)

    def _aligned(self, at: int, size: int) -> int:
        # CDR aligns to the body, after four bytes of encapsulation
        return 4 + (at - 4 + size - 1) // size * size if self._cdr else at

    def _read_names(self, data: bytes, start: int, order: str) -> None:
        _, at = self._string(data, start, order)
        at = self._aligned(at, 4)
        (count,) = struct.unpack_from(order + "I", data, at)
        if count > MAX_NAMES:
            raise BadMessage(f"it says it has {count} joints")
        at += 4
        names = []
        for _ in range(count):
            name, at = self._string(data, at, order)
            names.append(name)
        self._lead, self._names, self._end = bytes(data[start:at]), tuple(names), at

    def _string(self, data: bytes, at: int, order: str) -> tuple[str, int]:
        at = self._aligned(at, 4)
        (length,) = struct.unpack_from(order + "I", data, at)
        at += 4
        if at + length > len(data):
            raise BadMessage("a name in it is longer than the message")
        return bytes(data[at : at + length]).rstrip(b"\0").decode("utf-8"), at + length

    def _doubles(self, data: bytes, at: int, order: str) -> tuple[np.ndarray, int]:
        at = self._aligned(at, 4)
        (count,) = struct.unpack_from(order + "I", data, at)
        at += 4
        if count:
            at = self._aligned(at, 8)
        if at + 8 * count > len(data):
            raise BadMessage(f"it says it has {count} numbers, more than its bytes hold")
        return np.frombuffer(data, order + "f8", count, at), at + 8 * count
