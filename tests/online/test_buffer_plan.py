"""What the buffer holds unless it is told: as dense as the filter allows, as long as the paper's."""

from __future__ import annotations

import numpy as np
import pytest
from online_cases import arm, push_all, run, wrong

import thetahat as th
from thetahat import robots
from thetahat.online.buffer_plan import buffer_plan
from thetahat.online.config import FilterConfig
from thetahat.online.identifier import OnlineIdentifier


def shared_noise(apart: float, time_constant: float) -> float:
    """Correlation of white noise behind two averages, by simulation."""
    rng, keep = np.random.default_rng(0), np.exp(-1e-3 / time_constant)
    x = rng.normal(size=50_000)
    for _ in range(2):
        y, last = np.empty_like(x), 0.0
        for k, value in enumerate(x.tolist()):
            y[k] = last = value + keep * (last - value)
        x = y
    lag = round(apart / 1e-3)
    return float(np.corrcoef(x[:-lag], x[lag:])[0, 1])


def test_samples_of_the_buffer_hardly_share_noise() -> None:
    one = OnlineIdentifier(arm())
    plan = one.buffer
    assert (plan.rate, plan.per_update, plan.size, plan.needed) == (3.0, 3, 150, 50)
    assert shared_noise(1.0 / (plan.rate * plan.per_update), one.time_constant) < 0.05


@pytest.mark.parametrize(("cutoff", "per_update"), [(40.0, 3), (10.0, 3), (5.0, 1), (1.0, 1)])
def test_a_slow_filter_takes_samples_further_apart(cutoff: float, per_update: int) -> None:
    plan = OnlineIdentifier(arm(), filter=FilterConfig(cutoff=cutoff)).buffer
    assert plan.per_update == per_update
    assert plan.reach == pytest.approx(50.0 / 3.0)


def test_what_is_given_is_the_papers() -> None:
    robot = arm()
    for rate, window in ((3.0, 50), (6.0, None), (None, 12)):
        plan = buffer_plan(robot, rate, window, 0.03)
        assert plan.per_update == 1
        assert plan.size == plan.needed == (window or 50)
    assert buffer_plan(th.load(robots.path("valkyrie")), None, None, 0.03).size == 50


def test_the_gate_opens_sooner_and_predicts_as_well() -> None:
    """The first seconds of a motion are in the buffer still, when the paper's would be full."""
    robot = arm()
    stream = run(robot, 22.0).noisy(0.01, 1e-3)
    ours, papers = (
        push_all(OnlineIdentifier(wrong(robot), **options), stream)
        for options in ({}, {"rate": 3.0})
    )
    opened = [
        next(event.t for event in one.events if event.kind == "opened") for one in (ours, papers)
    ]
    assert opened[0] < 0.6 * opened[1]
    assert ours.gate.open
    assert ours.events.counts["closed"] == 0
    fresh = run(robot, 10.0, seed=99)
    errors = []
    for one in (ours, papers):
        left = fresh.tau - th.inverse_dynamics(one.robot, fresh.q, fresh.dq, fresh.ddq)
        errors.append(np.sqrt(np.mean(left**2)))
    assert errors[0] < 1.1 * errors[1]


def test_a_short_gap_does_not_doubt_the_model() -> None:
    """Half a second without samples closes the gate; it opens as soon as the filter has settled."""
    robot = arm()
    stream = run(robot, 14.0).noisy(0.01, 1e-3)
    one, states = OnlineIdentifier(wrong(robot)), []
    for t, q, dq, tau, _ in stream.rows():
        if not 10.0 < t < 10.5:
            states.append((t, one.push(t, q, dq, tau).gate.open))
    after = [(t, is_open) for t, is_open in states if t >= 10.5]
    assert dict(states)[10.0]
    assert not after[0][1]
    assert next(t for t, is_open in after if is_open) < 10.5 + 5.0 * one.delay + 0.15


def test_an_encoder_that_trembles_between_two_counts_is_not_stuck() -> None:
    """A Stäubli TX40 at 5 kHz, speeds not measured: a slow joint stands between counts, and at rest
    flips to and fro; each count looks like 0.1 rad/s for one sample.
    """
    robot, rate, count = arm(), 5000.0, 2.2e-5
    t = np.arange(round(2.0 * rate)) / rate
    pace = np.clip(1.5 - t, 0.0, 1.0)[:, None]
    q = 0.2 * np.sin(np.cumsum(pace, axis=0) / rate * np.arange(2, 2 + robot.nv))
    rng = np.random.default_rng(0)
    tremble = (rng.random(q.shape) < 0.2) & (t < 1.6)[:, None]
    counted = count * (np.round(q / count) + tremble)
    one = OnlineIdentifier(robot)
    for k in range(len(t)):
        one.push(float(t[k]), counted[k], None, 5.0 + rng.normal(size=robot.nv))
    assert one.events.counts["stuck"] == 0
    stuck = counted.copy()
    stuck[round(0.2 * rate) :, 1] = stuck[round(0.2 * rate), 1]
    two = OnlineIdentifier(robot)
    for k in range(round(0.4 * rate)):
        two.push(float(t[k]), stuck[k], None, 5.0 + rng.normal(size=robot.nv))
    assert two.events.counts["stuck"] > 0
