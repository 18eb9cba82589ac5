"""What estimators share: the interface they have, the guess they start from, the estimate they
return.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar, Protocol

import numpy as np

from thetahat.data.samples import Samples
from thetahat.errors import UsageError
from thetahat.identification import factor as f
from thetahat.identification.estimate import Certificate, Estimate
from thetahat.identification.information import Information
from thetahat.identification.parameter_columns import Columns
from thetahat.model.robot import Robot

# Samples, or a function that yields them batch by batch as often as it is called: robust estimators
# read a log several times.
Source = Samples | Callable[[], Iterable[Samples]]


class Estimator(Protocol):
    """A frozen object that turns an `Information` into an `Estimate`."""

    name: ClassVar[str]

    def estimate(self, information: Information) -> Estimate:
        """The robot's parameters."""


class SampleEstimator(Protocol):
    """An estimator that must see the samples, too."""

    name: ClassVar[str]

    def estimate_from_samples(self, information: Information, samples: Source) -> Estimate:
        """The robot's parameters."""


def guess(
    information: Information, prior: np.ndarray | Robot | None, name: str = "prior"
) -> np.ndarray:
    """x₀, one number per column: of a robot, θ, or x; None: the information's own robot."""
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
    """The estimate at x, with what the information says of it. solution: least squares with the
    same weights.
    """
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
        advice=(*advice, *(information.missing() if solution.rank < len(information.base) else ())),
        certificate=certificate,
        unseen=tuple(
            name
            for name, hidden in zip(
                information.base.column_names, untouched(information, solution), strict=True
            )
            if hidden
        ),
    )


def untouched(information: Information, solution: f.Solution) -> np.ndarray:
    """Which columns of x no row of the data touches, (columns,) bool."""
    M = information.base.map
    touched = solution.seen @ M if solution.rank < len(information.base) else M
    reach = (
        float(np.max(np.linalg.norm(solution.seen, axis=1), initial=0.0))
        if solution.rank < len(information.base)
        else 1.0
    )
    return np.linalg.norm(touched, axis=0) <= 1e-9 * reach * np.linalg.norm(M, axis=0)


def covariance_of_data(solution: f.Solution, variance: float) -> np.ndarray:
    """σ²(RᵀR)⁻¹ in the directions seen; infinite where a parameter takes part in one that
    is not.
    """
    covariance = variance * solution.inverse @ solution.inverse.T
    if solution.directions.size:
        share = np.linalg.norm(solution.directions, axis=1)
        unseen = share > 1e-9 * max(float(np.max(share)), np.finfo(float).tiny)
        covariance[unseen, :] = np.inf
        covariance[:, unseen] = np.inf
    return covariance
