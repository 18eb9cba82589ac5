"""A node in a process of its own that publishes joint states on loopback, and does as it is told:
the other side of the tests of ROS 2.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from typing import Any

from thetahat.connect.ros2 import Domain

TOPIC, COMMANDS = "/thetahat_test/joint_states", "/thetahat_test/commands"


def publish(
    domain: int, joints: list[str], kind: str, rate: float, seconds: float, obey: bool
) -> None:
    """Publish joint states for some time; with `obey` the robot is where it is commanded."""
    from thetahat.connect import ros2_messages as messages

    participant = Domain(domain, loopback=True)
    types = {"foreign": messages.Float64MultiArray, "dynamic": messages.DynamicJointState}
    writer = participant.writer(TOPIC, types.get(kind, messages.JointState))
    reader = participant.reader(COMMANDS, messages.Float64MultiArray, 100) if obey else None
    n, q, k = len(joints), [0.1 * j for j in range(len(joints))], 0
    begin = due = time.monotonic()
    while time.monotonic() - begin < seconds:
        if reader is not None:
            for command in reader.take(N=100):
                if len(getattr(command, "data", ())) == n:
                    q = list(command.data)
        writer.write(message(messages, kind, joints, q, k))
        k += 1
        due += 1.0 / rate
        time.sleep(max(0.0, due - time.monotonic()))


def message(messages: Any, kind: str, joints: list[str], q: list[float], k: int) -> Any:
    n, now = len(joints), time.time_ns()
    header = messages.Header(messages.Time(now // 10**9, now % 10**9), "")
    velocity, effort = [0.0] * n, [float(k)] * n
    match kind:
        case "foreign":
            return messages.Float64MultiArray(data=[1.0])
        case "dynamic":
            names = ["temperature", "effort", "position", "velocity"]
            rows = [messages.InterfaceValue(names, [40.0 + j, k, q[j], 0.0]) for j in range(n)]
            return messages.DynamicJointState(header, joints[::-1], rows[::-1])
        case "not a number":
            q = [float("nan")] * n if k > 100 else q
        case "huge":
            if k > 100:
                joints, q = [f"j{i}" for i in range(20_000)], [0.0] * 20_000
        case "short":
            effort = effort[:1] if k > 100 else effort
        case "renamed":
            joints = [f"other_{name}" for name in joints] if k > 100 else joints
        case "reversed":
            return messages.JointState(header, joints[::-1], q[::-1], velocity, effort)
    made = messages.JointState(header, joints, q, velocity, effort)
    if kind == "no text" and k > 100:  # other garbage does not pass the middleware
        sent, name = made.serialize(use_version_2=False), joints[0].encode()
        made.serialize = lambda **_: sent.replace(name, b"\xff" * len(name))
    return made


class Node:
    """The node's process: `with Node(7, joints) as node`."""

    def __init__(
        self,
        domain: int,
        joints: list[str],
        kind: str = "",
        *,
        rate: float = 200.0,
        seconds: float = 60.0,
        obey: bool = False,
    ) -> None:
        self._process = multiprocessing.get_context("spawn").Process(
            target=publish, args=(domain, joints, kind, rate, seconds, obey), daemon=True
        )

    def __enter__(self) -> Node:
        self._process.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.join(30.0)


def domain_number() -> int:
    """A domain of this process's own, so that tests beside it are not heard."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    return 20 + int(worker) % 40
