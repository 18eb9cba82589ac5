"""Plausible bodies: the bounds are those of the same program in CVXPY, their multipliers are what
they cost, and they are given up only where the data reject them.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from consistent_cases import folded, robot
from test_consistent import SAME, pseudo_inertia

import thetahat as th
from thetahat.errors import RobotWarning
from thetahat.identification.consistency.constraints import Bounds, Tie
from thetahat.identification.consistency.misfit import objective
from thetahat.identification.consistency.plausibility import (
    DENSEST,
    REJECTED,
    Reference,
    assess,
    bounded_estimate,
    likelihood_ratio,
    relax,
    with_plausible_bounds,
)
from thetahat.identification.consistency.program import MARGIN
from thetahat.identification.information import Information
from thetahat.identification.parameter_columns import full_regressor
from thetahat.identification.solve import solve
from thetahat.model import parameters
from thetahat.model.link_geometry import Region, link_regions

pytestmark = pytest.mark.filterwarnings(f"ignore::{RobotWarning.__module__}.RobotWarning")


def reference(arm: th.Robot, scale: np.ndarray | float = 1.0) -> Reference:
    """The robot's own masses times a factor, and regions around its joints."""
    theta = arm.theta.reshape(-1, 10) * np.reshape(scale, (-1, 1))
    other = arm.with_parameters(theta.ravel())
    return Reference(other, link_regions(other, {}))


