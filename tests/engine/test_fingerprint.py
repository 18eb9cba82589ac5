"""Entries are keyed by DATA_FORMAT: what makes preparing or folding yield other numbers must raise
it, or a store mixes old with new.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fleet_cases import arm, columns, fitted, gaps, jittered, spoiled, wrapped, write

from thetahat.data.prepare import Settings
from thetahat.engine.fingerprint import DATA_FORMAT
from thetahat.engine.reduce import ShardReducer
from thetahat.engine.shard_work import Fold, Preparation
from thetahat.identification.parameter_columns import Columns
from thetahat.model.friction_terms import FrictionDirection

SETTINGS = Settings(
    cutoff=10.0,
    min_speed=(0.08, 0.07, 0.08, 0.05),
    torque_cutoff=8.0,
    delay=0.003,
    spikes=(0.06, 0.08, 0.09, 0.08, 0.19, 0.2, 0.22, 0.13, 1.5, 1.7, 27.0, 1.1),
)
RELATIVE = (
    2e-6  # processors and BLAS differ by 1e-10 at most; what is written down has seven digits
)

# By DATA_FORMAT: torques by what became of them per joint, and sizes of columns of [Y | u] over all
# joints, which no rotation of a factor changes.
GOLDEN: dict[int, tuple[list[list[int]], list[float]]] = {
    1: (
        [
            [2332, 137, 437, 0, 474, 0, 0, 0, 0, 0, 0],
            [2169, 109, 480, 0, 622, 0, 0, 0, 0, 0, 0],
            [2618, 178, 480, 104, 0, 0, 0, 0, 0, 0, 0],
            [2670, 230, 480, 0, 0, 0, 0, 0, 0, 0, 0],
        ],
        [
            158.06196,
            227.70973,
            446.58594,
            237.6375,
            286.6719,
            174.56524,
            260.58733,
            366.34689,
            191.36464,
            91.966828,
            473.7594,
            251.84861,
            435.36395,
            508.77093,
            439.40115,
            527.91583,
            153.52298,
            260.06062,
            566.87335,
            394.78201,
            516.57162,
            579.75066,
            593.57142,
            283.2279,
            49.648444,
            46.560883,
            58.686207,
            35.923885,
            47.990024,
            46.088176,
            51.024659,
            51.208232,
            48.290786,
            46.572524,
            51.166395,
            51.672043,
            1394.4499,
        ],
    )
}


def found(tmp_path: Path) -> tuple[list[list[int]], np.ndarray]:
    """A fold of a log with jitter, gaps, wraps, a saturated and a dead torque, spikes, standstill,
    a delay and dry friction over a zone.
    """
    path = write(tmp_path / "log.parquet", jittered(gaps(spoiled(wrapped(columns(seconds=18.0))))))
    reducer = ShardReducer(rows=900)
    files = reducer.scan(path, arm())
    fit = replace(
        fitted(arm()),
        drive=fitted(arm()).drive.with_dry(FrictionDirection(np.full(4, 0.05), np.zeros(4))),
    )
    information, told = reducer.fold(files, Fold(Preparation(arm(), SETTINGS), fit))
    stacked = information.stacked()
    sizes = np.linalg.norm(stacked, axis=0)
    assert len(sizes) == len(information.base) + 1
    assert Columns(fit).count > len(information.base)
    return told.result.counts.tolist(), sizes


def test_other_numbers_for_the_same_log_need_another_format(tmp_path: Path) -> None:
    assert DATA_FORMAT in GOLDEN, (
        f"DATA_FORMAT was raised to {DATA_FORMAT}: write the numbers of this fold into GOLDEN"
        " beside it"
    )
    counts, sizes = GOLDEN[DATA_FORMAT]
    mine, theirs = found(tmp_path)
    advice = (
        "preparing or folding yields other numbers than before: raise DATA_FORMAT in"
        " thetahat/engine/fingerprint.py, so that stores compute anew"
    )
    assert mine == counts, advice
    assert theirs == pytest.approx(sizes, rel=RELATIVE), advice
