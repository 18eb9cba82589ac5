"""One robot, simulated: state, step, measure. Two engines behind it, the project's own forward
dynamics and MuJoCo's.

Both are driven by the same time stepping, friction, actuators and sensors (stepper.py, friction.py,
sensors.py), which act on joint torques and on states, so that plants differ in nothing but where q̈
comes from. MuJoCo's own friction loss is a soft constraint that creeps and its dampers act on its
own integrators, so neither is used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass

import numpy as np

from thetahat.data.velocities import all_single_dof
from thetahat.dynamics import batch
from thetahat.errors import UsageError, check_positive
from thetahat.model.robot import Robot
from thetahat.plant.friction import Friction
from thetahat.plant.mujoco_engine import MujocoEngine
from thetahat.plant.physics_engine import ClampedEngine, Engine, OwnEngine, SprungEngine
from thetahat.plant.realism import Realism, require_body, spread
from thetahat.plant.sensors import Sensors, streams
from thetahat.plant.stepper import Stepper

# [rad/s or m/s]: no joint turns so fast; a simulation that gets there has lost its way
RUNAWAY = 1e4
BRAKE = 40.0  # [rad/s]: brakes stop a joint within 0.1 s


@dataclass(frozen=True, eq=False)
class State:
    """Where the robot truly is."""

    t: float  # [s]
    q: np.ndarray  # (nq,)
    dq: np.ndarray  # (nv,)


@dataclass(frozen=True, eq=False)
class Measurement:
    """What its sensors say."""

    t: float  # [s]
    q: np.ndarray  # (nq,)
    dq: np.ndarray  # (nv,)
    tau: np.ndarray  # (nv,) [N·m or N]


class Plant(ABC):
    """A simulated robot. `robot` is the one that is simulated, friction of `realism` and all,
    without the payload still to come.
    """

    name: str

    def __init__(self, robot: Robot, *, realism: Realism | None = None, seed: int = 0) -> None:
        batch.require_movable(robot, "there is nothing to simulate")
        self.nominal, self.realism, self.seed = robot, realism or Realism(), seed
        require_body(self.realism, robot)
        self.robot = self.realism.applied(robot)
        drive, motors = self.realism.drive, self.robot.drive
        stribeck = None if drive.stribeck is None else motors.value("stribeck")
        speed = spread("stribeck_speed", drive.stribeck_speed, len(motors.viscous), "motor")
        self._friction = Friction(self.robot, stribeck=stribeck, speed=speed)
        self._limits = self.realism.limits(robot)
        payload = self.realism.payload
        self._engine = self._sprung(self.robot)
        self._loaded = self._engine if payload is None else self._sprung(payload.on(self.robot))
        self.reset()

    @abstractmethod
    def _make(self, robot: Robot) -> Engine:
        """The engine of a robot."""

    def _sprung(self, robot: Robot) -> Engine:
        """The engine of a robot with its springs, where it has some."""
        engine, drive = self._make(robot), robot.drive
        return SprungEngine(engine, drive) if drive.has_springs else engine

    def with_realism(self, realism: Realism, *, seed: int | None = None) -> Plant:
        """A plant of the same robot and engine with other options."""
        return type(self)(self.nominal, realism=realism, seed=self.seed if seed is None else seed)

    # -- state -------------------------------------------------------------------------------------

    def reset(
        self, q: np.ndarray | None = None, dq: np.ndarray | None = None, *, seed: int | None = None
    ) -> None:
        """Put the robot somewhere (default: its neutral configuration, at rest) at t = 0, without
        torque, sensors and chance anew.
        """
        q = self.nominal.neutral if q is None else q
        dq = np.zeros(self.nominal.nv) if dq is None else dq
        q, dq = batch.check_state(self.nominal, q, dq)
        if q.ndim != 1:
            raise UsageError(
                f"q has shape {q.shape}; a plant is in one configuration, ({self.nominal.nq},)"
            )
        self.seed = self.seed if seed is None else seed
        self.streams = streams(self.seed)
        self.t = 0.0
        self._sensors = Sensors(self.robot, self.realism.sensors, self.streams)
        self._pending: deque[tuple[float, np.ndarray]] = deque()
        self._tau = np.zeros(self.nominal.nv)
        payload = self.realism.payload
        now = payload is not None and payload.time <= 0.0
        self._switch = payload.time if payload is not None and not now else np.inf
        self._bare = self._loaded if now else self._engine
        self._clamped = np.zeros(self.nominal.nv, dtype=bool), BRAKE
        self._stepper = Stepper(self._bare, self._friction, q, dq)

    def truth(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """True q, dq, and from this moment on ddq and actuator torques; arrays of the plant's own,
        until time passes.
        """
        stepper = self._stepper
        return stepper.q, stepper.dq, stepper.acceleration(self._tau), self._tau

    @property
    def state(self) -> State:
        """The true state now."""
        return State(self.t, self._stepper.q.copy(), self._stepper.dq.copy())

    @property
    def torque(self) -> np.ndarray:
        """The torque that the actuators truly exert on the joints from now on, (nv,)."""
        return self._tau.copy()

    @property
    def acceleration(self) -> np.ndarray:
        """q̈ from now on, (nv,)."""
        return self._stepper.acceleration(self._tau).copy()

    @property
    def friction(self) -> np.ndarray:
        """The joint torque that friction takes now, (nv,)."""
        return self._stepper.friction_torque(self._tau)

    # -- step and measure --------------------------------------------------------------------------

    def step(self, u: np.ndarray, dt: float) -> None:
        """Command joint torques u (nv,) and let dt seconds pass."""
        (u,) = batch.check_state(self.nominal, self.nominal.neutral, u, names=("u",))[1:]
        check_positive("dt", dt, "the seconds to pass")
        self.command(u)
        self.advance(dt)

    def command(self, u: np.ndarray) -> None:
        """Ask for joint torques; they come after the delay of commands, held within the actuators'
        limits. Unchecked.
        """
        tau = np.array(u) if self._limits is None else np.clip(u, -self._limits, self._limits)
        if self.realism.command_delay > 0.0:
            self._pending.append((self.t + self.realism.command_delay, tau))
        else:
            self._tau = tau

    def advance(self, dt: float) -> None:
        """Let dt seconds pass. Unchecked but for its result."""
        end = self.t + dt
        while self._pending and self._pending[0][0] < end - 1e-12:
            at, tau = self._pending.popleft()
            self._pass(at)
            self._tau = tau
        self._pass(end)
        while self._pending and self._pending[0][0] <= end + 1e-12:
            self._tau = self._pending.popleft()[1]

    def _pass(self, end: float) -> None:
        """Move on to `end` under the torque that acts."""
        if self._switch < end:
            self._move(self._switch)
        if self._switch <= self.t + 1e-12:
            self._switch = np.inf
            self._bare = self._loaded
            self.clamp(*self._clamped)
        self._move(end)

    def _move(self, end: float) -> None:
        if end - self.t > 1e-12:
            self._stepper.advance(self._tau, end - self.t)
        dq = self._stepper.dq
        self.t = end
        speed = float(dq @ dq)  # NaN and inf show here too
        if not speed < RUNAWAY**2:
            bad = ~np.isfinite(dq)
            k = int(np.argmax(bad)) if bad.any() else int(np.argmax(np.abs(dq)))
            raise UsageError(
                f"the simulation of {self.nominal.name!r} diverged at t = {end:.6g} s: joint"
                f" {self.nominal.velocity_names[k]!r} moves at {dq[k]:.3g}; use lower gains, a"
                " higher rate or a slower motion"
            )

    def clamp(self, joints: np.ndarray, rate: float = BRAKE) -> None:
        """Clamp joints, (nv,) bool, where they are from now on, and let go the others: brakes, or
        something in the way. No torque sensor sees it.

        rate: [rad/s] at which they stop; above 300 steps of a millisecond are too long.
        """
        joints = np.array(joints, dtype=bool)
        if np.any(joints) and not all_single_dof(self.nominal):
            raise UsageError(
                f"robot {self.nominal.name!r} has joints of several degrees of freedom, which have"
                " no brakes; clamp joints of robots that turn and slide alone"
            )
        self._clamped = joints, rate
        engine, q = self._bare, self._stepper.q
        self._stepper.replace_engine(
            ClampedEngine(engine, joints, q, rate) if np.any(joints) else engine
        )

    def measure(self) -> Measurement:
        """Time and what the sensors say now; each call is a reading of its own."""
        return Measurement(self.t, *self.sense_motion(), self.sense_torque())

    def sense_motion(self) -> tuple[np.ndarray, np.ndarray]:
        """Measured (q, dq)."""
        return self._sensors.motion(self.t, self._stepper.q, self._stepper.dq)

    def sense_torque(self) -> np.ndarray:
        """Measured torque, (nv,): what acts from now on."""
        return self._sensors.torque(self.t, self._tau)


class OwnPlant(Plant):
    """Simulated by the project's own forward dynamics."""

    name = "own"

    def _make(self, robot: Robot) -> Engine:
        return OwnEngine(robot)


class MujocoPlant(Plant):
    """Simulated by MuJoCo's forward dynamics, on a model built in memory from the same robot (extra
    `mujoco`).
    """

    name = "mujoco"

    def _make(self, robot: Robot) -> Engine:
        return MujocoEngine(robot)
