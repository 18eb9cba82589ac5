"""The web server of the live page: a few fixed addresses and two WebSockets, from memory.

It runs in a thread of its own. No path leads to the disk.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import threading
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from functools import partial
from importlib import resources
from typing import Any
from urllib.parse import quote

from thetahat.errors import MissingExtra, NotIdentifiable, ThetahatError, UsageError
from thetahat.live import viewers as messages
from thetahat.live.joint_states import BadFrame, Decoder
from thetahat.live.sample_sources import Listen
from thetahat.live.security import Guard, is_local, reachable_address
from thetahat.live.session import NO_ROBOT, NotReady, Session
from thetahat.live.session import PATIENCE as DOWNLOAD_PATIENCE
from thetahat.live.viewers import Viewer
from thetahat.report.page import plotly_file

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response, StreamingResponse
    from starlette.routing import Route, WebSocketRoute
    from starlette.websockets import WebSocket, WebSocketDisconnect
    from uvicorn.protocols.http.h11_impl import H11Protocol
    from uvicorn.protocols.utils import ClientDisconnected
    from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
except ImportError as error:
    raise MissingExtra(
        f'the live page needs {error.name}, which is not installed; pip install "thetahat[web]"'
    ) from None

FRAME = 65_536  # bytes of a received WebSocket frame, at most
HEADERS = 16_384  # bytes of a request's head
PIECE = 65_536  # bytes of an answer that are sent at once: a slow reader holds no more of it
# bytes that the kernel keeps of what a reader did not take yet (Linux doubles it); the default is
# some megabytes
SEND_BUFFER = 65_536
PATIENCE = 10.0  # [s] for a viewer to take a message
LOOK_AGAIN = 30.0  # [s] without anything to send
REQUEST = 3.0  # [s] for a request to be complete
LOOK = 1.0  # [s] between two looks at a connection
ANSWER = 60.0  # [s] for an answer to be taken, once there is one
# [s] for there to be one: longer than a download takes, so that its own refusal gets through
MAKING = DOWNLOAD_PATIENCE + 30.0
CLOSING = 1.0  # [s] for what is still to be sent when a WebSocket's work is done
CONNECTIONS = 400
BACKLOG = 128  # connections that may wait to be taken
ERRORS = 64  # answers to bad frames that may wait for their sender
SILENT = 2.0  # [s] after which another sender of joint states may take over
GOING_AWAY, POLICY_VIOLATION, TRY_AGAIN_LATER = 1001, 1008, 1013  # close codes of a WebSocket
GONE = (WebSocketDisconnect, TimeoutError, RuntimeError, OSError)
TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".png": "image/png",
}
TEXT = "text/plain"


# -- protocols -------------------------------------------------------------------------------------


class BoundedHttp(H11Protocol):
    """HTTP that ends connections whose requests, or whose readers, take too long."""

    _closing = False

    def connection_made(self, transport: Any) -> None:
        """Begin to watch."""
        super().connection_made(transport)
        self._since: tuple[object, float] = (self._state, self.loop.time())
        if len(self.connections) > CONNECTIONS:
            self._make_room()
        self._watchdog = self.loop.call_later(LOOK, self._check)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop watching."""
        if hasattr(self, "_watchdog"):
            self._watchdog.cancel()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, event: Any) -> None:
        """Stop watching: a WebSocket has its own rules."""
        self._watchdog.cancel()
        super().handle_websocket_upgrade(event)

    @property
    def _state(self) -> tuple[object, bool, bool]:
        """The request that is answered, whether one is, and whether the answer has begun."""
        cycle = self.cycle
        busy = cycle is not None and not cycle.response_complete
        return cycle, busy, bool(busy and cycle.response_started)

    def _make_room(self) -> None:
        """Abort the connection that has been without a request for longest, so that connections
        that ask for nothing lock nobody out; this one, where all are at work.
        """
        waiting = [
            each
            for each in self.connections
            if isinstance(each, BoundedHttp) and not each._state[1] and not each._closing
        ]
        oldest = min(waiting, key=lambda each: each._since[1], default=self)
        oldest._closing = True
        oldest.transport.abort()

    def _check(self) -> None:
        """Abort where the same request, or the same silence, goes on for too long."""
        now, state = self.loop.time(), self._state
        _, busy, started = state
        limit = (ANSWER if started else MAKING) if busy else REQUEST
        if state != self._since[0]:
            self._since = (state, now)
        elif now - self._since[1] >= limit:
            self.transport.abort()
            return
        self._watchdog = self.loop.call_later(LOOK, self._check)


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """A WebSocket that buffers little for a reader who takes nothing."""

    def connection_made(self, transport: Any) -> None:
        """Buffer one piece at most beside the kernel's."""
        transport.set_write_buffer_limits(high=PIECE)
        super().connection_made(transport)

    async def run_asgi(self) -> None:
        """Abort once all is sent: a closed transport would wait for its reader for ever."""
        await super().run_asgi()
        self.loop.call_later(CLOSING, self.transport.abort)

    async def send(self, message: Any) -> None:
        """Send long texts in pieces: viewers share the text, and each buffers what it takes."""
        text = message.get("text") if message["type"] == "websocket.send" else None
        if text is None or len(text) <= PIECE:
            await super().send(message)
            return
        for begin in range(0, len(text), PIECE):
            await asyncio.wait_for(self.writable.wait(), PATIENCE)
            if self.disconnected or self.close_sent or self.transport.is_closing():
                raise ClientDisconnected
            piece, last = text[begin : begin + PIECE].encode(), begin + PIECE >= len(text)
            if begin:
                self.conn.send_continuation(piece, last)
            else:
                self.conn.send_text(piece, last)
            self.transport.write(b"".join(self.conn.data_to_send()))


