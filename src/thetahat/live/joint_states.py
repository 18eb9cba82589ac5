"""Joint states from outside, one frame per sample: ROS's JointState as JSON, or the same numbers in
binary. Every frame is checked.

    JSON    {"t": 1.23, "name": [...], "position": [...], "velocity": [...], "effort": [...]}, or
    "stamp": {"sec": 1, "nanosec": 230000000} for t binary  b"TJS1", uint16 n, float64 t, n
    positions, n velocities (or none), n efforts; little-endian; joints in the order of {"name":
    [...]}

`velocity` may be empty or absent: it is then derived from the positions. Joints that the robot does
not have are ignored.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from thetahat.errors import UsageError, known
from thetahat.model.robot import Robot

MAGIC = b"TJS1"
HEAD = struct.Struct("<4sHd")
LARGEST = 1e9  # [rad, rad/s, N·m …]: no joint's number is larger
MOST_NAMES = 4096
LATE = 3  # stamps in a row from the past that go on from there: the sender's clock was set back
SHOWN = 80  # letters of what a sender wrote that an answer repeats


class BadFrame(ValueError):
    """A frame that cannot be used, and why, in one sentence."""


class Sample(NamedTuple):
    """One measurement, in the robot's order."""

    t: float  # [s] as it is stamped
    q: np.ndarray
    dq: np.ndarray | None
    tau: np.ndarray


