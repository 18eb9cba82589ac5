"""Limits of a motion: position, velocity, acceleration and torque of every joint, and boxes that
links keep inside or outside of.

Every limit is a ratio, |used/limit| ≤ 1, so that one number says how much of it a motion takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from thetahat.dynamics import rigid_body
from thetahat.errors import UsageError, is_number, known
from thetahat.excite.trajectory import Motion, Trajectory, joint_array, require_plain
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind, Node

CHECK_RATE = 1000.0  # [Hz] every limit is checked at every millisecond
MARGIN = 0.95  # of what the robot file states
FREE_TURN, FREE_SLIDE = np.pi, 1.0  # [rad], [m] either way, where nothing limits a joint
BLOCK = 100_000  # samples looked at together
KINDS = ("position", "velocity", "acceleration", "torque", "box")

PerJoint = float | Sequence[float] | np.ndarray | Mapping[str, float]


@dataclass(frozen=True, eq=False)
class Box:
    """A box along the world's axes which points of a link must stay inside of, or outside of."""

    link: str
    lower: np.ndarray  # (3,) [m]
    upper: np.ndarray  # (3,) [m]
    inside: bool = True
    # (k, 3) in the link's frame [m]; the frame's origin unless told
    points: np.ndarray = field(default_factory=lambda: np.zeros((1, 3)))

    def __post_init__(self) -> None:
        for name, shape in (("lower", (3,)), ("upper", (3,)), ("points", (None, 3))):
            what, value = f"{name} of the box of {self.link!r}", getattr(self, name)
            array = joint_array(what, value, shape, "three coordinates [m]")
            object.__setattr__(self, name, array)
        if np.any(self.lower >= self.upper):
            axis = int(np.argmax(self.lower >= self.upper))
            raise UsageError(
                f"the box of {self.link!r} reaches from {self.lower[axis]:g} to"
                f" {self.upper[axis]:g} m along {'xyz'[axis]}; give lower < upper"
            )

    def __str__(self) -> str:
        return (
            f"{self.link} {'inside' if self.inside else 'outside'} {self.lower.tolist()} …"
            f" {self.upper.tolist()}"
        )

    def positions(self, robot: Robot, q: np.ndarray) -> np.ndarray:
        """Where the points are in the world, (n, k, 3) [m]."""
        body, R_link, p_link = _place(robot, self.link)
        R, p = rigid_body.body_frames(robot, q)
        return np.asarray(
            (p_link + self.points @ R_link.T) @ np.swapaxes(R[:, body], -1, -2) + p[:, body, None]
        )

    def ratios(self, robot: Robot, q: np.ndarray, *, power: float | None = None) -> np.ndarray:
        """How much of the limit is used, (n, values): |x − c|/h of every axis inside; outside 1/max
        |x − c|/h.

        power: outside, the norm of that power in place of the largest, which is smooth, and keeps a
            little more than the box free.
        """
        scaled = (self.positions(robot, q) - (self.lower + self.upper) / 2.0) / (
            (self.upper - self.lower) / 2.0
        )
        if self.inside:
            return np.asarray(scaled.reshape(len(q), -1))
        scaled = np.abs(scaled)
        if power is None:
            return np.asarray(1.0 / np.maximum(np.max(scaled, axis=2), 1e-9))
        largest = np.maximum(np.max(scaled, axis=2), 1e-9)
        return np.asarray(
            3.0 ** (1.0 / power)
            / (largest * np.sum((scaled / largest[..., None]) ** power, axis=2) ** (1.0 / power))
        )


def _parts(motion: Motion | Trajectory) -> Iterator[Motion]:
    """A motion in pieces of bounded size; a trajectory at every millisecond."""
    if isinstance(motion, Motion):
        for k in range(0, len(motion), BLOCK):
            at, names = slice(k, k + BLOCK), motion.joint_names
            yield Motion(motion.t[at], motion.q[at], motion.dq[at], motion.ddq[at], names)
        return
    count = int(np.ceil(motion.duration * CHECK_RATE * (1.0 - 1e-12))) + 1
    for first in range(0, count, BLOCK):
        t = np.arange(first, min(first + BLOCK, count)) / CHECK_RATE
        yield Motion(t, *motion.at(t), motion.joint_names)


