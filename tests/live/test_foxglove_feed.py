"""A run for Foxglove: what is served and what is written, read by packages that are not ours and
held against the schemas that come with it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import live_cases as cases
import numpy as np
import pytest
from live_cases import until

pytest.importorskip("foxglove", reason="the extra 'foxglove' is not installed")
pytest.importorskip("mcap_protobuf", reason="the package mcap-protobuf-support is not installed")

import jsonschema
from mcap.reader import make_reader
from mcap_protobuf.decoder import DecoderFactory
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

import thetahat as th
from thetahat import robots
from thetahat.data.memory_log import log_from_arrays
from thetahat.dynamics.rigid_body import body_frames
from thetahat.errors import StorageError
from thetahat.live.foxglove_feed import FoxgloveFeed
from thetahat.live.sample_sources import Replay, Settings
from thetahat.live.session import Session

START = 1_700_000_000_000_000_000  # [ns]
TOPICS = {"/joint_states", "/torque", "/gate", "/tf", "/scene", "/parameters"}


def session(seconds: float, speed: float) -> Session:
    robot = th.load(robots.path("arm4"))
    rows = round(200.0 * seconds)
    t, q, dq, tau = (array[:rows] for array in cases.samples(robot, seconds, 200.0))
    log = log_from_arrays(robot, t, q, dq=dq, tau=tau, name="trial.csv")
    return Session(Replay(robot, log, Settings(rate=6.0, window=12)), speed=speed)


def messages_of(path: Path) -> dict[str, list[tuple[int, Any]]]:
    """(log time, message) by topic, as other packages read them; JSON fits the file's schema."""
    out: dict[str, list[tuple[int, Any]]] = defaultdict(list)
    with path.open("rb") as file:
        reader = make_reader(file, decoder_factories=[DecoderFactory()], validate_crcs=True)
        for schema, channel, message in reader.iter_messages():
            assert schema is not None
            if channel.message_encoding == "json":
                assert schema.encoding == "jsonschema"
                decoded = json.loads(message.data, parse_constant=lambda word: pytest.fail(word))
                jsonschema.validate(decoded, json.loads(schema.data))
                assert decoded.keys() <= json.loads(schema.data)["properties"].keys()
            else:
                assert (channel.message_encoding, schema.encoding) == ("protobuf", "protobuf")
                assert schema.name.startswith("foxglove.")
                decoder = DecoderFactory().decoder_for("protobuf", schema)
                assert decoder is not None
                decoded = decoder(message.data)
            out[channel.topic].append((message.log_time, decoded))
    return out


@pytest.fixture(scope="module")
def shown() -> Session:
    return session(16.0, 5.0)


@pytest.fixture(scope="module")
def recorded(
    shown: Session, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[tuple[int, Any]]]:
    path, run = tmp_path_factory.mktemp("foxglove") / "run.mcap", shown
    run.publisher.feed = FoxgloveFeed(run.shared.info, START, file=path)
    with run:
        until(lambda: run.shared.ended, "the end")
        until(lambda: run.publisher.parameters.table.t > 0.0, "parameters")
        assert not path.exists(), "it appears when the run is over"
    assert [each.name for each in path.parent.iterdir()] == ["run.mcap"]
    return messages_of(path)


def test_a_file_holds_what_the_run_showed(
    shown: Session, recorded: dict[str, list[tuple[int, Any]]]
) -> None:
    robot = th.load(robots.path("arm4"))
    assert recorded.keys() >= TOPICS
    t, q, *_ = cases.samples(robot, 16.0, 200.0)
    states = recorded["/joint_states"]
    assert len(states) > 100
    for time, message in states:
        assert [joint.name for joint in message.joints] == list(robot.joint_names)
        assert message.timestamp.ToNanoseconds() == time
    now = np.array([1e-9 * (time - START) for time, _ in states])
    seen = np.array([[joint.position for joint in message.joints] for _, message in states])
    errors = []
    for delay in np.arange(0.0, 0.1, 0.002):  # of the filter, one for all
        there = np.column_stack([np.interp(now - delay, t, channel) for channel in q.T])
        errors.append(np.max(np.abs(seen - there)[now > 1.0]))
    assert min(errors) < 0.02
    for _, gate in recorded["/gate"]:
        assert gate["fill"] <= gate["size"] == 12
    assert recorded["/gate"][-1][1]["r2"] is not None
    rows = recorded["/parameters"][-1][1]["rows"]
    assert {f"viscous_{joint}" for joint in robot.joint_names} <= {row["name"] for row in rows}
    assert rows == shown.publisher.parameters.message()["rows"], "as the page has them"


