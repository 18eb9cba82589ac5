"""Distances between convex bodies, each the hull of a few points: the algorithm of Gilbert, Johnson
and Keerthi [Gilbert1988].

The difference of two hulls, {a − b}, holds the origin where they meet; else its point v nearest to
the origin is as long as they are apart. A simplex of at most four of its corners is improved by the
corner farthest against v until none lies nearer. The point of a simplex that is nearest to the
origin is found on each of its faces, edges and corners in turn.
"""

from __future__ import annotations

from thetahat.kernels.jit import inline, jit

ROUNDS = 64
ENOUGH = 1e-10  # of v²: the corner farthest against v is no nearer
TOUCHING = 1e-20  # [m²] of v²
# of the largest product of two sides: flatter triangles and tetrahedra are left to their edges
FLAT = 1e-12


@inline
def _dot(a, b):
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


@inline
def _minus(a, b):
    return (a[0] - b[0], a[1] - b[1], a[2] - b[2])


@inline
def _cross(a, b):
    return (
        a[1] * b[2] - a[2] * b[1],
        a[2] * b[0] - a[0] * b[2],
        a[0] * b[1] - a[1] * b[0],
    )


@inline
def _row(array, i):
    return (array[i, 0], array[i, 1], array[i, 2])


@jit
def _farthest(points, first, end, x, y, z):
    """The point farthest along (x, y, z)."""
    best, at = -1e300, first
    for i in range(first, end):
        along = points[i, 0] * x + points[i, 1] * y + points[i, 2] * z
        if along > best:
            best, at = along, i
    return at


@jit
def _keep(corners, count, shares, kept, best):
    """Take these shares of the corners where their sum is nearer to the origin than `best`."""
    x = y = z = 0.0
    for i in range(count):
        if shares[i] < 0.0:
            return best
        x += shares[i] * corners[i, 0]
        y += shares[i] * corners[i, 1]
        z += shares[i] * corners[i, 2]
    square = x * x + y * y + z * z
    if square < best:
        for i in range(4):
            kept[i] = shares[i] if i < count else 0.0
        return square
    return best


@jit
def _edge(corners, count, i, j, shares, kept, best):
    """The nearest point of the line through corners i and j."""
    a, b = _row(corners, i), _row(corners, j)
    side = _minus(b, a)
    square = _dot(side, side)
    if square <= 0.0:
        return best
    for k in range(4):
        shares[k] = 0.0
    shares[j] = -_dot(a, side) / square
    shares[i] = 1.0 - shares[j]
    return _keep(corners, count, shares, kept, best)


@jit
def _face(corners, count, i, j, k, shares, kept, best):
    """The nearest point of the plane through corners i, j and k."""
    a = _row(corners, i)
    u, w = _minus(_row(corners, j), a), _minus(_row(corners, k), a)
    uu, uw, ww = _dot(u, u), _dot(u, w), _dot(w, w)
    size = uu * ww - uw * uw
    if size <= FLAT * uu * ww:
        return best
    au, aw = -_dot(a, u), -_dot(a, w)
    for m in range(4):
        shares[m] = 0.0
    shares[j] = (au * ww - aw * uw) / size
    shares[k] = (aw * uu - au * uw) / size
    shares[i] = 1.0 - shares[j] - shares[k]
    return _keep(corners, count, shares, kept, best)


@jit
def _holds_origin(corners):
    """Whether the origin is inside of a tetrahedron."""
    a = _row(corners, 0)
    u, v, w = (
        _minus(_row(corners, 1), a),
        _minus(_row(corners, 2), a),
        _minus(_row(corners, 3), a),
    )
    volume = _dot(u, _cross(v, w))
    if volume * volume <= FLAT * _dot(u, u) * _dot(v, v) * _dot(w, w):
        return False
    o = (-a[0], -a[1], -a[2])
    first = _dot(o, _cross(v, w)) / volume
    second = _dot(u, _cross(o, w)) / volume
    third = _dot(u, _cross(v, o)) / volume
    return first >= 0.0 and second >= 0.0 and third >= 0.0 and first + second + third <= 1.0


@jit
def _nearest(corners, count, shares, kept):
    """Fill `kept` with the corners' shares in the simplex's point nearest to the origin; returns
    the square of its distance.
    """
    best = 1e300
    for i in range(count):
        for m in range(4):
            shares[m] = 0.0
        shares[i] = 1.0
        best = _keep(corners, count, shares, kept, best)
        for j in range(i):
            best = _edge(corners, count, i, j, shares, kept, best)
            for k in range(j):
                best = _face(corners, count, i, j, k, shares, kept, best)
    if count == 4 and _holds_origin(corners):
        return 0.0
    return best


