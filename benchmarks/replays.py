"""Real logs replayed through the online identifier: is the gate open, and does anything alarm
without a cause?

    python -m benchmarks.replays [words]      # the logs of `benchmarks.real` whose name has a word

The runs of a log are pushed sample by sample, one after the other with half a second between, with
the defaults and the nominal robot of its file, drive terms identified. Nobody holds or hits these
robots, so every alarm is a false one. The share of open time counts the second half of each log.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import numpy as np

import thetahat as th
from benchmarks.real import CASES, LOGS, Case
from thetahat.model.io.actuation_csv import with_map

GAP = 0.5  # [s] between runs
# of another laboratory, 30 Hz: in `benchmarks.real` it is a log to test on
OTHER = Case("another Panda", "ur10/panda_nomesh.urdf", "ur10/panda_exciting.csv", 4.0, ())
ALARMS = ("alarm", "payload", "drift", "collision", "sensor", "change")


def main() -> None:
    """Replay every log once."""
    if not LOGS.is_dir():
        print("real logs: skipped, since the shared data folder is not beside the repository")
        return
    words, seen, shares = [word.lower() for word in sys.argv[1:]], set(), []
    for case in (*CASES, OTHER):
        if case.log in seen or (words and not any(word in case.log.lower() for word in words)):
            continue
        seen.add(case.log)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            shares.append(replay(case))
    print(f"gate open in the second half, median of {len(shares)} logs: {np.median(shares):.0%}")


def replay(case: Case) -> float:
    """A log; return the share of its second half in which the gate was open."""
    robot = th.load(LOGS / case.robot)
    if case.actuation is not None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "map.csv"
            path.write_text(case.actuation)
            robot = with_map(robot, path, whole=robot, locked=())
    robot = robot.with_drive(viscous=True, coulomb=True, offset=True, armature=True)
    runs = th.read_log(LOGS / case.log, robot).read()
    total = sum(run.t[-1] - run.t[0] + GAP for run in runs)
    open_time, clock, counts = 0.0, 0.0, Counter()
    first, sentences = None, []
    with th.OnlineIdentifier(robot) as identifier:
        for run in runs:
            last = clock
            for k, stamp in enumerate(run.t):
                t = clock + float(stamp - run.t[0])
                dq = None if run.dq is None else run.dq[k]
                verdict = identifier.push(t, run.q[k], dq, run.tau[k])
                if verdict.gate.open:
                    first = t if first is None else first
                    open_time += t - last if t > 0.5 * total else 0.0
                counts.update(event.kind for event in verdict.events if event.kind in ALARMS)
                kinds = ("closed", "faster", *ALARMS)
                sentences += [e.sentence for e in verdict.events if e.kind in kinds]
                last = t
            clock = last + GAP
        reason = identifier.gate.reason
    share = open_time / (0.5 * total)
    opened = "never" if first is None else f"{first:.0f} s"
    print(
        f"{case.log:40} {len(runs)} runs, {total:4.0f} s  opens {opened:>6}  open {share:4.0%}"
        f"  {dict(counts) or 'no alarm'}  {reason[:110]}",
        flush=True,
    )
    for sentence in sentences[:4]:
        print(f"     {sentence[:170]}")
    return share


if __name__ == "__main__":
    main()
