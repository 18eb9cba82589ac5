"""Identification while the robot moves: the same as afterwards from the same samples; causal, decimated, and not led astray by the stream."""

from __future__ import annotations

import threading
import time
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from scipy.signal import lfilter

import thetahat as th
from online_cases import Run, arm, exactly, frictionless, push_all, run, smooth, stopping, wrong
from plant_cases import sines
from thetahat import robots
from thetahat.errors import UsageError
from thetahat.online.identifier import OnlineIdentifier
from thetahat.online.stream import GOOD, Stream

SAME = 1e-10
MEMORIES = ("window", "growing", "forgetting", "informative")


@pytest.fixture(scope="module")
def robot() -> th.Robot:
    return arm()


@pytest.fixture(scope="module")
def motion(robot: th.Robot) -> Run:
    return run(robot, 30.0)


def near(a: np.ndarray, b: np.ndarray, tolerance: float) -> bool:
    return bool(np.max(np.abs(a - b)) <= tolerance * np.max(np.abs(b)))


# -- laws of the estimate -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", MEMORIES)
def test_without_noise_and_guess_r2_is_one(robot: th.Robot, motion: Run, memory: str) -> None:
    """Paper, "with perfect sensing and no dependence on an incorrect initial guess, this quantity will converge precisely to unity"."""
    one = push_all(exactly(wrong(robot), memory=memory), motion, exact=True)
    assert one.estimate.r2 >= 1.0 - 1e-12
    assert one.gate.r2_fit >= 1.0 - 1e-12
    assert one.gate.open, one.gate.reason
    assert one.gate.r2 >= 1.0 - 1e-9  # of the physical model, on samples held out
    true = one.estimate.base.of(th.identify(one.information, th.LeastSquares()).x)
    assert near(one.estimate.x_base, true, SAME)


def test_a_window_is_the_batch_of_its_samples(robot: th.Robot, motion: Run) -> None:
    one = push_all(exactly(wrong(robot)), motion.noisy(), exact=True)
    batch = th.identify(th.information(one.nominal, one.samples), th.LeastSquares())
    assert len(one.samples) == 50
    assert near(one.estimate.x_base, batch.x_base, SAME)
    assert one.gate.r2_fit == pytest.approx(batch.r2, abs=1e-12)


def test_growing_memory_is_the_batch_of_all_updates() -> None:
    """At 200 samples a second and 4 Hz every 50th sample is fitted, from the first that the filter lets through."""
    robot = smooth()
    stream = run(robot, 30.0).noisy()
    one = push_all(exactly(robot, memory="growing", rate=4.0), stream, exact=True)
    rows = np.arange(3, len(stream), 50)
    batch = th.information(robot, th.Samples(q=stream.q[rows], dq=stream.dq[rows], ddq=stream.ddq[rows], tau=stream.tau[rows]))
    assert one.updates == len(rows) == one.gate.fill
    assert np.array_equal(one.information.rows, batch.rows)
    assert near(one.estimate.x_base, th.identify(batch, th.LeastSquares()).x_base, SAME)


@pytest.mark.parametrize(
    "estimator",
    [
        th.LeastSquares(weights="joint"),
        th.Prior(alpha=0.7),
        th.Consistent(),
        th.Robust(th.LeastSquares()),
        th.LeastSquares(),
    ],
    ids=lambda e: f"{type(e).__name__}",
)
def test_any_estimator_of_the_library(robot: th.Robot, motion: Run, estimator: object) -> None:
    """The estimate is what `identify` makes of the same samples, and the controller's model is physical."""
    one = push_all(exactly(wrong(robot), rate=10.0, window=30, estimator=estimator), motion.part(0.0, 3.6).noisy(), exact=True)
    samples = one.samples if isinstance(estimator, th.Robust) else None
    expected = th.identify(one.information, estimator, samples=samples)
    assert near(one.estimate.x, expected.x, 1e-9)
    assert one.gate.open, one.gate.reason
    assert all(one.robot.consistency)


