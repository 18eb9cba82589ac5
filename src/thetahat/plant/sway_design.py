"""Motions of a standing robot that its feet can carry: how much of friction cones, soles and torque
limits they use, and the best of some.

Forces are those by which the feet carry the motion with the least effort (`stance.feedforward`). A
foot must push (f_z > 0), inside its friction cone, and the centre of pressure of a flat foot must
be on its sole, p = (−m_y, m_x)/f_z in the link's axes: together they keep it inside the support
polygon.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thetahat.data.samples import Samples
from thetahat.dynamics.link_forces import link_place
from thetahat.errors import UsageError
from thetahat.identification.information import information
from thetahat.model.floating_base import ground_of, without_ground
from thetahat.model.robot import Robot
from thetahat.plant.ground_world import FRICTION, SOLE
from thetahat.plant.stance import StandingMotion, carried_motion, stand, sway

SIZES = (2.0, 1.6, 1.3, 1.0, 0.8, 0.6, 0.4, 0.25, 0.15, 0.1)  # of a sway, tried in turn
EVERY = 0.02  # [s] between moments that are judged
LIFT = 0.1  # of its share of the weight: a foot carries at least so much


@dataclass(frozen=True)
class Usage:
    """The worst use of a limit during a motion: 1 is the limit."""

    kind: str  # friction, support, lift or torque
    name: str  # of the foot or joint
    used: float
    time: float  # [s]

    def __str__(self) -> str:
        return f"{self.kind} of {self.name}: {self.used:.0%} of its limit at {self.time:.2f} s"


@dataclass(frozen=True, eq=False)
class StandingDesign:
    """A motion, what it uses of the limits, and what it shows."""

    motion: StandingMotion
    usage: tuple[Usage, ...]  # the worst of each kind
    size: float  # of the sway
    seed: int  # of the motion among those that were tried
    condition: float  # of the information's factor
    base_parameters: int
    tried: int


def design_sway(
    robot: Robot,
    *,
    duration: float,
    rate: float,
    seed: int = 0,
    tries: int = 8,
    margin: float = 0.8,
    friction: float = FRICTION,
) -> StandingDesign:
    """Return the best-conditioned of `tries` motions, each as large as the feet can carry.

    margin: of friction, soles and torque limits that may be used. friction: of the ground.
    """
    posture, best, counted = stand(robot), None, 0
    for k in range(tries):
        for size in SIZES:
            counted += 1
            try:
                coarse = sway(
                    robot, posture, duration=duration, rate=1.0 / EVERY, size=size, seed=seed + k
                )
            except UsageError:  # the legs do not reach so far
                continue
            usage = usage_of(robot, coarse, friction)
            if max(each.used for each in usage) > margin:
                continue
            condition, count = _condition(robot, coarse)
            if best is None or condition < best.condition:
                t = np.arange(round(duration * rate) + 1) / rate
                fine = coarse.resampled(robot, t)
                best = StandingDesign(fine, usage, size, seed + k, condition, count, counted)
            break
    if best is None:
        raise UsageError(
            f"no motion was found that the feet of {robot.name!r} carry with {margin:.0%} of"
            " friction, soles and torque limits; give a larger --margin"
        )
    return best


def usage_of(robot: Robot, motion: StandingMotion, friction: float) -> tuple[Usage, ...]:
    """Return the worst use of each kind of limit, by the robot's own masses."""
    ground = ground_of(robot)
    assert ground is not None
    tau, wrenches = carried_motion(robot, motion)
    share = robot.mass * float(np.linalg.norm(robot.gravity)) / len(ground.feet)
    found: list[Usage] = []
    for k, foot in enumerate(ground.feet):
        force, couple = wrenches[:, k, :3], wrenches[:, k, 3:]
        world = (link_place(robot, motion.q, foot.link)[0] @ force[..., None])[..., 0]
        up = world @ (-robot.gravity / np.linalg.norm(robot.gravity))
        push = np.maximum(up, 1e-9 * share)
        level = np.sqrt(np.maximum(np.sum(world**2, axis=1) - up**2, 0.0))
        aside = level / (friction * push)
        found.append(_worst("friction", foot.link, aside, motion.t))
        found.append(_worst("lift", foot.link, LIFT * share / push, motion.t))
        if foot.flat:
            at = np.abs(np.stack([couple[:, 1], couple[:, 0]], axis=1) / push[:, None])
            found.append(_worst("support", foot.link, (at / SOLE[:2]).max(axis=1), motion.t))
    for node in robot.tree.independent[1:]:
        limit = node.limits.effort
        if limit and np.isfinite(limit):
            used = np.abs(tau[:, robot.tree.v_index[node.name]]) / limit
            found.append(_worst("torque", node.name, used, motion.t))
    kinds = dict.fromkeys(each.kind for each in found)
    return tuple(max((u for u in found if u.kind == kind), key=lambda u: u.used) for kind in kinds)


def _worst(kind: str, name: str, used: np.ndarray, t: np.ndarray) -> Usage:
    k = int(np.argmax(used))
    return Usage(kind, name, float(used[k]), float(t[k]))


def _condition(robot: Robot, motion: StandingMotion) -> tuple[float, int]:
    """Condition of what the motion shows with all forces measured, and how many parameters."""
    free = without_ground(robot)
    samples = Samples(q=motion.q, dq=motion.dq, ddq=motion.ddq, tau=np.zeros_like(motion.dq))
    folded = information(free, samples)
    return folded.condition, folded.rank
