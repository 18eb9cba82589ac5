"""Audit of a log in one pass: channels that are dead, stuck or saturated.

Everything here is of bounded size. What needs a model of the robot (units, signs, the direction of
gravity) is checked at the end, from a few thousand short windows spread over the log
(audit_model.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from thetahat.data.audit_model import check_against_model
from thetahat.data.audit_windows import WindowCollector
from thetahat.data.columns import ColumnMap
from thetahat.data.types import Channels, Finding, Mask
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind

STILL = 0.5  # [s] a channel may stay at one value for this long
MIN_STRETCH = 10  # rows
MOVED_ANGLE = 0.1  # [rad] of motion that contradicts a constant channel
MOVED_LENGTH = 0.01  # [m]
SATURATED_ROWS = 20
PEAK_RATIO = 8  # rows at the extreme over rows at the next value: a quantised peak has 2 or 3
MAX_STRETCHES = 4_096  # masks of one joint and kind; beyond that, neighbours are merged


@dataclass(frozen=True)
class AuditResult:
    """Findings and masks of a log."""

    findings: tuple[Finding, ...]
    masks: tuple[Mask, ...]


@dataclass(frozen=True, eq=False)
class ExtremeScan:
    """Rows at the two largest values of a channel."""

    counts: dict[float, int]
    moving: int  # neighbouring rows at the largest value between which the joint moved
    rows: np.ndarray  # (k, 2) intervals at the largest value


@dataclass(frozen=True, eq=False)
class AuditScan:
    """Audit of one file, rows counted from its first; merged by `Audit.add`."""

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


class ConstantRows(NamedTuple):
    """Rows over which a channel keeps one value."""

    value: float
    first: int
    stop: int


@dataclass(frozen=True)
class Stretch:
    """Rows over which a channel keeps one value, and how the joint moved meanwhile."""

    rows: ConstantRows
    begin: float  # [s]
    end: float
    low: float  # of q
    high: float
    start_q: float
    end_q: float
    travel: float  # ∫ dq dt

    @staticmethod
    def over(value: float, batch: Rows, first: int, stop: int) -> Stretch:
        """Measure rows first … stop of a batch."""
        t, q, travel = batch.t[first:stop], batch.q[first:stop], 0.0
        if batch.dq is not None:
            mean = 0.5 * (batch.dq[first + 1 : stop] + batch.dq[first : stop - 1])
            travel = float(np.sum(mean * np.diff(t)))
        rows = ConstantRows(float(value), batch.row + first, batch.row + stop)
        return Stretch(rows, t[0], t[-1], q.min(), q.max(), q[0], q[-1], travel)

    def joined(self, other: Stretch) -> Stretch:
        """Return this stretch continued by the one that follows."""
        return Stretch(
            self.rows._replace(stop=other.rows.stop),
            self.begin,
            other.end,
            min(self.low, other.low),
            max(self.high, other.high),
            self.start_q,
            other.end_q,
            self.travel + other.travel,
        )

    @property
    def is_long(self) -> bool:
        """Return whether the channel is constant for longer than a resting robot explains."""
        return self.end - self.begin >= STILL and self.rows.stop - self.rows.first >= MIN_STRETCH


def position_range(stretch: Stretch) -> float:
    """Return by how much the position changed."""
    return stretch.high - stretch.low


def velocity_travel(stretch: Stretch) -> float:
    """Return the motion that the velocity states."""
    return abs(stretch.travel)


def position_mismatch(stretch: Stretch) -> float:
    """Return by how much position and integrated velocity disagree."""
    return abs(stretch.end_q - stretch.start_q - stretch.travel)


class ConstantChannel:
    """Find rows where a channel keeps one value for `STILL` seconds while the joint's motion, by
    some measure, exceeds a limit.
    """

    def __init__(self, motion: Callable[[Stretch], float], limit: float) -> None:
        self._motion, self._limit = motion, limit
        self._open: Stretch | None = None
        self.constant: list[ConstantRows] = []

    def feed(self, x: np.ndarray, rows: Rows, starts: np.ndarray, least: int) -> None:
        """Take a batch; a stretch does not reach across the start of a run."""
        differs = x[1:] != x[:-1]
        # else nothing long is in here, and only what touches the ends counts
        some = len(differs) - np.count_nonzero(differs) >= least - 1
        changes = np.flatnonzero(differs) + 1 if some else _outermost(differs)
        inner = starts[starts > 0]
        if len(inner):
            changes = np.union1d(changes, inner)
        edges = np.concatenate(([0], changes, [len(x)]))
        long = np.flatnonzero(np.diff(edges) >= least) if some else changes[:0]
        fresh = len(starts) > 0 and starts[0] == 0
        if self._open is not None and (fresh or self._open.rows.value != x[0]):
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
        if stretch is not None and stretch.is_long and self._motion(stretch) > self._limit:
            self.constant.append(stretch.rows)

    def finish(self) -> list[ConstantRows]:
        """Return all that were found."""
        self._close()
        return self.constant


def _outermost(differs: np.ndarray) -> np.ndarray:
    """Return the first and the last row that differ from the row before."""
    if not differs.any():
        return np.zeros(0, dtype=np.int64)
    return np.unique([int(np.argmax(differs)) + 1, len(differs) - int(np.argmax(differs[::-1]))])


class Extreme:
    """Count the rows at a channel's largest value and at its second largest, and keep where the
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

    def saturation(self) -> Saturation | None:
        """Return the limit at which many rows stand exactly while the joint moves, if there is
        one; zero is no limit.
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
        return Saturation(top, count, _merged(np.concatenate(self._rows)))


class Saturation(NamedTuple):
    """A torque limit and the rows at it."""

    value: float
    total: int  # rows
    rows: np.ndarray  # (k, 2) intervals


def _intervals(rows: np.ndarray) -> np.ndarray:
    """Return sorted rows as (first, stop) of every unbroken series."""
    breaks = np.flatnonzero(np.diff(rows) != 1) + 1
    return np.column_stack(
        [
            rows[np.concatenate(([0], breaks))],
            rows[np.concatenate((breaks - 1, [len(rows) - 1]))] + 1,
        ]
    )


def _merged(intervals: np.ndarray) -> np.ndarray:
    """Merge intervals that lie closest together until at most `MAX_STRETCHES` are left."""
    spaces = intervals[1:, 0] - intervals[:-1, 1]
    keep = spaces > (0 if len(intervals) <= MAX_STRETCHES else np.sort(spaces)[-MAX_STRETCHES])
    return np.column_stack(
        [intervals[np.concatenate(([True], keep)), 0], intervals[np.concatenate((keep, [True])), 1]]
    )


class Audit:
    """Audit of all channels of a log."""

    def __init__(
        self, robot: Robot, columns: ColumnMap, *, where: Callable[[int], str], file: str
    ) -> None:
        self._robot, self._columns, self._where, self._file = robot, columns, where, file
        self._windows = WindowCollector(robot, columns)
        self._dofs = [
            (node, robot.tree.q_index[node.name], robot.tree.v_index[node.name])
            for node in robot.tree.independent
            if node.kind.nv == 1 and node.name not in columns.locked
        ]
        limits = {
            v: MOVED_ANGLE if node.kind is JointKind.REVOLUTE else MOVED_LENGTH
            for node, _, v in self._dofs
        }
        measured = {at for kind, at, _ in columns.place if kind == "tau"}
        torques = {v: limit for v, limit in limits.items() if v in measured}
        velocities = limits if columns.has("dq") else {}
        self._constant = {
            "dead": {v: ConstantChannel(position_range, m) for v, m in torques.items()},
            "stuck": {v: ConstantChannel(velocity_travel, m) for v, m in velocities.items()},
            "held": {v: ConstantChannel(position_mismatch, m) for v, m in velocities.items()},
        }
        self._extremes = {name: {v: Extreme() for v in torques} for name in ("top", "bottom")}
        self._rows = 0
        self._findings: list[Finding] = []
        self._masks: list[Mask] = []
        self._unusable: dict[int, list[tuple[int, int]]] = {}

    def feed(self, channels: Channels, starts: np.ndarray, *, row: int, period: float) -> None:
        """Take a batch of consecutive rows; `starts` are where runs begin in it."""
        q, dq, tau = channels["q"], channels["dq"], channels["tau"]
        self._rows = row + len(q)
        least = max(MIN_STRETCH, int(0.9 * STILL / period)) if period else MIN_STRETCH
        for _, at, v in self._dofs:
            rows = Rows(
                channels["t"],
                np.ascontiguousarray(q[:, at]),
                None if dq is None else np.ascontiguousarray(dq[:, v]),
                row,
            )
            if v in self._constant["dead"] and tau is not None:
                torque = np.ascontiguousarray(tau[:, v])
                self._constant["dead"][v].feed(torque, rows, starts, least)
                self._extremes["top"][v].feed(torque, rows.q, row)
                self._extremes["bottom"][v].feed(-torque, rows.q, row)
            if v in self._constant["stuck"] and rows.dq is not None:
                self._constant["stuck"][v].feed(rows.q, rows, starts, least)
                self._constant["held"][v].feed(rows.dq, rows, starts, least)
        self._windows.feed(channels, starts, row=row, period=period)

    def scan(self) -> AuditScan:
        """Return what was seen of a file that has been fed to its end."""
        constant = {
            name: np.array(
                [(v, *rows) for v, channel in channels.items() for rows in channel.finish()],
                dtype=float,
            ).reshape(-1, 4)
            for name, channels in self._constant.items()
        }
        extremes = {
            name: {v: extreme.scan() for v, extreme in by_dof.items()}
            for name, by_dof in self._extremes.items()
        }
        return AuditScan(constant, extremes, *self._windows.collected())

    def add(self, scan: AuditScan, row: int, rows: int) -> None:
        """Add what was seen of the file that has these rows of the log."""
        for name, channels in self._constant.items():
            for v, value, first, stop in scan.constant[name].tolist():
                constant = ConstantRows(value, int(first) + row, int(stop) + row)
                channels[int(v)].constant.append(constant)
        for name, extremes in self._extremes.items():
            for v, extreme in scan.extremes[name].items():
                extremes[v].add(extreme, row)
        self._windows.add(scan.windows, scan.period, row)
        self._rows = row + rows

    def finish(self) -> AuditResult:
        """Return findings and masks.

        Raises:
            MalformedInput: the log is in degrees, or its time stamps are not in seconds.

        """
        for node, _, v in self._dofs:
            limits = self._report_saturation(node.name, v)
            for name, kind, what in (
                ("dead", "dead-torque", "torque stays at {:.6g} while it moves; those torques"),
                (
                    "stuck",
                    "stuck",
                    "position stays at {:.6g} but its velocity is not 0; these rows",
                ),
                ("held", "stuck", "velocity stays at {:.6g} but its position differs; these rows"),
            ):
                channel = self._constant[name].get(v)
                constant = [] if channel is None else channel.finish()
                if name == "dead":  # saturated torques are reported as such
                    constant = [rows for rows in constant if rows.value not in limits]
                if constant:
                    sentence = f"its {what.format(constant[0].value)} are masked"
                    self._report_constant(kind, node.name, v, constant, sentence)
        findings, masks = check_against_model(
            self._robot,
            self._columns,
            self._windows.windows(self._unusable),
            rows=self._rows,
            file=self._file,
        )
        return AuditResult((*self._findings, *findings), (*self._masks, *masks))

    def _report_constant(
        self, kind: str, joint: str, v: int, constant: list[ConstantRows], what: str
    ) -> None:
        count = sum(rows.stop - rows.first for rows in constant)
        first, last = constant[0].first, constant[-1].stop
        sentence = f"joint {joint!r}, {self._span(first, last)} ({count} rows): {what}"
        self._findings.append(Finding(kind, joint, (first, last), sentence))
        spans = [(rows.first, rows.stop) for rows in constant]
        # the torque of every joint depends on a position and a velocity
        for dof in range(self._robot.nv) if kind == "stuck" else (v,):
            self._masks += _masks(dof, _merged(np.array(spans)), kind.replace("-", " "))
        self._unusable.setdefault(v, []).extend(spans)

    def _report_saturation(self, joint: str, v: int) -> list[float]:
        """Report saturated torques, and return the values at which they are."""
        limits: list[float] = []
        for sign, name in ((1.0, "top"), (-1.0, "bottom")):
            extreme = self._extremes[name].get(v)
            saturation = None if extreme is None else extreme.saturation()
            if saturation is None:
                continue
            first, last = int(saturation.rows[0, 0]), int(saturation.rows[-1, 1])
            what = (
                f"its torque is saturated at {sign * saturation.value:.6g} (the extreme value, in"
                f" {saturation.total} rows); those torques are masked"
            )
            sentence = f"joint {joint!r}, {self._span(first, last)}: {what}"
            self._findings.append(Finding("saturated", joint, (first, last), sentence))
            self._masks += _masks(v, saturation.rows, "saturated")
            spans = [(int(begin), int(end)) for begin, end in saturation.rows]
            self._unusable.setdefault(v, []).extend(spans)
            limits.append(sign * saturation.value)
        return limits

    def _span(self, first: int, stop: int) -> str:
        return f"{self._where(first)} to {self._where(stop - 1)}"


def _masks(dof: int, intervals: np.ndarray, reason: str) -> list[Mask]:
    return [Mask(dof, int(first), int(stop), reason) for first, stop in intervals]
