"""The actuation map from motors to joints, u_joint = B·u_motor, and the motors' gains.

B holds gear ratios, coupled wrists, differentials and push-rods. By virtual work the motors turn at
q̇_m = Bᵀq̇.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from thetahat.errors import NotIdentifiable, UsageError, known

# [s] of the central difference for Ḃ: truncation and rounding both stay near 1e-10 of B
STEP = 1e-5
LEAST_GAIN, MOST_GAIN = 1e-9, 1e9  # [N·m/A or N/A]

ActuationFunction = Callable[[np.ndarray], np.ndarray]  # q: (…, nq) → B: (…, nv, motors)


class GainColumns(NamedTuple):
    """Regressor columns of unknown motor gains, their names, and the known motors' torque."""

    columns: np.ndarray  # (…, nv, unknown gains)
    names: tuple[str, ...]
    torque: np.ndarray  # (…, nv) [N·m or N]


@dataclass(frozen=True, eq=False)
class Actuation:
    """Actuation map from motors to joints, with the motors' names and gains."""

    B: np.ndarray | ActuationFunction  # (nv, motors), or a function of q
    nv: int
    names: tuple[str, ...]
    gains: tuple[float | None, ...] | None = None  # [N·m/A or N/A], None where unknown
    # positions in q and in dq of the one-DOF joints, along which B may vary
    one_dof: tuple[np.ndarray, np.ndarray] | None = None

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
            if len(self.gains) != self.motors:
                raise UsageError(
                    f"{len(self.gains)} gains are given for {self.motors} motors; give one per"
                    " motor, None where it is unknown"
                )
            gains = tuple(map(_gain, self.names, self.gains))
            object.__setattr__(self, "gains", gains)

    @property
    def motors(self) -> int:
        """How many motors there are."""
        return len(self.names)

    @property
    def constant(self) -> bool:
        """Whether B is the same in every configuration."""
        return not callable(self.B)

    @property
    def constant_matrix(self) -> np.ndarray | None:
        """B, (nv, motors), or None where it depends on q."""
        return None if callable(self.B) else self.B

    def matrix_at(self, q: np.ndarray | None) -> np.ndarray:
        """B, (nv, motors), or (…, nv, motors) where it depends on q."""
        if not callable(self.B):
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
        """Return which motor can act on which degree of freedom, (nv, motors) bool; all where B
        depends on q.
        """
        return np.ones((self.nv, self.motors), dtype=bool) if callable(self.B) else self.B != 0.0

    def motor_rates(
        self, dq: np.ndarray, ddq: np.ndarray, *, q: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Compute q̇_m = Bᵀq̇ and q̈_m = Bᵀq̈ + Ḃᵀq̇, each (…, motors)."""
        B = self.matrix_at(q)
        if q is None or self.constant:
            return dq @ B, ddq @ B
        return _row(dq, B), _row(ddq, B) + _row(dq, self.rate(q, dq))

    def rate(self, q: np.ndarray, dq: np.ndarray) -> np.ndarray:
        """Compute Ḃ, (…, nv, motors), by a central difference along the one-DOF joints (a B does
        not depend on the place of the base).
        """
        step = np.zeros_like(np.asarray(q, dtype=float))
        positions, directions = (
            self.one_dof if self.one_dof is not None else (np.arange(self.nv), np.arange(self.nv))
        )
        step[..., positions] = STEP * dq[..., directions]
        rate: np.ndarray = (self.matrix_at(q + step) - self.matrix_at(q - step)) / (2.0 * STEP)
        return rate

    # -- motor torques and currents ----------------------------------------------------------------

    def joint_torque(self, motor: np.ndarray, *, q: np.ndarray | None = None) -> np.ndarray:
        """Compute u_joint = B·u_motor, (…, nv)."""
        motor = np.asarray(motor, dtype=float)
        if motor.shape[-1:] != (self.motors,):
            raise UsageError(
                f"motor torque has shape {motor.shape}; its last axis must be {self.motors}, one"
                f" per motor: {known(self.names)}"
            )
        torque: np.ndarray = (self.matrix_at(q) @ motor[..., None])[..., 0]
        return torque

    @property
    def unknown_gains(self) -> tuple[int, ...]:
        """Motors whose gain is not known; all of them where no gains were given."""
        gains = self.gains or (None,) * self.motors
        return tuple(k for k, gain in enumerate(gains) if gain is None)

    def joint_torque_of_current(
        self, current: np.ndarray, *, q: np.ndarray | None = None
    ) -> np.ndarray:
        """Compute u_joint = B·diag(gain)·current, (…, nv); every gain must be known."""
        if self.unknown_gains:
            raise NotIdentifiable(
                f"the gain of motor {self.names[self.unknown_gains[0]]!r} is not known, so its"
                " current [A] is no torque; give it in with_actuation(gains=...), or identify it"
                " with `gain_columns` where a known payload, mass or gain fixes the scale"
            )
        return self.joint_torque(np.asarray(current, dtype=float) * np.array(self.gains), q=q)

    def gain_columns(
        self, current: np.ndarray, *, q: np.ndarray | None = None, fixed: Iterable[str] = ()
    ) -> GainColumns:
        """Compute regressor columns of the unknown gains: [Y | −B_u·diag(i_u)]·[x; gain_u] =
        B_k·diag(gain_k)·i_k.

        fixed: names of columns whose value is known and not zero (a payload's mass), which move to
        the right-hand side. Refused where nothing fixes the scale.
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
        return GainColumns(columns, tuple(f"gain_{self.names[k]}" for k in unknown), torque)


def _gain(name: str, gain: float | None) -> float | None:
    if gain is not None and not LEAST_GAIN <= abs(gain) <= MOST_GAIN:  # NaN fails this, too
        raise UsageError(
            f"the gain of motor {name!r} is {gain}; give a number from {LEAST_GAIN:g} to"
            f" {MOST_GAIN:g} [N·m/A], of either sign, or None where it is unknown"
        )
    return None if gain is None else float(gain)


def _row(rate: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Bᵀ·rate for every sample."""
    row: np.ndarray = (rate[..., None, :] @ B)[..., 0, :]
    return row
