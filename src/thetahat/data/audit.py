"""What a log tells about itself, seen once while it streams by: channels that died, stuck or hit
their limit.

Everything here is of bounded size. What needs a model of the robot (units, signs, the direction of
gravity) is judged at the end from a few thousand short windows spread over the log
(audit_model.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from thetahat.data.audit_model import check_against_model
from thetahat.data.audit_windows import WindowCollector
from thetahat.data.columns import ColumnMap
from thetahat.data.types import Finding, Mask
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind

STILL = 0.5  # [s] a channel may rest at one value this long without a word
MIN_STRETCH = 10  # rows
MOVED = {
    True: 0.1,
    False: 0.01,
}  # motion that a resting channel belies: [rad] of an angle, [m] of a length
SATURATED_ROWS = 20
PEAK_RATIO = 8  # rows at the extreme over rows at the next value: a quantised peak has 2 or 3
MAX_STRETCHES = 4_096  # masks of one joint and kind; beyond that, neighbours are merged


@dataclass
class AuditResult:
    """The audit's results."""

    findings: list[Finding] = field(default_factory=list)
    masks: list[Mask] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class ExtremeScan:
    """Rows at the two largest values of a channel."""

    counts: dict[float, int]
    moving: int  # neighbouring rows at the largest value between which the joint moved
    rows: np.ndarray  # (k, 2) intervals at the largest value


@dataclass(frozen=True, eq=False)
class AuditScan:
    """What the audit saw of one file, rows counted from its first: merged by `Audit.add`."""

    constant: dict[str, np.ndarray]  # by channel: (k, 4) degree of freedom, value, first, stop row
    extremes: dict[str, dict[int, ExtremeScan]]  # "top" and "bottom", by degree of freedom
    windows: dict[str, np.ndarray]
    period: float  # [s] of the windows


class Rows(NamedTuple):
    """The channels of one degree of freedom over a batch."""

    t: np.ndarray
    q: np.ndarray
    dq: np.ndarray | None
    row: int


@dataclass
class Stretch:
    """Rows over which a channel keeps one value, and what the joint did meanwhile."""

    value: float
    first: int
    stop: int
    begin: float  # [s]
    end: float
    low: float  # of q
    high: float
    start_q: float
    end_q: float
    travel: float = 0.0  # ∫ dq dt

    @staticmethod
    def over(value: float, rows: Rows, first: int, stop: int) -> Stretch:
        """Measure rows first … stop of a batch."""
        t, q = rows.t[first:stop], rows.q[first:stop]
        travel = (
            float(
                np.sum(0.5 * (rows.dq[first + 1 : stop] + rows.dq[first : stop - 1]) * np.diff(t))
            )
            if rows.dq is not None
            else 0.0
        )
        return Stretch(
            float(value),
            rows.row + first,
            rows.row + stop,
            t[0],
            t[-1],
            q.min(),
            q.max(),
            q[0],
            q[-1],
            travel,
        )

    def joined(self, other: Stretch) -> Stretch:
        """With the stretch that follows."""
        return Stretch(
            self.value,
            self.first,
            other.stop,
            self.begin,
            other.end,
            min(self.low, other.low),
            max(self.high, other.high),
            self.start_q,
            other.end_q,
            self.travel + other.travel,
        )

    @property
    def seconds(self) -> float:
        """How long it lasts."""
        return self.end - self.begin


