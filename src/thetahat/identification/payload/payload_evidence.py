"""What runs say of a payload's ten numbers once all else that is unknown has been eliminated.

    min over x of ‖S·x + T·θ_p − u‖²  =  ‖R·θ_p − z‖² + ρ²

in units of each run's noise, from the runs' factors alone, by a rank-revealing QR of S: columns of
x that the runs do not tell apart take nothing of what they say about θ_p.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import block_diag, qr, solve_triangular

from thetahat.errors import NotIdentifiable, UsageError
from thetahat.identification import factor as f
from thetahat.identification.estimate import Estimate
from thetahat.identification.estimators.joint_weights import weigh
from thetahat.identification.identifiability.base_parameters import WEAK
from thetahat.identification.information import Information
from thetahat.identification.uncertainty.autocorrelation import WhitenedNoise

QUIETEST = 1e-6  # of a joint's RMS torque: noise counts as no smaller, for a log has no more digits
# singular value at which nothing at all is known of a direction, in units of a payload; keeps what
# is computed of it finite
GONE = 1e-12
# share of a number in a direction that is gone: below, it is what rounding left in the robot file
# (1.5708 for π/2)
ROUNDED = 10.0 * WEAK
FLOOR = 1e-13  # relative eigenvalue of a correlation matrix: below, rounding
# powers of a length in kg·m², kg·m and kg, in the order of θ
_LENGTHS = np.array([2, 2, 2, 1, 1, 2, 2, 1, 2, 0])


@dataclass(frozen=True, eq=False)
class Run:
    """‖rows·x_base − right‖² of a run, in units of its noise, and what of it no x_base explains."""

    rows: np.ndarray
    right: np.ndarray
    left: float  # the least misfit
    rank: int
    # (rows, rows) of `right`, where noise is coloured or the model lacks something; None: one
    covariance: np.ndarray | None = None


def whitened(information: Information, kind: str, inflation: np.ndarray) -> Run:
    """A run in units of its noise, which its own fit leaves; inflation: (nv,) factors on it."""
    if kind not in ("joint", "iterated"):
        raise UsageError(f"weights is {kind!r}; give 'joint' or 'iterated'")
    rms = information.torque_norms() / np.sqrt(np.maximum(information.rows, 1))
    factor = information.stacked(
        1.0 / (np.maximum(weigh(information, kind).noise, QUIETEST * rms) * inflation)
    )
    if not np.all(np.isfinite(factor)):
        raise NotIdentifiable(
            "the factor of the run is not finite; the log's numbers are too large or too small,"
            " check their units"
        )
    solution = f.solve(factor)
    return Run(factor[:, :-1], factor[:, -1], solution.residual**2, solution.rank)


def coloured(noise: WhitenedNoise) -> Run:
    """A run whose noise is known from its samples: correlated, and with what the model may lack.

    No combination of torques counts as known better than rows that are independent tell it.
    """
    solution = noise.solution
    values, vectors = np.linalg.eigh(noise.covariance)
    covariance = (vectors * np.maximum(values, 1.0)) @ vectors.T
    return Run(solution.seen, solution.seen @ solution.x, 0.0, solution.rank, covariance)


def known_rows(x_base: np.ndarray, covariance: np.ndarray) -> Run:
    """What is known of a robot's base parameters, as a run; infinite variance: nothing."""
    rows = inverse_root(covariance)
    return Run(rows, rows @ x_base, 0.0, len(rows))


def prior_rows(estimate: Estimate) -> tuple[np.ndarray, tuple[str, ...]]:
    """(W with WᵀW the inverse covariance of what an estimate determines, advice)."""
    rows, count = inverse_root(estimate.covariance), len(estimate.covariance)
    missing = count - len(rows)
    advice = (
        f"the estimate does not know {missing} of {count} base parameters, which count as"
        " unknown; two runs would tell more"
    )
    return rows, (advice,) if missing else ()


def inverse_root(covariance: np.ndarray) -> np.ndarray:
    """W with WᵀW the inverse of a covariance, without rows for what has infinite variance."""
    variance = np.diag(covariance)
    knows = np.flatnonzero(np.isfinite(variance))
    std = np.sqrt(np.maximum(variance[knows], np.finfo(float).tiny))
    values, vectors = np.linalg.eigh(covariance[np.ix_(knows, knows)] / std / std[:, None])
    rows = np.zeros((len(knows), len(variance)))
    roots = np.sqrt(np.maximum(values, FLOOR * np.max(values, initial=1.0)))
    rows[:, knows] = (vectors / roots).T / std
    return rows


