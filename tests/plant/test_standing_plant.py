"""A floating robot on MuJoCo's ground: what it logs obeys the equation of motion that MuJoCo did not
compute, and its sensors say what they should.
"""

from __future__ import annotations

import numpy as np
import pytest
from floating_robots import FEET, floating, standing
from scipy.interpolate import make_interp_spline
from scipy.signal import butter, sosfiltfilt
from scipy.spatial.transform import Rotation

from thetahat.data.velocities import velocities_and_accelerations
from thetahat.dynamics import rigid_body
from thetahat.dynamics.link_forces import generalised_forces, link_place
from thetahat.errors import UsageError
from thetahat.model.floating_base import with_ground
from thetahat.model.robot import Robot
from thetahat.plant.ground_sensors import GroundSensors
from thetahat.plant.pressure_centre import USED, pressure_centre, support_room
from thetahat.plant.realism import DriveModel, Payload, Realism, SensorModel
from thetahat.plant.stance import (
    StandingMotion,
    carried_motion,
    centre_of_mass,
    stand,
    sway,
)
from thetahat.plant.standing_plant import StandingRecording, stand_and_sway
from thetahat.plant.sway_design import design_sway, usage_of

pytest.importorskip("mujoco")
RATE = 500.0  # [Hz]
SMOOTH = 10.0  # [Hz] below which signals are compared
G = 9.81


def wrong_by_a_quarter(robot: Robot, seed: int = 3) -> Robot:
    rng = np.random.default_rng(seed)
    scale = np.repeat(1.0 + 0.25 * rng.uniform(-1.0, 1.0, len(robot.body_names)), 10)
    return robot.with_parameters(scale * robot.theta)


@pytest.fixture(scope="module")
def nominal() -> tuple[Robot, StandingMotion]:
    return standing("solo12", duration=4.0)


@pytest.fixture(scope="module")
def ideal(nominal: tuple[Robot, StandingMotion]) -> tuple[Robot, StandingRecording]:
    robot, motion = nominal
    true = wrong_by_a_quarter(robot)
    return true, stand_and_sway(true, robot, motion, rate=RATE, imu="base_link")


def smooth(signal: np.ndarray) -> np.ndarray:
    return np.asarray(sosfiltfilt(butter(4, SMOOTH, fs=RATE, output="sos"), signal, axis=0))


def motion_of(robot: Robot, recording: StandingRecording) -> tuple[np.ndarray, ...]:
    q = smooth(recording.q)
    spline = make_interp_spline(recording.t, q, k=5)
    rates = (spline.derivative(k)(recording.t) for k in (1, 2))
    return (q, *velocities_and_accelerations(robot, q, *rates))


