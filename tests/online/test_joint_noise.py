"""What a fit leaves of a light joint's torques is its own, not the strong joints'."""

import numpy as np
import pytest

import thetahat as th
from thetahat import robots
from thetahat.online.joint_noise import JointNoise
from thetahat.online.memory import JointSums

RATE, SECONDS = 250.0, 12.0


def sums(e2: float, rows: float = 100.0) -> JointSums:
    return JointSums(np.full(2, e2), np.full(2, 100.0), np.full(2, rows))


def test_deviations_follow_the_weighed_fit_where_rows_are_enough() -> None:
    noise = JointNoise(np.array([10, 40]))
    alike = sums(4.0)
    first = noise.deviations(alike, rank=0)
    assert first == pytest.approx(0.2)
    noise.update(sums(1.0), rank=0)
    # 100 rows are more than three for each of 10 parameters, but fewer than for each of 40
    assert noise.deviations(alike, rank=0) == pytest.approx([0.1, 0.2])
    noise.clear()
    assert noise.deviations(alike, rank=0) == pytest.approx(first)


def test_an_error_of_a_strong_joint_is_none_of_a_light_one() -> None:
    """The shoulder has a torque that no parameter explains; the elbow has none such."""
    truth = th.load(robots.path("arm4")).without_drive().with_drive(viscous=True, offset=True)
    rng, t = np.random.default_rng(4), np.arange(0.0, SECONDS, 1.0 / RATE)
    w, phase = 2.0 * np.pi * rng.uniform(0.2, 0.6, truth.nv), rng.uniform(0.0, 6.0, truth.nv)
    q, dq, ddq = (
        0.6 * a * np.sin(np.outer(t, w) + phase + shift)
        for a, shift in ((1.0, 0.0), (w, 0.5 * np.pi), (w**2, np.pi))
    )
    tau = th.inverse_dynamics(truth, q, dq, ddq)
    tau[:, 1] += 0.05 * np.max(np.abs(tau)) * np.sin(7.0 * q[:, 1])
    with th.OnlineIdentifier(truth.with_parameters(truth.theta)) as one:
        for k, stamp in enumerate(t):
            one.push(stamp, q[k], dq[k], tau[k], ddq[k])
        held, model = one.held_out, one.model
        assert model is not None
    error = held.tau - model.torque(held.q, held.dq, held.ddq)
    shoulder, elbow = (np.sqrt(np.mean(error[:, v] ** 2)) for v in (1, 2))
    assert shoulder > 1.0
    assert elbow < 0.005 * np.sqrt(np.mean(held.tau[:, 2] ** 2))  # 0.015 weighed by a plain fit
