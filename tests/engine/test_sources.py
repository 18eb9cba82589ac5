"""Where logs are: URLs of every kind, what tells one file from its successor, and the copies that
are kept.
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fleet_cases import arm, columns, fitted, folder_of, one_pass, write
from fleet_cli_cases import QUICK, Thetahat, require_same_answer, thetahat  # noqa: F401 (a fixture)
from store_cases import ROWS

from thetahat.data.prepare import choose
from thetahat.engine import sources
from thetahat.engine.cache import Store
from thetahat.engine.reduce import ShardReducer
from thetahat.engine.row_reader import Reading
from thetahat.engine.shard_work import Fold, Preparation
from thetahat.errors import MissingExtra

fsspec = pytest.importorskip("fsspec", reason="fsspec comes with the extra dask")
MEMORY = fsspec.get_filesystem_class("memory")


class Server(MEMORY):
    """A file system with the habits of fsspec's HTTP: a file's key is its address, and what tells
    its content is in its info alone.
    """

    protocol = "http"
    store: dict[str, Any] = {}  # noqa: RUF012 (as fsspec's own)
    pseudo_dirs = [""]  # noqa: RUF012

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path

    def ukey(self, path: str) -> str:
        return path

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        data = type(self).store.get(path)
        if data is None:
            raise FileNotFoundError(path)
        return {"name": path, "size": len(data), "type": "file", "ETag": str(hash(data))}

    def isdir(self, path: str) -> bool:
        return False

    def exists(self, path: str, **_: Any) -> bool:
        return path in type(self).store

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        import io

        return io.BytesIO(type(self).store[path])


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Copies of remote files go here."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    yield folder
    while sources._held:
        sources._held.popitem()[1].close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(Server, "store", {})
    monkeypatch.setitem(sys.modules["fsspec.registry"]._registry, "http", Server)
    return Server.store


def test_identify_takes_a_url_without_any_option(thetahat: Thetahat, tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "logs", 2)
    memory = fsspec.filesystem("memory")
    for path in folder.iterdir():
        memory.pipe(f"/plain/{path.name}", path.read_bytes())
    try:
        wanted = thetahat(
            "identify", "arm4", folder, "--out", tmp_path / "a", "--json", *QUICK
        ).data
        done = thetahat(
            "identify", "arm4", "memory://plain", "--out", tmp_path / "b", "--json", *QUICK
        )
        assert done.code == 0, done.err
        require_same_answer(wanted, done.data)
    finally:
        memory.rm("/plain", recursive=True)


def test_a_log_that_is_replaced_at_the_same_address_is_read_anew(
    server: dict[str, Any], tmp_path: Path
) -> None:
    for seed in (1, 2):
        server["http://lab/run.parquet"] = write(
            tmp_path / "run.parquet", columns(seed)
        ).read_bytes()
        (entry,) = ShardReducer().scan("http://lab/run.parquet", arm()).entries
        (wanted,) = ShardReducer().scan(tmp_path / "run.parquet", arm()).entries
        assert entry.file.digest == wanted.file.digest


def test_a_presigned_address_is_a_log_by_its_name_and_its_signature_is_not_told(
    server: dict[str, Any], tmp_path: Path
) -> None:
    url = "http://lab/run.parquet?X-Amz-Signature=secret&X=1"
    server[url] = write(tmp_path / "run.parquet", columns(1)).read_bytes()
    files = ShardReducer().scan(url, arm())
    work = Fold(Preparation(arm(), settings := choose(files.log, arm())), fitted(arm()))
    found, told = ShardReducer(rows=ROWS).fold(files, work)
    assert (told.shards, found.samples) == (4, 4_000)
    assert np.array_equal(
        found.rows,
        one_pass(arm(), tmp_path / "run.parquet", fitted=fitted(arm()), settings=settings).rows,
    )
    assert [source.path for source in files.log.sources] == ["http://lab/run.parquet"]
    del server[url]
    with pytest.raises(Exception, match=r"run\.parquet") as caught:
        ShardReducer().scan(url, arm())
    assert "secret" not in str(caught.value)


def test_logs_in_an_archive_keep_where_it_is(tmp_path: Path) -> None:
    archive = tmp_path / "x.zip"
    for seeds in ((1, 2), (3, 2)):
        with zipfile.ZipFile(archive, "w") as file:
            for seed in seeds:
                file.write(write(tmp_path / f"{seed}.parquet", columns(seed)), f"run{seed}.parquet")
        files = ShardReducer().scan(f"zip://*.parquet::file://{archive}", arm())
        assert sorted(entry.item.place for entry in files.entries) == [
            f"zip://run{seed}.parquet::file://{archive}" for seed in sorted(seeds)
        ]
        assert files.log.rows == 8_000


def test_what_a_protocol_needs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks(*_: Any, **__: Any) -> None:
        raise ImportError('HTTPFileSystem requires "requests" and "aiohttp" to be installed')

    monkeypatch.setattr("fsspec.core.url_to_fs", lacks)
    with pytest.raises(MissingExtra, match="pip install aiohttp"):
        ShardReducer().scan("https://lab/run.parquet", arm())


def test_copies_stay_within_bounds_and_those_in_use_stay(
    server: dict[str, Any], scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "FETCHED_BYTES", 2_500)
    monkeypatch.setattr(sources, "HELD", 2)
    items = [sources.Item(f"http://lab/{k}.csv", "") for k in range(8)]
    for item in items:
        server[item.place] = item.place.encode() * 50  # about 1 kB
        copy = item.local()
        assert copy.read_bytes() == server[item.place]
        assert sum(path.stat().st_size for path in scratch.rglob("*.csv")) <= 2_500
    assert items[-2].local().exists()  # the last ones asked for are in use
    monkeypatch.setattr(sources, "FETCHED_BYTES", 0)
    last, new = items[-1].local(), sources.Item("http://lab/9.csv", "")
    server[new.place] = b"x"
    new.local()
    assert last.exists()


def test_two_topics_of_one_bag_are_two_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "thetahat.engine.cache.SETTLING_TIME", -1.0
    )  # a file written just now counts as known
    pytest.importorskip("rosbags", reason="bags are written by rosbags (pip install rosbags)")
    from bag_files import START, message, typestore
    from rosbags import rosbag2

    types, joints = typestore(), arm().joint_names
    writer = rosbag2.Writer(tmp_path / "bag", version=9, storage_plugin=rosbag2.StoragePlugin.MCAP)
    sides = {}
    for k, side in enumerate(("/left/joint_states", "/right/joint_states")):
        table = columns(k, seconds=10.0)
        sides[side] = {"t": table["t"]} | {
            kind: np.column_stack([table[f"{kind}.{joint}"] for joint in joints])
            for kind in ("q", "dq", "tau")
        }
    with writer:
        topics = {
            side: writer.add_connection(side, "sensor_msgs/msg/JointState", typestore=types)
            for side in sides
        }
        for i in range(2_000):
            for side, data in sides.items():
                told = types.serialize_cdr(
                    message(types, joints, i, data, stamped=True), "sensor_msgs/msg/JointState"
                )
                writer.write(topics[side], START + round(data["t"][i] * 1e9), told)
    left, right = sides
    with Store(tmp_path / "store") as store:

        def torque(side: str, cutoff: float, kept: Store | None = store) -> float:
            reducer = ShardReducer(store=kept, rows=500)
            files = reducer.scan(tmp_path / "bag", arm(), Reading(topic=side))
            found, _ = reducer.fold(
                files,
                Fold(Preparation(arm(), choose(files.log, arm(), cutoff=cutoff)), fitted(arm())),
            )
            return float(np.linalg.norm(found.torque_norms()))

        first = torque(left, 10.0)
        other = torque(right, 10.0)
        assert abs(first - other) > 0.01 * first
        assert torque(left, 10.5) == pytest.approx(torque(left, 10.5, None), rel=1e-12)
