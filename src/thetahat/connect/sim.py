"""A simulated robot behind a connection, with planted differences from its file."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from thetahat.control.online_control import Measured
from thetahat.dynamics import rigid_body
from thetahat.errors import UsageError, check_positive
from thetahat.model.robot import Robot
from thetahat.plant.perturb import perturb
from thetahat.plant.plant import MujocoPlant, OwnPlant, Plant
from thetahat.plant.realism import DriveModel, Payload, Realism

ENGINES = {"mujoco": MujocoPlant, "own": OwnPlant}


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
    """A `Connection` to a plant: `write` lets 1/rate seconds pass."""

    simulated = True

    def __init__(self, plant: Plant, *, rate: float = 1000.0, seed: int = 0) -> None:
        check_positive("rate", rate, "cycles per second [Hz]")
        self.plant, self.rate, self.seed = plant, float(rate), seed
        self.commanded = np.zeros(plant.nominal.nv)  # (nv,) last [N·m or N]
        self._cycles = 0
        self._closed = False

    @staticmethod
    def of(
        nominal: Robot,
        differences: PlantedDifferences,
        *,
        engine: str = "mujoco",
        rate: float = 1000.0,
    ) -> SimulatedRobot:
        """The file's robot with planted differences."""
        if engine not in ENGINES:
            raise UsageError(f"plant is {engine!r}; plants: {', '.join(ENGINES)}")
        truth = differences.robot(nominal)
        plant = ENGINES[engine](truth, realism=differences.realism(truth), seed=differences.seed)
        return SimulatedRobot(plant, rate=rate, seed=differences.seed)

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
        self._cycles = 0
        self.plant.command(rigid_body.gravity(self.plant.robot, q))

    def read(self) -> Measured | None:
        """The sample of this moment."""
        plant = self.plant
        return Measured(plant.t, *plant.sense_motion(), plant.sense_torque())

    def write(self, tau: np.ndarray) -> None:
        """Command torques, and let one period pass."""
        if self._closed:
            raise UsageError("the connection is closed; make a new one")
        self.commanded = np.array(tau, dtype=float)
        self.plant.command(tau)
        self._cycles += 1
        self.plant.advance(self._cycles / self.rate - self.plant.t)

    def close(self) -> None:
        """End it."""
        self._closed = True
