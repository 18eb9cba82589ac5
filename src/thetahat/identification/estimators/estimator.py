"""Interface of estimators, and what they share: the prior vector, the estimate they return."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, runtime_checkable

import numpy as np

from thetahat.data.samples import Samples
from thetahat.errors import UsageError
from thetahat.identification import factor as f
from thetahat.identification.estimate import Certificate, Diagnostics, Estimate, FitScores
from thetahat.identification.information import Information
from thetahat.identification.parameter_columns import Columns
from thetahat.model.robot import Robot

# Samples, or a function that yields them batch by batch as often as it is called: robust estimators
# read a log several times.
Source = Samples | Callable[[], Iterable[Samples]]


class Estimator(Protocol):
    """A frozen object that turns an `Information` into an `Estimate`."""

    @property
    def name(self) -> str:
        """Of the method, as files and tables state it."""

    def estimate(self, information: Information) -> Estimate:
        """Estimate the robot's parameters."""


@runtime_checkable
class SampleEstimator(Protocol):
    """An estimator that needs the samples, too."""

    @property
    def name(self) -> str:
        """Of the method, as files and tables state it."""

    def estimate_from_samples(self, information: Information, samples: Source) -> Estimate:
        """Estimate the robot's parameters."""


AnyEstimator = Estimator | SampleEstimator


def guess(
    information: Information, prior: np.ndarray | Robot | None, name: str = "prior"
) -> np.ndarray:
    """Return x₀, one number per column, of a robot, θ, or x; None: the information's own robot."""
    columns = Columns(information.robot)
    if prior is None:
        return columns.x0
    if isinstance(prior, Robot):
        if (
            len(prior.theta) != columns.inertial
            or prior.joint_names != information.robot.joint_names
        ):
            raise UsageError(
                f"{name} is robot {prior.name!r}, whose joints or bodies are not those of"
                f" {information.robot.name!r}"
            )
        return np.concatenate([prior.theta, columns.x0[columns.inertial :]])
    x0 = np.array(prior, dtype=float)
    if x0.shape == (columns.inertial,):
        x0 = np.concatenate([x0, columns.x0[columns.inertial :]])
    if x0.shape != (columns.count,) or not np.all(np.isfinite(x0)):
        raise UsageError(
            f"{name} has shape {x0.shape}; give ({columns.inertial},) for the bodies or"
            f" ({columns.count},) with drive terms, finite"
        )
    return x0


def estimated(
    information: Information,
    solution: f.Solution,
    *,
    method: str,
    x: np.ndarray,
    covariance: np.ndarray,
    status: str,
    certificate: Certificate | None = None,
    advice: tuple[str, ...] = (),
) -> Estimate:
    """Return the estimate at x. solution: least squares with the same weights."""
    missing = information.missing() if solution.rank < len(information.base) else ()
    hidden = np.flatnonzero(untouched(information, solution))
    return Estimate(
        robot=information.robot,
        base=information.base,
        method=method,
        x=x,
        covariance=covariance,
        status=status,
        fit=fit_scores(information, information.base.map @ x, solution),
        diagnostics=Diagnostics(
            advice=(*advice, *missing),
            unseen=tuple(information.base.column_names[k] for k in hidden),
            certificate=certificate,
        ),
    )


def fit_scores(
    information: Information, x_base: np.ndarray, solution: f.Solution | FitScores
) -> FitScores:
    """Return how well x_base explains the log; rank and condition are the solution's."""
    return FitScores(
        samples=information.samples,
        rank=solution.rank,
        condition=solution.condition,
        r2=information.r2(x_base),
        r2_per_joint=information.r2_per_joint(x_base),
        residual_norms=information.residual_norms(x_base),
        weak=solution.weak,
    )


def untouched(information: Information, solution: f.Solution) -> np.ndarray:
    """Return which columns of x no row of the data touches, (columns,) bool."""
    M = information.base.map
    touched = solution.seen @ M if solution.rank < len(information.base) else M
    reach = (
        float(np.max(np.linalg.norm(solution.seen, axis=1), initial=0.0))
        if solution.rank < len(information.base)
        else 1.0
    )
    return np.asarray(np.linalg.norm(touched, axis=0) <= 1e-9 * reach * np.linalg.norm(M, axis=0))


def covariance_of_data(solution: f.Solution, variance: float) -> np.ndarray:
    """Return σ²(RᵀR)⁻¹; infinite for parameters in a direction that the data do not determine."""
    covariance: np.ndarray = variance * solution.inverse @ solution.inverse.T
    if solution.directions.size:
        share = np.linalg.norm(solution.directions, axis=1)
        unseen = share > 1e-9 * max(float(np.max(share)), np.finfo(float).tiny)
        covariance[unseen, :] = np.inf
        covariance[:, unseen] = np.inf
    return covariance
