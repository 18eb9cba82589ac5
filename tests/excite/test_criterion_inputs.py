"""What the criterion counts with beside the motion: noise of derived accelerations, and a prior."""

from __future__ import annotations

import numpy as np
import pytest
from excite_cases import shipped
from scipy.signal import butter, sosfiltfilt

import thetahat as th
from thetahat.errors import NotIdentifiable, UsageError
from thetahat.excite.bases import FourierFamily
from thetahat.excite.design import design, excitation, planned, random_motion
from thetahat.excite.measurement_noise import MeasurementNoise
from thetahat.excite.motion_limits import motion_limits
from thetahat.excite.prior_information import body_covariance, prior_information
from thetahat.model import parameters


def test_the_noise_of_accelerations_is_that_of_differentiated_encoders() -> None:
    """White noise, low-passed and differentiated twice as logs are, has the spread that is
    stated.
    """
    rate, cutoff, sigma = 1000.0, 20.0, 1e-4
    noise = MeasurementNoise.of_encoders(
        np.ones(1), np.array([sigma]), rate=rate, cutoff=cutoff
    ).acceleration[0]
    q = sigma * np.random.default_rng(0).normal(size=400_000)
    steep = butter(16, cutoff, fs=rate, output="sos")
    filtered = sosfiltfilt(steep, q)
    ddq = np.gradient(np.gradient(filtered, 1 / rate), 1 / rate)[5000:-5000]
    assert np.std(ddq) == pytest.approx(noise, rel=0.1)


def test_noisy_encoders_take_information_from_rows_of_large_inertia() -> None:
    robot = shipped("arm4")
    problem, _ = planned(robot, FourierFamily(robot.joint_names, 5.0, 3), noise=1.0)
    trajectory = random_motion(problem, np.random.default_rng(0))
    values = []
    for sigma in (0.0, 1e-3, 1e-2):
        noisy, _ = planned(
            robot, FourierFamily(robot.joint_names, 5.0, 3), noise=1.0, encoder_noise=sigma
        )
        values.append(excitation(robot, trajectory, noisy.noise)[1])
    assert values[0] > values[1] > values[2]
    assert values[0] == excitation(robot, trajectory, np.ones(4))[1]


def test_faster_motions_lose_what_their_wider_band_lets_in() -> None:
    """With noisy encoders a design of low frequencies beats one of high frequencies by more."""
    robot = shipped("double_pendulum")
    gains = []
    for sigma in (0.0, 0.02):
        slow, fast = (
            design(robot, duration=6.0, harmonics=h, starts=1, noise=0.1, encoder_noise=sigma)
            for h in (3, 6)
        )
        gains.append(slow.log_det - fast.log_det)
    assert gains[1] > gains[0]


def test_the_covariance_of_a_prior_is_that_of_bodies_drawn_from_it() -> None:
    """J = L(I + s·G)Lᵀ with G symmetric and random: to first order the metric's own spread."""
    theta = shipped("arm4").theta[:10]
    J = parameters.to_pseudo_inertia(theta)
    L, rng, spread = np.linalg.cholesky(J), np.random.default_rng(0), 1e-3
    units = np.stack([parameters.to_pseudo_inertia(unit).ravel() for unit in np.eye(10)])
    G = rng.normal(size=(40_000, 4, 4))
    G = (G + np.swapaxes(G, 1, 2)) / np.sqrt(2.0)  # e^{−tr(G²)/4}: 2 on the diagonal, 1 beside it
    changes = (spread * L @ G @ L.T).reshape(len(G), 16)
    drawn = changes @ np.linalg.pinv(units)
    covariance = body_covariance(theta, spread)
    assert covariance is not None
    size = np.sqrt(np.diag(covariance))
    error = (np.cov(drawn.T) - covariance) / np.outer(size, size)
    assert np.max(np.abs(error)) < 0.03


def test_a_prior_adds_its_information_and_a_wide_one_nothing() -> None:
    robot = shipped("arm4")
    problem, _ = planned(robot, FourierFamily(robot.joint_names, 5.0, 3))
    trajectory = random_motion(problem, np.random.default_rng(0))
    plain = excitation(robot, trajectory, problem.noise)
    p = len(plain.information.base)
    R = plain.information.stacked(1.0 / problem.noise.torque)[:, :-1]
    prior = prior_information(robot, 0.3)
    assert np.min(np.linalg.eigvalsh(prior / np.sqrt(np.outer(np.diag(prior), np.diag(prior))))) > 0
    own = MeasurementNoise(problem.noise.torque, np.zeros(4))
    combined = excitation(robot, trajectory, own, prior=prior)
    assert combined.log_det == pytest.approx(np.linalg.slogdet(R.T @ R + prior)[1], abs=1e-5)
    wide = excitation(robot, trajectory, own, prior=prior_information(robot, 1e6))
    assert wide.log_det == pytest.approx(np.linalg.slogdet(R.T @ R)[1], abs=1e-2 * p)


def test_in_no_room_to_speak_of_a_prior_is_what_is_known() -> None:
    """All joints held to a thousandth of a radian: a design is refused, and made where it is said
    how well the file knows the robot.
    """
    robot = shipped("double_pendulum")
    limits = motion_limits(robot, position=(0.5, 0.501))
    options = {"duration": 2.0, "harmonics": 2, "starts": 1, "limits": limits, "noise": 1.0}
    made, prior = design(robot, **options, prior_spread=0.1), prior_information(robot, 0.1)
    assert made.log_det > np.linalg.slogdet(prior)[1]
    with pytest.raises(NotIdentifiable, match="prior spread"):
        design(robot, **options)


def test_a_bayesian_design_spends_itself_on_what_is_not_known() -> None:
    """Where inertia is known to a millionth, what is left to show is friction, which then gets
    better than by a design that must show all.
    """
    robot = shipped("double_pendulum")
    options = {"duration": 5.0, "harmonics": 3, "starts": 4, "noise": 0.5, "encoder_noise": 0.0}
    plain, told = design(robot, **options), design(robot, **options, prior_spread=1e-6)
    prior = prior_information(robot, 1e-6)
    for made in (plain, told):
        assert made.log_det <= told.log_det or made is plain
    both = [excitation(robot, made.trajectory, made.noise, prior=prior) for made in (plain, told)]
    assert both[1].log_det > both[0].log_det


@pytest.mark.parametrize("spread", [0.0, -1.0, np.nan])
def test_a_spread_must_be_positive(spread: float) -> None:
    with pytest.raises(UsageError, match="prior_spread is"):
        th.design(shipped("double_pendulum"), prior_spread=spread)


@pytest.mark.parametrize("noise", [-1.0, [1.0], np.inf, "much"])
def test_encoder_noise_must_be_numbers(noise) -> None:
    with pytest.raises(UsageError, match="encoder_noise is"):
        th.design(shipped("double_pendulum"), encoder_noise=noise)
