"""What a joint adds beside the rigid bodies: friction, offset, rotor inertia.

Each is linear in one number per degree of freedom, so each is one more regressor column:

    τ_drive = viscous·q̇ + coulomb·sign(q̇) + offset + armature·q̈
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from thetahat.errors import UsageError

TERMS = ("viscous", "coulomb", "offset", "armature")


@dataclass(frozen=True, eq=False)
class Drive:
    """Values per degree of freedom (nv,), and which of the terms are to be identified."""

    viscous: np.ndarray  # [N·m·s/rad or N·s/m]
    coulomb: np.ndarray  # [N·m or N]
    offset: np.ndarray  # [N·m or N]
    armature: np.ndarray  # [kg·m² or kg]
    identified: tuple[str, ...] = ()

    @staticmethod
    def none(nv: int) -> Drive:
        """No friction, no offset, no rotor inertia."""
        return Drive(*(np.zeros(nv) for _ in TERMS))

    def __post_init__(self) -> None:
        for term in TERMS:
            value = np.array(getattr(self, term), dtype=float)
            value.setflags(write=False)
            object.__setattr__(self, term, value)
        unknown = [term for term in self.identified if term not in TERMS]
        if unknown:
            raise UsageError(f"drive term {unknown[0]!r} is unknown; terms: {', '.join(TERMS)}")

    @property
    def is_zero(self) -> bool:
        """Whether the drive adds no torque at all."""
        return not any(np.any(getattr(self, term)) for term in TERMS)

    def torque(self, dq: np.ndarray, ddq: np.ndarray) -> np.ndarray:
        """τ_drive, same shape as dq."""
        return self.friction(dq) + self.armature * ddq

    def friction(self, dq: np.ndarray) -> np.ndarray:
        """The part that does not depend on acceleration: viscous·q̇ + coulomb·sign(q̇) + offset."""
        return self.viscous * dq + self.coulomb * np.sign(dq) + self.offset

    def with_terms(self, **terms: bool) -> Drive:
        """The same values, with other terms to be identified."""
        unknown = [term for term in terms if term not in TERMS]
        if unknown:
            raise UsageError(f"drive term {unknown[0]!r} is unknown; terms: {', '.join(TERMS)}")
        return replace(self, identified=tuple(t for t in TERMS if terms.get(t, t in self.identified)))
