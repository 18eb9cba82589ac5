"""Coupled drives: torques of one joint that follow the motion of another, as no rigid body explains
them.

A motor that turns with two joints (a wrist's, a differential's) brings its friction and its rotor
to both: τ_i and τ_k then hold

    c·d(q̇_i + s·q̇_k) + b·(q̇_i + s·q̇_k) + a·(q̈_i + s·q̈_k),      s = ±1

which a model with one motor per joint leaves in the residuals of both. So residuals are what is
looked at: of every pair of joints, how much of both do these columns explain, on stretches that the
coefficients were not fitted to?
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from thetahat.data.samples import Samples
from thetahat.identification.tuning.cross_validation import FOLDS, thinned

# of the squares of the residuals of either joint: that much a shaft explains where there is one
EXPLAINED = 0.3
ZONE = 0.03  # of the RMS speed, as the law of dry friction has it unless another is found
FEWEST = 200  # rows


@dataclass(frozen=True)
class Coupling:
    """Two joints that a motor seems to turn with."""

    joints: tuple[str, str]
    sign: int  # of the second joint's speed
    explained: tuple[float, float]  # of the residuals' squares of each, on rows left out

    @property
    def sentence(self) -> str:
        """What was seen, and what to do."""
        first, second = self.joints
        sum_ = "sum" if self.sign > 0 else "difference"
        return (
            f"the torques of {first} and {second} both hold friction of the {sum_} of their speeds"
            f" ({self.explained[0]:.0%} and {self.explained[1]:.0%} of what the model leaves): a"
            " motor seems to turn with both; give the map from motors to joints with --actuation,"
            f" with a column of its own that is 1 for {first} and {'1' if self.sign > 0 else '-1'}"
            f" for {second}"
        )


def coupled(names: Sequence[str], samples: Samples) -> list[Coupling]:
    """Pairs of these degrees of freedom whose residuals tell of a common shaft; samples: with what
    a model leaves in the place of the torques.
    """
    samples = thinned(samples)
    rows, residual, out = samples.valid, samples.tau, []
    for i in range(samples.nv):
        for k in range(i + 1, samples.nv):
            both = rows[:, i] & rows[:, k]
            if np.count_nonzero(both) < FEWEST:
                continue
            best = max(
                (_explained(residual[both], samples.dq[both], samples.ddq[both], i, k, sign), sign)
                for sign in (1, -1)
            )
            (least, shares), sign = best
            if least > EXPLAINED:
                out.append(Coupling((names[i], names[k]), sign, shares))
    return out


def _explained(
    residual: np.ndarray, dq: np.ndarray, ddq: np.ndarray, i: int, k: int, sign: int
) -> tuple[float, tuple[float, float]]:
    """(the lesser share, the share of each joint) of the residuals' squares that the shaft explains
    on stretches left out.
    """
    speed, turn = dq[:, i] + sign * dq[:, k], ddq[:, i] + sign * ddq[:, k]
    zone = ZONE * np.sqrt(np.mean(speed**2)) or 1.0
    columns = np.stack([np.tanh(speed / zone), speed, turn], axis=1)
    target = residual[:, [i, k]]
    left = np.zeros(2)
    edges = np.linspace(0, len(target), FOLDS + 1).astype(int)
    for first, stop in pairwise(edges):
        others = np.r_[0:first, stop : len(target)]
        x = np.linalg.lstsq(columns[others], target[others], rcond=None)[0]
        left += np.sum((target[first:stop] - columns[first:stop] @ x) ** 2, axis=0)
    total = np.sum(target**2, axis=0)
    shares = 1.0 - left / np.where(total > 0.0, total, 1.0)
    return float(np.min(shares)), (float(shares[0]), float(shares[1]))
