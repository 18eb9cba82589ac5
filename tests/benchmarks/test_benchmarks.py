"""Benchmarks that have a bound say whether it was met, and `make bench` fails where one was not."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from benchmarks.timing import verdict
from data_paths import ROOT

from benchmarks import __main__ as bench
from benchmarks import ratios, robots


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


def test_a_ratio_that_falls_by_more_than_its_share_is_named() -> None:
    kept = {"regressor": 10.0, "fold": 4.0, "gone": 1.0}
    now = {"regressor": 8.6, "fold": 3.3, "new": 0.1}
    said = ratios.fallen(kept, now)
    assert said == ["gone is not measured any more", "fold: 3.3 times as fast, 4 were committed"]
    assert ratios.fallen(now, now) == []


def test_a_ratio_is_the_peers_processor_time_over_ours() -> None:
    def work(loops: int) -> None:
        sum(k * k for k in range(loops))

    case = ratios.Case("squares", lambda: work(40_000), lambda: work(20_000))
    assert ratios.ratio(case) == pytest.approx(2.0, rel=0.15)
    half = ratios.Case("squares", lambda: work(20_000), lambda: work(20_000), share=0.5)
    assert ratios.ratio(half) == pytest.approx(2.0, rel=0.15)
