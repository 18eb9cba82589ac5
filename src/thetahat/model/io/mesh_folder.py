"""Where a robot file may take meshes from, and what is read of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import numpy as np

from thetahat.errors import known
from thetahat.model.io.mesh_vertices import Unreadable, mesh_vertices
from thetahat.model.io.xml_reader import shown

MAX_TOTAL = 256 * 2**20  # [bytes] of all meshes of a robot


@dataclass(frozen=True, eq=False)
class LinkShapes:
    """Outlines of links, and what could not be read."""

    points: dict[str, np.ndarray] = field(default_factory=dict)  # by link, in its frame (…, 3) [m]
    notes: tuple[str, ...] = ()


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
