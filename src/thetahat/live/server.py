"""The server of the live page: a few fixed addresses and two WebSockets, in a thread of its own. It
serves from memory: no path leads to the disk.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import threading
from collections.abc import AsyncIterator
from functools import partial
from importlib import resources
from typing import Any

from thetahat.errors import MissingExtra, NotIdentifiable, ThetahatError, UsageError
from thetahat.live.security import Guard, is_local, reachable
from thetahat.live.session import NO_ROBOT, Session, Unfinished
from thetahat.live.session import PATIENCE as making
from thetahat.live.sockets import Sender, watch
from thetahat.report.page import plotly_file

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response, StreamingResponse
    from starlette.routing import Route, WebSocketRoute
    from uvicorn.protocols.http.h11_impl import H11Protocol
    from uvicorn.protocols.utils import ClientDisconnected
    from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
except ImportError as error:
    raise MissingExtra(
        f'the live page needs {error.name}, which is not installed; pip install "thetahat[web]"'
    ) from None

FRAME = 65_536  # bytes of a WebSocket frame from outside, at most
HEADERS = 16_384  # bytes of a request's head
PIECE = 65_536  # bytes of an answer that are sent at once: a slow reader holds no more of it
# bytes that the kernel keeps of what a reader did not take yet (Linux takes this times two); its
# own choice is some megabytes
KERNEL = 65_536
PATIENCE = 10.0  # [s] for a request to be complete, and for a viewer to take a message
ANSWER = 60.0  # [s] for an answer to be taken, once there is one
MAKING = (
    making + 30.0
)  # [s] for there to be one: longer than the longest there is, so that its own refusal gets through
CLOSING = 1.0  # [s] for what is still to be sent when a WebSocket's work is done
CONNECTIONS = 400
TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".png": "image/png",
}
POLICY = 1008  # codes of a WebSocket's end
GOING, TRY_LATER = 1001, 1013


class Patient(H11Protocol):
    """HTTP that ends connections whose requests, or whose readers, take for ever."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Begin to watch."""
        super().connection_made(transport)
        self._seen: tuple[Any, float] = (None, self.loop.time())
        if len(self.connections) > CONNECTIONS:
            transport.abort()
            return
        self._watchdog = self.loop.call_later(PATIENCE, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is left to watch."""
        if hasattr(self, "_watchdog"):
            self._watchdog.cancel()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, event: Any) -> None:
        """From here on it is a WebSocket, which has its own rules."""
        self._watchdog.cancel()
        super().handle_websocket_upgrade(event)

    def _look(self) -> None:
        """Abort where the same request, or the same silence, goes on for too long."""
        now, busy = self.loop.time(), self.cycle is not None and not self.cycle.response_complete
        state = (self.cycle, busy, busy and self.cycle.response_started)
        if state != self._seen[0]:
            self._seen = (state, now)
        elif now - self._seen[1] >= (
            (ANSWER if self.cycle.response_started else MAKING) if busy else PATIENCE
        ):
            self.transport.abort()
            return
        self._watchdog = self.loop.call_later(PATIENCE / 2.0, self._look)


class PatientSocket(WebSocketsSansIOProtocol):
    """A WebSocket that keeps little for a reader who takes nothing, and ends with the work
    on it.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Keep one piece at most beside the kernel's."""
        transport.set_write_buffer_limits(high=PIECE)
        super().connection_made(transport)

    async def run_asgi(self) -> None:
        """Once all is said, close for good: a closed transport waits for its reader for ever, and a
        stalled one would keep its connection.
        """
        await super().run_asgi()
        self.loop.call_later(CLOSING, self.transport.abort)

    async def send(self, message: Any) -> None:
        """Long texts in pieces: all viewers share the text, and each has no more of it in bytes
        than it takes.
        """
        text = message.get("text") if message["type"] == "websocket.send" else None
        if text is None or len(text) <= PIECE:
            await super().send(message)
            return
        for begin in range(0, len(text), PIECE):
            await self.writable.wait()
            if self.disconnected or self.close_sent or self.transport.is_closing():
                raise ClientDisconnected
            piece, last = text[begin : begin + PIECE].encode(), begin + PIECE >= len(text)
            if begin:
                self.conn.send_continuation(piece, last)
            else:
                self.conn.send_text(piece, last)
            self.transport.write(b"".join(self.conn.data_to_send()))


def listening(host: str, port: int, *, allow_remote: bool = False) -> socket.socket:
    """A socket bound to the address; raises `UsageError` where that is not possible, or not
    allowed.
    """
    if not 0 <= port <= 65535:
        raise UsageError(f"--port is {port}; give a number from 0 (any that is free) to 65535")
    if not is_local(host) and not allow_remote:
        raise UsageError(
            f"--host {host!r} lets other machines see and steer this robot's page; add"
            " --allow-remote if that is wanted, or use 127.0.0.1"
        )
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL)  # connections inherit it
        bound.bind(address)
    except socket.gaierror:
        raise UsageError(f"--host {host!r} is no address of this machine; use 127.0.0.1") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UsageError(
                f"port {port} of {host} is in use; give another with --port, or --port 0 for any"
                " that is free"
            ) from None
        raise UsageError(
            f"{host} port {port} cannot be listened on: {error.strerror}; give another --host or"
            " --port"
        ) from None
    bound.listen(128)
    return bound


