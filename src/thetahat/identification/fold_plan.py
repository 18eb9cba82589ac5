"""Where the columns of every joint's rows go when samples are folded, and the drive's columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from thetahat.dynamics import rigid_body
from thetahat.identification.identifiability.base_parameters import BaseParameters, base_parameters
from thetahat.identification.parameter_columns import Columns
from thetahat.model.robot import Robot
from thetahat.model.tree import V_INDEX


@dataclass(frozen=True)
class DriveColumn:
    """Where a drive column of one joint goes."""

    dof: int
    term: int
    motor: int
    row: int  # of the joint matrices stacked

    def of(self, B: np.ndarray | None, columns: Sequence[np.ndarray]) -> np.ndarray:
        """Return its values, (samples,); B maps motors to joints, columns are those of terms."""
        values = columns[self.term][:, self.motor]
        return np.asarray(values if B is None else values * B[..., self.dof, self.motor])


@dataclass(frozen=True, eq=False)
class ColumnPlaces:
    """Rows of the stacked joint matrices that the regressor's columns go to."""

    places: np.ndarray  # (dofs, 10·bodies) int64, −1 where a column is not used
    drive: tuple[DriveColumn, ...]


def column_places(
    robot: Robot, base: BaseParameters, positions: Sequence[np.ndarray], starts: np.ndarray
) -> ColumnPlaces:
    """Return where the base columns of every joint go: joint v's matrix begins at row starts[v]."""
    columns, motors = Columns(robot), robot.drive.column_motors
    place = np.full((robot.nv, columns.count), -1, dtype=np.int64)
    for v, used in enumerate(positions):
        place[v, base.independent[used]] = starts[v] + np.arange(len(used))
    drive_from = columns.inertial
    drive = [
        DriveColumn(
            int(v),
            int(c) // len(motors),
            motors[int(c) % len(motors)],
            int(place[v, columns.inertial + c]),
        )
        for v, c in np.argwhere((place >= 0)[:, drive_from:] & columns.touches[:, drive_from:])
    ]
    bodies = np.ascontiguousarray(place[robot.tree.arrays.dofs[:, V_INDEX], : columns.inertial])
    return ColumnPlaces(bodies, tuple(drive))


@dataclass(frozen=True, eq=False)
class FoldPlan:
    """How samples are folded: joint v's matrix is rows starts[v] : starts[v + 1] of a chunk, torque
    last.
    """

    robot: Robot
    base: BaseParameters
    positions: tuple[np.ndarray, ...]
    starts: np.ndarray  # (nv + 1,)
    columns: ColumnPlaces

    @cached_property
    def extra_rows(self) -> np.ndarray:
        """Rows that drive columns and torques go to, in the order of `drive_and_torque`."""
        drive = (each.row for each in self.columns.drive)
        return np.array([*drive, *(self.starts[1:] - 1)], dtype=np.int64)


def fold_plan(robot: Robot) -> FoldPlan:
    """Return how samples of a robot are folded."""
    # Without the weak directions: they depend on the rounding of the robot file, and beside them
    # the others would lose six digits.
    base = base_parameters(robot).strong
    touched = Columns(robot).fitted[:, base.independent]
    positions = tuple(np.flatnonzero(row) for row in touched)
    starts = np.concatenate([[0], np.cumsum([len(p) + 1 for p in positions])])
    return FoldPlan(robot, base, positions, starts, column_places(robot, base, positions, starts))


@dataclass(frozen=True, eq=False)
class FoldRows:
    """Arrays of some samples; weights and direction have no columns where there are none."""

    q: np.ndarray
    dq: np.ndarray
    ddq: np.ndarray
    tau: np.ndarray
    weights: np.ndarray
    direction: np.ndarray

    def part(self, rows: slice) -> FoldRows:
        """Return some of the rows."""
        weights = self.weights[rows] if self.weights.shape[1] else np.empty((0, 0))
        state = (self.q[rows], self.dq[rows], self.ddq[rows], self.tau[rows])
        return FoldRows(*state, weights, self.direction[rows])


def load_of(robot: Robot, q: np.ndarray, dq: np.ndarray, ddq: np.ndarray) -> np.ndarray | None:
    """Return the rigid-body torque by the robot's own values, where a drive column needs it."""
    return (
        rigid_body.inverse_dynamics(robot, q, dq, ddq, rigid=True, threads=1)
        if robot.drive.needs_load
        else None
    )


def drive_and_torque(plan: FoldPlan, rows: FoldRows) -> np.ndarray:
    """Return drive columns, then torques, of every joint, (columns, samples), times the weights."""
    drive, q, dq, ddq = plan.columns.drive, rows.q, rows.dq, rows.ddq
    out = np.empty((len(drive) + plan.robot.nv, len(q)))
    if drive:
        B, columns = plan.robot.drive.motor_columns(
            dq,
            ddq,
            q=q,
            load=load_of(plan.robot, q, dq, ddq),
            direction=rows.direction if rows.direction.shape[1] else None,
        )
        for row, each in zip(out, drive, strict=False):
            row[:] = each.of(B, columns)
    out[len(drive) :] = rows.tau.T
    if len(rows.weights):
        out *= rows.weights[:, [*(each.dof for each in drive), *range(plan.robot.nv)]].T
    return out
