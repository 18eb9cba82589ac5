"""`thetahat excite` and `thetahat simulate`: from a robot file to a log that identifies it, and
what each bad argument gets.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml
from identify_cases import Done
from simulated_log import motion as sines
from typer.testing import CliRunner

import thetahat as th
from thetahat import robots
from thetahat.cli.app import app
from thetahat.excite.trajectory import Motion

QUICK = ("--duration", "6", "--harmonics", "3", "--starts", "6", "--rate", "200")


@pytest.fixture(scope="module")
def motion(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("motion") / "arm4.csv"
    result = CliRunner().invoke(app, ["excite", "arm4", "--out", str(path), "--quiet", *QUICK])
    assert result.exit_code == 0, result.output
    return path


def test_a_motion_keeps_the_limits_of_the_file_and_rests_at_its_ends(motion: Path) -> None:
    robot = th.load(robots.path("arm4"))
    played = Motion.load(motion, robot)
    assert len(played) == 1201
    limits = [node.limits for node in robot.tree.independent]
    assert np.all(played.q >= [limit.lower for limit in limits])
    assert np.all(played.q <= [limit.upper for limit in limits])
    assert np.all(np.abs(played.dq) <= [limit.velocity for limit in limits])
    tau = th.inverse_dynamics(robot, played.q, played.dq, played.ddq)
    assert np.all(np.abs(tau) <= [limit.effort for limit in limits])
    np.testing.assert_allclose(played.dq[[0, -1]], 0.0, atol=1e-9)
    np.testing.assert_allclose(
        np.gradient(played.q, played.t, axis=0)[1:-1], played.dq[1:-1], atol=0.02
    )


def test_a_motion_is_exported_with_what_it_keeps_and_a_page_that_shows_it(
    thetahat: Callable[..., Done], tmp_path: Path
) -> None:
    done = thetahat(
        *("excite", "arm4", "--out", tmp_path / "m.yaml", "--preview", tmp_path / "m.html"),
        *("--duration", 5, "--harmonics", 3, "--starts", 1, "--max-acceleration", "2,2,3,3"),
        *("--max-jerk", "elbow=9", "--clearance", 0.03, "--json", "--quiet"),
    )
    assert (done.code, done.err) == (0, "")
    message = yaml.safe_load((tmp_path / "m.yaml").read_text())
    assert len(message["points"]) == done.data["rows"] == 501
    ddq = np.array([point["accelerations"] for point in message["points"]])
    assert np.all(np.max(np.abs(ddq), axis=0) <= np.array([2, 2, 3, 3]) + 1e-8)
    jerk = np.abs(np.diff(ddq[:, message["joint_names"].index("elbow")])) * 100.0
    assert np.max(jerk) <= 9.0 + 1e-4
    limits = {limit["kind"]: limit for limit in done.data["limits"]}
    assert limits["floor"]["limit"] == 0.03
    assert limits["velocity"]["allowed"] == 0.95
    assert limits["velocity"]["used"] <= 0.95
    assert limits["acceleration"]["used"] <= 1.0
    assert done.data["workspace"]["lowest"] >= 0.03 - 1e-9
    page = (tmp_path / "m.html").read_text()
    assert "Motion of arm4" in page
    assert not re.search(r"(src|href)=.(https?:)?//", page)


@pytest.mark.parametrize("plant", ["own", "mujoco"])
def test_simulated_logs_identify_the_robot(
    thetahat: Callable[..., Done], motion: Path, tmp_path: Path, plant: str
) -> None:
    if plant == "mujoco":
        pytest.importorskip("mujoco")
    log = tmp_path / "log.csv"
    done = thetahat(
        "simulate",
        "arm4",
        motion,
        "--out",
        log,
        "--plant",
        plant,
        "--rate",
        500,
        "--json",
        "--quiet",
    )
    assert (done.code, done.err) == (0, "")
    assert done.data["plant"] == plant
    found = thetahat("identify", "arm4", log, "--out", tmp_path, "--json", "--quiet").data
    assert found["consistent"]
    assert found["rank"] == found["structural_rank"]
    assert all(joint["r2_test"] > 0.99 for joint in found["joints"])
    again = tmp_path / "again.csv"
    thetahat("simulate", "arm4", motion, "--out", again, "--plant", plant, "--rate", 500, "--quiet")
    assert again.read_bytes() == log.read_bytes(), "the same seed writes the same log"


def test_an_earlier_log_may_have_other_names_and_units(
    thetahat: Callable[..., Done], tmp_path: Path
) -> None:
    robot = th.load(robots.path("arm4"))
    t, q, dq, ddq = sines(4, seconds=4.0, rate=100.0)
    tau = th.inverse_dynamics(robot, q, dq, ddq)
    found = []
    for name, factor, options in (
        ("q.{}", 1.0, ()),
        ("{}_deg", 180.0 / np.pi, ("--columns", "q={joint}_deg", "--units", "q=deg")),
    ):
        log = tmp_path / f"{len(found)}.csv"
        heads = [
            "t",
            *map(name.format, robot.joint_names),
            *(f"tau.{j}" for j in robot.joint_names),
        ]
        table = np.hstack([t[:, None], factor * q, tau])
        np.savetxt(log, table, "%.15g", ",", header=",".join(heads), comments="")
        out = ("--out", tmp_path / "motion.csv", "--json", "--quiet")
        design = ("--duration", 4, "--harmonics", 2, "--starts", 1, "--rate", 100)
        done = thetahat("excite", "arm4", "--after", log, *options, *design, *out)
        assert done.code == 0, done.err
        found.append(done.data["log_det"] / (2 * done.data["base_parameters"]))
    # degrees round otherwise, and a search from rounded numbers ends a little elsewhere: by less
    # than a hundredth of a parameter's spread, in the mean
    assert found[0] == pytest.approx(found[1], abs=0.01)


def test_a_heavier_truth_and_a_payload_show_in_the_torque(
    thetahat: Callable[..., Done], motion: Path, tmp_path: Path
) -> None:
    logs = {}
    for name, options in {
        "plain": (),
        "payload": ("--payload", "hand:2,0,0.1,0"),
        "later": ("--payload", "hand:2,0,0.1,0@3"),
    }.items():
        logs[name] = tmp_path / f"{name}.npz"
        assert (
            thetahat(
                "simulate",
                "arm4",
                motion,
                "--out",
                logs[name],
                "--plant",
                "own",
                "--rate",
                200,
                "--ideal",
                *options,
            ).code
            == 0
        )
    tau = {name: np.load(path)["tau.elbow"] for name, path in logs.items()}
    difference, later = np.abs(tau["payload"] - tau["plain"]), np.abs(tau["later"] - tau["plain"])
    assert np.max(difference) > 1.0
    assert np.max(later[:590]) < 1e-6 < 1.0 < np.max(later[620:])


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["excite", "arm4", "--out", "m.txt"], 2, ".csv"),
        (["excite", "arm4", "--out", "missing/m.csv"], 6, "folder"),
        (["excite", "arm4", "--out", "m.csv", "--duration", "0"], 2, "duration"),
        (["excite", "arm4", "--out", "m.csv", "--duration", "nan"], 2, "duration"),
        (["excite", "arm4", "--out", "m.csv", "--seconds", "-1"], 2, "seconds"),
        (["excite", "arm4", "--out", "m.csv", "--criterion", "trace"], 2, "log-det, condition"),
        (["excite", "arm4", "--out", "m.csv", "--start", "0,0"], 2, "4 finite numbers"),
        (
            ["excite", "arm4", "--out", "m.csv", "--start", "9,0,0,0", "--starts", "2"],
            2,
            "shoulder_pitch",
        ),
        (
            ["excite", "arm4", "--out", "m.csv", "--torque", "0.01", "--starts", "2"],
            None,
            "torque",
        ),
        (["excite", "arm4", "--out", "m.csv", "--max-acceleration", "0"], 2, "above zero"),
        (["excite", "arm4", "--out", "m.csv", "--max-acceleration", "1,2"], 2, "4 with commas"),
        (["excite", "arm4", "--out", "m.csv", "--max-jerk", "elbow=-5"], 2, "'elbow' is -5.0"),
        (
            ["excite", "arm4", "--out", "m.csv", "--max-jerk", "elbw=5"],
            2,
            "--max-jerk names 'elbw'",
        ),
        (["excite", "arm4", "--out", "m.csv", "--floor", "low"], 2, "--floor is 'low'"),
        (["excite", "arm4", "--out", "m.csv", "--floor", "3"], 5, "above the floor"),
        (
            ["excite", "arm4", "--out", "m.csv", "--floor", "1.5", "--start", "0,0,0,0.5"],
            7,
            "inside of the floor, z = 1.5 m",
        ),
        (["excite", "arm4", "--out", "m.csv", "--clearance", "0"], 2, "clearance is 0.0"),
        (["excite", "arm4", "--out", "m.csv", "--prior-spread", "0"], 2, "prior_spread is 0.0"),
        (["excite", "arm4", "--out", "m.csv", "--encoder-noise", "-1"], 2, "encoder_noise is"),
        (["excite", "arm4", "--out", "m.csv", "--to", "rosbag"], 2, "--to: format is 'rosbag'"),
        (["excite", "arm4", "--out", "m.script"], 2, "six that turn"),
        (["excite", "arm4", "--out", "m.csv", "--preview", "no/m.html"], 6, "folder"),
        (["excite", "arm4", "--out", "m.csv", "--joints", "elbw"], 2, "elbow"),
        (["excite", "arm4", "--out", "m.csv", "--inside", "hand"], 2, "LINK:xmin"),
        (["excite", "arm4", "--out", "m.csv", "--inside", "nail:0,1,0,1,0,1"], 2, "nail"),
        (["simulate", "arm4", "nothing.csv", "--out", "log.csv"], 6, "nothing.csv"),
        (["simulate", "arm4", "MOTION", "--out", "log.csv", "--plant", "gazebo"], 2, "mujoco, own"),
        (["simulate", "arm4", "MOTION", "--out", "MOTION"], 2, "never modified"),
        (["simulate", "arm4", "MOTION", "--out", "log.csv", "--rate", "0"], 2, "rate"),
        (
            ["simulate", "arm4", "MOTION", "--out", "log.csv", "--torque-noise", "-1"],
            2,
            "torque_noise",
        ),
        (
            ["simulate", "arm4", "MOTION", "--out", "log.csv", "--payload", "hand:1"],
            2,
            "4 finite numbers",
        ),
        (
            ["simulate", "arm4", "MOTION", "--out", "log.csv", "--payload", "nail:1,0,0,0"],
            2,
            "nail",
        ),
        (["simulate", "arm7", "MOTION", "--out", "log.csv"], 3, "joint"),
    ],
)
def test_bad_arguments_are_one_sentence(
    thetahat: Callable[..., Done],
    motion: Path,
    tmp_path: Path,
    monkeypatch,
    arguments: list[str],
    code: int | None,
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = [str(motion) if argument == "MOTION" else argument for argument in arguments]
    before = motion.read_bytes()
    done = thetahat(*arguments, "--quiet")
    assert (done.code in (2, 5)) if code is None else done.code == code, done.err
    assert words in done.err
    assert done.out == ""
    assert len(done.err.strip().splitlines()) == 1, done.err
    assert motion.read_bytes() == before
    assert not list(tmp_path.glob("*.csv"))
