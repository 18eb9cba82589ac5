"""`thetahat identify`: what it says, on simulated and real robots, and its options."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import simulated_log
from data_paths import shared_file
from identify_cases import JOINT_KEYS, KEYS, LINK_KEYS, SLACK, Done, digest, numbers

import thetahat as th
from thetahat import robots
from thetahat.identification.tuning.tune import TuningOptions
from thetahat.model import parameters

# -- what it says ----------------------------------------------------------------------------------


def test_finds_what_pinocchio_was_given(thetahat: Callable[..., Done], tmp_path: Path) -> None:
    """Noise-free torques by Pinocchio, smooth friction: base parameters and friction come back,
    held-out rows are predicted.
    """
    robot = th.load(robots.path("arm4"))
    t, q, dq, ddq = simulated_log.motion(4)
    tau = simulated_log.torque(robot.source, q, dq, ddq) + np.arange(1, 5) * (0.7 * dq + 0.4)
    path = simulated_log.write_csv(tmp_path / "log.csv", *simulated_log.table(t, q, tau))
    found = thetahat(
        "identify",
        "arm4",
        path,
        "--out",
        tmp_path,
        "--json",
        "--friction",
        "viscous,offset",
        "--cutoff",
        40,
        "--no-armature",
    ).data
    truth = robot.without_drive().with_drive(viscous=True, offset=True)
    x = np.concatenate([robot.theta, 0.7 * np.arange(1, 5), 0.4 * np.arange(1, 5)])
    base = th.base_parameters(truth)
    assert [b["name"] for b in found["base_parameters"]] == list(base.names)
    values, stds = (
        np.array([b[key] for b in found["base_parameters"]]) for key in ("value", "std")
    )
    np.testing.assert_allclose(
        values, base.map @ x, rtol=1e-4, atol=1e-4
    )  # a 40 Hz low-pass on motion below 1.1 Hz
    assert np.all(stds > 0.0)
    assert found["rank"] == found["structural_rank"] == len(base)
    assert (found["columns"], found["status"], found["method"]) == (48, "solved", "consistent")
    for k, joint in enumerate(found["joints"]):
        assert joint["r2_test"] > 1.0 - 1e-7
        assert joint["viscous"] == pytest.approx(0.7 * (k + 1), abs=1e-3)
        assert joint["offset"] == pytest.approx(0.4 * (k + 1), abs=1e-3)
        assert joint["coulomb"] is joint["armature"] is joint["std"]["coulomb"] is None
    assert found["r2"]["test"] > 1.0 - 1e-7
    assert found["r2"]["nominal"] < found["r2"]["test"]


def test_answer_has_the_schema_and_is_the_file(
    thetahat: Callable[..., Done], log: Path, tmp_path: Path
) -> None:
    before = digest(log, robots.path("arm4"))
    done = thetahat(
        "identify", "arm4", log, "--out", tmp_path / "new" / "folder", "--json", "--report"
    )
    assert done.code == 0
    assert done.err == ""
    target = tmp_path / "new" / "folder" / "estimate.json"
    assert target.read_text(encoding="utf-8") == done.out
    left = sorted(path.name for path in target.parent.iterdir())
    assert left == [
        "arm4_identified.urdf",
        "drive.json",
        "estimate.json",
        "report.html",
    ], "and no temporary file"
    assert digest(log, robots.path("arm4")) == before
    found = done.data
    assert set(found) >= KEYS
    assert found["schema"] == "thetahat/estimate/1"
    assert all(set(joint) >= JOINT_KEYS for joint in found["joints"])
    assert all(set(link) >= LINK_KEYS for link in found["links"])
    assert all(map(math.isfinite, numbers(found)))
    provenance = found["provenance"]
    assert provenance["robot_sha256"] == before[1]
    assert provenance["logs"] == [{"path": str(log), "sha256": before[0]}]
    assert provenance["version"] == th.__version__
    assert "cut-off" in provenance["settings"]["cutoff_reason"]
    assert provenance["settings"]["cutoff"] == found["score_cutoff"]
    assert found["samples"] == pytest.approx(0.7 * 3200, abs=1)
    for link in found["links"]:
        if None in link["com"]:  # a body that least norm gave no mass
            assert abs(link["mass"]) < 1e-9
            continue
        theta = parameters.from_mass_com_inertia(
            link["mass"], np.array(link["com"]), _matrix(link["inertia_com"])
        )
        np.testing.assert_allclose(theta, link["theta"], rtol=1e-9, atol=1e-9)
        assert link["identifiable"] == [
            name for name, std in zip(parameters.NAMES, link["std"], strict=True) if std is not None
        ]
    again = thetahat("identify", "arm4", log, "--out", tmp_path / "new" / "folder", "--json")
    np.testing.assert_allclose(
        numbers(again.data),
        numbers(found),
        rtol=1e-6,
        atol=1e-9,
        err_msg="the same log, the same answer",
    )


def _matrix(six: list[float]) -> np.ndarray:
    out = np.zeros((3, 3))
    out[np.triu_indices(3)] = six
    return out + np.triu(out, 1).T


def test_prints_the_numbers_of_the_python_path(
    thetahat: Callable[..., Done], log: Path, tmp_path: Path
) -> None:
    found = thetahat(
        "identify",
        "--tune",
        "arm4",
        log,
        "--out",
        tmp_path,
        "--json",
        "--no-armature",
        "--method",
        "least-squares",
    ).data
    robot = th.load(robots.path("arm4"))
    read = th.read_log(log, robot)
    cut = round(0.7 * read.rows)
    fitted = robot.without_drive().with_drive(viscous=True, coulomb=True, offset=True)
    prior = np.concatenate(
        [robot.theta, robot.drive.viscous, robot.drive.coulomb, robot.drive.offset]
    )
    tuned = th.tune(
        read, robot, TuningOptions(weight=0.01), fitted=fitted, span=(0, cut), prior=prior
    )
    train, test = (
        th.prepare(read, robot, settings=tuned.settings, span=span)
        for span in ((0, cut), (cut, read.rows))
    )
    fitted = tuned.robot
    estimate = th.solve(th.information(fitted, train), th.LeastSquares(weights="iterated"))
    scores = th.validate(fitted.with_parameters(estimate), test, nominal=robot)
    np.testing.assert_allclose(
        [b["value"] for b in found["base_parameters"]], estimate.x_base, rtol=1e-7, atol=1e-9
    )
    np.testing.assert_allclose(
        [joint["r2_test"] for joint in found["joints"]], scores.r2, rtol=1e-9
    )
    np.testing.assert_allclose(
        [joint["r2_test_moving"] for joint in found["joints"]], scores.r2_moving, rtol=1e-9
    )
    np.testing.assert_allclose(
        [joint["rms_nominal"] for joint in found["joints"]], scores.nominal.rms, rtol=1e-9
    )
    assert found["r2"]["train"] == pytest.approx(estimate.r2, rel=1e-9)


def test_rotor_inertia_is_what_the_log_shows_motor_by_motor(
    thetahat: Callable[..., Done], tmp_path: Path
) -> None:
    for rotor in (False, True):
        folder = tmp_path / str(rotor)
        folder.mkdir()
        path = simulated_log.simulated(folder, noise=0.02, rotor=rotor)
        found = thetahat("identify", "arm4", path, "--out", folder, "--json").data
        values = [joint["armature"] for joint in found["joints"]]
        if rotor:  # joints 3 and 4, whose rotors motion tells from the links' inertia
            np.testing.assert_allclose(values[2:], simulated_log.ROTOR * np.array([3, 4]), rtol=0.1)
            why = found["provenance"]["settings"]["armature"]
            assert why.startswith("fitted: of ")
            assert why.count("ΔBIC") == 4
        else:
            assert values == [None] * 4
    forced = thetahat("identify", "arm4", path, "--out", folder, "--json", "--no-armature").data
    assert forced["columns"] == found["columns"] - 4
    asked = thetahat("identify", "arm4", path, "--out", folder, "--json", "--armature").data
    np.testing.assert_allclose([joint["armature"] for joint in asked["joints"]], values, rtol=1e-6)


@pytest.mark.parametrize("width", [80, 120])
def test_the_report_fits_a_terminal(
    thetahat: Callable[..., Done],
    log: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    width: int,
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    done = thetahat("identify", "arm4", log, "--out", tmp_path, "-v", "--report")
    assert done.code == 0
    commands = [line for line in done.out.splitlines() if line.startswith("  thetahat ")]
    assert commands, "next steps, each in one piece"
    others = [line for line in done.out.splitlines() if line not in commands]
    assert max(map(len, others)) <= width
    words = re.sub(r"\s+", " ", done.out)
    for name in th.load(robots.path("arm4")).joint_names:
        assert len(re.findall(rf"^{name} ", done.out, flags=re.MULTILINE)) == 2, (
            "a row of scores and a row of friction"
        )
    assert "arm4: 36 of 36 base parameters identified from 2,240 samples" in words
    assert "condition number" in words
    # The path may be broken anywhere: it is as long as the folder's name.
    assert re.search(
        r"Wrote.*estimate\.json\(\d+kB\).*report\.html\(5\.\dMB\)in\d+\.\ds\.",
        re.sub(r"\s+", "", done.out),
    )
    assert "nan" not in words.lower().split()


def test_the_terminal_shows_verdict_joints_and_next_steps(
    thetahat: Callable[..., Done], log: Path, tmp_path: Path
) -> None:
    done = thetahat("identify", "arm4", log, "--out", tmp_path, "--no-report")
    blocks = done.out.split("\n\n")
    assert len(blocks) == 4, "verdict, table, next steps, files"
    assert re.match(
        r"Good: R² (> 0\.9999|0\.\d{4}) on held-out data \(nominal robot: 0\.\d{4}\)", blocks[0]
    )
    for name in th.load(robots.path("arm4")).joint_names:
        assert len(re.findall(rf"^{name} ", blocks[1], flags=re.MULTILINE)) == 1
    assert blocks[2].startswith("Next:\n  thetahat validate ")
    assert f"--estimate {tmp_path / 'estimate.json'}" in blocks[2]
    assert blocks[3].startswith("Wrote")


# -- real robots -----------------------------------------------------------------------------------

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


# -- options ---------------------------------------------------------------------------------------


def test_joints_restricts_fit_and_score(
    thetahat: Callable[..., Done], log: Path, tmp_path: Path
) -> None:
    found = thetahat(
        "identify", "arm4", log, "--out", tmp_path, "--json", "--joints", "elbow,arm_yaw"
    ).data
    pitch, roll, yaw, elbow = found["joints"]
    for joint in (pitch, roll):
        assert joint["rows_train"] == 0
        assert {joint[key] for key in JOINT_KEYS - {"name"}} == {None}
    whole = thetahat("identify", "arm4", log, "--out", tmp_path, "--json").data["joints"]
    for joint, same in zip((yaw, elbow), whole[2:], strict=True):
        assert joint["r2_test"] == pytest.approx(same["r2_test"], abs=0.01)
        assert joint["viscous"] == pytest.approx(same["viscous"], rel=0.05)
    assert found["rank"] == found["structural_rank"] < 36
    assert found["status"] == "solved"
    done = thetahat("identify", "arm4", log, "--out", tmp_path, "--joints", "elbw")
    assert (done.code, "shoulder_pitch, shoulder_roll, arm_yaw, elbow" in done.err) == (2, True)


def test_scores_say_their_cutoff(thetahat: Callable[..., Done], log: Path, tmp_path: Path) -> None:
    plain = thetahat("identify", "arm4", log, "--out", tmp_path, "--json", "--cutoff", 10).data
    low = thetahat(
        "identify", "arm4", log, "--out", tmp_path, "--json", "--cutoff", 10, "--score-cutoff", 5
    ).data
    assert (plain["score_cutoff"], low["score_cutoff"]) == (10, 5)
    values = ([b["value"] for b in found["base_parameters"]] for found in (plain, low))
    np.testing.assert_allclose(*values, rtol=1e-6, atol=1e-9, err_msg="the fit does not change")
    assert plain["r2"]["test"] != low["r2"]["test"]
    assert plain["r2"]["test_raw"] == pytest.approx(low["r2"]["test_raw"], abs=1e-6)


def test_held_out_rows_touch_nothing_but_the_score(
    thetahat: Callable[..., Done], rows: tuple, tmp_path: Path
) -> None:
    names, values = rows
    spoiled = values.copy()
    spoiled[round(0.7 * len(values)) :, 9:] *= 1.1  # torques of the held-out part
    answers = [
        thetahat(
            "identify",
            "arm4",
            simulated_log.write_csv(tmp_path / f"{k}.csv", names, v),
            "--tune",
            "--out",
            tmp_path,
            "--json",
        ).data
        for k, v in enumerate((values, spoiled))
    ]
    values = ([b["value"] for b in answer["base_parameters"]] for answer in answers)
    np.testing.assert_allclose(*values, rtol=1e-6, atol=1e-9)
    assert answers[0]["provenance"]["settings"] == answers[1]["provenance"]["settings"]
    assert answers[0]["r2"]["test"] > answers[1]["r2"]["test"] + 0.001


def test_nothing_held_out_is_not_known(
    thetahat: Callable[..., Done], log: Path, tmp_path: Path
) -> None:
    found = thetahat("identify", "arm4", log, "--out", tmp_path, "--json", "--holdout", 0).data
    assert (
        found["r2"]["test"]
        is found["score_cutoff"]
        is found["joints"][0]["r2_test"]
        is found["joints"][0]["rms_nominal"]
        is None
    )
    assert found["samples"] == 3200
    assert (
        "Not validated" in thetahat("identify", "arm4", log, "--out", tmp_path, "--holdout", 0).out
    )


def test_a_sideways_robot_is_found_and_the_option_works(
    thetahat: Callable[..., Done], tmp_path: Path
) -> None:
    path = simulated_log.simulated(tmp_path, noise=0.02, friction=False, gravity=(9.81, 0.0, 0.0))
    done = thetahat("identify", "arm4", path, "--out", tmp_path, "--json")
    assert re.search(r"warning: .*--gravity 9\.81,0,0", done.err)
    assert "gravity-direction" in [finding["kind"] for finding in done.data["findings"]]
    assert thetahat("identify", "arm4", path, "--out", tmp_path, "--json", "--quiet").err == ""
    assert "--gravity 9.81,0,0" in thetahat("identify", "arm4", path, "--out", tmp_path).out
    fixed = thetahat("identify", "arm4", path, "--out", tmp_path, "--json", "--gravity", "9.81,0,0")
    assert fixed.data["r2"]["test"] > 0.999 > done.data["r2"]["test"]


@pytest.mark.parametrize(
    "options",
    [
        ["--method", "least-squares"],
        ["--method", "prior", "--alpha", "0.9"],
        ["--method", "prior", "--alpha", "0.9", "--prior", "arm4"],
        ["--method", "positive"],
        ["--method", "consistent", "--metric", "entropic", "--prior-weight", "0.5"],
        ["--method", "consistent", "--weights", "iterated", "--robust"],
        ["--method", "smooth"],
    ],
    ids=lambda options: " ".join(options),
)
def test_every_method_answers(
    thetahat: Callable[..., Done], log: Path, tmp_path: Path, options: list[str]
) -> None:
    found = thetahat("identify", "arm4", log, "--out", tmp_path, "--json", *options).data
    smooth = options[1] == "smooth"  # another solver of the consistent fit
    assert found["method"].endswith("consistent" if smooth else options[1])
    assert not smooth or found["certificate"]["solver"] == "log-Cholesky Newton"
    assert found["status"] == "solved"
    assert found["r2"]["test"] > 0.99
    assert abs(found["r2"]["pseudo_inverse"] - found["r2"]["test"]) < 0.01
    assert all(joint["rms_pseudo_inverse"] > 0.0 for joint in found["joints"])
    physical = options[1] in ("consistent", "smooth")
    assert found["consistent"] or not physical
    if physical:
        assert found["certificate"]["gap"] <= 1e-6 * (1.0 + found["certificate"]["objective"])
        assert found["certificate"]["eigenvalue"] >= 1e-9
    assert {b["name"] for b in found["base_parameters"] if b["relative_std"] is None} == set()


def test_the_prior_is_another_robot_file(
    thetahat: Callable[..., Done], log: Path, tmp_path: Path
) -> None:
    """What no motion shows keeps the values of --prior, number by number in the Euclidean metric;
    an unphysical one is projected, with a warning.
    """
    text = robots.path("arm4").read_text(encoding="utf-8")
    heavy = tmp_path / "heavy.urdf"
    heavy.write_text(
        re.sub(r'mass value="([\d.]+)"', lambda m: f'mass value="{2 * float(m[1])}"', text),
        encoding="utf-8",
    )
    found = thetahat(
        "identify",
        "arm4",
        log,
        "--out",
        tmp_path,
        "--json",
        "--prior",
        heavy,
        "--metric",
        "euclidean",
    ).data
    nominal, prior = th.load(robots.path("arm4")), th.load(heavy)
    assert "m_shoulder" in found["unseen"]
    assert found["links"][0]["mass"] == pytest.approx(prior.theta[9])
    assert found["links"][0]["nominal"]["mass"] == pytest.approx(nominal.theta[9])
    light = tmp_path / "light.urdf"
    light.write_text(
        re.sub(r'mass value="([\d.]+)"', 'mass value="-1"', text, count=2), encoding="utf-8"
    )
    done = thetahat("identify", "arm4", log, "--out", tmp_path, "--json", "--prior", light)
    assert done.code == 0
    assert any("cannot be rigid bodies" in warning for warning in done.data["warnings"])
    assert done.data["consistent"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--method", "magic"], "methods: consistent, least-squares, prior, positive, smooth"),
        (["--method", "least-squares", "--alpha", "0.5"], "belongs to prior"),
        (["--method", "positive", "--prior", "arm4"], "belongs to consistent and prior and smooth"),
        (["--method", "prior", "--alpha", "1"], "between 0"),
        (["--method", "prior", "--alpha", "nan"], "between 0"),
        (["--prior-weight", "-1"], "at least 0"),
        (["--prior-weight", "nan"], "at least 0"),
        (["--metric", "manhattan"], "entropic, euclidean"),
        (["--prior", "arm7"], "another robot"),
        (["--weights", "sample"], "iterated, joint, none"),
        (["--friction", "stribeck"], "viscous, coulomb, offset"),
        (["--friction", ","], "--friction is empty"),
        (["--cutoff", "-1"], "positive"),
        (["--cutoff", "nan"], "positive"),
        (["--cutoff", "500"], "no more than"),
        (["--score-cutoff", "0"], "positive"),
        (["--min-speed", "-1"], "positive"),
        (["--holdout", "1"], "from 0 to less than 1"),
        (["--holdout", "nan"], "from 0 to less than 1"),
        (["--holdout", "0.2", "--test", "x.csv"], "--test and --holdout"),
        (["--gravity", "0,0"], "three numbers"),
        (["--columns", "q"], "q"),
        (["--joints", ","], "--joints is empty"),
    ],
)
def test_usage(
    thetahat: Callable[..., Done], log: Path, tmp_path: Path, options: list[str], words: str
) -> None:
    done = thetahat("identify", "arm4", log, "--out", tmp_path / "out", *options)
    assert done.code == 2
    assert words in done.err
    assert done.out == ""
    assert not (tmp_path / "out").exists()


def test_missing_arguments_are_usage(thetahat: Callable[..., Done], log: Path) -> None:
    assert thetahat("identify", "arm4", log).code == 2
    assert thetahat("identify", "arm4").code == 2


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("1,0\n0,1\n", 2, "has 2 rows; give 4"),
        ("1,0\n0\n", 3, "line 2"),
        ("1,0\n0,inf\n", 3, "line 2"),
        ("", 3, "no numbers"),
        ("a,b\n", 3, "no numbers"),
        ("1,0,0,0\n0,1,0,0\n0,0,1,0\n0,0,0,0\n", 2, "drives no joint"),
    ],
)
def test_bad_actuation(
    thetahat: Callable[..., Done], log: Path, tmp_path: Path, text: str, code: int, words: str
) -> None:
    (tmp_path / "B.csv").write_text(text)
    done = thetahat("identify", "arm4", log, "--out", tmp_path, "--actuation", tmp_path / "B.csv")
    assert done.code == code, done.err
    assert words in done.err


def test_actuation_names_its_motors(
    thetahat: Callable[..., Done], log: Path, tmp_path: Path
) -> None:
    (tmp_path / "B.csv").write_text(
        "left,right,yaw,elbow\n10,10,0,0\n10,-10,0,0\n0,0,1,0\n0,0,0,1\n"
    )
    found = thetahat(
        "identify", "arm4", log, "--out", tmp_path, "--json", "--actuation", tmp_path / "B.csv"
    ).data
    assert [motor["name"] for motor in found["motors"]] == ["left", "right", "yaw", "elbow"]
    assert (
        thetahat(
            "identify", "arm4", log, "--out", tmp_path, "--actuation", tmp_path / "absent.csv"
        ).code
        == 6
    )


# -- not usable ------------------------------------------------------------------------------------


def in_millinewtons(log: Path, folder: Path) -> Path:
    """The log with its torques in mN·m."""
    lines = log.read_text().splitlines()
    names = lines[0].split(",")
    table = np.loadtxt(lines[1:], delimiter=",")
    table[:, [k for k, name in enumerate(names) if name.startswith("tau")]] *= 1000.0
    path = folder / "mnm.csv"
    np.savetxt(path, table, delimiter=",", header=lines[0], comments="")
    return path


def test_what_is_not_usable_leaves_no_robot_file(
    thetahat: Callable[..., Done], log: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert thetahat("identify", "arm4", log, "--out", out, "--no-report").code == 0
    assert (out / "arm4_identified.urdf").is_file()
    wrong = in_millinewtons(log, tmp_path)
    done = thetahat("identify", "arm4", wrong, "--out", out, "--no-report")
    assert done.code == 0
    assert done.out.startswith("Not usable: ")
    assert "No robot file is written, as the result is not usable; --force writes it." in done.out
    assert [path.name for path in out.iterdir()] == ["estimate.json"], "nor one of an earlier run"
    found = json.loads((out / "estimate.json").read_text())
    assert (found["verdict"]["level"], found["parity"]) == ("not usable", None)
    assert any("mN·m" in reason for reason in found["verdict"]["reasons"])


def test_force_writes_it_and_strict_ends_with_eight(
    thetahat: Callable[..., Done], log: Path, tmp_path: Path
) -> None:
    wrong = in_millinewtons(log, tmp_path)
    given = ("identify", "arm4", wrong, "--out", tmp_path / "out", "--no-report")
    done = thetahat(*given, "--force", "--strict")
    assert done.code == 8
    assert (tmp_path / "out" / "arm4_identified.urdf").is_file()
    assert "error: the result is not usable (--strict): " in done.err
    good = thetahat("identify", "arm4", log, "--out", tmp_path / "out", "--no-report", "--strict")
    assert good.code == 0


def test_save_in_python_obeys_too(log: Path, tmp_path: Path) -> None:
    settings = th.IdentifySettings(tune=False, report=False)
    result = th.identify("arm4", in_millinewtons(log, tmp_path), settings=settings)
    assert not result.verdict.usable
    assert [path.name for path in result.save(tmp_path / "a").files] == ["estimate.json"]
    names = {path.name for path in result.save(tmp_path / "a", force=True).files}
    assert "arm4_identified.urdf" in names
