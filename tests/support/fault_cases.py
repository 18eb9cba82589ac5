"""Runs of faults: a controller on the stream of an arm, what goes wrong with that, and what must
and must not happen then.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from fault_kinds import KINDS, Fault
from fault_streams import MISS, PERIOD, WARM, Stream, clean, identifier, motion

import thetahat as th
from thetahat.control.computed_torque import ComputedTorque
from thetahat.control.model_switch import ModelSwitch
from thetahat.errors import UsageError
from thetahat.kernels import online
from thetahat.online.identifier import OnlineIdentifier

# R² per joint that an accepted model must have against the true robot, noise-free, over the whole
# motion
GOOD = 0.80
LIMIT = 300.0  # [N·m] of the commands
AT_THE_START = {
    kind for kind in KINDS if kind.startswith("garbage at the start")
}  # they meet no open gate
SPIKES = {"torque spike", "position spike", "speed spike"}


@dataclass
class Outcome:
    """What a run came to."""

    kind: str
    seed: int
    open_before: bool
    closed_after: float | None  # [s] from the fault to the closed gate; None: it stayed open
    broken: list[str] = field(default_factory=list)  # what must never happen, and did
    accepted: int = 0  # models put in use
    identified: int = 0  # cycles whose command came from an identified model


def snapshot(one: OnlineIdentifier) -> OnlineIdentifier:
    """A copy to run on from here: robots and compiled kernels are shared, as nobody changes
    them.
    """
    shared = [
        one.nominal,
        one.nominal.tree,
        one.robot,
        online,
        online.take,
        online.cusum_step,
        online.predict,
        one._validation.in_use and one._validation.in_use.robot,
    ]
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
    late = bool(rng.integers(2)) and kind not in AT_THE_START
    if late:
        warm, start = warmed(variant)
        one = snapshot(warm)
        first = start + int(rng.integers(5, 300))
    else:
        one, start = identifier(), 0
        first = int(rng.integers(5, 1200))
    before = list(stream.cycles)
    fault = KINDS[kind](stream, rng, first)
    first = fault.first
    spiked = (
        {k for k, (a, b) in enumerate(zip(stream.cycles, before, strict=False)) if a is not b}
        if late and kind in SPIKES
        else set()
    )
    outcome = Outcome(kind, seed, False, None)
    judge, loop, spikes = Judge(stream, outcome), Loop(one, outcome), one.events.counts["spike"]
    for k in range(start, len(stream.cycles)):
        cycle = stream.cycles[k]
        if k == first:
            outcome.open_before = one.gate.open
        try:
            taken = one.miss() if cycle is MISS else one.push(*cycle)
            if taken and k in spiked:
                outcome.broken.append(f"cycle {k}: a spike was taken")
            if cycle is not MISS and len(cycle[3]) != 4:
                outcome.broken.append("a change of size was not refused")
        except UsageError:
            if cycle is MISS or len(cycle[3]) == 4:
                raise
        loop.turn(k, cycle)
        judge.look(one, k, fault)
        if k >= first and outcome.closed_after is None and not one.gate.open:
            outcome.closed_after = PERIOD * (k - first)
    if (
        one.events.counts["spike"] - spikes < len(spiked) - 1
    ):  # one may meet a step of friction, and pass for its beginning
        outcome.broken.append(
            f"{one.events.counts['spike'] - spikes} of {len(spiked)} spikes were counted"
        )
    if (
        outcome.open_before
        and fault.within is not None
        and (outcome.closed_after is None or outcome.closed_after > fault.within + 1e-9)
    ):
        outcome.broken.append(
            f"the gate closed {outcome.closed_after} s after the fault, not within {fault.within}"
        )
    return outcome


class Loop:
    """The controller of the faulty stream: computed torque on whichever model the gate allows,
    asked after every sample.
    """

    def __init__(self, one: OnlineIdentifier, outcome: Outcome) -> None:
        self.one, self.outcome, self.wanted = one, outcome, motion()[1]
        self.law = ModelSwitch(
            one,
            lambda robot: ComputedTorque(robot, limits=LIMIT),
            nominal=one.nominal,
            applied=False,
        )
        self.seen = (0.0, *(x[0] for x in self.wanted[:2]))

    def turn(self, k: int, cycle: object) -> None:
        """One cycle: finite, inside the limits, and not by an identified model while the gate is
        closed, not even in the cycle it closed in.
        """
        self.seen = self.seen if cycle is MISS else cycle[:3]
        at = min(k, len(self.wanted[0]) - 1)
        command = self.law(*self.seen, tuple(x[at] for x in self.wanted))
        if not np.abs(command).max() <= LIMIT:
            self.outcome.broken.append(f"cycle {k}: the command is {command}")
        if self.law.identified:
            self.outcome.identified += 1
            if not self.one.gate.open:
                self.outcome.broken.append(
                    f"cycle {k}: a command by an identified model while the gate is closed"
                )


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
            broken.append(
                f"cycle {k}: the gate is {'open' if state.open else 'closed'} and the robot is the"
                " other one"
            )
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
        if (
            np.min(r2) < GOOD
            and fault.kind != "joint order"
            and not (k - fault.first) * PERIOD <= (fault.within or 0.0)
        ):
            broken.append(f"cycle {k}: a model with R² {np.round(r2, 3)} against the true robot")
