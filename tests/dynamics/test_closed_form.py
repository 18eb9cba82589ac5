"""A 2R arm against its closed form, derived by SymPy from Lagrange's equations
(tests/oracles/two_link.py).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest

import thetahat as th
from oracles.two_link import TwoLink

ARMS, STATES = 3, 20
GRAVITIES = (
    np.array([0.0, 0.0, -9.81]),
    np.array([6.0, 1.5, -7.0]),
)  # upright, and mounted sideways
CLOSE = 1e-12  # of the size of what is summed: rounding of some hundred operations


def error(
    got: np.ndarray, expected: np.ndarray, *, size: np.ndarray | float | None = None
) -> float:
    """The largest error, as a fraction of `size` (of the largest expected number where none is
    given).
    """
    size = np.max(np.abs(expected)) if size is None else size
    return float(np.max(np.abs(np.asarray(got) - expected) / size))


@pytest.fixture(scope="module", params=range(ARMS))
def arm(request):
    """(closed form, random states) of one arm."""
    rng = np.random.default_rng(request.param)
    closed = TwoLink.random(rng)
    return closed, (rng.uniform(-np.pi, np.pi, (STATES, 2)), *rng.normal(size=(2, STATES, 2)))


@pytest.fixture(scope="module")
def robot(arm, tmp_path_factory):
    """The same arm, from its URDF."""
    path = tmp_path_factory.mktemp("two_link") / "two_link.urdf"
    path.write_text(arm[0].urdf(), encoding="utf-8")
    return th.load(path)


def test_the_closed_form_agrees_with_pinocchio(arm):
    """The oracle itself, first."""
    closed, states = arm
    model = pin.buildModelFromXML(closed.urdf())
    data = model.createData()
    for q, dq, ddq in zip(*states, strict=True):
        at = pin.integrate(model, pin.neutral(model), q)
        size = np.sum(
            np.abs(closed.regressor(q, dq, ddq, gravity=GRAVITIES[0]) * closed.theta), axis=1
        )
        assert (
            error(
                closed.inverse_dynamics(q, dq, ddq, gravity=GRAVITIES[0]),
                pin.rnea(model, data, at, dq, ddq),
                size=size,
            )
            < CLOSE
        )
        upper = np.triu(pin.crba(model, data, at))
        assert error(closed.D(q), upper + np.triu(upper, 1).T) < CLOSE
        assert (
            error(
                closed.regressor(q, dq, ddq, gravity=GRAVITIES[0]) @ closed.theta,
                pin.rnea(model, data, at, dq, ddq),
                size=size,
            )
            < CLOSE
        )


def test_parameters_and_names(arm, robot):
    closed, _ = arm
    assert robot.joint_names == ("shoulder", "elbow")
    assert robot.body_names == ("upper", "lower")
    assert error(robot.theta, closed.theta) < CLOSE


def test_mass_matrix(arm, robot):
    closed, (q, _, _) = arm
    assert error(th.mass_matrix(robot, q), np.array([closed.D(x) for x in q])) < CLOSE


def test_coriolis_matrix(arm, robot):
    """Entry by entry: for one-DOF joints C is the one of Christoffel symbols (paper, eq.
    coriolisdetails).
    """
    closed, (q, dq, _) = arm
    expected = np.array([closed.C(x, v) for x, v in zip(q, dq, strict=True)])
    size = np.max(np.abs([closed.D(x) for x in q]))  # entries cancel down from the size of D
    assert error(th.coriolis_matrix(robot, q, dq), expected, size=size) < CLOSE


@pytest.mark.parametrize("gravity", GRAVITIES, ids=["upright", "sideways"])
def test_gravity_and_potential_energy(arm, robot, gravity):
    """G by entry; V up to a constant."""
    closed, (q, _, _) = arm
    robot = robot.with_gravity(gravity)
    assert error(th.gravity(robot, q), np.array([closed.G(x, gravity) for x in q])) < CLOSE
    expected, got = np.array([closed.V(x, gravity) for x in q]), th.potential_energy(robot, q)
    assert error(got - got[0], expected - expected[0], size=np.max(np.abs(expected))) < CLOSE


def test_kinetic_energy(arm, robot):
    closed, (q, dq, _) = arm
    assert (
        error(
            th.kinetic_energy(robot, q, dq),
            np.array([closed.T(x, v) for x, v in zip(q, dq, strict=True)]),
        )
        < CLOSE
    )


@pytest.mark.parametrize("gravity", GRAVITIES, ids=["upright", "sideways"])
def test_inverse_dynamics_and_regressor(arm, robot, gravity):
    """τ and ∂τ/∂θ, each joint to 1e-12 of Σ_k |Y_jk θ_k|; one sample as well as the batch."""
    closed, states = arm
    robot = robot.with_gravity(gravity)
    Y = np.array([closed.regressor(*state, gravity=gravity) for state in zip(*states, strict=True)])
    tau = np.array(
        [closed.inverse_dynamics(*state, gravity=gravity) for state in zip(*states, strict=True)]
    )
    size = np.sum(np.abs(Y * closed.theta), axis=-1)
    assert error(th.regressor(robot, *states), Y) < CLOSE
    assert error(th.regressor_by_unit_parameters(robot, *states), Y) < CLOSE
    assert error(th.inverse_dynamics(robot, *states, rigid=True), tau, size=size) < CLOSE
    one = tuple(state[0] for state in states)
    assert error(th.inverse_dynamics(robot, *one, rigid=True), tau[0], size=size[0]) < CLOSE
    assert error(th.regressor(robot, *one), Y[0]) < CLOSE


def test_a_wrong_mass_is_noticed(arm, robot):
    """The comparison can fail: one part in 1e9 of the heavier link's mass, c and Ī_C as they are,
    is far above the tolerance.

    (The number m in θ alone would not do: with m·c and the inertia held, the first link's mass
    moves no joint.)
    """
    closed, states = arm
    masses = closed.masses.copy()
    masses[np.argmax(masses)] *= 1 + 1e-9
    theta = replace(closed, masses=masses).theta
    Y = np.array(
        [closed.regressor(*state, gravity=GRAVITIES[0]) for state in zip(*states, strict=True)]
    )
    tau = th.inverse_dynamics(robot.with_parameters(theta), *states, rigid=True)
    assert error(tau, Y @ closed.theta, size=np.sum(np.abs(Y * closed.theta), axis=-1)) > CLOSE
