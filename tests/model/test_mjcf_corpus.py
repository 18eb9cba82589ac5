"""Every public MJCF file at hand loads as MuJoCo reads it, or is refused in one sentence that names
file and reason.
"""

from __future__ import annotations

import csv
import time
import warnings
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from data_paths import SHARED, needs_shared, shared_file

from thetahat.errors import RobotWarning, ThetahatError
from thetahat.model import parameters
from thetahat.model.io.mjcf import read_mjcf
from thetahat.model.io.xml_reader import read_xml
from thetahat.model.robot import Robot

mujoco = pytest.importorskip("mujoco")
pytestmark = needs_shared

MODELS = SHARED / "models"
FILES = sorted(MODELS.rglob("*.xml"))
# relative to the body's own size: both sides hold the same doubles, turned once into body axes
TOLERANCE = 1e-12
SECONDS = 5.0


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(
        tmp_path
    )  # MuJoCo, as the oracle, writes its warnings to a file in the working folder


def load(path: Path) -> Robot | ThetahatError:
    """The robot, or the error; anything else fails the test."""
    start = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RobotWarning)
            return read_mjcf(read_xml(path))
    except ThetahatError as error:
        return error
    finally:
        assert time.perf_counter() - start < SECONDS


def compiled(path: Path) -> mujoco.MjModel | str:
    """MuJoCo's own reading of the file, or why it refuses."""
    try:
        return mujoco.MjModel.from_xml_path(str(path))
    except ValueError as error:
        return str(error)


def body_tensor(model: mujoco.MjModel, i: int) -> tuple[float, np.ndarray, np.ndarray]:
    """Mass, m·c and inertia about the body's origin, by MuJoCo's quaternions."""
    turn = np.empty(9)
    mujoco.mju_quat2Mat(turn, model.body_iquat[i])
    turn = turn.reshape(3, 3)
    mass, com = model.body_mass[i], model.body_ipos[i]
    return (
        mass,
        mass * com,
        turn @ np.diag(model.body_inertia[i]) @ turn.T
        + mass * (com @ com * np.eye(3) - np.outer(com, com)),
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(MODELS).as_posix())
def test_loads_as_mujoco_reads_it_or_is_refused_in_a_sentence(path: Path) -> None:
    robot, model = load(path), compiled(path)
    if isinstance(robot, ThetahatError):
        message = str(robot)
        assert "\n" not in message
        assert path.name in message or any(part in message for part in included(path))
        assert isinstance(model, str) or model.nbody == 1, f"MuJoCo reads it: {message}"
        return
    assert np.all(np.isfinite(robot.theta))
    if isinstance(model, str):
        return
    assert (robot.nq, robot.nv) == (model.nq, model.nv)
    np.testing.assert_array_equal(robot.gravity, model.opt.gravity)
    links = {link.name: link for link in robot.links}
    weld = model.body_weldid  # 0 the world; a mocap body is its own, but stands still for us
    moving = [i for i in range(1, model.nbody) if weld[i] != 0 and model.body_mocapid[weld[i]] < 0]
    for i in moving:
        theta = links[model.body(i).name or f"body{i}"].theta
        mass, moment, inertia = body_tensor(model, i)
        np.testing.assert_allclose(theta[parameters.M], mass, rtol=TOLERANCE)
        np.testing.assert_allclose(
            parameters.first_moment(theta),
            moment,
            atol=TOLERANCE * max(mass, np.max(np.abs(moment))),
        )
        np.testing.assert_allclose(
            parameters.inertia_about_origin(theta),
            inertia,
            atol=TOLERANCE * max(np.max(inertia), 1e-300),
        )
    assert robot.mass == pytest.approx(sum(model.body_mass[i] for i in moving), rel=1e-12)
    for term, values in (
        ("viscous", model.dof_damping),
        ("coulomb", model.dof_frictionloss),
        ("armature", model.dof_armature),
    ):
        np.testing.assert_array_equal(getattr(robot.drive, term), values)


def included(path: Path) -> set[str]:
    """Names of the files that a file includes, directly or not."""
    found: set[str] = set()
    todo = [path]
    while todo:
        for element in ElementTree.parse(todo.pop()).iter("include"):
            other = path.parent / element.attrib["file"]
            if other.name not in found and other.is_file():
                found.add(other.name)
                todo.append(other)
    return found


def every_body_has_inertial(path: Path) -> bool:
    root = ElementTree.parse(path).getroot()
    compiler = root.find("compiler")
    from_geoms = compiler is not None and compiler.get("inertiafromgeom") == "true"
    bodies = list(root.iter("body"))
    return (
        bool(bodies)
        and not from_geoms
        and root.find(".//include") is None
        and all(body.find("inertial") is not None for body in bodies)
    )


def test_meshes_are_not_needed_where_every_body_has_its_inertial() -> None:
    needing = [
        path
        for path in FILES
        if every_body_has_inertial(path) and "Error opening file" in str(compiled(path))
    ]
    assert len(needing) >= 10
    for path in needing:
        assert isinstance(load(path), Robot), path


def test_sizes_agree_with_the_table_of_files_whose_meshes_are_missing() -> None:
    """`mjcf_features.csv` was made by MuJoCo from the same files with their geoms and meshes
    removed.
    """
    compared = 0
    with shared_file("models", "mjcf_features.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            path = MODELS / row["source"] / row["path"]
            if row["compile"] == "ok" or row["stripped"] != "ok" or not path.is_file():
                continue
            robot = load(path)
            if isinstance(robot, Robot):
                assert (robot.nq, robot.nv) == (int(float(row["nq"])), int(float(row["nv"]))), path
                compared += 1
    assert compared >= 30
