"""Standard deviations of an estimate from a log too long to look at all its samples again: how
correlated its noise is, an excerpt tells.

Neighbouring samples are not independent, which widens every parameter's standard deviation by some
factor (identification/uncertainty/autocorrelation.py). The factor is that of the same estimator on
the excerpt alone, with and without a look at its samples; the spread of independent rows it is
applied to is that of all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from thetahat.data.samples import Samples
from thetahat.errors import NotIdentifiable
from thetahat.identification.estimate import Estimate
from thetahat.identification.estimators.estimator import AnyEstimator
from thetahat.identification.information import Information
from thetahat.identification.solve import solve
from thetahat.identification.submodel import view


def estimate_with_excerpt(
    seen: Information,
    estimator: AnyEstimator,
    *,
    whole: Information,
    excerpt: Information,
    samples: Callable[[], Iterable[Samples]],
    dofs: tuple[int, ...] | None,
) -> Estimate:
    """Return the estimate of `seen`, with standard deviations as wide as an excerpt says.

    Args:
        seen: a view of `whole`.
        estimator: solves it.
        whole: of the whole log.
        excerpt: folded from `samples` alone, in the columns of `whole`.
        samples: of the excerpt.
        dofs: degrees of freedom that the view shows; None: all.
    """
    estimate = solve(seen, estimator)
    fitted = seen.robot.drive.identified
    without = [term for term in whole.robot.drive.identified if term not in fitted]
    part = view(excerpt, without=without, dofs=dofs)
    try:
        plain, corrected = solve(part, estimator), solve(part, estimator, samples=samples)
    except NotIdentifiable:  # the excerpt has too little of something
        return estimate
    if corrected.noise is None:
        return estimate
    before, after = np.diag(plain.covariance), np.diag(corrected.covariance)
    known = np.isfinite(before) & np.isfinite(after) & (before > 0.0) & (after > 0.0)
    factor = np.sqrt(np.where(known, after / np.where(known, before, 1.0), 1.0))
    longer = seen.rows / np.maximum(part.rows, 1)
    noise = replace(corrected.noise, effective=corrected.noise.effective * longer, rows=seen.rows)
    with np.errstate(invalid="ignore"):
        covariance = estimate.covariance * np.outer(factor, factor)
    return estimate.with_noise(covariance, noise)
