"""What the page costs the loop: frames come fast enough, and three readers do not show in the control cycle."""

from __future__ import annotations

import sys
import time

import pytest

import live_cases as cases
from data_paths import ROOT
from live_cases import receive, served, viewer
from thetahat.live.session import Session

ENOUGH, MANY_ENOUGH = 30.0, 10.0  # frames per second of 7 and of 44 joints
MORE = 1.10  # times the p99 without readers
TRIES = 3  # others work on this machine, too


def frames_per_second(page: object, seconds: float) -> float:
    """By the server's own numbers and clock: what it sent, however late it is read."""
    first, begun = receive(page, "frame")["seq"], time.monotonic()
    while time.monotonic() - begun < seconds:
        last = receive(page, "frame")["seq"]
    return (last - first) / (time.monotonic() - begun)


def test_thirty_frames_a_second_of_seven_joints() -> None:
    with served(cases.study("arm7")) as server, viewer(server) as page:
        receive(page, "hello")
        rate = max(frames_per_second(page, 2.0) for _ in range(2))
    print(f"{rate:.1f} frames/s of 7 joints")
    assert rate >= ENOUGH


@pytest.mark.slow
def test_ten_frames_a_second_of_44_joints() -> None:
    from thetahat.live.server import Server
    from thetahat.live.sources import Study

    session = Session.apart(Study.named, "valkyrie", "own")
    with Server(session, token=cases.TOKEN) as server, session, viewer(server) as page:
        receive(page, "hello")
        rate = frames_per_second(page, 3.0)
    print(f"{rate:.1f} frames/s of 44 joints")
    assert rate >= MANY_ENOUGH


@pytest.mark.slow
def test_three_readers_do_not_show_in_the_control_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    """p99 of the cycle's processor time with three readers and without, in turn in one run; the best of a few runs, as others work here, too."""
    monkeypatch.syspath_prepend(ROOT)
    benchmark = pytest.importorskip("benchmarks.live")
    ratios = []
    for _ in range(TRIES):
        ratios.append(benchmark.loop()[0])
        if ratios[-1] <= MORE:
            break
    assert min(ratios) <= MORE, ratios
    assert "benchmarks.live" in sys.modules
