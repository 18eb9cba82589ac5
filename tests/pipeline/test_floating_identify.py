"""`identify` with a floating base: exact logs, mistakes in them, a walking human."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from data_paths import ROOT, example_robot, shared_file
from floating_mistakes import MISTAKES
from floating_robots import standing, standing_log
from typer.testing import CliRunner

import thetahat as th
from thetahat.cli.app import app
from thetahat.dynamics import rigid_body
from thetahat.engine.local import LocalEngine
from thetahat.errors import ThetahatError
from thetahat.model.robot import Robot
from thetahat.pipeline.dataset import load_robot, read_dataset

Columns = dict[str, np.ndarray]
EXACT = {"cutoff": 12.0, "friction": "none", "armature": False, "tune": False, "report": False}


@pytest.fixture(scope="module")
def logs() -> tuple[Robot, Columns, Columns]:
    """A robot unlike its file by up to 25 % per body; its log with wrenches, and with flags."""
    robot, motion = standing("solo12")
    rng = np.random.default_rng(7)
    scale = np.repeat(1.0 + 0.25 * rng.uniform(-1.0, 1.0, len(robot.body_names)), 10)
    true = robot.with_parameters(scale * robot.theta)
    return true, *(standing_log(true, motion, wrenches=wrenches) for wrenches in (True, False))


def centre(robot: Robot, q: np.ndarray) -> np.ndarray:
    """Centre of mass of the whole robot."""
    R, p = rigid_body.body_frames(robot, q)
    theta = robot.theta.reshape(-1, 10)
    moments = np.einsum("bij,bj->bi", R, theta[:, [7, 4, 3]]) + theta[:, 9:] * p
    return np.asarray(moments.sum(axis=0) / theta[:, 9].sum())


@pytest.mark.parametrize("kind", ["wrenches", "contacts"])
def test_mass_and_centre_of_a_swaying_robot(
    logs: tuple[Robot, Columns, Columns], kind: str
) -> None:
    true, *tables = logs
    table = tables[kind == "contacts"]
    settings = th.IdentifySettings(floating_base=True, **EXACT)
    result = th.identify(example_robot("solo12"), table, settings=settings)
    nominal = th.load(example_robot("solo12"), floating_base=True)
    assert abs(nominal.mass / true.mass - 1.0) > 0.02
    assert abs(result.robot.mass / true.mass - 1.0) < (0.005 if kind == "wrenches" else 0.03)
    q = true.neutral
    assert np.linalg.norm(centre(result.robot, q) - centre(true, q)) < 5e-3
    assert result.data["r2"]["test"] > 0.98
    names = [joint["name"] for joint in result.data["joints"]]
    assert names[:6] == [f"root_joint.{axis}" for axis in ("wx", "wy", "wz", "vx", "vy", "vz")]


@pytest.mark.parametrize(
    ("kind", "mistake", "sentence", "settings"),
    MISTAKES,
)
def test_mistakes_are_named_with_a_remedy(
    logs: tuple[Robot, Columns, Columns],
    kind: str,
    mistake: Callable[[Columns], Columns],
    sentence: str,
    settings: dict[str, str],
) -> None:
    table = mistake(logs[1 + (kind == "contacts")])
    asked = th.IdentifySettings(floating_base=True, **settings)
    robot = load_robot(example_robot("solo12"), None, floating_base=True)
    with pytest.raises(ThetahatError, match=sentence):
        read_dataset(robot, table, None, asked, LocalEngine())


def test_slipping_feet_and_forces_in_other_units_are_findings(
    logs: tuple[Robot, Columns, Columns],
) -> None:
    robot = load_robot(example_robot("solo12"), None, floating_base=True)
    asked = th.IdentifySettings(floating_base=True)
    table = dict(logs[2])
    assert read_dataset(robot, table, None, asked, LocalEngine()).ground == ()
    table["base.x"] = table["base.x"] + 0.1 * np.sin(2.0 * np.pi * table["t"])
    found = read_dataset(robot, table, None, asked, LocalEngine()).ground
    assert {each.kind for each in found} == {"slip"}
    pounds = {name: x / 9.81 if name.startswith("wrench.") else x for name, x in logs[1].items()}
    found = read_dataset(robot, pounds, None, asked, LocalEngine()).ground
    assert [each.kind for each in found] == ["wrench-scale"]


def test_the_command_writes_a_robot_with_the_base_free_no_more_than_the_file(
    logs: tuple[Robot, Columns, Columns], tmp_path: Path
) -> None:
    import polars as pl

    pl.DataFrame(logs[1]).write_csv(tmp_path / "log.csv")
    command = ["identify", str(example_robot("solo12")), str(tmp_path / "log.csv")]
    options = ["--floating-base", "--no-tune", "--cutoff", "12", "--no-report", "--json"]
    ran = CliRunner().invoke(app, [*command, *options, "--out", str(tmp_path / "out")])
    assert ran.exit_code == 0, ran.stderr
    data = json.loads(ran.stdout)
    assert data["joints"][5]["name"] == "root_joint.vz"
    assert abs(data["plausibility"]["total_mass"] / logs[0].mass - 1.0) < 0.005
    written = th.load(tmp_path / "out" / "solo12_identified.urdf", floating_base=True)
    assert abs(written.mass / logs[0].mass - 1.0) < 0.005


@pytest.fixture(scope="module")
def gait() -> Columns:
    spec = importlib.util.spec_from_file_location("gait", ROOT / "examples" / "14_gait_log.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    columns: Columns = module.convert(shared_file("logs", "gait"))
    return columns


@pytest.mark.parametrize("factor", [0.7, pytest.param(1.3, marks=pytest.mark.slow)])
def test_a_walking_humans_mass_from_ground_forces_alone(gait: Columns, factor: float) -> None:
    file = th.load(shared_file("logs", "gait", "gait2354_subject01.xml"))
    wrong = file.with_parameters(factor * file.theta)
    settings = th.IdentifySettings(
        floating_base=True, wrench_frame="world", holdout=0.0, cutoff=6.0, report=False
    )
    result = th.identify(wrong, gait, settings=settings)
    assert abs(result.robot.mass / 72.6 - 1.0) < 0.03  # as the scale says
    assert all(result.robot.consistency)
    assert result.data["joints"][0]["name"] == "pelvis_free.wx"
