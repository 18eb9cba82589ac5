"""The live page in a real browser, against a server that speaks the contract: it draws, answers, comes back, and takes nothing for more than text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

import browser
import live_fake
import report_cases

pytest.importorskip("starlette", reason='the live page needs pip install "thetahat[web]"')
pytest.importorskip("uvicorn", reason='the live page needs pip install "thetahat[web]"')
pytest.importorskip("websockets", reason='the live page needs pip install "thetahat[web]"')

CARDS = ("gate", "r2", "torque", "error", "fill", "parameters", "events", "robot", "cycle")
REFUSED = ("WebSocket connection to", "Failed to load resource")  # what a browser itself says of a server that is gone

OVERLAPS = """() => {
  const boxes = [...document.querySelectorAll(".card, .bar > *, .tools button, .tools a, .tools select, .fact, .card .head > *")]
    .filter(node => node.offsetParent && node.getBoundingClientRect().width > 2 && !node.closest(".plot"));
  const out = [];
  const name = node => `${node.id || node.className || node.tagName}`;
  for (const a of boxes) for (const b of boxes) {
    if (a === b || a.contains(b) || b.contains(a) || !(a.compareDocumentPosition(b) & 4)) continue;
    if ((a.closest(".bar") === null) !== (b.closest(".bar") === null)) continue;  // the bar stays above what scrolls
    const p = a.getBoundingClientRect(), q = b.getBoundingClientRect();
    const x = Math.min(p.right, q.right) - Math.max(p.left, q.left), y = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
    if (x > 1 && y > 1) out.push(`${name(a)} and ${name(b)} by ${Math.round(x)} × ${Math.round(y)}`);
  }
  return out;
}"""

# Letters that do not fit their box, but for those that end in an ellipsis on purpose.
CUT_OFF = """() => [...document.querySelectorAll(".live button, .live a.button, .fact span, .card h2, .card .aside, .verdict p")]
  .filter(node => node.offsetParent && !node.closest(".plot") && !node.querySelector(".name"))
  .filter(node => node.scrollWidth > node.clientWidth + 1 && getComputedStyle(node).display !== "inline")
  .map(node => `${node.id} ${node.textContent} ${node.scrollWidth} > ${node.clientWidth}`)"""

INKED = """() => {
  const canvas = document.getElementById("stage"), data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  let inked = 0;
  for (let k = 3; k < data.length; k += 4) inked += data[k] > 60;
  return inked / (data.length / 4);
}"""

CONTRAST = """([selector, ground]) => {
  const light = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const style = (found) => getComputedStyle(document.querySelector(found));
  const a = light(style(selector).color), b = light(style(ground).backgroundColor);
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser.chromium() as running:
        yield running


@pytest.fixture
def fake() -> Iterator[live_fake.Fake]:
    with live_fake.running(age=12.0) as running:
        yield running


def text_of(page: Any, selector: str) -> str:
    return page.evaluate("selector => document.querySelector(selector).innerText", selector)


def settled(page: Any) -> None:
    browser.until(page, "document.querySelectorAll('#joints .joint[aria-label]').length > 0", what="the joints' R²")
    if page.viewport_size["width"] > 1000:  # else it is further down
        browser.until(page, "document.querySelector('#r2 .plot').dataset.drawn === 'r2'", what="the first figure")


def until_got(page: Any, fake: live_fake.Fake, message: dict[str, Any]) -> None:
    for _ in range(200):
        if message in fake.got:
            return
        page.wait_for_timeout(25)
    raise AssertionError(f"the page did not send {message}, but {[each for each in fake.got if each['type'] != 'ack']}")


def require_quiet(seen: browser.Seen, address: str, *, gone: bool = False) -> None:
    assert [text for text in seen.console if not (gone and any(known in text for known in REFUSED))] == []
    assert seen.errors == []
    assert seen.dialogs == []
    assert [each for each in seen.requests if not each.startswith(address)] == [], "nothing is asked for but the server's own"


# -- what is drawn ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("width", "height", "dark", "joints"),
    [(390, 844, True, 7), (1440, 900, False, 7), (3840, 2160, True, 44), pytest.param(390, 844, False, 44, marks=pytest.mark.slow)],
)
def test_draws_all_fits_and_is_quiet(chromium: Any, width: int, height: int, dark: bool, joints: int) -> None:
    with (
        live_fake.running(joints=live_fake.named(joints), age=12.0) as fake,
        browser.opened(chromium, fake.address, width=width, height=height, dark=dark) as (page, seen),
    ):
        settled(page)
        assert browser.draw_all(page) == 5
        assert page.evaluate("[...document.querySelectorAll('.plot')].every(node => node.querySelector('.scatterlayer .js-line'))")
        page.evaluate("document.getElementById('stage').scrollIntoView({behavior: 'instant', block: 'center'})")
        browser.until(page, f"({INKED})() > 0.01", what="the robot on its stage")
        assert page.evaluate("names => names.every(name => document.getElementById(name).offsetHeight > 100)", list(CARDS))
        assert page.evaluate("document.querySelectorAll('.parameters tbody tr:not(.spacer):not(.group)').length") > 5
        assert page.evaluate("document.querySelectorAll('#joints .joint').length") == joints
        assert browser.too_wide(page) == []
        assert page.evaluate(OVERLAPS) == []
        assert page.evaluate(CUT_OFF) == []
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        ink = page.evaluate("document.querySelector('.plot .xtick text').style.fill")
        assert (sum(map(int, ground[4:-1].split(","))) < 300) is dark
        assert (sum(map(int, ink[4:-1].split(",")[:3])) > 300) is dark, "figures have the colours of the page"
        require_quiet(seen, fake.address)


