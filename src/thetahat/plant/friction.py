"""Friction of a drive as the plants apply it: its formula at every speed but zero, and a range of
torques that hold at zero.

    τ = B f,   q̇_m = Bᵀq̇
    f = viscous·q̇_m + sign(q̇_m)·(coulomb + stribeck·exp(−(q̇_m/speed)²) + by load) + offset

The sign is not read off the speed but handed in: a motor slides one way or the other, or holds.
While it slides the formula is smooth, so that an integrator of high order keeps its order; while it
holds, f is whatever keeps it still within [f(0−), f(0+)].

Friction by load reads the torque that moves the rigid bodies, which depends on friction in its
turn: load = τ − B f − rotors·q̈ − springs. The stepper solves that by iteration; a motor must lose
less than its load.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from thetahat.errors import UsageError
from thetahat.model.drive import Drive
from thetahat.model.friction_terms import stribeck
from thetahat.model.robot import Robot

STRIBECK = "stribeck"
BARELY = 1e-9  # [rad/s or m/s] "just above zero" for shapes known only as functions
STEEPEST = math.sqrt(2.0 / math.e)  # the steepest slope of exp(−x²)


def with_stribeck(drive: Drive, value: np.ndarray, speed: np.ndarray) -> Drive:
    """The drive with Stribeck friction (breakaway minus Coulomb), not to be identified unless asked
    for.
    """
    return replace(drive.with_extra_term(stribeck(speed), value), identified=drive.identified)


class Friction:
    """What the motors of one robot resist with."""

    def __init__(
        self, robot: Robot, *, stribeck: np.ndarray | None = None, speed: np.ndarray | None = None
    ) -> None:
        drive = robot.drive
        if drive.actuation is not None and not drive.actuation.constant:
            raise UsageError(
                f"the actuation map of {robot.name!r} depends on q; plants take a constant one: use"
                " robot.with_actuation(matrix) or without_drive()"
            )
        self.B = None if drive.actuation is None else np.array(drive.actuation.B)
        self.names = robot.velocity_names if drive.actuation is None else drive.actuation.names
        self.viscous, self.coulomb, self.offset = (
            np.array(drive.value(term)) for term in ("viscous", "coulomb", "offset")
        )
        self.stribeck, self.speed = stribeck, speed
        known = stribeck is not None
        extra = [
            (shape, np.array(value))
            for shape, value in drive.extra
            if np.any(value)
            and not shape.of_position  # springs are the engine's: physics_engine.py
            and not (known and shape.term == STRIBECK)
        ]
        self._extra = [term for term in extra if not term[0].needs_load]
        self._by_load = [term for term in extra if term[0].needs_load]
        self.by_load = bool(self._by_load)  # whether friction reads the load
        self._drive, self._rotors = drive, drive.joint_armature()
        self._check()
        # f that holds a motor still, without load
        self.low, self.high = self.holding()
        self.dry = self.high > self.low  # motors that can hold at all
        for _, value in self._by_load:
            self.dry = self.dry | (value > 0.0)
        self.any_dry = bool(np.any(self.dry))
        self.none = not (self.any_dry or np.any(self.viscous) or np.any(self.offset) or self._extra)

    def _check(self) -> None:
        for term, values in (
            ("viscous", self.viscous),
            ("coulomb", self.coulomb),
            (STRIBECK, self.stribeck),
        ):
            if values is not None and np.any(values < 0.0):
                k = int(np.argmin(values))
                raise UsageError(
                    f"{term} friction of {self.names[k]!r} is {values[k]:.4g}; friction that drives"
                    " has no place in a plant: give ≥ 0"
                )
        one = np.ones(len(self.names))
        for shape, value in (*self._extra, *self._by_load):
            if not np.array_equal(shape.column(one, one, one), shape.column(one, 0.0 * one, one)):
                raise UsageError(
                    f"drive term {shape.term!r} depends on acceleration; plants take friction that"
                    " depends on speed and load alone"
                )
            if shape.along and np.any(value < 0.0):
                k = int(np.argmin(value))
                raise UsageError(
                    f"{shape.term} friction of {self.names[k]!r} is {value[k]:.4g}; friction that"
                    " drives has no place in a plant: give ≥ 0"
                )
        lost = np.zeros(len(self.names))
        for shape, value in self._by_load:
            lost += value if shape.term != "load_squared" else 0.0
        if np.any(lost >= 1.0):
            k = int(np.argmax(lost))
            raise UsageError(
                f"friction by load of {self.names[k]!r} takes {lost[k]:.3g} of its load; give less"
                " than 1, or nothing would move"
            )

    def motor_speed(self, dq: np.ndarray) -> np.ndarray:
        """q̇_m = Bᵀq̇."""
        return dq if self.B is None else dq @ self.B

    def holding(self, load: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The range of f that holds a motor still, (motors,) each, under a load at the motors."""
        still = np.zeros(len(self.names))
        up, down = self.torque(still, still + 1.0, load), self.torque(still, still - 1.0, load)
        return np.minimum(up, down), np.maximum(up, down)

    def load(self, q: np.ndarray, tau: np.ndarray, taken: np.ndarray, a: np.ndarray) -> np.ndarray:
        """The torque at the motors that moves the rigid bodies, (motors,), of what friction takes
        from the joints and the acceleration.
        """
        left = tau - taken - self._rotors @ a
        if self._drive.has_springs:
            left = left - self._drive.spring_torque(q)
        at_motors: np.ndarray = left if self.B is None else np.linalg.pinv(self.B) @ left
        return at_motors

    def torque(
        self, speed: np.ndarray, sign: np.ndarray, load: np.ndarray | None = None
    ) -> np.ndarray:
        """f, (motors,), of motors that slide the way `sign` says (0: a motor that holds, and is
        left out), without friction by load where no load is given.
        """
        if self.stribeck is None:
            f: np.ndarray = self.viscous * speed + self.coulomb * sign + self.offset
        else:
            f = (
                self.viscous * speed
                + (self.coulomb + self.stribeck * np.exp(-((speed / self.speed) ** 2))) * sign
                + self.offset
            )
        if self._extra or (self._by_load and load is not None):
            at = np.where(speed * sign > BARELY, speed, np.where(sign == 0.0, speed, sign * BARELY))
            for shape, value in self._extra:
                f = f + value * shape.column(at, 0.0 * at, None) * (sign if shape.along else 1.0)
            for shape, value in self._by_load if load is not None else ():
                f = f + value * shape.column(at, 0.0 * at, load) * sign
        return f

    def joint_torque(
        self, dq: np.ndarray, sign: np.ndarray, load: np.ndarray | None = None
    ) -> np.ndarray:
        """B·f, (nv,)."""
        f = self.torque(self.motor_speed(dq), sign, load)
        return f if self.B is None else self.B @ f

    def constants(self) -> dict[str, np.ndarray] | None:
        """The numbers of its formula and of what holds, each (motors,), where that formula is all
        there is and every joint has its own motor; else none.
        """
        if self.B is not None or self._extra or self._by_load:
            return None
        none = np.zeros(len(self.names))
        return {
            "viscous": self.viscous,
            "coulomb": self.coulomb,
            "offset": self.offset,
            "stribeck": none if self.stribeck is None else self.stribeck,
            "speed": none + 1.0 if self.speed is None else self.speed,
            "low": self.low,
            "high": self.high,
            "dry": self.dry.astype(float),
        }

    def steepness(self) -> np.ndarray:
        """∂f/∂q̇_m at its largest, (motors,) [N·m·s/rad or N·s/m]: how stiff friction makes the
        equation of motion.
        """
        slope = self.viscous.copy()
        if self.stribeck is not None and self.speed is not None:
            slope += STEEPEST * self.stribeck / self.speed
        return slope
