"""The reference pages name what the package has, with its signatures, members and options."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections import Counter
from types import ModuleType

import pytest
from data_paths import ROOT

import thetahat as th

FOLDER = ROOT / "docs" / "reference"
ADVICE = "; bring it up to date: make reference"


def _tool() -> ModuleType:
    """tools/update_reference.py, which is no module of a package."""
    spec = importlib.util.spec_from_file_location(
        "update_reference", ROOT / "tools" / "update_reference.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


tool = _tool()
ENTRIES = {
    name: page[start:end]
    for page in (path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.md")))
    for name, start, end in tool.entries(page)
}


def test_every_public_name_has_one_entry() -> None:
    headings = Counter(
        name
        for path in FOLDER.glob("*.md")
        for name in re.findall(r"^### (th\S+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    )
    wanted = {f"th.{name}" for name in th.__all__ if name != "__version__"}
    wanted |= {f"{home}.{name}" for name, home in th.MOVED.items()}
    assert wanted <= set(headings), f"no entry: {', '.join(sorted(wanted - set(headings)))}"
    assert max(headings.values()) == 1
    public = {name for name in headings if name.startswith("th.")}
    assert public <= wanted, f"not public: {', '.join(sorted(public - wanted))}"


@pytest.mark.parametrize("name", ENTRIES)
def test_signatures_and_members_are_those_of_the_code(name: str) -> None:
    entry, obj = ENTRIES[name], tool.resolve(name)
    block = tool.SIGNATURE.search(entry)
    assert block, f"{name} has no signature{ADVICE}"
    assert block[1].rstrip("\n") == tool.signature(name, obj), name + ADVICE
    tables = tool.MEMBERS.findall(entry)
    assert len(tables) <= 1, name + ADVICE
    listed = re.findall(r"^\| `([^`]+)` \|", "".join(tables), re.MULTILINE)
    assert listed == [call for call, _ in tool.members(obj).values()], name + ADVICE


@pytest.mark.parametrize("name", ENTRIES)
def test_entries_say_something(name: str) -> None:
    """Text of at least ten words beside what is generated, and no trace of a merge."""
    assert not re.search(r"^(?:<<<<<<<|=======|>>>>>>>)", ENTRIES[name], re.MULTILINE)
    text = tool.MEMBERS.sub("", re.sub(r"^```.*?^```$", "", ENTRIES[name], flags=re.M | re.S))
    assert len(text.split()) >= 10, f"{name}: {text!r}"


def test_verbs_and_options_are_those_of_the_program() -> None:
    def options(text: str) -> dict[str, list[str]]:
        verbs = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
        return {
            verb.partition("\n")[0]: re.findall(r"^\| (`.+?) \|", verb, re.MULTILINE)
            for verb in verbs
        }

    page = tool.COMMAND_LINE.read_text(encoding="utf-8")
    assert options(page) == options(tool.command_line()), "command-line.md" + ADVICE


def test_what_is_up_to_date_stays_as_it_is() -> None:
    """The program changes nothing twice, and a wrong signature is noticed and mended."""
    page = "### th.load\n\n```text\nth.load(file)\n```\n\nRead a robot.\n\n## More\n"
    once = tool.updated(page)
    assert "th.load(path: str" in once.replace("\n    ", "")
    assert once.endswith("Read a robot.\n\n## More\n")
    assert tool.updated(once) == once
    with pytest.raises(LookupError, match="no name of the package"):
        tool.updated("### th.lod\n\nRead a robot.\n")
