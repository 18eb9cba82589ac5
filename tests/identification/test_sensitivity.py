"""How far an estimate moves with noise and prior: against re-solved problems, and what it says of
parameters that the prior decides.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from consistent_cases import folded, motion, robot

import thetahat as th
from thetahat import robots
from thetahat.errors import UsageError
from thetahat.identification.consistency.constraints import Bounds, Tie
from thetahat.identification.consistency.misfit import objective, solution_of
from thetahat.identification.information import information
from thetahat.identification.parameter_columns import Columns
from thetahat.identification.uncertainty.prior_conflict import prior_conflict
from thetahat.model.parameters import IXY, SIZE, M

# standard deviations: small against the curvature of a face, large against the thousandth of one to
# which solutions are certain
STEP = 0.05
SAME = 0.1  # of a step: faces are curved


def objective_of(estimator: th.Consistent, info):
    return objective(
        info,
        prior=estimator.prior,
        weight=estimator.weight,
        metric=estimator.metric,
        weights=estimator.weights,
    )


CASES = {
    "inside": (th.Consistent(weight=1.0, metric="moments", weights=None), 0.02),
    "entropic": (th.Consistent(weight=1.0, metric="entropic", weights=None), 0.1),
    "on the cone": (th.Consistent(weight=1e-3, metric="euclidean", weights=None), 0.3),
    "mass on a bound": (
        th.Consistent(
            weight=1.0,
            metric="moments",
            weights=None,
            constraints=th.Constraints(bounds={"forearm": Bounds(mass=(0.1, 0.9))}),
        ),
        0.02,
    ),
    "frozen and tied": (
        th.Consistent(
            weight=1.0,
            weights=None,
            constraints=th.Constraints(frozen=("shoulder",), tied=(Tie("arm", "forearm"),)),
        ),
        0.05,
    ),  # of an arm whose bodies are alike
}


@pytest.mark.parametrize("name", CASES)
def test_noise_moves_the_estimate_as_stated(name: str) -> None:
    estimator, noise = CASES[name]
    arm = robot("arm4")
    if estimator.constraints.tied:
        arm = arm.with_parameters(np.concatenate([arm.theta[:30], arm.theta[20:30]]))
    info, samples = folded(arm, np.random.default_rng(3), count=200, noise=noise)
    before = estimator.estimate(info)
    solution = solution_of(objective_of(estimator, info))
    rng = np.random.default_rng(5)
    # torques of other base parameters: residuals stay, and so do the weights
    step = STEP * solution.inverse @ rng.normal(size=solution.rank)
    step *= np.sqrt(objective_of(estimator, info).weights.variance)
    x = np.zeros(info.base.columns)
    x[info.base.independent] = step
    moved = Columns(info.robot).apply(x)
    extra = th.inverse_dynamics(moved, samples.q, samples.dq, samples.ddq)
    other = information(info.robot, replace(samples, tau=samples.tau + extra))
    after = estimator.estimate(other)
    sensitivity = before.diagnostics.sensitivity
    assert sensitivity is not None
    expected = info.base.map @ sensitivity.data @ (solution.seen @ step)
    found = after.x_base - before.x_base
    # of least squares: on a bound the estimate's own are next to nothing
    size = STEP * th.LeastSquares().estimate(info).base_std.filled(np.inf)
    np.testing.assert_allclose(found / size, expected / size, rtol=0, atol=SAME)


def test_the_prior_moves_the_estimate_as_stated() -> None:
    info, _ = folded(robot("arm4"), np.random.default_rng(3), count=100, noise=0.2)
    estimator = th.Consistent(weight=100.0, metric="euclidean", weights=None)
    before = estimator.estimate(info)
    f = objective_of(estimator, info)
    # products of inertia: they leave the units of mass and length as they are
    change = np.zeros(len(f.x0))
    change[IXY : f.columns.inertial : SIZE] = 1e-3 * f.scale[IXY : f.columns.inertial : SIZE]
    after = replace(estimator, prior=f.x0 + change).estimate(info)
    sensitivity = before.diagnostics.sensitivity
    assert sensitivity is not None
    expected = info.base.map @ sensitivity.prior @ (np.sqrt(f.weight) * f.whitening @ change)
    size = np.linalg.norm(expected)
    np.testing.assert_allclose((after.x_base - before.x_base) / size, expected / size, atol=0.05)


def test_without_a_prior_it_is_least_squares() -> None:
    info, _ = folded(robot("arm4"), np.random.default_rng(0), count=2000, noise=1e-3)
    estimate = th.Consistent(weight=1e-6, metric="euclidean", weights="joint").estimate(info)
    plain = th.LeastSquares(weights="joint").estimate(info)
    np.testing.assert_allclose(estimate.base_std, plain.base_std, rtol=1e-3)
    assert not any(estimate.flags)
    assert not np.any(np.array(plain.flags, dtype=object))


def test_what_a_strong_prior_decides_is_said() -> None:
    info, _ = folded(robot("arm4"), np.random.default_rng(0), count=60, noise=0.3)
    weak, strong = (th.Consistent(weight=w, metric="moments").estimate(info) for w in (1e-4, 1e4))
    assert sum("prior" in flags for flags in weak.flags) < 0.2 * len(info.base)
    rigid = [k for k, c in enumerate(info.base.independent) if c < Columns(info.robot).inertial]
    assert np.mean(["prior" in strong.flags[k] for k in rigid]) > 0.9
    masses = strong.decided_by_prior[M : Columns(info.robot).inertial : SIZE]
    assert np.all(masses)


def test_friction_on_its_bound_is_flagged() -> None:
    """A joint without viscous friction: about half of all fits end at zero, and say so."""
    arm = robot("arm4")
    still = arm.with_parameters(
        np.where(
            np.array([name == "viscous" for name, _ in Columns(arm).pairs]), 0.0, Columns(arm).x0
        )
    )
    info, _ = folded(still, np.random.default_rng(1), count=200, noise=0.05)
    estimate = th.Consistent(weight=1.0, metric="moments").estimate(info)
    at = [k for k, name in enumerate(info.base.names) if name.startswith("viscous")]
    on = [k for k in at if estimate.x_base[k] < 1e-3 * estimate.covariance[k, k] ** 0.5 + 1e-6]
    assert on
    assert all("bound" in estimate.flags[k] for k in on)


@pytest.mark.parametrize("off", [0.5, 3.0, 30.0])
def test_the_data_tell_by_how_many_spreads_the_prior_is_off(off: float) -> None:
    rng = np.random.default_rng(2)
    found = []
    for _ in range(20):
        D = rng.normal(size=(60, 40))
        v = off * rng.normal(size=40)
        left = D @ v + rng.normal(size=60)
        found.append(prior_conflict(D, left, np.eye(40), np.ones(40, dtype=bool)))
    assert np.mean(found) == pytest.approx(max(off, 1.0), rel=0.1)
    assert min(found) >= 1.0


def test_intervals_hold_under_a_strong_prior_that_is_wrong() -> None:
    """At weight 1000 the prior's spread is 3 %, and it is wrong by 30 %."""
    arm, rng = robot("arm4"), np.random.default_rng(4)
    q, dq, ddq = motion(arm, rng, 400)
    clean = th.inverse_dynamics(arm, q, dq, ddq)
    noise = 0.05 * np.sqrt(np.mean(clean**2, axis=0))
    wrong = arm.with_parameters(arm.theta * np.repeat(rng.choice([0.7, 1.3], 4), 10))
    estimator = th.Consistent(prior=wrong, weight=1000.0, metric="moments")
    hits, plain, flagged = [], [], []
    for _ in range(30):
        tau = clean + noise * rng.normal(size=clean.shape)
        info = information(arm, th.Samples(q=q, dq=dq, ddq=ddq, tau=tau))
        estimate = estimator.estimate(info)
        error = np.abs(estimate.x_base - info.base.map @ Columns(arm).x0)
        free = np.array([not flags for flags in estimate.flags])
        hits.append((error < 1.96 * estimate.base_std.filled(np.inf))[free])
        spread = th.LeastSquares(weights="joint").estimate(info).base_std.filled(np.inf)
        plain.append(np.mean(error[free] < 1.96 * spread[free]))
        flagged.append(1.0 - np.mean(free))
    assert np.mean(np.concatenate(hits)) > 0.93
    assert np.mean(plain) < np.mean(np.concatenate(hits))
    assert np.mean(flagged) < 0.7


