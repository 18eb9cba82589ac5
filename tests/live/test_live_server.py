"""The live page's server lets in who may come in and nobody else, falls over for nobody, and its
loop waits for no viewer.
"""

from __future__ import annotations

import itertools
import json
import re
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import live_cases as cases
import pytest
from live_cases import TOKEN, drained, get, raw, receive, served, strict, until, viewer
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

import thetahat as th
from thetahat.errors import StorageError, UsageError
from thetahat.live import server as serving
from thetahat.live.sample_sources import Listen, Settings, Study
from thetahat.live.security import Guard, new_token
from thetahat.live.server import BoundedHttp, Server, bind_socket
from thetahat.live.session import Session

HOSTILE = 1000
NAME = "<script>alert(1)</script><img src=x onerror=alert(2)>"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with served(cases.study(seconds=3600.0)) as running:
        yield running


# -- what is served --------------------------------------------------------------------------------


def test_the_page_and_its_parts_are_served_with_a_strict_policy(server: Server) -> None:
    status, page, headers = get(server, "/")
    assert status == 200
    policy = headers["content-security-policy"]
    for part in (
        "default-src 'none'",
        "script-src 'self'",
        "connect-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'none'",
    ):
        assert part in policy
    assert "unsafe-eval" not in policy
    assert re.search(r"script-src [^;]*unsafe-inline", policy) is None
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "server" not in headers
    text = page.decode()
    parts = re.findall(r'(?:src|href)="(/[^"#]+)"', text)
    assert "/plotly.min.js" in parts
    for part in parts:
        if not part.startswith("/download"):
            assert get(server, part)[0] == 200, part
    assert re.search(r"<script(?![^>]*\bsrc=)", text) is None, "no script stands in the page itself"
    assert re.search(r"""(?:src|href)=["'](?:https?:)?//""", text) is None


def test_the_token_becomes_a_cookie_that_other_sites_do_not_send(server: Server) -> None:
    _, _, headers = get(server, "/")
    cookie = headers["set-cookie"]
    assert cookie.startswith(f"thetahat-{server.port}={TOKEN};")
    for part in ("HttpOnly", "SameSite=Strict", "Path=/"):
        assert part in cookie
    mine = {"cookie": cookie.split(";")[0]}
    assert get(server, "/", token=False, headers=mine)[0] == 200
    assert get(server, "/static/main.js", token=False, headers=mine)[0] == 200
    assert get(server, "/", token=False, headers={"authorization": f"Bearer {TOKEN}"})[0] == 200
    assert "set-cookie" not in get(server, "/", token=False, headers=mine)[2]
    with connect(
        f"ws://{server.name}/live", additional_headers=mine, origin=f"http://{server.name}"
    ) as socket_:
        assert strict(socket_.recv(timeout=cases.PATIENCE))["type"] == "hello"


def test_downloads_are_files(server: Server) -> None:
    until(lambda: server.session.shared.snapshot is not None, "something is learned")
    until(lambda: get(server, "/download/robot")[0] == 200, "what is learned is usable")
    for name, kind in (
        ("estimate.json", "application/json"),
        ("robot", "application/xml"),
        ("report.html", "text/html; charset=utf-8"),
    ):
        status, body, headers = get(server, f"/download/{name}")
        assert status == 200, body
        assert headers["content-type"] == kind
        assert int(headers["content-length"]) == len(body)
        assert headers["content-disposition"].startswith('attachment; filename="')
        assert headers["cache-control"] == "no-store"
    assert get(server, "/download/other")[0] == 404


def test_a_download_of_nothing_is_a_sentence() -> None:
    with served(cases.listener()) as server:
        status, body, _ = get(server, "/download/estimate.json")
        assert status == 409
        assert "nothing identified yet" in json.loads(body)["error"]


