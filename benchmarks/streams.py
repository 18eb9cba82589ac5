"""Forty adversarial streams: the online loop in closed loop with MuJoCo, and sensors that lie.

    python -m benchmarks.streams                          # 40 streams × arm4, arm7, a Panda
    python -m benchmarks.streams --robots arm4 --streams "torque × 3,gravity removed" --verbose

The robot is simulated 25 % heavier than its file says, with friction, encoders and noise; what its
sensors say is changed on the way to the loop, from the start or after `FAULT` seconds, when the gate
is open. Every model that commands is compared with the truth, on a motion that nobody has seen:

    e = √ mean over joints of (Σ (τ_model − τ_true)² / Σ τ_true²)

The law: a model with e more than 10 % above the nominal robot's is in charge for one second at most,
all its moments together; every command is finite and inside the limits. One line per stream; `--out`
keeps the outcomes, and a run goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

import thetahat as th
from benchmarks.robots import EXAMPLES, example_folder
from thetahat import robots
from thetahat.connect.control_run import ControlRun, ControlSettings
from thetahat.connect.sim import PlantedDifferences, SimulatedRobot
from thetahat.control.online_control import Measured
from thetahat.excite.trajectory import Motion
from thetahat.model.lock_joints import lock
from thetahat.plant.perturb import perturb

RATE = 500.0  # [Hz] of the loop
FAULT = 22.0  # [s]: the gate opens at 17 s
SECONDS = 48.0  # the buffer (17 s) is filled again by samples of after the fault
HEAVIER, SPREAD = 1.25, 0.1  # planted: factor of all masses, distortion of every body
WORSE = 1.1  # times the nominal robot's error: a model that is worse
LONGEST = 1.0  # [s] that such a model may be in charge
NAMES = ("arm4", "arm7", "panda")
Changed = Measured | None
Spoil = Callable[["Spoiled", Measured], Changed]


# -- streams ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stream:
    """A lie: what is measured → what the loop is told."""

    name: str
    spoil: Spoil
    start: float = FAULT  # [s]


def scaled(factor: float) -> Spoil:
    return lambda robot, s: replace(s, tau=factor * s.tau)


def one_scaled(factor: float) -> Spoil:
    return lambda robot, s: replace(s, tau=s.tau * robot.only(factor))


def ramp(most: float, seconds: float, *, one: bool = False) -> Spoil:
    def spoil(robot: Spoiled, s: Measured) -> Changed:
        factor = 1.0 + (most - 1.0) * min(robot.age / seconds, 1.0)
        return replace(s, tau=s.tau * (robot.only(factor) if one else factor))

    return spoil


def offset_ramp(robot: Spoiled, s: Measured) -> Changed:
    """A zero that drifts, at one joint, to half of its usual torque within 20 s."""
    return replace(s, tau=s.tau + 0.5 * min(robot.age / 20.0, 1.0) * robot.size * robot.one)


def without_gravity(share: float) -> Spoil:
    return lambda robot, s: replace(s, tau=s.tau - share * robot.gravity(s.q))


def speeds(factor: float, *, one: bool = False) -> Spoil:
    return lambda robot, s: replace(s, dq=s.dq * (robot.only(factor) if one else factor))


def clock(factor: float) -> Spoil:
    return lambda robot, s: replace(s, t=robot.begin + factor * (s.t - robot.begin))


def late(most: float, *, torques: bool = False) -> Spoil:
    """All channels, or torques alone, come later and later, up to `most` [s] after 20 s."""

    def spoil(robot: Spoiled, s: Measured) -> Changed:
        cycles = round(most * min(robot.age / 20.0, 1.0) * RATE)
        old = robot.past[-1 - min(cycles, len(robot.past) - 1)]
        return replace(s, tau=old.tau) if torques else replace(old, t=s.t)

    return spoil


def zero_shifted(angle: float) -> Spoil:
    return lambda robot, s: replace(s, q=s.q + angle * robot.one)


def torques_swapped(robot: Spoiled, s: Measured) -> Changed:
    return replace(s, tau=s.tau[robot.order])


def joints_swapped(robot: Spoiled, s: Measured) -> Changed:
    return Measured(s.t, s.q[robot.order], s.dq[robot.order], s.tau[robot.order])


def other_torque(robot: Spoiled, s: Measured) -> Changed:
    """The torques that another robot would need for the same motion (a model's, not a sensor's)."""
    return replace(s, tau=robot.other_torque())


def flipped(robot: Spoiled, s: Measured) -> Changed:
    return replace(s, tau=s.tau * robot.only(-1.0))


def dead(robot: Spoiled, s: Measured) -> Changed:
    noise = 0.01 * robot.size * robot.rng.normal(size=len(s.tau))
    return replace(s, tau=np.where(robot.one > 0.0, noise, s.tau))


def frozen_encoder(robot: Spoiled, s: Measured) -> Changed:
    robot.kept = robot.kept or s
    return replace(s, q=np.where(robot.one > 0.0, robot.kept.q, s.q))


def frozen_joint(robot: Spoiled, s: Measured) -> Changed:
    robot.kept = robot.kept or s
    still = robot.one > 0.0
    return replace(s, q=np.where(still, robot.kept.q, s.q), dq=np.where(still, 0.0, s.dq))


def spikes(robot: Spoiled, s: Measured) -> Changed:
    """One in twenty torques of the joint is 20 times its usual one too large."""
    more = 20.0 * robot.size * robot.one * (robot.rng.random() < 0.05)
    return replace(s, tau=s.tau + more)


def not_finite(robot: Spoiled, s: Measured) -> Changed:
    if robot.rng.random() < 0.01:
        channel = ("q", "dq", "tau")[int(robot.rng.integers(3))]
        array = getattr(s, channel).copy()
        array[int(robot.rng.integers(len(array)))] = robot.rng.choice([np.nan, np.inf, 1e30])
        s = replace(s, **{channel: array})
    return s


def drop_outs(robot: Spoiled, s: Measured) -> Changed:
    if robot.silent > 0:
        robot.silent -= 1
        return None
    if robot.rng.random() < 0.01:
        robot.silent = int(robot.rng.integers(1, 15))
    return robot.past[-2] if robot.rng.random() < 0.02 else s


STREAMS = (
    *(Stream(f"torque × {f:g} from the start", scaled(f), 0.0) for f in (0.15, 0.4, 0.7, 1.4)),
    *(Stream(f"torque × {f:g} from the start", scaled(f), 0.0) for f in (1.8, 3.0, 10.0)),
    *(Stream(f"torque × {f:g}", scaled(f)) for f in (0.5, 0.8, 1.5)),
    Stream("one joint × 2 from the start", one_scaled(2.0), 0.0),
    Stream("one joint × 1.6", one_scaled(1.6)),
    Stream("one joint × 0.4", one_scaled(0.4)),
    Stream("torque to × 2 in 20 s", ramp(2.0, 20.0)),
    Stream("one joint to × 2 in 20 s", ramp(2.0, 20.0, one=True)),
    Stream("one zero drifts", offset_ramp),
    Stream("gravity removed from the start", without_gravity(1.0), 0.0),
    Stream("gravity removed", without_gravity(1.0)),
    Stream("half of gravity removed", without_gravity(0.5)),
    Stream("half speeds from the start", speeds(0.5), 0.0),
    Stream("speeds × 2", speeds(2.0)),
    Stream("one speed × 0.7", speeds(0.7, one=True)),
    Stream("stamps × 2 from the start", clock(2.0), 0.0),
    Stream("stamps × 1.3", clock(1.3)),
    Stream("delay grows to 40 ms", late(0.04)),
    Stream("torques' delay grows to 100 ms", late(0.1, torques=True)),
    Stream("encoder off by 0.5 rad from the start", zero_shifted(0.5), 0.0),
    Stream("encoder off by 0.5 rad", zero_shifted(0.5)),
    Stream("encoder off by 0.15 rad", zero_shifted(0.15)),
    Stream("torques swapped", torques_swapped),
    Stream("joints swapped", joints_swapped),
    Stream("another model's torque from the start", other_torque, 0.0),
    Stream("another model's torque", other_torque),
    Stream("torque flipped", flipped),
    Stream("dead torque with noise", dead),
    Stream("frozen encoder", frozen_encoder),
    Stream("frozen encoder and speed", frozen_joint),
    Stream("torque spikes", spikes),
    Stream("not finite", not_finite),
    Stream("drop-outs and repeats", drop_outs),
)


# -- the loop --------------------------------------------------------------------------------------


class Spoiled(SimulatedRobot):
    """A simulated robot whose samples are changed on their way, from a time on."""

    def __init__(self, inner: SimulatedRobot, stream: Stream, nominal: th.Robot) -> None:
        super().__init__(inner.plant, rate=inner.rate, seed=inner.seed)
        self.stream, self.begin = stream, stream.start
        self.rng = np.random.default_rng(3)
        n = nominal.nv
        self.one = (np.arange(n) == 1).astype(float)  # the joint that a lie of one is about
        self.order = np.arange(n)
        self.order[[1, 3]] = 3, 1
        self.past: deque[Measured] = deque(maxlen=64)
        self.kept: Measured | None = None
        self.silent = 0
        self.age = 0.0  # [s] of the lie
        self._other = perturb(self.plant.robot, spread=0.45, seed=9)
        q = th.random_configuration(nominal, np.random.default_rng(0), 100)
        self.size = np.sqrt(np.mean(th.gravity(self.plant.robot, q) ** 2, axis=0))
        self.size = np.maximum(self.size, 0.05 * self.size.max())  # (nv,) usual torque
        self.largest = 0.0  # command over its limit

    def only(self, factor: float) -> np.ndarray:
        """(nv,) the factor for the one joint, 1 for the others."""
        return 1.0 + (factor - 1.0) * self.one

    def gravity(self, q: np.ndarray) -> np.ndarray:
        """The true robot's, (nv,)."""
        return th.gravity(self.plant.robot, q)

    def other_torque(self) -> np.ndarray:
        """What another robot would need for the true motion of this moment, (nv,)."""
        q, dq, ddq, _ = self.plant.truth()
        return th.inverse_dynamics(self._other, q, dq, ddq)

    def read(self) -> Measured | None:
        sample = super().read()
        assert sample is not None
        self.past.append(sample)
        self.age = sample.t - self.begin
        return sample if self.age < 0.0 else self.stream.spoil(self, sample)


