"""`solve`: runs an estimator on the information of a log, and lets nothing leave it that is not
finite.
"""

from __future__ import annotations

import numpy as np

from thetahat.errors import NotIdentifiable, UsageError
from thetahat.identification import factor as f
from thetahat.identification.estimate import Estimate
from thetahat.identification.estimators.consistent import Consistent
from thetahat.identification.estimators.estimator import Estimator, SampleEstimator, Source
from thetahat.identification.information import Information
from thetahat.identification.uncertainty.autocorrelation import corrected


def solve(
    information: Information,
    estimator: Estimator | SampleEstimator | None = None,
    *,
    samples: Source | None = None,
) -> Estimate:
    """The robot's parameters from the information of a log, by an estimator (default: `Consistent`,
    physically consistent parameters).

    samples: what the information was folded from. With them the standard deviations take into
    account that neighbouring samples are not independent (`estimate.noise`); without, rows count as
    independent. Robust estimators need them to weigh single samples, and count rows as independent.
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
    if estimator is None:
        estimator = Consistent()
    with f.blas_threads().limit(
        limits=1, user_api="blas"
    ):  # small matrices; threads woken for them would spin beside the next fold
        if hasattr(estimator, "estimate_from_samples"):
            if samples is None:
                raise UsageError(
                    f"{type(estimator).__name__} weighs single samples; pass them:"
                    " solve(information, estimator, samples=samples)"
                )
            return _finite(estimator.estimate_from_samples(information, samples), estimator)
        found = _finite(estimator.estimate(information), estimator)
    if samples is None or found.status == "infeasible":
        return found
    return corrected(found, information, samples, weights=getattr(estimator, "weights", None))


def _finite(estimate: Estimate, estimator: object) -> Estimate:
    """The estimate, or an error where a number in it is not finite: nothing else may leave an
    estimator.
    """
    bad = np.flatnonzero(~np.isfinite(estimate.x))
    if len(bad):
        name = estimate.base.column_names[bad[0]]
        raise NotIdentifiable(
            f"{type(estimator).__name__} found no finite {name}; the log's numbers are too large or"
            " too small, check their units"
        )
    return estimate
