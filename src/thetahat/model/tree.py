"""Kinematic tree: topology, joints and geometry, frozen, and the flat arrays the kernels read.

A tree is a list of *nodes* in depth-first order. Node i hangs in node ``parent`` (−1 is the world)
by one movable joint; its frame is the link's frame moved to the joint's anchor. A node carries a
body, whose ten parameters are columns of the regressor, or none (``body is None``: a placeholder
between two joints of one MJCF body).

A joint's free directions are unit screws that stand still in the node's own frame, so a multi-DOF
joint is just several of them: planar (x, y, angle), ball (three rotations), free (three rotations,
then three translations).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from thetahat.model.spatial import skew


class JointKind(IntEnum):
    """Movable joint types. `continuous` of URDF and `hinge` of MJCF are REVOLUTE; `slide` is
    PRISMATIC.
    """

    REVOLUTE = 0
    PRISMATIC = 1
    PLANAR = 2
    BALL = 3
    FREE = 4

    @property
    def nq(self) -> int:
        """Numbers in q: a quaternion where a joint turns freely."""
        return (1, 1, 3, 4, 7)[self]

    @property
    def nv(self) -> int:
        """Numbers in dq, the joint's degrees of freedom."""
        return (1, 1, 3, 3, 6)[self]

    @property
    def coordinates(self) -> tuple[str, ...]:
        """Suffixes of the joint's numbers in q (a one-DOF joint has none)."""
        return _COORDINATES[self]

    @property
    def directions(self) -> tuple[str, ...]:
        """Suffixes of the joint's numbers in dq."""
        return _DIRECTIONS[self]


_TURN = ("wx", "wy", "wz")
_QUATERNION = ("qx", "qy", "qz", "qw")
_PLANE = ("x", "y", "angle")
_COORDINATES: tuple[tuple[str, ...], ...] = (
    *(("",), ("",), _PLANE, _QUATERNION, ("x", "y", "z", *_QUATERNION)),
)
_DIRECTIONS: tuple[tuple[str, ...], ...] = (
    *(("",), ("",), _PLANE, _TURN, (*_TURN, "vx", "vy", "vz")),
)


@dataclass(frozen=True)
class Limits:
    """Limits of a one-DOF joint; infinite where the file states none."""

    lower: float = -np.inf  # [rad or m]
    upper: float = np.inf
    velocity: float = np.inf  # [rad/s or m/s]
    effort: float = np.inf  # [N·m or N]


@dataclass(frozen=True)
class Mimic:
    """This joint's coordinate is multiplier × that of `joint` + offset."""

    joint: str
    multiplier: float
    offset: float


@dataclass(frozen=True)
class Spring:
    """A spring across a joint: torque stiffness · (rest − q)."""

    stiffness: float = 0.0  # [N·m/rad or N/m]
    rest: float = 0.0  # q at which it is at rest [rad or m]


@dataclass(frozen=True)
class Joint:
    """Limits, mimic relation and drive values that a file states of a joint."""

    limits: Limits = field(default_factory=Limits)
    mimic: Mimic | None = None
    offset: float = 0.0  # joint displacement = q + offset (MJCF `ref`), one-DOF joints only
    damping: float = 0.0  # viscous friction [N·m·s/rad or N·s/m]
    friction: float = 0.0  # Coulomb friction [N·m or N]
    armature: float = 0.0  # rotor inertia seen at the joint [kg·m² or kg]
    spring: Spring = field(default_factory=Spring)  # one-DOF joints only
    sensor: str | None = None  # link whose wrench it measures: it never moves (wrench_sensors.py)