def test_torques_are_the_models(recorded: dict[str, list[tuple[int, Any]]]) -> None:
    """The robot is 10 % heavier than its file: so is what is measured, and the identified model."""
    rows = [message for _, message in recorded["/torque"]]
    by_kind = {
        kind: np.array([list(row[kind].values()) for row in rows[len(rows) // 2 :]])
        for kind in ("measured", "identified", "nominal")
    }
    ratio = np.linalg.norm(by_kind["measured"]) / np.linalg.norm(by_kind["nominal"])
    assert 1.08 < ratio < 1.12
    error = np.linalg.norm(by_kind["measured"] - by_kind["identified"])
    assert error < 0.03 * np.linalg.norm(by_kind["measured"])


def test_frames_and_scene_are_the_robot(recorded: dict[str, list[tuple[int, Any]]]) -> None:
    robot = th.load(robots.path("arm4"))
    t, q, _, _ = cases.samples(robot, 16.0, 200.0)
    for time, message in recorded["/tf"][10::40]:
        k = int(np.argmin(np.abs(t - 1e-9 * (time - START))))
        R, p = body_frames(robot, q[k])
        for each, rotation, position, name in zip(
            message.transforms, R, p, robot.body_names, strict=True
        ):
            assert (each.parent_frame_id, each.child_frame_id) == ("world", name)
            at, turn = each.translation, each.rotation
            assert np.allclose([at.x, at.y, at.z], position, atol=1e-6)
            v, w = np.array([turn.x, turn.y, turn.z]), turn.w
            cross = np.cross(np.eye(3), v)
            made = np.eye(3) + 2.0 * w * cross + 2.0 * cross @ cross
            assert np.allclose(made, rotation, atol=1e-6)
    entities = {e.id: e for _, message in recorded["/scene"] for e in message.entities}
    assert len(entities["robot"].lines[0].points) % 2 == 0
    assert len(entities["robot"].lines[0].points) > 0
    bodies = [e for key, e in entities.items() if key.startswith("inertia of ")]
    assert {e.frame_id for e in bodies} <= set(robot.body_names)
    for each in bodies:
        assert each.frame_locked
        size = each.spheres[0].size
        assert min(size.x, size.y, size.z) > 0.0
        assert max(size.x, size.y, size.z) < 2.0


def test_a_viewer_is_served_on_loopback() -> None:
    run = session(12.0, 2.0)
    feed = run.publisher.feed = FoxgloveFeed(run.shared.info, START, port=0)
    address = feed.address or ""
    assert address.startswith("ws://127.0.0.1:")
    with run, connect(address, subprotocols=["foxglove.sdk.v1"], open_timeout=20.0) as client:
        channels: dict[str, dict[str, Any]] = {}
        while not channels.keys() >= TOPICS:
            message = json.loads(client.recv(timeout=20.0))
            if message["op"] == "serverInfo":
                assert not message["capabilities"], "nothing can be changed from there"
            for each in message.get("channels", ()):
                channels[each["topic"]] = each
        wanted = {"id": 1, "channelId": channels["/torque"]["id"]}
        client.send(json.dumps({"op": "subscribe", "subscriptions": [wanted]}))
        data = client.recv(timeout=20.0)
        while isinstance(data, str):
            data = client.recv(timeout=20.0)
        assert data[0] == 1, "message data"
        assert int.from_bytes(data[1:5], "little") == 1
        schema = json.loads(channels["/torque"]["schema"])
        jsonschema.validate(json.loads(data[13:]), schema)
    with pytest.raises((OSError, WebSocketException)):
        connect(address, open_timeout=2.0)


def test_a_port_that_is_taken_and_a_folder_that_is_not_there(tmp_path: Path) -> None:
    run = session(2.0, 10.0)
    feed = FoxgloveFeed(run.shared.info, START, port=0)
    assert feed.address is not None
    port = int(feed.address.rpartition(":")[2])
    with pytest.raises(StorageError, match=f"cannot be served on port {port}"):
        FoxgloveFeed(run.shared.info, START, port=port)
    feed.close()
    with pytest.raises(StorageError, match="cannot be written"):
        FoxgloveFeed(run.shared.info, START, file=tmp_path / "no" / "run.mcap")
    run.worker.close()
