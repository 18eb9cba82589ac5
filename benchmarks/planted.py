"""Planted changes: payloads, collisions and drift in the stream of an identified robot, and whether
each is found, named and measured.

    python -m benchmarks.planted                       # 100 runs of each, arm4 and arm7
    python -m benchmarks.planted --runs 20 --kinds "1 kg,collision" --verbose

A robot with friction follows sines; its torques, positions and speeds have noise, and the defaults
of `OnlineIdentifier` identify it until its gate is open (it is 15 % heavier than its file). Then

    payload     a body of 0.3, 1 or 3 kg appears on the last link, within 10 cm of its frame: found
                within 0.5 s; 2 s after it appeared, its mass within 3 % (30 g of 0.3 kg), and inside
                the 95 % interval in at least 90 % of the runs
    collision   something pushes the last link for 50 ms: an alarm that turns out a collision, and
                the same model in use again
    drift       the torque of a joint drifts away over half a minute: named as drift

Each run has its own noise, moment, place and size. The identified robot is made once per robot and
motion, and copied.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

import thetahat as th
from thetahat import robots
from thetahat.kernels import online
from thetahat.online.config import GateRules, MonitorRules
from thetahat.online.identifier import OnlineIdentifier
from thetahat.plant.realism import Payload, Realism

RATE = 250.0  # [Hz]
WARM = 20.0  # [s] by which the gate is open
HEAVIER = 1.15  # than the file says
MOTIONS = 4  # that runs are made of
NOISE = 0.01  # of each joint's RMS torque
MASSES = (0.3, 1.0, 3.0)  # [kg]
FOUND, TOLD = 0.5, 2.0  # [s] after a payload appeared: it is found, and its mass is told
WITHIN, LEAST = 0.03, 0.03  # of the mass; [kg] of 0.3 kg
PUSH = 0.05  # [s]
KINDS = (*(f"{mass:g} kg" for mass in MASSES), "collision", "drift")
NAMES = ("arm4", "arm7")


@dataclass(frozen=True, eq=False)
class Scene:
    """A robot, its motion, and the truth."""

    truth: th.Robot
    nominal: th.Robot
    t: np.ndarray
    q: np.ndarray
    dq: np.ndarray
    ddq: np.ndarray
    tau: np.ndarray  # without noise
    sigma: np.ndarray  # (nv,) of the torques' noise

    def sample(self, k: int, rng: np.random.Generator, more: np.ndarray | float = 0.0) -> tuple:
        """(t, q, dq, tau) of a cycle; more: torque that was planted."""
        count, nv = 2.0 * np.pi / 2**18, len(self.sigma)
        return (
            float(self.t[k]),
            count * np.round(self.q[k] / count),
            self.dq[k] + 2e-3 * rng.normal(size=nv),
            self.tau[k] + more + self.sigma * rng.normal(size=nv),
        )


@cache
def scene(name: str, motion: int) -> Scene:
    """A robot whose file is 15 % off, on sines of its own."""
    file = th.load(robots.path(name)).without_drive()
    truth = replace(file, theta=HEAVIER * file.theta)
    truth = Realism.typical(truth, seed=motion).applied(truth)
    rng = np.random.default_rng(100 + motion)
    t = np.arange(0.0, WARM + 75.0, 1.0 / RATE)
    q, dq, ddq = np.zeros((3, len(t), file.nv))
    limits = [node.limits for node in file.tree.independent]
    low = np.array([max(limit.lower, -np.pi) for limit in limits])
    high = np.array([min(limit.upper, np.pi) for limit in limits])
    q += 0.5 * (low + high)
    for share, frequencies in ((0.6, (0.1, 0.25)), (0.4, (0.25, 0.6))):
        a = share * np.minimum(0.8, 0.35 * (high - low))
        w, phase = 2.0 * np.pi * rng.uniform(*frequencies, file.nv), rng.uniform(0, 6.28, file.nv)
        x = t[:, None] * w + phase
        q, dq, ddq = q + a * np.sin(x), dq + a * w * np.cos(x), ddq - a * w * w * np.sin(x)
    tau = th.inverse_dynamics(truth, q, dq, ddq)
    sigma = NOISE * np.sqrt(np.mean(tau**2, axis=0))
    nominal = file.with_drive(viscous=True, coulomb=True, offset=True)
    return Scene(truth, nominal, t, q, dq, ddq, tau, sigma)


@cache
def warmed(name: str, motion: int) -> tuple[OnlineIdentifier, int]:
    """An identifier whose gate is open, and the cycle it is at."""
    made, rng = scene(name, motion), np.random.default_rng(motion)
    link = made.nominal.body_names[-1]
    rules = GateRules(monitor=MonitorRules(payload_link=link))
    one, count = OnlineIdentifier(made.nominal, gate=rules), round(WARM * RATE)
    for k in range(count):
        one.push(*made.sample(k, rng))
    if not one.gate.open:
        raise SystemExit(f"{name}, motion {motion}: {one.gate.reason}")
    return one, count


def snapshot(one: OnlineIdentifier) -> OnlineIdentifier:
    """A copy to run on from here; robots and compiled kernels are shared."""
    shared = (one.nominal, one.nominal.tree, one.robot, online, online.take, online.cusum_step)
    return copy.deepcopy(one, {id(each): each for each in (*shared, online.predict)})


@dataclass(frozen=True)
class Outcome:
    """What a planted change came to."""

    found: float | None  # [s] after it began; None: never
    kinds: tuple[str, ...]  # of events since
    mass: float | None = None  # error [kg]
    std: float | None = None  # [kg]
    open_again: bool = False


def run(name: str, kind: str, seed: int) -> Outcome:
    """One planted change."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    motion = int(rng.integers(MOTIONS)) + MOTIONS * (seed // 1000)
    warm, start = warmed(name, motion)
    made, one, first = scene(name, motion), snapshot(warm), start + int(rng.integers(5, 500))
    if kind.endswith("kg"):
        return _payload(made, one, (start, first), rng, float(kind.split()[0]))
    plant = {"collision": _collision, "drift": _drift}[kind]
    more, seconds = plant(made, first, rng)
    return _follow(made, one, (start, first), rng, more, seconds)


