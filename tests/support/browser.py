"""Debian's Chromium without a window, for tests of pages: what a page says, what fails in it, what
it asks for, and what does not fit.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
OPTIONS = (
    *(
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-first-run",
    ),
    "--enable-unsafe-swiftshader",  # 3D figures are drawn by the processor
)
HARMLESS = (
    "Canvas2D: Multiple readback",
    "GL Driver Message",
)  # about speed, of the drawing of 3D figures without a graphics card
PATIENCE = 60.0  # [s] for a page to be drawn on a busy machine

DRAWN = (
    "[...document.querySelectorAll('.plot')].every(node => node.dataset.drawn ==="
    " node.dataset.panel)"
)

# Elements that stick out of the window, but for those inside a box that scrolls or hides what does
# not fit.
TOO_WIDE = """() => {
  const width = document.documentElement.clientWidth, out = [];
  const held = (node) => {
    for (let up = node.parentElement; up; up = up.parentElement) {
      if (getComputedStyle(up).overflowX !== "visible") return true;
    }
    return false;
  };
  for (const node of document.querySelectorAll("body *")) {
    const box = node.getBoundingClientRect();
    if (box.width && (box.right > width + 1 || (box.left < -1 && box.right > 0)) && !node.closest(".skip") && !held(node)) {
      out.push(`${node.tagName} ${node.className} ${Math.round(box.left)} … ${Math.round(box.right)}`);
    }
  }
  return out;
}"""


@dataclass
class Seen:
    """What happened in a page."""

    console: list[str] = field(default_factory=list)  # warnings and errors
    errors: list[str] = field(default_factory=list)  # exceptions nobody caught
    requests: list[str] = field(
        default_factory=list
    )  # addresses asked for, but for data: and blob:
    dialogs: list[str] = field(default_factory=list)


@contextmanager
def chromium() -> Iterator[Any]:
    """A running browser; skips, with the reason, where there is none."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="pages are tested with Playwright (pip install playwright)"
    )
    if CHROMIUM is None:
        pytest.skip("pages are tested in Chromium (apt-get install chromium)")
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=CHROMIUM, args=list(OPTIONS))
        try:
            yield running
        finally:
            running.close()


@contextmanager
def opened(
    browser: Any, address: str, *, width: int = 1280, height: int = 900, dark: bool = False
) -> Iterator[tuple[Any, Seen]]:
    """(page, what happened in it) of an address."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
    )
    context.set_default_timeout(1e3 * PATIENCE)
    page, seen = context.new_page(), Seen()

    def said(message: Any) -> None:
        if message.type in ("error", "warning") and not any(
            text in message.text for text in HARMLESS
        ):
            seen.console.append(f"{message.type}: {message.text}")

    def asked(request: Any) -> None:
        if not request.url.startswith(("data:", "blob:")):
            seen.requests.append(request.url)

    def spoke(dialog: Any) -> None:
        seen.dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("console", said)
    page.on("pageerror", lambda error: seen.errors.append(str(error)))
    page.on("request", asked)
    page.on("dialog", spoke)
    try:
        page.goto(address)
        yield page, seen
    finally:
        context.close()


def until(page: Any, expression: str, *, what: str) -> None:
    """Wait for a JavaScript expression to be true. (Playwright's own waiting evaluates text in the
    page, which a strict policy forbids.)
    """
    end = time.monotonic() + PATIENCE
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"waited {PATIENCE:.0f} s for: {what}"
        page.wait_for_timeout(50)


def steady(page: Any, expression: str, *, what: str) -> Any:
    """The value of a JavaScript expression once it has stayed the same for 0.3 s: a busy machine
    draws late.
    """
    end, value = time.monotonic() + PATIENCE, page.evaluate(expression)
    while True:
        page.wait_for_timeout(300)
        before, value = value, page.evaluate(expression)
        if value == before:
            return value
        assert time.monotonic() < end, f"waited {PATIENCE:.0f} s for: {what}"


def draw_all(page: Any) -> int:
    """Bring every figure into view, as a reader does who scrolls, and wait until each is drawn;
    returns how many there are.
    """
    plots = page.query_selector_all(".plot")
    for plot in plots:
        plot.evaluate("node => node.scrollIntoView({behavior: 'instant', block: 'center'})")
        page.wait_for_timeout(20)
    until(page, DRAWN, what="all figures drawn")
    return len(plots)


def too_wide(page: Any) -> list[str]:
    """What sticks out of the window."""
    wide = page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    return [*([f"the page scrolls by {wide} px"] if wide > 0 else []), *page.evaluate(TOO_WIDE)]
