"""Laws of a floating base on ground: rows and forces against Pinocchio, elimination of forces."""

from __future__ import annotations

import numpy as np
import pinocchio as pin
import pytest
from data_paths import example_robot
from floating_robots import FEET, floating, jacobian, random_samples

import thetahat as th
from oracles import pinocchio_bridge
from thetahat.dynamics.configuration import random_configuration
from thetahat.dynamics.contact_projection import contact_projection
from thetahat.dynamics.link_forces import generalised_forces, link_jacobian
from thetahat.errors import UsageError
from thetahat.model.floating_base import base_dofs, ground_of, with_deviations, with_ground

EXACT = 1e-12  # relative to the largest entry: rounding of two different algorithms


@pytest.mark.parametrize("name", ["solo12", "g1"])
def test_base_rows_are_those_of_pinocchios_free_flyer(name: str) -> None:
    path = example_robot(name)
    robot = th.load(path, floating_base=True).without_drive()
    oracle = pinocchio_bridge.from_urdf(path, robot, floating_base=True)
    rng = np.random.default_rng(3)
    q = random_configuration(robot, rng, 5)
    dq, ddq = rng.normal(size=(2, 5, robot.nv))
    base = list(base_dofs(robot))
    ours = th.regressor(robot, q, dq, ddq)[:, base]
    theirs = oracle.regressor(q, dq, ddq)[:, base]
    assert np.max(np.abs(ours - theirs)) <= EXACT * np.max(np.abs(theirs))


@pytest.mark.parametrize("world", [False, True])
def test_forces_on_feet_are_those_of_pinocchios_frame_jacobians(world: bool) -> None:
    path = example_robot("g1")
    robot = th.load(path, floating_base=True).without_drive()
    oracle = pinocchio_bridge.from_urdf(path, robot, floating_base=True)
    rng = np.random.default_rng(4)
    q = random_configuration(robot, rng, 4)
    wrenches = {link: rng.normal(size=(4, 6)) for link in FEET["g1"]}
    ours = generalised_forces(robot, q, wrenches, world=world)
    frame = pin.LOCAL_WORLD_ALIGNED if world else pin.LOCAL
    model, data = oracle.model, oracle.data
    for k, at in enumerate(oracle.configuration(q)):
        theirs = np.zeros(model.nv)
        for link, wrench in wrenches.items():
            J = pin.computeFrameJacobian(model, data, at, model.getFrameId(link), frame)
            theirs += J.T @ wrench[k]  # linear first, as wrenches of logs
        theirs = oracle.velocity.T @ theirs
        assert np.max(np.abs(ours[k] - theirs)) <= EXACT * np.max(np.abs(theirs))


def test_link_jacobian_is_the_derivative_of_the_pose() -> None:
    robot = floating("solo12")
    q = random_configuration(robot, np.random.default_rng(0), 1)
    np.testing.assert_allclose(
        link_jacobian(robot, q, "FL_FOOT")[0], jacobian(robot, q[0], "FL_FOOT"), atol=1e-7
    )


@pytest.mark.parametrize("name", ["solo12", "g1"])
def test_what_ground_exerts_does_not_show_and_all_else_does(name: str) -> None:
    robot = with_ground(floating(name), (), FEET[name])
    ground = ground_of(robot)
    assert ground is not None
    samples = random_samples(robot, 12)
    assert samples.contact is not None
    known = np.ones((12, robot.nv), dtype=bool)
    projection = contact_projection(robot, samples.q, samples.contact, known)
    rng = np.random.default_rng(1)
    for k, foot in enumerate(ground.feet):
        force = rng.normal(size=(12, 6)) * samples.contact[:, [k]]
        if not foot.flat:
            force[:, 3:] = 0.0
        pushed = generalised_forces(robot, samples.q, {foot.link: force})
        assert np.max(np.abs(projection.apply(pushed))) < 1e-11
    rows = rng.normal(size=(12, robot.nv))
    once = projection.apply(rows)
    np.testing.assert_allclose(projection.apply(once), once, atol=1e-11)
    sizes = samples.contact @ [foot.size for foot in ground.feet]
    np.testing.assert_allclose(projection.shares.sum(axis=1), robot.nv - sizes, atol=1e-9)


def test_a_torque_that_was_not_measured_changes_nothing() -> None:
    robot = with_ground(floating("solo12"), (), FEET["solo12"])
    samples = random_samples(robot, 6)
    assert samples.contact is not None
    known = np.ones((6, robot.nv), dtype=bool)
    known[:, 8] = False
    projection = contact_projection(robot, samples.q, samples.contact, known)
    wrong = samples.tau.copy()
    wrong[:, 8] += 100.0
    left = projection.apply(wrong)
    np.testing.assert_allclose(left, projection.apply(samples.tau), atol=1e-11)
    assert np.all(left[:, 8] == 0.0)


def test_rows_that_are_known_better_keep_more() -> None:
    plain = with_ground(floating("solo12"), (), FEET["solo12"])
    better = with_deviations(plain, {"FL_KFE": 1e-6})
    samples = random_samples(plain, 6)
    assert samples.contact is not None
    known = np.ones((6, plain.nv), dtype=bool)
    v = plain.velocity_names.index("FL_KFE")
    shares = [
        contact_projection(each, samples.q, samples.contact, known).shares[:, v]
        for each in (plain, better)
    ]
    on = samples.contact[:, 0]
    assert np.all(shares[1][on] < shares[0][on])  # it tells of the force, and so is used up


def test_feet_are_flat_beyond_six_joints() -> None:
    for name, flat in (("solo12", False), ("g1", True)):
        ground = ground_of(with_ground(floating(name), (), FEET[name]))
        assert ground is not None
        assert {foot.flat for foot in ground.feet} == {flat}


def test_ground_needs_a_floating_base_and_links_that_are_there() -> None:
    with pytest.raises(UsageError, match="--floating-base"):
        with_ground(th.load(example_robot("solo12")), ("FL_FOOT",), ())
    with pytest.raises(UsageError, match="no moving link 'HOOF'"):
        with_ground(floating("solo12"), (), ("HOOF",))
