"""`OnlineIdentifier`: identifies a robot while it moves, and says which model a controller may use
right now (paper, §VI).

A sample goes in per control cycle, and costs some ten microseconds. `rate` times a second (3 Hz)
the filtered sample of that moment joins the memory, an estimate is made (learner.py), and the gate
(gate.py) judges it; others may join in between (buffer_plan.py). Between updates the residual
monitor (residual_monitor.py) compares every sample with the model in use.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace

import numpy as np

from thetahat.data.samples import Samples
from thetahat.data.velocities import all_single_dof
from thetahat.errors import UsageError
from thetahat.identification import factor as f
from thetahat.identification.estimate import Estimate
from thetahat.identification.information import Information
from thetahat.model.robot import Robot
from thetahat.online.after_change import STATED, AfterChange
from thetahat.online.buffer_plan import buffer_plan
from thetahat.online.causal_filter import ONE_WAY, FilteredSample
from thetahat.online.change import Finding, ModelDrift, Suspicion, extrapolated
from thetahat.online.config import (
    FilterConfig,
    GateRules,
    MonitorRules,
    SolverConfig,
    check,
    moved_keywords,
)
from thetahat.online.encoder_zero import zero_shift
from thetahat.online.gate import Evidence, Gate, GateState, Score
from thetahat.online.held_out import LATER, HeldOut, usual_errors
from thetahat.online.learner import Learner
from thetahat.online.null_hypothesis import one_model_explains
from thetahat.online.payload_detector import POOL, PayloadDetector
from thetahat.online.predict import Model, Predictor, has_dry_friction
from thetahat.online.residual_monitor import (
    Alarm,
    PayloadMonitor,
    PayloadReport,
    ResidualMonitor,
    usual_level,
)
from thetahat.online.sample_clock import MISSING
from thetahat.online.sample_verdict import Events, SampleVerdict
from thetahat.online.stream import GOOD, SETTLING, STEPPED, Stream, StreamResult
from thetahat.online.surprises import Surprises

SCORES = 10  # samples per update that are held out and scored
# [s] of whole samples after an interruption, before a model that was in use is used again
RECOVERY = 0.1
TOLD = 1.0  # [s] after an alarm, when it is said whether a payload explains it


@dataclass(frozen=True, eq=False)
class _InUse:
    """The model that a controller uses while the gate is open."""

    model: Model
    robot: Robot
    frozen: np.ndarray  # (nv,) joints whose drive is nominal, since they have not moved enough


class OnlineIdentifier:
    """Identifies a robot from the stream of its measurements.

    Args:
        robot: the nominal robot, with the drive terms to identify; what a controller falls back to.
        guess: Θ₀ of the paper's blend, a robot, θ or x; it need not be the nominal robot. None: no
            blend.
        rate: [Hz] of updates; one sample each joins the memory (paper: 3).
        window: samples that fill the buffer (paper: 50, which takes 16.7 s at 3 Hz). Without rate
            and window both follow from the robot and the filter (`buffer_plan`): updates at 3 Hz,
            three samples each, of which 50 open the gate and 150 are kept.
        threshold: R² at which the gate opens.
        filter: `FilterConfig`: how samples are filtered.
        solver: `SolverConfig`: memory, estimator, and where programs are solved. A `Loop` with a
            real clock has them solved in a process of their own; in a loop of your own use
            `SolverConfig(run_in="process")`. `solving` tells how long the longest took.
        gate: `GateRules`: when the gate opens and closes, and how the model in use is monitored.

    """

    @moved_keywords
    def __init__(
        self,
        robot: Robot,
        guess: Robot | np.ndarray | None = None,
        rate: float | None = None,
        window: int | None = None,
        threshold: float = 0.95,
        *,
        filter: FilterConfig | None = None,
        solver: SolverConfig | None = None,
        gate: GateRules | None = None,
    ) -> None:
        check(robot, rate, window)
        filtering = FilterConfig() if filter is None else filter
        self._nominal, self.threshold = robot, threshold
        self.min_speed = filtering.speeds(robot)
        self._stream = Stream(robot, filtering, self.min_speed)
        self.buffer = plan = buffer_plan(robot, rate, window, self._stream.filter.delay)
        self.rate, self.window = plan.rate, plan.needed
        self._gate = Gate(GateRules() if gate is None else gate, threshold, memory=plan.reach)
        self._judged = self._gate.rules.judged(robot)
        self._predictor, self._dry = Predictor(robot), has_dry_friction(robot)
        self._learner = Learner(
            self._predictor,
            SolverConfig() if solver is None else solver,
            guess,
            size=plan.size,
            needed=plan.needed,
            least_r2=self._gate.closing,
            events=self.events,
            min_speed=self.min_speed,
        )
        self._surprises = Surprises(robot, self._gate.rules, self.min_speed)
        self._torques = self._surprises.torques
        stated = set(self._gate.rules.expect) & {*STATED, "signals"}
        self._check_zeros = all_single_dof(robot) and not stated
        # scores from one sample of the buffer to the next
        self._fit_every = -(-SCORES // plan.per_update)
        self._held_out = HeldOut(
            robot, ticks=max(2, round(0.5 * plan.reach * plan.rate)), per_tick=SCORES
        )
        # without the friction that is identified: a robot may well have less than its file states
        rigid = self._learner.projection.x0.copy()
        rigid[self._predictor.columns.inertial :] = 0.0
        self._nominal_model = self._predictor.model(rigid)
        self._nominal_whole = self._predictor.model(self._learner.projection.x0)
        monitor = self._gate.rules.monitor
        self._payload_link = None if monitor is None else monitor.payload_link
        link = self._payload_link
        self._drift = ModelDrift(robot.velocity_names, plan.reach)
        self._detector = None
        if monitor is not None and link is not None:
            self._detector = PayloadDetector(robot, link, monitor.interval, self.min_speed)
        self._begin()
        self._warm()
        self._forget_all()

    def _begin(self) -> None:
        """Nothing has come yet."""
        self._next_tick = self._next_score = self._moved = -math.inf
        self._scores = 0  # since the last update
        # since when samples are whole again (inf: no interruption); whether it was open before
        self._interrupted, self._was_open = math.inf, False
        self._in_use: _InUse | None = None
        self._after: AfterChange | None = None  # what a model must be explained by, since a change
        self.alarm: Alarm | None = None  # the last one
        self.payload: PayloadReport | None = None  # what is held since then, where that is asked
        self.updates = 0
        self._measured = np.full(self._nominal.nv, np.nan)  # torques of the same
        self.stamp = math.nan  # [s] of the last sample that was pushed, taken or not
        self._verdict = SampleVerdict(
            False, "no sample has come yet", self._gate.state, self._nominal
        )

    def _warm(self) -> None:
        """Compile and load all that an update uses, so that none has to wait for it."""
        robot, q, zero = self._nominal, self._nominal.neutral[None], np.zeros((1, self._nominal.nv))
        sample, valid = FilteredSample(q.copy(), zero, zero, zero), np.ones(robot.nv, dtype=bool)
        self._learner.warm(sample._replace(tau=zero + 1.0), valid)
        self._held_out.add(sample, valid)
        self._held_out.score(self._nominal_model, self._nominal_model)
        monitor = ResidualMonitor(robot, np.ones(robot.nv), model=self._nominal_model)
        monitor.push(0.0, 1e-3, sample)
        spare = Stream(robot, replace(self._stream.config, period=None), self.min_speed)
        spare.push(0.0, q[0], zero[0], zero[0], None)

    # -- results -----------------------------------------------------------------------------------

    @property
    def verdict(self) -> SampleVerdict:
        """On the last sample, or on its absence: what `push` or `miss` returned."""
        return self._verdict

    @property
    def robot(self) -> Robot:
        """What a controller may use right now: the identified robot while the gate is open, else
        the nominal one.
        """
        if self._gate.state.open and self._in_use is not None:
            return self._in_use.robot
        return self._nominal

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
        return self._stream.filter.time_constant

    @property
    def delay(self) -> float:
        """[s] by which filtered samples lag behind, all channels alike: the time constants of all
        stages.
        """
        return self._stream.filter.delay

    @property
    def information(self) -> Information:
        """Of what is remembered."""
        return self._learner.memory.information()

    @property
    def samples(self) -> Samples | None:
        """The samples that are fitted, where the memory keeps them."""
        return self._learner.memory.samples

    @property
    def held_out(self) -> Samples:
        """The samples that are in no fit and are scored, in the order they came."""
        return self._held_out.samples

    @property
    def solving(self) -> float:
        """[s] of wall time that the longest solution took which an update waited for; 0 where none
        did.
        """
        return self._learner.solver.longest

    @property
    def clock(self) -> float:
        """[s] of the last sample taken, on the stream's own clock, which never goes back; 0 before
        the first.
        """
        return self._stream.clock.now

    @property
    def filtered(self) -> FilteredSample | None:
        """The last filtered sample, in the stream's own memory; None until the filter settles."""
        return self._stream.sample if self._stream.filter.settled else None

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
        self._gate.clear(self.clock, sentence)
        self.events.add(self.clock, "reset", sentence)
        self._after = None
        self._forget_all()
        self._verdict = replace(self._verdict, gate=self._gate.state, robot=self.robot)

    def run_beside(self) -> None:
        """Solve in a process of its own from now on, unless `SolverConfig.run_in` names a place: a
        `Loop` with a real clock calls this before its first cycle.
        """
        self._learner.solver.run_beside()

    def close(self) -> None:
        """End what runs in the background."""
        self._learner.solver.close()

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
    ) -> SampleVerdict:
        """Take the measurement of one control cycle; return whether it was used, and which model
        may be used now.

        Args:
            t: [s] time stamp.
            q: (nq,) positions.
            dq: (nv,) speeds; None where they are not measured.
            tau: (nv,) torques [N·m or N].
            ddq: (nv,) accelerations, where they are measured.

        What is wrong with a sample is said in the verdict and counted in `events`, never raised,
        but for arrays of another size, which are refused: a sample that is missing.

        """
        stream, self.stamp, self._measured = self._stream, t, tau
        before = stream.clock.t
        try:
            result = stream.push(t, q, dq, tau, ddq)
        except UsageError as error:
            if stream.missing >= MISSING:
                self._interrupt(f"{stream.missing} samples in a row could not be used")
            self._decide(False, str(error))
            raise
        if result is GOOD or result is STEPPED:
            now = stream.clock.t
            if stream.channels:
                self._shut(stream.channels[0].sentence)
            elif self._interrupted < math.inf and now - self._interrupted >= RECOVERY:
                self._resume()
            self._use(now, now - before)
            return self._decide(True, result.reason)
        return self._exception(result)

    def _exception(self, result: StreamResult) -> SampleVerdict:
        """A sample that settles the filter, was dropped, or started the filter anew."""
        if result is SETTLING:
            if self._interrupted < math.inf:
                self._interrupted = self.clock
            elif self._gate.state.open:
                self._shut("the filter starts anew")
            return self._decide(True, "the filter settles")
        if result.status == "dropped":
            if result.kind == "not finite":
                self._interrupt(result.reason)
            elif self._stream.missing >= MISSING:
                self._interrupt(f"{self._stream.missing} samples in a row could not be used")
            return self._decide(False, result.reason)
        self._restarted(result)
        return self._decide(True, result.reason)

    def miss(self) -> SampleVerdict:
        """Say that no sample came in this cycle: up to 19 in a row are held, the 20th closes the
        gate.
        """
        stopped = self._stream.miss()
        if stopped is not None:
            self._interrupt(stopped.reason)
        return self._decide(False, "no sample came" if stopped is None else stopped.reason)

    def _decide(self, accepted: bool, reason: str) -> SampleVerdict:
        """Return the verdict of this cycle: the last one, where nothing changed."""
        last, gate, events = self._verdict, self._gate.state, self.events
        if (
            gate is not last.gate
            or accepted is not last.accepted
            or reason != last.reason
            or last.events
            or events.unreported
        ):
            self._verdict = SampleVerdict(accepted, reason, gate, self.robot, events.report())
        return self._verdict

    def _interrupt(self, sentence: str) -> None:
        """Fall back now; the model itself is not in doubt."""
        self._was_open |= self._gate.state.open
        self._gate.close(self.clock, sentence, dwell=False)
        self._interrupted = self.clock

    def _resume(self) -> None:
        self._interrupted = math.inf
        if self._was_open:
            self._was_open = False
            self._gate.reopen(self.clock, "samples are whole again")

    def _shut(self, sentence: str) -> None:
        """Fall back now; open again only after the dwell time, on new evidence."""
        if self._gate.state.open:
            self.events.add(self.clock, "closed", sentence)
        self._was_open = False
        self._gate.close(self.clock, sentence)

    def _restarted(self, result: StreamResult) -> None:
        """After a gap, or a clock that was set back."""
        if result.kind == "gap" and not result.forget:
            self._interrupt(result.reason)
        else:
            self._shut(result.reason)
            self._interrupted = math.inf
        self._next_tick = self._next_score = -math.inf
        self._surprises.reset()
        if self._monitor is not None:
            self._monitor.reset()
        if result.forget:
            self._forget_all()

    def _forget_all(self) -> None:
        """Forget what was learned, which may be of another robot."""
        self._learner.forget()
        self._held_out.clear()
        self._older: deque[Model] = deque(maxlen=LATER)  # models of the last updates
        self._monitor: ResidualMonitor | None = None
        rules = self._gate.rules.monitor or MonitorRules()
        self._usual = usual_level(self._nominal, rules)  # errors while the gate was open
        self._suspicion: Suspicion | None = None
        self._drift.reset()
        if self._detector is not None:
            self._detector.reset()
        self._payload: PayloadMonitor | None = None
        self._payload_told = False

    # -- a good sample -----------------------------------------------------------------------------

    def _use(self, now: float, h: float) -> None:
        stream, monitor = self._stream, self._monitor
        sample = stream.sample
        if self._suspicion is not None:
            finding = self._suspicion.push(now, h, sample, stream.filter.direction)
            if finding is not None:
                self._found(now, finding)
        elif monitor is not None:
            alarm = monitor.push(now, h, sample, stream.filter.direction)
            if alarm is not None:
                self._alarmed(alarm, monitor)
        early = 0.25 * h  # stamps are rounded: a sample that is due is not to wait for the next one
        if now < self._next_score - early:
            return
        period = 1.0 / self.rate
        self._next_score = _next_due(self._next_score, now, period / SCORES)
        speed, due = np.abs(sample.dq[0]), now >= self._next_tick - early
        if self._monitor is not None and self._suspicion is None and self._gate.state.open:
            self._monitor.learn(period / SCORES)
        if self._detector is not None and self._monitor is not None:
            self._detect_payload(now, self._detector, self._monitor)
        if np.any(speed >= self.min_speed):
            self._moved = now
            if not stream.channels:
                self._keep(now, self._usable(speed), due=due)
        self._scores = 0 if due else self._scores + 1
        self._surprises.add(now, sample, kept=speed >= self.min_speed)
        if due:
            self._next_tick = _next_due(self._next_tick, now, period)
            self._update(now)
        else:
            self._learner.poll(now)

    def _detect_payload(
        self, now: float, detector: PayloadDetector, monitor: ResidualMonitor
    ) -> None:
        """Raise an alarm where all joints together tell of a mass that none tells alone."""
        if self._in_use is None:
            return
        sample, trusted = self._stream.sample, self._gate.state.open and self._suspicion is None
        model, shared = self._in_use.model, max(1.0, 2.0 * POOL * self.buffer.density)
        told = detector.push(
            now,
            sample,
            model,
            monitor.scale,
            lambda variance: self._learner.prediction_spread(sample, shared * variance),
            usable=self._usable(np.abs(sample.dq[0])),
            learn=trusted,
        )
        if told and trusted:
            self._alarmed(detector.alarm(now), monitor, tested=True)

    def _usable(self, speed: np.ndarray) -> np.ndarray:
        """(nv,) whose torques may be used. With dry friction: not a still joint's, nor one's that
        turned round within the filter's memory.
        """
        if not self._dry:
            return np.ones(len(speed), dtype=bool)
        one_way = np.abs(self._stream.filter.direction) >= ONE_WAY
        return np.asarray((speed >= self.min_speed) & one_way)

    def _keep(self, now: float, valid: np.ndarray, *, due: bool) -> None:
        """Fit the sample of an update, hold all others out."""
        sample, payload = self._stream.sample, self._payload
        if self._suspicion is not None:
            pass  # of which robot it is, is open
        elif due:
            ahead = self._learner.ahead
            # a model from few samples says nothing about those after it
            if ahead is not None and 2 * len(self._learner.memory) >= self.window:
                self._held_out.predict(ahead)
                self._older.append(ahead)
            if self.buffer.needed < self.buffer.size:
                full = len(self._older) == LATER
                self._held_out.predict_later(self._older[0] if full else None)
            self._learner.add(sample, valid, now)
        elif (self._scores + 1) % self._fit_every == 0 and self._scores + 1 < SCORES:
            self._learner.remember(sample, valid)
        else:
            self._held_out.add(sample, valid)
        if payload is not None and now - payload.detected >= 5.0 * self.delay:
            payload.add(sample, valid)

    def _alarmed(self, alarm: Alarm, monitor: ResidualMonitor, *, tested: bool = False) -> None:
        """The model in use stopped explaining the torques: fall back, and find out why."""
        v = self._nominal.velocity_names.index(alarm.joint)
        if extrapolated(self._stream.sample.dq[0, v], self._learner.motion.fastest[v]):
            sentence = (
                f"joint {alarm.joint!r} moves faster than in all that the model was identified"
                f" from, and {alarm.residual:+.3g} are left of its torque; it is being learned"
            )
            self.events.add(alarm.t, "faster", sentence, alarm.joint)
            self._shut(sentence)
            self._monitor = None
            return
        unseen = self._unseen(monitor, v, tested=tested)
        if unseen:
            sentence = (
                f"{alarm.residual:+.3g} are left of the torque of joint {alarm.joint!r} in a motion"
                f" that was not seen before: {unseen}, so it is being learned"
            )
            self.events.add(alarm.t, "unseen", sentence, alarm.joint)
            self._shut(sentence)
            self._monitor = None
            return
        self.alarm, self.payload = alarm, None
        self.events.add(alarm.t, "alarm", alarm.sentence, alarm.joint)
        self._shut(alarm.sentence)
        self._suspicion, self._payload_told = Suspicion(alarm, monitor, self._detector), False
        if self._payload_link is not None and self._in_use is not None:
            robot, scale = self._in_use.robot, monitor.scale
            usual = 0.0 if self._detector is None else self._detector.spread
            self._payload = PayloadMonitor(
                robot, self._payload_link, scale, detected=alarm.t, usual=usual
            )

    def _unseen(self, monitor: ResidualMonitor, joint: int, *, tested: bool) -> str:
        """Why what is left of a joint's torque says nothing about a change; "" where it does."""
        in_use = self._in_use
        if in_use is None:
            return ""
        moves = in_use.frozen & (np.abs(self._stream.sample.dq[0]) >= self.min_speed)
        if np.any(moves):
            name = self._nominal.velocity_names[int(np.argmax(moves))]
            return f"joint {name!r} moves, of which nothing was known"
        if tested or (self._detector is not None and self._detector.suspects):
            return ""  # the memory's spread was reckoned with
        if one_model_explains(self._learner, self._held_out, in_use.model, monitor, joint):
            return "one model explains it and what is remembered"
        return ""

    def _found(self, now: float, finding: Finding) -> None:
        """A suspicion is settled: use the same model again, or forget what is older."""
        self.events.add(now, finding.kind, finding.sentence, finding.joint)
        payload = self._payload
        if finding.over:
            self._suspicion = self._payload = None
            self._gate.reopen(now, finding.sentence, waited=True)
            return
        if self._in_use is not None and not set(STATED) & set(self._gate.rules.expect):
            trusted, nominal = self._in_use.model, self._nominal_whole
            self._after = AfterChange(trusted, nominal, self._nominal, self._payload_link)
        self._forget_all()
        self._payload = payload

    # -- an update ---------------------------------------------------------------------------------

    def _update(self, now: float) -> None:
        if self._payload is not None:
            self.payload = self._payload.report(now) or self.payload
            self._tell_payload(now)
        self._held_out.tick()
        self._surprises.update()
        self._judge(now)
        self.updates += 1

    def _tell_payload(self, now: float) -> None:
        """Say once, a second after the alarm, whether a payload explains it."""
        report = self.payload
        if report is None or self._payload_told or now - report.detected < TOLD:
            return
        self._payload_told = True
        kind = "payload" if report.explained else "sensor"
        self.events.add(now, kind, str(report), None if self.alarm is None else self.alarm.joint)

    # -- the gate ----------------------------------------------------------------------------------

    def _judge(self, now: float) -> None:
        """Score the model of this update, or the one in use while the new one has not earned its
        place, and let the gate decide.
        """
        if self._interrupted < math.inf or self._suspicion is not None:
            return
        in_use, was_open = self._in_use, self._gate.state.open
        x, model, score = self._learner.x, self._learner.model, None
        if model is not None:
            score = self._held_out.score(model, self._nominal_model)
        evidence = self._evidence(now, score)
        if (
            was_open
            and score is not None
            and in_use is not None
            and model is not in_use.model
            and not self._gate.earned(evidence)
        ):
            model, score = in_use.model, self._held_out.score(in_use.model, self._nominal_model)
            evidence = replace(evidence, held=score, surprise=self._surprises.signals)
        self._gate.judge(now, evidence)
        if not self._gate.state.open:
            if was_open:
                self.events.add(now, "closed", self._gate.state.reason)
            return
        if x is not None and model is not None and (in_use is None or model is not in_use.model):
            in_use = self._in_use = _InUse(
                model, self._nominal.with_parameters(x), self._learner.frozen
            )
            drift = self._drift.push(now, model, self._held_out.samples)
            if drift is not None:
                self.events.add(now, drift.kind, drift.sentence, drift.joint)
        if score is not None and in_use is not None:
            self._watch(in_use, score)
        if not was_open:
            self._after = None
            self.events.add(now, "opened", self._gate.state.reason)

    def _evidence(self, now: float, score: Score | None) -> Evidence:
        learner = self._learner
        return Evidence(
            fill=len(learner.memory),
            size=self.window,
            r2_fit=learner.r2_fit,
            seen=learner.seen,
            structural_rank=len(learner.base),
            physical=learner.physical,
            sentence=learner.unphysical,
            held=score,
            ahead=self._held_out.ahead,
            later=self._held_out.later if self.buffer.needed < self.buffer.size else None,
            noise=self._stream.torque_noise,
            moving=self._held_out.moving,
            still_for=now - self._moved,
            judged=self._judged & ~learner.frozen,
            frozen=self._judged & learner.frozen,
            channels=tuple(fault.sentence for fault in self._stream.channels),
            names=self._nominal.velocity_names,
            surprise=self._surprise(score),
        )

    def _surprise(self, score: Score | None) -> str:
        """Why a model needs to be expected, compared with the nominal robot with its friction and
        without: a file may be wrong about friction by any factor.
        """
        model, noise = self._learner.model, self._stream.torque_noise
        if score is None or model is None:
            return self._surprises.sentence(None, (), noise)
        whole = self._held_out.score(model, self._nominal_whole)
        scores = (score,) if whole is None else (score, whole)
        surprise = self._surprises.sentence(self._learner.x, scores, noise)
        if surprise or self._gate.state.open or (score.r2 or 0.0) < self.threshold:
            return surprise  # below the threshold it stays closed in any case
        with f.blas_threads().limit(limits=1, user_api="blas"):
            if self._after is not None:
                surprise = self._after.sentence(model, self._held_out.samples)
            if surprise or not self._check_zeros:
                return surprise
            shift = zero_shift(self._nominal_model, self._held_out.samples)
        return "" if shift is None else shift.sentence(self._nominal)

    def note_command(self, commanded: np.ndarray, measured: np.ndarray | None = None) -> None:
        """Take what was commanded until the last sample, (nv,) [N·m or N]: the gate compares it
        with the torque measured then (None: the one that was pushed).
        """
        torques = self._torques
        if torques.due:  # some cycles are enough
            torques.add(commanded, self._measured if measured is None else measured)

    def _watch(self, in_use: _InUse, score: Score) -> None:
        """Monitor the model in use; its usual error is what it leaves on samples held out."""
        rules = self._gate.rules.monitor
        if rules is None:
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
                min_speed=self.min_speed,
                lag=2.0 * self.delay,
                model=in_use.model,
                seen=self._usual,
            )
        else:
            self._monitor.use(in_use.model, scale)


def _next_due(due: float, now: float, period: float) -> float:
    """The next moment of a fixed rate, from time stamps; after a pause it begins anew."""
    due = now + period if due == -math.inf else due + period
    return due if due > now + 0.5 * period else now + period
