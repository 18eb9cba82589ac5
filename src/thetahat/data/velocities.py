"""Joint velocities and accelerations from coordinates and their time derivatives.

For joints of one degree of freedom they are the same. Planar, ball and free joints have body
twists, angular first, and their orientation is a quaternion p, filtered as four numbers and
therefore of length near, not exactly, one:

    ω = 2 vec(p̄ ∘ ṗ)/|p|²,   ω̇ = 2 vec(p̄ ∘ p̈)/|p|² − 2 (p·ṗ/|p|²) ω
    v = Rᵀẋ,                 v̇ = Rᵀẍ − ω × v
"""

from __future__ import annotations

import numpy as np

from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind


def all_single_dof(robot: Robot) -> bool:
    """Return whether every joint has one degree of freedom, so that q̇ is the derivative of q."""
    return all(
        node.kind in (JointKind.REVOLUTE, JointKind.PRISMATIC) for node in robot.tree.independent
    )


def velocities(robot: Robot, q: np.ndarray, rate: np.ndarray) -> np.ndarray:
    """Compute dq (n, nv) from q and its time derivative (n, nq)."""
    return velocities_and_accelerations(robot, q, rate, np.zeros_like(q))[0]


def velocities_and_accelerations(
    robot: Robot, q: np.ndarray, rate: np.ndarray, second: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Compute (dq, ddq), each (n, nv), from q and its first and second time derivatives (n, nq)."""
    if all_single_dof(robot):
        return rate, second
    dq, ddq = np.empty((len(q), robot.nv)), np.empty((len(q), robot.nv))
    for node in robot.tree.independent:
        at, v = robot.tree.q_index[node.name], robot.tree.v_index[node.name]
        own = [array[:, at : at + node.kind.nq] for array in (q, rate, second)]
        dq[:, v : v + node.kind.nv], ddq[:, v : v + node.kind.nv] = _JOINTS[node.kind](*own)
    return dq, ddq


def normalize_quaternions(robot: Robot, q: np.ndarray) -> np.ndarray:
    """Scale the quaternions in q to unit length, in place."""
    for _, at in robot.tree.quaternions:
        q[:, at : at + 4] /= np.maximum(
            np.linalg.norm(q[:, at : at + 4], axis=1, keepdims=True), 1e-300
        )
    return q


def continuous_quaternions(robot: Robot, q: np.ndarray, before: np.ndarray | None) -> np.ndarray:
    """Return q (n, nq) with the signs of its quaternions chosen so that none jumps to its antipode,
    from the row `before` on.
    """
    if not robot.tree.quaternions:
        return q
    out = q.copy()
    for _, at in robot.tree.quaternions:
        own = out[:, at : at + 4]
        last = own[:1] if before is None else before[None, at : at + 4]
        turns = np.sum(np.concatenate([last, own[:-1]]) * own, axis=1) < 0.0
        own *= np.where(np.cumsum(turns) % 2 == 1, -1.0, 1.0)[:, None]
    return out


def _plain(q: np.ndarray, rate: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return rate, second


def _planar(q: np.ndarray, rate: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    c, s, w = np.cos(q[:, 2]), np.sin(q[:, 2]), rate[:, 2]
    v = np.column_stack([c * rate[:, 0] + s * rate[:, 1], c * rate[:, 1] - s * rate[:, 0]])
    a = np.column_stack(
        [
            c * second[:, 0] + s * second[:, 1] + w * v[:, 1],
            c * second[:, 1] - s * second[:, 0] - w * v[:, 0],
        ]
    )
    return np.column_stack([v, w]), np.column_stack([a, second[:, 2]])


def _ball(p: np.ndarray, rate: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    length = np.maximum(np.sum(p * p, axis=1, keepdims=True), 1e-300)
    omega = 2.0 * _vector_part(p, rate) / length
    return (
        omega,
        2.0 * _vector_part(p, second) / length
        - 2.0 * np.sum(p * rate, axis=1, keepdims=True) / length * omega,
    )


def _free(q: np.ndarray, rate: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    omega, turning = _ball(q[:, 3:], rate[:, 3:], second[:, 3:])
    v = _to_body(q[:, 3:], rate[:, :3])
    return np.column_stack([omega, v]), np.column_stack(
        [turning, _to_body(q[:, 3:], second[:, :3]) - np.cross(omega, v)]
    )


_JOINTS = {
    JointKind.REVOLUTE: _plain,
    JointKind.PRISMATIC: _plain,
    JointKind.PLANAR: _planar,
    JointKind.BALL: _ball,
    JointKind.FREE: _free,
}


def _vector_part(p: np.ndarray, r: np.ndarray) -> np.ndarray:
    """Return vec(p̄ ∘ r) of quaternions (x, y, z, w)."""
    cross = np.cross(p[:, :3], r[:, :3])
    return np.asarray(p[:, 3:] * r[:, :3] - r[:, 3:] * p[:, :3] - cross)


def _to_body(p: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return Rᵀx for the rotation of p: x − 2w a × x + 2 a × (a × x), p = (a, w) of unit length."""
    p = p / np.maximum(np.linalg.norm(p, axis=1, keepdims=True), 1e-300)
    cross = np.cross(p[:, :3], x)
    return x - 2.0 * p[:, 3:] * cross + 2.0 * np.cross(p[:, :3], cross)
