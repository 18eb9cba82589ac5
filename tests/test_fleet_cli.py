"""`identify --workers --store`, `history`, `diff`: the answer of one pass, the memory of it, and every trouble in one sentence with its exit code."""

from __future__ import annotations

import errno
import inspect
import json
import re
import socket
import sqlite3
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_paths import ROOT
from fleet_cases import arm, fitted, folder_of, gathered
from identify_cases import Done
from test_fleet_survey import spoil
from thetahat import cli
from thetahat.cli import scale
from thetahat.cli.app import app
from thetahat.cli.crew import Rows
from thetahat.cli.diff import diff
from thetahat.cli.history import history
from thetahat.cli.identify import identify
from thetahat.cli.progress import Progress
from thetahat.data.log import Log
from thetahat.errors import StorageError, UsageError
from thetahat.fleet import runs
from thetahat.fleet.diff import compared
from thetahat.fleet.fingerprint import robot_fingerprint
from thetahat.fleet.gather import Gatherer
from thetahat.fleet.store import Store
from thetahat.identify.result import as_data

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema checks the answers (pip install jsonschema)")
Thetahat = Callable[..., Done]
SAME = 1e-10  # of a parameter's standard deviation, beside 1e-10 of its value
QUICK = ["--no-tune", "--no-report"]  # what is tuned has tests of its own
wired = pytest.mark.skipif("workers" not in inspect.signature(identify).parameters, reason="identify does not take --workers and --store yet")


