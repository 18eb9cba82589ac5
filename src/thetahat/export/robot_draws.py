"""Robots drawn from one result or several, and what each draw says of every parameter.

Draws of an identify result come from its posterior.npz: bodies and drives together, all physical.
Those of an actuators.json come from its `spread` (export/drive_draws.py); where another program
wrote it without, drives are independent Gaussians about the stated values, cut off at zero where
they cannot be negative. Several results are of units
of one robot: draw k is of unit k mod units.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from thetahat.errors import MalformedInput, UsageError, known
from thetahat.export.drive_draws import drawn_drives, with_drawn
from thetahat.export.simulator_model import (
    ACTUATORS,
    DRIVE,
    NEVER_NEGATIVE,
    UNITS,
    SimulatorModel,
    read_simulator_model,
)
from thetahat.identification.parameter_columns import Columns
from thetahat.identification.posterior_file import NAME, read_posterior
from thetahat.identification.read_estimate import stated_sensors
from thetahat.model import parameters
from thetahat.model.robot import Robot

RANGE_DRAWS = 2000  # that ranges are taken from, at least: a 95 % limit is then good to 0.07 σ
ATTEMPTS = 1000  # of a Gaussian that must not be negative
BODY = (  # name and unit of a body's ten numbers, about its centre of mass
    ("mass", "kg"),
    *((f"com_{axis}", "m") for axis in "xyz"),
    *((f"inertia_{pair}", "kg·m²") for pair in ("xx", "xy", "xz", "yy", "yz", "zz")),
)


class Parameter(NamedTuple):
    """One number of a robot."""

    name: str  # mass, com_x, …, viscous, …, kp, …
    of: str  # link or joint
    unit: str


@dataclass(frozen=True, eq=False)
class UnitDraws:
    """Draws of one unit: robots, and numbers of the loop around them."""

    model: SimulatorModel
    robot_at: Callable[[int], Robot]
    theta: np.ndarray  # (n, 10·bodies)
    drive: dict[tuple[str, str], np.ndarray]  # (n,) by term and joint
    loop: dict[tuple[str, str], np.ndarray]
    physical_share: float | None
    model_at: Callable[[int], SimulatorModel] | None = None  # with its drives, of actuators

    def column(self, parameter: Parameter) -> np.ndarray:
        """Return the draws of a parameter, (n,)."""
        key = parameter.name, parameter.of
        if key in self.loop:
            return self.loop[key]
        if key in self.drive:
            return self.drive[key]
        return np.full(len(self.theta), self.stated(parameter))

    def stated(self, parameter: Parameter) -> float:
        """Return the result's own value of a parameter of the drive or the loop; 0 without one."""
        drive, names = self.model.robot.drive, motor_names(self.model.robot)
        if parameter.name in drive.terms and parameter.of in names:
            return float(drive.value(parameter.name)[names.index(parameter.of)])
        joint = next((j for j in self.model.joints if j.name == parameter.of), None)
        return 0.0 if joint is None else joint.get(parameter.name) or 0.0

    @cached_property
    def bodies(self) -> np.ndarray:
        """Mass, centre and inertia about it of every draw's bodies, (n, bodies, 10)."""
        return body_numbers(self.theta)


def motor_names(robot: Robot) -> tuple[str, ...]:
    """Return the names of a robot's motors."""
    return robot.velocity_names if robot.drive.actuation is None else robot.drive.actuation.names


def body_numbers(theta: np.ndarray) -> np.ndarray:
    """Return mass, centre of mass and inertia about it (xx, xy, xz, yy, yz, zz), (…, bodies, 10)
    of θ, (…, 10·bodies).
    """
    mass, com, inertia = parameters.to_mass_com_inertia(theta.reshape(*theta.shape[:-1], -1, 10))
    upper = inertia[..., *np.triu_indices(3)]
    return np.concatenate([np.asarray(mass)[..., None], com, upper], axis=-1)


