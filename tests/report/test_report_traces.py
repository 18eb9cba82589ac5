"""What a report collects: the same in pieces as at once, every extreme kept, spectra that hold the
variance.
"""

from __future__ import annotations

import dataclasses
import itertools
import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import report_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import signal, stats

import thetahat as th
from thetahat import robots
from thetahat.data.samples import STANDSTILL, Samples
from thetahat.errors import UsageError
from thetahat.report.decimate import Envelope
from thetahat.report.spectrum import Welch
from thetahat.report.trace_collector import PAUSE, Collector
from thetahat.report.traces import Traces


@pytest.fixture(scope="module")
def arm() -> th.Robot:
    return th.load(robots.path("arm4"))


@pytest.fixture(scope="module")
def case() -> report_cases.Case:
    return report_cases.case()


def collected(robot: th.Robot, *parts: tuple[Samples, str], **options: Any) -> Traces:
    collector = Collector(robot, robot.without_drive(), **options)
    for samples, part in parts:
        collector.add(samples, part)
    return collector.result()


def noise(
    robot: th.Robot, rows: int, *, period: float = 0.01, seed: int = 0, **more: Any
) -> Samples:
    """A robot at rest at zero whose torque is noise: what is left is that noise and a constant."""
    rng = np.random.default_rng(seed)
    zero = np.zeros((rows, robot.nv))
    return Samples(
        q=zero,
        dq=zero,
        ddq=zero,
        tau=rng.normal(size=(rows, robot.nv)),
        t=np.arange(rows) * period,
        period=period,
        **more,
    )


def same(a: Any, b: Any, where: str = "") -> None:
    """Equal to rounding, all the way down."""
    if dataclasses.is_dataclass(a):
        for field in dataclasses.fields(a):
            same(getattr(a, field.name), getattr(b, field.name), f"{where}.{field.name}")
    elif isinstance(a, dict):
        assert a.keys() == b.keys(), where
        for key in a:
            same(a[key], b[key], f"{where}[{key}]")
    elif isinstance(a, tuple | list):
        assert len(a) == len(b), where
        for k, (x, y) in enumerate(zip(a, b, strict=True)):
            same(x, y, f"{where}[{k}]")
    elif isinstance(a, str) or a is None:
        assert a == b, where
    else:
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12, err_msg=where)


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_rows_in_pieces_give_what_all_rows_at_once_give(seed: int) -> None:
    robot = th.load(robots.path("arm4"))
    whole = report_cases.samples(robot, seconds=24.0, runs=3)
    train, test = whole.split(0.6)
    rng = np.random.default_rng(seed)
    parts = []
    for rows, name in ((train, "train"), (test, "test")):
        cuts = [0, *np.sort(rng.integers(0, len(rows) + 1, size=rng.integers(1, 9))), len(rows)]
        parts += [(rows.subset(slice(a, b)), name) for a, b in itertools.pairwise(cuts)]
    options = {"points": 300, "cloud": 200}
    same(
        collected(robot, *parts, **options),
        collected(robot, (train, "train"), (test, "test"), **options),
    )


def test_lines_keep_every_extreme_and_break_between_runs(arm: th.Robot) -> None:
    rows = report_cases.samples(arm, seconds=60.0, runs=2)
    spiked = rows.tau.copy()
    spiked[[1234, 9876], 2] = [500.0, -700.0]
    spiked[10, 2] = 9e9  # at the edge of the filter: not to be used, so not to be drawn
    rows = replace(rows, tau=spiked)
    traces = collected(arm, (rows, "train"), points=200)
    assert traces.decimation["train"] == 128, "12,000 rows in at most 100 buckets"
    for j, joint in enumerate(traces.joints):
        line, used = joint.lines.measured["train"], rows.scorable[:, j]
        assert np.nanmax(line.y) == rows.tau[used, j].max()
        assert np.nanmin(line.y) == rows.tau[used, j].min()
        known = dict(zip(rows.t[used].tolist(), rows.tau[used, j].tolist(), strict=True))
        drawn = np.isfinite(line.y)
        assert [known[t] for t in line.t[drawn].tolist()] == line.y[drawn].tolist(), (
            "every point is a row of the log, at its time"
        )
        assert np.all(np.diff(line.t[drawn]) > 0.0)
        for begin in range(0, len(rows), 128):  # every bucket's extremes are there
            mine = used[begin : begin + 128]
            if mine.any():
                values = rows.tau[begin : begin + 128, j][mine]
                assert {values.min(), values.max()} <= set(line.y[drawn].tolist())
    at = np.flatnonzero(np.isnan(traces.joints[0].lines.measured["train"].y))
    assert len(at) == 2, "one gap before each run"
    assert traces.joints[2].residuals.summary["train"].largest == pytest.approx(700.0, rel=0.1)
    assert traces.joints[2].residuals.summary["train"].at == rows.t[9876]


