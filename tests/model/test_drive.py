"""Drive columns: what motors add beside the rigid bodies, at motor speed through the actuation map.
Oracles: MuJoCo, SymPy.
"""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np
import pytest
import sympy
from data_paths import example_robot

import thetahat as th
from oracles.random_trees import random_robot, random_state
from thetahat.control.computed_torque import GravityCompensation
from thetahat.errors import NotIdentifiable, UsageError
from thetahat.identification.parameter_columns import Columns, full_regressor
from thetahat.model import friction_terms
from thetahat.model.actuation import Actuation
from thetahat.model.drive import TERMS, Drive
from thetahat.model.friction_terms import DriveTerm
from thetahat.model.io.save import with_drive_file
from thetahat.model.tree import JointKind
from thetahat.plant.plant import MujocoPlant, OwnPlant

EXACT = 1e-12  # relative: the same sums in another order
DIFFERENCE = 1e-8  # relative: Ḃ by a central difference

ALL_TERMS = dict.fromkeys(TERMS, True)

WRIST = """<mujoco><option gravity="0 0 -9.81"/><worldbody>
  <body name="upper"><joint name="a" axis="0 0 1" damping="{da}" armature="{ia}"/><inertial pos="0.1 0 0.2" mass="2" diaginertia="0.02 0.03 0.01"/>
    <body name="lower" pos="0 0 0.4"><joint name="b" axis="0 1 0" damping="{db}" armature="{ib}"/>
      <inertial pos="0.05 0.02 0.1" mass="1.5" diaginertia="0.01 0.012 0.009"/>
      <body name="hand" pos="0 0 0.3"><joint name="c" axis="1 0 0"/><inertial pos="0 0.03 0.1" mass="0.7" diaginertia="0.004 0.005 0.003"/></body>
    </body></body></worldbody>{tendon}</mujoco>"""

TENDONS = """<tendon><fixed name="m1" damping="0.7" armature="0.02"><joint joint="a" coef="30"/></fixed>
  <fixed name="m2" damping="0.3" armature="0.01"><joint joint="b" coef="20"/><joint joint="c" coef="-15"/></fixed>
  <fixed name="m3" damping="0.2" armature="0.03"><joint joint="b" coef="20"/><joint joint="c" coef="15"/></fixed></tendon>"""
COUPLED = np.array([[30.0, 0.0, 0.0], [0.0, 20.0, 20.0], [0.0, -15.0, 15.0]])


def load_text(text: str, folder) -> th.Robot:
    path = folder / "robot.xml"
    path.write_text(text)
    return th.load(path)


def mujoco_inverse(text: str, q, dq, ddq) -> np.ndarray:
    model = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:], data.qacc[:] = q, dq, ddq
    mujoco.mj_inverse(model, data)
    return data.qfrc_inverse.copy()


def close(a, b, tolerance: float = EXACT) -> bool:
    return bool(
        np.max(np.abs(a - b), initial=0.0) <= tolerance * max(1.0, np.max(np.abs(b), initial=0.0))
    )


def states(robot: th.Robot, seed: int, samples: int):
    rng = np.random.default_rng(seed)
    return (
        th.random_configuration(robot, rng, samples),
        rng.normal(size=(samples, robot.nv)),
        rng.normal(size=(samples, robot.nv)),
    )


# -- torque ----------------------------------------------------------------------------------------


def test_damping_and_armature_on_joints_are_mujocos(tmp_path) -> None:
    text = WRIST.format(da=0.4, ia=0.05, db=0.1, ib=0.02, tendon="")
    robot = load_text(text, tmp_path)
    q, dq, ddq = states(robot, 0, 20)
    for sample in range(20):
        assert close(
            th.inverse_dynamics(robot, q[sample], dq[sample], ddq[sample]),
            mujoco_inverse(text, q[sample], dq[sample], ddq[sample]),
        )


