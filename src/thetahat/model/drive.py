"""The drive of each motor beside the rigid bodies: friction, offset, rotor inertia.

Each is linear in one number per motor, so each is one more regressor column, evaluated at motor
speed and mapped back:

    q̇_m = Bᵀq̇,    τ_drive = B·Σ_terms value · shape(q̇_m, q̈_m, load)

    viscous·q̇_m + coulomb·sign(q̇_m) + offset + armature·q̈_m

B is the actuation map (actuation.py), the identity where none is given. A `DriveTerm`
(friction_terms.py) is one such column; a nonlinear one (Stribeck, load dependence) is selected
outside the linear solve, its nonlinear settings fixed, and so is the law by which dry friction
follows the motion (`FrictionDirection`). Low-passed samples hold the direction behind the same
low-pass (data/friction_direction.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from thetahat.errors import UsageError, known
from thetahat.model.actuation import Actuation
from thetahat.model.friction_terms import STANDARD_TERMS, DriveTerm, FrictionDirection

TERMS = ("viscous", "coulomb", "offset", "armature")


class _MotorSide(NamedTuple):
    """A state seen from the motors; B is None for the identity."""

    B: np.ndarray | None
    dq: np.ndarray
    ddq: np.ndarray
    load: np.ndarray | None
    q: np.ndarray | None  # where a spring reads it


@dataclass(frozen=True, eq=False)
class Drive:
    """Drive values per motor (motors,), which terms are identified, and the actuation map."""

    viscous: np.ndarray  # [N·m·s/rad or N·s/m]
    coulomb: np.ndarray  # [N·m or N]
    offset: np.ndarray  # [N·m or N]
    armature: np.ndarray  # [kg·m² or kg]
    identified: tuple[str, ...] = ()
    actuation: Actuation | None = None  # None: one motor per degree of freedom, B = 1
    # further columns and their values, in this order after TERMS
    extra: tuple[tuple[DriveTerm, np.ndarray], ...] = ()
    motors: tuple[int, ...] | None = None  # those whose parameters are columns; None: all
    # how the direction of dry friction turns; None: the sign of the speed, as it is measured
    dry: FrictionDirection | None = None
    # motors whose rotor inertia is a column where "armature" is identified; None: all. The others'
    # columns are zero, so that they keep the value of the prior.
    rotors: tuple[int, ...] | None = None

    @staticmethod
    def none(nv: int) -> Drive:
        """No friction, no offset, no rotor inertia."""
        return Drive(np.zeros(nv), np.zeros(nv), np.zeros(nv), np.zeros(nv))

    def __post_init__(self) -> None:
        count = self.actuation.motors if self.actuation else np.size(self.viscous)
        for term in TERMS:
            object.__setattr__(self, term, _values(term, getattr(self, term), count))
        object.__setattr__(
            self,
            "extra",
            tuple((shape, _values(shape.term, value, count)) for shape, value in self.extra),
        )
        self._check_terms(self.identified)
        object.__setattr__(
            self, "identified", tuple(term for term in self.terms if term in self.identified)
        )
        if self.dry is not None and self.dry.motors != count:
            raise UsageError(
                f"the law of dry friction is for {self.dry.motors} motors and there are {count};"
                " give one entry per motor"
            )
        if self.motors is not None and not all(0 <= k < count for k in self.motors):
            raise UsageError(
                f"drive motors are {self.motors}; give positions from 0 to {count - 1}"
            )
        if self.rotors is not None and not all(0 <= k < count for k in self.rotors):
            raise UsageError(
                f"drive rotors are {self.rotors}; give positions from 0 to {count - 1}"
            )

    def _check_terms(self, terms: Iterable[str]) -> None:
        unknown = [term for term in terms if term not in self.terms]
        if unknown:
            raise UsageError(
                f"drive term {unknown[0]!r} is unknown; terms: {', '.join(self.terms)}"
            )

    # -- terms -------------------------------------------------------------------------------------

    @property
    def terms(self) -> tuple[str, ...]:
        """Every term this drive has, in the order of its columns."""
        return (*TERMS, *(shape.term for shape, _ in self.extra)) if self.extra else TERMS

    def term(self, term: str) -> DriveTerm:
        """The column of a term."""
        self._check_terms([term])
        return (
            STANDARD_TERMS[term]
            if term in STANDARD_TERMS
            else next(shape for shape, _ in self.extra if shape.term == term)
        )

    def value(self, term: str) -> np.ndarray:
        """The values of a term, (motors,)."""
        self._check_terms([term])
        if term not in STANDARD_TERMS:
            return next(value for shape, value in self.extra if shape.term == term)
        value: np.ndarray = getattr(self, term)
        return value

    @property
    def column_motors(self) -> tuple[int, ...]:
        """The motors whose parameters are columns."""
        return tuple(range(len(self.viscous))) if self.motors is None else self.motors

    @property
    def simple(self) -> bool:
        """Whether the torque is viscous·q̇ + coulomb·sign(q̇) + offset + armature·q̈ of every joint
        by itself, as the kernels compute it.
        """
        return (
            self.actuation is None
            and not self.extra
            and (self.dry is None or not np.any(self.dry.zone))
        )

    @property
    def needs_load(self) -> bool:
        """Whether a column reads the load."""
        return any(shape.needs_load for shape, _ in self.extra)

    @property
    def has_springs(self) -> bool:
        """Whether a column reads the position."""
        return any(shape.of_position for shape, _ in self.extra)

    @cached_property
    def is_zero(self) -> bool:
        """Whether the drive adds no torque at all."""
        return not any(np.any(self.value(term)) for term in self.terms)

    # -- torque ------------------------------------------------------------------------------------

    def torque(
        self,
        dq: np.ndarray,
        ddq: np.ndarray,
        *,
        q: np.ndarray | None = None,
        load: np.ndarray | None = None,
        direction: np.ndarray | None = None,
    ) -> np.ndarray:
        """Compute the drive torque, same shape as dq.

        q is read by springs and where B depends on it, load (joint torque of the rigid bodies)
        where a shape needs it. direction: of dry friction, (…, motors), where the samples hold it;
        None: by the law, from the speed alone.
        """
        if self.simple and direction is None:
            tau: np.ndarray = (
                self.viscous * dq + self.coulomb * np.sign(dq) + self.offset + self.armature * ddq
            )
            return tau
        motor = self._motor_side(dq, ddq, q=q, load=load)
        u = np.zeros_like(motor.dq)
        for term in self.terms:
            value = self.value(term)
            if np.any(value):
                u += value * self._column(term, motor, direction)
        return u if motor.B is None else (motor.B @ u[..., None])[..., 0]

    def friction(
        self,
        dq: np.ndarray,
        *,
        q: np.ndarray | None = None,
        load: np.ndarray | None = None,
        direction: np.ndarray | None = None,
    ) -> np.ndarray:
        """Compute the part that does not depend on acceleration; a B that depends on q adds its
        rotors' velocity torque.
        """
        if self.simple and direction is None:
            tau: np.ndarray = self.viscous * dq + self.coulomb * np.sign(dq) + self.offset
            return tau
        return self.torque(dq, np.zeros_like(dq), q=q, load=load, direction=direction)

    def spring_torque(self, q: np.ndarray) -> np.ndarray:
        """Compute what springs and counterbalances take from the joints, same shape as q."""
        still = np.zeros_like(q)
        return self._springs.torque(still, still, q=q)

    @cached_property
    def _springs(self) -> Drive:
        """The drive that has springs alone."""
        springs = tuple(term for term in self.extra if term[0].of_position)
        none = Drive.none(len(self.viscous))
        return replace(none, actuation=self.actuation, extra=springs)

    @cached_property
    def static(self) -> Drive:
        """The drive of what acts at rest: springs, and the offsets that say where these rest."""
        has = np.zeros(len(self.viscous), dtype=bool)
        for _, value in self._springs.extra:
            has |= value != 0.0
        return replace(self._springs, offset=np.where(has, self.offset, 0.0))

    def joint_armature(self, q: np.ndarray | None = None) -> np.ndarray:
        """Compute B·diag(armature)·Bᵀ, (nv, nv), or (…, nv, nv) where B depends on q: the rotors'
        part of the mass matrix.
        """
        if self.actuation is None:
            return np.diag(self.armature)
        if not np.any(self.armature):
            return np.zeros((self.actuation.nv, self.actuation.nv))
        B = self.actuation.matrix_at(q)
        inertia: np.ndarray = (B * self.armature) @ np.swapaxes(B, -1, -2)
        return inertia

    @cached_property
    def couples_joints(self) -> bool:
        """Whether rotors couple joints, so that their part of the mass matrix is not a constant
        diagonal.
        """
        if self.actuation is None or not np.any(self.armature):
            return False
        if not self.actuation.constant:
            return True
        matrix = self.joint_armature()
        return bool(np.any(matrix != np.diag(np.diag(matrix))))

    # -- columns -----------------------------------------------------------------------------------

    @property
    def column_count(self) -> int:
        """How many columns the identified terms take."""
        return len(self.identified) * len(self.column_motors)

    def columns(
        self,
        dq: np.ndarray,
        ddq: np.ndarray,
        *,
        q: np.ndarray | None = None,
        load: np.ndarray | None = None,
        direction: np.ndarray | None = None,
    ) -> np.ndarray:
        """Compute the identified terms' regressor columns, (…, nv, terms × motors), grouped by term
        in the order of `terms`.
        """
        B, at_motors = self.motor_columns(dq, ddq, q=q, load=load, direction=direction)
        motors = list(self.column_motors)
        B = np.eye(dq.shape[-1])[:, motors] if B is None else B[..., motors]
        out = np.empty((*dq.shape, self.column_count))
        for k, column in enumerate(at_motors):
            out[..., k * len(motors) : (k + 1) * len(motors)] = B * column[..., None, motors]
        return out

    def motor_columns(
        self,
        dq: np.ndarray,
        ddq: np.ndarray,
        *,
        q: np.ndarray | None = None,
        load: np.ndarray | None = None,
        direction: np.ndarray | None = None,
    ) -> tuple[np.ndarray | None, list[np.ndarray]]:
        """Return B (None: the identity) and each identified term's column at the motors, (…,
        motors).
        """
        motor = self._motor_side(dq, ddq, q=q, load=load)
        columns = [self._column(term, motor, direction) for term in self.identified]
        if self.rotors is not None and "armature" in self.identified:
            at = self.identified.index("armature")
            fitted = np.isin(np.arange(len(self.viscous)), self.rotors)
            columns[at] = np.where(fitted, columns[at], 0.0)
        return motor.B, columns

    def direction(self, dq: np.ndarray, *, q: np.ndarray | None = None) -> np.ndarray:
        """Compute the direction d of dry friction, (…, motors), from the speed alone."""
        if self.actuation is None:
            return self._direction(dq)
        return self._direction(self.actuation.motor_rates(dq, np.zeros_like(dq), q=q)[0])

    def _direction(self, dq_m: np.ndarray) -> np.ndarray:
        direction: np.ndarray = np.sign(dq_m) if self.dry is None else self.dry.at(dq_m)
        return direction

    def _column(
        self, term: str, motor: _MotorSide, direction: np.ndarray | None = None
    ) -> np.ndarray:
        shape = self.term(term)
        if shape.needs_load and motor.load is None:
            raise UsageError(
                f"drive term {term!r} depends on the load; hand in load, the joint torque that"
                " carries the rigid bodies"
            )
        if shape.of_position:
            if motor.q is None:
                raise UsageError(f"drive term {term!r} depends on the position; hand in q")
            return shape.column(motor.q, motor.ddq, motor.load)
        if not shape.along:
            return shape.column(motor.dq, motor.ddq, motor.load)
        if direction is None:
            direction = self._direction(motor.dq)
        if term == "coulomb":  # its column is the direction itself
            return direction
        column: np.ndarray = shape.column(motor.dq, motor.ddq, motor.load) * direction
        return column

    def _motor_side(
        self, dq: np.ndarray, ddq: np.ndarray, *, q: np.ndarray | None, load: np.ndarray | None
    ) -> _MotorSide:
        """The state at the motors; the load there is the least torque that B maps to the load."""
        position = self._spring_positions(q, dq) if self.has_springs else None
        if self.actuation is None:
            return _MotorSide(None, dq, ddq, load, position)
        B = self.actuation.matrix_at(q)
        if load is not None and self.needs_load:
            load = (np.linalg.pinv(B) @ load[..., None])[..., 0]
        return _MotorSide(B, *self.actuation.motor_rates(dq, ddq, q=q), load, position)

    def _spring_positions(self, q: np.ndarray | None, dq: np.ndarray) -> np.ndarray | None:
        """q_m = Bᵀq, where springs can be: joints of one degree of freedom and a constant B."""
        if q is None:
            return None
        if q.shape != dq.shape or (self.actuation is not None and not self.actuation.constant):
            raise UsageError(
                "springs need joints of one degree of freedom and a constant actuation map; leave"
                " them out of this drive"
            )
        return q if self.actuation is None else q @ self.actuation.matrix_at(None)

    # -- variants ----------------------------------------------------------------------------------

    def with_terms(self, **terms: bool) -> Drive:
        """Return the drive with other terms to be identified."""
        self._check_terms(terms)
        return replace(
            self, identified=tuple(t for t in self.terms if terms.get(t, t in self.identified))
        )

    def with_values(self, **values: np.ndarray) -> Drive:
        """Return the drive with other values, per motor, of the named terms."""
        self._check_terms(values)
        return replace(
            self,
            viscous=values.get("viscous", self.viscous),
            coulomb=values.get("coulomb", self.coulomb),
            offset=values.get("offset", self.offset),
            armature=values.get("armature", self.armature),
            extra=tuple((shape, values.get(shape.term, value)) for shape, value in self.extra),
        )

    def without_springs(self) -> Drive:
        """Return the drive without the terms that depend on the position."""
        gone = {shape.term for shape, _ in self.extra if shape.of_position}
        return replace(
            self,
            extra=tuple(term for term in self.extra if term[0].term not in gone),
            identified=tuple(term for term in self.identified if term not in gone),
        )

    def with_dry(self, dry: FrictionDirection | None) -> Drive:
        """Return the drive with another law for the direction of dry friction."""
        return replace(self, dry=dry)

    def with_rotors(self, motors: Iterable[int] | None) -> Drive:
        """Return the drive with the rotor inertia of these motors to identify; None: of all."""
        rotors = None if motors is None else tuple(sorted(motors))
        return replace(self.with_terms(armature=rotors != ()), rotors=rotors or None)

    def with_extra_term(self, shape: DriveTerm, value: np.ndarray | float = 0.0) -> Drive:
        """Return the drive with one more term to identify; a term of that name is replaced."""
        if shape.term in STANDARD_TERMS:
            raise UsageError(
                f"drive term {shape.term!r} is built in; give the new shape another name than"
                f" {known(TERMS)}"
            )
        value = np.broadcast_to(np.asarray(value, dtype=float), self.viscous.shape)
        extra = {s.term: (s, v) for s, v in self.extra}
        extra[shape.term] = (shape, value)  # in its old place, where it has one
        return replace(self, extra=tuple(extra.values()), identified=(*self.identified, shape.term))


def _values(term: str, value: np.ndarray, count: int) -> np.ndarray:
    """Values of a term as read-only doubles, one per motor."""
    out = np.array(value, dtype=float)
    if out.shape != (count,) or not np.all(np.isfinite(out)):
        raise UsageError(
            f"drive term {term!r} has values {value!r}; give {count} finite numbers, one per motor"
        )
    out.setflags(write=False)
    return out
