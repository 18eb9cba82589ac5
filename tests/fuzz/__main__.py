"""`make fuzz`: spoiled inputs of every format through the command line, in this process.

10,000 cases by default, 200 of which are meant to reach a full fit. Ends with exit code 1 where a case ended otherwise
than documented: exit 1, a traceback, a hang, NaN, files half-written, an input that was changed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "support")]

from fuzz.cases import Fuzzer  # noqa: E402


def main() -> int:
    """Run the cases, print the faults and a summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=9_600, help="cheap cases")
    parser.add_argument("--fits", type=int, default=400, help="cases that may reach a full fit")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--only", type=str, default="", help="run these seeds alone: 17,f23")
    given = parser.parse_args()
    seeds = [(seed, False) for seed in range(given.first, given.first + given.count)]
    seeds += [(seed, True) for seed in range(given.first, given.first + given.fits)]
    if given.only:
        seeds = [(int(each.strip("f")), "f" in each) for each in given.only.split(",")]
    began, codes, fitted, bad = time.monotonic(), Counter[int](), 0, 0
    slowest = (0.0, "")
    with tempfile.TemporaryDirectory(prefix="thetahat-fuzz-") as folder:
        fuzzer = Fuzzer(Path(folder))
        for done, (seed, fit) in enumerate(seeds, 1):
            case = fuzzer.case(seed, fit=fit)
            ended, wrong = fuzzer.run(case)
            codes[ended.code] += 1
            fitted += fit and ended.code in (0, 8)
            slowest = max(slowest, (ended.seconds, str(case)))
            if wrong or given.only:
                bad += bool(wrong)
                mark = "f" if fit else ""
                print(
                    f"{mark}{case}: {'; '.join(wrong)}\n    {ended.err[-1500:].strip()}", flush=True
                )
            if done % 500 == 0:
                print(
                    f"{done} of {len(seeds)} in {time.monotonic() - began:.0f} s, {bad} bad",
                    flush=True,
                )
    ends = ", ".join(f"{code}: {count}" for code, count in sorted(codes.items()))
    print(
        f"{len(seeds)} cases in {time.monotonic() - began:.0f} s, {fitted} full fits, {bad} bad; exit codes {ends}"
    )
    print(f"slowest {slowest[0]:.1f} s: {slowest[1]}")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
