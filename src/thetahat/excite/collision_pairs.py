"""Which links of a robot keep apart from each other and from a floor.

Every link is held by convex pieces (model.io.collision_geometry); a body with mass and without
geometry by the hull of its joint origins, widened by a radius. What is watched:

    pairs of bodies    but those that a joint joins, and those that touch in the zero configuration
    a floor z = Z      and all bodies that move, but one on the base that touches it there

In the zero configuration, a joint whose range leaves zero out is in the middle of it. A pair that
is nearer there than twice the clearance has half of that distance as its own clearance; so has a
body on the base that is so near to the floor.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from thetahat.errors import UsageError, is_number, known
from thetahat.excite.collision_model import WORLD, CollisionModel, Hulls, heights, hull_distances
from thetahat.model import parameters
from thetahat.model.io.collision_geometry import ConvexPiece, collision_geometry
from thetahat.model.link_geometry import link_length, sphere_directions
from thetahat.model.robot import Robot

CLEARANCE = 0.02  # [m] for covers, cables, and what a controller strays from its path
TOUCH = 1e-3  # [m] apart: bodies that touch
JOINT_HULL = 0.15  # of the link length: radius around joint origins, where there is no geometry
THINNEST = 0.02  # [m] of that radius
MOST_PIECES = 8  # of a body, each by itself; more are held by one hull
POSES = 500  # at random, to find out whether a robot can be above a floor


def collision_model(
    robot: Robot,
    lower: np.ndarray,
    upper: np.ndarray,
    *,
    floor: float | str | None = "auto",
    self_collision: bool = True,
    clearance: float = CLEARANCE,
) -> CollisionModel:
    """Return what a robot's links keep apart from.

    Args:
        robot: whose links they are; geometry is read from the file it came from.
        lower: (nv,) where its joints may be, and
        upper: up to where [rad or m].
        floor: its height in the robot's world [m], None for none; "auto": z = 0, or where the base
            ends below that, unless the robot hangs or cannot keep above it.
        self_collision: whether links keep apart from each other.
        clearance: least distance [m].

    """
    if not (is_number(clearance) and clearance > 0.0):
        raise UsageError(f"clearance is {clearance!r}; give a distance above zero [m]")
    if not (floor is None or floor == "auto" or is_number(floor)):
        raise UsageError(f"floor is {floor!r}; give its height [m], None or 'auto'")
    geometry = collision_geometry(robot)
    bodies, guessed = _pieces(robot, geometry.pieces)
    names = (*robot.body_names, WORLD)
    hulls = _hulls(bodies)
    notes = list(geometry.notes)
    if guessed:
        notes.append(
            f"without geometry, a capsule between joints stands for {known(guessed)} in collisions"
        )
    empty = CollisionModel(
        hulls, names, np.zeros((0, 2), dtype=int), np.zeros(0), None, np.zeros(0, dtype=int),
        np.zeros(0),
    )  # fmt: skip
    pairs, apart = empty.pairs, empty.apart
    zero = np.where((lower <= 0.0) & (upper >= 0.0), 0.0, (lower + upper) / 2.0)
    if self_collision:
        pairs, apart = _watched(robot, empty, zero, clearance, notes)
    if floor == "auto":
        floor = _floor_height(robot, empty, zero, lower, upper, notes)
    height, pieces, above = _floor(robot, empty, zero, floor, clearance, notes)
    return CollisionModel(hulls, names, pairs, apart, height, pieces, above, tuple(notes))


def _pieces(
    robot: Robot, by_link: dict[str, tuple[ConvexPiece, ...]]
) -> tuple[list[list[ConvexPiece]], list[str]]:
    """Pieces of every body and, last, the world, each in its frame; and bodies without geometry."""
    out: list[list[ConvexPiece]] = [[] for _ in range(len(robot.body_names) + 1)]
    for link in robot.links:
        for piece in by_link.get(link.name, ()):
            out[link.body].append(piece.placed(link.rotation, link.translation))
    radius, guessed = max(JOINT_HULL * link_length(robot), THINNEST), []
    for body, name in enumerate(robot.body_names):
        if len(out[body]) > MOST_PIECES:
            thick = max(piece.radius for piece in out[body])
            out[body] = [ConvexPiece(np.vstack([piece.points for piece in out[body]]), thick)]
        if not out[body] and robot.theta[10 * body + parameters.M] > 0.0:
            at = robot.tree.bodies[body]
            carried = [node.translation for node in robot.tree.nodes if node.parent == at]
            welded = [link.translation for link in robot.links if link.body == body]
            out[body] = [ConvexPiece(np.vstack([np.zeros(3), *carried, *welded]), radius)]
            guessed.append(name)
    return out, guessed


def _hulls(bodies: list[list[ConvexPiece]]) -> Hulls:
    pieces = [(body, _simplified(piece)) for body, own in enumerate(bodies) for piece in own]
    points = [piece.points for _, piece in pieces]
    balls = np.zeros((len(pieces), 4))
    for k, own in enumerate(points):
        balls[k, :3] = (own.min(axis=0) + own.max(axis=0)) / 2.0
        balls[k, 3] = np.max(np.linalg.norm(own - balls[k, :3], axis=1))
    return Hulls(
        np.ascontiguousarray(np.vstack([np.zeros((0, 3)), *points])),
        np.cumsum([0, *map(len, points)]),
        np.array([body for body, _ in pieces], dtype=np.int64),
        np.array([piece.radius for _, piece in pieces]),
        balls,
    )


def _simplified(piece: ConvexPiece) -> ConvexPiece:
    """A piece with few points that holds all of the given one: the outermost points in many
    directions, widened by how far others lie outside of their hull.
    """
    directions = sphere_directions()
    if len(piece.points) <= len(directions):
        return piece
    points = _corners(piece.points)
    parts = np.array_split(points, -(-len(points) // 4_096))
    outer = np.unique(
        np.vstack([part[np.argmax(directions @ part.T, axis=1)] for part in parts]), axis=0
    )
    kept = np.unique(np.argmax(directions @ outer.T, axis=1))
    core = outer[kept]
    every = np.vstack([core, points])
    first = np.concatenate([[0], np.arange(len(core), len(every) + 1)])
    count = len(points) + 1
    hulls = Hulls(
        every, first, np.zeros(count, dtype=np.int64), np.zeros(count), np.zeros((count, 4))
    )
    pairs = np.column_stack([np.zeros(count - 1, dtype=int), np.arange(1, count)])
    away, _ = hull_distances(
        hulls, np.eye(3)[None, None], np.zeros((1, 1, 3)), pairs, np.full(count - 1, np.inf)
    )
    return ConvexPiece(core, piece.radius + float(np.max(away)))


def _corners(points: np.ndarray) -> np.ndarray:
    """Corners of the convex hull; all points where they are flat."""
    from scipy.spatial import ConvexHull, QhullError

    try:
        return np.asarray(points[ConvexHull(points).vertices])
    except QhullError:
        return np.unique(points, axis=0)


# -- what is watched -------------------------------------------------------------------------------


def _parents(robot: Robot, held: Iterable[int]) -> list[int]:
    """The nearest body with pieces that carries each body, −1 for the world."""
    body_of = {node: b for b, node in enumerate(robot.tree.bodies)}
    held, out = set(held), []
    for node in robot.tree.bodies:
        above = robot.tree.nodes[node].parent
        while above >= 0 and body_of.get(above) not in held:
            above = robot.tree.nodes[above].parent
        out.append(body_of[above] if above >= 0 else -1)
    return out


def _watched(
    robot: Robot, model: CollisionModel, zero: np.ndarray, clearance: float, notes: list[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of pieces to keep apart, and how far."""
    hulls, world = model.hulls, len(model.names) - 1
    parent = [world if p < 0 else p for p in _parents(robot, hulls.body.tolist())]
    count = len(hulls.body)
    pairs = np.array(
        [
            (i, j)
            for i in range(count)
            for j in range(i + 1, count)
            if (a := int(hulls.body[i])) != (b := int(hulls.body[j]))
            and (a == world or parent[a] != b)
            and (b == world or parent[b] != a)
        ],
        dtype=int,
    ).reshape(-1, 2)
    if not len(pairs):
        return pairs, np.zeros(0)
    R, p = model.frames(robot, zero[None])
    core, _ = hull_distances(hulls, R, p, pairs, np.full(len(pairs), np.inf))
    at_zero = core[0] - hulls.radius[pairs].sum(axis=1)
    nearest: dict[tuple[int, int], float] = {}
    of_bodies = [(int(a), int(b)) for a, b in hulls.body[pairs]]
    for key, distance in zip(of_bodies, at_zero, strict=True):
        nearest[key] = min(nearest.get(key, np.inf), float(distance))
    touching = [key for key, distance in nearest.items() if distance <= TOUCH]
    if touching:
        named = [f"{model.names[a]}–{model.names[b]}" for a, b in touching]
        notes.append(
            f"not watched for collision, as they touch in the zero configuration: {known(named, 6)}"
        )
    near = {key: d for key, d in nearest.items() if TOUCH < d < 2.0 * clearance}
    if near:
        named = [
            f"{model.names[a]}–{model.names[b]} {500 * d:.2g} mm" for (a, b), d in near.items()
        ]
        notes.append(
            "nearer than twice the clearance in the zero configuration, so they keep half of that"
            f" distance: {known(named, 6)}"
        )
    kept = np.array([key not in touching for key in of_bodies])
    apart = np.array([min(clearance, 0.5 * nearest[key]) for key in of_bodies])
    return pairs[kept], apart[kept]


