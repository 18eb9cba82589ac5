"""Online identification: an update of a 50-sample window, a push between updates, and what the
other parts of an update cost, in thread CPU time.
"""

from __future__ import annotations

import itertools
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

import thetahat as th
from benchmarks.robots import EXAMPLES, example_folder, valkyrie
from benchmarks.timing import verdict
from thetahat import robots
from thetahat.control.journal import Journal
from thetahat.control.loop import Cycle
from thetahat.control.model_switch import ModelSwitch
from thetahat.control.online_control import OnlineControl
from thetahat.identification import factor as f
from thetahat.model.lock_joints import lock
from thetahat.online.causal_filter import FilteredSample
from thetahat.online.config import (
    Forgetting,
    GateRules,
    Growing,
    Informative,
    MemoryConfig,
    SolverConfig,
    Window,
)
from thetahat.online.identifier import OnlineIdentifier
from thetahat.online.memory import create_memory
from thetahat.online.physical_model import PhysicalProjection
from thetahat.online.stacked_factor import Fit, solve

FRICTION = {"viscous": True, "coulomb": True, "offset": True}
WINDOW, RATE = 50, 1000.0
WINDOW_MEMORY = Window()
TARGETS = {7: 2.0, 44: 30.0}  # [ms] of fold and least squares at p99, by number of joints
UPDATES = 200


def load() -> list[tuple[str, th.Robot]]:
    """Arms of 4 and 7 joints, and Valkyrie's 44."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        panda = th.load(example_folder() / EXAMPLES["Panda"])
        panda = lock(panda, [joint for joint in panda.joint_names if "finger" in joint])
        return [
            ("arm4", th.load(robots.path("arm4"))),
            ("Panda", panda),
            ("Valkyrie", th.load(valkyrie())),
        ]


def thread_ms(call: Callable[[], object], repeats: int = 15) -> tuple[float, float, float]:
    """(best, median, p99) milliseconds of this thread's own time."""
    call()
    took = []
    for _ in range(repeats):
        start = time.thread_time_ns()
        call()
        took.append(1e-6 * (time.thread_time_ns() - start))
    return min(took), *np.percentile(took, [50, 99])


def motion(robot: th.Robot, seconds: float, rate: float) -> tuple[np.ndarray, ...]:
    """t, q, dq, tau with noise."""
    rng, t = np.random.default_rng(0), np.arange(round(seconds * rate)) / rate
    w, phase = (
        2.0 * np.pi * rng.uniform(0.1, 0.8, (4, robot.nv)),
        rng.uniform(0.0, 6.0, (4, robot.nv)),
    )
    x = t[:, None, None] * w + phase
    q, dq, ddq = (
        np.sum(0.3 * np.sin(x), axis=1),
        np.sum(0.3 * w * np.cos(x), axis=1),
        np.sum(-0.3 * w**2 * np.sin(x), axis=1),
    )
    tau = th.inverse_dynamics(robot, q, dq, ddq)
    return t, q, dq, tau + 0.01 * np.sqrt(np.mean(tau**2, axis=0)) * rng.normal(size=tau.shape)


def window(name: str, robot: th.Robot, missed: list[str]) -> None:
    """Fold and least squares of 50 samples, each in turn once more, beside the library's general
    way, and the closed-form physical model.

    A window of one and the same sample is the worst there is: what it does not show has to be found
    by singular values.
    """
    rng = np.random.default_rng(0)
    q, dq, ddq = rng.normal(size=(3, WINDOW, robot.nv))
    tau = th.inverse_dynamics(robot, q, dq, ddq) + 0.1 * rng.normal(size=q.shape)
    memory, valid = (
        create_memory(Window(), robot, WINDOW),
        np.ones(robot.nv, dtype=bool),
    )
    for k in range(WINDOW):
        memory.add(FilteredSample(*(x[k : k + 1] for x in (q, dq, ddq, tau))), valid)
    projection, turn = PhysicalProjection(memory.stack), itertools.cycle(range(WINDOW))

    def update(k: int | None = None) -> Fit:
        at = slice(k := next(turn) if k is None else k, k + 1)
        memory.add(FilteredSample(q[at], dq[at], ddq[at], tau[at]), valid)
        with f.blas_threads().limit(limits=1, user_api="blas"):
            return solve(memory.triangle())

    factor, samples, base = update().factor, memory.samples, len(memory.stack.base)
    quick = thread_ms(update, UPDATES)
    rank = update().rank
    general = thread_ms(
        lambda: th.solve(th.information(robot, samples, threads=1), th.LeastSquares()), 5
    )
    with f.blas_threads().limit(limits=1, user_api="blas"):
        model = thread_ms(
            lambda: projection.nearest(factor[:-1, :-1], factor[:-1, -1], np.ones(robot.nv)), 7
        )
    for _ in range(WINDOW):
        update(0)
    short = thread_ms(lambda: update(0))
    said = verdict(
        f"fold and least squares of {name} ({base} base parameters) at p99",
        quick[2],
        TARGETS.get(robot.nv),
        "ms",
        missed,
    )
    print(
        f"{name:9}{robot.nv:3} joints, rank {rank:3} of {base:3}  fold + least squares"
        f" {quick[1]:6.2f} ms, p99 {quick[2]:6.2f} {said:6}",
        end="",
    )
    print(
        f" (50 times one sample: {short[1]:6.2f})  by Information {general[0]:7.2f} ms  physical"
        f" model, closed form {model[0]:6.2f} ms",
        flush=True,
    )


