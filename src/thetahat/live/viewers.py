"""Those who watch: each has a short queue of messages. One that is too slow loses them, and gets
the whole picture again once it can take it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

QUEUE = 60  # messages that may wait: two seconds
BYTES = 1_000_000  # of them together
AGAIN = 3.0  # [s] after which a slow one gets the picture nevertheless: it may have been asleep
BEHIND = 2.0  # [s] between a frame and the answer that it was drawn, after which a viewer is slow


class Viewer:
    """The publisher puts messages in, the connection takes them out; nobody waits."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake, self._lock = wake, threading.Lock()
        self._queue: deque[tuple[str, int | None]] = (
            deque()
        )  # messages, and the number of those that are frames
        self._size = 0
        self._sent: deque[tuple[int, float]] = deque(maxlen=4 * QUEUE)  # frames, and when
        self._answers = False  # whether it says what it has drawn
        self._told = 0.0  # [s] when it was sent the whole picture
        self._hungry = True  # whether its connection asks for more
        self.joint = 0  # whose torque it looks at
        self.drawn: int | None = None  # the joint that its last figures were of
        self.waits = True  # for the whole picture
        self.dropped = 0  # frames that it did not get
        self.closed = False

    # -- the publisher's side ----------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether it can take the whole picture now: it asks for more, and what it has drawn is not
        too old.
        """
        return (
            self._hungry
            and not self._queue
            and (not self.slow or time.monotonic() - self._told > AGAIN)
        )

    @property
    def slow(self) -> bool:
        """Whether it draws what it gets, and is too far behind with it."""
        with self._lock:
            return (
                self._answers and bool(self._sent) and time.monotonic() - self._sent[0][1] > BEHIND
            )

    def put(self, message: str, frame: int | None = None) -> None:
        """Send a message; a frame can be left out, all others lead to the whole picture anew where
        there is no room.
        """
        if self.waits or self.closed:
            self.dropped += frame is not None
            return
        if (
            len(self._queue) >= QUEUE
            or self._size + len(message) > BYTES
            or (frame is not None and self.slow)
        ):
            self.renew()
            return
        self._put(message, frame)

    def put_all(self, messages: list[str]) -> None:
        """The whole picture: whatever waits is void."""
        with self._lock:
            self._queue.clear()
            self._sent.clear()  # what was not drawn by now never will be
            self._size, self.waits, self._told = 0, False, time.monotonic()
        for message in messages:
            self._put(message, None)

    def say(self, message: str) -> None:
        """A word to this one, whatever state it is in."""
        self._put(message, None)

    def answer(self, message: str) -> None:
        """A word in answer to one of its own; one that only talks and never reads gets no more."""
        if len(self._queue) < QUEUE:
            self._put(message, None)

    def _put(self, message: str, frame: int | None) -> None:
        with self._lock:
            self._queue.append((message, frame))
            self._size += len(message)
        self._wake()

    def renew(self) -> None:
        """Drop what waits; it gets the whole picture once it can take it."""
        with self._lock:
            self.dropped += len(self._queue)
            self._queue.clear()
            self._size, self.waits, self._hungry = 0, True, False
        self._wake()  # so that it says that it asks for more

    # -- the connection's side ---------------------------------------------------------------------

    def take(self) -> str | None:
        """The next message; None where none waits."""
        with self._lock:
            if not self._queue:
                self._hungry = True
                return None
            message, frame = self._queue.popleft()
            self._size -= len(message)
            if frame is not None:
                self._sent.append((frame, time.monotonic()))
            return message

    def acknowledge(self, frame: int) -> None:
        """The viewer has drawn a frame."""
        with self._lock:
            self._answers = True
            while self._sent and self._sent[0][0] <= frame:
                self._sent.popleft()
