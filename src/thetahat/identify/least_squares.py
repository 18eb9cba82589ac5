"""The paper's two estimators: the pseudo-inverse, and the blend with an initial guess; and `identify`, which runs one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from thetahat.errors import NotIdentifiable, UsageError
from thetahat.identify import factor as f
from thetahat.identify.columns import Columns
from thetahat.identify.estimate import Estimate
from thetahat.identify.information import Information
from thetahat.model.robot import Robot


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
        weights, variance = _weights(information, self.weights)
        solution = f.solve(information.stacked(weights))
        if self.strict and solution.rank < len(information.base):
            raise NotIdentifiable(f"rank {solution.rank} of {len(information.base)}: {information.missing()[0]}")
        x = minimum_norm(information, solution)
        short = solution.rank < len(information.base)
        return _estimate(
            information, solution, method=self.name, x=x, covariance=_covariance(solution, variance), status="rank_short" if short else "solved"
        )


@dataclass(frozen=True, eq=False)
class Prior:
    """Θ̂ = pinv(Ỹ)·Ũ, Ỹ = [αY; (1−α)1], Ũ = [αU; (1−α)Θ₀] (paper, eq. theta_hat_extended): a blend of data and an initial guess.

    theta0: a robot, θ, or x = [θ; drive terms]; None: the information's own robot. alpha ∈ (0, 1): towards 1 the data, towards 0
    the guess. In the paper's unscaled norm: a kilogram weighs as much as a kg·m², and a longer log as much more. What the data do
    not see stays at the guess. Standard deviations are those of the data's noise; how wrong the guess is, they cannot know.
    """

    theta0: np.ndarray | Robot | None = None
    alpha: float = 0.5
    weights: str | None = None

    name = "prior"

    def estimate(self, information: Information) -> Estimate:
        """The estimate, from the factor R of the base columns: Y = Q R M, so the rows are [αR·M; (1−α)1]."""
        if not 0.0 < self.alpha < 1.0:
            raise UsageError(f"alpha is {self.alpha!r}; give a number between 0 (the guess alone) and 1 (the data alone), both excluded")
        x0, M = self._guess(information), information.base.map
        weights, variance = _weights(information, self.weights)
        factor = information.stacked(weights)
        R, z = factor[:-1, :-1], factor[:-1, -1]
        rows = np.vstack([self.alpha * R @ M, (1.0 - self.alpha) * np.eye(M.shape[1])])
        Q, T = np.linalg.qr(rows)
        x = solve_triangular(T, Q.T @ np.concatenate([self.alpha * z, (1.0 - self.alpha) * x0]))
        gain = M @ solve_triangular(T, self.alpha * Q[: len(R)].T)  # x_base = gain·z + what the guess adds
        return _estimate(information, f.solve(factor), method=self.name, x=x, covariance=variance * gain @ gain.T, status="solved")

    def _guess(self, information: Information) -> np.ndarray:
        """x₀, one number per column."""
        columns = Columns(information.robot)
        if self.theta0 is None:
            return columns.x0
        if isinstance(self.theta0, Robot):
            if len(self.theta0.theta) != columns.inertial or self.theta0.joint_names != information.robot.joint_names:
                raise UsageError(f"theta0 is robot {self.theta0.name!r}, whose joints or bodies are not those of {information.robot.name!r}")
            return np.concatenate([self.theta0.theta, columns.x0[columns.inertial :]])
        x0 = np.array(self.theta0, dtype=float)
        if x0.shape == (columns.inertial,):
            x0 = np.concatenate([x0, columns.x0[columns.inertial :]])
        if x0.shape != (columns.count,) or not np.all(np.isfinite(x0)):
            raise UsageError(f"theta0 has shape {x0.shape}; give ({columns.inertial},) for the bodies or ({columns.count},) with drive terms, finite")
        return x0


def _weights(information: Information, kind: str | None) -> tuple[np.ndarray | None, float]:
    """(weight per joint, variance of a weighted row): none and the residual's, or by joint and one."""
    if kind not in (None, "joint"):
        raise UsageError(f"weights is {kind!r}; give None or 'joint'")
    solution = information.solution
    if kind == "joint":
        variances = _variances(information, solution.x)
        return 1.0 / np.sqrt(np.where(variances > 0.0, variances, 1.0)), 1.0
    # One variance for all rows, as the equation weighs them.
    return None, solution.residual**2 / max(int(np.sum(information.rows)) - solution.rank, 1)


def _estimate(information: Information, solution: f.Solution, *, method: str, x: np.ndarray, covariance: np.ndarray, status: str) -> Estimate:
    """The estimate at x, with what the information says of it."""
    x_base = information.base.map @ x
    return Estimate(
        robot=information.robot,
        base=information.base,
        method=method,
        x=x,
        x_base=x_base,
        covariance=covariance,
        rank=solution.rank,
        condition=solution.condition,
        samples=information.samples,
        r2=information.r2(x_base),
        r2_per_joint=information.r2_per_joint(x_base),
        residual_norms=information.residual_norms(x_base),
        status=status,
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


def identify(information: Information, estimator: LeastSquares | Prior | None = None) -> Estimate:
    """The robot's parameters from the information of a log, by an estimator (default: the pseudo-inverse)."""
    if not isinstance(information, Information):
        raise UsageError(f"identify takes an Information, not {type(information).__name__}; make one with th.information(robot, samples)")
    with f.blas_threads().limit(limits=1, user_api="blas"):  # small matrices; threads woken for them would spin beside the next fold
        return (LeastSquares() if estimator is None else estimator).estimate(information)
