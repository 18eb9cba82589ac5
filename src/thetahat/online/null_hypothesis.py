"""The null hypothesis of an alarm: nothing changed, the robot moves as the memory never saw it.

A model that was identified while a joint rested, or from half of a slow motion, predicts what comes
next with a spread that its error on samples of the same kind does not show. If that is all, one set
of parameters explains both what is remembered and the samples that raised the alarm; if the robot
changed, none does. With [R z] the triangle of the memory, and E, e the rows of the unexplained
samples, each over its joint's usual error:

    Δ = min ‖[R; E] x − [z; e]‖² − min ‖R x − z‖²

is what the best such parameters leave of them, counting what they cost the memory; ‖E x₀ − e‖² is
what the model in use leaves.
"""

from __future__ import annotations

import numpy as np

from thetahat.online.causal_filter import FilteredSample
from thetahat.online.held_out import HeldOut
from thetahat.online.learner import Learner
from thetahat.online.predict import Model
from thetahat.online.residual_monitor import ResidualMonitor

NEWEST = 15  # held-out samples that an alarm may be from: half a second of them
EXPLAINED = 0.25  # of the unexplained squares, that one model for all may leave


def one_model_explains(
    learner: Learner, held_out: HeldOut, model: Model, monitor: ResidualMonitor, joint: int
) -> bool:
    """Whether one set of parameters explains the memory and the newest samples, those that `model`,
    which is in use, does not explain at this joint.
    """
    samples, valid = held_out.newest(NEWEST)
    if not len(valid):
        return False
    q, dq, ddq, tau = samples
    predicted = model.torque(q, dq, ddq).copy()
    rules = monitor.rules
    scale = np.maximum(monitor.scale, rules.relative * np.max(np.abs(predicted), axis=0))
    z = (tau - predicted) / scale
    unexplained = valid[:, joint] & (np.abs(z[:, joint]) > monitor.lasts[joint])
    if not np.any(unexplained):
        return False
    picked = FilteredSample(*(np.ascontiguousarray(array[unexplained]) for array in samples))
    counted = valid[unexplained] & np.isfinite(scale)
    before = float(np.sum(z[unexplained] ** 2, where=counted))
    noise = np.count_nonzero(counted)  # what is left of every row, in its own units
    left = learner.misfit_with(picked, counted, scale) - noise
    rows = int(np.count_nonzero(unexplained))
    return bool(left <= EXPLAINED * before and left <= rules.drift**2 * rows)
