"""Sources of samples: a running study, a log played back, joint states received, or a robot behind
a connection.

Each yields a `Step` per sample, in time with a `PlaybackClock`.
"""

from __future__ import annotations

import importlib
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from thetahat.connect.connection import Connection, require_joints
from thetahat.connect.control_run import ControlRun
from thetahat.control.model_switch import ModelSwitch
from thetahat.data.log import Log
from thetahat.errors import MalformedInput, UsageError, known
from thetahat.live.joint_states import Sample, require_scalar_joints
from thetahat.model.lock_joints import kept_positions, lock
from thetahat.model.robot import Robot
from thetahat.online.config import FilterConfig, GateRules, MonitorRules, SolverConfig
from thetahat.online.identifier import OnlineIdentifier
from thetahat.studies import STUDIES
from thetahat.studies.closed_loop import Experiment

ROWS = 2048  # of a log that are in memory at once
# [s] between two runs of a log whose stamps do not continue, or only after longer
PAUSE, LONGEST_PAUSE = 0.5, 5.0
WAITING = 20_000  # received samples that may wait to be identified
NEVER = 1e9  # [s]: a gap in a log does not reset the identifier, as a log is of one robot
# [s] that a loop may be early before it sleeps: waking up for every cycle costs more than the cycle
AHEAD = 2e-3
SLICE = 0.05  # [s] of a sleep at most, so that a command is noticed
POLL = 5e-4  # [s] between two looks at a robot that has no new sample
BEHIND = 0.25  # [s] that a loop may be late and still catch up


class PlaybackClock:
    """Waits until it is time for a sample: wall time times `speed`, and not while paused.

    idle: called during long waits. late: [s] by which the work fell behind the wall clock.
    """

    def __init__(self, speed: float = 1.0, *, idle: Callable[[], None] = lambda: None) -> None:
        self.speed, self.late, self.idle = speed, 0.0, idle
        self._stopped, self._running = threading.Event(), threading.Event()
        self._running.set()
        self._zero: float | None = None  # where t = 0 is on the wall clock

    @property
    def paused(self) -> bool:
        """Whether time stands still."""
        return not self._running.is_set()

    @property
    def stopped(self) -> bool:
        """Whether it was stopped."""
        return self._stopped.is_set()

    def pause(self) -> None:
        """Stand still."""
        self._running.clear()

    def resume(self) -> None:
        """Go on."""
        self._running.set()

    def stop(self) -> None:
        """Wake up whoever waits, for good."""
        self._stopped.set()
        self._running.set()

    def wait(self, t: float) -> bool:
        """Wait until it is time for t [s]; whether to go on."""
        if self.paused:
            while not self._running.wait(SLICE):
                self.idle()
            self._zero = None
        zero = time.monotonic() - t / self.speed if self._zero is None else self._zero
        while not self.stopped:
            early = zero + t / self.speed - time.monotonic()
            if early < -BEHIND:
                self.late -= early
                zero -= early
            self._zero = zero
            if early < AHEAD:
                return True
            if early > SLICE:
                self.idle()
                if self.paused:
                    return self.wait(t)
            time.sleep(min(early, SLICE))
        return False


class Step(NamedTuple):
    """Result of one sample; arrays may be the source's own until the next step."""

    t: float  # [s]
    q: np.ndarray  # (nq,) measured
    error: np.ndarray | None  # (nv,) desired − true position
    identified: bool  # whether an identified model commands
    took: int  # [ns] of this thread's processor time


@dataclass(frozen=True)
class Settings:
    """Settings of the online identifier of a log or of received joint states."""

    # [Hz] of updates, and samples that fill the buffer; None: derived
    rate: float | None = None
    window: int | None = None
    threshold: float = 0.95
    cutoff: float = 10.0  # [Hz]
    friction: tuple[str, ...] = ("viscous", "coulomb", "offset")
    payload_link: str | None = None


