"""What the loop leaves for the page: rings that it writes and a publisher reads, without a lock and
without ever waiting.

One thread writes and one reads. A counter is raised after a row is whole, so the reader sees whole
rows only; a reader that comes too late has lost the rows that were written over, which costs the
picture some points and the loop nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thetahat.model.robot import Robot

DRAWN = 50.0  # [Hz] of the rows: signals are drawn after a low-pass of 10 Hz
ROWS = 1024  # of the ring: 20 s
TIMES = 4096  # cycles whose processor times are kept
IDENTIFIED, FITTED, SETTLED = (
    1,
    2,
    4,
)  # flags of a row: command of an identified model; its sample was fitted; the filter had settled


@dataclass(frozen=True, eq=False)
class Block:
    """Rows that the loop wrote, in order."""

    t: np.ndarray  # (n,) [s]
    q: np.ndarray  # (n, nq) measured
    error: np.ndarray  # (n, nv) wanted − true position; NaN where nothing is wanted
    filtered: tuple[
        np.ndarray, np.ndarray, np.ndarray, np.ndarray
    ]  # q, dq, ddq, tau after the identifier's filter
    flags: np.ndarray  # (n,)

    def __len__(self) -> int:
        return len(self.t)

    @property
    def settled(self) -> np.ndarray:
        """(n,) whether the filtered values mean something."""
        return (self.flags & SETTLED) != 0

    @property
    def identified(self) -> np.ndarray:
        """(n,) whether the controller ran on an identified model."""
        return (self.flags & IDENTIFIED) != 0


class Tap:
    """Rings of rows and of cycle times. The loop calls `time` every cycle and `row` every `stride`
    cycles.
    """

    def __init__(self, robot: Robot, rate: float) -> None:
        self.stride = max(1, round(rate / DRAWN))
        self._t, self._flags = np.empty(ROWS), np.zeros(ROWS, dtype=np.uint8)
        self._q, self._error = np.empty((ROWS, robot.nq)), np.full((ROWS, robot.nv), np.nan)
        self._filtered = tuple(
            np.zeros((ROWS, width)) for width in (robot.nq, robot.nv, robot.nv, robot.nv)
        )
        self.written = self._read = 0
        self.cycles, self._ns = 0, np.zeros(TIMES, dtype=np.int64)

    # -- the loop's side ---------------------------------------------------------------------------

    def time(self, ns: int) -> None:
        """Note the processor time of a cycle [ns]."""
        self._ns[self.cycles % TIMES] = ns
        self.cycles += 1

    def row(
        self,
        t: float,
        q: np.ndarray,
        error: np.ndarray | None,
        filtered: tuple[np.ndarray, ...] | None,
        flags: int,
    ) -> None:
        """Leave a row."""
        k = self.written % ROWS
        self._t[k], self._q[k], self._error[k] = t, q, np.nan if error is None else error
        if filtered is not None:
            for ring, value in zip(self._filtered, filtered, strict=True):
                ring[k] = value[0]
            flags |= SETTLED
        self._flags[k] = flags
        self.written += 1

    # -- the publisher's side ----------------------------------------------------------------------

    def read(self) -> tuple[Block, int]:
        """(rows since the last call, how many were lost)."""
        end = self.written
        begin = max(self._read, end - ROWS // 2)  # the other half may be written meanwhile
        at = np.arange(begin, end) % ROWS
        arrays = [
            ring[at] for ring in (self._t, self._q, self._error, self._flags, *self._filtered)
        ]
        # Rows that were written over while they were read, or are being written over now, are not
        # whole.
        torn = min(max(self.written + 1 - ROWS - begin, 0), end - begin)
        t, q, error, flags, *filtered = (array[torn:] for array in arrays)
        lost, self._read = begin + torn - self._read, end
        return Block(t, q, error, tuple(filtered), flags), lost

    def quantiles(self) -> tuple[float, float] | None:
        """Median and 99th percentile of the last cycles' processor times [µs]; None before there
        are some.
        """
        n = min(self.cycles, TIMES)
        if n < 20:
            return None
        p50, p99 = np.percentile(self._ns[:n], (50, 99))
        return float(p50) / 1e3, float(p99) / 1e3


class Recent:
    """The last rows after the filter that were in no fit, for a report: a ring."""

    def __init__(self, robot: Robot, rows: int) -> None:
        widths = {"t": 1, "q": robot.nq, "dq": robot.nv, "ddq": robot.nv, "tau": robot.nv}
        self._rings = {name: np.full((rows, width), np.nan) for name, width in widths.items()}
        self._rows, self._count = rows, 0

    def add(self, block: Block) -> None:
        """Take those that count."""
        good = np.flatnonzero(block.settled & ((block.flags & FITTED) == 0))[-self._rows :]
        at = (self._count + np.arange(len(good))) % self._rows
        for name, values in zip(self._rings, (block.t[:, None], *block.filtered), strict=True):
            self._rings[name][at] = values[good]
        self._count += len(good)

    def arrays(self) -> dict[str, np.ndarray]:
        """t (n,), q, dq, ddq, tau (n, ·), in the order of time, without rows that are not later
        than the one before.
        """
        n = min(self._count, self._rows)
        at = (self._count - n + np.arange(n)) % self._rows
        out = {name: ring[at] for name, ring in self._rings.items()}
        t = out.pop("t")[:, 0]
        later = np.concatenate([[True], np.diff(t) > 0.0])[:n]
        return {"t": t[later], **{name: rows[later] for name, rows in out.items()}}
