"""The information of a planned motion, how much of its limits it takes, and the derivative of both
by the motion's coefficients.

F = P + Σ_s Y_sᵀ W_s Y_s over samples of the motion, Y the regressor's base columns, W = diag(w_j),
1/w_j the variance of joint j's row (measurement_noise), P the information there is already: of
earlier logs and of a prior. A criterion φ(F) with dφ = tr(M dF) changes with the state z = (q, q̇,
q̈) of sample s by 2 Σ_jc (W Y_s M)_jc ∂Y_s,jc/∂z, and with q by Σ_j w_j (Y_s M Y_sᵀ)_jj ∂log w_j/∂q
too: 3·nv differences of the regressor per sample, in one call of the kernel for all samples, give
the whole gradient, however many coefficients there are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from thetahat.dynamics import rigid_body
from thetahat.excite.bases import Family
from thetahat.excite.collision_model import Contacts
from thetahat.excite.measurement_noise import MeasurementNoise
from thetahat.excite.motion_limits import MotionLimits
from thetahat.identification.identifiability.base_parameters import base_parameters
from thetahat.identification.parameter_columns import Columns
from thetahat.model.drive import Drive
from thetahat.model.friction_terms import DriveTerm
from thetahat.model.robot import Robot

# [rad, rad/s, …] of the differences; the regressor is linear in q̈, quadratic in q̇ and smooth in q
STEP = 1e-6
# of a joint's speed limit: the width of sign(q̇) while designing, as a step has no derivative
SOFT = 0.03
# of the norm that stands for the largest of three, so that being outside of a box has a derivative
POWER = 8.0
MEMORY = 48 * 2**20  # [bytes] of regressors held at once
SHARP = 8.0  # power of the eigenvalues in a smooth condition number


def log_det(F: np.ndarray) -> tuple[float, np.ndarray]:
    """φ = −log det(F)/2p and M = −F⁻¹/2p: e^−φ is the p-th root of the volume, 1 % better where φ
    is 0.01 less. Infinite where F is singular.
    """
    p = len(F)
    scale = 1.0 / np.sqrt(np.maximum(np.diag(F), 1e-300))
    L, info = lapack.dpotrf(F * np.outer(scale, scale), lower=1, clean=1)
    if info:
        return np.inf, np.zeros_like(F)
    inverse, _ = lapack.dpotri(L, lower=1)
    inverse = np.tril(inverse) + np.tril(inverse, -1).T
    value = -(np.sum(np.log(np.diag(L))) - np.sum(np.log(scale))) / p
    return float(value), inverse * np.outer(scale, scale) / (-2.0 * p)


def log_condition(F: np.ndarray) -> tuple[float, np.ndarray]:
    """φ, the logarithm of the column-scaled regressor's condition number made smooth, and its M.

    C = D^−½ F D^−½, D = diag F, has eigenvalues λ; φ = (log ‖λ‖ + log ‖1/λ‖)/2 in norms of power
    SHARP for their largest entries.
    """
    d = np.maximum(np.diag(F), 1e-300)
    scale = 1.0 / np.sqrt(d)
    C = F * np.outer(scale, scale)
    lam, V = np.linalg.eigh(C)
    if not lam[0] > 1e-14 * lam[-1]:
        return np.inf, np.zeros_like(F)
    high, low = (lam / lam[-1]) ** SHARP, (lam[0] / lam) ** SHARP
    value = 0.5 * (np.log(lam[-1] / lam[0]) + np.log(np.sum(high) * np.sum(low)) / SHARP)
    K = (V * (0.5 * (high / np.sum(high) - low / np.sum(low)) / lam)) @ V.T
    return float(value), K * np.outer(scale, scale) - np.diag(np.sum(K * C, axis=1) / d)


def room(ratios: np.ndarray, change: np.ndarray) -> np.ndarray:
    """How often a change of ratios fits before each of them meets its limit, ±1."""
    with np.errstate(divide="ignore", invalid="ignore"):
        up, down = (1.0 - ratios) / change, (-1.0 - ratios) / change
    return np.where(change > 0.0, up, np.where(change < 0.0, down, np.inf))


CRITERIA = {"log-det": log_det, "condition": log_condition}


@dataclass(frozen=True, eq=False)
class Look:
    """One motion looked at: its criterion, and how much of its limits it takes."""

    X: np.ndarray  # (nv, size)
    states: tuple[np.ndarray, np.ndarray, np.ndarray]  # q, q̇, q̈ at the grid, (n, nv) each
    rows: np.ndarray  # (n, nv, p) weighted base columns
    value: float  # φ, to be made small
    slope: np.ndarray  # (p, p) M
    linear: np.ndarray  # (n, 4·nv) ratios of position, velocity, acceleration, jerk
    curved: np.ndarray  # (n, values) ratios of torque and boxes
    felt: Contacts  # ratios of floor and links that keep apart, where they are felt


class Slopes(NamedTuple):
    """Derivatives of a motion's criterion and ratios by its coefficients."""

    criterion: np.ndarray  # (nv, size) ∂φ/∂X
    curved: np.ndarray  # (n, values, nv, size)
    felt: np.ndarray  # (a, nv, size)


