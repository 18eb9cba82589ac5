"""Read the geometry of a robot's links from its file: points on their outlines.

Collision and visual geometry count alike, since either may show a part of a link. Meshes are read
only from where a robot file may point to (mesh_folder.py); all that cannot be read becomes a note.
"""

from __future__ import annotations

import numpy as np

from thetahat.errors import ThetahatError
from thetahat.model.io.mesh_folder import LinkShapes, MeshFolder
from thetahat.model.io.primitives import box, capsule, cylinder, ellipsoid
from thetahat.model.io.urdf import placement
from thetahat.model.io.xml_reader import Document, Element, number, read_xml, vector
from thetahat.model.robot import Robot

_ONES = (1.0, 1.0, 1.0)


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
