"""The paper's blend of data and an initial guess (eq. theta_hat_extended)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from thetahat.errors import UsageError
from thetahat.identification import factor as f
from thetahat.identification.estimate import Estimate
from thetahat.identification.estimators.estimator import estimated, guess
from thetahat.identification.estimators.joint_weights import weigh
from thetahat.identification.information import Information
from thetahat.model.robot import Robot


@dataclass(frozen=True, eq=False)
class Prior:
    """Θ̂ = pinv(Ỹ)·Ũ, Ỹ = [αY; (1−α)1], Ũ = [αU; (1−α)Θ₀] (paper, eq. theta_hat_extended): a blend
    of data and an initial guess.

    theta0: a robot, θ, or x = [θ; drive terms]; None: the information's own robot. alpha ∈ (0, 1):
    towards 1 the data, towards 0 the guess. In the paper's unscaled norm: a kilogram weighs as much
    as a kg·m², and a longer log as much more. What the data do not see stays at the guess. Standard
    deviations are those of the data's noise; how wrong the guess is, they cannot know.
    """

    theta0: np.ndarray | Robot | None = None
    alpha: float = 0.5
    weights: str | None = None

    name = "prior"

    def estimate(self, information: Information) -> Estimate:
        """Return the estimate from the rows [αR·M; (1−α)1], Y = Q R M."""
        if not 0.0 < self.alpha < 1.0:
            raise UsageError(
                f"alpha is {self.alpha!r}; give a number between 0 (the guess alone) and 1 (the"
                " data alone), both excluded"
            )
        x0, M = guess(information, self.theta0, "theta0"), information.base.map
        weights = weigh(information, self.weights)
        factor = information.stacked(weights.joints)
        R, z = factor[:-1, :-1], factor[:-1, -1]
        rows = np.vstack([self.alpha * R @ M, (1.0 - self.alpha) * np.eye(M.shape[1])])
        Q, T = np.linalg.qr(rows)
        x = solve_triangular(T, Q.T @ np.concatenate([self.alpha * z, (1.0 - self.alpha) * x0]))
        # x_base = gain·z + what the guess adds
        gain = M @ solve_triangular(T, self.alpha * Q[: len(R)].T)
        return estimated(
            information,
            f.solve(factor),
            method=self.name,
            x=x,
            covariance=weights.variance * gain @ gain.T,
            status="solved",
        )
