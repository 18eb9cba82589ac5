"""`identify --workers --store`: the answer of one pass, and every trouble in one sentence with its
exit code.
"""

from __future__ import annotations

import errno
import inspect
import socket
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fleet_cases import arm, fitted, folder_of, spoil
from fleet_cli_cases import (  # noqa: F401 (fixtures)
    QUICK,
    Thetahat,
    logs,
    one_error,
    require,
    require_same_answer,
    thetahat,
)

from thetahat.cli import engine_options
from thetahat.cli.identify import identify
from thetahat.cli.progress import Progress
from thetahat.data.joint_selection import JointSelection
from thetahat.data.log import Log
from thetahat.engine.fingerprint import robot_fingerprint
from thetahat.engine.open_engine import EngineOptions, RateReporter, open_engine
from thetahat.engine.protocol import Completion, Rows, Tuning
from thetahat.engine.row_reader import Reading
from thetahat.errors import StorageError, UsageError

wired = pytest.mark.skipif(
    "workers" not in inspect.signature(identify).parameters,
    reason="identify does not take --workers and --store yet",
)


# -- identify --------------------------------------------------------------------------------------


@wired
@pytest.mark.parametrize(
    "quick", [QUICK, pytest.param([], marks=pytest.mark.slow)], ids=["quick", "tuned"]
)
def test_identify_with_workers_and_a_store_is_identify(
    thetahat: Thetahat, logs: Path, tmp_path: Path, quick: list[str]
) -> None:
    pytest.importorskip(
        "distributed", reason="workers need the extra dask (pip install 'dask[distributed]')"
    )
    store = tmp_path / "store"
    alone = thetahat("identify", "arm4", logs, "--out", tmp_path / "a", "--json", *quick).data
    for k, options in enumerate(
        (["--workers", 2, "--store", store], ["--store", store])
    ):  # not to one folder: that would be the first answer again
        done = thetahat(
            "identify", "arm4", logs, "--out", tmp_path / f"b{k}", "--json", *options, *quick
        )
        assert done.code == 0, done.err
        require("estimate", done.data)
        require_same_answer(alone, done.data)
    told = thetahat("history", "--store", store, "--json").data
    require("history", told)
    assert [(run["id"], run["state"], run["robot"], len(run["logs"])) for run in told["runs"]] == [
        (2, "done", "arm4", 3),
        (1, "done", "arm4", 3),
    ]
    found = thetahat("diff", 1, 2, "--store", store, "--json").data
    require("diff", found)
    assert found["largest"] == 0.0


@wired
def test_a_bad_shard_is_named_the_rest_kept_and_the_exit_code_3(
    thetahat: Thetahat, tmp_path: Path
) -> None:
    folder = folder_of(tmp_path / "logs", 3)
    wanted = thetahat("identify", "arm4", folder, "--out", tmp_path / "a", "--json", *QUICK).data
    name, said, _ = spoil(folder, "damaged")
    done = thetahat(
        "identify",
        "arm4",
        folder,
        "--out",
        tmp_path / "b",
        "--json",
        "--store",
        tmp_path / "store",
        *QUICK,
    )
    one_error(done, 3, name, said, "left out; the answer is of the others")
    require_same_answer(wanted, done.data)
    (run,) = thetahat("history", "--store", tmp_path / "store", "--json").data["runs"]
    assert run["state"] == "done"
    assert [name in failure["message"] for failure in run["failures"]] == [True]


