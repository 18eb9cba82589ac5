"""The gate: opens on evidence alone, closes at once, and says why. Each condition is shown by a
case that the paper's rule alone would let pass.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from online_cases import Run, arm, exactly, push_all, run, smooth, stopping, wrong

import thetahat as th
from thetahat.errors import UsageError
from thetahat.online.config import GateRules
from thetahat.online.gate import Gate
from thetahat.online.gate_evidence import Evidence, NominalSums, Score
from thetahat.online.identifier import OnlineIdentifier

NAMES = ("one", "two")


def score(
    r2: tuple[float, float],
    *,
    u2: tuple[float, float] = (100.0, 100.0),
    correlation: float = 1.0,
    nominal2: float = 100.0,
) -> Score:
    u = np.array(u2)
    return Score(
        (1.0 - np.array(r2)) * u,
        u,
        np.full(2, 100),
        np.full(2, nominal2),
        correlation * np.sqrt(u * nominal2),
    )


def evidence(**changes: object) -> Evidence:
    """All is well, but for the changes."""
    good = {
        "fill": 50,
        "size": 50,
        "r2_fit": 0.99,
        "seen": 9.0,
        "structural_rank": 10,
        "physical": True,
        "sentence": "",
        "held": score((0.99, 0.99)),
        "ahead": (1.0, 100.0),
        "noise": np.full(2, 0.01),
        "moving": np.ones(2, dtype=bool),
        "still_for": 0.0,
        "judged": np.ones(2, dtype=bool),
        "frozen": np.zeros(2, dtype=bool),
        "channels": (),
        "names": NAMES,
    }
    return Evidence(**{**good, **changes})


def test_a_gate_that_keeps_closing_waits_twice_as_long_each_time_up_to_its_memory() -> None:
    """Opened and closed at once, again and again: 1, 1, 2, 4, 8, 8 … s of a memory of 8 s, said in
    words; a memory's length in the open, and the next closing counts from one.
    """
    gate, t, waits = Gate(GateRules(), memory=8.0), 0.0, []
    for _ in range(7):
        while not gate.state.open:
            t += 0.1
            gate.judge(t, evidence())
        gate.close(t, "something is wrong")
        closed = t
        gate.judge(t + 0.05, evidence())
        sentence = gate.state.reason
        while not gate.state.open:
            t += 0.1
            gate.judge(t, evidence())
        waits.append(round(t - closed, 6))
    assert waits == pytest.approx([1.0, 2.0, 4.0, 8.0, 8.0, 8.0, 8.0], abs=0.11)
    assert gate.state.relapses == 7
    assert "it closed 7 times in a row within 8 s of opening, so it waits 8 s each time" in sentence
    gate.close(t + 8.1, "something is wrong")
    assert gate.state.relapses == 0
    gate.judge(t + 9.2, evidence())
    assert gate.state.open, "the dwell time is that of the rules again"


def test_a_gate_that_stays_closed_for_longer_than_its_memory_says_so() -> None:
    gate = Gate(GateRules(), memory=8.0)
    gate.judge(10.0, evidence())
    gate.close(20.0, "something is wrong")
    gate.judge(27.0, evidence(r2_fit=0.5))
    assert "longer than" not in gate.state.reason
    gate.judge(29.0, evidence(r2_fit=0.5))
    assert "0.5000" in gate.state.reason
    assert "closed for 9 s, longer than the 8 s that fill the memory" in gate.state.reason


def test_after_everything_was_forgotten_it_opens_again_within_a_memory_length() -> None:
    robot = smooth()
    rows = list(run(robot, 24.0).rows())
    with exactly(wrong(robot), rate=5.0, window=40) as one:  # 8 s
        last = None
        for t, q, dq, tau, ddq in rows:
            if last is None and t > 12.0:
                assert one.gate.open, one.gate.reason
                one.reset()
                last = t
            one.push(t, q, dq, tau, ddq)
            if last is not None and one.gate.open:
                break
        assert one.gate.open, one.gate.reason
        assert t - last <= 8.0 + 1.0 / 5.0 + 0.01


def opened() -> Gate:
    gate = Gate(GateRules())
    gate.judge(10.0, evidence())
    assert gate.state.open
    return gate


# -- the rules -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"fill": 49}, "49 of 50 samples are in the buffer"),
        ({"r2_fit": 0.949}, "R² of the fit is 0.9490"),
        ({"r2_fit": None}, "R² of the fit is undefined"),
        ({"r2_fit": float("nan")}, "R² of the fit is undefined"),
        ({"seen": 4.0}, "shows 4 of 10 directions"),
        ({"seen": None}, "rank of the data is not known"),
        (
            {"physical": False, "sentence": "body 'arm': mass is negative"},
            "base parameters: body 'arm': mass is negative",
        ),
        ({"physical": None, "held": None}, "no physical model has been computed yet"),
        ({"held": score((0.99, 0.94))}, "R² of joint 'two' on samples held out is 0.9400"),
        ({"held": score((0.99, float("nan")))}, "not finite"),
        (
            {"held": score((0.99, 0.99), u2=(100.0, 0.0))},
            "R² of joint 'two' on samples held out is undefined",
        ),
        ({"ahead": (11.0, 100.0)}, "R² of samples predicted ahead is 0.8900"),
        ({"ahead": (0.0, 0.0)}, "predicted ahead is undefined"),
        ({"moving": np.array([True, False])}, "joint 'two' has not moved lately"),
        ({"still_for": 6.0}, "nothing has moved for 6 s"),
        (
            {"channels": ("the torque of joint 'two' does not change",)},
            "the torque of joint 'two' does not change",
        ),
        (
            {"held": score((0.99, 0.99), correlation=-0.9)},
            "runs against the nominal robot's (correlation -0.90)",
        ),
        ({"held": score((0.99, 0.99), u2=(100.0, 0.5))}, "is 7.1% of the nominal robot's"),
    ],
)
def test_one_thing_missing_keeps_it_closed_and_is_named(changes: dict, words: str) -> None:
    gate = Gate(GateRules())
    gate.judge(10.0, evidence(**changes))
    assert not gate.state.open
    assert words in gate.state.reason
    gate.judge(20.0, evidence())
    assert gate.state.open, gate.state.reason
    assert gate.state.since == 20.0


def test_what_is_left_where_ground_and_motor_cancel_has_no_sign() -> None:
    """A light joint of a robot on its feet: it does not keep the gate closed, another one does."""
    turned = score((0.99, 0.99), correlation=-0.9)
    gate = Gate(GateRules())
    gate.judge(10.0, evidence(held=replace(turned, cancelling=np.array([True, False]))))
    assert "joint 'two' runs against" in gate.state.reason
    gate.judge(11.0, evidence(held=replace(turned, cancelling=np.array([True, True]))))
    assert gate.state.open, gate.state.reason


def test_it_has_hysteresis() -> None:
    """Opens at 0.95, stays open above 0.90, closes below; stacked and per joint."""
    for changes in ({"r2_fit": 0.93}, {"held": score((0.99, 0.93))}):
        gate = Gate(GateRules())
        gate.judge(10.0, evidence(**changes))
        assert not gate.state.open
        gate = opened()
        gate.judge(11.0, evidence(**changes))
        assert gate.state.open
    for changes in ({"r2_fit": 0.89}, {"held": score((0.99, 0.89))}):
        gate = opened()
        gate.judge(11.0, evidence(**changes))
        assert not gate.state.open
        assert gate.state.since == 11.0


def test_closed_it_stays_closed_for_the_dwell_time_and_says_so() -> None:
    gate = opened()
    gate.close(11.0, "a spanner fell in")
    assert not gate.state.open
    assert gate.state.reason == "a spanner fell in"
    gate.judge(11.9, evidence())
    assert not gate.state.open
    assert "0.1 s at least" in gate.state.reason
    gate.judge(12.0, evidence())
    assert gate.state.open


def test_a_joint_that_carries_next_to_nothing_is_judged_by_noise() -> None:
    """Torques of 0.02 in noise of 0.01: R² cannot be high. It passes where the error is the noise,
    and the nominal robot asks for no more.
    """
    quiet = {
        "noise": np.array([0.01, 0.01]),
        "held": score((0.99, 0.2), u2=(100.0, 100 * 0.02**2), nominal2=100 * 0.02**2),
    }
    gate = Gate(GateRules())
    gate.judge(10.0, evidence(**quiet))
    assert gate.state.open, gate.state.reason
    wrong_model = {
        **quiet,
        "held": score((0.99, -3.0), u2=(100.0, 100 * 0.02**2), nominal2=100 * 0.02**2),
    }
    gate = Gate(GateRules())
    gate.judge(10.0, evidence(**wrong_model))
    assert not gate.state.open
    gate = Gate(GateRules(floor=0.1))
    gate.judge(10.0, evidence(**wrong_model))
    assert gate.state.open


def test_joints_that_are_not_judged_do_not_matter() -> None:
    gate = Gate(GateRules())
    gate.judge(
        10.0,
        evidence(
            judged=np.array([True, False]), moving=np.array([True, False]), held=score((0.99, -5.0))
        ),
    )
    assert gate.state.open, gate.state.reason


def test_a_still_joint_whose_torque_is_not_what_carries_it_closes() -> None:
    gate = opened()
    gate.judge(
        11.0,
        evidence(
            held=replace(
                score((0.99, 0.99)),
                still2=np.array([0.0, 50.0]),
                still_u2=np.full(2, 100.0),
                still_rows=np.full(2, 100),
            )
        ),
    )
    assert not gate.state.open
    assert "check its encoder" in gate.state.reason


def test_rules_without_hysteresis_are_refused() -> None:
    with pytest.raises(UsageError, match=r"close is 0\.96 and threshold 0\.95"):
        Gate(GateRules(close=0.96), 0.95)
    with pytest.raises(UsageError, match=r"dwell is -1"):
        GateRules(dwell=-1)


# -- what the paper's rule alone lets pass ---------------------------------------------------------


@pytest.fixture(scope="module")
def robot() -> th.Robot:
    return arm()


@pytest.fixture(scope="module")
def motion(robot: th.Robot) -> Run:
    return run(robot, 26.0).noisy(0.01, 1e-3)


def papers_rule(one: OnlineIdentifier) -> bool:
    return (
        one.gate.fill >= one.gate.size and one.gate.r2_fit is not None and one.gate.r2_fit >= 0.95
    )


def test_a_good_robot_passes(robot: th.Robot, motion: Run) -> None:
    one = push_all(OnlineIdentifier(wrong(robot)), motion)
    assert one.gate.open, one.gate.reason
    assert one.gate.consistent
    assert one.robot is not one.nominal
    assert all(one.robot.consistency)
    assert one.gate.rank > 0.9 * one.gate.structural_rank


def test_held_out_r2_is_what_validate_says(robot: th.Robot, motion: Run) -> None:
    """At an update, of the very samples in the ring."""
    one = OnlineIdentifier(wrong(robot))
    for t, q, dq, tau, _ in motion.rows():
        one.push(t, q, dq, tau)
        if one.updates == 75:
            break
    assert one.gate.open
    held = one.held_out
    found = th.validate(one.robot, held)
    assert np.allclose(found.r2_moving, one.gate.r2_per_joint, rtol=0.0, atol=1e-12)
    left = np.sum(found.rms_moving**2 * found.rows_moving)
    assert one.gate.r2 == pytest.approx(1.0 - left / np.sum(held.tau[held.valid] ** 2), abs=1e-12)


def test_a_dead_torque_sensor_does_not(robot: th.Robot, motion: Run) -> None:
    """Without signal the fit is perfect there: stacked R² is high, and the joint's model is
    nothing.
    """
    rng = np.random.default_rng(0)
    for dead in (0.0, 0.01 * rng.normal(size=len(motion))):
        tau = motion.tau.copy()
        tau[:, 3] = dead
        one = push_all(OnlineIdentifier(wrong(robot)), replace(motion, tau=tau))
        assert not one.gate.open
        assert one.events.counts["opened"] == 0
    assert papers_rule(one)


def test_a_standstill_fit_does_not() -> None:
    """One joint creeps, the others stand: without dry friction their torques are explained
    perfectly, by next to no rank.
    """
    robot = smooth()
    t = np.arange(26 * 200) / 200.0
    q = np.tile([0.3, 0.4, -0.5, 0.8], (len(t), 1))
    dq, ddq = np.zeros_like(q), np.zeros_like(q)
    q[:, 3] += 0.05 * np.sin(t)
    dq[:, 3], ddq[:, 3] = 0.05 * np.cos(t), -0.05 * np.sin(t)
    still = Run(t, q, dq, ddq, th.inverse_dynamics(robot, q, dq, ddq)).noisy(0.01, 1e-3)
    one = push_all(OnlineIdentifier(wrong(robot)), still)
    assert papers_rule(one)
    assert not one.gate.open
    assert one.gate.rank < 0.5 * one.gate.structural_rank
    assert "have not moved enough" in one.gate.reason
    one = push_all(OnlineIdentifier(wrong(robot)), replace(still, q=q[:1] + 0.0 * q, dq=0.0 * dq))
    assert one.gate.fill == 0
    assert not one.gate.open


def test_no_model_with_a_negative_mass_is_ever_handed_out(robot: th.Robot) -> None:
    """Much noise, little motion: least squares has bodies of negative mass; what is in use, if
    anything, has none.
    """
    weird, seen = 0, 0
    for seed in range(4):
        stream = run(robot, 22.0, seed=seed).noisy(0.15, 5e-3, seed=seed)
        one = OnlineIdentifier(wrong(robot), rate=6.0)
        for t, q, dq, tau, _ in stream.rows():
            one.push(t, q, dq, tau)
            if one.gate.open:
                assert np.all(one.robot.theta[9::10] > 0.0)
                seen += 1
        weird += bool(np.any(one.estimate.theta[9::10] < 0.0) or not one.estimate.consistent)
        if one.gate.open:
            assert all(one.robot.consistency)
    assert weird == 4


@pytest.mark.parametrize(
    ("kind", "joint"),
    [
        pytest.param(kind, joint, marks=[] if quick else [pytest.mark.slow])
        for kind, quick_joints in (("flipped", (0, 2)), ("swapped", (1, 3)))
        for joint in range(4)
        for quick in [joint in quick_joints]
    ],
)
def test_torques_of_the_wrong_sign_or_joint_do_not(
    robot: th.Robot, motion: Run, kind: str, joint: int
) -> None:
    joints, tau = (joint, (joint + 1) % 4), motion.tau.copy()
    if kind == "flipped":
        tau[:, joint] *= -1.0
    else:
        tau[:, joints] = tau[:, joints[::-1]]
    one = push_all(OnlineIdentifier(wrong(robot), rate=6.0), replace(motion, tau=tau))
    assert not one.gate.open
    assert one.events.counts["opened"] == 0
    assert one.robot is one.nominal


def test_a_joint_that_does_not_move_keeps_its_nominal_drive_and_is_named(robot: th.Robot) -> None:
    stream = run(robot, 22.0)
    q, dq, ddq = (array.copy() for array in (stream.q, stream.dq, stream.ddq))
    q[:, 3], dq[:, 3], ddq[:, 3] = 0.7, 0.0, 0.0
    tau = th.inverse_dynamics(robot, q, dq, ddq)
    still = Run(stream.t, q, dq, ddq, tau).noisy(0.01)
    one = push_all(exactly(wrong(robot), rate=6.0), still, exact=True)
    assert one.gate.open, one.gate.reason
    assert "elbow has not moved enough" in one.gate.reason
    names = [name for name in robot.joint_names if name != "elbow"]
    other = push_all(exactly(wrong(robot), rate=6.0, joints=names), still, exact=True)
    assert other.gate.open, other.gate.reason
    assert "elbow" not in other.gate.reason
    elbow = robot.velocity_names.index("elbow")
    for each in (one, other):  # what nothing shows stays nominal
        np.testing.assert_allclose(
            each.robot.drive.coulomb[elbow], each.nominal.drive.coulomb[elbow], rtol=1e-12
        )
        shown = np.arange(robot.nv) != elbow
        assert np.all(each.robot.drive.coulomb[shown] != each.nominal.drive.coulomb[shown])


# -- standstill, the solver, and reading it --------------------------------------------------------


def test_at_standstill_an_open_gate_keeps_its_verdict_for_the_hold_time(robot: th.Robot) -> None:
    stream = stopping(robot, 24.0).noisy(0.01, 1e-3)
    one = push_all(OnlineIdentifier(wrong(robot), gate=GateRules(hold=3.0)), stream)
    assert one.gate.open, one.gate.reason
    last, zero = stream.q[-1], np.zeros(4)
    carried = th.inverse_dynamics(robot, last, zero, zero)
    rng, opened = np.random.default_rng(1), []
    for k in range(1200):
        one.push(
            24.0 + 0.005 * k, last, 1e-3 * rng.normal(size=4), carried + 0.01 * rng.normal(size=4)
        )
        opened.append(one.gate.open)
    closed = 0.005 * opened.index(False)
    assert 2.0 < closed < 3.6
    assert not any(opened[opened.index(False) :])
    assert "nothing has moved" in one.gate.reason


def test_an_estimator_whose_demands_conflict_leaves_the_nominal_model(
    robot: th.Robot, motion: Run
) -> None:
    impossible = th.Consistent(
        constraints=th.Constraints(
            total_mass=0.1, bounds={robot.body_names[0]: th.Bounds(mass=(5.0, 6.0))}
        )
    )
    one = push_all(
        exactly(wrong(robot), rate=10.0, window=20, estimator=impossible),
        motion.part(0.0, 5.0),
        exact=True,
    )
    assert not one.gate.open
    assert one.robot is one.nominal
    assert one.events.counts["solver"] > 0
    assert "no physical" in one.gate.reason


def test_a_solver_without_an_answer_leaves_the_last_valid_model(
    robot: th.Robot, motion: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from thetahat.online import background_solver
    from thetahat.online.physical_model import Solution

    one = exactly(wrong(robot), rate=10.0, window=20, estimator=th.Consistent())
    push_all(one, motion.part(0.0, 4.0), exact=True)
    assert one.gate.open, one.gate.reason
    model = one.robot
    monkeypatch.setattr(
        background_solver, "solve", lambda *_: Solution(None, None, "failed", "it gave up")
    )
    push_all(one, motion.part(4.0, 6.0), exact=True)
    assert one.gate.open
    assert one.robot is model
    assert one.events.counts["solver"] >= 19
    assert "it gave up; the last valid one stays" in one.events[-1].sentence


def test_the_state_is_frozen_and_speaks(robot: th.Robot, motion: Run) -> None:
    one = OnlineIdentifier(wrong(robot))
    assert str(one.gate) == "closed: no sample has come yet"
    for t, q, dq, tau, _ in motion.part(0.0, 2.0).rows():
        one.push(t, q, dq, tau)
        assert one.gate.reason
        assert not one.gate
    with pytest.raises(AttributeError):
        one.gate.open = True


def light_score(left: float, nominal_left: float, *, light: bool) -> Score:
    """The second joint takes a thousandth of the first one's torque; of it a model leaves `left`
    and the nominal robot `nominal_left` [squared N·m over 100 samples].
    """
    u2, small = np.array([1e4, 1e-2]), np.array([False, light])
    left2 = np.array([10.0, nominal_left])
    # Σ (τ − τ₀)² = Σ τ² − 2 Σ τ τ₀ + Σ τ₀²
    whole = NominalSums(u2.copy(), u2 - 0.5 * left2)
    rows = np.full(2, 100)
    return Score(np.array([1.0, left]), u2, rows, u2.copy(), u2.copy(), whole=whole, light=small)


@pytest.mark.parametrize(
    ("left", "nominal_left", "light", "opens"),
    [
        (2e-3, 1e-1, True, True),  # a fifth of its torque, but a fiftieth of the nominal robot's
        (2e-3, 1e-1, False, False),  # R² 0.8 of a joint that is not light
        (2e-3, 4e-3, True, False),  # hardly better than the nominal robot
        (4e-4, 1e-5, True, True),  # R² 0.96, whatever the nominal robot leaves
        (2e-1, 1e-1, True, False),  # worse than the nominal robot
    ],
)
def test_a_joint_without_torque_is_judged_beside_the_nominal_robot(
    left: float, nominal_left: float, light: bool, opens: bool
) -> None:
    gate = Gate(GateRules(noise=0.0))
    held = light_score(left, nominal_left, light=light)
    gate.judge(20.0, evidence(held=held, noise=np.zeros(2)))
    assert gate.state.open is opens, gate.state.reason
