"""Regressors of generalized momentum: against Pinocchio's matrices, and by the equation of motion
itself.
"""

from __future__ import annotations

import numpy as np
import pytest

import thetahat as th
from oracles import pinocchio_bridge
from oracles.random_trees import random_robot, random_state
from thetahat.dynamics import rigid_body
from thetahat.dynamics.momentum import momentum_rate_regressor, momentum_regressor
from thetahat.model.tree import JointKind

EXACT = 1e-11  # of the largest entry: rounding of sums over eight bodies
SEEDS = range(6)  # of trees with every kind of joint, followers and massless links


def assert_close(ours: np.ndarray, theirs: np.ndarray) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=0.0, atol=EXACT * max(np.abs(theirs).max(), 1.0))


@pytest.mark.parametrize("seed", SEEDS)
def test_momentum_is_the_mass_matrix_of_pinocchio_times_the_velocity(seed: int) -> None:
    robot = random_robot(seed)
    q, dq, _ = random_state(robot, seed, 5)
    D = pinocchio_bridge.from_robot(robot).mass_matrix(q)
    assert_close(momentum_regressor(robot, q, dq) @ robot.theta, np.einsum("sij,sj->si", D, dq))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_rate_is_gravity_less_the_transposed_coriolis_matrix(seed: int) -> None:
    robot = random_robot(seed)
    q, dq, _ = random_state(robot, seed, 5)
    G = pinocchio_bridge.from_robot(robot).gravity(q)
    C = th.coriolis_matrix(robot, q, dq)
    rate = momentum_rate_regressor(robot, q, dq) @ robot.theta
    assert_close(rate, G - np.einsum("sji,sj->si", C, dq))


@pytest.mark.parametrize("seed", SEEDS)
def test_torque_is_the_rate_of_momentum_and_the_rest_in_every_column(seed: int) -> None:
    """τ = d/dt(Y_p θ) + Y_r θ column by column, the derivative a central difference along the
    motion (joints with one degree of freedom, whose q moves along q̇ on a straight line).
    """
    robot = random_robot(seed, kinds=(JointKind.REVOLUTE, JointKind.PRISMATIC))
    q, dq, ddq = random_state(robot, seed, 4)
    h = 1e-5

    def at(step: float) -> np.ndarray:
        return momentum_regressor(robot, q + step * dq, dq + step * ddq)

    change = (8.0 * (at(h) - at(-h)) - (at(2.0 * h) - at(-2.0 * h))) / (12.0 * h)
    whole = change + momentum_rate_regressor(robot, q, dq)
    Y = rigid_body.regressor(robot, q, dq, ddq)
    np.testing.assert_allclose(whole, Y, rtol=0.0, atol=1e-8 * np.abs(Y).max())


def test_one_sample_and_many_give_the_same() -> None:
    robot = random_robot(0)
    q, dq, _ = random_state(robot, 0, 11)
    for function in (momentum_regressor, momentum_rate_regressor):
        many = function(robot, q, dq)
        assert many.shape == (11, robot.nv, len(robot.theta))
        np.testing.assert_array_equal(function(robot, q[4], dq[4]), many[4])
