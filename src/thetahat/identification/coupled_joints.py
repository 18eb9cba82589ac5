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

import numpy as np

from thetahat.data.types import Finding
from thetahat.identification.residual_structure import (
    FEWEST,
    ZONE,
    Residuals,
    explained_share,
)

# of the squares of the residuals of either joint: that much a shaft explains where there is one
EXPLAINED = 0.3


@dataclass(frozen=True)
class Coupling:
    """Two joints that a motor seems to turn with."""

    joints: tuple[str, str]
    sign: int  # of the second joint's speed
    explained: tuple[float, float]  # of the residuals' squares of each, on rows left out

    @property
    def finding(self) -> Finding:
        """What the audit reports of it."""
        return Finding("coupling", self.joints[0], None, self.sentence)

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


def coupled(names: Sequence[str], residuals: Residuals) -> list[Coupling]:
    """Pairs of these degrees of freedom whose residuals tell of a common shaft."""
    samples, out = residuals.samples, []
    rows = samples.valid
    alone: dict[tuple[int, bytes], float] = {}  # of a joint, and the rows that are compared
    for i in range(samples.nv):
        for k in range(i + 1, samples.nv):
            both = rows[:, i] & rows[:, k]
            if np.count_nonzero(both) < FEWEST:
                continue
            part = _Rows(residuals.residual[both], samples.dq[both], samples.ddq[both])
            for j in (i, k):
                if (j, both.tobytes()) not in alone:
                    alone[j, both.tobytes()] = part.left_by_own_drive(j)
            left = alone[i, both.tobytes()], alone[k, both.tobytes()]
            (least, shares), sign = max((part.explained((i, k), left, s), s) for s in (1, -1))
            if least > EXPLAINED:
                out.append(Coupling((names[i], names[k]), sign, shares))
    return out


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows in which two joints are usable."""

    residual: np.ndarray
    dq: np.ndarray
    ddq: np.ndarray

    def left_by_own_drive(self, joint: int) -> float:
        """Share of a residual's squares that a rotor and friction of its own leave."""
        own = _drive_columns(self.dq[:, joint], self.ddq[:, joint])
        return 1.0 - explained_share(own, self.residual[:, joint])

    def explained(
        self, joints: tuple[int, int], left: tuple[float, float], sign: int
    ) -> tuple[float, tuple[float, float]]:
        """(the lesser share, the share of each joint) of the residuals' squares that the shaft
        explains on stretches left out, beyond what a rotor and friction of its own explain.
        """
        i, k = joints
        speed, acceleration = (each[:, i] + sign * each[:, k] for each in (self.dq, self.ddq))
        shaft, shares = _drive_columns(speed, acceleration), []
        for j, alone in zip(joints, left, strict=True):
            own = _drive_columns(self.dq[:, j], self.ddq[:, j])
            both = 1.0 - explained_share(np.hstack([own, shaft]), self.residual[:, j])
            shares.append(1.0 - both / alone if alone > 0.0 else 0.0)
        return min(shares), (shares[0], shares[1])


def _drive_columns(speed: np.ndarray, acceleration: np.ndarray) -> np.ndarray:
    """Dry and viscous friction and rotor inertia, (rows, 3)."""
    zone = ZONE * np.sqrt(np.mean(speed**2)) or 1.0
    return np.column_stack([np.tanh(speed / zone), speed, acceleration])
