"""The region that each body of a robot fills: an ellipsoid around its geometry or its joints.

A body is a link and all that fixed or locked joints weld to it. Its region is, in its own frame,

1. the smallest ellipsoid around the geometry of its links (vertices of meshes, primitives), widened
   by `SKIN`; the frame of a welded link with mass and without geometry counts as a point of it;
2. where it has no geometry, the smallest ellipsoid around the points that the file states of it:
   its joint, the joints that it carries, the frames of welded links and, unless the file's inertias
   are placeholders, its centre of mass; each widened to a ball of `REACH` times the robot's link
   length (the mean distance of joints that do not coincide), at least `SHORTEST`.

So a last link is a ball around its joint, stretched to its centre of mass, and joints that coincide
make a ball, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache

import numpy as np

from thetahat.errors import MalformedInput
from thetahat.model import parameters
from thetahat.model.robot import Robot

SKIN = 0.01  # [m] around geometry: covers, screws and cables that no mesh shows
# of the link length, around joint origins: holds the centres of mass of 98 of 100 links of 67
# robots with geometry, without being told where they are
REACH = 0.5
FARTHEST = 1e6  # [m] that a link reaches from its joint
SHORTEST = 0.05  # [m] around joint origins, at least
DIRECTIONS = 162  # in which the outline of a cloud of points is taken
CHUNK = 4_096  # points at a time
ENOUGH = 1e-2  # of the volume: how close to the smallest ellipsoid to come
ROUNDS = 2_000
# semi-axes of a solid ellipsoid over its standard deviations
SOLID = np.sqrt(5.0)


@dataclass(frozen=True, eq=False)
class Region:
    """An ellipsoid in a body's frame that holds all of its mass."""

    centre: np.ndarray  # (3,) [m]
    axes: np.ndarray  # (3, 3) columns: directions of its axes
    radii: np.ndarray  # (3,) [m]
    source: str  # "geometry" or "joints": what it was made from

    @property
    def shape(self) -> np.ndarray:
        """A of (x − c)ᵀA(x − c) ≤ 1, (3, 3)."""
        return np.asarray((self.axes / self.radii**2) @ self.axes.T)

    @property
    def volume(self) -> float:
        """[m³]."""
        return float(4.0 / 3.0 * np.pi * np.prod(self.radii))

    @property
    def gyration(self) -> float:
        """Radius of gyration of the region when it is filled evenly, about its centre [m]."""
        return float(np.sqrt(np.sum(self.radii**2)) / SOLID)

    @property
    def realisability(self) -> np.ndarray:
        """Q, (4, 4), with tr(J·Q) = ∫(1 − (x − c)ᵀA(x − c)) dm ≥ 0 for any mass inside
        [Wensing2018].
        """
        A, c = self.shape, self.centre
        Q = np.empty((4, 4))
        Q[:3, :3], Q[:3, 3], Q[3, :3], Q[3, 3] = -A, A @ c, A @ c, 1.0 - c @ A @ c
        return Q

    def scaled(self, factor: float) -> Region:
        """Return the region with radii so many times as long."""
        return replace(self, radii=factor * self.radii)

    def filling(self, theta: np.ndarray) -> float:
        """Return tr(J·Q)/m of a body: the mean of 1 − (x − c)ᵀA(x − c) over its mass.

        1: a point at the centre; 0.4: the region filled evenly; below 0: mass outside.
        """
        J = parameters.to_pseudo_inertia(theta)
        return float(np.sum(J * self.realisability) / theta[parameters.M])

    def filled(self, density: float) -> np.ndarray:
        """Return θ, (10,), of the region filled evenly with this density [kg/m³]."""
        mass = density * self.volume
        sigma = mass / 5.0 * (self.axes * self.radii**2) @ self.axes.T
        inertia = np.trace(sigma) * np.eye(3) - sigma
        return parameters.from_mass_com_inertia(mass, self.centre, inertia)

    def distance(self, point: np.ndarray) -> float:
        """How far outside a point is [m]; 0 inside."""
        p = np.abs(self.axes.T @ (np.asarray(point, dtype=float) - self.centre))
        if np.sum((p / self.radii) ** 2) <= 1.0:
            return 0.0
        # nearest point r²p/(r² + t), t ≥ 0 the root of Σ(r p/(r² + t))² = 1 [Eberly2013]
        square = self.radii**2
        low, high = 0.0, float(np.linalg.norm(self.radii * p))
        for _ in range(200):
            t = 0.5 * (low + high)
            outside = np.sum((self.radii * p / (square + t)) ** 2) > 1.0
            low, high = (t, high) if outside else (low, t)
            if high - low <= 1e-14 * max(high, 1e-300):
                break
        return float(np.linalg.norm(p - square * p / (square + high)))


def link_regions(
    robot: Robot, geometry: Mapping[str, np.ndarray], *, placeholder: bool = False
) -> tuple[Region, ...]:
    """Return the region of every body.

    Args:
        robot: whose bodies and links they are; joints may be locked.
        geometry: points of a link's outline in its own frame, (points, 3) [m], by its name; links
            without geometry are not in it.
        placeholder: whether the file's inertias are made up, so that they tell nothing of size.

    """
    pad = max(REACH * link_length(robot), SHORTEST)
    out = []
    for body in range(len(robot.body_names)):
        cloud = _geometry(robot, body, geometry)
        if cloud is not None:
            _require_reach(robot, body, cloud)
            out.append(enclosing_ellipsoid(cloud, SKIN, "geometry"))
            continue
        points = _joint_origins(robot, body)
        mass, com, _ = parameters.to_mass_com_inertia(robot.theta[10 * body : 10 * body + 10])
        if mass > 0.0 and not placeholder:
            points = np.vstack([points, com])
        _require_reach(robot, body, points)
        out.append(enclosing_ellipsoid(points, pad, "joints"))
    return tuple(out)


