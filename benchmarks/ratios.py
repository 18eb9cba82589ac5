"""Speed as ratios to a peer's on the same machine, in the same minute: benchmarks/results.json.

`make bench` writes the file; `make bench-check` measures again and fails where a ratio has fallen by
more than `FALL` of the committed one. Both sides are timed in turn by processor time, and the least
of several rounds counts, so that a busy machine changes little. A ratio is how many times as fast
as the peer we are; where no peer does the same work, the peer is a loop of Pinocchio's that serves
as a yardstick.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np

import thetahat as th
from benchmarks import dynamics, identification
from benchmarks.robots import EXAMPLES, Pair, example_folder, pair
from thetahat import robots
from thetahat.plant.plant import MujocoPlant

RESULTS = Path(__file__).resolve().parent / "results.json"
FALL = 0.15  # of a ratio, at most
ROUNDS, AGAIN = 5, 15  # rounds; those of a ratio that seems to have fallen
AT_LEAST = 0.05  # [s] of a side in a round, so that the clock's step does not show
FITTED = 4000  # samples of the identification
SECONDS, RATE = 12.0, 200.0  # of the log that is identified with defaults
MOTION = 0.5  # [s] that is simulated with dry friction


@dataclass(frozen=True)
class Case:
    """Two ways to do the same work, and how much of it each call does."""

    name: str
    peer: Callable[[], object]
    ours: Callable[[], object]
    share: float = 1.0  # of our work that a call of the peer does


def processor_seconds(call: Callable[[], object]) -> float:
    """Processor time of one call, all threads, mean over as many as last `AT_LEAST`."""
    start, calls = time.process_time(), 0
    while True:
        call()
        calls += 1
        spent = time.process_time() - start
        if spent >= AT_LEAST:
            return spent / calls


def ratio(case: Case, rounds: int = ROUNDS) -> float:
    """How many times as fast as the peer, both in turn, the least of each."""
    case.peer()
    case.ours()
    least = [np.inf, np.inf]
    for _ in range(rounds):
        for k, call in enumerate((case.peer, case.ours)):
            least[k] = min(least[k], processor_seconds(call))
    return float(least[0] / least[1] / case.share)


# -- cases -----------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """Yield what is compared."""
    folder = example_folder()
    for name, path in EXAMPLES.items():
        yield from _batches(pair(name, folder / path, dynamics.SAMPLES))
    arm = pair("UR5", folder / EXAMPLES["UR5"], FITTED)
    tau = th.inverse_dynamics(arm.robot, *arm.states)
    tau = tau + 0.05 * np.random.default_rng(1).normal(size=tau.shape)
    yield Case(
        "fold and least squares, UR5, beside Pinocchio and NumPy",
        lambda: identification.peer(arm, tau),
        lambda: identification.ours(arm, tau, 1),
    )
    yield _identify(arm, tau)
    yield _simulate(arm)


def _batches(p: Pair) -> Iterator[Case]:
    Y = np.empty((dynamics.SAMPLES, p.robot.nv, len(p.robot.theta)))
    tau = np.empty((dynamics.SAMPLES, p.robot.nv))
    share = dynamics.PEER_SAMPLES / dynamics.SAMPLES
    yield Case(
        f"regressor, {p.name}, batch beside Pinocchio",
        lambda: dynamics.peer_regressor(p, Y),
        lambda: th.regressor(p.robot, *p.states, out=Y, threads=1),
        share,
    )
    yield Case(
        f"inverse dynamics, {p.name}, batch beside Pinocchio",
        lambda: dynamics.peer_inverse_dynamics(p, tau),
        lambda: th.inverse_dynamics(p.robot, *p.states, rigid=True, out=tau, threads=1),
        share,
    )


def _identify(yardstick: Pair, tau: np.ndarray) -> Case:
    """Default `th.identify` of a noisy log of the shipped arm of seven joints."""
    robot = th.load(robots.path("arm7"))
    rng = np.random.default_rng(3)
    t = np.arange(int(SECONDS * RATE)) / RATE
    w = 2.0 * np.pi * np.array([0.1, 0.23, 0.37])[:, None]
    size, phase = rng.uniform(0.1, 0.3, (3, robot.nv)), rng.uniform(0.0, 6.0, (3, robot.nv))
    angle = w[:, None] * t[:, None] + phase[:, None]
    q = np.sum(size[:, None] * np.sin(angle), axis=0)
    dq = np.sum((size * w)[:, None] * np.cos(angle), axis=0)
    ddq = -np.sum((size * w**2)[:, None] * np.sin(angle), axis=0)
    torque = th.inverse_dynamics(robot, q, dq, ddq) + 0.3 * dq + 0.5 * np.sign(dq)
    torque += 0.02 * rng.normal(size=torque.shape)
    names = robot.joint_names
    log = {"t": t} | {f"q.{n}": q[:, k] for k, n in enumerate(names)}
    log |= {f"tau.{n}": torque[:, k] for k, n in enumerate(names)}
    settings = th.IdentifySettings(report=False)

    def ours() -> object:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return th.identify(robot.without_drive(), log, settings=settings)

    return Case(
        "default identify, arm7, beside the yardstick",
        lambda: identification.peer(yardstick, tau),
        ours,
    )


def _simulate(yardstick: Pair) -> Case:
    """A motion of the shipped arm of seven joints with dry friction, under computed torque."""
    robot = th.load(robots.path("arm7"))

    def at(t: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        angle = 4.0 * np.asarray(t, dtype=float)[..., None] * np.ones(robot.nv)
        return 0.3 * (1.0 - np.cos(angle)), 1.2 * np.sin(angle), 4.8 * np.cos(angle)

    wanted = SimpleNamespace(duration=MOTION, at=at)
    q, dq, ddq = yardstick.peer_states

    def peer() -> None:
        import pinocchio

        for k in range(len(q)):
            pinocchio.aba(yardstick.model, yardstick.data, q[k], dq[k], ddq[k])

    return Case(
        "half a second with dry friction, arm7, beside the yardstick",
        peer,
        lambda: th.simulate(MujocoPlant(robot, realism=th.Realism()), wanted, rate=1000.0),
    )


# -- the file --------------------------------------------------------------------------------------


def fallen(kept: dict[str, float], now: dict[str, float]) -> list[str]:
    """A sentence for each ratio that has fallen by more than `FALL`, or is not measured any more."""
    out = [f"{name} is not measured any more" for name in kept if name not in now]
    for name, value in now.items():
        if name in kept and value < (1.0 - FALL) * kept[name]:
            out.append(f"{name}: {value:.3g} times as fast, {kept[name]:.3g} were committed")
    return out


def main(check: bool = False) -> list[str]:
    """Measure; write the file, or return what has fallen beside it."""
    kept = json.loads(RESULTS.read_text(encoding="utf-8"))["ratios"] if check else {}
    print("\nTimes as fast as the peer, by processor time (committed)\n")
    now = {}
    for case in cases():
        value = ratio(case)
        if check and fallen({case.name: kept.get(case.name, 0.0)}, {case.name: value}):
            value = max(value, ratio(case, AGAIN))
        now[case.name] = value
        committed = f" ({kept[case.name]:.3g})" if case.name in kept else ""
        print(f"{case.name:62} {value:8.3g}{committed}", flush=True)
    if check:
        return fallen(kept, now)
    data = {"ratios": {name: float(f"{value:.4g}") for name, value in now.items()}}
    RESULTS.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    return []


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the committed file")
    if missed := main(parser.parse_args().check):
        raise SystemExit(f"slower than committed: {'; '.join(missed)}")