def test_robots_are_not_drawn_from_least_squares() -> None:
    info, _ = folded(robot("arm4"), np.random.default_rng(0), count=200, noise=1e-2)
    with pytest.raises(UsageError, match=r"th\.Consistent"):
        th.LeastSquares().estimate(info).sample(3)


def test_the_prior_decides_a_weak_combination_that_the_data_do_not() -> None:
    """Two nearly equal columns: more rows, and the data decide their difference, too; a condition
    number does not change with the number of rows.
    """
    arm = th.load(robots.path("double_pendulum")).without_drive()
    arm = arm.with_drive(viscous=True, coulomb=True)
    shares, conditions = [], []
    for count in (100, 100_000):
        rng = np.random.default_rng(1)
        q = rng.uniform(-1.0, 1.0, (count, 2))
        dq = rng.choice([-1.0, 1.0], (count, 2)) * (1.0 + 5e-4 * rng.normal(size=(count, 2)))
        ddq = rng.normal(size=(count, 2))
        tau = th.inverse_dynamics(arm, q, dq, ddq) + 0.5 * rng.normal(size=(count, 2))
        info = th.information(arm, th.Samples(q=q, dq=dq, ddq=ddq, tau=tau))
        estimate = th.Consistent(weight=100.0, metric="moments").estimate(info)
        conditions.append(estimate.condition)
        shares.append(estimate.weak_prior_share)
    assert min(conditions) > 1e3
    assert max(conditions) < 2.0 * min(conditions)
    assert shares[0] is not None
    assert shares[1] is not None
    assert shares[0] > 0.5 > shares[1]
