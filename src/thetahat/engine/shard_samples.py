"""The samples of one shard: its rows and their halo laid on the run's grid, prepared as one pass
would, and the halo taken off again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from thetahat.data.prepare import Settings, prepare_batches
from thetahat.data.reading import command_map
from thetahat.data.reference_motion import ReferenceMotion
from thetahat.data.samples import Samples
from thetahat.data.timestamps import TURN
from thetahat.data.types import Chunk, Mask, Run, Source
from thetahat.engine.shards import Piece, Shard, reach
from thetahat.errors import MalformedInput, UsageError
from thetahat.model.robot import Robot

BORDER = 1e-3  # of a period: a stamp this close behind a grid row is that row's
STARTED = 1e-6  # of a period: likewise where the presented rows begin


@dataclass(frozen=True, eq=False)
class _Presented:
    """A piece as `prepare_batches` sees it: its file's rows, and which rows of the grid are the
    shard's own.
    """

    piece: Piece
    low: int  # rows of the file that are read
    high: int
    first_row: int  # of the presented log
    offset: int  # k of the grid row that the presented stamps count from
    own: tuple[float, float]  # first and stop row of the grid, counted from `offset`


@dataclass(frozen=True, eq=False)
class ShardLog:
    """A shard as a log of its own: every piece a run, stamps counted from a row of the
    run's grid.
    """

    shard: Shard
    robot: Robot
    presented: tuple[_Presented, ...]
    values: np.ndarray | None  # the rows that were read ahead, None: they stream by

    @property
    def rows(self) -> int:
        """All that are presented."""
        return sum(each.high - each.low for each in self.presented)

    @property
    def runs(self) -> tuple[Run, ...]:
        """One for every piece."""
        return tuple(
            Run("", n, each.first_row, 0.0, _end(each.piece.period, n), each.piece.period, 0.0)
            for each in self.presented
            for n in [each.high - each.low]
        )

    @property
    def masks(self) -> tuple[Mask, ...]:
        """Of the presented rows."""
        out = []
        for each in self.presented:
            for mask in self.shard.masks:
                first, stop = max(mask.first_row, each.low), min(mask.stop_row, each.high)
                if first < stop:
                    shift = each.first_row - each.low
                    out.append(Mask(mask.joint, first + shift, stop + shift, mask.reason))
        return tuple(out)

    joint_names = property(lambda self: self.robot.joint_names)
    locked = property(lambda self: self.shard.locked)
    has_dq = property(lambda self: self.shard.derivatives.has_dq)
    has_ddq = property(lambda self: self.shard.derivatives.has_ddq)
    differentiated = property(lambda self: self.shard.derivatives.differentiated)
    has_tau = property(lambda self: self.shard.file.columns.has("tau"))
    sources = property(
        lambda self: (
            Source(
                self.shard.item.given,
                self.shard.digest,
                sum(state.size for state in self.shard.file.states),
            ),
        )
    )

    def read(self) -> list[Chunk]:
        """Every piece."""
        return list(self.chunks())

    def chunks(self, rows: int = 0) -> Iterator[Chunk]:
        """The pieces in order, in chunks as they are read."""
        del rows
        if self.values is not None:
            low = self.presented[0].low
            for run, each in enumerate(self.presented):
                yield self._chunk(run, each.low, self.values[each.low - low : each.high - low])
            return
        row, run = self.presented[0].low, 0
        for values in self.shard.file.read(row, self.presented[-1].high):
            while run < len(self.presented):
                each = self.presented[run]
                low, high = max(each.low, row), min(each.high, row + len(values))
                if low < high:
                    yield self._chunk(run, low, values[low - row : high - row])
                if each.high > row + len(values):
                    break
                run += 1
            row += len(values)

    def _chunk(self, run: int, row: int, values: np.ndarray) -> Chunk:
        each = self.presented[run]
        piece = each.piece
        arrays = self.shard.file.columns.split(values, self.robot)
        t, q = arrays["t"], arrays["q"]
        assert t is not None
        assert q is not None
        t = (t - piece.start) - each.offset * piece.period
        if row == each.low and each.offset:
            # the grid begins at a row of the run's own grid; this one row, deep in the halo, gives
            # its stamp for it
            t[0] = 0.0
        _unwrap(q, self.shard, piece, row)
        first = each.first_row + row - each.low
        rates = arrays["dq"], arrays["ddq"], arrays["tau"]
        return Chunk(t, q, *rates, run, first, arrays["contact"])


def samples(
    shard: Shard,
    robot: Robot,
    settings: Settings,
    *,
    transform: Callable[[Iterator[Samples]], Iterator[Samples]] = iter,
    timed: bool = False,
    commanded: bool = False,
) -> Iterator[Samples]:
    """Yield the shard's own samples, batch by batch.

    transform: of the stream before the halo is taken off, as neighbours matter to it too.
    timed: with the times and runs of the log; else times count from somewhere in a run, and runs
        from the shard's first.
    commanded: with the commanded motion as instruments.
    """
    shard = replace(shard, file=replace(shard.file))  # opened for this pass alone
    log = _presented(shard, robot, settings)
    batches = prepare_batches(log, robot, settings=settings)
    if commanded:
        reference = ReferenceMotion("", _command(shard, robot, settings), robot, same_rows=True)
        batches = reference.attached(batches, settings, None)
    for part in transform(batches):
        each = log.presented[int(part.run[0])]  # type: ignore[index]
        period = each.piece.period
        if part.guard > shard.halo * period * (1.0 + 1e-9):
            raise UsageError(
                f"a filter of {settings.cutoff} Hz reaches further than the {shard.halo} rows"
                " around a shard; this is a bug of thetahat"
            )
        k = np.rint(part.t / period)  # type: ignore[operator]
        low, high = (int(np.searchsorted(k, border)) for border in each.own)
        if low >= high:
            continue
        own = part if high - low == len(k) else part.subset(slice(low, high))
        if timed:
            k = each.offset + np.rint(own.t / period)  # type: ignore[operator]
            own = replace(
                own, t=each.piece.start + period * k, run=np.full(len(own), each.piece.run)
            )
        yield own


def _command(shard: Shard, robot: Robot, settings: Settings) -> ShardLog:
    """The commanded positions of a shard's rows."""
    file = shard.file
    columns = command_map(file.columns, robot, file.reading)
    if columns is None:
        raise MalformedInput(f"{shard.name} has no commanded positions; name them cmd.<joint>")
    return _presented(
        replace(shard, file=replace(file, columns=columns), wraps={}), robot, settings
    )


