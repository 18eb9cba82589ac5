"""Logs of frames and mappings: bitwise those of the files written from them, with the same audit
and the same errors.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas
import polars
import pytest

import thetahat as th
from thetahat import robots
from thetahat.data.filters import Butterworth, smooth
from thetahat.data.formats.write_log import write_table
from thetahat.data.log import read_log
from thetahat.data.memory_log import TableLike, is_table, log_from_arrays, log_from_table
from thetahat.errors import MalformedInput, NotIdentifiable, RefusedForSafety, UsageError

ROWS = 70_000  # more than a batch
FRAMES = {"pandas": pandas.DataFrame, "polars": polars.DataFrame, "mapping": dict}


@pytest.fixture(scope="module")
def robot() -> th.Robot:
    return th.load(robots.path("double_pendulum"))


def columns_of(robot: th.Robot, rows: int = 400, *, seg: bool = False) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    t = np.arange(rows) / 200.0
    columns: dict[str, np.ndarray] = {"t": t}
    for joint in robot.joint_names:
        phase = 2 * np.pi * rng.uniform(0.4, 1.5) * t + rng.uniform(0, 6)
        columns[f"q.{joint}"] = np.sin(phase) + 1e-4 * rng.normal(size=rows)
        columns[f"tau.{joint}"] = rng.normal(size=rows)
    columns["battery"] = np.full(rows, 48.0)
    if seg:
        columns["seg"] = np.arange(rows) // (rows // 3 + 1)
    return columns


def make(kind: str, columns: dict[str, np.ndarray]) -> TableLike:
    return FRAMES[kind](columns)


@pytest.mark.parametrize(
    ("kind", "seg"),
    [
        ("pandas", True),
        ("polars", False),
        ("mapping", True),
        pytest.param("pandas", False, marks=pytest.mark.slow),
        pytest.param("polars", True, marks=pytest.mark.slow),
        pytest.param("mapping", False, marks=pytest.mark.slow),
    ],
)
def test_a_frame_gives_bitwise_the_samples_of_its_csv(
    robot: th.Robot, tmp_path: Path, kind: str, seg: bool
) -> None:
    columns = columns_of(robot, ROWS, seg=seg)
    path = tmp_path / "the table.csv"
    frame = pandas.DataFrame(columns)
    frame.to_csv(path, index=False)
    memory, file = log_from_table(make(kind, columns), robot), read_log(path, robot)
    assert memory.runs == file.runs
    assert len(memory.runs) == (3 if seg else 1)
    assert memory.findings == file.findings
    assert memory.masks == file.masks
    for _ in range(2):  # streamed again, the rows are the same
        for ours, theirs in zip(memory.chunks(), file.chunks(), strict=True):
            np.testing.assert_array_equal(ours.t, theirs.t)
            np.testing.assert_array_equal(ours.q, theirs.q)
            np.testing.assert_array_equal(ours.tau, theirs.tau)
    ours, theirs = (th.prepare(log, robot, cutoff=10.0) for log in (memory, file))
    for name in ("t", "q", "dq", "ddq", "tau", "run", "valid"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))


def test_positions_matrices_and_patterns_are_understood_as_in_files(robot: th.Robot) -> None:
    columns = columns_of(robot)
    q = np.column_stack([columns[f"q.{joint}"] for joint in robot.joint_names])
    tau = np.column_stack([columns[f"tau.{joint}"] for joint in robot.joint_names])
    numbered = {"t": columns["t"], **{f"q{i + 1}": q[:, i].tolist() for i in range(q.shape[1])}}
    renamed = {"time": columns["t"], **{f"{j}_pos": columns[f"q.{j}"] for j in robot.joint_names}}
    logs = [
        log_from_table({"t": columns["t"], "q": q, "tau": tau, "date": "today"}, robot),
        log_from_table(numbered, robot),
        log_from_table(pandas.DataFrame(renamed), robot, columns="t=time,q={joint}_pos"),
        log_from_arrays(robot, columns["t"], q),
    ]
    for log in logs:
        np.testing.assert_array_equal(log.read()[0].q, q)
    assert logs[0].has_tau
    assert not logs[1].has_tau


def test_the_log_keeps_its_own_copy(robot: th.Robot) -> None:
    columns = columns_of(robot)
    log = log_from_table(columns, robot)
    expected = log.read()[0].q.copy()
    for array in columns.values():
        array[:] = 0.0
    np.testing.assert_array_equal(log.read()[0].q, expected)


def test_numbers_of_every_type_are_read(robot: th.Robot) -> None:
    columns = columns_of(robot)
    joint = robot.joint_names[0]
    expected = np.round(columns[f"q.{joint}"], 4)
    for cells in (
        expected.astype(object),
        [Decimal(str(x)) for x in expected],
        pandas.array(expected, dtype="Float64"),
        polars.Series(expected),
        np.ma.masked_array(expected),
        np.asfortranarray(expected[::-1])[::-1],
    ):
        log = log_from_table({**columns, f"q.{joint}": cells}, robot)
        np.testing.assert_array_equal(log.read()[0].q[:, 0], expected)


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("abc", "is 'abc', not a number"),
        ("1.5", "is '1.5', not a number"),
        (None, "None"),
        (float("nan"), "is nan"),
        (float("inf"), "is inf"),
        (10**400, "more than a double can hold"),
        (pandas.NA, "fill in a number"),
        (pandas.NaT, "fill in a number"),
        ([1.0, 2.0], "not a number"),
        (1j, "not a number"),
        (object(), "not a number"),
    ],
)
def test_a_cell_that_is_no_number_is_named(
    robot: th.Robot, kind: str, cell: object, expected: str
) -> None:
    columns = columns_of(robot)
    column = f"tau.{robot.joint_names[1]}"
    cells = columns[column].astype(object)
    cells[7] = cell
    if kind == "polars":
        series = polars.Series(column, cells.tolist(), dtype=polars.Object)
        table: TableLike = polars.DataFrame(columns).with_columns(series)
    else:
        table = make(kind, {**columns, column: cells})
    with pytest.raises(MalformedInput, match="the frame, row 7 .*" + column) as caught:
        log_from_table(table, robot, name="the frame")
    assert expected in str(caught.value)
    assert caught.value.exit_code == 3


def test_a_null_of_polars_and_a_masked_cell_are_named(robot: th.Robot) -> None:
    columns = columns_of(robot)
    column = f"q.{robot.joint_names[0]}"
    values: list[float | None] = columns[column].tolist()
    values[5] = None
    masked = np.ma.masked_array(columns[column], mask=np.arange(400) == 5)
    for table in (
        polars.DataFrame(columns).with_columns(polars.Series(column, values)),
        {**columns, column: masked},
    ):
        with pytest.raises(MalformedInput, match="the table, row 5 .*" + column):
            log_from_table(table, robot)


def test_errors_of_the_whole_table(robot: th.Robot) -> None:
    columns = columns_of(robot)
    joint = robot.joint_names[0]
    backward = {**columns, "t": columns["t"][::-1]}
    twice = pandas.DataFrame(columns).rename(columns={"battery": "t"})
    dates = pandas.DataFrame({**columns, "t": pandas.date_range("2024", periods=400, freq="5ms")})
    dates.loc[7, "t"] = pandas.NaT
    for table, expected in (
        ({"q1": columns["t"]}, "the table has no column 't'"),
        ({**columns, f"q.{joint}": columns["t"][:9]}, "has 9 rows but t has 400"),
        ({**columns, f"q.{joint}": [[1], [1, 2]]}, "cannot be read as an array"),
        (backward, "row 1 .*goes back"),
        (twice, "column 't' appears twice"),
        (dates, "row 7 .*column 't' is NaT; fill in a date"),
        ({**columns, "q": np.zeros((400, 2)), "q1": columns["t"]}, "column 'q1' appears twice"),
    ):
        with pytest.raises(MalformedInput, match=expected):
            log_from_table(table, robot)
    with pytest.raises(NotIdentifiable, match="no rows"):
        log_from_table(pandas.DataFrame(columns).iloc[:0], robot)
    for odd in ([1, 2], "run.csv", pandas.Series([1.0]), None):
        assert not is_table(odd)
        with pytest.raises(UsageError, match="DataFrame"):
            log_from_table(odd, robot)  # type: ignore[arg-type]


def test_a_recording_of_objects_is_refused_by_row(robot: th.Robot) -> None:
    q = np.zeros((400, 2), dtype=object)
    q[3, 1] = "x"
    with pytest.raises(MalformedInput, match="recording, row 3"):
        log_from_arrays(robot, np.arange(400) / 100.0, q)


def test_jumps_of_any_size_do_not_crash(robot: th.Robot) -> None:
    """A jump too large to count in turns is not taken for a wrapped encoder."""
    columns, name = columns_of(robot), f"q.{robot.joint_names[0]}"

    def jumping(jump: float) -> np.ndarray:
        q = columns[name].copy()
        q[100:200], q[200:] = jump, -jump
        return q

    log = log_from_table({**columns, name: jumping(9e18)}, robot)
    np.testing.assert_array_equal(log.read()[0].q[:, 0], jumping(9e18))
    for jump in (1e25, 1.7e308):
        with pytest.raises(MalformedInput, match=re.escape(f"{name!r} is {jump:g}")):
            log_from_table({**columns, name: jumping(jump)}, robot)


def test_no_frame_library_is_imported_for_a_mapping() -> None:
    code = (
        "import sys, numpy as np, thetahat as th\n"
        "from thetahat import robots\n"
        "from thetahat.data.memory_log import log_from_table\n"
        "t = np.arange(400) / 200\n"
        "robot = th.load(robots.path('double_pendulum'))\n"
        "log_from_table({'t': t, 'q1': np.sin(t), 'q2': np.cos(t)}, robot)\n"
        "assert not {'pandas', 'polars'} & set(sys.modules), 'imported'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


# -- cells that are no numbers, elsewhere in data --------------------------------------------------


def test_objects_are_refused_wherever_arrays_are_taken(robot: th.Robot, tmp_path: Path) -> None:
    objects = np.full((20, 2), None, dtype=object)
    numbers = np.zeros((20, 2))
    samples = th.Samples(q=numbers, dq=numbers, ddq=numbers, tau=numbers)
    for call in (
        lambda: th.Samples(q=objects, dq=numbers, ddq=numbers, tau=numbers),
        lambda: replace(samples, reason=np.full((20, 2), "stuck")),
        lambda: replace(samples, t=np.full(20, "now")),
        lambda: samples.subset(objects[:, 0]),
        lambda: smooth(objects, 1e-3, Butterworth(10.0)),
        lambda: write_table(tmp_path / "log.npz", ["t"], [objects[:, 0]]),
        lambda: write_table(tmp_path / "log.csv", ["t"], [objects[:, 0]]),
        lambda: th.prepare(log_from_table(columns_of(robot), robot), robot, min_speed=["fast", 1]),
    ):
        with pytest.raises(UsageError) as caught:
            call()
        assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_an_npz_of_objects_and_a_parquet_of_texts_are_refused(
    robot: th.Robot, tmp_path: Path
) -> None:
    columns = columns_of(robot)
    joint = f"q.{robot.joint_names[0]}"
    np.savez(tmp_path / "log.npz", **{**columns, joint: columns[joint].astype(object)})
    with pytest.raises(RefusedForSafety, match="pickled"):
        read_log(tmp_path / "log.npz", robot)
    for odd in (
        polars.Series(joint, [str(x) for x in columns[joint]]),
        polars.Series(joint, [[str(x)] for x in columns[joint]]),
        polars.Series(joint, [{"x": x} for x in columns[joint]]),
        polars.Series(joint, [b"x" for _ in columns[joint]]),
    ):
        path = tmp_path / "log.parquet"
        polars.DataFrame(columns).with_columns(odd).write_parquet(path)
        with pytest.raises(MalformedInput, match=f"column '{joint}' is of type"):
            read_log(path, robot)
        polars.DataFrame(columns).with_columns(odd.alias("seg")).write_parquet(path)
        try:
            read_log(path, robot)
        except (MalformedInput, NotIdentifiable) as error:
            assert "\n" not in str(error)  # noqa: PT017


# -- odd cells ---------------------------------------------------------------------------------------


def test_objects_that_are_numbers_are_read_and_unwrapped(robot: th.Robot) -> None:
    columns = columns_of(robot)
    joint = f"q.{robot.joint_names[0]}"
    columns[joint] = np.angle(np.exp(1j * np.linspace(0.0, 30.0, len(columns["t"]))))
    (wanted,) = log_from_table(columns, robot).read()
    assert np.ptp(wanted.q[:, 0]) > 29.0, "the encoder wraps"
    for make in (
        lambda array: array.astype(object),
        lambda array: [Decimal(repr(float(x))) for x in array],
        lambda array: [Fraction(float(x)) for x in array],
        lambda array: np.array([np.array([x]) for x in array] + [None], dtype=object)[:-1],
    ):
        odd = {name: make(array) for name, array in columns.items()}
        for table in (odd, pandas.DataFrame(odd)):
            (found,) = log_from_table(table, robot).read()
            np.testing.assert_array_equal(found.q, wanted.q)
            np.testing.assert_array_equal(found.tau, wanted.tau)


@pytest.mark.parametrize(
    "cell",
    [None, "x", "1,5", b"1", [1.0, 2.0], {}, object(), Decimal("NaN"), pandas.NA, 10**400],
)
def test_odd_cells_are_named_or_skipped(robot: th.Robot, cell: object) -> None:
    columns: dict[str, object] = dict(columns_of(robot))
    joint = f"q.{robot.joint_names[0]}"
    cells = np.array(columns[joint], dtype=object)
    cells[11] = cell
    for table in ({**columns, joint: cells}, pandas.DataFrame({**columns, joint: list(cells)})):
        with pytest.raises(MalformedInput, match=f"row 11 .*'{joint}'"):
            log_from_table(table, robot)
        log = log_from_table(table, robot, skip_bad_rows=True)
        assert log.rows == len(cells) - 1
        assert any("row 11 " in f.message for f in log.findings if f.kind == "skipped-rows")


def test_a_polars_type_that_numpy_has_not_is_an_error_with_its_name(robot: th.Robot) -> None:
    columns = columns_of(robot)
    joint = f"q.{robot.joint_names[0]}"
    huge = polars.Series(joint, [1] * len(columns["t"]), dtype=polars.Int128)
    with pytest.raises(MalformedInput, match=f"column '{joint}' cannot be read"):
        log_from_table(polars.DataFrame(columns).with_columns(huge), robot)


def test_dates_of_frames_are_seconds(robot: th.Robot, tmp_path: Path) -> None:
    columns = columns_of(robot)
    stamps = pandas.date_range(
        "2024-03-01", periods=len(columns["t"]), freq="5ms", tz="Europe/Berlin"
    )
    seconds = stamps.astype("int64").to_numpy() * (1e-9 if stamps.unit == "ns" else 1e-6)
    frame = pandas.DataFrame({**columns, "t": stamps})
    for table in (
        frame,
        frame.astype({"t": object}),
        frame.astype({"t": str}),
        polars.DataFrame({**columns, "t": list(stamps.to_pydatetime())}),
    ):
        (chunk,) = log_from_table(table, robot).read()
        np.testing.assert_allclose(chunk.t, seconds, rtol=0, atol=3e-7)
    joint = f"q.{robot.joint_names[0]}"
    with pytest.raises(MalformedInput, match=f"'{joint}' holds dates"):
        log_from_table({**columns, joint: stamps}, robot)
    polars.DataFrame({**columns, joint: list(stamps.to_pydatetime())}).write_parquet(
        tmp_path / "log.parquet"
    )
    with pytest.raises(MalformedInput, match=f"'{joint}' holds dates"):
        read_log(tmp_path / "log.parquet", robot)
