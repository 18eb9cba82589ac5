"""How far an estimate moves with the noise of its data and with an error of its prior.

An estimate is the minimum of f = ½‖D·x − z‖² + ½‖B·(x − x₀)‖² on a set of physical robots: data
and prior, each in units of its own spread. Where it is smooth, on the face of the set that the
estimate lies on, a change dz of the data and a change dx₀ of the prior move it by

    dx = H⁻¹Dᵀ·dz + H⁻¹Bᵀ·(B·dx₀),    H = DᵀD + BᵀB + curvature of the face [Shapiro1997]

Noise has Cov dz, from the residuals (autocorrelation.py). The prior is wrong by its own spread,
B·dx₀ of unit covariance, times the factor by which the data contradict it (prior_conflict.py). So

    Cov x = H⁻¹Dᵀ·Cov(dz)·D·H⁻¹ + κ²·H⁻¹BᵀB·H⁻¹

With independent rows and κ = 1 that is the posterior's covariance H⁻¹; without a prior, that of
least squares. Where the second part is the larger one, the prior tells more than the data do: it
decides the parameter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """First-order changes of x = [θ; drive terms] with what it was estimated from."""

    data: np.ndarray  # (columns, r) per unit of each whitened combination of torques
    prior: np.ndarray  # (columns, s) per spread of the prior, direction by direction
    noise: np.ndarray  # (r, r) covariance of the combinations of torques
    conflict: float = 1.0  # κ ≥ 1: spreads by which the data say that the prior is off
    # (p,) share of each base parameter's variance that bounds and cones take away
    held: np.ndarray | None = None

    def with_noise(self, noise: np.ndarray) -> Sensitivity:
        """Return the same with another covariance of the combinations of torques."""
        return replace(self, noise=noise)

    def covariance(self, rows: np.ndarray) -> np.ndarray:
        """Return the covariance of rows·x, by noise and by the prior's own spread."""
        return np.asarray(self.noise_covariance(rows) + self.prior_covariance(rows))

    def noise_covariance(self, rows: np.ndarray) -> np.ndarray:
        """Return the part of the covariance of rows·x that noise makes."""
        moved = rows @ self.data
        return np.asarray(moved @ self.noise @ moved.T)

    def prior_covariance(self, rows: np.ndarray) -> np.ndarray:
        """Return the part of the covariance of rows·x that an error of the prior makes."""
        moved = self.conflict * (rows @ self.prior)
        return np.asarray(moved @ moved.T)

    def prior_share(self, rows: np.ndarray) -> np.ndarray:
        """Return the share of each variance of rows·x that an error of the prior makes."""
        prior = np.sum((self.conflict * (rows @ self.prior)) ** 2, axis=1)
        moved = rows @ self.data
        total = prior + np.einsum("ij,jk,ik->i", moved, self.noise, moved)
        return np.where(total > 0.0, prior / np.where(total > 0.0, total, 1.0), 1.0)
