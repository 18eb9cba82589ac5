"""What drive gains that are not known exactly add to the covariance of an estimate.

Torques are gains times what drives report. A gain that is off by a share ε_j makes all torques of
joint j off by that share, row after row the same way: no residual shows it, and more rows do not
average it. It moves the whitened combinations of torques by

    dz = ε_j·h_j,   h_j = w_j·Σ_t z_jt·τ_jt        Cov dz = Σ_j std(ε_j)²·h_j h_jᵀ

which follows from the factors alone.
"""

from __future__ import annotations

import numpy as np

from thetahat.identification import factor as f
from thetahat.identification.estimate import Estimate
from thetahat.identification.estimators.joint_weights import Weights
from thetahat.identification.information import Information
from thetahat.identification.uncertainty.lag_products import JointPart, joint_parts


def with_gain_error(
    estimate: Estimate, information: Information, weights: Weights, relative_std: np.ndarray
) -> Estimate:
    """Return the estimate with a covariance that knows of uncertain drive gains.

    weights: those it was made with. relative_std: (nv,) standard deviation of each joint's gain
        over the gain.
    """
    if not np.any(relative_std > 0.0):
        return estimate
    solution = f.solve(information.stacked(weights.joints))
    spread = np.zeros((solution.rank, solution.rank))
    for part in joint_parts(information, solution, weights.joints):
        moved = part.weight * part.back @ (part.columns.T @ _torque_products(information, part))
        spread += relative_std[part.joint] ** 2 * np.outer(moved, moved)
    sensitivity = estimate.diagnostics.sensitivity
    if sensitivity is None:
        added = solution.inverse @ spread @ solution.inverse.T
        return estimate.with_covariance(estimate.covariance + added)
    wider = sensitivity.with_noise(sensitivity.noise + spread)
    return estimate.with_sensitivity(wider, estimate.diagnostics.posterior)


def _torque_products(information: Information, part: JointPart) -> np.ndarray:
    """Σ_t y_t·τ_t of a joint's rows, or of its instruments' rows where there are any."""
    R, count = information.factors[part.joint], len(part.columns)
    if information.instrument_factors is not None:
        R = information.instrument_factors[part.joint]
    return np.asarray(R[:, :count].T @ R[:, -1])
