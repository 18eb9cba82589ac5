"""Playing a motion on a connected robot: parts one after the other, each along its own path at a
speed that rises and falls smoothly, so that a pause or a stop never leaves the screened path.

    q = Q(s),  q̇ = Q′(s) ṡ,  q̈ = Q″(s) ṡ² + Q′(s) s̈,   ṡ = σ(t) from 0 to the part's speed
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from thetahat.connect.connection import Connection, RobotState
from thetahat.connect.safety_monitor import SafetyMonitor
from thetahat.control.computed_torque import ComputedTorque
from thetahat.control.controller import Reference
from thetahat.control.loop import Cycle
from thetahat.excite.trajectories import Moves
from thetahat.excite.trajectory import Motion, Trajectory
from thetahat.model.robot import Robot
from thetahat.plant.tracking import duration_of, reference

EASE = 0.5  # [s] from rest to speed and back, where a path is entered or left on the way
LONGEST_STEP = 5.0  # periods that a cycle advances the motion at most: lost time stays lost
RAMP, WARM_UP, MOTION = "ramp", "warm-up", "motion"


@dataclass(frozen=True, eq=False)
class Part:
    """A path to play from s [s] on, at a speed relative to its own."""

    name: str
    path: Motion | Trajectory
    speed: float = 1.0
    begin: float = 0.0  # [s]

    @property
    def duration(self) -> float:
        """[s] that it takes."""
        return (duration_of(self.path) - self.begin) / self.speed


def ramp(robot: Robot, q: np.ndarray, to: np.ndarray, limits: np.ndarray, share: float) -> Moves:
    """A straight way from rest to rest at a share of the joints' speed limits, (n,)."""
    way = np.abs(to - q)
    speed = share * np.where(np.isfinite(limits), limits, 1.0)
    time = max(1.0, float(np.max(1.875 * way / speed)))  # a quintic's peak is 15/8 of its mean
    return Moves(robot.joint_names, np.stack([q, to]), np.array([time]), 0.0)


Recorder = Callable[[str, float, RobotState, np.ndarray], None]  # part, s, sample, wanted


class Playback:
    """What a `Loop` runs: samples in, commands out, until all parts are played or something is
    wrong.
    """

    def __init__(
        self,
        robot: Robot,
        connection: Connection,
        parts: list[Part],
        monitor: SafetyMonitor,
        *,
        rate: float,
        record: Recorder,
        law: ComputedTorque | None = None,
    ) -> None:
        self._robot, self._parts, self._monitor, self._record = robot, parts, monitor, record
        self._n, self._law = len(connection.joints), law
        self._period = 1.0 / rate
        self._at, self._s, self._sigma = 0, parts[0].begin, 0.0
        self._t: float | None = None
        self._wanted = self._goal(0.0)
        self.done = 0.0  # [s] of wall time played
        self.reason = ""  # why it ends early
        self.paused = False
        self.finished = False

    @property
    def total(self) -> float:
        """[s] that all parts take."""
        return sum(part.duration for part in self._parts)

    def stop(self, reason: str) -> None:
        """Slow down along the path, and end."""
        self.reason = self.reason or reason

    def toggle_pause(self) -> None:
        """Slow down along the path and stand; or go on."""
        self.paused = not self.paused

    @property
    def ended(self) -> bool:
        """Whether the robot is at rest, at the end or because it was stopped."""
        return self.finished or (bool(self.reason) and self._sigma == 0.0)

    def __call__(self, cycle: Cycle, state: RobotState) -> np.ndarray:
        """The command of one cycle, (n,)."""
        wrong = self._monitor.judge(state, self._wanted[0])
        if wrong:
            self.stop(wrong)
        part = self._parts[self._at]
        self._record(part.name, self._s, state, self._wanted[0])
        elapsed = self._period if self._t is None else cycle.t - self._t
        self._t = cycle.t
        self._advance(min(elapsed, LONGEST_STEP * self._period))
        if self._law is None:
            return self._wanted[0]
        return self._law(cycle.t, state.q, state.dq, self._wanted)

    def _advance(self, dt: float) -> None:
        part = self._parts[self._at]
        aim = 0.0 if self.reason or self.paused else part.speed
        ease = dt / EASE * part.speed
        if self._s == 0.0 and aim:  # its path begins at rest by itself
            self._sigma = aim
        before = self._sigma
        self._sigma = min(max(aim, before - ease), before + ease)
        self._s += 0.5 * (before + self._sigma) * dt
        self.done += dt
        end = duration_of(part.path)
        if self._s >= end - 1e-9:
            if self._at + 1 < len(self._parts):
                self._at += 1
                self._s, self._sigma = self._parts[self._at].begin, 0.0
            else:
                self._s, self.finished = end, True
        self._wanted = self._goal((self._sigma - before) / dt if dt else 0.0)

    def _goal(self, rise: float) -> Reference:
        """Wanted (q, dq, ddq), (n,) each; rise: s̈."""
        path = self._parts[self._at].path
        q, dq, ddq = (x[0] for x in reference(path, np.array([self._s]), self._robot))
        return q, dq * self._sigma, ddq * self._sigma**2 + dq * rise


def parts_of(
    motion: Motion | Trajectory, *, warm_up: float, back: Moves | None, at: tuple[str, float]
) -> list[Part]:
    """The motion slowly, where `warm_up` is not 0, and at speed, from a part and its s [s] on.

    back: the way from the motion's end to its begin, where they differ.
    """
    name, s = at
    parts = []
    if warm_up and name != MOTION:
        parts.append(Part(WARM_UP, motion, warm_up, s if name == WARM_UP else 0.0))
        if back is not None:
            parts.append(Part(RAMP, back))
    parts.append(Part(MOTION, motion, 1.0, s if name == MOTION else 0.0))
    return parts


def first_position(motion: Motion | Trajectory, s: float, robot: Robot) -> np.ndarray:
    """Where a motion is at s [s], (n,)."""
    return np.asarray(reference(motion, np.array([s]), robot)[0][0])
