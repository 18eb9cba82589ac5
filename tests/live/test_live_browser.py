"""The live page and its real server in a real browser: a study, a log and joint states render,
update, survive a restart, and can be taken home.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import browser
import jsonschema
import live_cases as cases
import pytest
from live_cases import TOKEN

import thetahat as th
from thetahat import robots
from thetahat.data.memory_log import log_from_arrays
from thetahat.live.sample_sources import Replay, Settings, Source
from thetahat.live.server import Server
from thetahat.live.session import Session

SCHEMA = Path(th.__file__).parent / "schemas" / "estimate.json"
GONE = (
    "WebSocket connection to",
    "Failed to load resource",
)  # what a browser itself says of a server that is gone
SETTINGS = Settings(rate=6.0, window=12)
REDRAWS = 5.0  # per second
LAST = (  # [s] to which the torque is drawn
    "Number(Array.from(document.querySelector('#torque .plot').data?.[0]?.x ?? [0]).at(-1))"
)


def replay() -> Replay:
    robot = th.load(robots.path("arm4"))
    t, q, dq, tau = cases.samples(robot, 120.0, 200.0)
    return Replay(robot, log_from_arrays(robot, t, q, dq=dq, tau=tau, name="trial.csv"), SETTINGS)


class Robot:
    """A robot that sends its joint states to a bind_socket server, in real time, from a thread; it
    finds the server again when that was gone.
    """

    def __init__(self, server: Server) -> None:
        self._address, self._over = server.joint_states, threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def _send(self) -> None:
        robot = th.load(robots.path("arm4"))
        t, q, dq, tau = cases.samples(robot, 120.0, 200.0)
        begun, k = time.monotonic(), 0
        while not self._over.is_set():
            try:
                with cases.connect(self._address, close_timeout=0.2) as socket:
                    while not self._over.is_set():
                        k = min(max(k + 1, int(200.0 * (time.monotonic() - begun))), len(t) - 1)
                        socket.send(json.dumps(cases.state(robot, t[k], q[k], dq[k], tau[k])))
                        self._over.wait(max(0.0, begun + t[k] - time.monotonic()))
            except Exception:
                self._over.wait(0.1)

    def stop(self) -> None:
        self._over.set()
        self._thread.join(timeout=5.0)


MODES: dict[str, Callable[[], Source]] = {
    "study": cases.study,
    "replay": replay,
    "listen": cases.listener,
}


@contextmanager
def serving(mode: str, port: int = 0) -> Iterator[Server]:
    with cases.served(MODES[mode](), port=port) as server:
        robot = Robot(server) if mode == "listen" else None
        try:
            yield server
        finally:
            if robot is not None:
                robot.stop()


def shown_time(page: Any) -> float:
    text = page.inner_text("#time")
    return (
        float(text.split("=")[-1].replace("s", "").replace(",", "").strip())
        if "=" in text
        else -1.0
    )


def require_live(page: Any) -> None:
    """The gate speaks, figures are drawn, and time goes on."""
    browser.until(
        page, "document.querySelector('#r2 .plot').dataset.drawn === 'r2'", what="the first figure"
    )
    browser.until(
        page, "document.getElementById('gate').dataset.state !== 'unknown'", what="the gate"
    )
    assert page.inner_text("#gate-reason").strip()
    browser.until(page, f"({LAST}) > 0", what="the torque")
    before, drawn = shown_time(page), page.evaluate(LAST)
    end = time.monotonic() + browser.PATIENCE
    while shown_time(page) < before + 1.0 or page.evaluate(LAST) < drawn + 1.0:
        assert time.monotonic() < end, "time stands still, or lines do not grow"
        page.wait_for_timeout(50)


def require_taken_home(page: Any, seen: browser.Seen, server: Server, mode: str) -> None:
    """The run is watched, and what was learned is downloaded."""
    require_live(page)
    assert page.query_selector("#error.card, .card#error").is_visible() is (mode == "study")
    until_learned(server.session)
    with page.expect_download(timeout=60_000) as waiting:
        page.click("a[href='/download/estimate.json']")
    found = json.loads(Path(waiting.value.path()).read_text(encoding="utf-8"))
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(found)
    assert found["consistent"]
    assert seen.console == []
    assert server.session.shared.failure == ""


@pytest.mark.parametrize("mode", ["listen", pytest.param("replay", marks=pytest.mark.slow)])
def test_a_run_is_watched_and_taken_home(chromium: Any, mode: str) -> None:
    with (
        serving(mode) as server,
        browser.opened(chromium, server.address, width=1440, height=1000) as (page, seen),
    ):
        require_taken_home(page, seen, server, mode)
        assert seen.errors == []
        assert seen.dialogs == []


@pytest.mark.parametrize(
    "mode",
    ["study", *(pytest.param(mode, marks=pytest.mark.slow) for mode in ("replay", "listen"))],
)
def test_a_run_is_watched_taken_home_and_survives_a_restart(chromium: Any, mode: str) -> None:
    with serving(mode) as server:
        port = server.port
        context = browser.opened(chromium, server.address, width=1440, height=1000)
        page, seen = context.__enter__()
        try:
            require_taken_home(page, seen, server, mode)
        except BaseException:
            context.__exit__(None, None, None)
            raise
    try:
        browser.until(
            page,
            "document.getElementById('link').dataset.state === 'lost'",
            what="the page says that the server is gone",
        )
        with serving(mode, port) as server:
            browser.until(
                page,
                "document.getElementById('link').dataset.state === 'live'",
                what="it is connected again",
            )
            browser.until(
                page, "+document.documentElement.dataset.hellos >= 2", what="a new greeting"
            )
            require_live(page)
        assert seen.errors == []
        assert seen.dialogs == []
        assert [text for text in seen.console if not any(word in text for word in GONE)] == []
        own = (f"http://127.0.0.1:{port}/", f"ws://127.0.0.1:{port}/")
        assert [address for address in seen.requests if not address.startswith(own)] == [], (
            "no request to any other host"
        )
    finally:
        context.__exit__(None, None, None)


def until_learned(session: Session) -> None:
    cases.until(
        lambda: session.shared.snapshot is not None and session.shared.snapshot.count >= 12,
        "something is learned",
    )


def test_the_page_redraws_and_the_viewer_is_not_left_behind(chromium: Any) -> None:
    with (
        serving("study") as server,
        browser.opened(chromium, server.address, width=1440, height=1000) as (page, seen),
    ):
        require_live(page)
        redraws = "+document.documentElement.dataset.redraws"
        first, begun = page.evaluate(redraws), time.monotonic()
        page.wait_for_timeout(3000)
        rate = (page.evaluate(redraws) - first) / (time.monotonic() - begun)
        print(f"{rate:.1f} redraws per second")
        assert rate >= REDRAWS
        assert server.session.publisher.state()["dropped"]["frames"] < 60
        assert seen.console == seen.errors == []


def test_controls_reach_the_loop(chromium: Any) -> None:
    """By the page's own buttons: pause, resume, force the nominal model, release it, choose a
    joint.
    """
    with (
        serving("study") as server,
        browser.opened(chromium, server.address, width=1440, height=1000) as (page, seen),
    ):
        require_live(page)
        session = server.session
        page.click("#pause")
        cases.until(lambda: session.shared.status.paused, "paused")
        browser.until(page, "document.body.classList.contains('paused')", what="the page shows it")
        page.click("#pause")
        cases.until(lambda: not session.shared.status.paused, "resumed")
        browser.until(
            page, "!document.getElementById('nominal').disabled", what="the button is ready"
        )
        page.click("#nominal")
        cases.until(lambda: session.shared.status.forced, "forced")
        browser.until(
            page,
            "document.getElementById('gate').dataset.state === 'forced'",
            what="the gate shows it",
        )
        browser.until(
            page, "!document.getElementById('nominal').disabled", what="the button is ready"
        )
        page.click("#nominal")
        cases.until(lambda: not session.shared.status.forced, "released")
        page.select_option("#joint", "2")
        cases.until(
            lambda: any(viewer.joint == 2 for viewer in session.publisher.viewers),
            "the chosen joint",
        )
        assert seen.errors == seen.console == []
        assert TOKEN not in page.url, "the token leaves the address bar"