def test_the_model_in_use_has_the_base_parameters_of_the_estimator(robot: th.Robot, motion: Run) -> None:
    one = push_all(exactly(wrong(robot), estimator=th.LeastSquares(weights="joint")), motion.noisy(0.001), exact=True)
    assert one.gate.open, one.gate.reason
    base, x = one.estimate.base, np.concatenate([one.robot.theta, *(one.robot.drive.value(term) for term in one.robot.drive.identified)])
    assert np.all(np.abs(base.of(x) - one.estimate.x_base) <= 4.0 * one.estimate.base_std.filled(np.inf))


# -- the guess ------------------------------------------------------------------------------------------------------------


def test_the_guess_keeps_the_beginning_bounded_and_then_goes(robot: th.Robot, motion: Run) -> None:
    """Paper, the leg: with few samples the blend stays near the guess where they say nothing; with enough it does not matter which guess it was."""
    nominal, guess = wrong(robot), wrong(robot, 0.5, 9)
    stream = motion.noisy()
    early = push_all(exactly(nominal, guess), stream.part(0.0, 1.0), exact=True)
    expected = th.identify(early.information, th.Prior(guess, 0.5))
    assert near(early.estimate.x, expected.x, SAME)
    assert not near(early.estimate.x, th.identify(early.information, th.LeastSquares()).x, 1e-2)
    late = [push_all(exactly(nominal, each), stream, exact=True) for each in (guess, wrong(robot, 0.5, 10), None)]
    for one in late:
        assert near(one.estimate.x_base, late[-1].estimate.x_base, SAME)
        assert one.nominal is nominal


def test_a_blend_that_stays_is_the_papers(robot: th.Robot, motion: Run) -> None:
    guess = wrong(robot, 0.5, 9)
    one = push_all(exactly(wrong(robot), guess, alpha=0.3, blend="always"), motion.part(0.0, 20.0), exact=True)
    assert near(one.estimate.x, th.identify(one.information, th.Prior(guess, 0.3)).x, SAME)
    assert 0.99 < one.estimate.r2 < 1.0 - 1e-9  # right below one: the guess is wrong


# -- the filter -----------------------------------------------------------------------------------------------------------


def filtered(robot: th.Robot, stream: Run, *, speeds: bool, cutoff: float = 5.0, stages: int = 2, held: bool = False) -> tuple[Stream, Run]:
    """The stream's own filter, and what it gives of every sample."""
    one = Stream(robot, cutoff=cutoff, stages=stages, period=None, held=held, min_speed=np.full(robot.nv, 0.02), reset_after=1.0)
    kept = []
    for t, q, dq, tau, _ in stream.rows():
        if one.push(t, q, dq if speeds else None, tau, None) == GOOD:
            kept.append([t, one.q[0].copy(), one.dq[0].copy(), one.ddq[0].copy(), one.tau[0].copy()])
    return one, Run(*(np.array(part) for part in zip(*kept, strict=True)))


@pytest.fixture(scope="module")
def even() -> tuple[th.Robot, Run]:
    return smooth(), run(smooth(), 20.0)


def test_the_filter_is_the_exponential_moving_average_of_scipy(even: tuple[th.Robot, Run]) -> None:
    robot, motion = even
    one, out = filtered(robot, motion, speeds=True)
    keep = np.exp(-0.005 / one.time_constant)

    def twice(x: np.ndarray) -> np.ndarray:
        for _ in range(2):
            x = lfilter([1.0 - keep], [1.0, -keep], x, axis=0, zi=keep * x[:1])[0]
        return x

    middle = [0.5 * (x[1:] + x[:-1]) for x in (motion.q, motion.dq, motion.tau)]
    step = np.diff(motion.dq, axis=0) / 0.005
    n = len(out)
    for found, expected in zip((out.q, out.dq, out.tau, out.ddq), (*map(twice, middle), twice(step)), strict=True):
        assert near(found, expected[-n:], 1e-9)
    assert one.time_constant == pytest.approx(1.0 / (2.0 * np.pi * 5.0))
    assert one.delay == pytest.approx(2.0 * one.time_constant)


