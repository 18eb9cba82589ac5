"""Messages to the page as JSON, and the bounded queue of every viewer.

    server → page   hello, frame, figure, parameters, event, error, bye
    page → server   command (pause, resume, reset, force_nominal, release), subscribe (joint),
                    ack (seq)

Messages never hold NaN, and no more digits than a screen shows. A frame is assembled from texts
that all viewers share, so an additional viewer costs next to nothing. A viewer that is too slow
loses messages and is sent the whole picture again once it can take it.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from thetahat.errors import UsageError
from thetahat.online.gate import GateState
from thetahat.report.figures.stick_figure import Pose
from thetahat.report.section import plain

COMMANDS = ("pause", "resume", "reset", "force_nominal", "release")
POSE_DIGITS = 4  # decimals of positions [m] and rotations
MAX_VIEWERS = 64
QUEUE = 60  # messages that may wait: two seconds
BYTES = 1_000_000  # of them together
RETRY = 3.0  # [s] after which a slow viewer gets the picture nevertheless: it may have been asleep
BEHIND = 2.0  # [s] between a frame and its acknowledgement after which a viewer counts as slow
UNPAIRED = re.compile("[\ud800-\udfff]")  # surrogates: UTF-8 cannot encode them


# -- messages --------------------------------------------------------------------------------------


def encodable(text: str) -> str:
    """Replace every character that UTF-8 cannot encode by U+FFFD."""
    return text if text.isascii() else UNPAIRED.sub("\ufffd", text)


def to_json(message: Any) -> str:
    """Encode a message as JSON; values that are not finite become null."""
    try:
        text = json.dumps(message, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(plain(message), ensure_ascii=False, separators=(",", ":"))
    return encodable(text)


def error(sentence: str) -> str:
    """Return the message that something cannot be done."""
    return to_json({"type": "error", "message": sentence})


def bye(reason: str, sentence: str) -> str:
    """Return the message that no more frames follow."""
    return to_json({"type": "bye", "reason": reason, "message": sentence})


def gate(state: GateState, *, window: int, condition: float | None) -> dict[str, Any]:
    """Return the state of the gate as the page shows it."""
    per_joint = state.r2_per_joint
    return {
        "open": bool(state.open),
        "reason": state.reason,
        "since": _number(state.since, 4),
        "r2": _number(state.r2, 6),
        "r2_fit": _number(state.r2_fit, 6),
        "r2_per_joint": None if per_joint is None else rounded(np.ma.filled(per_joint, np.nan), 5),
        "fill": int(state.fill),
        "window": window,
        "rank": None if state.rank is None else int(state.rank),
        "structural_rank": None if state.structural_rank is None else int(state.structural_rank),
        "condition": None if condition is None else float(f"{condition:.4g}"),
    }


def pose(robot: Pose, bodies: list[int]) -> str:
    """Return the end of a frame: the links' lines, and rotation and position of the ellipsoids."""
    axes = {name: rounded(robot.points[:, k], POSE_DIGITS) for k, name in enumerate("xyz")}
    rotation, position = robot.rotation[bodies].reshape(-1, 9), robot.position[bodies]
    placed = np.round(np.concatenate([rotation, position], axis=1), POSE_DIGITS)
    return f'"pose":{to_json(axes)},"bodies":{to_json(placed.tolist())}'


def frame(number: int, t: float, state: str, extend: list[str], end: str) -> str:
    """Assemble a frame of texts: the state, the panels' new points, the pose."""
    head = f'"type":"frame","seq":{number},"t":{round(t, 4)},"state":{state}'
    return f'{{{head},"extend":{{{",".join(extend)}}},{end}}}'


def parse(received: str) -> dict[str, Any] | None:
    """Decode a message of the page; None if it is not one."""
    try:
        message = json.loads(received)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) and isinstance(message.get("type"), str) else None


def rounded(values: np.ndarray, digits: int) -> list[float | None]:
    """Return numbers rounded to so many decimals, None for NaN."""
    return [value if value == value else None for value in np.round(values, digits).tolist()]


def _number(value: float | None, digits: int) -> float | None:
    return None if value is None or not np.isfinite(value) else round(float(value), digits)


# -- viewers ---------------------------------------------------------------------------------------


