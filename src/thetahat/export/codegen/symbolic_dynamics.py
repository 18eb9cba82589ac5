"""The recursions of the kernels as expressions, in body axes.

The kernels work in world axes, where a tile of samples needs no turning. In body axes a joint's own
screw is constant and the wrench per unit parameter is sparse, which is what a graph can use:

    K = [α]× + ω ωᵀ − |ω|² 1            acceleration of a point r of the body: a + K r
    m·cx     couple  e_x × a            force  K e_x
    Ixx      couple  (α_x, ω_xω_z, −ω_xω_y)
    Ixy      couple  (−K_zx, K_zy, ω_x² − ω_y²)

Row j of the regressor is the twist of body i per unit rate of joint j against these columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thetahat.export.codegen.expression_graph import Expression, Graph
from thetahat.export.codegen.symbolic_vectors import (
    Matrix,
    Placement,
    Vector,
    add,
    cross,
    dot,
    placement,
    scale,
    transpose,
    turn,
    vector,
    without_rounding,
)
from thetahat.model import parameters
from thetahat.model.robot import Robot
from thetahat.model.tree import ANGULAR, COLUMN, DOF_COUNT, FIRST_DOF, PARENT, V_INDEX


@dataclass(frozen=True, eq=False)
class Direction:
    """A degree of freedom of a node: its axis there, its place in dq, and the mimic ratio."""

    axis: Vector
    angular: bool
    v: int
    ratio: float


@dataclass(frozen=True, eq=False)
class Motion:
    """A node's motion in its own axes; the acceleration is less gravity."""

    omega: Vector
    alpha: Vector
    a: Vector
    K: Matrix


