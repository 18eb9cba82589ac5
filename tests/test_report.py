"""What a report collects, draws and says: laws of the collector, figures that Plotly's own schema accepts, sections that are data."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import signal, stats

import report_cases
import thetahat as th
from thetahat import robots
from thetahat.data.samples import STANDSTILL, Samples
from thetahat.errors import UsageError
from thetahat.model import parameters
from thetahat.report import figures
from thetahat.report.collect import PAUSE, Collector
from thetahat.report.decimate import Envelope
from thetahat.report.figures import base
from thetahat.report.figures.stick import bones, ellipsoid, margin
from thetahat.report.page import asset, plotly_script, render
from thetahat.report.section import Column, Figure, Note, Panel, Section, Table, Text, as_data
from thetahat.report.spectrum import Welch
from thetahat.report.traces import Series, Traces
from thetahat.report.verdict import judged

GROUNDS = ("#ffffff", "#14171b")  # of page.css, light and dark
CONTRAST = 3.0  # that WCAG asks of graphics


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


def noise(robot: th.Robot, rows: int, *, period: float = 0.01, seed: int = 0, **more: Any) -> Samples:
    """A robot at rest at zero whose torque is noise: what is left is that noise and a constant."""
    rng = np.random.default_rng(seed)
    zero = np.zeros((rows, robot.nv))
    return Samples(q=zero, dq=zero, ddq=zero, tau=rng.normal(size=(rows, robot.nv)), t=np.arange(rows) * period, period=period, **more)


# -- the collector ----------------------------------------------------------------------------------------------------


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
    same(collected(robot, *parts, **options), collected(robot, (train, "train"), (test, "test"), **options))


def test_lines_keep_every_extreme_and_break_between_runs(arm: th.Robot) -> None:
    rows = report_cases.samples(arm, seconds=60.0, runs=2)
    spiked = rows.tau.copy()
    spiked[[1234, 9876], 2] = [500.0, -700.0]
    spiked[10, 2] = 9e9  # at the edge of the filter: not to be used, so not to be drawn
    rows = replace(rows, tau=spiked)
    traces = collected(arm, (rows, "train"), points=200)
    assert traces.decimation["train"] == 128, "12,000 rows in at most 100 buckets"
    for j, joint in enumerate(traces.joints):
        line, used = joint.measured["train"], rows.scorable[:, j]
        assert np.nanmax(line.y) == rows.tau[used, j].max()
        assert np.nanmin(line.y) == rows.tau[used, j].min()
        known = dict(zip(rows.t[used].tolist(), rows.tau[used, j].tolist(), strict=True))
        drawn = np.isfinite(line.y)
        assert [known[t] for t in line.t[drawn].tolist()] == line.y[drawn].tolist(), "every point is a row of the log, at its time"
        assert np.all(np.diff(line.t[drawn]) > 0.0)
        for begin in range(0, len(rows), 128):  # every bucket's extremes are there
            mine = used[begin : begin + 128]
            if mine.any():
                values = rows.tau[begin : begin + 128, j][mine]
                assert {values.min(), values.max()} <= set(line.y[drawn].tolist())
    at = np.flatnonzero(np.isnan(traces.joints[0].measured["train"].y))
    assert len(at) == 2, "one gap before each run"
    assert traces.joints[2].summary["train"].largest == pytest.approx(700.0, rel=0.1)
    assert traces.joints[2].summary["train"].at == rows.t[9876]


def test_short_logs_are_drawn_row_by_row(arm: th.Robot) -> None:
    rows = report_cases.samples(arm, seconds=2.0, runs=1)
    line = collected(arm, (rows, "test")).joints[0].measured["test"]
    used = rows.scorable[:, 0]
    drawn = np.isfinite(line.y)
    np.testing.assert_array_equal(line.t[drawn], rows.t[used])
    np.testing.assert_array_equal(line.y[drawn], rows.tau[used, 0])


def test_an_envelope_has_the_least_width_that_fits() -> None:
    envelope = Envelope(1, 10)
    for n in range(1, 200):
        envelope.add(np.array([float(n)]), np.array([[0.0]]), np.array([[True]]), marks=np.zeros((1, 1), dtype=bool), broken=False)
        assert -(-n // envelope.width) == len(envelope.begin) <= 10
        assert envelope.width == 1 or -(-n // (envelope.width // 2)) > 10


def test_scores_are_those_of_validate(case: report_cases.Case) -> None:
    for joint, traced in zip(case.found["joints"], case.traces.joints, strict=True):
        assert traced.summary["test"].r2 == pytest.approx(joint["r2_test"], abs=1e-9)
        assert traced.summary["test"].rms == pytest.approx(joint["rms_test"], rel=1e-9)
        assert traced.summary["test"].rows == joint["rows_test"]


def test_spectrum_is_scipys_and_holds_the_variance(arm: th.Robot) -> None:
    rows = noise(arm, 60_000, period=0.01)
    joint = collected(arm, (rows, "test")).joints[1]
    spectrum = joint.spectrum["test"]
    length = 2 * (len(spectrum.frequency) - 1)
    f, density = signal.welch(rows.tau[:, 1], 100.0, nperseg=length)
    np.testing.assert_allclose(spectrum.frequency, f, rtol=1e-12)
    np.testing.assert_allclose(spectrum.torque**2, density, rtol=1e-9)
    np.testing.assert_allclose(spectrum.residual**2, density, rtol=1e-9)  # the model's part of it is constant
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
    spectrum = collected(arm, (replace(rows, tau=tau, run=run, reason=reason), "train")).joints[0].spectrum["train"]
    length = 2 * (len(spectrum.frequency) - 1)
    parts = [rows.tau[100:9_000, 0], rows.tau[9_000:, 0]]
    windows = [part[at : at + length] for part in parts for at in range(0, len(part) - length + 1, length // 2)]
    kept = [w for w in windows if rows.tau[4_321, 0] not in w]
    assert len(kept) < len(windows)
    mean = np.mean([signal.welch(w, 100.0, nperseg=length)[1] for w in kept], axis=0)
    np.testing.assert_allclose(spectrum.residual**2, mean, rtol=1e-6)  # 1e3 is taken off again: digits are lost
    assert spectrum.windows == len(kept)


def test_spectrum_of_a_long_log_skips_windows_fairly() -> None:
    """White noise whose size changes late: skipped windows are counted by those that stand for them."""
    rng = np.random.default_rng(0)
    welch, total = Welch(1, 64), 1 << 22
    for k in range(total // 65_536):
        size = 1.0 if k < 48 else 3.0
        welch.add(size * rng.normal(size=(65_536, 1)), np.ones((65_536, 1), dtype=bool), begins=k == 0)
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
    assert abs(stats.spearmanr(np.arange(2000), index).statistic) < 0.1, "in random order, so that the first few are a sample too"


def test_friction_that_a_model_has_not_is_seen(arm: th.Robot) -> None:
    """Coulomb friction c that the robot has and the model has not: medians of the residual are ±c, and friction stands ±c off the curve."""
    rows = report_cases.samples(arm, seconds=120.0, runs=1, noise=0.01)
    missing = 5.0
    tau = th.inverse_dynamics(arm, rows.q, rows.dq, rows.ddq) + missing * np.sign(rows.dq)
    traces = collected(arm, (replace(rows, tau=tau), "test"))
    for j, joint in enumerate(traces.joints):
        bins = joint.against_velocity["test"]
        assert len(bins.centre) > 15
        np.testing.assert_allclose(bins.median, missing * np.sign(bins.centre), atol=1e-9)
        friction = joint.friction["test"]
        curve = np.interp(friction.centre, joint.curve.t[joint.curve.t != 0], joint.curve.y[joint.curve.t != 0])
        slope = (friction.centre[1] - friction.centre[0]) * arm.drive.viscous[j]
        np.testing.assert_allclose(friction.median - curve, missing * np.sign(friction.centre), atol=slope)


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
    second, third = (replace(rows, run=np.full(len(rows), k), t=rows.t + shift) for k, shift in ((1, 0.0), (2, 1e6)))
    traces = collected(arm, (rows, "train"), (second, "train"), (third, "test"))
    span = rows.t[-1] - rows.t[0]
    assert traces.spans == {
        "train": (0.0, pytest.approx(2 * span + PAUSE)),
        "test": (pytest.approx(2 * span + 2 * PAUSE), pytest.approx(3 * span + 2 * PAUSE)),
    }
    assert "shortened" in traces.clock
    small = replace(rows, run=np.full(len(rows), 1), t=rows.t + span + 0.5)
    assert collected(arm, (rows, "train"), (small, "train")).spans["train"] == (0.0, pytest.approx(2 * span + 0.5)), (
        "a short pause is drawn as it was"
    )


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
    assert traces.joints[0].nominal == {}
    assert traces.joints[0].cloud["train"].nominal is None
    assert traces.joints[0].spectrum == {}, "no period, no frequency"
    with pytest.raises(UsageError, match="part is 'validation'"):
        collector.add(bare, "validation")


# -- figures ----------------------------------------------------------------------------------------------------------


def drawings(sections: list[Section]) -> list[dict[str, Any]]:
    return [panel.figure for section in sections for block in section.blocks if isinstance(block, Figure) for panel in block.panels]


def test_plotlys_own_schema_accepts_every_figure(case: report_cases.Case) -> None:
    graph_objects = pytest.importorskip("plotly.graph_objects", reason="Plotly's Python package has the schema")
    found = drawings(case.sections)
    assert len(found) > 25
    for figure in found:
        graph_objects.Figure(json.loads(json.dumps(figure, allow_nan=False)))


def test_figures_take_live_data_without_a_report() -> None:
    """What the live page calls: lines that are empty, one point, or all gaps."""
    for t, y in (([], []), ([0.0], [1.0]), ([0.0, 1.0], [np.nan, np.nan])):
        series = Series(np.array(t), np.array(y))
        for figure in (figures.torque_over_time(series, series, series), figures.residual_over_time(series, rms=0.1)):
            json.dumps(figure, allow_nan=False)
    assert figures.r2_by_joint(["a", "b"], {"test": [None, 0.99], "nominal": [None, None]})["data"][0]["x"] == [None, pytest.approx(0.01)]
    json.dumps(
        [figures.rms_by_joint(["a"], {"test": [None]}), figures.torque_scatter({}), figures.residual_spectrum({}), figures.friction_curve(None, {})]
    )


def test_rounding_is_finer_than_a_screen() -> None:
    values = np.random.default_rng(0).normal(size=1000) * 1e3 + 1e6
    np.testing.assert_allclose(base.linear(values), values, atol=np.ptp(values) / 10_000)
    assert len(json.dumps(base.linear(values))) < 12 * 1000
    assert base.linear([np.nan, 1.0, np.inf]) == [None, 1.0, None]
    assert base.linear([5.0, 5.0]) == [5.0, 5.0]


@pytest.mark.parametrize("colour", [base.GREY, base.BLUE, base.ORANGE, base.PURPLE, base.GREEN, base.RED])
def test_colours_stand_out_on_light_and_dark(colour: str) -> None:
    def luminance(text: str) -> float:
        c = np.array([int(text[k : k + 2], 16) for k in (1, 3, 5)]) / 255.0
        return float(np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722])

    for ground in GROUNDS:
        assert ground in asset("page.css")
        a, b = sorted((luminance(colour), luminance(ground)))
        assert (b + 0.05) / (a + 0.05) >= CONTRAST


def test_ellipsoids_are_those_mujoco_makes() -> None:
    """MuJoCo's solid ellipsoid of given semi-axes has the inertia from which ours are computed."""
    mujoco = pytest.importorskip("mujoco", reason="MuJoCo is the oracle (pip install mujoco)")
    sizes = (0.31, 0.12, 0.05)
    geom = f"<geom type='ellipsoid' size='{sizes[0]} {sizes[1]} {sizes[2]}' mass='2.5'/>"
    model = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody><body pos='1 2 3'><freejoint/>{geom}</body></worldbody></mujoco>")
    turn = np.zeros(9)
    mujoco.mju_quat2Mat(turn, model.body_iquat[1])
    inertia = turn.reshape(3, 3) @ np.diag(model.body_inertia[1]) @ turn.reshape(3, 3).T
    centre = np.array([0.1, -0.2, 0.3])
    found = ellipsoid(parameters.from_mass_com_inertia(2.5, centre, inertia))
    np.testing.assert_allclose(found.radii, sizes, rtol=1e-9)
    np.testing.assert_allclose(np.abs(found.axes), np.eye(3), atol=1e-9)
    np.testing.assert_allclose(found.centre, centre)
    assert found.possible
    shell = np.linalg.norm((base_points(found) - centre) @ found.axes / found.radii, axis=1)
    np.testing.assert_allclose(shell, 1.0, atol=1e-3)


