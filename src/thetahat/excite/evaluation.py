"""What a motion shows of a robot's base parameters, and which space the robot takes in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from thetahat.data.samples import Samples
from thetahat.dynamics import rigid_body
from thetahat.excite.box import link_place
from thetahat.excite.measurement_noise import MeasurementNoise
from thetahat.excite.motion_limits import CHECK_RATE, Margin, MotionLimits
from thetahat.excite.trajectory import Trajectory
from thetahat.identification import factor as f
from thetahat.identification.information import Information, information
from thetahat.model.robot import Robot


class Excitation(NamedTuple):
    """How well a motion shows the base parameters, torques in units of their noise."""

    information: Information  # of the motion alone, with the robot's own torques
    log_det: float  # of the information in base parameters, earlier logs and a prior included
    condition: float  # of the column-scaled base regressor, earlier logs and a prior included


def excitation(
    robot: Robot,
    trajectory: Trajectory,
    noise: np.ndarray | MeasurementNoise,
    *,
    rate: float = 100.0,
    earlier: Information | None = None,
    prior: np.ndarray | None = None,
) -> Excitation:
    """Return how well a motion shows the base parameters.

    noise: standard deviations of the torques, (nv,), or with those of accelerations. earlier: what
    earlier logs show. prior: information (p, p) in base parameters there is without a log.
    """
    if not isinstance(noise, MeasurementNoise):
        noise = MeasurementNoise(np.asarray(noise, dtype=float), np.zeros(robot.nv))
    motion = trajectory.sampled(rate)
    tau = rigid_body.inverse_dynamics(robot, motion.q, motion.dq, motion.ddq)
    samples = Samples(q=motion.q, dq=motion.dq, ddq=motion.ddq, tau=tau, t=motion.t)
    shown = weighted = information(robot, samples)
    if np.any(noise.acceleration):
        relative = noise.torque / np.sqrt(noise.variances(robot, motion.q))
        weighted = information(robot, samples, weights=relative)
    stacked = (weighted if earlier is None else weighted + earlier).stacked(1.0 / noise.torque)
    if prior is not None:
        stacked = with_prior(stacked, prior)
    solution = f.solve(stacked)
    if solution.rank < len(shown.base):
        return Excitation(shown, -np.inf, np.inf)
    log_det = 2.0 * float(np.sum(np.log(np.abs(np.diag(solution.seen)))))
    return Excitation(shown, log_det, solution.condition)


def with_prior(factor: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Return the factor of [A | b] with an information (p, p) added to that of A."""
    size = np.sqrt(np.maximum(np.diag(prior), 1e-300))
    root = np.linalg.cholesky(prior / np.outer(size, size)).T * size
    rows = np.vstack([factor, np.column_stack([root, np.zeros(len(root))])])
    return np.asarray(np.linalg.qr(rows, mode="r"))


# -- space -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Workspace:
    """The space that a motion takes, at every millisecond."""

    link: str  # the tip: the last link of the longest chain
    lower: np.ndarray  # (3,) of the box around its origin [m]
    upper: np.ndarray  # (3,) [m]
    lowest: float  # [m] height of the lowest point of all that moves
    lowest_link: str  # which holds it
    lowest_time: float  # [s] when

    def __str__(self) -> str:
        ends = ", ".join(
            f"{axis} {low:.2f} … {high:.2f}".replace("-", "−")
            for axis, low, high in zip("xyz", self.lower, self.upper, strict=True)
        )
        return (
            f"workspace: {self.link} moves in {ends} m; the lowest point is on {self.lowest_link},"
            f" z = {self.lowest:.3f} m at t = {self.lowest_time:.3f} s"
        )


def workspace(robot: Robot, limits: MotionLimits, trajectory: Trajectory) -> Workspace:
    """Return the space that a motion takes."""
    q = trajectory.sampled(CHECK_RATE).q
    link = tip(robot)
    body, _, at = link_place(robot, link)
    R, p = rigid_body.body_frames(robot, q)
    origin = R[:, body] @ at + p[:, body]
    lowest, name, row = limits.collisions.lowest_point(robot, q)
    return Workspace(link, origin.min(axis=0), origin.max(axis=0), lowest, name, row / CHECK_RATE)


def tip(robot: Robot) -> str:
    """Return the last link of the longest chain of joints."""
    depth: list[int] = []
    for node in robot.tree.nodes:
        depth.append(1 + (depth[node.parent] if node.parent >= 0 else 0))
    bodies = [depth[node] for node in robot.tree.bodies]
    body = int(np.argmax(bodies))
    links = [link.name for link in robot.links if link.body == body]
    return links[-1] if links else robot.body_names[body]


@dataclass(frozen=True, eq=False)
class MotionCheck:
    """A motion against its limits, at every millisecond."""

    margins: tuple[Margin, ...]  # the nearest to each kind of limit
    workspace: Workspace


def check_motion(robot: Robot, limits: MotionLimits, trajectory: Trajectory) -> MotionCheck:
    """Return how near a motion comes to its limits, and the space it takes."""
    return MotionCheck(limits.check(robot, trajectory), workspace(robot, limits, trajectory))
