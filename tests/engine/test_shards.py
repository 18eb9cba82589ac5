"""Shards: whatever a log looks like and wherever it is cut, all of its shards together are what one
pass over it yields.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from data_paths import shared_file
from fleet_cases import (
    SAME,
    SHAPES,
    arm,
    columns,
    differ,
    fitted,
    folder_of,
    jittered,
    one_pass,
    write,
)

import thetahat as th
from thetahat.data.joint_selection import JointSelection
from thetahat.data.log import read_log
from thetahat.data.prepare import Settings, choose
from thetahat.data.samples import Samples, concatenate
from thetahat.engine.multi_log import MultiLog
from thetahat.engine.reduce import ShardReducer
from thetahat.engine.shard_samples import samples
from thetahat.engine.shard_work import Fold, Preparation
from thetahat.engine.shards import plan
from thetahat.identification.information import information
from thetahat.model.lock_joints import lock

ROWS = 700  # of a shard here: some are shorter than their halo
ROUNDING = 1e-11  # of a channel's largest value: the same filters, transformed from other places on


def both(
    path: Path,
    settings: Settings | None = None,
    span: tuple[int, int] | None = None,
    *,
    rows: int = ROWS,
) -> tuple[Samples, Samples, int]:
    """(samples of one pass, samples of the shards put together, number of shards)."""
    robot = arm()
    log = read_log(path, robot)
    settings = settings or choose(log, robot, span=span)
    files = ShardReducer().scan(path, robot)
    shards = plan(files, settings, span, rows=rows)
    parts = [part for shard in shards for part in samples(shard, robot, settings, timed=True)]
    return (
        th.prepare(log, robot, settings=settings, span=span),
        concatenate(parts, same_log=True),
        len(shards),
    )


def require_same(one: Samples, other: Samples) -> None:
    assert len(one) == len(other)
    assert np.array_equal(one.run, other.run)
    assert np.array_equal(one.reason, other.reason)
    assert np.max(np.abs(one.t - other.t)) <= 1e-9
    for name in ("q", "dq", "ddq", "tau"):
        a, b = getattr(one, name), getattr(other, name)
        assert np.max(np.abs(a - b)) <= ROUNDING * np.max(np.abs(a)), name


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".npz"])
@pytest.mark.parametrize("shape", SHAPES)
def test_shards_are_what_one_pass_yields(tmp_path: Path, shape: str, ending: str) -> None:
    one, other, count = both(write(tmp_path / f"log{ending}", SHAPES[shape](columns())))
    assert count == (1 if ending == ".npz" else 6 if shape != "gaps" else 5)
    require_same(one, other)


@pytest.mark.parametrize("span", [(0, 1_234), (999, 3_001), (2_000, 4_000)])
@pytest.mark.parametrize("shape", ["even", "drift", "gaps"])
def test_a_span_is_cut_as_in_one_pass(tmp_path: Path, shape: str, span: tuple[int, int]) -> None:
    path = write(tmp_path / "log.parquet", SHAPES[shape](columns()))
    rows = read_log(path, arm()).rows
    require_same(*both(path, span=(span[0], min(span[1], rows)))[:2])


@pytest.mark.parametrize(
    "change",
    [
        {"decimate": 3},
        {"decimate": "auto", "cutoff": 5.0},
        {"derivative": "ema"},
        {"derivative": "savgol"},
        {"torque_cutoff": 4.0},
        {"cutoff": 1.5},  # the halo is longer than two shards
    ],
    ids=str,
)
def test_whatever_the_settings(tmp_path: Path, change: dict) -> None:
    path = write(tmp_path / "log.parquet", jittered(columns()))
    settings = replace(choose(read_log(path, arm()), arm()), **change)
    require_same(*both(path, settings)[:2])


@pytest.mark.parametrize("rows", [1, 50, 311, 100_000])
def test_wherever_it_is_cut(tmp_path: Path, rows: int) -> None:
    one, other, count = both(
        write(tmp_path / "log.csv", SHAPES["gaps"](jittered(columns(seconds=1.6, rate=1_000.0)))),
        rows=max(rows, 50),
    )
    assert count >= 2 or rows == 100_000
    require_same(one, other)


MEASURED = {
    "panda": ("panda/panda_nomesh_from_example_robot_data.urdf", "panda/panda_exciting_traj1.csv"),
    "kr300": ("kr300/kr300_from_dh.urdf", "kr300/kr300.csv"),
    "pendulum": (
        "double_pendulum/double_pendulum_C1_from_yml.urdf",
        "double_pendulum/double_pendulum_C1.csv",
    ),
}


@pytest.mark.parametrize("name", MEASURED)
def test_so_it_is_with_logs_of_real_robots(name: str) -> None:
    urdf, path = (shared_file("logs", *part.split("/")) for part in MEASURED[name])
    robot = th.load(urdf)
    log, files = read_log(path, robot), ShardReducer().scan(path, robot)
    settings = choose(log, robot)
    parts = [
        part
        for shard in plan(files, settings, rows=2_500)
        for part in samples(shard, robot, settings, timed=True)
    ]
    require_same(th.prepare(log, robot, settings=settings), concatenate(parts, same_log=True))


def test_runs_named_by_a_column_are_not_mixed(tmp_path: Path) -> None:
    table = columns()
    table["seg"] = np.repeat(["a", "b", "c", "b"], len(table["t"]) // 4)
    for ending in (".parquet", ".csv"):
        one, other, _ = both(write(tmp_path / f"log{ending}", table))
        assert len(np.unique(one.run)) == 4
        require_same(one, other)


def test_a_bag_is_a_shard(tmp_path: Path) -> None:
    pytest.importorskip("rosbags", reason="bags are written by rosbags (pip install rosbags)")
    from bag_files import write_ros2

    table, joints = columns(seconds=6.0), arm().joint_names
    data = {"t": table["t"]} | {
        kind: np.column_stack([table[f"{kind}.{joint}"] for joint in joints])
        for kind in ("q", "dq", "tau")
    }
    one, other, count = both(write_ros2(tmp_path / "bag", joints, data))
    assert count == 1
    require_same(one, other)


def test_joints_without_a_column_are_locked_in_every_shard(tmp_path: Path) -> None:
    robot = arm()
    table = {
        name: array for name, array in columns().items() if not name.endswith(robot.joint_names[1])
    }
    path = write(tmp_path / "log.parquet", table)
    files = ShardReducer().scan(path, robot)
    settings, locked = choose(files.log, robot), files.log.locked
    fit = fitted(lock(robot, locked))
    found, _ = ShardReducer(rows=ROWS).fold(
        files, Fold(Preparation(robot, settings, locked, (0, 2)), fit)
    )
    joints = JointSelection(robot, locked, (0, 2))
    samples = th.prepare(read_log(path, robot), robot, settings=settings)
    one = information(fit, joints.select(samples))
    assert found.robot.nv == 3
    assert found.rows.tolist() == one.rows.tolist()
    assert one.rows[1] == 0
    for a, b in zip(one.factors, found.factors, strict=True):
        assert np.allclose(
            a.T @ a, b.T @ b, rtol=0.0, atol=1e-12 * np.abs(a.T @ a).max(initial=1.0)
        )


# -- estimates -------------------------------------------------------------------------------------


def surveyed(path: Path) -> tuple[MultiLog, Settings]:
    files = ShardReducer().scan(path, arm())
    return files, choose(files.log, arm())


def test_two_hundred_shards_in_random_order_are_one_pass(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "logs", 8)
    files, settings = surveyed(folder)
    shards = plan(files, settings, rows=160)
    assert len(shards) == 200
    work = Fold(Preparation(arm(), settings), fitted(arm()))
    order = np.random.default_rng(0).permutation(len(shards))
    parts = [work.run(shards[k]) for k in order]
    one = one_pass(arm(), folder, fitted=fitted(arm()))
    assert differ(one, Fold.merge(parts).information(fitted(arm()))) <= SAME
    one_by_one = parts[0]
    for part in parts[1:]:
        one_by_one = Fold.merge([part, one_by_one])
    assert differ(one, one_by_one.information(fitted(arm()))) <= SAME


def test_the_direction_of_dry_friction_is_that_of_one_pass(tmp_path: Path) -> None:
    from thetahat.model.friction_terms import FrictionDirection

    path = write(tmp_path / "log.parquet", columns())
    files, settings = surveyed(path)
    for zone, travel in ((0.05, 0.0), (0.0, 0.02)):
        law = FrictionDirection(np.full(4, zone), np.full(4, travel))
        fit = replace(fitted(arm()), drive=fitted(arm()).drive.with_dry(law))
        work = Fold(Preparation(arm(), settings), fit)
        found, told = ShardReducer(rows=ROWS).fold(files, work)
        assert told.shards == (1 if travel else 6)  # hysteresis remembers the whole run
        assert differ(one_pass(arm(), path, fitted=fit, settings=settings), found) <= SAME


@pytest.mark.parametrize("form", ["momentum", "filtered"])
def test_windows_are_those_of_one_pass(tmp_path: Path, form: str) -> None:
    path = write(tmp_path / "log.parquet", SHAPES["gaps"](columns()))
    files, settings = surveyed(path)
    settings = replace(settings, form=form)
    found, told = ShardReducer(rows=ROWS).fold(
        files, Fold(Preparation(arm(), settings), fitted(arm()))
    )
    one = one_pass(arm(), path, fitted=fitted(arm()), settings=settings)
    assert differ(one, found) <= SAME
    assert np.array_equal(one.rows, found.rows)
    assert told.result.period > 0.005, "between windows"


@pytest.mark.parametrize("rows", [ROWS, 100_000])
def test_what_was_left_out_is_counted(tmp_path: Path, rows: int) -> None:
    path = write(tmp_path / "log.parquet", SHAPES["gaps"](SHAPES["spoiled"](columns())))
    files, settings = surveyed(path)
    _, told = ShardReducer(rows=rows).fold(files, Fold(Preparation(arm(), settings), fitted(arm())))
    one = th.prepare(read_log(path, arm()), arm(), settings=settings)
    assert np.array_equal(
        told.result.counts,
        [np.bincount(codes, minlength=told.result.counts.shape[1]) for codes in one.reason.T],
    )
    assert told.result.period == pytest.approx(0.005, rel=1e-12)
