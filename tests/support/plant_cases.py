"""What the tests of plants share: motions inside the limits of a robot, robots, engines, and the
path from a simulation to a score.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_paths import example_robot, shared_file

import thetahat as th
from thetahat import robots
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind, Node, Tree
from thetahat.plant.plant import MujocoPlant, OwnPlant, Plant
from thetahat.plant.realism import DriveModel, Realism, SensorModel
from thetahat.plant.simulate import Recording, simulate
from thetahat.plant.tracking import Tracking

FREQUENCIES = np.array([0.11, 0.23, 0.41, 0.67, 0.97])  # [Hz]
MAX_SPEED = 2.0  # [rad/s or m/s]


def engine(name: str) -> type[Plant]:
    """A plant by the name of its engine; skips the test where MuJoCo is not installed."""
    if name == "mujoco":
        pytest.importorskip("mujoco", reason="the extra 'mujoco' is not installed")
    return {"own": OwnPlant, "mujoco": MujocoPlant}[name]


both_engines = pytest.mark.parametrize("plant", ["own", "mujoco"])


@dataclass(frozen=True, eq=False)
class Sines:
    """A sum of sines per joint, inside position and velocity limits."""

    duration: float
    centre: np.ndarray  # (nv,)
    a: np.ndarray  # (nv, frequencies)
    phase: np.ndarray  # (nv, frequencies)
    w = 2.0 * np.pi * FREQUENCIES

    def at(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        x = np.asarray(t)[:, None, None] * self.w + self.phase
        return (
            self.centre + np.sum(self.a * np.sin(x), axis=2),
            np.sum(self.a * self.w * np.cos(x), axis=2),
            np.sum(-self.a * self.w**2 * np.sin(x), axis=2),
        )


def sines(robot: Robot, *, seed: int, duration: float) -> Sines:
    """A motion by hand: random amplitudes and phases, scaled into 90 % of the limits by
    their sum.
    """
    rng = np.random.default_rng(seed)
    limits = [node.limits for node in robot.tree.independent]
    lower, upper = (np.array([getattr(x, name) for x in limits]) for name in ("lower", "upper"))
    bounded = np.isfinite(lower) & np.isfinite(upper)
    slides = np.array([node.kind is JointKind.PRISMATIC for node in robot.tree.independent])
    half = np.minimum(0.5 * (upper - lower), np.where(slides, 0.3, 1.5))
    centre = 0.5 * (np.where(bounded, lower, 0.0) + np.where(bounded, upper, 0.0))
    speed = np.minimum(
        [x.velocity if x.velocity > 0.0 else np.inf for x in limits],
        np.where(slides, 0.5, MAX_SPEED),
    )
    a = (
        rng.uniform(0.3, 1.0, (robot.nv, len(FREQUENCIES)))
        * rng.choice([-1.0, 1.0], (robot.nv, len(FREQUENCIES)))
        / FREQUENCIES**0.7
    )
    size, rate = np.sum(np.abs(a), axis=1), np.sum(np.abs(a) * Sines.w, axis=1)
    a *= 0.9 * np.minimum(half / size, speed / rate)[:, None]
    return Sines(duration, centre, a, rng.uniform(0.0, 2.0 * np.pi, a.shape))


def robot_path(name: str) -> Path:
    if name in robots.names():
        return robots.path(name)
    if name.startswith("valkyrie_"):
        return shared_file("robots", "valkyrie", f"derived_{name}.urdf")
    return example_robot(name)


def load(name: str) -> Robot:
    return th.load(robot_path(name))


def wrong_by(robot: Robot, fraction: float, seed: int) -> Robot:
    """The robot with every body heavier or lighter by up to a fraction: physical, and what a data
    sheet might say.
    """
    scale = np.random.default_rng(seed).uniform(
        1.0 - fraction, 1.0 + fraction, len(robot.body_names)
    )
    return robot.with_parameters((robot.theta.reshape(-1, 10) * scale[:, None]).ravel())


def one_joint(
    inertia: float = 0.5,
    *,
    gravity: float = 0.0,
    mass: float = 1.0,
    length: float = 0.0,
    drive: dict | None = None,
) -> Robot:
    """A joint about the horizontal y axis that carries one body, its centre `length` below the
    axis.
    """
    from thetahat.model.drive import Drive
    from thetahat.model.parameters import from_mass_com_inertia

    node = Node(
        "hinge", JointKind.REVOLUTE, -1, np.eye(3), np.zeros(3), np.array([0.0, 1.0, 0.0]), "bob"
    )
    about_centre = inertia - mass * length**2
    theta = from_mass_com_inertia(
        np.array(mass), np.array([0.0, 0.0, -length]), about_centre * np.diag([1.0, 1.0, 1.0])
    )
    values = {name: np.array([value]) for name, value in (drive or {}).items()}
    return Robot(
        "pendulum",
        Tree((node,)),
        theta,
        replace(Drive.none(1), **values),
        gravity=np.array([0.0, 0.0, -gravity]),
    )


def scored(
    truth: Robot, plant: type[Plant], realism: Realism, *, seconds: float, seed: int = 0
) -> tuple[np.ndarray, th.Estimate, Recording]:
    """Simulate, prepare, identify from a wrong nominal robot, and score on another motion: R² per
    joint, the estimate, the recording.
    """
    nominal = wrong_by(truth, 0.3, seed + 10)
    body = plant(truth, realism=realism)
    controller = Tracking(nominal)
    runs = [
        simulate(
            body,
            sines(truth, seed=seed + k, duration=seconds),
            controller=controller,
            seed=seed + k,
        )
        for k in (0, 1)
    ]
    robot = nominal.without_drive().with_drive(viscous=True, coulomb=True, offset=True)
    train = th.prepare(runs[0].log, robot)
    test = th.prepare(runs[1].log, robot)
    estimate = th.solve(th.information(robot, train), th.Consistent(), samples=train)
    return (
        np.ma.filled(th.validate(robot.with_parameters(estimate), test).r2, np.nan),
        estimate,
        runs[0],
    )


def realistic(**options: Any) -> Realism:
    """A `Realism` from the fields of its parts: those of the drive and the sensors are put into
    them.
    """
    parts = {}
    for name, kind in (("drive", DriveModel), ("sensors", SensorModel)):
        own = {field.name for field in fields(kind)} & options.keys()
        parts[name] = kind(**{key: options.pop(key) for key in own})
    return Realism(**parts, **options)
