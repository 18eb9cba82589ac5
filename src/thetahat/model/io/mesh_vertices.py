"""Read the vertices of mesh files: STL (binary and text), OBJ and COLLADA.

Regions need vertices alone, so faces, normals, materials and textures are skipped, and no file but
the mesh itself is opened. What cannot be read is `Unreadable`, with a reason, never anything else.
"""

from __future__ import annotations

import stat
from pathlib import Path
from typing import NoReturn
from xml.parsers import expat

import numpy as np

from thetahat.model.io.xml_reader import MAX_DEPTH, MAX_ELEMENTS

MAX_BYTES = 64 * 2**20  # of one mesh; the largest of 773 meshes of 39 robots has 20 MB
SUFFIXES = (".stl", ".obj", ".dae")
_STL_HEADER, _STL_FACET = 84, 50  # [bytes]
_VERTICES = slice(3, 12)  # of the twelve numbers of a facet, the first three are its normal


class Unreadable(ValueError):
    """A mesh that cannot be read; the text says why."""


def mesh_vertices(path: Path) -> np.ndarray:
    """Return the vertices of a mesh file, (vertices, 3), in the file's axes and, for COLLADA, in
    metres.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise Unreadable(f"{suffix or 'a file without suffix'} is not read, only STL, OBJ and DAE")
    content = _content(path)
    try:
        points = {".stl": _stl, ".obj": _obj, ".dae": _collada}[suffix](content)
    except (ValueError, OverflowError, expat.ExpatError, LookupError) as error:
        raise Unreadable(str(error) or type(error).__name__) from None
    points = np.asarray(points, dtype=float).reshape(-1, 3)
    if not len(points):
        raise Unreadable("it has no vertices")
    if not np.all(np.isfinite(points)) or np.max(np.abs(points)) > 1e9:
        raise Unreadable("a vertex is not finite, or farther than 1e9 off")
    return points


def _content(path: Path) -> bytes:
    try:
        state = path.stat()
        if not stat.S_ISREG(state.st_mode):
            raise Unreadable("it is not a regular file")
        if state.st_size > MAX_BYTES:
            raise Unreadable(f"it is larger than {MAX_BYTES // 2**20} MiB")
        with path.open("rb") as file:
            return file.read(MAX_BYTES)
    except OSError as error:
        raise Unreadable(error.strerror or "it cannot be opened") from None


# -- STL and OBJ -----------------------------------------------------------------------------------


def _stl(content: bytes) -> np.ndarray:
    """Binary where the size says so: binary files may begin with `solid`, too."""
    if len(content) >= _STL_HEADER:
        count = int.from_bytes(content[_STL_HEADER - 4 : _STL_HEADER], "little")
        if len(content) >= _STL_HEADER + _STL_FACET * count and count:
            facets = np.frombuffer(
                content, dtype=np.dtype([("numbers", "<f4", 12), ("attribute", "<u2")]),
                count=count, offset=_STL_HEADER,
            )  # fmt: skip
            return np.asarray(facets["numbers"][:, _VERTICES].reshape(-1, 3))
    if not content.lstrip()[:5].lower() == b"solid":
        raise Unreadable("it is cut short, or no STL")
    return _numbers_after(content, b"vertex")


def _obj(content: bytes) -> np.ndarray:
    return _numbers_after(content, b"v")


def _numbers_after(content: bytes, key: bytes) -> np.ndarray:
    """The three numbers after a keyword at the start of a line."""
    rows = []
    for line in content.splitlines():
        words = line.split(None, 4)
        if words and words[0] == key:
            rows.append([float(word) for word in words[1:4]])
    if any(len(row) != 3 for row in rows):
        raise Unreadable("a vertex does not have three coordinates")
    return np.array(rows, dtype=float)


# -- COLLADA ---------------------------------------------------------------------------------------


def _collada(content: bytes) -> np.ndarray:
    """Vertices of all geometries where the scene's nodes put them, in metres.

    The file's up axis is not applied: URDF tools take its axes as they are.
    """
    reader = _Collada()
    reader.parser.Parse(content, True)
    placed = [
        reader.positions[name] @ at[:3, :3].T + at[:3, 3]
        for name, at in reader.placed
        if name in reader.positions
    ]
    if not placed:  # no scene: the geometries as they are
        placed = list(reader.positions.values())
    return reader.metre * np.vstack(placed) if placed else np.zeros((0, 3))


class _Collada:
    """What expat tells of a COLLADA file: positions by geometry, and where each is placed."""

    def __init__(self) -> None:
        self.metre = 1.0
        self.positions: dict[str, np.ndarray] = {}  # by the geometry's id
        self.placed: list[tuple[str, np.ndarray]] = []  # geometry, pose in the scene (4, 4)
        self._open: list[str] = []
        self._text: list[str] | None = None
        self._geometry, self._source, self._input = "", "", ""
        self._arrays: dict[str, np.ndarray] = {}  # of this geometry, by their source's id
        self._poses = [np.eye(4)]
        self._count = 0
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters
        self.parser.StartDoctypeDeclHandler = self._refuse
        self.parser.EntityDeclHandler = self._refuse

    def _refuse(self, *_: object) -> NoReturn:
        raise Unreadable("it declares a document type or entities")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if self._count > MAX_ELEMENTS or len(self._open) >= MAX_DEPTH:
            raise Unreadable("it has too many elements, or too deep ones")
        tag = tag.rpartition(":")[2]
        self._open.append(tag)
        match tag:
            case "unit":
                self.metre = float(attributes.get("meter", "1"))
            case "geometry":
                self._geometry, self._arrays, self._input = attributes.get("id", ""), {}, ""
            case "source":
                self._source = attributes.get("id", "")
            case "input" if attributes.get("semantic") == "POSITION":
                self._input = attributes.get("source", "").removeprefix("#")
            case "node":
                self._poses.append(self._poses[-1])
            case "instance_geometry" if "library_nodes" not in self._open:
                self.placed.append((attributes.get("url", "").removeprefix("#"), self._poses[-1]))
        wanted = tag == "float_array" and "geometry" in self._open
        if wanted or (tag in _PLACES and self._open[-2:-1] == ["node"]):
            self._text = []

    def _characters(self, text: str) -> None:
        if self._text is not None:
            self._text.append(text)

    def _end(self, tag: str) -> None:
        tag = self._open.pop()
        numbers = None
        if self._text is not None and (tag == "float_array" or tag in _PLACES):
            numbers, self._text = np.array("".join(self._text).split(), dtype=float), None
        if tag == "float_array" and numbers is not None:
            self._arrays[self._source] = numbers
        elif numbers is not None:
            self._poses[-1] = self._poses[-1] @ _PLACES[tag](numbers)
        elif tag == "node":
            self._poses.pop()
        elif tag == "geometry" and self._input in self._arrays:
            flat = self._arrays[self._input]
            self.positions[self._geometry] = flat[: len(flat) // 3 * 3].reshape(-1, 3)


def _matrix(numbers: np.ndarray) -> np.ndarray:
    return numbers.reshape(4, 4)


def _translate(numbers: np.ndarray) -> np.ndarray:
    out = np.eye(4)
    out[:3, 3] = numbers.reshape(3)
    return out


def _scale(numbers: np.ndarray) -> np.ndarray:
    return np.diag([*numbers.reshape(3), 1.0])


def _rotate(numbers: np.ndarray) -> np.ndarray:
    """By an axis and an angle in degrees."""
    x, y, z, angle = numbers.reshape(4)
    out, length = np.eye(4), float(np.sqrt(x * x + y * y + z * z))
    if length > 0.0:
        cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]]) / length
        turn = np.deg2rad(angle)
        out[:3, :3] += np.sin(turn) * cross + (1.0 - np.cos(turn)) * cross @ cross
    return out


_PLACES = {"matrix": _matrix, "translate": _translate, "rotate": _rotate, "scale": _scale}
