"""Unitree: low-level state and commands over DDS, against a robot on loopback."""

from __future__ import annotations

import ctypes
import gc
import re
import struct
import time
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cyclonedds", reason="the extra 'ros2' is not installed: no wheel here")

from data_paths import EXAMPLES, SHARED, needs_examples, needs_shared
from ros2_node import domain_number
from unitree_node import GoCommand, HgCommand, UnitreeNode, slow_checksum

from thetahat.connect import unitree_messages as messages
from thetahat.connect.connection_kit import check_connection, newest
from thetahat.connect.unitree import (
    ROBOTS,
    UnitreeAddress,
    UnitreeConnection,
    motor_numbers,
)
from thetahat.errors import RefusedForSafety, UsageError
from thetahat.model.io.load import load

GO2 = tuple(
    f"{leg}_{part}_joint" for leg in ("FL", "FR", "RL", "RR") for part in ("hip", "thigh", "calf")
)  # the order of the robot's file is another than that of its motors
ARM = ("waist_yaw_joint", "left_elbow_joint", "right_wrist_yaw_joint")


def connected(joints: tuple[str, ...], robot: str, **options: Any) -> UnitreeConnection:
    usual = {"domain": domain_number(), "loopback": True, "patience": 60.0}
    return UnitreeConnection(joints, UnitreeAddress(robot), **(usual | options))


def followed(connection: UnitreeConnection, wanted: np.ndarray) -> np.ndarray:
    """Where the robot is after it was commanded there."""
    until, at = time.monotonic() + 20.0, np.full(len(wanted), np.nan)
    while time.monotonic() < until and not np.allclose(at, wanted, atol=1e-6):
        connection.write(wanted)
        state = newest(connection, 5.0)
        at = at if state is None else state.q
    return at


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thetahat.connect.unitree.LOOK", 0.3)


@pytest.mark.usefixtures("look")
def test_a_quadruped_passes_the_kit_and_follows_by_name() -> None:
    with UnitreeNode(domain_number(), "Go"):
        check_connection(lambda: connected(GO2, "go2"))
        check_connection(lambda: connected(GO2, "go2", commands="position"))
        connection = connected(GO2, "go2", commands="position")
        state = newest(connection, 10.0)
        assert state is not None
        numbers = [ROBOTS["go2"].motors.index(joint) for joint in GO2]
        assert numbers[:4] == [3, 4, 5, 0]
        assert np.allclose(state.tau, 0.5 * np.array(numbers))
        wanted = state.q + 0.1 + 0.01 * np.arange(12)
        at = followed(connection, wanted)
        assert np.allclose(at, wanted, atol=1e-6), "checksum and layout are as the robot has them"
        with pytest.raises(RefusedForSafety, match="begin a motion where the robot stands"):
            connection.write(wanted + 1.0)
        connection.close()


@pytest.mark.usefixtures("look")
def test_a_humanoid_by_torques_and_another_programs_commands() -> None:
    with UnitreeNode(domain_number(), "Hg"):
        connection = connected(ARM, "g1", commands="torque")
        until, at = time.monotonic() + 20.0, np.zeros(3)
        wanted = np.array([1.5, -2.0, 0.25])
        while time.monotonic() < until and not np.allclose(at, wanted):
            connection.write(wanted)
            state = newest(connection, 5.0)
            at = at if state is None else state.tau
        assert np.allclose(at, wanted)
        connection.close()
    with (
        UnitreeNode(domain_number(), "Hg", "driven"),
        pytest.raises(RefusedForSafety, match="two would drive the robot"),
    ):
        connected(ARM, "g1", commands="position")


@pytest.mark.parametrize("kind", ["not a number", pytest.param("burning", marks=pytest.mark.slow)])
def test_nonsense_is_no_sample(kind: str) -> None:
    with UnitreeNode(domain_number(), "Go", kind):
        connection = connected(GO2, "go2")
        until = time.monotonic() + 30.0
        while time.monotonic() < until and connection.rejected <= 5:
            state = connection.read()
            assert state is None or state.is_valid(12)
        connection.close()
    assert connection.rejected > 5


