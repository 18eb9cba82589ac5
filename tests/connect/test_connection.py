"""A connection is anything with joints, read, write, limits and close."""

from __future__ import annotations

import numpy as np
import pytest
from plant_cases import load

from thetahat.connect.connection import Connection
from thetahat.connect.control_run import ControlRun, ControlSettings
from thetahat.connect.sim import PlantedDifferences, SimulatedRobot
from thetahat.control.controller import HOLD
from thetahat.control.online_control import Measured
from thetahat.errors import UsageError
from thetahat.excite.trajectories import tick_tock

RATE = 500.0  # [Hz]


class Silent:
    """A robot whose samples stop coming after some cycles; commands are kept."""

    simulated = True

    def __init__(self, inner: SimulatedRobot, cycles: int) -> None:
        self.inner, self.cycles, self.reads = inner, cycles, 0
        self.joints, self.limits = inner.joints, np.full(4, 70.0)
        self.written: list[np.ndarray] = []

    def read(self) -> Measured | None:
        self.reads += 1
        sample = self.inner.read()
        return sample if self.reads <= self.cycles else None

    def write(self, tau: np.ndarray) -> None:
        self.written.append(tau.copy())
        self.inner.write(tau)

    def close(self) -> None:
        self.inner.close()


def made(cycles: int, **options: float) -> tuple[ControlRun, Silent]:
    robot = load("arm4")
    inner = SimulatedRobot.of(robot, PlantedDifferences(), engine="own", rate=RATE)
    connection: Connection = Silent(inner, cycles)
    motion = tick_tock(robot, np.zeros(4), np.full(4, 0.3), time=1.0)
    run = ControlRun(robot, connection, motion, ControlSettings(rate=RATE, **options))
    inner.start(run.wanted(0.0)[0])
    return run, connection


def test_samples_that_stop_coming_are_bridged_then_the_robot_is_held_and_the_run_ends() -> None:
    run, robot = made(100, duration=2.0)
    result = run.run()
    assert result.report is not None
    assert "20 samples in a row are missing" in result.report.reason
    held = round(HOLD * RATE)
    last = robot.written[99]
    assert all(np.array_equal(tau, last) for tau in robot.written[100 : 100 + held])
    assert not np.array_equal(robot.written[100 + held + 5], last), "faded by then"
    assert np.all(np.abs(np.array(robot.written)) <= 70.0), "the connection's own limits"


def test_the_same_run_cycle_by_cycle_is_the_same() -> None:
    whole, _ = made(10_000, duration=1.0)
    stepped, _ = made(10_000, duration=1.0)
    result = whole.run()
    for _ in stepped.cycles():
        pass
    assert np.array_equal(result.tracking.error, stepped.result().tracking.error)
    assert np.allclose(result.tracking.t, stepped.result().tracking.t, atol=1e-9)


def test_the_motion_begins_anew_when_it_is_over() -> None:
    run, _ = made(10, duration=5.0)
    for t in (0.3, 1.1, 1.9):
        for now, later in zip(run.wanted(t), run.wanted(t + 2.0), strict=True):
            assert np.allclose(now, later, atol=1e-9)


def test_another_robots_connection_is_refused_and_a_closed_one_writes_nothing() -> None:
    robot, other = load("arm4"), load("arm7")
    connection = SimulatedRobot.of(other, PlantedDifferences(), engine="own")
    motion = tick_tock(robot, np.zeros(4), np.full(4, 0.3), time=1.0)
    with pytest.raises(UsageError, match="give the file of the connected robot"):
        ControlRun(robot, connection, motion, ControlSettings())
    connection.close()
    with pytest.raises(UsageError, match="closed"):
        connection.write(np.zeros(7))
