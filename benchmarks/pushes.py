"""External torque on real logs: false alarms on rows that were not fitted, and planted pushes.

    python -m benchmarks.pushes                       # the seven logs of ../shared/data
    python -m benchmarks.pushes panda kr300 --rate 60 --pushes 20

Each robot is identified from the training rows of `benchmarks.real`; what the observer calls
contact is learned from the same rows. Nobody touches these robots, so every contact in the held-out
rows is a false alarm (those within 0.25 s of each other are one). Pushes are planted into held-out
torques: steps of five times the RMS of the observer's torque there, on one joint at a time, evenly
spread over time, signs drawn. A push counts as found if a contact begins within 50 ms of it.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import thetahat as th
from benchmarks.real import CASES, LOGS, Case, inputs
from thetahat.model.lock_joints import kept_positions
from thetahat.model.robot import Robot
from thetahat.online.contact_detector import WITHIN
from thetahat.online.external_torque import Contact, ExternalTorque, Run
from thetahat.pipeline.identify import identify

NAMES = {
    "panda": "Panda, first half → second half",
    "ur10": "UR10, first half → second half",
    "kr300": "KR300, A + B → C",
    "tx40": "TX40, first half → second half",
    "pendulum-C1": "Double pendulum C1, even → odd segments",
    "pendulum-C0": "Double pendulum C0, even → odd segments",
    "pendulum-A0": "Double pendulum A0, even → odd segments",
}
SIZE = 5.0  # of a push, in RMS of the observer's torque
PUSHES = 40  # a joint
LEAD = 0.35  # [s] of samples before a push
APART = 0.25  # [s] between false alarms that count as two
BEGIN = 0.5  # [s] of a run in which the observer settles


@dataclass(frozen=True)
class PushScore:
    """How a log went."""

    name: str
    trained: float  # [s]
    held_out: float  # [s]
    expected: float  # false alarms, at the rate that was asked for
    alarms: int
    found: tuple[float, ...]  # share of the pushes on each joint
    rms: tuple[float, ...]  # [N·m] of the observer's torque in held-out rows


def runs_of(path: Path, whole: Robot, locked: tuple[str, ...]) -> list[Run]:
    """Return the runs of a log, with the joints that it measures."""
    q_at, v_at = kept_positions(whole, locked)
    out = []
    for run in th.read_log(path, whole).read():
        q, t = run.q[:, q_at], run.t
        dq = None if run.dq is None else run.dq[:, v_at]
        out.append((t, q, dq, run.tau[:, v_at]))
    return out


def part(run: Run, rows: slice) -> Run:
    """Return rows of a run; its torques are a copy."""
    t, q, dq, tau = run
    return t[rows], q[rows], None if dq is None else dq[rows], tau[rows].copy()


def pushed(observer: ExternalTorque, run: Run) -> list[Contact]:
    """Push a run from the beginning."""
    observer.reset()
    t, q, dq, tau = run
    rows = range(len(t))
    return [observer.push(t[k], q[k], None if dq is None else dq[k], tau[k]) for k in rows]


def halves(runs: list[Run]) -> tuple[list[Run], list[Run]]:
    """Return the first half of all rows, and the second."""
    first, second, left = [], [], sum(len(run[0]) for run in runs) // 2
    for run in runs:
        cut = min(left, len(run[0]))
        left -= cut
        first.append(part(run, slice(0, cut)))
        second.append(part(run, slice(cut, None)))
    return [run for run in first if len(run[0]) > 1], [run for run in second if len(run[0]) > 1]


def identified(case: Case) -> tuple[Robot, float, list[Run], list[Run]]:
    """Return robot, delay of the torques, training runs and held-out runs."""
    with tempfile.TemporaryDirectory() as scratch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        log, test, settings = inputs(case, Path(scratch))
        outcome = identify(LOGS / case.robot, log, test=test, settings=settings)
        whole, locked = th.load(LOGS / case.robot), tuple(outcome.dataset.log.locked)
        runs = runs_of(log, whole, locked)
        train, held = halves(runs) if test is None else (runs, runs_of(test, whole, locked))
    return outcome.robot, outcome.tuned.settings.delay, train, held


def seconds(runs: list[Run]) -> float:
    """Return the length of runs [s]."""
    return float(sum(run[0][-1] - run[0][0] for run in runs))


def contacts(observer: ExternalTorque, run: Run) -> tuple[np.ndarray, np.ndarray]:
    """Return the times at which contacts begin, and the torques after the start."""
    late = [each for each in pushed(observer, run) if each.t > run[0][0] + BEGIN]
    times = np.unique([each.since for each in late if each.since is not None])
    return times, np.array([each.torque for each in late]).reshape(-1, observer.robot.nv)


def score(name: str, rate: float | None, count: int, seed: int) -> PushScore:
    """Identify, learn, and look at held-out rows."""
    case = next(each for each in CASES if each.name == NAMES[name])
    robot, delay, train, held = identified(case)
    observer = ExternalTorque.calibrated(robot, train, false_alarms=rate, delay=delay)
    alarms, torques = 0, []
    for run in held:
        times, torque = contacts(observer, run)
        alarms += int(np.sum(np.diff(times, prepend=-np.inf) > APART))
        torques.append(torque)
    rms = np.sqrt(np.mean(np.concatenate(torques) ** 2, axis=0))
    rng = np.random.default_rng(seed)
    found = [
        _found(observer, held, joint, SIZE * rms[joint], count, rng) for joint in range(robot.nv)
    ]
    long, late = seconds(train), seconds(held)
    expected = late / long if rate is None else rate * late / 3600.0
    return PushScore(name, long, late, expected, alarms, tuple(found), tuple(rms))


def _found(
    observer: ExternalTorque,
    held: list[Run],
    joint: int,
    size: float,
    count: int,
    rng: np.random.Generator,
) -> float:
    """The share of pushes on a joint that are found."""
    spans = [max(float(run[0][-1] - run[0][0]) - BEGIN - LEAD - WITHIN, 0.0) for run in held]
    hits = []
    for run, span in zip(held, spans, strict=True):
        pushes = round(count * span / sum(spans))
        for at in BEGIN + LEAD + span * (np.arange(pushes) + 0.5) / max(pushes, 1):
            onset = run[0][0] + at
            first, begin = np.searchsorted(run[0], [onset - LEAD, onset])
            end = int(np.searchsorted(run[0], run[0][begin] + WITHIN, side="right"))
            rows = part(run, slice(int(first), end))
            rows[3][begin - first :, joint] -= size * rng.choice([-1.0, 1.0])
            seen = pushed(observer, rows)[begin - first :]
            hits.append(any(each.since is not None and each.since >= onset for each in seen))
    return float(np.mean(hits))


def main() -> None:
    """Run and print a line per log."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="LOG", help=", ".join(NAMES))
    parser.add_argument("--rate", type=float, help="false alarms an hour")
    parser.add_argument("--pushes", type=int, default=PUSHES)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if not LOGS.is_dir():
        print("real logs: skipped, since the shared data folder is not beside the repository")
        return
    done = []
    for name in given.names or NAMES:
        one = score(name, given.rate, given.pushes, given.seed)
        done.append(one)
        shares = " ".join(f"{share:.2f}" for share in one.found)
        print(
            f"{name:12} learned from {one.trained:4.0f} s; held out {one.held_out:4.0f} s:"
            f" {one.alarms} false alarms ({one.expected:.2f} expected); pushes found"
            f" {np.mean(one.found):.3f} ({shares})",
            flush=True,
        )
    total = sum(one.held_out for one in done)
    print(
        f"all: {sum(one.alarms for one in done)} false alarms in {total:.0f} s"
        f" ({sum(one.expected for one in done):.1f} expected), pushes found"
        f" {np.mean([np.mean(one.found) for one in done]):.3f}"
    )


if __name__ == "__main__":
    main()
