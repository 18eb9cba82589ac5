"""Direction of dry friction row by row, filtered by the low-pass of the torque.

Dry friction jumps where a motor reverses, and a low-pass rounds the jump off in the measured
torque. Signs would not fit such a torque; signs filtered by the same low-pass do: d_filtered = h ∗
d(q̇_m), h the kernel of the torque. With hysteresis d depends on the motor's path, so it is
integrated row by row through each stretch of time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from thetahat.data.filters import Kernel, convolve, method_of
from thetahat.data.samples import Samples
from thetahat.model.friction_terms import FrictionDirection
from thetahat.model.robot import Robot

APART = 1.5  # periods between two rows that begin a new stretch


def with_friction_direction(samples: Samples, robot: Robot) -> Samples:
    """Return the samples with the direction of the robot's dry friction, unchanged if the robot
    has no such friction or they have it already.
    """
    return _joined(list(batches_with_friction_direction([samples], robot)), samples)


def batches_with_friction_direction(batches: Iterable[Samples], robot: Robot) -> Iterator[Samples]:
    """Add the direction of dry friction to a stream of batches; a batch is returned once the rows
    after it, as far as the low-pass reaches, are known.
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
            if stretch is not None and not stretch.continues(piece):
                yield from stretch.rest()
                stretch = None
            if stretch is None:
                stretch = _Stretch(robot, dry, piece)
            yield from stretch.push(piece)
    if stretch is not None:
        yield from stretch.rest()


def _joined(parts: list[Samples], whole: Samples) -> Samples:
    """Return the pieces of one batch put together again."""
    directions = [part.direction for part in parts if part.direction is not None]
    if not directions:
        return whole
    return replace(whole, direction=np.concatenate(directions), dry=parts[0].dry)


def _pieces(batch: Samples) -> Iterator[Samples]:
    """Split a batch at runs and gaps."""
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
    """Rows one period after another: those that wait for later rows, and d so far."""

    robot: Robot
    dry: FrictionDirection
    first: Samples

    def __post_init__(self) -> None:
        self.waiting: list[Samples] = []
        self.period = self.first.period or _period(self.first)
        self.kernel = _kernel(self.first, self.period)
        self.state = np.zeros(self.dry.motors)
        self.known = np.zeros((0, self.dry.motors))  # d of rows from `begin` on
        # rows of the stretch: first one known, one past the last, first one not returned
        self.begin, self.end, self.done = 0, 0, 0
        self.last = self.first

    def continues(self, piece: Samples) -> bool:
        last = self.last
        if last.run is None or piece.run is None:
            if last.run is not piece.run:
                return False
        elif last.run[-1] != piece.run[0]:
            return False
        if last.cutoff != piece.cutoff or last.period != piece.period:
            return False
        if last.t is None or piece.t is None or not self.period:
            return last.t is None and piece.t is None
        return bool(0.0 < piece.t[0] - last.t[-1] <= APART * self.period)

    def push(self, piece: Samples) -> Iterator[Samples]:
        """Add a piece, and return those that are ready."""
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
        else:  # rows without time
            out[:] = self.dry.at(speed)
        self.known = np.concatenate([self.known, out])
        self.end += len(piece)
        self.waiting.append(piece)
        self.last = piece
        future = 0 if self.kernel is None else self.kernel.future
        while self.waiting and self.done + len(self.waiting[0]) + future <= self.end:
            yield self._out(self.waiting.pop(0))

    def rest(self) -> Iterator[Samples]:
        """Return all that wait, at the end of the stretch; d is held beyond it."""
        while self.waiting:
            yield self._out(self.waiting.pop(0))

    def _out(self, piece: Samples) -> Samples:
        first, stop, kernel = self.done, self.done + len(piece), self.kernel
        self.done = stop
        if kernel is None:
            direction = self.known[first - self.begin : stop - self.begin]
        else:
            rows = np.arange(first - kernel.past, stop + kernel.future)
            d = self.known[np.clip(rows, self.begin, self.end - 1) - self.begin]
            (filtered,) = convolve(
                np.ascontiguousarray(d.T), [kernel], past=kernel.past, future=kernel.future
            )
            direction = np.ascontiguousarray(filtered.T)
            drop = max(stop - kernel.past - self.begin, 0)
            self.known, self.begin = self.known[drop:], self.begin + drop
        return replace(piece, direction=direction, dry=self.dry)


def _period(samples: Samples) -> float | None:
    return (
        float(np.median(np.diff(samples.t))) if samples.t is not None and len(samples) > 1 else None
    )


def _kernel(samples: Samples, period: float | None) -> Kernel | None:
    """Return the low-pass of the torque, if there was one."""
    settings = samples.provenance.get("settings", {})
    cutoff = settings.get("torque_cutoff") or samples.cutoff
    if not cutoff or not period:
        return None
    method = method_of(
        settings.get("derivative", "butterworth"), float(cutoff), int(settings.get("order", 4))
    )
    return method.kernel(float(f"{period:.4g}"), 0)
