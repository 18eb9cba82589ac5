"""Joint states from outside: every good sample arrives, every bad frame is answered with its reason
and harms nothing.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from typing import Any

import live_cases as cases
import numpy as np
import pytest
from data_paths import ROOT
from hypothesis import example, given, settings
from hypothesis import strategies as st
from live_cases import receive, served, state, strict, until, viewer
from websockets.exceptions import ConnectionClosed

import thetahat as th
from thetahat import robots
from thetahat.errors import UsageError
from thetahat.live.joint_states import BadFrame, Decoder, Sample, encode
from thetahat.live.server import Server

FLAT = 4e6  # [bytes] that memory may grow by in a run, beyond its first seconds

# Sends frames at a fixed rate, from a process of its own; prints how many, and what was answered.
SENDER = """
import json, sys, time
import numpy as np
from websockets.sync.client import connect
import thetahat as th
import live_cases as cases
from thetahat import robots
from thetahat.live.joint_states import encode
address, seconds, rate, kind = sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
robot = th.load(robots.path("arm7"))
t, q, dq, tau = cases.samples(robot, seconds, rate)
names = robot.joint_names

def frame(k):
    binary = kind == "binary" or (kind == "both" and k % 2)
    return encode(names, t[k], q[k], dq[k], tau[k]) if binary else json.dumps(cases.state(robot, t[k], q[k], dq[k], tau[k]))

frames = [frame(k) for k in range(len(t))]
answers = 0
with connect(address, compression=None) as socket:
    socket.send(json.dumps({"name": list(names)}))
    begun = time.monotonic()
    for k, frame in enumerate(frames):
        early = begun + t[k] - time.monotonic()
        if early > 5e-4:
            time.sleep(early)
        socket.send(frame)
    took = time.monotonic() - begun
    try:
        while True:
            socket.recv(timeout=0.3)
            answers += 1
    except TimeoutError:
        pass
