"""Access checks of the live page: Host, Origin and token, of every request and WebSocket.

A page of another origin that the user has open can make the browser send requests to 127.0.0.1, and
a name that an attacker owns can be made to point there (DNS rebinding). So the Host must be one
that this server has, an Origin that is sent must be this server's own, and every request must bring
the token: in the link once, and then as a cookie that other sites' requests do not carry.
"""

from __future__ import annotations

import hmac
import ipaddress
import os
import re
import secrets
import socket
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from thetahat.errors import StorageError, UsageError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

BODY = 4096  # bytes of a request's body at most: none is needed
LONGEST_QUERY, HEAD = 2048, 16_384  # bytes of an address after the ?, and of all headers together
LENGTH = re.compile(r"0*[0-9]{1,9}", re.ASCII)
HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(\d{1,5}))?")
TOKEN = re.compile(r"[A-Za-z0-9_-]{8,200}")
TOKEN_VARIABLE = "THETAHAT_TOKEN"
MOST_OF_A_TOKEN = 1000  # bytes that are read of a file
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self';"
    " img-src 'self' data: blob:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
SEALED = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
METHODS = ("GET", "HEAD")
# all interfaces: their family, an address far away (of those kept for documentation), and this
# machine's own
ANY = {
    "0.0.0.0": (socket.AF_INET, "192.0.2.1", "127.0.0.1"),
    "::": (socket.AF_INET6, "2001:db8::1", "::1"),
}


def new_token(file: str | None = None) -> str:
    """Return the token in a file, else that in the environment, else 128 random bits.

    None stands on the command line, which every user of the machine can read.
    """
    if file is not None:
        try:
            with Path(file).open("rb") as opened:
                given = opened.read(MOST_OF_A_TOKEN).decode("ascii", "replace").strip()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise StorageError(
                f"--token-file {file} cannot be read ({reason}); write the token to it"
            ) from None
    elif TOKEN_VARIABLE in os.environ:
        given = os.environ[TOKEN_VARIABLE]
    else:
        return secrets.token_urlsafe(16)
    if not TOKEN.fullmatch(given):
        where = TOKEN_VARIABLE if file is None else f"--token-file {file}"
        raise UsageError(
            f"{where}: a token has 8 to 200 letters, digits, - or _; leave it out for a random one"
        )
    return given


def is_local(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def reachable_address(host: str) -> str:
    """Return the address under which a browser finds a server that listens on `host`.

    Of one on all interfaces it is the interface that leads out of this machine.
    """
    if host not in ANY:
        return host
    family, elsewhere, fallback = ANY[host]
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((elsewhere, 9))  # a datagram socket: the route is looked up, nothing sent
            address = str(probe.getsockname()[0])
    except OSError:  # there is no route
        return fallback
    return fallback if address in ANY or "%" in address else address


class Guard:
    """ASGI application that passes only permitted requests to `app`. `answers` counts by status."""

    def __init__(self, app: ASGIApp, *, token: str, host: str, port: int) -> None:
        self._app, self._token, self._port = app, token.encode(), port
        self.cookie = f"thetahat-{port}"  # a browser does not tell ports apart
        self._names = {"localhost", "127.0.0.1", "::1", host.lower()} | (
            set() if is_local(host) else {socket.gethostname().lower()}
        )
        # A name can be made to point here by anyone, a literal address cannot.
        self._any_address = not is_local(host)
        self.answers: dict[int, int] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check, answer, or hand on."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        refused = self.refusal(scope, headers)
        if refused is not None:
            self.answers[refused[0]] = self.answers.get(refused[0], 0) + 1
            await _answer(scope, receive, send, *refused)
            return
        await self._app(scope, receive, self._sealed(scope, send))

    def refusal(self, scope: Scope, headers: dict[str, list[str]]) -> tuple[int, str] | None:
        """Return (status, sentence) of a refusal; None for a permitted request."""
        if sum(len(name) + len(value) for name, value in scope["headers"]) > HEAD:
            return 431, "the head of the request is larger than any that is needed here"
        if not self.known_host(headers.get("host", [])):
            return 403, "this server is not known by that name; open the link that it printed"
        if any(not self.own_origin(origin) for origin in headers.get("origin", [])):
            why = "requests from other pages are refused; open the link that the server printed"
            return 403, why
        if scope["type"] == "http" and scope["method"] not in METHODS:
            return 405, "only GET is answered here"
        if self._oversized(headers) or len(scope["query_string"]) > LONGEST_QUERY:
            return 413, "the request is larger than any that is needed here"
        if not self.authorised(scope["query_string"], headers):
            why = "the token is missing or wrong; open the link that the server printed"
            return 401, why
        return None

    def known_host(self, values: list[str]) -> bool:
        """Whether the one Host header names this server and its port."""
        if len(values) != 1:
            return False
        host = HOST.fullmatch(values[0])
        if host is None or int(host[2] or 80) != self._port:
            return False
        name = host[1].strip("[]").lower()
        if name in self._names:
            return True
        try:
            return self._any_address and bool(ipaddress.ip_address(name))
        except ValueError:
            return False

    def own_origin(self, origin: str) -> bool:
        """Whether an Origin is this server's."""
        scheme, _, host = origin.partition("://")
        return scheme == "http" and self.known_host([host])

    def authorised(self, query: bytes, headers: dict[str, list[str]]) -> bool:
        """Whether the token is there: in the address, in the cookie, or as a bearer."""
        given = self.given_in_query(query)
        # By hand: http.cookies gives up at the first odd cookie, and any program on this machine's
        # other ports may have set one.
        for part in ";".join(headers.get("cookie", [])).split(";"):
            name, _, value = part.partition("=")
            given += [value.strip()] if name.strip() == self.cookie else []
        bearers = headers.get("authorization", [])
        given += [value[7:] for value in bearers if value[:7].lower() == "bearer "]
        return any(self._is_token(each) for each in given)

    @staticmethod
    def given_in_query(query: bytes) -> list[str]:
        """Tokens in an address."""
        try:
            return parse_qs(query.decode("ascii"), max_num_fields=8).get("token", [])
        except (UnicodeDecodeError, ValueError):
            return []

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._token)

    @staticmethod
    def _oversized(headers: dict[str, list[str]]) -> bool:
        lengths = headers.get("content-length", [])
        return (
            any(not LENGTH.fullmatch(value) or int(value) > BODY for value in lengths)
            or "transfer-encoding" in headers
        )

    def _sealed(self, scope: Scope, send: Send) -> Send:
        """Return `send` with the headers that every answer has.

        Who came with the token in the address gets it as a cookie.
        """
        fresh = scope["type"] == "http" and any(
            map(self._is_token, self.given_in_query(scope["query_string"]))
        )
        cookie = f"{self.cookie}={self._token.decode()}; Path=/; HttpOnly; SameSite=Strict"

        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                status = message["status"]
                self.answers[status] = self.answers.get(status, 0) + 1
                headers = list(message.get("headers", []))
                given = {name.lower() for name, _ in headers}
                headers += [header for header in SEALED if header[0] not in given]
                if fresh:
                    headers.append((b"set-cookie", cookie.encode()))
                message = {**message, "headers": headers}
            await send(message)

        return sealed


async def _answer(scope: Scope, receive: Receive, send: Send, status: int, sentence: str) -> None:
    """Refuse, with a sentence."""
    from starlette.responses import PlainTextResponse

    if scope["type"] == "websocket":
        await receive()  # websocket.connect
    headers = {**HEADERS, "connection": "close"}
    await PlainTextResponse(f"{sentence}\n", status, headers)(scope, receive, send)
