"""URDF semantics, against Pinocchio: what a file says is what the robot has."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from xml.dom import minidom

import numpy as np
import pytest
from data_paths import EXAMPLE_ROBOTS, example_robot

from thetahat.errors import MalformedInput, RobotWarning, UsageError
from thetahat.model import parameters
from thetahat.model.io.load import load
from thetahat.model.io.xml_reader import number, read_xml, vector
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind

pinocchio = pytest.importorskip("pinocchio", reason="Pinocchio is the oracle (pip install pin)")

# relative to the robot's largest number: sums of at most tens of links, each a few roundings
PARAMETERS = 1e-14
PLACEMENTS = 1e-13  # products of tens of rotations of size one

INERTIA = '<inertia ixx="3" ixy="0.1" ixz="0.2" iyy="4" iyz="0.3" izz="5"/>'
INERTIAL = (
    '<inertial><origin xyz="0.1 -0.2 0.3" rpy="0.4 -0.5 0.6"/><mass'
    f' value="2"/>{INERTIA}</inertial>'
)


def quiet_load(path: Path, **options: object) -> Robot:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RobotWarning)
        return load(path, **options)


def write(folder: Path, body: str, name: str = "arm.urdf") -> Path:
    path = folder / name
    path.write_text(f'<?xml version="1.0"?>\n<robot name="arm">\n{body}\n</robot>\n')
    return path


def link(name: str, inside: str = INERTIAL) -> str:
    return f'<link name="{name}">{inside}</link>'


def joint(name: str, parent: str, child: str, inside: str = "", kind: str = "revolute") -> str:
    return (
        f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child'
        f' link="{child}"/>{inside}</joint>'
    )


def from_pinocchio(model: object, name: str) -> np.ndarray:
    return parameters.from_pinocchio(model.inertias[model.getJointId(name)].toDynamicParameters())


def assert_same_bodies(robot: Robot, model: object) -> None:
    """Every movable joint carries, fixed links merged, the same ten numbers, in the same place,
    under the same parent.
    """
    assert set(robot.tree.index_of) == set(list(model.names)[1:])
    size = max(1.0, float(np.max(np.abs(robot.theta), initial=0.0)))
    for node, theta in zip(
        (robot.tree.nodes[i] for i in robot.tree.bodies), robot.theta.reshape(-1, 10), strict=True
    ):
        np.testing.assert_allclose(
            theta,
            from_pinocchio(model, node.name),
            rtol=0,
            atol=PARAMETERS * size,
            err_msg=node.name,
        )
        index = model.getJointId(node.name)
        np.testing.assert_allclose(
            node.rotation, model.jointPlacements[index].rotation, atol=PLACEMENTS, err_msg=node.name
        )
        np.testing.assert_allclose(
            node.translation,
            model.jointPlacements[index].translation,
            atol=PLACEMENTS,
            err_msg=node.name,
        )
        parent = "universe" if node.parent < 0 else robot.tree.nodes[node.parent].name
        assert parent == model.names[model.parents[index]]


def placements(robot: Robot, q: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """World placement of every node of a robot with one-DOF joints, by its definition."""
    frames: list[tuple[np.ndarray, np.ndarray]] = []
    for node in robot.tree.nodes:
        value = q[robot.tree.q_index[node.name]]
        value = node.mimic.multiplier * value + node.mimic.offset if node.mimic else value
        rotation, translation = (np.eye(3), np.zeros(3)) if node.parent < 0 else frames[node.parent]
        turn, move = np.eye(3), np.zeros(3)
        if node.kind is JointKind.REVOLUTE:
            turn = pinocchio.AngleAxis(value, node.axis).toRotationMatrix()
        else:
            move = node.axis * value
        frames.append(
            (
                rotation @ node.rotation @ turn,
                translation + rotation @ (node.translation + node.rotation @ move),
            )
        )
    return {node.name: frame for node, frame in zip(robot.tree.nodes, frames, strict=True)}


# -- against Pinocchio -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXAMPLE_ROBOTS)
def test_bodies_equal_pinocchios(name: str) -> None:
    path = example_robot(name)
    robot = quiet_load(path)
    model = pinocchio.buildModelFromUrdf(str(path))
    assert_same_bodies(robot, model)
    mass = sum(inertia.mass for inertia in list(model.inertias)[1:])
    assert robot.mass == pytest.approx(mass, rel=PARAMETERS)


@pytest.mark.parametrize("name", EXAMPLE_ROBOTS)
def test_floating_base_equals_pinocchios(name: str) -> None:
    path = example_robot(name)
    robot = quiet_load(path, floating_base=True)
    assert_same_bodies(
        robot, pinocchio.buildModelFromUrdf(str(path), pinocchio.JointModelFreeFlyer())
    )
    assert robot.joint_names[0] == "root_joint"
    assert robot.nv == quiet_load(path).nv + 6
    assert robot.mass == pytest.approx(
        sum(link.theta[parameters.M] for link in robot.links), rel=PARAMETERS
    )


def mimics(path: Path) -> dict[str, tuple[str, float, float]]:
    """Joint → (reference, multiplier, offset), read by another parser: Pinocchio reads mimic joints
    of some of these files only.
    """
    found = {}
    for mimic in minidom.parse(str(path)).getElementsByTagName("mimic"):
        values = (
            mimic.getAttribute("joint"),
            float(mimic.getAttribute("multiplier") or 1),
            float(mimic.getAttribute("offset") or 0),
        )
        found[mimic.parentNode.getAttribute("name")] = values
    return found


@pytest.mark.parametrize("name", EXAMPLE_ROBOTS)
def test_kinematics_equal_pinocchios(name: str) -> None:
    """Axes, placements and mimic maps, at the zero configuration and at random ones."""
    path = example_robot(name)
    robot = quiet_load(path)
    model, followers = pinocchio.buildModelFromUrdf(str(path)), mimics(path)
    assert set(robot.joint_names) == set(list(model.names)[1:]) - set(followers)
    data = model.createData()
    random = np.random.default_rng(7)
    for q in (np.zeros(robot.nq), *random.uniform(-2, 2, (5, robot.nq))):
        q_oracle = pinocchio.neutral(model)
        for joint_name in list(model.names)[1:]:
            reference, multiplier, offset = followers.get(joint_name, (joint_name, 1.0, 0.0))
            there, value = (
                model.joints[model.getJointId(joint_name)],
                multiplier * q[robot.joint_names.index(reference)] + offset,
            )
            q_oracle[there.idx_q : there.idx_q + there.nq] = (
                value if there.nq == 1 else (math.cos(value), math.sin(value))
            )
        pinocchio.forwardKinematics(model, data, q_oracle)
        for joint_name, (rotation, translation) in placements(robot, q).items():
            expected = data.oMi[model.getJointId(joint_name)]
            np.testing.assert_allclose(
                rotation, expected.rotation, atol=PLACEMENTS, err_msg=joint_name
            )
            np.testing.assert_allclose(
                translation, expected.translation, atol=PLACEMENTS, err_msg=joint_name
            )


def test_mimic_joints_equal_pinocchios() -> None:
    path = example_robot("panda")
    robot, model = quiet_load(path), pinocchio.buildModelFromUrdf(str(path), mimic=True)
    assert robot.tree.has_mimic
    assert (robot.nq, robot.nv) == (model.nq, model.nv)


def test_limits_equal_pinocchios() -> None:
    path = example_robot("panda")
    robot, model = quiet_load(path), pinocchio.buildModelFromUrdf(str(path), mimic=True)
    for node in robot.tree.independent:
        at, v_at = (
            model.joints[model.getJointId(node.name)].idx_q,
            model.joints[model.getJointId(node.name)].idx_v,
        )
        assert node.limits.lower == model.lowerPositionLimit[at]
        assert node.limits.upper == model.upperPositionLimit[at]
        assert node.limits.velocity == model.velocityLimit[v_at]
        assert node.limits.effort == model.effortLimit[v_at]


def test_an_inertial_frame_that_is_turned_and_moved(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        link("a")
        + link("b")
        + joint(
            "j",
            "a",
            "b",
            '<origin xyz="1 2 3" rpy="0.1 0.2 0.3"/><axis xyz="1 2 -2"/>',
            kind="continuous",
        ),
    )
    robot = load(path)
    assert_same_bodies(robot, pinocchio.buildModelFromUrdf(str(path)))
    mass, com, inertia = parameters.to_mass_com_inertia(robot.theta)
    turn = pinocchio.rpy.rpyToMatrix(0.4, -0.5, 0.6)
    assert mass == 2.0
    np.testing.assert_allclose(com, [0.1, -0.2, 0.3], atol=PARAMETERS)
    np.testing.assert_allclose(
        inertia,
        turn @ np.array([[3, 0.1, 0.2], [0.1, 4, 0.3], [0.2, 0.3, 5]]) @ turn.T,
        atol=10 * PARAMETERS,
    )
    np.testing.assert_allclose(robot.tree.nodes[0].axis, np.array([1, 2, -2]) / 3, atol=PARAMETERS)


# -- structure -------------------------------------------------------------------------------------


def test_joints_are_depth_first_and_children_in_file_order(tmp_path: Path) -> None:
    """Not alphabetical (as in Pinocchio), not in the order of the joints' own lines."""
    links = "".join(link(name) for name in ("root", "z", "y", "z1", "y1", "z2"))
    joints = [
        ("jz1", "z", "z1"),
        ("jz", "root", "z"),
        ("jy", "root", "y"),
        ("jz2", "z", "z2"),
        ("jy1", "y", "y1"),
    ]
    robot = load(write(tmp_path, links + "".join(joint(*names) for names in joints)))
    assert robot.joint_names == ("jz", "jz1", "jz2", "jy", "jy1")
    assert robot.body_names == ("z", "z1", "z2", "y", "y1")


