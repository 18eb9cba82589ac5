"""Standing and swaying with the feet in place: postures and motions of a floating robot.

The base moves on sums of sines, and the legs follow so that every foot stays where it is (damped
Gauss–Newton on all moments at once); joints that carry no foot move on sines of their own.
Feedforward torques are those of a robot whose weight and motion the feet carry with the least
forces.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.interpolate import make_interp_spline

from thetahat.data.velocities import (
    continuous_quaternions,
    normalize_quaternions,
    velocities_and_accelerations,
)
from thetahat.dynamics import rigid_body
from thetahat.dynamics.configuration import integrate
from thetahat.dynamics.link_forces import link_jacobian, link_place
from thetahat.errors import UsageError, known
from thetahat.model.floating_base import base_dofs, ground_of
from thetahat.model.ground import Foot
from thetahat.model.robot import Robot
from thetahat.plant.pressure_centre import base_shift, pressure_centre

STEPS, DAMPING = 60, 1e-6
NEAR = 1e-6  # [m or rad] from where a foot should be
CROUCH = (0.9, 0.94, 0.97, 0.85, 0.8, 0.75, 0.7)  # of the height with straight legs, tried in turn
TRIES = 8  # starts of the legs
BALANCING = 5  # shifts of the base, at most
OFF_CENTRE = 1e-3  # [m] of the centre of mass from the middle of the feet: balanced
MARGIN = 0.1  # of a joint's range that stays free on each side
WAVES = 4  # sines per coordinate
SLOWEST, FASTEST = 0.15, 1.2  # [Hz]
# [m] of a sole: a couple of so many N·m is as much effort as a force of 1 N, since it moves the
# centre of pressure as far as the sole goes
COUPLES = (0.05, 0.1, 0.05)
ROUNDS = 3  # of shifts that keep the centre of pressure among the feet
CHUNK = 2000  # rows whose Jacobians are held at once


@dataclass(frozen=True, eq=False)
class StandingMotion:
    """A motion with the feet in place, at even moments."""

    t: np.ndarray  # (n,)
    q: np.ndarray  # (n, nq)
    dq: np.ndarray  # (n, nv)
    ddq: np.ndarray  # (n, nv)

    def resampled(self, robot: Robot, t: np.ndarray) -> StandingMotion:
        """Return the motion at other moments; it stands still before its beginning and after its
        end.
        """
        return motion_through(robot, self.t, self.q, np.clip(t, self.t[0], self.t[-1]))


def stand(robot: Robot) -> np.ndarray:
    """Return a posture, (nq,), with all feet on the ground and bent legs, the base level."""
    ground = ground_of(robot)
    if ground is None or not ground.feet:
        raise UsageError(f"robot {robot.name!r} has no feet to stand on; name them with --contacts")
    rng = np.random.default_rng(0)
    straight = _clipped(robot, np.array(robot.neutral))
    feet = [link_place(robot, straight, foot.link) for foot in ground.feet]
    drop = -min(float(p[2]) for _, p in feet)
    level = np.eye(3)
    for crouch in CROUCH:
        for _ in range(TRIES):
            bent = straight.copy()
            joints = robot.nq - 7
            bent[7:] += 0.3 * rng.standard_normal(joints) * leg_joints(robot)[6:]
            bent = _clipped(robot, bent)
            bent[2] = crouch * drop
            targets = [
                (level if foot.flat else None, np.array([p[0], p[1], 0.0]))
                for foot, (_, p) in zip(ground.feet, feet, strict=True)
            ]
            q, error = _balanced(robot, bent, targets)
            if error < NEAR and _inside(robot, q):
                return q
    raise UsageError(
        f"no posture was found in which {known([foot.link for foot in ground.feet])} of"
        f" {robot.name!r} stand on level ground with bent legs; check the links and joint limits"
    )


def _balanced(
    robot: Robot, q: np.ndarray, targets: list[tuple[np.ndarray | None, np.ndarray]]
) -> tuple[np.ndarray, float]:
    """A posture whose centre of mass is above the middle of its feet, and the feet's error."""
    middle = np.mean([place[:2] for _, place in targets], axis=0)
    for _ in range(BALANCING):
        (found,), error = feet_in_place(robot, q[None], targets)
        off = centre_of_mass(robot, found)[:2] - middle
        if error > NEAR or float(np.abs(off).max()) < OFF_CENTRE:
            break
        q = found.copy()
        q[:2] -= off
    return np.asarray(found), error


def centre_of_mass(robot: Robot, q: np.ndarray) -> np.ndarray:
    """Compute the whole robot's centre of mass in the world, (…, 3) [m]."""
    R, p = rigid_body.body_frames(robot, q)
    theta = robot.theta.reshape(-1, 10)
    moments = np.einsum("...bij,bj->...bi", R, theta[:, [7, 4, 3]]) + theta[:, 9:] * p
    return np.asarray(moments.sum(axis=-2) / theta[:, 9].sum())


