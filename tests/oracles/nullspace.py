"""Changes of the inertial parameters that no motion shows, from geometry alone: the recursive
parameter nullspace [Wensing2024].

No state is drawn and no regressor evaluated, so this is a second, independent way to the count of
`base_parameters.py`.

A change δθ is invisible if the mass matrix and the gravity torque it makes vanish in every
configuration: for every joint i,

    φᵀ I(δθᶜ_i(q)) v = 0    for all φ in the joint's screws S_i, all v that body i can attain,
                            all q beyond i

with δθᶜ_i the change of the composite of i and all it carries. Gravity counts as one more velocity
of the world. Each such condition is a functional c on ten numbers, and it is enough to know their
spans. Across a joint, velocities move by X = exp(−q s×) X_0 and parameters by T = T_0 exp(q A_s),
so that over all q a span becomes the smallest one that holds it and is closed under s×, or A_s:
observability of a linear system. Going up from the base, per node i with parent p:

    V_i = S_i + closure(X_i V_p)                          velocities that i can attain
    Z_i = {φᵀ I(·) v} + {o A_s : o ∈ closure(W_p T_i)}    functionals that must vanish on δθᶜ_i
    W_i = Z_i + W_p T_i                                   functionals that must be constant on it

The composites at one configuration are as free as the bodies' own parameters, so Σ dim Z_i are
identifiable, and a null vector of Z_i is a transfer: +n on body i, −T_i n on its parent. A joint
that carries no body has the sum of its children's composites.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import block_diag

from thetahat.errors import UsageError
from thetahat.model import parameters
from thetahat.model.robot import Robot
from thetahat.model.spatial import crf, crm, motion_transform
from thetahat.model.tree import ANGULAR, DOF_COUNT, DOF_NODE, Node, Tree

# singular value (spans are orthonormal) below which a direction is none: what rounding left in a
# robot file is not geometry
TOLERANCE = 1e-6

_UNIT_INERTIAS = parameters.to_spatial_inertia(np.eye(parameters.SIZE))  # (10, 6, 6)
_POWER = np.array(
    [2.0 if name.startswith("I") else 0.0 if name == "m" else 1.0 for name in parameters.NAMES]
)  # of length in θ's units


@dataclass(frozen=True, eq=False)
class ParameterNullspace:
    """The inertial parameters' invisible changes."""

    identifiable: int  # combinations of inertial parameters that motion shows
    basis: np.ndarray  # (10·bodies, 10·bodies − identifiable): Y·basis = 0 in every state


class _Spans(NamedTuple):
    """Of a node: attainable velocities (6, ·), functionals that vanish and that are constant (·,
    10), and the way to the parent (10, 10).
    """

    V: np.ndarray
    Z: np.ndarray
    W: np.ndarray
    T: np.ndarray


def parameter_nullspace(robot: Robot, *, tolerance: float = TOLERANCE) -> ParameterNullspace:
    """The invisible changes of the inertial parameters of a tree without mimic joints; O(nodes)."""
    tree = robot.tree
    if tree.has_mimic:
        raise UsageError(
            f"robot {robot.name!r} has mimic joints, whose coordinates are not independent; use"
            " base_parameters, which takes them"
        )
    length = _typical_length(tree)
    world = np.zeros((6, 0))
    if np.any(robot.gravity):
        world = np.concatenate([np.zeros(3), robot.gravity / np.linalg.norm(robot.gravity)])[
            :, None
        ]
    spans: list[_Spans] = []
    for i, node in enumerate(tree.nodes):
        spans.append(
            _climb(
                node,
                _screws(tree, i),
                spans[node.parent] if node.parent >= 0 else None,
                world=world,
                length=length,
                tolerance=tolerance,
            )
        )
    return _collect(tree, spans, length=length, tolerance=tolerance)


def _typical_length(tree: Tree) -> float:
    """A length of the robot's own size [m]: spans mix kg·m² with kg, and the tolerance is one for
    all.
    """
    lengths = [float(np.linalg.norm(node.translation)) for node in tree.nodes]
    lengths = [value for value in lengths if value > 0.0]
    return float(np.median(lengths)) if lengths else 1.0


def _screws(tree: Tree, i: int) -> np.ndarray:
    """Unit screws of node i's joint, in its axes, (dofs, 6)."""
    arrays = tree.arrays
    mine = arrays.dofs[:, DOF_NODE] == i
    S = np.zeros((arrays.topology[i, DOF_COUNT], 6))
    for k, (angular, axis) in enumerate(
        zip(arrays.dofs[mine, ANGULAR], arrays.axes[mine, :3], strict=True)
    ):
        S[k, 0 if angular else 3 :][:3] = axis
    return S