@pytest.mark.parametrize("speeds", [True, False])
def test_all_channels_are_of_one_moment(even: tuple[th.Robot, Run], speeds: bool) -> None:
    """Each filtered channel, against the true one: the time shift that fits best is the stated delay, the same for all to a tenth of a sample."""
    robot, motion = even
    one, out = filtered(robot, motion, speeds=speeds, cutoff=20.0)
    step = 0.005
    keep = np.exp(-step / one.time_constant)
    expected = 2.0 * step * keep / (1.0 - keep) + (0.5 if speeds else 1.0) * step  # two averages, and the differences
    assert expected == pytest.approx(one.delay, abs=1.1 * step)
    inside = out.t > 2.0
    for name in ("q", "dq", "ddq", "tau"):
        true, found = getattr(motion, name), getattr(out, name)[inside]
        slope = np.gradient(true, motion.t, axis=0)
        then, rate = (np.array([np.interp(out.t[inside] - expected, motion.t, column) for column in x.T]).T for x in (true, slope))
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
        estimate = th.identify(info, th.LeastSquares())
        true = estimate.base.of(robot.theta)
        return float(np.max(np.abs(estimate.x_base - true)[np.abs(true) > 1e-3] / np.abs(true)[np.abs(true) > 1e-3]))

    assert worst(alike) < 0.05
    assert worst(alone) > 5.0 * worst(alike)


def test_a_held_torque_acts_until_the_next_sample(even: tuple[th.Robot, Run]) -> None:
    """Of commands, sample k's acts over the step that follows: it belongs to the acceleration from k to k + 1, not to that around k."""
    robot, stream = even
    late = replace(stream, tau=np.vstack([stream.tau[1:], stream.tau[-1:]]))
    _, held = filtered(robot, late, speeds=True, held=True)
    _, plain = filtered(robot, stream, speeds=True)
    assert near(held.tau[:-1], np.vstack([plain.tau[:-1]]), 5e-3)
    slope = np.gradient(plain.tau, plain.t, axis=0)[200:-200]
    shift = np.sum((held.tau - plain.tau)[200:-200] * slope) / np.sum(slope**2)
    assert shift == pytest.approx(0.0025, rel=0.05)  # the next sample's, rather than the mean of both: half a period


def test_uneven_steps_are_averaged_by_their_length(even: tuple[th.Robot, Run]) -> None:
    """With jitter of 20 % of the period the averages are those of even steps, to what the motion does in a jitter."""
    robot, stream = even
    t = stream.t + 0.2 * 0.005 * np.random.default_rng(0).uniform(-1.0, 1.0, len(stream))
    q, dq, ddq = sines(robot, seed=5, duration=20.0).at(t)
    _, a = filtered(robot, stream, speeds=True)
    _, b = filtered(robot, Run(t, q, dq, ddq, th.inverse_dynamics(robot, q, dq, ddq)), speeds=True)
    for name, tolerance in (("q", 3e-3), ("dq", 1e-2), ("ddq", 2e-2), ("tau", 1e-2)):
        at = np.array([np.interp(a.t[:-5], b.t, column) for column in getattr(b, name).T]).T
        assert near(at, getattr(a, name)[:-5], tolerance), name


@pytest.mark.parametrize(("speeds", "least"), [(True, 0.999), (False, 0.999)])
def test_filtered_measurements_identify_the_robot(robot: th.Robot, motion: Run, speeds: bool, least: float) -> None:
    one = push_all(OnlineIdentifier(wrong(robot)), motion.noisy(0.01, 1e-3), speeds=speeds)
    assert one.gate.open, one.gate.reason
    assert np.min(one.gate.r2_per_joint) > least
    assert 16.0 <= next(e.t for e in one.events if e.kind == "opened") <= 17.5  # paper: 16–17 s to fill


