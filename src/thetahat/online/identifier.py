"""`OnlineIdentifier`: identifies a robot while it moves, and says which model a controller may use
right now (paper, §VI).

A sample goes in per control cycle, and costs some ten microseconds. `rate` times a second (3 Hz)
the filtered sample of that moment joins the memory, an estimate is made (learner.py), and the gate
(gate.py) judges it; others may join in between (buffer_plan.py). Between updates the residual
monitor (residual_monitor.py) compares every sample with the model in use.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from thetahat.data.samples import Samples
from thetahat.errors import UsageError
from thetahat.identification.estimate import Estimate
from thetahat.identification.information import Information
from thetahat.model.robot import Robot
from thetahat.online.buffer_plan import buffer_plan
from thetahat.online.causal_filter import FilteredSample
from thetahat.online.config import (
    FilterConfig,
    GateRules,
    SolverConfig,
    check,
    default_filter,
    moved_keywords,
)
from thetahat.online.fault_diagnosis import FaultDiagnosis
from thetahat.online.gate import Gate, GateState
from thetahat.online.learner import Learner
from thetahat.online.measured_forces import MeasuredForces
from thetahat.online.model_validation import ModelValidation
from thetahat.online.predict import Model, Predictor
from thetahat.online.residual_monitor import Alarm, PayloadReport
from thetahat.online.sample_clock import MISSING
from thetahat.online.sample_verdict import Events, SampleVerdict
from thetahat.online.sampling_schedule import SamplingSchedule, Use
from thetahat.online.stream import GOOD, SETTLING, STEPPED, Stream, StreamResult


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
        filtering, rules = filter or default_filter(robot), gate or GateRules()
        self._forces = MeasuredForces(robot)
        self._nominal, self.threshold = robot, threshold
        self.min_speed = filtering.speeds(robot)
        self._stream = Stream(robot, filtering, self.min_speed)
        self.buffer = plan = buffer_plan(robot, rate, window, self._stream.filter.delay)
        self.rate, self.window = plan.rate, plan.needed
        self._gate = Gate(rules, threshold, memory=plan.reach)
        self._predictor = Predictor(robot)
        self._learner = Learner(
            self._predictor,
            solver or SolverConfig(),
            guess,
            size=plan.size,
            needed=plan.needed,
            least_r2=self._gate.closing,
            events=self.events,
            min_speed=self.min_speed,
        )
        self._validation = ModelValidation(
            self._predictor,
            rules,
            plan,
            learner=self._learner,
            stream=self._stream,
            gate=self._gate,
        )
        self._diagnosis = FaultDiagnosis(
            robot,
            rules.monitor,
            learner=self._learner,
            stream=self._stream,
            validation=self._validation,
            plan=plan,
        )
        self._torques = self._validation.surprises.torques
        self._schedule = SamplingSchedule(plan.rate, plan.per_update)
        self.updates = 0
        self._measured = np.full(self._nominal.nv, np.nan)  # torques of the last sample
        self.stamp = math.nan  # [s] of the last sample that was pushed, taken or not
        self._verdict = SampleVerdict(
            False, "no sample has come yet", self._gate.state, self._nominal
        )
        self._warm()
        self._forget_all()

    def _warm(self) -> None:
        """Compile and load all that an update uses, so that none has to wait for it."""
        robot, q, zero = self._nominal, self._nominal.neutral[None], np.zeros((1, self._nominal.nv))
        sample, valid = FilteredSample(q.copy(), zero, zero, zero), np.ones(robot.nv, dtype=bool)
        self._learner.warm(sample._replace(tau=zero + 1.0), valid)
        self._validation.warm(sample, valid)
        self._diagnosis.warm(sample)
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
        in_use = self._validation.in_use
        return self._nominal if in_use is None or not self._gate.state.open else in_use.robot

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
    def alarm(self) -> Alarm | None:
        """The last one."""
        return self._diagnosis.alarm

    @property
    def payload(self) -> PayloadReport | None:
        """What is held since the last alarm, where that is asked (`MonitorRules.payload_link`)."""
        return self._diagnosis.payload

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
        return self._validation.held_out.samples

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
        self._validation.reset(sentence)
        self.events.add(self.clock, "reset", sentence)
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
        *,
        wrenches: Mapping[str, np.ndarray] | None = None,
    ) -> SampleVerdict:
        """Take the measurement of one control cycle; return whether it was used, and which model
        may be used now.

        Args:
            t: [s] time stamp.
            q: (nq,) positions.
            dq: (nv,) speeds; None where they are not measured.
            tau: (nv,) torques [N·m or N].
            ddq: (nv,) accelerations, where they are measured.
            wrenches: what the world exerts on links, where it is measured, such as a legged robot's
                feet: (6,) force and couple about the link's origin in its axes, by link. Nothing
                drives a floating base, so its torques are zero.

        What is wrong with a sample is said in the verdict and counted in `events`, never raised,
        but for arrays of another size, which are refused: a sample that is missing.

        """
        if wrenches:
            tau = self._forces.added(tau, q, wrenches)
        stream, self.stamp, self._measured = self._stream, t, tau
        before = stream.clock.t
        try:
            result = stream.push(t, q, dq, tau, ddq)
        except UsageError as error:
            if stream.missing >= MISSING:
                self._validation.interrupt(f"{stream.missing} samples in a row could not be used")
            self._decide(False, str(error))
            raise
        if result is GOOD or result is STEPPED:
            now = stream.clock.t
            if stream.channels:
                self._validation.shut(stream.channels[0].sentence)
            elif self._validation.interrupted < math.inf:
                self._validation.resume(now)
            self._use(now, now - before)
            return self._decide(True, result.reason)
        return self._exception(result)

    def _exception(self, result: StreamResult) -> SampleVerdict:
        """A sample that settles the filter, was dropped, or started the filter anew."""
        if result is SETTLING:
            if self._validation.interrupted < math.inf:
                self._validation.interrupted = self.clock
            elif self._gate.state.open:
                self._validation.shut("the filter starts anew")
            return self._decide(True, "the filter settles")
        if result.status == "dropped":
            if result.kind == "not finite":
                self._validation.interrupt(result.reason)
            elif self._stream.missing >= MISSING:
                self._validation.interrupt(
                    f"{self._stream.missing} samples in a row could not be used"
                )
            return self._decide(False, result.reason)
        self._validation.restart(result)  # after a gap, or a clock that was set back
        self._diagnosis.restart()
        self._schedule.restart()
        if result.forget:
            self._forget_all()
        return self._decide(True, result.reason)

    def miss(self) -> SampleVerdict:
        """Say that no sample came in this cycle: up to 19 in a row are held, the 20th closes the
        gate.
        """
        stopped = self._stream.miss()
        if stopped is not None:
            self._validation.interrupt(stopped.reason)
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

    def _forget_all(self) -> None:
        """Forget what was learned, which may be of another robot."""
        self._learner.forget()
        self._validation.clear()
        self._diagnosis.clear()

    # -- a good sample -----------------------------------------------------------------------------

    def _use(self, now: float, h: float) -> None:
        stream, diagnosis, validation = self._stream, self._diagnosis, self._validation
        sample = stream.sample
        if diagnosis.push(now, h):
            self._learner.forget()
            validation.clear()
            diagnosis.forget()
        use = self._schedule.use(now, h)
        if use is Use.NOTHING:
            return
        moves = stream.moving()
        usable, moved = stream.usable(moves), bool(moves.any())
        diagnosis.detect_payload(now, usable)
        if moved:
            validation.moved(now)
            if not stream.channels:
                self._keep(now, usable, use)
        validation.surprises.add(now, sample, kept=moved)
        if use is Use.UPDATE:
            self._update(now)
        else:
            self._learner.poll(now)

    def _keep(self, now: float, valid: np.ndarray, use: Use) -> None:
        """Fit the sample, or hold it out; valid: (nv,) which torques count."""
        sample = self._stream.sample
        if self._diagnosis.suspicion is not None:
            pass  # of which robot it is, is open
        elif use is Use.UPDATE:
            self._validation.predict()
            self._learner.add(sample, valid, now)
        elif use is Use.REMEMBER:
            self._learner.remember(sample, valid)
        else:
            self._validation.held_out.add(sample, valid)
        self._diagnosis.keep(now, valid)

    def _update(self, now: float) -> None:
        validation, diagnosis = self._validation, self._diagnosis
        diagnosis.update(now)
        validation.held_out.tick()
        validation.surprises.update()
        if diagnosis.suspicion is None:
            score = validation.judge(now)
            if score is not None:
                diagnosis.watch(score)
        self.updates += 1

    def note_command(self, commanded: np.ndarray, measured: np.ndarray | None = None) -> None:
        """Take what was commanded until the last sample, (nv,) [N·m or N]: the gate compares it
        with the torque measured then (None: the one that was pushed).
        """
        torques = self._torques
        if torques.due:  # some cycles are enough
            torques.add(commanded, self._measured if measured is None else measured)
