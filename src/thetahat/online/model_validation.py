"""Whether the identified model may be used: an update's model is scored on samples held out, beside
the one in use, and the gate decides.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace

import numpy as np

from thetahat.data.velocities import all_single_dof
from thetahat.identification import factor as f
from thetahat.model.robot import Robot
from thetahat.online.after_change import STATED, AfterChange
from thetahat.online.buffer_plan import BufferPlan
from thetahat.online.causal_filter import FilteredSample
from thetahat.online.change import ModelDrift
from thetahat.online.config import GateRules
from thetahat.online.encoder_zero import zero_shift
from thetahat.online.gate import Gate
from thetahat.online.gate_evidence import Evidence, Score
from thetahat.online.held_out import LATER, HeldOut
from thetahat.online.learner import Learner
from thetahat.online.predict import Model, Predictor
from thetahat.online.sampling_schedule import SCORES
from thetahat.online.stream import Stream, StreamResult
from thetahat.online.surprises import Surprises

# [s] of whole samples after an interruption, before a model that was in use is used again
RECOVERY = 0.1


@dataclass(frozen=True, eq=False)
class ModelInUse:
    """The model that a controller uses while the gate is open."""

    model: Model
    robot: Robot
    frozen: np.ndarray  # (nv,) joints whose drive is nominal, since they have not moved enough


class ModelValidation:
    """Holds the gate, the samples held out, and the model in use."""

    def __init__(
        self,
        predictor: Predictor,
        rules: GateRules,
        plan: BufferPlan,
        *,
        learner: Learner,
        stream: Stream,
        gate: Gate,
    ) -> None:
        robot = self._nominal = predictor.robot
        self._learner, self._stream, self._plan = learner, stream, plan
        self._rules, self._min_speed, self.gate = rules, stream.min_speed, gate
        self._judged = rules.judged(robot)
        self.surprises = Surprises(robot, rules, stream.min_speed)
        self._check_zeros = all_single_dof(robot) and not set(rules.expect) & {*STATED, "signals"}
        # without the friction that is identified: a robot may well have less than its file states
        rigid = learner.projection.x0.copy()
        rigid[predictor.columns.inertial :] = 0.0
        self.nominal_rigid = predictor.model(rigid)
        self._nominal_whole = predictor.model(learner.projection.x0)
        self.held_out = HeldOut(
            robot,
            ticks=max(2, round(0.5 * plan.reach * plan.rate)),
            per_tick=SCORES,
            rigid=self.nominal_rigid,
            whole=self._nominal_whole,
        )
        self._drift = ModelDrift(robot.velocity_names, plan.reach)
        self.in_use: ModelInUse | None = None
        self._after: AfterChange | None = None  # what a model must be explained by, since a change
        self._last_moved = -math.inf  # [s] when any joint moved
        # since when samples are whole again (inf: no interruption); whether it was open before
        self.interrupted, self._was_open = math.inf, False
        self.clear()

    def clear(self) -> None:
        """Forget what was learned, which may be of another robot."""
        self.held_out.clear()
        self._older: deque[Model] = deque(maxlen=LATER)  # models of the last updates
        self._drift.reset()

    def reset(self, sentence: str) -> None:
        """Close, and forget what is known of the robot."""
        self.shut(sentence)
        self.gate.clear(self._stream.clock.now, sentence)
        self._after = None

    # -- closing -----------------------------------------------------------------------------------

    def interrupt(self, sentence: str) -> None:
        """Fall back now; the model itself is not in doubt."""
        self._was_open |= self.gate.state.open
        self.gate.close(self._stream.clock.now, sentence, dwell=False)
        self.interrupted = self._stream.clock.now

    def resume(self, now: float) -> None:
        """Samples are whole again: after a while, use the model that was in use."""
        if now - self.interrupted < RECOVERY:
            return
        self.interrupted = math.inf
        if self._was_open:
            self._was_open = False
            self.gate.reopen(now, "samples are whole again")

    def shut(self, sentence: str) -> None:
        """Fall back now; open again only after the dwell time, on new evidence."""
        if self.gate.state.open:
            self._stream.events.add(self._stream.clock.now, "closed", sentence)
        self._was_open = False
        self.gate.close(self._stream.clock.now, sentence)

    def restart(self, result: StreamResult) -> None:
        """The stream starts anew after a gap, or with a clock that was set back."""
        if result.kind == "gap" and not result.forget:
            self.interrupt(result.reason)
        else:
            self.shut(result.reason)
            self.interrupted = math.inf
        self.surprises.reset()

    # -- samples -----------------------------------------------------------------------------------

    def moved(self, now: float) -> None:
        """Note that some joint moves."""
        self._last_moved = now

    def predict(self) -> None:
        """Predict the samples since the last update, before the learner takes this one."""
        ahead = self._learner.ahead
        if ahead is not None:
            # what a model from few samples says of those after it is not held against later ones
            if 2 * len(self._learner.memory) >= self._plan.needed:
                self.held_out.predict(ahead)
            self._older.append(ahead)
        if self._plan.needed < self._plan.size:
            full = len(self._older) == LATER
            self.held_out.predict_later(self._older[0] if full else None)

    # -- the gate ----------------------------------------------------------------------------------

    def judge(self, now: float) -> Score | None:
        """Score the model of this update, or the one in use while the new one has not earned its
        place, and let the gate decide. Return the score of the model in use while it is open.
        """
        if self.interrupted < math.inf:
            return None
        in_use, was_open = self.in_use, self.gate.state.open
        x, model, score = self._learner.x, self._learner.model, None
        if model is not None:
            score = self.held_out.score(model)
        evidence = self._evidence(now, score)
        if (
            was_open
            and score is not None
            and in_use is not None
            and model is not in_use.model
            and not self.gate.earned(evidence)
        ):
            model, score = in_use.model, self.held_out.score(in_use.model)
            evidence = replace(evidence, held=score, surprise=self.surprises.signals)
        self.gate.judge(now, evidence)
        if not self.gate.state.open:
            if was_open:
                self._stream.events.add(now, "closed", self.gate.state.reason)
            return None
        if x is not None and model is not None and (in_use is None or model is not in_use.model):
            in_use = self.in_use = ModelInUse(
                model, self._nominal.with_parameters(x), self._learner.frozen
            )
            drift = self._drift.push(now, model, self.held_out.samples)
            if drift is not None:
                self._stream.events.add(now, drift.kind, drift.sentence, drift.joint)
        if not was_open:
            self._after = None
            self._stream.events.add(now, "opened", self.gate.state.reason)
        return score

    def _evidence(self, now: float, score: Score | None) -> Evidence:
        learner = self._learner
        return Evidence(
            fill=len(learner.memory),
            size=self._plan.needed,
            r2_fit=learner.r2_fit,
            seen=learner.seen,
            structural_rank=len(learner.base),
            physical=learner.physical,
            sentence=learner.unphysical,
            held=score,
            ahead=self.held_out.ahead,
            later=self.held_out.later if self._plan.needed < self._plan.size else None,
            noise=self._stream.torque_noise,
            moving=self.held_out.moving,
            still_for=now - self._last_moved,
            judged=self._judged & ~learner.frozen,
            frozen=self._judged & learner.frozen,
            channels=tuple(fault.sentence for fault in self._stream.channels),
            names=self._nominal.velocity_names,
            surprise=self._surprise(score),
        )

    def _surprise(self, score: Score | None) -> str:
        """Why the last model needs to be expected."""
        model, noise = self._learner.model, self._stream.torque_noise
        if score is None or model is None:
            return self.surprises.sentence(None, None, noise)
        surprise = self.surprises.sentence(self._learner.x, score, noise)
        if surprise or self.gate.state.open or (score.r2 or 0.0) < self.gate.threshold:
            return surprise  # below the threshold it stays closed in any case
        with f.blas_threads().limit(limits=1, user_api="blas"):
            if self._after is not None:
                surprise = self._after.sentence(model, self.held_out.samples)
            if surprise or not self._check_zeros:
                return surprise
            shift = zero_shift(self.nominal_rigid, self.held_out.samples)
        return "" if shift is None else shift.sentence(self._nominal)

    def changed(self, link: str | None) -> None:
        """A change is confirmed: the next model must be explained by it. link: that may carry a
        payload.
        """
        if self.in_use is not None and not set(STATED) & set(self._rules.expect):
            trusted, nominal = self.in_use.model, self._nominal_whole
            self._after = AfterChange(trusted, nominal, self._nominal, link)

    def warm(self, sample: FilteredSample, valid: np.ndarray) -> None:
        """Compile and load all that a judgement uses."""
        self.held_out.add(sample, valid)
        self.held_out.score(self.nominal_rigid)
