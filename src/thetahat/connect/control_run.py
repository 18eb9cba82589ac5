"""The online loop on a connected robot: identify, gate, control, fall back, and what came of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from thetahat.connect.connection import Connection, require_joints, require_mode
from thetahat.control.computed_torque import ComputedTorque
from thetahat.control.controller import Reference
from thetahat.control.journal import Journal
from thetahat.control.loop import Cycle, Loop, LoopReport
from thetahat.control.loop_timing import Histogram, Quantiles, VirtualClock
from thetahat.control.model_switch import ModelSwitch
from thetahat.control.online_control import Measured, OnlineControl
from thetahat.errors import UsageError, check_positive
from thetahat.excite.trajectories import Moves
from thetahat.excite.trajectory import Motion, Trajectory
from thetahat.model.robot import Robot
from thetahat.online.config import GateRules, MonitorRules, SolverConfig
from thetahat.online.identifier import OnlineIdentifier
from thetahat.online.sample_verdict import Event
from thetahat.plant.tracking import duration_of, reference

HIGHEST_RATE = 20_000.0  # [Hz]
MOST_CYCLES = 50_000_000
LAST = 10.0  # [s] at the end, over which the tracking of the identified model is measured
FAR = 0.3  # [rad or m] of a joint that is not simulated from where it should be: the end
BLOCK = 4096  # cycles whose references are computed at once
REPORT_EVERY = 500  # cycles between two reports of progress
Progress = Callable[[int, int], None]  # cycles done, cycles in all


@dataclass(frozen=True, kw_only=True)
class ControlSettings:
    """Settings of a control run."""

    rate: float = 1000.0  # [Hz] of the loop
    duration: float = 60.0  # [s]
    # [Hz] of the identifier's updates, and samples that fill its buffer; None: derived
    updates: float | None = None
    window: int | None = None
    threshold: float = 0.95
    friction: tuple[str, ...] = ("viscous", "coulomb", "offset")
    payload_link: str | None = None

    def __post_init__(self) -> None:
        for name in ("rate", "duration", "updates"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))
        if self.rate > HIGHEST_RATE:
            raise UsageError(f"rate is {self.rate:g} Hz; give at most {HIGHEST_RATE:g}")
        if self.duration * self.rate > MOST_CYCLES:
            raise UsageError(
                f"{self.duration:g} s at {self.rate:g} Hz are more than {MOST_CYCLES:,} cycles;"
                " give a shorter duration, or run it again from where it ended"
            )


@dataclass(frozen=True, eq=False)
class ControlCycle:
    """What one cycle measured and did."""

    t: float  # [s]
    q: np.ndarray  # (nv,) measured; NaN where no sample came
    error: np.ndarray  # (nv,) wanted − measured
    identified: bool


@dataclass(frozen=True, eq=False)
class StreamOutcome:
    """What the identifier said of a run's samples."""

    gate: tuple[tuple[float, bool, str], ...]  # when it opened or closed, and why
    reason: str  # of the gate's state at the end
    events: tuple[Event, ...]
    counts: dict[str, int]  # of events, by kind

    @property
    def opened_at(self) -> float | None:
        """[s] when the gate first opened."""
        return next((t for t, is_open, _ in self.gate if is_open), None)

    @property
    def open_at_end(self) -> bool:
        """Whether the gate was open at the end."""
        return bool(self.gate) and self.gate[-1][1]


@dataclass(frozen=True, eq=False)
class TrackingErrors:
    """Tracking errors of a run, cycle by cycle."""

    t: np.ndarray  # (n,) [s]
    error: np.ndarray  # (n, nv) wanted − measured position [rad or m]
    identified: np.ndarray  # (n,) bool

    def before_and_after(self) -> tuple[np.ndarray, np.ndarray | None]:
        """RMS error per joint (nv,) before an identified model commanded first, and over the last
        10 s of those cycles in which one did (None where none did).
        """
        first = int(np.argmax(self.identified)) if self.identified.any() else len(self.t)
        before = _rms(self.error[: max(first, 1)])
        if not self.identified.any():
            return before, None
        last = self.identified & (self.t >= self.t[-1] - LAST)
        return before, _rms(self.error[last if last.any() else self.identified])


