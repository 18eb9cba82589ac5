"""Drives beyond gains and friction: backlash, limits that fall with speed, logged currents."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.planted_drives import planted, robot_of
from data_paths import ROOT

import thetahat as th
from thetahat.identification.actuators.drive_log import DriveLog
from thetahat.identification.actuators.drive_parameters import DriveParameters
from thetahat.identification.actuators.drive_rollout import DriveRollout
from thetahat.pipeline.actuators import actuators

mujoco = pytest.importorskip("mujoco", reason="the planted robots are moved by MuJoCo")


def test_backlash_is_found_where_it_is_planted(tmp_path: Path) -> None:
    """MuJoCo's play is a second joint between motor and link; the encoder reads whole steps."""
    robot = replace(robot_of("hobby", 6, joints=1), seconds=40.0)
    true = robot.drives
    data = actuators(*map(str, planted(tmp_path, robot, seed=6))).data
    (joint,) = data["joints"]
    assert "backlash" in data["friction"]
    assert joint["backlash"] == pytest.approx(true.play[0], abs=1e-3)
    low, high = joint["interval"]["backlash"]
    assert low < true.play[0] < high
    for name in ("armature", "coulomb", "kp"):
        assert joint[name] == pytest.approx(getattr(true, name)[0], rel=0.05), name
    assert joint["damping"] == pytest.approx(true.kd[0] + true.viscous[0], rel=0.05)
    assert joint["delay"] == pytest.approx(true.delay, abs=2e-3)


def test_a_torque_limit_that_falls_with_speed_is_found(tmp_path: Path) -> None:
    robot = replace(robot_of("arm", 3, joints=1), seconds=20.0, rate=100.0)
    robot = replace(robot, drives=replace(robot.drives, limit=2.4, back_emf=0.6))
    file, log = map(str, planted(tmp_path, robot, seed=3))
    (joint,) = actuators(file, log, kd=list(robot.drives.kd)).data["joints"]
    assert joint["limit"] == pytest.approx(2.4, rel=0.02)
    assert joint["back_emf"] == pytest.approx(0.6, rel=0.1)
    low, high = joint["interval"]["limit"]
    assert low < 2.4 < high


def test_currents_tell_kd_from_viscous_friction(tmp_path: Path) -> None:
    """And the torque per current; unsigned ones are named and not used."""
    robot = replace(robot_of("arm", 8, joints=2), seconds=18.0, rate=200.0)
    file, log = planted(tmp_path, robot, seed=8, torque_per_current=0.4)
    data = actuators(str(file), str(log)).data
    path = ROOT / "src" / "thetahat" / "schemas" / "actuators.json"
    schema = json.loads(path.read_text(encoding="utf-8"))
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema checks the answer")
    assert list(jsonschema.Draft202012Validator(schema).iter_errors(data)) == []
    for k, joint in enumerate(data["joints"]):
        for name in ("kd", "viscous"):
            low, high = joint["interval"][name]
            assert low < getattr(robot.drives, name)[k] < high, name
        assert high - low < 0.5 * robot.drives.viscous[k]
        assert data["efforts"][joint["name"]]["torque_per_reading"] == pytest.approx(0.4, rel=0.05)
    with np.load(log) as stored:
        unsigned = {name: stored[name] for name in stored.files}
    unsigned |= {name: np.abs(x) for name, x in unsigned.items() if name.startswith("cur.")}
    np.savez(log, **unsigned)
    with pytest.warns(th.errors.RobotWarning, match=r"cur.joint0, cur.joint1 are never negative"):
        data = actuators(str(file), str(log)).data
    assert data["efforts"] is None
    assert data["joints"][0]["kd"] is None


def test_a_vanishing_backlash_is_none(tmp_path: Path) -> None:
    """And a link with backlash stays within it of a motor that friction holds."""
    file = tmp_path / "arm.xml"
    file.write_text(robot_of("arm", 1, joints=2).plain, encoding="utf-8")
    robot, t = th.load(file), np.arange(300) * 0.01
    q = 0.4 * np.sin(2 * np.pi * np.outer(t, [0.5, 0.7]) + 0.5)
    log = DriveLog(t, q, q, (("run", 0, 300),))
    values = {"kp": 20.0, "kd": 0.5, "viscous": 0.2, "coulomb": 0.2, "armature": 0.02}
    drives = DriveParameters.of(2).with_values(**values)
    sets = [drives, drives.with_values(backlash=1e-9), drives.with_values(backlash=0.02)]
    held = drives.with_values(kp=0.0, coulomb=100.0, backlash=0.02)
    shown = DriveRollout(robot, log).positions(
        np.array([each.values for each in (*sets, held)]), log.segments(None)
    )
    assert np.abs(shown[1] - shown[0]).max() < 1e-6
    assert np.abs(shown[2] - shown[0]).max() > 1e-3
    assert 0.0199 < np.ptp(shown[3], axis=0).max() < 0.0201
