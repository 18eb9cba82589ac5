"""`thetahat identify`: numbers against Pinocchio and measured baselines, the schema, the exit code of every bad log, files never half-written."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import json
import math
import os
import pickle
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import bag_files
import simulated_log
import thetahat as th
from data_paths import ROOT, shared_file
from thetahat import cli, robots
from thetahat.cli import identify as verb
from thetahat.cli import progress as bars
from thetahat.data.formats.write import write_table
from thetahat.model import parameters

KEYS = {"schema", "method", "samples", "rank", "columns", "condition", "r2", "consistent", "status", "joints", "links", "base_parameters", "parity"}
KEYS |= {"score_cutoff", "provenance", "findings", "locked", "dropped", "advice", "motors", "structural_rank", "warnings"}
JOINT_KEYS = {"name", "r2_test", "r2_test_moving", "rms_test", "r2_train", "rms_nominal", "viscous", "coulomb", "offset", "armature", "r2_test_raw"}
LINK_KEYS = {"name", "mass", "com", "inertia_com", "theta", "std", "identifiable", "consistent"}
SLACK = 0.02  # of R² against baselines measured by another program with another filter


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def data(self) -> dict:
        def refuse(constant: str) -> None:
            pytest.fail(f"{constant} in JSON")

        return json.loads(self.out, parse_constant=refuse)


@pytest.fixture
def thetahat(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """The command line, in this process: what `thetahat …` in a shell does, without paying for a start each time."""
    monkeypatch.delenv("THETAHAT_DEBUG", raising=False)

    def call(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["thetahat", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return Done(int(ended.value.code or 0), out, err)

    return call


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated_log.simulated(tmp_path_factory.mktemp("log"), noise=0.02)


@pytest.fixture(scope="module")
def rows(log: Path) -> tuple[list[str], np.ndarray]:
    """The simulated log's column names and numbers, to be spoiled."""
    return log.read_text().split("\n", 1)[0].split(","), np.loadtxt(log, delimiter=",", skiprows=1)


def digest(*paths: Path) -> list[str]:
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths]


def numbers(value: object) -> list[float]:
    """Every number in a JSON value."""
    if isinstance(value, dict):
        return [x for part in value.values() for x in numbers(part)]
    if isinstance(value, list):
        return [x for part in value for x in numbers(part)]
    return [float(value)] if isinstance(value, int | float) and not isinstance(value, bool) else []


# -- what it says -----------------------------------------------------------------------------------------------------


def test_finds_what_pinocchio_was_given(thetahat: Callable[..., Done], tmp_path: Path) -> None:
    """Noise-free torques by Pinocchio, smooth friction: base parameters and friction come back, held-out rows are predicted."""
    robot = th.load(robots.path("arm4"))
    t, q, dq, ddq = simulated_log.motion(4)
    tau = simulated_log.torque(robot.source, q, dq, ddq) + np.arange(1, 5) * (0.7 * dq + 0.4)
    path = simulated_log.write_csv(tmp_path / "log.csv", *simulated_log.table(t, q, tau))
    found = thetahat("identify", "arm4", path, "--out", tmp_path, "--json", "--friction", "viscous,offset", "--cutoff", 40, "--no-armature").data
    truth = robot.without_drive().with_drive(viscous=True, offset=True)
    x = np.concatenate([robot.theta, 0.7 * np.arange(1, 5), 0.4 * np.arange(1, 5)])
    base = th.base_parameters(truth)
    assert [b["name"] for b in found["base_parameters"]] == list(base.names)
    values, stds = (np.array([b[key] for b in found["base_parameters"]]) for key in ("value", "std"))
    np.testing.assert_allclose(values, base.map @ x, rtol=1e-4, atol=1e-4)  # a 40 Hz low-pass on motion below 1.1 Hz
    assert np.all(stds > 0.0)
    assert found["rank"] == found["structural_rank"] == len(base)
    assert (found["columns"], found["status"], found["method"]) == (48, "solved", "least-squares")
    for k, joint in enumerate(found["joints"]):
        assert joint["r2_test"] > 1.0 - 1e-7
        assert joint["viscous"] == pytest.approx(0.7 * (k + 1), abs=1e-3)
        assert joint["offset"] == pytest.approx(0.4 * (k + 1), abs=1e-3)
        assert joint["coulomb"] is joint["armature"] is joint["std"]["coulomb"] is None
    assert found["r2"]["test"] > 1.0 - 1e-7
    assert found["r2"]["nominal"] < found["r2"]["test"]


