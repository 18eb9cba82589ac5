"""Read the collision geometry of a robot's links: convex pieces that hold all of it.

A piece is the hull of a few points, widened by a radius: a ball is one point, a capsule two. Round
sides of cylinders and ellipsoids are held from outside, and a mesh by its own hull, so that where
pieces keep apart, what the file draws does. A link without collision geometry is held by what it
shows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from thetahat.errors import ThetahatError
from thetahat.model.io.mesh_folder import MeshFolder
from thetahat.model.io.primitives import RING, box, cylinder, ellipsoid
from thetahat.model.io.urdf import placement
from thetahat.model.io.xml_reader import Document, Element, number, read_xml, vector
from thetahat.model.robot import Robot

_ROUND = 1.0 / np.cos(np.pi / RING)  # a polygon around a circle, over one inside of it
# the ball inside of the hull of an ellipsoid's points is 1.053 times smaller
_BALL = 1.06
_ONES = (1.0, 1.0, 1.0)
_ORIGIN = np.zeros((1, 3))


@dataclass(frozen=True, eq=False)
class ConvexPiece:
    """The hull of points, widened by a radius."""

    points: np.ndarray  # (k, 3) in the link's frame [m]
    radius: float = 0.0  # [m]

    def placed(self, rotation: np.ndarray, translation: np.ndarray) -> ConvexPiece:
        """Return the piece in the frame that its own has this pose in."""
        return ConvexPiece(self.points @ rotation.T + translation, self.radius)


@dataclass(frozen=True, eq=False)
class CollisionGeometry:
    """Convex pieces of links, and what could not be read."""

    pieces: dict[str, tuple[ConvexPiece, ...]] = field(default_factory=dict)  # by link
    notes: tuple[str, ...] = ()


def collision_geometry(robot: Robot) -> CollisionGeometry:
    """Return the convex pieces of a robot's links; none for one that was not read from a file."""
    if robot.source is None:
        return CollisionGeometry()
    try:
        document = read_xml(robot.source)
        folder = MeshFolder(document.path)
        if document.root.tag == "mujoco":
            pieces = _mjcf_pieces(document, folder)
        else:
            pieces = _urdf_pieces(document, folder)
    except ThetahatError as error:
        return CollisionGeometry(notes=(f"no collision geometry was read: {error}",))
    notes = tuple(
        note.replace("get a region around their joints", "are capsules between their joints")
        for note in folder.notes()
    )
    return CollisionGeometry(pieces, notes)


def _sound(piece: ConvexPiece | None) -> bool:
    return piece is not None and bool(np.all(np.isfinite(piece.points)))


# -- MJCF ------------------------------------------------------------------------------------------


def _mjcf_pieces(document: Document, folder: MeshFolder) -> dict[str, tuple[ConvexPiece, ...]]:
    from thetahat.model.io.mjcf_geoms import placed_geoms  # needs MuJoCo

    collision: dict[str, list[ConvexPiece]] = {}
    visual: dict[str, list[ConvexPiece]] = {}
    for geom in placed_geoms(document, folder):
        piece = ConvexPiece(geom.size) if geom.kind == "mesh" else _primitive(geom.kind, geom.size)
        kind = collision if geom.collides else visual
        kind.setdefault(geom.body, []).append(piece.placed(geom.rotation, geom.translation))
    return {name: tuple(pieces) for name, pieces in {**visual, **collision}.items()}


def _primitive(kind: str, size: np.ndarray) -> ConvexPiece:
    """A primitive about its own centre, from the `size` of MJCF."""
    match kind:
        case "sphere":
            return ConvexPiece(_ORIGIN, float(size[0]))
        case "capsule":
            return ConvexPiece(
                np.array([[0.0, 0.0, -size[1]], [0.0, 0.0, size[1]]]), float(size[0])
            )
        case "ellipsoid":
            return ConvexPiece(_BALL * ellipsoid(size))
        case "cylinder":
            return ConvexPiece(cylinder(_ROUND * float(size[0]), float(size[1])))
    return ConvexPiece(box(size))


# -- URDF ------------------------------------------------------------------------------------------


def _urdf_pieces(document: Document, folder: MeshFolder) -> dict[str, tuple[ConvexPiece, ...]]:
    out: dict[str, tuple[ConvexPiece, ...]] = {}
    for link in document.root.findall("link"):
        for kind in ("visual", "collision"):  # the latter replaces the former
            read = [_urdf_piece(element, folder) for element in link.findall(kind)]
            pieces = tuple(piece for piece in read if piece is not None and _sound(piece))
            if pieces:
                out[link.attrib.get("name", "")] = pieces
    return out


def _urdf_piece(element: Element, folder: MeshFolder) -> ConvexPiece | None:
    geometry = element.find("geometry")
    if geometry is None:
        return None
    try:
        rotation, translation = placement(element)
        for shape in geometry.children:
            piece = _shape(shape, folder)
            if piece is not None:
                return piece.placed(rotation, translation)
    except ThetahatError as error:  # what dynamics do not need may be malformed
        folder.left_out.append(str(error))
    return None


def _shape(shape: Element, folder: MeshFolder) -> ConvexPiece | None:
    match shape.tag:
        case "mesh":
            vertices = folder.vertices(shape.attrib.get("filename", ""), f"line {shape.line}")
            scale = np.array(vector(shape, "scale", 3, _ONES))
            return None if vertices is None else ConvexPiece(vertices * scale)
        case "box":
            return _primitive("box", 0.5 * np.array(vector(shape, "size", 3)))
        case "sphere":
            return _primitive("sphere", np.array([number(shape, "radius")]))
        case "cylinder" | "capsule":
            size = np.array([number(shape, "radius"), 0.5 * number(shape, "length")])
            return _primitive(shape.tag, size)
    return None
