"""What failed once, each made again from a valid input: exit 1, a hang, or a panic on stderr."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

Spoil = Callable[[bytes], bytes]
VALIDATE = "validate robot.urdf {} -q"
FIT = "identify robot.urdf log.csv --out OUT -q --no-tune --no-report"


@dataclass(frozen=True)
class Past:
    """A call of the command line that ended badly once, and how it has to end."""

    command: str
    code: int
    words: tuple[str, ...] = ()
    file: str = ""
    spoil: Spoil = bytes


def _cell(value: str, column: int = 1, row: int = 40) -> Spoil:
    def spoil(data: bytes) -> bytes:
        lines = data.decode().splitlines()
        cells = lines[row].split(",")
        cells[column] = value
        lines[row] = ",".join(cells)
        return ("\n".join(lines) + "\n").encode()

    return spoil


def _rows(value: str, column: int) -> Spoil:
    def spoil(data: bytes) -> bytes:
        for row in range(51, 71):
            data = _cell(value, column, row)(data)
        return data

    return spoil


def _frame(write: str, read: Callable[..., pl.DataFrame]) -> Spoil:
    def spoil(data: bytes) -> bytes:
        frame = read(io.BytesIO(data))
        values = frame["q.elbow"].to_list()
        values[17] = 3e19
        file = io.BytesIO()
        getattr(frame.with_columns(pl.Series("q.elbow", values)), write)(file)
        return file.getvalue()

    return spoil


def _array(data: bytes) -> bytes:
    arrays = {name: np.array(each) for name, each in np.load(io.BytesIO(data)).items()}
    arrays["q"][17, 1] = -3e19
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def _message(data: bytes) -> bytes:
    """Replace the elbow's position in a message of an MCAP file without checksums."""
    at = data.index(struct.pack("<d", _second_position(data)))
    return data[:at] + struct.pack("<d", 3e19) + data[at + 8 :]


def _second_position(data: bytes) -> float:
    from fuzz.samples import motion

    del data
    return float(motion(0)["q"][17, 1])


def _without(*path: str | int) -> Spoil:
    def spoil(data: bytes) -> bytes:
        document = json.loads(data)
        parent = _inside(document, path)
        del parent[path[-1]]
        return json.dumps(document).encode()

    return spoil


def _with(value: object, *path: str | int) -> Spoil:
    def spoil(data: bytes) -> bytes:
        document = json.loads(data)
        _inside(document, path)[path[-1]] = value
        return json.dumps(document).encode()

    return spoil


def _inside(document: Any, path: tuple[str | int, ...]) -> Any:
    for key in path[:-1]:
        document = document[key]
    return document


def _replaced(old: str, new: str) -> Spoil:
    return lambda data: data.replace(old.encode(), new.encode(), 1)


