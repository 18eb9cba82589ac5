"""Mistakes in the log of a floating robot, through the command line: one sentence, and its code."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from data_paths import example_robot
from floating_mistakes import MISTAKES, Columns
from floating_robots import standing, standing_log
from identify_cases import Done

MALFORMED = 3


@pytest.fixture(scope="module")
def tables() -> dict[str, Columns]:
    robot, motion = standing("solo12", duration=5.0)
    return {
        kind: standing_log(robot, motion, wrenches=kind == "wrenches")
        for kind in ("wrenches", "contacts")
    }


@pytest.mark.parametrize(("kind", "mistake", "sentence", "settings"), MISTAKES)
def test_a_mistake_is_one_sentence_with_its_remedy(
    tables: dict[str, Columns],
    thetahat: Callable[..., Done],
    tmp_path: Path,
    kind: str,
    mistake: Callable[[Columns], Columns],
    sentence: str,
    settings: dict[str, str],
) -> None:
    log = tmp_path / "log.csv"
    pl.DataFrame(mistake(dict(tables[kind]))).write_csv(log)
    options = [part for key, value in settings.items() for part in (f"--{key}", value)]
    options = [each.replace("_", "-") for each in options]
    inputs = (example_robot("solo12"), log, "--out", tmp_path / "out")
    done = thetahat("identify", *inputs, "--floating-base", *options, "--quiet")
    assert done.code in (2, MALFORMED), done.err
    assert re.search(sentence, done.err.replace("\n", " ")), done.err
    assert len(done.err.strip().splitlines()) == 1
