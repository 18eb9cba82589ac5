"""Robots drawn from a saved result: they load, are physical, spread as stated, and come from the
same law as the estimate in memory.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import thetahat as th
from thetahat import robots
from thetahat.errors import (
    MalformedInput,
    NotUsable,
    RefusedForSafety,
    StorageError,
    UsageError,
)
from thetahat.export.parameter_ranges import between_units
from thetahat.export.randomize import RandomizeSettings, randomize
from thetahat.identification.posterior_file import NAME, read_posterior
from thetahat.identification.read_estimate import apply_estimate, read_estimate
from thetahat.model.io.save import with_drive_file

mujoco = pytest.importorskip("mujoco", reason="MuJoCo loads the files (pip install mujoco)")
COUNT = 12


@pytest.fixture(scope="module")
def drawn(identified: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drawn") / "robots"
    randomize([identified], folder, settings=RandomizeSettings(COUNT, seed=3))
    return folder


def ranges(folder: Path) -> dict:
    return json.loads((folder / "ranges.json").read_text())


def require_files(folder: Path, count: int) -> np.ndarray:
    """All files load here and in MuJoCo and are physical; returns θ, (count, 10·bodies)."""
    files = ranges(folder)["files"]
    assert len(files) == len(set(files)) == count
    out = []
    for name in files:
        robot = with_drive_file(th.load(folder / name))
        assert all(robot.consistency)
        assert np.min(robot.drive.viscous) >= 0.0
        model = mujoco.MjModel.from_xml_path(str(folder / name))
        np.testing.assert_allclose(model.body_mass.sum(), robot.theta[9::10].sum(), rtol=1e-9)
        out.append(robot.theta)
    return np.array(out)


def test_files_load_and_are_physical(drawn: Path) -> None:
    theta = require_files(drawn, COUNT)
    assert np.all(np.ptp(theta[:, 9::10], axis=0) > 0.0)


@pytest.mark.slow
def test_a_thousand_files(identified: Path, tmp_path: Path) -> None:
    randomize([identified], tmp_path / "many", settings=RandomizeSettings(1000))
    theta = require_files(tmp_path / "many", 1000)
    rows = {(row["name"], row["of"]): row for row in ranges(tmp_path / "many")["parameters"]}
    for k, body in enumerate(th.load(robots.path("arm4")).body_names):
        mass, row = theta[:, 10 * k + 9], rows["mass", body]
        assert np.std(mass) == pytest.approx(row["std"], rel=0.15)
        inside = np.mean((mass >= row["low"]) & (mass <= row["high"]))
        assert inside == pytest.approx(0.95, abs=0.025)


def test_the_saved_law_draws_what_the_estimate_draws(tmp_path: Path, identified: Path) -> None:
    data = read_estimate(identified / "estimate.json")
    robot = th.load(identified / data["parity"]["file"])
    law = read_posterior(identified / NAME, apply_estimate(data, robot))
    x = law.draw(2000, seed=1).x
    base = law.robot.base_parameters
    assert [row["name"] for row in data["base_parameters"]] == list(base.names)
    # the stated spread, where the data and not a bound decide
    clear = [k for k, row in enumerate(data["base_parameters"]) if not row["flags"]]
    assert len(clear) > 5
    stated = np.array([data["base_parameters"][k]["std"] for k in clear])
    np.testing.assert_allclose(np.std(x @ base.map.T, axis=0)[clear], stated, rtol=0.1)
    centre = np.array([data["base_parameters"][k]["value"] for k in clear])
    assert np.max(np.abs((x @ base.map.T).mean(axis=0)[clear] - centre) / stated) < 0.15


def test_a_seed_writes_the_same_bytes(identified: Path, drawn: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    randomize([identified], again, settings=RandomizeSettings(COUNT, seed=3))
    assert sorted(p.name for p in again.iterdir()) == sorted(p.name for p in drawn.iterdir())
    for path in drawn.iterdir():
        assert path.read_bytes() == (again / path.name).read_bytes(), path.name
    other = tmp_path / "other"
    randomize([identified], other, settings=RandomizeSettings(1, seed=4))
    assert (other / "arm4_0000.urdf").read_bytes() != (drawn / "arm4_0000.urdf").read_bytes()


def test_ranges_hold_the_draws_and_their_correlations(drawn: Path) -> None:
    data = ranges(drawn)
    assert len(data["correlations"]) == len(data["parameters"])
    for k, row in enumerate(data["correlations"]):
        assert len(row) == k + 1
        assert row[k] in (1.0, None)
    for row in data["parameters"]:
        assert row["low"] <= row["high"]
        assert (row["low"] < row["high"]) == (row["std"] > 0.0)
    # what a log tells of two links' sum and not of each moves together
    assert max(abs(v) for k, row in enumerate(data["correlations"]) for v in row[:k]) > 0.8


def test_event_terms_are_python(drawn: Path) -> None:
    tree = ast.parse((drawn / "isaaclab_events.py").read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    terms = [c for c in calls if isinstance(c.func, ast.Name) and c.func.id == "EventTermCfg"]
    assert len(terms) == 4 + 4 + 4  # masses, centres, Coulomb friction
    space: dict = {}
    exec(compile((drawn / "mujoco_events.py").read_text(), "events", "exec"), space)
    path = str(drawn / "arm4_0000.urdf")
    model, nominal = (mujoco.MjModel.from_xml_path(path) for _ in range(2))
    space["randomize"](model, np.random.default_rng(0), nominal)
    for name, (low, high) in space["MASS"].items():
        assert low <= model.body(name).mass[0] <= high
    for name, (low, high) in space["JOINT"]["dof_damping"].items():
        assert low <= model.dof_damping[model.joint(name).dofadr[0]] <= high


def test_units_that_differ_show_between_their_own_spreads(identified: Path, tmp_path: Path) -> None:
    data = randomize([identified, identified], tmp_path / "two", settings=RandomizeSettings(2))
    assert len(data["units"]) == 2
    assert max(row["std_between"] for row in data["parameters"]) == 0.0  # one unit twice
    rng = np.random.default_rng(0)
    own, between = 0.5, 2.0
    found = rng.normal(0.0, np.hypot(own, between), (4000, 1))
    spread = between_units(found, np.full((4000, 1), own))
    assert spread is not None
    assert spread[0] == pytest.approx(between, rel=0.05)


def test_actuators_are_drawn_about_their_values(
    actuators: Callable[..., Path], tmp_path: Path
) -> None:
    path = actuators(std={"armature": 0.05, "kp": 5.0})
    data = randomize([path], tmp_path / "out", settings=RandomizeSettings(4))
    rows = {(row["name"], row["of"]): row for row in data["parameters"]}
    first = th.load(robots.path("arm4")).velocity_names[0]
    assert rows["kp", first]["std"] == pytest.approx(5.0, rel=0.1)
    assert rows["armature", first]["low"] >= 0.0
    assert ("viscous", first) not in rows, "no standard deviation is stated"
    assert not [row for row in data["parameters"] if row["name"] == "mass"]
    robot = with_drive_file(th.load(tmp_path / "out" / data["files"][1]))
    assert robot.drive.viscous[0] == 0.4
    assert robot.drive.armature[1] != 0.05


def test_bad_input_is_one_sentence(
    identified: Path, tmp_path: Path, actuators: Callable[..., Path]
) -> None:
    def attempt(path: Path, **settings: object) -> None:
        randomize([path], tmp_path / "out", settings=RandomizeSettings(**{"count": 2} | settings))

    for count in (0, -1, 10**7):
        with pytest.raises(UsageError, match="--count"):
            attempt(identified, count=count)
    with pytest.raises(UsageError, match="--level is 95"):
        attempt(identified, level=95.0)
    with pytest.raises(StorageError, match=r"holds no estimate\.json"):
        attempt(tmp_path)
    with pytest.raises(StorageError, match="cannot be read"):
        attempt(tmp_path / "nothing.json")
    with pytest.raises(MalformedInput, match="finite number from 0"):
        attempt(actuators(armature=-1.0))
    with pytest.raises(MalformedInput, match="does not have"):
        attempt(actuators(name="hip"))
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in identified.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    (copy / NAME).unlink()
    with pytest.raises(UsageError, match="--method consistent"):
        attempt(copy)
    (copy / NAME).write_bytes((identified / NAME).read_bytes()[:500])
    with pytest.raises(MalformedInput, match="identify again"):
        attempt(copy)
    np.savez(copy / NAME, schema=np.array({"a": 1}, dtype=object))
    with pytest.raises(MalformedInput, match="identify again"):
        attempt(copy)
    np.savez_compressed(copy / NAME, schema=np.zeros(40 * 2**20))
    with pytest.raises(RefusedForSafety, match="unpack"):
        attempt(copy)
    data = json.loads((copy / "estimate.json").read_text())
    data["verdict"] = {"level": "not usable", "reasons": ["no motion"]}
    (copy / "estimate.json").write_text(json.dumps(data))
    with pytest.raises(NotUsable, match="no motion"):
        attempt(copy)
    assert not (tmp_path / "out").exists()


def test_a_full_folder_is_left_alone(identified: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(StorageError, match="not empty"):
        randomize([identified], tmp_path / "out", settings=RandomizeSettings(1))
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.txt"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"], "nothing staged stays"


def test_drives_are_drawn_together(actuators: Callable[..., Path], tmp_path: Path) -> None:
    """Armature and delay that make up for one another do so in every draw; the files are loops."""
    joints = th.load(robots.path("arm4")).velocity_names
    terms = (("kp", "log", np.log(300.0), 0.1), ("armature", "per kp", 0.05 / 300.0, 2e-5))
    terms = (*terms, ("delay", "value", 0.004, 0.004), ("limit", "log", np.log(80.0), 0.05))
    stated = [
        {"joint": joints[1], "name": name, "scale": scale, "value": value, "std": std}
        for name, scale, value, std in terms
    ]
    path = actuators()
    data = json.loads(path.read_text())
    data["spread"] = {
        "parameters": stated,
        "correlations": [[1.0], [0.0, 1.0], [0.0, -0.9, 1.0], [0.0, 0.0, 0.0, 1.0]],
    }
    path.write_text(json.dumps(data))
    made = randomize([path], tmp_path / "out", settings=RandomizeSettings(30))
    places = {row["name"]: k for k, row in enumerate(made["parameters"])}
    rows = {row["name"]: row for row in made["parameters"]}
    assert {row["of"] for row in made["parameters"]} == {joints[1]}
    assert set(rows) == {"kp", "armature", "delay", "effort_limit"}
    assert rows["kp"]["std"] == pytest.approx(30.0, rel=0.1)
    assert rows["delay"]["low"] >= 0.0
    at, other = sorted((places["armature"], places["delay"]))
    assert made["correlations"][other][at] < -0.5
    kp = []
    for name in made["files"]:
        model = mujoco.MjModel.from_xml_path(str(tmp_path / "out" / name))
        kp.append(model.actuator(joints[1]).gainprm[0])
        assert model.joint(joints[1]).armature[0] >= 0.0
        assert model.actuator(joints[0]).gainprm[0] == 300.0
    assert np.std(kp) == pytest.approx(30.0, rel=0.5)
