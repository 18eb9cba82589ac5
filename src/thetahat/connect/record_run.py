"""A recording campaign: screened, played or only watched, recorded, and checked."""

from __future__ import annotations

import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from thetahat.connect.connection import Connection, RobotState, require_joints, require_mode
from thetahat.connect.playback import (
    RAMP,
    Part,
    Playback,
    first_position,
    parts_of,
    ramp,
)
from thetahat.connect.recording_file import (
    PASSIVE,
    Recorded,
    RecordingFile,
    fingerprint,
    journal_path,
    read_recording,
    remove_journal,
    write_recording,
)
from thetahat.connect.safety_monitor import SafetyLimits, SafetyMonitor, played_efforts
from thetahat.connect.screening import Screen
from thetahat.control.computed_torque import ComputedTorque
from thetahat.control.loop import Cycle, Loop
from thetahat.control.loop_timing import VirtualClock
from thetahat.errors import RefusedForSafety, ThetahatError, UsageError, check_positive
from thetahat.excite.trajectories import Moves
from thetahat.excite.trajectory import Motion
from thetahat.identification.verdict import Verdict
from thetahat.model.robot import Robot
from thetahat.pipeline.identify import identify
from thetahat.pipeline.settings import IdentifySettings

LOST = 0.05  # [s] without a sample, after which the robot is held
FIRST = 5.0  # [s] within which the first sample must come
RAMP_SHARE = 0.3  # of the speed limits on the way to the start
CLOSED = 1e-3  # [rad or m] between a motion's end and begin that needs no way back
SAME = 1e-6  # [s]
OPERATOR = "the operator stopped it"
Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class RecordSettings:
    """Settings of a recording."""

    rate: float = 500.0  # [Hz] of samples and commands
    warm_up: float = 0.5  # speed of the first, slow play relative to the motion's own; 0: none
    seconds: float | None = None  # of a recording without a motion
    resume: bool = False  # go on with an interrupted recording
    safety: SafetyLimits = field(default_factory=SafetyLimits)

    def __post_init__(self) -> None:
        check_positive("rate", self.rate)
        if not 0.0 <= self.warm_up < 1.0:
            raise UsageError(
                f"warm_up is {self.warm_up!r}; give a speed relative to the motion's own, from 0"
                " (none) to less than 1"
            )
        if self.seconds is not None:
            check_positive("seconds", self.seconds)


@dataclass(frozen=True, eq=False)
class Recording:
    """What came of a recording."""

    log: Path
    recorded: Recorded
    complete: bool
    ended: str  # why, in words
    missed: int  # cycles without a sample
    alarms: tuple[str, ...]  # samples that a full disk lost


def require_new(log: Path, *, resume: bool) -> None:
    """Refuse to write over an interrupted recording."""
    path = journal_path(log)
    if path.exists() and not resume:
        raise UsageError(
            f"{path} holds an interrupted recording; --resume goes on with it, --salvage writes"
            " what it holds to the log, or remove it"
        )


