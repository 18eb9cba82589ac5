"""Where samples come from: a study that runs, a log that is played, or joint states from outside.
Each yields a `Beat` per sample.
"""

from __future__ import annotations

import importlib
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from thetahat.control.model_switch import ModelSwitch
from thetahat.data.log import Log
from thetahat.errors import MalformedInput, UsageError, known
from thetahat.live.joint_states import Sample, require_plain
from thetahat.live.playback_clock import SLICE, Pace
from thetahat.model.lock_joints import kept_positions, lock
from thetahat.model.robot import Robot
from thetahat.online.config import FilterConfig, GateRules, MonitorRules, SolverConfig
from thetahat.online.identifier import OnlineIdentifier
from thetahat.studies.arm import Experiment

STUDIES = {"double-pendulum": "double_pendulum", "leg": "leg", "arm": "arm", "valkyrie": "valkyrie"}
ROWS = 2048  # of a log that are in memory at once
PAUSE, LONGEST = (
    0.5,
    5.0,
)  # [s] between two runs of a log whose stamps do not go on, or only after longer
WAITING = 20_000  # samples from outside that may wait to be identified
FOR_EVER = 1e9  # [s]: a gap in a log is no reason to forget, as a log is of one robot


class Beat(NamedTuple):
    """What a sample brought; arrays may be the source's own until the next beat."""

    t: float  # [s]
    q: np.ndarray  # (nq,) measured
    error: np.ndarray | None  # (nv,) wanted − true position
    identified: bool  # whether an identified model commands
    took: int  # [ns] of this thread's processor time


@dataclass(frozen=True)
class Settings:
    """Of the identifier of a log or of joint states from outside."""

    rate: float = 3.0  # [Hz] of updates
    window: int = 50
    threshold: float = 0.95
    cutoff: float = 10.0  # [Hz]
    friction: tuple[str, ...] = ("viscous", "coulomb", "offset")
    payload_link: str | None = None


class Source(ABC):
    """Samples of one robot, and the identifier that takes them."""

    mode: str
    wanted = False  # whether there is a motion to follow, so that there are errors
    controller: Any = None

    def __init__(
        self, title: str, nominal: Robot, identifier: OnlineIdentifier, rate: float
    ) -> None:
        self.title, self.nominal, self.identifier, self.rate = title, nominal, identifier, rate
        self.findings: tuple[str, ...] = ()  # sentences to begin with
        self.provenance: dict[str, Any] = {}  # of what is identified, for estimate.json
        self.locked: tuple[str, ...] = ()  # joints that are not measured, and held still

    @property
    def robot(self) -> Robot:
        """With the drive terms that are identified."""
        return self.identifier.nominal

    @property
    def forcible(self) -> bool:
        """Whether its controller can be held to the nominal model."""
        return isinstance(self.controller, ModelSwitch)

    @property
    def lost(self) -> int:
        """Samples that came and could not be taken."""
        return 0

    @abstractmethod
    def beats(self, pace: Pace) -> Iterator[Beat]:
        """The samples, in order and in time."""


class Study(Source):
    """One of the paper's experiments, in real time or faster."""

    mode, wanted = "study", True

    def __init__(self, title: str, made: Experiment) -> None:
        super().__init__(title, made.nominal, made.identifier, made.loop.rate)
        self.controller, self._loop = made.controller, made.loop

    @staticmethod
    def named(name: str, engine: str, *, seed: int = 0) -> Study:
        """The study of that name on a simulated robot."""
        if name not in STUDIES:
            raise UsageError(f"study {name!r} is unknown; studies: {known(STUDIES)}")
        return Study(
            name,
            importlib.import_module(f"thetahat.studies.{STUDIES[name]}").experiment(
                engine, seed=seed
            ),
        )

    def beats(self, pace: Pace) -> Iterator[Beat]:
        """From the motion's beginning to its end."""
        for cycle in self._loop.cycles():
            yield Beat(cycle.t, cycle.q, cycle.wanted[0] - cycle.true, cycle.identified, cycle.took)
            if not pace.wait(cycle.t):
                return


