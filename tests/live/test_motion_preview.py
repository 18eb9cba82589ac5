"""The page of a designed motion: the robot moves, nothing fails, nothing is asked for, all fits."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import browser
import numpy as np
import pytest
from excite_cases import shipped

from thetahat.dynamics import rigid_body
from thetahat.excite.design import Design, design
from thetahat.live.motion_preview import motion_data, preview_page, write_preview


@pytest.fixture(scope="module")
def made() -> Design:
    return design(shipped("arm4"), duration=4.0, harmonics=3, starts=1)


def test_frames_are_those_of_the_motion(made: Design) -> None:
    robot = shipped("arm4")
    data = motion_data(made, robot)
    assert len(data["frames"]) == 121
    k = 50
    R, p = rigid_body.body_frames(robot, made.trajectory.at(k / data["rate"])[0])
    bodies = np.array(data["frames"][k][3 * data["ends"] :]).reshape(-1, 12)
    assert np.allclose(bodies[:, :9], R.reshape(-1, 9), atol=1e-4)
    assert np.allclose(bodies[:, 9:], p, atol=1e-4)
    assert {piece["body"] for piece in data["pieces"]} == {-1, 0, 1, 2, 3}


def test_a_name_stays_text(made: Design) -> None:
    robot = replace(shipped("arm4"), name="</script><script>alert(1)</script>")
    page = preview_page(made, robot)
    assert page.count("<script") == 2
    held = re.search(r'id="motion">(.*?)</script>', page, flags=re.DOTALL)
    assert held is not None
    assert json.loads(held[1])["duration"] == 4.0


@pytest.mark.parametrize(("width", "dark"), [(1440, False), (390, True)])
def test_the_robot_moves_in_a_browser(
    chromium: Any, made: Design, tmp_path: Path, width: int, dark: bool
) -> None:
    path = write_preview(made, shipped("arm4"), tmp_path / "motion.html")
    with browser.opened(chromium, path.as_uri(), width=width, dark=dark) as (page, seen):
        browser.until(page, "Number(document.documentElement.dataset.time) > 0.3", what="a motion")
        painted = "[...document.getElementById('stage').getContext('2d').getImageData(0, 0, 300, 300).data].some(x => x)"
        browser.until(page, painted, what="a picture")
        page.click("#play")
        time = page.evaluate("document.documentElement.dataset.time")
        page.wait_for_timeout(300)
        assert page.evaluate("document.documentElement.dataset.time") == time
        page.evaluate(
            "document.getElementById('time').value = 2; document.getElementById('time').dispatchEvent(new Event('input'))"
        )
        assert page.evaluate("document.documentElement.dataset.time") == "2.000"
        assert page.evaluate(browser.TOO_WIDE) == []
        assert (seen.console, seen.errors, seen.dialogs) == ([], [], [])
        assert seen.requests == [path.as_uri()]