@dataclass(frozen=True, eq=False)
class Node:
    """One movable joint and the frame it carries."""

    name: str  # of the joint
    kind: JointKind
    parent: int  # node index, −1 the world
    rotation: np.ndarray  # (3, 3) of the node frame in the parent's node frame at q = 0
    translation: np.ndarray  # (3,) [m]
    axis: np.ndarray  # (3,) unit, in the node frame; the normal of a planar joint
    body: str | None  # None: a placeholder without mass
    joint: Joint = field(default_factory=Joint)

    @property
    def limits(self) -> Limits:
        """Limits of the joint."""
        return self.joint.limits

    @property
    def mimic(self) -> Mimic | None:
        """The joint this one follows, if any."""
        return self.joint.mimic

    @property
    def sensor(self) -> str | None:
        """The link whose wrench this joint measures; None: it moves."""
        return self.joint.sensor


# Columns of the integer arrays handed to the kernels.
PARENT, KIND, Q_INDEX, FIRST_DOF, DOF_COUNT, COLUMN, LAST_DESCENDANT = range(7)
DOF_NODE, V_INDEX, ANGULAR, SHARED, FIRST_COLUMN, END_COLUMN, COMPACT = range(7)


PADDING = 8  # zeros around each stretch of compact storage: the width of a line


class KernelArrays(NamedTuple):
    """The tree as five arrays, in the order every kernel takes them."""

    topology: np.ndarray  # (nodes, 7) int64: PARENT … LAST_DESCENDANT
    # (nodes, 32): A, B, C (row by row), t, ratio, offset; R(q) = A + B cos q + C sin q
    geometry: np.ndarray
    # (dofs, 7) int64: DOF_NODE … COMPACT (columns of the bodies the joint carries, and where they
    # start side by side)
    dofs: np.ndarray
    axes: np.ndarray  # (dofs, 4): axis in the node frame, ratio
    # (stretches, 3) int64: start and length in one sample's regressor, start in compact storage
    segments: np.ndarray


