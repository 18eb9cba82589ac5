"""`thetahat validate`: the numbers of the Python path and of `identify`'s own test, and what it
refuses.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import simulated_log
from data_paths import shared_file
from identify_cases import Done

import thetahat as th
from thetahat import robots

Thetahat = Callable[..., Done]


@pytest.fixture(scope="module")
def identified(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `identify` writes of the log, once for all tests."""
    folder = tmp_path_factory.mktemp("identified")
    th.identify("arm4", log, settings=th.IdentifySettings(tune=False)).save(folder)
    return folder / "estimate.json"


@pytest.fixture
def estimate(identified: Path, tmp_path: Path) -> Path:
    """A copy, to be spoiled."""
    return Path(shutil.copy(identified, tmp_path))


def test_says_what_identify_said_of_the_same_held_out_log(
    thetahat: Thetahat, log: Path, tmp_path: Path
) -> None:
    """Read back from estimate.json, the model predicts the test log as it did when it was found."""
    other = simulated_log.simulated(tmp_path, noise=0.05)
    found = thetahat(
        "identify", "arm4", log, "--test", other, "--out", tmp_path / "out", "--json"
    ).data
    told = thetahat(
        "validate", "arm4", other, "--estimate", tmp_path / "out" / "estimate.json", "--json"
    ).data
    assert told["schema"] == "thetahat/validation/1"
    assert told["cutoff"] == found["provenance"]["settings"]["cutoff"]
    for mine, theirs in zip(told["joints"], found["joints"], strict=True):
        for key in (
            "r2_test",
            "r2_test_moving",
            "r2_test_raw",
            "rms_test",
            "r2_nominal",
            "rms_nominal",
        ):
            assert mine[key] == pytest.approx(theirs[key], rel=1e-9, abs=1e-9), key
    assert told["r2"]["test"] == pytest.approx(found["r2"]["test"], abs=1e-12)


def test_the_robot_file_written_back_scores_as_the_estimate(
    thetahat: Thetahat, log: Path, tmp_path: Path
) -> None:
    """Inertia and friction from the URDF, offsets and how Coulomb friction turns from drive.json
    beside it.
    """
    assert thetahat("identify", "arm4", log, "--tune", "--out", tmp_path).code == 0
    estimate = tmp_path / "estimate.json"
    by_estimate = thetahat(
        "validate", "arm4", log, "--estimate", estimate, "--cutoff", 15, "--json"
    ).data
    by_file = thetahat(
        "validate", estimate.parent / "arm4_identified.urdf", log, "--cutoff", 15, "--json"
    ).data
    for mine, theirs in zip(by_file["joints"], by_estimate["joints"], strict=True):
        assert mine["rms_test"] == pytest.approx(theirs["rms_test"], rel=1e-9)
    assert json.loads(estimate.read_text(encoding="utf-8"))["parity"]["not_in_file"] == [
        "direction",
        "offset",
    ]


def test_says_what_python_says(thetahat: Thetahat, log: Path) -> None:
    told = thetahat("validate", "arm4", log, "--cutoff", 12, "--json").data
    robot = th.load(robots.path("arm4"))
    scores = th.validate(robot, th.prepare(th.read_log(log, robot), robot, cutoff=12.0))
    np.testing.assert_allclose([joint["r2_test"] for joint in told["joints"]], scores.r2, rtol=1e-9)
    np.testing.assert_allclose(
        [joint["rms_test"] for joint in told["joints"]], scores.rms, rtol=1e-9
    )
    assert told["r2"]["nominal"] is None


def test_another_robot_stands_beside(thetahat: Thetahat, log: Path, tmp_path: Path) -> None:
    heavier = tmp_path / "heavier.urdf"
    heavier.write_text(
        robots.path("arm4")
        .read_text()
        .replace('<mass value="2.7"', '<mass value="5.4"')
        .replace('<mass value="', '<mass value="1')
    )
    told = thetahat("validate", "arm4", log, "--against", heavier, "--json").data
    assert told["r2"]["nominal"] < told["r2"]["test"]
    assert thetahat("validate", "arm4", log, "--against", "arm7").code == 2


