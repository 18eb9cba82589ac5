"""MJCF: what MuJoCo computes from the file, the robot read from it computes too; what is unsafe or broken is refused in a sentence."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pytest

from thetahat.errors import MalformedInput, MissingExtra, RefusedForSafety, RobotWarning, ThetahatError, UsageError
from thetahat.model import parameters
from thetahat.model.mjcf import read_mjcf
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind, Node
from thetahat.model.xml import read_xml

mujoco = pytest.importorskip("mujoco")

# Both sides are double precision; the robots are a few metres and kilograms, the chains under 10 joints long.
TOLERANCE = 1e-9
INERTIAL = '<inertial pos="0.1 -0.05 0.2" quat="0.9 0.1 -0.3 0.2" mass="1.5" diaginertia="0.02 0.03 0.04"/>'


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo, as the oracle, writes its warnings to a file in the working folder


def save(text: str, name: str = "robot.xml") -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def mjcf(body: str, before: str = "", after: str = "") -> str:
    return f'<mujoco model="test">{before}<worldbody>{body}</worldbody>{after}</mujoco>'


def load(text: str, **options: object) -> Robot:
    return read_mjcf(read_xml(save(text)), **options)


# -- the robot's kinematics and mass matrix, from the definition of its nodes -------------------------------------------


def turn(axis: np.ndarray, angle: float) -> np.ndarray:
    c = parameters.skew(axis)
    return np.eye(3) + np.sin(angle) * c + (1.0 - np.cos(angle)) * c @ c


def quaternion_matrix(x: float, y: float, z: float, w: float) -> np.ndarray:
    out = np.empty(9)
    mujoco.mju_quat2Mat(out, np.array([w, x, y, z]) / np.linalg.norm([w, x, y, z]))
    return out.reshape(3, 3)


def displaced(node: Node, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Placement of the node's frame in its parent's at q."""
    rotation, translation = node.rotation, node.translation
    match node.kind:
        case JointKind.REVOLUTE:
            return rotation @ turn(node.axis, q[0] + node.offset), translation
        case JointKind.PRISMATIC:
            return rotation, translation + rotation @ node.axis * (q[0] + node.offset)
        case JointKind.BALL:
            return rotation @ quaternion_matrix(*q), translation
        case JointKind.FREE:
            return rotation @ quaternion_matrix(*q[3:]), translation + rotation @ q[:3]
    raise AssertionError(node.kind)


