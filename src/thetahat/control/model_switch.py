"""The switch between models, without a bump: nominal until the gate is open, identified while it
is, nominal at once when it closes.

Whichever model is in charge, the command is that of its controller plus an offset that dies out:

    u = u_model(t) + o
    o = u_before − u_model at the cycle of the switch
    |o_j| then falls by slew_j·dt per cycle, to zero

so the part of the torque that the switch is to blame for changes by at most slew·dt in a cycle; the
rest is the motion's own torque under one model. `max_torque_step` is the largest such change that
happened, measured on what was commanded (`TorqueSteps`). The model in charge is asked for anew
in every cycle, so not one cycle runs on an identified model while the gate is closed.

An offset is only as good as the sample it is taken from, so nothing is switched to an identified
model in a cycle whose sample the identifier rejected or took for a step, in which either command
was cut by a limit, or in which the torque leaps; `waiting` says why. The next cycle is another
chance.

What the switch knows of samples, gate and models it reads from one object: the identifier's
`SampleVerdict`.

Falling back is another matter: the gate closes because something is wrong, and safety goes before
smoothness. By default (`fallback="step"`) the nominal controller's own torque is there within that
one cycle, offset and all gone; `fallback_step` is the largest jump this made. `fallback="slew"`
also changes the model within the cycle, but lets the difference die out at the slew rate: for
harmless reasons.

A sample that is no measurement (not finite), or that no joint can have, reaches no control law:
the last command is held, then faded to the nominal model's gravity compensation with damping
(`controller.py`), whichever model is in charge. Hand a sample to the identifier before the
controller is called with it, both with the sample's own time, so that the verdict is about this
sample; where the times are of different clocks, call `turn_away` instead.

Feedback is not the model's to change. Computed torque multiplies kd ė + kp e by the model's mass
matrix, and slow motion tells a light joint's inertia badly: a UR5e's last wrist (1e-4 kg·m²) was
identified as anything between 0 and ten times that, from torques that friction makes up, and went
slack or stiff with it. So by default (`feedback="nominal"`) an identified model takes over what its
torques show, D q̈_d + C q̇ + G and friction, while gains and the mass matrix of feedback stay those
of the nominal controller, which held the robot before.

What was commanded is handed to the identifier with every sample, which compares it with what was
measured (`signal_check.py`); a switch whose commands drive no robot, beside another controller or
on a recorded stream, is made with `applied=False`.

A person may force the nominal model (`forced`), whatever the gate says; the gate goes on judging,
and when the force is lifted the switch to the identified model is bumpless as ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from thetahat.control.computed_torque import ComputedTorque
from thetahat.control.controller import Controller, JointController, Reference
from thetahat.control.torque_limits import PerJoint, per_joint, usual_torques
from thetahat.errors import ThetahatError, UsageError
from thetahat.model.robot import Robot
from thetahat.online.sample_verdict import SampleVerdict

BLEND = 0.5  # [s] over which a joint's usual torque may change by a switch
LONGEST = 0.1  # [s] of a cycle, as far as the slew is concerned: a stall buys no jump
# [s] of slewing: a torque that leaps by more in a cycle, and an offset that takes longer, are put
# off; less so while waiting
LEAP, LONG = 0.1, 5.0
FALLBACKS = ("step", "slew")
FEEDBACKS = ("nominal", "model")


class ModelSource(Protocol):
    """What gives verdicts on samples: an `OnlineIdentifier`."""

    @property
    def verdict(self) -> SampleVerdict:
        """On the last sample: accepted or not, the gate, and the robot that may be used."""


class ModelSwitch:
    """A controller made by `factory` for whatever robot the last verdict allows.

    Args:
        source: gives the verdicts, as an `OnlineIdentifier` does.
        factory: Robot → controller, for example ``lambda robot: ComputedTorque(robot, kp=400.0,
            kd=40.0)``.
        slew: [N·m/s or N/s], one number or one per joint; None: what changes a joint's usual torque
            (`usual_torques`) in half a second.
        nominal: the robot to fall back to; by default the one the verdict allows now, while the
            gate is closed.
        fallback: "step" or "slew", see above.
        feedback: "nominal": computed torque keeps the nominal controller's gains and mass matrix
            for its feedback, see below; "model": both are those of the model in charge.
        applied: whether its commands drive the robot that is measured.

    """

    def __init__(
        self,
        source: ModelSource,
        factory: Callable[[Robot], Controller],
        *,
        slew: PerJoint | None = None,
        nominal: Robot | None = None,
        fallback: str = "step",
        feedback: str = "nominal",
        applied: bool = True,
    ) -> None:
        if fallback not in FALLBACKS:
            raise UsageError(f"fallback is {fallback!r}; choose one of {', '.join(FALLBACKS)}")
        if feedback not in FEEDBACKS:
            raise UsageError(f"feedback is {feedback!r}; choose one of {', '.join(FEEDBACKS)}")
        if nominal is None:
            if source.verdict.gate.open:
                raise UsageError(
                    "the gate is open already, so the robot in use is not the nominal one; hand it"
                    " in as nominal"
                )
            nominal = source.verdict.robot
        self.nominal, self._source = nominal, source
        self._factory, self._fallback, self._feedback = factory, fallback, feedback
        self._compare = getattr(source, "note_command", None) if applied else None
        self.slew = per_joint(
            "slew", usual_torques(nominal) / BLEND if slew is None else slew, nominal.nv
        )
        self._safe: Controller = factory(nominal)  # made before it is needed
        self._robot, self._controller = nominal, self._safe
        self._set_offset(np.zeros(nominal.nv))
        self._t = np.nan
        self._lost_time = False
        self._last = np.zeros(nominal.nv)
        self._steps = TorqueSteps()
        self._commanded = False  # whether `_last` was
        self._since = np.nan  # [s] when a candidate first had to wait
        # made, and waiting for a usable sample
        self._candidate: tuple[Robot, Controller] | None = None
        self._unjudged = source.verdict  # of before the first sample
        self._declined: Robot | None = None
        self.forced = False  # set it to run on the nominal model even while the gate is open
        self.declined = ""  # why the last identified model was not taken, "" if it was
        # why the switch to an identified model was put off in the last cycle, "" if it was not
        self.waiting = ""
        self.fallback_step = 0.0  # [N·m or N] in one cycle, by falling back
        self.switches = self.fallbacks = 0

    @property
    def source(self) -> ModelSource:
        """Who says which model may be used."""
        return self._source

    @property
    def robot(self) -> Robot:
        """The model in charge."""
        return self._robot

    @property
    def identified(self) -> bool:
        """Whether the last command came from an identified model."""
        return self._controller is not self._safe

    @property
    def max_torque_step(self) -> float:
        """[N·m or N] The largest change in one cycle, by switches to identified models, of what is
        commanded beyond the one model's own torque.
        """
        return self._steps.largest

    def _set_offset(self, offset: np.ndarray) -> None:
        """What is commanded beyond the torque of the model in charge, (nv,), from now on."""
        self._offset = offset
        self.blending = bool(offset.any())  # whether a switch has not died out yet

    @property
    def fault(self) -> str:
        """Why the last command was not computed, as the controller in charge says it; "" if
        it was.
        """
        return getattr(self._controller, "fault", "")

    @property
    def notes(self) -> tuple[str, ...]:
        """What the nominal controller had to assume, as sentences."""
        return tuple(getattr(self._safe, "notes", ()))

    @property
    def limits(self) -> np.ndarray | None:
        """Those of the controller in charge."""
        return getattr(self._controller, "limits", None)

    def resync(self) -> None:
        """Told by a loop that time was lost: the next cycle runs on the nominal model."""
        self._lost_time = True
        for controller in (self._safe, self._controller):
            if hasattr(controller, "resync"):
                controller.resync()

    def halt(self) -> np.ndarray:
        """The nominal controller's, (nv,): the torque that holds the robot still where it was last
        seen.
        """
        self._hand_over(self._safe)
        stop = getattr(self._safe, "halt", None)
        return np.zeros(self.nominal.nv) if stop is None else stop()

    def __call__(self, t: float, q: np.ndarray, dq: np.ndarray, wanted: Reference) -> np.ndarray:
        """The joint torques, (nv,)."""
        dt = t - self._t
        # NaN, or a clock that jumped back: no time has passed
        dt = min(dt, LONGEST) if dt > 0.0 else 0.0
        if t == t:
            self._t = t
        cycle = _Cycle(t, dt, q, dq, wanted)
        verdict = self._source.verdict
        if self._compare is not None and self._commanded and verdict.accepted:
            self._compare(self._last)
        robot, chosen = self._choose(verdict)
        if self._garbage(t, verdict):
            tau = self._turn_away(chosen, verdict.reason)
        elif chosen is self._controller:
            self.waiting, self._since = "", np.nan
            tau = self._go_on(cycle)
        elif chosen is self._safe:
            self.waiting, self._since = "", np.nan
            tau = self._fall_back(cycle)
        else:
            tau = self._move_on(robot, chosen, cycle, verdict)
        self._last[:], self._commanded = tau, True
        return tau

    def _garbage(self, t: float, verdict: SampleVerdict) -> bool:
        """Whether the sample of this moment [s] was turned away as no measurement at all.

        One that merely leaps further than usual is left out of the fit; the joints may well have
        moved so (friction that lets go, a switch), and a loop that stops looking then loses them.
        What no joint can do, the control law turns away itself.
        """
        if verdict.accepted or "not finite" not in verdict.reason:
            return False
        return verdict is not self._unjudged and getattr(self._source, "stamp", t) == t

    def turn_away(self, t: float, reason: str) -> np.ndarray:
        """The command of a cycle without a sample that can be used, (nv,): held, then faded."""
        if t == t:
            self._t = t
        _, chosen = self._choose(self._source.verdict)
        self._last[:] = tau = self._turn_away(chosen, reason)
        return tau

    def _turn_away(self, chosen: Controller, reason: str) -> np.ndarray:
        """Hold and fade; where the gate closed, the nominal controller goes on from there."""
        if chosen is self._safe and self._controller is not self._safe:
            self._hand_over(self._safe)
            self._controller, self._robot = self._safe, self.nominal
            self._set_offset(np.zeros(self.nominal.nv))
            self._steps.restart(self._last, self._last, self.limits)
            self.fallbacks += 1
        law = self._controller
        self.waiting = reason if chosen is not law else ""
        return law.turn_away(self._t, reason) if isinstance(law, JointController) else self._last

    def _choose(self, verdict: SampleVerdict) -> tuple[Robot, Controller]:
        """The controller for this cycle; a model that no controller can be made of is declined
        once, and the nominal one is used.
        """
        robot = verdict.robot
        if (
            self.forced
            or self._lost_time
            or not verdict.gate.open
            or robot is self.nominal
            or robot is self._declined
        ):
            self._lost_time = False
            return self.nominal, self._safe
        if robot is self._robot:
            return robot, self._controller
        if self._candidate is None or self._candidate[0] is not robot:
            try:
                made = self._factory(robot)
                if isinstance(made, JointController) and isinstance(self._safe, JointController):
                    made.fall_back_to(self._safe)
                if (
                    self._feedback == "nominal"
                    and isinstance(made, ComputedTorque)
                    and isinstance(self._safe, ComputedTorque)
                ):
                    made.keep_feedback(self._safe)
                self._candidate = (robot, made)
            except ThetahatError as error:
                self._declined, self.declined = robot, str(error)
                return self.nominal, self._safe
        return self._candidate

    def _go_on(self, cycle: _Cycle) -> np.ndarray:
        own = self._controller(cycle.t, cycle.q, cycle.dq, cycle.wanted)
        if self.fault:
            return own  # held, offset and all, or faded
        if not self.blending:
            if self._steps.watching:
                self._steps.add(own, own, self.limits)
            return own
        left = np.maximum(np.abs(self._offset) - self.slew * cycle.dt, 0.0)
        self._set_offset(np.sign(self._offset) * left)
        tau = self._cut(own + self._offset)
        self._steps.add(tau, own, self.limits)
        _commanded(self._controller, tau)
        return tau

    def _move_on(
        self, robot: Robot, chosen: Controller, cycle: _Cycle, verdict: SampleVerdict
    ) -> np.ndarray:
        """Change to an identified model: what the old one would have commanded is commanded, and
        from now on the difference dies out.
        """
        before = self._go_on(cycle)
        # the difference says nothing: switch with the next sample
        if self.fault or not verdict.ordinary:
            kind = "took the sample of this cycle with care" if verdict else "rejected the sample"
            return self._wait(before, self.fault or f"the identifier {kind}: {verdict.reason}")
        self._hand_over(chosen)
        tau = cycle.torque(chosen)
        why = getattr(chosen, "fault", "") or self._unfit(before, tau, chosen)
        if why:
            return self._wait(before, why)
        self._controller, self._robot = chosen, robot
        self._steps.switch(before, tau, self.limits)
        self._candidate, self._declined, self.declined = None, None, ""
        self._set_offset(before - tau)
        self.waiting, self._since = "", np.nan
        self.switches += 1
        tau = self._cut(before)
        _commanded(chosen, tau)
        return tau

    def _wait(self, tau: np.ndarray, why: str) -> np.ndarray:
        """Put a switch off; the model in charge goes on."""
        self.waiting = why
        if self._since != self._since:
            self._since = self._t
        return tau

    def _unfit(self, before: np.ndarray, after: np.ndarray, chosen: Controller) -> str:
        """Why the difference of the two commands of this cycle, (nv,) each, is not that of the
        models; "" if it is.
        """
        cut = self._at_limits(before) | _saturated(self._controller) | _saturated(chosen)
        if np.any(cut):
            name = self.nominal.velocity_names[int(np.argmax(cut))]
            return f"the command of joint {name!r} is at its limit"
        # a robot that always leaps is not to wait for ever
        waited = max(0.0, self._t - self._since) if self._since == self._since else 0.0
        leap = np.abs(before - self._last) > self.slew * (LEAP + waited)
        if self._commanded and np.any(leap):
            v = int(np.argmax(leap))
            return (
                f"the torque of joint {self.nominal.velocity_names[v]!r} leaps from"
                f" {self._last[v]:.4g} to {before[v]:.4g} in this cycle"
            )
        far = np.abs(before - after) > self.slew * (LONG + waited)
        if np.any(far):
            v = int(np.argmax(far))
            name, gap = self.nominal.velocity_names[v], abs(before[v] - after[v])
            return (
                f"the models differ by {gap:.4g} at joint {name!r}, which takes more than {LONG:g}"
                " s to slew; raise slew if that is so"
            )
        return ""

    def _fall_back(self, cycle: _Cycle) -> np.ndarray:
        """Change to the nominal model, in this cycle."""
        # what would have been commanded
        before = self._cut(cycle.torque(self._controller) + self._offset)
        self._hand_over(self._safe)
        tau = cycle.torque(self._safe)
        self._controller, self._robot = self._safe, self.nominal
        self.fallbacks += 1
        self._steps.restart(before if self._fallback == "slew" else tau, tau, self.limits)
        if self._fallback == "slew":
            self._set_offset(before - tau)
            _commanded(self._safe, before)
            return self._cut(before)
        self._set_offset(np.zeros_like(tau))
        self.fallback_step = max(self.fallback_step, float(np.max(np.abs(tau - before))))
        return tau

    def _hand_over(self, to: Controller) -> None:
        """Tell a controller what was commanded last, for samples it cannot use."""
        last = self._controller
        if to is not last and isinstance(to, JointController) and isinstance(last, JointController):
            to.take_over(last, self._last)

    def _at_limits(self, tau: np.ndarray) -> np.ndarray:
        limits = self.limits
        return np.zeros(len(tau), dtype=bool) if limits is None else np.abs(tau) >= limits

    def _cut(self, tau: np.ndarray) -> np.ndarray:
        limits = self.limits
        return tau if limits is None else np.clip(tau, -limits, limits)


class _Cycle(NamedTuple):
    """What a controller is asked with."""

    t: float  # [s]
    dt: float  # [s] since the cycle before
    q: np.ndarray
    dq: np.ndarray
    wanted: Reference

    def torque(self, controller: Controller) -> np.ndarray:
        return controller(self.t, self.q, self.dq, self.wanted)


def _commanded(controller: Controller, tau: np.ndarray) -> None:
    """Tell a controller what was commanded in place of its own torque, (nv,)."""
    if isinstance(controller, JointController):
        controller.note_command(tau)


def _saturated(controller: Controller) -> np.ndarray | bool:
    """(nv,) which joints the controller's last command cut, where it tells."""
    return getattr(controller, "saturated", False)


