"""The live page in use, in a real browser: choices stay, and the connection comes back by
itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import browser
import live_fake
import pytest
from live_view import require_quiet, settled, text_of, until_got


@pytest.fixture
def fake() -> Iterator[live_fake.Fake]:
    with live_fake.running(age=12.0) as running:
        yield running


# -- choices ---------------------------------------------------------------------------------------


def test_one_joint_is_chosen_everywhere(chromium: Any, fake: live_fake.Fake) -> None:
    ends = "Math.max(...document.querySelector('#torque .plot').data[0].x)"
    with browser.opened(chromium, fake.address, width=1440, height=1400) as (page, seen):
        settled(page)
        page.keyboard.press("j")
        until_got(page, fake, {"type": "subscribe", "joint": 1})
        page.click("#joints .joint:nth-child(4)")
        until_got(page, fake, {"type": "subscribe", "joint": 3})
        assert page.evaluate("document.getElementById('joint').selectedIndex") == 3
        page.select_option("#joint", "5")
        until_got(page, fake, {"type": "subscribe", "joint": 5})
        assert page.get_attribute("#joints .joint:nth-child(6)", "aria-pressed") == "true"
        page.wait_for_timeout(500)
        before = page.evaluate(ends)
        fake.says.append(
            {"type": "figure", "id": "torque:2", "figure": {"data": [], "layout": {}}}
        )  # late, of a joint that is not chosen any more
        browser.until(page, f"{ends} > {before + 0.5}", what="the chosen joint's torque to go on")
        thick = (
            "Object.fromEntries(document.querySelector('#r2 .plot').data.filter(trace =>"
            " trace.line).map(trace => [trace.name, trace.line.width]))"
        )
        browser.until(
            page,
            f"{thick}.joint_5 > {thick}.joint_4 + 1",
            what="the chosen joint's line to stand out",
        )
        require_quiet(seen, fake.address)


def test_a_readers_zoom_stays_until_he_follows_again(chromium: Any, fake: live_fake.Fake) -> None:
    shown = "document.querySelector('#r2 .plot').layout"
    with browser.opened(chromium, fake.address, width=1440) as (page, seen):
        settled(page)
        whole = page.evaluate(f"{shown}.yaxis.range")
        box = page.query_selector("#r2 .plot .nsewdrag").bounding_box()
        page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.2 * box["height"])
        page.mouse.down()
        page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 0.8 * box["height"], steps=6)
        page.mouse.up()
        browser.until(
            page, "document.getElementById('r2').classList.contains('zoomed')", what="the zoom"
        )
        before = page.evaluate(f"[{shown}.xaxis.range, {shown}.yaxis.range]")
        page.wait_for_timeout(800)
        assert page.evaluate(f"[{shown}.xaxis.range, {shown}.yaxis.range]") == before
        page.click("#r2 .follow")
        again = (
            f"{shown}.xaxis.range[1] > {before[0][1]} && {shown}.yaxis.range[0] === {whole[0]} &&"
            f" {shown}.yaxis.range[1] >= {whole[1]}"
        )
        browser.until(page, again, what="the stream again, all of it")
        page.select_option("#span", "10")
        browser.until(
            page,
            f"Math.abs({shown}.xaxis.range[1] - {shown}.xaxis.range[0] - 10) < 1e-6",
            what="the last ten seconds",
        )
        page.click("#r2 .legend button:nth-child(2)")
        browser.until(
            page,
            "document.querySelector('#r2 .plot').data[1].visible === false",
            what="a line to be hidden",
        )
        require_quiet(seen, fake.address)


def test_the_robot_turns_and_keeps_its_view(chromium: Any, fake: live_fake.Fake) -> None:
    fake.paused = True  # what changes then is the view alone
    picture = "document.getElementById('stage').toDataURL()"
    with browser.opened(chromium, fake.address, width=1440) as (page, _):
        settled(page)
        home = browser.steady(page, picture, what="the robot to stand")
        box = page.query_selector("#stage").bounding_box()
        page.mouse.move(box["x"] + 100, box["y"] + 100)
        page.mouse.down()
        page.mouse.move(box["x"] + 200, box["y"] + 120, steps=4)
        page.mouse.up()
        browser.until(page, f"{picture} !== {home!r}", what="the robot to turn")
        turned = browser.steady(page, picture, what="the robot to stand turned")
        fake.says.append({"type": "figure", "id": "scene", "figure": fake.scene()})
        page.wait_for_timeout(300)
        assert page.evaluate(picture) == turned, "new ellipsoids leave the view alone"
        page.keyboard.press("0")
        browser.until(page, f"{picture} === {home!r}", what="the first view again")


def test_many_joints_stay_light_and_the_worst_are_first(chromium: Any) -> None:
    order = (
        "[...document.querySelectorAll('#joints .joint')].sort((a, b) => a.style.order -"
        " b.style.order).map(chip => chip.title)"
    )
    rows = (
        "[...document.querySelectorAll('.parameters tbody tr:not(.spacer):not([hidden])')].map(row"
        " => row.innerText.replace(/\\s+/g, ' '))"
    )
    with (
        live_fake.running(joints=live_fake.named(44), age=12.0) as fake,
        browser.opened(chromium, fake.address, width=1440) as (page, _),
    ):
        settled(page)
        browser.until(page, f"{order}[0] === '{fake.joints[-1]}'", what="the worst joint first")
        page.click("#worst")
        assert page.evaluate(order) == list(fake.joints)
        page.evaluate("document.getElementById('parameters').scrollIntoView({behavior: 'instant'})")
        browser.until(page, f"{rows}.length > 10", what="rows")
        assert len(page.evaluate(rows)) < 60
        page.evaluate("document.getElementById('parameters-box').scrollTop = 1e6")
        browser.until(
            page, f"{rows}.some(row => row.startsWith('{fake.joints[-1]}'))", what="the last group"
        )
        page.fill("#parameters-filter", "no such name")
        browser.until(page, f"{rows}.length === 0", what="no such row")
        page.fill("#parameters-filter", "mass")
        browser.until(
            page,
            f"{rows}.length > 2 && {rows}.every((row, k) => k % 2 === 0 || row.startsWith('mass'))",
            what="masses by link",
        )
        page.click(".listing thead .change button")
        cells = (
            "[...document.querySelectorAll('.listing tbody tr:not(.spacer):not([hidden])"
            " td.change')]"
        )
        shares = f"{cells}.map(cell => Math.abs(parseFloat(cell.innerText.replace('−', '-'))))"
        sorted_down = (
            "(list => list.length > 5 && list.every((value, k) => k === 0 || !(value > list[k - 1]"
            f" + 0.11)))({shares}.filter(v => v === v))"
        )
        browser.until(page, sorted_down, what="the largest change first")
        assert page.get_attribute(".listing thead .change", "aria-sort") == "descending"


# -- the connection --------------------------------------------------------------------------------


def test_comes_back_by_itself_and_says_so(chromium: Any, fake: live_fake.Fake) -> None:
    with browser.opened(chromium, fake.address) as (page, seen):
        settled(page)
        page.keyboard.press("j")
        until_got(page, fake, {"type": "subscribe", "joint": 1})
        fake.stop()
        browser.until(page, "document.body.classList.contains('stale')", what="the page to notice")
        words = text_of(page, "#notices")
        assert re.search(r"No connection since \d\d:\d\d:\d\d \(\d+ s ago\)", words), words
        assert "no connection" in text_of(page, "#link")
        assert page.evaluate("document.getElementById('pause').disabled")
        assert page.get_attribute("a[href='/download/estimate.json']", "aria-disabled") == "true"
        fake.got.clear()
        fake.started = "2026-01-01T12:30:00+00:00"
        fake.start()
        browser.until(
            page,
            "document.getElementById('notices').innerText.includes('Reconnected at')",
            what="the page to be back",
        )
        assert "new run" in text_of(page, "#notices")
        assert not page.evaluate("document.body.classList.contains('stale')")
        until_got(page, fake, {"type": "subscribe", "joint": 1})
        t = page.inner_text("#time")
        browser.until(
            page, f"document.getElementById('time').innerText !== {t!r}", what="new frames"
        )
        assert (
            "was disconnected" in text_of(page, "#events-list")
            or page.evaluate("document.documentElement.dataset.hellos") == "2"
        )
        fake.stop()
        fake.refuse = True  # a server that was started anew has another token
        fake.start()
        browser.until(
            page,
            "document.getElementById('notices').innerText.includes('Open the link that it"
            " printed')",
            what="the page to say what to do",
        )
        require_quiet(seen, fake.address, gone=True)


def test_a_silent_server_is_said(chromium: Any, fake: live_fake.Fake) -> None:
    with browser.opened(chromium, fake.address) as (page, seen):
        settled(page)
        fake.silent, fake.paused = True, True
        browser.until(
            page,
            "document.getElementById('notices').innerText.includes('No data from the server since')",
            what="the page to notice",
        )
        fake.silent = False
        browser.until(
            page,
            "document.getElementById('notices').innerText === ''",
            what="the page to be content",
        )
        require_quiet(seen, fake.address)
