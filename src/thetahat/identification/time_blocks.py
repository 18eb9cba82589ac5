"""A log read once more, in time: blocks of rows that follow each other at one period, and each
joint's rows of the regressor.

Rows that are missing (a gap in the time stamps) or not usable keep their place and count as zero;
where a run ends, or a gap is longer than any correlation that is looked for, a new stretch begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from thetahat.data.contact_rows import measured, without_contact_forces
from thetahat.data.friction_direction import batches_with_friction_direction
from thetahat.data.regressor_form import Windows
from thetahat.data.samples import Samples
from thetahat.data.window_batches import window_batches
from thetahat.dynamics import batch
from thetahat.dynamics.contact_projection import contact_projection, eliminates_forces, mixed_dofs
from thetahat.errors import UsageError
from thetahat.identification.estimators.estimator import Source
from thetahat.identification.fold_plan import ColumnPlaces, column_places, load_of
from thetahat.identification.fold_samples import instrument_direction
from thetahat.identification.information import Information
from thetahat.identification.window_rows import WindowMotion, WindowPlaces, window_rows
from thetahat.model.robot import Robot

LATE = 1.5  # periods after which a row counts as missing rather than late


# -- rows of the regressor -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RowPlan:
    """Where each base column of each joint's rows goes: joint v's are rows starts[v] : starts[v +
    1].
    """

    information: Information
    starts: np.ndarray  # (nv + 1,)
    columns: ColumnPlaces


def row_plan(information: Information) -> RowPlan:
    """Return the plan for the columns this information was folded in, restricted ones too."""
    starts = np.concatenate([[0], np.cumsum([len(p) for p in information.positions])])
    places = column_places(information.robot, information.base, information.positions, starts)
    return RowPlan(information, starts, places)


def base_rows(plan: RowPlan, block: Block) -> np.ndarray:
    """Return every joint's rows, (columns of all joints, samples), zero where not usable."""
    if block.windows is not None:
        places = WindowPlaces(plan.columns.places, plan.columns.drive, plan.starts, torque=False)
        motion = _window_motion(plan.information.robot, block.rows, block.windows)
        return window_rows(plan.information.robot, places, motion)
    rows, robot = block.rows, plan.information.robot
    state = rows.q, rows.dq, rows.ddq, rows.direction
    if not eliminates_forces(robot):
        return _rows_at(plan, state, block.usable)
    whole = _rows_at(plan, state, np.ones_like(block.usable))
    known, down = rows.ground[:, : robot.nv], rows.ground[:, robot.nv :]
    projection = contact_projection(robot, rows.q, down, known)
    rows_left = projection.take_out(whole, plan.starts, mixed_dofs(robot))
    of_row = np.repeat(np.arange(robot.nv), np.diff(plan.starts))
    return np.ascontiguousarray(rows_left * block.usable.T[of_row])


def row_counts(plan: RowPlan, block: Block) -> np.ndarray:
    """Return how much each row counts, (n, nv): 1 where it is usable, and where contact forces are
    eliminated what is left of it.
    """
    robot, usable = plan.information.robot, block.usable.astype(float)
    if not eliminates_forces(robot):
        return usable
    known, down = block.rows.ground[:, : robot.nv], block.rows.ground[:, robot.nv :]
    return np.asarray(usable * contact_projection(robot, block.rows.q, down, known).shares)


def instrument_rows(plan: RowPlan, block: Block) -> np.ndarray:
    """Return the same of the instruments' motion."""
    n = plan.information.robot.nv
    motion, q = block.rows.instruments, plan.information.robot.nq
    if not motion.shape[1]:
        raise UsageError(
            "the information was folded with instruments, and these samples have none; pass"
            " samples.with_instruments(reference)"
        )
    parts = np.split(motion, [q, q + n, q + 2 * n], axis=1)
    return _rows_at(plan, (parts[0], parts[1], parts[2], parts[3]), block.usable)


