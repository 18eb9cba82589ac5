"""`thetahat control --via`: a robot that runs by its own clock, approached, controlled, and left held;
what is refused before anything moves.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from identify_cases import Done

import thetahat as th
from thetahat import robots
from thetahat.connect.planted_faults import PlantedFault
from thetahat.connect.sim import PlantedDifferences
from thetahat.connect.sim_process import SimulatorProcess
from thetahat.connect.sim_server import Scene, SimulationSetup
from thetahat.excite.trajectories import Moves

Thetahat = Callable[..., Done]
BEGIN = np.array([0.2, 0.4, -0.3, 0.9])
QUICK = ("--duration", 5, "--rate", 200, "--updates", 10, "--window", 30, "--quiet")


@pytest.fixture
def motion(tmp_path: Path) -> Path:
    points = BEGIN + 0.2 * np.array([[0, 0, 0, 0], [1, 0.6, -1, 0.5], [0, 0, 0, 0]])
    names = th.load(robots.path("arm4")).joint_names
    return Moves(names, points, np.full(2, 1.0), 0.0).sampled(200.0).save(tmp_path / "motion.csv")


def simulator(*, start: np.ndarray, fault: PlantedFault | None = None) -> SimulatorProcess:
    """A robot by the clock; patient, as the machine may be busy."""
    setup = SimulationSetup(
        th.load(robots.path("arm4")),
        PlantedDifferences(),
        engine="own",
        rate=200.0,
        mode="torque",
        clocked=True,
        watchdog=2.0,
        scene=Scene(start=start, fault=fault),
    )
    return SimulatorProcess(setup)


def test_a_robot_is_approached_and_controlled(
    thetahat: Thetahat, motion: Path, tmp_path: Path
) -> None:
    robot = simulator(start=BEGIN + 0.6)
    try:
        via, out = f"sim:{robot.path}", tmp_path / "run"
        done = thetahat(
            "control", "arm4", "--via", via, "--motion", motion, "--out", out, *QUICK, "--json"
        )
    finally:
        robot.stop()
    assert done.code == 0, done.err
    data = json.loads(done.out)
    errors = [joint["tracking_before"] for joint in data["joints"]]
    assert max(errors) < 0.15, "it was brought to the motion, without a jump of 0.6 rad"
    assert (out / "run.journal").is_file()


def test_a_joint_that_does_not_follow_ends_it(
    thetahat: Thetahat, motion: Path, tmp_path: Path
) -> None:
    robot = simulator(start=BEGIN + 0.6, fault=PlantedFault("blocked", 0.0, "elbow"))
    try:
        given = ("--via", f"sim:{robot.path}", "--motion", motion, "--out", tmp_path / "run")
        done = thetahat("control", "arm4", *given, *QUICK)
    finally:
        robot.stop()
    assert done.code == 7
    assert "from where it should be" in done.err


def test_what_is_refused(thetahat: Thetahat, motion: Path, tmp_path: Path) -> None:
    given = ("control", "arm4", "--motion", motion, "--out", tmp_path / "run", "--quiet")
    for via, code, words in (
        ("unitree:go2", 7, "add --allow-motion"),
        ("unitree:dog", 2, "robots: go2"),
        ("pigeon", 2, "connections: sim"),
    ):
        done = thetahat(*given, "--via", via)
        assert done.code == code
        assert words in done.err
    done = thetahat(*given, "--via", "unitree:go2", "--allow-motion")
    assert done.code == 2
    assert "no motor for" in done.err, "another robot"
    done = thetahat(*given, "--via", "franka:127.0.0.1", "--allow-motion", "--watch")
    assert done.code == 2
    assert "--watch" in done.err
