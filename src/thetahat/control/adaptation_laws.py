"""Adaptation laws: how an estimate moves along the gradient g = Yᵀs of adaptive control.

    Euclidean   Θ̂̇ = −Γ g                                                            [Slotine1987]
    LogDet      Ṗ̂ = −(1/γ) P̂ L P̂ for every body, tr(L P(θ)) = g·θ for every θ       [LeeKwon2018]

P is the body's pseudo-inertia; the second is the natural gradient of the log-det divergence
log(|P̂|/|P|) + tr(P̂⁻¹P) − 4, a metric in which unphysical bodies are infinitely far away. A
positive drive term (viscous, Coulomb, rotor) moves as a pseudo-inertia of one row, ṗ = −p² g/γ;
what has any sign (offset) moves by the Euclidean law. Both laws make V̇ = −sᵀK s, V = ½ sᵀD s +
`distance` to the truth.

A step of LogDet follows the geodesic, P ← F exp(−(h/γ) FᵀLF) Fᵀ with P = F Fᵀ, so P stays positive
definite whatever h, γ and L are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from thetahat.errors import UsageError, check_positive, is_number
from thetahat.model import parameters
from thetahat.model.parameters import FIRST_MOMENT, IXX, IXY, IXZ, IYY, IYZ, IZZ, M
from thetahat.model.robot import Robot

# exponent of one step: no body grows or shrinks by more than a factor e in a cycle
LONGEST_STEP = 1.0
POSITIVE = ("viscous", "coulomb", "armature")


class State(Protocol):
    """An estimate that moves: θ̂ (10·bodies,) and the adapted drive terms (columns,)."""

    theta: np.ndarray
    drive: np.ndarray

    def step(self, gradient: np.ndarray, drive: np.ndarray, dt: float) -> None:
        """Move along −gradient for dt seconds."""

    def distance(self, theta: np.ndarray, drive: np.ndarray) -> float:
        """The law's part of the Lyapunov function [J]: zero at the truth, positive elsewhere."""


class Law(Protocol):
    """Begins the adaptation of a robot."""

    def begin(self, robot: Robot) -> State:
        """The estimate at the beginning: the robot's own numbers."""


def drive_values(robot: Robot) -> np.ndarray:
    """The drive terms to be identified, (columns,), as `drive.columns` orders them."""
    motors = list(robot.drive.column_motors)
    return np.concatenate(
        [np.zeros(0), *(robot.drive.value(term)[motors] for term in robot.drive.identified)]
    )


def dual(gradient: np.ndarray) -> np.ndarray:
    """L, (bodies, 4, 4), symmetric, with tr(L P(θ)) = gradient·θ for every θ of a body; gradient
    (bodies, 10).
    """
    return np.reshape(gradient @ _DUAL, (-1, 4, 4))


def _dual_basis() -> np.ndarray:
    """(10, 16): the L of each unit gradient."""
    g = np.eye(10)
    L = np.empty((10, 4, 4))
    total = g[:, IXX] + g[:, IYY] + g[:, IZZ]
    for k, diagonal in enumerate((IXX, IYY, IZZ)):
        L[:, k, k] = total - g[:, diagonal]
        L[:, k, 3] = L[:, 3, k] = 0.5 * g[:, FIRST_MOMENT[k]]
    for i, j, product in ((0, 1, IXY), (0, 2, IXZ), (1, 2, IYZ)):
        L[:, i, j] = L[:, j, i] = -0.5 * g[:, product]
    L[:, 3, 3] = g[:, M]
    return L.reshape(10, 16)


# As matrices: a step has no time for a dozen small operations.
_DUAL = _dual_basis()
_TO_THETA = parameters.from_pseudo_inertia(np.eye(16).reshape(16, 4, 4))  # (16, 10)


# -- the physically consistent law -----------------------------------------------------------------


