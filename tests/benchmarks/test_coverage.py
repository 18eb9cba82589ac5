"""Intervals hold on a few simulated logs: a small part of `make intervals`."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("mujoco")

from benchmarks import coverage

SEEDS = range(2)


@pytest.mark.parametrize("name", ["white", "stribeck", "prior-1000"])
def test_intervals_of_parameters_that_are_not_flagged_hold(name: str) -> None:
    cell = coverage.CELLS[name]
    rows = [coverage.run_row("arm4", cell, seed) for seed in SEEDS]
    summary = coverage.summarise(rows)
    # 60 correlated intervals, of which 95 % hold in the mean
    assert summary["all"] >= 0.85, summary
    if cell.clean:
        assert summary["flagged"] <= coverage.FLAGGED
    if cell.weight is not None:
        assert summary["reasons"]["prior"] > 0.1, "what a strong prior decides is flagged"


def test_a_summary_counts_intervals_that_hold_and_flags() -> None:
    rows = [
        {"names": ["a", "b", "c"], "error": [0.1, 3.0, None], "flags": [[], ["prior"], []]},
        {"names": ["a", "b", "c"], "error": [2.5, 0.1, None], "flags": [[], ["prior"], []]},
    ]
    found = coverage.summarise([{**row, "seconds": 1.0} for row in rows])
    assert (found["median"], found["least"]) == (0.5, 0.5), "of a alone"
    assert found["flagged"] == pytest.approx(2.0 / 3.0, abs=1e-3)
    assert coverage.missed(coverage.CELLS["white"], found) == [
        "median 0.5 < 0.93",
        "least 0.5 < 0.8",
        f"flagged {found['flagged']} > 0.15",
    ]


def test_committed_results_are_of_every_cell() -> None:
    if not coverage.RESULTS.exists():
        pytest.skip("no results yet")
    table = json.loads(coverage.RESULTS.read_text())
    assert set(table) == {f"{arm} {cell}" for arm in coverage.ARMS for cell in coverage.CELLS}
    assert all(np.isfinite(row["runs"]) for row in table.values())