def sway(
    robot: Robot,
    posture: np.ndarray,
    *,
    duration: float,
    rate: float,
    size: float = 1.0,
    seed: int = 0,
) -> StandingMotion:
    """Return a motion that begins and ends in a posture, with the centre of pressure among the
    feet. size: 1 moves the base by some per cent of its height and 0.1 rad.
    """
    ground = ground_of(robot)
    assert ground is not None
    rng = np.random.default_rng(seed)
    t = np.arange(round(duration * rate) + 1) / rate
    height = float(posture[2])
    reach = np.zeros(robot.nv)
    reach[:6] = 0.08, 0.1, 0.1, 0.04 * height, 0.04 * height, 0.03 * height
    reach[6:] = np.where(leg_joints(robot)[6:], 0.0, 0.35)
    inside, reach = _inside_limits(robot, posture, size * reach)
    moved = _ramp(t)[:, None] * (inside + reach * _waves(rng, t, robot.nv))
    q = integrate(robot, np.repeat(posture[None], len(t), axis=0), moved)
    targets: list[tuple[np.ndarray | None, np.ndarray]] = []
    for foot in ground.feet:
        R, p = link_place(robot, posture, foot.link)
        targets.append((R if foot.flat else None, p))
    motion = _on_legs(robot, t, q, targets)
    standing = float(centre_of_mass(robot, posture)[2] - targets[0][1][2])
    for _ in range(ROUNDS):
        course = pressure_centre(robot, motion.q, motion.dq, motion.ddq, float(targets[0][1][2]))
        shift = base_shift(robot, t, course, posture, standing)
        if not shift.any():
            break
        q[:, :2] += shift
        motion = _on_legs(robot, t, q, targets)
    return motion


def _on_legs(
    robot: Robot,
    t: np.ndarray,
    q: np.ndarray,
    targets: list[tuple[np.ndarray | None, np.ndarray]],
) -> StandingMotion:
    """Let the legs follow the base."""
    q, error = feet_in_place(robot, q, targets)
    if error > 1e-4:
        raise UsageError(
            f"the legs of {robot.name!r} do not reach: a foot would move by {error:.2g} m; give a"
            " smaller --sway"
        )
    return motion_through(robot, t, q)


def motion_through(
    robot: Robot, knots: np.ndarray, q: np.ndarray, t: np.ndarray | None = None
) -> StandingMotion:
    """Return the motion through configurations at knots (quintic splines), at times inside; at the
    knots themselves where none are given.
    """
    t = knots if t is None else t
    spline = make_interp_spline(knots, continuous_quaternions(robot, q, None), k=5)
    at = spline(t)
    dq, ddq = velocities_and_accelerations(
        robot, at, spline.derivative(1)(t), spline.derivative(2)(t)
    )
    return StandingMotion(t, normalize_quaternions(robot, at), dq, ddq)


def feedforward(robot: Robot, motion: StandingMotion) -> np.ndarray:
    """Return joint torques, (n, nv), zero for the base, by which the feet carry a motion with the
    least forces and couples.
    """
    return carried_motion(robot, motion)[0]


def carried_motion(robot: Robot, motion: StandingMotion) -> tuple[np.ndarray, np.ndarray]:
    """Return these torques, (n, nv), and what the ground exerts on the feet, (n, feet, 6): force
    and couple about the link's origin, in its axes.
    """
    ground = ground_of(robot)
    assert ground is not None
    tau = rigid_body.inverse_dynamics(robot, motion.q, motion.dq, motion.ddq)
    base = list(base_dofs(robot))
    wrenches = np.zeros((len(tau), len(ground.feet), 6))
    reach = np.concatenate([(*COUPLES, 1.0, 1.0, 1.0)[-foot.size :] for foot in ground.feet])
    for first in range(0, len(tau), CHUNK):
        rows = slice(first, first + CHUNK)
        J = _contact_jacobian(robot, motion.q[rows], ground.feet)
        G = np.swapaxes(J[:, :, base], 1, 2) * reach
        force = reach * (np.linalg.pinv(G) @ tau[rows][:, base, None])[..., 0]
        tau[rows] -= (np.swapaxes(J, 1, 2) @ force[..., None])[..., 0]
        at = 0
        for k, foot in enumerate(ground.feet):
            own = force[:, at : at + foot.size]
            wrenches[rows, k, :3], at = own[:, -3:], at + foot.size
            wrenches[rows, k, 3:] = own[:, :3] if foot.flat else 0.0
    tau[:, base] = 0.0
    return np.asarray(tau), wrenches


