"""Computed torque, gravity compensation and PD: the paper's lemma, closed forms of the closed loop,
and commands finite whatever comes in.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plant_cases import both_engines, engine, load, one_joint, sines, wrong_by

import thetahat as th
from oracles import pinocchio_bridge
from thetahat.control.computed_torque import PD, ComputedTorque, GravityCompensation, pd_gains
from thetahat.control.controller import STOP_AFTER
from thetahat.control.torque_limits import require_physical
from thetahat.errors import UnphysicalRobot, UsageError
from thetahat.model import parameters
from thetahat.model.friction_terms import DriveTerm
from thetahat.model.tree import Joint, Limits, Tree
from thetahat.plant.plant import OwnPlant
from thetahat.plant.simulate import simulate
from thetahat.plant.tracking import Tracking

SAME = 1e-12  # of the largest torque: the same sums in another order
LEMMA = 1e-8  # the bound
KP, KD = 400.0, 40.0


def state(
    robot: th.Robot, seed: int
) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return (
        th.random_configuration(robot, rng),
        rng.normal(size=robot.nv),
        tuple(rng.normal(size=(3, robot.nv))),
    )


def commanded(q: np.ndarray, dq: np.ndarray, wanted: tuple) -> np.ndarray:
    return wanted[2] + KP * (wanted[0] - q) + KD * (wanted[1] - dq)


def close(a: np.ndarray, b: np.ndarray, bound: float) -> bool:
    return bool(np.max(np.abs(a - b)) <= bound * np.max(np.abs(b)))


# -- the law ---------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::thetahat.errors.RobotWarning")
@pytest.mark.parametrize("name", ["arm7", "panda", "ur5", "talos_full", "valkyrie_A_44dof"])
def test_the_torque_is_that_of_pinocchio_at_the_commanded_acceleration(name: str) -> None:
    robot = load(name).without_drive()
    oracle = pinocchio_bridge.from_robot(robot)
    law = ComputedTorque(robot, KP, KD, limits=False)
    for seed in range(5):
        q, dq, wanted = state(robot, seed)
        assert close(
            law(0.0, q, dq, wanted),
            oracle.inverse_dynamics(q[None], dq[None], commanded(q, dq, wanted)[None])[0],
            SAME,
        )


@pytest.mark.filterwarnings("ignore::thetahat.errors.RobotWarning")
@pytest.mark.parametrize("name", ["arm7", "panda", "talos_full", "valkyrie_A_44dof"])
def test_feedback_that_is_kept_has_the_other_robots_mass_matrix_and_rotors(name: str) -> None:
    """U = ID(q, q̇, q̈_d) of one robot + (D₀ + rotors)(kp e + kd ė) of another, by Pinocchio."""
    nominal = load(name).without_drive()
    rotors = nominal.drive.with_values(armature=np.full(nominal.nv, 0.3))
    identified = wrong_by(nominal, 0.3, 2)
    law = ComputedTorque(identified, 3.0, 4.0, limits=False, physical=False)
    law.keep_feedback(ComputedTorque(replace(nominal, drive=rotors), KP, KD, limits=False))
    own, other = (pinocchio_bridge.from_robot(robot) for robot in (identified, nominal))
    for seed in range(5):
        q, dq, wanted = state(nominal, seed)
        feedback = commanded(q, dq, wanted) - wanted[2]
        one, none = (
            other.inverse_dynamics(q[None], 0.0 * dq[None], each[None])[0]
            for each in (feedback, 0.0 * feedback)
        )
        goal = own.inverse_dynamics(q[None], dq[None], wanted[2][None])[0]
        assert close(law(0.0, q, dq, wanted), goal + one - none + 0.3 * feedback, SAME)


def drives(robot: th.Robot) -> dict[str, th.Robot]:
    """Every kind of drive: one motor per joint, motors that drive several, a shape only a function
    knows.
    """
    rng = np.random.default_rng(3)
    B = np.eye(robot.nv) + np.diag(np.ones(robot.nv - 1), 1)
    terms = {
        term: rng.uniform(0.1, 1.0, robot.nv)
        for term in ("viscous", "coulomb", "offset", "armature")
    }
    bare = robot.without_drive()
    cubic = DriveTerm("cubic", lambda dq, ddq, load: dq**3 * (1.0 + np.abs(load)), needs_load=True)
    plain = replace(bare, drive=bare.drive.with_values(**terms))
    coupled = bare.with_actuation(B)
    return {
        "plain": plain,
        "coupled": replace(coupled, drive=coupled.drive.with_values(**terms)),
        "shape": replace(plain, drive=plain.drive.with_extra_term(cubic, 0.3)),
    }


@pytest.mark.parametrize("kind", ["plain", "coupled", "shape"])
def test_compensated_friction_changes_its_sign_over_a_range_of_speed(kind: str) -> None:
    """Passive, no larger than the friction itself, and without a step at the reversal."""
    robot = drives(load("arm4"))[kind]
    q, dq, (q_d, _, ddq_d) = state(robot, 0)
    smooth, sharp, none = (
        ComputedTorque(robot, 0.0, 0.0, limits=False, friction=friction)
        for friction in ("wanted", "wanted-sign", "none")
    )
    speeds = np.linspace(-1.0, 1.0, 2001)
    torques = []
    for speed in speeds:
        wanted = q_d, np.full(robot.nv, speed), ddq_d
        rest = none(0.0, q, dq, wanted).copy()
        torques.append([law(0.0, q, dq, wanted).copy() - rest for law in (smooth, sharp)])
    both = np.moveaxis(np.array(torques), 1, 0)
    offset = 0.5 * (both[:, :1] + both[:, -1:])  # what does not change its sign
    gentle, step = both - offset
    assert np.all(gentle * speeds[:, None] >= -1e-9)
    assert np.all(np.abs(gentle) <= np.abs(step) + 1e-9)
    assert np.max(np.abs(np.diff(gentle, axis=0))) < 0.05 * np.max(np.abs(np.diff(step, axis=0)))


@pytest.mark.parametrize("kind", ["plain", "coupled", "shape"])
def test_friction_is_that_of_the_wanted_or_the_measured_speed(kind: str) -> None:
    robot = drives(load("arm4"))[kind]
    for seed in range(5):
        q, dq, wanted = state(robot, seed)
        a = commanded(q, dq, wanted)
        rigid = th.inverse_dynamics(robot, q, dq, a, rigid=True)
        measured = th.inverse_dynamics(robot, q, dq, a)
        rotors = robot.drive.joint_armature() @ a
        at_wanted = rigid + robot.drive.torque(wanted[1], a, q=q, load=rigid)
        for friction, expected in (
            ("measured", measured),
            ("wanted-sign", at_wanted),
            ("none", rigid + rotors),
        ):
            assert close(
                ComputedTorque(robot, KP, KD, friction=friction, limits=False)(0.0, q, dq, wanted),
                expected,
                SAME,
            )
        assert close(
            Tracking(robot, bandwidth=20.0)(0.0, q, dq, wanted), at_wanted, SAME
        )  # ω² = 400, 2ω = 40
        law = ComputedTorque(
            robot, KP, KD, pd=(7.0, np.arange(4.0)), limits=False, friction="wanted-sign"
        )
        pd = law(0.0, q, dq, wanted)
        assert close(
            pd, at_wanted + 7.0 * (wanted[0] - q) + np.arange(4.0) * (wanted[1] - dq), SAME
        )


# -- the lemma -------------------------------------------------------------------------------------


def from_fewest_samples(robot: th.Robot, method: object) -> tuple[th.Estimate, int]:
    """Identified from p* noise-free samples: the first so many random ones that see every direction
    there is.
    """
    rng, rank = np.random.default_rng(1), len(th.base_parameters(robot))
    q, (dq, ddq) = th.random_configuration(robot, rng, 200), rng.normal(size=(2, 200, robot.nv))
    tau = th.inverse_dynamics(robot, q, dq, ddq)
    for count in range(-(-rank // robot.nv), 200):
        samples = th.Samples(q=q[:count], dq=dq[:count], ddq=ddq[:count], tau=tau[:count])
        estimate = th.solve(th.information(robot, samples), method)
        if estimate.rank == rank:
            return estimate, count
    raise AssertionError


@pytest.mark.filterwarnings("ignore::thetahat.errors.RobotWarning")
@pytest.mark.parametrize("name", ["double_pendulum", "arm4", "arm7", "panda"])
def test_the_lemma(name: str) -> None:
    """With Θ̂ from p* samples q̈ = q̈_cmd, though Θ̂ is not the robot's Θ: by Pinocchio's D and C
    q̇ + G of the true robot.
    """
    robot = load(name).without_drive()
    estimate, count = from_fewest_samples(robot, th.LeastSquares())
    believed = robot.with_parameters(estimate)
    assert count < 40
    assert np.max(np.abs(believed.theta - robot.theta)) > 1e-3 * np.max(np.abs(robot.theta))
    law = ComputedTorque(believed, KP, KD, physical=False, limits=False)
    oracle = pinocchio_bridge.from_robot(robot)
    for seed in range(20):
        q, dq, wanted = state(robot, 100 + seed)
        wanted_acceleration, u = commanded(q, dq, wanted), law(0.0, q, dq, wanted)
        assert close(th.forward_dynamics(robot, q, dq, u), wanted_acceleration, LEMMA)
        bias = oracle.inverse_dynamics(q[None], dq[None], np.zeros((1, robot.nv)))[0]
        assert close(
            np.linalg.solve(oracle.mass_matrix(q[None])[0], u - bias), wanted_acceleration, LEMMA
        )


@both_engines
def test_the_lemma_in_closed_loop(plant: str) -> None:
    """The same in motion, with the physical Θ̂ a controller gets: the acceleration of every tick is
    the one that was commanded.
    """
    robot = load("arm4").without_drive()
    estimate, _ = from_fewest_samples(
        robot, th.Consistent(prior=wrong_by(robot, 0.3, 2), weight=1e-12)
    )
    believed = robot.with_parameters(estimate)
    assert np.max(np.abs(believed.theta - robot.theta)) > 1e-2
    run = simulate(
        engine(plant)(robot),
        sines(robot, seed=3, duration=1.0),
        controller=ComputedTorque(believed, KP, KD),
    )
    asked = run.wanted[2] + KP * (run.wanted[0] - run.q) + KD * (run.wanted[1] - run.dq)
    assert close(
        run.ddq, asked, 1e-6
    )  # the consistent fit is an interior point: its base parameters carry 1e-8 of barrier
    wrong = simulate(
        engine(plant)(robot),
        sines(robot, seed=3, duration=1.0),
        controller=ComputedTorque(wrong_by(robot, 0.3, 2), KP, KD),
    )
    asked = wrong.wanted[2] + KP * (wrong.wanted[0] - wrong.q) + KD * (wrong.wanted[1] - wrong.dq)
    assert not close(wrong.ddq, asked, 1e-2)


# -- closed loops ----------------------------------------------------------------------------------


@both_engines
def test_errors_die_out_as_their_own_equation_says_joint_by_joint(plant: str) -> None:
    """ë + 2ω ė + ω² e = 0 for each joint alone: e = e₀(1 + ωt)exp(−ωt), whatever the joint is
    coupled to.
    """
    robot, w, dt = load("panda").without_drive(), 20.0, 2e-4
    law, body = ComputedTorque(robot, w**2, 2.0 * w), engine(plant)(robot)
    rest = 0.5 * np.array(
        [node.limits.lower + node.limits.upper for node in robot.tree.independent]
    )
    e0, still = 0.05 * np.where(np.arange(robot.nv) % 2, 1.0, 0.0), np.zeros(robot.nv)
    body.reset(rest - e0)
    for k in range(1500):
        now = body.state
        expected = e0 * (1.0 + w * now.t) * np.exp(-w * now.t)
        assert (
            np.max(np.abs(rest - now.q - expected)) <= 0.02 * 0.05
        )  # torques are held for dt: ω·dt/2 = 0.2 %
        body.step(law(now.t, now.q, now.dq, (rest, still, still)), dt)
        if k == 500:
            assert np.max(np.abs(rest - now.q)) > 0.015
    assert np.max(np.abs(rest - body.state.q)) < 1e-3


@both_engines
def test_gravity_compensation_holds_any_posture_and_pd_alone_sags(plant: str) -> None:
    robot = load("arm4").without_drive()
    kp, kd = pd_gains(robot, 15.0)
    posture, still = np.array([0.4, -0.3, 0.5, 0.9]), np.zeros(4)
    for law, expected in ((GravityCompensation(robot, kp, kd), still), (PD(kp, kd), None)):
        body = engine(plant)(robot)
        body.reset(posture)
        for _ in range(4000):
            now = body.state
            body.step(law(now.t, now.q, now.dq, (posture, still, still)), 1e-3)
        now = body.state
        assert np.max(np.abs(now.dq)) < 1e-6
        error = posture - now.q
        held = (
            still if expected is not None else th.gravity(robot, now.q)
        )  # kp e carries what the model does not
        assert np.max(np.abs(kp * error - held)) < 1e-4
        assert (np.max(np.abs(error)) < 1e-9) == (expected is not None)


def test_pd_gains_make_a_joint_the_oscillator_they_promise() -> None:
    robot = load("panda").without_drive()
    q = th.random_configuration(robot, np.random.default_rng(0))
    inertia = np.diag(pinocchio_bridge.from_robot(robot).mass_matrix(q[None])[0])
    kp, kd = pd_gains(robot, 12.0, damping=0.7, q=q)
    assert close(kp, 144.0 * inertia, SAME)
    assert close(kd, 2.0 * 0.7 * 12.0 * inertia, SAME)
    many = th.random_configuration(robot, np.random.default_rng(5), 50)
    assert np.all(
        pd_gains(robot, 12.0)[0]
        >= 0.8 * 144.0 * np.max(np.einsum("kii->ki", th.mass_matrix(robot, many)), axis=0)
    )
    with pytest.raises(UsageError, match="bandwidth is -1"):
        pd_gains(robot, -1.0)


def test_identified_computed_torque_tracks_better_than_a_wrong_model() -> None:
    """Friction and all: what the studies show at length."""
    robot = load("arm4")
    nominal, motion = wrong_by(robot, 0.2, 4), sines(robot, seed=5, duration=3.0)
    errors = []
    for model in (nominal, robot):
        run = simulate(OwnPlant(robot), motion, controller=ComputedTorque(model, 100.0, 20.0))
        errors.append(np.sqrt(np.mean((run.q - run.wanted[0]) ** 2)))
    assert errors[1] < 0.2 * errors[0]


# -- commands are finite and inside the limits -----------------------------------------------------

HOSTILE = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True, width=64),
    st.sampled_from([np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, 1e155, 0.0, -0.0]),
    st.floats(-3.0, 3.0),
)
VECTOR = st.lists(HOSTILE, min_size=4, max_size=4).map(np.array)
SAMPLE = st.tuples(HOSTILE, VECTOR, VECTOR, st.tuples(VECTOR, VECTOR, VECTOR))
LIMITS = np.array([40.0, 30.0, 0.0, np.inf])


@cache
def controllers() -> list:
    robot = load("arm4")
    return [
        ComputedTorque(robot, KP, KD, limits=LIMITS),
        ComputedTorque(robot, KP, KD, pd=(100.0, 10.0), limits=LIMITS),
        ComputedTorque(drives(robot)["coupled"], KP, KD, limits=LIMITS),
        ComputedTorque(drives(robot)["shape"], KP, KD, limits=LIMITS),
        GravityCompensation(robot, limits=LIMITS),
        PD(np.full(4, 100.0), 10.0, limits=LIMITS),
        ComputedTorque(robot, KP, KD, limits=False),
        ComputedTorque(robot, KP, KD),
    ]


@settings(max_examples=150, deadline=None)
@given(st.lists(SAMPLE, min_size=1, max_size=30))
def test_commands_are_finite_and_inside_the_limits_whatever_comes_in(samples: list) -> None:
    for law in controllers():
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for t, q, dq, wanted in samples:
                u = law(t, q, dq, wanted)
                assert u.shape == (4,)
                assert np.all(np.isfinite(u))
                assert law.limits is None or np.all(np.abs(u) <= law.limits)
                usable = all(np.all(np.isfinite(x)) for x in (q, dq, *wanted[:2]))
                assert usable or law.fault


def test_a_fault_holds_then_halts_then_is_forgotten() -> None:
    robot = load("arm4")
    law = ComputedTorque(robot, KP, KD, limits=200.0)
    q, dq, wanted = state(robot, 0)
    good = law(0.0, q, dq, wanted)
    assert law.fault == ""
    bad = dq.copy()
    bad[2] = np.nan
    for count in range(1, STOP_AFTER):
        assert np.array_equal(law(0.0, q + 1.0, bad, wanted), good), "1 to 19: hold"
        assert law.fault == f"dq of joint {robot.joint_names[2]!r} is nan"
        assert law.faults == count
    for _ in range(3):
        assert close(law(0.0, q + 1.0, bad, wanted), th.gravity(robot, q), SAME), (
            "from the 20th on: still, where it was last seen"
        )
    assert np.array_equal(law(0.0, q, dq, wanted), good)
    assert law.fault == ""
    assert np.array_equal(ComputedTorque(robot)(0.0, q, bad, wanted), np.zeros(4)), (
        "nothing was ever seen"
    )
    huge = np.full(4, 1e200)
    assert np.array_equal(law(0.0, huge, huge, wanted), good)
    assert "dq of joint 'shoulder_pitch' is 1e+200, and no more than" in law.fault
    law = ComputedTorque(robot, KP, KD, limits=200.0, max_speed=np.inf)
    law(0.0, q, dq, wanted)
    assert np.array_equal(law(0.0, huge, huge, wanted), good)
    assert "overflows" in law.fault


def test_the_quick_look_at_a_robot_says_what_the_thorough_one_does() -> None:
    """Clearly physical robots pass at once, all others are looked at body by body: never another
    verdict, rods and masses near zero included.
    """
    robot, rng = load("arm4"), np.random.default_rng(0)
    thetas = [robot.theta, np.zeros(robot.theta.size)]
    for scale in (1e-3, 0.1, 1.0):
        thetas += [
            robot.theta * (1.0 + scale * rng.normal(size=robot.theta.size)) for _ in range(30)
        ]
    for body in range(len(robot.body_names)):
        bodies = robot.theta.reshape(-1, 10)
        values, vectors = np.linalg.eigh(parameters.to_pseudo_inertia(bodies[body]))
        for least in (
            0.0,
            1e-17,
            -1e-17,
            1e-13,
            -1e-13,
            1e-6,
            -1e-6,
        ):  # from a rod that is one to one that cannot be
            values[0] = least * values[-1]
            changed = bodies.copy()
            changed[body] = parameters.from_pseudo_inertia((vectors * values) @ vectors.T)
            thetas.append(changed.ravel())
    verdicts = []
    for theta in thetas:
        found = []
        for look in (require_physical, th.Robot.require_physical):
            try:
                found.append(look(replace(robot, theta=theta), "this"))
            except UnphysicalRobot as error:
                found.append(str(error))
        assert found[0] == found[1]
        verdicts.append(found[0] is None)
    assert 20 < sum(verdicts) < len(verdicts) - 20
    quick = replace(robot, theta=1.01 * robot.theta)
    ComputedTorque(quick)
    assert "consistency" not in quick.__dict__, (
        "the thorough look takes 2 ms at 44 joints, too long for the cycle in which a model is"
        " switched to"
    )


def test_limits_cut_and_say_where() -> None:
    robot = load("arm4").without_drive()
    free, q, (dq, wanted) = (
        ComputedTorque(robot, limits=False),
        *(lambda s: (s[0], s[1:]))(state(robot, 1)),
    )
    u = free(0.0, q, dq, wanted)
    limits = np.abs(u) * np.array([0.5, 2.0, 0.9, 1.0])
    law = ComputedTorque(robot, limits=limits)
    assert np.array_equal(law(0.0, q, dq, wanted), np.clip(u, -limits, limits))
    assert law.saturated.tolist() == [True, False, True, False]
    effort = np.array([node.limits.effort for node in robot.tree.independent])
    assert np.array_equal(ComputedTorque(robot).limits, effort), "unless told otherwise"
    assert ComputedTorque(robot, limits=False).limits is None


def test_any_kind_of_array_of_the_right_size_is_taken_and_no_other() -> None:
    robot = load("arm4")
    law = ComputedTorque(robot)
    q, dq, wanted = state(robot, 2)
    u = law(0.0, q, dq, wanted)
    assert np.array_equal(law(0.0, q.tolist(), tuple(dq), tuple(x.tolist() for x in wanted)), u)
    assert np.array_equal(law(0.0, np.repeat(q, 2)[::2], np.asfortranarray(dq), wanted), u)
    assert close(law(0.0, q.astype(np.float32), dq, wanted), u, 1e-5)
    law(0.0, np.array([0, 1, 0, 1]), dq, wanted)
    for bad in (q[:3], np.append(q, 0.0), q[:1], q[None], np.float64(1.0)):
        with pytest.raises(UsageError, match=r"q has shape .*another robot"):
            law(0.0, bad, dq, wanted)
    with pytest.raises(UsageError, match="wanted ddq has shape"):
        law(0.0, q, dq, (*wanted[:2], wanted[2][:2]))
    for bad in (q + 1j, np.array(["a", "b", "c", "d"]), np.array([None, {}, 1, 2])):
        with pytest.raises(UsageError, match="give 4 numbers"):
            law(0.0, bad, dq, wanted)
    assert np.array_equal(law(0.0, q, dq, wanted), u)
    returned = law(0.0, q, dq, wanted)
    returned[:] = 1e9  # the caller's own
    assert np.array_equal(law(0.0, q, dq, wanted), u)


# -- what is refused -------------------------------------------------------------------------------


def test_refusals_are_sentences() -> None:
    robot = load("arm4")
    floating = th.load(load("solo12").source, floating_base=True)
    theta = robot.theta.copy()
    theta[29] = -1.0
    negative = robot.with_parameters(theta)
    for law in (ComputedTorque, GravityCompensation):
        with pytest.raises(UsageError, match=r"free, which no motor drives.*base fixed"):
            law(floating)
        with pytest.raises(
            UnphysicalRobot,
            match=rf"needs a physical robot, but body '{robot.body_names[2]}'.*negative.*projected",
        ):
            law(negative)
        law(negative, 1.0, 1.0, physical=False)
    for options, words in (
        ({"kp": -1.0}, "kp is -1.0"),
        ({"kd": [1.0, 2.0]}, "kd has 2 values; give one, or 4"),
        ({"kp": np.nan}, "kp is nan"),
        ({"kp": True}, "kp is True"),
        ({"limits": -3.0}, "limits is -3.0"),
        ({"limits": "many"}, "limits is 'many'"),
        (
            {"friction": "some"},
            "friction is 'some'; choose one of wanted, wanted-sign, measured, none",
        ),
    ):
        with pytest.raises(UsageError, match=words):
            ComputedTorque(robot, **options)
    with pytest.raises(UsageError, match="drive 1 of its 4 joints"):
        ComputedTorque(robot.without_drive().with_actuation(np.ones((4, 1)), names=("m",)))
    with pytest.raises(UsageError, match="PD has no robot"):
        PD(np.ones(2), np.ones(2), limits=True)
    with pytest.raises(UsageError, match="robot is str"):
        ComputedTorque("panda.urdf")
    pendulum = one_joint()
    stuck = replace(
        pendulum, tree=Tree((replace(pendulum.tree.nodes[0], joint=Joint(Limits(effort=0.0))),))
    )
    assert np.all(ComputedTorque(stuck).limits > 0.0), "a file that states none means none"