def test_what_is_wrong_is_named(look: None) -> None:
    # domains of their own: a robot that was killed is advertised for a while
    first, second, third = (domain_number() + k for k in (60, 140, 180))
    with (
        UnitreeNode(first, "Hg"),
        pytest.raises(RefusedForSafety, match="published with type unitree_hg"),
    ):
        connected(GO2, "go2", patience=2.5, domain=first)
    with (
        UnitreeNode(second, "Go", "short"),
        pytest.raises(RefusedForSafety, match="no message of it can be read"),
    ):
        connected(GO2, "go2", patience=2.5, domain=second)
    with pytest.raises(RefusedForSafety, match="CYCLONEDDS_URI"):
        connected(GO2, "go2", patience=0.2, domain=third)
    with pytest.raises(UsageError, match="go2 has no motor for arm_joint"):
        connected((*GO2, "arm_joint"), "go2")
    for text in ("", "go3", "go2,kp=x", "go2,kp=-1", "go2,ki=1"):
        with pytest.raises(UsageError, match="robots: go2, g1, h1"):
            UnitreeAddress.parse(text)
    assert UnitreeAddress.parse("g1,kp=20,kd=1") == UnitreeAddress("g1", 20.0, 1.0)


def test_the_checksum_is_the_published_one() -> None:
    assert messages.crc32_mpeg2(b"123456789") == 0x0376E6E7, "the catalogue's check value"
    assert ctypes.sizeof(GoCommand) == 812
    assert ctypes.sizeof(HgCommand) == 1004
    rng = np.random.default_rng(23)
    for kind in (messages.GoLowCmd, messages.HgLowCmd):
        for _ in range(3):
            command = kind()
            for motor in command.motor_cmd:
                motor.mode = int(rng.integers(0, 256))
                motor.q, motor.dq, motor.tau = rng.normal(size=3).astype(np.float32).tolist()
            assert messages.checksum(command) == slow_checksum(command)


@pytest.mark.parametrize("name", ["GoLowState", "GoLowCmd", "HgLowState", "HgLowCmd"])
def test_bytes_are_the_middlewares(name: str) -> None:
    """Written and read at once, a message is what the middleware's own serialiser makes of it."""
    kind, rng = getattr(messages, name), np.random.default_rng(7)
    template = messages.CDR[kind]
    for _ in range(20):
        body = rng.integers(0, 0x3F, struct.calcsize(template), dtype=np.uint8).tobytes()
        data = b"\0\1\0\0" + body
        whole = kind.__idl__.deserialize(data, has_header=True, use_version_2=None)
        assert whole.serialize(use_version_2=False) == kind.__idl__.serialize(whole, False)
        read = kind.deserialize(whole.serialize(use_version_2=False))
        assert list(messages.numbers(read)) == list(messages.numbers(whole))
        if "State" in name:
            assert messages.number(read, "tick") == whole.tick
            motors = messages.motors(read)
            assert motors["q"][:, 0].tolist() == [motor.q for motor in whole.motor_state]
            assert motors["dq"][:, 0].tolist() == [motor.dq for motor in whole.motor_state]
        with pytest.raises(struct.error if "State" in name else Exception):
            kind.deserialize(data[:100])


def test_every_motor_drives_one_joint() -> None:
    counts = {"go2": 12, "g1": 29, "h1": 19}
    for name, robot in ROBOTS.items():
        joints = [joint for joint in robot.motors if joint]
        assert len(set(joints)) == len(joints) == counts[name]


@needs_examples
@pytest.mark.parametrize("name", ["go2", "g1"])
def test_joints_are_those_of_the_makers_files(name: str) -> None:
    paths = {
        "go2": "go2_description/urdf/go2.urdf",
        "g1": "g1_description/urdf/g1_29dof_rev_1_0.urdf",
    }
    robot = load(EXAMPLES / paths[name])
    assert set(ROBOTS[name].motors) == set(robot.joint_names)


@needs_shared
def test_joints_of_another_peoples_file_without_the_ending() -> None:
    folder = SHARED / "models" / "mjcf_stripped" / "mujoco_menagerie" / "unitree_h1"
    joints = re.findall(r'<joint [^>]*name="([^"]*)"', (folder / "h1.xml").read_text())
    assert len(joints) == 19
    assert sorted(motor_numbers(tuple(joints), "h1")) == [k for k in range(20) if k != 9]
    motors = ROBOTS["h1"].motors
    assert motor_numbers(("torso", "left_knee"), "h1") == [motors.index("torso_joint"), 5]


def test_one_robot_after_another_in_one_process(look: None) -> None:
    for family, joints, name in (("Hg", ARM, "g1"), ("Go", GO2, "go2")):
        number = domain_number() + 100  # that nobody was in before
        with UnitreeNode(number, family):
            kept = connected(joints, name, domain=number)
            kept.close()
            connection = connected(joints, name, domain=number)
            del kept  # what it held may be given to others by now
            gc.collect()
            assert newest(connection, 5.0) is not None
            connection.close()