@dataclass
class Outcome:
    """What a stream came to."""

    robot: str
    stream: str
    worse: float = 0.0  # [s] that a model worse than the nominal one was in charge
    worst: float = 0.0  # its error over the nominal robot's
    identified: float = 0.0  # [s] that any identified model was in charge
    opened: float | None = None  # [s]
    limits: bool = True  # every command finite and inside the limits
    ended: str = ""  # why the run ended early
    reason: str = ""  # of the gate at the end
    closings: list[str] = field(default_factory=list)
    seconds: float = 0.0  # of the run

    @property
    def good(self) -> bool:
        return self.limits and self.worse <= LONGEST


class Truth:
    """The error of a model on a motion that nobody has seen."""

    def __init__(self, true: th.Robot, nominal: th.Robot) -> None:
        q, dq, ddq = (array[::25] for array in motion(nominal, seed=7, seconds=30.0)[1:])
        self._states = q, dq, ddq
        self._true = th.inverse_dynamics(true, *self._states)
        self._errors: dict[int, tuple[th.Robot, float]] = {}
        self.nominal = self._error(nominal)

    def ratio(self, robot: th.Robot) -> float:
        """Its error over the nominal robot's."""
        known = self._errors.get(id(robot))
        if known is None:
            known = self._errors[id(robot)] = robot, self._error(robot) / self.nominal
        return known[1]

    def _error(self, robot: th.Robot) -> float:
        off = th.inverse_dynamics(robot, *self._states) - self._true
        return float(np.sqrt(np.mean(np.sum(off**2, axis=0) / np.sum(self._true**2, axis=0))))


