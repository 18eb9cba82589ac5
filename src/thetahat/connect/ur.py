"""A robot of Universal Robots, by the protocol RTDE: the standard library suffices.

Samples are the controller's: positions, speeds, currents as torques, temperatures. Positions are
commanded through a program of ours (`PROGRAM`) that is sent to the controller, reads them from
input registers, and stops the robot by itself where none come. Torques are not commanded:
URScript's `direct_torque` adds gravity by the controller's own model.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from thetahat.connect import rtde_protocol as rtde
from thetahat.connect.connection import RobotState, checked_command, near_command
from thetahat.errors import MalformedInput, RefusedForSafety, UsageError, known

if TYPE_CHECKING:
    from thetahat.connect.sim_server import SimulationSetup

JOINTS = 6
PORT, PROGRAM_PORT = 30004, 30002  # RTDE, secondary client interface
PATIENCE = 5.0  # [s] for an answer
FAST, SLOW = 500.0, 125.0  # [Hz] of e-Series and newer, of CB3
TORQUE, CURRENT = "actual_current_as_torque", "actual_current"
ALIVE = "output_int_register_24"  # number of the program that runs
OUTPUTS = {  # and their types
    "timestamp": "DOUBLE",
    "actual_q": "VECTOR6D",
    "actual_qd": "VECTOR6D",
    "joint_temperatures": "VECTOR6D",
    "robot_mode": "INT32",
    "safety_mode": "INT32",
    "runtime_state": "UINT32",
    ALIVE: "INT32",
}
INPUTS = {"input_int_register_24": "INT32"} | {
    f"input_double_register_{24 + k}": "DOUBLE" for k in range(JOINTS)
}
RUNNING, PLAYING = 7, 2  # robot_mode, runtime_state
NORMAL = (1, 2)  # safety_mode: normal, reduced
SAFETY = {
    3: "protective stop",
    4: "recovery mode",
    5: "safeguard stop",
    6: "emergency stop of the system",
    7: "emergency stop of the robot",
    8: "safety violation",
    9: "safety fault",
}
WATCHDOG = 0.05  # [s] without a command
# the first integer register counts commands; a negative number ends the program
PROGRAM = """def thetahat_follow():
  dt = get_steptime()
  seen = read_input_integer_register(24)
  moving = False
  waited = 0.0
  write_output_integer_register(24, {token})
  while seen >= 0 and waited < {watchdog}:
    now = read_input_integer_register(24)
    if now == seen:
      if moving:
        waited = waited + dt
      end
    else:
      seen = now
      waited = 0.0
      moving = now >= 0
    end
    if moving:
      q = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
      k = 0
      while k < 6:
        q[k] = read_input_float_register(24 + k)
        k = k + 1
      end
      servoj(q, 0.0, 0.0, dt, 0.05, 500)
    else:
      sync()
    end
  end
  stopj(4.0)
  write_output_integer_register(24, 0)
