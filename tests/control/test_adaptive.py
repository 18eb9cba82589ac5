"""Adaptive control of Slotine and Li: its regressor, its laws, and that what it promises (V falls,
errors vanish, bodies stay bodies) is so.
"""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest
from plant_cases import Sines, load, sines, wrong_by

import thetahat as th
from oracles import pinocchio_bridge
from oracles.random_trees import random_robot
from thetahat.control.adaptation_laws import Euclidean, LogDet, dual
from thetahat.control.adaptive import (
    LONGEST,
    AdaptiveTerms,
    SlotineLi,
    fastest_damping,
    slotine_li_regressor,
    suitable_gamma,
)
from thetahat.control.computed_torque import joint_inertia
from thetahat.errors import UnphysicalRobot, UsageError
from thetahat.model import parameters
from thetahat.model.tree import JointKind
from thetahat.plant.plant import MujocoPlant
from thetahat.plant.realism import DriveModel, Realism, SensorModel
from thetahat.plant.simulate import simulate

SAME = 1e-12  # of the largest entry: the same sums in another order
# of V at the beginning: torques and gradients are held for a millisecond, in which the proof's
# continuous law would have moved on
HELD = 0.01
ONE_DOF = (JointKind.REVOLUTE, JointKind.PRISMATIC)
LAWS = {"log-det": LogDet(gamma=0.5), "euclidean": Euclidean(gain=0.5)}
both_laws = pytest.mark.parametrize("law", LAWS)


def assert_same(a: np.ndarray, b: np.ndarray, bound: float = SAME) -> None:
    assert np.max(np.abs(a - b)) <= bound * max(1.0, np.max(np.abs(b)))


def states(robot: th.Robot, seed: int, samples: int = 11) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    return th.random_configuration(robot, rng, samples), *rng.normal(size=(3, samples, robot.nv))


# -- the regressor ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_the_regressor_holds_the_coriolis_matrix_itself(seed: int) -> None:
    """D q̈_r + C(q, q̇) q̇_r + G with the C of `coriolis_matrix`, for joints of every kind, mimic
    joints and massless nodes.
    """
    robot = random_robot(seed, nodes=7)
    q, dq, dq_r, ddq_r = states(robot, seed)
    Y = slotine_li_regressor(robot, q, dq, dq_r, ddq_r)
    C, D = th.coriolis_matrix(robot, q, dq), th.mass_matrix(robot, q, rigid=True)
    assert_same(
        Y @ robot.theta,
        np.einsum("kij,kj->ki", D, ddq_r) + np.einsum("kij,kj->ki", C, dq_r) + th.gravity(robot, q),
    )
    assert_same(slotine_li_regressor(robot, q, dq, dq, ddq_r), th.regressor(robot, q, dq, ddq_r))
    assert_same(slotine_li_regressor(robot, q[3], dq[3], dq_r[3], ddq_r[3]), Y[3])


@pytest.mark.filterwarnings("ignore::thetahat.errors.RobotWarning")
@pytest.mark.parametrize("name", ["arm7", "ur10", "solo12", "valkyrie_A_44dof"])
def test_its_torque_is_that_of_pinocchios_coriolis_matrix(name: str) -> None:
    robot = load(name).without_drive()
    oracle = pinocchio_bridge.from_robot(robot)
    q, dq, dq_r, ddq_r = states(robot, 1, 5)
    ours = slotine_li_regressor(robot, q, dq, dq_r, ddq_r) @ robot.theta
    for k in range(len(q)):
        x, map_ = oracle.configuration(q[k : k + 1])[0], oracle.velocity
        C = pin.computeCoriolisMatrix(oracle.model, oracle.data, x, map_ @ dq[k])
        theirs = (
            map_.T @ (C @ (map_ @ dq_r[k]))
            + oracle.mass_matrix(q[k : k + 1])[0] @ ddq_r[k]
            + oracle.gravity(q[k : k + 1])[0]
        )
        assert_same(ours[k], theirs)