def test_words_that_are_none_are_answered_and_the_connection_lives_on(server: Server) -> None:
    with viewer(server) as page:
        receive(page, "hello")
        for word in (
            "",
            "[]",
            "{}",
            "no",
            '{"type": 3}',
            '{"type": "command"}',
            '{"type": "command", "name": "rm -rf"}',
            "[" * 20_000,
        ):
            page.send(word)
            assert receive(page, "error")["message"]
        for joint in (-1, 99, "0", None, 1.5):
            page.send(json.dumps({"type": "subscribe", "joint": joint}))
            assert receive(page, "error")["message"]
        page.send(b"\x00\xff")
        assert receive(page, "error")["message"]
        page.send(json.dumps({"type": "subscribe", "joint": 2}))
        assert receive(page, "figure")["id"] == "torque:2"
        page.send("x" * 70_000)
        with pytest.raises(ConnectionClosed) as ended:
            drained(page)
        assert ended.value.rcvd.code == 1009


def test_a_viewer_steers_the_run() -> None:
    with served(cases.study()) as server, viewer(server) as page:
        receive(page, "hello")
        page.send(json.dumps({"type": "command", "name": "pause"}))
        until(lambda: receive(page, "frame")["state"]["paused"], "paused")
        page.send(json.dumps({"type": "command", "name": "resume"}))
        receive(page, "hello")
        until(lambda: not receive(page, "frame")["state"]["paused"], "resumed")


def test_viewers_hear_that_it_is_over() -> None:
    session = Session(cases.study())
    server = Server(session, token=TOKEN).start()
    session.start()
    with viewer(server) as page:
        receive(page, "hello")
        session.stop()
        assert receive(page, "bye")["reason"] == "stopped"
        server.stop()
        with pytest.raises(ConnectionClosed):
            drained(page)


# -- strangers -------------------------------------------------------------------------------------


def refused_socket(server: Server, path: str, *, name: str | None = None, **options: Any) -> int:
    """The status with which a WebSocket is refused; name: of the host that it asks for."""
    try:
        reached = socket.create_connection(("127.0.0.1", server.port), timeout=cases.PATIENCE)
        with connect(
            f"ws://{name or server.name}{path}",
            sock=reached,
            open_timeout=cases.PATIENCE,
            **options,
        ):
            return 101
    except InvalidStatus as error:
        return error.response.status_code


ORIGINS = (
    "http://evil.example",
    "null",
    "https://127.0.0.1:1",
    "http://localhost",
    "file://",
    "http://127.0.0.1.evil.example",
)
HOSTS = (
    "evil.example",
    "127.0.0.1",
    "127.0.0.1:1",
    "127.0.0.1.evil.example:{port}",
    "localhost:{port}:{port}",
    "localhost:{port}@evil",
    "",
    "[::1",
    "0:{port}",
)
PATHS = (
    *(
        "/static/../server.py",
        "/static/%2e%2e/server.py",
        "/static/..%2f..%2f__init__.py",
        "/static//etc/passwd",
        "/static/....//main.js",
    ),
    *(
        "/../../../../etc/passwd",
        "/static/%00",
        "/static/main.js%00.html",
        "/static/C:%5Cwindows",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//evil.example/",
        "/.git/config",
    ),
    *(
        "/download/..%2festimate.json",
        "/download/%2e%2e%2frobot",
        "/admin",
        "/live",
        "/joint-states",
        "/static/",
        "/static/index.html/",
        "/favicon.ico",
    ),
)


