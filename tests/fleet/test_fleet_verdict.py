"""The verdict on a fleet and on its robots: no better than the fits behind the findings."""

from __future__ import annotations

from typing import Any

import pytest

from thetahat.fleet.fleet_verdict import judge_fleet_answer, judge_robot


def robot(name: str, *scores: float | None, resolved: bool = True) -> dict[str, Any]:
    periods = [
        {"label": f"week {k}", "r2": r2, "rows": 1000, "rank": 30, "resolved": resolved}
        for k, r2 in enumerate(scores)
    ]
    data = {"id": name, "robot_file": "my arm.urdf", "periods": periods}
    return data | {"verdict": judge_robot(data).as_data()}


def fleet(*robots: dict[str, Any], left_out: tuple[str, ...] = ()) -> dict[str, Any]:
    missing = [{"name": name, "sentence": f"{name}: no torque"} for name in left_out]
    return {"robots": list(robots), "left_out": missing}


@pytest.mark.parametrize(
    ("scores", "level"),
    [
        ((0.99, 0.97), "good"),
        ((0.99, 0.94), "usable"),
        ((0.99, 0.7), "not usable"),
        ((0.99, None), "usable"),
        ((None,), "not usable"),
    ],
)
def test_the_worst_period_decides_on_a_robot(scores: tuple[float | None, ...], level: str) -> None:
    verdict = judge_robot(robot("a", *scores))
    assert verdict.level == level
    assert bool(verdict.reasons) == (level != "good")
    if 0.7 in scores:
        assert "week 1" in verdict.reasons[0]
        assert verdict.next_steps == ("thetahat identify 'my arm.urdf' LOG --out result",)


def test_noise_that_a_period_is_too_short_for_is_said() -> None:
    verdict = judge_robot(robot("a", 0.99, resolved=False))
    assert verdict.level == "usable"
    assert "too short" in verdict.reasons[0]


def test_a_fleet_is_no_better_than_its_robots() -> None:
    good, fair, bad = robot("a", 0.99), robot("b", 0.9), robot("c", 0.2)
    cases = {
        "good": fleet(good, good),
        "usable": fleet(good, fair),
        "not usable": fleet(bad, bad),
    }
    for level, data in cases.items():
        assert judge_fleet_answer(data, "two robots").level == level
    one_bad = judge_fleet_answer(fleet(good, fair, bad), "three robots")
    assert one_bad.level == "usable"
    assert one_bad.reasons[0].startswith("c not usable")
    left_out = judge_fleet_answer(fleet(good, left_out=("d",)), "one robot")
    assert left_out.level == "usable"
    assert "d: no torque" in left_out.reasons[0]