def base_points(found: Any) -> np.ndarray:
    """Points of the surface that is drawn, at the origin."""
    from thetahat.report.figures import stick

    mesh = stick._mesh([(found, np.eye(3), np.zeros(3))])
    return np.array([mesh["x"], mesh["y"], mesh["z"]]).T


@pytest.mark.parametrize(
    ("moments", "share"),
    [((1.0, 1.0, 1.0), 1 / 3), ((0.0, 1.0, 1.0), 0.0), ((1.0, 1.0, 2.0), 0.0), ((1.0, 1.0, 3.0), -0.2), ((-0.5, 1.0, 1.0), -0.2)],
)
def test_margins(moments: tuple[float, ...], share: float) -> None:
    theta = parameters.from_mass_com_inertia(2.0, np.array([0.1, 0.0, 0.3]), np.diag(moments))
    assert margin(theta) == pytest.approx(share, abs=1e-12)
    assert bool(parameters.check(theta)) is (share >= -1e-12)


def test_sticks_join_the_joints(arm: th.Robot) -> None:
    q = np.array([0.3, -0.4, 0.5, 0.6])
    _, p = th.body_frames(arm, q)
    lines = bones(arm, q)
    ends = np.array([line[1] for line in lines])
    for origin in p:
        if np.linalg.norm(origin) > 1e-3:
            assert np.min(np.linalg.norm(ends - origin, axis=1)) < 1e-12
    assert len(lines) >= 4


