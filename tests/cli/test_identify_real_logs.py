"""`thetahat identify` on logs of real robots."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from data_paths import shared_file
from identify_cases import SLACK, Done, digest, numbers

# The wrist of a TX40 is coupled: what turns with motor 6 acts on joints 5 and 6 at the sum of their
# speeds.
WRIST = "j1,j2,j3,j4,j5,j6,coupling\n1,0,0,0,0,0,0\n0,1,0,0,0,0,0\n0,0,1,0,0,0,0\n0,0,0,1,0,0,0\n0,0,0,0,1,0,1\n0,0,0,0,0,1,1\n"

# robot, log, options, score, baselines per joint as measured in the log's SOURCE.md
BASELINES = {
    "panda": (
        "panda/panda_nomesh_from_example_robot_data.urdf",
        "panda/panda_exciting_traj1.csv",
        ["--cutoff", 10, "--holdout", 0.5],
        "r2_test",
        [0.9962, 0.9998, 0.9998, 0.9999, 0.9951, 0.9986, 0.9448],
    ),
    "panda 30 Hz": (
        "ur10/panda_nomesh.urdf",
        "ur10/panda_exciting.csv",
        ["--cutoff", 4, "--holdout", 0.5],
        "r2_test",
        [0.8696, 0.9999, 0.9997, 0.9999, 0.9669, 0.9913, 0.956],
    ),
    "ur10": (
        "ur10/ur10_nomesh.urdf",
        "ur10/ur10_exciting.csv",
        ["--cutoff", 5, "--holdout", 0.5, "--armature"],
        "r2_test_moving",
        [0.9753, 0.9979, 0.9973, 0.989, 0.9912, 0.9842],
    ),
    "kr300": (
        "kr300/kr300_from_dh.urdf",
        "kr300/kr300.csv",
        ["--cutoff", 10, "--holdout", 1 / 3, "--armature"],
        "r2_test_moving",
        [0.9967, 0.9984, 0.9993, 0.9822, 0.9987, 0.992],
    ),
    "tx40": (
        "tx40/tx40_mdh_modified.urdf",
        "tx40/tx40.csv",
        ["--cutoff", 50, "--holdout", 0.5, "--actuation", "wrist.csv"],
        "r2_test_moving",
        [0.9947, 0.9963, 0.9918, 0.9937, 0.9612, 0.9604],
    ),
}


@pytest.mark.parametrize("case", BASELINES)
def test_real_logs_reach_their_baselines(
    thetahat: Callable[..., Done], tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    robot, path, options, score, baseline = BASELINES[case]
    robot, path = shared_file("logs", *robot.split("/")), shared_file("logs", *path.split("/"))
    monkeypatch.chdir(tmp_path)
    Path("wrist.csv").write_text(WRIST)
    before = digest(robot, path)
    done = thetahat("identify", robot, path, "--out", tmp_path, "--json", *options)
    assert done.code == 0, done.err
    assert digest(robot, path) == before
    found = done.data
    reached = np.array([joint[score] for joint in found["joints"]])
    assert np.all(reached >= np.array(baseline) - SLACK), (reached, baseline)
    assert found["rank"] == found["structural_rank"]
    assert all(map(math.isfinite, numbers(found)))
    assert all(joint["rms_test"] < joint["rms_nominal"] for joint in found["joints"])


def test_panda_without_options(thetahat: Callable[..., Done], tmp_path: Path) -> None:
    """Fingers without a column are welded to the hand: 64 base parameters of 91, and every default
    chosen.
    """
    folder = shared_file("logs", "panda")
    found = thetahat(
        "identify",
        folder / "panda_nomesh_from_example_robot_data.urdf",
        folder / "panda_exciting_traj1.csv",
        "--out",
        tmp_path,
        "--json",
    ).data
    assert (found["rank"], found["columns"], found["locked"]) == (64, 91, ["panda_finger_joint1"])
    assert [joint["name"] for joint in found["joints"]] == [f"panda_joint{k}" for k in range(1, 8)]
    assert min(joint["r2_test"] for joint in found["joints"]) > 0.95
    assert all(joint["armature"] is None for joint in found["joints"]), (
        "link-side sensors see no rotors"
    )
    assert "panda_rightfinger" in found["links"][-1]["links"]


def test_panda_friction_is_the_published_one(thetahat: Callable[..., Done], tmp_path: Path) -> None:
    """Gaz et al. 2019, Table III, from the same trajectory by plain least squares on all of its
    rows, with their own filter.
    """
    folder = shared_file("logs", "panda")
    robot, path = (
        folder / "panda_nomesh_from_example_robot_data.urdf",
        folder / "panda_exciting_traj1.csv",
    )
    options = [
        "--method",
        "least-squares",
        "--cutoff",
        10,
        "--holdout",
        0,
        "--weights",
        "none",
        "--min-speed",
        0,
        "--no-armature",
    ]
    found = thetahat("identify", robot, path, "--out", tmp_path, "--json", *options).data
    published = np.genfromtxt(
        folder / "published_friction_piCLS.csv", delimiter=",", skip_header=1, usecols=1
    )[7:14]
    np.testing.assert_allclose(
        [joint["coulomb"] for joint in found["joints"]], published, rtol=0, atol=0.06
    )


def test_another_log_can_be_the_test(thetahat: Callable[..., Done], tmp_path: Path) -> None:
    """Fitted on one Panda, scored on another: the baseline of SOURCE.md."""
    fit, test = (
        shared_file("logs", "panda", "panda_exciting_traj1.csv"),
        shared_file("logs", "ur10", "panda_exciting.csv"),
    )
    robot = shared_file("logs", "panda", "panda_nomesh_from_example_robot_data.urdf")
    # At 30 Hz the baseline's three-point differences are a low-pass of their own, which is why it
    # could be run at 10 Hz.
    found = thetahat(
        "identify", robot, fit, "--test", test, "--cutoff", 4, "--out", tmp_path, "--json"
    ).data
    baseline = [0.8435, 0.9994, 0.9997, 0.9978, 0.9491, 0.9183, 0.9372]
    reached = np.array([joint["r2_test"] for joint in found["joints"]])
    assert np.all(reached >= np.array(baseline) - SLACK), reached
    assert found["provenance"]["test_logs"][0]["path"] == str(test)
    assert found["provenance"]["settings"]["rows_held_out"] is None
    assert found["samples"] > 20_000
    done = thetahat("identify", robot, fit, "--test", fit, "--out", tmp_path)
    assert (done.code, "same content" in done.err) == (2, True)
