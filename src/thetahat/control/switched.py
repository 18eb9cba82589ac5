"""The switch between models, without a bump: nominal until the gate is open, identified while it is, nominal at once when it closes.

Whichever model is in charge, the command is that of its controller plus an offset that dies out:

    u = u_model(t) + o,    o = u_before − u_model at the cycle of the switch,    |o_j| then falls by slew_j·dt per cycle, to zero

so the part of the torque that the switch is to blame for changes by at most slew·dt in a cycle; the rest is the motion's own torque under one
model. `max_torque_step` is the largest such change that happened, by a switch to an identified model (or from one to the next).
The model in charge is asked for anew in every cycle, so not one cycle runs on an identified model while the gate is closed.

Falling back is another matter: the gate closes because something is wrong, and safety goes before smoothness. By default (`fallback="step"`) the
nominal controller's own torque is there within that one cycle, offset and all gone; `fallback_step` is the largest jump this made.
`fallback="slew"` also changes the model within the cycle, but lets the difference die out at the slew rate: for harmless reasons.

A person may force the nominal model (`forced`), whatever the gate says; the gate goes on judging, and when the force is lifted the switch to the
identified model is bumpless as ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from thetahat.control.controller import Controller, JointController, Reference
from thetahat.control.limits import PerJoint, per_joint
from thetahat.errors import ThetahatError, UsageError
from thetahat.model.robot import Robot

LONGEST = 0.1  # [s] of a cycle, as far as the slew is concerned: a stall buys no jump
FALLBACKS = ("step", "slew")


class Gate(Protocol):
    """Whether an identified model may be used."""

    open: bool


class ModelSource(Protocol):
    """What an online identifier shows: its gate, and the robot a controller may use right now."""

    @property
    def robot(self) -> Robot: ...  # noqa: D102

    @property
    def gate(self) -> Gate: ...  # noqa: D102


class Switched:
    """A controller made by `factory` for whatever `source.robot` is right now.

    Args:
        source: has `.robot` and `.gate.open`, as an `OnlineIdentifier`.
        factory: Robot → controller, for example ``lambda robot: ComputedTorque(robot, kp=400.0, kd=40.0)``.
        slew: [N·m/s or N/s], one number or one per joint.
        nominal: the robot to fall back to; by default what `source.robot` is now, while the gate is closed.
        fallback: "step" or "slew", see above.

    """

    def __init__(
        self,
        source: ModelSource,
        factory: Callable[[Robot], Controller],
        *,
        slew: PerJoint = 50.0,
        nominal: Robot | None = None,
        fallback: str = "step",
    ) -> None:
        if fallback not in FALLBACKS:
            raise UsageError(f"fallback is {fallback!r}; choose one of {', '.join(FALLBACKS)}")
        if nominal is None:
            if source.gate.open:
                raise UsageError("the gate is open already, so the robot in use is not the nominal one; hand it in as nominal")
            nominal = source.robot
        self.nominal, self._source, self._factory, self._fallback = nominal, source, factory, fallback
        self.slew = per_joint("slew", slew, nominal.nv)
        self._safe: Any = factory(nominal)  # made before it is needed
        self._robot, self._controller = nominal, self._safe
        self._offset = np.zeros(nominal.nv)
        self._t = np.nan
        self._lost_time = False
        self._last = np.zeros(nominal.nv)
        self._candidate: tuple[Robot, Any] | None = None  # made, and waiting for a usable sample
        self._declined: Robot | None = None
        self.forced = False  # set it to run on the nominal model even while the gate is open
        self.declined = ""  # why the last identified model was not taken, "" if it was
        self.max_torque_step = 0.0  # [N·m or N] in one cycle, by switches to identified models
        self.fallback_step = 0.0  # [N·m or N] in one cycle, by falling back
        self.switches = self.fallbacks = 0

    @property
    def robot(self) -> Robot:
        """The model in charge."""
        return self._robot

    @property
    def identified(self) -> bool:
        """Whether the last command came from an identified model."""
        return self._controller is not self._safe

    @property
    def blending(self) -> bool:
        """Whether a switch has not died out yet."""
        return bool(self._offset.any())

    @property
    def fault(self) -> str:
        """Why the last command was not computed, as the controller in charge says it; "" if it was."""
        return getattr(self._controller, "fault", "")

    @property
    def limits(self) -> np.ndarray | None:
        """Those of the controller in charge."""
        return getattr(self._controller, "limits", None)

    def resync(self) -> None:
        """Told by a loop that time was lost: the next cycle runs on the nominal model."""
        self._lost_time = True
        for controller in (self._safe, self._controller):
            getattr(controller, "resync", _nothing)()

    def halt(self) -> np.ndarray:
        """The nominal controller's, (nv,): the torque that holds the robot still where it was last seen."""
        self._hand_over(self._safe)
        stop = getattr(self._safe, "halt", None)
        return np.zeros(self.nominal.nv) if stop is None else stop()

    def __call__(self, t: float, q: np.ndarray, dq: np.ndarray, wanted: Reference) -> np.ndarray:
        """The joint torques, (nv,)."""
        dt = t - self._t
        dt = min(dt, LONGEST) if dt > 0.0 else 0.0  # NaN, or a clock that jumped back: no time has passed
        if t == t:
            self._t = t
        robot, chosen = self._choose()
        if chosen is self._controller:
            tau = self._go_on(dt, t, q, dq, wanted)
        elif chosen is self._safe:
            tau = self._fall_back(t, q, dq, wanted)
        else:
            tau = self._move_on(robot, chosen, dt, t, q, dq, wanted)
        self._last[:] = tau
        return tau

    def _choose(self) -> tuple[Robot, Any]:
        """The controller for this cycle; a model that no controller can be made of is declined once, and the nominal one is used."""
        robot = self._source.robot
        if self.forced or self._lost_time or not self._source.gate.open or robot is self.nominal or robot is self._declined:
            self._lost_time = False
            return self.nominal, self._safe
        if robot is self._robot:
            return robot, self._controller
        if self._candidate is None or self._candidate[0] is not robot:
            try:
                self._candidate = (robot, self._factory(robot))
            except ThetahatError as error:
                self._declined, self.declined = robot, str(error)
                return self.nominal, self._safe
        return self._candidate

    def _go_on(self, dt: float, t: float, q: np.ndarray, dq: np.ndarray, wanted: Reference) -> np.ndarray:
        tau = self._controller(t, q, dq, wanted)
        before = self._offset
        if not before.any():
            return tau
        self._offset = np.sign(before) * np.maximum(np.abs(before) - self.slew * dt, 0.0)
        self.max_torque_step = max(self.max_torque_step, float(np.max(np.abs(before - self._offset))))
        return self._cut(tau + self._offset)

    def _move_on(self, robot: Robot, chosen: Any, dt: float, t: float, q: np.ndarray, dq: np.ndarray, wanted: Reference) -> np.ndarray:
        """Change to an identified model: what the old one would have commanded is commanded, and from now on the difference dies out."""
        before = self._go_on(dt, t, q, dq, wanted)
        if self.fault:  # the sample is unusable, so there is no difference to speak of: switch with the next one
            return before
        self._hand_over(chosen)
        tau = chosen(t, q, dq, wanted)
        self._controller, self._robot, self._candidate, self._declined, self.declined = chosen, robot, None, None, ""
        self._offset = before - tau
        self.switches += 1
        return self._cut(before)

    def _fall_back(self, t: float, q: np.ndarray, dq: np.ndarray, wanted: Reference) -> np.ndarray:
        """Change to the nominal model, in this cycle."""
        before = self._cut(self._controller(t, q, dq, wanted) + self._offset)  # what would have been commanded
        self._hand_over(self._safe)
        tau = self._safe(t, q, dq, wanted)
        self._controller, self._robot = self._safe, self.nominal
        self.fallbacks += 1
        if self._fallback == "slew":
            self._offset = before - tau
            return self._cut(before)
        self._offset = np.zeros_like(tau)
        self.fallback_step = max(self.fallback_step, float(np.max(np.abs(tau - before))))
        return tau

    def _hand_over(self, to: Any) -> None:
        """Tell a controller what was commanded last, for samples it cannot use."""
        if to is not self._controller and isinstance(to, JointController) and isinstance(self._controller, JointController):
            to.take_over(self._controller, self._last)

    def _cut(self, tau: np.ndarray) -> np.ndarray:
        limits = self.limits
        return tau if limits is None else np.clip(tau, -limits, limits)


def _nothing() -> None:
    """For controllers that have nothing to do."""
