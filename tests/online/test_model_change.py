"""The loud check beside the gate: models beyond a factor of two, and signals that do not agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from plant_cases import load, sines

import thetahat as th
from thetahat.connect.control_run import ControlRun, ControlSettings
from thetahat.connect.sim import PlantedDifferences, SimulatedRobot
from thetahat.control.online_control import Measured
from thetahat.errors import UsageError
from thetahat.excite.trajectories import Moves
from thetahat.online.config import GateRules
from thetahat.online.model_change import model_change, surprises
from thetahat.online.signal_check import SpeedCheck, TorqueCheck
from thetahat.plant.realism import Payload

RATE = 30.0  # [Hz] of comparisons


def motion(robot: th.Robot, seconds: float = 4.0) -> tuple[np.ndarray, ...]:
    t = np.arange(0.0, seconds, 1.0 / RATE)
    return t, *sines(robot, seed=1, duration=seconds).at(t)


# -- the model -------------------------------------------------------------------------------------


def said(factor: float, *, expect: tuple[str, ...] = ()) -> str:
    robot = load("arm7").without_drive()
    _, q, dq, ddq = motion(robot)
    changed = robot.with_parameters(factor * robot.theta)
    change = model_change(robot, changed, q, dq, ddq)
    assert change is not None
    assert np.nanmax(np.abs(change.torque - factor)) < 1e-9
    assert change.mass == pytest.approx(factor)
    return surprises(change, robot.joint_names, expect)


@pytest.mark.parametrize("factor", [0.15, 0.4, 2.5, 3.0, 10.0])
def test_a_robot_beyond_a_factor_of_two_must_be_expected(factor: float) -> None:
    sentence = said(factor)
    assert f"{factor:.2g} times" in sentence
    assert 'expect=("torque",)' in sentence
    assert said(factor, expect=("torque",)) == ""
    assert said(factor, expect=("payload",)) != "", "no payload scales all joints alike"


@pytest.mark.parametrize("factor", [0.6, 0.8, 1.0, 1.25, 1.8])
def test_a_robot_within_it_passes(factor: float) -> None:
    assert said(factor) == ""


def test_gravity_that_is_gone_and_a_payload_are_told_apart() -> None:
    robot = load("arm7").without_drive()
    _, q, dq, ddq = motion(robot)
    rng = np.random.default_rng(0)
    weightless = th.Samples(
        q=q, dq=dq, ddq=ddq, tau=th.inverse_dynamics(robot, q, dq, ddq) - th.gravity(robot, q)
    )
    estimate = th.solve(th.information(robot, weightless), th.Consistent(prior=robot))
    change = model_change(robot, robot.with_parameters(estimate), q, dq, ddq)
    assert change is not None
    assert surprises(change, robot.joint_names, ("payload",)) != ""
    loaded = Payload(robot.body_names[-1], 4.0, (0.0, 0.0, 0.1)).on(robot)
    change = model_change(robot, loaded, q, dq, ddq)
    assert change is not None
    assert np.nanmax(change.torque) > 2.0
    assert surprises(change, robot.joint_names, ()) != ""
    assert surprises(change, robot.joint_names, ("payload",)) == ""
    few = rng.normal(size=(5, robot.nv))
    assert model_change(robot, loaded, few, few, few) is None


def test_what_is_expected_is_checked() -> None:
    with pytest.raises(UsageError, match="expect has 'snow'"):
        GateRules(expect=("snow",))


# -- signals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("speeds", "stamps", "wrong"),
    [(1.0, 1.0, False), (0.5, 1.0, True), (2.0, 1.0, True), (1.0, 2.0, True), (1.1, 1.0, False)],
)
def test_speeds_and_stamps_that_do_not_agree_are_named(
    speeds: float, stamps: float, wrong: bool
) -> None:
    robot = load("arm7")
    check = SpeedCheck(robot.joint_names, np.full(7, 0.02))
    rng = np.random.default_rng(0)
    for t, q, dq, _ in zip(*motion(robot, 6.0), strict=True):
        noisy = q + 1e-4 * rng.normal(size=7)
        check.add(stamps * t, noisy, speeds * dq + 0.01 * rng.normal(size=7))
    assert bool(check.sentence) == wrong, check.sentence


def compared(change: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> str:
    """What is said of measured torques that are made from commanded ones and gravity, (n, nv)."""
    robot, rng = load("arm7"), np.random.default_rng(0)
    check = TorqueCheck(robot.joint_names)
    t, q, dq, ddq = motion(robot, 8.0)
    commanded = 1.1 * th.inverse_dynamics(robot, q, dq, ddq)
    gravity = th.gravity(robot, q)
    measured = change(commanded, 1.1 * gravity) + 0.01 * rng.normal(size=commanded.shape)
    for k in range(len(t)):
        check.add(commanded[k], measured[k])
        check.tick(t[k], check.latest(), gravity[k], dq[k])
    return check.sentence


def test_friction_between_motor_and_sensor_is_no_scale_and_no_offset() -> None:
    robot = load("arm7")
    _, _, dq, _ = motion(robot, 8.0)

    def behind_the_gear(c: np.ndarray, _: np.ndarray) -> np.ndarray:
        return c - 0.35 * np.sqrt(np.mean(c**2, axis=0)) * np.sign(dq)

    assert compared(behind_the_gear) == ""


def swapped(c: np.ndarray, _: np.ndarray) -> np.ndarray:
    return c[:, [0, 3, 2, 1, 4, 5, 6]]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c, g: c, ""),
        (lambda c, g: 0.95 * c + 0.05, ""),
        (lambda c, g: 0.8 * c, "0.8 times the commanded"),
        (lambda c, g: c + 0.4 * np.sqrt(np.mean(c**2, axis=0)), "off the commanded one by"),
        (lambda c, g: 3.0 * c, "3 times the commanded"),
        (lambda c, g: 0.15 * c, "0.15 times the commanded"),
        (lambda c, g: -c, "runs against"),
        (lambda c, g: c - g, "without gravity"),
        (swapped, "follows the command|runs against|times the commanded"),
    ],
)
def test_measured_torques_that_are_not_the_commanded_ones_are_named(
    change: Callable[[np.ndarray, np.ndarray], np.ndarray], words: str
) -> None:
    sentence = compared(change)
    if not words:
        assert sentence == ""
    else:
        assert any(each in sentence for each in words.split("|")), sentence


# -- in closed loop --------------------------------------------------------------------------------


class Spoiled(SimulatedRobot):
    """A simulated robot whose samples are changed on their way."""

    change: Callable[[Measured, np.ndarray], Measured]

    def read(self) -> Measured | None:
        sample = super().read()
        assert sample is not None
        return self.change(sample, th.gravity(self.plant.robot, sample.q))


SPOILED: dict[str, Callable[[Measured, np.ndarray], Measured]] = {
    "torque × 3": lambda s, g: replace(s, tau=3.0 * s.tau),
    "gravity removed": lambda s, g: replace(s, tau=s.tau - g),
    "half speeds": lambda s, g: replace(s, dq=0.5 * s.dq),
    "one joint × 4": lambda s, g: replace(s, tau=s.tau * np.array([1.0, 4.0, 1.0, 1.0])),
    "double stamps": lambda s, g: replace(s, t=2.0 * s.t),
    "torque × 0.15": lambda s, g: replace(s, tau=0.15 * s.tau),
}
SLOW = ("double stamps", "torque × 0.15", "one joint × 4")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in SPOILED]
)
def test_spoiled_streams_are_never_in_charge_for_longer_than_a_second(name: str) -> None:
    robot = load("arm4")
    limits = [node.limits for node in robot.tree.independent]
    centre = np.array([0.5 * (limit.lower + limit.upper) for limit in limits])
    points = centre + np.random.default_rng(0).uniform(-0.6, 0.6, (5, 4))
    points[-1] = points[0]
    moves = Moves(robot.joint_names, points, np.full(4, 0.75), 0.0)
    differences = PlantedDifferences()
    inner = SimulatedRobot.of(robot, differences, engine="own", rate=500.0)
    connection = Spoiled(inner.plant, rate=500.0)
    connection.change = SPOILED[name]
    settings = ControlSettings(rate=500.0, duration=6.0, updates=10.0, window=30)
    run = ControlRun(robot, connection, moves, settings)
    connection.start(run.wanted(0.0)[0])
    result = run.run()
    assert np.count_nonzero(result.tracking.identified) <= 500, result.stream.gate
