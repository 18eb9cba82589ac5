"""What the tests of online identification share: robots, motions, and measurements of them,
computed rather than simulated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from online_settings import settings
from plant_cases import sines, wrong_by

import thetahat as th
from thetahat import robots
from thetahat.online.identifier import OnlineIdentifier

FRICTION = {"viscous": True, "coulomb": True, "offset": True}


def arm(name: str = "arm4") -> th.Robot:
    """The true one, with friction of its own, all of which is to be identified."""
    return th.load(robots.path(name)).with_drive(**FRICTION)


def smooth(name: str = "arm4") -> th.Robot:
    """The same without dry friction: torques that never leap."""
    robot = th.load(robots.path(name))
    return replace(robot, drive=robot.drive.with_values(coulomb=np.zeros(robot.nv))).with_drive(
        viscous=True, offset=True
    )


def frictionless(name: str = "arm4") -> th.Robot:
    return th.load(robots.path(name)).without_drive()


def wrong(robot: th.Robot, fraction: float = 0.2, seed: int = 3) -> th.Robot:
    """A nominal robot: bodies off by up to a fraction, no friction known."""
    drive = {term: np.zeros(robot.nv) for term in ("viscous", "coulomb", "offset", "armature")}
    bodies = wrong_by(robot.without_drive(), fraction, seed).theta
    return replace(robot, theta=bodies, drive=robot.drive.with_values(**drive))


@dataclass(frozen=True, eq=False)
class Run:
    """A motion and its exact torques; iterating gives measurements."""

    t: np.ndarray
    q: np.ndarray
    dq: np.ndarray
    ddq: np.ndarray
    tau: np.ndarray

    def __len__(self) -> int:
        return len(self.t)

    def noisy(self, torque: float = 0.01, speed: float = 0.0, seed: int = 0) -> Run:
        """Torques with noise, as a share of each joint's RMS; speeds with noise [rad/s]."""
        rng = np.random.default_rng(seed)
        sigma = torque * np.sqrt(np.mean(self.tau**2, axis=0))
        return Run(
            self.t,
            self.q,
            self.dq + speed * rng.normal(size=self.dq.shape),
            self.ddq,
            self.tau + sigma * rng.normal(size=self.tau.shape),
        )

    def part(self, first: float, last: float) -> Run:
        inside = (self.t >= first) & (self.t < last)
        return Run(*(array[inside] for array in (self.t, self.q, self.dq, self.ddq, self.tau)))

    def rows(self) -> Iterator[tuple]:
        yield from zip(self.t.tolist(), self.q, self.dq, self.tau, self.ddq, strict=True)


def run(robot: th.Robot, seconds: float, *, rate: float = 200.0, seed: int = 5) -> Run:
    t = np.arange(round(seconds * rate)) / rate
    q, dq, ddq = sines(robot, seed=seed, duration=seconds).at(t)
    return Run(t, q, dq, ddq, th.inverse_dynamics(robot, q, dq, ddq))


def stopping(
    robot: th.Robot, seconds: float, *, rate: float = 200.0, seed: int = 5, over: float = 3.0
) -> Run:
    """The same motion, slowed down over the last seconds until it stands."""
    t = np.arange(round(seconds * rate)) / rate
    x = np.clip((t - (seconds - over)) / over, 0.0, 1.0)
    pace, change = 1.0 - x * x * (3.0 - 2.0 * x), -6.0 * x * (1.0 - x) / over
    phase = np.concatenate([[0.0], np.cumsum(0.5 * (pace[1:] + pace[:-1]) / rate)])
    q, dq, ddq = sines(robot, seed=seed, duration=seconds).at(phase)
    dq, ddq = dq * pace[:, None], ddq * (pace**2)[:, None] + dq * change[:, None]
    return Run(t, q, dq, ddq, th.inverse_dynamics(robot, q, dq, ddq))


def push_all(
    one: OnlineIdentifier, stream: Run, *, speeds: bool = True, exact: bool = False
) -> OnlineIdentifier:
    """exact: with accelerations as they are."""
    for t, q, dq, tau, ddq in stream.rows():
        one.push(t, q, dq if speeds or exact else None, tau, ddq if exact else None)
    return one


def exactly(robot: th.Robot, guess: object = None, **options: object) -> OnlineIdentifier:
    """An identifier that takes measurements as they are."""
    return OnlineIdentifier(
        robot, guess, **settings(**{"cutoff": None, "period": 0.005, **options})
    )


def near(a: np.ndarray, b: np.ndarray, tolerance: float) -> bool:
    return bool(np.max(np.abs(a - b)) <= tolerance * np.max(np.abs(b)))
