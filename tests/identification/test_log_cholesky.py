"""`Consistent(solver=LogCholesky())`: the optimum that CVXPY finds for the same objective, certified, from any start."""

from __future__ import annotations

import numpy as np
import pytest
import sympy
from data_paths import example_robot
from log_cholesky_cases import (
    METRICS,
    OPTIMUM,
    SAME,
    VALUE,
    by_cvxpy,
    by_log_cholesky,
    fit_objective,
    thick,
    wrong,
)
from test_information import arm, simulated, with_friction

import thetahat as th
from thetahat.identification.consistency.constraints import feasible
from thetahat.identification.consistency.interior_point import Point, Problem
from thetahat.identification.consistency.log_cholesky import _Frame
from thetahat.identification.consistency.program import Program
from thetahat.identification.estimators.consistent import Consistent
from thetahat.identification.estimators.least_squares import LeastSquares
from thetahat.identification.information import information
from thetahat.identification.solve import solve
from thetahat.model import parameters

# -- derivatives -----------------------------------------------------------------------------------


def bodies_from(eta: np.ndarray) -> np.ndarray:
    """U Uᵀ, (bodies, 4, 4), of log-Cholesky numbers."""
    return parameters.to_pseudo_inertia(parameters.from_log_cholesky(eta))


@pytest.mark.parametrize("metric", METRICS)
def test_newtons_matrix_is_the_hessian_in_log_cholesky_numbers(metric: str) -> None:
    """RᵀR in η and φ is the second derivative of ½‖T v − t‖² + γ·tr X − ℓᵀv, by differences, for
    any multipliers Z ≻ 0 and y > 0.
    """
    robot, rng = arm("double_pendulum"), np.random.default_rng(3)
    f = fit_objective(
        information(robot, simulated(robot, 40, noise=1.0)),
        by_log_cholesky(prior=wrong(robot), metric=metric, weight=0.3),
    )
    program = Program(
        f,
        feasible(f.columns, f.x0),
        unseen=np.zeros(f.columns.count, dtype=bool),
    )
    problem, v = program.problem, program.start()
    half = rng.normal(size=(len(problem.first), 4, 4))
    frame = _Frame(
        problem,
        Point(
            v,
            half @ np.swapaxes(half, 1, 2) + 0.1 * np.eye(4),
            rng.uniform(0.1, 2.0, len(problem.low)),
        ),
    )
    frame._factorise()
    entries, S, places = problem.single[1], np.linalg.inv(frame.inverse), problem.places
    pull = problem.adjoint(problem.gamma[:, None, None] * np.eye(4), np.zeros(len(problem.low)))
    tilt = (
        problem.T.T @ (problem.T @ v - problem.t)
        + pull
        - problem.adjoint(frame.point.Z, frame.point.y)
    )  # ℓ
    rows, columns = np.triu_indices(4)
    inner = np.linalg.inv(problem.shapes[:, :, rows, columns])

    def at(u: np.ndarray) -> np.ndarray:
        """v of log-Cholesky numbers of the bodies, as seen from where they are, logarithms of
        friction, and offsets as they are.
        """
        out = v + u
        X = S @ bodies_from(u[places]) @ np.swapaxes(S, 1, 2)
        out[places] = (X[:, None, rows, columns] @ inner)[:, 0]
        out[entries] = v[entries] * np.exp(u[entries])
        return out

    def value(u: np.ndarray) -> float:
        w = at(u)
        return 0.5 * float(np.sum((problem.T @ w - problem.t) ** 2)) + float((pull - tilt) @ w)

    k, h = len(v), 3e-4
    E = h * np.eye(k)
    hessian = np.array(
        [[value(a + b) - value(a - b) - value(b - a) + value(-a - b) for a in E] for b in E]
    ) / (4.0 * h * h)
    slopes = np.array([(at(e) - at(-e)) / (2.0 * h) for e in E]).T
    newton = (frame.factor.R @ slopes).T @ (frame.factor.R @ slopes)
    size = np.sqrt(np.diag(newton))
    np.testing.assert_allclose(
        hessian / np.outer(size, size), newton / np.outer(size, size), atol=2e-5
    )  # h² times fourth derivatives


