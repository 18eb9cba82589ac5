"""Read the geometry of a robot's links from its file: points on their outlines.

Collision and visual geometry count alike, since either may show a part of a link. Meshes are read
only from where a robot file may point to (`MeshFolder`); all that cannot be read becomes a note.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import numpy as np

from thetahat.errors import ThetahatError, known
from thetahat.model.io.mesh_vertices import Unreadable, mesh_vertices
from thetahat.model.io.urdf import placement
from thetahat.model.io.xml_reader import Document, Element, number, read_xml, shown, vector
from thetahat.model.robot import Robot

MAX_TOTAL = 256 * 2**20  # [bytes] of all meshes of a robot
RING = 16  # points around a cylinder
BALL = 64  # points on a sphere
_ONES = (1.0, 1.0, 1.0)


@dataclass(frozen=True, eq=False)
class LinkShapes:
    """Outlines of links, and what could not be read."""

    points: dict[str, np.ndarray] = field(default_factory=dict)  # by link, in its frame (…, 3) [m]
    notes: tuple[str, ...] = ()


def link_shapes(robot: Robot) -> LinkShapes:
    """Return the outlines of a robot's links; none for a robot that was not read from a file."""
    if robot.source is None:
        return LinkShapes()
    try:
        document = read_xml(robot.source)
        if document.root.tag == "mujoco":
            from thetahat.model.io.mjcf_geoms import read_geoms  # needs MuJoCo

            return read_geoms(document)
        return _urdf_shapes(document)
    except ThetahatError as error:
        return LinkShapes(notes=(f"no geometry was read: {error}",))


# -- meshes ----------------------------------------------------------------------------------------


class MeshFolder:
    """The folders that a robot file may take meshes from, and what was read of them.

    A plain name is sought in the file's own folder. `package://NAME/…` is sought in those of the
    file's parent folders that are called NAME. Nothing outside of these is opened: neither by `..`,
    nor through symlinks, nor as `file://` or an absolute path.
    """

    def __init__(self, file: Path) -> None:
        self.file = file.resolve()
        self.missing: list[str] = []
        self.left_out: list[str] = []  # a sentence each
        self._read: dict[Path, np.ndarray | None] = {}
        self._bytes = 0

    def vertices(self, name: str, place: str, folder: Path | None = None) -> np.ndarray | None:
        """Return the vertices of the mesh of this name; None, with a note, where there are none.

        place: of the element that names it. folder: where plain names are sought, beneath the
            file's own.
        """
        path = self._find(name.strip().replace("\\", "/"), place, folder)
        if path is None:
            return None
        if path not in self._read:
            self._read[path] = self._vertices(path, name, place)
        return self._read[path]

    def _find(self, name: str, place: str, folder: Path | None) -> Path | None:
        own = self.file.parent
        if name.startswith("package://"):
            package, _, rest = name.removeprefix("package://").lstrip("/").partition("/")
            roots = [each for each in self.file.parents if each.name == package]
            starts = [(root, root) for root in roots]
        else:
            rest, starts = name, [(own, folder or own)]
        parts = PurePosixPath(rest).parts
        if not rest or "://" in rest or rest.startswith(("file:", "/")) or ".." in parts:
            self.left_out.append(f"{place}: mesh {shown(name)} is not in the robot's folder")
            return None
        for root, start in starts:
            try:
                path = (start / rest).resolve()
                if path.is_relative_to(root.resolve()) and path.is_file():
                    return path
            except (OSError, RuntimeError, ValueError):
                continue
        self.missing.append(name)
        return None

    def _vertices(self, path: Path, name: str, place: str) -> np.ndarray | None:
        try:
            self._bytes += path.stat().st_size
            if self._bytes > MAX_TOTAL:
                raise Unreadable(f"the robot's meshes have more than {MAX_TOTAL // 2**20} MiB")
            return mesh_vertices(path)
        except (Unreadable, OSError) as error:
            self.left_out.append(f"{place}: mesh {shown(name)} cannot be read: {error}")
            return None

    def notes(self) -> tuple[str, ...]:
        """What was not read, in a few sentences."""
        out = list(dict.fromkeys(self.left_out))
        missing = list(dict.fromkeys(self.missing))
        if missing:
            out.append(
                f"{len(missing)} meshes are not there: {known(map(shown, missing), 3)}; links"
                " without geometry get a region around their joints"
            )
        return tuple(out)


