"""Fault detection and diagnosis: the model in use stopped explaining the torques, and why."""

from __future__ import annotations

import numpy as np

from thetahat.model.robot import Robot
from thetahat.online.buffer_plan import BufferPlan
from thetahat.online.causal_filter import FilteredSample
from thetahat.online.change import Finding, Suspicion, extrapolated
from thetahat.online.config import MonitorRules
from thetahat.online.gate_evidence import Score
from thetahat.online.held_out import usual_errors
from thetahat.online.learner import Learner
from thetahat.online.model_validation import ModelValidation
from thetahat.online.null_hypothesis import one_model_explains
from thetahat.online.payload_detector import POOL, PayloadDetector
from thetahat.online.residual_monitor import (
    Alarm,
    PayloadMonitor,
    PayloadReport,
    ResidualMonitor,
    usual_level,
)
from thetahat.online.sampling_schedule import SCORES
from thetahat.online.stream import Stream

TOLD = 1.0  # [s] after an alarm, when it is said whether a payload explains it


class FaultDiagnosis:
    """Monitors the model in use. rules: None: nothing is monitored."""

    def __init__(
        self,
        nominal: Robot,
        rules: MonitorRules | None,
        *,
        learner: Learner,
        stream: Stream,
        validation: ModelValidation,
        plan: BufferPlan,
    ) -> None:
        self._nominal, self._rules = nominal, rules
        self._learner, self._stream, self._validation = learner, stream, validation
        link = self._payload_link = None if rules is None else rules.payload_link
        self._detector = None
        if rules is not None and link is not None:
            self._detector = PayloadDetector(nominal, link, rules.interval, stream.min_speed)
        self._tick = 1.0 / (plan.rate * SCORES)  # [s] between samples that are learned from
        # samples that share one mean of the detector
        self._shared = max(1.0, 2.0 * POOL * plan.density)
        self.alarm: Alarm | None = None  # the last one
        self.payload: PayloadReport | None = None  # what is held since then, where that is asked
        self.clear()

    def clear(self) -> None:
        """Forget what is monitored."""
        self._monitor: ResidualMonitor | None = None
        # errors while the gate was open
        self._usual = usual_level(self._nominal, self._rules or MonitorRules())
        self.suspicion: Suspicion | None = None
        if self._detector is not None:
            self._detector.reset()
        self._payload: PayloadMonitor | None = None
        self._payload_told = False

    def restart(self) -> None:
        """Begin anew after a pause, with the same model."""
        if self._monitor is not None:
            self._monitor.reset()

    def push(self, now: float, h: float) -> bool:
        """Compare the filtered sample with the model in use; return whether a change of the robot
        is confirmed now, so that what is older has to be forgotten.
        """
        stream, monitor = self._stream, self._monitor
        sample, direction = stream.sample, stream.filter.direction
        if self.suspicion is not None:
            finding = self.suspicion.push(now, h, sample, direction)
            return finding is not None and self._found(now, finding)
        if monitor is not None:
            alarm = monitor.push(now, h, sample, direction)
            if alarm is not None:
                self._alarmed(alarm, monitor)
        return False

    def forget(self) -> None:
        """Forget what is monitored, but for what is held since the alarm."""
        payload = self._payload
        self.clear()
        self._payload = payload

    def keep(self, now: float, valid: np.ndarray) -> None:
        """Take a sample into the payload's estimate; valid: (nv,) which torques count."""
        payload = self._payload
        if payload is not None and now - payload.detected >= 5.0 * self._stream.filter.delay:
            payload.add(self._stream.sample, valid)

    def detect_payload(self, now: float, usable: np.ndarray) -> None:
        """Learn what is usual while the gate is open, and raise an alarm where all joints together
        tell of a mass that none tells alone; usable: (nv,) which torques count.
        """
        detector, monitor, in_use = self._detector, self._monitor, self._validation.in_use
        trusted = self._validation.gate.state.open and self.suspicion is None
        if monitor is not None and trusted:
            monitor.learn(self._tick)
        if detector is None or monitor is None or in_use is None:
            return
        sample, shared = self._stream.sample, self._shared
        told = detector.push(
            now,
            sample,
            in_use.model,
            monitor.scale,
            lambda variance: self._learner.prediction_spread(sample, shared * variance),
            usable=usable,
            learn=trusted,
        )
        if told and trusted:
            self._alarmed(detector.alarm(now), monitor, tested=True)

    def _alarmed(self, alarm: Alarm, monitor: ResidualMonitor, *, tested: bool = False) -> None:
        """The model in use stopped explaining the torques: fall back, and find out why."""
        v = self._nominal.velocity_names.index(alarm.joint)
        if extrapolated(self._stream.sample.dq[0, v], self._learner.motion.fastest[v]):
            sentence = (
                f"joint {alarm.joint!r} moves faster than in all that the model was identified"
                f" from, and {alarm.residual:+.3g} are left of its torque; it is being learned"
            )
            self._learn_again(alarm, "faster", sentence)
            return
        unseen = self._unseen(monitor, v, tested=tested)
        if unseen:
            sentence = (
                f"{alarm.residual:+.3g} are left of the torque of joint {alarm.joint!r} in a motion"
                f" that was not seen before: {unseen}, so it is being learned"
            )
            self._learn_again(alarm, "unseen", sentence)
            return
        self.alarm, self.payload = alarm, None
        self._stream.events.add(alarm.t, "alarm", alarm.sentence, alarm.joint)
        self._validation.shut(alarm.sentence)
        self.suspicion, self._payload_told = Suspicion(alarm, monitor, self._detector), False
        if self._payload_link is not None and self._validation.in_use is not None:
            robot, scale = self._validation.in_use.robot, monitor.scale
            usual = 0.0 if self._detector is None else self._detector.spread
            self._payload = PayloadMonitor(
                robot, self._payload_link, scale, detected=alarm.t, usual=usual
            )

    def _learn_again(self, alarm: Alarm, kind: str, sentence: str) -> None:
        """Fall back for what is new to the model: no change of the robot."""
        self._stream.events.add(alarm.t, kind, sentence, alarm.joint)
        self._validation.shut(sentence)
        self._monitor = None
        if self._detector is not None:
            self._detector.pause()

    def _unseen(self, monitor: ResidualMonitor, joint: int, *, tested: bool) -> str:
        """Why what is left of a joint's torque says nothing about a change; "" where it does."""
        in_use = self._validation.in_use
        if in_use is None:
            return ""
        moves = in_use.frozen & (np.abs(self._stream.sample.dq[0]) >= self._stream.min_speed)
        if np.any(moves):
            name = self._nominal.velocity_names[int(np.argmax(moves))]
            return f"joint {name!r} moves, of which nothing was known"
        if tested or (self._detector is not None and self._detector.suspects):
            return ""  # the memory's spread was reckoned with
        if one_model_explains(
            self._learner, self._validation.held_out, in_use.model, monitor, joint
        ):
            return "one model explains it and what is remembered"
        return ""

    def _found(self, now: float, finding: Finding) -> bool:
        """A suspicion is settled: use the same model again, or (True) forget what is older."""
        self._stream.events.add(now, finding.kind, finding.sentence, finding.joint)
        if finding.over:
            self.suspicion = self._payload = None
            self._validation.gate.reopen(now, finding.sentence, waited=True)
            return False
        self._validation.changed(self._payload_link)
        return True

    def update(self, now: float) -> None:
        """Estimate what is held, and say it once, a second after the alarm."""
        if self._payload is not None:
            self.payload = self._payload.report(now) or self.payload
            self._tell_payload(now)

    def _tell_payload(self, now: float) -> None:
        """Say once, a second after the alarm, whether a payload explains it."""
        report = self.payload
        if report is None or self._payload_told or now - report.detected < TOLD:
            return
        self._payload_told = True
        kind = "payload" if report.explained else "sensor"
        self._stream.events.add(
            now, kind, str(report), None if self.alarm is None else self.alarm.joint
        )

    def watch(self, score: Score) -> None:
        """Monitor the model in use; its usual error is what it leaves on samples held out."""
        rules, in_use = self._rules, self._validation.in_use
        if rules is None or in_use is None:
            return
        scale = usual_errors(score, self._stream.torque_noise)
        if not np.all(np.isfinite(scale) & (scale > 0.0)):
            return  # nothing to compare with: what was monitored so far goes on
        scale = np.where(in_use.frozen, np.inf, scale)
        if self._monitor is None:
            self._monitor = ResidualMonitor(
                in_use.robot,
                scale,
                rules,
                min_speed=self._stream.min_speed,
                lag=2.0 * self._stream.filter.delay,
                model=in_use.model,
                seen=self._usual,
            )
        else:
            self._monitor.use(in_use.model, scale)

    def warm(self, sample: FilteredSample) -> None:
        """Compile and load all that a push uses."""
        model = self._validation.nominal_rigid
        ResidualMonitor(self._nominal, np.ones(self._nominal.nv), model=model).push(
            0.0, 1e-3, sample
        )
