"""The report in a real browser: it draws, fits, stays silent and alone, and names stay text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import browser
import pytest
import report_cases

import thetahat as th
from thetahat import robots
from thetahat.report.identification_report import titles
from thetahat.report.page import render
from thetahat.report.section import Figure

SIZES = [(390, True), (1280, False), pytest.param(3840, True, marks=pytest.mark.slow)]


@pytest.fixture(scope="module")
def case() -> report_cases.Case:
    return report_cases.case()


@pytest.fixture(scope="module")
def page_file(case: report_cases.Case, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(case, tmp_path_factory.mktemp("report"))


def written(case: report_cases.Case, folder: Path) -> Path:
    title, subtitle = titles(case.found)
    path = folder / "report.html"
    path.write_text(render(title, case.sections, subtitle=subtitle), encoding="utf-8")
    return path


def require_quiet(seen: browser.Seen, address: str) -> None:
    assert seen.console == []
    assert seen.errors == []
    assert seen.dialogs == []
    assert seen.requests == [address], "nothing is asked for but the file itself"


@pytest.mark.parametrize(("width", "dark"), SIZES)
def test_draws_fits_and_is_quiet(
    chromium: Any, page_file: Path, case: report_cases.Case, width: int, dark: bool
) -> None:
    with browser.opened(chromium, page_file.as_uri(), width=width, dark=dark) as (page, seen):
        count = browser.draw_all(page)
        blocks = [
            block
            for section in case.sections
            for block in section.blocks
            if isinstance(block, Figure)
        ]
        assert count == sum(
            len(block.panels) if block.arrangement == "grid" else 1 for block in blocks
        )
        assert page.evaluate(
            "[...document.querySelectorAll('.plot')].every(node => node.querySelector('.main-svg'))"
        )
        assert page.evaluate("document.querySelectorAll('.plot canvas').length") >= 1, (
            "the robot stands in space"
        )
        assert browser.too_wide(page) == []
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        ink = page.evaluate("document.querySelector('.plot .xtick text').style.fill")
        assert (sum(map(int, ground[4:-1].split(","))) < 300) is dark
        assert (sum(map(int, ink[4:-1].split(",")[:3])) > 300) is dark, (
            "figures have the colours of the page"
        )
        require_quiet(seen, page_file.as_uri())


def test_figures_wait_until_they_come_into_view(chromium: Any, page_file: Path) -> None:
    with browser.opened(chromium, page_file.as_uri(), height=600) as (page, _):
        browser.until(
            page,
            "document.querySelector('.plot').dataset.drawn !== undefined",
            what="the first figure",
        )
        assert page.evaluate(
            "[...document.querySelectorAll('.plot')].some(node => node.dataset.drawn === undefined)"
        )


def test_a_chosen_joint_is_chosen_in_every_figure(
    chromium: Any, page_file: Path, case: report_cases.Case
) -> None:
    """By the keyboard, and by the buttons beside the choice."""
    joints = [joint["name"] for joint in case.found["joints"]]
    chosen = (
        "[...document.querySelectorAll('select[data-group=joint]')].map(each =>"
        " each.options[each.selectedIndex].dataset.name)"
    )
    with browser.opened(chromium, page_file.as_uri()) as (page, seen):
        browser.draw_all(page)
        selects = page.query_selector_all("select[data-group=joint]")
        assert len(selects) >= 5
        before = page.evaluate(chosen)[0]
        selects[0].focus()
        page.keyboard.press("ArrowDown" if before != joints[-1] else "ArrowUp")
        names = page.evaluate(chosen)
        assert set(names) == {joints[joints.index(before) + (1 if before != joints[-1] else -1)]}
        page.query_selector_all(".choice button[data-step='1']")[2].click()
        assert set(page.evaluate(chosen)) == {joints[(joints.index(names[0]) + 1) % len(joints)]}
        browser.until(page, browser.DRAWN, what="all figures drawn anew")
        require_quiet(seen, page_file.as_uri())


def test_contents_lead_to_every_section_and_the_keyboard_reaches_them(
    chromium: Any, page_file: Path, case: report_cases.Case
) -> None:
    with browser.opened(chromium, page_file.as_uri(), width=390) as (page, _):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        links = page.query_selector_all("nav a")
        assert [link.get_attribute("href") for link in links] == [
            f"#{section.anchor}" for section in case.sections
        ]
        links[-1].focus()
        page.keyboard.press("Enter")
        last = (
            "document.getElementById('provenance').getBoundingClientRect().top < window.innerHeight"
        )
        browser.until(page, last, what="the last section in view")


def test_names_stay_text(chromium: Any, tmp_path: Path) -> None:
    """A robot, a joint and a link whose name is a script: shown letter by letter, in text, choices
    and figures.
    """
    case = report_cases.case(report_cases.hostile(tmp_path))
    case = replace(
        case,
        found={**case.found, "warnings": [report_cases.HOSTILE], "advice": [report_cases.HOSTILE]},
    )
    path = written(case, tmp_path)
    with browser.opened(chromium, path.as_uri()) as (page, seen):
        browser.draw_all(page)
        assert report_cases.HOSTILE in page.inner_text("h1")
        assert page.query_selector("img") is None
        assert page.evaluate(
            "[...document.querySelectorAll('.plot text')].some(node =>"
            " node.textContent.includes('</script>'))"
        )
        assert page.evaluate(
            "[...document.querySelectorAll('option')].some(node => node.textContent.includes('<img"
            " src=x'))"
        )
        require_quiet(seen, path.as_uri())


def test_paper_gets_all_figures_on_a_light_ground(chromium: Any, page_file: Path) -> None:
    with browser.opened(chromium, page_file.as_uri(), dark=True) as (page, seen):
        page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        browser.until(page, browser.DRAWN, what="all figures drawn")
        assert (
            page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        )
        assert page.evaluate("[...document.querySelectorAll('details')].every(each => each.open)")
        page.evaluate("window.dispatchEvent(new Event('afterprint'))")
        assert (
            page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
        )
        assert seen.errors == seen.console == []


def test_nothing_unknown_is_shown_as_none_or_nan(chromium: Any, tmp_path: Path) -> None:
    """Nothing held out, a joint without scores, noise and friction, no nominal score, no
    condition.
    """
    case = report_cases.case(held_out=False)
    blank = {
        key: None
        for key in case.found["joints"][0]
        if key.startswith(("r2_", "rms_")) or key in ("noise", "viscous", "offset")
    }
    joints = [
        {**joint, **blank} if k == 1 else joint for k, joint in enumerate(case.found["joints"])
    ]
    found = {
        **case.found,
        "joints": joints,
        "condition": None,
        "r2": {**case.found["r2"], "nominal": None},
    }
    path = written(replace(case, found=found), tmp_path)
    with browser.opened(chromium, path.as_uri()) as (page, seen):
        browser.draw_all(page)
        words = set(page.inner_text("body").replace("(", " ").replace(")", " ").split())
        assert not words & {"None", "NaN", "nan", "null", "undefined", "inf"}
        require_quiet(seen, path.as_uri())


def test_a_robot_of_44_joints_is_drawn_and_fits(chromium: Any, tmp_path: Path) -> None:
    robot = th.load(robots.path("valkyrie"))
    case = report_cases.case(robot, seconds=6.0, rate=100.0, estimator=th.LeastSquares())
    path = written(case, tmp_path)
    assert path.stat().st_size < 16e6
    with browser.opened(chromium, path.as_uri(), width=390) as (page, seen):
        browser.draw_all(page)
        assert browser.too_wide(page) == []
        require_quiet(seen, path.as_uri())
