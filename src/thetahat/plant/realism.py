"""What tells a simulated robot from an ideal one: friction, sensors, delays, saturation, jitter, a
payload. All of it optional.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from thetahat.control.torque_limits import effort_limits
from thetahat.dynamics import configuration, rigid_body
from thetahat.errors import UsageError, is_number, known
from thetahat.model import parameters
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind
from thetahat.plant.friction import with_stribeck

# one value for all, or one per degree of freedom (per motor for friction and armature)
PerJoint = float | Sequence[float] | np.ndarray


@dataclass(frozen=True)
class Payload:
    """A body that appears, welded to a link, at a given time."""

    body: str  # a body of the robot, or a link welded into one
    mass: float  # [kg]
    com: tuple[float, float, float] = (0.0, 0.0, 0.0)  # [m] in the frame of that body or link
    # xx, xy, xz, yy, yz, zz about its centre [kg·m²]
    inertia_com: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    time: float = 0.0  # [s]

    def __post_init__(self) -> None:
        for name, size in (("com", 3), ("inertia_com", 6)):
            values = tuple(float(x) for x in getattr(self, name))
            if len(values) != size or not all(map(math.isfinite, values)):
                raise UsageError(
                    f"{name} of the payload is {getattr(self, name)!r}; give {size} finite numbers"
                )
            object.__setattr__(self, name, values)
        for name in ("mass", "time"):
            value = getattr(self, name)
            if not (is_number(value) and value >= 0.0):
                raise UsageError(f"{name} of the payload is {value!r}; give a finite number from 0")
        verdict = parameters.check(self.theta)
        if not verdict:
            raise UsageError(
                f"the payload can be no rigid body: {verdict.condition}; correct its mass and"
                " inertia"
            )

    @property
    def theta(self) -> np.ndarray:
        """Its ten numbers in the frame of the body or link it is on, (10,)."""
        xx, xy, xz, yy, yz, zz = self.inertia_com
        return parameters.from_mass_com_inertia(
            np.array(self.mass),
            np.array(self.com),
            np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]),
        )

    def on(self, robot: Robot) -> Robot:
        """The robot that carries it."""
        index = robot.body_index(self.body)
        theta = self.theta
        if self.body != robot.body_names[index]:
            link = next(link for link in robot.links if link.name == self.body)
            theta = parameters.transform(theta, link.rotation, link.translation)
        all_ = robot.theta.reshape(-1, 10).copy()
        all_[index] += theta
        return robot.with_parameters(all_.ravel())


def _check(
    config: object,
    names: Iterable[str],
    *,
    one: bool = False,
    positive: bool = False,
    signed: bool = False,
    finite: bool = True,
) -> None:
    """Check numbers of a frozen configuration, and turn arrays into tuples.

    one: one number, not one per joint. positive: above zero; signed: of any sign; else from zero.
    """
    for name in names:
        value = getattr(config, name)
        if value is None:
            continue
        try:
            array = np.array(value, dtype=float)
        except (TypeError, ValueError):
            raise UsageError(f"{name} is {value!r}; give a number, or one per joint") from None
        bad = ~np.isfinite(array) if finite else np.isnan(array)
        if isinstance(value, bool) or array.ndim > (0 if one else 1) or np.any(bad):
            per_joint = "" if one else ", or one per joint"
            raise UsageError(f"{name} is {value!r}; give a finite number{per_joint}")
        if not signed and np.any(array <= 0.0 if positive else array < 0.0):
            least = "above 0" if positive else "from 0"
            raise UsageError(f"{name} is {value!r}; give numbers {least}")
        plain = float(array) if array.ndim == 0 else tuple(array.tolist())
        object.__setattr__(config, name, plain)


@dataclass(frozen=True)
class DriveModel:
    """Friction and rotor inertia of every joint's (or motor's) drive; None: the robot's own."""

    viscous: PerJoint | None = None  # [N·m·s/rad or N·s/m]
    coulomb: PerJoint | None = None  # [N·m or N]
    stribeck: PerJoint | None = None  # [N·m or N], what breakaway needs beside Coulomb
    stribeck_speed: PerJoint = 0.05  # [rad/s or m/s]: at this speed 1/e of it is left
    armature: PerJoint | None = None  # [kg·m² or kg]

    def __post_init__(self) -> None:
        _check(self, ("viscous", "coulomb", "stribeck", "armature"))
        _check(self, ("stribeck_speed",), positive=True)


