"""What the tests of the live page ask of it in the browser."""

from __future__ import annotations

from typing import Any

import browser
import live_fake
import pytest

pytest.importorskip("starlette", reason='the live page needs pip install "thetahat[web]"')
pytest.importorskip("uvicorn", reason='the live page needs pip install "thetahat[web]"')
pytest.importorskip("websockets", reason='the live page needs pip install "thetahat[web]"')

REFUSED = (
    "WebSocket connection to",
    "Failed to load resource",
)  # what a browser itself says of a server that is gone

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

# Numbers of the parameters' table that do not fit their column: half a number is a wrong number.
CUT_NUMBERS = """() => [...document.querySelectorAll(".listing tbody tr:not(.group):not([hidden]) td:not(.picture)")]
  .filter(node => node.offsetParent && node.scrollWidth > node.clientWidth + 1)
  .map(node => `${node.className} ${node.textContent} ${node.scrollWidth} > ${node.clientWidth}`)"""

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


def text_of(page: Any, selector: str) -> str:
    return page.evaluate("selector => document.querySelector(selector).innerText", selector)


def settled(page: Any) -> None:
    browser.until(
        page,
        "document.querySelectorAll('#joints .joint[aria-label]').length > 0",
        what="the joints' R²",
    )
    if page.viewport_size["width"] > 1000:  # else it is further down
        browser.until(
            page,
            "document.querySelector('#r2 .plot').dataset.drawn === 'r2'",
            what="the first figure",
        )


def until_got(page: Any, fake: live_fake.Fake, message: dict[str, Any]) -> None:
    for _ in range(200):
        if message in fake.got:
            return
        page.wait_for_timeout(25)
    raise AssertionError(
        f"the page did not send {message}, but"
        f" {[each for each in fake.got if each['type'] != 'ack']}"
    )


def require_quiet(seen: browser.Seen, address: str, *, gone: bool = False) -> None:
    assert [
        text for text in seen.console if not (gone and any(known in text for known in REFUSED))
    ] == []
    assert seen.errors == []
    assert seen.dialogs == []
    assert [each for each in seen.requests if not each.startswith(address)] == [], (
        "nothing is asked for but the server's own"
    )
