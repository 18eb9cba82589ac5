"""The robot as a stick figure in space, with the inertia ellipsoid of every body.

The ellipsoid is the solid one of uniform density that has the body's mass, centre and inertia: with
Σ_C = ½ tr(I_C) 1 − I_C its semi-axes are aₖ = √(5 λₖ(Σ_C)/m). A body whose Σ_C has a negative
eigenvalue has none, and is drawn red without that axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from thetahat.dynamics import rigid_body
from thetahat.model import parameters
from thetahat.model.robot import Robot
from thetahat.report.figures.base import (
    GREY,
    NOMINAL,
    PREDICTED,
    WRONG,
    Drawing,
    Trace,
    linear,
    shown,
)

AROUND, UP = 16, 9  # points of an ellipsoid
MANY, COARSE = 16, (10, 6)  # more bodies than that: points of an ellipsoid that moves
RING = 25  # points of a circle
LARGE = 2.0  # times the robot: bodies that need a larger frame are cut off
THINNEST = 0.3  # of its length: what is held is drawn no thinner, so that it can be seen
NEAR = 1e-4  # [m] origins nearer than that coincide


@dataclass(frozen=True, eq=False)
class Ellipsoid:
    """Inertia ellipsoid of one body, in its own frame."""

    centre: np.ndarray  # (3,) [m]
    axes: np.ndarray  # (3, 3) columns are the principal directions
    radii: np.ndarray  # (3,) [m], descending
    mass: float  # [kg]
    possible: bool


def ellipsoid(theta: np.ndarray) -> Ellipsoid | None:
    """Return the solid ellipsoid of a body; None for a body without mass."""
    mass, centre, inertia = parameters.to_mass_com_inertia(np.asarray(theta, dtype=float))
    if not (mass > 0.0 and np.all(np.isfinite(centre)) and np.all(np.isfinite(inertia))):
        return None
    values, axes = np.linalg.eigh(0.5 * np.trace(inertia) * np.eye(3) - inertia)
    radii = np.sqrt(np.maximum(5.0 * values / mass, 0.0))
    return Ellipsoid(centre, axes[:, ::-1], radii[::-1], float(mass), bool(parameters.check(theta)))


def margin(theta: np.ndarray) -> float | None:
    """Return (I₁ + I₂ − I₃)/(I₁ + I₂ + I₃) of the principal moments, negative for no rigid body.

    None where it has no inertia.
    """
    mass, _, inertia = parameters.to_mass_com_inertia(np.asarray(theta, dtype=float))
    moments = np.linalg.eigvalsh(inertia)
    if mass == 0.0 or not np.max(np.abs(moments)) > 0.0:
        return None
    if mass < 0.0:
        return -1.0
    share = (moments[0] + moments[1] - moments[2]) / np.sum(np.abs(moments))
    return float(min(share, moments[0] / np.sum(np.abs(moments))) if moments[0] < 0.0 else share)


def bones(robot: Robot, q: np.ndarray) -> list[np.ndarray]:
    """Return the lines of the stick figure in the world, each (points, 3).

    They go from joint to joint, and to what is welded to the last bodies.
    """
    R, p = rigid_body.body_frames(robot, q)
    body_of = {node: b for b, node in enumerate(robot.tree.bodies)}
    out, carries = [], set()
    for b, node in enumerate(robot.tree.bodies):
        above = robot.tree.nodes[node].parent
        while above >= 0 and above not in body_of:  # a placeholder between two joints of one body
            above = robot.tree.nodes[above].parent
        start = np.zeros(3) if above < 0 else p[body_of[above]]
        carries.add(body_of.get(above, -1))
        if above >= 0 or robot.tree.nodes[node].kind.nv < 6:  # a floating base hangs on nothing
            out.append(np.stack([start, p[b]]))
    tips = set()
    for link in robot.links:
        if link.body >= 0 and link.body not in carries and np.linalg.norm(link.translation) > NEAR:
            out.append(np.stack([p[link.body], p[link.body] + R[link.body] @ link.translation]))
            tips.add(link.body)
    for b in set(range(len(p))) - carries - tips:  # ends at twice the way to its centre of mass
        theta = robot.theta[parameters.SIZE * b : parameters.SIZE * (b + 1)]
        if theta[parameters.M] > 0.0:
            tip = 2.0 * parameters.first_moment(theta) / theta[parameters.M]
            out.append(np.stack([p[b], p[b] + R[b] @ tip]))
    return [bone for bone in out if np.linalg.norm(bone[1] - bone[0]) > NEAR]


def robot_figure(
    robot: Robot,
    q: np.ndarray,
    identified: np.ndarray,
    nominal: np.ndarray | None = None,
    *,
    height: int = 560,
) -> Drawing:
    """Draw the robot at q with the ellipsoids of its bodies.

    `identified` as surfaces, `nominal` as rings; each θ, (10·bodies,).
    """
    q = np.asarray(q, dtype=float)
    R, p = rigid_body.body_frames(robot, q)
    origins = {
        "marker": {"size": 4, "color": GREY},
        "text": [shown(name) for name in robot.body_names],
        "hovertemplate": "origin of %{text}<extra></extra>",
        "showlegend": False,
    }
    data = [
        _polylines(bones(robot, q), "robot", GREY, 7),
        {"type": "scatter3d", "mode": "markers", **_points(p), "name": "joints", **origins},
    ]
    placed = _placed_ellipsoids(identified, R, p)
    for possible, title, colour in ((True, "identified", PREDICTED), (False, "impossible", WRONG)):
        mine = [each for each in placed if each.shape.possible is possible]
        if mine:
            look = {"name": title, "color": colour, "opacity": 0.35, "showlegend": True}
            data.append({**_mesh(mine), **look})
    rings = [ring for each in placed for ring in each.rings()]  # a needle has no surface to see
    data.append({**_polylines(rings, "identified", PREDICTED, 2), "showlegend": False})
    data.append(_centres(placed, robot.body_names))
    if nominal is not None:
        rings = [ring for each in _placed_ellipsoids(nominal, R, p) for ring in each.rings()]
        data.append(_polylines(rings, "nominal", NOMINAL, 2))
    layout = _space(height)
    rings = [ring for each in placed for ring in each.rings()]
    _fit_frame(layout, [p, *bones(robot, q)], rings)
    return {"data": data, "layout": layout}


def _fit_frame(
    layout: dict[str, Any], robot: Sequence[np.ndarray], rings: Sequence[np.ndarray]
) -> None:
    """Set the frame to the robot and its bodies; of bodies far larger than it, a part is shown."""
    skeleton, all_points = np.concatenate(robot), np.concatenate([*robot, *rings])
    low, high = all_points.min(axis=0), all_points.max(axis=0)
    size = max(float(np.ptp(skeleton, axis=0).max()), NEAR)
    if float(np.max(high - low)) <= LARGE * size:
        return
    reach = 0.5 * (LARGE - 1.0) * size
    low = np.maximum(low, skeleton.min(axis=0) - reach)
    high = np.minimum(high, skeleton.max(axis=0) + reach)
    for k, name in enumerate("xyz"):
        layout["scene"][f"{name}axis"]["range"] = linear([low[k], high[k]])


@dataclass(frozen=True, eq=False)
class _Placed:
    """An ellipsoid in the world."""

    body: int
    shape: Ellipsoid
    R: np.ndarray
    p: np.ndarray

    def points(self, unit: np.ndarray) -> np.ndarray:
        """Return points of the unit ball on the ellipsoid, in the world."""
        local = self.shape.centre + (unit * self.shape.radii) @ self.shape.axes.T
        return np.asarray(local @ self.R.T + self.p)

    def rings(self) -> list[np.ndarray]:
        """Return the three principal sections."""
        angle, out = np.linspace(0.0, 2.0 * np.pi, RING), []
        for k in range(3):
            unit = np.zeros((RING, 3))
            unit[:, (k + 1) % 3], unit[:, (k + 2) % 3] = np.cos(angle), np.sin(angle)
            out.append(self.points(unit))
        return out


def _placed_ellipsoids(theta: np.ndarray, R: np.ndarray, p: np.ndarray) -> list[_Placed]:
    """Return the ellipsoids of all bodies that have mass."""
    shapes = map(ellipsoid, np.asarray(theta, dtype=float).reshape(-1, parameters.SIZE))
    return [_Placed(b, each, R[b], p[b]) for b, each in enumerate(shapes) if each is not None]


def _polylines(parts: Sequence[np.ndarray], name: str, colour: str, width: int) -> Trace:
    """Return polylines with gaps between them."""
    gap = np.full((1, 3), np.nan)
    joined = np.concatenate([piece for part in parts for piece in (part, gap)]) if parts else gap
    style = {"line": {"color": colour, "width": width}, "hoverinfo": "skip"}
    return {"type": "scatter3d", "mode": "lines", **_points(joined), "name": name, **style}


def _space(height: int) -> dict[str, Any]:
    """Return the layout of a figure in space."""
    axes = {
        f"{name}axis": {"title": {"text": f"{name} [m]"}, "showspikes": False, "nticks": 6}
        for name in "xyz"
    }
    camera = {"eye": {"x": 2.0, "y": -2.0, "z": 1.1}}
    return {
        "height": height,
        "margin": {"l": 0, "r": 0, "t": 30, "b": 0},
        "scene": {**axes, "aspectmode": "data", "camera": camera, "dragmode": "orbit"},
        "legend": {"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom"},
    }


# -- a robot that moves ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Pose:
    """A stick figure in the world."""

    points: np.ndarray  # (3·lines, 3) [m] ends of the lines, NaN between them
    rotation: np.ndarray  # (bodies, 3, 3)
    position: np.ndarray  # (bodies, 3) [m]


class Skeleton:
    """The stick figure in motion: which points of which bodies its lines join."""

    def __init__(self, robot: Robot) -> None:
        self.robot = robot
        q = robot.neutral + 0.3  # nowhere in particular, so that no two origins coincide by chance
        for _, at in robot.tree.quaternions:
            q[at : at + 4] = robot.neutral[at : at + 4]
        R, p = rigid_body.body_frames(robot, q)
        ends = np.array(bones(robot, q)).reshape(-1, 3)
        # The end of a bone belongs to the body in whose frame it stands still: found by moving the
        # robot a little.
        other = q.copy()
        for node in robot.tree.independent:
            if node.kind.nq == 1:
                other[robot.tree.q_index[node.name]] += 0.07
        moved = np.array(bones(robot, other)).reshape(-1, 3)
        R2, p2 = rigid_body.body_frames(robot, other)
        (R, p), (R2, p2) = _with_world(R, p), _with_world(R2, p2)
        local = np.einsum("bji,ebj->ebi", R, ends[:, None] - p)  # (ends, 1 + bodies, 3)
        left = np.linalg.norm(np.einsum("bij,ebj->ebi", R2, local) + p2 - moved[:, None], axis=2)
        self._body = np.argmin(left, axis=1)
        self._local = local[np.arange(len(ends)), self._body]

    def pose(self, q: np.ndarray) -> Pose:
        """Return the robot at q."""
        R, p = rigid_body.body_frames(self.robot, q)
        rotation, origin = _with_world(R, p)
        ends = np.einsum("eij,ej->ei", rotation[self._body], self._local) + origin[self._body]
        points = np.full((len(ends) // 2, 3, 3), np.nan)
        points[:, :2] = ends.reshape(-1, 2, 3)
        return Pose(points.reshape(-1, 3), R, p)


def _with_world(R: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return frames of the bodies with the world's before them."""
    return np.concatenate([np.eye(3)[None], R]), np.concatenate([np.zeros((1, 3)), p])


