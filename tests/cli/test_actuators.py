"""Actuators from commanded and measured positions: planted drives are found, what cannot be split
is null, and bad input ends in one sentence.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.planted_drives import PlantedDrives, planted, robot_of
from data_paths import ROOT, SHARED
from identify_cases import Done

import thetahat as th
from thetahat.errors import MalformedInput, UsageError
from thetahat.identification.actuators.drive_log import DriveLog
from thetahat.identification.actuators.drive_parameters import DriveParameters
from thetahat.identification.actuators.drive_rollout import DriveRollout
from thetahat.pipeline.actuators import actuators

mujoco = pytest.importorskip("mujoco", reason="the planted robots are moved by MuJoCo")


@pytest.fixture(scope="module")
def arm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, PlantedDrives]:
    robot = replace(robot_of("arm", 1, joints=2), seconds=18.0, rate=100.0)
    return (*planted(tmp_path_factory.mktemp("arm"), robot, seed=1), robot.drives)


def columns(log: Path) -> dict[str, np.ndarray]:
    with np.load(log) as data:
        return {name: data[name] for name in data.files}


def test_planted_drives_are_found(arm: tuple[Path, Path, PlantedDrives]) -> None:
    robot, log, true = arm
    data = actuators(str(robot), str(log), kd=list(true.kd)).data
    assert data["verdict"]["level"] == "good"
    assert data["rms_test"] < 1e-3 < data["rms_nominal"]
    for k, joint in enumerate(data["joints"]):
        for name in ("kp", "viscous", "coulomb", "armature"):
            assert joint[name] == pytest.approx(getattr(true, name)[k], rel=0.05), name
            low, high = joint["interval"][name]
            assert low < joint[name] < high
        assert joint["delay"] == pytest.approx(true.delay, abs=2e-3)
        assert joint["bias"] == pytest.approx(true.bias[k], abs=2e-3 + 2 * joint["std"]["bias"])


def test_without_kd_only_the_sum_is_reported(
    arm: tuple[Path, Path, PlantedDrives], thetahat: Callable[..., Done], tmp_path: Path
) -> None:
    robot, log, true = arm
    done = thetahat("actuators", robot, log, "--out", tmp_path, "--json")
    assert done.code == 0, done.err
    saved = json.loads((tmp_path / "actuators.json").read_text(encoding="utf-8"))
    assert saved == done.data
    assert f"{tmp_path}/actuators.json" in saved["verdict"]["next_steps"][-1]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    for title in ("Verdict", "Drives", "Open-loop error", "Held-out motion"):
        assert f">{title}</h2>" in page
    assert page.count("kd + viscous") == 1
    assert "position [rad]" in page
    rollout = done.data["rollout"]
    assert rollout["horizons"] == [0.1, 0.5, 1.0, 2.0, 5.0]
    assert rollout["compared"]["ratio"] < 0.1
    for each in rollout["joints"]:
        assert all(np.array(each["rms"]) < 0.1 * np.array(each["rms_nominal"])), each["name"]
    for k, joint in enumerate(done.data["joints"]):
        assert joint["kd"] is None
        assert joint["viscous"] is None
        assert joint["damping"] == pytest.approx(true.kd[k] + true.viscous[k], rel=0.05)
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema checks the answer")
    path = ROOT / "src" / "thetahat" / "schemas" / "actuators.json"
    schema = json.loads(path.read_text(encoding="utf-8"))
    assert list(jsonschema.Draft202012Validator(schema).iter_errors(done.data)) == []


def test_dry_friction_holds_a_joint_at_rest(arm: tuple[Path, Path, PlantedDrives]) -> None:
    """Below Coulomb friction nothing creeps, above it the joint moves."""
    robot = th.load(arm[0])
    rows = np.tile([0.3, 0.0], (200, 1))
    log = DriveLog(np.arange(200) * 0.01, rows, rows, (("run", 0, 200),))
    for coulomb, held in ((50.0, True), (0.01, False)):
        drives = DriveParameters.of(2).with_values(kp=1.0, coulomb=coulomb, viscous=0.1)
        q = DriveRollout(robot, log).positions(drives.values[None], log.segments(None))[0]
        assert bool(np.ptp(q[:, 0]) == 0.0) is held


def _no_command(data: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: each for name, each in data.items() if name != "cmd.joint1"}


def _echo(data: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {**data, "cmd.joint1": data["q.joint1"]}


def _slow(data: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: each[::20] for name, each in data.items()}


def _still(data: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: each if name == "t" else 0.0 * each for name, each in data.items()}


def _unknown_joint(data: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name.replace("joint", "elbow"): each for name, each in data.items()}


BAD = [
    (_no_command, 3, "cmd.<joint>"),
    (_echo, 3, "cmd.joint1 equals q.joint1"),
    (_slow, 5, "5 rows per second"),
    (_still, 5, "no joint moves"),
    (_unknown_joint, 3, "joint names differ"),
]


@pytest.mark.parametrize(("change", "code", "text"), BAD, ids=lambda each: str(each)[:20])
def test_bad_logs_end_in_one_sentence(
    arm: tuple[Path, Path, PlantedDrives],
    thetahat: Callable[..., Done],
    tmp_path: Path,
    change: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]],
    code: int,
    text: str,
) -> None:
    path = tmp_path / "bad.npz"
    np.savez(path, **change(columns(arm[1])))
    done = thetahat("actuators", arm[0], path, "--out", tmp_path / "out")
    assert done.code == code
    assert text in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert not (tmp_path / "out" / "actuators.json").exists()


@pytest.mark.parametrize("gains", [("--kp", "0"), ("--kp", "joint0=-1"), ("--kd", "joint1=-0.1")])
def test_gains_of_zero_end_in_one_sentence(
    arm: tuple[Path, Path, PlantedDrives], thetahat: Callable[..., Done], gains: tuple[str, str]
) -> None:
    done = thetahat("actuators", arm[0], arm[1], *gains)
    assert done.code == 2
    assert f"{gains[0]} of joint" in done.err
    assert len(done.err.strip().splitlines()) == 1


@pytest.mark.parametrize("kp", [0.0, -1.0, float("nan")])
def test_gains_of_zero_are_refused(arm: tuple[Path, Path, PlantedDrives], kp: float) -> None:
    with pytest.raises(UsageError, match="--kp of joint0"):
        actuators(str(arm[0]), str(arm[1]), kp={"joint0": kp})


def test_the_wrong_robot_is_refused(arm: tuple[Path, Path, PlantedDrives]) -> None:
    with pytest.raises(MalformedInput, match="joint names differ"):
        actuators("arm4", str(arm[1]))


def test_unsigned_torques_are_named_and_not_used(
    arm: tuple[Path, Path, PlantedDrives], tmp_path: Path
) -> None:
    data: dict[str, Any] = columns(arm[1])
    for joint in ("joint0", "joint1"):
        data[f"tau.{joint}"] = np.abs(data[f"q.{joint}"]) + 0.1
    path = tmp_path / "unsigned.npz"
    np.savez(path, **data)
    with pytest.warns(th.errors.RobotWarning, match="never negative"):
        result = actuators(str(arm[0]), str(path), kd=list(arm[2].kd))
    assert result.verdict.usable


@pytest.mark.slow
def test_so101_moves_as_the_real_arm_on_motions_not_fitted() -> None:
    """The split of SOURCE.md, whose plain fit leaves 0.017 rad."""
    folder = SHARED / "logs" / "so101"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there")
    names = [
        "coupled_joints",
        "multisine",
        "pick_place",
        "boundary_exploration",
        "fast_transitions",
    ]
    fitted = [str(folder / f"{name}.npz") for name in names]
    test = [str(path) for path in sorted(folder.glob("*.npz")) if str(path) not in fitted]
    data = actuators(str(folder / "so101.xml"), fitted, test=test).data
    assert data["rms_test"] < 0.014
    assert data["rms_nominal"] > 0.025


@pytest.mark.slow
def test_go2_moves_as_the_real_robot_in_the_second_half() -> None:
    """Gains as the robot ran them; a plain fit leaves 0.0099 rad (SOURCE.md)."""
    folder = SHARED / "logs" / "go2_air"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there")
    data = actuators(
        str(folder / "go2_fixed_base.xml"),
        str(folder / "go2_air.csv"),
        kp=20.0,
        kd=1.5,
        settings=th.IdentifySettings(holdout=0.5),
    ).data
    assert data["rms_test"] < 0.008
    assert data["rms_nominal"] > 0.06
