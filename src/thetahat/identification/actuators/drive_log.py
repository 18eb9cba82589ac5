"""Commanded and measured positions of joints, run by run, as the drives' fit reads them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, repeat

import numpy as np

from thetahat.data.filters import Butterworth, smooth

SMOOTHING = 0.12  # cut-off of positions for their derivatives, of the sampling rate
HIGHEST_CUTOFF = 12.0  # [Hz]
HISTORY = 0.3  # [s] of commands before a part of a run, which act during it


@dataclass(frozen=True)
class Segment:
    """Consecutive rows of one run, simulated from the state at the first."""

    first: int
    rows: int
    run: int  # first row of its run: earlier commands are not known


@dataclass(frozen=True, eq=False)
class DriveLog:
    """Time, measured and commanded positions of all rows; runs follow one another."""

    t: np.ndarray  # (rows,) [s]
    q: np.ndarray  # (rows, joints) [rad or m]
    command: np.ndarray  # (rows, joints)
    runs: tuple[tuple[str, int, int], ...]  # name, first row, rows
    rates: np.ndarray | None = None  # (2, rows, joints) of a part, from the whole log
    leads: tuple[int, ...] = ()  # rows before each run whose commands are known
    effort: np.ndarray | None = None  # (rows, joints) current or duty cycle that the drives read

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(rows for _, _, rows in self.runs)

    @property
    def joints(self) -> int:
        """Number of joints."""
        return int(self.q.shape[1])

    @cached_property
    def period(self) -> float:
        """Median time between rows [s]."""
        steps = [np.diff(self.t[first : first + rows]) for _, first, rows in self.runs]
        return float(np.median(np.concatenate(steps)))

    @cached_property
    def seconds(self) -> float:
        """How long all runs last [s]."""
        return float(sum(self.t[first + rows - 1] - self.t[first] for _, first, rows in self.runs))

    @cached_property
    def derivatives(self) -> tuple[np.ndarray, np.ndarray]:
        """q̇ and q̈ of every row, smoothed."""
        if self.rates is not None:
            return self.rates[0], self.rates[1]
        out = np.zeros((2, *self.q.shape))
        for _, first, rows in self.runs:
            part = slice(first, first + rows)
            t = self.t[part]
            period = (t[-1] - t[0]) / (rows - 1)
            even = t[0] + period * np.arange(rows)
            method = Butterworth(min(HIGHEST_CUTOFF, SMOOTHING / period))
            for j in range(self.joints):
                x = np.interp(even, t, self.q[part, j])
                for order in (1, 2):
                    y = smooth(x, period, method, order)
                    out[order - 1, part, j] = np.interp(t, even, y)
        return out[0], out[1]

    def part(self, runs: tuple[tuple[str, int, int], ...]) -> DriveLog:
        """Return the rows of these runs alone."""
        moved, leads, rows, at = [], [], [], 0
        for name, first, count in runs:
            origin = max(start for _, start, _ in self.runs if start <= first)
            lead = min(first - origin, int(HISTORY / self.period))
            rows.append(np.arange(first - lead, first + count))
            moved.append((name, at + lead, count))
            leads.append(lead)
            at += lead + count
        each = np.concatenate(rows)
        rates = np.stack(self.derivatives)[:, each]
        data = (self.t[each], self.q[each], self.command[each])
        effort = None if self.effort is None else self.effort[each]
        return DriveLog(*data, tuple(moved), rates, tuple(leads), effort)

    def smoothed(self, values: np.ndarray, joint: int) -> np.ndarray:
        """Return a joint's values of all rows, (rows,), behind the derivatives' low-pass."""
        out = np.zeros(len(values))
        for _, first, rows in self.runs:
            part = slice(first, first + rows)
            t = self.t[part]
            period = (t[-1] - t[0]) / (rows - 1)
            even = t[0] + period * np.arange(rows)
            method = Butterworth(min(HIGHEST_CUTOFF, SMOOTHING / period))
            y = smooth(np.interp(even, t, values[part]), period, method)
            out[part] = np.interp(t, even, y)
        return out

    def delayed_command(self, joint: int, delay: float) -> np.ndarray:
        """Return the command of a joint that holds so long before every row, (rows,)."""
        out = self.command[:, joint].copy()
        for _, first, rows in self.runs:
            part = slice(first, first + rows)
            t = self.t[part]
            held = np.searchsorted(t, t - delay + 1e-9, side="right") - 1
            out[part] = self.command[part, joint][np.maximum(held, 0)]
        return out

    def segments(self, seconds: float | None) -> list[Segment]:
        """Return every run cut into pieces of about this length; None: whole."""
        out = []
        for (_, first, rows), lead in zip(self.runs, self.leads or repeat(0), strict=False):
            length = self.t[first + rows - 1] - self.t[first]
            count = 1 if seconds is None else max(1, round(length / seconds))
            edges = np.linspace(0, rows, count + 1).astype(int)
            pieces = [(a, b - a) for a, b in pairwise(edges) if b - a > 1]
            out += [Segment(first + a, count, first - lead) for a, count in pieces]
        return out

    def split(self, share: float) -> tuple[DriveLog, DriveLog]:
        """Return the rows to fit and those held out at the end: whole runs where there are
        several, else the end of the run.
        """
        wanted = share * self.rows
        if len(self.runs) >= 3:
            kept, count = list(self.runs), 0
            while len(kept) > 1 and count + 0.5 * kept[-1][2] < wanted:
                count += kept.pop()[2]
            if count:
                return self.part(tuple(kept)), self.part(self.runs[len(kept) :])
        fitted, held = [], []
        for name, first, rows in self.runs:
            cut = round((1.0 - share) * rows)
            fitted.append((name, first, cut))
            held.append((name, first + cut, rows - cut))
        return self.part(tuple(fitted)), self.part(tuple(held))
