"""Text tables as people have them: every dialect gives the numbers of the plain CSV file."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import pytest

import thetahat as th
from thetahat import robots
from thetahat.data.formats import csv as csv_format
from thetahat.data.formats.dialect import Dialect, detect
from thetahat.data.log import Log, read_log

ROWS = 60
NAMES = ["t", "q1", "q2", "dq1", "dq2", "tau1", "tau2"]
T = np.round(np.arange(ROWS) * 0.01, 2)
Q = np.column_stack([np.sin(3.0 * T), 0.4 * np.cos(2.0 * T)])
DQ = np.column_stack([3.0 * np.cos(3.0 * T), -0.8 * np.sin(2.0 * T)])
TABLE = np.column_stack([T, Q, DQ, 1.5 + Q[:, 0], 2.5 - DQ[:, 0]])
PLACES = "t=1,q=2-3,dq=4-5,tau=6-7"


@pytest.fixture(scope="module")
def robot() -> th.Robot:
    return th.load(robots.path("double_pendulum"))


def text_of(
    separator: str = ",",
    decimal: str = ".",
    header: str | None = None,
    cells: list[str] | None = None,
) -> str:
    lines = [separator.join(NAMES) if header is None else header] if header != "" else []
    stamps = cells or [repr(float(t)) for t in T]
    for stamp, row in zip(stamps, TABLE, strict=True):
        numbers = [str(stamp), *(repr(float(x)) for x in row[1:])]
        lines.append(
            separator.join(
                number if cells and at == 0 else number.replace(".", decimal)
                for at, number in enumerate(numbers)
            )
        )
    return "\n".join(lines) + "\n"


def rows_of(log: Log) -> np.ndarray:
    chunk = log.read()[0]
    return np.column_stack([chunk.t, chunk.q, chunk.dq, chunk.tau])


def sentences(log: Log, kind: str) -> list[str]:
    return [finding.message for finding in log.findings if finding.kind == kind]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("decimal", [".", ","])
@pytest.mark.parametrize(
    ("separator", "word"),
    [(",", ""), (";", "semicolons"), ("\t", "tabs"), (" ", "spaces"), ("   ", "spaces")],
)
def test_every_dialect_gives_the_same_numbers(
    robot: th.Robot,
    tmp_path: Path,
    separator: str,
    word: str,
    decimal: str,
    ending: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if separator == decimal:
        return
    for name, header in (("log.csv", None), ("log.txt", "")):
        path = tmp_path / name
        text = text_of(separator, decimal, header).replace("\n", ending)
        path.write_text(text, newline="")
        options = {} if header is None else {"columns": PLACES}
        log = read_log(path, robot, **options)
        np.testing.assert_array_equal(rows_of(log), TABLE)
        told = sentences(log, "dialect")
        assert (word in told[0]) if word else (told == [] or "no header" in told[0])
        assert any("decimal commas" in each for each in told) == (decimal == ",")
        with monkeypatch.context() as patch:
            patch.setattr(csv_format, "BLOCK_BYTES", 301)
            np.testing.assert_array_equal(rows_of(read_log(path, robot, **options)), TABLE)


def test_quoted_decimal_commas_between_commas(robot: th.Robot, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    rows = [",".join(f'"{float(x)!r}"'.replace(".", ",") for x in row) for row in TABLE]
    path.write_text("\n".join([",".join(NAMES), *rows]) + "\n")
    np.testing.assert_array_equal(rows_of(read_log(path, robot)), TABLE)


def test_a_header_behind_a_comment_mark(robot: th.Robot, tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    np.savetxt(path, TABLE, fmt="%.17g", header=" ".join(NAMES))
    np.testing.assert_array_equal(rows_of(read_log(path, robot)), TABLE)


def test_names_with_blanks_and_units_do_not_mislead() -> None:
    assert detect(["Time (s), Joint 1, Joint 2", "0.1, 2, 3", "0.2, 2, 3"]) == Dialect()
    assert detect(["Time [s];q 1;q 2", "0,1;2;3"]) == Dialect(";", ",")
    assert detect(["a b c", "1 2 3"]).separator == " "
    assert detect(["t,q1", "x,y", "1,2", "3,4"]) == Dialect()


# -- places of columns -----------------------------------------------------------------------------


def test_places_of_columns(robot: th.Robot, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    interleaved = TABLE[:, [0, 1, 3, 5, 2, 4, 6]]
    np.savetxt(path, interleaved, fmt="%.17g", delimiter=",")
    for columns in (
        "t=1,q=2-5:3,dq=3-6:3,tau=4-7:3",
        "t=1,q=2+5,dq=3+6,tau=4+7",
        {"t": "1", "q": "2+5", "dq": "3+6", "tau": "4+7"},
    ):
        np.testing.assert_array_equal(rows_of(read_log(path, robot, columns=columns)), TABLE)
    named = tmp_path / "named.csv"
    named.write_text(",".join("abcdefg") + "\n" + path.read_text())
    log = read_log(named, robot, columns="t=1,q=2+5,dq=3+6,tau=4+7")
    np.testing.assert_array_equal(rows_of(log), TABLE)
    for columns, words in (
        ("t=1,q=2-4", ["3 columns", "has 2"]),
        ("t=1,q=7-8", ["7 columns", "column 8"]),
        ("t=1,q=3-2", ["0 columns"]),
        (None, ["line 1", "t=1,q=2-3,tau=4-5"]),
        ("t=1,q=2-3,tau=9-9", ["column 9"]),
    ):
        with pytest.raises(th.ThetahatError) as caught:
            read_log(path, robot, columns=columns)
        assert caught.value.exit_code == 3
        assert all(word in str(caught.value) for word in words), str(caught.value)


def test_an_error_in_a_file_without_header_names_its_line(robot: th.Robot, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    lines = text_of(header="").splitlines()
    lines[9] = lines[9].replace(",", ",x", 1)
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(th.ThetahatError, match="line 10: column '2' is 'x"):
        read_log(path, robot, columns=PLACES)


# -- joints counted from 0 or from 1 -----------------------------------------------------------------


def test_index_counts_from_0_and_number_from_1(robot: th.Robot, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"

    def read(names: str, columns: str) -> np.ndarray:
        path.write_text(text_of(header=names))
        return rows_of(read_log(path, robot, columns=columns))

    from_0 = "t,p_0,p_1,v_0,v_1,e_0,e_1"
    from_1 = "t,p_1,p_2,v_1,v_2,e_1,e_2"
    indices, numbers = (
        "q=p_{index},dq=v_{index},tau=e_{index}",
        "q=p_{number},dq=v_{number},tau=e_{number}",
    )
    np.testing.assert_array_equal(read(from_0, indices), TABLE)
    np.testing.assert_array_equal(read(from_1, numbers), TABLE)
    for names, columns, other in ((from_0, numbers, "{index}"), (from_1, indices, "{number}")):
        with pytest.raises(th.ThetahatError) as caught:
            read(names, columns)
        assert caught.value.exit_code == 3
        assert f"write {other} instead" in str(caught.value)


def test_never_a_shifted_joint(tmp_path: Path) -> None:
    """With one joint's column missing at either end, a wrong base is still an error."""
    robot = th.load(robots.path("arm4"))
    for first, field in ((0, "{number}"), (1, "{index}")):
        for count in (3, 4, 5):
            names = ["t", *(f"p{first + k}" for k in range(count))]
            rows = np.column_stack([T, *(np.sin(T + k) for k in range(count))])
            path = tmp_path / "log.csv"
            path.write_text(",".join(names) + "\n")
            with path.open("a") as file:
                np.savetxt(file, rows, delimiter=",")
            with pytest.raises(th.ThetahatError, match="neighbour"):
                read_log(path, robot, columns=f"q=p{field}")


