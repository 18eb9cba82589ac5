"""Uniform rows of a log: spikes removed, uneven time stamps resampled, each run by itself, in
bounded memory.

    chunks of the log ─► spikes ─► one grid per run ─► windows with a halo (for the filters)

Every stage keeps only the rows that the next ones need, and none depends on how the log was cut
into chunks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from thetahat.data.filters import KNOTS, extend, resample
from thetahat.data.samples import LOCKED, OUTLIER, reason_code
from thetahat.data.types import Chunk, LogLike, Run
from thetahat.data.velocities import continuous_quaternions
from thetahat.errors import MalformedInput, NotIdentifiable, UsageError
from thetahat.model.robot import Robot

SHORTEST_RUN = 8  # rows; a shorter run is too short to be differentiated and is left out
ON_GRID = 1e-9  # of a period: time stamps this close to the grid are not interpolated
PIECE = 8192  # rows processed together: they fit into the processor's cache
BURST = 0.2  # of a period: rows closer than this are averaged, or interpolation would overshoot
HALF = 3  # rows on each side in the running median for spikes


@dataclass(frozen=True)
class Layout:
    """Where q, dq, ddq and tau stand among the channels of a stream."""

    nq: int
    nv: int
    has_dq: bool
    has_ddq: bool
    # (position in q, in dq) of joints whose logged dq is not used
    differentiated: tuple[tuple[int, int], ...] = ()

    @staticmethod
    def of(log: LogLike, robot: Robot) -> Layout:
        """Return the layout of a log, which must have torques."""
        if not log.has_tau:
            raise MalformedInput(
                "the log has no torque columns; name them tau.<joint>, or map yours with"
                " columns='tau=…'"
            )
        unused = set(getattr(log, "differentiated", ())) if log.has_dq else set()
        pairs = tuple(
            (robot.tree.q_index[node.name], robot.tree.v_index[node.name])
            for node in robot.tree.independent
            if robot.tree.v_index[node.name] in unused and node.kind.nv == 1
        )
        return Layout(robot.nq, robot.nv, log.has_dq, log.has_ddq, pairs)

    @property
    def q(self) -> slice:
        """Return the channels of q."""
        return slice(0, self.nq)

    @property
    def dq(self) -> slice:
        """Return the channels of dq (none if the log has none)."""
        return slice(self.nq, self.nq + self.nv * self.has_dq)

    @property
    def ddq(self) -> slice:
        """Return the channels of ddq (none if the log has none)."""
        return slice(self.dq.stop, self.dq.stop + self.nv * self.has_ddq)

    @property
    def tau(self) -> slice:
        """Return the channels of tau."""
        return slice(self.ddq.stop, self.ddq.stop + self.nv)

    @property
    def channels(self) -> int:
        """Return the number of channels."""
        return self.nq + self.nv * (1 + self.has_dq + self.has_ddq)


@dataclass(frozen=True, eq=False)
class Block:
    """Consecutive uniform rows of one run."""

    run: int
    start: float  # [s] time of the run's row 0
    period: float  # [s]
    first: int  # position of the first row in the run
    x: np.ndarray  # (rows, channels)
    codes: np.ndarray  # (rows, nv + feet) reasons known before filtering, then feet that are down
    last: bool  # whether the run ends here


def mean_period(run: Run) -> float:
    """Return the period of a run's grid, which has as many rows as the run [s]."""
    return (run.stop - run.start) / (run.rows - 1)


def uniform_blocks(
    log: LogLike,
    robot: Robot,
    *,
    spans: Sequence[tuple[int, int]],
    chunks: Iterable[Chunk] | None = None,
    spikes: np.ndarray | None = None,
) -> Iterator[Block]:
    """Return the rows of `spans` (`run_spans`), each on one uniform grid; `spikes` are thresholds
    per channel.
    """
    layout = Layout.of(log, robot)
    reasons = _RowReasons(log, robot)
    state: tuple[_Despiker, _Resampler] | None = None
    before: np.ndarray | None = None  # the configuration before this chunk
    for chunk, last in _pieces(log.chunks() if chunks is None else chunks, spans):
        run = log.runs[chunk.run]
        x = _channels(chunk, layout)
        for _, v in layout.differentiated:
            x[:, layout.dq.start + v] = 0.0  # its spikes are nobody's
        if state is None:
            state = (
                _Despiker(layout, spikes),
                _Resampler(run=chunk.run, start=float(chunk.t[0]), period=mean_period(run)),
            )
            before = None
        x[:, layout.q] = continuous_quaternions(robot, x[:, layout.q], before)
        before = x[-1, layout.q]
        despiker, resampler = state
        block = resampler.push(
            *despiker.push(chunk.t, x, reasons.codes(chunk), last=last), last=last
        )
        if last:
            state = None
        if len(block.x) or last:
            yield block


