"""Mass matrix D and Coriolis matrix C from composite bodies, in world axes about one point O: O(n × depth).

With S_j the screw of degree of freedom j about O, Ṡ_j its rate, and sums over the bodies below the deeper of j and k:

    D_jk = S_jᵀ (Σ I) S_k                      [Featherstone2008, composite rigid bodies]
    C_jk = S_jᵀ ((Σ I) Ṡ_k + (Σ B) S_k)        [Echeandia2021]

B = ½[(v×*)I + (Iv)×̄* − I(v×)] has C v exact and Ḋ − 2C skew; for one-DOF joints the entries of C are those of the
Christoffel symbols (paper, eq. coriolisdetails). Written in blocks, with I = [Ī, h×; −h×, m] about O, momentum
n = Īω + h × v and f = m v + ω × h, it is sparse:

    B = [ ½(ω×Ī − Īω× − v×h× − h×v× − n×)   0 ]
        [             −f×                    0 ]
"""

from __future__ import annotations

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
from thetahat.kernels.lanes import WIDTH, load, scatter, splat, store
from thetahat.kernels.rnea import IXX, IXY, IXZ, IYY, IYZ, IZZ, MASS, first_moment
from thetahat.kernels.vectors import add3, cross3, dot3, load3, scale3, store3, sub3, zero3

# Columns of the composite scratch (nodes + 1, COMPOSITE_SIZE, 8): mass, h, Ī (xx xy xz yy yz zz), B's couple block, f.
C_MASS, C_MOMENT, C_INERTIA, C_BLOCK, C_FORCE = 0, 1, 4, 10, 19
COMPOSITE_SIZE = 22
# Columns of the screw scratch (dofs, SCREW_SIZE, 8): S about O, and Ṡ.
S_ANGULAR, S_LINEAR, RATE_ANGULAR, RATE_LINEAR = 0, 3, 6, 9
SCREW_SIZE = 12


@inline
def symmetric_times(s, a):
    """(xx xy xz yy yz zz)·a."""
    return (
        s[0] * a[0] + s[1] * a[1] + s[2] * a[2],
        s[1] * a[0] + s[3] * a[1] + s[4] * a[2],
        s[2] * a[0] + s[4] * a[1] + s[5] * a[2],
    )


@inline
def load6(array, row, column):
    """Six neighbouring lanes values."""
    a, b = load3(array, row, column), load3(array, row, column + 3)
    return (a[0], a[1], a[2], b[0], b[1], b[2])


@inline
def from_reference(nodes, i):
    """Position of node i from O, the first node's origin."""
    return sub3(load3(nodes, i + 1, POSITION), load3(nodes, 1, POSITION))


@inline
def inertia_about_reference(theta, column, nodes, i):
    """(h, Ī) of body i about O in world axes: Ī_O = R Ī Rᵀ + 2(p·h)1 − p hᵀ − h pᵀ + m(p·p 1 − p pᵀ), h about its own origin."""
    R = load9(nodes, i + 1, ROTATION)
    m = splat(theta[column + MASS])
    h = first_moment(theta, column, R)
    p = from_reference(nodes, i)
    # Rows of R Ī.
    t = theta
    k = column
    r0 = _row_times_inertia(t, k, R[0])
    r1 = _row_times_inertia(t, k, R[1])
    r2 = _row_times_inertia(t, k, R[2])
    mp = scale3(p, m)
    trace = 2.0 * dot3(p, h) + dot3(p, mp)
    inertia = (
        dot3(r0, R[0]) + trace - 2.0 * p[0] * h[0] - p[0] * mp[0],
        dot3(r0, R[1]) - p[0] * h[1] - h[0] * p[1] - p[0] * mp[1],
        dot3(r0, R[2]) - p[0] * h[2] - h[0] * p[2] - p[0] * mp[2],
        dot3(r1, R[1]) + trace - 2.0 * p[1] * h[1] - p[1] * mp[1],
        dot3(r1, R[2]) - p[1] * h[2] - h[1] * p[2] - p[1] * mp[2],
        dot3(r2, R[2]) + trace - 2.0 * p[2] * h[2] - p[2] * mp[2],
    )
    return add3(h, mp), inertia


@inline
def _row_times_inertia(theta, k, row):
    """row·Ī, Ī symmetric."""
    return (
        row[0] * theta[k + IXX] + row[1] * theta[k + IXY] + row[2] * theta[k + IXZ],
        row[0] * theta[k + IXY] + row[1] * theta[k + IYY] + row[2] * theta[k + IYZ],
        row[0] * theta[k + IXZ] + row[1] * theta[k + IYZ] + row[2] * theta[k + IZZ],
    )


