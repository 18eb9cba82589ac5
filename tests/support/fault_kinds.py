"""What can go wrong with a stream, seeded.

Each kind says when its fault can be known of at all (`within`, seconds after it begins; None: it
need not close the gate), and whether what comes after it is a lie for good (`persistent`): then no
model may be accepted from it, ever.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from fault_streams import MISS, PERIOD, Stream, motion, sigma, truth

import thetahat as th
from thetahat.plant.realism import Payload


@dataclass(frozen=True)
class Fault:
    """What was done to a stream, from which cycle on."""

    kind: str
    first: int
    within: float | None  # [s] after which the gate must have closed, if it was open
    persistent: bool


def _with(array: np.ndarray, j: int, value: float) -> np.ndarray:
    out = array.copy()
    out[j] = value
    return out


def _not_finite(channel: int, value: float) -> Callable:
    def inject(stream: Stream, rng: np.random.Generator, first: int) -> Fault:
        j = rng.integers(4)
        for k in range(first, first + int(rng.integers(1, 6))):
            arrays = list(stream.cycles[k])
            arrays[channel] = _with(arrays[channel], j, value)
            stream.cycles[k] = tuple(arrays)
        return Fault("not finite", first, 0.0, False)

    return inject


def _spike(channel: int, size: Callable[[np.random.Generator], np.ndarray]) -> Callable:
    def inject(stream: Stream, rng: np.random.Generator, first: int) -> Fault:
        j = rng.integers(4)
        for k in rng.choice(
            np.arange(first, first + 400, 4), 5, replace=False
        ):  # apart, so that each can be told
            arrays = list(stream.cycles[k])
            arrays[channel] = _with(arrays[channel], j, arrays[channel][j] + size(rng)[j])
            stream.cycles[k] = tuple(arrays)
        return Fault("spike", first, None, False)

    return inject


def _stuck(*, speed_too: bool) -> Callable:
    def inject(stream: Stream, rng: np.random.Generator, first: int) -> Fault:
        j = rng.integers(4)
        value = stream.cycles[first][1][j]
        for k in range(first, len(stream.cycles)):
            t, q, dq, tau = stream.cycles[k]
            stream.cycles[k] = (t, _with(q, j, value), _with(dq, j, 0.0) if speed_too else dq, tau)
        # With its speed at zero, too, the joint seems to stand still, and its torques leave the
        # fit: that shows once it has gone so far that the torques of the others contradict. Until
        # then the model in use is right, and so is the one that others' torques give.
        return Fault("stuck", first, 2.5 if speed_too else 0.6, not speed_too)

    return inject


def _torques(
    change: Callable[[np.ndarray, np.ndarray, np.random.Generator], np.ndarray],
    within: float,
    kind: str,
) -> Callable:
    def inject(stream: Stream, rng: np.random.Generator, first: int) -> Fault:
        joints = rng.permutation(4)
        last = stream.cycles[first][3].copy()
        for k in range(first, len(stream.cycles)):
            t, q, dq, tau = stream.cycles[k]
            stream.cycles[k] = (t, q, dq, change(tau.copy(), joints, last, rng))
        return Fault(kind, first, within, True)

    return inject


def _dead(tau, joints, last, rng):
    tau[joints[0]] = 0.0
    return tau


def _dead_noisy(tau, joints, last, rng):
    tau[joints[0]] = sigma()[joints[0]] * rng.normal()
    return tau


def _dead_held(tau, joints, last, rng):
    tau[joints[0]] = last[joints[0]]
    return tau


def _swapped(tau, joints, last, rng):
    tau[joints[:2]] = tau[joints[1::-1]]
    return tau


def _flipped(tau, joints, last, rng):
    tau[joints[0]] *= -1.0
    return tau


def _drop(least: int, most: int, within: float | None) -> Callable:
    def inject(stream: Stream, rng: np.random.Generator, first: int) -> Fault:
        for k in range(first, first + int(rng.integers(least, most))):
            stream.cycles[k] = MISS
        return Fault("drop-out", first, within, False)

    return inject


def _duplicates(stream: Stream, rng: np.random.Generator, first: int) -> Fault:
    for k in sorted(rng.choice(np.arange(first, first + 300), 30, replace=False), reverse=True):
        stream.cycles.insert(int(k) + 1, stream.cycles[k])
    return Fault("duplicate", first, None, False)


def _disorder(stream: Stream, rng: np.random.Generator, first: int) -> Fault:
    for k in range(first, first + 300, int(rng.integers(7, 30))):
        stream.cycles[k], stream.cycles[k + 1] = stream.cycles[k + 1], stream.cycles[k]
    return Fault("out of order", first, None, False)


def _clock(low: float, high: float, within: float) -> Callable:
    def inject(stream: Stream, rng: np.random.Generator, first: int) -> Fault:
        jump = rng.uniform(low, high)
        for k in range(first, len(stream.cycles)):
            t, q, dq, tau = stream.cycles[k]
            stream.cycles[k] = (t + jump, q, dq, tau)
        return Fault("clock", first, within, False)

    return inject


def _standstill(stream: Stream, rng: np.random.Generator, first: int) -> Fault:
    """It stops where it is, held by its brakes; torques are what carries it, and noise."""
    q = stream.cycles[first][1]
    zero = np.zeros(4)
    carried = th.inverse_dynamics(truth(), q, zero, zero)
    for k in range(first, len(stream.cycles)):
        now = stream.cycles[k][0]
        stream.cycles[k] = (
            now,
            q,
            2e-3 * rng.normal(size=4),
            carried + sigma() * rng.normal(size=4),
        )
    return Fault("standstill", first, 5.5, False)


def _payload(stream: Stream, rng: np.random.Generator, first: int) -> Fault:
    loaded = Payload(
        truth().body_names[-1],
        float(rng.uniform(1.0, 3.0)),
        com=(0.0, 0.2, 0.0),
        inertia_com=(5e-3, 0, 0, 5e-3, 0, 5e-3),
    ).on(truth())
    _, (q, dq, ddq) = motion()
    more = th.inverse_dynamics(loaded, q, dq, ddq) - th.inverse_dynamics(truth(), q, dq, ddq)
    for k in range(first, len(stream.cycles)):
        t, q, dq, tau = stream.cycles[k]
        stream.cycles[k] = (t, q, dq, tau + more[k])
    stream.changed = (first, loaded)
    return Fault("payload", first, 1.0, False)


def _joint_order(stream: Stream, rng: np.random.Generator, first: int) -> Fault:
    order = np.arange(4)
    while np.array_equal(order, np.arange(4)):
        order = rng.permutation(4)
    for k in range(first, len(stream.cycles)):
        t, *arrays = stream.cycles[k]
        stream.cycles[k] = (t, *(array[order] for array in arrays))
    # All channels alike: what was identified before stops fitting at once. From the start it is a
    # robot like another, and on one motion a physical model may explain it (parallel axes: R² 0.95
    # to 0.99), so that only the threshold decides.
    return Fault("joint order", first, 0.5, False)


def _stall(stream: Stream, rng: np.random.Generator, first: int) -> Fault:
    """The loop itself stops for 200 ms: nobody says anything, and the next sample is late."""
    del stream.cycles[first : first + 50]
    return Fault("stall", first, 0.0, False)


def _size(stream: Stream, rng: np.random.Generator, first: int) -> Fault:
    for k in range(first, first + 5):
        t, q, dq, tau = stream.cycles[k]
        stream.cycles[k] = (t, q, dq, tau[:3])
    return Fault("size", first, None, False)


def _frozen(stream: Stream, rng: np.random.Generator, first: int) -> Fault:
    """The driver repeats the last sample with new stamps."""
    _, *arrays = stream.cycles[first]
    for k in range(first, len(stream.cycles)):
        stream.cycles[k] = (stream.cycles[k][0], *arrays)
    return Fault("frozen", first, 0.6, True)


def _garbage(value: Callable[[np.random.Generator], float]) -> Callable:
    """Finite, but no number of a robot."""

    def inject(stream: Stream, rng: np.random.Generator, first: int) -> Fault:
        channel, j = int(rng.integers(1, 4)), int(rng.integers(4))
        for k in range(first, first + int(rng.integers(1, 6))):
            _put(stream, k, channel, j, rng.choice([-1.0, 1.0]) * value(rng))
        return Fault("garbage", first, 0.0, False)

    return inject


def _put(stream: Stream, k: int, channel: int, j: int, value: float) -> None:
    arrays = list(stream.cycles[k])
    arrays[channel] = _with(arrays[channel], j, value)
    stream.cycles[k] = tuple(arrays)


def _stamp(stream: Stream, rng: np.random.Generator, first: int) -> Fault:
    """One stamp that is no time."""
    _, *arrays = stream.cycles[first]
    stream.cycles[first] = (float(rng.choice([np.nan, np.inf, -np.inf, 1e300, -1e12])), *arrays)
    return Fault("stamp", first, 0.0, False)


def _outlier(stream: Stream, rng: np.random.Generator, first: int) -> Fault:
    """One stamp that is another time; from the past it is dropped as out of order, from the future
    it is a clock that was set, twice.
    """
    t, *arrays = stream.cycles[first]
    ahead = bool(rng.integers(2))
    stream.cycles[first] = (
        t + 10.0 ** rng.uniform(-0.9, 9.0) if ahead else t - 10.0 ** rng.uniform(-1.5, 9.0),
        *arrays,
    )
    return Fault("stamp", first, 0.0 if ahead else None, False)


def _first_samples(then: Callable | None) -> Callable:
    """Garbage of any size among the very first samples; and then perhaps a channel that lies from
    the start.
    """

    def inject(stream: Stream, rng: np.random.Generator, first: int) -> Fault:
        fault = Fault("first samples", 0, None, False)
        if then is not None:
            fault = replace(then(stream, rng, 0), within=None)
        for k in rng.choice(25, int(rng.integers(1, 4)), replace=False):
            _put(
                stream,
                int(k),
                int(rng.integers(1, 4)),
                int(rng.integers(4)),
                rng.choice([-1.0, 1.0]) * 10.0 ** rng.uniform(1.5, 8.5),
            )
        return fault

    return inject


def _after_a_gap(stream: Stream, rng: np.random.Generator, first: int) -> Fault:
    """A gap, and the first samples after it are garbage."""
    gap = int(rng.integers(22, 80))
    for k in range(first, first + gap):
        stream.cycles[k] = MISS
    for k in range(first + gap, first + gap + int(rng.integers(1, 4))):
        _put(
            stream,
            k,
            int(rng.integers(1, 4)),
            int(rng.integers(4)),
            rng.choice([-1.0, 1.0]) * 10.0 ** rng.uniform(1.5, 8.5),
        )
    return Fault("after a gap", first, 19.5 * PERIOD, False)


def _two(stream: Stream, rng: np.random.Generator, first: int) -> Fault:
    """A channel that lies for good, and a moment later something else that goes by."""
    lie = (
        _torques(_dead_noisy, 0.6, "dead torque"),
        _torques(_flipped, 0.6, "flipped"),
        _torques(_swapped, 0.6, "swapped"),
    )[rng.integers(3)]
    other = (
        _not_finite(1, np.nan),
        _spike(3, lambda rng: np.full(4, 10.0 ** rng.uniform(2.0, 6.0))),
        _after_a_gap,
        _drop(1, 20, None),
        _long_size,
    )
    fault = lie(stream, rng, first)
    other[rng.integers(len(other))](stream, rng, first + int(rng.integers(0, 30)))
    return replace(
        fault, within=fault.within + 0.6
    )  # what goes by may hide the lie for a moment, as the gate closes for it and opens again


def _long_size(stream: Stream, rng: np.random.Generator, first: int) -> Fault:
    for k in range(first, first + int(rng.integers(20, 200))):
        t, q, dq, tau = stream.cycles[k]
        stream.cycles[k] = (t, q, dq, tau[:3])
    return Fault("size", first, 19.5 * PERIOD, False)


KINDS: dict[str, Callable] = {
    "nan position": _not_finite(1, np.nan),
    "nan torque": _not_finite(3, np.nan),
    "infinite speed": _not_finite(2, np.inf),
    "torque spike": _spike(
        3, lambda rng: rng.choice([-1.0, 1.0]) * 50.0 * sigma() * 10.0 ** rng.uniform(0.0, 4.0)
    ),
    "position spike": _spike(
        1, lambda rng: np.full(4, rng.choice([-1.0, 1.0]) * 10.0 ** rng.uniform(-2.0, 3.0))
    ),
    "frozen encoder": _stuck(speed_too=False),
    "frozen encoder and speed": _stuck(speed_too=True),
    "dead torque": _torques(_dead, 0.6, "dead torque"),
    "dead torque with noise": _torques(_dead_noisy, 0.6, "dead torque"),
    "torque held": _torques(_dead_held, 0.6, "dead torque"),
    "swapped torques": _torques(_swapped, 0.6, "swapped"),
    "flipped torque": _torques(_flipped, 0.6, "flipped"),
    "short drop-out": _drop(1, 20, None),
    "long drop-out": _drop(20, 80, 19.5 * PERIOD),
    "duplicates": _duplicates,
    "out of order": _disorder,
    "clock set back": _clock(-1e4, -1.0, 3.5 * PERIOD),
    "clock set forward": _clock(1.0, 1e6, 0.5 * PERIOD),
    "standstill": _standstill,
    "payload": _payload,
    "joint order": _joint_order,
    "loop stall": _stall,
    "size change": _size,
    "frozen stream": _frozen,
    "speed spike": _spike(
        2, lambda rng: np.full(4, rng.choice([-1.0, 1.0]) * 10.0 ** rng.uniform(0.3, 4.0))
    ),
    "absurd number": _garbage(lambda rng: 10.0 ** rng.uniform(9.5, 300.0)),
    "bad stamp": _stamp,
    "stamp of another time": _outlier,
    "clock set back a little": _clock(-1.0, -4.5 * PERIOD, 3.5 * PERIOD),
    "garbage at the start": _first_samples(None),
    "garbage at the start, dead torque": _first_samples(_torques(_dead_noisy, 0.6, "dead torque")),
    "garbage at the start, flipped torque": _first_samples(_torques(_flipped, 0.6, "flipped")),
    "garbage after a gap": _after_a_gap,
    "two at once": _two,
    "wrong size for long": _long_size,
}