@pytest.fixture
def thetahat(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Thetahat:
    """The command line, in this process."""
    monkeypatch.delenv("THETAHAT_DEBUG", raising=False)
    monkeypatch.delenv(scale.STORE, raising=False)
    have = {command.name or command.callback.__name__ for command in app.registered_commands}
    for verb in (history, diff):
        if verb.__name__ not in have:
            app.command()(verb)

    def call(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["thetahat", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return Done(int(ended.value.code or 0), out, err)

    return call


def require(name: str, answer: dict[str, Any]) -> None:
    schema = json.loads((ROOT / "src/thetahat/schemas" / f"{name}.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    errors = [f"{list(error.absolute_path)}: {error.message}" for error in jsonschema.Draft202012Validator(schema).iter_errors(answer)]
    assert errors == []


def one_error(done: Done, code: int, *said: str) -> None:
    """The exit code, and one sentence on stderr that is an error and names what it must."""
    assert done.code == code, done.err
    errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done.err
    for part in said:
        assert part in done.err


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_of(tmp_path_factory.mktemp("cli") / "logs", 3)


# -- identify ---------------------------------------------------------------------------------------------------------


def require_same_answer(a: dict[str, Any], b: dict[str, Any]) -> None:
    for one, other in zip(a["base_parameters"], b["base_parameters"], strict=True):
        assert one["name"] == other["name"]
        assert abs(one["value"] - other["value"]) <= SAME * max(abs(one["value"]), one["std"])
    assert a["samples"] == b["samples"]
    assert a["dropped"] == b["dropped"]
    assert a["findings"] == b["findings"]
    for one, other in zip(a["joints"], b["joints"], strict=True):
        for name in ("rows_train", "rows_test"):
            assert one[name] == other[name]
        for name in ("r2_train", "r2_test", "r2_test_moving", "r2_test_raw", "rms_nominal", "rms_test"):
            assert abs(one[name] - other[name]) <= 1e-9


@wired
@pytest.mark.parametrize("quick", [QUICK, pytest.param([], marks=pytest.mark.slow)], ids=["quick", "tuned"])
def test_identify_with_workers_and_a_store_is_identify(thetahat: Thetahat, logs: Path, tmp_path: Path, quick: list[str]) -> None:
    pytest.importorskip("distributed", reason="workers need the extra dask (pip install 'dask[distributed]')")
    store = tmp_path / "store"
    alone = thetahat("identify", "arm4", logs, "--out", tmp_path / "a", "--json", *quick).data
    for k, options in enumerate((["--workers", 2, "--store", store], ["--store", store])):  # not to one folder: that would be the first answer again
        done = thetahat("identify", "arm4", logs, "--out", tmp_path / f"b{k}", "--json", *options, *quick)
        assert done.code == 0, done.err
        require("estimate", done.data)
        require_same_answer(alone, done.data)
    told = thetahat("history", "--store", store, "--json").data
    require("history", told)
    assert [(run["id"], run["state"], run["robot"], len(run["logs"])) for run in told["runs"]] == [(2, "done", "arm4", 3), (1, "done", "arm4", 3)]
    found = thetahat("diff", 1, 2, "--store", store, "--json").data
    require("diff", found)
    assert found["largest"] == 0.0


@wired
def test_a_bad_shard_is_named_the_rest_kept_and_the_exit_code_3(thetahat: Thetahat, tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "logs", 3)
    wanted = thetahat("identify", "arm4", folder, "--out", tmp_path / "a", "--json", *QUICK).data
    name, said, _ = spoil(folder, "damaged")
    done = thetahat("identify", "arm4", folder, "--out", tmp_path / "b", "--json", "--store", tmp_path / "store", *QUICK)
    one_error(done, 3, name, said, "left out; the answer is of the others")
    require_same_answer(wanted, done.data)
    (run,) = thetahat("history", "--store", tmp_path / "store", "--json").data["runs"]
    assert run["state"] == "done"
    assert [name in failure["message"] for failure in run["failures"]] == [True]


@wired
def test_a_scheduler_that_is_not_there_is_exit_code_6(thetahat: Thetahat, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="workers need the extra dask (pip install 'dask[distributed]')")
    monkeypatch.setattr("thetahat.fleet.workers.PATIENCE", 0.5)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    done = thetahat("identify", "arm4", logs, "--out", tmp_path, "--scheduler", address, "--store", tmp_path / "store")
    one_error(done, 6, address, "cannot be reached")
    (run,) = thetahat("history", "--store", tmp_path / "store", "--json").data["runs"]
    assert (run["state"], address in run["verdict"]) == ("failed", True)


@wired
def test_a_full_disk_is_exit_code_6_and_the_answer_is_there(thetahat: Thetahat, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes, **more: bool) -> None:
        raise StorageError(f"{path} cannot be written: No space left on device; check the room on its disk")

    monkeypatch.setattr("thetahat.fleet.store.write_atomically", full)
    done = thetahat("identify", "arm4", logs, "--out", tmp_path / "out", "--json", "--store", tmp_path / "store", *QUICK)
    one_error(done, 6, "No space left")
    assert done.data["samples"] == 8_400
    assert (tmp_path / "out/estimate.json").is_file()


@wired
@pytest.mark.parametrize("how", ["folder", "database"])
def test_a_new_store_on_a_full_disk_is_done_without(
    thetahat: Thetahat, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    store = tmp_path / "store"
    if how == "folder":
        plain = Path.mkdir

        def full(self: Path, *given: Any, **more: Any) -> None:
            if self == store / "objects":
                raise OSError(errno.ENOSPC, "No space left on device")
            plain(self, *given, **more)

        monkeypatch.setattr(Path, "mkdir", full)
    else:

        def no_room(*_: Any, **__: Any) -> None:
            raise sqlite3.OperationalError("database or disk is full")

        monkeypatch.setattr("thetahat.fleet.store.sqlite3.connect", no_room)
    done = thetahat("identify", "arm4", logs, "--out", tmp_path / "out", "--json", "--store", store, *QUICK)
    one_error(done, 6, "No space left" if how == "folder" else "disk is full")
    assert done.data["samples"] == 8_400
    assert (tmp_path / "out/estimate.json").is_file()


@pytest.mark.parametrize(
    ("options", "said"),
    [((0, None, None), "--workers is 0"), ((2, "tcp://x", None), "exclude|both given"), ((None, None, __file__), "is a file")],
    ids=["none", "both", "file"],
)
def test_options_that_cannot_be_are_said(options: tuple, said: str) -> None:
    with pytest.raises((UsageError, StorageError), match=said):
        scale.asked(*options)


def test_alone_and_with_a_store_a_crew_does_the_same(logs: Path, tmp_path: Path) -> None:
    """What identify calls, without identify."""
    from thetahat.cli.measured import Stream

    answers = []
    for asked in (scale.Scale(), scale.Scale(store=tmp_path / "store")):
        with Progress(quiet=True) as progress, scale.opened(asked, progress) as crew:
            log = crew.read([str(logs)], arm(), columns=None, topic=None, salvage=False)
            span = (0, round(0.7 * log.rows))
            settings = crew.choose(log, arm(), cutoff=None, min_speed=None, span=span)
            stream = Stream(arm(), log.locked, None)
            rows = Rows(log, arm(), settings, span, stream)
            found = crew.information(rows, fitted(arm()))
            stream.require_rows(arm())
            seen: list = []
            test = crew.score(replace(rows, span=(span[1], log.rows)), arm(), arm(), seen=seen.append)
            again = sum(map(len, crew.samples(rows, fitted(arm()), "again")))
            answers.append((found.factors, found.rows, stream.dropped_in_training, stream.period, test.r2, test.rows, again, sum(map(len, seen))))
            crew.conclude()
    for a, b in zip(*answers, strict=True):
        if isinstance(a, tuple):
            assert all(np.allclose(x, y, rtol=0.0, atol=1e-10 * np.abs(x).max()) for x, y in zip(a, b, strict=True))
        else:
            assert np.allclose(a, b, rtol=1e-9) if isinstance(a, np.ndarray) else a == b


@pytest.mark.parametrize("dofs", [(1, 3), pytest.param(None, marks=pytest.mark.slow)], ids=str)
def test_standard_deviations_from_an_excerpt_are_those_of_all_rows(
    dofs: tuple[int, ...] | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import thetahat as th
    from thetahat.cli.measured import Stream
    from thetahat.identify.restrict import view

    folder = folder_of(tmp_path / "logs", 6, seconds=40.0)
    spreads = []
    for excerpt in (1_000_000, 16_000):
        monkeypatch.setattr("thetahat.fleet.gather.EXCERPT", excerpt)
        with Progress(quiet=True) as progress, scale.opened(scale.Scale(store=tmp_path / f"store{excerpt}"), progress) as crew:
            log = crew.read([str(folder)], arm())
            settings = crew.choose(log, arm())
            crew._gatherer._shard = 1_000
            stream = Stream(arm(), log.locked, dofs)
            rows = Rows(log, arm(), settings, None, stream)
            whole = crew.information(rows, fitted(arm()).with_drive(armature=True))
            seen = view(whole, without=("armature",), dofs=dofs)
            estimate = crew.identify(seen, whole, th.LeastSquares(), rows)
            assert np.array_equal(estimate.x_base, th.identify(seen, th.LeastSquares()).x_base)
            spreads.append(np.asarray(estimate.base_std))
    ratio = spreads[1] / spreads[0]
    assert 0.8 < np.median(ratio) < 1.25
    assert np.all((ratio > 0.4) & (ratio < 2.5))
    independent = np.asarray(th.identify(seen, th.LeastSquares()).base_std)
    assert abs(np.median(np.log(independent / spreads[0]))) > 0.2  # which is another thing


def test_what_is_tuned_is_read_sparsely_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from thetahat.data import excerpt
    from thetahat.data.log import read_log
    from thetahat.data.prepare import choose
    from thetahat.identify.tune import Tuned
    from thetahat.model.shapes import Dry, quadratic, stribeck

    for module in ("thetahat.data.excerpt.ROWS", "thetahat.fleet.choice.EXCERPT"):
        monkeypatch.setattr(module, 8_000)
    monkeypatch.setattr(excerpt.excerpt, "__kwdefaults__", {"span": None, "rows": 8_000})
    monkeypatch.setattr("thetahat.data.cutoff.WINDOWS", 6)
    folder = folder_of(tmp_path / "logs", 3, seconds=120.0)
    whole = read_log(folder, arm())
    drive = fitted(arm()).drive.with_dry(Dry(np.full(4, 0.1), np.zeros(4))).with_shape(stribeck(np.full(4, 0.2))).with_shape(quadratic())
    robot = replace(fitted(arm()), drive=drive)
    span, read, calls = (0, 60_000), [], []

    def make(log: Log) -> Tuned:
        calls.append(1)
        read.append(sum(len(chunk) for chunk in log.chunks()))
        settings = choose(log, arm(), span=span)
        assert settings == choose(whole, arm(), span=span)
        mine, theirs = (excerpt.excerpt(each, arm(), span=span).prepared(settings) for each in (log, whole))
        assert np.array_equal(mine.tau, theirs.tau)
        return Tuned(settings, robot, 3.0, "entropic", ("because",), np.ones(4))

    answers = []
    for _ in range(2):
        with Progress(quiet=True) as progress, scale.opened(scale.Scale(store=tmp_path / "store"), progress) as crew:
            log = crew.read([str(folder)], arm())
            answers.append(crew.tuned(log, arm(), fitted(arm()), span, {"cutoff": None, "min_speed": None, "method": "x"}, make))
    assert len(calls) == 1
    assert read[0] < 40_000
    first, again = answers
    assert replace(again.settings, reasoning="") == replace(first.settings, reasoning="")
    assert robot_fingerprint(again.robot, values=True) == robot_fingerprint(robot, values=True)
    assert (again.weight, again.metric, again.reasons, again.rms.tolist()) == (3.0, "entropic", ("because",), [1.0] * 4)


def test_progress_says_samples_per_second_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 2.0, 4.0, 4.0])
    monkeypatch.setattr("thetahat.cli.scale.time.monotonic", lambda: next(clock))
    told: list[tuple] = []

    class Bar:
        stage = staticmethod(lambda *_: None)
        told = staticmethod(lambda: lambda *each: told.append(each))

    tell = scale.Pace(Bar())
    for done in (0, 1_000_000, 2_000_000):
        tell("folding", done, 10_000_000)
    assert told[0] == ("folding", 0, 10_000_000)
    assert told[1:] == [
        ("folding: 500,000 samples/s, 18 s left", 1_000_000, 10_000_000),
        ("folding: 500,000 samples/s, 16 s left", 2_000_000, 10_000_000),
    ]


# -- history ----------------------------------------------------------------------------------------------------------


def answer(robot, information, logs: list[str], *, cutoff: float = 10.0, scaled: float = 1.0) -> dict[str, Any]:
    """An answer as identify gives it, with a parameter planted."""
    import thetahat as th

    found = as_data(th.identify(information, th.LeastSquares()), rows=information.rows, robot=robot)
    provenance = {"robot": robot.name, "robot_sha256": "0" * 64, "version": "x", "settings": {"cutoff": cutoff, "cutoff_reason": "given"}}
    found["provenance"] = {**provenance, "logs": [{"path": path, "sha256": 64 * path[-1]} for path in logs], "test_logs": []}
    found |= {"findings": [], "locked": [], "dropped": {}, "warnings": []}
    found["base_parameters"][0]["value"] *= scaled
    return found


@pytest.fixture(scope="module")
def remembered(tmp_path_factory: pytest.TempPathFactory, logs: Path) -> Path:
    """A store with five runs: two done, one with another robot, one that failed, one whose process is gone."""
    folder = tmp_path_factory.mktemp("memory") / "store"
    information, _, _ = gathered(Gatherer(), logs, arm(), fitted(arm()))
    with Store(folder) as store:
        for k, (owner, period, names, cutoff, scaled) in enumerate(
            [("r1", "", ["a", "b"], 10.0, 1.0), ("r1", "2025", ["a", "b", "c"], 12.0, 1.5), ("r2", "2025", ["d"], 10.0, 1.0)]
        ):
            run = runs.begin(store, arm(), owner=owner, period=period)
            runs.finish(store, run, answer(arm(), information, names, cutoff=cutoff, scaled=scaled), verdict="Good: it is.")
            store.change("UPDATE runs SET started = ? WHERE id = ?", [(1e9 + 86_400 * k, run)])
        failed = runs.begin(store, arm())
        runs.fail(store, failed, "it would not")
        gone = runs.begin(store, arm())
        store.change("UPDATE runs SET process = replace(process, ?, '999999999') WHERE id = ?", [(re.escape(str(_pid())), gone)])
    return folder


def _pid() -> int:
    import os

    return os.getpid()


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ([], [5, 4, 3, 2, 1]),
        (["--limit", 2], [5, 4]),
        (["--robot", "r1"], [2, 1]),
        (["--period", "2025"], [3, 2]),
        (["--method", "least-squares"], [3, 2, 1]),
        (["--method", "prior"], []),
        (["--log", "c"], [2]),
        (["--log", "dddd"], [3]),
        (["--since", "2001-09-10", "--done"], [3, 2]),
        (["--until", "2001-09-10"], [1]),
        (["--since", "2001-09-10T12:00:00+00:00", "--until", "2020-01-01"], [3]),
    ],
    ids=str,
)
def test_history_lists_and_filters(thetahat: Thetahat, remembered: Path, options: list, ids: list[int]) -> None:
    told = thetahat("history", "--store", remembered, "--json", *options).data
    require("history", told)
    assert [run["id"] for run in told["runs"]] == ids
    shown = thetahat("history", "--store", remembered, *options)
    assert shown.code == 0
    assert [int(row) for row in re.findall(r"^(\d+) +20", shown.out, flags=re.MULTILINE)] == ids


def test_history_tells_what_became_of_a_run(thetahat: Thetahat, remembered: Path) -> None:
    told = {run["id"]: run for run in thetahat("history", "--store", remembered, "--json").data["runs"]}
    assert [told[k]["state"] for k in (1, 4, 5)] == ["done", "failed", "interrupted"]
    assert told[4]["verdict"] == "it would not"
    assert told[1]["samples"] == 12_000
    assert told[1]["started"] == "2001-09-09T01:46:40Z"
    assert [log["path"] for log in told[1]["logs"]] == ["a", "b"]


def test_the_store_may_come_from_the_environment(thetahat: Thetahat, remembered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(scale.STORE, str(remembered))
    assert len(thetahat("history", "--json").data["runs"]) == 5


def test_what_is_wrong_with_the_question_is_said(thetahat: Thetahat, remembered: Path, tmp_path: Path) -> None:
    one_error(thetahat("history"), 2, "--store", "THETAHAT_STORE")
    one_error(thetahat("history", "--store", tmp_path / "none"), 6, "is no store")
    assert not (tmp_path / "none").exists()  # asking makes nothing
    one_error(thetahat("history", "--store", remembered, "--since", "yesterday"), 2, "yesterday", "2026-01-31")
    one_error(thetahat("history", "--store", remembered, "--limit", -1), 2, "--limit is -1")
    one_error(thetahat("diff", 1, 77, "--store", remembered), 2, "no run 77", "1 to 5")
    one_error(thetahat("diff", 1, 4, "--store", remembered), 2, "run 4", "has no estimate")
    one_error(thetahat("diff", 1, 2), 2, "no store is given")
    one_error(thetahat("diff", tmp_path / "x.json", 2, "--store", remembered), 6, "neither the number of a run nor an estimate.json")
    (tmp_path / "estimate.json").write_text("{}")
    one_error(thetahat("diff", tmp_path, 2, "--store", remembered), 3, "schema")


# -- diff -------------------------------------------------------------------------------------------------------------


def test_diff_finds_what_was_planted(thetahat: Thetahat, remembered: Path) -> None:
    found = thetahat("diff", 1, 2, "--store", remembered, "--json").data
    require("diff", found)
    first = found["parameters"][0]
    assert first["b"] == 1.5 * first["a"]
    assert first["in_std"] == pytest.approx(0.5 * first["a"] / np.hypot(first["std_a"], first["std_b"]), rel=1e-12)
    assert found["largest"] == abs(first["in_std"])
    assert all(each["in_std"] == 0.0 for each in found["parameters"][1:])
    assert found["settings"] == [{"name": "cutoff", "a": 10.0, "b": 12.0}]
    assert found["logs"] == {"shared": 2, "only_a": [], "only_b": ["c"]}
    shown = thetahat("diff", 1, 2, "--store", remembered, "--limit", 3).out
    assert f"1 of {len(found['parameters'])} parameters changed" in shown
    assert "cutoff" in shown
    assert "2 in both, 0 in A alone, 1 in B alone" in shown


def test_diff_takes_files_and_folders(thetahat: Thetahat, remembered: Path, tmp_path: Path) -> None:
    with Store(remembered) as store:
        (tmp_path / "estimate.json").write_text(json.dumps(runs.estimate(store, 1)))
    for name in (tmp_path, tmp_path / "estimate.json"):
        assert thetahat("diff", name, 2, "--store", remembered, "--json").data["parameters"][0]["in_std"] != 0.0
        assert thetahat("diff", name, name, "--json").data["largest"] == 0.0


def test_parameters_that_one_alone_has_are_named(remembered: Path) -> None:
    with Store(remembered) as store:
        a, b = runs.estimate(store, 1), runs.estimate(store, 1)
    lost = b["base_parameters"].pop(3)["name"]
    b["base_parameters"][0] |= {"value": 5.0, "std": None}
    found = compared(a, b)
    assert (found["only_a"], found["only_b"]) == ([lost], [])
    assert found["parameters"][-1]["in_std"] is None
    assert found["parameters"][-1]["difference"] is not None


def test_a_robots_name_cannot_steer_the_terminal(thetahat: Thetahat, remembered: Path, tmp_path: Path) -> None:
    with Store(tmp_path / "store") as store:
        runs.begin(store, arm(), owner="evil\x1b[2J\nname")
    out = thetahat("history", "--store", tmp_path / "store").out
    assert "\x1b" not in out
    assert "evil" in out
