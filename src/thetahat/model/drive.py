"""What a motor adds beside the rigid bodies: friction, offset, rotor inertia.

Each is linear in one number per motor, so each is one more regressor column, evaluated at motor
speed and mapped back:

    q̇_m = Bᵀq̇,    τ_drive = B·Σ_terms value · shape(q̇_m, q̈_m, load)

    viscous·q̇_m + coulomb·sign(q̇_m) + offset + armature·q̈_m

B is the actuation map, u_joint = B·u_motor (paper's B): gear ratios, coupled wrists, differentials
and push-rods; the identity where none is given. By virtual work the motors turn at q̇_m = Bᵀq̇. A
`Shape` (shapes.py) is one such column; a nonlinear one (Stribeck, load dependence) is searched for
outside the linear solve and handed in with its nonlinear numbers fixed. So is the law by which dry
friction turns with the motion (`Dry`); samples behind a low-pass hold its direction as the same
low-pass shows it (data/friction_direction.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from thetahat.errors import NotIdentifiable, UsageError, known
from thetahat.model.friction_terms import SHAPES, Dry, Shape

TERMS = ("viscous", "coulomb", "offset", "armature")
STEP = (
    1e-5  # [s] of the central difference for Ḃ: truncation and rounding both stay near 1e-10 of B
)


# -- from motors to joints -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Actuation:
    """The map from motors to joints, the motors' names, and their gains."""

    B: (
        np.ndarray | Callable[[np.ndarray], np.ndarray]
    )  # (nv, motors), or a function of q: (…, nq) → (…, nv, motors)
    nv: int
    names: tuple[str, ...]
    gains: tuple[float | None, ...] | None = None  # [N·m/A or N/A], None where unknown
    one_dof: tuple[np.ndarray, np.ndarray] | None = (
        None  # positions in q and in dq of the one-DOF joints, along which B may vary
    )

    def __post_init__(self) -> None:
        if not callable(self.B):
            B = np.array(self.B, dtype=float)
            if B.shape != (self.nv, self.motors) or not np.all(np.isfinite(B)):
                raise UsageError(
                    f"the actuation map has shape {B.shape}; expected ({self.nv}, {self.motors}),"
                    " finite: a row per degree of freedom"
                )
            idle = np.flatnonzero(~np.any(B, axis=0))
            if idle.size:
                raise UsageError(
                    f"motor {self.names[idle[0]]!r} drives no joint (its column of the actuation"
                    " map is zero); leave the column out"
                )
            B.setflags(write=False)
            object.__setattr__(self, "B", B)
        if len(set(self.names)) < len(self.names):
            raise UsageError(
                f"motor names repeat: {known(self.names)}; give every motor its own name"
            )
        if self.gains is not None:
            object.__setattr__(
                self,
                "gains",
                tuple(
                    _gain(name, gain)
                    for name, gain in zip(self.names, self._checked_gains(), strict=True)
                ),
            )

    def _checked_gains(self) -> tuple:
        if len(self.gains) != self.motors:
            raise UsageError(
                f"{len(self.gains)} gains are given for {self.motors} motors; give one per motor,"
                " None where it is unknown"
            )
        return tuple(self.gains)

    @property
    def motors(self) -> int:
        """How many motors there are."""
        return len(self.names)

    @property
    def constant(self) -> bool:
        """Whether B is the same in every configuration."""
        return not callable(self.B)

    def matrix_at(self, q: np.ndarray | None) -> np.ndarray:
        """B, (nv, motors), or (…, nv, motors) where it depends on q."""
        if self.constant:
            return self.B
        if q is None:
            raise UsageError("the actuation map depends on q; hand in q as well")
        q = np.asarray(q, dtype=float)
        B = np.asarray(self.B(q), dtype=float)
        if B.shape != (*q.shape[:-1], self.nv, self.motors) or not np.all(np.isfinite(B)):
            raise UsageError(
                f"the actuation function returned shape {B.shape} for q of shape {q.shape};"
                f" expected {(*q.shape[:-1], self.nv, self.motors)}, finite: it must take many"
                " configurations at once"
            )
        return B

    def touches(self) -> np.ndarray:
        """Which motor can act on which degree of freedom, (nv, motors) bool; all of them where B
        depends on q.
        """
        return np.ones((self.nv, self.motors), dtype=bool) if callable(self.B) else self.B != 0.0

    def motor_rates(
        self, dq: np.ndarray, ddq: np.ndarray, *, q: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """q̇_m = Bᵀq̇ and q̈_m = Bᵀq̈ + Ḃᵀq̇, each (…, motors)."""
        if self.constant:
            return dq @ self.B, ddq @ self.B
        B, dB = self.matrix_at(q), self._rate(q, dq)
        return _row(dq, B), _row(ddq, B) + _row(dq, dB)

    def _rate(self, q: np.ndarray, dq: np.ndarray) -> np.ndarray:
        """Ḃ by a central difference along the one-DOF joints (a B does not depend on the place of
        the base).
        """
        step = np.zeros_like(np.asarray(q, dtype=float))
        positions, directions = (
            self.one_dof if self.one_dof is not None else (np.arange(self.nv), np.arange(self.nv))
        )
        step[..., positions] = STEP * dq[..., directions]
        return (self.matrix_at(q + step) - self.matrix_at(q - step)) / (2.0 * STEP)

    # -- motor torques and currents ----------------------------------------------------------------

    def joint_torque(self, motor: np.ndarray, *, q: np.ndarray | None = None) -> np.ndarray:
        """u_joint = B·u_motor, (…, nv)."""
        motor = np.asarray(motor, dtype=float)
        if motor.shape[-1:] != (self.motors,):
            raise UsageError(
                f"motor torque has shape {motor.shape}; its last axis must be {self.motors}, one"
                f" per motor: {known(self.names)}"
            )
        return (self.matrix_at(q) @ motor[..., None])[..., 0]

    @property
    def unknown_gains(self) -> tuple[int, ...]:
        """Motors whose gain is not known; all of them where no gains were given."""
        return (
            tuple(range(self.motors))
            if self.gains is None
            else tuple(k for k, gain in enumerate(self.gains) if gain is None)
        )

    def joint_torque_of_current(
        self, current: np.ndarray, *, q: np.ndarray | None = None
    ) -> np.ndarray:
        """u_joint = B·diag(gain)·current, (…, nv); every gain must be known."""
        if self.unknown_gains:
            raise NotIdentifiable(
                f"the gain of motor {self.names[self.unknown_gains[0]]!r} is not known, so its"
                " current [A] is no torque; give it in with_actuation(gains=...), or identify it"
                " with `gain_columns` where a known payload, mass or gain fixes the scale"
            )
        return self.joint_torque(np.asarray(current, dtype=float) * np.array(self.gains), q=q)

    def gain_columns(
        self, current: np.ndarray, *, q: np.ndarray | None = None, fixed: Iterable[str] = ()
    ) -> tuple[np.ndarray, tuple[str, ...], np.ndarray]:
        """Unknown gains as columns beside the regressor's: [Y | −B_u·diag(i_u)]·[x; gain_u] =
        B_k·diag(gain_k)·i_k.

        fixed: names of columns whose value is known and not zero (a payload's mass), which move to
        the right-hand side. Returns the columns (…, nv, unknown), their names, and the known
        motors' joint torque (…, nv). Refused where nothing fixes the scale.
        """
        unknown, current = list(self.unknown_gains), np.asarray(current, dtype=float)
        if len(unknown) == self.motors and not tuple(fixed):
            raise NotIdentifiable(
                f"no motor gain is known ({known(self.names)}), so torques and all parameters could"
                " be scaled alike and zero fits best; give one gain in with_actuation(gains=...),"
                " or a known payload or mass"
            )
        gains = np.array(
            [0.0 if gain is None else gain for gain in self.gains or [None] * self.motors]
        )
        torque = self.joint_torque(current * gains, q=q)
        columns = -(self.matrix_at(q)[..., unknown] * current[..., None, unknown])
        return columns, tuple(f"gain_{self.names[k]}" for k in unknown), torque


def _gain(name: str, gain: float | None) -> float | None:
    if gain is not None and not (np.isfinite(gain) and gain != 0.0):
        raise UsageError(
            f"the gain of motor {name!r} is {gain}; give a finite number other than zero [N·m/A],"
            " or None where it is unknown"
        )
    return None if gain is None else float(gain)


def _row(rate: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Bᵀ·rate for every sample."""
    return (rate[..., None, :] @ B)[..., 0, :]


# -- what a motor adds -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Drive:
    """Values per motor (motors,), which of the terms are to be identified, and the map from motors
    to joints.
    """

    viscous: np.ndarray  # [N·m·s/rad or N·s/m]
    coulomb: np.ndarray  # [N·m or N]
    offset: np.ndarray  # [N·m or N]
    armature: np.ndarray  # [kg·m² or kg]
    identified: tuple[str, ...] = ()
    actuation: Actuation | None = None  # None: one motor per degree of freedom, B = 1
    extra: tuple[
        tuple[Shape, np.ndarray], ...
    ] = ()  # further columns and their values, in this order after TERMS
    motors: tuple[int, ...] | None = None  # those whose parameters are columns; None: all
    # how the direction of dry friction turns; None: the sign of the speed, as it is measured
    dry: Dry | None = None

    @staticmethod
    def none(nv: int) -> Drive:
        """No friction, no offset, no rotor inertia."""
        return Drive(*(np.zeros(nv) for _ in TERMS))

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

    def _check_terms(self, terms) -> None:
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

    def shape(self, term: str) -> Shape:
        """The column of a term."""
        self._check_terms([term])
        return (
            SHAPES[term]
            if term in SHAPES
            else next(shape for shape, _ in self.extra if shape.term == term)
        )

    def value(self, term: str) -> np.ndarray:
        """The values of a term, (motors,)."""
        self._check_terms([term])
        return (
            getattr(self, term)
            if term in SHAPES
            else next(value for shape, value in self.extra if shape.term == term)
        )

    @property
    def column_motors(self) -> tuple[int, ...]:
        """The motors whose parameters are columns."""
        return tuple(range(len(self.viscous))) if self.motors is None else self.motors

    @property
    def simple(self) -> bool:
        """Whether its torque is viscous·q̇ + coulomb·sign(q̇) + offset + armature·q̈ of every joint
        by itself, which kernels know.
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
        """τ_drive, same shape as dq.

        q is read where B depends on it, load (joint torque of the rigid bodies) where a shape needs
        it. direction: of dry friction, (…, motors), where the samples hold it; None: by the law,
        from the speed alone.
        """
        if self.simple and direction is None:
            return (
                self.viscous * dq + self.coulomb * np.sign(dq) + self.offset + self.armature * ddq
            )
        B, dq_m, ddq_m, load_m = self._motor_side(dq, ddq, q=q, load=load)
        u = np.zeros_like(dq_m)
        for term in self.terms:
            value = self.value(term)
            if np.any(value):
                u += value * self._column(term, dq_m, ddq_m, load_m, direction)
        return u if B is None else (B @ u[..., None])[..., 0]

    def friction(
        self,
        dq: np.ndarray,
        *,
        q: np.ndarray | None = None,
        load: np.ndarray | None = None,
        direction: np.ndarray | None = None,
    ) -> np.ndarray:
        """The part that does not depend on acceleration; a B that turns with q adds its rotors'
        velocity torque.
        """
        if self.simple and direction is None:
            return self.viscous * dq + self.coulomb * np.sign(dq) + self.offset
        return self.torque(dq, np.zeros_like(dq), q=q, load=load, direction=direction)

    def joint_armature(self, q: np.ndarray | None = None) -> np.ndarray:
        """B·diag(armature)·Bᵀ, (nv, nv), or (…, nv, nv) where B depends on q: what the rotors add
        to the mass matrix.
        """
        if self.actuation is None:
            return np.diag(self.armature)
        if not np.any(self.armature):
            return np.zeros((self.actuation.nv, self.actuation.nv))
        B = self.actuation.matrix_at(q)
        return (B * self.armature) @ np.swapaxes(B, -1, -2)

    @cached_property
    def couples_joints(self) -> bool:
        """Whether rotors tie joints together, so that what they add to the mass matrix is not a
        constant diagonal.
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
        """The identified terms' regressor columns, (…, nv, terms × motors), grouped by term in the
        order of `terms`.
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
        """B (None: the identity) and each identified term's column before B spreads it over the
        joints, (…, motors).
        """
        B, dq_m, ddq_m, load_m = self._motor_side(dq, ddq, q=q, load=load)
        return B, [self._column(term, dq_m, ddq_m, load_m, direction) for term in self.identified]

    def direction(self, dq: np.ndarray, *, q: np.ndarray | None = None) -> np.ndarray:
        """d of dry friction, (…, motors), by the law from the speed alone."""
        return self._turned(self._motor_side(dq, np.zeros_like(dq), q=q, load=None)[1])

    def _turned(self, dq_m: np.ndarray) -> np.ndarray:
        return np.sign(dq_m) if self.dry is None else self.dry.at(dq_m)

    def _column(
        self,
        term: str,
        dq_m: np.ndarray,
        ddq_m: np.ndarray,
        load_m: np.ndarray | None,
        direction: np.ndarray | None = None,
    ) -> np.ndarray:
        shape = self.shape(term)
        if shape.needs_load and load_m is None:
            raise UsageError(
                f"drive term {term!r} depends on the load; hand in load, the joint torque that"
                " carries the rigid bodies"
            )
        if term == "coulomb":  # its column is the direction itself
            return self._turned(dq_m) if direction is None else direction
        column = shape.column(dq_m, ddq_m, load_m)
        return (
            column * (self._turned(dq_m) if direction is None else direction)
            if shape.along
            else column
        )

    def _motor_side(self, dq: np.ndarray, ddq: np.ndarray, *, q, load) -> tuple:
        """(B or None, q̇_m, q̈_m, load_m); load_m is the least motor torque that B maps to the
        load.
        """
        if self.actuation is None:
            return None, dq, ddq, load
        B = self.actuation.matrix_at(q)
        dq_m, ddq_m = self.actuation.motor_rates(dq, ddq, q=q)
        needs = load is not None and self.needs_load
        return B, dq_m, ddq_m, (np.linalg.pinv(B) @ load[..., None])[..., 0] if needs else load

    # -- variants ----------------------------------------------------------------------------------

    def with_terms(self, **terms: bool) -> Drive:
        """The same values, with other terms to be identified."""
        self._check_terms(terms)
        return replace(
            self, identified=tuple(t for t in self.terms if terms.get(t, t in self.identified))
        )

    def with_values(self, **values: np.ndarray) -> Drive:
        """The same drive with other values, per motor, of the terms named."""
        self._check_terms(values)
        extra = tuple((shape, values.get(shape.term, value)) for shape, value in self.extra)
        return replace(
            self, extra=extra, **{term: value for term, value in values.items() if term in SHAPES}
        )

    def with_dry(self, dry: Dry | None) -> Drive:
        """The same drive with another law of how dry friction turns with the motion."""
        return replace(self, dry=dry)

    def with_shape(self, shape: Shape, value: np.ndarray | float = 0.0) -> Drive:
        """The same drive with one more column to identify; a term of that name is replaced."""
        if shape.term in SHAPES:
            raise UsageError(
                f"drive term {shape.term!r} is built in; give the new shape another name than"
                f" {known(TERMS)}"
            )
        value = np.broadcast_to(np.asarray(value, dtype=float), self.viscous.shape)
        extra = {s.term: (s, v) for s, v in self.extra} | {
            shape.term: (shape, value)
        }  # in its old place, where it has one
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
