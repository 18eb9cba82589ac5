"""Choose the form of the equation of motion: torque, or without accelerations momentum or filtered.

A form is judged like every other choice, by cross-validation over blocks of time: the fits are to
rows of the form, the predictions they are judged by are torques, row by row, whatever the form.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from thetahat.data.form_names import FORMS
from thetahat.data.friction_direction import with_friction_direction
from thetahat.data.samples import Samples
from thetahat.identification.information import information
from thetahat.identification.tuning.cross_validation import (
    IMPROVES,
    LAW,
    PIECES,
    WEIGHT,
    CrossValidation,
    FitRows,
    Pieces,
    Scores,
    block_edges,
    thinned,
)
from thetahat.identification.tuning.gaussian_fit import Grams, GramStack
from thetahat.model.robot import Robot


def choose_form(validation: CrossValidation, robot: Robot, samples: Samples) -> tuple[str, str]:
    """Return the form that predicts torques best, and the reason; the torque form unless another
    improves.
    """
    samples = with_friction_direction(samples.with_form("torque"), robot)
    pieces = validation.pieces(robot, samples)
    first = pieces.predict(WEIGHT)
    best, most = FORMS[0], 0.0
    gains: dict[str, float] = {}
    for name in FORMS[1:]:
        scores = predicted_by(pieces, samples, robot, name)
        gains[name], _ = scores.gain(first)
        if gains[name] > most and scores.improves(first, LAW):
            best, most = name, gains[name]
    if best == FORMS[0]:
        told = ", ".join(f"{name} {gain:+.1f}" for name, gain in gains.items())
        reason = f"no other {IMPROVES} by more than chance ({told})"
        return best, f"form of the equation of motion torque: {reason}"
    reason = f"{IMPROVES} by {most:.0f}"
    return best, f"form of the equation of motion {best} instead of torque: {reason}"


def predicted_by(pieces: Pieces, samples: Samples, robot: Robot, form: str) -> Scores:
    """Predict every block from fits to rows of a form in the others."""
    formed = samples.with_form(form)
    few = thinned(samples)
    step = max(round((few.time_step or 1.0) / (samples.time_step or 1.0)), 1)
    edges = np.minimum(step * block_edges(few, PIECES), len(samples))
    parts = [formed.subset(slice(a, b)) for a, b in pairwise(edges)]
    grams = GramStack.of([Grams.of(information(robot, part)) for part in parts])
    model = pieces.model
    counted = replace(model, statistics=model.statistics.at(formed.row_period))
    return replace(pieces, other=FitRows(counted, grams)).predict(WEIGHT)
