"""The prior vector: what a robot file says of every column of the fitted robot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from thetahat.errors import UsageError
from thetahat.identification.parameter_columns import Columns, prior_vector
from thetahat.model.io.load import load
from thetahat.model.robot import Robot
from thetahat.robots import path

FREE = """<mujoco><worldbody><body name="base"><freejoint name="free"/>
<inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>
<body name="link"><joint name="hinge" type="hinge" axis="0 1 0" damping="0.3"/>
<inertial pos="0.1 0 0" mass="0.5" diaginertia="0.01 0.01 0.01"/></body></body></worldbody></mujoco>
"""


def _free_joint(folder: Path) -> Robot:
    (folder / "free.xml").write_text(FREE)
    return load(folder / "free.xml")


def test_a_free_joint_has_no_drive_columns(tmp_path: Path) -> None:
    robot = _free_joint(tmp_path)
    fitted = robot.without_drive().with_drive(viscous=True, coulomb=True, offset=True)
    prior = prior_vector(robot, fitted)
    assert prior.shape == (Columns(fitted).count,) == (23,)
    assert np.array_equal(prior, [*robot.theta, 0.3, 0.0, 0.0])


def test_friction_is_per_motor_and_nonnegative() -> None:
    robot = load(path("arm4"))
    viscous = np.array([0.1, -0.2, 0.3, 0.4])
    robot = replace(robot, drive=robot.drive.with_values(viscous=viscous))
    fitted = robot.with_drive(viscous=True)
    fitted = replace(fitted, drive=replace(fitted.drive, motors=(3, 1)))
    assert np.array_equal(prior_vector(robot, fitted)[-2:], [0.4, 0.0])


def test_an_actuation_map_has_no_stated_friction() -> None:
    robot = load(path("double_pendulum"))
    fitted = robot.without_drive().with_actuation([[1.0, 1.0], [0.0, 2.0]]).with_drive(viscous=True)
    robot = replace(robot, drive=robot.drive.with_values(viscous=np.array([0.1, 0.2])))
    assert np.array_equal(prior_vector(robot, fitted), [*robot.theta, 0.0, 0.0])


def test_another_robot_is_refused() -> None:
    with pytest.raises(UsageError, match="variant of the same robot"):
        prior_vector(load(path("arm4")), load(path("double_pendulum")))
