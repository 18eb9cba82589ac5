"""Shards: rows of one file that a worker prepares by itself, such that all of them together are
what one pass over the log yields.

One pass puts every run on a grid, start + k·period, and filters it there. A shard reads its own
rows and a halo of neighbours on either side, wider than anything a filtered row depends on; it is
laid on the same grid, and only the grid rows between the stamps of its own first row and of the
next shard's first are kept. Both neighbours find that border from the same stamp, so no row is lost
or taken twice. What is decided over the whole log (cut-off, standstill, masks, unwrapped turns)
comes with the shard.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np

from thetahat.data.filters import method_of
from thetahat.data.log import Log
from thetahat.data.prepare import CARRIED, Settings
from thetahat.data.resample import SHORTEST_RUN, mean_period
from thetahat.data.types import Mask
from thetahat.engine.multi_log import Entry, MultiLog, Span
from thetahat.engine.row_reader import EVERY, FileRows
from thetahat.engine.sources import Item
from thetahat.errors import ThetahatError

ROWS = 131_072  # of a shard: a fraction of a second's work, 20 MB of an arm's log
# a filtered row may depend on rows that are filtered themselves (the direction of a motion), so
# thrice a filter's reach
REACHES = 3
FAR = 16  # halos: rows further away do not concern a shard, whatever the stamps
# halos: where a run ends further away, or what is masked there, is not part of a shard's name, so
# that a log may grow behind it
NEAR = 4


@dataclass(frozen=True, eq=False)
class Piece:
    """Rows of a file inside one run."""

    first: int  # rows that are the shard's own
    stop: int
    begin: int  # rows it may look at: the run's, inside the span that is prepared
    end: int
    at_begin: bool  # whether nothing of the run comes before `begin`: its first row is an edge
    at_end: bool
    start: float  # [s] stamp of the grid's row 0
    period: float  # [s] of the grid
    run: int  # of the log
    turns: tuple[tuple[int, int], ...] = ()  # (position in q, whole turns taken off before `begin`)


@dataclass(frozen=True)
class Derivatives:
    """Which logged derivatives of a log are used."""

    has_dq: bool
    has_ddq: bool
    differentiated: tuple[int, ...]  # degrees of freedom whose logged dq is not used


@dataclass(frozen=True, eq=False)
class Shard:
    """What a worker needs to prepare some rows of one file."""

    file: FileRows
    digest: str  # of the file's content
    pieces: tuple[Piece, ...]
    masks: tuple[Mask, ...]  # rows of the file
    wraps: dict[int, tuple[np.ndarray, np.ndarray]]  # rows of the file
    locked: tuple[str, ...]
    halo: int  # rows
    derivatives: Derivatives

    @property
    def item(self) -> Item:
        """The file it is of."""
        return self.file.item

    @property
    def rows(self) -> int:
        """Its own rows."""
        return sum(piece.stop - piece.first for piece in self.pieces)

    @property
    def span(self) -> tuple[int, int]:
        """Its first and stop row in the file."""
        return self.pieces[0].first, self.pieces[-1].stop

    @property
    def name(self) -> str:
        """As messages call it."""
        return f"{self.item.name}, rows {self.span[0]} to {self.span[1] - 1}"

    @property
    def place(self) -> str:
        """As no other shard is called: messages name a file as its owner does, perhaps twice."""
        return f"{self.item.place}, rows {self.span[0]} to {self.span[1] - 1}"

    @property
    def content(self) -> tuple[object, ...]:
        """What its samples depend on beside robot and settings, in plain values."""
        near = NEAR * self.halo
        pieces = [
            (
                p.first,
                p.stop,
                max(p.begin, p.first - near),
                min(p.end, p.stop + near),
                p.at_begin,
                p.at_end,
                p.start,
                p.period,
            )
            for p in self.pieces
        ]
        low, high = pieces[0][2], pieces[-1][3]
        masks = [
            (mask.joint, max(mask.first_row, low), min(mask.stop_row, high), mask.reason)
            for mask in self.masks
        ]
        masks = sorted(mask for mask in masks if mask[1] < mask[2])
        return (
            self.digest,
            self.file.columns.place,
            self.file.columns.time,
            self.file.columns.conversion.scale,
            self.locked,
            self.derivatives,
            self.file.reading.key,
            pieces,
            masks,
        )


@lru_cache(maxsize=256)
def reach(settings: Settings, period: float) -> int:
    """Rows on either side that a filtered row can depend on, generously."""
    shared = float(f"{period:.4g}")
    cutoffs = {settings.cutoff, settings.torque_cutoff or settings.cutoff}
    kernels = [
        method_of(settings.derivative, cutoff, settings.order).kernel(shared, derivative)
        for cutoff in cutoffs
        for derivative in (0, 1, 2)
    ]
    delay = abs(settings.delay) / period
    return (
        REACHES * max(max(kernel.past, kernel.future) for kernel in kernels)
        + CARRIED
        + settings.factor(period)
        + math.ceil(delay)
    )


def plan(
    files: MultiLog,
    settings: Settings,
    span: Span = None,
    *,
    rows: int = ROWS,
    whole: bool = False,
    failed: Callable[[Entry, ThetahatError], None] | None = None,
) -> list[Shard]:
    """Return the shards of the log's rows of `span`, in the order of the log, of about so many
    rows; `whole`: of whole files.

    failed: told of a file that can no longer be read, which is then left out; without it that is an
        error.
    """
    first, stop = (0, files.log.rows) if span is None else span
    masks = _Masks(files.log)
    out: list[Shard] = []
    for entry, runs in zip(files.entries, _runs_by_entry(files), strict=True):
        inside = max(first - entry.first_row, 0), min(stop, entry.stop_row) - entry.first_row
        if inside[0] >= inside[1] or entry.item.place in files.left_out:
            continue
        try:
            shards = list(
                _of_file(files, entry, runs, settings, inside, masks, 0 if whole else rows)
            )
        except ThetahatError as error:
            if failed is None:
                raise
            failed(entry, error)
        else:
            out += [shard for shard in shards if shard.place not in files.left_out]
    return out


def _runs_by_entry(files: MultiLog) -> list[list[int]]:
    """The numbers of every file's runs."""
    starts = np.array([entry.first_row for entry in files.entries])
    out: list[list[int]] = [[] for _ in files.entries]
    for number, run in enumerate(files.log.runs):
        out[int(np.searchsorted(starts, run.first_row, side="right")) - 1].append(number)
    return out


