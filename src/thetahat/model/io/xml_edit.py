"""Edit an XML file in place: attribute values, attributes and new elements, every other byte as it
is.

Positions are found in the file's own text, one character per code unit (bytes seen as Latin-1, in
which the characters of XML's syntax are themselves whatever the encoding; or the units of UTF-16),
so comments, order, quotes, line ends and encodings cannot change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from thetahat.model.io.xml_reader import Document, Element

_BLANK = "[ \t\r\n]"  # not \s, which takes bytes of other characters for blanks
_TAG = re.compile("<[^ \t\r\n/>]+")
_ATTRIBUTE = re.compile(f"{_BLANK}+([^ \t\r\n=/>]+){_BLANK}*={_BLANK}*(?:\"([^\"]*)\"|'([^']*)')")
_CLOSE = re.compile(f"{_BLANK}*/?>")
_TOKEN = re.compile("[^ \t\r\n]+")
_LINE = re.compile(r"(\r?\n)([ \t]*)\Z")
UNIT = "  "  # of indentation, where the file shows none


def digits(value: float) -> str:
    """The shortest text that reads as the same double: 17 significant digits at most, and no minus
    before a zero.
    """
    return repr(float(value) + 0.0)


def attribute(name: str, numbers: Iterable[float]) -> str:
    """Text of an attribute that holds numbers, with the blank before it."""
    return f' {name}="{" ".join(map(digits, numbers))}"'


def escaped(value: str) -> str:
    """Text as the value of an attribute, in either quotes and any encoding."""
    return "".join(c if " " <= c <= "~" and c not in "&<>\"'" else f"&#{ord(c)};" for c in value)


@dataclass(frozen=True)
class _Attribute:
    name: tuple[int, int]
    value: tuple[int, int]  # between the quotes


@dataclass(frozen=True)
class _StartTag:
    """Positions in an element's start tag."""

    attributes: dict[str, _Attribute]
    name_end: int
    close: int  # of the blanks before > or />
    stop: int  # behind it

    @property
    def end_of_attributes(self) -> int:
        """Where one more attribute goes."""
        return max((a.value[1] + 1 for a in self.attributes.values()), default=self.name_end)


class _Layout(NamedTuple):
    """How children are laid out; an empty line end where the file is not laid out in lines."""

    newline: str
    indent: str
    unit: str  # what one level adds


def _unit(outer: str, inner: str) -> str:
    return inner.removeprefix(outer) if inner.startswith(outer) and inner != outer else UNIT


