"""Fold batches of samples, or windows of them, into a triangular factor per joint, on threads."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from thetahat.data.contact_rows import contacts_of
from thetahat.data.regressor_form import Windows
from thetahat.data.samples import Samples
from thetahat.data.window_batches import WindowBatch
from thetahat.dynamics import batch
from thetahat.dynamics.contact_projection import eliminates_forces, mixed_dofs
from thetahat.errors import UsageError
from thetahat.identification import factor as f
from thetahat.identification.fold_plan import FoldPlan, FoldRows, drive_and_torque, load_of
from thetahat.identification.window_rows import WindowMotion, WindowPlaces, window_rows
from thetahat.model.robot import Robot

TILE = 4096  # samples whose drive columns are computed at once
PROJECTED_TILE, PROJECTED_ENTRIES = 2048, 12_000_000  # of rows without contact forces, at once
LARGE = 100  # columns from which on LAPACK is quicker than the kernel


def fold_batch(
    plan: FoldPlan, samples: Samples, weights: np.ndarray | None, threads: int | None
) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the factors of one batch of samples, on threads, and how many rows each joint had."""
    if eliminates_forces(plan.robot):
        return fold_projected(plan, samples, weights)
    q, dq, ddq = batch.check_state(plan.robot, samples.q, samples.dq, samples.ddq)
    tau = np.ascontiguousarray(samples.tau, dtype=float)
    used = np.full(plan.robot.nv, len(q)) if weights is None else np.count_nonzero(weights, axis=0)
    direction = samples.direction_of(plan.robot.drive)
    direction = np.empty((len(q), 0)) if direction is None else direction
    state: list[np.ndarray] = [q, dq, ddq, tau]
    state += [np.empty((len(q), 0)) if weights is None else weights, direction]
    if samples.instruments is not None:
        reference = samples.instruments
        state += batch.check_state(plan.robot, reference.q, reference.dq, reference.ddq)
        state.append(instrument_direction(plan.robot, samples))
    # by where the part begins: threads end in any order, the result is to be one
    parts: dict[int, list[np.ndarray]] = {}

    def call(workspace: batch.Workspace, *arrays: np.ndarray) -> None:
        own = FoldRows(*arrays[:6])
        parts[arrays[0].ctypes.data] = (
            _fold_part(plan, workspace, own)
            if len(arrays) == 6
            else _fold_pairs(plan, workspace, own, arrays[6:])
        )

    with f.blas_threads().limit(limits=1, user_api="blas"):
        batch.run(plan.robot, threads, 1.0, call, *state)
        if not parts:
            times = 1 if samples.instruments is None else 2
            sizes = [times * len(p) + 1 for p in plan.positions]
            return [np.zeros((n, n)) for n in sizes], used
        return [
            f.merged(*same) for same in zip(*(parts[start] for start in sorted(parts)), strict=True)
        ], used


