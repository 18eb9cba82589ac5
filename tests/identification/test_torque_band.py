"""Confidence bands on torque: against the dense formula, and over many simulated logs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from uncertainty_cases import Z95, Experiment, arm, first_order, path, spread

import thetahat as th
from thetahat import robots
from thetahat.data.samples import Samples
from thetahat.errors import UsageError
from thetahat.identification.estimators.joint_weights import weigh
from thetahat.identification.estimators.least_squares import LeastSquares
from thetahat.identification.information import information
from thetahat.identification.parameter_columns import full_regressor
from thetahat.identification.uncertainty.autocorrelation import noise_covariance
from thetahat.identification.uncertainty.torque_band import sampled_torque_band, torque_band


def test_the_band_is_the_dense_formula() -> None:
    experiment = Experiment.of("arm4", 3.0)
    info, samples = experiment.with_noise(
        spread(experiment.robot)
        * np.random.default_rng(0).normal(size=experiment.samples.tau.shape)
    )
    estimate = LeastSquares(weights="joint").estimate(info)
    predicted, half = torque_band(estimate, samples)
    Y = full_regressor(experiment.robot, samples.q, samples.dq, samples.ddq)
    np.testing.assert_allclose(predicted, Y @ estimate.x, rtol=1e-9, atol=1e-9)
    B = Y[..., estimate.base.independent]
    np.testing.assert_allclose(
        half, Z95 * np.sqrt(np.einsum("svk,kl,svl->sv", B, estimate.covariance, B)), rtol=1e-9
    )
    noise = spread(experiment.robot)
    _, wider = torque_band(estimate, (samples.q, samples.dq, samples.ddq), noise=noise)
    np.testing.assert_allclose(wider**2, half**2 + (Z95 * noise) ** 2, rtol=1e-9)
    one, narrow = torque_band(estimate, (samples.q[5], samples.dq[5], samples.ddq[5]), level=0.5)
    np.testing.assert_allclose(one[0], predicted[5], rtol=1e-12)
    np.testing.assert_allclose(narrow[0], half[5] * 0.6744897501960817 / Z95, rtol=1e-9)


def test_drawn_robots_make_the_band_that_the_covariance_states() -> None:
    """Off the boundary; and a band, too, for a state that needs what the data do not see."""
    robot = th.load(robots.path("arm4")).without_drive().with_drive(viscous=True, coulomb=True)
    rng = np.random.default_rng(0)
    q, dq = rng.uniform(-1.0, 1.0, (2000, 4)), rng.normal(size=(2000, 4))
    ddq = 3.0 * rng.normal(size=(2000, 4))
    tau = th.inverse_dynamics(robot, q, dq, ddq) + 0.3 * (dq + np.sign(dq))
    tau += 0.1 * rng.normal(size=(2000, 4))
    estimator = th.Consistent(weight=100.0, metric="moments")
    samples = Samples(q=q, dq=dq, ddq=ddq, tau=tau)
    estimate = estimator.estimate(information(robot, samples))
    state = tuple(a[:50] for a in (q, dq, ddq))
    predicted, half = torque_band(estimate, state)
    lower, upper = sampled_torque_band(estimate.sample(4000, seed=2), state)
    np.testing.assert_allclose(0.5 * (upper - lower), half, rtol=0.12)  # a quantile's own spread
    np.testing.assert_allclose(0.5 * (upper + lower), predicted, atol=0.25 * np.max(half))
    _, narrow = sampled_torque_band(estimate.sample(4000, seed=2), state, level=0.5)
    assert np.all(narrow < upper)
    still = Samples(q=q, dq=dq * [1, 1, 1, 0], ddq=ddq * [1, 1, 1, 0], tau=tau)
    unseen = estimator.estimate(information(robot, still))
    assert np.any(np.ma.getmaskarray(torque_band(unseen, state)[1]))
    low, high = sampled_torque_band(unseen.sample(500, seed=2), state)
    assert np.all(np.isfinite(low) & (low < high))
    with pytest.raises(UsageError):
        sampled_torque_band(unseen.sample(5), state, level=1.0)


def test_bands_hold_the_torque_in_most_logs() -> None:
    """The true torque of another motion in 95 % of logs with correlated noise; its measurement too,
    with the noise added.
    """
    experiment = Experiment.of("arm4")
    robot, rng = experiment.robot, np.random.default_rng(1)
    _, q, dq, ddq = (a[::500] for a in path(robot, 10.0, seed=3))
    truth = th.inverse_dynamics(robot, q, dq, ddq)
    held, measured, plain = [], [], []
    for _ in range(25):
        info, samples = experiment.with_noise(
            spread(robot) * first_order(rng, experiment.samples.tau.shape, time=0.02)
        )
        estimate = LeastSquares(weights="joint").estimate(info)
        covariance, model = noise_covariance(
            info, estimate.x_base, samples, weigh(info, "joint").joints
        )
        honest = replace(estimate, covariance=covariance)
        predicted, half = torque_band(honest, (q, dq, ddq))
        held.append(np.abs(predicted - truth) <= half)
        plain.append(np.abs(predicted - truth) <= torque_band(estimate, (q, dq, ddq))[1])
        _, wide = torque_band(honest, (q, dq, ddq), noise=model.std)
        measured.append(
            np.abs(predicted - truth - spread(robot) * rng.normal(size=truth.shape)) <= wide
        )
    # 25 logs; the rows of one log share its 36 errors, so that about ten of its 80 numbers are
    # independent
    assert np.mean(held) == pytest.approx(0.95, abs=3.1 * np.sqrt(0.95 * 0.05 / 250))
    assert np.mean(measured) == pytest.approx(0.95, abs=0.02)
    assert np.mean(plain) < 0.35


def test_rows_that_touch_what_was_not_seen_are_masked() -> None:
    robot = arm("arm4")
    t, q, dq, ddq = path(robot, 3.0)
    still = q.copy(), dq.copy(), ddq.copy()
    for array, value in zip(still, (0.3, 0.0, 0.0), strict=True):
        array[:, 3] = value
    tau = th.inverse_dynamics(robot, *still) + 0.1 * np.random.default_rng(2).normal(size=dq.shape)
    estimate = LeastSquares().estimate(
        information(robot, Samples(q=still[0], dq=still[1], ddq=still[2], tau=tau, t=t))
    )
    hidden = np.flatnonzero(estimate.base_std.mask)
    assert len(hidden)
    state = q[:50], dq[:50], ddq[:50]
    _, half = torque_band(estimate, state)
    Y = full_regressor(robot, *state)[..., estimate.base.independent]
    np.testing.assert_array_equal(half.mask, np.any(Y[..., hidden] != 0.0, axis=-1))
    assert np.any(half.mask)
    assert np.all(np.isfinite(half.compressed()))


def test_wrong_arguments_are_named() -> None:
    experiment = Experiment.of("double_pendulum", 1.0)
    estimate = LeastSquares().estimate(experiment.clean)
    with pytest.raises(UsageError, match="level is 95"):
        torque_band(estimate, experiment.samples, level=95)
    with pytest.raises(UsageError, match="give 2 finite standard deviations"):
        torque_band(estimate, experiment.samples, noise=np.array([1.0, np.nan]))