def test_a_slow_joint_between_two_encoder_counts_is_no_spike(even: tuple[th.Robot, Run]) -> None:
    """Drives make speeds of encoder counts behind a low-pass: near standstill each count is a leap from almost nothing."""
    robot, motion = even
    count, h = 2.0 * np.pi / 2**14, motion.t[1] - motion.t[0]
    slow = 0.3 * np.sin(0.5 * motion.t[:, None] + np.arange(robot.nv)) ** 5  # creeps for seconds, then moves
    q = count * np.round(slow / count)
    dq = lfilter([0.25], [1.0, -0.75], np.diff(q, axis=0, prepend=q[:1]) / h, axis=0)
    one, _ = filtered(robot, replace(motion, q=q, dq=dq), speeds=True)
    assert one.events.counts["spike"] + one.events.counts["step"] <= 0.005 * len(q)  # the very first count of each joint is a surprise


# -- decimation -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [97.0, 250.0, 1000.0])
def test_updates_come_at_their_rate_whatever_the_stream_s(robot: th.Robot, rate: float) -> None:
    one = push_all(OnlineIdentifier(wrong(robot), rate=3.0), run(robot, 10.0, rate=rate))
    assert one.updates == pytest.approx(30, abs=1)
    assert one.gate.fill == one.updates or one.gate.fill == one.updates - 1


def test_held_out_samples_are_in_no_fit(robot: th.Robot, motion: Run) -> None:
    one = push_all(exactly(wrong(robot)), motion.noisy(), exact=True)
    fitted = {tuple(row) for row in one.samples.q}
    held = {tuple(row) for row in one.held_out.q}
    assert len(held) > 200
    assert not fitted & held


def test_what_happened_to_the_order_of_samples_does_not_matter(robot: th.Robot, motion: Run) -> None:
    """Duplicates, and copies that come too late, are dropped: the estimate is the same to the last bit."""
    stream = motion.noisy().part(0.0, 20.0)
    plain = push_all(exactly(wrong(robot)), stream, exact=True)
    one = exactly(wrong(robot))
    rows = list(stream.rows())
    for k, (t, q, dq, tau, ddq) in enumerate(rows):
        if one.push(t, q, dq, tau, ddq) and k % 7 == 3:
            assert not one.push(t, q, dq, tau, ddq)
        if k % 11 == 5:
            t, q, dq, tau, ddq = rows[k - 3]
            assert not one.push(t, q, dq, tau, ddq)
    assert np.array_equal(one.estimate.x, plain.estimate.x)
    assert one.events.counts["duplicate"] == pytest.approx(len(rows) / 7, rel=0.05)
    assert one.events.counts["out of order"] == pytest.approx(len(rows) / 11, rel=0.05)
    assert np.array_equal(one.robot.theta, plain.robot.theta)


# -- beside the loop -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["thread", "process"])
def test_solved_beside_the_loop_it_comes_to_the_same(robot: th.Robot, motion: Run, place: str) -> None:
    stream = motion.part(0.0, 4.2).noisy()
    options = {"rate": 10.0, "window": 30, "estimator": th.Consistent(), "patience": 60.0}
    plain = push_all(exactly(wrong(robot), **options), stream, exact=True)
    with exactly(wrong(robot), beside=place, **options) as one:
        deadline = time.monotonic() + 100.0
        for t, q, dq, tau, ddq in stream.rows():
            one.push(t, q, dq, tau, ddq)
            while one._beside.busy and time.monotonic() < deadline:  # as if the loop were slow, so that no update goes without an answer
                time.sleep(0.001)
        assert near(one.estimate.x, plain.estimate.x, 1e-9)
        assert np.array_equal(one.gate.open, plain.gate.open)
        assert near(one._learner.x, plain._learner.x, 1e-9)