def _follow(
    made: Scene,
    one: OnlineIdentifier,
    cycles: tuple[int, int],
    rng: np.random.Generator,
    more: Callable[[int], np.ndarray | float],
    seconds: float,
) -> Outcome:
    """Push on; more: cycle → torque that is planted."""
    start, first = cycles
    found, kinds = None, []
    for k in range(start, first + round(seconds * RATE)):
        verdict = one.push(*made.sample(k, rng, more(k) if k >= first else 0.0))
        for event in verdict.events:
            kinds.append(event.kind)
            if event.kind == "alarm" and found is None:
                found = float(made.t[k] - made.t[first])
    report, mass, std = one.payload, None, None
    if report is not None and report.mass is not None:
        mass, std = report.mass, report.payload.mass_std
    return Outcome(found, tuple(kinds), mass, std, one.gate.open)


def _payload(
    made: Scene,
    one: OnlineIdentifier,
    cycles: tuple[int, int],
    rng: np.random.Generator,
    mass: float,
) -> Outcome:
    inertia = mass * 0.03**2
    held = Payload(
        made.truth.body_names[-1],
        mass,
        tuple(rng.uniform(-0.06, 0.06, 3)),
        (inertia, 0.0, 0.0, inertia, 0.0, inertia),
    ).on(made.truth)
    _, first = cycles
    rows = slice(first, first + round((TOLD + 1.0) * RATE))
    more = th.inverse_dynamics(held, made.q[rows], made.dq[rows], made.ddq[rows]) - made.tau[rows]
    outcome = _follow(made, one, cycles, rng, lambda k: more[k - first], TOLD)
    return replace(outcome, mass=None if outcome.mass is None else outcome.mass - mass)


def _collision(
    made: Scene, first: int, rng: np.random.Generator
) -> tuple[Callable[[int], np.ndarray | float], float]:
    """A force on the last link, a half sine of 50 ms, as the torque it takes at every joint."""
    q = made.q[first]
    at = rng.normal(size=3)
    at *= 9.81 / np.linalg.norm(at)
    # a force on a mass of 1 kg at the last link's frame, in a direction of its own
    robot = replace(made.truth, gravity=at)
    push = Payload(made.truth.body_names[-1], 1.0, (0.0, 0.0, 0.05)).on(robot)
    torque = th.gravity(push, q) - th.gravity(robot, q)
    # felt: at its most, of the RMS torque of the joint that feels it most
    torque *= rng.uniform(1.0, 3.0) / np.max(np.abs(torque) / (made.sigma / NOISE))

    def more(k: int) -> np.ndarray | float:
        s = (made.t[k] - made.t[first]) / PUSH
        return torque * np.sin(np.pi * s) if s < 1.0 else 0.0

    return more, 3.0


def _drift(
    made: Scene, first: int, rng: np.random.Generator
) -> tuple[Callable[[int], np.ndarray | float], float]:
    """Half of a joint's RMS torque within half a minute, while the memory is standing still."""
    v = int(rng.integers(1, made.truth.nv - 1))
    size = np.zeros(made.truth.nv)
    size[v] = 0.5 * made.sigma[v] / NOISE

    def more(k: int) -> np.ndarray | float:
        return size * min((made.t[k] - made.t[first]) / 30.0, 1.0)

    return more, 40.0


def good(kind: str, outcome: Outcome) -> bool:
    """Whether it was found and named, and a payload's mass is right."""
    if kind.endswith("kg"):
        mass = float(kind.split()[0])
        return (
            outcome.found is not None
            and outcome.found <= FOUND
            and outcome.mass is not None
            and abs(outcome.mass) <= max(LEAST if mass < 1.0 else 0.0, WITHIN * mass)
        )
    if kind == "collision":
        return "collision" in outcome.kinds and "change" not in outcome.kinds and outcome.open_again
    return "drift" in outcome.kinds and "change" not in outcome.kinds


def line(name: str, kind: str, outcomes: list[Outcome]) -> str:
    """All runs of a kind in a line."""
    count, right = len(outcomes), sum(good(kind, each) for each in outcomes)
    text = f"{name:6} {kind:10} {right} of {count} good"
    if kind.endswith("kg"):
        early = sum(each.found is not None and each.found <= FOUND for each in outcomes)
        known = [each for each in outcomes if each.mass is not None and each.std is not None]
        held = sum(abs(each.mass) <= 1.96 * each.std for each in known)
        off = np.abs([each.mass for each in known]) if known else np.array([np.nan])
        text += (
            f"; found within {FOUND:g} s: {early}; mass off by {1e3 * np.median(off):.0f} g"
            f" (median), {1e3 * np.max(off):.0f} g at most; inside its interval {held} of {count}"
        )
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--robots", default=",".join(NAMES))
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="seed; other motions from 1000 on")
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args()
    for name in given.robots.split(","):
        for kind in given.kinds.split(","):
            outcomes = []
            for seed in range(given.first, given.first + given.runs):
                outcomes.append(run(name, kind, seed))
                if given.verbose or not good(kind, outcomes[-1]):
                    print(f"   {name} {kind} {seed}: {outcomes[-1]}", flush=True)
            print(line(name, kind, outcomes), flush=True)


if __name__ == "__main__":
    main()