def _place(robot: Robot, name: str) -> tuple[int, np.ndarray, np.ndarray]:
    """(body, rotation, translation) of a link's frame in the body it is welded into."""
    for link in robot.links:
        if link.name == name:
            if link.body < 0:
                raise UsageError(
                    f"link {name!r} of {robot.name!r} is welded to the world and cannot leave or"
                    " enter a box; name a link that moves"
                )
            return link.body, link.rotation, link.translation
    if name in robot.body_names:
        return robot.body_names.index(name), np.eye(3), np.zeros(3)
    names = [link.name for link in robot.links if link.body >= 0] or robot.body_names
    raise UsageError(
        f"link {name!r} is not in robot {robot.name!r}; links that move: {known(names)}"
    )


@dataclass(frozen=True)
class Margin:
    """How near a motion comes to its limits of one kind."""

    kind: str  # one of KINDS
    name: str  # of the joint, or the box
    used: float  # of the limit; above 1 it is broken
    time: float  # [s] when

    def __str__(self) -> str:
        return (
            f"{self.kind} of {self.name}: {100.0 * self.used:.1f} % of its limit at t ="
            f" {self.time:.3f} s"
        )


@dataclass(frozen=True, eq=False)
class MotionLimits:
    """Limits of a motion, (nv,) each, infinite where there is none; see `motion_limits`."""

    joint_names: tuple[str, ...]
    lower: np.ndarray  # [rad or m]
    upper: np.ndarray
    velocity: np.ndarray  # [rad/s or m/s]
    acceleration: np.ndarray  # [rad/s² or m/s²]
    torque: np.ndarray  # [N·m or N]
    boxes: tuple[Box, ...] = ()
    notes: tuple[str, ...] = ()  # a sentence for everything that was assumed

    @property
    def centre(self) -> np.ndarray:
        """Half way between the position limits, (nv,)."""
        return np.asarray((self.lower + self.upper) / 2.0)

    @property
    def reach(self) -> np.ndarray:
        """How far a joint may go either way from the centre, (nv,)."""
        return np.asarray((self.upper - self.lower) / 2.0)

    def ratios(
        self, robot: Robot, q: np.ndarray, dq: np.ndarray, ddq: np.ndarray
    ) -> dict[str, np.ndarray]:
        """How much of each limit is used, (n, values) per kind; |ratio| ≤ 1 holds it."""
        out = {
            "position": (q - self.centre) / self.reach,
            "velocity": dq / self.velocity,
            "acceleration": ddq / self.acceleration,
        }
        if np.any(np.isfinite(self.torque)):
            out["torque"] = rigid_body.inverse_dynamics(robot, q, dq, ddq) / self.torque
        if self.boxes:
            out["box"] = np.hstack([box.ratios(robot, q) for box in self.boxes])
        return out

    def check(self, robot: Robot, motion: Motion | Trajectory) -> tuple[Margin, ...]:
        """Return the smallest margin to each kind of limit, at every millisecond."""
        if motion.joint_names != self.joint_names or robot.joint_names != self.joint_names:
            raise UsageError(
                f"these limits are of joints {known(self.joint_names)}, but the motion or the robot"
                f" has {known(motion.joint_names)}"
            )
        worst: dict[str, Margin] = {}
        for part in _parts(motion):
            for kind, ratio in self.ratios(robot, part.q, part.dq, part.ddq).items():
                if kind in ("velocity", "acceleration") and not np.any(
                    np.isfinite(getattr(self, kind))
                ):
                    continue
                row, column = np.unravel_index(int(np.argmax(np.abs(ratio))), ratio.shape)
                share = float(np.abs(ratio[row, column]))
                if kind not in worst or share > worst[kind].used:
                    name = self.box_name(int(column)) if kind == "box" else self.joint_names[column]
                    worst[kind] = Margin(kind, name, share, float(part.t[row]))
        return tuple(worst.values())

    def box_name(self, column: int) -> str:
        """The box that a column of the boxes' ratios belongs to, in words."""
        for box in self.boxes:
            size = len(box.points) * (3 if box.inside else 1)
            if column < size:
                return str(box)
            column -= size
        raise IndexError(column)


