"""External torque: the observer states what pushes, and is silent where nothing does."""

from __future__ import annotations

from functools import cache

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


@cache
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


def contacts(observer: ExternalTorque, data: Run) -> set[float | None]:
    """When contacts begin."""
    observer.reset()
    return {observer.push(*row).since for row in zip(*data, strict=True)} - {None}


def found_and_named(observer: ExternalTorque, fresh: Run) -> tuple[float, float]:
    """Shares of pushes of five times the RMS that are found within 50 ms, and on their joint."""
    observer.reset()
    torque, _ = pushed(observer, fresh)
    size = 5.0 * np.sqrt(np.mean(torque**2, axis=0))
    found, named = [], []
    for at in range(500, 3900, 600):
        for joint in range(4):
            begin, end = at - 90, at + 25  # 50 ms
            data = [each[begin:end].copy() for each in fresh]
            data[3][90:, joint] -= size[joint] * (-1.0) ** joint
            observer.reset()
            seen = [observer.push(*row) for row in zip(*data, strict=True)][90:]
            felt = [each for each in seen if each.since is not None and each.since >= fresh[0][at]]
            found.append(bool(felt))
            named += [felt[0].joint == observer.robot.joint_names[joint]] if felt else []
    return float(np.mean(found)), float(np.mean(named))


@cache
def calibrated(wrong: float = 1.0) -> ExternalTorque:
    """An observer of a model whose bodies are off by a factor, from two motions of 8 s."""
    arm = th.load(robots.path("arm4"))
    model = arm.with_parameters(wrong * arm.theta)
    return ExternalTorque.calibrated(model, [run(k) for k in range(2)])


def test_pushes_of_five_times_the_rms_are_found_within_50_ms() -> None:
    """By a model that is off by 3 %, as identified ones are: its error is slow, a push is not. In
    half the time that it learned from, half a false alarm is to be expected.
    """
    found, named = found_and_named(calibrated(1.03), run(10))
    assert found >= 0.95
    assert named >= 0.9
    assert len(contacts(calibrated(1.03), run(10))) <= 3


def test_in_white_noise_the_best_filter_over_50_ms_finds_most_pushes() -> None:
    """There five times the RMS of the observer's torque is six standard deviations of what 50 ms
    show, and 16 s of four joints reach four and a half: chance decides on the others.
    """
    found, named = found_and_named(calibrated(), run(10))
    assert contacts(calibrated(), run(10)) == set()
    assert found >= 0.7
    assert named == 1.0


def test_a_rate_that_the_runs_are_too_short_for_has_higher_thresholds() -> None:
    """One alarm in as much time as the runs last is the default."""
    arm, runs = th.load(robots.path("arm4")), [run(0, 5.0)]
    thresholds = []
    for rate in (None, 3600.0 / 4.998, 1.0):
        contact = ExternalTorque.calibrated(arm, runs, false_alarms=rate).contact
        assert contact is not None
        thresholds.append(contact.threshold)
    np.testing.assert_allclose(thresholds[0], thresholds[1], rtol=1e-3)
    assert np.all(thresholds[2] > 1.1 * thresholds[0])


def test_single_wrong_velocities_are_no_contact() -> None:
    """A spike between two readings that agree counts for nothing."""
    observer, fresh = calibrated(), [each.copy() for each in run(10)]
    fresh[2][500::700] += 3.0
    assert contacts(observer, tuple(fresh)) == set()


def test_without_velocities_they_are_the_slope_of_positions() -> None:
    arm = th.load(robots.path("arm4"))
    push = np.array([0.0, 3.0, 0.0, -1.0])
    t, q, _, tau = run(0, 2.0, 0.0)
    observer = ExternalTorque(arm, np.ones(4))
    torque = np.array(
        [observer.push(t[k], q[k], None, tau[k] - push).torque for k in range(len(t))]
    )
    np.testing.assert_allclose(np.median(torque[-500:], axis=0), push, atol=0.01)


def test_a_push_is_a_collision_while_short_and_hand_guiding_once_it_lasts() -> None:
    observer = calibrated()
    observer.reset()
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