@inline
def _outer_cross(a, b):
    """Rows of (a×)(b×) = b aᵀ − (a·b) 1."""
    d = dot3(a, b)
    return (
        (b[0] * a[0] - d, b[0] * a[1], b[0] * a[2]),
        (b[1] * a[0], b[1] * a[1] - d, b[1] * a[2]),
        (b[2] * a[0], b[2] * a[1], b[2] * a[2] - d),
    )


@inline
def _couple_block(m, h, inertia, w, v):
    """½(ω×Ī − Īω× − v×h× − h×v× − n×), rows, and f."""
    n = add3(symmetric_times(inertia, w), cross3(h, v))
    f = add3(scale3(v, m), cross3(w, h))
    # ω×Ī column by column is ω × (column of Ī); Īω× = −(ω×Ī)ᵀ.
    c0 = cross3(w, (inertia[0], inertia[1], inertia[2]))
    c1 = cross3(w, (inertia[1], inertia[3], inertia[4]))
    c2 = cross3(w, (inertia[2], inertia[4], inertia[5]))
    vh, hv = _outer_cross(v, h), _outer_cross(h, v)
    rows = (
        (2.0 * c0[0] - vh[0][0] - hv[0][0], c1[0] + c0[1] - vh[0][1] - hv[0][1] + n[2], c2[0] + c0[2] - vh[0][2] - hv[0][2] - n[1]),
        (c0[1] + c1[0] - vh[1][0] - hv[1][0] - n[2], 2.0 * c1[1] - vh[1][1] - hv[1][1], c2[1] + c1[2] - vh[1][2] - hv[1][2] + n[0]),
        (c0[2] + c2[0] - vh[2][0] - hv[2][0] + n[1], c1[2] + c2[1] - vh[2][1] - hv[2][1] - n[0], 2.0 * c2[2] - vh[2][2] - hv[2][2]),
    )
    half = splat(0.5)
    return (scale3(rows[0], half), scale3(rows[1], half), scale3(rows[2], half)), f


@inline
def linear_about_reference(nodes, i):
    """Velocity of node i's body at the point that passes O."""
    return sub3(load3(nodes, i + 1, VELOCITY), cross3(load3(nodes, i + 1, OMEGA), from_reference(nodes, i)))


@jit
def composites(topology, theta, moving, nodes, composite):
    """Sum each node's body and all below it: mass, h, Ī, and if `moving` the blocks of B."""
    size = COMPOSITE_SIZE if moving else C_BLOCK
    for i in range(topology.shape[0]):
        column = topology[i, COLUMN]
        for c in range(size):
            store(composite, i + 1, c, splat(0.0))
        if column < 0:
            continue
        h, inertia = inertia_about_reference(theta, column, nodes, i)
        m = splat(theta[column + MASS])
        store(composite, i + 1, C_MASS, m)
        store3(composite, i + 1, C_MOMENT, h)
        store3(composite, i + 1, C_INERTIA, (inertia[0], inertia[1], inertia[2]))
        store3(composite, i + 1, C_INERTIA + 3, (inertia[3], inertia[4], inertia[5]))
        if moving:
            block, f = _couple_block(m, h, inertia, load3(nodes, i + 1, OMEGA), linear_about_reference(nodes, i))
            store3(composite, i + 1, C_BLOCK, block[0])
            store3(composite, i + 1, C_BLOCK + 3, block[1])
            store3(composite, i + 1, C_BLOCK + 6, block[2])
            store3(composite, i + 1, C_FORCE, f)
    for i in range(topology.shape[0] - 1, -1, -1):
        up = topology[i, PARENT] + 1
        if up > 0:
            for c in range(size):
                store(composite, up, c, load(composite, up, c) + load(composite, i + 1, c))


@jit
def screws(topology, dofs, moving, nodes, directions, table):
    """Fill S about O of every degree of freedom, and Ṡ = v × S if `moving`."""
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
            if moving:
                w = load3(nodes, i + 1, OMEGA)
                store3(table, e, RATE_ANGULAR, cross3(w, angular))
                store3(table, e, RATE_LINEAR, add3(cross3(w, linear), cross3(linear_about_reference(nodes, i), angular)))


@inline
def _composite_times(composite, i, angular, linear):
    """(Σ I) applied to a screw: couple Ī a + h × l, force m l − h × a."""
    m, h, inertia = load(composite, i + 1, C_MASS), load3(composite, i + 1, C_MOMENT), load6(composite, i + 1, C_INERTIA)
    return add3(symmetric_times(inertia, angular), cross3(h, linear)), sub3(scale3(linear, m), cross3(h, angular))