def moving_figure(
    robot: Robot,
    q: np.ndarray,
    theta: np.ndarray,
    skeleton: Skeleton | None = None,
    *,
    held: tuple[int, np.ndarray, str] | None = None,
) -> tuple[Drawing, list[int]]:
    """Return the robot at q as trace 0, then one ellipsoid per body, and which bodies these are.

    Ellipsoids are in the BODY's frame, to be placed by its pose. held: a body on top of another:
    which one carries it, its ten numbers in that frame, and its title.
    """
    points = (skeleton or Skeleton(robot)).pose(np.asarray(q, dtype=float)).points
    data = [{**_polylines([], "robot", GREY, 7), **_points(points)}]
    around, up = (AROUND, UP) if len(robot.body_names) <= MANY else COARSE
    frames = np.broadcast_to(np.eye(3), (len(robot.body_names), 3, 3))
    placed = _placed_ellipsoids(theta, frames, np.zeros((len(robot.body_names), 3)))
    for each in placed:
        possible = each.shape.possible
        title, colour = ("identified", PREDICTED) if possible else ("impossible", WRONG)
        look = {"name": title, "color": colour, "opacity": 0.35}
        text = shown(robot.body_names[each.body])
        data.append({**_mesh([each], around=around, up=up), **look, "text": text})
    bodies = [each.body for each in placed]
    load = None if held is None else ellipsoid(held[1])
    if held is not None and load is not None:
        seen = replace(load, radii=np.maximum(load.radii, THINNEST * load.radii[0]))
        shape = _Placed(held[0], seen, np.eye(3), np.zeros(3))
        look = {"name": held[2], "color": NOMINAL, "opacity": 0.6, "text": shown(held[2])}
        data.append({**_mesh([shape], around=around, up=up), **look})
        bodies.append(held[0])
    return {"data": data, "layout": _space(560)}, bodies


