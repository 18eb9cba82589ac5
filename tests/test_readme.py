"""What the README says runs: its Python, its commands, the output it shows, the files it links to."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from data_paths import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT / "src"), "COLUMNS": "100"}
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    return [text for name, text in BLOCKS if name == language]


def sessions() -> list[tuple[str, str]]:
    """(command, the output shown) of every `$ command` in a console block."""
    return [
        (command, shown) for text in blocks("console") for command, shown in re.findall(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", text, flags=re.MULTILINE)
    ]


def test_every_block_is_of_a_kind_that_is_tested() -> None:
    assert {name for name, _ in BLOCKS} <= {"python", "console", "sh"}
    assert blocks("python")
    assert sessions()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a reader works through the page: every Python block has run, from top to bottom."""
    folder = tmp_path_factory.mktemp("readme")
    for code in blocks("python"):
        subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=folder, env=ENVIRONMENT, check=True, timeout=120)
    return folder


def without_seconds(text: str) -> str:
    return re.sub(r"\d+\.\d s\b", "… s", text)


def test_python_runs(folder: Path) -> None:
    assert (folder / "arm4.csv").is_file()


@pytest.mark.parametrize(("command", "shown"), sessions())
def test_console_shows_what_the_command_prints(command: str, shown: str, folder: Path) -> None:
    program, *arguments = shlex.split(command)
    assert program == "thetahat"
    run = [sys.executable, "-m", "thetahat.cli", *arguments]
    done = subprocess.run(run, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, encoding="utf-8", timeout=60)
    assert done.returncode == 0, done.stderr
    assert without_seconds(done.stdout) == without_seconds(shown)


@pytest.mark.parametrize("line", [line.split("#")[0].strip() for text in blocks("sh") for line in text.splitlines() if line.strip()])
def test_shell_lines_work(line: str, folder: Path) -> None:
    """Commands run, one after the other, a design with less time; make's and pip's lines name what exists."""
    match shlex.split(line):
        case ["thetahat", verb, *arguments]:
            hurry = ["--seconds", "3"] if verb == "excite" else []
            run = [sys.executable, "-m", "thetahat.cli", verb, *arguments, *hurry]
            done = subprocess.run(run, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=300)
            assert done.returncode == 0, done.stderr
        case ["make", target]:
            if shutil.which("make") is None:
                pytest.skip("make is not installed")
            subprocess.run(["make", "--dry-run", target], cwd=ROOT, check=True, capture_output=True)
        case ["pip", "install", what]:
            extras = re.fullmatch(r"\.(?:\[(.+)\])?", what)
            assert extras, f"{what} is not this package"
            declared = re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), flags=re.MULTILINE)
            assert set(filter(None, (extras[1] or "").split(","))) <= set(declared)
        case _:
            pytest.fail(f"no test knows how to check {line!r}")


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)]+)\)", README))
def test_links_lead_somewhere(target: str) -> None:
    if not target.startswith("http"):
        assert (ROOT / target).is_file()
