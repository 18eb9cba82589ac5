"""Fits by log-Cholesky parameters: what they keep, and random problems."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from consistent_cases import LARGE, SMALL, Case, random_case
from log_cholesky_cases import (
    METRICS,
    SAME,
    by_log_cholesky,
    fit_objective,
)
from test_information import arm, simulated

import thetahat as th
from thetahat.data.samples import Samples
from thetahat.errors import UnphysicalRobot, UsageError
from thetahat.identification.consistency.log_cholesky import NAME
from thetahat.identification.estimators.consistent import Consistent
from thetahat.identification.estimators.least_squares import LeastSquares
from thetahat.identification.information import information
from thetahat.identification.solve import solve
from thetahat.model import parameters


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
