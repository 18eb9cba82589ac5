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
    arm = th.load(robots.path("arm4"))
    observer = ExternalTorque.calibrated(arm, [run(seed) for seed in range(3)])
    fresh = run(10)
    observer.reset()
    _, kinds = pushed(observer, fresh)
    assert set(kinds) == {"none"}
    size = 2.0 * observer.threshold[1]
    at = 2000
    tau = fresh[3].copy()
    tau[at:, 1] -= size
    observer.reset()
    _, kinds = pushed(observer, (*fresh[:3], tau))
    first = next(k for k, kind in enumerate(kinds) if kind != "none")
    assert at <= first <= at + 0.05 / PERIOD
    assert kinds[first] == "collision"
    assert kinds[at + 500] == "hand-guiding"


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
