"""Mass matrix D and Coriolis matrix C from composite bodies, in world axes: O(n × depth).

Node i's composite is its body and all below it, about node i's own origin; sums shift as they pass
from child to parent. (About one common point, the inertia of a finger would drown in its mass times
the square of its distance: 1e-12 on Valkyrie.) With S_j the screw of degree of freedom j, Ṡ_j its
rate, and sums over the bodies below the deeper of j and k:

    D_jk = S_jᵀ (Σ I) S_k                      [Featherstone2008, composite rigid bodies]
    C_jk = S_jᵀ ((Σ I) Ṡ_k + (Σ B) S_k)        [Echeandia2021]

B = ½[(v×*)I + (Iv)×̄* − I(v×)] has C v exact and Ḋ − 2C skew; for one-DOF joints the entries of C
are those of the Christoffel symbols (paper, eq. coriolisdetails). Written in blocks, with I = [Ī,
h×; −h×, m], momentum n = Īω + h × v and f = m v + ω × h, it is sparse, and about a point r further
up it is as sparse:

    B = [ K    0 ]    K = ½(ω×Ī − Īω× − v×h× − h×v× − n×)         B_up = [ K − r×f×   0 ]
        [ −f×  0 ]                                                       [   −f×      0 ]
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
    turn,
)
from thetahat.kernels.lanes import WIDTH, load, scatter, splat, store
from thetahat.kernels.rnea import MASS, first_moment, inertia_times
from thetahat.kernels.vectors import add3, cross3, dot3, load3, scale3, store3, sub3, zero3

# Columns of the composite scratch (nodes + 1, COMPOSITE_SIZE, 8): mass, h, Ī (xx xy xz yy yz zz),
# B's couple block, f.
C_MASS, C_MOMENT, C_INERTIA, C_BLOCK, C_FORCE = 0, 1, 4, 10, 19
COMPOSITE_SIZE = 22


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
def turned_inertia(theta, column, R):
    """R Ī Rᵀ as (xx xy xz yy yz zz); Ī is symmetric, so a row of R Ī is Ī times that row of R."""
    r0 = inertia_times(theta, column, R[0])
    r1 = inertia_times(theta, column, R[1])
    r2 = inertia_times(theta, column, R[2])
    return (
        dot3(r0, R[0]),
        dot3(r0, R[1]),
        dot3(r0, R[2]),
        dot3(r1, R[1]),
        dot3(r1, R[2]),
        dot3(r2, R[2]),
    )


@inline
def shifted_inertia(inertia, h, m, r):
    """Ī about a point from which the old one is at r: Ī + 2(r·h)1 − r hᵀ − h rᵀ + m(r·r 1 − r rᵀ),
    h about the old one.
    """
    mr = scale3(r, m)
    trace = 2.0 * dot3(r, h) + dot3(r, mr)
    return (
        inertia[0] + trace - 2.0 * r[0] * h[0] - r[0] * mr[0],
        inertia[1] - r[0] * h[1] - h[0] * r[1] - r[0] * mr[1],
        inertia[2] - r[0] * h[2] - h[0] * r[2] - r[0] * mr[2],
        inertia[3] + trace - 2.0 * r[1] * h[1] - r[1] * mr[1],
        inertia[4] - r[1] * h[2] - h[1] * r[2] - r[1] * mr[2],
        inertia[5] + trace - 2.0 * r[2] * h[2] - r[2] * mr[2],
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
        (
            2.0 * c0[0] - vh[0][0] - hv[0][0],
            c1[0] + c0[1] - vh[0][1] - hv[0][1] + n[2],
            c2[0] + c0[2] - vh[0][2] - hv[0][2] - n[1],
        ),
        (
            c0[1] + c1[0] - vh[1][0] - hv[1][0] - n[2],
            2.0 * c1[1] - vh[1][1] - hv[1][1],
            c2[1] + c1[2] - vh[1][2] - hv[1][2] + n[0],
        ),
        (
            c0[2] + c2[0] - vh[2][0] - hv[2][0] + n[1],
            c1[2] + c2[1] - vh[2][1] - hv[2][1] - n[0],
            2.0 * c2[2] - vh[2][2] - hv[2][2],
        ),
    )
    half = splat(0.5)
    return (scale3(rows[0], half), scale3(rows[1], half), scale3(rows[2], half)), f


@inline
def _store_inertia(composite, i, m, h, inertia):
    store(composite, i + 1, C_MASS, m)
    store3(composite, i + 1, C_MOMENT, h)
    store3(composite, i + 1, C_INERTIA, (inertia[0], inertia[1], inertia[2]))
    store3(composite, i + 1, C_INERTIA + 3, (inertia[3], inertia[4], inertia[5]))


@inline
def _store_block(composite, i, block, f):
    store3(composite, i + 1, C_BLOCK, block[0])
    store3(composite, i + 1, C_BLOCK + 3, block[1])
    store3(composite, i + 1, C_BLOCK + 6, block[2])
    store3(composite, i + 1, C_FORCE, f)


@inline
def up_to_parent(topology, nodes, i):
    """Position of node i from its parent's origin."""
    return sub3(load3(nodes, i + 1, POSITION), load3(nodes, topology[i, PARENT] + 1, POSITION))


