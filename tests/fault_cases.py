"""Faults of a stream, seeded: a clean stream of an arm, what goes wrong with it, and what must and must not happen then.

Each kind says when its fault can be known of at all (`within`, seconds after it begins; None: it need not close the gate), and whether
what comes after it is a lie for good (`persistent`): then no model may be accepted from it, ever.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import numpy as np

import thetahat as th
from plant_cases import sines, wrong_by
from thetahat import robots
from thetahat.errors import UsageError
from thetahat.online import kernels
from thetahat.online.identifier import OnlineIdentifier
from thetahat.plant.realism import Payload

PERIOD = 4e-3  # [s]
SECONDS = 12.0
WARM = 6.0  # [s] by which the gate of the clean stream is open
RATE, WINDOW = 10.0, 50  # five seconds to fill
NOISE = 0.01  # of each joint's RMS torque
GOOD = 0.80  # R² per joint that an accepted model must have against the true robot, noise-free, over the whole motion
MISS = object()  # a cycle without a sample


@dataclass
class Stream:
    """Cycles: (t, q, dq, tau), or MISS; what the robot truly is from each cycle on."""

    robot: th.Robot  # nominal
    truth: th.Robot
    cycles: list = field(default_factory=list)
    changed: tuple[int, th.Robot] | None = None

    def truth_at(self, k: int) -> th.Robot:
        return self.truth if self.changed is None or k < self.changed[0] else self.changed[1]


@dataclass(frozen=True)
class Fault:
    """What was done to a stream, from which cycle on."""

    kind: str
    first: int
    within: float | None  # [s] after which the gate must have closed, if it was open
    persistent: bool


@cache
def truth() -> th.Robot:
    return th.load(robots.path("arm4"))


@cache
def nominal() -> th.Robot:
    return wrong_by(truth(), 0.2, 3).without_drive().with_drive(viscous=True, coulomb=True, offset=True)


@cache
def motion() -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    t = PERIOD * np.arange(round(SECONDS / PERIOD))
    return t, sines(truth(), seed=5, duration=SECONDS).at(t)


@cache
def sigma() -> np.ndarray:
    _, (q, dq, ddq) = motion()
    return NOISE * np.sqrt(np.mean(th.inverse_dynamics(truth(), q, dq, ddq) ** 2, axis=0))


def clean(seed: int, *, stream_truth: th.Robot | None = None) -> Stream:
    """The stream without faults: encoders of 18 bits, speeds with noise of 2e-3, torques of one per cent."""
    rng = np.random.default_rng(seed)
    t, (q, dq, ddq) = motion()
    own = stream_truth or truth()
    tau = th.inverse_dynamics(own, q, dq, ddq) + sigma() * rng.normal(size=q.shape)
    count = 2.0 * np.pi / 2**18
    q = count * np.round(q / count)
    dq = dq + 2e-3 * rng.normal(size=q.shape)
    return Stream(nominal(), truth(), [(float(t[k]), q[k], dq[k], tau[k]) for k in range(len(t))])


def identifier(**options: object) -> OnlineIdentifier:
    return OnlineIdentifier(nominal(), rate=RATE, window=WINDOW, period=PERIOD, dwell=0.5, refit=2.0, **options)


# -- what can go wrong --------------------------------------------------------------------------------------------------


def _edit(stream: Stream, k: int, **parts: np.ndarray) -> None:
    t, q, dq, tau = stream.cycles[k]
    stream.cycles[k] = (parts.get("t", t), parts.get("q", q), parts.get("dq", dq), parts.get("tau", tau))


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
        for k in rng.choice(np.arange(first, first + 400), 5, replace=False):
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
        # With its speed at zero, too, the joint seems to stand still, and its torques leave the fit: that shows once it has gone so far that the
        # torques of the others contradict. Until then the model in use is right, and so is the one that others' torques give.
        return Fault("stuck", first, 2.5 if speed_too else 0.6, not speed_too)

    return inject


def _torques(change: Callable[[np.ndarray, np.ndarray, np.random.Generator], np.ndarray], within: float, kind: str) -> Callable:
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
        stream.cycles[k] = (now, q, 2e-3 * rng.normal(size=4), carried + sigma() * rng.normal(size=4))
    return Fault("standstill", first, 5.5, False)


def _payload(stream: Stream, rng: np.random.Generator, first: int) -> Fault:
    loaded = Payload(truth().body_names[-1], float(rng.uniform(1.0, 3.0)), com=(0.0, 0.2, 0.0), inertia_com=(5e-3, 0, 0, 5e-3, 0, 5e-3)).on(truth())
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
    # All channels alike: what was identified before stops fitting at once. From the start it is a robot like another, and on one motion a physical
    # model may explain it (parallel axes: R² 0.95 to 0.99), so that only the threshold decides.
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


KINDS: dict[str, Callable] = {
    "nan position": _not_finite(1, np.nan),
    "nan torque": _not_finite(3, np.nan),
    "infinite speed": _not_finite(2, np.inf),
    "torque spike": _spike(3, lambda rng: rng.choice([-1.0, 1.0]) * 50.0 * sigma() * 10.0 ** rng.uniform(0.0, 4.0)),
    "position spike": _spike(1, lambda rng: np.full(4, rng.choice([-1.0, 1.0]) * 10.0 ** rng.uniform(-2.0, 3.0))),
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
}


# -- a run --------------------------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """What a run came to."""

    kind: str
    seed: int
    open_before: bool
    closed_after: float | None  # [s] from the fault to the closed gate; None: it stayed open
    broken: list[str] = field(default_factory=list)  # what must never happen, and did
    accepted: int = 0  # models put in use


def snapshot(one: OnlineIdentifier) -> OnlineIdentifier:
    """A copy to run on from here: robots and compiled kernels are shared, as nobody changes them."""
    shared = [one.nominal, one.nominal.tree, one.robot, kernels, kernels.take, kernels.watch_step, kernels.predict, one._robot]
    return copy.deepcopy(one, {id(each): each for each in shared})


@cache
def warmed(variant: int) -> tuple[OnlineIdentifier, int]:
    """An identifier whose gate is open, and the cycle it is at."""
    one, count = identifier(), round(WARM / PERIOD)
    for t, q, dq, tau in clean(variant).cycles[:count]:
        one.push(t, q, dq, tau)
    assert one.gate.open, one.gate.reason
    return one, count


def run(kind: str, seed: int) -> Outcome:
    """One fault: half of them while the gate is open, half while it has not opened yet."""
    rng = np.random.default_rng([seed, list(KINDS).index(kind)])
    variant = int(rng.integers(4))
    stream = clean(variant)
    late = bool(rng.integers(2))
    if late:
        warm, start = warmed(variant)
        one = snapshot(warm)
        first = start + int(rng.integers(5, 300))
    else:
        one, start = identifier(), 0
        first = int(rng.integers(5, 1200))
    fault = KINDS[kind](stream, rng, first)
    outcome = Outcome(kind, seed, False, None)
    judge = Judge(stream, outcome)
    for k in range(start, len(stream.cycles)):
        cycle = stream.cycles[k]
        if k == first:
            outcome.open_before = one.gate.open
        try:
            one.miss() if cycle is MISS else one.push(*cycle)
            if cycle is not MISS and len(cycle[3]) != 4:
                outcome.broken.append("a change of size was not refused")
        except UsageError:
            if cycle is MISS or len(cycle[3]) == 4:
                raise
        judge.look(one, k, fault)
        if k >= first and outcome.closed_after is None and not one.gate.open:
            outcome.closed_after = PERIOD * (k - first)
    if outcome.open_before and fault.within is not None and (outcome.closed_after is None or outcome.closed_after > fault.within + 1e-9):
        outcome.broken.append(f"the gate closed {outcome.closed_after} s after the fault, not within {fault.within}")
    return outcome


class Judge:
    """What must hold in every cycle."""

    def __init__(self, stream: Stream, outcome: Outcome) -> None:
        self.stream, self.outcome, self.last = stream, outcome, None
        states = motion()[1]
        self.states = tuple(np.ascontiguousarray(x[::40]) for x in states)

    def look(self, one: OnlineIdentifier, k: int, fault: Fault) -> None:
        state, broken = one.gate, self.outcome.broken
        if not state.reason:
            broken.append("a state without a reason")
        if state.open == (one.robot is one.nominal):
            broken.append(f"cycle {k}: the gate is {'open' if state.open else 'closed'} and the robot is the other one")
        if state.open and one.robot is not self.last:
            self.last = one.robot
            self.outcome.accepted += 1
            self.check(one.robot, k, fault)
        closed_by = fault.first + (0 if fault.within is None else round(fault.within / PERIOD)) + 1
        if fault.persistent and state.open and k > closed_by:
            broken.append(f"cycle {k}: open on a channel that lies")

    def check(self, robot: th.Robot, k: int, fault: Fault) -> None:
        """A model that is used is finite, physical, and that of the true robot."""
        broken = self.outcome.broken
        if not np.all(np.isfinite(robot.theta)) or np.any(robot.theta[9::10] <= 0.0):
            broken.append(f"cycle {k}: a model with masses {robot.theta[9::10]}")
        if not all(robot.consistency):
            broken.append(f"cycle {k}: a model that is not physical")
        command = th.inverse_dynamics(robot, *self.states)
        if not np.all(np.isfinite(command)):
            broken.append(f"cycle {k}: commands that are not finite")
        true = th.inverse_dynamics(self.stream.truth_at(k), *self.states)
        r2 = 1.0 - np.sum((command - true) ** 2, axis=0) / np.sum(true**2, axis=0)
        if np.min(r2) < GOOD and fault.kind != "joint order" and not (k - fault.first) * PERIOD <= (fault.within or 0.0):
            broken.append(f"cycle {k}: a model with R² {np.round(r2, 3)} against the true robot")