def _floor_height(
    robot: Robot,
    model: CollisionModel,
    zero: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    notes: list[str],
) -> float | None:
    """Height of the floor that the robot stands on; None where it hangs, or cannot be above."""
    hulls, world = model.hulls, len(model.names) - 1
    R, p = model.frames(robot, zero[None])
    fixed, moving = np.flatnonzero(hulls.body == world), np.flatnonzero(hulls.body < world)
    height = float(np.min(heights(hulls, R, p, fixed)[0], initial=0.0))
    height = height if height < -CLEARANCE else 0.0  # less is the mesh's roughness
    theta = robot.theta.reshape(-1, 10)
    moments = theta[:, [parameters.MCX, parameters.MCY, parameters.MCZ]]
    mass = theta[:, parameters.M]
    centre = np.einsum("bi,bi->b", R[0, :-1, 2], moments) + mass * p[0, :-1, 2]
    if np.sum(centre) <= height * np.sum(mass):
        notes.append(
            f"no floor is kept: the robot hangs below z = {height:.3g} m in its zero configuration;"
            " give the floor's height where there is one"
        )
        return None
    tried = np.random.default_rng(0).uniform(lower, upper, size=(POSES, robot.nv))
    lowest = heights(hulls, *model.frames(robot, tried), moving)[0]
    free = [k for k in range(len(moving)) if np.any(lowest[:, k] > height + TOUCH)]
    on_base = _on_base(robot, hulls)
    stuck = [
        k for k in range(len(moving)) if k not in free and hulls.body[moving[k]] not in on_base
    ]
    if stuck or not np.any(np.all(lowest[:, free] > height, axis=1)):
        notes.append(
            f"no floor is kept: none of {POSES} configurations is above z = {height:.3g} m; give"
            " the floor's height where there is one"
        )
        return None
    return height