class ConstantChannel:
    """Finds stretches where a channel keeps one value for `STILL` seconds while `suspicious` says
    that it should not.
    """

    def __init__(self, suspicious: Callable[[Stretch], bool]) -> None:
        self._suspicious, self._open = suspicious, None
        self._open: Stretch | None
        self.found: list[Stretch] = []

    def feed(self, x: np.ndarray, rows: Rows, starts: np.ndarray, least: int) -> None:
        """Take a batch; a stretch does not reach across the start of a run."""
        differs = x[1:] != x[:-1]
        some = (
            len(differs) - np.count_nonzero(differs) >= least - 1
        )  # else nothing long is in here, and only what touches the ends counts
        changes = np.flatnonzero(differs) + 1 if some else _outermost(differs)
        inner = starts[starts > 0]
        if len(inner):
            changes = np.union1d(changes, inner)
        edges = np.concatenate(([0], changes, [len(x)]))
        long = np.flatnonzero(np.diff(edges) >= least) if some else changes[:0]
        fresh = len(starts) > 0 and starts[0] == 0
        if self._open is not None and (fresh or self._open.value != x[0]):
            self._close()
        last = len(edges) - 2
        for i in sorted({0, last, *long.tolist()}):
            stretch = Stretch.over(x[edges[i]], rows, int(edges[i]), int(edges[i + 1]))
            if i == 0 and self._open is not None:
                stretch = self._open.joined(stretch)
            self._open = stretch
            if i != last:
                self._close()

    def _close(self) -> None:
        stretch, self._open = self._open, None
        if (
            stretch is not None
            and stretch.seconds >= STILL
            and stretch.stop - stretch.first >= MIN_STRETCH
            and self._suspicious(stretch)
        ):
            self.found.append(stretch)

    def finish(self) -> list[Stretch]:
        """All stretches."""
        self._close()
        return self.found


def _outermost(differs: np.ndarray) -> np.ndarray:
    """The first and the last row that differ from the row before."""
    if not differs.any():
        return np.zeros(0, dtype=np.int64)
    return np.unique([int(np.argmax(differs)) + 1, len(differs) - int(np.argmax(differs[::-1]))])


class Extreme:
    """Counts the rows at a channel's largest value and at its second largest, and keeps where the
    former are.
    """

    def __init__(self) -> None:
        self._counts: dict[float, int] = {}
        self._rows: list[np.ndarray] = []
        self._moving = 0

    def feed(self, x: np.ndarray, q: np.ndarray, row: int) -> None:
        """Take a batch."""
        top = float(x.max())
        if len(self._counts) == 2 and top < min(self._counts):
            return
        below = x[x < top]
        before = max(self._counts, default=-np.inf)
        for value in (top, *([float(below.max())] if len(below) else [])):
            self._counts[value] = self._counts.get(value, 0) + int(np.count_nonzero(x == value))
        self._counts = {value: self._counts[value] for value in sorted(self._counts)[-2:]}
        if top > before:
            self._rows, self._moving = [], 0
        if top >= before:
            at = np.flatnonzero(x == top)
            self._moving += int(np.count_nonzero((np.diff(at) == 1) & (np.diff(q[at]) != 0)))
            self._rows.append(_intervals(at + row))

    def scan(self) -> ExtremeScan:
        """Return what was counted."""
        rows = np.concatenate(self._rows) if self._rows else np.zeros((0, 2), dtype=np.int64)
        return ExtremeScan(dict(self._counts), self._moving, rows)

    def add(self, scan: ExtremeScan, row: int) -> None:
        """Add the counts of a file whose first row is `row` of the log."""
        if not scan.counts:
            return
        before, top = max(self._counts, default=-np.inf), max(scan.counts)
        both = Counter(self._counts) + Counter(scan.counts)
        self._counts = {value: both[value] for value in sorted(both)[-2:]}
        if top > before:
            self._rows, self._moving = [], 0
        if top >= before:
            self._rows.append(scan.rows + row)
            self._moving += scan.moving

    def saturated(self) -> tuple[float, int, np.ndarray] | None:
        """(value, rows at it, their intervals) where many rows stand exactly there while the joint
        moves; zero is no limit.
        """
        if len(self._counts) < 2:
            return None
        second, top = sorted(self._counts)
        count = self._counts[top]
        if (
            top == 0.0
            or count < SATURATED_ROWS
            or count < PEAK_RATIO * self._counts[second]
            or self._moving < count // 2
        ):
            return None
        return top, count, _merged(np.concatenate(self._rows))


def _intervals(rows: np.ndarray) -> np.ndarray:
    """Sorted rows as (first, stop) of every unbroken series."""
    breaks = np.flatnonzero(np.diff(rows) != 1) + 1
    return np.column_stack(
        [
            rows[np.concatenate(([0], breaks))],
            rows[np.concatenate((breaks - 1, [len(rows) - 1]))] + 1,
        ]
    )


