"""Forward kinematics: pose, velocity and acceleration of every node, for a tile of eight samples.

Everything is in world axes, so vectors pass from parent to child without being turned. Row 0 of the
node scratch is the world, row i + 1 is node i.

    placement     R_i = R_p R_tree R_J(q)          p_i = p_p + R_p (t_tree + R_tree t_J(q))
    velocity      ω_i = ω_p + Σ z q̇                v_i = v_p + ω_p × r + Σ z q̇
    acceleration  α_i = α_p + Σ z q̈ + ω_i × Σ z q̇
                  a_i = a_p + α_p × r + ω_p × (ω_p × r) + 2 ω_p × d + (ω_i − ω_p) × d + Σ z q̈

with r = p_i − p_p, d = Σ z q̇ over the linear directions, and sums over the joint's angular or
linear directions z, which stand still in node i's frame.
"""

from __future__ import annotations

from thetahat.kernels.jit import inline, jit
from thetahat.kernels.lanes import gather, splat
from thetahat.kernels.vectors import (
    add3,
    cross3,
    dot3,
    gather3,
    load3,
    scale3,
    sincos,
    store3,
    sub3,
    zero3,
)

# Columns of the node scratch (nodes + 1, NODE_SIZE, 8).
ROTATION, POSITION, OMEGA, ALPHA, ACCELERATION, VELOCITY = 0, 9, 12, 15, 18, 21
NODE_SIZE = 24
# Columns of the degree-of-freedom scratch (dofs, DOF_SIZE, 8).
AXIS = 0
DOF_SIZE = 3

# The joint kinds and the array columns of model/tree.py, which kernels may not import.
REVOLUTE, PRISMATIC, PLANAR, BALL, FREE = 0, 1, 2, 3, 4
PARENT, KIND, Q_INDEX, FIRST_DOF, DOF_COUNT, COLUMN, LAST_DESCENDANT = 0, 1, 2, 3, 4, 5, 6
DOF_NODE, V_INDEX, ANGULAR, SHARED, FIRST_COLUMN, END_COLUMN, COMPACT = 0, 1, 2, 3, 4, 5, 6
_A, _B, _C, _T, _RATIO, _OFFSET = 0, 9, 18, 27, 30, 31


@inline
def load9(array, row, column):
    """A rotation, row by row."""
    return (load3(array, row, column), load3(array, row, column + 3), load3(array, row, column + 6))


@inline
def store9(array, row, column, m):
    """Write a rotation, row by row."""
    store3(array, row, column, m[0])
    store3(array, row, column + 3, m[1])
    store3(array, row, column + 6, m[2])


@inline
def turn(m, a):
    """m·a."""
    return (dot3(m[0], a), dot3(m[1], a), dot3(m[2], a))


@inline
def turn_constant(m, x, y, z):
    """m·(x, y, z) with plain numbers."""
    return (
        m[0][0] * x + m[0][1] * y + m[0][2] * z,
        m[1][0] * x + m[1][1] * y + m[1][2] * z,
        m[2][0] * x + m[2][1] * y + m[2][2] * z,
    )


@inline
def column3(m, k):
    """Column k of a matrix of three rows."""
    return (m[0][k], m[1][k], m[2][k])


@inline
def _times(a, b):
    """a·b of matrices of three rows."""
    b0 = (b[0][0], b[1][0], b[2][0])
    b1 = (b[0][1], b[1][1], b[2][1])
    b2 = (b[0][2], b[1][2], b[2][2])
    return (
        (dot3(a[0], b0), dot3(a[0], b1), dot3(a[0], b2)),
        (dot3(a[1], b0), dot3(a[1], b1), dot3(a[1], b2)),
        (dot3(a[2], b0), dot3(a[2], b1), dot3(a[2], b2)),
    )


@inline
def _rodrigues(g, c, s):
    """A + B cos q + C sin q."""
    return (
        (g[0] + g[9] * c + g[18] * s, g[1] + g[10] * c + g[19] * s, g[2] + g[11] * c + g[20] * s),
        (g[3] + g[12] * c + g[21] * s, g[4] + g[13] * c + g[22] * s, g[5] + g[14] * c + g[23] * s),
        (g[6] + g[15] * c + g[24] * s, g[7] + g[16] * c + g[25] * s, g[8] + g[17] * c + g[26] * s),
    )


@inline
def _constant_rotation(g):
    """A, the same in every lane."""
    return (
        (splat(g[0]), splat(g[1]), splat(g[2])),
        (splat(g[3]), splat(g[4]), splat(g[5])),
        (splat(g[6]), splat(g[7]), splat(g[8])),
    )


@inline
def _from_quaternion(x, y, z, w):
    """Rotation of a quaternion of any length but zero."""
    s = 2.0 / (x * x + y * y + z * z + w * w)
    xs, ys, zs = x * s, y * s, z * s
    return (
        (1.0 - (y * ys + z * zs), x * ys - w * zs, x * zs + w * ys),
        (x * ys + w * zs, 1.0 - (x * xs + z * zs), y * zs - w * xs),
        (x * zs - w * ys, y * zs + w * xs, 1.0 - (x * xs + y * ys)),
    )


