"""Solve for a robot's parameters: run an estimator on the information of a log."""

from __future__ import annotations

import numpy as np

from thetahat.errors import NotIdentifiable, UsageError
from thetahat.identification import factor as f
from thetahat.identification.estimate import Estimate
from thetahat.identification.estimators.consistent import Consistent
from thetahat.identification.estimators.estimator import Estimator, SampleEstimator, Source
from thetahat.identification.estimators.least_squares import LeastSquares
from thetahat.identification.information import Information
from thetahat.identification.uncertainty.autocorrelation import corrected


def solve(
    information: Information,
    estimator: Estimator | SampleEstimator | None = None,
    *,
    samples: Source | None = None,
) -> Estimate:
    """Estimate a robot's parameters from the information of a log.

    Args:
        information: from `th.information(robot, samples)`.
        estimator: by default `Consistent()`, physically consistent parameters.
        samples: what the information was folded from. With them standard deviations take into
            account that neighbouring samples are correlated (`estimate.noise`); without, rows count
            as independent. Robust estimators need them to weight single samples, and count rows as
            independent.

    """
    if not isinstance(information, Information):
        raise UsageError(
            f"solve takes an Information, not {type(information).__name__}; make one with"
            " th.information(robot, samples)"
        )
    for name, R in zip(information.robot.velocity_names, information.factors, strict=True):
        if not np.all(np.isfinite(R)):
            raise UsageError(
                f"the information of joint {name!r} holds a number that is not finite; fold the log"
                " again, or check its units"
            )
    chosen: Estimator | SampleEstimator = Consistent() if estimator is None else estimator
    # small matrices; threads woken for them would spin beside the next fold
    with f.blas_threads().limit(limits=1, user_api="blas"):
        if isinstance(chosen, SampleEstimator):
            if samples is None:
                raise UsageError(
                    f"{type(chosen).__name__} weights single samples; pass them:"
                    " solve(information, estimator, samples=samples)"
                )
            return _finite(chosen.estimate_from_samples(information, samples), chosen)
        estimate = _finite(chosen.estimate(information), chosen)
    if samples is None or estimate.status == "infeasible":
        return estimate
    if isinstance(chosen, LeastSquares):
        information = information.without_instruments
    weights = (
        chosen.joint_weights(information)
        if isinstance(chosen, Consistent)
        else getattr(chosen, "weights", None)
    )
    return corrected(estimate, information, samples, weights=weights)


def _finite(estimate: Estimate, estimator: object) -> Estimate:
    """The estimate; `NotIdentifiable` where a number in it is not finite."""
    bad = np.flatnonzero(~np.isfinite(estimate.x))
    if len(bad):
        name = estimate.base.column_names[bad[0]]
        raise NotIdentifiable(
            f"{type(estimator).__name__} found no finite {name}; the log's numbers are too large or"
            " too small, check their units"
        )
    return estimate
