"""What every controller promises: a command that is always finite and inside the limits, whatever
is measured.

A controller is called as (t, measured q, measured q̇, wanted (q, q̇, q̈)) and returns joint torques
(nv,) [N·m or N]. Where an input is not finite, or the torque overflows, `fault` says so in words
and the command is that of the streams' rule:

    1–19 calls in a row   hold: the last command again (zero before there was one)
    from the 20th on      `halt()`: the torque that holds the robot still where it was last seen
                          (zero where no model says)

An array of another size is refused, at any time: it comes from another robot.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np

from thetahat.errors import UsageError

Reference = tuple[np.ndarray, np.ndarray, np.ndarray]
Controller = Callable[[float, np.ndarray, np.ndarray, Reference], np.ndarray]

STOP_AFTER = 20  # unusable samples in a row: those before are bridged by holding the last command
_DOUBLE = np.dtype(np.float64)
_NAMES = ("q", "dq", "wanted q", "wanted dq", "wanted ddq")


class JointController(ABC):
    """A controller of one-DOF joints. `saturated` (nv,) says which joints the last command cut,
    `fault` why it was not computed ("" if it was).
    """

    def __init__(self, names: tuple[str, ...], limits: np.ndarray | None) -> None:
        n = len(names)
        self.joint_names, self.limits = names, limits
        self.saturated = np.zeros(n, dtype=bool)
        self.fault = ""
        self.faults = 0  # unusable samples so far
        self._row = 0  # of them in a row, until now
        self._shape = (n,)
        self._lower = None if limits is None else -limits
        self._last = np.zeros(n)

    @abstractmethod
    def _torque(self, t: float, q: np.ndarray, dq: np.ndarray, wanted: Reference) -> np.ndarray:
        """The torque before limits, (nv,), in memory of the controller's own; NaN or inf where an
        input is.
        """

    def __call__(self, t: float, q: np.ndarray, dq: np.ndarray, wanted: Reference) -> np.ndarray:
        """The joint torques, (nv,) [N·m or N]."""
        q_d, dq_d, ddq_d = wanted
        try:
            right = (
                q.shape == dq.shape == q_d.shape == dq_d.shape == ddq_d.shape == self._shape
                and q.dtype is dq.dtype is q_d.dtype is dq_d.dtype is ddq_d.dtype is _DOUBLE
            )
        except AttributeError:
            right = False
        if not right:
            q, dq, q_d, dq_d, ddq_d = self._checked(q, dq, q_d, dq_d, ddq_d)
            wanted = (q_d, dq_d, ddq_d)
        tau = self._torque(t, q, dq, wanted)
        if not math.isfinite(sum(tau.tolist())):
            return self._unusable(q, dq, *wanted)
        if self.limits is not None and self._lower is not None:
            np.greater(np.abs(tau), self.limits, out=self.saturated)
            np.minimum(tau, self.limits, out=tau)
            np.maximum(tau, self._lower, out=tau)
        if self._row:
            self.fault, self._row = "", 0
        self._accepted(t, q)
        self._last[:] = tau
        return tau.copy()

    def halt(self) -> np.ndarray:
        """The command to stop with, (nv,): zero, for a controller without a model."""
        return np.zeros(self._shape)

    def resync(self) -> None:  # noqa: B027 — nothing to do, unless a controller integrates
        """Told by a loop that time was lost; what integrates over time must not integrate over the
        gap.
        """

    def take_over(self, other: JointController, command: np.ndarray) -> None:
        """Go on where another controller of the same joints stopped: its last command is held, and
        its unusable samples count on.
        """
        self._last[:] = command
        self._row, self.fault = other._row, other.fault

    def _accepted(self, t: float, q: np.ndarray) -> None:  # noqa: B027
        """Note a usable sample."""

    def _rejected(self) -> None:  # noqa: B027
        """Note an unusable one."""

    def _unusable(self, *arrays: np.ndarray) -> np.ndarray:
        self.faults, self._row = self.faults + 1, self._row + 1
        self.fault = self._reason(arrays)
        self.saturated[:] = False
        self._rejected()
        return self._last.copy() if self._row < STOP_AFTER else self.halt()

    def _reason(self, arrays: tuple[np.ndarray, ...]) -> str:
        for name, array in zip(_NAMES, arrays, strict=True):
            bad = np.flatnonzero(~np.isfinite(np.asarray(array, dtype=float)))
            if len(bad):
                return f"{name} of joint {self.joint_names[bad[0]]!r} is {array[bad[0]]}"
        return "the torque overflows: q, dq or the wanted motion is out of any joint's range"

    def _checked(self, *arrays: np.ndarray) -> list[np.ndarray]:
        """The five inputs as doubles of the right size."""
        out = []
        for name, value in zip(_NAMES, arrays, strict=True):
            try:
                if np.iscomplexobj(value):
                    raise TypeError
                array = np.array(value, dtype=float)
            except (TypeError, ValueError):
                raise UsageError(
                    f"{name} is {value!r}; give {self._shape[0]} numbers, one per joint"
                ) from None
            if array.shape != self._shape:
                raise UsageError(
                    f"{name} has shape {array.shape}; expected {self._shape}, one number per joint:"
                    f" {', '.join(self.joint_names[:12])}; a size that changes while running is"
                    " another robot's"
                )
            out.append(array)
        return out
