"""Least squares by the pseudo-inverse (paper, eq. theta_hat)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thetahat.errors import NotIdentifiable
from thetahat.identification import factor as f
from thetahat.identification.estimate import Estimate
from thetahat.identification.estimators.estimator import covariance_of_data, estimated
from thetahat.identification.estimators.joint_weights import weigh
from thetahat.identification.information import Information


@dataclass(frozen=True)
class LeastSquares:
    """Θ̂ = pinv(Y)·U (paper, eq. theta_hat): least squares, and of all solutions the one of least
    norm, in the paper's unscaled units. It takes no notice of instruments: `Instrumental` does.

    weights: None, "joint" to weight every joint by its residual in a first fit, or "iterated" until
        the weights settle.
    strict: raise `NotIdentifiable` where the data see fewer directions than the robot has.
    """

    weights: str | None = None
    strict: bool = False

    name = "least-squares"

    def estimate(self, information: Information) -> Estimate:
        """The estimate, with standard deviations from the residual."""
        information = information.without_instruments
        weights = weigh(information, self.weights)
        solution = f.solve(information.stacked(weights.joints))
        if self.strict and solution.rank < len(information.base):
            raise NotIdentifiable(
                f"rank {solution.rank} of {len(information.base)}: {information.missing()[0]}"
            )
        x = minimum_norm(information, solution)
        short = solution.rank < len(information.base)
        covariance = covariance_of_data(solution, weights.variance)
        return estimated(
            information,
            solution,
            method=self.name,
            x=x,
            covariance=covariance,
            status="rank_short" if short else "solved",
        )


def minimum_norm(information: Information, solution: f.Solution) -> np.ndarray:
    """Of all x that fit as well as x_base, the one of least norm.

    With everything seen: M x = x_base. Otherwise only what the data determine is asked for: S·M x =
    S x_base.
    """
    M = information.base.map
    if solution.rank == len(information.base):
        return np.asarray(np.linalg.lstsq(M, solution.x, rcond=None)[0])
    # rows of one size, so that none is taken for rounding
    scale = np.linalg.norm(solution.seen, axis=1, keepdims=True)
    return np.asarray(
        np.linalg.lstsq(solution.seen / scale @ M, solution.seen / scale @ solution.x, rcond=None)[
            0
        ]
    )
