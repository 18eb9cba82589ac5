"""Motions as files that robots play: what others read of them is the motion."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import yaml
from excite_cases import one_of_each, shipped
from rosbags.typesys import Stores, get_typestore

from thetahat.errors import UsageError
from thetahat.excite.trajectories import Fourier
from thetahat.excite.trajectory import Motion
from thetahat.excite.trajectory_files import (
    default_rate,
    format_of,
    joint_trajectory_json,
    joint_trajectory_yaml,
    save_motion,
    urscript,
)

ROUNDING = 5e-10  # of nine decimals


@pytest.fixture(scope="module")
def motion() -> Motion:
    return one_of_each()["fourier"].sampled(15.0)


@pytest.mark.parametrize("kind", ["yaml", "json"])
def test_a_joint_trajectory_is_the_message_of_ros(motion: Motion, kind: str) -> None:
    """Its fields are those of the message definition that rosbags ships, and its numbers those of
    the motion.
    """
    if kind == "yaml":
        message = yaml.safe_load(joint_trajectory_yaml(motion))
    else:
        message = json.loads(joint_trajectory_json(motion))
    types = get_typestore(Stores.ROS2_HUMBLE)
    for name, value in (
        ("trajectory_msgs/msg/JointTrajectory", message),
        ("trajectory_msgs/msg/JointTrajectoryPoint", message["points"][0]),
        ("std_msgs/msg/Header", message["header"]),
        ("builtin_interfaces/msg/Duration", message["points"][0]["time_from_start"]),
    ):
        fields = [field for field, _ in types.fielddefs[name][1]]
        assert list(value) == fields
    assert message["joint_names"] == list(motion.joint_names)
    points = message["points"]
    for field, expected in (
        ("positions", motion.q),
        ("velocities", motion.dq),
        ("accelerations", motion.ddq),
    ):
        assert np.allclose([point[field] for point in points], expected, rtol=0, atol=ROUNDING)
    times = [point["time_from_start"] for point in points]
    assert np.allclose([t["sec"] + 1e-9 * t["nanosec"] for t in times], motion.t, atol=1e-9)
    assert all(isinstance(t["sec"], int) and 0 <= t["nanosec"] < 10**9 for t in times)


def test_a_urscript_program_follows_the_motion() -> None:
    from thetahat.model.lock_joints import lock

    robot = lock(shipped("arm7"), ["joint7"])
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 6, 3))
    played = Fourier.at_rest(robot, 4.0, centre=np.zeros(6), a=a, b=b).sampled(125.0)
    program = urscript(played, robot)
    lines = [line.strip() for line in program.splitlines()]
    assert [line.split("(")[0] for line in lines if line.startswith(("def", "movej", "stopj"))] == [
        *("def thetahat_motion", "movej", "stopj")
    ]
    rows = [re.match(r"servoj\(\[(.*?)\], 0, 0, (.*?), 0\.1, 300\)", line) for line in lines]
    found = np.array([[float(x) for x in row[1].split(",")] for row in rows if row])
    assert np.allclose(found, played.q[1:], rtol=0, atol=5e-7)
    assert {row[2] for row in rows if row} == {"0.008"}
    start = re.search(r"movej\(\[(.*?)\]", program)
    assert start is not None
    assert np.allclose([float(x) for x in start[1].split(",")], played.q[0], atol=5e-7)
    with pytest.raises(UsageError, match="500 Hz at most"):
        urscript(Fourier.at_rest(robot, 4.0, centre=np.zeros(6), a=a, b=b).sampled(1000.0), robot)


def test_formats_are_those_of_the_ending_or_the_one_that_is_named(
    motion: Motion, tmp_path: Path
) -> None:
    robot = shipped()
    for name, kind in {"m.csv": "csv", "m.YAML": "ros2-yaml", "m.script": "urscript"}.items():
        assert format_of(name) == kind
    assert format_of("m.txt", "ros2-json") == "ros2-json"
    assert [default_rate(kind) for kind in ("csv", "ros2-json", "urscript")] == [1000, 100, 125]
    with pytest.raises(UsageError, match=r"unknown ending '\.txt'"):
        format_of("m.txt")
    with pytest.raises(UsageError, match="format is 'rosbag'"):
        format_of("m.txt", "rosbag")
    with pytest.raises(UsageError, match="six that turn"):
        save_motion(motion, tmp_path / "m.script", robot, "urscript")
    assert not list(tmp_path.iterdir())
    with pytest.raises(UsageError, match=r"ending \.csv"):
        save_motion(motion, tmp_path / "m.txt", robot, "csv")
    assert save_motion(motion, tmp_path / "m.csv", robot, "csv").is_file()