def test_answer_has_the_schema_and_is_the_file(thetahat: Callable[..., Done], log: Path, tmp_path: Path) -> None:
    before = digest(log, robots.path("arm4"))
    done = thetahat("identify", "arm4", log, "--out", tmp_path / "new" / "folder", "--json")
    assert done.code == 0
    assert done.err == ""
    target = tmp_path / "new" / "folder" / "estimate.json"
    assert target.read_text(encoding="utf-8") == done.out
    assert list(target.parent.iterdir()) == [target], "no temporary file is left"
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
        theta = parameters.from_mass_com_inertia(link["mass"], np.array(link["com"]), _matrix(link["inertia_com"]))
        np.testing.assert_allclose(theta, link["theta"], rtol=1e-9, atol=1e-9)
        assert link["identifiable"] == [name for name, std in zip(parameters.NAMES, link["std"], strict=True) if std is not None]
    again = thetahat("identify", "arm4", log, "--out", tmp_path / "new" / "folder", "--json")
    np.testing.assert_allclose(numbers(again.data), numbers(found), rtol=1e-6, atol=1e-9, err_msg="the same log, the same answer")


def _matrix(six: list[float]) -> np.ndarray:
    out = np.zeros((3, 3))
    out[np.triu_indices(3)] = six
    return out + np.triu(out, 1).T


