"""Whether a motion may be played: every limit of the robot at every millisecond, before anything
moves.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from thetahat.errors import RefusedForSafety
from thetahat.excite.collision_model import ROOM, CollisionModel
from thetahat.excite.collision_pairs import CLEARANCE
from thetahat.excite.keep_out import keep_out_model
from thetahat.excite.motion_limits import CHECK_RATE, Margin, MotionLimits, motion_limits
from thetahat.excite.stated_limits import PerJoint
from thetahat.excite.trajectory import Motion, Trajectory
from thetahat.model.robot import Robot

ROOMY = 0.8  # of a torque limit: above it little is left for a robot heavier than its file
BROKEN = 1.001  # share of a limit above which it is broken: files are rounded
AT_REST = 0.01  # [rad/s or m/s] at both ends of a motion
# [rad or m] that positions may differ in one step from what their velocities say
JUMP = 2e-3
ADVICE = "design one inside the limits with `thetahat excite`"


@dataclass(frozen=True, eq=False)
class Screen:
    """The limits that a motion is held against."""

    robot: Robot
    limits: MotionLimits
    keep_out: CollisionModel | None  # boxes that all links keep out of

    @staticmethod
    def of(
        robot: Robot,
        *,
        velocity: PerJoint | None = None,
        acceleration: PerJoint | None = None,
        torque: PerJoint | None = None,
        floor: float | str | None = "auto",
        clearance: float = CLEARANCE,
        boxes: Sequence[np.ndarray] = (),
    ) -> Screen:
        """The limits of the robot file, with their usual margin, or what you give in their place:
        those that `thetahat excite` designs for.
        """
        limits = motion_limits(
            robot,
            velocity=velocity,
            acceleration=acceleration,
            torque=torque,
            floor=floor,
            clearance=clearance,
        )
        model = keep_out_model(limits.collisions, boxes, clearance) if boxes else None
        return Screen(robot, limits, model)

    def check(self, motion: Motion | Trajectory, what: str = "the motion") -> tuple[Margin, ...]:
        """Return how near a motion comes to its limits.

        Raises:
            RefusedForSafety: it breaks one.

        """
        sampled = motion if isinstance(motion, Motion) else motion.sampled(CHECK_RATE)
        self._check_course(sampled, what)
        margins = self.limits.check(self.robot, motion)
        broken = [str(margin) for margin in margins if margin.share > BROKEN]
        broken += self._boxes(sampled)
        if broken:
            raise RefusedForSafety(f"{what} is not played: {'; '.join(broken)}; {ADVICE}")
        for margin in margins:
            if margin.kind == "torque" and margin.used > ROOMY:
                warnings.warn(
                    f"{what} leaves little room: {margin}; a robot that is heavier than its file"
                    " may reach the limit, which ends the motion: `thetahat excite --margin 0.7`"
                    " leaves more",
                    stacklevel=2,
                )
        return margins

    def _check_course(self, motion: Motion, what: str) -> None:
        """Refuse positions that jump, and a motion that does not begin and end at rest."""
        names, dt = motion.joint_names, np.diff(motion.t)[:, None]
        if len(motion) < 2 or np.any(dt <= 0.0):
            raise RefusedForSafety(f"{what} is not played: its times do not increase; {ADVICE}")
        said = 0.5 * (motion.dq[1:] + motion.dq[:-1]) * dt
        off = np.abs(np.diff(motion.q, axis=0) - said)
        row, column = np.unravel_index(int(np.argmax(off)), off.shape)
        if off[row, column] > JUMP:
            raise RefusedForSafety(
                f"{what} is not played: the position of {names[column]} changes at t ="
                f" {motion.t[row]:.3f} s by {off[row, column]:.3g} more than its velocity says;"
                f" {ADVICE}"
            )
        for end, when in ((0, "begin"), (-1, "end")):
            j = int(np.argmax(np.abs(motion.dq[end])))
            if abs(motion.dq[end, j]) > AT_REST:
                raise RefusedForSafety(
                    f"{what} is not played: it does not {when} at rest ({names[j]} at"
                    f" {motion.dq[end, j]:.3g}/s); {ADVICE}"
                )

    def _boxes(self, motion: Motion) -> list[str]:
        if self.keep_out is None:
            return []
        felt = self.keep_out.contacts(self.robot, motion.q)
        if not len(felt.ratio) or float(np.max(felt.ratio)) <= BROKEN:
            return []
        at = int(np.argmax(felt.ratio))
        row = int(felt.row[at])
        least = self.keep_out.least(row)
        distance = least + ROOM * (1.0 - float(felt.ratio[at]))
        return [
            f"keep-out: {self.keep_out.name(row)} {1e3 * max(distance, 0.0):.3g} mm apart (at least"
            f" {1e3 * least:.3g} mm) at t = {motion.t[felt.sample[at]]:.3f} s"
        ]
