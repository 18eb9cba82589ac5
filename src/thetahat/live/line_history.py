"""Lines over time in memory that does not grow: the last rows as they are, older ones as the least
and the largest value of their buckets.

A line is drawn from both, so it is up to date to the last row, and a peak a day ago is still there.
Buckets double in width whenever there are too many of them.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from thetahat.report.traces import Series

BUCKETS, TAIL = 400, 300  # at most 2·400 + 2·300 points per line


class History:
    """Rows of channels. `add` them as they come, `fresh` gives those not handed out yet, `line` all
    of a channel, decimated.

    tail: rows that stay as they are. buckets: of older rows; 0: older rows are dropped (a rolling
    window). `generation` counts how often old rows were folded: a line that was extended row by row
    has to be drawn anew then.
    """

    def __init__(self, channels: int, *, buckets: int = BUCKETS, tail: int = TAIL) -> None:
        self.channels, self.generation, self.width = channels, 0, 1
        self._limit, self._tail = buckets, tail
        self._t, self._rows = (
            np.full(2 * tail, np.nan),
            np.full((2 * tail, channels), np.nan),
        )  # all of it now, so that memory does not grow
        self._count = self._fresh = 0  # rows of the tail; those of them that were handed out
        # Least and largest value of every bucket, and when: (2, buckets, channels). The last bucket
        # may not be full yet.
        self._value, self._at = (
            np.full((2, buckets + 1, channels), np.nan),
            np.full((2, buckets + 1, channels), np.nan),
        )
        self._used, self._inside = 0, 0  # buckets; rows in the last one

    def __len__(self) -> int:
        """Points of a line at most."""
        return 2 * self._used + self._count

    def add(self, t: np.ndarray, rows: np.ndarray) -> None:
        """Take rows, t (n,) and values (n, channels); NaN is a gap."""
        for begin in range(0, len(t), self._tail):
            part = slice(begin, min(begin + self._tail, len(t)))
            n = part.stop - begin
            if self._count + n > 2 * self._tail:
                self._fold()
            self._t[self._count : self._count + n], self._rows[self._count : self._count + n] = (
                t[part],
                rows[part],
            )
            self._count += n

    def fresh(self) -> tuple[np.ndarray, np.ndarray]:
        """(t, rows) since the last call; folds old rows where there are many, so ask `generation`
        afterwards.
        """
        begin, self._fresh = self._fresh, self._count
        t, rows = self._t[begin : self._count].copy(), self._rows[begin : self._count].copy()
        if 4 * self._count >= 7 * self._tail:  # before there is no room left
            self._fold()
        return t, rows

    def line(self, channel: int) -> Series:
        """All that is known of a channel."""
        tail = slice(0, self._count)
        if not self._used:
            return Series(self._t[tail].copy(), self._rows[tail, channel].copy())
        value, at = self._value[:, : self._used, channel], self._at[:, : self._used, channel]
        order = np.argsort(at, axis=0, kind="stable")
        t, y = (
            np.take_along_axis(at, order, axis=0).T.ravel(),
            np.take_along_axis(value, order, axis=0).T.ravel(),
        )
        keep = np.ones(len(t), dtype=bool)
        keep[1::2] = t[1::2] != t[::2]  # a bucket of one row is one point
        return Series(
            np.concatenate([t[keep], self._t[tail]]),
            np.concatenate([y[keep], self._rows[tail, channel]]),
        )

    def clear(self) -> None:
        """Empty."""
        self._count = self._fresh = self._used = self._inside = 0
        self.width = 1
        self.generation += 1

    # -- older rows --------------------------------------------------------------------------------

    def _fold(self) -> None:
        """Move all but the last rows into buckets, or drop them."""
        old = self._count - self._tail
        if old <= 0:
            return
        self.generation += 1
        if self._limit:
            for t, row in zip(self._t[:old], self._rows[:old], strict=True):
                self._bucket(t, row)
        for array in (self._t, self._rows):
            array[: self._tail] = array[old : self._count].copy()
        self._count, self._fresh = self._tail, max(0, self._fresh - old)

    def _bucket(self, t: float, row: np.ndarray) -> None:
        if self._used and self._inside < self.width:
            k = self._used - 1
            for value, at, better in zip(self._value, self._at, (np.less, np.greater), strict=True):
                with np.errstate(invalid="ignore"):
                    new = better(row, value[k]) | (np.isnan(value[k]) & ~np.isnan(row))
                value[k, new], at[k, new] = row[new], t
            self._inside += 1
            return
        if self._used == self._limit:
            self._halve()
            self._bucket(t, row)
            return
        self._value[:, self._used], self._at[:, self._used] = row, t
        self._used, self._inside = self._used + 1, 1

    def _halve(self) -> None:
        """Every two buckets as one; an odd last one stays alone, half full."""
        pairs = self._used // 2
        odd = self._used % 2
        for k, pick in ((0, np.fmin), (1, np.fmax)):
            value, at = self._value[k], self._at[k]
            a, b = value[0 : 2 * pairs : 2], value[1 : 2 * pairs : 2]
            best = pick(a, b)
            first = (best == a) | np.isnan(best)
            at[:pairs] = np.where(first, at[0 : 2 * pairs : 2], at[1 : 2 * pairs : 2])
            value[:pairs] = best
            if odd:
                value[pairs], at[pairs] = value[2 * pairs].copy(), at[2 * pairs].copy()
        self._inside = self._inside if odd else self.width + self._inside
        self._used, self.width = pairs + odd, 2 * self.width


class Grounds:
    """Begin and end of the stretches in which something was so, the oldest neighbours joined where
    there are too many.
    """

    def __init__(self, most: int = 60) -> None:
        self._most, self._spans, self._open = most, [], False
        self.changes = 0

    def add(self, t: Iterable[float], flags: Iterable[bool]) -> None:
        """Take moments and whether it was so then."""
        for now, on in zip(t, flags, strict=True):
            if on and not self._open:
                self._spans.append([now, now])
                if (
                    len(self._spans) > self._most
                ):  # the two that are nearest to each other become one
                    k = min(
                        range(len(self._spans) - 1),
                        key=lambda k: self._spans[k + 1][0] - self._spans[k][1],
                    )
                    self._spans[k : k + 2] = [[self._spans[k][0], self._spans[k + 1][1]]]
            if self._open and self._spans:
                self._spans[-1][1] = now
            self.changes += on != self._open
            self._open = on

    @property
    def spans(self) -> list[tuple[float, float]]:
        """In the order of time."""
        return [(begin, end) for begin, end in self._spans]
