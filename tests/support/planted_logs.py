"""Simulated logs of robots whose file is wrong, with sensors as drives have them, and faults that
are planted into them.

Torques come from the equation of motion of a robot that differs from the one a test hands to the
code under test: masses and centres of mass are others, and there are friction, rotors, noise,
encoder steps and filters.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from thetahat.data.log import Log
from thetahat.data.memory_log import log_from_table
from thetahat.dynamics.rigid_body import inverse_dynamics
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind


@dataclass(frozen=True)
class Recorder:
    """How a log is recorded."""

    rate: float = 250.0  # [Hz]
    seconds: float = 16.0
    kinds: tuple[str, ...] = ("q", "dq", "tau")
    encoder: float = 0.0  # [rad or m] of one step
    position_noise: float = 1e-6  # [rad or m]
    velocity_filter: float = 0.0  # [s] time constant of the drive's low-pass of dq
    torque_noise: float = 0.01  # of the torque's standard deviation
    torque_lag: float = 0.0  # [s]
    jitter: float = 0.0  # of a period
    speed: float = 1.0  # of the motion
    amplitude: float = 1.0


@dataclass(frozen=True)
class Truth:
    """How the robot differs from its file, and what its drives add."""

    mass_error: float = 0.3  # of every body's mass, uniformly
    com_error: float = 0.03  # [m]
    friction: float = 0.15  # Coulomb, of the torque's standard deviation; viscous likewise
    rotor: float = 0.1  # rotor inertia, of the typical inertia of the joint
    payload: float = 0.0  # [kg] on the last body


@dataclass(frozen=True, eq=False)
class Recording:
    """A log as arrays, to plant faults in."""

    robot: Robot  # as its file has it
    columns: dict[str, np.ndarray]  # t, q, dq, ddq, tau, (n, ·)
    run: np.ndarray | None = None
    notes: dict[str, object] = field(default_factory=dict)

    def log(self, **options: object) -> Log:
        """Return the log of it, with the columns' names in the robot's order."""
        from thetahat.data.memory_log import column_names

        kinds = [kind for kind in self.columns if kind != "t"]
        names = column_names(self.robot, kinds)
        values = [self.columns["t"], *(c for kind in kinds for c in self.columns[kind].T)]
        table: dict[str, np.ndarray] = dict(zip(names, values, strict=True))
        if self.run is not None:
            table["seg"] = self.run
        return log_from_table(table, self.robot, **options)  # type: ignore[arg-type]

    def planted(self, kind: str, dof: int | slice | list[int], change: object) -> Recording:
        """Return the recording with one channel changed: a factor, or a function of it."""
        array = self.columns[kind].copy()
        own = array[:, dof]
        array[:, dof] = change(own) if callable(change) else own * change
        return replace(self, columns={**self.columns, kind: array})


def true_robot(robot: Robot, truth: Truth, rng: np.random.Generator) -> Robot:
    """Return a robot whose bodies differ from the file's and stay physical."""
    from thetahat.model import parameters

    theta = robot.theta.reshape(-1, 10).copy()
    for i, own in enumerate(theta):
        if own[9] <= 0.0:
            continue
        factor = 1.0 + truth.mass_error * rng.uniform(-1.0, 1.0)
        shift = truth.com_error * rng.uniform(-1.0, 1.0, 3)
        theta[i] = parameters.transform(factor * own, np.eye(3), shift)
    if truth.payload:
        point = parameters.from_mass_com_inertia(
            np.array(truth.payload), np.array([0.02, 0.03, 0.06]), 1e-3 * np.eye(3)
        )
        theta[-1] += point
    return robot.with_parameters(theta.ravel())