@dataclass(frozen=True)
class SensorModel:
    """Errors of encoders, speed and torque sensors.

    Encoder noise and quantisation are for one-DOF joints; a base's pose is measured exactly.
    """

    encoder_resolution: PerJoint = 0.0  # [rad or m] of a count; 0: continuous
    encoder_noise: PerJoint = 0.0  # [rad or m], standard deviation, before quantisation
    encoder_delay: float = 0.0  # [s] of positions and speeds
    speed_noise: PerJoint = 0.0  # [rad/s or m/s] of a speed sensor, standard deviation
    # [Hz]: speed is the low-passed difference of the measured positions; None: a speed sensor
    speed_cutoff: float | None = None
    torque_noise: PerJoint = 0.0  # [N·m or N], standard deviation
    torque_bias: PerJoint = 0.0  # [N·m or N]
    torque_delay: float = 0.0  # [s] of measured torques

    def __post_init__(self) -> None:
        _check(self, ("encoder_resolution", "encoder_noise", "speed_noise", "torque_noise"))
        _check(self, ("encoder_delay", "torque_delay"), one=True)
        _check(self, ("speed_cutoff",), one=True, positive=True)
        _check(self, ("torque_bias",), signed=True)


@dataclass(frozen=True)
class Realism:
    """What tells a plant from an ideal robot; the default adds nothing to the robot, whose own
    friction and rotors are there in any case.
    """

    drive: DriveModel = DriveModel()
    sensors: SensorModel = SensorModel()
    command_delay: float = 0.0  # [s] from a command to the torque it asks for
    # True: the effort limits of the robot's file; or limits [N·m or N]
    saturation: bool | PerJoint = False
    jitter: float = 0.0  # [s] of the control period, standard deviation
    payload: Payload | None = None
    # whether speeds are logged; None: those of a sensor, not low-passed differences, which lag
    # behind the positions
    log_speed: bool | None = None

    def __new__(cls, *args: object, **keywords: object) -> Realism:
        """Name the new place of keywords that moved into configuration objects."""
        for place, kind in (("drive", DriveModel), ("sensors", SensorModel)):
            for name in keywords.keys() & {field.name for field in fields(kind)}:
                raise UsageError(
                    f"{name} is not a parameter any more; write {place}={kind.__name__}({name}=…),"
                    " from thetahat.plant.realism"
                )
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for name, kind in (("drive", DriveModel), ("sensors", SensorModel)):
            if not isinstance(getattr(self, name), kind):
                raise UsageError(
                    f"{name} is {getattr(self, name)!r}; give a {kind.__name__} of"
                    " thetahat.plant.realism"
                )
        _check(self, ("command_delay", "jitter"), one=True)
        if not isinstance(self.saturation, bool):
            _check(self, ("saturation",), positive=True, finite=False)
        if not isinstance(self.payload, Payload | None):
            raise UsageError(
                f"payload is {self.payload!r}; give a Payload(body, mass, com, inertia_com, time)"
            )
        if not isinstance(self.log_speed, bool | None):
            raise UsageError(f"log_speed is {self.log_speed!r}; give True, False or None")

    @property
    def logs_speed(self) -> bool:
        """Whether a log has dq columns."""
        return self.sensors.speed_cutoff is None if self.log_speed is None else self.log_speed

    # -- what it makes of a robot ------------------------------------------------------------------

    def applied(self, robot: Robot) -> Robot:
        """The robot as the plant has it: with this friction and these rotors, Stribeck as a drive
        term of that name; without payload.
        """
        drive, what = robot.drive, "motor" if robot.drive.actuation else "joint"
        motors = len(drive.viscous)
        # one value for all is for joints, not for the base they stand on
        driven = one_dof(robot) if drive.actuation is None else np.ones(motors)

        def values(name: str) -> np.ndarray:
            value = getattr(self.drive, name)
            return spread(name, value, motors, what) * (driven if np.ndim(value) == 0 else 1.0)

        terms = ("viscous", "coulomb", "armature")
        given = [name for name in terms if getattr(self.drive, name) is not None]
        drive = drive.with_values(**{name: values(name) for name in given})
        if self.drive.stribeck is not None:
            speed = spread("stribeck_speed", self.drive.stribeck_speed, motors, what)
            drive = with_stribeck(drive, values("stribeck"), speed)
        return replace(robot, drive=drive)

    def limits(self, robot: Robot) -> np.ndarray | None:
        """The largest joint torque of every degree of freedom, (nv,), or None."""
        if self.saturation is False:
            return None
        if self.saturation is not True:
            return spread("saturation", self.saturation, robot.nv, "joint")
        return effort_limits(robot, "saturation")

    @staticmethod
    def typical(robot: Robot, *, seed: int = 0) -> Realism:
        """A robot as they come: 18-bit encoders, dry and viscous friction of some per cent of its
        torques, noise of one, a millisecond of delay.

        Torques are measured against the largest gravity torque over random configurations plus that
        of an acceleration of 1 rad/s² (or m/s²). Friction that the robot's file states is kept.
        """
        q = configuration.random_configuration(robot, np.random.default_rng(seed), 200)
        inertia = np.mean(np.einsum("...ii->...i", rigid_body.mass_matrix(robot, q)), axis=0)
        scale = np.max(np.abs(rigid_body.gravity(robot, q)), axis=0) + inertia
        turns = np.array(
            [
                node.kind is not JointKind.PRISMATIC
                for node in robot.tree.independent
                for _ in range(node.kind.nv)
            ]
        )
        drive, size = robot.drive, scale * one_dof(robot)
        stated = drive.actuation is not None or np.any(drive.viscous) or np.any(drive.coulomb)
        added = DriveModel(viscous=0.03 * size, coulomb=0.04 * size, stribeck=0.02 * size)
        sensors = SensorModel(
            encoder_resolution=np.where(turns, 2.0 * np.pi / 2**18, 1e-5),
            speed_cutoff=100.0,
            torque_noise=0.01 * scale,
        )
        own = DriveModel() if stated else added
        return Realism(own, sensors, command_delay=1e-3, jitter=2e-5)


def one_dof(robot: Robot) -> np.ndarray:
    """1 for every degree of freedom that is a joint of its own, 0 for those of planar, ball and
    free joints, (nv,).
    """
    return np.array(
        [float(node.kind.nv == 1) for node in robot.tree.independent for _ in range(node.kind.nv)]
    )


def spread(name: str, value: PerJoint, count: int, what: str) -> np.ndarray:
    """A value for each of `count` joints."""
    array = np.asarray(value, dtype=float)
    if array.ndim and array.shape != (count,):
        raise UsageError(f"{name} has {len(array)} values; give one, or {count}: one per {what}")
    return np.broadcast_to(array, (count,)).copy()


def require_body(realism: Realism, robot: Robot) -> None:
    """Refuse a payload on a body that is not there."""
    if realism.payload is not None and realism.payload.body not in (
        *robot.body_names,
        *(link.name for link in robot.links if link.body >= 0),
    ):
        raise UsageError(
            f"payload body {realism.payload.body!r} is not in robot {robot.name!r}; bodies:"
            f" {known(robot.body_names)}"
        )
