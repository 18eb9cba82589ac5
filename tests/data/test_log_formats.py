"""MATLAB, Feather and Arrow files, list columns, LeRobot datasets, RTDE and PlotJuggler files."""

from __future__ import annotations

import datetime
import json
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars
import pytest
import scipy.io

import thetahat as th
from thetahat import robots
from thetahat.data.formats import mat as mat_format
from thetahat.data.log import Log, read_log

h5py = pytest.importorskip("h5py")

ROWS = 300
T = np.arange(ROWS) * 0.005
Q = np.column_stack([np.sin(2.0 * T), 0.5 * np.cos(3.0 * T)])
DQ = np.column_stack([2.0 * np.cos(2.0 * T), -1.5 * np.sin(3.0 * T)])
TAU = 1.5 + Q
ARRAYS = {"t": T, "q": Q, "dq": DQ, "tau": TAU}


@pytest.fixture(scope="module")
def robot() -> th.Robot:
    return th.load(robots.path("double_pendulum"))


def check(log: Log) -> None:
    chunks = list(log.chunks())
    for name, wanted in ARRAYS.items():
        found = np.concatenate([getattr(chunk, name) for chunk in chunks])
        np.testing.assert_array_equal(found, wanted)


def refused(path: Path, robot: th.Robot, code: int, *words: str, **options: object) -> None:
    with pytest.raises(th.ThetahatError) as caught:
        read_log(path, robot, **options)  # type: ignore[arg-type]
    message = str(caught.value)
    assert caught.value.exit_code == code, message
    assert "\n" not in message
    for word in words:
        assert word in message, message


# -- MATLAB ------------------------------------------------------------------------------------------


def save_v73(path: Path, arrays: dict[str, object]) -> None:
    """Write as MATLAB does: matrices transposed, structs as groups, a header before HDF5's."""

    def put(group: h5py.Group, arrays: dict[str, object]) -> None:
        for name, array in arrays.items():
            if isinstance(array, dict):
                inner = group.create_group(name)
                inner.attrs["MATLAB_class"] = np.bytes_("struct")
                put(inner, array)
                continue
            matrix = np.atleast_2d(np.asarray(array))
            data = group.create_dataset(name, data=matrix.T, compression="gzip")
            data.attrs["MATLAB_class"] = np.bytes_("double")

    with h5py.File(path, "w", userblock_size=512) as file:
        put(file, arrays)
    with path.open("r+b") as raw:
        raw.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\0\x02IM")


WRITERS: dict[str, Callable[[Path, dict[str, object]], None]] = {
    "v5": lambda path, arrays: scipy.io.savemat(path, arrays),
    "v7": lambda path, arrays: scipy.io.savemat(path, arrays, do_compression=True),
    "v7.3": save_v73,
}


