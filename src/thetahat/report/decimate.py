"""Long series in bounded memory: extremes per bucket, and the worst interval at full rate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thetahat.report.traces import Series


@dataclass(frozen=True, eq=False)
class _Buckets:
    """Neighbouring buckets; times are of the minimum, maximum, first and last row."""

    low: np.ndarray  # (channels, buckets), ±inf: no value
    low_at: np.ndarray
    high: np.ndarray
    high_at: np.ndarray
    begin: np.ndarray  # (buckets,)
    end: np.ndarray
    broken: np.ndarray  # (buckets,) a run begins in it
    marks: np.ndarray  # (marks, buckets) rows that were marked

    @staticmethod
    def empty(channels: int, marks: int) -> _Buckets:
        values, times = np.zeros((channels, 0)), np.zeros(0)
        broken, counts = np.zeros(0, dtype=bool), np.zeros((marks, 0), dtype=np.int64)
        return _Buckets(values, values, values, values, times, times, broken, counts)

    def part(self, which: slice) -> _Buckets:
        return _Buckets(*(array[..., which] for array in vars(self).values()))

    def then(self, other: _Buckets) -> _Buckets:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return _Buckets(*(np.concatenate(pair, axis=-1) for pair in pairs))

    def paired(self) -> _Buckets:
        """Return every two buckets as one; an odd last one stays alone."""
        whole = len(self.begin) // 2 * 2
        both = self.part(slice(0, whole, 2)).merged(self.part(slice(1, whole, 2)))
        return both.then(self.part(slice(whole, None)))

    def merged(self, later: _Buckets) -> _Buckets:
        """Return each of these buckets with one of the later as one."""
        a, b = self.low <= later.low, self.high >= later.high
        return _Buckets(
            np.where(a, self.low, later.low),
            np.where(a, self.low_at, later.low_at),
            np.where(b, self.high, later.high),
            np.where(b, self.high_at, later.high_at),
            self.begin,
            later.end,
            self.broken | later.broken,
            self.marks + later.marks,
        )


class Envelope:
    """Minimum and maximum, and when, of every bucket of rows; buckets double in width as needed.

    Peaks survive: every extreme of the series is one of the points drawn. The result does not
    depend on how the rows are cut into pieces: bucket k holds rows k·width … (k + 1)·width − 1 and
    width is the least power of two that needs no more than `buckets`.
    """

    def __init__(self, channels: int, buckets: int) -> None:
        self.width, self.rows, self._limit = 1, 0, buckets
        self._channels = channels
        self._kept = _Buckets.empty(channels, 0)

    def __len__(self) -> int:
        return len(self._kept.begin)

    def add(
        self,
        t: np.ndarray,
        values: np.ndarray,
        mask: np.ndarray,
        *,
        marks: np.ndarray,
        broken: bool,
    ) -> None:
        """Add rows of one run: t (n,), values and mask (channels, n), marks (marks, n) bool.

        broken: they do not continue the last ones.
        """
        n, width = len(t), self.width
        if not n:
            return
        if not self.rows:
            self._kept = _Buckets.empty(self._channels, len(marks))
        first, head = divmod(self.rows, width)
        tail = -(head + n) % width
        count = (head + n + tail) // width
        times = np.pad(t, (head, tail), mode="edge").reshape(count, width)

        def bucketed(array: np.ndarray, fill: float | bool) -> np.ndarray:
            padding = ((0, 0), (head, tail))
            padded = np.pad(array, padding, constant_values=fill) if head or tail else array
            return padded.reshape(len(array), count, width)

        whole = bool(mask.all())
        least = bucketed(values if whole else np.where(mask, values, np.inf), np.inf)
        most = bucketed(values if whole else np.where(mask, values, -np.inf), -np.inf)
        begins = np.zeros(count, dtype=bool)
        begins[0] = broken
        new = _Buckets(
            *_at(least, np.argmin(least, axis=2), times),
            *_at(most, np.argmax(most, axis=2), times),
            times[:, 0].copy(),
            times[:, -1].copy(),
            begins,
            bucketed(marks, False).sum(axis=2),
        )
        old = self._kept
        if first < len(old.begin):  # the last bucket was not full
            last = old.part(slice(-1, None)).merged(new.part(slice(0, 1)))
            old, new = old.part(slice(0, -1)), last.then(new.part(slice(1, None)))
        self._kept, self.rows = old.then(new), self.rows + n
        while len(self) > self._limit:
            self._kept, self.width = self._kept.paired(), 2 * self.width

    def line(self, channel: int) -> Series:
        """Return the series through the extremes of every bucket, in the order of time.

        NaN between runs and where all rows are masked.
        """
        kept = self._kept
        low, high, low_at, high_at = (
            array[channel] for array in (kept.low, kept.high, kept.low_at, kept.high_at)
        )
        early, empty = low_at <= high_at, ~np.isfinite(low)
        first_at = np.where(empty, kept.begin, np.where(early, low_at, high_at))
        first = np.where(empty, np.nan, np.where(early, low, high))
        t = np.stack([kept.begin, first_at, np.where(early, high_at, low_at)])
        y = np.stack([np.full(len(low), np.nan), first, np.where(early, high, low)])
        keep = np.stack([kept.broken, np.ones(len(low), dtype=bool), ~empty & (t[1] != t[2])])
        return Series(t.T[keep.T], y.T[keep.T])

    def marked(self, mark: int) -> tuple[tuple[float, float], ...]:
        """Return (begin, end) of the times in which most rows have the mark."""
        kept = self._kept
        if not self.rows:
            return ()
        sizes = np.full(len(kept.begin), self.width)
        sizes[-1] = self.rows - self.width * (len(sizes) - 1)
        on = np.concatenate([[False], 2 * kept.marks[mark] > sizes, [False]])
        edges = np.flatnonzero(on[1:] != on[:-1])
        return tuple(
            (float(kept.begin[a]), float(kept.end[b - 1]))
            for a, b in zip(edges[::2], edges[1::2], strict=True)
        )


def _at(values: np.ndarray, where: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (value, time) of the chosen row of every bucket; values (channels, buckets, width)."""
    chosen = np.take_along_axis(values, where[:, :, None], axis=2)[:, :, 0]
    return chosen, times[np.arange(len(times)), where]


