"""Slow drift of a robot that the model follows: named where there is one, and only there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from online_cases import arm, push_all, run, wrong

from thetahat.online.identifier import OnlineIdentifier

SECONDS = 60.0
JOINT = 1


def drifting(share: float, seed: int) -> OnlineIdentifier:
    """Push a minute of motion, in which a joint's offset grows by a share of its RMS torque."""
    robot = arm()
    stream = run(robot, SECONDS, seed=seed)
    tau = stream.tau.copy()
    grown = np.clip((stream.t - 25.0) / (SECONDS - 25.0), 0.0, 1.0)
    tau[:, JOINT] += share * np.sqrt(np.mean(tau[:, JOINT] ** 2)) * grown
    return push_all(OnlineIdentifier(wrong(robot)), replace(stream, tau=tau).noisy(0.01, 1e-3))


@pytest.mark.parametrize("seed", [11, 12])
def test_a_robot_that_stays_the_same_does_not_drift(seed: int) -> None:
    one = drifting(0.0, seed)
    assert one.gate.open, one.gate.reason
    assert one.events.counts["drift"] == one.events.counts["alarm"] == 0, list(one.events)


def test_an_offset_that_creeps_is_named_and_followed() -> None:
    one = drifting(0.6, 11)
    names = [event.joint for event in one.events if event.kind == "drift"]
    assert names
    assert set(names) == {one.nominal.velocity_names[JOINT]}
    assert one.gate.open, one.gate.reason
