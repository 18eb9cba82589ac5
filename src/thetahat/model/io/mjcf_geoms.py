"""Read the geoms of an MJCF model: MuJoCo resolves classes, frames and orientations, and the meshes
are read here.

MuJoCo compiles a copy of the model that holds nothing but bodies and geoms, without joints, inertia
and assets: a mesh geom stands in it as a small ball at the mesh's pose. So it opens no file, and no
mesh can make it refuse the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np

from thetahat.errors import MalformedInput
from thetahat.model.io.mesh_folder import LinkShapes, MeshFolder
from thetahat.model.io.mjcf import MujocoModel, body_names, load_mujoco, rotation_of
from thetahat.model.io.mjcf_elements import check_numbers, class_defaults
from thetahat.model.io.mjcf_includes import Folder, serialise
from thetahat.model.io.primitives import PRIMITIVES
from thetahat.model.io.xml_reader import Document, Element, vector

KINDS = {2: "sphere", 3: "capsule", 4: "ellipsoid", 5: "cylinder", 6: "box"}  # of mjtGeom
CONTAINERS = ("body", "frame", "replicate", "geom")
COMPILER = ("angle", "eulerseq", "coordinate")  # attributes that geometry depends on
# of a geom: its size and pose
GEOM = ("class", "size", "fromto", "pos", "quat", "axisangle", "xyaxes", "zaxis", "euler", "mesh")
STAND_IN = {"type": "sphere", "size": "0.001"}
_ZERO, _ONE, _UNTURNED = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0), (1.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, eq=False)
class _Mesh:
    """A mesh asset: where its file is, and how its vertices are placed in a geom's frame."""

    element: Element
    attributes: dict[str, str]  # with those of its default class


@dataclass(frozen=True, eq=False)
class Geom:
    """A geom in its body's frame."""

    body: str
    kind: str  # one of KINDS, or "mesh"
    size: np.ndarray  # (3,) as MJCF states it [m]; of a mesh its vertices (…, 3), not yet placed
    rotation: np.ndarray  # (3, 3)
    translation: np.ndarray  # (3,) [m]
    collides: bool  # contype or conaffinity is not zero

    @property
    def outline(self) -> np.ndarray:
        """Points on it, (…, 3) [m]."""
        own = self.size if self.kind == "mesh" else PRIMITIVES[self.kind](self.size)
        return np.asarray(own @ self.rotation.T + self.translation)


def read_geoms(document: Document) -> LinkShapes:
    """Return the outlines of all bodies of an MJCF document, by their names."""
    folder = MeshFolder(document.path)
    points: dict[str, list[np.ndarray]] = {}
    for geom in placed_geoms(document, folder):
        points.setdefault(geom.body, []).append(geom.outline)
    return LinkShapes({name: np.vstack(parts) for name, parts in points.items()}, folder.notes())


def placed_geoms(document: Document, folder: MeshFolder) -> list[Geom]:
    """Return all geoms of an MJCF document that have a size, with meshes from this folder."""
    mujoco = load_mujoco(document)
    source = Folder.of(document)
    model = _Geoms(source.inlined(document, source.start))
    for element in model.root.iter():
        check_numbers(element)  # MuJoCo warns in a file of its own, in the working folder
    text, _ = serialise(model.root)
    try:
        compiled = mujoco.MjModel.from_xml_string(text)
    except Exception as error:  # whatever a foreign library raises, the user gets a sentence
        reason = " ".join(str(error).split())
        raise MalformedInput(
            f"MuJoCo refuses the geoms of {document.path.name}: {reason}"
        ) from None
    return _geoms(compiled, model, folder)


