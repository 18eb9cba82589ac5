"""The filter before identification: causal, the same for all channels, and of one moment."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from online_cases import Run, arm, frictionless, near, push_all, run, smooth, wrong
from plant_cases import sines
from scipy.signal import lfilter

import thetahat as th
from thetahat.online.config import FilterConfig
from thetahat.online.identifier import OnlineIdentifier
from thetahat.online.stream import GOOD, STEPPED, Stream


@pytest.fixture(scope="module")
def robot() -> th.Robot:
    return arm()


@pytest.fixture(scope="module")
def motion(robot: th.Robot) -> Run:
    return run(robot, 30.0)


def filtered(
    robot: th.Robot,
    stream: Run,
    *,
    speeds: bool,
    cutoff: float = 5.0,
    stages: int = 2,
    held: bool = False,
) -> tuple[Stream, Run]:
    """The stream's own filter, and what it gives of every sample."""
    config = FilterConfig(cutoff=cutoff, stages=stages, held_torque=held)
    one = Stream(robot, config, config.speeds(robot))
    kept = []
    for t, q, dq, tau, _ in stream.rows():
        if one.push(t, q, dq if speeds else None, tau, None) in (GOOD, STEPPED):
            kept.append([t, *(channel[0].copy() for channel in one.sample)])
    return one, Run(*(np.array(part) for part in zip(*kept, strict=True)))


@pytest.fixture(scope="module")
def even() -> tuple[th.Robot, Run]:
    return smooth(), run(smooth(), 20.0)


def test_the_filter_is_the_exponential_moving_average_of_scipy(even: tuple[th.Robot, Run]) -> None:
    robot, motion = even
    one, out = filtered(robot, motion, speeds=True)
    keep = np.exp(-0.005 / one.filter.time_constant)

    def twice(x: np.ndarray) -> np.ndarray:
        for _ in range(2):
            x = lfilter([1.0 - keep], [1.0, -keep], x, axis=0, zi=keep * x[:1])[0]
        return x

    middle = [0.5 * (x[1:] + x[:-1]) for x in (motion.q, motion.dq, motion.tau)]
    step = np.diff(motion.dq, axis=0) / 0.005
    n = len(out)
    for found, expected in zip(
        (out.q, out.dq, out.tau, out.ddq), (*map(twice, middle), twice(step)), strict=True
    ):
        assert near(found, expected[-n:], 1e-9)
    assert one.filter.time_constant == pytest.approx(1.0 / (2.0 * np.pi * 5.0))
    assert one.filter.delay == pytest.approx(2.0 * one.filter.time_constant)


@pytest.mark.parametrize("speeds", [True, False])
def test_all_channels_are_of_one_moment(even: tuple[th.Robot, Run], speeds: bool) -> None:
    """Each filtered channel, against the true one: the time shift that fits best is the stated
    delay, the same for all to a tenth of a sample.
    """
    robot, motion = even
    one, out = filtered(robot, motion, speeds=speeds, cutoff=20.0)
    step = 0.005
    keep = np.exp(-step / one.filter.time_constant)
    expected = (
        2.0 * step * keep / (1.0 - keep) + (0.5 if speeds else 1.0) * step
    )  # two averages, and the differences
    assert expected == pytest.approx(one.filter.delay, abs=1.1 * step)
    inside = out.t > 2.0
    for name in ("q", "dq", "ddq", "tau"):
        true, found = getattr(motion, name), getattr(out, name)[inside]
        slope = np.gradient(true, motion.t, axis=0)
        then, rate = (
            np.array([np.interp(out.t[inside] - expected, motion.t, column) for column in x.T]).T
            for x in (true, slope)
        )
        late = -np.sum((found - then) * rate) / np.sum(rate**2)
        assert abs(late) < 0.0005, name


def test_accelerations_filtered_alone_bias_the_inertia_and_together_they_do_not() -> None:
    """q̈ that lags behind the torque by 64 ms is the wrong one; where all lag alike, it is not."""
    robot = frictionless("double_pendulum")
    stream = run(robot, 40.0, rate=500.0)
    _, alike = filtered(robot, stream, speeds=True)
    at = np.searchsorted(stream.t, alike.t - 1e-9)
    alone = Run(stream.t[at], stream.q[at], stream.dq[at], alike.ddq, stream.tau[at])

    def worst(part: Run) -> float:
        info = th.information(robot, th.Samples(q=part.q, dq=part.dq, ddq=part.ddq, tau=part.tau))
        estimate = th.solve(info, th.LeastSquares())
        true = estimate.base.of(robot.theta)
        return float(
            np.max(
                np.abs(estimate.x_base - true)[np.abs(true) > 1e-3]
                / np.abs(true)[np.abs(true) > 1e-3]
            )
        )

    assert worst(alike) < 0.05
    assert worst(alone) > 5.0 * worst(alike)


