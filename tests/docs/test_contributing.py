"""CONTRIBUTING.md, docs/architecture.md and the citation name what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from data_paths import ROOT

import thetahat
from test_layers import STAGES

PACKAGE = ROOT / "src" / "thetahat"
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_files_named_are_there() -> None:
    for text in (CONTRIBUTING, ARCHITECTURE):
        for path in re.findall(r"`((?:src|tests|docs|examples)/[\w./-]+)`", text):
            assert (ROOT / path).exists(), path


def test_links_lead_to_files() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", CONTRIBUTING):
        assert (ROOT / target).is_file(), target


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\bmake ([a-z-]+)", CONTRIBUTING))))
def test_make_targets_are_there(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


def test_code_named_is_in_the_files_named_before_it() -> None:
    """`name` after `src/….py` in one item of a list is defined in one of the files of that item."""
    items = re.findall(r"^\d\. (.+?)(?=^\d\. |^$)", CONTRIBUTING, re.MULTILINE | re.DOTALL)
    assert len(items) > 12
    for item in items:
        paths = re.findall(r"`((?:src|tests)/[\w/]+\.py)`", item)
        sources = "".join((ROOT / path).read_text(encoding="utf-8") for path in paths)
        for name in re.findall(r"`([A-Z]\w+|[a-z]+_\w+|stribeck)`", item) if paths else ():
            assert re.search(rf"\b{name}\b", sources), f"{name} is not in {', '.join(paths)}"


def test_every_package_is_on_the_map() -> None:
    table = ARCHITECTURE[ARCHITECTURE.index("## Packages") :]
    named = [
        name
        for row in re.findall(r"^\| (`.+?) \|", table, re.MULTILINE)
        for name in re.findall(r"`([\w.]+)`", row)
    ]
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name[0] != "_"}
    modules = {path.stem for path in PACKAGE.glob("*.py") if path.name[0] != "_"}
    assert len(named) == len(set(named))
    assert set(named) == folders | modules | {"model.io"}
    staged = [name for name in named if name in STAGES]
    assert staged == sorted(staged, key=STAGES.index), "in the order of imports"


def test_the_citation_is_of_this_version() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with mkdocs (pip install mkdocs)")
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["version"] == thetahat.__version__
    assert cited["license"] == "Apache-2.0"
    (paper,) = cited["references"]
    assert paper["title"] in (ROOT / "docs" / "references.md").read_text(encoding="utf-8")
    assert [author["family-names"] for author in paper["authors"]] == [
        *("Kolathaya", "Morris", "Sinnet", "Ames")
    ]


def test_hooks_run_what_is_installed() -> None:
    """No hook is downloaded: each is a program of .venv that `make lint` runs, too."""
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with mkdocs (pip install mkdocs)")
    (repo,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))[
        "repos"
    ]
    assert repo["repo"] == "local"
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for hook in repo["hooks"]:
        program = Path(hook["entry"].split()[0])
        assert program.parent == Path(".venv/bin")
        assert f'"{program.name}==' in project
        assert hook["language"] == "system"