def test_the_second_derivatives_of_a_body_are_sympys() -> None:
    """Of tr(diag(g)·U Uᵀ): 4 g_i for log U_ii, 2 g_i for U_ij, and nothing else; so are the rows
    that a step is made of.
    """
    g, logs = sympy.symbols("g1:5", positive=True), sympy.symbols("l1:5")
    above = {(i, j): sympy.Symbol(f"u{i}{j}") for i in range(4) for j in range(i + 1, 4)}
    U = sympy.Matrix(4, 4, lambda i, j: sympy.exp(logs[i]) if i == j else above.get((i, j), 0))
    names = [logs[i] if i == j else above[i, j] for i, j in zip(*np.triu_indices(4), strict=True)]
    hessian = sympy.hessian((sympy.diag(*g) * U * U.T).trace(), names).subs(dict.fromkeys(names, 0))
    problem = one_body()
    frame = _Frame(
        problem,
        Point(np.eye(4)[np.triu_indices(4)], np.diag([3.0, 11.0, 5.0, 7.0])[None], np.zeros(0)),
    )
    frame._factorise()
    eta = np.where(
        np.equal(*np.triu_indices(4)), 2.0, 1.0
    )  # dX of the diagonal's logarithms, and of what is above it
    np.testing.assert_allclose(
        np.diag(frame.rows[0] * eta) ** 2,
        np.array(hessian.subs(dict(zip(g, (11, 7, 5, 3), strict=True))), dtype=float),
    )


def one_body() -> Problem:
    """A body whose ten numbers are the upper triangle of X, and no data."""
    rows, columns = np.triu_indices(4)
    shapes = np.zeros((1, 10, 4, 4))
    shapes[0, np.arange(10), rows, columns] = shapes[0, np.arange(10), columns, rows] = 1.0
    empty = np.zeros((0, 10)), np.zeros(0)
    return Problem(
        np.eye(10, order="F"),
        np.zeros(10),
        0.0,
        shapes,
        np.zeros(1, dtype=int),
        np.zeros(1),
        *empty,
    )


# -- the optimum -----------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    ("name", "count", "noise"),
    [("arm4", 400, 1e-3), ("arm4", 400, 1.0), ("double_pendulum", 60, 2.0), ("arm7", 120, 3.0)],
)
def test_it_is_cvxpys_optimum(name: str, count: int, noise: float, metric: str) -> None:
    """Value and base parameters; with little noise inside, with much on the boundary."""
    robot = thick(arm(name))
    samples = simulated(robot, count, noise=noise)
    prior = wrong(robot, by=0.1 if noise < 0.1 else 0.3)
    info = information(robot, samples)
    estimator = by_log_cholesky(prior=prior, metric=metric)
    estimate = solve(info, estimator)
    f = fit_objective(info, estimator)
    oracle = by_cvxpy(robot, samples, prior, metric=metric, weight=estimator.weight)
    assert estimate.status == "solved"
    assert estimate.consistent
    assert estimate.certificate.objective == pytest.approx(f.value(estimate.x), rel=1e-12)
    assert abs(f.value(estimate.x) - f.value(oracle)) <= VALUE * (1.0 + f.value(oracle))
    size = np.maximum(np.abs(estimate.x_base), estimate.base_std.filled(0.0))
    np.testing.assert_array_less(
        np.abs(estimate.x_base - estimate.base.map @ oracle), OPTIMUM * size
    )
    on_boundary = estimate.certificate.eigenvalue < 1.1e-8
    assert on_boundary == (metric == "euclidean" and noise > 0.1)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", ["panda", "ur5"])
def test_it_is_what_consistent_finds(name: str, metric: str) -> None:
    robot = with_friction(th.load(example_robot(name)))
    info = information(robot, simulated(robot, 500, noise=0.5))
    settings = {"prior": wrong(robot), "metric": metric, "weight": 0.1}
    mine, other = solve(info, by_log_cholesky(**settings)), solve(info, Consistent(**settings))
    f = fit_objective(info, by_log_cholesky(**settings))
    assert mine.status == other.status == "solved"
    assert f.value(mine.x) == pytest.approx(f.value(other.x), abs=SAME * (1.0 + f.value(other.x)))


