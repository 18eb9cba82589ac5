"""What ends a motion on a robot: torque, speed, temperature or position beyond limits, joints that
do not follow, encoders that freeze, a robot that stopped by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thetahat.connect.connection import RobotState
from thetahat.dynamics import rigid_body
from thetahat.errors import check_positive
from thetahat.excite.trajectory import Motion
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind

LASTING = 0.01  # [s] that a torque or a speed must be beyond its limit: less is noise
FROZEN = 0.1  # [s] of the very same reading
FROZEN_TRAVEL = 0.02  # [rad or m] that the joint should have moved meanwhile
# samples with the very same reading, and [rad or m] of wanted travel, that tell of an encoder
HARDLY_MOVED = (5, 2e-3)
FASTER = 1.2  # times the speed limit
BEYOND = 0.02  # [rad or m] outside the position limits
MAX_ERROR, MAX_ERROR_SLIDE = 0.15, 0.05  # [rad], [m] from the wanted position
HOTTEST = 70.0  # [°C]
# of the model's torque along the motion, where no effort is stated: a robot may be heavier than its
# file; share of the strongest joint's, for friction
TIMES_MODEL, LEAST_SHARE = 2.0, 0.1


@dataclass(frozen=True)
class SafetyLimits:
    """What a robot may do while a motion is played."""

    max_error: float | None = None  # [rad or m] from the wanted position; None: 0.15 rad, 0.05 m
    max_temperature: float = HOTTEST  # [°C]
    torque: np.ndarray | None = None  # (n,) [N·m or N]; None: the file's

    def __post_init__(self) -> None:
        check_positive("max_temperature", self.max_temperature)
        if self.max_error is not None:
            check_positive("max_error", self.max_error)


def stated_efforts(robot: Robot) -> np.ndarray:
    """(n,) [N·m or N] of the robot's file, infinite where it states none, or zero."""
    efforts = np.array([node.limits.effort for node in robot.tree.independent], dtype=float)
    return np.where(efforts > 0.0, efforts, np.inf)


def played_efforts(robot: Robot, motion: Motion) -> np.ndarray:
    """(n,) [N·m or N] that a motion may take: the file's efforts; where it states none, twice the
    model's largest along the motion, and a tenth of the strongest joint's at least.
    """
    tau = rigid_body.inverse_dynamics(robot, motion.q, motion.dq, motion.ddq)
    largest = np.max(np.abs(tau), axis=0)
    model = TIMES_MODEL * np.maximum(largest, LEAST_SHARE * float(np.max(largest)))
    stated = stated_efforts(robot)
    return np.where(np.isfinite(stated), stated, model)


class SafetyMonitor:
    """Judges every sample; a sentence ends the motion."""

    def __init__(self, robot: Robot, limits: SafetyLimits, rate: float) -> None:
        nodes = robot.tree.independent
        self._names = robot.joint_names
        self._lower = np.array([node.limits.lower for node in nodes]) - BEYOND
        self._upper = np.array([node.limits.upper for node in nodes]) + BEYOND
        speeds = np.array([node.limits.velocity for node in nodes], dtype=float)
        self._speed = FASTER * np.where(speeds > 0.0, speeds, np.inf)
        self._torque = stated_efforts(robot) if limits.torque is None else limits.torque
        usual = [
            MAX_ERROR if node.kind is JointKind.REVOLUTE else MAX_ERROR_SLIDE for node in nodes
        ]
        self._error = np.array(usual)
        if limits.max_error is not None:
            self._error = np.full(robot.nv, limits.max_error)
        self._hottest = limits.max_temperature
        self._lasting = max(2, round(LASTING * rate))
        self._frozen_samples = max(5, round(FROZEN * rate))
        self._beyond = {name: np.zeros(robot.nv, dtype=int) for name in ("torque", "speed")}
        self._same = np.zeros(robot.nv, dtype=int)  # samples with the very same position
        self._travel = np.zeros(robot.nv)  # of the wanted position meanwhile
        self._last: tuple[np.ndarray, np.ndarray] | None = None  # position, wanted position

    def judge(self, state: RobotState, wanted: np.ndarray) -> str:
        """Return why the motion must end, "" where it may go on. wanted: positions, (n,)."""
        if state.stopped:
            return f"the robot stopped by itself: {state.stopped}"
        return (
            self._hot(state)
            or self._frozen(state.q, wanted)
            or self._off(state, wanted)
            or self._lasts("torque", np.abs(state.tau), self._torque, "N·m or N")
            or self._lasts("speed", np.abs(state.dq), self._speed, "rad/s or m/s")
            or self._outside(state.q)
        )

    def _hot(self, state: RobotState) -> str:
        if state.temperature is None or float(np.max(state.temperature)) <= self._hottest:
            return ""
        j = int(np.argmax(state.temperature))
        return (
            f"the motor of {self._names[j]} has {state.temperature[j]:.0f} °C (at most"
            f" {self._hottest:g}); let it cool, and play a slower motion"
        )

    def _frozen(self, q: np.ndarray, wanted: np.ndarray) -> str:
        if self._last is not None:
            before, wanted_before = self._last
            same = q == before
            self._same = np.where(same, self._same + 1, 0)
            moved = self._travel + np.abs(wanted - wanted_before)
            self._travel = np.where(same, moved, 0.0)
        self._last = q.copy(), wanted.copy()
        stuck = (self._same >= self._frozen_samples) & (self._travel > FROZEN_TRAVEL)
        if not np.any(stuck):
            return ""
        j = int(np.argmax(stuck))
        return (
            f"the encoder of {self._names[j]} has read {q[j]:.6g} for {self._same[j]} samples while"
            f" the joint should have moved by {self._travel[j]:.3g}; check the encoder, and whether"
            " the joint is blocked"
        )

    def _off(self, state: RobotState, wanted: np.ndarray) -> str:
        off = np.abs(state.q - wanted)
        if not np.any(off > self._error):
            return ""
        j = int(np.argmax(off / self._error))
        return (
            f"{self._names[j]} does not follow: {off[j]:.3g} from where it should be (at most"
            f" {self._error[j]:g}), with {state.tau[j]:.3g} N·m or N;"
            f" {self._why(j) or 'check whether it is blocked, or allow more with --max-error'}"
        )

    def _why(self, j: int) -> str:
        """What a joint that uses too much torque or does not follow may suffer from."""
        if self._same[j] < HARDLY_MOVED[0] or self._travel[j] < HARDLY_MOVED[1]:
            return ""
        return (
            f"its encoder has read the same for {self._same[j]} samples while it should have moved:"
            " check the encoder, and whether the joint is blocked"
        )

    def _lasts(self, what: str, used: np.ndarray, limit: np.ndarray, unit: str) -> str:
        count = self._beyond[what]
        count[:] = np.where(used > limit, count + 1, 0)
        if not np.any(count >= self._lasting):
            return ""
        j = int(np.argmax(count))
        usual = "check whether the joint is blocked, and its load"
        return (
            f"the {what} of {self._names[j]} is {used[j]:.3g} {unit} (at most {limit[j]:.3g});"
            f" {self._why(j) or usual}"
        )

    def _outside(self, q: np.ndarray) -> str:
        out = (q < self._lower) | (q > self._upper)
        if not np.any(out):
            return ""
        j = int(np.argmax(out))
        return f"{self._names[j]} is at {q[j]:.4g}, outside its limits; check the robot file"
