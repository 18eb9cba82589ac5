"""The ridge path: from least squares to the initial guess, every strength of the pull from one
decomposition.

    x_λ = argmin ‖R·M·x − z‖² + λ‖(x − x₀)/s‖²
          R, z in units of the noise; x₀ the guess, s a size of each parameter

With A = R·M·diag(s) = U·diag(d)·Vᵀ and β = Uᵀ(z − R·M·x₀), all strengths follow without another
fit:

    x_λ = x₀ + diag(s)·V·(d·β/(d² + λ))
    misfit² = ρ² + Σ(λβ/(d² + λ))²
    degrees of freedom = Σ d²/(d² + λ)

Chosen by generalised cross-validation, n·misfit²/(n − degrees of freedom)² [Golub1979]; by the
discrepancy principle, the strongest pull whose misfit² is still that of the noise, n [Hansen1998];
or by the misfit on a log held out. There is no L-curve: thousands of rows for a few dozen
parameters leave a misfit that hardly depends on λ, and so no corner.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from thetahat.errors import UsageError
from thetahat.identification import factor as f
from thetahat.identification.consistency.misfit import Objective
from thetahat.identification.estimate import Estimate
from thetahat.identification.estimators.estimator import covariance_of_data, estimated, guess
from thetahat.identification.estimators.joint_weights import Weights, weigh
from thetahat.identification.information import Information
from thetahat.model.robot import Robot

CHOICES = ("gcv", "discrepancy", "held-out")
COUNT = 200  # strengths of a path: zero, then a geometric series
# the series runs from a pull this much weaker than the weakest direction to one this much stronger
# than the strongest
MARGIN = 1e3


@dataclass(frozen=True, eq=False)
class Decomposition:
    """A = U·diag(d)·Vᵀ of the scaled data, in the directions seen."""

    singular: np.ndarray  # (rank,) d
    coefficients: np.ndarray  # (rank,) β
    directions: np.ndarray  # (columns, rank) V
    least: float  # misfit² of least squares, in units of the noise variance

    def shrunk(self, strengths: np.ndarray) -> np.ndarray:
        """Return d·β/(d² + λ) of every strength, (count, rank)."""
        shrunk: np.ndarray = (
            self.singular * self.coefficients / (self.singular**2 + strengths[:, None])
        )
        return shrunk


@dataclass(frozen=True, eq=False)
class RidgePath:
    """Fits of every strength, weakest pull first."""

    information: Information
    weights: Weights
    strengths: np.ndarray  # (count,) λ, in units of the noise variance, from zero up
    x0: np.ndarray  # (columns,) the guess
    scale: np.ndarray  # (columns,) s
    decomposition: Decomposition
    held_out_information: Information | None = None

    def x(self, strength: float) -> np.ndarray:
        """Return x_λ, (columns,); λ = 0: the least-squares solution nearest to the guess."""
        return np.asarray(self._x(np.array([_strength(strength)]))[0])

    def _x(self, strengths: np.ndarray) -> np.ndarray:
        svd = self.decomposition
        return np.asarray(self.x0 + svd.shrunk(strengths) @ svd.directions.T * self.scale)

    @cached_property
    def solutions(self) -> np.ndarray:
        """x_λ of every strength, (count, columns)."""
        return self._x(self.strengths)

    @cached_property
    def misfit(self) -> np.ndarray:
        """Squared misfit of every strength, (count,), in noise variances: n for noise alone."""
        strengths, svd = self.strengths[:, None], self.decomposition
        pulled = strengths * svd.coefficients / (svd.singular**2 + strengths)
        return np.asarray(svd.least + np.sum(pulled**2, axis=1))

    @cached_property
    def distance(self) -> np.ndarray:
        """‖(x_λ − x₀)/s‖, (count,)."""
        return np.asarray(np.linalg.norm(self.decomposition.shrunk(self.strengths), axis=1))

    @cached_property
    def freedom(self) -> np.ndarray:
        """Effective degrees of freedom of every fit, (count,), from the rank down to 0."""
        squares = self.decomposition.singular**2
        return np.asarray(np.sum(squares / (squares + self.strengths[:, None]), axis=1))

    @property
    def rows(self) -> int:
        """n, torques in the fit."""
        return int(np.sum(self.information.rows))

    @cached_property
    def gcv(self) -> np.ndarray:
        """Generalised cross-validation n·misfit²/(n − degrees of freedom)², (count,)."""
        return np.asarray(self.rows * self.misfit / np.maximum(self.rows - self.freedom, 1.0) ** 2)

    @cached_property
    def held_out(self) -> np.ndarray | None:
        """Mean square of held-out residuals in units of the noise, (count,); None without."""
        other = self.held_out_information
        if other is None:
            return None
        return np.array([self._score(x, other) for x in self.solutions])

    def held_out_at(self, strength: float) -> float:
        """The same at any strength, zero too."""
        return self._score(self.x(strength), self._require_held_out())

    def _require_held_out(self) -> Information:
        if self.held_out_information is None:
            raise UsageError(
                "this path has no held-out log; give one: ridge_path(information, held_out=other)"
            )
        return self.held_out_information

    def _score(self, x: np.ndarray, other: Information) -> float:
        residuals = other.residual_norms(self.information.base.map @ x) * self.weights.whitening
        return float(np.sum(residuals[other.rows > 0] ** 2) / np.sum(other.rows))

    def choose(self, by: str | None = None) -> float:
        """The strength that "gcv", "discrepancy" or "held-out" picks; by default the held-out log
        where there is one, else "gcv".
        """
        by = by or ("gcv" if self.held_out_information is None else "held-out")
        if by not in CHOICES:
            raise UsageError(
                f"a strength is chosen by {by!r}; choose by one of {', '.join(CHOICES)}"
            )
        if by == "discrepancy":
            within = np.flatnonzero(self.misfit <= self.rows)
            return float(self.strengths[within[-1]]) if len(within) else float(self.strengths[0])
        if by == "held-out":
            self._require_held_out()
        scores = self.gcv if by == "gcv" or self.held_out is None else self.held_out
        return float(self.strengths[np.argmin(scores)])


def ridge_path(
    information: Information,
    prior: np.ndarray | Robot | None = None,
    *,
    weights: str | None = "joint",
    count: int = COUNT,
    held_out: Information | None = None,
) -> RidgePath:
    """The path from least squares to the guess.

    prior: the guess, a robot, θ or x; None: the information's own robot. weights: of joints, as
        `LeastSquares` takes them.
    held_out: the information of another log of the same robot, on which every strength is scored.
    """
    if count < 2:
        raise UsageError(f"count is {count!r}; give at least 2 strengths")
    if held_out is not None:
        _check_held_out(information, held_out)
    x0, joint_weights = guess(information, prior), weigh(information, weights)
    factor = information.stacked(joint_weights.whitening)
    R, z, rho = factor[:-1, :-1], factor[:-1, -1], factor[-1, -1]
    scale = Objective(information, joint_weights, R, z, x0, 0.0, "euclidean").scale
    M = information.base.map
    U, d, Vt = np.linalg.svd(R @ (M * scale), full_matrices=False)
    rank = int(np.sum(d > f.RANK * d[0])) if len(d) and d[0] > 0.0 else 0
    if not rank:
        raise UsageError(
            "no torque in the log shows any parameter, so there is nothing to pull from; move the"
            " robot, or keep the guess"
        )
    beta = U.T @ (z - R @ (M @ x0))
    strengths = np.concatenate(
        [[0.0], np.geomspace(d[rank - 1] ** 2 / MARGIN, d[0] ** 2 * MARGIN, count - 1)]
    )
    least = float(rho**2 + np.sum(beta[rank:] ** 2))
    return RidgePath(
        information,
        joint_weights,
        strengths,
        x0,
        scale,
        Decomposition(d[:rank], beta[:rank], Vt[:rank].T, least),
        held_out,
    )


def _check_held_out(information: Information, other: Information) -> None:
    if not isinstance(other, Information):
        raise UsageError(
            f"held_out is a {type(other).__name__}; give an Information: th.information(robot,"
            " samples)"
        )
    if other.key != information.key or len(other.base) != len(information.base):
        raise UsageError(
            f"held_out is of robot {other.robot.name!r}, whose geometry, gravity or columns are not"
            f" those of {information.robot.name!r}; fold both logs with the same robot"
        )
    if not np.any(other.rows):
        raise UsageError(
            "held_out has no usable torque, so it cannot score a fit; hold out other samples"
        )


def _strength(value: float | str) -> float:
    if isinstance(value, str) or not (np.isfinite(value) and value >= 0.0):
        raise UsageError(
            f"strength is {value!r}; give a finite number of at least 0, or one of 'gcv' and"
            " 'discrepancy'"
        )
    return float(value)


@dataclass(frozen=True, eq=False)
class Ridge:
    """Least squares pulled towards a guess, in units of each parameter's own size, as strongly as
    the data bear.

    strength: λ, or "gcv" or "discrepancy", or `ridge_path(..., held_out=log).choose()`. What the
    data do not see stays at the guess. Standard deviations are those of the posterior to which λ is
    a prior, (x − x₀)/s of variance 1/λ in units of the noise: they hold as far as the guess is
    about that wrong.
    """

    strength: float | str = "gcv"
    prior: np.ndarray | Robot | None = None
    weights: str | None = "joint"

    name = "ridge"

    def estimate(self, information: Information) -> Estimate:
        """The estimate at the strength asked for."""
        path = ridge_path(information, self.prior, weights=self.weights)
        strength = (
            path.choose(self.strength)
            if isinstance(self.strength, str) and self.strength in ("gcv", "discrepancy")
            else _strength(self.strength)
        )
        solution = f.solve(information.stacked(path.weights.joints))
        shape = (
            (information.base.map * path.scale)
            @ path.decomposition.directions
            / np.sqrt(path.decomposition.singular**2 + strength)
        )
        covariance = covariance_of_data(replace(solution, inverse=shape), 1.0)
        return estimated(
            information,
            solution,
            method=self.name,
            x=path.x(strength),
            covariance=covariance,
            status="solved",
        )
