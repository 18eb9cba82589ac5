"""Universal Robots: RTDE on loopback, against a fake controller which another client can read."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_paths import example_robot
from fake_ur import FakeUr

from thetahat.connect import rtde_protocol as rtde
from thetahat.connect.connection_kit import check_connection, newest
from thetahat.connect.record_run import RecordRun, RecordSettings
from thetahat.connect.screening import Screen
from thetahat.connect.ur import UrAddress, UrConnection
from thetahat.data.log import read_log
from thetahat.errors import MalformedInput, RefusedForSafety, ThetahatError, UsageError
from thetahat.excite.trajectories import Moves
from thetahat.model.io.load import load

JOINTS = ("pan", "lift", "elbow", "wrist_1", "wrist_2", "wrist_3")


def connected(robot: FakeUr, *, constants: tuple[float, ...] = (), **options: Any) -> UrConnection:
    address = UrAddress("127.0.0.1", robot.port, robot.program_port, constants)
    return UrConnection(JOINTS, address, **({"patience": 3.0} | options))


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watchdog that a busy machine does not set off."""
    monkeypatch.setattr("thetahat.connect.ur.WATCHDOG", 0.3)


@pytest.mark.parametrize("commands", [False, True])
def test_a_controller_passes_the_kit(commands: bool) -> None:
    with FakeUr() as robot:
        check_connection(lambda: connected(robot, commands=commands))
        assert len(robot.programs) == 2 * commands, "reading starts no program"


READER = """
import json, sys, time
import rtde_receive
names = ["timestamp", "actual_q", "actual_qd", "actual_current", "robot_mode", "runtime_state"]
robot = rtde_receive.RTDEReceiveInterface("127.0.0.1", 125.0, names, False, False)
first = robot.getTimestamp()
time.sleep(0.1)
print(json.dumps([robot.getTimestamp() - first, robot.getActualQ(), robot.getActualCurrent(),
                  robot.getRobotMode()]))
"""


def test_the_fake_is_read_by_another_client() -> None:
    """Its samples are those that ur_rtde, which nobody here wrote, takes for a controller's."""
    pytest.importorskip("rtde_receive", reason="the package ur-rtde is not installed")
    try:  # the other client knows no other port
        socket.create_server(("127.0.0.1", 30004)).close()
    except OSError:
        pytest.skip("port 30004 is in use")
    with FakeUr(rtde=30004) as robot:
        # in a process of its own: it keeps the interpreter to itself while it waits
        done = subprocess.run(
            [sys.executable, "-c", READER], capture_output=True, text=True, timeout=20, check=False
        )
        assert done.returncode == 0, done.stderr
        passed, q, current, mode = json.loads(done.stdout.splitlines()[-1])
        assert 0.05 < passed < 5.0
        assert q == robot.q.tolist()
        assert current == robot.current.tolist()
        assert mode == 7


def test_samples_are_the_controllers() -> None:
    with FakeUr() as robot, closing(connected(robot)) as connection:
        state = newest(connection, 3.0)
        assert state is not None
        assert np.array_equal(state.q, robot.q)
        assert np.array_equal(state.tau, robot.tau)
        assert state.temperature is not None
        assert state.stopped == ""
        robot.safety = 3
        time.sleep(0.1)
        state = newest(connection, 3.0)
        assert state is not None
        assert "protective stop" in state.stopped


def test_currents_become_torques_where_the_controller_has_none() -> None:
    constants = (13.0, 13.0, 9.5, 9.5, 9.5, 9.0)
    with FakeUr(without=("actual_current_as_torque",)) as robot:
        with pytest.raises(UsageError, match="constants=K/K/K/K/K/K"):
            connected(robot)
        with closing(connected(robot, constants=constants)) as connection:
            state = newest(connection, 3.0)
        assert state is not None
        assert np.allclose(state.tau, robot.current * constants, atol=1e-12)


def follow(connection: UrConnection, to: np.ndarray, seconds: float = 0.4) -> None:
    state = newest(connection, 3.0)
    assert state is not None
    begin, start = time.monotonic(), state.q
    while (part := (time.monotonic() - begin) / seconds) < 1.0:
        connection.write(start + part * (to - start))
        connection.read()
        time.sleep(2e-3)
    connection.write(to)
    time.sleep(0.02)


def test_commands_are_followed_and_the_robot_stops_by_itself_without_them() -> None:
    to = np.array([0.2, 0.0, 0.1, 0.2, 0.5, 0.4])
    with FakeUr() as robot, closing(connected(robot, commands=True)) as connection:
        assert not robot.moved, "nothing moves before the first command"
        follow(connection, to)
        assert np.array_equal(robot.q, to), "it is where it was commanded to"
        assert robot.runtime == 2
        until = time.monotonic() + 10.0
        while robot.runtime == 2 and time.monotonic() < until:
            time.sleep(0.05)
        count = len(robot.moved)
        assert robot.runtime == 1, "the program's own watchdog ended it"
        connection.write(to)
        time.sleep(0.1)
        assert len(robot.moved) == count, "and it obeys no more"
        state = newest(connection, 3.0)
        assert state is not None
        assert "has ended" in state.stopped


