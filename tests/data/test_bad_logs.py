"""Bad logs (bad-inputs.md): one sentence that names file, place, value and fix, the right exit
code, the original untouched.
"""

from __future__ import annotations

import datetime
import gzip
import io
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

import thetahat as th
from thetahat import robots
from thetahat.data.formats import csv as csv_format
from thetahat.data.formats import npz as npz_format
from thetahat.data.formats.write_log import write_table
from thetahat.data.log import read_log

HEADER = "t,q1,q2,dq1,dq2,tau1,tau2"
ROWS = [
    f"{i * 0.01:.2f},{np.sin(i * 0.05):.6f},{np.cos(i * 0.05):.6f},{5 * np.cos(i * 0.05):.6f},{-5 * np.sin(i * 0.05):.6f},{i % 7}.5,{i % 5}.25"
    for i in range(40)
]
GOOD = "\n".join([HEADER, *ROWS]) + "\n"


@pytest.fixture(scope="module")
def robot() -> th.Robot:
    return th.load(robots.path("double_pendulum"))


def refusal(path: Path, robot: th.Robot, **options) -> th.ThetahatError:
    """The error of reading a file, after the checks that hold for every one."""
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(th.ThetahatError) as caught:
        for _ in read_log(path, robot, **options).chunks():
            pass
    message = str(caught.value)
    assert path.name in message, "the file is named"
    assert "\n" not in message
    assert not message.endswith(".")
    assert ";" in message or "," in message, "a fix is offered"
    if before is not None:
        assert path.read_bytes() == before, "the original is untouched"
    return caught.value


def changed(row: int, column: int, cell: str) -> str:
    lines = GOOD.splitlines()
    fields = lines[row].split(",")
    fields[column] = cell
    lines[row] = ",".join(fields)
    return "\n".join(lines) + "\n"


def inserted(at: int, line: str) -> str:
    lines = GOOD.splitlines()
    return "\n".join([*lines[:at], line, *lines[at:]]) + "\n"