print(json.dumps({"sent": len(frames), "took": took, "answers": answers}))
"""


@pytest.fixture(scope="module")
def robot() -> th.Robot:
    return th.load(robots.path("arm4"))


def message(robot: th.Robot, t: float = 1.0, **changes: Any) -> dict[str, Any]:
    found = state(robot, t, np.arange(4.0), np.ones(4), np.full(4, 2.0)) | changes
    return {key: value for key, value in found.items() if value is not ...}


# -- frames ----------------------------------------------------------------------------------------

finite = st.floats(-1e6, 1e6)


@given(
    t=st.floats(0.0, 1e9),
    values=st.lists(finite, min_size=12, max_size=12),
    order=st.permutations(range(4)),
    speeds=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_both_encodings_say_the_same_whatever_the_order_of_the_joints(
    t: float, values: list[float], order: list[int], speeds: bool
) -> None:
    robot = th.load(robots.path("arm4"))
    q, dq, tau = np.array(values).reshape(3, 4)
    names = [robot.joint_names[k] for k in order]
    text = {
        "t": t,
        "name": [*names, "gripper"],
        "position": [*q[order], 9.0],
        "velocity": [*dq[order], 9.0] if speeds else [],
        "effort": [*tau[order], 9.0],
    }
    spoken, packed = Decoder(robot), Decoder(robot)
    assert packed.decode(json.dumps({"name": names})) is None
    found = [
        spoken.decode(json.dumps(text)),
        packed.decode(encode(names, t, q[order], dq[order] if speeds else None, tau[order])),
    ]
    for sample in found:
        assert isinstance(sample, Sample)
        assert sample.t == t
        np.testing.assert_array_equal(sample.q, q)
        np.testing.assert_array_equal(sample.tau, tau)
        assert (sample.dq is None) is not speeds
        if speeds:
            np.testing.assert_array_equal(sample.dq, dq)
    assert spoken.ignored == ("gripper",)


def test_a_stamp_may_be_in_seconds_and_nanoseconds(robot: th.Robot) -> None:
    sample = Decoder(robot).decode(
        json.dumps(message(robot, t=..., stamp={"sec": 1_700_000_000, "nanosec": 250_000_000}))
    )
    assert sample.t == 1_700_000_000.25


BAD: list[tuple[dict[str, Any] | str | bytes, str]] = [
    ("", "not JSON"),
    ("{", "not JSON"),
    ("[1, 2]", "send an object"),
    ("[" * 50_000, "too deeply|not JSON"),
    ('{"t": NaN}', "NaN, which is no number"),
    ('{"t": -Infinity}', "-Infinity, which is no number"),
    ({"t": ...}, "t is missing"),
    ({"t": "now"}, "t is 'now'"),
    ({"t": True}, "t is True"),
    ({"t": ..., "stamp": {"sec": 1, "nanosec": 10**9}}, "nanosec, 0 to 999999999"),
    ({"t": ..., "stamp": {"sec": 1.5, "nanosec": 0}}, "whole numbers sec and nanosec"),
    ({"name": ["a"]}, "'shoulder_yaw' is not among the names|is not among the names"),
    ({"name": "shoulder"}, "a list of strings"),
    ({"name": ["x", "x"]}, "'x' is named twice"),
    ({"position": [1.0, 2.0]}, "position has 2 numbers for 4 joints"),
    ({"position": [1.0, None, 3.0, 4.0]}, "give a finite number"),
    ({"position": [1.0, "2", 3.0, 4.0]}, "is '2'"),
    ({"effort": ...}, "effort is missing"),
    ({"velocity": [1.0]}, "velocity has 1 numbers"),
    ({"effort": [1e400, 0.0, 0.0, 0.0]}, "Infinity|not finite"),
    ({"effort": [1e12, 0.0, 0.0, 0.0]}, "too large for any joint"),
    (b"", "does not begin with TJS1"),
    (b"TJS2" + bytes(100), "does not begin with TJS1"),
    (b"TJS1" + bytes(10), "is unknown|0 joints"),
]


@pytest.mark.parametrize(("bad", "reason"), BAD, ids=[str(k) for k in range(len(BAD))])
def test_a_bad_frame_is_refused_in_a_sentence_and_the_next_one_is_taken(
    robot: th.Robot, bad: Any, reason: str
) -> None:
    decoder = Decoder(robot)
    frame = json.dumps(message(robot, **bad)) if isinstance(bad, dict) else bad
    with pytest.raises(BadFrame, match=reason) as refused:
        decoder.decode(frame)
    assert len(str(refused.value)) < 600
    assert "\n" not in str(refused.value)
    assert decoder.decode(json.dumps(message(robot, t=2.0))).t == 2.0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none_are_refused_in_binary_too(robot: th.Robot, bad: float) -> None:
    names, q = robot.joint_names, np.zeros(4)
    for place in range(3):
        decoder, parts = Decoder(robot), [q.copy(), q.copy(), q.copy()]
        decoder.decode(json.dumps({"name": list(names)}))
        parts[place][2] = bad
        with pytest.raises(BadFrame, match=f"of joint '{names[2]}' is .*, which is not finite"):
            decoder.decode(encode(names, 1.0, *parts))
        with pytest.raises(BadFrame, match="t is"):
            decoder.decode(encode(names, bad, q, q, q))
    with pytest.raises(BadFrame, match="takes 110, or 78"):
        decoder.decode(encode(names, 1.0, q, q, q)[:-1])


def test_stamps_must_increase_until_the_clock_was_set_back_for_good(robot: th.Robot) -> None:
    decoder = Decoder(robot)
    for t in (1.0, 1.1, 1.2):
        decoder.decode(json.dumps(message(robot, t=t)))
    with pytest.raises(BadFrame, match="repeats the last timestamp"):
        decoder.decode(json.dumps(message(robot, t=1.2)))
    with pytest.raises(BadFrame, match=r"t 0.5 s is before the last, 1.2 s"):
        decoder.decode(json.dumps(message(robot, t=0.5)))
    assert decoder.decode(json.dumps(message(robot, t=1.3))).t == 1.3
    for t in (0.1, 0.2):
        with pytest.raises(BadFrame):
            decoder.decode(json.dumps(message(robot, t=t)))
    assert decoder.decode(json.dumps(message(robot, t=0.3))).t == 0.3, (
        "the third that goes on from the past"
    )


@given(frame=st.one_of(st.binary(max_size=300), st.text(max_size=200)))
@example(frame=b"TJS1\x04\x00" + bytes(8 * 13))
@example(frame='{"name":["a"],"t":1e999}')
@settings(max_examples=150, deadline=None)
def test_nothing_else_than_a_sample_or_a_sentence_comes_of_a_frame(frame: str | bytes) -> None:
    decoder = Decoder(th.load(robots.path("arm4")))
    decoder.decode(json.dumps({"name": list(decoder._joints)}))
    try:
        found = decoder.decode(frame)
    except BadFrame:
        return
    assert found is None or math.isfinite(found.t)


def test_a_robot_with_a_free_base_cannot_be_listened_to() -> None:
    with pytest.raises(UsageError, match="several degrees of freedom"):
        Decoder(th.load(robots.path("arm4"), floating_base=True))


# -- through the server ----------------------------------------------------------------------------


def answers(socket: Any, count: int) -> list[dict[str, Any]]:
    return [strict(socket.recv(timeout=cases.PATIENCE)) for _ in range(count)]


def test_bad_frames_among_good_ones_are_answered_and_harm_nothing(robot: th.Robot) -> None:
    """As many samples arrive as were good; every bad frame is answered once, with its number and
    why; the estimate is that of the good ones alone.
    """
    t, q, dq, tau = cases.samples(robot, 4.0, 250.0)
    good = [json.dumps(state(robot, t[k], q[k], dq[k], tau[k])) for k in range(len(t))]
    bad = {
        100: "no JSON at all",
        200: json.dumps({**json.loads(good[0]), "t": t[150]}),
        300: good[299].replace('"effort": [', '"effort": [NaN, '),
        400: json.dumps({**json.loads(good[0]), "t": 1e6, "position": [1e30] * 4}),
        500: b"TJS1 rubbish",
        600: json.dumps({**json.loads(good[0]), "name": ["<script>alert(1)</script>"] * 4}),
    }
    source, clean = cases.listener(), cases.listener()
    with served(source) as server, viewer(server, "/joint-states") as socket:
        sent = 0
        numbers = []
        for k, frame in enumerate(good):
            if k in bad:
                socket.send(bad[k])
                sent += 1
                numbers.append(sent)
            socket.send(frame)
            sent += 1
        until(lambda: server.session.shared.cycles == len(good), "all samples")
        found = answers(socket, len(bad))
        assert [answer["frame"] for answer in found] == numbers
        assert all(answer["type"] == "error" and answer["reason"] for answer in found)
        assert (source.lost, server.session.refused) == (0, len(bad))
        dropped = server.session.shared.status.dropped
    for k in range(len(t)):
        clean.identifier.push(t[k], q[k], dq[k], tau[k])
    assert (
        dropped == clean.identifier.events.counts["spike"] <= 2
    )  # a friction step right after another joint's
    assert source.identifier.updates == clean.identifier.updates
    np.testing.assert_array_equal(source.identifier.estimate.x, clean.identifier.estimate.x)
    clean.identifier.close()


def test_a_frame_that_is_too_large_ends_the_connection_and_nothing_else(robot: th.Robot) -> None:
    with served(cases.listener()) as server:
        with viewer(server, "/joint-states") as socket:
            socket.send(json.dumps(message(robot)))
            until(lambda: server.session.shared.cycles == 1, "a sample")
            socket.send("x" * 200_000)
            with pytest.raises(ConnectionClosed) as ended:
                socket.recv(timeout=cases.PATIENCE)
            assert ended.value.rcvd.code == 1009
        with viewer(server, "/joint-states") as socket, viewer(server) as page:
            socket.send(json.dumps(message(robot, t=2.0)))
            until(lambda: server.session.shared.cycles == 2, "the samples before and after")
            receive(page, "hello")


def test_one_robot_has_one_sender(robot: th.Robot) -> None:
    with served(cases.listener()) as server, viewer(server, "/joint-states") as first:
        first.send(json.dumps(message(robot)))
        until(lambda: server.session.shared.cycles == 1, "a sample")
        with viewer(server, "/joint-states") as second:
            assert (
                "another sender is connected"
                in strict(second.recv(timeout=cases.PATIENCE))["reason"]
            )
            with pytest.raises(ConnectionClosed):
                second.recv(timeout=cases.PATIENCE)
        first.send(json.dumps(message(robot, t=2.0)))
        until(lambda: server.session.shared.cycles == 2, "the first goes on")
    with served(cases.study()) as server, viewer(server, "/joint-states") as socket:
        assert "does not listen" in strict(socket.recv(timeout=cases.PATIENCE))["reason"]


def test_a_pause_holds_the_picture_and_not_the_identification(robot: th.Robot) -> None:
    t, q, _, tau = cases.samples(robot, 3.0, 250.0)
    with (
        served(cases.listener()) as server,
        viewer(server, "/joint-states") as socket,
        viewer(server) as page,
    ):
        receive(page, "hello")
        server.session.command("pause")
        while not receive(page, "frame")["state"]["paused"]:
            pass
        for k in range(len(t)):
            socket.send(json.dumps(state(robot, t[k], q[k], None, tau[k])))
        until(lambda: server.session.shared.cycles == len(t), "all samples")
        seen: list[dict[str, Any]] = []
        receive(page, "frame", seen=seen)
        assert all(not each["extend"] for each in seen if each["type"] == "frame")
        server.session.command("resume")
        hello = receive(page, "hello")
        drawn = next(
            panel["figure"]["data"][0]["x"]
            for panel in hello["panels"]
            if panel["id"] == "torque:0"
        )
        assert max(drawn) > 2.5, "what came meanwhile is there"


# -- at 1 kHz --------------------------------------------------------------------------------------


def listened(seconds: float, kind: str) -> tuple[dict[str, Any], Server, list[int]]:
    """Frames of seven joints at 1 kHz from another process; what was sent, the server after it, and
    its memory every half second.
    """
    source = cases.listener("arm7")
    memory: list[int] = []
    with served(source) as server, viewer(server) as page:
        command = [sys.executable, "-c", SENDER, server.joint_states, str(seconds), "1000", kind]
        places = os.pathsep.join(str(ROOT / folder) for folder in ("src", "tests/support"))
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": places}
        )
        due = 0.0
        try:
            while process.poll() is None:
                page.recv(timeout=cases.PATIENCE)
                if time.monotonic() > due:
                    due = time.monotonic() + 0.5
                    memory.append(cases.resident())
            sent = json.loads(process.stdout.read())
        finally:
            process.kill()
            process.stdout.close()
        until(lambda: server.session.shared.cycles >= sent["sent"], "all samples identified")
    return sent, server, memory


def test_no_frame_is_lost_at_1_khz() -> None:
    """Text and binary in turn."""
    sent, server, _ = listened(2.0, "both")
    assert sent["sent"] == 2000
    assert sent["answers"] == 0
    assert server.session.shared.cycles == server.session.source.received == 2000
    assert (server.session.source.lost, server.session.refused) == (0, 0)
    assert server.session.source.identifier.updates >= 10


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["json", "binary"])
def test_no_frame_is_lost_in_a_minute_at_1_khz_and_memory_is_flat(kind: str) -> None:
    sent, server, memory = listened(60.0, kind)
    assert sent["sent"] == server.session.shared.cycles == 60_000
    assert sent["took"] < 61.0
    assert (
        sent["answers"],
        server.session.source.lost,
        server.session.refused,
        server.session.shared.status.dropped,
    ) == (0, 0, 0, 0)
    third = len(memory) // 3
    grown = np.median(memory[-third:]) - np.median(memory[third : 2 * third])
    print(
        f"{kind}: memory {memory[0] / 1e6:.1f} … {memory[-1] / 1e6:.1f} MB, {grown / 1e6:+.2f} MB"
        " from the middle third to the last"
    )
    assert grown <= FLAT


def test_the_bridge_of_the_examples_feeds_the_page() -> None:
    with served(cases.listener("arm7")) as server:
        command = [
            sys.executable,
            "-W",
            "error",
            ROOT / "examples" / "13_bridge.py",
            server.joint_states,
            "2",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == "sent 1000 samples\n"
        until(lambda: server.session.shared.cycles == 1000, "all samples")
        assert server.session.source.identifier.updates > 5
