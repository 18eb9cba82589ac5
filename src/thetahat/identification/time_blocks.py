"""A log read once more, in time: blocks of rows that follow each other at one period, and each
joint's rows of the regressor.

Rows that are missing (a gap in the time stamps) or not usable keep their place and count as zero;
where a run ends, or a gap is longer than any correlation that is looked for, a new stretch begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from thetahat.data.friction_direction import batches_with_friction_direction
from thetahat.data.samples import Samples
from thetahat.dynamics import batch
from thetahat.errors import UsageError
from thetahat.identification.estimators.estimator import Source
from thetahat.identification.information import Information, load_of
from thetahat.identification.parameter_columns import Columns
from thetahat.model.robot import Robot
from thetahat.model.tree import V_INDEX

LATE = 1.5  # periods after which a row counts as missing rather than late


# -- rows of the regressor -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RowPlan:
    """Where each base column of each joint's rows goes: joint v's are rows starts[v] : starts[v +
    1].
    """

    information: Information
    starts: np.ndarray  # (nv + 1,)
    places: np.ndarray  # (dofs, 10·bodies), −1 where a column is not kept
    drive: tuple[
        tuple[int, int, int, int], ...
    ]  # (degree of freedom, term, motor, row) of every drive column


def row_plan(information: Information) -> RowPlan:
    """The plan for the columns this information was folded in, restricted ones too."""
    robot, base = information.robot, information.base
    columns, motors = Columns(robot), robot.drive.column_motors
    starts = np.concatenate([[0], np.cumsum([len(p) for p in information.positions])])
    place = np.full((robot.nv, columns.count), -1, dtype=np.int64)
    for v, kept in enumerate(information.positions):
        place[v, base.independent[kept]] = starts[v] + np.arange(len(kept))
    drive = []
    for v, c in np.argwhere(place[:, columns.inertial :] >= 0):
        drive.append(
            (
                int(v),
                int(c) // len(motors),
                motors[int(c) % len(motors)],
                int(place[v, columns.inertial + c]),
            )
        )
    places = np.ascontiguousarray(place[robot.tree.arrays.dofs[:, V_INDEX], : columns.inertial])
    return RowPlan(information, starts, places, tuple(drive))


def base_rows(plan: RowPlan, block: Block) -> np.ndarray:
    """Every joint's rows, (columns of all joints, samples), zero where a torque is not usable;
    samples lie next to each other.
    """
    robot, kernel = plan.information.robot, batch.kernels().fold
    _, gravity, _ = robot.kernel_values
    q, dq, ddq = block.q, block.dq, block.ddq
    count, weights = len(q), block.usable.astype(float)
    out = np.zeros((plan.starts[-1], -(-count // batch.WIDTH) * batch.WIDTH))

    def call(workspace: batch.Workspace, at, q, dq, ddq, weights) -> None:
        kernel.base_columns(
            *robot.tree.rigid_arrays,
            gravity,
            q,
            dq,
            ddq,
            weights,
            plan.places,
            workspace.nodes,
            workspace.directions,
            out,
            int(at[0]),
        )

    state = [
        np.array(a, dtype=float, order="C") for a in (q, dq, ddq)
    ]  # writeable: Numba compiles for no other kind
    batch.run(robot, None, 1.0, call, np.arange(count), *state, weights)
    out = out[:, :count]
    if plan.drive:
        direction = block.direction if block.direction.shape[1] else None
        B, columns = robot.drive.motor_columns(
            dq, ddq, q=q, load=load_of(robot, q, dq, ddq), direction=direction
        )
        for v, term, motor, row in plan.drive:
            out[row] = (
                columns[term][:, motor] if B is None else columns[term][:, motor] * B[..., v, motor]
            ) * weights[:, v]
    return out


# -- blocks in time --------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Block:
    """Rows of one stretch, one period after another; all but a stretch's last block have the same
    length.
    """

    q: np.ndarray
    dq: np.ndarray
    ddq: np.ndarray
    tau: np.ndarray
    direction: np.ndarray  # (n, motors) of dry friction, or (n, 0) where the speed alone tells
    usable: np.ndarray  # (n, nv) bool: the torque was measured and may be used
    first: bool  # a stretch begins here
    period: float | None  # [s]

    def __len__(self) -> int:
        return len(self.tau)


def blocks(source: Source, robot: Robot, size: int, *, reach: int) -> Iterator[Block]:
    """The rows of a log in blocks of `size`, however it is batched; a gap of more than `reach`
    periods begins a new stretch.
    """
    period, end = None, None
    waiting: list[tuple[np.ndarray, ...]] = []
    held, first = 0, True
    for part in batches_with_friction_direction(_parts(source), robot):
        if not len(part):
            continue
        period = _period(part) if period is None else period
        steps, new = _steps(part, end, period, reach)
        end = (
            None if part.t is None else float(part.t[-1]),
            None if part.run is None else int(part.run[-1]),
        )
        for begin, stop in pairwise(
            [*np.flatnonzero(new), len(part)] if new[0] else [0, *np.flatnonzero(new), len(part)]
        ):
            if new[begin] and held:
                yield Block(*_joined(waiting), first, period)
                waiting, held = [], 0
            first = first or bool(new[begin])
            waiting.append(_filled(part, robot, slice(begin, stop), steps[begin:stop]))
            held += len(waiting[-1][0])
            while held >= size:
                rows = _joined(waiting)
                yield Block(*(a[:size] for a in rows), first, period)
                waiting, held, first = [tuple(a[size:] for a in rows)], held - size, False
    if held:
        yield Block(*_joined(waiting), first, period)


def _parts(source: Source) -> Iterator[Samples]:
    if isinstance(source, Samples):
        yield source
        return
    if not callable(source):
        raise UsageError(
            f"samples is {type(source).__name__}; give Samples, or a function that yields batches"
            " of them anew at every call"
        )
    yield from source()


def _period(part: Samples) -> float | None:
    """[s] between rows: as stated, or the median of the time stamps."""
    if part.t is None or len(part) < 2:
        return part.period
    steps = np.diff(part.t)
    steps = steps[steps > 0.0]
    if not len(steps):
        return part.period
    return (
        float(np.median(steps))
        if part.period is None
        else max(part.period, float(np.median(steps)))
    )  # thinned rows keep their log's period


def _steps(
    part: Samples, end: tuple[float | None, int | None] | None, period: float | None, reach: int
) -> tuple[np.ndarray, np.ndarray]:
    """(periods since the row before, whether a stretch begins) of every row; end: time and run of
    the row before the first.
    """
    steps, new = np.ones(len(part), dtype=np.int64), np.zeros(len(part), dtype=bool)
    if part.run is not None:
        new[1:] |= np.diff(part.run) != 0
        new[0] |= end is not None and end[1] is not None and end[1] != part.run[0]
    if part.t is not None and period:
        late = (
            np.diff(part.t, prepend=part.t[0] - period if end is None or end[0] is None else end[0])
            / period
        )
        new |= (late <= 0.0) | (late > reach)
        steps = np.where((late > LATE) & ~new, np.rint(np.minimum(late, reach)).astype(np.int64), 1)
    new[0] |= end is None
    return steps, new


def _filled(part: Samples, robot: Robot, rows: slice, steps: np.ndarray) -> tuple[np.ndarray, ...]:
    """(q, dq, ddq, tau, direction, usable) of these rows, with rows that are not usable in the
    place of missing ones.
    """
    direction = part.direction_of(robot.drive)
    direction = np.empty((len(part), 0)) if direction is None else direction
    arrays = [a[rows] for a in (part.q, part.dq, part.ddq, part.tau, direction, part.valid)]
    if np.all(steps == 1):
        return tuple(arrays)
    index = np.repeat(np.arange(len(steps)), steps)
    measured = np.zeros(len(index), dtype=bool)
    measured[np.cumsum(steps) - 1] = True
    *state, usable = (a[index] for a in arrays)
    return (*state, usable & measured[:, None])


def _joined(waiting: list[tuple[np.ndarray, ...]]) -> tuple[np.ndarray, ...]:
    return (
        waiting[0]
        if len(waiting) == 1
        else tuple(np.concatenate(arrays) for arrays in zip(*waiting, strict=True))
    )
