"""Documents read through the schemas of the package: the same are refused as by jsonschema."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest

from thetahat.errors import MalformedInput
from thetahat.json_document import FOLDER, load_schema, problems, read_document

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is the oracle")
VALUES = (None, True, 0, -1, 2.5, "x", "", [], [1], {}, {"a": 1}, 1e20, ["a", "b"])
KNOWN = {
    *("$schema", "title", "description", "type", "properties", "const", "enum", "anyOf", "items"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minItems", "maxItems"),
    *("required", "additionalProperties", "pattern", "$defs", "$ref"),
}


def lenient(rules: Any) -> Any:
    """Return a schema in which parts may be missing, and others be there, as readers have it."""
    if isinstance(rules, list):
        return [lenient(each) for each in rules]
    if not isinstance(rules, dict):
        return rules
    out = {key: lenient(value) for key, value in rules.items() if key != "required"}
    if out.get("additionalProperties") is False:
        del out["additionalProperties"]
    return out


def sample(rules: Any, root: Any, rng: random.Random) -> Any:
    """Return a value that a schema allows, or nearly."""
    if "$ref" in rules:
        return sample(root["$defs"][rules["$ref"].rpartition("/")[2]], root, rng)
    if "anyOf" in rules:
        return sample(rng.choice(rules["anyOf"]), root, rng)
    if "const" in rules:
        return rules["const"]
    if "enum" in rules:
        return rng.choice(rules["enum"])
    kinds = rules.get("type", "null")
    match rng.choice(kinds) if isinstance(kinds, list) else kinds:
        case "object":
            parts = rules.get("properties", {})
            return {key: sample(part, root, rng) for key, part in parts.items()}
        case "array":
            count = max(rules.get("minItems", 0), min(2, rules.get("maxItems", 2)))
            return [sample(rules.get("items", {}), root, rng) for _ in range(count)]
        case "string":
            return "x"
        case "integer":
            return int(rules.get("minimum", 0))
        case "number":
            return rules.get("minimum", rules.get("exclusiveMinimum", 0.25) + 0.25)
        case "boolean":
            return rng.random() < 0.5
    return None


def spoiled(document: Any, rng: random.Random) -> Any:
    """Return a copy with one value replaced."""
    out = copy.deepcopy(document)
    parent, key, here = None, None, out
    while isinstance(here, dict | list) and here:
        parent, key = here, rng.choice(list(here) if isinstance(here, dict) else range(len(here)))
        here = parent[key]
        if rng.random() < 0.2:
            break
    if parent is not None:
        parent[key] = rng.choice(VALUES)
    return out


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.json")))
def test_agrees_with_jsonschema(name: str) -> None:
    rules, rng = load_schema(name), random.Random(name)
    oracle = jsonschema.Draft202012Validator(lenient(rules))
    refused = 0
    for _ in range(60):
        document = spoiled(sample(rules, rules, rng), rng)
        found = list(problems(document, rules, rules))
        assert bool(found) == (not oracle.is_valid(document)), (document, found)
        refused += bool(found)
    assert refused > 5


def test_no_schema_uses_a_keyword_that_is_not_known() -> None:
    def keywords(rules: Any) -> set[str]:
        out = set(rules) if isinstance(rules, dict) else set()
        for key in ("properties", "$defs"):
            for part in rules.get(key, {}).values() if isinstance(rules, dict) else ():
                out |= keywords(part)
        for key in ("items", "additionalProperties"):
            out |= keywords(rules.get(key)) if isinstance(rules, dict) else set()
        for part in rules.get("anyOf", ()) if isinstance(rules, dict) else ():
            out |= keywords(part)
        return out

    for path in FOLDER.glob("*.json"):
        assert keywords(json.loads(path.read_text(encoding="utf-8"))) <= KNOWN, path.name


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "not a JSON object"),
        ('{"a": NaN}', "NaN"),
        ('{"a": 1e400}', "beyond"),
        ('{"a": ' + "9" * 5000 + "}", "beyond"),
        ('{"a": -Infinity}', "Infinity"),
        ('{"schema": "thetahat/drive/9"}', "thetahat/drive/9"),
        ('{"schema": "thetahat/drive/1", "joints": 3}', "joints is 3, not array"),
    ],
)
def test_what_is_no_document_is_one_sentence(tmp_path: Path, text: str, word: str) -> None:
    (tmp_path / "drive.json").write_text(text)
    with pytest.raises(MalformedInput, match=word):
        read_document(tmp_path / "drive.json", "drive", "another")


def test_a_missing_part_is_named_where_it_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "drive.json").write_text('{"schema": "thetahat/drive/1", "gains": {"values": []}}')
    data = read_document(tmp_path / "drive.json", "drive", "another")
    with pytest.raises(MalformedInput, match=r"drive.json.*'std'"):
        data["gains"]["std"]
    assert data.get("terms") is None
