"""Where a robot file may take meshes from, and what is read of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import numpy as np

from thetahat.errors import known
from thetahat.model.io.asset_roots import asset_roots
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
    nor through symlinks, nor as `file://` or an absolute path, unless it lies in a folder that the
    user allowed (asset_roots.py); packages are sought there, too.
    """

    def __init__(self, file: Path) -> None:
        self.file = file.resolve()
        self._allowed = asset_roots()
        self.missing: list[str] = []
        self.left_out: list[str] = []  # a sentence each
        self._read: dict[Path, np.ndarray | None] = {}
        self._bytes = 0

    def vertices(self, name: str, place: str, *beside: tuple[Path, str]) -> np.ndarray | None:
        """Return the vertices of the mesh of this name; None, with a note, where there are none.

        place: of the element that names it. beside: further folders, and the name there.
        """
        path = self._find(name.strip().replace("\\", "/"), place, beside)
        if path is None:
            return None
        if path not in self._read:
            self._read[path] = self._vertices(path, name, place)
        return self._read[path]

    def _find(self, name: str, place: str, beside: tuple[tuple[Path, str], ...]) -> Path | None:
        candidates, outside = [], False
        for start, rest in (*self._starts(name), *beside):
            try:
                path = (start / rest).resolve()
                if self._readable(path, start, rest):
                    candidates.append(path)
                else:
                    outside = True
            except (OSError, RuntimeError, ValueError):
                continue
        for path in candidates:
            if path.is_file():
                return path
        if outside and not candidates:
            self.left_out.append(
                f"{place}: mesh {shown(name)} is not in the robot's folder; allow its folder with"
                " --asset-root"
            )
        else:
            self.missing.append(name)
        return None

    def _starts(self, name: str) -> list[tuple[Path, str]]:
        """Return the folders in which a mesh of this name may be, and its path there."""
        if name.startswith("package://"):
            package, _, rest = name.removeprefix("package://").lstrip("/").partition("/")
            parents = (each for root in self._allowed for each in (root, *root.parents))
            named = [each for each in (*self.file.parents, *parents) if each.name == package]
            return [(each, rest) for each in (*named, *(root / package for root in self._allowed))]
        return [(self.file.parent, name.removeprefix("file://"))]

    def _readable(self, path: Path, start: Path, rest: str) -> bool:
        """Whether a resolved path may be opened: one in an allowed folder, or beneath `start`
        without detours.
        """
        if any(path.is_relative_to(root) for root in self._allowed):
            return True
        plain = rest and "://" not in rest and not rest.startswith(("file:", "/"))
        inside = plain and ".." not in PurePosixPath(rest).parts
        return bool(inside) and path.is_relative_to(start.resolve())

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
