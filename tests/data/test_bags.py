"""ROS bags and MCAP: what rosbags writes is what is read; damage is found by checksums; what is
left can be salvaged.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import bag_files
import numpy as np
import pytest

import thetahat as th
from thetahat import robots
from thetahat.data.formats.joint_state import BadMessage, Decoder
from thetahat.data.formats.mcap import McapFile
from thetahat.data.log import Chunk, read_log

pytest.importorskip("rosbags", reason="the extra 'ros' is not installed")

FLIPS = 300


@pytest.fixture(scope="module")
def robot() -> th.Robot:
    return th.load(robots.path("double_pendulum"))


@pytest.fixture(scope="module")
def mcap(robot: th.Robot, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """An MCAP file with all its checksums."""
    folder = bag_files.write_ros2(
        tmp_path_factory.mktemp("bag") / "bag", robot.joint_names, bag_files.motion()
    )
    return bag_files.with_checksums((folder / "bag.mcap").read_bytes())


def assert_equal(chunk: Chunk, data: dict[str, np.ndarray], rows: int | None = None) -> None:
    np.testing.assert_allclose(chunk.t, data["t"][:rows], atol=1e-9, rtol=0)
    for kind in ("q", "dq", "tau"):
        np.testing.assert_array_equal(getattr(chunk, kind), data[kind][:rows])


def refused(path: Path, robot: th.Robot, **options) -> th.ThetahatError:
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(th.ThetahatError) as caught:
        read_log(path, robot, **options)
    assert path.name in str(caught.value)
    assert "\n" not in str(caught.value)
    if path.is_file():
        assert path.read_bytes() == before
    return caught.value


# -- what is written is read -----------------------------------------------------------------------


def test_bags_of_every_kind(robot: th.Robot, tmp_path: Path, mcap: bytes) -> None:
    data = bag_files.motion()
    (tmp_path / "checked.mcap").write_bytes(mcap)
    paths = [
        bag_files.write_ros1(tmp_path / "one.bag", robot.joint_names, data),
        bag_files.write_ros2(tmp_path / "sqlite", robot.joint_names, data, storage="sqlite3"),
        tmp_path / "sqlite" / "sqlite.db3",
        bag_files.write_ros2(tmp_path / "plain", robot.joint_names, data),
        bag_files.write_ros2(tmp_path / "packed", robot.joint_names, data, compress=True),
        tmp_path / "checked.mcap",
    ]
    files = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    for path in paths:
        log = read_log(path, robot)
        assert_equal(log.read()[0], data)
        for source in log.sources:
            assert source.sha256 == hashlib.sha256(Path(source.path).read_bytes()).hexdigest()
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == files, (
        "nothing is written, no journal either"
    )


def test_only_checksums_make_a_bag_verified(robot: th.Robot, tmp_path: Path, mcap: bytes) -> None:
    plain = bag_files.write_ros2(tmp_path / "plain", robot.joint_names, bag_files.motion())
    (tmp_path / "checked.mcap").write_bytes(mcap)
    assert [f.kind for f in read_log(plain, robot).findings] == ["unverified"]
    assert [f.kind for f in read_log(tmp_path / "checked.mcap", robot).findings] == []


@pytest.mark.parametrize("encoding", ["cdr", "ros1"])
def test_the_decoder_agrees_with_rosbags(encoding: str) -> None:
    store = bag_files.typestore(ros1=encoding == "ros1")
    decoder, rng = Decoder(encoding), np.random.default_rng(0)
    for i in range(40):
        names = [
            f"joint_{'x' * int(rng.integers(0, 9))}{k}" for k in range(int(rng.integers(0, 5)))
        ]
        data = {"t": np.array([rng.uniform(0, 1e4)] * 1)} | {
            key: rng.normal(size=(1, len(names))) for key in ("q", "dq", "tau")[: 1 + i % 3]
        }
        written = bag_files.message(store, names, 0, data)
        serialise = store.serialize_cdr if encoding == "cdr" else store.serialize_ros1
        raw = bytes(serialise(written, "sensor_msgs/msg/JointState"))
        found = decoder.decode(raw)
        assert found.names == tuple(names)
        assert found.stamp == written.header.stamp.sec * 10**9 + written.header.stamp.nanosec
        for mine, theirs in (
            (found.position, written.position),
            (found.velocity, written.velocity),
            (found.effort, written.effort),
        ):
            np.testing.assert_array_equal(mine, theirs)
        for cut in range(0, len(raw), 7):
            with pytest.raises(BadMessage):
                Decoder(encoding).decode(raw[:cut])


def test_publishers_that_share_a_topic_and_other_orders(robot: th.Robot, tmp_path: Path) -> None:
    data = bag_files.motion()
    shared = bag_files.write_ros2(
        tmp_path / "shared",
        robot.joint_names,
        data,
        other=(("finger",), bag_files.motion(joints=1)),
    )
    log = read_log(shared, robot)
    assert_equal(log.read()[0], data)
    assert "30 messages" in next(f.message for f in log.findings if f.kind == "ignored-messages")
    turned = {key: array[:, ::-1] if array.ndim == 2 else array for key, array in data.items()}
    assert_equal(
        read_log(
            bag_files.write_ros2(tmp_path / "turned", robot.joint_names[::-1], turned), robot
        ).read()[0],
        data,
    )


def test_what_a_publisher_does_not_measure(robot: th.Robot, tmp_path: Path) -> None:
    data = bag_files.motion()
    positions = read_log(
        bag_files.write_ros2(
            tmp_path / "positions", robot.joint_names, {key: data[key] for key in ("t", "q")}
        ),
        robot,
    )
    assert (positions.has_dq, positions.has_tau) == (False, False)
    unknown = data | {"tau": np.full_like(data["tau"], np.nan)}
    assert not read_log(
        bag_files.write_ros2(tmp_path / "nan", robot.joint_names, unknown), robot
    ).has_tau
    broken = data | {"tau": data["tau"].copy()}
    broken["tau"][17, 1] = np.nan
    error = refused(bag_files.write_ros2(tmp_path / "broken", robot.joint_names, broken), robot)
    assert (error.exit_code, "message 17" in str(error), "tau.elbow" in str(error)) == (
        3,
        True,
        True,
    )


def test_messages_without_stamps_go_by_their_recording(robot: th.Robot, tmp_path: Path) -> None:
    data = bag_files.motion()
    log = read_log(
        bag_files.write_ros2(tmp_path / "bag", robot.joint_names, data, stamped=False), robot
    )
    assert_equal(log.read()[0], data)
    assert "unstamped" in [finding.kind for finding in log.findings]


# -- what is asked for is not there ----------------------------------------------------------------


def test_topics_and_names_that_are_not_there_are_listed(robot: th.Robot, tmp_path: Path) -> None:
    bag = bag_files.write_ros2(tmp_path / "bag", robot.joint_names, bag_files.motion())
    absent = refused(bag, robot, topic="/states")
    assert absent.exit_code == 3
    assert "/joint_states (sensor_msgs/msg/JointState)" in str(absent)
    assert "/chatter (std_msgs/msg/String)" in str(absent)
    assert "std_msgs/msg/String" in str(refused(bag, robot, topic="/chatter"))
    assert_equal(read_log(bag, robot, topic="/joint_states").read()[0], bag_files.motion())
    other = refused(bag_files.write_ros2(tmp_path / "other", ("a", "b"), bag_files.motion()), robot)
    assert other.exit_code == 3
    assert "a, b" in str(other)
    assert "shoulder, elbow" in str(other)


def test_a_bag_without_messages(robot: th.Robot, tmp_path: Path) -> None:
    empty = {key: array[:0] for key, array in bag_files.motion().items()}
    assert (
        refused(bag_files.write_ros2(tmp_path / "bag", robot.joint_names, empty), robot).exit_code
        == 5
    )


@pytest.mark.parametrize(("name", "needs"), [("x.bag", "rosbags"), ("x.db3", "rosbags")])
def test_a_missing_library_is_named(
    robot: th.Robot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, needs: str
) -> None:
    (tmp_path / name).write_bytes(b"#ROSBAG V2.0\n")
    monkeypatch.setitem(sys.modules, needs, None)
    error = refused(tmp_path / name, robot)
    assert error.exit_code == 2
    assert "pip install 'thetahat[ros]'" in str(error)


# -- damage ----------------------------------------------------------------------------------------


def written_by_mcap(robot: th.Robot, compression: str) -> bytes:
    """The same messages through the reference writer, with its own choice of checksums."""
    import io

    writer_module = pytest.importorskip(
        "mcap.writer", reason="the reference implementation (pip install mcap) is not installed"
    )
    store, data, out = bag_files.typestore(), bag_files.motion(), io.BytesIO()
    writer = writer_module.Writer(
        out, compression=getattr(writer_module.CompressionType, compression), chunk_size=8_000
    )
    writer.start("ros2", "test")
    schema = writer.register_schema(
        "sensor_msgs/msg/JointState", "ros2msg", b"std_msgs/Header header"
    )
    channel = writer.register_channel("/joint_states", "cdr", schema)
    for i in range(len(data["t"])):
        raw = bytes(
            store.serialize_cdr(
                bag_files.message(store, robot.joint_names, i, data), "sensor_msgs/msg/JointState"
            )
        )
        time = bag_files.START + round(data["t"][i] * 1e9)
        writer.add_message(channel, time, raw, time)
    writer.finish()
    return out.getvalue()


@pytest.mark.parametrize("writer", ["rosbags", "NONE", "LZ4", "ZSTD"])
def test_flipped_bits_are_found_or_change_nothing(
    robot: th.Robot, tmp_path: Path, mcap: bytes, writer: str
) -> None:
    good = mcap if writer == "rosbags" else written_by_mcap(robot, writer)
    path = tmp_path / "log.mcap"
    path.write_bytes(good)
    data = bag_files.motion()
    assert_equal(read_log(path, robot).read()[0], data)
    rng, found = np.random.default_rng(7), 0
    for _ in range(FLIPS):
        flipped = bytearray(good)
        flipped[rng.integers(len(flipped))] ^= 1 << int(rng.integers(8))
        path.write_bytes(flipped)
        try:
            chunk = read_log(path, robot).read()[0]
        except th.ThetahatError as error:
            found += 1
            assert error.exit_code in (3, 7), str(error)  # noqa: PT017
            assert "\n" not in str(error)  # noqa: PT017
        else:
            assert_equal(chunk, data)
    assert found >= FLIPS * (1.0 if writer == "rosbags" else 0.98), (
        "with a checksum over all data, nothing goes unnoticed"
    )


def test_a_cut_mcap_is_refused_and_can_be_salvaged(
    robot: th.Robot, tmp_path: Path, mcap: bytes
) -> None:
    data = bag_files.motion()
    path = tmp_path / "cut.mcap"
    for part in (0.3, 0.6, 0.9, 0.999):
        path.write_bytes(mcap[: int(part * len(mcap))])
        error = refused(path, robot)
        assert error.exit_code == 3
        assert "--salvage" in str(error)
        log = read_log(path, robot, salvage=True)
        assert 0 < log.rows <= 300
        assert_equal(log.read()[0], data, log.rows)
        assert "salvaged" in [finding.kind for finding in log.findings]
    assert log.rows == 300, "cut behind the data, nothing is lost"


@pytest.mark.parametrize("compression", ["NONE", "LZ4", "ZSTD"])
def test_salvage_of_many_chunks(robot: th.Robot, tmp_path: Path, compression: str) -> None:
    good, data = written_by_mcap(robot, compression), bag_files.motion()
    path = tmp_path / "cut.mcap"
    path.write_bytes(good[: len(good) // 2])
    assert refused(path, robot).exit_code == 3
    log = read_log(path, robot, salvage=True)
    assert 50 < log.rows < 300
    assert_equal(log.read()[0], data, log.rows)
    damaged = bytearray(good)
    places = bag_files.chunk_middles(good)
    damaged[places[len(places) // 2]] ^= 16
    path.write_bytes(damaged)
    assert "chunk" in str(refused(path, robot))
    rest = read_log(path, robot, salvage=True)
    assert 200 < rest.rows < 300
    assert len(rest.runs) == 2, "what was left out is a gap"


@pytest.mark.parametrize("name", ["log.mcap", "log.bag", "log.db3"])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"nonsense" * 100,
        b"\x89MCAP0\r\n",
        b"#ROSBAG V2.0\n" + b"\0" * 60,
        b"SQLite format 3\0" + b"\1" * 200,
    ],
)
def test_files_that_are_no_bags(robot: th.Robot, tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    assert refused(tmp_path / name, robot).exit_code == 3


def test_cut_bags_of_the_other_kinds(robot: th.Robot, tmp_path: Path) -> None:
    data = bag_files.motion(2000)
    for path in (
        bag_files.write_ros1(tmp_path / "one.bag", robot.joint_names, data),
        bag_files.write_ros2(tmp_path / "two", robot.joint_names, data, storage="sqlite3")
        / "two.db3",
    ):
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        assert refused(path, robot).exit_code == 3


def test_an_mcap_bomb_is_refused(robot: th.Robot, tmp_path: Path, mcap: bytes) -> None:
    import struct

    at = mcap.index(b"\x06", 8)
    while struct.unpack_from("<Q", mcap, at + 1)[0] > len(mcap):
        at = mcap.index(b"\x06", at + 1)
    bomb = bytearray(mcap)
    struct.pack_into("<Q", bomb, at + 9 + 16, 2**40)
    (tmp_path / "bomb.mcap").write_bytes(bomb)
    assert refused(tmp_path / "bomb.mcap", robot).exit_code == 7


def test_mcap_statistics_are_compared(tmp_path: Path, mcap: bytes) -> None:
    """The summary's copy of a name must be that of the data, even where no checksum says so."""
    plain = bytearray(
        bag_files.write_ros2(tmp_path / "bag", ("a", "b"), bag_files.motion())
        .joinpath("bag.mcap")
        .read_bytes()
    )
    last = plain.rindex(b"/joint_states")
    plain[last + 1] ^= 1
    (tmp_path / "x.mcap").write_bytes(plain)
    with pytest.raises(th.ThetahatError, match="differently"):
        list(McapFile(tmp_path / "x.mcap").messages())