@dataclass(frozen=True)
class LogDet:
    """The natural gradient of the log-det divergence: every estimate is a physical body."""

    gamma: float = 1.0  # γ [J]: the smaller, the quicker
    offset_gain: float = 1.0  # [N·m or N, squared, per J] of drive terms of any sign
    # no body becomes larger than this many times its guess, or smaller than that fraction, in any
    # direction
    bound: float = 1e3

    def __post_init__(self) -> None:
        for name in ("gamma", "offset_gain"):
            check_positive(name, getattr(self, name))
        if not (is_number(self.bound) and self.bound > 1.0):
            raise UsageError(f"bound is {self.bound!r}; give a finite number above one")

    def begin(self, robot: Robot) -> LogDetState:
        """The robot's own numbers; bodies at the edge of the physical (rods, point masses) are
        moved just inside, massless ones stay so.
        """
        return LogDetState(self, robot)


class LogDetState:
    """P = F₀ M F₀ᵀ for every body, F₀ the Cholesky factor of the guess, M from the identity on:
    without units, well conditioned.
    """

    def __init__(self, law: LogDet, robot: Robot) -> None:
        self.law = law
        theta = robot.theta.reshape(-1, 10)
        pseudo = parameters.to_pseudo_inertia(parameters.project(theta))
        self._live = theta[:, M] > 0.0
        pseudo[~self._live] = 0.0
        self._guess = np.zeros_like(pseudo)  # F₀
        self._guess[self._live] = np.linalg.cholesky(pseudo[self._live])
        self._factor = np.broadcast_to(np.eye(4), pseudo.shape).copy()  # M = F Fᵀ
        self._log_det = np.zeros(len(pseudo))  # of M
        motors = len(robot.drive.column_motors)
        self._positive = np.repeat(
            [term in POSITIVE for term in robot.drive.identified], motors
        ).astype(bool)
        self.drive = self._guess_drive = drive_values(robot)
        bad = np.flatnonzero(self._positive & (self.drive <= 0.0))
        if len(bad):
            drive = robot.drive
            term, motor = drive.identified[bad[0] // motors], drive.column_motors[bad[0] % motors]
            names = robot.velocity_names if drive.actuation is None else drive.actuation.names
            raise UsageError(
                f"{term} of {names[motor]!r} starts at {self.drive[bad[0]]:g}, from where a law"
                " that keeps it positive never moves; give a guess above zero"
                f" (robot.drive.with_values({term}=...)), or adapt with Euclidean()"
            )
        self.theta = np.where(
            self._live[:, None], parameters.from_pseudo_inertia(pseudo), theta
        ).ravel()

    @property
    def _whole(self) -> np.ndarray:
        """G with P = G Gᵀ."""
        return self._guess @ self._factor

    def step(self, gradient: np.ndarray, drive: np.ndarray, dt: float) -> None:
        """Follow the geodesic for dt seconds; nothing moves where the gradient is zero, or where it
        is no number.
        """
        h = dt / self.law.gamma
        with np.errstate(all="ignore"):
            if np.any(gradient):
                G = self._whole
                A = np.swapaxes(G, 1, 2) @ dual(gradient.reshape(-1, 10)) @ G
                if np.all(np.isfinite(A)):
                    self._move(A, h)
            if len(drive) and np.all(np.isfinite(drive)) and np.any(drive):
                self._move_drive(drive, h, dt)

    def _move(self, A: np.ndarray, h: float) -> None:
        values, vectors = np.linalg.eigh(A)
        exponent = -np.clip(np.nan_to_num(h * values), -LONGEST_STEP, LONGEST_STEP)
        F = self._factor @ (vectors * np.exp(0.5 * exponent)[:, None, :])
        self._log_det += exponent.sum(axis=1)
        # λ_max ≤ tr M and λ_min ≥ |M|/λ_max³: only where these do not settle it are eigenvalues
        # asked for.
        trace = np.sum(F * F, axis=(1, 2))
        limit = self.law.bound
        for k in np.flatnonzero(
            (trace > limit) | (self._log_det - 3.0 * np.log(trace) < -math.log(limit))
        ):
            values, vectors = np.linalg.eigh(F[k] @ F[k].T)
            kept = np.clip(values, 1.0 / limit, limit)
            F[k], self._log_det[k] = vectors * np.sqrt(kept), np.sum(np.log(kept))
        self._factor = F
        G = self._whole
        live = self._live
        theta = (G @ np.swapaxes(G, 1, 2)).reshape(-1, 16) @ _TO_THETA
        if not live.all():
            theta = np.where(live[:, None], theta, self.theta.reshape(-1, 10))
        self.theta = theta.ravel()

    def _move_drive(self, gradient: np.ndarray, h: float, dt: float) -> None:
        p, free = self.drive.copy(), ~self._positive
        step = np.clip(np.nan_to_num(h * p * gradient), -LONGEST_STEP, LONGEST_STEP)
        grown, limit = p * np.exp(-step), self.law.bound
        p[self._positive] = np.clip(grown, self._guess_drive / limit, self._guess_drive * limit)[
            self._positive
        ]
        moved = p - dt * self.law.offset_gain * gradient
        p[free & np.isfinite(moved)] = moved[free & np.isfinite(moved)]
        self.drive = p

    def distance(self, theta: np.ndarray, drive: np.ndarray) -> float:
        """γ Σ (log(|P̂|/|P|) + tr(P̂⁻¹P) − 4) over bodies, the same over positive drive terms, ½
        |difference|²/gain over the others.
        """
        P = parameters.to_pseudo_inertia(theta.reshape(-1, 10))[self._live]
        G = self._whole[self._live]
        inside = np.linalg.solve(G, np.swapaxes(np.linalg.solve(G, P), 1, 2))  # G⁻¹ P G⁻ᵀ
        total = float(
            np.sum(np.trace(inside, axis1=1, axis2=2) - np.linalg.slogdet(inside)[1] - 4.0)
        )
        ratio = drive[self._positive] / self.drive[self._positive]
        total += float(np.sum(ratio - np.log(ratio) - 1.0))
        off = (drive - self.drive)[~self._positive]
        return self.law.gamma * total + 0.5 * float(off @ off) / self.law.offset_gain


# -- the plain law ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Euclidean:
    """The plain gradient, Γ = gain·1 or diag(gain); estimates need not be physical."""

    # of every parameter, or one per parameter (θ, then drive columns) [its unit squared per J]
    gain: float | tuple[float, ...] = 0.1

    def begin(self, robot: Robot) -> EuclideanState:
        """The robot's own numbers."""
        return EuclideanState(self, robot)


class EuclideanState:
    """Numbers in a plain space."""

    def __init__(self, law: Euclidean, robot: Robot) -> None:
        self.law, self.theta, self.drive = law, robot.theta.copy(), drive_values(robot)
        count, gain = len(self.theta) + len(self.drive), np.array(law.gain, dtype=float)
        if (
            gain.ndim > 1
            or (gain.ndim == 1 and len(gain) != count)
            or not np.all(np.isfinite(gain) & (gain > 0.0))
        ):
            raise UsageError(
                f"gain is {law.gain!r}; give a finite number above zero, or {count}: one per"
                " parameter"
            )
        self._gain = np.broadcast_to(gain, (count,))

    def step(self, gradient: np.ndarray, drive: np.ndarray, dt: float) -> None:
        """One step of Euler; what would not be a number is left alone."""
        split = len(self.theta)
        with np.errstate(all="ignore"):
            theta = self.theta - dt * self._gain[:split] * gradient
            moved = self.drive - dt * self._gain[split:] * drive
        if np.all(np.isfinite(theta)) and np.all(np.isfinite(moved)):
            self.theta, self.drive = theta, moved

    def distance(self, theta: np.ndarray, drive: np.ndarray) -> float:
        """½ (Θ̂ − Θ)ᵀ Γ⁻¹ (Θ̂ − Θ)."""
        off = np.concatenate([self.theta - theta, self.drive - drive])
        return 0.5 * float(off @ (off / self._gain))