def bind_socket(host: str, port: int, *, allow_remote: bool = False) -> socket.socket:
    """Return a socket that listens on the address; raises `UsageError` where that fails."""
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
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)  # connections inherit it
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
    bound.listen(BACKLOG)
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
        self.session, self.token, self._host = session, token, reachable_address(host)
        self._socket = bind_socket(host, port) if bound is None else bound
        self.port = self._socket.getsockname()[1]
        self._files, self._plotly = _files(), plotly_file().read_bytes()
        routes = [
            Route("/", self._page),
            Route("/static/{name}", self._static),
            Route("/plotly.min.js", self._script),
            Route("/download/{name}", self._download),
            WebSocketRoute("/live", partial(serve_viewer, session)),
            WebSocketRoute("/joint-states", JointStateReceiver(session).receive),
        ]
        application = Starlette(routes=routes)
        application.router.redirect_slashes = False
        self.guard = Guard(application, token=token, host=host, port=self.port)
        self._server = uvicorn.Server(_config(self.guard))
        self._thread: threading.Thread | None = None

    # -- life --------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Host and port, as in an address."""
        return f"{f'[{self._host}]' if ':' in self._host else self._host}:{self.port}"

    @property
    def address(self) -> str:
        """Link that opens the page."""
        return f"http://{self.name}/?token={self.token}"

    @property
    def joint_states(self) -> str:
        """Address that takes joint states."""
        return f"ws://{self.name}/joint-states?token={self.token}"

    def start(self) -> Server:
        """Serve, in a thread."""
        run = partial(self._server.run, sockets=[self._socket])
        self._thread = threading.Thread(target=run, name="thetahat-server", daemon=True)
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
        """Return a file from memory, by its exact name."""
        if name not in self._files:
            return Response("not found\n", 404, media_type=TEXT)
        content, kind = self._files[name]
        return Response(content, media_type=kind, headers={"cache-control": "no-cache"})

    async def _script(self, request: Request) -> Response:
        headers = {"cache-control": "private, max-age=3600"}
        return _in_pieces(self._plotly, "text/javascript", headers)

    async def _download(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in ("estimate.json", "robot", "report.html", "drive.json"):
            return Response("not found\n", 404, media_type=TEXT)
        loop = asyncio.get_running_loop()
        try:
            files = await loop.run_in_executor(None, self.session.downloads)
        except NotReady as error:
            return JSONResponse({"error": str(error)}, 503, {"retry-after": "10"})
        except NotIdentifiable as error:
            return JSONResponse({"error": str(error)}, 409)
        except ThetahatError as error:
            return JSONResponse({"error": str(error)}, 500)
        if name == "drive.json" and files.drive is None:
            why = "the robot file holds all drive terms, so there is no drive.json"
            return JSONResponse({"error": why}, 404)
        if name == "robot" and files.robot is None:
            why = f"{NO_ROBOT}. {files.verdict}" if files.verdict else NO_ROBOT
            return JSONResponse({"error": why}, 409)
        content = {
            "estimate.json": files.estimate,
            "robot": files.robot,
            "report.html": files.report,
            "drive.json": files.drive,
        }[name]
        filename = files.robot_name if name == "robot" else name
        kinds = {"json": "application/json", "html": "text/html; charset=utf-8"}
        kind = kinds.get(filename.rsplit(".", 1)[-1], "application/xml")
        safe = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in filename)
        headers = {
            "content-disposition": f'attachment; filename="{safe}"',
            "x-thetahat-verdict": quote(files.verdict),
        }
        return _in_pieces(content or b"", kind, headers)