def fold_projected(
    plan: FoldPlan, samples: Samples, weights: np.ndarray | None
) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the same of rows without contact forces, which mix joints: every row has all columns.

    Rows are weighted by the deviations that the robot's ground states, so other deviations need a
    new fold. Of each row the part counts that is left: all of a sample count nv − rank J_c.
    """
    if samples.instruments is not None:
        raise UsageError(
            "instruments are for rows whose forces are all measured; leave them out, or measure the"
            " wrenches of the feet"
        )
    projected = _ProjectedFold(plan)
    direction = samples.direction_of(plan.robot.drive)
    used = np.zeros(plan.robot.nv)
    with f.blas_threads().limit(limits=1, user_api="blas"):
        for first in range(0, len(samples), projected.tile):
            rows = slice(first, first + projected.tile)
            part = samples.subset(rows)
            turns = np.empty((len(part), 0)) if direction is None else direction[rows]
            used += projected.add(part, turns, None if weights is None else weights[rows])
    return projected.factors, np.rint(used).astype(np.int64)


class _ProjectedFold:
    """Factors that grow by rows without contact forces."""

    def __init__(self, plan: FoldPlan) -> None:
        self._plan, self._workspace = plan, batch.Workspace(plan.robot.tree)
        self._mixed = mixed_dofs(plan.robot)
        self._kernels = batch.kernels()
        tile = min(PROJECTED_TILE, PROJECTED_ENTRIES // int(plan.starts[-1]))
        self.tile = max(1, tile // batch.WIDTH) * batch.WIDTH
        sizes = np.diff(plan.starts)
        self.factors = [np.zeros((n, n)) for n in sizes]
        self._scratch = [np.zeros((n, self._kernels.fold.CHUNK)) for n in sizes]

    def add(
        self, samples: Samples, direction: np.ndarray, weights: np.ndarray | None
    ) -> np.ndarray:
        """Fold samples; return how many rows of each degree of freedom counted, (nv,)."""
        plan = self._plan
        q, dq, ddq = batch.check_state(plan.robot, samples.q, samples.dq, samples.ddq)
        tau = np.ascontiguousarray(samples.tau)
        own = FoldRows(q, dq, ddq, tau, np.empty((0, 0)), direction)
        projection = contacts_of(plan.robot, samples)
        assert projection is not None
        columns = _all_columns(plan, self._workspace, own)
        rows, shares = projection.take_out(columns, plan.starts, self._mixed), projection.shares
        if weights is None:
            weights = np.ones((len(samples), plan.robot.nv))
        else:
            shares = shares * (weights > 0.0)
        for v, (first, stop) in enumerate(itertools.pairwise(plan.starts)):
            self._absorb(v, rows[first:stop], weights[:, v])
        return np.asarray(shares.sum(axis=0))

    def _absorb(self, v: int, rows: np.ndarray, weights: np.ndarray) -> None:
        """Fold rows of one degree of freedom, (columns, samples)."""
        columns = len(rows)
        if columns < LARGE:
            factor = np.zeros(columns * columns)
            self._kernels.fold.fold_rows(rows * weights, columns, self._scratch[v], factor)
            self.factors[v] = f.merged(self.factors[v], f.upright(factor.reshape(columns, columns)))
            return
        stacked = np.empty((columns + rows.shape[1], columns), order="F")
        stacked[:columns] = self.factors[v]
        np.multiply(rows.T, weights[:, None], out=stacked[columns:])
        self.factors[v] = f.triangle(stacked)


def instrument_direction(robot: Robot, samples: Samples) -> np.ndarray:
    """Return the direction of dry friction in the instruments' columns, (n, motors): the measured
    motion's.

    Beyond standstill noise does not turn it, and a joint that sticks while its command moves on
    would make the command's direction a wrong one.
    """
    direction = samples.direction_of(robot.drive)
    if direction is not None:
        return direction
    return np.ascontiguousarray(robot.drive.direction(samples.dq, q=samples.q))


def _fold_part(plan: FoldPlan, workspace: batch.Workspace, rows: FoldRows) -> list[np.ndarray]:
    """Fold samples into a factor per joint."""
    kernel, robot = batch.kernels().fold, plan.robot
    _, gravity, _ = robot.kernel_values
    sizes = np.diff(plan.starts)
    offsets = np.concatenate([[0], np.cumsum(sizes**2)])
    starts = np.stack([plan.starts, offsets], axis=1)
    factors, matrices = np.zeros(offsets[-1]), np.zeros((plan.starts[-1], kernel.CHUNK))
    for first in range(0, len(rows.q), TILE):
        tile = rows.part(slice(first, first + TILE))
        kernel.fold_samples(
            *robot.tree.rigid_arrays,
            gravity,
            tile.q,
            tile.dq,
            tile.ddq,
            tile.weights,
            plan.columns.places,
            drive_and_torque(plan, tile),
            plan.extra_rows,
            starts,
            workspace.nodes,
            workspace.directions,
            matrices,
            factors,
        )
    return [
        f.upright(factors[at : at + n * n].reshape(n, n))
        for at, n in zip(offsets[:-1], sizes, strict=True)
    ]


def fold_windows(
    plan: FoldPlan, part: WindowBatch, threads: int | None
) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the factors of windows of samples, and how many of them each joint had."""
    kernel, samples, windows = batch.kernels().fold, part.samples, part.windows
    places = WindowPlaces(plan.columns.places, plan.columns.drive, plan.starts, torque=True)
    motion = window_motion(plan.robot, samples, windows)
    rows = window_rows(plan.robot, places, motion, threads)
    factors = []
    for first, stop in itertools.pairwise(plan.starts):
        n = int(stop - first)
        factor = np.zeros(n * n)
        kernel.fold_rows(rows[first:stop], n, np.zeros((n, kernel.CHUNK)), factor)
        factors.append(f.upright(factor.reshape(n, n)))
    return factors, np.count_nonzero(windows.all(motion.usable), axis=0)


def window_motion(robot: Robot, samples: Samples, windows: Windows) -> WindowMotion:
    """Return what the rows of windows are made of."""
    q, dq, ddq = batch.check_state(robot, samples.q, samples.dq, samples.ddq)
    load, direction = load_of(robot, q, dq, ddq), samples.direction_of(robot.drive)
    return WindowMotion(q, dq, ddq, samples.tau, samples.valid, direction, load, windows)


def _fold_pairs(
    plan: FoldPlan, workspace: batch.Workspace, rows: FoldRows, reference: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Fold samples beside their instruments into the factor of [Z_j | Y_j | u_j] per joint."""
    kernel = batch.kernels().fold
    widths = [2 * len(p) + 1 for p in plan.positions]
    factors = [np.zeros(n * n) for n in widths]
    scratch = [np.zeros((n, kernel.CHUNK)) for n in widths]
    q, dq, ddq, direction = reference
    beside = FoldRows(q, dq, ddq, np.zeros_like(rows.tau), rows.weights, direction)
    for first in range(0, len(rows.q), TILE):
        part = slice(first, first + TILE)
        Y = _all_columns(plan, workspace, rows.part(part))
        Z = _all_columns(plan, workspace, beside.part(part))
        for v, (begin, stop) in enumerate(itertools.pairwise(plan.starts)):
            both = np.concatenate([Z[begin : stop - 1], Y[begin:stop]])
            kernel.fold_rows(both, widths[v], scratch[v], factors[v])
    return [f.upright(R.reshape(n, n)) for R, n in zip(factors, widths, strict=True)]


def _all_columns(plan: FoldPlan, workspace: batch.Workspace, rows: FoldRows) -> np.ndarray:
    """Base columns, drive columns and torque of every joint, (rows of the plan, samples)."""
    robot, count = plan.robot, len(rows.q)
    out = np.zeros((plan.starts[-1], -(-count // batch.WIDTH) * batch.WIDTH))
    batch.kernels().fold.base_columns(
        *robot.tree.rigid_arrays,
        robot.kernel_values[1],
        rows.q,
        rows.dq,
        rows.ddq,
        rows.weights,
        plan.columns.places,
        workspace.nodes,
        workspace.directions,
        out,
        0,
    )
    out = out[:, :count]
    out[plan.extra_rows] = drive_and_torque(plan, rows)
    return out
