"""Logs of other robots among those of one: who is named, and who is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from fleet_cases import (
    arm,
    columns,
    fitted,
    folder_of,
    gathered,
    quicker,
    write,
)

from thetahat.data.prepare import choose
from thetahat.engine.foreign_logs import TIMES, measure_misfit
from thetahat.engine.reduce import ShardReducer
from thetahat.engine.shard_work import Fold, Preparation

ROWS = 500  # of a shard


def test_logs_of_one_robot_are_no_strangers_to_each_other(tmp_path: Path) -> None:
    """Not the slow one, not the one that alone moves a joint, not worn gears, not a few
    kilograms.
    """
    folder = tmp_path / "logs"
    folder.mkdir()
    for k in range(4):
        table = columns(k)
        still = {
            name: np.zeros_like(array)
            for name, array in table.items()
            if name in ("q.elbow", "dq.elbow")
        }
        write(folder / f"{k}.parquet", table | still)
    write(folder / "moves.parquet", columns(8))
    write(folder / "slow.parquet", quicker(columns(9), 0.2))
    worn = columns(10)
    worn |= {
        name: array + 2.0 * np.sign(worn[f"dq{name[3:]}"])
        for name, array in worn.items()
        if name.startswith("tau.")
    }
    write(folder / "worn.parquet", worn)
    theta = arm().theta.copy()
    theta[-1] += 0.5  # [kg] on the last link
    write(folder / "load.parquet", columns(11, robot=arm().with_parameters(theta)))
    files = ShardReducer().scan(folder, arm())
    _, told = ShardReducer(rows=ROWS).fold(
        files, Fold(Preparation(arm(), choose(files.log, arm())), fitted(arm()))
    )
    assert told.failures == ()


def named_strangers(folder: Path) -> list[str]:
    files = ShardReducer().scan(folder, arm())
    _, told = ShardReducer(rows=ROWS).fold(
        files, Fold(Preparation(arm(), choose(files.log, arm())), fitted(arm()))
    )
    return [Path(failure.name).stem for failure in told.failures]


def test_a_few_kilograms_are_no_other_robot(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "logs", 6)
    for name, factor, wanted in (("load", 1.15, []), ("other", 3.0, ["other"])):
        write(
            folder / f"{name}.parquet",
            columns(11, robot=arm().with_parameters(factor * arm().theta)),
        )
        assert named_strangers(folder) == wanted
        (folder / f"{name}.parquet").unlink()


def test_no_one_is_judged_by_what_others_hardly_know(tmp_path: Path) -> None:
    """Loud torques of the others: their parameters leave a hundred times what its own do, and
    chance explains it.
    """
    loud, clean = columns(1), columns(2)
    rng = np.random.default_rng(0)
    loud |= {
        name: array + rng.normal(0.0, 80.0, len(array))
        for name, array in loud.items()
        if name.startswith("tau.")
    }
    others, own = (
        gathered(ShardReducer(), write(tmp_path / f"{k}.parquet", table), arm(), fitted(arm()))[0]
        for k, table in enumerate((loud, clean))
    )
    left, least = (
        float(np.sum(own.residual_norms(each.solution.x) ** 2)) for each in (others, own)
    )
    assert left > TIMES * least
    assert measure_misfit(own, others).ratio < 10.0


def test_two_logs_that_contradict_each_other_are_both_kept(tmp_path: Path) -> None:
    for k, theta in enumerate((1.0, 3.0)):
        write(
            tmp_path / f"{k}.parquet", columns(k, robot=arm().with_parameters(theta * arm().theta))
        )
    files = ShardReducer().scan(tmp_path, arm())
    _, told = ShardReducer().fold(
        files, Fold(Preparation(arm(), choose(files.log, arm())), fitted(arm()))
    )
    assert told.failures == ()