# -- from a robot file and its user ----------------------------------------------------------------


def motion_limits(
    robot: Robot,
    *,
    margin: float = MARGIN,
    position: Sequence[float] | np.ndarray | Mapping[str, Sequence[float]] | None = None,
    velocity: PerJoint | None = None,
    acceleration: PerJoint | None = None,
    torque: PerJoint | None = None,
    boxes: Sequence[Box] = (),
) -> MotionLimits:
    """The limits of the robot file, each taken to `margin` of itself, with what you give in their
    place, as given.

    position: (lower, upper) for all joints, (nv, 2), or per joint name. velocity, acceleration,
    torque: a number for all joints, (nv,), or per joint name; infinity lifts a limit. Where neither
    file nor user says anything, a joint turns π (slides 1 m) either way, and speed, acceleration
    and torque are not limited: `notes` names those joints.
    """
    require_plain(robot)
    if not (is_number(margin) and 0.0 < margin <= 1.0):
        raise UsageError(
            f"margin is {margin!r}; give the part of the file's limits to use, above 0 and at"
            " most 1"
        )
    notes: list[str] = []
    lower, upper = _positions(robot, margin, notes)
    if position is not None:
        _override_positions(robot, position, lower, upper)
    for name, low, high in zip(robot.joint_names, lower, upper, strict=True):
        if not low < high:
            raise UsageError(
                f"joint {name!r} may move from {low:g} to {high:g}, which leaves no room; give"
                " position limits with lower < upper, or lock the joint"
            )
    values = {
        "velocity": _stated(robot, "velocity", margin, "speed", notes, given=velocity),
        "acceleration": _override(robot, "acceleration", np.full(robot.nv, np.inf), acceleration),
        "torque": _stated(robot, "effort", margin, "torque", notes, given=torque),
    }
    if acceleration is None:
        notes.append(
            "robot files state no acceleration limits: acceleration is limited by speed, torque and"
            " the highest frequency alone"
        )
    for box in boxes:
        _place(robot, box.link)
    return MotionLimits(
        robot.joint_names, lower, upper, **values, boxes=tuple(boxes), notes=tuple(notes)
    )


def _followers(robot: Robot) -> list[tuple[int, Node, float, float]]:
    """(position in q, joint, ratio, offset) of every joint, mimic ones included: the joint stands
    at ratio·q + offset.
    """
    out = []
    for node in robot.tree.nodes:
        ratio, offset = (node.mimic.multiplier, node.mimic.offset) if node.mimic else (1.0, 0.0)
        out.append((robot.tree.v_index[node.name], node, ratio, offset))
    return out


