"""The kinetic-energy regressor, and the frames of all nodes.

    T = ½ ωᵀĪω + (m·c)·(v × ω) + ½ m v·v        (paper, eq. energysubs)

with ω, v of the body's origin in body axes: linear in the ten numbers.
"""

from __future__ import annotations

from thetahat.kernels.jit import jit
from thetahat.kernels.kinematics import COLUMN, OMEGA, ROTATION, VELOCITY, load9, move, place, turn
from thetahat.kernels.lanes import WIDTH, load, scatter
from thetahat.kernels.rnea import IXX, IXY, IXZ, IYY, IYZ, IZZ, MASS, MCX, MCY, MCZ, transposed
from thetahat.kernels.vectors import cross3, dot3, load3


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
def frames(topology, geometry, dofs, axes, q, nodes, directions, out):
    """Fill out (samples, 12·nodes): rotation row by row, then position, of every node in the world."""
    samples = q.shape[0]
    for first in range(0, samples, WIDTH):
        count = min(WIDTH, samples - first)
        place(topology, geometry, dofs, axes, q, first, samples - 1, nodes, directions)
        for i in range(topology.shape[0]):
            for k in range(12):
                scatter(out, first, count, 12 * i + k, load(nodes, i + 1, ROTATION + k))