ROBOTS = ["double_pendulum", "arm4", "arm7", "panda", "ur5", "solo12"]


@pytest.mark.parametrize("name", ROBOTS)
def test_without_noise_the_truth_is_found(name: str) -> None:
    """With the truth as prior in either metric, and from a wrong start without a prior."""
    robot = (
        arm(name)
        if name in ROBOTS[:3]
        else with_friction(th.load(example_robot(name), floating_base=name == "solo12"))
    )
    info = information(robot, simulated(robot, 500))
    truth = info.base.map @ th.solve(info, LeastSquares()).x
    for estimator in (
        by_log_cholesky(),
        by_log_cholesky(metric="entropic"),
        by_log_cholesky(prior=wrong(robot), weight=0.0),
        by_log_cholesky(start=wrong(robot)),
    ):
        estimate = solve(info, estimator)
        assert estimate.status == "solved"
        np.testing.assert_allclose(
            estimate.x_base, truth, atol=1e-5 * np.abs(truth).max(), rtol=1e-5
        )
        assert estimate.r2 >= 1.0 - 1e-9


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("iterations", [1, 3, 5, 7])
def test_the_gap_bounds_what_is_left_to_gain(metric: str, iterations: int) -> None:
    """f(x) − gap ≤ min f ≤ f(x), wherever the search is stopped."""
    robot = arm()
    info = information(robot, simulated(robot, 300, noise=1.0))
    settings = {"prior": wrong(robot), "metric": metric}
    best = solve(info, by_log_cholesky(**settings)).certificate
    stopped = solve(info, by_log_cholesky(**settings, iterations=iterations))
    assert stopped.certificate.objective - stopped.certificate.gap <= best.objective + 1e-12
    assert best.objective - best.gap <= stopped.certificate.objective
    assert stopped.certificate.iterations <= iterations
    assert stopped.consistent
    assert np.all(np.isfinite(stopped.x))
    if iterations < 5:
        assert stopped.status == "almost_solved"
        assert "log-Cholesky solver stopped after" in stopped.advice[0]


# -- starts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", METRICS)
def test_a_warm_start_ends_where_a_cold_one_does_and_sooner(metric: str) -> None:
    robot = arm("arm7")
    first = information(robot, simulated(robot, 1000, noise=0.5))
    more = first + information(robot, simulated(robot, 10, noise=0.5, seed=7))
    settings = {"prior": wrong(robot), "metric": metric}
    before = solve(first, by_log_cholesky(**settings))
    cold, warm = (
        solve(more, by_log_cholesky(**settings)),
        solve(more, by_log_cholesky(**settings, start=before)),
    )
    assert cold.status == warm.status == "solved"
    assert warm.certificate.iterations <= 0.7 * cold.certificate.iterations
    assert warm.certificate.objective == pytest.approx(
        cold.certificate.objective, abs=SAME * (1.0 + cold.certificate.objective)
    )
    std = cold.base_std.filled(np.inf)
    np.testing.assert_array_less(np.abs(warm.x_base - cold.x_base), 1e-3 * std)


@pytest.mark.parametrize("metric", METRICS)
def test_any_start_ends_at_the_same_place(metric: str) -> None:
    robot = arm()
    info = information(robot, simulated(robot, 200, noise=1.0))
    expected = solve(info, by_log_cholesky(metric=metric)).certificate.objective
    unphysical = robot.theta.copy()
    unphysical[9::10] *= -1.0
    point_masses = parameters.from_mass_com_inertia(
        np.ones(4), np.full((4, 3), 0.2), np.zeros((4, 3, 3))
    ).ravel()
    for start in (
        robot,
        robot.theta,
        100.0 * robot.theta,
        1e-4 * robot.theta,
        unphysical,
        point_masses,
        solve(info).x,
    ):
        estimate = solve(info, by_log_cholesky(metric=metric, start=start))
        assert estimate.status == "solved"
        assert estimate.certificate.objective == pytest.approx(
            expected, abs=SAME * (1.0 + expected)
        )