# -- sections and page ------------------------------------------------------------------------------------------------


def test_sections_are_data_in_the_order_engineers_ask(case: report_cases.Case) -> None:
    sections = case.sections
    assert [section.anchor for section in sections] == [
        *("verdict", "scores", "torque", "scatter", "residuals", "parameters", "bodies", "unseen", "audit", "provenance")
    ]
    data = as_data(sections)
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    kinds = {block["kind"] for section in data for block in section["blocks"]}
    assert kinds == {"text", "note", "table", "figure"}


def test_what_is_not_finite_is_null() -> None:
    figure = Figure((Panel("p", {"data": [{"x": np.array([1.0, np.nan]), "y": (np.float64("inf"), np.int64(3))}], "layout": {}}),))
    (data,) = as_data([Section("x", "x", (figure, Table((Column("a"),), ((float("nan"),),))))])
    assert data["blocks"][0]["panels"][0]["figure"]["data"] == [{"x": [1.0, None], "y": [None, 3]}]
    assert data["blocks"][1]["rows"] == [[None]]


def test_base_parameters_stand_beside_those_of_the_file(case: report_cases.Case) -> None:
    parameters_section = next(section for section in case.sections if section.anchor == "parameters")
    table = next(block for block in parameters_section.blocks if isinstance(block, Table) and block.folded)
    base_map = case.identified.base_parameters.map
    stated = base_map @ np.concatenate([case.robot.theta, *(case.robot.drive.value(term) for term in case.identified.drive.identified)])
    np.testing.assert_allclose([row[-1] for row in table.rows], stated, rtol=1e-12)
    assert [row[1] for row in table.rows] == [entry["value"] for entry in case.found["base_parameters"]]


