"""Physically consistent fits: against CVXPY's formulation of the same problem, over random
problems, and the laws they must keep.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from consistent_cases import LARGE, SMALL, folded, random_case, robot

import thetahat as th
from thetahat.errors import RobotWarning, UnphysicalRobot, UsageError
from thetahat.identification.consistency.constraints import Bounds, Tie
from thetahat.identification.consistency.misfit import objective
from thetahat.identification.consistency.program import CERTAIN, MARGIN, smallest_eigenvalue
from thetahat.identification.parameter_columns import Columns, full_regressor
from thetahat.identification.solve import solve
from thetahat.model import parameters

pytestmark = pytest.mark.filterwarnings(f"ignore::{RobotWarning.__module__}.RobotWarning")
# relative: what two interior-point methods agree on, the other one's tolerance being 1e-8 of a
# badly scaled problem
SAME = 1e-5
LEAST = 1e-9  # of the trace: smallest eigenvalue of every body


def pseudo_inertia(cp, theta):
    """J of θ in CVXPY, written out."""
    ixx, ixy, ixz, mz, my, iyy, iyz, mx, izz, m = (theta[k] for k in range(10))
    half = (ixx + iyy + izz) / 2
    return cp.bmat(
        [
            [half - ixx, -ixy, -ixz, mx],
            [-ixy, half - iyy, -iyz, my],
            [-ixz, -iyz, half - izz, mz],
            [mx, my, mz, m],
        ]
    )


def oracle(estimator: th.Consistent, info, samples) -> tuple[float, np.ndarray]:
    """(optimum, x) of the same problem, from the plain regressor of all samples, by CVXPY."""
    cp = pytest.importorskip("cvxpy")
    f = objective(
        info,
        prior=estimator.prior,
        weight=estimator.weight,
        metric=estimator.metric,
        weights=estimator.weights,
    )
    columns, n = f.columns, f.columns.inertial
    Y = full_regressor(info.robot, samples.q, samples.dq, samples.ddq) / f.weights.noise[:, None]
    x = cp.Variable(columns.count)
    v = x / f.scale
    residual = (Y.reshape(-1, columns.count) * f.scale) @ v - (
        samples.tau / f.weights.noise
    ).ravel()
    misfit = 0.5 * cp.sum_squares(residual)
    away = 0.5 * cp.sum_squares((x - f.x0) / f.scale)
    constraints = [x[k] >= 0 for k in f.nonnegative]
    if estimator.metric == "entropic":
        away = 0.5 * cp.sum_squares((x[n:] - f.x0[n:]) / f.scale[n:])
        for b in range(f.bodies):
            W = np.linalg.inv(np.linalg.cholesky(f.references[b]))
            J = W @ pseudo_inertia(cp, x[10 * b : 10 * b + 10]) @ W.T
            away = away + cp.trace(J) - cp.log_det((J + J.T) / 2) - 4
    else:
        for b in range(f.bodies):
            J = pseudo_inertia(cp, x[10 * b : 10 * b + 10])
            constraints.append(J - MARGIN * cp.trace(J) * np.eye(4) >> 0)
    problem = cp.Problem(cp.Minimize(misfit + estimator.weight * away), constraints)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem.solve(
            solver=cp.CLARABEL,
            tol_gap_rel=1e-10,
            tol_gap_abs=1e-10,
            tol_feas=1e-10,
            static_regularization_constant=1e-10,
        )
    assert problem.status in ("optimal", "optimal_inaccurate")
    return float(problem.value), np.asarray(x.value)


@pytest.mark.parametrize("metric", ["euclidean", "entropic"])
@pytest.mark.parametrize(
    ("name", "noise"), [("double_pendulum", 0.3), ("arm4", 0.1), ("ur5", 0.5), ("panda", 0.2)]
)
def test_same_optimum_as_cvxpy(name: str, noise: float, metric: str) -> None:
    arm, rng = robot(name), np.random.default_rng(11)
    info, samples = folded(arm, rng, count=120, noise=noise)
    prior = np.concatenate(
        [
            parameters.transform(theta, np.eye(3), [0.02, 0.0, 0.03])
            for theta in 1.4 * parameters.project(arm.theta.reshape(-1, 10))
        ]
    )
    estimator = th.Consistent(prior=prior, metric=metric, weight=0.5)
    estimate = solve(info, estimator)
    value, x = oracle(estimator, info, samples)
    f = objective(info, prior=prior, weight=0.5, metric=metric, weights="iterated")
    left = value - f.value(x)  # what no x explains, which the factor leaves out
    assert f.value(estimate.x) + left == pytest.approx(value, rel=SAME)
    np.testing.assert_allclose(
        estimate.x_base, info.base.map @ x, atol=SAME * np.abs(estimate.x_base).max()
    )
    assert estimate.status == "solved"
    assert estimate.consistent
    assert estimate.certificate.objective == pytest.approx(f.value(estimate.x), rel=1e-6)


def certified(seed: int, names: tuple[str, ...]) -> str:
    """The status of a random problem, all that it claims checked from outside."""
    case = random_case(seed, names)
    estimate, e = solve(case.information, case.estimator), case.estimator
    certificate = estimate.certificate
    assert np.all(np.isfinite(estimate.x)), case
    assert all(np.isfinite([certificate.objective, certificate.gap, certificate.infeasibility])), (
        case
    )
    if estimate.status == "infeasible":
        assert case.bounded, case
        assert certificate.infeasibility > 0.0, case
        assert any("relax one of them" in sentence for sentence in estimate.advice), case
        return estimate.status
    assert estimate.status == "solved", f"{case}: {certificate}"
    assert certificate.gap <= CERTAIN * (1.0 + certificate.objective), case
    bodies = [
        b
        for b, name in enumerate(case.information.robot.body_names)
        if name not in e.constraints.frozen
    ]
    theta = estimate.theta.reshape(-1, 10)
    assert smallest_eigenvalue(theta[bodies].ravel()) >= LEAST, case
    drive = {term: values for term, values in estimate.drive.items() if term != "offset"}
    assert all(np.all(values >= 0.0) for values in drive.values()), case
    for name, limits in e.constraints.bounds.items():
        mass = theta[case.information.robot.body_names.index(name), parameters.M]
        if limits.mass is not None:
            assert limits.mass[0] * (1 - 1e-9) <= mass <= limits.mass[1] * (1 + 1e-9), case
    for tie in e.constraints.tied:
        first, second = (
            theta[case.information.robot.body_names.index(name)] for name in (tie.first, tie.second)
        )
        np.testing.assert_allclose(np.abs(first), np.abs(second), rtol=1e-12)
    return estimate.status


@pytest.mark.parametrize("seed", range(40))
def test_random_problems_end_certified(seed: int) -> None:
    certified(seed, SMALL)


@pytest.mark.slow
def test_500_random_problems_end_certified(record_property) -> None:
    statuses = [certified(seed, SMALL + LARGE) for seed in range(1000, 1500)]
    record_property("infeasible", statuses.count("infeasible"))
    assert statuses.count("solved") > 400


@pytest.mark.parametrize("name", ["arm7", "panda"])
def test_what_no_motion_shows_stays_at_the_nominal_robot(name: str) -> None:
    arm = robot(name)
    info, _ = folded(arm, np.random.default_rng(2), count=300, noise=0.01)
    prior = parameters.project(arm.theta.reshape(-1, 10), 1e-3) * 1.2
    x0 = np.concatenate([prior.ravel(), Columns(arm).x0[len(arm.theta) :]])
    estimate = solve(info, th.Consistent(prior=prior.ravel()))
    never = ~np.any(info.base.map, axis=0)
    assert np.any(never)
    np.testing.assert_array_equal(estimate.x[never], x0[never])
    # beyond single parameters: no combination that the data leave open has moved, where no
    # constraint holds it
    held = solve(info, th.Consistent(prior=prior.ravel(), weight=1.0))
    f = objective(info, prior=prior.ravel(), weight=1.0, metric="euclidean", weights="iterated")
    pull = info.base.nullspace.T @ ((held.x - x0) / f.scale**2)
    free = solve(info, th.Consistent(prior=prior.ravel(), weight=1e6))
    assert np.linalg.norm((free.x - x0) / f.scale) < np.linalg.norm((held.x - x0) / f.scale)
    assert np.all(np.isfinite(pull))


def test_a_joint_that_stands_still_is_named_and_keeps_its_link() -> None:
    arm = robot("arm4")
    rng = np.random.default_rng(3)
    q, dq, ddq = (rng.normal(size=(400, 4)) for _ in range(3))
    q[:, 3], dq[:, 3], ddq[:, 3] = 0.3, 0.0, 0.0
    tau = th.inverse_dynamics(arm, q, dq, ddq) + 0.01 * rng.normal(size=q.shape)
    info = th.information(arm, th.Samples(q=q, dq=dq, ddq=ddq, tau=tau))
    estimate = solve(info, th.Consistent())
    assert info.rank < len(info.base)
    assert estimate.status == "solved"
    assert any("elbow" in sentence for sentence in estimate.advice)
    assert np.ma.count_masked(estimate.base_std) > 0
    assert {"viscous_elbow", "coulomb_elbow", "armature_elbow"} <= set(estimate.unseen)
    np.testing.assert_array_equal(estimate.drive["viscous"][3], arm.drive.viscous[3])


@pytest.mark.parametrize("metric", ["euclidean", "entropic"])
def test_a_strong_prior_wins_and_a_weak_one_does_not(metric: str) -> None:
    arm = robot("arm4")
    info, _ = folded(arm, np.random.default_rng(5), count=400, noise=0.02)
    prior = parameters.project(arm.theta.reshape(-1, 10), 1e-3) * 1.5
    truth = info.base.of(Columns(arm).x0)
    data = solve(info, th.LeastSquares(weights="joint"))
    strong, weak = (
        solve(info, th.Consistent(prior=prior.ravel(), weight=w, metric=metric))
        for w in (1e13, 1e-6)
    )
    np.testing.assert_allclose(strong.theta, prior.ravel(), rtol=1e-3, atol=1e-5)
    spread = np.sqrt(np.diag(data.covariance))
    assert np.max(np.abs(weak.x_base - data.x_base) / spread) < 4.0
    assert np.linalg.norm(weak.x_base - truth) < np.linalg.norm(strong.x_base - truth)


def test_the_entropic_prior_is_the_same_in_every_frame() -> None:
    """Turning and shifting every body's frame changes θ, and nothing else: the divergence of the
    same two bodies is one number.
    """
    arm = robot("arm4")
    info, _ = folded(arm, np.random.default_rng(6), count=50, noise=0.1)
    f = objective(info, prior=None, weight=1.0, metric="entropic", weights="iterated")
    rng = np.random.default_rng(8)
    theta0, theta = (
        f.x0[: f.columns.inertial].reshape(-1, 10),
        1.3 * f.x0[: f.columns.inertial].reshape(-1, 10),
    )
    turned = [np.linalg.qr(rng.normal(size=(3, 3)))[0] for _ in theta]
    turned = [R * np.sign(np.linalg.det(R)) for R in turned]
    shift = rng.normal(size=(len(theta), 3))

    def moved(rows):
        return np.concatenate(
            [parameters.transform(row, R, p) for row, R, p in zip(rows, turned, shift, strict=True)]
        )

    rest = f.x0[f.columns.inertial :]
    g = objective(
        info,
        prior=np.concatenate([moved(theta0), rest]),
        weight=1.0,
        metric="entropic",
        weights="iterated",
    )
    assert g.distance(np.concatenate([moved(theta), rest])) == pytest.approx(
        f.distance(np.concatenate([theta.ravel(), rest])), rel=1e-9
    )


# -- what is known beside the log ------------------------------------------------------------------


@pytest.fixture(scope="module")
def panda():
    arm = robot("panda")
    return arm, folded(arm, np.random.default_rng(9), count=500, noise=0.05)[0]


@pytest.mark.parametrize("metric", ["euclidean", "entropic"])
def test_bounds_hold(panda, metric: str) -> None:
    arm, info = panda
    name = arm.body_names[3]
    centre, radii = np.array([0.0, 0.0, 0.0]), np.array([0.03, 0.04, 0.05])
    bounds = {
        arm.body_names[2]: Bounds(mass=(1.0, 2.0), com_box=((-0.02, -0.1, -0.1), (0.02, 0.1, 0.1))),
        name: Bounds(com_ellipsoid=(centre, radii)),
        arm.body_names[4]: Bounds(mass=(2.5, 2.5)),
    }
    estimate = solve(
        info,
        th.Consistent(metric=metric, constraints=th.Constraints(bounds=bounds, total_mass=20.0)),
    )
    assert estimate.status == "solved"
    mass, com, _ = parameters.to_mass_com_inertia(estimate.theta.reshape(-1, 10))
    assert 1.0 <= mass[2] <= 2.0
    assert abs(com[2][0]) <= 0.02 + 1e-12
    assert np.sum(((com[3] - centre) / radii) ** 2) <= 1.0 + 1e-9
    assert mass[4] == pytest.approx(2.5, rel=1e-8)
    assert mass.sum() == pytest.approx(20.0, rel=1e-8)
    free = solve(info, th.Consistent(metric=metric))
    assert estimate.certificate.objective > free.certificate.objective


def test_frozen_and_tied_links(panda) -> None:
    arm, info = panda
    first, second, third = arm.body_names[0], arm.body_names[-2], arm.body_names[-1]
    estimate = solve(
        info,
        th.Consistent(
            constraints=th.Constraints(frozen=(first,), tied=(Tie(second, third, mirror="y"),))
        ),
    )
    assert estimate.status == "solved"
    theta = estimate.theta.reshape(-1, 10)
    np.testing.assert_array_equal(theta[0], arm.theta[:10])
    m2, c2, I2 = parameters.to_mass_com_inertia(theta[-2])
    m3, c3, I3 = parameters.to_mass_com_inertia(theta[-1])
    flip = np.diag([1.0, -1.0, 1.0])  # the mirror image of a body: c → F c, I → F I F
    np.testing.assert_allclose(c3, flip @ c2, atol=1e-12)
    np.testing.assert_allclose(I3, flip @ I2 @ flip, atol=1e-12)
    assert m2 == m3


@pytest.mark.parametrize("metric", ["euclidean", "entropic"])
def test_a_tie_that_the_data_contradict_is_named(metric: str) -> None:
    """Precise data against links that are not alike: the misfit is millions of noise variances per
    row, and counts as noise.
    """
    arm = robot("panda")
    info, _ = folded(arm, np.random.default_rng(215), count=100, noise=1e-6)
    estimate = solve(
        info,
        th.Consistent(
            metric=metric,
            weight=1e-4,
            constraints=th.Constraints(tied=(Tie(arm.body_names[2], arm.body_names[3], "x"),)),
        ),
    )
    assert estimate.status == "solved"
    assert "contradicts the log" in estimate.advice[0]
    assert estimate.certificate.objective < np.sum(info.rows)
    assert estimate.consistent


def test_bounds_that_conflict_are_a_status_with_advice(panda) -> None:
    arm, info = panda
    estimate = solve(
        info,
        th.Consistent(
            constraints=th.Constraints(
                bounds={arm.body_names[2]: Bounds(mass=(3.0, 4.0))}, total_mass=(1.0, 2.0)
            )
        ),
    )
    assert estimate.status == "infeasible"
    assert "total mass in 1 … 2 kg" in estimate.advice[0]
    assert arm.body_names[2] in estimate.advice[0]
    np.testing.assert_array_equal(estimate.x, Columns(arm).x0)
    frozen = solve(
        info,
        th.Consistent(
            constraints=th.Constraints(
                frozen=(arm.body_names[2],), bounds={arm.body_names[2]: Bounds(mass=(9.0, 10.0))}
            )
        ),
    )
    assert frozen.status == "infeasible"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"weight": -1.0}, "weight is -1.0"),
        ({"weight": float("nan")}, "weight is nan"),
        ({"metric": "riemannian"}, "euclidean, entropic"),
        ({"weights": "all"}, "None, 'joint' or 'iterated'"),
        ({"prior": np.ones(3)}, "prior has shape"),
        ({"constraints": th.Constraints(frozen=("panda_link99",))}, "panda_link99"),
        ({"constraints": th.Constraints(frozen=("panda_hand",))}, "welded into body 'panda_link7'"),
        ({"constraints": th.Constraints(tied=(Tie("panda_link1", "panda_link1"),))}, "twice"),
        (
            {"constraints": th.Constraints(tied=(Tie("panda_link1", "panda_link2", "w"),))},
            "mirror 'w'",
        ),
        (
            {"constraints": th.Constraints(bounds={"panda_link1": Bounds(mass=(2.0, 1.0))})},
            "the least first",
        ),
        (
            {"constraints": th.Constraints(bounds={"panda_link1": Bounds(mass=(-1.0, 1.0))})},
            "not negative",
        ),
        (
            {
                "constraints": th.Constraints(
                    bounds={"panda_link1": Bounds(com_box=((0, 0), (1, 1)))}
                )
            },
            "two triples",
        ),
        (
            {
                "constraints": th.Constraints(
                    bounds={"panda_link1": Bounds(com_ellipsoid=((0, 0, 0), (1, 0, 1)))}
                )
            },
            "above zero",
        ),
        ({"constraints": th.Constraints(total_mass=float("inf"))}, "total_mass"),
    ],
)
def test_wrong_arguments_are_one_sentence(panda, options: dict, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        solve(panda[1], th.Consistent(**options))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_entropic_prior_needs_a_physical_robot(panda) -> None:
    arm, info = panda
    theta = arm.theta.copy()
    theta[9] = -1.0
    with pytest.raises(UnphysicalRobot, match=r"panda_link1.*euclidean"):
        solve(info, th.Consistent(prior=theta, metric="entropic"))
    assert solve(info, th.Consistent(prior=theta)).consistent
