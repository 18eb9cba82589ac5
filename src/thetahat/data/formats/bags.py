"""ROS 1 bags, ROS 2 bags (sqlite3 or MCAP) and MCAP files holding sensor_msgs/JointState.

Columns are `t` (header stamps, seconds after the first), and per joint `q.<name>`, `dq.<name>`,
`tau.<name>` (position, velocity, effort). MCAP is read here; the other containers by rosbags (extra
`ros`).
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from thetahat.data.formats.joint_state import TYPES, BadMessage, Decoder, JointState
from thetahat.data.formats.mcap import McapFile
from thetahat.data.formats.table import Block, Table, check_names, label, shown
from thetahat.errors import (
    MalformedInput,
    MissingExtra,
    NotIdentifiable,
    ThetahatError,
    UsageError,
    known,
)

if TYPE_CHECKING:
    from rosbags import rosbag1, rosbag2

EXAMINED = 500  # messages from which the joints of a topic are found
BLOCK_ROWS = 8_192
_KINDS = (("q", "position"), ("dq", "velocity"), ("tau", "effort"))


def bag_files(path: Path) -> list[Path]:
    """Return the files of a bag: itself, or those of a ROS 2 folder in the order of their
    numbers.
    """
    if not path.is_dir():
        return [path]
    parts = [file for file in path.iterdir() if file.suffix in (".mcap", ".db3")]
    if not parts:
        raise MalformedInput(
            f"{label(path)} has a metadata.yaml but no .mcap or .db3 file; give the whole folder of"
            " the bag, unpacked"
        )

    def numbers(file: Path) -> list[int | str]:
        return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", file.name)]

    return sorted(parts, key=numbers)


class BagTable(Table):
    """One topic of a bag. Opening it reads it once, to verify it and to find its topics and
    joints.
    """

    def __init__(
        self,
        path: Path,
        *,
        joints: Sequence[str] = (),
        topic: str | None = None,
        salvage: bool = False,
    ) -> None:
        super().__init__(path, bag_files(path))
        if not any(state.size for state in self.states):
            raise MalformedInput(f"{label(path)} is empty; give a bag with joint states")
        self._source: _McapSource | _RosbagsSource
        if all(file.suffix == ".mcap" for file in self.files):
            self._source = _McapSource(self.files, salvage=salvage)
        else:
            self._source = _RosbagsSource(path)
        self._topic = self._choose_topic(self._source.topics(), topic)
        self.names = ("t", *self._find_columns(joints))
        check_names(path, self.names)

    def head(self, column: str, count: int) -> np.ndarray:
        """Return nothing: stamps of messages are in seconds already."""
        return np.zeros(0)

    def place(self, row: int) -> str:
        """Messages of the topic, as far as they name the joints that are read."""
        return f"message {row} of topic {shown(self._topic)} (counting from 0)"

    # -- what is inside ----------------------------------------------------------------------------

    def _choose_topic(self, topics: dict[str, str], wanted: str | None) -> str:
        """Return the requested topic, or the only one with joint states."""
        listed = known([f"{name} ({kind})" for name, kind in sorted(topics.items())])
        fitting = [name for name, kind in topics.items() if kind in TYPES]
        if wanted is not None:
            if wanted not in topics:
                raise MalformedInput(
                    f"{label(self.path)} has no topic {shown(wanted)}; its topics: {listed}"
                )
            if wanted not in fitting:
                raise MalformedInput(
                    f"{label(self.path)}: topic {shown(wanted)} is of type {topics[wanted]}, not"
                    f" sensor_msgs/JointState; its topics: {listed}"
                )
            return wanted
        if not fitting:
            raise MalformedInput(
                f"{label(self.path)} has no topic of type sensor_msgs/JointState; its topics:"
                f" {listed}"
            )
        if len(fitting) > 1:
            raise UsageError(
                f"{label(self.path)} has several topics of joint states: {known(sorted(fitting))};"
                " choose one with topic (--topic)"
            )
        return fitting[0]

    def _find_columns(self, wanted: Sequence[str]) -> list[str]:
        """Return the columns of the joints that the topic's messages name; of publishers that share
        a topic, the one with most of the robot's joints counts.
        """
        groups: dict[frozenset[str], list[JointState]] = {}
        for number, (_, message) in enumerate(islice(self._messages(), EXAMINED)):
            group = frozenset(message.names)
            if len(group) < len(message.names):
                twice = next(name for name, n in Counter(message.names).items() if n > 1)
                raise self.problem(
                    number,
                    f"joint {shown(twice)} is named twice in one message; repair its publisher",
                )
            groups.setdefault(group, []).append(message)
        if not groups:
            raise NotIdentifiable(
                f"{label(self.path)} has no messages on topic {shown(self._topic)}; record joint"
                " states while the robot moves"
            )
        best = max(groups, key=lambda group: (len(group & set(wanted)), len(groups[group])))
        messages = groups[best]
        self._stamped = any(message.stamp for message in messages)

        def measured(name: str, attribute: str) -> bool:
            """Whether any message has the number; unmeasured ones are missing or NaN."""
            rows = ((message.names, getattr(message, attribute)) for message in messages)
            return any(len(x) and not np.isnan(x[names.index(name)]) for names, x in rows)

        return [
            f"{kind}.{name}"
            for kind, attribute in _KINDS
            for name in messages[0].names
            if measured(name, attribute)
        ]

    # -- rows --------------------------------------------------------------------------------------

    def _messages(self) -> Iterator[tuple[int, JointState]]:
        """Return (log time [ns], message) of the topic."""
        decoders: dict[str, Decoder] = {}
        for number, (encoding, time, data) in enumerate(self._source.messages(self._topic)):
            if encoding not in ("cdr", "ros1"):
                raise MalformedInput(
                    f"{label(self.path)}: topic {shown(self._topic)} is encoded as"
                    f" {shown(encoding)}; known are cdr and ros1"
                )
            try:
                yield time, decoders.setdefault(encoding, Decoder(encoding)).decode(data)
            except BadMessage as error:
                raise self.problem(number, f"{error}; record or copy the bag again") from None

    def read(
        self, columns: Sequence[str], run_column: str | None, *, first: bool
    ) -> Iterator[Block]:
        """Return blocks of `BLOCK_ROWS` messages."""
        order = [(kind, name) for kind, name in (column.partition(".")[::2] for column in columns)]
        attribute = dict(_KINDS)
        places: dict[tuple[str, ...], list[tuple[str, int]] | None] = {}
        rows: list[list[float]] = []
        start, done, other = None, 0, 0
        for time, message in self._messages():
            names = message.names
            if names not in places:
                inside = all(kind == "t" or name in names for kind, name in order)
                places[names] = (
                    [
                        (attribute.get(kind, ""), names.index(name) if name else 0)
                        for kind, name in order
                    ]
                    if inside
                    else None
                )
            place = places[names]
            if place is None:
                other += 1
                continue
            stamp = message.stamp if self._stamped else time
            start = stamp if start is None else start
            try:
                rows.append(
                    [
                        getattr(message, kind)[at] if kind else (stamp - start) * 1e-9
                        for kind, at in place
                    ]
                )
            except IndexError:
                raise MalformedInput(
                    f"{label(self.path)}, {self.place(done + len(rows))}: it lacks numbers that"
                    " earlier messages bring; choose another topic or record again"
                ) from None
            if len(rows) == BLOCK_ROWS:
                yield Block(self.check_finite(np.array(rows), columns, done))
                done, rows = done + len(rows), []
        if rows:
            yield Block(self.check_finite(np.array(rows), columns, done))
        self.notes = tuple(self._read_notes(other))

    def _read_notes(self, other: int) -> Iterator[tuple[str, str]]:
        """Return (kind, sentence) about the last pass."""
        for sentence in self._source.lost:
            yield "salvaged", sentence
        if not self._source.verified:
            yield (
                "unverified",
                "the bag has no checksums for its messages, so damage inside them cannot be"
                " noticed; it was read as it is",
            )
        if other:
            topic = shown(self._topic)
            yield (
                "ignored-messages",
                f"{other} messages of topic {topic} name other joints and were left out",
            )
        if not self._stamped:
            yield (
                "unstamped",
                "header stamps are all zero; the times at which messages were recorded are used"
                " instead",
            )


class _McapSource:
    """MCAP files, one after the other, verified on every pass."""

    def __init__(self, files: Sequence[Path], *, salvage: bool) -> None:
        self._files = [McapFile(path, salvage=salvage) for path in files]

    @property
    def lost(self) -> list[str]:
        return [sentence for file in self._files for sentence in file.lost]

    @property
    def verified(self) -> bool:
        return all(file.verified for file in self._files)

    def topics(self) -> dict[str, str]:
        """Return type by topic, from reading all of it."""
        for file in self._files:
            deque(file.messages(), maxlen=0)
        channels = (channel for file in self._files for channel in file.channels.values())
        return {channel.topic: channel.schema for channel in channels}

    def messages(self, topic: str) -> Iterator[tuple[str, int, bytes]]:
        """Return (encoding, log time, data) of a topic's messages."""
        for file in self._files:
            for channel, time, data in file.messages():
                if channel.topic == topic:
                    yield channel.encoding, time, data


