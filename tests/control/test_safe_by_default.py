"""Safe by default: limits of the file, samples that cannot be, and what is commanded meanwhile."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from plant_cases import load

import thetahat as th
from thetahat.control.adaptive import SlotineLi
from thetahat.control.computed_torque import ComputedTorque, GravityCompensation
from thetahat.control.controller import FADE, HOLD
from thetahat.control.model_switch import ModelSwitch
from thetahat.control.sample_guard import CONFIRMED, speed_bounds
from thetahat.control.torque_limits import torque_bound
from thetahat.model.tree import Joint, Limits, Tree
from thetahat.online.gate import GateState
from thetahat.online.sample_verdict import SampleVerdict

DT = 1e-3  # [s]


def moving(robot: th.Robot, k: int) -> tuple:
    """(t, q, dq, wanted) of a slow motion, a little behind it."""
    t, w = k * DT, 1.5
    q = 0.4 * np.sin(w * t + np.arange(robot.nv))
    dq = 0.4 * w * np.cos(w * t + np.arange(robot.nv))
    return t, q - 0.005, dq, (q, dq, -w * w * q)


def without_limits(robot: th.Robot) -> th.Robot:
    nodes = tuple(
        replace(node, joint=Joint(replace(node.limits, effort=(0.0, np.inf)[k % 2])))
        for k, node in enumerate(robot.tree.nodes)
    )
    return replace(robot, tree=Tree(nodes))


def test_a_position_one_radian_off_for_a_cycle_changes_no_command() -> None:
    """Unguarded it commanded 622 N·m on a joint of 175."""
    robot = load("arm7")
    for law in (ComputedTorque(robot), GravityCompensation(robot), SlotineLi(robot)):
        for k in range(20):
            before = law(*moving(robot, k))
        t, q, dq, wanted = moving(robot, 20)
        for joint in range(robot.nv):
            wrong = q.copy()
            wrong[joint] += 1.0
            assert np.array_equal(law(t, wrong, dq, wanted), before)
            assert robot.joint_names[joint] in law.fault
        fast = dq.copy()
        fast[0] = 1e9
        assert np.array_equal(law(t, q, fast, wanted), before)
        after = law(*moving(robot, 21))
        assert law.fault == ""
        assert np.max(np.abs(after - before)) < 0.05 * np.max(np.abs(before))


def test_unusable_samples_hold_for_20_ms_then_fade_to_gravity_compensation() -> None:
    robot = load("arm7")
    law = ComputedTorque(robot)
    for k in range(50):
        held = law(*moving(robot, k))
    _, q, dq, wanted = moving(robot, 49)
    commands = []
    for k in range(50, 450):
        commands.append(law(k * DT, np.full(robot.nv, np.nan), dq, wanted))
    age = DT * np.arange(400)
    gravity = th.gravity(robot, q)
    inertia = np.diag(th.mass_matrix(robot, q))
    for command, s in zip(commands, age, strict=True):
        share = np.clip((s - HOLD) / FADE, 0.0, 1.0)
        damped = gravity - inertia / 0.1 * np.exp(-s / 0.1) * dq
        assert np.allclose(command, (1.0 - share) * held + share * damped, atol=1e-9)
    back = [law(*moving(robot, k)) for k in range(450, 650)]
    assert law.fault == ""
    assert np.allclose(back[0], commands[-1], atol=0.05), "no jump when samples come again"
    plain = ComputedTorque(robot)
    expected = [plain(*moving(robot, k)) for k in range(450, 650)]
    assert np.array_equal(back[110], expected[110]), "the law alone, 100 ms later"


def test_a_position_elsewhere_is_believed_when_it_stays_there() -> None:
    robot = load("arm4")
    law, plain = ComputedTorque(robot), ComputedTorque(robot)
    for k in range(20):
        law(*moving(robot, k))
    faults = 0
    for k in range(20, 400):
        t, q, dq, wanted = moving(robot, k)
        command, expected = (c(t, q + 3.0, dq, wanted) for c in (law, plain))
        faults += bool(law.fault)
    assert CONFIRMED / DT - 2 <= faults <= CONFIRMED / DT + 2
    assert np.array_equal(command, expected)
    rng = np.random.default_rng(3)
    for k in range(400, 1400):
        t, q, dq, wanted = moving(robot, k)
        law(t, q + rng.uniform(-90.0, 90.0, robot.nv), dq, wanted)
        assert law.fault, "no two agree: none of them is believed, however long it goes on"


def test_limits_that_a_file_does_not_state_are_bounds_from_the_model_and_said_aloud() -> None:
    robot = without_limits(load("arm7"))
    law = ComputedTorque(robot)
    assert np.array_equal(law.limits, torque_bound(robot))
    assert np.all(np.isfinite(law.limits))
    q = th.random_configuration(robot, np.random.default_rng(7), 500)
    assert np.all(law.limits > np.max(np.abs(th.gravity(robot, q)), axis=0))
    assert "states no effort limit of 7 of its 7 joints" in law.notes[0]
    assert ComputedTorque(load("arm7")).notes == ()


def test_an_identified_controller_keeps_the_nominal_bounds_and_falls_back_to_nominal_gravity() -> (
    None
):
    nominal = without_limits(load("arm7"))
    heavy = nominal.with_parameters(1.5 * nominal.theta)
    source = _Source(nominal)
    law = ModelSwitch(source, lambda robot: ComputedTorque(robot), slew=1e6)
    bounds = law.limits.copy()
    for k in range(10):
        law(*moving(nominal, k))
    source.show(heavy)
    for k in range(10, 100):
        held = law(*moving(nominal, k))
    assert law.identified
    assert np.array_equal(law.limits, bounds)
    _, q, dq, wanted = moving(nominal, 99)
    source.turn_away(heavy)
    commands = [law(k * DT, q + 3.0, 100.0 * dq, wanted) for k in range(100, 1100)]
    assert np.array_equal(commands[0], held)
    assert np.allclose(commands[-1], th.gravity(nominal, q), atol=1e-2)


class _Source:
    """Verdicts on demand."""

    def __init__(self, nominal: th.Robot) -> None:
        self.verdict = SampleVerdict(True, "", GateState(False, "closed"), nominal)

    def show(self, robot: th.Robot) -> None:
        self.verdict = SampleVerdict(True, "", GateState(True, "open"), robot)

    def turn_away(self, robot: th.Robot) -> None:
        self.verdict = SampleVerdict(False, "a spike", GateState(True, "open"), robot)


@pytest.mark.parametrize("name", ["arm4", "arm7"])
def test_commands_are_finite_and_inside_the_limits_on_adversarial_samples(name: str) -> None:
    """Seeded garbage in any channel, verdicts and models that change: 3,000 cycles."""
    nominal, rng = load(name), np.random.default_rng(19)
    heavy, source = nominal.with_parameters(1.4 * nominal.theta), _Source(nominal)
    laws = [
        ModelSwitch(source, lambda robot: ComputedTorque(robot)),
        ComputedTorque(nominal),
        SlotineLi(nominal),
        GravityCompensation(nominal),
    ]
    effort = np.array([node.limits.effort for node in nominal.tree.independent])
    garbage = np.array([np.nan, np.inf, -np.inf, 1e308, -1e9, 1e3, 1.0, -0.3, 0.05, 1e-300])
    for k in range(3000):
        t, *arrays, wanted = moving(nominal, k)
        for array in arrays:
            if rng.random() < 0.2:
                array[rng.integers(nominal.nv)] = rng.choice(garbage)
        if rng.random() < 0.02:
            t = rng.choice([np.nan, -1.0, 1e9, t - 0.3])
        if rng.random() < 0.02:
            [source.show, source.turn_away][rng.integers(2)]([nominal, heavy][rng.integers(2)])
        for law in laws:
            command = law(t, *arrays, wanted)
            assert np.all(np.isfinite(command))
            assert np.all(np.abs(command) <= effort)


def test_speeds_are_bounded_by_the_file_or_by_what_is_given() -> None:
    robot = load("arm7")
    stated = np.array([node.limits.velocity for node in robot.tree.independent])
    assert np.array_equal(speed_bounds(robot, None), np.maximum(3.0 * stated, 10.0))
    assert np.array_equal(speed_bounds(robot, 7.0), np.full(7, 7.0))
    free = replace(
        robot,
        tree=Tree(tuple(replace(node, joint=Joint(Limits())) for node in robot.tree.nodes)),
    )
    assert np.array_equal(speed_bounds(free, None), np.full(7, 50.0))