def test_links_may_stand_below_the_joints_that_name_them(tmp_path: Path) -> None:
    assert load(write(tmp_path, joint("j", "a", "b") + link("b") + link("a"))).body_names == ("b",)


@pytest.mark.parametrize(
    ("kind", "expected", "nq", "nv"),
    [
        ("revolute", JointKind.REVOLUTE, 1, 1),
        ("continuous", JointKind.REVOLUTE, 1, 1),
        ("prismatic", JointKind.PRISMATIC, 1, 1),
        ("planar", JointKind.PLANAR, 3, 3),
        ("floating", JointKind.FREE, 7, 6),
        ("spherical", JointKind.BALL, 4, 3),
        ("ball", JointKind.BALL, 4, 3),
    ],
)
def test_joint_types(tmp_path: Path, kind: str, expected: JointKind, nq: int, nv: int) -> None:
    robot = load(
        write(
            tmp_path, link("a") + link("b") + joint("j", "a", "b", '<axis xyz="0 0 2"/>', kind=kind)
        )
    )
    assert robot.tree.nodes[0].kind is expected
    assert (robot.nq, robot.nv) == (nq, nv)


def test_fixed_links_merge_into_their_parent_and_into_the_world(tmp_path: Path) -> None:
    """A tool welded to a moving link adds to that body; a pedestal welded to the root is in no
    body.
    """
    fixed = '<origin xyz="0.5 0 0" rpy="0 0 1"/>'
    body = "".join(link(name) for name in ("root", "pedestal", "arm", "tool", "tip"))
    body += joint("weld", "root", "pedestal", kind="fixed") + joint(
        "j", "pedestal", "arm", '<axis xyz="0 1 0"/>', kind="continuous"
    )
    body += joint("grip", "arm", "tool", fixed, kind="fixed") + joint(
        "tap", "tool", "tip", fixed, kind="fixed"
    )
    path = write(tmp_path, body)
    robot = load(path)
    assert robot.body_names == ("arm",)
    assert {item.name: item.body for item in robot.links} == {
        "root": -1,
        "pedestal": -1,
        "arm": 0,
        "tool": 0,
        "tip": 0,
    }
    assert robot.mass == 6.0
    np.testing.assert_allclose(
        robot.theta,
        from_pinocchio(pinocchio.buildModelFromUrdf(str(path)), "j"),
        atol=100 * PARAMETERS,
    )


