"""The ridge path, against dense solutions of the stacked problem and the textbook formulas of its
scores.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_information import arm, simulated, stacked, still_elbow

import thetahat as th
from thetahat.data.samples import Samples
from thetahat.errors import UsageError
from thetahat.identification.estimators.least_squares import LeastSquares
from thetahat.identification.estimators.ridge import Ridge, RidgePath, ridge_path
from thetahat.identification.information import Information, information
from thetahat.identification.parameter_columns import Columns
from thetahat.identification.solve import solve

DENSE = 1e-8  # relative to the largest parameter: a dense solve of a few thousand rows


def case(*, noise: float = 0.3) -> tuple[th.Robot, Samples, np.ndarray]:
    robot = arm()
    return (
        robot,
        simulated(robot, 400, noise=noise),
        Columns(robot).x0 * np.random.default_rng(4).uniform(0.7, 1.3, Columns(robot).count),
    )


def whitened(path: RidgePath, robot: th.Robot, samples: Samples) -> tuple[np.ndarray, np.ndarray]:
    Y, u = stacked(robot, samples)
    factors = np.tile(path.weights.whitening, len(samples))
    return Y * factors[:, None], u * factors


@pytest.mark.parametrize("weights", [None, "joint"])
def test_every_strength_is_the_dense_ridge_solution_and_its_scores(weights: str | None) -> None:
    robot, samples, x0 = case()
    path = ridge_path(information(robot, samples), x0, weights=weights, count=7)
    Y, u = whitened(path, robot, samples)
    n = len(u)
    for k, strength in enumerate(path.strengths):
        A, root = Y * path.scale, np.sqrt(strength)
        y = np.linalg.lstsq(
            np.vstack([A, root * np.eye(A.shape[1])]),
            np.concatenate([u - Y @ x0, np.zeros(A.shape[1])]),
            rcond=1e-10,
        )[0]
        x = x0 + path.scale * y
        np.testing.assert_allclose(path.solutions[k], x, atol=DENSE * np.max(np.abs(x)))
        np.testing.assert_allclose(path.x(strength), x, atol=DENSE * np.max(np.abs(x)))
        residual = u - Y @ x
        U, d, _ = np.linalg.svd(A, full_matrices=False)
        d[d < 1e-10 * d[0]] = 0.0  # what no motion shows
        hat = (U * np.divide(d**2, d**2 + strength, out=np.zeros_like(d), where=d > 0.0)) @ U.T
        trace = n - np.trace(hat)
        assert path.misfit[k] == pytest.approx(residual @ residual, rel=1e-9)
        assert path.distance[k] == pytest.approx(np.linalg.norm((x - x0) / path.scale), rel=1e-6)
        assert path.freedom[k] == pytest.approx(np.trace(hat), rel=1e-6, abs=1e-6)
        assert path.gcv[k] == pytest.approx(np.mean(residual**2) / (trace / n) ** 2, rel=1e-6)


def test_it_runs_from_least_squares_to_the_guess() -> None:
    robot, samples, x0 = case()
    info = information(robot, samples)
    path = ridge_path(info, x0)
    Y, u = whitened(path, robot, samples)
    nearest = x0 + path.scale * (np.linalg.pinv(Y * path.scale, rcond=1e-10) @ (u - Y @ x0))
    np.testing.assert_allclose(path.x(0.0), nearest, atol=DENSE * np.max(np.abs(nearest)))
    plain = LeastSquares(weights="joint").estimate(info)
    np.testing.assert_allclose(info.base.map @ path.x(0.0), plain.x_base, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(path.x(1e30), x0, atol=1e-12)
    assert path.freedom[0] == pytest.approx(len(info.base), rel=1e-12)
    assert path.freedom[-1] < 0.1
    assert np.all(np.diff(path.misfit) > -1e-9 * path.misfit[0])
    assert np.all(np.diff(path.distance) < 0.0)
    still = Ridge(strength=0.0, prior=x0).estimate(info)
    np.testing.assert_allclose(still.base_std, plain.base_std, rtol=1e-7)
    assert np.all(Ridge(strength=10.0, prior=x0).estimate(info).base_std < plain.base_std)


def small_motion(robot: th.Robot, count: int, *, seed: int, noise: float) -> Samples:
    """Joints that hardly leave one posture: the data see some directions a thousand times worse
    than others.
    """
    rng = np.random.default_rng(seed)
    q = 0.4 + 0.05 * rng.normal(size=(count, robot.nv))
    dq, ddq = 0.2 * rng.normal(size=(count, robot.nv)), rng.normal(size=(count, robot.nv))
    return Samples(
        q=q,
        dq=dq,
        ddq=ddq,
        tau=th.inverse_dynamics(robot, q, dq, ddq) + noise * rng.normal(size=dq.shape),
    )


def guess_near(robot: th.Robot, seed: int) -> np.ndarray:
    return Columns(robot).x0 * np.random.default_rng(seed).uniform(0.9, 1.1, Columns(robot).count)


@pytest.mark.parametrize("seed", range(3))
def test_chosen_strengths_predict_another_log_better_than_least_squares(seed: int) -> None:
    """Fitted to a small motion, asked about a large one; the strength is chosen without it, or on a
    third log of either kind.
    """
    robot = arm()
    info = information(robot, small_motion(robot, 800, seed=seed, noise=0.3))
    other = information(robot, small_motion(robot, 800, seed=100 + seed, noise=0.3))
    large = information(robot, simulated(robot, 1500, seed=200 + seed, noise=0.3))
    x0 = guess_near(robot, seed)

    def error(path: RidgePath, strength: float) -> float:
        return float(np.linalg.norm(large.residual_norms(info.base.map @ path.x(strength))))

    path = ridge_path(info, x0, held_out=other)
    assert info.condition > 100.0
    for by in ("gcv", "discrepancy", "held-out"):
        assert error(path, path.choose(by)) < 0.5 * error(path, 0.0)
    assert path.held_out_at(path.choose("held-out")) <= min(
        path.held_out.min() + 1e-15, path.held_out_at(0.0)
    )
    informed = ridge_path(info, x0, held_out=large)
    assert informed.choose() == informed.choose("held-out")
    assert (
        error(path, informed.choose())
        <= min(error(path, path.choose(by)) for by in ("gcv", "discrepancy", "held-out")) * 1.001
    )


def test_the_held_out_score_is_the_mean_square_of_whitened_residuals() -> None:
    robot, samples, x0 = case()
    info, test = information(robot, samples), simulated(robot, 300, seed=9, noise=0.3)
    path = ridge_path(info, x0, count=5, held_out=information(robot, test))
    Y, u = whitened(path, robot, test)
    for k in range(5):
        assert path.held_out[k] == pytest.approx(
            np.mean((u - Y @ path.solutions[k]) ** 2), rel=1e-9
        )


def test_the_discrepancy_choice_is_the_strongest_pull_that_noise_allows() -> None:
    robot, samples, x0 = case()
    path = ridge_path(information(robot, samples), x0)
    k = int(np.flatnonzero(path.strengths == path.choose("discrepancy"))[0])
    assert path.misfit[k] <= samples.tau.size < path.misfit[k + 1]


def test_a_guess_that_is_right_is_kept_and_one_that_is_wrong_is_left() -> None:
    """GCV pulls hard towards the truth, and hardly at all towards what the data refute."""
    robot, samples, _ = case()
    info, truth = information(robot, samples), Columns(robot).x0
    right, wrong = ridge_path(info, truth), ridge_path(info, 3.0 * truth)
    assert right.choose("gcv") > 1e3 * wrong.choose("gcv")
    error = np.abs(Ridge(prior=truth).estimate(info).x_base - info.base.map @ truth)
    assert np.mean(error) < 0.5 * np.mean(
        np.abs(LeastSquares(weights="joint").estimate(info).x_base - info.base.map @ truth)
    )


def test_intervals_cover_where_the_guess_is_as_wrong_as_the_strength_says() -> None:
    """x drawn from the prior of variance s²/λ: the posterior's 95 % intervals hold it."""
    robot = arm()
    motion = small_motion(robot, 150, seed=1, noise=0.0)
    x0, strength, noise, inside = Columns(robot).x0, 40.0, 0.3, []
    Y, _ = stacked(robot, motion)
    first = replace(
        motion,
        tau=(Y @ x0).reshape(motion.tau.shape)
        + noise * np.random.default_rng(0).normal(size=motion.tau.shape),
    )
    scale = ridge_path(information(robot, first), x0, weights=None).scale
    for seed in range(60):
        rng = np.random.default_rng(seed)
        x = x0 + scale * rng.normal(size=len(x0)) / np.sqrt(strength)
        info = information(
            robot,
            replace(
                motion,
                tau=(Y @ x).reshape(motion.tau.shape) + noise * rng.normal(size=motion.tau.shape),
            ),
        )
        estimate = Ridge(strength=strength, prior=x0, weights=None).estimate(info)
        inside.append(
            np.abs(estimate.x_base - info.base.map @ x)
            < 1.959964 * estimate.base_std.filled(np.inf)
        )
    assert 0.93 < np.mean(inside) < 0.97


