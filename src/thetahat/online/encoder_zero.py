"""Whether a joint's position seems to be counted from another zero than the robot file's.

A robot whose bodies hang elsewhere is fitted perfectly where its encoder is off by half a radian:
each link's centre of mass turns with it. So held-out torques are compared with those of the nominal
robot in shifted positions,

    τ_j ≈ a_j τ_nominal,j(q + δ) + b_j sign q̇_j + c_j q̇_j + d_j,

δ by four steps of Gauss–Newton (variable projection), every other number by least squares per
joint: any masses, however scaled, and any friction are allowed. A shift is named where it is at
least 0.25 rad (or 0.1 m) and leaves at most a third of what no shift leaves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thetahat.data.samples import Samples
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind
from thetahat.online.predict import Model

STEPS = 4  # of Gauss–Newton
STEP = 1e-4  # [rad or m] of numerical derivatives
LONGEST = 0.4  # [rad or m] of one step
RIDGE = 1e-3  # of the largest curvature: a joint that no torque shows stays where it is
SHIFT = {JointKind.REVOLUTE: 0.25, JointKind.PRISMATIC: 0.1}  # [rad], [m]
LEFT = 1.0 / 3.0  # of what is left without a shift
UNEXPLAINED = 0.1  # of the torques: less than that left without a shift needs none
LEAST_ROWS = 60


@dataclass(frozen=True, eq=False)
class ZeroShift:
    """Shifts that explain torques best, and the share of the torques left with and without."""

    shift: np.ndarray  # (nv,) [rad or m]
    left: float
    left_without: float

    def sentence(self, robot: Robot) -> str:
        """What is wrong, "" where nothing is."""
        if self.left_without < UNEXPLAINED or self.left > LEFT * self.left_without:
            return ""
        least = np.array([SHIFT.get(node.kind, np.inf) for node in robot.tree.independent])
        v = int(np.argmax(np.abs(self.shift) / least))
        if abs(self.shift[v]) < least[v]:
            return ""
        return (
            f"the torques are those of a robot whose joint {robot.velocity_names[v]!r} stands"
            f" {self.shift[v]:+.2g} further than measured; check its zero, or state what changed:"
            ' expect=("payload",)'
        )


def zero_shift(model: Model, samples: Samples) -> ZeroShift | None:
    """Find the shifts with which a model explains torques of one-DOF joints best; None where there
    are too few samples.
    """
    q, dq, ddq, tau = samples.q, samples.dq, samples.ddq, samples.tau
    if len(q) < LEAST_ROWS:
        return None
    valid = samples.valid
    size = np.sqrt(np.mean(tau**2, axis=0))
    size = np.where(size > 0.05 * np.max(size), size, np.inf)  # (nv,) weak joints tell nothing
    shift = np.zeros(tau.shape[1])
    best: tuple[float, np.ndarray] | None = None
    first = 0.0
    for k in range(STEPS + 1):
        residual, J = _residual(model, (q, dq, ddq, tau), valid, size, shift)
        left = float(np.sqrt(np.mean(residual**2)))
        if best is None:
            first = left
        if best is None or left < best[0]:
            best = left, shift.copy()
        if k < STEPS:
            H = J.T @ J
            H += RIDGE * float(np.max(np.diag(H))) * np.eye(len(H))
            step = -np.linalg.solve(H, J.T @ residual)
            shift = shift + step * min(1.0, LONGEST / max(float(np.max(np.abs(step))), 1e-12))
    assert best is not None
    whole = float(np.sqrt(np.mean((np.where(valid, tau, 0.0) / size) ** 2)))
    return ZeroShift(best[1], best[0] / whole, first / whole) if whole > 0.0 else None


def _residual(
    model: Model,
    sample: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    valid: np.ndarray,
    size: np.ndarray,
    shift: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """What is left of the torques over their size, (n·nv,), and its derivatives by the shift."""
    q, dq, ddq, tau = sample
    n, nv = tau.shape
    here = np.array(model.torque(q + shift, dq, ddq))
    moved = np.empty((nv, n, nv))
    for k in range(nv):
        step = shift.copy()
        step[k] += STEP
        moved[k] = (model.torque(q + step, dq, ddq) - here) / STEP
    residual, J = np.zeros((n, nv)), np.zeros((n, nv, nv))
    for j in range(nv):
        rows = valid[:, j]
        if not np.isfinite(size[j]) or np.count_nonzero(rows) < 10:
            continue
        A = np.column_stack([here[rows, j], np.sign(dq[rows, j]), dq[rows, j], np.ones(rows.sum())])
        Q = np.linalg.qr(A / np.maximum(np.linalg.norm(A, axis=0), 1e-12))[0]
        scale = np.linalg.lstsq(A, tau[rows, j], rcond=1e-9)[0][0]
        b = tau[rows, j]
        residual[rows, j] = (b - Q @ (Q.T @ b)) / size[j]
        D = -scale * moved[:, rows, j].T
        J[rows, j] = (D - Q @ (Q.T @ D)) / size[j]
    return residual.ravel(), J.reshape(n * nv, nv)