class Decoder:
    """Reads the frames of one sender."""

    def __init__(self, robot: Robot) -> None:
        require_plain(robot)
        self._joints, self._known = robot.joint_names, frozenset(robot.joint_names)
        self._names: tuple[str, ...] | None = None  # as the sender orders them
        self._order: np.ndarray | None = None  # where the robot's joints are among them
        self._last, self._late = -math.inf, []
        self.ignored: tuple[str, ...] = ()  # names that the robot does not have

    def decode(self, frame: str | bytes) -> Sample | None:
        """The sample; None of a frame that only names joints; raises `BadFrame`."""
        t, arrays = self._text(frame) if isinstance(frame, str) else self._binary(frame)
        if arrays is None:
            return None
        for kind, array in zip(("position", "velocity", "effort"), arrays, strict=True):
            if array is not None and not (np.abs(array) <= LARGEST).all():
                k = int(np.flatnonzero(~(np.abs(array) <= LARGEST))[0])
                what = "is too large for any joint" if math.isfinite(array[k]) else "is not finite"
                raise BadFrame(
                    f"{kind} of joint {self._names[k]!r} is {array[k]:g}, which {what}; the sample"
                    " was dropped"
                )
        q, dq, tau = (None if array is None else array[self._order] for array in arrays)
        self._in_order(t)
        return Sample(t, q, dq, tau)

    # -- time --------------------------------------------------------------------------------------

    def _in_order(self, t: float) -> None:
        """Raise for a stamp from the past, unless the clock was set back for good."""
        if t > self._last:
            self._last = t
            self._late.clear()
            return
        last, said = (
            self._last,
            ("is stamped like the one before" if t == self._last else "comes after one of"),
        )
        if self._late and t <= self._late[-1]:
            self._late.clear()
        self._late.append(t)
        if len(self._late) >= LATE:
            self._last = t
            self._late.clear()
            return
        raise BadFrame(
            f"t {t:.9g} s {said}{'' if t == last else f' {last:.9g} s'}; the sample was dropped,"
            " stamps must increase"
        )

    @staticmethod
    def _stamp(message: dict[str, Any]) -> float:
        t, stamp = message.get("t"), message.get("stamp")
        if t is None and isinstance(stamp, dict):
            seconds, rest = stamp.get("sec"), stamp.get("nanosec")
            if not (
                _whole(seconds)
                and _whole(rest)
                and 0 <= rest < 1_000_000_000
                and abs(seconds) < 1e12
            ):
                raise BadFrame(
                    f"stamp is {_shown(stamp)}; give whole numbers sec and nanosec, 0 to 999999999"
                )
            t = seconds + 1e-9 * rest
        if not _number(t):
            raise BadFrame(
                f"t is {_shown(t)}; give the time of the sample in seconds, a finite number, or a"
                " stamp with sec and nanosec"
            )
        return float(t)

    # -- frames ------------------------------------------------------------------------------------

    def _text(self, frame: str) -> tuple[float, tuple[np.ndarray | None, ...] | None]:
        try:
            message = json.loads(frame, parse_constant=_refuse)
        except BadFrame:
            raise
        except RecursionError:
            raise BadFrame(
                "the frame is nested too deeply; send one flat object per sample"
            ) from None
        except ValueError as error:
            raise BadFrame(f"the frame is not JSON: {_cut(str(error))}") from None
        if not isinstance(message, dict):
            raise BadFrame(
                f"the frame is {_shown(message)}; send an object with t, name, position, velocity"
                " and effort"
            )
        if "name" in message:
            self._agree(message["name"])
        if "position" not in message and "effort" not in message and "name" in message:
            return 0.0, None
        if self._names is None:
            raise BadFrame("the frame names no joints; send name with every sample, or once before")
        t = self._stamp(message)
        arrays = tuple(self._array(message, kind) for kind in ("position", "velocity", "effort"))
        return t, arrays

    def _array(self, message: dict[str, Any], kind: str) -> np.ndarray | None:
        values = message.get(kind)
        if kind == "velocity" and (values is None or values == []):
            return None
        if not isinstance(values, list) or len(values) != len(self._names):
            found = (
                f"has {len(values)} numbers" if isinstance(values, list) else f"is {_shown(values)}"
            )
            raise BadFrame(
                f"{kind} {found} for {len(self._names)} joints named; give one number per joint"
            )
        for name, value in zip(self._names, values, strict=True):
            if type(value) is not float and not _number(value):
                raise BadFrame(
                    f"{kind} of joint {_cut(name)!r} is {_shown(value)}; give a finite number"
                )
        try:
            return np.array(values, dtype=float)
        except (OverflowError, ValueError):
            raise BadFrame(f"{kind} holds a number that is too large") from None

    def _binary(self, frame: bytes) -> tuple[float, tuple[np.ndarray | None, ...]]:
        if len(frame) < HEAD.size or frame[:4] != MAGIC:
            raise BadFrame(
                f"a binary frame of {len(frame)} bytes does not begin with TJS1, the number of"
                " joints and the time"
            )
        _, n, t = HEAD.unpack_from(frame)
        if self._names is None:
            raise BadFrame(
                'the order of the joints is not agreed; send {"name": […]} as text first'
            )
        if n != len(self._names):
            raise BadFrame(f"the frame has {n} joints, but {len(self._names)} were named")
        if len(frame) not in (HEAD.size + 24 * n, HEAD.size + 16 * n):
            raise BadFrame(
                f"a binary frame of {n} joints has {len(frame)} bytes; it takes"
                f" {HEAD.size + 24 * n}, or {HEAD.size + 16 * n} without velocities"
            )
        if not math.isfinite(t):
            raise BadFrame(f"t is {t}; give the time of the sample in seconds, a finite number")
        parts = np.frombuffer(frame, "<f8", offset=HEAD.size).reshape(-1, n)
        return t, (parts[0], parts[1] if len(parts) == 3 else None, parts[-1])

    def _agree(self, names: Any) -> None:
        """Learn the sender's order; quick where it is the same as before."""
        if (
            isinstance(names, list)
            and self._names is not None
            and len(names) == len(self._names)
            and tuple(names) == self._names
        ):
            return
        if (
            not isinstance(names, list)
            or not names
            or len(names) > MOST_NAMES
            or not all(isinstance(name, str) for name in names)
        ):
            raise BadFrame(f"name is {_shown(names)}; give the joints' names, a list of texts")
        if len(set(names)) != len(names):
            seen: set[str] = set()
            twice = next(name for name in names if name in seen or seen.add(name))
            raise BadFrame(f"joint {_cut(twice)!r} is named twice")
        place = {name: k for k, name in enumerate(names)}
        missing = [joint for joint in self._joints if joint not in place]
        if missing:
            raise BadFrame(
                f"joint {missing[0]!r} is not among the names; the robot's joints:"
                f" {known(self._joints)}"
            )
        self._names, self._order = tuple(names), np.array([place[joint] for joint in self._joints])
        self.ignored = tuple(_cut(name) for name in place if name not in self._known)


def require_plain(robot: Robot) -> None:
    """Raise where a joint has several degrees of freedom: a JointState has one number for each."""
    for node in robot.tree.independent:
        if node.kind.nq != 1:
            raise UsageError(
                f"joint {node.name!r} of robot {robot.name!r} has several degrees of freedom, and a"
                " joint state one number per joint"
            )


def encode(
    names: Sequence[str],
    t: float,
    position: np.ndarray,
    velocity: np.ndarray | None,
    effort: np.ndarray,
) -> bytes:
    """A binary frame, as a bridge sends it."""
    parts = [position, effort] if velocity is None else [position, velocity, effort]
    return HEAD.pack(MAGIC, len(names), t) + np.concatenate(parts).astype("<f8").tobytes()


def _refuse(word: str) -> None:
    raise BadFrame(f"the frame holds {word}, which is no number; leave the sample out")


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    return "missing" if value is None else _cut(repr(value))


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