def node_frames(robot: Robot, q: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    frames: list[tuple[np.ndarray, np.ndarray]] = []
    for node in robot.tree.nodes:
        at = robot.tree.q_index[node.name]
        rotation, translation = displaced(node, q[at : at + node.kind.nq])
        if node.parent >= 0:
            above, origin = frames[node.parent]
            rotation, translation = above @ rotation, origin + above @ translation
        frames.append((rotation, translation))
    return frames


def screws(node: Node) -> np.ndarray:
    """Free directions of a joint in its own frame, (6, dofs), angular first."""
    match node.kind:
        case JointKind.REVOLUTE:
            return np.r_[node.axis, np.zeros(3)][:, None]
        case JointKind.PRISMATIC:
            return np.r_[np.zeros(3), node.axis][:, None]
        case JointKind.BALL:
            return np.eye(6)[:, :3]
    return np.eye(6)


def dynamics(robot: Robot, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mass matrix Σ JᵀI J and gravity torque, body by body."""
    frames = node_frames(robot, q)
    mass, gravity = np.zeros((robot.nv, robot.nv)), np.zeros(robot.nv)
    for theta, body in zip(robot.theta.reshape(-1, 10), robot.tree.bodies, strict=True):
        rotation, origin = frames[body]
        jacobian = np.zeros((6, robot.nv))  # twist of the body in its own frame
        joint = body
        while joint >= 0:
            node = robot.tree.nodes[joint]
            relative, away = rotation.T @ frames[joint][0], rotation.T @ (frames[joint][1] - origin)
            motion = np.block([[relative, np.zeros((3, 3))], [parameters.skew(away) @ relative, relative]])
            at = robot.tree.v_index[node.name]
            jacobian[:, at : at + node.kind.nv] = motion @ screws(node)
            joint = node.parent
        mass += jacobian.T @ parameters.to_spatial_inertia(theta) @ jacobian
        g = rotation.T @ robot.gravity
        gravity -= jacobian.T @ np.r_[np.cross(parameters.first_moment(theta), g), theta[parameters.M] * g]
    return mass, gravity


# -- the same, from MuJoCo ----------------------------------------------------------------------------------------------


def random_q(robot: Robot, rng: np.random.Generator) -> np.ndarray:
    q = rng.uniform(-2.0, 2.0, robot.nq)
    for node in robot.tree.nodes:
        if node.kind in (JointKind.BALL, JointKind.FREE):
            at = robot.tree.q_index[node.name] + node.kind.nq - 4
            q[at : at + 4] /= np.linalg.norm(q[at : at + 4])
    return q


def to_mujoco(robot: Robot, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """MuJoCo's qpos (w first), and T with qvel = T·dq (MuJoCo's free joint: linear in world axes, then angular in the body's)."""
    qpos, velocity = q.copy(), np.eye(robot.nv)
    for node in robot.tree.nodes:
        at, dof = robot.tree.q_index[node.name] + node.kind.nq - 4, robot.tree.v_index[node.name]
        if node.kind in (JointKind.BALL, JointKind.FREE):
            qpos[at : at + 4] = q[at + 3], *q[at : at + 3]
        if node.kind is JointKind.FREE:
            block = np.zeros((6, 6))
            block[:3, 3:], block[3:, :3] = quaternion_matrix(*q[at : at + 4]), np.eye(3)
            velocity[dof : dof + 6, dof : dof + 6] = block
    return qpos, velocity


def assert_same(robot: Robot, model: mujoco.MjModel, seed: int = 0) -> None:
    """Link placements, centre of mass, mass matrix and gravity torque at random configurations."""
    assert (robot.nq, robot.nv) == (model.nq, model.nv)
    rng = np.random.default_rng(seed)
    data = mujoco.MjData(model)
    by_name = {link.name: link for link in robot.links}
    for _ in range(3):
        q = random_q(robot, rng)
        qpos, velocity = to_mujoco(robot, q)
        data.qpos[:], data.qvel[:] = qpos, 0.0
        mujoco.mj_forward(model, data)
        frames = node_frames(robot, q)
        for i in range(1, model.nbody):
            link = by_name[model.body(i).name or f"body{i}"]
            rotation, translation = link.rotation, link.translation
            if link.body >= 0:
                above, origin = frames[robot.tree.bodies[link.body]]
                rotation, translation = above @ rotation, origin + above @ translation
            np.testing.assert_allclose(translation, data.xpos[i], atol=TOLERANCE, rtol=0)
            np.testing.assert_allclose(rotation, data.xmat[i].reshape(3, 3), atol=TOLERANCE, rtol=0)
        inertia = np.zeros((model.nv, model.nv))
        mujoco.mj_fullM(model, data, inertia)
        inertia -= np.diag(model.dof_armature)
        mass, gravity = dynamics(robot, q)
        scale = max(1.0, float(np.max(np.abs(inertia), initial=0.0)))
        np.testing.assert_allclose(mass, velocity.T @ inertia @ velocity, atol=TOLERANCE * scale, rtol=0)
        np.testing.assert_allclose(gravity, velocity.T @ data.qfrc_bias, atol=TOLERANCE * scale, rtol=0)


def check(text: str, **others: str) -> Robot:
    """Read the file and compare with MuJoCo's reading of the same file."""
    for name, content in others.items():
        save(content, name.replace("__", "/") + ".xml")
    robot = load(text)
    assert_same(robot, mujoco.MjModel.from_xml_path("robot.xml"))
    return robot


# -- agreement ----------------------------------------------------------------------------------------------------------

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
    assert [node.body for node in robot.tree.nodes] == [None, None, "base", "wrist", "drone", "body5"]
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
        f'<body euler="0.1 0.2 0.3"><joint name="a" ref="0.5" range="-1 2" actuatorfrcrange="-30 20"/>{INERTIAL}</body>',
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
    for weightless in ('<geom class="visual" type="mesh" mesh="absent"/>', '<asset><mesh name="absent" file="absent.stl"/></asset>'):
        text = text.replace(weightless, "")  # the oracle cannot do without the file
    assert_same(robot, mujoco.MjModel.from_xml_string(text))


@pytest.mark.parametrize("mode", ["true", "auto"])
def test_inertia_from_geoms_wins_only_where_the_file_says_so(mode: str) -> None:
    robot = check(mjcf(f'<body name="a"><joint/>{INERTIAL}<geom size="0.1"/></body>', before=f'<compiler inertiafromgeom="{mode}"/>'))
    assert robot.mass == pytest.approx(1.5 if mode == "auto" else 1000 * 4 / 3 * np.pi * 1e-3)


def test_inertia_from_a_mesh_in_the_folder() -> None:
    save("v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n", "parts/Tetra.obj")
    text = mjcf(
        '<body name="a"><joint/><geom type="mesh" mesh="Tetra"/></body>',
        before='<compiler meshdir="parts"/><default><mesh scale="0.1 0.2 0.3"/></default><asset><mesh file="Tetra.obj"/></asset>',
    )
    assert check(text).mass == pytest.approx(1000 * 0.006 / 6)


def test_geoms_assets_and_all_that_has_no_inertia_is_not_needed() -> None:
    save(
        mjcf(
            f"""<body name="a"><joint name="j" stiffness="3"/>{INERTIAL}
                  <geom type="mesh" mesh="m" material="x"/><site name="s"/><camera/><light/></body>""",
            before='<compiler meshdir="../elsewhere"/><asset><mesh name="m" file="m.stl"/><material name="x" texture="t"/></asset><extension/>',
            after="""<actuator><motor joint="j" gear="50"/></actuator><sensor><gyro site="s"/></sensor><keyframe><key qpos="1"/></keyframe>
                     <equality><joint joint1="j" joint2="k"/></equality><tendon><fixed name="rope"><joint joint="j" coef="1"/></fixed></tendon>""",
        ),
        "robot.xml",
    )
    robot = read_mjcf(read_xml("robot.xml"))
    notes = "\n".join(robot.notes)
    assert robot.nv == 1
    for part in ("springs are not modelled: j", "motor 'j'", "joint 'j' – 'k'", "fixed 'rope'"):
        assert part in notes


def test_includes_nest_and_are_sought_as_mujoco_seeks_them() -> None:
    robot = check(
        '<mujoco><include file="parts/head.xml"/><worldbody><include file="parts/arm.xml"/></worldbody></mujoco>',
        parts__head='<mujoco><compiler angle="radian"/><default><joint damping="2"/></default></mujoco>',
        parts__arm=f'<mujocoinclude><body name="a"><joint range="-1 1"/>{INERTIAL}<include file="hand.xml"/></body></mujocoinclude>',
        parts__hand=f'<mujocoinclude><body name="h" pos="0 0 1"><joint axis="0 1 0"/>{INERTIAL}</body></mujocoinclude>',
    )
    assert robot.body_names == ("a", "h")
    np.testing.assert_array_equal(robot.drive.viscous, [2, 2])
    assert robot.tree.nodes[0].limits.upper == 1.0


def test_replicate_frame_and_attach() -> None:
    finger = mjcf(f'<body name="f"><joint name="fj" range="-1 1"/>{INERTIAL}<geom size="1"/></body>', before='<compiler angle="radian"/>')
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
    ['settotalmass="10"', 'boundmass="2" boundinertia="0.5"', 'balanceinertia="true"', 'fusestatic="true"', 'autolimits="true" discardvisual="true"'],
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
    text = mjcf(f"<body><joint/>{INERTIAL}</body>", before='<option><flag gravity="disable"/></option>')
    np.testing.assert_array_equal(load(text).gravity, [0, 0, 0])
    np.testing.assert_array_equal(load(text, gravity=(0.0, 1.0, 2.0)).gravity, [0, 1, 2])


def random_tree(rng: np.random.Generator, bodies: int) -> str:
    """A random forest: bodies hang anywhere, with zero to three joints each; free ones in the world only."""
    children: dict[int, list[int]] = {}
    for i in range(1, bodies + 1):
        children.setdefault(int(rng.integers(0, i)), []).append(i)

    def numbers(n: int) -> str:
        return " ".join(repr(float(x)) for x in rng.normal(size=n))

    def joint(kind: str) -> str:
        place = f'pos="{numbers(3)}" ref="{rng.normal()}"' if kind != "ball" else f'pos="{numbers(3)}"'
        return f'<joint type="{kind}" axis="{numbers(3)}" armature="0.1" {place}/>'

    def body(i: int, top: bool) -> str:
        kinds = [["slide", "hinge", "ball"], ["hinge"], ["hinge", "slide", "hinge"], [], ["ball"], ["slide"]][int(rng.integers(0, 6))]
        joints = "<freejoint/>" if top and rng.random() < 0.3 else "".join(joint(kind) for kind in kinds)
        moments = rng.uniform(1.0, 1.9, 3)
        inertial = f'<inertial pos="{numbers(3)}" quat="{numbers(4)}" mass="{rng.uniform(0.5, 3)}" diaginertia="{" ".join(map(str, moments))}"/>'
        below = "".join(body(child, False) for child in children.get(i, []))
        return f'<body name="b{i}" pos="{numbers(3)}" quat="{numbers(4)}">{joints}{inertial}{below}</body>'

    return mjcf("".join(body(i, True) for i in children[0]), before='<compiler angle="radian"/>')


@pytest.mark.parametrize("seed", range(25))
def test_random_forests(seed: int) -> None:
    check(random_tree(np.random.default_rng(seed), bodies=3 + seed % 8))


# -- floating base --------------------------------------------------------------------------------------------------------


def test_floating_base_frees_the_root() -> None:
    text = mjcf(f'<body name="base" pos="1 2 3" euler="10 20 30">{INERTIAL}<body name="arm" pos="0 0 1"><joint name="j"/>{INERTIAL}</body></body>')
    robot = load(text, floating_base=True)
    assert robot.joint_names == ("root_joint", "j")
    save(text.replace('euler="10 20 30">', "><freejoint/>"), "free.xml")
    assert_same(robot, mujoco.MjModel.from_xml_path("free.xml"))


@pytest.mark.parametrize(
    ("body", "part"),
    [
        (f'<body name="a"><freejoint name="f"/>{INERTIAL}</body>', "already has a free joint ('f')"),
        (f'<body name="a">{INERTIAL}</body><body name="b">{INERTIAL}</body>', "2 bodies in the world (a, b)"),
        (f'<body name="a"><joint name="j"/>{INERTIAL}</body>', "by joint 'j'"),
    ],
)
def test_floating_base_where_it_cannot_be(body: str, part: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(mjcf(body), floating_base=True)
    assert part in str(caught.value)


# -- what MuJoCo refuses and we can take ------------------------------------------------------------------------------------


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
    np.testing.assert_allclose(theta[2], parameters.from_mass_com_inertia(2.0, [0.5, 0, 0], np.zeros((3, 3))))


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
        np.testing.assert_allclose(inertia, [[1, 0.1, 0.2], [0.1, 1, 0.3], [0.2, 0.3, -1]], atol=1e-12)
    assert mass == pytest.approx(-1.0 if "-1" in inertial.split("dia")[0] and "full" not in inertial else 1.0)


# -- refusals -----------------------------------------------------------------------------------------------------------


def refused(text: str, kind: type[ThetahatError], *parts: str) -> None:
    """The file is refused by one sentence that names it and these parts, at once."""
    start = time.perf_counter()
    with pytest.raises(kind) as caught:
        load(text)
    message = str(caught.value)
    assert time.perf_counter() - start < 5.0
    assert "\n" not in message
    for part in ("robot.xml", *parts):
        assert part in message, message
    assert not Path("MUJOCO_LOG.TXT").exists()


BODY = f'<body name="arm"><joint name="j"/>{INERTIAL}</body>'


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ('mass="1.5"', 'mass="1kg"', ("line 1", "arm", "1kg")),
        ('mass="1.5"', 'mass="1,5"', ("1,5",)),
        ('mass="1.5"', 'mass="nan"', ("nan",)),
        ('mass="1.5"', 'mass="inf"', ("inf",)),
        ('mass="1.5"', 'mass="1e400"', ("1e400",)),
        ('mass="1.5"', "", ("mass",)),
        ('name="j"', 'name="j" axis="0 0 0"', ("axis", "joint 'j'")),
        ('name="j"', 'name="j" axis="0 nan 1"', ("nan", "joint 'j'")),
        ('name="j"', 'name="j" axis="0 1"', ("axis", "'0 1'")),
        ('name="j"', 'name="j" range="30 -30"', ("joint 'j'", "swap")),
        ('name="j"', 'name="j" range="nan 3"', ("nan",)),
        ('name="j"', 'name="j" type="screw"', ("screw", "joint 'j'")),
        ('name="j"', 'name="j" damping="1e99"', ("1e99",)),
        ('name="arm"', 'name="arm" pos="0 0 nan"', ("nan", "arm")),
        ('name="arm"', 'name="arm" pos="0 0 0 0"', ("pos", "0 0 0 0")),
        ('name="arm"', 'name="arm" speed="3"', ("speed='3'", "spelling")),
        ('name="arm"', 'name="arm" childclass="none"', ("class",)),
        ("<joint", "<jiont", ("jiont",)),
        ("</body>", '</body><body name="arm"/>', ("repeated name 'arm'",)),
        ("</body>", '</body><body name="world"/>', ("world",)),
    ],
)
def test_bad_values(old: str, new: str, parts: tuple[str, ...]) -> None:
    assert old in BODY
    refused(mjcf(BODY.replace(old, new, 1)), MalformedInput, *parts)


def test_errors_name_the_line_of_the_users_file() -> None:
    save(f'<mujocoinclude>\n\n<body name="b">\n<joint foo="1"/>{INERTIAL}</body></mujocoinclude>', "part.xml")
    refused(mjcf(f'\n\n{BODY}\n<body\n name="c" bar="2"/>'), MalformedInput, "robot.xml, line 4", "bar='2'")
    with pytest.raises(MalformedInput, match=r"part\.xml, line 4, .*foo='1'"):
        load(mjcf('<include file="part.xml"/>'))


@pytest.mark.parametrize("text", ["<mujocoinclude/>", "<robot/>", "<mujoco/>", "<mujoco><worldbody><geom size='1'/></worldbody></mujoco>"])
def test_no_robot_in_it(text: str) -> None:
    refused(text, MalformedInput)


@pytest.mark.parametrize("file", ["../secret.xml", "/etc/hostname", "sub/../../secret.xml", "link.xml", "linked/secret.xml", "..\\secret.xml"])
def test_includes_stay_in_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    (tmp_path / "secret.xml").write_text("<mujocoinclude/>")
    inside = tmp_path / "inside"
    (inside / "sub").mkdir(parents=True)
    (inside / "link.xml").symlink_to(tmp_path / "secret.xml")
    (inside / "linked").symlink_to(tmp_path)
    monkeypatch.chdir(inside)
    refused(mjcf(f'<include file="{file}"/>{BODY}'), RefusedForSafety, "leaves the folder", "<include>")
    refused(mjcf(f'{BODY}<attach model="m" prefix="x"/>', before=f'<asset><model name="m" file="{file}"/></asset>'), RefusedForSafety, "<model>")
    mesh = f'<asset><mesh name="m" file="{file}"/></asset>'
    refused(mjcf('<body><joint/><geom type="mesh" mesh="m"/></body>', before=mesh), RefusedForSafety, "mesh")


def test_symlinks_within_the_folder_are_fine() -> None:
    save(f"<mujocoinclude>{BODY}</mujocoinclude>", "sub/real.xml")
    Path("link.xml").symlink_to(Path("sub/real.xml"))
    assert load(mjcf('<include file="link.xml"/>')).nv == 1


def test_include_cycles_repeats_and_gaps() -> None:
    save('<mujocoinclude><include file="b.xml"/></mujocoinclude>', "a.xml")
    save('<mujocoinclude><include file="a.xml"/></mujocoinclude>', "b.xml")
    refused('<mujoco><include file="robot.xml"/></mujoco>', RefusedForSafety, "cycle")
    with pytest.raises(RefusedForSafety, match=r"b\.xml, line 1.*'a\.xml' includes itself"):
        load('<mujoco><include file="a.xml"/></mujoco>')
    save("<mujocoinclude/>", "c.xml")
    refused('<mujoco><include file="c.xml"/><include file="./c.xml"/></mujoco>', MalformedInput, "twice")
    refused('<mujoco><include file="absent.xml"/></mujoco>', MalformedInput, "'absent.xml' is not there")
    refused("<mujoco><include/></mujoco>", MalformedInput, "file")
    Path("loop.xml").symlink_to("loop.xml")
    refused('<mujoco><include file="loop.xml"/></mujoco>', MalformedInput, "loop.xml")
    save("<!DOCTYPE x [<!ENTITY a 'b'>]><mujocoinclude>&a;</mujocoinclude>", "bomb.xml")
    with pytest.raises(RefusedForSafety, match=r"bomb\.xml"):
        load('<mujoco><include file="bomb.xml"/></mujoco>')


def test_long_include_chains() -> None:
    for k in range(80):
        save(f'<mujocoinclude><include file="c{k + 1}.xml"/></mujocoinclude>', f"c{k}.xml")
    with pytest.raises(RefusedForSafety, match="in a row"):
        load('<mujoco><include file="c0.xml"/></mujoco>')


def test_a_model_that_attaches_itself() -> None:
    before = '<asset><model name="m" file="robot.xml"/></asset>'
    refused(mjcf(f'{BODY}<attach model="m" prefix="x"/>', before=before), RefusedForSafety, "includes itself")


def test_missing_and_broken_meshes() -> None:
    body = '<body name="arm"><joint/><geom type="mesh" mesh="m"/></body>'
    before = '<compiler meshdir="parts"/><asset><mesh name="m" file="hand.stl"/></asset>'
    refused(mjcf(body, before=before), MalformedInput, "mesh 'parts/hand.stl' is not there", "body 'arm'", "<inertial>")
    save("solid nonsense", "parts/hand.stl")
    refused(mjcf(body, before=before), MalformedInput, "MuJoCo refuses")
    refused(mjcf(body), MalformedInput, "mesh")


@pytest.mark.parametrize(
    ("body", "part"),
    [
        (f'<replicate count="3001" offset="1 0 0"><body><joint/>{INERTIAL}</body></replicate>', "3,000 bodies"),
        (f"<body>{INERTIAL}</body>" * 3001, "3,000 bodies"),
        ('<body><joint/><replicate count="1e9" offset="1 0 0"><geom size="1"/></replicate></body>', "1,000,000,000 copies"),
        ('<body><joint/><replicate count="900"><replicate count="900"><geom size="1"/></replicate></replicate></body>', "810,000 copies"),
        ("<body><joint/>" * 600 + "</body>" * 600, "490 deep"),
        (f"{'<body><joint/>' * 450}{'</body>' * 450}" * 6, "degrees of freedom"),
    ],
)
def test_too_large(body: str, part: str) -> None:
    refused(mjcf(body), RefusedForSafety, part)


def test_mujoco_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mujoco", None)
    refused(mjcf(BODY), MissingExtra, "pip install 'thetahat[mujoco]'")


def test_mujoco_opens_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """What MuJoCo is given names no file outside the assets handed over with it."""
    save("v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n", "t.obj")
    save(mjcf(BODY.replace("arm", "sub").replace('"j"', '"k"')), "sub.xml")
    save(f"<mujocoinclude>{BODY}</mujocoinclude>", "part.xml")
    seen: list[tuple[str, dict[str, bytes]]] = []
    compile_text = mujoco.MjModel.from_xml_string

    class Spy:
        @staticmethod
        def from_xml_string(text: str, assets: dict[str, bytes]) -> object:
            seen.append((text, assets))
            return compile_text(text, assets)

    monkeypatch.setattr(mujoco, "MjModel", Spy)
    load(
        mjcf(
            '<include file="part.xml"/><body name="m"><joint/><geom type="mesh" mesh="t"/><attach model="sub" prefix="s_"/></body>',
            before="""<asset><mesh file="t.obj"/><mesh name="unused" file="u.obj"/><texture file="x.png" type="2d" name="x"/>
                        <hfield file="h.png" name="h" size="1 1 1 1"/>
                        <model name="sub" file="sub.xml"/></asset>""",
        )
    )
    ((text, assets),) = seen
    named = [part.split('"')[1] for part in text.split("file=")[1:]]
    assert sorted(named) == sorted(assets)
    assert len(named) == 2
    assert "include" not in text
