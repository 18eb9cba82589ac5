"""Algorithm 1 of the paper: the regressor, one unit parameter at a time.

Slow and literal, as the reference for `thetahat.dynamics.rigid_body.regressor`.
"""

from __future__ import annotations

import numpy as np

from thetahat.dynamics import batch
from thetahat.dynamics.rigid_body import inverse_dynamics
from thetahat.model.robot import Robot


def regressor_by_unit_parameters(
    robot: Robot, q: np.ndarray, dq: np.ndarray, ddq: np.ndarray
) -> np.ndarray:
    """Compute the regressor Y, (…, nv, 10·bodies), column by column.

    Column k is D q̈ + C q̇ + G at θ = e_k, the k-th unit vector: O(bodies²).
    """
    q, dq, ddq = batch.check_state(robot, q, dq, ddq)
    unit_vectors = np.eye(len(robot.theta))
    Y = np.empty((*q.shape[:-1], robot.nv, len(robot.theta)))
    for k, theta in enumerate(unit_vectors):
        Y[..., k] = inverse_dynamics(robot, q, dq, ddq, rigid=True, theta=theta)
    return Y
