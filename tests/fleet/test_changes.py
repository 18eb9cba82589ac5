"""Changes over a robot's life and robots against the fleet: what was planted is found, and chance
is reported no more often than stated.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fleet_sim import DAILY, HAND, Planted, arm, name_of, planted, write_fleet
from scipy import stats
from simulated_log import motion

import thetahat as th
from thetahat.engine.reduce import ShardReducer
from thetahat.fleet import changes, outliers
from thetahat.fleet.analysis import FleetAnalysis, FleetOptions, analyze_fleet
from thetahat.fleet.findings import FleetFindings, RobotHistory, judge_fleet
from thetahat.fleet.manifest import read_manifest
from thetahat.fleet.parameter_series import FRICTION, Space, mass_weights, parameter_space, pooled
from thetahat.fleet.period_estimates import PeriodEstimate
from thetahat.identification.estimators.least_squares import LeastSquares
from thetahat.identification.information import Information
from thetahat.identification.solve import solve
from thetahat.model import parameters

BOTH = ("drift", "step")
RARE = 1e-3  # probability with which a count may be exceeded by chance where the level is as stated


# -- one series ------------------------------------------------------------------------------------


def test_a_step_with_equal_variances_is_the_two_sample_t_test() -> None:
    """With scatter far above the stated variances, equal ones, and k known, the textbook's pooled
    test is what remains.
    """
    rng = np.random.default_rng(0)
    y = rng.normal(size=20)
    y[12:] += 3.0
    found = changes.step_at(y, np.full(20, 1e-9), 12)
    expected = stats.ttest_ind(y[12:], y[:12])
    residual = np.concatenate([y[:12] - y[:12].mean(), y[12:] - y[12:].mean()])
    rho = max(float(residual[1:] @ residual[:-1] / (residual @ residual)), 0.0)
    assert found.size == pytest.approx(y[12:].mean() - y[:12].mean(), rel=1e-6)
    assert found.size / found.std * np.sqrt((1.0 + rho) / (1.0 - rho)) == pytest.approx(
        expected.statistic, rel=1e-5
    )
    assert found.scatter == pytest.approx(np.sqrt(np.sum(residual**2) / 18), rel=1e-5)


def test_a_drift_is_the_weighted_line() -> None:
    rng = np.random.default_rng(1)
    t, v = np.sort(rng.uniform(0.0, 300.0, 30)), rng.uniform(0.5, 2.0, 30)
    y = (
        5.0 + 0.1 * t + rng.normal(0.0, 0.3 * np.sqrt(v))
    )  # scatters less than it says, so the stated variances stand
    found = changes.best_change(y, v, t, kinds=BOTH)
    slope, offset = np.polyfit(t, y, 1, w=1.0 / np.sqrt(v))
    assert found.kind == "drift"
    assert found.chance < 1e-12
    assert found.size == pytest.approx(slope * (t[-1] - t[0]), rel=1e-9)
    assert found.before == pytest.approx(offset + slope * t[0], rel=1e-9)
    assert found.scatter == 0.0
    x = (t - t[0]) / (t[-1] - t[0])
    design = np.column_stack([np.ones(30), x]) / np.sqrt(v)[:, None]
    assert found.std >= np.sqrt(np.linalg.inv(design.T @ design)[1, 1]) * (1.0 - 1e-9)


@pytest.mark.parametrize("kinds", [BOTH, ("step", "spell")])
@pytest.mark.parametrize(("periods", "scatter"), [(30, 0.0), (30, 2.0), (12, 2.0), (6, 2.0)])
def test_chance_is_no_likelier_than_stated(
    periods: int, scatter: float, kinds: tuple[str, ...]
) -> None:
    rng = np.random.default_rng([periods, int(scatter)])
    chances = []
    for _ in range(300):
        v = np.exp(rng.normal(0.0, 0.7, periods))
        y = rng.normal(0.0, np.sqrt(v + scatter**2))
        chances.append(
            changes.best_change(y, v, np.arange(periods, dtype=float), kinds=kinds).chance
        )
    for level in (0.1, 0.01):
        alarms = int(np.sum(np.array(chances) <= level))
        assert alarms <= stats.binom.isf(RARE, len(chances), level), (level, alarms)


@pytest.mark.parametrize("kind", ["step", "drift"])
def test_the_kind_and_the_period_of_a_change_are_told(kind: str) -> None:
    rng = np.random.default_rng(5)
    for at in range(6, 35, 4):
        y, v = rng.normal(0.0, 1.0, 40), np.ones(40)
        y += 6.0 * (
            changes.step_regressor(40, at) if kind == "step" else 2.0 * np.arange(40) / 39.0
        )
        found = changes.best_change(y, v, np.arange(40.0), kinds=BOTH)
        assert found.kind == kind
        assert kind == "drift" or abs(found.at - at) <= 1
        assert found.chance < 1e-6


def test_too_few_periods_say_nothing() -> None:
    assert (
        changes.best_change(np.array([0.0, 0.0, 9.0]), np.full(3, 1e-6), np.arange(3.0), kinds=BOTH)
        is None
    )


def test_holm_refuses_as_the_textbook_does() -> None:
    chances = np.array([0.01, 0.04, 0.03, 0.005])
    assert changes.holm(chances, 0.05).tolist() == [
        True,
        False,
        False,
        True,
    ]  # 0.005 ≤ 0.05/4, 0.01 ≤ 0.05/3, 0.03 > 0.05/2


# -- robots against the fleet ----------------------------------------------------------------------


def test_two_outliers_alike_do_not_hide_each_other() -> None:
    rng = np.random.default_rng(3)
    y = rng.normal(10.0, 1.0, 20)
    y[[4, 11]] = 25.0, 25.2
    found = outliers.compare_robots(y, np.full(20, 0.01), level=0.01)
    assert sorted(found.outliers) == [4, 11]
    assert found.centre == pytest.approx(np.mean(np.delete(y, [4, 11])), abs=1e-6)
    assert found.spread == pytest.approx(np.std(np.delete(y, [4, 11]), ddof=1), rel=0.02)


def test_robots_that_differ_as_robots_do_are_no_outliers() -> None:
    rng, fleets, alarms = np.random.default_rng(4), 400, 0
    for _ in range(fleets):
        v = rng.uniform(0.01, 1.0, 12)
        alarms += bool(
            outliers.compare_robots(rng.normal(3.0, np.sqrt(1.0 + v)), v, level=0.05).outliers
        )
    assert alarms <= stats.binom.isf(RARE, fleets, 0.05)


def test_few_robots_are_not_compared() -> None:
    assert outliers.compare_robots(np.array([1.0, 2.0, 3.0, 99.0]), np.ones(4), level=0.01) is None


# -- estimates that are drawn, not folded ----------------------------------------------------------


def _informations(count: int, robot: th.Robot) -> list[Information]:
    rng, out = np.random.default_rng(9), []
    for seed in range(count):
        _, q, dq, ddq = motion(robot.nv, seconds=6.0, rate=50.0, seed=seed)
        tau = (
            th.inverse_dynamics(arm(), q, dq, ddq, rigid=True)
            + dq
            + 2.0 * np.sign(dq)
            + rng.normal(0.0, 0.15, q.shape)
        )
        out.append(th.information(robot, th.Samples(q=q, dq=dq, ddq=ddq, tau=tau)))
    return out


@pytest.fixture(scope="module")
def estimates() -> tuple[Information, list[PeriodEstimate]]:
    """Some periods as a real fit has them: values and full covariances."""
    robot = arm().without_drive().with_drive(viscous=True, coulomb=True, offset=True)
    whole, out = _informations(6, robot), []
    for each in whole:
        found = solve(each, LeastSquares())
        out.append(
            PeriodEstimate(
                found.x_base,
                found.covariance,
                np.zeros(4),
                found.r2,
                np.zeros(4),
                each.samples,
                found.rank,
                resolved=True,
            )
        )
    return whole[0], out


def _drawn(
    kinds: Space, some: list[PeriodEstimate], robots: int, periods: int, rng: np.random.Generator
) -> list[RobotHistory]:
    """A fleet in which nothing happens: robots differ, friction scatters from day to day, estimates
    scatter as their covariances say.
    """
    friction = [k for k, each in enumerate(kinds.parameters) if each.kind == FRICTION]
    centre = np.mean([each.x_base for each in some], axis=0)
    out = []
    for k in range(robots):
        own = centre * (1.0 + 0.1 * rng.standard_normal(len(centre)))
        life = []
        for _ in range(periods):
            like = some[int(rng.integers(len(some)))]
            x = own + np.linalg.cholesky(like.covariance) @ rng.standard_normal(len(own))
            x[friction] += DAILY * own[friction] * rng.standard_normal(len(friction))
            life.append(replace(like, x_base=x))
        labels = tuple(f"run{t:02d}" for t in range(periods))
        out.append(
            RobotHistory(
                name_of(k), "arm", kinds, labels, np.arange(periods, dtype=float), tuple(life)
            )
        )
    return out


def test_the_mass_on_a_link_is_what_was_added(
    estimates: tuple[Information, list[PeriodEstimate]],
) -> None:
    """wᵀ(x + G·θ_p + any change of friction) − wᵀx is the mass in θ_p, whatever its centre and
    inertia.
    """
    whole, some = estimates
    rng, base = np.random.default_rng(2), whole.base
    drive = range(40, base.columns)
    w = mass_weights(base, 3, drive, pooled(some), most=10.0)
    for _ in range(5):
        change = np.zeros(base.columns)
        held = parameters.from_mass_com_inertia(
            np.array(0.7), rng.normal(0.0, 0.1, 3), 1e-3 * np.eye(3)
        )
        change[30:40], change[40:] = held, rng.normal(size=base.columns - 40)
        assert w @ (base.map @ change) == pytest.approx(0.7, abs=1e-8)
    assert (
        mass_weights(base, 0, drive, pooled(some), most=10.0) is None
    )  # the first link turns about its own axis: nobody feels its mass


def test_fleets_in_which_nothing_happens_raise_no_more_alarms_than_stated(
    estimates: tuple[Information, list[PeriodEstimate]],
) -> None:
    whole, some = estimates
    kinds, rng, fleets, level = parameter_space(whole, some), np.random.default_rng(11), 12, 0.2
    alarms = sum(
        bool(judge_fleet(_drawn(kinds, some, 5, 8, rng), level=level).findings)
        for _ in range(fleets)
    )
    assert alarms <= stats.binom.isf(RARE, fleets, level)


@pytest.mark.slow
def test_many_fleets_in_which_nothing_happens(
    estimates: tuple[Information, list[PeriodEstimate]],
) -> None:
    whole, some = estimates
    kinds, rng, fleets, level = parameter_space(whole, some), np.random.default_rng(12), 80, 0.1
    alarms = sum(
        bool(judge_fleet(_drawn(kinds, some, 8, 20, rng), level=level).findings)
        for _ in range(fleets)
    )
    print(f"{alarms} of {fleets} fleets with an alarm at level {level}")
    assert alarms <= stats.binom.isf(RARE, fleets, level)


def test_a_payload_that_is_put_down_again_is_two_steps(
    estimates: tuple[Information, list[PeriodEstimate]],
) -> None:
    whole, some = estimates
    fleet = _drawn(parameter_space(whole, some), some, 3, 18, np.random.default_rng(13))
    change = np.zeros(whole.base.columns)
    change[30:40] = parameters.from_mass_com_inertia(
        np.array(0.8), np.array([0.0, 0.2, 0.0]), 2e-3 * np.eye(3)
    )
    held = whole.base.map @ change
    fleet[1] = replace(
        fleet[1],
        periods=tuple(
            replace(p, x_base=p.x_base + held * (6 <= t < 12))
            for t, p in enumerate(fleet[1].periods)
        ),
    )
    found = judge_fleet(fleet, level=0.01).findings
    assert [
        (each.robot, each.kind, each.where, each.period)
        for each in sorted(found, key=lambda each: each.period)
    ] == [
        (name_of(1), "payload", HAND, "run06"),
        (name_of(1), "payload", HAND, "run12"),
    ]
    sizes = [each.size for each in sorted(found, key=lambda each: each.period)]
    assert sizes == pytest.approx([0.8, -0.8], abs=0.15)


def test_a_worn_robot_is_named_an_outlier(
    estimates: tuple[Information, list[PeriodEstimate]],
) -> None:
    whole, some = estimates
    kinds = parameter_space(whole, some)
    fleet = _drawn(kinds, some, 16, 5, np.random.default_rng(14))
    k = next(k for k, each in enumerate(kinds.parameters) if each.name == "coulomb_elbow")
    worn = tuple(
        replace(p, x_base=p.x_base * np.where(np.arange(len(p.x_base)) == k, 3.0, 1.0))
        for p in fleet[7].periods
    )
    fleet[7] = replace(fleet[7], periods=worn)
    found = judge_fleet(fleet, level=0.01).findings
    assert [(each.robot, each.kind, each.where, each.term) for each in found] == [
        (name_of(7), "outlier", "elbow", "coulomb")
    ]


# -- simulated runs --------------------------------------------------------------------------------


def require_all_and_nothing_else(
    found: FleetFindings, changes_planted: tuple[Planted, ...], *, slack: int
) -> None:
    """Every planted change is found: robot, kind, place, period and size; and nothing else is."""
    left = list(found.findings)
    for each in changes_planted:
        kind = "payload" if each.kind == "payload" else "friction-drift"
        mine = [
            one
            for one in left
            if one.robot == each.robot and one.kind == kind and one.where == each.where
        ]
        assert len(mine) == 1, f"{each} is not found: {[one.sentence for one in found.findings]}"
        one = mine[0]
        left.remove(one)
        if kind == "payload":
            assert abs(int(one.period.removeprefix("run")) - each.run) <= slack
            assert abs(one.size - each.size) < 4.0 * one.std
        else:
            assert one.term == each.kind
            assert abs(one.size / one.before - each.size) < 0.15
    assert left == [], [one.sentence for one in left]


def judged_fleet(
    folder: Path,
    robots: int,
    runs: int,
    *,
    seed: int,
    changes: tuple[Planted, ...],
    level: float = 0.01,
) -> FleetAnalysis:
    manifest = write_fleet(folder, robots, runs, seed=seed, changes=changes)
    return analyze_fleet(
        read_manifest(manifest), FleetOptions(level=level, tune=False), ShardReducer()
    )


def test_planted_changes_of_a_small_fleet_are_found_and_nothing_else(tmp_path: Path) -> None:
    what = planted(6, 12, seed=1)
    found = judged_fleet(tmp_path, 6, 12, seed=1, changes=what)
    assert found.failures == ()
    require_all_and_nothing_else(found.findings, what, slack=1)


@pytest.mark.slow
def test_planted_changes_of_a_thousand_runs_of_twenty_robots(tmp_path: Path) -> None:
    what = planted(20, 50, seed=2)
    manifest = write_fleet(tmp_path, 20, 50, seed=2, changes=what)
    found = analyze_fleet(read_manifest(manifest), FleetOptions(), ShardReducer())
    print(
        json.dumps(
            [each.sentence for each in found.findings.findings], indent=1, ensure_ascii=False
        )
    )
    assert sum(len(robot.periods) for robot in found.robots) == 1_000
    require_all_and_nothing_else(found.findings, what, slack=2)


@pytest.mark.slow
def test_simulated_fleets_in_which_nothing_happens(tmp_path: Path) -> None:
    fleets, level = 10, 0.05
    alarms = [
        judged_fleet(
            tmp_path / str(seed), 8, 16, seed=50 + seed, changes=(), level=level
        ).findings.findings
        for seed in range(fleets)
    ]
    print([each.sentence for found in alarms for each in found])
    assert sum(map(bool, alarms)) <= stats.binom.isf(RARE, fleets, level)
