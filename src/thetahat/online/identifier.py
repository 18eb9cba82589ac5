"""`OnlineIdentifier`: identifies a robot while it moves, and says which model a controller may use
right now (paper, §VI).

A sample goes in per control cycle, and costs some ten microseconds. `rate` times a second (3 Hz)
the filtered sample of that moment joins the memory, an estimate is made (learner.py), and the gate
(gate.py) judges it. Between updates the watch (watch.py) compares every sample with the model in
use.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from thetahat.data.samples import Samples
from thetahat.errors import UsageError
from thetahat.identification.estimate import Estimate
from thetahat.identification.estimators.estimator import Estimator, SampleEstimator
from thetahat.identification.information import Information
from thetahat.model.robot import Robot
from thetahat.online import config
from thetahat.online.background_solver import BackgroundSolver
from thetahat.online.gate import Evidence, Gate, GateState, Rules, Score
from thetahat.online.held_out import HeldOut, usual_errors
from thetahat.online.learner import Learner
from thetahat.online.physical_model import WEIGHT
from thetahat.online.predict import Model, Predictor, has_dry_friction
from thetahat.online.residual_monitor import Alarm, PayloadMonitor, PayloadReport, ResidualMonitor
from thetahat.online.stream import DROPPED, GOOD, MISSING, SETTLING, STOPPED, Events, Stream

SCORES = 10  # samples per update that are held out and scored
RECOVERY = (
    0.1  # [s] of whole samples after an interruption, before a model that was in use is used again
)


class OnlineIdentifier:
    """Identifies a robot from the stream of its measurements.

    Args:
        robot: the nominal robot, with the drive terms to identify; what a controller falls back to.
        guess: Θ₀ of the paper's blend, a robot, θ or x; it need not be the nominal robot. None: no
            blend.
        rate: [Hz] of updates; one sample each joins the memory.
        window: samples that fill the buffer (paper: 50, which takes 16.7 s at 3 Hz).
        threshold: R² at which the gate opens.
        memory: "window", "growing", "forgetting" (by `forgetting` per sample, in the directions the
            sample excites), or "informative".
        estimator: any of the library's; None: the pseudo-inverse, after the blend with the guess.
        alpha: of the blend. blend: "early", until the buffer is full and all directions are seen,
            or "always".
        cutoff: [Hz] of the exponential averages, all channels alike, `stages` one after the other;
            None: no filter.
        close: R² below which it closes; this and the next five are rules of the gate, see
            `gate.Rules`.
        dwell: [s] it stays closed at least.
        hold: [s] an open gate keeps its verdict at standstill.
        noise: torque noises that a joint's error may have instead of reaching the threshold.
        floor: [N·m or N] errors that do not matter, per joint.
        rank_share: of the structural rank, that the motion must show.
        joints: those whose R² is asked for; default all.
        weight: of the nominal robot in directions the data do not know, see `physical`.
        beside: where semidefinite programs and slow estimators are solved. None: in the update
            itself, always with the same result, for studies, replays and tests. A program takes 11
            ms for a Panda and 0.3 s for Valkyrie's 44 joints, so in a control loop that drives a
            robot pass "process" (or "thread", where no process may be started): then no cycle waits
            for it. `solving` tells how long the longest took.
        patience: [s] after which an answer counts as late and is dropped; after five times that the
            solver is given up and replaced.
        refit: [s] between two such programs while a model is at hand.
        payload_link: where a payload may be taken up or let go; the change of mass is reported
            after an alarm.
        watch: whether the model in use is watched.
        period: [s] of the samples, where it is known; this and the next three are of the stream,
            see `stream.Stream`.
        held: whether a torque acts from its sample on, as in a simulation with held commands.
        min_speed: [rad/s or m/s] of a joint that moves.
        reset_after: [s] of a gap that empties the memory.

    """

    def __init__(
        self,
        robot: Robot,
        guess: Robot | np.ndarray | None = None,
        rate: float = 3.0,
        window: int = 50,
        threshold: float = 0.95,
        *,
        memory: str = "window",
        forgetting: float = 0.98,
        estimator: Estimator | SampleEstimator | None = None,
        alpha: float = 0.5,
        blend: str = "early",
        cutoff: float | None = 10.0,
        stages: int = 2,
        close: float | None = None,
        dwell: float = 1.0,
        hold: float = 5.0,
        noise: float = 2.0,
        floor: float | Sequence[float] = 0.0,
        rank_share: float = 0.5,
        joints: Sequence[str] | None = None,
        weight: float = WEIGHT,
        beside: str | None = None,
        patience: float = 2.0,
        refit: float = 1.0,
        payload_link: str | None = None,
        watch: bool = True,
        period: float | None = None,
        held: bool = False,
        min_speed: float | Sequence[float] = 0.02,
        reset_after: float = 1.0,
    ) -> None:
        config.check(
            robot, rate=rate, window=window, cutoff=cutoff, stages=stages, blend=blend, refit=refit
        )
        self.rate, self.window, self.threshold, self._nominal = (
            float(rate),
            int(window),
            threshold,
            robot,
        )
        slow = self.min_speed = config.speeds(min_speed, robot)
        self._stream = Stream(
            robot,
            cutoff=cutoff,
            stages=stages,
            period=period,
            held=held,
            min_speed=slow,
            reset_after=reset_after,
        )
        self._predictor, self._dry = Predictor(robot), has_dry_friction(robot)
        self._memory = config.make_memory(memory, robot, self.window, forgetting=forgetting)
        chosen, first = config.estimators(
            self._memory.information(), guess, estimator, alpha=alpha, blend=blend, memory=memory
        )
        self._gate = Gate(
            Rules(
                threshold,
                min(0.9, threshold) if close is None else close,
                dwell,
                hold,
                noise,
                floor,
                rank_share,
            )
        )
        self._judged = config.judged(robot, joints)
        self._held_out = HeldOut(robot, ticks=max(2, self.window // 2), per_tick=SCORES)
        self._beside = BackgroundSolver(beside, robot, patience=patience, events=self.events)
        self._learner = Learner(
            self._memory,
            self._predictor,
            self._beside,
            estimator=chosen,
            blend=first,
            weight=weight,
            worth=self._gate.rules.close,
            refit=refit,
            events=self.events,
        )
        self._nominal_model = self._predictor.model(self._learner.projection.x0)
        self._payload_link, self._watching = payload_link, watch
        if payload_link is not None:
            PayloadMonitor(
                robot, payload_link, np.ones(robot.nv), detected=0.0
            )  # whether there is such a link
        self._next_tick = self._next_score = self._moved = -math.inf
        self._interrupted, self._was_open = (
            math.inf,
            False,
        )  # since when samples are whole again (inf: no interruption); whether it was open before
        self._robot, self._model_x, self._model = (
            robot,
            None,
            None,
        )  # what is used while the gate is open
        self.alarm: Alarm | None = None  # the last one
        self.payload: PayloadReport | None = (
            None  # what is held since then, where that is asked for
        )
        self.updates = 0
        self._warm()
        self._forget_all()

    def _warm(self) -> None:
        """Compile and load all that an update uses, so that none has to wait for it."""
        q, zero, valid = (
            self._nominal.neutral[None].copy(),
            np.zeros((1, self._nominal.nv)),
            np.ones(self._nominal.nv, dtype=bool),
        )
        self._learner.warm((q, zero, zero, zero + 1.0), valid)
        self._held_out.add(q, zero, zero, zero, valid)
        self._held_out.score(self._nominal_model, self._nominal_model)
        ResidualMonitor(self._nominal, np.ones(self._nominal.nv), model=self._nominal_model).push(
            0.0, 1e-3, q, zero, zero, zero
        )
        stream = self._stream
        spare = Stream(
            self._nominal,
            cutoff=stream.cutoff,
            stages=stream.stages,
            period=None,
            held=stream.held,
            min_speed=stream.min_speed,
            reset_after=1.0,
        )
        spare.push(0.0, q[0], zero[0], zero[0], None)

    # -- what it says ------------------------------------------------------------------------------

    @property
    def robot(self) -> Robot:
        """What a controller may use right now: the identified robot while the gate is open, else
        the nominal one.
        """
        return self._robot if self._gate.state.open else self._nominal

    @property
    def nominal(self) -> Robot:
        """The robot to fall back to."""
        return self._nominal

    @property
    def gate(self) -> GateState:
        """Open or closed, and why."""
        return self._gate.state

    @property
    def estimate(self) -> Estimate | None:
        """Of the last update, by the estimator as it is (the controller gets a physical robot near
        it); None before the first.
        """
        return self._learner.estimate

    @property
    def events(self) -> Events:
        """What happened to the stream, the last 256, and `.counts` of each kind."""
        return self._stream.events

    @property
    def time_constant(self) -> float:
        """[s] of each exponential average."""
        return self._stream.time_constant

    @property
    def delay(self) -> float:
        """[s] by which filtered samples lag behind, all channels alike: the time constants of all
        stages.
        """
        return self._stream.delay

    @property
    def information(self) -> Information:
        """Of what is remembered."""
        return self._memory.information()

    @property
    def samples(self) -> Samples | None:
        """The samples that are fitted, where the memory keeps them."""
        return self._memory.samples

    @property
    def held_out(self) -> Samples:
        """The samples that are in no fit and are scored, in the order they came."""
        return self._held_out.samples

    @property
    def solving(self) -> float:
        """[s] of wall time that the longest solution took which an update waited for; 0 where none
        did.
        """
        return self._beside.longest

    @property
    def clock(self) -> float:
        """[s] of the last sample taken, on the stream's own clock, which never goes back; 0 before
        the first.
        """
        return self._stream.now

    @property
    def filtered(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None:
        """q, dq, ddq, tau as the filter left them last, (1, ·) each, in the stream's own memory;
        None until it has settled.
        """
        stream = self._stream
        return (stream.q, stream.dq, stream.ddq, stream.tau) if stream.settled else None

    @property
    def model(self) -> Model | None:
        """What predicts torques so far: the last physical model, or the estimate while there is
        none; None before the first update.
        """
        return self._learner.ahead

    def reset(self) -> None:
        """Forget what was learned, as if it were of another robot; the gate closes until there is
        new evidence.
        """
        sentence = "the memory was emptied on request"
        self._shut(sentence)
        self._gate.clear(self._stream.now, sentence)
        self.events.add(self._stream.now, "reset", sentence)
        self._forget_all()

    def close(self) -> None:
        """End what runs beside the loop."""
        self._beside.close()

    def __enter__(self) -> OnlineIdentifier:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- samples -----------------------------------------------------------------------------------

    def push(
        self,
        t: float,
        q: np.ndarray,
        dq: np.ndarray | None,
        tau: np.ndarray,
        ddq: np.ndarray | None = None,
    ) -> bool:
        """Take the measurement of one control cycle; whether it was used.

        dq: None where speeds are not measured. ddq: where accelerations are. What is wrong with a
        sample is counted in `events`, never raised, but for arrays of another size, which are
        refused: a sample that is missing.
        """
        stream = self._stream
        before = stream.t
        try:
            code = stream.push(t, q, dq, tau, ddq)
        except UsageError:
            if stream.missing >= MISSING:
                self._interrupt(f"{stream.missing} samples in a row could not be used")
            raise
        if code == GOOD:
            if stream.channels:
                self._shut(stream.channels[0][1])
            elif self._interrupted < math.inf and stream.t - self._interrupted >= RECOVERY:
                self._resume()
            self._use(stream.t, stream.t - before)
            return True
        if code == SETTLING:
            if self._gate.state.open:
                self._shut("the filter starts anew")
            return True
        if code == DROPPED:
            if stream.kind == "not finite":
                self._interrupt(stream.fault)
            elif stream.missing >= MISSING:
                self._interrupt(f"{stream.missing} samples in a row could not be used")
            return False
        self._restarted()
        return True

    def miss(self) -> None:
        """Say that no sample came in this cycle: up to 19 in a row are held, the 20th closes the
        gate.
        """
        if self._stream.miss() == STOPPED:
            self._interrupt(self._stream.fault)

    def _interrupt(self, sentence: str) -> None:
        """Fall back now; the model itself is not in doubt."""
        self._was_open |= self._gate.state.open
        self._gate.close(self._stream.now, sentence, dwell=False)
        self._interrupted = self._stream.now

    def _resume(self) -> None:
        self._interrupted = math.inf
        if self._was_open:
            self._was_open = False
            self._gate.reopen(self._stream.t, "samples are whole again")

    def _shut(self, sentence: str) -> None:
        """Fall back now; open again only after the dwell time, on new evidence."""
        if self._gate.state.open:
            self.events.add(self._stream.now, "closed", sentence)
        self._was_open = False
        self._gate.close(self._stream.now, sentence)

    def _restarted(self) -> None:
        """After a gap, or a clock that was set back."""
        self._shut(self._stream.fault)
        self._interrupted = math.inf
        self._next_tick = self._next_score = -math.inf
        if self._watch is not None:
            self._watch.reset()
        if self._stream.jumped:
            self._stream.jumped = False
            self._forget_all()

    def _forget_all(self) -> None:
        """What was learned may be of another robot."""
        self._learner.forget()
        self._held_out.clear()
        self._watch: ResidualMonitor | None = None
        self._payload: PayloadMonitor | None = None

    # -- a good sample -----------------------------------------------------------------------------

    def _use(self, now: float, h: float) -> None:
        stream = self._stream
        if self._watch is not None and self._watch.push(
            now, h, stream.q, stream.dq, stream.ddq, stream.tau
        ):
            self._alarmed(self._watch.alarm)
        early = 0.25 * h  # stamps are rounded: a sample that is due is not to wait for the next one
        if now < self._next_score - early:
            return
        period = 1.0 / self.rate
        self._next_score = config.next_due(self._next_score, now, period / SCORES)
        speed, due = np.abs(stream.dq[0]), now >= self._next_tick - early
        if np.any(speed >= stream.min_speed):
            self._moved = now
            if not stream.channels:
                self._keep(self._usable(speed), due=due)
        if due:
            self._next_tick = config.next_due(self._next_tick, now, period)
            self._update(now)
        else:
            self._learner.poll(now)

    def _usable(self, speed: np.ndarray) -> np.ndarray:
        """(nv,) whose torques may be used. With dry friction: not a still joint's, nor one's that
        turned round within the filter's memory.
        """
        if not self._dry:
            return np.ones(len(speed), dtype=bool)
        return speed >= self._stream.min_speed + self._stream.delay * np.abs(self._stream.ddq[0])

    def _keep(self, valid: np.ndarray, *, due: bool) -> None:
        """The sample of an update is fitted, all others are held out."""
        stream = self._stream
        sample = stream.q, stream.dq, stream.ddq, stream.tau
        if due:
            if self._learner.ahead is not None:
                self._held_out.predict(self._learner.ahead)
            self._memory.add(*sample[:3], self._predictor.fitted(*sample), valid)
            self._learner.update(stream.t)
        else:
            self._held_out.add(*sample, valid)
        if self._payload is not None and stream.t - self._payload.detected >= 5.0 * stream.delay:
            self._payload.add(*sample, valid)

    def _alarmed(self, alarm: Alarm) -> None:
        """The robot is not what was identified: fall back, forget, and find out what it holds."""
        self.alarm, self.payload = alarm, None
        self.events.add(alarm.t, "alarm", alarm.sentence, alarm.joint)
        self._shut(alarm.sentence)
        scale = self._watch.scale
        self._forget_all()
        if self._payload_link is not None:
            self._payload = PayloadMonitor(self._robot, self._payload_link, scale, detected=alarm.t)

    # -- an update ---------------------------------------------------------------------------------

    def _update(self, now: float) -> None:
        if self._payload is not None:
            self.payload = self._payload.report(now) or self.payload
        self._held_out.tick()
        self._judge(now)
        self.updates += 1

    # -- the gate ----------------------------------------------------------------------------------

    def _judge(self, now: float) -> None:
        """Score the model of this update, or the one in use while the new one has not earned its
        place, and let the gate decide.
        """
        if self._interrupted < math.inf:
            return
        was_open, x, score = self._gate.state.open, self._learner.x, None
        if x is not None:
            score = self._held_out.score(self._learner.model, self._nominal_model)
        evidence = self._evidence(now, score)
        if (
            was_open
            and score is not None
            and x is not self._model_x
            and not self._gate.earned(evidence)
        ):
            x, score = self._model_x, self._held_out.score(self._model, self._nominal_model)
            evidence = replace(evidence, held=score)
        self._gate.judge(now, evidence)
        if not self._gate.state.open:
            if was_open:
                self.events.add(now, "closed", self._gate.state.reason)
            return
        if x is not None and x is not self._model_x:
            self._model_x, self._model, self._robot = (
                x,
                self._learner.model,
                self._nominal.with_parameters(x),
            )
        if score is not None:
            self._watch_over(score)
        if not was_open:
            self.events.add(now, "opened", self._gate.state.reason)

    def _evidence(self, now: float, score: Score | None) -> Evidence:
        learner = self._learner
        return Evidence(
            fill=len(self._memory),
            size=self.window,
            r2_fit=learner.r2_fit,
            seen=learner.seen,
            structural_rank=len(learner.base),
            physical=learner.physical,
            sentence=learner.unphysical,
            held=score,
            ahead=self._held_out.ahead,
            noise=self._stream.torque_noise,
            moving=self._held_out.moving,
            still_for=now - self._moved,
            judged=self._judged,
            channels=tuple(sentence for _, sentence in self._stream.channels),
            names=self._nominal.velocity_names,
        )

    def _watch_over(self, score: Score) -> None:
        """Watch the model in use, with what it leaves on samples held out for its usual error."""
        if not self._watching:
            return
        scale = usual_errors(score, self._stream.torque_noise)
        if not np.all(
            np.isfinite(scale) & (scale > 0.0)
        ):  # nothing to compare with: what was watched so far goes on
            return
        if self._watch is None:
            lag = 2.0 * self._stream.delay
            self._watch = ResidualMonitor(
                self._robot, scale, min_speed=self._stream.min_speed, lag=lag, model=self._model
            )
        else:
            self._watch.use(self._model, scale)