def test_motors_behind_a_coupling_are_mujocos_tendons(tmp_path) -> None:
    bare = dict(da=0, ia=0, db=0, ib=0)  # noqa: C408
    robot = load_text(WRIST.format(**bare, tendon=""), tmp_path).with_actuation(COUPLED)
    robot = replace(
        robot,
        drive=robot.drive.with_values(
            viscous=np.array([0.7, 0.3, 0.2]), armature=np.array([0.02, 0.01, 0.03])
        ),
    )
    q, dq, ddq = states(robot, 1, 20)
    tau = th.inverse_dynamics(robot, q, dq, ddq)
    for sample in range(20):
        assert close(
            tau[sample],
            mujoco_inverse(
                WRIST.format(**bare, tendon=TENDONS), q[sample], dq[sample], ddq[sample]
            ),
        )
    assert close(th.forward_dynamics(robot, q, dq, tau), ddq, 1e-10)
    assert close(
        th.kinetic_energy(robot, q, dq),
        0.5 * np.einsum("si,sij,sj->s", dq, th.mass_matrix(robot, q), dq),
    )


def pushrods(q: np.ndarray) -> np.ndarray:
    """B = (∂q_m/∂q)ᵀ for q_m = (q1 + 0.3 sin q2, q2 cos q1 − 0.2 q1², q3)."""
    q1, q2 = q[..., 0], q[..., 1]
    B = np.zeros((*q.shape[:-1], 3, 3))
    B[..., 0, 0], B[..., 1, 0] = 1.0, 0.3 * np.cos(q2)
    B[..., 0, 1], B[..., 1, 1] = -q2 * np.sin(q1) - 0.4 * q1, np.cos(q1)
    B[..., 2, 2] = 1.0
    return B


def test_rotors_behind_pushrods_follow_lagrange(tmp_path) -> None:
    t = sympy.Symbol("t")
    q = [sympy.Function(f"q{k}")(t) for k in range(3)]
    motors = [
        q[0] + sympy.Rational(3, 10) * sympy.sin(q[1]),
        q[1] * sympy.cos(q[0]) - q[0] ** 2 / 5,
        q[2],
    ]
    inertia = [sympy.Rational(1, 2), sympy.Rational(3, 10), sympy.Rational(1, 10)]
    energy = sum(a * m.diff(t) ** 2 for a, m in zip(inertia, motors, strict=True)) / 2
    torque = [energy.diff(x.diff(t)).diff(t) - energy.diff(x) for x in q]
    flat = sympy.symbols("a:3 b:3 c:3")
    order = [(x.diff(t, 2), flat[6 + k]) for k, x in enumerate(q)] + [
        (x.diff(t), flat[3 + k]) for k, x in enumerate(q)
    ]
    order += [(x, flat[k]) for k, x in enumerate(q)]
    lagrange = sympy.lambdify(flat, [expression.doit().subs(order) for expression in torque])

    robot = load_text(WRIST.format(da=0, ia=0, db=0, ib=0, tendon=""), tmp_path).with_actuation(
        pushrods
    )
    robot = replace(robot, drive=robot.drive.with_values(armature=np.array([0.5, 0.3, 0.1])))
    state = states(robot, 2, 30)
    added = th.inverse_dynamics(robot, *state) - th.inverse_dynamics(robot, *state, rigid=True)
    for got, *sample in zip(added, *state, strict=True):
        assert close(got, np.array(lagrange(*np.concatenate(sample))), DIFFERENCE)
    assert close(
        th.forward_dynamics(robot, *state[:2], th.inverse_dynamics(robot, *state)),
        state[2],
        DIFFERENCE,
    )
    one = th.inverse_dynamics(robot, *(a[0] for a in state))
    assert close(one, th.inverse_dynamics(robot, *state)[0])


@pytest.mark.parametrize("seed", range(4))
def test_a_gear_changes_who_turns_not_the_torque(seed: int) -> None:
    robot = random_robot(seed, drive=True)
    ratio = np.random.default_rng(seed).uniform(10.0, 100.0, robot.nv) * np.resize(
        [1.0, -1.0], robot.nv
    )
    geared = robot.with_actuation(np.diag(ratio))
    state = random_state(robot, seed, 9)
    assert close(th.inverse_dynamics(geared, *state), th.inverse_dynamics(robot, *state))
    assert not np.allclose(geared.drive.viscous, robot.drive.viscous)


@pytest.mark.parametrize("seed", range(4))
def test_friction_takes_power_through_any_map(seed: int) -> None:
    rng = np.random.default_rng(seed)
    robot = random_robot(seed, nodes=5)
    motors = robot.nv + 2
    robot = robot.with_actuation(rng.normal(size=(robot.nv, motors)))
    dq = rng.normal(size=(50, robot.nv))
    for term in ("viscous", "coulomb"):
        drive = robot.drive.with_values(**{term: rng.uniform(0.1, 1.0, motors)})
        assert np.all(np.sum(dq * drive.friction(dq), axis=1) > 0.0)


