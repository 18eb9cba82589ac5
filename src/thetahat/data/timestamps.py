"""Time stamps: the runs of a log between gaps, and jumps of encoders that wrapped around."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from thetahat.data.formats import Table
from thetahat.data.types import Run

GAP = 5.0  # periods: a longer pause splits a run
MIN_RUN = 5  # rows: fewer cannot be filtered or differentiated
ENOUGH = 8  # steps in a batch to know its period by; fewer rely on the batch before
MAX_RUNS = 100_000
WRAP_REST = 0.5  # [rad] a jump of whole turns may differ by this much of motion
TURN = 2.0 * np.pi
MAX_TURNS = 2**31  # of one jump; no encoder counts further, and rounding hides the rest of a turn


class DecimatedValues:
    """Every k-th of a series of numbers, at most `limit` of them; k doubles when needed."""

    def __init__(self, limit: int = 65_536) -> None:
        self._parts: list[np.ndarray] = []
        self._limit, self._step, self._skip, self._kept = limit, 1, 0, 0

    def add(self, values: np.ndarray) -> None:
        """Add numbers that follow those before."""
        kept = values[self._skip :: self._step].copy()
        self._skip = (self._skip - len(values)) % self._step
        self._parts.append(kept)
        self._kept += len(kept)
        while self._kept > self._limit:
            self._parts = [np.concatenate(self._parts)[::2].copy()]
            self._skip += self._step if self._kept % 2 else 0
            self._step *= 2
            self._kept = len(self._parts[0])

    def median(self) -> float:
        """Return the median of the numbers kept; 0 of none."""
        return float(np.median(np.concatenate(self._parts))) if self._kept else 0.0


@dataclass
class _Open:
    """A run that is being read."""

    label: str
    first_row: int
    start: float

    def __post_init__(self) -> None:
        self.rows, self.stop = 0, 0.0
        self.shift = 0.0  # subtracted from steps before they are squared
        self.total, self.squares = 0.0, 0.0
        self.steps = DecimatedValues()

    def extend(self, t: np.ndarray, dt: np.ndarray) -> None:
        if len(dt):
            self.shift = self.shift or float(dt[0])
            off = dt - self.shift
            self.total += float(off.sum())
            self.squares += float(np.square(off).sum())  # off @ off would wake BLAS's threads
            self.steps.add(dt)
        self.rows, self.stop = self.rows + len(t), float(t[-1])

    def closed(self) -> Run:
        count = max(self.rows - 1, 1)
        variance = max(self.squares / count - (self.total / count) ** 2, 0.0)
        return Run(
            self.label,
            self.rows,
            self.first_row,
            self.start,
            self.stop,
            self.steps.median(),
            float(np.sqrt(variance)),
        )


class RunSplitter:
    """Cut a file into runs: at changes of `seg`, and at gaps of more than `GAP` periods.

    Runs are named by their label alone; `scan.merge_scans` numbers those that share one.
    """

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.dropped: list[Run] = []
        # (row after the gap, its length, the period) [s]
        self.gaps: list[tuple[int, float, float]] = []
        self._open: _Open | None = None
        self._period = 0.0

    @property
    def period(self) -> float:
        """Median step of the latest batch [s]."""
        return self._period

    def finish(self) -> None:
        """No more rows."""
        self._close()

    def feed(
        self,
        t: np.ndarray,
        labels: Sequence[tuple[int, str]],
        *,
        row: int,
        table: Table,
    ) -> np.ndarray:
        """Take the time stamps of consecutive rows, and return where in them runs start."""
        before = self._open.stop if self._open is not None else float(t[0])
        dt = np.diff(t, prepend=before)
        begins = np.zeros(len(t), dtype=bool)
        begins[0] = self._open is None
        names, current = {}, self._open.label if self._open is not None else None
        for at, name in labels:
            if name != current:  # a name may be stated again where a block begins
                current = names[at] = name
                begins[at] = True
        self._check_order(t, dt, begins, table, row)
        inside = dt[~begins]
        if len(inside) >= ENOUGH or (len(inside) and not self._period):
            self._period = float(np.median(inside))
        gaps = (dt > GAP * self._period) & ~begins if self._period else np.zeros_like(begins)
        for gap in np.flatnonzero(gaps):
            self.gaps.append((row + int(gap), float(dt[gap]), self._period))
        starts = np.flatnonzero(begins | gaps)
        self._take(t, dt, starts, names, row)
        if len(self.runs) + len(self.dropped) > MAX_RUNS:
            raise table.problem(
                row,
                f"the log falls into more than {MAX_RUNS} runs by now; its time stamps are too"
                " irregular, so repair column t",
            )
        return starts

    def _take(
        self, t: np.ndarray, dt: np.ndarray, starts: np.ndarray, names: dict[int, str], row: int
    ) -> None:
        edges = np.unique(np.concatenate(([0], starts, [len(t)])))
        fresh = set(starts.tolist())
        label = self._open.label if self._open is not None else ""
        for begin, end in pairwise(edges.tolist()):
            label = names.get(begin, label)
            if begin in fresh or self._open is None:
                self._close()
                self._open = _Open(label, row + begin, float(t[begin]))
            self._open.extend(t[begin:end], dt[begin + (begin in fresh) : end])

    def _close(self) -> None:
        if self._open is None:
            return
        run = self._open.closed()
        (self.runs if run.rows >= MIN_RUN else self.dropped).append(run)
        self._open = None

    @staticmethod
    def _check_order(
        t: np.ndarray, dt: np.ndarray, begins: np.ndarray, table: Table, row: int
    ) -> None:
        wrong = (dt <= 0.0) & ~begins
        if wrong.any():
            at = int(np.argmax(wrong))
            how = "repeats the time stamp" if dt[at] == 0.0 else "goes back behind the time stamp"
            raise table.problem(
                row + at,
                f"t = {t[at]:.9g} {how} of the row before, {t[at] - dt[at]:.9g}; time stamps must"
                " increase, so remove or correct the row (a column seg tells runs apart)",
            )


class WrapFinder:
    """Find jumps by whole turns between neighbouring rows of angles: wraps of an encoder."""

    def __init__(self, angles: Sequence[int]) -> None:
        self._angles = np.array(angles, dtype=np.int64)  # positions in q
        self._last: np.ndarray | None = None
        self._rows: dict[int, list[int]] = {}
        self._turns: dict[int, list[int]] = {}

    def feed(self, q: np.ndarray, starts: np.ndarray, row: int) -> None:
        """Take consecutive rows; a jump at the start of a run is none."""
        if not len(self._angles):
            return
        angles = q[:, self._angles]
        previous = angles[:1] if self._last is None else self._last
        with np.errstate(over="ignore"):
            steps = np.diff(angles, axis=0, prepend=previous)
        self._last = angles[-1:].copy()
        if steps.max() < TURN - WRAP_REST and steps.min() > WRAP_REST - TURN:
            return
        suspects = np.abs(steps) > TURN - WRAP_REST
        suspects[starts] = False
        for at, column in zip(*np.nonzero(suspects), strict=True):
            step = float(steps[at, column])
            if abs(step) > MAX_TURNS * TURN:
                continue
            turns = round(step / TURN)
            if abs(step - turns * TURN) <= WRAP_REST:
                angle = int(self._angles[column])
                self._rows.setdefault(angle, []).append(row + int(at))
                self._turns.setdefault(angle, []).append(turns)

    def wraps(self) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """Return, by position in q, the rows of the jumps and the turns to subtract from there."""
        return {
            angle: (np.array(rows), np.array(self._turns[angle]))
            for angle, rows in self._rows.items()
        }


def unwrap(
    q: np.ndarray, wraps: dict[int, tuple[np.ndarray, np.ndarray]], *, row: int, run: Run
) -> None:
    """Subtract the turns since the run's start from the angles of its rows from `row` on, in
    place.
    """
    for angle, (rows, turns) in wraps.items():
        total = np.concatenate(([0], np.cumsum(turns)))
        done = total[np.searchsorted(rows, np.arange(row, row + len(q)), side="right")]
        q[:, angle] -= TURN * (done - total[np.searchsorted(rows, run.first_row, side="right")])
