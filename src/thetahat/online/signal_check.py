"""Signals against each other: speeds with the change of positions, measured torques with commanded
ones.

What is compared is taken at every score of the identifier (30 times a second), and forgotten within
some seconds:

    dq      a = Σ (Δq/Δt) q̇ / Σ q̇²             below 0.75 or above 1.33: speeds or stamps are scaled
    scale   m = a c + b, correlation above 0.9   a below 1/2 or above 2
    sign    correlation of m and c below −0.7
    gravity m is nearer to c − G(q) than to c, ten times
    channel m follows another joint's command (0.95), and not its own (0.5)

m is the measured torque of a joint, c the one commanded to it, G the nominal robot's.
"""

from __future__ import annotations

import numpy as np

FORGET = 5.0  # [s] in which a comparison fades
LEAST = 40  # comparisons, before anything is said
SLOW, FAST = 0.75, 1.33
SCALED = 2.0
FOLLOWS, AGAINST, OTHER, OWN = 0.9, -0.7, 0.95, 0.5
WITHOUT_GRAVITY = 0.1  # of the squared difference to c that is left to c − G
LIVELY = 0.02  # of the largest joint's spread of commands, below which a joint is not compared


class SpeedCheck:
    """Compares speeds with the change of positions over the time that the stamps say."""

    def __init__(self, names: tuple[str, ...], min_speed: np.ndarray) -> None:
        self._names, self._min_speed = names, min_speed
        self.reset()

    def reset(self) -> None:
        """Begin anew: after a gap, or of another stream."""
        n = len(self._names)
        self._before: tuple[float, np.ndarray, np.ndarray] | None = None
        self._cross, self._square, self._count = np.zeros(n), np.zeros(n), np.zeros(n)

    def add(self, t: float, q: np.ndarray, dq: np.ndarray) -> None:
        """A filtered sample of one-DOF joints, (nv,) each."""
        if self._before is not None:
            dt = t - self._before[0]
            if 0.0 < dt <= 0.5:
                keep = np.exp(-dt / FORGET)
                mean = 0.5 * (dq + self._before[2])
                moving = np.abs(mean) > self._min_speed
                rate = (q - self._before[1]) / dt
                moving &= np.abs(rate - mean) < 10.0 * np.abs(mean)  # a turn counted once
                self._cross = keep * self._cross + np.where(moving, rate * mean, 0.0)
                self._square = keep * self._square + np.where(moving, mean * mean, 0.0)
                self._count = keep * self._count + moving
        self._before = t, q.copy(), dq.copy()

    @property
    def sentence(self) -> str:
        """What is wrong, "" where nothing is."""
        ratio = self._cross / np.where(self._square > 0.0, self._square, 1.0)
        far = (self._count > LEAST) & ((ratio < SLOW) | (ratio > FAST))
        if not np.any(far):
            return ""
        v, every = int(np.argmax(far)), bool(np.all(far[self._count > LEAST]))
        what = "the speeds or the time stamps" if every else "its speed"
        return (
            f"the position of joint {self._names[v]!r} changes {ratio[v]:.2g} times as fast as its"
            f" speed says; check the unit of {what}"
        )


class TorqueCheck:
    """Compares measured torques with those commanded: `add` every cycle, `tick` with the
    `latest` now and then.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        n = len(names)
        self._latest: tuple[np.ndarray, np.ndarray] | None = None
        self._t = np.nan
        self._weight, self._count = 0.0, 0
        self._mean = np.zeros((3, n))  # of commanded, measured, gravity
        self._second = np.zeros((3 * n, 3 * n))

    def add(self, commanded: np.ndarray, measured: np.ndarray) -> None:
        """A cycle: (nv,) each [N·m or N]."""
        self._latest = commanded, measured

    def latest(self) -> np.ndarray | None:
        """(2, nv) commanded and measured in the last cycle; None where there was none."""
        latest, self._latest = self._latest, None
        return None if latest is None else np.array(latest, dtype=float)

    def tick(self, t: float, torques: np.ndarray, gravity: np.ndarray) -> None:
        """Compare commanded and measured torques (2, nv); gravity: (nv,) [N·m or N]."""
        row = np.concatenate([torques.ravel(), gravity])
        dt, self._t = t - self._t, t
        if not (np.all(np.isfinite(row)) and dt > 0.0):
            return
        keep = float(np.exp(-min(dt, FORGET) / FORGET))
        self._weight = keep * self._weight + 1.0
        self._mean = keep * self._mean + row.reshape(3, -1)
        self._second = keep * self._second + np.outer(row, row)
        self._count += 1

    @property
    def sentence(self) -> str:
        """What is wrong, "" where nothing is."""
        n = len(self._names)
        if self._count < LEAST or self._weight < 0.5 * LEAST:
            return ""
        mean = self._mean.ravel() / self._weight
        covariance = self._second / self._weight - np.outer(mean, mean)
        spread = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        c, m = spread[:n], spread[n : 2 * n]
        lively = (c > LIVELY * np.max(c)) & (c > 0.0)
        scale = np.where(spread > 0.0, spread, 1.0)
        correlation = covariance / np.outer(scale, scale)
        cross = correlation[n : 2 * n, :n]  # of measured (rows) with commanded
        own = np.diag(cross)
        slope = np.diag(covariance[n : 2 * n, :n]) / np.where(c > 0.0, c * c, 1.0)
        for v in map(int, np.flatnonzero(lively)):
            name = self._names[v]
            if own[v] < AGAINST:
                return (
                    f"the measured torque of joint {name!r} runs against the commanded one"
                    f" (correlation {own[v]:.2f}); check its sign"
                )
            if self._without_gravity(v, n):
                return (
                    f"the measured torque of joint {name!r} is the commanded one without gravity;"
                    " use the torque of the joint, not the part beyond gravity compensation"
                )
            others = np.where(lively, cross[v], 0.0)
            others[v] = 0.0
            w = int(np.argmax(others))
            if others[w] > OTHER and own[v] < OWN and m[v] > 0.0:
                return (
                    f"the measured torque of joint {name!r} follows the command of joint"
                    f" {self._names[w]!r}; check the order of the channels"
                )
            if own[v] > FOLLOWS and not 1.0 / SCALED <= slope[v] <= SCALED:
                return (
                    f"the measured torque of joint {name!r} is {slope[v]:.2g} times the commanded"
                    " one; check its unit and calibration"
                )
        return ""

    def _without_gravity(self, v: int, n: int) -> bool:
        """Whether measured torques are nearer to commanded less gravity than to commanded."""
        S, weight = self._second, self._weight

        def square(a: dict[int, float]) -> float:
            return sum(x * y * float(S[i, j]) for i, x in a.items() for j, y in a.items()) / weight

        plain = square({n + v: 1.0, v: -1.0})
        without = square({n + v: 1.0, v: -1.0, 2 * n + v: 1.0})
        gravity = square({2 * n + v: 1.0})
        return plain > 0.25 * gravity > 0.0 and without < WITHOUT_GRAVITY * plain
