"""False alarms of the online identifier per hour of motion in which nothing happens.

    python -m benchmarks.false_alarms --hours 80           # goes on where it was
    python -m benchmarks.false_alarms --minutes 20         # of wall time at most

A stream needs no simulated controller: torques are inverse dynamics along a designed motion, of a
robot that differs from its file (masses, and friction with a Stribeck bump that no model here has),
with white noise on torques and speeds, and encoders of 16 bits. Every joint rests now and then, by
itself or with all others; at rest friction holds it, so its torque is anywhere inside a band that
reaches 1.3 times beyond sliding friction. Runs of half an hour, robots in turn, each with another
seed. Nobody touches these robots, so every alarm is a false one, also of a payload on the last
link, for which it looks. Outcomes are appended to
build/false_alarms.jsonl.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import thetahat as th
from thetahat import robots
from thetahat.model.robot import Robot
from thetahat.online.config import GateRules, MonitorRules

ROBOTS = ("arm4", "arm7", "valkyrie_arm", "double_pendulum", "valkyrie_leg")
RATE = 200.0  # [Hz] of samples
RUN = 1800.0  # [s] of a run
PART = 300.0  # [s] computed at once
RAMP = 1.0  # [s] from rest to full speed
BREAKAWAY, STRIBECK, STRIBECK_SPEED = 1.3, 0.15, 0.05  # of sliding friction; [rad/s]
NOISE, SPEED_NOISE = 0.01, 1e-3  # of a joint's RMS torque; [rad/s]
BITS = 16  # of the encoders
OUT = Path("build/false_alarms.jsonl")
HAPPENINGS = ("alarm", "payload", "drift", "collision", "sensor", "change")


@dataclass(frozen=True)
class Outcome:
    """What a run came to."""

    robot: str
    seed: int
    hours: float
    alarms: int
    events: dict[str, int]
    open: float  # share of the time
    sentences: tuple[str, ...]
    cpu: float  # [s]


class Motion:
    """Sines of every joint, whose phases stand still now and then."""

    def __init__(self, robot: Robot, rng: np.random.Generator) -> None:
        limits = [node.limits for node in robot.tree.independent]
        low = np.array([max(each.lower, -np.pi) for each in limits])
        high = np.array([min(each.upper, np.pi) for each in limits])
        self._middle, room = 0.5 * (low + high), 0.5 * (high - low)
        self._amplitude = np.minimum(0.6, 0.4 * room) * rng.uniform(0.4, 1.0, (3, robot.nv)) / 1.5
        self._w = 2.0 * np.pi * rng.uniform(0.05, 0.35, (3, robot.nv))
        self._phase = rng.uniform(0.0, 2.0 * np.pi, (3, robot.nv))
        self._rng, self._s = rng, np.zeros(robot.nv)

    def _pace(self, n: int) -> np.ndarray:
        """(n, nv) of the phases' pace, 0 at rest, 1 in motion, with smooth ramps."""
        nv, rng = len(self._s), self._rng
        moving = np.ones((n, nv))
        for joints in (slice(None), *range(nv)):
            at = 0.0
            while True:
                at += rng.exponential(60.0 if joints == slice(None) else 120.0)
                first = int(at * RATE)
                if first >= n:
                    break
                at += rng.uniform(2.0, 25.0)
                moving[first : int(at * RATE), joints] = 0.0
        k = int(RAMP * RATE)
        moving[: 2 * k] = moving[-2 * k :] = 1.0  # parts join in motion
        kernel = np.hanning(k + 2)[1:-1]
        padded = np.pad(moving, ((k // 2, k - k // 2 - 1), (0, 0)), mode="edge")
        kernel /= kernel.sum()
        return np.stack([np.convolve(column, kernel, "valid") for column in padded.T], axis=1)

    def part(self, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(q, dq, ddq) of the next n samples, (n, nv) each."""
        pace = self._pace(n)
        s = self._s + np.cumsum(pace, axis=0) / RATE
        self._s = s[-1]
        change = np.gradient(pace, 1.0 / RATE, axis=0)
        angle = self._w[:, None] * s + self._phase[:, None]
        amplitude = self._amplitude[:, None]
        q = self._middle + np.sum(amplitude * np.sin(angle), axis=0)
        slope = np.sum(amplitude * self._w[:, None] * np.cos(angle), axis=0)
        bend = -np.sum(amplitude * self._w[:, None] ** 2 * np.sin(angle), axis=0)
        return q, slope * pace, bend * pace**2 + slope * change


def differing(robot: Robot, rng: np.random.Generator) -> Robot:
    """The robot with every body's mass and inertia off by up to 25 %."""
    scale = np.repeat(rng.uniform(0.8, 1.25, len(robot.theta) // 10), 10)
    return robot.without_drive().with_parameters(robot.theta * scale)


def friction(dq: np.ndarray, coulomb: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(n, nv) of sliding and held joints: held ones anywhere inside the band."""
    sliding = coulomb * np.sign(dq) * (1.0 + STRIBECK * np.exp(-((dq / STRIBECK_SPEED) ** 2)))
    keep = np.exp(-1.0 / (0.2 * RATE))
    out = sliding + 0.2 * coulomb * dq
    for v in range(dq.shape[1]):
        still = np.abs(dq[:, v]) < 1e-4
        edges = np.flatnonzero(np.diff(np.concatenate([[0], still.astype(int), [0]])))
        for first, last in edges.reshape(-1, 2):
            if last - first < 5:
                continue
            start = out[first - 1, v] if first else 0.0
            goal = coulomb[v] * rng.uniform(-BREAKAWAY, BREAKAWAY)
            out[first:last, v] = goal + (start - goal) * keep ** np.arange(last - first)
    return out


def run(name: str, seed: int) -> Outcome:
    """Half an hour of one robot."""
    rng, begin = np.random.default_rng([seed, ROBOTS.index(name)]), time.process_time()
    file = th.load(robots.path(name))
    truth, motion = differing(file, rng), Motion(file, rng)
    n, t, share, alarms, events, sentences = int(PART * RATE), 0.0, 0, 0, Counter(), []
    size = coulomb = None
    rules = GateRules(monitor=MonitorRules(payload_link=file.body_names[-1]))
    identifier = th.OnlineIdentifier(
        file.without_drive().with_drive(viscous=True, coulomb=True, offset=True), gate=rules
    )
    step = 2.0 * np.pi / 2**BITS
    for _ in range(round(RUN / PART)):
        q, dq, ddq = motion.part(n)
        rigid = th.inverse_dynamics(truth, q, dq, ddq)
        if size is None or coulomb is None:
            size = np.maximum(np.sqrt(np.mean(rigid**2, axis=0)), 0.02 * np.abs(rigid).max())
            coulomb = size * rng.uniform(0.02, 0.3, truth.nv)
        tau = rigid + friction(dq, coulomb, rng) + NOISE * size * rng.normal(size=rigid.shape)
        q, dq = np.round(q / step) * step, dq + SPEED_NOISE * rng.normal(size=dq.shape)
        for k in range(n):
            verdict = identifier.push(t, q[k], dq[k], tau[k])
            t += 1.0 / RATE
            share += verdict.gate.open
            for event in verdict.events:
                events[event.kind] += 1
                alarms += event.kind == "alarm"
                if event.kind in HAPPENINGS and len(sentences) < 20:
                    sentences.append(f"{event.t:.1f} s: {event.sentence}")
    identifier.close()
    cpu = time.process_time() - begin
    kinds = {kind: count for kind, count in events.items() if kind != "spike"}
    opened = share / (t * RATE)
    return Outcome(name, seed, t / 3600.0, alarms, kinds, opened, tuple(sentences), cpu)


def main() -> None:
    """Run what is missing, print the sum."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--hours", type=float, default=80.0, help="of motion in all")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="of wall time at most")
    parser.add_argument("--first", type=int, default=0, help="seed of the first runs")
    parser.add_argument("--out", type=Path, default=OUT)
    given, begin = parser.parse_args(), time.monotonic()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    lines = given.out.read_text().splitlines() if given.out.exists() else []
    done = [json.loads(line) for line in lines]
    while sum(each["hours"] for each in done) < given.hours:
        if time.monotonic() - begin > 60.0 * given.minutes:
            break
        turn, which = divmod(len(done), len(ROBOTS))
        name, seed = ROBOTS[which], given.first + turn
        outcome = asdict(run(name, seed))
        with given.out.open("a") as file:
            file.write(json.dumps(outcome) + "\n")
        done.append(outcome)
        print(
            f"{name:16} seed {seed:3}  {outcome['alarms']} alarms  open {outcome['open']:4.0%}"
            f"  {outcome['hours'] * 3600.0 / outcome['cpu']:.0f} times real time"
            f"  {outcome['events']}",
            flush=True,
        )
        for sentence in outcome["sentences"][:4]:
            print(f"     {sentence[:170]}", flush=True)
    hours, alarms = (sum(each[key] for each in done) for key in ("hours", "alarms"))
    drifts = sum(each["events"].get("drift", 0) for each in done)
    print(
        f"{alarms} false alarms in {hours:.1f} h of motion (asked: one in 8 h at most, on average),"
        f" and {drifts} times drift that was followed"
    )


if __name__ == "__main__":
    main()