class Source(ABC):
    """Samples of one robot, and the identifier that takes them."""

    mode: str
    tracks = False  # whether there is a desired motion, so that there are errors
    controller: object | None = None

    def __init__(
        self, title: str, nominal: Robot, identifier: OnlineIdentifier, rate: float
    ) -> None:
        self.title, self.nominal, self.identifier, self.rate = title, nominal, identifier, rate
        self.findings: tuple[str, ...] = ()  # of the log's audit
        self.provenance: dict[str, Any] = {}  # for estimate.json
        self.locked: tuple[str, ...] = ()  # joints that are not measured

    @property
    def forcible(self) -> bool:
        """Whether its controller can be forced to the nominal model."""
        return isinstance(self.controller, ModelSwitch)

    @property
    def lost(self) -> int:
        """Samples that arrived and could not be queued."""
        return 0

    @abstractmethod
    def steps(self, clock: PlaybackClock) -> Iterator[Step]:
        """Yield the samples, in order and in time."""


class Study(Source):
    """One of the paper's experiments, in real time or faster."""

    mode, tracks = "study", True

    def __init__(self, title: str, made: Experiment) -> None:
        super().__init__(title, made.nominal, made.identifier, made.loop.rate)
        self.controller, self._loop = made.controller, made.loop

    @staticmethod
    def named(name: str, engine: str, *, seed: int = 0) -> Study:
        """Return the study of that name on a simulated robot."""
        if name not in STUDIES:
            raise UsageError(f"study {name!r} is unknown; studies: {known(STUDIES)}")
        module = importlib.import_module(f"thetahat.studies.{STUDIES[name]}")
        return Study(name, module.experiment(engine, seed=seed))

    def steps(self, clock: PlaybackClock) -> Iterator[Step]:
        """Yield the cycles of the control loop."""
        for cycle in self._loop.cycles():
            error = cycle.wanted[0] - cycle.true
            yield Step(cycle.t, cycle.q, error, cycle.identified, cycle.took)
            if not clock.wait(cycle.t):
                return


class Controlled(Source):
    """The online loop on a simulated robot, in real time; `over` is set when it has ended."""

    mode, tracks = "control", True

    def __init__(self, run: ControlRun) -> None:
        super().__init__(run.nominal.name, run.nominal, run.identifier, run.settings.rate)
        self.controller, self._run, self.over = run.controller, run, threading.Event()

    def steps(self, clock: PlaybackClock) -> Iterator[Step]:
        """Yield the cycles of the control loop."""
        cpu = time.thread_time_ns
        begun = cpu()
        try:
            for cycle in self._run.cycles():
                yield Step(cycle.t, cycle.q, cycle.error, cycle.identified, cpu() - begun)
                if not clock.wait(cycle.t):
                    return
                begun = cpu()
        finally:
            self.over.set()


class Replay(Source):
    """A log, row by row at the pace of its own timestamps, causally."""

    mode = "replay"

    def __init__(self, robot: Robot, log: Log, settings: Settings) -> None:
        if not log.has_tau:
            raise MalformedInput(
                f"{log.sources[0].path} has no torque columns, so there is nothing to identify"
                " from; name them tau.<joint>"
            )
        self._log, nominal = log, lock(robot, log.locked)
        self._q, self._v = kept_positions(robot, log.locked)
        rate = 1.0 / float(np.median([run.period for run in log.runs]))
        # Solved in the update itself, so that the result is the same at any speed.
        identifier = _identifier(nominal, settings, reset_after=NEVER)
        title = ", ".join(_name(source.path) for source in log.sources[:3])
        super().__init__(title, nominal, identifier, rate)
        self.findings, self.locked = tuple(finding.message for finding in log.findings), log.locked
        logs = [{"path": source.path, "sha256": source.sha256} for source in log.sources]
        self.provenance = {"logs": logs, "settings": _as_data(settings)}

    def steps(self, clock: PlaybackClock) -> Iterator[Step]:
        """Yield every row; the timestamps of a later run continue the one before."""
        cpu, now, run, offset = time.thread_time_ns, -PAUSE, -1, np.inf
        for chunk in self._log.chunks(ROWS):
            if chunk.run != run and not 0.0 < float(chunk.t[0]) + offset - now <= LONGEST_PAUSE:
                offset = now + PAUSE - float(chunk.t[0])
            run = chunk.run
            if chunk.tau is None:
                raise MalformedInput(f"{self.title} has rows without torques")
            q = np.ascontiguousarray(chunk.q[:, self._q])
            tau = np.ascontiguousarray(chunk.tau[:, self._v])
            dq = None if chunk.dq is None else np.ascontiguousarray(chunk.dq[:, self._v])
            ddq = None if chunk.ddq is None else np.ascontiguousarray(chunk.ddq[:, self._v])
            if not (self._log.has_dq and self._log.has_ddq):
                ddq = None
            for k, t in enumerate((chunk.t + offset).tolist()):
                if not clock.wait(t):
                    return
                begun = cpu()
                velocity = None if dq is None else dq[k]
                acceleration = None if ddq is None else ddq[k]
                self.identifier.push(t, q[k], velocity, tau[k], acceleration)
                yield Step(t, q[k], None, self.identifier.gate.open, cpu() - begun)
                now = t