@dataclass(frozen=True, eq=False)
class Evidence:
    """The factor of the payload's ten columns with all else eliminated, and its misfit."""

    factor: np.ndarray  # (11, 11)
    surplus: float  # of the squared misfit over that of the separate fits
    freedom: int  # degrees of freedom of the surplus


def eliminated(
    shared: np.ndarray, ten: np.ndarray, right: np.ndarray, *, runs: tuple[Run, ...]
) -> Evidence:
    """min over the shared unknowns of ‖shared·x + ten·θ_p − right‖². Columns that the runs do not
    tell apart are found by pivoting.
    """
    norms = np.linalg.norm(shared, axis=0)
    rows, rank = np.column_stack([ten, right]), 0
    rest = np.eye(len(right))
    if shared.size and np.any(norms):
        Q, R, _ = qr(shared / np.where(norms > 0.0, norms, 1.0), pivoting=True)
        pivots = np.abs(np.diag(R))
        rank = int(np.sum(pivots > f.RANK * pivots[0]))
        rest = Q[:, rank:]
        rows = rest.T @ rows
    if any(run.covariance is not None for run in runs):
        blocks = (
            np.eye(len(run.rows)) if run.covariance is None else run.covariance for run in runs
        )
        return _with_covariance(rows, rest.T @ block_diag(*blocks) @ rest)
    factor = f.triangle(np.asfortranarray(rows))
    solution = f.solve(factor)
    surplus = solution.residual**2 - sum(run.left for run in runs)
    return Evidence(factor, max(surplus, 0.0), sum(run.rank for run in runs) - rank - solution.rank)


def _with_covariance(rows: np.ndarray, covariance: np.ndarray) -> Evidence:
    """Least squares of [ten | right] whose right side has this covariance: the same payload as
    with independent rows, known as well as the covariance says.
    """
    norms = np.linalg.norm(rows[:, :-1], axis=0)
    scale = np.where(norms > 0.0, norms, 1.0)
    U, s, Vt = np.linalg.svd(rows[:, :-1] / scale)
    rank = int(np.sum(s > f.RANK * s[0])) if len(s) and s[0] > 0.0 else 0
    seen, left = U[:, :rank], U[:, rank:]
    L = np.linalg.cholesky(seen.T @ covariance @ seen)
    own = np.column_stack([s[:rank, None] * Vt[:rank] * scale, seen.T @ rows[:, -1]])
    error = left.T @ rows[:, -1]
    surplus = float(error @ np.linalg.solve(left.T @ covariance @ left, error))
    factor = f.triangle(np.asfortranarray(solve_triangular(L, own, lower=True)))
    return Evidence(factor, max(surplus, 0.0), left.shape[1])


class Sight:
    """The evidence in units of a payload of some mass and size: v = θ_p/scale, singular values
    1/std of its principal directions.
    """

    def __init__(self, factor: np.ndarray, mass: float, size: float) -> None:
        self.scale = mass * size**_LENGTHS
        self.rows, self.right = factor[:, :-1] * self.scale, factor[:, -1]
        U, self.values, self.directions = np.linalg.svd(self.rows, full_matrices=False)
        self._z = U.T @ self.right
        self._gone = self.values <= WEAK * self.values[0]
        self.hidden = self._gone | (self.values < 1.0)
        self._known = np.where(self._gone, GONE, np.maximum(self.values, GONE))

    def best(self, v0: np.ndarray) -> np.ndarray:
        """Least squares; in hidden directions as near to v0 as to the data."""
        own = self.directions @ v0
        along = np.where(
            self.hidden,
            (self.values * self._z + own) / (self.values**2 + 1.0),
            self._z / np.where(self.hidden, 1.0, self.values),
        )
        return np.asarray(self.directions.T @ along)

    def spread(self, gradients: np.ndarray) -> np.ndarray:
        """Return the standard deviation along each direction, (…, 10), of these gradients."""
        along = (gradients * self.scale) @ self.directions.T
        length = np.linalg.norm(along, axis=-1, keepdims=True)
        along[self._gone & (np.abs(along) <= ROUNDED * length)] = 0.0
        return np.asarray(along / self._known)

    def std(self, gradients: np.ndarray) -> np.ndarray:
        """The standard deviation of numbers with these gradients, from the data alone."""
        return np.asarray(np.linalg.norm(self.spread(gradients), axis=-1))