def test_it_is_the_polarised_regressor_where_joints_turn_or_slide() -> None:
    """C(q, x)y is symmetric in x and y there, so Y(q, q̇, q̇_r, q̈_r) = Y(q, (q̇ + q̇_r)/2, q̈_r) −
    Y(q, (q̇ − q̇_r)/2, 0) + Y(q, 0, 0).
    """
    robot = random_robot(3, nodes=8, kinds=ONE_DOF, mimic=False)
    q, dq, dq_r, ddq_r = states(robot, 2)
    none = np.zeros_like(dq)
    polarised = (
        th.regressor(robot, q, (dq + dq_r) / 2, ddq_r)
        - th.regressor(robot, q, (dq - dq_r) / 2, none)
        + th.regressor(robot, q, none, none)
    )
    assert_same(slotine_li_regressor(robot, q, dq, dq_r, ddq_r), polarised)


@pytest.mark.parametrize("seed", range(5))
def test_torque_and_gradient_need_no_matrix(seed: int) -> None:
    robot = random_robot(seed, nodes=6)
    q, dq, dq_r, ddq_r = states(robot, seed)
    terms, s = AdaptiveTerms(robot), np.random.default_rng(seed).normal(size=robot.nv)
    for k in range(len(q)):
        Y = slotine_li_regressor(robot, q[k], dq[k], dq_r[k], ddq_r[k])
        terms.q[:], terms.dq[:], terms.dq_r[:], terms.ddq_r[:], terms.s[:] = (
            q[k],
            dq[k],
            dq_r[k],
            ddq_r[k],
            s,
        )
        terms()
        assert_same(terms.tau, Y @ robot.theta)
        assert_same(terms.gradient, Y.T @ s)


def test_regressor_arguments_are_checked() -> None:
    robot = load("arm4")
    q = np.zeros((3, 4))
    with pytest.raises(UsageError, match="dq_r has"):
        slotine_li_regressor(robot, q, q, q[:2], q)
    with pytest.raises(UsageError, match=r"ddq_r\[0, 1\] is nan"):
        slotine_li_regressor(robot, q, q, q, np.where(np.arange(4) == 1, np.nan, q))


# -- the laws --------------------------------------------------------------------------------------


def test_the_dual_of_a_gradient_pairs_with_pseudo_inertias_as_the_gradient_with_parameters() -> (
    None
):
    rng = np.random.default_rng(0)
    g, theta = rng.normal(size=(2, 20, 10))
    pairing = np.trace(dual(g) @ parameters.to_pseudo_inertia(theta), axis1=1, axis2=2)
    assert_same(pairing, np.sum(g * theta, axis=1))


def test_the_log_det_law_is_the_natural_gradient_of_its_own_distance() -> None:
    """d/dt distance(Θ̂, Θ) = −g·(Θ̂ − Θ) along the law, for every Θ; and a small step follows the
    rate.
    """
    truth = load("arm4").without_drive()
    state, rng = LogDet(gamma=0.3).begin(wrong_by(truth, 0.4, 1)), np.random.default_rng(0)
    none = np.zeros(0)
    for _ in range(5):
        g = rng.normal(size=len(truth.theta))
        h = 1e-6
        forward, back = copy.deepcopy(state), copy.deepcopy(state)
        forward.step(g, none, h)
        back.step(g, none, -h)
        change = (forward.distance(truth.theta, none) - back.distance(truth.theta, none)) / (2 * h)
        assert change == pytest.approx(-g @ (state.theta - truth.theta), rel=1e-5)
        P = parameters.to_pseudo_inertia(state.theta.reshape(-1, 10))
        rate = parameters.from_pseudo_inertia(-(P @ dual(g.reshape(-1, 10)) @ P) / 0.3).ravel()
        assert_same((forward.theta - back.theta) / (2 * h), rate, 1e-6)
        state.step(g, none, 0.01)
    assert state.distance(state.theta, none) == pytest.approx(0.0, abs=1e-9)
    assert state.distance(truth.theta, none) > 0.0


def friction(robot: th.Robot, **values: float) -> th.Robot:
    bare = robot.without_drive().with_drive(**dict.fromkeys(values, True))
    return replace(
        bare,
        drive=bare.drive.with_values(
            **{term: np.full(robot.nv, value) for term, value in values.items()}
        ),
    )


