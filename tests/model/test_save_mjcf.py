"""MJCF written back, as MuJoCo reads it: every form of <inertial>, geoms, compiler settings,
defaults, includes, attached models.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from save_cases import body, heavier, load, states, stretched, with_body

import thetahat as th
from thetahat.errors import UsageError
from thetahat.model import parameters
from thetahat.model.io.save import save
from thetahat.model.lock_joints import lock
from thetahat.model.robot import Robot

mujoco = pytest.importorskip("mujoco", reason="MuJoCo reads MJCF (pip install mujoco)")

TORQUE = 1e-9  # [N·m]
INERTIAL = '<inertial pos="0.1 0 0" mass="2" diaginertia="0.03 0.02 0.04"/>'


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def mjcf(inertial: str = INERTIAL, *, before: str = "", joint: str = "", inside: str = "") -> str:
    return (
        f'<mujoco model="arm">\n  {before}\n  <worldbody>\n    <body name="a" pos="0 0 1">\n     '
        f' {inertial}\n      <joint name="j" axis="0 1 0" {joint}/>\n      {inside}\n    </body>\n '
        " </worldbody>\n</mujoco>\n"
    )


def arm(text: str, **options: object) -> Robot:
    return load(text, "arm.xml", **options)


def mujoco_agrees(robot: Robot, path: str = "new.xml") -> None:
    from oracles import mujoco_bridge

    robot = mujoco_bridge.comparable(robot)
    state = states(robot)
    measured = mujoco_bridge.from_mjcf(Path(path), robot).inverse_dynamics(*state)
    np.testing.assert_allclose(th.inverse_dynamics(robot, *state), measured, rtol=0, atol=TORQUE)


def tag(name: str, path: str = "new.xml") -> str:
    return re.search(rf"<{name}\b[^>]*>", Path(path).read_text())[0]


def changed(robot: Robot, name: str = "a", seed: int = 0) -> Robot:
    return with_body(robot, name, stretched(body(robot, name), np.random.default_rng(seed)))


def principal(robot: Robot, diagonal: tuple[float, float, float], axes: np.ndarray) -> Robot:
    mass, com, _ = parameters.to_mass_com_inertia(body(robot, "a"))
    return with_body(
        robot, "a", parameters.from_mass_com_inertia(mass, com, axes @ np.diag(diagonal) @ axes.T)
    )


# -- forms of <inertial> ---------------------------------------------------------------------------


def test_one_number_changes_where_one_changed() -> None:
    robot = arm(mjcf())
    save(principal(robot, (0.03, 0.025, 0.04), np.eye(3)), "new.xml")
    assert Path("new.xml").read_text() == mjcf().replace("0.03 0.02 0.04", "0.03 0.025 0.04")
    save(heavier(robot, "a"), "new.xml")
    assert Path("new.xml").read_text() == mjcf().replace('mass="2"', 'mass="4.0"')


FORMS = {
    "diagonal": (INERTIAL, ["pos", "mass", "diaginertia", "quat"]),
    "turned": (
        INERTIAL.replace("/>", ' quat="0.5 0.1 -0.3 0.2"/>'),
        ["pos", "mass", "diaginertia", "quat"],
    ),
    "euler": (
        INERTIAL.replace("/>", " euler='30 0 -20' />"),
        ["pos", "mass", "diaginertia", "quat"],
    ),
    "axisangle": (
        INERTIAL.replace("pos=", 'axisangle="0 1 1 70" pos='),
        ["quat", "pos", "mass", "diaginertia"],
    ),
    "zaxis": (
        INERTIAL.replace("/>", ' zaxis="1 1 1"></inertial>'),
        ["pos", "mass", "diaginertia", "quat"],
    ),
    "full": (
        '<inertial mass="2" pos="0.1 0 0" fullinertia="0.03 0.02 0.04 0.001 0 -0.002"/>',
        ["mass", "pos", "fullinertia"],
    ),
    "in a frame": (
        f'<frame pos="0.1 0.2 0.3" euler="20 30 40">{INERTIAL}</frame>',
        ["pos", "mass", "diaginertia", "quat"],
    ),
    "full in a frame": (
        (
            '<frame pos="0 0 1" euler="0 30 0"><inertial mass="2" pos="0.1 0 0" fullinertia="0.03'
            ' 0.02 0.04 0.001 0 0"/></frame>'
        ),
        ["mass", "pos", "fullinertia"],
    ),
    "geoms": (
        '<geom size="0.1 0.2" type="capsule" pos="0 0 0.3"/>',
        ["pos", "quat", "mass", "diaginertia"],
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_inertial(form: str) -> None:
    """Another inertia about other axes: what was stated keeps its place, the axes become quat;
    MuJoCo reads what was meant.
    """
    text, names = FORMS[form]
    robot = arm(mjcf(text))
    new = changed(robot)
    assert save(new, "new.xml").torque_error < TORQUE
    assert re.findall(r"(\w+)=", tag("inertial")) == names
    without = (
        re.sub(r"\s*<inertial\b[^>]*/?>", "", t) for t in (mjcf(text), Path("new.xml").read_text())
    )
    assert next(without) == next(without)
    mujoco_agrees(new)


@pytest.mark.parametrize("form", ["turned", "euler", "axisangle", "zaxis"])
def test_axes_that_still_do_stay_as_they_are_written(form: str) -> None:
    text = mjcf(FORMS[form][0])
    robot = arm(text)
    save(robot.with_parameters(2.0 * robot.theta), "new.xml")
    moments = re.search(r'diaginertia="([^"]*)"', tag("inertial"))[1]
    assert [float(number) for number in moments.split()] == pytest.approx(
        [0.06, 0.04, 0.08], rel=1e-14
    )
    assert Path("new.xml").read_text() == text.replace('mass="2"', 'mass="4.0"').replace(
        "0.03 0.02 0.04", moments
    )


def test_nearby_axes_are_stated_nearby() -> None:
    """The moments keep their order and the quaternion its sign, so that a small change is a small
    diff.
    """
    text = INERTIAL.replace("/>", ' quat="-0.9 0.1 -0.3 0.2"/>')
    robot = arm(mjcf(text))
    save(
        with_body(robot, "a", stretched(robot.theta, np.random.default_rng(1), amount=0.002)),
        "new.xml",
    )
    numbers = {
        key: np.array(re.search(rf'{key}="([^"]*)"', tag("inertial"))[1].split(), dtype=float)
        for key in ("diaginertia", "quat")
    }
    np.testing.assert_allclose(numbers["diaginertia"], [0.03, 0.02, 0.04], rtol=0.05)
    quaternion = np.array([-0.9, 0.1, -0.3, 0.2])
    np.testing.assert_allclose(numbers["quat"], quaternion / np.linalg.norm(quaternion), atol=0.05)


def test_a_body_whose_geoms_gave_its_inertia_gets_an_inertial_and_keeps_its_geoms() -> None:
    text = mjcf("", inside='<geom name="g" size="0.1 0.2" type="capsule"/>').replace(
        "      \n", "", 1
    )
    robot = arm(text)
    new = heavier(robot, "a", 1.5)
    save(new, "new.xml")
    lines = Path("new.xml").read_text().splitlines()
    assert [line for line in lines if "<inertial" not in line] == text.splitlines()
    assert lines[next(i for i, line in enumerate(lines) if "<body" in line) + 1].startswith(
        "      <inertial pos="
    )
    mujoco_agrees(new)


# -- settings that override ------------------------------------------------------------------------

TWO = """<mujoco>
  <compiler {settings}/>
  <worldbody>
    <body name="a">
      <joint name="j" axis="0 1 0"/>
      <inertial pos="9 9 9" mass="99" diaginertia="9 9 9" euler="10 20 30"/>
      <geom size="0.1 0.2" type="capsule" pos="0 0.1 0.3" axisangle="1 0 0 20"/>
      <body name="b" pos="0 0 0.5"><joint name="k" axis="1 0 0"/><geom size="0.1 0.1 0.2" type="box" pos="0.1 0 0"/></body>
      <body name="c" pos="0 0 0.1"><inertial pos="0 0.1 0" mass="0.01" diaginertia="1e-5 1e-5 1e-5"/><joint axis="0 0 1"/></body>
    </body>
  </worldbody>
