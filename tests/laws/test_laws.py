"""Laws of mechanics, over random robots (oracles/random_trees.py): branches, every kind of joint,
placeholders, massless links, mimic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pinocchio as pin
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import thetahat as th
from oracles import pinocchio_bridge, random_trees
from oracles.random_trees import ONE_DOF, random_robot, random_state
from thetahat.dynamics.configuration import integrate
from thetahat.dynamics.rigid_body import (
    body_frames,
    body_jacobian,
    kinetic_energy_regressor,
    mass_matrix_by_bodies,
    potential_energy_regressor,
    static_regressor,
)
from thetahat.model import parameters
from thetahat.model.drive import Drive
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind, Tree

SAMPLES = 3
# of the largest number of the sample: what some hundred roundings of order-one numbers may leave
EXACT = 1e-12
# where one side is a numerical derivative: rounding over the step, and the stencil's remainder
DIFFERENCE = 1e-9
STEP = 4e-3  # [s] of the derivative's stencil: (10 rad/s × 4e-3)⁸/630 is below rounding
STENCIL = ((1, 4 / 5), (2, -1 / 5), (3, 4 / 105), (4, -1 / 280))  # first derivative, order eight

law = settings(max_examples=50, deadline=None, derandomize=True, database=None)


@dataclass(frozen=True, eq=False)
class Moving:
    """A robot in some states."""

    robot: Robot
    q: np.ndarray
    dq: np.ndarray
    ddq: np.ndarray

    @property
    def state(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.q, self.dq, self.ddq

    @property
    def size(self) -> np.ndarray:
        """The largest Σ_k |Y_jk θ_k| of each sample, (samples, 1)."""
        return np.max(
            np.sum(np.abs(th.regressor(self.robot, *self.state) * self.robot.theta), axis=-1),
            axis=-1,
            keepdims=True,
        )


def moving(**options) -> st.SearchStrategy[Moving]:
    """Robots of one to ten joints in random states; fewer joints are simpler, so failures shrink to
    small robots.
    """

    def build(nodes: int, seed: int) -> Moving:
        robot = random_robot(seed, nodes=nodes, **options)
        return Moving(robot, *random_state(robot, seed, SAMPLES))

    return st.builds(build, st.integers(1, 10), st.integers(0, 2**32 - 1))


def close(a: np.ndarray, b: np.ndarray, size: np.ndarray | float, *, within: float = EXACT) -> None:
    """|a − b| ≤ within · size, size per sample."""
    assert np.shape(a) == np.shape(b)
    assert np.all(np.isfinite(a))
    size = np.reshape(size, np.shape(size)[:1] + (1,) * (np.ndim(a) - 1)) if np.ndim(size) else size
    error = np.abs(a - b)
    assert np.all(error <= within * size), (
        f"off by {np.max(error / size):.2e} of the size, {within:.0e} allowed"
    )


def largest(a: np.ndarray) -> np.ndarray:
    """The largest magnitude in each sample, (samples,)."""
    return np.max(np.abs(a.reshape(len(a), -1)), axis=1)


def rate(
    f: Callable[[np.ndarray, np.ndarray], np.ndarray],
    m: Moving,
    dq: np.ndarray,
    ddq: np.ndarray | None = None,
) -> np.ndarray:
    """d/dt f(q, q̇) along the motion that begins with (dq, ddq)."""
    ddq = np.zeros_like(dq) if ddq is None else ddq

    def at(t: float) -> np.ndarray:
        return f(integrate(m.robot, m.q, t * dq + 0.5 * t**2 * ddq), dq + t * ddq)

    return sum(weight * (at(k * STEP) - at(-k * STEP)) for k, weight in STENCIL) / STEP


def unit(m: Moving, k: int) -> np.ndarray:
    out = np.zeros_like(m.dq)
    out[:, k] = 1.0
    return out


# -- what a joint is -------------------------------------------------------------------------------


@law
@given(moving())
def test_every_joint_is_what_pinocchio_takes_it_for(m: Moving) -> None:
    """FreeFlyer, Spherical, Planar, Revolute, Prismatic: torque, D, G and Y of the same tree built
    there.
    """
    oracle = pinocchio_bridge.from_robot(m.robot)
    Y, D = oracle.regressor(*m.state), oracle.mass_matrix(m.q)
    close(th.inverse_dynamics(m.robot, *m.state), oracle.inverse_dynamics(*m.state), m.size)
    close(th.gravity(m.robot, m.q), oracle.gravity(m.q), m.size)
    close(th.mass_matrix(m.robot, m.q), D, largest(D))
    close(th.regressor(m.robot, *m.state), Y, largest(Y))


@law
@given(moving(mimic=False))
def test_integrate_moves_as_pinocchio_does(m: Moving) -> None:
    oracle = pinocchio_bridge.from_robot(m.robot)
    moved = oracle.configuration(integrate(m.robot, m.q, m.dq))
    expected = np.array(
        [
            pin.integrate(oracle.model, q, v)
            for q, v in zip(oracle.configuration(m.q), m.dq @ oracle.velocity.T, strict=True)
        ]
    )
    for a, b in zip(moved, expected, strict=True):
        assert pin.isSameConfiguration(
            oracle.model, a, b, 1e-12
        )  # a quaternion and its negative are the same


@law
@given(moving())
def test_jacobians_are_the_rates_of_frames(m: Moving) -> None:
    """J q̇ = (Rᵀ Ṙ as a vector, Rᵀ ṗ): the body's twist in its own axes, angular first."""
    R = body_frames(m.robot, m.q)[0]
    dR = rate(lambda q, _: body_frames(m.robot, q)[0], m, m.dq)
    dp = rate(lambda q, _: body_frames(m.robot, q)[1], m, m.dq)
    spin = np.swapaxes(R, -1, -2) @ dR
    twist = np.concatenate(
        [
            spin[..., 2, 1, None],
            spin[..., 0, 2, None],
            spin[..., 1, 0, None],
            np.einsum("sbij,sbi->sbj", R, dp),
        ],
        axis=-1,
    )
    for i, body in enumerate(m.robot.body_names):
        got = (body_jacobian(m.robot, m.q, body) @ m.dq[..., None])[..., 0]
        close(got, twist[:, i], 1.0 + largest(twist), within=DIFFERENCE)


