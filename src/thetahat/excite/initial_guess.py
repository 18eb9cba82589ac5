"""Where a search begins: poses that can be held, and motions at random scaled up to the first limit
they meet.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from thetahat.errors import NotIdentifiable, RefusedForSafety, UsageError
from thetahat.excite.collision_model import FLOOR
from thetahat.excite.motion_limits import CHECK_RATE
from thetahat.excite.objective import Problem, room

POSES = 2000  # tried, where the middle of the position limits cannot be held
SPREAD = 0.5  # of the reach: how far from the middle the centre of a motion is drawn first
# scales tried in turn, of those that the limits of position, velocity and acceleration allow
LADDER = np.geomspace(1e-2, 1.0, 13)
BISECTIONS = 10
COARSE = 100.0  # [Hz] at which a scale is sought before it is checked at every millisecond
STILL = 0.999  # of a limit that a pose may take


# -- poses -----------------------------------------------------------------------------------------


def check_start(problem: Problem, start: np.ndarray) -> None:
    """Refuse a start that limits do not allow, or that the robot cannot hold."""
    robot, limits = problem.robot, problem.limits
    still = np.zeros((1, robot.nv))
    ratio = problem.tight * (start - limits.centre) / limits.reach
    worst = int(np.argmax(np.abs(ratio)))
    if abs(ratio[worst]) >= 1.0:
        raise UsageError(
            f"the start has joint {robot.joint_names[worst]!r} at {start[worst]:g}, which is not"
            f" inside of {limits.lower[worst]:g} … {limits.upper[worst]:g} by half a per cent;"
            " start inside, or give wider position limits"
        )
    _check_room(problem, start)
    held = np.abs(problem.curved_ratios(start[None], still, still)[0])
    if not held.size or np.max(held) < 1.0:
        return
    column = int(np.argmax(held))
    if column < problem.torques:
        raise UsageError(
            f"joint {robot.joint_names[column]!r} needs"
            f" {held[column] * limits.torque[column] / problem.tight:.4g} to hold the start, and"
            f" may take {limits.torque[column]:.4g} less half a per cent; start elsewhere or give a"
            " higher torque limit"
        )
    box = limits.box_name(column - problem.torques)
    raise UsageError(
        f"the start breaks, or comes too near to, the box of {box}; start elsewhere or give"
        " another box"
    )


def _check_room(problem: Problem, start: np.ndarray) -> None:
    """Refuse a start in the floor, or with links that touch."""
    felt = problem.felt(start[None])
    if not len(felt.ratio) or np.max(felt.ratio) < 1.0:
        return
    model, row = problem.limits.collisions, int(felt.row[np.argmax(felt.ratio)])
    least = f"{1000 * model.least(row):.3g} mm"
    if model.kind(row) == FLOOR:
        raise RefusedForSafety(
            f"the start has {model.name(row)} of {problem.robot.name!r} inside of the floor, z ="
            f" {model.floor:g} m, or less than {least} above it; start elsewhere, or give another"
            " floor or none"
        )
    raise RefusedForSafety(
        f"the start has {model.name(row)} of {problem.robot.name!r} less than {least} apart; start"
        " elsewhere, or give a smaller clearance"
    )


def poses(problem: Problem, rng: np.random.Generator, count: int) -> np.ndarray:
    """Poses the robot can hold inside all limits, (count, nv): the middle of the position limits
    first, if it is one.

    Refused where none of POSES is.
    """
    robot, limits = problem.robot, problem.limits
    near, far = (
        rng.uniform(-width, width, size=(POSES // 2, robot.nv))
        for width in (SPREAD, STILL / problem.tight)
    )
    q = limits.centre + limits.reach * np.vstack([np.zeros(robot.nv), near, far])
    used = np.abs(problem.curved_ratios(q, 0.0 * q, 0.0 * q))
    torque, box = (
        np.max(part, axis=1, initial=0.0)
        for part in (used[:, : problem.torques], used[:, problem.torques :])
    )
    crowded = np.zeros((2, len(q)))  # by links that keep apart, and by the floor
    felt, pairs = problem.felt(q), len(limits.collisions.pairs)
    np.maximum.at(crowded, ((felt.row >= pairs).astype(int), felt.sample), felt.ratio)
    apart = np.max(crowded, axis=0)
    held = np.flatnonzero(np.maximum.reduce([torque, box, apart]) < STILL)
    if len(held):
        return np.asarray(q[held[np.arange(count) % len(held)]])
    if np.min(torque) >= STILL:
        pose = int(np.argmin(torque))
        joint = int(np.argmax(used[pose, : problem.torques]))
        raise NotIdentifiable(
            f"torque limits are below gravity in each of {len(q)} poses tried: in the easiest of"
            f" them joint {robot.joint_names[joint]!r} needs"
            f" {used[pose, joint] * limits.torque[joint] / problem.tight:.4g} and may take"
            f" {limits.torque[joint]:.4g}; give higher torque limits"
        )
    if np.min(box) < STILL and np.min(apart) >= STILL:
        floor = np.min(crowded[1]) >= STILL
        raise NotIdentifiable(
            f"none of {len(q)} poses tried keeps"
            f" {'all links above the floor' if floor else 'links apart from each other'}; give"
            f" {'a lower floor or none' if floor else 'a smaller clearance, or no self-collision'}"
        )
    kept = "the boxes" if np.min(box) >= STILL else "all limits together"
    raise NotIdentifiable(
        f"none of {len(q)} poses tried keeps {kept}; check the boxes and which link they hold, or"
        " give the pose to start from"
    )


# -- scales ----------------------------------------------------------------------------------------


def largest(keeps: Callable[[float], bool], ladder: np.ndarray) -> float:
    """The largest scale below the first rung that breaks a limit; zero if the first does."""
    low = 0.0
    for rung in ladder:
        if keeps(float(rung)):
            low = float(rung)
            continue
        high = float(rung)
        for _ in range(BISECTIONS):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if keeps(middle) else (low, middle)
        break
    return low


def random_coefficients(
    problem: Problem, rng: np.random.Generator, pose: np.ndarray, *, together: bool = True
) -> np.ndarray:
    """Coefficients at random about a pose (or from the family's start), scaled up to the first
    limit met at the grid, (nv, size).

    together: one scale for all joints; else each joint is first scaled to its own limits, then all
        of them by those of torque and boxes.
    """
    family = problem.family
    X = np.zeros((len(pose), family.size))
    if family.start is None:
        X[:, 0] = pose
    drawn = family.draw(rng)
    still = problem.linear_ratios(X)
    X[:, family.moving] = drawn
    change = problem.linear_ratios(X) - still
    fits = np.min(room(still, change).reshape(len(still), 4, -1), axis=(0, 1))
    drawn = drawn * (np.full(len(pose), np.min(fits)) if together else fits)[:, None]

    def scaled(scale: float) -> np.ndarray:
        X[:, family.moving] = scale * drawn
        return X

    def keeps(scale: float) -> bool:
        states = problem.states(scaled(scale))
        if np.any(np.abs(problem.curved_ratios(*states)) > 1.0):
            return False
        return bool(np.all(problem.felt(states[0]).ratio <= 1.0))

    return scaled(largest(keeps, LADDER)).copy()


def used(problem: Problem, X: np.ndarray, *, rate: float = CHECK_RATE) -> float:
    """The largest share of what may be used of any limit, at every millisecond."""
    trajectory = problem.family.trajectory(X)
    return max(
        margin.share for margin in problem.limits.check(problem.robot, trajectory, rate=rate)
    )


def restored(problem: Problem, X: np.ndarray, *, most: float = 1.0) -> np.ndarray | None:
    """The coefficients scaled about the centre, or the start, by the largest factor up to `most`
    that keeps every limit at every millisecond.

    None where no factor does: the centre of a motion that keeps a box, or a torque limit, need not
    be a pose that does.
    """

    def scaled(scale: float) -> np.ndarray:
        out = X.copy()
        out[:, problem.family.moving] *= scale
        return out

    def keeps(scale: float) -> bool:
        return used(problem, scaled(scale), rate=COARSE) <= 1.0

    low, high = 0.0, most
    for rung in (most, 1.0, 0.995, 0.98, 0.95, 0.9, 0.8, 0.6, 0.4, 0.2, 0.1, 0.01):
        if rung > most:
            continue
        if keeps(rung):
            low = rung
            break
        high = rung
    for _ in range(8 if 0.0 < low < high else 0):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if keeps(middle) else (low, middle)
    for less in (1.0, 0.9995, 0.998, 0.995, 0.99, 0.97, 0.9) if low else ():
        if used(problem, scaled(less * low)) <= 1.0:
            return scaled(less * low)
    return None
