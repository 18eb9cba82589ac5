"""Fits by log-Cholesky parameters, and the same problems by CVXPY."""

from __future__ import annotations

import numpy as np
import pytest

import thetahat as th
from thetahat.data.samples import Samples
from thetahat.identification.consistency.misfit import Objective, objective
from thetahat.identification.estimators.consistent import Consistent, LogCholesky
from thetahat.identification.estimators.joint_weights import weigh
from thetahat.identification.information import Information, information
from thetahat.identification.parameter_columns import full_regressor
from thetahat.model import parameters

# relative to 1 + f: what Clarabel reaches at its tightest, and ten times the fit's own bound
VALUE = 1e-8
# base parameters, relative to their size or a standard deviation: the root of what the values
# differ by
OPTIMUM = 1e-5
SAME = 1e-7  # relative to 1 + f: two fits whose own bounds are a hundred times smaller
METRICS = ("euclidean", "entropic")
SOLVER_OPTIONS = ("start", "iterations", "tolerance")


def by_log_cholesky(**settings: object) -> Consistent:
    """The estimator; start, iterations and tolerance are the solver's, all else the fit's."""
    options = {name: settings.pop(name) for name in tuple(settings) if name in SOLVER_OPTIONS}
    return Consistent(**settings, solver=LogCholesky(**options))


def wrong(robot: th.Robot, seed: int = 0, by: float = 0.3) -> np.ndarray:
    """θ of a robot whose bodies are each lighter or heavier by some share: physical, and not the
    truth.
    """
    factors = np.random.default_rng(seed).uniform(1.0 - by, 1.0 + by, (len(robot.theta) // 10, 1))
    return (robot.theta.reshape(-1, 10) * factors).ravel()


def fit_objective(info: Information, estimator: Consistent) -> Objective:
    return objective(
        info,
        prior=estimator.prior,
        weight=estimator.weight,
        metric=estimator.metric,
        weights=estimator.weights,
    )


def by_cvxpy(
    robot: th.Robot, samples: Samples, prior: np.ndarray, *, metric: str, weight: float
) -> np.ndarray:
    """x of the same problem, from the stacked regressor: nothing of `Objective` but the sizes of
    the parameters.
    """
    cp = pytest.importorskip("cvxpy")
    info = information(robot, samples)
    sizes = objective(info, prior=prior, weight=weight, metric=metric, weights="iterated").scale
    noise = np.tile(weigh(info, "iterated").noise, len(samples.q))
    Y = (
        full_regressor(robot, samples.q, samples.dq, samples.ddq).reshape(len(noise), -1)
        * sizes
        / noise[:, None]
    )
    R = np.linalg.qr(np.column_stack([Y, samples.tau.ravel() / noise]), mode="r")
    rows = len(robot.theta)
    x = cp.Variable(len(sizes))
    theta = cp.multiply(sizes[:rows], x[:rows])
    x0 = (
        np.concatenate(
            [prior, np.concatenate([robot.drive.value(term) for term in robot.drive.identified])]
        )
        / sizes
    )
    cost, constraints = 0.5 * cp.sum_squares(R[:-1, :-1] @ x - R[:-1, -1]), []
    for k in range(0, rows, 10):
        ixx, ixy, ixz, mz, my, iyy, iyz, mx, izz, m = (theta[k + a] for a in range(10))
        half = (ixx + iyy + izz) / 2
        J = cp.bmat(
            [
                [half - ixx, -ixy, -ixz, mx],
                [-ixy, half - iyy, -iyz, my],
                [-ixz, -iyz, half - izz, mz],
                [mx, my, mz, m],
            ]
        )
        units = 1.0 / np.sqrt(
            sizes[[k, k, k, k + 9]]
        )  # of J's rows: a congruence, so that the solver sees numbers near one
        D = np.diag(units)
        if metric == "entropic":
            J0 = parameters.to_pseudo_inertia(prior[k : k + 10])
            reference = fit_reference(prior[k : k + 10])
            assert np.allclose(reference, J0, rtol=1e-6), (
                "the test's bodies are thick enough that nothing is floored"
            )
            inverse = np.linalg.inv(D @ J0 @ D)
            cost += weight * (
                cp.trace(inverse @ (D @ J @ D))
                - cp.log_det(D @ J @ D)
                - np.linalg.slogdet(inverse)[1]
                - 4.0
            )
        else:
            constraints.append(D @ (J - 1e-8 * cp.trace(J) * np.eye(4)) @ D >> 0)
    loose = slice(rows, None) if metric == "entropic" else slice(None)
    cost += 0.5 * weight * cp.sum_squares(x[loose] - x0[loose])
    signed = [
        rows + k
        for k, term in enumerate(np.repeat(robot.drive.identified, robot.nv))
        if term != "offset"
    ]
    constraints.append(x[signed] >= 0)
    tight = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}
    cp.Problem(cp.Minimize(cost), constraints).solve(solver=cp.CLARABEL, **tight)
    return x.value * sizes


def fit_reference(theta: np.ndarray) -> np.ndarray:
    """The pseudo-inertia with central second moments at least a thousandth of their sum."""
    J = parameters.to_pseudo_inertia(theta)
    c = J[:3, 3] / J[3, 3]
    values, vectors = np.linalg.eigh(J[:3, :3] - J[3, 3] * np.outer(c, c))
    values = np.maximum(values, 1e-3 * np.sum(values))
    J[:3, :3] = (vectors * values) @ vectors.T + J[3, 3] * np.outer(c, c)
    return J


def thick(robot: th.Robot) -> th.Robot:
    """The robot with 10 % of every body's mass spread about its centre, so that no body is
    a rod.
    """
    mass, com, inertia = parameters.to_mass_com_inertia(robot.theta.reshape(-1, 10))
    spread = 0.1 * np.trace(inertia, axis1=1, axis2=2)[:, None, None] * np.eye(3)
    return robot.with_parameters(
        parameters.from_mass_com_inertia(mass, com, inertia + spread).ravel()
    )
