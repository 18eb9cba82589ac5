"""The switch between models: no bump on the way to the identified one, no cycle on it while the
gate is closed, back within one cycle.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plant_cases import load, sines, wrong_by

import thetahat as th
from thetahat.control.computed_torque import ComputedTorque
from thetahat.control.model_switch import LONGEST, ModelSwitch
from thetahat.errors import UsageError
from thetahat.online.gate import GateState
from thetahat.online.sample_verdict import SampleVerdict
from thetahat.plant.plant import OwnPlant
from thetahat.plant.simulate import simulate

DT, SLEW = 1e-3, 30.0
ROUNDING = 1e-9


class Source:
    """What an online identifier says, moved by hand."""

    def __init__(self, nominal: th.Robot) -> None:
        self.nominal = nominal
        gate = GateState(False, "the buffer is not full")
        self.verdict = SampleVerdict(True, "", gate, nominal)

    @property
    def gate(self) -> GateState:
        return self.verdict.gate

    def accept(self, robot: th.Robot) -> None:
        self.verdict = SampleVerdict(True, "", GateState(True, ""), robot)

    def close(self) -> None:
        self.verdict = SampleVerdict(True, "", GateState(False, "R² fell"), self.nominal)


class Rig:
    """A switched controller beside one of each model, asked along a smooth motion."""

    def __init__(
        self,
        *,
        limits: bool | float = 500.0,
        max_speed: float | None = None,
        **options: object,
    ) -> None:
        self.limits, self.max_speed = limits, max_speed
        self.truth = load("arm4")
        self.nominal = wrong_by(self.truth, 0.3, 1)
        self.source = Source(self.nominal)
        self.law = ModelSwitch(self.source, self.make, slew=SLEW, **options)
        self.motion = sines(self.truth, seed=2, duration=10.0)
        self.plain = {id(robot): self.beside(robot) for robot in (self.truth, self.nominal)}
        self.k = 0

    def make(self, robot: th.Robot) -> ComputedTorque:
        return ComputedTorque(robot, 100.0, 20.0, limits=self.limits, max_speed=self.max_speed)

    def beside(self, robot: th.Robot) -> ComputedTorque:
        """The controller of one model alone, with the nominal one's feedback."""
        law = self.make(robot)
        if robot is not self.nominal:
            law.keep_feedback(self.make(self.nominal))
        return law

    def tick(self, **changed: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(switched, nominal, identified) command at the next moment of the motion, a little behind
        it.
        """
        t = self.k * DT
        self.k += 1
        q, dq, ddq = (x[0] for x in self.motion.at(np.array([t])))
        sample = {"t": t, "q": q - 0.01, "dq": dq, **changed}
        wanted = (q, dq, ddq)
        clean = (t, q - 0.01, dq, wanted)
        return self.law(sample["t"], sample["q"], sample["dq"], wanted), *(
            self.plain[id(r)](*clean) for r in (self.nominal, self.truth)
        )


def test_the_switch_is_bumpless_and_ends_on_the_identified_model() -> None:
    rig = Rig()
    for _ in range(50):
        u, nominal, _ = rig.tick()
        assert np.array_equal(u, nominal)
    assert not rig.law.identified
    rig.source.accept(rig.truth)
    offsets, gap = [], None
    for _ in range(3000):
        u, nominal, identified = rig.tick()
        gap = nominal - identified if gap is None else gap
        offsets.append(u - identified)
        assert rig.law.identified
    offsets = np.array(offsets)
    assert np.max(np.abs(gap)) > 2.0, "the models differ by something worth blending"
    assert np.max(np.abs(offsets[0] - gap)) < ROUNDING, (
        "the cycle of the switch commands what the nominal model would have"
    )
    steps = np.abs(np.diff(offsets, axis=0))
    assert np.max(steps) <= SLEW * DT + ROUNDING
    assert rig.law.max_torque_step == pytest.approx(np.max(steps), abs=ROUNDING)
    needed = int(np.ceil(np.max(np.abs(gap)) / (SLEW * DT)))
    assert np.all(offsets[needed + 1] == 0.0), "and not a cycle longer than the slew needs"
    assert np.any(offsets[needed - 2] != 0.0)
    assert (rig.law.switches, rig.law.fallbacks, rig.law.blending) == (1, 0, False)


def without_inertia(robot: th.Robot, last: float) -> th.Robot:
    """The robot with its last body's mass and inertia times a number."""
    theta = robot.theta.copy()
    theta[-10:] *= last
    return robot.with_parameters(theta)


@pytest.mark.parametrize(("feedback", "kept"), [("nominal", 1.0), ("model", 1e-3)])
def test_a_model_without_inertia_leaves_the_feedback_as_stiff_as_it_was(
    feedback: str, kept: float
) -> None:
    """What a millirad of error changes of the last joint's torque, before and after the switch to
    a model whose last body is a thousandth of the nominal one's.
    """
    rig = Rig(feedback=feedback, limits=False)
    q, dq, ddq = (x[0] for x in rig.motion.at(np.array([0.0])))
    error = np.array([0.0, 0.0, 0.0, 1e-3])

    def stiffness() -> float:
        taken = [rig.law(0.0, q, dq, (each, dq, ddq))[-1] for each in (q, q + error)]
        return float(np.diff(taken)[0]) / 1e-3

    before = stiffness()
    rig.source.accept(without_inertia(rig.nominal, 1e-3))
    rig.law(1e-3, q, dq, (q, dq, ddq))
    assert rig.law.identified
    assert stiffness() == pytest.approx(kept * before, rel=1e-6)


def test_falling_back_takes_one_cycle_in_the_middle_of_a_blend_too() -> None:
    for cycles in (1, 5, 2000):
        rig = Rig()
        rig.tick()
        rig.source.accept(rig.truth)
        for _ in range(cycles):
            before, *_ = rig.tick()
        rig.source.close()
        u, nominal, _ = rig.tick()
        assert np.array_equal(u, nominal)
        assert rig.law.robot is rig.nominal
        assert (rig.law.identified, rig.law.blending, rig.law.fallbacks) == (False, False, 1)
        if cycles == 2000:
            assert rig.law.fallback_step == pytest.approx(np.max(np.abs(u - before)), rel=0.2)
            assert rig.law.fallback_step > SLEW * DT


def test_a_fallback_that_slews_changes_the_model_at_once_and_the_torque_slowly() -> None:
    rig = Rig(fallback="slew")
    rig.source.accept(rig.truth)
    for _ in range(2000):
        rig.tick()
    rig.source.close()
    last = None
    for _ in range(2000):
        u, nominal, _ = rig.tick()
        assert rig.law.robot is rig.nominal
        offset = u - nominal
        assert last is None or np.max(np.abs(offset - last)) <= SLEW * DT + ROUNDING
        last = offset
    assert np.all(last == 0.0)
    assert rig.law.fallback_step == 0.0


def test_from_one_identified_model_to_the_next_is_bumpless_too() -> None:
    rig = Rig()
    models = [rig.truth, *(wrong_by(rig.truth, 0.2, k) for k in range(4))]
    plain = {id(robot): rig.beside(robot) for robot in models}
    last, previous = None, None
    for k in range(600):
        robot = models[k // 40 % len(models)]
        rig.source.accept(robot)
        t = rig.k * DT
        q, dq, ddq = (x[0] for x in rig.motion.at(np.array([t])))
        u, *_ = rig.tick()
        # What changed beyond the change of the model that was in charge before: the switch's doing.
        for_old = (
            plain[id(previous)](t, q - 0.01, dq, (q, dq, ddq)) if previous is not None else None
        )
        if last is not None:
            assert np.max(np.abs((u - for_old) - last)) <= SLEW * DT + ROUNDING
        previous = robot
        last = u - plain[id(robot)](t, q - 0.01, dq, (q, dq, ddq))
    assert rig.law.switches == 15
    assert 0.0 < rig.law.max_torque_step <= SLEW * DT * (1.0 + 1e-9)


def test_unusable_samples_around_a_switch_make_no_jump() -> None:
    nan = np.full(4, np.nan)
    rig = Rig()
    for _ in range(10):
        held, *_ = rig.tick()
    rig.source.accept(rig.truth)
    for _ in range(3):
        u, *_ = rig.tick(q=nan)
        assert np.array_equal(u, held), "not switched on a sample that says nothing"
        assert not rig.law.identified
    u, nominal, _ = rig.tick()
    assert np.array_equal(u, nominal)
    assert rig.law.identified
    for _ in range(100):
        held, *_ = rig.tick()
    # the gate closes over the same bad sample: the last command is held, not the nominal
    # controller's old one
    rig.source.close()
    for _ in range(3):
        u, *_ = rig.tick(dq=nan)
        assert np.array_equal(u, held)
        assert rig.law.robot is rig.nominal
    u, nominal, _ = rig.tick()
    assert np.array_equal(u, nominal)


class Measured:
    """The step of the switch as anyone could measure it: commands beside those of plain
    controllers, each model's own, at every sample.
    """

    def __init__(self, rig: Rig) -> None:
        self.rig, self.largest, self._model, self._beyond = rig, 0.0, rig.nominal, np.zeros(4)

    def tick(self, **changed: np.ndarray) -> np.ndarray:
        """A cycle: what changed against the model that was in charge before it; a spiked cycle is
        skipped, for there the sample is to blame.
        """
        u, nominal, identified = self.rig.tick(**changed)
        own = {id(self.rig.nominal): nominal, id(self.rig.truth): identified}
        if not changed:
            self.largest = max(
                self.largest, float(np.max(np.abs(u - own[id(self._model)] - self._beyond)))
            )
            self._model = self.rig.law.robot
            self._beyond = u - own[id(self._model)]
        return u


@pytest.mark.parametrize("limits", [False, 60.0])
@pytest.mark.parametrize("when", [0, 1])
def test_a_spiked_sample_around_the_switch_is_not_what_the_blend_starts_from(
    limits: bool | float, when: int
) -> None:
    """Ten radians off in the cycle of the switch, or in the one before it: the offset is the
    models' difference, and dies out as quickly as that.
    """
    rig = Rig(limits=limits)
    measured = Measured(rig)
    for _ in range(50):
        measured.tick()
    spiked = {"q": rig.motion.at(np.array([rig.k * DT]))[0][0] + np.array([0.0, 10.0, 0.0, 0.0])}
    if when == 1:
        measured.tick(**spiked)
    rig.source.accept(rig.truth)
    if when == 0:
        measured.tick(**spiked)
        assert not rig.law.identified
        assert rig.law.waiting, "and it says why"
    measured.tick()
    measured.tick()
    assert rig.law.identified
    assert rig.law.waiting == ""
    for _ in range(1000):
        measured.tick()
    assert not rig.law.blending, "a difference of some 7 N·m takes a quarter of a second, not ten"
    assert measured.largest <= SLEW * DT + ROUNDING
    assert 0.5 * SLEW * DT < rig.law.max_torque_step <= SLEW * DT + ROUNDING


def test_the_step_is_measured_on_what_was_commanded_not_on_the_offset_that_is_slewed() -> None:
    """A blend that is cut short shows in `max_torque_step`."""
    rig = Rig()
    for _ in range(5):
        rig.tick()
    rig.source.accept(rig.truth)
    _, nominal, identified = rig.tick()
    rig.law._offset = np.zeros(4)  # as a mistake in the slewing would
    rig.tick()
    assert rig.law.max_torque_step == pytest.approx(np.max(np.abs(nominal - identified)), rel=1e-6)


def test_nothing_is_switched_at_a_limit_and_falling_back_does_not_wait() -> None:
    rig = Rig(limits=5.0)  # the arm cannot even be carried
    rig.source.accept(rig.truth)
    for _ in range(20):
        rig.tick()
        assert rig.law.robot is rig.nominal
        assert "is at its limit" in rig.law.waiting
    rig = Rig(limits=60.0)
    rig.source.accept(rig.truth)
    rig.tick()
    assert rig.law.identified
    rig.source.close()
    rig.tick(q=np.full(4, 9.0))
    assert rig.law.robot is rig.nominal, "in this cycle, whatever the sample"


def test_a_sample_the_identifier_rejected_is_not_switched_on() -> None:
    rig = Rig()
    before = rig.tick()[0]
    rig.source.accept(rig.truth)
    said = "a number of joint 'a' is not finite"
    rig.source.verdict = replace(rig.source.verdict, accepted=False, reason=said)
    u = rig.tick()[0]
    assert np.array_equal(u, before), "held: the sample reaches no law"
    assert said in rig.law.waiting
    rig.source.verdict = replace(rig.source.verdict, accepted=False, reason="a torque leaps")
    u = rig.tick()[0]
    assert not np.array_equal(u, before), "the joints may well have moved so"
    assert not rig.law.identified
    assert "a torque leaps" in rig.law.waiting
    rig.source.accept(rig.truth)
    rig.tick()
    assert rig.law.identified


def test_a_robot_whose_torques_always_leap_is_switched_after_a_while() -> None:
    rig, rng = Rig(), np.random.default_rng(0)
    rig.tick()
    rig.source.accept(rig.truth)
    waited = 0
    while not rig.law.identified:
        rig.tick(dq=rng.normal(0.0, 2.0, 4))
        waited += 1
        assert waited < 2000
    assert waited > 10


def test_halting_holds_the_posture_that_the_identified_controller_saw() -> None:
    rig = Rig()
    rig.tick()
    rig.source.accept(rig.truth)
    for _ in range(500):
        rig.tick()
    q = rig.motion.at(np.array([(rig.k - 1) * DT]))[0][0] - 0.01
    assert np.max(np.abs(rig.law.halt() - th.gravity(rig.nominal, q))) < 1e-9


def test_lost_time_falls_back_for_a_cycle_and_a_jump_of_the_clock_buys_no_torque() -> None:
    rig = Rig(max_speed=np.inf)
    rig.tick()
    rig.source.accept(rig.truth)
    rig.tick()
    rig.law.slew[:] = 1.0  # so that the blend outlasts what follows
    same = (np.zeros(4), np.zeros(4), (np.zeros(4),) * 3)
    now = rig.law(0.01, *same)
    for t in (0.01, np.nan, -5.0):
        assert np.array_equal(rig.law(t, *same), now), "no time has passed"
    assert np.max(np.abs(rig.law(1e9, *same) - now)) == pytest.approx(LONGEST), (
        "a stall buys no jump"
    )
    rig.law.resync()
    u, nominal, _ = rig.tick()
    assert np.array_equal(u, nominal)
    assert not rig.law.identified
    rig.tick()
    assert rig.law.identified, "and on again: the gate is open"


def test_a_model_no_controller_takes_is_declined_once() -> None:
    rig = Rig()
    theta = rig.truth.theta.copy()
    theta[29] = -1.0
    made = []

    def make(robot: th.Robot) -> ComputedTorque:
        made.append(robot)
        return ComputedTorque(robot)

    law = ModelSwitch(rig.source, make, nominal=rig.nominal)
    rig.source.accept(rig.truth.with_parameters(theta))
    q = np.zeros(4)
    for k in range(10):
        law(k * DT, q, q, (q, q, q))
        assert law.robot is rig.nominal
    assert "negative" in law.declined
    assert len(made) == 2
    rig.source.accept(rig.truth)
    law(0.1, q, q, (q, q, q))
    assert law.robot is rig.truth
    assert law.declined == ""


def test_a_model_whose_torques_overflow_is_not_switched_to() -> None:
    rig = Rig()
    rig.tick()
    rig.source.accept(replace(rig.truth, theta=1e307 * rig.truth.theta))
    for _ in range(30):
        u, nominal, _ = rig.tick()
        assert np.array_equal(u, nominal)
        assert not rig.law.identified
        assert "overflows" in rig.law.waiting


def test_the_gate_is_asked_whatever_robot_is_shown() -> None:
    rig = Rig()
    rig.source.accept(rig.truth)
    rig.tick()
    closed = GateState(False, "closed, with the identified robot still on show")
    rig.source.verdict = replace(rig.source.verdict, gate=closed)
    u, nominal, _ = rig.tick()
    assert np.array_equal(u, nominal)
    assert rig.law.robot is rig.nominal


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.sampled_from(["", "", "", "open", "other", "close", "nan", "stall"]),
        min_size=5,
        max_size=80,
    )
)
def test_no_cycle_on_an_identified_model_while_the_gate_is_closed(events: list[str]) -> None:
    rig = Rig()
    other = wrong_by(rig.truth, 0.1, 9)
    for event in events:
        if event == "open":
            rig.source.accept(rig.truth)
        elif event == "other":
            rig.source.accept(other)
        elif event == "close":
            rig.source.close()
        elif event == "stall":
            rig.law.resync()
        u, nominal, _ = rig.tick(**({"q": np.full(4, np.nan)} if event == "nan" else {}))
        assert np.all(np.isfinite(u))
        assert np.all(np.abs(u) <= 500.0)
        if not rig.source.gate.open:
            assert rig.law.robot is rig.nominal
            if event != "nan":
                assert np.array_equal(u, nominal)
    assert rig.law.max_torque_step <= SLEW * DT * (1.0 + 1e-9)


