"""The store when something goes wrong: damage, a full disk, two runs at once, and kills at any
moment.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_paths import ROOT
from fleet_cases import arm, fitted, folder_of, gathered
from store_cases import ROWS, run, same, settle, shard_keys

from thetahat.engine import run_records, tuning_cache
from thetahat.engine.cache import MAGIC, Damaged, Store, decode, encode, unpack
from thetahat.engine.reduce import ShardReducer
from thetahat.errors import StorageError
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


# -- damage ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Inner:
    name: str
    pair: tuple[float, int]


@dataclass(frozen=True)
class Sample:
    """Every type that an entry may hold."""

    arrays: tuple[np.ndarray, ...]
    text: str
    optional: float | None
    flags: dict[int, tuple[bool, ...]]
    inner: tuple[Inner, ...]
    raw: bytes


def test_bytes_are_what_they_were_or_damaged() -> None:
    rng = np.random.default_rng(0)
    arrays = (
        rng.normal(size=(3, 4)),
        np.arange(5),
        np.array([True, False]),
        np.zeros((0, 2)),
        np.arange(3, dtype=np.uint8),
    )
    inner = (Inner("a", (1.0, 2)), Inner("b", (0.1, -3)))
    sample = Sample(arrays, "é", None, {3: (True, False)}, inner, b"\0raw")
    data = encode(sample, "key")
    found = decode(data, Sample, "key")
    assert (found.text, found.optional, found.flags) == (sample.text, None, sample.flags)
    assert (found.inner, found.raw) == (sample.inner, sample.raw)
    assert all(
        np.array_equal(a, b) and a.shape == b.shape and a.dtype == b.dtype
        for a, b in zip(found.arrays, arrays, strict=True)
    )
    for at in range(0, len(data), 7):
        broken = bytearray(data)
        broken[at] ^= 0x10
        with pytest.raises(Damaged):
            decode(bytes(broken), Sample, "key")
    for length in (0, 5, 40, len(data) - 1):
        with pytest.raises(Damaged):
            decode(data[:length], Sample, "key")
    with pytest.raises(Damaged):
        decode(data + b"\0", Sample, "key")
    for kind, key in ((Sample, "other"), (Inner, "key")):
        with pytest.raises(Damaged, match="another key"):
            decode(data, kind, key)


def test_nothing_in_the_store_is_pickled(tmp_path: Path, logs: Path) -> None:
    with Store(tmp_path / "store") as store:
        run(store, logs)
    for path in (tmp_path / "store/entries").rglob("*"):
        assert path.is_dir() or path.read_bytes().startswith(MAGIC)


@pytest.mark.parametrize("how", ["bit", "cut", "empty", "other"])
def test_a_damaged_entry_is_computed_anew(tmp_path: Path, logs: Path, how: str) -> None:
    with Store(tmp_path / "store") as store:
        first, told, _ = run(store, logs)
        entries = shard_keys(tmp_path / "store", told.root)
        root = tmp_path / "store/entries" / told.root[:2] / told.root
        paths = [tmp_path / "store/entries" / key[:2] / key for key in entries]
        data = bytearray(paths[3].read_bytes())
        data[len(data) // 2] ^= 4
        paths[3].write_bytes(
            {"bit": bytes(data), "cut": data[:99], "empty": b"", "other": paths[4].read_bytes()}[
                how
            ]
        )
        root.unlink()
        found, told, _ = run(store, logs)
        assert told.computed == 1
        assert store.damaged == [entries[3]]
        assert same(first, found)
        root.write_bytes(root.read_bytes()[:-9])
        assert same(first, run(store, logs)[0])
        store.damaged.clear()
        assert run(store, logs)[1].computed == 0
        assert store.damaged == []


def test_a_folder_that_is_no_store_is_said(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is no store"):
        Store(tmp_path / "none", create=False)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/store.sqlite").write_bytes(
        b"this is no database at all, but long enough to be taken for one" * 99
    )
    with pytest.raises(StorageError, match="is damaged"):
        Store(tmp_path / "bad")
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be made"):
        Store(tmp_path / "file")
    Store(tmp_path / "new").close()
    with sqlite3.connect(tmp_path / "new/store.sqlite") as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(StorageError, match="version 99"):
        Store(tmp_path / "new")


def test_a_store_of_version_1_keeps_its_runs_and_says_that_results_are_new(
    tmp_path: Path, logs: Path
) -> None:
    with Store(tmp_path / "store") as store:
        run_records.fail_run(store, run_records.begin_run(store, arm()), "no")
        wanted, _, _ = run(store, logs)
    shutil.move(tmp_path / "store/entries", tmp_path / "store/objects")
    with sqlite3.connect(tmp_path / "store/store.sqlite") as database:
        database.execute("PRAGMA user_version = 1")
        database.execute("DROP TABLE settings_logs")
    database.close()
    with pytest.warns(UserWarning, match="of version 1: its runs are kept"):
        store = Store(tmp_path / "store")
    with store:
        assert [record.state for record in run_records.find_runs(store)] == ["failed"]
        found, told, _ = run(store, logs)
    assert told.computed == told.shards
    assert same(found, wanted)
    Store(tmp_path / "store").close()  # said once


def test_a_full_disk_stops_nothing_and_is_said_once(
    tmp_path: Path, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from thetahat.engine import cache as storing

    wanted, _, _ = run(None, logs)
    written = []

    def full(path: Path, data: bytes, **more: bool) -> None:
        if len(written) >= 9:
            raise StorageError(
                f"{path} cannot be written: No space left on device; check the room on its disk"
            )
        written.append(path)
        original(path, data, **more)

    original = storing.write_atomically
    monkeypatch.setattr(storing, "write_atomically", full)
    with Store(tmp_path / "store") as store:
        reducer = ShardReducer(store=store, rows=ROWS)
        found, told, _ = gathered(reducer, logs, arm(), fitted(arm()))
        assert same(found, wanted)
        assert told.failures == ()
        (trouble,) = reducer.store_failures
        assert trouble.exit_code == 6
        assert "No space left" in trouble.sentence
        monkeypatch.setattr(storing, "write_atomically", original)
        again, told, _ = run(store, logs)
        assert told.computed == 16 - 5  # 4 surveys and 5 shards had found room
        assert same(again, wanted)


def test_what_belongs_together_is_written_together_or_not_at_all(tmp_path: Path) -> None:
    """A run is not done without its logs, and a choice not made without the logs it was held
    against.
    """
    found = {
        "method": "x",
        "samples": 1,
        "rank": 1,
        "r2": {"train": 1.0, "test": None},
        "consistent": True,
    }
    found["provenance"] = {
        "logs": [{"path": "a", "sha256": "a"}, {"path": "b", "sha256": []}]
    }  # which the database refuses
    with Store(tmp_path / "store") as store:
        number = run_records.begin_run(store, arm())
        with pytest.raises(StorageError):
            run_records.finish_run(store, number, found, verdict="")
        assert [record.state for record in run_records.find_runs(store)] == ["running"]
        assert run_records.find_runs(store)[0].logs == ()
        tuning_cache._replace(store, "series", '{"x": 1}', ["a"])
        with pytest.raises(StorageError):
            tuning_cache._replace(store, "series", '{"x": 2}', ["b", []])
        assert [row["settings"] for row in store.query("SELECT settings FROM settings")] == [
            '{"x": 1}'
        ]
        assert [row["digest"] for row in store.query("SELECT digest FROM settings_logs")] == ["a"]


# -- at once, and killed ---------------------------------------------------------------------------


def test_what_a_killed_writer_left_is_tidied_up_in_time(tmp_path: Path) -> None:
    with Store(tmp_path / "store") as store:
        folder = tmp_path / "store/entries/ab"
        folder.mkdir()
        for name, age in ((".ab1.old", 7200.0), (".ab2.new", 0.0)):
            (folder / name).write_bytes(b"half")
            os.utime(folder / name, (time.time() - age,) * 2)
        store.put("ab" + 62 * "0", Inner("", (0.0, 0)))
    assert sorted(path.name for path in folder.iterdir()) == [".ab2.new", "ab" + 62 * "0"]


def test_two_threads_at_once_are_safe(tmp_path: Path, logs: Path) -> None:
    wanted, _, _ = run(None, logs)
    found: list[Information] = []

    def work() -> None:
        with Store(tmp_path / "store") as store:
            found.append(run(store, logs)[0])

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert all(same(each, wanted) for each in found)
    with Store(tmp_path / "store") as store:
        assert run(store, logs)[1].computed == 0
    assert not list((tmp_path / "store/entries").rglob(".*"))


WORK = """
import sys
sys.path[:0] = {paths!r}
import thetahat.engine.cache as storing
storing.SETTLING_TIME = -1.0
from fleet_cases import arm, fitted, gathered
from store_cases import ROWS, run, same, settle
from thetahat.engine.reduce import ShardReducer
from thetahat.engine.cache import Store
print("ready", flush=True)
sys.stdin.readline()
with Store({store!r}) as store:
    gathered(ShardReducer(store=store, rows=100), {logs!r}, arm(), fitted(arm()))