def run_spans(log: LogLike, span: tuple[int, int] | None = None) -> list[tuple[int, int]]:
    """Return (first, stop) row of every run, or of its part inside `span`, without short ones."""
    first, stop = (0, log.rows) if span is None else span
    if not 0 <= first < stop <= log.rows:
        raise UsageError(
            f"span is ({first}, {stop}); give first and stop row inside 0 … {log.rows}"
        )
    cut = [(max(first, run.first_row), min(stop, run.first_row + run.rows)) for run in log.runs]
    spans = [(begin, end) for begin, end in cut if end - begin >= SHORTEST_RUN]
    if not spans:
        raise NotIdentifiable(
            f"no run of the log has {SHORTEST_RUN} rows; record the robot while it moves, without"
            " pauses in the log"
        )
    return spans


def _pieces(
    chunks: Iterable[Chunk], spans: Sequence[tuple[int, int]]
) -> Iterator[tuple[Chunk, bool]]:
    """Return (piece of a chunk, whether it is the last of its span) for rising spans, each inside
    one run.
    """
    at = 0
    for chunk in chunks:
        while at < len(spans) and spans[at][0] < chunk.row + len(chunk.t):
            begin, end = spans[at]
            low, high = max(begin - chunk.row, 0), min(end - chunk.row, len(chunk.t))
            for row in range(low, high, PIECE):
                upto = min(row + PIECE, high)
                yield chunk.part(row, upto), chunk.row + upto == end
            if end > chunk.row + len(chunk.t):
                break
            at += 1


def _channels(chunk: Chunk, layout: Layout) -> np.ndarray:
    """Return (rows, channels), checked: a log may be made by hand."""
    rows, parts = len(chunk.t), []
    wanted = (
        ("q", layout.nq, True),
        ("dq", layout.nv, layout.has_dq),
        ("ddq", layout.nv, layout.has_ddq),
        ("tau", layout.nv, True),
    )
    for name, width, needed in wanted:
        array = getattr(chunk, name) if needed else np.zeros((rows, 0))
        shape = None if array is None else np.shape(array)
        if shape != (rows, width if needed else 0):
            raise UsageError(
                f"the log's {name} has shape {shape}; the robot needs ({rows}, {width})"
            )
        parts.append(array)
    try:
        x = np.concatenate(parts, axis=1, dtype=np.float64)
    except (TypeError, ValueError):
        raise MalformedInput(
            f"rows {chunk.row} to {chunk.row + rows - 1} of the log hold something that is not a"
            " number; give arrays of numbers"
        ) from None
    with np.errstate(over="ignore", invalid="ignore"):
        quick = math.isfinite(float(x.sum()))
    if not quick and not np.all(np.isfinite(x)):
        row, column = np.argwhere(~np.isfinite(x))[0]
        raise MalformedInput(
            f"row {chunk.row + row} of the log holds {x[row, column]} in channel {column}; remove"
            " the row or correct it"
        )
    return x


class _RowReasons:
    """Reasons per row and degree of freedom by the log's masks and locked joints."""

    def __init__(self, log: LogLike, robot: Robot) -> None:
        self.nv = robot.nv
        self.masks = sorted(
            ((m.first_row, m.stop_row, m.joint, reason_code(m.reason)) for m in log.masks),
            key=lambda m: m[0],
        )
        locked = set(getattr(log, "locked", ()))
        self.locked = [
            i
            for i, name in enumerate(robot.velocity_names)
            if name in locked or name.rsplit(".", 1)[0] in locked
        ]

    def codes(self, chunk: Chunk) -> np.ndarray:
        """Return codes (rows, nv + feet) of a chunk: reasons, and 1 where a foot is down."""
        row, count = chunk.row, len(chunk.t)
        out = np.zeros((count, self.nv), dtype=np.uint8)
        for first, stop, joint, code in self.masks:
            if first >= row + count:
                break
            if stop > row:
                out[max(first - row, 0) : stop - row, joint] = code
        out[:, self.locked] = LOCKED
        if chunk.contact is None:
            return out
        return np.concatenate([out, (chunk.contact > 0.5).astype(np.uint8)], axis=1)


# -- spikes ----------------------------------------------------------------------------------------