def test_what_the_data_do_not_see_stays_at_the_guess() -> None:
    robot = arm()
    info = information(robot, still_elbow(robot, noise=0.1))
    x0 = guess_near(robot, 0)
    estimate = solve(info, Ridge(prior=x0))
    assert np.all(np.isfinite(estimate.x))
    assert np.any(estimate.base_std.mask)
    assert not np.all(estimate.base_std.mask)
    assert len(estimate.advice) == len(info.base) - info.rank
    path = ridge_path(info, x0)
    unseen = np.linalg.svd(info.stacked()[:-1, :-1] @ (info.base.map * path.scale))[2][info.rank :]
    np.testing.assert_allclose(unseen @ ((estimate.x - x0) / path.scale), 0.0, atol=1e-8)


def test_nothing_to_pull_from_is_an_error() -> None:
    robot = arm()
    with pytest.raises(UsageError, match="strength is -1"):
        Ridge(strength=-1.0).estimate(information(robot, simulated(robot, 100)))
    info = information(robot, simulated(robot, 100, noise=0.1))
    with pytest.raises(UsageError, match="strength is 'lucky'"):
        Ridge(strength="lucky").estimate(info)
    with pytest.raises(UsageError, match="held-out log"):
        ridge_path(info).choose("held-out")
    with pytest.raises(UsageError, match="choose by one of gcv"):
        ridge_path(info).choose("corner")
    with pytest.raises(UsageError, match="count is 1"):
        ridge_path(info, count=1)
    other = arm("arm7")
    with pytest.raises(UsageError, match="fold both logs with the same robot"):
        ridge_path(info, held_out=information(other, simulated(other, 50)))
    with pytest.raises(UsageError, match="no torque in the log"):
        ridge_path(
            replace(info, factors=tuple(np.zeros_like(R) for R in info.factors), rows=0 * info.rows)
        )


def test_noise_free_logs_are_finite_and_fit() -> None:
    robot = arm()
    samples = simulated(robot, 500)
    info: Information = information(robot, samples)
    for strength in ("gcv", "discrepancy", 0.0):
        estimate = solve(info, Ridge(strength=strength, prior=guess_near(robot, 2)))
        np.testing.assert_allclose(
            estimate.x_base, info.base.map @ Columns(robot).x0, rtol=1e-8, atol=1e-9
        )
