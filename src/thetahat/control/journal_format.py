"""The journal's file format: frames that say themselves whether they are whole.

    file    "THETAHAT JOURNAL 1\\n", then frames
    frame   marker (4 bytes), length of the payload (u32), CRC-32 of what follows (u32),
            number (u64), payload; little-endian

    payload  "S" JSON {"id": 3, "kind": "cycle", "fields": [["q", [7]], …]}
                 the layout of records to come, once per file
             "N" id (u16), time (f64), doubles
                 a record of numbers: exact, NaN and all
             "J" JSON {"kind": …, "t": …, "values": {…}}
                 any other record

Numbers count up by one per frame through all files of a journal, so that what is missing shows. A
frame that was cut (a kill, a full disk) fails its CRC or its length; the next whole one is found by
its marker.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

MAGIC = b"THETAHAT JOURNAL 1\n"
MARKER = b"\xceTJ\x98"
HEAD = struct.Struct("<4sIIQ")
_NUMBER = struct.Struct("<Q")
_PREFIX = struct.Struct("<cHd")
MAX_PAYLOAD = 16 << 20  # a longer length is a damaged one
BLOCK = 1 << 20


def frame(number: int, payload: bytes) -> bytes:
    """A whole frame."""
    crc = zlib.crc32(payload, zlib.crc32(_NUMBER.pack(number)))
    return HEAD.pack(MARKER, len(payload), crc, number) + payload


@dataclass(frozen=True, eq=False)
class Record:
    """One entry of a journal."""

    number: int
    kind: str
    t: float  # [s], as the writer counts it
    values: dict[str, Any]  # arrays, or what JSON holds


@dataclass(frozen=True)
class Damage:
    """Bytes that are no whole frame; at the end of a file they are a torn tail."""

    offset: int
    size: int


# -- writing ---------------------------------------------------------------------------------------


class Encoder:
    """Payloads of one file: layouts are declared before they are used."""

    def __init__(self) -> None:
        self._layouts: dict[tuple[object, ...], int] = {}

    def payloads(self, kind: str, t: float, values: dict[str, Any]) -> list[bytes]:
        """The frames' payloads of one record: a layout first, where it is new."""
        arrays: list[bytes] = []
        layout: list[str | tuple[str, tuple[int, ...]]] = [kind]
        for name, value in values.items():
            if type(value) is float:
                value = np.float64(value)
            elif not (isinstance(value, np.ndarray | np.floating) and value.dtype == np.float64):
                record = {"kind": kind, "t": plain(t), "values": plain(values)}
                return [b"J" + json.dumps(record, ensure_ascii=False).encode()]
            arrays.append(value.tobytes())
            layout.append((name, value.shape))
        key, declared = tuple(layout), []
        if key not in self._layouts:
            if len(self._layouts) > 0xFFFF:
                self._layouts.clear()  # ids are declared anew, and the last declaration holds
            self._layouts[key] = len(self._layouts)
            text = {"id": self._layouts[key], "kind": kind, "fields": layout[1:]}
            declared.append(b"S" + json.dumps(text).encode())
        return [*declared, _PREFIX.pack(b"N", self._layouts[key], t) + b"".join(arrays)]


def plain(value: Any) -> Any:
    """What JSON can hold: arrays as lists, numbers that are none as null."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int | bool) else str(value)


# -- reading ---------------------------------------------------------------------------------------


class Decoder:
    """Records from the payloads of one file."""

    def __init__(self) -> None:
        self._layouts: dict[int, tuple[str, list[tuple[str, tuple[int, ...]]]]] = {}

    def record(self, number: int, payload: bytes) -> Record | None:
        """A record, or None for a layout or for what a later version of the format may hold."""
        try:
            match payload[:1]:
                case b"S":
                    text = json.loads(payload[1:])
                    fields = [(name, tuple(shape)) for name, shape in text["fields"]]
                    self._layouts[text["id"]] = text["kind"], fields
                case b"N":
                    return self._numbers(number, payload)
                case b"J":
                    text = json.loads(payload[1:])
                    t = math.nan if text["t"] is None else float(text["t"])
                    return Record(number, text["kind"], t, text["values"])
        except (ValueError, KeyError, TypeError, struct.error):  # whole, yet of another format
            return None
        return None

    def _numbers(self, number: int, payload: bytes) -> Record | None:
        _, layout, t = _PREFIX.unpack_from(payload)
        kind, fields = self._layouts[layout]
        values, at = {}, _PREFIX.size
        for name, shape in fields:
            count = math.prod(shape)
            values[name] = (
                np.frombuffer(payload, count=count, offset=at).reshape(shape).copy()
                if shape
                else struct.unpack_from("<d", payload, at)[0]
            )
            at += 8 * count
        return Record(number, kind, t, values)


def frames(file: BinaryIO, offset: int) -> Iterator[tuple[int, int, bytes] | Damage]:
    """(offset behind the frame, number, payload) of every whole frame from `offset` on, and the
    damage between them.
    """
    file.seek(offset)
    buffer, base, at, bad, ended = b"", offset, 0, 0, False
    while True:
        head = _whole(buffer, at)
        if head is not None and head > 0:
            if bad:
                yield Damage(base + at - bad, bad)
                bad = 0
            number = HEAD.unpack_from(buffer, at)[3]
            yield base + at + head, number, buffer[at + HEAD.size : at + head]
            at += head
        elif head is None and not ended:  # more is needed to tell
            more = file.read(BLOCK)
            ended = not more
            buffer, base, at = buffer[at:] + more, base + at, 0
        elif at >= len(buffer):
            if bad:
                yield Damage(base + at - bad, bad)
            return
        else:
            following = buffer.find(MARKER, at + 1)
            step = (len(buffer) if following < 0 else following) - at
            if following < 0 and not ended:
                step = max(1, step - len(MARKER) + 1)  # the marker may be cut by the block's end
            at, bad = at + step, bad + step


def _whole(buffer: bytes, at: int) -> int | None:
    """Size of the frame at this place; 0 where there is none, None where the buffer ends before
    that shows.
    """
    if len(buffer) - at < HEAD.size:
        return None
    marker, length, crc, number = HEAD.unpack_from(buffer, at)
    if marker != MARKER or length > MAX_PAYLOAD:
        return 0
    end = at + HEAD.size + length
    if end > len(buffer):
        return None
    payload = memoryview(buffer)[at + HEAD.size : end]
    return end - at if zlib.crc32(payload, zlib.crc32(_NUMBER.pack(number))) == crc else 0
