"""Choose the weight of the prior by cross-validation.

Of the weights whose predictions are within one standard error of the best, the largest is taken
[Hastie2009].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from thetahat.errors import NotIdentifiable
from thetahat.identification.tuning.cross_validation import CrossValidation, Folds, Predictions

WEIGHTS = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
# time blocks to choose the weight by: each fit then uses nearly all rows, as the last one will
FOLDS = 10


@dataclass(frozen=True, eq=False)
class PriorStrength:
    """The weight of the prior, why, and the held-out predictions with it."""

    weight: float
    reason: str
    predictions: Predictions


def choose_prior_strength(
    validation: CrossValidation, folds: Folds, *, weights: Sequence[float], metric: str
) -> PriorStrength:
    """Return the largest weight that predicts about as well as the best."""
    candidates: list[tuple[float, Predictions]] = []
    for weight in weights:
        try:
            candidates.append((weight, validation.predict_with(folds, weight, metric)))
        except NotIdentifiable:
            continue
    if not candidates:
        raise NotIdentifiable(
            "no weight of the prior gave a fit; give one with --prior-weight, or a better robot"
            " file"
        )
    first = candidates[0][1]
    best = max(candidates, key=lambda each: each[1].gain(first)[0])[1]
    weight, predictions = max(
        (each for each in candidates if _as_good(each[1], best)), key=lambda each: each[0]
    )
    how = (
        "as given"
        if len(candidates) == 1
        else f"the largest of {len(candidates)} candidates within one standard error of the best"
    )
    return PriorStrength(weight, f"prior weight {weight:g} ({metric}): {how}", predictions)


def _as_good(candidate: Predictions, best: Predictions) -> bool:
    gain, error = candidate.gain(best)
    return gain >= -error
