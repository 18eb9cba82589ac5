"""Writing a robot back: nothing but the changed values changes, links share their body's change,
and what a file cannot hold lies beside it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from data_paths import ROOT, example_robot
from save_cases import URDF, body, changed_values, heavier, load, states, stretched, with_body

import thetahat as th
from oracles.random_trees import random_robot
from thetahat.errors import RobotWarning, StorageError, UnphysicalRobot, UsageError
from thetahat.model import parameters
from thetahat.model.io.save import save, with_drive_file
from thetahat.model.io.write_back import shared_change
from thetahat.model.lock_joints import lock
from thetahat.model.robot import Link, Robot

TORQUE = 1e-9  # [N·m]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def pinocchio_agrees(path: str, robot: Robot, **options: object) -> None:
    pytest.importorskip("pinocchio", reason="Pinocchio is the oracle (pip install pin)")
    from oracles import pinocchio_bridge

    state = states(robot)
    expected = pinocchio_bridge.from_urdf(Path(path), robot, **options).inverse_dynamics(*state)
    np.testing.assert_allclose(
        th.inverse_dynamics(robot, *state, rigid=True), expected, rtol=0, atol=TORQUE
    )


# -- every other byte ------------------------------------------------------------------------------

TRICKY = """<?xml version='1.0' encoding='ENC'?>
<!DOCTYPE robot>
<!-- größer > kleiner: <mass value="2.0"/> -->
<robot name='bött' xmlns:xacro="http://www.ros.org/wiki/xacro">
\t<link name = 'a&amp;b'/>
\t<link
\t  name="ärm">  <!-- same line -->
<inertial   ><origin rpy  =  "0 0 0" xyz='0 0\t 0.5'></origin><mass\tvalue\t=\t'2.0' unit='>kg' /><![CDATA[ <mass value="2.0"/> ]]>
  <?keep this?><inertia izz="0.&#48;1" iyz='0' iyy="0.01" ixz="0" ixy="0" ixx=" 0.01 "/></inertial  >
\t</link>
   <joint type="continuous" name="j"><parent link="a&#38;b"/><child link="ärm"/><dynamics friction='0' damping="0" /></joint>
</robot>

