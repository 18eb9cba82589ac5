"""Cost of a control cycle: computed torque from Python beside Pinocchio's rnea with the same PD, in thread CPU time, p50 and p99 of 20,000 calls."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.robots import EXAMPLES, Pair, example_folder, pair
from thetahat import robots
from thetahat.control.adaptive import SlotineLi
from thetahat.control.computed_torque import ComputedTorque
from thetahat.control.journal import Journal
from thetahat.control.loop import Loop

CALLS = 20_000
STATES = 64  # random states, taken in turn
KP, KD = 400.0, 40.0
TARGETS = {7: 50.0, 44: 200.0}  # [µs] at p99, by number of joints
VALKYRIE = Path(__file__).resolve().parents[2] / "shared" / "data" / "robots" / "valkyrie" / "derived_valkyrie_A_44dof.urdf"


def quantiles(*calls: Callable[[int], object]) -> list[tuple[float, float]]:
    """(p50, p99) [µs] of thread CPU time of each call, taken in turn so that a slow moment hits all of them."""
    times = np.empty((len(calls), CALLS))
    for call in calls:
        for k in range(200):
            call(k)
    clock = time.thread_time_ns
    for k in range(CALLS):
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
        return pinocchio.rnea(model, data, pq[k], pdq[k], ddq_d + KP * (q_d - pq[k]) + KD * (dq_d - pdq[k]))

    ours, limited = ComputedTorque(p.robot, KP, KD), ComputedTorque(p.robot, KP, KD, pd=(10.0, 1.0), limits=100.0)
    adaptive = SlotineLi(p.robot)
    near = [tuple(state + 0.02 * x for state, x in zip((q[k], dq[k], dq[k]), wanted[k], strict=True)) for k in range(STATES)]
    found = quantiles(
        peer,
        lambda k: ours(0.0, q[k % STATES], dq[k % STATES], wanted[k % STATES]),
        lambda k: limited(0.0, q[k % STATES], dq[k % STATES], wanted[k % STATES]),
    )
    # Apart: it takes the caches from the others.
    found += quantiles(lambda k: adaptive(k * 1e-3, q[k % STATES], dq[k % STATES], near[k % STATES]))
    names = ("Pinocchio's rnea and PD", "computed torque", "with limits and PD on top", "adaptive control, log-det")
    return [(name, *times) for name, times in zip(names, found, strict=True)]


def journal(joints: int) -> tuple[float, float]:
    """(p50, p99) [µs] of a record of q, dq, tau and what was wanted."""
    x = np.random.default_rng(0).normal(size=joints)
    with tempfile.TemporaryDirectory() as folder, Journal(Path(folder) / "bench.journal") as record:
        return quantiles(lambda k: record.append("cycle", k * 1e-3, q=x, dq=x, tau=x, wanted=x))[0]


def pairs() -> list[Pair]:
    """Seven joints and 44."""
    found = [("arm7", robots.path("arm7"))]
    found.append(("Valkyrie", VALKYRIE) if VALKYRIE.is_file() else ("TALOS", example_folder() / EXAMPLES["TALOS"]))
    return [pair(name, path, STATES) for name, path in found]


def main() -> None:
    warnings.simplefilter("ignore")
    print(f"\nOne control cycle from Python, thread CPU time [µs] of {CALLS:,} calls\n")
    print(f"{'robot':9} {'n':>3}  {'what':27} {'p50':>8} {'p99':>8} {'allowed':>9}")
    for p in pairs():
        for k, (what, p50, p99) in enumerate(computed_torque(p)):
            allowed = f"{TARGETS[p.robot.nv]:9.0f}" if k == 1 and p.robot.nv in TARGETS else ""
            print(f"{p.name:9} {p.robot.nv:3}  {what:27} {p50:8.1f} {p99:8.1f} {allowed}")
        print(f"{p.name:9} {p.robot.nv:3}  {'a record of the journal':27} {'{:8.1f} {:8.1f}'.format(*journal(p.robot.nv))}")
    report = Loop(1000.0).run(lambda: 0, lambda cycle, sample: 0, lambda command: None, duration=2.0)
    print(f"\nAn empty loop at 1 kHz for 2 s: {report}\n")


if __name__ == "__main__":
    main()