@jit
def _pair(points, ends, apart, reach, corners, chosen, shares, kept):
    """Square of the distance of two hulls, or a lower bound beyond `reach`; `chosen` and `kept` say
    of which points the nearest ones are made.

    ends: first and end of both. apart: from the middle of the second to that of the first, along
    which the search begins.
    """
    a_first, a_end, b_first, b_end = ends
    x, y, z = apart
    a = _farthest(points, a_first, a_end, -x, -y, -z)
    b = _farthest(points, b_first, b_end, x, y, z)
    count = 1
    chosen[0, 0], chosen[0, 1] = a, b
    for m in range(3):
        corners[0, m] = points[a, m] - points[b, m]
    along = x * corners[0, 0] + y * corners[0, 1] + z * corners[0, 2]
    length = x * x + y * y + z * z
    for m in range(4):
        kept[m] = 0.0
    if along > reach * length**0.5:
        return along * along / length
    best = _nearest(corners, count, shares, kept)
    for _ in range(ROUNDS):
        if best <= TOUCHING:
            return 0.0
        x = y = z = 0.0
        for i in range(count):
            x += kept[i] * corners[i, 0]
            y += kept[i] * corners[i, 1]
            z += kept[i] * corners[i, 2]
        a = _farthest(points, a_first, a_end, -x, -y, -z)
        b = _farthest(points, b_first, b_end, x, y, z)
        p, q, r = (
            points[a, 0] - points[b, 0],
            points[a, 1] - points[b, 1],
            points[a, 2] - points[b, 2],
        )
        along = x * p + y * q + z * r
        if best - along <= ENOUGH * best:
            break
        if along > reach * best**0.5:  # all of the difference lies beyond that plane
            return along * along / best
        at = 0  # corners without a share make room
        for i in range(count):
            if kept[i] > 0.0:
                for m in range(3):
                    corners[at, m] = corners[i, m]
                chosen[at, 0], chosen[at, 1], kept[at] = chosen[i, 0], chosen[i, 1], kept[i]
                at += 1
        if at == 4:
            return 0.0
        corners[at, 0], corners[at, 1], corners[at, 2] = p, q, r
        chosen[at, 0], chosen[at, 1], kept[at] = a, b, 0.0
        count = at + 1
        nearer = _nearest(corners, count, shares, kept)
        if nearer >= best:  # rounding: no corner brings more
            break
        best = nearer
    return best


@inline
def _middle(R, p, s, b, balls, piece):
    """Centre of a piece's ball in the world."""
    x, y, z = balls[piece, 0], balls[piece, 1], balls[piece, 2]
    return (
        R[s, b, 0, 0] * x + R[s, b, 0, 1] * y + R[s, b, 0, 2] * z + p[s, b, 0],
        R[s, b, 1, 0] * x + R[s, b, 1, 1] * y + R[s, b, 1, 2] * z + p[s, b, 1],
        R[s, b, 2, 0] * x + R[s, b, 2, 1] * y + R[s, b, 2, 2] * z + p[s, b, 2],
    )


@jit
def _place(points, first, end, R, p, s, b, world):
    """Write a piece's points in the world."""
    for i in range(first, end):
        for m in range(3):
            world[i, m] = (
                R[s, b, m, 0] * points[i, 0]
                + R[s, b, m, 1] * points[i, 1]
                + R[s, b, m, 2] * points[i, 2]
                + p[s, b, m]
            )


@jit
def convex_distances(points, first, body, balls, R, p, pairs, reach, world, scratch, out, near):
    """Distances of pairs of hulls in every sample.

    points (k, 3) of all hulls in their bodies' frames, first (hulls + 1,) where each begins, body
    (hulls,) of each, balls (hulls, 4) centre and radius around it; R (n, bodies, 3, 3) and p (n,
    bodies, 3) of the bodies; pairs (m, 2) of hulls; reach (m,) beyond which a distance is not
    needed. Fills out (n, m) with distances, or a lower bound above `reach`, and near (n, m, 2, 3)
    with the nearest points in the world; world (k, 3) and scratch (corners (4, 3), chosen (4, 2),
    shares (4,), kept (4,), placed (hulls,)) are overwritten.
    """
    corners, chosen, shares, kept, placed = scratch
    for s in range(R.shape[0]):
        for h in range(body.shape[0]):
            placed[h] = False
        for k in range(pairs.shape[0]):
            g, h = pairs[k, 0], pairs[k, 1]
            apart = _minus(_middle(R, p, s, body[g], balls, g), _middle(R, p, s, body[h], balls, h))
            least = _dot(apart, apart) ** 0.5 - balls[g, 3] - balls[h, 3]
            for m in range(3):
                near[s, k, 0, m] = near[s, k, 1, m] = 0.0
            if least > reach[k]:
                out[s, k] = least
                continue
            for piece in (g, h):
                if not placed[piece]:
                    _place(points, first[piece], first[piece + 1], R, p, s, body[piece], world)
                    placed[piece] = True
            ends = (first[g], first[g + 1], first[h], first[h + 1])
            found = _pair(world, ends, apart, reach[k], corners, chosen, shares, kept)
            out[s, k] = found**0.5
            for i in range(4):
                if kept[i] > 0.0:
                    for m in range(3):
                        near[s, k, 0, m] += kept[i] * world[chosen[i, 0], m]
                        near[s, k, 1, m] += kept[i] * world[chosen[i, 1], m]
