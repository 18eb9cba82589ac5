"""The regressor once more, in extended precision and by plain recursion: slow, and independent of
the kernels.
"""

from __future__ import annotations

import numpy as np

from thetahat.model import parameters
from thetahat.model.robot import Robot
from thetahat.model.tree import (
    ANGULAR,
    COLUMN,
    DOF_COUNT,
    FIRST_DOF,
    LAST_DESCENDANT,
    PARENT,
    Q_INDEX,
    V_INDEX,
    JointKind,
)

_UNIT_INERTIAS = parameters.to_spatial_inertia(np.eye(parameters.SIZE))  # (10, 6, 6)


def extended_regressor(
    robot: Robot, q: np.ndarray, dq: np.ndarray, ddq: np.ndarray, *, dtype: type = np.longdouble
) -> np.ndarray:
    """Y, (samples, nv, 10·bodies), in `dtype`: Newton–Euler in body axes, ten unit bodies at a
    time.

    f_i = I_i a_i + v_i ×* I_i v_i per unit parameter, handed down to the world; row j is joint j's
    screw against it.
    """
    q, dq, ddq = (np.asarray(a, dtype=dtype) for a in (q, dq, ddq))
    topology, _, dofs, axes, _ = robot.tree.arrays
    samples, nodes = len(q), len(topology)
    # wrenches in the axes of the node they have come to
    F: np.ndarray = np.zeros((samples, 6, len(robot.theta)), dtype=dtype)
    still: np.ndarray = np.zeros((samples, 6), dtype=dtype)
    base = still.copy()
    base[:, 3:] = -robot.gravity
    v: list[np.ndarray] = []
    a: list[np.ndarray] = []
    places: list[tuple[np.ndarray, ...]] = []
    for i, row in enumerate(topology):
        R, p = _placement(robot, i, q)
        S = _screws(dofs, axes, row, dtype)  # (6, dofs of the joint)
        at = dofs[row[FIRST_DOF] : row[FIRST_DOF] + row[DOF_COUNT], V_INDEX]
        up = row[PARENT]
        joint = dq[:, at] @ S.T
        v_i = _to_child(R, p, v[up] if up >= 0 else still) + joint
        handed = _to_child(R, p, a[up] if up >= 0 else base)
        a_i = handed + ddq[:, at] @ S.T + _cross_motion(v_i, joint)
        v.append(v_i)
        a.append(a_i)
        places.append((R, p, S, at))
        if row[COLUMN] >= 0:
            F[:, :, row[COLUMN] : row[COLUMN] + 10] = _unit_wrenches(v_i, a_i)
    Y: np.ndarray = np.zeros((samples, robot.nv, len(robot.theta)), dtype=dtype)
    for i in range(nodes - 1, -1, -1):
        below = topology[i : topology[i, LAST_DESCENDANT] + 1, COLUMN]
        below = below[below >= 0]
        if not len(below):
            continue
        part = slice(below[0], below[-1] + 10)
        R, p, S, at = places[i]
        for k, dof in enumerate(at):
            Y[:, dof, part] += np.einsum("i,sik->sk", S[:, k], F[:, :, part])
        F[:, :, part] = _to_parent(R, p, F[:, :, part])
    return Y


def _screws(dofs: np.ndarray, axes: np.ndarray, row: np.ndarray, dtype: type) -> np.ndarray:
    """The joint's unit screws in its node's axes, times the mimic ratio, (6, dofs)."""
    S: np.ndarray = np.zeros((6, row[DOF_COUNT]), dtype=dtype)
    for k in range(row[DOF_COUNT]):
        e = row[FIRST_DOF] + k
        first = 0 if dofs[e, ANGULAR] else 3
        S[first : first + 3, k] = _unit(axes[e, :3], dtype) * axes[e, 3]
    return S


