"""The causal filter: exponential moving averages of all channels alike.

Positions, speeds, accelerations and torques pass the same averages (paper, §VI), with time constant
T = 1/(2π·cutoff), `stages` of them one after the other, so all channels lag behind by the same
stages·T and the equation of motion still holds between them; filtering the accelerations alone
delays them against the torques, which biases every inertia. Differences belong to the middle of
their step, so the other channels are brought to that moment, too:

    speeds measured        q, q̇, τ ← ½(x_k + x_{k−1}),   q̈ ← (q̇_k − q̇_{k−1})/h
    speeds not measured    q, τ ← ½(m_k + m_{k−1}),   m_k = ½(x_k + x_{k−1})
                           q̇ ← ½(v_k + v_{k−1}),   v_k = (q_k − q_{k−1})/h,   q̈ ← (v_k − v_{k−1})/h
    accelerations given    as they are

Steps need not be even: the average forgets by exp(−h/T).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from thetahat.data.velocities import normalize_quaternions
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind
from thetahat.online.config import FilterConfig

SETTLED = 5.0  # time constants per stage until e⁻⁵ of a start is left
# periods since the last sample, after which it says nothing about how far the next one may be
STALE = 5.0
# samples that tell what changes are usual, before any is a spike; whether one was is known then
YOUNG = 20
# of the filtered direction of motion (±1), from which a joint has moved one way for as long as the
# filter remembers: its dry friction is known
ONE_WAY = 0.95


class FilteredSample(NamedTuple):
    """One filtered sample, (1, ·) each."""

    q: np.ndarray
    dq: np.ndarray
    ddq: np.ndarray
    tau: np.ndarray  # [N·m or N]


class FilterState(NamedTuple):
    """What the kernel keeps of the channels; rows are named in `kernels.online`."""

    q: np.ndarray  # (rows, nq)
    v: np.ndarray  # (rows, nv)
    first_q: np.ndarray  # (YOUNG, nq) what the first samples did
    first_v: np.ndarray  # (3, YOUNG, nv)
    same: np.ndarray  # (2, nv + 1) samples in a row without a change; the largest last
    q_of: np.ndarray  # (nv,) index of each one-DOF joint's coordinate, −1 for others


class CausalFilter:
    """Averages of one robot's channels; `out` holds the last filtered sample. min_speed: (nv,) at
    which a joint moves.
    """

    def __init__(
        self, robot: Robot, config: FilterConfig, min_speed: np.ndarray | float = 0.0
    ) -> None:
        from thetahat.kernels import online

        self.robot, self.kernels, self._config = robot, online, config
        cutoff, nq, nv = config.cutoff, robot.nq, robot.nv
        self.time_constant = 0.0 if cutoff is None else 1.0 / (2.0 * math.pi * cutoff)
        self.delay = config.stages * self.time_constant  # [s], beside half a period or a period
        self.state = FilterState(
            np.zeros((online.Q_AVERAGE + config.stages, nq)),
            np.zeros((online.AVERAGE + 4 * config.stages, nv)),
            np.full((YOUNG, nq), np.nan),
            np.full((3, YOUNG, nv), np.nan),
            np.zeros((2, nv + 1), dtype=np.int64),
            np.full(nv, -1, dtype=np.int64),
        )
        self.state.q[online.Q_STEP] = online.ELSEWHERE
        self.state.v[online.LEAST_SPEED] = min_speed
        for node in robot.tree.independent:
            at = robot.tree.q_index[node.name]
            if node.kind.nq == 1:
                self.state.q_of[robot.tree.v_index[node.name]] = at
            self.state.q[online.Q_TURNS, at] = float(node.kind is JointKind.REVOLUTE)
        self.out = FilteredSample(*(np.zeros((1, n)) for n in (nq, nv, nv, nv)))
        self._arguments = (*self.state, *self.out)
        self._quaternions = bool(robot.tree.quaternions)
        self._gain: tuple[float, float] | None = None  # (period, gain) of white noise
        self.seen = 0  # samples that have told what is usual
        self.count = 0  # samples since the start
        self._age = 0.0  # [s] since the start

    def restart(self) -> None:
        """Forget what is in the averages; the next sample starts anew."""
        self.count, self._age = 0, 0.0
        self.state.same[:] = 0
        self.state.v[self.kernels.TRAVEL] = 0.0

    @property
    def direction(self) -> np.ndarray:
        """(nv,) of motion, behind the same averages, −1 to 1."""
        last: np.ndarray = self.state.v[-1]
        return last

    @property
    def settled(self) -> bool:
        """Whether the start has died out of the averages."""
        return self.count > 3 and self._age >= SETTLED * self.delay

    def take(
        self,
        h: float,
        sample: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
        mode: int,
        *,
        since: float,
        forced: bool,
        period: float | None,
    ) -> int:
        """Judge and average q, dq, ddq, tau, h seconds after the last sample; return the kernel's
        code. since: [s] since a sample was rejected. forced: take it though it leaps.
        """
        if self._quaternions:
            sample = (self._same_side(sample[0]), *sample[1:])
        averages = self._config.cutoff is not None and self.count
        keep = math.exp(-h / self.time_constant) if averages else 0.0
        slack = 1.0 if period is None else max(1.0, h / period)
        forced, held = forced or slack > STALE, self._config.held_torque
        step = (h, since, slack, keep, mode, forced, held, self.count, self.seen)
        code: int = self.kernels.take(step, sample, self._arguments)
        if code <= 0:
            if self._quaternions:
                normalize_quaternions(self.robot, self.out.q)
            self._age = self._age + h if self.count else 0.0
            self.count += 1
            self.seen += 1
        return code

    def _same_side(self, q: np.ndarray) -> np.ndarray:
        """Return q with quaternions on the side of their double cover that the last one is on."""
        last = self.state.q[self.kernels.Q_LAST]
        for _, at in self.robot.tree.quaternions:
            if self.count and q[at : at + 4] @ last[at : at + 4] < 0.0:
                q = q.copy()
                q[at : at + 4] *= -1.0
        return q

    def torque_noise(self, period: float | None) -> np.ndarray:
        """(nv,) standard deviation of the filtered torques' noise [N·m or N], from how much raw
        ones change between samples.
        """
        raw: np.ndarray = np.sqrt(self.state.v[self.kernels.NOISE])
        if self._config.cutoff is None or period is None:
            return raw
        if self._gain is None or self._gain[0] != period:
            stages, keep = self._config.stages, math.exp(-period / self.time_constant)
            power = keep ** np.arange(round(12.0 * stages / max(1.0 - keep, 1e-6)) + 1)
            response = np.array([1.0])
            for _ in range(stages):
                response = np.convolve(response, (1.0 - keep) * power)[: len(power)]
            self._gain = period, float(np.linalg.norm(response))
        filtered: np.ndarray = raw * self._gain[1]
        return filtered
