"""Inverse dynamics by the recursive Newton–Euler algorithm, in world axes: O(bodies) per sample.

f_i = m a + α × h + ω × (ω × h)                  h = R m·c
n_i = R (Ī α_b + ω_b × Ī ω_b) + h × a            about the body's origin
f_p += f_i,   n_p += n_i + r × f_i,   τ = z·n or z·f
"""

from __future__ import annotations

from thetahat.kernels.jit import inline, jit
from thetahat.kernels.kinematics import (
    ACCELERATION,
    ALPHA,
    ANGULAR,
    COLUMN,
    DOF_COUNT,
    FIRST_DOF,
    OMEGA,
    PARENT,
    POSITION,
    ROTATION,
    V_INDEX,
    column3,
    load9,
    load_dof_axis,
    move,
    place,
    turn,
    turn_constant,
)
from thetahat.kernels.lanes import WIDTH, load, scatter, splat, store
from thetahat.kernels.vectors import add3, cross3, dot3, gather3, load3, scale3, store3, sub3, zero3

# Positions in θ, the paper's order.
IXX, IXY, IXZ, MCZ, MCY, IYY, IYZ, MCX, IZZ, MASS = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
# Columns of the node scratch for wrenches (nodes + 1, WRENCH_SIZE, 8): row 0 is the world.
COUPLE, FORCE = 0, 3
WRENCH_SIZE = 6


@inline
def inertia_times(theta, column, a):
    """Ī a in body axes."""
    return (
        a[0] * theta[column + IXX] + a[1] * theta[column + IXY] + a[2] * theta[column + IXZ],
        a[0] * theta[column + IXY] + a[1] * theta[column + IYY] + a[2] * theta[column + IYZ],
        a[0] * theta[column + IXZ] + a[1] * theta[column + IYZ] + a[2] * theta[column + IZZ],
    )


@inline
def transposed(R):
    """Rᵀ."""
    return (column3(R, 0), column3(R, 1), column3(R, 2))


@inline
def first_moment(theta, column, R):
    """m·c in world axes."""
    return turn_constant(R, theta[column + MCX], theta[column + MCY], theta[column + MCZ])


@inline
def applied(wrenches, first, last, at, R):
    """Couple and force of an external wrench given in body axes, turned to world axes."""
    couple, force = gather3(wrenches, first, last, at), gather3(wrenches, first, last, at + 3)
    return turn(R, couple), turn(R, force)


@inline
def needed_wrench(theta, column, nodes, i):
    """The wrench that makes body i move as it does, about its origin."""
    R = load9(nodes, i + 1, ROTATION)
    w, alpha = load3(nodes, i + 1, OMEGA), load3(nodes, i + 1, ALPHA)
    a = load3(nodes, i + 1, ACCELERATION)
    w_b, alpha_b = turn(transposed(R), w), turn(transposed(R), alpha)
    h = first_moment(theta, column, R)
    couple_b = add3(
        inertia_times(theta, column, alpha_b), cross3(w_b, inertia_times(theta, column, w_b))
    )
    couple = add3(turn(R, couple_b), cross3(h, a))
    force = add3(
        scale3(a, splat(theta[column + MASS])), add3(cross3(alpha, h), cross3(w, cross3(w, h)))
    )
    return couple, force


@inline
def sum_up(topology, dofs, axes, nodes, directions, forces, torques):
    """Pass every node's wrench to its parent, and add its share to each joint's torque."""
    for i in range(topology.shape[0] - 1, -1, -1):
        n, f = load3(forces, i + 1, COUPLE), load3(forces, i + 1, FORCE)
        d, up = topology[i, FIRST_DOF], topology[i, PARENT] + 1
        for e in range(d, d + topology[i, DOF_COUNT]):
            z, v = load_dof_axis(directions, e), dofs[e, V_INDEX]
            tau = dot3(z, n) if dofs[e, ANGULAR] else dot3(z, f)
            store(torques, v, 0, load(torques, v, 0) + tau * axes[e, 3])
        if up > 0:
            r = sub3(load3(nodes, i + 1, POSITION), load3(nodes, up, POSITION))
            store3(forces, up, FORCE, add3(load3(forces, up, FORCE), f))
            store3(forces, up, COUPLE, add3(load3(forces, up, COUPLE), add3(n, cross3(r, f))))


@jit
def inverse_dynamics(
    topology,
    geometry,
    dofs,
    axes,
    gravity,
    theta,
    q,
    dq,
    ddq,
    wrenches,
    nodes,
    directions,
    forces,
    torques,
    out,
):
    """Fill out (samples, nv). wrenches is (samples, 6·bodies), or has no columns."""
    samples = q.shape[0]
    last = samples - 1
    for first in range(0, samples, WIDTH):
        place(topology, geometry, dofs, axes, q, first, last, nodes, directions)
        move(topology, dofs, axes, gravity, dq, ddq, first, last, nodes, directions)
        for v in range(out.shape[1]):
            store(torques, v, 0, splat(0.0))
        for i in range(topology.shape[0]):
            column = topology[i, COLUMN]
            couple, force = zero3(), zero3()
            if column >= 0:
                couple, force = needed_wrench(theta, column, nodes, i)
                if wrenches.shape[1] > 0:
                    n_x, f_x = applied(
                        wrenches, first, last, 6 * (column // 10), load9(nodes, i + 1, ROTATION)
                    )
                    couple, force = sub3(couple, n_x), sub3(force, f_x)
            store3(forces, i + 1, COUPLE, couple)
            store3(forces, i + 1, FORCE, force)
        sum_up(topology, dofs, axes, nodes, directions, forces, torques)
        count = min(WIDTH, samples - first)
        for v in range(out.shape[1]):
            scatter(out, first, count, v, load(torques, v, 0))
