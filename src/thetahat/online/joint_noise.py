"""What a fit leaves of every joint's torques, which is what its rows are weighed by.

A fit of all rows alike leaves of a light joint what the strong ones leave: of a wrist that takes
1 mN·m beside a shoulder of 60 N·m more than its torque, and rows weighed by that say nothing. So
they are weighed by what the weighed fit leaves, over and over: feasible generalised least squares,
a round an update.
"""

from __future__ import annotations

import numpy as np

from thetahat.online.memory import JointSums

QUIETEST = 1e-6  # of a joint's RMS torque: noise counts as no smaller
ENOUGH = 3  # rows per parameter that they touch: fewer could be fitted to nothing
MOST = 0.9  # share of the rows that parameters take


class JointNoise:
    """σ of every joint. touched: (nv,) how many parameters a joint's rows have."""

    def __init__(self, touched: np.ndarray) -> None:
        self._touched = touched
        self.clear()

    def clear(self) -> None:
        """Forget what was left of another robot's torques."""
        self._variance: np.ndarray | None = None  # by the weighed fit

    def deviations(self, alike: JointSums, rank: int) -> np.ndarray:
        """(nv,) σ [N·m or N], one where a joint has no torque; alike: of the fit that weighs all
        rows alike, with as many parameters as its rank.
        """
        variance = _variance(alike, rank)
        if self._variance is not None:
            certain = alike.rows >= ENOUGH * self._touched
            variance = np.where(certain, self._variance, variance)
        return np.asarray(np.sqrt(np.where(variance > 0.0, variance, 1.0)))

    def update(self, left: JointSums, rank: int) -> None:
        """Take what a fit weighed by these deviations left."""
        self._variance = _variance(left, rank)


def _variance(sums: JointSums, rank: int) -> np.ndarray:
    """(nv,) of the rows' noise; parameters take the same share of every joint's rows."""
    share = min(rank / max(float(np.sum(sums.rows)), 1.0), MOST)
    freedom = np.maximum(sums.rows * (1.0 - share), 1.0)
    rows = np.maximum(sums.rows, 1.0)
    return np.asarray(np.maximum(sums.e2 / freedom, QUIETEST**2 * sums.u2 / rows))
