"""What a report collects, draws and says: laws of the collector, figures that Plotly's own schema
accepts, sections that are data.
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
import report_cases

import thetahat as th
from thetahat import robots
from thetahat.dynamics.rigid_body import body_frames
from thetahat.errors import UsageError
from thetahat.identification.verdict import judge
from thetahat.model import parameters
from thetahat.report.figures import bars, base, time_series
from thetahat.report.figures.stick_figure import bones, ellipsoid, margin
from thetahat.report.page import asset, plotly_script, render
from thetahat.report.section import Code, Column, Figure, Note, Panel, Section, Table, Text, plain
from thetahat.report.traces import Series

GROUNDS = ("#ffffff", "#14171b")  # of page.css, light and dark
CONTRAST = 3.0  # that WCAG asks of graphics


@pytest.fixture(scope="module")
def arm() -> th.Robot:
    return th.load(robots.path("arm4"))


@pytest.fixture(scope="module")
def case() -> report_cases.Case:
    return report_cases.case()


# -- figures ---------------------------------------------------------------------------------------


def drawings(sections: list[Section]) -> list[dict[str, Any]]:
    return [
        panel.figure
        for section in sections
        for block in section.blocks
        if isinstance(block, Figure)
        for panel in block.panels
    ]


def test_plotlys_own_schema_accepts_every_figure(case: report_cases.Case) -> None:
    graph_objects = pytest.importorskip(
        "plotly.graph_objects", reason="Plotly's Python package has the schema"
    )
    found = drawings(case.sections)
    assert len(found) > 25
    for figure in found:
        graph_objects.Figure(json.loads(json.dumps(figure, allow_nan=False)))


def test_figures_take_live_data_without_a_report() -> None:
    """What the live page calls: lines that are empty, one point, or all gaps."""
    for t, y in (([], []), ([0.0], [1.0]), ([0.0, 1.0], [np.nan, np.nan])):
        series = Series(np.array(t), np.array(y))
        for figure in (
            time_series.torque_over_time(series, series, series),
            time_series.residual_over_time(series, rms=0.1),
        ):
            json.dumps(figure, allow_nan=False)
    assert bars.r2_by_joint(["a", "b"], {"test": [None, 0.99], "nominal": [None, None]})["data"][0][
        "x"
    ] == [None, pytest.approx(0.01)]
    json.dumps(
        [
            bars.rms_by_joint(["a"], {"test": [None]}),
            time_series.torque_scatter({}),
            time_series.residual_spectrum({}),
            time_series.friction_curve(None, {}),
        ]
    )


def test_rounding_is_finer_than_a_screen() -> None:
    values = np.random.default_rng(0).normal(size=1000) * 1e3 + 1e6
    np.testing.assert_allclose(base.linear(values), values, atol=np.ptp(values) / 10_000)
    assert len(json.dumps(base.linear(values))) < 12 * 1000
    assert base.linear([np.nan, 1.0, np.inf]) == [None, 1.0, None]
    assert base.linear([5.0, 5.0]) == [5.0, 5.0]


@pytest.mark.parametrize(
    "colour", [base.GREY, base.BLUE, base.ORANGE, base.PURPLE, base.GREEN, base.RED]
)
def test_colours_stand_out_on_light_and_dark(colour: str) -> None:
    def luminance(text: str) -> float:
        c = np.array([int(text[k : k + 2], 16) for k in (1, 3, 5)]) / 255.0
        return float(
            np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
            @ [0.2126, 0.7152, 0.0722]
        )

    for ground in GROUNDS:
        assert ground in asset("page.css")
        a, b = sorted((luminance(colour), luminance(ground)))
        assert (b + 0.05) / (a + 0.05) >= CONTRAST


def test_ellipsoids_are_those_mujoco_makes() -> None:
    """MuJoCo's solid ellipsoid of given semi-axes has the inertia from which ours are computed."""
    mujoco = pytest.importorskip("mujoco", reason="MuJoCo is the oracle (pip install mujoco)")
    sizes = (0.31, 0.12, 0.05)
    geom = f"<geom type='ellipsoid' size='{sizes[0]} {sizes[1]} {sizes[2]}' mass='2.5'/>"
    model = mujoco.MjModel.from_xml_string(
        f"<mujoco><worldbody><body pos='1 2 3'><freejoint/>{geom}</body></worldbody></mujoco>"
    )
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
    from thetahat.report.figures import stick_figure

    mesh = stick_figure._mesh([stick_figure._Placed(0, found, np.eye(3), np.zeros(3))])
    return np.array([mesh["x"], mesh["y"], mesh["z"]]).T


