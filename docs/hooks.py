"""What MkDocs does to these pages beyond Markdown, so that they say what the code says and need no
other host.

- LaTeX between dollars becomes MathML.
- A paragraph ``Code: `thetahat.a.b`, `thetahat.c.d`.`` becomes the source of these functions as it
  stands today.
- `th.name` and `thetahat.a.name` link to their entries in the reference, [Key2008] to the list of
  references.
"""

from __future__ import annotations

import ast
import html
import re
import textwrap
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File
from pygments.formatters import HtmlFormatter

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"

NAMES = r"`thetahat[\w.]*`(?:, `thetahat[\w.]*`)*"
CODE = re.compile(rf"^Code: ({NAMES})\.$", re.MULTILINE)
NAME = re.compile(r"(?<!\[)`(th\.\w+|thetahat(?:\.\w+)+)`")
ENTRY = re.compile(r"^### (th\.\w+|thetahat(?:\.\w+)+)$", re.MULTILINE)  # of the reference pages
FENCE = re.compile(
    r"^(```.*?^```|~~~.*?^~~~|#+ .*?$)", re.MULTILINE | re.DOTALL
)  # code, and headings, which are links already
MATH = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
KEY = re.compile(r"\[([A-Z]\w+?\d{4}|Kolathaya)\]")
TAGS = re.compile(r"(<pre.*?</pre>|<a .*?</a>|<[^>]+>)", re.DOTALL)
# Brackets around a matrix are drawn by extra.css: few machines have a font that stretches them.
MATRIX = re.compile(r"<mo>&#x0005B;</mo><mtable>((?:(?!<mtable>).)*?)</mtable><mo>&#x0005D;</mo>")
RELATIONS = (  # ⪰ and its like: operators, which latex2mathml takes for letters
    "\u2ab0\u2aaf\u227b\u227a"
)


# -- what MkDocs calls -----------------------------------------------------------------------------


def on_files(files: Any, config: Any) -> Any:
    """Add the colours of code."""
    files.append(
        File.generated(
            config,
            "pygments.css",
            content=HtmlFormatter(style="friendly").get_style_defs(".highlight"),
        )
    )
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Fill in the listings, link names, and give entries of the reference their anchors."""
    try:
        markdown = CODE.sub(lambda found: "\n\n".join(map(listing, names_in(found[1]))), markdown)
    except (LookupError, ValueError) as error:
        raise PluginError(f"{page.file.src_uri}: {error}") from None
    parts = FENCE.split(markdown)
    up = "../" * page.file.src_uri.count("/")
    parts[::2] = [NAME.sub(lambda found: _linked(found, up), part) for part in parts[::2]]
    return ENTRY.sub(r"### \1 { #\1 }", "".join(parts))


def on_page_content(content: str, page: Any, **_: Any) -> str:
    """Equations to MathML, keys of references to links."""
    try:
        content = MATH.sub(
            lambda found: mathml(html.unescape(found[2]), display=found[1] == "div"), content
        )
    except ValueError as error:
        raise PluginError(f"{page.file.src_uri}: {error}") from None
    if page.file.src_uri == "references.md":
        return re.sub(r"<td>\[(\w+)\]", r'<td id="\1">[\1]', content)
    up = "../" * page.file.src_uri.count("/")
    parts = TAGS.split(content)
    parts[::2] = [
        KEY.sub(rf'<a href="{up}references.html#\1">[\1]</a>', part) for part in parts[::2]
    ]
    return "".join(parts)


# -- equations -------------------------------------------------------------------------------------


def mathml(latex: str, *, display: bool) -> str:
    """MathML of an equation; ValueError where the converter does not know a command, which it would
    pass on as text.
    """
    found = convert(latex.strip(), display="block" if display else "inline")
    for sign in RELATIONS:
        entity = f"&#x0{ord(sign):04X};"
        found = found.replace(f"<mi>{entity}</mi>", f"<mo>{entity}</mo>")
    found = MATRIX.sub(r'<mtable class="matrix">\1</mtable>', found)
    try:
        text = "".join(ElementTree.fromstring(found).itertext())
    except ElementTree.ParseError as error:
        raise ValueError(f"equation {latex!r} does not become MathML: {error}") from None
    if "\\" in text:
        raise ValueError(f"equation {latex!r} holds a command that is not known: {text}")
    return found


# -- the code --------------------------------------------------------------------------------------


def names_in(text: str) -> list[str]:
    """The names between backticks."""
    return re.findall(r"`([\w.]+)`", text)


@cache
def parsed(file: Path) -> tuple[ast.Module, list[str]]:
    """A module's syntax tree and its lines."""
    text = file.read_text(encoding="utf-8")
    return ast.parse(text), text.splitlines()


def listing(name: str) -> str:
    """The source of a function, class or method as a block of code, under its name; LookupError
    where there is none.
    """
    parts = name.split(".")
    for split in range(len(parts) - 1, 0, -1):
        base = SOURCE.joinpath(*parts[:split])
        file = next(
            (path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()),
            None,
        )
        if file is None:
            continue
        node, lines = parsed(file)
        for part in parts[split:]:
            inside = [
                n
                for n in node.body
                if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name == part
            ]
            if not inside:
                raise LookupError(f"{name} is not in {file.relative_to(ROOT)}")
            node = inside[0]
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        text = textwrap.dedent("\n".join(lines[first - 1 : node.end_lineno]))
        title = file.relative_to(ROOT).as_posix()
        return f'```{{ .python title="{title}" }}\n{text}\n```'
    raise LookupError(f"{name} is no name of the package")


@cache
def documented() -> dict[str, str]:
    """The reference page of every name that has an entry, `th.load` or `thetahat.a.b`."""
    return {
        name: page.name
        for page in sorted((ROOT / "docs" / "reference").glob("*.md"))
        for name in ENTRY.findall(page.read_text(encoding="utf-8"))
    }


def _linked(found: re.Match[str], up: str) -> str:
    """A name in backticks with a link to its entry, where it has one."""
    page = documented().get(found[1])
    return f"[{found[0]}]({up}reference/{page}#{found[1]})" if page else found[0]
