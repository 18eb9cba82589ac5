"""Recordings as MCAP: read back by another package, against their schemas, and by our own reader."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mcap", reason="the extra 'foxglove' is not installed")

from mcap.reader import make_reader
from plant_cases import load

from thetahat.data.formats.write_mcap import DEFINITIONS, JointLog, write_mcap
from thetahat.data.log import read_log
from thetahat.errors import UsageError

ROWS = 400


def made(joints: tuple[str, ...], *, planned: bool = True) -> JointLog:
    rng, n = np.random.default_rng(23), len(joints)
    t = 5.0 + np.arange(ROWS) / 500.0
    q = np.sin(t[:, None] + np.arange(n))
    dq, tau = rng.normal(size=(2, ROWS, n))
    runs = ["1-ramp"] * 100 + ["1-motion"] * (ROWS - 100)
    return JointLog(joints, t, q, dq, tau, q + 0.01 if planned else None, runs)


def test_messages_are_what_was_written_by_another_packages_reading(tmp_path: Path) -> None:
    typesys = pytest.importorskip("rosbags.typesys", reason="the extra 'ros' is not installed")
    store = typesys.get_typestore(typesys.Stores.EMPTY)
    log = made(("a", "shoulder_joint", "überlang"))
    path = write_mcap(tmp_path / "log.mcap", log)
    counts: dict[str, int] = {}
    with path.open("rb") as file:
        reader = make_reader(file, validate_crcs=True)
        assert reader.get_header().profile == "ros2"
        for schema, channel, message in reader.iter_messages():
            assert schema is not None
            assert schema.encoding == "ros2msg"
            # the schema in the file is what the bytes are read by
            types = typesys.get_types_from_msg(schema.data.decode(), schema.name)
            store.register({k: v for k, v in types.items() if k not in store.fielddefs})
            got = store.deserialize_cdr(message.data, schema.name)
            assert bytes(store.serialize_cdr(got, schema.name)) == message.data
            k = counts.get(channel.topic, 0)
            counts[channel.topic] = k + 1
            if channel.topic == "/joint_states":
                assert tuple(got.name) == log.joints
                assert np.array_equal(got.position, log.q[k])
                assert np.array_equal(got.velocity, log.dq[k])
                assert np.array_equal(got.effort, log.tau[k])
                assert got.header.stamp.sec * 10**9 + got.header.stamp.nanosec == message.log_time
            elif channel.topic == "/joint_commands":
                assert log.wanted is not None
                assert np.array_equal(got.points[0].positions, log.wanted[k])
            else:
                assert got.data == ["1-ramp", "1-motion"][k]
    assert counts == {"/joint_states": ROWS, "/joint_commands": ROWS, "/run": 2}


def test_definitions_are_those_that_ros_2_ships() -> None:
    typesys = pytest.importorskip("rosbags.typesys", reason="the extra 'ros' is not installed")
    store = typesys.get_typestore(typesys.Stores.ROS2_HUMBLE)
    for name, text in DEFINITIONS.items():
        for each, (_, fields) in typesys.get_types_from_msg(text, name).items():
            assert store.fielddefs[each][1] == fields


def test_our_reader_takes_it_for_a_log(tmp_path: Path) -> None:
    robot = load("arm4")
    log = made(robot.joint_names)
    read = read_log(write_mcap(tmp_path / "log.mcap", log), robot)
    (chunk,) = read.read()
    assert np.array_equal(chunk.q, log.q)
    assert np.array_equal(chunk.tau, log.tau)
    assert np.allclose(np.diff(chunk.t), 1.0 / 500.0, atol=1e-8)


def test_nothing_is_left_of_a_log_that_does_not_fit(tmp_path: Path) -> None:
    log = made(("a", "b"))
    with pytest.raises(UsageError, match="give a row per stamp"):
        write_mcap(tmp_path / "log.mcap", JointLog(("a",), log.t, log.q, log.dq, log.tau))
    assert not list(tmp_path.iterdir())