@both_laws
@pytest.mark.parametrize("driven", [False, True])
def test_the_lyapunov_function_falls_as_the_proof_says(law: str, driven: bool) -> None:
    """V̇ = −sᵀK s − sᵀ(f(q̇) − f(q̇_r)) along the flow of robot and law, at states of any kind: V
    at both ends of a step of ±h.
    """
    robot = load("arm7").without_drive()
    truth = friction(robot, viscous=0.8, offset=0.5, armature=0.2) if driven else robot
    guess = wrong_by(truth, 0.5, 3)
    if driven:
        guess = friction(guess, viscous=0.3, offset=-0.2, armature=0.1)
    control = SlotineLi(guess, LAWS[law], bandwidth=8.0, dead_zone=0.0, limits=False)
    motion, h = sines(truth, seed=1, duration=10.0), 1e-5
    rng = np.random.default_rng(0)
    for t in (0.5, 1.7, 4.0):
        q_d, dq_d, ddq_d = (x[0] for x in motion.at(np.array([t])))
        q, dq = q_d + 0.3 * rng.normal(size=7), dq_d + rng.normal(size=7)
        u = control(t, q, dq, (q_d, dq_d, ddq_d))
        ddq = th.forward_dynamics(truth, q, dq, u)
        _, gradient, drive = control._pending
        values = []
        for step in (h, -h):
            moved = copy.deepcopy(control.state)
            moved.step(gradient, drive, step)
            at = copy.copy(control)
            at.state = moved
            wanted = tuple(x[0] for x in motion.at(np.array([t + step])))
            values.append(
                at.lyapunov(
                    q + step * dq + 0.5 * step**2 * ddq, dq + step * ddq, wanted, truth=truth
                )
            )
        s, dq_r, _ = control.sliding(q, dq, (q_d, dq_d, ddq_d))
        lost = control.rate * s @ th.mass_matrix(truth, q) @ s + (
            s @ (truth.drive.friction(dq) - truth.drive.friction(dq_r)) if driven else 0.0
        )
        assert (values[0] - values[1]) / (2 * h) == pytest.approx(-lost, rel=1e-4)
        assert lost > 0.0


# -- closed loops ----------------------------------------------------------------------------------


def closed_loop(
    truth: th.Robot, control: SlotineLi, motion: Sines, seconds: float, *, rate: float = 1000.0
) -> tuple[np.ndarray, np.ndarray]:
    """(error at every tick, V at every fourth): the true robot's forward dynamics by Runge–Kutta,
    torques held for a tick.
    """
    dt, t = 1.0 / rate, np.arange(int(seconds * rate)) / rate
    q_d, dq_d, ddq_d = motion.at(t)
    q, dq = q_d[0] + 0.1, dq_d[0].copy()
    errors, V = [], []
    for k in range(len(t)):
        wanted = (q_d[k], dq_d[k], ddq_d[k])
        errors.append(q - q_d[k])
        u = control(t[k], q, dq, wanted)
        if k % 4 == 0:
            V.append(control.lyapunov(q, dq, wanted, truth=truth))
        if isinstance(control.law, LogDet):
            assert np.all(
                np.linalg.eigvalsh(
                    parameters.to_pseudo_inertia(control.state.theta.reshape(-1, 10))
                )
                > 0.0
            )

        def rates(x: np.ndarray, v: np.ndarray, u: np.ndarray = u) -> tuple[np.ndarray, np.ndarray]:
            return v, th.forward_dynamics(truth, x, v, u)

        a1, b1 = rates(q, dq)
        a2, b2 = rates(q + dt / 2 * a1, dq + dt / 2 * b1)
        a3, b3 = rates(q + dt / 2 * a2, dq + dt / 2 * b2)
        a4, b4 = rates(q + dt * a3, dq + dt * b3)
        q, dq = q + dt / 6 * (a1 + 2 * a2 + 2 * a3 + a4), dq + dt / 6 * (b1 + 2 * b2 + 2 * b3 + b4)
    return np.array(errors), np.array(V)


def risen(V: np.ndarray) -> float:
    """By how much V rose, all rises added."""
    return float(np.sum(np.maximum(np.diff(V), 0.0)))


@both_laws
def test_errors_vanish_and_v_falls_in_closed_loop(law: str) -> None:
    truth = load("arm4").without_drive()
    guess = wrong_by(truth, 0.5, 3)
    motion = sines(truth, seed=1, duration=3.0)
    control = SlotineLi(guess, LAWS[law], bandwidth=10.0, dead_zone=0.0)
    error, V = closed_loop(truth, control, motion, 3.0)
    assert risen(V) <= HELD * V[0]
    assert V[-1] < 0.9 * V[0]
    assert np.sqrt(np.mean(error[-500:] ** 2)) < 0.1 * np.sqrt(np.mean(error[:500] ** 2))
    frozen = SlotineLi(guess, LogDet(gamma=1e9), bandwidth=10.0)
    stays, _ = closed_loop(truth, frozen, motion, 3.0)
    assert np.sqrt(np.mean(error[-500:] ** 2)) < 0.5 * np.sqrt(np.mean(stays[-500:] ** 2)), (
        "it is the adaptation that does it"
    )
    if law == "log-det":
        control.adapted.require_physical("this test")