class Replay(Source):
    """A log, row by row at the pace of its own stamps; nothing of what follows is known."""

    mode = "replay"

    def __init__(self, robot: Robot, log: Log, settings: Settings) -> None:
        if not log.has_tau:
            raise MalformedInput(
                f"{log.sources[0].path} has no torque columns, so there is nothing to identify"
                " from; name them tau.<joint>"
            )
        self._log, nominal = log, lock(robot, log.locked)
        self._q, self._v = kept_positions(robot, log.locked)
        period = float(np.median([run.period for run in log.runs]))
        identifier = _identifier(
            nominal, settings, reset_after=FOR_EVER
        )  # solved in the update itself: the same at any speed
        super().__init__(
            ", ".join(_name(source.path) for source in log.sources[:3]),
            nominal,
            identifier,
            1.0 / period,
        )
        self.findings, self.locked = tuple(finding.message for finding in log.findings), log.locked
        self.provenance = {
            "logs": [{"path": source.path, "sha256": source.sha256} for source in log.sources],
            "settings": _told(settings),
        }

    def beats(self, pace: Pace) -> Iterator[Beat]:
        """Every row; the stamps of a later run go on from the one before."""
        clock, now, run, offset = time.thread_time_ns, -PAUSE, -1, np.inf
        for chunk in self._log.chunks(ROWS):
            if chunk.run != run and not 0.0 < float(chunk.t[0]) + offset - now <= LONGEST:
                offset = now + PAUSE - float(chunk.t[0])
            run = chunk.run
            q, tau = (
                np.ascontiguousarray(chunk.q[:, self._q]),
                np.ascontiguousarray(chunk.tau[:, self._v]),
            )
            dq, ddq = (
                None if array is None else np.ascontiguousarray(array[:, self._v])
                for array in (chunk.dq, chunk.ddq)
            )
            if not (self._log.has_dq and self._log.has_ddq):
                ddq = None
            for k, t in enumerate((chunk.t + offset).tolist()):
                if not pace.wait(t):
                    return
                begun = clock()
                self.identifier.push(
                    t, q[k], None if dq is None else dq[k], tau[k], None if ddq is None else ddq[k]
                )
                yield Beat(t, q[k], None, self.identifier.gate.open, clock() - begun)
                now = t


class Listen(Source):
    """Joint states as they come from outside; `offer` takes them, in the thread of whoever receives
    them.
    """

    mode = "listen"

    def __init__(self, robot: Robot, settings: Settings, *, rate: float = 1000.0) -> None:
        require_plain(robot)
        # Semidefinite programs are solved in a process of their own, so that no sample waits.
        super().__init__(robot.name, robot, _identifier(robot, settings, run_in="process"), rate)
        self._queue: deque[Sample] = deque()
        self._there = threading.Event()
        self._lost, self.received = 0, 0
        self.provenance = {"settings": _told(settings)}

    @property
    def lost(self) -> int:
        """Samples that came faster than they could be identified, for so long that there was no
        room left.
        """
        return self._lost

    def offer(self, sample: Sample) -> bool:
        """Take a sample to be identified; False where there is no room left."""
        self.received += 1
        if len(self._queue) >= WAITING:
            self._lost += 1
            return False
        self._queue.append(sample)
        self._there.set()
        return True

    def beats(self, pace: Pace) -> Iterator[Beat]:
        """Until it is stopped; identification goes on while the page is paused."""
        clock, first, queue = time.thread_time_ns, None, self._queue
        while not pace.stopped:
            if not queue:
                self._there.wait(SLICE)
                self._there.clear()
                pace.idle()
                continue
            sample = queue.popleft()
            first = sample.t if first is None else first
            begun = clock()
            self.identifier.push(sample.t - first, sample.q, sample.dq, sample.tau)
            yield Beat(
                self.identifier.clock, sample.q, None, self.identifier.gate.open, clock() - begun
            )


def _identifier(
    robot: Robot, settings: Settings, *, reset_after: float = 1.0, run_in: str = "update"
) -> OnlineIdentifier:
    model = (
        robot.with_drive(**dict.fromkeys(settings.friction, True)) if settings.friction else robot
    )
    return OnlineIdentifier(
        model,
        None,
        settings.rate,
        settings.window,
        settings.threshold,
        filter=FilterConfig(cutoff=settings.cutoff, reset_after=reset_after),
        solver=SolverConfig(run_in=run_in),
        gate=GateRules(monitor=MonitorRules(payload_link=settings.payload_link)),
    )


def _told(settings: Settings) -> dict[str, Any]:
    return {
        "rate": settings.rate,
        "window": settings.window,
        "threshold": settings.threshold,
        "cutoff": settings.cutoff,
    }


def _name(path: str) -> str:
    return path.replace("\\", "/").rsplit("/", 1)[-1]
