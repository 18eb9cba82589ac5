"""The direction of dry friction row by row, seen through the low-pass that the torque went through.

Dry friction jumps where a motor turns round, and a low-pass rounds the jump off in the measured
torque. A column of signs beside it would not fit; the signs behind the same low-pass do: d_seen = h
∗ d(q̇_m), h the kernel of the torque. With hysteresis d depends on the way the motor went, so it is
followed row by row through each stretch of time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from thetahat.data.filters import Kernel, convolve, method_of
from thetahat.data.samples import Samples
from thetahat.model.friction_terms import FrictionDirection
from thetahat.model.robot import Robot

APART = 1.5  # periods between two rows that begin a new stretch


def with_friction_direction(samples: Samples, robot: Robot) -> Samples:
    """The samples with the direction of the robot's dry friction; as they are where its law is
    none, or they have it already.
    """
    return _joined(list(batches_with_friction_direction([samples], robot)), samples)


def batches_with_friction_direction(batches: Iterable[Samples], robot: Robot) -> Iterator[Samples]:
    """The same of a stream: a batch comes out once the rows after it, as far as the low-pass
    reaches, are known.
    """
    dry = robot.drive.dry
    if dry is None:
        yield from batches
        return
    stretch: _Stretch | None = None
    for batch in batches:
        if batch.direction_of(robot.drive) is not None or not len(batch):
            if stretch is not None:
                yield from stretch.rest()
                stretch = None
            yield batch
            continue
        for piece in _pieces(batch):
            if stretch is not None and not stretch.goes_on(piece):
                yield from stretch.rest()
                stretch = None
            if stretch is None:
                stretch = _Stretch(robot, dry, piece)
            yield from stretch.push(piece)
    if stretch is not None:
        yield from stretch.rest()


def _joined(parts: list[Samples], whole: Samples) -> Samples:
    """The pieces of one batch put together again."""
    if not parts or parts[0].direction is None:
        return whole
    return replace(
        whole, direction=np.concatenate([part.direction for part in parts]), dry=parts[0].dry
    )


def _pieces(batch: Samples) -> Iterator[Samples]:
    """Rows of one run without gaps."""
    new = np.zeros(len(batch), dtype=bool)
    new[0] = True
    if batch.run is not None:
        new[1:] |= np.diff(batch.run) != 0
    if batch.t is not None and batch.period:
        steps = np.diff(batch.t)
        new[1:] |= (steps > APART * batch.period) | (steps <= 0.0)
    begins = [*np.flatnonzero(new), len(batch)]
    if len(begins) == 2:
        yield batch
        return
    for first, stop in pairwise(begins):
        yield batch.subset(slice(first, stop))


@dataclass(eq=False)
class _Stretch:
    """Rows one period after another: what waits for its neighbours, and d up to now."""

    robot: Robot
    dry: FrictionDirection
    first: Samples
    waiting: list[Samples] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.period = self.first.period or _period(self.first)
        self.kernel = _kernel(self.first, self.period)
        self.state = np.zeros(self.dry.motors)
        self.known = np.zeros((0, self.dry.motors))  # d of rows from `begin` on
        self.begin, self.end, self.done = (
            0,
            0,
            0,
        )  # rows of the stretch: first one known, one past the last, first one still to come out
        self.last = self.first

    def goes_on(self, piece: Samples) -> bool:
        last = self.last
        if (last.run is None) != (piece.run is None) or (
            last.run is not None and last.run[-1] != piece.run[0]
        ):
            return False
        if last.cutoff != piece.cutoff or last.period != piece.period:
            return False
        if last.t is None or piece.t is None or not self.period:
            return last.t is None and piece.t is None
        return 0.0 < piece.t[0] - last.t[-1] <= APART * self.period

    def push(self, piece: Samples) -> Iterator[Samples]:
        """Take a piece; what is ready comes out."""
        from thetahat.kernels.direction import follow

        drive, out = self.robot.drive, np.empty((len(piece), self.dry.motors))
        speed = (
            piece.dq
            if drive.actuation is None
            else drive.actuation.motor_rates(piece.dq, piece.ddq, q=piece.q)[0]
        )
        speed = np.array(speed, dtype=float, order="C")
        if self.period:
            follow(
                speed,
                float(self.period),
                np.array(self.dry.zone),
                np.array(self.dry.travel),
                self.state,
                out,
            )
        else:  # rows without time have no way between them
            out[:] = self.dry.at(speed)
        self.known = np.concatenate([self.known, out])
        self.end += len(piece)
        self.waiting.append(piece)
        self.last = piece
        future = 0 if self.kernel is None else self.kernel.future
        while self.waiting and self.done + len(self.waiting[0]) + future <= self.end:
            yield self._out(self.waiting.pop(0))

    def rest(self) -> Iterator[Samples]:
        """The stretch is over: all that waits, d held beyond its end."""
        while self.waiting:
            yield self._out(self.waiting.pop(0))

    def _out(self, piece: Samples) -> Samples:
        first, stop, kernel = self.done, self.done + len(piece), self.kernel
        self.done = stop
        if kernel is None:
            seen = self.known[first - self.begin : stop - self.begin]
        else:
            rows = (
                np.clip(
                    np.arange(first - kernel.past, stop + kernel.future), self.begin, self.end - 1
                )
                - self.begin
            )
            (seen,) = convolve(
                np.ascontiguousarray(self.known[rows].T),
                [kernel],
                past=kernel.past,
                future=kernel.future,
            )
            seen = np.ascontiguousarray(seen.T)
            drop = max(stop - kernel.past - self.begin, 0)
            self.known, self.begin = self.known[drop:], self.begin + drop
        return replace(piece, direction=seen, dry=self.dry)


def _period(samples: Samples) -> float | None:
    return (
        float(np.median(np.diff(samples.t))) if samples.t is not None and len(samples) > 1 else None
    )


def _kernel(samples: Samples, period: float | None) -> Kernel | None:
    """The low-pass of the torque; None where there was none, or nothing is known of it."""
    settings = samples.provenance.get("settings", {})
    cutoff = settings.get("torque_cutoff") or samples.cutoff
    if not cutoff or not period:
        return None
    method = method_of(
        settings.get("derivative", "butterworth"), float(cutoff), int(settings.get("order", 4))
    )
    return method.kernel(float(f"{period:.4g}"), 0)
