"""All joints' rows in one triangle, quickly: the least squares of every update.

Joint j's rows of [Y | u] touch only the columns of what j carries. Absorbed from the leaves to the
root by Householder reflections, the rows of a joint meet only rows of R that its own descendants
filled, so nothing beyond its columns is ever computed: for a tree of 44 joints a tenth of the work
of a dense QR. The result is the factor `Information.stacked` gives, up to the signs of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from types import ModuleType

import numpy as np
from scipy.linalg import lapack

from thetahat.dynamics import batch
from thetahat.identification import factor as f
from thetahat.identification.fold_plan import FoldRows, drive_and_torque, fold_plan
from thetahat.model.robot import Robot
from thetahat.online.causal_filter import FilteredSample

# reciprocal condition of the column-scaled triangle from which it is solved as it is; below,
# singular values decide
CLEAR = 1e-10


@dataclass(frozen=True, eq=False)
class Fit:
    """Least squares from a triangle."""

    x: np.ndarray  # (p,) base parameters
    rank: int  # directions that show at all, noise or not
    factor: np.ndarray  # (p + 1, p + 1)


class Stack:
    """The plan of a robot: which columns each joint touches, in which order joints go in, and
    scratch memory for it.
    """

    def __init__(self, robot: Robot) -> None:
        self.robot, self.plan = robot, fold_plan(robot)
        self.base, self.positions = self.plan.base, self.plan.positions
        self.starts = np.stack(
            [self.plan.starts, np.concatenate([[0], np.cumsum(np.diff(self.plan.starts) ** 2)])],
            axis=1,
        )
        self.height = int(self.plan.starts[-1])
        p = len(self.base)
        self.order = np.argsort([len(own) for own in self.positions], kind="stable")
        lists = self._filled(p)
        sources = [self._sources(v, own) for v, own in enumerate(lists)]
        self._order = (  # for the kernels: order of joints, and where each one's columns are
            self.order,
            np.concatenate([[0], np.cumsum([len(own) for own in lists])]),
            np.concatenate(lists).astype(np.int64),
            np.concatenate(sources).astype(np.int64),
        )
        self.extra_rows = np.array(
            [*(each.row for each in self.plan.columns.drive), *(self.plan.starts[1:] - 1)],
            dtype=np.int64,
        )
        self._matrices = np.zeros((0, 0))

    def __deepcopy__(self, memo: dict[int, object]) -> Stack:
        """A plan is never changed, and scratch memory belongs to one owner."""
        return Stack(self.robot)

    @cached_property
    def kernel(self) -> ModuleType:
        """The module of kernels, imported when first used: Numba takes its time."""
        from thetahat.kernels import online

        return online

    @cached_property
    def workspace(self) -> batch.Workspace:
        """Scratch memory of the regressor."""
        return batch.Workspace(self.robot.tree)

    @cached_property
    def _work(self) -> np.ndarray:
        return np.zeros((len(self.base) + 1, self.kernel.CHUNK))

    def _filled(self, p: int) -> list[np.ndarray]:
        """Columns each joint's rows reach while they are absorbed: its own, and where motors couple
        branches what those share.
        """
        pattern = np.zeros((p, p), dtype=bool)
        lists: list[np.ndarray] = [np.zeros(0, dtype=int)] * len(self.positions)
        for v in self.order:
            reached = np.zeros(p, dtype=bool)
            reached[self.positions[v]] = True
            for k in range(p):
                if reached[k]:
                    reached[k:] |= pattern[k, k:]
                    pattern[k, k:] |= reached[k:]
            lists[v] = np.append(np.flatnonzero(reached), p)
        return lists

    def _sources(self, v: int, columns: np.ndarray) -> np.ndarray:
        """Row of the chunk that holds each of these columns of joint v, −1 where it has none; the
        torque is last.
        """
        place = {int(c): int(self.plan.starts[v]) + k for k, c in enumerate(self.positions[v])}
        return np.array(
            [*(place.get(int(c), -1) for c in columns[:-1]), self.plan.starts[v + 1] - 1]
        )

    # -- rows --------------------------------------------------------------------------------------

    def rows(self, sample: FilteredSample, weights: np.ndarray | None = None) -> np.ndarray:
        """Return every joint's [Y | u] of these samples, chunk after chunk. weights: (samples, nv);
        the result is scratch, until the next call.
        """
        q, dq, ddq, tau = sample
        chunks = -(-len(q) // self.kernel.CHUNK)
        if len(self._matrices) < chunks * self.height:
            self._matrices = np.zeros((chunks * self.height, self.kernel.CHUNK))
        matrices = self._matrices[: chunks * self.height]
        w = np.empty((0, 0)) if weights is None else weights
        extras = drive_and_torque(
            self.plan, FoldRows(q, dq, ddq, tau, weights=w, direction=np.empty((len(q), 0)))
        )
        _, gravity, _ = self.robot.kernel_values
        self.kernel.all_rows(
            (*self.robot.tree.rigid_arrays, gravity),
            (q, dq, ddq),
            w,
            self.plan.columns.places,
            extras,
            self.extra_rows,
            (self.workspace.nodes, self.workspace.directions),
            matrices,
            self.height,
        )
        return matrices

    def single(self, sample: FilteredSample) -> np.ndarray:
        """Return the rows of one sample in all base parameters, (nv, p)."""
        matrices, out = self.rows(sample), np.zeros((len(self.positions), len(self.base)))
        for v, own in enumerate(self.positions):
            begin = int(self.plan.starts[v])
            out[v, own] = matrices[begin : begin + len(own), 0]
        return out

    def of_rows(self, matrices: np.ndarray, joints: np.ndarray | None = None) -> np.ndarray:
        """The triangle (p + 1, p + 1) of rows as `rows` gives them, each joint's times its
        weight.
        """
        R = np.zeros((len(self.base) + 1,) * 2)
        self.kernel.stack_rows(
            self._order, self._joints(joints), matrices, self.height, self._work, R
        )
        return R

    def of_factors(self, factors: np.ndarray, joints: np.ndarray | None = None) -> np.ndarray:
        """The triangle of every joint's own triangles, one after the other in `factors`."""
        R = np.zeros((len(self.base) + 1,) * 2)
        self.kernel.stack_factors(
            self._order, self.starts, self._joints(joints), factors, self._work, R
        )
        return R

    def _joints(self, joints: np.ndarray | None) -> np.ndarray:
        return (
            np.ones(self.robot.nv) if joints is None else np.ascontiguousarray(joints, dtype=float)
        )


def solve(factor: np.ndarray) -> Fit:
    """min ‖R x − z‖ from the triangle: by substitution where it is far from singular, else by
    singular values, least norm in scaled columns.
    """
    p = len(factor) - 1
    R, z = factor[:p, :p], factor[:p, p]
    norms = np.linalg.norm(R, axis=0)
    if p and np.all(norms > 0.0):
        reciprocal, _ = lapack.dtrcon(np.asfortranarray(R / norms))
        if reciprocal > CLEAR:
            x, _ = lapack.dtrtrs(np.asfortranarray(R), z)
            return Fit(x, p, factor)
    solution = f.solve(factor)
    return Fit(solution.x, solution.rank, factor)
