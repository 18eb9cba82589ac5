"""Motions and poses that show what a link holds, where the robot's own parameters are known.

    F_p = Pᵀ·F·P,    P: base parameters per number of the payload

The criterion is taken of F_p in place of F. Held poses show mass and centre of mass alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import numpy as np

from thetahat.dynamics import rigid_body
from thetahat.errors import NotIdentifiable, check_count
from thetahat.excite.bases import FourierFamily
from thetahat.excite.initial_guess import poses
from thetahat.excite.measurement_noise import measurement_noise
from thetahat.excite.motion_limits import MotionLimits
from thetahat.excite.objective import Problem
from thetahat.identification.identifiability.base_parameters import base_parameters
from thetahat.identification.payload.payload_place import payload_place
from thetahat.model.parameters import FIRST_MOMENT, M
from thetahat.model.robot import Robot

SHOWN = 1e-9  # of the largest: singular values of P below are rounding
CANDIDATES = 400  # poses of which the best are chosen
RATE = 100.0  # [Hz]


@dataclass(frozen=True, eq=False)
class PayloadProblem(Problem):
    """The same motions under the same limits, and the criterion of a payload's numbers."""

    # (p, r): base parameters per combination of the ten numbers that a joint can feel
    carried: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))

    def measured(self, F: np.ndarray) -> tuple[float, np.ndarray]:
        """The criterion of the payload's part of an information (p, p), and its slope by F."""
        P = self.carried
        value, slope = super().measured(P.T @ F @ P)
        return value, P @ slope @ P.T


def payload_problem(problem: Problem, link: str) -> PayloadProblem:
    """Return the problem of a payload on a link."""
    place = payload_place(problem.robot, link, None)
    P = base_parameters(problem.robot).strong.map[:, place.span] @ place.to_body
    _, values, directions = np.linalg.svd(P, full_matrices=False)
    P = P @ directions[values > SHOWN * np.max(values, initial=0.0)].T
    if not P.shape[1]:
        raise NotIdentifiable(f"no joint feels what link {link!r} holds; name another link")
    given = {each.name: getattr(problem, each.name) for each in fields(problem)}
    return PayloadProblem(**given, carried=P)


def held_poses(
    robot: Robot, link: str, count: int, limits: MotionLimits, seed: int = 0
) -> np.ndarray:
    """Return poses to hold that show mass and centre of mass of a payload best, (count, nv).

    One after the other, each adds most to log det of their information about (m, m·c).
    """
    check_count("poses", count, "how many poses to hold", least=4, most=CANDIDATES)
    place = payload_place(robot, link, None)
    noise, _ = measurement_noise(
        robot, limits.torque, torque=None, position=None, rate=RATE, highest=1.0
    )
    family = FourierFamily(robot.joint_names, 10.0, 2, None)
    problem = Problem(robot, family, limits, "log-det", noise, RATE)
    q = np.unique(poses(problem, np.random.default_rng(seed), CANDIDATES), axis=0)
    Y = rigid_body.regressor(robot, q, 0.0 * q, 0.0 * q)[:, :, place.span]
    rows = (Y / noise.torque[:, None] @ place.to_body)[:, :, [M, *FIRST_MOMENT]]
    each = np.einsum("njk,njl->nkl", rows, rows)
    size = np.sqrt(np.einsum("nkk->k", each))
    each = each / np.outer(size, size) if np.all(size > 0.0) else each
    total, chosen = 1e-6 * np.eye(4), list[int]()
    for _ in range(count):
        gains = np.linalg.slogdet(total + each)[1]
        gains[chosen] = -np.inf
        best = int(np.argmax(gains))
        chosen.append(best)
        total = total + each[best]
    return np.asarray(q[chosen])
