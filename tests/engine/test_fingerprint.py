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
    2: (
        [
            [2392, 137, 377, 0, 474, 0, 0, 0, 0, 0, 0],
            [2229, 109, 420, 0, 622, 0, 0, 0, 0, 0, 0],
            [2678, 178, 420, 104, 0, 0, 0, 0, 0, 0, 0],
            [2730, 230, 420, 0, 0, 0, 0, 0, 0, 0, 0],
        ],
        [
            158.35078,
            228.30474,
            452.90372,
            239.08866,
            287.6419,
            175.79157,
            265.56028,
            370.6315,
            192.10454,
            92.4607,
            475.92292,
            253.06387,
            440.46509,
            510.62513,
            440.76619,
            535.02781,
            154.34408,
            261.29301,
            570.05984,
            396.52046,
            522.22059,
            581.43172,
            602.68894,
            284.26562,
            49.956342,
            46.938802,
            59.103601,
            36.411991,
            48.609605,
            46.747162,
            51.60564,
            51.790762,
            48.908077,
            47.212287,
            51.749396,
            52.249402,
            1408.9665,
        ],
    ),
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
