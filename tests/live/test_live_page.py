"""The live page in a real browser, against a server that speaks the contract: it draws, answers,
comes back, and takes nothing for more than text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import browser
import live_fake
import pytest
import report_cases
from live_view import (
    CONTRAST,
    CUT_NUMBERS,
    CUT_OFF,
    INKED,
    OVERLAPS,
    require_quiet,
    settled,
    text_of,
    until_got,
)

CARDS = ("gate", "r2", "torque", "error", "fill", "parameters", "events", "robot", "cycle")


@pytest.fixture
def fake() -> Iterator[live_fake.Fake]:
    with live_fake.running(age=12.0) as running:
        yield running


# -- what is drawn ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("width", "height", "dark", "joints"),
    [
        *((390, 844, True, 7), (1440, 900, False, 7), (3840, 2160, True, 44)),
        pytest.param(390, 844, False, 7, marks=pytest.mark.slow),
        pytest.param(1440, 900, True, 7, marks=pytest.mark.slow),
        pytest.param(390, 844, False, 44, marks=pytest.mark.slow),
    ],
)
def test_draws_all_fits_and_is_quiet(
    chromium: Any, width: int, height: int, dark: bool, joints: int
) -> None:
    with (
        live_fake.running(joints=live_fake.named(joints), age=12.0) as fake,
        browser.opened(chromium, fake.address, width=width, height=height, dark=dark) as (
            page,
            seen,
        ),
    ):
        settled(page)
        assert browser.draw_all(page) == 5
        assert page.evaluate(
            "[...document.querySelectorAll('.plot')].every(node =>"
            " node.querySelector('.scatterlayer .js-line'))"
        )
        page.evaluate(
            "document.getElementById('stage').scrollIntoView({behavior: 'instant', block:"
            " 'center'})"
        )
        browser.until(page, f"({INKED})() > 0.01", what="the robot on its stage")
        assert page.evaluate(
            "names => names.every(name => document.getElementById(name).offsetHeight > 100)",
            list(CARDS),
        )
        browser.until(
            page,
            "document.querySelectorAll('.parameters tbody tr:not(.spacer):not(.group)').length > 5",
            what="the parameters",
        )
        browser.until(
            page,
            f"document.querySelectorAll('#joints .joint').length === {joints}",
            what="a mark for every joint",
        )
        assert browser.too_wide(page) == []
        assert page.evaluate(OVERLAPS) == []
        assert page.evaluate(CUT_OFF) == []
        assert page.evaluate(CUT_NUMBERS) == []
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        ink = page.evaluate("document.querySelector('.plot .xtick text').style.fill")
        assert (sum(map(int, ground[4:-1].split(","))) < 300) is dark
        assert (sum(map(int, ink[4:-1].split(",")[:3])) > 300) is dark, (
            "figures have the colours of the page"
        )
        require_quiet(seen, fake.address)


@pytest.mark.parametrize("mode", ["listen", pytest.param("replay", marks=pytest.mark.slow)])
def test_a_run_without_wanted_motion_has_no_errors_to_show(chromium: Any, mode: str) -> None:
    with (
        live_fake.running(mode=mode, age=12.0) as fake,
        browser.opened(chromium, fake.address) as (page, seen),
    ):
        settled(page)
        assert page.evaluate("document.getElementById('error').hidden")
        assert browser.too_wide(page) == []
        assert page.evaluate(OVERLAPS) == []
        require_quiet(seen, fake.address)


@pytest.mark.parametrize("joints", [7, pytest.param(44, marks=pytest.mark.slow)])
def test_redraws_five_times_a_second(chromium: Any, joints: int) -> None:
    """The page, its figures in view taken together, and the robot; and the server hears of it."""
    count = (
        "({page: +document.documentElement.dataset.redraws, r2: +document.querySelector('#r2"
        " .plot').dataset.redraws, robot: +stage.dataset.redraws})"
    )
    with (
        live_fake.running(joints=live_fake.named(joints), age=12.0) as fake,
        browser.opened(chromium, fake.address, width=1440, height=900) as (page, _),
    ):
        settled(page)
        for _ in range(5):  # other work on the machine may take one stretch of time, not all
            before, begin = page.evaluate(count), page.evaluate("performance.now()")
            page.wait_for_timeout(2000)
            after, end = page.evaluate(count), page.evaluate("performance.now()")
            rates = {name: 1000.0 * (after[name] - before[name]) / (end - begin) for name in before}
            if rates["page"] >= 5.0 and rates["robot"] >= 5.0 and rates["r2"] >= 1.0:
                break
        else:
            pytest.fail(f"redraws per second: {rates}")
        acks = [message["seq"] for message in fake.got if message["type"] == "ack"]
        assert len(acks) >= 5
        assert acks == sorted(acks)


def test_draws_what_is_in_view_in_the_colours_of_the_moment(
    chromium: Any, fake: live_fake.Fake
) -> None:
    bright = (
        "document.querySelector('#r2 .xtick text').style.fill.match(/\\d+/g).slice(0, 3).reduce((a,"
        " b) => a + +b, 0) > 450"
    )
    with browser.opened(chromium, fake.address, height=800) as (page, _):
        settled(page)
        page.wait_for_timeout(500)
        assert page.evaluate(
            "document.querySelector('#cycle .plot').dataset.drawn === undefined"
        ), "what nobody sees is not drawn"
        assert not page.evaluate(bright)
        page.emulate_media(color_scheme="dark")
        browser.until(page, bright, what="bright letters on dark ground")


# -- the gate --------------------------------------------------------------------------------------


def test_the_gate_speaks(chromium: Any) -> None:
    """Closed and why, open and since when; a switch is announced once, and words and signs tell
    states apart, not colour alone.
    """
    with (
        live_fake.running(age=live_fake.SWITCHES[0] - 0.5, paused=True) as fake,
        browser.opened(chromium, fake.address, width=1440) as (page, seen),
    ):
        settled(page)
        assert text_of(page, "#gate-word") == "Gate closed"
        assert text_of(page, "#gate-reason") == f"{fake.closed_reason}."
        assert "nominal model" in text_of(page, "#gate-model")
        closed = page.evaluate("document.getElementById('gate-sign').getAttribute('d')")
        page.evaluate("""() => {
          window.spoken = 0;
          const listener = new MutationObserver(() => { window.spoken += 1; });
          listener.observe(document.getElementById("spoken"), {childList: true, characterData: true, subtree: true});
        }""")
        fake.hold(False)
        browser.until(
            page,
            "document.getElementById('gate-word').textContent === 'Gate open'",
            what="the gate to open",
        )
        assert "identified model" in text_of(page, "#gate-model")
        assert re.fullmatch(r"Open since 8\.0 s, for \d+\.\d s\.", text_of(page, "#gate-since"))
        assert page.evaluate("document.getElementById('gate-sign').getAttribute('d')") != closed
        assert page.title().startswith("✓ Gate open")
        page.wait_for_timeout(600)
        assert page.evaluate("window.spoken") == 2, "that it goes on, and that the gate is open"
        assert "Gate open" in page.evaluate("document.getElementById('spoken').textContent")
        browser.until(
            page,
            "document.getElementById('events-list').textContent.includes('the gate opened')",
            what="the event",
        )
        grows = (
            "Math.max(...document.querySelector('#r2 .plot').layout.shapes.filter(s => s.type ==="
            " 'rect').map(s => s.x1))"
        )
        first = page.evaluate(grows)
        browser.until(
            page,
            f"{grows} > {first + 0.5}",
            what="the ground to grow while the identified model is used",
        )
        require_quiet(seen, fake.address)


def test_words_stand_out_from_their_ground(chromium: Any) -> None:
    """Contrast of at least 4.5 in every state of the gate (WCAG 2.2, 1.4.3)."""
    with live_fake.running(age=2.0) as fake, browser.opened(chromium, fake.address) as (page, _):
        settled(page)
        page.add_style_tag(content="* { transition: none !important }")
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            for state in ("open", "closed", "forced"):
                page.evaluate(
                    "state => { document.getElementById('gate').dataset.state = state }", state
                )
                for word in ("#gate-word", "#gate-reason", "#gate-since"):
                    assert page.evaluate(CONTRAST, [word, "#gate"]) >= 4.5, (theme, state, word)
            for word in (".fact .value", ".fact .more", ".fact dt"):
                assert page.evaluate(CONTRAST, [word, ".fact"]) >= 4.5, (theme, word)


# -- commands --------------------------------------------------------------------------------------


def test_commands_by_keyboard_alone(chromium: Any, fake: live_fake.Fake) -> None:
    with browser.opened(chromium, fake.address) as (page, seen):
        settled(page)
        page.keyboard.press("p")
        browser.until(
            page,
            "document.getElementById('pause').innerText.includes('Resume')",
            what="the button to say Resume",
        )
        browser.until(
            page,
            "document.getElementById('link').innerText.endsWith('paused')",
            what="the bar to say so",
        )
        page.keyboard.press("p")
        browser.until(
            page,
            "document.getElementById('pause').innerText.includes('Pause')",
            what="the button to say Pause",
        )
        page.keyboard.press("n")
        browser.until(
            page,
            "document.getElementById('gate-word').textContent === 'Nominal model forced'",
            what="the nominal model",
        )
        assert page.get_attribute("#nominal", "aria-pressed") == "true"
        browser.until(page, "!document.getElementById('nominal').disabled", what="the button")
        page.keyboard.press("n")
        browser.until(
            page,
            "document.getElementById('gate-word').textContent === 'Gate open'",
            what="the gate again",
        )
        browser.until(page, "!document.getElementById('reset').disabled", what="the button")
        page.keyboard.press("r")
        page.keyboard.press("Enter")  # keeps: the safe answer has the focus
        assert fake.commands() == ["pause", "resume", "force_nominal", "release"]
        page.keyboard.press("r")
        page.keyboard.press("Shift+Tab")
        page.keyboard.press("Enter")
        until_got(page, fake, {"type": "command", "name": "reset"})
        browser.until(page, "!document.getElementById('pause').disabled", what="the buttons")
        page.focus("#parameters-filter")
        page.keyboard.type("pnr")
        page.wait_for_timeout(200)
        assert fake.commands()[-1] == "reset"
        assert len(fake.commands()) == 5, "what is typed into a field is no command"
        require_quiet(seen, fake.address)


def test_the_keyboard_reaches_everything_and_shows_where_it_is(
    chromium: Any, fake: live_fake.Fake
) -> None:
    with browser.opened(chromium, fake.address, width=1440) as (page, _):
        settled(page)
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        reached = set()
        for _ in range(90):
            page.keyboard.press("Tab")
            found = page.evaluate("""() => {
              const node = document.activeElement, style = getComputedStyle(node);
              const name = (node.getAttribute("aria-label") || node.innerText || node.labels?.[0]?.innerText || node.placeholder || "").trim();
              return [node.id || node.dataset.view || node.className || node.parentElement.className, style.outlineStyle !== "none", name];
            }""")
            if page.evaluate("document.activeElement === document.body"):
                break
            reached.add(found[0])
            assert found[1], f"{found[0]} has the focus, and nothing shows it"
            assert found[2] or found[0] in ("parameters-box", "scroll"), f"{found[0]} has no name"
        assert {
            "pause",
            "nominal",
            "reset",
            "span",
            "keys",
            "worst",
            "joint",
            "parameters-filter",
            "parameters-box",
            "stage",
            "home",
            "top",
        } <= reached
        page.keyboard.press("?")
        assert "pause" in text_of(page, "#help")
        page.click("#keys-on")
        page.keyboard.press("Escape")
        page.keyboard.press("p")
        page.wait_for_timeout(200)
        assert fake.commands() == [], "keys can be turned off"


def test_refusals_and_errors_are_sentences(chromium: Any, fake: live_fake.Fake) -> None:
    with browser.opened(chromium, fake.address) as (page, _):
        settled(page)
        with page.expect_download() as found:
            page.keyboard.press("e")
        assert found.value.suggested_filename == "arm-estimate.json"
        page.click("a[href='/download/robot']")
        browser.until(
            page,
            "document.getElementById('notices').innerText.includes('there is no estimate yet')",
            what="the server's sentence",
        )
        fake.says.append({"type": "error", "message": "that is not possible now"})
        browser.until(
            page,
            "document.getElementById('notices').innerText.includes('that is not possible now')",
            what="the server's error",
        )
        fake.says.append(
            {"type": "bye", "reason": "finished", "message": "the study has run its 60 s"}
        )
        browser.until(
            page,
            "document.getElementById('notices').innerText.includes('the study has run its 60 s')",
            what="the end",
        )


def test_drive_terms_that_the_robot_file_cannot_hold_are_offered_beside_it(chromium: Any) -> None:
    with (
        live_fake.running(age=12.0, robot_file=True) as fake,
        browser.opened(chromium, fake.address) as (page, _),
    ):
        settled(page)
        assert page.is_visible("a[href='/download/drive.json']")
        with page.expect_download() as found:
            page.click("a[href='/download/robot']")
        assert found.value.suggested_filename == "arm_identified.urdf"
        said = (
            "arm_identified.urdf cannot hold all drive terms: download drive.json, too, and keep it"
            " beside that file."
        )
        browser.until(
            page,
            f"document.getElementById('notices').innerText.includes({said!r})",
            what="that another file belongs to it",
        )
    with (
        live_fake.running(age=12.0, drive_file=False) as fake,
        browser.opened(chromium, fake.address) as (page, _),
    ):
        settled(page)
        assert not page.is_visible("a[href='/download/drive.json']")


# -- what comes in ---------------------------------------------------------------------------------


def test_names_stay_text(chromium: Any) -> None:
    hostile = report_cases.HOSTILE
    joints = (hostile, "b</title><svg onload=alert(3)>", "__proto__")
    with (
        live_fake.running(joints=joints, title=hostile, closed_reason=hostile) as fake,
        browser.opened(chromium, fake.address) as (page, seen),
    ):
        settled(page)
        fake.says += [
            {"type": "event", "t": 1.0, "kind": hostile, "message": hostile},
            {"type": "error", "message": hostile},
            {"type": "bye", "reason": "finished", "message": hostile},
            {"type": hostile},
            {"type": "__proto__"},
            {"type": "frame"},
        ]
        browser.until(
            page,
            f"document.getElementById('notices').innerText.includes({hostile!r})",
            what="the error",
        )
        browser.draw_all(page)
        for place in (
            "#title",
            "#gate-reason",
            "#joints",
            "#joint",
            "#events-list",
            "#r2 .legend",
            "#parameters-box",
        ):
            assert hostile in page.evaluate(
                "place => document.querySelector(place).textContent", place
            ), place
        assert (
            page.evaluate("document.querySelectorAll('img, svg[onload], script:not([src])').length")
            == 0
        )
        assert seen.dialogs == []
        assert seen.errors == []
        assert [each for each in seen.requests if not each.startswith(fake.address)] == []


def test_a_lines_past_is_bounded_and_keeps_its_peaks(chromium: Any, fake: live_fake.Fake) -> None:
    found = """async () => {
      const { Series } = await import("/static/line_buffer.js");
      const line = new Series(), n = 400000;
      for (let k = 0; k < n; k += 100) {
        const x = [], y = [];
        for (let i = k; i < k + 100; i += 1) { x.push(i * 0.01); y.push(i === 12345 ? 99 : i === 254321 ? -99 : Math.sin(i * 0.001)); }
        line.extend(x, y);
      }
      const values = line.y.slice(0, line.length), rising = line.x.slice(0, line.length).every((v, k, all) => k === 0 || v >= all[k - 1]);
      const all = line.between(0, Infinity, 500), part = line.between(1000, 1010, 500);
      const short = new Series([0, 1, 2, 3, 4], [1, null, 3, 4, 5]);
      short.extend([3.5, 5], [7, 6]);  // what is older than the newest point is not taken
      const gap = short.between(-1, 9, 100);
      const long = new Series();
      for (let i = 0; i < 20000; i += 1) long.extend([i], [i >= 5000 && i < 9000 ? null : 1]);
      const drawn = long.between(0, 20000, 300);
      return {
        length: line.length, bytes: line.x.byteLength, high: Math.max(...values), low: Math.min(...values), rising, last: line.last,
        drawn: all.x.length, drawnHigh: Math.max(...all.y), drawnLow: Math.min(...all.y), part: [part.x[0], part.x[part.x.length - 1]],
        gap: [...gap.y].map(v => Number.isNaN(v) ? null : v),
        holes: [...drawn.y].filter(Number.isNaN).length, ends: [drawn.x[0], drawn.x[drawn.x.length - 1]],
      };
    }"""
    with browser.opened(chromium, f"{fake.address}static/format.js") as (
        page,
        _,
    ):  # any document of the server
        told = page.evaluate(found)
    assert told["length"] <= 8192
    assert told["bytes"] == 65536
    assert (told["high"], told["low"], told["drawnHigh"], told["drawnLow"]) == (99, -99, 99, -99)
    assert told["rising"]
    assert told["last"] == pytest.approx(3999.99)
    assert told["drawn"] <= 1100
    assert told["part"][0] <= 1000.0 <= 1010.0 <= told["part"][1] + 1.5
    assert told["gap"] == [1, None, 3, 4, 5, 6]
    assert told["holes"] > 0, "a gap stays a gap"
    assert told["ends"] == [0, 19999]