def test_closing_ends_the_program_and_a_jump_is_not_sent() -> None:
    with FakeUr() as robot:
        connection = connected(robot, commands=True)
        follow(connection, robot.q + 0.05)
        at = robot.q.copy()
        with pytest.raises(RefusedForSafety, match="begin a motion where the robot stands"):
            connection.write(at + 1.0)
        connection.close()
        until = time.monotonic() + 2.0
        while robot.runtime == 2 and time.monotonic() < until:
            time.sleep(0.005)
        assert robot.runtime == 1
        assert np.array_equal(robot.q, at)


BROKEN = {  # on connecting, and what the sentence says
    "garbage": "no RTDE server",
    "web page": "no RTDE server",
    "silent": "did not answer",
    "old": "refuses request 'V'",
    "fewer": "when asked for",
    "no text": "when asked for",
    "other types": "gives variables of types",
    "in use": "in use by another program",
    "local control": "set the controller to remote",
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_peer_that_is_no_controller_is_named(kind: str) -> None:
    with FakeUr(kind) as robot:
        with pytest.raises(ThetahatError, match=BROKEN[kind]):
            connected(robot, commands=True, patience=0.5)
        assert not robot.moved


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("half packets", "it was closed at the other end"),
        ("huge", "no RTDE server"),
        ("not a number", "could not be"),
        ("stuck clock", "sent nothing that can be believed"),
        ("other recipe", "sent nothing that can be believed"),
        ("hangs", "sent nothing that can be believed"),
    ],
)
def test_a_controller_that_breaks_ends_in_a_sentence(kind: str, words: str) -> None:
    with FakeUr(kind) as robot, closing(connected(robot, patience=0.7)) as connection:
        begin = time.monotonic()
        with pytest.raises(RefusedForSafety, match=words):  # noqa: PT012
            while time.monotonic() - begin < 10.0:
                state = connection.read()
                assert state is None or state.is_valid(6)
                time.sleep(1e-3)
        assert not robot.moved


def test_messages_and_pieces_of_packets_are_read_over() -> None:
    with FakeUr("message") as robot, closing(connected(robot)) as connection:
        assert newest(connection, 3.0) is not None
    whole = rtde.packet(rtde.DATA, b"12345") + rtde.packet(rtde.MESSAGE, b"")
    buffer = rtde.PacketBuffer()
    pieces = [each for k in range(len(whole)) for each in buffer.push(whole[k : k + 1])]
    assert pieces == [(rtde.DATA, b"12345"), (rtde.MESSAGE, b"")]


def test_random_bytes_never_raise_anything_else() -> None:
    rng = np.random.default_rng(5)
    for _ in range(2000):
        buffer = rtde.PacketBuffer()
        try:
            for _ in buffer.push(rng.bytes(int(rng.integers(1, 200)))):
                pass
        except MalformedInput:
            pass
        try:
            recipe = rtde.Recipe.read(("a", "b"), rng.bytes(int(rng.integers(1, 30))))
            recipe.unpack(rng.bytes(20))
        except MalformedInput:
            pass


def test_addresses() -> None:
    assert UrAddress.parse("10.0.0.3") == UrAddress("10.0.0.3")
    assert UrAddress.parse("h,port=5,program=6,constants=1/2/3/4/5/6") == UrAddress(
        "h", 5, 6, (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
    )
    for text in (
        "",
        "h,port=x",
        "h,constants=1/2",
        "h,wish=1",
        "h,constants=0/1/1/1/1/1",
        "h,port=0",
    ):
        with pytest.raises(UsageError, match=r"give ur:HOST"):
            UrAddress.parse(text)
    with pytest.raises(UsageError, match="has 6 joints"):
        UrConnection(JOINTS[:4], UrAddress("127.0.0.1"))
    with pytest.raises(UsageError, match="no controller answers"):
        UrConnection(JOINTS, UrAddress("127.0.0.1", 1), patience=1.0)


def test_a_motion_is_played_and_recorded(tmp_path: Path) -> None:
    robot = load(example_robot("ur5"))
    begin = np.array([0.3, -1.2, 1.0, -0.5, 0.4, 0.2])
    points = begin + 0.15 * np.array([np.zeros(6), np.ones(6), np.zeros(6)])
    motion = Moves(robot.joint_names, points, np.full(2, 0.6), 0.0).sampled(125.0)
    log = tmp_path / "log.csv"
    settings = RecordSettings(rate=125.0, warm_up=0.0)
    with FakeUr() as fake:
        fake.q = begin + 0.05
        address = UrAddress("127.0.0.1", fake.port, fake.program_port)
        connection = UrConnection(robot.joint_names, address, commands=True)
        screen = Screen.of(robot, floor=None)
        recording = RecordRun(robot, connection, motion, screen, log, settings).run()
        assert recording.complete, recording.ended
        assert np.max(np.abs(fake.q - begin)) < 1e-3, "it is where the motion ends"
        swept = np.max(fake.moved, axis=0)
        assert np.max(np.abs(swept - (begin + 0.15))) < 0.01
    rows = np.array([name.endswith("motion") for name in recording.recorded.seg])
    late = np.abs(recording.recorded.q[rows] - recording.recorded.cmd[rows])
    assert np.max(late) < 0.05, "it follows"
    assert read_log(log, robot).rows > 150
