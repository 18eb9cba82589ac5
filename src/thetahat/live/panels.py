"""Panels of the page: bounded histories of a run, and the report's figures of them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np

from thetahat.live.held_body import HeldBody
from thetahat.live.shared_state import Rows
from thetahat.live.viewers import POSE_DIGITS, rounded
from thetahat.model.joint_units import joint_units
from thetahat.model.robot import Robot
from thetahat.online.gate import GateState
from thetahat.report.decimate import Envelope
from thetahat.report.figures import online_run
from thetahat.report.figures.stick_figure import Pose, Skeleton, moving_figure
from thetahat.report.figures.time_series import torque_over_time
from thetahat.report.traces import Series

MANY = 12  # joints in one figure; of more, the worst, the median and the chosen one are drawn
POINTS = 12_000  # of a figure, about
TITLES = {
    "r2": "R² per joint",
    "torque": "Torque",
    "error": "Joint errors",
    "fill": "Buffer and rank",
    "cycle": "Cycle time",
}
SPAN = 60.0  # [s] that the page shows at first
FIT, HELD_OUT = "fit, all joints", "held out, all joints"
BUCKETS, TAIL = 400, 300  # at most 2·400 + 2·300 points per line


class LineHistory:
    """Lines over time in bounded memory: `add` rows, take the `new` ones, draw a whole `line`.

    The last rows are kept as they are, older ones as an `Envelope`: a line is up to date to the
    last row, and a peak a day ago is still there.

    tail: rows that stay as they are. buckets: of older rows.
    """

    def __init__(self, channels: int, *, buckets: int = BUCKETS, tail: int = TAIL) -> None:
        self.older, self._tail = Envelope(channels, buckets), tail
        self._t = np.full(2 * tail, np.nan)
        self._rows = np.full((2 * tail, channels), np.nan)
        self._count = self._fresh = 0  # rows of the tail; those of them that were handed out

    def add(self, t: np.ndarray, rows: np.ndarray) -> None:
        """Add rows, t (n,) and values (n, channels); NaN is a gap."""
        for begin in range(0, len(t), self._tail):
            part = slice(begin, min(begin + self._tail, len(t)))
            n = part.stop - begin
            if self._count + n > 2 * self._tail:
                self._fold()
            free = slice(self._count, self._count + n)
            self._t[free], self._rows[free] = t[part], rows[part]
            self._count += n

    def new(self) -> tuple[np.ndarray, np.ndarray]:
        """Return (t, rows) since the last call; folds old rows where there are many."""
        begin, self._fresh = self._fresh, self._count
        t, rows = self._t[begin : self._count].copy(), self._rows[begin : self._count].copy()
        if 4 * self._count >= 7 * self._tail:  # before there is no room left
            self._fold()
        return t, rows

    def line(self, channel: int) -> Series:
        """Return the whole line of a channel."""
        older, tail = self.older.line(channel), slice(0, self._count)
        t = np.concatenate([older.t, self._t[tail]])
        return Series(t, np.concatenate([older.y, self._rows[tail, channel]]))

    def _fold(self) -> None:
        """Move all but the last rows into the envelope."""
        old = max(0, self._count - self._tail)
        values, marks = self._rows[:old].T, np.zeros((0, old), dtype=bool)
        self.older.add(self._t[:old], values, ~np.isnan(values), marks=marks, broken=False)
        for array in (self._t, self._rows):
            array[: self._count - old] = array[old : self._count].copy()
        self._count, self._fresh = self._count - old, max(0, self._fresh - old)


class Intervals:
    """Begin and end of the intervals in which a flag was set.

    Where there are too many, the two nearest neighbours are joined.
    """

    def __init__(self, most: int = 60) -> None:
        self._most, self._open = most, False
        self._intervals: list[list[float]] = []
        self.changes = 0

    def add(self, t: Iterable[float], flags: Iterable[bool]) -> None:
        """Add times and the flag at each of them."""
        intervals = self._intervals
        for now, on in zip(t, flags, strict=True):
            if on and not self._open:
                intervals.append([now, now])
                if len(intervals) > self._most:
                    gaps = [b[0] - a[1] for a, b in pairwise(intervals)]
                    k = int(np.argmin(gaps))
                    intervals[k : k + 2] = [[intervals[k][0], intervals[k + 1][1]]]
            if self._open and intervals:
                intervals[-1][1] = now
            self.changes += on != self._open
            self._open = on

    @property
    def spans(self) -> list[tuple[float, float]]:
        """(begin, end) in the order of time."""
        return [(begin, end) for begin, end in self._intervals]


# -- panels ----------------------------------------------------------------------------------------


class Panels:
    """Histories and the figures of them. One thread adds and asks: the publisher."""

    def __init__(self, robot: Robot, *, tracks: bool, threshold: float, window: int) -> None:
        self.robot, self.threshold, self.window = robot, threshold, window
        self.joints, units = robot.velocity_names, joint_units(robot)
        self.torque_units = [torque for torque, _ in units]
        self.units = [velocity.removesuffix("/s") for _, velocity in units]
        self.many = robot.nv > MANY
        lines = 4 if self.many else robot.nv
        tail, buckets = min(1000, POINTS // 2 // lines), min(BUCKETS, POINTS // 4 // lines)
        self._histories = {
            # held out, fit, worst joint, median joint, every joint
            "r2": LineHistory(4 + robot.nv, tail=tail, buckets=buckets),
            # measured, predicted, nominal, external
            "torque": LineHistory(4 * robot.nv, tail=1000),
            # worst joint, median joint, every joint
            "error": LineHistory(2 + robot.nv, tail=tail, buckets=buckets),
            "fill": LineHistory(2, tail=1000),
            "cycle": LineHistory(2, tail=1000),
        }
        if not tracks:
            del self._histories["error"]
        self.names = tuple(self._histories)  # of the panels, the most important first
        self.identified = Intervals()
        self.full_at: float | None = None  # [s] when the buffer was full
        self.structural_rank: int | None = None
        self._new: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    # -- input -------------------------------------------------------------------------------------

    def add(
        self, rows: Rows, predicted: np.ndarray, nominal: np.ndarray, external: np.ndarray
    ) -> None:
        """Add rows of the loop, the torques that two models predict for them, and what pushes."""
        torques = np.hstack([rows.filtered[3], predicted, nominal, external])
        torques = np.where(rows.settled[:, None], torques, np.nan)
        self._histories["torque"].add(rows.t, torques)
        if "error" in self._histories:
            size = np.abs(rows.error)
            errors = np.column_stack([-_least(-size), _median(size), rows.error])
            self._histories["error"].add(rows.t, errors)
        self.identified.add(rows.t.tolist(), rows.identified.tolist())

    def add_update(self, t: float, gate: GateState) -> None:
        """Add the gate's state after an update."""
        joints = np.full(self.robot.nv, np.nan)
        if gate.r2_per_joint is not None:
            joints = np.ma.filled(gate.r2_per_joint, np.nan)
        total = [np.nan if value is None else value for value in (gate.r2, gate.r2_fit)]
        scores = np.concatenate([total, _least(joints[None]), _median(joints[None]), joints])
        at = np.array([t])
        self._histories["r2"].add(at, np.maximum(scores, online_run.LOWEST)[None])
        if gate.structural_rank is not None:
            self.structural_rank = gate.structural_rank
        rank = np.nan
        if gate.rank is not None and self.structural_rank:
            rank = 100.0 * gate.rank / self.structural_rank
        fill = 100.0 * min(gate.fill / max(gate.size, 1), 1.0)
        self._histories["fill"].add(at, np.array([[fill, rank]]))
        if self.full_at is None and 0 < gate.size <= gate.fill:
            self.full_at = t

    def add_cycle(self, t: float, p50: float, p99: float) -> None:
        """Add quantiles of the processor time of a cycle [µs]."""
        self._histories["cycle"].add(np.array([t]), np.array([[p50, p99]]))

    # -- output ------------------------------------------------------------------------------------

    def collect(self) -> None:
        """Collect the new points of all panels, for `extension`."""
        self._new = {name: history.new() for name, history in self._histories.items()}

    def extension(self, name: str, joint: int) -> list[list[list[float | None]]] | None:
        """Return times and values of the new points of every line; None where there are none."""
        if name not in self._new or not len(self._new[name][0]):
            return None
        t, rows = self._new[name]
        times = np.round(t, 4).tolist()
        return [[times, _significant(rows[:, k])] for k in self._channels(name, joint).values()]

    def figure(self, name: str, joint: int) -> dict[str, Any]:
        """Return a panel with all that is kept."""
        spans, history = self.identified.spans, self._histories[name]
        channels = self._channels(name, joint)
        lines = {title: history.line(channel) for title, channel in channels.items()}
        if name == "r2":
            return online_run.r2_over_time(
                lines, threshold=self.threshold, identified=spans, full_at=self.full_at
            )
        if name == "error":
            unit = "rad" if set(self.units) == {"rad"} else "rad or m"
            return online_run.over_time(lines, f"desired − true [{unit}]", identified=spans)
        first, second, *rest = lines.values()
        if name == "torque":
            nominal, external = rest
            unit = self.torque_units[joint]
            return torque_over_time(first, second, nominal, external=external, unit=unit)
        if name == "fill":
            return online_run.filling(
                first, second, window=self.window, structural_rank=self.structural_rank
            )
        return online_run.cycle_time(first, second)

    def _channels(self, name: str, joint: int) -> dict[str, int]:
        """Return the channels of a panel's lines, by their titles."""
        n = self.robot.nv
        if name == "torque":
            lines = ("measured", "predicted", "nominal", "external")
            return {title: k * n + joint for k, title in enumerate(lines)}
        if name not in ("r2", "error"):
            return {"first": 0, "second": 1}
        total, first = ({HELD_OUT: 0, FIT: 1}, 4) if name == "r2" else ({}, 2)
        if self.many:
            chosen = {f"joint {self.joints[joint]}": first + joint}
            return total | {"worst joint": first - 2, "median joint": first - 1} | chosen
        titles = (f"joint {each}" if each in total else each for each in self.joints)
        return total | {title: first + j for j, title in enumerate(titles)}