@pytest.mark.parametrize(
    ("change", "level", "said"),
    [
        ({}, "good", "Good: R² 0.9"),
        ({"r2": {"test": None}}, "warning", "nothing usable was held out"),
        ({"r2": {"test": 0.7}}, "bad", "too little of the torque"),
        ({"r2": {"test": 0.9, "nominal": 0.95}}, "bad", "the file's own values predict better"),
        ({"joint": {"r2_test": 0.9}}, "warning", "below 0.95 on shoulder_pitch"),
        ({"joint": {"r2_test": -3.0}}, "bad", "no torque at all would do better on shoulder_pitch"),
        ({"joint": {"rms_nominal": 1e-3}}, "warning", "the file's own values predict shoulder_pitch better"),
        ({"consistent": False}, "warning", "for prediction, not for a simulator"),
        ({"rank": 20}, "warning", "shows 20 of"),
        ({"status": "infeasible"}, "bad", "contradict each other"),
    ],
)
def test_the_verdict_is_one_sentence_with_its_reason(case: report_cases.Case, change: dict[str, Any], level: str, said: str) -> None:
    found = {**case.found, **{key: value for key, value in change.items() if key not in ("r2", "joint")}}
    found["r2"] = {**case.found["r2"], **change.get("r2", {})}
    found["joints"] = [{**case.found["joints"][0], **change.get("joint", {})}, *case.found["joints"][1:]]
    found_level, sentence = judged(found)
    assert found_level == level
    assert said in sentence
    assert sentence.endswith(".")
    assert len(re.findall(r"\.(?=\s)", sentence)) == 0, "one sentence"


