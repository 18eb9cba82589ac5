"""Files surveyed apart make the log that one reading of all of them makes: runs, masks, findings.
What cannot be used is named, the rest kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fleet_cases import SHAPES, arm, columns, folder_of, spoil, spoiled, write

import thetahat as th
from thetahat.data import audit
from thetahat.data.audit_windows import Windows
from thetahat.data.columns import ColumnMap
from thetahat.data.formats import Table
from thetahat.data.log import Log, read_log
from thetahat.data.prepare import choose
from thetahat.engine.cache import Damaged, decode, encode
from thetahat.engine.multi_log import ScannedFile, merge_files
from thetahat.engine.reduce import ShardReducer
from thetahat.engine.row_reader import Reading
from thetahat.engine.scan_logs import scan_file
from thetahat.engine.sources import items
from thetahat.engine.tuning_cache import SettingsOptions, choose_settings
from thetahat.errors import MalformedInput, StorageError, UsageError
from thetahat.model.robot import Robot


def require_same_log(found: Log, wanted: Log) -> None:
    assert found.sources == wanted.sources
    assert found.runs == wanted.runs
    assert found.masks == wanted.masks
    assert found.findings == wanted.findings
    assert (found.rows, found.locked, found.has_dq, found.has_ddq, found.has_tau) == (
        wanted.rows,
        wanted.locked,
        wanted.has_dq,
        wanted.has_ddq,
        wanted.has_tau,
    )
    for a, b in zip(found.chunks(), wanted.chunks(), strict=True):
        assert (a.run, a.row) == (b.run, b.row)
        assert all(
            np.array_equal(getattr(a, name), getattr(b, name)) for name in ("t", "q", "dq", "tau")
        )


@pytest.mark.parametrize("shape", SHAPES)
def test_one_file_is_the_log_it_is(tmp_path: Path, shape: str) -> None:
    path = write(tmp_path / "log.csv", SHAPES[shape](columns()))
    require_same_log(ShardReducer().scan(path, arm()).log, read_log(path, arm()))


def test_many_files_are_one_log(tmp_path: Path) -> None:
    for k, (name, shape) in enumerate(SHAPES.items()):
        write(tmp_path / f"{k}-{name}.{'csv' if k % 2 else 'parquet'}", shape(columns(k)))
    found, wanted = ShardReducer().scan(tmp_path, arm()).log, read_log(tmp_path, arm())
    kinds = {finding.kind for finding in wanted.findings}
    assert {"gap", "jitter", "wrap", "dead-torque", "short-run"} <= kinds
    require_same_log(found, wanted)


def test_torques_saturate_at_the_limit_of_all_files(tmp_path: Path) -> None:
    first = spoiled(columns(0))
    name = next(name for name in first if name.startswith("tau."))
    higher = columns(1)
    for k, table in enumerate((first, higher, first)):
        write(tmp_path / f"{k}.parquet", table)
    if higher[name].max() <= first[name].max():
        higher[name][5] = first[name].max() + 1.0
        write(tmp_path / "1.parquet", higher)
    alone = ShardReducer().scan(tmp_path / "0.parquet", arm()).log
    together = ShardReducer().scan(tmp_path, arm()).log
    assert any(mask.reason == "saturated" for mask in alone.masks)
    assert not any(
        mask.reason == "saturated" for mask in together.masks
    )  # another file goes beyond: no limit of the drive
    require_same_log(together, read_log(tmp_path, arm()))


def test_a_limit_that_several_files_reach_is_one(tmp_path: Path) -> None:
    for k in range(3):
        table = columns(k)
        name = next(name for name in table if name.startswith("tau."))
        limit = 0.6 * min(columns(j)[name].max() for j in range(3))
        write(tmp_path / f"{k}.parquet", table | {name: np.minimum(table[name], limit)})
    found, wanted = ShardReducer().scan(tmp_path, arm()).log, read_log(tmp_path, arm())
    masked = {int(mask.first_row) // 4_000 for mask in found.masks if mask.reason == "saturated"}
    assert masked == {0, 1, 2}
    require_same_log(found, wanted)


def test_the_windows_that_judge_the_log_are_those_of_one_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[Windows] = []
    original = audit.check_against_model

    def watched(
        robot: Robot, columns: ColumnMap, windows: Windows, **options: object
    ) -> tuple[list, list]:
        judged.append(windows)
        return original(robot, columns, windows, **options)

    folder = folder_of(tmp_path / "logs", 4)
    surveys = [(item, scan_file((arm(), Reading()), item)) for item in items(folder)]
    monkeypatch.setattr(audit, "check_against_model", watched)
    merge_files(arm(), Reading(), surveys)
    read_log(folder, arm())
    mine, theirs = judged
    assert len(mine) == len(theirs) > 1_500
    for name in ("q", "dq", "ddq", "tau", "row", "usable"):
        assert np.array_equal(getattr(mine, name), getattr(theirs, name)), name


def test_a_turned_sign_is_found_over_all_files(tmp_path: Path) -> None:
    for k in range(3):
        table = columns(k)
        name = [name for name in table if name.startswith("tau.")][1]
        write(tmp_path / f"{k}.parquet", table | {name: -table[name]})
    found = ShardReducer().scan(tmp_path, arm()).log
    assert [finding.kind for finding in found.findings] == ["sign"]
    require_same_log(found, read_log(tmp_path, arm()))


@pytest.mark.parametrize("shape", ["even", "gaps", "spoiled", "wraps"])
def test_a_survey_comes_back_from_bytes_as_it_was(tmp_path: Path, shape: str) -> None:
    path = write(tmp_path / "log.csv", SHAPES[shape](columns()))
    found = scan_file((arm(), Reading()), items(path)[0])
    data = encode(found, "key")
    assert encode(decode(data, ScannedFile, "key"), "key") == data
    broken = bytearray(data)
    broken[len(data) // 2] ^= 1
    with pytest.raises(Damaged):
        decode(bytes(broken), ScannedFile, "key")


def test_settings_are_chosen_as_in_one_pass_reading_a_fraction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from thetahat.engine import row_reader

    folder = folder_of(tmp_path / "logs", 12, seconds=64.0)
    files = ShardReducer().scan(folder, arm())
    read: list[int] = []
    original = row_reader.read_rows

    def watched(
        table: Table, columns: ColumnMap, first: int, stop: int, **options: object
    ) -> Iterator[np.ndarray]:
        read.append(stop - first)
        return original(table, columns, first, stop, **options)

    monkeypatch.setattr(row_reader, "read_rows", watched)
    span = (0, round(0.9 * files.log.rows))
    assert choose_settings(files, SettingsOptions(), span) == choose(
        read_log(folder, arm()), arm(), span=span
    )
    assert sum(read) < 0.75 * span[1]


def test_of_a_bag_what_settings_need_is_read_in_one_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from thetahat.engine import row_reader

    monkeypatch.setattr("thetahat.data.cutoff.WINDOWS", 6)
    for k in range(2):
        write(tmp_path / f"{k}.npz", columns(k, seconds=120.0))
    files = ShardReducer().scan(tmp_path, arm())
    read: list[tuple[int, int]] = []
    original = row_reader.read_rows

    def watched(
        table: Table, columns: ColumnMap, first: int, stop: int, **options: object
    ) -> Iterator[np.ndarray]:
        read.append((first, stop))
        return original(table, columns, first, stop, **options)

    monkeypatch.setattr(row_reader, "read_rows", watched)
    assert choose_settings(files, SettingsOptions()) == choose(read_log(tmp_path, arm()), arm())
    assert len(read) == 2


# -- what cannot be used ---------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["cut", "damaged", "names", "columns", "degrees", "text", "empty"])
def test_a_bad_file_is_named_and_the_rest_kept(tmp_path: Path, how: str) -> None:
    folder = folder_of(tmp_path / "logs", 3)
    wanted = read_log(folder, arm())
    name, said, code = spoil(folder, how)
    files = ShardReducer().scan(folder, arm())
    (failure,) = files.failures
    assert name in failure.name
    assert said in failure.sentence
    assert name in failure.sentence
    assert failure.exit_code == code
    require_same_log(files.log, wanted)


@pytest.mark.parametrize("name", ["a.parquet", "z.parquet"])
def test_most_files_say_which_columns_a_log_has(tmp_path: Path, name: str) -> None:
    folder = folder_of(tmp_path / "logs", 2)
    write(
        folder / name,
        {column: array for column, array in columns(5).items() if not column.startswith("dq.")},
    )
    files = ShardReducer().scan(folder, arm())
    assert [name in failure.name for failure in files.failures] == [True]
    assert files.log.has_dq


def test_where_no_file_is_left_the_first_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("t,q1\n0,1\n1,one\n")
    (tmp_path / "b.csv").write_text("")
    with pytest.raises(MalformedInput, match=r"a\.csv.*and 1 more"):
        ShardReducer().scan(tmp_path, arm())


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "logs", 1)
    files = ShardReducer().scan([folder, tmp_path / "gone.csv"], arm())
    assert [
        (each.exit_code, "gone.csv does not exist" in each.sentence) for each in files.failures
    ] == [(6, True)]
    with pytest.raises(StorageError, match="no file fits"):
        ShardReducer().scan(str(tmp_path / "*.csv"), arm())
    with pytest.raises(UsageError, match="give a file"):
        ShardReducer().scan([], arm())


def test_a_file_that_changes_between_survey_and_fold_is_named(tmp_path: Path) -> None:
    from thetahat.engine.shard_work import Fold, Preparation

    folder = folder_of(tmp_path / "logs", 2)
    files = ShardReducer().scan(folder, arm())
    settings = choose(files.log, arm())
    write(folder / "run001.parquet", columns(7))
    found, told = ShardReducer().fold(
        files, Fold(Preparation(arm(), settings), arm().without_drive())
    )
    assert [
        (each.exit_code, "changed after it was scanned" in each.sentence) for each in told.failures
    ] == [(6, True)]
    assert found.samples == 4_000


# -- where logs are --------------------------------------------------------------------------------


def test_urls_are_fetched_once_and_read_like_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsspec = pytest.importorskip("fsspec", reason="fsspec comes with the extra dask")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    folder = folder_of(tmp_path / "logs", 2)
    memory = fsspec.filesystem("memory")
    for path in sorted(folder.iterdir()):
        memory.pipe(f"/fleet/{path.name}", path.read_bytes())
    try:
        for name in (
            "memory://fleet",
            "memory://fleet/*.parquet",
            ["memory://fleet/run000.parquet", "memory://fleet/run001.parquet"],
        ):
            files = ShardReducer().scan(name, arm())
            assert [entry.item.place.rpartition("/")[2] for entry in files.entries] == [
                "run000.parquet",
                "run001.parquet",
            ]
            assert all(entry.item.remote for entry in files.entries)
        wanted = read_log(folder, arm())
        assert files.log.runs == wanted.runs
        assert [source.sha256 for source in files.log.sources] == [
            source.sha256 for source in wanted.sources
        ]
        assert th.prepare(files.log, arm(), cutoff=10.0).q.shape == (8_000, 4)
        before = sorted((tmp_path / "scratch").rglob("*run00*"))
        ShardReducer().scan(name, arm())
        assert sorted((tmp_path / "scratch").rglob("*run00*")) == before
    finally:
        memory.rm("/fleet", recursive=True)
    files = ShardReducer().scan([folder / "run000.parquet", "memory://fleet/run009.parquet"], arm())
    assert "run009.parquet" in files.failures[0].sentence
    assert files.failures[0].exit_code == 6
    assert (
        not ShardReducer().scan(f"file://{folder}", arm()).entries[0].item.remote
    )  # what is here is not copied
