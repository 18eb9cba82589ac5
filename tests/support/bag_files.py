"""Bags for tests, written by rosbags; and MCAP checksums filled in by the specification, since
rosbags leaves them out.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

START = 1_700_000_000_123_456_789  # [ns]


def motion(rows: int = 300, joints: int = 2, rate: float = 100.0) -> dict[str, np.ndarray]:
    t = np.arange(rows) / rate
    phase = 2 * np.pi * np.outer(t, np.arange(1, joints + 1) * 0.5)
    return {
        "t": t,
        "q": 0.5 * np.sin(phase),
        "dq": 0.5 * np.cos(phase) * 2 * np.pi * 0.5 * np.arange(1, joints + 1),
        "tau": 3.0 * np.cos(phase) + 0.1,
    }


def typestore(ros1: bool = False):
    typesys = pytest.importorskip("rosbags.typesys")
    return typesys.get_typestore(typesys.Stores.ROS1_NOETIC if ros1 else typesys.Stores.ROS2_HUMBLE)


def message(
    store, names: Sequence[str], i: int, data: dict[str, np.ndarray], *, stamped: bool = True
):
    types = store.types
    nanoseconds = START + round(data["t"][i] * 1e9) if stamped else 0
    time = types["builtin_interfaces/msg/Time"](nanoseconds // 10**9, nanoseconds % 10**9)
    header = types["std_msgs/msg/Header"]
    head = (
        header(seq=i, stamp=time, frame_id="base")
        if "seq" in header.__dataclass_fields__
        else header(stamp=time, frame_id="base")
    )
    pick = (
        np.ascontiguousarray(data[key][i]) if key in data else np.array([])
        for key in ("q", "dq", "tau")
    )
    return types["sensor_msgs/msg/JointState"](head, list(names), *pick)


def write_ros1(path: Path, names: Sequence[str], data: dict[str, np.ndarray]) -> Path:
    rosbag1 = pytest.importorskip("rosbags.rosbag1")
    store = typestore(ros1=True)
    with rosbag1.Writer(path) as writer:
        connection = writer.add_connection(
            "/joint_states", "sensor_msgs/msg/JointState", typestore=store
        )
        for i in range(len(data["t"])):
            raw = store.serialize_ros1(message(store, names, i, data), "sensor_msgs/msg/JointState")
            writer.write(connection, START + round(data["t"][i] * 1e9), raw)
    return path


def write_ros2(
    folder: Path,
    names: Sequence[str],
    data: dict[str, np.ndarray],
    *,
    storage: str = "mcap",
    compress: bool = False,
    **extra,
) -> Path:
    """A ROS 2 bag. `extra`: other (names, data) published on the same topic between the messages;
    `text` adds a string topic.
    """
    rosbag2 = pytest.importorskip("rosbags.rosbag2")
    store = typestore()
    writer = rosbag2.Writer(
        folder, version=9, storage_plugin=getattr(rosbag2.StoragePlugin, storage.upper())
    )
    if compress:
        writer.set_compression(rosbag2.CompressionMode.STORAGE, rosbag2.CompressionFormat.ZSTD)
    stamped = extra.pop("stamped", True)
    with writer:
        joints = writer.add_connection(
            "/joint_states", "sensor_msgs/msg/JointState", typestore=store
        )
        text = writer.add_connection("/chatter", "std_msgs/msg/String", typestore=store)
        for i in range(len(data["t"])):
            when = START + round(data["t"][i] * 1e9)
            writer.write(
                joints,
                when,
                store.serialize_cdr(
                    message(store, names, i, data, stamped=stamped), "sensor_msgs/msg/JointState"
                ),
            )
            if i % 50 == 0:
                writer.write(
                    text,
                    when,
                    store.serialize_cdr(
                        store.types["std_msgs/msg/String"]("hello"), "std_msgs/msg/String"
                    ),
                )
            if "other" in extra and i % 10 == 0:
                others, values = extra["other"]
                writer.write(
                    joints,
                    when,
                    store.serialize_cdr(
                        message(store, others, i, values), "sensor_msgs/msg/JointState"
                    ),
                )
    return folder


def with_checksums(data: bytes) -> bytes:
    """The same MCAP file with the CRCs of its chunks, data section and summary filled in
    (mcap.dev/spec).
    """
    out, at, summary = bytearray(data), 8, 0
    while at < len(out) - 8:
        opcode, size = struct.unpack_from("<BQ", out, at)
        body = at + 9
        if opcode == 6:
            (length,) = struct.unpack_from("<I", out, body + 28)
            assert not length, "only chunks that are not compressed"
            struct.pack_into("<I", out, body + 24, crc32(bytes(out[body + 40 : body + size])))
        elif opcode == 15:
            struct.pack_into("<I", out, body, crc32(bytes(out[:at])))
            summary = body + size
        elif opcode == 2:
            struct.pack_into("<I", out, body + 16, crc32(bytes(out[summary : body + 16])))
        at = body + size
    return bytes(out)


def chunk_middles(data: bytes) -> list[int]:
    """A place in the middle of every chunk of an MCAP file."""
    found, at = [], 8
    while at < len(data) - 8:
        opcode, size = struct.unpack_from("<BQ", data, at)
        if opcode == 6:
            found.append(at + 9 + 40 + (size - 40) // 2)
        at += 9 + size
    return found
