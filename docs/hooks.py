"""What MkDocs does to these pages beyond Markdown, so that they say what the code says and need no
other host.

- LaTeX between dollars becomes MathML.
- A paragraph ``Code: `thetahat.a.b`, `thetahat.c.d`.`` becomes the source of these functions as it
  stands today.
- A paragraph ``Public names of `thetahat.a`.`` becomes the documentation of every public name that
  comes from there.
- A paragraph ``Options of every verb.`` becomes tables of the command line's options.
- `th.name` links to its documentation, [Key2008] to the list of references.
"""

from __future__ import annotations

import ast
import html
import re
import sys
import textwrap
from collections.abc import Iterator
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
PUBLIC = re.compile(rf"^Public names of ({NAMES})\.$", re.MULTILINE)
VERBS = "Options of every verb."
NOTHING = "Nothing is public here yet."
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
    """Fill in what comes from the code, then link names."""
    try:
        markdown = CODE.sub(lambda found: "\n\n".join(map(listing, names_in(found[1]))), markdown)
        markdown = PUBLIC.sub(
            lambda found: (
                "\n\n".join(f"::: {name}" for name in public_names(names_in(found[1]))) or NOTHING
            ),
            markdown,
        )
        markdown = re.sub(
            rf"^{re.escape(VERBS)}$", lambda _: command_line(), markdown, flags=re.MULTILINE
        )
    except (LookupError, ValueError) as error:
        raise PluginError(f"{page.file.src_uri}: {error}") from None
    parts = FENCE.split(markdown)
    parts[::2] = [re.sub(r"`th\.(\w+)`", _linked, part) for part in parts[::2]]
    return "".join(parts)


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
def homes() -> dict[str, str]:
    """The module of every public name: the face in `thetahat/__init__.pyi`, and the names that are
    imported from their modules.
    """
    _importable()
    import thetahat

    stub = ast.parse((SOURCE / "thetahat" / "__init__.pyi").read_text(encoding="utf-8"))
    face = {
        alias.name: f"thetahat.{node.module}"
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    return face | thetahat.MOVED


def _linked(found: re.Match[str]) -> str:
    """`th.name` with a link, where it is one."""
    home = homes().get(found[1])
    return f"[{found[0]}][{home}.{found[1]}]" if home else found[0]


@cache
def prefixes() -> tuple[str, ...]:
    """Every module that some page documents the public names of."""
    pages = sorted((ROOT / "docs").rglob("*.md"))
    return tuple(
        name
        for page in pages
        for line in PUBLIC.findall(page.read_text(encoding="utf-8"))
        for name in names_in(line)
    )


def public_names(modules: list[str]) -> list[str]:
    """The public names of these modules and those below, but for modules that another line names
    more closely.
    """
    out = []
    for name, home in homes().items():
        over = [prefix for prefix in prefixes() if home == prefix or home.startswith(f"{prefix}.")]
        if over and max(over, key=len) in modules:
            out.append(f"{home}.{name}")
    return out


def command_line() -> str:
    """Every verb: what it does, its arguments and its options, from the program itself."""
    _importable()
    import typer

    from thetahat.cli.app import app

    group = typer.main.get_command(app)
    return "\n\n".join(
        _verb(name, command) for name, command in _verbs(group.commands) if not command.hidden
    )


def _verbs(commands: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Every verb by its full name, those of groups too."""
    for name, command in commands.items():
        inside = getattr(command, "commands", None)
        if inside is None:
            yield f"{before}{name}", command
        else:
            yield from _verbs(inside, f"{before}{name} ")


def _verb(name: str, command: Any) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [
        p
        for p in command.params
        if p.param_type_name == "option" and not getattr(p, "hidden", False)
    ]
    usage = " ".join(
        [*(f"{a.metavar or a.name.upper()}{'...' if a.nargs == -1 else ''}" for a in arguments)]
    )
    rows = [f"| `{a.metavar or a.name.upper()}` | {_cell(a.help)} |" for a in arguments]
    for option in options:
        flags = ", ".join(f"`{flag}`" for flag in (*option.opts, *option.secondary_opts))
        value = "" if option.is_flag else f" {option.metavar or 'VALUE'}"
        default = (
            f" Default: {option.default}."
            if getattr(option, "show_default", False) and option.default not in (None, False, ())
            else ""
        )
        rows.append(
            f"| {flags}{value} |"
            f" {_cell(option.help)}{default}{' Required.' if option.required else ''} |"
        )
    table = "\n".join(["| argument or option | meaning |", "| --- | --- |", *rows])
    return f"## {name}\n\n`thetahat {name} {usage}` – {_cell(command.help)}\n\n{table}"


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


def _importable() -> None:
    if str(SOURCE) not in sys.path:
        sys.path.insert(0, str(SOURCE))
