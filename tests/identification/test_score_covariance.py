"""Standard deviations where noise in the motion enters: joints share it, and it changes along the
motion. The oracle is a Monte Carlo over the noise itself.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
from numpy.testing import assert_allclose
from uncertainty_cases import PERIOD, arm, path, spread

import thetahat as th
from thetahat.data.samples import Samples
from thetahat.identification.information import Information
from thetahat.identification.parameter_columns import full_regressor
from thetahat.identification.uncertainty.autocorrelation import noise_covariance, sandwich
from thetahat.identification.uncertainty.score_covariance import parzen

EVERY = 20  # rows of 1 kHz
RUNS = 400


@cache
def motion() -> tuple[th.Robot, Samples]:
    robot = arm("arm4")
    t, q, dq, ddq = (each[::EVERY] for each in path(robot, 60.0))
    tau = th.inverse_dynamics(robot, q, dq, ddq)
    return robot, Samples(q=q, dq=dq, ddq=ddq, tau=tau, t=t, period=EVERY * PERIOD)


def noise(rng: np.random.Generator, *, shared: bool) -> np.ndarray:
    """Torque noise of 2 %, alike for two rows; shared: one series for all joints, three times as
    large where the first joint is far out as where it is not.
    """
    robot, clean = motion()
    shape = (len(clean) + 1, 1 if shared else robot.nv)
    white = rng.normal(size=shape)
    out = np.tile((white[1:] + white[:-1]) / np.sqrt(2.0), (1, robot.nv if shared else 1))
    if shared:
        far = np.abs(clean.q[:, 0] - np.mean(clean.q[:, 0]))
        out *= np.where(far > np.median(far), 1.34, 0.45)[:, None]
    return 0.02 * spread(robot) * out


def with_noise(seed: int, *, shared: bool) -> tuple[Information, Samples]:
    robot, clean = motion()
    samples = replace(clean, tau=clean.tau + noise(np.random.default_rng(seed), shared=shared))
    info = th.information(robot, samples, instruments=clean)
    return info, samples.with_instruments(clean)


def stated(seed: int, *, shared: bool) -> np.ndarray:
    info, samples = with_noise(seed, shared=shared)
    x = th.Instrumental().estimate(info).x_base
    return np.sqrt(np.diag(noise_covariance(info, x, samples)[0]))


def actual(*, shared: bool) -> np.ndarray:
    """Standard deviations of estimates over the noise, which is linear in the torques."""
    robot, clean = motion()
    zero = th.information(robot, clean)
    rng = np.random.default_rng(1)
    Y = robot_rows(zero)
    solved = np.linalg.lstsq(
        Y, np.array([noise(rng, shared=shared).T.ravel() for _ in range(RUNS)]).T, rcond=None
    )[0]
    return np.asarray(np.std(solved, axis=1))


def robot_rows(information: Information) -> np.ndarray:
    """Base columns of all joints' rows, one joint below the other."""
    robot, clean = motion()
    Y = full_regressor(robot, clean.q, clean.dq, clean.ddq)[:, :, information.base.independent]
    return np.asarray(np.swapaxes(Y, 0, 1).reshape(-1, len(information.base)))


def test_noise_that_joints_share_and_that_changes_is_in_the_standard_deviations() -> None:
    truth = actual(shared=True)
    mine = np.mean([stated(seed, shared=True) for seed in range(3)], axis=0)
    # 400 runs know a standard deviation to 3.5 %, three logs of 3,000 rows to 5 % or so
    assert_allclose(mine, truth, rtol=0.2)
    # a model of each joint's own stationary noise is wrong by far
    info, samples = with_noise(0, shared=True)
    alone = [0.02**2 * s**2 * np.array([1.0, 0.5]) for s in spread(motion()[0])]
    stationary = np.sqrt(np.diag(sandwich(info, samples, alone)))
    assert np.max(truth / stationary) > 1.3
    assert np.min(truth / stationary) < 0.75


def test_noise_of_each_joint_alone_keeps_its_standard_deviations() -> None:
    mine = np.mean([stated(seed, shared=False) for seed in range(3)], axis=0)
    assert_allclose(mine, actual(shared=False), rtol=0.2)


def test_weights_are_positive_definite_and_end() -> None:
    """Parzen's weights: B-splines of order four, whose transform is nowhere negative."""
    k = parzen(np.arange(64) / 32.0)
    assert k[0] == 1.0
    assert np.all(k[32:] == 0.0)
    assert np.isclose(k[16], 0.25)
    assert np.min(np.fft.rfft(np.concatenate([k, k[:0:-1]])).real) > -1e-12