class Listen(Source):
    """Joint states received over a WebSocket; `offer` queues them from the receiving thread."""

    mode = "listen"

    def __init__(self, robot: Robot, settings: Settings, *, rate: float = 1000.0) -> None:
        require_scalar_joints(robot)
        # Semidefinite programs are solved in a process of their own, so that no sample waits.
        super().__init__(robot.name, robot, _identifier(robot, settings, run_in="process"), rate)
        self._queue: deque[Sample] = deque()
        self._available = threading.Event()
        self._lost, self.received = 0, 0
        self.provenance = {"settings": _as_data(settings)}

    @property
    def lost(self) -> int:
        """Samples that arrived while the queue was full."""
        return self._lost

    def offer(self, sample: Sample) -> bool:
        """Queue a sample to be identified; False where there is no room left."""
        self.received += 1
        if len(self._queue) >= WAITING:
            self._lost += 1
            return False
        self._queue.append(sample)
        self._available.set()
        return True

    def steps(self, clock: PlaybackClock) -> Iterator[Step]:
        """Yield samples until it is stopped; identification goes on while the page is paused."""
        cpu, queue, identifier = time.thread_time_ns, self._queue, self.identifier
        first: float | None = None
        while not clock.stopped:
            if not queue:
                self._available.wait(SLICE)
                self._available.clear()
                clock.idle()
                continue
            sample = queue.popleft()
            first = sample.t if first is None else first
            begun = cpu()
            identifier.push(sample.t - first, sample.q, sample.dq, sample.tau)
            yield Step(identifier.clock, sample.q, None, identifier.gate.open, cpu() - begun)


class Connected(Source):
    """A robot behind a connection, which is only read; `steps` closes it."""

    mode = "connection"

    def __init__(
        self, robot: Robot, connection: Connection, settings: Settings, *, rate: float = 1000.0
    ) -> None:
        require_scalar_joints(robot)
        require_joints(connection, robot)
        super().__init__(robot.name, robot, _identifier(robot, settings, run_in="process"), rate)
        self._connection, self._lost = connection, 0
        self.provenance = {"settings": _as_data(settings)}

    @property
    def lost(self) -> int:
        """Samples that could not be believed."""
        return self._lost

    def steps(self, clock: PlaybackClock) -> Iterator[Step]:
        """Yield samples until it is stopped; identification goes on while the page is paused."""
        cpu, identifier, joints = time.thread_time_ns, self.identifier, self.nominal.nv
        first: float | None = None
        looked = time.monotonic()
        try:
            while not clock.stopped:
                state = self._connection.read()
                if state is None or not state.is_valid(joints):
                    self._lost += state is not None
                    if time.monotonic() - looked > SLICE:
                        looked = time.monotonic()
                        clock.idle()
                    time.sleep(POLL)
                    continue
                first = state.t if first is None else first
                begun = cpu()
                identifier.push(state.t - first, state.q, state.dq, state.tau)
                yield Step(identifier.clock, state.q, None, identifier.gate.open, cpu() - begun)
        finally:
            self._connection.close()


def _identifier(
    robot: Robot, settings: Settings, *, reset_after: float = 1.0, run_in: str = "update"
) -> OnlineIdentifier:
    terms = dict.fromkeys(settings.friction, True)
    return OnlineIdentifier(
        robot.with_drive(**terms) if terms else robot,
        None,
        settings.rate,
        settings.window,
        settings.threshold,
        filter=FilterConfig(cutoff=settings.cutoff, reset_after=reset_after),
        solver=SolverConfig(run_in=run_in),
        gate=GateRules(monitor=MonitorRules(payload_link=settings.payload_link)),
    )


def _as_data(settings: Settings) -> dict[str, Any]:
    names = ("rate", "window", "threshold", "cutoff")
    return {name: getattr(settings, name) for name in names}


def _name(path: str) -> str:
    return path.replace("\\", "/").rsplit("/", 1)[-1]