def test_a_link_without_inertia_is_said_to_have_none(tmp_path: Path) -> None:
    robot = load(
        write(
            tmp_path,
            link("a", "") + link("b", "") + link("c") + joint("i", "a", "b") + joint("j", "b", "c"),
        )
    )
    assert [item.has_inertia for item in robot.links] == [False, False, True]
    assert not np.any(robot.theta[:10])


def test_gravity_is_a_vector_of_the_robot(tmp_path: Path) -> None:
    path = write(tmp_path, link("a") + link("b") + joint("j", "a", "b"))
    assert tuple(load(path).gravity) == (0.0, 0.0, -9.81)
    assert tuple(load(path, gravity=(9.81, 0.0, 0.0)).gravity) == (9.81, 0.0, 0.0)
    with pytest.raises(UsageError, match="gravity"):
        load(path, gravity=(0.0, math.nan, 0.0))


def test_a_robot_that_floats_already_is_not_freed_twice(tmp_path: Path) -> None:
    path = write(
        tmp_path, link("world", "") + link("a") + joint("base", "world", "a", kind="floating")
    )
    assert load(path).nv == 6
    with pytest.raises(UsageError, match="'base' already frees"):
        load(path, floating_base=True)


def test_floating_base_takes_welded_children_along(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        link("world", "")
        + link("a")
        + joint("weld", "world", "a", '<origin xyz="1 0 0"/>', kind="fixed"),
    )
    robot = load(path, floating_base=True)
    assert robot.body_names == ("world",)
    assert robot.theta[parameters.M] == 2.0
    assert robot.theta[parameters.MCX] == pytest.approx(2.0 * 1.1)