# -- columns ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("mapped", [False, True])
def test_the_columns_times_x_are_the_torque(seed: int, mapped: bool) -> None:
    robot = random_robot(seed, drive=True)
    if mapped:
        rng = np.random.default_rng(seed)
        robot = robot.without_drive().with_actuation(rng.normal(size=(robot.nv, robot.nv + 1)))
        robot = replace(
            robot,
            drive=robot.drive.with_values(
                **{term: rng.normal(size=robot.nv + 1) for term in TERMS}
            ),
        )
    robot = robot.with_drive(**ALL_TERMS)
    robot = replace(
        robot, drive=replace(robot.drive, motors=None)
    )  # free joints too: their values are in the torque
    columns, state = Columns(robot), random_state(robot, seed, 6)
    Y = full_regressor(robot, *state)
    assert Y.shape == (6, robot.nv, columns.count)
    assert close(Y @ columns.x0, th.inverse_dynamics(robot, *state))
    assert not np.any(Y[:, ~columns.touches]), "an entry that `touches` calls zero is not"
    x = np.random.default_rng(seed).normal(size=columns.count)
    assert np.array_equal(Columns(columns.apply(x)).x0, x)
    assert close(Y @ x, th.inverse_dynamics(robot.with_parameters(x), *state))


def test_x_is_laid_out_by_term_then_motor() -> None:
    robot = th.load(example_robot("panda")).with_drive(viscous=True, armature=True)
    columns = Columns(robot)
    assert columns.count == 90 + 2 * 8
    assert columns.inertial == 90
    assert np.sum(columns.is_inertial) == 90
    assert columns.names[0] == "Ixx_panda_link1"
    assert columns.names[90:92] == ("viscous_panda_joint1", "viscous_panda_joint2")
    assert columns.names[98] == "armature_panda_joint1"
    assert columns.units[9] == "kg"
    assert columns.units[90] == "N·m·s/rad"
    assert columns.units[97] == "N·s/m"  # the finger slides
    theta, drive = columns.split(np.arange(106.0))
    assert np.array_equal(theta, np.arange(90.0))
    assert list(drive) == ["viscous", "armature"]
    assert np.array_equal(drive["armature"], np.arange(98.0, 106.0))
    only = robot.with_parameters(robot.theta * 2.0)
    assert np.array_equal(only.drive.viscous, robot.drive.viscous)
    with pytest.raises(UsageError, match="106 columns"):
        columns.split(np.zeros(90))


def test_nothing_drives_a_base() -> None:
    robot = th.load(example_robot("solo12"), floating_base=True).with_drive(viscous=True)
    columns = Columns(robot)
    assert columns.count == columns.inertial + 12
    assert not any("root_joint" in name for name in columns.motor_names)
    assert not np.any(columns.touches[:6, columns.inertial :])


def stribeck(speed: float) -> DriveTerm:
    return DriveTerm("stribeck", lambda dq, ddq, load: np.sign(dq) * np.exp(-((dq / speed) ** 2)))


LOADED = DriveTerm("load", lambda dq, ddq, load: np.sign(dq) * np.abs(load), needs_load=True)


def test_a_further_shape_is_one_more_column_and_nothing_else_changes() -> None:
    robot = random_robot(3, nodes=4, drive=True, kinds=(0, 1), mimic=False).with_drive(viscous=True)
    robot = replace(
        robot, drive=robot.drive.with_extra_term(stribeck(0.1), 0.4).with_extra_term(LOADED, 0.05)
    )
    columns, state = Columns(robot), random_state(robot, 3, 7)
    load = th.inverse_dynamics(robot, *state, rigid=True)
    assert columns.drive.identified == ("viscous", "stribeck", "load")
    others = replace(robot.drive, viscous=np.zeros(robot.nv), extra=(), identified=())
    fixed = th.inverse_dynamics(replace(robot, drive=others), *state)
    rest = fixed - load  # the terms that are not columns
    assert close(
        full_regressor(robot, *state, load=load) @ columns.x0 + rest,
        th.inverse_dynamics(robot, *state),
    )
    other = replace(
        robot, drive=robot.drive.with_extra_term(stribeck(0.5), 0.4)
    )  # the outer search moves the shape
    assert other.drive.identified == robot.drive.identified
    assert not close(th.inverse_dynamics(other, *state), th.inverse_dynamics(robot, *state))
    with pytest.raises(UsageError, match="depends on the load"):
        full_regressor(robot, *state)
    added = [
        name for name in robot.base_parameters.column_names if name.startswith(("stribeck", "load"))
    ]
    assert len(added) == 2 * robot.nv
    assert set(added) <= set(robot.base_parameters.names), "each is identifiable alone"


