"""Identification while the robot moves: the same as afterwards from the same samples; causal,
decimated, and not led astray by the stream.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from online_cases import Run, arm, exactly, near, push_all, run, smooth, wrong
from online_settings import settings

import thetahat as th
from thetahat import robots
from thetahat.dynamics.configuration import integrate
from thetahat.errors import UsageError
from thetahat.online.identifier import OnlineIdentifier

SAME = 1e-10
MEMORIES = ("window", "growing", "forgetting", "informative")


@pytest.fixture(scope="module")
def robot() -> th.Robot:
    return arm()


@pytest.fixture(scope="module")
def motion(robot: th.Robot) -> Run:
    return run(robot, 30.0)


# -- laws of the estimate --------------------------------------------------------------------------


@pytest.mark.parametrize("memory", MEMORIES)
def test_without_noise_and_guess_r2_is_one(robot: th.Robot, motion: Run, memory: str) -> None:
    """Paper, "with perfect sensing and no dependence on an incorrect initial guess, this quantity
    will converge precisely to unity".
    """
    one = push_all(exactly(wrong(robot), memory=memory), motion, exact=True)
    assert one.estimate.r2 >= 1.0 - 1e-12
    assert one.gate.r2_fit >= 1.0 - 1e-12
    assert one.gate.open, one.gate.reason
    assert one.gate.r2 >= 1.0 - 1e-9  # of the physical model, on samples held out
    true = one.estimate.base.of(th.solve(one.information, th.LeastSquares()).x)
    assert near(one.estimate.x_base, true, SAME)


def test_a_window_is_the_batch_of_its_samples(robot: th.Robot, motion: Run) -> None:
    one = push_all(exactly(wrong(robot), window=50), motion.noisy(), exact=True)
    batch = th.solve(th.information(one.nominal, one.samples), th.LeastSquares())
    assert len(one.samples) == 50
    assert near(one.estimate.x_base, batch.x_base, SAME)
    assert one.gate.r2_fit == pytest.approx(batch.r2, abs=1e-12)


def test_growing_memory_is_the_batch_of_all_updates() -> None:
    """At 200 samples a second and 4 Hz every 50th sample is fitted, from the first that the filter
    lets through.
    """
    robot = smooth()
    stream = run(robot, 30.0).noisy()
    one = push_all(exactly(robot, memory="growing", rate=4.0), stream, exact=True)
    rows = np.arange(3, len(stream), 50)
    batch = th.information(
        robot,
        th.Samples(
            q=stream.q[rows], dq=stream.dq[rows], ddq=stream.ddq[rows], tau=stream.tau[rows]
        ),
    )
    assert one.updates == len(rows) == one.gate.fill
    assert np.array_equal(one.information.rows, batch.rows)
    assert near(one.estimate.x_base, th.solve(batch, th.LeastSquares()).x_base, SAME)


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
    """The estimate is what `identify` makes of the same samples, and the controller's model is
    physical.
    """
    one = push_all(
        exactly(wrong(robot), rate=10.0, window=30, estimator=estimator),
        motion.part(0.0, 3.6).noisy(),
        exact=True,
    )
    samples = one.samples if isinstance(estimator, th.Robust) else None
    expected = th.solve(one.information, estimator, samples=samples)
    assert near(one.estimate.x, expected.x, 1e-9)
    assert one.gate.open, one.gate.reason
    assert all(one.robot.consistency)


def test_the_model_in_use_has_the_base_parameters_of_the_estimator(
    robot: th.Robot, motion: Run
) -> None:
    one = push_all(
        exactly(wrong(robot), estimator=th.LeastSquares(weights="joint")),
        motion.noisy(0.001),
        exact=True,
    )
    assert one.gate.open, one.gate.reason
    base, x = (
        one.estimate.base,
        np.concatenate(
            [one.robot.theta, *(one.robot.drive.value(term) for term in one.robot.drive.identified)]
        ),
    )
    assert np.all(
        np.abs(base.of(x) - one.estimate.x_base) <= 4.0 * one.estimate.base_std.filled(np.inf)
    )


# -- the guess -------------------------------------------------------------------------------------


def test_the_guess_keeps_the_beginning_bounded_and_then_goes(robot: th.Robot, motion: Run) -> None:
    """Paper, the leg: with few samples the blend stays near the guess where they say nothing; with
    enough it does not matter which guess it was.
    """
    nominal, guess = wrong(robot), wrong(robot, 0.5, 9)
    stream = motion.noisy()
    early = push_all(exactly(nominal, guess, rate=3.0), stream.part(0.0, 1.0), exact=True)
    expected = th.solve(early.information, th.Prior(guess, 0.5))
    assert near(early.estimate.x, expected.x, SAME)
    assert not near(early.estimate.x, th.solve(early.information, th.LeastSquares()).x, 1e-2)
    late = [
        push_all(exactly(nominal, each, rate=3.0), stream, exact=True)
        for each in (guess, wrong(robot, 0.5, 10), None)
    ]
    for one in late:
        assert near(one.estimate.x_base, late[-1].estimate.x_base, SAME)
        assert one.nominal is nominal


def test_a_blend_that_stays_is_the_papers(robot: th.Robot, motion: Run) -> None:
    guess = wrong(robot, 0.5, 9)
    one = push_all(
        exactly(wrong(robot), guess, rate=3.0, alpha=0.3, blend="always"),
        motion.part(0.0, 20.0),
        exact=True,
    )
    assert near(one.estimate.x, th.solve(one.information, th.Prior(guess, 0.3)).x, SAME)
    assert 0.99 < one.estimate.r2 < 1.0 - 1e-9  # right below one: the guess is wrong


# -- decimation ------------------------------------------------------------------------------------


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


def test_what_happened_to_the_order_of_samples_does_not_matter(
    robot: th.Robot, motion: Run
) -> None:
    """Duplicates, and copies that come too late, are dropped: the estimate is the same to the last
    bit.
    """
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


# -- beside the loop -------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["thread", "process"])
def test_solved_beside_the_loop_it_comes_to_the_same(
    robot: th.Robot, motion: Run, place: str
) -> None:
    stream = motion.part(0.0, 4.2).noisy()
    options = {"rate": 10.0, "window": 30, "estimator": th.Consistent(), "timeout": 60.0}
    plain = push_all(exactly(wrong(robot), **options), stream, exact=True)
    with exactly(wrong(robot), run_in=place, **options) as one:
        deadline = time.monotonic() + 100.0
        for t, q, dq, tau, ddq in stream.rows():
            one.push(t, q, dq, tau, ddq)
            while (
                one._learner.solver.busy and time.monotonic() < deadline
            ):  # as if the loop were slow, so that no update goes without an answer
                time.sleep(0.001)
        assert near(one.estimate.x, plain.estimate.x, 1e-9)
        assert np.array_equal(one.gate.open, plain.gate.open)
        assert near(one._learner.x, plain._learner.x, 1e-9)


def test_a_late_answer_leaves_the_last_valid_model(
    robot: th.Robot, motion: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop goes on meanwhile, and what comes too late is not used."""
    from thetahat.online import background_solver

    solve, begun = background_solver.solve, threading.Event()

    def slowly(*task: object) -> object:
        begun.set()
        time.sleep(0.3)
        return solve(*task)

    monkeypatch.setattr(background_solver, "solve", slowly)
    with exactly(
        wrong(robot),
        rate=10.0,
        window=10,
        estimator=th.Consistent(),
        run_in="thread",
        timeout=0.05,
    ) as one:
        for t, q, dq, tau, ddq in motion.part(0.0, 2.0).noisy().rows():
            one.push(t, q, dq, tau, ddq)
            if begun.is_set() and not one.events.counts["solver"]:
                time.sleep(0.01)
        assert one.events.counts["solver"] >= 1
        assert "no answer after 0.05 s" in next(
            e.sentence for e in one.events if e.kind == "solver"
        )
        assert not one.gate.open
        assert one.robot is one.nominal