@dataclass(frozen=True, eq=False)
class RobotDraws:
    """Robots drawn from the results of one unit or several."""

    units: tuple[UnitDraws, ...]
    count: int  # robots asked for

    @property
    def robot(self) -> Robot:
        """The robot of the first unit."""
        return self.units[0].model.robot

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, k: int) -> Robot:
        return self.units[k % len(self.units)].robot_at(k // len(self.units))

    def simulator_model(self, k: int) -> SimulatorModel | None:
        """Return a draw as a simulator takes it; None where the robot's file holds all of it."""
        unit = self.units[k % len(self.units)]
        return None if unit.model_at is None else unit.model_at(k // len(self.units))

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Every number that is drawn, bodies first."""
        bodies = [
            Parameter(name, body, unit) for body in self.robot.body_names for name, unit in BODY
        ]
        more: dict[tuple[str, str], Parameter] = {}
        for unit in self.units:
            drive = unit.model.robot.drive
            for term, motor in unit.drive:
                made = Parameter(term, motor, drive.term(term).units[0])
                more.setdefault((term, motor), made)
            for term, joint in unit.loop:
                more.setdefault((term, joint), Parameter(term, joint, UNITS[term][0]))
        fixed = all(np.ptp(unit.theta, axis=0).max() == 0.0 for unit in self.units)
        return (*(() if fixed else bodies), *more.values())

    def values(self) -> np.ndarray:
        """Return all draws of all units, (draws, parameters), unit after unit in turn."""
        if not self.parameters:
            raise MalformedInput(
                f"no number of {self.units[0].model.file} spreads, so there is nothing to draw;"
                " identify again"
            )
        tables = [self._table(unit, self._bodies(unit.bodies)) for unit in self.units]
        return np.stack(tables, axis=1).reshape(-1, len(self.parameters))

    def estimates(self) -> np.ndarray:
        """Return each unit's own estimate, (units, parameters)."""
        rows = []
        for unit in self.units:
            bodies = self._bodies(body_numbers(unit.model.robot.theta[None]))[0]
            rest = [unit.stated(each) for each in self.parameters[len(bodies) :]]
            rows.append(np.concatenate([bodies, rest]))
        return np.array(rows)

    def spreads(self) -> np.ndarray:
        """Return the standard deviation of each unit's own draws, (units, parameters)."""
        tables = [self._table(unit, self._bodies(unit.bodies)) for unit in self.units]
        return np.array([np.std(table, axis=0) for table in tables])

    def _bodies(self, numbers: np.ndarray) -> np.ndarray:
        """Flatten the bodies' numbers; none where no body is drawn."""
        has = bool(self.parameters) and self.parameters[0].name == BODY[0][0]
        return numbers.reshape(len(numbers), -1) if has else np.zeros((len(numbers), 0))

    def _table(self, unit: UnitDraws, bodies: np.ndarray) -> np.ndarray:
        rest = self.parameters[bodies.shape[1] :]
        return np.column_stack([bodies, *(unit.column(each) for each in rest)])


def draw_robots(
    results: Sequence[Path], count: int, *, seed: int, robot: str | None = None, force: bool = False
) -> RobotDraws:
    """Draw so many robots from one result, or from several of units of the same robot."""
    models = [read_simulator_model(path, robot=robot, force=force) for path in results]
    first = models[0].robot
    for other in models[1:]:
        same = other.robot.body_names == first.body_names
        if not same or other.robot.velocity_names != first.velocity_names:
            raise UsageError(
                f"{other.file} is of another robot than {models[0].file}: joints"
                f" {known(other.robot.velocity_names)}; give results of units of one robot"
            )
    each = max(-(-count // len(models)), -(-RANGE_DRAWS // len(models)))
    units = [draw_unit(model, each, seed=seed + k) for k, model in enumerate(models)]
    return RobotDraws(tuple(units), count)


def draw_unit(model: SimulatorModel, count: int, *, seed: int) -> UnitDraws:
    """Draw robots of one result."""
    if model.schema == ACTUATORS:
        return _of_actuators(model, count, seed=seed)
    path = model.file.parent / NAME
    if sensors := stated_sensors(model.data):
        raise UsageError(
            f"{model.file} was identified with a wrist sensor on {known(sensors)}, and robots are"
            " drawn from joint torques alone; identify again with --joints and the joints' names"
        )
    if not path.is_file():
        method = str(model.data.get("method"))
        raise UsageError(
            f"{path} is missing, so {model.file} has no law to draw from (method {method!r});"
            " identify again with --method consistent"
        )
    law = read_posterior(path, model.robot)
    samples = law.draw(count, seed)
    columns = Columns(law.robot)
    pairs = columns.pairs[columns.inertial :]
    drive = {pair: samples.x[:, columns.inertial + k] for k, pair in enumerate(pairs)}
    drive = {pair: values for pair, values in drive.items() if np.ptp(values) > 0.0}
    return UnitDraws(model, samples.__getitem__, samples.theta, drive, {}, samples.physical_share)


def _of_actuators(model: SimulatorModel, count: int, *, seed: int) -> UnitDraws:
    """Draw drives and loops from their law, or as independent Gaussians about stated values."""
    draws = drawn_drives(model, count, seed=seed) or _independent(model, count, seed=seed)
    if not draws:
        raise MalformedInput(
            f"{model.file} states no standard deviation, so there is nothing to draw; identify the"
            " actuators again"
        )
    drive = {key: x for key, x in draws.items() if key[0] in DRIVE}
    loop = {key: x for key, x in draws.items() if key[0] not in DRIVE}

    def model_at(k: int) -> SimulatorModel:
        return with_drawn(model, draws, k)

    theta = np.tile(model.robot.theta, (count, 1))
    return UnitDraws(model, lambda k: model_at(k).robot, theta, drive, loop, None, model_at)


def _independent(
    model: SimulatorModel, count: int, *, seed: int
) -> dict[tuple[str, str], np.ndarray]:
    """Return draws of every stated number by itself, by term and joint."""
    rng = np.random.default_rng(seed)
    out: dict[tuple[str, str], np.ndarray] = {}
    for joint in model.joints:
        for term, value in joint.values.items():
            std = joint.std.get(term)
            if std is not None:
                positive = term in NEVER_NEGATIVE
                out[term, joint.name] = _gaussian(rng, value, std, count, positive=positive)
    return out


def _gaussian(
    rng: np.random.Generator, value: float, std: float, count: int, *, positive: bool
) -> np.ndarray:
    """Draw from a Gaussian, without its negative part where that cannot be."""
    drawn = value + std * rng.standard_normal(count)
    for _ in range(ATTEMPTS):
        wrong = positive & (drawn < 0.0)
        if not np.any(wrong):
            break
        drawn[wrong] = value + std * rng.standard_normal(int(np.sum(wrong)))
    return np.maximum(drawn, 0.0) if positive else drawn
