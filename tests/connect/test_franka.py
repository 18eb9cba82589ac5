"""Franka: against a fake in the place of its maker's library, whose names are that library's."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from fake_franka import Arm, library

from thetahat.connect.connection_kit import check_connection, newest
from thetahat.connect.franka import FrankaAddress, FrankaConnection
from thetahat.errors import MissingExtra, RefusedForSafety, UsageError

JOINTS = tuple(f"panda_joint{k}" for k in range(1, 8))


@pytest.fixture
def arm(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Arm:
    made = Arm(getattr(request, "param", ""))
    monkeypatch.setitem(sys.modules, "pylibfranka", library(made))
    return made


def connected(commands: str = "", **options: Any) -> FrankaConnection:
    return FrankaConnection(JOINTS, FrankaAddress("172.16.0.2"), commands=commands, **options)


def play(connection: FrankaConnection, commands: Any, seconds: float) -> None:
    begin = time.monotonic()
    while (t := time.monotonic() - begin) < seconds:
        connection.write(commands(t))
        connection.read()
        time.sleep(2e-3)


@pytest.mark.parametrize("commands", ["", "position", "torque"])
def test_an_arm_passes_the_kit(arm: Arm, commands: str) -> None:
    check_connection(lambda: connected(commands))
    assert bool(arm.sent) == bool(commands)
    assert not arm.moving


def test_positions_are_approached(arm: Arm) -> None:
    with closing(connected("position")) as connection:
        start, to = arm.q.copy(), arm.q + np.array([0.2, -0.2, 0.1, 0.1, -0.1, 0.2, 0.1])
        play(connection, lambda t: start + min(1.0, t / 0.6) * (to - start), 1.5)
        assert np.max(np.abs(arm.q - to)) < 0.02
        with pytest.raises(RefusedForSafety, match="begin a motion where the robot stands"):
            connection.write(to + 1.0)
        time.sleep(0.3)
        assert np.max(np.abs(arm.q - to)) < 0.02, "held without commands"


def test_torques_are_sent_without_gravity_and_the_arm_is_held_when_they_stop(arm: Arm) -> None:
    with closing(connected("torque")) as connection:
        push = np.array([3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.2])  # reached in steps that the arm takes
        play(connection, lambda t: arm.gravity() + push, 0.3)
        assert np.allclose(arm.sent[-1], push, atol=1e-9)
        assert arm.dq[6] > 0.1
        time.sleep(0.8)
        at = arm.q.copy()
        time.sleep(0.2)
        assert np.max(np.abs(arm.q - at)) < 1e-3
        assert np.max(np.abs(arm.dq)) < 0.01


@pytest.mark.parametrize(
    ("arm", "words"),
    [
        ("vanishes", "UDP receive: Timeout"),
        ("not a number", "not finite"),
        ("huge", "another size"),
    ],
    indirect=["arm"],
)
@pytest.mark.parametrize("commands", ["", "position"])
def test_an_arm_that_breaks_ends_in_a_sentence(arm: Arm, words: str, commands: str) -> None:
    def follow(connection: FrankaConnection) -> None:
        while time.monotonic() - begin < 10.0:
            state = connection.read()
            assert state is None or state.is_valid(7)
            if commands and state is not None:
                connection.write(state.q)
            time.sleep(1e-3)

    begin = time.monotonic()
    with closing(connected(commands)) as connection, pytest.raises(RefusedForSafety, match=words):
        follow(connection)
    count = len(arm.sent)
    time.sleep(0.05)
    assert len(arm.sent) == count, "nothing is commanded after it"


@pytest.mark.parametrize("arm", ["reflex"], indirect=True)
def test_a_reflex_is_told(arm: Arm) -> None:
    with closing(connected()) as connection:
        time.sleep(0.5)
        state = newest(connection, 3.0)
    assert state is not None
    assert "joint_reflex" in state.stopped


@pytest.mark.parametrize("arm", ["absent"], indirect=True)
def test_an_arm_that_is_not_there_and_other_joints(arm: Arm) -> None:
    with pytest.raises(UsageError, match="no arm answers at 172"):
        connected()
    with pytest.raises(UsageError, match="has 7 joints"):
        FrankaConnection((*JOINTS, "finger"), FrankaAddress("h"))
    for text in ("", "a,b"):
        with pytest.raises(UsageError, match="give franka:HOST"):
            FrankaAddress.parse(text)


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pylibfranka", None)
    with pytest.raises(MissingExtra, match=r"thetahat\[franka\]"):
        connected()


def test_the_fakes_names_are_the_librarys() -> None:
    real = pytest.importorskip("pylibfranka", reason="the extra 'franka' is not installed")
    fake = library(Arm())
    for kind in ("Robot", "Model", "ActiveControlBase", "Torques", "RealtimeConfig"):
        names = [name for name in vars(getattr(fake, kind)) if not name.startswith("_")]
        missing = [name for name in names if not hasattr(getattr(real, kind), name)]
        assert not missing, f"{kind} has no {missing}"
    for name in vars(Arm().state()):
        assert hasattr(real.RobotState, name)
    torques = real.Torques([1.0] * 7)
    torques.motion_finished = True
    assert list(torques.tau_J) == [1.0] * 7
    assert issubclass(real.ControlException, RuntimeError)
    with pytest.raises(UsageError, match="no arm answers at 127"):
        FrankaConnection(JOINTS, FrankaAddress("127.0.0.1"))