# -- use and misuse --------------------------------------------------------------------------------


def test_a_change_of_size_is_refused_and_changes_nothing(robot: th.Robot, motion: Run) -> None:
    stream = motion.noisy().part(0.0, 20.0)
    plain, one = (exactly(wrong(robot)) for _ in range(2))
    for k, (t, q, dq, tau, ddq) in enumerate(stream.rows()):
        plain.push(t, q, dq, tau, ddq)
        if k % 500 == 100:
            with pytest.raises(
                UsageError, match=r"tau is of shape \(3,\); robot 'arm4' has \(4,\)"
            ):
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
        ({"memory": "all"}, r"memory is 'all'; give Window\(\), Growing\(\)"),
        ({"cutoff": -1.0}, r"cutoff is -1\.0"),
        ({"stages": 0}, r"stages is 0"),
        ({"alpha": 1.0, "guess": True}, r"alpha is 1\.0"),
        ({"blend": "late"}, r"blend is 'late'; give one of early, always"),
        ({"estimator": 3}, r"estimator is of type int"),
        (
            {"estimator": th.Robust(th.LeastSquares()), "memory": "growing"},
            r"Robust weighs single samples",
        ),
        ({"joints": ["elbw"]}, r"joint 'elbw' is not in robot 'arm4'; joints: shoulder_pitch"),
        ({"run_in": "cloud"}, r"run_in is 'cloud'"),
        ({"payload_link": "hnd"}, r"link 'hnd' is not in robot 'arm4'"),
        ({"min_speed": [0.1]}, r"min_speed is \[0\.1\]"),
        ({"timeout": 0.0}, r"timeout is 0\.0"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    robot: th.Robot, options: dict, message: str
) -> None:
    guess = robot if options.pop("guess", None) else None
    with pytest.raises(UsageError, match=message):
        OnlineIdentifier(robot, guess, **settings(**options))