def test_forces_and_torques_obey_the_equation_of_motion(
    ideal: tuple[Robot, StandingRecording],
) -> None:
    """τ + Σ Jᵀw = D q̈ + h of the robot that stands: the law is ours, the motion MuJoCo's."""
    true, seen = ideal
    wrenches = {link: seen.wrenches[:, k] for k, link in enumerate(FEET["solo12"])}
    force = smooth(seen.tau + generalised_forces(true, seen.q, wrenches))
    error = force - rigid_body.inverse_dynamics(true, *motion_of(true, seen))
    inside = slice(int(RATE // 2), -int(RATE // 2))
    rms = np.sqrt(np.mean(error[inside] ** 2, axis=0))
    weight = true.mass * G
    assert rms[3:6].max() < 5e-4 * weight
    assert np.r_[rms[:3], rms[6:]].max() < 5e-4 * weight * seen.q[0, 2]


def test_the_ground_carries_the_weight_where_the_robot_rests(
    ideal: tuple[Robot, StandingRecording],
) -> None:
    true, seen = ideal
    wrenches = {link: seen.wrenches[:1, k] for k, link in enumerate(FEET["solo12"])}
    base = generalised_forces(true, seen.q[:1], wrenches)[0, 3:6]
    assert np.linalg.norm(base) == pytest.approx(true.mass * G, rel=2e-3)


def test_an_imu_says_gravity_and_the_rate_of_its_link(
    ideal: tuple[Robot, StandingRecording],
) -> None:
    true, seen = ideal
    q, dq, ddq = motion_of(true, seen)
    table = smooth(np.column_stack([seen.columns[f"imu.{n}"] for n in ("wx", "wy", "wz")]))
    inside = slice(int(RATE // 2), -int(RATE // 2))
    np.testing.assert_allclose(table[inside], dq[inside, :3], atol=2e-3)
    force = smooth(np.column_stack([seen.columns[f"imu.{n}"] for n in ("ax", "ay", "az")]))
    up = Rotation.from_quat(q[:, 3:7]).inv().apply([0.0, 0.0, G])
    expected = ddq[:, 3:6] + np.cross(dq[:, :3], dq[:, 3:6]) + up
    error = np.sqrt(np.mean((force[inside] - expected[inside]) ** 2, axis=0))
    assert error.max() < 0.012  # [m/s²]: half a step of the physics late; signals are up to 1


def test_the_arms_realism_is_there(nominal: tuple[Robot, StandingMotion]) -> None:
    robot, motion = nominal
    realism = Realism(
        DriveModel(viscous=0.02, coulomb=0.05, stribeck=0.01),
        SensorModel(encoder_resolution=1e-3, torque_bias=0.3),
        command_delay=2e-3,
        jitter=1e-4,
        payload=Payload("base_link", 0.5, time=2.0),
    )
    short = motion.resampled(robot, np.arange(0.0, 3.0, 0.01))
    options = {"realism": realism, "sensors": GroundSensors(force=0.01), "rate": RATE, "seed": 4}
    first, second = (stand_and_sway(robot, robot, short, **options) for _ in range(2))
    for name, column in first.columns.items():
        np.testing.assert_array_equal(column, second.columns[name])
    counts = first.columns["q.FL_HAA"] / 1e-3
    np.testing.assert_allclose(counts, np.rint(counts), atol=1e-6)
    assert np.ptp(np.diff(first.t)) > 1e-4
    bias = first.columns["tau.FL_HAA"] - first.tau[:, robot.tree.v_index["FL_HAA"]]
    np.testing.assert_allclose(bias, 0.3, atol=1e-9)
    push = np.linalg.norm(first.wrenches[:, :, :3].sum(axis=1), axis=1)  # feet's axes: about
    assert np.mean(push[-200:]) / np.mean(push[:500]) == pytest.approx(1.2, abs=0.05)


def test_torques_stay_inside_their_limits(nominal: tuple[Robot, StandingMotion]) -> None:
    robot, motion = nominal
    short = motion.resampled(robot, np.arange(0.0, 1.0, 0.01))
    free = stand_and_sway(robot, robot, short, rate=RATE)
    limit = 0.95 * float(np.abs(free.tau).max())
    held = stand_and_sway(robot, robot, short, rate=RATE, realism=Realism(saturation=limit))
    assert np.abs(held.tau).max() <= limit * (1.0 + 1e-9)


def test_a_robot_that_falls_is_an_error(nominal: tuple[Robot, StandingMotion]) -> None:
    robot, motion = nominal
    with pytest.raises(UsageError, match=r"fell .* s after the start"):
        stand_and_sway(robot, robot, motion, rate=RATE, realism=Realism(saturation=0.05))


@pytest.mark.parametrize("name", ["solo12", "go2", "g1"])
def test_a_posture_is_balanced_above_its_feet(name: str) -> None:
    robot = with_ground(floating(name), (), FEET[name])
    q = stand(robot)
    feet = np.mean([link_place(robot, q, link)[1] for link in FEET[name]], axis=0)
    assert np.linalg.norm(centre_of_mass(robot, q)[:2] - feet[:2]) < 2e-3


def test_a_designed_sway_uses_no_more_than_its_margin_and_larger_ones_more() -> None:
    robot = with_ground(floating("g1"), (), FEET["g1"])
    design = design_sway(robot, duration=6.0, rate=100.0, tries=1)
    kinds = {each.kind for each in design.usage}
    assert kinds == {"friction", "lift", "support", "torque"}
    assert max(each.used for each in design.usage) <= 0.8
    used = []
    for size in (design.size, 1.3 * design.size):
        motion = sway(robot, stand(robot), duration=6.0, rate=50.0, size=size, seed=design.seed)
        used.append({each.kind: each.used for each in usage_of(robot, motion, 1.0)})
    assert used[1]["friction"] > used[0]["friction"]
    assert used[1]["torque"] > used[0]["torque"]
    with pytest.raises(UsageError, match="no motion was found"):
        design_sway(robot, duration=6.0, rate=100.0, tries=1, margin=0.01)


def test_the_centre_of_pressure_stays_among_the_feet_and_is_where_contact_forces_act() -> None:
    """A humanoid's sway at full size: as the forces that carry it say, each on its own foot."""
    robot = with_ground(floating("g1"), (), FEET["g1"])
    posture = stand(robot)
    motion = sway(robot, posture, duration=8.0, rate=100.0, seed=3)
    course = pressure_centre(robot, motion.q, motion.dq, motion.ddq, 0.0)
    middle, room = support_room(robot, posture)
    assert np.all(np.abs(course - middle) <= 1.2 * USED * room)
    _, wrenches = carried_motion(robot, motion)
    total, moment = np.zeros((len(motion.t), 3)), np.zeros((len(motion.t), 3))
    for k, link in enumerate(FEET["g1"]):
        R, p = link_place(robot, motion.q, link)
        force, couple = (
            (R @ part[..., None])[..., 0] for part in (wrenches[:, k, :3], wrenches[:, k, 3:])
        )
        total += force
        moment += couple + np.cross(p * [1.0, 1.0, 0.0], force)
    acts = np.stack([-moment[:, 1], moment[:, 0]], axis=1) / total[:, 2:]
    np.testing.assert_allclose(course, acts, atol=2e-3)  # feet are at the ground to a millimetre