def test_a_real_log_of_some_joints(thetahat: Thetahat, tmp_path: Path) -> None:
    """The Panda's fingers have no column: they are held still in the estimate and in the score
    alike.
    """
    robot = shared_file("logs", "panda", "panda_nomesh_from_example_robot_data.urdf")
    log = shared_file("logs", "panda", "panda_exciting_traj1.csv")
    found = thetahat("identify", robot, log, "--out", tmp_path, "--json", "--cutoff", 10).data
    told = thetahat("validate", robot, log, "--estimate", tmp_path / "estimate.json", "--json").data
    assert told["locked"] == found["locked"]
    assert [joint["name"] for joint in told["joints"]] == [
        joint["name"] for joint in found["joints"]
    ]
    assert all(joint["r2_test"] > joint["r2_nominal"] for joint in told["joints"])


def test_a_coupled_wrist_is_read_back(thetahat: Thetahat, tmp_path: Path) -> None:
    """The map from motors to joints is in estimate.json, so nothing else is needed to score it."""
    (tmp_path / "map.csv").write_text("a,b,c,d\n1,0,0,0\n0,1,0,0\n0,0,1,0.5\n0,0,0,1\n")
    (tmp_path / "other").mkdir()
    log, other = (
        simulated_log.simulated(tmp_path, noise=0.02),
        simulated_log.simulated(tmp_path / "other", noise=0.05),
    )
    options = (
        "--test",
        other,
        "--actuation",
        tmp_path / "map.csv",
        "--out",
        tmp_path / "out",
        "--json",
    )
    found = thetahat("identify", "arm4", log, *options).data
    told = thetahat(
        "validate", "arm4", other, "--estimate", tmp_path / "out" / "estimate.json", "--json"
    ).data
    assert [j["rms_test"] for j in told["joints"]] == pytest.approx(
        [j["rms_test"] for j in found["joints"]], rel=1e-9
    )


def test_only_joints_asked_for_are_scored(thetahat: Thetahat, log: Path) -> None:
    told = thetahat("validate", "arm4", log, "--joints", "elbow", "--json").data
    assert [joint["name"] for joint in told["joints"] if joint["rows_test"]] == ["elbow"]
    done = thetahat("validate", "arm4", log, "--joints", "elbow")
    assert "elbow" in done.out
    assert "shoulder_roll" not in done.out.split("R² =")[0]


SPOILED = {
    "no JSON": lambda text: text[:-20],
    "NaN": lambda text: text.replace('"rank": ', '"rank": NaN, "x": '),
    "another schema": lambda text: text.replace("thetahat/estimate/1", "thetahat/estimate/9"),
    "a list": lambda text: "[1, 2]",
    "no links": lambda text: json.dumps(
        {k: v for k, v in json.loads(text).items() if k != "links"}
    ),
    "a text for a number": lambda text: text.replace(
        '"theta": [\n', '"theta": [\n        "heavy",\n', 1
    ),
    "another robot's body": lambda text: text.replace('"name": "forearm"', '"name": "tentacle"'),
    "a joint it never had": lambda text: text.replace('"locked": []', '"locked": ["tail"]'),
    "deep": lambda text: "[" * 100_000,
}


@pytest.mark.parametrize("kind", SPOILED)
def test_a_spoiled_estimate_is_refused_in_a_sentence(
    kind: str, thetahat: Thetahat, log: Path, estimate: Path
) -> None:
    text = estimate.read_text(encoding="utf-8")
    spoiled = SPOILED[kind](text)
    assert spoiled != text
    estimate.write_text(spoiled, encoding="utf-8")
    done = thetahat("validate", "arm4", log, "--estimate", estimate)
    assert (done.code, done.out) == (3, "")
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1


def test_usage(thetahat: Thetahat, log: Path, estimate: Path, tmp_path: Path) -> None:
    assert thetahat("validate", "arm4", log, "--estimate", tmp_path / "absent.json").code == 6
    assert thetahat("validate", "arm4", tmp_path / "absent.csv").code == 6
    assert thetahat("validate", "arm4", log, "--cutoff", -1).code == 2
    assert thetahat("validate", "arm4", log, "--joints", "tail").code == 2
    assert thetahat("validate", "arm7", log, "--estimate", estimate).code == 3
    assert thetahat("validate", "arm4").code == 2