def _placement(robot: Robot, i: int, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rotation (samples, 3, 3) and position (samples, 3) of node i in its parent."""
    topology, geometry, _, axes, _ = robot.tree.arrays
    node, first, d = robot.tree.nodes[i], topology[i, Q_INDEX], topology[i, FIRST_DOF]
    fixed = _orthonormal(node.rotation.astype(q.dtype))
    ratio = geometry[i, 30]
    offset = geometry[i, 31]
    R = np.broadcast_to(fixed, (len(q), 3, 3))
    p = np.broadcast_to(node.translation.astype(q.dtype), (len(q), 3))
    match node.kind:
        case JointKind.REVOLUTE:
            R = fixed @ _about(node.axis, q[:, first] * ratio + offset)
        case JointKind.PRISMATIC:
            p = p + (q[:, first] * ratio + offset)[:, None] * (fixed @ _unit(axes[d, :3], q.dtype))
        case JointKind.PLANAR:
            p = p + q[:, first : first + 2] @ (fixed @ axes[d : d + 2, :3].T.astype(q.dtype)).T
            R = fixed @ _about(node.axis, q[:, first + 2])
        case JointKind.BALL:
            R = fixed @ _rotation(q[:, first : first + 4])
        case JointKind.FREE:
            p = p + q[:, first : first + 3] @ fixed.T
            R = fixed @ _rotation(q[:, first + 3 : first + 7])
    return R, p


def _orthonormal(R: np.ndarray) -> np.ndarray:
    """The rotation that doubles rounded: two Newton steps R ← R (3 − RᵀR)/2. Rigid to the last bit,
    or columns would part by 1e-16.
    """
    for _ in range(2):
        R = R @ (3 * np.eye(3, dtype=R.dtype) - R.T @ R) / 2
    return R


def _unit(axis: np.ndarray, dtype: np.typing.DTypeLike) -> np.ndarray:
    axis = np.asarray(axis, dtype=dtype)
    return np.asarray(axis / np.sqrt(np.sum(axis**2)))


def _about(axis: np.ndarray, angle: np.ndarray) -> np.ndarray:
    """Rotation about an axis: that of the quaternion (sin(φ/2) axis, cos(φ/2))."""
    half = angle[:, None] / 2
    return _rotation(
        np.concatenate([np.sin(half) * _unit(axis, angle.dtype), np.cos(half)], axis=1)
    )


def _rotation(quaternion: np.ndarray) -> np.ndarray:
    """1 + 2w a× + 2 (a×)² of a quaternion (x, y, z, w) of any length."""
    unit = quaternion / np.sqrt(np.sum(quaternion**2, axis=1, keepdims=True))
    a_x = np.zeros((len(unit), 3, 3), dtype=unit.dtype)
    x, y, z = unit[:, 0], unit[:, 1], unit[:, 2]
    a_x[:, 0, 1], a_x[:, 0, 2], a_x[:, 1, 0] = -z, y, z
    a_x[:, 1, 2], a_x[:, 2, 0], a_x[:, 2, 1] = -x, -y, x
    return np.asarray(
        np.eye(3, dtype=unit.dtype) + 2 * unit[:, 3, None, None] * a_x + 2 * a_x @ a_x
    )


def _to_child(R: np.ndarray, p: np.ndarray, motion: np.ndarray) -> np.ndarray:
    """[Rᵀω; Rᵀ(v + ω × p)]."""
    turn = np.swapaxes(R, 1, 2)
    linear = motion[:, 3:] + np.cross(motion[:, :3], p)
    return np.concatenate(
        [(turn @ motion[:, :3, None])[..., 0], (turn @ linear[..., None])[..., 0]], axis=1
    )


def _to_parent(R: np.ndarray, p: np.ndarray, wrench: np.ndarray) -> np.ndarray:
    """[R n + p × R f; R f] of every column."""
    force = R @ wrench[:, 3:]
    return np.concatenate(
        [R @ wrench[:, :3] + np.cross(p[:, :, None], force, axis=1), force], axis=1
    )


def _cross_motion(v: np.ndarray, m: np.ndarray) -> np.ndarray:
    """v × m = [ω × m_ω; ω × m_v + v × m_ω]."""
    w = v[:, :3]
    return np.concatenate(
        [np.cross(w, m[:, :3]), np.cross(w, m[:, 3:]) + np.cross(v[:, 3:], m[:, :3])], axis=1
    )


def _unit_wrenches(v: np.ndarray, a: np.ndarray) -> np.ndarray:
    """I a + v ×* I v of the ten unit bodies, (samples, 6, 10)."""
    inertial = np.einsum("kij,sj->sik", _UNIT_INERTIAS, a)
    h = np.einsum("kij,sj->sik", _UNIT_INERTIAS, v)
    w, u = v[:, :3, None], v[:, 3:, None]
    couple = np.cross(w, h[:, :3], axis=1) + np.cross(u, h[:, 3:], axis=1)
    return np.asarray(inertial + np.concatenate([couple, np.cross(w, h[:, 3:], axis=1)], axis=1))