def motion(
    robot: Robot, recorder: Recorder, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return t, q, dq, ddq of a sum of sines inside the joints' limits."""
    rows = int(recorder.rate * recorder.seconds)
    t = np.arange(rows) / recorder.rate
    q, dq, ddq = (np.zeros((rows, robot.nv)) for _ in range(3))
    for j, node in enumerate(robot.tree.independent):
        turning = node.kind is JointKind.REVOLUTE
        lower, upper = node.limits.lower, node.limits.upper
        if not (np.isfinite(lower) and np.isfinite(upper) and upper > lower):
            lower, upper = (-2.0, 2.0) if turning else (-0.3, 0.3)
        room = min(0.4 * (upper - lower), 1.5 if turning else 0.2) * recorder.amplitude
        amplitudes = rng.uniform(0.2, 1.0, 4) / np.arange(1, 5)
        amplitudes *= room / amplitudes.sum()
        base = 2.0 * np.pi * recorder.speed * rng.uniform(0.08, 0.16)
        q[:, j] = 0.5 * (lower + upper)
        for k, amplitude in enumerate(amplitudes, start=1):
            w, phase = base * k, rng.uniform(0.0, 2.0 * np.pi)
            q[:, j] += amplitude * np.sin(w * t + phase)
            dq[:, j] += amplitude * w * np.cos(w * t + phase)
            ddq[:, j] -= amplitude * w**2 * np.sin(w * t + phase)
    return t, q, dq, ddq


def record(
    robot: Robot, recorder: Recorder | None = None, truth: Truth | None = None, *, seed: int = 0
) -> Recording:
    """Simulate a log of a robot of which `robot` is the file."""
    recorder, truth = recorder or Recorder(), truth or Truth()
    rng = np.random.default_rng(seed)
    real = true_robot(robot, truth, rng)
    t, q, dq, ddq = motion(robot, recorder, rng)
    lagged = [t - recorder.torque_lag]
    tau = _torque(real, truth, q, dq, ddq, rng)
    if recorder.torque_lag:
        tau = np.column_stack([np.interp(lagged[0], t, column) for column in tau.T])
    tau += recorder.torque_noise * tau.std(axis=0) * rng.normal(size=tau.shape)
    measured = q + recorder.position_noise * rng.normal(size=q.shape)
    if recorder.encoder:
        measured = recorder.encoder * np.round(measured / recorder.encoder)
    velocity = dq + 0.002 * dq.std(axis=0) * rng.normal(size=dq.shape)
    if recorder.velocity_filter:
        velocity = _low_pass(velocity, recorder.velocity_filter * recorder.rate)
    stamps = t + recorder.jitter / recorder.rate * rng.uniform(-0.5, 0.5, len(t))
    # what a recorder writes down belongs to the stamps, not to the grid
    arrays = {"q": measured, "dq": velocity, "ddq": ddq, "tau": tau}
    if recorder.jitter:
        arrays = {
            kind: np.column_stack([np.interp(stamps, t, column) for column in array.T])
            for kind, array in arrays.items()
        }
    columns = {"t": stamps, **{kind: arrays[kind] for kind in recorder.kinds}}
    return Recording(robot, columns, notes={"real": real})


def _torque(
    real: Robot,
    truth: Truth,
    q: np.ndarray,
    dq: np.ndarray,
    ddq: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    from thetahat.dynamics.rigid_body import mass_matrix

    rigid = inverse_dynamics(real, q, dq, ddq, rigid=True)
    scale = rigid.std(axis=0)
    size = truth.friction * rng.uniform(0.5, 1.5, real.nv) * np.maximum(scale, 0.02 * scale.max())
    speeds = np.maximum(np.abs(dq).max(axis=0), 1e-9)
    friction = size * (np.tanh(dq / (0.01 * speeds)) + 0.5 * dq / speeds)
    inertia = np.einsum("kii->ki", mass_matrix(real, q[:: max(1, len(q) // 32)])).mean(axis=0)
    return np.asarray(rigid + friction + truth.rotor * rng.uniform(0.0, 2.0) * inertia * ddq)


def _low_pass(x: np.ndarray, rows: float) -> np.ndarray:
    """Filter by a first-order lag of so many rows, as a drive does."""
    out, state = np.empty_like(x), x[0].copy()
    for k, row in enumerate(x):
        state += (row - state) / (1.0 + rows)
        out[k] = state
    return out


# -- many robots -----------------------------------------------------------------------------------

SHIPPED = ("arm4", "arm7", "double_pendulum", "valkyrie_arm", "valkyrie_leg")
OTHERS = (  # of example-robot-data
    "panda_description/urdf/panda.urdf",
    "ur_description/urdf/ur5_robot.urdf",
    "ur_description/urdf/ur10_robot.urdf",
    "kinova_description/robots/kinova.urdf",
    "z1_description/urdf/z1.urdf",
    "xarm_description/urdf/xarm7.urdf",
    "asr_twodof_description/urdf/TwoDofs.urdf",
    "double_pendulum_description/urdf/double_pendulum.urdf",
)


def robot_file(number: int) -> Robot:
    """Return one of many robots: shipped ones, those of others where they are installed, random
    chains.
    """
    import warnings
    from pathlib import Path

    import thetahat as th
    from oracles.random_trees import ONE_DOF, random_robot
    from thetahat import robots

    kind, number = number % 3, number // 3
    if kind == 0:
        return th.load(robots.path(SHIPPED[number % len(SHIPPED)]))
    if kind == 1:
        folder = Path(np.__file__).parents[1] / "cmeel.prefix/share/example-robot-data/robots"
        file = folder / OTHERS[number % len(OTHERS)]
        if file.is_file():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                robot = th.load(file)
            return robot.projected() if not all(robot.consistency) else robot
    robot = random_robot(number, nodes=4 + number % 4, kinds=ONE_DOF, mimic=False, massless=False)
    return robot.with_gravity(9.81 * np.array(robot.gravity) / np.linalg.norm(robot.gravity))


def random_recorder(rng: np.random.Generator) -> Recorder:
    """Return a recorder as they are found: any rate, encoder, filter, jitter."""
    rate = float(rng.choice([50.0, 100.0, 125.0, 250.0, 500.0, 1000.0]))
    kinds: tuple[str, ...] = ("q", "tau")
    if rng.random() < 0.7:
        kinds = ("q", "dq", "tau") if rng.random() < 0.6 else ("q", "dq", "ddq", "tau")
    return Recorder(
        rate=rate,
        seconds=float(rng.uniform(8.0, 20.0)) if rate < 500.0 else 10.0,
        kinds=kinds,
        encoder=float(rng.choice([0.0, 1e-5, 1e-4, 5e-4, 1.5e-3])),
        position_noise=float(rng.choice([0.0, 1e-6, 1e-5])),
        velocity_filter=float(rng.choice([0.0, 0.0, 0.003, 0.01])),
        torque_noise=float(rng.choice([0.005, 0.02, 0.05])),
        torque_lag=float(rng.choice([0.0, 0.0, 0.002, 0.008])),
        jitter=float(rng.choice([0.0, 0.0, 0.2, 0.5])),
        speed=float(rng.uniform(0.5, 3.0)),
        amplitude=float(rng.choice([1.0, 1.0, 0.5, 0.1])),
    )


def random_truth(rng: np.random.Generator) -> Truth:
    """Return a robot as they are: its file wrong by up to half, friction, rotors."""
    return Truth(
        mass_error=float(rng.choice([0.1, 0.3, 0.5])),
        com_error=float(rng.choice([0.005, 0.02, 0.04])),
        friction=float(rng.choice([0.02, 0.2, 1.0, 3.0])),
        rotor=float(rng.choice([0.0, 0.1, 1.0])),
        payload=float(rng.choice([0.0, 0.0, 1.0])),
    )


def clean_recording(seed: int) -> Recording:
    """Return a log without a fault, the same for the same seed."""
    rng = np.random.default_rng([seed, 17])
    return record(robot_file(seed), random_recorder(rng), random_truth(rng), seed=seed)