# -- currents and refusals -------------------------------------------------------------------------


def test_currents_become_torques_by_known_gains_only(tmp_path) -> None:
    robot = load_text(WRIST.format(da=0, ia=0, db=0, ib=0, tendon=""), tmp_path)
    current = np.random.default_rng(0).normal(size=(5, 3))
    actuation = robot.with_actuation(COUPLED, gains=[0.1, 0.2, 0.3]).drive.actuation
    assert close(actuation.joint_torque_of_current(current), current * [0.1, 0.2, 0.3] @ COUPLED.T)
    partly = robot.with_actuation(
        COUPLED, gains=[0.1, None, 0.3], names=["x", "y", "z"]
    ).drive.actuation
    with pytest.raises(NotIdentifiable, match="motor 'y' is not known"):
        partly.joint_torque_of_current(current)
    columns, names, torque = partly.gain_columns(current)
    assert names == ("gain_y",)
    assert close(torque - (columns @ [0.2]), actuation.joint_torque_of_current(current))
    nothing = robot.with_actuation(COUPLED).drive.actuation
    with pytest.raises(NotIdentifiable, match="scaled alike"):
        nothing.gain_columns(current)
    assert nothing.gain_columns(current, fixed=["m_hand"])[0].shape == (5, 3, 3)
    with pytest.raises(UsageError, match="one per motor"):
        actuation.joint_torque(np.zeros(4))


def test_what_cannot_be_is_refused_in_a_sentence(tmp_path) -> None:
    robot = load_text(WRIST.format(da=0.4, ia=0, db=0.1, ib=0, tendon=""), tmp_path)
    bare = robot.without_drive()
    with pytest.raises(UsageError, match="'b' states friction or armature"):
        robot.with_actuation(COUPLED)
    with pytest.raises(UsageError, match=r"shape \(2, 3\); expected \(3, 3\)"):
        bare.with_actuation(np.ones((2, 3)), names=["x", "y", "z"])
    with pytest.raises(UsageError, match="drives no joint"):
        bare.with_actuation(np.diag([1.0, 0.0, 2.0]))
    with pytest.raises(UsageError, match="names repeat"):
        bare.with_actuation(COUPLED, names=["x", "x", "z"])
    with pytest.raises(UsageError, match="2 gains are given for 3 motors"):
        bare.with_actuation(COUPLED, gains=[1.0, 2.0])
    with pytest.raises(UsageError, match="gain of motor 'a' is 0"):
        bare.with_actuation(COUPLED, gains=[0.0, 1.0, 1.0])
    with pytest.raises(UsageError, match="term 'viscos' is unknown; terms: viscous"):
        robot.with_drive(viscos=True)
    with pytest.raises(UsageError, match="must take many configurations"):
        full_regressor(
            bare.with_actuation(lambda q: np.eye(2)).with_drive(viscous=True), *states(robot, 0, 4)
        )
    with pytest.raises(UsageError, match="hand in q"):
        bare.with_actuation(pushrods).drive.torque(np.zeros(3), np.zeros(3))
    with pytest.raises(UsageError, match="one per motor"):
        Drive(np.zeros(3), np.zeros(2), np.zeros(3), np.zeros(3))
    with pytest.raises(UsageError, match="built in"):
        robot.drive.with_extra_term(DriveTerm("offset", lambda dq, ddq, load: dq))
    moving = bare.with_actuation(COUPLED)
    moving = replace(moving, drive=moving.drive.with_values(viscous=np.ones(3)))
    with pytest.raises(UsageError, match="motors with friction already"):
        moving.with_actuation(np.eye(3))


