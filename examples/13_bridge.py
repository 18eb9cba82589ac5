"""Feed a robot's joint states to the live page: the bridge is the ten lines of `bridge`.

    thetahat watch listen arm7
    python examples/13_bridge.py "ws://127.0.0.1:8765/joint-states?token=…"

The second line takes the address that the first one prints. A real robot would be read in `states`;
here an arm that is 10 % heavier than its file says stands in for it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

import thetahat as th
from thetahat import robots

RATE = 500.0  # [Hz]


def bridge(address: str, states: Iterator[dict]) -> int:
    """Send every state as a frame until the page is gone; print what it objects to."""
    count = 0
    with suppress(ConnectionClosed), connect(address) as socket:
        for state in states:
            socket.send(json.dumps(state))
            count += 1
            with suppress(TimeoutError):
                print(socket.recv(timeout=0))
    return count


def states(seconds: float) -> Iterator[dict]:
    """What a robot's driver would give: t, name, position, velocity, effort, the fields of ROS's
    JointState.
    """
    robot = th.load(robots.path("arm7"))
    truth = robot.with_parameters(1.1 * robot.theta)
    t = np.arange(round(seconds * RATE)) / RATE
    w, phase = 2.0 * np.pi * np.linspace(0.15, 0.5, robot.nv), np.arange(robot.nv)
    x = w * t[:, None] + phase
    q, dq, ddq = 0.6 * np.sin(x), 0.6 * w * np.cos(x), -0.6 * w**2 * np.sin(x)
    tau = th.inverse_dynamics(truth, q, dq, ddq)
    began = time.monotonic()
    for k in range(len(t)):
        time.sleep(max(0.0, began + t[k] - time.monotonic()))
        yield {
            "t": t[k],
            "name": list(robot.joint_names),
            "position": q[k].tolist(),
            "velocity": dq[k].tolist(),
            "effort": tau[k].tolist(),
        }


def main() -> None:
    if len(sys.argv) < 2:
        raise SystemExit(
            "give the address that `thetahat watch listen arm7` prints, such as"
            ' "ws://127.0.0.1:8765/joint-states?token=…"'
        )
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 30.0
    print(f"sent {bridge(sys.argv[1], states(seconds))} samples")


if __name__ == "__main__":
    main()