def test_page_stands_alone_and_lets_nothing_in(case: report_cases.Case) -> None:
    page = render("report", case.sections, subtitle="of a test")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)[1]
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0], "scripts run by their hash alone"
    outside = page.replace(plotly_script(), "")
    assert not re.search(r"(?:src|href)\s*=\s*(?![\"'](?:#|data:))", re.sub(r"<script.*?</script>", "", outside, flags=re.DOTALL))
    assert page.count(plotly_script()) == 1
    assert len(page) - len(plotly_script()) < 3e6
    assert "None" not in re.sub(r"<(script|style).*?</\1>", "", outside, flags=re.DOTALL)


def test_page_of_text_alone_is_small_and_names_are_escaped() -> None:
    hostile = report_cases.HOSTILE
    table = Table((Column("a"), Column("b", decimals=4)), ((hostile, 0.99996), ("", None), ("x", float("nan"))), hostile)
    page = render(hostile, [Section(hostile, "one", (Text(hostile), Note(hostile, "bad"), table))], subtitle=hostile)
    assert len(page) < 40_000, "no figures, no Plotly"
    assert "<script>alert" not in page
    assert "<img" not in page
    assert page.count("&lt;img src=x onerror=alert(2)&gt;") >= 6
    assert "&gt; 0.9999" in page, "not rounded up to one"
    assert "nan" not in page.split("<main")[1].split("</main>")[0]


def test_data_cannot_end_the_element_they_stand_in() -> None:
    drawing = {"data": [{"name": "</script ><script >alert(1)</script ><!--", "y": [1.0]}], "layout": {}}
    page = render("t", [Section("s", "s", (Figure((Panel("p", drawing),)),))])
    (data,) = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page)
    assert json.loads(data) == drawing
    assert "<" not in data


def test_code_in_prose_is_marked_after_it_is_escaped() -> None:
    page = render("t", [Section("s", "s", (Text("run `thetahat a <b>` now"),))])
    assert '<code class="code"><span>thetahat</span> <span>a</span> <span>&lt;b&gt;</span></code>' in page


def test_mistakes_in_sections_are_named() -> None:
    with pytest.raises(UsageError, match="anchor 'a b'"):
        Section("x", "a b", ())
    with pytest.raises(UsageError, match="row of 1 cells for 2 columns"):
        Table((Column("a"), Column("b")), (("1",),))
    with pytest.raises(UsageError, match="no panels"):
        Figure(())
    with pytest.raises(UsageError, match="level is 'worse'"):
        Note("x", "worse")
    with pytest.raises(UsageError, match="cannot be put on a page"):
        as_data([Section("x", "x", (Figure((Panel("p", {"data": object(), "layout": {}}),)),))])
