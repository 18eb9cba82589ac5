"""A simulated robot behind a connection, with planted differences from its file."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from thetahat.connect.connection import RobotState, checked_command
from thetahat.connect.planted_faults import WARM, PlantedFault
from thetahat.connect.safety_monitor import stated_efforts
from thetahat.data.velocities import all_single_dof
from thetahat.dynamics import rigid_body
from thetahat.errors import UsageError, check_positive
from thetahat.model.robot import Robot
from thetahat.plant.perturb import perturb
from thetahat.plant.plant import MujocoPlant, OwnPlant, Plant
from thetahat.plant.realism import DriveModel, Payload, Realism
from thetahat.plant.tracking import Tracking

ENGINES: dict[str, type[MujocoPlant] | type[OwnPlant]] = {"mujoco": MujocoPlant, "own": OwnPlant}
OBSTACLE = 200.0  # [rad/s] of what blocks a joint: it hardly yields
SERVO = 60.0  # [rad/s] of the drives that follow commanded positions
FOLLOWED = 0.1  # of a step's speed that each commanded position adds to the speed to follow


@dataclass(frozen=True)
class PlantedDifferences:
    """How the simulated robot differs from its file."""

    mass: float = 1.25  # factor of all masses and inertias
    spread: float = 0.0  # of random distortions of every body's mass distribution, see `perturb`
    coulomb: float | None = None  # [N·m or N] of every joint; None: some per cent of its torque
    payload: Payload | None = None
    seed: int = 0

    def robot(self, nominal: Robot) -> Robot:
        """The robot that is simulated."""
        check_positive("mass", self.mass, "the factor of all masses")
        heavier = replace(nominal, theta=self.mass * nominal.theta)
        return perturb(heavier, spread=self.spread, seed=self.seed) if self.spread else heavier

    def realism(self, robot: Robot) -> Realism:
        """Friction and sensors as they come."""
        usual = Realism.typical(robot, seed=self.seed)
        if self.coulomb is not None:
            drive = DriveModel(viscous=usual.drive.viscous, coulomb=self.coulomb)
            usual = replace(usual, drive=drive)
        return replace(usual, payload=self.payload)


class SimulatedRobot:
    """A `Connection` to a plant in this process: `write` lets 1/rate seconds pass.

    mode: "torque", or "position": drives of its own, which know the robot well, follow commanded
        positions within the file's efforts.
    """

    simulated = True

    def __init__(
        self,
        plant: Plant,
        *,
        rate: float = 1000.0,
        seed: int = 0,
        mode: str = "torque",
        fault: PlantedFault | None = None,
    ) -> None:
        check_positive("rate", rate, "cycles per second [Hz]")
        if mode not in ("torque", "position"):
            raise UsageError(f"mode is {mode!r}; a simulated robot takes torque or position")
        self.plant, self.rate, self.seed, self.mode = plant, float(rate), seed, mode
        self.commanded = np.zeros(plant.nominal.nv)  # (nv,) last
        self._cycles = 0
        self._closed = False
        self._fault, self._first = fault, float("inf")  # [s] of the first command
        self._braked = True  # no command is obeyed
        self._blocked = np.zeros(plant.nominal.nv, dtype=bool)
        self._frozen: np.ndarray | None = None  # position that its encoder keeps telling
        self._servo = Tracking(plant.robot, SERVO) if mode == "position" else None
        self._efforts = stated_efforts(plant.nominal)  # that drives of their own keep
        self._goal: tuple[np.ndarray, np.ndarray] | None = None  # position and speed followed
        self._sample: RobotState | None = None  # newest
        self._told = -1.0  # [s] stamp of the last one that was read

    @staticmethod
    def of(
        nominal: Robot,
        differences: PlantedDifferences,
        *,
        engine: str = "mujoco",
        rate: float = 1000.0,
        mode: str = "torque",
        fault: PlantedFault | None = None,
    ) -> SimulatedRobot:
        """The file's robot with planted differences."""
        if engine not in ENGINES:
            raise UsageError(f"plant is {engine!r}; plants: {', '.join(ENGINES)}")
        truth, seed = differences.robot(nominal), differences.seed
        plant = ENGINES[engine](truth, realism=differences.realism(truth), seed=seed)
        return SimulatedRobot(plant, rate=rate, seed=seed, mode=mode, fault=fault)

    @property
    def joints(self) -> tuple[str, ...]:
        """Names of the joints."""
        return self.plant.nominal.joint_names

    @property
    def limits(self) -> np.ndarray | None:
        """None: its file says what it says."""
        return None

    def start(self, q: np.ndarray) -> None:
        """Put the robot at rest into a configuration (nq,), held there by its own brakes' torque:
        gravity's.
        """
        self.plant.reset(q, seed=self.seed)
        self._cycles, self._goal, self._sample, self._told = 0, None, None, -1.0
        self._first, self._frozen, self._braked = float("inf"), None, True
        self.plant.command(rigid_body.gravity(self.plant.robot, q))

    # -- samples -----------------------------------------------------------------------------------

    def read(self) -> RobotState | None:
        """The sample of this moment; None where it was read already, or stays away."""
        sample = self._measured()
        if sample.t <= self._told:
            return None
        self._told = sample.t
        since = self.plant.t - self._first
        return None if self._fault is not None and self._fault.is_silent(since) else sample

    @property
    def newest(self) -> RobotState:
        """The sample of this moment, whether it was read or not."""
        return self._measured()

    def _measured(self) -> RobotState:
        """The newest sample; one per moment, as sensors have noise."""
        plant, fault = self.plant, self._fault
        if self._sample is not None and self._sample.t >= plant.t:
            return self._sample
        (q, dq), tau, since = plant.sense_motion(), plant.sense_torque(), plant.t - self._first
        temperature = np.full(plant.nominal.nv, WARM)
        if fault is not None and fault.begun(since):
            temperature = fault.temperatures(self.joints, since)
            if fault.kind == "frozen":
                j = self.joints.index(fault.joint)
                self._frozen = q.copy() if self._frozen is None else self._frozen
                q, dq = q.copy(), dq.copy()
                q[j], dq[j] = self._frozen[j], 0.0
        self._sample = RobotState(plant.t, q, dq, tau, temperature)
        return self._sample

    # -- commands ----------------------------------------------------------------------------------

    def write(self, command: np.ndarray) -> None:
        """Command torques or positions, and let one period pass."""
        self.command(command)
        self.advance()

    def command(self, command: np.ndarray) -> None:
        """Command torques or positions from now on."""
        self.commanded = checked_command(command, self, closed=self._closed)
        self._first = min(self._first, self.plant.t)
        self._braked = False

    def advance(self) -> None:
        """Let one period pass under the command that there is."""
        if not self._braked:
            self.plant.command(self.commanded if self._servo is None else self._followed())
            self._plant_fault()
        self._cycles += 1
        self.plant.advance(self._cycles / self.rate - self.plant.t)

    def hold(self) -> None:
        """Close the brakes: the robot stops and stays where it is."""
        q = self.plant.state.q
        if all_single_dof(self.plant.nominal):  # a base has no brakes
            self.plant.clamp(np.ones(self.plant.nominal.nv, dtype=bool))
        self.plant.command(rigid_body.gravity(self.plant.robot, q))
        self._goal, self._braked = None, True

    def release(self) -> None:
        """Open the brakes; what is blocked stays so."""
        self.plant.clamp(self._blocked, OBSTACLE)

    def _followed(self) -> np.ndarray:
        """The torque with which its drives follow the commanded position."""
        assert self._servo is not None
        measured, wanted = self._measured(), self.commanded
        if self._goal is None:
            self._goal = wanted, np.zeros(len(wanted))
        position, speed = self._goal
        speed = speed + FOLLOWED * (self.rate * (wanted - position) - speed)
        self._goal = wanted, speed
        still = np.zeros(len(wanted))
        tau = self._servo(measured.t, measured.q, measured.dq, (wanted, speed, still))
        return np.asarray(np.clip(tau, -self._efforts, self._efforts))

    def _plant_fault(self) -> None:
        fault = self._fault
        if fault is None or fault.kind != "blocked" or not fault.begun(self.plant.t - self._first):
            return
        if not np.any(self._blocked):
            self._blocked = np.array([name == fault.joint for name in self.joints])
            self.plant.clamp(self._blocked, OBSTACLE)

    def close(self) -> None:
        """Close the brakes, and end it."""
        if not self._closed:
            self._closed = True
            self.hold()
