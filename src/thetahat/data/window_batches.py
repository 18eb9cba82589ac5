"""Regroup a stream of samples into whole windows, for forms of the equation of motion whose rows
are made of several samples (regressor_form.py).

Windows follow each other on one grid from the beginning of a run or, after a gap, from the row
behind it; none reaches over either. So the rows of a form do not depend on how a log is batched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from thetahat.data.friction_direction import continuous_pieces
from thetahat.data.regressor_form import Windows
from thetahat.data.samples import Samples, concatenate

APART = 1.5  # periods between two rows that no window holds both of


@dataclass(frozen=True, eq=False)
class WindowBatch:
    """Samples of whole windows; the next batch begins where the next window does."""

    samples: Samples
    windows: Windows
    first: bool  # a run begins here, or the rows after a gap

    @property
    def count(self) -> int:
        """How many windows there are."""
        return self.windows.count(len(self.samples))

    @property
    def new_samples(self) -> int:
        """Samples that no batch before it has had."""
        own = self.count * self.windows.stride
        return own if not self.first else own + self.windows.length - self.windows.stride


def window_batches(batches: Iterable[Samples], count: int | None = None) -> Iterator[WindowBatch]:
    """Regroup batches of samples into those of whole windows.

    count: windows of every batch but the last before a gap; None: as many as there are.
    """
    waiting: Samples | None = None
    first = True
    for batch in batches:
        for piece in continuous_pieces(batch):
            if waiting is not None and _continues(waiting, piece):
                waiting = concatenate([waiting, piece], same_log=True)
            else:
                if waiting is not None:
                    yield from _rest(waiting, first)
                waiting, first = piece, True
            if len(waiting) < 2:
                continue
            windows = _windows(waiting)
            ready = windows.count(len(waiting))
            while ready and ready >= (count or 1):
                taken = count or ready
                part = waiting.subset(slice(0, windows.samples(taken)))
                yield WindowBatch(part, windows, first)
                waiting = waiting.subset(slice(taken * windows.stride, None))
                first, ready = False, ready - taken
    if waiting is not None:
        yield from _rest(waiting, first)


def _rest(waiting: Samples, first: bool) -> Iterator[WindowBatch]:
    """Return the windows that are whole where no more samples follow."""
    if len(waiting) < 2:
        return
    windows = _windows(waiting)
    count = windows.count(len(waiting))
    if count:
        yield WindowBatch(waiting.subset(slice(0, windows.samples(count))), windows, first)


def _windows(samples: Samples) -> Windows:
    """Return the windows of samples without gaps."""
    return samples.form.windows(samples.time_step)  # of a run, where runs differ in it


def _continues(last: Samples, piece: Samples) -> bool:
    """Whether a piece follows one period after the last."""
    if not len(last) or (last.form, last.period) != (piece.form, piece.period):
        return False
    if last.run is not None and piece.run is not None and last.run[-1] != piece.run[0]:
        return False
    if last.t is None or piece.t is None or not last.period:
        return last.t is None and piece.t is None
    return bool(0.0 < piece.t[0] - last.t[-1] <= APART * last.period)
