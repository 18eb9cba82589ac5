"""`Robust`: outliers held back, against SciPy's Huber loss and the closed form of its
covariance.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from data_paths import example_robot
from scipy.optimize import least_squares
from test_information import arm, simulated, stacked, with_friction

import thetahat as th
from thetahat import robots
from thetahat.data.samples import Samples
from thetahat.errors import UsageError
from thetahat.identification.estimators.least_squares import LeastSquares
from thetahat.identification.estimators.prior import Prior
from thetahat.identification.estimators.robust import HUBER, Robust
from thetahat.identification.information import Information, information
from thetahat.identification.parameter_columns import Columns, full_regressor
from thetahat.identification.solve import solve
from thetahat.identification.submodel import view

NOISE = np.array([0.5, 0.4, 0.2, 0.05])  # [N·m] of arm4's joints
SAME = 1e-6  # of a standard deviation: how closely the loop settles
LOOSER = 1e-5  # the same beside SciPy's solver


def noisy(count: int, *, seed: int) -> Samples:
    samples = simulated(arm(), count, seed=seed)
    return replace(
        samples,
        tau=samples.tau + NOISE * np.random.default_rng(1000 + seed).normal(size=samples.tau.shape),
    )


def spoiled(samples: Samples, *, seed: int) -> Samples:
    """3 % spikes of 20 standard deviations of either sign, and in every joint 2 % of the rows stuck
    at one torque.
    """
    rng = np.random.default_rng(seed)
    tau, length = samples.tau.copy(), len(samples) // 50
    tau += (rng.random(tau.shape) < 0.03) * rng.choice([-20.0, 20.0], tau.shape) * NOISE
    for v in range(tau.shape[1]):
        first = rng.integers(0, len(tau) - length)
        tau[first : first + length, v] = tau[first, v]
    return replace(samples, tau=tau)


def true_base(info: Information) -> np.ndarray:
    return info.base.map @ Columns(info.robot).x0


def clipped(e: np.ndarray, limit: np.ndarray | float) -> np.ndarray:
    return np.clip(e, -limit, limit)


# -- what it is for --------------------------------------------------------------------------------


def test_outliers_hardly_move_it_and_move_least_squares_far() -> None:
    robot, inner = arm(), LeastSquares(weights="joint")
    clean_error, robust_error, plain_error = [], [], []
    for seed in range(4):
        clean = noisy(2000, seed=seed)
        dirty = spoiled(clean, seed=seed)
        info = information(robot, dirty)
        best = inner.estimate(information(robot, clean))
        for errors, estimate in (
            (clean_error, best),
            (robust_error, solve(info, Robust(inner), samples=dirty)),
            (plain_error, solve(info, inner)),
        ):
            errors.append((estimate.x_base - true_base(info)) / best.base_std.filled(np.inf))
    clean, robust, plain = (
        np.sqrt(np.mean(np.square(e))) for e in (clean_error, robust_error, plain_error)
    )
    assert clean == pytest.approx(1.0, abs=0.2)
    assert robust < 1.3 * clean
    assert plain > 10.0


def test_gaussian_noise_costs_five_percent_of_efficiency() -> None:
    robot, inner = arm(), LeastSquares(weights="joint")
    robust_error, plain_error, ratio = [], [], []
    for seed in range(20):
        samples = noisy(600, seed=seed)
        info = information(robot, samples)
        plain, robust = inner.estimate(info), solve(info, Robust(inner), samples=samples)
        std = plain.base_std.filled(np.inf)
        plain_error.append((plain.x_base - true_base(info)) / std)
        robust_error.append((robust.x_base - true_base(info)) / std)
        ratio.append(robust.base_std / std)
        assert not robust.advice
    efficiency = np.mean(np.square(plain_error)) / np.mean(np.square(robust_error))
    assert 0.90 < efficiency < 1.0  # 0.95 by theory
    assert np.mean(np.square(ratio)) == pytest.approx(1.0 / 0.95, abs=0.03)  # and it says so


def coverage(runs: int, count: int) -> tuple[float, float]:
    """How often robust and plain 95 % intervals hold the truth, under 5 % of noise ten times as
    wide.
    """
    robot = arm()
    base = simulated(robot, count, seed=7)
    inside: dict[str, list] = {"robust": [], "plain": []}
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        wide = np.where(rng.random(base.tau.shape) < 0.05, 10.0, 1.0)
        samples = replace(base, tau=base.tau + wide * NOISE * rng.normal(size=base.tau.shape))
        info = information(robot, samples)
        inner = LeastSquares(weights="joint")
        for name, estimate in (
            ("robust", solve(info, Robust(inner), samples=samples)),
            ("plain", inner.estimate(info)),
        ):
            inside[name].append(
                np.abs(estimate.x_base - true_base(info))
                < 1.959964 * estimate.base_std.filled(np.inf)
            )
            if name == "robust":
                width = float(np.mean(estimate.base_std))
            else:
                assert (
                    float(np.mean(estimate.base_std)) > 1.5 * width
                )  # plain intervals cover too, being wide
    return float(np.mean(inside["robust"])), float(np.mean(inside["plain"]))


def test_intervals_cover_under_contaminated_noise() -> None:
    robust, _ = coverage(60, 300)
    assert 0.93 < robust < 0.97


@pytest.mark.slow
def test_intervals_cover_under_contaminated_noise_long() -> None:
    robust, plain = coverage(1000, 500)
    assert 0.94 < robust < 0.96
    assert 0.93 < plain < 0.97


# -- against others --------------------------------------------------------------------------------


def test_one_joint_is_scipys_huber_fit_with_hubers_covariance() -> None:
    """min Σρ(e/σ), and K²·Σψ²/(n−p)/m²·(YᵀY)⁻¹ on the plain dense problem; the information is a
    view of one joint.
    """
    robot, samples = arm(), spoiled(noisy(700, seed=3), seed=3)
    info = view(information(robot, samples), dofs=[1])
    estimate = Robust(LeastSquares()).estimate_from_samples(info, samples)
    weights = estimate.reweighting
    assert weights.settled
    Y = full_regressor(robot, samples.q, samples.dq, samples.ddq)[:, 1, info.base.independent]
    limit = HUBER * weights.scale[1]
    size = np.linalg.norm(Y, axis=0)
    fit = least_squares(
        lambda x: samples.tau[:, 1] - (Y / size) @ x,
        np.zeros(len(size)),
        jac=lambda x: -Y / size,
        loss="huber",
        f_scale=limit,
        ftol=None,
        xtol=1e-15,
        gtol=1e-13,
        max_nfev=1000,
    )
    error = (estimate.x_base - fit.x / size) / estimate.base_std.filled(np.inf)
    assert np.max(np.abs(error)) < LOOSER
    np.testing.assert_allclose(
        estimate.x_base, fit.x / size, rtol=1e-6, atol=1e-6 * np.max(np.abs(fit.x / size))
    )
    e = samples.tau[:, 1] - Y @ estimate.x_base
    n, p, m = len(e), Y.shape[1], np.mean(np.abs(e) <= limit)
    K = 1.0 + p / n * (1.0 - m) / m
    expected = K**2 * np.sum(clipped(e, limit) ** 2) / (n - p) / m**2 * np.linalg.inv(Y.T @ Y)
    np.testing.assert_allclose(
        estimate.covariance, expected, rtol=1e-6, atol=1e-6 * np.max(np.abs(expected))
    )
    assert weights.scale[1] == pytest.approx(1.4826 * np.median(np.abs(e)), rel=5e-3)
    assert weights.reduced[1] == pytest.approx(1.0 - m, abs=1e-9)
    assert weights.outliers[1] == pytest.approx(np.mean(np.abs(e) > 3.0 * limit), abs=1e-9)


def test_all_joints_are_the_huber_fit_the_docstring_states() -> None:
    """Σ_j (K_j/m_j)·Y_jᵀψ(e_j) = 0, solved by SciPy with a loss per row."""
    robot, samples = arm(), spoiled(noisy(500, seed=5), seed=5)
    info = information(robot, samples)
    estimate = Robust(LeastSquares()).estimate_from_samples(info, samples)
    weights = estimate.reweighting
    Y, u = stacked(robot, samples)
    Y = Y[:, info.base.independent]
    size, joints, limit = (
        np.linalg.norm(Y, axis=0),
        np.tile(np.arange(robot.nv), len(samples)),
        HUBER * weights.scale,
    )
    x, gain = np.zeros(len(size)), np.ones(robot.nv)
    for _ in range(8):  # the gain is that of the solution
        factor, t = np.sqrt(gain[joints]), (limit * np.sqrt(gain))[joints]

        def huber(z: np.ndarray, t: np.ndarray = t) -> np.ndarray:
            root = np.sqrt(np.maximum(z, 1e-300))
            inside = root <= t
            rho, slope = np.where(inside, z, 2.0 * t * root - t**2), np.where(inside, 1.0, t / root)
            return np.array(
                [rho, slope, np.where(inside, 0.0, -0.5 * slope / np.maximum(z, 1e-300))]
            )

        scaled = factor[:, None] * Y / size
        x = least_squares(
            lambda x, scaled=scaled, factor=factor: factor * u - scaled @ x,
            x,
            jac=lambda x, scaled=scaled: -scaled,
            loss=huber,
            ftol=None,
            xtol=1e-15,
            gtol=1e-13,
            max_nfev=500,
        ).x
        e = np.abs(u - (Y / size) @ x).reshape(-1, robot.nv)
        m = np.mean(e <= limit, axis=0)
        gain = (1.0 + len(size) / len(u) * (1.0 - m) / m) / m
    error = (estimate.x_base - x / size) / estimate.base_std.filled(np.inf)
    assert np.max(np.abs(error)) < LOOSER
    np.testing.assert_allclose(
        estimate.x_base, x / size, rtol=1e-6, atol=1e-6 * np.max(np.abs(x / size))
    )


# -- laws ------------------------------------------------------------------------------------------


def coupled() -> th.Robot:
    B = np.eye(4)
    B[2, 3] = 1.0  # motor 4 also drives joint 3
    return with_friction(th.load(robots.path("arm4")).without_drive().with_actuation(B))


def partly_driven() -> th.Robot:
    """Friction in the file, but only the offset to be identified."""
    robot = th.load(robots.path("arm4"))
    return replace(robot, drive=robot.drive.with_values(viscous=np.full(4, 2.0))).with_drive(
        viscous=False, coulomb=False, offset=True
    )


ROBOTS = {
    "arm7": lambda: arm("arm7"),
    "mimic": lambda: with_friction(th.load(example_robot("panda"))),
    "floating": lambda: with_friction(th.load(example_robot("solo12"), floating_base=True)),
    "coupled": coupled,
    "partly driven": partly_driven,
}


@pytest.mark.parametrize("name", ROBOTS)
def test_with_nothing_held_back_it_is_the_inner_estimator(name: str) -> None:
    robot = ROBOTS[name]()
    samples = simulated(robot, 700, noise=0.1)
    info = information(robot, samples)
    inner = LeastSquares(weights="joint")
    plain = inner.estimate(info)
    robust = Robust(inner, threshold=1e6).estimate_from_samples(info, samples)
    weights = robust.reweighting
    assert weights.settled
    assert not np.any(weights.reduced)
    np.testing.assert_allclose(
        robust.x_base, plain.x_base, rtol=1e-7, atol=1e-9 * np.max(np.abs(plain.x_base))
    )
    np.testing.assert_allclose(robust.base_std, plain.base_std, rtol=1e-6)
    assert robust.r2 == pytest.approx(plain.r2, abs=1e-9)


def batches(samples: Samples, rows: int) -> Iterator[Samples]:
    for first in range(0, len(samples), rows):
        yield samples.subset(slice(first, first + rows))


def test_batches_are_as_good_as_memory() -> None:
    robot, samples = arm(), spoiled(noisy(1500, seed=1), seed=1)
    info = information(robot, samples)
    whole = Robust().estimate_from_samples(info, samples)
    one = whole.reweighting
    streamed = Robust().estimate_from_samples(info, lambda: batches(samples, 237))
    other = streamed.reweighting
    np.testing.assert_array_equal(one.outliers, other.outliers)
    np.testing.assert_allclose(one.scale, other.scale, rtol=1e-9)
    assert np.max(np.abs(streamed.x_base - whole.x_base) / whole.base_std) < SAME
    np.testing.assert_allclose(
        streamed.covariance,
        whole.covariance,
        rtol=1e-8,
        atol=1e-10 * np.max(np.abs(whole.covariance)),
    )


def test_rows_marked_unusable_do_not_count() -> None:
    robot, samples = arm(), spoiled(noisy(1000, seed=2), seed=2)
    reason = np.zeros(samples.tau.shape, dtype=np.uint8)
    reason[100:400, 1] = 1
    reason[600:, 3] = 2
    other = samples.tau.copy()
    other[reason != 0] = 1e6
    results = []
    for tau in (samples.tau, other):
        part = replace(samples, tau=tau, reason=reason)
        results.append(Robust().estimate_from_samples(information(robot, part), part))
    first, second = results
    one, two = first.reweighting, second.reweighting
    np.testing.assert_allclose(first.x_base, second.x_base, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(one.scale, two.scale, rtol=1e-12)
    Y = full_regressor(robot, samples.q, samples.dq, samples.ddq)[..., first.base.independent]
    size = np.ma.masked_array(np.abs(samples.tau - Y @ first.x_base), mask=reason != 0)
    np.testing.assert_allclose(
        one.outliers, np.mean(size > 3.0 * HUBER * one.scale, axis=0), atol=1e-12
    )
    np.testing.assert_allclose(one.reduced, np.mean(size > HUBER * one.scale, axis=0), atol=1e-12)


def test_a_view_is_the_robot_without_that_column() -> None:
    robot, samples = arm(), spoiled(noisy(1200, seed=4), seed=4)
    seen = view(information(robot, samples), without=["offset"])
    short = robot.with_drive(offset=False)
    a, b = (
        solve(seen, Robust(), samples=samples),
        solve(information(short, samples), Robust(), samples=samples),
    )
    np.testing.assert_allclose(a.x_base, b.x_base, rtol=1e-6, atol=1e-8 * np.max(np.abs(b.x_base)))
    np.testing.assert_allclose(a.base_std, b.base_std, rtol=1e-6)


def test_a_view_of_some_joints_does_not_read_the_others() -> None:
    robot, samples = arm(), spoiled(noisy(1200, seed=4), seed=4)
    wrong = samples.tau.copy()
    wrong[:, 1] = 1e3 * np.random.default_rng(0).normal(size=len(wrong))
    results = []
    for tau in (samples.tau, wrong):
        part = replace(samples, tau=tau)
        results.append(
            solve(view(information(robot, part), dofs=[0, 2, 3]), Robust(), samples=part)
        )
    np.testing.assert_allclose(results[0].x_base, results[1].x_base, rtol=1e-9, atol=1e-12)
    assert results[0].rank == len(results[0].base) < len(information(robot, samples).base)


def test_exact_rows_win_over_outliers() -> None:
    """Without noise the scale shrinks to rounding, and spikes no longer matter."""
    robot, samples = arm(), simulated(arm(), 800, seed=6)
    rng = np.random.default_rng(6)
    samples = replace(
        samples,
        tau=samples.tau
        + (rng.random(samples.tau.shape) < 0.05) * rng.normal(size=samples.tau.shape) * 100.0,
    )
    info = information(robot, samples)
    estimate = solve(info, Robust(), samples=samples)
    np.testing.assert_allclose(estimate.x_base, true_base(info), rtol=1e-6, atol=1e-8)


def test_a_clean_exact_log_is_left_alone() -> None:
    robot, samples = arm(), simulated(arm(), 500)
    info = information(robot, samples)
    estimate = Robust().estimate_from_samples(info, samples)
    weights = estimate.reweighting
    assert weights.settled
    assert weights.rounds < 6
    np.testing.assert_allclose(estimate.x_base, true_base(info), rtol=1e-8, atol=1e-10)


def test_it_wraps_the_blend_and_names_joints_with_outliers() -> None:
    robot, samples = arm(), spoiled(noisy(1500, seed=8), seed=8)
    samples = replace(
        samples, tau=np.column_stack([noisy(1500, seed=8).tau[:, 0], samples.tau[:, 1:]])
    )
    info = information(robot, samples)
    inner = Prior(alpha=0.5, weights="joint")
    estimate = solve(info, Robust(inner), samples=samples)
    assert estimate.method == "robust prior"
    # The first joint's log is clean but for what the others' wrong torques do to shared parameters,
    # which is little.
    assert [sentence.split(":")[0] for sentence in estimate.advice] == list(robot.joint_names[1:])
    clean = solve(information(robot, noisy(1500, seed=8)), inner)
    assert np.max(np.abs(estimate.x_base - clean.x_base) / clean.base_std) < 4.0
    assert np.max(np.abs(solve(info, inner).x_base - clean.x_base) / clean.base_std) > 10.0


def test_bad_arguments_get_one_sentence() -> None:
    robot, samples = arm(), noisy(300, seed=0)
    info = information(robot, samples)
    with pytest.raises(UsageError, match="pass them: solve"):
        solve(info, Robust())
    with pytest.raises(UsageError, match=r"folded from 300 samples .* these are 200"):
        solve(info, Robust(), samples=samples.subset(slice(0, 200)))
    once = batches(samples, 100)
    with pytest.raises(UsageError, match="the same each time it is read"):
        solve(info, Robust(), samples=lambda: once)
    with pytest.raises(UsageError, match="a function that yields them anew"):
        solve(info, Robust(), samples=[samples])
    with pytest.raises(UsageError, match=r"threshold is 0\.5"):
        solve(info, Robust(threshold=0.5), samples=samples)
    with pytest.raises(UsageError, match="takes no Information"):
        solve(info, Robust(Robust()), samples=samples)
    other = arm("arm7")
    with pytest.raises(UsageError, match="has others"):
        solve(info, Robust(), samples=simulated(other, 300))
