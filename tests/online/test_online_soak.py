"""Identification for a long time: memory does not grow, and standing still moves nothing."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from online_cases import arm, push_all, run, stopping, wrong
from online_settings import settings

import thetahat as th
from thetahat.online.identifier import OnlineIdentifier

MEMORIES = ("window", "growing", "forgetting", "informative")


def soak(seconds: float, memory: str) -> float:
    """Megabytes that the identifier grows by from a sixth of the time on."""
    robot = arm()
    motion = run(robot, 60.0, rate=50.0).noisy(0.01, 1e-3)
    rows = list(motion.rows())
    one = OnlineIdentifier(wrong(robot), **settings(memory=memory, refit_interval=5.0))
    tracemalloc.start()
    try:
        count, start = int(seconds * 50.0), None
        for k in range(count):
            _, q, dq, tau, _ = rows[k % len(rows)]
            one.push(0.02 * k, q, dq, np.full(4, np.nan) if k % 97 == 13 else tau)
            if start is None and k >= count // 6:
                start = tracemalloc.get_traced_memory()[0]
        return (tracemalloc.get_traced_memory()[0] - start) / 1e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("memory", ["forgetting", pytest.param("window", marks=pytest.mark.slow)])
def test_memory_does_not_grow(memory: str) -> None:
    assert soak(120.0, memory) < 0.5


@pytest.mark.slow
@pytest.mark.parametrize("memory", MEMORIES)
def test_memory_does_not_grow_in_eight_hours(memory: str) -> None:
    assert soak(8.0 * 3600.0, memory) < 5.0


@pytest.mark.slow
def test_a_million_still_samples_move_nothing() -> None:
    """A thousand seconds at 1 kHz of a robot that stands still, noise and all: parameters and
    factors stay, and motion counts again.
    """
    stand_still(1_000_000)


def test_still_samples_move_nothing() -> None:
    stand_still(20_000)


def stand_still(count: int) -> None:
    robot = arm()
    motion = stopping(robot, 30.0).noisy(0.01, 1e-3)
    one = push_all(OnlineIdentifier(wrong(robot), **settings(memory="forgetting")), motion)
    assert one.gate.open, one.gate.reason
    rng, last, zero = np.random.default_rng(0), motion.q[-1], np.zeros(4)
    carried = th.inverse_dynamics(robot, last, zero, zero)
    speeds, torques = 1e-3 * rng.normal(size=(1000, 4)), carried + 0.05 * rng.normal(size=(1000, 4))
    for k in range(count):
        one.push(30.0 + 0.001 * k, last, speeds[k % 1000], torques[k % 1000])
        if k == 500:  # the filter has forgotten the motion
            count_before, before, factors = (
                one._learner.memory.count,
                one.estimate.x_base,
                one._learner.memory._factors.copy(),
            )
    assert one._learner.memory.count == count_before
    assert not one.gate.open
    assert "nothing has moved" in one.gate.reason
    assert np.max(np.abs(one.estimate.x_base - before)) <= 1e-6
    assert np.array_equal(one._learner.memory._factors, factors)
    again = run(robot, 30.0).noisy(0.01, 1e-3)
    push_all(one, replace(again, t=again.t + 30.5 + 0.001 * count))
    assert one.gate.open, one.gate.reason
    assert np.min(one.gate.r2_per_joint) > 0.99
