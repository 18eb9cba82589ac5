"""Rows count as independent ones: a log sampled faster says no more."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from simulated_log import motion

import thetahat as th
from thetahat import robots
from thetahat.data.memory_log import log_from_arrays
from thetahat.identification.tuning.prior_strength import WEIGHTS
from thetahat.identification.tuning.tune import Tuned, TuningOptions

OPTIONS = TuningOptions(cutoff=6.0, delay=False)


@cache
def tuned_at(rate: float, every: int = 1) -> tuple[th.Robot, Tuned, th.Estimate]:
    """The shipped arm with a wrong file; torque noise of its own below 5 Hz, whatever the rate.

    every: rows are left out and interpolated, so that neighbours hold the same.
    """
    robot = th.load(robots.path("arm4")).without_drive()
    t, q, dq, ddq = motion(4, seconds=24.0, rate=rate)
    rng = np.random.default_rng(7)
    tau = th.inverse_dynamics(robot, q, dq, ddq, rigid=True) + 0.5 * dq + 2.0 * np.tanh(dq / 0.05)
    w = 2.0 * np.pi * rng.uniform(0.0, 5.0, 300)
    phase = rng.uniform(0.0, 2.0 * np.pi, (4, 300))
    tau += 0.05 * np.sum(np.cos(t[:, None, None] * w + phase), axis=2)
    if every > 1:
        knots = slice(None, None, every)
        q, tau = (
            np.column_stack([np.interp(t, t[knots], x[knots]) for x in each.T]) for each in (q, tau)
        )
    file = robot.with_parameters(robot.theta * np.repeat([1.2, 0.8, 1.1, 0.9], 10))
    log = log_from_arrays(robot, t, q, tau=tau, name="arm")
    found = th.tune(log, file, OPTIONS)
    samples = th.prepare(log, file, settings=found.settings)
    estimate = th.solve(th.information(found.robot, samples), found.estimator(file.theta))
    return file, found, estimate


@pytest.mark.parametrize(("rate", "every"), [(400.0, 1), (400.0, 4)])
def test_more_rows_of_the_same_signal_change_no_choice(rate: float, every: int) -> None:
    file, slow, first = tuned_at(100.0)
    _, fast, second = tuned_at(rate, every)
    assert abs(WEIGHTS.index(slow.weight) - WEIGHTS.index(fast.weight)) <= 1
    assert slow.robot.drive.identified == fast.robot.drive.identified
    assert slow.robot.drive.rotors == fast.robot.drive.rotors
    rate_of = [each.statistics.independent / each.statistics.period for each in (slow, fast)]
    np.testing.assert_allclose(*rate_of, rtol=0.35)
    # and the fit hardly moves, since its prior is as strong beside four times the rows
    size = np.abs(first.theta - file.theta).max()
    assert np.abs(first.theta - second.theta).max() < 0.2 * size


def test_rows_are_at_most_two_per_cycle_of_the_low_pass() -> None:
    _, found, _ = tuned_at(100.0)
    assert np.all(found.statistics.independent <= 2.0 * 6.0 / 100.0 + 1e-12)
