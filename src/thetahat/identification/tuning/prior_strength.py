"""Choose the weight of the prior by the evidence of the log.

    p(u | w) = ∫ p(u | x)·p(x | w) dx

A prior of weight w has a standard deviation of 1/√w times the size of each inertial parameter, and
the integral is largest where that is how far the robot file is off. With the prior's curvature it
is a Gaussian one (gaussian_fit.py), so that no time block is needed, and no cut of the log has a
say. Of the weights whose evidence is about as large as the largest, the strongest is taken.

Evidence takes every error for one of torques. Where contact forces are eliminated, what is left of
the rows carries the errors of the measured motion of the base, twice differentiated, and bodies far
from the file's would lessen them: the weaker the prior, the larger the evidence, and the farther
off the mass, which shows in little else there. So the usual weight is taken.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thetahat.dynamics.contact_projection import eliminates_forces
from thetahat.identification.tuning.cross_validation import Pieces, Scores

# standard deviations from six times each parameter's size to a hundredth of it
WEIGHTS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10000.0)
USUAL = 100.0  # where nothing can be chosen: strong, a tenth of each parameter
AS_GOOD = 1.0  # [nats] of evidence: weights this close are alike


@dataclass(frozen=True, eq=False)
class PriorStrength:
    """The weight of the prior, why, and the held-out predictions with it."""

    weight: float
    reason: str
    predictions: Scores


def choose_prior_strength(
    pieces: Pieces, *, weight: float | None = None, metric: str
) -> PriorStrength:
    """Return the strongest weight whose evidence is about as large as the largest, unless one is
    given.
    """
    if weight is not None:
        how = "as given"
    elif eliminates_forces(pieces.model.columns.robot):
        weight, how = USUAL, "the usual one where forces of feet are not measured"
    else:
        problem = pieces.model.problem(pieces.whole, pieces.noise(WEIGHTS[0]))
        evidence = [problem.fit(each).log_evidence() for each in WEIGHTS]
        best = int(np.argmax(evidence))
        weight = max(
            w for w, e in zip(WEIGHTS, evidence, strict=True) if e >= evidence[best] - AS_GOOD
        )
        how = (
            f"the strongest of {len(WEIGHTS)} within {AS_GOOD:g} of the largest log-evidence, which"
            f" {WEIGHTS[best]:g} has"
        )
    reason = f"prior weight {weight:g} ({metric}): {how}"
    return PriorStrength(weight, reason, pieces.predict(weight))