@dataclass(frozen=True, eq=False)
class ControlResult:
    """What came of a run."""

    nominal: Robot  # as its file says, with the friction terms to identify
    robot: Robot  # the identified one, or the nominal one where the gate never opened
    tracking: TrackingErrors
    stream: StreamOutcome
    notes: tuple[str, ...]  # what was assumed
    max_torque_step: float  # [N·m or N] by switches to identified models
    cycle_us: Quantiles  # computing a command, by the machine's clock
    report: LoopReport | None  # of the loop; None where a page drove it


def _rms(error: np.ndarray) -> np.ndarray:
    return np.asarray(np.sqrt(np.nanmean(error**2, axis=0)))


class ControlRun:
    """A run that is made and not yet over: `run` it, or go through its `cycles`.

    Args:
        robot: as its file says; friction terms to identify are added.
        connection: the robot to drive.
        motion: a `Motion` or a trajectory, repeated until the duration is over.
        settings: `ControlSettings`.
        journal: where everything is written down, or None.
        approach: way from where the robot stands to where the motion begins; None: it is there.

    """

    def __init__(
        self,
        robot: Robot,
        connection: Connection,
        motion: Motion | Trajectory,
        settings: ControlSettings,
        *,
        journal: Journal | None = None,
        approach: Moves | None = None,
    ) -> None:
        require_joints(connection, robot)
        require_mode(connection, "torque")
        self.connection, self.settings = connection, settings
        self.nominal = robot.with_drive(**dict.fromkeys(settings.friction, True))
        place = "update" if connection.simulated else "process"
        self.identifier = OnlineIdentifier(
            self.nominal,
            None,
            settings.updates,
            settings.window,
            settings.threshold,
            solver=SolverConfig(run_in=place),
            gate=GateRules(monitor=MonitorRules(payload_link=settings.payload_link)),
        )
        limits = True if connection.limits is None else connection.limits
        self.controller = ModelSwitch(
            self.identifier, lambda model: ComputedTorque(model, limits=limits)
        )
        self._motion, self._period = motion, duration_of(motion)
        self._approach = approach
        self._lead = 0.0 if approach is None else duration_of(approach)  # [s]
        self.stopped = ""  # why it ended early, in words
        self._goals: tuple[int, Reference] | None = None
        self.count = int(settings.duration * settings.rate)
        self.online = OnlineControl(
            self.identifier, self.controller, wanted=self.wanted, journal=journal
        )
        self._t = np.full(self.count, np.nan)
        self._error = np.full((self.count, robot.nv), np.nan)
        self._identified = np.zeros(self.count, dtype=bool)
        self._gate: list[tuple[float, bool, str]] = []
        self._events: list[Event] = []
        self._report: LoopReport | None = None
        self._cycles_ns = Histogram()
        self._progress: Progress | None = None
        self._done = 0
        self.robot: Robot | None = None  # the last identified model that commanded

    def wanted(self, t: float) -> Reference:
        """The motion at a time [s], which begins anew when it is over."""
        k = round(t * self.settings.rate)
        if self._goals is None or not 0 <= k - self._goals[0] < len(self._goals[1][0]):
            times = (k + np.arange(BLOCK)) / self.settings.rate
            self._goals = k, self._reference(times)
        at, (q, dq, ddq) = k - self._goals[0], self._goals[1]
        return q[at], dq[at], ddq[at]

    def _reference(self, times: np.ndarray) -> Reference:
        """The approach, then the motion again and again."""
        after = np.mod(np.maximum(times - self._lead, 0.0), self._period)
        goals = reference(self._motion, after, self.nominal)
        if self._approach is None or times[0] >= self._lead:
            return goals
        first = reference(self._approach, np.minimum(times, self._lead), self.nominal)
        early = (times < self._lead)[:, None]
        q, dq, ddq = (np.where(early, a, b) for a, b in zip(first, goals, strict=True))
        return q, dq, ddq

    # -- as a loop wants it ------------------------------------------------------------------------

    def __call__(self, cycle: Cycle, sample: Measured) -> np.ndarray:
        """The command of one cycle, (nv,)."""
        began = time.perf_counter_ns()
        tau = self.online(cycle, sample)
        self._cycles_ns.add(time.perf_counter_ns() - began)
        self._record(cycle, np.asarray(sample.q, dtype=float))
        return tau

    def missed(self, cycle: Cycle) -> np.ndarray:
        """The command of a cycle without a sample, (nv,)."""
        tau = self.online.missed(cycle)
        self._record(cycle, np.full(self.nominal.nv, np.nan))
        return tau

    def halt(self) -> np.ndarray:
        """The command to end with, (nv,)."""
        return self.online.halt()

    @property
    def alarms(self) -> tuple[str, ...]:
        """What somebody has to look at."""
        return self.online.alarms

    def _record(self, cycle: Cycle, q: np.ndarray) -> None:
        k, verdict = self._done, self.identifier.verdict
        if k >= self.count:
            return
        self._t[k], self._error[k] = cycle.t, self.wanted(cycle.t)[0] - q
        if not self.connection.simulated and np.nanmax(np.abs(self._error[k]), initial=0.0) > FAR:
            self.stopped = (
                self.stopped or f"a joint is more than {FAR:g} rad or m from where it should be"
            )
        self._identified[k] = self.controller.identified
        if self.controller.identified:
            self.robot = self.controller.robot
        if verdict.gate.open != (self._gate[-1][1] if self._gate else False):
            self._gate.append((cycle.t, verdict.gate.open, verdict.gate.reason))
        self._events.extend(verdict.events)
        self._done += 1
        if self._progress is not None and k % REPORT_EVERY == 0:
            self._progress(k, self.count)

    # -- running -----------------------------------------------------------------------------------

    def run(self, progress: Progress | None = None) -> ControlResult:
        """Run it to its end: as fast as it goes where the robot is simulated, else by the clock."""
        self._progress = progress
        clock = VirtualClock() if self.connection.simulated else None
        self._report = Loop(self.settings.rate, clock=clock).run(
            self._measured,
            self,
            self.connection.write,
            duration=self.settings.duration,
            until=lambda: bool(self.stopped),
        )
        return self.result()

    def _measured(self) -> Measured | None:
        state = self.connection.read()
        if state is not None and state.stopped:
            self.stopped = self.stopped or f"the robot stopped: {state.stopped}"
        return None if state is None else Measured(state.t, state.q, state.dq, state.tau)

    def cycles(self) -> Iterator[ControlCycle]:
        """Go through the cycles of a simulated robot one by one, for a page that paces them."""
        missing = 0
        for k in range(self.count):
            now = Cycle(k, k / self.settings.rate, 0.0, False, missing)
            sample = self._measured()
            missing = missing + 1 if sample is None else 0
            tau = self.missed(now) if sample is None else self(now, sample)
            self.connection.write(tau)
            q = self.wanted(now.t)[0] if sample is None else np.asarray(sample.q)
            yield ControlCycle(now.t, q, self._error[k], self.controller.identified)
        self.connection.write(self.halt())

    def result(self) -> ControlResult:
        """What came of it so far."""
        n = self._done
        return ControlResult(
            nominal=self.nominal,
            robot=self.nominal if self.robot is None else self.robot,
            tracking=TrackingErrors(self._t[:n], self._error[:n], self._identified[:n]),
            stream=StreamOutcome(
                tuple(self._gate),
                self.identifier.gate.reason,
                tuple(self._events),
                dict(self.identifier.events.counts),
            ),
            notes=self.controller.notes,
            max_torque_step=self.controller.max_torque_step,
            cycle_us=self._cycles_ns.quantiles(),
            report=self._report,
        )

    def close(self) -> None:
        """End what runs in the background, and let the robot go."""
        self.identifier.close()
        self.connection.close()
