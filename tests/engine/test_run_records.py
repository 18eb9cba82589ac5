"""A run of `identify --store` in which nothing is new reads no row of any log and answers the same;
whatever is new is noticed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fleet_cases import columns, folder_of, write
from fleet_cli_cases import Thetahat, thetahat  # noqa: F401 (a fixture)

from thetahat import robots
from thetahat.engine import run_records
from thetahat.engine.row_reader import FileRows

QUICK = ["--no-tune", "--json"]


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of logs as they are read for anything but a survey."""
    monkeypatch.setattr("thetahat.engine.cache.SETTLING_TIME", -1.0)
    seen: list[int] = []
    plain = FileRows.read

    def read(self: FileRows, first: int, stop: int) -> Iterator[np.ndarray]:
        for values in plain(self, first, stop):
            seen.append(len(values))
            yield values

    monkeypatch.setattr(FileRows, "read", read)
    return seen


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return folder_of(tmp_path / "logs", 3, seconds=10.0)


def written(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_second_run_with_nothing_new_reads_no_rows_and_answers_the_same(
    thetahat: Thetahat,
    logs: Path,
    tmp_path: Path,
    rows: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = [
        "identify",
        "arm4",
        logs,
        "--out",
        tmp_path / "out",
        "--store",
        tmp_path / "store",
        *QUICK,
    ]
    first = thetahat(*given)
    before = written(tmp_path / "out")
    assert {"estimate.json", "report.html", "arm4_identified.urdf"} <= set(before)
    assert sum(rows) > 6_000
    rows.clear()
    shutil.rmtree(tmp_path / "out")
    again = thetahat(*given)
    assert rows == []
    assert (again.code, again.data) == (0, first.data)
    assert written(tmp_path / "out") == before
    told = thetahat("history", "--store", tmp_path / "store", "--json").data["runs"]
    assert [(run["state"], run["samples"], len(run["logs"])) for run in told] == [
        ("done", first.data["samples"], 3)
    ] * 2
    monkeypatch.setattr(run_records, "program_fingerprint", lambda: "another")
    assert thetahat(*given).code == 0
    assert rows  # another program may answer otherwise


def test_whatever_is_new_is_noticed(
    thetahat: Thetahat, logs: Path, tmp_path: Path, rows: list[int]
) -> None:
    robot, prior = (
        Path(shutil.copy(robots.path("arm4"), tmp_path / f"{name}.urdf"))
        for name in ("robot", "prior")
    )

    def told(*more: Any, out: str = "out") -> bool:
        """Whether rows were read."""
        rows.clear()
        done = thetahat(
            "identify",
            robot,
            logs,
            "--prior",
            prior,
            "--out",
            tmp_path / out,
            "--store",
            tmp_path / "store",
            "--no-report",
            *QUICK,
            *more,
        )
        assert done.code == 0, done.err
        return bool(rows)

    assert told()
    assert not told()
    assert told("--holdout", 0.2)
    assert told("--gravity", "0,0,-9.8")
    assert told(out="elsewhere")  # a robot's file names its meshes from where it lies
    assert not told()
    for path in (robot, prior):
        path.write_text(path.read_text().replace('<mass value="2.', '<mass value="3.', 1) + " ")
        assert told()
        assert not told()
    write(logs / "run001.parquet", columns(7, seconds=10.0))
    assert told()
    write(logs / "run009.parquet", columns(9, seconds=10.0))
    assert told()
    assert not told()


def test_another_mesh_is_another_answer(
    thetahat: Thetahat, logs: Path, tmp_path: Path, rows: list[int]
) -> None:
    """The robot file stays the same; the region of its link does not."""
    robot, mesh = tmp_path / "arm.urdf", tmp_path / "shoulder.obj"
    text = robots.path("arm4").read_text()
    cylinder = '<cylinder radius="0.066" length="0.17"/>'
    assert cylinder in text
    robot.write_text(text.replace(cylinder, '<mesh filename="shoulder.obj"/>', 1))
    given = ["identify", robot, logs, "--out", tmp_path / "out", "--store", tmp_path / "store"]
    sizes = []
    for half in (0.1, 0.1, 0.2):
        corners = [(x, y, z) for x in (-half, half) for y in (-half, half) for z in (-half, half)]
        mesh.write_text("".join(f"v {x} {y} {z}\n" for x, y, z in corners))
        rows.clear()
        done = thetahat(*given, *QUICK, "--no-report")
        assert done.code == 0, done.err
        link = done.data["plausibility"]["links"][0]
        sizes.append((link["size_ratio_file"], bool(rows)))
    assert sizes[0][0] == sizes[1][0] > sizes[2][0]
    assert not sizes[1][1], "from the store"


def test_an_answer_that_is_damaged_is_found_anew_and_that_is_said(
    thetahat: Thetahat, logs: Path, tmp_path: Path, rows: list[int]
) -> None:
    given = [
        "identify",
        "arm4",
        logs,
        "--out",
        tmp_path / "out",
        "--store",
        tmp_path / "store",
        "--no-report",
        *QUICK,
    ]
    first = thetahat(*given).data
    (path,) = (tmp_path / "store/answers").iterdir()
    path.write_bytes(path.read_bytes()[:-5])
    done = thetahat(*given)
    assert "was damaged" in done.err
    assert done.data["base_parameters"] == first["base_parameters"]
    rows.clear()
    assert thetahat(*given).code == 0
    assert rows == []


def test_the_oldest_answers_go_first(
    thetahat: Thetahat, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thetahat.engine.cache.ANSWER_BYTES", 200_000)
    for cutoff in (8.0, 9.0, 10.0, 11.0):
        given = [
            "--out",
            tmp_path / "out",
            "--store",
            tmp_path / "store",
            "--cutoff",
            cutoff,
            "--no-report",
            *QUICK,
        ]
        assert thetahat("identify", "arm4", logs, *given).code == 0
    kept = list((tmp_path / "store/answers").iterdir())
    assert 0 < sum(path.stat().st_size for path in kept) <= 200_000
