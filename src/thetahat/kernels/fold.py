"""The regressor's base columns, laid out for a QR: for every joint its own matrix, column after column.

Only what is needed is written: of joint j's rows, the columns of the bodies j carries that are base columns. A column's
neighbours in memory are its next samples, so eight lanes are one store and nothing is transposed.
"""

from __future__ import annotations

from thetahat.kernels.jit import inline, jit
from thetahat.kernels.kinematics import ANGULAR, COLUMN, DOF_COUNT, FIRST_DOF, PARENT, POSITION, SHARED, V_INDEX, load_dof_axis, move, place
from thetahat.kernels.lanes import WIDTH, gather, put, splat, take
from thetahat.kernels.regressor import body_wrenches, ten_sliding, ten_turning
from thetahat.kernels.vectors import cross3, load3, sub3


@inline
def _keep(matrices, row, at, value, weight, shared):
    """Write a weighted column's eight samples, or add them where several joints share the row."""
    if row >= 0:
        if shared:
            put(matrices, row, at, take(matrices, row, at) + value * weight)
        else:
            put(matrices, row, at, value * weight)


@jit
def base_columns(topology, geometry, dofs, axes, gravity, q, dq, ddq, weights, places, nodes, directions, matrices, start):
    """Fill matrices[places[dof, column], start + sample] for every base column of every joint.

    places: (dofs, 10·bodies) row of `matrices`, −1 where the column is not kept. weights: (samples, nv), or no rows for all ones.
    Columns that several joints share must be zero before.
    """
    samples = q.shape[0]
    last = samples - 1
    for first in range(0, samples, WIDTH):
        place(topology, geometry, dofs, axes, q, first, last, nodes, directions)
        move(topology, dofs, axes, gravity, dq, ddq, first, last, nodes, directions)
        at = start + first
        for i in range(topology.shape[0]):
            column = topology[i, COLUMN]
            if column < 0:
                continue
            couples, forces = body_wrenches(nodes, i)
            p_i = load3(nodes, i + 1, POSITION)
            j = i
            while j >= 0:
                r = sub3(p_i, load3(nodes, j + 1, POSITION))
                d = topology[j, FIRST_DOF]
                for e in range(d, d + topology[j, DOF_COUNT]):
                    z = load_dof_axis(directions, e)
                    ten = ten_turning(z, cross3(z, r), couples, forces) if dofs[e, ANGULAR] else ten_sliding(z, forces)
                    weight = splat(axes[e, 3])
                    if weights.shape[0] > 0:
                        weight = weight * gather(weights, first, last, dofs[e, V_INDEX])
                    to, shared = places[e], dofs[e, SHARED] != 0
                    _keep(matrices, to[column], at, ten[0], weight, shared)
                    _keep(matrices, to[column + 1], at, ten[1], weight, shared)
                    _keep(matrices, to[column + 2], at, ten[2], weight, shared)
                    _keep(matrices, to[column + 3], at, ten[3], weight, shared)
                    _keep(matrices, to[column + 4], at, ten[4], weight, shared)
                    _keep(matrices, to[column + 5], at, ten[5], weight, shared)
                    _keep(matrices, to[column + 6], at, ten[6], weight, shared)
                    _keep(matrices, to[column + 7], at, ten[7], weight, shared)
                    _keep(matrices, to[column + 8], at, ten[8], weight, shared)
                    _keep(matrices, to[column + 9], at, ten[9], weight, shared)
                j = topology[j, PARENT]
