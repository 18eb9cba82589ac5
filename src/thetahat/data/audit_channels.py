"""Channels of a log in one pass: rows where one keeps its value, rows at a torque's limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

STILL = 0.5  # [s] a channel may stay at one value for this long
MIN_STRETCH = 10  # rows
SATURATED_ROWS = 20
PEAK_RATIO = 8  # rows at the extreme over rows at the next value: a quantised peak has 2 or 3
MAX_STRETCHES = 4_096  # masks of one joint and kind; beyond that, neighbours are merged


@dataclass(frozen=True, eq=False)
class ExtremeScan:
    """Rows at the two largest values of a channel."""

    counts: dict[float, int]
    moving: int  # neighbouring rows at the largest value between which the joint moved
    rows: np.ndarray  # (k, 2) intervals at the largest value


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
        self.changes = 0  # rows whose value is not that of the row before

    def feed(self, x: np.ndarray, rows: Rows, starts: np.ndarray, least: int) -> None:
        """Take a batch; a stretch does not reach across the start of a run."""
        differs = x[1:] != x[:-1]
        changes = int(np.count_nonzero(differs))
        self.changes += changes
        # else nothing long is in here, and only what touches the ends counts
        some = len(differs) - changes >= least - 1
        cuts = np.flatnonzero(differs) + 1 if some else _outermost(differs)
        inner = starts[starts > 0]
        if len(inner):
            cuts = np.union1d(cuts, inner)
        edges = np.concatenate(([0], cuts, [len(x)]))
        long = np.flatnonzero(np.diff(edges) >= least) if some else cuts[:0]
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
        return Saturation(top, count, merged(np.concatenate(self._rows)))


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


def merged(intervals: np.ndarray) -> np.ndarray:
    """Merge intervals that lie closest together until at most `MAX_STRETCHES` are left."""
    spaces = intervals[1:, 0] - intervals[:-1, 1]
    keep = spaces > (0 if len(intervals) <= MAX_STRETCHES else np.sort(spaces)[-MAX_STRETCHES])
    return np.column_stack(
        [intervals[np.concatenate(([True], keep)), 0], intervals[np.concatenate((keep, [True])), 1]]
    )
