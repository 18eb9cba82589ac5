"""Sharded reading of logs in other dialects, units and formats gives what the plain log gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars
import pytest
from fleet_cases import SAME, arm, columns, differ, fitted

from thetahat.data.log import read_files
from thetahat.data.prepare import choose
from thetahat.data.reading import Reading
from thetahat.engine.cache import Store
from thetahat.engine.reduce import ShardReducer
from thetahat.engine.shard_work import Fold, Preparation
from thetahat.identification.information import Information

ROWS = 500  # of a shard


@pytest.fixture(scope="module")
def table() -> dict[str, np.ndarray]:
    return columns(0)


def folded(path: Path, reading: Reading, store: Store | None = None) -> Information:
    reducer = ShardReducer(store=store, rows=ROWS)
    files = reducer.scan([str(path)], arm(), reading)
    work = Fold(Preparation(arm(), choose(files.log, arm(), cutoff=10.0)), fitted(arm()))
    return reducer.fold(files, work)[0]


@pytest.fixture(scope="module")
def plain(table: dict[str, np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> Information:
    path = tmp_path_factory.mktemp("plain") / "log.csv"
    polars.DataFrame(table).write_csv(path)
    return folded(path, Reading())


def semicolons(path: Path, table: dict[str, np.ndarray]) -> tuple[Path, Reading]:
    polars.DataFrame(table).write_csv(path / "log.csv", separator=";", decimal_comma=True)
    return path / "log.csv", Reading()


def headerless(path: Path, table: dict[str, np.ndarray]) -> tuple[Path, Reading]:
    polars.DataFrame(table).write_csv(path / "log.tsv", separator="\t", include_header=False)
    names = list(table)
    joints = len([name for name in names if name.startswith("q.")])
    parts = [f"t={names.index('t') + 1}"]
    for kind in ("q", "dq", "tau"):
        at = [k + 1 for k, name in enumerate(names) if name.startswith(f"{kind}.")]
        if at:
            assert len(at) == joints
            parts.append(f"{kind}={'+'.join(map(str, at))}")
    return path / "log.tsv", Reading(",".join(parts))


def bad_rows(path: Path, table: dict[str, np.ndarray]) -> tuple[Path, Reading]:
    polars.DataFrame(table).write_csv(path / "log.csv")
    lines = (path / "log.csv").read_text().splitlines()
    for at in (1, 700, 701, 2500):
        lines.insert(at, "broken")
    (path / "log.csv").write_text("\n".join(lines) + "\n")
    return path / "log.csv", Reading(skip_bad_rows=True)


def feather(path: Path, table: dict[str, np.ndarray]) -> tuple[Path, Reading]:
    polars.DataFrame(table).write_ipc(path / "log.feather")
    return path / "log.feather", Reading()


CASES: dict[str, Callable[[Path, dict[str, np.ndarray]], tuple[Path, Reading]]] = {
    "semicolons": semicolons,
    "headerless": headerless,
    "bad rows": bad_rows,
    "feather": feather,
}


@pytest.mark.parametrize("case", CASES)
def test_shards_of_other_inputs(
    tmp_path: Path, table: dict[str, np.ndarray], plain: Information, case: str
) -> None:
    path, reading = CASES[case](tmp_path, table)
    assert differ(folded(path, reading), plain) < SAME
    with Store(tmp_path / "store") as store:
        assert differ(folded(path, reading, store), plain) < SAME
        assert differ(folded(path, reading, store), plain) < SAME


def test_units_reach_the_shards(
    tmp_path: Path, table: dict[str, np.ndarray], plain: Information
) -> None:
    scaled = {
        name: array * (1000.0 if name == "t" or name.startswith("tau.") else 1.0)
        for name, array in table.items()
    }
    polars.DataFrame(scaled).write_parquet(tmp_path / "log.parquet")
    reading = Reading(units="t=ms,tau=mNm")
    assert differ(folded(tmp_path / "log.parquet", reading), plain) < SAME
    one = read_files(tmp_path / "log.parquet", arm(), reading)
    np.testing.assert_allclose(one.read()[0].t, table["t"][: one.runs[0].rows], rtol=1e-12)