TEXTS = {
    # name: (content, exit code, words of the sentence)
    "empty": ("", 3, ["empty"]),
    "blank": ("\n\n", 3, ["empty"]),
    "header only": (HEADER + "\n", 5, ["no rows"]),
    "header only, no line end": (HEADER, 5, ["no rows"]),
    "four rows": ("\n".join([HEADER, *ROWS[:4]]) + "\n", 5, ["4 rows", "at least 5"]),
    "cut inside the last row": (GOOD[:-20], 3, ["line 41", "no line end"]),
    "cut inside the last number": (GOOD[:-2], 3, ["line 41", "no line end", "newline"]),
    "cut before the last line end": (GOOD[:-1], 3, ["line 41", "no line end"]),
    "short row": (inserted(7, "0.065,1,2,3"), 3, ["line 8", "4 fields", "names 7"]),
    "long row": (inserted(7, "0.065,1,2,3,4,5,6,7,8"), 3, ["line 8", "9 fields", "names 7"]),
    "a short and a long row": (
        inserted(7, "0.065,1,2,3,4,5\n0.067,1,2,3,4,5,6,7"),
        3,
        ["line 8", "6 fields"],
    ),
    "blank row": (inserted(7, ""), 3, ["line 8", "blank"]),
    "repeated header": (inserted(20, HEADER), 3, ["line 21", "header is repeated"]),
    "text cell": (changed(9, 3, "broken"), 3, ["line 10", "'dq1'", "'broken'", "not a number"]),
    "empty cell": (changed(9, 3, ""), 3, ["line 10", "'dq1'", "empty"]),
    "empty last cell": (changed(9, 6, ""), 3, ["line 10", "'tau2'", "empty"]),
    "inf": (changed(9, 5, "inf"), 3, ["line 10", "'tau1'", "'inf'", "finite"]),
    "minus infinity": (changed(9, 5, "-Infinity"), 3, ["line 10", "'tau1'"]),
    "nan": (changed(9, 5, "NaN"), 3, ["line 10", "'tau1'", "'NaN'"]),
    "1e400": (changed(9, 5, "1e400"), 3, ["line 10", "'tau1'", "1e400", "more than a double"]),
    "hexadecimal": (changed(9, 5, "0x10"), 3, ["line 10", "'0x10'"]),
    "underscore": (changed(9, 5, "1_000"), 3, ["line 10", "'1_000'"]),
    "quoted decimal comma": (changed(9, 5, '"1,5"'), 3, ["line 10", "'1,5'", "decimal point"]),
    "open quotation mark": (changed(9, 5, '"1'), 3, ["line 10", "quotation mark"]),
    "semicolons below a header with commas": (
        inserted(1, ROWS[0].replace(",", ";")),
        3,
        ["line 2", "semicolons"],
    ),
    "decimal commas": (
        "t,q1,q2\n" + "".join(f"0,{i:02d},1,5,2,5\n" for i in range(9)),
        3,
        ["line 2", "decimal commas", "decimal points"],
    ),
    "bars": (GOOD.replace(",", "|"), 3, ["line 1", "bars", "semicolons"]),
    "points and commas": (
        GOOD.replace(",", ";").replace(".5", ",5"),
        3,
        ["points and with commas", "decimal point"],
    ),
    "thousands": (
        "t;q1;q2\n" + "".join(f"0,{i:02d};1.000,5;2.000,5\n" for i in range(9)),
        3,
        ["'1.000,5'", "thousands"],
    ),
    "two separators": (
        "t,q1;q2,q3\n" + "".join(f"{i},1;2,3\n" for i in range(9)),
        3,
        ["commas, semicolons", "use one"],
    ),
    "a point among decimal commas": (
        GOOD.replace(",", ";").replace(".", ",").replace("0,05;", "0.05;", 1),
        3,
        ["line 7", "'t'", "'0.05'", "decimal comma"],
    ),
    "a date that is none": (
        "t,q1,q2\n" + "".join(f"2024-01-0{i}T00:00:00Z,1,2\n" for i in (1, 2, 3, 4, 0, 5)),
        3,
        ["line 6", "'t'", "not a date"],
    ),
    "carriage returns alone": (GOOD.replace("\n", "\r"), 3, ["line 1", "carriage return"]),
    "no header": ("\n".join(ROWS) + "\n", 3, ["line 1", "header"]),
    "duplicate column": (GOOD.replace("q2,", "q1,", 1), 3, ["'q1'", "twice"]),
    "two names for one joint": (
        GOOD.replace("q2,", "q.shoulder,", 1),
        3,
        ["'q1'", "'q.shoulder'", "remove one"],
    ),
    "no stamps": (GOOD.replace("t,", "time,", 1), 3, ["'t'", "t=time", "q1"]),
    "no positions": (
        GOOD.replace("q1,q2,dq1,dq2", "a,b,c,d", 1).replace("tau1,tau2", "e,f"),
        3,
        ["no joint positions", "shoulder, elbow"],
    ),
    "torque without position": (
        GOOD.replace("q2,", "x,", 1),
        3,
        ["no position of joint 'elbow'", "q.elbow"],
    ),
    "a joint too many": (
        GOOD.replace("q2,", "q3,", 1),
        3,
        ["'q3'", "joints 1 to 2", "shoulder, elbow"],
    ),
    "joints from 0": (GOOD.replace("q1,q2", "q0,q1", 1), 3, ["'q0'", "count joints from 1"]),
    "other joint names": (
        GOOD.replace("q1,q2", "q.left,q.right", 1).replace("dq1,dq2,tau1,tau2", "a,b,c,d"),
        3,
        ["left, right", "shoulder, elbow"],
    ),
    "one misspelt joint": (
        GOOD.replace("q1,q2", "q.shoulder,q.elbw", 1).replace("dq1,dq2,tau1,tau2", "a,b,c,d"),
        3,
        ["elbw", "elbow"],
    ),
    "a wrong coordinate": (GOOD.replace("q2,", "q.elbow.x,", 1), 3, ["'q.elbow.x'", "q.elbow"]),
    "repeated stamp": (changed(12, 0, "0.10"), 3, ["line 13", "repeats", "0.1"]),
    "backward stamp": (changed(12, 0, "0.05"), 3, ["line 13", "goes back", "0.05", "0.1"]),
    "NUL in a cell": (changed(9, 5, "1\0"), 3, ["line 10", "NUL"]),
    "NUL in the header": (GOOD.replace("dq1", "d\0q1", 1), 3, ["line 1", "NUL"]),
    "20,000 columns": (
        ",".join(["t", *(f"x{i}" for i in range(20_000))]) + "\n",
        7,
        ["20001 columns", "4096"],
    ),
    "100,000 columns": (
        ",".join(["t", *(f"x{i}" for i in range(100_000))]) + "\n",
        7,
        ["100001 columns"],
    ),
    "a first line without end": ("x" * (2**20 + 5), 7, ["line 1", "longer"]),
    "a row without end": (GOOD + "1," * (4 * 2**20), 7, ["line 42", "longer"]),
}


