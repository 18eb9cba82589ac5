"""Map of a log's columns to the robot's coordinates (interface.md, "Logs").

By name `q.<joint>`, `dq.<joint>`, `ddq.<joint>`, `tau.<joint>`, with `.x` and so on for joints of
several degrees of freedom; by position `q1 … qk` for the first k joints; or by patterns such as
``q={joint}_pos,tau={joint}_eff``, or by the places of columns, counted from 1: ``t=1,q=2-8``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property

import numpy as np

from thetahat.data.ground_columns import (
    CONTACT,
    WRENCH,
    base_columns,
    ground_columns,
    require_base,
    world_torques,
)
from thetahat.data.types import Channels
from thetahat.dynamics import rigid_body
from thetahat.errors import MalformedInput, UsageError, known
from thetahat.model.floating_base import base_dofs, ground_of
from thetahat.model.robot import Robot
from thetahat.model.wrench_sensors import CHANNELS, sensor_joint, sensor_links

KINDS = ("q", "dq", "ddq", "tau")
# Of patterns; verbs that read commanded positions use cmd, and the drives' current or duty.
KEYS = (*KINDS, "cmd", "cur", "pwm", "t", "seg")
_FIELD = re.compile(r"\{(joint|number|index)\}")
# 2-8 or 2-20:3 (every third), several of them joined by +
_RANGE = r"[0-9]{1,5}(?:-[0-9]{1,5}(?::[0-9]{1,5})?)?"
_PLACES = re.compile(rf"{_RANGE}(?:\+{_RANGE})*")
_NAMED = re.compile(r"(q|dq|ddq|tau)\.(.+)")
_NUMBERED = re.compile(r"(q|dq|ddq|tau)([0-9]{1,5})(?:\.(\w+))?")
_WRENCH = re.compile(r"wrench\.(.+)\.([a-z]+)")
_TIMES = ("time", "timestamp", "stamp", "time_s", "seconds", "sec", "secs", "ts")
ALIKE = 0.75  # similarity of two names that may be one, misspelt


@dataclass(frozen=True)
class Conversion:
    """Factors to SI units, and sentences on what was converted."""

    scale: tuple[float, ...] = ()  # of each of a map's `columns`; empty: all are 1
    notes: tuple[tuple[str, str], ...] = ()  # (kind, sentence), for the log's findings
    world_wrenches: bool = False  # wrenches are in the world's axes, about the link's origin


@dataclass(frozen=True)
class ColumnMap:
    """The columns that are read, and the position of each in q, dq, ddq or tau."""

    time: str
    run: str | None
    place: tuple[tuple[str, int, str], ...]  # (kind, position, column)
    locked: tuple[str, ...]  # joints without a column
    ignored: tuple[str, ...]  # columns that are not the robot's
    incomplete: tuple[str, ...]  # kinds that only some joints have; they are not read
    silent: tuple[int, ...]  # degrees of freedom without a torque column
    conversion: Conversion = Conversion()

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Return the columns of numbers to read, t first."""
        return (self.time, *(column for _, _, column in self.place))

    def has(self, kind: str) -> bool:
        """Return whether the log has this kind of column; wrenches of the world are torques."""
        return any(k == kind or (k == WRENCH and kind == "tau") for k, _, _ in self.place)

    def column_of(self, kind: str, position: int) -> str:
        """Return the name of the column at a position of q, dq, ddq or tau."""
        return next(column for k, at, column in self.place if (k, at) == (kind, position))

    def seconds(self, values: np.ndarray) -> np.ndarray:
        """Return the time stamps of rows of `columns` [s]."""
        scale = self.conversion.scale
        t: np.ndarray = values[:, 0] * scale[0] if scale else values[:, 0]
        return t

    def split(self, values: np.ndarray, robot: Robot, *, by_column: bool = False) -> Channels:
        """Return t, q, dq, ddq, tau in SI units from rows of `columns`, by default row-major;
        locked joints are at their neutral position.
        """
        scale = self.conversion.scale or (1.0,) * values.shape[1]

        def column(at: int) -> np.ndarray:
            return values[:, at] if scale[at] == 1.0 else scale[at] * values[:, at]

        def places(kind: str) -> dict[int, int]:
            return {at: i for i, (k, at, _) in enumerate(self.place, start=1) if k == kind}

        def filled(kind: str, default: np.ndarray) -> np.ndarray:
            array = np.empty((len(values), len(default)), order="F" if by_column else "C")
            source = places(kind)
            for at, value in enumerate(default):
                array[:, at] = column(source[at]) if at in source else value
            return array

        zero = np.zeros(robot.nv)
        q = filled("q", robot.neutral)
        tau = filled("tau", zero) if self.has("tau") else None
        if tau is not None and self.conversion.world_wrenches:
            turn_wrenches(robot, q, tau)
        if tau is not None and (wrenches := places(WRENCH)):
            world = self.conversion.world_wrenches
            tau += world_torques(robot, q, wrenches, column, world=world)
        down = places(CONTACT)
        return {
            "t": np.ascontiguousarray(column(0)),
            "q": q,
            "dq": filled("dq", zero) if self.has("dq") else None,
            "ddq": filled("ddq", zero) if self.has("ddq") else None,
            "tau": tau,
            "contact": filled(CONTACT, np.zeros(len(down))) if down else None,
        }