# -- the equation of motion ------------------------------------------------------------------------


@law
@given(moving())
def test_regressor_times_theta_is_inverse_dynamics(m: Moving) -> None:
    close(
        th.regressor(m.robot, *m.state) @ m.robot.theta,
        th.inverse_dynamics(m.robot, *m.state),
        m.size,
    )
    close(static_regressor(m.robot, m.q) @ m.robot.theta, th.gravity(m.robot, m.q), m.size)


@law
@given(moving())
def test_algorithm_1_is_the_fast_regressor(m: Moving) -> None:
    Y = th.regressor_by_unit_parameters(m.robot, *m.state)
    close(th.regressor(m.robot, *m.state), Y, largest(Y))


@law
@given(moving(drive=True))
def test_mass_matrix_is_symmetric_positive_definite_and_a_sum_over_bodies(m: Moving) -> None:
    D, rigid = th.mass_matrix(m.robot, m.q), th.mass_matrix(m.robot, m.q, rigid=True)
    assert np.array_equal(D, np.swapaxes(D, -1, -2))
    assert np.min(np.linalg.eigvalsh(rigid)) > 0.0
    close(rigid, mass_matrix_by_bodies(m.robot, m.q), largest(rigid))
    close(D - rigid, np.broadcast_to(np.diag(m.robot.drive.armature), D.shape), largest(D))


@law
@given(moving())
def test_terms_add_up_to_the_torque(m: Moving) -> None:
    """D q̈ + C q̇ + G = U (paper, eq. eom)."""
    D, C, G = (
        th.mass_matrix(m.robot, m.q),
        th.coriolis_matrix(m.robot, m.q, m.dq),
        th.gravity(m.robot, m.q),
    )
    total = (D @ m.ddq[..., None] + C @ m.dq[..., None])[..., 0] + G
    close(total, th.inverse_dynamics(m.robot, *m.state), m.size + largest(G)[:, None])