def _points(points: np.ndarray) -> dict[str, list[float | None]]:
    return {name: linear(points[:, k]) for k, name in enumerate("xyz")}


def _mesh(placed: Sequence[_Placed], *, around: int = AROUND, up: int = UP) -> Trace:
    """Return all ellipsoids as one surface of triangles, however many bodies there are."""
    sphere, faces = _sphere(around, up)
    points = np.concatenate([each.points(sphere) for each in placed])
    corners = np.concatenate([faces + k * len(sphere) for k in range(len(placed))])
    triangles = {name: corners[:, k].tolist() for k, name in enumerate("ijk")}
    light = {"ambient": 0.7, "diffuse": 0.6, "specular": 0.1}
    look: Trace = {"hoverinfo": "skip", "lighting": light}
    return {"type": "mesh3d", **_points(points), **triangles, **look}


def _sphere(around: int = AROUND, up: int = UP) -> tuple[np.ndarray, np.ndarray]:
    """Return points (k, 3) and triangles (f, 3) of the unit ball."""
    heights = np.linspace(0.0, np.pi, up)
    angles = np.linspace(0.0, 2.0 * np.pi, around, endpoint=False)
    s, c = np.sin(heights[1:-1, None]), np.cos(heights[1:-1, None])
    body = np.stack(
        [s * np.cos(angles), s * np.sin(angles), np.broadcast_to(c, (up - 2, around))], axis=-1
    ).reshape(-1, 3)
    points = np.concatenate([[[0.0, 0.0, 1.0]], body, [[0.0, 0.0, -1.0]]])
    last, faces = len(points) - 1, []
    for k in range(around):
        n = (k + 1) % around
        faces += [(0, 1 + k, 1 + n), (last, last - around + n, last - around + k)]
        for row in range(up - 3):
            a, b = 1 + row * around, 1 + (row + 1) * around
            faces += [(a + k, b + k, b + n), (a + k, b + n, a + n)]
    return points, np.array(faces)


def _centres(placed: Sequence[_Placed], names: Sequence[str]) -> Trace:
    """Return centres of mass, labelled with name, mass and size of their body."""
    points = np.array([each.R @ each.shape.centre + each.p for each in placed]).reshape(-1, 3)
    text = []
    for each in placed:
        semi_axes = " × ".join(f"{1000.0 * radius:.3g}" for radius in each.shape.radii)
        lines = [shown(names[each.body]), f"{each.shape.mass:.3g} kg", f"semi-axes {semi_axes} mm"]
        lines += [] if each.shape.possible else ["not physically consistent"]
        text.append("<br>".join(lines))
    colours = [PREDICTED if each.shape.possible else WRONG for each in placed]
    look = {"marker": {"size": 3, "color": colours}, "text": text, "showlegend": False}
    base = {"type": "scatter3d", "mode": "markers", **_points(points), "name": "centre of mass"}
    return {**base, **look, "hovertemplate": "%{text}<extra></extra>"}
