"""Write a recording as MCAP with ROS 2 messages (extra `foxglove`), as Foxglove, PlotJuggler and
`read_log` open it:

    /joint_states   sensor_msgs/JointState: positions, velocities, efforts
    /joint_commands trajectory_msgs/JointTrajectory: wanted positions, where there are any
    /run            std_msgs/String: name of the run, where it changes
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from thetahat.errors import MissingExtra, UsageError
from thetahat.files import replacing

if TYPE_CHECKING:
    from mcap.writer import Writer

STATES, COMMANDS, RUN = "/joint_states", "/joint_commands", "/run"
_LINE = "=" * 80
_HEADER = (
    f"{_LINE}\nMSG: std_msgs/Header\nbuiltin_interfaces/Time stamp\nstring frame_id\n"
    f"{_LINE}\nMSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n"
)
DEFINITIONS = {
    "sensor_msgs/msg/JointState": "std_msgs/Header header\nstring[] name\nfloat64[] position\n"
    f"float64[] velocity\nfloat64[] effort\n{_HEADER}",
    "trajectory_msgs/msg/JointTrajectory": "std_msgs/Header header\nstring[] joint_names\n"
    f"trajectory_msgs/JointTrajectoryPoint[] points\n{_HEADER}"
    f"{_LINE}\nMSG: trajectory_msgs/JointTrajectoryPoint\nfloat64[] positions\n"
    "float64[] velocities\nfloat64[] accelerations\nfloat64[] effort\n"
    "builtin_interfaces/Duration time_from_start\n"
    f"{_LINE}\nMSG: builtin_interfaces/Duration\nint32 sec\nuint32 nanosec\n",
    "std_msgs/msg/String": "string data\n",
}


@dataclass(frozen=True, eq=False)
class JointLog:
    """What is written: t (n,) [s], q, dq, tau and wanted positions (n, joints), runs (n,)."""

    joints: tuple[str, ...]
    t: np.ndarray
    q: np.ndarray
    dq: np.ndarray
    tau: np.ndarray
    wanted: np.ndarray | None = None
    runs: Sequence[str] = ()


class CdrWriter:
    """A message in CDR, little-endian, as it grows."""

    def __init__(self) -> None:
        self._bytes = bytearray(b"\x00\x01\x00\x00")

    def align(self, size: int) -> None:
        """Go on at a multiple of a size, counted from behind the encapsulation."""
        self._bytes += bytes(-(len(self._bytes) - 4) % size)

    def stamp(self, seconds: float) -> None:
        """Append a time."""
        nanoseconds = round(seconds * 1e9)
        self.align(4)
        self._bytes += struct.pack("<iI", nanoseconds // 10**9, nanoseconds % 10**9)

    def count(self, number: int) -> None:
        """Append the number of elements that follow."""
        self.align(4)
        self._bytes += struct.pack("<I", number)

    def text(self, text: str) -> None:
        """Append a string."""
        data = text.encode() + b"\0"
        self.count(len(data))
        self._bytes += data

    def texts(self, texts: Sequence[str]) -> None:
        """Append strings."""
        self.count(len(texts))
        for each in texts:
            self.text(each)

    def doubles(self, values: Sequence[float] | np.ndarray) -> None:
        """Append numbers."""
        self.count(len(values))
        if len(values):
            self.align(8)
            self._bytes += np.asarray(values, dtype="<f8").tobytes()

    def done(self) -> bytes:
        """The message."""
        return bytes(self._bytes)


def require_mcap() -> None:
    """Refuse where the package that writes MCAP is missing."""
    try:
        import mcap.writer  # noqa: F401
    except ImportError:
        raise MissingExtra(
            "a recording as .mcap needs the extra 'foxglove': pip install 'thetahat[foxglove]'; or"
            " give --out a .csv, .parquet or .npz"
        ) from None


def write_mcap(path: str | os.PathLike[str], log: JointLog) -> Path:
    """Write a log; the file appears complete or not at all."""
    require_mcap()
    from mcap.writer import Writer

    for name in ("q", "dq", "tau"):
        if getattr(log, name).shape != (len(log.t), len(log.joints)):
            raise UsageError(
                f"{name} is of shape {getattr(log, name).shape} for {len(log.t)} stamps of"
                f" {len(log.joints)} joints; give a row per stamp"
            )
    with replacing(path) as scratch, scratch.open("wb") as file:
        writer = Writer(file, enable_data_crcs=True)
        writer.start(profile="ros2", library="thetahat")
        _write(writer, log)
        writer.finish()
    return Path(path)


def _write(writer: Writer, log: JointLog) -> None:
    topics = {
        STATES: "sensor_msgs/msg/JointState",
        COMMANDS: "trajectory_msgs/msg/JointTrajectory",
        RUN: "std_msgs/msg/String",
    }
    channels = {}
    for topic, kind in topics.items():
        if (topic == COMMANDS and log.wanted is None) or (topic == RUN and not log.runs):
            continue
        schema = writer.register_schema(kind, "ros2msg", DEFINITIONS[kind].encode())
        channels[topic] = writer.register_channel(topic, "cdr", schema)
    run = None
    for k, t in enumerate(log.t.tolist()):
        at = round(t * 1e9)
        if log.runs and log.runs[k] != run:
            run = log.runs[k]
            note = CdrWriter()
            note.text(run)
            writer.add_message(channels[RUN], at, note.done(), at)
        writer.add_message(channels[STATES], at, _state(log, k), at)
        if log.wanted is not None:
            writer.add_message(channels[COMMANDS], at, _command(log, log.wanted, k), at)


def _state(log: JointLog, k: int) -> bytes:
    message = CdrWriter()
    message.stamp(float(log.t[k]))
    message.text("")
    message.texts(log.joints)
    for values in (log.q, log.dq, log.tau):
        message.doubles(values[k])
    return message.done()


def _command(log: JointLog, wanted: np.ndarray, k: int) -> bytes:
    message = CdrWriter()
    message.stamp(float(log.t[k]))
    message.text("")
    message.texts(log.joints)
    message.count(1)  # point
    message.doubles(wanted[k])
    for _ in ("velocities", "accelerations", "effort"):
        message.doubles([])
    message.stamp(0.0)
    return message.done()
