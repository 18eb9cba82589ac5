"""Benchmarks that have a bound say whether it was met, and `make bench` fails where one was not."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from benchmarks.timing import verdict
from data_paths import ROOT

from benchmarks import __main__ as bench
from benchmarks import robots


def test_a_bound_that_is_missed_is_said_and_ends_with_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    missed: list[str] = []
    assert verdict("a cycle", 49.9, 50.0, "µs", missed) == "met"
    assert verdict("a record", 1e9, None, "µs", missed) == ""
    assert missed == []
    assert verdict("a cycle", 51.0, 50.0, "µs", missed) == "MISSED"
    assert missed == ["a cycle took 51 µs, allowed are 50"]
    for found, code in (
        ([], None),
        (None, None),
        (missed, "missed: a cycle took 51 µs, allowed are 50"),
    ):
        monkeypatch.setattr(
            bench, "PARTS", {"control": SimpleNamespace(main=lambda found=found: found)}
        )
        monkeypatch.setattr(sys, "argv", ["bench", "control"])
        if code is None:
            bench.main()
            continue
        with pytest.raises(SystemExit) as ended:
            bench.main()
        assert ended.value.code == code, "a text: Python prints it and exits with 1"


def test_there_are_44_joints_to_measure_on_wherever_this_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(robots, "VALKYRIE", ROOT / "not" / "there.urdf")
    assert robots.th.load(robots.valkyrie()).nv == 44
