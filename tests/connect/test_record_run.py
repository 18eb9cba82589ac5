"""A recording on a robot: what is refused, what ends it, what is left of it after a kill -9."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from plant_cases import load

import thetahat as th
from thetahat.connect import sim_server
from thetahat.connect.connection import RobotState
from thetahat.connect.planted_faults import PlantedFault
from thetahat.connect.record_run import RecordRun, RecordSettings, require_new
from thetahat.connect.recording_file import journal_path, read_recording
from thetahat.connect.safety_monitor import SafetyLimits
from thetahat.connect.screening import Screen
from thetahat.connect.sim import PlantedDifferences, SimulatedRobot
from thetahat.connect.sim_process import SimulatedConnection
from thetahat.connect.sim_server import SETTLE, SimulationSetup
from thetahat.dynamics import rigid_body
from thetahat.errors import RefusedForSafety, UsageError
from thetahat.excite.trajectories import Moves
from thetahat.excite.trajectory import Motion

RATE = 200.0  # [Hz]
LOST = 0.1  # [s] of samples that a kill may cost
KILLS = 2  # moments; the slow test has 30


def motion(seconds: float = 2.0, reach: float = 0.5) -> Motion:
    """All joints to and fro."""
    robot = load("arm4")
    begin = np.array([0.2, 0.4, -0.3, 0.9])
    points = begin + reach * np.array([[0, 0, 0, 0], [1, 0.6, -1, 0.5], [0, 0, 0, 0]])
    return Moves(robot.joint_names, points, np.full(2, seconds / 2.0), 0.0).sampled(RATE)


def robot_with(fault: PlantedFault | None = None, mode: str = "position") -> SimulatedRobot:
    robot = SimulatedRobot.of(
        load("arm4"), PlantedDifferences(), engine="own", rate=RATE, mode=mode, fault=fault
    )
    robot.start(np.array([0.0, 0.3, 0.0, 0.8]))
    return robot


def screen(**options: object) -> Screen:
    return Screen.of(load("arm4"), **options)  # type: ignore[arg-type]


def run(
    connection: object, log: Path, played: Motion | None = None, **options: object
) -> RecordRun:
    settings = RecordSettings(rate=RATE, **({"warm_up": 0.0} | options))  # type: ignore[arg-type]
    return RecordRun(
        load("arm4"), connection, motion() if played is None else played, screen(), log, settings
    )  # type: ignore[arg-type]


def is_held(robot: SimulatedRobot) -> bool:
    """Whether it stands, and stays where it is for two seconds."""
    for _ in range(round(0.5 * RATE)):
        robot.advance()
    at = robot.plant.state.q
    for _ in range(round(2.0 * RATE)):
        robot.advance()
    state = robot.plant.state
    return bool(np.max(np.abs(state.dq)) < 1e-3 and np.max(np.abs(state.q - at)) < 1e-3)


@pytest.mark.parametrize("mode", ["position", "torque"])
def test_a_motion_is_played_slowly_then_at_speed_and_recorded_whole(
    mode: str, tmp_path: Path
) -> None:
    robot, log = robot_with(mode=mode), tmp_path / "log.parquet"
    recording = run(robot, log, warm_up=0.5).run()
    assert recording.complete, recording.ended
    assert is_held(robot)
    assert not journal_path(log).exists()
    read = th.read_log(log, load("arm4"))
    seconds = {each.name.split("-", 1)[1]: each.rows / RATE for each in read.runs}
    assert set(seconds) == {"ramp", "warm-up", "motion"}
    assert seconds["warm-up"] == pytest.approx(4.0, abs=0.05)
    assert seconds["motion"] == pytest.approx(2.0, abs=0.05)
    rows = np.array([name.endswith("motion") for name in recording.recorded.seg])
    wanted = motion()
    off = recording.recorded.cmd[rows][: len(wanted)] - wanted.q[: rows.sum()]
    assert np.max(np.abs(off)) < 1e-6, "the very motion"
    followed = recording.recorded.q[rows] - recording.recorded.cmd[rows]
    assert np.max(np.abs(followed)) < (0.02 if mode == "position" else 0.12)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (PlantedFault("blocked", 2.0, "elbow"), "elbow"),
        (PlantedFault("frozen", 2.0, "elbow"), "encoder"),
        (PlantedFault("silent", 2.0, seconds=0.2), "samples in a row are missing"),
        (PlantedFault("hot", 1.2, "arm_yaw"), "arm_yaw has 70 °C"),
    ],
)
def test_faults_end_the_motion_with_a_sentence_and_the_robot_held(
    fault: PlantedFault, words: str, tmp_path: Path
) -> None:
    robot, log = robot_with(fault), tmp_path / "log.csv"
    recording = run(robot, log, motion(reach=0.8), safety=SafetyLimits(max_error=0.1)).run()
    assert not recording.complete
    assert words in recording.ended
    assert is_held(robot)
    assert recording.recorded.t[-1] > fault.time - 0.1, "what came before is kept"
    assert recording.recorded.t[-1] < 3.4, "and it ended soon"
    assert len(th.read_log(log, load("arm4"))) == len(recording.recorded.t)


class Interrupted(SimulatedRobot):
    """A robot whose operator presses Ctrl-C after some samples."""

    after = 500

    def read(self) -> RobotState | None:
        self.after -= 1
        if self.after == 0:
            os.kill(os.getpid(), signal.SIGINT)
        return super().read()


def test_ctrl_c_slows_down_on_the_path_and_the_rest_is_recorded_later(tmp_path: Path) -> None:
    robot, log = robot_with(), tmp_path / "log.csv"
    robot.__class__ = Interrupted
    recording = run(robot, log).run()
    assert recording.ended == "the operator stopped it"
    assert is_held(robot)
    acceleration = np.diff(recording.recorded.cmd, n=2, axis=0) * RATE**2
    assert np.max(np.abs(acceleration)) < 15.0, "no jerk of the command"
    before = len(recording.recorded.t)
    with pytest.raises(UsageError, match="--resume"):
        require_new(log, resume=False)
    other = robot_with()
    with pytest.raises(UsageError, match="another motion"):
        run(other, log, motion(reach=0.4), resume=True).run()
    assert is_held(other)
    rest = run(robot_with(), log, resume=True).run()
    assert rest.complete
    assert len(rest.recorded.t) > before, "what was recorded stays"
    played = np.array([name.endswith("motion") for name in rest.recorded.seg])
    at = rest.recorded.cmd[played]
    gaps = [np.min(np.abs(at - q).max(axis=1)) for q in motion().q[::10]]
    assert max(gaps) < 0.02, "all of the motion is there"


class Hostile(SimulatedRobot):
    """A robot whose driver sends nonsense after some samples."""

    kind, after = "", 300

    def read(self) -> RobotState | None:
        self.after -= 1
        state = super().read()
        if self.after > 0 or state is None:
            return state
        if self.kind == "renamed":
            raise RefusedForSafety("the topic now has other joints")
        nan = np.full(4, np.nan)
        return {
            "not a number": RobotState(state.t, nan, state.dq, state.tau),
            "huge": RobotState(state.t, np.zeros(1_000_000), state.dq, state.tau),
            "infinite": RobotState(float("inf"), state.q, state.dq, state.tau),
            "elsewhere": RobotState(state.t, state.q + 2.0, state.dq, state.tau),
            "stopped": RobotState(state.t, state.q, state.dq, state.tau, None, "its guard is open"),
        }[self.kind]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("not a number", "missing"),
        ("huge", "missing"),
        ("infinite", "missing"),
        ("elsewhere", "does not follow"),
        ("stopped", "its guard is open"),
        ("renamed", "other joints"),
    ],
)
def test_nonsense_ends_in_a_sentence_and_never_in_a_command(
    kind: str, words: str, tmp_path: Path
) -> None:
    robot = robot_with()
    robot.__class__, robot.kind = Hostile, kind  # type: ignore[assignment, attr-defined]
    recording = run(robot, tmp_path / "log.csv").run()
    assert words in recording.ended
    assert is_held(robot)
    assert np.all(np.isfinite(recording.recorded.q))


def test_a_robot_that_never_speaks_sense_is_commanded_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thetahat.connect.record_run.FIRST", 0.5)
    silent = robot_with()
    silent.__class__, silent.kind, silent.after = Hostile, "huge", 0  # type: ignore[assignment, attr-defined]
    before = silent.plant.state.q
    with pytest.raises(RefusedForSafety, match="nothing was commanded"):
        run(silent, tmp_path / "other.csv").run()
    assert np.array_equal(silent.plant.state.q, before)


# -- screening -------------------------------------------------------------------------------------


def bent(**changes: np.ndarray) -> Motion:
    whole = motion()
    arrays = {"t": whole.t, "q": whole.q, "dq": whole.dq, "ddq": whole.ddq} | changes
    return Motion(**arrays, joint_names=whole.joint_names)


@pytest.mark.parametrize(
    ("made", "options", "words"),
    [
        (lambda: motion(reach=4.0), {}, "position of"),
        (lambda: motion(seconds=0.4), {}, "acceleration of"),
        (lambda: motion(), {"velocity": 0.3}, "velocity of"),
        (lambda: motion(), {"acceleration": 0.5}, "acceleration of"),
        (lambda: motion(), {"torque": 1.0}, "torque of"),
        (lambda: motion(), {"floor": 0.6}, "floor"),
        (lambda: motion(), {"boxes": [np.array([[-1, -1, -1], [1, 1, 2]])]}, "keep-out box"),
        (lambda: bent(q=motion().q + 0.1 * (motion().t > 1.0)[:, None]), {}, "more than its"),
        (lambda: bent(dq=motion().dq + 0.3), {}, "more than its velocity|at rest"),
    ],
)
def test_motions_through_limits_are_refused_and_nothing_moves(
    made: object, options: dict[str, object], words: str, tmp_path: Path
) -> None:
    robot = robot_with()
    before = robot.plant.state.q
    settings = RecordSettings(rate=RATE)
    with pytest.raises(RefusedForSafety, match=words):
        RecordRun(
            load("arm4"),
            robot,
            made(),
            screen(**options),
            tmp_path / "log.csv",
            settings,  # type: ignore[operator]
        ).run()
    assert np.array_equal(robot.plant.state.q, before)
    assert list(tmp_path.iterdir()) == []


def test_a_box_that_no_link_comes_near_refuses_nothing() -> None:
    far = [np.array([[5.0, 5.0, 5.0], [6.0, 6.0, 6.0]])]
    assert screen(boxes=far).check(motion())
    with pytest.raises(UsageError, match="keep-out box"):
        screen(boxes=[np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])])


def test_the_way_to_the_start_is_screened_too(tmp_path: Path) -> None:
    robot = robot_with()
    robot.start(np.array([-2.0, 0.3, 0.0, 0.8]))
    positions = np.linspace(robot.plant.state.q, motion().q[0], 50)
    _, p = rigid_body.body_frames(load("arm4"), positions)
    middle = p[8, -1]
    _, played = rigid_body.body_frames(load("arm4"), motion().q)
    assert np.min(np.linalg.norm(played[:, -1] - middle, axis=1)) > 0.2, "the motion is elsewhere"
    box = [np.stack([middle - 0.02, middle + 0.02])]
    checked = screen(boxes=box)
    checked.check(motion())
    with pytest.raises(RefusedForSafety, match="where the robot stands"):
        RecordRun(
            load("arm4"), robot, motion(), checked, tmp_path / "a.csv", RecordSettings(rate=RATE)
        ).run()


# -- kill -9 ---------------------------------------------------------------------------------------


def _client(path: str, log: Path) -> None:
    """Record in a process of its own."""
    connection = SimulatedConnection(path)
    settings = RecordSettings(rate=RATE, warm_up=0.0, resume=journal_path(log).exists())
    RecordRun(load("arm4"), connection, motion(8.0), screen(), log, settings).run()


def _has_samples(journal: Path) -> bool:
    return journal.exists() and journal.stat().st_size > 2000


def killed(tmp_path: Path, moments: int) -> None:
    """Kill recorders at random moments; the robot is held, and nothing recorded is lost."""
    path = str(tmp_path / "robot")
    setup = SimulationSetup(load("arm4"), engine="own", rate=RATE, watchdog=1.0)
    robot = multiprocessing.get_context("spawn").Process(
        target=sim_server.serve, args=(setup, path, None), daemon=True
    )
    robot.start()
    rng = np.random.default_rng(0)
    fork = multiprocessing.get_context("fork")
    try:
        for k in range(moments):
            log = tmp_path / f"log{k}.csv"
            until = time.monotonic() + 100.0
            while not Path(path).exists() and time.monotonic() < until:
                time.sleep(0.05)
            child = fork.Process(target=_client, args=(path, log))
            child.start()
            while time.monotonic() < until and not _has_samples(journal_path(log)):
                time.sleep(0.01)
            time.sleep(float(rng.uniform(0.02, 0.8)))
            assert child.is_alive(), "it was killed before its end"
            os.kill(child.pid or 0, signal.SIGKILL)
            child.join(60.0)
            again = SimulatedConnection(path)
            state = again.read()
            again.close()
            assert state is not None
            assert np.max(np.abs(state.dq)) < 1e-3, "it is held"
            recorded = read_recording(log, load("arm4"))
            assert state.t - SETTLE - recorded.t[-1] <= LOST
            assert np.all(np.diff(recorded.t) > 0.0)
    finally:
        robot.terminate()
        robot.join(10.0)


def test_a_recorder_that_is_killed_leaves_the_robot_held_and_its_samples(tmp_path: Path) -> None:
    killed(tmp_path, KILLS)


@pytest.mark.slow
def test_a_recorder_that_is_killed_at_thirty_moments(tmp_path: Path) -> None:
    killed(tmp_path, 30)
