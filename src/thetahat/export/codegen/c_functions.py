"""The C functions of one robot: straight-line code from the graph, and two loops that solve."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from thetahat.export.codegen.c_statements import Statements, Targets
from thetahat.export.codegen.expression_graph import Expression, Graph
from thetahat.export.codegen.symbolic_drive import SymbolicDrive, joint_armature
from thetahat.export.codegen.symbolic_dynamics import SymbolicRobot
from thetahat.model.robot import Robot
from thetahat.model.tree import FIRST_DOF, PARENT, V_INDEX

# [rad/s or m/s] over which the friction that computed torque compensates changes its sign, as in
# control.computed_torque
TRANSITION = 0.05
Entries = dict[tuple[int, int], Expression]


@dataclass(frozen=True)
class Function:
    """A function of the robot: its arguments, what they are, and its body."""

    name: str
    inputs: tuple[str, ...]
    output: str
    about: str
    lines: tuple[str, ...]
    returns: str = "void"

    def signature(self, prefix: str) -> str:
        """Return the declaration without its semicolon."""
        kind, restrict = f"{prefix}_real", f"{prefix.upper()}_RESTRICT"
        given = [f"const {kind} *{restrict} {name}" for name in self.inputs]
        arguments = ", ".join((*given, f"{kind} *{restrict} {self.output}"))
        return f"{self.returns} {prefix}_{self.name}({arguments})"

    def definition(self, prefix: str) -> str:
        """Return the function as C."""
        text = "\n".join(self.lines)
        names = set(re.findall(r"[A-Za-z_]\w*", text))
        unused = [name for name in (*self.inputs, self.output) if name not in names]
        body = [*self.lines, *(f"(void){name};" for name in unused)]
        return f"{self.signature(prefix)}\n{{\n" + "\n".join(f"    {b}" for b in body) + "\n}\n"


class RobotFunctions:
    """Builds the functions of a robot; rigid: without its drive, as `rigid=True` in Python."""

    def __init__(self, robot: Robot, *, single: bool = False) -> None:
        self.robot, self.single = robot, single
        self.graph = Graph()
        self.model = SymbolicRobot(robot, self.graph)
        self.drive = SymbolicDrive(robot, self.graph)
        self.q, self.dq, self.ddq = (
            self.graph.inputs(name, count)
            for name, count in (("q", robot.nq), ("dq", robot.nv), ("ddq", robot.nv))
        )
        self.still = [self.graph.zero] * robot.nv

    def _lines(self, targets: Targets) -> tuple[str, ...]:
        return tuple(Statements(self.graph, single=self.single).lines(targets))

    def _vector(self, name: str, values: Sequence[Expression]) -> list[tuple[str, Expression]]:
        return [(f"{name}[{k}]", value) for k, value in enumerate(values)]

    # -- torques -----------------------------------------------------------------------------------

    @property
    def rigid(self) -> str:
        """The static function that the others share: torque of the rigid bodies."""
        tau = self._vector("tau", self.model.inverse_dynamics(self.dq, self.ddq))
        arguments = ", ".join(f"const real *restrict {name}" for name in ("p", "q", "dq", "ddq"))
        body = "\n".join(f"    {line}" for line in self._lines(tau))
        return f"static void rigid_bodies({arguments}, real *restrict tau)\n{{\n{body}\n}}\n"

    def inverse_dynamics(self) -> Function:
        """Return D q̈ + C q̇ + G, drive included."""
        extra = self.drive.torque(self.q, self.dq, self.ddq, self._load)
        return Function(
            "inverse_dynamics",
            ("p", "q", "dq", "ddq"),
            "tau",
            "tau = D(q) ddq + C(q, dq) dq + G(q), friction, springs and rotors included",
            ("rigid_bodies(p, q, dq, ddq, tau);", *self._added(extra)),
        )

    @property
    def _load(self) -> list[Expression]:
        return self.graph.inputs("load", self.robot.nv)

    def _added(self, extra: Sequence[Expression]) -> tuple[str, ...]:
        """Add the drive's torque to tau, of which terms that need the load read a copy."""
        sums = [
            (f"tau[{k}]", self.graph.input("tau", k) + value)
            for k, value in enumerate(extra)
            if not value.is_zero
        ]
        copy = (f"real load[{self.robot.nv}];", "memcpy(load, tau, sizeof load);")
        return (*(copy if self.robot.drive.needs_load else ()), *self._lines(sums))

    def gravity(self) -> Function:
        """Return G."""
        return Function(
            "gravity",
            ("p", "q"),
            "tau",
            "tau = G(q), the torque that holds the bodies still",
            self._lines(self._vector("tau", self.model.inverse_dynamics())),
        )

    def computed_torque(self) -> Function:
        """Return the torque of q̈_cmd = q̈_d + kp e + kd ė, friction by the wanted speed."""
        graph, nv = self.graph, self.robot.nv
        q_d, dq_d, ddq_d, kp, kd = (
            graph.inputs(name, nv) for name in ("q_d", "dq_d", "ddq_d", "kp", "kd")
        )
        command = [
            ddq_d[k] + (kp[k] * (q_d[k] - self.q[k]) + kd[k] * (dq_d[k] - self.dq[k]))
            for k in range(nv)
        ]
        given = graph.inputs("command", nv)
        extra = self.drive.torque(self.q, dq_d, given, self._load, transition=TRANSITION)
        return Function(
            "computed_torque",
            ("p", "q", "dq", "q_d", "dq_d", "ddq_d", "kp", "kd"),
            "tau",
            "tau = D(q) (ddq_d + kp (q_d - q) + kd (dq_d - dq)) + C(q, dq) dq + G(q), friction of"
            " the wanted speed dq_d; kp [1/s^2], kd [1/s]",
            (
                f"real command[{nv}];",
                *self._lines(self._vector("command", command)),
                "rigid_bodies(p, q, dq, command, tau);",
                *self._added(extra),
            ),
        )

    # -- matrices ----------------------------------------------------------------------------------

    @cached_property
    def _mass_matrix(self) -> Entries:
        """D with rotors, row ≥ column."""
        return _sum(self.model.mass_matrix(), joint_armature(self.drive, self.robot.nv))

    def mass_matrix(self) -> Function:
        """Return D, both triangles."""
        nv = self.robot.nv
        targets = []
        for (i, j), entry in sorted(self._mass_matrix.items()):
            targets.append((f"D[{i * nv + j}]", entry))
            if i != j:
                targets.append((f"D[{j * nv + i}]", entry))
        return Function(
            "mass_matrix",
            ("p", "q"),
            "D",
            "D(q), (NV, NV) row by row, rotors included; entries that are always zero are left as"
            " mass_matrix_init wrote them",
            self._lines(targets),
        )

    def regressor(self) -> Function:
        """Return Y."""
        width = len(self.robot.theta)
        entries = self.model.regressor(self.dq, self.ddq)
        return Function(
            "regressor",
            ("q", "dq", "ddq"),
            "Y",
            "Y with Y theta = D(q) ddq + C(q, dq) dq + G(q), (NV, 10 BODIES) row by row; entries"
            " that are always zero are left as regressor_init wrote them",
            self._lines(_matrix_targets("Y", entries, width)),
        )

    def base_regressor(self, independent: np.ndarray) -> Function:
        """Return the columns of [Y, drive columns] that are in `independent`, ascending."""
        split = len(self.robot.theta)
        place = {int(column): k for k, column in enumerate(independent)}
        rigid = self.model.regressor(self.dq, self.ddq, {c for c in place if c < split})
        entries = {(i, place[c]): entry for (i, c), entry in rigid.items()}
        entries |= {
            (i, place[c]): entry for (i, c), entry in self._drive_entries().items() if c in place
        }
        return Function(
            "base_regressor",
            ("p", "q", "dq", "ddq"),
            "Y",
            "the columns of the base parameters, (NV, BASE) row by row; entries that are always"
            " zero are left as base_regressor_init wrote them",
            self._lines(_matrix_targets("Y", entries, len(place))),
        )

    def _drive_entries(self) -> Entries:
        """Return the identified drive terms' columns, behind those of θ."""
        robot, drive = self.robot, self.robot.drive
        if not drive.identified:
            return {}
        load = self.model.inverse_dynamics(self.dq, self.ddq)
        columns = self.drive.columns(self.q, self.dq, self.ddq, load)
        B = np.eye(robot.nv) if self.drive.B is None else self.drive.B
        out: Entries = {}
        at = len(robot.theta)
        for term in drive.identified:
            for motor in drive.column_motors:
                fitted = term != "armature" or drive.rotors is None or motor in drive.rotors
                for i in np.flatnonzero(B[:, motor]) if fitted else ():
                    out[int(i), at] = columns[term][motor] * float(B[i, motor])
                at += 1
        return out

    # -- forward dynamics --------------------------------------------------------------------------

    def forward_dynamics(self) -> Function:
        """Return q̈ by a factor of D: LᵀDL along the branches of the tree, or Cholesky where mimic
        joints or rotors couple them.
        """
        nv, graph = self.robot.nv, self.graph
        bias, tau = graph.inputs("ddq", nv), graph.inputs("tau", nv)
        extra = self.drive.torque(self.q, self.dq, self.still, None)
        rest = [tau[k] - (bias[k] + extra[k]) for k in range(nv)]
        coupled = self.robot.tree.has_mimic or self.robot.drive.couples_joints
        lines = [
            f"real D[{nv * nv}], still[{nv}];",
            "memset(D, 0, sizeof D);",
            "memset(still, 0, sizeof still);",
            "@name@_mass_matrix(p, q, D);",
            "rigid_bodies(p, q, dq, still, ddq);",
            *self._lines(self._vector("ddq", rest)),
        ]
        if coupled:
            lines.append("return solve_dense(D, ddq);")
        else:
            table = ", ".join(str(k) for k in parent_directions(self.robot))
            lines.insert(0, f"static const int parent[{nv}] = {{{table}}};")
            lines.append("return solve_along_tree(parent, D, ddq);")
        return Function(
            "forward_dynamics",
            ("p", "q", "dq", "tau"),
            "ddq",
            "ddq of the joint torques tau; returns 0, or 1 + k where the mass matrix is singular at"
            " direction k and ddq is not usable",
            tuple(lines),
            returns="int",
        )

    @property
    def solver(self) -> str:
        """The function that `forward_dynamics` calls."""
        coupled = self.robot.tree.has_mimic or self.robot.drive.couples_joints
        tiny = "1e-6f" if self.single else "1e-13"
        text = _DENSE if coupled else _ALONG_TREE
        return text.replace("NV", str(self.robot.nv)).replace("TINY", tiny)


