"""Instrumental variables: least squares that noise in the motion does not bias."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from thetahat.errors import UsageError
from thetahat.identification import factor as f
from thetahat.identification.estimate import Estimate
from thetahat.identification.estimators.estimator import covariance_of_data, estimated
from thetahat.identification.estimators.joint_weights import weigh
from thetahat.identification.estimators.least_squares import minimum_norm
from thetahat.identification.information import Information

# share of the regressor's information that the instruments keep in the worst direction, below
# which they are weak: standard deviations grow at least threefold by them
WEAK = 0.1


@dataclass(frozen=True)
class Instrumental:
    """min ‖R_Z⁻ᵀZᵀ(Y·x − u)‖², Z = Q·R_Z: least squares on the instruments' columns.

    The information must have instruments: th.information(robot, samples, instruments=reference).
    Noise in the motion is in Y and makes least squares shrink (errors in variables); it is not in
    Z, which another record of the motion makes, so that Zᵀ(Y·x − u) has mean zero at the truth
    [Janot2014]. With Z = Y it is least squares. `Consistent` and the other estimators minimise the
    same norm where an information has instruments.

    weights: None, "joint" to weight every joint by its residual in a first fit, or "iterated" until
        the weights settle.
    """

    weights: str | None = None

    name = "instrumental"

    def estimate(self, information: Information) -> Estimate:
        """The estimate, with standard deviations from the residual of the measured motion."""
        require_instruments(information)
        weights = weigh(information, self.weights)
        solution = f.solve(information.stacked(weights.joints))
        strength = instrument_strength(information, weights.joints)
        weak = (
            f"the instruments keep {strength:.2g} of what the motion tells in the worst direction:"
            " they are weak, and standard deviations are wide; give a reference closer to the"
            " motion",
        )
        return estimated(
            information,
            solution,
            method=self.name,
            x=minimum_norm(information, solution),
            covariance=covariance_of_data(solution, weights.variance),
            status="rank_short" if solution.rank < len(information.base) else "solved",
            advice=weak if strength < WEAK else (),
        )


def require_instruments(information: Information) -> None:
    """Raise where an information has no instruments."""
    if information.instrument_factors is None:
        raise UsageError(
            "this information has no instruments; fold it with them: th.information(robot,"
            " samples, instruments=reference)"
        )


def instrument_strength(information: Information, weights: np.ndarray | None = None) -> float:
    """Return the smallest share of YᵀY that P·Y keeps, over all directions of base parameters: 1
    where instruments span the regressor, 0 where they leave a direction out.
    """
    whole = information.without_instruments.stacked(weights)[:-1, :-1]
    part = information.stacked(weights)[:-1, :-1]
    scale = np.linalg.norm(whole, axis=0)
    scale = np.where(scale > 0.0, scale, 1.0)
    if not len(whole) or f.solve(np.pad(whole, (0, 1))).rank < len(whole):
        return 0.0
    ratio = solve_triangular((whole / scale).T, (part / scale).T, lower=True)
    return float(np.min(np.linalg.svd(ratio, compute_uv=False)) ** 2)
