"""A Franka arm, by its maker's library (extra `franka`: pylibfranka).

The arm is driven by torques, a thousand times per second in a thread of its own: those that are
written, less gravity, which the arm adds by its own model; or, where positions are written, those
of springs and dampers towards them. Where no command comes for 50 ms the arm is held where it is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from thetahat.connect.connection import RobotState, checked_command, near_command
from thetahat.errors import MissingExtra, RefusedForSafety, UsageError, known

if TYPE_CHECKING:
    from pylibfranka import Model
    from pylibfranka import RobotState as ArmState

    from thetahat.connect.sim_server import SimulationSetup

JOINTS = 7
LIMITS = np.array([87.0, 87.0, 87.0, 87.0, 12.0, 12.0, 12.0])  # [N·m]
STIFFNESS = np.array([600.0, 600.0, 600.0, 600.0, 250.0, 150.0, 50.0])  # [N·m/rad]
DAMPING = np.array([50.0, 50.0, 50.0, 50.0, 30.0, 25.0, 15.0])  # [N·m·s/rad]
STEP = 0.9  # [N·m] that a torque may change within a cycle; the arm stops at 1
SMOOTH = 0.01  # [s] in which a commanded position is approached
CYCLE = 1e-3  # [s]
WATCHDOG = 0.05  # [s] without a command
STANDS = 0.005  # [rad/s]
SLOWDOWN = 0.5  # [s] at most, before the arm's own controller takes over
PATIENCE = 5.0  # [s] for the first sample


def load_franka() -> ModuleType:
    """Import the maker's library, or say how to get it."""
    try:
        import pylibfranka
    except ImportError:
        raise MissingExtra(
            "Franka arms need the extra 'franka': pip install 'thetahat[franka]'; where there is no"
            " wheel for this Python, record with franka_ros2 and --via ros2"
        ) from None
    module: ModuleType = pylibfranka
    return module


@dataclass(frozen=True)
class FrankaAddress:
    """Where an arm is."""

    host: str

    @staticmethod
    def parse(text: str) -> FrankaAddress:
        """Read HOST."""
        if not text or "," in text or not text.isprintable():
            raise UsageError(
                f"--via franka:{text} is unclear; give franka:HOST, such as franka:172.16.0.2"
            )
        return FrankaAddress(text)

    def open(self, setup: SimulationSetup, commands: str = "") -> FrankaConnection:
        """Connect."""
        return FrankaConnection(setup.robot.joint_names, self, commands=commands)