@inline
def _block_times(composite, i, angular):
    """(Σ B) applied to a screw: couple by the block, force a × f."""
    r0, r1, r2 = load3(composite, i + 1, C_BLOCK), load3(composite, i + 1, C_BLOCK + 3), load3(composite, i + 1, C_BLOCK + 6)
    return (dot3(r0, angular), dot3(r1, angular), dot3(r2, angular)), cross3(angular, load3(composite, i + 1, C_FORCE))


@inline
def _against(table, e, couple, force):
    """S_eᵀ [couple; force]."""
    return dot3(load3(table, e, S_ANGULAR), couple) + dot3(load3(table, e, S_LINEAR), force)


@inline
def _accumulate(matrix, at, value):
    store(matrix, at, 0, load(matrix, at, 0) + value)


@inline
def _finish(matrix, first, count, out):
    for k in range(out.shape[1]):
        scatter(out, first, count, k, load(matrix, k, 0))


@inline
def _reset(matrix, size):
    for k in range(size):
        store(matrix, k, 0, splat(0.0))


@jit
def mass_matrix(topology, geometry, dofs, axes, theta, nv, q, nodes, directions, composite, table, matrix, out):
    """Fill out (samples, nv·nv) with D."""
    samples = q.shape[0]
    for first in range(0, samples, WIDTH):
        place(topology, geometry, dofs, axes, q, first, samples - 1, nodes, directions)
        composites(topology, theta, False, nodes, composite)
        screws(topology, dofs, False, nodes, directions, table)
        _reset(matrix, nv * nv)
        for i in range(topology.shape[0]):
            d = topology[i, FIRST_DOF]
            for e in range(d, d + topology[i, DOF_COUNT]):
                couple, force = _composite_times(composite, i, load3(table, e, S_ANGULAR), load3(table, e, S_LINEAR))
                j, end = i, e + 1  # every pair once: the joint's own directions up to e, then its ancestors'
                while j >= 0:
                    for k in range(topology[j, FIRST_DOF], end):
                        entry = _against(table, k, couple, force) * (axes[e, 3] * axes[k, 3])
                        _accumulate(matrix, dofs[k, V_INDEX] * nv + dofs[e, V_INDEX], entry)
                        if k != e:
                            _accumulate(matrix, dofs[e, V_INDEX] * nv + dofs[k, V_INDEX], entry)
                    j = topology[j, PARENT]
                    end = topology[j, FIRST_DOF] + topology[j, DOF_COUNT]
        _finish(matrix, first, min(WIDTH, samples - first), out)


@jit
def coriolis_matrix(topology, geometry, dofs, axes, theta, nv, q, dq, nodes, directions, composite, table, matrix, gravity, out):
    """Fill out (samples, nv·nv) with C."""
    samples = q.shape[0]
    for first in range(0, samples, WIDTH):
        place(topology, geometry, dofs, axes, q, first, samples - 1, nodes, directions)
        move(topology, dofs, axes, gravity, dq, dq, first, samples - 1, nodes, directions)
        composites(topology, theta, True, nodes, composite)
        screws(topology, dofs, True, nodes, directions, table)
        _reset(matrix, nv * nv)
        for i in range(topology.shape[0]):
            d = topology[i, FIRST_DOF]
            for e in range(d, d + topology[i, DOF_COUNT]):
                j = i
                while j >= 0:
                    for k in range(topology[j, FIRST_DOF], topology[j, FIRST_DOF] + topology[j, DOF_COUNT]):
                        ratio = axes[e, 3] * axes[k, 3]
                        row_k, row_e = dofs[k, V_INDEX], dofs[e, V_INDEX]
                        _accumulate(matrix, row_k * nv + row_e, _coriolis_entry(composite, table, i, k, e) * ratio)
                        if j != i:
                            _accumulate(matrix, row_e * nv + row_k, _coriolis_entry(composite, table, i, e, k) * ratio)
                    j = topology[j, PARENT]
        _finish(matrix, first, min(WIDTH, samples - first), out)


@inline
def _coriolis_entry(composite, table, i, row, column):
    """S_rowᵀ ((Σ I) Ṡ_column + (Σ B) S_column), sums over node i and below."""
    couple, force = _composite_times(composite, i, load3(table, column, RATE_ANGULAR), load3(table, column, RATE_LINEAR))
    couple_b, force_b = _block_times(composite, i, load3(table, column, S_ANGULAR))
    return _against(table, row, add3(couple, couple_b), add3(force, force_b))
