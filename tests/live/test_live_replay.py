"""A log that is played: row by row, at the pace of its stamps."""

from __future__ import annotations

import json
import time
from typing import Any

import live_cases as cases
import numpy as np
import pytest
from data_paths import example_robot, shared_file
from live_cases import Reader, until

import thetahat as th
from thetahat import robots
from thetahat.data.memory_log import log_from_arrays
from thetahat.live.sample_sources import Replay, Settings
from thetahat.live.session import Session


def log_of(robot: th.Robot, seconds: float, *, speeds: bool = True) -> Any:
    t, q, dq, tau = (array[: round(200.0 * seconds)] for array in cases.samples(robot, 5.0, 200.0))
    return log_from_arrays(
        robot, t + 1.7e9, q, dq=dq if speeds else None, tau=tau, name="trial.csv"
    )


@pytest.mark.parametrize("speeds", [True, False], ids=["speeds measured", "speeds derived"])
def test_a_log_is_played_row_by_row_without_looking_ahead(speeds: bool) -> None:
    """The identifier ends as one that is handed the rows by hand, and halfway it knows nothing of
    the second half.
    """
    robot = th.load(robots.path("arm4"))
    log = log_of(robot, 5.0, speeds=speeds)
    session = Session(Replay(robot, log, Settings(rate=6.0, window=12)), speed=10.0)
    with session:
        until(lambda: session.shared.ended, "the end")
    by_hand = Replay(robot, log, Settings(rate=6.0, window=12)).identifier
    first = float(log.runs[0].start)
    half = None
    for chunk in log.chunks():
        for k in range(len(chunk)):
            by_hand.push(
                float(chunk.t[k]) - first, chunk.q[k], chunk.dq[k] if speeds else None, chunk.tau[k]
            )
            if k == 500:
                half = by_hand.estimate.x.copy()
    np.testing.assert_allclose(
        session.source.identifier.estimate.x, by_hand.estimate.x, rtol=1e-9, atol=1e-12
    )
    assert session.source.identifier.updates == by_hand.updates
    short = log_of(robot, 501 / 200.0, speeds=speeds)
    cut = Session(Replay(robot, short, Settings(rate=6.0, window=12)), speed=10.0)
    with cut:
        until(lambda: cut.shared.ended, "the end of the first half")
    np.testing.assert_allclose(cut.source.identifier.estimate.x, half, rtol=1e-6, atol=1e-9)


def test_a_log_is_played_at_the_pace_of_its_stamps() -> None:
    robot = th.load(robots.path("arm4"))
    session = Session(Replay(robot, log_of(robot, 2.0), Settings()), speed=4.0)
    begun = time.monotonic()
    with session:
        until(lambda: session.shared.ended, "the end")
        took = time.monotonic() - begun
    assert 0.45 <= took < 5.0
    assert session.shared.cycles == 400


@pytest.mark.slow
def test_the_log_of_a_real_panda_opens_the_gate() -> None:
    """21 s at 1 kHz with stamps that jitter and gaps; a finger that is not measured is locked."""
    robot = th.load(example_robot("panda"))
    log = th.read_log(shared_file("logs", "panda", "panda_exciting_traj1.csv"), robot)
    session = Session(Replay(robot, log, Settings()), speed=1000.0)
    reader = Reader(session)
    with session:
        until(lambda: bool(reader.all("bye")), "the end", patience=120.0)
        found = json.loads(session.downloads().estimate)
    reader.close()
    assert reader.state["gate"]["open"]
    assert reader.state["gate"]["r2"] > 0.999
    assert len(reader.messages[0]["joints"]) == 7
    assert found["locked"] == ["panda_finger_joint1"]
    assert found["provenance"]["logs"][0]["path"].endswith("panda_exciting_traj1.csv")
    assert "error" not in [panel["id"] for panel in reader.messages[0]["panels"]]
