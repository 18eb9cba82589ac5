"""Logs of floating robots: pose and twist of the base, wrenches and contact flags."""

from __future__ import annotations

import numpy as np
import pytest
from floating_robots import FEET, floating, standing, standing_log

import thetahat as th
from thetahat.data.memory_log import log_from_table
from thetahat.data.units import ScaledUnits
from thetahat.dynamics.link_forces import generalised_forces, link_place
from thetahat.errors import MalformedInput
from thetahat.model.floating_base import base_dofs, with_ground
from thetahat.model.robot import Robot
from thetahat.plant.stance import StandingMotion

CHANNELS = ("fx", "fy", "fz", "tx", "ty", "tz")


@pytest.fixture(scope="module")
def swaying() -> tuple[Robot, StandingMotion]:
    return standing("solo12", duration=6.0)


def test_wrenches_become_torques_of_all_joints(swaying: tuple[Robot, StandingMotion]) -> None:
    robot, motion = swaying
    columns = standing_log(robot, motion, wrenches=True)
    log = log_from_table(columns, with_ground(robot, FEET["solo12"], ()))
    (chunk,) = log.read()
    expected = th.inverse_dynamics(robot, motion.q, motion.dq, motion.ddq)
    assert chunk.tau is not None
    assert np.max(np.abs(chunk.tau - expected)) < 1e-9 * np.max(np.abs(expected))


def test_wrenches_in_the_worlds_axes_and_other_units(
    swaying: tuple[Robot, StandingMotion],
) -> None:
    robot, motion = swaying
    columns = standing_log(robot, motion, wrenches=True)
    turned = dict(columns)
    for link in FEET["solo12"]:
        R, _ = link_place(robot, motion.q, link)
        for part in (CHANNELS[:3], CHANNELS[3:]):
            values = np.column_stack([columns[f"wrench.{link}.{name}"] for name in part])
            for name, column in zip(part, (R @ values[..., None])[..., 0].T, strict=True):
                turned[f"wrench.{link}.{name}"] = -column
    ground = with_ground(robot, FEET["solo12"], ())
    plain = log_from_table(columns, ground).read()[0]
    units = ScaledUnits("wrench=-1", (), "world")
    other = log_from_table(turned, ground, units=units).read()[0]
    assert plain.tau is not None
    assert other.tau is not None
    np.testing.assert_allclose(other.tau, plain.tau, atol=1e-9)


def test_no_motor_drives_the_base(swaying: tuple[Robot, StandingMotion]) -> None:
    robot, motion = swaying
    log = log_from_table(standing_log(robot, motion, wrenches=False), robot)
    (chunk,) = log.read()
    assert chunk.tau is not None
    assert chunk.contact is not None
    assert np.all(chunk.tau[:, list(base_dofs(robot))] == 0.0)
    assert not [mask for mask in log.masks if mask.joint in base_dofs(robot)]
    assert np.all(chunk.contact == 1.0)


def test_rates_of_the_base_are_filtered_on_se3(swaying: tuple[Robot, StandingMotion]) -> None:
    """Whatever signs quaternions have, and whether or not the twist is logged."""
    robot, motion = swaying
    columns = standing_log(robot, motion, wrenches=False)
    flipped = dict(columns)
    signs = np.where(np.arange(len(motion.t)) % 3 == 0, -1.0, 1.0)
    for name in ("qx", "qy", "qz", "qw"):
        flipped[f"base.{name}"] = signs * columns[f"base.{name}"]
    measured = dict(columns)
    for k, name in enumerate(("wx", "wy", "wz", "vx", "vy", "vz")):
        measured[f"base.{name}"] = motion.dq[:, k]
    for node in robot.tree.independent[1:]:
        measured[f"dq.{node.name}"] = motion.dq[:, robot.tree.v_index[node.name]]
    inner = slice(100, -100)
    for table in (columns, flipped, measured):
        samples = th.prepare(log_from_table(table, robot), robot, cutoff=10.0)
        assert np.max(np.abs(samples.dq[inner] - motion.dq[inner])) < 2e-3
        assert np.max(np.abs(samples.ddq[inner] - motion.ddq[inner])) < 5e-2


def test_a_foot_is_down_wherever_the_filter_reaches_a_contact(
    swaying: tuple[Robot, StandingMotion],
) -> None:
    robot, motion = swaying
    columns = standing_log(robot, motion, wrenches=False)
    flags = np.ones(len(motion.t))
    flags[200:400] = 0.0
    columns[f"contact.{FEET['solo12'][1]}"] = flags
    samples = th.prepare(log_from_table(columns, robot), robot, cutoff=10.0)
    assert samples.contact is not None
    up = np.flatnonzero(~samples.contact[:, 1])
    assert 200 < up[0] < 260  # not before the filter has left the contact behind
    assert 340 < up[-1] < 399
    assert np.array_equal(up, np.arange(up[0], up[-1] + 1))
    assert samples.contact[:, [0, 2, 3]].all()


def test_a_missing_pose_is_named(swaying: tuple[Robot, StandingMotion]) -> None:
    robot, motion = swaying
    columns = standing_log(robot, motion, wrenches=False)
    for gone in ("base.x", "base.qw"):
        left = {name: values for name, values in columns.items() if name != gone}
        with pytest.raises(MalformedInput, match=f"no column '{gone}'.*pose of the root link"):
            log_from_table(left, robot)


def test_generalised_forces_of_nothing_are_zero() -> None:
    robot = floating("solo12")
    assert not generalised_forces(robot, robot.neutral[None], {}).any()