# -- joints' extras --------------------------------------------------------------------------------


def two_links(tmp_path: Path, inside: str, kind: str = "revolute") -> Robot:
    return load(write(tmp_path, link("a") + link("b") + joint("j", "a", "b", inside, kind)))


def test_dynamics_become_drive_terms(tmp_path: Path) -> None:
    robot = two_links(tmp_path, '<dynamics damping="0.7" friction="0.3"/>')
    assert (robot.drive.viscous[0], robot.drive.coulomb[0]) == (0.7, 0.3)
    assert two_links(tmp_path, "").drive.is_zero


def test_negative_friction_loads_with_a_warning(tmp_path: Path) -> None:
    """Identified models have it, and Pinocchio refuses them."""
    with pytest.warns(
        RobotWarning, match=r"arm.urdf, line 3, .*joint 'j'/dynamics: friction=-0.3 is negative"
    ):
        assert two_links(tmp_path, '<dynamics friction="-0.3"/>').drive.coulomb[0] == -0.3


@pytest.mark.parametrize(
    ("limit", "kind", "expected"),
    [
        ("", "revolute", (-math.inf, math.inf, math.inf, math.inf)),
        ('<limit lower="-1" upper="2" velocity="3" effort="4"/>', "revolute", (-1, 2, 3, 4)),
        ('<limit upper="2" velocity="3" effort="4"/>', "prismatic", (0, 2, 3, 4)),
        ('<limit velocity="3" effort="4"/>', "revolute", (-math.inf, math.inf, 3, 4)),
        (
            '<limit lower="-1" upper="2" velocity="3" effort="4"/>',
            "continuous",
            (-math.inf, math.inf, 3, 4),
        ),
        ('<limit lower="1" upper="1" velocity="0" effort="0"/>', "revolute", (1, 1, 0, 0)),
    ],
)
def test_limits(tmp_path: Path, limit: str, kind: str, expected: tuple[float, ...]) -> None:
    limits = two_links(tmp_path, limit, kind).tree.nodes[0].limits
    assert (limits.lower, limits.upper, limits.velocity, limits.effort) == expected


def test_the_axis_is_x_by_default_and_normalised(tmp_path: Path) -> None:
    assert tuple(two_links(tmp_path, "").tree.nodes[0].axis) == (1.0, 0.0, 0.0)
    assert tuple(two_links(tmp_path, '<axis xyz="0 -3e200 0"/>').tree.nodes[0].axis) == (
        0.0,
        -1.0,
        0.0,
    )


def test_a_chain_of_mimics_reaches_the_joint_that_owns_the_coordinate(tmp_path: Path) -> None:
    """c = 2b + 0.5 and b = −3a + 1 make c = −6a + 2.5; friction reaches a by virtual work: viscous
    k², Coulomb |k|.
    """
    dynamics = '<dynamics damping="1" friction="1"/>'
    body = "".join(link(name) for name in "rabc")
    body += joint("c", "r", "c", '<mimic joint="b" multiplier="2" offset="0.5"/>' + dynamics)
    body += joint(
        "b", "r", "b", '<mimic joint="a" multiplier="-3" offset="1"/>' + dynamics
    ) + joint("a", "r", "a", dynamics)
    robot = load(write(tmp_path, body))
    mimic = robot.tree.nodes[robot.tree.index_of["c"]].mimic
    assert (mimic.joint, mimic.multiplier, mimic.offset) == ("a", -6.0, 2.5)
    assert robot.joint_names == ("a",)
    assert robot.body_names == ("c", "b", "a")
    assert (robot.drive.viscous[0], robot.drive.coulomb[0]) == (1 + 9 + 36, 1 + 3 + 6)