@wired
def test_a_scheduler_that_is_not_there_is_exit_code_6(
    thetahat: Thetahat, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(
        "distributed", reason="workers need the extra dask (pip install 'dask[distributed]')"
    )
    monkeypatch.setattr("thetahat.engine.workers.PATIENCE", 0.5)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    done = thetahat(
        "identify",
        "arm4",
        logs,
        "--out",
        tmp_path,
        "--scheduler",
        address,
        "--store",
        tmp_path / "store",
    )
    one_error(done, 6, address, "cannot be reached")
    (run,) = thetahat("history", "--store", tmp_path / "store", "--json").data["runs"]
    assert (run["state"], address in run["verdict"]) == ("failed", True)


@wired
def test_a_full_disk_is_exit_code_6_and_the_answer_is_there(
    thetahat: Thetahat, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes, **more: bool) -> None:
        raise StorageError(
            f"{path} cannot be written: No space left on device; check the room on its disk"
        )

    monkeypatch.setattr("thetahat.engine.cache.write_atomically", full)
    done = thetahat(
        "identify",
        "arm4",
        logs,
        "--out",
        tmp_path / "out",
        "--json",
        "--store",
        tmp_path / "store",
        *QUICK,
    )
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
            if self == store / "entries":
                raise OSError(errno.ENOSPC, "No space left on device")
            plain(self, *given, **more)

        monkeypatch.setattr(Path, "mkdir", full)
    else:

        def no_room(*_: Any, **__: Any) -> None:
            raise sqlite3.OperationalError("database or disk is full")

        monkeypatch.setattr("thetahat.engine.cache.sqlite3.connect", no_room)
    done = thetahat(
        "identify", "arm4", logs, "--out", tmp_path / "out", "--json", "--store", store, *QUICK
    )
    one_error(done, 6, "No space left" if how == "folder" else "disk is full")
    assert done.data["samples"] == 8_400
    assert (tmp_path / "out/estimate.json").is_file()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((0, None, None), "--workers is 0"),
        ((2, "tcp://x", None), "exclude|both given"),
        ((None, None, __file__), "is a file"),
    ],
    ids=["none", "both", "file"],
)
def test_options_that_cannot_be_are_said(options: tuple, said: str) -> None:
    with pytest.raises((UsageError, StorageError), match=said):
        engine_options.engine_options(*options)


def test_both_engines_do_the_same(logs: Path, tmp_path: Path) -> None:
    """What identify calls, without identify."""
    answers = []
    for options in (EngineOptions(), EngineOptions(store=tmp_path / "store")):
        with open_engine(options) as engine:
            log = engine.read([str(logs)], arm(), Reading())
            span = (0, round(0.7 * log.rows))
            settings = engine.choose_filter(log, arm(), cutoff=None, min_speed=None, span=span)
            rows = Rows(log, settings, span, JointSelection(arm(), log.locked))
            fold = engine.fold(rows, fitted(arm()))
            fold.counts.require_rows(arm())
            seen: list = []
            test = engine.score(
                replace(rows, span=(span[1], log.rows)), arm(), nominal=arm(), watch=seen.append
            )
            again = sum(map(len, engine.samples(rows, fitted(arm()), "again")))
            answers.append(
                (
                    fold.information.factors,
                    fold.information.rows,
                    fold.counts.dropped,
                    fold.period,
                    test.r2,
                    test.rows,
                    again,
                    sum(map(len, seen)),
                )
            )
            assert engine.completion == Completion()
    for a, b in zip(*answers, strict=True):
        if isinstance(a, tuple):
            assert all(
                np.allclose(x, y, rtol=0.0, atol=1e-10 * np.abs(x).max())
                for x, y in zip(a, b, strict=True)
            )
        else:
            assert np.allclose(a, b, rtol=1e-9) if isinstance(a, np.ndarray) else a == b