@pytest.mark.parametrize("mode", ["listen", pytest.param("replay", marks=pytest.mark.slow)])
def test_a_run_without_wanted_motion_has_no_errors_to_show(chromium: Any, mode: str) -> None:
    with live_fake.running(mode=mode, age=12.0) as fake, browser.opened(chromium, fake.address) as (page, seen):
        settled(page)
        assert page.evaluate("document.getElementById('error').hidden")
        assert browser.too_wide(page) == []
        assert page.evaluate(OVERLAPS) == []
        require_quiet(seen, fake.address)


@pytest.mark.parametrize("joints", [7, pytest.param(44, marks=pytest.mark.slow)])
def test_redraws_five_times_a_second(chromium: Any, joints: int) -> None:
    """The page, its figures in view taken together, and the robot; and the server hears of it."""
    count = (
        "({page: +document.documentElement.dataset.redraws, r2: +document.querySelector('#r2 .plot').dataset.redraws, robot: +stage.dataset.redraws})"
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


def test_draws_what_is_in_view_in_the_colours_of_the_moment(chromium: Any, fake: live_fake.Fake) -> None:
    bright = "document.querySelector('#r2 .xtick text').style.fill.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + +b, 0) > 450"
    with browser.opened(chromium, fake.address, height=800) as (page, _):
        settled(page)
        page.wait_for_timeout(500)
        assert page.evaluate("document.querySelector('#cycle .plot').dataset.drawn === undefined"), "what nobody sees is not drawn"
        assert not page.evaluate(bright)
        page.emulate_media(color_scheme="dark")
        browser.until(page, bright, what="bright letters on dark ground")


# -- the gate -----------------------------------------------------------------------------------------------------------


def test_the_gate_speaks(chromium: Any) -> None:
    """Closed and why, open and since when; a switch is announced once, and words and signs tell states apart, not colour alone."""
    with live_fake.running(age=live_fake.SWITCHES[0] - 0.5, paused=True) as fake, browser.opened(chromium, fake.address, width=1440) as (page, seen):
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
        browser.until(page, "document.getElementById('gate-word').textContent === 'Gate open'", what="the gate to open")
        assert "identified model" in text_of(page, "#gate-model")
        assert re.fullmatch(r"Open since 8\.0 s, for \d+\.\d s\.", text_of(page, "#gate-since"))
        assert page.evaluate("document.getElementById('gate-sign').getAttribute('d')") != closed
        assert page.title().startswith("✓ Gate open")
        page.wait_for_timeout(600)
        assert page.evaluate("window.spoken") == 2, "that it goes on, and that the gate is open"
        assert "Gate open" in page.evaluate("document.getElementById('spoken').textContent")
        browser.until(page, "document.getElementById('events-list').textContent.includes('the gate opened')", what="the event")
        grows = "Math.max(...document.querySelector('#r2 .plot').layout.shapes.filter(s => s.type === 'rect').map(s => s.x1))"
        first = page.evaluate(grows)
        browser.until(page, f"{grows} > {first + 0.5}", what="the ground to grow while the identified model is used")
        require_quiet(seen, fake.address)


def test_words_stand_out_from_their_ground(chromium: Any) -> None:
    """Contrast of at least 4.5 in every state of the gate (WCAG 2.2, 1.4.3)."""
    with live_fake.running(age=2.0) as fake, browser.opened(chromium, fake.address) as (page, _):
        settled(page)
        page.add_style_tag(content="* { transition: none !important }")
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            for state in ("open", "closed", "forced"):
                page.evaluate("state => { document.getElementById('gate').dataset.state = state }", state)
                for word in ("#gate-word", "#gate-reason", "#gate-since"):
                    assert page.evaluate(CONTRAST, [word, "#gate"]) >= 4.5, (theme, state, word)
            for word in (".fact .value", ".fact .more", ".fact dt"):
                assert page.evaluate(CONTRAST, [word, ".fact"]) >= 4.5, (theme, word)


# -- commands -------------------------------------------------------------------------------------------------------------


def test_commands_by_keyboard_alone(chromium: Any, fake: live_fake.Fake) -> None:
    with browser.opened(chromium, fake.address) as (page, seen):
        settled(page)
        page.keyboard.press("p")
        browser.until(page, "document.getElementById('pause').innerText.includes('Resume')", what="the button to say Resume")
        browser.until(page, "document.getElementById('link').innerText.endsWith('paused')", what="the bar to say so")
        page.keyboard.press("p")
        browser.until(page, "document.getElementById('pause').innerText.includes('Pause')", what="the button to say Pause")
        page.keyboard.press("n")
        browser.until(page, "document.getElementById('gate-word').textContent === 'Nominal model forced'", what="the nominal model")
        assert page.get_attribute("#nominal", "aria-pressed") == "true"
        browser.until(page, "!document.getElementById('nominal').disabled", what="the button")
        page.keyboard.press("n")
        browser.until(page, "document.getElementById('gate-word').textContent === 'Gate open'", what="the gate again")
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


def test_the_keyboard_reaches_everything_and_shows_where_it_is(chromium: Any, fake: live_fake.Fake) -> None:
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
        browser.until(page, "document.getElementById('notices').innerText.includes('there is no estimate yet')", what="the server's sentence")
        fake.says.append({"type": "error", "message": "that is not possible now"})
        browser.until(page, "document.getElementById('notices').innerText.includes('that is not possible now')", what="the server's error")
        fake.says.append({"type": "bye", "reason": "finished", "message": "the study has run its 60 s"})
        browser.until(page, "document.getElementById('notices').innerText.includes('the study has run its 60 s')", what="the end")


# -- choices ------------------------------------------------------------------------------------------------------------


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
        fake.says.append({"type": "figure", "id": "torque:2", "figure": {"data": [], "layout": {}}})  # late, of a joint that is not chosen any more
        browser.until(page, f"{ends} > {before + 0.5}", what="the chosen joint's torque to go on")
        thick = (
            "Object.fromEntries(document.querySelector('#r2 .plot').data.filter(trace => trace.line).map(trace => [trace.name, trace.line.width]))"
        )
        browser.until(page, f"{thick}.joint_5 > {thick}.joint_4 + 1", what="the chosen joint's line to stand out")
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
        browser.until(page, "document.getElementById('r2').classList.contains('zoomed')", what="the zoom")
        before = page.evaluate(f"[{shown}.xaxis.range, {shown}.yaxis.range]")
        page.wait_for_timeout(800)
        assert page.evaluate(f"[{shown}.xaxis.range, {shown}.yaxis.range]") == before
        page.click("#r2 .follow")
        again = f"{shown}.xaxis.range[1] > {before[0][1]} && {shown}.yaxis.range[0] === {whole[0]} && {shown}.yaxis.range[1] >= {whole[1]}"
        browser.until(page, again, what="the stream again, all of it")
        page.select_option("#span", "10")
        browser.until(page, f"Math.abs({shown}.xaxis.range[1] - {shown}.xaxis.range[0] - 10) < 1e-6", what="the last ten seconds")
        page.click("#r2 .legend button:nth-child(2)")
        browser.until(page, "document.querySelector('#r2 .plot').data[1].visible === false", what="a line to be hidden")
        require_quiet(seen, fake.address)


def test_the_robot_turns_and_keeps_its_view(chromium: Any, fake: live_fake.Fake) -> None:
    fake.paused = True  # what changes then is the view alone
    picture = "document.getElementById('stage').toDataURL()"
    with browser.opened(chromium, fake.address, width=1440) as (page, _):
        settled(page)
        page.wait_for_timeout(300)
        home = page.evaluate(picture)
        page.wait_for_timeout(300)
        assert page.evaluate(picture) == home
        box = page.query_selector("#stage").bounding_box()
        page.mouse.move(box["x"] + 100, box["y"] + 100)
        page.mouse.down()
        page.mouse.move(box["x"] + 200, box["y"] + 120, steps=4)
        page.mouse.up()
        browser.until(page, f"{picture} !== {home!r}", what="the robot to turn")
        turned = page.evaluate(picture)
        fake.says.append({"type": "figure", "id": "scene", "figure": fake.scene()})
        page.wait_for_timeout(300)
        assert page.evaluate(picture) == turned, "new ellipsoids leave the view alone"
        page.keyboard.press("0")
        browser.until(page, f"{picture} === {home!r}", what="the first view again")


def test_many_joints_stay_light_and_the_worst_are_first(chromium: Any) -> None:
    order = "[...document.querySelectorAll('#joints .joint')].sort((a, b) => a.style.order - b.style.order).map(chip => chip.title)"
    rows = "[...document.querySelectorAll('.parameters tbody tr:not(.spacer):not([hidden])')].map(row => row.innerText.replace(/\\s+/g, ' '))"
    with live_fake.running(joints=live_fake.named(44), age=12.0) as fake, browser.opened(chromium, fake.address, width=1440) as (page, _):
        settled(page)
        browser.until(page, f"{order}[0] === '{fake.joints[-1]}'", what="the worst joint first")
        page.click("#worst")
        assert page.evaluate(order) == list(fake.joints)
        page.evaluate("document.getElementById('parameters').scrollIntoView({behavior: 'instant'})")
        browser.until(page, f"{rows}.length > 10", what="rows")
        assert len(page.evaluate(rows)) < 60
        page.evaluate("document.getElementById('parameters-box').scrollTop = 1e6")
        browser.until(page, f"{rows}.some(row => row.startsWith('{fake.joints[-1]}'))", what="the last group")
        page.fill("#parameters-filter", "no such name")
        browser.until(page, f"{rows}.length === 0", what="no such row")
        page.fill("#parameters-filter", "mass")
        browser.until(page, f"{rows}.length > 2 && {rows}.every((row, k) => k % 2 === 0 || row.startsWith('mass'))", what="masses by link")
        page.click(".listing thead .change button")
        cells = "[...document.querySelectorAll('.listing tbody tr:not(.spacer):not([hidden]) td.change')]"
        shares = f"{cells}.map(cell => Math.abs(parseFloat(cell.innerText.replace('−', '-'))))"
        sorted_down = (
            f"(list => list.length > 5 && list.every((value, k) => k === 0 || !(value > list[k - 1] + 0.11)))({shares}.filter(v => v === v))"
        )
        browser.until(page, sorted_down, what="the largest change first")
        assert page.get_attribute(".listing thead .change", "aria-sort") == "descending"


# -- the connection -----------------------------------------------------------------------------------------------------


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
        browser.until(page, "document.getElementById('notices').innerText.includes('Connected again at')", what="the page to be back")
        assert "new run" in text_of(page, "#notices")
        assert not page.evaluate("document.body.classList.contains('stale')")
        until_got(page, fake, {"type": "subscribe", "joint": 1})
        t = page.inner_text("#time")
        browser.until(page, f"document.getElementById('time').innerText !== {t!r}", what="new frames")
        assert "without a connection" in text_of(page, "#events-list") or page.evaluate("document.documentElement.dataset.hellos") == "2"
        fake.stop()
        fake.refuse = True  # a server that was started anew has another token
        fake.start()
        browser.until(
            page, "document.getElementById('notices').innerText.includes('Open the link that it printed')", what="the page to say what to do"
        )
        require_quiet(seen, fake.address, gone=True)


def test_a_silent_server_is_said(chromium: Any, fake: live_fake.Fake) -> None:
    with browser.opened(chromium, fake.address) as (page, seen):
        settled(page)
        fake.silent, fake.paused = True, True
        browser.until(page, "document.getElementById('notices').innerText.includes('has said nothing since')", what="the page to notice")
        fake.silent = False
        browser.until(page, "document.getElementById('notices').innerText === ''", what="the page to be content")
        require_quiet(seen, fake.address)


# -- what comes in ----------------------------------------------------------------------------------------------------


def test_names_stay_text(chromium: Any) -> None:
    hostile = report_cases.HOSTILE
    joints = (hostile, "b</title><svg onload=alert(3)>", "__proto__")
    with live_fake.running(joints=joints, title=hostile, closed_reason=hostile) as fake, browser.opened(chromium, fake.address) as (page, seen):
        settled(page)
        fake.says += [
            {"type": "event", "t": 1.0, "kind": hostile, "message": hostile},
            {"type": "error", "message": hostile},
            {"type": "bye", "reason": "finished", "message": hostile},
            {"type": hostile},
            {"type": "__proto__"},
            {"type": "frame"},
        ]
        browser.until(page, f"document.getElementById('notices').innerText.includes({hostile!r})", what="the error")
        browser.draw_all(page)
        for place in ("#title", "#gate-reason", "#joints", "#joint", "#events-list", "#r2 .legend", "#parameters-box"):
            assert hostile in page.evaluate("place => document.querySelector(place).textContent", place), place
        assert page.evaluate("document.querySelectorAll('img, svg[onload], script:not([src])').length") == 0
        assert seen.dialogs == []
        assert seen.errors == []
        assert [each for each in seen.requests if not each.startswith(fake.address)] == []


def test_a_lines_past_is_bounded_and_keeps_its_peaks(chromium: Any, fake: live_fake.Fake) -> None:
    found = """async () => {
      const { Series } = await import("/static/history.js");
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
    with browser.opened(chromium, f"{fake.address}static/words.js") as (page, _):  # any document of the server
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
