"""The command line in this process, and a simulated log for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import simulated_log
from identify_cases import Done

from thetahat import cli


@pytest.fixture
def thetahat(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Done]:
    """The command line, in this process: what `thetahat …` in a shell does, without paying for a
    start each time.

    `identify` does not tune and writes no report, which take most of its time, unless a test says
    `--tune` or `--report`.
    """
    monkeypatch.delenv("THETAHAT_DEBUG", raising=False)

    def call(verb: str = "", *arguments: object) -> Done:
        quick = ["--no-tune", "--no-report"] if verb == "identify" else []
        monkeypatch.setattr(
            sys, "argv", ["thetahat", *([verb] if verb else []), *quick, *map(str, arguments)]
        )
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return Done(int(ended.value.code or 0), out, err)

    return call


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated_log.simulated(tmp_path_factory.mktemp("log"), noise=0.02)


@pytest.fixture(scope="module")
def rows(log: Path) -> tuple[list[str], np.ndarray]:
    """The simulated log's column names and numbers, to be spoiled."""
    return log.read_text().split("\n", 1)[0].split(","), np.loadtxt(log, delimiter=",", skiprows=1)