def test_prints_the_numbers_of_the_python_path(thetahat: Callable[..., Done], log: Path, tmp_path: Path) -> None:
    from thetahat.data.prepare import choose

    found = thetahat("identify", "arm4", log, "--out", tmp_path, "--json", "--no-armature").data
    robot = th.load(robots.path("arm4"))
    read = th.read_log(log, robot)
    cut = round(0.7 * read.rows)
    settings = choose(read, robot, span=(0, cut))
    train, test = (th.prepare(read, robot, settings=settings, span=span) for span in ((0, cut), (cut, read.rows)))
    fitted = robot.without_drive().with_drive(viscous=True, coulomb=True, offset=True)
    estimate = th.identify(th.information(fitted, train), th.LeastSquares(weights="joint"))
    scores = th.validate(fitted.with_parameters(estimate), test, nominal=robot)
    np.testing.assert_allclose([b["value"] for b in found["base_parameters"]], estimate.x_base, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose([joint["r2_test"] for joint in found["joints"]], scores.r2, rtol=1e-9)
    np.testing.assert_allclose([joint["r2_test_moving"] for joint in found["joints"]], scores.r2_moving, rtol=1e-9)
    np.testing.assert_allclose([joint["rms_nominal"] for joint in found["joints"]], scores.nominal.rms, rtol=1e-9)
    assert found["r2"]["train"] == pytest.approx(estimate.r2, rel=1e-9)


def test_rotor_inertia_is_in_the_model_only_if_the_log_shows_it(thetahat: Callable[..., Done], tmp_path: Path) -> None:
    for rotor in (False, True):
        folder = tmp_path / str(rotor)
        folder.mkdir()
        path = simulated_log.simulated(folder, noise=0.02, rotor=rotor)
        found = thetahat("identify", "arm4", path, "--out", folder, "--json").data
        values = [joint["armature"] for joint in found["joints"]]
        if rotor:  # joints 3 and 4, whose rotors motion tells from the links' inertia
            np.testing.assert_allclose(values[2:], simulated_log.ROTOR * np.array([3, 4]), rtol=0.1)
            assert "in the model" in found["provenance"]["settings"]["armature"]
        else:
            assert values == [None] * 4
    forced = thetahat("identify", "arm4", path, "--out", folder, "--json", "--no-armature").data
    assert forced["columns"] == found["columns"] - 4
    asked = thetahat("identify", "arm4", path, "--out", folder, "--json", "--armature").data
    np.testing.assert_allclose([joint["armature"] for joint in asked["joints"]], values, rtol=1e-6)


def test_the_report_fits_a_terminal(thetahat: Callable[..., Done], log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for width in (80, 120):
        monkeypatch.setenv("COLUMNS", str(width))
        done = thetahat("identify", "arm4", log, "--out", tmp_path)
        assert done.code == 0
        assert max(map(len, done.out.splitlines())) <= width
        words = re.sub(r"\s+", " ", done.out)
        for name in th.load(robots.path("arm4")).joint_names:
            assert len(re.findall(rf"^{name} ", done.out, flags=re.MULTILINE)) == 2, "a row of scores and a row of friction"
        assert re.match(r"arm4: 36 parameters from 2,240 samples; R² 0\.\d{4} on held-out data \(the robot as its file states it: 0\.\d{4}\)", words)
        assert "rank 36, condition" in words
        # The path may be broken anywhere: it is as long as the folder's name.
        assert re.search(r"Wrote.*estimate\.json\(\d+kB\)in\d+\.\ds\.", re.sub(r"\s+", "", done.out))
        assert "nan" not in words.lower().split()


# -- real robots ------------------------------------------------------------------------------------------------------

# The wrist of a TX40 is coupled: what turns with motor 6 acts on joints 5 and 6 at the sum of their speeds.
WRIST = "j1,j2,j3,j4,j5,j6,coupling\n1,0,0,0,0,0,0\n0,1,0,0,0,0,0\n0,0,1,0,0,0,0\n0,0,0,1,0,0,0\n0,0,0,0,1,0,1\n0,0,0,0,0,1,1\n"

# robot, log, options, score, baselines per joint as measured in the log's SOURCE.md
BASELINES = {
    "panda": (
        "panda/panda_nomesh_from_example_robot_data.urdf", "panda/panda_exciting_traj1.csv", ["--cutoff", 10, "--holdout", 0.5], "r2_test",
        [0.9962, 0.9998, 0.9998, 0.9999, 0.9951, 0.9986, 0.9448],
    ),
    "panda 30 Hz": (
        "ur10/panda_nomesh.urdf", "ur10/panda_exciting.csv", ["--cutoff", 4, "--holdout", 0.5], "r2_test",
        [0.8696, 0.9999, 0.9997, 0.9999, 0.9669, 0.9913, 0.956],
    ),
    "ur10": (
        "ur10/ur10_nomesh.urdf", "ur10/ur10_exciting.csv", ["--cutoff", 5, "--holdout", 0.5, "--armature"], "r2_test_moving",
        [0.9753, 0.9979, 0.9973, 0.989, 0.9912, 0.9842],
    ),
    "kr300": (
        "kr300/kr300_from_dh.urdf", "kr300/kr300.csv", ["--cutoff", 10, "--holdout", 1 / 3, "--armature"], "r2_test_moving",
        [0.9967, 0.9984, 0.9993, 0.9822, 0.9987, 0.992],
    ),
    "tx40": (
        "tx40/tx40_mdh_modified.urdf", "tx40/tx40.csv", ["--cutoff", 50, "--holdout", 0.5, "--actuation", "wrist.csv"], "r2_test_moving",
        [0.9947, 0.9963, 0.9918, 0.9937, 0.9612, 0.9604],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BASELINES)
def test_real_logs_reach_their_baselines(thetahat: Callable[..., Done], tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
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
    """Fingers without a column are welded to the hand: 64 base parameters of 91, and every default chosen."""
    folder = shared_file("logs", "panda")
    found = thetahat(
        "identify", folder / "panda_nomesh_from_example_robot_data.urdf", folder / "panda_exciting_traj1.csv", "--out", tmp_path, "--json"
    ).data
    assert (found["rank"], found["columns"], found["locked"]) == (64, 91, ["panda_finger_joint1"])
    assert [joint["name"] for joint in found["joints"]] == [f"panda_joint{k}" for k in range(1, 8)]
    assert min(joint["r2_test"] for joint in found["joints"]) > 0.95
    assert all(joint["armature"] is None for joint in found["joints"]), "link-side sensors see no rotors"
    assert "panda_rightfinger" in found["links"][-1]["links"]


def test_panda_friction_is_the_published_one(thetahat: Callable[..., Done], tmp_path: Path) -> None:
    """Gaz et al. 2019, Table III, from the same trajectory by plain least squares on all of its rows, with their own filter."""
    folder = shared_file("logs", "panda")
    robot, path = folder / "panda_nomesh_from_example_robot_data.urdf", folder / "panda_exciting_traj1.csv"
    options = ["--cutoff", 10, "--holdout", 0, "--weights", "none", "--min-speed", 0, "--no-armature"]
    found = thetahat("identify", robot, path, "--out", tmp_path, "--json", *options).data
    published = np.genfromtxt(folder / "published_friction_piCLS.csv", delimiter=",", skip_header=1, usecols=1)[7:14]
    np.testing.assert_allclose([joint["coulomb"] for joint in found["joints"]], published, rtol=0, atol=0.06)


def test_another_log_can_be_the_test(thetahat: Callable[..., Done], tmp_path: Path) -> None:
    """Fitted on one Panda, scored on another: the baseline of SOURCE.md."""
    fit, test = shared_file("logs", "panda", "panda_exciting_traj1.csv"), shared_file("logs", "ur10", "panda_exciting.csv")
    robot = shared_file("logs", "panda", "panda_nomesh_from_example_robot_data.urdf")
    # At 30 Hz the baseline's three-point differences are a low-pass of their own, which is why it could be run at 10 Hz.
    found = thetahat("identify", robot, fit, "--test", test, "--cutoff", 4, "--out", tmp_path, "--json").data
    baseline = [0.8435, 0.9994, 0.9997, 0.9978, 0.9491, 0.9183, 0.9372]
    reached = np.array([joint["r2_test"] for joint in found["joints"]])
    assert np.all(reached >= np.array(baseline) - SLACK), reached
    assert found["provenance"]["test_logs"][0]["path"] == str(test)
    assert found["provenance"]["settings"]["rows_held_out"] is None
    assert found["samples"] > 20_000
    done = thetahat("identify", robot, fit, "--test", fit, "--out", tmp_path)
    assert (done.code, "same content" in done.err) == (2, True)


# -- options ----------------------------------------------------------------------------------------------------------


def test_joints_restricts_fit_and_score(thetahat: Callable[..., Done], log: Path, tmp_path: Path) -> None:
    found = thetahat("identify", "arm4", log, "--out", tmp_path, "--json", "--joints", "elbow,arm_yaw").data
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
    low = thetahat("identify", "arm4", log, "--out", tmp_path, "--json", "--cutoff", 10, "--score-cutoff", 5).data
    assert (plain["score_cutoff"], low["score_cutoff"]) == (10, 5)
    values = ([b["value"] for b in found["base_parameters"]] for found in (plain, low))
    np.testing.assert_allclose(*values, rtol=1e-6, atol=1e-9, err_msg="the fit does not change")
    assert plain["r2"]["test"] != low["r2"]["test"]
    assert plain["r2"]["test_raw"] == pytest.approx(low["r2"]["test_raw"], abs=1e-6)


def test_held_out_rows_touch_nothing_but_the_score(thetahat: Callable[..., Done], rows: tuple, tmp_path: Path) -> None:
    names, values = rows
    spoiled = values.copy()
    spoiled[round(0.7 * len(values)) :, 9:] *= 1.1  # torques of the held-out part
    answers = [
        thetahat("identify", "arm4", simulated_log.write_csv(tmp_path / f"{k}.csv", names, v), "--out", tmp_path, "--json").data
        for k, v in enumerate((values, spoiled))
    ]
    values = ([b["value"] for b in answer["base_parameters"]] for answer in answers)
    np.testing.assert_allclose(*values, rtol=1e-6, atol=1e-9)
    assert answers[0]["provenance"]["settings"] == answers[1]["provenance"]["settings"]
    assert answers[0]["r2"]["test"] > answers[1]["r2"]["test"] + 0.001


def test_nothing_held_out_is_not_known(thetahat: Callable[..., Done], log: Path, tmp_path: Path) -> None:
    found = thetahat("identify", "arm4", log, "--out", tmp_path, "--json", "--holdout", 0).data
    assert found["r2"]["test"] is found["score_cutoff"] is found["joints"][0]["r2_test"] is found["joints"][0]["rms_nominal"] is None
    assert found["samples"] == 3200
    assert "not known" in thetahat("identify", "arm4", log, "--out", tmp_path, "--holdout", 0).out


def test_a_sideways_robot_is_found_and_the_option_works(thetahat: Callable[..., Done], tmp_path: Path) -> None:
    path = simulated_log.simulated(tmp_path, noise=0.02, friction=False, gravity=(9.81, 0.0, 0.0))
    done = thetahat("identify", "arm4", path, "--out", tmp_path, "--json")
    assert re.search(r"warning: .*--gravity 9\.81,0,0", done.err)
    assert "gravity-direction" in [finding["kind"] for finding in done.data["findings"]]
    assert thetahat("identify", "arm4", path, "--out", tmp_path, "--json", "--quiet").err == ""
    assert "--gravity 9.81,0,0" in thetahat("identify", "arm4", path, "--out", tmp_path).out
    fixed = thetahat("identify", "arm4", path, "--out", tmp_path, "--json", "--gravity", "9.81,0,0")
    assert fixed.data["r2"]["test"] > 0.999 > done.data["r2"]["test"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--method", "consistent"], "methods: least-squares"),
        (["--weights", "sample"], "joint, none"),
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
def test_usage(thetahat: Callable[..., Done], log: Path, tmp_path: Path, options: list[str], words: str) -> None:
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
def test_bad_actuation(thetahat: Callable[..., Done], log: Path, tmp_path: Path, text: str, code: int, words: str) -> None:
    (tmp_path / "B.csv").write_text(text)
    done = thetahat("identify", "arm4", log, "--out", tmp_path, "--actuation", tmp_path / "B.csv")
    assert done.code == code, done.err
    assert words in done.err


def test_actuation_names_its_motors(thetahat: Callable[..., Done], log: Path, tmp_path: Path) -> None:
    (tmp_path / "B.csv").write_text("left,right,yaw,elbow\n10,10,0,0\n10,-10,0,0\n0,0,1,0\n0,0,0,1\n")
    found = thetahat("identify", "arm4", log, "--out", tmp_path, "--json", "--actuation", tmp_path / "B.csv").data
    assert [motor["name"] for motor in found["motors"]] == ["left", "right", "yaw", "elbow"]
    assert thetahat("identify", "arm4", log, "--out", tmp_path, "--actuation", tmp_path / "absent.csv").code == 6


# -- bad logs ---------------------------------------------------------------------------------------------------------


def text_of(names: list[str], values: np.ndarray) -> str:
    buffer = io.StringIO()
    np.savetxt(buffer, values, delimiter=",", header=",".join(names), comments="", fmt="%.9g")
    return buffer.getvalue()


def line_changed(text: str, at: int, change: Callable[[str], str]) -> str:
    lines = text.splitlines()
    lines[at - 1] = change(lines[at - 1])
    return "\n".join(lines) + "\n"


CSV = {
    # what happened to the log: (how, exit code, words of the sentence)
    "empty": (lambda s: "", 3, ["empty"]),
    "header only": (lambda s: s.split("\n")[0] + "\n", 5, ["no rows"]),
    "cut last row": (lambda s: s[:-15], 3, ["line 3201"]),
    "short row": (lambda s: line_changed(s, 50, lambda row: row.rsplit(",", 1)[0]), 3, ["line 50", "12 fields"]),
    "long row": (lambda s: line_changed(s, 50, lambda row: row + ",1"), 3, ["line 50", "14 fields"]),
    "repeated header": (lambda s: line_changed(s, 50, lambda row: s.split("\n")[0] + "\n" + row), 3, ["line 50", "repeated"]),
    "text cell": (lambda s: line_changed(s, 50, lambda row: row.rsplit(",", 1)[0] + ",broken"), 3, ["line 50", "'tau4'", "'broken'"]),
    "infinity": (lambda s: line_changed(s, 50, lambda row: row.rsplit(",", 1)[0] + ",inf"), 3, ["line 50", "'tau4'"]),
    "1e400": (lambda s: line_changed(s, 50, lambda row: row.rsplit(",", 1)[0] + ",1e400"), 3, ["line 50", "'tau4'"]),
    "semicolons": (lambda s: s.replace(",", ";"), 3, ["semicolons"]),
    "decimal commas": (lambda s: s.replace(",", ";").replace(".", ","), 3, ["decimal points"]),
    "duplicate column": (lambda s: s.replace("q2,", "q1,", 1), 3, ["'q1'", "twice"]),
    "NUL": (lambda s: line_changed(s, 50, lambda row: row + "\0"), 3, ["line 50", "NUL"]),
    "20,000 columns": (lambda s: ",".join(["t", *(f"x{k}" for k in range(20_000))]) + "\n", 7, ["columns"]),
    "other joints": (lambda s: re.sub(r"\b(d?q|tau)(\d)", r"\1.axis\2", s.split("\n")[0]) + s[s.index("\n") :], 3, ["axis1", "shoulder_pitch"]),
    "no torque": (lambda s: s.replace("tau", "x", 4), 3, ["no torque columns", "--columns"]),
    "repeated stamp": (lambda s: line_changed(s, 50, lambda row: "0.235," + row.split(",", 1)[1]), 3, ["line 50"]),
    "backward stamp": (lambda s: line_changed(s, 50, lambda row: "0.1," + row.split(",", 1)[1]), 3, ["line 50"]),
}  # fmt: skip


def refused(done: Done, code: int, words: list[str], path: Path) -> None:
    assert done.code == code, (done.code, done.err)
    assert done.out == ""
    last = done.err.strip().splitlines()[-1]
    assert last.startswith("error: ")
    assert path.name in last
    for word in words:
        assert word in last, last


@pytest.mark.parametrize("case", CSV)
def test_bad_csv(thetahat: Callable[..., Done], rows: tuple, tmp_path: Path, case: str) -> None:
    how, code, words = CSV[case]
    path = tmp_path / "log.csv"
    path.write_text(how(text_of(*rows)), newline="")
    before = digest(path)
    refused(thetahat("identify", "arm4", path, "--out", tmp_path / "out"), code, words, path)
    assert digest(path) == before
    assert not (tmp_path / "out").exists()


def test_the_log_that_is_spoiled_above_is_good(thetahat: Callable[..., Done], rows: tuple, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(text_of(*rows))
    assert thetahat("identify", "arm4", tmp_path / "log.csv", "--out", tmp_path).code == 0


@pytest.mark.parametrize("case", ["UTF-16", "Latin-1", "gzip", "gzip bomb", "pickle", "object array", "cut parquet", "absent"])
def test_bad_files(thetahat: Callable[..., Done], rows: tuple, tmp_path: Path, case: str) -> None:
    names, values = rows
    text = text_of(names, values)
    path = tmp_path / {"pickle": "log.pkl", "object array": "log.npz", "cut parquet": "log.parquet"}.get(case, "log.csv")
    match case:
        case "UTF-16":
            path.write_bytes(text.encode("utf-16"))
        case "Latin-1":
            path.write_bytes(text.replace("tau4", "é4", 1).encode("latin-1"))
        case "gzip":
            path.write_bytes(gzip.compress(text.encode()))
        case "gzip bomb":
            path.write_bytes(gzip.compress(bytes(20_000_000)))
        case "pickle":
            path.write_bytes(pickle.dumps(os.getcwd))
        case "object array":
            np.savez(path, **dict(zip(names, values.T, strict=True)), extra=np.array([{}], dtype=object))
        case "cut parquet":
            write_table(path, names, list(values.T))
            path.write_bytes(path.read_bytes()[:-40])
    code = {"UTF-16": 3, "Latin-1": 3, "cut parquet": 3, "absent": 6}.get(case, 7)
    before = digest(path) if path.exists() else []
    refused(thetahat("identify", "arm4", path, "--out", tmp_path / "out"), code, [], path)
    assert not before or digest(path) == before


def test_bad_bags(thetahat: Callable[..., Done], tmp_path: Path) -> None:
    pytest.importorskip("rosbags", reason="rosbags is not installed (pip install thetahat[ros])")
    names = th.load(robots.path("arm4")).joint_names
    folder = bag_files.write_ros2(tmp_path / "bag", names, bag_files.motion(joints=4))
    whole = next(folder.glob("*.mcap")).read_bytes()
    done = thetahat("identify", "arm4", folder, "--out", tmp_path, "--topic", "/arm")
    assert (done.code, "/joint_states" in done.err) == (3, True)
    path = tmp_path / "log.mcap"
    path.write_bytes(whole[: len(whole) // 2])
    refused(thetahat("identify", "arm4", path, "--out", tmp_path), 3, ["salvage"], path)
    checked = bytearray(bag_files.with_checksums(whole))
    checked[bag_files.chunk_middles(bytes(checked))[0]] ^= 8
    path.write_bytes(checked)
    refused(thetahat("identify", "arm4", path, "--out", tmp_path), 3, [], path)


def test_units_that_are_not_si(thetahat: Callable[..., Done], rows: tuple, tmp_path: Path) -> None:
    names, values = rows
    degrees, milliseconds = values.copy(), values.copy()
    degrees[:, 1:9] = np.degrees(values[:, 1:9])
    milliseconds[:, 0] *= 1e3
    for word, spoiled in (("degrees", degrees), ("millisecond", milliseconds)):
        path = simulated_log.write_csv(tmp_path / f"{word}.csv", names, spoiled)
        refused(thetahat("identify", "arm4", path, "--out", tmp_path), 3, [word], path)


# -- not identifiable -------------------------------------------------------------------------------------------------


def test_a_dead_torque_channel_offers_joints_which_works(thetahat: Callable[..., Done], rows: tuple, tmp_path: Path) -> None:
    names, values = rows
    spoiled = values.copy()
    spoiled[:, names.index("tau3")] = 1.5
    path = simulated_log.write_csv(tmp_path / "dead.csv", names, spoiled)
    done = thetahat("identify", "arm4", path, "--out", tmp_path)
    assert done.code == 5
    offer = re.search(r"'arm_yaw' has no usable torque .*dead torque.*--joints (\S+?),? ", done.err)
    assert offer
    fixed = thetahat("identify", "arm4", path, "--out", tmp_path, "--json", "--joints", offer[1].rstrip(","))
    assert fixed.code == 0, fixed.err
    assert min(joint["r2_test"] for joint in fixed.data["joints"] if joint["name"] != "arm_yaw") > 0.9


def test_a_flipped_sign_is_named(thetahat: Callable[..., Done], rows: tuple, tmp_path: Path) -> None:
    names, values = rows
    spoiled = values.copy()
    spoiled[:, names.index("tau1")] *= -1.0
    done = thetahat("identify", "arm4", simulated_log.write_csv(tmp_path / "flipped.csv", names, spoiled), "--out", tmp_path)
    assert done.code == 5
    assert re.search(r"'shoulder_pitch' has no usable torque .*sign.*--joints shoulder_roll,arm_yaw,elbow", done.err)


@pytest.mark.parametrize("count", [3, 7, 20, 40, 60])
def test_fewer_samples_than_parameters(thetahat: Callable[..., Done], rows: tuple, tmp_path: Path, count: int) -> None:
    names, values = rows
    done = thetahat("identify", "arm4", simulated_log.write_csv(tmp_path / "short.csv", names, values[:count]), "--out", tmp_path)
    assert done.code == 5, done.err


def test_a_log_that_does_not_show_everything_names_what_is_missing(thetahat: Callable[..., Done], tmp_path: Path) -> None:
    """The elbow moves, all else stands: with standstill rows let in, gravity and friction of the others cannot be told apart."""
    t, q, dq, ddq = simulated_log.motion(4)
    q, dq, ddq = (np.column_stack([np.full((len(t), 3), still), a[:, 3]]) for a, still in ((q, 0.5), (dq, 0.0), (ddq, 0.0)))
    tau = simulated_log.torque(robots.path("arm4"), q, dq, ddq) + simulated_log.drive(dq, ddq)
    path = simulated_log.write_csv(tmp_path / "elbow.csv", *simulated_log.table(t, q, tau, dq))
    done = thetahat("identify", "arm4", path, "--out", tmp_path, "--min-speed", 0)
    assert done.code == 5
    assert re.search(r"rank \d+ of 36: .*excite joints? .*(shoulder|arm_yaw)", done.err)
    assert not (tmp_path / "estimate.json").exists()
    done = thetahat("identify", "arm4", path, "--out", tmp_path)
    assert (done.code, "--joints elbow" in done.err) == (5, True)


# -- files ------------------------------------------------------------------------------------------------------------


def test_places_that_cannot_be_written(thetahat: Callable[..., Done], log: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "taken" / "estimate.json").mkdir(parents=True)
    for out in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / "taken"):
        done = thetahat("identify", "arm4", log, "--out", out)
        assert done.code == 6
        assert str(out) in done.err
    assert (tmp_path / "file").read_text() == "mine"


def test_inputs_are_never_written_over(thetahat: Callable[..., Done], log: Path, tmp_path: Path) -> None:
    robot = tmp_path / "arm.urdf"
    robot.write_bytes(robots.path("arm4").read_bytes())
    for link in (Path.hardlink_to, Path.symlink_to):
        target = tmp_path / "estimate.json"
        link(target, robot)
        done = thetahat("identify", robot, log, "--out", tmp_path)
        assert (done.code, "write over the input" in done.err) == (2, True)
        target.unlink()
    assert robot.read_bytes() == robots.path("arm4").read_bytes()


def test_a_full_disk_leaves_the_old_file(thetahat: Callable[..., Done], log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "estimate.json").write_text("old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(verb.os, "fsync", full)
    done = thetahat("identify", "arm4", log, "--out", tmp_path)
    assert done.code == 6
    assert "No space left" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["estimate.json"]
    assert (tmp_path / "estimate.json").read_text() == "old"


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "estimate.json").write_text("old")

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(verb.os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        verb.write_atomically(tmp_path / "estimate.json", "new")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


# -- progress and start -----------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_appears_at_a_terminal_when_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TERM", "xterm")
    for patience, seconds, quiet, shown in ((0.02, 0.4, False, True), (5.0, 0.05, False, False), (0.02, 0.1, True, False)):
        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setattr(bars, "PATIENCE", patience)
        with bars.Progress(quiet=quiet) as progress:
            for _ in progress.count(([0] * 10 for _ in range(4)), "folding", 40):
                time.sleep(seconds / 4)
        assert ("folding" in terminal.getvalue()) == shown
    plain = io.StringIO()
    monkeypatch.setattr(sys, "stderr", plain)
    with bars.Progress() as progress:
        progress.stage("reading")
    assert plain.getvalue() == ""


def test_help_loads_nothing_heavy() -> None:
    import subprocess

    code = "import sys; from thetahat.cli.app import app; print(*[name for name in ('numpy', 'numba', 'polars', 'scipy') if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


def test_public_names_are_there_and_the_stages_can_be_called() -> None:
    assert callable(th.identify)
    assert callable(th.validate)
    import thetahat.identify.columns as columns  # the stage is still a package

    assert columns.Columns
    with pytest.raises(th.ThetahatError, match="Information"):
        th.identify(3)
