"""Drives that simulate a log's motion best: Levenberg–Marquardt on the simulation error.

The residual is q − q_sim of open-loop simulations of segments, weighted by each joint's own error
and bounded in its influence (Huber), so that a joint that was held or hit something does not bend
the others. Derivatives are carried along with the simulation (kernels/drive_sensitivity.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from thetahat.identification.actuators.drive_log import Segment
from thetahat.identification.actuators.drive_parameters import BIAS, DriveParameters
from thetahat.identification.actuators.drive_rollout import (
    DriveRollout,
    branch_places,
    columns_of,
    rows_of,
)

HUBER = 3.0  # times a joint's own error, from which a residual counts linearly
SMALLEST = 2e-4  # [rad or m] error of a joint that is not worth less
SETTLING = 0.25  # [s] from the start of a segment, in which the error of its velocity decays
NUMBERS_AT_ONCE = 10_000_000  # derivatives in memory
MOST_STEPS = 15
CONVERGED = 2e-4  # relative decrease of the cost below which a fit stops
DAMPING = 1e-3  # of Levenberg–Marquardt, at first
MOST_DAMPING = 1e4
LONGEST = 100.0  # small steps that a parameter moves at most at once


@dataclass(frozen=True, eq=False)
class NormalEquations:
    """Gauss–Newton's H and gradient of the weighted cost, and the gradient block by block."""

    H: np.ndarray  # (parameters, parameters)
    gradient: np.ndarray  # (parameters,)
    blocks: np.ndarray  # (blocks, parameters) gradients of stretches of time


@dataclass(frozen=True, eq=False)
class DriveFit:
    """Fitted drives, the error they leave, and what their uncertainty follows from."""

    drives: DriveParameters
    scale: np.ndarray  # (joints,) robust standard deviation of the residual
    costs: np.ndarray  # (joints,) Huber cost of every joint [rad² or m²]
    steps: int
    converged: bool


