"""MJCF: what MuJoCo computes from the file, the robot read from it computes too; what is unsafe or
broken is refused in a sentence.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from mjcf_cases import INERTIAL, assert_same, check, load, mjcf, save

from thetahat.errors import RobotWarning, UsageError
from thetahat.model import parameters
from thetahat.model.io.mjcf import read_mjcf
from thetahat.model.io.xml_reader import read_xml

mujoco = pytest.importorskip("mujoco")


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(
        tmp_path
    )  # MuJoCo, as the oracle, writes its warnings to a file in the working folder


# -- agreement -------------------------------------------------------------------------------------

SEVERAL_JOINTS = mjcf(
    f"""
    <body name="base" pos="1 2 3" euler="10 20 30" childclass="geared">
      <joint name="roll" axis="1 2 0" pos="0.1 0.2 -0.3" ref="30"/>
      <joint name="slide" type="slide" axis="0 1 -1" pos="0.3 0 0" ref="0.4"/>
      <joint name="pitch" axis="0 1 0" pos="-0.2 0 0.1" range="-90 45"/>
      {INERTIAL}
      <body name="tool" pos="0 0.3 0" quat="1 2 3 4">
        <inertial pos="0 0 0.1" mass="0.7" fullinertia="0.03 0.04 0.05 0.001 -0.002 0.003"/>
        <body name="wrist" pos="0.3 0 0"><joint type="ball" pos="0 0.1 0" class="plain"/>{INERTIAL}</body>
      </body>
    </body>
    <body name="drone" pos="5 5 5" euler="0 90 0"><freejoint/>{INERTIAL}
      <body pos="0 0 1"><joint axis="0 0 1" name="rotor"/>{INERTIAL}</body>
    </body>
    <body name="table" pos="0 3 0"><geom size="0.1"/></body>""",
    before="""<option gravity="1 -2 -9"/>
      <default><joint damping="0.5"/>
        <default class="geared"><joint armature="0.2" frictionloss="0.3"/></default><default class="plain"/></default>""",
)


def test_several_joints_on_a_body_with_anchors_references_and_degrees() -> None:
    robot = check(SEVERAL_JOINTS)
    assert robot.joint_names == ("roll", "slide", "pitch", "wrist_joint", "drone_joint", "rotor")
    assert robot.body_names == ("base", "wrist", "drone", "body5")
    assert [node.body for node in robot.tree.nodes] == [
        None,
        None,
        "base",
        "wrist",
        "drone",
        "body5",
    ]
    np.testing.assert_array_equal(robot.gravity, [1, -2, -9])
    np.testing.assert_allclose(robot.drive.viscous[:6], 0.5)
    np.testing.assert_allclose(robot.drive.armature, [0.2] * 3 + [0.0] * 10)
    np.testing.assert_allclose(robot.drive.coulomb, [0.3] * 3 + [0.0] * 10)
    pitch = robot.tree.nodes[2].limits
    np.testing.assert_allclose([pitch.lower, pitch.upper], np.deg2rad([-90, 45]))
    assert robot.tree.nodes[0].limits.lower == -np.inf
    assert robot.source == Path("robot.xml")
    assert robot.name == "test"


def test_an_error_of_one_part_in_1e7_would_be_seen() -> None:
    robot = load(SEVERAL_JOINTS)
    heavier = robot.with_parameters(robot.theta * (1.0 + 1e-7))
    with pytest.raises(AssertionError):
        assert_same(heavier, mujoco.MjModel.from_xml_path("robot.xml"))


def test_radians_euler_sequence_and_effort() -> None:
    text = mjcf(
        '<body euler="0.1 0.2 0.3"><joint name="a" ref="0.5" range="-1 2" actuatorfrcrange="-30'
        f' 20"/>{INERTIAL}</body>',
        before='<compiler angle="radian" eulerseq="ZYX"/>',
    )
    limits = check(text).tree.nodes[0].limits
    assert (limits.lower, limits.upper, limits.effort) == (-1.0, 2.0, 20.0)


def test_inertia_from_primitive_geoms_classes_and_groups() -> None:
    text = mjcf(
        """<body name="a" childclass="heavy"><joint/><geom type="capsule" fromto="0 0 0 0.1 0.2 0.3"/>
             <geom type="box" size="0.1 0.2 0.3" pos="0 0 1"/>
             <geom class="visual" type="mesh" mesh="absent"/><geom size="1" group="4"/>
             <frame pos="0 1 0" euler="0 0 30"><geom type="cylinder" size="0.05 0.2"/>
               <body name="b"><joint axis="1 0 0"/><geom size="0.1" mass="2"/></body></frame>
           </body>""",
        before="""<compiler inertiagrouprange="0 2"/>
          <default><geom density="500" size="0.05"/><default class="heavy"><geom density="3000"/></default>
                   <default class="visual"><geom mass="0" material="absent"/></default></default>
          <asset><mesh name="absent" file="absent.stl"/></asset>""",
    )
    robot = load(text)
    for weightless in (
        '<geom class="visual" type="mesh" mesh="absent"/>',
        '<asset><mesh name="absent" file="absent.stl"/></asset>',
    ):
        text = text.replace(weightless, "")  # the oracle cannot do without the file
    assert_same(robot, mujoco.MjModel.from_xml_string(text))


@pytest.mark.parametrize("mode", ["true", "auto"])
def test_inertia_from_geoms_wins_only_where_the_file_says_so(mode: str) -> None:
    robot = check(
        mjcf(
            f'<body name="a"><joint/>{INERTIAL}<geom size="0.1"/></body>',
            before=f'<compiler inertiafromgeom="{mode}"/>',
        )
    )
    assert robot.mass == pytest.approx(1.5 if mode == "auto" else 1000 * 4 / 3 * np.pi * 1e-3)


def test_inertia_from_a_mesh_in_the_folder() -> None:
    save(
        "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n",
        "parts/Tetra.obj",
    )
    text = mjcf(
        '<body name="a"><joint/><geom type="mesh" mesh="Tetra"/></body>',
        before=(
            '<compiler meshdir="parts"/><default><mesh scale="0.1 0.2 0.3"/></default><asset><mesh'
            ' file="Tetra.obj"/></asset>'
        ),
    )
    assert check(text).mass == pytest.approx(1000 * 0.006 / 6)


def test_geoms_assets_and_all_that_has_no_inertia_is_not_needed() -> None:
    save(
        mjcf(
            f"""<body name="a"><joint name="j" stiffness="3"/>{INERTIAL}
                  <geom type="mesh" mesh="m" material="x"/><site name="s"/><camera/><light/></body>""",
            before=(
                '<compiler meshdir="../elsewhere"/><asset><mesh name="m" file="m.stl"/><material'
                ' name="x" texture="t"/></asset><extension/>'
            ),
            after="""<actuator><motor joint="j" gear="50"/></actuator><sensor><gyro site="s"/></sensor><keyframe><key qpos="1"/></keyframe>
                     <equality><joint joint1="j" joint2="k"/></equality><tendon><fixed name="rope"><joint joint="j" coef="1"/></fixed></tendon>""",
        ),
        "robot.xml",
    )
    robot = read_mjcf(read_xml("robot.xml"))
    notes = "\n".join(robot.notes)
    assert robot.nv == 1
    assert robot.drive.value("spring") == [3.0]
    for part in ("motor 'j'", "joint 'j' – 'k'", "fixed 'rope'"):
        assert part in notes


def test_includes_nest_and_are_sought_as_mujoco_seeks_them() -> None:
    robot = check(
        '<mujoco><include file="parts/head.xml"/><worldbody><include'
        ' file="parts/arm.xml"/></worldbody></mujoco>',
        parts__head=(
            '<mujoco><compiler angle="radian"/><default><joint damping="2"/></default></mujoco>'
        ),
        parts__arm=(
            f'<mujocoinclude><body name="a"><joint range="-1 1"/>{INERTIAL}<include'
            ' file="hand.xml"/></body></mujocoinclude>'
        ),
        parts__hand=(
            '<mujocoinclude><body name="h" pos="0 0 1"><joint axis="0 1'
            f' 0"/>{INERTIAL}</body></mujocoinclude>'
        ),
    )
    assert robot.body_names == ("a", "h")
    np.testing.assert_array_equal(robot.drive.viscous, [2, 2])
    assert robot.tree.nodes[0].limits.upper == 1.0


def test_replicate_frame_and_attach() -> None:
    finger = mjcf(
        f'<body name="f"><joint name="fj" range="-1 1"/>{INERTIAL}<geom size="1"/></body>',
        before='<compiler angle="radian"/>',
    )
    robot = check(
        mjcf(
            f"""<frame pos="0 0 1" euler="30 0 0"><body name="palm"><joint name="p"/>{INERTIAL}
                  <frame pos="1 0 0"><attach model="finger" body="f" prefix="left_"/></frame>
                  <replicate count="2" offset="0 1 0" euler="0 0 20"><body name="r"><joint name="rj"/><geom size="0.1"/></body></replicate>
                </body></frame>""",
            before='<asset><model name="finger" file="finger.xml"/></asset>',
        ),
        finger=finger,
    )
    assert set(robot.joint_names) == {"p", "left_fj", "rj0", "rj1"}
    assert robot.tree.nodes[robot.tree.index_of["left_fj"]].limits.upper == 1.0


@pytest.mark.parametrize(
    "compiler",
    [
        'settotalmass="10"',
        'boundmass="2" boundinertia="0.5"',
        'balanceinertia="true"',
        'fusestatic="true"',
        'autolimits="true" discardvisual="true"',
    ],
)
def test_compiler_options_that_change_inertia(compiler: str) -> None:
    text = mjcf(
        f"""<body name="a"><joint/>{INERTIAL}<body name="b" pos="0 1 0"><geom size="0.1"/></body>
              <body name="c" pos="1 0 0"><joint/><inertial pos="0 0 0" mass="1" diaginertia="1 1 2"/></body></body>
            <body name="fixed"><geom size="0.2"/></body>""",
        before=f"<compiler {compiler}/>",
    )
    if "balance" in compiler:
        text = text.replace('"1 1 2"', '"1 1 3"')
    robot = load(text)
    assert_same(robot, mujoco.MjModel.from_xml_path("robot.xml"))


def test_gravity_given_and_gravity_switched_off() -> None:
    text = mjcf(
        f"<body><joint/>{INERTIAL}</body>", before='<option><flag gravity="disable"/></option>'
    )
    np.testing.assert_array_equal(load(text).gravity, [0, 0, 0])
    np.testing.assert_array_equal(load(text, gravity=(0.0, 1.0, 2.0)).gravity, [0, 1, 2])


def random_tree(rng: np.random.Generator, bodies: int) -> str:
    """A random forest: bodies hang anywhere, with zero to three joints each; free ones in the world
    only.
    """
    children: dict[int, list[int]] = {}
    for i in range(1, bodies + 1):
        children.setdefault(int(rng.integers(0, i)), []).append(i)

    def numbers(n: int) -> str:
        return " ".join(repr(float(x)) for x in rng.normal(size=n))

    def joint(kind: str) -> str:
        place = (
            f'pos="{numbers(3)}" ref="{rng.normal()}"' if kind != "ball" else f'pos="{numbers(3)}"'
        )
        return f'<joint type="{kind}" axis="{numbers(3)}" armature="0.1" {place}/>'

    def body(i: int, top: bool) -> str:
        kinds = [
            ["slide", "hinge", "ball"],
            ["hinge"],
            ["hinge", "slide", "hinge"],
            [],
            ["ball"],
            ["slide"],
        ][int(rng.integers(0, 6))]
        joints = (
            "<freejoint/>" if top and rng.random() < 0.3 else "".join(joint(kind) for kind in kinds)
        )
        moments = rng.uniform(1.0, 1.9, 3)
        inertial = (
            f'<inertial pos="{numbers(3)}" quat="{numbers(4)}" mass="{rng.uniform(0.5, 3)}"'
            f' diaginertia="{" ".join(map(str, moments))}"/>'
        )
        below = "".join(body(child, False) for child in children.get(i, []))
        return (
            f'<body name="b{i}" pos="{numbers(3)}"'
            f' quat="{numbers(4)}">{joints}{inertial}{below}</body>'
        )

    return mjcf("".join(body(i, True) for i in children[0]), before='<compiler angle="radian"/>')


@pytest.mark.parametrize("seed", range(25))
def test_random_forests(seed: int) -> None:
    check(random_tree(np.random.default_rng(seed), bodies=3 + seed % 8))


# -- floating base ---------------------------------------------------------------------------------


def test_floating_base_frees_the_root() -> None:
    text = mjcf(
        f'<body name="base" pos="1 2 3" euler="10 20 30">{INERTIAL}<body name="arm" pos="0 0'
        f' 1"><joint name="j"/>{INERTIAL}</body></body>'
    )
    robot = load(text, floating_base=True)
    assert robot.joint_names == ("root_joint", "j")
    save(text.replace('euler="10 20 30">', "><freejoint/>"), "free.xml")
    assert_same(robot, mujoco.MjModel.from_xml_path("free.xml"))


@pytest.mark.parametrize(
    ("body", "part"),
    [
        (
            f'<body name="a"><freejoint name="f"/>{INERTIAL}</body>',
            "already has a free joint ('f')",
        ),
        (
            f'<body name="a">{INERTIAL}</body><body name="b">{INERTIAL}</body>',
            "2 bodies in the world (a, b)",
        ),
        (f'<body name="a"><joint name="j"/>{INERTIAL}</body>', "by joint 'j'"),
    ],
)
def test_floating_base_where_it_cannot_be(body: str, part: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(mjcf(body), floating_base=True)
    assert part in str(caught.value)


# -- what MuJoCo refuses and we can take -----------------------------------------------------------


def test_massless_frames_and_point_masses_load() -> None:
    text = mjcf(
        """<body name="empty"><joint name="a"/><body name="zero" pos="0 0 1"><joint name="b" axis="1 0 0"/><inertial pos="0 0 0" mass="0"/>
             <body name="point" pos="0 1 0"><joint name="c"/><inertial pos="0.5 0 0" mass="2"/></body></body></body>"""
    )
    with pytest.raises(ValueError, match="mjMINVAL"):
        mujoco.MjModel.from_xml_string(text)
    robot = load(text)
    theta = robot.theta.reshape(3, 10)
    np.testing.assert_array_equal(theta[:2], 0.0)
    np.testing.assert_allclose(
        theta[2], parameters.from_mass_com_inertia(2.0, [0.5, 0, 0], np.zeros((3, 3)))
    )


@pytest.mark.parametrize(
    ("inertial", "part"),
    [
        ('pos="0 0 1" mass="-1" diaginertia="1 1 1"', "mass is negative"),
        ('pos="0 0 1" euler="0 90 0" mass="1" diaginertia="1 1 3"', "triangle inequality"),
        ('pos="0 0 1" mass="1" fullinertia="1 1 -1 0.1 0.2 0.3"', "negative principal moment"),
    ],
)
def test_unphysical_inertia_loads_with_a_warning(inertial: str, part: str) -> None:
    with pytest.warns(RobotWarning, match=f"link 'a' is not physical.*{part}"):
        robot = load(mjcf(f'<body name="a"><joint/><inertial {inertial}/></body>'))
    mass, com, inertia = parameters.to_mass_com_inertia(robot.theta)
    np.testing.assert_allclose(com, [0, 0, 1])
    if "euler" in inertial:
        np.testing.assert_allclose(inertia, np.diag([3.0, 1.0, 1.0]), atol=1e-12)
    if "full" in inertial:
        np.testing.assert_allclose(
            inertia, [[1, 0.1, 0.2], [0.1, 1, 0.3], [0.2, 0.3, -1]], atol=1e-12
        )
    assert mass == pytest.approx(
        -1.0 if "-1" in inertial.split("dia")[0] and "full" not in inertial else 1.0
    )
