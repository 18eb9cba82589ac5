"""The fast regressor: Y with Y(q, q̇, q̈)·θ = D q̈ + C q̇ + G, in O(bodies × depth) per sample.

Body i's wrench about its origin, in world axes, is linear in its ten numbers. With e_x, e_y, e_z
the body's axes in the world, α_b = Rᵀα, ω_b = Rᵀω, u_x = ω × e_x, …, and a the acceleration of its
origin less gravity:

    Ixx   couple  e_x α_bx + u_x ω_bx                              no force
    Ixy   couple  e_x α_by + e_y α_bx + u_x ω_by + u_y ω_bx        no force
    m·cx  couple  e_x × a              force  α × e_x + ω × u_x
    m     no couple                    force  a

Row j is the screw of degree of freedom j against that wrench: z·(n + r × f) if it turns, z·f if it
slides, with r = p_i − p_j. Only the ancestors of body i feel it; the other entries are zero.
"""

from __future__ import annotations

from thetahat.kernels.jit import inline, jit
from thetahat.kernels.kinematics import (
    ACCELERATION,
    ALPHA,
    ANGULAR,
    COLUMN,
    COMPACT,
    DOF_COUNT,
    END_COLUMN,
    FIRST_COLUMN,
    FIRST_DOF,
    OMEGA,
    PARENT,
    POSITION,
    ROTATION,
    SHARED,
    column3,
    load9,
    load_dof_axis,
    move,
    place,
)
from thetahat.kernels.lanes import (
    WIDTH,
    add_ten,
    doubles_to_line,
    fence,
    splat,
    store_ten,
    write_eight,
    write_sum,
    write_zeros,
)
from thetahat.kernels.vectors import add3, cross3, dot3, load3, scale3, sub3

# Columns of the table of stretches.
START, LENGTH, SOURCE = 0, 1, 2
# A result larger than this [bytes] does not stay in the caches anyway, so it is written past them.
STREAM_ABOVE = 1 << 24


@inline
def _couple(e1, e2, u1, u2, alpha1, alpha2, w1, w2):
    """Couple per unit product of inertia between two body axes."""
    return add3(add3(scale3(e1, alpha2), scale3(e2, alpha1)), add3(scale3(u1, w2), scale3(u2, w1)))


@inline
def body_wrenches(nodes, i):
    """Couples (9) and forces (4) per unit parameter of the body of node i: Ixx Ixy Ixz Iyy Iyz Izz
    mcx mcy mcz; mcx mcy mcz m.
    """
    R = load9(nodes, i + 1, ROTATION)
    w, alpha = load3(nodes, i + 1, OMEGA), load3(nodes, i + 1, ALPHA)
    a = load3(nodes, i + 1, ACCELERATION)
    ex, ey, ez = column3(R, 0), column3(R, 1), column3(R, 2)
    wx, wy, wz = dot3(ex, w), dot3(ey, w), dot3(ez, w)
    ax, ay, az = dot3(ex, alpha), dot3(ey, alpha), dot3(ez, alpha)
    ux, uy, uz = cross3(w, ex), cross3(w, ey), cross3(w, ez)
    couples = (
        add3(scale3(ex, ax), scale3(ux, wx)),
        _couple(ex, ey, ux, uy, ax, ay, wx, wy),
        _couple(ex, ez, ux, uz, ax, az, wx, wz),
        add3(scale3(ey, ay), scale3(uy, wy)),
        _couple(ey, ez, uy, uz, ay, az, wy, wz),
        add3(scale3(ez, az), scale3(uz, wz)),
        cross3(ex, a),
        cross3(ey, a),
        cross3(ez, a),
    )
    forces = (
        add3(cross3(alpha, ex), cross3(w, ux)),
        add3(cross3(alpha, ey), cross3(w, uy)),
        add3(cross3(alpha, ez), cross3(w, uz)),
        a,
    )
    return couples, forces


@inline
def ten_turning(z, arm, n, f):
    """z·n + (z × r)·f for the ten parameters, in the paper's order."""
    return (
        dot3(z, n[0]),
        dot3(z, n[1]),
        dot3(z, n[2]),
        dot3(z, n[8]) + dot3(arm, f[2]),
        dot3(z, n[7]) + dot3(arm, f[1]),
        dot3(z, n[3]),
        dot3(z, n[4]),
        dot3(z, n[6]) + dot3(arm, f[0]),
        dot3(z, n[5]),
        dot3(arm, f[3]),
    )