class _RosbagsSource:
    """ROS 1 bags and sqlite3 bags, through the rosbags library."""

    lost: Sequence[str] = ()
    verified = True  # these formats have no checksums to miss

    def __init__(self, path: Path) -> None:
        try:
            from rosbags import rosbag1, rosbag2
        except ImportError:
            raise MissingExtra(
                f"{label(path)} is a ROS bag, which needs the extra 'ros': pip install"
                " 'thetahat[ros]'"
            ) from None
        self._path, self._ros1 = path, path.suffix == ".bag"
        self._reader = rosbag1.Reader if self._ros1 else rosbag2.Reader

    @contextmanager
    def _opened(self) -> Iterator[rosbag1.Reader | rosbag2.Reader]:
        try:
            with self._reader(self._path) as reader:
                yield reader
        except (ThetahatError, GeneratorExit):
            raise
        except Exception as error:  # a damaged bag may raise anything inside the library
            reason = shown(str(error).splitlines()[0] if str(error) else type(error).__name__, 90)
            raise MalformedInput(
                f"{label(self._path)} cannot be read as a bag ({reason}); it was cut off or"
                " damaged, so copy or record it again"
            ) from None

    def topics(self) -> dict[str, str]:
        """Return type by topic."""
        with self._opened() as reader:
            return {connection.topic: str(connection.msgtype) for connection in reader.connections}

    def messages(self, topic: str) -> Iterator[tuple[str, int, bytes]]:
        """Return (encoding, log time, data) of a topic's messages."""
        with self._opened() as reader:
            connections = [
                connection for connection in reader.connections if connection.topic == topic
            ]
            for _, time, data in reader.messages(connections):
                yield "ros1" if self._ros1 else "cdr", time, bytes(data)