def _climb(
    node: Node,
    S: np.ndarray,
    parent: _Spans | None,
    *,
    world: np.ndarray,
    length: float,
    tolerance: float,
) -> _Spans:
    """From the parent's spans to the node's."""
    shift = node.translation / length
    X = motion_transform(node.rotation.T, shift)
    T = parameters.transform(np.eye(10), node.rotation, shift).T
    generators = [_generator(s) for s in S]
    carried = X @ (parent.V if parent else world)
    V = _span(np.vstack([S, _closure(carried.T, [crm(s).T for s in S], tolerance)]), tolerance).T
    rows = [np.einsum("i,kij,jv->vk", s, _UNIT_INERTIAS, V) for s in S]
    above = parent.W @ T if parent else np.zeros((0, 10))
    closed = _closure(above, generators, tolerance)
    rows += [closed @ A for A in generators]
    Z = _span(np.vstack(rows), tolerance)
    return _Spans(V, Z, _span(np.vstack([Z, above]), tolerance), T)


def _generator(s: np.ndarray) -> np.ndarray:
    """A_s, (10, 10): how θ changes as its body moves along s, dI = s ×* I − I s×."""
    return parameters.from_spatial_inertia(crf(s) @ _UNIT_INERTIAS - _UNIT_INERTIAS @ crm(s)).T


def _span(rows: np.ndarray, tolerance: float) -> np.ndarray:
    """An orthonormal basis, as rows, of what the rows span. Rows are not brought to one length: a
    short one is mostly rounding.
    """
    if not len(rows):
        return rows
    _, values, basis = np.linalg.svd(rows, full_matrices=False)
    return np.asarray(basis[values > tolerance * max(1.0, values[0])])


def _closure(rows: np.ndarray, maps: list[np.ndarray], tolerance: float) -> np.ndarray:
    """The smallest span that holds the rows and, with a row o, every o·A."""
    basis = _span(rows, tolerance)
    while True:
        grown = _span(np.vstack([basis, *(basis @ A for A in maps)]), tolerance)
        if len(grown) == len(basis):
            return grown
        basis = grown


def _collect(
    tree: Tree, spans: list[_Spans], *, length: float, tolerance: float
) -> ParameterNullspace:
    """Null vectors as transfers: from a body, or the bodies next above a joint without one, to the
    next body below.
    """
    column = {node: 10 * k for k, node in enumerate(tree.bodies)}
    transfers = []
    for i, node in enumerate(tree.nodes):
        if node.parent >= 0 and tree.nodes[node.parent].body is None:
            continue  # counted with the joint without a body that it hangs in
        above, rows = _frontier(tree, spans, i)
        null = _null(rows, tolerance)
        part = np.zeros((10 * len(column), null.shape[1]))
        for (body, T), n in zip(above, null.reshape(len(above), 10, null.shape[1]), strict=True):
            part[column[body] : column[body] + 10] = n
            if node.parent >= 0:
                part[column[node.parent] : column[node.parent] + 10] -= spans[i].T @ T @ n
        transfers.append(part)
    basis = np.hstack(transfers) if transfers else np.zeros((0, 0))
    basis *= np.tile(length**_POWER, len(column))[:, None]
    basis.setflags(write=False)
    return ParameterNullspace(basis.shape[0] - basis.shape[1], basis)


def _frontier(
    tree: Tree, spans: list[_Spans], i: int
) -> tuple[list[tuple[int, np.ndarray]], np.ndarray]:
    """The bodies whose composites make up node i's, each with the way there, and the functionals
    that vanish on them, side by side.
    """
    if tree.nodes[i].body is not None:
        return [(i, np.eye(10))], spans[i].Z
    parts = [
        (k, *_frontier(tree, spans, k)) for k, node in enumerate(tree.nodes) if node.parent == i
    ]
    above = [(body, spans[k].T @ T) for k, bodies, _ in parts for body, T in bodies]
    own = np.hstack([np.zeros((len(spans[i].Z), 0)), *(spans[i].Z @ T for _, T in above)])
    return above, np.vstack([block_diag(*(rows for _, _, rows in parts)), own]) if above else own


def _null(rows: np.ndarray, tolerance: float) -> np.ndarray:
    """An orthonormal basis, as columns, of what all rows vanish on."""
    if not len(rows):
        return np.eye(rows.shape[1])
    _, values, basis = np.linalg.svd(rows, full_matrices=True)
    return (
        basis[int(np.sum(values > tolerance * max(1.0, values[0]))) :].T
        if rows.shape[1]
        else np.zeros((0, 0))
    )