def test_friction_is_learned_too_and_stays_positive() -> None:
    truth = friction(load("arm4"), viscous=1.0, coulomb=0.6, offset=0.3)
    guess = friction(load("arm4"), viscous=0.3, coulomb=0.1, offset=0.0)
    control = SlotineLi(guess, LogDet(gamma=0.05, offset_gain=5.0), dead_zone=0.0)
    error, V = closed_loop(truth, control, sines(truth, seed=2, duration=4.0), 4.0)
    assert np.all(control.state.drive[:8] > 0.0)
    assert V[-1] < 0.5 * V[0]
    assert np.sqrt(np.mean(error[-1000:] ** 2)) < 0.25 * np.sqrt(np.mean(error[:1000] ** 2))


@pytest.mark.parametrize("gamma", [1e-300, 1e-12, 1e-6])
def test_absurd_gains_leave_every_estimate_physical_and_every_command_finite(gamma: float) -> None:
    robot = friction(load("arm7"), viscous=0.5, coulomb=0.2, offset=0.1, armature=0.05)
    law = LogDet(gamma=gamma, offset_gain=1e12)
    control, limited = (
        SlotineLi(robot, law, bandwidth=50.0, delay=1e-3, limits=limits, max_speed=np.inf)
        for limits in (False, 1e6)
    )
    rng = np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for k in range(400):
            size = 10.0 ** rng.uniform(-3, 8 if k % 7 else 150)
            q, dq, *wanted = size * rng.normal(size=(5, 7))
            if k % 11 == 0:
                dq[3] = np.nan
            assert np.all(np.isfinite(control(k * 1e-3, q, dq, tuple(wanted))))
            assert np.all(np.abs(limited(k * 1e-3, q, dq, tuple(wanted))) <= 1e6)
            assert all(parameters.check(body) for body in control.state.theta.reshape(-1, 10))
            assert np.all(np.isfinite(control.state.drive))
            assert np.all(control.state.drive[:14] > 0.0)
            mass = control.state.theta[9::10] / robot.theta[9::10]
            assert np.all(mass <= law.bound * (1.0 + 1e-9))
    control.adapted.require_physical("this test")
    assert np.max(np.abs(mass - 1.0)) > 0.5, "it did move"


def test_nothing_moves_where_s_is_zero() -> None:
    robot = friction(load("arm4"), viscous=0.5)
    control, motion = SlotineLi(robot), sines(robot, seed=4, duration=1.0)
    theta, drive = control.state.theta.copy(), control.state.drive.copy()
    for t in np.arange(0.0, 0.5, 1e-3):
        q, dq, ddq = (x[0] for x in motion.at(np.array([t])))
        u = control(t, q, dq, (q, dq, ddq))
        assert_same(u, th.inverse_dynamics(robot, q, dq, ddq))
    assert np.array_equal(control.state.theta, theta)
    assert np.array_equal(control.state.drive, drive)


def test_nothing_is_learned_from_what_should_not_teach() -> None:
    """A cut torque, an unusable sample, a repeated or backward stamp, a gap: Θ̂ stays; one ordinary
    step moves it.
    """
    robot = load("arm4").without_drive()
    q, dq, wanted = np.full(4, 0.2), np.zeros(4), (np.zeros(4), np.full(4, 0.1), np.zeros(4))
    nan = np.full(4, np.nan)

    def learned(
        *calls: tuple[float, np.ndarray],
        limits: object = False,
        resync: bool = False,
        wanted: tuple = wanted,
    ) -> bool:
        control = SlotineLi(robot, limits=limits)
        before = control.state.theta.copy()
        for t, x in calls:
            control(t, x, dq, wanted)
            if resync:
                control.resync()
        return not np.array_equal(control.state.theta, before)

    assert learned((0.0, q), (0.001, q))
    assert not learned((0.0, q), (0.001, q), limits=0.01)
    assert not learned((0.0, nan), (0.001, q))
    assert not learned((0.0, q), (0.0, q))
    assert not learned((0.0, q), (-1.0, q))
    assert not learned((0.0, q), (np.nan, q))
    assert not learned((0.0, q), (2.0 * LONGEST, q))
    assert not learned((0.0, q), (0.001, q), resync=True)
    assert not learned((0.0, q), (0.001, q), wanted=(np.zeros(4),) * 3), "at rest"