class XmlEdit:
    """The changes to one document, collected, then made at once by `result`."""

    def __init__(self, document: Document) -> None:
        self.text = document.text
        self.order = {b"\xff\xfe": "<u2", b"\xfe\xff": ">u2"}.get(self.text[:2])
        self.width = 2 if self.order else 1
        self.view = (
            "".join(map(chr, np.frombuffer(self.text, self.order).tolist()))
            if self.order
            else self.text.decode("latin-1")
        )
        self._changes: list[tuple[int, int, str]] = []  # start, stop, new text

    @property
    def changed(self) -> bool:
        """Whether anything was asked to change."""
        return bool(self._changes)

    # -- attributes --------------------------------------------------------------------------------

    def set_numbers(
        self, element: Element, name: str, numbers: Sequence[float] | np.ndarray
    ) -> None:
        """Give an attribute these numbers. Those it has already keep their text; so do further ones
        behind them and all blanks.
        """
        old = element.attrib.get(name)
        if old is None:
            self.add_attribute(element, name, " ".join(map(digits, numbers)))
            return
        stated = [_float(token) for token in old.split()]
        if stated[: len(numbers)] == [float(number) for number in numbers]:
            return
        start, stop = self._tag(element).attributes[name].value
        raw = self.view[start:stop]
        tokens = list(_TOKEN.finditer(raw))
        if "&" in raw or len(tokens) < len(numbers):  # references may stand for blanks
            further = old.split()[len(numbers) :]
            self._changes.append((start, stop, " ".join([*map(digits, numbers), *further])))
            return
        for token, value, number in zip(tokens, stated, numbers, strict=False):
            if value != number:
                self._changes.append((start + token.start(), start + token.end(), digits(number)))

    def set_text(self, element: Element, name: str, value: str) -> None:
        """Give an attribute another value, or add it."""
        if name not in element.attrib:
            self.add_attribute(element, name, value)
        elif element.attrib[name] != value:
            self._changes.append((*self._tag(element).attributes[name].value, escaped(value)))

    def replace_attribute(self, element: Element, name: str, other: str, value: str) -> None:
        """Put another attribute in the place of one."""
        old = self._tag(element).attributes[name]
        self._changes += [(*old.name, other), (*old.value, escaped(value))]

    def add_attribute(self, element: Element, name: str, value: str) -> None:
        """Add an attribute behind the others."""
        at = self._tag(element).end_of_attributes
        self._changes.append((at, at, f' {name}="{escaped(value)}"'))

    # -- elements ----------------------------------------------------------------------------------

    def insert(
        self, parent: Element, lines: Iterable[tuple[int, str]], *, last: bool = False
    ) -> None:
        """Put an element into another, as its first child or its last, laid out as the file is.

        lines: (depth below the new child, text) of each line of it.
        """
        tag = self._tag(parent)
        newline, indent, unit = self._layout(parent)
        new = "".join(
            f"{newline}{indent}{unit * depth if newline else ''}{text}" for depth, text in lines
        )
        if self.view[tag.stop - 2] == "/":
            name = self.view[parent.offset // self.width + 1 : tag.name_end]
            own = self._own_layout(parent)[1] if newline else ""
            self._changes.append((tag.close, tag.stop, f">{new}{newline}{own}</{name}>"))
            return
        end = parent.end // self.width
        if not self.view[tag.stop : end].strip(" \t\r\n") and "\n" not in self.view[tag.stop : end]:
            new += newline + (self._own_layout(parent)[1] if newline else "")
        at = tag.stop + len(self.view[tag.stop : end].rstrip(" \t\r\n")) if last else tag.stop
        self._changes.append((at, at, new))

    def _layout(self, parent: Element) -> _Layout:
        """The layout of an element's children."""
        own_line, own = self._own_layout(parent)
        above = self._own_layout(parent.parent)[1] if parent.parent is not None else ""
        for child in parent.children:
            newline, indent = self._own_layout(child)
            if newline:
                return _Layout(newline, indent, _unit(own, indent))
        if parent.children or not own_line:
            return _Layout("", "", "")
        unit = _unit(above, own)
        return _Layout(own_line, own + unit, unit)

    def _own_layout(self, element: Element) -> tuple[str, str]:
        """(line end, indentation) before an element that begins a line, else empty."""
        at = element.offset // self.width
        blanks = _LINE.search(self.view, max(0, at - 500), at)
        return (blanks[1], blanks[2]) if blanks else ("", "")

    def _tag(self, element: Element) -> _StartTag:
        name_end = at = self._match(_TAG, element.offset // self.width).end()
        attributes = {}
        while pair := _ATTRIBUTE.match(self.view, at):
            value = pair.span(2) if pair[2] is not None else pair.span(3)
            attributes[pair[1]] = _Attribute(pair.span(1), value)
            at = pair.end()
        return _StartTag(attributes, name_end, at, self._match(_CLOSE, at).end())

    def _match(self, pattern: re.Pattern[str], at: int) -> re.Match[str]:
        match = pattern.match(self.view, at)
        assert match is not None  # expat has read this tag
        return match

    # -- the file ----------------------------------------------------------------------------------

    def result(self) -> bytes:
        """The document's bytes with all changes made."""
        out: list[bytes] = []
        at = 0
        # stable: what goes to one place stays in order
        for start, stop, new in sorted(self._changes, key=lambda change: change[:2]):
            assert at <= start, "two changes overlap"
            out += [self.text[at * self.width : start * self.width], self._encoded(new)]
            at = stop
        return b"".join([*out, self.text[at * self.width :]])

    def _encoded(self, new: str) -> bytes:
        """New text, whose own characters are ASCII; what it repeats of the file (a tag's name) is
        in the file's units already.
        """
        return (
            np.array([ord(c) for c in new], dtype=self.order).tobytes()
            if self.order
            else new.encode("latin-1")
        )


def _float(token: str) -> float | None:
    try:
        return float(token)
    except ValueError:
        return None
