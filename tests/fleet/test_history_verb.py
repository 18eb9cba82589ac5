"""`thetahat history` and `thetahat diff`: the runs of a store listed, filtered and compared."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fleet_cases import arm, fitted, gathered
from fleet_cli_cases import Thetahat, logs, one_error, require, thetahat  # noqa: F401 (fixtures)

from thetahat.cli import engine_options
from thetahat.engine import run_records
from thetahat.engine.cache import Store
from thetahat.engine.reduce import ShardReducer
from thetahat.fleet.estimate_diff import compare_estimates
from thetahat.identification.estimate_json import as_data

# -- history ---------------------------------------------------------------------------------------


def answer(
    robot, information, logs: list[str], *, cutoff: float = 10.0, scaled: float = 1.0
) -> dict[str, Any]:
    """An answer as identify gives it, with a parameter planted."""
    import thetahat as th

    found = as_data(th.solve(information, th.LeastSquares()), rows=information.rows, robot=robot)
    provenance = {
        "robot": robot.name,
        "robot_sha256": "0" * 64,
        "version": "x",
        "settings": {"cutoff": cutoff, "cutoff_reason": "given"},
    }
    found["provenance"] = {
        **provenance,
        "logs": [{"path": path, "sha256": 64 * path[-1]} for path in logs],
        "test_logs": [],
    }
    found |= {"findings": [], "locked": [], "dropped": {}, "warnings": []}
    found["base_parameters"][0]["value"] *= scaled
    return found


@pytest.fixture(scope="module")
def remembered(tmp_path_factory: pytest.TempPathFactory, logs: Path) -> Path:
    """A store with five runs: two done, one with another robot, one that failed, one whose process
    is gone.
    """
    folder = tmp_path_factory.mktemp("memory") / "store"
    information, _, _ = gathered(ShardReducer(), logs, arm(), fitted(arm()))
    with Store(folder) as store:
        for k, (owner, period, names, cutoff, scaled) in enumerate(
            [
                ("r1", "", ["a", "b"], 10.0, 1.0),
                ("r1", "2025", ["a", "b", "c"], 12.0, 1.5),
                ("r2", "2025", ["d"], 10.0, 1.0),
            ]
        ):
            run = run_records.begin_run(store, arm(), owner=owner, period=period)
            run_records.finish_run(
                store,
                run,
                answer(arm(), information, names, cutoff=cutoff, scaled=scaled),
                verdict="Good: it is.",
            )
            store.change("UPDATE runs SET started = ? WHERE id = ?", [(1e9 + 86_400 * k, run)])
        failed = run_records.begin_run(store, arm())
        run_records.fail_run(store, failed, "it would not")
        gone = run_records.begin_run(store, arm())
        store.change(
            "UPDATE runs SET process = replace(process, ?, '999999999') WHERE id = ?",
            [(re.escape(str(_pid())), gone)],
        )
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
def test_history_lists_and_filters(
    thetahat: Thetahat, remembered: Path, options: list, ids: list[int]
) -> None:
    told = thetahat("history", "--store", remembered, "--json", *options).data
    require("history", told)
    assert [run["id"] for run in told["runs"]] == ids
    shown = thetahat("history", "--store", remembered, *options)
    assert shown.code == 0
    assert [int(row) for row in re.findall(r"^(\d+) +20", shown.out, flags=re.MULTILINE)] == ids


def test_history_tells_what_became_of_a_run(thetahat: Thetahat, remembered: Path) -> None:
    told = {
        run["id"]: run for run in thetahat("history", "--store", remembered, "--json").data["runs"]
    }
    assert [told[k]["state"] for k in (1, 4, 5)] == ["done", "failed", "interrupted"]
    assert told[4]["verdict"] == "it would not"
    assert told[1]["samples"] == 12_000
    assert told[1]["started"] == "2001-09-09T01:46:40Z"
    assert [log["path"] for log in told[1]["logs"]] == ["a", "b"]


def test_the_store_may_come_from_the_environment(
    thetahat: Thetahat, remembered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(engine_options.STORE, str(remembered))
    assert len(thetahat("history", "--json").data["runs"]) == 5


def test_what_is_wrong_with_the_question_is_said(
    thetahat: Thetahat, remembered: Path, tmp_path: Path
) -> None:
    one_error(thetahat("history"), 2, "--store", "THETAHAT_STORE")
    one_error(thetahat("history", "--store", tmp_path / "none"), 6, "is no store")
    assert not (tmp_path / "none").exists()  # asking makes nothing
    one_error(
        thetahat("history", "--store", remembered, "--since", "yesterday"),
        2,
        "yesterday",
        "2026-01-31",
    )
    one_error(thetahat("history", "--store", remembered, "--limit", -1), 2, "--limit is -1")
    one_error(thetahat("diff", 1, 77, "--store", remembered), 2, "no run 77", "1 to 5")
    one_error(thetahat("diff", 1, 4, "--store", remembered), 2, "run 4", "has no estimate")
    one_error(thetahat("diff", 1, 2), 2, "no store is given")
    one_error(
        thetahat("diff", tmp_path / "x.json", 2, "--store", remembered),
        6,
        "neither the number of a run nor an estimate.json",
    )
    (tmp_path / "estimate.json").write_text("{}")
    one_error(thetahat("diff", tmp_path, 2, "--store", remembered), 3, "schema")


# -- diff ------------------------------------------------------------------------------------------


def test_diff_finds_what_was_planted(thetahat: Thetahat, remembered: Path) -> None:
    found = thetahat("diff", 1, 2, "--store", remembered, "--json").data
    require("diff", found)
    first = found["parameters"][0]
    assert first["b"] == 1.5 * first["a"]
    assert first["in_std"] == pytest.approx(
        0.5 * first["a"] / np.hypot(first["std_a"], first["std_b"]), rel=1e-12
    )
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
        (tmp_path / "estimate.json").write_text(json.dumps(run_records.load_estimate(store, 1)))
    for name in (tmp_path, tmp_path / "estimate.json"):
        assert (
            thetahat("diff", name, 2, "--store", remembered, "--json").data["parameters"][0][
                "in_std"
            ]
            != 0.0
        )
        assert thetahat("diff", name, name, "--json").data["largest"] == 0.0


def test_parameters_that_one_alone_has_are_named(remembered: Path) -> None:
    with Store(remembered) as store:
        a, b = run_records.load_estimate(store, 1), run_records.load_estimate(store, 1)
    lost = b["base_parameters"].pop(3)["name"]
    b["base_parameters"][0] |= {"value": 5.0, "std": None}
    found = compare_estimates(a, b)
    assert (found["only_a"], found["only_b"]) == ([lost], [])
    assert found["parameters"][-1]["in_std"] is None
    assert found["parameters"][-1]["difference"] is not None


def test_a_robots_name_cannot_steer_the_terminal(
    thetahat: Thetahat, remembered: Path, tmp_path: Path
) -> None:
    with Store(tmp_path / "store") as store:
        run_records.begin_run(store, arm(), owner="evil\x1b[2J\nname")
    out = thetahat("history", "--store", tmp_path / "store").out
    assert "\x1b" not in out
    assert "evil" in out
