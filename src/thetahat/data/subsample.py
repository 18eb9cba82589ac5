"""Subsample of a long log in memory, to be prepared with many settings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from thetahat.data.prepare import BATCH, Settings, batches_of
from thetahat.data.resample import run_spans
from thetahat.data.samples import Samples, concatenate
from thetahat.data.types import Chunk, LogLike
from thetahat.model.robot import Robot

ROWS = 200_000  # of a longer log
PIECES = 8  # spread over the log


@dataclass(frozen=True, eq=False)
class Subsample:
    """Rows of a log in memory."""

    log: LogLike
    robot: Robot
    spans: tuple[tuple[int, int], ...]  # first and stop row of every piece
    chunks: tuple[Chunk, ...]

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return sum(stop - first for first, stop in self.spans)

    def prepared(self, settings: Settings) -> Samples:
        """Return its samples; every piece is filtered by itself."""
        parts = [
            batch
            for span in self.spans
            for batch in batches_of(
                self.log,
                self.robot,
                settings,
                rows=BATCH,
                span=span,
                chunks=_overlapping(self.chunks, span),
            )
        ]
        return concatenate(parts, same_log=True)


def subsample(
    log: LogLike, robot: Robot, *, span: tuple[int, int] | None = None, rows: int = ROWS
) -> Subsample:
    """Read the rows of `span` (default: all), or `rows` of them in pieces spread over it."""
    spans = spread_spans(log, span or (0, log.rows), rows)
    chunks = [chunk for chunk in log.chunks() if any(_overlapping([chunk], each) for each in spans)]
    return Subsample(log, robot, tuple(spans), tuple(chunks))


def spread_spans(log: LogLike, span: tuple[int, int], rows: int) -> list[tuple[int, int]]:
    """Return `span`, or pieces spread over it with so many rows together."""
    first, stop = span
    if stop - first <= rows:
        return [span]
    size, step = rows // PIECES, (stop - first) / PIECES
    cut = [(first + round(k * step), first + round(k * step) + size) for k in range(PIECES)]
    # A piece must hold a run long enough to be filtered.
    usable = run_spans(log, span)
    return [
        piece
        for piece in cut
        if any(min(b, piece[1]) - max(a, piece[0]) >= size // 2 for a, b in usable)
    ] or [(first, first + rows)]


def _overlapping(chunks: Iterable[Chunk], span: tuple[int, int]) -> list[Chunk]:
    return [chunk for chunk in chunks if chunk.row < span[1] and chunk.row + len(chunk.t) > span[0]]
