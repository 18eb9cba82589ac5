"""What the README says runs: its Python, its commands, the output it shows, the files it
links to.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from data_paths import ROOT
from prose import RUN, Reader, blocks

README = ROOT / "README.md"
TEXT = README.read_text(encoding="utf-8")


def test_every_block_is_of_a_kind_that_is_tested() -> None:
    assert {block.language for block in blocks(TEXT)} == {*RUN, "text"}


def test_a_reader_can_work_through_it(tmp_path: Path) -> None:
    """From top to bottom; every block of Python can be copied alone."""
    Reader(README, tmp_path, alone=True).work_through()


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)]+)\)", TEXT))
def test_links_lead_somewhere(target: str) -> None:
    if not target.startswith("http"):
        assert (ROOT / target).is_file()


@pytest.mark.parametrize("name", sorted(set(re.findall(r"examples/(\w+\.py)", TEXT))))
def test_examples_named_are_there(name: str) -> None:
    assert (ROOT / "examples" / name).is_file()
