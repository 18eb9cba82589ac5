"""Links freed with a prior: inertias and drives fitted together to the simulation error.

Every link is ten log-Cholesky numbers [Rucker2022], so that it stays physical, around the robot's
file. Derivatives by links are differences of simulations, one per base parameter; those by drives
are carried along as elsewhere. A gain or a mass must be known: gains, friction, rotors and
links share one scale, which no motion shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from thetahat.dynamics import batch
from thetahat.identification.actuators.drive_fit import (
    NormalEquations,
    SimulationError,
    block_bounds,
    block_sums,
    correlation_rows,
    huber_cost,
    huber_weight,
    robust_scale,
)
from thetahat.identification.actuators.drive_log import DriveLog, Segment
from thetahat.identification.actuators.drive_parameters import BIAS, DriveParameters
from thetahat.identification.actuators.drive_rollout import (
    LONGEST_WAIT,
    DriveRollout,
    branch_places,
    columns_of,
    rows_of,
)
from thetahat.identification.actuators.drive_uncertainty import (
    between_simulators,
    larger_covariance,
    rows_of_a_block,
)
from thetahat.model import parameters
from thetahat.model.robot import Robot

LOGARITHM = 0.15  # prior of half the logarithm of a mass, and of those of a link's extents
SHARE = 0.3  # prior of a centre of mass and of skewness, of a link's largest extent
KNOWN = 1e-4  # prior of half the logarithm of a mass that is stated
STEP = 2e-3  # of differences, in units of the prior
MOST_STEPS = 12
CONVERGED = 1e-3  # relative decrease of the cost
DAMPING, MOST_DAMPING = 1e-1, 1e6
FARTHEST = 0.5  # of the prior, that a step goes


@dataclass(frozen=True, eq=False)
class FreeLinks:
    """Which links are free, and their prior."""

    robot: Robot  # as the file states it, with masses that are known
    bodies: tuple[int, ...]  # places of the links, among the robot's bodies
    centre: np.ndarray  # (10·links,) log-Cholesky numbers of the prior
    prior: np.ndarray  # (10·links,) their standard deviations

    @staticmethod
    def of(robot: Robot, masses: Mapping[str, float]) -> FreeLinks:
        """Return the links of a robot, those of stated mass scaled to it."""
        theta = robot.theta.reshape(-1, 10).copy()
        for name, mass in masses.items():
            at = robot.body_index(name)
            theta[at] *= mass / theta[at, parameters.M]
        bodies = [k for k, row in enumerate(theta) if _strictly_physical(row)]
        eta = parameters.to_log_cholesky(theta[bodies])
        known = [robot.body_names[k] in masses for k in bodies]
        size = np.maximum(np.exp(eta[:, 1:4]).max(axis=1), np.abs(eta[:, 7:]).max(axis=1))
        prior = np.full(eta.shape, LOGARITHM)
        prior[:, 4:] = SHARE * size[:, None]
        prior[known, 0] = KNOWN
        stated = robot.with_parameters(theta.ravel())
        return FreeLinks(stated, tuple(bodies), eta.ravel(), prior.ravel())

    def robot_at(self, eta: np.ndarray) -> Robot:
        """Return the robot with these links."""
        theta = self.robot.theta.reshape(-1, 10).copy()
        theta[list(self.bodies)] = parameters.from_log_cholesky(eta.reshape(-1, 10))
        return self.robot.with_parameters(theta.ravel())

    def theta_slopes(self, eta: np.ndarray) -> np.ndarray:
        """Derivatives of all bodies' parameters, (10·bodies, 10·links)."""
        each = parameters.log_cholesky_jacobian(eta.reshape(-1, 10))
        out = np.zeros((len(self.robot.theta), len(eta)))
        for k, body in enumerate(self.bodies):
            out[10 * body : 10 * body + 10, 10 * k : 10 * k + 10] = each[k]
        return out


@dataclass(frozen=True, eq=False)
class LinkFit:
    """Links and drives that were fitted together, and their covariance."""

    links: FreeLinks
    eta: np.ndarray
    drives: DriveParameters
    covariance: np.ndarray  # of drives.x, then eta
    converged: bool

    @property
    def robot(self) -> Robot:
        """The robot with the fitted links."""
        return self.links.robot_at(self.eta)