def spike_thresholds(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (10 standard deviations of x around its running median, its range from the 1st to the
    99th percentile), per channel.

    The deviation is taken from the 90th percentile, since quantised signals have a median deviation
    of zero.
    """
    around = np.lib.stride_tricks.sliding_window_view(x, 2 * HALF + 1, axis=0)
    rest = np.abs(x[HALF:-HALF] - np.median(around, axis=-1))
    low, high = np.quantile(x, (0.01, 0.99), axis=0)
    return 10.0 * np.quantile(rest, 0.9, axis=0) / 1.645, high - low


def despike(x: np.ndarray, thresholds: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Replace values of x (rows, channels) further than a threshold from the median of the 7
    around them by it; return the result and where.

    Only rows near a jump of half the threshold are examined, so that clean data cost one
    difference.
    """
    jump = np.abs(np.diff(x, axis=0)) > 0.5 * thresholds
    if not jump.any():
        return x, None
    out, hit = x.copy(), np.zeros(x.shape, dtype=bool)
    for channel in np.flatnonzero(jump.any(axis=0)):
        at = np.flatnonzero(jump[:, channel])
        rows = np.unique(np.clip(at[:, None] + np.arange(-HALF, HALF + 2), 0, len(x) - 1))
        around = np.clip(rows[:, None] + np.arange(-HALF, HALF + 1), 0, len(x) - 1)
        middle = np.median(x[around, channel], axis=1)
        bad = np.abs(x[rows, channel] - middle) > thresholds[channel]
        out[rows[bad], channel] = middle[bad]
        hit[rows[bad], channel] = True
    return out, hit


class _Despiker:
    """`despike` for a stream: the last rows wait until their neighbours are known."""

    def __init__(self, layout: Layout, thresholds: np.ndarray | None) -> None:
        self.layout, self.thresholds = layout, thresholds
        self.held: tuple[np.ndarray, ...] | None = None
        self.done = 0  # held rows that were returned already and serve as neighbours only

    def push(
        self, t: np.ndarray, x: np.ndarray, codes: np.ndarray, *, last: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Add rows, and return those that are ready."""
        if self.thresholds is None:
            return t, x, codes
        if self.held is not None:
            t, x, codes = (
                np.concatenate(pair) for pair in zip(self.held, (t, x, codes), strict=True)
            )
        stop = len(t) if last else max(len(t) - HALF - 1, self.done)
        clean, hit = despike(x, self.thresholds)
        if hit is not None:
            motion = hit[:, : self.layout.tau.start].any(axis=1, keepdims=True)
            marked = hit[:, self.layout.tau] | motion  # motion affects all torques
            reasons = codes[:, : marked.shape[1]]
            reasons = np.where(marked & (reasons == 0), np.uint8(OUTLIER), reasons)
            codes = np.concatenate([reasons, codes[:, marked.shape[1] :]], axis=1)
        ready = slice(self.done, stop)
        keep = max(stop - 2 * HALF - 1, 0)
        self.held, self.done = (t[keep:], x[keep:], codes[keep:]), stop - keep
        return t[ready], clean[ready], codes[ready]


# -- uneven time stamps ----------------------------------------------------------------------------


class _Resampler:
    """One run on its grid start + k·period, interpolated unless its rows lie on it."""

    def __init__(self, *, run: int, start: float, period: float) -> None:
        if not period > 0.0:
            raise MalformedInput(
                f"run {run} of the log does not advance in time; check its time stamps"
            )
        self.run, self.start, self.period = run, start, period
        self.next = 0  # next grid row
        self.rows: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
        # the last rows, which may be one burst with those to come
        self.loose: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None

    def push(self, t: np.ndarray, x: np.ndarray, codes: np.ndarray, *, last: bool) -> Block:
        """Add rows, and return the grid rows that can be computed now."""
        t, x, codes = self._merged(t - self.start, x, codes, last=last)
        if self.rows is not None:
            t, x, codes = (
                np.concatenate(pair) for pair in zip(self.rows, (t, x, codes), strict=True)
            )
        known_until = len(t) - 1 if last else len(t) - 1 - KNOTS
        stop = (
            math.floor(t[known_until] / self.period + (1e-6 if last else 0.0)) + 1
            if known_until >= 0
            else 0
        )
        first, stop = self.next, max(stop, self.next)
        grid = np.minimum(self.period * np.arange(first, stop), t[-1]) if len(t) else np.zeros(0)
        values, marks = self._at(grid, t, x, codes) if len(grid) else (x[:0], codes[:0])
        keep = max(int(np.searchsorted(t, self.period * stop)) - KNOTS - 2, 0)
        self.rows, self.next = (t[keep:], x[keep:], codes[keep:]), stop
        return Block(self.run, self.start, self.period, first, values, marks, last)

    def _at(
        self, grid: np.ndarray, t: np.ndarray, x: np.ndarray, codes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return values and reasons at the grid's times; a row's reason applies to the grid rows
        beside it, too.
        """
        right = np.clip(np.searchsorted(t, grid), 1, len(t) - 1)
        near = right - (grid - t[right - 1] < t[right] - grid)
        even = np.max(np.abs(t[near] - grid)) <= ON_GRID * self.period
        marks = codes[near]
        if codes.any():
            beside = (np.clip(near - 1, 0, None), np.clip(near + 1, None, len(t) - 1))
            marks = np.maximum.reduce([marks, codes[beside[0]], codes[beside[1]]])
        return (x[near] if even else resample(t, x, grid, period=self.period)), marks

    def _merged(
        self, t: np.ndarray, x: np.ndarray, codes: np.ndarray, *, last: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Average rows within a fraction of a period, at their mean time."""
        if self.loose is not None:
            t, x, codes = (
                np.concatenate(pair) for pair in zip(self.loose, (t, x, codes), strict=True)
            )
        close = np.diff(t) < BURST * self.period
        if not last and len(t):
            apart = np.flatnonzero(~close)
            whole = int(apart[-1]) + 1 if len(apart) else 0
            self.loose = t[whole:], x[whole:], codes[whole:]
            t, x, codes, close = t[:whole], x[:whole], codes[:whole], close[: max(whole - 1, 0)]
        if not close.any():
            return t, x, codes
        begins = np.flatnonzero(np.concatenate([[True], ~close]))
        sizes = np.diff(np.append(begins, len(t)))
        mean_x = np.add.reduceat(x, begins, axis=0) / sizes[:, None]
        return (
            np.add.reduceat(t, begins) / sizes,
            mean_x,
            np.maximum.reduceat(codes, begins, axis=0),
        )


# -- halo ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Window:
    """Output rows of a run with the rows around them that a kernel needs."""

    first: int  # output row
    count: int  # of output rows
    x: np.ndarray  # (channels, past + count + future)
    codes: np.ndarray  # (past + count + future, nv + feet) reasons, then feet that are down


class Halo:
    """Cut the uniform rows of one run into stretches of output rows, each with the rows around it
    that a kernel needs.

    Before the first and after the last row a run is extended (`filters.extend`), so that every
    output has its full kernel.
    """

    def __init__(self, *, past: int, future: int, rows: int) -> None:
        self.past, self.future, self.rows = past, future, rows
        # (channels, ·) and reasons, extended to the left once started
        self.waiting: list[tuple[np.ndarray, np.ndarray]] = []
        self.start = 0  # run position of the first waiting row
        self.length = 0  # rows waiting
        self.next = 0  # run position of the next output
        self.started = False

    def push(self, block: Block) -> Iterator[Window]:
        """Add rows, and return the windows that are complete."""
        self.waiting.append((np.ascontiguousarray(block.x.T), block.codes))
        self.length += len(block.x)
        missing = (
            self.future + self.rows
            if self.started
            else max(self.past + self.future + 1, self.future + self.rows)
        )
        if not self.length or (not block.last and self.start + self.length - self.next < missing):
            return
        buffer, codes = (
            np.concatenate(parts, axis=axis)
            for parts, axis in zip(zip(*self.waiting, strict=True), (1, 0), strict=True)
        )
        buffer, codes = self._extended(
            buffer,
            codes,
            left=0 if self.started else self.past,
            right=self.future if block.last else 0,
        )
        ready = self.start + buffer.shape[1] - self.future - self.next
        while ready >= self.rows or (block.last and ready > 0):
            count = min(self.rows, ready)
            low = self.next - self.past - self.start
            stretch = slice(low, low + self.past + count + self.future)
            yield Window(self.next, count, buffer[:, stretch], codes[stretch])
            self.next += count
            ready -= count
        drop = max(self.next - self.past - 1 - self.start, 0)
        self.waiting, self.start, self.length = (
            [(buffer[:, drop:], codes[drop:])],
            self.start + drop,
            buffer.shape[1] - drop,
        )

    def _extended(
        self, buffer: np.ndarray, codes: np.ndarray, *, left: int, right: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Extend the run to the left once, to the right at its end; for a causal filter by its end
        values, which must not see its future mirrored.
        """
        self.started = True
        if not left and not right:
            return buffer, codes
        self.start -= left
        return extend(buffer, left, right, mirror=self.future > 0), np.pad(
            codes, ((left, right), (0, 0))
        )