class Viewer:
    """Bounded message queue of one viewer: the publisher fills it, the connection empties it.

    Neither side ever waits. `wake` is called, in the publisher's thread, when a message is there.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake, self._lock = wake, threading.Lock()
        self._queue: deque[tuple[str, int | None]] = deque()  # messages, and numbers of frames
        self._size = 0  # characters in the queue
        self._unacknowledged: deque[tuple[int, float]] = deque(maxlen=4 * QUEUE)  # frames, when
        self._acknowledges = False  # whether it ever acknowledged a frame
        self._picture_at = 0.0  # [s] when it was sent the whole picture
        self._idle = True  # whether its connection asks for more
        self.joint = 0  # whose torque it looks at
        self.drawn: int | None = None  # the joint that its last figures were of
        self.waits = True  # for the whole picture
        self.dropped = 0  # frames that it did not get
        self.closed = False

    # -- the publisher's side ----------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether it can take the whole picture now: it asks for more, and is not behind."""
        again = time.monotonic() - self._picture_at > RETRY
        return self._idle and not self._queue and (not self.slow or again)

    @property
    def slow(self) -> bool:
        """Whether it acknowledges what it draws, and is too far behind with it."""
        with self._lock:
            if not (self._acknowledges and self._unacknowledged):
                return False
            return time.monotonic() - self._unacknowledged[0][1] > BEHIND

    def put(self, message: str, frame: int | None = None) -> None:
        """Queue a message. Where there is no room, drop all and wait for the whole picture."""
        if self.waits or self.closed:
            self.dropped += frame is not None
            return
        full = len(self._queue) >= QUEUE or self._size + len(message) > BYTES
        if full or (frame is not None and self.slow):
            self.renew()
            return
        self._put(message, frame)

    def put_picture(self, message: str) -> None:
        """Queue the whole picture; whatever waits is void."""
        with self._lock:
            self._queue.clear()
            self._unacknowledged.clear()  # what was not drawn by now never will be
            self._size, self.waits, self._picture_at = 0, False, time.monotonic()
        self._put(message, None)

    def notify(self, message: str) -> None:
        """Queue a message whatever state the viewer is in."""
        self._put(message, None)

    def answer(self, message: str) -> None:
        """Queue an answer to the viewer's own message; one that never reads gets no more."""
        if len(self._queue) < QUEUE:
            self._put(message, None)

    def _put(self, message: str, frame: int | None) -> None:
        with self._lock:
            self._queue.append((message, frame))
            self._size += len(message)
        self._wake()

    def renew(self) -> None:
        """Drop what waits; the viewer gets the whole picture once it can take it."""
        with self._lock:
            self.dropped += len(self._queue)
            self._queue.clear()
            self._size, self.waits, self._idle = 0, True, False
        self._wake()  # so that it asks for more

    # -- the connection's side ---------------------------------------------------------------------

    def take(self) -> str | None:
        """Return the next message; None where none waits."""
        with self._lock:
            if not self._queue:
                self._idle = True
                return None
            message, frame = self._queue.popleft()
            self._size -= len(message)
            if frame is not None:
                self._unacknowledged.append((frame, time.monotonic()))
            return message

    def acknowledge(self, frame: int) -> None:
        """Note that the viewer has drawn a frame."""
        with self._lock:
            self._acknowledges = True
            while self._unacknowledged and self._unacknowledged[0][0] <= frame:
                self._unacknowledged.popleft()


class ViewerList:
    """The viewers of a run. Any thread attaches and detaches; iterating sees a snapshot."""

    def __init__(self) -> None:
        self._viewers: tuple[Viewer, ...] = ()
        self._lock, self._dropped = threading.Lock(), 0

    def __len__(self) -> int:
        return len(self._viewers)

    def __iter__(self) -> Iterator[Viewer]:
        return iter(self._viewers)

    def attach(self, wake: Callable[[], None] = lambda: None) -> Viewer:
        """Add a viewer; raises `UsageError` where there are too many."""
        with self._lock:
            if len(self._viewers) >= MAX_VIEWERS:
                raise UsageError(f"{MAX_VIEWERS} viewers are connected already; close one of them")
            viewer = Viewer(wake)
            self._viewers = (*self._viewers, viewer)
        return viewer

    def detach(self, viewer: Viewer) -> None:
        """Remove a viewer."""
        viewer.closed = True
        with self._lock:
            self._viewers = tuple(each for each in self._viewers if each is not viewer)
            self._dropped += viewer.dropped

    @property
    def dropped(self) -> int:
        """Frames that viewers did not get."""
        return self._dropped + sum(viewer.dropped for viewer in self._viewers)

    @property
    def waiting(self) -> bool:
        """Whether any viewer waits for the whole picture."""
        return any(viewer.waits for viewer in self._viewers)