def test_a_held_torque_acts_until_the_next_sample(even: tuple[th.Robot, Run]) -> None:
    """Of commands, sample k's acts over the step that follows: it belongs to the acceleration from
    k to k + 1, not to that around k.
    """
    robot, stream = even
    late = replace(stream, tau=np.vstack([stream.tau[1:], stream.tau[-1:]]))
    _, held = filtered(robot, late, speeds=True, held=True)
    _, plain = filtered(robot, stream, speeds=True)
    assert near(held.tau[:-1], np.vstack([plain.tau[:-1]]), 5e-3)
    slope = np.gradient(plain.tau, plain.t, axis=0)[200:-200]
    shift = np.sum((held.tau - plain.tau)[200:-200] * slope) / np.sum(slope**2)
    assert shift == pytest.approx(
        0.0025, rel=0.05
    )  # the next sample's, rather than the mean of both: half a period


def test_uneven_steps_are_averaged_by_their_length(even: tuple[th.Robot, Run]) -> None:
    """With jitter of 20 % of the period the averages are those of even steps, to what the motion
    does in a jitter.
    """
    robot, stream = even
    t = stream.t + 0.2 * 0.005 * np.random.default_rng(0).uniform(-1.0, 1.0, len(stream))
    q, dq, ddq = sines(robot, seed=5, duration=20.0).at(t)
    _, a = filtered(robot, stream, speeds=True)
    _, b = filtered(robot, Run(t, q, dq, ddq, th.inverse_dynamics(robot, q, dq, ddq)), speeds=True)
    for name, tolerance in (("q", 3e-3), ("dq", 1e-2), ("ddq", 2e-2), ("tau", 1e-2)):
        at = np.array([np.interp(a.t[:-5], b.t, column) for column in getattr(b, name).T]).T
        assert near(at, getattr(a, name)[:-5], tolerance), name


@pytest.mark.parametrize(("speeds", "least"), [(True, 0.999), (False, 0.999)])
def test_filtered_measurements_identify_the_robot(
    robot: th.Robot, motion: Run, speeds: bool, least: float
) -> None:
    one = push_all(OnlineIdentifier(wrong(robot)), motion.noisy(0.01, 1e-3), speeds=speeds)
    assert one.gate.open, one.gate.reason
    assert np.min(one.gate.r2_per_joint) > least
    opened = next(e.t for e in one.events if e.kind == "opened")
    assert 5.0 <= opened <= 7.0  # 50 samples at 9 Hz


def test_a_slow_joint_between_two_encoder_counts_is_no_spike(even: tuple[th.Robot, Run]) -> None:
    """Drives make speeds of encoder counts behind a low-pass: near standstill each count is a leap
    from almost nothing.
    """
    robot, motion = even
    count, h = 2.0 * np.pi / 2**14, motion.t[1] - motion.t[0]
    slow = (
        0.3 * np.sin(0.5 * motion.t[:, None] + np.arange(robot.nv)) ** 5
    )  # creeps for seconds, then moves
    q = count * np.round(slow / count)
    dq = lfilter([0.25], [1.0, -0.75], np.diff(q, axis=0, prepend=q[:1]) / h, axis=0)
    one, _ = filtered(robot, replace(motion, q=q, dq=dq), speeds=True)
    assert one.events.counts["spike"] + one.events.counts["step"] <= 0.005 * len(
        q
    )  # the very first count of each joint is a surprise


@pytest.mark.parametrize(("spike", "count"), [(0.0, 0), (0.05, 1)])
def test_a_joint_that_begins_to_move_is_no_spike(
    even: tuple[th.Robot, Run], spike: float, count: int
) -> None:
    """Still for 0.3 s, then 10 rad/s²: an encoder's first counts, and speeds made of them. A speed
    that leaps by as much while no joint moves is a spike.
    """
    robot, _ = even
    h, counts, still = 1e-3, 2.0 * np.pi / 2**18, 300
    t = h * np.arange(600)
    q = np.round(5.0 * np.maximum(t - h * still, 0.0) ** 2 / counts) * counts
    dq = lfilter([0.5 / h, -0.5 / h], [1.0, -0.5], q)
    dq[still // 2] += spike
    config = FilterConfig()
    stream = Stream(robot, config, config.speeds(robot))
    torque = 0.01 * np.random.default_rng(0).standard_normal((len(t), robot.nv))
    each = np.ones(robot.nv)
    for k in range(len(t)):
        stream.push(t[k], q[k] * each, dq[k] * each, torque[k], None)
    assert stream.events.counts["spike"] == count
