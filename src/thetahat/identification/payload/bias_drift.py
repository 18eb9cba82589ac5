"""Noise of a sensor channel whose bias drifts: white noise plus a random walk along the rows.

The strength of the random walk is chosen by restricted maximum likelihood (Patterson and Thompson
1971), and it is kept only where it explains the residuals better than white noise does.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import linalg, optimize

LIKELY = 5.41  # 2 log likelihood ratio: the 1 % level of a variance that cannot be negative
WEAKEST, STRONGEST = 1e-6, 1e6  # variance of a whole walk, relative to the white noise


@dataclass(frozen=True, eq=False)
class WalkBasis:
    """Eigenvectors of the covariance of a random walk at given times, its mean taken out."""

    time: np.ndarray  # (n,) rising

    @cached_property
    def _eigen(self) -> tuple[np.ndarray, np.ndarray]:
        span = max(float(np.ptp(self.time)), 1e-12)
        s = (self.time - self.time[0]) / span
        covariance = np.minimum(s[:, None], s[None, :])
        covariance -= covariance.mean(axis=0)
        covariance -= covariance.mean(axis=1, keepdims=True)
        values, vectors = linalg.eigh(covariance)
        return np.clip(values, 0.0, None), vectors

    @property
    def variances(self) -> np.ndarray:
        """Variances (n,) of the components, for a walk of variance 1 over the whole time."""
        return self._eigen[0]

    def components(self, values: np.ndarray) -> np.ndarray:
        """Return series (n, …) in the basis."""
        return np.asarray(self._eigen[1].T @ values)

    def series(self, components: np.ndarray) -> np.ndarray:
        """Return components (n, …) as series again."""
        return np.asarray(self._eigen[1] @ components)


@dataclass(frozen=True)
class ChannelNoise:
    """White noise of a channel, and the random walk of its bias."""

    white: float  # standard deviation
    walk: float = 0.0  # variance of the walk over the whole time, relative to the white noise's
    likelihood_ratio: float = 0.0  # 2 log of it, of the walk against white noise alone

    @property
    def drifts(self) -> bool:
        """Whether the bias walks."""
        return self.walk > 0.0

    def scales(self, basis: WalkBasis) -> np.ndarray:
        """Return standard deviations (n,) of the components."""
        return self.white * np.sqrt(1.0 + self.walk * basis.variances)

    def drift(self, residual: np.ndarray, basis: WalkBasis) -> np.ndarray:
        """Return the walk (n,) that the residual (n,) shows: its mean given the data."""
        share = self.walk * basis.variances / (1.0 + self.walk * basis.variances)
        return basis.series(share * basis.components(residual))


def channel_noise(
    columns: np.ndarray, values: np.ndarray, basis: WalkBasis, *, floor: float
) -> ChannelNoise:
    """Estimate the noise of a channel (n,) that is linear in its own columns (n, p).

    floor: the least standard deviation, of the channel's resolution.
    """
    x, y = basis.components(columns), basis.components(values)
    dof = max(len(y) - columns.shape[1], 1)

    def deviance(walk: float) -> tuple[float, float]:
        """(−2 log restricted likelihood, white variance) of a walk."""
        variance = 1.0 + walk * basis.variances
        scaled = x / np.sqrt(variance)[:, None]
        q, r = np.linalg.qr(scaled)
        target = y / np.sqrt(variance)
        rest = target - q @ (q.T @ target)
        square = max(float(rest @ rest) / dof, floor**2)
        determinant = 2.0 * np.sum(np.log(np.abs(np.diag(r)) + 1e-300))
        return float(np.sum(np.log(variance)) + determinant + dof * np.log(square)), square

    plain, square = deviance(0.0)
    if len(y) < columns.shape[1] + 4:  # too few to tell
        return ChannelNoise(np.sqrt(square))
    grid = np.linspace(np.log(WEAKEST), np.log(STRONGEST), 25)
    best = int(np.argmin([deviance(np.exp(log))[0] for log in grid]))
    bounds = (grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)])
    found = optimize.minimize_scalar(
        lambda log: deviance(np.exp(log))[0], bounds=bounds, method="bounded"
    )
    walk = float(np.exp(found.x))
    ratio = plain - float(found.fun)
    if ratio < LIKELY:
        return ChannelNoise(np.sqrt(square), 0.0, max(ratio, 0.0))
    return ChannelNoise(np.sqrt(deviance(walk)[1]), walk, ratio)
