"""What the page costs the loop: frames come fast enough, and three readers do not show in the
control cycle.
"""

from __future__ import annotations

import time

import live_cases as cases
import numpy as np
import pytest
from data_paths import ROOT
from live_cases import receive, served, viewer

from thetahat.live.session import Session

ENOUGH, MANY_ENOUGH = 30.0, 10.0  # frames per second of 7 and of 44 joints
MORE = 1.10  # times the p99 without readers, of the processor time of a cycle
WALL, WALL_P99 = (
    1.25,
    2.0,
    # times the median and the p99 without readers, on the wall: 0.99 to 1.06 and 0.81 to 1.21 with
    # five others at work here
)


def frames_per_second(page: object, seconds: float) -> float:
    """Frames that came, one by one."""
    receive(page, "frame")
    count, begun = 0, time.monotonic()
    while time.monotonic() - begun < seconds:
        receive(page, "frame")
        count += 1
    return count / (time.monotonic() - begun)


def test_thirty_frames_a_second_of_seven_joints() -> None:
    with served(cases.study("arm7")) as server, viewer(server) as page:
        receive(page, "hello")
        rate = max(frames_per_second(page, 2.0) for _ in range(2))
    print(f"{rate:.1f} frames/s of 7 joints")
    assert rate >= ENOUGH


@pytest.mark.slow
def test_ten_frames_a_second_of_44_joints() -> None:
    from thetahat.live.sample_sources import Study
    from thetahat.live.server import Server

    session = Session.apart(Study.named, "valkyrie", "own")
    with Server(session, token=cases.TOKEN) as server, session, viewer(server) as page:
        receive(page, "hello")
        rate = frames_per_second(page, 3.0)
    print(f"{rate:.1f} frames/s of 44 joints")
    assert rate >= MANY_ENOUGH


@pytest.mark.slow
def test_three_readers_do_not_show_in_the_control_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole cycle (control, identification, leaving what they brought) with three readers and
    without, in turn in one run.

    p99 of its processor time grows by a tenth at most. On the wall, readers, server, a fit and the
    loop share two cores here with whatever else runs, and who waits for a core is the system's
    choice: asserted are its median, and a wide bound on its p99 that only a loop which waits for
    its page would break; the figures themselves are printed. A second run, where the first is
    above, is judged together with it: it adds cycles, and takes none away.
    """
    monkeypatch.syspath_prepend(ROOT)
    benchmark = pytest.importorskip("benchmarks.live")
    times = benchmark.cycle_times()
    found = benchmark.cost(times)
    if found.cpu > MORE or found.wall_p50 > WALL or found.wall > WALL_P99:
        more = benchmark.cycle_times()
        found = benchmark.cost({on: np.concatenate([times[on], more[on]]) for on in times})
    assert found.cpu <= MORE
    assert found.wall_p50 <= WALL
    assert found.wall <= WALL_P99
    assert len(times[True]) > 10_000