def test_bodies_at_the_edge_and_massless_ones_are_taken() -> None:
    robot = load("arm4").without_drive()
    theta = robot.theta.copy().reshape(-1, 10)
    theta[3] = parameters.from_mass_com_inertia(
        np.array(1.0), np.array([0.0, 0.0, 0.3]), np.zeros((3, 3))
    )  # a point mass
    theta[1] = 0.0
    control = SlotineLi(robot.with_parameters(theta.ravel()), LogDet(gamma=1.0), limits=False)
    for k in range(20):
        control(k * 1e-3, np.full(4, 0.3), np.ones(4), (np.zeros(4), np.ones(4), np.zeros(4)))
    assert np.array_equal(control.state.theta[10:20], np.zeros(10))
    assert all(parameters.check(body) for body in control.state.theta.reshape(-1, 10))
    assert not np.allclose(control.state.theta[30:], theta[3])


def test_coupled_motors_adapt_their_friction_at_motor_speed() -> None:
    B = np.array([[1.0, 1.0], [0.0, 1.0]])
    truth = load("double_pendulum").without_drive().with_actuation(B).with_drive(viscous=True)
    truth = replace(truth, drive=truth.drive.with_values(viscous=np.array([0.4, 0.7])))
    guess = replace(truth, drive=truth.drive.with_values(viscous=np.array([0.1, 0.1])))
    damping = 10.0 * joint_inertia(guess)  # of the heaviest posture, the same in all
    control = SlotineLi(guess, LogDet(gamma=0.1), damping=damping, dead_zone=0.0, limits=False)
    error, V = closed_loop(truth, control, sines(truth, seed=3, duration=3.0), 3.0)
    assert risen(V) <= HELD * V[0]
    assert np.sqrt(np.mean(error[-500:] ** 2)) < 0.2 * np.sqrt(np.mean(error[:500] ** 2))


def test_refusals_are_sentences() -> None:
    robot = load("arm4")
    with pytest.raises(
        UsageError, match=rf"coulomb of '{robot.joint_names[0]}' starts at 0.*Euclidean"
    ):
        SlotineLi(robot.without_drive().with_drive(coulomb=True))
    SlotineLi(robot.without_drive().with_drive(coulomb=True), Euclidean())
    for make, words in (
        (lambda: LogDet(gamma=0.0), "gamma is 0.0"),
        (lambda: LogDet(bound=1.0), "bound is 1.0"),
        (lambda: Euclidean(gain=-1.0).begin(robot), "gain is -1.0"),
        (lambda: Euclidean(gain=(1.0, 2.0)).begin(robot), "one per parameter"),
        (lambda: SlotineLi(robot, bandwidth=-3.0), "bandwidth is -3.0"),
        (lambda: SlotineLi(robot, bandwidth=300.0), "bears .* ms of delay, but delay is 5 ms"),
        (lambda: SlotineLi(robot, damping=10.0 * joint_inertia(robot)), "lower them"),
        (
            lambda: SlotineLi(
                robot.without_drive().with_actuation(
                    lambda q: np.broadcast_to(np.eye(4), (*q.shape[:-1], 4, 4))
                )
            ),
            "depends on q",
        ),
    ):
        with pytest.raises(UsageError, match=words):
            make()
    theta = robot.theta.copy()
    theta[9] = -1.0
    with pytest.raises(UnphysicalRobot, match="adaptive control needs a physical robot"):
        SlotineLi(robot.with_parameters(theta))


# -- what no proof covers --------------------------------------------------------------------------

ARMS = ("arm4", "arm7", "panda", "ur5")


