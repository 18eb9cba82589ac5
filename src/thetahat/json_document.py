"""Read the JSON documents that thetahat writes, through the schemas that it ships.

Only the keywords that those schemas use are known (draft 2020-12). Parts that a schema does not
name are let pass, as later versions may add some; so are missing ones, as earlier versions had
fewer: who needs a part says so.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from thetahat.commit_record import finish_interrupted
from thetahat.errors import MalformedInput, StorageError

FOLDER = Path(__file__).parent / "schemas"
LARGEST = 64 * 2**20  # bytes; the results of a humanoid have less than a tenth
MOST = 1e30  # of any number: squares and sums of it are finite
SHOWN = 60  # characters of a value in a message
Document = dict[str, Any]
KINDS = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
}


def read_document(path: Path, schema: str | None, wanted: str) -> Document:
    """Read a JSON object whose numbers are finite and whose parts are as a schema has them.

    schema: name of a file of `schemas`, such as "estimate"; None: any object. wanted: what to give
    instead, for messages.
    """
    data = parse_document(_content(path, wanted), str(path), wanted)
    if schema is not None:
        check_document(data, schema, str(path), wanted)
    return data


def _content(path: Path, wanted: str) -> bytes:
    finish_interrupted(path.parent)
    try:
        if path.stat().st_size > LARGEST:
            raise MalformedInput(
                f"{shown_path(path)} has {path.stat().st_size:,} bytes, too large for a result;"
                f" give {wanted}"
            )
        return path.read_bytes()
    except MalformedInput:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StorageError(f"{shown_path(path)} cannot be read: {reason}; check the path") from None


def shown_path(path: str | os.PathLike[str]) -> str:
    """Return a path as a message shows it, bytes that are no UTF-8 escaped."""
    text = str(path)
    return text if text.isprintable() else ascii(text)


def parse_document(content: bytes, where: str, wanted: str) -> Document:
    """Return the object of a JSON text; `MalformedInput` where it is none, or holds what no file of
    ours does: NaN, or numbers beyond 1e30.
    """
    try:
        data = json.loads(
            content.decode("utf-8"),
            object_hook=lambda part: Part(part, shown_path(where), wanted),
            parse_constant=_refuse,
            parse_float=_finite,
            parse_int=_whole,
        )
    except (ValueError, RecursionError) as error:
        reason = str(error)[:120] or "nested too deep"
        raise MalformedInput(f"{shown_path(where)} is not JSON ({reason}); give {wanted}") from None
    if not isinstance(data, dict):
        raise MalformedInput(f"{shown_path(where)} is not a JSON object; give {wanted}")
    return data


class Part(Document):
    """An object of a document, which says what it lacks."""

    def __init__(self, content: Document, where: str, wanted: str) -> None:
        super().__init__(content)
        self._where, self._wanted = where, wanted

    def __missing__(self, key: str) -> NoReturn:
        raise MalformedInput(f"{self._where} has no {key!r} where one belongs; give {self._wanted}")


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"it holds {word}, which is no number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not abs(value) <= MOST:
        raise ValueError(f"it holds the number {text[:SHOWN]}, which is beyond {MOST:g}")
    return value


def _whole(text: str) -> int | float:
    return int(text) if len(text) < 20 else _finite(text)


def check_document(data: Document, schema: str, where: str, wanted: str) -> None:
    """Raise where a part of a document is not as its schema has it."""
    rules = load_schema(schema)
    stated = rules.get("properties", {}).get("schema", {}).get("const")
    if stated is not None and data.get("schema") != stated:
        raise MalformedInput(
            f"{shown_path(where)} has the schema {_brief(data.get('schema'))}, not {stated!r}; give"
            f" {wanted}"
        )
    for at, problem in problems(data, rules, rules):
        raise MalformedInput(
            f"{shown_path(where)}: {_place(at)} {problem}; give {wanted}, as it was written"
        )


@cache
def load_schema(name: str) -> Document:
    """Return a schema of the package."""
    found: Document = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found


Place = tuple[str | int, ...]


def problems(
    value: object, rules: Document | bool, root: Document, at: Place = ()
) -> Iterator[tuple[Place, str]]:
    """Yield places of a document, and what is wrong there."""
    if isinstance(rules, bool):
        return  # True: anything; False stands for parts that are not named, which may be there
    if "$ref" in rules:
        yield from problems(value, root["$defs"][rules["$ref"].rpartition("/")[2]], root, at)
        return
    if "anyOf" in rules:
        choices = [list(problems(value, each, root, at)) for each in rules["anyOf"]]
        if all(choices):
            # the choice that comes furthest tells most
            yield max((each[0] for each in choices), key=lambda problem: len(problem[0]))
            return
    if (problem := _problem(value, rules)) is not None:
        yield at, problem
        return
    if isinstance(value, dict):
        stated = rules.get("properties", {})
        others = rules.get("additionalProperties", True)
        for key, part in value.items():
            yield from problems(part, stated.get(key, others), root, (*at, key))
    elif isinstance(value, list) and "items" in rules:
        for k, part in enumerate(value):
            yield from problems(part, rules["items"], root, (*at, k))


def _problem(value: object, rules: Document) -> str | None:
    """Return what is wrong with a value itself."""
    if "type" in rules:
        kinds = [rules["type"]] if isinstance(rules["type"], str) else rules["type"]
        if not any(_is_kind(value, kind) for kind in kinds):
            return f"is {_brief(value)}, not {' or '.join(kinds)}"
    if "const" in rules and value != rules["const"]:
        return f"is {_brief(value)}, not {rules['const']!r}"
    if "enum" in rules and value not in rules["enum"]:
        return f"is {_brief(value)}, not one of {', '.join(map(str, rules['enum']))}"
    if isinstance(value, list):
        low, high = rules.get("minItems", 0), rules.get("maxItems", math.inf)
        if not low <= len(value) <= high:
            return f"has {len(value)} items"
    if isinstance(value, str) and "pattern" in rules and not re.search(rules["pattern"], value):
        return f"is {_brief(value)}, not of the form {rules['pattern']}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _out_of_range(value, rules)
    return None


def _out_of_range(value: float, rules: Document) -> str | None:
    low, high = rules.get("minimum", -math.inf), rules.get("maximum", math.inf)
    above, below = (
        rules.get("exclusiveMinimum", -math.inf),
        rules.get("exclusiveMaximum", math.inf),
    )
    if low <= value <= high and above < value < below:
        return None
    return f"is {value:g}, out of its range"


def _is_kind(value: object, kind: str) -> bool:
    if kind in ("number", "integer"):
        if not isinstance(value, int | float) or isinstance(value, bool):
            return False
        return kind == "number" or float(value).is_integer()
    return isinstance(value, KINDS[kind])


def _brief(value: object) -> str:
    text = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def _place(at: Place) -> str:
    out = ""
    for each in at:
        out += f"[{each}]" if isinstance(each, int) else f"{'.' if out else ''}{_brief(each)[1:-1]}"
    return out or "the document"
