"""Errors of rows without contact forces, and the fold that is weighted by them.

Which part of a row contact forces leave depends on how well the others are known. The first fold
takes a part of the robot's weight for every row; residuals then tell, and the log is folded again.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from thetahat.dynamics.contact_projection import eliminates_forces, row_deviations
from thetahat.engine.protocol import Engine, Fold, Rows
from thetahat.identification.estimators.joint_weights import weigh
from thetahat.identification.submodel import view
from thetahat.identification.tuning.tune import Tuned
from thetahat.model.floating_base import with_deviations
from thetahat.pipeline.dataset import Dataset

ROUNDS = 3
SETTLED = 1.5  # times: deviations that differ by less, beside a common factor, are the same
FARTHEST = 1e3  # times a first guess


def fold_rows(dataset: Dataset, engine: Engine, tuned: Tuned) -> tuple[Dataset, Tuned, Rows, Fold]:
    """Fold the training rows; where contact forces are eliminated, until their weights settle.

    Returns dataset and choices with the weights, the rows and what was folded.
    """
    for left in range(ROUNDS, -1, -1):
        rows = Rows(dataset.log, tuned.settings, dataset.train_rows, dataset.joints)
        fold = engine.fold(rows, tuned.robot)
        if not left or not eliminates_forces(tuned.robot):
            break
        deviations = _told(dataset, tuned, fold)
        if deviations is None:
            break
        dataset = replace(dataset, robot=with_deviations(dataset.robot, deviations))
        tuned = replace(tuned, robot=with_deviations(tuned.robot, deviations))
    return dataset, tuned, rows, fold


def _told(dataset: Dataset, tuned: Tuned, fold: Fold) -> dict[str, float] | None:
    """The deviations that residuals tell, by degree of freedom; None: those that were used."""
    seen = view(fold.information, dofs=dataset.joints.dofs)
    if int(seen.rows.sum()) <= 2 * len(seen.base):
        return None
    before = row_deviations(tuned.robot)
    counted = seen.rows > 0
    noise = np.clip(weigh(seen, "iterated").noise, before / FARTHEST, before * FARTHEST)
    change = np.log(noise[counted] / before[counted])
    if np.ptp(change) < 2.0 * np.log(SETTLED):
        return None
    scale = np.exp(np.median(change))
    new = np.where(counted, noise, scale * before)
    return dict(zip(tuned.robot.velocity_names, map(float, new), strict=True))