class SymbolicRobot:
    """Tree, placements and parameters of a robot as expressions of one graph."""

    def __init__(self, robot: Robot, graph: Graph) -> None:
        self.robot, self.graph = robot, graph
        self.arrays = robot.tree.arrays
        q = graph.inputs("q", robot.nq)
        self.zero: Vector = (graph.zero, graph.zero, graph.zero)
        self.placements: list[Placement] = []
        self.directions: list[list[Direction]] = []
        for i, node in enumerate(robot.tree.nodes):
            first = robot.tree.q_index[node.name]
            affine = (float(self.arrays.geometry[i, 30]), float(self.arrays.geometry[i, 31]))
            mine = q[first : first + node.kind.nq]
            self.placements.append(placement(graph, node, mine, affine))
            d, count = self.arrays.topology[i, [FIRST_DOF, DOF_COUNT]]
            self.directions.append([self._direction(e) for e in range(d, d + count)])

    def _direction(self, e: int) -> Direction:
        dof, axis = self.arrays.dofs[e], self.arrays.axes[e]
        return Direction(
            vector(self.graph, without_rounding(axis[:3])),
            bool(dof[ANGULAR]),
            int(dof[V_INDEX]),
            float(axis[3]),
        )

    @property
    def parents(self) -> list[int]:
        """Parent of every node, −1 the world."""
        return [int(parent) for parent in self.arrays.topology[:, PARENT]]

    def column(self, i: int) -> int | None:
        """First of the ten parameters of a node's body; None: it has no body."""
        column = int(self.arrays.topology[i, COLUMN])
        return None if column < 0 else column

    def theta(self, i: int) -> list[Expression] | None:
        """The ten parameters of a node's body."""
        column = self.column(i)
        if column is None:
            return None
        return [self.graph.input("p", column + k) for k in range(10)]

    # -- motion ------------------------------------------------------------------------------------

    def motion(self, dq: list[Expression], ddq: list[Expression]) -> list[Motion]:
        """Return every node's motion."""
        gravity = vector(self.graph, -self.robot.gravity)
        still = (self.zero, self.zero, self.zero)
        world = Motion(self.zero, self.zero, gravity, still)
        motions: list[Motion] = []
        for i, parent in enumerate(self.parents):
            above = motions[parent] if parent >= 0 else world
            motions.append(self._moved(i, above, dq, ddq))
        return motions

    def _moved(self, i: int, above: Motion, dq: list[Expression], ddq: list[Expression]) -> Motion:
        place = self.placements[i]
        omega_p, alpha = place.to_child(above.omega), place.to_child(above.alpha)
        a = place.to_child(add(above.a, turn(above.K, place.shift)))
        spin, slide = self.zero, self.zero
        for d in self.directions[i]:
            rate, rate2 = dq[d.v] * d.ratio, ddq[d.v] * d.ratio
            if d.angular:
                spin = add(spin, scale(d.axis, rate))
                alpha = add(alpha, scale(d.axis, rate2))
            else:
                slide = add(slide, scale(d.axis, rate))
                a = add(a, scale(d.axis, rate2))
        omega = add(omega_p, spin)
        alpha = add(alpha, cross(omega_p, spin))
        a = add(a, cross(add(omega_p, omega), slide))
        return Motion(omega, alpha, a, _point_accelerations(omega, alpha))

    # -- inverse dynamics --------------------------------------------------------------------------

    def inverse_dynamics(
        self, dq: list[Expression] | None = None, ddq: list[Expression] | None = None
    ) -> list[Expression]:
        """Return D q̈ + C q̇ + G, (nv,); None: at rest."""
        rest = [self.graph.zero] * self.robot.nv
        motions = self.motion(dq or rest, ddq or rest)
        wrenches = [(self.zero, self.zero) for _ in motions]
        tau = [self.graph.zero] * self.robot.nv
        for i in range(len(motions) - 1, -1, -1):
            couple, force = wrenches[i]
            theta = self.theta(i)
            if theta is not None:
                for parameter, (n, f) in zip(theta, body_columns(motions[i]), strict=True):
                    couple = add(couple, scale(n, parameter))
                    force = add(force, scale(f, parameter))
            for d in self.directions[i]:
                part = dot(d.axis, couple if d.angular else force)
                tau[d.v] = tau[d.v] + part * d.ratio
            parent = self.parents[i]
            if parent >= 0:
                place = self.placements[i]
                f = place.to_parent(force)
                n = add(place.to_parent(couple), cross(place.shift, f))
                wrenches[parent] = add(wrenches[parent][0], n), add(wrenches[parent][1], f)
        return tau

    # -- regressor ---------------------------------------------------------------------------------

    def regressor(
        self, dq: list[Expression], ddq: list[Expression], columns: set[int] | None = None
    ) -> dict[tuple[int, int], Expression]:
        """Return the entries of Y by (row, column) that are not zero by structure; columns: only
        these of θ.
        """
        motions = self.motion(dq, ddq)
        twists: list[list[tuple[Direction, Vector, Vector]]] = []
        out: dict[tuple[int, int], Expression] = {}
        for i, parent in enumerate(self.parents):
            place = self.placements[i]
            mine = []
            for d, w, v in twists[parent] if parent >= 0 else ():
                moved = place.to_child(add(v, cross(w, place.shift)))
                mine.append((d, place.to_child(w), moved))
            for d in self.directions[i]:
                pair = (d.axis, self.zero) if d.angular else (self.zero, d.axis)
                mine.append((d, *pair))
            twists.append(mine)
            first = self.column(i)
            if first is None:
                continue
            for k, (n, f) in enumerate(body_columns(motions[i])):
                if columns is not None and first + k not in columns:
                    continue
                for d, w, v in mine:
                    at = d.v, first + k
                    entry = (dot(w, n) + dot(v, f)) * d.ratio
                    out[at] = out.get(at, self.graph.zero) + entry
        return {at: entry for at, entry in out.items() if not entry.is_zero}

    # -- mass matrix -------------------------------------------------------------------------------

    def mass_matrix(self) -> dict[tuple[int, int], Expression]:
        """Return the entries of D by (row, column), row ≥ column, that are not zero by structure,
        from composite bodies.
        """
        zero = self.graph.zero
        count = len(self.parents)
        mass, moment = [zero] * count, [self.zero] * count
        tensor: list[Matrix] = [(self.zero, self.zero, self.zero)] * count
        out: dict[tuple[int, int], Expression] = {}
        for i in range(count - 1, -1, -1):
            theta = self.theta(i)
            if theta is not None:
                mass[i] = mass[i] + theta[parameters.M]
                moment[i] = add(moment[i], (theta[7], theta[4], theta[3]))
                tensor[i] = _plus(tensor[i], _own_tensor(theta))
            self._rows(i, mass[i], moment[i], tensor[i], out)
            parent = self.parents[i]
            if parent >= 0:
                m, h, inertia = self._seen_from_parent(i, mass[i], moment[i], tensor[i])
                mass[parent] = mass[parent] + m
                moment[parent] = add(moment[parent], h)
                tensor[parent] = _plus(tensor[parent], inertia)
        return {at: entry for at, entry in out.items() if not entry.is_zero}

    def _rows(
        self,
        i: int,
        mass: Expression,
        moment: Vector,
        tensor: Matrix,
        out: dict[tuple[int, int], Expression],
    ) -> None:
        """Add what the composite body of node i puts into D: its momentum per unit rate of each of
        its directions, against its own and its ancestors' directions.
        """
        for k, d in enumerate(self.directions[i]):
            if d.angular:
                n, f = turn(tensor, d.axis), cross(d.axis, moment)
            else:
                n, f = cross(moment, d.axis), scale(d.axis, mass)
            for other in self.directions[i][: k + 1]:
                self._pair(out, d, other, n, f, twice=False)
            j = i
            while self.parents[j] >= 0:
                place = self.placements[j]
                f = place.to_parent(f)
                n = add(place.to_parent(n), cross(place.shift, f))
                j = self.parents[j]
                for other in self.directions[j]:
                    self._pair(out, d, other, n, f, twice=True)

    def _pair(
        self,
        out: dict[tuple[int, int], Expression],
        d: Direction,
        other: Direction,
        n: Vector,
        f: Vector,
        *,
        twice: bool,
    ) -> None:
        entry = dot(other.axis, n if other.angular else f) * (d.ratio * other.ratio)
        if twice and d.v == other.v:  # two joints on one coordinate
            entry = entry * 2.0
        at = max(d.v, other.v), min(d.v, other.v)
        out[at] = out.get(at, self.graph.zero) + entry

    def _seen_from_parent(
        self, node: int, mass: Expression, moment: Vector, tensor: Matrix
    ) -> tuple[Expression, Vector, Matrix]:
        """R Ī Rᵀ + (2 r·h + m r²) 1 − h rᵀ − r hᵀ − m r rᵀ, with h the moment before the shift."""
        place = self.placements[node]
        r, h = place.shift, place.to_parent(moment)
        half = tuple(place.to_parent(column) for column in transpose(tensor))
        columns = transpose((half[0], half[1], half[2]))  # R Ī, by columns of (R Ī)ᵀ
        turned = tuple(place.to_parent(column) for column in columns)
        moved = add(h, scale(r, mass))
        both = add(h, moved)
        middle = dot(r, both)
        rows = []
        for a in range(3):
            row = []
            for b in range(3):
                i, j = max(a, b), min(a, b)
                entry = turned[i][j] - (moved[i] * r[j] + r[i] * h[j])
                row.append(entry + middle if a == b else entry)
            rows.append((row[0], row[1], row[2]))
        return mass, moved, (rows[0], rows[1], rows[2])