def test_friction_that_is_known_and_not_identified_leaves_the_torques(
    motion: Run, robot: th.Robot
) -> None:
    """The robot's file states friction, and only bodies are identified: the model in use has that
    friction, and explains everything.
    """
    known = robot.with_drive(viscous=False, coulomb=False, offset=False)
    nominal = replace(known, theta=wrong(robot).theta)
    one = push_all(exactly(nominal), motion, exact=True)
    assert one.gate.open, one.gate.reason
    assert np.array_equal(one.robot.drive.coulomb, robot.drive.coulomb)
    assert (
        th.validate(
            one.robot, th.Samples(q=motion.q, dq=motion.dq, ddq=motion.ddq, tau=motion.tau)
        ).r2_total
        > 1.0 - 1e-9
    )


def test_a_floating_base_is_identified_from_its_twist() -> None:
    """Several degrees of freedom per joint: speeds must be measured, quaternions may change their
    sign.
    """
    base = th.load(robots.path("double_pendulum"), floating_base=True).without_drive()
    rng, n = np.random.default_rng(0), 3000
    t = 0.005 * np.arange(n)
    w = 2.0 * np.pi * rng.uniform(0.2, 1.0, (3, base.nv))
    ddq = np.sum([np.cos(t[:, None] * w[k] + k) for k in range(3)], axis=0)
    dq = np.sum([np.sin(t[:, None] * w[k] + k) / w[k] for k in range(3)], axis=0)
    q = np.empty((n, base.nq))
    q[0] = base.neutral
    for k in range(1, n):
        q[k] = integrate(base, q[k - 1], 0.005 * 0.5 * (dq[k] + dq[k - 1]))
    tau = th.inverse_dynamics(base, q, dq, ddq)
    q[::2, 3:7] *= -1.0
    one = OnlineIdentifier(
        base.with_parameters(1.2 * base.theta), rate=10.0, **settings(cutoff=20.0)
    )
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


@pytest.mark.parametrize(
    ("keyword", "place"),
    [
        ("beside", r'solver=SolverConfig\(run_in="process"\)'),
        ("cutoff", r"filter=FilterConfig\(cutoff=…\)"),
        ("payload_link", r"gate=GateRules\(monitor=MonitorRules\(payload_link=…\)\)"),
    ],
)
def test_a_keyword_that_moved_names_its_new_place(
    robot: th.Robot, keyword: str, place: str
) -> None:
    with pytest.raises(UsageError, match=f"{keyword} is not a parameter any more; write {place}"):
        OnlineIdentifier(robot, **{keyword: None})


def test_a_verdict_says_what_became_of_the_sample(robot: th.Robot, motion: Run) -> None:
    """Taken or not and why, the events of that sample, and gate and robot as the identifier has
    them.
    """
    one = OnlineIdentifier(wrong(robot))
    assert not one.verdict
    for t, q, dq, tau, _ in motion.noisy(0.01, 1e-3).part(0.0, 20.0).rows():
        verdict = one.push(t, q, dq, tau)
        assert verdict is one.verdict
        assert (verdict.gate, verdict.robot) == (one.gate, one.robot)
    assert verdict.gate.open, verdict.gate.reason
    bad = one.push(t + 0.005, q, dq, np.nan * tau)
    assert not bad.accepted
    assert "is not finite" in bad.reason
    assert [event.kind for event in bad.events] == ["not finite"]
    assert not bad.gate.open
    assert bad.robot is one.nominal
    assert one.push(t + 0.01, q, dq, tau).events == ()
    assert one.miss().reason == "no sample came"
    with pytest.raises(UsageError):
        one.push(t + 0.02, q, dq, tau[:2])
    assert "tau is of shape (2,)" in one.verdict.reason