@law
@given(moving())
def test_rate_of_mass_matrix_less_twice_coriolis_is_skew(m: Moving) -> None:
    N = rate(lambda q, _: th.mass_matrix(m.robot, q), m, m.dq) - 2.0 * th.coriolis_matrix(
        m.robot, m.q, m.dq
    )
    close(
        N, -np.swapaxes(N, -1, -2), 10.0 * largest(th.mass_matrix(m.robot, m.q)), within=DIFFERENCE
    )


@law
@given(moving(kinds=ONE_DOF))
def test_coriolis_matrix_is_that_of_christoffel_symbols(m: Moving) -> None:
    """C_ij = Σ_k ½(∂D_ij/∂q_k + ∂D_ik/∂q_j − ∂D_kj/∂q_i) q̇_k (paper, eq. coriolisdetails), one-DOF
    joints.
    """
    slopes = np.stack(
        [rate(lambda q, _: th.mass_matrix(m.robot, q), m, unit(m, k)) for k in range(m.robot.nv)],
        axis=-1,
    )  # ∂D_ij/∂q_k
    symbols = 0.5 * (slopes + np.swapaxes(slopes, -1, -2) - np.moveaxis(slopes, -1, 1))
    expected = np.einsum("sijk,sk->sij", symbols, m.dq)
    close(
        th.coriolis_matrix(m.robot, m.q, m.dq),
        expected,
        10.0 * largest(th.mass_matrix(m.robot, m.q)),
        within=DIFFERENCE,
    )


@law
@given(moving())
def test_terms_and_energies_are_linear_in_theta(m: Moving) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, len(m.robot.theta)))
    a, b, both = (m.robot.with_parameters(theta) for theta in (x, y, 2.0 * x - 3.0 * y))
    terms = (
        lambda r: th.mass_matrix(r, m.q),
        lambda r: th.coriolis_matrix(r, m.q, m.dq),
        lambda r: th.gravity(r, m.q),
        lambda r: th.inverse_dynamics(r, *m.state),
        lambda r: th.potential_energy(r, m.q),
        lambda r: th.kinetic_energy(r, m.q, m.dq),
    )
    for term in terms:
        f, g = term(a), term(b)
        close(term(both), 2.0 * f - 3.0 * g, 1.0 + largest(f) + largest(g))
    assert np.array_equal(
        th.inverse_dynamics(m.robot, *m.state, theta=x), th.inverse_dynamics(a, *m.state)
    )


# -- energy and power ------------------------------------------------------------------------------


@law
@given(moving(drive=True))
def test_kinetic_energy_is_half_of_dq_D_dq(m: Moving) -> None:
    for rigid in (True, False):
        D = th.mass_matrix(m.robot, m.q, rigid=rigid)
        T = th.kinetic_energy(m.robot, m.q, m.dq, rigid=rigid)
        close(T, 0.5 * np.einsum("si,sij,sj->s", m.dq, D, m.dq), T)
    close(
        kinetic_energy_regressor(m.robot, m.q, m.dq) @ m.robot.theta,
        th.kinetic_energy(m.robot, m.q, m.dq, rigid=True),
        T,
    )


@law
@given(moving())
def test_gravity_is_the_slope_of_potential_energy(m: Moving) -> None:
    """G = ∂V/∂q, along every direction of motion."""
    V = th.potential_energy(m.robot, m.q)
    close(potential_energy_regressor(m.robot, m.q) @ m.robot.theta, V, 1.0 + np.abs(V))
    slope = np.stack(
        [
            rate(lambda q, _: th.potential_energy(m.robot, q), m, unit(m, k))
            for k in range(m.robot.nv)
        ],
        axis=-1,
    )
    close(th.gravity(m.robot, m.q), slope, 1.0 + np.abs(V) + m.size[:, 0], within=DIFFERENCE)


