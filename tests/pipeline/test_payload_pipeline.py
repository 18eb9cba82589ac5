"""`th.payload` is `thetahat payload`, and finds what Pinocchio's arm holds."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest
from payload_cases import noisy_pair, truth
from payload_logs import BALL, BOX, GAINS, LINK, quick, table, write

import thetahat as th
from thetahat import robots
from thetahat.errors import MalformedInput, NotIdentifiable, UsageError
from thetahat.identification.payload.payload_difference import payload_from_difference
from thetahat.identification.payload.payload_result import Payload
from thetahat.model.io.gains_json import read_gains
from thetahat.pipeline.payload_identification import PayloadIdentification


@pytest.fixture(scope="module")
def result() -> PayloadIdentification:
    return th.payload("arm7", table(BOX, 1), link=LINK, without=table(None, 2), settings=quick())


def close(payload: Payload, bar: object) -> None:
    """Mass and centre of mass are right, and their intervals say how right."""
    mass, *rest = truth(bar)
    assert payload.mass == pytest.approx(mass, rel=0.01)
    np.testing.assert_allclose(payload.com, rest[:3], rtol=0, atol=3e-3)
    assert np.all(np.abs(payload.com - rest[:3]) < 4.0 * payload.com_std)
    assert abs(payload.mass - mass) < 4.0 * payload.mass_std


def test_two_logs_tell_the_payload(result: PayloadIdentification) -> None:
    close(result.payload, BOX)
    assert result.verdict.level == "good"
    assert result.gains is None
    left = np.array([[each.without, each.with_payload] for each in result.residuals])
    assert np.all(left[:, 1] <= left[:, 0])
    assert np.max(left[:, 1]) < 0.1  # [N·m] the noise, low-passed
    assert np.max(left[:, 0]) > 1.0


def test_an_estimate_stands_in_for_the_unloaded_log(
    result: PayloadIdentification, tmp_path: Path
) -> None:
    """By the object and by estimate.json: the same payload, close to that of two logs."""
    settings = th.IdentifySettings(
        tune=False, cutoff=8.0, armature=False, holdout=0.0, report=False
    )
    bare = th.identify("arm7", table(None, 2), settings=settings)
    bare.save(tmp_path)
    loaded = table(BOX, 1)
    by_object = th.payload("arm7", loaded, link=LINK, estimate=bare, settings=quick())
    file = tmp_path / "estimate.json"
    by_file = th.payload("arm7", loaded, link=LINK, estimate=file, settings=quick())
    close(by_object.payload, BOX)
    std = by_object.payload.theta_std
    np.testing.assert_allclose(
        by_file.payload.theta / std, by_object.payload.theta / std, rtol=0, atol=1e-3
    )
    assert by_file.payload.mass_std == pytest.approx(by_object.payload.mass_std, rel=1e-3)
    assert abs(by_file.payload.mass - result.payload.mass) < 4.0 * result.payload.mass_std


def test_a_poorly_known_robot_tells_less(tmp_path: Path) -> None:
    """The covariance in estimate.json enters: a hundred times the variance, wider intervals."""
    settings = th.IdentifySettings(
        tune=False, cutoff=8.0, armature=False, holdout=0.0, report=False
    )
    th.identify("arm7", table(None, 2), settings=settings).save(tmp_path)
    file, worse = tmp_path / "estimate.json", tmp_path / "worse.json"
    data = json.loads(file.read_text(encoding="utf-8"))
    data["base_covariance"] = [[100.0 * v for v in row] for row in data["base_covariance"]]
    worse.write_text(json.dumps(data), encoding="utf-8")
    one, other = (
        th.payload("arm7", table(BOX, 1), link=LINK, estimate=each, settings=quick())
        for each in (file, worse)
    )
    assert other.payload.com_std[2] > 2.0 * one.payload.com_std[2]


def test_gains_of_drives_and_a_second_payload(tmp_path: Path) -> None:
    """Unknown gains, one known payload: the other within 2 %, and drive.json applies the gains."""
    empty = table(None, 2, gains=True)
    result = th.payload(
        "arm7",
        {"box": table(BOX, 1, gains=True), "ball": table(BALL, 3, gains=True)},
        link=LINK,
        without=empty,
        known_mass={"box": BOX.mass},
        settings=quick(),
    )
    assert result.name == "ball"
    assert result.payload.mass == pytest.approx(BALL.mass, rel=0.02)
    assert abs(result.payload.mass - BALL.mass) < 4.0 * result.payload.mass_std
    gains = {each.joint: each for each in result.gains or ()}
    for joint, true in zip(gains, GAINS, strict=True):
        found = gains[joint]
        assert found.gain is None or abs(found.gain - true) < 4.0 * found.std
    assert sum(each.gain is not None for each in gains.values()) >= 6
    result.save(tmp_path)
    assert read_gains(tmp_path / "drive.json")["joint2"].gain == gains["joint2"].gain
    again = th.payload(
        "arm7",
        table(BALL, 3, gains=True),
        link=LINK,
        without=empty,
        settings=th.IdentifySettings(
            tune=False, cutoff=8.0, armature=False, gains=tmp_path / "drive.json"
        ),
    )
    assert again.payload.mass == pytest.approx(BALL.mass, rel=0.02)
    assert any("gain" in each["message"] for each in again.data["findings"])


def test_gains_beside_gains_are_those_of_the_log() -> None:
    """Half of the gains given, the others found: the file holds what the log's torques need."""
    given = {f"joint{j + 1}": float(gain) for j, gain in enumerate(GAINS[:4])}
    result = th.payload(
        "arm7",
        table(BALL, 3, gains=True),
        link=LINK,
        without=table(None, 2, gains=True),
        known_mass=BALL.mass,
        settings=th.IdentifySettings(tune=False, cutoff=8.0, armature=False, gains=given),
    )
    for each, true in zip(result.gains or (), GAINS, strict=True):
        assert each.gain is None or abs(each.gain - true) < 4.0 * each.std


