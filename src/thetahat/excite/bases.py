"""Families of trajectories that are linear in their coefficients, which is what a design searches
through.

q_j(t) = q0_j + Σ_m Φ_m(t)·X_jm, with one set of functions Φ for all joints and every member at rest
at both ends. Without a given start, the first function is constant: where the motion is. With one,
all of them vanish at t = 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from thetahat.errors import check_count, check_positive
from thetahat.excite.trajectories import (
    Fourier,
    Spline,
    fourier_jerk,
    fourier_terms,
    spline_jerk,
    spline_terms,
)
from thetahat.excite.trajectory import State, Trajectory

# samples per period of the highest harmonic, or per span of a spline: enough for the integral
# behind an information
GRID = 40
LONGEST = 1e5  # [s] of a motion
MOST_TERMS = 200  # harmonics, or points of a spline


class Family(ABC):
    """Functions of time, and the trajectory that coefficients make of them."""

    joint_names: tuple[str, ...]
    duration: float
    start: np.ndarray | None  # (nv,) where every member begins; None: anywhere

    @abstractmethod
    def functions(self, t: np.ndarray) -> State:
        """Return Φ and its two derivatives at times t, (n, size) each; a constant comes first."""

    @abstractmethod
    def third_derivatives(self, t: np.ndarray) -> np.ndarray:
        """Return the third derivative of Φ at times t, (n, size)."""

    @property
    @abstractmethod
    def highest_frequency(self) -> float:
        """[Hz] of the fastest oscillation that the functions hold."""

    @abstractmethod
    def trajectory(self, X: np.ndarray) -> Trajectory:
        """The member with these coefficients, (nv, size)."""

    @property
    @abstractmethod
    def grid(self) -> int:
        """How many samples stand for the whole motion while it is designed."""

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Coefficients at random, (nv, moving), of the functions that move."""

    @cached_property
    def size(self) -> int:
        """Coefficients per joint."""
        return int(self.functions(np.zeros(1))[0].shape[1])

    @property
    def moving(self) -> slice:
        """The coefficients that move the robot about its centre or start."""
        return slice(0 if self.start is not None else 1, None)


@dataclass(frozen=True, eq=False)
class FourierFamily(Family):
    """Fourier series of one period at rest at its ends: 2·harmonics − 2 functions that move, one
    more where the start is free.
    """

    joint_names: tuple[str, ...]
    duration: float  # [s], one period
    harmonics: int
    start: np.ndarray | None = None

    def __post_init__(self) -> None:
        check_positive("duration", self.duration, "how long the motion lasts [s]", most=LONGEST)
        check_count(
            "harmonics",
            self.harmonics,
            "the harmonics of the series (with one alone a motion cannot start at rest)",
            least=2,
            most=MOST_TERMS,
        )

    @cached_property
    def _rest(self) -> np.ndarray:
        """Z, (2·harmonics, 2·harmonics − 2), orthonormal: (a, b) = Z·x has Σ a_k = 0 and Σ k b_k =
        0.
        """
        h = self.harmonics
        out = np.zeros((2 * h, 2 * h - 2))
        out[:h, : h - 1] = np.linalg.svd(np.ones((1, h)))[2][1:].T
        out[h:, h - 1 :] = np.linalg.svd(np.arange(1.0, h + 1)[None])[2][1:].T
        return out

    def functions(self, t: np.ndarray) -> State:
        """Combinations of the series' terms that are at rest at t = 0."""
        q, dq, ddq = (term @ self._rest for term in fourier_terms(t, self.duration, self.harmonics))
        if self.start is None:
            one, zero = np.ones((len(t), 1)), np.zeros((len(t), 1))
            return np.hstack([one, q]), np.hstack([zero, dq]), np.hstack([zero, ddq])
        first = fourier_terms(np.zeros(1), self.duration, self.harmonics)[0] @ self._rest
        return q - first, dq, ddq

    def third_derivatives(self, t: np.ndarray) -> np.ndarray:
        """Of the same combinations."""
        third = fourier_jerk(t, self.duration, self.harmonics) @ self._rest
        return third if self.start is not None else np.hstack([np.zeros((len(t), 1)), third])

    @property
    def highest_frequency(self) -> float:
        """That of the last harmonic."""
        return self.harmonics / self.duration

    def trajectory(self, X: np.ndarray) -> Fourier:
        """The series of these coefficients."""
        ab = X[:, self.moving] @ self._rest.T
        first = fourier_terms(np.zeros(1), self.duration, self.harmonics)[0]
        centre = X[:, 0] if self.start is None else self.start - ab @ first[0]
        a, b = ab[:, : self.harmonics], ab[:, self.harmonics :]
        return Fourier(self.joint_names, self.duration, centre, a, b)

    @property
    def grid(self) -> int:
        """GRID samples per period of the highest harmonic."""
        return GRID * self.harmonics

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Random coefficients a_k, b_k at rest, with equal speed of every harmonic."""
        return np.asarray(rng.normal(size=(len(self.joint_names), 2 * self.harmonics)) @ self._rest)


@dataclass(frozen=True, eq=False)
class SplineFamily(Family):
    """Splines through points at equal steps of time."""

    joint_names: tuple[str, ...]
    duration: float  # [s]
    points: int
    start: np.ndarray | None = None

    def __post_init__(self) -> None:
        check_positive("duration", self.duration, "how long the motion lasts [s]", most=LONGEST)
        what = "the points of the spline, its ends included"
        check_count("points", self.points, what, least=3, most=MOST_TERMS)

    @cached_property
    def _knots(self) -> np.ndarray:
        return np.linspace(0.0, self.duration, self.points)

    def functions(self, t: np.ndarray) -> State:
        """One function per point after the first, and the constant where the start is free."""
        q, dq, ddq = (term[:, 1:] for term in spline_terms(t, self._knots))
        if self.start is not None:
            return q, dq, ddq
        one, zero = np.ones((len(t), 1)), np.zeros((len(t), 1))
        return np.hstack([one, q]), np.hstack([zero, dq]), np.hstack([zero, ddq])

    def third_derivatives(self, t: np.ndarray) -> np.ndarray:
        """Of the same functions."""
        third = spline_jerk(t, self._knots)[:, 1:]
        return third if self.start is not None else np.hstack([np.zeros((len(t), 1)), third])

    @property
    def highest_frequency(self) -> float:
        """A turn in every span, two of which make a period."""
        return (self.points - 1) / (2.0 * self.duration)

    def trajectory(self, X: np.ndarray) -> Spline:
        """The spline whose points are these steps away from its start."""
        start = X[:, 0] if self.start is None else self.start
        steps = X[:, self.moving]
        return Spline(
            self.joint_names, self._knots, start + np.vstack([np.zeros(len(start)), steps.T])
        )

    @property
    def grid(self) -> int:
        """GRID samples per two spans: a spline turns at most once in each."""
        return GRID * (self.points - 1) // 2

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Points all about the start at random."""
        return rng.normal(size=(len(self.joint_names), self.points - 1))
