"""Rows of the equation of motion from which unknown contact forces are eliminated.

With feet on ground whose force F is not measured, M q̈ + h = τ + J_cᵀF. Of all degrees of freedom's
rows, divided by the standard deviations σ of their errors, the part that no F can change is left:

    P = I − U Uᵀ,   range U = range (J_cᵀ/σ),   rows ← σ P (rows/σ)

What is left of a row still belongs to its degree of freedom and has its unit; it is what weighted
least squares over F leaves of it. Torques that were not measured have σ = ∞, and their rows vanish.
P has rank nv − rank J_c: of each row, its share 1 − Σ U² counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thetahat.dynamics import batch, rigid_body
from thetahat.dynamics.link_forces import link_jacobian
from thetahat.errors import UsageError
from thetahat.model.floating_base import ground_of
from thetahat.model.robot import Robot
from thetahat.model.tree import JointKind

RANK = 1e-9  # of the largest singular value: directions of forces that are one
PART = 0.01  # of the weight's load on a row: its error, until residuals tell


@dataclass(frozen=True, eq=False)
class ContactProjection:
    """Eliminates the contact forces of some samples."""

    basis: np.ndarray  # (n, nv, forces) U, zero beyond the rank
    scale: np.ndarray  # (n, nv) 1/σ, 0 where a torque is not measured
    deviations: np.ndarray  # (nv,) σ

    def apply(self, rows: np.ndarray) -> np.ndarray:
        """Return what is left of rows, (n, nv) or (n, nv, columns)."""
        plain = rows.ndim == 2
        white = (rows[..., None] if plain else rows) * self.scale[..., None]
        white = white - self.basis @ (np.swapaxes(self.basis, -1, -2) @ white)
        white *= np.where(self.scale > 0.0, self.deviations, 0.0)[..., None]
        return np.asarray(white[..., 0] if plain else white)

    def take_out(self, rows: np.ndarray, starts: np.ndarray, mixed: np.ndarray) -> np.ndarray:
        """Return rows without what contact forces may add to them, (columns of all joints, n).

        rows: joint v's are those from starts[v] on, one per column, and those of `mixed` joints
            have the same columns. Rows of torques that are not measured vanish.
        """
        count, lanes = rows.shape[1], -(-rows.shape[1] // batch.WIDTH) * batch.WIDTH
        if lanes > count or not rows.flags.c_contiguous:
            rows = np.concatenate([rows, np.zeros((len(rows), lanes - count))], axis=1)
        U, scale = self.basis[:, mixed], self.scale[:, mixed]
        left = np.eye(len(mixed)) - U @ np.swapaxes(U, 1, 2)
        left *= self.deviations[mixed][:, None] * scale[:, None]
        matrix = np.zeros((len(mixed) ** 2, lanes))
        matrix[:, :count] = left.reshape(len(U), -1).T
        columns = int(starts[mixed[0] + 1] - starts[mixed[0]])
        scratch = np.empty((len(mixed), batch.WIDTH))
        batch.kernels().row_mixing.mix_rows(matrix, rows, starts[mixed], columns, scratch)
        rows = rows[:, :count]
        for v, known in enumerate((self.scale > 0.0).T):
            if not known.all():
                rows[starts[v] : starts[v + 1]] *= known
        return rows

    @property
    def shares(self) -> np.ndarray:
        """The diagonal of P, (n, nv): how much of a row is left; 0 where it is not measured."""
        left = 1.0 - np.sum(self.basis**2, axis=-1)
        return np.where(self.scale > 0.0, np.maximum(left, 0.0), 0.0)


def eliminates_forces(robot: Robot) -> bool:
    """Return whether the robot has feet on ground whose force is not measured."""
    ground = ground_of(robot)
    return ground is not None and bool(ground.feet)


def mixed_dofs(robot: Robot) -> np.ndarray:
    """Return the degrees of freedom whose rows contact forces mix, ascending: the base's and those
    of joints between it and a foot.
    """
    ground, tree = ground_of(robot), robot.tree
    if ground is None or not ground.feet:
        return np.zeros(0, dtype=int)
    dofs: set[int] = set()
    for foot in ground.feet:
        node = tree.bodies[robot.body_index(foot.link)]
        while node >= 0:
            each = tree.nodes[node]
            first = tree.v_index[each.name]
            dofs |= set(range(first, first + each.kind.nv))
            node = each.parent
    return np.array(sorted(dofs))


def contact_projection(
    robot: Robot, q: np.ndarray, contact: np.ndarray, measured: np.ndarray
) -> ContactProjection:
    """Return the projection at configurations q (n, nq).

    contact: (n, feet) which feet are down. measured: (n, nv) whether a row's torque is known.
    """
    ground = ground_of(robot)
    if ground is None or contact.shape != (len(q), len(ground.feet)):
        raise UsageError(
            f"contact has shape {contact.shape}; give one row per sample and one column per foot of"
            f" robot {robot.name!r}"
        )
    deviations = row_deviations(robot)
    scale = np.where(measured, 1.0 / deviations, 0.0)
    width = sum(foot.size for foot in ground.feet)
    mixed = mixed_dofs(robot)
    basis = np.zeros((len(q), robot.nv, min(width, len(mixed))))
    patterns, which = np.unique(contact.astype(bool), axis=0, return_inverse=True)
    for k, down in enumerate(patterns):
        if not down.any():
            continue
        rows = np.flatnonzero(which.ravel() == k)
        parts = []
        for foot, touches in zip(ground.feet, down, strict=True):
            if touches:
                J = link_jacobian(robot, q[rows], foot.link)
                parts.append(J if foot.flat else J[:, 3:])
        A = np.swapaxes(np.concatenate(parts, axis=1), 1, 2)[:, mixed]
        A *= scale[np.ix_(rows, mixed)][..., None]
        A /= np.maximum(np.linalg.norm(A, axis=1, keepdims=True), 1e-300)
        U, s, _ = np.linalg.svd(A, full_matrices=False)
        kept = s > RANK * np.maximum(s[:, :1], 1e-300)
        basis[np.ix_(rows, mixed, np.arange(U.shape[2]))] = U * kept[:, None]
    return ContactProjection(basis, scale, deviations)


def row_deviations(robot: Robot) -> np.ndarray:
    """Return σ of each degree of freedom's row, (nv,): as the ground states it, or a part of the
    load that the robot's weight may put on it.
    """
    ground = ground_of(robot)
    stated = dict(() if ground is None else ground.deviations)
    usual = _usual_deviations(robot)
    named = zip(robot.velocity_names, usual, strict=True)
    return np.array([stated.get(name, value) for name, value in named])


def _usual_deviations(robot: Robot) -> np.ndarray:
    """A part of the weight for forces, of the weight at half the robot's size for torques."""
    _, p = rigid_body.body_frames(robot, robot.neutral)
    weight = max(robot.mass, 1e-3) * max(float(np.linalg.norm(robot.gravity)), 1.0)
    size = 0.5 * float(np.linalg.norm(p - p[0], axis=1).max(initial=0.0))
    units = [
        1.0 if direction.startswith("v") or node.kind is JointKind.PRISMATIC else max(size, 1e-2)
        for node in robot.tree.independent
        for direction in node.kind.directions
    ]
    return PART * weight * np.array(units)