# -- dates -------------------------------------------------------------------------------------------

START = datetime.datetime(2024, 3, 1, 12, 30, 15, 250_000, tzinfo=datetime.UTC)
MOMENTS = [START + datetime.timedelta(milliseconds=10 * k) for k in range(ROWS)]
SECONDS = np.array([moment.timestamp() for moment in MOMENTS])


@pytest.mark.parametrize(
    "style",
    [
        "%Y-%m-%dT%H:%M:%S.%fZ",
        "%Y-%m-%d %H:%M:%S.%f",
        "%Y/%m/%d %H:%M:%S.%f",
        "%Y-%m-%dT%H:%M:%S.%f+00:00",
        "%Y-%m-%dT%H:%M:%S.%f+0000",
    ],
)
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_iso_8601_stamps(robot: th.Robot, tmp_path: Path, style: str, separator: str) -> None:
    path = tmp_path / "log.csv"
    decimal = "," if separator == ";" else "."
    path.write_text(text_of(separator, decimal, cells=[m.strftime(style) for m in MOMENTS]))
    found = rows_of(read_log(path, robot))
    np.testing.assert_allclose(found[:, 0], SECONDS, rtol=0, atol=3e-7)
    np.testing.assert_array_equal(found[:, 1:], TABLE[:, 1:])