class Worst:
    """Of every joint, the block of `length` rows with the largest mean squared error.

    Blocks are counted from the beginning of a run; one counts if at least half of it is there and
    can be scored.
    """

    def __init__(self, joints: int, length: int) -> None:
        self.length = length
        self.score = np.full(joints, -1.0)  # mean squared error of the worst block so far
        # t (k,), values (k, series)
        self.rows: list[tuple[np.ndarray, np.ndarray] | None] = [None] * joints
        self._t, self._values = np.zeros(0), np.zeros((0, 0, joints))
        self._mask = np.zeros((0, joints), dtype=bool)

    def add(self, t: np.ndarray, values: np.ndarray, mask: np.ndarray, *, begins: bool) -> None:
        """Add rows of one run: t (n,), values (n, series, joints), mask (n, joints).

        The first two series are measured and predicted.
        """
        if begins:
            self.close()
        if len(self._t):
            t = np.concatenate([self._t, t])
            values, mask = np.concatenate([self._values, values]), np.vstack([self._mask, mask])
        whole = len(t) // self.length * self.length
        for at in range(0, whole, self.length):
            block = slice(at, at + self.length)
            self._judge(t[block], values[block], mask[block])
        self._t, self._values = t[whole:].copy(), values[whole:].copy()
        self._mask = mask[whole:].copy()

    def close(self) -> None:
        """End the run; what is left of it counts if it is half a block."""
        if 2 * len(self._t) >= self.length:
            self._judge(self._t, self._values, self._mask)
        self._t, self._values, self._mask = self._t[:0], self._values[:0], self._mask[:0]

    def _judge(self, t: np.ndarray, values: np.ndarray, mask: np.ndarray) -> None:
        count = mask.sum(axis=0)
        squares = np.sum((values[:, 0] - values[:, 1]) ** 2, axis=0, where=mask)
        error = squares / np.maximum(count, 1)
        for j in np.flatnonzero((2 * count >= self.length) & (error > self.score)):
            self.score[j] = error[j]
            self.rows[j] = t.copy(), np.where(mask[:, None, j], values[:, :, j], np.nan)
