"""What is kept of a run: bounded however long it is, no peak lost, up to date to the last row; and
rings that a slow reader cannot hold up.
"""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import thetahat as th
from thetahat import robots
from thetahat.live.panels import Intervals, LineHistory
from thetahat.live.shared_state import FITTED, ROWS, RecentRows, RingBuffer, Row

NO_NUMBER = np.float64(np.nan)


def filled(history: LineHistory, values: np.ndarray, *, step: int = 7) -> LineHistory:
    """As frames bring rows: a few at a time, and asked for what is new after each."""
    t = np.arange(len(values)) * 0.02
    for k in range(0, len(values), step):
        history.add(t[k : k + step], values[k : k + step])
        history.new()
    return history


def test_a_day_stays_light_and_keeps_every_peak() -> None:
    """Twenty minutes at 50 Hz are enough to see that points do not grow: the line has the largest
    and least value, at their times.
    """
    rng = np.random.default_rng(0)
    values = rng.normal(size=(60_000, 3))
    values[12_345, 1], values[777, 2], values[59_999, 0] = 40.0, -40.0, 9.0
    history = LineHistory(3, buckets=100, tail=200)
    lengths = []
    for part in np.array_split(np.arange(len(values)), 600):
        history.add(part * 0.02, values[part])
        history.new()
        lengths.append(len(history.line(0).t))
    assert max(lengths) <= 2 * 100 + 2 * 200
    for channel in range(3):
        line = history.line(channel)
        assert np.all(np.diff(line.t) > 0.0)
        for pick in (np.argmax, np.argmin):
            k = pick(values[:, channel])
            at = np.flatnonzero(line.y == values[k, channel])
            assert len(at) == 1
            assert line.t[at[0]] == pytest.approx(k * 0.02)
        assert (line.t[-1], line.y[-1]) == (
            pytest.approx(59_999 * 0.02),
            values[-1, channel],
        ), "up to date to the last row"


@given(
    rows=st.integers(1, 700),
    buckets=st.integers(2, 9),
    tail=st.integers(2, 12),
    step=st.integers(1, 30),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_a_line_is_made_of_rows_that_were_there(
    rows: int, buckets: int, tail: int, step: int, seed: int
) -> None:
    """Every point is a row, the first and last rows are in it, every row lies between its
    neighbours' extremes, and NaN stays a gap.
    """
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(rows, 1))
    values[rng.random(rows) < 0.1] = NO_NUMBER
    line = filled(LineHistory(1, buckets=buckets, tail=tail), values, step=step).line(0)
    at = np.rint(line.t / 0.02).astype(int)
    np.testing.assert_array_equal(line.y, values[at, 0])
    known = values[~np.isnan(values)]
    if len(known):
        assert np.nanmax(line.y) == known.max()
        assert np.nanmin(line.y) == known.min()
    assert at[-1] == rows - 1
    assert len(line.t) <= 2 * buckets + 2 * tail


def test_what_is_new_is_handed_out_once() -> None:
    history, values = (
        LineHistory(2, buckets=10, tail=50),
        np.random.default_rng(1).normal(size=(400, 2)),
    )
    got = []
    for k in range(0, 400, 9):
        history.add(np.arange(k, min(k + 9, 400)) * 1.0, values[k : k + 9])
        got.append(history.new()[1])
    np.testing.assert_array_equal(np.concatenate(got), values)
    assert history.older.width > 1, "old rows were folded meanwhile"


def test_grounds_begin_and_end_where_the_flag_does_and_stay_few() -> None:
    grounds = Intervals(most=5)
    grounds.add([0.0, 1.0, 2.0, 3.0, 4.0], [False, True, True, False, False])
    assert grounds.spans == [(1.0, 3.0)]
    assert grounds.changes == 2
    for k in range(40):
        grounds.add([10.0 + 3 * k, 11.0 + 3 * k], [True, False])
    assert len(grounds.spans) <= 5
    assert grounds.spans[0][0] == 1.0
    assert grounds.spans[-1][1] == 11.0 + 3 * 39


# -- rings -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def robot() -> th.Robot:
    return th.load(robots.path("arm4"))


def test_a_reader_gets_every_row_once_and_whole(robot: th.Robot) -> None:
    """While another thread writes as fast as it can: all numbers of a row are of the same cycle."""
    tap, count, rows = RingBuffer(robot, 1000.0), 30_000, []
    pause = threading.Event()

    def write() -> None:
        for k in range(count):
            x = np.full(4, float(k))
            tap.row(Row(float(k), x, x, (x[None], x[None], x[None], x[None]), 0))
            if k % 200 == 199:
                pause.wait(0.0005)

    thread = threading.Thread(target=write)
    thread.start()
    lost = 0
    while thread.is_alive() or tap.written > len(rows) + lost:
        block, missed = tap.read()
        lost += missed
        for array in (block.q, block.error, *block.filtered):
            np.testing.assert_array_equal(array, np.repeat(block.t[:, None], 4, axis=1))
        rows.extend(block.t.tolist())
    thread.join()
    assert len(rows) + lost == count
    assert np.all(np.diff(rows) > 0)


def test_rows_that_are_written_over_while_they_are_read_are_left_out(robot: th.Robot) -> None:
    """A writer that goes round most of the ring in the middle of a read."""
    tap = RingBuffer(robot, 1000.0)

    def write(count: int) -> None:
        for k in range(tap.written, tap.written + count):
            x = np.full(4, float(k))
            tap.row(Row(float(k), x, x, (x[None], x[None], x[None], x[None]), 0))

    class Meanwhile:
        """A ring whose reader is interrupted."""

        def __init__(self, ring: np.ndarray) -> None:
            self.ring = ring

        def __getitem__(self, at: np.ndarray) -> np.ndarray:
            tap._q = self.ring
            write(ROWS - 300)
            return self.ring[at]

    write(500)
    tap._q = Meanwhile(tap._q)
    block, lost = tap.read()
    np.testing.assert_array_equal(block.q, np.repeat(block.t[:, None], 4, axis=1))
    assert len(block) + lost == 500
    assert lost == 201, "those of the slots that were written to, or are next"


def test_a_reader_that_comes_late_loses_rows_and_knows_how_many(robot: th.Robot) -> None:
    tap, x = RingBuffer(robot, 1000.0), np.zeros(4)
    for k in range(3 * ROWS):
        tap.row(Row(float(k), x, None, None, 0))
    block, lost = tap.read()
    assert len(block) + lost == 3 * ROWS
    assert block.t[-1] == 3 * ROWS - 1
    assert not block.settled.any()
    assert np.isnan(block.error).all()


def test_recent_rows_are_those_that_were_not_fitted(robot: th.Robot) -> None:
    tap, recent, x = RingBuffer(robot, 1000.0), RecentRows(robot, 100), np.zeros(4)
    for k in range(250):
        q = np.full((1, 4), float(k))
        tap.row(Row(float(k), x, None, (q, q, q, q), FITTED if k % 10 == 0 else 0))
        recent.add(tap.read()[0])
    found = recent.arrays()
    expected = [float(k) for k in range(250) if k % 10][-100:]
    assert found["t"].tolist() == expected
    assert found["tau"][:, 2].tolist() == expected


def test_cycle_times_are_those_of_numpy(robot: th.Robot) -> None:
    tap = RingBuffer(robot, 1000.0)
    assert tap.quantiles() is None
    times = np.random.default_rng(0).integers(1_000, 1_000_000, 3000)
    for ns in times:
        tap.time(int(ns))
    assert tap.quantiles() == pytest.approx(tuple(np.percentile(times, (50, 99)) / 1e3))
