"""The columns of a robot's regressor: ten per body, then one per motor for every drive term to be
identified.

    τ = [Y | Y_drive]·x
    x = [θ (10·bodies) ; drive terms, grouped by term in the order of the drive, one per motor]
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from thetahat.dynamics import batch, rigid_body
from thetahat.dynamics.contact_projection import eliminates_forces, mixed_dofs
from thetahat.errors import UsageError
from thetahat.model import parameters
from thetahat.model.drive import Drive
from thetahat.model.robot import Robot
from thetahat.model.tree import ANGULAR, END_COLUMN, FIRST_COLUMN, V_INDEX

# in the order of θ
_UNITS = "kg·m²", "kg·m²", "kg·m²", "kg·m", "kg·m", "kg·m²", "kg·m²", "kg·m", "kg·m²", "kg"


@dataclass(frozen=True, eq=False)
class Columns:
    """Names, units and structure of x, and the way between x and a robot."""

    robot: Robot

    @property
    def drive(self) -> Drive:
        """The robot's drive, whose identified terms are columns."""
        return self.robot.drive

    @property
    def inertial(self) -> int:
        """How many columns belong to bodies; they come first."""
        return len(self.robot.theta)

    @property
    def count(self) -> int:
        """How many columns there are."""
        return self.inertial + self.drive.column_count

    def __len__(self) -> int:
        return self.count

    @cached_property
    def is_inertial(self) -> np.ndarray:
        """Which columns belong to bodies, (count,) bool."""
        return np.arange(self.count) < self.inertial

    @cached_property
    def motor_names(self) -> tuple[str, ...]:
        """Names of the motors whose parameters are columns."""
        names = (
            self.robot.velocity_names
            if self.drive.actuation is None
            else self.drive.actuation.names
        )
        return tuple(names[k] for k in self.drive.column_motors)

    @cached_property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """(parameter, body) or (term, motor) of every column."""
        bodies = [(name, body) for body in self.robot.body_names for name in parameters.NAMES]
        return (
            *bodies,
            *((term, motor) for term in self.drive.identified for motor in self.motor_names),
        )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """A name per column: Ixx_<body>, …, viscous_<motor>, …"""
        return tuple(f"{name}_{owner}" for name, owner in self.pairs)

    @cached_property
    def units(self) -> tuple[str, ...]:
        """A unit per column."""
        slides = self.sliding_motors
        bodies = len(self.robot.tree.bodies)
        return (
            *(_UNITS * bodies),
            *(
                self.drive.term(term).units[int(s)]
                for term in self.drive.identified
                for s in slides
            ),
        )

    @cached_property
    def sliding_motors(self) -> np.ndarray:
        """Which motors with columns drive sliding joints alone."""
        angular = np.ones(self.robot.nv, dtype=bool)
        dofs = self.robot.tree.arrays.dofs
        angular[dofs[:, V_INDEX]] = dofs[:, ANGULAR] == 1
        touches = (
            np.eye(self.robot.nv, dtype=bool)
            if self.drive.actuation is None
            else self.drive.actuation.touches()
        )
        return np.asarray(
            ~np.any(touches & angular[:, None], axis=0)[list(self.drive.column_motors)]
        )

    @cached_property
    def touches(self) -> np.ndarray:
        """Which entries of a sample's regressor can differ from zero, (nv, count) bool."""
        out = np.zeros((self.robot.nv, self.count), dtype=bool)
        for dof in self.robot.tree.arrays.dofs:
            out[dof[V_INDEX], dof[FIRST_COLUMN] : dof[END_COLUMN]] = True
        if self.drive.column_count:
            B = (
                np.eye(self.robot.nv, dtype=bool)
                if self.drive.actuation is None
                else self.drive.actuation.touches()
            )
            out[:, self.inertial :] = np.tile(
                B[:, list(self.drive.column_motors)], len(self.drive.identified)
            )
        return out

    @cached_property
    def fitted(self) -> np.ndarray:
        """Which entries of a sample's fitted rows can differ from zero, (nv, count) bool: where
        contact forces are eliminated, the rows of base and legs have each other's.
        """
        if not eliminates_forces(self.robot):
            return self.touches
        out, mixed = self.touches.copy(), mixed_dofs(self.robot)
        out[mixed] = self.touches[mixed].any(axis=0)
        return out

    @cached_property
    def of_position(self) -> np.ndarray:
        """Positions in x of springs, which gravity's columns can stand for."""
        springs = {shape.term for shape, _ in self.drive.extra if shape.of_position}
        drive = enumerate(self.pairs[self.inertial :], start=self.inertial)
        return np.array([k for k, (name, _) in drive if name in springs], dtype=int)

    # -- values ------------------------------------------------------------------------------------

    @cached_property
    def x0(self) -> np.ndarray:
        """The robot's own values, (count,)."""
        motors = list(self.drive.column_motors)
        return np.concatenate(
            [self.robot.theta, *(self.drive.value(term)[motors] for term in self.drive.identified)]
        )

    def split(self, x: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """(θ, {term: values per motor with columns}) of x."""
        x = np.asarray(x, dtype=float)
        if x.shape != (self.count,):
            raise UsageError(
                f"x has shape {x.shape}; robot {self.robot.name!r} has {self.count} columns,"
                f" {self.inertial} of them inertial"
            )
        parts = x[self.inertial :].reshape(
            len(self.drive.identified), len(self.drive.column_motors)
        )
        return x[: self.inertial], dict(zip(self.drive.identified, parts, strict=True))

    def apply(self, x: np.ndarray) -> Robot:
        """The robot with these parameters; drive terms that are not columns keep their values."""
        self.split(x)
        return self.robot.with_parameters(np.asarray(x, dtype=float))

    # -- entries -----------------------------------------------------------------------------------

    def drive_columns(
        self, q: np.ndarray, dq: np.ndarray, ddq: np.ndarray, *, load: np.ndarray | None = None
    ) -> np.ndarray:
        """Return Y_drive, (…, nv, drive columns). load: rigid-body torque, where needed."""
        q, dq, ddq = batch.check_state(self.robot, q, dq, ddq)
        return self.drive.columns(dq, ddq, q=q, load=load)


def prior_vector(robot: Robot, fitted: Robot) -> np.ndarray:
    """Return what a robot file says of every column of a fitted robot, (columns,).

    x₀ = [θ ; drive terms, one per motor with columns]

    Friction and rotor inertia are nonnegative, and zero where the file is silent; a spring has
    either sign. Files state the friction of joints, not of motors that drive several of them: drive
    terms are zero under an actuation map.

    Args:
        robot: states the values; has the bodies and joints of `fitted`.
        fitted: defines the columns.
    """
    columns = Columns(fitted)
    drive = columns.drive
    if len(robot.theta) != columns.inertial or robot.nv != fitted.nv:
        raise UsageError(
            f"robot {robot.name!r} has {len(robot.theta)} inertial parameters and {robot.nv}"
            f" degrees of freedom, the fitted one {columns.inertial} and {fitted.nv}; give a"
            " variant of the same robot"
        )
    if drive.actuation is not None:
        return np.concatenate([robot.theta, np.zeros(columns.count - columns.inertial)])
    motors = list(drive.column_motors)
    stated = []
    for term in drive.identified:
        known = term in robot.drive.terms
        value = robot.drive.value(term)[motors] if known else np.zeros(len(motors))
        stated.append(value if drive.term(term).of_position else np.maximum(value, 0.0))
    return np.concatenate([robot.theta, *stated])


def full_regressor(
    robot: Robot, q: np.ndarray, dq: np.ndarray, ddq: np.ndarray, *, load: np.ndarray | None = None
) -> np.ndarray:
    """Return [Y | Y_drive], (…, nv, columns), which `information` folds without storing it."""
    return np.concatenate(
        [
            rigid_body.regressor(robot, q, dq, ddq),
            Columns(robot).drive_columns(q, dq, ddq, load=load),
        ],
        axis=-1,
    )
