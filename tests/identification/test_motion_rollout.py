"""Simulated motion against plants that nobody here tuned it to: errors by horizon, windows of rows,
and the verdict on motion that is worse than the nominal robot's.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import thetahat as th
from thetahat import robots
from thetahat.data.samples import Samples
from thetahat.identification.motion_rollout import TorqueWindows, torque_rollout
from thetahat.identification.next_steps import Commands
from thetahat.identification.rollout_errors import HORIZONS, RolloutErrors
from thetahat.identification.verdict_rollout import rollout_reasons
from thetahat.model.friction_terms import FrictionDirection, by_load, quadratic, spring, stribeck
from thetahat.model.robot import Robot
from thetahat.plant.plant import MujocoPlant, OwnPlant
from thetahat.plant.simulate import simulate


class Wave:
    """A sine of every joint."""

    def __init__(self, duration: float, joints: int = 4) -> None:
        self.duration, self._w = duration, 1.2 * np.array([1.0, 1.7, 2.3, 3.1])[:joints]

    def at(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        w, t = self._w, np.asarray(t)[:, None]
        return 0.6 * np.sin(w * t), 0.6 * w * np.cos(w * t), -0.6 * w * w * np.sin(w * t)


def arm() -> Robot:
    robot = th.load(robots.path("arm4"))
    values = {"viscous": 0.5, "coulomb": 0.3, "armature": 0.05}
    drive = robot.drive.with_values(**{name: np.full(4, v) for name, v in values.items()})
    return replace(robot, drive=drive)


def recorded(plant: OwnPlant | MujocoPlant, seconds: float = 6.0, rate: float = 1000.0) -> Samples:
    run = simulate(plant, Wave(seconds), rate=rate)
    return Samples(q=run.q, dq=run.dq, ddq=run.ddq, tau=run.tau, t=run.t)


def errors(robot: Robot, samples: Samples, nominal: Robot | None = None) -> RolloutErrors:
    windows = TorqueWindows(robot)
    windows.add(samples)
    found = torque_rollout(robot, windows.stretches, nominal)
    assert found is not None
    return found


@pytest.mark.parametrize("plant", [OwnPlant, MujocoPlant])
def test_the_true_robot_moves_as_the_plant_does(plant: type[OwnPlant | MujocoPlant]) -> None:
    """Steps of 4 ms and torques that plants hold between rows: an error of h²·jerk, not of h."""
    if plant is MujocoPlant:
        pytest.importorskip("mujoco", reason="MuJoCo is the plant (pip install mujoco)")
    robot = arm()
    found = errors(robot, recorded(plant(robot)), robot.with_parameters(1.1 * robot.theta))
    assert found.horizons == HORIZONS
    assert np.max(found.model[0].rms) < 5e-4
    assert np.max(found.model[1].rms) < 1e-2
    compared = found.comparison
    assert compared is not None
    assert compared.ratio < 0.1
    assert compared.starts >= 10
    assert not compared.worse


def test_drive_terms_are_those_of_the_drive() -> None:
    """Torques computed by `inverse_dynamics` along a motion move every drive along that motion."""
    base = arm()
    t = np.arange(0.0, 2.5, 1e-3)
    q, dq, ddq = Wave(2.5).at(t)
    terms = {
        "quadratic": base.drive.with_extra_term(quadratic(np.ones(4)), 0.2),
        "stribeck": base.drive.with_extra_term(stribeck(np.full(4, 0.3)), 0.2),
        "load": base.drive.with_extra_term(by_load(np.ones(4)), 0.1),
        "spring": base.drive.with_extra_term(spring(np.ones(4)), 5.0),
        "zone": base.drive.with_dry(FrictionDirection(np.full(4, 0.2), np.zeros(4))),
    }
    for name, drive in terms.items():
        robot = replace(base, drive=drive)
        tau = th.inverse_dynamics(robot, q, dq, ddq)
        samples = Samples(q=q, dq=dq, ddq=ddq, tau=tau, t=t)
        mine = errors(robot, samples, replace(base, drive=base.drive))
        assert np.max(mine.model[0].rms) < 1e-3, name
        assert mine.nominal is not None
        assert np.max(mine.nominal[0].rms) > 3.0 * np.max(mine.model[0].rms), name


def test_coupled_motors_have_their_friction_at_the_motors() -> None:
    base = arm()
    B = np.eye(4)
    B[3, 2] = 1.0
    robot = base.without_drive().with_actuation(B)
    values = {"viscous": 0.5, "coulomb": 0.3, "armature": 0.05}
    drive = robot.drive.with_values(**{name: np.full(4, v) for name, v in values.items()})
    robot = replace(robot, drive=drive)
    t = np.arange(0.0, 2.5, 1e-3)
    q, dq, ddq = Wave(2.5).at(t)
    samples = Samples(q=q, dq=dq, ddq=ddq, tau=th.inverse_dynamics(robot, q, dq, ddq), t=t)
    mine, others = errors(robot, samples), errors(base, samples)
    assert np.max(mine.model[0].rms) < 1e-3
    assert np.max(others.model[0].rms) > 3.0 * np.max(mine.model[0].rms)


def test_dry_friction_holds_a_joint() -> None:
    robot = arm()
    drive = robot.drive.with_values(coulomb=np.full(4, 1e3))
    held = replace(robot, drive=drive)
    t = np.arange(0.0, 1.0, 1e-3)
    q = np.tile(robot.neutral + 0.3, (len(t), 1))
    still = np.zeros_like(q)
    found = errors(held, Samples(q=q, dq=still, ddq=still, tau=still + 5.0, t=t))
    assert max(np.max(each.rms) for each in found.model) < 1e-9


@pytest.mark.parametrize("size", [1, 7, 997, 5000])
def test_how_rows_are_cut_into_batches_changes_nothing(size: int) -> None:
    rng = np.random.default_rng(0)
    t = np.concatenate([np.arange(0, 7.0, 2e-3), 20.0 + np.arange(0, 11.0, 2e-3)])
    x = rng.normal(size=(len(t), 4))
    samples = Samples(q=x, dq=x, ddq=x, tau=x, t=t)
    robot = arm()
    whole, parts = TorqueWindows(robot), TorqueWindows(robot)
    whole.add(samples)
    for first in range(0, len(t), max(size, 2)):
        parts.add(samples.subset(slice(first, first + max(size, 2))))
    spans = [(each.t[0], each.t[-1]) for each in whole.stretches]
    assert [round(b - a, 3) for a, b in spans] == [5.0, 1.998, 5.0, 5.0, 0.998]
    for a, b in zip(whole.stretches, parts.stretches, strict=True):
        np.testing.assert_array_equal(a.t, b.t)
        np.testing.assert_array_equal(a.q, b.q)


def test_long_logs_are_thinned_evenly() -> None:
    robot = arm()
    windows = TorqueWindows(robot)
    for hour in range(20):
        t = 100.0 * hour + np.arange(0, 100.0, 0.1)
        x = np.zeros((len(t), 4))
        windows.add(Samples(q=x, dq=x, ddq=x, tau=x, t=t))
    begins = [each.t[0] for each in windows.stretches]
    assert 6 <= len(begins) <= 12
    assert np.ptp(np.diff(begins)) < 6.0
    assert begins[-1] > 1500.0


def test_motion_worse_than_nominal_is_not_good() -> None:
    """The verdict names it, and only then."""
    robot = arm()
    samples = recorded(OwnPlant(robot))
    wrong = robot.with_parameters(1.1 * robot.theta)
    for model, nominal, worse in (
        (wrong, robot, True),
        (robot, wrong, False),
        (robot, robot, False),
    ):
        data = {"rollout": errors(model, samples, nominal).as_data()}
        reasons = list(rollout_reasons(data, Commands()))
        assert bool(reasons) == worse
        if worse:
            assert "simulated motion is worse" in reasons[0].text
    assert not list(rollout_reasons({"rollout": None}, Commands()))


def test_rows_without_all_torques_are_not_simulated() -> None:
    robot = arm()
    samples = recorded(OwnPlant(robot), seconds=1.5)
    reason = np.zeros(samples.tau.shape, dtype=np.uint8)
    reason[:, 2] = 9  # no torque column
    windows = TorqueWindows(robot)
    windows.add(replace(samples, reason=reason))
    assert torque_rollout(robot, windows.stretches) is None
