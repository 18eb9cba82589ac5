"""Forward dynamics by the articulated-body algorithm, in world axes about one point O: O(bodies)
per sample.

A joint's directions are eliminated one after the other, as if each were a joint of its own with a
massless body between, which needs no matrix inverse [Featherstone2008, §7.3]:

    U = I_A S,   δ = Sᵀ U + armature,   μ = τ − Sᵀ p_A
    I_A ← I_A − U Uᵀ/δ,   p_A ← p_A + U μ/δ
    then for the whole joint   p_A ← p_A + I_A c,   c = Ṡ q̇
    back down:  a = a_p + c,   q̈ = (μ − Uᵀ a)/δ,   a ← a + S q̈

A δ that is nothing but rounding belongs to a singular mass matrix. Its size is judged against that
of the terms it is the difference of, (tr Ī) |S_ω|² + (tr m) |S_v|² + armature of the joint's body
before anything of this joint was eliminated.
"""

from __future__ import annotations

from thetahat.kernels.crba import shifted_inertia, symmetric_times, turned_inertia
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
    V_INDEX,
    VELOCITY,
    load9,
    load_dof_axis,
    move,
    place,
)
from thetahat.kernels.lanes import WIDTH, gather, load, scatter, smaller, splat, store
from thetahat.kernels.rnea import MASS, applied, first_moment
from thetahat.kernels.vectors import add3, cross3, dot3, load3, scale3, store3, sub3, zero3

# Columns of the articulated scratch (nodes + 1, ARTICULATED_SIZE, 8): the 6×6 matrix row by row in
# 36 (both triangles: one code for every entry), then p_A, then c, then the spatial acceleration.
A_MATRIX, A_BIAS, A_RATE, A_ACCELERATION = 0, 36, 42, 48
ARTICULATED_SIZE = 54
PIVOT = 0  # in row 0, the world's: the smallest δ so far, as a fraction of its terms
# Columns of the screw scratch (dofs, SCREW_SIZE, 8): S about O.
S_ANGULAR, S_LINEAR = 0, 3
SCREW_SIZE = 6
# Columns of the elimination scratch (dofs, ELIMINATION_SIZE, 8): U, 1/δ, μ.
E_U, E_INVERSE, E_MU = 0, 6, 7
ELIMINATION_SIZE = 8


@inline
def from_reference(nodes, i):
    """Position of node i from O, the first node's origin."""
    return sub3(load3(nodes, i + 1, POSITION), load3(nodes, 1, POSITION))


@inline
def linear_about_reference(nodes, i):
    """Velocity of node i's body at the point that passes O."""
    return sub3(
        load3(nodes, i + 1, VELOCITY), cross3(load3(nodes, i + 1, OMEGA), from_reference(nodes, i))
    )


@inline
def inertia_about_reference(theta, column, nodes, i):
    """(h, Ī) of body i about O in world axes."""
    R, p, m = load9(nodes, i + 1, ROTATION), from_reference(nodes, i), splat(theta[column + MASS])
    h = first_moment(theta, column, R)
    return add3(h, scale3(p, m)), shifted_inertia(turned_inertia(theta, column, R), h, m, p)


@inline
def screws(topology, dofs, nodes, directions, table):
    """Fill S about O of every degree of freedom."""
    for i in range(topology.shape[0]):
        p = from_reference(nodes, i)
        d = topology[i, FIRST_DOF]
        for e in range(d, d + topology[i, DOF_COUNT]):
            z = load_dof_axis(directions, e)
            angular, linear = zero3(), z
            if dofs[e, ANGULAR]:
                angular, linear = z, cross3(p, z)
            store3(table, e, S_ANGULAR, angular)
            store3(table, e, S_LINEAR, linear)


@inline
def _store_inertia(articulated, i, m, h, inertia):
    """The 6×6 spatial inertia [Ī, h×; −h×, m 1]."""
    o = splat(0.0)
    rows = (
        (inertia[0], inertia[1], inertia[2], o, -h[2], h[1]),
        (inertia[1], inertia[3], inertia[4], h[2], o, -h[0]),
        (inertia[2], inertia[4], inertia[5], -h[1], h[0], o),
        (o, h[2], -h[1], m, o, o),
        (-h[2], o, h[0], o, m, o),
        (h[1], -h[0], o, o, o, m),
    )
    for r in range(6):
        row = rows[r]
        for c in range(6):
            store(articulated, i + 1, A_MATRIX + 6 * r + c, row[c])