def _merged(intervals: np.ndarray) -> np.ndarray:
    """At most `MAX_STRETCHES` intervals that cover all of them: the smallest spaces are closed."""
    spaces = intervals[1:, 0] - intervals[:-1, 1]
    keep = spaces > (0 if len(intervals) <= MAX_STRETCHES else np.sort(spaces)[-MAX_STRETCHES])
    return np.column_stack(
        [intervals[np.concatenate(([True], keep)), 0], intervals[np.concatenate((keep, [True])), 1]]
    )


class Audit:
    """Watches all channels of a log."""

    def __init__(
        self, robot: Robot, columns: ColumnMap, *, where: Callable[[int], str], file: str
    ) -> None:
        self._robot, self._columns, self._where, self._file = robot, columns, where, file
        self._windows = WindowCollector(robot, columns)
        self._dofs = [
            (node, robot.tree.q_index[node.name], robot.tree.v_index[node.name])
            for node in robot.tree.independent
            if node.kind.nv == 1
        ]
        self._dofs = [dof for dof in self._dofs if dof[0].name not in columns.locked]
        moved = {v: MOVED[node.kind is JointKind.REVOLUTE] for node, _, v in self._dofs}
        measured = {at for kind, at, _ in columns.place if kind == "tau"}
        self._dead = {
            v: ConstantChannel(lambda s, m=m: s.high - s.low > m)
            for v, m in moved.items()
            if v in measured
        }
        self._top = {v: Extreme() for v in self._dead}
        self._bottom = {v: Extreme() for v in self._dead}
        velocities = moved if columns.has("dq") else {}
        self._stuck = {
            v: ConstantChannel(lambda s, m=m: abs(s.travel) > m) for v, m in velocities.items()
        }
        self._held = {
            v: ConstantChannel(lambda s, m=m: abs(s.end_q - s.start_q - s.travel) > m)
            for v, m in velocities.items()
        }
        self._rows = 0

    def feed(
        self, arrays: dict[str, np.ndarray | None], starts: np.ndarray, *, row: int, period: float
    ) -> None:
        """Take a batch of consecutive rows; `starts` are where runs begin in it."""
        t, q, dq, tau = (arrays[name] for name in ("t", "q", "dq", "tau"))
        assert t is not None
        assert q is not None
        self._rows = row + len(t)
        least = max(MIN_STRETCH, int(0.9 * STILL / period)) if period else MIN_STRETCH
        for _, at, v in self._dofs:
            rows = Rows(
                t,
                np.ascontiguousarray(q[:, at]),
                None if dq is None else np.ascontiguousarray(dq[:, v]),
                row,
            )
            if v in self._dead and tau is not None:
                torque = np.ascontiguousarray(tau[:, v])
                self._dead[v].feed(torque, rows, starts, least)
                self._top[v].feed(torque, rows.q, row)
                self._bottom[v].feed(-torque, rows.q, row)
            if v in self._stuck and rows.dq is not None:
                self._stuck[v].feed(rows.q, rows, starts, least)
                self._held[v].feed(rows.dq, rows, starts, least)
        self._windows.feed(arrays, starts, row=row, period=period)

    def _channels(self) -> dict[str, dict[int, ConstantChannel]]:
        return {"dead": self._dead, "stuck": self._stuck, "held": self._held}

    def scan(self) -> AuditScan:
        """Return what was seen of a file that has been fed to its end."""
        constant = {
            name: np.array(
                [
                    (v, stretch.value, stretch.first, stretch.stop)
                    for v, channel in channels.items()
                    for stretch in channel.finish()
                ],
                dtype=float,
            ).reshape(-1, 4)
            for name, channels in self._channels().items()
        }
        extremes = {
            name: {v: extreme.scan() for v, extreme in found.items()}
            for name, found in (("top", self._top), ("bottom", self._bottom))
        }
        return AuditScan(constant, extremes, *self._windows.collected())

    def add(self, scan: AuditScan, row: int, rows: int) -> None:
        """Add what was seen of the file that has these rows of the log."""
        for name, channels in self._channels().items():
            for v, value, first, stop in scan.constant[name]:
                channels[int(v)].found.append(
                    Stretch(value, int(first) + row, int(stop) + row, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
                )
        for name, extremes in (("top", self._top), ("bottom", self._bottom)):
            for v, extreme in scan.extremes[name].items():
                extremes[v].add(extreme, row)
        self._windows.add(scan.windows, scan.period, row)
        self._rows = row + rows

    def finish(self) -> AuditResult:
        """What was found. Raises `MalformedInput` where the log is in degrees or its stamps in
        milliseconds.
        """
        out = AuditResult()
        unusable: dict[int, list[tuple[int, int]]] = {}
        for node, _, v in self._dofs:
            limits = self._saturation(out, node.name, v, unusable)
            for kind, found, what in (
                (
                    "dead-torque",
                    self._dead.get(v),
                    "its torque stays at {value:.6g} while it moves; those torques are masked",
                ),
                (
                    "stuck",
                    self._stuck.get(v),
                    (
                        "its position stays at {value:.6g} while its velocity says that it moves;"
                        " these rows are masked"
                    ),
                ),
                (
                    "stuck",
                    self._held.get(v),
                    (
                        "its velocity stays at {value:.6g} while its position says otherwise; these"
                        " rows are masked"
                    ),
                ),
            ):
                stretches = found.finish() if found is not None else []
                if kind == "dead-torque":
                    stretches = [
                        stretch for stretch in stretches if stretch.value not in limits
                    ]  # that has been said
                if stretches:
                    everyone = (
                        kind == "stuck"
                    )  # the torque of every joint depends on a position and a velocity
                    self._report(
                        out,
                        kind,
                        node.name,
                        v,
                        stretches,
                        what.format(value=stretches[0].value),
                        everyone=everyone,
                    )
                    unusable.setdefault(v, []).extend((s.first, s.stop) for s in stretches)
        findings, masks = check_against_model(
            self._robot,
            self._columns,
            self._windows.windows(unusable),
            rows=self._rows,
            file=self._file,
        )
        out.findings += findings
        out.masks += masks
        return out

    def _report(
        self,
        out: AuditResult,
        kind: str,
        joint: str,
        v: int,
        stretches: list[Stretch],
        what: str,
        *,
        everyone: bool,
    ) -> None:
        count = sum(s.stop - s.first for s in stretches)
        first, last = stretches[0].first, stretches[-1].stop
        out.findings.append(
            Finding(
                kind,
                joint,
                (first, last),
                f"joint {joint!r}, {self._span(first, last)} ({count} rows): {what}",
            )
        )
        intervals = _merged(np.array([(s.first, s.stop) for s in stretches]))
        for dof in range(self._robot.nv) if everyone else (v,):
            out.masks += _masks(dof, intervals, kind.replace("-", " "))

    def _saturation(
        self, out: AuditResult, joint: str, v: int, unusable: dict[int, list[tuple[int, int]]]
    ) -> list[float]:
        """Report saturated torques; returns the values at which they are."""
        limits: list[float] = []
        for sign, extreme in ((1.0, self._top.get(v)), (-1.0, self._bottom.get(v))):
            found = extreme.saturated() if extreme is not None else None
            if found is None:
                continue
            value, count, intervals = found
            first, last = int(intervals[0, 0]), int(intervals[-1, 1])
            what = (
                f"its torque is saturated at {sign * value:.6g} (the extreme value, in {count}"
                " rows); those torques are masked"
            )
            out.findings.append(
                Finding(
                    "saturated",
                    joint,
                    (first, last),
                    f"joint {joint!r}, {self._span(first, last)}: {what}",
                )
            )
            out.masks += _masks(v, intervals, "saturated")
            unusable.setdefault(v, []).extend(map(tuple, intervals.tolist()))
            limits.append(sign * value)
        return limits

    def _span(self, first: int, stop: int) -> str:
        return f"{self._where(first)} to {self._where(stop - 1)}"


def _masks(dof: int, intervals: Iterable, reason: str) -> list[Mask]:
    return [Mask(dof, int(first), int(stop), reason) for first, stop in intervals]