@inline
def ten_sliding(z, f):
    """z·f for the ten parameters: inertia has no force."""
    o = splat(0.0)
    return (o, o, o, dot3(z, f[2]), dot3(z, f[1]), o, o, dot3(z, f[0]), o, dot3(z, f[3]))


@inline
def ten_entries(angular, z, r, couples, forces):
    """The ten entries of a degree of freedom's row, of a body whose origin is at r from the
    joint's.
    """
    if angular:
        return ten_turning(z, cross3(z, r), couples, forces)
    return ten_sliding(z, forces)


@inline
def _scaled(ten, s):
    """Ten values times s."""
    return (
        ten[0] * s,
        ten[1] * s,
        ten[2] * s,
        ten[3] * s,
        ten[4] * s,
        ten[5] * s,
        ten[6] * s,
        ten[7] * s,
        ten[8] * s,
        ten[9] * s,
    )


@jit
def regressor(
    topology, geometry, dofs, axes, segments, gravity, q, dq, ddq, nodes, directions, rows, out
):
    """Fill out (samples, nv, 10·bodies); rows (8, scratch) is zeroed scratch for what is not zero
    by structure.
    """
    samples = q.shape[0]
    size, flat = out.shape[1] * out.shape[2], out.reshape(-1)
    streamed = out.size * 8 > STREAM_ABOVE
    for first in range(0, samples, WIDTH):
        count = min(WIDTH, samples - first)
        last = samples - 1
        place(topology, geometry, dofs, axes, q, first, last, nodes, directions)
        move(topology, dofs, axes, gravity, dq, ddq, first, last, nodes, directions)
        sweep(topology, dofs, axes, count, nodes, directions, rows)
        _write(segments, count, size, rows, flat[first * size :], streamed)
    if streamed:
        fence()


@jit
def sweep(topology, dofs, axes, count, nodes, directions, rows):
    """Fill the compact rows: for each degree of freedom, the columns of the bodies it carries, side
    by side.
    """
    for e in range(dofs.shape[0]):
        if dofs[e, SHARED]:
            rows[:, dofs[e, COMPACT] : dofs[e, COMPACT] + dofs[e, END_COLUMN]] = 0.0
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
                ten = ten_entries(dofs[e, ANGULAR], z, r, couples, forces)
                at = dofs[e, COMPACT] + column - dofs[e, FIRST_COLUMN]
                if dofs[e, SHARED]:
                    add_ten(rows, count, at, _scaled(ten, axes[e, 3]))
                else:
                    store_ten(rows, count, at, ten)
            j = topology[j, PARENT]


@inline
def _write(segments, count, size, rows, image, streamed):
    """Write a tile's regressors (count × size numbers) line by line: stretches of `rows`, and zeros
    between them.

    Stretches lie at least ten numbers apart and `rows` has eight zeros around each, so a line that
    overlaps a stretch is one load, wherever the stretch begins or ends. Nothing is put together in
    memory: with streamed writes under way, reading back a number just written waits until all of
    them are through.
    """
    at = 0
    if streamed:
        head = doubles_to_line(image)
        while at < head:
            image[at] = _entry(segments, 0, 0, rows, at)
            at += 1
    for lane in range(count):
        base = lane * size
        for s in range(segments.shape[0]):
            start = base + segments[s, START]
            while at + WIDTH <= start:
                write_zeros(image, at, streamed)
                at += WIDTH
            end = min(start + segments[s, LENGTH], base + size - WIDTH + 1)
            shift = segments[s, SOURCE] - start
            while at < end:
                write_eight(image, at, rows, lane, at + shift, streamed)
                at += WIDTH
        while at + WIDTH <= base + size:
            write_zeros(image, at, streamed)
            at += WIDTH
        rest = base + size - at
        if rest > 0 and lane + 1 < count:
            # The line holds the end of this sample and the beginning of the next: each padded with
            # zeros, so their sum.
            s = segments.shape[0] - 1
            shift = at - base - segments[s, START]
            this = segments[s, SOURCE] + shift if shift < segments[s, LENGTH] else 0
            following = segments[0, SOURCE] - rest if segments[0, START] == 0 else 0
            write_sum(image, at, rows, lane, this, following, streamed)
            at += WIDTH
    while at < count * size:
        lane = count - 1
        image[at] = _entry(segments, segments.shape[0] - 1, lane, rows, at - lane * size)
        at += 1


@inline
def _entry(segments, s, lane, rows, at):
    """One number of a sample's regressor, which belongs to stretch s or to the zeros around it."""
    start = segments[s, START]
    return (
        rows[lane, segments[s, SOURCE] + at - start]
        if start <= at < start + segments[s, LENGTH]
        else 0.0
    )