# -- URDF ------------------------------------------------------------------------------------------


def _urdf_shapes(document: Document) -> LinkShapes:
    folder = MeshFolder(document.path)
    points: dict[str, np.ndarray] = {}
    for link in document.root.findall("link"):
        outlines = [
            outline
            for kind in ("collision", "visual")
            for element in link.findall(kind)
            if (outline := _outline(element, folder)) is not None
        ]
        if outlines:
            points[link.attrib.get("name", "")] = np.vstack(outlines)
    return LinkShapes(points, folder.notes())


def _outline(element: Element, folder: MeshFolder) -> np.ndarray | None:
    """Points of a `<collision>` or `<visual>` in its link's frame; None where it has no shape."""
    geometry = element.find("geometry")
    if geometry is None:
        return None
    try:
        rotation, translation = placement(element)
        for shape in geometry.children:
            points = _shape(shape, folder)
            if points is not None and np.all(np.isfinite(points)):
                return np.asarray(points @ rotation.T + translation)
    except ThetahatError as error:  # what dynamics do not need may be malformed
        folder.left_out.append(str(error))
    return None


def _shape(shape: Element, folder: MeshFolder) -> np.ndarray | None:
    match shape.tag:
        case "mesh":
            place = f"line {shape.line}"
            vertices = folder.vertices(shape.attrib.get("filename", ""), place)
            scale = np.array(vector(shape, "scale", 3, _ONES))
            return None if vertices is None else vertices * scale
        case "box":
            return box(0.5 * np.array(vector(shape, "size", 3)))
        case "sphere":
            return ellipsoid(np.full(3, number(shape, "radius")))
        case "cylinder":
            return cylinder(number(shape, "radius"), 0.5 * number(shape, "length"))
        case "capsule":
            return capsule(number(shape, "radius"), 0.5 * number(shape, "length"))
    return None


# -- primitives, about their own centres -----------------------------------------------------------


def box(half: np.ndarray) -> np.ndarray:
    """Corners of a box with these half sides."""
    signs = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
    return np.asarray(signs * half)


def cylinder(radius: float, half: float) -> np.ndarray:
    """Points around the ends of a cylinder along z."""
    turn = 2.0 * np.pi * np.arange(RING) / RING
    ring = np.column_stack([radius * np.cos(turn), radius * np.sin(turn), np.full(RING, half)])
    return np.vstack([ring, ring * [1.0, 1.0, -1.0]])


def ellipsoid(radii: np.ndarray) -> np.ndarray:
    """Points on an ellipsoid with these semi-axes."""
    k = np.arange(BALL) + 0.5
    z = 1.0 - 2.0 * k / BALL
    turn = np.pi * (1.0 + np.sqrt(5.0)) * k
    ring = np.sqrt(1.0 - z**2)
    spiral = np.column_stack([ring * np.cos(turn), ring * np.sin(turn), z])
    return np.asarray(np.vstack([spiral, np.eye(3), -np.eye(3)]) * radii)


def capsule(radius: float, half: float) -> np.ndarray:
    """Points on a cylinder along z with half balls at its ends; half: of the cylinder's length."""
    ball = ellipsoid(np.full(3, radius))
    return np.vstack([ball + [0.0, 0.0, half], ball - [0.0, 0.0, half]])


PRIMITIVES: dict[str, Callable[[np.ndarray], np.ndarray]] = {  # of MJCF, from their `size`
    "sphere": lambda size: ellipsoid(np.full(3, size[0])),
    "capsule": lambda size: capsule(float(size[0]), float(size[1])),
    "ellipsoid": ellipsoid,
    "cylinder": lambda size: cylinder(float(size[0]), float(size[1])),
    "box": box,
}