def _on_base(robot: Robot, hulls: Hulls) -> set[int]:
    """Bodies that the base carries."""
    return {b for b, parent in enumerate(_parents(robot, hulls.body.tolist())) if parent < 0}


def _floor(
    robot: Robot,
    model: CollisionModel,
    zero: np.ndarray,
    floor: float | str | None,
    clearance: float,
    notes: list[str],
) -> tuple[float | None, np.ndarray, np.ndarray]:
    """Height of the floor, pieces to keep above it, and how far."""
    hulls, world = model.hulls, len(model.names) - 1
    if floor is None:
        return None, np.zeros(0, dtype=int), np.zeros(0)
    height = float(floor)
    lowest = heights(hulls, *model.frames(robot, zero[None]), np.arange(len(hulls.body)))[0][0]
    room, on_base = lowest - height, _on_base(robot, hulls)
    moving = np.flatnonzero(hulls.body < world)
    resting = [k for k in moving if hulls.body[k] in on_base and room[k] <= TOUCH]
    pieces = np.array([k for k in moving if k not in resting], dtype=int)
    notes.append(
        f"all that moves keeps {1000 * clearance:g} mm above the floor, z = {height:.3g} m"
    )
    if resting:
        named = list(dict.fromkeys(model.names[hulls.body[k]] for k in resting))
        notes.append(f"not watched for the floor, as they stand on it: {known(named)}")
    near = np.array([hulls.body[k] in on_base and room[k] < 2.0 * clearance for k in pieces])
    above = np.where(near, 0.5 * room[pieces], clearance) if len(pieces) else np.zeros(0)
    if np.any(near):
        named = [
            f"{model.names[hulls.body[k]]} {1000 * least:.2g} mm"
            for k, least, low in zip(pieces, above, near, strict=True)
            if low
        ]
        notes.append(f"less above the floor, as they are near it at zero: {known(named, 6)}")
    return height, pieces, above
