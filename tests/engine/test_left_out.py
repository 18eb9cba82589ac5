"""What `identify` with a store or workers leaves out: named, not read again, and the rest of the
work kept, whenever it turns out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fleet_cases import arm, columns, fitted, folder_of, write
from fleet_cli_cases import QUICK, Thetahat, one_error, thetahat  # noqa: F401 (a fixture)
from test_workers import scaled

from thetahat.data.prepare import choose
from thetahat.engine import shard_bookkeeping
from thetahat.engine.reduce import ShardReducer
from thetahat.engine.shard_work import Fold, Preparation
from thetahat.engine.workers import Workers
from thetahat.errors import StorageError

OTHER = {"seconds": 15.0}


def another_arm(path: Path) -> Path:
    """A log of the same joints by name, of an arm with longer and heavier links."""
    return write(
        path,
        columns(
            77,
            robot=replace(arm(), tree=scaled(arm(), 1.6)).with_parameters(2.0 * arm().theta),
            **OTHER,
        ),
    )


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return folder_of(tmp_path / "logs", 5, **OTHER)


def paths(found: dict[str, Any]) -> list[str]:
    return [Path(log["path"]).name for log in found["provenance"]["logs"]]


def when(monkeypatch: pytest.MonkeyPatch, stage: str, act: Callable[[], None]) -> None:
    """Do something as soon as the reducer says that this stage begins."""
    done: list[int] = []
    plain = ShardReducer.__init__

    def init(self: ShardReducer, *given: Any, **more: Any) -> None:
        plain(self, *given, **more)
        progress = self.progress

        def told(what: str, *numbers: int) -> None:
            if what == stage and not done:
                done.append(1)
                act()
            progress(what, *numbers)

        self.progress = told

    monkeypatch.setattr(ShardReducer, "__init__", init)


@pytest.mark.parametrize("options", [[], ["--robust"]], ids=["plain", "robust"])
def test_a_log_of_another_robot_is_left_out_of_everything_that_reads_the_rows_again(
    thetahat: Thetahat,
    logs: Path,
    tmp_path: Path,
    options: list[str],
) -> None:
    another_arm(logs / "run001b.parquet")
    for _ in range(2):  # and once more from the store
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
            *options,
        )
        one_error(
            done, 3, "run001b.parquet", "another robot or payload", "1 log or shard was left out"
        )
        assert paths(done.data) == [f"run00{k}.parquet" for k in range(5)]
        assert done.data["r2"]["test"] > 0.999
        assert (tmp_path / "out/estimate.json").is_file()


def test_a_log_of_another_robot_among_those_held_out_is_named_and_not_scored(
    thetahat: Thetahat, logs: Path, tmp_path: Path
) -> None:
    wanted = thetahat("identify", "arm4", logs, "--out", tmp_path / "a", "--json", *QUICK).data
    another_arm(logs / "run009.parquet")
    done = thetahat(
        "identify",
        "arm4",
        logs,
        "--out",
        tmp_path / "b",
        "--json",
        "--store",
        tmp_path / "store",
        *QUICK,
    )
    one_error(done, 3, "run009.parquet", "another robot or payload")
    assert done.data["r2"]["test"] > 0.999
    assert abs(done.data["r2"]["test"] - wanted["r2"]["test"]) < 1e-3
    assert "run009.parquet" not in paths(done.data)


def test_the_only_log_that_is_held_out_is_scored_but_named(
    thetahat: Thetahat, logs: Path, tmp_path: Path
) -> None:
    other = another_arm(tmp_path / "other.parquet")
    done = thetahat(
        "identify",
        "arm4",
        logs,
        "--test",
        other,
        "--out",
        tmp_path / "b",
        "--json",
        "--store",
        tmp_path / "store",
        *QUICK,
    )
    assert done.code == 0
    for said in (
        "warning: ",
        "other.parquet",
        "another robot or payload",
        "nothing else is held out",
    ):
        assert said in done.err
    assert done.data["r2"]["test"] < 0.8


def test_a_payload_that_is_held_out_is_no_other_robot(
    thetahat: Thetahat, logs: Path, tmp_path: Path
) -> None:
    write(
        logs / "run009.parquet",
        columns(11, robot=arm().with_parameters(1.15 * arm().theta), **OTHER),
    )
    assert (
        thetahat(
            "identify",
            "arm4",
            logs,
            "--out",
            tmp_path / "b",
            "--json",
            "--store",
            tmp_path / "store",
            *QUICK,
        ).code
        == 0
    )


@pytest.mark.parametrize(
    ("report", "stage"),
    [
        ("--report", "reading again"),
        *(("--no-report", stage) for stage in ("folding", "reading again", "scoring")),
        pytest.param("--report", "folding", marks=pytest.mark.slow),
        pytest.param("--report", "scoring", marks=pytest.mark.slow),
    ],
)
def test_a_log_that_vanishes_at_any_stage_is_named_and_the_rest_kept(
    thetahat: Thetahat,
    logs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stage: str,
    report: str,
) -> None:
    name = "run004.parquet" if stage == "scoring" else "run001.parquet"
    if stage == "reading again":
        from thetahat.cli.progress import Progress

        plain = Progress.stage

        def staged(self: Progress, what: str, *more: Any) -> None:
            if what == stage:
                (logs / name).unlink(missing_ok=True)
            plain(self, what, *more)

        monkeypatch.setattr(Progress, "stage", staged)
    else:
        when(monkeypatch, stage, (logs / name).unlink)
    done = thetahat(
        "identify",
        "arm4",
        logs,
        "--out",
        tmp_path / "out",
        "--json",
        "--store",
        tmp_path / "store",
        "--no-tune",
        report,
    )
    one_error(done, 6, name, "left out; the answer is of the others")
    assert done.err.count(name) == 1
    assert done.data["r2"]["train"] > 0.99
    assert done.data["r2"]["test"] > 0.99
    assert all(
        parameter["std"] is None or parameter["std"] > 0.0
        for parameter in done.data["base_parameters"]
    )
    assert name not in paths(done.data)
    (run,) = thetahat("history", "--store", tmp_path / "store", "--json").data["runs"]
    assert (run["state"], [name in each["message"] for each in run["failures"]]) == ("done", [True])


def test_where_nothing_held_out_is_left_there_is_an_estimate_without_a_score(
    thetahat: Thetahat,
    logs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = write(tmp_path / "test.parquet", columns(5, **OTHER))
    when(monkeypatch, "scoring", other.unlink)
    done = thetahat(
        "identify",
        "arm4",
        logs,
        "--test",
        other,
        "--out",
        tmp_path / "out",
        "--json",
        "--store",
        tmp_path / "store",
        *QUICK,
    )
    one_error(done, 6, "test.parquet")
    assert done.data["r2"]["test"] is None
    assert done.data["r2"]["train"] > 0.99


def test_a_log_of_a_period_that_vanishes_is_named_and_the_period_estimated_from_the_others(
    thetahat: Thetahat,
    logs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "fleet.toml").write_text(
        f'robot = "arm4"\n[[robots.a.logs]]\nlog = "{logs}"\nperiod = "spring"\n'
    )
    when(monkeypatch, "estimating", (logs / "run001.parquet").unlink)
    done = thetahat(
        "fleet", tmp_path / "fleet.toml", "--no-tune", "--out", tmp_path / "out", "--json"
    )
    one_error(done, 6, "run001.parquet", "1 robot, period or log was left out")
    assert [period["rows"] for period in done.data["robots"][0]["periods"]] == [4 * 3_000]


class Failing(Workers):
    """Workers that lose one shard, though its file is as it was."""

    def reduce(self, job, tasks, merge, done, **more):
        def run(context, task):
            if task.span[0] == 1_000 and task.item.name.endswith("run001.parquet"):
                raise StorageError("it died")
            return job.run(context, task)

        return super().reduce(replace(job, run=run), tasks, merge, done, **more)


def test_a_shard_that_fails_in_a_file_that_is_there_is_left_out_alone(logs: Path) -> None:
    reducer = ShardReducer(Failing(), rows=500)
    files = reducer.scan(logs, arm())
    work = Fold(Preparation(arm(), choose(files.log, arm())), fitted(arm()))
    found, told = reducer.fold(files, work)
    (failure,) = told.failures
    assert "run001.parquet, rows 1000 to 1499" in failure.name
    assert found.samples == 5 * 3_000 - 500
    assert sum(len(part) for part in reducer.samples(told.files, work, every=True)) == found.samples
    assert [source.path for source in told.files.sources] == [
        source.path for source in files.log.sources
    ]


def test_logs_whose_factors_need_too_much_memory_are_not_reviewed_and_that_is_said(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    another_arm(logs / "run001b.parquet")
    files = ShardReducer().scan(logs, arm())
    work = Fold(Preparation(arm(), choose(files.log, arm())), fitted(arm()))
    _, told = ShardReducer(rows=500).fold(files, work)
    assert len(told.failures) == 1
    assert told.notes == ()
    monkeypatch.setattr(shard_bookkeeping, "BYTES", 1e3)
    _, told = ShardReducer(rows=500).fold(files, work)
    assert told.failures == ()
    assert "6 logs were not compared with each other" in told.notes[0]
