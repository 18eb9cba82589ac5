"""Read XML safely: no entities, no other files; size, depth and count capped; every element with
its line.

Built on expat's events rather than on an ElementTree, so that nothing is expanded or recursed into
before it is checked, and so that an error can say where in the file it is.
"""

from __future__ import annotations

import math
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn
from xml.parsers import expat

import numpy as np

from thetahat.errors import MalformedInput, RefusedForSafety, StorageError

MAX_BYTES = 16 * 2**20  # the largest robot file known to us has 0.5 MB
MAX_DEPTH = 1_000
MAX_ELEMENTS = 300_000  # 3,000 links of 100 elements each

_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_SMALLEST = 1e-100  # below, squares of a number are zero; so is the number
_NUMBER_LENGTH = 400  # characters; more digits than any double has
_CUT_SHORT = {
    expat.errors.codes[text]
    for text in (
        expat.errors.XML_ERROR_NO_ELEMENTS,
        expat.errors.XML_ERROR_UNCLOSED_TOKEN,
        expat.errors.XML_ERROR_UNCLOSED_CDATA_SECTION,
    )
}
_ENCODING = {
    expat.errors.codes[text]
    for text in (expat.errors.XML_ERROR_UNKNOWN_ENCODING, expat.errors.XML_ERROR_INCORRECT_ENCODING)
}


class Element:
    """One XML element: tag, attributes, child elements, and where it stands in its file."""

    __slots__ = ("attrib", "children", "end", "line", "offset", "parent", "source", "tag")

    def __init__(
        self,
        tag: str,
        attrib: dict[str, str],
        *,
        line: int,
        offset: int,
        source: Path,
        parent: Element | None,
    ) -> None:
        self.tag = tag
        self.attrib = attrib
        self.children: list[Element] = []
        self.line = line  # of the start tag, from 1
        self.offset = offset  # of the start tag in the file's bytes
        # of the closing tag, or behind a start tag that closes itself; −1: in no file
        self.end = -1
        self.source = source
        self.parent = parent

    def __repr__(self) -> str:
        return f"<{self.place}>"

    def like(
        self, attrib: dict[str, str], *, parent: Element | None, tag: str | None = None
    ) -> Element:
        """A new element without children that errors place where this one is."""
        line, offset, source = self.line, self.offset, self.source
        return Element(
            tag or self.tag, attrib, line=line, offset=offset, source=source, parent=parent
        )

    def find(self, tag: str) -> Element | None:
        """The first child with this tag, or None."""
        return next((child for child in self.children if child.tag == tag), None)

    def findall(self, tag: str) -> list[Element]:
        """The children with this tag, in file order."""
        return [child for child in self.children if child.tag == tag]

    def iter(self) -> Iterator[Element]:
        """This element and all below it, in file order."""
        stack = [self]
        while stack:
            element = stack.pop()
            yield element
            stack.extend(reversed(element.children))

    @property
    def path(self) -> str:
        """Where it stands in the tree, with names: ``robot 'panda'/link 'link1'/inertial/mass``;
        deep paths are shortened.
        """
        steps: list[str] = []
        element: Element | None = self
        while element is not None:
            name = element.attrib.get("name")
            steps.append(element.tag if name is None else f"{element.tag} {shown(name)}")
            element = element.parent
        steps.reverse()
        return "/".join(steps if len(steps) <= 6 else [*steps[:2], "…", *steps[-3:]])

    @property
    def place(self) -> str:
        """File, line and path, the beginning of every sentence about it."""
        return f"{label(self.source)}, line {self.line}, {self.path}"


@dataclass(frozen=True, eq=False)
class Document:
    """An XML file: where it is, its bytes as they are, and its root element."""

    path: Path
    text: bytes
    root: Element


def label(path: Path) -> str:
    """A path as one line of printable text."""
    text = str(path)
    return text if text.isprintable() else repr(text)


def shown(value: str, limit: int = 60) -> str:
    """A value from a file, quoted and short enough for a sentence."""
    return repr(value if len(value) <= limit else value[: limit - 1] + "…")


# -- reading ---------------------------------------------------------------------------------------


def read_xml(path: str | Path) -> Document:
    """Read an XML file. Raises `StorageError`, `MalformedInput` or `RefusedForSafety`, never
    anything else.
    """
    path = Path(path)
    text = read_bytes(path)
    return Document(path, text, parse(text, path))


