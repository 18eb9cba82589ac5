"""What the tests of uncertainty share: an arm on an exciting path, folded once; then only noise is
drawn anew.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from data_paths import example_robot
from scipy.signal import lfilter

import thetahat as th
from thetahat import robots
from thetahat.data.samples import Samples
from thetahat.identification.information import Information, information
from thetahat.identification.parameter_columns import Columns, full_regressor

PERIOD = 1e-3  # [s]
SHIPPED = ("double_pendulum", "arm4", "arm7")
Z95 = 1.959963984540054  # of a normal distribution, two-sided


def arm(name: str) -> th.Robot:
    robot = th.load(robots.path(name) if name in SHIPPED else example_robot(name))
    return robot.with_drive(viscous=True, coulomb=True, offset=True)


def path(
    robot: th.Robot, seconds: float, *, seed: int = 0, period: float = PERIOD
) -> tuple[np.ndarray, ...]:
    """(t, q, q̇, q̈) of five harmonics of 0.1 Hz per joint, as identification papers drive their
    robots [Swevers1997].
    """
    rng = np.random.default_rng(seed)
    t = period * np.arange(round(seconds / period))
    rates = 0.2 * np.pi * np.arange(1, 6)
    a, b = 0.6 * rng.normal(size=(2, 5, robot.nv))
    sine, cosine = np.sin(t[:, None] * rates), np.cos(t[:, None] * rates)
    return (
        t,
        sine @ a + cosine @ b,
        (cosine * rates) @ a - (sine * rates) @ b,
        -(sine * rates**2) @ a - (cosine * rates**2) @ b,
    )


def first_order(
    rng: np.random.Generator, shape: tuple[int, int], *, time: float, period: float = PERIOD
) -> np.ndarray:
    """Noise of unit variance with autocovariance exp(−t/time), stationary from the first row; time
    0: white.
    """
    white = rng.normal(size=shape)
    if not time:
        return white
    phi = np.exp(-period / time)
    white[1:] *= np.sqrt(1.0 - phi**2)
    return lfilter([1.0], [1.0, -phi], white, axis=0)


@dataclass(frozen=True, eq=False)
class Experiment:
    """A robot on a path; `with_noise` is what folding its samples with other torques would give,
    without folding them.
    """

    robot: th.Robot
    samples: Samples  # without noise

    @staticmethod
    def of(
        name: str, seconds: float = 10.0, *, reason: np.ndarray | None = None, seed: int = 0
    ) -> Experiment:
        robot = arm(name)
        t, q, dq, ddq = path(robot, seconds, seed=seed)
        return Experiment(
            robot,
            Samples(
                q=q, dq=dq, ddq=ddq, tau=th.inverse_dynamics(robot, q, dq, ddq), t=t, reason=reason
            ),
        )

    @cached_property
    def clean(self) -> Information:
        return information(self.robot, self.samples)

    @cached_property
    def rows(self) -> list[np.ndarray]:
        """Y_j in base columns, (samples, columns), rows that are not usable at zero."""
        Y = full_regressor(self.robot, self.samples.q, self.samples.dq, self.samples.ddq)[
            ..., self.clean.base.independent
        ]
        return [
            np.where(self.samples.valid[:, v, None], Y[:, v, p], 0.0)
            for v, p in enumerate(self.clean.positions)
        ]

    @cached_property
    def _bases(self) -> list[tuple[np.ndarray, np.ndarray]]:
        return [np.linalg.qr(Y) for Y in self.rows]

    @cached_property
    def truth(self) -> np.ndarray:
        return self.clean.base.map @ Columns(self.robot).x0

    def with_noise(self, noise: np.ndarray) -> tuple[Information, Samples]:
        tau = self.samples.tau + noise
        samples = replace(self.samples, tau=tau)
        factors = []
        for v, (Q, R) in enumerate(self._bases):
            u = np.where(self.samples.valid[:, v], tau[:, v], 0.0)
            z = Q.T @ u
            factor = np.zeros((len(R) + 1, len(R) + 1))
            factor[:-1, :-1], factor[:-1, -1] = R, z
            factor[-1, -1] = np.sqrt(max(u @ u - z @ z, 0.0))
            factors.append(factor)
        return replace(self.clean, factors=tuple(factors)), samples


def spread(robot: th.Robot) -> np.ndarray:
    """A noise level for every joint, unequal, as sensors are."""
    return 0.3 * np.geomspace(2.0, 0.3, robot.nv)


def share_covered(errors: np.ndarray, std: np.ndarray) -> np.ndarray:
    """Share of runs, per parameter, in which the 95 % interval holds the truth; (runs, p) each."""
    return np.mean(np.abs(errors) <= Z95 * std, axis=0)
