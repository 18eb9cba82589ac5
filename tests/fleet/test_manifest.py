"""`thetahat fleet MANIFEST`: manifests good and bad, periods, the three files it writes, the store,
and what it keeps when something fails.
"""

from __future__ import annotations

import datetime
import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest
import typer
from data_paths import ROOT
from fleet_sim import arm, name_of, planted, run_of, write_fleet

from thetahat import cli
from thetahat.cli import engine_options
from thetahat.cli.exit_status import guarded
from thetahat.cli.fleet import fleet
from thetahat.errors import MalformedInput
from thetahat.fleet import period_estimates
from thetahat.fleet.manifest import read_manifest
from thetahat.fleet.periods import period_times, timeline

jsonschema = pytest.importorskip(
    "jsonschema", reason="jsonschema checks the answers (pip install jsonschema)"
)
FILES = {"fleet.parquet", "fleet.html", "fleet.json"}


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


Thetahat = Callable[..., Done]


@pytest.fixture
def thetahat(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Thetahat:
    """The verb alone, in this process, ended as the program ends."""
    monkeypatch.delenv(engine_options.STORE, raising=False)
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(fleet)

    def call(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["fleet", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended, guarded():
            app()
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return Done(int(ended.value.code or 0), out, err)

    return call


def _write(folder: Path, text: str, name: str = "fleet.toml") -> Path:
    (folder / name).write_text(text)
    return folder / name


def _log(path: Path, *, run: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    polars.DataFrame(
        run_of(arm(), (), run, 2, np.random.default_rng(run), seconds=4.0)
    ).write_parquet(path)
    return path


# -- manifests -------------------------------------------------------------------------------------


def test_toml_and_csv_say_the_same(tmp_path: Path) -> None:
    toml = _write(
        tmp_path,
        'robot = "arm4"\n[robots.a]\nlogs = ["a/*.parquet",'
        ' "s3://bucket/a"]\n[[robots.b.logs]]\nlog = "b.csv"\ndate ='
        ' 2024-03-01\n[[robots.b.logs]]\nlog = "c.csv"\nperiod = "spring"\n',
    )
    table = _write(
        tmp_path,
        "id,robot,log,period,date\na,arm4,a/*.parquet,,\na,arm4,s3://bucket/a,,\nb,arm4,b.csv,,2024-03-01\nb,,c.csv,spring,\n",
        "fleet.csv",
    )
    one, other = read_manifest(toml), read_manifest(table)
    assert one.members == other.members
    assert [member.name for member in one.members] == ["a", "b"]
    assert one.members[0].logs[0].place == str(tmp_path / "a/*.parquet")
    assert one.members[0].logs[1].place == "s3://bucket/a"
    assert one.members[1].logs[0].date == datetime.date(2024, 3, 1)
    assert one.members[1].logs[1].period == "spring"


BAD = {
    "empty": ("", "fleet.toml", "names no robot"),
    "syntax": ("[robots.a]\nrobot = \n", "fleet.toml", "line 2"),
    "unknown key": ('[robots.a]\nrobot = "arm4"\nlogs = "x"\nlegs = 2\n', "fleet.toml", "'legs'"),
    "unknown key above": (
        'robots_ = 1\n[robots.a]\nrobot = "arm4"\nlogs = "x"\n',
        "fleet.toml",
        "'robots_'",
    ),
    "unknown key of a log": (
        '[robots.a]\nrobot = "arm4"\nlogs = [{log = "x", when = "now"}]\n',
        "fleet.toml",
        "'when'",
    ),
    "twice": (
        '[robots.a]\nrobot = "arm4"\nlogs = "x"\n[robots.a]\nlogs = "y"\n',
        "fleet.toml",
        "line 4",
    ),
    "no robot file": ('[robots.a]\nlogs = "x"\n', "fleet.toml", "no robot file"),
    "robot file not there": (
        '[robots.a]\nrobot = "arm5.urdf"\nlogs = "x"\n',
        "fleet.toml",
        "'arm5.urdf'",
    ),
    "robot file a number": ('[robots.a]\nrobot = 4\nlogs = "x"\n', "fleet.toml", "is 4"),
    "no logs": ('[robots.a]\nrobot = "arm4"\n', "fleet.toml", "no logs"),
    "log a number": ('[robots.a]\nrobot = "arm4"\nlogs = [3]\n', "fleet.toml", "is 3"),
    "date": (
        '[robots.a]\nrobot = "arm4"\nlogs = [{log = "x", date = "May"}]\n',
        "fleet.toml",
        "'May'",
    ),
    "a list of robots": ('robots = ["a"]\n', "fleet.toml", "[robots.<id>]"),
    "not text": ("\udcff", "fleet.toml", "UTF-8"),
    "another ending": ("{}", "fleet.json", ".toml or .csv"),
    "csv empty": ("", "fleet.csv", "no column"),
    "csv without robots": ("id,robot,log\n", "fleet.csv", "names no robot"),
    "csv column": ("id,robot,log,colour\n", "fleet.csv", "'colour'"),
    "csv column missing": ("id,robot\na,arm4\n", "fleet.csv", "no column log"),
    "csv fields": ("id,robot,log\na,arm4\n", "fleet.csv", "line 2"),
    "csv id": ("id,robot,log\n,arm4,x\n", "fleet.csv", "line 2"),
    "csv twice": ("id,robot,log\na,arm4,x\nb,arm4,y\na,arm4,z\n", "fleet.csv", "line 4"),
    "csv two files": ("id,robot,log\na,arm4,x\na,arm7,y\n", "fleet.csv", "'arm7'"),
    "csv quote": ('id,robot,log\na,arm4,"x\n', "fleet.csv", "not CSV"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_manifest_is_one_sentence_and_exit_code_3(
    case: str, tmp_path: Path, thetahat: Thetahat
) -> None:
    text, name, said = BAD[case]
    (tmp_path / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    done = thetahat(tmp_path / name, "--out", tmp_path / "out")
    assert done.code == 3, done.err
    assert done.err.count("\n") == 1
    assert said in done.err
    assert name in done.err
    assert done.out == ""
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--level", "0"], 2, "--level"),
        (["--by", "year"], 2, "--by"),
        (["--cutoff", "-1"], 2, "--cutoff"),
        (["--workers", "0"], 2, "--workers"),
    ],
)
def test_options_out_of_range(
    options: list[str], code: int, said: str, tmp_path: Path, thetahat: Thetahat
) -> None:
    manifest = _write(tmp_path, '[robots.a]\nrobot = "arm4"\nlogs = "x"\n')
    done = thetahat(manifest, "--out", tmp_path / "out", *options)
    assert (done.code, done.err.count("\n")) == (code, 1)
    assert said in done.err


def test_a_manifest_that_is_not_there(tmp_path: Path, thetahat: Thetahat) -> None:
    done = thetahat(tmp_path / "none.toml", "--out", tmp_path / "out")
    assert done.code == 6
    assert "none.toml" in done.err


# -- periods ---------------------------------------------------------------------------------------


def _member(tmp_path: Path, logs: str) -> Any:
    return read_manifest(_write(tmp_path, f'[robots.a]\nrobot = "arm4"\nlogs = {logs}\n')).members[
        0
    ]


def test_every_log_is_a_period_by_default_in_the_order_of_the_manifest(tmp_path: Path) -> None:
    for name in ("z.parquet", "late/a.parquet", "late/z.parquet"):
        _log(tmp_path / name)
    found = timeline(_member(tmp_path, '["z.parquet", "late"]'))
    assert [period.label for period in found.periods] == ["z", "a", "z (2)"]
    assert period_times(found.periods).tolist() == [0.0, 1.0, 2.0]


def test_dates_decide_by_day_week_and_month(tmp_path: Path) -> None:
    for name in ("run_2024-03-02.parquet", "20240301-b.parquet", "undated.parquet"):
        _log(tmp_path / name)
    member = _member(
        tmp_path,
        '["run_2024-03-02.parquet", "20240301-b.parquet", {log = "undated.parquet", date ='
        " 2024-04-30}]",
    )
    assert [period.label for period in timeline(member, "day").periods] == [
        "2024-03-01",
        "2024-03-02",
        "2024-04-30",
    ]
    assert [(period.label, len(period.items)) for period in timeline(member, "month").periods] == [
        ("2024-03", 2),
        ("2024-04", 1),
    ]
    assert [period.label for period in timeline(member, "week").periods] == ["2024-W09", "2024-W18"]
    assert period_times(timeline(member, "day").periods).tolist() == [0.0, 1.0, 60.0]


def test_a_log_without_a_date_is_left_out_by_day_and_named(tmp_path: Path) -> None:
    _log(tmp_path / "run_2024-03-02.parquet"), _log(tmp_path / "undated.parquet")
    found = timeline(_member(tmp_path, '["run_2024-03-02.parquet", "undated.parquet"]'), "day")
    assert [period.label for period in found.periods] == ["2024-03-02"]
    assert [failure.exit_code for failure in found.failures] == [3]
    assert "undated" in found.failures[0].sentence


def test_a_log_that_is_not_there_is_named(tmp_path: Path) -> None:
    _log(tmp_path / "a.parquet")
    found = timeline(_member(tmp_path, '["a.parquet", "gone.parquet"]'))
    assert len(found.periods) == 1
    assert [
        (failure.exit_code, "gone.parquet" in failure.sentence) for failure in found.failures
    ] == [(3, True)]


# -- the whole verb --------------------------------------------------------------------------------


def require_schema(answer: dict[str, Any]) -> None:
    schema = json.loads((ROOT / "src/thetahat/schemas/fleet.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    assert [
        f"{list(each.absolute_path)}: {each.message}"
        for each in jsonschema.Draft202012Validator(schema).iter_errors(answer)
    ] == []


def test_table_page_and_answer_then_the_same_from_the_store(
    tmp_path: Path, thetahat: Thetahat, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = tuple(each for each in planted(5, 8, seed=3) if each.kind == "payload")
    manifest = write_fleet(tmp_path / "logs", 5, 8, seed=3, changes=what)
    out, arguments = tmp_path / "out", ("--no-tune", "--store", tmp_path / "store")
    done = thetahat(manifest, "--out", out, *arguments, "--json")
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    require_schema(answer)
    assert answer == json.loads((out / "fleet.json").read_text())
    assert {file.name for file in out.iterdir()} == FILES
    assert answer["summary"] | {"findings": 0} == {
        "robots": 5,
        "periods": 40,
        "samples": 24_000,
        "findings": 0,
        "left_out": 0,
    }

    table = polars.read_parquet(out / "fleet.parquet")
    assert table.columns == [
        "robot",
        "period",
        "parameter",
        "kind",
        "unit",
        "value",
        "std",
        "z_life",
        "z_fleet",
        "r2",
        "rows",
    ]
    assert table["robot"].unique().sort().to_list() == [name_of(k) for k in range(5)]
    names = {
        "viscous_elbow",
        "coulomb_arm_yaw",
        "offset_shoulder_roll",
        "payload_forearm",
        "mass_forearm",
        "mcy_forearm",
    }
    assert names <= set(table["parameter"])
    assert len(table) == 40 * len(answer["robots"][0]["parameters"])
    robot = what[0].robot
    mass = table.filter(
        (polars.col("robot") == robot) & (polars.col("parameter") == "payload_forearm")
    )
    after = np.array([int(label.removeprefix("run")) >= what[0].run for label in mass["period"]])
    heavier = mass["value"].to_numpy()[after].mean() - mass["value"].to_numpy()[~after].mean()
    assert heavier == pytest.approx(what[0].size, abs=0.15)
    first = table.filter((polars.col("robot") == robot) & (polars.col("period") == "run000"))
    assert first["z_life"].is_null().all()

    page = re.sub(r"<script.*?</script>", "", (out / "fleet.html").read_text(), flags=re.DOTALL)
    assert re.findall(r'(?:src|href)="(?!#|data:)', page) == []
    assert all(title in page for title in ("Findings", "Against the fleet", "Lives", "Left out"))

    (out / "fleet.json").unlink()
    _log(tmp_path / "logs" / name_of(0) / "run008.parquet")  # a folder that grew by one
    computed, estimated = [], period_estimates.estimate
    monkeypatch.setattr(
        period_estimates,
        "estimate",
        lambda reducer, recipe, task: (
            computed.append(task.name) or estimated(reducer, recipe, task)
        ),
    )
    again = json.loads(thetahat(manifest, "--out", out, *arguments, "--json").out)
    one, other = (
        [each["value"] for each in found["robots"][1]["parameters"] if each["kind"] != "mass"]
        for found in (answer, again)
    )
    assert one == other  # but for payloads, which are weighed by what all periods together show
    assert again["summary"]["periods"] == 41
    assert computed == [f"{name_of(0)}, run008"]


def test_every_period_is_a_run_that_history_finds_and_diff_compares(
    tmp_path: Path,
    thetahat: Thetahat,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    manifest, store = write_fleet(tmp_path / "logs", 2, 4, seed=4, seconds=4.0), tmp_path / "store"

    def verb(*arguments: object) -> dict[str, Any]:
        monkeypatch.setattr(
            sys, "argv", ["thetahat", *map(str, arguments), "--store", str(store), "--json"]
        )
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert not ended.value.code
        return json.loads(capsys.readouterr().out)

    for _ in range(2):  # an estimate that is remembered is not remembered again
        assert (
            thetahat(manifest, "--out", tmp_path / "out", "--no-tune", "--store", store).code == 0
        )
        runs = verb("history")["runs"]
        assert sorted((run["robot"], run["period"]) for run in runs) == [
            (name_of(k), f"run{p:03d}") for k in range(2) for p in range(4)
        ]
    (run,) = verb("history", "--period", "run002", "--robot", name_of(1))["runs"]
    assert (run["state"], run["method"], run["samples"], run["verdict"][:10]) == (
        "done",
        "least-squares",
        400,
        "Fitted: R²",
    )
    assert [Path(log["path"]).name for log in run["logs"]] == ["run002.parquet"]
    (other,) = verb("history", "--period", "run003", "--robot", name_of(1))["runs"]
    found = verb("diff", run["id"], other["id"])
    schema = json.loads((ROOT / "src/thetahat/schemas/diff.json").read_text(encoding="utf-8"))
    assert [
        each.message for each in jsonschema.Draft202012Validator(schema).iter_errors(found)
    ] == []
    assert found["same_robot"]
    assert 0.0 < found["largest"] < 8.0
    assert found["logs"]["shared"] == 0


def test_a_damaged_entry_is_said(tmp_path: Path, thetahat: Thetahat) -> None:
    manifest, store = write_fleet(tmp_path / "logs", 1, 2, seed=4, seconds=4.0), tmp_path / "store"
    thetahat(manifest, "--out", tmp_path / "out", "--no-tune", "--store", store)
    for path in (store / "entries").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:-3])
    done = thetahat(manifest, "--out", tmp_path / "out", "--no-tune", "--store", store)
    assert done.code == 0
    assert "was damaged" in done.err


@pytest.mark.slow
def test_two_workers_answer_as_one_does(tmp_path: Path, thetahat: Thetahat) -> None:
    pytest.importorskip("distributed", reason="workers need the extra dask")
    manifest = write_fleet(tmp_path / "logs", 2, 5, seed=5, seconds=4.0)
    alone, shared = (
        thetahat(manifest, "--out", tmp_path / "out", "--no-tune", "--json", *more)
        for more in ((), ("--workers", 2))
    )
    assert (alone.code, shared.code) == (0, 0), shared.err
    assert json.loads(alone.out) == json.loads(shared.out)


def test_what_fails_is_named_and_the_rest_kept(tmp_path: Path, thetahat: Thetahat) -> None:
    write_fleet(tmp_path, 2, 2, seed=4, seconds=4.0)
    (tmp_path / name_of(0) / "run001.parquet").write_bytes(b"not a table at all")
    manifest = _write(
        tmp_path,
        f'robot = "arm4"\n[robots.good]\nlogs = "{name_of(1)}"\n[robots.half]\nlogs ='
        f' "{name_of(0)}"\n[robots.gone]\nlogs = "nothing.parquet"\n[robots.thief]\nlogs ='
        f' "{name_of(1)}/run000.parquet"\n',
    )
    done = thetahat(manifest, "--out", tmp_path / "out", "--no-tune", "--json")
    assert done.code == 3
    answer = json.loads(done.out)
    require_schema(answer)
    assert [(robot["id"], len(robot["periods"])) for robot in answer["robots"]] == [
        ("good", 2),
        ("half", 1),
    ]
    for said in ("run001.parquet", "nothing.parquet", "also one of good"):
        assert sum(said in each["sentence"] for each in answer["left_out"]) == 1, said
        assert said in done.err
    assert {file.name for file in (tmp_path / "out").iterdir()} == FILES


def test_nothing_usable_is_one_sentence(tmp_path: Path, thetahat: Thetahat) -> None:
    manifest = _write(tmp_path, 'robot = "arm4"\n[robots.a]\nlogs = "nothing.parquet"\n')
    done = thetahat(manifest, "--out", tmp_path / "out")
    assert (done.code, done.err.count("\n")) == (3, 1)
    assert "nothing.parquet" in done.err
    assert not (tmp_path / "out").exists()


def test_an_answer_is_never_written_over_the_manifest(tmp_path: Path, thetahat: Thetahat) -> None:
    manifest = _write(tmp_path, '[robots.a]\nrobot = "arm4"\nlogs = "x"\n')
    (tmp_path / "fleet.html").symlink_to(manifest)
    assert thetahat(manifest, "--out", tmp_path).code == 2
    assert manifest.read_text().startswith("[robots.a]")


def test_a_manifest_larger_than_any_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thetahat.fleet.manifest.LARGEST", 10)
    with pytest.raises(MalformedInput, match="bytes"):
        read_manifest(_write(tmp_path, '[robots.a]\nrobot = "arm4"\nlogs = "x"\n'))
