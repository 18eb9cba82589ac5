"""A wrist sensor's rows of the regressor against Pinocchio's joint wrenches."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

import thetahat as th
from thetahat import robots
from thetahat.dynamics import rigid_body
from thetahat.model.wrench_sensors import (
    CHANNELS,
    sensor_joint,
    with_wrench_sensors,
    without_wrench_sensors,
)

pin = pytest.importorskip("pinocchio")
CASES = (("arm7", "tool"), ("arm7", "flange"), ("arm7", "link4"), ("arm4", "hand"))


def _states(robot: th.Robot, count: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(3)
    return tuple(rng.uniform(-2.0, 2.0, (count, robot.nv)) for _ in range(3))


def _spread(robot: th.Robot, plain: th.Robot, values: np.ndarray) -> np.ndarray:
    out = np.zeros((len(values), robot.nv))
    for j, name in enumerate(plain.joint_names):
        out[:, robot.tree.v_index[name]] = values[:, j]
    return out


def _pinocchio_wrenches(name: str, link: str, states: tuple[np.ndarray, ...]) -> np.ndarray:
    """fx … tz that the joint above the link transmits; fixed joints that turn, but stand still."""
    text = robots.path(name).read_text().replace('type="fixed">', 'type="continuous">')
    model = pin.buildModelFromXML(text)
    data, frame = model.createData(), model.frames[model.getFrameId(link)]
    plain = th.load(robots.path(name))
    out = np.empty((len(states[0]), 6))
    for k, (q, dq, ddq) in enumerate(zip(*states, strict=True)):
        full = [pin.neutral(model), np.zeros(model.nv), np.zeros(model.nv)]
        for j, joint in enumerate(plain.joint_names):
            at = model.joints[model.getJointId(joint)]
            full[0][at.idx_q], full[1][at.idx_v], full[2][at.idx_v] = q[j], dq[j], ddq[j]
        pin.rnea(model, data, *full)
        out[k] = frame.placement.actInv(data.f[frame.parentJoint]).vector
    return out


@pytest.mark.parametrize(("name", "link"), CASES)
def test_the_six_rows_are_the_wrench_that_the_joint_above_the_link_transmits(
    name: str, link: str
) -> None:
    plain = th.load(robots.path(name))
    robot = with_wrench_sensors(plain, [link])
    states = _states(plain, 20)
    Y = rigid_body.regressor(robot, *(_spread(robot, plain, each) for each in states))
    at = [robot.tree.v_index[sensor_joint(link, channel)] for channel in CHANNELS]
    wrench = (Y @ robot.theta)[:, at]
    expected = _pinocchio_wrenches(name, link, states)
    assert_allclose(wrench, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
    torque = rigid_body.inverse_dynamics(plain, *states, rigid=True)
    own = [robot.tree.v_index[joint] for joint in plain.joint_names]
    assert_allclose((Y @ robot.theta)[:, own], torque, atol=1e-12 * np.abs(torque).max())


@pytest.mark.parametrize(("name", "link"), CASES)
def test_without_its_sensor_the_robot_is_what_it_was(name: str, link: str) -> None:
    plain = th.load(robots.path(name))
    again = without_wrench_sensors(with_wrench_sensors(plain, [link]))
    assert again.body_names == plain.body_names
    assert [node.name for node in again.tree.nodes] == [node.name for node in plain.tree.nodes]
    assert_allclose(again.theta, plain.theta, atol=1e-13)
    for a, b in zip(again.links, plain.links, strict=True):
        assert (a.name, a.body) == (b.name, b.body)
        assert_allclose(a.translation, b.translation, atol=1e-13)


def test_a_sensor_tells_what_it_carries_from_what_carries_it() -> None:
    plain = th.load(robots.path("arm7"))
    robot = with_wrench_sensors(plain, ["tool"])
    base = robot.with_drive(offset=True).base_parameters
    ten = [base.kinds[k] for k in range(10 * robot.body_index("tool"), len(robot.theta))]
    assert set(ten) == {"alone"}
    names = [k for k, name in enumerate(base.column_names) if name.startswith("offset")]
    bias = {base.kinds[k] for k in names if "wrench" in str(base.column_names[k])}
    assert bias <= {"alone"}
    rest = plain.with_drive(offset=True).base_parameters
    assert base.count == rest.count + 10 + 6
