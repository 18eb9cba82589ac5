"""The external torque on every joint, by a generalized-momentum observer.

    p = D(q)·q̇,    ṗ = τ − friction − (G − Cᵀq̇) + τ_ext

The residual r follows τ_ext through a low-pass of first order and needs no acceleration
[DeLuca2005], [Haddadin2017]. From one sample to the next, with a = exp(−bandwidth·h):

    r ← a·r + (1 − a)·((p − p_before)/h − mean of (τ − friction − (G − Cᵀq̇)))

Nothing is called contact below a joint's threshold, which comes from motion without contact
(`calibrated`): maxima of |r_j| over blocks of time have an exponential tail, and the threshold is
where that tail is exceeded at the false-alarm rate asked for, shared between the joints.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from thetahat.dynamics import rigid_body
from thetahat.errors import NotIdentifiable, UsageError, check_positive
from thetahat.kernels.direction import follow
from thetahat.model.robot import Robot

HOUR = 3600.0  # [s]
BLOCK = 0.25  # [s] of which one maximum counts, since residuals hang together in time
TAIL = 0.8  # quantile of the maxima from which on their tail is fitted
LEAST_BLOCKS = 20
GAP = 0.1  # [s] after which the observer starts again
GUIDED = 0.25  # [s] time constant of the slow part: a push that lasts is guiding by hand


@dataclass(frozen=True, eq=False)
class Contact:
    """The external torque at one sample, and what it is."""

    t: float  # [s]
    torque: np.ndarray  # (nv,) [N·m or N] on the robot
    kind: str  # "none", "collision" or "hand-guiding"
    joint: str | None  # the one furthest above its threshold


class ExternalTorque:
    """Observes external torques on a robot, sample by sample.

    threshold: (nv,) of |external torque| that is contact; `calibrated` finds it. bandwidth: of the
        observer [rad/s].
    """

    def __init__(
        self, robot: Robot, threshold: np.ndarray | Sequence[float], *, bandwidth: float = 60.0
    ) -> None:
        threshold = np.array(threshold, dtype=float)
        if threshold.shape != (robot.nv,) or not np.all(threshold > 0.0):
            raise UsageError(
                f"threshold has shape {threshold.shape}; give ({robot.nv},) torques above zero, or"
                " let ExternalTorque.calibrated find them"
            )
        check_positive("bandwidth", bandwidth)
        if robot.nq != robot.nv:
            raise UsageError(
                f"{robot.name!r} has joints of several degrees of freedom; the observer takes"
                " joints of one"
            )
        self.robot, self.threshold, self.bandwidth = robot, threshold, float(bandwidth)
        self.reset()

    @staticmethod
    def calibrated(
        robot: Robot,
        runs: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]],
        *,
        false_alarms: float = 1.0,
        bandwidth: float = 60.0,
    ) -> ExternalTorque:
        """Return an observer with thresholds from runs without contact.

        Args:
            robot: the identified robot.
            runs: (t, q, dq, tau) of each run.
            false_alarms: per hour, of all joints together.
            bandwidth: of the observer [rad/s].

        """
        check_positive("false_alarms", false_alarms)
        observer = ExternalTorque(robot, np.full(robot.nv, np.inf), bandwidth=bandwidth)
        maxima = [_maxima(observer, *run) for run in runs]
        blocks = np.concatenate(maxima) if maxima else np.empty((0, robot.nv))
        if len(blocks) < LEAST_BLOCKS:
            raise NotIdentifiable(
                f"{len(blocks) * BLOCK:.3g} s of motion without contact do not tell thresholds;"
                f" give {LEAST_BLOCKS * BLOCK:.3g} s or more"
            )
        chance = false_alarms * BLOCK / HOUR / robot.nv
        return ExternalTorque(robot, _tail(blocks, chance), bandwidth=bandwidth)

    def reset(self) -> None:
        """Forget all samples."""
        nv = self.robot.nv
        self._t: float | None = None
        self._momentum, self._driving = np.zeros(nv), np.zeros(nv)
        self._torque, self._slow = np.zeros(nv), np.zeros(nv)
        self._direction = np.zeros(len(self.robot.drive.viscous))

    def push(self, t: float, q: np.ndarray, dq: np.ndarray, tau: np.ndarray) -> Contact:
        """Take one sample: position, velocity and motor torque of every joint."""
        step = None if self._t is None else float(t) - self._t
        if step is not None and step <= 0.0:
            raise UsageError(f"time is {t} s after {self._t} s; give samples in the order of time")
        if step is not None and step > GAP:
            self.reset()
            step = None
        q, dq = np.asarray(q, dtype=float), np.asarray(dq, dtype=float)
        momentum = rigid_body.mass_matrix(self.robot, q) @ dq
        driving = np.asarray(tau, dtype=float) - self._load(q, dq, step)
        if not np.all(np.isfinite(driving)):
            raise UsageError(f"tau at {t} s is {tau!r}; give one finite number per joint")
        if step is not None:
            rate = (momentum - self._momentum) / step - 0.5 * (driving + self._driving)
            a, slowly = math.exp(-self.bandwidth * step), math.exp(-step / GUIDED)
            self._torque = a * self._torque + (1.0 - a) * rate
            self._slow = slowly * self._slow + (1.0 - slowly) * self._torque
        self._t, self._momentum, self._driving = float(t), momentum, driving
        return self._contact(float(t))

    def _load(self, q: np.ndarray, dq: np.ndarray, step: float | None) -> np.ndarray:
        """G − Cᵀq̇ and friction."""
        robot, drive = self.robot, self.robot.drive
        carried = rigid_body.gravity(robot, q)
        passing = rigid_body.coriolis_matrix(robot, q, dq).T @ dq
        direction = None
        if drive.dry is not None:
            speed = dq
            if drive.actuation is not None:
                speed = drive.actuation.motor_rates(dq, np.zeros_like(dq), q=q)[0]
            out = np.empty((1, len(self._direction)))
            law = np.array(drive.dry.zone), np.array(drive.dry.travel)
            follow(np.array(speed[None]), step or 0.0, *law, self._direction, out)
            direction = out[0]
        load = carried
        if drive.needs_load:
            load = rigid_body.inverse_dynamics(robot, q, dq, np.zeros_like(dq), rigid=True)
        friction = drive.friction(dq, q=q, load=load, direction=direction)
        return np.asarray(carried - passing + friction)

    def _contact(self, t: float) -> Contact:
        now, lasting = np.abs(self._torque) / self.threshold, np.abs(self._slow) / self.threshold
        kind, joint = "none", None
        if np.max(now) > 1.0:
            kind = "hand-guiding" if np.max(lasting) > 1.0 else "collision"
            joint = self.robot.velocity_names[int(np.argmax(now))]
        return Contact(t, self._torque.copy(), kind, joint)


def _maxima(
    observer: ExternalTorque, t: np.ndarray, q: np.ndarray, dq: np.ndarray, tau: np.ndarray
) -> np.ndarray:
    """(blocks, nv) maxima of |r| over whole blocks of a run, without the observer's start."""
    observer.reset()
    size = np.array([np.abs(observer.push(*row).torque) for row in zip(t, q, dq, tau, strict=True)])
    since = np.asarray(t, dtype=float) - float(t[0])
    number = np.floor(since / BLOCK).astype(int)
    blocks = [
        np.max(size[number == k], axis=0) for k in range(1, int(number[-1])) if np.any(number == k)
    ]
    return np.array(blocks).reshape(-1, size.shape[1])


def _tail(blocks: np.ndarray, chance: float) -> np.ndarray:
    """(nv,) that a block's maximum exceeds with this probability, by an exponential tail."""
    begin = np.quantile(blocks, TAIL, axis=0)
    excess = np.maximum(blocks - begin, 0.0)
    scale = np.sum(excess, axis=0) / np.maximum(np.sum(excess > 0.0, axis=0), 1)
    least = 1e-9 * np.maximum(np.max(blocks, axis=0), 1e-3)
    out: np.ndarray = np.maximum(begin + scale * math.log(max((1.0 - TAIL) / chance, 1.0)), least)
    return out