def motion(
    robot: th.Robot, *, seed: int, seconds: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Two sines of every joint about the middle of its range, from rest: (t, q, dq, ddq)."""
    rng = np.random.default_rng(seed)
    t = np.arange(0.0, seconds + 1.0 / RATE, 1.0 / RATE)
    limits = [node.limits for node in robot.tree.independent]
    low = np.array([max(limit.lower, -np.pi) for limit in limits])
    high = np.array([min(limit.upper, np.pi) for limit in limits])
    q = np.tile(0.5 * (low + high), (len(t), 1))
    dq, ddq = np.zeros_like(q), np.zeros_like(q)
    slow, rate, change = t - (1.0 - np.exp(-t)), 1.0 - np.exp(-t), np.exp(-t)
    for share, frequencies in ((0.6, (0.1, 0.25)), (0.4, (0.25, 0.5))):
        amplitude = share * np.minimum(0.7, 0.35 * (high - low))
        w = 2.0 * np.pi * rng.uniform(*frequencies, robot.nv)
        phase, speed, growth = (np.outer(x, w) for x in (slow, rate, change))
        q += amplitude * np.sin(phase)
        dq += amplitude * np.cos(phase) * speed
        ddq += amplitude * (np.cos(phase) * growth - np.sin(phase) * speed**2)
    return t, q, dq, ddq


def load_robot(name: str) -> th.Robot:
    """A robot that ships with the package, or the Panda of example-robot-data without fingers."""
    if name != "panda":
        return th.load(robots.path(name))
    whole = th.load(example_folder() / EXAMPLES["Panda"])
    return lock(whole, [joint for joint in whole.joint_names if "finger" in joint])


def run(
    name: str,
    stream: Stream,
    *,
    seed: int = 0,
    settings: ControlSettings | None = None,
    engine: str = "mujoco",
    verbose: bool = False,
) -> Outcome:
    """One stream in closed loop."""
    began, nominal, outcome = time.perf_counter(), load_robot(name), Outcome(name, stream.name)
    settings = settings or ControlSettings(rate=RATE, duration=SECONDS)
    planted = PlantedDifferences(HEAVIER, SPREAD, seed=seed)
    inner = SimulatedRobot.of(nominal, planted, engine=engine, rate=settings.rate)
    connection = Spoiled(inner, stream, nominal)
    goals = Motion(*motion(nominal, seed=seed, seconds=settings.duration), nominal.joint_names)
    run = ControlRun(nominal, connection, goals, settings)
    truth, limits = Truth(inner.plant.robot, run.nominal), run.controller.limits
    connection.start(run.wanted(0.0)[0])
    try:
        for cycle in run.cycles():
            tau = connection.commanded
            outcome.limits &= bool(np.all(np.isfinite(tau)) and np.all(np.abs(tau) <= limits))
            if cycle.identified:
                ratio = truth.ratio(run.controller.robot)
                outcome.identified += 1.0 / settings.rate
                outcome.worst = max(outcome.worst, ratio)
                outcome.worse += (ratio > WORSE) / settings.rate
            if verbose:
                for event in run.identifier.verdict.events:
                    print(f"   {event.t:7.2f} {event.kind}: {event.sentence}", flush=True)
    except th.ThetahatError as error:  # the simulated robot is lost; its commands were judged
        outcome.ended = str(error)
    result = run.result()
    outcome.opened, outcome.reason = result.stream.opened_at, result.stream.reason
    outcome.closings = [
        f"{t:.2f} s: {why}" for t, is_open, why in result.stream.gate if not is_open
    ]
    run.close()
    outcome.seconds = time.perf_counter() - began
    return outcome


def line(outcome: Outcome) -> str:
    """An outcome in a line."""
    opened = "never" if outcome.opened is None else f"{outcome.opened:.1f} s"
    return (
        f"{outcome.robot:6} {outcome.stream:38} {'good' if outcome.good else 'BAD '}  open {opened:>6},"
        f" closed {len(outcome.closings)}×; identified {outcome.identified:4.1f} s, worse"
        f" {outcome.worse:4.1f} s (up to ×{outcome.worst:.2g})"
        f"{'' if outcome.limits else '; BEYOND LIMITS'}  [{outcome.seconds:.0f} s]"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--robots", default=",".join(NAMES))
    parser.add_argument("--streams", default="", help="names, apart by commas; default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=None, help="JSON lines; what is there is kept")
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args()
    chosen = [s for s in STREAMS if not given.streams or s.name in given.streams.split(",")]
    done: dict[tuple[str, str], Outcome] = {}
    if given.out is not None and given.out.is_file():
        for text in given.out.read_text().splitlines():
            outcome = Outcome(**json.loads(text))
            done[outcome.robot, outcome.stream] = outcome
    outcomes = []
    for name in given.robots.split(","):
        for stream in chosen:
            outcome = done.get((name, stream.name))
            if outcome is None:
                outcome = run(name, stream, seed=given.seed, verbose=given.verbose)
                if given.out is not None:
                    with given.out.open("a") as file:
                        file.write(json.dumps(asdict(outcome)) + "\n")
            outcomes.append(outcome)
            print(line(outcome), flush=True)
            if not outcome.good or given.verbose:
                print("      ", outcome.reason, *outcome.closings[:4], sep="\n        ", flush=True)
    print(f"{sum(outcome.good for outcome in outcomes)} of {len(outcomes)} good")


if __name__ == "__main__":
    main()