def parent_directions(robot: Robot) -> list[int]:
    """Return for each degree of freedom the one before it on the way to the root, −1: none."""
    arrays = robot.tree.arrays
    out = [-1] * robot.nv
    for i, (parent, first) in enumerate(arrays.topology[:, [PARENT, FIRST_DOF]]):
        above = -1
        while parent >= 0 and above < 0:
            e = int(arrays.topology[parent, FIRST_DOF]) + robot.tree.nodes[parent].kind.nv - 1
            above, parent = int(arrays.dofs[e, V_INDEX]), int(arrays.topology[parent, PARENT])
        for k in range(robot.tree.nodes[i].kind.nv):
            v = int(arrays.dofs[first + k, V_INDEX])
            out[v], above = above, v
    return out


def _sum(a: Entries, b: Entries) -> Entries:
    return a | {at: a[at] + entry if at in a else entry for at, entry in b.items()}


def _matrix_targets(name: str, entries: Entries, width: int) -> Targets:
    return [(f"{name}[{i * width + j}]", entry) for (i, j), entry in entries.items()]


# D = LᵀDL in place, with L as sparse as the tree [Featherstone2008, algorithm 6.2]
_ALONG_TREE = """\
static int solve_along_tree(const int *parent, real *D, real *x)
{
    real whole[NV];
    int i, j, k;
    for (k = 0; k < NV; k++) whole[k] = D[k * NV + k];
    for (k = NV - 1; k >= 0; k--) {
        const real pivot = D[k * NV + k];
        if (!(pivot > TINY * whole[k])) return k + 1;
        for (i = parent[k]; i >= 0; i = parent[i]) {
            const real a = D[k * NV + i] / pivot;
            for (j = i; j >= 0; j = parent[j]) D[i * NV + j] -= a * D[k * NV + j];
            D[k * NV + i] = a;
        }
    }
    for (k = NV - 1; k >= 0; k--)
        for (i = parent[k]; i >= 0; i = parent[i]) x[i] -= D[k * NV + i] * x[k];
    for (k = 0; k < NV; k++) {
        x[k] /= D[k * NV + k];
        for (i = parent[k]; i >= 0; i = parent[i]) x[k] -= D[k * NV + i] * x[i];
    }
    return 0;
}
"""

_DENSE = """\
static int solve_dense(real *D, real *x)
{
    int i, j, k;
    for (k = 0; k < NV; k++) {
        const real whole = D[k * NV + k];
        real pivot = whole;
        for (j = 0; j < k; j++) pivot -= D[k * NV + j] * D[k * NV + j] * D[j * NV + j];
        if (!(pivot > TINY * whole)) return k + 1;
        D[k * NV + k] = pivot;
        for (i = k + 1; i < NV; i++) {
            real sum = D[i * NV + k];
            for (j = 0; j < k; j++) sum -= D[i * NV + j] * D[k * NV + j] * D[j * NV + j];
            D[i * NV + k] = sum / pivot;
        }
    }
    for (k = 0; k < NV; k++)
        for (j = 0; j < k; j++) x[k] -= D[k * NV + j] * x[j];
    for (k = NV - 1; k >= 0; k--) {
        x[k] /= D[k * NV + k];
        for (i = k + 1; i < NV; i++) x[k] -= D[i * NV + k] * x[i];
    }
    return 0;
}
"""
