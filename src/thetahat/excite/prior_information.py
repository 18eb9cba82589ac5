"""What a robot file tells of the base parameters before any log: the prior of a Bayesian design.

Every body's pseudo-inertia J is known to a relative spread s, in the metric that knows no units
[Lee2018]: −log p = tr(J₀⁻¹ δJ J₀⁻¹ δJ)/4s². A body scaled by 1 + s is then about √2 standard
deviations away. Friction, offsets and rotors are not known at all. In base parameters β = B·x that
is the information (B Λ⁻¹ Bᵀ)⁻¹, Λ that of all parameters.

The criterion log det(F + P) with it is the Bayesian D-optimality of [Chaloner1995].
"""

from __future__ import annotations

import numpy as np

from thetahat.errors import check_positive
from thetahat.identification.identifiability.base_parameters import base_parameters
from thetahat.model import parameters
from thetahat.model.robot import Robot

SMALLEST = 0.02  # [m] radius of gyration that a body has at least, along every axis
# over the column's own scale: standard deviation of what is not known at all
UNKNOWN = 1e4


def prior_information(robot: Robot, spread: float) -> np.ndarray:
    """Return the information (p, p) that the robot's parameters hold on its base parameters.

    spread: relative standard deviation of inertial parameters, such as 0.3.
    """
    check_positive(
        "prior_spread", spread, "how well the robot file's inertia is known, such as 0.3"
    )
    base = base_parameters(robot).strong
    scale = np.where(base.scale > 0.0, base.scale, 1.0)
    covariance = np.diag((UNKNOWN / scale) ** 2)
    for body in range(len(robot.body_names)):
        at = slice(10 * body, 10 * body + 10)
        own = body_covariance(robot.theta[at], spread)
        if own is not None:
            covariance[at, at] = own
    of_base = base.map @ covariance @ base.map.T
    size = np.sqrt(np.diag(of_base))
    inverse = np.linalg.inv(of_base / np.outer(size, size))
    return np.asarray((inverse + inverse.T) / (2.0 * np.outer(size, size)))


def body_covariance(theta: np.ndarray, spread: float) -> np.ndarray | None:
    """Return the covariance (10, 10) of one body's parameters; None without mass."""
    mass = float(theta[parameters.M])
    if not mass > 0.0:
        return None
    J = parameters.to_pseudo_inertia(theta)
    values, axes = np.linalg.eigh(J[:3, :3] - np.outer(J[:3, 3], J[:3, 3]) / mass)
    wide = (axes * np.maximum(values, mass * SMALLEST**2)) @ axes.T
    J = J.copy()
    J[:3, :3] = wide + np.outer(J[:3, 3], J[:3, 3]) / mass
    units = np.stack([parameters.to_pseudo_inertia(unit) for unit in np.eye(10)])
    scaled = np.linalg.solve(J, units)  # J⁻¹E per parameter
    metric = np.einsum("aij,bji->ab", scaled, scaled) / (2.0 * spread**2)
    return np.linalg.inv(metric)
