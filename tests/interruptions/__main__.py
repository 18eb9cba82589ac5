"""`make interruptions`: every verb that writes, killed, on a full disk and in a read-only folder at 20 moments each.

Whatever happens, the files are those of before or all new ones. The process has no threads and no
pools of its own, since its copies run the verbs.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "support")]

from interruptions.verbs import VERBS, Workbench, chosen  # noqa: E402


def main() -> int:
    """Run the moments, and print what was left as it must not be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moments", type=int, default=20, help="of each kind")
    parser.add_argument("--verbs", type=str, default="", help="these alone: identify,tool")
    parser.add_argument("--drawn", type=int, default=None, help="seed of so many moments in all")
    parser.add_argument("--quick", action="store_true", help="verbs that take no time alone")
    given = parser.parse_args()
    names = [verb.name for verb in VERBS if verb.quick] if given.quick else []
    names += [name for name in given.verbs.split(",") if name]
    rng = None if given.drawn is None else random.Random(given.drawn)
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="thetahat-interruptions-") as folder:
        verbs = chosen(names)
        bench = Workbench(Path(folder), verbs)
        for verb in verbs:
            began = time.monotonic()
            found = bench.faults(verb, given.moments, rng=rng)
            wrong += found
            print(f"{verb.name}: {len(found)} bad in {time.monotonic() - began:.0f} s", flush=True)
            for each in found[:12]:
                print(f"    {each}", flush=True)
    print(f"{len(wrong)} bad")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
