"""What an update found out, and what the gate makes of it: the evidence, and a check of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thetahat.online.config import GateRules


def digits(r2: float) -> str:
    """R² as text; far below zero its digits say nothing."""
    return f"{r2:.4f}" if r2 >= -1.0 else "below −1"


@dataclass(frozen=True)
class Thresholds:
    """What the checks compare with."""

    rules: GateRules
    threshold: float  # R² at which the gate opens
    closing: float  # and below which it closes


@dataclass(frozen=True)
class Check:
    """One condition of the gate."""

    name: str
    passed: bool  # whether a closed gate may open
    keeps: bool  # whether an open gate may stay open
    sentence: str  # why not, or that it is


@dataclass(frozen=True, eq=False)
class NominalSums:
    """Sums of a nominal robot's torques τ₀ over held-out samples of moving joints, (nv,) each."""

    square: np.ndarray  # Σ τ₀²
    cross: np.ndarray  # Σ τ τ₀


@dataclass(frozen=True, eq=False)
class Score:
    """Sums over held-out samples of moving joints, (nv,) each."""

    e2: np.ndarray  # of the model's errors
    u2: np.ndarray  # of the torques
    rows: np.ndarray
    nominal2: np.ndarray  # of the nominal robot's torques
    cross: np.ndarray  # of both
    # σ of the errors as their median tells it: a few samples of another robot do not move it
    usual: np.ndarray | float = np.inf
    # of the model's errors on the newest samples, as if all were like these
    late2: np.ndarray | float = 0.0
    still2: np.ndarray | float = 0.0  # of what is left of still joints' torques beyond dry friction
    still_u2: np.ndarray | float = 0.0  # of still joints' torques
    still_rows: np.ndarray | int = 0
    whole: NominalSums | None = None  # of the nominal robot with its friction
    # (nv,) bool: joints without torque to speak of, beside the strongest of their unit
    light: np.ndarray | bool = False
    # (nv,) bool: light joints of a robot on its feet, in which the ground's forces and the motors'
    # torques cancel: what is left has no sign to be checked
    cancelling: np.ndarray | bool = False

    @property
    def r2_per_joint(self) -> np.ma.MaskedArray:
        """1 − e'e/u'u, masked where undefined."""
        defined = (self.u2 > 0.0) & (self.rows > 0)
        return np.ma.masked_array(1.0 - self.e2 / np.where(defined, self.u2, 1.0), mask=~defined)

    @property
    def to_explain(self) -> np.ndarray:
        """(nv,) squares that a model must explain a share of: of the torques, or, of a light joint,
        of what the nominal robot leaves of them where that is more.
        """
        if self.whole is None:
            return self.u2
        left = np.maximum(self.u2 - 2.0 * self.whole.cross + self.whole.square, 0.0)
        return np.where(self.light, np.maximum(self.u2, left), self.u2)

    @property
    def r2(self) -> float | None:
        """Of all joints."""
        total = float(np.sum(self.u2))
        return 1.0 - float(np.sum(self.e2)) / total if total > 0.0 else None


@dataclass(frozen=True, eq=False)
class Evidence:
    """What an update found out."""

    fill: int
    size: int
    r2_fit: float | None
    seen: float | None  # soft count of directions
    structural_rank: int
    physical: bool | None
    sentence: str  # of what is not physical
    held: Score | None
    ahead: tuple[float, float]  # e'e, u'u
    noise: np.ndarray  # (nv,) of the filtered torques
    moving: np.ndarray  # (nv,) bool: moved within the horizon
    still_for: float  # [s] since any joint moved
    judged: np.ndarray  # (nv,) bool: whose R² is required
    frozen: np.ndarray  # (nv,) bool: required, but has not moved enough, so its drive is nominal
    channels: tuple[str, ...]  # sentences of channels that cannot be believed
    names: tuple[str, ...]
    surprise: str = ""  # what of the model or the signals has to be expected by somebody
    # (nv,) mean squared error of the newest samples by models two seconds older; None: not asked
    later: np.ndarray | None = None

    @property
    def r2_ahead(self) -> float | None:
        """Stacked R² of every update's samples by the model before it."""
        return 1.0 - self.ahead[0] / self.ahead[1] if self.ahead[1] > 0.0 else None