def test_motors_are_named_by_the_joint_they_drive_alone(tmp_path) -> None:
    robot = load_text(WRIST.format(da=0.4, ia=0, db=0.1, ib=0, tendon=""), tmp_path)
    both = robot.with_actuation(
        np.hstack([np.eye(3), [[0.0], [1.0], [1.0]]])
    )  # joint friction, and a shaft that turns with two of them
    assert isinstance(both.drive.actuation, Actuation)
    assert both.drive.actuation.names == ("a", "b", "c", "motor4")
    assert np.array_equal(both.drive.viscous, [0.4, 0.1, 0.0, 0.0])


# -- springs ---------------------------------------------------------------------------------------

SPRUNG = """<mujoco><compiler angle="radian"/><option gravity="0 0 -9.81" timestep="0.0005"/><worldbody>
  <body name="upper"><joint name="a" axis="0 1 0" {a}/><inertial pos="0.1 0 0.2" mass="2" diaginertia="0.02 0.03 0.01"/>
    <body name="lower" pos="0 0 0.4"><joint name="b" axis="0 1 0" {b}/>
      <inertial pos="0.05 0.02 0.1" mass="1.5" diaginertia="0.01 0.012 0.009"/></body></body></worldbody></mujoco>"""
STIFFNESS, REST = np.array([9.0, 3.0]), np.array([0.3, -0.2])


def sprung(folder) -> tuple[th.Robot, str]:
    """A robot with springs as drive terms, and the same in MuJoCo's own XML."""
    joints = [f'stiffness="{k}" springref="{q0}"' for k, q0 in zip(STIFFNESS, REST, strict=True)]
    robot = load_text(SPRUNG.format(a="", b=""), folder)
    drive = robot.drive.with_values(offset=-STIFFNESS * REST)
    drive = drive.with_extra_term(friction_terms.spring(np.ones(2)), STIFFNESS)
    return replace(robot, drive=drive), SPRUNG.format(a=joints[0], b=joints[1])


def test_springs_are_mujocos_stiffness(tmp_path) -> None:
    robot, text = sprung(tmp_path)
    q, dq, ddq = states(robot, 1, 20)
    tau = th.inverse_dynamics(robot, q, dq, ddq)
    for k in range(20):
        assert close(tau[k], mujoco_inverse(text, q[k], dq[k], ddq[k]))
    np.testing.assert_allclose(th.forward_dynamics(robot, q, dq, tau), ddq, atol=1e-9)


@pytest.mark.parametrize("plant", [OwnPlant, MujocoPlant])
def test_a_plant_swings_on_its_springs_as_mujoco_does(tmp_path, plant) -> None:
    robot, text = sprung(tmp_path)
    model = mujoco.MjModel.from_xml_string(text)
    model.opt.integrator = mujoco.mjtIntegrator.mjINT_RK4
    data = mujoco.MjData(model)
    data.qpos[:] = start = np.array([0.4, 0.3])
    mine = plant(robot)
    mine.reset(start)
    for _ in range(1000):
        mujoco.mj_step(model, data)
        mine.step(np.zeros(2), 0.0005)
    np.testing.assert_allclose(mine.state.q, data.qpos, atol=1e-7)


def test_gravity_compensation_holds_against_springs(tmp_path) -> None:
    robot, text = sprung(tmp_path)
    q = np.array([0.4, 0.3])
    controller = GravityCompensation(robot, kp=0.0, kd=0.0)
    still = np.zeros(2)
    tau = controller(0.0, q, still, (q, still, still))
    np.testing.assert_allclose(tau, mujoco_inverse(text, q, still, still), atol=1e-9)


def test_springs_come_back_from_their_file(tmp_path) -> None:
    robot, _ = sprung(tmp_path)
    th.save(robot, tmp_path / "sprung.xml")
    q, dq, ddq = states(robot, 2, 5)
    again = with_drive_file(th.load(tmp_path / "sprung.xml"), tmp_path / "drive.json")
    assert close(th.inverse_dynamics(again, q, dq, ddq), th.inverse_dynamics(robot, q, dq, ddq))


def test_springs_refuse_what_has_no_position_of_its_own() -> None:
    robot = random_robot(3, kinds=(JointKind.BALL,), nodes=2, mimic=False, massless=False)
    drive = robot.drive.with_extra_term(friction_terms.spring(1.0), 1.0)
    robot = replace(robot, drive=drive)
    with pytest.raises(UsageError, match="one degree of freedom"):
        th.inverse_dynamics(robot, robot.neutral, np.zeros(robot.nv), np.zeros(robot.nv))
