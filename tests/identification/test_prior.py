"""The paper's blend with an initial guess, against NumPy's pseudo-inverse of its stacked
matrices.
"""

from __future__ import annotations

import numpy as np
import pytest
from test_information import arm, identify, simulated, stacked, still_elbow

import thetahat as th
from thetahat.errors import UsageError
from thetahat.identification.estimators.least_squares import LeastSquares
from thetahat.identification.estimators.prior import Prior
from thetahat.identification.information import information
from thetahat.identification.parameter_columns import Columns


def guess(robot: th.Robot) -> np.ndarray:
    """A wrong initial guess."""
    return Columns(robot).x0 * np.random.default_rng(3).uniform(0.5, 1.5, Columns(robot).count)


@pytest.mark.parametrize("alpha", [0.01, 0.1, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("name", ["double_pendulum", "arm4", "arm7"])
def test_the_blend_is_the_pseudo_inverse_of_the_stacked_matrices(name: str, alpha: float) -> None:
    robot = arm(name)
    samples, x0 = simulated(robot, 300, noise=0.1), guess(robot)
    Y, u = stacked(robot, samples)
    expected = np.linalg.pinv(
        np.vstack([alpha * Y, (1 - alpha) * np.eye(len(x0))])
    ) @ np.concatenate([alpha * u, (1 - alpha) * x0])
    estimate = identify(information(robot, samples), Prior(x0, alpha))
    np.testing.assert_allclose(estimate.x, expected, rtol=0, atol=1e-10 * np.abs(expected).max())
    assert estimate.method == "prior"


def test_the_ends_of_alpha() -> None:
    robot = arm()
    samples, x0 = simulated(robot, 500, noise=0.05), guess(robot)
    info = information(robot, samples)
    data, nearly_data, nearly_guess = (
        identify(info),
        identify(info, Prior(x0, 1 - 1e-9)),
        identify(info, Prior(x0, 1e-9)),
    )
    np.testing.assert_allclose(
        nearly_data.x_base, data.x_base, atol=1e-7 * np.abs(data.x_base).max()
    )
    np.testing.assert_allclose(nearly_guess.x, x0, atol=1e-7 * np.abs(x0).max())
    assert np.linalg.norm(nearly_data.base_std - data.base_std) < 1e-5 * np.linalg.norm(
        data.base_std
    )


def test_what_the_data_do_not_see_stays_at_the_guess() -> None:
    robot = arm()
    samples, x0 = still_elbow(robot, noise=0.05), guess(robot)
    info = information(robot, samples)
    estimate = identify(info, Prior(x0, 0.5))
    assert info.rank < len(info.base)
    # x along directions of base parameters that no row shows, and along what no motion shows at all
    change = np.linalg.lstsq(info.base.map, info.solution.directions, rcond=None)[0]
    hidden = np.hstack([change, info.base.nullspace])
    np.testing.assert_allclose(
        hidden.T @ (estimate.x - x0) / np.linalg.norm(hidden, axis=0),
        0.0,
        atol=1e-8 * np.abs(x0).max(),
    )
    assert np.all(np.isfinite(estimate.x))


def test_the_guess_may_be_a_robot_or_theta() -> None:
    robot = arm()
    info = information(robot, simulated(robot, 200, noise=0.1))
    heavier = robot.with_parameters(1.3 * robot.theta)
    by_robot, by_theta = (
        identify(info, Prior(heavier, 0.3)),
        identify(info, Prior(heavier.theta, 0.3)),
    )
    np.testing.assert_array_equal(by_robot.x, by_theta.x)
    np.testing.assert_array_equal(
        identify(info, Prior(None, 0.3)).x, identify(info, Prior(robot, 0.3)).x
    )


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, float("nan")])
def test_alpha_lies_between(alpha: float) -> None:
    robot = arm()
    with pytest.raises(UsageError, match="alpha is"):
        identify(information(robot, simulated(robot, 50)), Prior(None, alpha))


def test_a_guess_of_another_robot_is_refused() -> None:
    robot = arm()
    info = information(robot, simulated(robot, 50))
    for wrong in (arm("arm7"), np.zeros(7), np.full(40, np.nan)):
        with pytest.raises(UsageError, match="theta0"):
            identify(info, Prior(wrong, 0.5))


def test_weights_by_joint_reach_the_blend() -> None:
    robot = arm()
    rng = np.random.default_rng(3)
    samples = simulated(robot, 3000)
    noisy = th.Samples(
        q=samples.q,
        dq=samples.dq,
        ddq=samples.ddq,
        tau=samples.tau + rng.normal(size=samples.tau.shape) * [5.0, 0.5, 0.05, 0.005],
    )
    info = information(robot, noisy)
    weighted = identify(info, Prior(None, 1 - 1e-9, weights="joint"))
    np.testing.assert_allclose(
        weighted.x_base, identify(info, LeastSquares(weights="joint")).x_base, atol=1e-6
    )