def read_bytes(path: Path) -> bytes:
    """The bytes of a regular file of at most `MAX_BYTES`."""
    try:
        state = path.stat()
        if stat.S_ISDIR(state.st_mode):
            raise StorageError(f"{label(path)} is a folder; give the robot file inside it")
        if not stat.S_ISREG(state.st_mode):  # reading a pipe or a device could last for ever
            raise StorageError(
                f"{label(path)} is not a regular file; save the robot to a file first"
            )
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
    except StorageError:
        raise
    except FileNotFoundError:
        raise StorageError(f"{label(path)} does not exist; check the path") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the path
        reason = getattr(error, "strerror", None) or str(error)
        raise StorageError(
            f"{label(path)} cannot be read ({reason}); check the path and its permissions"
        ) from None
    if len(text) > MAX_BYTES:
        raise RefusedForSafety(
            f"{label(path)} is larger than {MAX_BYTES // 2**20} MiB, which no robot description"
            " needs; keep meshes and data in files of their own"
        )
    return text


def parse(text: bytes, path: Path) -> Element:
    """The root element of XML in memory; `path` names it in errors."""
    start = len(_BOM) if text.startswith(_BOM) else 0
    # blank lines before <?xml are an error to expat and to nobody else
    body = text[start:].lstrip(b" \t\r\n")
    if not body:
        raise MalformedInput(f"{label(path)} is empty; give a URDF or MJCF file")
    if b"\0" in body and not body.startswith(_UTF16):
        line = text[: text.index(b"\0")].count(b"\n") + 1
        raise MalformedInput(
            f"{label(path)}, line {line}: there is a NUL byte, so this is not XML text; copy or"
            " export the file again"
        )
    start = len(text) - len(body)
    builder = _Builder(path, start, text[:start].count(b"\n"))
    try:
        builder.parser.Parse(body, True)
    except expat.ExpatError as error:
        builder.refuse(error)
    except (
        ValueError,
        LookupError,
    ) as error:  # what Python's codec look-up says about a declared encoding
        raise MalformedInput(
            f"{label(path)}: the declared encoding cannot be read ({error}); save the file as UTF-8"
        ) from None
    assert builder.root is not None  # expat reports a document without elements
    return builder.root


class _Builder:
    """Expat's events, made into elements; refuses as soon as a cap is passed."""

    def __init__(self, path: Path, offset: int, lines: int) -> None:
        self.path, self.offset, self.lines = path, offset, lines
        self.root: Element | None = None
        self.open: list[Element] = []
        self.count = 0
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.StartDoctypeDeclHandler = self.doctype
        self.parser.EntityDeclHandler = self.entity
        self.parser.ExternalEntityRefHandler = self.entity

    @property
    def line(self) -> int:
        return self.parser.CurrentLineNumber + self.lines

    def start(self, tag: str, attrib: dict[str, str]) -> None:
        self.count += 1 + len(attrib) // 100
        if len(self.open) >= MAX_DEPTH:
            raise RefusedForSafety(
                f"{label(self.path)}, line {self.line}: elements are nested more than {MAX_DEPTH:,}"
                " deep, which no robot needs; flatten the file"
            )
        if self.count > MAX_ELEMENTS:
            raise RefusedForSafety(
                f"{label(self.path)}, line {self.line}: there are more than {MAX_ELEMENTS:,}"
                " elements; split the file"
            )
        parent = self.open[-1] if self.open else None
        offset = self.parser.CurrentByteIndex + self.offset
        element = Element(
            tag, attrib, line=self.line, offset=offset, source=self.path, parent=parent
        )
        if parent is None:
            self.root = element
        else:
            parent.children.append(element)
        self.open.append(element)

    def end(self, _tag: str) -> None:
        self.open.pop().end = self.parser.CurrentByteIndex + self.offset

    def doctype(self, _name: str, system: str | None, public: str | None, internal: bool) -> None:
        # A bare <!DOCTYPE robot> does no harm; definitions and other files can blow up or leak, and
        # no robot needs them.
        if system or public or internal:
            self.entity()

    def entity(self, *_: object) -> NoReturn:
        raise RefusedForSafety(
            f"{label(self.path)}, line {self.line}: <!DOCTYPE> defines entities or names another"
            " file, which is refused because it can exhaust memory or read private files;"
            " remove it"
        )

    def refuse(self, error: expat.ExpatError) -> NoReturn:
        """Say what expat found, as one sentence with a fix."""
        name, line = label(self.path), error.lineno + self.lines
        reason = expat.errors.messages.get(error.code, "not XML")
        if error.code in _CUT_SHORT and self.open:
            element = self.open[-1]
            text = (
                f"{name}, line {line}: the file ends inside {element.path} (line {element.line}),"
                " so it is cut short; copy or export it again"
            )
        elif error.code in _ENCODING:
            text = f"{name}, line {line}: {reason}; save the file as UTF-8"
        elif self.root is None:
            text = f"{name}, line {line}: this is not XML ({reason}); give a URDF or MJCF file"
        elif error.code == expat.errors.codes[expat.errors.XML_ERROR_TAG_MISMATCH] and self.open:
            element = self.open[-1]
            text = (
                f"{name}, line {line}: the closing tag does not match <{element.tag}> of line"
                f" {element.line}; close <{element.tag}> first"
            )
        else:
            text = (
                f"{name}, line {line}, column {error.offset + 1}: the XML is broken ({reason});"
                " correct this line"
            )
        raise MalformedInput(text) from None


