"""Signals against each other: speeds with the change of positions, measured torques with commanded
ones.

What is compared is taken at every score of the identifier (30 times a second), and forgotten within
some seconds:

    dq      a = Σ (Δq/Δt) q̇ / Σ q̇²             a below 1/1.15 or above 1.15
    sign    correlation ρ of m and c below −0.7
    gravity m is nearer to c − G(q) than to c, four times
    channel m follows another joint's command (0.95), and not its own (0.5)
    scale   m = a c + b + f sign q̇, ρ above 0.9  a below ρ²/1.15 or above 1.15 (ρ without b and f)
    offset  m − c, mean over both directions     beyond a quarter of the RMS of c

m is the measured torque of a joint, c the one commanded to it, G the nominal robot's. A model of m
is used to compute c, so what scales m against c is an error of that size in every command. Friction
between motor and sensor is f, and has another sign each way, so that it is no offset; what else is
lost there, independent of m, makes a = ρ², no less.
"""

from __future__ import annotations

import numpy as np

FORGET = 5.0  # [s] in which a comparison fades
LEAST = 40  # comparisons, before anything is said
LEAST_WAY = 10.0  # of them each way, before anything is said about an offset
TOLERANCE = 1.15  # of a scale
FOLLOWS, AGAINST, OTHER, OWN = 0.9, -0.7, 0.95, 0.5
WITHOUT_GRAVITY = 0.25  # of the squared difference to c that is left to c − G
LEFT = 0.1  # of the variance of c that is no dry friction, for its scale to be judged
OFFSET = 0.25  # of the RMS of c
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
        far = (self._count > LEAST) & ((ratio < 1.0 / TOLERANCE) | (ratio > TOLERANCE))
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
        self._latest: np.ndarray | None = None
        self.due = True  # whether the next cycle is to be compared
        self._t = np.nan
        self._weight, self._count = 0.0, 0
        self._mean = np.zeros((4, n))  # of commanded, measured, gravity, direction
        self._second = np.zeros((4 * n, 4 * n))
        # of m − c while a joint moves forwards and backwards: sums and weights
        self._ways = np.zeros((2, 2, n))

    def add(self, commanded: np.ndarray, measured: np.ndarray) -> None:
        """A cycle: (nv,) each [N·m or N]."""
        if self.due:
            self._latest, self.due = np.array((commanded, measured), dtype=float), False

    def latest(self) -> np.ndarray | None:
        """(2, nv) commanded and measured in a cycle since the last call; None where there was
        none.
        """
        latest, self._latest, self.due = self._latest, None, True
        return latest

    def tick(self, t: float, torques: np.ndarray, gravity: np.ndarray, dq: np.ndarray) -> None:
        """Compare commanded and measured torques (2, nv); gravity: (nv,) [N·m or N], dq: (nv,)."""
        row = np.concatenate([torques.ravel(), gravity, np.sign(dq)])
        dt, self._t = t - self._t, t
        if not (np.all(np.isfinite(row)) and dt > 0.0):
            return
        keep = float(np.exp(-min(dt, FORGET) / FORGET))
        self._weight = keep * self._weight + 1.0
        self._mean = keep * self._mean + row.reshape(4, -1)
        self._second = keep * self._second + np.outer(row, row)
        way = np.array([dq > 0.0, dq < 0.0], dtype=float)
        self._ways = keep * self._ways + np.array([way * (torques[1] - torques[0]), way])
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
        lively = (spread[:n] > LIVELY * np.max(spread[:n])) & (spread[:n] > 0.0)
        for v in map(int, np.flatnonzero(lively)):
            sentence = self._judge(v, covariance, spread, lively)
            if sentence:
                return sentence
        return ""

    def _judge(self, v: int, covariance: np.ndarray, spread: np.ndarray, lively: np.ndarray) -> str:
        """What is wrong with the measured torque of a joint."""
        n, name = len(self._names), f"the measured torque of joint {self._names[v]!r}"
        m = spread[n + v]
        scale = np.where(spread[:n] > 0.0, spread[:n], 1.0) * (m if m > 0.0 else 1.0)
        cross = covariance[n + v, :n] / scale  # correlation of m with every joint's command
        own = float(cross[v])
        if own < AGAINST:
            return f"{name} runs against the commanded one (correlation {own:.2f}); check its sign"
        if self._without_gravity(v, n):
            return (
                f"{name} is the commanded one without gravity; use the torque of the joint, not the"
                " part beyond gravity compensation"
            )
        others = np.where(lively, cross, 0.0)
        others[v] = 0.0
        w = int(np.argmax(others))
        if others[w] > OTHER and own < OWN and m > 0.0:
            return (
                f"{name} follows the command of joint {self._names[w]!r}; check the order of the"
                " channels"
            )
        follows, slope = self._scale(v, covariance)
        if follows > FOLLOWS and not follows**2 / TOLERANCE <= slope <= TOLERANCE:
            return (
                f"{name} is {slope:.2g} times the commanded one; check its unit and calibration, or"
                ' state it: expect=("signals",)'
            )
        offset, size = self._offset(v), float(np.sqrt(self._second[v, v] / self._weight))
        if abs(offset) > OFFSET * size:
            return (
                f"{name} is off the commanded one by {offset:+.3g} both ways; check its zero, or"
                ' state it: expect=("signals",)'
            )
        return ""

    def _scale(self, v: int, covariance: np.ndarray) -> tuple[float, float]:
        """Correlation of m and c, and the slope of m over c, beside dry friction."""
        n = len(self._names)
        C = covariance[np.ix_((v, n + v, 3 * n + v), (v, n + v, 3 * n + v))]
        S = C[:2, :2] - (np.outer(C[:2, 2], C[2, :2]) / C[2, 2] if C[2, 2] > 0.0 else 0.0)
        if not (S[0, 0] > LEFT * C[0, 0] and S[1, 1] > 0.0):
            return 0.0, 1.0
        return float(S[0, 1] / np.sqrt(S[0, 0] * S[1, 1])), float(S[0, 1] / S[0, 0])

    def _offset(self, v: int) -> float:
        """Mean of m − c over both directions; 0 where the joint has not moved both ways."""
        sums, weights = self._ways[:, :, v]
        return 0.5 * float(np.sum(sums / weights)) if np.all(weights > LEAST_WAY) else 0.0

    def _without_gravity(self, v: int, n: int) -> bool:
        """Whether measured torques are nearer to commanded less gravity than to commanded."""
        S, weight = self._second, self._weight

        def square(a: dict[int, float]) -> float:
            return sum(x * y * float(S[i, j]) for i, x in a.items() for j, y in a.items()) / weight

        plain = square({n + v: 1.0, v: -1.0})
        without = square({n + v: 1.0, v: -1.0, 2 * n + v: 1.0})
        gravity = square({2 * n + v: 1.0})
        return plain > 0.25 * gravity > 0.0 and without < WITHOUT_GRAVITY * plain