</mujoco>
"""


def test_inertia_from_geoms_gives_way_and_what_it_overrode_is_stated() -> None:
    robot = arm(TWO.format(settings='angle="degree" inertiafromgeom="true"'))
    assert body(robot, "a")[parameters.M] < 50.0, "the <inertial> is overridden"
    new = changed(robot, "b")
    save(new, "new.xml")
    assert tag("compiler") == '<compiler angle="degree" inertiafromgeom="auto"/>'
    np.testing.assert_allclose(body(th.load("new.xml"), "a"), body(robot, "a"), rtol=0, atol=1e-13)
    mujoco_agrees(new)
    both = changed(new, "a", 5)
    save(both, "new.xml")
    mujoco_agrees(both)


def test_the_total_mass_follows() -> None:
    """`settotalmass` scales all bodies: it becomes the new total, and the bodies that did not
    change keep their text.
    """
    robot = arm(TWO.format(settings='settotalmass="14.0"'))
    assert robot.mass == pytest.approx(14.0, rel=1e-14)
    new = changed(robot, "c")
    save(new, "new.xml")
    assert th.load("new.xml").mass == pytest.approx(new.mass, rel=1e-14)
    assert 'mass="99"' in tag("inertial")
    mujoco_agrees(new)
    mass, com, inertia = parameters.to_mass_com_inertia(body(robot, "c"))
    save(
        with_body(robot, "c", parameters.from_mass_com_inertia(mass, com, 2.0 * inertia)), "new.xml"
    )
    assert tag("compiler") == '<compiler settotalmass="14.0"/>'


def test_bounds_are_switched_off_where_a_value_falls_below_them() -> None:
    robot = arm(TWO.format(settings='boundmass="0.05" boundinertia="1e-6"'))
    assert body(robot, "c")[parameters.M] == 0.05
    fine = changed(robot, "a")
    save(fine, "new.xml")
    assert tag("compiler") == '<compiler boundmass="0.05" boundinertia="1e-6"/>'
    light = with_body(robot, "b", 0.001 * body(robot, "b"))
    save(light, "new.xml")
    assert tag("compiler") == '<compiler boundmass="0" boundinertia="0"/>'
    np.testing.assert_allclose(
        body(th.load("new.xml"), "c"), body(robot, "c"), rtol=0, atol=1e-15
    )  # which the bound had raised
    mujoco_agrees(light)


def test_balancing_is_switched_off_where_an_inertia_is_not_balanced() -> None:
    """A + B < C, which MuJoCo would even out; the reader takes such numbers as they are."""
    robot = arm(mjcf(before='<compiler balanceinertia="true"/>'))
    with pytest.warns(UserWarning, match="no rigid body"):
        save(principal(robot, (0.01, 0.01, 0.5), np.eye(3)), "new.xml")
    assert tag("compiler") == '<compiler balanceinertia="false"/>'
    with pytest.warns(UserWarning, match="triangle"):
        np.testing.assert_allclose(
            parameters.to_mass_com_inertia(th.load("new.xml").theta)[2],
            np.diag([0.01, 0.01, 0.5]),
            atol=1e-15,
        )


def test_damping_computed_from_inertia_gives_way_to_its_number() -> None:
    robot = arm(mjcf(joint='springdamper="0.5 1"'))
    assert robot.drive.viscous[0] > 0.0
    new = heavier(robot, "a")
    before = mujoco.MjModel.from_xml_path("arm.xml")
    assert save(new, "new.xml").not_in_file == ()
    after = mujoco.MjModel.from_xml_path("new.xml")
    assert (after.dof_damping[0], after.jnt_stiffness[0]) == (
        before.dof_damping[0],
        before.jnt_stiffness[0],
    )
    mujoco_agrees(new)


# -- joints ----------------------------------------------------------------------------------------


def test_joints_override_their_default_class_and_further_numbers_stay() -> None:
    before = (
        '<default><default class="d"><joint damping="1 2 3" armature="0.5"/></default></default>'
    )
    text = mjcf(before=before, joint='class="d"')
    robot = arm(text)
    new = replace(
        robot, drive=robot.drive.with_values(viscous=[0.25], coulomb=[0.5], armature=[0.5])
    )
    assert save(new, "new.xml").not_in_file == ()
    assert Path("new.xml").read_text() == text.replace(
        'class="d"/>', 'class="d" damping="0.25" frictionloss="0.5"/>'
    ).replace(
        '<joint name="j" axis="0 1 0" class="d"/>',
        '<joint name="j" axis="0 1 0" class="d" damping="0.25" frictionloss="0.5"/>',
    )
    model = mujoco.MjModel.from_xml_path("new.xml")
    assert (model.dof_damping[0], model.dof_frictionloss[0], model.dof_armature[0]) == (
        0.25,
        0.5,
        0.5,
    )
    text = mjcf(joint='damping="1  2 3"')
    robot = arm(text)
    save(replace(robot, drive=robot.drive.with_values(viscous=[0.25])), "new.xml")
    assert Path("new.xml").read_text() == text.replace('"1  2 3"', '"0.25  2 3"')


def test_a_joint_of_several_degrees_states_one_number_for_all() -> None:
    text = mjcf().replace('<joint name="j" axis="0 1 0" />', '<joint name="j" type="ball"/>')
    robot = arm(text)
    assert (
        save(
            replace(robot, drive=robot.drive.with_values(viscous=[0.5] * 3)), "new.xml"
        ).not_in_file
        == ()
    )
    saved = save(
        replace(robot, drive=robot.drive.with_values(viscous=[0.5, 0.5, 0.8], coulomb=[0.1] * 3)),
        "new.xml",
    )
    assert saved.not_in_file == ("viscous",)
    assert saved.torque_error < TORQUE
    assert th.load("new.xml").drive.viscous == pytest.approx([0.6] * 3), (
        "the nearest one number can say"
    )
    free = arm(text.replace('<joint name="j" type="ball"/>', "<freejoint/>"))
    assert save(
        replace(free, drive=free.drive.with_values(viscous=[1.0] * 6)), "new.xml"
    ).not_in_file == ("viscous",)


def test_a_locked_mjcf_robot() -> None:
    robot = arm(TWO.format(settings=""))
    small = lock(robot, ["k"])
    new = small.with_parameters(
        np.concatenate(
            [
                stretched(t, np.random.default_rng(k))
                for k, t in enumerate(small.theta.reshape(-1, 10))
            ]
        )
    )
    assert save(new, "new.xml").torque_error < TORQUE
    again, state = lock(th.load("new.xml"), ["k"]), states(new)
    np.testing.assert_allclose(
        th.inverse_dynamics(again, *state), th.inverse_dynamics(new, *state), rtol=0, atol=TORQUE
    )
    assert np.any(body(th.load("new.xml"), "b") != body(robot, "b")), (
        "the locked body shares the change"
    )


# -- several files ---------------------------------------------------------------------------------

MAIN = (
    '<mujoco><compiler meshdir="m"/><include file="parts/arm.xml"/><include'
    ' file="scene.xml"/></mujoco>\n'
)
PART = f"""<mujocoinclude>
  <worldbody>
    <include file="parts/tip.xml"/>
    <body name="a">{INERTIAL}<joint name="j"/></body>
  </worldbody>