class Server:
    """Serves one session, from `start` to `stop`."""

    def __init__(
        self,
        session: Session,
        *,
        token: str,
        host: str = "127.0.0.1",
        port: int = 0,
        bound: socket.socket | None = None,
    ) -> None:
        self.session, self.token, self.host, self._found = session, token, host, reachable(host)
        self._socket = listening(host, port) if bound is None else bound
        self.port = self._socket.getsockname()[1]
        self._files = _files()
        self._plotly = plotly_file().read_bytes()
        sender = Sender(session)
        routes = [
            Route("/", self._page),
            Route("/static/{name}", self._static),
            Route("/plotly.min.js", self._script),
            Route("/download/{name}", self._download),
            WebSocketRoute("/live", partial(watch, session)),
            WebSocketRoute("/joint-states", sender.receive),
        ]
        application = Starlette(routes=routes)
        application.router.redirect_slashes = False
        self.guard = Guard(application, token=token, host=host, port=self.port)
        logging.getLogger("uvicorn.error").setLevel(
            logging.CRITICAL
        )  # what a stranger sends is no reason to write to the terminal
        config = uvicorn.Config(
            self.guard,
            http=Patient,
            ws=PatientSocket,
            ws_max_size=FRAME,
            ws_per_message_deflate=False,
            ws_ping_interval=20.0,
            ws_ping_timeout=20.0,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=HEADERS,
            limit_concurrency=CONNECTIONS,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=2,
        )
        self._server = uvicorn.Server(config)
        self._thread: threading.Thread | None = None

    # -- life --------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Host and port, as in an address."""
        return f"{f'[{self._found}]' if ':' in self._found else self._found}:{self.port}"

    @property
    def address(self) -> str:
        """The link that opens the page."""
        return f"http://{self.name}/?token={self.token}"

    @property
    def joint_states(self) -> str:
        """Where a bridge sends joint states to."""
        return f"ws://{self.name}/joint-states?token={self.token}"

    def start(self) -> Server:
        """Serve, in a thread."""
        self._thread = threading.Thread(
            target=lambda: self._server.run(sockets=[self._socket]),
            name="thetahat-server",
            daemon=True,
        )
        self._thread.start()
        while not self._server.started:
            self._thread.join(0.01)
            if not self._thread.is_alive():
                raise UsageError("the server did not start; is another one on the same port?")
        return self

    def stop(self) -> None:
        """Close all connections and the port."""
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(timeout=10.0)
        self._socket.close()

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- pages -------------------------------------------------------------------------------------

    async def _page(self, request: Request) -> Response:
        return self._file("index.html")

    async def _static(self, request: Request) -> Response:
        return self._file(request.path_params["name"])

    def _file(self, name: str) -> Response:
        """By name from memory: what is not there by exactly that name is not there."""
        if name not in self._files:
            return Response("not here\n", 404, media_type="text/plain")
        content, kind = self._files[name]
        return Response(content, media_type=kind, headers={"cache-control": "no-cache"})

    async def _script(self, request: Request) -> Response:
        return _in_pieces(
            self._plotly, "text/javascript", {"cache-control": "private, max-age=3600"}
        )

    async def _download(self, request: Request) -> Response:
        name, session = request.path_params["name"], self.session
        if name not in ("estimate.json", "robot", "report.html", "drive.json"):
            return Response("not here\n", 404, media_type="text/plain")
        try:
            made = await asyncio.get_running_loop().run_in_executor(
                None, session.product
            )  # once: nothing that may wait is called here
            called = made.robot_name if name == "robot" else name
            content = {
                "estimate.json": made.estimate,
                "robot": made.robot,
                "report.html": made.report,
                "drive.json": made.drive,
            }[name]
        except Unfinished as error:
            return JSONResponse({"error": str(error)}, 503, {"retry-after": "10"})
        except NotIdentifiable as error:
            return JSONResponse({"error": str(error)}, 409)
        except ThetahatError as error:
            return JSONResponse({"error": str(error)}, 500)
        if content is None:
            why = (
                "the robot's file holds all drive terms, so there is no file beside it"
                if name == "drive.json"
                else NO_ROBOT
            )
            return JSONResponse({"error": why}, 404 if name == "drive.json" else 409)
        kind = {"json": "application/json", "html": "text/html; charset=utf-8"}.get(
            called.rsplit(".", 1)[-1], "application/xml"
        )
        safe = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in called)
        return _in_pieces(content, kind, {"content-disposition": f'attachment; filename="{safe}"'})


def _files() -> dict[str, tuple[bytes, str]]:
    """The page's own files, and the report's style and script that it shares, by name."""
    out: dict[str, tuple[bytes, str]] = {}
    for folder in (
        resources.files("thetahat.report").joinpath("style"),
        resources.files("thetahat.live").joinpath("static"),
    ):
        for file in folder.iterdir():
            suffix = "." + file.name.rsplit(".", 1)[-1]
            if file.is_file() and suffix in TYPES:
                kind = TYPES[suffix]
                out[file.name] = (
                    file.read_bytes(),
                    (f"{kind}; charset=utf-8" if kind.startswith("text/") else kind),
                )
    return out


def _in_pieces(content: bytes, kind: str, headers: dict[str, str]) -> Response:
    """A long answer that waits for its reader between pieces."""

    async def pieces() -> AsyncIterator[bytes]:
        view = memoryview(content)
        for begin in range(0, len(content), PIECE):
            yield bytes(view[begin : begin + PIECE])

    return StreamingResponse(
        pieces(), media_type=kind, headers={**headers, "content-length": str(len(content))}
    )