def _presented(shard: Shard, robot: Robot, settings: Settings) -> ShardLog:
    """The shard with as much of its neighbours as its filters need."""
    pieces = shard.pieces
    if pieces[0].at_begin and pieces[-1].at_end:
        whole = _laid([(piece, piece.first, piece.stop, 0, (0.0, math.inf)) for piece in pieces])
        return ShardLog(shard, robot, whole, None)
    halo = shard.halo
    while True:
        low, high = (
            max(pieces[0].begin, pieces[0].first - halo),
            min(pieces[-1].end, pieces[-1].stop + halo),
        )
        values = np.concatenate(list(shard.file.read(low, high)))
        t = shard.file.columns.seconds(values)
        short = _short(pieces[0], t[0], t[pieces[0].first - low], low, settings, left=True)
        short |= _short(
            pieces[-1], t[min(pieces[-1].stop, high - 1) - low], t[-1], high, settings, left=False
        )
        if not short:
            break
        halo *= 2  # stamps lie closer together here than in the mean
    places = []
    for piece in pieces:
        begin, end = max(piece.begin, low), min(piece.end, high)
        places.append(_place(piece, t[begin - low : end - low], begin, settings))
    return ShardLog(shard, robot, _laid(places), values[places[0][1] - low :])


def _short(
    piece: Piece, earlier: float, later: float, row: int, settings: Settings, *, left: bool
) -> bool:
    """Whether the halo on this side ends before what a filtered row can depend on, though the run
    goes on.
    """
    done = piece.at_begin or row == piece.begin if left else piece.at_end or row == piece.end
    return not done and later - earlier < reach(settings, piece.period) * piece.period


def _place(
    piece: Piece, t: np.ndarray, row: int, settings: Settings
) -> tuple[Piece, int, int, int, tuple[float, float]]:
    """(piece, first row read, stop row read, grid row they count from, own grid rows) of stamps t
    from `row` on.
    """
    since = t - piece.start
    offset, skip = 0, 0
    if not piece.at_begin:
        factor = settings.factor(piece.period)
        offset = factor * math.ceil(since[0] / piece.period / factor)
        skip = int(np.searchsorted(since - offset * piece.period, -STARTED * piece.period))
    first = 0 if piece.at_begin else _border(since[piece.first - row], piece.period)
    stop = math.inf if piece.at_end else _border(since[piece.stop - row], piece.period)
    return piece, row + skip, row + len(t), offset, (first - offset, stop - offset)


def _border(since: float, period: float) -> int:
    """The first grid row at or behind a stamp."""
    return math.ceil(since / period - BORDER)


def _laid(places: list[tuple[Piece, int, int, int, tuple[float, float]]]) -> tuple[_Presented, ...]:
    """Pieces one after another."""
    out, row = [], 0
    for piece, low, high, offset, own in places:
        out.append(_Presented(piece, low, high, row, offset, own))
        row += high - low
    return tuple(out)


def _end(period: float, rows: int) -> float:
    """The stop of a run of so many rows from 0 whose mean period is `period` to the last bit."""
    stop = period * (rows - 1)
    for candidate in (stop, math.nextafter(stop, math.inf), math.nextafter(stop, 0.0)):
        if candidate / (rows - 1) == period:
            return candidate
    return stop


def _unwrap(q: np.ndarray, shard: Shard, piece: Piece, row: int) -> None:
    """Take off the whole turns since the run's start, in place."""
    before = dict(piece.turns)
    for at, (rows, turns) in shard.wraps.items():
        inside = (rows > piece.begin) & (rows < piece.end)
        total = np.concatenate(([0], np.cumsum(turns[inside])))
        q[:, at] -= TURN * (
            before.get(at, 0)
            + total[np.searchsorted(rows[inside], np.arange(row, row + len(q)), side="right")]
        )