def pushes(
    name: str, robot: th.Robot, memory: MemoryConfig = WINDOW_MEMORY, seconds: float = 24.0
) -> None:
    """One sample at 1 kHz, with the gate open and the model monitored."""
    t, q, dq, tau = motion(robot, seconds, RATE)
    nominal = robot.with_parameters(
        np.concatenate(
            [1.1 * robot.theta, *(robot.drive.value(term) for term in robot.drive.identified)]
        )
    )
    solver = SolverConfig(memory=memory, refit_interval=1e9)
    one = OnlineIdentifier(nominal, solver=solver, gate=GateRules(floor=1e9))
    took = np.empty(len(t))
    for k in range(len(t)):
        start = time.thread_time_ns()
        one.push(t[k], q[k], dq[k], tau[k])
        took[k] = 1e-3 * (time.thread_time_ns() - start)
    last = took[-5000:]
    p50, p90, p99 = np.percentile(last, [50, 90, 99])
    print(
        f"{name:9}{type(memory).__name__:12} push p50 {p50:6.1f} µs  p90 {p90:6.1f}  p99 {p99:7.1f}",
        end="",
    )
    print(
        f"  largest (an update) {last.max() / 1e3:6.2f} ms   gate"
        f" {'open' if one.gate.open else one.gate}",
        flush=True,
    )
    one.close()


def whole_cycles(name: str, robot: th.Robot, seconds: float = 24.0) -> None:
    """Sample, identifier, gate, controller, command and journal, at 1 kHz, from the gate's opening
    on.
    """
    t, q, dq, tau = motion(robot, seconds, RATE)
    nominal = robot.with_parameters(
        np.concatenate(
            [1.1 * robot.theta, *(robot.drive.value(term) for term in robot.drive.identified)]
        )
    )
    one = OnlineIdentifier(
        nominal, solver=SolverConfig(refit_interval=1e9), gate=GateRules(floor=1e9)
    )
    still = np.zeros(robot.nv)
    law = ModelSwitch(one, lambda model: th.ComputedTorque(model, kp=400.0, kd=40.0))
    with (
        tempfile.TemporaryDirectory() as folder,
        Journal(Path(folder) / "bench.journal") as record,
        one,
    ):
        online, took = (
            OnlineControl(
                one,
                law,
                wanted=lambda at: (q[round(at * RATE)], dq[round(at * RATE)], still),
                journal=record,
            ),
            [],
        )
        for k in range(len(t)):
            start = time.thread_time_ns()
            online(Cycle(k, t[k], 0.0, False, 0), (t[k], q[k], dq[k], tau[k]))
            took.append(1e-3 * (time.thread_time_ns() - start))
    p50, p99 = np.percentile(took[-5000:], [50, 99])
    switched = f"{law.switches} switches, the largest torque step {law.max_torque_step:.3g} N·m"
    print(
        f"{name:9}{robot.nv:3} joints   whole cycle p50 {p50:6.1f} µs  p99 {p99:7.1f}  largest (an"
        f" update) {max(took) / 1e3:6.2f} ms   {switched}",
        flush=True,
    )


def main() -> list[str]:
    """What was missed, as sentences."""
    loaded, missed = load(), []
    print(
        "window of 50 samples, one more sample: fold and least squares, thread CPU time (allowed at"
        " p99: 7 joints 2 ms, 44 joints 30 ms)"
    )
    for name, robot in loaded:
        for terms in ({}, FRICTION):
            window(name, robot.without_drive().with_drive(**terms), missed)
    print("\na push at 1 kHz")
    for name, robot in loaded:
        pushes(name, robot.without_drive().with_drive(**FRICTION))
    for memory in (Growing(), Forgetting(), Informative()):
        pushes("Panda", loaded[1][1].without_drive().with_drive(**FRICTION), memory)
    print("\na whole cycle at 1 kHz: sample, identifier, gate, controller, journal")
    for name, robot in loaded:
        whole_cycles(name, robot.without_drive().with_drive(**FRICTION))
    return missed


if __name__ == "__main__":
    raise SystemExit("; ".join(main()) or 0)