def hostile(server: Server) -> Iterator[tuple[str, int]]:
    """Endless: what was tried, and the status it got (0: the connection was closed)."""
    port = server.port
    for k in itertools.count():
        origin, host, path = (
            ORIGINS[k % len(ORIGINS)],
            HOSTS[k % len(HOSTS)].format(port=port),
            PATHS[k % len(PATHS)],
        )
        yield "host", get(server, "/", headers={"host": host})[0]
        yield "origin", get(server, "/", headers={"origin": origin})[0]
        wrong = (
            "",
            "token=",
            "token=x",
            f"token={TOKEN[:-1]}",
            f"token={TOKEN}x",
            f"TOKEN={TOKEN}",
            "token[]=1",
            f"token={TOKEN.upper()}",
            "token=%ff",
        )[k % 9]
        yield "token", get(server, f"/?{wrong}", token=False)[0]
        yield (
            "cookie",
            get(
                server,
                "/",
                token=False,
                headers={"cookie": f"thetahat-{port}=no; thetahat-1={TOKEN}; {'a' * (k % 2000)}"},
            )[0],
        )
        yield "traversal", get(server, path)[0]
        yield "no token, traversal", get(server, path, token=False)[0]
        yield (
            "method",
            get(server, "/", method=("POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH")[k % 6])[
                0
            ],
        )
        yield (
            "large body",
            status_of(
                raw(
                    server,
                    f"GET /?token={TOKEN} HTTP/1.1\r\nHost: {server.name}\r\nContent-Length:"
                    " 99999999\r\n\r\n".encode(),
                )
            ),
        )
        yield "large query", get(server, f"/?token={TOKEN}&x={'y' * 5000}", token=False)[0]
        yield (
            "large head",
            status_of(
                raw(server, b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 40_000 + b"\r\n\r\n")
            ),
        )
        yield (
            "rubbish",
            status_of(raw(server, (b"\x16\x03\x01" + struct.pack(">I", k)) * 20 + b"\r\n\r\n")),
        )
        yield (
            "two hosts",
            status_of(
                raw(
                    server,
                    f"GET /?token={TOKEN} HTTP/1.1\r\nHost: {server.name}\r\nHost: evil\r\n\r\n".encode(),
                )
            ),
        )
        yield (
            "chunked",
            status_of(
                raw(
                    server,
                    f"GET /?token={TOKEN} HTTP/1.1\r\nHost: {server.name}\r\nTransfer-Encoding:"
                    " chunked\r\n\r\n".encode(),
                )
            ),
        )
        if k % 4 == 0:
            place = ("/live", "/joint-states")[k % 8 // 4]
            yield "socket without token", refused_socket(server, place)
            yield (
                "socket of another origin",
                refused_socket(server, f"{place}?token={TOKEN}", origin=origin),
            )
            yield (
                "socket of another host",
                refused_socket(server, f"{place}?token={TOKEN}", name="evil.example"),
            )
            yield (
                "socket with a wrong token",
                refused_socket(server, f"{place}?token=wrong-{TOKEN}"),
            )


def status_of(answer: bytes) -> int:
    found = re.match(rb"HTTP/1\.1 (\d+)", answer)
    return int(found[1]) if found else 0


def test_a_thousand_hostile_requests_are_refused_and_nothing_falls_over(server: Server) -> None:
    """None is answered with success, none with an error of the server's own; the run and its
    viewers do not notice.
    """
    with viewer(server) as page:
        receive(page, "hello")
        cycles, found = server.session.shared.cycles, Counter()
        for what, status in itertools.islice(hostile(server), HOSTILE):
            found[what, status] += 1
        accepted = {key: count for key, count in found.items() if 100 <= key[1] < 400}
        assert not accepted
        assert not {key: count for key, count in found.items() if key[1] >= 500}
        expected = {
            "host": {403, 400},
            "origin": {403},
            "token": {401},
            "cookie": {401},
            "traversal": {404},
            "no token, traversal": {401},
            "method": {405},
        }
        expected |= {
            "large body": {413},
            "large query": {413},
            "large head": {400, 431},
            "rubbish": {400},
            "two hosts": {400, 403},
            "chunked": {413},
        }
        expected |= {
            "socket without token": {401},
            "socket of another origin": {403},
            "socket of another host": {403},
        }
        expected |= {"socket with a wrong token": {401}}
        for (what, status), count in found.items():
            assert status in expected[what], f"{what}: {count} times {status}"
        assert sum(found.values()) == HOSTILE
        assert server.session.shared.cycles > cycles, "the run went on"
        assert server.session.shared.failure == ""
        receive(page, "frame")
    assert get(server, "/")[0] == 200


def trickle(connection: socket.socket, seconds: float) -> None:
    """A request that never ends."""
    end = time.monotonic() + seconds
    connection.sendall(b"GET / HTTP/1.1\r\nHost: ")
    while time.monotonic() < end:
        connection.sendall(b"a")
        time.sleep(0.05)


def test_who_is_slow_is_let_go(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a request, byte by byte; and an answer that is asked for and never read."""
    monkeypatch.setattr(serving, "REQUEST", 0.4)
    monkeypatch.setattr(serving, "LOOK", 0.2)
    monkeypatch.setattr(serving, "ANSWER", 1.0)
    address = ("127.0.0.1", server.port)
    with socket.create_connection(address, timeout=10.0) as slow, pytest.raises(ConnectionError):
        trickle(slow, 10.0)
    open_ones = server._server.server_state.connections
    until(
        lambda: not any(isinstance(each, BoundedHttp) for each in open_ones),
        "no connection is left",
    )
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(address)
        deaf.sendall(
            f"GET /plotly.min.js?token={TOKEN} HTTP/1.1\r\nHost: {server.name}\r\n\r\n".encode()
        )
        until(
            lambda: any(isinstance(each, BoundedHttp) for each in open_ones),
            "the connection is there",
        )
        until(
            lambda: not any(isinstance(each, BoundedHttp) for each in open_ones),
            "it is closed",
            patience=10.0,
        )
    assert get(server, "/")[0] == 200


def test_connections_that_ask_for_nothing_lock_nobody_out(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest of too many gives way, and all are gone within 5 s."""
    monkeypatch.setattr(serving, "CONNECTIONS", 20)
    assert serving.REQUEST + serving.LOOK < 5.0
    with ExitStack() as stack:
        half_open = []
        for _ in range(60):
            each = stack.enter_context(
                socket.create_connection(("127.0.0.1", server.port), timeout=10.0)
            )
            each.sendall(b"GET / HTTP/1.1\r\nHos")
            half_open.append(each)
        begun = time.monotonic()
        assert get(server, "/")[0] == 200
        assert time.monotonic() - begun < serving.REQUEST, "not because the others had ended"
        until(
            lambda: (
                not any(
                    isinstance(each, BoundedHttp)
                    for each in list(server._server.server_state.connections)
                )
            ),
            "no connection is left",
            patience=20.0,
        )
        for each in half_open:
            with suppress(ConnectionError):
                assert each.recv(1) == b""


def test_downloads_that_are_broken_off_leave_no_word(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    abort = struct.pack("ii", 1, 0)  # a reset instead of an orderly end
    request = f"GET /plotly.min.js?token={TOKEN} HTTP/1.1\r\nHost: {server.name}\r\n\r\n"
    with caplog.at_level("WARNING", logger="asyncio"):
        for _ in range(30):
            with socket.create_connection(("127.0.0.1", server.port), timeout=10.0) as each:
                each.sendall(request.encode())
                each.recv(100)
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, abort)
        assert get(server, "/")[0] == 200
    assert not caplog.records


def test_names_are_data_and_nothing_else(tmp_path: Path) -> None:
    """A joint, a link and a robot called like a script travel as text, and come back in the robot's
    file.
    """
    source = Path(th.load(cases.robots.path("arm4")).source).read_text(encoding="utf-8")
    escaped = NAME.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    path = tmp_path / "hostile.urdf"
    path.write_text(
        source.replace("shoulder_yaw", escaped).replace("forearm", escaped + "2"), encoding="utf-8"
    )
    robot = th.load(path)
    listen = Listen(robot, Settings(rate=6.0, window=12), rate=200.0)
    t, q, dq, tau = cases.samples(robot, 3.0, 200.0)
    with (
        served(listen) as server,
        viewer(server) as page,
        viewer(server, "/joint-states") as sender,
    ):
        for k in range(len(t)):
            sender.send(json.dumps(cases.state(robot, t[k], q[k], dq[k], tau[k])))
        hello = receive(page, "hello")
        assert any(NAME in name for name in (*hello["joints"], *hello["bodies"]))
        until(lambda: server.session.shared.snapshot is not None, "something is learned")
        status, body, _ = get(server, "/download/report.html")
        assert status == 200
        assert NAME.encode() not in body
        assert NAME in get(server, "/download/estimate.json")[1].decode()
        status, body, headers = get(server, "/download/robot")
        assert escaped.encode() in body
        assert re.fullmatch(r'attachment; filename="[\w.-]+"', headers["content-disposition"])


# -- many viewers ----------------------------------------------------------------------------------


def test_more_viewers_than_there_is_room_for_are_told_so(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thetahat.live.viewers.MAX_VIEWERS", len(server.session.publisher.viewers))
    with viewer(server) as page:
        assert (
            "viewers are connected already" in strict(page.recv(timeout=cases.PATIENCE))["message"]
        )


# -- names and ports -------------------------------------------------------------------------------


async def nobody(*_: object) -> None:
    """An application that nothing reaches."""


def test_a_server_knows_its_own_names_alone() -> None:
    local = Guard(nobody, token="t", host="127.0.0.1", port=8000)
    for host in ("127.0.0.1:8000", "localhost:8000", "LOCALHOST:8000", "[::1]:8000"):
        assert local.known_host([host])
        assert local.own_origin(f"http://{host}")
    for host in (
        "192.168.1.5:8000",
        "robot:8000",
        "localhost:8001",
        "localhost",
        "evil.example:8000",
        "localhost:8000 ",
        "localhost:8000/",
        "a b:8000",
    ):
        assert not local.known_host([host])
        assert not local.own_origin(f"http://{host}")
    assert not local.known_host([])
    assert not local.known_host(["localhost:8000", "localhost:8000"])
    assert not local.own_origin("https://localhost:8000")
    remote = Guard(nobody, token="t", host="0.0.0.0", port=8000)
    for host in ("192.168.1.5:8000", "[fe80::1]:8000", f"{socket.gethostname()}:8000"):
        assert remote.known_host([host]), (
            "a literal address cannot be made to point here by someone else's name server"
        )
    for host in ("evil.example:8000", "1.2.3.4.evil.example:8000", "0x7f000001:8000"):
        assert not remote.known_host([host])


def test_tokens_are_long_and_never_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("THETAHAT_TOKEN", raising=False)
    assert len({new_token() for _ in range(100)}) == 100
    assert len(new_token()) >= 22
    file = tmp_path / "token"
    file.write_text("chosen-by-me\n")
    assert new_token(str(file)) == "chosen-by-me"
    monkeypatch.setenv("THETAHAT_TOKEN", "from-the-environment")
    assert new_token() == "from-the-environment"
    assert new_token(str(file)) == "chosen-by-me"
    for bad in ("short", "with space in it", "ü" * 20, "a" * 300, "semi;colon;here"):
        file.write_text(bad)
        monkeypatch.setenv("THETAHAT_TOKEN", bad)
        for given in (None, str(file)):
            with pytest.raises(UsageError, match="8 to 200 letters"):
                new_token(given)
    with pytest.raises(StorageError, match="--token-file"):
        new_token(str(tmp_path / "absent"))


def test_other_machines_see_nothing_unless_that_is_asked_for() -> None:
    for host in ("0.0.0.0", "::", socket.gethostname() + ".invalid"):
        with pytest.raises(UsageError, match="--allow-remote"):
            bind_socket(host, 0)
    with bind_socket("0.0.0.0", 0, allow_remote=True) as bound:
        assert bound.getsockname()[0] == "0.0.0.0"
    with pytest.raises(UsageError, match="is no address of this machine"):
        bind_socket("no-such-host.invalid", 0, allow_remote=True)
    with (
        bind_socket("127.0.0.1", 0) as bound,
        pytest.raises(
            UsageError, match=r"port \d+ of 127.0.0.1 is in use; give another with --port"
        ),
    ):
        bind_socket("127.0.0.1", bound.getsockname()[1])


def test_a_study_says_what_it_is(server: Server) -> None:
    assert isinstance(server.session.source, Study)
    assert server.address == f"http://127.0.0.1:{server.port}/?token={TOKEN}"
    assert server.joint_states.startswith("ws://127.0.0.1:")