class TorqueSteps:
    """Measures the part of a torque's steps that a switch of models causes: `largest` is its
    largest change in one cycle [N·m or N].

    What is commanded beyond the torque that the one model in charge would command alone is the
    switch's doing, d = u − u_model. How d changes from a cycle to the next is measured against one
    and the same model: against the old one up to the cycle of the switch, against the new one from
    it on. A joint at its limit is left out in that cycle and the next: there the limit decides.
    """

    def __init__(self) -> None:
        self.largest = 0.0
        self.watching = False  # whether the last command was another than the model's own
        # (nv,) d of the last cycle, NaN at a limit; None: zero
        self._beyond: np.ndarray | None = None

    def add(self, commanded: np.ndarray, own: np.ndarray, limits: np.ndarray | None) -> None:
        """A cycle: what was commanded, and what the model in charge would have commanded alone,
        (nv,) each.
        """
        beyond = _beyond(commanded, own, limits)
        change = np.abs(beyond if self._beyond is None else beyond - self._beyond)
        self.largest = max(self.largest, float(np.fmax.reduce(change, initial=0.0)))
        self._keep(beyond)

    def switch(self, commanded: np.ndarray, own: np.ndarray, limits: np.ndarray | None) -> None:
        """After `add` against the old model: from now on changes are those against the new one."""
        self._keep(_beyond(commanded, own, limits))

    restart = switch  # after a fallback: its step is another matter

    def _keep(self, beyond: np.ndarray) -> None:
        self.watching = bool(beyond.any())
        self._beyond = beyond if self.watching else None


def _beyond(commanded: np.ndarray, own: np.ndarray, limits: np.ndarray | None) -> np.ndarray:
    beyond: np.ndarray = commanded - own
    if limits is not None:
        beyond[(np.abs(commanded) >= limits) | (np.abs(own) >= limits)] = np.nan
    return beyond
