"""The test kit of connections: what any implementation must do before a robot is trusted to it.

    from thetahat.connect.connection_kit import check_connection

    def test_my_robot():
        check_connection(lambda: MyRobot("192.168.0.10"))

It reads for a second, asks the robot to stay where it is (`moves=False` leaves that out), tries
commands that must be refused, closes, connects again and looks whether the robot stands.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from thetahat.connect.connection import MODES, Connection, RobotState
from thetahat.errors import ThetahatError, known

FIRST = 5.0  # [s] within which a sample must come
AT_ONCE = 0.1  # [s] that `read` may take
SAMPLES = 20  # looked at
STAY, STAY_TORQUE = 100, 10  # commands to stay; torques alone balance a robot for a moment
STAYED = 0.1  # [rad or m] that a robot may drift meanwhile
STILL = 0.05  # [rad/s or m/s] of a robot that is held


def check_connection(make: Callable[[], Connection], *, moves: bool = True) -> None:
    """Raise AssertionError with a sentence for every promise that a connection breaks.

    make: connects to the robot; it is called twice. moves: whether the robot may be commanded to
    stay where it is.
    """
    broken = list(_faults(make, moves=moves))
    if broken:
        raise AssertionError(
            "the connection breaks its promises:\n" + "\n".join(f"- {each}" for each in broken)
        )


def _faults(make: Callable[[], Connection], *, moves: bool) -> Iterator[str]:
    connection = make()
    try:
        yield from _properties(connection)
        sample = newest(connection, FIRST)
        if sample is None:
            yield f"no sample came within {FIRST:g} s"
            return
        yield from _samples(connection, sample)
        yield from _refusals(connection)
        if moves and connection.mode != "read-only":
            yield from _stays(connection)
    finally:
        connection.close()
    yield from _closed(connection, np.array(sample.q))
    yield from _held(make)


def _properties(connection: Connection) -> Iterator[str]:
    if not isinstance(connection, Connection):
        members = ("joints", "limits", "mode", "simulated", "read", "write", "close")
        missing = [name for name in members if not hasattr(connection, name)]
        yield f"it lacks {known(missing)}"
        return
    joints, limits = connection.joints, connection.limits
    if not (
        isinstance(joints, tuple)
        and joints
        and all(isinstance(name, str) and name for name in joints)
        and len(set(joints)) == len(joints)
    ):
        yield f"joints is {joints!r}; it must be a tuple of names, each once"
    if connection.mode not in MODES:
        yield f"mode is {connection.mode!r}; modes: {known(MODES)}"
    if limits is not None and not (np.shape(limits) == (len(joints),) and np.all(limits > 0.0)):
        yield f"limits is {limits!r}; it must be None or a positive number per joint"
    if not isinstance(connection.simulated, bool):
        yield f"simulated is {connection.simulated!r}; it must be True or False"


def newest(connection: Connection, patience: float) -> RobotState | None:
    """The next sample, waited for."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        sample = connection.read()
        if sample is not None:
            return sample
        time.sleep(1e-3)
    return None


def _samples(connection: Connection, sample: RobotState) -> Iterator[str]:
    n = len(connection.joints)
    if not isinstance(sample, RobotState) or not sample.is_valid(n):
        yield f"a sample is {sample!r}; it must be a RobotState with {n} finite numbers each"
        return
    if connection.simulated:  # time passes by `write` alone
        if connection.read() is not None:
            yield "the same sample was read twice; None must come where there is no newer one"
        return
    last = sample.t
    for _ in range(SAMPLES):
        began = time.monotonic()
        sample_now = connection.read()
        if time.monotonic() - began > AT_ONCE:
            yield f"read took {time.monotonic() - began:.2g} s; it must return at once"
            return
        if sample_now is None:
            sample_now = newest(connection, FIRST)
        if sample_now is None or not sample_now.is_valid(n):
            yield f"samples stopped, or are not finite: {sample_now!r}"
            return
        if not sample_now.t > last:
            yield f"stamps do not increase: {last} s, then {sample_now.t} s"
            return
        last = sample_now.t


def _refusals(connection: Connection) -> Iterator[str]:
    n = len(connection.joints)
    bad: list[tuple[str, np.ndarray]] = [
        ("one that is not a number", np.full(n, np.nan)),
        ("an infinite one", np.full(n, np.inf)),
        ("one of another size", np.zeros(n + 1)),
    ]
    if connection.mode == "read-only":
        bad.append(("any, as it is read-only", np.zeros(n)))
    for what, command in bad:
        try:
            connection.write(command)
        except ThetahatError:
            continue
        except Exception as error:
            yield f"{type(error).__name__} for a command, {what}; raise a ThetahatError"
            continue
        yield f"it took a command, {what}; it must refuse it"


def _stays(connection: Connection) -> Iterator[str]:
    """Command it to stay where it is."""
    first = newest(connection, FIRST)
    at = first
    by_torque = connection.mode == "torque"
    for _ in range(STAY_TORQUE if by_torque else STAY):
        if first is None:
            break
        connection.write(first.tau if by_torque else first.q)
        if not connection.simulated:
            time.sleep(2e-3)
        at = connection.read() or at
    if first is not None and at is not None:
        moved = float(np.max(np.abs(at.q - first.q)))
        if moved > STAYED:
            yield f"told to stay, it moved by {moved:.3g}; check the order of joints, and units"
        if at.stopped:
            yield f"told to stay, it stopped: {at.stopped}"


def _closed(connection: Connection, command: np.ndarray) -> Iterator[str]:
    try:
        connection.close()
    except Exception as error:
        yield f"a second close raised {type(error).__name__}; it must do nothing"
    try:
        connection.write(command)
    except ThetahatError:
        return
    except Exception as error:
        yield f"write after close raised {type(error).__name__}; raise a ThetahatError"
        return
    yield "it took a command after close"


def _held(make: Callable[[], Connection]) -> Iterator[str]:
    """After `close` the robot stands."""
    again = make()
    try:
        sample = newest(again, FIRST)
        if sample is None:
            yield f"connected again, no sample came within {FIRST:g} s"
        elif np.max(np.abs(sample.dq)) > STILL:
            speed = float(np.max(np.abs(sample.dq)))
            yield f"after close the robot still moves, at {speed:.3g}; close must leave it held"
    finally:
        again.close()