class FrankaConnection:
    """A `Connection` to a Franka arm.

    Args:
        joints: seven, from base to hand, as in the robot's file.
        address: of the arm.
        commands: "torque", "position", or "" for reading only.
        patience: [s] for the first sample.

    """

    simulated = False

    def __init__(
        self,
        joints: Sequence[str],
        address: FrankaAddress,
        *,
        commands: str = "",
        patience: float = PATIENCE,
    ) -> None:
        library = load_franka()
        self.joints, self.mode = tuple(joints), commands or "read-only"
        self.limits = LIMITS.copy()
        if len(self.joints) != JOINTS:
            raise UsageError(
                f"a Franka arm has {JOINTS} joints, but the file has {known(self.joints)}; give a"
                " file of the arm without its hand's fingers"
            )
        self._place = f"the arm at {address.host}"
        try:  # without a real-time kernel, too
            self._robot = library.Robot(address.host, library.RealtimeConfig.kIgnore)
        except RuntimeError as error:
            raise UsageError(
                f"no arm answers at {address.host} ({_line(error)}); check the address, and that"
                " its joints are unlocked and FCI is activated"
            ) from None
        self._make_torques = library.Torques
        self._lock = threading.Lock()
        self._newest: RobotState | None = None
        self._q: np.ndarray | None = None
        self._failed = ""
        self._law = _Law(self.mode, self._robot.load_model() if commands else None)
        self._over, self._closed = threading.Event(), False
        loop = self._drive if commands else self._watch
        self._thread = threading.Thread(target=self._run, args=(loop,), daemon=True)
        self._thread.start()
        self._wait(patience)

    def _wait(self, patience: float) -> None:
        until = time.monotonic() + patience
        while self._q is None:
            if self._failed or time.monotonic() > until:
                self.close()
                raise RefusedForSafety(
                    self._failed or f"{self._place}: no sample came within {patience:g} s"
                )
            time.sleep(1e-3)

    # -- the thread --------------------------------------------------------------------------------

    def _run(self, loop: Callable[[], None]) -> None:
        try:
            loop()
        except (RuntimeError, TypeError, ValueError) as error:  # of the library, or of its values
            self._failed = (
                f"{self._place} ended the motion and is held by its own controller:"
                f" {_line(error)}; see Desk, and clear the error there"
            )

    def _watch(self) -> None:
        while not self._over.is_set():
            self._take(self._robot.read_once())

    def _drive(self) -> None:
        control = self._robot.start_torque_control()
        ending = 0  # cycles since the end was asked for, in which the arm slows down
        while True:
            state, _ = control.readOnce()
            self._take(state)
            if self._over.is_set():
                ending += 1
            with self._lock:
                if ending == 1:
                    self._law.stay()
                torques = self._make_torques(self._law.torques(state).tolist())
            stands = np.max(np.abs(state.dq)) < STANDS
            torques.motion_finished = ending > 1 and (stands or ending * CYCLE > SLOWDOWN)
            control.writeOnce(torques)
            if torques.motion_finished:
                return

    def _take(self, state: ArmState) -> None:
        """Keep a sample; what cannot be believed ends the motion."""
        q, dq, tau = (np.array(each, dtype=float) for each in (state.q, state.dq, state.tau_J))
        stopped = f"the arm reports {state.current_errors}" if state.current_errors else ""
        made = RobotState(float(state.time.to_sec()), q, dq, tau, None, stopped)
        if not made.is_valid(JOINTS):
            raise ValueError("a sample has another size, or a number that is not finite")
        with self._lock:
            self._newest, self._q = made, q

    # -- the connection ----------------------------------------------------------------------------

    def read(self) -> RobotState | None:
        """The newest sample; None where none came."""
        if self._closed:
            raise UsageError("the connection is closed; make a new one")
        with self._lock:
            newest, self._newest = self._newest, None
        if newest is None and self._failed:
            raise RefusedForSafety(self._failed)
        return newest

    def write(self, command: np.ndarray) -> None:
        """Command torques, gravity included, or positions."""
        values = checked_command(command, self, closed=self._closed)
        if self._failed:
            raise RefusedForSafety(self._failed)
        with self._lock:
            if self.mode == "position":
                near_command(values, self._q)
            self._law.command(values)

    def close(self) -> None:
        """End the motion, after which the arm's own controller holds it; let go."""
        if not self._closed:
            self._closed = True
            self._over.set()
            self._thread.join(1.0)


class _Law:
    """Torques of every cycle, without gravity, as the arm takes them."""

    def __init__(self, mode: str, model: Model | None) -> None:
        self.mode, self.model = mode, model
        self.wanted: np.ndarray | None = None  # torques or positions; None: stay
        self.target: np.ndarray | None = None  # position that springs pull to
        self.last = np.zeros(JOINTS)  # [N·m]
        self.at = -np.inf  # [s] of the newest command, by the machine's clock

    def command(self, values: np.ndarray) -> None:
        """Follow torques or positions until the next ones."""
        self.wanted, self.at = values, time.monotonic()

    def stay(self) -> None:
        """Hold the arm where it is."""
        self.wanted = self.target = None

    def torques(self, state: ArmState) -> np.ndarray:
        """Those of this cycle."""
        assert self.model is not None
        q, dq = np.array(state.q), np.array(state.dq)
        silent = time.monotonic() - self.at > WATCHDOG
        if self.mode == "torque" and self.wanted is not None and not silent:
            tau = self.wanted - np.array(self.model.gravity(state))
            self.target = None
        else:
            if self.target is None:
                self.target = q
            if self.mode == "position" and self.wanted is not None:
                self.target = self.target + (self.wanted - self.target) * (CYCLE / SMOOTH)
            tau = STIFFNESS * (self.target - q) - DAMPING * dq
            tau = tau + np.array(self.model.coriolis(state))
        within = np.clip(tau, -LIMITS, LIMITS)
        self.last = np.clip(within, self.last - STEP, self.last + STEP)
        return self.last


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