# -- attributes ------------------------------------------------------------------------------------


def required(element: Element, name: str) -> str:
    """An attribute that must be there and not blank."""
    value = element.attrib.get(name)
    if value is None:
        raise MalformedInput(f'{element.place}: attribute {name!r} is missing; add {name}="…"')
    if not value.strip():
        raise MalformedInput(f"{element.place}: {name} is blank; give it a value")
    return value


def number(
    element: Element, name: str, default: float | None = None, *, largest: float = math.inf
) -> float:
    """A finite number, or `default` where the attribute is absent (None: it must be there).

    Strict: ``1kg``, ``1,5``, nan, inf, 1e400 and magnitudes above `largest` are refused.
    """
    value = element.attrib.get(name)
    if value is not None:
        return _parse(value, element, name, largest)
    if default is None:
        raise MalformedInput(f'{element.place}: attribute {name!r} is missing; add {name}="…"')
    return default


def vector(
    element: Element,
    name: str,
    size: int,
    default: tuple[float, ...] | None = None,
    *,
    largest: float = math.inf,
) -> tuple[float, ...]:
    """`size` finite numbers separated by blanks, or `default` where the attribute is absent (None:
    it must be there).
    """
    value = element.attrib.get(name)
    if value is None and default is not None:
        return default
    if value is None:
        raise MalformedInput(
            f'{element.place}: attribute {name!r} is missing; add {name}="…" with {size} numbers'
        )
    parts = value.split()
    if len(parts) != size:
        hint = " (blanks separate them, not commas)" if "," in value else ""
        raise MalformedInput(
            f"{element.place}: {name}={shown(value)} has {len(parts)}"
            f" number{'s' * (len(parts) != 1)}; give {size}{hint}"
        )
    return tuple(_parse(part, element, name, largest) for part in parts)


def symmetric(values: Iterable[float]) -> np.ndarray:
    """The symmetric 3×3 matrix of (xx, yy, zz, xy, xz, yz), the order of MJCF's `fullinertia`."""
    xx, yy, zz, xy, xz, yz = values
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


def _parse(value: str, element: Element, name: str, largest: float) -> float:
    digits = value.strip(" \t\r\n")
    if len(digits) <= _NUMBER_LENGTH and _NUMBER.fullmatch(digits):
        result = float(digits)
        if math.isfinite(result) and abs(result) <= largest:
            return result if abs(result) >= _SMALLEST else 0.0
        fix = "it is too large to be meant, so check the units"
        if math.isinf(result):
            fix = "give a finite number"
    elif re.fullmatch(r"[+-]?(?:nan|inf|infinity)", digits, re.IGNORECASE):
        fix = "give a finite number"
    elif "," in digits:
        fix = "write the decimal point as '.', and blanks between numbers"
    elif "${" in digits:
        fix = "run xacro first, which replaces ${…} by its value"
    elif re.match(r"[+-]?[0-9.]+[A-Za-z]", digits):
        fix = "give the number alone, in SI units"
    else:
        fix = "give one number, such as 1.5 or 2e-3"
    raise MalformedInput(
        f"{element.place}: {name}={shown(value)} is not a number that can be used; {fix}"
    )