def turn_wrenches(robot: Robot, q: np.ndarray, tau: np.ndarray) -> None:
    """Turn wrenches from the world's axes into those of their links, in place."""
    R, _ = rigid_body.body_frames(robot, np.ascontiguousarray(q))
    for link in sensor_links(robot):
        to_link = np.swapaxes(R[:, robot.body_names.index(link)], -1, -2)
        first = robot.tree.v_index[sensor_joint(link, CHANNELS[0])]
        for part in (slice(first, first + 3), slice(first + 3, first + 6)):
            tau[:, part] = (to_link @ tau[:, part, None])[..., 0]


def parse_patterns(columns: str | Mapping[str, str] | None) -> dict[str, str]:
    """Parse ``"t=time,q={joint}_pos"`` into a dictionary."""
    if columns is None:
        return {}
    if isinstance(columns, str):
        parts = [part.partition("=") for part in columns.split(",") if part.strip()]
        if any(not mark for _, mark, _ in parts):
            raise UsageError(
                f'columns is {columns!r}; write it as "q={{joint}}_pos,tau={{joint}}_eff"'
            )
        if len({kind.strip() for kind, _, _ in parts}) < len(parts):
            raise UsageError(
                f"columns {columns!r} states one of its keys twice; state each of"
                f" {', '.join(KEYS)} at most once"
            )
        columns = {kind.strip(): pattern.strip() for kind, _, pattern in parts}
    for kind, pattern in columns.items():
        if kind not in KEYS:
            raise UsageError(f"columns has the key {kind!r}; known keys are {', '.join(KEYS)}")
        if not isinstance(pattern, str) or not pattern:
            raise UsageError(
                f"columns gives {kind} the pattern {pattern!r}; give a column's name, with"
                " {joint}, {number} or {index} in it"
            )
        if (
            kind not in ("t", "seg")
            and not _FIELD.search(pattern)
            and not _PLACES.fullmatch(pattern)
        ):
            raise UsageError(
                f"pattern {kind}={pattern} names the same column for every joint; write {{joint}},"
                " {number} (from 1) or {index} (from 0) where the joint stands, or the places of"
                " the columns, as in 2-8"
            )
    return dict(columns)


def by_place(patterns: Mapping[str, str]) -> bool:
    """Return whether positions are named by the places of their columns."""
    return "t" in patterns and _PLACES.fullmatch(patterns.get("q", "")) is not None


def _places(pattern: str) -> list[int]:
    """Return the places of ``2-8+10``, from 1."""
    out: list[int] = []
    for part in pattern.split("+"):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        out += range(int(first), int(last or first) + 1, max(int(step or 1), 1))
    return out


