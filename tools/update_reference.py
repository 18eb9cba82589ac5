"""Bring docs/reference up to date with the code: `make reference`.

The pages are written by hand; two kinds of things in them are written by this program.

- An entry is a heading `### th.name`, or `### thetahat.module.Name` for what is imported from its
  module. The first block of text below it is its signature; a table that begins with
  `| member |` lists the methods and properties of a class.
- The part of command-line.md below the line `<!-- verbs -->` lists every verb with its options.

`tests/docs/test_reference.py` fails where names, signatures, members or options are not those of
the code.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from types import FunctionType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "reference"
COMMAND_LINE = FOLDER / "command-line.md"
MARK = "<!-- verbs -->\n"
WIDTH = 100

HEADING = re.compile(r"^### (th\.\w+|thetahat(?:\.\w+)+)$", re.MULTILINE)
SIGNATURE = re.compile(r"^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MEMBERS = re.compile(r"^\| member \|.*\n\| --- .*\n((?:\|.*\n)*)", re.MULTILINE)
NEXT = re.compile(r"^#{1,3} ", re.MULTILINE)


def main() -> int:
    """Rewrite the pages that differ, and name them."""
    for path in sorted(FOLDER.glob("*.md")):
        old = path.read_text(encoding="utf-8")
        new = with_verbs(old) if path == COMMAND_LINE else updated(old)
        if new != old:
            path.write_text(new, encoding="utf-8")
            print(f"{path.relative_to(ROOT)} is up to date again")
    return 0


# -- entries of the Python interface ---------------------------------------------------------------


def entries(text: str) -> Iterator[tuple[str, int, int]]:
    """(name, start, end) of every entry on a page; the end is that of its text."""
    for heading in HEADING.finditer(text):
        following = NEXT.search(text, heading.end())
        yield heading[1], heading.start(), following.start() if following else len(text)


def updated(text: str) -> str:
    """The page with signatures and members as the code has them."""
    for name, start, end in reversed(list(entries(text))):
        text = text[:start] + _entry(name, text[start:end]) + text[end:]
    return text


def _entry(name: str, text: str) -> str:
    obj = resolve(name)
    head, _, rest = text.partition("\n")
    rest = rest.lstrip("\n")
    block = f"```text\n{signature(name, obj)}\n```"
    found = SIGNATURE.match(rest)
    rest = block + rest[found.end() :] if found else f"{block}\n\n{rest}"
    rest = MEMBERS.sub("", rest).rstrip("\n") + "\n\n"
    rows = [f"| `{text}` | {about} |" for text, about in members(obj).values()]
    if rows:
        rest += "\n".join(["| member | description |", "| --- | --- |", *rows]) + "\n\n"
    return f"{head}\n\n{rest}"


def resolve(name: str) -> Any:
    """What a heading names; LookupError where there is nothing."""
    module, _, last = name.rpartition(".")
    try:
        return getattr(importlib.import_module("thetahat" if module == "th" else module), last)
    except (ImportError, AttributeError):
        raise LookupError(f"{name} is no name of the package") from None


def signature(name: str, obj: Any) -> str:
    """The call as a user writes it: on one line, or a parameter per line."""
    if isinstance(obj, type) and issubclass(obj, BaseException):
        return name
    short = name if name.startswith("th.") else name.rpartition(".")[2]
    lines = [] if name.startswith("th.") else [f"from {name.rpartition('.')[0]} import {short}", ""]
    return "\n".join([*lines, _call(short, inspect.signature(obj), shown=not inspect.isclass(obj))])


def _call(name: str, given: inspect.Signature, *, shown: bool) -> str:
    parts: list[str] = []
    keyword = False
    for parameter in given.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword:
            keyword = True
            parts.append("*")
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        keyword = keyword or parameter.kind is parameter.VAR_POSITIONAL
        text = f"{stars}{parameter.name}"
        if parameter.annotation is not parameter.empty:
            text += f": {_annotation(parameter.annotation)}"
        if parameter.default is not parameter.empty:
            text += f" = {_default(parameter.default)}"
        parts.append(text)
    end = f" -> {_annotation(given.return_annotation)}" if shown else ""
    line = f"{name}({', '.join(parts)}){end}"
    if len(line) <= WIDTH:
        return line
    return "\n".join([f"{name}(", *(f"    {part}," for part in parts), f"){end}"])


def _annotation(value: Any) -> str:
    return value if isinstance(value, str) else inspect.formatannotation(value)


def _default(value: Any) -> str:
    """A default as code; `…` for what has no short one."""
    text = repr(value)
    return "…" if text.startswith("<") or len(text) > 60 else text


def members(obj: Any) -> dict[str, tuple[str, str]]:
    """Public methods and properties of a class by name: how they are called, and what they do."""
    if not inspect.isclass(obj) or issubclass(obj, BaseException):
        return {}
    found: dict[str, tuple[str, str]] = {}
    for owner in reversed([each for each in obj.__mro__ if _is_ours(each)]):
        for name, value in vars(owner).items():
            call = _member(name, value)
            if not name.startswith("_") and call is not None:
                found[name] = (call, _first_sentence(getattr(obj, name), value))
    return found


def _is_ours(owner: type) -> bool:
    return owner.__module__.partition(".")[0] == "thetahat" and not getattr(
        owner, "_is_protocol", False
    )


def _member(name: str, value: Any) -> str | None:
    if isinstance(value, property | cached_property):
        return name
    function = getattr(value, "__func__", value)
    if not isinstance(function, FunctionType):
        return None
    given = list(inspect.signature(function).parameters.values())
    skipped = given if isinstance(value, staticmethod) else given[1:]
    forms = {"KEYWORD_ONLY": "{}=…", "VAR_POSITIONAL": "*{}", "VAR_KEYWORD": "**{}"}
    names = [forms.get(each.kind.name, "{}").format(each.name) for each in skipped]
    return f"{name}({', '.join(names)})"


def _first_sentence(bound: Any, value: Any) -> str:
    doc = inspect.getdoc(value) or inspect.getdoc(bound) or ""
    paragraph = " ".join(doc.partition("\n\n")[0].split()).replace("|", "\\|")
    return re.split(r"(?<=\.)\s(?=[A-Z])", paragraph, maxsplit=1)[0]


# -- verbs -----------------------------------------------------------------------------------------


def with_verbs(text: str) -> str:
    """The page of the command line with its verbs as the program has them."""
    head, mark, _ = text.partition(MARK)
    if not mark:
        raise LookupError(f"{COMMAND_LINE.name} has no line {MARK.strip()}")
    return f"{head}{mark}\n{command_line()}\n"


def command_line() -> str:
    """Every verb: what it does, its arguments and its options, from the program itself."""
    import typer

    from thetahat.cli.app import app

    group: Any = typer.main.get_command(app)
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


if __name__ == "__main__":
    sys.path.append(str(ROOT / "src"))
    sys.exit(main())
