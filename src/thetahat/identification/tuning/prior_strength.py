"""Choose the weight of the prior by the evidence of the log.

    p(u | w) = ∫ p(u | x)·p(x | w) dx

A prior of weight w has a standard deviation of 1/√w times the size of each inertial parameter, and
the integral is largest where that is how far the robot file is off. With the prior's curvature it
is a Gaussian one (gaussian_fit.py), so that no time block is needed, and no cut of the log has a
say. Of the weights whose evidence is about as large as the largest, the strongest is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from thetahat.identification.tuning.cross_validation import Pieces, Scores

# standard deviations from six times each parameter's size to a hundredth of it
WEIGHTS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10000.0)
USUAL = 100.0  # where nothing could be chosen: strong, a tenth of each parameter
AS_GOOD = 1.0  # [nats] of evidence: weights this close are alike


@dataclass(frozen=True, eq=False)
class PriorStrength:
    """The weight of the prior, why, and the held-out predictions with it."""

    weight: float
    reason: str
    predictions: Scores


def choose_prior_strength(
    pieces: Pieces, *, weights: Sequence[float] = WEIGHTS, metric: str
) -> PriorStrength:
    """Return the strongest weight whose evidence is about as large as the largest."""
    if len(weights) == 1:
        weight, how = weights[0], "as given"
    else:
        problem = pieces.model.problem(pieces.whole, pieces.noise(weights[0]))
        evidence = [problem.fit(weight).log_evidence() for weight in weights]
        best = int(np.argmax(evidence))
        weight = max(
            w for w, e in zip(weights, evidence, strict=True) if e >= evidence[best] - AS_GOOD
        )
        how = (
            f"the strongest of {len(weights)} within {AS_GOOD:g} of the largest log-evidence, which"
            f" {weights[best]:g} has"
        )
    reason = f"prior weight {weight:g} ({metric}): {how}"
    return PriorStrength(weight, reason, pieces.predict(weight))
