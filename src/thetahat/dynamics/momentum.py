"""Regressors of generalized momentum, which need no accelerations.

p = D(q) q̇ = Y_p·θ,    τ = ṗ + G − Cᵀq̇ = d/dt(Y_p·θ) + Y_r·θ
"""

from __future__ import annotations

import numpy as np

from thetahat.dynamics import batch
from thetahat.model.robot import Robot
from thetahat.model.tree import V_INDEX

_COST = 1.0  # [µs] per sample, roughly: for the choice of threads


def momentum_regressor(robot: Robot, q: np.ndarray, dq: np.ndarray) -> np.ndarray:
    """Compute Y_p, (…, nv, 10·bodies), with Y_p(q, q̇)·θ = D(q) q̇, the generalized momentum."""
    return _whole(robot, q, dq)[0]


def momentum_rate_regressor(robot: Robot, q: np.ndarray, dq: np.ndarray) -> np.ndarray:
    """Compute Y_r, (…, nv, 10·bodies), with Y_r(q, q̇)·θ = G(q) − C(q, q̇)ᵀq̇.

    The torque is the rate of the generalized momentum and this: τ = d/dt(Y_p·θ) + Y_r·θ.
    """
    return _whole(robot, q, dq)[1]


def _whole(robot: Robot, q: np.ndarray, dq: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(Y_p, Y_r) with all columns."""
    q, dq = batch.check_state(robot, q, dq)
    nv, columns = robot.nv, len(robot.theta)
    rows = np.arange(nv * columns, dtype=np.int64).reshape(nv, columns)
    places = rows[robot.tree.arrays.dofs[:, V_INDEX]]
    shape = (*q.shape[:-1], nv, columns)
    both = momentum_columns(robot, batch.rows(q), batch.rows(dq), places, rows=nv * columns)
    momenta, rates = (np.ascontiguousarray(each.T).reshape(shape) for each in both)
    return momenta, rates


def momentum_columns(
    robot: Robot,
    q: np.ndarray,
    dq: np.ndarray,
    places: np.ndarray,
    *,
    rows: int,
    threads: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return chosen columns of Y_p and Y_r, (rows, samples) each.

    Args:
        robot: whose columns.
        q: (samples, nq).
        dq: (samples, nv).
        places: (dofs, 10·bodies) the row that a column of a degree of freedom goes to; −1: none.
        rows: of the results; those that no column goes to are zero.
        threads: that share the samples.

    """
    kernel, gravity = batch.kernels().momentum.momentum_columns, robot.kernel_values[1]
    count = len(q)
    padded = -(-count // batch.WIDTH) * batch.WIDTH  # tiles are written whole
    momenta, rates = np.zeros((rows, padded)), np.zeros((rows, padded))

    def call(w: batch.Workspace, at: np.ndarray, q: np.ndarray, dq: np.ndarray) -> None:
        start = int(at[0])
        fixed = (*robot.tree.rigid_arrays, gravity)
        kernel(*fixed, q, dq, places, w.nodes, w.directions, momenta, rates, start)

    # writeable: Numba compiles for no other kind
    state = [np.array(a, dtype=float, order="C") for a in (q, dq)]
    batch.run(robot, threads, _COST, call, np.arange(count), *state)
    return momenta[:, :count], rates[:, :count]
