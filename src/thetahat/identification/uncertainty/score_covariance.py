"""Covariance of a fit's combinations of torques, row by row, where noise in the motion enters.

A model of stationary noise, one joint at a time (`noise.py`), is right for torque sensors. Noise of
an encoder reaches the torques through the mass matrix: all joints feel the same acceleration
noise, and feel it more in some postures than in others. Both show in the scores

    g_t = Σ_j w_j·z_jt·e_jt,   C = Σ_t Σ_s k(|t − s|/L)·g_t g_sᵀ    [NeweyWest1987]

with z the joints' rows in whitened columns, e their residuals, and k Parzen's weights. C alone is
too small: the residual lacks what the fit took, and k what is correlated for longer than L. Both
are in the model of stationary noise, so C only corrects it, as after prewhitening [Andrews1992]:

    A^½·B^{-½}·C·B^{-½}·A^½

A is the covariance by the model, B what C would be were the noise as the model says: of each joint
alone, stationary, from the same residuals with the same k. Without noise in the motion C is B but
for chance, and A is left.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from thetahat.identification.estimators.estimator import Source
from thetahat.identification.information import Information
from thetahat.identification.time_blocks import base_rows, blocks, instrument_rows, row_plan
from thetahat.identification.uncertainty.lag_products import (
    BLOCK,
    JointPart,
    LagProduct,
    lag_products,
    together,
)
from thetahat.identification.uncertainty.noise import TAIL, LagSums

REACH = 4.0  # L over the rows that make one independent one
# stretches of length L in the log: with fewer, C is known to no better than 15 % or so
STRETCHES = 40.0


def row_by_row(
    information: Information,
    x_base: np.ndarray,
    samples: Source,
    parts: list[JointPart],
    sums: Sequence[LagSums],
    *,
    middle: np.ndarray,
    rows_per_independent: float,
) -> np.ndarray:
    """Return the covariance of the whitened combinations of torques, (rank, rank), corrected for
    noise that joints share and that changes along the motion.

    middle: by the model of stationary noise. rows_per_independent: by which correlation multiplies
        its variances. Where the log is too short to tell, it is returned as it is.
    """
    reach = max(int(np.ceil(REACH * rows_per_independent)), 1)
    if reach * STRETCHES > max(each.pairs[0] for each in sums):
        return middle
    taper = parzen(np.arange(reach) / reach)
    alone = [taper * each.residual[:reach] / np.maximum(each.pairs[:reach], 1.0) for each in sums]
    shares = lag_products(information, samples, parts, alone)
    B = together(parts, shares, len(middle))
    C = _score_products(information, x_base, samples, parts, taper)
    gain = _root(middle, 0.5) @ _root(B, -0.5)
    return np.asarray(gain @ C @ gain.T)


def parzen(u: np.ndarray) -> np.ndarray:
    """Return Parzen's weights k(u) of lags 0 ≤ u: a positive definite function that ends at 1."""
    inner, outer = 1.0 - 6.0 * u**2 * (1.0 - u), 2.0 * np.maximum(1.0 - u, 0.0) ** 3
    return np.where(u <= 0.5, inner, outer)


def _score_products(
    information: Information,
    x_base: np.ndarray,
    samples: Source,
    parts: list[JointPart],
    taper: np.ndarray,
) -> np.ndarray:
    """C: one more pass over the log."""
    plan, rank = row_plan(information), len(parts[0].back)
    size = max(BLOCK, 1 << (2 * len(taper) - 1).bit_length())
    work = LagProduct(rank, taper, size)
    instruments = information.instrument_factors is not None
    for block in blocks(samples, plan.information.robot, size, reach=max(len(taper), 2)):
        rows = base_rows(plan, block)
        fitted = instrument_rows(plan, block) if instruments else rows
        scores = np.zeros((rank, len(block)))
        for part in parts:
            v, own = part.joint, slice(*plan.starts[part.joint :][:2])
            torque = np.where(block.usable[:, v], block.tau[:, v], 0.0)
            residual = torque - x_base[information.positions[v]] @ rows[own]
            scores += part.weight * part.back @ (part.columns.T @ fitted[own] * residual)
        work.add(scores, first=block.first)
    return work.symmetric


def _root(matrix: np.ndarray, power: float) -> np.ndarray:
    """A symmetric power of a positive matrix, whose smallest eigenvalues may be rounding."""
    values, vectors = np.linalg.eigh(matrix)
    values = np.maximum(values, TAIL * np.max(values, initial=0.0))
    return np.asarray((vectors * values**power) @ vectors.T)