@pytest.mark.parametrize("dofs", [(1, 3), pytest.param(None, marks=pytest.mark.slow)], ids=str)
def test_standard_deviations_from_an_excerpt_are_those_of_all_rows(
    dofs: tuple[int, ...] | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:

    import thetahat as th
    from thetahat.identification.submodel import view

    folder = folder_of(tmp_path / "logs", 6, seconds=40.0)
    spreads = []
    for excerpt in (1_000_000, 16_000):
        monkeypatch.setattr("thetahat.engine.reduce.EXCERPT", excerpt)
        with (
            Progress(quiet=True) as progress,
            open_engine(EngineOptions(store=tmp_path / f"store{excerpt}"), progress) as engine,
        ):
            log = engine.read([str(folder)], arm(), Reading())
            settings = engine.choose_filter(log, arm(), cutoff=None, min_speed=None, span=None)
            engine._reducer._shard = 1_000
            rows = Rows(log, settings, None, JointSelection(arm(), log.locked, dofs))
            whole = engine.fold(rows, fitted(arm()).with_drive(armature=True)).information
            seen = view(whole, without=("armature",), dofs=dofs)
            estimate = engine.solve(seen, whole, th.LeastSquares(), rows)
            assert np.array_equal(estimate.x_base, th.solve(seen, th.LeastSquares()).x_base)
            spreads.append(np.asarray(estimate.base_std))
    ratio = spreads[1] / spreads[0]
    assert 0.8 < np.median(ratio) < 1.25
    assert np.all((ratio > 0.4) & (ratio < 2.5))
    independent = np.asarray(th.solve(seen, th.LeastSquares()).base_std)
    assert abs(np.median(np.log(independent / spreads[0]))) > 0.2  # which is another thing


def test_what_is_tuned_is_read_sparsely_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from thetahat.data import subsample
    from thetahat.data.log import read_log
    from thetahat.data.prepare import choose
    from thetahat.identification.tuning.tune import Tuned
    from thetahat.model.friction_terms import FrictionDirection, quadratic, stribeck

    for module in ("thetahat.data.subsample.ROWS", "thetahat.engine.tuning_cache.EXCERPT"):
        monkeypatch.setattr(module, 8_000)
    monkeypatch.setattr(subsample.subsample, "__kwdefaults__", {"span": None, "rows": 8_000})
    monkeypatch.setattr("thetahat.data.cutoff.WINDOWS", 6)
    folder = folder_of(tmp_path / "logs", 3, seconds=120.0)
    whole = read_log(folder, arm())
    drive = (
        fitted(arm())
        .drive.with_dry(FrictionDirection(np.full(4, 0.1), np.zeros(4)))
        .with_extra_term(stribeck(np.full(4, 0.2)))
        .with_extra_term(quadratic())
    )
    robot = replace(fitted(arm()), drive=drive)
    span, read, calls = (0, 60_000), [], []

    def make(log: Log) -> Tuned:
        calls.append(1)
        read.append(sum(len(chunk) for chunk in log.chunks()))
        settings = choose(log, arm(), span=span)
        assert settings == choose(whole, arm(), span=span)
        mine, theirs = (
            subsample.subsample(each, arm(), span=span).prepared(settings) for each in (log, whole)
        )
        assert np.array_equal(mine.tau, theirs.tau)
        return Tuned(settings, robot, 3.0, "entropic", ("because",), np.ones(4))

    answers = []
    for _ in range(2):
        with (
            Progress(quiet=True) as progress,
            open_engine(EngineOptions(store=tmp_path / "store"), progress) as engine,
        ):
            log = engine.read([str(folder)], arm(), Reading())
            answers.append(
                engine.tune(
                    log,
                    Tuning(
                        arm(),
                        fitted(arm()),
                        span,
                        {"cutoff": None, "min_speed": None, "method": "x"},
                        make,
                    ),
                )
            )
    assert len(calls) == 1
    assert read[0] < 40_000
    first, again = answers
    assert replace(again.settings, reasoning="") == replace(first.settings, reasoning="")
    assert robot_fingerprint(again.robot, values=True) == robot_fingerprint(robot, values=True)
    assert (again.weight, again.metric, again.reasons, again.rms.tolist()) == (
        3.0,
        "entropic",
        ("because",),
        [1.0] * 4,
    )


def test_progress_says_samples_per_second_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 2.0, 4.0, 4.0])
    monkeypatch.setattr("thetahat.engine.open_engine.time.monotonic", lambda: next(clock))
    told: list[tuple] = []

    class Bar:
        stage = staticmethod(lambda *_: None)
        update = staticmethod(lambda *each: told.append(each))

    tell = RateReporter(Bar())
    for done in (0, 1_000_000, 2_000_000):
        tell("folding", done, 10_000_000)
    assert told[0] == ("folding", 0, 10_000_000)
    assert told[1:] == [
        ("folding: 500,000 samples/s, 18 s left", 1_000_000, 10_000_000),
        ("folding: 500,000 samples/s, 16 s left", 2_000_000, 10_000_000),
    ]
