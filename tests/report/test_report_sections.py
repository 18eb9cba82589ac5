"""Sections on motion, plausibility, correlations, automatic choices and use of a result."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import report_cases

import thetahat as th
from thetahat import robots
from thetahat.model.link_geometry import Region, link_regions
from thetahat.report.figures.link_bodies import in_frame, link_body
from thetahat.report.figures.motion import JointLimits, motion_over_time
from thetahat.report.figures.stick_figure import Ellipsoid, ellipsoid
from thetahat.report.section import Code, Figure, Table
from thetahat.report.sections.choices import choices
from thetahat.report.sections.correlation_section import correlation_matrix
from thetahat.report.sections.motion_section import joint_limits
from thetahat.report.sections.use import python_lines, use
from thetahat.report.traces import Series


@pytest.fixture(scope="module")
def case() -> report_cases.Case:
    return report_cases.case()


def blocks(case: report_cases.Case, anchor: str, kind: type) -> list[Any]:
    section = next(each for each in case.sections if each.anchor == anchor)
    return [block for block in section.blocks if isinstance(block, kind)]


# -- motion ----------------------------------------------------------------------------------------


def test_the_motion_drawn_is_the_motion_logged(case: report_cases.Case) -> None:
    whole = report_cases.samples(case.robot)
    for j, joint in enumerate(case.traces.joints):
        for name, values in (
            ("position", whole.q),
            ("velocity", whole.dq),
            ("acceleration", whole.ddq),
        ):
            drawn = np.concatenate([part.y for part in getattr(joint.lines, name).values()])
            drawn = drawn[np.isfinite(drawn)]
            assert np.isclose(drawn.max(), values[:, j].max(), rtol=1e-12)
            assert np.isclose(drawn.min(), values[:, j].min(), rtol=1e-12)


def test_limits_are_those_of_the_file_and_stand_where_the_motion_comes_near() -> None:
    robot = th.load(robots.path("arm4"))
    limits = joint_limits(robot)["elbow"]
    stated = next(node for node in robot.tree.nodes if node.name == "elbow").limits
    assert (limits.lower, limits.upper, limits.velocity) == (
        stated.lower,
        stated.upper,
        stated.velocity,
    )
    t = np.linspace(0.0, 1.0, 50)
    wave = Series(t, np.sin(7.0 * t))
    drawing = motion_over_time(wave, wave, wave, limits=JointLimits(-1.5, 40.0, np.inf))
    near = [trace for trace in drawing["data"] if trace["name"].startswith("limits")]
    assert [trace["y"] for trace in near] == [[-1.5, -1.5]], "40 is far away, and in the name"
    assert near[0]["name"] == "limits of q: −1.5 … 40"


# -- plausibility ----------------------------------------------------------------------------------


def test_a_shadow_holds_the_ellipsoid_and_touches_it() -> None:
    rng = np.random.default_rng(0)
    A = rng.normal(size=(3, 3))
    Q, _ = np.linalg.qr(A)
    body = Ellipsoid(np.array([0.1, 0.2, 0.3]), Q, np.array([0.3, 0.2, 0.1]), 1.0, True)
    region = Region(np.zeros(3), np.eye(3), np.array([1.0, 0.9, 0.1]), "joints")  # in x and y
    drawing = link_body(region, body)
    trace = next(each for each in drawing["data"] if each["name"] == "identified")
    directions = rng.normal(size=(4000, 3))
    points = (
        body.centre + directions / np.linalg.norm(directions, axis=1)[:, None] * body.radii @ Q.T
    )
    for axis, drawn in ((0, trace["x"]), (1, trace["y"])):
        assert max(drawn) == pytest.approx(points[:, axis].max(), abs=2e-3)
        assert min(drawn) == pytest.approx(points[:, axis].min(), abs=2e-3)


def test_every_body_has_a_panel_in_a_frame_that_fits_its_region(case: report_cases.Case) -> None:
    figure = blocks(case, "plausibility", Figure)[0]
    assert [panel.label for panel in figure.panels] == list(case.robot.body_names)
    regions = link_regions(case.robot, {})
    for panel, region in zip(figure.panels, regions, strict=True):
        low, high = panel.figure["layout"]["xaxis"]["range"]
        span = 2.0 * region.radii.max()
        assert high - low == pytest.approx(1.6 * span, rel=0.02)


def test_an_absurd_body_is_red_and_leaves_the_frame_as_it_is(case: report_cases.Case) -> None:
    theta = case.identified.theta.copy()
    theta[10:20] *= 900.0
    absurd = case.identified.with_parameters(theta)
    found = {
        **case.found,
        "plausibility": {"links": [{"name": case.robot.body_names[1], "mass_ratio": 900.0}]},
    }
    changed = replace(case, identified=absurd, found=found)
    before, after = (
        blocks(each, "plausibility", Figure)[0].panels[1].figure for each in (case, changed)
    )
    assert before["layout"]["xaxis"] == after["layout"]["xaxis"]
    colours = [
        next(trace for trace in each["data"] if trace["name"] == "identified")["line"]["color"]
        for each in (before, after)
    ]
    assert colours[0] != colours[1]
    far = ellipsoid(theta[10:20])
    assert far is not None
    assert not in_frame(link_regions(case.robot, {})[1], replace(far, centre=far.centre + 9.0))


# -- correlations ----------------------------------------------------------------------------------


def test_correlations_are_those_of_the_covariance(case: report_cases.Case) -> None:
    rho = correlation_matrix(case.covariance)
    np.testing.assert_allclose(np.diag(rho), 1.0)
    k = np.unravel_index(np.argmax(np.abs(rho - np.eye(len(rho)))), rho.shape)
    expected = case.covariance[k] / np.sqrt(
        case.covariance[k[0], k[0]] * case.covariance[k[1], k[1]]
    )
    assert rho[k] == pytest.approx(expected)
    drawn = blocks(case, "correlations", Figure)[0].panels[0].figure["data"][0]["z"]
    assert np.nanmax(np.abs(np.array(drawn) - np.eye(len(drawn)))) == pytest.approx(
        abs(expected), abs=0.01
    )


def test_what_nothing_identifies_has_no_correlation() -> None:
    covariance = np.array([[1.0, np.inf, 0.5], [np.inf, np.inf, np.inf], [0.5, np.inf, 4.0]])
    rho = correlation_matrix(covariance)
    assert np.isnan(rho[1]).all()
    assert rho[0, 2] == pytest.approx(0.25)


# -- choices and use -------------------------------------------------------------------------------


def test_every_choice_stands_with_its_evidence(case: report_cases.Case) -> None:
    settings = {
        "cutoff": 8.0,
        "cutoff_reason": "cut-off 8 Hz: 99 % of the motion is below 0.5 Hz",
        "torque_cutoff": 8.0,
        "delay": 0.002,
        "armature": "not fitted: ΔBIC −14, needs +10",
        "prior_weight": 0.3,
        "min_speed": [0.01, 0.02],
        "tuned": [
            "motion low-pass 8 Hz: no other improves it by at least 10",
            "torque lags behind the motion by 2 ms: improves it by 40",
            "Coulomb transition width of elbow: 0.15 rad/s, improves it by 94",
            "stribeck friction of elbow, arm_yaw: improves it by 33",
            "Counterbalance at elbow: log-evidence +19",
            "prior weight 0.3 (entropic): the largest of 10 candidates",
        ],
    }
    found = {**case.found, "dropped": {"standstill": 12}, "provenance": {"settings": settings}}
    table = choices(found).blocks[0]
    assert isinstance(table, Table)
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["low-pass (by spectrum)"] == ("8 Hz", "99 % of the motion is below 0.5 Hz")
    assert rows["delay"] == ("lags behind the motion by 2 ms", "improves it by 40")
    assert rows["Coulomb friction of elbow"] == ("transition width 0.15 rad/s", "improves it by 94")
    assert rows["stribeck friction"] == ("elbow, arm_yaw", "improves it by 33")
    assert rows["counterbalance"] == ("elbow", "log-evidence +19")
    assert rows["rotor inertia"] == ("not fitted", "ΔBIC −14, needs +10")
    assert rows["prior weight"] == ("0.3 (entropic)", "the largest of 10 candidates")
    assert rows["masked: standstill"][0] == "12 torques"


def test_the_lines_to_copy_work(
    case: report_cases.Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    th.save(th.load(robots.path("arm4")), "arm4_identified.urdf")
    names: dict[str, Any] = {}
    exec(python_lines("arm4_identified.urdf"), names)
    assert names["robot"].joint_names == case.robot.joint_names
    parity = {
        "file": "arm4_identified.urdf",
        "torque_error": 0.0,
        "not_in_file": [],
        "drive_file": None,
    }
    section = use({**case.found, "parity": parity})
    commands = [
        line
        for block in section.blocks
        if isinstance(block, Code)
        for line in block.text.splitlines()
    ]
    verbs = {shlex.split(line)[1] for line in commands if line.startswith("thetahat ")}
    assert verbs == {"validate", "excite", "simulate"}


def test_what_has_no_robot_file_is_not_offered(case: report_cases.Case) -> None:
    found = {**case.found, "verdict": {**case.found["verdict"], "level": "not usable"}}
    text = str(use(found).blocks)
    assert "--force" in text
    assert "ComputedTorque" not in text