@dataclass(frozen=True, eq=False)
class _Problem:
    """Drives and links as one vector."""

    log: DriveLog
    segments: Sequence[Segment]
    links: FreeLinks
    start: DriveParameters

    def error(self, eta: np.ndarray) -> SimulationError:
        return SimulationError(DriveRollout(self.links.robot_at(eta), self.log), self.segments)

    @property
    def prior(self) -> np.ndarray:
        return np.concatenate([self.start.prior, self.links.prior])

    @property
    def centre(self) -> np.ndarray:
        x = np.where(self.start.entries[:, 1] == BIAS, 0.0, self.start.x)
        return np.concatenate([x, self.links.centre])

    def normal_equations(
        self,
        drives: DriveParameters,
        eta: np.ndarray,
        scale: np.ndarray,
        block_rows: int = 10**9,
    ) -> NormalEquations:
        """Return H and gradient of the weighted cost."""
        error = self.error(eta)
        places = branch_places(error.rollout.robot)
        columns, _ = columns_of(drives, places)
        shown, slopes = error.rollout.sensitivities(drives, self.segments)
        residual = shown - self.log.q[rows_of(self.segments)]
        weights = huber_weight(residual / scale) / scale**2
        weights[error.settling(self.segments)] = 0.0
        by_links = self._link_slopes(drives, eta)
        branch, entries = places[:, 0], drives.entries
        H = np.zeros((len(self.prior), len(self.prior)))
        bounds = block_bounds(self.segments, block_rows)
        blocks = np.zeros((len(bounds), len(self.prior)))
        for joint in range(residual.shape[1]):
            mine = np.flatnonzero(branch[entries[:, 0]] == branch[joint])
            J = np.zeros((len(residual), len(self.prior)))
            raw = slopes[:, joint, columns[mine]]
            J[:, mine] = raw @ drives.slopes[np.ix_(mine, mine)]
            J[:, len(entries) :] = by_links[:, joint]
            J = np.nan_to_num(J, nan=0.0, posinf=0.0, neginf=0.0)
            weighted = J * weights[:, joint, None]
            H += J.T @ weighted
            blocks += block_sums(weighted, np.nan_to_num(residual[:, joint]), bounds)
        return NormalEquations(H, blocks.sum(axis=0), blocks)

    def _link_slopes(self, drives: DriveParameters, eta: np.ndarray) -> np.ndarray:
        """Return (rows, joints, 10·links): differences of simulations by base parameters, which are
        fewer and all that a motion depends on.
        """
        values, robot = drives.values[None], self.links.robot_at(eta)
        B = robot.without_drive().base_parameters.map
        by_eta = B @ self.links.theta_slopes(eta)
        steps = STEP * np.linalg.norm(by_eta * self.links.prior, axis=1)
        moved = np.linalg.pinv(B) * steps

        def shown(change: np.ndarray) -> np.ndarray:
            rollout = DriveRollout(robot.with_parameters(robot.theta + change), self.log)
            positions: np.ndarray = rollout.positions(values, self.segments)[0]
            return positions

        with ThreadPoolExecutor(batch.CORES) as pool:
            futures = [pool.submit(shown, change) for change in (0.0 * moved[:, 0], *moved.T)]
            base, *others = [each.result(timeout=LONGEST_WAIT) for each in futures]
        slopes = [(x - base) / h for x, h in zip(others, steps, strict=True)]
        out: np.ndarray = np.stack(slopes, axis=-1) @ by_eta
        return out


def fit_links(
    log: DriveLog, segments: Sequence[Segment], drives: DriveParameters, links: FreeLinks
) -> LinkFit:
    """Fit links and drives together, from the robot's file and these drives."""
    problem = _Problem(log, segments, links, drives)
    eta, damping, converged = links.centre.copy(), DAMPING, False
    residual, count = problem.error(eta).residual(drives), len(drives.entries)
    for _ in range(MOST_STEPS):
        scale = robust_scale(residual)
        precision = correlation_rows(residual, segments) / problem.prior**2
        equations = problem.normal_equations(drives, eta, scale)
        H, gradient = equations.H, equations.gradient
        change = np.concatenate([drives.x, eta]) - problem.centre
        old = _cost(residual / scale, change, precision)
        converged = True
        while damping <= MOST_DAMPING:
            A = H + np.diag(precision + damping * np.diag(H) + 1e-12 * np.diag(H).max())
            step = -np.linalg.solve(A, gradient + precision * change)
            farthest = FARTHEST * links.prior
            moved = eta + np.clip(step[count:], -farthest, farthest)
            trial = drives.moved(drives.x + step[:count])
            new_residual = problem.error(moved).residual(trial)
            change_then = np.concatenate([trial.x, moved]) - problem.centre
            new = _cost(new_residual / scale, change_then, precision)
            if new < old:
                converged = old - new < CONVERGED * old
                drives, eta, residual = trial, moved, new_residual
                damping = max(damping / 10.0, 1e-6)
                break
            damping *= 10.0
        if converged:
            break
    return LinkFit(links, eta, drives, np.zeros((0, 0)), converged)


def with_covariance(
    fit: LinkFit, log: DriveLog, segments: Sequence[Segment], drives: DriveParameters
) -> LinkFit:
    """Return a fit with its covariance at these drives; rows that are correlated count once.

    What another simulator's drives differ by reaches the links through the fit, too.
    """
    problem = _Problem(log, segments, fit.links, drives)
    error = problem.error(fit.eta)
    residual = error.residual(drives)
    rows = correlation_rows(residual, segments)
    block = rows_of_a_block(error, rows)
    equations = problem.normal_equations(drives, fit.eta, robust_scale(residual), block)
    covariance = larger_covariance(equations, problem.prior, rows)
    precision = np.diag(problem.prior**-2.0)
    through = np.linalg.solve(equations.H / rows + precision, equations.H / rows)
    between = through[:, : len(drives.entries)] * between_simulators(drives)
    return replace(fit, drives=drives, covariance=covariance + between @ between.T)


def _cost(residual: np.ndarray, change: np.ndarray, precision: np.ndarray) -> float:
    return float(np.sum(huber_cost(residual))) + 0.5 * float(np.sum(precision * change**2))


def _strictly_physical(theta: np.ndarray) -> bool:
    eigenvalues = np.linalg.eigvalsh(parameters.to_pseudo_inertia(theta))
    return bool(eigenvalues[0] > 1e-9 * max(float(eigenvalues[-1]), 1e-12))