print("done", flush=True)
"""


def killed_runs(tmp_path: Path, logs: Path, times: int) -> None:
    """kill -9 at random moments: the store opens, and once a run is let through, its result is that
    of a run without a store.
    """
    store = str(tmp_path / "store")
    code = WORK.format(
        paths=[str(ROOT / "src"), str(ROOT / "tests" / "support")], store=store, logs=str(logs)
    )
    began = time.monotonic()
    gathered(ShardReducer(rows=100), logs, arm(), fitted(arm()))
    rng, killed, longest, surveys, entries = (
        random.Random(0),
        0,
        2.0 * (time.monotonic() - began),
        len(list(logs.iterdir())),
        0,
    )
    while (
        killed < times or entries <= surveys
    ):  # the last one left shards behind, so that there is something to go on from
        with subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout.readline() == "ready\n"
            process.stdin.write("go\n")
            process.stdin.flush()
            time.sleep(rng.uniform(0.0, longest))
            process.send_signal(signal.SIGKILL)
            over = process.stdout.read()
        if "done" in over:  # the kill came too late: begin anew
            shutil.rmtree(store)
            entries = 0
            continue
        killed += 1
        with Store(store) as opened:
            assert opened.query("PRAGMA integrity_check")[0][0] == "ok"
            # Every entry that is there is whole.
            entries = len(
                [
                    unpack(path.read_bytes())
                    for path in Path(store, "entries").rglob("[0-9a-f]" * 64)
                ]
            )
    with Store(store) as opened:
        found, told, _ = gathered(ShardReducer(store=opened, rows=100), logs, arm(), fitted(arm()))
        assert told.computed <= max(
            told.shards - (entries - surveys), 0
        )  # what the killed ones did was not in vain
    wanted, _, _ = gathered(ShardReducer(rows=100), logs, arm(), fitted(arm()))
    assert same(found, wanted)


def test_killed_at_a_random_moment(tmp_path: Path, logs: Path) -> None:
    killed_runs(tmp_path, logs, 1)


@pytest.mark.slow
def test_killed_at_fifty_random_moments(tmp_path: Path, logs: Path) -> None:
    killed_runs(tmp_path, logs, 50)


# -- the verb itself -------------------------------------------------------------------------------


def verb(folder: Path, logs: Path, out: str, *more: str) -> subprocess.Popen[str]:
    """`thetahat identify --store` in processes of their own, which can be killed together."""
    given = [
        "identify",
        "arm4",
        str(logs),
        "--out",
        str(folder / out),
        "--store",
        str(folder / "store"),
        "--json",
        "--no-tune",
        "--no-report",
        *more,
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "THETAHAT_QUIET": "1"}
    command = [sys.executable, "-m", "thetahat.cli", *given]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )


def answered(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The answer, without the words on how its settings came about: those say that they
    were kept.
    """
    out, err = process.communicate()
    assert process.returncode == 0, err
    found = json.loads(out)
    found["provenance"]["settings"].pop("cutoff_reason")
    return found


