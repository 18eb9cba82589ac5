"""A robot behind a connection, identified while it moves; it is never commanded."""

from __future__ import annotations

import time

import live_cases as cases
import numpy as np
import pytest
from live_cases import until

import thetahat as th
from thetahat import robots
from thetahat.connect.connection import RobotState
from thetahat.errors import RefusedForSafety, UsageError
from thetahat.live.sample_sources import Connected, Settings
from thetahat.live.session import Session

RATE = 200.0  # [Hz]


class Moving:
    """A robot 10 % heavier than its file that moves by itself, and may break after some samples."""

    limits, mode, simulated = None, "read-only", False

    def __init__(self, robot: th.Robot, seconds: float, breaks: int | None = None) -> None:
        self.joints, self.breaks = robot.joint_names, breaks
        self.samples = cases.samples(robot, seconds, RATE)
        self.began, self.k, self.closed, self.written = time.monotonic(), 0, False, 0

    def read(self) -> RobotState | None:
        if self.breaks is not None and self.k >= self.breaks:
            raise RefusedForSafety("the line to the robot broke: check the cable")
        t, q, dq, tau = self.samples
        if self.k >= len(t) or (self.k + 1) / (2.0 * RATE) > time.monotonic() - self.began:
            return None
        k, self.k = self.k, self.k + 1
        if k % 50 == 7:
            return RobotState(50.0 + t[k], np.full(len(q[k]), np.nan), dq[k], tau[k])
        if k % 50 == 8:
            return RobotState(50.0 + t[k], np.zeros(100_000), dq[k], tau[k])
        return RobotState(50.0 + t[k], q[k], dq[k], tau[k])

    def write(self, command: np.ndarray) -> None:
        self.written += 1

    def close(self) -> None:
        self.closed = True


def misfit(session: Session, moving: Moving) -> float:
    """What the identified model leaves of the torques."""
    snapshot = session.shared.snapshot
    if snapshot is None or snapshot.x is None:
        return np.inf
    model = session.shared.robot.with_parameters(snapshot.x)
    t, q, dq, tau = (array[400:2000:20] for array in moving.samples)
    _, _, ddq = cases.motion(session.shared.robot, 12.0).at(t)
    error = th.inverse_dynamics(model, q, dq, ddq) - tau
    return float(np.linalg.norm(error) / np.linalg.norm(tau))


def test_a_robot_is_identified_through_a_connection_and_never_commanded() -> None:
    robot = th.load(robots.path("arm4"))
    moving = Moving(robot, 12.0)
    with Session(Connected(robot, moving, Settings(rate=6.0, window=12), rate=RATE)) as session:
        until(lambda: moving.k >= 12 * RATE, "the end of the motion")
        until(lambda: session.shared.status.dropped >= 96, "samples that cannot be")
        # 10 % without identification
        until(lambda: misfit(session, moving) < 0.05, "a model that predicts the torques")
    assert moving.closed
    assert not moving.written


def test_a_line_that_breaks_is_told_on_the_page() -> None:
    robot = th.load(robots.path("arm4"))
    moving = Moving(robot, 4.0, breaks=100)
    with Session(Connected(robot, moving, Settings(), rate=RATE)) as session:
        until(lambda: session.shared.ended, "the end")
        assert "check the cable" in session.shared.failure
    assert moving.closed


def test_another_robots_connection_is_refused() -> None:
    arm4, arm7 = (th.load(robots.path(name)) for name in ("arm4", "arm7"))
    with pytest.raises(UsageError, match="give the file of the connected robot"):
        Connected(arm7, Moving(arm4, 2.0), Settings())
