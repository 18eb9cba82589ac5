"""Laws that every estimator keeps: the truth comes back without noise, nothing non-finite comes
out, what is not seen is named.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from consistent_cases import folded, robot

import thetahat as th
from thetahat.errors import NotIdentifiable, RobotWarning, UsageError
from thetahat.identification.estimators import robust
from thetahat.identification.estimators.consistent import LogCholesky
from thetahat.identification.estimators.ridge import Ridge
from thetahat.identification.information import Information
from thetahat.identification.parameter_columns import Columns
from thetahat.identification.solve import solve
from thetahat.model import parameters

pytestmark = pytest.mark.filterwarnings(f"ignore::{RobotWarning.__module__}.RobotWarning")

ROBOTS = (
    "double_pendulum",
    "arm4",
    "arm7",
    "ur5",
    "ur10",
    "kinova",
    "panda",
    "xarm7",
    "solo12",
    "baxter",
    "talos",
)
CLOSED_FORM, CONIC = 1e-8, 1e-5  # relative error of base parameters, noise-free

CLOSED = {
    "least squares": lambda x: th.LeastSquares(),
    "by joint": lambda x: th.LeastSquares(weights="joint"),
    "iterated": lambda x: th.LeastSquares(weights="iterated"),
    "blend, truth as guess": lambda x: th.Prior(x, 0.5),
    "ridge, truth as guess": lambda x: Ridge(prior=x),
}
SOLVED = {
    "positive": lambda x: th.Positive(),
    "consistent, no prior": lambda x: th.Consistent(weight=0.0),
    "consistent, truth as prior": lambda x: th.Consistent(prior=x),
    "entropic, truth as prior": lambda x: th.Consistent(prior=x, metric="entropic"),
    "smooth, truth as prior": lambda x: th.Consistent(prior=x, solver=LogCholesky()),
}


@cache
def physical(name: str) -> th.Robot:
    """The robot with bodies that exist with some thickness: the truth must be one that a physical
    fit may find.
    """
    arm = robot(name)
    theta = arm.theta.reshape(-1, 10)
    return arm.with_parameters(
        np.concatenate(
            [row if parameters.check(row, 0.0) else parameters.project(row, 1e-4) for row in theta]
        )
    )


@cache
def noise_free(name: str) -> Information:
    arm = physical(name)
    return folded(arm, np.random.default_rng(1), count=max(400, 4 * arm.nv), noise=0.0)[0]


@pytest.mark.parametrize("estimator", [*CLOSED, *SOLVED])
@pytest.mark.parametrize("name", ROBOTS)
def test_the_truth_is_found_without_noise(name: str, estimator: str) -> None:
    info, x = noise_free(name), Columns(physical(name)).x0
    estimate = solve(info, {**CLOSED, **SOLVED}[estimator](x))
    truth = info.base.of(x)
    error = np.linalg.norm((estimate.x_base - truth) * info.base.scale[info.base.independent])
    assert error <= (CLOSED_FORM if estimator in CLOSED else CONIC) * np.linalg.norm(
        truth * info.base.scale[info.base.independent]
    )
    if estimator in CLOSED:
        assert estimate.r2 >= 1.0 - 1e-12
    assert estimate.status == "solved"
    if estimator.startswith(("consistent", "entropic", "smooth")):
        assert estimate.consistent


ALL = {**CLOSED, **SOLVED, "robust": lambda x: th.Robust(th.Consistent())}
FEW_ROUNDS = robust.SCALE_ROUNDS + 4  # of re-weighting: a few with the scale held


@cache
def edge_cases() -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    arm, rng = robot("arm4"), np.random.default_rng(4)
    q, dq, ddq = (rng.normal(size=(60, 4)) for _ in range(3))
    tau = th.inverse_dynamics(arm, q, dq, ddq)
    still = np.zeros_like(q)
    return {
        "no torque": (q, dq, ddq, 0.0 * tau),
        "standstill": (q[:1] + still, still, still, tau[:1] + still),
        "one sample": (q[:1], dq[:1], ddq[:1], tau[:1]),
        "three samples": (q[:3], dq[:3], ddq[:3], tau[:3]),
        "huge torque": (q, dq, ddq, 1e60 * tau),
        "tiny torque": (q, dq, ddq, 1e-60 * tau),
        "pure noise": (q, dq, ddq, rng.normal(size=tau.shape)),
        "one joint noisy": (
            q,
            dq,
            ddq,
            tau + np.array([0.0, 0.0, 1e3, 0.0]) * rng.normal(size=tau.shape),
        ),
        "wild speeds": (q, 1e8 * dq, 1e12 * ddq, tau),
    }


@pytest.mark.slow
@pytest.mark.parametrize("case", edge_cases())
def test_nothing_non_finite_leaves_after_all_rounds_of_re_weighting(case: str) -> None:
    require_finite(case, "robust")


@pytest.mark.parametrize("estimator", ALL)
@pytest.mark.parametrize("case", edge_cases())
def test_nothing_non_finite_leaves_an_estimator(
    case: str, estimator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(robust, "ROUNDS", FEW_ROUNDS)
    require_finite(case, estimator)


def require_finite(case: str, estimator: str) -> None:
    arm = robot("arm4")
    q, dq, ddq, tau = edge_cases()[case]
    samples = th.Samples(q=q, dq=dq, ddq=ddq, tau=tau)
    info = th.information(arm, samples)
    if estimator == "positive" and info.rank < len(info.base):
        with pytest.raises(NotIdentifiable, match="excite"):
            solve(info, th.Positive())
        return
    estimate = solve(info, ALL[estimator](Columns(arm).x0), samples=samples)
    assert np.all(np.isfinite(estimate.x))
    assert np.all(np.isfinite(estimate.x_base))
    assert np.all(np.isfinite(estimate.base_std.compressed()))
    assert np.all(np.isfinite(estimate.std.compressed()))
    assert np.all(np.isfinite(estimate.relative_std.compressed()))
    assert estimate.r2 is None or np.isfinite(estimate.r2)
    assert not np.any(np.isnan(estimate.covariance))
    if estimate.certificate is not None:
        assert all(
            np.isfinite(
                [
                    estimate.certificate.objective,
                    estimate.certificate.gap,
                    estimate.certificate.eigenvalue,
                ]
            )
        )
    if info.rank < len(info.base):
        assert any("excite" in sentence for sentence in estimate.advice)


def test_nan_names_its_sample() -> None:
    arm, rng = robot("arm4"), np.random.default_rng(4)
    arrays = {name: rng.normal(size=(60, 4)) for name in ("q", "dq", "ddq", "tau")}
    for name in arrays:
        broken = {key: value.copy() for key, value in arrays.items()}
        broken[name][17, 2] = np.nan
        with pytest.raises(UsageError, match=f"{name} of sample 17.* 2 "):
            th.Samples(**broken)
    info = th.information(arm, th.Samples(**arrays))
    factor = info.factors[0].copy()
    factor[0, 0] = np.nan
    with pytest.raises(UsageError, match=r"shoulder_pitch.*not finite"):
        solve(replace(info, factors=(factor, *info.factors[1:])), th.LeastSquares())


def test_positive_is_positive_where_nature_is() -> None:
    arm = robot("ur5")
    info, _ = folded(arm, np.random.default_rng(2), count=40, noise=0.5)
    least, positive = solve(info, th.LeastSquares()), solve(info, th.Positive())
    names = [name for name, _ in Columns(arm).pairs]
    held = np.isin(names, ["Ixx", "Iyy", "Izz", "m", "viscous", "coulomb", "armature"])
    assert np.min(least.x[held]) < 0.0 < np.min(positive.x[held])
    assert np.min(positive.x[~held]) < 0.0
    assert positive.r2 <= least.r2


def test_positive_equals_scipy() -> None:
    """Bounded least squares of the stacked regressor, by SciPy's own solver: the same torques."""
    from scipy.optimize import lsq_linear

    from thetahat.identification.parameter_columns import full_regressor

    arm = robot("double_pendulum")
    info, samples = folded(arm, np.random.default_rng(3), count=60, noise=0.3)
    Y = full_regressor(arm, samples.q, samples.dq, samples.ddq).reshape(-1, Columns(arm).count)
    held = np.isin(
        [name for name, _ in Columns(arm).pairs],
        ["Ixx", "Iyy", "Izz", "m", "viscous", "coulomb", "armature"],
    )
    found = lsq_linear(
        Y,
        samples.tau.ravel(),
        bounds=(np.where(held, 0.0, -np.inf), np.inf),
        method="bvls",
        tol=1e-14,
        max_iter=5000,
    )
    estimate = solve(info, th.Positive())
    np.testing.assert_allclose(Y @ estimate.x, Y @ found.x, atol=1e-4 * np.abs(samples.tau).max())
    ours, theirs = (
        float(np.sum((Y @ x - samples.tau.ravel()) ** 2)) for x in (estimate.x, found.x)
    )
    assert ours == pytest.approx(theirs, rel=1e-6)