@pytest.mark.parametrize("case", TEXTS)
def test_bad_csv(robot: th.Robot, tmp_path: Path, case: str) -> None:
    text, code, words = TEXTS[case]
    path = tmp_path / "log.csv"
    path.write_text(text, encoding="utf-8", newline="")
    error = refusal(path, robot)
    assert error.exit_code == code
    for word in words:
        assert word in str(error), str(error)


@pytest.mark.parametrize(
    "case", [name for name, (_, code, _) in TEXTS.items() if code == 3 and "line end" not in name]
)
def test_bad_csv_is_placed_the_same_however_it_is_cut(
    robot: th.Robot, tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, _, _ = TEXTS[case]
    path = tmp_path / "log.csv"
    path.write_text(text, encoding="utf-8", newline="")
    whole = str(refusal(path, robot))
    monkeypatch.setattr(csv_format, "BLOCK_BYTES", 61)
    assert str(refusal(path, robot)) == whole


@pytest.mark.parametrize(
    ("line", "fields"), [(ROWS[20], 7), (ROWS[20] + ",x,y", 9), (ROWS[20] + ",x,,", 10)]
)
def test_fields_are_counted_even_where_nobody_reads_them(
    robot: th.Robot, tmp_path: Path, line: str, fields: int
) -> None:
    path = tmp_path / "log.csv"
    lines = [HEADER + ",note", *(row + ",x" for row in ROWS)]
    path.write_text("\n".join([*lines[:21], line, *lines[22:]]) + "\n")
    error = refusal(path, robot)
    assert (error.exit_code, f"line 22: {fields} fields" in str(error)) == (3, True)


def test_the_good_file_is_good(robot: th.Robot, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(GOOD)
    assert read_log(path, robot).rows == 40


def test_salvage_leaves_a_cut_row_out(robot: th.Robot, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(GOOD[:-3])
    log = read_log(path, robot, salvage=True)
    assert log.rows == 39
    assert sum(len(chunk) for chunk in log.chunks()) == 39
    assert "line 41" in next(
        finding.message for finding in log.findings if finding.kind == "salvaged"
    )


BYTES = {
    "UTF-16 with mark": (GOOD.encode("utf-16"), 3, ["UTF-16", "UTF-8"]),
    "UTF-16 without mark": (GOOD.encode("utf-16-le"), 3, ["UTF-16"]),
    "UTF-16, other end first": (GOOD.encode("utf-16-be"), 3, ["UTF-16"]),
    "Latin-1 header": (
        GOOD.replace("dq1", "é1", 1).encode("latin-1"),
        3,
        ["line 1", "UTF-8", "Latin-1"],
    ),
    "Latin-1 run name": (
        GOOD.replace("tau2", "seg", 1).replace("2.25\n", "é\n", 1).encode("latin-1"),
        3,
        ["line 4", "UTF-8"],
    ),
    "gzip": (gzip.compress(GOOD.encode()), 7, ["gzip", "unpack"]),
    "gzip bomb": (gzip.compress(bytes(50_000_000)), 7, ["gzip"]),
    "zstd": (b"\x28\xb5\x2f\xfd" + bytes(20), 7, ["zstd"]),
    "a picture": (b"\x89PNG\r\n\x1a\n" + os.urandom(200), 3, ["line 1"]),
}


@pytest.mark.parametrize("case", BYTES)
def test_bad_bytes(robot: th.Robot, tmp_path: Path, case: str) -> None:
    data, code, words = BYTES[case]
    path = tmp_path / "log.csv"
    path.write_bytes(data)
    error = refusal(path, robot)
    assert error.exit_code == code
    for word in words:
        assert word in str(error), str(error)


# -- Parquet ---------------------------------------------------------------------------------------


def columns() -> dict[str, np.ndarray]:
    values = np.array([[float(x) for x in row.split(",")] for row in ROWS])
    return dict(zip(HEADER.split(","), values.T, strict=True))


def parquet(path: Path, **other: object) -> Path:
    import polars

    polars.DataFrame(columns() | other).write_parquet(path)
    return path


def test_bad_parquet(robot: th.Robot, tmp_path: Path) -> None:
    good = parquet(tmp_path / "good.parquet").read_bytes()
    for name, data, words in (
        ("empty", b"", "empty"),
        ("cut", good[:-30], "no Parquet footer"),
        ("cut in half", good[: len(good) // 2], "no Parquet footer"),
        ("head alone", b"PAR1", "Parquet"),
        ("footer lost", good[:100] + good[-8:], "Parquet"),
        ("text", GOOD.encode(), "not a Parquet file"),
    ):
        path = tmp_path / f"{name}.parquet"
        path.write_bytes(data)
        error = refusal(path, robot)
        assert error.exit_code == 3
        assert words in str(error)


def test_flipped_bits_of_parquet_never_crash(robot: th.Robot, tmp_path: Path) -> None:
    good = parquet(tmp_path / "good.parquet").read_bytes()
    path, rng = tmp_path / "log.parquet", np.random.default_rng(0)
    for _ in range(60):
        data = bytearray(good)
        data[rng.integers(len(data))] ^= 1 << rng.integers(8)
        path.write_bytes(data)
        try:
            read_log(path, robot)
        except th.ThetahatError as error:
            assert "\n" not in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"q2": [None if i == 17 else 1.0 for i in range(40)]}, ["row 17", "'q2'", "null"]),
        ({"q2": [float("nan") if i == 17 else 1.0 for i in range(40)]}, ["row 17", "'q2'", "nan"]),
        ({"q2": ["x"] * 40}, ["'q2'", "not a number"]),
        ({"t": [datetime.time(0, 0, 0, i) for i in range(40)]}, ["'t'", "seconds"]),
        ({"t": [0.0] * 40}, ["row 1 ", "repeats"]),
    ],
)
def test_bad_parquet_values(robot: th.Robot, tmp_path: Path, other: dict, words: list[str]) -> None:
    error = refusal(parquet(tmp_path / "log.parquet", **other), robot)
    assert error.exit_code == 3
    for word in words:
        assert word in str(error)


def test_whole_numbers_in_parquet_are_numbers(robot: th.Robot, tmp_path: Path) -> None:
    log = read_log(
        parquet(
            tmp_path / "log.parquet",
            tau1=np.arange(40, dtype=np.int32),
            tau2=np.arange(40, dtype=np.float32),
        ),
        robot,
    )
    np.testing.assert_array_equal(log.read()[0].tau, np.column_stack([np.arange(40.0)] * 2))


def test_a_parquet_bomb_is_refused(robot: th.Robot, tmp_path: Path) -> None:
    import polars

    path = tmp_path / "bomb.parquet"
    polars.select(
        polars.repeat(0.0, 40_000_000).alias("t"), polars.repeat(0.0, 40_000_000).alias("q1")
    ).write_parquet(path)
    assert refusal(path, robot).exit_code == 7


# -- NPZ -------------------------------------------------------------------------------------------


class Trap:
    """Leaves a mark if it is ever unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


def test_pickles_are_refused_and_never_run(robot: th.Robot, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    pickle.loads(pickle.dumps(Trap(mark)))
    assert mark.exists(), "the trap works"
    mark.unlink()
    good = columns()
    np.savez(tmp_path / "object.npz", **good, extra=np.array([Trap(mark)], dtype=object))
    np.savez(tmp_path / "column.npz", **(good | {"q1": np.array([Trap(mark)] * 40, dtype=object)}))
    (tmp_path / "pickle.npz").write_bytes(pickle.dumps(Trap(mark)))
    (tmp_path / "log.pkl").write_bytes(pickle.dumps(Trap(mark)))
    with zipfile.ZipFile(tmp_path / "member.npz", "w") as archive:
        archive.writestr("q.npy", pickle.dumps(Trap(mark)))
    structured = np.zeros(3, dtype=[("a", "f8"), ("b", object)])
    np.savez(tmp_path / "structured.npz", **good, extra=structured)
    for name in (
        "object.npz",
        "column.npz",
        "pickle.npz",
        "log.pkl",
        "member.npz",
        "structured.npz",
    ):
        error = refusal(tmp_path / name, robot)
        assert error.exit_code == 7, name
    assert not mark.exists()


def test_a_zip_bomb_is_refused_before_it_is_unpacked(robot: th.Robot, tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, t=np.zeros(20_000_000), q=np.zeros(20_000_000))
    assert path.stat().st_size < 10**6
    error = refusal(path, robot)
    assert error.exit_code == 7
    assert "unpacks to" in str(error)


def test_bad_npz(robot: th.Robot, tmp_path: Path) -> None:
    good = columns()
    buffer = io.BytesIO()
    np.savez(buffer, **good)
    whole = buffer.getvalue()
    flipped = bytearray(whole)
    flipped[whole.index(b"q1.npy") + 200] ^= 4  # inside an array: the zip file's CRC tells
    cases = {
        "empty": (b"", 3, "empty"),
        "cut": (whole[:-100], 3, "cut off"),
        "flipped": (bytes(flipped), 3, "damaged"),
        "text": (GOOD.encode(), 3, "not an NPZ"),
    }
    for name, (data, code, words) in cases.items():
        path = tmp_path / f"{name}.npz"
        path.write_bytes(data)
        error = refusal(path, robot)
        assert (error.exit_code, words in str(error)) == (code, True), str(error)
    for name, change, words in (
        ("lengths", {"q1": np.zeros(39)}, "39 rows"),
        ("nan", {"q1": np.where(np.arange(40) == 5, np.nan, 0.0)}, "row 5"),
        ("text", {"q1": np.array(["x"] * 40)}, "not numbers"),
    ):
        np.savez(tmp_path / f"{name}.npz", **(good | change))
        error = refusal(tmp_path / f"{name}.npz", robot)
        assert (error.exit_code, words in str(error)) == (3, True), str(error)
    np.savez(tmp_path / "none.npz", **{name: array[:0] for name, array in good.items()})
    assert refusal(tmp_path / "none.npz", robot).exit_code == 5


def test_an_array_that_lies_about_its_shape_is_refused(robot: th.Robot, tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f8", "fortran_order": False, "shape": (10**15,)}
    )
    with zipfile.ZipFile(tmp_path / "log.npz", "w") as archive:
        archive.writestr("t.npy", header.getvalue() + bytes(80))
    error = refusal(tmp_path / "log.npz", robot)
    assert (error.exit_code, "shape" in str(error)) == (3, True)


def test_a_large_column_major_array_is_refused(
    robot: th.Robot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(npz_format, "MAX_FORTRAN", 100)
    np.savez(tmp_path / "log.npz", t=np.arange(40.0), q=np.asfortranarray(np.zeros((40, 2))))
    error = refusal(tmp_path / "log.npz", robot)
    assert (error.exit_code, "ascontiguousarray(q)" in str(error)) == (7, True)


# -- files -----------------------------------------------------------------------------------------


def test_files_that_are_none(robot: th.Robot, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "log.xyz").write_text(GOOD)
    (tmp_path / "log.csv.gz").write_bytes(gzip.compress(GOOD.encode()))
    os.mkfifo(tmp_path / "pipe.csv")
    for name, code in (
        ("absent.csv", 6),
        ("absent.xyz", 6),
        ("folder", 6),
        ("folder.csv", 6),
        ("log.xyz", 3),
        ("log.csv.gz", 7),
        ("pipe.csv", 6),
        ("none*.csv", 6),
    ):
        with pytest.raises(th.ThetahatError) as caught:
            read_log(tmp_path / name, robot)
        assert caught.value.exit_code == code, str(caught.value)


def test_a_file_that_grows_or_vanishes_is_a_storage_error(robot: th.Robot, tmp_path: Path) -> None:
    many = (
        "\n".join([HEADER, *(f"{i * 0.01:.2f},0,0,0,0,{i % 3},{i % 4}" for i in range(3000))])
        + "\n"
    )
    for name, change in (
        ("grows", lambda p: p.open("a").write(many[-60:])),
        ("vanishes", Path.unlink),
        ("rewritten", lambda p: p.write_text(many.replace("0,0", "0,1"))),
    ):
        path = tmp_path / f"{name}.csv"
        path.write_text(many)
        log = read_log(path, robot)
        chunks = log.chunks(100)
        next(chunks)
        change(path)
        with pytest.raises(th.ThetahatError) as caught:
            list(chunks)
        assert caught.value.exit_code == 6
        with pytest.raises(th.ThetahatError) as caught:  # and once more, from the start
            list(log.chunks())
        assert caught.value.exit_code == 6


def test_a_recording_under_way_is_named_as_such(
    robot: th.Robot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.csv"
    path.write_text(GOOD)
    reading = csv_format.CsvTable._pieces

    def growing(self, file, digest):
        with path.open("a") as more:
            more.write("0.41,1,2")
        yield from reading(self, file, digest)

    monkeypatch.setattr(csv_format.CsvTable, "_pieces", growing)
    with pytest.raises(th.ThetahatError) as caught:
        read_log(path, robot)
    assert caught.value.exit_code == 6, "a cut row is the symptom, the growth is the cause"
    assert "bytes while it was read" in str(caught.value)


def test_files_of_one_log_have_the_same_columns(robot: th.Robot, tmp_path: Path) -> None:
    good = columns()
    a = write_table(tmp_path / "a.csv", list(good), list(good.values()))
    b = write_table(tmp_path / "b.csv", list(good)[:-1], list(good.values())[:-1])
    with pytest.raises(
        th.ThetahatError, match=r"b\.csv and .*a\.csv bring different columns \(tau2"
    ):
        read_log([a, b], robot)


@pytest.mark.parametrize(
    "patterns", ["q", "q=x", "z={joint}", "q={joint},q={number}", {"q": 3}, "q=p_{joint}"]
)
def test_bad_patterns(robot: th.Robot, tmp_path: Path, patterns: object) -> None:
    path = tmp_path / "log.csv"
    path.write_text(GOOD)
    with pytest.raises(th.ThetahatError) as caught:
        read_log(path, robot, columns=patterns)
    assert caught.value.exit_code == (3 if patterns == "q=p_{joint}" else 2)


@pytest.mark.parametrize("arguments", [(3,), (None,), ([],), ([3],)])
def test_bad_arguments(robot: th.Robot, arguments: tuple) -> None:
    with pytest.raises(th.ThetahatError) as caught:
        read_log(*arguments, robot)
    assert caught.value.exit_code == 2


def test_bad_chunk_size_and_robot(robot: th.Robot, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(GOOD)
    for rows in (0, -1, 1.5, None):
        with pytest.raises(th.ThetahatError, match="whole number"):
            list(read_log(path, robot).chunks(rows))
    with pytest.raises(th.ThetahatError, match="Robot"):
        read_log(path, "double_pendulum")


def test_arrays_in_place_of_a_file_are_one_short_sentence(robot: th.Robot) -> None:
    columns = {f"{kind}{j}": np.zeros(4000) for kind in ("q", "dq", "tau") for j in (1, 2)}
    with pytest.raises(th.ThetahatError, match="give a log file") as caught:
        read_log(columns, robot)  # type: ignore[arg-type]
    assert len(str(caught.value)) < 400
