"""The two WebSockets of the live page: viewers, who get messages and send words, and one sender of
joint states.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import Any

from thetahat.errors import MissingExtra, UsageError
from thetahat.live import messages
from thetahat.live.joint_states import BadFrame, Decoder
from thetahat.live.sample_sources import Listen
from thetahat.live.session import Session
from thetahat.live.viewers import Viewer

try:
    from starlette.websockets import WebSocket, WebSocketDisconnect
except ImportError:
    raise MissingExtra(
        'the live page needs starlette, which is not installed; pip install "thetahat[web]"'
    ) from None

PATIENCE = 10.0  # [s] for a viewer to take a message
ERRORS = 64  # answers to bad frames that may wait for their sender
SILENT = 2.0  # [s] after which another sender of joint states may take over
GOING, POLICY, LATER = 1001, 1008, 1013  # codes of a WebSocket's end
GONE = (WebSocketDisconnect, TimeoutError, RuntimeError, OSError)


# -- viewers ---------------------------------------------------------------------------------------


async def watch(session: Session, socket: WebSocket) -> None:
    """Messages out as they come, and words in; a viewer that takes nothing for long is let go."""
    await socket.accept()
    loop, there = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        with suppress(RuntimeError):  # the server is closing
            loop.call_soon_threadsafe(there.set)

    try:
        viewer = session.attach(wake)
    except UsageError as error:
        await socket.send_text(messages.error(str(error)))
        await socket.close(LATER)
        return
    hearing = asyncio.create_task(_hear(session, viewer, socket))
    hearing.add_done_callback(lambda _: there.set())
    try:
        while not hearing.done():
            there.clear()
            while (message := viewer.take()) is not None:
                await asyncio.wait_for(socket.send_text(message), PATIENCE)
            await there.wait()
    except GONE:
        pass  # gone, or too slow
    finally:
        session.detach(viewer)
        hearing.cancel()
        with suppress(Exception):
            await asyncio.wait_for(socket.close(GOING), 1.0)


async def _hear(session: Session, viewer: Viewer, socket: WebSocket) -> None:
    while (received := await socket.receive())["type"] == "websocket.receive":
        text = received.get("text")
        message = None if text is None else messages.parse(text)
        try:
            if message is None:
                raise UsageError("a message of the page is a JSON object with a type")
            _word(session, viewer, message)
        except UsageError as error:
            viewer.answer(messages.error(str(error)))


def _word(session: Session, viewer: Viewer, message: dict[str, Any]) -> None:
    match message:
        case {"type": "ack", "seq": int(number)}:
            viewer.acknowledge(number)
        case {"type": "subscribe", "joint": int(joint)} if 0 <= joint < session.shared.robot.nv:
            viewer.joint = joint
        case {"type": "command", "name": str(name)}:
            session.command(name)
        case _:
            raise UsageError(
                f"a message of type {message['type'][:40]!r} with these fields is not known here"
            )


# -- samples ---------------------------------------------------------------------------------------


class Sender:
    """Takes joint states of one sender at a time; one that has been silent for a while may be
    replaced.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._who: WebSocket | None = None
        self._heard = 0.0

    def _mine(self, socket: WebSocket) -> bool:
        """Whether this is the one sender; it is from now on, if there is none."""
        now = asyncio.get_running_loop().time()
        if self._who not in (None, socket) and now - self._heard <= SILENT:
            return False
        self._who, self._heard = socket, now
        return True

    async def receive(self, socket: WebSocket) -> None:
        """Samples in, and an answer to each that cannot be used."""
        await socket.accept()
        source = self._session.source
        if not isinstance(source, Listen):
            await _refuse(
                socket, "this page does not listen; start it with `thetahat watch listen ROBOT`"
            )
        elif not self._mine(socket):
            await _refuse(socket, "another sender is connected; one robot, one sender")
        else:
            await self._take(socket, source)

    async def _take(self, socket: WebSocket, source: Listen) -> None:
        session, decoder, outbox, there = (
            self._session,
            Decoder(source.nominal),
            deque(maxlen=ERRORS),
            asyncio.Event(),
        )
        answering = asyncio.create_task(_answer(socket, outbox, there))
        session.say("info", "a sender of joint states is connected")
        count = 0
        try:
            while (received := await socket.receive())["type"] == "websocket.receive":
                count += 1
                if not self._mine(socket):
                    break
                reason = self._sample(decoder, source, received)
                if reason:
                    session.refused += 1
                    outbox.append(
                        messages.text({"type": "error", "reason": reason, "frame": count})
                    )
                    there.set()
        except GONE:
            pass
        finally:
            answering.cancel()
            self._who = None if self._who is socket else self._who
            session.say("info", f"the sender of joint states left after {count} frames")
            with suppress(Exception):
                await asyncio.wait_for(socket.close(GOING), 1.0)

    def _sample(self, decoder: Decoder, source: Listen, received: dict[str, Any]) -> str:
        """Take a frame; why not, or an empty text."""
        frame, before = received.get("text"), decoder.ignored
        try:
            sample = decoder.decode(received["bytes"] if frame is None else frame)
        except BadFrame as error:
            return str(error)
        if decoder.ignored != before:
            names = ", ".join(decoder.ignored[:8])
            said = (
                f"joints that the robot does not have are ignored: {names}"
                if names
                else "every joint that is sent is one of the robot's"
            )
            self._session.say("info", said, like="names")
        if sample is not None and not source.offer(sample):
            return "samples come faster than they can be identified; this one was dropped"
        return ""


async def _refuse(socket: WebSocket, why: str) -> None:
    await socket.send_text(messages.text({"type": "error", "reason": why, "frame": 0}))
    await socket.close(POLICY)


async def _answer(socket: WebSocket, outbox: deque[str], there: asyncio.Event) -> None:
    """Send answers to bad frames; a sender that does not read them loses the oldest."""
    with suppress(*GONE):
        while True:
            await there.wait()
            there.clear()
            while outbox:
                await socket.send_text(outbox.popleft())