class _Geoms:
    """The model on its way to MuJoCo; `root` is what is left, `meshes` what geoms refer to."""

    def __init__(self, root: Element) -> None:
        self.root = root
        self.meshes: list[_Mesh | None] = [None]  # by the user data of a geom; 0: a primitive
        self.compiler = {
            name: value
            for element in root.findall("compiler")
            for name, value in element.attrib.items()
        }
        geoms = class_defaults(root, "geom")
        assets = self._assets(class_defaults(root, "mesh"))
        attached = any(element.tag == "attach" for element in root.iter())
        if attached:
            raise MalformedInput("geometry of attached models is not read")
        root.children = [
            child for child in root.children if child.tag in ("compiler", "default", "worldbody")
        ]
        for section in root.children:
            match section.tag:
                case "compiler":
                    section.attrib = {k: v for k, v in section.attrib.items() if k in COMPILER}
                    section.children = []
                case "default":
                    self._strip_defaults(section)
                case _:
                    self._strip_bodies(section, geoms, assets)

    def _assets(self, defaults: dict[str, dict[str, str]]) -> dict[str, _Mesh]:
        out = {}
        for section in self.root.findall("asset"):
            for mesh in section.findall("mesh"):
                inherited = defaults.get(mesh.attrib.get("class") or "main", {})
                file = mesh.attrib.get("file", "").replace("\\", "/")
                name = mesh.attrib.get("name") or PurePosixPath(file).stem
                out[name] = _Mesh(mesh, {**inherited, **mesh.attrib})
        return out

    def _strip_defaults(self, section: Element) -> None:
        for element in section.iter():
            if element.tag == "default":
                element.children = [c for c in element.children if c.tag in ("default", "geom")]
            elif element.tag == "geom":
                # type and mesh are stated at every geom
                element.attrib = {
                    k: v for k, v in element.attrib.items() if k in GEOM and k != "mesh"
                }
                element.children = []

    def _strip_bodies(
        self,
        world: Element,
        defaults: dict[str, dict[str, str]],
        assets: dict[str, _Mesh],
    ) -> None:
        stack = [(world, world.attrib.get("childclass"))]
        while stack:
            parent, inherited = stack.pop()
            inherited = parent.attrib.get("childclass", inherited)
            kept = [child for child in parent.children if child.tag in CONTAINERS]
            parent.children = [
                child
                for child in kept
                if child.tag != "geom" or self._keep_geom(child, inherited, defaults, assets)
            ]
            for child in parent.children:
                if child.tag == "geom":
                    continue
                if child.tag == "body":
                    for name in ("user", "mocap", "gravcomp", "sleep"):
                        child.attrib.pop(name, None)
                stack.append((child, inherited))

    def _keep_geom(
        self,
        geom: Element,
        inherited: str | None,
        defaults: dict[str, dict[str, str]],
        assets: dict[str, _Mesh],
    ) -> bool:
        """Whether a geom has an outline; makes a mesh's a stand-in."""
        own = geom.attrib.get("class", inherited) or "main"
        attributes = {**defaults.get(own, {}), **geom.attrib}
        kind = attributes.get("type", "sphere")
        marks = [attributes.get(name, "1").strip() for name in ("contype", "conaffinity")]
        collides = "0" if marks == ["0", "0"] else "1"
        geom.attrib = {k: v for k, v in geom.attrib.items() if k in GEOM and k != "mesh"}
        geom.children = []
        if "mesh" in attributes:
            if attributes["mesh"] not in assets:
                return False
            geom.attrib |= {**STAND_IN, "user": f"{len(self.meshes)} {collides}"}
            self.meshes.append(assets[attributes["mesh"]])
            return True
        geom.attrib |= {"type": kind, "user": f"0 {collides}"}
        return kind in PRIMITIVES


def _geoms(compiled: MujocoModel, model: _Geoms, folder: MeshFolder) -> list[Geom]:
    names, out = body_names(compiled), []
    for g in range(compiled.ngeom):
        mesh = model.meshes[int(compiled.geom_user[g, 0])]
        kind = "mesh" if mesh is not None else KINDS.get(int(compiled.geom_type[g]), "")
        if mesh is not None:
            size = _vertices(mesh, model.compiler, folder)
        else:
            size = compiled.geom_size[g].copy() if kind else None
        if size is None or not np.all(np.isfinite(size)):
            continue
        turn, at = rotation_of(compiled.geom_quat[g]), compiled.geom_pos[g].copy()
        collides = bool(compiled.geom_user[g, 1])
        out.append(Geom(names[int(compiled.geom_bodyid[g])], kind, size, turn, at, collides))
    return out


def _vertices(mesh: _Mesh, compiler: dict[str, str], folder: MeshFolder) -> np.ndarray | None:
    """Vertices of an asset in its geom's frame: R(refquat)ᵀ(vertex − refpos)·scale."""
    view = mesh.element.like(mesh.attributes, parent=mesh.element.parent)
    if "vertex" in mesh.attributes:
        words = mesh.attributes["vertex"].split()
        vertices = np.array(vector(view, "vertex", len(words))).reshape(-1, 3)
    else:
        file = mesh.attributes.get("file", "").replace("\\", "/")
        if compiler.get("strippath") == "true":
            file = PurePosixPath(file).name
        directory = (compiler.get("meshdir") or compiler.get("assetdir") or "").replace("\\", "/")
        name = str(PurePosixPath(directory) / file)
        # beside the file that names it, as MuJoCo does where the folder of meshes has none
        beside = (mesh.element.source.parent.resolve(), file)
        read = folder.vertices(name, f"line {mesh.element.line}", beside)
        if read is None:
            return None
        vertices = read
    turn = rotation_of(np.array(vector(view, "refquat", 4, _UNTURNED)))
    placed = (vertices - np.array(vector(view, "refpos", 3, _ZERO))) @ turn
    return np.asarray(placed * np.array(vector(view, "scale", 3, _ONE)))
