"""How well the torque is known: confidence bands of a prediction, from the covariance of the base
parameters, or from robots drawn from the estimate.

    τ̂ = Y·x,    half-width = z·√(diag(Y·Cov·Yᵀ) + σ²)
                σ: the noise of a measured torque, where the band is to hold that
"""

from __future__ import annotations

import numpy as np
from scipy import special

from thetahat.data.samples import Samples
from thetahat.errors import UsageError
from thetahat.identification.estimate import Estimate
from thetahat.identification.parameter_columns import Columns, full_regressor
from thetahat.identification.uncertainty.posterior import RobotSamples

TILE = 2048  # samples whose regressor is held at once
SAMPLED = 2_000_000  # torques of drawn robots held at once
TOUCHED = 1e-9  # of a column's size at typical states: entries below are rounding


def torque_band(
    estimate: Estimate,
    state: Samples | tuple[np.ndarray, np.ndarray, np.ndarray],
    *,
    level: float = 0.95,
    noise: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ma.MaskedArray]:
    """(torque that the estimate predicts, half-width of its band), each (samples, nv); one state
    (n,) counts as one sample.

    state: samples, or (q, dq, ddq). noise: (nv,) standard deviation of each joint's torque noise;
    with it the band holds a measured torque with this probability, without it the noise-free one.
    Masked where a row touches a parameter that the data do not see.
    """
    _require_level(level)
    q, dq, ddq = _rows(state)
    extra = _variance(noise, estimate.robot.nv)
    seen = np.isfinite(np.diag(estimate.covariance))
    C = np.where(seen[:, None] & seen, estimate.covariance, 0.0)
    independent, size = estimate.base.independent, estimate.base.scale[estimate.base.independent]
    touches = Columns(estimate.robot).touches[:, independent]
    predicted = np.empty(dq.shape)
    variance, hidden = np.empty(dq.shape), np.zeros(dq.shape, dtype=bool)
    for at in range(0, len(dq), TILE):
        part = slice(at, at + TILE)
        Y = full_regressor(estimate.robot, q[part], dq[part], ddq[part])[..., independent]
        predicted[part] = Y @ estimate.x_base
        for v, mine in enumerate(touches):  # a joint's row holds only what the joint carries
            rows = Y[:, v, mine]
            variance[part, v] = np.einsum("sk,sk->s", rows @ C[np.ix_(mine, mine)], rows)
        hidden[part] = np.any(np.abs(Y[..., ~seen]) > TOUCHED * size[~seen], axis=-1)
    half = special.ndtri(0.5 * (1.0 + level)) * np.sqrt(np.maximum(variance, 0.0) + extra)
    return predicted, np.ma.masked_array(np.where(hidden, 0.0, half), mask=hidden)


def sampled_torque_band(
    drawn: RobotSamples,
    state: Samples | tuple[np.ndarray, np.ndarray, np.ndarray],
    *,
    level: float = 0.95,
) -> tuple[np.ndarray, np.ndarray]:
    """(lower, upper) edge of the band that holds this share of drawn robots' torques, each
    (samples, nv); one state (n,) counts as one sample.

    Bounds of physical bodies are in it, and parameters that the data do not see spread as the prior
    has them, so that no row is masked.
    """
    _require_level(level)
    q, dq, ddq = _rows(state)
    tail, nv = 0.5 * (1.0 - level), drawn.robot.nv
    tile = max(1, SAMPLED // (nv * len(drawn)))
    edges = np.empty((2, len(dq), nv))
    for at in range(0, len(dq), tile):
        part = slice(at, at + tile)
        Y = full_regressor(drawn.robot, q[part], dq[part], ddq[part])
        edges[:, part] = np.quantile(Y @ drawn.x.T, [tail, 1.0 - tail], axis=-1)
    return edges[0], edges[1]


def _require_level(level: float) -> None:
    if not 0.0 < level < 1.0:
        raise UsageError(
            f"level is {level!r}; give the probability that the band holds the torque, between 0"
            " and 1"
        )


def _rows(state: Samples | tuple[np.ndarray, np.ndarray, np.ndarray]) -> list[np.ndarray]:
    """q, dq, ddq, one row per sample."""
    given = (state.q, state.dq, state.ddq) if isinstance(state, Samples) else state
    return [np.atleast_2d(np.asarray(each, dtype=float)) for each in given]


def _variance(noise: np.ndarray | None, nv: int) -> np.ndarray:
    if noise is None:
        return np.zeros(nv)
    std: np.ndarray = np.ma.filled(np.ma.asarray(noise, dtype=float), np.nan)
    if std.shape != (nv,) or not np.all(np.isfinite(std)) or np.any(std < 0.0):
        raise UsageError(
            f"noise is {noise}; give {nv} finite standard deviations of at least 0, one per degree"
            " of freedom"
        )
    return std**2
