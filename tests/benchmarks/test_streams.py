"""Streams whose sensors lie, and planted changes: a short, seeded part of `make streams` and of
benchmarks.planted.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import planted, streams
from thetahat.connect.control_run import ControlSettings

QUICK = ControlSettings(rate=500.0, duration=11.0, updates=10.0, window=30)
AT = 5.0  # [s]: the gate opens at 3 s
CHOSEN = ("torque × 1.5", "encoder off by 0.5 rad", "another model's torque", "not finite")
BY_NAME = {stream.name: stream for stream in streams.STREAMS}


def test_there_are_forty() -> None:
    assert len(BY_NAME) == len(streams.STREAMS) == 40


@pytest.mark.parametrize("name", CHOSEN)
def test_no_model_that_a_lie_made_is_in_charge(name: str) -> None:
    outcome = streams.run("arm4", replace(BY_NAME[name], start=AT), settings=QUICK, engine="own")
    assert outcome.opened is not None, "without the lie it is identified"
    assert outcome.opened < AT
    assert outcome.identified > 1.0
    assert outcome.limits
    assert outcome.worse <= streams.LONGEST, (outcome.closings, outcome.reason)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::thetahat.errors.RobotWarning")
@pytest.mark.parametrize("robot", ["arm4", "arm7", "panda"])
def test_no_stream_breaks_the_law(robot: str) -> None:
    pytest.importorskip("mujoco", reason="the extra 'mujoco' is not installed")
    for stream in streams.STREAMS:
        outcome = streams.run(robot, stream)
        assert outcome.good, streams.line(outcome)


@pytest.mark.parametrize("kind", planted.KINDS)
def test_planted_changes_are_found_and_named(kind: str) -> None:
    runs = [planted.run("arm4", kind, seed) for seed in range(2 if kind == "drift" else 5)]
    assert sum(planted.good(kind, each) for each in runs) >= len(runs) - 1, runs
    if kind.endswith("kg"):
        assert np.median([abs(each.mass) for each in runs if each.mass is not None]) < 0.02
