"""A robot with locked joints moves, weighs and resists as the whole one does with those joints held
still.
"""

from __future__ import annotations

import numpy as np
import pytest
from data_paths import example_robot

import thetahat as th
from oracles.random_trees import random_robot, random_state
from thetahat.errors import UsageError
from thetahat.model.lock_joints import kept_positions, lock

ROUNDING = 1e-11  # relative to the largest torque


@pytest.mark.parametrize("seed", range(30))
def test_the_rest_moves_as_before(seed: int) -> None:
    """Every kind of joint, mimic ones and placeholders: τ of the joints left, with the others at
    rest, is unchanged; so are the kept drive terms.
    """
    robot = random_robot(seed, nodes=9, drive=True)
    rng = np.random.default_rng(seed)
    names = [name for name in robot.joint_names if rng.random() < 0.4][: len(robot.joint_names) - 1]
    small = lock(robot, names)
    q_kept, v_kept = kept_positions(robot, names)
    assert small.joint_names == tuple(name for name in robot.joint_names if name not in names)
    q, dq, ddq = random_state(small, seed, samples=5)
    Q = np.tile(robot.neutral, (5, 1))
    Q[:, q_kept] = q
    DQ, DDQ = np.zeros((2, 5, robot.nv))
    DQ[:, v_kept], DDQ[:, v_kept] = dq, ddq
    for rigid in (True, False):
        whole = th.inverse_dynamics(robot, Q, DQ, DDQ, rigid=rigid)[:, v_kept]
        np.testing.assert_allclose(
            th.inverse_dynamics(small, q, dq, ddq, rigid=rigid),
            whole,
            rtol=0,
            atol=ROUNDING * np.abs(whole).max(),
        )


def test_panda_without_fingers_is_pinocchios_reduced_model() -> None:
    pinocchio = pytest.importorskip("pinocchio", reason="Pinocchio is the oracle (pip install pin)")
    path = example_robot("panda")
    robot = th.load(path)
    fingers = [name for name in robot.joint_names if "finger" in name]
    small = lock(robot, fingers)
    model = pinocchio.buildModelFromUrdf(str(path))
    reduced = pinocchio.buildReducedModel(
        model,
        [i for i, name in enumerate(model.names) if "finger" in name],
        pinocchio.neutral(model),
    )
    q, dq, ddq = random_state(small, 0, samples=10)
    data = reduced.createData()
    expected = np.array(
        [pinocchio.rnea(reduced, data, *state) for state in zip(q, dq, ddq, strict=True)]
    )
    np.testing.assert_allclose(
        th.inverse_dynamics(small, q, dq, ddq, rigid=True),
        expected,
        rtol=0,
        atol=ROUNDING * np.abs(expected).max(),
    )
    assert len(small.body_names) == 7
    last = {link.name for link in small.links if link.body == 6}
    assert last >= {"panda_link7", "panda_hand", "panda_leftfinger", "panda_rightfinger"}


def test_links_add_up_to_their_bodies() -> None:
    from thetahat.model import parameters

    robot = th.load(example_robot("talos"))
    small = lock(robot, robot.joint_names[::3])
    theta = np.zeros((len(small.body_names), 10))
    for link in small.links:
        if link.body >= 0:
            theta[link.body] += parameters.transform(link.theta, link.rotation, link.translation)
    np.testing.assert_allclose(theta.ravel(), small.theta, rtol=0, atol=1e-12)
    assert len(small.links) == len(robot.links)


def test_nothing_locked_is_the_same_robot_and_unknown_names_are_refused() -> None:
    robot = random_robot(0)
    assert lock(robot, []) is robot
    with pytest.raises(UsageError, match="'elbw' cannot be locked"):
        lock(robot, ["elbw"])
    with pytest.raises(UsageError, match="actuation map"):
        lock(robot.with_actuation(np.eye(robot.nv)), robot.joint_names[:1])
