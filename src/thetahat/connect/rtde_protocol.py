"""RTDE, the Real-Time Data Exchange protocol of Universal Robots' controllers, version 2: packets
as bytes [RTDE]. No socket is touched here.

A packet is its size (u16, header included), its kind (u8) and a payload, numbers big-endian. A
client asks for the version, names the variables it wants ("recipe"), starts, and gets one data
packet per sample.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from thetahat.errors import MalformedInput, known

VERSION, CONTROLLER, MESSAGE, DATA, OUTPUTS, INPUTS, START, PAUSE = b"VvMUOISP"
PROTOCOL = 2
HEADER = struct.Struct(">HB")
LARGEST = 4096  # bytes of a packet: recipes and samples are far smaller
TYPES = {  # of variables
    "BOOL": "?",
    "UINT8": "B",
    "UINT32": "I",
    "UINT64": "Q",
    "INT32": "i",
    "DOUBLE": "d",
    "VECTOR3D": "3d",
    "VECTOR6D": "6d",
    "VECTOR6INT32": "6i",
    "VECTOR6UINT32": "6I",
}
Value = int | float | tuple[int | float, ...]


def packet(kind: int, payload: bytes = b"") -> bytes:
    """A packet."""
    return HEADER.pack(HEADER.size + len(payload), kind) + payload


class PacketBuffer:
    """Bytes as they come, cut into packets."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def push(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Kind and payload of every packet that is whole."""
        self._bytes += data
        while len(self._bytes) >= HEADER.size:
            size, kind = HEADER.unpack_from(self._bytes)
            if not HEADER.size <= size <= LARGEST:
                raise MalformedInput(
                    f"a packet says it has {size} bytes; RTDE's have {HEADER.size} to"
                    f" {LARGEST}: what answers there is no RTDE server"
                )
            if len(self._bytes) < size:
                return
            payload = bytes(self._bytes[HEADER.size : size])
            del self._bytes[:size]
            yield kind, payload


@dataclass(frozen=True)
class Recipe:
    """Variables of a data packet, in their order."""

    id: int
    names: tuple[str, ...]
    types: tuple[str, ...]

    @staticmethod
    def read(names: tuple[str, ...], payload: bytes) -> Recipe:
        """Read the answer to a request for variables."""
        try:
            types = tuple(payload[1:].decode("ascii").split(","))
        except UnicodeDecodeError:
            types = ()
        if len(types) != len(names):
            raise MalformedInput(
                f"the controller answers {payload[:80]!r} when asked for {len(names)} variables;"
                " check the port, and the controller's version"
            )
        return Recipe(payload[0], names, types)

    @property
    def refused(self) -> dict[str, str]:
        """Variables that the controller does not give, and its word for why."""
        pairs = zip(self.names, self.types, strict=True)
        return {name: kind for name, kind in pairs if kind not in TYPES}

    @property
    def _format(self) -> str:
        if self.refused:
            raise MalformedInput(
                "the controller refuses"
                f" {known(f'{name} ({kind})' for name, kind in self.refused.items())}"
            )
        return ">B" + "".join(TYPES[kind] for kind in self.types)

    def pack(self, *values: float) -> bytes:
        """A data packet with these numbers, vectors written out."""
        return packet(DATA, struct.pack(self._format, self.id, *values))

    def unpack(self, payload: bytes) -> dict[str, Value] | None:
        """Values by name; None where the packet is of another recipe or size."""
        if len(payload) != struct.calcsize(self._format) or payload[0] != self.id:
            return None
        flat = struct.unpack(self._format, payload)[1:]
        out: dict[str, Value] = {}
        at = 0
        for name, kind in zip(self.names, self.types, strict=True):
            code = TYPES[kind]
            count = int(code[:-1] or 1)
            out[name] = flat[at] if len(code) == 1 else flat[at : at + count]
            at += count
        return out


def outputs_request(names: tuple[str, ...], rate: float) -> bytes:
    """Ask for variables, so many times per second."""
    return packet(OUTPUTS, struct.pack(">d", rate) + ",".join(names).encode("ascii"))


def inputs_request(names: tuple[str, ...]) -> bytes:
    """Ask to write variables."""
    return packet(INPUTS, ",".join(names).encode("ascii"))
