"""Real logs replayed through the online identifier: is the gate open, and does anything alarm
without a cause?

    python -m benchmarks.replays [words]      # the logs of `benchmarks.real` whose name has a word

Each run of a log is pushed sample by sample, with the defaults and the nominal robot of its file,
drive terms identified. Nobody holds or hits these robots, so every alarm is a false one. The share
of open time counts the second half of each run.
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

ALARMS = ("alarm", "payload", "drift", "collision", "sensor", "change")


def main() -> None:
    """Replay every log once."""
    if not LOGS.is_dir():
        print("real logs: skipped, since the shared data folder is not beside the repository")
        return
    words, seen, shares = [word.lower() for word in sys.argv[1:]], set(), []
    for case in CASES:
        if case.log in seen or (words and not any(word in case.log.lower() for word in words)):
            continue
        seen.add(case.log)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            shares += replay(case)
    print(f"gate open in the second half, median of {len(shares)} runs: {np.median(shares):.0%}")


def replay(case: Case) -> list[float]:
    """Every run of a log; return the share of the second half in which the gate was open."""
    robot = th.load(LOGS / case.robot)
    if case.actuation is not None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "map.csv"
            path.write_text(case.actuation)
            robot = with_map(robot, path, whole=robot, locked=())
    robot = robot.with_drive(viscous=True, coulomb=True, offset=True, armature=True)
    shares = []
    for chunk in th.read_log(LOGS / case.log, robot).read():
        half = 0.5 * (chunk.t[0] + chunk.t[-1])
        open_time, last, counts = 0.0, chunk.t[0], Counter()
        first, reasons = None, []
        with th.OnlineIdentifier(robot) as identifier:
            for k, t in enumerate(chunk.t):
                dq = None if chunk.dq is None else chunk.dq[k]
                verdict = identifier.push(float(t), chunk.q[k], dq, chunk.tau[k])
                if verdict.gate.open:
                    first = t if first is None else first
                    open_time += t - last if t > half else 0.0
                counts.update(event.kind for event in verdict.events if event.kind in ALARMS)
                reasons += [e.sentence for e in verdict.events if e.kind in ("closed", *ALARMS)]
                last = t
            reason = identifier.gate.reason
        share = open_time / (chunk.t[-1] - half)
        shares.append(share)
        opened = "never" if first is None else f"{first - chunk.t[0]:.0f} s"
        print(
            f"{case.log:40} {chunk.t[-1] - chunk.t[0]:5.0f} s  opens {opened:>6}  open {share:4.0%}"
            f"  {dict(counts) or 'no alarm'}  {reason[:110]}",
            flush=True,
        )
        for sentence in reasons[:4]:
            print(f"     {sentence[:170]}")
    return shares


if __name__ == "__main__":
    main()