EVENTS = st.lists(
    st.sampled_from(
        ["", "", "", "", "", "open", "open", "other", "close", "nan", "spike", "spike speed"]
    ),
    min_size=20,
    max_size=120,
)


@settings(max_examples=60, deadline=None)
@given(EVENTS, st.sampled_from([False, 60.0]))
def test_no_sequence_of_models_and_spikes_makes_a_step_above_the_slews(
    events: list[str], limits: bool | float
) -> None:
    """Measured beside plain controllers of each model, between clean samples: the switch's part of
    the torque moves by slew·dt per cycle at most.
    """
    rig = Rig(limits=limits)
    models = {
        id(robot): rig.beside(robot)
        for robot in (rig.nominal, rig.truth, wrong_by(rig.truth, 0.1, 9))
    }
    by_event = {"open": rig.truth, "other": models[list(models)[-1]].robot}
    model, beyond, skipped = rig.nominal, np.zeros(4), 0
    side = 1.0  # no two spikes in a row are alike: a torque that leaps and stays there is a step
    for event in events:
        if event in by_event:
            rig.source.accept(by_event[event])
        elif event == "close":
            rig.source.close()
        t = rig.k * DT
        q, dq, ddq = (x[0] for x in rig.motion.at(np.array([t])))
        changed = {
            "nan": {"q": q * np.nan},
            "spike": {"q": q + side * 7.0},
            "spike speed": {"dq": dq - side * 90.0},
        }.get(event, {})
        side = -side if changed else side
        fallbacks = rig.law.fallbacks
        u, *_ = rig.tick(**changed)
        if changed:
            skipped += 1  # the sample's own doing
            if rig.law.fallbacks > fallbacks:
                model, beyond = rig.nominal, np.zeros(4)
            assert rig.law.robot is model, (
                "nothing is switched on such a sample, unless it falls back"
            )
            continue
        own = {key: plain(t, q - 0.01, dq, (q, dq, ddq)) for key, plain in models.items()}
        if rig.law.fallbacks > fallbacks:
            assert np.array_equal(u, own[id(rig.nominal)])
        else:
            assert (
                np.max(np.abs(u - own[id(model)] - beyond)) <= (1 + skipped) * SLEW * DT + ROUNDING
            )
        model, skipped = rig.law.robot, 0
        beyond = u - own[id(model)]
    assert rig.law.max_torque_step <= SLEW * DT + ROUNDING