def _positions(robot: Robot, margin: float, notes: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Position limits of the file to `margin` of their width, mimic joints included."""
    lower, upper = np.full(robot.nv, -np.inf), np.full(robot.nv, np.inf)
    for v, node, ratio, offset in _followers(robot):
        if ratio == 0.0:
            continue
        ends = sorted((np.array([node.limits.lower, node.limits.upper]) - offset) / ratio)
        lower[v], upper[v] = max(lower[v], ends[0]), min(upper[v], ends[1])
    free = []
    for v, node in enumerate(robot.tree.independent):
        default = FREE_TURN if node.kind is JointKind.REVOLUTE else FREE_SLIDE
        if np.isinf(lower[v]) and np.isinf(upper[v]):
            lower[v], upper[v] = -default, default
            free.append(
                f"{node.name} ±{default:.4g} {'rad' if node.kind is JointKind.REVOLUTE else 'm'}"
            )
            continue
        if np.isinf(lower[v]) or np.isinf(upper[v]):
            lower[v], upper[v] = (
                (upper[v] - 2.0 * default, upper[v])
                if np.isinf(lower[v])
                else (lower[v], lower[v] + 2.0 * default)
            )
            free.append(f"{node.name} {lower[v]:.4g} … {upper[v]:.4g}")
        spare = (1.0 - margin) * (upper[v] - lower[v]) / 2.0
        lower[v], upper[v] = lower[v] + spare, upper[v] - spare
    if free:
        notes.append(
            f"the file leaves these positions unlimited, so a motion keeps within: {known(free)}"
        )
    return lower, upper


def _stated(
    robot: Robot,
    field_name: str,
    margin: float,
    what: str,
    notes: list[str],
    *,
    given: PerJoint | None,
) -> np.ndarray:
    """A limit of the file per joint; none, or zero, which files write for "unknown", is no limit,
    and is said.
    """
    out = np.full(robot.nv, np.inf)
    for v, node, ratio, _ in _followers(robot):
        stated = getattr(node.limits, field_name)
        if (
            stated > 0.0
            and np.isfinite(stated)
            and (field_name == "velocity" or node.mimic is None)
            and ratio != 0.0
        ):
            out[v] = min(out[v], margin * stated / abs(ratio))
    unstated = np.isinf(out)
    out = _override(robot, "torque" if field_name == "effort" else field_name, out, given)
    unlimited = [robot.joint_names[v] for v in np.flatnonzero(unstated & np.isinf(out))]
    if unlimited:
        notes.append(
            f"nothing limits the {what} of {known(unlimited)}; give {what} limits where the robot"
            " has them"
        )
    return out


def _override(robot: Robot, name: str, values: np.ndarray, given: PerJoint | None) -> np.ndarray:
    """`values` with those given in their place."""
    out = values.copy()
    if given is None:
        return out
    if isinstance(given, Mapping):
        for joint, value in given.items():
            out[_joint(robot, joint)] = _number(name, joint, value)
        return out
    array = np.asarray(given, dtype=float) if not isinstance(given, str) else np.zeros(0)
    if array.shape not in ((), (robot.nv,)):
        raise UsageError(
            f"{name} limits have shape {array.shape}; give one number, {robot.nv} numbers or a"
            " number per joint name"
        )
    for v, value in enumerate(np.broadcast_to(array, (robot.nv,))):
        out[v] = _number(name, robot.joint_names[v], float(value))
    return out


def _number(name: str, joint: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not value > 0.0:
        raise UsageError(
            f"the {name} limit of joint {joint!r} is {value!r}; give a number above zero, or"
            " infinity for none"
        )
    return float(value)


def _joint(robot: Robot, joint: str) -> int:
    if joint not in robot.joint_names:
        raise UsageError(f"joint {joint!r} is not in the robot; joints: {known(robot.joint_names)}")
    return robot.joint_names.index(joint)


def _override_positions(robot: Robot, given: object, lower: np.ndarray, upper: np.ndarray) -> None:
    """Write (lower, upper) for those joints that have them."""
    if isinstance(given, Mapping):
        pairs = {_joint(robot, joint): (joint, pair) for joint, pair in given.items()}
    else:
        array = np.asarray(given, dtype=float)
        if array.shape not in ((2,), (robot.nv, 2)):
            raise UsageError(
                f"position limits have shape {array.shape}; give (lower, upper), ({robot.nv}, 2),"
                " or a pair per joint name"
            )
        pairs = {
            v: (robot.joint_names[v], pair)
            for v, pair in enumerate(np.broadcast_to(array, (robot.nv, 2)))
        }
    for v, (joint, pair) in pairs.items():
        ends = np.asarray(pair, dtype=float)
        if ends.shape != (2,) or not np.all(np.isfinite(ends)) or not ends[0] < ends[1]:
            raise UsageError(
                f"the position limits of joint {joint!r} are {pair!r}; give two finite numbers,"
                " lower < upper [rad or m]"
            )
        lower[v], upper[v] = ends
