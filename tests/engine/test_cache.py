"""The store: the same content is computed once, whatever happens meanwhile; what is damaged is
computed anew; growing costs what is new.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from fleet_cases import SAME, arm, columns, differ, fitted, folder_of, one_pass, quicker, write
from store_cases import ROWS, run, same, settle

import thetahat as th
from thetahat.data.types import Mask
from thetahat.engine import row_reader, scan_logs
from thetahat.engine.cache import Store
from thetahat.engine.fingerprint import fingerprint, robot_fingerprint
from thetahat.engine.reduce import ShardReducer
from thetahat.engine.shard_work import Fold, Preparation
from thetahat.identification.information import Information


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = folder_of(tmp_path / "logs", 4)
    settle(folder)
    return folder


@pytest.fixture(autouse=True)
def trusting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The change of a file cannot be dated back (ctime), so here a file counts as settled
    at once.
    """
    monkeypatch.setattr("thetahat.engine.cache.SETTLING_TIME", -1.0)


class Watched:
    """Which files were opened to read their rows."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        for module, name in ((scan_logs, "open_log_file"), (row_reader, "open_log_table")):
            monkeypatch.setattr(module, name, partial(self._open, getattr(module, name)))

    def _open(self, original: Callable[..., object], path: Path, *options: object) -> object:
        self.names.append(path.name)
        return original(path, *options)


# -- by content ------------------------------------------------------------------------------------


def test_what_the_store_gives_is_what_was_computed(
    tmp_path: Path, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, _, _ = run(None, logs)
    with Store(tmp_path / "store") as store:
        first, told, _ = run(store, logs)
        assert (told.shards, told.computed) == (16, 16)
        seen = Watched(monkeypatch)
        again, told, _ = run(store, logs)
        assert (told.shards, told.computed) == (16, 0)
        assert seen.names == []
        (
            tmp_path / "store/entries" / told.root[:2] / told.root
        ).unlink()  # all in one; the shards are still there
        from_shards, told, _ = run(store, logs)
        assert told.computed == 0
    assert same(plain, first)
    assert same(plain, again)
    assert same(plain, from_shards)
    assert [each.provenance[0]["sources"] for each in (first, again)] == [
        plain.provenance[0]["sources"]
    ] * 2
    assert differ(one_pass(arm(), logs, fitted=fitted(arm())), plain) <= SAME


def test_a_grown_folder_reads_what_is_new_alone(
    tmp_path: Path, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(tmp_path / "store") as store:
        run(store, logs)
        write(logs / "run100.parquet", columns(100))
        settle(logs)  # the others' stamps change with it; their content tells that they are known
        seen = Watched(monkeypatch)
        found, told, files = run(store, logs)
        assert (told.shards, told.computed) == (20, 4)
        assert set(seen.names) == {"run100.parquet"}
        assert len(files.entries) == 5
    assert (
        differ(one_pass(arm(), logs, fitted=fitted(arm()), settings=_settings(found)), found)
        <= SAME
    )


def _settings(found: Information):
    from thetahat.data.prepare import Settings

    values = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in found.provenance[0]["settings"].items()
    }
    return Settings(**values)


def test_settings_stay_while_they_fit_and_are_chosen_anew_where_not(
    tmp_path: Path, logs: Path
) -> None:
    with Store(tmp_path / "store") as store:
        before = _settings(run(store, logs)[0])
        for k in range(4):
            write(logs / f"run2{k}0.parquet", columns(200 + k))
        kept = _settings(run(store, logs)[0])
        assert replace(kept, reasoning="") == replace(before, reasoning="")
        assert "earlier run" in kept.reasoning
        for k in range(4):
            write(logs / f"run30{k}.parquet", quicker(columns(300 + k, seconds=60.0), 6.0))
        anew = _settings(run(store, logs)[0])
    assert anew.cutoff > 1.25 * before.cutoff
    assert "earlier run" not in anew.reasoning


def test_rows_held_out_have_no_say_in_settings(tmp_path: Path, logs: Path) -> None:
    with Store(tmp_path / "store") as store:
        before = _settings(run(store, logs, (0, 14_000))[0])
        calm, quick = columns(400), quicker(columns(401, seconds=120.0), 6.0)
        quick["t"] = quick["t"] + 60.0
        write(
            logs / "run400.parquet",
            {name: np.concatenate([calm[name], quick[name]]) for name in calm},
        )
        kept = _settings(run(store, logs, (0, 20_000))[0])
        assert replace(kept, reasoning="") == replace(before, reasoning="")
        assert _settings(run(store, logs)[0]).min_speed != before.min_speed


@pytest.mark.parametrize(("name", "ratio"), [("cutoff", 2.0), ("min_speed", 3.0), ("spikes", 2.0)])
def test_a_threshold_that_would_be_too_small_is_not_kept(name: str, ratio: float) -> None:
    from thetahat.data.prepare import Settings
    from thetahat.engine.tuning_cache import ALONE, _fits

    kept = Settings(cutoff=10.0, min_speed=(0.1, 0.2), spikes=(1.0, 2.0))

    def changed(factor: float) -> Settings:
        value = getattr(kept, name)
        return replace(
            kept,
            **{name: factor * value if isinstance(value, float) else (value[0], factor * value[1])},
        )

    assert _fits(kept, changed(0.99 * ratio), ALONE)
    assert not _fits(kept, changed(1.01 * ratio), ALONE)
    assert _fits(kept, changed(0.01), ALONE)  # slower logs are content with what quicker ones need


def test_a_span_that_moves_keeps_the_shards_it_does_not_touch(tmp_path: Path, logs: Path) -> None:
    with Store(tmp_path / "store") as store:
        run(store, logs, (0, 9_500))
        _, told, _ = run(store, logs, (0, 14_500))
        assert told.shards == 15
        assert (
            told.computed == 7
            # the one that was cut at row 9,500, its neighbour whose halo met the cut, and those
            # behind
        )


def test_a_copy_under_another_name_is_not_folded_again(tmp_path: Path, logs: Path) -> None:
    with Store(tmp_path / "store") as store:
        first, _, _ = run(store, logs)
        shutil.copytree(logs, tmp_path / "copy")
        (tmp_path / "copy/run000.parquet").rename(tmp_path / "copy/run000b.parquet")
        found, told, files = run(store, tmp_path / "copy")
        assert told.computed == 0
        assert same(first, found)
        assert files.log.runs[0].name == "run000b"
        again = run(store, tmp_path / "copy")[2]
        assert again.log.runs[0].name == "run000b"


@pytest.mark.parametrize("change", ["cutoff", "drive", "gravity", "joints", "content", "masks"])
def test_whatever_changes_the_result_changes_the_key(logs: Path, change: str) -> None:
    robot, fit = arm(), fitted(arm())
    files = ShardReducer().scan(logs, robot)
    settings = ShardReducer().choose(files)
    work = Fold(Preparation(robot, settings), fit)
    from thetahat.engine.shards import plan

    def key(work: Fold, files) -> str:
        return fingerprint(work.fingerprint, plan(files, work.settings, rows=ROWS)[0].content)

    before = key(work, files)
    assert before == key(
        Fold(Preparation(th.load(robot.source), settings), fitted(th.load(robot.source))),
        ShardReducer().scan(logs, robot),
    )
    if change == "cutoff":
        work = Fold(Preparation(robot, replace(settings, cutoff=settings.cutoff * 1.0000001)), fit)
    elif change == "drive":
        work = Fold(Preparation(robot, settings), fit.with_drive(armature=True))
    elif change == "gravity":
        work = Fold(Preparation(robot, settings), fit.with_gravity((0.0, 0.0, -9.80665)))
    elif change == "joints":
        work = Fold(Preparation(robot, settings, dofs=(0, 1)), fit)
    elif change == "content":
        table = columns(0)
        table["tau.elbow"][77] += 1e-9
        write(logs / "run000.parquet", table)
        files = ShardReducer().scan(logs, robot)
    else:
        files = replace(files, log=replace(files.log, masks=(Mask(1, 50, 60, "stuck"),)))
    assert key(work, files) != before


def test_a_robots_values_do_not_matter_to_a_fold_but_to_a_score() -> None:
    robot = arm()
    other = robot.with_parameters(1.1 * robot.theta)
    assert robot_fingerprint(robot) == robot_fingerprint(other)
    assert robot_fingerprint(robot, values=True) != robot_fingerprint(other, values=True)
    from thetahat.model.friction_terms import by_load, stribeck

    drives = [
        replace(robot, drive=robot.drive.with_extra_term(shape))
        for shape in (stribeck(0.1), stribeck(0.2), by_load())
    ]
    assert len({robot_fingerprint(each) for each in drives}) == 3
    loaded, heavier = (
        replace(each, drive=each.drive.with_extra_term(by_load())) for each in (robot, other)
    )
    assert robot_fingerprint(loaded) != robot_fingerprint(
        heavier
    )  # its column is the load that the robot's own values make


# -- bags ------------------------------------------------------------------------------------------


def bag_folder(folder: Path, count: int = 2) -> Path:
    pytest.importorskip("rosbags", reason="bags are written by rosbags (pip install rosbags)")
    from bag_files import write_ros2

    folder.mkdir()
    for k in range(count):
        table, joints = columns(k), arm().joint_names
        data = {"t": table["t"]} | {
            kind: np.column_stack([table[f"{kind}.{joint}"] for joint in joints])
            for kind in ("q", "dq", "tau")
        }
        write_ros2(folder / f"bag{k}", joints, data)
    np.savez_compressed(folder / "last.npz", **columns(count))
    return folder


def test_segments_of_a_bag_are_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a store, what can only be read from its beginning is decoded once, set aside, and cut
    like any other log.
    """
    from thetahat.data.formats.bags import BagTable

    bags = bag_folder(tmp_path / "bags")
    decoded = []
    original = BagTable.read
    monkeypatch.setattr(
        BagTable,
        "read",
        lambda self, *a, **k: decoded.append(self.path.name) or original(self, *a, **k),
    )
    with Store(tmp_path / "store") as store:
        found, told, files = run(store, bags)
        assert told.shards == 12
        assert sorted(decoded) == ["bag0", "bag1"]
        spools = sorted((tmp_path / "store/spool").iterdir())
        assert [path.stat().st_size for path in spools] == [8 * 13 * 4_000] * 3
        wanted = one_pass(arm(), bags, fitted=fitted(arm()), settings=_settings(found))
        assert differ(wanted, found) <= SAME
        for path in spools[:2]:
            path.unlink()  # scratch may go at any time
        spools[2].write_bytes(spools[2].read_bytes()[:-8])
        work = Fold(Preparation(arm(), replace(_settings(found), cutoff=9.0)), fitted(arm()))
        again, told = ShardReducer(store=store, rows=ROWS).fold(files, work)
        assert told.computed == 12
        assert (
            differ(one_pass(arm(), bags, fitted=fitted(arm()), settings=work.settings), again)
            <= SAME
        )


def test_where_nothing_can_be_set_aside_a_bag_is_decoded_again(tmp_path: Path) -> None:
    bags = bag_folder(tmp_path / "bags", 1)
    with Store(tmp_path / "store") as store:
        (tmp_path / "store/spool").write_text("a file where the folder should be")
        found, told, _ = run(store, bags)
        assert told.failures == ()
        assert told.shards == 8
        assert (
            differ(one_pass(arm(), bags, fitted=fitted(arm()), settings=_settings(found)), found)
            <= SAME
        )


def test_the_oldest_spools_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thetahat.engine.row_reader.SPOOL_BYTES", 2 * 8 * 13 * 4_000)
    with Store(tmp_path / "store") as store:
        run(store, bag_folder(tmp_path / "bags"))
    assert len(list((tmp_path / "store/spool").iterdir())) == 2