def _cut_header(data: bytes) -> bytes:
    """Cut the header of an array inside a bracket, which the tokenizer of Python's syntax minds."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(file, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "t.npy":
                content = content.replace(b"(200,)", b"(200, ")
            new.writestr(name, content)
    return file.getvalue()


RESULT = "result/estimate.json"
PAST = {
    "large position, CSV": Past(
        VALIDATE.format("log.csv"), 3, ("line 41", "q.shoulder", "3e+19"), "log.csv", _cell("3e19")
    ),
    "large position, Parquet": Past(
        VALIDATE.format("log.parquet"),
        3,
        ("row 17", "q.elbow", "3e+19"),
        "log.parquet",
        _frame("write_parquet", pl.read_parquet),
    ),
    "large position, NPZ": Past(
        VALIDATE.format("log.npz"), 3, ("row 17", "q2", "-3e+19"), "log.npz", _array
    ),
    "large position, MCAP": Past(
        VALIDATE.format("log.mcap"), 3, ("17", "elbow", "3e+19"), "log.mcap", _message
    ),
    "large position, motion": Past(
        "simulate robot.urdf motion.csv --plant own --out OUT.csv -q",
        3,
        ("line 41", "q.shoulder"),
        "motion.csv",
        _cell("-3e19"),
    ),
    "torques beyond any": Past(
        "tool poses.csv", 3, ("line 6", "tx", "1e+150"), "poses.csv", _cell("1e150", 7, 5)
    ),
    "full-width digit in a cell": Past(
        VALIDATE.format("log.csv"), 3, ("line 41", "not a number"), "log.csv", _cell("９")
    ),
    "superscript as a column": Past(
        VALIDATE.format("log.csv") + " --columns q=²-³,tau=6-7", 2, (), "log.csv"
    ),
    "header of an array": Past(VALIDATE.format("packed.npz"), 3, (), "packed.npz", _cut_header),
    "cutoff": Past(FIT + " --cutoff 1e-300", 2, ("--cutoff", "0.001 to 1e+06")),
    "score cutoff": Past(FIT + " --score-cutoff 1e-300", 2, ("--score-cutoff",)),
    "prior weight": Past(FIT + " --prior-weight 1e308", 2, ("--prior-weight", "1e+12")),
    "small prior weight": Past(FIT + " --prior-weight 1e-308", 2, ("--prior-weight", "1e-12")),
    "gravity": Past(FIT + " --gravity 0,0,1e308", 2, ("--gravity", "10000")),
    "gravity of inspect": Past("inspect robot.urdf --gravity 0,0,1e308", 2, ("--gravity",)),
    "total mass": Past(FIT + " --total-mass 1e308", 2, ("--total-mass", "1e+09")),
    "mass range": Past(FIT + " --mass-range 0,1e300", 2, ("--mass-range",)),
    "workers": Past(FIT + " --workers 100000", 2, ("--workers", "1 to ")),
    "harmonics": Past("excite robot.urdf --out OUT.csv --harmonics 100000 -q", 2, ("2 to 200",)),
    "points": Past("excite robot.urdf --out OUT.csv --points 100000 -q", 2, ("3 to 200",)),
    "duration": Past("excite robot.urdf --out OUT.csv --duration 1e9 -q", 2, ("100000",)),
    "starts": Past("excite robot.urdf --out OUT.csv --starts 1000000000 -q", 2, ("10,000",)),
    "poses": Past(
        "excite robot.urdf --out OUT.csv --for payload --link lower --poses 1000000 -q", 2, ("400",)
    ),
    "control for years": Past("control robot.urdf --duration 1e9 --out OUT -q", 2, ("cycles",)),
    "control at a gigahertz": Past("control robot.urdf --rate 1e9 --out OUT -q", 2, ("20000",)),
    "delay of decades": Past(
        "simulate robot.urdf motion.csv --plant own --out OUT.csv --delay 1e9 -q", 2, ("0 to 10",)
    ),
    "no verdict's level": Past(
        "validate robot.urdf log.csv --estimate result/estimate.json",
        3,
        ("'level'",),
        RESULT,
        _without("verdict", "level"),
    ),
    "a list for a name": Past(
        "diff result before.json", 3, ("base_parameters[0].name",), RESULT,
        _with([1], "base_parameters", 0, "name"),
    ),
    "an estimate's number beyond doubles": Past(
        "diff result before.json", 3, ("not JSON", "beyond"), RESULT, _with(10**400, "rank")
    ),
    "a drive's text for a number": Past(
        "export drives --to mjcf", 3, ("joints[0].kp",), "drives/actuators.json",
        _with("stiff", "joints", 0, "kp"),
    ),
    "a load's list for a mass": Past(
        "export tool.json --to kuka", 3, ("mass",), "tool.json", _with([1], "mass")
    ),
    "a gain's text": Past(
        "validate robot.urdf log.csv --gains gains.json", 3, ("gains.values[0]",), "gains.json",
        _with("x", "gains", "values", 0),
    ),
    "an integer of 5,000 digits in TOML": Past(
        "fleet fleet.toml --out OUT -q", 3, ("not TOML",), "fleet.toml",
        _replaced('"spring"', "9" * 5000),
    ),
    "a dotted key of 40 kB": Past(
        "fleet fleet.toml --out OUT -q", 3, (), "fleet.toml",
        _replaced('robot = "robot.urdf"', "robot" + ".a" * 20_000 + " = 1"),
    ),
    "a body of 1e-300 kg": Past(
        "identify robot.urdf log.csv --out OUT -q --no-tune --no-report", 0, (), "robot.urdf",
        _replaced('value="2.5"', 'value="1e-300"'),
    ),
    "positions at the edge of doubles": Past(
        FIT, 5, ("double precision", "q of elbow", "9.22e+18"), "log.csv", _rows("9.223372036854776e18", 2),
    ),
    "an inertia beyond any": Past(
        FIT, 5, ("double precision", "Izz"), "robot.urdf", _replaced('izz="0.005"', 'izz="-1e19"')
    ),
    "a gear of 1e150": Past(
        FIT + " --actuation map.csv", 3, ("line 2", "1e+150"), "map.csv",
        lambda _: b"a,b\n1e+150,0\n0.5,1\n",
    ),
    "a gain of 1e-300": Past(
        FIT + " --gains gains.json", 3, ("elbow", "1e-300"), "gains.json",
        _with(1e-300, "gains", "values", 1),
    ),
    "a capsule 3e19 m away": Past(
        "identify robot.xml log.csv --out OUT -q --no-tune --no-report", 3, ("upper", "3e+19 m"),
        "robot.xml", _replaced('pos="0 0 -0.2" mass="0"', 'pos="0 3e19 -0.2" mass="0"'),
    ),
    "a lock beside the journal": Past(
        "control robot.urdf --motion motion.csv --duration 1 --out OUT -q", 0,
    ),
    "a journal of a run that was refused": Past(
        "control robot.urdf --motion motion.csv --duration 1 --payload-link x --out OUT -q", 2,
    ),
    "drives that nothing determines": Past(
        "actuators robot.urdf drives.csv --out OUT -q", 5, ("singular",), "drives.csv",
        _rows("1e6", 2),
    ),
}  # fmt: skip
