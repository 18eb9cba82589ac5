"""Options of `thetahat identify`: joints, held-out rows, methods, prior and actuation."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import simulated_log
from identify_cases import JOINT_KEYS, Done

import thetahat as th
from thetahat import robots


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
