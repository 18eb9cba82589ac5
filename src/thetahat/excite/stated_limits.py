"""Limits of joints as a robot file states them, and as a user gives them in their place.

Beside each limit stands the share of it that a motion may use: the margin for those of the file,
all of it for those that are given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from thetahat.errors import UsageError, known
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind, Node

# What stands for limits that no robot file states. A joint takes RISE to its top speed, and
# JERK_RISE to that acceleration: a Panda's slowest joint is stated with 0.29 s and 2 ms.
RISE, JERK_RISE = 0.3, 0.1  # [s]
# Where no speed is stated either.
FREE_TURN_ACCELERATION, FREE_SLIDE_ACCELERATION = 10.0, 2.0  # [rad/s²], [m/s²]
FREE_TURN, FREE_SLIDE = np.pi, 1.0  # [rad], [m] either way, where nothing limits a joint

PerJoint = float | Sequence[float] | np.ndarray | Mapping[str, float]


def _followers(robot: Robot) -> list[tuple[int, Node, float, float]]:
    """(position in q, joint, ratio, offset) of every joint, mimic ones included: the joint stands
    at ratio·q + offset.
    """
    out = []
    for node in robot.tree.nodes:
        ratio, offset = (node.mimic.multiplier, node.mimic.offset) if node.mimic else (1.0, 0.0)
        out.append((robot.tree.v_index[node.name], node, ratio, offset))
    return out


def joint_unit(robot: Robot, joint: int) -> str:
    """Return rad or m."""
    return "rad" if robot.tree.independent[joint].kind is JointKind.REVOLUTE else "m"


def allowed_shares(robot: Robot, margin: float, given: object) -> np.ndarray:
    """Return the share of each limit that a motion may use, (nv,): all of those that are given."""
    if given is None:
        return np.full(robot.nv, margin)
    if not isinstance(given, Mapping):
        return np.ones(robot.nv)
    return np.array([1.0 if joint in given else margin for joint in robot.joint_names])


def acceleration_limits(
    robot: Robot, velocity: np.ndarray, given: PerJoint | None, notes: list[str]
) -> np.ndarray:
    """Return the limits that are given, or what RISE makes of the speeds [rad/s² or m/s²]."""
    free = np.array(
        [
            FREE_TURN_ACCELERATION if joint_unit(robot, v) == "rad" else FREE_SLIDE_ACCELERATION
            for v in range(robot.nv)
        ]
    )
    assumed = np.where(np.isfinite(velocity), velocity / RISE, free)
    out = override(robot, "acceleration", assumed, given)
    if np.any(allowed_shares(robot, 0.0, given) == 0.0):
        or_else = "" if np.all(np.isfinite(velocity)) else ", a guess where none is stated"
        notes.append(
            f"acceleration limits are assumed, as robot files state none: {RISE:g} s from rest to"
            f" top speed{or_else} ({_ranges(robot, out, '²')}); give those that the robot has"
        )
    return out


def jerk_limits(
    robot: Robot, acceleration: np.ndarray, given: PerJoint | None, notes: list[str]
) -> np.ndarray:
    """Return the limits that are given, or what JERK_RISE makes of the accelerations."""
    out = override(robot, "jerk", acceleration / JERK_RISE, given)
    if np.any(allowed_shares(robot, 0.0, given) == 0.0):
        notes.append(
            f"jerk limits are assumed: {JERK_RISE:g} s from rest to full acceleration"
            f" ({_ranges(robot, out, '³')})"
        )
    return out


def _ranges(robot: Robot, values: np.ndarray, power: str) -> str:
    """Least and largest of the joints that turn, and of those that slide."""
    out = []
    for unit in ("rad", "m"):
        own = [value for v, value in enumerate(values) if joint_unit(robot, v) == unit]
        if own:
            ends = dict.fromkeys(f"{end:.3g}" for end in (min(own), max(own)))
            out.append(f"{' to '.join(ends)} {unit}/s{power}")
    return ", ".join(out)


def stated_positions(
    robot: Robot, margin: float, notes: list[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Position limits of the file to `margin` of their width, mimic joints included, and the share
    of them that this is.
    """
    lower, upper = np.full(robot.nv, -np.inf), np.full(robot.nv, np.inf)
    for v, node, ratio, offset in _followers(robot):
        if ratio == 0.0:
            continue
        ends = sorted((np.array([node.limits.lower, node.limits.upper]) - offset) / ratio)
        lower[v], upper[v] = max(lower[v], ends[0]), min(upper[v], ends[1])
    free, share = [], np.full(robot.nv, margin)
    for v, node in enumerate(robot.tree.independent):
        default = FREE_TURN if node.kind is JointKind.REVOLUTE else FREE_SLIDE
        if np.isinf(lower[v]) and np.isinf(upper[v]):
            lower[v], upper[v], share[v] = -default, default, 1.0
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
    return lower, upper, share


def stated_values(
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
    out = override(robot, "torque" if field_name == "effort" else field_name, out, given)
    unlimited = [robot.joint_names[v] for v in np.flatnonzero(unstated & np.isinf(out))]
    if unlimited:
        notes.append(
            f"nothing limits the {what} of {known(unlimited)}; give {what} limits where the robot"
            " has them"
        )
    return out


def override(robot: Robot, name: str, values: np.ndarray, given: PerJoint | None) -> np.ndarray:
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


def override_positions(robot: Robot, given: object, lower: np.ndarray, upper: np.ndarray) -> None:
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
