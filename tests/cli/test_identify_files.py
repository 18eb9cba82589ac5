"""`thetahat identify`: what it writes, shows while it works, and loads."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from data_paths import ROOT
from identify_cases import Done

import thetahat as th
from thetahat import files, robots
from thetahat.cli import progress as bars

# -- files -----------------------------------------------------------------------------------------


def test_places_that_cannot_be_written(
    thetahat: Callable[..., Done], log: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "taken" / "estimate.json").mkdir(parents=True)
    for out in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / "taken"):
        done = thetahat("identify", "arm4", log, "--out", out)
        assert done.code == 6
        assert str(out) in done.err
    assert (tmp_path / "file").read_text() == "mine"


def test_inputs_are_never_written_over(
    thetahat: Callable[..., Done], log: Path, tmp_path: Path
) -> None:
    robot = tmp_path / "arm.urdf"
    robot.write_bytes(robots.path("arm4").read_bytes())
    for link in (Path.hardlink_to, Path.symlink_to):
        target = tmp_path / "estimate.json"
        link(target, robot)
        done = thetahat("identify", robot, log, "--out", tmp_path)
        assert (done.code, "write over the input" in done.err) == (2, True)
        target.unlink()
    assert robot.read_bytes() == robots.path("arm4").read_bytes()


def test_a_full_disk_leaves_the_old_file(
    thetahat: Callable[..., Done], log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "estimate.json").write_text("old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.os, "fsync", full)
    done = thetahat("identify", "arm4", log, "--out", tmp_path)
    assert done.code == 6
    assert "No space left" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["estimate.json"]
    assert (tmp_path / "estimate.json").read_text() == "old"


def test_an_interrupted_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "estimate.json").write_text("old")

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(files.os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        files.write_atomically(tmp_path / "estimate.json", "new")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


# -- progress and start ----------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_appears_at_a_terminal_when_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TERM", "xterm")
    for patience, seconds, quiet, shown in (
        (0.02, 0.4, False, True),
        (5.0, 0.05, False, False),
        (0.02, 0.1, True, False),
    ):
        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setattr(bars, "PATIENCE", patience)
        with bars.Progress(quiet=quiet) as progress:
            for _ in progress.count(([0] * 10 for _ in range(4)), "folding", 40):
                time.sleep(seconds / 4)
        assert ("folding" in terminal.getvalue()) == shown
    plain = io.StringIO()
    monkeypatch.setattr(sys, "stderr", plain)
    with bars.Progress() as progress:
        progress.stage("reading")
    assert plain.getvalue() == ""


def test_help_loads_nothing_heavy() -> None:
    import subprocess

    code = (
        "import sys; from thetahat.cli.app import app; print(*[name for name in ('numpy', 'numba',"
        " 'polars', 'scipy') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == []


def test_public_names_are_there_and_the_stages_can_be_called() -> None:
    assert callable(th.solve)
    assert callable(th.validate)
    import thetahat.identification.parameter_columns as columns  # the stage is still a package

    assert columns.Columns
    with pytest.raises(th.ThetahatError, match="Information"):
        th.solve(3)