def _own_tensor(theta: list[Expression]) -> Matrix:
    xx, xy, xz, yy, yz, zz = (theta[k] for k in (0, 1, 2, 5, 6, 8))
    return (xx, xy, xz), (xy, yy, yz), (xz, yz, zz)


def _plus(a: Matrix, b: Matrix) -> Matrix:
    return add(a[0], b[0]), add(a[1], b[1]), add(a[2], b[2])


def _point_accelerations(omega: Vector, alpha: Vector) -> Matrix:
    """K."""
    x, y, z = omega
    xx, yy, zz, xy, xz, yz = x * x, y * y, z * z, x * y, x * z, y * z
    ax, ay, az = alpha
    return (
        (-(yy + zz), xy - az, xz + ay),
        (xy + az, -(xx + zz), yz - ax),
        (xz - ay, yz + ax, -(xx + yy)),
    )


def body_columns(motion: Motion) -> list[tuple[Vector, Vector]]:
    """Return couple and force per unit of a body's ten parameters, in the paper's order."""
    (x, y, z), (ax, ay, az), a, K = motion.omega, motion.alpha, motion.a, motion.K
    o = x.graph.zero
    nothing: Vector = (o, o, o)
    xx, yy, zz, xy, xz, yz = x * x, y * y, z * z, x * y, x * z, y * z
    force = transpose(K)
    return [
        ((ax, xz, -xy), nothing),
        ((-K[2][0], K[2][1], xx - yy), nothing),
        ((K[1][0], zz - xx, -K[1][2]), nothing),
        ((-a[1], a[0], o), force[2]),
        ((a[2], o, -a[0]), force[1]),
        ((-yz, ay, xy), nothing),
        ((yy - zz, -K[0][1], K[0][2]), nothing),
        ((o, -a[2], a[1]), force[0]),
        ((yz, -xz, az), nothing),
        (nothing, a),
    ]


def as_vector(values: list[Expression]) -> np.ndarray:
    """Expressions as an array of objects, for linear algebra with constants."""
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out
