"""How much each joint's rows count: alike, or by what a fit leaves of their torques."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import solve_triangular

from thetahat.dynamics.contact_projection import mixed_dofs, row_deviations
from thetahat.errors import UsageError
from thetahat.identification import factor as f
from thetahat.identification.information import Information
from thetahat.model.floating_base import ground_of

KINDS = (None, "joint", "iterated")
# of a joint's RMS torque: noise below it is rounding, and weights of its inverse would be chance
EXACT = 1e-10
# of re-weighting; relative change of the noise at which it ends: weights need no more digits
ROUNDS, SETTLED = 30, 1e-3
ENOUGH = 3  # rows per parameter of one degree of freedom, to tell its noise from the others'


@dataclass(frozen=True, eq=False)
class Weights:
    """Factors on the rows of every joint, and what noise is left on a weighted row."""

    joints: np.ndarray | None  # (nv,) 1/σ_j; None: all alike
    variance: float  # of a weighted row
    noise: np.ndarray  # (nv,) σ_j, standard deviation of each joint's torque noise [N·m or N]

    @property
    def whitening(self) -> np.ndarray:
        """Factors that make the noise of every row one, (nv,)."""
        factors: np.ndarray = np.ones(len(self.noise)) if self.joints is None else self.joints
        return np.asarray(factors / np.sqrt(self.variance))

    def tempered(self, share: float) -> Weights:
        """Return weights with which only this share of the rows counts."""
        if self.joints is not None:
            return replace(self, joints=self.joints * np.sqrt(share))
        return replace(self, variance=self.variance / share)


def weigh(information: Information, kind: Weights | str | None) -> Weights:
    """Weights of one kind, with the noise they leave; those that are given already as they are.

    None: all torques alike, one variance for all rows, as Θ̂ = pinv(Y)·U weighs them. "joint":
    1/σ_j from the residuals of a first, unweighted fit. "iterated": the same until σ_j no longer
    change, which is maximum likelihood.
    """
    if isinstance(kind, Weights):
        return kind
    if kind not in KINDS:
        raise UsageError(f"weights is {kind!r}; give None, 'joint' or 'iterated'")
    solution = information.solution
    freedom = max(int(np.sum(information.rows)) - solution.rank, 1)
    noise = noise_per_joint(information, solution.x, solution.inverse)
    if kind is None:
        floor = (
            EXACT
            * np.linalg.norm(information.torque_norms())
            / np.sqrt(max(int(np.sum(information.rows)), 1))
        )
        left = solution.residual
        if information.instrument_factors is not None:  # whose factor knows but a part of the rows
            left = float(np.linalg.norm(information.residual_norms(solution.x)))
        return Weights(None, max(left**2 / freedom, floor**2) or 1.0, noise)
    if (pooled := _pooled(information)) is not None:
        return Weights(1.0 / pooled, 1.0, pooled)
    noise = _told_apart(information, noise, solution.rank)
    for _ in range(ROUNDS if kind == "iterated" else 0):
        fit = _fit(information.stacked(1.0 / noise), full=solution.rank == len(information.base))
        before, noise = noise, noise_per_joint(information, *fit, 1.0 / noise)
        noise = _told_apart(information, noise, solution.rank)
        if np.all(np.abs(noise - before) <= SETTLED * before):
            break
    return Weights(1.0 / noise, 1.0, noise)


def _pooled(information: Information) -> np.ndarray | None:
    """σ_j of a floating robot's rows in fixed proportions, where its log is too short to tell them
    apart; None: it is not.

    Every row of a base has all parameters, so with few samples one of the six could be fitted
    exactly, its weight would grow without bound, and the others would not count.
    """
    rows, parameters = information.rows, len(information.base)
    if ground_of(information.robot) is None or rows.max(initial=0) >= ENOUGH * parameters:
        return None
    deviations = row_deviations(information.robot)
    solution = f.solve(information.stacked(1.0 / deviations))
    left = float(np.sum((information.residual_norms(solution.x) / deviations) ** 2))
    freedom = max(int(rows.sum()) - solution.rank, 1)
    level = np.sqrt(left / freedom)
    floor = EXACT * float(np.linalg.norm(information.torque_norms() / deviations))
    return np.asarray(deviations * (max(level, floor / np.sqrt(max(int(rows.sum()), 1))) or 1.0))


def _told_apart(information: Information, noise: np.ndarray, rank: int) -> np.ndarray:
    """σ_j, in fixed proportions where contact forces leave too few rows of a degree of freedom.

    All parameters stand in each of those rows, so few of them could be fitted exactly, and the
    smaller σ_j, the more of the other rows' errors would be laid on the fit, round after round.
    """
    rows, mixed = information.rows, mixed_dofs(information.robot)
    few = mixed[rows[mixed] < ENOUGH * rank]
    few = few[rows[few] > 0]
    if not len(few):
        return noise
    ratio = noise / row_deviations(information.robot)
    level = np.sqrt(np.average(ratio[few] ** 2, weights=rows[few]))
    told = noise.copy()
    told[few] = level * row_deviations(information.robot)[few]
    return told


def _fit(factor: np.ndarray, *, full: bool) -> tuple[np.ndarray, np.ndarray]:
    """(x, its inverse factor) of least squares; no singular values where the rank is full."""
    if not full:
        solution = f.solve(factor)
        return solution.x, solution.inverse
    R, z = factor[:-1, :-1], factor[:-1, -1]
    inverse = solve_triangular(R, np.eye(len(R)), check_finite=False)
    return solve_triangular(R, z, check_finite=False), inverse


def noise_per_joint(
    information: Information, x: np.ndarray, inverse: np.ndarray, weights: np.ndarray | None = None
) -> np.ndarray:
    """σ_j of every joint: ‖u_j − Y_j x‖² over its rows less its share of the parameters fitted; one
    where a joint has no rows.

    The share is the trace of the joint's block of the hat matrix, Σ_j trace = rank: what the fit
    takes of its noise. inverse: Cov x = inverse·inverseᵀ in units of the weighted noise.
    """
    left, rows = information.residual_norms(x) ** 2, information.rows.astype(float)
    share = np.zeros(len(rows))
    for v, (positions, R) in enumerate(
        zip(information.positions, information.factors, strict=True)
    ):
        weight = 1.0 if weights is None else weights[v]
        share[v] = np.sum((weight * R[:, :-1] @ inverse[positions]) ** 2)
    if information.instrument_factors is not None:
        fitted = information.fitted_factors(weights)
        share = np.array([np.sum((G @ inverse) ** 2) for G in fitted])
        share *= 1.0 if weights is None else weights**2
    floor = EXACT * information.torque_norms() / np.sqrt(np.maximum(rows, 1.0))
    noise = np.maximum(np.sqrt(left / np.maximum(rows - share, 1.0)), floor)
    return np.where(noise > 0.0, noise, 1.0)
