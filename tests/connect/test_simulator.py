"""The simulated robot in a process of its own passes the test kit, and is held by its brakes
whatever becomes of its client.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator

import numpy as np
import pytest
from plant_cases import load

from thetahat.connect import sim_server
from thetahat.connect.connection import RobotState
from thetahat.connect.connection_kit import check_connection, newest
from thetahat.connect.planted_faults import PlantedFault
from thetahat.connect.sim import PlantedDifferences, SimulatedRobot
from thetahat.connect.sim_process import SimulatedConnection, SimulatorProcess
from thetahat.connect.sim_server import SimulationSetup
from thetahat.errors import MalformedInput, StorageError, UsageError

RATE = 250.0  # [Hz]
PATIENT = 1.0  # [s] of a watchdog on a machine that does other things too
STILL = 1e-3  # [rad/s]


def setup(**options: object) -> SimulationSetup:
    usual = {"engine": "own", "rate": RATE, "watchdog": PATIENT}
    return SimulationSetup(load("arm4"), **(usual | options))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def simulator() -> Iterator[SimulatorProcess]:
    running = SimulatorProcess(setup())
    yield running
    running.stop()


def in_process(mode: str, fault: PlantedFault | None = None) -> SimulatedRobot:
    robot = SimulatedRobot.of(
        load("arm4"), PlantedDifferences(), engine="own", rate=RATE, mode=mode, fault=fault
    )
    robot.start(np.zeros(4))
    return robot


@pytest.mark.parametrize("mode", ["torque", "position"])
def test_the_robot_in_this_process_passes_the_kit(mode: str) -> None:
    check_connection(lambda: in_process(mode))


def test_the_robot_in_its_own_process_passes_the_kit(simulator: SimulatorProcess) -> None:
    check_connection(lambda: SimulatedConnection(simulator.path))


def test_the_robot_that_runs_by_the_clock_passes_the_kit() -> None:
    running = SimulatorProcess(setup(clocked=True, mode="torque"))
    try:
        check_connection(lambda: SimulatedConnection(running.path))
    finally:
        running.stop()
    assert running.process.exitcode is not None, "it ends with its owner"


class Broken(SimulatedRobot):
    """A connection that breaks one promise."""

    promise = ""

    def read(self) -> RobotState | None:
        state = super().read()
        if self.promise == "finite" and state is not None:
            return RobotState(state.t, state.q * np.nan, state.dq, state.tau)
        return state

    def write(self, command: np.ndarray) -> None:
        super().write(np.zeros(4) if self.promise == "refuses" else command)

    def close(self) -> None:
        if self.promise == "twice" and self._closed:
            raise RuntimeError
        super().close()


@pytest.mark.parametrize(
    ("promise", "words"),
    [("finite", "finite numbers"), ("refuses", "must refuse it"), ("twice", "second close")],
)
def test_the_kit_finds_what_is_broken(promise: str, words: str) -> None:
    def make() -> Broken:
        robot = Broken(in_process("position").plant, rate=RATE, mode="position")
        robot.promise = promise
        return robot

    with pytest.raises(AssertionError, match=words):
        check_connection(make)


def moved(connection: SimulatedConnection, cycles: int = 200) -> np.ndarray:
    """Set the robot in motion; where it was last."""
    state = connection.read()
    assert state is not None
    start = state.q
    for k in range(cycles):
        connection.write(start + 0.3 * np.sin(2.0 * np.pi * k / RATE))
        state = connection.read() or state
    assert np.max(np.abs(state.dq)) > 0.5, "it moves"
    return state.q


def rests(path: str, near: np.ndarray) -> None:
    """The robot stands near where it was, and goes on standing."""
    again = SimulatedConnection(path)
    state = newest(again, 10.0)
    again.close()
    assert state is not None
    assert np.max(np.abs(state.dq)) < STILL
    assert np.max(np.abs(state.q - near)) < 0.1


@pytest.mark.parametrize("end", ["close", "vanish", "garbage", "not a number"])
def test_brakes_close_however_a_client_ends(simulator: SimulatorProcess, end: str) -> None:
    connection = SimulatedConnection(simulator.path)
    near = moved(connection)
    raw: socket.socket = connection._socket
    match end:
        case "close":
            connection.close()
        case "vanish":
            raw.close()
        case "garbage":
            raw.send(b"\xff" * 1000)
            assert raw.recv(100) == sim_server.ERROR
            raw.close()
        case _:
            raw.send(sim_server.WRITE + np.full(4, np.nan).tobytes())
            assert raw.recv(100) == sim_server.ERROR
            raw.close()
    rests(simulator.path, near)


@pytest.mark.parametrize("clocked", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_client_that_stalls_is_not_obeyed_again(clocked: bool) -> None:
    running = SimulatorProcess(setup(watchdog=0.05, clocked=clocked))
    try:
        connection = SimulatedConnection(running.path)
        state = newest(connection, 10.0)
        assert state is not None
        connection.write(state.q)
        time.sleep(1.0 if clocked else 4.0)
        for _ in range(50):
            connection.write(state.q + 1.0)
            last = newest(connection, 10.0)
        assert last is not None
        assert f"no command came for {50 if clocked else 2000} ms" in last.stopped
        assert np.max(np.abs(last.q - state.q)) < 0.05, "its brakes are closed"
        connection.close()
        rests(running.path, state.q)
    finally:
        running.stop()


def test_one_client_at_a_time_and_addresses_without_a_robot(
    simulator: SimulatorProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thetahat.connect.sim_process.ANSWER", 0.3)
    first = SimulatedConnection(simulator.path)
    with pytest.raises(StorageError, match="another client has it"):
        SimulatedConnection(simulator.path)
    first.close()
    with pytest.raises(StorageError, match="no simulated robot"):
        SimulatedConnection(simulator.path + "-elsewhere")


def test_what_is_no_robot_is_named(tmp_path: object) -> None:
    path = f"{tmp_path}/impostor"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen(1)
        child = os.fork()
        if child == 0:
            listener.accept()[0].send(b"\x00garbage")
            os._exit(0)
        with pytest.raises(MalformedInput, match="no simulated robot"):
            SimulatedConnection(path)
        os.waitpid(child, 0)


def test_faults_show_and_others_are_refused() -> None:
    hot = in_process("position", PlantedFault("hot", 0.1, "elbow"))
    silent = in_process("position", PlantedFault("silent", 0.1, seconds=0.2))
    blocked = in_process("position", PlantedFault("blocked", 0.1, "elbow"))
    frozen = in_process("position", PlantedFault("frozen", 0.1, "elbow"))
    seen: dict[str, list[RobotState | None]] = {}
    for name, robot in (("hot", hot), ("silent", silent), ("blocked", blocked), ("frozen", frozen)):
        seen[name] = []
        for k in range(125):
            robot.write(np.full(4, 0.6 * k / 125))
            seen[name].append(robot.read())
    assert seen["hot"][-1].temperature[3] > 45.0  # type: ignore[union-attr, index]
    assert sum(state is None for state in seen["silent"]) in (50, 51)
    assert abs(blocked.plant.state.q[3] - 0.12) < 0.05
    assert blocked.plant.state.q[2] > 0.4, "the others go on"
    told = {state.q[3] for state in seen["frozen"][30:] if state is not None}
    assert len(told) == 1
    for text in ("blocked@3", "frozen:nose@3", "loud:elbow@3", "hot:elbow", "silent:elbow@1"):
        with pytest.raises(UsageError, match="--fault"):
            PlantedFault.parse(text, load("arm4").joint_names)
    assert PlantedFault.parse("blocked:elbow@3", ("elbow",)) == PlantedFault("blocked", 3, "elbow")


def test_brakes_hold_without_motors() -> None:
    robot = in_process("torque")
    for _ in range(50):
        robot.write(np.full(4, 20.0))
        robot.read()
    robot.hold()
    at = robot.plant.state.q
    robot.plant.command(np.zeros(4))
    for _ in range(round(2.0 * RATE)):
        robot.plant.advance(1.0 / RATE)
    assert np.max(np.abs(robot.plant.state.dq)) < STILL
    assert np.max(np.abs(robot.plant.state.q - at)) < 0.2
