"""URDF files that other programs read: read as urdfdom and Pinocchio read them, with a warning that
names the line and what was taken.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import thetahat as th
from thetahat.errors import MalformedInput, RobotWarning
from thetahat.model import parameters
from thetahat.model.io.save import save
from thetahat.model.robot import Robot

pinocchio = pytest.importorskip("pinocchio", reason="Pinocchio is the oracle (pip install pin)")

GOOD = """<robot name="arm">
  <link name="base"/>
  <link name="upper">
    <inertial>
      <origin xyz="0 0.01 0.1" rpy="0.1 0 0"/>
      <mass value="2"/>
      <inertia ixx="0.02" ixy="0" ixz="0.001" iyy="0.03" iyz="0" izz="0.01"/>
    </inertial>
  </link>
  <link name="lower">
    <inertial>
      <origin xyz="0.05 0 0.2"/>
      <mass value="1"/>
      <inertia ixx="0.01" ixy="0" ixz="0" iyy="0.01" iyz="0" izz="0.01"/>
    </inertial>
  </link>
  <joint name="shoulder" type="revolute">
    <origin xyz="0 0 1"/>
    <parent link="base"/>
    <child link="upper"/>
    <axis xyz="0 1 0"/>
    <limit lower="-1" upper="1" effort="10" velocity="2"/>
    <dynamics damping="0.3" friction="0.2"/>
  </joint>
  <joint name="elbow" type="continuous">
    <origin xyz="0 0 0.3" rpy="0 0 0.2"/>
    <parent link="upper"/>
    <child link="lower"/>
    <axis xyz="0 0 1"/>
  </joint>
