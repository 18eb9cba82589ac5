"""The regressor of Slotine and Li, checked, and its prepared form for a loop."""

from __future__ import annotations

import numpy as np

from thetahat.dynamics import batch
from thetahat.errors import UsageError
from thetahat.model.robot import Robot


def slotine_li_regressor(
    robot: Robot, q: np.ndarray, dq: np.ndarray, dq_r: np.ndarray, ddq_r: np.ndarray
) -> np.ndarray:
    """Y, (…, nv, 10·bodies), with Y(q, q̇, q̇_r, q̈_r)·θ = D q̈_r + C(q, q̇) q̇_r + G, C as
    `coriolis_matrix` has it [Slotine1987].

    Linear in (q̇_r, q̈_r); with q̇_r = q̇ it is `regressor(robot, q, dq, ddq_r)`.
    """
    q, dq, ddq_r = batch.check_state(robot, q, dq, ddq_r, names=("dq", "ddq_r"))
    dq_r = batch.check_array(
        "dq_r", dq_r, robot.nv, f"one number per degree of freedom of {robot.name!r}"
    )
    if dq_r.shape != dq.shape:
        raise UsageError(
            f"dq has shape {dq.shape} but dq_r has {dq_r.shape}; give the same number of samples"
        )
    columns, tree = len(robot.theta), robot.tree
    out = np.empty((*dq.shape, columns))
    if not out.size:
        return out
    w = batch.Workspace(tree)
    batch.kernels().slotine_li.regressor(
        *tree.rigid_arrays,
        robot.kernel_values[1],
        *(batch.rows(a) for a in (q, dq, dq_r, ddq_r)),
        columns,
        w.nodes,
        w.directions,
        w.composite,
        out.reshape(-1, robot.nv * columns),
    )
    return out


class AdaptiveTerms:
    """Y·θ and Yᵀs of one robot without the matrix, prepared: fill `q`, `dq`, `dq_r`, `ddq_r`, `s`
    and `theta`, call, read `tau` and `gradient`.
    """

    def __init__(self, robot: Robot) -> None:
        tree, w, n = robot.tree, batch.Workspace(robot.tree), robot.nv
        theta, gravity, _ = robot.kernel_values
        self.theta = theta.copy()  # (10·bodies,)
        state = [np.zeros((1, robot.nq)), *(np.zeros((1, n)) for _ in range(4))]
        self.q, self.dq, self.dq_r, self.ddq_r, self.s = (array[0] for array in state)
        tau, gradient = np.zeros((1, n)), np.zeros((1, len(theta)))
        self.tau, self.gradient = tau[0], gradient[0]
        self._kernel = batch.kernels().slotine_li.torque_and_gradient
        self._arguments = (
            *tree.rigid_arrays,
            gravity,
            self.theta,
            *state,
            w.nodes,
            w.directions,
            w.composite,
            w.forces,
            w.torques,
            tau,
            gradient,
        )
        self()  # compiles it now, not in the first cycle of a loop

    def __call__(self) -> None:
        """Fill `tau` (nv,) and `gradient` (10·bodies,)."""
        self._kernel(*self._arguments)