end
"""


@dataclass(frozen=True)
class UrAddress:
    """Where a controller is, and how its currents become torques."""

    host: str
    port: int = PORT
    program_port: int = PROGRAM_PORT
    constants: tuple[float, ...] = ()  # [N·m/A] by joint; (): the controller says torques

    @staticmethod
    def parse(text: str) -> UrAddress:
        """Read HOST[,port=N][,program=N][,constants=K/K/K/K/K/K]."""
        host, *rest = text.split(",")
        options = dict(each.partition("=")[::2] for each in rest)
        extra = options.keys() - {"port", "program", "constants"}
        try:
            ports = [int(options.get("port", PORT)), int(options.get("program", PROGRAM_PORT))]
            texts = options.get("constants", "").split("/")
            constants = tuple(float(each) for each in texts if texts != [""])
        except ValueError:
            ports, constants = [0], ()
        fine = all(0 < port < 65536 for port in ports) and len(constants) in (0, JOINTS)
        if not host or extra or not fine or not all(0.0 < abs(k) < np.inf for k in constants):
            raise UsageError(
                f"--via ur:{text} is unclear; give ur:HOST[,constants=K/K/K/K/K/K], such as"
                " ur:192.168.0.3, with torque constants [N·m/A] from base to wrist where the"
                " controller's software is older than 5.23 (10.11); also port=, program="
            )
        return UrAddress(host, ports[0], ports[1], constants)

    def open(self, setup: SimulationSetup, commands: str = "") -> UrConnection:
        """Connect; commands are positions."""
        return UrConnection(setup.robot.joint_names, self, commands=bool(commands))


class UrConnection:
    """A `Connection` to a controller of Universal Robots.

    Args:
        joints: six, from base to wrist, as in the robot's file.
        address: of the controller.
        commands: whether the robot may be moved; a program is then started on the controller.
        patience: [s] for every answer.

    """

    simulated, limits = False, None

    def __init__(
        self,
        joints: Sequence[str],
        address: UrAddress,
        *,
        commands: bool = False,
        patience: float = PATIENCE,
    ) -> None:
        self.joints = tuple(joints)
        if len(self.joints) != JOINTS:
            raise UsageError(
                f"a robot of Universal Robots has {JOINTS} joints, but the file has"
                f" {known(self.joints)}; give the arm's own file"
            )
        self.mode = "position" if commands else "read-only"
        self._address, self._patience = address, patience
        self._buffer = rtde.PacketBuffer()
        self._queue: list[tuple[int, bytes]] = []
        self._closed, self._count, self.rejected = False, 0, 0
        self._last, self._heard = -np.inf, time.monotonic()
        self._pending: RobotState | None = None
        self._q: np.ndarray | None = None  # newest position
        self._alive = 0
        self._socket = self._connected(address.port)
        try:
            self._outputs, self._inputs = self._agree()
            self._ask(rtde.START, rtde.packet(rtde.START))
            self._wait(lambda: self._pending is not None, "no sample came")
            if commands:
                self._start_program()
        except BaseException:
            self._socket.close()
            raise

    # -- setting up --------------------------------------------------------------------------------

    def _connected(self, port: int) -> socket.socket:
        host = self._address.host
        try:
            made = socket.create_connection((host, port), timeout=self._patience)
        except (OSError, UnicodeError) as error:
            raise UsageError(
                f"no controller answers at {host}, port {port} ({error}); check the address, the"
                " cable, and that the controller is on and its services are enabled"
            ) from None
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made

    def _agree(self) -> tuple[rtde.Recipe, rtde.Recipe | None]:
        """Version, variables to read and, where commands are sent, to write."""
        request = rtde.packet(rtde.VERSION, struct.pack(">H", rtde.PROTOCOL))
        self._ask(rtde.VERSION, request)
        answer = self._ask(rtde.CONTROLLER, rtde.packet(rtde.CONTROLLER), accepted=False)
        major = struct.unpack(">4I", answer)[0] if len(answer) == 16 else 0
        rate = FAST if major >= 5 else SLOW
        wanted = OUTPUTS | {CURRENT if self._address.constants else TORQUE: "VECTOR6D"}
        request = rtde.outputs_request(tuple(wanted), rate)
        outputs = self._recipe(wanted, self._ask(rtde.OUTPUTS, request, accepted=False))
        if self.mode == "read-only":
            return outputs, None
        request = rtde.inputs_request(tuple(INPUTS))
        return outputs, self._recipe(INPUTS, self._ask(rtde.INPUTS, request, accepted=False))

    def _recipe(self, wanted: dict[str, str], answer: bytes) -> rtde.Recipe:
        """What the controller grants; anything else than what was asked for is refused."""
        try:
            recipe = rtde.Recipe.read(tuple(wanted), answer)
        except MalformedInput as error:
            raise RefusedForSafety(f"{self._place}: {error}") from None
        refused = recipe.refused
        if TORQUE in refused:
            raise UsageError(
                f"the controller does not give {TORQUE}, which software 5.23 (10.11) brought; give"
                " torque constants [N·m/A], from base to wrist: --via ur:HOST,constants=K/K/K/K/K/K"
            )
        if "IN_USE" in refused.values():
            raise UsageError(
                "the controller's input registers 24 to 29 are in use by another program; end that"
                " one (a driver, or a fieldbus)"
            )
        if refused:
            raise UsageError(
                f"the controller does not give {known(refused)}; its software is too old"
            )
        if recipe.types != tuple(wanted.values()):
            raise RefusedForSafety(
                f"{self._place} gives variables of types {known(recipe.types)} where RTDE has"
                f" {known(wanted.values())}; check that it is an RTDE server"
            )
        return recipe

    def _ask(self, kind: int, request: bytes, *, accepted: bool = True) -> bytes:
        """Send a request and wait for its answer, which must say yes where it is asked for."""
        self._send(request)
        until = time.monotonic() + self._patience
        while time.monotonic() < until:
            self._receive(until - time.monotonic())
            while self._queue:
                got, payload = self._queue.pop(0)
                if got != kind or not payload:
                    continue
                if accepted and payload[0] != 1:
                    raise UsageError(
                        f"the controller refuses request {chr(kind)!r} of RTDE version"
                        f" {rtde.PROTOCOL}; its software is too old, or another client has it"
                    )
                return payload
        raise RefusedForSafety(
            f"{self._place} did not answer request {chr(kind)!r} within {self._patience:g} s; check"
            " that it is an RTDE server"
        )

    def _start_program(self) -> None:
        """Send the program, which moves nothing by itself, and wait until it runs."""
        assert self._inputs is not None
        assert self._q is not None
        self._send(self._inputs.pack(0, *self._q.tolist()))  # registers keep the last run's
        token = 1 + time.time_ns() % 1_000_000  # an old program's number is another one
        text = PROGRAM.format(token=token, watchdog=WATCHDOG)
        with self._connected(self._address.program_port) as line:
            line.sendall(text.encode("ascii"))
            self._wait(
                lambda: self._alive == token,
                "the program that follows commands did not start: set the controller to remote"
                " control, switch the robot on and release its brakes",
            )

    def _wait(self, ready: object, what: str) -> None:
        assert callable(ready)
        until = time.monotonic() + self._patience
        while not ready():
            if time.monotonic() > until:
                bad = f" ({self.rejected} packets could not be believed)" if self.rejected else ""
                raise RefusedForSafety(f"{self._place}: {what}{bad}")
            self._receive(0.01)
            self._pending = self._newest() or self._pending

    # -- packets -----------------------------------------------------------------------------------

    @property
    def _place(self) -> str:
        return f"the controller at {self._address.host}"

    def _send(self, data: bytes) -> None:
        try:
            self._socket.settimeout(self._patience)
            self._socket.sendall(data)
        except OSError as error:
            raise self._gone(error) from None

    def _gone(self, error: object) -> RefusedForSafety:
        return RefusedForSafety(
            f"the line to {self._place} broke ({error}); a robot that was moving stops by itself"
            f" within {1e3 * WATCHDOG:.0f} ms: check the cable and the controller"
        )

    def _receive(self, timeout: float) -> None:
        """Take what has come; wait for it for at most so long."""
        self._socket.settimeout(max(timeout, 0.0))
        try:
            data = self._socket.recv(1 << 16)
        except (TimeoutError, BlockingIOError):
            return
        except OSError as error:
            raise self._gone(error) from None
        if not data:
            raise self._gone("it was closed at the other end")
        try:
            self._queue += self._buffer.push(data)
        except MalformedInput as error:
            raise RefusedForSafety(f"{self._place}: {error}") from None

    def _newest(self) -> RobotState | None:
        """The newest sample among the packets that came."""
        packets, self._queue = self._queue, []
        state = None
        for kind, payload in packets:
            if kind == rtde.DATA:
                values = self._outputs.unpack(payload)
                made = None if values is None else self._state(values)
                state = made or state
        return state

    def _state(self, values: dict[str, rtde.Value]) -> RobotState | None:
        """A sample; None where it cannot be believed, or is old."""
        arrays = {name: np.array(values[name], dtype=float) for name in values}
        constants = self._address.constants
        tau = arrays[CURRENT] * constants if constants else arrays[TORQUE]
        t, self._alive = float(arrays["timestamp"]), int(arrays[ALIVE])
        q, dq = arrays["actual_q"], arrays["actual_qd"]
        state = RobotState(t, q, dq, tau, arrays["joint_temperatures"], self._stopped(arrays))
        if not state.is_valid(JOINTS):
            self.rejected += 1
            return None
        if t <= self._last:
            return None
        self._last, self._q, self._heard = t, q, time.monotonic()
        return state

    def _stopped(self, values: dict[str, np.ndarray]) -> str:
        """Why the robot does not obey, in words."""
        safety, mode = int(values["safety_mode"]), int(values["robot_mode"])
        if safety not in NORMAL:
            return f"the controller reports {SAFETY.get(safety, f'safety mode {safety}')}"
        if self._count and mode != RUNNING:
            return f"the robot is not switched on (mode {mode})"
        if self._count and (int(values["runtime_state"]) != PLAYING or self._alive == 0):
            return "the program that follows commands has ended"
        return ""

    # -- the connection ----------------------------------------------------------------------------

    def read(self) -> RobotState | None:
        """The newest sample; None where none came."""
        if self._closed:
            raise UsageError("the connection is closed; make a new one")
        self._receive(0.0)
        state, self._pending = self._newest() or self._pending, None
        if state is None and time.monotonic() - self._heard > self._patience:
            raise RefusedForSafety(
                f"{self._place} sent nothing that can be believed for {self._patience:g} s"
                f" ({self.rejected} packets could not be); check it and the network"
            )
        return state

    def write(self, command: np.ndarray) -> None:
        """Command positions; far from where the robot is they are refused."""
        values = checked_command(command, self, closed=self._closed)
        near_command(values, self._q)
        assert self._inputs is not None
        self._count = self._count % 1_000_000 + 1
        self._send(self._inputs.pack(self._count, *values.tolist()))

    def close(self) -> None:
        """End the program on the controller, which slows the robot down and holds it; hang up."""
        if self._closed:
            return
        self._closed = True
        with suppress(RefusedForSafety, OSError):
            if self._inputs is not None and self._q is not None:
                self._send(self._inputs.pack(-1, *self._q.tolist()))
            self._send(rtde.packet(rtde.PAUSE))
            self._socket.shutdown(socket.SHUT_WR)
        self._socket.close()
