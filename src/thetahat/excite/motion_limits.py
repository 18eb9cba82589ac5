"""Limits of a motion: position, velocity, acceleration, jerk and torque of every joint, boxes that
links keep inside or outside of, a floor, and links that keep apart.

Every limit is a ratio, |used/limit| ≤ 1, so that one number says how much of it a motion takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from thetahat.dynamics import rigid_body
from thetahat.errors import UsageError, is_number, known
from thetahat.excite.box import Box as Box
from thetahat.excite.box import link_place
from thetahat.excite.collision_model import FLOOR, ROOM, SELF_COLLISION, CollisionModel
from thetahat.excite.collision_pairs import CLEARANCE, collision_model
from thetahat.excite.stated_limits import (
    PerJoint,
    acceleration_limits,
    allowed_shares,
    jerk_limits,
    joint_unit,
    override_positions,
    stated_positions,
    stated_values,
)
from thetahat.excite.trajectory import Motion, Trajectory, require_plain
from thetahat.model.robot import Robot

CHECK_RATE = 1000.0  # [Hz] every limit is checked at every millisecond
MARGIN = 0.95  # of what the robot file states
BLOCK = 20_000  # samples looked at together
JOINT_KINDS = ("position", "velocity", "acceleration", "jerk", "torque")
KINDS = (*JOINT_KINDS, "box", FLOOR, SELF_COLLISION)
UNITS = {"position": "", "velocity": "/s", "acceleration": "/s²", "jerk": "/s³"}


@dataclass(frozen=True)
class Margin:
    """How near a motion comes to its limits of one kind."""

    kind: str  # one of KINDS
    name: str  # of the joint, the box, or the links
    # of the limit itself, not of the part of it that may be used; of a distance 1 at the least that
    # is kept, 0 where nothing is near
    used: float
    time: float  # [s] when
    allowed: float = 1.0  # share of the limit that may be used
    value: float | None = None  # in the limit's unit; of a distance None where nothing is near
    limit: float | None = None  # the limit itself
    unit: str = ""

    @property
    def share(self) -> float:
        """Of what may be used; above 1 the limit, or the margin before it, is broken."""
        return self.used / self.allowed

    def __str__(self) -> str:
        if self.kind in (FLOOR, SELF_COLLISION):
            least = f"at least {1000.0 * (self.limit or 0.0):.3g} mm"
            if self.value is None:
                return f"{self.kind}: nothing comes nearer than {1000.0 * ROOM:g} mm ({least})"
            between = "above it" if self.kind == FLOOR else "apart"
            return (
                f"{self.kind}: {self.name} {1000.0 * self.value:.3g} mm {between} ({least}) at t ="
                f" {self.time:.3f} s"
            )
        at = f"at t = {self.time:.3f} s"
        if self.limit is None:
            return f"{self.kind} of {self.name}: {100.0 * self.used:.1f} % of it {at}"
        range_of = "range" if self.kind == "position" else "limit"
        return (
            f"{self.kind} of {self.name}: {100.0 * self.used:.1f} % of its {range_of}"
            f" ({'±' if self.kind == 'position' else ''}{self.limit:.4g} {self.unit}) {at}"
        )


@dataclass(frozen=True, eq=False)
class Assumptions:
    """Where limits come from: the share of each that may be used, and sentences."""

    shares: Mapping[str, np.ndarray]  # (nv,) by kind of a joint's limit
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class MotionLimits:
    """What a motion may use of its limits, (nv,) each, infinite where there is none; see
    `motion_limits`.
    """

    joint_names: tuple[str, ...]
    position: np.ndarray  # (2, nv) lower and upper [rad or m]
    velocity: np.ndarray  # [rad/s or m/s]
    acceleration: np.ndarray  # [rad/s² or m/s²]
    jerk: np.ndarray  # [rad/s³ or m/s³]
    torque: np.ndarray  # [N·m or N]
    space: tuple[tuple[Box, ...], CollisionModel]  # boxes; floor and links that keep apart
    assumptions: Assumptions

    @property
    def lower(self) -> np.ndarray:
        """(nv,) [rad or m]."""
        return np.asarray(self.position[0])

    @property
    def upper(self) -> np.ndarray:
        """(nv,) [rad or m]."""
        return np.asarray(self.position[1])

    @property
    def centre(self) -> np.ndarray:
        """Half way between the position limits, (nv,)."""
        return np.asarray((self.lower + self.upper) / 2.0)

    @property
    def reach(self) -> np.ndarray:
        """How far a joint may go either way from the centre, (nv,)."""
        return np.asarray((self.upper - self.lower) / 2.0)

    @property
    def boxes(self) -> tuple[Box, ...]:
        """Boxes that links keep inside or outside of."""
        return self.space[0]

    @property
    def collisions(self) -> CollisionModel:
        """The floor and the links that keep apart."""
        return self.space[1]

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence for everything that was assumed."""
        return self.assumptions.notes

    def ratios(self, robot: Robot, part: Motion, jerk: np.ndarray) -> dict[str, np.ndarray]:
        """How much of what may be used of each limit is used, (n, values) per kind; |ratio| ≤ 1
        keeps it.
        """
        out = {
            "position": (part.q - self.centre) / self.reach,
            "velocity": part.dq / self.velocity,
            "acceleration": part.ddq / self.acceleration,
            "jerk": jerk / self.jerk,
        }
        if np.any(np.isfinite(self.torque)):
            tau = rigid_body.inverse_dynamics(robot, part.q, part.dq, part.ddq)
            out["torque"] = tau / self.torque
        if self.boxes:
            out["box"] = np.hstack([box.ratios(robot, part.q) for box in self.boxes])
        return out

    def check(
        self, robot: Robot, motion: Motion | Trajectory, *, rate: float = CHECK_RATE
    ) -> tuple[Margin, ...]:
        """Return the smallest margin to each kind of limit, at every millisecond.

        The jerk of a sampled motion is the mean between two samples. rate: [Hz] at which a
        trajectory is looked at.
        """
        if motion.joint_names != self.joint_names or robot.joint_names != self.joint_names:
            raise UsageError(
                f"these limits are of joints {known(self.joint_names)}, but the motion or the robot"
                f" has {known(motion.joint_names)}"
            )
        worst: dict[str, Margin] = {}
        for part, jerk in _parts(motion, rate):
            for kind, ratio in self.ratios(robot, part, jerk).items():
                if kind in JOINT_KINDS[1:] and not np.any(np.isfinite(getattr(self, kind))):
                    continue
                row, column = np.unravel_index(int(np.argmax(np.abs(ratio))), ratio.shape)
                share = float(np.abs(ratio[row, column]))
                if kind not in worst or share > worst[kind].share:
                    worst[kind] = self._margin(robot, kind, int(column), share, part.t[row])
            for margin in self._distances(robot, part):
                if margin.kind not in worst or margin.share > worst[margin.kind].share:
                    worst[margin.kind] = margin
        return tuple(worst[kind] for kind in KINDS if kind in worst)

    def _margin(self, robot: Robot, kind: str, column: int, share: float, time: float) -> Margin:
        if kind == "box":
            return Margin(kind, self.box_name(column), share, float(time))
        allowed = float(self.assumptions.shares[kind][column])
        kept = float((self.reach if kind == "position" else getattr(self, kind))[column])
        unit = joint_unit(robot, column)
        unit = {"rad": "N·m", "m": "N"}[unit] if kind == "torque" else unit + UNITS[kind]
        used, limit = share * allowed, kept / allowed
        name = self.joint_names[column]
        return Margin(kind, name, used, float(time), allowed, used * limit, limit, unit)

    def _distances(self, robot: Robot, part: Motion) -> Iterator[Margin]:
        """The nearest approach to the floor, and of links to each other."""
        model = self.collisions
        if not model:
            return
        felt = model.contacts(robot, part.q)
        on_floor = felt.row >= len(model.pairs)
        for kind, own, least_of_all in (
            (FLOOR, on_floor, model.above),
            (SELF_COLLISION, ~on_floor, model.apart),
        ):
            if not len(least_of_all):
                continue
            rows = np.flatnonzero(own)
            if not len(rows):
                least = float(np.min(least_of_all))
                yield Margin(kind, "", 0.0, float(part.t[0]), limit=least, unit="m")
                continue
            at = rows[int(np.argmax(felt.ratio[rows]))]
            row, used = int(felt.row[at]), float(felt.ratio[at])
            least = model.least(row)
            distance = least + ROOM * (1.0 - used)
            when = float(part.t[felt.sample[at]])
            yield Margin(kind, model.name(row), used, when, 1.0, distance, least, "m")

    def box_name(self, column: int) -> str:
        """The box that a column of the boxes' ratios belongs to, in words."""
        for box in self.boxes:
            size = len(box.points) * (3 if box.inside else 1)
            if column < size:
                return str(box)
            column -= size
        raise IndexError(column)