</robot>
"""
FIRST = {  # element → one that would change the robot, were it taken
    '<origin xyz="0 0.01 0.1" rpy="0.1 0 0"/>': '<origin xyz="1 1 1"/>',
    '<mass value="2"/>': '<mass value="7"/>',
    '<inertia ixx="0.02" ixy="0" ixz="0.001" iyy="0.03" iyz="0" izz="0.01"/>': (
        '<inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/>'
    ),
    '<origin xyz="0 0 0.3" rpy="0 0 0.2"/>': '<origin xyz="0 0 0.9"/>',
    '<axis xyz="0 1 0"/>': '<axis xyz="1 0 0"/>',
    '<limit lower="-1" upper="1" effort="10" velocity="2"/>': (
        '<limit lower="-3" upper="3" effort="1" velocity="1"/>'
    ),
    '<dynamics damping="0.3" friction="0.2"/>': '<dynamics damping="9" friction="9"/>',
    '<parent link="upper"/>': '<parent link="base"/>',
    '<child link="lower"/>': '<child link="upper"/>',
}


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def load(text: str) -> tuple[Robot, list[str]]:
    Path("arm.urdf").write_text(text)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        robot = th.load("arm.urdf")
    return robot, [str(each.message) for each in caught if each.category is RobotWarning]


def agrees_with_pinocchio(robot: Robot, text: str) -> None:
    """The same places and the same ten numbers of every body."""
    model = pinocchio.buildModelFromXML(text)
    for body, at in enumerate(robot.tree.bodies):
        node = robot.tree.nodes[at]
        index = model.getJointId(node.name)
        expected = parameters.from_pinocchio(model.inertias[index].toDynamicParameters())
        np.testing.assert_allclose(robot.theta[10 * body : 10 * body + 10], expected, atol=1e-13)
        placement = model.jointPlacements[index]
        np.testing.assert_allclose(node.translation, placement.translation, atol=1e-13)
        np.testing.assert_allclose(node.rotation, placement.rotation, atol=1e-13)


def line_of(text: str, part: str) -> int:
    return text[: text.index(part)].count("\n") + 1


@pytest.mark.parametrize("element", FIRST)
def test_the_first_of_two_elements_counts(element: str) -> None:
    plain, told = load(GOOD)
    assert told == []
    text = GOOD.replace(element, f"{element}\n{FIRST[element]}")
    robot, told = load(text)
    (sentence,) = told
    first = line_of(text, element)
    assert f"arm.urdf, line {first + 1}, " in sentence
    assert f"the first, in line {first}, is taken" in sentence
    np.testing.assert_array_equal(robot.theta, plain.theta)
    assert robot.tree.nodes[0].limits == plain.tree.nodes[0].limits
    np.testing.assert_array_equal(robot.drive.viscous, plain.drive.viscous)
    agrees_with_pinocchio(robot, text)
    swapped = GOOD.replace(element, f"{FIRST[element]}\n{element}")
    if "link=" not in element:
        agrees_with_pinocchio(load(swapped)[0], swapped)


def test_values_are_written_to_the_element_that_counts() -> None:
    text = GOOD.replace('<mass value="2"/>', '<mass value="2"/>\n<mass value="7"/>')
    robot, _ = load(text)
    heavier = robot.with_parameters(np.concatenate([1.5 * robot.theta[:10], robot.theta[10:]]))
    save(heavier, "new.urdf")
    written = Path("new.urdf").read_text()
    assert written.index('<mass value="3') < written.index('<mass value="7"/>')
    agrees_with_pinocchio(th.load("new.urdf"), written)


def test_a_mimic_without_master_is_free() -> None:
    mimic = '<mimic joint="thumb" multiplier="2"/>'
    text = GOOD.replace('<axis xyz="0 0 1"/>', f'<axis xyz="0 0 1"/>\n    {mimic}')
    robot, told = load(text)
    (sentence,) = told
    assert f"line {line_of(text, mimic)}, " in sentence
    assert "mimics joint 'thumb'" in sentence
    assert "joint 'elbow' is taken to move freely" in sentence
    assert robot.nv == 2
    agrees_with_pinocchio(robot, text)
    np.testing.assert_array_equal(robot.theta, load(GOOD)[0].theta)


def test_a_mimic_of_a_mimic_without_master_follows_it() -> None:
    text = GOOD.replace('<axis xyz="0 0 1"/>', '<axis xyz="0 0 1"/><mimic joint="shoulder"/>')
    text = text.replace('<axis xyz="0 1 0"/>', '<axis xyz="0 1 0"/><mimic joint="thumb"/>')
    robot, told = load(text)
    assert len(told) == 1
    assert robot.joint_names == ("shoulder",)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "<inertial>",
            "<inertal></inertal><inertial>",
            ["<inertal> in <link>", "2 ", "<inertial> may"],
        ),
        (
            '<axis xyz="0 0 1"/>',
            '<axis xyz="0 0 1"/><joint_properties damping="9"/>',
            ["<joint_properties>"],
        ),
        ('<robot name="arm">', '<robot name="arm"><inertial/>', ["<inertial> in <robot>"]),
        (
            'friction="0.2"',
            'friction="0.2" mu_viscous="3"',
            ["mu_viscous='3'", "only damping and friction"],
        ),
        ('<mass value="2"/>', '<mass value="2"/><density value="3"/>', ["<density> in <inertial>"]),
    ],
)
def test_unknown_elements_are_named(old: str, new: str, words: list[str]) -> None:
    text = GOOD.replace(old, new)
    robot, told = load(text)
    (sentence,) = told
    count = text.count(new)
    assert f"line {line_of(text, new)}, " in sentence
    for word in words:
        assert (f"{count - 1} more" if word == "2 " else word) in sentence, sentence
    np.testing.assert_array_equal(robot.theta, load(GOOD)[0].theta)
    agrees_with_pinocchio(robot, text)


def test_extensions_are_left_alone() -> None:
    _, told = load(
        GOOD.replace(
            "</robot>",
            '<gazebo/><transmission name="t"/><ros2_control name="c"/><drake:frame/><material name="m"/></robot>',
        )
    )
    assert told == []


def test_what_would_change_the_dynamics_is_still_refused() -> None:
    for old, new in (
        ('<inertia ixx="0.01" ixy="0" ixz="0" iyy="0.01" iyz="0" izz="0.01"/>', ""),  # no inertia
        ('<mass value="1"/>', '<mass value="1kg"/>'),
        ('name="lower"', 'name="upper"'),
        ('<parent link="upper"/>', '<parent link="hand"/>'),
        ('<axis xyz="0 0 1"/>', '<axis xyz="0 0 1"/><mimic joint="elbow"/>'),
    ):
        Path("arm.urdf").write_text(GOOD.replace(old, new, 1))
        with pytest.raises(MalformedInput, match=r"arm\.urdf"):
            th.load("arm.urdf")


# -- what a saved robot says of its drives -----------------------------------------------------------


def identified(robot: Robot) -> Robot:
    rng = np.random.default_rng(0)
    fitted = robot.with_drive(viscous=True, coulomb=True, offset=True, armature=True)
    drive = fitted.drive
    values = {
        term: rng.uniform(0.1, 0.5, robot.nv)
        for term in ("viscous", "coulomb", "offset", "armature")
    }
    from dataclasses import replace

    return replace(fitted, drive=replace(drive, **values))


def test_urdf_gets_damping_and_friction_and_names_the_rest() -> None:
    """Pinocchio reads torques of the rigid robot, damping and friction, of joints with and without
    <dynamics>.
    """
    robot = identified(load(GOOD)[0])
    saved = save(robot, "new.urdf")
    assert set(saved.not_in_file) == {"offset", "armature"}
    assert saved.drive_file is not None
    model = pinocchio.buildModelFromUrdf("new.urdf")
    np.testing.assert_allclose(model.damping, robot.drive.viscous, rtol=1e-14)
    np.testing.assert_allclose(model.upperDryFrictionLimit, robot.drive.coulomb, rtol=1e-14)
    rng = np.random.default_rng(1)
    data = model.createData()
    for _ in range(5):
        q, dq, ddq = rng.uniform(-1, 1, (3, 2))
        turned = np.array([q[0], np.cos(q[1]), np.sin(q[1])])  # a continuous joint is two numbers
        torque = pinocchio.rnea(model, data, turned, dq, ddq)
        torque = torque + model.damping * dq + model.upperDryFrictionLimit * np.sign(dq)
        torque = torque + robot.drive.offset + robot.drive.armature * ddq
        np.testing.assert_allclose(th.inverse_dynamics(robot, q, dq, ddq), torque, atol=1e-9)


def test_mjcf_gets_armature_damping_and_frictionloss() -> None:
    """MuJoCo compiles the identified values, of a joint whose class gave others and of one without
    any.
    """
    mujoco = pytest.importorskip("mujoco")
    Path("arm.xml").write_text(
        """<mujoco><default><default class="big"><joint damping="3" armature="2"/></default></default>
        <worldbody><body name="a"><inertial pos="0 0 .1" mass="1" diaginertia=".1 .1 .1"/>
        <joint name="j" axis="0 1 0" class="big"/>
        <body name="b" pos="0 0 .3"><inertial pos="0 0 .1" mass="1" diaginertia=".1 .1 .1"/>
        <joint name="k" axis="1 0 0"/></body></body></worldbody></mujoco>"""
    )
    robot = identified(th.load("arm.xml"))
    saved = save(robot, "new.xml")
    assert saved.not_in_file == ("offset",)
    model = mujoco.MjModel.from_xml_path("new.xml")
    np.testing.assert_allclose(model.dof_damping, robot.drive.viscous, rtol=1e-14)
    np.testing.assert_allclose(model.dof_frictionloss, robot.drive.coulomb, rtol=1e-14)
    np.testing.assert_allclose(model.dof_armature, robot.drive.armature, rtol=1e-14)
    data, rng = mujoco.MjData(model), np.random.default_rng(2)
    for _ in range(5):
        data.qpos[:], data.qvel[:], data.qacc[:] = rng.uniform(-1, 1, (3, 2))
        q, dq, ddq = data.qpos.copy(), data.qvel.copy(), data.qacc.copy()
        model.dof_frictionloss[:] = 0.0  # a constraint of MuJoCo, which its inverse solves softly
        mujoco.mj_inverse(model, data)
        torque = data.qfrc_inverse + robot.drive.coulomb * np.sign(dq) + robot.drive.offset
        np.testing.assert_allclose(th.inverse_dynamics(robot, q, dq, ddq), torque, atol=1e-9)