@pytest.mark.parametrize("version", WRITERS)
@pytest.mark.parametrize("layout", ["rows", "columns", "struct", "two structs"])
def test_matlab_files(
    robot: th.Robot, tmp_path: Path, version: str, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays: dict[str, object] = {"t": T[:, None], "q": Q, "dq": DQ, "tau": TAU}
    options = {}
    if layout == "columns":
        arrays = {"t": T[None], "q": Q.T, "dq": DQ.T, "tau": TAU.T, "gain": np.eye(3)}
    elif layout == "struct":
        arrays = {"log": arrays}
    elif layout == "two structs":
        arrays = {"log": {**arrays}, "other": {"x": np.zeros((4, 4))}}
        options["columns"] = "t=log.t,q=log.q{number},dq=log.dq{number},tau=log.tau{number}"
    path = tmp_path / "log.mat"
    WRITERS[version](path, arrays)
    check(read_log(path, robot, **options))
    monkeypatch.setattr(mat_format, "SLICE_ROWS", 37)
    check(read_log(path, robot, **options))


def test_matlab_texts_tell_runs_apart(robot: th.Robot, tmp_path: Path) -> None:
    path = tmp_path / "log.mat"
    scipy.io.savemat(path, {**ARRAYS, "seg": np.repeat(["go", "back"], ROWS // 2)})
    assert [run.name for run in read_log(path, robot).runs] == ["go", "back"]
    scipy.io.savemat(path, {**ARRAYS, "seg": np.repeat([1.0, 2.0], ROWS // 2)})
    assert [run.name for run in read_log(path, robot).runs] == ["1", "2"]


def test_bad_matlab_files(robot: th.Robot, tmp_path: Path) -> None:
    path = tmp_path / "log.mat"
    path.write_bytes(b"")
    refused(path, robot, 3, "log.mat", "empty")
    path.write_bytes(b"not MATLAB" * 50)
    refused(path, robot, 3, "log.mat", "not a MATLAB file")
    scipy.io.savemat(path, ARRAYS)
    good = path.read_bytes()
    path.write_bytes(good[:-100])
    refused(path, robot, 3, "cut off")
    scipy.io.savemat(path, {"text": "hello"})
    refused(path, robot, 3, "no numeric arrays", "save(")
    scipy.io.savemat(path, {**ARRAYS, "q": Q[:-1]})
    refused(path, robot, 3, "'q'", "299×2", "300 stamps")
    scipy.io.savemat(path, {**ARRAYS, "q": np.where(Q > 0.49, np.nan, Q)})
    refused(path, robot, 3, "row 0", "'q2'", "nan")
    bomb = zlib.compress(bytes(80 * 2**20))
    head = good[:128]
    path.write_bytes(head + (15).to_bytes(4, "little") + len(bomb).to_bytes(4, "little") + bomb)
    refused(path, robot, 7, "unpacks to more than")
    rng = np.random.default_rng(0)
    scipy.io.savemat(path, ARRAYS, do_compression=True)
    for whole in (good, path.read_bytes()):
        for _ in range(40):
            damaged = bytearray(whole)
            damaged[rng.integers(128, len(damaged))] ^= 1 << rng.integers(8)
            path.write_bytes(damaged)
            try:
                read_log(path, robot)
            except th.ThetahatError as error:
                assert "\n" not in str(error)  # noqa: PT017


def test_bad_matlab_7_3_files(
    robot: th.Robot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.mat"
    secret = tmp_path / "secret.h5"
    with h5py.File(secret, "w") as file:
        file["q"] = Q.T
    with h5py.File(path, "w") as file:
        file["t"] = T[:, None].T
        file["q"] = h5py.ExternalLink(str(secret), "q")
    refused(path, robot, 7, "'q'", "link")
    with h5py.File(path, "w") as file:
        file["t"] = T[None]
        file.create_dataset("q", (2, ROWS), "f8", external=[(str(secret), 0, 16 * ROWS)])
    refused(path, robot, 7, "'q'", "another file")
    with h5py.File(path, "w") as file:
        file.create_dataset("t", (1, 10**8), "f8", compression="gzip", chunks=(1, 10**5))
    refused(path, robot, 7, "unpacks to")
    save_v73(path, {"t": T[:, None], "q": Q})
    path.write_bytes(path.read_bytes()[:-900])
    refused(path, robot, 3, "cannot be read as a MATLAB file")
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    refused(path, robot, 2, "extra 'mat'", "'-v7'")


# -- columnar files ----------------------------------------------------------------------------------


def named() -> dict[str, np.ndarray]:
    out = {"t": T}
    for kind in ("q", "dq", "tau"):
        out |= {f"{kind}{j + 1}": ARRAYS[kind][:, j] for j in range(2)}
    return out


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
@pytest.mark.parametrize("suffix", [".feather", ".arrow"])
def test_feather_files(robot: th.Robot, tmp_path: Path, compression: str, suffix: str) -> None:
    path = tmp_path / f"log{suffix}"
    polars.DataFrame(named()).write_ipc(path, compression=compression)  # type: ignore[arg-type]
    check(read_log(path, robot))


def test_bad_feather_files(robot: th.Robot, tmp_path: Path) -> None:
    path = tmp_path / "log.feather"
    path.write_bytes(b"")
    refused(path, robot, 3, "empty")
    path.write_bytes(b"FEA1" + bytes(50))
    refused(path, robot, 3, "version 1", "Parquet")
    path.write_bytes(b"PAR1" + bytes(50))
    refused(path, robot, 3, "not a Feather")
    polars.DataFrame(named()).write_ipc(path)
    good = path.read_bytes()
    path.write_bytes(good[:-9])
    refused(path, robot, 3, "footer")
    rng = np.random.default_rng(0)
    for _ in range(20):
        damaged = bytearray(good)
        damaged[rng.integers(len(damaged) - 400, len(damaged))] ^= 1 << rng.integers(8)
        path.write_bytes(damaged)
        try:
            read_log(path, robot)
        except th.ThetahatError as error:
            assert "\n" not in str(error)  # noqa: PT017


@pytest.mark.parametrize("suffix", [".parquet", ".feather"])
@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_datetime_columns(robot: th.Robot, tmp_path: Path, suffix: str, unit: str) -> None:
    start = datetime.datetime(2024, 5, 17, 8, tzinfo=datetime.UTC)
    moments = [start + datetime.timedelta(milliseconds=5 * k) for k in range(ROWS)]
    frame = polars.DataFrame(named()).with_columns(
        polars.Series("t", moments, dtype=polars.Datetime(unit, "UTC"))  # type: ignore[arg-type]
    )
    path = tmp_path / f"log{suffix}"
    frame.write_parquet(path) if suffix == ".parquet" else frame.write_ipc(path)
    (chunk,) = read_log(path, robot).read()
    np.testing.assert_allclose(chunk.t - start.timestamp(), T, rtol=0, atol=3e-7)
    np.testing.assert_array_equal(chunk.q, Q)


@pytest.mark.parametrize("kind", [polars.List(polars.Float64), polars.Array(polars.Float64, 2)])
def test_list_columns_are_matrices(robot: th.Robot, tmp_path: Path, kind: polars.DataType) -> None:
    lists = {name: polars.Series(ARRAYS[name].tolist(), dtype=kind) for name in ("q", "dq", "tau")}
    path = tmp_path / "log.parquet"
    polars.DataFrame({"t": T, **lists}).write_parquet(path)
    check(read_log(path, robot))
    short = [row[:1] if k == 17 else row for k, row in enumerate(Q.tolist())]
    polars.DataFrame({"t": T, "q": short}).write_parquet(path)
    refused(path, robot, 3, "row 17", "'q'", "1 numbers", "first row has 2")


# -- LeRobot -----------------------------------------------------------------------------------------

EPISODES = (100, 120, 80)


def dataset(folder: Path, version: int, names: object = ("shoulder.pos", "elbow.pos")) -> Path:
    """A dataset as LeRobot lays it out, made here."""
    features = {
        "observation.state": {"dtype": "float32", "shape": [2], "names": names and list(names)},  # type: ignore[call-overload]
        "action": {"dtype": "float32", "shape": [2], "names": {"motors": ["shoulder", "elbow"]}},
        "observation.images.front": {"dtype": "video", "shape": [480, 640, 3]},
    }
    (folder / "meta").mkdir(parents=True)
    info = {"codebase_version": f"v{version}.0", "fps": 200, "features": features}
    (folder / "meta" / "info.json").write_text(json.dumps(info))
    edges = np.cumsum((0, *EPISODES))
    frame = polars.DataFrame(
        {
            "observation.state": Q.tolist(),
            "observation.velocity": DQ.tolist(),
            "observation.effort": TAU.tolist(),
            "action": (Q + 0.01).tolist(),
            "timestamp": np.concatenate([T[:count] for count in EPISODES]),
            "frame_index": np.concatenate([np.arange(count) for count in EPISODES]),
            "episode_index": np.repeat(np.arange(3), EPISODES),
            "index": np.arange(ROWS),
        }
    )
    chunk = folder / "data" / "chunk-000"
    chunk.mkdir(parents=True)
    parts = zip(edges[:-1], EPISODES, strict=True) if version == 2 else [(0, 220), (220, 80)]
    for k, (first, count) in enumerate(parts):
        name = f"episode_{k:06d}" if version == 2 else f"file-{k:03d}"
        frame.slice(int(first), int(count)).write_parquet(chunk / f"{name}.parquet")
    return folder


@pytest.mark.parametrize("version", [2, 3])
def test_lerobot_datasets(robot: th.Robot, tmp_path: Path, version: int) -> None:
    columns = (
        "q=observation.state{number},dq=observation.velocity{number},tau=observation.effort{number}"
    )
    folder = dataset(tmp_path / "set", version)
    for options in ({}, {"format": "lerobot"}, {"columns": columns}):
        log = read_log(folder, robot, **options)
        assert [(run.name, run.rows) for run in log.runs] == [("0", 100), ("1", 120), ("2", 80)]
        chunks = list(log.chunks())
        np.testing.assert_array_equal(np.concatenate([chunk.q for chunk in chunks]), Q)
        np.testing.assert_array_equal(np.concatenate([chunk.dq for chunk in chunks]), DQ)
        np.testing.assert_array_equal(np.concatenate([chunk.tau for chunk in chunks]), TAU)
        np.testing.assert_array_equal(chunks[1].t, T[:120])
    assert len(log.sources) == (3 if version == 2 else 2)
    ignored = next(
        f.message for f in read_log(folder, robot).findings if f.kind == "ignored-columns"
    )
    assert "cmd.shoulder" in ignored


def test_bad_lerobot_datasets(robot: th.Robot, tmp_path: Path) -> None:
    refused(
        dataset(tmp_path / "names", 3, ("left", "right")),
        robot,
        3,
        "left, right",
        "shoulder, elbow",
    )
    check_q = read_log(dataset(tmp_path / "none", 3, None), robot)
    np.testing.assert_array_equal(np.concatenate([c.q for c in check_q.chunks()]), Q)
    refused(dataset(tmp_path / "three", 3, ("a", "b", "c")), robot, 3, "3 names", "2 numbers")
    folder = dataset(tmp_path / "broken", 3)
    (folder / "meta" / "info.json").write_text("{")
    refused(folder, robot, 3, "info.json", "not JSON")
    folder = dataset(tmp_path / "empty", 3)
    for file in folder.glob("data/*/*"):
        file.unlink()
    refused(folder, robot, 3, "no data/chunk-*")
    folder = dataset(tmp_path / "nan", 2)
    last = folder / "data/chunk-000/episode_000002.parquet"
    frame = polars.read_parquet(last)
    state = [
        [float("nan"), 1.0] if k == 7 else row
        for k, row in enumerate(frame["observation.state"].to_list())
    ]
    frame.with_columns(polars.Series("observation.state", state)).write_parquet(last)
    refused(folder, robot, 3, "episode_000002.parquet", "row 7", "nan")
    log = read_log(folder, robot, skip_bad_rows=True)
    assert log.rows == ROWS - 1
    (tmp_path / "bare").mkdir()
    refused(tmp_path / "bare", robot, 6, "folder", format="lerobot")
    (folder / "data/chunk-000/zz.parquet").symlink_to(Path("/etc/hostname"))
    refused(folder, robot, 7, "leaves the dataset")


# -- recorders ---------------------------------------------------------------------------------------


def test_rtde_files(tmp_path: Path) -> None:
    """UR's client writes spaces between columns, and joints counted from 0."""
    robot = th.load(robots.path("arm4"))
    q = np.column_stack([np.sin(T + k) for k in range(4)])
    head = [
        "timestamp",
        *(
            f"{name}_{k}"
            for name in ("target_q", "actual_q", "actual_qd", "actual_current")
            for k in range(4)
        ),
    ]
    rows = np.column_stack([T, q + 0.1, q, np.cos(T)[:, None] * np.ones(4), q / 10.0])
    path = tmp_path / "robot_data.csv"

    def save(head: list[str], rows: np.ndarray) -> None:
        lines = [" ".join(repr(float(x)) for x in row) for row in rows]
        path.write_text("\n".join([" ".join(head), *lines]) + "\n")

    save(head, rows)
    log = read_log(path, robot, format="rtde")
    (chunk,) = log.read()
    np.testing.assert_array_equal(chunk.q, q)
    assert chunk.tau is None
    told = next(finding.message for finding in log.findings if finding.kind == "currents")
    assert "N·m per A" in told
    gains = ",".join(f"tau.{joint}=10" for joint in robot.joint_names)
    log = read_log(path, robot, format="rtde", columns="tau=actual_current_{index}", units=gains)
    (chunk,) = log.read()
    np.testing.assert_allclose(chunk.tau, q, rtol=1e-14)
    torques = [name.replace("actual_current", "actual_current_as_torque") for name in head]
    save(torques, rows)
    (chunk,) = read_log(path, robot, format="rtde").read()
    np.testing.assert_array_equal(chunk.tau, q / 10.0)
    save(["time", *head[1:]], rows)
    refused(path, robot, 3, "not of format rtde", "'timestamp'", format="rtde")


def test_plotjuggler_files(robot: th.Robot, tmp_path: Path) -> None:
    """Rows of other topics leave the joints' cells empty."""
    joints = robot.joint_names
    fields = ("position", "velocity", "effort")
    head = [
        "__time",
        "/imu/x",
        *(f"/joint_states/{joint}/{field}" for joint in joints for field in fields),
    ]
    lines = [",".join(head)]
    for k, t in enumerate(T):
        cells = [ARRAYS[kind][k, j] for j in range(2) for kind in ("q", "dq", "tau")]
        lines.append(f"{float(t)!r},," + ",".join(repr(float(cell)) for cell in cells))
        lines += [f"{float(t) + 0.002!r},1.5," + "," * 5] * (k % 3)
    path = tmp_path / "export.csv"
    path.write_text("\n".join(lines) + "\n")
    log = read_log(path, robot, format="plotjuggler")
    check(log)
    told = [finding.message for finding in log.findings if finding.kind == "skipped-rows"]
    assert len(told) == 1
    assert "300 of 600 rows hold other channels alone" in told[0]
    lines[4] = lines[4].rpartition(",")[0] + ","
    path.write_text("\n".join(lines) + "\n")
    refused(path, robot, 3, "line 5", "effort", "--skip-bad-rows", format="plotjuggler")
    path.write_text(
        "\n".join(lines).replace("/joint_states/elbow/position", "/other/elbow/position") + "\n"
    )
    refused(path, robot, 3, "2 topics", "--topic", format="plotjuggler")
    refused(path, robot, 3, "topic 'x'", format="plotjuggler", topic="x")
    path.write_text("\n".join(lines).replace("__time", "time") + "\n")
    refused(path, robot, 3, "not of format plotjuggler", format="plotjuggler")
    refused(path, robot, 2, "formats: rtde, plotjuggler, lerobot", format="rosbag")
