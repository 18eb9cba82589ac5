"""Motion that drives simulate from logged commands, by horizon, on a log that MuJoCo made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.planted_drives import planted, robot_of

import thetahat as th
from thetahat.identification.actuators.drive_log import DriveLog
from thetahat.identification.actuators.drive_parameters import DriveParameters
from thetahat.identification.rollout_errors import HORIZONS
from thetahat.pipeline.actuator_rollout import command_rollout

pytest.importorskip("mujoco", reason="MuJoCo moves the arm (pip install mujoco)")


def test_true_drives_move_as_the_log_and_wrong_ones_do_not(tmp_path: Path) -> None:
    robot_planted = replace(robot_of("arm", 5, joints=2), seconds=12.0, rate=100.0)
    file, log = planted(tmp_path, robot_planted, seed=5)
    truth = robot_planted.drives
    with np.load(log) as data:
        t = data["t"]
        q, command = (
            np.column_stack([data[f"{kind}.joint{j}"] for j in range(2)]) for kind in ("q", "cmd")
        )
    rows = DriveLog(t, q, command, (("run", 0, len(t)),))
    values = {
        name: getattr(truth, name)
        for name in ("kp", "kd", "viscous", "coulomb", "armature", "delay", "bias")
    }
    right = DriveParameters.of(2).with_values(**values)
    wrong = right.with_values(kp=0.5 * truth.kp, delay=0.0)
    robot = th.load(file)
    found = command_rollout(robot, rows, right, wrong)
    assert found is not None
    assert found.horizons == HORIZONS
    assert found.driven_by == "command"
    assert max(float(np.max(each.rms)) for each in found.model[1:]) < 5e-3
    compared = found.comparison
    assert compared is not None
    assert compared.ratio < 0.2
    assert not compared.worse
    other = command_rollout(robot, rows, wrong, right)
    assert other is not None
    assert other.comparison is not None
    assert other.comparison.worse
    assert other.as_data()["compared"]["worse"]
