"""Resolve the files of an MJCF model: includes inlined, meshes read, nothing outside the folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import quoteattr

from thetahat.errors import MalformedInput, RefusedForSafety
from thetahat.model.io.asset_roots import asset_roots
from thetahat.model.io.xml_reader import (
    MAX_ELEMENTS,
    Document,
    Element,
    label,
    parse,
    read_xml,
    required,
    shown,
)

MAX_NESTING = 490  # MuJoCo's XML reader stops at 500
MAX_FILES = 500
MAX_CHAIN = 50  # files that include one another in a row
MAX_MESH = 64 * 2**20  # [bytes]; MuJoCo's own limit of 200,000 faces is 10 MB in STL

# the files that led to an element, in resolved folders: the main file first
Chain = tuple[Path, ...]


@dataclass(frozen=True, eq=False)
class Folder:
    """The folder of the main file, outside which nothing is read."""

    main: Path  # as the user gave it, for errors
    path: Path  # resolved
    # read so far: resolved → as errors and elements name it
    files: dict[Path, Path] = field(default_factory=dict)
    meshes: set[Path] = field(default_factory=set)  # read so far
    # source and offset of each <include> or <model>, and the file it led to
    named: list[tuple[Path, int, Path]] = field(default_factory=list)
    # files that count as if they were in the folder, by their resolved paths
    unsaved: Mapping[Path, bytes] = field(default_factory=dict)

    @staticmethod
    def of(document: Document, unsaved: Mapping[Path, bytes] | None = None) -> Folder:
        """The folder of a document; `unsaved` are files to be read as if they were in it."""
        return Folder(
            document.path, resolved(document.path.parent, document.root), unsaved=unsaved or {}
        )

    @property
    def start(self) -> Chain:
        """The chain of the main file itself, which may be a symlink: what it names is sought beside
        the link, as MuJoCo does.
        """
        return (self.path / self.main.name,)

    def find(
        self, element: Element, bases: list[Path], what: str, allowed: tuple[Path, ...] = ()
    ) -> Path | None:
        """The file an element names, from the first of the bases that has it; None where there is
        none. Refuses to leave the folder and those that are allowed beside it.
        """
        name = required(element, "file").strip().replace("\\", "/")
        for base in bases:
            path = resolved(base / name, element)
            if not any(path.is_relative_to(root) for root in (self.path, *allowed)):
                also = " or allow its folder with --asset-root" if what == "mesh" else ""
                raise RefusedForSafety(
                    f"{element.place}: {what} {shown(name)} leaves the folder of"
                    f" {label(self.main)}; copy it into that folder{also}"
                )
            if path in self.unsaved or path.is_file():
                return path
        return None

    def read(self, element: Element, base: Path, chain: Chain) -> tuple[Document, Chain]:
        """Read the XML file that an `<include>` or `<model>` names: from `base`, as MuJoCo does,
        else from beside the naming file.
        """
        path = self.find(element, [base, chain[-1].parent], f"<{element.tag}>")
        name = shown(element.attrib["file"])
        if path is None:
            raise MalformedInput(
                f"{element.place}: file {name} is not there; put it beside the main file or correct"
                " its name"
            )
        if path in chain:
            raise RefusedForSafety(f"{element.place}: {name} includes itself; break the cycle")
        place = self.files.setdefault(path, self.main.parent / path.relative_to(self.path))
        self.named.append((element.source, element.offset, path))
        if len(self.files) > MAX_FILES or len(chain) > MAX_CHAIN:
            raise RefusedForSafety(
                f"{element.place}: more than {MAX_FILES} files, or {MAX_CHAIN} in a row, include"
                " one another; merge them"
            )
        text = self.unsaved.get(path)
        return read_xml(place) if text is None else Document(place, text, parse(text, place)), (
            *chain,
            path,
        )

    def mesh(self, element: Element, directories: list[Path]) -> tuple[bytes, str] | None:
        """Content and suffix of the mesh file that an element names, from the first of the
        directories that has it; None where there is none.
        """
        path = self.find(element, directories, "mesh", allowed=asset_roots())
        if path is None:
            return None
        try:
            if path.stat().st_size > MAX_MESH:
                name, limit = shown(element.attrib["file"]), MAX_MESH // 2**20
                raise RefusedForSafety(
                    f"{element.place}: mesh {name} is larger than {limit} MiB; simplify it or give"
                    " its body an <inertial>"
                )
            self.meshes.add(path)
            return path.read_bytes(), path.suffix.lower()
        except OSError as error:
            raise MalformedInput(
                f"{element.place}: mesh {shown(element.attrib['file'])} cannot be read"
                f" ({error.strerror}); check it"
            ) from None

    def inlined(self, document: Document, chain: Chain) -> Element:
        """A copy of the document's tree in which every `<include>` is replaced by what is in the
        file it names.
        """
        base = chain[-1].parent
        root = document.root.like(dict(document.root.attrib), parent=None)
        included: set[Path] = set()
        count = 0
        stack = [(document.root, root, chain, 1)]
        while stack:
            old, new, chain_here, depth = stack.pop()
            if depth > MAX_NESTING:
                raise RefusedForSafety(
                    f"{new.place}: elements are nested more than {MAX_NESTING} deep, which MuJoCo"
                    " cannot read; flatten the file"
                )
            pending = [(child, chain_here) for child in reversed(old.children)]
            while pending:
                child, chain_child = pending.pop()
                if child.tag == "include":
                    other, longer = self.read(child, base, chain_child)
                    # MuJoCo's rule, which also keeps includes from doubling at every level
                    if longer[-1] in included:
                        raise MalformedInput(
                            f"{child.place}: {shown(child.attrib['file'])} is included twice; MJCF"
                            " allows it once"
                        )
                    included.add(longer[-1])
                    pending.extend(
                        (grandchild, longer) for grandchild in reversed(other.root.children)
                    )
                    continue
                count += 1
                if count > MAX_ELEMENTS:
                    raise RefusedForSafety(
                        f"{child.place}: there are more than {MAX_ELEMENTS:,} elements with all"
                        " includes; split the model"
                    )
                copy = child.like(dict(child.attrib), parent=new)
                new.children.append(copy)
                stack.append((child, copy, chain_child, depth + 1))
        return root


def resolved(path: Path, element: Element) -> Path:
    """The path without symlinks; `element` is what names it."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: a symlink loop
        reason = getattr(error, "strerror", None) or "its symlinks run in a circle"
        raise MalformedInput(
            f"{element.place}: file {shown(path.name)} cannot be found ({reason}); check the path"
        ) from None


def serialise(root: Element) -> tuple[str, list[Element]]:
    """XML with one tag per line, and the element on each line."""
    out: list[str] = []
    lines: list[Element] = []
    stack: list[tuple[Element, bool]] = [(root, False)]
    while stack:
        element, closing = stack.pop()
        lines.append(element)
        if closing:
            out.append(f"</{element.tag}>")
            continue
        attributes = "".join(
            f" {name}={quoteattr(value)}" for name, value in element.attrib.items()
        )
        out.append(f"<{element.tag}{attributes}{'' if element.children else '/'}>")
        if element.children:
            stack.append((element, True))
            stack.extend((child, False) for child in reversed(element.children))
    return "\n".join(out), lines