class SimulationError:
    """The cost of drives on segments of a log, with its derivatives."""

    def __init__(self, rollout: DriveRollout, segments: Sequence[Segment]) -> None:
        self.rollout, self.segments = rollout, list(segments)
        self._branch = branch_places(rollout.robot)[:, 0]

    def residual(self, drives: DriveParameters) -> np.ndarray:
        """Return q_sim − q of all rows, (rows, joints)."""
        simulated = self.rollout.positions(drives.values[None], self.segments)[0]
        error: np.ndarray = simulated - self.rollout.log.q[rows_of(self.segments)]
        error = np.where(np.isfinite(error), np.clip(error, -10.0, 10.0), 10.0)
        error[self.settling(self.segments)] = 0.0
        return error

    def settling(self, segments: Sequence[Segment]) -> np.ndarray:
        """Return the rows that do not count: a segment's first velocity is only a smoothed one."""
        t = self.rollout.log.t
        parts = [
            t[each.first : each.first + each.rows] < t[each.first] + SETTLING for each in segments
        ]
        return np.concatenate(parts)

    def normal_equations(
        self, drives: DriveParameters, scale: np.ndarray, block_rows: int
    ) -> NormalEquations:
        """Return H and gradient at these drives."""
        columns, moved = columns_of(drives, branch_places(self.rollout.robot))
        count = len(columns)
        H, blocks = np.zeros((count, count)), []
        for part in self._parts(moved.shape[1]):
            simulated, slopes = self.rollout.sensitivities(drives, part)
            error = simulated - self.rollout.log.q[rows_of(part)]
            weights = 1.0 / scale**2 * huber_weight(error / scale)
            weights[self.settling(part)] = 0.0
            bounds = block_bounds(part, block_rows)
            gradients = np.zeros((len(bounds), count))
            for joint in range(error.shape[1]):
                mine = np.flatnonzero(self._branch[drives.entries[:, 0]] == self._branch[joint])
                if len(mine):
                    J = _finite(slopes[:, joint, : len(mine)])  # columns of a branch come first
                    weighted = J * weights[:, joint, None]
                    S = drives.slopes[np.ix_(mine, mine)]
                    H[np.ix_(mine, mine)] += S.T @ (J.T @ weighted) @ S
                    gradients[:, mine] += block_sums(weighted, error[:, joint], bounds) @ S
            blocks.append(gradients)
        gradients = np.concatenate(blocks)
        return NormalEquations(H, gradients.sum(axis=0), gradients)

    def _parts(self, columns: int) -> list[list[Segment]]:
        """Segments in groups whose derivatives fit into memory."""
        most = max(1, NUMBERS_AT_ONCE // max(1, columns * self.rollout.log.joints))
        out: list[list[Segment]] = [[]]
        count = 0
        for each in self.segments:
            if count + each.rows > most and out[-1]:
                out.append([])
                count = 0
            out[-1].append(each)
            count += each.rows
        return out


def _finite(J: np.ndarray) -> np.ndarray:
    """Derivatives without those of a simulation that diverged."""
    if np.isfinite(np.sum(J)):
        return J
    finite: np.ndarray = np.nan_to_num(J, nan=0.0, posinf=0.0, neginf=0.0)
    return finite


def block_sums(J: np.ndarray, error: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Jᵀ error of every block, (blocks, columns)."""
    stops = [*bounds[1:], len(error)]
    return np.array([error[a:b] @ J[a:b] for a, b in zip(bounds, stops, strict=True)])


def fit_drives(
    error: SimulationError, start: DriveParameters, *, most_steps: int = MOST_STEPS
) -> DriveFit:
    """Fit the free parameters to the motion, from a start, which is also a weak prior."""
    drives, damping = start, DAMPING
    centre = np.where(start.entries[:, 1] == BIAS, 0.0, start.x)
    residual = error.residual(drives)
    taken, converged = 0, False
    while taken < most_steps and not converged and len(drives.entries):
        taken += 1
        scale = robust_scale(residual)
        precision = correlation_rows(residual, error.segments) / drives.prior**2
        old = _cost(residual / scale, drives.x - centre, precision)
        equations = error.normal_equations(drives, scale, block_rows=10**9)
        while True:
            step = _step(equations, drives, damping, precision, centre)
            trial = drives.moved(drives.x + step)
            new_residual = error.residual(trial)
            new = _cost(new_residual / scale, trial.x - centre, precision)
            if new < old:
                converged = old - new < CONVERGED * old
                drives, residual = trial, new_residual
                damping = max(damping / 10.0, 1e-6)
                break
            damping *= 10.0
            if damping > MOST_DAMPING:
                converged = True
                break
    scale = robust_scale(residual)
    costs = np.sum(huber_cost(residual / scale), axis=0) * scale**2
    return DriveFit(drives, scale, costs, taken, converged)


def _cost(residual: np.ndarray, change: np.ndarray, precision: np.ndarray) -> float:
    """Huber cost of residuals in units of their scale, and the prior's."""
    return float(np.sum(huber_cost(residual))) + 0.5 * float(np.sum(precision * change**2))


def _step(
    equations: NormalEquations,
    drives: DriveParameters,
    damping: float,
    precision: np.ndarray,
    centre: np.ndarray,
) -> np.ndarray:
    """Damped Gauss–Newton step; what its bounds hold stays where it is."""
    x, (low, high) = drives.x, drives.bounds
    gradient = equations.gradient + precision * (x - centre)
    H = equations.H + np.diag(precision)
    diagonal = np.diag(H).copy()
    H = H + np.diag(damping * diagonal + 1e-12 * diagonal.max(initial=1e-30))
    step = np.zeros(len(x))
    active = np.ones(len(x), dtype=bool)
    for _ in range(len(x) + 1):
        step[:] = 0.0
        if active.any():
            step[active] = -np.linalg.solve(H[np.ix_(active, active)], gradient[active])
        stuck = active & (((x <= low) & (step < 0.0)) | ((x >= high) & (step > 0.0)))
        if not stuck.any():
            break
        active &= ~stuck
    largest = LONGEST * drives.steps
    return np.clip(step, -largest, largest)


def block_bounds(segments: Sequence[Segment], block_rows: int) -> np.ndarray:
    """First rows of blocks of about so many rows, none across two segments."""
    out, at = [], 0
    for each in segments:
        count = max(1, round(each.rows / block_rows))
        out += list(at + np.linspace(0, each.rows, count + 1).astype(int)[:-1])
        at += each.rows
    return np.array(out)


def robust_scale(residual: np.ndarray) -> np.ndarray:
    """Standard deviation of every joint's residual, by its median absolute value and RMS."""
    middle = 1.4826 * np.median(np.abs(residual), axis=0)
    rms = np.sqrt(np.mean(residual**2, axis=0))
    scale: np.ndarray = np.maximum(np.maximum(middle, 0.3 * rms), SMALLEST)
    return scale


def correlation_rows(residual: np.ndarray, segments: Sequence[Segment]) -> float:
    """Rows that count as one: the integrated autocorrelation of residuals, mean over joints."""
    longest = max((each.rows for each in segments), default=1)
    width = 1 << int(np.ceil(np.log2(2 * longest)))
    spectrum = np.zeros((width // 2 + 1, residual.shape[1]))
    at = 0
    for each in segments:
        part = residual[at : at + each.rows]
        part = np.clip(part, -HUBER * robust_scale(part), HUBER * robust_scale(part))
        spectrum += np.abs(np.fft.rfft(part, width, axis=0)) ** 2
        at += each.rows
    lags = np.fft.irfft(spectrum, axis=0)[: longest // 2]
    lags = lags / np.maximum(lags[0], 1e-300)
    times = []
    for rho in lags.T:
        below = np.flatnonzero(rho < 0.05)
        end = int(below[0]) if len(below) else len(rho)
        times.append(max(1.0, 1.0 + 2.0 * float(np.sum(rho[1:end]))))
    return float(np.mean(times))


def huber_weight(r: np.ndarray) -> np.ndarray:
    """Weight of residuals in units of their scale."""
    weight: np.ndarray = np.minimum(1.0, HUBER / np.maximum(np.abs(r), 1e-12))
    return weight


def huber_cost(r: np.ndarray) -> np.ndarray:
    """Half the square of small residuals; linear beyond."""
    size = np.abs(r)
    cost: np.ndarray = np.where(size <= HUBER, 0.5 * size**2, HUBER * (size - 0.5 * HUBER))
    return cost