class Resolver:
    """Find the coordinate of every column of one file."""

    def __init__(
        self,
        robot: Robot,
        names: Sequence[str],
        *,
        widths: Mapping[str, int],
        patterns: Mapping[str, str],
        file: str,
    ) -> None:
        self._robot, self._names, self._file = robot, list(names), file
        self._widths, self._patterns = widths, patterns
        self._joints = tuple(node for node in robot.tree.independent if node.sensor is None)
        self._columns: dict[tuple[str, int], str] = {}
        # names of joints that the robot does not have, in order
        self._unknown: dict[str, None] = {}
        self._base = base_columns(robot)

    def resolve(self) -> ColumnMap:
        """Return the map; raise an error that says what is missing."""
        time = self._time()
        run = self._column_at(self._patterns.get("seg", "seg"))
        if "seg" in self._patterns and run not in self._names:
            raise MalformedInput(
                f"{self._file} has no column {run!r}, which --columns names for seg; its columns:"
                f" {known(self._names)}"
            )
        for kind in KINDS:
            if kind in self._patterns:
                self._by_pattern(kind)
            elif self._full_matrix(kind):
                for number, at in enumerate(self._positions(kind), start=1):
                    self._put(kind, at, f"{kind}{number}")
        for name in self._names:
            self._by_name(name)
        require_base(self._robot, set(self._columns), self._file)
        self._check_joints()
        for link in sensor_links(self._robot):
            for channel in CHANNELS:
                self._put_wrench(link, channel)
        for kind, at, column in ground_columns(self._robot, self._names, self._file):
            self._put(kind, at, column)
        return self._map(time, run if run in self._names else None)

    # -- finding -----------------------------------------------------------------------------------

    def _time(self) -> str:
        time = self._column_at(self._patterns.get("t", "t"))
        if time in self._names:
            return time
        likely = next((name for name in self._names if name.lower() in _TIMES), None)
        hint = (
            f'; pass --columns "t={likely}" if {likely!r} is it, in seconds'
            if likely
            else "; name the column of time stamps, in seconds, t"
        )
        raise MalformedInput(
            f"{self._file} has no column {time!r}{hint}; its columns: {known(self._names)}"
        )

    def _column_at(self, name: str) -> str:
        """Return the column of this name or, where none has it, at this place from 1."""
        if name in self._names or not re.fullmatch(r"[0-9]{1,5}", name):
            return name
        return self._names[int(name) - 1] if 1 <= int(name) <= len(self._names) else name

    def _full_matrix(self, kind: str) -> bool:
        """Return whether a 2-D array has the width of the robot's q or dq, where that is not one
        number per joint.
        """
        nq = len(self._positions("q"))
        return nq != len(self._joints) and self._widths.get(kind) == len(self._positions(kind))

    def _positions(self, kind: str) -> list[int]:
        """Positions in q, or in dq, of the joints that move, in their order."""
        tree, turns = self._robot.tree, kind == "q"
        first = tree.q_index if turns else tree.v_index
        return [
            first[node.name] + k
            for node in self._joints
            for k in range(node.kind.nq if turns else node.kind.nv)
        ]

    def _put(self, kind: str, position: int, column: str) -> None:
        other = self._columns.setdefault((kind, position), column)
        if other != column:
            raise MalformedInput(
                f"{self._file}: columns {other!r} and {column!r} are both {kind} of the same joint;"
                " remove one of them"
            )

    def _position(self, kind: str, joint: int, suffix: str) -> int | None:
        node = self._joints[joint]
        suffixes, first = (
            (node.kind.coordinates, self._robot.tree.q_index)
            if kind == "q"
            else (node.kind.directions, self._robot.tree.v_index)
        )
        return first[node.name] + suffixes.index(suffix) if suffix in suffixes else None

    def _by_pattern(self, kind: str) -> None:
        pattern = self._patterns[kind]
        if not _FIELD.search(pattern):
            self._by_place(kind, pattern)
            return
        self._check_base(kind, pattern)
        names = set(self._names)
        for number, node in enumerate(self._joints):
            for suffix in node.kind.coordinates if kind == "q" else node.kind.directions:
                end = f".{suffix}" if suffix else ""
                column = _filled(pattern, node.name, number, end)
                position = self._position(kind, number, suffix)
                if column in names and position is not None:
                    self._put(kind, position, column)
        if not any(k == kind for k, _ in self._columns):
            example = _filled(pattern, self._joints[0].name, 0) if self._joints else pattern
            raise MalformedInput(
                f"{self._file}: pattern {kind}={pattern} fits no column (for the first joint it is"
                f" {example!r}); columns: {known(self._names)}; joints:"
                f" {known(self._robot.joint_names)}"
            )

    def _by_place(self, kind: str, pattern: str) -> None:
        """Give the columns at these places to the first joints, in their order."""
        places, positions = _places(pattern), self._positions(kind)
        count = len(positions)
        beyond = [place for place in places if not 1 <= place <= len(self._names)]
        if beyond:
            raise MalformedInput(
                f"{self._file} has {len(self._names)} columns, and {kind}={pattern} asks for column"
                f" {beyond[0]}; count columns from 1"
            )
        if len(places) > count or not places:
            raise MalformedInput(
                f"{self._file}: {kind}={pattern} are {len(places)} columns, but robot"
                f" {self._robot.name!r} has {count} of {kind}: {known(self._robot.joint_names)}"
            )
        for position, place in zip(positions, places, strict=False):
            self._put(kind, position, self._names[place - 1])

    def _put_wrench(self, link: str, channel: str) -> None:
        name = sensor_joint(link, channel)
        if name not in self._names:
            raise MalformedInput(
                f"{self._file} has no column {name!r}, which the sensor on link {link!r} needs; log"
                f" all six: wrench.{link}.{', '.join(CHANNELS)}"
            )
        self._put("tau", self._robot.tree.v_index[name], name)

    def _check_base(self, kind: str, pattern: str) -> None:
        """Refuse joints counted from 1 where the columns count from 0, and the other way round: all
        but one would fit, each with its neighbour's numbers.
        """
        if "{joint}" in pattern or not self._joints:
            return
        names, last = set(self._names), len(self._joints)
        here, there = ("{number}", "{index}") if "{number}" in pattern else ("{index}", "{number}")
        zero, one, end = (pattern.replace(here, str(k)) for k in (0, 1, last))
        if here == "{number}" and zero in names:
            wrong = f"the columns count from 0 ({zero!r} is there)"
        elif here == "{index}" and zero not in names and (one in names or end in names):
            wrong = f"the columns count from 1 (there is no {zero!r})"
        else:
            return
        raise MalformedInput(
            f"{self._file}: in {kind}={pattern} {here} counts joints from"
            f" {1 if here == '{number}' else 0}, but {wrong}; write {there} instead, so that no"
            " joint gets its neighbour's column"
        )

    def _by_name(self, name: str) -> None:
        """Place a column by the default rules, unless its kind has a pattern."""
        if name in self._base:
            self._put(*self._base[name], name)
            return
        match = _NUMBERED.fullmatch(name)
        if match:
            kind, number, suffix = match[1], int(match[2]), match[3] or ""
            if kind in self._patterns or self._full_matrix(kind):
                return
            if not 1 <= number <= len(self._joints):
                hint = "; count joints from 1" if number == 0 else ""
                raise MalformedInput(
                    f"{self._file}: column {name!r} is of joint {number}, but robot"
                    f" {self._robot.name!r} has joints 1 to {len(self._joints)}:"
                    f" {known(self._robot.joint_names)}{hint}"
                )
            position = self._position(kind, number - 1, suffix)
            if position is None:
                raise self._wrong_suffix(name, kind, number - 1)
            self._put(kind, position, name)
            return
        match = _NAMED.fullmatch(name)
        if match and match[1] not in self._patterns:
            self._by_joint_name(name, match[1], match[2])

    def _by_joint_name(self, name: str, kind: str, label: str) -> None:
        index = {node.name: i for i, node in enumerate(self._joints)}
        joint, suffix = label, ""
        if label not in index:
            joint, _, suffix = label.rpartition(".")
        if joint in index:
            position = self._position(kind, index[joint], suffix)
            if position is None:
                raise self._wrong_suffix(name, kind, index[joint])
            self._put(kind, position, name)
        elif label not in self._robot.tree.index_of:  # columns of mimic joints are not needed
            self._unknown[label] = None

    def _wrong_suffix(self, name: str, kind: str, joint: int) -> MalformedInput:
        node = self._joints[joint]
        suffixes = node.kind.coordinates if kind == "q" else node.kind.directions
        wanted = known(
            [
                f"{kind}.{node.name}.{suffix}" if suffix else f"{kind}.{node.name}"
                for suffix in suffixes
            ]
        )
        return MalformedInput(
            f"{self._file}: column {name!r} does not fit joint {node.name!r}, a"
            f" {node.kind.name.lower()} joint; its columns are {wanted}"
        )

    # -- checking ----------------------------------------------------------------------------------

    def _joint_of(self, kind: str, position: int) -> int | None:
        """The joint of a coordinate; None: a sensor's."""
        tree, turns = self._robot.tree, kind == "q"
        for number, node in enumerate(self._joints):
            first = (tree.q_index if turns else tree.v_index)[node.name]
            if first <= position < first + (node.kind.nq if turns else node.kind.nv):
                return number
        return None

    def _check_joints(self) -> None:
        """Refuse joint names that differ from the robot's; joints too many or too few are fine."""
        measured = {self._joint_of("q", at) for kind, at in self._columns if kind == "q"}
        missing = [node.name for i, node in enumerate(self._joints) if i not in measured]
        unknown = list(self._unknown)
        misspelt = any(get_close_matches(name, missing, n=1, cutoff=ALIKE) for name in unknown)
        if unknown and (not measured or misspelt or len(unknown) == len(missing)):
            raise MalformedInput(
                f"{self._file}: its joint names differ from the robot's; in the log:"
                f" {known(unknown)}; in robot {self._robot.name!r} without a column:"
                f" {known(missing)}; rename one side or pass --columns"
            )
        if not measured:
            raise MalformedInput(
                f"{self._file} has no joint positions; its columns: {known(self._names)}; name them"
                f" q.<joint> or q1 … for the joints {known(self._robot.joint_names)}, or pass"
                " --columns"
            )
        for (kind, at), column in self._columns.items():
            joint = self._joint_of(kind, at)
            if joint is None:
                continue
            if joint not in measured:
                node = self._joints[joint]
                raise MalformedInput(
                    f"{self._file} has {column!r} but no position of joint {node.name!r}; add the"
                    f" column q.{node.name}"
                )
            self._check_whole(kind, joint)

    def _check_whole(self, kind: str, joint: int) -> None:
        """Refuse a joint of several degrees of freedom with only some of its columns."""
        node = self._joints[joint]
        for suffix in node.kind.coordinates if kind == "q" else node.kind.directions:
            if (kind, self._position(kind, joint, suffix)) not in self._columns:
                raise MalformedInput(
                    f"{self._file} has only some columns of {kind} of joint {node.name!r};"
                    f" {kind}.{node.name}.{suffix} is missing"
                )

    def _map(self, time: str, run: str | None) -> ColumnMap:
        measured = {self._joint_of("q", at) for kind, at in self._columns if kind == "q"}
        have = {
            kind: {self._joint_of(kind, at) for k, at in self._columns if k == kind}
            for kind in KINDS
        }
        # no motor drives a floating base: its torque is what the world exerts
        driven = base_dofs(self._robot) if ground_of(self._robot) is not None else ()
        torques = bool(have["tau"]) or any(kind == WRENCH for kind, _ in self._columns)
        incomplete = tuple(kind for kind in ("dq", "ddq") if have[kind] and have[kind] != measured)
        place = tuple(
            sorted(
                (
                    (kind, at, column)
                    for (kind, at), column in self._columns.items()
                    if kind not in incomplete
                ),
                key=_order,
            )
        )
        used = {time, run, *(column for _, _, column in place)}
        return ColumnMap(
            time=time,
            run=run,
            place=place,
            locked=tuple(node.name for i, node in enumerate(self._joints) if i not in measured),
            ignored=tuple(name for name in self._names if name not in used),
            incomplete=incomplete,
            silent=tuple(
                at
                for at in range(self._robot.nv)
                if torques and ("tau", at) not in self._columns and at not in driven
            ),
        )