</mujocoinclude>
"""
TIP = (
    f'<mujocoinclude><body name="tip">{INERTIAL}<joint name="k" axis="0 1'
    ' 0"/></body></mujocoinclude>'
)


def included(folder: str = "robot") -> Robot:
    for name, text in (
        ("parts/arm.xml", PART),
        ("parts/tip.xml", TIP),
        ("scene.xml", "<mujoco><option timestep='0.1'/></mujoco>"),
    ):
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return load(MAIN, f"{folder}/main.xml")


def test_values_in_an_included_file_are_written_to_a_copy_of_it() -> None:
    robot = included()
    before = {path: path.read_bytes() for path in Path("robot").rglob("*.xml")}
    new = heavier(robot, "a")
    saved = save(new, "robot/new.xml")
    assert {file.as_posix() for file in saved.files} == {"robot/new.xml", "robot/parts/new_arm.xml"}
    assert Path("robot/new.xml").read_text() == MAIN.replace("parts/arm.xml", "parts/new_arm.xml")
    assert Path("robot/parts/new_arm.xml").read_text() == PART.replace('mass="2"', 'mass="4.0"')
    assert all(path.read_bytes() == text for path, text in before.items())
    mujoco_agrees(new, "robot/new.xml")
    deeper = heavier(robot, "tip")  # whoever includes a changed file names its copy
    saved = save(deeper, "robot/new.xml")
    assert {file.name for file in saved.files} == {"new.xml", "new_arm.xml", "new_tip.xml"}
    assert Path("robot/parts/new_arm.xml").read_text() == PART.replace(
        "parts/tip.xml", "parts/new_tip.xml"
    )
    mujoco_agrees(deeper, "robot/new.xml")


def test_in_another_folder_all_included_files_come_along() -> None:
    """So that the copy can be read from there; meshes and textures stay, and a note says so."""
    robot = included()
    Path("out").mkdir()
    new = heavier(robot, "tip")
    saved = save(new, "out/new.xml")
    assert {file.relative_to("out").as_posix() for file in saved.files} == {
        "new.xml",
        "parts/new_arm.xml",
        "parts/new_tip.xml",
        "scene.xml",
    }
    assert saved.note == ""
    np.testing.assert_array_equal(th.load("out/new.xml").theta, new.theta)
    mujoco_agrees(new, "out/new.xml")
    assert save(new, "out/new.xml").torque_error < TORQUE, "over itself"
    Path("out/scene.xml").write_text("<mujoco/>")
    with pytest.raises(UsageError, match=r"out/scene\.xml is there already.*empty folder"):
        save(new, "out/new.xml")


def test_meshes_stay_where_they_are_and_a_note_says_so() -> None:
    text = mjcf(
        before='<asset><mesh name="m" file="a.stl"/></asset>', inside='<geom type="mesh" mesh="m"/>'
    )
    robot = load(text, "robot/arm.xml")
    Path("out").mkdir()
    saved = save(heavier(robot, "a"), "out/new.xml")
    assert "meshes or textures that are beside" in saved.note
    assert th.load("out/new.xml").mass == 4.0
    assert save(heavier(robot, "a"), "robot/new.xml").note == ""


def test_no_file_of_the_source_is_written_over() -> None:
    robot = included()
    Path("robot/parts/link_arm.xml").symlink_to("arm.xml")
    for name in (
        "robot/parts/arm.xml",
        "robot/parts/tip.xml",
        "robot/scene.xml",
        "robot/parts/link_arm.xml",
        "robot/main.xml",
    ):
        with pytest.raises(UsageError, match="is the file the robot was read from"):
            save(heavier(robot, "a"), name)
    with pytest.raises(UsageError, match=r"link_arm\.xml is the file the robot was read from"):
        save(heavier(robot, "a"), "robot/link.xml")  # whose part would go through the link


def test_attached_models() -> None:
    child = (
        f'<mujoco model="arm"><worldbody><body name="a">{INERTIAL}<joint'
        ' name="j"/></body></worldbody></mujoco>'
    )
    main = (
        '<mujoco><asset><model file="child.xml"/></asset><worldbody><body name="base"><joint'
        f' name="i" axis="0 1 0"/>{INERTIAL}<attach model="child" body="a"'
        ' prefix="p_"/></body></worldbody></mujoco>'
    )
    Path("child.xml").write_text(child)
    robot = load(main, "main.xml")
    new = changed(robot, "p_a")
    assert {file.name for file in save(new, "new.xml").files} == {"new.xml", "new_child.xml"}
    assert '<model file="new_child.xml" name="child"/>' in Path("new.xml").read_text()
    mujoco_agrees(new)


def test_copies_of_one_element_cannot_differ() -> None:
    text = (
        mjcf()
        .replace(
            '    <body name="a"', '    <replicate count="2" offset="1 0 0">\n    <body name="a"'
        )
        .replace("    </body>", "    </body></replicate>")
    )
    robot = arm(text)
    assert robot.body_names == ("a0", "a1")
    alike = heavier(heavier(robot, "a0"), "a1")
    save(alike, "new.xml")
    assert Path("new.xml").read_text() == text.replace('mass="2"', 'mass="4.0"')
    mujoco_agrees(alike)
    with pytest.raises(UsageError, match=r"arm\.xml, line 5.*'a0' and 'a1' are copies of it"):
        save(heavier(robot, "a1"), "new.xml")
    with pytest.raises(UsageError, match=r"their drives cannot differ"):
        save(replace(robot, drive=robot.drive.with_values(viscous=[1.0, 0.0])), "new.xml")


def test_gravity_and_floating_base() -> None:
    text = mjcf().replace('<joint name="j" axis="0 1 0" />', "")
    robot = arm(text, floating_base=True, gravity=(0.0, 1.0, 2.0))
    new = changed(robot)
    assert save(new, "new.xml").torque_error < TORQUE
    np.testing.assert_allclose(
        th.load("new.xml", floating_base=True).theta, new.theta, rtol=0, atol=1e-15
    )