def test_the_bias_of_a_wrong_model_goes_after_the_switch() -> None:
    """In closed loop, as the paper's arm shows it: the error's mean moves to zero, and no torque
    step is above the slew's.
    """
    truth = replace(load("arm4"), drive=load("arm4").without_drive().drive)
    nominal = wrong_by(truth, 0.3, 1)
    source = Source(nominal)
    law = ModelSwitch(source, lambda robot: ComputedTorque(robot, 100.0, 20.0), slew=SLEW)
    motion = sines(truth, seed=6, duration=6.0)

    def controller(t: float, q: np.ndarray, dq: np.ndarray, wanted: tuple) -> np.ndarray:
        if t >= 3.0:
            source.accept(truth)
        return law(t, q, dq, wanted)

    run = simulate(OwnPlant(truth), motion, controller=controller)
    error = run.q - run.wanted[0]
    before, after = (
        np.abs(np.mean(error[part], axis=0)) for part in (slice(500, 3000), slice(4500, 6000))
    )
    assert np.max(after) < 0.05 * np.max(before)
    assert law.max_torque_step <= SLEW * DT * (1.0 + 1e-6)


def test_refusals_are_sentences() -> None:
    rig = Rig()
    with pytest.raises(UsageError, match="fallback is 'soft'; choose one of step, slew"):
        ModelSwitch(rig.source, rig.make, fallback="soft")
    with pytest.raises(UsageError, match="feedback is 'own'; choose one of nominal, model"):
        ModelSwitch(rig.source, rig.make, feedback="own")
    with pytest.raises(UsageError, match="slew has 3 values; give one, or 4"):
        ModelSwitch(rig.source, rig.make, slew=[1.0, 2.0, 3.0])
    rig.source.accept(rig.truth)
    with pytest.raises(UsageError, match="gate is open already"):
        ModelSwitch(rig.source, rig.make)