@pytest.mark.parametrize(
    ("moments", "share"),
    [
        ((1.0, 1.0, 1.0), 1 / 3),
        ((0.0, 1.0, 1.0), 0.0),
        ((1.0, 1.0, 2.0), 0.0),
        ((1.0, 1.0, 3.0), -0.2),
        ((-0.5, 1.0, 1.0), -0.2),
    ],
)
def test_margins(moments: tuple[float, ...], share: float) -> None:
    theta = parameters.from_mass_com_inertia(2.0, np.array([0.1, 0.0, 0.3]), np.diag(moments))
    assert margin(theta) == pytest.approx(share, abs=1e-12)
    assert bool(parameters.check(theta)) is (share >= -1e-12)


def test_sticks_join_the_joints(arm: th.Robot) -> None:
    q = np.array([0.3, -0.4, 0.5, 0.6])
    _, p = body_frames(arm, q)
    lines = bones(arm, q)
    ends = np.array([line[1] for line in lines])
    for origin in p:
        if np.linalg.norm(origin) > 1e-3:
            assert np.min(np.linalg.norm(ends - origin, axis=1)) < 1e-12
    assert len(lines) >= 4


# -- sections and page -----------------------------------------------------------------------------


def test_sections_are_data_in_the_order_engineers_ask(case: report_cases.Case) -> None:
    sections = case.sections
    order = "verdict scores torque scatter residuals rollout motion parameters plausibility bodies"
    order += " unseen correlations choices audit use provenance"
    assert [section.anchor for section in sections] == order.split()
    data = plain(sections)
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    kinds = {type(block) for section in sections for block in section.blocks}
    assert kinds == {Text, Note, Code, Table, Figure}


def test_what_is_not_finite_is_null() -> None:
    figure = Figure(
        (
            Panel(
                "p",
                {
                    "data": [{"x": np.array([1.0, np.nan]), "y": (np.float64("inf"), np.int64(3))}],
                    "layout": {},
                },
            ),
        )
    )
    (data,) = plain([Section("x", "x", (figure, Table((Column("a"),), ((float("nan"),),))))])
    assert data["blocks"][0]["panels"][0]["figure"]["data"] == [{"x": [1.0, None], "y": [None, 3]}]
    assert data["blocks"][1]["rows"] == [[None]]


def test_base_parameters_stand_beside_those_of_the_file(case: report_cases.Case) -> None:
    parameters_section = next(
        section for section in case.sections if section.anchor == "parameters"
    )
    table = next(
        block for block in parameters_section.blocks if isinstance(block, Table) and block.folded
    )
    base_map = case.identified.base_parameters.map
    stated = base_map @ np.concatenate(
        [
            case.robot.theta,
            *(case.robot.drive.value(term) for term in case.identified.drive.identified),
        ]
    )
    np.testing.assert_allclose([row[4] for row in table.rows], stated, rtol=1e-12)
    flagged = [bool(entry["flags"]) for entry in case.found["base_parameters"]]
    assert [row[5] is not None for row in table.rows] == flagged
    assert [row[1] for row in table.rows] == [
        entry["value"] for entry in case.found["base_parameters"]
    ]