@law
@given(moving(drive=True))
def test_power_balance(m: Moving) -> None:
    """d/dt (T + V) = q̇·τ, rotors included; friction and offset are what is lost or fed in
    besides.
    """
    rotors = replace(
        m.robot, drive=Drive.none(m.robot.nv).with_values(armature=m.robot.drive.armature)
    )
    power = rate(
        lambda q, dq: th.kinetic_energy(rotors, q, dq) + th.potential_energy(rotors, q),
        m,
        m.dq,
        m.ddq,
    )
    size = 1.0 + np.sum(np.abs(m.dq), axis=1) * m.size[:, 0]
    close(
        np.sum(m.dq * th.inverse_dynamics(rotors, *m.state), axis=1), power, size, within=DIFFERENCE
    )
    drive = m.robot.drive
    lost = np.sum(
        drive.viscous * m.dq**2 + drive.coulomb * np.abs(m.dq) + drive.offset * m.dq, axis=1
    )
    close(
        np.sum(m.dq * th.inverse_dynamics(m.robot, *m.state), axis=1),
        power + lost,
        size + lost,
        within=DIFFERENCE,
    )


def advance(robot: Robot, q: np.ndarray, dq: np.ndarray, h: float) -> tuple[np.ndarray, np.ndarray]:
    """One step without torque by a commutator-free method of order four
    [CelledoniMarthinsenOwren2003]: q moves by `integrate` alone.
    """

    def slope(x: np.ndarray, v: np.ndarray) -> np.ndarray:
        return np.concatenate([v, th.forward_dynamics(robot, x, v, np.zeros_like(v))], axis=1)

    def step(x: np.ndarray, v: np.ndarray, k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return integrate(robot, x, h * k[:, : robot.nv]), v + h * k[:, robot.nv :]

    k1 = slope(q, dq)
    second = step(q, dq, 0.5 * k1)
    k2 = slope(*second)
    k3 = slope(*step(q, dq, 0.5 * k2))
    k4 = slope(*step(*second, k3 - 0.5 * k1))
    early, late = k1 / 4 + k2 / 6 + k3 / 6 - k4 / 12, -k1 / 12 + k2 / 6 + k3 / 6 + k4 / 4
    return step(*step(q, dq, early), late)


@pytest.mark.parametrize("seed", range(6))
def test_energy_is_conserved_by_integrated_forward_dynamics(seed: int) -> None:
    """Nothing drives the robot, so T + V stays; what is lost to the step falls with its fourth
    power.
    """
    robot = random_robot(seed, nodes=3 + seed % 3)
    start, push, _ = random_state(robot, seed, 4)
    lost = []
    for steps in (50, 100):
        q, dq = start, 0.3 * push
        before = th.kinetic_energy(robot, q, dq) + th.potential_energy(robot, q)
        scale = 0.0
        for _ in range(steps):
            q, dq = advance(robot, q, dq, 0.2 / steps)
            scale = np.maximum(scale, th.kinetic_energy(robot, q, dq))
        lost.append(
            np.abs(th.kinetic_energy(robot, q, dq) + th.potential_energy(robot, q) - before) / scale
        )
    assert np.max(lost[1]) < 1e-8
    assert np.sum(lost[0]) > 11.0 * np.sum(lost[1]) or np.max(lost[0]) < 1e-12


# -- forward and inverse, wrenches -----------------------------------------------------------------


@law
@given(moving(drive=True))
def test_forward_dynamics_undoes_inverse_dynamics(m: Moving) -> None:
    """With friction, rotors, external wrenches and mimic joints, and without; errors grow with the
    condition of D alone.
    """
    wrenches = np.random.default_rng(1).normal(size=(SAMPLES, len(m.robot.body_names), 6))
    for options in ({}, {"rigid": True}, {"wrenches": wrenches}):
        tau = th.inverse_dynamics(m.robot, *m.state, **options)
        back = th.forward_dynamics(m.robot, m.q, m.dq, tau, **options)
        close(
            th.inverse_dynamics(m.robot, m.q, m.dq, back, **options),
            tau,
            m.size + largest(tau)[:, None],
            within=100 * EXACT,
        )
        condition = np.linalg.cond(th.mass_matrix(m.robot, m.q, rigid=options.get("rigid", False)))
        close(back, m.ddq, condition * largest(m.ddq), within=100 * EXACT)


@law
@given(moving(drive=True))
def test_external_wrenches_act_by_the_jacobian(m: Moving) -> None:
    """A wrench on a body takes Jᵀw off the torque."""
    wrenches = np.random.default_rng(2).normal(size=(SAMPLES, len(m.robot.body_names), 6))
    jacobians = (body_jacobian(m.robot, m.q, body) for body in m.robot.body_names)
    help_ = sum(np.einsum("sij,si->sj", J, wrenches[:, i]) for i, J in enumerate(jacobians))
    got = th.inverse_dynamics(m.robot, *m.state, wrenches=wrenches)
    close(got, th.inverse_dynamics(m.robot, *m.state) - help_, m.size + largest(help_)[:, None])
    one = th.inverse_dynamics(m.robot, *(x[0] for x in m.state), wrenches=wrenches[0])
    assert np.array_equal(one, got[0])


# -- frames ----------------------------------------------------------------------------------------


@law
@given(moving())
def test_turning_the_world_changes_nothing(m: Moving) -> None:
    """Everything, gravity too, seen from another base frame: the same torques, energies and
    matrices; V up to a constant.
    """
    rng = np.random.default_rng(3)
    R, p = random_trees.rotation(rng), rng.normal(size=3)
    nodes = (
        (
            replace(n, rotation=R @ n.rotation, translation=R @ n.translation + p)
            if n.parent < 0
            else n
        )
        for n in m.robot.tree.nodes
    )
    turned = replace(m.robot, tree=Tree(tuple(nodes)), gravity=R @ m.robot.gravity)
    close(th.inverse_dynamics(turned, *m.state), th.inverse_dynamics(m.robot, *m.state), m.size)
    D, C = th.mass_matrix(m.robot, m.q), th.coriolis_matrix(m.robot, m.q, m.dq)
    close(th.mass_matrix(turned, m.q), D, largest(D))
    close(th.coriolis_matrix(turned, m.q, m.dq), C, largest(C) + largest(D))
    lift = th.potential_energy(turned, m.q) - th.potential_energy(m.robot, m.q)
    close(
        lift,
        np.full(SAMPLES, -m.robot.mass * (R @ m.robot.gravity) @ p),
        1.0 + np.abs(th.potential_energy(m.robot, m.q)),
    )


@law
@given(moving())
def test_moving_a_link_frame_changes_theta_alone(m: Moving) -> None:
    """A body's frame turned, and slid along its joint's axis: other numbers in θ and in the
    geometry, the same torques.
    """
    rng, nodes, theta = (
        np.random.default_rng(4),
        list(m.robot.tree.nodes),
        m.robot.theta.reshape(-1, 10).copy(),
    )
    for i, node in enumerate(nodes):
        if node.kind not in ONE_DOF:
            continue  # a multi-DOF joint's coordinates are those of its frame
        A, a = (
            random_trees.rotation(rng),
            (rng.normal() * node.axis if node.kind is JointKind.REVOLUTE else rng.normal(size=3)),
        )
        nodes[i] = replace(
            node,
            rotation=node.rotation @ A,
            translation=node.translation + node.rotation @ a,
            axis=A.T @ node.axis,
        )
        for j, child in enumerate(nodes):
            if child.parent == i:
                nodes[j] = replace(
                    child, rotation=A.T @ child.rotation, translation=A.T @ (child.translation - a)
                )
        if node.body is not None:
            body = m.robot.body_index(node.body)
            theta[body] = parameters.transform(theta[body], A.T, -A.T @ a)
    moved = replace(m.robot, tree=Tree(tuple(nodes)), theta=theta.ravel())
    size = np.maximum(m.size, Moving(moved, *m.state).size)
    close(th.inverse_dynamics(moved, *m.state), th.inverse_dynamics(m.robot, *m.state), size)
    close(th.regressor(moved, *m.state) @ moved.theta, th.inverse_dynamics(m.robot, *m.state), size)
    D = th.mass_matrix(m.robot, m.q)
    close(th.mass_matrix(moved, m.q), D, largest(D))
    close(
        th.potential_energy(moved, m.q),
        th.potential_energy(m.robot, m.q),
        1.0 + np.abs(th.potential_energy(m.robot, m.q)),
    )
