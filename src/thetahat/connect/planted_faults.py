"""Faults of a simulated robot: a joint that is blocked, an encoder that freezes, samples that stay
away, a motor that gets hot.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thetahat.errors import UsageError, is_number, known

KINDS = ("blocked", "frozen", "silent", "hot")
SILENCE = 0.2  # [s] without samples
WARM, HEATING = 35.0, 40.0  # [°C] of all motors; [°C/s] of the one that gets hot


@dataclass(frozen=True)
class PlantedFault:
    """What goes wrong, where, and when."""

    kind: str  # one of KINDS
    time: float  # [s] after the first command
    joint: str = ""  # of all kinds but silent
    seconds: float = SILENCE  # of silence

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"fault is {self.kind!r}; faults: {known(KINDS)}")
        if not (is_number(self.time) and self.time >= 0.0):
            raise UsageError(f"the fault begins at {self.time!r} s; give a number from 0")

    @staticmethod
    def parse(text: str, joints: tuple[str, ...]) -> PlantedFault:
        """Read KIND:JOINT@SECONDS, or silent@SECONDS."""
        what, at, when = text.rpartition("@")
        kind, _, joint = what.partition(":")
        wanted = "give blocked:JOINT@S, frozen:JOINT@S, hot:JOINT@S or silent@S"
        try:
            time = float(when) if at else -1.0
        except ValueError:
            time = -1.0
        if kind not in KINDS or not time >= 0.0 or (kind == "silent") != (joint == ""):
            raise UsageError(f"--fault is {text!r}; {wanted}")
        if joint and joint not in joints:
            raise UsageError(
                f"--fault names joint {joint!r}, which the robot does not have; it has:"
                f" {known(joints)}"
            )
        return PlantedFault(kind, time, joint)

    def begun(self, t: float) -> bool:
        """Whether it is there at t [s]."""
        return t >= self.time

    def is_silent(self, t: float) -> bool:
        """Whether samples stay away at t [s]."""
        return self.kind == "silent" and self.time <= t < self.time + self.seconds

    def temperatures(self, joints: tuple[str, ...], t: float) -> np.ndarray:
        """(n,) [°C] of the motors at t [s]."""
        out = np.full(len(joints), WARM)
        if self.kind == "hot" and self.begun(t):
            out[joints.index(self.joint)] += HEATING * (t - self.time)
        return out