def _of_file(
    files: MultiLog,
    entry: Entry,
    runs: Sequence[int],
    settings: Settings,
    span: tuple[int, int],
    masks: _Masks,
    rows: int,
) -> Iterator[Shard]:
    """Cut at rows that depend on the file alone, so that a log that grows keeps its shards."""
    file = entry.file
    parts = max(1, round(file.rows / rows)) if file.divisible and rows else 1
    edges = [i * file.rows // parts for i in range(parts + 1)]
    parts_of_runs = (_stretch(files, entry, run, span) for run in runs)
    stretches = [stretch for stretch in parts_of_runs if stretch is not None]
    if not stretches:
        return
    halo = max(reach(settings, stretch.period) for stretch in stretches)
    for low, high in pairwise(edges):
        pieces = tuple(
            piece
            for stretch in stretches
            if (piece := _cut(stretch, low, high, halo, file.scan.wraps)) is not None
        )
        if not pieces:
            continue
        begin, end = pieces[0].begin, pieces[-1].end
        mark = begin // EVERY
        places = file.places[mark : -(-end // EVERY) + 1]
        yield Shard(
            file=replace(files.rows_of(entry), places=places, origin=mark * EVERY),
            digest=file.digest,
            pieces=pieces,
            masks=masks.between(entry.first_row, begin, end),
            wraps={at: _within(pair, begin, end) for at, pair in file.scan.wraps.items()},
            locked=files.log.locked,
            halo=halo,
            derivatives=Derivatives(files.log.has_dq, files.log.has_ddq, files.log.differentiated),
        )


@dataclass(frozen=True, eq=False)
class _Stretch:
    """The part of a run that lies inside the span, rows of the file."""

    begin: int
    end: int
    start: float
    period: float
    run: int


def _stretch(files: MultiLog, entry: Entry, number: int, span: tuple[int, int]) -> _Stretch | None:
    run = files.log.runs[number]
    first = run.first_row - entry.first_row
    begin, end = max(first, span[0]), min(first + run.rows, span[1])
    if end - begin < SHORTEST_RUN:
        return None
    start = run.start if begin == first else _stamp(files, entry, begin)
    return _Stretch(begin, end, start, mean_period(run), number)


def _stamp(files: MultiLog, entry: Entry, row: int) -> float:
    """The time of one row, read from its file."""
    values = np.concatenate(list(files.rows_of(entry).read(row, row + 1)))
    return float(entry.file.columns.seconds(values)[0])


def _cut(
    stretch: _Stretch,
    low: int,
    high: int,
    halo: int,
    wraps: dict[int, tuple[np.ndarray, np.ndarray]],
) -> Piece | None:
    first, stop = max(stretch.begin, low), min(stretch.end, high)
    if first >= stop:
        return None
    begin, end = max(stretch.begin, first - FAR * halo), min(stretch.end, stop + FAR * halo)
    turns = tuple(
        (at, int(n[(rows > stretch.begin) & (rows <= begin)].sum()))
        for at, (rows, n) in wraps.items()
    )
    return Piece(
        first,
        stop,
        begin,
        end,
        first == stretch.begin,
        stop == stretch.end,
        stretch.start,
        stretch.period,
        stretch.run,
        turns,
    )


def _within(
    pair: tuple[np.ndarray, np.ndarray], begin: int, end: int
) -> tuple[np.ndarray, np.ndarray]:
    rows, turns = pair
    inside = (rows >= begin) & (rows < end)
    return rows[inside], turns[inside]


class _Masks:
    """The log's masks, found by rows."""

    def __init__(self, log: Log) -> None:
        self._masks = log.masks
        self._first = np.array([mask.first_row for mask in log.masks], dtype=np.int64)
        self._stop = np.array([mask.stop_row for mask in log.masks], dtype=np.int64)

    def between(self, origin: int, begin: int, end: int) -> tuple[Mask, ...]:
        """Those that touch rows begin … end of the file whose first row is `origin`, cut to them
        and counted from it.
        """
        hits = np.flatnonzero((self._first < origin + end) & (self._stop > origin + begin))
        touching = (self._masks[int(k)] for k in hits)
        return tuple(
            replace(
                mask,
                first_row=max(mask.first_row - origin, begin),
                stop_row=min(mask.stop_row - origin, end),
            )
            for mask in touching
        )