@pytest.mark.parametrize(
    ("change", "level", "said"),
    [
        ({}, "good", "Good: R² 0.9"),
        ({"r2": {"test": None}}, "usable", "no usable held-out data"),
        ({"r2": {"test": 0.7}}, "not usable", "too little of the torque"),
        (
            {"r2": {"test": 0.9, "nominal": 0.95}},
            "not usable",
            "the nominal parameters predict better",
        ),
        ({"joint": {"r2_test": 0.9, "rms_test": 1.0}}, "usable", "below 0.95 on shoulder_pitch"),
        (
            {"joint": {"r2_test": -3.0, "rms_test": 9.0}},
            "not usable",
            "zero torque would be better on shoulder_pitch",
        ),
        (
            {"joint": {"rms_nominal": 1e-3}},
            "usable",
            "the nominal parameters predict shoulder_pitch better",
        ),
        ({"consistent": False}, "usable", "for prediction, not in a simulator"),
        ({"rank": 20}, "usable", "identifies 20 of"),
        ({"status": "infeasible"}, "not usable", "are infeasible"),
    ],
)
def test_the_verdict_is_one_sentence_with_its_reason(
    case: report_cases.Case, change: dict[str, Any], level: str, said: str
) -> None:
    found = {
        **case.found,
        **{key: value for key, value in change.items() if key not in ("r2", "joint")},
    }
    found["r2"] = {**case.found["r2"], **change.get("r2", {})}
    found["joints"] = [
        {**case.found["joints"][0], **change.get("joint", {})},
        *case.found["joints"][1:],
    ]
    verdict = judge(found)
    sentence = verdict.sentence
    assert verdict.level == level
    assert said in sentence
    assert sentence.endswith(".")
    assert len(re.findall(r"\.(?=\s)", sentence)) == 0, "one sentence"


def test_page_stands_alone_and_lets_nothing_in(case: report_cases.Case) -> None:
    page = render("report", case.sections, subtitle="of a test")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)[1]
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0], (
        "scripts run by their hash alone"
    )
    outside = page.replace(plotly_script(), "")
    assert not re.search(
        r"(?:src|href)\s*=\s*(?![\"'](?:#|data:))",
        re.sub(r"<script.*?</script>", "", outside, flags=re.DOTALL),
    )
    assert page.count(plotly_script()) == 1
    assert len(page) - len(plotly_script()) < 3e6
    assert "None" not in re.sub(r"<(script|style).*?</\1>", "", outside, flags=re.DOTALL)


def test_page_of_text_alone_is_small_and_names_are_escaped() -> None:
    hostile = report_cases.HOSTILE
    table = Table(
        (Column("a"), Column("b", decimals=4)),
        ((hostile, 0.99996), ("", None), ("x", float("nan"))),
        hostile,
    )
    page = render(
        hostile,
        [Section(hostile, "one", (Text(hostile), Note(hostile, "bad"), table))],
        subtitle=hostile,
    )
    assert len(page) < 40_000, "no figures, no Plotly"
    assert "<script>alert" not in page
    assert "<img" not in page
    assert page.count("&lt;img src=x onerror=alert(2)&gt;") >= 6
    assert "&gt; 0.9999" in page, "not rounded up to one"
    assert "nan" not in page.split("<main")[1].split("</main>")[0]


def test_data_cannot_end_the_element_they_stand_in() -> None:
    drawing = {
        "data": [{"name": "</script ><script >alert(1)</script ><!--", "y": [1.0]}],
        "layout": {},
    }
    page = render("t", [Section("s", "s", (Figure((Panel("p", drawing),)),))])
    (data,) = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page)
    assert json.loads(data) == drawing
    assert "<" not in data


def test_code_in_prose_is_marked_after_it_is_escaped() -> None:
    page = render("t", [Section("s", "s", (Text("run `thetahat a <b>` now"),))])
    assert (
        '<code class="code"><span>thetahat</span> <span>a</span> <span>&lt;b&gt;</span></code>'
        in page
    )


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
        plain([Section("x", "x", (Figure((Panel("p", {"data": object(), "layout": {}}),)),))])