def oracle(estimator: th.Consistent, info: Information, samples: th.Samples) -> float:
    """The optimum of the same program with the same bounds, written out for CVXPY."""
    cp = pytest.importorskip("cvxpy")
    f = objective(
        info,
        prior=estimator.prior,
        weight=estimator.weight,
        metric=estimator.metric,
        weights=estimator.weights,
    )
    columns, n, limits = f.columns, f.columns.inertial, estimator.constraints
    Y = full_regressor(info.robot, samples.q, samples.dq, samples.ddq) / f.weights.noise[:, None]
    v = cp.Variable(columns.count)
    x = cp.multiply(f.scale, v)
    residual = (Y.reshape(-1, columns.count) * f.scale) @ v - (
        samples.tau / f.weights.noise
    ).ravel()
    away = 0.5 * cp.sum_squares((x[n:] - f.x0[n:]) / f.scale[n:])
    asked = [x[k] >= 0 for k in f.nonnegative]
    for b, name in enumerate(info.robot.body_names):
        J = pseudo_inertia(cp, x[10 * b : 10 * b + 10])
        if estimator.metric == "entropic":
            W = np.linalg.inv(np.linalg.cholesky(f.references[b]))
            K = W @ J @ W.T
            away = away + cp.trace(K) - cp.log_det((K + K.T) / 2) - 4
        else:
            away = away + 0.5 * cp.sum_squares((v - f.x0 / f.scale)[10 * b : 10 * b + 10])
            asked.append(J - MARGIN * cp.trace(J) * np.eye(4) >> 0)
        bounds = limits.plausible.get(name, Bounds())
        m, c = x[10 * b + 9], x[[10 * b + 7, 10 * b + 4, 10 * b + 3]]
        if bounds.mass is not None:
            asked += [m >= bounds.mass[0], m <= bounds.mass[1]]
        if bounds.region is not None:
            region = bounds.region
            sigma = J[:3, :3]
            A, centre = region.shape, region.centre
            # ∫(x − c)ᵀA(x − c) dm ≤ m, not by way of Q
            spread = cp.trace(A @ sigma) - 2 * (A @ centre) @ c + float(centre @ A @ centre) * m
            asked.append(spread <= m)
        if bounds.com_region is not None:
            region = bounds.com_region
            offset = np.diag(1 / region.radii) @ region.axes.T @ (c - m * region.centre)
            asked.append(cp.norm(offset) <= m)
    if limits.total_mass is not None:
        total = cp.sum(x[9:n:10])
        asked += [total >= limits.total_mass[0], total <= limits.total_mass[1]]
    problem = cp.Problem(
        cp.Minimize(0.5 * cp.sum_squares(residual) + estimator.weight * away), asked
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem.solve(
            solver=cp.CLARABEL, tol_gap_rel=1e-10, tol_gap_abs=1e-10, tol_feas=1e-10, max_iter=500
        )
    return float(problem.value)


def estimate_noise(estimator: th.Consistent, info: Information) -> np.ndarray:
    f = objective(
        info,
        prior=estimator.prior,
        weight=estimator.weight,
        metric=estimator.metric,
        weights=estimator.weights,
    )
    return np.asarray(f.weights.noise)


CASES = [("arm4", "entropic"), ("arm7", "euclidean"), ("ur5", "entropic"), ("panda", "entropic")]


@pytest.mark.parametrize(("name", "metric"), CASES)
def test_same_optimum_as_cvxpy(name: str, metric: str) -> None:
    """With masses of the file off by up to five, so that bounds are active; the total, too."""
    arm = robot(name)
    rng = np.random.default_rng(5)
    info, samples = folded(arm, rng, count=60, noise=0.05)
    wrong = reference(arm, np.exp(rng.uniform(-1.6, 1.6, len(arm.body_names))))
    total = max(0.8 * arm.mass, 0.4 * wrong.robot.mass)
    limits = with_plausible_bounds(th.Constraints(total_mass=(0.0, total)), wrong)
    estimator = th.Consistent(wrong.robot.theta, 0.1, metric, constraints=limits)
    estimate = solve(info, estimator)
    assert estimate.status == "solved"
    assert estimate.on_bound
    assert estimate.certificate is not None
    # the certificate leaves out what no x explains
    whitening = 1.0 / estimate_noise(estimator, info)
    expected = oracle(estimator, info, samples) - 0.5 * info.stacked(whitening)[-1, -1] ** 2
    assert estimate.certificate.objective == pytest.approx(expected, rel=SAME, abs=SAME)
    for name_, bounds in limits.plausible.items():
        theta = estimate.theta.reshape(-1, 10)[arm.body_index(name_)]
        assert bounds.mass is not None
        assert bounds.region is not None
        assert bounds.mass[0] * 0.999 <= theta[9] <= bounds.mass[1] * 1.001
        assert bounds.region.filling(theta) >= -1e-6
        centre = bounds.com_region or bounds.region
        assert centre.distance(parameters.first_moment(theta) / theta[9]) <= 1e-6
    assert np.sum(estimate.theta[9::10]) <= total * 1.001


def test_multipliers_are_what_the_bounds_cost() -> None:
    """df*/d(bound) by finite differences; the bounds that cost most come first."""
    arm = robot("arm4")
    info, _ = folded(arm, np.random.default_rng(2), count=200, noise=0.05)
    name = arm.body_names[2]
    true = arm.theta[29]
    low = 1.2 * true
    region = Region(np.zeros(3), np.eye(3), np.full(3, 0.05), "joints")

    def fit(bounds: Bounds) -> th.Estimate:
        limits = th.Constraints(plausible={name: bounds})
        return solve(info, th.Consistent(arm.theta, 1.0, "entropic", constraints=limits))

    def cost(estimate: th.Estimate) -> float:
        assert estimate.certificate is not None
        return estimate.certificate.objective

    step = 0.01 * true
    at = fit(Bounds(mass=(low, 10.0)))
    slope = (
        cost(fit(Bounds(mass=(low + step, 10.0)))) - cost(fit(Bounds(mass=(low - step, 10.0))))
    ) / (2.0 * step)
    (bound,) = at.on_bound
    assert bound.name == f"mass of {name!r} in {low:.4g} … 10 kg"
    assert bound.soft
    assert bound.multiplier == pytest.approx(slope, rel=0.02)
    both = fit(Bounds(mass=(low, 10.0), region=region))
    assert {each.name for each in both.on_bound} == {
        f"mass of {name!r} in {low:.4g} … 10 kg",
        f"mass of {name!r} inside its region",
    }
    assert both.on_bound[0].multiplier >= both.on_bound[1].multiplier
    assert fit(Bounds(mass=(0.5 * true, 2.0 * true))).on_bound == ()


def test_the_multiplier_of_a_stated_total() -> None:
    arm = robot("arm4")
    info, _ = folded(arm, np.random.default_rng(2), count=200, noise=0.05)

    def fit(total: float) -> th.Estimate:
        limits = th.Constraints(total_mass=total)
        return solve(info, th.Consistent(arm.theta, 1.0, "entropic", constraints=limits))

    total, step = 0.7 * arm.mass, 0.01
    at, below, above = (fit(total + by) for by in (0.0, -step, step))
    assert above.certificate is not None
    assert below.certificate is not None
    slope = (above.certificate.objective - below.certificate.objective) / (2.0 * step)
    (bound,) = at.on_bound
    assert bound.exact
    assert bound.multiplier == pytest.approx(abs(slope), rel=0.05)


def test_a_centre_of_mass_on_its_region_is_named() -> None:
    arm = robot("arm4")
    info, _ = folded(arm, np.random.default_rng(2), count=200, noise=0.05)
    name = arm.body_names[1]
    com = arm.theta[[17, 14, 13]] / arm.theta[19]
    away = Region(com + np.array([0.0, 0.3, 0.0]), np.eye(3), np.array([0.3, 0.1, 0.3]), "joints")
    limits = th.Constraints(plausible={name: Bounds(com_region=away)})
    estimate = solve(info, th.Consistent(arm.theta, 1.0, "entropic", constraints=limits))
    (bound,) = estimate.on_bound
    assert bound.name == f"centre of mass of {name!r} in its region"
    assert bound.multiplier > 0.0
    freed = replace(limits, given_up=(bound.name,))
    assert solve(info, th.Consistent(arm.theta, constraints=freed)).on_bound == ()


@pytest.mark.parametrize("seed", range(3))
def test_bounds_that_the_data_reject_are_given_up(seed: int) -> None:
    """The log is of a robot five times as heavy as its file says."""
    arm = robot("arm4")
    info, _ = folded(arm, np.random.default_rng(seed), count=2_000, noise=0.02)
    wrong = reference(arm, 0.2)
    limits = with_plausible_bounds(th.Constraints(), wrong)
    estimator = th.Consistent(wrong.robot.theta, 0.1, "entropic", constraints=limits)
    estimate = solve(info, estimator)
    assert estimate.on_bound
    rows = info.rows.astype(float)
    relaxed = relax(info, estimator, rows)
    assert relaxed.given_up
    assert all(each.evidence > REJECTED for each in relaxed.given_up)
    free = solve(info, replace(estimator, constraints=th.Constraints()))
    said = bounded_estimate(info, estimator, free)
    assert said.given_up == relaxed.given_up
    assert np.sum(said.theta[9::10]) > 3.0 * wrong.robot.mass
    assert said.advice[0].startswith("given up, as the log rejects it: ")
    # what is left of the bounds costs no more than chance
    assert likelihood_ratio(said.residual_norms, free.residual_norms, rows) < 5.0 * REJECTED
    # the same log with few effective rows rejects nothing
    assert relax(info, estimator, 1e-5 * rows).given_up == ()
    # and a fit that is plausible without bounds stays as it is
    limits = with_plausible_bounds(th.Constraints(), reference(arm))
    right = th.Consistent(arm.theta, 0.1, "entropic", constraints=limits)
    plausible = solve(info, replace(right, constraints=th.Constraints()))
    assert bounded_estimate(info, right, plausible) is plausible


def test_what_is_stated_is_never_given_up() -> None:
    arm = robot("arm4")
    info, _ = folded(arm, np.random.default_rng(0), count=2_000, noise=0.02)
    name = arm.body_names[2]
    stated = th.Constraints(bounds={name: Bounds(mass=(0.01, 0.2 * arm.theta[29]))})
    limits = with_plausible_bounds(stated, reference(arm))
    estimator = th.Consistent(arm.theta, 0.1, "entropic", constraints=limits)
    estimate = solve(info, estimator)
    assert any(not bound.soft for bound in estimate.on_bound)
    after = relax(info, estimator, info.rows.astype(float)).estimate
    assert after.theta[29] <= 0.2 * arm.theta[29] * 1.001


def test_bounds_of_a_true_robot_are_seldom_rejected() -> None:
    """Thirty logs of a robot whose link weighs exactly what its bound says: at a level of a
    thousandth, none is given up.
    """
    arm = robot("double_pendulum")
    name, mass = arm.body_names[1], arm.theta[19]
    limits = th.Constraints(plausible={name: Bounds(mass=(mass, 10.0 * mass))})
    estimator = th.Consistent(arm.theta, 1e-3, "entropic", constraints=limits)
    for seed in range(30):
        info, _ = folded(arm, np.random.default_rng(seed), count=100, noise=0.1)
        assert relax(info, estimator, info.rows.astype(float)).given_up == ()


def test_rules_of_plausible_bounds() -> None:
    arm = robot("arm7")
    base = reference(arm)
    a, b, c, d = arm.body_names[:4]
    stated = th.Constraints(
        bounds={
            a: Bounds(mass=(1.0, 2.0)),
            b: Bounds(com_box=((-1.0, -1.0, -1.0), (1.0, 1.0, 1.0))),
        },
        frozen=(c,),
        tied=(Tie(a, d),),
    )
    limits = with_plausible_bounds(stated, base)
    assert limits.plausible[a].mass is None
    assert limits.plausible[a].region is not None
    assert limits.plausible[b].mass is not None
    assert limits.plausible[b].region is limits.plausible[b].com_region is None
    assert c not in limits.plausible
    assert d not in limits.plausible
    assert with_plausible_bounds(stated, base, None) is stated
    # no masses from a file with placeholders: a body is no denser than steel
    unknown = with_plausible_bounds(th.Constraints(), replace(base, placeholder="no body has mass"))
    for bounds, region in zip(unknown.plausible.values(), base.regions, strict=True):
        assert bounds.mass == (0.0, pytest.approx(DENSEST * region.volume))
    # where the file's inertia does not fit in, the region is widened and the centre held
    tight = Reference(arm, tuple(replace(r, radii=0.3 * r.radii) for r in base.regions))
    for name, bounds in with_plausible_bounds(th.Constraints(), tight).plausible.items():
        theta = arm.theta.reshape(-1, 10)[arm.body_index(name)]
        assert bounds.region is not None
        assert bounds.region.filling(theta) >= 0.199


def test_a_file_is_as_plausible_as_itself() -> None:
    arm = robot("arm7")
    info, _ = folded(arm, np.random.default_rng(0), count=300, noise=0.0)
    estimate = solve(info, th.Consistent(arm.theta, 1.0, "entropic"))
    found = assess(estimate, reference(arm), None)
    assert found.total_mass == pytest.approx(found.total_mass_file, rel=1e-3)
    for link in found.links:
        assert link.mass_ratio == pytest.approx(1.0, rel=0.01)
        assert link.com_outside == pytest.approx(0.0, abs=1e-3)
        assert link.size_ratio is not None
        assert 0.0 < link.size_ratio < 1.5
    assert likelihood_ratio(np.ones(3), np.ones(3), np.full(3, 100.0)) == 0.0
