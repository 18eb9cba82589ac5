"""`drive.json`: what a robot's file cannot hold of its drive, written beside it and applied
again.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from save_cases import load, states

import thetahat as th
from thetahat.errors import MalformedInput, RobotWarning, StorageError, UsageError
from thetahat.model.friction_terms import DriveTerm
from thetahat.model.io.save import save, with_drive_file
from thetahat.model.lock_joints import lock
from thetahat.model.robot import Robot


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def drives(robot: Robot, **values: list[float]) -> Robot:
    return replace(robot, drive=robot.drive.with_values(**values))


def test_what_the_format_cannot_hold_is_in_drive_json_and_named() -> None:
    robot = drives(load(), viscous=[0.3, 0], offset=[0.5, -1.0], armature=[0.25, 0])
    saved = save(robot, "new.urdf")
    assert saved.not_in_file == ("offset", "armature")
    assert saved.as_data()["drive_file"] == "drive.json"
    assert {file.name for file in saved.files} == {"new.urdf", "drive.json"}
    data = json.loads(Path("drive.json").read_text())
    assert (data["schema"], data["robot"], data["joints"]) == (
        "thetahat/drive/1",
        "new.urdf",
        ["shoulder", "elbow"],
    )
    assert data["terms"] == {
        "offset": {"units": ["N·m", "N·m"], "values": [0.5, -1.0]},
        "armature": {"units": ["kg·m²", "kg·m²"], "values": [0.25, 0.0]},
    }
    again, state = with_drive_file(th.load("new.urdf")), states(robot)
    np.testing.assert_array_equal(
        th.inverse_dynamics(again, *state), th.inverse_dynamics(robot, *state)
    )
    assert np.any(
        th.inverse_dynamics(th.load("new.urdf"), *state) != th.inverse_dynamics(robot, *state)
    )


def test_a_drive_file_belongs_to_one_robot_and_goes_when_it_is_not_needed() -> None:
    robot = load()
    save(drives(robot, offset=[1.0, 0]), "one.urdf")
    other = save(drives(robot, offset=[2.0, 0]), "two.urdf")
    assert other.drive_file == Path("two.drive.json"), "drive.json is taken"
    assert [
        with_drive_file(th.load(f"{name}.urdf")).drive.offset[0] for name in ("one", "two")
    ] == [1.0, 2.0]
    assert with_drive_file(th.load("arm.urdf")).drive.offset[0] == 0.0
    save(drives(robot, offset=[3.0, 0]), "two.urdf")
    save(robot, "one.urdf")
    assert not Path("drive.json").exists(), "the file it was for has no such terms any more"
    assert with_drive_file(th.load("two.urdf")).drive.offset[0] == 3.0
    Path("drive.json").write_text("mine")
    assert save(drives(robot, offset=[1.0, 0]), "one.urdf").drive_file == Path("one.drive.json")
    assert Path("drive.json").read_text() == "mine"


def test_a_drive_file_of_another_version_is_noticed() -> None:
    save(drives(load(), offset=[1.0, 0]), "new.urdf")
    Path("new.urdf").write_text(Path("new.urdf").read_text() + "\n")
    with pytest.warns(
        RobotWarning, match=r"drive\.json was written for another version of new\.urdf"
    ):
        with_drive_file(th.load("new.urdf"))


def test_actuation_maps_and_their_motors() -> None:
    """A coupled pair: its motors' friction has no place in the file; a motor that drives one joint
    alone has, at the joint.
    """
    robot = (
        load()
        .without_drive()
        .with_actuation(
            np.array([[2.0, 0.0], [1.0, 3.0]]), names=["left", "right"], gains=[0.1, None]
        )
    )
    robot = replace(
        robot,
        drive=robot.drive.with_values(viscous=[0.1, 0.2], coulomb=[0.0, 0.5], armature=[0.0, 0.01]),
    )
    saved = save(robot, "new.urdf")
    assert saved.not_in_file == ("actuation", "viscous", "armature")
    assert [node.joint.friction for node in th.load("new.urdf").tree.nodes] == [0.0, 1.5]
    again, state = with_drive_file(th.load("new.urdf"), "drive.json"), states(robot)
    np.testing.assert_array_equal(
        th.inverse_dynamics(again, *state), th.inverse_dynamics(robot, *state)
    )
    assert (again.drive.actuation.names, again.drive.actuation.gains) == (
        ("left", "right"),
        (0.1, None),
    )
    with pytest.raises(UsageError, match=r"maps motors to the joints shoulder, elbow.*lock"):
        with_drive_file(lock(th.load("new.urdf"), ["elbow"]), "drive.json")


def test_maps_and_shapes_that_are_code_are_named_and_must_be_handed_in() -> None:
    stribeck = DriveTerm("stribeck", lambda dq, ddq, load: np.sign(dq) * np.exp(-(dq**2)))
    robot = load()
    robot = replace(robot, drive=robot.drive.with_extra_term(stribeck, np.array([0.5, 0.25])))
    assert save(robot, "new.urdf").not_in_file == ("stribeck",)
    with pytest.raises(UsageError, match=r"shape of term 'stribeck' is code.*shapes="):
        with_drive_file(th.load("new.urdf"))
    again, state = with_drive_file(th.load("new.urdf"), shapes=[stribeck]), states(robot)
    np.testing.assert_array_equal(
        th.inverse_dynamics(again, *state), th.inverse_dynamics(robot, *state)
    )

    def rods(q: np.ndarray) -> np.ndarray:
        return np.cos(q)[..., :, None] * np.eye(2)

    robot = load().without_drive().with_actuation(rods)
    robot = replace(robot, drive=robot.drive.with_values(viscous=[0.5, 0.25]))
    assert save(robot, "rods.urdf").not_in_file == ("actuation", "viscous")
    with pytest.raises(UsageError, match=r"depends on q.*with_actuation"):
        with_drive_file(th.load("rods.urdf"))
    again = with_drive_file(th.load("rods.urdf").without_drive().with_actuation(rods))
    np.testing.assert_array_equal(
        th.inverse_dynamics(again, *state), th.inverse_dynamics(robot, *state)
    )


GOOD = {
    "schema": "thetahat/drive/1",
    "robot": "a",
    "sha256": "",
    "joints": ["shoulder"],
    "motors": ["shoulder"],
    "terms": {},
    "actuation": None,
}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "not a JSON object"),
        ("{}", "schema"),
        (GOOD | {"schema": "thetahat/drive/9"}, "'thetahat/drive/9'"),
        (GOOD | {"motors": ["a", "a"]}, "'motors'"),
        (GOOD | {"joints": 3}, "joints is 3, not array"),
        (GOOD | {"terms": None}, "terms is None"),
        (GOOD | {"terms": {"offset": {"values": [1, 2]}}}, "terms.offset.*1 values"),
        (GOOD | {"terms": {"offset": {"values": [float("nan")]}}}, "NaN"),
        (GOOD | {"terms": {"offset": {"values": [10**400]}}}, "not JSON.*beyond 1e"),
        (
            GOOD | {"terms": {"offset": {"values": ["1"]}}},
            r"terms.offset.values\[0\] is '1', not number",
        ),
        (GOOD | {"terms": {"offset": {"values": [True]}}}, r"terms.offset.values\[0\] is True"),
        (GOOD | {"actuation": []}, "actuation is"),
        (GOOD | {"actuation": {"matrix": [[1], [2]]}}, "actuation.matrix.*1 rows"),
        (GOOD | {"actuation": {"matrix": [[1]], "gains": "x"}}, "gains"),
    ],
)
def test_a_broken_drive_file_is_refused_in_a_sentence(content: object, message: str) -> None:
    Path("drive.json").write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(MalformedInput, match=f"drive.json.*{message}"):
        with_drive_file(load(), "drive.json")


def test_a_drive_file_of_another_robot_is_refused() -> None:
    Path("drive.json").write_text(
        json.dumps(GOOD | {"motors": ["hip"], "terms": {"offset": {"values": [1.0]}}})
    )
    with pytest.raises(UsageError, match=r"'hip'.*shoulder, elbow"):
        with_drive_file(load(), "drive.json")
    with pytest.raises(StorageError, match=r"does not exist"):
        with_drive_file(load(), "none.json")
