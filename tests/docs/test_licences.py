"""The list of licences names what the package is installed with, and no more."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOT_INSTALLED = {"dev", "worlds", "cpp"}  # extras of development


def test_every_dependency_is_listed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    texts = [*project["dependencies"]]
    for name in extras.keys() - NOT_INSTALLED:
        texts += extras[name]
    wanted = {re.match(r"[\w-]+", text)[0] for text in texts}  # type: ignore[index]
    page = (ROOT / "docs" / "licences.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| ([a-z][\w-]+) \| (?:all|extra)", page, re.MULTILINE)) == wanted