def _parts(motion: Motion | Trajectory, rate: float) -> Iterator[tuple[Motion, np.ndarray]]:
    """A motion in pieces of bounded size, with jerks; a trajectory at a rate."""
    if isinstance(motion, Motion):
        step = np.diff(motion.t)[:, None]
        jerk = np.diff(motion.ddq, axis=0) / np.where(step > 0.0, step, np.inf)
        jerk = np.vstack([jerk, np.zeros((1, motion.q.shape[1]))])
        for k in range(0, len(motion), BLOCK):
            at, names = slice(k, k + BLOCK), motion.joint_names
            part = Motion(motion.t[at], motion.q[at], motion.dq[at], motion.ddq[at], names)
            yield part, jerk[at]
        return
    count = int(np.ceil(motion.duration * rate * (1.0 - 1e-12))) + 1
    for first in range(0, count, BLOCK):
        t = np.arange(first, min(first + BLOCK, count)) / rate
        yield Motion(t, *motion.at(t), motion.joint_names), motion.jerk(t)


# -- from a robot file and its user ----------------------------------------------------------------


def _position_limits(
    robot: Robot, margin: float, given: object, notes: list[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lower and upper limits, and the share of them that this is."""
    lower, upper, share = stated_positions(robot, margin, notes)
    if given is not None:
        override_positions(robot, given, lower, upper)
        share = np.maximum(share, allowed_shares(robot, 0.0, given))
    for name, low, high in zip(robot.joint_names, lower, upper, strict=True):
        if not low < high:
            raise UsageError(
                f"joint {name!r} may move from {low:g} to {high:g}, which leaves no room; give"
                " position limits with lower < upper, or lock the joint"
            )
    return lower, upper, share


def motion_limits(
    robot: Robot,
    *,
    margin: float = MARGIN,
    position: Sequence[float] | np.ndarray | Mapping[str, Sequence[float]] | None = None,
    velocity: PerJoint | None = None,
    acceleration: PerJoint | None = None,
    jerk: PerJoint | None = None,
    torque: PerJoint | None = None,
    boxes: Sequence[Box] = (),
    floor: float | str | None = "auto",
    self_collision: bool = True,
    clearance: float = CLEARANCE,
) -> MotionLimits:
    """The limits of the robot file, each taken to `margin` of itself, with what you give in their
    place, as given.

    position: (lower, upper) for all joints, (nv, 2), or per joint name. velocity, acceleration,
    jerk, torque: a number for all joints, (nv,), or per joint name; infinity lifts a limit. floor:
    its height [m], None, or "auto": the ground that the robot stands on. clearance: least distance
    [m] of links from the floor and, with `self_collision`, from each other. Where neither file nor
    user says anything, a joint turns π (slides 1 m) either way, speed and torque are not limited,
    and acceleration and jerk are those of 0.3 s to top speed and 0.1 s to that acceleration:
    `notes` says so.
    """
    require_plain(robot)
    if not (is_number(margin) and 0.0 < margin <= 1.0):
        raise UsageError(
            f"margin is {margin!r}; give the part of the file's limits to use, above 0 and at"
            " most 1"
        )
    notes: list[str] = []
    lower, upper, share = _position_limits(robot, margin, position, notes)
    speed = stated_values(robot, "velocity", margin, "speed", notes, given=velocity)
    most = acceleration_limits(robot, speed, acceleration, notes)
    for box in boxes:
        link_place(robot, box.link)
    shares = {
        "position": share,
        "velocity": allowed_shares(robot, margin, velocity),
        "acceleration": np.ones(robot.nv),
        "jerk": np.ones(robot.nv),
        "torque": allowed_shares(robot, margin, torque),
    }
    third = jerk_limits(robot, most, jerk, notes)
    effort = stated_values(robot, "effort", margin, "torque", notes, given=torque)
    model = collision_model(
        robot, lower, upper, floor=floor, self_collision=self_collision, clearance=clearance
    )
    return MotionLimits(
        robot.joint_names,
        np.stack([lower, upper]),
        speed,
        most,
        third,
        effort,
        (tuple(boxes), model),
        Assumptions(shares, (*notes, *model.notes)),
    )
