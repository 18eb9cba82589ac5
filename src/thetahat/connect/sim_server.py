"""The simulated robot's own process: it obeys one client at a time over a local socket, and closes
its brakes where no command comes for the time of its watchdog, whatever became of the client.
Where time passes by commands alone, it stands still meanwhile, and brakes close after 2 s.

Messages (one packet each, doubles in the machine's order):

    server → client   JSON once: joints, mode, rate, clocked, watchdog
                      then per sample: t, stopped (0 or 1), q, dq, tau, temperature
                      or nothing but its kind, where a sample stays away
    client → server   READ | WRITE + n doubles | HOLD

Without a clock (`clocked` false) time passes by WRITE alone, and every message is answered by one.
With it time passes by itself, samples are sent as they come, and nothing is answered.
"""

from __future__ import annotations

import json
import multiprocessing.connection
import select
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from thetahat.connect.connection import RobotState
from thetahat.connect.planted_faults import PlantedFault
from thetahat.connect.sim import PlantedDifferences, SimulatedRobot
from thetahat.errors import ThetahatError
from thetahat.model.robot import Robot

READ, WRITE, HOLD, STATE, NOTHING, ERROR = (bytes([k]) for k in range(6))
WATCHDOG = 0.05  # [s]
# [s] by the machine's clock, where the robot's time stands still between commands, so that its
# watchdog would wait for ever
STANDSTILL = 2.0
SETTLE = 0.5  # [s] that brakes get to stop the robot
LARGEST = 1 << 16  # bytes of a message
LINGER = 60.0  # [s] at most without a client, where nobody owns the process
PATIENCE = 0.005  # [s] of one wait
Watched = socket.socket | multiprocessing.connection.Connection


@dataclass(frozen=True, eq=False)
class Scene:
    """How a simulation begins, and what goes wrong."""

    start: np.ndarray | None = None  # (nv,) [rad or m]; None: zero, as far as the ranges allow
    fault: PlantedFault | None = None


@dataclass(frozen=True, eq=False)
class SimulationSetup:
    """What a simulator process is made of."""

    robot: Robot
    differences: PlantedDifferences = field(default_factory=PlantedDifferences)
    engine: str = "mujoco"
    rate: float = 1000.0  # [Hz]
    mode: str = "position"
    clocked: bool = False  # whether time passes by itself, as it does in the world
    watchdog: float = WATCHDOG  # [s] of the robot's time without a command: the brakes close
    scene: Scene = field(default_factory=Scene)

    @property
    def patience(self) -> float:
        """[s] by the machine's clock without a command, after which the brakes close."""
        return self.watchdog if self.clocked else max(self.watchdog, STANDSTILL)

    def simulated(self) -> SimulatedRobot:
        """The robot, held by its brakes."""
        made = SimulatedRobot.of(
            self.robot,
            self.differences,
            engine=self.engine,
            rate=self.rate,
            mode=self.mode,
            fault=self.scene.fault,
        )
        made.start(parked(self.robot) if self.scene.start is None else self.scene.start)
        made.hold()
        return made


def parked(robot: Robot) -> np.ndarray:
    """Zero, or the middle of the range where that leaves zero out, (nv,)."""
    q = []
    for node in robot.tree.independent:
        low, high = node.limits.lower, node.limits.upper
        inside = low <= 0.0 <= high or not np.isfinite(low + high)
        q.append(0.0 if inside else 0.5 * (low + high))
    return np.array(q)


