"""Cost of a control cycle: computed torque from Python beside Pinocchio's rnea with the same PD, in
thread CPU time, p50 and p99 of 20,000 calls.

Cycles that switch to a new model are rare (at most a few per second), so they would not show in a
p99 of all; they have a line of their own.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

import thetahat as th
from benchmarks.robots import Pair, pair, valkyrie
from benchmarks.timing import verdict
from thetahat import robots
from thetahat.control.adaptive import SlotineLi
from thetahat.control.computed_torque import ComputedTorque
from thetahat.control.journal import Journal
from thetahat.control.loop import Loop
from thetahat.control.model_switch import ModelSwitch
from thetahat.online.gate import GateState
from thetahat.online.sample_verdict import SampleVerdict

CALLS = 20_000
STATES = 64  # random states, taken in turn
KP, KD = 400.0, 40.0
SWAPS = 1_000  # cycles that switch to another model
TARGETS = {7: 50.0, 44: 200.0}  # [µs] at p99, by number of joints


def quantiles(*calls: Callable[[int], object], count: int = CALLS) -> list[tuple[float, float]]:
    """(p50, p99) [µs] of thread CPU time of each call, taken in turn so that a slow moment hits all
    of them.
    """
    times = np.empty((len(calls), count))
    for call in calls:
        for k in range(min(200, count)):
            call(k)
    clock = time.thread_time_ns
    for k in range(count):
        for row, call in enumerate(calls):
            start = clock()
            call(k)
            times[row, k] = clock() - start
    return [tuple(np.percentile(row, [50, 99]) / 1e3) for row in times]


def computed_torque(p: Pair) -> list[tuple[str, float, float]]:
    """(what, p50, p99) of Pinocchio's and ours."""
    import pinocchio

    rng = np.random.default_rng(1)
    wanted = [tuple(rng.normal(size=(3, p.robot.nv))) for _ in range(STATES)]
    q, dq, _ = (s[:STATES] for s in p.states)
    pq, pdq, _ = (s[:STATES] for s in p.peer_states)
    model, data = p.model, p.data

    def peer(k: int) -> np.ndarray:
        k %= STATES
        q_d, dq_d, ddq_d = wanted[k]
        return pinocchio.rnea(
            model, data, pq[k], pdq[k], ddq_d + KP * (q_d - pq[k]) + KD * (dq_d - pdq[k])
        )

    ours, limited = (
        ComputedTorque(p.robot, KP, KD),
        ComputedTorque(p.robot, KP, KD, pd=(10.0, 1.0), limits=100.0),
    )
    adaptive = SlotineLi(p.robot, max_speed=np.inf)  # states are taken at random
    near = [
        tuple(state + 0.02 * x for state, x in zip((q[k], dq[k], dq[k]), wanted[k], strict=True))
        for k in range(STATES)
    ]
    found = quantiles(
        peer,
        lambda k: ours(0.0, q[k % STATES], dq[k % STATES], wanted[k % STATES]),
        lambda k: limited(0.0, q[k % STATES], dq[k % STATES], wanted[k % STATES]),
    )
    # Apart: it takes the caches from the others.
    found += quantiles(
        lambda k: adaptive(k * 1e-3, q[k % STATES], dq[k % STATES], near[k % STATES])
    )
    names = (
        "Pinocchio's rnea and PD",
        "computed torque",
        "with limits and PD on top",
        "adaptive control, log-det",
    )
    return [(name, *times) for name, times in zip(names, found, strict=True)]


class Models:
    """An identifier with an open gate, that allows whatever model it is given."""

    def __init__(self, robot: th.Robot) -> None:
        self.show(robot)

    def show(self, robot: th.Robot) -> None:
        self.verdict = SampleVerdict(True, "", GateState(True, ""), robot)


def switched(p: Pair) -> list[tuple[str, float, float]]:
    """(what, p50, p99): a cycle of a switched controller, and one in which a new model takes over:
    its controller is made, and both are asked.
    """
    q, dq, ddq = (s[0] for s in p.states)
    source = Models(p.robot)
    law = ModelSwitch(
        source, lambda robot: ComputedTorque(robot, KP, KD), nominal=p.robot, slew=1e9
    )
    steady = quantiles(lambda k: law(k * 1e-3, q, dq, (q, dq, ddq)))[0]
    models = [p.robot.with_parameters((1.0 + 1e-6 * k) * p.robot.theta) for k in range(2 * SWAPS)]
    shown = iter(models)

    def swap(k: int) -> None:
        source.show(next(shown))
        law(k * 1e-3, q, dq, (q, dq, ddq))

    swapped = quantiles(swap, count=SWAPS)[0]
    if law.switches < SWAPS:
        raise SystemExit(
            f"only {law.switches} of {SWAPS} cycles switched to a new model:"
            f" {law.waiting or law.declined}"
        )
    return [("switched, one model", *steady), ("switched, to a new model", *swapped)]


def journal(joints: int) -> tuple[float, float]:
    """(p50, p99) [µs] of a record of q, dq, tau and what was wanted."""
    x = np.random.default_rng(0).normal(size=joints)
    with tempfile.TemporaryDirectory() as folder, Journal(Path(folder) / "bench.journal") as record:
        return quantiles(lambda k: record.append("cycle", k * 1e-3, q=x, dq=x, tau=x, wanted=x))[0]


def pairs() -> list[Pair]:
    """Seven joints and 44."""
    return [
        pair(name, path, STATES)
        for name, path in (("arm7", robots.path("arm7")), ("Valkyrie", valkyrie()))
    ]


def main() -> list[str]:
    """What was missed, as sentences."""
    warnings.simplefilter("ignore")
    missed: list[str] = []
    print(
        f"\nOne control cycle from Python, thread CPU time [µs] of {CALLS:,} calls ({SWAPS:,} that"
        " switch)\n"
    )
    print(f"{'robot':9} {'n':>3}  {'what':27} {'p50':>8} {'p99':>8} {'allowed':>9}")
    for p in pairs():
        for what, p50, p99 in (
            *computed_torque(p),
            *switched(p),
            ("a record of the journal", *journal(p.robot.nv)),
        ):
            allowed = TARGETS[p.robot.nv] if what == "computed torque" else None
            said = verdict(f"{what} of {p.name} at p99", p99, allowed, "µs", missed)
            print(
                f"{p.name:9} {p.robot.nv:3}  {what:27} {p50:8.1f} {p99:8.1f}"
                f" {'' if allowed is None else f'{allowed:9.0f}'} {said}",
                flush=True,
            )
    report = Loop(1000.0).run(
        lambda: 0, lambda cycle, sample: 0, lambda command: None, duration=2.0
    )
    print(f"\nAn empty loop at 1 kHz for 2 s: {report}\n")
    return missed


if __name__ == "__main__":
    raise SystemExit("; ".join(main()) or 0)