def test_what_is_not_dynamics_is_left_alone(tmp_path: Path) -> None:
    """Transmissions and plug-ins have <joint> and <link> of their own; meshes are noted, never
    opened.
    """
    extra = (
        '<transmission name="t"><joint name="j"/></transmission><gazebo><link'
        ' name="a"/></gazebo><material name="m"/><unknown/>'
    )
    mesh = '<visual><geometry><mesh filename="package://../../secret.stl"/></geometry></visual>'
    mesh += (
        '<collision><geometry><mesh filename="file:///nowhere/mesh.dae"/></geometry></collision>'
    )
    path = write(
        tmp_path,
        link("a", INERTIAL + mesh)
        + link("b")
        + joint("j", "a", "b", "<safety_controller/><calibration/>")
        + extra,
    )
    robot = load(path)
    assert robot.nv == 1
    assert any("2 meshes" in note for note in robot.notes)
    assert sum("not opened" in note for note in robot.notes) == 3


def test_source_and_name(tmp_path: Path) -> None:
    path = write(tmp_path, link("a"))
    assert load(str(path)).source == path
    assert load(path).name == "arm"
    assert load(path).nv == 0
    path.write_text("<robot><link name='a'/></robot>")
    assert load(path).name == path.stem


def test_left_over_xacro_definitions_do_no_harm(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        '<xacro:property name="p" value="1"/>' + link("a") + link("b") + joint("j", "a", "b"),
    )
    assert load(path).nv == 1


# -- the XML under it ------------------------------------------------------------------------------


def test_xml_reads_what_another_parser_reads() -> None:
    path = example_robot("panda")
    document = read_xml(path)
    oracle = list(minidom.parse(str(path)).getElementsByTagName("*"))
    ours = list(document.root.iter())
    assert [element.tag for element in ours] == [node.tagName for node in oracle]
    assert [element.attrib for element in ours] == [
        dict(node.attributes.items()) for node in oracle
    ]
    lines = document.text.splitlines()
    for element in ours:
        assert document.text[element.offset :].startswith(f"<{element.tag}".encode())
        assert f"<{element.tag}".encode() in lines[element.line - 1]


@pytest.mark.parametrize(
    "encode",
    [
        lambda text: b"\xef\xbb\xbf" + text.encode(),
        lambda text: b"\n \r\n" + text.encode(),
        lambda text: text.encode("utf-16"),
        lambda text: text.replace("<robot", "<!DOCTYPE robot><robot").encode(),
        lambda text: b'<?xml version="1.0" encoding="ISO-8859-1"?>' + text.encode("latin-1"),
    ],
    ids=["byte order mark", "blank lines first", "UTF-16", "bare doctype", "Latin-1"],
)
def test_encodings(tmp_path: Path, encode: object) -> None:
    path = tmp_path / "arm.urdf"
    path.write_bytes(
        encode(f'<robot name="Θ"><link name="é">{INERTIAL}</link></robot>'.replace("Θ", "ä"))
    )
    assert load(path).name == "ä"
    assert load(path).links[0].name == "é"


def test_lines_count_blank_lines_before_the_declaration(tmp_path: Path) -> None:
    path = tmp_path / "arm.urdf"
    path.write_text('\n\n<?xml version="1.0"?>\n<robot name="arm">\n<link name="a"/></robot>')
    document = read_xml(path)
    assert (document.root.line, document.root.children[0].line) == (4, 5)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1.0),
        ("-1.5", -1.5),
        (" .5 ", 0.5),
        ("2.", 2.0),
        ("+1e-3", 1e-3),
        ("1E5", 1e5),
        ("1e-400", 0.0),
    ],
)
def test_numbers(tmp_path: Path, text: str, value: float) -> None:
    path = tmp_path / "x.xml"
    path.write_text(f"<a n='{text}' v='{text}\t{text}\n{text}'/>")
    root = read_xml(path).root
    assert number(root, "n") == value
    assert vector(root, "v", 3) == (value,) * 3
    assert number(root, "absent", 7.0) == 7.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1kg",
        "1,5",
        "nan",
        "inf",
        "-Infinity",
        "1e400",
        "0x10",
        "1_000",
        "1 2",
        "١",
        "1.2.3",
        "--1",
        "1e",
        "9" * 401,
    ],
)
def test_what_is_no_number(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.xml"
    path.write_text(f"<a><b name='c' n='{text}'/></a>", encoding="utf-8")
    with pytest.raises(MalformedInput, match=r"x.xml, line 1, a/b 'c': n="):
        number(read_xml(path).root.children[0], "n")