def test_two_processes_at_once_are_safe(tmp_path: Path, logs: Path) -> None:
    both = [verb(tmp_path, logs, f"out{k}") for k in range(2)]
    one, other = (answered(process) for process in both)
    one["parity"] = other["parity"] = None
    assert one == other
    with Store(tmp_path / "store") as store:
        assert [record.state for record in run_records.find_runs(store)] == ["done", "done"]
        assert store.query("PRAGMA integrity_check")[0][0] == "ok"
    assert not list((tmp_path / "store/entries").rglob(".*"))


def killed_verbs(
    tmp_path: Path, logs: Path, times: int, *workers: str, earliest: float = 0.1
) -> None:
    """kill -9 of `identify --store` and its workers at random moments: the store opens, and a run
    let through answers as one in one process.
    """
    store, rng = tmp_path / "store", random.Random(1)
    began = time.monotonic()
    wanted = answered(
        verb(tmp_path, logs, "out")
    )  # whoever computes, it is the same to the last bit
    # workers must be started, too
    longest = (2.5 if workers else 1.0) * (time.monotonic() - began)
    shutil.rmtree(store)
    killed, between = 0, max(times // 5, 1)
    while killed < times:
        process = verb(tmp_path, logs, "out", *workers)
        try:
            process.communicate(timeout=rng.uniform(earliest, 1.0) * longest)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        else:  # the kill came too late: begin anew
            assert process.returncode == 0
            shutil.rmtree(store)
        if not store.exists():  # or before there was anything to harm
            continue
        killed += 1
        with Store(store) as opened:
            assert opened.query("PRAGMA integrity_check")[0][0] == "ok"
            states = {record.state for record in run_records.find_runs(opened)}
        assert states <= {"interrupted", "done"}
        for path in (store / "entries").rglob("[0-9a-f]" * 64):
            unpack(path.read_bytes())
        if killed % between == 0:  # let one through, and begin anew
            assert answered(verb(tmp_path, logs, "out", *workers)) == wanted
            shutil.rmtree(store)


def test_the_verb_killed_at_a_random_moment(tmp_path: Path, logs: Path) -> None:
    killed_verbs(tmp_path, logs, 1, earliest=0.5)  # when there is a store


@pytest.mark.slow
def test_the_verb_killed_at_fifty_random_moments(tmp_path: Path, logs: Path) -> None:
    pytest.importorskip(
        "distributed", reason="workers need the extra dask (pip install 'dask[distributed]')"
    )
    killed_verbs(tmp_path, logs, 50, "--workers", "2")
