"""Decoder of joint states, one frame per sample: ROS's JointState as JSON, or in binary.

    JSON    {"t": 1.23, "name": [...], "position": [...], "velocity": [...], "effort": [...]}, or
            "stamp": {"sec": 1, "nanosec": 230000000} for t
    binary  b"TJS1", uint16 n, float64 t, n positions, n velocities (or none), n efforts;
            little-endian; joints in the order of {"name": [...]}

`velocity` may be empty or absent: it is then derived from the positions. Joints that the robot does
not have are ignored. Every frame is checked.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from thetahat.errors import UsageError, known
from thetahat.model.robot import Robot

MAGIC = b"TJS1"
HEAD = struct.Struct("<4sHd")
LARGEST = 1e9  # [rad, rad/s, N·m …]: no joint's number is larger
MOST_NAMES = 4096
LATE = 3  # consecutive timestamps from the past that are accepted: the sender's clock was set back
SHOWN = 80  # characters of what a sender wrote that an answer repeats


class BadFrame(ValueError):
    """A frame that cannot be used, and why, in one sentence."""


class Sample(NamedTuple):
    """One measurement, in the robot's order."""

    t: float  # [s] timestamp
    q: np.ndarray
    dq: np.ndarray | None
    tau: np.ndarray


class Decoder:
    """Decodes the frames of one sender."""

    def __init__(self, robot: Robot) -> None:
        require_scalar_joints(robot)
        self._joints, self._known = robot.joint_names, frozenset(robot.joint_names)
        self._names: tuple[str, ...] = ()  # as the sender orders them; empty: not named yet
        self._order = np.zeros(0, dtype=np.intp)  # where the robot's joints are among them
        self._last = -math.inf  # [s] last timestamp
        self._late: list[float] = []  # timestamps from the past since then
        self.ignored: tuple[str, ...] = ()  # names that the robot does not have

    def decode(self, frame: str | bytes) -> Sample | None:
        """Return the sample; None for a frame that only names joints; raises `BadFrame`."""
        sent = self._text(frame) if isinstance(frame, str) else self._binary(frame)
        if sent is None:
            return None
        arrays = {"position": sent.q, "velocity": sent.dq, "effort": sent.tau}
        for kind, array in arrays.items():
            if array is not None and not (np.abs(array) <= LARGEST).all():
                k = int(np.flatnonzero(~(np.abs(array) <= LARGEST))[0])
                what = "is too large for any joint" if math.isfinite(array[k]) else "is not finite"
                raise BadFrame(
                    f"{kind} of joint {self._names[k]!r} is {array[k]:g}, which {what}; the sample"
                    " was dropped"
                )
        dq = None if sent.dq is None else sent.dq[self._order]
        self._check_order(sent.t)
        return Sample(sent.t, sent.q[self._order], dq, sent.tau[self._order])

    # -- time --------------------------------------------------------------------------------------

    def _check_order(self, t: float) -> None:
        """Raise for a timestamp from the past, unless the sender's clock was set back for good."""
        last = self._last
        if t > last:
            self._last = t
            self._late.clear()
            return
        if self._late and t <= self._late[-1]:
            self._late.clear()
        self._late.append(t)
        if len(self._late) >= LATE:
            self._last = t
            self._late.clear()
            return
        what = "repeats the last timestamp" if t == last else f"is before the last, {last:.9g} s"
        raise BadFrame(f"t {t:.9g} s {what}; the sample was dropped, timestamps must increase")

    @staticmethod
    def _timestamp(message: dict[str, Any]) -> float:
        t, stamp = message.get("t"), message.get("stamp")
        if t is None and isinstance(stamp, dict):
            seconds, rest = (stamp.get(name, math.nan) for name in ("sec", "nanosec"))
            whole = type(seconds) is int and type(rest) is int
            if whole and 0 <= rest < 1_000_000_000 and abs(seconds) < 1e12:
                return float(seconds + 1e-9 * rest)
            raise BadFrame(
                f"stamp is {_shown(stamp)}; give whole numbers sec and nanosec, 0 to 999999999"
            )
        if t is None or not _is_number(t):
            raise BadFrame(
                f"t is {_shown(t)}; give the time of the sample in seconds, a finite number, or a"
                " stamp with sec and nanosec"
            )
        return float(t)

    # -- frames ------------------------------------------------------------------------------------

    def _text(self, frame: str) -> Sample | None:
        """Return the numbers of a JSON frame in the sender's order; None if it only names."""
        try:
            message = json.loads(frame, parse_constant=_refuse_constant)
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
            self._set_names(message["name"])
        if "position" not in message and "effort" not in message and "name" in message:
            return None
        if not self._names:
            raise BadFrame("the frame names no joints; send name with every sample, or once before")
        t, velocity = self._timestamp(message), message.get("velocity")
        q = self._array(message, "position")
        dq = None if velocity is None or velocity == [] else self._array(message, "velocity")
        return Sample(t, q, dq, self._array(message, "effort"))

    def _array(self, message: dict[str, Any], kind: str) -> np.ndarray:
        values, names = message.get(kind), self._names
        if not isinstance(values, list) or len(values) != len(names):
            listed = values if isinstance(values, list) else []
            got = f"has {len(listed)} numbers" if listed else f"is {_shown(values)}"
            raise BadFrame(f"{kind} {got} for {len(names)} joints named; give one number per joint")
        for name, value in zip(names, values, strict=True):
            if type(value) is not float and not _is_number(value):
                raise BadFrame(
                    f"{kind} of joint {_cut(name)!r} is {_shown(value)}; give a finite number"
                )
        try:
            return np.array(values, dtype=float)
        except (OverflowError, ValueError):
            raise BadFrame(f"{kind} holds a number that is too large") from None

    def _binary(self, frame: bytes) -> Sample:
        """Return the numbers of a binary frame in the sender's order."""
        if len(frame) < HEAD.size or frame[:4] != MAGIC:
            raise BadFrame(
                f"a binary frame of {len(frame)} bytes does not begin with TJS1, the number of"
                " joints and the time"
            )
        _, n, t = HEAD.unpack_from(frame)
        if not self._names:
            raise BadFrame('the order of the joints is unknown; send {"name": […]} as text first')
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
        return Sample(t, parts[0], parts[1] if len(parts) == 3 else None, parts[-1])

    def _set_names(self, names: Any) -> None:
        """Set the sender's order of joints; quick where it is the same as before."""
        if not isinstance(names, list) or not 0 < len(names) <= MOST_NAMES:
            raise BadFrame(f"name is {_shown(names)}; give the joints' names, a list of strings")
        if tuple(names) == self._names:
            return
        if not all(isinstance(name, str) for name in names):
            raise BadFrame(f"name is {_shown(names)}; give the joints' names, a list of strings")
        place = {name: k for k, name in enumerate(names)}
        if len(place) != len(names):
            twice = next(name for k, name in enumerate(names) if place[name] != k)
            raise BadFrame(f"joint {_cut(twice)!r} is named twice")
        missing = [joint for joint in self._joints if joint not in place]
        if missing:
            raise BadFrame(
                f"joint {missing[0]!r} is not among the names; the robot's joints:"
                f" {known(self._joints)}"
            )
        self._names, self._order = tuple(names), np.array([place[joint] for joint in self._joints])
        self.ignored = tuple(_cut(name) for name in place if name not in self._known)


def require_scalar_joints(robot: Robot) -> None:
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
    """Encode a binary frame, as a bridge sends it."""
    parts = [position, effort] if velocity is None else [position, velocity, effort]
    return HEAD.pack(MAGIC, len(names), t) + np.concatenate(parts).astype("<f8").tobytes()


def _refuse_constant(word: str) -> NoReturn:
    raise BadFrame(f"the frame holds {word}, which is no number; leave the sample out")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _shown(value: Any) -> str:
    return "missing" if value is None else _cut(repr(value))


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