def feet_in_place(
    robot: Robot, q: np.ndarray, targets: list[tuple[np.ndarray | None, np.ndarray]]
) -> tuple[np.ndarray, float]:
    """Move the legs of configurations (n, nq) so that feet are at targets (rotation or None for a
    point, position); return them and the largest error.
    """
    ground = ground_of(robot)
    assert ground is not None
    legs = np.flatnonzero(leg_joints(robot))
    q, worst = q.copy(), np.inf
    for _ in range(STEPS):
        J = _contact_jacobian(robot, q, ground.feet)[:, :, legs]
        error = np.concatenate(
            [
                _foot_error(robot, q, foot, *target)
                for foot, target in zip(ground.feet, targets, strict=True)
            ],
            axis=1,
        )
        worst = float(np.abs(error).max())
        if worst < 1e-10:
            break
        normal = J @ np.swapaxes(J, 1, 2) + DAMPING * np.eye(J.shape[1])
        step = (np.swapaxes(J, 1, 2) @ np.linalg.solve(normal, error[..., None]))[..., 0]
        step *= np.minimum(1.0, 0.3 / np.maximum(np.abs(step).max(axis=1), 1e-12))[:, None]
        moved = np.zeros((len(q), robot.nv))
        moved[:, legs] = step
        q = integrate(robot, q, moved)
    return q, worst


def _contact_jacobian(robot: Robot, q: np.ndarray, feet: tuple[Foot, ...]) -> np.ndarray:
    parts = [link_jacobian(robot, q, foot.link) for foot in feet]
    return np.concatenate(
        [J if foot.flat else J[..., 3:, :] for J, foot in zip(parts, feet, strict=True)], axis=-2
    )


def _foot_error(
    robot: Robot, q: np.ndarray, foot: Foot, rotation: np.ndarray | None, position: np.ndarray
) -> np.ndarray:
    """Twist in the link's axes that takes a foot to its place, (n, 3 or 6)."""
    R, p = link_place(robot, q, foot.link)
    back = np.swapaxes(R, -1, -2)
    linear = (back @ (position - p)[..., None])[..., 0]
    if rotation is None:
        return np.asarray(linear)
    turn = back @ rotation
    axis = 0.5 * np.stack(
        [
            turn[..., 2, 1] - turn[..., 1, 2],
            turn[..., 0, 2] - turn[..., 2, 0],
            turn[..., 1, 0] - turn[..., 0, 1],
        ],
        axis=-1,
    )
    return np.concatenate([axis, linear], axis=-1)


def leg_joints(robot: Robot) -> np.ndarray:
    """Return which degrees of freedom carry a foot, (nv,) bool."""
    ground = ground_of(robot)
    assert ground is not None
    out = np.zeros(robot.nv, dtype=bool)
    for foot in ground.feet:
        node = robot.tree.bodies[robot.body_index(foot.link)]
        while node > 0:
            out[robot.tree.v_index[robot.tree.nodes[node].name]] = True
            node = robot.tree.nodes[node].parent
    return out


def _clipped(robot: Robot, q: np.ndarray) -> np.ndarray:
    """Configurations with joints inside their limits."""
    q = q.copy()
    for node in robot.tree.independent:
        low, high = node.limits.lower, node.limits.upper
        if node.kind.nq == 1 and np.isfinite(low) and np.isfinite(high) and high > low:
            at, room = robot.tree.q_index[node.name], MARGIN * (high - low)
            q[..., at] = np.clip(q[..., at], low + room, high - room)
    return q


def _inside(robot: Robot, q: np.ndarray) -> bool:
    """Whether joints are inside their limits."""
    return all(
        node.limits.lower <= q[robot.tree.q_index[node.name]] <= node.limits.upper
        for node in robot.tree.independent
        if node.kind.nq == 1
    )


def _waves(rng: np.random.Generator, t: np.ndarray, count: int) -> np.ndarray:
    """Sums of sines, (n, count), within ±1."""
    f = np.exp(rng.uniform(np.log(SLOWEST), np.log(FASTEST), (count, WAVES)))
    phase = rng.uniform(0.0, 2.0 * np.pi, (count, WAVES))
    size = rng.uniform(0.3, 1.0, (count, WAVES)) * np.minimum(1.0, 0.4 / f)
    size /= size.sum(axis=1, keepdims=True)
    waves = np.sum(size * np.sin(2.0 * np.pi * t[:, None, None] * f + phase), axis=2)
    return np.asarray(waves)


def _ramp(t: np.ndarray) -> np.ndarray:
    """From 0 to 1 and back to 0, gently, (n,)."""
    ramp = np.clip(np.minimum(t, t[-1] - t) / min(2.0, 0.25 * t[-1]), 0.0, 1.0)
    return np.asarray(ramp**3 * (10.0 - 15.0 * ramp + 6.0 * ramp**2))


def _inside_limits(
    robot: Robot, posture: np.ndarray, reach: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """How far to move joints from a posture, and how far they may swing there on both sides, so
    that they stay inside their limits, (nv,) each.
    """
    shift, reach = np.zeros(robot.nv), reach.copy()
    for node in robot.tree.independent[1:]:
        low, high = node.limits.lower, node.limits.upper
        v = robot.tree.v_index[node.name]
        if node.kind.nq == 1 and reach[v] and np.isfinite(low) and np.isfinite(high) and high > low:
            room = MARGIN * (high - low)
            reach[v] = min(reach[v], 0.5 * (high - low) - room)
            q = posture[robot.tree.q_index[node.name]]
            shift[v] = np.clip(q, low + room + reach[v], high - room - reach[v]) - q
    return shift, reach