def _rows_at(
    plan: RowPlan,
    motion: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    usable: np.ndarray,
) -> np.ndarray:
    """Every joint's rows at a motion: q, dq, ddq and the direction of dry friction."""
    robot, kernel = plan.information.robot, batch.kernels().fold
    _, gravity, _ = robot.kernel_values
    q, dq, ddq, held = motion
    count, weights = len(q), usable.astype(float)
    out = np.zeros((plan.starts[-1], -(-count // batch.WIDTH) * batch.WIDTH))

    def call(
        workspace: batch.Workspace,
        at: np.ndarray,
        q: np.ndarray,
        dq: np.ndarray,
        ddq: np.ndarray,
        weights: np.ndarray,
    ) -> None:
        kernel.base_columns(
            *robot.tree.rigid_arrays,
            gravity,
            q,
            dq,
            ddq,
            weights,
            plan.columns.places,
            workspace.nodes,
            workspace.directions,
            out,
            int(at[0]),
        )

    # writeable: Numba compiles for no other kind
    state = [np.array(a, dtype=float, order="C") for a in (q, dq, ddq)]
    batch.run(robot, None, 1.0, call, np.arange(count), *state, weights)
    out = out[:, :count]
    if plan.columns.drive:
        direction = held if held.shape[1] else None
        B, columns = robot.drive.motor_columns(
            dq, ddq, q=q, load=load_of(robot, q, dq, ddq), direction=direction
        )
        for each in plan.columns.drive:
            out[each.row] = each.of(B, columns) * weights[:, each.dof]
    return out


# -- blocks in time --------------------------------------------------------------------------------


class _Rows(NamedTuple):
    """Arrays of consecutive rows, one period apart."""

    q: np.ndarray
    dq: np.ndarray
    ddq: np.ndarray
    tau: np.ndarray
    direction: np.ndarray  # (n, motors) of dry friction, or (n, 0) where the speed alone decides
    usable: np.ndarray  # (n, nv) bool: the torque was measured and may be used
    # (n, nq + 2·nv + motors) q, dq, ddq and direction of the instruments, or (n, 0) without any
    instruments: np.ndarray
    # (n, nv + feet) bool: whether a torque was measured, usable or not, and which feet are down
    ground: np.ndarray


@dataclass(frozen=True, eq=False)
class Block:
    """Consecutive rows, one period apart; all but the last block of a segment have the same
    length. With windows, a row is one of these.
    """

    rows: _Rows
    first: bool  # a segment begins here
    period: float | None  # [s]
    windows: Windows | None = None  # of the samples that make a row; None: each is a row

    @cached_property
    def tau(self) -> np.ndarray:
        """Torques, (n, nv)."""
        return self.rows.tau if self.windows is None else self.windows.mean(self.rows.tau)

    @cached_property
    def usable(self) -> np.ndarray:
        """Whether a torque was measured and may be used, (n, nv) bool."""
        return self.rows.usable if self.windows is None else self.windows.all(self.rows.usable)

    def __len__(self) -> int:
        return len(self.usable)


def _window_motion(robot: Robot, rows: _Rows, windows: Windows) -> WindowMotion:
    direction = rows.direction if rows.direction.shape[1] else None
    load = load_of(robot, rows.q, rows.dq, rows.ddq)
    state = rows.q, rows.dq, rows.ddq, rows.tau, rows.usable
    return WindowMotion(*state, direction, load, windows)


def block_of(samples: Samples, robot: Robot, usable: np.ndarray) -> Block:
    """Return samples as one block, with other rows than their own called usable, (n, nv) bool."""
    direction = samples.direction_of(robot.drive)
    direction = np.empty((len(samples), 0)) if direction is None else direction
    motion = _instrument_motion(samples, robot)
    tau = without_contact_forces(robot, samples, samples.tau)
    motions = samples.q, samples.dq, samples.ddq, tau, direction, usable, motion
    return Block(_Rows(*motions, _ground(samples)), True, samples.period)


def _ground(samples: Samples) -> np.ndarray:
    """Which torques are measured, then which feet are down, (n, nv + feet) bool."""
    known = measured(samples)
    return known if samples.contact is None else np.hstack([known, samples.contact])


def _instrument_motion(samples: Samples, robot: Robot) -> np.ndarray:
    """q, dq, ddq and direction of the instruments, (n, ·); no columns without any."""
    reference = samples.instruments
    if reference is None:
        return np.empty((len(samples), 0))
    direction = instrument_direction(robot, samples)
    return np.hstack([reference.q, reference.dq, reference.ddq, direction])


def blocks(source: Source, robot: Robot, size: int, *, reach: int) -> Iterator[Block]:
    """Yield a log's rows in blocks of `size`; gaps over `reach` periods begin a new segment, any
    gap where rows are made of windows.
    """
    parts = batches_with_friction_direction(_parts(source), robot)
    head = next(parts, None)
    if head is None:
        return
    parts = chain((head,), parts)
    if head.form.windowed:
        for part in window_batches(parts, size):
            period = part.windows.stride * part.windows.period
            whole = block_of(part.samples, robot, part.samples.valid)
            yield Block(whole.rows, part.first, period, part.windows)
        return
    yield from _sample_blocks(parts, robot, size, reach=reach)


def _sample_blocks(
    parts: Iterator[Samples], robot: Robot, size: int, *, reach: int
) -> Iterator[Block]:
    """Blocks in which every sample is a row."""
    period: float | None = None
    end: tuple[float | None, int | None] | None = None
    waiting: list[_Rows] = []
    held, first = 0, True
    for part in parts:
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
                yield Block(_joined(waiting), first, period)
                waiting, held = [], 0
            first = first or bool(new[begin])
            waiting.append(_filled(part, robot, slice(begin, stop), steps[begin:stop]))
            held += len(waiting[-1].q)
            while held >= size:
                rows = _joined(waiting)
                yield Block(_Rows(*(a[:size] for a in rows)), first, period)
                waiting, held, first = [_Rows(*(a[size:] for a in rows))], held - size, False
    if held:
        yield Block(_joined(waiting), first, period)


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
    """(periods since the row before, whether a segment begins) of every row."""
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


def _filled(part: Samples, robot: Robot, rows: slice, steps: np.ndarray) -> _Rows:
    """These rows, with rows that are not usable in the place of missing ones."""
    direction = part.direction_of(robot.drive)
    direction = np.empty((len(part), 0)) if direction is None else direction
    motion = _instrument_motion(part, robot)
    tau = without_contact_forces(robot, part, part.tau)
    state = (part.q, part.dq, part.ddq, tau, direction, part.valid, motion, _ground(part))
    taken = _Rows(*(a[rows] for a in state))
    if np.all(steps == 1):
        return taken
    index = np.repeat(np.arange(len(steps)), steps)
    measured = np.zeros(len(index), dtype=bool)
    measured[np.cumsum(steps) - 1] = True
    filled = _Rows(*(a[index] for a in taken))
    return filled._replace(usable=filled.usable & measured[:, None])


def _joined(waiting: list[_Rows]) -> _Rows:
    if len(waiting) == 1:
        return waiting[0]
    return _Rows(*(np.concatenate(arrays) for arrays in zip(*waiting, strict=True)))