def test_wrong_gains_widen_the_interval_or_are_named() -> None:
    """All torques 12 % too small, as a UR10e's currents: the mass is off, and the interval says
    so, since the robot file's masses disagree as much.
    """
    empty, loaded = (
        {name: (c / 1.12 if name.startswith("tau") else c) for name, c in table(*which).items()}
        for which in ((None, 2), (BOX, 1))
    )
    result = th.payload("arm7", loaded, link=LINK, without=empty, settings=quick())
    assert result.payload.mass == pytest.approx(BOX.mass / 1.12, rel=0.02)
    assert abs(result.payload.mass - BOX.mass) < 1.96 * result.payload.mass_std
    assert result.verdict.level == "usable"
    assert any("--known-mass" in step for step in result.verdict.next_steps)


def test_what_the_motion_does_not_tell_is_none() -> None:
    """A link that hardly turns: what it does not tell is null, with the motion to play beside."""
    arm, loaded, unloaded = noisy_pair("arm7", LINK, 0, bar=BOX)
    result = th.payload(arm, loaded, link="link1", without=unloaded)
    data = result.data
    values = [data["mass"], *data["com"], *data["inertia_com"]]
    assert data["mass"] is None
    assert sum(value is None for value in values) == len(data["unidentified"]) > 5
    assert result.verdict.level == "not usable"
    assert "--for payload --link link1" in result.verdict.next_steps[0]


def test_information_that_was_folded_before_takes_fifty_milliseconds() -> None:
    """Information alone: no row is read, so the length of the logs does not matter."""
    arm, loaded, unloaded = noisy_pair("arm7", LINK, 0, bar=BOX)

    def asked() -> PayloadIdentification:
        return th.payload(arm, loaded, link=LINK, without=unloaded)

    for call in (lambda: payload_from_difference(loaded, unloaded, LINK), asked):
        call()
        took = []
        for _ in range(5):
            began = time.process_time()
            call()
            took.append(time.process_time() - began)
        assert min(took) < 0.05
    assert asked().payload.mass == pytest.approx(BOX.mass, rel=0.02)


def test_files_say_what_the_object_says(result: PayloadIdentification, tmp_path: Path) -> None:
    files = result.save(tmp_path)
    assert [file.name for file in files] == ["payload.json", "report.html"]
    data = json.loads(files[0].read_text(encoding="utf-8"))
    assert data["mass"] == result.payload.mass
    page = files[1].read_text(encoding="utf-8")
    assert "95 % interval" in page
    assert LINK in page


REFUSED = {
    "no unloaded log": ({"without": None}, UsageError, "no log without the payload"),
    "both": ({"estimate": "estimate.json"}, UsageError, "both given"),
    "link": ({"link": "gripper"}, UsageError, "link 'gripper' is not in robot"),
    "known mass": ({"known_mass": -1.0}, UsageError, "--known-mass is -1.0"),
    "whose mass": ({"known_mass": {"cup": 1.0}}, UsageError, "names 'cup'"),
    "coupled motors": (
        {"known_mass": 1.0, "settings": th.IdentifySettings(actuation="map.csv")},
        UsageError,
        "a gain per joint",
    ),
    "size": ({"size": "1,2"}, UsageError, "--size is '1,2'"),
    "feather": ({"known_mass": 1e-6}, NotIdentifiable, "hardly shows"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_requests_get_one_sentence(case: str) -> None:
    given, kind, said = REFUSED[case]
    loaded = table(None if case == "feather" else BOX, 1)
    whole = {"link": LINK, "without": table(None, 2), "settings": quick(), **given}
    with pytest.raises(kind) as caught:
        th.payload("arm7", loaded, **whole)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_estimate_of_another_robot_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "box", BOX, 1)
    settings = th.IdentifySettings(
        tune=False, cutoff=8.0, armature=False, holdout=0.0, report=False
    )
    th.identify("arm7", table(None, 2), settings=settings).save(tmp_path)
    with pytest.raises(MalformedInput, match="of another robot"):
        th.payload("arm4", table(BOX, 1), link="hand", estimate=tmp_path / "estimate.json")


def test_gains_are_not_forgotten_on_samples() -> None:
    """Samples were read before: gains that would do nothing are refused."""
    arm = th.load(robots.path("arm7"))
    q = np.zeros((10, 7))
    samples = th.Samples(q=q, dq=q, ddq=q, tau=q)
    with pytest.raises(UsageError, match="gains are applied where a log is read"):
        th.identify(arm, samples, settings=th.IdentifySettings(gains={"joint1": 1.1}))
