"""Least squares: the paper's pseudo-inverse, and `identify`, which hands an information to an estimator."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thetahat.errors import NotIdentifiable, UsageError
from thetahat.identify import factor as f
from thetahat.identify.estimate import Estimate
from thetahat.identify.information import Information


@dataclass(frozen=True)
class LeastSquares:
    """Θ̂ = pinv(Y)·U (paper, eq. theta_hat): least squares, and of all solutions the one of least norm, in the paper's unscaled units.

    weights: None, or "joint" to weight every joint by its residual in a first fit.
    strict: raise `NotIdentifiable` where the data see fewer directions than the robot has.
    """

    weights: str | None = None
    strict: bool = False

    name = "least-squares"

    def estimate(self, information: Information) -> Estimate:
        """The estimate, with standard deviations from the residual."""
        if self.weights not in (None, "joint"):
            raise UsageError(f"weights is {self.weights!r}; give None or 'joint'")
        factor = information.stacked()
        solution = f.solve(factor)
        if self.strict and solution.rank < len(information.base):
            raise NotIdentifiable(f"rank {solution.rank} of {len(information.base)}: {information.missing()[0]}")
        variances = _variances(information, solution.x)
        if self.weights == "joint":
            weights = 1.0 / np.sqrt(np.where(variances > 0.0, variances, 1.0))
            solution = f.solve(information.stacked(weights))
            variance = 1.0
        else:
            # One variance for all rows, as the equation weighs them.
            total = int(np.sum(information.rows))
            variance = solution.residual**2 / max(total - solution.rank, 1)
        x = minimum_norm(information, solution)
        x_base = information.base.map @ x
        return Estimate(
            robot=information.robot,
            base=information.base,
            method=self.name,
            x=x,
            x_base=x_base,
            covariance=_covariance(solution, variance),
            rank=solution.rank,
            condition=solution.condition,
            samples=information.samples,
            r2=information.r2(x_base),
            r2_per_joint=information.r2_per_joint(x_base),
            residual_norms=information.residual_norms(x_base),
            status="solved" if solution.rank == len(information.base) else "rank_short",
            advice=information.missing() if solution.rank < len(information.base) else (),
        )


def minimum_norm(information: Information, solution: f.Solution) -> np.ndarray:
    """Of all x that fit as well as x_base, the one of least norm.

    With everything seen: M x = x_base. Otherwise only what the data determine is asked for: S·M x = S x_base.
    """
    M = information.base.map
    if solution.rank == len(information.base):
        return np.linalg.lstsq(M, solution.x, rcond=None)[0]
    scale = np.linalg.norm(solution.seen, axis=1, keepdims=True)  # rows of one size, so that none is taken for rounding
    return np.linalg.lstsq(solution.seen / scale @ M, solution.seen / scale @ solution.x, rcond=None)[0]


def _variances(information: Information, x_base: np.ndarray) -> np.ndarray:
    """Residual variance per joint."""
    rows = np.maximum(information.rows - [len(p) for p in information.positions], 1)
    return information.residual_norms(x_base) ** 2 / rows


def _covariance(solution: f.Solution, variance: float) -> np.ndarray:
    """σ²(RᵀR)⁻¹ in the directions seen; infinite where a parameter takes part in one that is not."""
    covariance = variance * solution.inverse @ solution.inverse.T
    if solution.directions.size:
        share = np.linalg.norm(solution.directions, axis=1)
        unseen = share > 1e-9 * max(float(np.max(share)), np.finfo(float).tiny)
        covariance[unseen, :] = np.inf
        covariance[:, unseen] = np.inf
    return covariance


def identify(information: Information, estimator: LeastSquares | None = None) -> Estimate:
    """The robot's parameters from the information of a log, by an estimator (default: the pseudo-inverse)."""
    if not isinstance(information, Information):
        raise UsageError(f"identify takes an Information, not {type(information).__name__}; make one with th.information(robot, samples)")
    with f.blas_threads().limit(limits=1, user_api="blas"):  # small matrices; threads woken for them would spin beside the next fold
        return (LeastSquares() if estimator is None else estimator).estimate(information)