@inline
def _row_times(articulated, i, r, a, b):
    """Row r of I_A against a screw (a, b)."""
    at = A_MATRIX + 6 * r
    return dot3(load3(articulated, i + 1, at), a) + dot3(load3(articulated, i + 1, at + 3), b)


@inline
def _matrix_times(articulated, i, a, b):
    """I_A (a, b) as two three-vectors."""
    return (
        (
            _row_times(articulated, i, 0, a, b),
            _row_times(articulated, i, 1, a, b),
            _row_times(articulated, i, 2, a, b),
        ),
        (
            _row_times(articulated, i, 3, a, b),
            _row_times(articulated, i, 4, a, b),
            _row_times(articulated, i, 5, a, b),
        ),
    )


@inline
def _prepare(topology, dofs, axes, theta, dq, wrenches, first, last, nodes, table, articulated):
    """I_A = I, p_A = v ×* I v − external wrench, c = v × Σ S q̇ of every node."""
    for i in range(topology.shape[0]):
        column = topology[i, COLUMN]
        w, v = load3(nodes, i + 1, OMEGA), linear_about_reference(nodes, i)
        m, h, o = splat(0.0), zero3(), splat(0.0)
        inertia = (o, o, o, o, o, o)
        bias_n, bias_f = zero3(), zero3()
        if column >= 0:
            h, inertia = inertia_about_reference(theta, column, nodes, i)
            m = splat(theta[column + MASS])
            n, f = add3(symmetric_times(inertia, w), cross3(h, v)), add3(scale3(v, m), cross3(w, h))
            bias_n, bias_f = add3(cross3(w, n), cross3(v, f)), cross3(w, f)
            if wrenches.shape[1] > 0:
                n_x, f_x = applied(
                    wrenches, first, last, 6 * (column // 10), load9(nodes, i + 1, ROTATION)
                )
                bias_n = sub3(bias_n, add3(n_x, cross3(from_reference(nodes, i), f_x)))
                bias_f = sub3(bias_f, f_x)
        _store_inertia(articulated, i, m, h, inertia)
        store3(articulated, i + 1, A_BIAS, bias_n)
        store3(articulated, i + 1, A_BIAS + 3, bias_f)
        a, b = zero3(), zero3()
        d = topology[i, FIRST_DOF]
        for e in range(d, d + topology[i, DOF_COUNT]):
            rate = gather(dq, first, last, dofs[e, V_INDEX]) * axes[e, 3]
            a = add3(a, scale3(load3(table, e, S_ANGULAR), rate))
            b = add3(b, scale3(load3(table, e, S_LINEAR), rate))
        store3(articulated, i + 1, A_RATE, cross3(w, a))
        store3(articulated, i + 1, A_RATE + 3, add3(cross3(w, b), cross3(v, a)))


@inline
def _traces(articulated, i):
    """Traces of the angular and of the linear block of I_A."""
    row = i + 1
    angular, linear = splat(0.0), splat(0.0)
    for k in range(3):
        angular = angular + load(articulated, row, A_MATRIX + 7 * k)
        linear = linear + load(articulated, row, A_MATRIX + 21 + 7 * k)
    return angular, linear


@inline
def _eliminate(e, i, mu, armature, size, table, articulated, elimination):
    """Take direction e out of node i's articulated body."""
    s_a, s_l = load3(table, e, S_ANGULAR), load3(table, e, S_LINEAR)
    u_n, u_f = _matrix_times(articulated, i, s_a, s_l)
    delta = dot3(s_a, u_n) + dot3(s_l, u_f) + armature
    terms = size[0] * dot3(s_a, s_a) + size[1] * dot3(s_l, s_l) + armature
    store(
        articulated, 0, PIVOT, smaller(delta / -smaller(terms, -terms), load(articulated, 0, PIVOT))
    )  # δ over |terms|
    inverse = 1.0 / delta
    store3(elimination, e, E_U, u_n)
    store3(elimination, e, E_U + 3, u_f)
    store(elimination, e, E_INVERSE, inverse)
    mu = (
        mu
        - dot3(s_a, load3(articulated, i + 1, A_BIAS))
        - dot3(s_l, load3(articulated, i + 1, A_BIAS + 3))
    )
    store(elimination, e, E_MU, mu)
    for r in range(6):
        u = load(elimination, e, E_U + r)
        u_d = u * inverse
        at = A_MATRIX + 6 * r
        store3(articulated, i + 1, at, sub3(load3(articulated, i + 1, at), scale3(u_n, u_d)))
        store3(
            articulated, i + 1, at + 3, sub3(load3(articulated, i + 1, at + 3), scale3(u_f, u_d))
        )
        store(articulated, i + 1, A_BIAS + r, load(articulated, i + 1, A_BIAS + r) + u_d * mu)


@jit
def forward_dynamics(
    topology,
    geometry,
    dofs,
    axes,
    gravity,
    theta,
    armature,
    q,
    dq,
    tau,
    wrenches,
    nodes,
    directions,
    table,
    articulated,
    elimination,
    out,
    pivots,
):
    """Fill out (samples, nv) with q̈ and pivots (samples, 1) with the smallest relative δ, or NaN.
    For trees without mimic joints.
    """
    samples = q.shape[0]
    last = samples - 1
    for first in range(0, samples, WIDTH):
        count = min(WIDTH, samples - first)
        place(topology, geometry, dofs, axes, q, first, last, nodes, directions)
        move(topology, dofs, axes, gravity, dq, dq, first, last, nodes, directions)
        screws(topology, dofs, nodes, directions, table)
        _prepare(topology, dofs, axes, theta, dq, wrenches, first, last, nodes, table, articulated)
        store(articulated, 0, PIVOT, splat(1.0))
        for i in range(topology.shape[0] - 1, -1, -1):
            d, up = topology[i, FIRST_DOF], topology[i, PARENT] + 1
            size = _traces(articulated, i)
            for e in range(d, d + topology[i, DOF_COUNT]):
                mu = gather(tau, first, last, dofs[e, V_INDEX])
                _eliminate(
                    e, i, mu, armature[dofs[e, V_INDEX]], size, table, articulated, elimination
                )
            if up > 0:
                c_a, c_l = load3(articulated, i + 1, A_RATE), load3(articulated, i + 1, A_RATE + 3)
                for r in range(6):
                    more = _row_times(articulated, i, r, c_a, c_l)
                    bias = load(articulated, i + 1, A_BIAS + r) + more
                    store(articulated, up, A_BIAS + r, load(articulated, up, A_BIAS + r) + bias)
                for c in range(36):
                    total = load(articulated, up, c) + load(articulated, i + 1, c)
                    store(articulated, up, c, total)
        store3(articulated, 0, A_ACCELERATION, zero3())
        upward = (splat(-gravity[0]), splat(-gravity[1]), splat(-gravity[2]))
        store3(articulated, 0, A_ACCELERATION + 3, upward)
        for i in range(topology.shape[0]):
            d, up = topology[i, FIRST_DOF], topology[i, PARENT] + 1
            a = add3(load3(articulated, up, A_ACCELERATION), load3(articulated, i + 1, A_RATE))
            b = add3(
                load3(articulated, up, A_ACCELERATION + 3), load3(articulated, i + 1, A_RATE + 3)
            )
            for e in range(d + topology[i, DOF_COUNT] - 1, d - 1, -1):
                u_n, u_f = load3(elimination, e, E_U), load3(elimination, e, E_U + 3)
                along = dot3(u_n, a) + dot3(u_f, b)
                ddq = (load(elimination, e, E_MU) - along) * load(elimination, e, E_INVERSE)
                a = add3(a, scale3(load3(table, e, S_ANGULAR), ddq))
                b = add3(b, scale3(load3(table, e, S_LINEAR), ddq))
                scatter(out, first, count, dofs[e, V_INDEX], ddq)
                store(articulated, 0, PIVOT, load(articulated, 0, PIVOT) + 0.0 * ddq)
            store3(articulated, i + 1, A_ACCELERATION, a)
            store3(articulated, i + 1, A_ACCELERATION + 3, b)
        scatter(pivots, first, count, 0, load(articulated, 0, PIVOT))