def plane_axes(normal: np.ndarray) -> np.ndarray:
    """Rows u, w spanning the plane of a planar joint: x and y turned by the shortest rotation that
    takes z to the normal.
    """
    c = normal[2]
    if c < -1.0 + 1e-12:
        return np.array([[1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
    v = np.array([-normal[1], normal[0], 0.0])  # z × normal
    v_x = skew(v)
    turn: np.ndarray = np.eye(3) + v_x + v_x @ v_x / (1.0 + c)
    return turn[:, :2].T.copy()


def _directions(node: Node) -> list[tuple[bool, np.ndarray]]:
    """(angular?, axis) of each degree of freedom of a joint, in the node frame."""
    unit = np.eye(3)
    match node.kind:
        case JointKind.REVOLUTE:
            return [(True, node.axis)]
        case JointKind.PRISMATIC:
            return [(False, node.axis)]
        case JointKind.PLANAR:
            u, w = plane_axes(node.axis)
            return [(False, u), (False, w), (True, node.axis)]
        case JointKind.BALL:
            return [(True, e) for e in unit]
        case _:
            return [(True, e) for e in unit] + [(False, e) for e in unit]


@dataclass(frozen=True, eq=False)
class Tree:
    """Nodes in depth-first order, parents before children."""

    nodes: tuple[Node, ...]

    def __reduce__(self) -> tuple[type[Tree], tuple[tuple[Node, ...]]]:
        """What was computed of it, and the kernels' scratch memory, do not travel with a pickle."""
        return Tree, (self.nodes,)

    @cached_property
    def index_of(self) -> dict[str, int]:
        """Node index by joint name."""
        return {node.name: i for i, node in enumerate(self.nodes)}

    @cached_property
    def independent(self) -> tuple[Node, ...]:
        """The joints that own coordinates (all but mimic ones), in the order of dq."""
        return tuple(node for node in self.nodes if node.mimic is None)

    @cached_property
    def sensor_dofs(self) -> np.ndarray:
        """Positions in dq of wrench sensors' directions, which never move."""
        return np.array([self.v_index[n.name] for n in self.independent if n.sensor], dtype=int)

    @cached_property
    def has_mimic(self) -> bool:
        """Whether one coordinate drives several joints."""
        return len(self.independent) < len(self.nodes)

    @cached_property
    def nq(self) -> int:
        """Numbers in q."""
        return sum(node.kind.nq for node in self.independent)

    @cached_property
    def nv(self) -> int:
        """Numbers in dq."""
        return sum(node.kind.nv for node in self.independent)

    @cached_property
    def bodies(self) -> tuple[int, ...]:
        """Node index of every body, in the order of θ."""
        return tuple(i for i, node in enumerate(self.nodes) if node.body is not None)

    @cached_property
    def q_index(self) -> dict[str, int]:
        """First position in q by joint name; a mimic joint has its reference's."""
        return self._first_positions("nq")

    @cached_property
    def v_index(self) -> dict[str, int]:
        """First position in dq by joint name; a mimic joint has its reference's."""
        return self._first_positions("nv")

    def _first_positions(self, size: str) -> dict[str, int]:
        first: dict[str, int] = {}
        at = 0
        for node in self.independent:
            first[node.name] = at
            at += getattr(node.kind, size)
        for node in self.nodes:
            if node.mimic is not None:
                first[node.name] = first[node.mimic.joint]
        return first

    @cached_property
    def quaternions(self) -> tuple[tuple[str, int], ...]:
        """(joint, position in q) of every quaternion."""
        ends = (
            (node, self.q_index[node.name] + node.kind.nq)
            for node in self.independent
            if node.kind in (JointKind.BALL, JointKind.FREE)
        )
        return tuple((node.name, end - 4) for node, end in ends)

    @cached_property
    def coordinate_map(self) -> np.ndarray:
        """G, (degrees of freedom of all joints, nv): velocities of all joints = G·dq. Identity
        without mimic joints.
        """
        arrays = self.arrays
        out = np.zeros((len(arrays.dofs), self.nv))
        out[np.arange(len(arrays.dofs)), arrays.dofs[:, V_INDEX]] = arrays.axes[:, 3]
        return out

    @cached_property
    def compact_size(self) -> int:
        """How many entries of one sample's regressor are not zero by structure."""
        return int(np.sum(self.arrays.segments[:, 1]))

    @cached_property
    def scratch_size(self) -> int:
        """Numbers per lane that the regressor's compact storage takes, padding and all."""
        return int(self.arrays.segments[-1, 1] + self.arrays.segments[-1, 2] + 2 * PADDING)

    @cached_property
    def zero_rates(self) -> np.ndarray:
        """Zeros of shape (nv,), for kernels that read them."""
        return np.zeros(self.nv)

    @cached_property
    def spare_workspaces(self) -> list[Any]:
        """Scratch memory (`dynamics.batch.Workspace`) that lives as long as the tree: each running
        computation takes one and puts it back.
        """
        return []

    @cached_property
    def rigid_arrays(self) -> tuple[np.ndarray, ...]:
        """The arrays every kernel but the regressor's takes: all but the stretches."""
        return tuple(self.arrays[:4])

    @cached_property
    def arrays(self) -> KernelArrays:
        """The flat form for the kernels. Not marked read-only: Numba takes longer over such arrays
        at every call.
        """
        count = len(self.nodes)
        topology = np.zeros((count, 7), dtype=np.int64)
        geometry = np.zeros((count, 32))
        dofs: list[tuple[int, int, int, int]] = []
        axes: list[tuple[float, float, float, float]] = []
        shared = {
            name for node in self.nodes if node.mimic for name in (node.name, node.mimic.joint)
        }
        column = 0
        for i, node in enumerate(self.nodes):
            ratio = node.mimic.multiplier if node.mimic else 1.0
            offset = node.joint.offset + (node.mimic.offset if node.mimic else 0.0)
            topology[i, PARENT], topology[i, KIND] = node.parent, node.kind
            topology[i, Q_INDEX], topology[i, FIRST_DOF] = self.q_index[node.name], len(dofs)
            topology[i, DOF_COUNT] = node.kind.nv
            topology[i, COLUMN] = -1 if node.body is None else column
            column += 0 if node.body is None else 10
            geometry[i] = _geometry(node, ratio, offset)
            for k, (angular, axis) in enumerate(_directions(node)):
                dofs.append(
                    (i, self.v_index[node.name] + k, int(angular), int(node.name in shared))
                )
                axes.append((*axis, ratio))
        topology[:, LAST_DESCENDANT] = np.arange(count)
        for i in range(count - 1, -1, -1):
            parent = topology[i, PARENT]
            if parent >= 0:
                topology[parent, LAST_DESCENDANT] = max(
                    topology[parent, LAST_DESCENDANT], topology[i, LAST_DESCENDANT]
                )
        table = _dof_table(topology, dofs, column)
        return KernelArrays(
            topology,
            geometry,
            table,
            np.array(axes, dtype=float).reshape(-1, 4),
            _stretches(table, column),
        )


def _dof_table(
    topology: np.ndarray, dofs: list[tuple[int, int, int, int]], width: int
) -> np.ndarray:
    """Complete the table of degrees of freedom by the columns each one's row covers, and their
    place in compact storage.

    A row that several joints share (mimic) covers all columns, once. Rows are stored in the order
    of dq with PADDING zeros between them, except where one covers the row's end and the next begins
    at once.
    """
    table = np.zeros((len(dofs), 7), dtype=np.int64)
    for e, dof in enumerate(dofs):
        table[e, :6] = (
            *dof,
            *((0, width) if dof[SHARED] else _columns_below(topology, dof[DOF_NODE])),
        )
    at = PADDING
    previous_end = 0
    for row in np.unique(table[:, V_INDEX]):
        mine = table[:, V_INDEX] == row
        begin, end = table[mine][0, [FIRST_COLUMN, END_COLUMN]]
        if row > 0 and not (previous_end == width and begin == 0):
            at += PADDING
        table[mine, COMPACT] = at
        at, previous_end = at + end - begin, end
    return table


def _stretches(table: np.ndarray, width: int) -> np.ndarray:
    """(start in one sample's regressor, length, start in compact storage) of every run of entries
    that can be non-zero.
    """
    runs: list[list[int]] = []
    for row in np.unique(table[:, V_INDEX]):
        begin, end, source = table[table[:, V_INDEX] == row][0, [FIRST_COLUMN, END_COLUMN, COMPACT]]
        start, length = row * width + begin, end - begin
        if not length:
            continue
        if runs and runs[-1][0] + runs[-1][1] == start:
            runs[-1][1] += length
        else:
            runs.append([start, length, source])
    return np.array(runs or [[0, 0, PADDING]], dtype=np.int64)


def _columns_below(topology: np.ndarray, node: int) -> tuple[int, int]:
    """First and end column of the bodies from a node to its last descendant: depth-first order
    makes them neighbours.
    """
    columns = topology[node : topology[node, LAST_DESCENDANT] + 1, COLUMN]
    columns = columns[columns >= 0]
    return (int(columns[0]), int(columns[-1]) + 10) if len(columns) else (0, 0)


def _geometry(node: Node, ratio: float, offset: float) -> np.ndarray:
    """Constants of the joint's placement: R(q) = A + B cos q + C sin q (Rodrigues), t, and the
    mimic map of q.
    """
    rotation, axis = node.rotation, node.axis
    out = np.zeros(32)
    if node.kind in (JointKind.REVOLUTE, JointKind.PLANAR):
        along = np.outer(axis, axis)
        out[0:9] = (rotation @ along).ravel()
        out[9:18] = (rotation @ (np.eye(3) - along)).ravel()
        out[18:27] = (rotation @ skew(axis)).ravel()
    else:
        out[0:9] = rotation.ravel()
    out[27:30] = node.translation
    out[30], out[31] = ratio, offset
    return out
