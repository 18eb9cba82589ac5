"""The harness over real logs: one robot here, all of them by `make real`."""

from __future__ import annotations

import json

import numpy as np
import pytest
from data_paths import NO_SHARED, SHARED

import thetahat as th
from benchmarks import real
from thetahat.data.prepare import prepare_batches

pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason=NO_SHARED)


@pytest.fixture(scope="module")
def ur10() -> real.Result:
    return real.run_case(next(case for case in real.CASES if case.name.startswith("UR10")))


def test_a_real_robot_reaches_what_is_asked(ur10: real.Result) -> None:
    assert ur10.met == (True,) * 6, ur10.got
    assert ur10.consistent
    assert ur10.parity < 1e-9
    assert "follows a motion" in ur10.twin


def test_scores_are_those_of_the_held_out_rows(ur10: real.Result) -> None:
    """R² by hand, from the RMS error and the torques of the second half: the harness scores what it
    says.
    """
    import polars

    table = polars.read_csv(SHARED / "logs" / "ur10" / "ur10_exciting.csv")
    half = table[round(0.5 * len(table)) :]
    for j in range(6):
        power = float(np.mean(half[f"tau{j + 1}"].to_numpy() ** 2))
        by_hand = 1.0 - float(ur10.scores["consistent"].rms[j]) ** 2 / power
        assert by_hand == pytest.approx(
            float(ur10.scores["consistent"].r2[j]), abs=0.02
        )  # edges and the low-pass differ


def test_tables_say_what_was_reached(ur10: real.Result) -> None:
    text = real.table(ur10)
    assert text.count("| ≥ ") == 6
    assert "✗" not in text
    data = json.loads(json.dumps(real.as_data(ur10), allow_nan=False))
    assert data["met"] == [True] * 6
    assert len(data["chosen"]) >= 7


def test_the_rows_scored_are_the_baselines() -> None:
    """Its documentation states the RMS torques [N·m] of motion C behind 10 Hz, of all rows and of
    those faster than 0.02 rad/s.
    """
    stated = (
        [871.2814, 2680.8847, 2974.0818, 153.7826, 487.1891, 183.8557],
        [
            984.2478,
            2522.7189,
            2886.8026,
            172.5917,
            477.1412,
            208.9422,
        ],
    )
    case = next(case for case in real.CASES if case.name.startswith("KR300, A + B"))
    robot = th.load(real.LOGS / case.robot)
    log = th.read_log(real.LOGS / case.log, robot)
    batches = prepare_batches(
        log, robot, cutoff=case.score_cutoff, span=(log.runs[2].first_row, log.runs[2].stop_row)
    )
    rows = real._rows(batches, case, case.min_speed)
    for part, asked in zip((rows.scorable, rows.valid), stated, strict=True):
        assert np.sqrt(np.mean(rows.tau**2, axis=0, where=part)) == pytest.approx(asked, rel=2e-3)