def _config(application: Guard) -> uvicorn.Config:
    """Return uvicorn's settings: small limits, and nothing on the terminal."""
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    return uvicorn.Config(
        application,
        http=BoundedHttp,
        ws=BoundedWebSocket,
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
        limit_concurrency=CONNECTIONS + BACKLOG,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=2,
    )


def _files() -> dict[str, tuple[bytes, str]]:
    """Return (content, type) of the page's own files and of the report's style, by name."""
    out: dict[str, tuple[bytes, str]] = {}
    for package, folder in (("thetahat.report", "style"), ("thetahat.live", "static")):
        for file in resources.files(package).joinpath(folder).iterdir():
            kind = TYPES.get("." + file.name.rsplit(".", 1)[-1])
            if file.is_file() and kind is not None:
                charset = "; charset=utf-8" if kind.startswith("text/") else ""
                out[file.name] = (file.read_bytes(), kind + charset)
    return out


def _in_pieces(content: bytes, kind: str, headers: dict[str, str]) -> Response:
    """Return a long answer that waits for its reader between pieces."""

    async def pieces() -> AsyncIterator[bytes]:
        view = memoryview(content)
        for begin in range(0, len(content), PIECE):
            yield bytes(view[begin : begin + PIECE])
            await asyncio.sleep(0.0)  # a reader who left is noticed before more is written to it

    headers = {**headers, "content-length": str(len(content))}
    return StreamingResponse(pieces(), media_type=kind, headers=headers)


# -- viewers ---------------------------------------------------------------------------------------


async def serve_viewer(session: Session, websocket: WebSocket) -> None:
    """Send a viewer its messages and take its own; one that takes nothing for long is dropped."""
    await websocket.accept()
    loop, available = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        with suppress(RuntimeError):  # the server is closing
            loop.call_soon_threadsafe(available.set)

    try:
        viewer = session.viewers.attach(wake)
    except UsageError as error:
        await websocket.send_text(messages.error(str(error)))
        await websocket.close(TRY_AGAIN_LATER)
        return
    receiving = asyncio.create_task(_receive_messages(session, viewer, websocket))
    receiving.add_done_callback(lambda _: available.set())
    try:
        while not receiving.done():
            available.clear()
            while (message := viewer.take()) is not None:
                await asyncio.wait_for(websocket.send_text(message), PATIENCE)
            await _woken(available)
    except GONE:
        pass  # gone, or too slow
    finally:
        session.viewers.detach(viewer)
        receiving.cancel()
        with suppress(Exception):
            await asyncio.wait_for(websocket.close(GOING_AWAY), 1.0)


async def _woken(event: asyncio.Event) -> None:
    """Wait for an event, or for `LOOK_AGAIN`: then whoever waits looks again."""
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), LOOK_AGAIN)


