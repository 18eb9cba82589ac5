"""Vectors and joint placements of expressions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thetahat.export.codegen.expression_graph import Expression, Graph
from thetahat.model.tree import JointKind, Node, plane_axes

Vector = tuple[Expression, Expression, Expression]
Matrix = tuple[Vector, Vector, Vector]  # rows

# Entries of a rotation this close to 0 or ±1 are rounding of cos(π/2) and the like; what a file's
# own rounding leaves (1.5708 for π/2) is larger by six digits and stays.
ROUNDING = 1e-15


def add(a: Vector, b: Vector) -> Vector:
    """a + b."""
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


def scale(a: Vector, s: Expression) -> Vector:
    """s·a."""
    return a[0] * s, a[1] * s, a[2] * s


def dot(a: Vector, b: Vector) -> Expression:
    """a·b."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def cross(a: Vector, b: Vector) -> Vector:
    """a × b."""
    return (
        a[1] * b[2] - a[2] * b[1],
        a[2] * b[0] - a[0] * b[2],
        a[0] * b[1] - a[1] * b[0],
    )


def turn(m: Matrix, a: Vector) -> Vector:
    """m·a."""
    return dot(m[0], a), dot(m[1], a), dot(m[2], a)


def transpose(m: Matrix) -> Matrix:
    """mᵀ."""
    return (
        (m[0][0], m[1][0], m[2][0]),
        (m[0][1], m[1][1], m[2][1]),
        (m[0][2], m[1][2], m[2][2]),
    )


def vector(graph: Graph, values: np.ndarray) -> Vector:
    """Three constants."""
    x, y, z = (graph.number(float(value)) for value in values)
    return x, y, z


def matrix(graph: Graph, values: np.ndarray) -> Matrix:
    """Nine constants."""
    a, b, c = (vector(graph, row) for row in values)
    return a, b, c


def product(a: Matrix, b: Matrix) -> Matrix:
    """a·b."""
    columns = transpose(b)
    rows = tuple((dot(row, columns[0]), dot(row, columns[1]), dot(row, columns[2])) for row in a)
    return rows[0], rows[1], rows[2]


def without_rounding(values: np.ndarray) -> np.ndarray:
    """Entries of a rotation or axis that are 0 or ±1 but for rounding, as that."""
    out = np.array(values, dtype=float)
    for exact in (-1.0, 0.0, 1.0):
        out[np.abs(out - exact) < ROUNDING] = exact
    return out


@dataclass(frozen=True, eq=False)
class Placement:
    """Pose of a node's frame in its parent's: x_p = first·(second·x) + shift."""

    first: Matrix  # of constants, where the second is not None
    second: Matrix | None  # a turn about a coordinate axis
    shift: Vector  # in the parent's axes

    def to_parent(self, a: Vector) -> Vector:
        """A direction of the node's axes in the parent's."""
        return turn(self.first, a if self.second is None else turn(self.second, a))

    def to_child(self, a: Vector) -> Vector:
        """A direction of the parent's axes in the node's."""
        a = turn(transpose(self.first), a)
        return a if self.second is None else turn(transpose(self.second), a)


def placement(
    graph: Graph, node: Node, q: list[Expression], affine: tuple[float, float]
) -> Placement:
    """Return the placement of a node; displacement = ratio·q + offset, (ratio, offset) `affine`."""
    fixed = without_rounding(node.rotation)
    tree, shift = matrix(graph, fixed), vector(graph, node.translation)
    axis = without_rounding(node.axis)
    match node.kind:
        case JointKind.REVOLUTE:
            return _turned(graph, fixed, axis, q[0] * affine[0] + affine[1], shift)
        case JointKind.PRISMATIC:
            slide = q[0] * affine[0] + affine[1]
            along = scale(vector(graph, without_rounding(fixed @ axis)), slide)
            return Placement(tree, None, add(shift, along))
        case JointKind.PLANAR:
            u, w = (vector(graph, without_rounding(fixed @ row)) for row in plane_axes(axis))
            shift = add(shift, add(scale(u, q[0]), scale(w, q[1])))
            return _turned(graph, fixed, axis, q[2], shift)
        case JointKind.BALL:
            return Placement(product(tree, _from_quaternion(graph, q)), None, shift)
        case _:
            shift = add(shift, turn(tree, (q[0], q[1], q[2])))
            return Placement(product(tree, _from_quaternion(graph, q[3:])), None, shift)


def _turned(
    graph: Graph, fixed: np.ndarray, axis: np.ndarray, angle: Expression, shift: Vector
) -> Placement:
    """Return fixed·Rot(axis, angle), in two steps where that takes fewer operations."""
    c, s = graph.call("cos", angle), graph.call("sin", angle)
    along = np.outer(axis, axis)
    sparse = np.count_nonzero(axis) == 1
    x, y, z = axis
    skew = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    # entries of `fixed` that cost a product
    if sparse and np.count_nonzero(~np.isin(fixed, (-1.0, 0.0, 1.0))) <= 4:
        return Placement(matrix(graph, fixed), _rodrigues(graph, along, skew, c, s), shift)
    along, skew = fixed @ along, fixed @ skew
    return Placement(_rodrigues(graph, along, skew, c, s, fixed), None, shift)


def _rodrigues(
    graph: Graph,
    along: np.ndarray,
    skew: np.ndarray,
    c: Expression,
    s: Expression,
    fixed: np.ndarray | None = None,
) -> Matrix:
    """A + B cos q + C sin q, as the kernels have it."""
    across = without_rounding((np.eye(3) if fixed is None else fixed) - along)
    parts = matrix(graph, without_rounding(along)), matrix(graph, across)
    third = matrix(graph, without_rounding(skew))
    rows = tuple(
        tuple(parts[0][i][j] + parts[1][i][j] * c + third[i][j] * s for j in range(3))
        for i in range(3)
    )
    a, b, d = ((row[0], row[1], row[2]) for row in rows)
    return a, b, d


def _from_quaternion(graph: Graph, q: list[Expression]) -> Matrix:
    """Rotation of a quaternion (x, y, z, w) of any length but zero."""
    x, y, z, w = q
    s = graph.number(2.0) / (x * x + y * y + z * z + w * w)
    xs, ys, zs = x * s, y * s, z * s
    return (
        (1.0 - (y * ys + z * zs), x * ys - w * zs, x * zs + w * ys),
        (x * ys + w * zs, 1.0 - (x * xs + z * zs), y * zs - w * xs),
        (x * zs - w * ys, y * zs + w * xs, 1.0 - (x * xs + y * ys)),
    )
