"""A clean stream of an arm, for faults to be put into."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import numpy as np
from online_settings import settings
from plant_cases import sines, wrong_by

import thetahat as th
from thetahat import robots
from thetahat.online.identifier import OnlineIdentifier

PERIOD = 4e-3  # [s]
SECONDS = 12.0
WARM = 6.0  # [s] by which the gate of the clean stream is open
RATE, WINDOW = 10.0, 50  # five seconds to fill
NOISE = 0.01  # of each joint's RMS torque
MISS = object()  # a cycle without a sample


@dataclass
class Stream:
    """Cycles: (t, q, dq, tau), or MISS; what the robot truly is from each cycle on."""

    robot: th.Robot  # nominal
    truth: th.Robot
    cycles: list = field(default_factory=list)
    changed: tuple[int, th.Robot] | None = None

    def truth_at(self, k: int) -> th.Robot:
        return self.truth if self.changed is None or k < self.changed[0] else self.changed[1]


@cache
def truth() -> th.Robot:
    return th.load(robots.path("arm4"))


@cache
def nominal() -> th.Robot:
    return (
        wrong_by(truth(), 0.2, 3)
        .without_drive()
        .with_drive(viscous=True, coulomb=True, offset=True)
    )


@cache
def motion() -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    t = PERIOD * np.arange(round(SECONDS / PERIOD))
    return t, sines(truth(), seed=5, duration=SECONDS).at(t)


@cache
def sigma() -> np.ndarray:
    _, (q, dq, ddq) = motion()
    return NOISE * np.sqrt(np.mean(th.inverse_dynamics(truth(), q, dq, ddq) ** 2, axis=0))


def clean(seed: int, *, stream_truth: th.Robot | None = None) -> Stream:
    """The stream without faults: encoders of 18 bits, speeds with noise of 2e-3, torques of one per
    cent.
    """
    rng = np.random.default_rng(seed)
    t, (q, dq, ddq) = motion()
    own = stream_truth or truth()
    tau = th.inverse_dynamics(own, q, dq, ddq) + sigma() * rng.normal(size=q.shape)
    count = 2.0 * np.pi / 2**18
    q = count * np.round(q / count)
    dq = dq + 2e-3 * rng.normal(size=q.shape)
    return Stream(nominal(), truth(), [(float(t[k]), q[k], dq[k], tau[k]) for k in range(len(t))])


def identifier(**options: object) -> OnlineIdentifier:
    return OnlineIdentifier(
        nominal(),
        rate=RATE,
        window=WINDOW,
        **settings(period=PERIOD, dwell=0.5, refit_interval=2.0, **options),
    )