def real_arm(name: str) -> MujocoPlant:
    """5 ms of delay, 16-bit encoders whose differences are the speeds, and friction of 5 % of the
    joint's largest gravity torque.
    """
    pytest.importorskip("mujoco", reason="the extra 'mujoco' is not installed")
    robot = load(name).without_drive()
    q = th.random_configuration(robot, np.random.default_rng(0), 100)
    carried = np.max(np.abs(th.gravity(robot, q)), axis=0)
    dry = 0.05 * np.maximum(carried, 0.05 * np.max(carried))
    sensors = SensorModel(
        encoder_resolution=2.0 * np.pi / 2**16, encoder_delay=0.005, speed_cutoff=80.0
    )
    drive = DriveModel(coulomb=dry, viscous=0.5 * dry)
    return MujocoPlant(robot, realism=Realism(drive=drive, sensors=sensors))


def check_stable(name: str, seconds: float) -> None:
    """Errors are no larger than those of the guess that does not adapt, with friction that both do
    not know; masses stay near it.
    """
    plant = real_arm(name)
    guess = wrong_by(plant.nominal, 0.3, 3)
    motion, errors = sines(plant.nominal, seed=1, duration=seconds), []
    adaptive, fixed = SlotineLi(guess), SlotineLi(guess, LogDet(gamma=1e12))
    for law in (adaptive, fixed):
        run = simulate(plant, motion, controller=law, rate=500.0)
        errors.append(float(np.sqrt(np.mean((run.q - run.wanted[0]) ** 2))))
        assert law.faults == 0
    assert errors[0] < 1.05 * errors[1]
    ratio = adaptive.state.theta[9::10] / guess.theta[9::10]
    assert np.all((ratio > 0.3) & (ratio < 3.0))


@pytest.mark.filterwarnings("ignore::thetahat.errors.RobotWarning")
@pytest.mark.parametrize("name", ["arm4", "ur5"])  # the others: the slow test below
def test_delay_encoders_and_friction_that_is_not_modelled_leave_it_stable(name: str) -> None:
    check_stable(name, 3.0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::thetahat.errors.RobotWarning")
@pytest.mark.parametrize("name", ARMS)
def test_it_stays_stable_for_a_minute(name: str) -> None:
    check_stable(name, 60.0)


def stand(name: str, seconds: float) -> float:
    """The largest change of a mass, as a share, by holding a posture."""
    plant = real_arm(name)
    guess = wrong_by(plant.nominal, 0.3, 3)
    law = SlotineLi(guess)
    simulate(plant, _Still(seconds, 0.3 * np.ones(guess.nv)), controller=law, rate=125.0)
    return float(np.max(np.abs(law.state.theta[9::10] / guess.theta[9::10] - 1.0)))


class _Still:
    def __init__(self, duration: float, q: np.ndarray) -> None:
        self.duration, self.q = duration, q

    def at(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        none = np.zeros((len(t), len(self.q)))
        return none + self.q, none, none


def test_standing_teaches_nothing() -> None:
    assert stand("arm4", 5.0) < 0.05


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::thetahat.errors.RobotWarning")
@pytest.mark.parametrize("name", ARMS)
def test_standing_for_ten_minutes_moves_no_mass(name: str) -> None:
    assert stand(name, 600.0) < 0.05


def test_damping_and_adaptation_are_as_quick_as_they_say() -> None:
    """D⁻¹K is κ by default, where a diagonal K had 1,503 rad/s; a computed delay margin is where
    the characteristic roots of the delayed loop reach the axis.
    """
    robot = load("arm7").without_drive()
    law = SlotineLi(robot)
    assert fastest_damping(robot, 10.0 * joint_inertia(robot)) > 1000.0
    assert law.fastest == pytest.approx(10.0)
    w = np.linspace(1.0, 200.0, 200_001)
    a, b = 2.0 * 20.0, 2.0 * 100.0
    loop = (1j * a * w + b) / (1j * w) ** 2
    k = int(np.argmin(np.abs(np.abs(loop) - 1.0)))
    phase = np.pi + np.angle(loop[k])
    assert law.delay_margin == pytest.approx(phase / w[k], rel=1e-3)
    assert SlotineLi(robot, delay=0.05).bandwidth[0] == pytest.approx(3.0)
    gamma = suitable_gamma(robot, 10.0)
    assert suitable_gamma(robot, 20.0) == pytest.approx(gamma / 4.0)
    heavier = robot.with_parameters(2.0 * robot.theta)
    assert suitable_gamma(heavier, 10.0) == pytest.approx(2.0 * gamma), "an energy"
