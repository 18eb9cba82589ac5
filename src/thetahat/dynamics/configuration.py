"""Random configurations, and integration of velocities on the configuration manifold.

q is a plain vector only where every joint has one degree of freedom; a quaternion moves along its
sphere.
"""

from __future__ import annotations

import numpy as np

from thetahat.dynamics import batch
from thetahat.model.robot import Robot
from thetahat.model.spatial import skew
from thetahat.model.tree import JointKind

UNBOUNDED = np.pi  # [rad or m] where a joint states no limit


def random_configuration(
    robot: Robot, rng: np.random.Generator, samples: int | None = None
) -> np.ndarray:
    """Draw q uniformly inside the joints' limits (±π where there are none), (nq,) or (samples, nq)."""
    q = np.zeros((1 if samples is None else samples, robot.nq))
    for node in robot.tree.independent:
        at, size = robot.tree.q_index[node.name], node.kind.nq
        if node.kind in (JointKind.BALL, JointKind.FREE):
            turn = rng.normal(size=(len(q), 4))
            q[:, at + size - 4 : at + size] = turn / np.linalg.norm(turn, axis=1, keepdims=True)
            size -= 4
        low = max(node.limits.lower, -UNBOUNDED) if node.kind.nq == 1 else -UNBOUNDED
        high = min(node.limits.upper, UNBOUNDED) if node.kind.nq == 1 else UNBOUNDED
        if low >= high:  # limits wholly outside ±π, or a single point
            low, high = node.limits.lower, node.limits.upper
        q[:, at : at + size] = rng.uniform(low, high, size=(len(q), size))
    return q[0] if samples is None else q


def integrate(robot: Robot, q: np.ndarray, dq: np.ndarray) -> np.ndarray:
    """Integrate the constant velocity dq over one second from q (body twists for planar, ball and
    free joints).
    """
    q, dq = batch.check_state(robot, q, dq)
    out = q.copy()
    for node in robot.tree.independent:
        at, v = robot.tree.q_index[node.name], robot.tree.v_index[node.name]
        rate = dq[..., v : v + node.kind.nv]
        match node.kind:
            case JointKind.REVOLUTE | JointKind.PRISMATIC:
                out[..., at] += rate[..., 0]
            case JointKind.PLANAR:
                out[..., at : at + 3] = _planar(out[..., at : at + 3], rate)
            case JointKind.BALL:
                out[..., at : at + 4] = _turned(out[..., at : at + 4], rate)
            case JointKind.FREE:
                shift = _moved(rate[..., :3], rate[..., 3:])
                out[..., at : at + 3] += (_matrix(out[..., at + 3 : at + 7]) @ shift[..., None])[
                    ..., 0
                ]
                out[..., at + 3 : at + 7] = _turned(out[..., at + 3 : at + 7], rate[..., :3])
    return out


def _planar(q: np.ndarray, rate: np.ndarray) -> np.ndarray:
    """(x, y, angle) along an arc: the body turns by w while it moves by its own (vx, vy)."""
    normal = np.array([0.0, 0.0, 1.0])
    shift = _moved(
        rate[..., 2:] * normal,
        np.concatenate([rate[..., :2], np.zeros_like(rate[..., :1])], axis=-1),
    )
    c, s = np.cos(q[..., 2]), np.sin(q[..., 2])
    x = q[..., 0] + c * shift[..., 0] - s * shift[..., 1]
    y = q[..., 1] + s * shift[..., 0] + c * shift[..., 1]
    return np.stack([x, y, q[..., 2] + rate[..., 2]], axis=-1)


def _moved(w: np.ndarray, v: np.ndarray) -> np.ndarray:
    """∫₀¹ exp(t w×) v dt = (1 + (1 − cos φ)/φ² w× + (φ − sin φ)/φ³ (w×)²) v, φ = |w|."""
    phi = np.linalg.norm(w, axis=-1)[..., None, None]
    small = phi < 1e-4
    safe = np.where(small, 1.0, phi)
    first = np.where(small, 0.5 - phi**2 / 24.0, (1.0 - np.cos(safe)) / safe**2)
    second = np.where(small, 1.0 / 6.0 - phi**2 / 120.0, (safe - np.sin(safe)) / safe**3)
    w_x = skew(w)
    shift: np.ndarray = ((np.eye(3) + first * w_x + second * (w_x @ w_x)) @ v[..., None])[..., 0]
    return shift


def _turned(quaternion: np.ndarray, w: np.ndarray) -> np.ndarray:
    """quaternion ⊗ exp(w/2), (x, y, z, w) order, unit length."""
    phi = np.linalg.norm(w, axis=-1, keepdims=True)
    step = 0.5 * np.sinc(phi / (2.0 * np.pi)) * w  # sin(φ/2)/φ · w
    a, b = quaternion[..., :3], step
    scalar_a, scalar_b = quaternion[..., 3:], np.cos(phi / 2.0)
    vector = scalar_a * b + scalar_b * a + np.cross(a, b)
    scalar = scalar_a * scalar_b - np.sum(a * b, axis=-1, keepdims=True)
    result: np.ndarray = np.concatenate([vector, scalar], axis=-1)
    result /= np.linalg.norm(result, axis=-1, keepdims=True)
    return result


def _matrix(quaternion: np.ndarray) -> np.ndarray:
    """Rotation of a unit quaternion (x, y, z, w): 1 + 2w a× + 2 (a×)²."""
    a_x = skew(quaternion[..., :3])
    R: np.ndarray = np.eye(3) + 2.0 * quaternion[..., 3, None, None] * a_x + 2.0 * a_x @ a_x
    return R