def test_a_late_answer_leaves_the_last_valid_model(robot: th.Robot, motion: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop goes on meanwhile, and what comes too late is not used."""
    from thetahat.online import beside

    solve, begun = beside.solve, threading.Event()

    def slowly(task: object) -> object:
        begun.set()
        time.sleep(0.3)
        return solve(task)

    monkeypatch.setattr(beside, "solve", slowly)
    with exactly(wrong(robot), rate=10.0, window=10, estimator=th.Consistent(), beside="thread", patience=0.05) as one:
        for t, q, dq, tau, ddq in motion.part(0.0, 2.0).noisy().rows():
            one.push(t, q, dq, tau, ddq)
            if begun.is_set() and not one.events.counts["solver"]:
                time.sleep(0.01)
        assert one.events.counts["solver"] >= 1
        assert "no answer after 0.05 s" in next(e.sentence for e in one.events if e.kind == "solver")
        assert not one.gate.open
        assert one.robot is one.nominal


# -- use and misuse ----------------------------------------------------------------------------------------------------------------


def test_a_change_of_size_is_refused_and_changes_nothing(robot: th.Robot, motion: Run) -> None:
    stream = motion.noisy().part(0.0, 20.0)
    plain, one = (exactly(wrong(robot)) for _ in range(2))
    for k, (t, q, dq, tau, ddq) in enumerate(stream.rows()):
        plain.push(t, q, dq, tau, ddq)
        if k % 500 == 100:
            with pytest.raises(UsageError, match=r"tau is of shape \(3,\); robot 'arm4' has \(4,\)"):
                one.push(t, q, dq, tau[:3], ddq)
            with pytest.raises(UsageError, match=r"q is not an array of numbers"):
                one.push(t, "here", dq, tau, ddq)
            with pytest.raises(UsageError, match=r"t is None; give the time"):
                one.push(None, q, dq, tau, ddq)
        one.push(t, q, dq, tau, ddq)
    assert np.array_equal(one.estimate.x, plain.estimate.x)
    assert one.gate.open


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": 0.0}, r"rate is 0\.0"),
        ({"window": 0}, r"window is 0"),
        ({"threshold": 1.5}, r"threshold 1\.5"),
        ({"close": 0.99}, r"close is 0\.99 and threshold 0\.95"),
        ({"memory": "all"}, r"memory is 'all'; memories: window"),
        ({"cutoff": -1.0}, r"cutoff is -1\.0"),
        ({"stages": 0}, r"stages is 0"),
        ({"alpha": 1.0, "guess": True}, r"alpha is 1\.0"),
        ({"blend": "late"}, r"blend is 'late'; give one of early, always"),
        ({"estimator": 3}, r"estimator is of type int"),
        ({"estimator": th.Robust(th.LeastSquares()), "memory": "growing"}, r"Robust weighs single samples"),
        ({"joints": ["elbw"]}, r"joint 'elbw' is not in robot 'arm4'; joints: shoulder_pitch"),
        ({"beside": "cloud"}, r"beside is 'cloud'"),
        ({"payload_link": "hnd"}, r"link 'hnd' is not in robot 'arm4'"),
        ({"min_speed": [0.1]}, r"min_speed is \[0\.1\]"),
        ({"patience": 0.0}, r"patience is 0\.0"),
    ],
)
def test_options_that_make_no_sense_are_refused(robot: th.Robot, options: dict, message: str) -> None:
    guess = robot if options.pop("guess", None) else None
    with pytest.raises(UsageError, match=message):
        OnlineIdentifier(robot, guess, **options)


def test_friction_that_is_known_and_not_identified_leaves_the_torques(motion: Run, robot: th.Robot) -> None:
    """The robot's file states friction, and only bodies are identified: the model in use has that friction, and explains everything."""
    known = robot.with_drive(viscous=False, coulomb=False, offset=False)
    nominal = replace(known, theta=wrong(robot).theta)
    one = push_all(exactly(nominal), motion, exact=True)
    assert one.gate.open, one.gate.reason
    assert np.array_equal(one.robot.drive.coulomb, robot.drive.coulomb)
    assert th.validate(one.robot, th.Samples(q=motion.q, dq=motion.dq, ddq=motion.ddq, tau=motion.tau)).r2_total > 1.0 - 1e-9


def test_a_floating_base_is_identified_from_its_twist() -> None:
    """Several degrees of freedom per joint: speeds must be measured, quaternions may change their sign."""
    base = th.load(robots.path("double_pendulum"), floating_base=True).without_drive()
    rng, n = np.random.default_rng(0), 3000
    t = 0.005 * np.arange(n)
    w = 2.0 * np.pi * rng.uniform(0.2, 1.0, (3, base.nv))
    ddq = np.sum([np.cos(t[:, None] * w[k] + k) for k in range(3)], axis=0)
    dq = np.sum([np.sin(t[:, None] * w[k] + k) / w[k] for k in range(3)], axis=0)
    q = np.empty((n, base.nq))
    q[0] = base.neutral
    for k in range(1, n):
        q[k] = th.integrate(base, q[k - 1], 0.005 * 0.5 * (dq[k] + dq[k - 1]))
    tau = th.inverse_dynamics(base, q, dq, ddq)
    q[::2, 3:7] *= -1.0
    one = OnlineIdentifier(base.with_parameters(1.2 * base.theta), rate=10.0, cutoff=20.0)
    for k in range(n):
        one.push(t[k], q[k], dq[k], tau[k])
    assert one.gate.r2_fit > 0.999
    with pytest.raises(UsageError, match=r"joints of several degrees of freedom"):
        one.push(t[-1] + 0.005, q[-1], None, tau[-1])


def test_a_push_between_updates_costs_little(robot: th.Robot) -> None:
    """Tens of microseconds of this thread's own time; bound five times that, as machines differ."""
    stream = run(robot, 22.0, rate=1000.0).noisy(0.01, 1e-3)
    one, cost = OnlineIdentifier(wrong(robot)), []
    for t, q, dq, tau, _ in stream.rows():
        start = time.thread_time_ns()
        one.push(t, q, dq, tau)
        cost.append(time.thread_time_ns() - start)
    assert one.gate.open
    assert np.median(cost[-3000:]) < 150e3


# -- soak ------------------------------------------------------------------------------------------------------------------------


def soak(seconds: float, memory: str) -> float:
    """Megabytes that the identifier grows by from a sixth of the time on."""
    robot = arm()
    motion = run(robot, 60.0, rate=50.0).noisy(0.01, 1e-3)
    rows = list(motion.rows())
    one = OnlineIdentifier(wrong(robot), memory=memory, refit=5.0)
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


@pytest.mark.parametrize("memory", ["window", "forgetting"])
def test_memory_does_not_grow(memory: str) -> None:
    assert soak(120.0, memory) < 0.5


@pytest.mark.slow
@pytest.mark.parametrize("memory", MEMORIES)
def test_memory_does_not_grow_in_eight_hours(memory: str) -> None:
    assert soak(8.0 * 3600.0, memory) < 5.0


@pytest.mark.slow
def test_a_million_still_samples_move_nothing() -> None:
    """A thousand seconds at 1 kHz of a robot that stands still, noise and all: parameters and factors stay, and motion counts again."""
    stand_still(1_000_000)


def test_still_samples_move_nothing() -> None:
    stand_still(20_000)


def stand_still(count: int) -> None:
    robot = arm()
    motion = stopping(robot, 30.0).noisy(0.01, 1e-3)
    one = push_all(OnlineIdentifier(wrong(robot), memory="forgetting"), motion)
    assert one.gate.open, one.gate.reason
    rng, last, zero = np.random.default_rng(0), motion.q[-1], np.zeros(4)
    carried = th.inverse_dynamics(robot, last, zero, zero)
    speeds, torques = 1e-3 * rng.normal(size=(1000, 4)), carried + 0.05 * rng.normal(size=(1000, 4))
    for k in range(count):
        one.push(30.0 + 0.001 * k, last, speeds[k % 1000], torques[k % 1000])
        if k == 500:  # the filter has forgotten the motion
            count_before, before, factors = one._memory.count, one.estimate.x_base, one._memory._factors.copy()
    assert one._memory.count == count_before
    assert not one.gate.open
    assert "nothing has moved" in one.gate.reason
    assert np.max(np.abs(one.estimate.x_base - before)) <= 1e-6
    assert np.array_equal(one._memory._factors, factors)
    again = run(robot, 30.0).noisy(0.01, 1e-3)
    push_all(one, replace(again, t=again.t + 30.5 + 0.001 * count))
    assert one.gate.open, one.gate.reason
    assert np.min(one.gate.r2_per_joint) > 0.99
