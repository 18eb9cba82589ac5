"""External torque: the observer states what pushes, and is silent where nothing does."""

from __future__ import annotations

import numpy as np
import pytest

import thetahat as th
from thetahat import robots
from thetahat.errors import NotIdentifiable, UsageError
from thetahat.excite.trajectories import Fourier
from thetahat.online.external_torque import ExternalTorque

PERIOD = 0.002  # [s]
NOISE = 0.05  # [N·m] of the torques

Run = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def run(seed: int, seconds: float = 8.0, noise: float = NOISE) -> Run:
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, 4, 5))
    arm = th.load(robots.path("arm4"))
    motion = Fourier.at_rest(arm, 8.0, centre=[0, 0, 0, 1], a=a, b=b)
    t = np.arange(0.0, seconds, PERIOD)
    q, dq, ddq = motion.at(t)
    return t, q, dq, th.inverse_dynamics(arm, q, dq, ddq) + noise * rng.standard_normal(q.shape)


def pushed(observer: ExternalTorque, data: Run) -> tuple[np.ndarray, list[str]]:
    found = [observer.push(*row) for row in zip(*data, strict=True)]
    return np.array([each.torque for each in found]), [each.kind for each in found]


def test_a_constant_push_is_stated_in_size_sign_and_joint() -> None:
    arm = th.load(robots.path("arm4"))
    t, q, dq, tau = run(0, 2.0, 0.0)
    push = np.array([0.0, 3.0, 0.0, -1.0])
    torque, _ = pushed(ExternalTorque(arm, np.ones(4)), (t, q, dq, tau - push))
    np.testing.assert_allclose(torque[-500:], np.tile(push, (500, 1)), atol=0.02)


def test_fresh_motion_raises_no_alarm_and_pushes_are_found_within_50_ms() -> None:
    """In white noise, in which the best filter over 50 ms makes of five times the RMS six standard
    deviations, and of ten times more than ten: these are always found.
    """
    arm = th.load(robots.path("arm4"))
    observer = ExternalTorque.calibrated(arm, [run(k) for k in range(2)])
    fresh = run(10)
    observer.reset()
    torque, kinds = pushed(observer, fresh)
    assert set(kinds) == {"none"}
    size = 10.0 * np.sqrt(np.mean(torque**2, axis=0))
    for at in range(500, 3800, 1000):
        for joint in range(4):
            begin, end = at - 150, at + 25  # 50 ms
            data = [each[begin:end].copy() for each in fresh]
            data[3][150:, joint] -= size[joint] * (-1.0) ** joint
            observer.reset()
            found = [observer.push(*row) for row in zip(*data, strict=True)]
            assert {each.kind for each in found[:150]} == {"none"}
            felt = [each for each in found if each.kind != "none"]
            assert felt
            assert felt[0].joint == arm.joint_names[joint]


def test_a_push_is_a_collision_while_short_and_hand_guiding_once_it_lasts() -> None:
    arm = th.load(robots.path("arm4"))
    observer = ExternalTorque.calibrated(arm, [run(0)])
    data, at = [each[:1600].copy() for each in run(10)], 1000
    rms = float(np.sqrt(np.mean(pushed(observer, tuple(data))[0][:, 1] ** 2)))
    data[3][at:, 1] -= 12.0 * rms
    observer.reset()
    _, kinds = pushed(observer, tuple(data))
    first = next(k for k, kind in enumerate(kinds) if kind != "none")
    assert at <= first <= at + 0.05 / PERIOD
    assert kinds[first] == "collision"
    assert kinds[at + 500] == "hand-guiding"
    data[3][at + 50 :, 1] += 12.0 * rms  # over after 0.1 s
    observer.reset()
    _, kinds = pushed(observer, tuple(data))
    assert set(kinds[at : at + 50]) <= {"none", "collision"}
    assert set(kinds[at + 300 :]) == {"none"}


def test_a_known_delay_of_the_torques_is_made_up_for() -> None:
    arm, lag = th.load(robots.path("arm4")), 6
    t, q, dq, tau = run(10, 2.0, 0.0)
    for sign in (1, -1):
        data = (t[lag:], q[lag:], dq[lag:], tau[:-lag])  # torques come late
        if sign < 0:
            data = (t[lag:], q[:-lag], dq[:-lag], tau[lag:])
        errors = [
            np.abs(pushed(ExternalTorque(arm, delay=delay), data)[0][100:]).max()
            for delay in (0.0, sign * lag * PERIOD)
        ]
        assert errors[1] < 0.2 * errors[0]


def test_the_issue_names_it_and_without_thresholds_it_states_torques_alone() -> None:
    arm = th.load(robots.path("arm4"))
    observer = th.ExternalTorque(arm)
    torque, kinds = pushed(observer, run(0, 1.0, 0.0))
    assert set(kinds) == {"none"}
    assert np.all(np.isfinite(torque))
    assert "ExternalTorque" not in th.__all__


def test_bad_input_is_named() -> None:
    arm = th.load(robots.path("arm4"))
    with pytest.raises(UsageError, match="threshold has shape"):
        ExternalTorque(arm, np.ones(3))
    with pytest.raises(NotIdentifiable, match="without contact"):
        ExternalTorque.calibrated(arm, [run(0, 1.0)])
    observer = ExternalTorque(arm, np.ones(4))
    t, q, dq, tau = (each[0] for each in run(0, 1.0))
    observer.push(t, q, dq, tau)
    with pytest.raises(UsageError, match="order of time"):
        observer.push(t, q, dq, tau)
