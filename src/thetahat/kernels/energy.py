"""Energy regressors, frames and body Jacobians.

    T = ½ ωᵀĪω + (m·c)·(v × ω) + ½ m v·v        V = −g·(m p + R m·c)        (paper, eq. energysubs, potentialmod)

with ω, v of the body's origin in body axes, p its position: both linear in the ten numbers.
"""

from __future__ import annotations

from thetahat.kernels.jit import jit
from thetahat.kernels.kinematics import (
    ANGULAR,
    COLUMN,
    DOF_COUNT,
    FIRST_DOF,
    OMEGA,
    PARENT,
    POSITION,
    ROTATION,
    V_INDEX,
    VELOCITY,
    column3,
    load9,
    load_dof_axis,
    move,
    place,
    turn,
)
from thetahat.kernels.lanes import WIDTH, load, scatter, splat, store
from thetahat.kernels.rnea import IXX, IXY, IXZ, IYY, IYZ, IZZ, MASS, MCX, MCY, MCZ, transposed
from thetahat.kernels.vectors import cross3, dot3, load3, sub3, zero3


@jit
def kinetic_regressor(topology, geometry, dofs, axes, gravity, q, dq, nodes, directions, out):
    """Fill out (samples, 10·bodies): T = out·θ."""
    samples = q.shape[0]
    for first in range(0, samples, WIDTH):
        count = min(WIDTH, samples - first)
        place(topology, geometry, dofs, axes, q, first, samples - 1, nodes, directions)
        move(topology, dofs, axes, gravity, dq, dq, first, samples - 1, nodes, directions)
        for i in range(topology.shape[0]):
            k = topology[i, COLUMN]
            if k < 0:
                continue
            R_t = transposed(load9(nodes, i + 1, ROTATION))
            w, v = turn(R_t, load3(nodes, i + 1, OMEGA)), turn(R_t, load3(nodes, i + 1, VELOCITY))
            v_x_w = cross3(v, w)
            scatter(out, first, count, k + IXX, 0.5 * w[0] * w[0])
            scatter(out, first, count, k + IXY, w[0] * w[1])
            scatter(out, first, count, k + IXZ, w[0] * w[2])
            scatter(out, first, count, k + IYY, 0.5 * w[1] * w[1])
            scatter(out, first, count, k + IYZ, w[1] * w[2])
            scatter(out, first, count, k + IZZ, 0.5 * w[2] * w[2])
            scatter(out, first, count, k + MCX, v_x_w[0])
            scatter(out, first, count, k + MCY, v_x_w[1])
            scatter(out, first, count, k + MCZ, v_x_w[2])
            scatter(out, first, count, k + MASS, 0.5 * dot3(v, v))


@jit
def potential_regressor(topology, geometry, dofs, axes, gravity, q, nodes, directions, out):
    """Fill out (samples, 10·bodies): V = out·θ, zero at the world's origin. Columns of inertia stay as handed in: zero."""
    samples = q.shape[0]
    up = (splat(-gravity[0]), splat(-gravity[1]), splat(-gravity[2]))
    for first in range(0, samples, WIDTH):
        count = min(WIDTH, samples - first)
        place(topology, geometry, dofs, axes, q, first, samples - 1, nodes, directions)
        for i in range(topology.shape[0]):
            k = topology[i, COLUMN]
            if k < 0:
                continue
            R = load9(nodes, i + 1, ROTATION)
            scatter(out, first, count, k + MCX, dot3(column3(R, 0), up))
            scatter(out, first, count, k + MCY, dot3(column3(R, 1), up))
            scatter(out, first, count, k + MCZ, dot3(column3(R, 2), up))
            scatter(out, first, count, k + MASS, dot3(load3(nodes, i + 1, POSITION), up))


@jit
def frames(topology, geometry, dofs, axes, q, nodes, directions, out):
    """Fill out (samples, 12·nodes): rotation row by row, then position, of every node in the world."""
    samples = q.shape[0]
    for first in range(0, samples, WIDTH):
        count = min(WIDTH, samples - first)
        place(topology, geometry, dofs, axes, q, first, samples - 1, nodes, directions)
        for i in range(topology.shape[0]):
            for k in range(12):
                scatter(out, first, count, 12 * i + k, load(nodes, i + 1, ROTATION + k))


@jit
def body_jacobian(topology, geometry, dofs, axes, body, nv, q, nodes, directions, matrix, out):
    """Fill out (samples, 6·nv): twist of node `body` at its origin, in its own axes, angular first, per unit of dq."""
    samples = q.shape[0]
    for first in range(0, samples, WIDTH):
        count = min(WIDTH, samples - first)
        place(topology, geometry, dofs, axes, q, first, samples - 1, nodes, directions)
        for k in range(6 * nv):
            store(matrix, k, 0, splat(0.0))
        R_t = transposed(load9(nodes, body + 1, ROTATION))
        p = load3(nodes, body + 1, POSITION)
        j = body
        while j >= 0:
            r = sub3(p, load3(nodes, j + 1, POSITION))
            d = topology[j, FIRST_DOF]
            for e in range(d, d + topology[j, DOF_COUNT]):
                z = load_dof_axis(directions, e)
                angular, linear = zero3(), z
                if dofs[e, ANGULAR]:
                    angular, linear = z, cross3(z, r)
                angular, linear = turn(R_t, angular), turn(R_t, linear)
                v, ratio = dofs[e, V_INDEX], axes[e, 3]
                for k in range(3):
                    at = k * nv + v
                    store(matrix, at, 0, load(matrix, at, 0) + angular[k] * ratio)
                    at = (k + 3) * nv + v
                    store(matrix, at, 0, load(matrix, at, 0) + linear[k] * ratio)
            j = topology[j, PARENT]
        for k in range(6 * nv):
            scatter(out, first, count, k, load(matrix, k, 0))
