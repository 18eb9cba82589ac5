"""The wire against Fast DDS, ROS 2's default middleware: a small robot in C++ that publishes joint
states and obeys, with messages that are written there once more and laid out by Fast CDR.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("cyclonedds", reason="the extra 'ros2' is not installed: no wheel here")

from fastdds_peer import COMMANDS, STATES, FastPeer, built
from plant_cases import load
from ros2_node import domain_number

from thetahat.connect.connection_kit import check_connection, newest
from thetahat.connect.record_run import RecordRun, RecordSettings
from thetahat.connect.ros2 import Ros2Address, Ros2Connection
from thetahat.connect.screening import Screen
from thetahat.excite.trajectories import Moves

JOINTS = ["shoulder", "elbow", "wrist", "a joint — with a long name"]
WANTED = np.array([0.5, -0.25, 1.0, 1e-9])


@pytest.fixture(scope="module", autouse=True)
def _program() -> None:
    built()


def connected(address: Ros2Address, joints: list[str] = JOINTS) -> Ros2Connection:
    return Ros2Connection(
        joints, address, domain=domain_number() + 50, loopback=True, patience=60.0
    )


def obeyed(connection: Ros2Connection, wanted: np.ndarray) -> bool:
    """Whether the robot comes to tell what it was commanded, and nothing else on the way."""
    until = time.monotonic() + 30.0
    while time.monotonic() < until:
        connection.write(wanted)
        state = newest(connection, 5.0)
        assert state is not None
        told = state.tau if connection.mode == "torque" else state.q
        if np.array_equal(told, wanted):
            return True
        assert not np.any(told), "all joints at once, or none"
    return False


@pytest.mark.parametrize("kind", ["position", "effort", "trajectory", "dynamic", "dynamic-effort"])
def test_commands_of_every_kind_arrive_and_the_robot_tells_what_it_did(kind: str) -> None:
    address = Ros2Address(STATES, kind, COMMANDS)
    with FastPeer(domain_number() + 50, kind.partition("-")[0], JOINTS):
        connection = connected(address)
        assert obeyed(connection, WANTED)
        connection.close()


@pytest.mark.parametrize("kind", ["trajectory", "dynamic"])
def test_messages_that_name_joints_reach_them_in_any_order(kind: str) -> None:
    with FastPeer(domain_number() + 50, kind, JOINTS):
        connection = connected(Ros2Address(STATES, kind, COMMANDS), JOINTS[::-1])
        assert obeyed(connection, WANTED[::-1])
        connection.close()


def test_the_robot_passes_the_kit() -> None:
    with FastPeer(domain_number() + 50, "position", JOINTS):
        check_connection(lambda: connected(Ros2Address(STATES, "position", COMMANDS)))


def test_a_motion_is_played_and_recorded(tmp_path: Path) -> None:
    robot, rate = load("arm4"), 100.0
    begin = np.array([0.2, 0.4, -0.3, 0.9])
    points = begin + np.array([[0.0], [0.3], [0.0]])
    motion = Moves(robot.joint_names, points, np.full(2, 0.8), 0.0).sampled(rate)
    names = list(robot.joint_names)
    with FastPeer(domain_number() + 50, "trajectory", names, rate=500.0):
        connection = connected(Ros2Address(STATES, "trajectory", COMMANDS), names)
        while connection.read() is not None or newest(connection, 5.0) is None:
            pass
        settings = RecordSettings(rate=rate, warm_up=0.0)
        screen = Screen.of(robot, floor=None)
        run = RecordRun(robot, connection, motion, screen, tmp_path / "log.csv", settings)
        recording = run.run()
    assert recording.complete, recording.ended
    moved = np.ptp(recording.recorded.q, axis=0)
    assert np.all(moved > 0.25), "it went where it was commanded to"
    late = np.abs(recording.recorded.q - recording.recorded.cmd)
    assert np.median(late) < 0.02
