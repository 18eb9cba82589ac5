"""By how many of its own spreads a prior is off, as the data tell: empirical Bayes.

    z = D·v + noise,  B·v = B·v₀ + κ·unit   ⇒   z − D·v₀ ~ N(0, 1 + κ²·D·(BᵀB)⁻¹Dᵀ)

κ is where that density of the data is largest [MacKay1992], and never less than one: a prior that
happens to be right says nothing of how right it is elsewhere. Only the bodies' part is scaled;
drive terms have a wide prior by themselves, and none that could be wrong.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

LARGEST = 1e3  # spreads: a prior further off than that is no prior
STEPS = 121  # of log κ²; neighbours differ by a tenth


def prior_conflict(
    D: np.ndarray, left: np.ndarray, precision: np.ndarray, bodies: np.ndarray
) -> float:
    """Return κ.

    Args:
        D: (rows, k) data in units of its noise.
        left: (rows,) what the prior leaves of the data, z − D·v₀.
        precision: (k, k) BᵀB of the prior; a singular one tells nothing.
        bodies: (k,) bool, which entries of v are bodies', whose prior is in question.

    """
    if not np.any(bodies) or not len(left):
        return 1.0
    try:
        inner = _spread(D[:, bodies], precision[np.ix_(bodies, bodies)])
        outer = _spread(D[:, ~bodies], precision[np.ix_(~bodies, ~bodies)])
        root = np.linalg.cholesky(np.eye(len(left)) + outer)
    except np.linalg.LinAlgError:
        return 1.0
    turned = solve_triangular(root, inner, lower=True)
    values, vectors = np.linalg.eigh(solve_triangular(root, turned.T, lower=True))
    squares = (vectors.T @ solve_triangular(root, left, lower=True)) ** 2
    factors = np.geomspace(1.0, LARGEST**2, STEPS)
    variances = 1.0 + factors[:, None] * np.maximum(values, 0.0)
    cost = np.sum(np.log(variances) + squares / variances, axis=1)
    return float(np.sqrt(factors[int(np.argmin(cost))]))


def _spread(D: np.ndarray, precision: np.ndarray) -> np.ndarray:
    """D·precision⁻¹·Dᵀ."""
    if not D.shape[1]:
        return np.zeros((len(D), len(D)))
    return np.asarray(D @ cho_solve((np.linalg.cholesky(precision), True), D.T))