class RecordRun:
    """A recording on a connected robot.

    Args:
        robot: as its file says.
        connection: the robot.
        motion: to play; None: the robot is only watched.
        screen: the limits that everything played is held against.
        log: file to write.
        settings: `RecordSettings`.

    """

    def __init__(
        self,
        robot: Robot,
        connection: Connection,
        motion: Motion | None,
        screen: Screen | None,
        log: Path,
        settings: RecordSettings,
    ) -> None:
        require_joints(connection, robot)
        if motion is not None:
            require_mode(connection, "position", "torque")
        self.robot, self.connection, self.motion = robot, connection, motion
        self.screen, self.log, self.settings = screen, log, settings
        self._pending: RobotState | None = None  # the first sample

    def run(self, progress: Progress | None = None) -> Recording:
        """Record; the robot is left held whatever happens."""
        try:
            sample = self._first()
            motion = self.motion
            parts = None if motion is None else self._parts(motion, sample)
            file = RecordingFile(self.log, self.robot, fingerprint(motion), self.settings.rate)
            try:
                ended, missed = self._played(sample, parts, file, progress)
            except ThetahatError as error:  # of the connection: what was recorded stays
                if not file.rows:
                    raise
                ended, missed = str(error), 0
            finally:
                file.close()
        finally:
            self.connection.close()
        recorded = read_recording(self.log, self.robot)
        write_recording(recorded, self.log, self.robot)
        if not ended:
            remove_journal(self.log)
        return Recording(
            self.log, recorded, not ended, ended or "all was recorded", missed, file.alarms
        )

    def _first(self) -> RobotState:
        """The first sample that can be believed."""
        until = time.monotonic() + FIRST
        while time.monotonic() < until:
            sample = self._read()
            if sample is not None:
                return sample
            time.sleep(1e-3)
        raise RefusedForSafety(
            f"no sample that can be believed came within {FIRST:g} s; nothing was commanded: check"
            " that the robot is on, and its driver"
        )

    def _read(self) -> RobotState | None:
        """A sample of the right size with finite numbers; others count as missing."""
        sample = self.connection.read()
        return sample if sample is not None and sample.is_valid(self.robot.nv) else None

    # -- what is played ----------------------------------------------------------------------------

    def _parts(self, motion: Motion, sample: RobotState) -> list[Part]:
        """The way to the start, then the motion slowly and at speed; all of it is screened."""
        assert self.screen is not None
        self.screen.check(motion)
        at = (RAMP, 0.0)
        if self.settings.resume:
            before = read_recording(self.log, self.robot)
            if before.motion != fingerprint(motion):
                raise UsageError(
                    f"{journal_path(self.log)} is a recording of another motion; give that one, or"
                    " another --out"
                )
            at = before.at
        ends = [first_position(motion, s, self.robot) for s in (0.0, motion.t[-1] - motion.t[0])]
        back = None
        if np.max(np.abs(ends[1] - ends[0])) > CLOSED:
            back = self._way(ends[1], ends[0], "the way from the motion's end to its begin")
        parts = parts_of(motion, warm_up=self.settings.warm_up, back=back, at=at)
        start = first_position(motion, parts[0].begin, self.robot)
        way = self._way(
            sample.q,
            start,
            "the straight way from where the robot stands to the start (move the robot nearer to"
            " it)",
        )
        return [Part(RAMP, way), *parts]

    def _way(self, q: np.ndarray, to: np.ndarray, what: str) -> Moves:
        assert self.screen is not None
        way = ramp(self.robot, q, to, self.screen.limits.velocity, RAMP_SHARE)
        self.screen.check(way, what)
        return way

    # -- playing -----------------------------------------------------------------------------------

    def _played(
        self,
        sample: RobotState,
        parts: list[Part] | None,
        file: RecordingFile,
        progress: Progress | None,
    ) -> tuple[str, int]:
        """Play or watch; why it ended early, "" where it did not, and samples that were missed."""
        rate = self.settings.rate
        clock = VirtualClock() if self.connection.simulated else None
        loop = Loop(rate, clock=clock, stop_after=max(2, round(LOST * rate)), signals=False)
        if parts is None:
            return self._watched(loop, file, progress)
        robot = self.robot
        law = ComputedTorque(robot) if self.connection.mode == "torque" else None
        safety = self.settings.safety
        if safety.torque is None and self.motion is not None:
            safety = replace(safety, torque=played_efforts(robot, self.motion))
        monitor = SafetyMonitor(robot, safety, rate)
        play = Playback(robot, self.connection, parts, monitor, rate=rate, record=file.add, law=law)
        total = round(play.total * rate)
        self._pending = sample

        def read() -> RobotState | None:
            first, self._pending = self._pending, None
            if progress is not None and file.rows % 100 == 0:
                progress(min(round(play.done * rate), total), total)
            return self._read() if first is None else first

        with stopped_by_signals(play.stop, play.toggle_pause):
            report = loop.run(read, play, self.connection.write, until=lambda: play.ended)
        if play.finished and not play.reason:
            return "", report.held
        if play.reason:
            return play.reason, report.held
        return f"{report.reason}, so the robot was held: check its driver and network", report.held

    def _watched(
        self, loop: Loop, file: RecordingFile, progress: Progress | None
    ) -> tuple[str, int]:
        seconds = self.settings.seconds
        nothing = np.full(self.robot.nv, np.nan)
        total = round((seconds or 0.0) * self.settings.rate)
        asked: list[str] = []

        def control(cycle: Cycle, state: RobotState) -> None:
            file.add(PASSIVE, cycle.t, state, nothing)
            if progress is not None and file.rows % 100 == 0:
                progress(min(file.rows, total), total)

        with stopped_by_signals(asked.append):
            report = loop.run(
                self._read, control, lambda _: None, duration=seconds, until=lambda: bool(asked)
            )
        lost = "in a row are missing" in report.reason
        return (report.reason if lost else ""), report.held


@contextmanager
def stopped_by_signals(
    stop: Callable[[str], None], toggle_pause: Callable[[], None] | None = None
) -> Iterator[None]:
    """Ctrl-C and SIGTERM stop in order, the second one at once; SIGUSR1 pauses and goes on."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = {
        number: signal.getsignal(number)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    }

    def end(number: int, frame: object) -> None:
        stop(OPERATOR)
        signal.signal(number, kept[signal.Signals(number)])

    def pause(number: int, frame: object) -> None:
        if toggle_pause is not None:
            toggle_pause()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    signal.signal(signal.SIGUSR1, pause)
    try:
        yield
    finally:
        for caught, before in kept.items():
            signal.signal(caught, before)


def check_log(robot: Robot, log: Path, friction: tuple[str, ...]) -> Verdict:
    """Whether a log suffices: the verdict of an identification with defaults."""
    settings = IdentifySettings(friction=friction, report=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return identify(robot, log, settings=settings).verdict
