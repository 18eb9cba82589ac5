"""Drive gains that are not known exactly widen intervals, by as much as wrong gains move them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from benchmarks.coverage import CELLS, log_columns, robot_file, truth

import thetahat as th

SECONDS = 8.0
STD = 0.02  # of the gain
STEP = 1e-3 * STD
JOINT = 1


@cache
def columns() -> dict[str, np.ndarray]:
    return log_columns("arm4", CELLS["white"], 3000, SECONDS)


def gains_file(path: Path, values: list[float], std: list[float | None]) -> Path:
    names = list(truth("arm4").joint_names)
    data = {"schema": "thetahat/drive/1", "joints": names, "gains": {"values": values, "std": std}}
    path.write_text(json.dumps(data))
    return path


def identified(path: Path, method: str, **settings: object) -> th.Estimate:
    fixed = {"report": False, "tune": False, "armature": False, "cutoff": 10.0}
    chosen = th.IdentifySettings(gains=path, method=method, **fixed, **settings)  # type: ignore[arg-type]
    return th.identify(robot_file("arm4"), columns(), settings=chosen).estimate


@pytest.mark.parametrize("method", ["least-squares", "consistent"])
def test_variance_grows_by_what_a_gain_off_by_its_deviation_does(
    tmp_path: Path, method: str
) -> None:
    exact = gains_file(tmp_path / "exact.json", [1.0] * 4, [None] * 4)
    loose = gains_file(
        tmp_path / "loose.json", [1.0] * 4, [STD if v == JOINT else None for v in range(4)]
    )
    off = gains_file(
        tmp_path / "off.json", [1.0 + STEP if v == JOINT else 1.0 for v in range(4)], [None] * 4
    )
    sure, unsure, moved = (identified(each, method) for each in (exact, loose, off))
    assert np.array_equal(sure.x, unsure.x)
    added = np.sqrt(np.diag(unsure.covariance) - np.diag(sure.covariance))
    shift = np.abs(moved.x_base - sure.x_base) * STD / STEP
    notable = shift > 0.5 * sure.base_std.filled(np.inf)
    assert np.sum(notable) >= 3
    # the joints' weights follow the residuals, and take a small part in it
    np.testing.assert_allclose(added[notable], shift[notable], rtol=0.1)
    assert np.all(unsure.base_std >= sure.base_std * (1.0 - 1e-9))