def serve(
    setup: SimulationSetup, path: str, owner: multiprocessing.connection.Connection | None
) -> None:
    """Be the robot until the owner says so or is gone; the owner is told when it can be used."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        try:
            robot = setup.simulated()
            listener.bind(path)
            listener.listen(1)
            listener.settimeout(1.0)  # for a client that was there and is gone
        except (ThetahatError, OSError) as error:
            if owner is not None:
                owner.send(str(error))
            return
        if owner is not None:
            owner.send("")
        _Server(setup, robot, listener, owner).run()


class _Server:
    def __init__(
        self,
        setup: SimulationSetup,
        robot: SimulatedRobot,
        listener: socket.socket,
        owner: multiprocessing.connection.Connection | None,
    ) -> None:
        self.setup, self.robot, self.listener, self.owner = setup, robot, listener, owner
        self.client: socket.socket | None = None
        self.held, self.tripped = True, False  # brakes; whether by the watchdog
        self.silence = 0.0  # [s] waited since the last command, by waits that lasted as asked
        self.alone = time.monotonic()  # since when without a client
        self.next = time.monotonic()  # tick, where a clock drives it

    def run(self) -> None:
        """Until its owner is gone, and nobody came back."""
        while self.owner is not None or time.monotonic() - self.alone < LINGER:
            began = time.monotonic()
            if self.client is not None:
                self.alone = began
            waits = PATIENCE
            if self.setup.clocked:
                waits = min(PATIENCE, max(0.0, self.next - began))
            ready = self._ready(waits)
            if self.owner in ready:  # it asks for the end, or is gone
                break
            if self.listener in ready:
                self._accept()
            if self.client is not None and self.client in ready:
                self._obey()
            else:  # a machine too busy to run this process is no client's silence
                self.silence += min(time.monotonic() - began, 0.2 * self.setup.patience)
            if not self.held and self.silence > self.setup.patience:
                self.tripped = True
                self._hold()
            if self.setup.clocked and time.monotonic() >= self.next:
                self._tick()
        self._hold()
        if self.client is not None:
            self.client.close()

    def _ready(self, timeout: float) -> list[Watched]:
        # one client at a time; the next waits until it is gone
        who = self.listener if self.client is None else self.client
        watched: list[Watched] = [who] if self.owner is None else [who, self.owner]
        return select.select(watched, [], [], timeout)[0]

    def _accept(self) -> None:
        try:
            sock, _ = self.listener.accept()
        except OSError:
            return
        self.client, self.tripped, self.silence = sock, False, 0.0
        sock.settimeout(1.0)
        setup = self.setup
        hello = {
            "joints": list(setup.robot.joint_names),
            "mode": setup.mode,
            "rate": setup.rate,
            "clocked": setup.clocked,
            "watchdog": setup.patience,
        }
        self._send(json.dumps(hello).encode())

    def _obey(self) -> None:
        assert self.client is not None
        try:
            message = self.client.recv(LARGEST)
        except OSError:
            message = b""
        if not message:  # the client is gone, however it went
            self.client.close()
            self.client = None
            self._hold()
            return
        kind, rest = message[:1], message[1:]
        count = self.setup.robot.nv
        answer = True
        if kind == WRITE and len(rest) == 8 * count:
            answer = self._command(np.frombuffer(rest))
        elif kind == HOLD and not rest:
            self._hold()
        elif kind != READ or rest:
            self._hold()
            self._send(ERROR)
            return
        if answer and (not self.setup.clocked or kind == HOLD):
            self._tell(self.robot.read() if kind == WRITE else self.robot.newest)

    def _command(self, values: np.ndarray) -> bool:
        """Take a command; one that is not finite, or that comes after the watchdog acted, is not
        obeyed.
        """
        if not np.all(np.isfinite(values)):
            self._hold()
            self._send(ERROR)
            return False
        self.silence = 0.0
        if self.tripped:
            if not self.setup.clocked:
                self.robot.advance()
            return True
        if self.held:
            self.robot.release()
            self.held = False
        if self.setup.clocked:
            self.robot.command(values)
        else:
            self.robot.write(values)
        return True

    def _tick(self) -> None:
        """One period of the clock; a process that is late lets time pass without catching up."""
        self.robot.advance()
        self.next = max(self.next + 1.0 / self.setup.rate, time.monotonic() - 0.1)
        if self.client is not None:
            self._tell(self.robot.read())

    def _hold(self) -> None:
        """Close the brakes; without a clock, at once until it stands."""
        if self.held:
            return
        self.held = True
        self.robot.hold()
        if not self.setup.clocked:
            for _ in range(round(SETTLE * self.setup.rate)):
                self.robot.advance()
                self.robot.read()  # sensors derive speeds from one sample to the next

    def _tell(self, sample: RobotState | None) -> None:
        if sample is None:
            self._send(NOTHING)
            return
        assert sample.temperature is not None
        head = np.array([sample.t, float(self.tripped)])
        arrays = (head, sample.q, sample.dq, sample.tau, sample.temperature)
        self._send(STATE + np.concatenate(arrays).tobytes())

    def _send(self, data: bytes) -> None:
        if self.client is not None:
            # a client that does not read misses samples, and is found silent
            if self.setup.clocked and not select.select([], [self.client], [], 0.0)[1]:
                return
            with suppress(OSError):
                self.client.send(data)