async def _receive_messages(session: Session, viewer: Viewer, websocket: WebSocket) -> None:
    while (received := await websocket.receive())["type"] == "websocket.receive":
        text = received.get("text")
        message = None if text is None else messages.parse(text)
        try:
            if message is None:
                raise UsageError("a message of the page is a JSON object with a type")
            _handle_message(session, viewer, message)
        except UsageError as error:
            viewer.answer(messages.error(str(error)))


def _handle_message(session: Session, viewer: Viewer, message: dict[str, Any]) -> None:
    match message:
        case {"type": "ack", "seq": int(number)}:
            viewer.acknowledge(number)
        case {"type": "subscribe", "joint": int(joint)} if 0 <= joint < session.shared.robot.nv:
            viewer.joint = joint
        case {"type": "command", "name": str(name)}:
            session.command(name)
        case _:
            raise UsageError(
                f"a message of type {message['type'][:40]!r} with these fields is unknown"
            )


# -- joint states ----------------------------------------------------------------------------------


class JointStateReceiver:
    """Takes joint states of one sender at a time; a silent one may be replaced."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._sender: WebSocket | None = None
        self._heard = 0.0  # [s] when

    def _claim(self, websocket: WebSocket) -> bool:
        """Make this the sender, unless there is another."""
        now = asyncio.get_running_loop().time()
        if self._sender not in (None, websocket) and now - self._heard <= SILENT:
            return False
        self._sender, self._heard = websocket, now
        return True

    async def receive(self, websocket: WebSocket) -> None:
        """Take samples, and answer each that cannot be used."""
        await websocket.accept()
        source = self._session.source
        if not isinstance(source, Listen):
            why = "this page does not listen; start it with `thetahat watch listen ROBOT`"
            await _refuse(websocket, why)
        elif not self._claim(websocket):
            await _refuse(websocket, "another sender is connected; one robot, one sender")
        else:
            await self._take(websocket, source)

    async def _take(self, websocket: WebSocket, source: Listen) -> None:
        session, decoder, count = self._session, Decoder(source.nominal), 0
        outbox: deque[str] = deque(maxlen=ERRORS)
        available = asyncio.Event()
        answering = asyncio.create_task(_send_answers(websocket, outbox, available))
        session.event("info", "a sender of joint states is connected")
        try:
            while (received := await websocket.receive())["type"] == "websocket.receive":
                count += 1
                if not self._claim(websocket):
                    break
                reason = self._sample(decoder, source, received)
                if reason:
                    session.refused += 1
                    answer = {"type": "error", "reason": reason, "frame": count}
                    outbox.append(messages.to_json(answer))
                    available.set()
        except GONE:
            pass
        finally:
            answering.cancel()
            self._sender = None if self._sender is websocket else self._sender
            session.event("info", f"the sender of joint states left after {count} frames")
            with suppress(Exception):
                await asyncio.wait_for(websocket.close(GOING_AWAY), 1.0)

    def _sample(self, decoder: Decoder, source: Listen, received: Mapping[str, Any]) -> str:
        """Take a frame; why not, or an empty text."""
        frame, before = received.get("text"), decoder.ignored
        try:
            sample = decoder.decode(received["bytes"] if frame is None else frame)
        except BadFrame as error:
            return str(error)
        if decoder.ignored != before:
            names = ", ".join(decoder.ignored[:8])
            ignored = f"joints that the robot does not have are ignored: {names}"
            sentence = ignored if names else "all joints that are sent are the robot's"
            self._session.event("info", sentence, like="names")
        if sample is not None and not source.offer(sample):
            return "samples come faster than they can be identified; this one was dropped"
        return ""


async def _refuse(websocket: WebSocket, why: str) -> None:
    await websocket.send_text(messages.to_json({"type": "error", "reason": why, "frame": 0}))
    await websocket.close(POLICY_VIOLATION)


async def _send_answers(websocket: WebSocket, outbox: deque[str], available: asyncio.Event) -> None:
    """Send answers to bad frames; a sender that does not read them loses the oldest."""
    with suppress(*GONE):
        while True:
            await _woken(available)
            available.clear()
            while outbox:
                await asyncio.wait_for(websocket.send_text(outbox.popleft()), PATIENCE)
