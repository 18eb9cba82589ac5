"""Friction, springs and rotors of a drive as expressions, at the motors: q̇_m = Bᵀq̇.

The values of every term follow θ in the table of parameters, term by term, a number per motor.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from thetahat.errors import UsageError
from thetahat.export.codegen.expression_graph import Expression, Graph
from thetahat.export.codegen.symbolic_dynamics import as_vector
from thetahat.model.drive import Drive
from thetahat.model.friction_terms import KNOWN, DriveTerm
from thetahat.model.robot import Robot

Columns = dict[str, list[Expression]]  # of every term, a column per motor


def check_drive(robot: Robot) -> None:
    """Raise where C cannot express what drives a joint."""
    drive = robot.drive
    if drive.actuation is not None and drive.actuation.constant_matrix is None:
        raise UsageError(
            f"the joints of robot {robot.name!r} are driven through an actuation map that is a"
            " Python function of q, which C cannot express; give a constant map, or generate"
            " robot.without_drive()"
        )
    for shape, _ in drive.extra:
        if shape.term not in KNOWN:
            raise UsageError(
                f"drive term {shape.term!r} of robot {robot.name!r} is a Python function, which C"
                f" cannot express; terms that C knows: {', '.join(KNOWN)}"
            )


class SymbolicDrive:
    """The drive of a robot in one graph."""

    def __init__(self, robot: Robot, graph: Graph) -> None:
        self.drive: Drive = robot.drive
        self.graph = graph
        self.first = len(robot.theta)  # of its values among the parameters
        actuation = robot.drive.actuation
        self.B = None if actuation is None else actuation.constant_matrix

    @property
    def motors(self) -> int:
        """How many there are."""
        return len(self.drive.viscous)

    def value(self, term: str, motor: int) -> Expression:
        """A term's parameter; the constant 0 where no motor has it: it costs nothing then."""
        if not np.any(self.drive.value(term)) and term not in self.drive.identified:
            return self.graph.zero
        at = self.drive.terms.index(term)
        return self.graph.input("p", self.first + at * self.motors + motor)

    def to_motors(self, joint: list[Expression]) -> list[Expression]:
        """Bᵀ·joint."""
        return joint if self.B is None else _times(self.graph, self.B.T, joint)

    def to_joints(self, motor: list[Expression]) -> list[Expression]:
        """B·motor."""
        return motor if self.B is None else _times(self.graph, self.B, motor)

    def torque(
        self,
        q: list[Expression],
        dq: list[Expression],
        ddq: list[Expression],
        load: list[Expression] | None,
        *,
        transition: float = 0.0,
    ) -> list[Expression]:
        """Return the drive's torque at the joints, (nv,).

        load: torque of the rigid bodies; None: terms that need it are left out. transition: [rad/s
        or m/s] over which dry friction without a zone of its own changes its sign.
        """
        columns = self.columns(q, dq, ddq, load, transition=transition)
        total = [self.graph.zero] * self.motors
        for term, column in columns.items():
            for k in range(self.motors):
                total[k] = total[k] + self.value(term, k) * column[k]
        return self.to_joints(total)

    def columns(
        self,
        q: list[Expression],
        dq: list[Expression],
        ddq: list[Expression],
        load: list[Expression] | None,
        *,
        transition: float = 0.0,
    ) -> Columns:
        """Return every term's column at the motors."""
        dq_m, ddq_m = self.to_motors(dq), self.to_motors(ddq)
        along = [self._direction(k, x, transition) for k, x in enumerate(dq_m)]
        q_m = self.to_motors(q) if len(q) == len(dq) else []
        load_m = None
        if load is not None and self.drive.needs_load:
            load_m = load if self.B is None else _times(self.graph, np.linalg.pinv(self.B), load)
        out: Columns = {
            "viscous": dq_m,
            "coulomb": along,
            "offset": [self.graph.one] * self.motors,
            "armature": ddq_m,
        }
        for shape, _ in self.drive.extra:
            if shape.needs_load and load_m is None:
                continue
            out[shape.term] = [
                self._column(shape, k, dq_m[k], q_m[k] if q_m else None, load_m)
                for k in range(self.motors)
            ]
            if shape.along:
                pairs = zip(out[shape.term], along, strict=True)
                out[shape.term] = [column * d for column, d in pairs]
        return out

    def _direction(self, motor: int, speed: Expression, transition: float) -> Expression:
        """d: the sign of the speed, or tanh over the motor's zone."""
        dry = self.drive.dry
        zone = transition if dry is None or self.drive.simple else float(dry.zone[motor])
        if zone > 0.0:
            return self.graph.call("tanh", speed * (1.0 / zone))
        return self.graph.call("sign", speed)

    def _column(
        self,
        shape: DriveTerm,
        motor: int,
        speed: Expression,
        position: Expression | None,
        load: list[Expression] | None,
    ) -> Expression:
        values = shape.settings[0][1]
        setting = values[motor] if len(values) > 1 else values[0]
        if setting == 0.0:
            return self.graph.zero
        call = self.graph.call
        if shape.of_position:
            if position is None:
                raise UsageError(
                    f"drive term {shape.term!r} depends on the position of a joint with several"
                    " degrees of freedom, which C cannot express; leave it out of the drive"
                )
            return _OF_POSITION[shape.term](position) * setting
        if shape.term == "stribeck":
            x = speed * (1.0 / setting)
            return call("exp", -(x * x))
        if shape.term == "load":
            return call("abs", load[motor]) * setting if load is not None else self.graph.zero
        squared = shape.term == "quadratic"
        return call("abs", speed) * (speed if squared else self.graph.one) * setting


_OF_POSITION: dict[str, Callable[[Expression], Expression]] = {
    "spring": lambda q: q,
    "spring_sine": lambda q: q.graph.call("sin", q),
    "spring_cosine": lambda q: q.graph.call("cos", q),
}


def _times(graph: Graph, B: np.ndarray, values: list[Expression]) -> list[Expression]:
    """B·values, zeros of B left out."""
    column = as_vector(values)
    return [sum((column[k] * row[k] for k in np.flatnonzero(row)), graph.zero) for row in B]


def joint_armature(drive: SymbolicDrive, nv: int) -> dict[tuple[int, int], Expression]:
    """Return B·diag(armature)·Bᵀ by (row, column), row ≥ column."""
    B = np.eye(nv) if drive.B is None else drive.B
    out: dict[tuple[int, int], Expression] = {}
    for k in range(drive.motors):
        rotor = drive.value("armature", k)
        joints = np.flatnonzero(B[:, k])
        for i in joints:
            for j in joints[joints <= i]:
                at = int(i), int(j)
                part = rotor * float(B[i, k] * B[j, k])
                out[at] = out.get(at, drive.graph.zero) + part
    return {at: entry for at, entry in out.items() if not entry.is_zero}
