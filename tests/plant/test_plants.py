"""Laws of the plants: both engines compute the same motion, energy is kept, friction is its
formula, joints at rest stay at rest.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
from plant_cases import both_engines, engine, load, one_joint, realistic
from scipy.integrate import solve_ivp
from scipy.spatial.transform import Rotation

import thetahat as th
from oracles.random_trees import random_robot, random_state
from thetahat.errors import MissingExtra, UnphysicalRobot, UsageError
from thetahat.model.friction_terms import DriveTerm
from thetahat.model.lock_joints import lock
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind, Tree
from thetahat.plant.plant import MujocoPlant, OwnPlant, Plant

SAME = 1e-9  # relative: the bound on the accelerations of two engines
FOURTH_ORDER = 1e-9  # of a motion over seconds at steps of a millisecond, measured 1e-11
# of the largest kinetic energy, over seconds of free fall at up to 35 rad/s; measured 8e-9 (double
# pendulum) and 1.3e-7 (arm4)
DRIFT = 1e-6

ROBOTS = (
    "double_pendulum",
    "arm4",
    "arm7",
    "ur10",
    "kinova",
    "panda",
    "talos",
    "solo12",
    "g1",
    "allegro",
    "baxter",
)
VALKYRIE = (
    "valkyrie_arm",
    "valkyrie_leg",
    "valkyrie_A_32dof",
    "valkyrie_A_58dof_nomesh",
)


def accelerations(plant: Plant, q: np.ndarray, dq: np.ndarray, tau: np.ndarray) -> np.ndarray:
    plant.reset(q, dq)
    plant.command(tau)
    return plant.acceleration


def torques(robot: Robot, seed: int) -> np.ndarray:
    return 20.0 * np.random.default_rng(seed).normal(size=robot.nv)


def assert_same(a: np.ndarray, b: np.ndarray, bound: float = SAME) -> None:
    assert np.max(np.abs(a - b)) <= bound * max(1.0, np.max(np.abs(b)))


# -- engines ---------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::thetahat.errors.RobotWarning")
@pytest.mark.parametrize("name", ROBOTS + VALKYRIE)
def test_both_engines_compute_the_acceleration_that_pinocchio_does(name: str) -> None:
    robot = load(name).without_drive()
    plants = OwnPlant(robot), engine("mujoco")(robot)
    pinocchio = pytest.importorskip(
        "oracles.pinocchio_bridge", reason="Pinocchio is an oracle (pip install pin)"
    )
    oracle = pinocchio.from_robot(robot)
    for seed in range(4):
        q, dq, _ = random_state(robot, seed)
        tau = torques(robot, seed)
        own, mujoco = (accelerations(plant, q, dq, tau) for plant in plants)
        assert_same(own, mujoco)
        assert_same(
            oracle.inverse_dynamics(q[None], dq[None], mujoco[None])[0], tau
        )  # forces, as its mimic joints move by themselves


@pytest.mark.parametrize("seed", range(12))
def test_engines_agree_on_random_trees_with_rotors_and_mimic_joints(seed: int) -> None:
    kinds = (JointKind.REVOLUTE, JointKind.PRISMATIC, *((JointKind.BALL,) if seed % 2 else ()))
    robot = random_robot(seed, kinds=kinds, drive=True, mimic=seed % 4 < 2)
    plants = OwnPlant(robot), engine("mujoco")(robot)
    q, dq, _ = random_state(robot, seed)
    own, mujoco = (accelerations(plant, q, dq, torques(robot, seed)) for plant in plants)
    assert_same(own, mujoco)


@pytest.mark.parametrize("armature", [0.0, 0.3])
def test_engines_agree_on_a_floating_base(armature: float) -> None:
    robot = th.load(load("solo12").source, floating_base=True).without_drive()
    robot = replace(robot, drive=robot.drive.with_values(armature=np.full(robot.nv, armature)))
    q, dq, _ = random_state(robot, 3)
    own, mujoco = (
        accelerations(plant(robot), q, dq, torques(robot, 3))
        for plant in (OwnPlant, engine("mujoco"))
    )
    assert_same(own, mujoco)
    assert_same(own, th.forward_dynamics(robot, q, dq, torques(robot, 3)))


@both_engines
def test_coupled_rotors_are_in_both_engines(plant: str) -> None:
    bare = (
        load("double_pendulum").without_drive().with_actuation(np.array([[1.0, 0.5], [0.0, 2.0]]))
    )
    robot = replace(bare, drive=bare.drive.with_values(armature=np.array([0.02, 0.05])))
    q, dq, tau = np.array([0.3, -0.8]), np.array([1.0, 2.0]), np.array([0.2, -0.1])
    assert_same(
        accelerations(engine(plant)(robot), q, dq, tau), th.forward_dynamics(robot, q, dq, tau)
    )


def test_a_mujoco_plant_moves_as_mujocos_own_step_does() -> None:
    mujoco = pytest.importorskip("mujoco")
    robot = load("arm7").without_drive()
    plant = MujocoPlant(robot)
    from thetahat.plant.mujoco_engine import build_model

    model = build_model(robot)
    model.opt.timestep, model.opt.integrator = 1e-3, mujoco.mjtIntegrator.mjINT_RK4
    data = mujoco.MjData(model)
    data.qpos[:] = q = np.linspace(-0.5, 0.5, 7)
    data.qfrc_applied[:] = tau = np.linspace(2.0, -1.0, 7)
    plant.reset(q)
    for _ in range(500):
        mujoco.mj_step(model, data)
        plant.step(tau, 1e-3)
    assert_same(plant.state.q, np.array(data.qpos), 1e-10)
    assert_same(plant.state.dq, np.array(data.qvel), 1e-10)


def test_mujoco_is_left_nothing_but_rigid_bodies() -> None:
    mujoco = pytest.importorskip("mujoco")
    from thetahat.plant.mujoco_engine import build_model

    model = build_model(load("ur10"))
    for name in ("AUTORESET", "CONTACT", "LIMIT", "CONSTRAINT", "FRICTIONLOSS"):
        assert model.opt.disableflags & getattr(mujoco.mjtDisableBit, f"mjDSBL_{name}")
    assert model.ngeom == 0
    assert not np.any(model.dof_damping)
    assert not np.any(model.jnt_limited)


# -- time stepping ---------------------------------------------------------------------------------


@both_engines
def test_a_damped_pendulum_moves_as_scipy_integrates_it(plant: str) -> None:
    inertia, mass, length, g, damping, torque = 0.5, 1.3, 0.4, 9.81, 0.2, 0.7
    robot = one_joint(inertia, gravity=g, mass=mass, length=length, drive={"viscous": damping})
    plant_ = engine(plant)(robot)
    plant_.reset([2.0], [0.5])
    for _ in range(2000):
        plant_.step(np.array([torque]), 1e-3)

    def rates(t: float, x: np.ndarray) -> list[float]:
        return [x[1], (torque - damping * x[1] - mass * g * length * np.sin(x[0])) / inertia]

    exact = solve_ivp(rates, (0.0, 2.0), [2.0, 0.5], method="DOP853", rtol=1e-13, atol=1e-13).y[
        :, -1
    ]
    assert_same(np.array([plant_.state.q[0], plant_.state.dq[0]]), exact, FOURTH_ORDER)


@both_engines
def test_steps_are_of_fourth_order(plant: str) -> None:
    robot = load("double_pendulum").without_drive()
    ends = []
    for dt in (1e-3, 5e-4, 2.5e-4):
        body = engine(plant)(robot)
        body.reset([2.5, -1.0], [3.0, -4.0])
        for _ in range(round(0.4 / dt)):
            body.step(np.zeros(2), dt)
        ends.append(body.state.q)
    assert np.linalg.norm(ends[0] - ends[1]) > 12.0 * np.linalg.norm(ends[1] - ends[2]) > 0.0


@both_engines
@pytest.mark.parametrize(("name", "seconds"), [("double_pendulum", 5.0), ("arm4", 4.0)])
def test_energy_stays_without_friction(name: str, seconds: float, plant: str) -> None:
    robot = load(name).without_drive()
    body = engine(plant)(robot)
    body.reset(np.linspace(1.5, -0.8, robot.nv), np.linspace(0.5, 1.0, robot.nv))

    def energy() -> float:
        state = body.state
        return float(
            th.kinetic_energy(robot, state.q, state.dq) + th.potential_energy(robot, state.q)
        )

    before, in_motion, drift = energy(), 0.0, 0.0
    for _ in range(round(seconds * 20)):
        for _ in range(50):
            body.step(np.zeros(robot.nv), 1e-3)
        in_motion = max(in_motion, float(th.kinetic_energy(robot, body.state.q, body.state.dq)))
        drift = max(drift, abs(energy() - before))
    assert in_motion > 0.1
    assert drift <= DRIFT * in_motion


@both_engines
def test_a_free_body_keeps_its_energy_and_its_quaternion_its_length(plant: str) -> None:
    robot = random_robot(
        5, nodes=1, kinds=(JointKind.FREE,), mimic=False, massless=False
    ).with_gravity([0.0, 0.0, 0.0])
    robot = replace(
        robot,
        tree=Tree((replace(robot.tree.nodes[0], rotation=np.eye(3), translation=np.zeros(3)),)),
    )
    q, dq, _ = random_state(robot, 1)
    body = engine(plant)(robot)
    body.reset(q, dq)
    for _ in range(1000):
        body.step(np.zeros(6), 1e-3)
    state = body.state
    assert abs(np.linalg.norm(state.q[3:]) - 1.0) < 1e-14
    before, after = th.kinetic_energy(robot, q, dq), th.kinetic_energy(robot, state.q, state.dq)
    assert abs(after - before) <= 1e-10 * before
    # The centre of mass moves along a straight line: q is where the body's origin went around it.
    com = robot.theta[[7, 4, 3]] / robot.theta[9]
    start, rate = q[:3] + _turned(q, com), _turned(q, dq[3:] + np.cross(dq[:3], com))
    assert_same(state.q[:3] + _turned(state.q, com), start + state.t * rate, 1e-10)


def _turned(q: np.ndarray, vector: np.ndarray) -> np.ndarray:
    return Rotation.from_quat(q[3:7]).apply(vector)


# -- friction --------------------------------------------------------------------------------------


FRICTIONS = {
    "viscous": realistic(viscous=0.7),
    "coulomb": realistic(coulomb=1.1),
    "stribeck": realistic(viscous=0.2, coulomb=0.8, stribeck=0.5, stribeck_speed=0.3),
    "armature": realistic(viscous=0.2, armature=0.25),
}


@both_engines
@pytest.mark.parametrize("kind", FRICTIONS)
def test_friction_of_a_sliding_joint_equals_its_formula(kind: str, plant: str) -> None:
    inertia, offset, realism = 0.5, 0.15, FRICTIONS[kind]
    body = engine(plant)(one_joint(inertia, drive={"offset": offset}), realism=realism)
    for speed in (-3.0, -0.3, -0.01, 0.004, 0.2, 5.0):
        for torque in (-2.0, 0.0, 1.5):
            formula = (
                (realism.drive.viscous or 0.0) * speed
                + np.sign(speed) * (realism.drive.coulomb or 0.0)
                + offset
            )
            formula += (
                np.sign(speed)
                * (realism.drive.stribeck or 0.0)
                * np.exp(-((speed / realism.drive.stribeck_speed) ** 2))
            )
            ddq = accelerations(body, np.zeros(1), np.array([speed]), np.array([torque]))
            assert ddq[0] == pytest.approx(
                (torque - formula) / (inertia + (realism.drive.armature or 0.0)),
                rel=1e-12,
                abs=1e-12,
            )
            assert body.friction[0] == pytest.approx(formula, rel=1e-11, abs=1e-12)


@both_engines
def test_a_joint_below_breakaway_stays_exactly_where_it_is(plant: str) -> None:
    body = engine(plant)(
        one_joint(0.5, drive={"offset": 0.1}),
        realism=realistic(coulomb=1.0, stribeck=0.4, viscous=0.1),
    )
    for torque in (1.49, -1.29, 0.1):  # breakaway at 0.1 ± 1.4
        body.reset([0.3])
        for _ in range(100):
            body.step(np.array([torque]), 1e-3)
        assert (body.state.q[0], body.state.dq[0]) == (0.3, 0.0)
        assert body.friction[0] == pytest.approx(torque, abs=1e-12)
    for torque, way in ((1.51, 1.0), (-1.31, -1.0)):
        body.reset([0.3])
        body.step(np.array([torque]), 1e-3)
        assert np.sign(body.state.dq[0]) == way


@both_engines
@pytest.mark.parametrize("dt", [1e-3, 7e-3])
def test_a_sliding_joint_stops_where_the_closed_form_says_and_does_not_chatter(
    dt: float, plant: str
) -> None:
    inertia, coulomb, speed = 0.5, 1.2, 2.0
    body = engine(plant)(one_joint(inertia), realism=realistic(coulomb=coulomb))
    body.reset([0.0], [speed])
    speeds = []
    for _ in range(round(1.2 / dt)):
        body.step(np.zeros(1), dt)
        speeds.append(body.state.dq[0])
    stop = speed * inertia / coulomb
    assert body.state.q[0] == pytest.approx(0.5 * speed * stop, rel=1e-12)
    assert speeds[-1] == 0.0
    assert np.all(np.diff(speeds) <= 0.0)
    assert np.all(np.array(speeds) >= 0.0)
    assert np.count_nonzero(speeds) == pytest.approx(stop / dt, abs=1.0)


@both_engines
def test_a_reversing_joint_moves_as_scipy_integrates_each_way(plant: str) -> None:
    inertia, mass, length, g = 0.5, 1.0, 0.5, 9.81
    viscous, coulomb = 0.1, 0.6
    body = engine(plant)(
        one_joint(inertia, gravity=g, mass=mass, length=length),
        realism=realistic(viscous=viscous, coulomb=coulomb),
    )
    body.reset([1.8], [0.0])
    for _ in range(6000):
        body.step(np.zeros(1), 1e-3)
    x, way, t = np.array([1.8, 0.0]), -1.0, 0.0
    while (
        mass * g * length * abs(np.sin(x[0])) > coulomb
    ):  # swing by swing, each with the sign of its way
        way = -np.sign(np.sin(x[0]))

        def rates(_: float, y: np.ndarray, way: float = way) -> list[float]:
            return [
                y[1],
                (-viscous * y[1] - coulomb * way - mass * g * length * np.sin(y[0])) / inertia,
            ]

        def stops(_: float, y: np.ndarray, way: float = way) -> float:
            return way * y[1]

        stops.terminal, stops.direction = True, -1.0
        swing = solve_ivp(
            rates,
            (0.0, 10.0),
            [x[0], way * 1e-300],
            method="DOP853",
            rtol=1e-13,
            atol=1e-13,
            events=stops,
        )
        t, x = t + swing.t[-1], swing.y[:, -1]
    assert t < 6.0
    assert body.state.dq[0] == 0.0
    assert body.state.q[0] == pytest.approx(x[0], abs=1e-9)


@both_engines
def test_a_joint_that_friction_holds_is_a_joint_that_is_locked(plant: str) -> None:
    robot = load("arm4").without_drive()
    held = robot.joint_names[1]
    coulomb = np.array([0.0, 1e3, 0.0, 0.0])
    free = [0, 2, 3]
    body, rest = (
        engine(plant)(robot, realism=realistic(coulomb=coulomb)),
        OwnPlant(lock(robot, [held])),
    )
    q, dq, tau = (
        np.array([0.2, 0.0, -0.4, 0.6]),
        np.array([1.0, 0.0, -0.5, 0.8]),
        np.array([0.3, 0.0, -0.2, 0.1]),
    )
    body.reset(q, dq)
    rest.reset(q[free], dq[free])
    for _ in range(300):
        body.step(tau, 1e-3)
        rest.step(tau[free], 1e-3)
    assert (body.state.q[1], body.state.dq[1]) == (0.0, 0.0)
    assert_same(body.state.q[free], rest.state.q, 1e-10)
    needed = th.inverse_dynamics(robot, body.state.q, body.state.dq, body.acceleration)[1]
    assert body.friction[1] == pytest.approx(-needed, rel=1e-9)


@both_engines
@pytest.mark.parametrize(("size", "cuts"), [(3.0, (1, 8)), (300.0, (8, 32))])
def test_joints_that_stop_and_break_away_together_move_alike_at_any_step(
    size: float, cuts: tuple[int, int], plant: str
) -> None:
    """Torques that change every 10 ms, dry friction in every joint: long steps and short ones find
    the same stops; measured 2e-8.
    """
    robot = load("arm4")
    pushes = size * np.random.default_rng(2).normal(size=(12, 4))
    ends, still = [], 0
    for cut in cuts:
        body = engine(plant)(robot)
        body.reset(np.array([0.1, 0.2, -0.3, 0.4]))
        for push in pushes:
            for _ in range(10 * cut):
                body.step(push, 1e-3 / cut)
                still += int(np.count_nonzero(body.state.dq == 0.0))
        ends.append(body.state.q)
    assert size > 100.0 or still > 50
    assert_same(ends[0], ends[1], 1e-6)


@both_engines
def test_friction_of_coupled_motors_acts_at_motor_speed(plant: str) -> None:
    robot = (
        load("double_pendulum").without_drive().with_actuation(np.array([[1.0, 1.0], [0.0, 1.0]]))
    )
    body = engine(plant)(
        robot, realism=realistic(viscous=[0.05, 0.1], coulomb=[0.3, 0.2], stribeck=0.1)
    )
    rng = np.random.default_rng(0)
    body.reset([0.4, 0.3], [1.0, -3.0])
    for _ in range(40):
        body.command(rng.normal(size=2))
        state, ddq = body.state, body.acceleration
        motors = state.dq @ robot.drive.actuation.B
        if np.all(np.abs(motors) > 1e-9):
            assert_same(th.inverse_dynamics(body.robot, state.q, state.dq, ddq), body.torque)
        body.advance(5e-3)


@both_engines
def test_motors_that_hold_hold_a_coupled_joint(plant: str) -> None:
    robot = (
        load("double_pendulum").without_drive().with_actuation(np.array([[1.0, 1.0], [0.0, 1.0]]))
    )
    body = engine(plant)(robot, realism=realistic(coulomb=[0.0, 50.0]))  # holds dq1 + dq2
    body.reset([0.4, 0.3], [1.0, -1.0])
    for _ in range(200):
        body.step(np.zeros(2), 1e-3)
    assert abs(body.state.dq[0]) > 0.1
    assert abs(body.state.dq.sum()) < 1e-12
    assert body.state.q.sum() == pytest.approx(0.7, abs=1e-12)


def test_a_friction_known_only_as_a_function_slides_and_holds_too() -> None:
    shape = DriveTerm("cubic", lambda dq, ddq, load: np.sign(dq) + dq**3)
    bare = one_joint(0.5)
    body = OwnPlant(replace(bare, drive=bare.drive.with_extra_term(shape, 0.8)))
    assert accelerations(body, np.zeros(1), np.array([2.0]), np.zeros(1))[0] == pytest.approx(
        -0.8 * 9.0 / 0.5
    )
    assert accelerations(body, np.zeros(1), np.zeros(1), np.array([0.79]))[0] == 0.0
    assert accelerations(body, np.zeros(1), np.zeros(1), np.array([0.9]))[0] == pytest.approx(
        0.1 / 0.5, rel=1e-6
    )


@both_engines
def test_stiff_friction_takes_shorter_steps(plant: str) -> None:
    inertia, viscous = 1e-4, 0.5  # settles in 0.2 ms, at a control period of 1 ms
    body = engine(plant)(one_joint(inertia, mass=0.01), realism=realistic(viscous=viscous))
    body.reset([0.0], [1.0])
    for _ in range(20):
        body.step(np.array([0.1]), 1e-3)
    assert body.state.dq[0] == pytest.approx(0.1 / viscous, rel=1e-9)


# -- what is refused -------------------------------------------------------------------------------


def test_refusals_are_sentences() -> None:
    robot = load("arm4")
    link = robot.body_names[1]
    theta = robot.theta.copy()
    theta[19] = -1.0
    with pytest.raises(UnphysicalRobot, match=rf"simulation needs a physical robot.*{link}"):
        OwnPlant(robot.with_parameters(theta))
    with pytest.raises(UsageError, match=rf"coulomb friction of '{robot.joint_names[2]}' is -0.2"):
        OwnPlant(
            replace(robot, drive=robot.drive.with_values(coulomb=np.array([0.0, 0.1, -0.2, 0.0])))
        )
    turning = robot.without_drive().with_actuation(
        lambda q: np.broadcast_to(np.eye(4), (*q.shape[:-1], 4, 4))
    )
    with pytest.raises(UsageError, match="depends on q"):
        OwnPlant(turning)
    with pytest.raises(UsageError, match="too quick to simulate"):
        OwnPlant(one_joint(1e-9, mass=1e-6), realism=realistic(viscous=1.0))
    body = OwnPlant(robot)
    for u, dt, words in (
        (np.full(4, np.nan), 1e-3, "nan"),
        (np.zeros(3), 1e-3, r"shape \(3,\)"),
        (np.zeros(4), 0.0, "dt is 0.0"),
    ):
        with pytest.raises(UsageError, match=words):
            body.step(u, dt)
    with pytest.raises(UsageError, match="seed is -1"):
        body.reset(seed=-1)


def test_mujoco_refuses_what_it_has_not() -> None:
    pytest.importorskip("mujoco")
    robot = random_robot(0, nodes=2, kinds=(JointKind.PLANAR,), mimic=False)
    with pytest.raises(
        UsageError, match="planar joint, which the MuJoCo plant does not take; use the own plant"
    ):
        MujocoPlant(robot)
    OwnPlant(robot).step(np.zeros(robot.nv), 1e-3)


def test_without_mujoco_its_plant_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(MissingExtra, match=r"pip install 'thetahat\[mujoco\]'"):
        MujocoPlant(one_joint())


@both_engines
def test_a_plant_that_runs_away_stops_with_its_time_and_joint(plant: str) -> None:
    body = engine(plant)(load("arm4"))

    def pushed() -> None:
        for _ in range(10_000):
            body.step(np.array([0.0, 0.0, 0.0, 1e7]), 1e-3)

    with pytest.raises(UsageError, match=r"diverged at t = 0\.\d+ s: joint '\w+' moves at"):
        pushed()