def commanded_columns(
    columns: ColumnMap, robot: Robot, pattern: str | None = None, kind: str = "cmd"
) -> tuple[tuple[str, int, str], ...] | None:
    """Return the columns of commanded positions as places of q, by name `cmd.<joint>`, by number
    `cmd1 …`, or by a pattern; None where a measured coordinate has none.

    kind: cmd, or cur or pwm of what the drives read.
    """
    names, out = set(columns.ignored), []
    measured = {at for kind, at, _ in columns.place if kind == "q"}
    joints = (node for node in robot.tree.independent if node.sensor is None)
    for number, node in enumerate(joints):
        first = robot.tree.q_index[node.name]
        for place, suffix in enumerate(node.kind.coordinates, start=first):
            if place not in measured:
                continue
            end = f".{suffix}" if suffix else ""
            tried = [f"{kind}.{node.name}{end}", f"{kind}{number + 1}{end}"]
            if pattern is not None:
                tried = [_filled(pattern, node.name, number, end)]
            column = next((name for name in tried if name in names), None)
            if column is None:
                return None
            out.append(("q", place, column))
    return tuple(out) or None


def wrench_links(names: Sequence[str], file: str) -> tuple[str, ...]:
    """Return the links whose wrenches a table has, six columns each."""
    by_link: dict[str, list[str]] = {}
    for name in names:
        match = _WRENCH.fullmatch(name)
        if match and match[2] in CHANNELS:
            by_link.setdefault(match[1], []).append(match[2])
    for link, channels in by_link.items():
        missing = [sensor_joint(link, each) for each in CHANNELS if each not in channels]
        if missing:
            raise MalformedInput(
                f"{file} has {len(channels)} of the six columns of wrench.{link}:"
                f" {', '.join(missing)} missing; log all six, or rename the others so that they"
                " are not read"
            )
    return tuple(by_link)


def _filled(pattern: str, joint: str, at: int, end: str = "") -> str:
    """Return the column that a pattern names for the joint at a place from 0."""
    fields = {"joint": f"{joint}{end}", "number": f"{at + 1}{end}", "index": f"{at}{end}"}
    return _FIELD.sub(lambda match: fields[match[1]], pattern)


def _order(entry: tuple[str, int, str]) -> tuple[int, int]:
    return (*KINDS, WRENCH, CONTACT).index(entry[0]), entry[1]