def test_short_logs_are_drawn_row_by_row(arm: th.Robot) -> None:
    rows = report_cases.samples(arm, seconds=2.0, runs=1)
    line = collected(arm, (rows, "test")).joints[0].lines.measured["test"]
    used = rows.scorable[:, 0]
    drawn = np.isfinite(line.y)
    np.testing.assert_array_equal(line.t[drawn], rows.t[used])
    np.testing.assert_array_equal(line.y[drawn], rows.tau[used, 0])


def test_an_envelope_has_the_least_width_that_fits() -> None:
    envelope = Envelope(1, 10)
    for n in range(1, 200):
        envelope.add(
            np.array([float(n)]),
            np.array([[0.0]]),
            np.array([[True]]),
            marks=np.zeros((1, 1), dtype=bool),
            broken=False,
        )
        assert -(-n // envelope.width) == len(envelope) <= 10
        assert envelope.width == 1 or -(-n // (envelope.width // 2)) > 10


def test_scores_are_those_of_validate(case: report_cases.Case) -> None:
    for joint, traced in zip(case.found["joints"], case.traces.joints, strict=True):
        assert traced.residuals.summary["test"].r2 == pytest.approx(joint["r2_test"], abs=1e-9)
        assert traced.residuals.summary["test"].rms == pytest.approx(joint["rms_test"], rel=1e-9)
        assert traced.residuals.summary["test"].rows == joint["rows_test"]


def test_spectrum_is_scipys_and_holds_the_variance(arm: th.Robot) -> None:
    rows = noise(arm, 60_000, period=0.01)
    joint = collected(arm, (rows, "test")).joints[1]
    spectrum = joint.residuals.spectrum["test"]
    length = 2 * (len(spectrum.frequency) - 1)
    f, density = signal.welch(rows.tau[:, 1], 100.0, nperseg=length)
    np.testing.assert_allclose(spectrum.frequency, f, rtol=1e-12)
    np.testing.assert_allclose(spectrum.torque**2, density, rtol=1e-9)
    np.testing.assert_allclose(
        spectrum.residual**2, density, rtol=1e-9
    )  # the model's part of it is constant
    assert length * 0.01 == pytest.approx(4.0, rel=0.5)
    assert np.trapezoid(spectrum.residual**2, f) == pytest.approx(rows.tau[:, 1].var(), rel=0.02)


def test_spectrum_takes_no_window_across_a_gap_or_a_masked_row(arm: th.Robot) -> None:
    """A step between two runs, and a spike that is masked, leave no trace in it."""
    rows = noise(arm, 20_000)
    run = (np.arange(20_000) >= 9_000).astype(int)
    tau = rows.tau + 1e3 * run[:, None]
    tau[4_321] = 1e6
    reason = np.zeros(tau.shape, dtype=np.uint8)
    reason[4_321] = 3
    reason[:100] = 2  # windows begin where rows can be scored
    spectrum = (
        collected(arm, (replace(rows, tau=tau, run=run, reason=reason), "train"))
        .joints[0]
        .residuals.spectrum["train"]
    )
    length = 2 * (len(spectrum.frequency) - 1)
    parts = [rows.tau[100:9_000, 0], rows.tau[9_000:, 0]]
    windows = [
        part[at : at + length]
        for part in parts
        for at in range(0, len(part) - length + 1, length // 2)
    ]
    kept = [w for w in windows if rows.tau[4_321, 0] not in w]
    assert len(kept) < len(windows)
    mean = np.mean([signal.welch(w, 100.0, nperseg=length)[1] for w in kept], axis=0)
    np.testing.assert_allclose(
        spectrum.residual**2, mean, rtol=1e-6
    )  # 1e3 is taken off again: digits are lost
    assert spectrum.windows == len(kept)


def test_spectrum_of_a_long_log_skips_windows_fairly() -> None:
    """White noise whose size changes late: skipped windows are counted by those that stand for
    them.
    """
    rng = np.random.default_rng(0)
    welch, total = Welch(1, 64), 1 << 22
    for k in range(total // 65_536):
        size = 1.0 if k < 48 else 3.0
        welch.add(
            size * rng.normal(size=(65_536, 1)), np.ones((65_536, 1), dtype=bool), begins=k == 0
        )
    f, density = welch.density(0, 1.0)
    assert welch.used[0] < 0.6 * total / 32
    assert welch.weight[0] == pytest.approx(total / 32, rel=0.001)
    assert np.trapezoid(density, f) == pytest.approx(0.75 * 1.0 + 0.25 * 9.0, rel=0.03)


def test_clouds_are_fair_samples(arm: th.Robot) -> None:
    """Every row that can be scored is as likely as any other, none twice, none that is masked."""
    rows = noise(arm, 40_000)
    reason = np.zeros(rows.tau.shape, dtype=np.uint8)
    reason[::2, 0] = 3
    rows = replace(rows, reason=reason)
    cloud = collected(arm, (rows, "train"), cloud=2000).joints[0].cloud["train"]
    where = np.searchsorted(np.sort(rows.tau[:, 0]), cloud.measured)
    index = np.argsort(rows.tau[:, 0])[where]
    assert len(set(index.tolist())) == len(cloud) == 2000
    assert np.all(index % 2 == 1)
    assert stats.kstest(index / 40_000, "uniform").pvalue > 1e-3
    assert abs(stats.spearmanr(np.arange(2000), index).statistic) < 0.1, (
        "in random order, so that the first few are a sample too"
    )


def test_friction_that_a_model_has_not_is_seen(arm: th.Robot) -> None:
    """Coulomb friction c that the robot has and the model has not: medians of the residual are ±c,
    and friction stands ±c off the curve.
    """
    rows = report_cases.samples(arm, seconds=120.0, runs=1, noise=0.01)
    missing = 5.0
    tau = th.inverse_dynamics(arm, rows.q, rows.dq, rows.ddq) + missing * np.sign(rows.dq)
    traces = collected(arm, (replace(rows, tau=tau), "test"))
    for j, joint in enumerate(traces.joints):
        bins = joint.residuals.against_velocity["test"]
        assert len(bins.centre) > 15
        np.testing.assert_allclose(bins.median, missing * np.sign(bins.centre), atol=1e-9)
        friction = joint.residuals.friction["test"]
        curve = np.interp(
            friction.centre,
            joint.residuals.curve.t[joint.residuals.curve.t != 0],
            joint.residuals.curve.y[joint.residuals.curve.t != 0],
        )
        slope = (friction.centre[1] - friction.centre[0]) * arm.drive.viscous[j]
        np.testing.assert_allclose(
            friction.median - curve, missing * np.sign(friction.centre), atol=slope
        )


def test_the_worst_stretch_is_found_at_full_rate(arm: th.Robot) -> None:
    rows = report_cases.samples(arm, seconds=100.0, runs=2, noise=0.1)
    tau = th.inverse_dynamics(arm, rows.q, rows.dq, rows.ddq)
    tau[13_000:13_100, 1] += 10.0
    tau[4_000:4_400, 3] += 5.0
    traces = collected(arm, (replace(rows, tau=tau), "test"))
    for j, (first, last) in {1: (13_000, 13_099), 3: (4_000, 4_399)}.items():
        worst = traces.joints[j].worst
        assert worst.t[0] <= rows.t[first] + 2.0
        assert worst.t[-1] >= rows.t[last] - 2.0
        assert np.nanmax(np.abs(worst.measured - worst.predicted)) > 4.0
        np.testing.assert_allclose(np.diff(worst.t), 0.005, rtol=1e-6)
    assert traces.joints[0].worst.rms < 1e-6


def test_standstill_is_marked(arm: th.Robot) -> None:
    rows = report_cases.samples(arm, seconds=40.0, runs=1)
    reason = np.zeros_like(rows.reason)
    reason[2_000:3_000, 0] = STANDSTILL
    traces = collected(arm, (replace(rows, reason=reason), "train"))
    ((begin, end),) = traces.joints[0].still
    assert (begin, end) == pytest.approx((10.0, 15.0), abs=0.1)
    assert traces.joints[1].still == ()
    assert not traces.joints[0].cloud["train"].moving.all()


def test_runs_whose_stamps_begin_anew_follow_each_other(arm: th.Robot) -> None:
    rows = report_cases.samples(arm, seconds=4.0, runs=1)
    second, third = (
        replace(rows, run=np.full(len(rows), k), t=rows.t + shift)
        for k, shift in ((1, 0.0), (2, 1e6))
    )
    traces = collected(arm, (rows, "train"), (second, "train"), (third, "test"))
    span = rows.t[-1] - rows.t[0]
    assert traces.spans == {
        "train": (0.0, pytest.approx(2 * span + PAUSE)),
        "test": (pytest.approx(2 * span + 2 * PAUSE), pytest.approx(3 * span + 2 * PAUSE)),
    }
    assert "shortened" in traces.clock
    small = replace(rows, run=np.full(len(rows), 1), t=rows.t + span + 0.5)
    assert collected(arm, (rows, "train"), (small, "train")).spans["train"] == (
        0.0,
        pytest.approx(2 * span + 0.5),
    ), "a short pause is drawn as it was"


def test_memory_does_not_grow_with_the_log(arm: th.Robot) -> None:
    rows = noise(arm, 20_000, period=0.001)

    def peak(batches: int) -> float:
        collector = Collector(arm, arm)
        tracemalloc.start()
        for k in range(batches):
            collector.add(replace(rows, t=rows.t + 20.0 * k), "train")
        collector.result()
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most / 1e6

    peak(1)  # what is made once
    assert peak(24) < 1.15 * peak(6)


def test_samples_without_stamps_runs_or_nominal_robot(arm: th.Robot) -> None:
    rows = report_cases.samples(arm, seconds=3.0)
    bare = Samples(q=rows.q, dq=rows.dq, ddq=rows.ddq, tau=rows.tau)
    collector = Collector(arm)
    collector.add(bare, "train")
    traces = collector.result()
    assert traces.clock == "sample"
    assert traces.joints[0].lines.nominal == {}
    assert traces.joints[0].cloud["train"].nominal is None
    assert traces.joints[0].residuals.spectrum == {}, "no period, no frequency"
    with pytest.raises(UsageError, match="part is 'validation'"):
        collector.add(bare, "validation")