@jit
def place(topology, geometry, dofs, axes, q, first, last, nodes, directions):
    """Fill rotation and position of every node and the world axis of every degree of freedom."""
    zero, one = splat(0.0), splat(1.0)
    store9(nodes, 0, ROTATION, ((one, zero, zero), (zero, one, zero), (zero, zero, one)))
    store3(nodes, 0, POSITION, (zero, zero, zero))
    for i in range(topology.shape[0]):
        parent, kind = topology[i, PARENT], topology[i, KIND]
        k, d = topology[i, Q_INDEX], topology[i, FIRST_DOF]
        g = geometry[i]
        R_p = load9(nodes, parent + 1, ROTATION)
        shift = (splat(g[_T]), splat(g[_T + 1]), splat(g[_T + 2]))
        if kind == REVOLUTE:
            s, c = sincos(gather(q, first, last, k) * g[_RATIO] + g[_OFFSET])
            relative = _rodrigues(g, c, s)
        elif kind == PRISMATIC:
            relative = _constant_rotation(g)
            x = gather(q, first, last, k) * g[_RATIO] + g[_OFFSET]
            shift = add3(
                shift, scale3(turn_constant(relative, axes[d, 0], axes[d, 1], axes[d, 2]), x)
            )
        elif kind == PLANAR:
            s, c = sincos(gather(q, first, last, k + 2))
            fixed = _rodrigues(g, splat(1.0), splat(0.0))
            x = scale3(
                turn_constant(fixed, axes[d, 0], axes[d, 1], axes[d, 2]), gather(q, first, last, k)
            )
            y = scale3(
                turn_constant(fixed, axes[d + 1, 0], axes[d + 1, 1], axes[d + 1, 2]),
                gather(q, first, last, k + 1),
            )
            shift = add3(shift, add3(x, y))
            relative = _rodrigues(g, c, s)
        else:
            fixed = _constant_rotation(g)
            at = k
            if kind == FREE:
                shift = add3(shift, turn(fixed, gather3(q, first, last, k)))
                at = k + 3
            x, y = gather(q, first, last, at), gather(q, first, last, at + 1)
            z, w = gather(q, first, last, at + 2), gather(q, first, last, at + 3)
            relative = _times(fixed, _from_quaternion(x, y, z, w))
        R = _times(R_p, relative)
        store9(nodes, i + 1, ROTATION, R)
        store3(nodes, i + 1, POSITION, add3(load3(nodes, parent + 1, POSITION), turn(R_p, shift)))
        for e in range(d, d + topology[i, DOF_COUNT]):
            store3(directions, e, AXIS, turn_constant(R, axes[e, 0], axes[e, 1], axes[e, 2]))


@jit
def move(topology, dofs, axes, gravity, dq, ddq, first, last, nodes, directions):
    """Fill ω, α, v and a of every node; the world accelerates by −g, so that a includes gravity."""
    store3(nodes, 0, OMEGA, zero3())
    store3(nodes, 0, ALPHA, zero3())
    store3(nodes, 0, VELOCITY, zero3())
    store3(nodes, 0, ACCELERATION, (splat(-gravity[0]), splat(-gravity[1]), splat(-gravity[2])))
    for i in range(topology.shape[0]):
        up, d = topology[i, PARENT] + 1, topology[i, FIRST_DOF]
        w_p, alpha_p = load3(nodes, up, OMEGA), load3(nodes, up, ALPHA)
        r = sub3(load3(nodes, i + 1, POSITION), load3(nodes, up, POSITION))
        w_x_r = cross3(w_p, r)
        velocity = add3(load3(nodes, up, VELOCITY), w_x_r)
        acceleration = add3(
            load3(nodes, up, ACCELERATION), add3(cross3(alpha_p, r), cross3(w_p, w_x_r))
        )
        spin, slide = zero3(), zero3()  # Σ z q̇, angular and linear
        alpha = alpha_p
        for e in range(d, d + topology[i, DOF_COUNT]):
            z = load3(directions, e, AXIS)
            rate = gather(dq, first, last, dofs[e, V_INDEX]) * axes[e, 3]
            rate2 = gather(ddq, first, last, dofs[e, V_INDEX]) * axes[e, 3]
            if dofs[e, ANGULAR]:
                spin = add3(spin, scale3(z, rate))
                alpha = add3(alpha, scale3(z, rate2))
            else:
                slide = add3(slide, scale3(z, rate))
                acceleration = add3(acceleration, scale3(z, rate2))
        w = add3(w_p, spin)
        if topology[i, KIND] != REVOLUTE:
            velocity = add3(velocity, slide)
            # 2 ω_p + (ω_i − ω_p) = ω_p + ω_i
            acceleration = add3(acceleration, cross3(add3(w_p, w), slide))
        store3(nodes, i + 1, OMEGA, w)
        store3(nodes, i + 1, ALPHA, add3(alpha, cross3(w_p, spin)))
        store3(nodes, i + 1, VELOCITY, velocity)
        store3(nodes, i + 1, ACCELERATION, acceleration)


@inline
def load_dof_axis(directions, e):
    """World axis of a degree of freedom."""
    return load3(directions, e, AXIS)
