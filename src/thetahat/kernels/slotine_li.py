"""The regressor of Slotine and Li: Y(q, q̇, q̇_r, q̈_r)·θ = D(q) q̈_r + C(q, q̇) q̇_r + G(q), with
the C of crba.py (Ḋ − 2C skew).

Body i needs the wrench I a + B v_r, B = ½[(v×*)I + (Iv)×̄* − I(v×)], where v is its twist, v_r that
of q̇_r, and a = Σ S q̈_r + Ṡ q̇_r the spatial acceleration less gravity, all about its origin in
world axes. With a = (α, a_l), β = α − ½ ω × ω_r and â = a_l + ω_r × v it is

    couple  Ī β + ½[ω × Ī ω_r + ω_r × Ī ω] + h × â                force  m â + α × h + ω_r × (ω × h)

linear in the body's ten numbers, and the wrench of rnea.py where q̇_r = q̇. As in regressor.py, u_x
= ω × e_x and w_x = ω_r × e_x:

    Ixx   couple  e_x β_x + ½(u_x ω_rx + w_x ω_x)                                    no force
    Ixy   couple  e_x β_y + e_y β_x + ½(u_x ω_ry + u_y ω_rx + w_x ω_y + w_y ω_x)     no force
    m·cx  couple  e_x × â              force  α × e_x + ω_r × u_x
    m     no couple                    force  â

Adaptive control needs no matrix [Niemeyer1991]: Y·θ̂ is a recursion like Newton and Euler's, and
Yᵀs of a body is its ten wrenches against the twist J_i s.
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
    VELOCITY,
    column3,
    load9,
    load_dof_axis,
    place,
)
from thetahat.kernels.lanes import WIDTH, add_ten, gather, load, scatter, splat, store, store_ten
from thetahat.kernels.regressor import ten_entries, ten_turning
from thetahat.kernels.rnea import (
    COUPLE,
    FORCE,
    IXX,
    IXY,
    IXZ,
    IYY,
    IYZ,
    IZZ,
    MASS,
    MCX,
    MCY,
    MCZ,
    sum_up,
)
from thetahat.kernels.vectors import add3, cross3, dot3, load3, scale3, store3, sub3, zero3

# Columns of one more node scratch (nodes + 1, at least EXTRA_SIZE, 8): ω of q̇_r, and the twist of
# s.
REFERENCE, SLIDING_ANGULAR, SLIDING_LINEAR = 0, 3, 6
EXTRA_SIZE = 9


@jit
def move_with_reference(
    topology, dofs, axes, gravity, dq, dq_r, ddq_r, first, last, nodes, directions, extra
):
    """Fill ω and v (of q̇), ω_r (of q̇_r), and the spatial acceleration a = Σ S q̈_r + Ṡ q̇_r less
    gravity, of every node at its origin.
    """
    for c in (OMEGA, ALPHA, VELOCITY):
        store3(nodes, 0, c, zero3())
    store3(nodes, 0, ACCELERATION, (splat(-gravity[0]), splat(-gravity[1]), splat(-gravity[2])))
    store3(extra, 0, REFERENCE, zero3())
    for i in range(topology.shape[0]):
        up, d = topology[i, PARENT] + 1, topology[i, FIRST_DOF]
        end = d + topology[i, DOF_COUNT]
        r = sub3(load3(nodes, i + 1, POSITION), load3(nodes, up, POSITION))
        w, alpha = load3(nodes, up, OMEGA), load3(nodes, up, ALPHA)
        v = add3(load3(nodes, up, VELOCITY), cross3(w, r))
        a = add3(load3(nodes, up, ACCELERATION), cross3(alpha, r))
        w_r = load3(extra, up, REFERENCE)
        for e in range(d, end):
            z = load_dof_axis(directions, e)
            rate = gather(dq, first, last, dofs[e, V_INDEX]) * axes[e, 3]
            if dofs[e, ANGULAR]:
                w = add3(w, scale3(z, rate))
            else:
                v = add3(v, scale3(z, rate))
        for e in range(d, end):  # Ṡ = v × S needs the node's whole twist
            z = load_dof_axis(directions, e)
            rate = gather(dq_r, first, last, dofs[e, V_INDEX]) * axes[e, 3]
            rate2 = gather(ddq_r, first, last, dofs[e, V_INDEX]) * axes[e, 3]
            turned = add3(scale3(z, rate2), scale3(cross3(w, z), rate))
            if dofs[e, ANGULAR]:
                w_r = add3(w_r, scale3(z, rate))
                alpha = add3(alpha, turned)
                a = add3(a, scale3(cross3(v, z), rate))
            else:
                a = add3(a, turned)
        store3(nodes, i + 1, OMEGA, w)
        store3(nodes, i + 1, VELOCITY, v)
        store3(nodes, i + 1, ALPHA, alpha)
        store3(nodes, i + 1, ACCELERATION, a)
        store3(extra, i + 1, REFERENCE, w_r)


@inline
def _diagonal(e, b, u, w, x, x_r, half):
    """Couple per unit moment of inertia about a body axis."""
    return add3(scale3(e, b), scale3(add3(scale3(u, x_r), scale3(w, x)), half))


@inline
def _mixed(e1, e2, b1, b2, u1, u2, w1, w2, x1, x2, r1, r2, half):
    """Couple per unit product of inertia between two body axes."""
    turning = add3(add3(scale3(u1, r2), scale3(u2, r1)), add3(scale3(w1, x2), scale3(w2, x1)))
    return add3(add3(scale3(e1, b2), scale3(e2, b1)), scale3(turning, half))


@inline
def reference_wrenches(nodes, extra, i):
    """Couples (9) and forces (4) per unit parameter of the body of node i, in the order of
    regressor.body_wrenches.
    """
    R = load9(nodes, i + 1, ROTATION)
    w, v = load3(nodes, i + 1, OMEGA), load3(nodes, i + 1, VELOCITY)
    w_r, alpha = load3(extra, i + 1, REFERENCE), load3(nodes, i + 1, ALPHA)
    a = add3(load3(nodes, i + 1, ACCELERATION), cross3(w_r, v))
    half = splat(0.5)
    beta = sub3(alpha, scale3(cross3(w, w_r), half))
    ex, ey, ez = column3(R, 0), column3(R, 1), column3(R, 2)
    xx, xy, xz = dot3(ex, w), dot3(ey, w), dot3(ez, w)
    rx, ry, rz = dot3(ex, w_r), dot3(ey, w_r), dot3(ez, w_r)
    bx, by, bz = dot3(ex, beta), dot3(ey, beta), dot3(ez, beta)
    ux, uy, uz = cross3(w, ex), cross3(w, ey), cross3(w, ez)
    wx, wy, wz = cross3(w_r, ex), cross3(w_r, ey), cross3(w_r, ez)
    couples = (
        _diagonal(ex, bx, ux, wx, xx, rx, half),
        _mixed(ex, ey, bx, by, ux, uy, wx, wy, xx, xy, rx, ry, half),
        _mixed(ex, ez, bx, bz, ux, uz, wx, wz, xx, xz, rx, rz, half),
        _diagonal(ey, by, uy, wy, xy, ry, half),
        _mixed(ey, ez, by, bz, uy, uz, wy, wz, xy, xz, ry, rz, half),
        _diagonal(ez, bz, uz, wz, xz, rz, half),
        cross3(ex, a),
        cross3(ey, a),
        cross3(ez, a),
    )
    forces = (
        add3(cross3(alpha, ex), cross3(w_r, ux)),
        add3(cross3(alpha, ey), cross3(w_r, uy)),
        add3(cross3(alpha, ez), cross3(w_r, uz)),
        a,
    )
    return couples, forces


@jit
def regressor(
    topology,
    geometry,
    dofs,
    axes,
    gravity,
    q,
    dq,
    dq_r,
    ddq_r,
    columns,
    nodes,
    directions,
    extra,
    out,
):
    """Fill out (samples, nv·columns) with Y, row by row."""
    samples = q.shape[0]
    last = samples - 1
    out[:] = 0.0
    for first in range(0, samples, WIDTH):
        count = min(WIDTH, samples - first)
        place(topology, geometry, dofs, axes, q, first, last, nodes, directions)
        move_with_reference(
            topology, dofs, axes, gravity, dq, dq_r, ddq_r, first, last, nodes, directions, extra
        )
        rows = out[first : first + count]
        for i in range(topology.shape[0]):
            column = topology[i, COLUMN]
            if column < 0:
                continue
            couples, forces = reference_wrenches(nodes, extra, i)
            p_i = load3(nodes, i + 1, POSITION)
            j = i
            while j >= 0:
                r = sub3(p_i, load3(nodes, j + 1, POSITION))
                d = topology[j, FIRST_DOF]
                for e in range(d, d + topology[j, DOF_COUNT]):
                    z = scale3(load_dof_axis(directions, e), splat(axes[e, 3]))
                    ten = ten_entries(dofs[e, ANGULAR], z, r, couples, forces)
                    add_ten(rows, count, dofs[e, V_INDEX] * columns + column, ten)
                j = topology[j, PARENT]


@inline
def _sum_of(theta, column, couples, forces):
    """Wrench of a body: its ten wrenches times its ten numbers."""
    n = scale3(couples[0], splat(theta[column + IXX]))
    n = add3(n, scale3(couples[1], splat(theta[column + IXY])))
    n = add3(n, scale3(couples[2], splat(theta[column + IXZ])))
    n = add3(n, scale3(couples[3], splat(theta[column + IYY])))
    n = add3(n, scale3(couples[4], splat(theta[column + IYZ])))
    n = add3(n, scale3(couples[5], splat(theta[column + IZZ])))
    n = add3(n, scale3(couples[6], splat(theta[column + MCX])))
    n = add3(n, scale3(couples[7], splat(theta[column + MCY])))
    n = add3(n, scale3(couples[8], splat(theta[column + MCZ])))
    x, y = splat(theta[column + MCX]), splat(theta[column + MCY])
    z, m = splat(theta[column + MCZ]), splat(theta[column + MASS])
    f = add3(scale3(forces[0], x), scale3(forces[1], y))
    return n, add3(f, add3(scale3(forces[2], z), scale3(forces[3], m)))


@jit
def _twist_of(topology, dofs, axes, s, first, last, nodes, directions, extra):
    """Fill the twist J_i s of every node at its origin."""
    store3(extra, 0, SLIDING_ANGULAR, zero3())
    store3(extra, 0, SLIDING_LINEAR, zero3())
    for i in range(topology.shape[0]):
        up, d = topology[i, PARENT] + 1, topology[i, FIRST_DOF]
        w = load3(extra, up, SLIDING_ANGULAR)
        r = sub3(load3(nodes, i + 1, POSITION), load3(nodes, up, POSITION))
        v = add3(load3(extra, up, SLIDING_LINEAR), cross3(w, r))
        for e in range(d, d + topology[i, DOF_COUNT]):
            rate = gather(s, first, last, dofs[e, V_INDEX]) * axes[e, 3]
            moved = scale3(load_dof_axis(directions, e), rate)
            if dofs[e, ANGULAR]:
                w = add3(w, moved)
            else:
                v = add3(v, moved)
        store3(extra, i + 1, SLIDING_ANGULAR, w)
        store3(extra, i + 1, SLIDING_LINEAR, v)


@jit
def torque_and_gradient(
    topology,
    geometry,
    dofs,
    axes,
    gravity,
    theta,
    q,
    dq,
    dq_r,
    ddq_r,
    s,
    nodes,
    directions,
    extra,
    forces,
    torques,
    out,
    gradient,
):
    """Fill out (samples, nv) with Y·θ and gradient (samples, 10·bodies) with Yᵀs, in O(bodies)."""
    samples = q.shape[0]
    last = samples - 1
    for first in range(0, samples, WIDTH):
        count = min(WIDTH, samples - first)
        place(topology, geometry, dofs, axes, q, first, last, nodes, directions)
        move_with_reference(
            topology, dofs, axes, gravity, dq, dq_r, ddq_r, first, last, nodes, directions, extra
        )
        _twist_of(topology, dofs, axes, s, first, last, nodes, directions, extra)
        for v in range(out.shape[1]):
            store(torques, v, 0, splat(0.0))
        rows = gradient[first : first + count]
        for i in range(topology.shape[0]):
            column = topology[i, COLUMN]
            couple, force = zero3(), zero3()
            if column >= 0:
                couples, pushes = reference_wrenches(nodes, extra, i)
                couple, force = _sum_of(theta, column, couples, pushes)
                w_s, v_s = load3(extra, i + 1, SLIDING_ANGULAR), load3(extra, i + 1, SLIDING_LINEAR)
                store_ten(rows, count, column, ten_turning(w_s, v_s, couples, pushes))
            store3(forces, i + 1, COUPLE, couple)
            store3(forces, i + 1, FORCE, force)
        sum_up(topology, dofs, axes, nodes, directions, forces, torques)
        for v in range(out.shape[1]):
            scatter(out, first, count, v, load(torques, v, 0))
