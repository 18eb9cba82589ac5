"""Friction and spring terms of a motor, and the direction of its dry friction.

A `DriveTerm` is one column: torque per unit of its parameter. Those of dry friction act `along` the
motion and are multiplied by its direction d,

    d = sign(q̇_m)                                  a law without a scale
    d = tanh(q̇_m/zone)                             a zone of speed around zero
    ∂d/∂q_m = (1 − d·sign(q̇_m))/travel             hysteresis over a distance [Dahl1976]

`FrictionDirection` holds zone and travel of every motor; both zero is the sign.

A term that acts along the motion is never negative per unit of its parameter, so that with a
parameter from zero it takes power at every speed and under every load. Of the others, viscous and
quadratic friction do the same, and direction-dependent viscous friction does as long as it is no
larger than viscous friction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from thetahat.errors import MalformedInput, UsageError

Column = Callable[[np.ndarray, np.ndarray, np.ndarray | None], np.ndarray]


@dataclass(frozen=True)
class DriveTerm:
    """One drive column: torque per unit parameter from motor speed, acceleration and load."""

    term: str
    # (q̇_m, q̈_m, load_m), each (…, motors) → (…, motors); q_m in place of q̇_m where `of_position`
    column: Column
    # of the parameter, on a motor that turns and on one that slides
    units: tuple[str, str] = ("N·m", "N")
    # whether it reads the load, the motor torque that carries the rigid bodies
    needs_load: bool = False
    along: bool = False  # whether the direction of motion multiplies it: dry friction
    of_position: bool = False  # whether it reads the motor's position in place of its speed
    # numbers its column depends on, by motor: what a file keeps of it
    settings: tuple[tuple[str, tuple[float, ...]], ...] = ()


STANDARD_TERMS = {
    "viscous": DriveTerm("viscous", lambda dq, ddq, load: dq, ("N·m·s/rad", "N·s/m")),
    "coulomb": DriveTerm("coulomb", lambda dq, ddq, load: np.ones_like(dq), along=True),
    "offset": DriveTerm("offset", lambda dq, ddq, load: np.ones_like(dq)),
    "armature": DriveTerm("armature", lambda dq, ddq, load: ddq, ("kg·m²", "kg")),
}


LOAD_UNITS = ("N·m/(N·m)", "N/N")
# -- further shapes --------------------------------------------------------------------------------


def stribeck(speed: np.ndarray | float) -> DriveTerm:
    """Stribeck friction d·exp(−(q̇/speed)²), on top of Coulomb friction at low speed; speed 0:
    none.
    """
    speed = np.atleast_1d(np.asarray(speed, dtype=float))
    has = speed > 0.0
    scale = np.where(has, speed, 1.0)
    return DriveTerm(
        "stribeck",
        lambda dq, ddq, load: np.where(has, np.exp(-((dq / scale) ** 2)), 0.0),
        along=True,
        settings=(("speed", tuple(speed.tolist())),),
    )


def by_load(share: np.ndarray | float = 1.0) -> DriveTerm:
    """Load-dependent friction d·|load| of gears. share: 1 for a motor that has it, else 0."""
    return _of_load("load", lambda dq, load: np.abs(load), share, LOAD_UNITS)


def by_load_driving(share: np.ndarray | float = 1.0) -> DriveTerm:
    """Load-dependent friction of a motor that drives its load, d·|load| where load and speed have
    one sign: gears lose more one way than the other.
    """
    return _of_load("load_driving", lambda dq, load: _along(load, dq), share, LOAD_UNITS)


def by_load_driven(share: np.ndarray | float = 1.0) -> DriveTerm:
    """Load-dependent friction of a motor that its load drives, d·|load| where load and speed have
    opposite signs.
    """
    return _of_load("load_driven", lambda dq, load: _along(load, -dq), share, LOAD_UNITS)


def by_load_squared(share: np.ndarray | float = 1.0) -> DriveTerm:
    """Friction that grows with the square of the load, d·load².

    A motor that its load drives jams where its torque times the parameter exceeds a quarter.
    """
    return _of_load("load_squared", lambda dq, load: load**2, share, ("1/(N·m)", "1/N"))


def by_load_stribeck(speed: np.ndarray | float) -> DriveTerm:
    """Load-dependent friction at low speed, d·|load|·exp(−(q̇/speed)²); speed 0: none."""
    speed = np.atleast_1d(np.asarray(speed, dtype=float))
    has = speed > 0.0
    scale = np.where(has, speed, 1.0)

    def shape(dq: np.ndarray, load: np.ndarray) -> np.ndarray:
        friction: np.ndarray = np.where(has, np.abs(load) * np.exp(-((dq / scale) ** 2)), 0.0)
        return friction

    term = _of_load("load_stribeck", shape, 1.0, LOAD_UNITS)
    return replace(term, settings=(("speed", tuple(speed.tolist())),))


def _along(load: np.ndarray, dq: np.ndarray) -> np.ndarray:
    """|load| where it points along the motion, else 0."""
    out: np.ndarray = np.maximum(load * np.sign(dq), 0.0)
    return out


def _of_load(
    term: str,
    shape: Callable[[np.ndarray, np.ndarray], np.ndarray],
    share: np.ndarray | float,
    units: tuple[str, str],
) -> DriveTerm:
    share = np.atleast_1d(np.asarray(share, dtype=float))

    def column(dq: np.ndarray, ddq: np.ndarray, load: np.ndarray | None) -> np.ndarray:
        if load is None:
            raise UsageError("friction by load needs the load")
        friction: np.ndarray = share * shape(dq, load)
        return friction

    return DriveTerm(
        term,
        column,
        units,
        needs_load=True,
        along=True,
        settings=(("share", tuple(share.tolist())),),
    )


def one_sided(share: np.ndarray | float = 1.0) -> DriveTerm:
    """Direction-dependent viscous friction |q̇| (of Coulomb friction, the offset does the same)."""
    share = np.atleast_1d(np.asarray(share, dtype=float))
    return DriveTerm(
        "one_sided",
        lambda dq, ddq, load: share * np.abs(dq),
        ("N·m·s/rad", "N·s/m"),
        settings=(("share", tuple(share.tolist())),),
    )


def quadratic(share: np.ndarray | float = 1.0) -> DriveTerm:
    """Quadratic viscous friction q̇·|q̇|."""
    share = np.atleast_1d(np.asarray(share, dtype=float))
    return DriveTerm(
        "quadratic",
        lambda dq, ddq, load: share * dq * np.abs(dq),
        ("N·m·s²/rad²", "N·s²/m²"),
        settings=(("share", tuple(share.tolist())),),
    )


def spring(share: np.ndarray | float = 1.0) -> DriveTerm:
    """Stiffness of a spring at the joint, torque q; the offset holds where it is at rest."""
    return _of_position("spring", lambda q: q, share, ("N·m/rad", "N/m"))


def spring_sine(share: np.ndarray | float = 1.0) -> DriveTerm:
    """Counterbalance, torque sin q: together with the cosine, of any phase."""
    return _of_position("spring_sine", np.sin, share, ("N·m", "N"))


def spring_cosine(share: np.ndarray | float = 1.0) -> DriveTerm:
    """Counterbalance, torque cos q."""
    return _of_position("spring_cosine", np.cos, share, ("N·m", "N"))


def _of_position(
    term: str,
    shape: Callable[[np.ndarray], np.ndarray],
    share: np.ndarray | float,
    units: tuple[str, str],
) -> DriveTerm:
    share = np.atleast_1d(np.asarray(share, dtype=float))
    return DriveTerm(
        term,
        lambda q, ddq, load: share * shape(q),
        units,
        of_position=True,
        settings=(("share", tuple(share.tolist())),),
    )


KNOWN: dict[str, tuple[Callable[[Any], DriveTerm], str]] = {
    "stribeck": (stribeck, "speed"),
    "load": (by_load, "share"),
    "load_driving": (by_load_driving, "share"),
    "load_driven": (by_load_driven, "share"),
    "load_squared": (by_load_squared, "share"),
    "load_stribeck": (by_load_stribeck, "speed"),
    "one_sided": (one_sided, "share"),
    "quadratic": (quadratic, "share"),
    "spring": (spring, "share"),
    "spring_sine": (spring_sine, "share"),
    "spring_cosine": (spring_cosine, "share"),
}


def term_from_settings(
    term: str, settings: Mapping[str, Any] | None, *, motors: int, where: str
) -> DriveTerm | None:
    """Build a term from the settings in a file; None for a term that is not one of `KNOWN`."""
    if term not in KNOWN or not settings:
        return None
    make, name = KNOWN[term]
    values = settings.get(name) if isinstance(settings, Mapping) else None
    if (
        not isinstance(values, list)
        or len(values) not in (1, motors)
        or not all(type(v) in (int, float) and 0.0 <= v <= 1e30 for v in values)
    ):
        raise MalformedInput(
            f"{where}: {name} of the term {term!r} is not a list of {motors} numbers from 0, one"
            " per motor; save the robot again"
        )
    return make(np.array(values, dtype=float))


def for_motors(shape: DriveTerm, motors: Sequence[int]) -> DriveTerm:
    """Restrict a term to these motors, where it has settings per motor."""
    if shape.term not in KNOWN or not shape.settings or len(shape.settings[0][1]) == 1:
        return shape
    return KNOWN[shape.term][0](np.array(shape.settings[0][1])[list(motors)])


def expanded_to_motors(shape: DriveTerm, at: Sequence[int], motors: int) -> DriveTerm:
    """Expand a term of some motors to all; the others have none of it."""
    if shape.term not in KNOWN or not shape.settings:
        return shape
    values = np.zeros(motors)
    values[list(at)] = shape.settings[0][1]
    return KNOWN[shape.term][0](values)


# -- direction -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FrictionDirection:
    """Direction of dry friction along the motion, per motor."""

    zone: np.ndarray  # (motors,) [rad/s or m/s] of tanh(q̇/zone); 0: none
    travel: np.ndarray  # (motors,) [rad or m] of hysteresis; 0: none

    def __post_init__(self) -> None:
        zone, travel = (
            np.atleast_1d(np.array(value, dtype=float)) for value in (self.zone, self.travel)
        )
        if (
            zone.shape != travel.shape
            or zone.ndim != 1
            or not np.all((zone >= 0.0) & (travel >= 0.0) & np.isfinite(zone + travel))
        ):
            raise UsageError(
                "zone and travel of dry friction must be finite numbers from 0, one per motor each"
            )
        if np.any((zone > 0.0) & (travel > 0.0)):
            raise UsageError(
                "a motor's dry friction has a zone or a travel, not both; set one of them to 0"
            )
        for name, value in (("zone", zone), ("travel", travel)):
            value.setflags(write=False)
            object.__setattr__(self, name, value)

    @staticmethod
    def plain(motors: int) -> FrictionDirection:
        """Sign of the speed, for every motor."""
        return FrictionDirection(np.zeros(motors), np.zeros(motors))

    @property
    def motors(self) -> int:
        """How many motors it is for."""
        return len(self.zone)

    @property
    def key(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Values by which two laws compare equal."""
        return tuple(self.zone.tolist()), tuple(self.travel.tolist())

    def at(self, dq: np.ndarray) -> np.ndarray:
        """Compute d from the motor speed alone, (…, motors): without history, hysteresis is the
        sign.
        """
        scale = np.where(self.zone > 0.0, self.zone, 1.0)
        return np.where(self.zone > 0.0, np.tanh(dq / scale), np.sign(dq))

    def of(self, motors: list[int] | np.ndarray) -> FrictionDirection:
        """Restrict the law to these motors."""
        return FrictionDirection(self.zone[motors], self.travel[motors])

    def __str__(self) -> str:
        parts = [
            f"zone {z:.3g}" if z > 0.0 else f"travel {x:.3g}" if x > 0.0 else "sign"
            for z, x in zip(self.zone, self.travel, strict=True)
        ]
        return ", ".join(parts)