@dataclass(frozen=True, eq=False)
class Problem:
    """A family of motions of a robot under limits, and a criterion of what they show."""

    robot: Robot
    family: Family
    limits: MotionLimits
    criterion: str
    noise: MeasurementNoise
    rate: float  # [Hz] of the samples the log will hold
    earlier: np.ndarray | None = None  # (p, p) information of earlier logs and of a prior
    # factor on all ratios: what a motion may take more between two samples of the grid
    tight: float = 1.005

    @cached_property
    def times(self) -> np.ndarray:
        """Midpoints of equal parts of the motion, (n,)."""
        n = self.family.grid
        return (np.arange(n) + 0.5) * (self.family.duration / n)

    @cached_property
    def functions(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Φ, Φ̇ and Φ̈ at these times, (n, size) each."""
        return self.family.functions(self.times)

    @cached_property
    def columns(self) -> np.ndarray:
        """The regressor's base columns, as `Information` keeps them."""
        return base_parameters(self.robot).strong.independent

    def weights(self, q: np.ndarray) -> np.ndarray:
        """(n, nv) factor on each joint's rows: 1/σ, and every sample of the grid stands for several
        of the log.
        """
        stands_for = self.family.duration * self.rate / len(self.times)
        return np.asarray(np.sqrt(stands_for / self.noise.variances(self.robot, q)))

    @cached_property
    def base(self) -> tuple[np.ndarray, np.ndarray]:
        """The functions, (4, n, size), and what the joints' limits divide them by, (4, nv):
        position, velocity, acceleration, jerk.
        """
        own = self.limits
        limits = np.stack([own.reach, own.velocity, own.acceleration, own.jerk])
        third = self.family.third_derivatives(self.times)
        return np.stack([*self.functions, third]), limits / self.tight

    # -- values ------------------------------------------------------------------------------------

    def states(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """q, q̇ and q̈ at the grid."""
        q, dq, ddq = (np.ascontiguousarray(f @ X.T) for f in self.functions)
        return (q if self.family.start is None else q + self.family.start), dq, ddq

    def linear_ratios(self, X: np.ndarray) -> np.ndarray:
        """How much of the limits of position, velocity, acceleration, jerk is used, (n, 4·nv)."""
        functions, limits = self.base
        values = functions @ X.T  # (4, n, nv)
        start = 0.0 if self.family.start is None else self.family.start
        values[0] += start - self.limits.centre
        return np.hstack(list(values / limits[:, None]))

    def curved_ratios(self, q: np.ndarray, dq: np.ndarray, ddq: np.ndarray) -> np.ndarray:
        """How much of the limits of torque, (n, torques), then of boxes is used, (n, values)."""
        parts = [np.empty((len(q), 0))]
        if self.torques:
            parts.append(rigid_body.inverse_dynamics(self.robot, q, dq, ddq) / self.limits.torque)
        parts += [box.ratios(self.robot, q, power=POWER) for box in self.limits.boxes]
        return self.tight * np.hstack(parts)

    def felt(self, q: np.ndarray) -> Contacts:
        """Where the floor and links that keep apart are felt."""
        felt = self.limits.collisions.contacts(self.robot, q)
        return felt._replace(ratio=self.tight * felt.ratio)

    @cached_property
    def torques(self) -> int:
        """How many of the curved ratios are torques: all joints', or none where none is limited."""
        return self.robot.nv if np.any(np.isfinite(self.limits.torque)) else 0

    def look(self, X: np.ndarray) -> Look:
        """The criterion and the limits of one motion."""
        states = self.states(X)
        rows = self._rows(*states)
        flat = rows.reshape(-1, rows.shape[2])
        F = flat.T @ flat
        value, slope = self.measured(F if self.earlier is None else F + self.earlier)
        curved, felt = self.curved_ratios(*states), self.felt(states[0])
        return Look(X, states, rows, value, slope, self.linear_ratios(X), curved, felt)

    def measured(self, F: np.ndarray) -> tuple[float, np.ndarray]:
        """The criterion of an information (p, p), to be made small, and its slope."""
        return CRITERIA[self.criterion](F)

    # -- derivatives -------------------------------------------------------------------------------

    def gradient(self, look: Look) -> Slopes:
        """Return the derivatives by the coefficients."""
        n, nv = look.states[0].shape
        G = np.zeros((n, nv, Columns(self.robot).count))
        seen = look.rows @ look.slope
        G[:, :, self.columns] = 2.0 * self.weights(look.states[0])[..., None] * seen
        by_state, curved = np.empty((n, 3 * nv)), np.empty((n, look.curved.shape[1], 3 * nv))
        at_once = max(1, MEMORY // (8 * G[0].size * (3 * nv + 1)))
        for first in range(0, n, at_once):
            part = slice(first, first + at_once)
            by_state[part], curved[part] = self._differences(
                [x[part] for x in look.states], G[part]
            )
        if np.any(self.noise.acceleration):
            by_state[:, :nv] += self._by_weights(look.states[0], np.sum(seen * look.rows, axis=2))
        functions, slopes = self.base[0], by_state.reshape(n, 3, nv)
        felt = self.limits.collisions.jacobian(self.robot, look.states[0], look.felt)
        return Slopes(
            np.einsum("sdj,dsm->jm", slopes, functions[:3], optimize=True),
            np.einsum("srdj,dsm->srjm", curved.reshape(n, -1, 3, nv), functions[:3], optimize=True),
            self.tight * felt[:, :, None] * functions[0][look.felt.sample][:, None, :],
        )

    def _by_weights(self, q: np.ndarray, shown: np.ndarray) -> np.ndarray:
        """Σ_j shown_j ∂log w_j/∂q of every sample, (n, nv): what the noise of accelerations adds.

        shown: (n, nv) w_j (Y M Yᵀ)_jj.
        """
        n, nv = q.shape
        moved = q[:, None] + STEP * np.concatenate([np.zeros((1, nv)), np.eye(nv)])
        variances = self.noise.variances(self.robot, moved.reshape(-1, nv)).reshape(n, nv + 1, nv)
        logs = np.log(variances)
        return np.asarray(-np.einsum("skj,sj->sk", logs[:, 1:] - logs[:, :1], shown) / STEP)

    def _differences(
        self, states: list[np.ndarray], G: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """By q, q̇ and q̈ of every sample: Σ G·∂Y, (n, 3·nv), and the derivative of the curved
        ratios, (n, values, 3·nv).
        """
        n, nv = states[0].shape
        count, inertial = 3 * nv + 1, len(self.robot.theta)
        moved = [np.repeat(x[:, None], count, axis=1) for x in states]
        for d, x in enumerate(moved):
            x[:, 1 + d * nv + np.arange(nv), np.arange(nv)] += STEP
        flat = [x.reshape(-1, nv) for x in moved]
        Y = rigid_body.regressor(
            self.robot, *flat, out=self._memory(n * count, nv, inertial)
        ).reshape(n, count, nv * inertial)
        change = np.matmul(
            Y, np.ascontiguousarray(G[:, :, :inertial]).reshape(n, nv * inertial, 1)
        )[:, :, 0]
        if G.shape[2] > inertial:
            change += self._drive_changes(flat, G[:, :, inertial:])
        ratios = self.curved_ratios(*flat).reshape(n, count, -1)
        return (change[:, 1:] - change[:, :1]) / STEP, np.swapaxes(
            ratios[:, 1:] - ratios[:, :1], 1, 2
        ) / STEP

    def _drive_changes(self, flat: list[np.ndarray], G: np.ndarray) -> np.ndarray:
        """Σ G·Y_drive at the moved states, (n, states)."""
        n, nv, columns = G.shape
        drive, order = self._soft
        # a motor's columns are in its own joint's row alone
        if drive.actuation is None and not self._needs_load:
            terms, motors = len(drive.identified), list(drive.column_motors)
            values = np.stack(
                [
                    column[:, motors]
                    for column in drive.motor_columns(flat[1], flat[2], q=flat[0])[1]
                ],
                axis=1,
            )
            own = np.empty((n, columns))
            own[:, order] = G[:, np.tile(motors, terms), np.arange(columns)]
            return np.asarray(np.matmul(values.reshape(n, -1, columns), own[:, :, None])[:, :, 0])
        return np.asarray(
            np.matmul(
                self._drive(*flat).reshape(n, -1, nv * columns),
                np.ascontiguousarray(G).reshape(n, nv * columns, 1),
            )[:, :, 0]
        )

    def _memory(self, *shape: int) -> np.ndarray:
        """An array of this shape out of one piece of memory that is kept: fresh pages for every
        gradient would cost as much as the kernel.
        """
        size = math.prod(shape)
        if self._scratch[0].size < size:
            self._scratch[0] = np.empty(size)
        return self._scratch[0][:size].reshape(shape)

    @cached_property
    def _scratch(self) -> list[np.ndarray]:
        return [np.empty(0)]

    # -- columns -----------------------------------------------------------------------------------

    def _rows(self, q: np.ndarray, dq: np.ndarray, ddq: np.ndarray) -> np.ndarray:
        """The weighted base columns of [Y | Y_drive], (n, nv, p)."""
        inertial = len(self.robot.theta)
        bodies = self.columns[self.columns < inertial]
        rows = rigid_body.regressor(self.robot, q, dq, ddq)[:, :, bodies]
        if len(bodies) < len(self.columns):
            rows = np.concatenate(
                [rows, self._drive(q, dq, ddq)[:, :, self.columns[len(bodies) :] - inertial]],
                axis=2,
            )
        return np.asarray(rows * self.weights(q)[..., None])

    def _drive(self, q: np.ndarray, dq: np.ndarray, ddq: np.ndarray) -> np.ndarray:
        """Y_drive, (n, nv, drive columns), with a soft sign in place of Coulomb's step."""
        drive, order = self._soft
        load = None
        if self._needs_load:
            load = rigid_body.inverse_dynamics(self.robot, q, dq, ddq, rigid=True)
        return drive.columns(dq, ddq, q=q, load=load)[:, :, order]

    @cached_property
    def _needs_load(self) -> bool:
        return any(shape.needs_load for shape, _ in self.robot.drive.extra)

    @cached_property
    def _soft(self) -> tuple[Drive, np.ndarray]:
        """The drive with a smooth Coulomb term, and the order of its columns."""
        drive = self.robot.drive
        if "coulomb" not in drive.identified:
            return drive, np.arange(drive.column_count)
        speed = self._speeds
        if drive.actuation is not None:
            B = drive.actuation.matrix_at(self.limits.centre)
            speed = np.abs(B).T @ speed
        width = np.maximum(SOFT * speed, 1e-9)
        soft = drive.with_terms(coulomb=False).with_extra_term(
            DriveTerm("soft sign", lambda dq, ddq, load: dq / np.sqrt(dq * dq + width * width))
        )
        names = [("soft sign" if term == "coulomb" else term) for term in drive.identified]
        motors = len(drive.column_motors)
        return soft, np.concatenate(
            [soft.identified.index(name) * motors + np.arange(motors) for name in names]
        )

    @cached_property
    def _speeds(self) -> np.ndarray:
        """A typical largest speed of every joint, (nv,): its limit, or that of a sinusoid of its
        reach at the motion's slowest turn.
        """
        return np.where(
            np.isfinite(self.limits.velocity),
            self.limits.velocity,
            self.limits.reach * 2.0 * np.pi / self.family.duration,
        )
