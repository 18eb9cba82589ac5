"""`Consistent(solver=LogCholesky())`: the optimum that CVXPY finds for the same objective, certified, from any start."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import sympy
from consistent_cases import LARGE, SMALL, Case, random_case
from data_paths import example_robot
from test_information import arm, simulated, with_friction

import thetahat as th
from thetahat.data.samples import Samples
from thetahat.errors import UnphysicalRobot, UsageError
from thetahat.identification.consistency.constraints import feasible
from thetahat.identification.consistency.interior_point import Point, Problem
from thetahat.identification.consistency.log_cholesky import NAME, _Frame
from thetahat.identification.consistency.misfit import Objective, objective
from thetahat.identification.consistency.program import Program
from thetahat.identification.estimators.consistent import Consistent, LogCholesky
from thetahat.identification.estimators.joint_weights import weigh
from thetahat.identification.estimators.least_squares import LeastSquares
from thetahat.identification.information import Information, information
from thetahat.identification.parameter_columns import full_regressor
from thetahat.identification.solve import solve
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


# -- what it keeps ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "weight"), [("euclidean", 1e-2), ("entropic", 1e-2), ("entropic", 1e-7)]
)
def test_bodies_are_strictly_physical_and_friction_is_never_negative(
    metric: str, weight: float
) -> None:
    """Pure noise: friction that would be negative is zero but for what is left of the barrier."""
    robot = arm("arm7")
    samples = simulated(robot, 150)
    tau = np.random.default_rng(1).normal(size=samples.tau.shape)
    estimate = solve(
        information(robot, Samples(q=samples.q, dq=samples.dq, ddq=samples.ddq, tau=tau)),
        by_log_cholesky(metric=metric, weight=weight),
    )
    J = parameters.to_pseudo_inertia(estimate.theta.reshape(-1, 10))
    assert np.min(np.linalg.eigvalsh(J)[:, 0] / np.trace(J, axis1=1, axis2=2)) >= 1e-9
    drive = np.concatenate([estimate.drive[term] for term in ("viscous", "coulomb")])
    assert np.min(drive) >= 0.0
    assert np.min(drive) <= 1e-8
    assert estimate.method == "consistent"
    assert estimate.status == "solved"
    assert estimate.certificate.infeasibility <= 1e-12


def test_what_the_data_do_not_see_stays_at_the_prior() -> None:
    robot = arm()
    samples = simulated(robot, 300, noise=0.05)
    q, dq, ddq = (a.copy() for a in (samples.q, samples.dq, samples.ddq))
    q[:, 3], dq[:, 3], ddq[:, 3] = 0.3, 0.0, 0.0
    tau = th.inverse_dynamics(robot, q, dq, ddq) + 0.05 * np.random.default_rng(5).normal(
        size=dq.shape
    )
    info = information(robot, Samples(q=q, dq=dq, ddq=ddq, tau=tau))
    assert info.rank < len(info.base)
    for estimator in (
        by_log_cholesky(),
        by_log_cholesky(metric="entropic"),
        by_log_cholesky(weight=0.0),
    ):
        estimate = solve(info, estimator)
        assert estimate.status == "solved"
        assert any("elbow" in sentence for sentence in estimate.advice)
        never = [k for k, kind in enumerate(estimate.base.kinds) if kind == "never"]
        assert never
        if estimator.metric == "euclidean":
            np.testing.assert_allclose(
                estimate.x[never], np.concatenate([robot.theta, np.zeros(12)])[never], atol=1e-6
            )
        f = fit_objective(info, estimator)
        assert f.value(estimate.x) <= f.value(f.x0) + 1e-9


def test_standstill_and_silence_are_finite() -> None:
    robot = arm()
    samples = simulated(robot, 50)
    still = np.zeros_like(samples.dq)
    for tau in (samples.tau, still, 1e12 * samples.tau, 1e-12 * samples.tau):
        for metric in METRICS:
            info = information(
                robot, Samples(q=np.tile(samples.q[:1], (50, 1)), dq=still, ddq=still, tau=tau)
            )
            estimate = solve(info, by_log_cholesky(metric=metric))
            assert np.all(np.isfinite(estimate.x))
            assert estimate.consistent
            assert estimate.status == "solved" or estimate.advice


def test_an_unphysical_prior_will_do_in_the_euclidean_metric() -> None:
    robot = arm()
    prior = robot.theta.copy()
    prior[19] = -0.5
    info = information(robot, simulated(robot, 200, noise=0.2))
    estimate = solve(info, by_log_cholesky(prior=prior))
    assert estimate.status == "solved"
    assert estimate.consistent
    with pytest.raises(UnphysicalRobot, match="use metric='euclidean'"):
        solve(info, by_log_cholesky(prior=prior, metric="entropic"))


def test_its_covariance_is_that_of_the_same_problem_by_the_other_solver() -> None:
    """Data and prior together, far from any bound: it becomes that of the data as the prior's
    weight goes, in proportion to it.
    """
    robot = arm()
    info = information(robot, simulated(robot, 300, noise=0.2))
    data = np.sqrt(np.diag(solve(info, LeastSquares(weights="iterated")).covariance))
    off = {}
    for weight in (1e-4, 1e-6):
        mine, other = (
            np.sqrt(np.diag(solve(info, estimator).covariance))
            for estimator in (by_log_cholesky(weight=weight), Consistent(weight=weight))
        )
        np.testing.assert_allclose(mine, other, rtol=1e-3 * weight**0.5)
        np.testing.assert_allclose(mine, data, rtol=1e-2 * weight)
        off[weight] = np.max(np.abs(mine / data - 1.0))
    assert 50.0 < off[1e-4] / off[1e-6] < 200.0


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"iterations": 0}, "iterations is 0"),
        ({"iterations": 2.5}, "iterations is 2.5"),
        ({"tolerance": 0.0}, "tolerance is 0.0"),
        ({"tolerance": float("nan")}, "tolerance is nan"),
        ({"metric": "manhattan"}, "metric is 'manhattan'"),
        ({"weight": -1.0}, "weight is -1.0"),
        ({"weights": "some"}, "weights is 'some'"),
        ({"start": np.zeros(3)}, "start has shape"),
        ({"start": np.full(40, np.nan)}, "start has shape"),
        ({"prior": np.zeros(3)}, "prior has shape"),
    ],
)
def test_wrong_arguments_are_refused_in_a_sentence(settings: dict, said: str) -> None:
    robot = arm()
    info = information(robot, simulated(robot, 50))
    with pytest.raises(UsageError, match=said) as caught:
        solve(info, by_log_cholesky(**settings))
    assert "\n" not in str(caught.value)


def test_constraints_are_refused() -> None:
    robot = arm()
    info = information(robot, simulated(robot, 50))
    with pytest.raises(UsageError, match="takes no constraints"):
        solve(info, by_log_cholesky(constraints=th.Constraints(total_mass=3.0)))


# -- random problems -------------------------------------------------------------------------------


def unbounded(seeds: range, names: tuple[str, ...] = SMALL) -> Iterator[tuple[int, Case]]:
    """Those of the random problems that ask for nothing but physical bodies."""
    for seed in seeds:
        case = random_case(seed, names)
        if not (
            case.bounded or case.estimator.constraints.tied or case.estimator.constraints.frozen
        ):
            yield seed, case


def check_random(seed: int, case: Case) -> str:
    """The optimum, certified, and the same one from its own answer; returns who solved it."""
    theirs = case.estimator
    settings = {
        "prior": theirs.prior,
        "metric": theirs.metric,
        "weight": theirs.weight,
        "weights": theirs.weights,
    }
    estimate = solve(case.information, by_log_cholesky(**settings))
    assert estimate.status == "solved", (seed, str(case), estimate.certificate)
    assert estimate.consistent
    assert estimate.certificate.eigenvalue >= 1e-9
    again = solve(case.information, by_log_cholesky(**settings, start=estimate))
    least = estimate.certificate.objective
    assert again.status == "solved", (seed, str(case), again.certificate)
    assert again.certificate.objective == pytest.approx(least, abs=SAME * (1.0 + least))
    return estimate.certificate.solver


def test_random_problems_are_solved() -> None:
    solvers = [check_random(seed, case) for seed, case in unbounded(range(30), SMALL[:6])]
    assert (
        np.mean([solver == NAME for solver in solvers]) > 0.8
    )  # the others are left to Consistent


@pytest.mark.slow
def test_many_random_problems_are_solved() -> None:
    """2 to 44 joints."""
    solvers = [
        check_random(seed, case)
        for seed, case in [*unbounded(range(1000, 1300)), *unbounded(range(2000, 2040), LARGE)]
    ]
    assert np.mean([solver == NAME for solver in solvers]) > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("metric", METRICS)
def test_random_logs_and_weights_are_all_solved(metric: str) -> None:
    """Noise over five orders, short logs, priors off by up to ten times, weights over six
    orders.
    """
    rng = np.random.default_rng(11)
    for trial in range(150):
        robot = arm(["double_pendulum", "arm4", "arm7"][trial % 3])
        factors = np.exp(rng.uniform(-1, 1) * rng.normal(size=(len(robot.theta) // 10, 1)))
        prior = (robot.theta.reshape(-1, 10) * factors).ravel()
        samples = simulated(
            robot, int(rng.integers(3, 400)), noise=10.0 ** rng.uniform(-3, 2), seed=trial
        )
        estimate = solve(
            information(robot, samples),
            by_log_cholesky(prior=prior, metric=metric, weight=10.0 ** rng.uniform(-4, 2)),
        )
        assert estimate.status == "solved", (trial, estimate.certificate)
        assert estimate.consistent
        assert estimate.certificate.eigenvalue >= 1e-9
