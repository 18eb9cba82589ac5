"""A loop in a process of its own: it says the same as one in a thread, obeys, and its end
is told.
"""

from __future__ import annotations

import os
import pickle
import socket
import time

import live_cases as cases
import numpy as np
import pytest
from live_cases import Reader, until

from thetahat.errors import UsageError
from thetahat.live.downloads import Snapshot
from thetahat.live.sample_loop import HEAD, PacketSender, SampleLoop
from thetahat.live.sample_sources import Study
from thetahat.live.session import Session
from thetahat.live.shared_state import Row, Status
from thetahat.online.gate import GateState


def broken_source() -> Study:
    raise UsageError("there is no such robot")


def dying_source() -> Study:
    """A controller that takes its process with it after a second."""
    made = cases.experiment()

    def controller(t: float, *_: object) -> np.ndarray:
        if t > 1.0:
            os._exit(3)
        return np.zeros(4)

    made.loop.controller = controller
    return Study("trial", made)


def test_a_loop_apart_says_the_same_and_obeys() -> None:
    """The run of another process ends as the same run here, bit for bit; pause and commands reach
    it; nothing of it is left at the end.
    """
    plain = cases.experiment(seconds=3.0)
    for _ in plain.loop.cycles():
        pass
    session = Session.apart(cases.study, seconds=3.0, speed=2.0)
    reader = Reader(session)
    with session:
        until(lambda: len(reader.all("frame")) > 10, "frames")
        session.command("pause")
        until(lambda: reader.state["paused"], "paused")
        cycles = session.shared.cycles
        time.sleep(0.3)
        assert session.shared.cycles == cycles
        session.command("resume")
        until(lambda: bool(reader.all("bye")), "the end")
        assert session.shared.cycles == plain.loop.count == 1500
        until(  # the last snapshot may arrive behind the end
            lambda: np.array_equal(
                session.shared.snapshot.samples["q"], plain.identifier.samples.q
            ),
            "the same samples",
        )
        held, ends = (
            session.shared.snapshot.held["tau"],
            plain.identifier.held_out.tau,
        )  # of the last update, and of the end, which has some newer ones
        both = held[np.flatnonzero(np.all(held == ends[0], axis=1))[0] :]
        assert len(both) > 20
        np.testing.assert_array_equal(both, ends[: len(both)])
        assert session.shared.gate.r2 == plain.identifier.gate.r2
        assert session.shared.failure == ""
        process = session.loop.process
    reader.close()
    assert not process.is_alive()
    assert reader.state["ended"]


def test_what_is_wrong_with_a_loop_apart_is_raised_here() -> None:
    with pytest.raises(UsageError, match="there is no such robot"):
        Session.apart(broken_source)


@pytest.mark.slow
def test_a_loop_apart_that_dies_is_told() -> None:
    session = Session.apart(dying_source)
    reader = Reader(session)
    with session:
        until(lambda: bool(reader.all("bye")), "the end")
    reader.close()
    assert "ended unexpectedly" in reader.all("bye")[0]["message"]


def test_a_loop_apart_does_not_wait_for_a_page_that_does_not_read() -> None:
    """The wire's other end is never read from: the calls return at once, and what there is no room
    for is lost.
    """
    mine, theirs = socket.socketpair()
    source = cases.study()
    wire = PacketSender(mine, 500.0)
    loop = SampleLoop(source, wire, speed=1.0)
    wire.command = loop.command
    x, longest = np.zeros((1, 4)), 0.0
    big = Snapshot(0.0, {"q": np.zeros((20_000, 4))}, None, None, 1, {}, None)
    for k in range(60):
        wire._due = 0.0
        begun = time.perf_counter()
        wire.row(Row(float(k), x[0], None, (x, x, x, x), 0))
        wire.update(float(k), source.identifier.gate, big)
        wire.report(Status(0.0, 0, 0, False, False, 0.0), source.identifier.gate)
        longest = max(longest, time.perf_counter() - begun)
    assert longest < 0.5
    assert wire.lost > 0
    assert len(wire._pending) < 9e6
    theirs.close()
    wire._due = 0.0
    wire.report(Status(0.0, 0, 0, False, False, 0.0), source.identifier.gate)
    assert loop.clock.stopped, "a page that is gone ends the run"
    mine.close()


def test_a_change_of_the_gate_that_there_was_no_room_for_is_sent_again_and_the_end_always_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A parcel is dropped while there is no room; with the next that goes, the gate arrives as it
    is now.
    """
    mine, theirs = socket.socketpair()
    wire = PacketSender(mine, 500.0)

    def report(gate: GateState) -> None:
        wire._due = 0.0
        wire.report(Status(0.0, 0, 0, False, False, 0.0), gate)

    closed, opened = GateState(False, "closed"), GateState(True, "open")
    report(closed)
    with monkeypatch.context() as full:
        full.setattr("thetahat.live.sample_loop.WAITING", 0)
        report(opened)
        assert wire.lost == 1
    report(opened)
    report(opened)
    with monkeypatch.context() as full:
        full.setattr("thetahat.live.sample_loop.WAITING", 0)
        wire.end("")
    mine.close()
    data, parcels = b"".join(iter(lambda: theirs.recv(1 << 16), b"")), []
    theirs.close()
    while data:
        end = HEAD.size + HEAD.unpack_from(data)[0]
        parcels.append(pickle.loads(data[HEAD.size : end]))
        data = data[end:]
    assert [None if gate is None else gate.reason for *_, gate in parcels] == [
        "closed",
        "open",
        None,
        None,
    ]
    assert parcels[-1][1] == [("end", "")]