@inline
def _add_inertia(composite, i, up, r):
    """Node up's composite += node i's, seen from up."""
    m, h = load(composite, i + 1, C_MASS), load3(composite, i + 1, C_MOMENT)
    inertia = load6(composite, i + 1, C_INERTIA)
    moved, there = shifted_inertia(inertia, h, m, r), load6(composite, up + 1, C_INERTIA)
    total = (
        there[0] + moved[0],
        there[1] + moved[1],
        there[2] + moved[2],
        there[3] + moved[3],
        there[4] + moved[4],
        there[5] + moved[5],
    )
    h_up = add3(load3(composite, up + 1, C_MOMENT), add3(h, scale3(r, m)))
    _store_inertia(composite, up, load(composite, up + 1, C_MASS) + m, h_up, total)


@inline
def _add_block(composite, i, up, r):
    """K_up += K − r×f×, f_up += f."""
    f = load3(composite, i + 1, C_FORCE)
    rf = _outer_cross(r, f)
    r0 = add3(load3(composite, up + 1, C_BLOCK), sub3(load3(composite, i + 1, C_BLOCK), rf[0]))
    r1 = add3(
        load3(composite, up + 1, C_BLOCK + 3), sub3(load3(composite, i + 1, C_BLOCK + 3), rf[1])
    )
    r2 = add3(
        load3(composite, up + 1, C_BLOCK + 6), sub3(load3(composite, i + 1, C_BLOCK + 6), rf[2])
    )
    _store_block(composite, up, (r0, r1, r2), add3(load3(composite, up + 1, C_FORCE), f))


@jit
def composites(topology, theta, moving, nodes, composite):
    """Sum each node's body and all below it about the node's origin: mass, h, Ī, and if `moving`
    the blocks of B.
    """
    for i in range(topology.shape[0]):
        column = topology[i, COLUMN]
        for c in range(COMPOSITE_SIZE if moving else C_BLOCK):
            store(composite, i + 1, c, splat(0.0))
        if column >= 0:
            R = load9(nodes, i + 1, ROTATION)
            m, h = splat(theta[column + MASS]), first_moment(theta, column, R)
            inertia = turned_inertia(theta, column, R)
            _store_inertia(composite, i, m, h, inertia)
            if moving:
                w, v = load3(nodes, i + 1, OMEGA), load3(nodes, i + 1, VELOCITY)
                block, f = _couple_block(m, h, inertia, w, v)
                _store_block(composite, i, block, f)
    for i in range(topology.shape[0] - 1, -1, -1):
        up = topology[i, PARENT]
        if up >= 0:
            r = up_to_parent(topology, nodes, i)
            _add_inertia(composite, i, up, r)
            if moving:
                _add_block(composite, i, up, r)


@inline
def _composite_times(composite, i, angular, linear):
    """(Σ I) applied to a screw: couple Ī a + h × l, force m l − h × a."""
    m, h = load(composite, i + 1, C_MASS), load3(composite, i + 1, C_MOMENT)
    inertia = load6(composite, i + 1, C_INERTIA)
    couple = add3(symmetric_times(inertia, angular), cross3(h, linear))
    return couple, sub3(scale3(linear, m), cross3(h, angular))


@inline
def _block_times(composite, i, angular):
    """(Σ B) applied to a screw: couple K a, force a × f."""
    couple = turn(load9(composite, i + 1, C_BLOCK), angular)
    return couple, cross3(angular, load3(composite, i + 1, C_FORCE))


@inline
def _block_transposed_times(composite, i, angular, linear):
    """(Σ B)ᵀ applied to a screw: couple Kᵀ a + f × l, no force."""
    K = load9(composite, i + 1, C_BLOCK)
    turned = add3(
        scale3(K[0], angular[0]), add3(scale3(K[1], angular[1]), scale3(K[2], angular[2]))
    )
    return add3(turned, cross3(load3(composite, i + 1, C_FORCE), linear))


@inline
def _screw(dofs, directions, e):
    """S_e about its node's origin."""
    z, o = load_dof_axis(directions, e), zero3()
    angular, linear = o, z
    if dofs[e, ANGULAR]:
        angular, linear = z, o
    return angular, linear


