"""`thetahat record`: its log, its answer, what it refuses, and a campaign without a hand on it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from data_paths import ROOT
from identify_cases import Done

import thetahat as th
from thetahat import robots
from thetahat.connect.connection import RobotState
from thetahat.connect.recording_file import RecordingFile, journal_path
from thetahat.excite.trajectories import Moves

Thetahat = Callable[..., Done]
QUICK = ("--rate", 250, "--quiet")


@pytest.fixture(scope="module")
def motion(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All joints of the arm, to and fro within 6 s."""
    robot = th.load(robots.path("arm4"))
    rng = np.random.default_rng(3)
    points = np.array([0.0, 0.4, 0.0, 0.9]) + rng.uniform(-0.5, 0.5, (9, 4))
    points[-1] = points[0]
    path = tmp_path_factory.mktemp("motion") / "motion.csv"
    return Moves(robot.joint_names, points, np.full(8, 0.75), 0.0).sampled(500.0).save(path)


def test_a_motion_is_rehearsed_played_recorded_and_checked(
    thetahat: Thetahat, motion: Path, tmp_path: Path
) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema checks the answers")
    log = tmp_path / "log.parquet"
    done = thetahat("record", "arm4", motion, "--out", log, "--plant", "own", *QUICK, "--json")
    assert done.code == 0, done.err
    data = json.loads(done.out)
    schema = json.loads((ROOT / "src/thetahat/schemas/record.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(data)
    assert data["complete"]
    assert data["verdict"]["level"] in ("good", "usable")
    assert "planted torques are predicted within" in data["rehearsal"]
    assert len(th.read_log(log, th.load(robots.path("arm4")))) == data["rows"]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["log.parquet"]


@pytest.mark.slow  # faults one by one: tests/connect/test_record_run.py
def test_a_fault_ends_it_with_a_sentence_and_the_log_is_kept(
    thetahat: Thetahat, motion: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log.csv"
    quick = ("--no-rehearse", "--no-check", "--warm-up", 0, "--plant", "own", *QUICK)
    fault = ("--fault", "silent@2")
    done = thetahat("record", "arm4", motion, "--out", log, *quick, *fault)
    assert done.code == 7
    assert "the robot is held" in done.err
    assert "--resume" in done.err
    rows = len(th.read_log(log, th.load(robots.path("arm4"))))
    assert rows > 400
    assert thetahat("record", "arm4", motion, "--out", log, *quick).code == 2, (
        "kept from being lost"
    )
    again = thetahat("record", "arm4", motion, "--out", log, *quick, "--resume")
    assert again.code == 0, again.err
    assert len(th.read_log(log, th.load(robots.path("arm4")))) > rows


def test_a_robot_is_watched_and_a_killed_recording_is_salvaged(
    thetahat: Thetahat, tmp_path: Path
) -> None:
    log = tmp_path / "log.csv"
    done = thetahat("record", "arm4", "--seconds", 1, "--out", log, "--plant", "own", *QUICK)
    assert done.code == 0, done.err
    robot = th.load(robots.path("arm4"))
    assert len(th.read_log(log, robot)) > 20
    other = tmp_path / "other.csv"
    file = RecordingFile(other, robot, "", 100.0)
    for k in range(50):
        state = RobotState(0.01 * k, np.full(4, 0.1 * k), np.zeros(4), np.ones(4))
        file.add("recording", 0.01 * k, state, np.full(4, np.nan))
    with journal_path(other).open("ab") as journal:
        journal.write(b"cut in the mid")
    file.close()
    done = thetahat("record", "arm4", "--out", other, "--salvage", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["rows"] == 50


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        (["--via", "carrier-pigeon"], 2, "connections: sim, ros2"),
        (["--via", "ros2:/a,wish=/b"], 2, "kinds: position"),
        (["--via", "ros2:/a,position=/b"], 7, "--allow-motion"),
        (["--keep-out", "-2,2,-2,2,-1,3"], 7, "keep-out box"),
        (["--keep-out", "1,2,3"], 2, "--keep-out"),
        (["--max-velocity", "0.1"], 7, "velocity of"),
        (["--floor", "0.9"], 7, "floor"),
        (["--warm-up", "1.5"], 2, "--warm-up"),
        (["--fault", "tired:elbow@3"], 2, "--fault"),
        (["--max-temperature", "-1"], 2, "--max-temperature"),
        (["--via", "sim:nowhere", "--no-rehearse"], 6, "no simulated robot"),
    ],
)
def test_what_is_refused_plays_nothing(
    thetahat: Thetahat, motion: Path, tmp_path: Path, given: list[str], code: int, words: str
) -> None:
    done = thetahat("record", "arm4", motion, "--out", tmp_path / "log.csv", *given)
    assert done.code == code, done.err
    assert words in done.err
    assert list(tmp_path.iterdir()) == []
