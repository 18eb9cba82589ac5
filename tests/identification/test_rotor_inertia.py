"""Rotor inertia motor by motor: found where it is, not invented where it is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from simulated_log import motion

import thetahat as th
from thetahat import robots
from thetahat.data.memory_log import log_from_arrays
from thetahat.identification.parameter_columns import Columns
from thetahat.identification.tuning.tune import TuningOptions
from thetahat.model.robot import Robot

RATE = 200.0
ROTORS = np.array([0.0, 0.6, 0.0, 0.2])  # [kg·m²] of the arm's four motors


def recorded(rotors: np.ndarray, *, wrong: float = 0.0, noise: float = 0.05):
    """The shipped arm's file, wrong by a share, and a log of the arm with these rotors."""
    robot = th.load(robots.path("arm4")).without_drive()
    t, q, dq, ddq = motion(4, seconds=20.0, rate=RATE)
    rng = np.random.default_rng(5)
    tau = th.inverse_dynamics(robot, q, dq, ddq, rigid=True)
    tau += 0.5 * dq + 2.0 * np.sign(dq) + rotors * ddq
    tau += noise * rng.standard_normal(tau.shape)
    scale = np.repeat(1.0 + wrong * np.array([0.7, -1.0, 1.0, -0.6]), 10)
    return robot.with_parameters(robot.theta * scale), log_from_arrays(
        robot, t, q, tau=tau, name="arm"
    )


def found_rotors(robot: Robot, log, **options) -> tuple[np.ndarray, th.Estimate, tuple[str, ...]]:
    tuned = th.tune(log, robot, TuningOptions(cutoff=8.0, delay=False, friction=None, **options))
    samples = th.prepare(log, robot, settings=tuned.settings)
    estimate = th.solve(th.information(tuned.robot, samples), tuned.estimator(robot.theta))
    values = tuned.robot.with_parameters(estimate).drive.armature
    return np.asarray(values), estimate, tuned.reasons


@pytest.mark.parametrize("wrong", [0.0, 0.25])
def test_planted_rotors_are_found_and_none_is_invented(wrong: float) -> None:
    robot, log = recorded(ROTORS, wrong=wrong)
    values, estimate, reasons = found_rotors(robot, log)
    np.testing.assert_allclose(values[[1, 3]], ROTORS[[1, 3]], rtol=0.15)
    assert values[2] < 0.02
    assert estimate.consistent
    sentences = [each for each in reasons if each.startswith("Rotor inertia of")]
    assert len(sentences) == 4
    assert sum("not fitted: ΔBIC" in each for each in sentences) >= 1


def test_a_robot_without_rotors_gets_none() -> None:
    robot, log = recorded(np.zeros(4), wrong=0.1)
    values, _, _ = found_rotors(robot, log)
    assert np.all(values < 0.02), values


def test_one_negative_rotor_does_not_reject_the_others() -> None:
    """A joint whose torque falls with its acceleration: no rotor there, and the others as before."""
    robot, log = recorded(ROTORS - np.array([0.0, 0.0, 0.05, 0.0]))
    values, _, _ = found_rotors(robot, log)
    np.testing.assert_allclose(values[[1, 3]], ROTORS[[1, 3]], rtol=0.15)
    assert values[2] == 0.0


def test_a_stated_rotor_is_its_own_prior() -> None:
    """Where the motion cannot tell, the file's value stays."""
    stated = np.array([0.3, 0.6, 0.0, 0.2])
    robot, log = recorded(stated)
    file = replace(robot, drive=robot.drive.with_values(armature=stated))
    tuned = th.tune(log, file, TuningOptions(cutoff=8.0, delay=False, friction=None))
    assert tuned.robot.drive.rotors is not None
    assert {0, 1, 3} <= set(tuned.robot.drive.rotors)
    samples = th.prepare(log, file, settings=tuned.settings)
    information = th.information(tuned.robot, samples)
    x0 = np.concatenate([file.theta, np.zeros(Columns(tuned.robot).count - len(file.theta))])
    at = list(Columns(tuned.robot).names).index
    for name, value in zip(file.joint_names, stated, strict=True):
        x0[at(f"armature_{name}")] = value
    estimate = th.solve(information, tuned.estimator(x0))
    np.testing.assert_allclose(estimate.drive["armature"][[0, 1, 3]], stated[[0, 1, 3]], rtol=0.15)


def test_columns_of_rotors_that_are_not_fitted_are_zero() -> None:
    robot = th.load(robots.path("arm4")).without_drive().with_drive(viscous=True, armature=True)
    some = robot.with_rotors((1, 3))
    dq, ddq = np.random.default_rng(0).standard_normal((2, 6, 4))
    q = np.zeros((6, 4))
    whole, part = (Columns(each).drive_columns(q, dq, ddq) for each in (robot, some))
    np.testing.assert_array_equal(part[..., [4, 6]], 0.0)
    np.testing.assert_array_equal(part[..., [5, 7]], whole[..., [5, 7]])
    assert robot.with_rotors(()).drive.identified == ("viscous",)
