"""Arrays and plain values as bytes, with a version and a checksum: what the store keeps on disk.
Nothing in it can run.

    magic (8)   length of the header (8)   header: JSON   arrays, one after another   BLAKE2 of all
    before (32)

The header holds the values, and name, kind, shape and place of every array. Numbers are
little-endian.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from typing import Any

import numpy as np

MAGIC = b"THETAH\x01\n"  # the byte before the line end is the version
CHECK = 32  # bytes
KINDS = ("<f8", "<i8", "|u1", "|b1")


class Damaged(ValueError):
    """Bytes that are not what was written."""


def packed(values: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
    """The bytes of values (as JSON holds them) and arrays (doubles, whole numbers, bytes, truth
    values).
    """
    parts, described = [], []
    for name, array in arrays.items():
        kind = {"f": "<f8", "i": "<i8", "b": "|b1"}.get(array.dtype.kind, "|u1")
        data = np.ascontiguousarray(array, dtype=kind).tobytes()
        described.append({"name": name, "kind": kind, "shape": list(array.shape)})
        parts.append(data)
    header = json.dumps(
        {"values": values, "arrays": described}, allow_nan=False, separators=(",", ":")
    ).encode()
    body = b"".join([MAGIC, struct.pack("<q", len(header)), header, *parts])
    return body + _check(body)


def unpacked(data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What `packed` was given, or `Damaged`."""
    if len(data) < len(MAGIC) + 8 + CHECK or not data.startswith(MAGIC[:6]):
        raise Damaged("it is cut off, or no entry of a store")
    if not data.startswith(MAGIC):
        raise Damaged(f"it is of version {data[6]}, and {MAGIC[6]} is known")
    body, check = memoryview(data)[:-CHECK], data[-CHECK:]
    if _check(body) != check:
        raise Damaged("its checksum is not as stored")
    (length,) = struct.unpack_from("<q", body, len(MAGIC))
    at = len(MAGIC) + 8 + length
    try:
        header = json.loads(bytes(body[len(MAGIC) + 8 : at]))
        arrays = {}
        for each in header["arrays"]:
            if each["kind"] not in KINDS:
                raise Damaged(f"array {each['name']!r} is of kind {each['kind']!r}")
            count = math.prod(each["shape"])
            arrays[each["name"]] = (
                np.frombuffer(body, each["kind"], count, at).reshape(each["shape"]).copy()
            )  # aligned, and ours
            at += arrays[each["name"]].nbytes
    except (ValueError, KeyError, TypeError) as error:
        raise Damaged(f"its header is not as the format says ({error})") from None
    if at != len(body):
        raise Damaged("bytes are left over behind its arrays")
    return header["values"], arrays


def _check(body: bytes | memoryview) -> bytes:
    return hashlib.blake2b(body, digest_size=CHECK).digest()
