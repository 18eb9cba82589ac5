"""Who may talk to the live page, at its edges: odd cookies of others, lengths with many digits, and
every link that is printed works.
"""

from __future__ import annotations

import http.client
import socket
from typing import Any

import live_cases as cases
import pytest
from live_cases import TOKEN, get, served

from thetahat.live import security
from thetahat.live.security import Guard, is_local, reachable_address
from thetahat.live.server import Server, bind_socket
from thetahat.live.session import Session

ODD = (
    'prefs={"a":1}',
    "foo[bar]=1",
    "a=b c",
    "flag",
    "=",
    "a=é",
    'quoted="x;y"',
    "a=1,b=2",
    "=;=;;",
    "\x01=\x02",
)


async def nobody(*_: object) -> None:
    """An application that nothing reaches."""


def guard(host: str = "127.0.0.1") -> Guard:
    return Guard(nobody, token=TOKEN, host=host, port=8000)


# -- cookies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("odd", ODD)
def test_odd_cookies_of_other_programs_do_not_lock_the_page_out(odd: str) -> None:
    """Cookies know no ports: whatever else runs on 127.0.0.1 has its cookies sent here, too."""
    mine = f"thetahat-8000={TOKEN}"
    for header in (f"{odd}; {mine}", f"{mine}; {odd}", f"{odd};{mine};{odd}"):
        assert guard().authorised(b"", {"cookie": [header]}), header
    assert guard().authorised(b"", {"cookie": [odd, mine]})
    wrong = (
        odd,
        f"{odd}; thetahat-8000=no",
        f"{odd}; thetahat-80000={TOKEN}",
        f"x-thetahat-8000={TOKEN}",
        f"a={mine}",
        f"thetahat-8000={TOKEN}x",
    )
    for header in wrong:
        assert not guard().authorised(b"", {"cookie": [header]}), header


def test_a_browser_with_odd_cookies_is_let_in() -> None:
    with served(cases.listener()) as server:
        for odd in ('prefs={"a":1}', "foo[bar]=1", "a=b c", "flag"):
            assert (
                get(
                    server,
                    "/",
                    token=False,
                    headers={"cookie": f"{odd}; thetahat-{server.port}={TOKEN}"},
                )[0]
                == 200
            ), odd
            assert (
                get(
                    server,
                    "/",
                    token=False,
                    headers={"cookie": f"{odd}; thetahat-{server.port}=wrong"},
                )[0]
                == 401
            )


# -- lengths ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "length",
    [
        "99999999",
        "00000000000099999999",
        "4097",
        "-1",
        "+1",
        "1e3",
        "²",
        "٣",
        "",
        "0x10",
        "9" * 5000,
        "1 1",
    ],
)
def test_a_length_beyond_what_is_needed_is_refused_however_it_is_written(length: str) -> None:
    assert Guard._oversized({"content-length": [length]})


@pytest.mark.parametrize("length", ["0", "000", "4096", "0000000000004096"])
def test_a_length_within_what_is_needed_passes(length: str) -> None:
    assert not Guard._oversized({"content-length": [length]})


# -- names -----------------------------------------------------------------------------------------


def asked(server: Server, name: str) -> int:
    """The status that a browser gets which was given a link with this name and reaches the server
    by it.
    """
    connection = http.client.HTTPConnection(name, server.port, timeout=cases.PATIENCE)
    try:
        connection.request("GET", f"/?token={TOKEN}")
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost", "0.0.0.0"])
def test_the_link_that_is_printed_works(host: str) -> None:
    session = Session(cases.listener())
    with Server(
        session, token=TOKEN, host=host, bound=bind_socket(host, 0, allow_remote=True)
    ) as server:
        name = server.name.rsplit(":", 1)[0]
        assert name != "0.0.0.0"
        assert asked(server, name) == 200
        if host == "0.0.0.0":
            assert asked(server, "localhost") == 200
            assert asked(server, "127.0.0.1") == 200


def test_a_server_on_all_interfaces_is_found_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its link has the address that leads out of the machine; where none does, the
    machine's own.
    """

    class Way:
        found: Any = "192.168.1.5"

        def __init__(self, *_: object) -> None: ...

        def __enter__(self) -> Way:
            return self

        def __exit__(self, *_: object) -> None: ...

        def connect(self, *_: object) -> None:
            if self.found is None:
                raise OSError("network is unreachable")

        def getsockname(self) -> tuple[str, int]:
            return self.found, 0

    monkeypatch.setattr(security.socket, "socket", Way)
    assert reachable_address("0.0.0.0") == "192.168.1.5"
    assert reachable_address("10.1.2.3") == "10.1.2.3"
    assert not is_local(reachable_address("0.0.0.0"))
    Way.found = "fd00::5"
    assert reachable_address("::") == "fd00::5"
    for nowhere in (None, "fe80::1%eth0", "::"):
        Way.found = nowhere
        assert reachable_address("::") == "::1"
    Way.found = None
    assert reachable_address("0.0.0.0") == "127.0.0.1"


def test_a_name_that_anyone_can_point_here_is_still_refused() -> None:
    for host in ("127.0.0.2", "0.0.0.0", "::", "robot-pc"):
        found = guard(host)
        for name in ("localhost", "127.0.0.1", "[::1]"):
            assert found.known_host([f"{name}:8000"])
        for name in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example"):
            assert not found.known_host([f"{name}:8000"])
    assert guard("127.0.0.2").known_host(["127.0.0.2:8000"])
    assert not guard("127.0.0.2").known_host(["127.0.0.3:8000"])
    assert guard("robot-pc").known_host(["robot-pc:8000"])
    assert guard("0.0.0.0").known_host([f"{socket.gethostname()}:8000"])
