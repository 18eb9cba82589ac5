"""Long series in bounded memory: least and largest value per bucket, and the stretch with the
largest error at full rate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thetahat.report.traces import Series


class Envelope:
    """Least and largest value, and when, of every bucket of rows; buckets double in width as rows
    come in.

    Peaks survive: every extreme of the series is one of the points drawn. The result does not
    depend on how the rows are cut into pieces: bucket k holds rows k·width … (k + 1)·width − 1 and
    width is the least power of two that needs no more than `buckets`.
    """

    def __init__(self, channels: int, buckets: int) -> None:
        self.width, self.rows, self._limit = 1, 0, buckets
        self.low, self.high = (np.zeros((channels, 0)) for _ in range(2))  # ±inf: no value
        self.low_at, self.high_at = (np.zeros((channels, 0)) for _ in range(2))
        self.begin, self.end = np.zeros(0), np.zeros(0)  # (buckets,) time of the first and last row
        self.broken = np.zeros(0, dtype=bool)  # (buckets,) a run begins in it
        self.marks: np.ndarray | None = None  # (marks, buckets) rows that were marked

    def add(
        self,
        t: np.ndarray,
        values: np.ndarray,
        mask: np.ndarray,
        *,
        marks: np.ndarray,
        broken: bool,
    ) -> None:
        """Take rows of one run: t (n,), values and mask (channels, n), marks (marks, n) bool.
        broken: they do not continue the last ones.
        """
        n, width = len(t), self.width
        if not n:
            return
        first, head = divmod(self.rows, width)
        tail = -(head + n) % width
        count = (head + n + tail) // width
        times = np.pad(t, (head, tail), mode="edge").reshape(count, width)

        def bucketed(array: np.ndarray, fill: float | bool) -> np.ndarray:
            padded = (
                np.pad(array, ((0, 0), (head, tail)), constant_values=fill)
                if head or tail
                else array
            )
            return padded.reshape(len(array), count, width)

        whole = bool(mask.all())
        low, low_at = _extreme(
            bucketed(values if whole else np.where(mask, values, np.inf), np.inf), times, np.argmin
        )
        high, high_at = _extreme(
            bucketed(values if whole else np.where(mask, values, -np.inf), -np.inf),
            times,
            np.argmax,
        )
        new = _Buckets(
            low,
            low_at,
            high,
            high_at,
            times[:, 0].copy(),
            times[:, -1].copy(),
            np.zeros(count, dtype=bool),
            bucketed(marks, False).sum(axis=2),
        )
        new.broken[0] = broken
        self.marks = np.zeros((len(marks), 0), dtype=np.int64) if self.marks is None else self.marks
        old = _Buckets(
            self.low,
            self.low_at,
            self.high,
            self.high_at,
            self.begin,
            self.end,
            self.broken,
            self.marks,
        )
        if first < len(self.begin):  # the last bucket was not full
            old, new = old.part(slice(0, -1)), new.joined_first(old.part(slice(-1, None)))
        self._keep(old.then(new))
        self.rows += n
        while len(self.begin) > self._limit:
            self._keep(
                _Buckets(
                    self.low,
                    self.low_at,
                    self.high,
                    self.high_at,
                    self.begin,
                    self.end,
                    self.broken,
                    self.marks,
                ).paired()
            )
            self.width *= 2

    def _keep(self, buckets: _Buckets) -> None:
        self.low, self.low_at, self.high, self.high_at = (
            buckets.low,
            buckets.low_at,
            buckets.high,
            buckets.high_at,
        )
        self.begin, self.end, self.broken, self.marks = (
            buckets.begin,
            buckets.end,
            buckets.broken,
            buckets.marks,
        )

    def line(self, channel: int) -> Series:
        """The series through the extremes of every bucket, in the order of their times; NaN between
        runs and where all rows are masked.
        """
        low, high, low_at, high_at = (
            array[channel] for array in (self.low, self.high, self.low_at, self.high_at)
        )
        early = low_at <= high_at
        empty = ~np.isfinite(low)
        t = np.stack(
            [
                self.begin,
                np.where(empty, self.begin, np.where(early, low_at, high_at)),
                np.where(early, high_at, low_at),
            ]
        )
        y = np.stack(
            [
                np.full(len(low), np.nan),
                np.where(empty, np.nan, np.where(early, low, high)),
                np.where(early, high, low),
            ]
        )
        keep = np.stack([self.broken, np.ones(len(low), dtype=bool), ~empty & (t[1] != t[2])])
        return Series(t.T[keep.T], y.T[keep.T])

    def marked(self, mark: int) -> tuple[tuple[float, float], ...]:
        """(begin, end) of the times in which most rows have the mark."""
        if self.marks is None:
            return ()
        on = np.concatenate([[False], 2 * self.marks[mark] > self._sizes(), [False]])
        edges = np.flatnonzero(on[1:] != on[:-1])
        return tuple(
            (float(self.begin[a]), float(self.end[b - 1]))
            for a, b in zip(edges[::2], edges[1::2], strict=True)
        )

    def _sizes(self) -> np.ndarray:
        sizes = np.full(len(self.begin), self.width)
        if len(sizes):
            sizes[-1] = self.rows - self.width * (len(sizes) - 1)
        return sizes


def _extreme(
    values: np.ndarray, times: np.ndarray, pick: np.ufunc
) -> tuple[np.ndarray, np.ndarray]:
    """(value, time) of the first extreme of every bucket; values (channels, buckets, width)."""
    if values.shape[2] == 1:
        return values[:, :, 0].copy(), np.broadcast_to(times[:, 0], values.shape[:2]).copy()
    where = pick(values, axis=2)
    return (
        np.take_along_axis(values, where[:, :, None], axis=2)[:, :, 0],
        times[np.arange(len(times)), where],
    )


@dataclass(frozen=True, eq=False)
class _Buckets:
    """Neighbouring buckets."""

    low: np.ndarray
    low_at: np.ndarray
    high: np.ndarray
    high_at: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    broken: np.ndarray
    marks: np.ndarray

    def part(self, which: slice) -> _Buckets:
        return _Buckets(*(array[..., which] for array in vars(self).values()))

    def then(self, other: _Buckets) -> _Buckets:
        return _Buckets(
            *(
                np.concatenate([a, b], axis=-1)
                for a, b in zip(vars(self).values(), vars(other).values(), strict=True)
            )
        )

    def joined_first(self, before: _Buckets) -> _Buckets:
        """With the one bucket `before`, which is the earlier part of the first."""
        return before._merged(self.part(slice(0, 1))).then(self.part(slice(1, None)))

    def paired(self) -> _Buckets:
        """Every two buckets as one; an odd last one stays alone."""
        whole = len(self.begin) // 2 * 2
        both = self.part(slice(0, whole, 2))._merged(self.part(slice(1, whole, 2)))
        return both.then(self.part(slice(whole, None)))

    def _merged(self, later: _Buckets) -> _Buckets:
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


class Worst:
    """For every joint, of all blocks of `length` rows the one with the largest mean squared error,
    at full rate.

    Blocks are counted from the beginning of a run; one counts if at least half of it is there and
    can be scored.
    """

    def __init__(self, joints: int, length: int) -> None:
        self.length = length
        self.score = np.full(joints, -1.0)  # mean squared error of the worst block so far
        self.rows: list[tuple[np.ndarray, np.ndarray] | None] = [
            None
        ] * joints  # t (k,), values (k, series)
        self._t, self._values, self._mask = (
            np.zeros(0),
            np.zeros((0, 0, joints)),
            np.zeros((0, joints), dtype=bool),
        )

    def add(self, t: np.ndarray, values: np.ndarray, mask: np.ndarray, *, begins: bool) -> None:
        """Take rows of one run: t (n,), values (n, series, joints) with measured and predicted
        first, mask (n, joints).
        """
        if begins:
            self.close()
        if len(self._t):
            t, values, mask = (
                np.concatenate(pair)
                for pair in ((self._t, t), (self._values, values), (self._mask, mask))
            )
        whole = len(t) // self.length * self.length
        for at in range(0, whole, self.length):
            block = slice(at, at + self.length)
            self._judge(t[block], values[block], mask[block])
        self._t, self._values, self._mask = (
            t[whole:].copy(),
            values[whole:].copy(),
            mask[whole:].copy(),
        )

    def close(self) -> None:
        """The run is over; what is left of it counts if it is half a block."""
        if 2 * len(self._t) >= self.length:
            self._judge(self._t, self._values, self._mask)
        self._t, self._values, self._mask = self._t[:0], self._values[:0], self._mask[:0]

    def _judge(self, t: np.ndarray, values: np.ndarray, mask: np.ndarray) -> None:
        count = mask.sum(axis=0)
        error = np.sum((values[:, 0] - values[:, 1]) ** 2, axis=0, where=mask) / np.maximum(
            count, 1
        )
        for j in np.flatnonzero((2 * count >= self.length) & (error > self.score)):
            self.score[j] = error[j]
            self.rows[j] = t.copy(), np.where(mask[:, None, j], values[:, :, j], np.nan)