def _require_reach(robot: Robot, body: int, points: np.ndarray) -> None:
    """Refuse a body that reaches farther than doubles can tell its two ends apart."""
    reach = float(np.max(np.abs(points)))
    if not reach <= FARTHEST:
        raise MalformedInput(
            f"robot {robot.name!r}: link {robot.body_names[body]!r} reaches {reach:.3g} m from its"
            f" joint, more than {FARTHEST:g} m; correct the place or size of its geometry, its"
            " centre of mass or its joints in the robot file"
        )


def link_length(robot: Robot) -> float:
    """Return the mean distance of joints that do not coincide with the one before them [m]."""
    apart = np.array(
        [np.linalg.norm(node.translation) for node in robot.tree.nodes if node.parent >= 0]
    )
    apart = apart[apart > 1e-3]
    return float(np.mean(apart)) if len(apart) else 0.0


def _geometry(robot: Robot, body: int, geometry: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """Outline of a body's links in its frame; None where none of them has any."""
    clouds, known = [], False
    for link in robot.links:
        if link.body != body:
            continue
        points = geometry.get(link.name)
        if points is None and not link.theta[parameters.M] > 0.0:
            continue
        known |= points is not None
        own = np.zeros((1, 3)) if points is None else points
        clouds.append(own @ link.rotation.T + link.translation)
    return np.vstack(clouds) if known else None


def _joint_origins(robot: Robot, body: int) -> np.ndarray:
    """Own joint, joints carried, and frames of welded links, (points, 3) [m]."""
    at = robot.tree.bodies[body]
    carried = [node.translation for node in robot.tree.nodes if node.parent == at]
    welded = [link.translation for link in robot.links if link.body == body]
    return np.vstack([np.zeros(3), *carried, *welded])


# -- ellipsoids ------------------------------------------------------------------------------------


def enclosing_ellipsoid(points: np.ndarray, pad: float, source: str) -> Region:
    """Return the smallest ellipsoid around balls of radius `pad` [m] about the points."""
    directions = sphere_directions()
    outline = points
    while len(outline) > CHUNK:  # outermost points of every part, then of those
        parts = np.array_split(outline, -(-len(outline) // CHUNK))
        outline = np.vstack([part[np.argmax(directions @ part.T, axis=1)] for part in parts])
    outline = outline[np.argmax(directions @ outline.T, axis=1)] + pad * directions
    centre, shape = _smallest_ellipsoid(np.ascontiguousarray(outline).tobytes())
    away = points - centre
    farthest = float(np.max(np.einsum("ij,jk,ik->i", away, shape, away)))
    values, axes = np.linalg.eigh(shape / max(farthest, 1.0))
    return Region(centre, axes, 1.0 / np.sqrt(values), source)


@cache
def sphere_directions() -> np.ndarray:
    """Unit vectors spread evenly: a spiral on the sphere, and the axes, (DIRECTIONS, 3)."""
    k = np.arange(DIRECTIONS - 6) + 0.5
    z = 1.0 - 2.0 * k / (DIRECTIONS - 6)
    turn = np.pi * (1.0 + np.sqrt(5.0)) * k
    ring = np.sqrt(1.0 - z**2)
    spiral = np.column_stack([ring * np.cos(turn), ring * np.sin(turn), z])
    return np.vstack([spiral, np.eye(3), -np.eye(3)])


@lru_cache(maxsize=256)  # a robot's links are asked for several times in a run
def _smallest_ellipsoid(outline: bytes) -> tuple[np.ndarray, np.ndarray]:
    """(c, A) of the ellipsoid of least volume around points that span all three directions
    [Khachiyan1996], with steps away from points that count too much [Todd2007].

    outline: the bytes of the points, (count, 3) float64.
    """
    points = np.frombuffer(outline).reshape(-1, 3)
    count, d = len(points), 3
    middle, size = np.mean(points, axis=0), float(np.max(np.ptp(points, axis=0)))
    lifted = np.column_stack([(points - middle) / size, np.ones(count)])
    weight = np.full(count, 1.0 / count)
    for _ in range(ROUNDS):
        moment = (lifted.T * weight) @ lifted
        reach = np.einsum("ij,ij->i", lifted, np.linalg.solve(moment, lifted.T).T)
        out, used = int(np.argmax(reach)), weight > 0.0
        held = int(np.flatnonzero(used)[np.argmin(reach[used])])
        beyond, within = reach[out] / (d + 1) - 1.0, 1.0 - reach[held] / (d + 1)
        if max(beyond, within) <= ENOUGH:
            break
        j = out if beyond >= within else held
        step = (reach[j] - d - 1) / ((d + 1) * (reach[j] - 1.0))
        step = max(step, -weight[j] / (1.0 - weight[j]))
        weight *= 1.0 - step
        weight[j] = max(weight[j] + step, 0.0)
    own = lifted[:, :3]
    centre = weight @ own
    spread = (own.T * weight) @ own - np.outer(centre, centre)
    away = own - centre
    shape = np.linalg.inv(spread)
    shape /= float(np.max(np.einsum("ij,jk,ik->i", away, shape, away)))
    ellipsoid = middle + size * centre, shape / size**2
    for array in ellipsoid:
        array.setflags(write=False)
    return ellipsoid