def test_a_zone_is_taken_off(robot: th.Robot, tmp_path: Path) -> None:
    zone = datetime.timezone(datetime.timedelta(hours=-5, minutes=-30))
    path = tmp_path / "log.csv"
    path.write_text(text_of(cells=[moment.astimezone(zone).isoformat() for moment in MOMENTS]))
    np.testing.assert_allclose(rows_of(read_log(path, robot))[:, 0], SECONDS, rtol=0, atol=3e-7)


@pytest.mark.parametrize(("unit", "factor"), [("s", 1.0), ("ms", 1e3), ("us", 1e6), ("ns", 1e9)])
def test_stamps_since_1970_are_recognised(
    robot: th.Robot, tmp_path: Path, unit: str, factor: float
) -> None:
    path = tmp_path / "log.csv"
    ticks = [f"{round(s * factor)}" if factor > 1 else f"{s:.6f}" for s in SECONDS]
    path.write_text(text_of(cells=ticks))
    log = read_log(path, robot)
    np.testing.assert_allclose(rows_of(log)[:, 0], SECONDS, rtol=0, atol=3e-7)
    told = sentences(log, "stamps")
    assert (told == []) if unit == "s" else (f"counts {unit} since 1970" in told[0])


def test_stamps_since_the_machine_started_are_no_dates(robot: th.Robot, tmp_path: Path) -> None:
    """Twelve days in microseconds have the size of a date in milliseconds, at one row a minute."""
    path = tmp_path / "log.csv"
    path.write_text(text_of(cells=[f"{1.04e12 + 1e4 * k:.0f}" for k in range(ROWS)]))
    with pytest.raises(th.ThetahatError, match=r"microseconds.*--units t=us"):
        read_log(path, robot)
    log = read_log(path, robot, units="t=us")
    np.testing.assert_allclose(np.diff(rows_of(log)[:, 0]), 0.01, rtol=1e-6)


# -- bad rows ----------------------------------------------------------------------------------------


def test_bad_rows_are_skipped_counted_and_named(
    robot: th.Robot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = text_of().splitlines()
    lines[5] = lines[5].replace(",", ",x", 1)  # text
    lines[11] = ",".join(lines[11].split(",")[:4])  # short
    lines[20] = lines[20].rpartition(",")[0] + ","  # empty
    lines[30] = lines[30].rpartition(",")[0] + ",inf"
    lines[40] = lines[38]  # goes back
    path = tmp_path / "log.csv"
    path.write_text("\n".join([*lines, lines[-1][:9]]))  # cut
    good = np.delete(TABLE, [4, 10, 19, 29, 39], axis=0)
    for size in (4 * 2**20, 333):
        monkeypatch.setattr(csv_format, "BLOCK_BYTES", size)
        log = read_log(path, robot, skip_bad_rows=True)
        np.testing.assert_array_equal(rows_of(log), good)
        (told,) = sentences(log, "skipped-rows")
        assert "5 of 60 rows are bad" in told
        assert "line 6, line 12, line 21, line 31, line 41" in told
    with pytest.raises(th.ThetahatError, match="line 6"):
        read_log(path, robot)


def test_rows_behind_skipped_ones_keep_their_places(robot: th.Robot, tmp_path: Path) -> None:
    lines = text_of().splitlines()
    for at in (3, 4, 9):
        lines[at] = "broken"
    for at in range(31, 61):
        t, _, rest = lines[at].partition(",")
        lines[at] = f"{float(t) + 9.0},{rest}"
    path = tmp_path / "log.csv"
    path.write_text("\n".join(lines) + "\n")
    log = read_log(path, robot, skip_bad_rows=True)
    assert "at line 32" in sentences(log, "gap")[0]
    assert [run.rows for run in log.runs] == [27, 30]


def test_a_file_that_is_mostly_bad_is_refused(robot: th.Robot, tmp_path: Path) -> None:
    lines = text_of().splitlines()
    lines[10] = lines[10].replace("0.09", "9999", 1)  # all that follow go back behind it
    path = tmp_path / "log.csv"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(th.ThetahatError, match="line 12: 50 of 60 rows are bad") as caught:
        read_log(path, robot, skip_bad_rows=True)
    assert caught.value.exit_code == 3
