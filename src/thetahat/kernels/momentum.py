"""Regressors without accelerations: generalized momentum, and its rate of change beside the torque.

    p = M(q) q̇ = Y_p·θ              ṗ = τ + Cᵀq̇ − G,    G − Cᵀq̇ = Y_r·θ

With h_i the momentum of body i about its origin (couple n, force f per unit parameter), S_j the
screw of degree of freedom j and Ṡ_j = V_j × S_j its rate, as it moves with node j:

    row j of Y_p   z·n + (z × r)·f                 or z·f where j slides, r = p_i − p_j
    row j of Cᵀq̇   ż·n + (ż × r − z × v_j)·f        or ż·f,                ż = ω_j × z

So τ = ṗ + Y_r·θ, and integrals of τ over time need q and q̇ alone.
"""

from __future__ import annotations

from thetahat.kernels.fold import keep_ten
from thetahat.kernels.jit import inline, jit
from thetahat.kernels.kinematics import (
    ANGULAR,
    COLUMN,
    DOF_COUNT,
    FIRST_DOF,
    OMEGA,
    PARENT,
    POSITION,
    ROTATION,
    SHARED,
    VELOCITY,
    column3,
    load9,
    load_dof_axis,
    move,
    place,
)
from thetahat.kernels.lanes import WIDTH, splat
from thetahat.kernels.regressor import ten_entries, ten_sliding, ten_turning
from thetahat.kernels.vectors import add3, cross3, dot3, load3, scale3, sub3


@inline
def _body_momenta(R, w, v):
    """Couples (9) and forces (4) of a body's momentum about its origin, per unit parameter, in the
    order of `body_wrenches`.
    """
    ex, ey, ez = column3(R, 0), column3(R, 1), column3(R, 2)
    wx, wy, wz = dot3(ex, w), dot3(ey, w), dot3(ez, w)
    couples = (
        scale3(ex, wx),
        add3(scale3(ex, wy), scale3(ey, wx)),
        add3(scale3(ex, wz), scale3(ez, wx)),
        scale3(ey, wy),
        add3(scale3(ey, wz), scale3(ez, wy)),
        scale3(ez, wz),
        cross3(ex, v),
        cross3(ey, v),
        cross3(ez, v),
    )
    return couples, (cross3(w, ex), cross3(w, ey), cross3(w, ez), v)


@inline
def _rate_turning(z, arm, R, lift, ten):
    """Gravity's entries less those of Cᵀq̇; lift: −g."""
    return (
        -ten[0],
        -ten[1],
        -ten[2],
        dot3(z, cross3(column3(R, 2), lift)) - ten[3],
        dot3(z, cross3(column3(R, 1), lift)) - ten[4],
        -ten[5],
        -ten[6],
        dot3(z, cross3(column3(R, 0), lift)) - ten[7],
        -ten[8],
        dot3(arm, lift) - ten[9],
    )


@inline
def _rate_sliding(z, lift, ten):
    """The same of a degree of freedom that slides."""
    return (
        -ten[0],
        -ten[1],
        -ten[2],
        -ten[3],
        -ten[4],
        -ten[5],
        -ten[6],
        -ten[7],
        -ten[8],
        dot3(z, lift) - ten[9],
    )


@inline
def _rate_entries(angular, z, r, w_j, v_j, R, lift, couples, forces):
    """The ten entries of Y_r: G − Cᵀq̇ of one degree of freedom and one body."""
    dz = cross3(w_j, z)
    if angular:
        arm = sub3(cross3(dz, r), cross3(z, v_j))
        return _rate_turning(z, cross3(z, r), R, lift, ten_turning(dz, arm, couples, forces))
    return _rate_sliding(z, lift, ten_sliding(dz, forces))


@jit
def momentum_columns(
    topology,
    geometry,
    dofs,
    axes,
    gravity,
    q,
    dq,
    places,
    nodes,
    directions,
    momenta,
    rates,
    start,
):
    """Fill row places[dof, column] of `momenta` with Y_p, of `rates` with Y_r, at start + sample.

    places: (dofs, 10·bodies) rows, −1 where the column is not kept. Columns that several joints
    share must be zero before.
    """
    samples = q.shape[0]
    last = samples - 1
    lift = (splat(-gravity[0]), splat(-gravity[1]), splat(-gravity[2]))
    for first in range(0, samples, WIDTH):
        place(topology, geometry, dofs, axes, q, first, last, nodes, directions)
        # accelerations are not used, so any array does in their place
        move(topology, dofs, axes, gravity, dq, dq, first, last, nodes, directions)
        at = start + first
        for i in range(topology.shape[0]):
            column = topology[i, COLUMN]
            if column < 0:
                continue
            R = load9(nodes, i + 1, ROTATION)
            couples, forces = _body_momenta(
                R, load3(nodes, i + 1, OMEGA), load3(nodes, i + 1, VELOCITY)
            )
            p_i = load3(nodes, i + 1, POSITION)
            j = i
            while j >= 0:
                r = sub3(p_i, load3(nodes, j + 1, POSITION))
                w_j, v_j = load3(nodes, j + 1, OMEGA), load3(nodes, j + 1, VELOCITY)
                d = topology[j, FIRST_DOF]
                for e in range(d, d + topology[j, DOF_COUNT]):
                    z = load_dof_axis(directions, e)
                    to, shared = places[e], dofs[e, SHARED] != 0
                    weight, angular = splat(axes[e, 3]), dofs[e, ANGULAR]
                    ten = ten_entries(angular, z, r, couples, forces)
                    keep_ten(momenta, to, column, at, ten, weight, shared)
                    ten = _rate_entries(angular, z, r, w_j, v_j, R, lift, couples, forces)
                    keep_ten(rates, to, column, at, ten, weight, shared)
                j = topology[j, PARENT]


@jit
def weigh_windows(momenta, rates, of_momenta, of_rates, stride, out):
    """out[row, n] = Σ_i of_momenta[i]·momenta[row, n·stride + i] + of_rates[i]·rates[row, …]."""
    length = of_rates.shape[0]
    for row in range(out.shape[0]):
        for n in range(out.shape[1]):
            at = n * stride
            even, odd = 0.0, 0.0
            for i in range(length):
                even += of_momenta[i] * momenta[row, at + i]
                odd += of_rates[i] * rates[row, at + i]
            out[row, n] = even + odd
