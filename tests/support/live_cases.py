"""Sessions and servers of the live page for tests, and clients that are not ours: http.client,
sockets and the websockets library.
"""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from plant_cases import realistic

import thetahat as th
from thetahat import robots
from thetahat.control.model_switch import ModelSwitch
from thetahat.excite.trajectories import Sinusoids
from thetahat.online.config import FilterConfig
from thetahat.online.identifier import OnlineIdentifier
from thetahat.plant.perturb import perturb
from thetahat.plant.plant import OwnPlant
from thetahat.studies.closed_loop import ClosedLoop, Experiment

for name in ("starlette", "uvicorn", "websockets"):
    pytest.importorskip(name, reason=f'the live page needs {name} (pip install -e ".[web]")')

from websockets.sync.client import ClientConnection, connect  # noqa: E402

from thetahat.live.sample_sources import Listen, Settings, Source, Study  # noqa: E402
from thetahat.live.server import Server  # noqa: E402
from thetahat.live.session import Session  # noqa: E402
from thetahat.live.viewers import Viewer  # noqa: E402

TOKEN = "a-token-for-tests"
PATIENCE = 30.0  # [s] on a busy machine


def motion(robot: th.Robot, seconds: float) -> Sinusoids:
    """Two sinusoids per joint."""
    rng = np.random.default_rng(0)
    frequency = np.column_stack(
        [rng.permutation(np.linspace(0.2, 0.9, robot.nv)) for _ in range(2)]
    )
    phase = rng.uniform(0.0, 2.0 * np.pi, (robot.nv, 2))
    return Sinusoids(
        robot.joint_names,
        seconds,
        np.zeros(robot.nv),
        np.full((robot.nv, 2), 0.3),
        frequency,
        phase,
        ramp=0.5,
    )


def experiment(
    robot: str = "arm4",
    *,
    seconds: float = 60.0,
    rate: float = 500.0,
    window: int = 24,
    updates: float = 12.0,
) -> Experiment:
    """A closed loop whose buffer fills within two seconds."""
    nominal = th.load(robots.path(robot))
    truth = perturb(nominal, seed=0)
    identifier = OnlineIdentifier(
        nominal.with_drive(viscous=True, coulomb=True, offset=True),
        None,
        updates,
        window,
        filter=FilterConfig(held_torque=True),
    )
    controller = ModelSwitch(identifier, lambda model: th.ComputedTorque(model, kp=400.0, kd=40.0))
    plant = OwnPlant(truth, realism=realistic(torque_noise=0.01))
    loop = ClosedLoop(plant, motion(nominal, seconds), controller, identifier, rate=rate)
    return Experiment(nominal, identifier.nominal, identifier, controller, loop)


def study(robot: str = "arm4", **options: Any) -> Study:
    return Study("trial", experiment(robot, **options))


def listener(robot: str = "arm4") -> Listen:
    return Listen(th.load(robots.path(robot)), Settings(rate=6.0, window=12), rate=500.0)


def samples(robot: th.Robot, seconds: float, rate: float) -> tuple[np.ndarray, ...]:
    """t, q, dq, tau of a robot that is 10 % heavier."""
    t = np.arange(round(seconds * rate)) / rate
    q, dq, ddq = motion(robot, seconds).at(t)
    tau = th.inverse_dynamics(robot.with_parameters(1.1 * robot.theta), q, dq, ddq)
    return t, q, dq, tau


def state(
    robot: th.Robot, t: float, q: np.ndarray, dq: np.ndarray | None, tau: np.ndarray
) -> dict[str, Any]:
    """As ROS's JointState."""
    velocity = [] if dq is None else dq.tolist()
    return {
        "t": t,
        "name": list(robot.joint_names),
        "position": q.tolist(),
        "velocity": velocity,
        "effort": tau.tolist(),
    }


@contextmanager
def served(source: Source, *, speed: float = 1.0, port: int = 0) -> Iterator[Server]:
    """A running session and its server."""
    session = Session(source, speed=speed)
    with Server(session, token=TOKEN, port=port) as server, session:
        yield server


def get(
    server: Server,
    path: str,
    *,
    headers: dict[str, str] | None = None,
    method: str = "GET",
    token: bool = True,
) -> tuple[int, bytes, dict]:
    """(status, body, headers) of a request."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    try:
        joined = f"{path}{'&' if '?' in path else '?'}token={TOKEN}" if token else path
        connection.request(method, joined, headers=headers or {})
        answer = connection.getresponse()
        return (
            answer.status,
            answer.read(),
            {name.lower(): value for name, value in answer.getheaders()},
        )
    finally:
        connection.close()


def viewer(server: Server, path: str = "/live", **options: Any) -> ClientConnection:
    """A WebSocket with the token."""
    return connect(
        f"ws://{server.name}{path}?token={TOKEN}",
        max_size=None,
        compression=None,
        open_timeout=PATIENCE,
        close_timeout=1.0,
        **options,
    )


def strict(text: str) -> dict[str, Any]:
    """JSON as browsers take it: no NaN."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} was sent")

    return json.loads(text, parse_constant=refuse)


def receive(
    client: ClientConnection,
    kind: str,
    *,
    patience: float = PATIENCE,
    seen: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """The next message of a kind."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        message = strict(client.recv(timeout=end - time.monotonic()))
        if seen is not None:
            seen.append(message)
        if message["type"] == kind:
            return message
    raise AssertionError(f"no {kind} came within {patience:.0f} s")


def drained(client: ClientConnection) -> None:
    """Read to the connection's end."""
    while True:
        client.recv(timeout=PATIENCE)


def until(true: Callable[[], bool], what: str, *, patience: float = PATIENCE) -> None:
    end = time.monotonic() + patience
    while not true():
        assert time.monotonic() < end, f"waited {patience:.0f} s for: {what}"
        time.sleep(0.01)


def raw(server: Server, data: bytes, *, patience: float = 5.0) -> bytes:
    """What comes back for bytes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=patience) as connection:
        connection.sendall(data)
        try:
            return connection.recv(65536)
        except TimeoutError:
            return b""


def resident() -> int:
    """[bytes] of this process in memory."""
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * 4096


def program(*arguments: str) -> subprocess.Popen[str]:
    """`thetahat` in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "thetahat.cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def taken(viewer: Viewer) -> list[dict[str, Any]]:
    out = []
    while (message := viewer.take()) is not None:
        out.append(strict(message))
    return out


class Reader:
    """A viewer that reads everything, in a thread, and says what it drew."""

    def __init__(self, session: Session) -> None:
        self.viewer, self.messages, self._over = session.viewers.attach(), [], threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._over.wait(0.005):
            for message in taken(self.viewer):
                self.messages.append(message)
                if message["type"] == "frame":
                    self.viewer.acknowledge(message["seq"])

    def all(self, kind: str) -> list[dict[str, Any]]:
        return [message for message in list(self.messages) if message["type"] == kind]

    @property
    def state(self) -> dict[str, Any]:
        found = [
            message for message in list(self.messages) if message["type"] in ("frame", "hello")
        ]
        return found[-1]["state"] if found else {"gate": {}}

    def close(self) -> None:
        self._over.set()
        self._thread.join()
