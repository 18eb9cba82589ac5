"""File names that are not UTF-8, and standard streams that are closed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import simulated_log

from thetahat import robots

PROGRAM = [sys.executable, "-m", "thetahat.cli"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("names")
    log = simulated_log.simulated(folder, seconds=4.0)
    try:
        (folder / os.fsdecode(b"r\xff.urdf")).write_bytes(robots.path("arm4").read_bytes())
    except OSError:
        pytest.skip("this file system takes names in UTF-8 only")
    log.rename(folder / os.fsdecode(b"l\xff.csv"))
    return folder


def run(folder: Path, *arguments: bytes | str, shell: str = "") -> subprocess.CompletedProcess[str]:
    command = [*PROGRAM, *(os.fsdecode(each) for each in arguments)]
    if shell:
        quoted = " ".join(f"'{each}'" for each in command)
        command = ["sh", "-c", f"{quoted} {shell}"]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=150, errors="surrogateescape"
    )


def test_a_result_is_not_lost_for_its_name(folder: Path) -> None:
    """Robot, log, folder and store: all names hold a byte that is no UTF-8; the answers are."""
    quick = ("--no-tune", "--no-report", "-q", "--json")
    done = run(
        *(folder, "identify", b"r\xff.urdf", b"l\xff.csv", "--out", b"o\xff", "--store", b"s\xff"),
        *quick,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["provenance"]["logs"][0]["path"].endswith("l\udcff.csv")
    there = folder / os.fsdecode(b"o\xff")
    assert json.loads((there / "estimate.json").read_text(encoding="utf-8"))["joints"]
    for path in there.iterdir():
        if path.suffix in (".json", ".urdf"):
            path.read_bytes().decode("utf-8")
    listed = run(folder, "history", "--store", b"s\xff", "--json")
    assert listed.returncode == 0, listed.stderr
    scored = run(
        *(folder, "validate", b"r\xff.urdf", b"l\xff.csv", "--json"),
        *("--estimate", b"o\xff/estimate.json"),
    )
    assert scored.returncode == 0, scored.stderr


@pytest.mark.parametrize("shell", [">&-", "2>&-"])
def test_closed_streams(folder: Path, shell: str) -> None:
    """Without stdout the answer has nowhere to go, which is an error; without stderr it is not."""
    done = run(folder, "inspect", "arm4", "--json", shell=shell)
    if shell == ">&-":
        assert done.returncode == 6
        assert "stdout" in done.stderr
    else:
        assert done.returncode == 0
        assert json.loads(done.stdout)["schema"]
