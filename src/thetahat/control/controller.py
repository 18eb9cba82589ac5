"""What every controller promises: a command that is always finite and inside the limits, whatever
is measured.

A controller is called as (t, measured q, measured q̇, wanted (q, q̇, q̈)) and returns joint torques
(nv,) [N·m or N]. A sample that cannot be (`SampleGuard`), that somebody turned away (`turn_away`),
or whose torque overflows never reaches the robot through the control law; `fault` says why, and the
command is

    for 20 ms               hold: the last command again (zero before there was one)
    over the next 100 ms    a straight fade from it to the fallback
    after that              the fallback: gravity compensation of the controller's model where the
                            robot was last believed to be, with damping of the speed it had then
                            (zero where there is no model)

Without a clock that advances, the first 19 such samples in a row are held, and the 20th is the
fallback. When samples can be used again the command goes from the last one to the law's within as
long as it had faded. An array of another size is refused, at any time: it comes from another robot.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np

from thetahat.control.sample_guard import SampleGuard
from thetahat.dynamics import batch
from thetahat.errors import UsageError

Reference = tuple[np.ndarray, np.ndarray, np.ndarray]
Controller = Callable[[float, np.ndarray, np.ndarray, Reference], np.ndarray]

STOP_AFTER = 20  # unusable samples in a row: those before are bridged by holding the last command
HOLD, FADE = 0.02, 0.1  # [s] the last command is held, and faded to the fallback
_DOUBLE = np.dtype(np.float64)
_NAMES = ("q", "dq", "wanted q", "wanted dq", "wanted ddq")


class JointController(ABC):
    """A controller of one-DOF joints. `saturated` (nv,) says which joints the last command cut,
    `fault` why it was not computed ("" if it was).
    """

    def __init__(
        self, names: tuple[str, ...], limits: np.ndarray | None, speed: np.ndarray | None = None
    ) -> None:
        n = len(names)
        self.joint_names = names
        self._set_limits(limits)
        self.notes: tuple[str, ...] = ()  # what was assumed, as sentences
        self.saturated = np.zeros(n, dtype=bool)
        self.fault = ""
        self.faults = 0  # unusable samples so far
        self._row = 0  # of them in a row, until now
        self._since = np.nan  # [s] of the first of them
        self._shape = (n,)
        self._last = np.zeros(n)
        self._held = np.zeros(n)  # the command that is faded from
        self._faded = 0.0  # share of the fallback in the last command
        self._back = np.nan  # [s] since when samples are usable again, while that fades in
        self._stand_in: JointController | None = None  # whose fallback is used
        self._guard = SampleGuard(names, np.full(n, np.inf) if speed is None else speed)

        self._bounded = batch.kernels().sample_check.bounded
        self._bounded(self._last.copy(), self._upper, self.saturated)  # compiles it now

    def _set_limits(self, limits: np.ndarray | None) -> None:
        self.limits = limits
        self._upper = np.full(len(self.joint_names), np.inf) if limits is None else limits

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
        doubt = self._guard.doubt(t, q, dq)
        if doubt:
            return self.turn_away(t, doubt)
        tau = self._torque(t, q, dq, wanted)
        if self._faded:
            tau = self._fade_in(t, tau)
        if not self._bounded(tau, self._upper, self.saturated):
            return self.turn_away(t, self._reason((q, dq, *wanted)))
        if self._row:
            self.fault, self._row = "", 0
        self._accepted(t, q)
        self._last[:] = tau
        return tau.copy()

    def turn_away(self, t: float, reason: str) -> np.ndarray:
        """The command of a cycle whose sample must not be used, (nv,): see above."""
        if not self._row:
            self._since, self._held[:] = t, self._last
        self.faults, self._row = self.faults + 1, self._row + 1
        self.fault, self._back = reason, np.nan
        self.saturated[:] = False
        self._rejected()
        age = t - self._since
        if age > 0.0:
            share = min(max((age - HOLD) / FADE, 0.0), 1.0)
        else:
            age, share = np.inf, float(self._row >= STOP_AFTER)
        if share == 0.0:
            return self._last.copy()
        safe = self._stand_in
        if safe is not None:
            safe._guard.adopt(self._guard)
        tau = (1.0 - share) * self._held + share * (safe or self)._fallback(age)
        tau = np.clip(tau, -self._upper, self._upper)
        self._faded = share if age < np.inf else 0.0  # without a clock there is no way to fade back
        self._last[:] = tau
        return tau

    def halt(self) -> np.ndarray:
        """The command to stop with, (nv,): zero, for a controller without a model."""
        return np.zeros(self._shape)

    def resync(self) -> None:  # noqa: B027 — nothing to do, unless a controller integrates
        """Told by a loop that time was lost; what integrates over time must not integrate over the
        gap.
        """

    def take_over(self, other: JointController, command: np.ndarray) -> None:
        """Go on where another controller of the same joints stopped: its last command is held, its
        unusable samples count on, and what it believed is believed.
        """
        self._last[:], self._held[:] = command, other._held
        self._row, self.fault, self._since = other._row, other.fault, other._since
        self._faded, self._back = other._faded, other._back
        self._guard.adopt(other._guard)

    def fall_back_to(self, nominal: JointController) -> None:
        """Let another controller of the same joints say what an unusable sample's command fades to:
        that of the nominal model.
        """
        self._stand_in = nominal

    def note_command(self, tau: np.ndarray) -> None:
        """Note that this was commanded, (nv,), in place of what was returned last."""
        self._last[:] = tau

    def _fallback(self, age: float) -> np.ndarray:
        """What an unusable sample's command fades to, (nv,); age: [s] since the first of them."""
        return self.halt()

    def _fade_in(self, t: float, tau: np.ndarray) -> np.ndarray:
        """The law's torque, weighted with what was commanded while samples could not be used."""
        if self._back != self._back:
            self._back, self._held[:] = t, self._last
        past = t - self._back
        share = self._faded - (past / FADE if past >= 0.0 else 1.0)
        if share <= 0.0 or share != share:
            self._faded, self._back = 0.0, np.nan
            return tau
        with np.errstate(all="ignore"):  # what is not finite is turned away
            return np.asarray((1.0 - share) * tau + share * self._held)

    def _accepted(self, t: float, q: np.ndarray) -> None:  # noqa: B027
        """Note a usable sample."""

    def _rejected(self) -> None:  # noqa: B027
        """Note an unusable one."""

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