@inline
def _screw_rate(nodes, i, angular, linear):
    """Ṡ = v × S, v the twist of node i about its origin."""
    w, v = load3(nodes, i + 1, OMEGA), load3(nodes, i + 1, VELOCITY)
    return cross3(w, angular), add3(cross3(w, linear), cross3(v, angular))


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
def mass_matrix(
    topology, geometry, dofs, axes, theta, nv, q, nodes, directions, composite, matrix, out
):
    """Fill out (samples, nv·nv) with D."""
    samples = q.shape[0]
    for first in range(0, samples, WIDTH):
        place(topology, geometry, dofs, axes, q, first, samples - 1, nodes, directions)
        composites(topology, theta, False, nodes, composite)
        _reset(matrix, nv * nv)
        for i in range(topology.shape[0]):
            d = topology[i, FIRST_DOF]
            for e in range(d, d + topology[i, DOF_COUNT]):
                angular, linear = _screw(dofs, directions, e)
                couple, force = _composite_times(composite, i, angular, linear)
                # every pair once: the joint's own directions up to e, then its ancestors'
                j, end = i, e + 1
                while j >= 0:
                    for k in range(topology[j, FIRST_DOF], end):
                        z = load_dof_axis(directions, k)
                        entry = (dot3(z, couple) if dofs[k, ANGULAR] else dot3(z, force)) * (
                            axes[e, 3] * axes[k, 3]
                        )
                        _accumulate(matrix, dofs[k, V_INDEX] * nv + dofs[e, V_INDEX], entry)
                        if k != e:
                            _accumulate(matrix, dofs[e, V_INDEX] * nv + dofs[k, V_INDEX], entry)
                    couple = add3(couple, cross3(up_to_parent(topology, nodes, j), force))
                    j = topology[j, PARENT]
                    end = topology[j, FIRST_DOF] + topology[j, DOF_COUNT]
        _finish(matrix, first, min(WIDTH, samples - first), out)


@jit
def coriolis_matrix(
    topology,
    geometry,
    dofs,
    axes,
    theta,
    nv,
    q,
    dq,
    nodes,
    directions,
    composite,
    matrix,
    gravity,
    out,
):
    """Fill out (samples, nv·nv) with C.

    Column e of the rows above it is S_kᵀ f, f = (Σ I) Ṡ_e + (Σ B) S_e; row e of the columns above
    it is Ṡ_kᵀ g + S_kᵀ b, g = (Σ I) S_e, b = (Σ B)ᵀ S_e, a couple. Wrenches move up the tree,
    screws stay at their own origins.
    """
    samples = q.shape[0]
    for first in range(0, samples, WIDTH):
        place(topology, geometry, dofs, axes, q, first, samples - 1, nodes, directions)
        move(topology, dofs, axes, gravity, dq, dq, first, samples - 1, nodes, directions)
        composites(topology, theta, True, nodes, composite)
        _reset(matrix, nv * nv)
        for i in range(topology.shape[0]):
            d = topology[i, FIRST_DOF]
            for e in range(d, d + topology[i, DOF_COUNT]):
                angular, linear = _screw(dofs, directions, e)
                rate_a, rate_l = _screw_rate(nodes, i, angular, linear)
                f_couple, f_force = _composite_times(composite, i, rate_a, rate_l)
                more_couple, more_force = _block_times(composite, i, angular)
                f_couple, f_force = add3(f_couple, more_couple), add3(f_force, more_force)
                g_couple, g_force = _composite_times(composite, i, angular, linear)
                b_couple = _block_transposed_times(composite, i, angular, linear)
                j = i
                while j >= 0:
                    begin = topology[j, FIRST_DOF]
                    for k in range(begin, begin + topology[j, DOF_COUNT]):
                        s_a, s_l = _screw(dofs, directions, k)
                        ratio = axes[e, 3] * axes[k, 3]
                        row_k, row_e = dofs[k, V_INDEX], dofs[e, V_INDEX]
                        above = dot3(s_a, f_couple) + dot3(s_l, f_force)
                        _accumulate(matrix, row_k * nv + row_e, above * ratio)
                        if j != i:
                            d_a, d_l = _screw_rate(nodes, j, s_a, s_l)
                            left = dot3(d_a, g_couple) + dot3(d_l, g_force) + dot3(s_a, b_couple)
                            _accumulate(matrix, row_e * nv + row_k, left * ratio)
                    r = up_to_parent(topology, nodes, j)
                    f_couple = add3(f_couple, cross3(r, f_force))
                    g_couple = add3(g_couple, cross3(r, g_force))
                    j = topology[j, PARENT]
        _finish(matrix, first, min(WIDTH, samples - first), out)
