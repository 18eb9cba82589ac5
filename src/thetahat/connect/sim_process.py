"""A connection to a simulated robot that runs in a process of its own."""

from __future__ import annotations

import json
import multiprocessing
import os
import select
import shutil
import socket
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from thetahat.child_process import spared_interrupts
from thetahat.connect import sim_server
from thetahat.connect.connection import RobotState, checked_command
from thetahat.connect.sim_server import SimulationSetup
from thetahat.errors import MalformedInput, RefusedForSafety, StorageError, UsageError

STARTING = 120.0  # [s] that a process may take to start, kernels to compile included
ANSWER = 5.0  # [s] that a simulator may take for an answer


class SimulatorProcess:
    """A simulated robot in another process, reached through a socket in a private folder."""

    def __init__(self, setup: SimulationSetup) -> None:
        self._folder = tempfile.mkdtemp(prefix="thetahat-sim-")
        self.path = str(Path(self._folder) / "robot")
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=sim_server.serve, args=(setup, self.path, theirs), daemon=True
        )
        with spared_interrupts():  # it is for the client, who brings the robot to rest
            self.process.start()
        theirs.close()
        try:
            if not self._pipe.poll(STARTING):
                raise StorageError(
                    f"the simulator did not start within {STARTING:g} s; try again on a machine"
                    " that is less busy"
                )
            error = self._pipe.recv()
        except EOFError:
            error = "its process ended"
        except BaseException:
            self.stop()
            raise
        if error:
            self.stop()
            raise UsageError(f"the simulator could not be started: {error}")

    def stop(self) -> None:
        """End the process."""
        with suppress(OSError):
            self._pipe.send("stop")
        self.process.join(2.0)
        if self.process.is_alive():
            self.process.terminate()
            self.process.join(5.0)
        if self.process.is_alive():
            self.process.kill()
            self.process.join(5.0)
        self._pipe.close()
        shutil.rmtree(self._folder, ignore_errors=True)


@dataclass(frozen=True)
class SimulatorLink:
    """A simulated robot at a socket's path, or one that is started, where there is none."""

    path: str = ""

    def open(self, setup: SimulationSetup, commands: str = "") -> SimulatedConnection:
        """Connect; one that runs already takes what it takes."""
        if self.path:
            return SimulatedConnection(self.path)
        mode = commands or setup.mode
        return SimulatedConnection(SimulatorProcess(replace(setup, mode=mode)))


class SimulatedConnection:
    """A `Connection` to a simulator, given by its process or by its socket's path.

    The robot is held by its brakes before the first command, after `close`, and wherever no
    command came for the simulator's watchdog; it does not obey again on this connection then.
    """

    limits = None

    def __init__(self, simulator: SimulatorProcess | str) -> None:
        self._owned = None if isinstance(simulator, str) else simulator
        path = simulator if isinstance(simulator, str) else simulator.path
        self._closed = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(ANSWER)
        try:
            self._socket.connect(path)
            hello = json.loads(self._socket.recv(sim_server.LARGEST) or b"{}")
            self.joints = tuple(str(name) for name in hello["joints"])
            self.mode, self.rate = str(hello["mode"]), float(hello["rate"])
            self.watchdog, clocked = float(hello["watchdog"]), bool(hello["clocked"])
        except TimeoutError:
            self._fail()
            raise StorageError(
                f"the simulated robot at {path} did not answer within {ANSWER:g} s; another client"
                " has it: end that one first"
            ) from None
        except OSError as error:
            self._fail()
            raise StorageError(
                f"there is no simulated robot at {path}: {os.strerror(error.errno or 0)}; start"
                " one, or leave the address out"
            ) from None
        except (ValueError, KeyError, TypeError):
            self._fail()
            raise MalformedInput(
                f"what answers at {path} is no simulated robot; check the address"
            ) from None
        self.simulated = not clocked
        self._newest: RobotState | None = None
        if self.simulated:
            self._newest = self._asked(sim_server.READ)

    def read(self) -> RobotState | None:
        """The newest sample, once."""
        if self._closed:
            raise UsageError("the connection is closed; make a new one")
        if not self.simulated:
            self._drain()
        sample, self._newest = self._newest, None
        return sample

    def write(self, command: np.ndarray) -> None:
        """Command torques or positions; without a clock one period passes."""
        message = sim_server.WRITE + checked_command(command, self, closed=self._closed).tobytes()
        if self.simulated:
            self._newest = self._asked(message)
        else:
            self._sent(message)

    def close(self) -> None:
        """Let the brakes close, and let go."""
        if self._closed:
            return
        self._closed = True
        with suppress(OSError, RefusedForSafety):
            self._sent(sim_server.HOLD)
            until = time.monotonic() + ANSWER
            while time.monotonic() < until:  # samples that were under way come first
                message = self._socket.recv(sim_server.LARGEST)
                if self.simulated or not message:
                    break
                if message[:1] == sim_server.STATE and not np.any(self._decoded(message).dq):
                    break
                until = min(until, time.monotonic() + 0.5)
        self._fail()

    def _fail(self) -> None:
        self._socket.close()
        if self._owned is not None:
            self._owned.stop()

    # -- messages ----------------------------------------------------------------------------------

    def _sent(self, message: bytes) -> None:
        try:
            self._socket.send(message)
        except OSError as error:
            raise RefusedForSafety(
                f"the simulated robot is gone ({error.strerror or error}); nothing is commanded"
            ) from None

    def _asked(self, message: bytes) -> RobotState | None:
        self._sent(message)
        try:
            answer = self._socket.recv(sim_server.LARGEST)
        except OSError:
            answer = b""
        if not answer:
            raise RefusedForSafety(
                f"the simulated robot did not answer within {ANSWER:g} s; nothing is commanded"
            )
        return self._decoded(answer) if answer[:1] == sim_server.STATE else None

    def _drain(self) -> None:
        """Take all samples that came, and keep the newest."""
        while select.select([self._socket], [], [], 0.0)[0]:
            try:
                message = self._socket.recv(sim_server.LARGEST)
            except OSError:
                message = b""
            if not message:
                raise RefusedForSafety("the simulated robot is gone; nothing is commanded")
            if message[:1] == sim_server.STATE:
                self._newest = self._decoded(message)

    def _decoded(self, message: bytes) -> RobotState:
        n = len(self.joints)
        if len(message) != 1 + 8 * (2 + 4 * n):
            raise MalformedInput(
                f"the simulated robot sent {len(message)} bytes for {n} joints; it is of another"
                " version"
            )
        numbers = np.frombuffer(message, offset=1)
        q, dq, tau, temperature = numbers[2:].reshape(4, n).copy()
        stopped = ""
        if numbers[1]:
            stopped = f"no command came for {1e3 * self.watchdog:g} ms, so its brakes closed"
        return RobotState(float(numbers[0]), q, dq, tau, temperature, stopped)