class RobotScene:
    """The robot in space: its pose now, and the inertia ellipsoids of its bodies."""

    def __init__(self, robot: Robot) -> None:
        self._robot, self._skeleton = robot, Skeleton(robot)
        self.q, self._theta = robot.neutral, robot.theta
        self._held: HeldBody | None = None
        self.figure, self.bodies = moving_figure(robot, self.q, self._theta, self._skeleton)

    def redraw(self, theta: np.ndarray, held: HeldBody | None = None) -> bool:
        """Redraw the ellipsoids where the parameters or what is held changed; whether they did."""
        if np.array_equal(theta, self._theta) and held is self._held:
            return False
        self._theta, self._held = theta, held
        self.figure, self.bodies = moving_figure(
            self._robot,
            self.q,
            theta,
            self._skeleton,
            held=None if held is None else (held.body, held.theta, held.title),
        )
        return True

    @property
    def pose(self) -> Pose:
        """The robot at its current configuration."""
        return self._skeleton.pose(self.q)

    def posed_figure(self) -> dict[str, Any]:
        """Return the figure with the links' lines in the current pose."""
        points = self.pose.points
        axes = {name: rounded(points[:, k], POSE_DIGITS) for k, name in enumerate("xyz")}
        self.figure["data"][0].update(axes)
        return self.figure


def _least(rows: np.ndarray) -> np.ndarray:
    """Return the minimum of every row; NaN where all are."""
    least = np.where(np.isnan(rows), np.inf, rows).min(axis=1)
    return np.where(np.isfinite(least), least, np.nan)


def _median(rows: np.ndarray) -> np.ndarray:
    """Return the lower median of the finite values of every row; NaN where there are none."""
    ordered = np.sort(rows, axis=1)  # NaN last
    known = np.count_nonzero(~np.isnan(rows), axis=1)
    out = ordered[np.arange(len(rows)), np.maximum(known - 1, 0) // 2]
    return np.where(known > 0, out, np.nan)


def _significant(values: np.ndarray) -> list[float | None]:
    """Return numbers with six significant digits; None where not finite."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values.tolist()]
