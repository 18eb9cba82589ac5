"""Motions as files that robots play: tables, ROS 2 JointTrajectory messages, URScript programs.

csv, parquet, npz      columns t, q.<joint>, dq.<joint>, ddq.<joint>
ros2-yaml, ros2-json   a trajectory_msgs/msg/JointTrajectory with positions, velocities and
                       accelerations, as `ros2 topic pub` and an action goal take it
urscript               a program that moves to the start, then follows the positions by servoj
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from thetahat.errors import UsageError, known
from thetahat.excite.trajectory import Motion
from thetahat.files import write_atomically
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind

FORMATS = {  # by the ending of a file
    ".csv": "csv",
    ".parquet": "parquet",
    ".npz": "npz",
    ".yaml": "ros2-yaml",
    ".yml": "ros2-yaml",
    ".json": "ros2-json",
    ".script": "urscript",
    ".urscript": "urscript",
}
TABLES = ("csv", "parquet", "npz")
# [Hz] where no rate is given: controllers interpolate between the points of a JointTrajectory, and
# 8 ms are a cycle of all UR controllers, or four of them
RATES = {"ros2-yaml": 100.0, "ros2-json": 100.0, "urscript": 125.0}
TABLE_RATE = 1000.0  # [Hz]
LOOKAHEAD, GAIN = 0.1, 300  # [s], of servoj: the manual's own defaults
TO_START = (0.5, 0.3)  # [rad/s², rad/s] of the move to the start
UR_JOINTS = 6
UR_FASTEST = 500.0  # [Hz]


def format_of(path: str | os.PathLike[str], name: str | None = None) -> str:
    """Return the format of a file: the one that is named, or that of its ending."""
    formats = tuple(dict.fromkeys(FORMATS.values()))
    if name is not None:
        if name not in formats:
            raise UsageError(f"format is {name!r}; formats: {known(formats)}")
        return name
    ending = Path(path).suffix.lower()
    if ending not in FORMATS:
        raise UsageError(
            f"{os.fspath(path)!r} has the unknown ending {ending!r}; write {known(FORMATS)}"
        )
    return FORMATS[ending]


def default_rate(kind: str) -> float:
    """Return the rate that a format is written with [Hz]."""
    return RATES.get(kind, TABLE_RATE)


def check_playable(robot: Robot, kind: str, rate: float) -> None:
    """Refuse a robot, or a rate [Hz], that a format cannot hold."""
    if kind != "urscript":
        return
    joints = robot.tree.independent
    if len(joints) != UR_JOINTS or any(node.kind is not JointKind.REVOLUTE for node in joints):
        raise UsageError(
            f"robot {robot.name!r} has {len(joints)} joints; URScript moves six that turn: write a"
            " table or a JointTrajectory instead"
        )
    if rate > UR_FASTEST * (1.0 + 1e-9):
        raise UsageError(
            f"rate is {rate:g} Hz; a URScript controller takes {UR_FASTEST:g} Hz at most"
        )


def save_motion(motion: Motion, path: str | os.PathLike[str], robot: Robot, kind: str) -> Path:
    """Write a motion, whole or not at all."""
    path = Path(path)
    match kind:
        case "ros2-yaml":
            return write_atomically(path, joint_trajectory_yaml(motion))
        case "ros2-json":
            return write_atomically(path, joint_trajectory_json(motion))
        case "urscript":
            return write_atomically(path, urscript(motion, robot))
    if path.suffix.lower() != f".{kind}":
        raise UsageError(f"{os.fspath(path)!r} is to be a table; give it the ending .{kind}")
    return motion.save(path)


# -- ROS 2 -----------------------------------------------------------------------------------------


def _points(motion: Motion) -> list[dict[str, str]]:
    """Fields of every JointTrajectoryPoint, as text that YAML and JSON read alike."""
    out = []
    for t, *values in zip(motion.t, motion.q, motion.dq, motion.ddq, strict=True):
        nanoseconds = round(float(t) * 1e9)
        second, rest = divmod(nanoseconds, 1_000_000_000)
        rows = (f"[{', '.join(f'{x:.9f}' for x in row)}]" for row in values)
        fields = dict(zip(("positions", "velocities", "accelerations"), rows, strict=True))
        time = f'{{"sec": {second}, "nanosec": {rest}}}'
        out.append({**fields, "effort": "[]", "time_from_start": time})
    return out


_HEADER = '{"stamp": {"sec": 0, "nanosec": 0}, "frame_id": ""}'


def joint_trajectory_yaml(motion: Motion) -> str:
    """Return the message as YAML."""
    lines = [
        f"header: {_HEADER}",
        f"joint_names: {json.dumps(list(motion.joint_names))}",
        "points:",
    ]
    for point in _points(motion):
        first = True
        for name, value in point.items():
            lines.append(f"{'- ' if first else '  '}{name}: {value}")
            first = False
    return "\n".join(lines) + "\n"


def joint_trajectory_json(motion: Motion) -> str:
    """Return the message as JSON."""
    points = ",\n  ".join(
        "{" + ", ".join(f'"{name}": {value}' for name, value in point.items()) + "}"
        for point in _points(motion)
    )
    return (
        f'{{"header": {_HEADER},\n "joint_names": {json.dumps(list(motion.joint_names))},\n'
        f' "points": [\n  {points}\n ]}}\n'
    )


# -- Universal Robots ------------------------------------------------------------------------------


def urscript(motion: Motion, robot: Robot) -> str:
    """Return a program for an arm of six joints, base to wrist 3 [URScript]."""
    step = float(motion.t[1] - motion.t[0])
    check_playable(robot, "urscript", 1.0 / step)
    rows = [f"[{', '.join(f'{x:.6f}' for x in q)}]" for q in motion.q]
    acceleration, speed = TO_START
    follow = [f"  servoj({row}, 0, 0, {step:.6g}, {LOOKAHEAD:g}, {GAIN})" for row in rows[1:]]
    return "\n".join(
        [
            f"# {len(rows)} positions in {motion.t[-1]:g} s, joints in the order:",
            *(f"#   {name!a}" for name in motion.joint_names),
            "# The way to the start is not checked for obstacles: be near it before you run this.",
            "def thetahat_motion():",
            f"  movej({rows[0]}, a={acceleration:g}, v={speed:g})",
            "  sleep(1.0)",
            *follow,
            "  stopj(2.0)",
            "end",
            "thetahat_motion()",
            "",
        ]
    )
