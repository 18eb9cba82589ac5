"""A robot with a floating base identified while it stands and sways, from measured wrenches."""

from __future__ import annotations

import numpy as np
import pytest
from floating_robots import FEET, standing

import thetahat as th
from thetahat.dynamics.link_forces import generalised_forces
from thetahat.errors import UsageError
from thetahat.model.floating_base import without_ground
from thetahat.model.robot import Robot
from thetahat.online.config import FilterConfig
from thetahat.plant.stance import StandingMotion, carried_motion, centre_of_mass

Stream = tuple[Robot, Robot, StandingMotion, np.ndarray, dict[str, np.ndarray]]


@pytest.fixture(scope="module")
def stream() -> Stream:
    """A quadruped whose bodies differ from its file by up to 25 %, and the forces it needs."""
    robot, motion = standing("solo12", duration=24.0, rate=200.0)
    rng = np.random.default_rng(2)
    scale = np.repeat(1.0 + 0.25 * rng.uniform(-1.0, 1.0, len(robot.body_names)), 10)
    true = robot.with_parameters(scale * robot.theta)
    tau, wrenches = carried_motion(true, motion)
    feet = {link: wrenches[:, k] for k, link in enumerate(FEET["solo12"])}
    return without_ground(robot).without_drive(), true, motion, tau, feet


def test_the_gate_opens_on_the_weight_and_its_centre(stream: Stream) -> None:
    """Noise of a pose that was differentiated, of feet and of motors: the identified robot weighs
    what the true one does, and no joint of the base waits for friction.
    """
    nominal, true, motion, tau, feet = stream
    rng, identifier = np.random.default_rng(0), th.OnlineIdentifier(nominal)
    assert identifier.nominal is nominal
    n, weight = len(motion.t), 9.81 * true.mass
    speeds = motion.dq + 2e-3 * rng.standard_normal(motion.dq.shape)
    torques = tau + 0.01 * np.std(tau, axis=0) * rng.standard_normal(tau.shape)
    forces = {
        link: each + 1e-3 * weight * np.r_[1, 1, 1, 0.1, 0.1, 0.1] * rng.standard_normal((n, 6))
        for link, each in feet.items()
    }
    for k in range(n):
        verdict = identifier.push(
            motion.t[k], motion.q[k], speeds[k], torques[k],
            wrenches={link: each[k] for link, each in forces.items()},
        )  # fmt: skip
    assert verdict.gate.open, verdict.gate.reason
    assert "has not moved" not in verdict.gate.reason
    assert identifier.robot.mass == pytest.approx(true.mass, rel=5e-3)
    assert abs(nominal.mass / true.mass - 1.0) > 0.02
    off = centre_of_mass(identifier.robot, motion.q[0]) - centre_of_mass(true, motion.q[0])
    assert np.linalg.norm(off[:2]) < 1e-3
    assert not identifier.events.counts["alarm"]


def test_wrenches_are_known_torques_of_all_joints(stream: Stream) -> None:
    """The same verdicts and estimates as with Jᵀ·w added to the torques by the caller."""
    nominal, _, motion, tau, feet = stream
    both = [th.OnlineIdentifier(nominal, window=12) for _ in range(2)]
    added = tau + generalised_forces(nominal, motion.q, feet)
    for k in range(0, 2000):
        both[0].push(
            motion.t[k], motion.q[k], motion.dq[k], tau[k],
            wrenches={link: each[k] for link, each in feet.items()},
        )  # fmt: skip
        both[1].push(motion.t[k], motion.q[k], motion.dq[k], added[k])
    one, other = (each.estimate for each in both)
    assert one is not None
    assert other is not None
    np.testing.assert_allclose(one.x_base, other.x_base, rtol=1e-8, atol=1e-10)


def test_mistakes_in_wrenches_are_one_sentence(stream: Stream) -> None:
    nominal, _, motion, tau, _ = stream
    identifier = th.OnlineIdentifier(nominal)
    state = (motion.t[0], motion.q[0], motion.dq[0], tau[0])
    with pytest.raises(UsageError, match="no moving link 'hoof'"):
        identifier.push(*state, wrenches={"hoof": np.zeros(6)})
    with pytest.raises(UsageError, match="six numbers"):
        identifier.push(*state, wrenches={"FL_FOOT": np.zeros(3)})
    verdict = identifier.push(*state, wrenches={"FL_FOOT": np.full(6, np.nan)})
    assert not verdict.accepted
    assert "not finite" in verdict.reason


def test_a_floating_base_has_a_lower_cut_off_by_default(stream: Stream) -> None:
    nominal = stream[0]
    slow, fast = (
        th.OnlineIdentifier(nominal, filter=given) for given in (None, FilterConfig(cutoff=10.0))
    )
    assert slow.delay > 2.0 * fast.delay
