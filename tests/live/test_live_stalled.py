"""Viewers that read nothing: they lose frames, then their connection, cost little memory, and hold
nobody up.
"""

from __future__ import annotations

import json
import socket
import time
from contextlib import ExitStack, suppress

import live_cases as cases
import pytest
from live_cases import TOKEN, receive, served, strict, until, viewer

from thetahat.live.sample_sources import Study
from thetahat.live.server import PIECE, Server
from thetahat.studies import valkyrie

STALLED, MORE = 50, 20e6  # viewers, [bytes] that they may cost together
# bytes that a stalled viewer's own side takes, so that what is not read waits at the server
ROOM = 4096
LET_GO = 4.0  # [s] for a viewer to take a message, in this test


def stalled(server: Server) -> socket.socket:
    """A viewer that opens its connection and never reads from it."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, ROOM)
    connection.connect(("127.0.0.1", server.port))
    head = (
        f"GET /live?token={TOKEN} HTTP/1.1\r\nHost: {server.name}\r\nUpgrade:"
        " websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    )
    connection.sendall(f"{head}Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode())
    return connection


def ended(connection: socket.socket) -> bool:
    """Whether the other side has closed, after what was on its way."""
    connection.settimeout(5.0)
    with suppress(TimeoutError):
        try:
            while connection.recv(65536):
                pass
        except ConnectionResetError:
            pass
        return True
    return False


def test_fifty_viewers_that_read_nothing_lose_frames_then_their_connections_and_hold_nobody_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 44 joints, whose frames fill the kernel's buffers within a second: queues run over,
    patience ends, connections are gone from the server.

    Memory of the process is compared with that before, with a viewer that does read; frames come to
    that one all the time.
    """
    monkeypatch.setattr("thetahat.live.server.PATIENCE", LET_GO)
    with served(Study("valkyrie", valkyrie.experiment("own"))) as server, viewer(server) as page:
        publisher, connections = server.session.publisher, server._server.server_state.connections
        receive(page, "hello")
        begun = time.monotonic()
        while time.monotonic() - begun < 2.0:
            page.recv(timeout=cases.PATIENCE)
        before, most, dropped, frames = cases.resident(), 0, 0, 0
        with ExitStack() as stack:
            theirs = [stack.enter_context(stalled(server)) for _ in range(STALLED)]
            until(lambda: len(publisher.viewers) == STALLED + 1, "all are there")
            begun = time.monotonic()
            while (
                len(publisher.viewers) > 1 or len(connections) > 1
            ) and time.monotonic() - begun < cases.PATIENCE:
                frames += strict(page.recv(timeout=cases.PATIENCE))["type"] == "frame"
                most = max(most, cases.resident())
                dropped = max(dropped, publisher.state()["dropped"]["frames"])
            took = time.monotonic() - begun
            print(
                f"{STALLED} stalled viewers: {(most - before) / 1e6:+.1f} MB, {dropped} frames"
                f" dropped, gone after {took:.1f} s; ",
                end="",
            )
            print(f"{frames / took:.1f} frames/s to a reader")
            assert len(publisher.viewers) == 1, "they are let go"
            assert len(connections) == 1, "and nothing is left of them"
            assert all(ended(each) for each in theirs)
        assert dropped >= 40 * STALLED, "frames that each of them did not get"
        assert most - before <= MORE
        assert frames / took >= 8.0, (
            "frames per second to the one who reads, of 20, on a busy machine"
        )


def test_a_long_message_comes_in_pieces_and_whole() -> None:
    """The whole picture of a long run is more than one piece; letters that take several bytes are
    not torn.
    """
    source = cases.listener()
    source.title = "R² ≥ 0.95 😀 " * PIECE
    with served(source) as server, viewer(server) as page:
        text = page.recv(timeout=cases.PATIENCE)
        assert len(text) > 8 * PIECE
        assert json.loads(text)["title"] == source.title
        receive(page, "frame")
