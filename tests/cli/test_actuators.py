"""Actuators from commanded and measured positions: planted drives are found, what cannot be split
is null, and bad input ends in one sentence.
"""

from __future__ import annotations

import json
import re
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


def test_a_torque_limit_is_found_where_it_is_reached(tmp_path: Path) -> None:
    robot = replace(robot_of("arm", 3, joints=1), seconds=16.0, rate=100.0)
    robot = replace(robot, drives=replace(robot.drives, limit=1.6))
    data = actuators(*map(str, planted(tmp_path, robot, seed=3))).data
    assert data["verdict"]["level"] == "good"
    low, high = data["joints"][0]["interval"]["limit"]
    assert data["joints"][0]["limit"] == pytest.approx(1.6, rel=0.05)
    assert low < 1.6 < high
    assert data["joints"][0]["backlash"] is None, "play was not planted and does not show"


def test_free_links_are_found_and_what_cannot_be_split_is_null(
    arm: tuple[Path, Path, PlantedDrives], thetahat: Callable[..., Done], tmp_path: Path
) -> None:
    """The file's masses are wrong by a quarter; gravity and inertia show all but the first link's
    own mass, and its rotor's share of the inertia about the first axis.
    """
    robot, log, true = arm
    wrong, factors = tmp_path / "wrong.xml", iter((1.25, 0.8))
    text = re.sub(
        r'mass="([^"]+)"',
        lambda found: f'mass="{float(found[1]) * next(factors)}"',
        robot.read_text(encoding="utf-8"),
    )
    wrong.write_text(text, encoding="utf-8")
    gains = [",".join(map(str, each)) for each in (true.kp, true.kd)]
    options = ("--kp", gains[0], "--kd", gains[1], "--out", tmp_path / "out")
    done = thetahat("actuators", wrong, log, *options, "--links", "free", "--json")
    assert done.code == 0, done.err
    assert require_valid(done.data) == []
    assert done.data["rms_test"] < 5e-4
    freed = done.data["freed"]
    base = th.load(robot).without_drive().base_parameters
    right = dict(zip(base.names, base.map @ th.load(robot).theta, strict=True))
    for row in freed["base_parameters"]:
        if row["name"].startswith("mcz"):
            assert row["value"] == pytest.approx(right[row["name"]], rel=0.03)
    masses = {row["name"]: row["mass"] for row in freed["bodies"]}
    assert next(iter(masses.values())) is None
    last = done.data["joints"][-1]
    assert last["coulomb"] == pytest.approx(true.coulomb[-1], rel=0.05)
    assert th.load(tmp_path / "out" / "wrong_links.xml").consistency[0]
    again = thetahat(
        "validate", wrong, log, "--estimate", tmp_path / "out" / "actuators.json", "--json"
    )
    assert again.code == 0, again.err
    assert again.data["rms_test"] < 5e-4 < 5e-3 < again.data["rms_nominal"]


def test_free_links_without_a_scale_are_refused(
    arm: tuple[Path, Path, PlantedDrives], thetahat: Callable[..., Done]
) -> None:
    for options, code, text in (
        (("--links", "free"), 5, "share one scale, which no motion shows at joint0, joint1"),
        (("--links", "free", "--kp", "joint0=20"), 5, "at joint1"),
        (("--links", "all"), 2, "give file or free"),
        (("--links", "free", "--mass", "hand"), 2, "give LINK=KG"),
        (("--links", "free", "--mass", "hand=1"), 2, "'hand', which is no link"),
        (("--mass", "hand=1"), 2, "add --links free"),
    ):
        done = thetahat("actuators", arm[0], arm[1], *options)
        assert done.code == code, options
        assert text in done.err
        assert len(done.err.strip().splitlines()) == 1


def test_a_result_that_moves_worse_than_the_file_is_not_good(
    arm: tuple[Path, Path, PlantedDrives], thetahat: Callable[..., Done], tmp_path: Path
) -> None:
    robot, log, true = arm
    actuators(str(robot), str(log), kd=list(true.kd)).save(tmp_path)
    answer = tmp_path / "actuators.json"
    data = json.loads(answer.read_text(encoding="utf-8"))
    options = (robot, log, "--estimate", answer, "--rollout", "--json")
    done = thetahat("validate", *options)
    assert done.code == 0, done.err
    assert require_valid(done.data, "actuator-validation") == []
    assert done.data["verdict"]["level"] == "good"
    for joint in data["joints"]:
        joint["model"]["viscous"] += 20.0
    answer.write_text(json.dumps(data), encoding="utf-8")
    done = thetahat("validate", *options)
    assert done.data["rollout"]["compared"]["worse"]
    assert done.data["verdict"]["level"] == "not usable"
    assert "worse" in " ".join(done.data["verdict"]["reasons"])


def require_valid(data: Any, name: str = "actuators") -> list[object]:
    jsonschema = pytest.importorskip("jsonschema")
    path = ROOT / "src" / "thetahat" / "schemas" / f"{name}.json"
    schema = json.loads(path.read_text(encoding="utf-8"))
    return list(jsonschema.Draft202012Validator(schema).iter_errors(data))


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


def _degrees(data: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {**data, "cmd.joint1": np.degrees(data["cmd.joint1"])}


def _slow(data: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: each[::20] for name, each in data.items()}


def _still(data: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: each if name == "t" else 0.0 * each for name, each in data.items()}


def _unknown_joint(data: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name.replace("joint", "elbow"): each for name, each in data.items()}


BAD = [
    (_no_command, 3, "cmd.<joint>"),
    (_echo, 3, "cmd.joint1 equals q.joint1"),
    (_degrees, 3, "check the command's unit"),
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