<!-- the end -->"""


@pytest.mark.filterwarnings("ignore::thetahat.errors.RobotWarning")
@pytest.mark.parametrize("encoding", ["UTF-8", "ISO-8859-1", "UTF-16"])
@pytest.mark.parametrize("bom", [False, True])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_all_else_is_the_same_byte_for_byte(encoding: str, bom: bool, newline: str) -> None:
    text = TRICKY.replace("ENC", encoding).replace("\n", newline)
    if bom and encoding == "ISO-8859-1":
        pytest.skip("a byte order mark says UTF")

    def encoded(text: str) -> bytes:
        if encoding == "UTF-16":
            return b"\xfe\xff" + text.encode("utf-16-be") if bom else text.encode("utf-16")
        return (b"\xef\xbb\xbf" if bom else b"") + text.encode(encoding)

    robot = load(encoded(text))
    robot = replace(robot, drive=robot.drive.with_values(viscous=[0.125]))
    saved = save(heavier(robot, "ärm"), "new.urdf")
    expected = text.replace("value\t=\t'2.0'", "value\t=\t'4.0'").replace(
        'damping="0"', 'damping="0.125"'
    )
    assert Path("new.urdf").read_bytes() == encoded(expected)
    assert saved.torque_error == 0.0

    mass, com, inertia = parameters.to_mass_com_inertia(body(robot, "ärm"))
    save(
        with_body(
            robot,
            "ärm",
            parameters.from_mass_com_inertia(
                mass, com + np.array([0, 0, 0.25]), inertia + np.diag([0, 0, 1.0])
            ),
        ),
        "new.urdf",
    )
    moved = (
        text.replace("'0 0\t 0.5'", "'0 0\t 0.75'")
        .replace("0.&#48;1", "1.01")
        .replace('damping="0"', 'damping="0.125"')
    )
    assert Path("new.urdf").read_bytes() == encoded(moved)


def test_references_that_stand_for_blanks() -> None:
    robot = load(URDF.replace('xyz="0.1  0 -0.02"', 'xyz="0.1&#32;0 -0.02 &#x20;"'))
    moved = with_body(
        robot,
        "upper",
        parameters.transform(body(robot, "upper"), np.eye(3), np.array([0.0, 0.0, 0.52])),
    )
    save(moved, "new.urdf")
    assert 'xyz="0.1 0.0 0.5"' in Path("new.urdf").read_text()


def test_an_unchanged_robot_is_the_same_file() -> None:
    robot = load()
    saved = save(robot, "new.urdf")
    assert Path("new.urdf").read_bytes() == Path("arm.urdf").read_bytes()
    assert (saved.not_in_file, saved.drive_file, saved.torque_error) == ((), None, 0.0)
    assert not Path("drive.json").exists()
    assert saved.as_data() == {
        "file": "new.urdf",
        "torque_error": 0.0,
        "not_in_file": [],
        "drive_file": None,
    }


def test_numbers_are_written_so_that_they_read_the_same() -> None:
    robot = load()
    third = heavier(robot, "upper", 1.0 / 3.0)
    save(third, "new.urdf")
    (value,) = changed_values(Path("arm.urdf").read_bytes(), Path("new.urdf").read_bytes())
    assert float(value.new) == 2.5 * (1.0 / 3.0)
    assert len(value.new.lstrip(b"0.")) <= 17


def test_turned_axes_stay_and_the_inertia_is_stated_in_them() -> None:
    robot = load()
    changed = with_body(robot, "upper", stretched(body(robot, "upper"), np.random.default_rng(0)))
    save(changed, "new.urdf")
    values = changed_values(Path("arm.urdf").read_bytes(), Path("new.urdf").read_bytes())
    assert {(v.owner, v.tag, v.attribute) for v in values} == {
        *(("upper", "inertia", key) for key in ("ixx", "ixy", "ixz", "iyy", "iyz", "izz")),
        ("upper", "origin", "xyz"),
        ("upper", "mass", "value"),
    }
    assert b'rpy="0.3 -0.2 0.5"' in Path("new.urdf").read_bytes()
    pinocchio_agrees("new.urdf", changed)
    twice = with_body(robot, "upper", 2.0 * body(robot, "upper"))  # zeros stay as they are
    save(twice, "new.urdf")
    values = changed_values(Path("arm.urdf").read_bytes(), Path("new.urdf").read_bytes())
    assert [(v.attribute, v.new) for v in values if v.tag == "mass"] == [("value", b"5.0")]
    assert {v.attribute for v in values if v.tag == "inertia"} == {"ixx", "ixz", "iyy", "izz"}


# -- what was not there ----------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::thetahat.errors.RobotWarning")
def test_missing_elements_are_put_in_laid_out_like_their_neighbours() -> None:
    text = URDF.replace(
        '<link name="base"/>', '<link name="base"/>\n  <link name="tip" />'
    ).replace(
        "</robot>",
        '  <joint name="wrist" type="continuous"><parent link="lower"/><child'
        ' link="tip"/></joint>\n</robot>',
    )
    robot = load(text)
    changed = with_body(
        robot,
        "tip",
        parameters.from_mass_com_inertia(0.5, np.array([0, 0, 0.25]), np.diag([1.0, 2.0, 2.5])),
    )
    changed = with_body(
        changed,
        "lower",
        parameters.from_mass_com_inertia(1.0, np.array([0.125, 0, 0]), 0.01 * np.eye(3)),
    )
    save(
        replace(
            changed, drive=robot.drive.with_values(viscous=[0.1, 0.5, 0.25], coulomb=[0.2, 0, 0])
        ),
        "new.urdf",
    )
    expected = (
        text.replace(
            '<link name="tip" />',
            '<link name="tip">\n    <inertial>\n      <origin xyz="0.0 0.0 0.25"/>\n      <mass'
            ' value="0.5"/>\n      <inertia ixx="1.0" ixy="0.0" ixz="0.0" iyy="2.0" iyz="0.0"'
            ' izz="2.5"/>\n    </inertial>\n  </link>',
        )
        .replace(
            '      <mass value="1"/>',
            '      <origin xyz="0.125 0.0 0.0"/>\n      <mass value="1"/>',
        )
        .replace(
            '    <child link="lower"/>\n',
            '    <child link="lower"/>\n    <dynamics damping="0.5"/>\n',
        )
        .replace(
            '<child link="tip"/></joint>', '<child link="tip"/><dynamics damping="0.25"/></joint>'
        )
    )
    assert Path("new.urdf").read_text() == expected
    pinocchio_agrees("new.urdf", changed)


@pytest.mark.filterwarnings("ignore::thetahat.errors.RobotWarning")
@pytest.mark.parametrize(
    "empty",
    [
        '<link name="a"></link>',
        '<link name="a">\r\n  </link>',
        '<link name="a"><!-- nothing --></link>',
        '<link name="a"/>',
    ],
)
def test_an_empty_link_gets_its_inertia(empty: str) -> None:
    joint = '<joint name="j" type="continuous"><parent link="w"/><child link="a"/></joint>'
    text = f'<robot name="r">\r\n  <link name="w"/>\r\n  {empty}\r\n  {joint}</robot>'
    robot = load(text)
    saved = save(
        with_body(robot, "a", parameters.from_mass_com_inertia(1.0, np.zeros(3), np.eye(3))),
        "new.urdf",
    )
    new = Path("new.urdf").read_bytes().decode()
    assert saved.torque_scale > 0.5
    assert new.count("\n") == new.count("\r\n") >= text.count("\n")
    assert "nothing" not in empty or "<!-- nothing -->" in new


def test_an_attribute_that_was_left_out_is_added() -> None:
    text = URDF.replace(
        '<dynamics damping="0.10" friction="0.2"/>', "<dynamics friction='0.2' />"
    ).replace('xyz="0.1  0 -0.02" ', "")
    robot = load(text)
    changed = with_body(
        robot,
        "upper",
        parameters.transform(body(robot, "upper"), np.eye(3), np.array([0.0, 0.5, 0.0])),
    )
    save(replace(changed, drive=robot.drive.with_values(viscous=[1.5, 0])), "new.urdf")
    new = Path("new.urdf").read_text()
    assert "<dynamics friction='0.2' damping=\"1.5\" />" in new
    assert '<origin rpy="0.3 -0.2 0.5" xyz="0.0 0.5 0.0"/>' in new


# -- links that share a body -----------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_links_share_a_change_so_that_the_sum_is_exact_and_each_stays_physical(seed: int) -> None:
    """Random physical parts and a random physical sum, flat bodies and estimates on the edge of the
    cone among them.
    """
    rng = np.random.default_rng(seed)
    links = []
    for k in range(int(rng.integers(2, 7))):
        points = rng.normal(size=(8, 3)) * rng.uniform(0.01, 0.3)
        theta = parameters.from_pseudo_inertia(
            sum(np.outer(p, p) for p in np.c_[points, np.ones(8)]) * 10.0 ** rng.uniform(-4, 1)
        )
        turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
        links.append(
            Link(f"part{k}", 0, turn * np.sign(np.linalg.det(turn)), rng.normal(size=3), theta)
        )
    nominal = sum(
        parameters.transform(link.theta, link.rotation, link.translation) for link in links
    )
    new = stretched(nominal, rng, amount=0.4)
    if seed % 4 == 0:  # the estimate lies on the edge: one direction without extent
        values, vectors = np.linalg.eigh(parameters.to_pseudo_inertia(new))
        new = parameters.from_pseudo_inertia((vectors * np.r_[0.0, values[1:]]) @ vectors.T)
    parts = shared_change(new, links, "part0")
    total = sum(
        parameters.transform(parts[link.name], link.rotation, link.translation) for link in links
    )
    np.testing.assert_allclose(total, new, rtol=0, atol=1e-13 * np.max(np.abs(new)))
    assert all(parameters.check(theta) for theta in parts.values())
    ratio = [parts[link.name][parameters.M] / link.theta[parameters.M] for link in links]
    np.testing.assert_allclose(
        ratio, ratio[0], rtol=1e-9
    )  # T's last row is (0 0 0 t): all masses by t²


def test_one_link_takes_the_difference_where_there_is_no_common_map() -> None:
    unit = parameters.from_mass_com_inertia(1.0, np.zeros(3), np.eye(3))
    point = parameters.from_mass_com_inertia(1.0, np.array([0.1, 0, 0]), np.zeros((3, 3)))
    links = [
        Link(name, 0, np.eye(3), np.zeros(3), theta)
        for name, theta in (("a", point), ("b", 3.0 * point), ("none", 0.0 * unit))
    ]
    assert shared_change(unit, links, "none").keys() == {
        "a",
        "b",
    }  # point masses: the nominal body has no extent
    np.testing.assert_array_equal(
        shared_change(unit, links, "none")["a"], point
    )  # the heaviest takes it
    np.testing.assert_array_equal(
        shared_change(unit, links, "a")["b"], 3.0 * point
    )  # the one with the body's name does
    solid = [replace(link, theta=unit) for link in links[:2]]
    for new in (-unit, 0.0 * unit):
        parts = shared_change(new, solid, "b")
        np.testing.assert_array_equal(parts["a"], unit)
        np.testing.assert_array_equal(parts["a"] + parts["b"], new)
    bare = [replace(link, theta=0.0 * unit) for link in links]
    assert shared_change(unit, bare, "none").keys() == {"none"}


def test_fixed_joints_and_the_world(tmp_path: Path) -> None:
    """Links welded to a moving one change with it, those welded to the world do not; frames without
    inertia stay empty.
    """
    weld = (
        '<joint name="{0}" type="fixed"><origin xyz="0 0.1 0.2" rpy="1 0 0"/><parent'
        ' link="{1}"/><child link="{0}"/></joint>'
    )
    tensor = '<inertia ixx="1e-3" ixy="0" ixz="0" iyy="1e-3" iyz="0" izz="1e-3"/>'
    part = (
        '<link name="{0}"><inertial><origin xyz="0 0 0.1"/><mass'
        f' value="0.4"/>{tensor}</inertial></link>'
    )
    extra = [("tool", "lower"), ("camera", "tool"), ("foot", "base")]
    text = URDF.replace(
        "</robot>",
        "".join(part.format(*e) + weld.format(*e) for e in extra)
        + '<link name="tcp"/>'
        + weld.format("tcp", "tool")
        + "</robot>",
    )
    robot = load(text)
    changed = with_body(
        robot, "lower", stretched(body(robot, "lower"), np.random.default_rng(1), amount=0.2)
    )
    save(changed, "new.urdf")
    new = Path("new.urdf").read_text()
    assert part.format("foot") in new
    assert '<link name="tcp"/>' in new
    again = th.load("new.urdf")
    before, after = ({link.name: link.theta for link in r.links} for r in (robot, again))
    assert {name for name in before if np.any(before[name] != after[name])} == {
        "lower",
        "tool",
        "camera",
    }
    assert all(parameters.check(theta) for theta in after.values())
    pinocchio_agrees("new.urdf", changed)


# -- other variants of the robot -------------------------------------------------------------------


def test_floating_base_other_gravity_and_a_floating_joint_name() -> None:
    text = URDF.replace(
        '<link name="base"/>',
        URDF[URDF.index('  <link name="lower">') : URDF.index('  <joint name="shoulder"')]
        .replace("lower", "base")
        .strip(),
    )
    robot = load(text, floating_base=True, gravity=(1.0, 2.0, -3.0))
    changed = robot.with_parameters(
        np.concatenate(
            [
                stretched(t, np.random.default_rng(k))
                for k, t in enumerate(robot.theta.reshape(-1, 10))
            ]
        )
    )
    saved = save(changed, "new.urdf")
    assert saved.torque_error < TORQUE
    pinocchio_agrees("new.urdf", changed, floating_base=True)


def test_locked_joints_are_merged_bodies_whose_links_share_the_change() -> None:
    """Panda with its fingers held, as a log without their columns has it: Pinocchio's reduced model
    of the whole file is the locked robot.
    """
    pinocchio = pytest.importorskip("pinocchio", reason="Pinocchio is the oracle (pip install pin)")
    path = example_robot("panda")
    robot = th.load(path)
    small = lock(robot, ["panda_finger_joint1"])
    rng = np.random.default_rng(2)
    changed = small.with_parameters(
        np.concatenate([stretched(t, rng) for t in small.theta.reshape(-1, 10)])
    )
    changed = replace(
        changed,
        drive=changed.drive.with_values(viscous=rng.uniform(0, 1, 7), offset=rng.uniform(0, 1, 7)),
    )
    saved = save(changed, "new.urdf")
    assert saved.not_in_file == ("offset",)
    assert saved.torque_error < TORQUE
    whole = th.load("new.urdf")
    assert whole.drive.viscous[7] == robot.drive.viscous[7], "the locked joint's own value stays"
    model = pinocchio.buildModelFromUrdf("new.urdf")
    fingers = [i for i, name in enumerate(model.names) if "finger" in name]
    reduced = pinocchio.buildReducedModel(model, fingers, pinocchio.neutral(model))
    q, dq, ddq = states(changed)
    expected = [
        pinocchio.rnea(reduced, reduced.createData(), *s) for s in zip(q, dq, ddq, strict=True)
    ]
    np.testing.assert_allclose(
        th.inverse_dynamics(changed, q, dq, ddq, rigid=True), expected, rtol=0, atol=TORQUE
    )
    hand = {
        v.owner
        for v in changed_values(path.read_bytes(), Path("new.urdf").read_bytes())
        if v.tag == "mass"
    }
    assert {"panda_link7", "panda_hand", "panda_leftfinger", "panda_rightfinger"} <= hand
    again = lock(with_drive_file(th.load("new.urdf")), ["panda_finger_joint1"])
    np.testing.assert_array_equal(again.drive.offset, changed.drive.offset)


MIMIC = URDF.replace(
    '    <child link="lower"/>\n',
    '    <child link="lower"/>\n    <mimic joint="shoulder" multiplier="-3" offset="0.1"/>\n   '
    ' <dynamics damping="0.5" friction="0.5"/>\n',
)


@pytest.mark.filterwarnings("ignore::thetahat.errors.RobotWarning")
@pytest.mark.parametrize(
    ("viscous", "expected"),
    [(7.6, (3.1, 0.5)), (2.3, (0.05, 0.25)), (0.0, (0.0, 0.0)), (-1.0, (-5.5, 0.5))],
)
def test_mimic_joints_share_a_coordinate(viscous: float, expected: tuple[float, float]) -> None:
    """q̇ of the follower is −3 q̇: its damping counts nine times, and the sum is what the robot
    has. Damping never turns negative by sharing.
    """
    robot = load(MIMIC)
    assert robot.drive.viscous == pytest.approx([0.1 + 9 * 0.5])
    changed = replace(robot, drive=robot.drive.with_values(viscous=[viscous], coulomb=[2.0]))
    saved = save(changed, "new.urdf")
    assert saved.not_in_file == ()
    stated = [node.joint.damping for node in th.load("new.urdf").tree.nodes]
    assert stated == pytest.approx(expected, abs=1e-12)
    assert th.load("new.urdf").drive.coulomb == pytest.approx([2.0], rel=1e-15)


def test_negative_friction_is_written_as_it_is_and_warned_of_when_read() -> None:
    robot = load()
    save(
        replace(robot, drive=robot.drive.with_values(viscous=[-0.5, 0], coulomb=[0.2, -0.25])),
        "new.urdf",
    )
    with pytest.warns(RobotWarning, match=r"negative"):
        again = th.load("new.urdf")
    assert (again.drive.viscous[0], again.drive.coulomb[1]) == (-0.5, -0.25)


def test_unphysical_links_are_written_with_a_warning_and_what_no_file_can_say_is_refused() -> None:
    robot = load()
    bad = with_body(
        robot,
        "lower",
        parameters.from_mass_com_inertia(-1.0, np.array([0.1, 0, 0]), np.diag([1.0, 1.0, 5.0])),
    )
    with pytest.warns(RobotWarning, match=r"new\.urdf: links that no rigid body can be.*lower"):
        assert save(bad, "new.urdf").torque_error < TORQUE
    moment = np.zeros(10)
    moment[parameters.MCX] = 0.5
    with pytest.raises(
        UnphysicalRobot, match=r"arm.urdf.*'lower'.*first moment but no mass.*consistent"
    ):
        save(with_body(robot, "lower", moment), "other.urdf")
    moment = np.r_[np.random.default_rng(0).normal(size=9), 1e-17]
    with pytest.raises(UnphysicalRobot, match=r"'lower' cannot be stated.*consistent"):
        save(with_body(robot, "lower", moment), "other.urdf")
    assert not Path("other.urdf").exists()


# -- refused ---------------------------------------------------------------------------------------


def test_the_source_is_never_written_to_by_whatever_name(tmp_path: Path) -> None:
    robot = load()
    before = Path("arm.urdf").read_bytes()
    Path("link.urdf").symlink_to("arm.urdf")
    os.link("arm.urdf", "hard.urdf")
    for name in (
        "arm.urdf",
        tmp_path / "arm.urdf",
        "./../" + tmp_path.name + "/arm.urdf",
        "link.urdf",
        "hard.urdf",
    ):
        with pytest.raises(UsageError, match=r"is the file the robot was read from.*another name"):
            save(heavier(robot, "upper"), name)
    assert Path("arm.urdf").read_bytes() == before
    Path("arm.urdf").unlink()
    Path("hard.urdf").unlink()
    with pytest.raises(UsageError, match=r"is the file the robot was read from"):
        save(robot, "arm.urdf")  # gone, but it was the source


def test_what_cannot_be_saved_is_said_in_a_sentence() -> None:
    robot = load()
    theta = robot.theta.copy()
    theta[13] = np.nan
    with pytest.raises(UsageError, match=r"mcz of body 'lower' is nan"):
        save(robot.with_parameters(theta), "new.urdf")
    with pytest.raises(UsageError, match=r"not loaded from a file.*th.load"):
        save(random_robot(0), "new.urdf")
    with pytest.raises(UsageError, match=r"is a folder"):
        save(robot, ".")
    with pytest.raises(UsageError, match=r"give the path"):
        save(robot, None)  # type: ignore[arg-type]
    with pytest.raises(StorageError, match=r"no folder missing; make it"):
        save(robot, "missing/new.urdf")
    Path("file").write_text("")
    with pytest.raises(StorageError, match=r"file/new.urdf cannot be written"):
        save(robot, "file/new.urdf")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('xyz="0.3 0 0"', 'xyz="0.31 0 0"', "joint 'elbow' is another"),
        ('value="2.50"', 'value="2.51"', "link 'upper' has another inertia"),
        ('damping="0.10"', 'damping="0.11"', "joint 'shoulder' has other drive values"),
        ("shoulder", "hip", "it has no joint 'shoulder'"),
        ('axis xyz="0 1 0"', 'axis xyz="1 0 0"', "joint 'shoulder' is another"),
    ],
)
def test_a_source_that_changed_since_is_noticed(old: str, new: str, message: str) -> None:
    robot = load()
    Path("arm.urdf").write_text(URDF.replace(old, new))
    with pytest.raises(StorageError, match=f"arm.urdf is not the file.*{message}.*load it again"):
        save(heavier(robot, "upper"), "new.urdf")


# -- atomic ----------------------------------------------------------------------------------------


def test_a_full_disk_or_read_only_folder_leaves_the_old_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    robot = load()
    save(robot, "new.urdf")
    before = Path("new.urdf").read_bytes()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match=r"No space left"):
        save(heavier(robot, "upper"), "new.urdf")
    assert Path("new.urdf").read_bytes() == before
    assert sorted(path.name for path in Path().iterdir()) == ["arm.urdf", "new.urdf"]


def test_a_kill_leaves_a_whole_file(tmp_path: Path) -> None:
    """A process that saves two versions in turn is killed somewhere in between: what is there is
    one of them.
    """
    load()
    code = (
        "import sys, thetahat as th; from thetahat.model.io.save import save\n"
        "r = th.load('arm.urdf'); versions = [r, r.with_parameters(2.0 * r.theta)]\n"
        "save(versions[0], 'a.urdf'); save(versions[1], 'b.urdf'); print('ready', flush=True)\n"
        "while True:\n    [save(v, 'new.urdf') for v in versions]\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
    )
    try:
        assert child.stdout.readline().strip() == b"ready"
        time.sleep(0.3)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert Path("new.urdf").read_bytes() in (
        Path("a.urdf").read_bytes(),
        Path("b.urdf").read_bytes(),
    )
