"""Writing a robot back: nothing but the changed values changes, links share their body's change,
and what a file cannot hold lies beside it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from save_cases import (  # noqa: F401 (a fixture)
    URDF,
    body,
    changed_values,
    heavier,
    load,
    own_folder,
    pinocchio_agrees,
    stretched,
    with_body,
)

import thetahat as th
from thetahat.model import parameters
from thetahat.model.io.save import save
from thetahat.model.io.write_back import shared_change
from thetahat.model.robot import Link

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
